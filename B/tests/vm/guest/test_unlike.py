# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets of SSDs that are not alike: sixteen of different sizes; blocks of 512 bytes and of 4 KiB.  They go and come under load."""

import random

import pytest
from lib.controls import Switches
from lib.larder import Stack, larder, wait_for
from lib.oracle import Oracle
from lib.sets import kill, make_ssds, resynced, start_without

NOISE = "I/O error|critical .* error|Buffer I/O"
MIB = 2048  # sectors


def states(stack: Stack) -> list[str]:
    return stack.cache.status()["ssds"].split("/")


def during(oracle: Oracle, *arguments: object, ops: int = 600) -> None:
    """One verb of the command beside a load, which goes on behind it."""
    running = oracle.start(ops=ops)
    try:
        larder(*arguments)
        running.wait()
    finally:
        if running.running():
            running.kill()


# ------------------------------------------------------------------ sixteen


SIZES = tuple(16 + 2 * (7 * i % 16) for i in range(16))  # MiB: no two alike


def sixteen(make_disk, **options: object) -> Stack:
    return Stack(
        make_ssds(make_disk, SIZES),
        make_disk("hdd0", model="null", mb=1024, wce=1),
        format_cache=("--segment-size", "128k"),
        format_volume=("--cache", "c"),
        **options,
    )


@pytest.mark.limit(1800)
@pytest.mark.parametrize("mirror", ["dirty", "dirty:3", "all"])
def test_sixteen_sizes(make_disk, make_oracle, kernel_log, seed, mirror):
    """Under load one is lost, another one takes its place, and one is drained; afterwards any other one may be missing."""
    kernel_log.expect(NOISE)
    r = random.Random(seed)
    lost, drained, missing = r.sample(range(16), 3)
    print(f"SSD {lost} ({SIZES[lost]} MiB) is lost, {drained} ({SIZES[drained]} MiB) drained, {missing} missing at the end")
    stack = sixteen(make_disk, cache_mirror=mirror)
    status = stack.cache.status()
    assert (status["devices"], status["mirrored"], states(stack)) == (16, 1, ["active"] * 16)
    oracle = make_oracle(stack.volume, size="96m")
    switches = Switches(stack.volume, stack.cache)
    switches.run(oracle, "modes", "checkpoint", "evict", "suspend", ops=2000, every=60)
    stack.volume.set(mode="writeback")
    assert all(s.stats()["writes"] > 20 for s in stack.ssd)
    extra = make_disk("ssd16", model="null", mb=max(SIZES), wce=1, fua=1)
    assert larder("cache", "add", stack.cache, extra, "--new-place", "--yes", check=False).returncode, "a seventeenth"
    oracle.verify()

    stack.ssd[lost].fail(op="read,write,flush,discard,zeroes", status="ioerr", skip=r.randrange(100))
    oracle.run(ops=800)
    kill(stack.ssd[lost])
    stack.cache.message("checkpoint")
    resynced(stack)
    oracle.verify()
    during(oracle, "cache", "replace", stack.cache, lost, extra, "--yes")
    stack.ssd[lost] = extra
    assert states(stack) == ["active"] * 16
    oracle.verify()
    extra.reset_stats()
    during(oracle, "cache", "remove", stack.cache, stack.ssd[drained], ops=1500)
    assert states(stack) == ["removed" if i == drained else "active" for i in range(16)]
    assert extra.stats()["writes"], "it is one of them"
    oracle.verify()
    gone, stack.ssd[drained] = stack.ssd[drained], None
    gone.reset_stats()
    stack.restart()
    oracle.verify()
    assert not gone.stats()["reads"]
    oracle.run(ops=500)
    stack.stop()
    start_without(stack, missing, drained)
    oracle.verify()
    stack.verify_alone(oracle)


def live(stack: Stack, mib: int) -> list[int]:
    """Sectors of clean data that each SSD has: what it is read for, when all of that is read."""
    stack.volume.set(fill="off")
    for s in stack.ssd:
        s.reset_stats()
    for first in range(0, mib * MIB, MIB):
        stack.volume.read(first, MIB)
    return [s.stats()["rbytes"] // 512 for s in stack.ssd]


@pytest.mark.limit(1800)
@pytest.mark.parametrize(("mirror", "mib", "least"), [("none", 120, 90), ("none", 560, 300), ("dirty", 560, 200)])
def test_clean_data_by_size(make_disk, mirror, mib, least):
    """In proportion to size, from the first segment on; but where SSDs are used in pairs when the cache is full: before that the
    larger ones have more.  least: MiB that are to be there, as some fills are given up, and some room is kept free."""
    stack = sixteen(make_disk, cache_mirror=mirror, sequential_cutoff=0, writeback="off")
    for _ in range(5):
        for first in range(0, mib * MIB, MIB):
            stack.volume.read(first, MIB)
            if not first % (16 * MIB):
                stack.cache.message("commit")
        if stack.volume.status()["cached_sectors"] >= least * MIB:
            break
    has = live(stack, mib)
    print(", ".join(f"{size} MiB: {n / MIB:.1f}" for size, n in sorted(zip(SIZES, has, strict=True))))
    assert sum(has) >= least * MIB
    shares = [n * sum(SIZES) / (size * sum(has)) for size, n in zip(SIZES, has, strict=True)]
    print(f"of its size, against all: {min(shares):.2f} to {max(shares):.2f}")
    assert min(shares) > 0.85 and max(shares) < 1.15, shares
    stack.stop()


# ------------------------------------------------------------------ blocks


def ssd_of(make_disk, number: int, block: int):
    return make_disk(f"ssd{number}", model="null", mb=48, wce=1, fua=1, lbs=block, pbs=4096)


@pytest.mark.limit(900)
@pytest.mark.parametrize(
    ("mirror", "blocks"), [("dirty", (512, 4096)), ("dirty", (4096, 512)), ("all", (512, 4096)), ("none", (4096, 512))], ids=str
)
def test_blocks_in_one_set(make_disk, make_oracle, blocks, mirror):
    """Each of the two is removed and added again, under load of whole and odd sectors; in between the other one is alone."""
    stack = Stack(
        [ssd_of(make_disk, i, b) for i, b in enumerate(blocks)],
        make_disk("hdd0", model="null", mb=128, wce=1),
        format_volume=("--cache", "c"),
        cache_mirror=mirror,
    )
    assert [int(s.queue("logical_block_size")) for s in stack.ssd] == list(blocks)
    assert stack.volume.queue("logical_block_size") == "512", "that of the backing"
    oracle = make_oracle(stack.volume, size="32m")
    oracle.run(ops=1000)
    ssds = list(stack.ssd)
    for which in (0, 1, 0):
        during(oracle, "cache", "remove", stack.cache, ssds[which])
        assert states(stack)[which] == "removed"
        ssds[which].reset_stats()
        oracle.run(ops=400)
        oracle.verify()
        assert not ssds[which].stats()["reads"] + ssds[which].stats()["writes"]
        during(oracle, "cache", "add", stack.cache, ssds[which], "--yes")
        assert states(stack) == ["active", "active"]
        oracle.run(ops=400)
        oracle.verify()
        assert ssds[which].stats()["writes"]
    stack.restart()
    oracle.verify()
    if mirror != "none":
        for which in (0, 1):
            stack.stop()
            start_without(stack, which)
            oracle.verify()
            larder("cache", "add", stack.cache, ssds[which], "--yes")
    stack.verify_alone(oracle)


@pytest.mark.limit(900)
@pytest.mark.parametrize("which", [0, 1])
def test_blocks_change_in_a_place(make_disk, make_oracle, kernel_log, seed, which):
    """One of 4 KiB takes the place of one of 512 bytes that failed, and one of 512 that of this one."""
    kernel_log.expect(NOISE)
    stack = Stack(
        [ssd_of(make_disk, i, 512) for i in range(2)],
        make_disk("hdd0", model="null", mb=128, wce=1),
        format_volume=("--cache", "c"),
        writeback="off",
    )
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=800)
    for number, block in ((2, 4096), (3, 512)):
        old, new = stack.ssd[which], ssd_of(make_disk, number, block)
        old.fail(op="read,write,flush,discard,zeroes", status="ioerr", skip=seed % 200)
        oracle.run(ops=600)
        kill(old)
        oracle.run(ops=50)
        stack.cache.message("checkpoint")
        wait_for(lambda: states(stack)[which] == "failed", 60, "the SSD to leave")
        during(oracle, "cache", "replace", stack.cache, which, new, "--yes")
        stack.ssd[which] = new
        assert states(stack) == ["active", "active"]
        oracle.verify()
        stack.stop()
        start_without(stack, 1 - which)
        oracle.verify()
        larder("cache", "add", stack.cache, stack.ssd[1 - which], "--yes")
    stack.verify_alone(oracle)
