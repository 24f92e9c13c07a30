# SPDX-License-Identifier: GPL-2.0-or-later
"""Device-mapper devices, by dmsetup."""

from pathlib import Path

from . import command
from .block import BlockDevice


def table(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "\n".join(lines)


class DmDevice(BlockDevice):
    def __init__(self, name: str):
        super().__init__(f"/dev/mapper/{name}")
        self.name = name

    @classmethod
    def create(
        cls, name: str, lines: str | list[str], *, readonly: bool = False, suspended: bool = False, uuid: str = ""
    ) -> "DmDevice":
        """lines: "START SECTORS TARGET ARGUMENTS...", one per target."""
        options = (["--readonly"] if readonly else []) + (["--notable"] if suspended else []) + (["--uuid", uuid] if uuid else [])
        if suspended:
            command.run("dmsetup", "create", name, *options)
            d = cls(name)
            d.load(lines)
            return d
        command.run("dmsetup", "create", name, *options, stdin=table(lines))
        return cls(name)

    def load(self, lines: str | list[str]) -> None:
        """Into the inactive slot; resume() makes it live."""
        command.run("dmsetup", "load", self.name, stdin=table(lines))

    def reload(self, lines: str | list[str], *, noflush: bool = False) -> None:
        """Load, suspend, resume: the table is changed under load."""
        self.load(lines)
        self.suspend(noflush=noflush)
        self.resume()

    def clear(self) -> None:
        command.run("dmsetup", "clear", self.name)

    def suspend(self, *, noflush: bool = False, nolockfs: bool = False) -> None:
        options = (["--noflush"] if noflush else []) + (["--nolockfs"] if nolockfs else [])
        command.run("dmsetup", "suspend", *options, self.name)

    def resume(self) -> None:
        command.run("dmsetup", "resume", self.name)

    def remove(self, *, retry: bool = True, force: bool = False, deferred: bool = False) -> None:
        options = (["--retry"] if retry else []) + (["--force"] if force else []) + (["--deferred"] if deferred else [])
        command.run("dmsetup", "remove", *options, self.name)

    def rename(self, name: str) -> None:
        command.run("dmsetup", "rename", self.name, name)
        self.__init__(name)

    def message(self, *words: object, sector: int = 0) -> str:
        """The answer, if the message has one."""
        return command.output("dmsetup", "message", self.name, sector, *words)

    def table(self, *, inactive: bool = False) -> str:
        return command.output("dmsetup", "table", *(["--inactive"] if inactive else []), self.name).strip()

    def status_line(self, *, noflush: bool = False) -> str:
        return command.output("dmsetup", "status", *(["--noflush"] if noflush else []), self.name).strip()

    def status(self) -> dict:
        """The key=value words of the (first) target's status; "start", "sectors", "target" as well."""
        start, sectors, target, *rest = self.status_line().splitlines()[0].split()
        return {"start": int(start), "sectors": int(sectors), "target": target} | command.key_values(" ".join(rest))

    def info(self) -> dict:
        """name, uuid, open, events, suspended, read_only ... of dmsetup info."""
        fields = "name,uuid,attr,open,segments,events,major,minor"
        values = (
            command.output("dmsetup", "info", "-c", "--noheadings", "--separator", "|", "-o", fields, self.name).strip().split("|")
        )
        d = dict(zip(fields.split(","), values, strict=True))
        return d | {k: int(d[k]) for k in ("open", "segments", "events", "major", "minor")} | {"suspended": "s" in d["attr"]}

    def events(self) -> int:
        return self.info()["events"]

    def exists(self) -> bool:
        return self.name in names()


def names() -> list[str]:
    if not any(Path("/sys/block").glob("dm-*")):
        return []
    out = command.output("dmsetup", "ls")
    return [] if out.startswith("No devices") else [x.split()[0] for x in out.splitlines()]


def remove_all() -> list[str]:
    """Removes whatever there is, users before what they use; returns the names of those that did not go."""
    left = names()
    while left:
        gone = []
        for name in left:
            d = DmDevice(name)
            if d.info()["suspended"]:
                command.run("dmsetup", "resume", name, check=False)
            if command.run("dmsetup", "remove", name, check=False).returncode == 0:
                gone.append(name)
        if not gone:
            break
        left = names()
    for name in left:
        command.run("dmsetup", "remove", "--force", name, check=False)
    return left
