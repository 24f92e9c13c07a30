# SPDX-License-Identifier: GPL-2.0-or-later
"""One whole stack by one command: made, stopped, cut off, degraded, removed; power cuts at each step of `remove` and `resize`.

LARDER_CUTS=N: at so many of these steps (3), drawn by the seed; LARDER_CUTS=all: at each, which takes hours."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib import command, dm, simdisk
from lib.parts import MIB, Part
from lib.stacks import (
    CONTENT,
    DEGRADED,
    DONE,
    FAILED,
    FSTAB,
    HAND_MADE,
    MOUNTED,
    NAME,
    NOT_FOUND,
    UNSAFE,
    arrays,
    blank,
    check,
    larder,
    nothing_left,
    on_disk,
    prepare,
    refused,
    release,
    remove,
    room,
    rows,
    take_out,
    words,
    write,
)

CUTS = int(os.environ.get("LARDER_CUTS", "3").replace("all", "1000000"))
MODES = ("lose", "random", "torn", "prefix", "keep")  # of a power cut
OPS = {"write": "writes", "flush": "flushes", "discard": "discards", "zeroes": "write_zeroes"}  # and their counters
OTHERS = Path("/run/stack-of-others")
LUKS = b"LUKS\xba\xbe"


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    yield from prepare(make_disk, monkeypatch, kernel_log)


@pytest.mark.core
@pytest.mark.limit(900)
def test_whole_stack(disks, key):
    """Five layers: made, stopped, started, cut off, started, degraded, removed; nothing readable on any disk."""
    said = larder(*words(disks, key)).stdout
    assert "unused: 8" in said and "dirty data on two of them" in said
    layers = rows()
    assert [layers[x]["type"] for x in ("filesystem", "luks", "volume", "array")] == ["ext4", "luks2", "writeback", "raid1"]
    assert os.path.ismount(MOUNTED) and str(MOUNTED) in FSTAB.read_text() and FSTAB.read_text().startswith(HAND_MADE)
    assert "fine" in larder("status", "data").stdout
    assert dm.DmDevice("data-crypt").info()["uuid"].startswith("CRYPT-LUKS2-")
    for i in range(8):
        write(i)
    larder("stop", "data")
    assert not dm.names() and not arrays()
    assert "stopped" in larder("status", "data", code=NOT_FOUND).stdout
    assert not on_disk(disks, NAME.encode()) and not on_disk(disks, CONTENT[:27])

    larder("start", "data")
    check(range(8))
    larder("lock", "data")
    assert "locked" in larder("status", "data").stdout and not os.path.ismount(MOUNTED)
    refused(FAILED, ["unlock", "data", "--keyfile", "/etc/hostname"], "no key")
    larder("unlock", "data")
    check(range(8))

    write("durable")
    simdisk.power_cut(mode="random", seed=3)
    release()
    simdisk.power_up()
    larder("start", "data")
    check([*range(8), "durable"])

    (node,) = arrays()
    take_out(node, disks[3])
    assert "array: 1 of 2 disks" in larder("status", "data", code=DEGRADED).stdout
    check([*range(8), "durable"])
    remove()
    command.run("mdadm", "--zero-superblock", disks[3], check=False)  # it had left the stack
    nothing_left(disks)


# ---------------------------------------------------------------- power cuts


def commands(disks) -> int:
    """Those so far that change something, or make it durable."""
    return sum(d.stats()[counter] for d in disks for counter in OPS.values())


def step_of(number: int, steps: int, seed: int) -> int:
    """At which the power is cut for that time: it is in a span of its own of all the steps, which are from 1 on."""
    spans = min(CUTS, steps)
    return random.Random(seed + number).randint(steps * number // spans + 1, steps * (number + 1) // spans)


def cut_off(mode: str, after: int, seed: int, disks, *words) -> bool:
    """All disks lose their power at that command, or behind the last one, and whatever ran ends.  Was it before the end?"""
    simdisk.power_cut(mode=mode, seed=seed, after=after, ops=",".join(OPS))
    run = larder(*words, code=None)
    cut = any(d.state()["power"] != "on" for d in disks)
    assert cut or run.returncode == DONE, run.stderr
    if not cut:
        simdisk.power_cut(mode=mode, seed=seed)
    for disk in disks:
        simdisk.wait_power_off(disk)
    all_ends()
    simdisk.power_up()
    return cut


def all_ends() -> None:
    for name in dm.names():  # what waits for one that is suspended would do so for ever
        device = dm.DmDevice(name)
        if device.info()["suspended"]:
            device.load(f"0 {device.sectors} error")
            device.resume()
    command.run("umount", "-l", OTHERS, check=False)
    release()
    release()  # parts of disks, which arrays had


def sound(node: str, where: Path) -> None:
    """Nothing is wrong with the filesystem that is mounted there."""
    command.run("umount", where)
    command.run("e2fsck", "-fn", node)
    command.run("mount", node, where)


class Content:
    """Of disks as they are now, and what belongs to their stacks elsewhere."""

    STEP = 512  # sectors

    def __init__(self, disks):
        self.disks, self.fstab = disks, FSTAB.read_text()
        self.kept = [list(self.pieces(d)) for d in disks]
        self.headers = {p: p.read_bytes() for p in Path("/var/lib/larder").glob("*.luks-header")}

    def pieces(self, disk) -> Iterator[tuple[int, bytes]]:
        zeroes = bytes(self.STEP * 512)
        for at in range(0, disk.sectors, self.STEP):
            piece = disk.read(at, min(self.STEP, disk.sectors - at))
            if piece != zeroes[: len(piece)]:
                yield at, piece

    def restore(self, make_disk) -> None:
        """On disks that are made anew."""
        for disk, kept in zip(self.disks, self.kept, strict=True):
            given = {k: v for k, v in disk.parameters().items() if k in ("wce", "fua", "discard")}
            sectors = disk.sectors
            disk.remove()
            make_disk(disk.name, model="null", sectors=sectors, **given)
            for at, piece in kept:
                disk.write(at, piece)
            command.run("blockdev", "--flushbufs", disk)
        FSTAB.write_text(self.fstab)
        for path, header in self.headers.items():
            path.write_bytes(header)


@pytest.fixture
def others(disks, make_disk):
    """The disk of another stack."""
    OTHERS.mkdir(exist_ok=True)
    yield make_disk("hdd2", model="null", mb=64, wce=1)
    command.run("umount", "-l", OTHERS, check=False)


def halves(disks) -> list[list[Part]]:
    """Two parts of each, as after a boot."""
    size = [d.sectors // MIB // 2 - 1 for d in disks]
    return [[Part.make(f"{d.name}-{n}", d, mib, offset=1 + n * mib) for d, mib in zip(disks, size, strict=True)] for n in (0, 1)]


def start_locked() -> None:
    """So far only: what is open, or mounted, is closed first, which takes most of the commands, and is no step of a removal."""
    larder("start", "data", "--locked")
    larder("start", "others")


def removed_in_the_end(uuid: str) -> str:
    """Behind a power cut in its removal it has its file, or the same command ends it.  Which of them?"""
    if not rows():
        return "gone"
    run = larder("start", "data", code=None)
    if run.returncode == DONE:
        check([0])
        sound("/dev/mapper/data-crypt", MOUNTED)
        larder("remove", "data", "--discard-data", uuid)
        return "whole"
    assert run.returncode == UNSAFE and "is being removed; larder remove data goes on" in run.stderr, run.stderr
    larder("remove", "data")
    return "removing"


def between(seen: list[tuple], steps: int) -> int:
    """A step between the last one at which it was whole and the first one at which it was gone."""
    whole = max((after for after, *_, end in seen if end == "whole"), default=0)
    gone = min((after for after, *_, end in seen if end == "gone" and after > whole), default=steps)
    assert gone > whole + 1, f"never while it is being removed: {seen}"
    return (whole + gone) // 2


@pytest.mark.limit(1200)
@pytest.mark.parametrize("cache", ["shared", "own"])
def test_power_cuts_at_each_step_of_remove(disks, others, make_disk, key, seed, cache):
    """Whole, or gone by the same command, LUKS header and all; another stack, on the same SSDs and disks, has what it had."""
    if cache == "shared":
        every, divide = [*disks, others], lambda: (disks, [others, "--cache", "data"])
    else:
        every = [make_disk(f"ssd{i}", model="null", mb=64, wce=1, fua=1, discard="zero") for i in (2, 3)]
        every += [make_disk(f"hdd{i}", model="null", mb=160, wce=1) for i in (3, 4)]

        def divide():
            mine, (ssd0, ssd1, hdd, _) = halves(every)
            return mine, [hdd, "--cache", ssd0, "--cache", ssd1]

    mine, theirs = divide()
    erased = mine[2:] if cache == "shared" else mine  # that cache stays
    larder(*words(mine, key))
    larder("create", "others", "--backing", *theirs, "--mkfs", "ext4", "--mount", OTHERS)
    write(0)
    write(0, where=OTHERS)
    uuid = rows()["stack"]["uuid"]
    gone = ["remove", "data", "--discard-data", uuid]
    larder("stop", "others")
    larder("stop", "data")
    all_ends()
    before = Content(every)
    divide()
    start_locked()
    begun = commands(every)
    larder(*gone)
    steps = commands(every) - begun
    seen = []
    # so many, and as many more as it takes to meet one while it is being removed, which most steps are before
    while len(seen) < min(CUTS, steps) or "removing" not in [end for *_, end in seen]:
        number, after = len(seen), step_of(len(seen), steps, seed) if len(seen) < min(CUTS, steps) else between(seen, steps)
        all_ends()
        before.restore(make_disk)
        divide()
        start_locked()
        write(1, where=OTHERS)
        mode = MODES[(number + seed) % len(MODES)]
        cut = cut_off(mode, after, seed + number, every, *gone)
        divide()
        if number % 2:
            larder("start", "others")
        seen.append((after, mode, cut, removed_in_the_end(uuid)))
        print(f"{steps} steps: {seen[-1]}")
        steps = steps if cut else min(steps, after)  # others' commands were counted, too
        if not number % 2:
            larder("start", "others")
        assert not rows() and uuid not in FSTAB.read_text()
        blank(erased)
        assert not on_disk(erased, LUKS)
        assert not Path(f"/var/lib/larder/{uuid}.luks-header").exists()
        larder("status", "others")
        check([0, 1], OTHERS)
        sound("/dev/mapper/others", OTHERS)
    larder("remove", "others", "--discard-data", rows("others")["stack"]["uuid"])


def sizes() -> list[int]:
    return [dm.DmDevice("data").sectors, dm.DmDevice("data-crypt").sectors, room()]


@pytest.mark.limit(1200)
def test_power_cuts_at_each_step_of_resize(disks, others, make_disk, key, seed):
    """Each layer as large as it was, or as it will be; the filesystem is whole; the same command ends it."""
    hdds = [make_disk(f"hdd{i}", model="null", mb=64 + 8 * 200, wce=1) for i in (3, 4)]
    every = [*disks[:2], others, *hdds]

    def parts(mib):
        return [Part.make(f"p{i}", hdd, mib, offset=1) for i, hdd in enumerate(hdds)]

    size = 64
    legs = parts(size)
    larder(*words([*disks[:2], *legs], key))
    larder("create", "others", "--backing", others, "--cache", "data", "--mkfs", "ext4", "--mount", OTHERS)
    write(0)
    grow = ["resize", "data", "--array"]

    def made_larger():
        nonlocal size
        size += 8
        for part in legs:
            part.resize(size)
        command.run("mdadm", "--wait", *arrays(), check=False)
        return sizes()

    small = made_larger()
    begun = commands(every)
    larder(*grow)
    steps, header = commands(every) - begun, small[0] - small[1]
    assert min(now - then for now, then in zip(sizes(), small, strict=True)) > 0
    seen = []
    while len(seen) < min(CUTS, steps):
        number, after = len(seen), step_of(len(seen), steps, seed)
        small = made_larger()
        write(number + 1)
        write(number, where=OTHERS)
        mode = MODES[(number + seed) % len(MODES)]
        cut = cut_off(mode, after, seed + number, every, *grow)
        parts(size)
        larder("start", "data")
        larder("start", "others")
        found = sizes()
        check(range(number + 2))
        sound("/dev/mapper/data-crypt", MOUNTED)
        larder(*grow)
        large = sizes()
        seen.append((after, mode, cut, [now == then for now, then in zip(found, large, strict=True)]))
        print(f"{steps} steps: {seen[-1]}")
        steps = steps if cut else min(steps, after)  # others' commands were counted, too
        assert all(x in pair for x, *pair in zip(found, small, large, strict=True)), (small, found, large)
        assert found[1] == found[0] - header and large[1] == large[0] - header
        assert min(now - then for now, then in zip(large, small, strict=True)) > 0
        check(range(number + 2))
        sound("/dev/mapper/data-crypt", MOUNTED)
        check(range(number + 1), OTHERS)
        sound("/dev/mapper/others", OTHERS)
    assert any(cut for _, _, cut, _ in seen)
    larder("remove", "others", "--discard-data", rows("others")["stack"]["uuid"])
    remove()
