# SPDX-License-Identifier: GPL-2.0-or-later
"""A volume whose cache is missing, came back, or is another one: started only if nothing is lost, refused with the cure named."""

import contextlib
import itertools
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lib import command, dm, simdisk
from lib.block import SECTOR, BlockDevice
from lib.damage_edits import seal
from lib.larder import DATA_SECTOR, Cache, Stack, Volume, larder, wait_for
from lib.sets import make_ssds, small_stack

A, B = (os.urandom(64 * SECTOR) for _ in range(2))
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def stack(make_disk):
    ssd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    return Stack(ssd, hdd, format_volume=("--cache", "c"))


MAIN, COPY = 8, DATA_SECTOR - 8  # of a backing: where the superblock is, and its copy


def superblock(backing: BlockDevice, sector: int = MAIN) -> dict:
    sb = backing.read(sector, 8)
    flags, generation = struct.unpack_from("<IQ", sb, 28)
    return {
        "may_be_dirty": flags & 1,
        "generation": generation,
        "cache": sb[128:144],
        "incarnation": struct.unpack_from("<Q", sb, 240)[0],
        "noted": struct.unpack_from("<Q", sb, 256)[0],
    }


@contextlib.contextmanager
def unchanged(*disks: simdisk.Simdisk) -> Iterator[None]:
    """Nothing is written to these disks meanwhile."""
    for d in disks:
        d.reset_stats()
    yield
    for d in disks:
        s = d.stats()
        assert (s["writes"], s["discards"], s["write_zeroes"]) == (0, 0, 0), f"{d} was written to: {s}"


def refused(kernel_log, hdd: simdisk.Simdisk, cache: object, *patterns: str, **options: object) -> str:
    """It does not start, its log line names the backing and has the patterns, its dm device is gone, no disk was written."""
    kernel_log.mark()
    with unchanged(hdd), pytest.raises(command.CommandError):
        Volume.start(hdd, cache, **options)
    lines = [x for x in kernel_log.lines() if "larder" in x]
    for p in (f"{hdd.kernel_name}: ", *patterns):
        assert any(re.search(p, x) for x in lines), f"no line with '{p}': {lines}"
    assert "v" not in command.output("dmsetup", "ls").split()
    return "\n".join(lines)


# ---------------------------------------------------------------- without its cache


def test_never_attached(make_disk):
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    Volume.format("v", hdd)
    v = Volume.start(hdd, None)
    v.write(1000, A)
    assert v.read(1000, 64) == A
    assert v.status()["state"] == v.status()["mode"] == "passthrough"
    v.remove()


def test_dirty_is_refused(stack, kernel_log):
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.stop()
    assert superblock(stack.hdd)["may_be_dirty"]
    with unchanged(stack.ssd):
        refused(kernel_log, stack.hdd, None, f"may have dirty data in cache {UUID}: start that one", f"discard_dirty {UUID}")
    stack.start()
    assert stack.volume.read(1000, 64) == A
    stack.stop()


def test_unclean_stop_is_refused(stack, kernel_log):
    """Nothing is dirty, but nobody can know without the cache."""
    stack.volume.write(1000, A)
    stack.volume.drain()
    stack.volume.flush()
    simdisk.power_cut(mode="random", seed=1)
    stack.stop()
    simdisk.power_up()
    refused(kernel_log, stack.hdd, None, f"may have dirty data in cache {UUID}")
    stack.start()
    assert stack.volume.dirty() == 0
    stack.stop()  # a stop in order clears the flag
    assert not superblock(stack.hdd)["may_be_dirty"]
    v = Volume.start(stack.hdd, None)
    assert v.read(1000, 64) == A
    v.remove()


def test_provably_clean_runs(stack, kernel_log):
    """...until it is written: then the cache is stale, and says so with the cure; its content is not served again."""
    stack.volume.write(1000, A)
    stack.volume.drain()
    stack.stop()
    before = superblock(stack.hdd)
    assert not before["may_be_dirty"]
    v = Volume.start(stack.hdd, None)
    assert v.read(1000, 64) == A
    assert superblock(stack.hdd)["incarnation"] == before["incarnation"], "only read so far"
    v.remove()
    # read only: the cache is still good
    stack.start()
    assert stack.volume.read(1000, 64) == A
    assert stack.volume.status()["read_hits"] == 1
    stack.stop()

    v = Volume.start(stack.hdd, None)
    v.write(1010, B)
    assert superblock(stack.hdd)["incarnation"] > before["incarnation"]
    v.remove()
    cache = Cache.start(stack.ssd)
    refused(kernel_log, stack.hdd, cache, f"volume {UUID} ran without cache {UUID}, which is stale", "option 'stale discard'")
    v = Volume.start(stack.hdd, cache, stale="discard")
    assert "stale" not in v.table()
    assert v.read(1000, 74) == A[: 10 * SECTOR] + B
    assert v.status()["read_hits"] == 0, "nothing of the stale cache is left"
    v.write(1000, A)
    v.remove()
    cache.remove()
    stack.start()  # attached for good
    assert stack.volume.read(1000, 74) == A + B[54 * SECTOR :]
    stack.stop()


def test_raised_before_the_write(stack, kernel_log):
    """Power is cut at each command of the first write without the cache, which is good before: whatever of it survives, a stale
    cache is not taken for a good one."""
    kernel_log.expect("I/O error|Buffer I/O|lost async page write|critical")
    stack.options["stale"] = "discard"
    stack.volume.write(1000, A)
    stack.volume.drain()
    seen = set()
    for after, mode in itertools.product(range(1, 9), ("lose", "keep")):
        stack.volume.write(1000, A)
        stack.volume.drain()
        stack.stop()
        before = superblock(stack.hdd)["incarnation"]
        v = Volume.start(stack.hdd, None)
        simdisk.power_cut(stack.hdd, mode=mode, seed=after, after=after)
        with contextlib.suppress(OSError):
            v.write(1000, B, fua=True)
            v.write(1000, B, fua=True)
        simdisk.power_cut(stack.hdd, mode=mode, seed=after)
        v.remove()
        simdisk.power_up()
        there = stack.hdd.read(DATA_SECTOR + 1000, 64)
        written = there != A
        raised = superblock(stack.hdd)["incarnation"] > before
        seen.add((raised, written))
        cache = Cache.start(stack.ssd)
        if raised:
            with pytest.raises(command.CommandError):
                Volume.start(stack.hdd, cache)
        else:
            assert not written
        cache.remove()
        stack.start()
        assert stack.volume.read(1000, 64) == there
    assert seen == {(False, False), (True, False), (True, True)}
    stack.stop()


def test_dirty_data_given_up(stack, kernel_log):
    """By message to a loaded table, with the UUID of the cache, which is stale from then on and has remains of the volume."""
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.volume.drain()
    stack.volume.write(1000, B)
    uuid = stack.cache.status()["uuid"]
    stack.stop()
    v = Volume.create("v", Volume.line(stack.hdd, None, stack.hdd.sectors - 4096), suspended=True)
    command.run("dmsetup", "resume", "v", check=False)  # refused, but the table is the live one
    other = "01234567-89ab-cdef-0123-456789abcdef"
    with unchanged(stack.hdd), pytest.raises(command.CommandError):
        v.message("discard_dirty", other)
    assert kernel_log.matching(f"belongs to cache {uuid}, not to {other}")
    v.message("discard_dirty", uuid)
    assert kernel_log.matching("was given up by message")
    command.run("dmsetup", "resume", "v")  # makes its node
    assert v.read(1000, 64) == A
    v.remove()
    sb = superblock(stack.hdd)
    assert not sb["may_be_dirty"] and sb["cache"] == bytes(16)
    cache = Cache.start(stack.ssd)
    refused(kernel_log, stack.hdd, cache, "which is stale")
    v = Volume.start(stack.hdd, cache, stale="discard")
    assert v.read(1000, 64) == A
    v.remove()
    cache.remove()


# ---------------------------------------------------------------- copies that differ


def cut_between_copies(stack: Stack, act: Callable[[], object], newer: int) -> int:
    """Power of the disk is cut when the superblock that this writes is durable in one place, and not yet in the other one.  newer:
    which is the first; userland begins with the copy.  Nothing is live behind it.  Returns the place of the older one."""
    simdisk.power_cut(stack.hdd, mode="lose", after=2, ops="write")
    with contextlib.suppress(OSError, command.CommandError):
        act()
    simdisk.wait_power_off(stack.hdd)
    for name in ("v", "c"):
        if name in dm.names():
            dm.DmDevice(name).remove()
    stack.volume = stack.cache = None
    simdisk.power_up(stack.hdd)
    both = stack.hdd.read(MAIN, 8), stack.hdd.read(COPY, 8)
    assert superblock(stack.hdd, MAIN)["generation"] > superblock(stack.hdd, COPY)["generation"]
    if newer == COPY:
        stack.hdd.write(COPY, both[0])
        stack.hdd.write(MAIN, both[1])
    return MAIN + COPY - newer


@pytest.mark.parametrize("newer", [MAIN, COPY])
def test_cut_off_detach_names_the_cache_in_one_copy(stack, kernel_log, newer):
    """It is written to without the cache then, which has it clean.  Later the newer copy is lost, and the older one counts."""
    kernel_log.expect("I/O error|Buffer I/O|lost async page write|critical")
    stack.volume.write(1000, A)
    stack.volume.drain()
    stack.volume.remove()
    older = cut_between_copies(stack, lambda: Volume.start(stack.hdd, None), newer)
    assert (superblock(stack.hdd, newer)["cache"], bytes(16)) == (bytes(16), bytes(16)) != superblock(stack.hdd, older)["cache"]
    v = Volume.start(stack.hdd, None)
    with unchanged(stack.hdd):
        assert v.read(1000, 64) == A
    v.write(1000, B)
    v.remove()
    stack.hdd.write(newer, os.urandom(8 * SECTOR))
    cache = Cache.start(stack.ssd)
    v = Volume.start(stack.hdd, cache)
    assert v.read(1000, 64) == B, "the cache has what was there before"
    v.remove()
    cache.remove()


@pytest.mark.parametrize("newer", [MAIN, COPY])
def test_cut_off_flag_is_in_one_copy(stack, kernel_log, newer):
    """It is started with its cache, and has dirty data then.  Later the newer copy is lost: the older one says that it is clean.
    So it does not start while the older one cannot be written, though one that can be read only does where both say the same."""
    kernel_log.expect("I/O error|Buffer I/O|lost async page write|critical")
    older = cut_between_copies(stack, lambda: stack.volume.write(1000, A), newer)
    assert superblock(stack.hdd, newer)["may_be_dirty"] and not superblock(stack.hdd, older)["may_be_dirty"]
    stack.options["writeback"] = "off"
    cache = Cache.start(stack.ssd)
    stack.hdd.fail(op="write", from_=older, to=older + 8, status="ioerr")
    with pytest.raises(command.CommandError):
        Volume.start(stack.hdd, cache)
    stack.hdd.heal()
    cache.remove()
    stack.start()
    stack.volume.write(1000, B)
    stack.volume.flush()
    stack.stop()
    stack.hdd.write(newer, os.urandom(8 * SECTOR))
    refused(kernel_log, stack.hdd, None, f"may have dirty data in cache {UUID}")
    stack.start()
    assert stack.volume.read(1000, 64) == B
    stack.stop()


def test_flag_that_was_lost(stack, kernel_log):
    """Rule 11: the disk has not got the superblock that says so, which it had acknowledged; it is said again first."""
    older = {sector: stack.hdd.read(sector, 8) for sector in (MAIN, COPY)}
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.volume.flush()
    stack.stop()
    for sector, data in older.items():
        assert superblock(stack.hdd, sector)["may_be_dirty"]
        stack.hdd.write(sector, data)
        assert not superblock(stack.hdd, sector)["may_be_dirty"]
    stack.hdd.flush()
    stack.options["writeback"] = "off"
    stack.start()
    assert stack.volume.read(1000, 64) == A
    stack.stop()
    assert all(superblock(stack.hdd, sector)["may_be_dirty"] for sector in older)
    refused(kernel_log, stack.hdd, None, f"may have dirty data in cache {UUID}")
    stack.start()
    stack.stop()


@pytest.mark.parametrize("newer", [MAIN, COPY])
def test_newer_copy_stays_until_both_are(stack, kernel_log, newer):
    """Of a superblock whose two copies differ the older one is written over first: cut off in that, the newer one counts."""
    kernel_log.expect("I/O error|Buffer I/O|lost async page write|critical|cannot write")
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    uuid = stack.cache.status()["uuid"]
    stack.stop()
    v = Volume.create("v", Volume.line(stack.hdd, None, stack.hdd.sectors - 4096), suspended=True)
    command.run("dmsetup", "resume", "v", check=False)  # refused, but the table is the live one
    older = cut_between_copies(stack, lambda: v.message("discard_dirty", uuid), newer)
    assert superblock(stack.hdd, older)["may_be_dirty"] and not superblock(stack.hdd, newer)["may_be_dirty"]
    cache = Cache.start(stack.ssd)
    simdisk.power_cut(stack.hdd, mode="lose", after=1, ops="write")
    with simdisk.Trace() as trace:
        with pytest.raises(command.CommandError):
            Volume.start(stack.hdd, cache, stale="discard")
        torn = trace.commands(stack.hdd, "write")[0].sector
    simdisk.power_up(stack.hdd)
    stack.hdd.write(torn, os.urandom(8 * SECTOR))
    v = Volume.start(stack.hdd, cache, stale="discard")
    assert torn == older and v.read(1000, 64) == bytes(64 * SECTOR)
    v.remove()
    cache.remove()


# ---------------------------------------------------------------- put back from an image


TABLES = 256, 512  # sectors, of an SSD
LEFT = 2  # flag of a superblock
SEE_SECONDS = Path("/sys/module/larder/parameters/see_seconds")


def seen(ssd: BlockDevice) -> int:
    """Of the first volume, as the newer table of the SSD says."""
    tables = (ssd.read(sector, 256) for sector in TABLES)
    return max(struct.unpack_from("<Q", t, 8) + struct.unpack_from("<Q", t, 1192) for t in tables)[1]


def image(disk: BlockDevice) -> list[bytes]:
    return [disk.read(sector, 2048) for sector in range(0, disk.sectors, 2048)]


def write_through(stack: Stack) -> None:
    """The disk is another one than it was: dirty data alone is none."""
    stack.volume.set(mode="writethrough")
    stack.volume.write(2000, os.urandom(64 * SECTOR))
    stack.volume.set(mode="writeback")


def put_back(disk: BlockDevice, pieces: list[bytes]) -> None:
    for i, piece in enumerate(pieces):
        disk.write(i * 2048, piece)
    disk.flush()


def an_hour_passes(stack: Stack) -> None:
    """Each notes of the other how far it is, as the disk has been written."""
    noted = superblock(stack.hdd)["noted"]
    write_through(stack)
    SEE_SECONDS.write_text("0")
    wait_for(lambda: superblock(stack.hdd)["noted"] > noted, 60, "nothing was noted")
    SEE_SECONDS.write_text("3600")
    wait_for(lambda: seen(stack.ssd) == superblock(stack.hdd)["noted"], 60, "the table and the superblock do not say the same")


def put_in_between(stack: Stack, kernel_log, disk: BlockDevice, old: list[bytes], *patterns: str) -> None:
    """This disk, SSD or backing, as it was: they do not fit, after any number of starts of the cache."""
    put_back(disk, old)
    marked = superblock(stack.hdd)["may_be_dirty"]
    cure = "load a table with '-' and send it 'discard_dirty'" if marked else "option 'stale discard'"
    for starts in (1, 20):
        for _ in range(starts - 1):
            Cache.start(stack.ssd).remove()
        cache = Cache.start(stack.ssd)
        refused(kernel_log, stack.hdd, cache, *patterns, "option 'stale accept'", cure)
        cache.remove()


def taken_as_it_is(stack: Stack, kernel_log, disk: BlockDevice, old: list[bytes], new: list[bytes], expected: bytes) -> None:
    """...by a word, and what the cache has is given up; those that were there are another cache, and another disk, from here on."""
    put_back(disk, old)
    cache = Cache.start(stack.ssd)
    if superblock(stack.hdd)["may_be_dirty"]:
        v = Volume.create("v", Volume.line(stack.hdd, None, stack.hdd.sectors - 4096), suspended=True)
        command.run("dmsetup", "resume", "v", check=False)
        v.message("discard_dirty", cache.status()["uuid"])
        command.run("dmsetup", "resume", "v")  # makes its node
        v.remove()
    v = Volume.start(stack.hdd, cache, stale="discard")
    assert v.read(1000, 64) == expected
    v.remove()
    cache.remove()
    put_back(disk, new)
    cache = Cache.start(stack.ssd)
    refused(kernel_log, stack.hdd, cache, f"volume {UUID} ran without cache {UUID}, which is stale")
    cache.remove()


@pytest.mark.parametrize("dirty", [False, True], ids=["clean", "dirty"])
@pytest.mark.parametrize("taken", ["stopped", "running", "an hour before a power cut"])
def test_image_of_the_disk(stack, kernel_log, taken, dirty):
    """A disk put back from an image, below a cache that has seen more of it, is not taken for the one that was there."""
    stack.options["writeback"] = "off" if dirty else "on"
    stack.stop()
    if taken != "stopped":
        stack.start()
        stack.volume.write(3000, A)
        stack.volume.flush()
    old = image(stack.hdd)
    if taken == "stopped":
        stack.start()
    if taken.startswith("an hour"):
        an_hour_passes(stack)
    write_through(stack)
    stack.volume.write(1000, A)
    stack.volume.flush()
    if not dirty:
        stack.volume.drain()
    if taken.startswith("an hour"):
        simdisk.power_cut(mode="lose", seed=1)
    stack.stop()
    simdisk.power_up()
    new = image(stack.hdd)
    assert new != old and superblock(stack.hdd)["incarnation"] == struct.unpack_from("<Q", old[0], MAIN * SECTOR + 240)[0]
    put_in_between(stack, kernel_log, stack.hdd, old, f"volume {UUID} is older than what cache {UUID} has seen of it")

    put_back(stack.hdd, new)
    stack.start()
    assert stack.volume.read(1000, 64) == A
    stack.stop()
    then = b"".join(old)[(DATA_SECTOR + 1000) * SECTOR :][: 64 * SECTOR]
    taken_as_it_is(stack, kernel_log, stack.hdd, old, new, then)


@pytest.mark.parametrize("dirty", [False, True], ids=["clean", "dirty"])
@pytest.mark.parametrize("taken", ["stopped", "running", "an hour before a power cut"])
def test_image_of_the_ssd(stack, kernel_log, taken, dirty):
    """An SSD put back from an image, below a disk that was written since, is not taken for the one that was there: it has what the
    disk had then, and what is dirty on it would be written over what is there now."""
    stack.volume.set(writeback="off" if dirty else "on")
    stack.volume.write(1000, A)
    if not dirty:
        stack.volume.drain()
    stack.volume.flush()
    old = image(stack.ssd)
    if taken == "stopped":
        stack.stop()
        old = image(stack.ssd)
        stack.start()
    if taken.startswith("an hour"):
        an_hour_passes(stack)
    stack.volume.set(mode="writethrough", writeback="on")
    stack.volume.write(1000, B)
    stack.volume.drain()
    stack.volume.flush()
    if taken.startswith("an hour"):
        simdisk.power_cut(mode="lose", seed=1)
    stack.stop()
    simdisk.power_up()
    new = image(stack.ssd)
    assert new != old
    put_in_between(stack, kernel_log, stack.ssd, old, f"cache {UUID} is older than what volume {UUID} knows of it")

    put_back(stack.ssd, new)
    stack.start()
    assert stack.volume.read(1000, 64) == B
    stack.stop()
    taken_as_it_is(stack, kernel_log, stack.ssd, old, new, B)


def test_image_of_the_ssd_as_it_is(stack):
    """Nothing has run since, as for whoever copies a stopped SSD to a larger one."""
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.stop()
    put_back(stack.ssd, image(stack.ssd))
    stack.start()
    assert stack.volume.read(1000, 64) == A
    stack.stop()


def other_table(stack: Stack, copy: BlockDevice) -> str:
    return Cache.line([copy], **stack.cache_options)


def goes_on(stack: Stack, table: str, data: bytes) -> None:
    """With this table, and what it was given last."""
    stack.cache.load(table)
    stack.cache.resume()
    assert stack.volume.read(1000, 64) == data
    stack.volume.write(3000, data)
    stack.volume.flush()
    assert stack.volume.read(3000, 64) == data


def not_as_left(stack: Stack, kernel_log, disk: simdisk.Simdisk, table: str) -> None:
    """Nothing is written to it, and the log says which one it is."""
    kernel_log.mark()
    with unchanged(disk), pytest.raises(command.CommandError):
        stack.cache.load(table)
        stack.cache.resume()
    assert kernel_log.matching(f"{disk.kernel_name}: SSD 0 of cache {UUID} is not what the cache left there")


@pytest.mark.parametrize("loaded", ["a superblock was written since", "none was"])
def test_copy_of_the_ssd_of_a_running_cache(stack, make_disk, kernel_log, loaded):
    """What is loaded into a cache that runs names a copy of its SSD, of before what was written since: the index would find other
    data in it.  If that is known as it is loaded nothing is suspended; else the table that it had goes on."""
    copy = make_disk("ssd1", model="null", mb=32, wce=1, fua=1)
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.volume.flush()
    put_back(copy, image(stack.ssd))
    table = stack.cache.table()
    if loaded != "none was":
        stack.cache.message("checkpoint")
    stack.volume.write(1000, B)
    stack.volume.flush()
    not_as_left(stack, kernel_log, copy, other_table(stack, copy))
    if loaded != "none was":
        assert stack.cache.table() == table and not stack.cache.info()["suspended"]
        assert stack.volume.read(1000, 64) == B
    goes_on(stack, table, B)
    stack.restart()
    assert stack.volume.read(1000, 64) == B
    stack.stop()


def test_copy_of_the_ssd_of_a_suspended_cache(stack, make_disk):
    """It is what the cache left there: an SSD is exchanged for a copy with nothing stopped.  What nobody has flushed on that is
    before anything else is asked of it."""
    copy = make_disk("ssd1", model="null", mb=32, wce=1, fua=1)
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.volume.flush()
    stack.cache.suspend()
    put_back(copy, image(stack.ssd))
    with simdisk.Trace() as trace:
        goes_on(stack, other_table(stack, copy), A)
        commands = [c.op for c in trace.commands(copy) if c.op != "read"]
    assert commands[:2] == ["flush", "flush"], commands[:8]  # the other one is of the superblock
    stack.ssd = copy
    stack.restart()
    assert stack.volume.read(1000, 64) == A
    stack.stop()


def test_ssd_is_another_one_behind_wipe_table(stack, kernel_log):
    """Nobody has the SSD open, and the cache is to go on with what it has in memory: what was put back from an image, or written to
    by others, is refused; what it left there is taken."""
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.volume.flush()
    old, table = image(stack.ssd), stack.cache.table()
    stack.volume.write(1000, B)
    stack.volume.flush()
    command.run("dmsetup", "wipe_table", "c")
    left = image(stack.ssd)
    put_back(stack.ssd, old)
    not_as_left(stack, kernel_log, stack.ssd, table)
    put_back(stack.ssd, left)
    for field in (32, 96):  # generation; created: another life may have come to the same generation
        sb = bytearray(stack.ssd.read(8, 8))
        struct.pack_into("<Q", sb, field, struct.unpack_from("<Q", sb, field)[0] + 1)
        seal(sb, "larder_cache_sb")
        stack.ssd.write(8, bytes(sb))
        stack.ssd.flush()
        not_as_left(stack, kernel_log, stack.ssd, table)
        assert kernel_log.matching("written to by others since")
        put_back(stack.ssd, left)
    goes_on(stack, table, B)
    stack.restart()
    assert stack.volume.read(1000, 64) == B
    stack.stop()


def test_older_ssd_that_is_the_one(stack, kernel_log):
    """It has lost what it had acknowledged; its user knows, and says so.  Once."""
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.stop()
    old = image(stack.ssd)
    stack.start()
    stack.stop()
    put_back(stack.ssd, old)
    cache = Cache.start(stack.ssd)
    refused(kernel_log, stack.hdd, cache, "is older than what volume", "option 'stale accept'")
    v = Volume.start(stack.hdd, cache, stale="accept", writeback="off")
    assert "stale" not in v.table() and v.read(1000, 64) == A
    v.remove()
    cache.remove()
    stack.start()
    assert stack.volume.read(1000, 64) == A
    stack.stop()


COPIES = 8, -8  # sectors of an SSD's superblocks; the second one from its end


def refused_set(kernel_log, ssds: list[simdisk.Simdisk | None], which: int) -> None:
    """These SSDs are not taken for a set: that one is older.  Nothing is written to any."""
    kernel_log.mark()
    with unchanged(*filter(None, ssds)), pytest.raises(command.CommandError):
        Cache.start(ssds)
    name = ssds[which].kernel_name
    assert kernel_log.matching(f"{name}: SSD {which} is older than the others of cache {UUID} ")
    assert kernel_log.matching(f"{name}: give the SSD that it had, or '-' in its place.*option 'stale accept'")
    if "c" in dm.names():
        dm.DmDevice("c").remove()


def has_all(stack: Stack, ssds: list, blocks: range, **options: object) -> None:
    cache = Cache.start(ssds, **options)
    v = Volume.start(stack.hdd, cache, writeback="off")
    assert all(v.read(sector, len(B) // SECTOR) == B for sector in blocks)
    v.remove()
    cache.remove()


@pytest.mark.parametrize("ends", ["stopped", "cut off"])
@pytest.mark.parametrize("taken", ["stopped", "running"])
@pytest.mark.parametrize("mirror", ["none", "dirty"])
@pytest.mark.parametrize("which", [0, 1])
def test_image_of_one_ssd_beside_another(make_disk, kernel_log, which, mirror, taken, ends):
    """The newest table names it as a member, but what it has is of then: the set does not start with it, and nothing is changed.
    Without it all is there, where what is dirty is on two; and with the one that it had."""
    stack = small_stack(make_disk, 2, cache_mirror=mirror)
    blocks = range(0, 8192, 128)
    for sector in blocks:
        stack.volume.write(sector, A)
    stack.volume.flush()
    old = image(stack.ssd[which])
    stack.stop()
    if taken == "stopped":
        old = image(stack.ssd[which])
    stack.start()
    for sector in blocks:
        stack.volume.write(sector, B)
    stack.volume.flush()
    if ends != "stopped":
        simdisk.power_cut(mode="lose", seed=1)
    stack.stop()
    simdisk.power_up()
    new = image(stack.ssd[which])
    put_back(stack.ssd[which], old)
    for _ in range(2):
        refused_set(kernel_log, stack.ssd, which)
    if mirror == "dirty":
        has_all(stack, [None if i == which else s for i, s in enumerate(stack.ssd)], blocks)
        cache = Cache.start(stack.ssd)  # it has left the set by now
        assert cache.status()["devices_failed"] == 1
        cache.remove()
    else:
        put_back(stack.ssd[which], new)
        has_all(stack, stack.ssd, blocks)


@pytest.mark.parametrize("before", ["made", "stopped"])
def test_image_of_before_a_start(make_disk, kernel_log, before):
    """The first one, or one that leaves another SSD out: that start says of itself that all have had it, and power is cut."""
    ssds = make_ssds(make_disk, (32, 32, 32))
    names = [w for s in ssds for w in ("--cache", s)]
    larder("cache", "create", "c", *names, "--segment-size", "128k", "--yes")
    there = ssds
    if before == "stopped":
        Cache.start(ssds).remove()
        there = [*ssds[:2], None]
    old = image(ssds[1])
    cache = Cache.start(there)
    simdisk.power_cut(mode="lose", seed=1)
    cache.remove()
    simdisk.power_up()
    put_back(ssds[1], old)
    refused_set(kernel_log, there, 1)
    cache = Cache.start([ssds[0], None, ssds[2]] if before == "made" else [ssds[0], None, None])
    assert cache.status()["devices_failed"] == (1 if before == "made" else 2)
    cache.remove()


def test_ssd_that_loses_what_it_acknowledges(make_disk, kernel_log):
    """Its superblock alone is older; its user knows, and says so.  Once."""
    stack = small_stack(make_disk, 2, cache_mirror="none")
    old = [stack.ssd[1].read(sector % stack.ssd[1].sectors, 8) for sector in COPIES]
    blocks = range(0, 8192, 128)
    for sector in blocks:
        stack.volume.write(sector, B)
    stack.volume.flush()
    stack.restart()
    stack.stop()
    for sector, data in zip(COPIES, old, strict=True):
        stack.ssd[1].write(sector % stack.ssd[1].sectors, data)
    refused_set(kernel_log, stack.ssd, 1)
    has_all(stack, stack.ssd, blocks, stale="accept")
    has_all(stack, stack.ssd, blocks)
    for value in ("discard", "no"):
        with pytest.raises(command.CommandError):
            Cache.start(stack.ssd, stale=value)
        assert kernel_log.matching("stale: '" + value + "' is not refuse or accept")


def test_ssd_whose_superblock_could_not_be_written(make_disk, kernel_log):
    """For a while, while the other one got newer ones: it is none that is put back."""
    kernel_log.expect("cannot write the superblock|I/O error|medium error|no checkpoint could be taken|cannot write a checkpoint")
    stack = small_stack(make_disk, 2, cache_mirror="none")
    blocks = range(0, 8192, 128)
    for sector in blocks:
        stack.volume.write(sector, B)
    stack.volume.flush()
    stack.ssd[1].fail(op="write", from_=MAIN, to=MAIN + 7, status="medium")
    generations = [superblock(s)["generation"] for s in stack.ssd]
    for _ in range(4):
        with contextlib.suppress(command.CommandError):
            stack.cache.message("checkpoint")
    simdisk.power_cut(mode="lose", seed=1)
    stack.stop()
    simdisk.power_up()
    stack.ssd[1].heal()
    found = [superblock(s)["generation"] for s in stack.ssd]
    assert found[0] >= generations[0] + 4 and found[1] == generations[1]
    has_all(stack, stack.ssd, blocks)


def test_image_of_the_disk_as_it_is(stack):
    """Nothing was written since: one is as good as the other, as for whoever copies a stopped disk to a new one."""
    stack.volume.write(1000, A)
    stack.stop()
    put_back(stack.hdd, image(stack.hdd))
    stack.start()
    assert stack.volume.read(1000, 64) == A
    stack.stop()


def test_disk_that_was_there_is_never_older(stack, kernel_log):
    """Power is cut at each command of a start of the volume, and of its stop, of either disk or of both: it starts again."""
    kernel_log.expect("I/O error|Buffer I/O|lost async page write|critical|could not be|cannot write")
    stack.stop()
    moments = set()
    for part, after in itertools.product(("start", "stop"), (*range(1, 20), 100)):
        stack.start() if part == "stop" else Cache.start(stack.ssd)
        if part == "stop":
            write_through(stack)
            stack.volume.write(1000, A)
        simdisk.power_cut(mode="lose", seed=after, after=after, ops="write,flush")
        with contextlib.suppress(OSError, command.CommandError):
            stack.volume.remove() if part == "stop" else Volume.start(stack.hdd, Cache("c"))
        simdisk.power_cut(mode="lose", seed=after)
        for name in ("v", "c"):
            if name in dm.names():
                dm.DmDevice(name).remove()
        stack.volume = stack.cache = None
        simdisk.power_up()
        found = superblock(stack.hdd)
        moments.add((part, found["generation"] - seen(stack.ssd), seen(stack.ssd) - found["noted"]))
        stack.start()
        stack.stop()
    # the superblock is in front of the table, which is in front of what the superblock says of it
    assert all(ahead >= 0 and noted >= 0 for _, ahead, noted in moments)
    for part in ("start", "stop"):
        assert {n for p, n, _ in moments if p == part} >= {0, 1} and {n for p, _, n in moments if p == part} > {0}


def test_disk_that_can_only_be_read(stack, kernel_log):
    """Its superblock cannot be written as it starts: it does all the same, and so it does when it has been mended."""
    kernel_log.expect("I/O error|Buffer I/O|lost async page write|critical|could not be written|cannot write the superblock")
    stack.volume.write(1000, A)
    stack.volume.drain()
    stack.stop()
    for _ in range(2):
        stack.hdd.fail(op="write", status="ioerr")
        stack.start()
        assert stack.volume.read(1000, 64) == A
        stack.stop()
        stack.hdd.heal()
        stack.start()
        assert stack.volume.read(1000, 64) == A
        stack.stop()


def test_image_of_a_disk_that_had_left(stack, kernel_log):
    """It had left a cache that had failed, and needed no word to be attached anew; what that cache has got since is not given up
    for it without one."""
    kernel_log.expect("I/O error|Buffer I/O|lost async page write|critical")
    stack.volume.set(mode="writethrough")
    stack.volume.write(1000, A)
    stack.volume.drain()
    stack.ssd.fail(op="read,write,flush", status="ioerr")
    stack.volume.write(1000, A)
    stack.volume.flush()
    wait_for(lambda: stack.volume.status()["state"] == "passing", 60, "the volume to leave")
    stack.stop()
    stack.ssd.heal()
    old = image(stack.hdd)
    assert struct.unpack_from("<I", old[0], MAIN * SECTOR + 28)[0] & LEFT
    stack.start()
    stack.volume.set(writeback="off")
    stack.volume.write(1000, B)
    stack.volume.flush()
    stack.stop()
    new = image(stack.hdd)
    put_back(stack.hdd, old)
    cache = Cache.start(stack.ssd)
    refused(kernel_log, stack.hdd, cache, "is older than what cache", "stale discard")
    cache.remove()
    put_back(stack.hdd, new)
    stack.start()
    assert stack.volume.read(1000, 64) == B
    stack.stop()


def test_older_disk_that_is_the_one(stack, kernel_log):
    """It has lost what it had acknowledged; its user knows, and says so.  Once."""
    stack.stop()
    old = image(stack.hdd)
    stack.start()
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.volume.flush()
    stack.stop()
    put_back(stack.hdd, old)
    cache = Cache.start(stack.ssd)
    refused(kernel_log, stack.hdd, cache, "is older than what cache", "option 'stale accept'")
    v = Volume.start(stack.hdd, cache, stale="accept", writeback="off")
    assert "stale" not in v.table() and v.read(1000, 64) == A and superblock(stack.hdd)["generation"] >= seen(stack.ssd)
    v.remove()
    cache.remove()
    stack.start()
    assert stack.volume.read(1000, 64) == A
    stack.stop()


# ---------------------------------------------------------------- another cache


def test_another_cache_is_refused(stack, make_disk, kernel_log):
    other = make_disk("ssd1", model="null", mb=32, wce=1, fua=1)
    Cache.format("d", other)
    d = Cache.start(other, "d")
    stack.volume.write(1000, A)
    with unchanged(other), pytest.raises(command.CommandError):  # in use
        stack.volume.load(Volume.line(stack.hdd, d, stack.volume.sectors))
    assert kernel_log.matching(f"belongs to cache {UUID}, not to {UUID}: 'larder volume detach'")
    assert stack.volume.read(1000, 64) == A
    stack.stop()
    with unchanged(other, stack.ssd):
        refused(kernel_log, stack.hdd, d, f"volume {UUID} belongs to cache {UUID}, not to {UUID}", "larder volume detach")
        refused(kernel_log, stack.hdd, d, f"volume {UUID} belongs to cache {UUID}, not to {UUID}", stale="discard")
    stack.start()
    assert stack.volume.read(1000, 64) == A
    # detached from the one, it goes to the other
    stack.detach()
    stack.volume.reload(Volume.line(stack.hdd, d, stack.volume.sectors))
    assert stack.volume.read(1000, 64) == A
    assert (stack.cache.status()["volumes"], d.status()["volumes"]) == (0, 1)
    stack.stop()
    d.remove()


def test_cache_formatted_anew(stack, kernel_log):
    """Its UUID is another one: with dirty data in the old one the volume does not start, and says so."""
    stack.volume.set(writeback="off")
    stack.volume.write(1000, A)
    stack.stop()
    command.run("larder", "super", "wipe", stack.ssd, "--yes", check=False)
    stack.ssd.zero(0, stack.ssd.sectors)
    Cache.format("c", stack.ssd)
    cache = Cache.start(stack.ssd)
    refused(kernel_log, stack.hdd, cache, "belongs to cache")
    refused(kernel_log, stack.hdd, None, "may have dirty data in cache")
    cache.remove()
