# SPDX-License-Identifier: GPL-2.0-or-later
"""The command larder with the kernel's targets: start, stop, attach, detach, set, flush, and what it refuses of what runs.

What it writes on disks and says of damage is tested without a VM, in tests/test_command*.py.
"""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "command"))
import signatures
from lib import command, dm
from lib.block import BlockDevice
from lib.larder import wait_for
from lib.parts import disk_in_two
from prometheus_client.openmetrics.parser import text_string_to_metric_families

MIB = 1 << 20
DATA = bytes(range(256)) * 16
DONE, FAILED, USAGE, NOT_FOUND, BUSY, UNSAFE = range(6)


def larder(*words, code=DONE):
    run = command.run("larder", *words, check=False)
    assert run.returncode == code, f"{words}: {run.returncode}, not {code}\n{run.stdout}{run.stderr}"
    return run


def refused(code, words, *parts):
    """One line on stderr that holds the parts."""
    run = larder(*words, code=code)
    lines = run.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("larder: "), run.stderr
    for part in parts:
        assert str(part) in lines[0], f"{part!r} is not in: {lines[0]}"


def values(noun, name, *fields):
    run = larder(noun, "list", "-o", "name," + ",".join(fields), "--units", "b", "--nosuffix", "--reportformat", "json")
    (row,) = [row for row in json.loads(run.stdout)[noun + "s"] if row["name"] == name]
    return [row[field] for field in fields]


def stack_uuid(name):
    run = larder("list", "-o", "name,layer,uuid", "--reportformat", "json")
    (uuid,) = [row["uuid"] for row in json.loads(run.stdout)["stacks"] if row["name"] == name and row["layer"] == "stack"]
    return uuid


def write(name, sector, blocks, salt=0):
    """Writes of 4 KiB, durable when this returns."""
    volume = dm.DmDevice(name)
    for i in range(blocks):
        volume.write(sector + 8 * i, bytes([i + salt & 0xFF]) + DATA[1:])
    volume.flush()


def check(name, sector, blocks, salt=0):
    volume = dm.DmDevice(name)
    for i in range(blocks):
        assert volume.read(sector + 8 * i, 8) == bytes([i + salt & 0xFF]) + DATA[1:], f"block {i} of {name}"


@pytest.fixture
def formatted(disks):
    ssd, hdd = disks
    larder("cache", "create", "fast", "--cache", ssd)
    larder("volume", "create", "data", "--backing", hdd, "--cache", "fast")
    return ssd, hdd


@pytest.fixture
def started(formatted):
    larder("volume", "start", "data", "--option", "writeback=off")
    return formatted


def test_start_and_stop(formatted):
    ssd, hdd = formatted
    assert values("volume", "data", "state", "backing", "cache_name") == ["stopped", str(hdd), "fast"]
    said = larder("volume", "start", "data").stdout
    assert "cache fast: started as /dev/mapper/larder-cache-fast" in said and "volume data: started as /dev/mapper/data" in said
    assert sorted(dm.names()) == ["data", "larder-cache-fast"]
    assert all(Path(f"/dev/mapper/{name}").is_block_device() for name in dm.names())
    uuid = values("volume", "data", "uuid")[0]
    cache = values("cache", "fast", "uuid")[0]
    assert dm.DmDevice("data").info()["uuid"] == f"LARDER-{uuid}"
    assert dm.DmDevice("larder-cache-fast").info()["uuid"] == f"LARDER-{cache}-cache"
    assert "runs already" in larder("volume", "start", hdd).stdout
    assert "runs already" in larder("cache", "start", cache).stdout
    assert values("volume", "data", "state", "backing", "cache_name", "size") == ["running", str(hdd), "fast", str(510 * MIB)]
    assert values("cache", "fast", "state", "ssd", "volumes") == ["running", str(ssd), "1"]
    write("data", 0, 16)
    refused(BUSY, ["cache", "stop", "fast"], "data")
    larder("volume", "stop", uuid)
    larder("cache", "stop", ssd)
    assert dm.names() == []
    refused(NOT_FOUND, ["volume", "stop", "data"], "not started")
    larder("cache", "start", "fast", "--option", "commit=always")
    assert larder("cache", "get", "fast", "commit").stdout == "commit=always\n"
    larder("volume", "start", "data", "--name", "other")
    check("other", 0, 16)
    larder("volume", "stop", "other")


def test_dry_run_is_what_dmsetup_takes(formatted):
    for line in larder("volume", "start", "data", "--option", "fill=off", "--dry-run").stdout.splitlines():
        subprocess.run(line, shell=True, check=True)
    assert values("volume", "data", "state", "fill") == ["running", "off"]


def test_names_of_devices_taken(formatted):
    _, hdd = formatted
    dm.DmDevice.create("data", f"0 8 linear {hdd} 0")
    refused(BUSY, ["volume", "start", "data"], "data", "--name")
    dm.DmDevice("data").remove()


def test_in_use(started, tmp_path):
    ssd, hdd = started
    for words in (["cache", "create", "x", "--cache", ssd], ["volume", "create", "x", "--backing", hdd], ["super", "wipe", hdd]):
        refused(BUSY, [*words, "--yes"] + (["--wipe"] if "create" in words else []), "held by")
    refused(BUSY, ["volume", "set", "data", "mode=writearound", "--persist"], "runs")
    command.run("mkfs.ext4", "-q", "/dev/mapper/data")
    command.run("mount", "/dev/mapper/data", tmp_path)
    refused(BUSY, ["volume", "stop", "data"], f"mounted on {tmp_path}")
    command.run("umount", tmp_path)
    larder("volume", "stop", "data")
    larder("volume", "set", "data", "mode=writearound", "--persist")
    larder("volume", "start", "data")
    assert larder("volume", "get", "data", "mode").stdout == "mode=writearound\n"


def test_what_the_kernel_refuses_is_said(started, ssd, kernel_log):
    # stderr has the kernel's own words, so that nobody has to look for them
    refused(USAGE, ["volume", "set", "data", "mode=fast"], "mode", "fast", "writethrough")
    refused(USAGE, ["volume", "set", "data", "writeback_percent=101"], "writeback_percent", "0 to 100")
    larder("volume", "stop", "data")
    refused(FAILED, ["volume", "start", "data", "--option", "depth=3"], "depth")
    assert dm.names() == ["larder-cache-fast"]


def test_set_and_get(started):
    before = larder("volume", "get", "data").stdout.splitlines()
    options = [line.split()[0] for line in larder("volume", "list", "-o", "help").stdout.splitlines() if "option:" in line]
    assert sorted(line.partition("=")[0] for line in before) == sorted(["mode", *options]) and len(options) > 7
    larder("volume", "set", "data", "sequential_cutoff=0", "fill=off")
    larder("volume", "set", "data", "writeback_depth", "3")
    after = larder("volume", "get", "data").stdout.splitlines()
    assert set(after) - set(before) == {"sequential_cutoff=0", "fill=off", "writeback_depth=3"}
    larder("cache", "set", "fast", "commit_interval=100")
    assert larder("cache", "get", "fast", "commit_interval").stdout == "commit_interval=100\n"


def test_detach_with_dirty_data_is_refused(started):
    write("data", 0, 64)
    cache = values("volume", "data", "cache")[0]
    refused(UNSAFE, ["volume", "detach", "data"], 64 * 4096, "--flush", f"--discard-dirty {cache}")
    assert values("volume", "data", "state", "mode", "dirty_sectors") == ["running", "writeback", str(64 * 4096)]
    other = "11111111-2222-4333-8444-555555555555"
    refused(UNSAFE, ["volume", "detach", "data", "--discard-dirty", other], cache, other)
    assert values("volume", "data", "state", "mode", "dirty_sectors") == ["running", "writeback", str(64 * 4096)]
    check("data", 0, 64)


def test_detach_and_attach_in_use(started):
    _, hdd = started
    larder("volume", "set", "data", "writeback_depth=7")
    write("data", 0, 64)
    with open("/dev/mapper/data", "rb"):
        larder("volume", "detach", "data", "--flush")
        assert values("volume", "data", "state", "cache") == ["passthrough", "-"]
        check("data", 0, 64)
        assert hdd.read(2048, 8)[:1] == b"\0" and hdd.read(2048 + 8 * 5, 8)[:1] == b"\5"
        write("data", 0, 64, salt=1)
        refused(NOT_FOUND, ["volume", "detach", "data"], "no cache")
        larder("volume", "attach", "data", "--cache", "fast")
        assert values("volume", "data", "state", "mode") == ["running", "writeback"]
        assert larder("volume", "get", "data", "writeback_depth").stdout == "writeback_depth=7\n"
        check("data", 0, 64, salt=1)
        write("data", 0, 64, salt=2)
        refused(UNSAFE, ["volume", "attach", "data", "--cache", "fast"], "detach")
    larder("volume", "stop", "data")
    larder("volume", "start", "data")
    check("data", 0, 64, salt=2)


def locks() -> str:
    return Path("/proc/locks").read_text()


def test_tables_are_read_in_their_turn(started):
    """What others set while a volume is drained stays set; what is read to be loaded again is read under the lock."""
    write("data", 0, 256)
    slow, fast = ("writeback_rate_max=4", "writeback_rate_min=4"), ("writeback_rate_max=0", "writeback_rate_min=0")
    larder("volume", "set", "data", *slow)
    with subprocess.Popen(["larder", "volume", "detach", "data", "--flush"]) as run, open("/run/larder/lock", "w") as lock:

        def waits(pid):
            assert run.poll() is None
            return f"-> FLOCK  ADVISORY  WRITE {pid} " in locks()

        wait_for(lambda: values("volume", "data", "mode") == ["writethrough"], 60, "the detach to begin")
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run.poll() is None and values("volume", "data", "dirty_sectors") != ["0"]
        larder("volume", "set", "data", "writeback_depth=9", *fast)
        wait_for(lambda: waits(run.pid), 120, "the detach to wait for its turn")
        for verb in (["cache", "resize", "fast"], ["volume", "resize", "data"]):
            with subprocess.Popen(["larder", *verb]) as other:
                wait_for(lambda pid=other.pid: waits(pid), 60, f"{verb} to wait for its turn")
                other.kill()
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert run.wait(120) == 0
    assert values("volume", "data", "state", "cache") == ["passthrough", "-"]
    larder("volume", "attach", "data", "--cache", "fast")
    assert larder("volume", "get", "data", "writeback_depth").stdout == "writeback_depth=9\n"
    assert values("volume", "data", "state", "mode") == ["running", "writeback"]
    check("data", 0, 256)


def test_detach_giving_up_dirty_data(started):
    write("data", 0, 64)
    cache = values("volume", "data", "cache")[0]
    with open("/dev/mapper/data", "rb"):
        refused(BUSY, ["volume", "detach", "data", "--discard-dirty", cache], "in use")
    check("data", 0, 64)
    larder("volume", "detach", "data", "--discard-dirty", cache)
    assert values("volume", "data", "state", "cache") == ["passthrough", "-"]
    assert dm.DmDevice("data").read(8 * 5, 8) == bytes(4096)
    larder("volume", "attach", "data", "--cache", "fast")
    write("data", 0, 8, salt=3)
    check("data", 0, 8, salt=3)


def test_detach_that_fails_restores_the_mode(started, kernel_log):
    _, hdd = started
    kernel_log.expect("I/O error")
    write("data", 0, 64)
    hdd.fail(op="write", status="ioerr")
    with subprocess.Popen(["larder", "volume", "detach", "data", "--flush"], stderr=subprocess.PIPE, text=True) as run:
        wait_for(lambda: run.poll() is not None or values("volume", "data", "mode") == ["writethrough"], 60, "the detach to begin")
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=60)[1]
    assert run.returncode == FAILED and "dirty" in said, said
    hdd.heal()
    assert values("volume", "data", "state", "mode") == ["running", "writeback"]
    check("data", 0, 64)


@pytest.mark.parametrize("given", [False, True], ids=["superblock", "table"])
def test_detach_of_another_mode(formatted, given):
    """The mode is the superblock's, of which the table says nothing, or the table's: it is that again, behind a refusal too."""
    mode = "writearound" if given else "writethrough"
    larder("volume", "set", "data", "mode=writethrough", "--persist")
    larder("volume", "start", "data", *(["--option", f"mode={mode}"] if given else []))
    assert ("mode" in dm.DmDevice("data").table()) == given
    cache = values("volume", "data", "cache")[0]
    with open("/dev/mapper/data", "rb"):
        refused(BUSY, ["volume", "detach", "data", "--discard-dirty", cache], "in use")
    assert values("volume", "data", "state", "mode") == ["running", mode]
    larder("volume", "stop", "data")
    larder("volume", "start", "data", *(["--option", f"mode={mode}"] if given else []))
    words = dm.DmDevice("data").table().split()
    larder("volume", "detach", "data", "--flush")
    assert dm.DmDevice("data").table().split()[5:] == words[5:]
    larder("volume", "attach", "data", "--cache", "fast")
    assert values("volume", "data", "state", "mode") == ["running", mode]
    assert dm.DmDevice("data").table().split()[5:] == words[5:]
    write("data", 0, 16)
    assert values("volume", "data", "dirty_sectors") == ["0"]
    check("data", 0, 16)


def test_add_of_one_that_was_away(make_disk, hdd, monkeypatch):
    """What lies in its log is no signature of somebody else: it needs no --wipe.  In front of the log it is one."""
    ssds = [make_disk(f"ssd{i}", model="null", mb=128, wce=1, fua=1) for i in (0, 1)]
    larder("cache", "create", "fast", "--cache", ssds[0], "--cache", ssds[1])
    larder("volume", "create", "data", "--backing", hdd, "--cache", "fast")
    larder("volume", "start", "data")
    write("data", 0, 64)
    larder("volume", "stop", "data")
    larder("cache", "stop", "fast")
    monkeypatch.setenv("LARDER_DEVICES", f"{ssds[0]}:{hdd}")
    larder("cache", "start", "fast", "--degraded")
    larder("volume", "start", "data")
    monkeypatch.delenv("LARDER_DEVICES")
    signatures.luks2_second_header(ssds[1].path, 512 << 10)
    refused(UNSAFE, ["cache", "add", "fast", ssds[1], "--yes"], "crypto_LUKS", "--wipe")
    signatures.write(ssds[1].path, 512 << 10, bytes(4096))
    signatures.luks2_second_header(ssds[1].path, 4 << 20)
    larder("cache", "add", "fast", ssds[1], "--yes")
    check("data", 0, 64)


def test_add_above_the_limit(make_disk):
    """One that has 32 TiB alone is refused before anything is written to it."""
    ssd, large = make_disk("ssd0", model="null", mb=1024), make_disk("ssd1", model="null", mb=32 << 20)
    larder("cache", "create", "fast", "--cache", ssd, "--segment-size", "16M")
    larder("cache", "start", "fast")
    refused(FAILED, ["cache", "add", "fast", large, "--yes"], large, "32 TiB")
    assert large.read(0, 2048) == bytes(2048 * 512)


@pytest.fixture
def kill_at(tmp_path):
    """larder, killed right behind the N-th change that it makes by device-mapper; what it has begun is over on return."""
    library = tmp_path / "kill_at.so"
    command.run("cc", "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).parents[2] / "command/kill_at.c")

    def run(number, *words):
        env = os.environ | {"LD_PRELOAD": str(library), "KILL_AT": str(number)}
        # whoever is left of it holds the pipe
        done = subprocess.run(["larder", *map(str, words)], env=env, capture_output=True, text=True)
        assert done.returncode in (DONE, FAILED, -signal.SIGKILL), done.stderr
        assert not any(dm.DmDevice(name).info()["suspended"] for name in dm.names()), f"killed at {number}"
        return done.returncode

    return run


def at_each_step(kill_at, *words, restore):
    """How often it was killed until it came to its end, and the exit code then."""
    for number in range(1, 20):
        code = kill_at(number, *words)
        if code != -signal.SIGKILL:
            return number - 1, code
        restore()
    raise AssertionError("it never comes to an end")


def test_killed_at_each_step(started, kill_at):
    """Nothing is left suspended, and what holds the table is the old one or the new one."""

    def attached(wanted):
        if (values("volume", "data", "state") == ["running"]) != wanted:
            larder("volume", *(("attach", "data", "--cache", "fast") if wanted else ("detach", "data", "--flush")))
        if wanted:
            larder("volume", "set", "data", "mode=writeback", "writeback=off")
        check("data", 0, 64)

    write("data", 0, 64)
    cache = values("volume", "data", "cache")[0]
    times, code = at_each_step(kill_at, "volume", "detach", "data", "--flush", restore=lambda: attached(True))
    assert times >= 3 and code == DONE
    times, code = at_each_step(kill_at, "volume", "attach", "data", "--cache", "fast", restore=lambda: attached(False))
    assert times >= 2 and code == DONE
    times, code = at_each_step(kill_at, "volume", "detach", "data", "--discard-dirty", cache, restore=lambda: attached(True))
    assert times >= 5 and code == DONE
    check("data", 0, 64)


def test_killed_while_the_old_table_comes_back(formatted, kill_at, kernel_log):
    """The new one does not resume."""
    _, hdd = formatted
    kernel_log.expect("I/O error")
    larder("volume", "start", "data")
    write("data", 0, 64)
    larder("volume", "detach", "data", "--flush")
    hdd.fail(op="write", status="ioerr")
    larder("volume", "attach", "data", "--cache", "fast", code=FAILED)
    times, code = at_each_step(kill_at, "volume", "attach", "data", "--cache", "fast", restore=lambda: check("data", 0, 64))
    assert times >= 4 and code == FAILED
    hdd.heal()
    assert values("volume", "data", "state") == ["passthrough"]
    check("data", 0, 64)
    larder("volume", "attach", "data", "--cache", "fast")
    check("data", 0, 64)


def test_flush(started):
    write("data", 0, 64)
    assert values("volume", "data", "dirty_sectors") == [str(64 * 4096)]
    larder("volume", "flush", "data", "--wait")
    assert values("volume", "data", "dirty_sectors") == ["0"]
    larder("volume", "flush", "data")
    larder("volume", "flush", "data", "--stop")
    larder("volume", "flush", "data", "--wait")


def test_attach_starts_the_cache(formatted, make_disk):
    spare = make_disk("hdd1", model="null", mb=64)
    larder("volume", "create", "alone", "--backing", spare)
    assert "without a cache" in larder("volume", "start", "alone").stdout
    assert dm.names() == ["alone"]
    write("alone", 0, 8)
    larder("volume", "attach", "alone", "--cache", "fast")
    assert values("volume", "alone", "cache_name", "state") == ["fast", "running"]
    check("alone", 0, 8)


def test_without_the_module(started):
    """What is clean is started by a linear target, by its name; its cache is stale from then on."""
    _, hdd = started
    write("data", 0, 64)
    larder("volume", "stop", "data")
    larder("cache", "stop", "fast")
    command.run("rmmod", "larder")
    try:
        refused(UNSAFE, ["volume", "start", "data", "--without-module"], hdd, "may_be_dirty", "larder rescue writeback")
        command.run("larder", "rescue", "writeback", "data", "--cache", "fast", "--yes")
        before = int(values("volume", "data", "incarnation")[0])
        assert "started as /dev/mapper/data" in larder("volume", "start", "data", "--without-module").stdout
        assert dm.DmDevice("data").table().split()[2] == "linear"
        check("data", 0, 64)
        write("data", 0, 64, salt=1)
        refused(BUSY, ["volume", "start", "data", "--without-module"], "data")
        with open("/dev/mapper/data", "rb"):
            refused(BUSY, ["volume", "stop", "data"], "data")
        larder("volume", "stop", "data")
        assert dm.names() == []
    finally:
        (module,) = [m for m in os.environ["LARDER_MODULES"].split() if m.endswith("larder.ko")]
        command.run("insmod", module)
    assert int(values("volume", "data", "incarnation")[0]) >= before
    larder("volume", "start", "data")
    check("data", 0, 64, salt=1)
    refused(UNSAFE, ["volume", "attach", "data", "--cache", "fast"], "stale")
    larder("volume", "stop", "data")
    larder("volume", "start", "data", "--cache", "fast", "--option", "stale=discard")
    check("data", 0, 64, salt=1)


def test_a_clean_volume_leaves_its_cache(started):
    larder("volume", "flush", "data", "--wait")
    write("data", 0, 64)
    larder("volume", "flush", "data", "--wait")
    larder("volume", "stop", "data")
    larder("cache", "stop", "fast")
    cache, before = values("volume", "data", "cache", "incarnation")
    assert "no cache, a new incarnation" in larder("volume", "start", "data", "--without-module", "--dry-run").stdout
    assert values("volume", "data", "cache", "incarnation") == [cache, before]
    larder("volume", "start", "data", "--without-module")
    write("data", 0, 32, salt=1)
    larder("volume", "stop", "data")
    cache, after = values("volume", "data", "cache", "incarnation")
    assert cache == "-" and int(after) > int(before)
    larder("volume", "start", "data", "--cache", "fast", "--option", "stale=discard")
    check("data", 0, 32, salt=1)
    check("data", 256, 32, salt=32)


def test_two_volumes_of_one_cache_above_one_another(formatted, make_disk, kernel_log):
    """Refused: each would wait for the other where the cache is full.  One that was made so is started, with a line."""
    _, hdd = formatted
    other = dm.DmDevice.create("other", f"0 {hdd.sectors - 4096} linear {hdd} 2048")
    larder("volume", "create", "upper", "--backing", "/dev/mapper/other", "--cache", "fast")
    other.remove()
    larder("volume", "start", "data")
    other = dm.DmDevice.create("other", f"0 {hdd.sectors - 4096} linear /dev/mapper/data 0")
    entangled = "lies on the volume data, which has the same cache"
    said = larder("volume", "start", "upper").stderr
    assert "lies on, or below, the volume data, which has the same cache" in said and "larder volume detach" in said
    larder("volume", "detach", "upper", "--flush")
    refused(UNSAFE, ["volume", "attach", "upper", "--cache", "fast"], "upper: lies on the volume data")
    larder("volume", "detach", "data", "--flush")
    larder("volume", "attach", "upper", "--cache", "fast")
    refused(UNSAFE, ["volume", "attach", "data", "--cache", "fast"], "data: lies below the volume upper")
    larder("volume", "stop", "upper")
    larder("volume", "attach", "data", "--cache", "fast")
    create = ["create", "third", "--wipe", "--cache", "fast", "--backing"]
    refused(UNSAFE, ["volume", *create, "/dev/mapper/other"], "/dev/mapper/other", entangled, "another cache")
    refused(UNSAFE, [*create, "/dev/mapper/other", "--yes"], "/dev/mapper/other", entangled, "another cache")
    # a stack that has one of its own gets that of what it lies on as little
    own = make_disk("ssd1", model="null", mb=64, wce=1, fua=1)
    larder("create", "third", "--wipe", "--cache", own, "--backing", "/dev/mapper/other", "--yes")
    larder("stop", "third")
    refused(UNSAFE, ["replace", "third", "cache", "fast"], "/dev/dm-", entangled, "another cache")
    larder("start", "third")
    larder("remove", "third", "--discard-data", stack_uuid("third"))
    other.remove()
    refused(UNSAFE, ["volume", *create, "/dev/mapper/data"], "/dev/mapper/data", entangled)


def test_cache_that_stayed_away(started):
    """Not while it may hold dirty data; then it is stale, and the cure is named."""
    ssd, _ = started
    write("data", 0, 8)
    larder("volume", "stop", "data")
    larder("cache", "stop", "fast")
    saved = ssd.read(8, 8)
    ssd.write(8, bytes(4096))
    tail = ssd.sectors // 8 * 8 - 8
    copy = ssd.read(tail, 8)
    ssd.write(tail, bytes(4096))
    refused(UNSAFE, ["volume", "start", "data"], "bring that cache back")
    refused(UNSAFE, ["volume", "start", "data", "--without-cache"], "may_be_dirty")
    ssd.write(8, saved)
    ssd.write(tail, copy)
    ssd.flush()
    larder("volume", "start", "data")
    check("data", 0, 8)


def test_stale_cache(formatted):
    """What it holds is older than the volume, which ran without it: refused as unsafe, with the option that attaches it anew."""
    larder("volume", "start", "data")
    write("data", 0, 8)
    larder("volume", "flush", "data", "--wait")
    larder("volume", "stop", "data")
    larder("cache", "stop", "fast")
    larder("volume", "start", "data", "--without-cache")
    write("data", 0, 8, salt=1)
    larder("volume", "stop", "data")
    refused(UNSAFE, ["volume", "start", "data"], "stale", "stale discard")
    assert dm.names() == ["larder-cache-fast"]
    larder("volume", "start", "data", "--option", "stale=discard")
    assert values("volume", "data", "state", "cache_name") == ["running", "fast"]
    check("data", 0, 8, salt=1)


def test_cache_holding_data_is_not_formatted(started, make_disk):
    ssd, hdd = started
    write("data", 0, 8)
    cache, volume = values("cache", "fast", "uuid")[0], values("volume", "data", "uuid")[0]
    larder("volume", "stop", "data")
    larder("cache", "stop", "fast")
    refused(UNSAFE, ["cache", "create", "new", "--cache", ssd, "--wipe", "--yes"], volume, f"--discard-dirty {cache}")
    refused(UNSAFE, ["volume", "create", "new", "--backing", hdd, "--wipe", "--yes"], f"--discard-dirty {volume}")
    larder("super", "check", ssd)
    larder("super", "check", hdd)
    larder("volume", "start", "data")
    check("data", 0, 8)
    larder("volume", "detach", "data", "--flush")
    larder("cache", "stop", "fast")
    larder("cache", "create", "new", "--cache", ssd, "--wipe", "--yes")
    larder("volume", "attach", "data", "--cache", "new")
    check("data", 0, 8)


def test_status(started):
    write("data", 0, 64)
    check("data", 0, 64)
    text = larder("volume", "status", "data").stdout
    assert re.search(r"^  mode +writeback$", text, re.M) and re.search(r"^  cached .*, of it dirty 256.00KiB$", text, re.M)
    text = larder("cache", "status", "fast").stdout
    assert re.search(r"^  state +running$", text, re.M) and re.search(r"of it dirty 256.00KiB, of 1 volumes$", text, re.M)
    line = dm.DmDevice("data").status_line().split()[3:]
    shown = larder("volume", "status", "data", "--all").stdout.split("\n", 1)[1].split()
    assert [word.split("=")[0] for word in shown] == [word.split("=")[0] for word in line]


@pytest.mark.parametrize("noun, name", [("cache", "fast"), ("volume", "data")])
def test_every_status_key_is_a_field(started, noun, name):
    mapped = {"fast": "larder-cache-fast", "data": "data"}[name]
    keys = {word.split("=")[0] for word in dm.DmDevice(mapped).status_line().split()[3:]}
    fields = {line.split()[0] for line in larder(noun, "list", "-o", "help").stdout.splitlines()}
    assert keys <= fields, keys - fields


def test_metrics(started, tmp_path):
    """Every number of the kernel's status, as a strict parser of OpenMetrics reads it."""
    write("data", 0, 64)
    file = tmp_path / "larder.prom"
    before = {name: dm.DmDevice(name).status() for name in dm.names()}
    larder("metrics", "--output", file)
    after = {name: dm.DmDevice(name).status() for name in dm.names()}
    samples = {}
    for family in text_string_to_metric_families(file.read_text()):
        for sample in family.samples:
            samples[(sample.name.removesuffix("_total"), sample.labels.get("volume") or sample.labels["cache"])] = sample.value
    compared = 0
    for name, noun, shown in (("larder-cache-fast", "cache", "fast"), ("data", "volume", "data")):
        for key, value in before[name].items():
            number = samples.get((f"larder_{noun}_{re.sub('_sectors$', '_bytes', key)}", shown))
            if isinstance(value, int) and number is not None and value == after[name][key]:
                assert number == value * (512 if key.endswith("_sectors") else 1), key
                compared += 1
    assert compared > 80
    assert samples["larder_volume_dirty_bytes", "data"] == 64 * 4096


def test_events(started):
    """Told by the kernel's events alone: the interval is longer than any test."""
    write("data", 0, 64)
    dm.DmDevice("larder-cache-fast").suspend()
    words = ["larder", "events", "--follow", "--interval", "86400"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:

            def told(pattern):
                row = process.stdout.readline().split(" ", 1)[1]
                assert re.fullmatch(pattern + r"\n", row), row

            told(r"wrong cache fast: state: it is suspended.*dmsetup resume larder-cache-fast")
            dm.DmDevice("larder-cache-fast").resume()
            told(r"state cache fast: running, was suspended")
            larder("volume", "flush", "data", "--wait")
            told(r"flushed volume data: nothing is dirty any more")
            larder("volume", "stop", "data")
            told(r"stopped volume data: .*")
            larder("cache", "stop", "fast")
            told(r"stopped cache fast: .*")
            larder("cache", "start", "fast")
            told(r"started cache fast: as /dev/mapper/larder-cache-fast")
        finally:
            process.kill()


def test_doctor(formatted):
    """Of what does not run: an SSD that is missing, a start that did not end."""
    ssd, _ = formatted
    # the socket of an udevd that has ended: as long as it lies there, devices that udev has not dealt with are left alone
    Path("/run/udev/control").unlink(missing_ok=True)

    def assembly():
        text = command.run("larder", "doctor", "-o", "check,subject,text", "--noheadings", check=False).stdout
        return [row for row in text.splitlines() if row.startswith("assembly ")]

    larder("volume", "start", "data")
    larder("volume", "stop", "data")
    larder("cache", "stop", "fast")
    assert assembly() == [], "all of it could be started"
    larder("super", "wipe", ssd, "--yes", "--discard-dirty", *values("cache", "fast", "uuid"))
    (row,) = assembly()
    assert re.fullmatch(r"assembly +data +its cache is missing.*larder assemble --all --degraded *", row), row
    command.run("dmsetup", "create", "half", "--notable", "--uuid", "LARDER-00000000-0000-0000-0000-000000000001")
    assert [row for row in assembly() if " half " in row and "dmsetup remove half" in row]
    command.run("dmsetup", "remove", "half")


# ---------------------------------------------------------------- dry runs, progress, locks, udev


def test_dry_runs_are_what_dmsetup_takes(started):
    """Each verb that changes a device prints commands, changes nothing, and the commands do what the verb does."""

    def table():
        return {name: dm.DmDevice(name).table() for name in dm.names()}

    def dry(*words):
        before = table()
        said = larder(*words, "--dry-run").stdout
        assert table() == before, f"{words} has changed something"
        assert said and all(line.startswith("dmsetup ") for line in said.splitlines()), said
        return lambda: [subprocess.run(line, shell=True, check=True) for line in said.splitlines()]

    dry("volume", "set", "data", "fill=off", "writeback_depth=3")()
    assert values("volume", "data", "fill", "writeback_depth") == ["off", "3"]
    dry("cache", "set", "fast", "gather=7")()
    assert values("cache", "fast", "gather") == ["7"]
    write("data", 0, 64)
    refused(UNSAFE, ["volume", "detach", "data", "--dry-run"], "--flush")
    flush = dry("volume", "flush", "data")
    assert values("volume", "data", "dirty_sectors") == [str(64 * 4096)]
    flush()
    wait_for(lambda: values("volume", "data", "dirty_sectors") == ["0"], 60, "the flush")
    dry("volume", "detach", "data", "--flush")()
    assert values("volume", "data", "state") == ["passthrough"]
    dry("volume", "attach", "data", "--cache", "fast")()
    assert values("volume", "data", "state", "cache_name") == ["running", "fast"]
    check("data", 0, 64)
    dry("volume", "stop", "data")()
    dry("cache", "stop", "fast")()
    assert dm.names() == []
    dry_start = larder("cache", "start", "fast", "--dry-run").stdout
    subprocess.run(dry_start, shell=True, check=True)
    assert values("cache", "fast", "state") == ["running"]


def test_progress_of_a_flush(started):
    """On a terminal, on one line; elsewhere nothing."""
    write("data", 0, 256)
    larder("volume", "set", "data", "writeback_rate_max=512", "writeback_rate_min=512")
    ours, its = pty.openpty()
    with subprocess.Popen(["larder", "volume", "flush", "data", "--wait"], stderr=its) as run:
        os.close(its)
        seen = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # it has ended
                break
            if not part:
                break
            seen += part
    os.close(ours)
    assert run.returncode == DONE, seen
    lines = [x for x in seen.decode().replace("\r", "\n").split("\n") if x.strip()]
    assert lines and all(re.match(r"data: [\d.]+\w+ dirty, \d+ % done, [\d.]+\w+/s", x) for x in lines), lines
    assert " 0.00B dirty, 100 % done" in lines[-1] or " 0B dirty, 100 % done" in lines[-1], lines
    write("data", 0, 8)
    assert larder("volume", "flush", "data", "--wait").stderr == ""


def test_lock_of_the_whole_disk(tmp_path):
    """Held by another, as udev holds it while it probes: a partition of the disk is not written either."""
    image = tmp_path / "disk"
    with open(image, "wb") as f:
        f.truncate(64 * MIB)
    command.run("sgdisk", "--clear", "--new=1:2048:0", image)
    command.run("modprobe", "loop")
    whole = command.output("losetup", "--find", "--show", "--partscan", image).strip()
    try:
        part = Path(f"{whole}p1")
        wait_for(part.is_block_device, 10, str(part))
        with open(whole, "rb") as disk:
            fcntl.flock(disk, fcntl.LOCK_EX)
            refused(BUSY, ["volume", "create", "data", "--backing", part], part, "lock the whole disk")
        assert not BlockDevice(part).read(0, 4096).strip(b"\0")
        larder("volume", "create", "data", "--backing", part)
        larder("super", "check", part)
    finally:
        command.run("losetup", "--detach", whole)


def test_loop_device_holds_its_disk(disks):
    """A filesystem behind a superblock may be mounted so; the kernel makes no holder of it."""
    _, hdd = disks
    larder("volume", "create", "data", "--backing", hdd)
    command.run("modprobe", "loop")
    loop = command.output("losetup", "--find", "--show", "--offset", 1 << 20, hdd).strip()
    try:
        refused(BUSY, ["super", "wipe", hdd, "--yes"], hdd, f"held by {loop}")
        refused(BUSY, ["volume", "create", "other", "--backing", hdd, "--wipe"], hdd, f"held by {loop}")
    finally:
        command.run("losetup", "--detach", loop)
    larder("super", "wipe", hdd, "--yes")


def test_ssds_of_one_disk(tmp_path):
    """Not held up by our own lock of that disk, nor taken for another program's: two copies on it would be lost together."""
    with disk_in_two(tmp_path, 64) as (whole, parts):
        for ssds in (parts, [parts[0], whole]):
            given = [word for ssd in ssds for word in ("--cache", ssd)]
            refused(USAGE, ["cache", "create", "fast", *given], *ssds, "are parts of one disk")
            refused(USAGE, ["cache", "create", "fast", *given, "--dry-run"], *ssds, "are parts of one disk")
        above = dm.DmDevice.create("above", f"0 {BlockDevice(parts[0]).sectors} linear {parts[0]} 0")
        refused(USAGE, ["cache", "create", "fast", "--cache", above, "--cache", parts[1]], above, parts[1], "are parts of one disk")
        above.remove()
        for part in parts:
            assert not BlockDevice(part).read(0, 4096).strip(b"\0")


def test_disks_of_one_disk(disks, tmp_path):
    """Of an array with redundancy, and its spare; two volumes, or stripes, may be."""
    ssd, hdd = disks
    with disk_in_two(tmp_path, 64) as (whole, parts):
        given = [word for part in parts for word in ("--backing", part)]
        made = ["create", "data", "--cache", ssd, "--dry-run"]
        for words in ([*given, "--raid", "1"], ["--backing", hdd, *given, "--raid", "5"]):
            refused(USAGE, [*made, *words], *parts, "are parts of one disk", "give another disk")
        spare = ["--backing", hdd, *given[:2], "--raid", "1", "--spare", parts[1]]
        refused(USAGE, [*made, *spare], *parts, "are parts of one disk", "give another disk")
        refused(USAGE, [*made, "--backing", parts[0], "--backing", whole, "--raid", "1"], whole, parts[0])
        for words in ([*given, "--raid", "0"], [*given, "--separate"]):
            larder(*made, *words)


def test_ssd_of_a_disk_that_is_in_the_set(disks, make_disk, tmp_path):
    """Neither as a member, nor as a spare, nor as one of a cache that is made; in the place of one that has left, it is."""
    ssd, hdd = disks
    with disk_in_two(tmp_path, 128) as (_, parts):
        made = ["create", "data", "--backing", hdd, "--cache", ssd, "--cache", parts[0], "--cache-spare", parts[1], "--dry-run"]
        refused(USAGE, made, *parts, "are parts of one disk")
        larder("cache", "create", "fast", "--cache", ssd, "--cache", parts[0])
        larder("cache", "start", "fast")
        for more in ([], ["--spare"], ["--new-place"]):
            for words in (["cache", "add", "fast", parts[1], *more], ["cache", "add", "fast", parts[1], *more, "--dry-run"]):
                refused(USAGE, words, *parts, "are parts of one disk", "give another SSD")
        assert not BlockDevice(parts[1]).read(0, 4096).strip(b"\0")
        larder("cache", "remove", "fast", parts[0])
        larder("cache", "add", "fast", parts[0], "--spare")
        for more in (["--spare"], ["--spare", "--dry-run"], [], ["--new-place"]):
            refused(USAGE, ["cache", "add", "fast", parts[1], *more], *parts, "are parts of one disk", "give another SSD")
        assert not BlockDevice(parts[1]).read(0, 4096).strip(b"\0")
        assert "already" in larder("cache", "add", "fast", parts[0], "--spare").stdout
        larder("super", "wipe", parts[0], "--yes")
        larder("cache", "add", "fast", parts[1])
        other = make_disk("ssd1", model="null", mb=128, wce=1, fua=1)
        larder("cache", "add", "fast", other)
        larder("cache", "remove", "fast", ssd)
        refused(USAGE, ["cache", "replace", "fast", "0", parts[0]], *parts, "are parts of one disk")
        larder("cache", "stop", "fast")


@pytest.fixture
def udevd():
    """Running, with the rules of this system; libdevmapper is told to believe in it."""
    daemon = subprocess.Popen(["/lib/systemd/systemd-udevd"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    disabled = os.environ.pop("DM_DISABLE_UDEV", None)
    try:
        # the socket of one that has ended may lie there; and an event before it listens would be lost, with its cookie
        wait_for(lambda: command.run("udevadm", "control", "--ping", check=False).returncode == 0, 60, "udevd")
        yield
        command.run("udevadm", "settle", "-t", "30", check=False)
    finally:
        command.run("udevadm", "control", "--exit", check=False)
        daemon.wait(timeout=60)
        if disabled:
            os.environ["DM_DISABLE_UDEV"] = disabled


def test_udev_has_done_its_work(formatted, udevd):
    """When the command ends the node that udev makes is there, or gone, and no cookie is left."""

    def cookies():
        return [x for x in command.output("dmsetup", "udevcookies").splitlines() if x.startswith("0x")]

    larder("volume", "start", "data")
    node = Path("/dev/mapper/data")
    assert node.is_symlink(), "made by udev, not by libdevmapper"
    assert "E:DM_NAME=data" in command.output("udevadm", "info", "--query=all", f"--name={node}").replace("E: ", "E:")
    assert not cookies()
    larder("volume", "detach", "data", "--flush")
    larder("volume", "attach", "data", "--cache", "fast")
    assert not cookies() and node.is_symlink()
    larder("volume", "stop", "data")
    assert not node.exists() and not cookies()
    larder("cache", "stop", "fast")
    assert not cookies() and dm.names() == []
