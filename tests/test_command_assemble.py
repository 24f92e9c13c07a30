# SPDX-License-Identifier: GPL-2.0-or-later
"""larder assemble on images: a dry run says what would be started, and what is refused, and writes nothing.

What plans must hold is shown by tests/unit/test_plan.c; here superblocks, signatures and tables become facts.
"""

import itertools
import shutil
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import CACHE, KIB, MIB, NOT_FOUND, SB, SB_SIZE, UNSAFE, VOLUME, attach_by_hand, digest, field, one_line, patch_both

pytest_plugins = ["larder_fixtures"]

MAY_BE_DIRTY = 1


@pytest.fixture
def stack(larder):
    """Two SSDs, a disk: cache `fast`, volume `data`."""
    a, b = larder.image("a", 64 * MIB), larder.image("b", 64 * MIB)
    larder("cache", "create", "fast", "--cache", a, "--cache", b, "--yes")
    return a, b, larder.volume("data", 64 * MIB, "--cache", "fast")


def dry(larder, *words, code=0):
    before = [digest(d) for d in larder.devices]
    run = larder("assemble", *(words or ("--all",)), "--dry-run", code=code)
    assert [digest(d) for d in larder.devices] == before
    return run


def names(run):
    return [line.split()[2] for line in run.stdout.splitlines()]


def test_whole(larder, stack):
    """In whatever order the devices are found."""
    a, b, hdd = stack
    cache, volume = uuid.UUID(bytes=field(a, CACHE, "cache_uuid")), uuid.UUID(bytes=field(hdd, VOLUME, "uuid"))
    sectors = 2 * field(a, CACHE, "nr_segments") * field(a, CACHE, "segment_size") // 512
    for order in itertools.permutations(stack):
        larder.devices = list(order)
        for words in (["--all"], ["data"], [str(volume)], ["fast"]):
            assert dry(larder, *words).stdout.splitlines() == [
                f"dmsetup create larder-cache-fast --uuid LARDER-{cache}-cache --table '0 {sectors} larder-cache 2 {a} {b} 0'",
                f"dmsetup create data --uuid LARDER-{volume} --table '0 {62 * 2048} larder {hdd} /dev/mapper/larder-cache-fast 0'",
            ]


def test_only_what_is_asked_for(larder, stack):
    larder.cache("slow")
    larder.volume("more", 64 * MIB)
    larder.volume("other", 64 * MIB, "--cache", "slow")
    assert sorted(names(dry(larder))) == ["data", "larder-cache-fast", "larder-cache-slow", "more", "other"]
    assert names(dry(larder, "other")) == ["larder-cache-slow", "other"]
    assert names(dry(larder, "more")) == ["more"]


def test_missing_ssd(larder, stack):
    _, b, _ = stack
    larder.devices.remove(b)
    one_line(dry(larder, code=NOT_FOUND), "cache fast: waits for 1 of its 2 SSDs")
    # no table knows the volume: nothing tells whether the cache was used without this SSD
    one_line(dry(larder, "--all", "--degraded", code=UNSAFE), "larder cache start fast --degraded")


@pytest.mark.parametrize("away", [0, 1])
def test_missing_ssd_of_a_volume_that_ran(larder, stack, away):
    *ssds, hdd = stack
    here = ssds[1 - away]
    for ssd in ssds:
        attach_by_hand(ssd, hdd)
    patch_both(hdd, VOLUME, set_generation=field(here, CACHE, "set_generation"), incarnation=0)  # as in that entry
    larder.devices.remove(ssds[away])
    one_line(dry(larder, code=NOT_FOUND), "cache fast: waits for 1 of its 2 SSDs")
    run = dry(larder, "--all", "--degraded")
    places = [str(here) if ssd == here else "-" for ssd in ssds]
    assert names(run) == ["larder-cache-fast", "data"] and f"larder-cache 2 {' '.join(places)} 0'" in run.stdout
    # the volume ran with the other SSD alone: the one that is here was left
    patch_both(hdd, VOLUME, set_generation=field(here, CACHE, "set_generation") + (1 << 32))
    run = dry(larder, "--all", "--degraded", code=UNSAFE)
    one_line(run, "ran with other SSDs")
    assert run.stdout == ""
    # without the disk nobody knows
    larder.devices.remove(hdd)
    one_line(dry(larder, "--all", "--degraded", code=UNSAFE), "no volume of it is here")


def test_missing_cache(larder, stack):
    hdd = stack[2]
    larder.devices = [hdd]
    one_line(dry(larder, code=NOT_FOUND), "volume data: waits for its cache")
    run = dry(larder, "--all", "--degraded")
    assert run.stdout.endswith(f" larder {hdd} - 0'\n")
    patch_both(hdd, VOLUME, flags=MAY_BE_DIRTY)
    one_line(dry(larder, "--all", "--degraded", code=UNSAFE), "may hold newer data")


@pytest.mark.parametrize("which", [0, 2])
def test_copy(larder, stack, which):
    """Of an SSD or of the disk: neither is used; of the disk, the cache is."""
    clone = larder.image("clone", 0)
    shutil.copy(stack[which], clone)
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], clone, "neither is used", "larder super wipe")
    assert names(run) == (["larder-cache-fast"] if which == 2 else [])


@pytest.mark.parametrize("which", [0, 2])
def test_somebody_elses(larder, stack, which):
    """An LVM label beside our superblock: not ours to use."""
    signatures.lvm(stack[which])
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], "LVM2_member", "wipefs")
    assert names(run) == (["larder-cache-fast"] if which == 2 else [])


def test_one_label_for_two(larder):
    first = larder.volume("data")
    larder.devices = []
    second = larder.image("second", 64 * MIB)
    larder("volume", "create", "data", "--backing", second)
    larder.devices.append(first)
    run = dry(larder, code=UNSAFE)
    assert run.stdout == "" and len(run.stderr.splitlines()) == 2
    for path in (first, second):
        assert f"larder volume start {uuid.UUID(bytes=field(path, VOLUME, 'uuid'))} --name NAME" in run.stderr


def test_damaged(larder, stack):
    """A member without a valid superblock is none; one without a valid table is not used."""
    a, b, _ = stack
    with open(b, "r+b") as f:
        for table in (128, 256):
            f.seek(table * KIB)
            f.write(bytes(4096))
    run = dry(larder, code=UNSAFE)
    assert f"{b}: table: neither copy is valid" in run.stderr and run.stdout == ""
    with open(a, "r+b") as f:
        f.seek(SB)
        f.write(bytes(SB_SIZE))
        f.seek(64 * MIB - SB_SIZE)
        f.write(bytes(SB_SIZE))
    run = dry(larder, code=UNSAFE)
    assert "table: neither copy is valid" in run.stderr and run.stdout == ""
