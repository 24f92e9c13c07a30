# SPDX-License-Identifier: GPL-2.0-or-later
"""Power cuts: SSD and backing lose what was not flushed, at one instant; then the cache starts and every sector is judged."""

import contextlib
import itertools
import os

import pytest
from lib import command, simdisk
from lib.damage import damage
from lib.files import Files
from lib.larder import DATA_SECTOR, Stack, Volume, larder, segment_layout, wait_for
from lib.log_blocks import KEEP, commit_blocks
from lib.pattern import not_pattern, write_pattern
from lib.sets import small_stack, start_without

MODES = ("random", "torn", "lose", "keep", "prefix")

# What happens beside the load, at random
CONTROLS = {
    "writeback": "dmsetup message v 0 flush",
    "modes": "n=$(($1 % 3)); set -- writeback writethrough writearound; shift $n; dmsetup message v 0 set mode $1",
    "checkpoints": "dmsetup message c 0 checkpoint; dmsetup message c 0 reclaim 3",
}


class Volumes(Stack):
    """v for the oracle, f for a file system: two volumes of one cache."""

    def __init__(self, ssd: simdisk.Simdisk, hdd: simdisk.Simdisk, other: simdisk.Simdisk, **options: object):
        self.other = other
        Volume.format("f", other)
        super().__init__(ssd, hdd, format_volume=("--cache", "c"), **options)
        command.run("mkfs.ext4", "-q", self.files)

    def start(self) -> None:
        super().start()
        self.files = Volume.start(self.other, self.cache, name="f")

    def stop(self) -> None:
        self.files.remove()
        super().stop()


def crash_rounds(stack: Volumes, oracle, seed: int, rounds: int, control: str) -> None:
    controls = safe = 0
    # what is done beside the load works; it is cut off often enough, below, that none may end there
    r = oracle.run(ops=300, control=control, every=20)
    assert r["controls"]
    for i in range(rounds):
        files = Files(stack.files, i) if i % 3 == 0 else None
        simdisk.power_cut(mode=MODES[(seed + i) % len(MODES)], seed=seed + i, after=200 + (seed * 7919 + i * 104729) % 3000)
        r = oracle.run_until_cut(stack.ssd, control=control, every=150, control_may_fail=True)
        assert r["errors"] >= 1
        controls += r["controls"]
        assert stack.cache_options.get("commit") != "buffered" or stack.volume.status()["write_buffered"]
        if files:
            files.leave()
        stack.stop()
        simdisk.power_up()
        stack.start()
        oracle.verify(after="crash")
        if files:
            files.check(stack.files)
            print(f"round {i}: {len(files.safe)} files")
            safe += len(files.safe)
        oracle.verify()
    print(f"{controls} controls")
    assert controls and safe
    # what was judged is also what the backing has in the end, without the cache
    stack.volume.message("set", "mode", "writethrough")
    stack.volume.drain()
    oracle.verify()
    stack.volume.reload(Volume.line(stack.hdd, None, stack.volume.sectors))
    oracle.verify()


def power_cuts(make_disk, make_oracle, seed: int, rounds: int, control: str, **options: object) -> None:
    ssd = make_disk("ssd0", model="nvme", mb=48, jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    other = make_disk("hdd1", model="nvme", mb=64, jitter_ns=200000)
    stack = Volumes(ssd, hdd, other, **options)
    crash_rounds(stack, make_oracle(stack.volume, size="32m"), seed, rounds, CONTROLS[control])
    stack.stop()


@pytest.mark.limit(600)
@pytest.mark.parametrize("control", list(CONTROLS))
def test_power_cuts(make_disk, make_oracle, seed, control):
    """10 rounds; an ext4 is mounted, and checked, in every third."""
    power_cuts(make_disk, make_oracle, seed, 10, control)


@pytest.mark.limit(600)
def test_buffered(make_disk, make_oracle, seed):
    """The same, with writes that were acknowledged from memory."""
    power_cuts(make_disk, make_oracle, seed, 6, next(iter(CONTROLS)), cache_commit="buffered")


@pytest.mark.parametrize("lie", ["ssd", "hdd"])
def test_lost_flushes_are_found(make_disk, make_oracle, seed, lie):
    """The test can fail: with a disk that lies about flushes, data is lost."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=256, wce=1)
    mode = "writeback" if lie == "ssd" else "writearound"
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), mode=mode)
    oracle = make_oracle(stack.volume, size="8m")
    (ssd if lie == "ssd" else hdd).set(ignore_flush=1, **({"ignore_fua": 1} if lie == "ssd" else {}))
    oracle.run(ops=1500, mix="write=60,flush=10")
    simdisk.power_cut(mode="random", seed=seed)
    stack.stop()
    simdisk.power_up()
    started = True
    try:
        stack.start()
    except command.CommandError:
        started = False  # a superblock is among what was lost
    if started:
        with pytest.raises(AssertionError, match="oracle verify: status 1"):
            oracle.verify(after="crash")


def test_checkpoint_that_is_not_named(make_disk, kernel_log):
    """The one named last still shows what was reclaimed since; chunks of the next one must not lie where that was (rule 9)."""
    kernel_log.expect("I/O error|Buffer I/O|no checkpoint could be taken")
    ssd, hdd = make_disk("ssd0", model="null", mb=24, wce=1, fua=1), make_disk("hdd0", model="null", mb=128, wce=1)
    pages = ssd.sectors // 8
    write_pattern(hdd, pages)
    stack = Stack(ssd, hdd, cache_checkpoint_percent=50, sequential_cutoff=0)
    for first in range(0, pages, 16):  # more than it holds
        stack.volume.read(8 * first, 128)
    stack.cache.message("commit")
    stack.volume.set(fill="off")
    before, after = stack.cache.behind_a_checkpoint(lambda: stack.cache.message("reclaim", 6))
    assert after["reclaim_dropped_slots"] > before["reclaim_dropped_slots"]
    assert after["segments_free"] > before["segments_free"]

    for first, last in ((8, 16), (ssd.sectors - 64, ssd.sectors)):  # both copies of the superblock
        ssd.fail(op="write", status="ioerr", from_=first, to=last)
    with pytest.raises(command.CommandError):
        stack.cache.message("checkpoint")
    simdisk.power_cut(mode="keep")
    simdisk.wait_power_off(ssd)
    stack.stop()
    ssd.heal()
    simdisk.power_up()
    stack.start()
    stack.volume.set(fill="off")
    assert stack.cache.status()["live_sectors"] > pages  # an eighth of them
    assert not not_pattern(stack.volume, pages)
    stack.stop()


def test_checkpoint_that_is_not_written(make_disk, kernel_log):
    """A chunk of it, twice: neither is named, the two before them stay, and the log behind those."""
    kernel_log.expect("I/O error|critical .* error|no checkpoint could be taken")
    stack = small_stack(make_disk, segment="512k")  # it is not what opens segments that meets the error
    content: dict[int, bytes] = {}

    def write(salt: int) -> None:
        for i in range(24):
            sector = 64 * (12 * salt + i)
            content[sector] = bytes([32 * salt + i + 1]) * 4096
            stack.volume.write(sector, content[sector])
        stack.volume.flush()
        stack.cache.message("commit")  # from here on it is the checkpoint that writes

    for salt in range(2):
        write(salt)
        stack.cache.message("checkpoint")
    before, events = stack.cache.status(), stack.cache.events()
    first, size, number = segment_layout(stack.ssd)
    for salt in range(2, 4):
        write(salt)
        stack.ssd.fail(op="write", status="medium", from_=first, to=first + size * number, count=1)
        with pytest.raises(command.CommandError):
            stack.cache.message("checkpoint")
        stack.ssd.heal()
    assert len(kernel_log.matching("cannot write a checkpoint")) == 2
    wait_for(lambda: stack.cache.events() > events, 30, "an event")
    after = stack.cache.status()
    assert (after["state"], after["checkpoints"], after["errors_write"]) == ("running", before["checkpoints"], 2)
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.start()
    assert not [s for s, data in content.items() if stack.volume.read(s, 8) != data]
    stack.cache.message("checkpoint")
    stack.restart()
    assert not [s for s, data in content.items() if stack.volume.read(s, 8) != data]
    stack.stop()


def test_place_takes_no_checkpoint(make_disk, kernel_log):
    """Each comes to it first: it is passed over, also by starts, which find it anew; other places are used."""
    kernel_log.expect("I/O error|critical .* error|no checkpoint could be taken")
    stack = small_stack(make_disk, segment="512k")
    first, size, number = segment_layout(stack.ssd)
    content: dict[int, bytes] = {}

    def write(salt: int) -> None:
        for i in range(24):
            sector = 64 * (24 * salt + i)
            content[sector] = bytes([32 * salt + i + 1]) * 4096
            stack.volume.write(sector, content[sector])
        stack.volume.flush()
        stack.cache.message("commit")

    def fails() -> bool:
        try:
            stack.cache.message("checkpoint")
        except command.CommandError:
            return True
        return False

    write(0)
    with simdisk.Trace() as trace:
        stack.ssd.fail(op="write", status="medium", from_=first, to=first + size * number, count=1)
        assert fails()
        bad = next(c.sector for c in trace.commands(stack.ssd, "write") if c.sector >= first)
    stack.ssd.heal()
    bad -= (bad - first) % size
    stack.ssd.fail(op="write", status="medium", from_=bad, to=bad + size)
    tries = [fails() for _ in range(3)]
    assert tries[0] and not tries[-1], tries
    assert stack.cache.status()["segments_lost"] == 1 and kernel_log.matching("takes no checkpoint")
    for salt in range(1, 3):
        write(salt)
        assert not fails()
    for _ in range(2):
        simdisk.power_cut(mode="lose")
        stack.stop()
        simdisk.power_up()
        stack.start()
        assert not [s for s, data in content.items() if stack.volume.read(s, 8) != data]
        assert not fails() or not fails() or not fails()
    stack.stop()


def start_is_cut(stack: Stack, after: int) -> list[simdisk.Command]:
    """At that write of the SSDs.  What was written, the one that the power cut has lost included."""
    ssds = stack.ssd if isinstance(stack.ssd, list) else [stack.ssd]
    with simdisk.Trace() as trace:
        simdisk.power_cut(mode="lose", after=after, ops="write")
        with contextlib.suppress(command.CommandError):
            stack.start()
        writes = [c for c in trace.commands(op="write") if c.disk in [s.name for s in ssds]]
        simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    return writes


def says_drop_clean(ssd: simdisk.Simdisk) -> bool:
    return "drop_clean" in larder("super", "show", ssd).stdout


@pytest.mark.limit(600)
@pytest.mark.parametrize("ssds", [1, 2])
def test_start_that_was_cut_drops_what_is_clean(make_disk, kernel_log, ssds):
    """It may have written where the next one, by an older checkpoint, or without an SSD that has the log of fills, finds clean
    data mapped: nobody logs what reclaim drops.  So that one drops all of it, and nothing else; it is cached again later."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_stack(make_disk, ssds)
    pages = 1024
    write_pattern(stack.hdd, pages)
    for page in range(0, pages, 16):
        stack.volume.read(8 * page, 128)
    stack.cache.message("commit")
    stack.volume.write(8 * pages, b"w" * 4096)
    stack.volume.flush()
    clean = stack.volume.status()["cached_sectors"] - 8
    assert clean > 0
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    disks = stack.ssd if ssds > 1 else [stack.ssd]
    for after in range(1, 40):
        writes = start_is_cut(stack, after)
        assert len(writes) >= after, "the start came to its end"
        if any(w.sectors == 128 for w in writes):  # a chunk
            break
    assert all(says_drop_clean(d) for d in disks)
    if ssds > 1:
        start_without(stack, 1)
    else:
        stack.start()
    assert not says_drop_clean(disks[0])
    assert stack.volume.status()["cached_sectors"] == 8 and stack.volume.read(8 * pages, 8) == b"w" * 4096
    assert not not_pattern(stack.volume, pages)
    stack.cache.message("commit")
    warm = stack.volume.status()["cached_sectors"]
    assert warm > 8
    if ssds == 1:
        stack.restart()
        assert stack.volume.status()["cached_sectors"] == warm
    stack.stop()


def test_start_that_knows_a_copy_but_not_its_clean(make_disk):
    """Written back, copied by reclaim to one SSD; a power cut takes the CLEAN, and leaves the copy.  It is dirty to that start:
    else the place where it is would be free, and a start without that SSD, which has it dirty, would find something else there."""
    stack = small_stack(make_disk, ssds=2)
    ssds, content = stack.ssd, os.urandom(4096)
    stack.volume.write(0, content)  # alone in its segment, soon, which replays do not look at
    for _ in range(2):
        for i in range(1, 30):
            stack.volume.write(8 * i, os.urandom(4096))
        stack.volume.flush()
    stack.cache.message("checkpoint")
    stack.cache.message("checkpoint")
    stack.volume.write(8, b"w" * 4096)
    stack.volume.flush()
    for ssd in ssds:
        first, size, _ = segment_layout(ssd)
        block = commit_blocks(ssd)[-1]
        assert block.slot < 28, "the next commit block is to lie in the same segment"
        begin = first + (block.sector - first) // size * size
        ssd.fail(op="write", from_=begin, to=begin + size, status="lost")
        ssd.fail(op="flush", delay_ms=20000, status="ok")  # or the CLEAN would count as durable
    stack.volume.set(share_min=75)  # it is guaranteed, and so kept
    stack.cache.message("reclaim", "1")
    assert stack.cache.status()["reclaim_kept_slots"] == 1
    assert all(ssd.faults()[0]["hits"] for ssd in ssds)
    simdisk.power_cut(mode="keep")
    stack.stop()
    simdisk.power_up()
    for ssd in ssds:
        ssd.heal()
    assert sum(bool(commit_blocks(ssd, KEEP)) for ssd in ssds) == 1
    stack.start()
    assert stack.volume.status()["dirty_sectors"] == 30 * 8
    assert stack.volume.read(0, 8) == content
    stack.volume.drain()
    assert stack.hdd.read(DATA_SECTOR, 8) == content
    stack.stop()


@pytest.mark.limit(600)
@pytest.mark.parametrize("ssds", [1, 2])
def test_start_is_cut_among_its_superblocks(make_disk, kernel_log, ssds):
    """Only some copies, or SSDs, have the superblock of a start; the next start is cut at each of its writes.  Whichever copy
    counts then, as that write was torn, or as only one SSD is left, has all that it names."""
    kernel_log.expect("I/O error|Buffer I/O")
    stack = small_stack(make_disk, ssds=ssds)
    content = {64 * i: bytes([i + 1]) * 4096 for i in range(24)}
    for sector, data in content.items():
        stack.volume.write(sector, data)
    stack.volume.flush()
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    disks = stack.ssd if ssds > 1 else [stack.ssd]

    def differ() -> bool:
        """The epoch in the copies of the only superblock, or in the superblocks of two."""
        other, sector = (disks[1], 8) if ssds == 2 else (disks[0], disks[0].sectors - 8)
        return disks[0].read(8, 8)[256:260] != other.read(sector, 8)[256:260]

    for after in range(1, 20):
        start_is_cut(stack, after)
        if differ():
            break
    assert differ(), "no start was cut among its superblocks"
    saved = [(d, d.read(0, d.sectors)) for d in disks] + [(stack.hdd, stack.hdd.read(0, 2048))]

    def back() -> None:
        for disk, data in saved:
            disk.write(0, data)
            disk.flush()

    def judge() -> None:
        assert not [s for s, data in content.items() if stack.volume.read(s, 8) != data], (after, left)
        stack.stop()

    for after, left in itertools.product(range(1, 20), range(ssds)):
        back()
        writes = start_is_cut(stack, after)
        if len(writes) < after:
            break  # the start came to its end
        torn = writes[after - 1]
        if torn.sector == 8 and torn.disk == disks[left].name:
            damage(disks[left], ("super",), "head.generation=^1", keep_crc=True)
        if ssds == 1:
            stack.start()
        else:
            start_without(stack, 1 - left)
        judge()
    assert after > 4
