# SPDX-License-Identifier: GPL-2.0-or-later
"""How a stack is, by what the status of its volume and its cache says: `larder status`, and what `larder doctor` makes of it."""

import json
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import DONE
from status_lines import line
from test_command_stack import Described

pytest_plugins = ["larder_fixtures"]
DEGRADED, FAILED = 10, 11


class Running(Described):
    """A stack of one disk and one SSD that runs."""

    def __init__(self, larder):
        super().__init__(larder)
        self.describe()

    def describe(self, **more):
        super().volume(self.plain | more)

    def status(self, volume=None, cache=None):
        of_volume = {"uuid": str(uuid.uuid5(self.uuid, "volume")), "cache": self.plain["cache"]} | (volume or {})
        lines = [line("volume", "data", **of_volume)]
        if cache is not False:
            lines.append(line("cache", "larder-cache-data", uuid=self.plain["cache"], **(cache or {})))
        path = self.larder.directory / "status"
        path.write_text("".join(lines))
        return {"LARDER_STATUS": str(path)}


@pytest.fixture
def stack(larder):
    return Running(larder)


VERDICTS = [
    ({}, {}, DONE, "fine"),
    ({"cache": "-", "state": "passthrough"}, False, DEGRADED, "without its cache"),
    ({"state": "passing"}, {"state": "failed"}, DEGRADED, "goes on without its cache"),
    ({"state": "passing"}, {"state": "failed", "trouble": "flush"}, DEGRADED, "goes on without its cache"),
    ({"state": "leaving"}, {"state": "failed"}, FAILED, "volume: leaving"),
    ({"state": "cache-failed"}, {"state": "failed"}, FAILED, "volume: cache-failed"),
    ({}, {"state": "suspended"}, FAILED, "cache: suspended"),
    ({}, False, FAILED, "cache: does not run"),
    ({}, {"trouble": "flush"}, FAILED, "flush of an SSD failed"),
    ({}, {"trouble": "single"}, DEGRADED, "one copy"),
    ({}, {"trouble": "flush/single"}, FAILED, "flush of an SSD failed"),
    ({}, {"devices": 2, "devices_failed": 1}, DEGRADED, "1 of its SSDs failed"),
    ({}, {"scrub_unrepairable": 3}, DEGRADED, "3 damaged slots"),
    ({}, {"lost_sectors": 8}, DEGRADED, "8 sectors"),
    ({}, {"errors_read": 2}, DEGRADED, "2 reads of the SSD"),
    ({}, {"errors_checksum": 2}, DEGRADED, "larder cache scrub larder-cache-data"),
    ({}, {"errors_checksum": 2, "scrub": "done"}, DONE, "fine"),
    ({}, {"read_avoided_percent": 50}, DONE, "fine: cache: congestion"),
    ({"trouble": "flush"}, {}, FAILED, "flush of the disk failed"),
    ({"trouble": "superblock"}, {}, FAILED, "superblock of the disk"),
    ({"trouble": "writeback/full"}, {}, FAILED, "writes fail"),
    ({"trouble": "writeback"}, {}, DEGRADED, "cannot be written to the disk"),
    ({"errors_read": 4}, {}, DEGRADED, "read 4"),
    ({"errors_write": 4}, {}, DEGRADED, "write 4"),
    ({"errors_checksum": 4}, {}, DEGRADED, "4 times"),
]


@pytest.mark.parametrize(("volume", "cache", "code", "words"), VERDICTS)
def test_verdict(larder, stack, volume, cache, code, words):
    said = larder("status", "data", env=stack.status(volume, cache), code=code).stdout
    assert words in said and said.startswith("data: ") and said.count("\n") == 1
    verdict = {DONE: "fine", DEGRADED: "degraded", FAILED: "failed"}[code]
    assert said.startswith(f"data: {verdict}")
    words = ["list", "-o", "layer,state", "--reportformat", "json"]
    rows = json.loads(larder(*words, env=stack.status(volume, cache)).stdout)["stacks"]
    assert rows[0] == {"layer": "stack", "state": verdict}


def of_stack(stack, **lines):
    run = stack.larder("doctor", "--root", stack.larder.directory, "--reportformat", "json", env=stack.status(**lines), code=None)
    return [row["text"] for row in json.loads(run.stdout)["findings"] if row["check"] == "stack"]


def test_doctor(stack):
    """What status says of a stack that runs, and its volume and cache do not say themselves, doctor says too."""
    assert of_stack(stack) == []
    (text,) = of_stack(stack, volume={"cache": "-", "state": "passthrough"}, cache=False)
    assert "without its cache" in text
    assert of_stack(stack, volume={"state": "passing"}, cache={"state": "failed", "devices": 2, "devices_failed": 1}) == []
    part = {name: str(uuid.uuid5(stack.uuid, name)) for name in ("fs", "md")}
    stack.describe(fs="ext4", fs_uuid=part["fs"], mount="/nowhere", raid="1", legs=2, md=part["md"])
    assert of_stack(stack) == ["array: does not run", "filesystem: is not mounted"]
