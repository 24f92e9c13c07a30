# SPDX-License-Identifier: GPL-2.0-or-later
"""How a stack is, by what the status of its volume and its cache says: `larder status`, and what `larder doctor` makes of it."""

import itertools
import json
import re
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from fake_sysfs import Fed, Sysfs
from harness import DONE, NOT_FOUND
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
    ({}, {"errors_read": 2}, DEGRADED, "2 reads of an SSD"),
    ({}, {"errors_checksum": 2}, DEGRADED, "larder cache scrub larder-cache-data"),
    ({}, {"errors_checksum": 2, "scrub": "done"}, DONE, "fine"),
    ({}, {"read_avoided_percent": 50}, DONE, "fine: cache: congestion"),
    ({}, {"read_avoided_percent": 49}, DONE, "fine\n"),
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


# ---------------------------------------------------------------- devices that hang


@pytest.fixture
def sysfs(larder):
    return Sysfs(larder.directory / "root")


def status(stack, sysfs, code, name="data"):
    run = stack.larder("status", name, env=stack.status() | sysfs.environment, code=code)
    return run.stdout


def test_disk_that_hangs(larder, stack, sysfs):
    """It answers nothing, without any error; all that look say so, and which one it is."""
    sysfs.device("sdz", in_flight=3, device__delete="")
    sysfs.device("sdy")
    sysfs.device("dm-1", "sdy", requests=False)
    sysfs.image("larder-cache-data", "sdy")
    sysfs.image("data", "sdz", "dm-1")
    said = status(stack, sysfs, DEGRADED)
    began = r"data: degraded: stall: /dev/sdz has answered nothing for [2-9] s, with 3 requests in flight: the kernel's log "
    assert re.match(began, said)
    assert "echo 1 > /sys/block/sdz/device/delete" in said and said.count("stall: ") == 1
    env = stack.status() | sysfs.environment
    rows = json.loads(larder("list", "-o", "layer,state", "--reportformat", "json", env=env).stdout)["stacks"]
    assert rows[0] == {"layer": "stack", "state": "degraded"}
    assert "wrong          stall: /dev/sdz has answered nothing" in larder("volume", "status", "data", env=env).stdout
    assert "stall" not in larder("cache", "status", "data", env=env).stdout
    run = larder("doctor", "--root", larder.directory, "--reportformat", "json", env=env, code=None)
    found = [(row["subject"], row["level"]) for row in json.loads(run.stdout)["findings"] if row["check"] == "stall"]
    assert found == [("data", "wrong")]


ARRAY = {"sdy": {"in_flight": 1}, "sdz": {}, "md0": {"below": ("sdy", "sdz"), "requests": False, "in_flight": 4}}
PATHS = {"sdz": {}, "dm-7": {"below": ("sdz",), "in_flight": 2, "dm__name": "mpatha", "dm__suspended": 0}}
# what lies on what, which is named, what is said of it
LAYERS = {
    "a leg, and not its array": (ARRAY, "/dev/sdy", "with 1 request in flight"),
    "suspended": (
        {"dm-7": {"requests": False, "dm__name": "below", "dm__suspended": 1}}, "/dev/mapper/below", "dmsetup resume below",
    ),
    "multipath that queues": (PATHS, "/dev/mapper/mpatha", "nothing moves below it"),
    "a connection that is away": ({"sdz": {"device__state": "transport-offline"}}, "/dev/sdz", "away (transport-offline)"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_lowest_of_those_that_hang(stack, sysfs, name):
    devices, named, words = LAYERS[name]
    for device, facts in devices.items():
        sysfs.device(device, *facts.get("below", ()), **{k: v for k, v in facts.items() if k != "below"})
    sysfs.image("data", list(devices)[-1])
    said = status(stack, sysfs, DEGRADED)
    assert re.findall(r"stall: (\S+) has answered nothing", said) == [named] and words in said


def test_ssd_that_hangs(stack, sysfs):
    """Once, though it is below the volume, too."""
    sysfs.device("nvme0n1", in_flight=1)
    sysfs.device("dm-1", "nvme0n1", requests=False)
    sysfs.image("larder-cache-data", "nvme0n1")
    sysfs.image("data", "dm-1")
    assert re.findall(r"stall: (\S+) has", status(stack, sysfs, DEGRADED)) == ["/dev/nvme0n1"]


def test_disk_that_is_busy(stack, sysfs):
    """However long its queue is: it answers from look to look."""
    sysfs.device("sdz")
    sysfs.image("data", "sdz")
    with Fed(sysfs, "sdz", ((answered, 32) for answered in itertools.count())) as fed:
        assert status(stack, sysfs, DONE).startswith("data: fine")
    assert fed.looks == 2


def test_disk_that_is_idle(stack, sysfs):
    """One look, and no wait."""
    sysfs.device("sdz")
    sysfs.image("data", "sdz")
    with Fed(sysfs, "sdz", itertools.repeat((1000, 0))) as fed:
        assert status(stack, sysfs, DONE).startswith("data: fine")
    assert fed.looks == 1


def test_volume_that_waits_for_a_busy_disk(stack, sysfs):
    """A flush, say: what moves below it does not hang."""
    sysfs.device("sdz")
    sysfs.device("md0", "sdz", requests=False, in_flight=1)
    sysfs.image("data", "md0")
    with Fed(sysfs, "sdz", ((answered, 1) for answered in itertools.count())):
        assert status(stack, sysfs, DONE).startswith("data: fine")


def test_superblocks_that_cannot_be_read(larder, stack, sysfs):
    """What runs is judged by the kernel's status then; the disk that is not read stands for it here."""
    env = stack.status()
    sysfs.device("sdz", in_flight=1)
    sysfs.image("data", "sdz")
    stack.ssds({"changing": [], "ready": [f"{stack.uuid} data"]})
    larder.devices.remove(stack.hdd)
    assert larder("status", "data", env=env, code=None).stdout.startswith("data: incomplete: stack: its disks are not here")
    said = larder("status", "data", env=env | sysfs.environment, code=DEGRADED).stdout
    assert said.startswith("data: degraded: stall: /dev/sdz has answered") and "stack: its description cannot be read" in said
    larder.devices.remove(stack.ssd)
    said = larder("status", "data", env=env | sysfs.environment, code=DEGRADED).stdout
    assert said.startswith("data: degraded: stall: /dev/sdz has answered nothing") and "its superblocks cannot be read" in said
    larder("status", "data", env=env, code=NOT_FOUND)
    larder("status", "other", env=env | sysfs.environment, code=NOT_FOUND)
