# SPDX-License-Identifier: GPL-2.0-or-later
"""The test rig itself, on raw simulated disks: what it promises to the tests of larder."""

import errno
import subprocess

import pytest
from lib import command, dm, simdisk
from lib.oracle import OracleError

A, B, C = (bytes([x]) * 4096 for x in (0xA1, 0xB2, 0xC3))
ZERO = bytes(4096)


# ---------------------------------------------------------------- counters and trace


def test_counts_and_trace(ssd, trace):
    ssd.reset_stats()
    ssd.write(0, A)
    ssd.write(8, B, fua=True)
    ssd.flush()
    ssd.discard(16, 8)
    ssd.zero(24, 8)
    assert ssd.read(0, 16) == A + B
    s = ssd.stats()
    assert (s["reads"], s["writes"], s["wbytes"], s["fua"], s["discards"], s["dbytes"], s["write_zeroes"]) == (
        1,
        2,
        8192,
        1,
        1,
        4096,
        1,
    )
    commands = trace.commands(ssd)
    assert [c.op for c in commands if c.op != "flush"] == ["write", "write", "discard", "zeroes", "read"]
    assert [c.sector for c in commands if c.op == "write"] == [0, 8]
    assert [("fua" in c.flags) for c in commands if c.op == "write"] == [False, True]
    assert s["flushes"] == sum(c.op == "flush" for c in commands) >= 1
    assert all(c.end is not None and c.error == 0 for c in commands)
    ssd.reset_stats()
    assert ssd.stats()["writes"] == 0


def test_one_order_over_disks(disks, trace):
    ssd, hdd = disks
    for i in range(10):
        (ssd, hdd)[i % 2].write(i * 8, A)
    writes = trace.commands(op="write")
    assert [c.disk for c in writes] == ["ssd0", "hdd0"] * 5
    assert sorted(c.seq for c in writes) == [c.seq for c in writes]


# ---------------------------------------------------------------- power cuts


def test_flushed_survives_unflushed_does_not(ssd):
    ssd.write(0, A)
    ssd.flush()
    ssd.write(0, B)
    ssd.write(8, C, fua=True)
    ssd.write(16, C)
    assert ssd.state()["volatile_pages"] == 2  # FUA secures itself only
    simdisk.power_cut(mode="lose")
    with pytest.raises(OSError) as e:
        ssd.read(0, 8)
    assert e.value.errno == errno.EIO
    simdisk.power_up()
    assert ssd.read(0, 24) == A + C + ZERO
    assert ssd.state()["volatile_pages"] == 0


def test_keep_mode_keeps_all(ssd):
    ssd.write(0, A)
    ssd.write(0, B)
    ssd.discard(8, 8)
    simdisk.power_cut(mode="keep")
    simdisk.power_up()
    assert ssd.read(0, 8) == B


def test_any_unflushed_version_may_survive(ssd):
    """Three versions of a page over a durable one: seeds reach all four, and torn cuts reach mixtures."""
    seen, torn = set(), 0
    for seed in range(60):
        ssd.write(0, ZERO, fua=True)
        for data in (A, B, C):
            ssd.write(0, data)
        simdisk.power_cut(ssd, mode="random" if seed % 2 else "torn", seed=seed)
        simdisk.power_up(ssd)
        found = ssd.read(0, 8)
        if found in (ZERO, A, B, C):
            seen.add(found[0])
        else:
            assert {found[i] for i in range(0, 4096, 512)} <= {0, A[0], B[0], C[0]}
            assert all(len(set(found[i : i + 512])) == 1 for i in range(0, 4096, 512))
            torn += 1
    assert seen == {0, A[0], B[0], C[0]}
    assert torn > 5


def test_flush_covers_only_what_had_completed(make_disk):
    """A write in flight when the flush is issued stays volatile, though it ends before the flush does."""
    d = make_disk("ssd0", model="nvme", mb=64)
    dd = ["dd", "if=/dev/urandom", f"of={d}", "bs=4k", "count=1", "seek=1", "oflag=direct", "status=none"]
    for _ in range(20):
        d.write(8, ZERO)
        d.flush()
        d.write(0, A)
        d.fail(op="write", from_=8, to=16, count=1, status="ok", delay_ms=300)
        d.fail(op="flush", count=1, status="ok", delay_ms=1200)
        with simdisk.Trace() as t:
            writer = subprocess.Popen(dd)
            while writer.poll() is None and d.state()["inflight"] != 1:
                pass
            d.flush()
            assert writer.wait() == 0
            (write,), (flush,) = t.commands(d, op="write"), t.commands(d, op="flush")
        d.heal()
        if write.seq < flush.seq < write.end < flush.end:
            break  # else we had no processor for so long
    else:
        raise AssertionError("the flush was never issued beside the write")
    assert d.state()["volatile_pages"] == 1
    simdisk.power_cut(mode="lose")
    simdisk.power_up()
    assert d.read(0, 16) == A + ZERO


def test_disks_are_cut_at_one_instant(disks):
    """After every second command: the pair of counters on the two disks never differs by more than the one command."""
    ssd, hdd = disks
    for after in (1, 4, 7, 20):
        simdisk.power_cut(mode="keep", after=after, ops="write")
        n = 0
        with pytest.raises(OSError):
            for n in range(100):
                (ssd, hdd)[n % 2].write(0, bytes([n]) * 4096)
        simdisk.wait_power_off(ssd)
        simdisk.wait_power_off(hdd)
        assert n == after - 1  # the command that the cut met has failed, and may be on the medium: mode keep says it is
        simdisk.power_up()
        newest = sorted(d.read(0, 1)[0] for d in disks)
        assert newest[1] == after - 1 and newest[0] == max(after - 2, newest[0])


def test_lie_about_flush_loses(ssd):
    ssd.set(ignore_flush=1)
    ssd.write(0, A)
    ssd.flush()
    simdisk.power_cut(mode="lose")
    simdisk.power_up()
    assert ssd.read(0, 8) == ZERO


@pytest.mark.parametrize("model", ["null", "nvme", "sata", "hdd"])
def test_no_volatile_cache_loses_nothing_acknowledged(make_disk, model):
    d = make_disk("d0", model=model, mb=64, wce=0)
    d.write(0, A)
    simdisk.power_cut(mode="lose")
    simdisk.power_up()
    assert d.read(0, 8) == A


def test_power_cut_fails_what_is_in_flight(make_disk):
    """Also what would have taken minutes, and what a hard disk holds in its queues."""
    for model in ("nvme", "hdd"):
        d = make_disk("d0", model=model, mb=256)
        d.fail(op="write", status="ok", delay_ms=600000)
        dd = subprocess.Popen(["dd", "if=/dev/zero", f"of={d}", "bs=4k", "count=1", "oflag=direct"], stderr=subprocess.DEVNULL)
        while not d.state()["inflight"]:
            pass
        simdisk.power_cut()
        assert dd.wait(20) != 0
        d.heal()
        simdisk.power_up()
        d.write(0, A)
        assert d.read(0, 8) == A
        d.remove()


# ---------------------------------------------------------------- faults


def test_faults(ssd):
    ssd.write(0, A * 4)
    ssd.fail(op="write", from_=8, to=16, skip=1, count=1, status="nospc")
    ssd.write(8, B)
    with pytest.raises(OSError) as e:
        ssd.write(8, C)
    assert e.value.errno == errno.ENOSPC
    assert ssd.read(8, 8) == B
    ssd.write(8, C)
    ssd.heal()
    ssd.fail(op="read", from_=0, to=8, status="corrupt")
    assert ssd.read(0, 8) != A and ssd.read(8, 8) == C
    ssd.heal()
    ssd.fail(op="write", from_=16, to=24, status="lost", count=1)
    ssd.write(16, B)
    assert ssd.read(16, 8) == A
    ssd.fail(op="flush", status="ioerr", count=1)
    with pytest.raises(OSError):
        ssd.flush()
    ssd.flush()
    ssd.fail(op="write", status="ioerr", store=True, count=1)
    with pytest.raises(OSError):
        ssd.write(24, C)
    assert ssd.read(24, 8) == C
    ssd.corrupt(24, 1)
    found = ssd.read(24, 8)
    assert found[512:] == C[512:] and found[:512] != C[:512]
    assert ssd.stats()["errors"] == 3
    with pytest.raises(OSError):
        ssd.fail(op="nonsense")


# ---------------------------------------------------------------- parameters, life and death


def test_parameters_reach_the_queue(make_disk):
    d = make_disk(
        "d0", model="null", mb=64, lbs=4096, pbs=8192, io_opt=65536, io_min=8192, wce=1, fua=1, discard="zero", write_zeroes=1
    )
    assert [d.queue(x) for x in ("logical_block_size", "physical_block_size", "optimal_io_size", "minimum_io_size")] == [
        "4096",
        "8192",
        "65536",
        "8192",
    ]
    assert (d.queue("write_cache"), d.queue("fua")) == ("write back", "1")
    assert int(d.queue("discard_max_bytes")) > 0 and int(d.queue("write_zeroes_max_bytes")) > 0
    d.remove()
    d = make_disk("d0", model="null", mb=64, ro=1)
    assert d.queue("write_cache") == "write through" and d.queue("discard_max_bytes") == "0"
    with pytest.raises(OSError):
        d.write(0, A)


@pytest.mark.parametrize(("kind", "expected"), [("zero", True), ("leave", False), ("random", False)])
def test_discard_kinds(make_disk, kind, expected):
    d = make_disk("d0", model="null", mb=64, discard=kind)
    d.write(0, A)
    d.discard(0, 8)
    found = d.read(0, 8)
    assert (found == ZERO) is expected and (found == A) is (kind == "leave")
    assert d.read(0, 8) == found


def test_sparse_terabytes(make_disk):
    d = make_disk("big", model="null", mb=8 << 20, wce=1, discard="zero")
    assert d.sectors == 8 << 31
    last = d.sectors - 8
    d.write(last, A)
    d.flush()
    d.write(1 << 33, B)
    simdisk.power_cut(mode="lose")
    simdisk.power_up()
    assert d.read(last, 8) == A and d.read(1 << 33, 8) == ZERO
    d.discard(0, d.sectors)
    assert d.read(last, 8) == ZERO


def test_removal_of_open_disk(ssd):
    with open(ssd, "rb"):
        with pytest.raises(OSError) as e:
            ssd.remove(seconds=0)
        assert e.value.errno == errno.EBUSY
        ssd.remove(force=True)
    with pytest.raises(OSError):
        simdisk.control("set name=ssd0 ro=0")


def test_bad_commands_are_refused(ssd):
    for line in (
        "add name=x",
        "add name=x model=none",
        "add name=ssd0 model=null",
        "add name=x model=null lbs=3",
        "nonsense",
        "add name=x model=null mb=0",
        "set name=ssd0 lbs=4096",
        "set name=ssd0 nonsense=1",
        "powercut nobody",
        "powercut all mode=x",
        "powerup",
        "fail name=ssd0 status=x",
    ):
        with pytest.raises(OSError):
            simdisk.control(line)


def test_dm_wrapper(ssd):
    d = dm.DmDevice.create("lin", f"0 2048 linear {ssd} 8")
    d.write(0, A)
    assert ssd.read(8, 8) == A
    assert d.table().split()[2] == "linear" and d.status()["target"] == "linear"
    d.reload(f"0 4096 linear {ssd} 0")
    assert d.sectors == 4096 and d.read(8, 8) == A
    assert not d.info()["suspended"] and d.exists()
    d.remove()
    assert not d.exists()
    with pytest.raises(command.CommandError):
        dm.DmDevice.create("bad", "0 2048 nonsense")


# ---------------------------------------------------------------- oracle


def test_oracle_rounds_of_power_cuts(make_disk, make_oracle, seed):
    """20 rounds: load until the power fails, power-up, every sector judged."""
    d = make_disk("ssd0", model="nvme", mb=64, discard="zero", write_zeroes=1, jitter_ns=200000)
    oracle = make_oracle(d, size="16m")
    modes = ("random", "torn", "lose", "keep", "prefix")
    for i in range(20):
        simdisk.power_cut(mode=modes[i % len(modes)], seed=seed + i, after=50 + seed % 37 * 10)
        report = oracle.run_until_cut(d)
        assert report["errors"] >= 1
        simdisk.power_up()
        oracle.verify(after="crash")
        oracle.verify()
    print(f"oracle: {oracle.verify()}")


@pytest.mark.parametrize("lie", ["ignore_flush", "ignore_fua"])
def test_oracle_finds_the_lie(make_disk, make_oracle, seed, lie):
    d = make_disk("ssd0", model="nvme", mb=64)
    d.set(**{lie: 1})
    oracle = make_oracle(d, size="4m")
    mix = "write=60,flush=10" if lie == "ignore_flush" else "write=30,fua=30"
    oracle.run(ops=500, mix=mix)
    simdisk.power_cut(mode="random", seed=seed)
    simdisk.power_up()
    with pytest.raises(OracleError) as e:
        oracle.verify(after="crash")
    assert e.value.status == 1 and e.value.report["mismatches"] > 0 and "MISMATCH" in e.value.err


@pytest.mark.parametrize("fault", ["corrupt", "lost", "old"])
def test_oracle_finds_wrong_content(make_disk, make_oracle, fault):
    d = make_disk("ssd0", model="null", mb=16)
    oracle = make_oracle(d, size="4m")
    oracle.run(ops=300, mix="write=1")
    if fault == "corrupt":
        d.corrupt(1000, 1)
    elif fault == "lost":
        d.fail(op="write", status="lost", count=1)
        oracle.run(ops=1, mix="write=1", qd=1)
    else:
        old = d.read(1000, 8)
        while d.read(1000, 8) == old:
            oracle.run(ops=500, mix="write=1")
        d.write(1000, old)
    with pytest.raises(OracleError) as e:
        oracle.verify()
    assert e.value.status == 1


def test_oracle_is_deterministic_at_depth_1(make_disk, make_oracle):
    seen = []
    for name in ("d0", "d1"):
        d = make_disk(name, model="null", mb=16, wce=1, discard="zero")
        with simdisk.Trace() as t:
            make_oracle(d, size="8m", seed=5).run(ops=300, qd=1)
            seen.append([(c.op, c.sector, c.sectors) for c in t.commands(d)])
    assert seen[0] == seen[1] and len(seen[0]) > 250


def test_oracle_controls_and_speed(ssd, make_oracle, tmp_path):
    log = tmp_path / "controls"
    oracle = make_oracle(ssd, size="64m")
    controls = 0
    while controls <= 2:  # one at a time, and each is a shell to be fetched from the host: there may be one or two in a run
        r = oracle.run(ops=20000, sizes="4k:100", mix="write=50,read=50", qd=32, control=f"echo $1 >> {log}", every=2000)
        controls += r["controls"]
        assert controls == len(log.read_text().split()) and r["controls"]
    print(f"oracle: {r['iops']} operations per second")
    with pytest.raises(OracleError):
        oracle.run(ops=500, control="exit 3", every=50)
    oracle.run(ops=500, control="exit 3", every=50, control_may_fail=True)


def test_oracle_with_errors(ssd, make_oracle):
    oracle = make_oracle(ssd, size="8m")
    ssd.fail(op="write", skip=20, count=30, status="ioerr")
    r = oracle.run(ops=1000, errors_ok=True)
    assert r["errors"] >= 10
    ssd.fail(op="write", skip=20, count=3, status="ioerr", store=True)
    assert oracle.run(ops=300, errors_ok=True)["errors"] >= 1
    oracle.verify()
    ssd.fail(op="read", from_=0, to=4, status="medium")
    with pytest.raises(OracleError):
        oracle.verify()
    assert oracle.verify(unreadable_ok=True)["unreadable"] == 4
