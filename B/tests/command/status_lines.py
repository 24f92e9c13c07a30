# SPDX-License-Identifier: GPL-2.0-or-later
"""Status lines as the kernel prints them, made of the keys that docs/interface.md lists; for LARDER_STATUS."""

import os
import re
import uuid

from harness import TOP

CACHE_UUID, VOLUME_UUID = uuid.UUID(int=0xCAC4E), uuid.UUID(int=0x701)
TEXTS = {
    "cache": {
        "uuid": str(CACHE_UUID), "state": "running", "joining": "-", "ssds": "active", "trouble": "-", "scrub": "idle",
    },
    "volume": {
        "uuid": str(VOLUME_UUID), "cache": str(CACHE_UUID), "state": "running", "mode": "writeback", "trouble": "-",
        "class_reads": "-", "class_writes": "-", "class_read_sectors": "-", "class_write_sectors": "-",
    },
}  # fmt: skip
HEALTHY = {"cache": {"devices": 1, "segments": 1000, "roles_honoured": 1}, "volume": {}}


def documented(heading):
    """The keys that docs/interface.md announces under that heading."""
    text = (TOP / "docs" / "interface.md").read_text()
    section = text.split(f"\n### {heading}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    return [key for row in re.findall(r"^\|(.*?)\|", section, re.M) for key in re.findall(r"`(\w+)`", row)]


def keys(noun):
    """Of the status, without the options behind it."""
    return documented(f"Status of a {noun}")


def options(noun):
    """`mode` stands among the keys, and `stale` is never printed."""
    return [key for key in documented(f"Options of a {noun}") if key not in ("mode", "stale")]


def line(noun, name, sectors=2048, **values):
    """Zeroes, but for texts, for what makes it a healthy one, and for what is given; without values that are None."""
    words = dict.fromkeys(keys(noun), 0) | TEXTS[noun] | HEALTHY[noun] | dict.fromkeys(options(noun), "x") | values
    target = {"cache": "larder-cache", "volume": "larder"}[noun]
    status = " ".join(f"{key}={value}" for key, value in words.items() if value is not None)
    return f"{name}: 0 {sectors} {target} {status}\n"


class Fed:
    """A status that is read again and again: each look of the command waits for what the test gives it; no clock decides."""

    def __init__(self, directory):
        self.path, self.new = directory / "fed", directory / "fed.new"
        self.environment = {"LARDER_STATUS": str(self.path)}
        os.mkfifo(self.path)

    def give(self, *lines, then="another"):
        """Returns once the command has come for it.  Its next look finds another pipe; or "the same", like all behind it; or
        "nothing" to read, which ends it by an error.  That is settled before this look is over: it does not wait for us."""
        with open(self.path, "w") as pipe:
            if then == "nothing":
                self.path.unlink()
            else:
                if then == "the same":
                    self.new.write_text("".join(lines))
                else:
                    os.mkfifo(self.new)
                self.new.rename(self.path)
            pipe.write("".join(lines))

    def give_all(self, *looks):
        """These, and then nothing."""
        for look in looks[:-1]:
            self.give(*look)
        self.give(*looks[-1], then="nothing")
