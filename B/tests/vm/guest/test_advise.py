# SPDX-License-Identifier: GPL-2.0-or-later
"""`larder advise` on live devices: its curve against the exact one of what the disk was asked for; what it leaves in tracefs."""

import json
import mmap
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lib import command, dm, lru, simdisk
from lib.larder import Stack, wait_for

pytestmark = pytest.mark.limit(600)

INSTANCES = Path("/sys/kernel/tracing/instances")
EVENT = "events/block/block_bio_queue"
FIELDS = "size,hit_percent,error_percent,overwrite_percent,reads,writes,lost"
LOAD = {"ops": 3000, "qd": 1, "mix": "read=60,write=40", "sizes": "4k:60,32k:40"}


def left() -> list[str]:
    return [p.name for p in INSTANCES.iterdir() if p.name.startswith("larder-")]


class Advise:
    """Traces from when it is made on."""

    def __init__(self, *words: object):
        options = ("--reportformat", "json", "--units", "b", "--nosuffix", "-o", FIELDS)
        pipe = subprocess.PIPE
        argv = ["larder", "advise", *map(str, words), *options]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        self.instance = INSTANCES / f"larder-{self.process.pid}"
        wait_for(self.begun, 60, "the trace")

    def begun(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        enable = self.instance / EVENT / "enable"
        return enable.exists() and enable.read_text().strip() == "1"

    def end(self, number: int = signal.SIGINT) -> list[dict[str, float]]:
        """The rows."""
        self.process.send_signal(number)
        out, self.said = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, self.said
        assert self.process.pid not in [int(n.split("-")[1]) for n in left()]
        return [{k: float(v or 0) for k, v in row.items()} for row in json.loads(out)["advise"]]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert left() == []


@pytest.fixture
def advise() -> Iterator[Callable[..., Advise]]:
    made = []

    def make(*words: object) -> Advise:
        made.append(Advise(*words))
        return made[-1]

    yield make
    for a in made:
        if a.process.poll() is None:
            a.process.terminate()
            a.process.communicate(timeout=120)


def requests(trace: simdisk.Trace, disk: simdisk.Simdisk) -> list[lru.Request]:
    kind = {"read": "R", "write": "W"}
    return [(0, kind[c.op], c.sector, c.sectors) for c in trace.commands(disk) if c.op in kind]


def compare(rows: list[dict[str, float]], seen: list[lru.Request]) -> None:
    """Few enough blocks that all are followed: equal, but for the digits printed."""
    assert rows[0]["reads"] + rows[0]["writes"] == len(seen) and rows[0]["lost"] == 0
    for row in rows:
        assert row["error_percent"] == 0
        reads, writes = lru.served(seen, int(row["size"]) // 4096)
        assert row["hit_percent"] == pytest.approx(reads, abs=0.051), row
        assert row["overwrite_percent"] == pytest.approx(writes, abs=0.051), row
    assert rows[0]["hit_percent"] < rows[-1]["hit_percent"] - 10, "a curve that says nothing"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_curve_of_a_load(ssd, hdd, make_oracle, advise, number):
    """What another disk is asked for meanwhile is not in it; a write as well as a read makes a block known."""
    load, other = make_oracle(hdd, size="16m"), make_oracle(ssd, size="16m")
    a = advise(hdd)
    with simdisk.Trace(1 << 18) as trace:
        other.run(**LOAD | {"ops": 300})
        load.run(**LOAD)
        seen = requests(trace, hdd)
    compare(a.end(number), seen)


def test_two_devices_and_a_volume(make_disk, make_oracle, advise):
    """The same load gives the same curve on a disk, on a dm device and on a volume of larder; on two devices it is that of both."""
    s = Stack(make_disk("ssd0", mb=128, wce=1, fua=1), make_disk("hdd0", mb=64, wce=1))
    plain = make_disk("hdd1", mb=64, wce=1)
    linear = dm.DmDevice.create("part", f"0 {32 << 11} linear {make_disk('hdd2', mb=64, wce=1)} 8")
    rows = []
    for device in (plain, linear, s.volume):
        a = advise(device)
        # a run at depth 1 is a function of the seed
        make_oracle(device, seed=7, size="16m").run(**LOAD)
        rows.append(a.end())
    assert rows[0] == rows[1] == rows[2] and rows[0][0]["reads"] > 1000
    a = advise(plain, linear)
    with simdisk.Trace(1 << 18) as trace:
        for device in (plain, linear):
            make_oracle(device, unknown=True, size="8m").run(**LOAD)
        # the linear device begins 8 sectors behind its disk: blocks are those of the device
        kind = {"read": "R", "write": "W"}
        commands = [c for c in trace.commands() if c.op in kind and c.disk in ("hdd1", "hdd2")]
        seen = [(c.disk, kind[c.op], c.sector - (8 if c.disk == "hdd2" else 0), c.sectors) for c in commands]
    compare(a.end(), seen)
    s.stop()


def test_partitions(tmp_path, advise):
    """Requests to a partition are traced as those of its disk: only its own count, and its blocks begin where it does."""
    command.run("modprobe", "loop")
    image = tmp_path / "disk"
    with open(image, "wb") as f:
        f.truncate(64 << 20)
    # the first one begins in the middle of a block of the disk
    command.run("sgdisk", "--clear", "--set-alignment=1", "--new=1:2049:+16M", "--new=2:65536:0", image)
    loop = command.output("losetup", "-P", "-f", "--show", image).strip()
    try:
        wait_for(lambda: Path(f"{loop}p2").exists(), 30, "partitions")
        one, other = (os.open(f"{loop}p{i}", os.O_RDWR | os.O_DIRECT) for i in (1, 2))
        page = mmap.mmap(-1, 4096)
        r = random.Random(1)
        seen = []
        a = advise(f"{loop}p1")
        for _ in range(1000):
            block = int(1500 * r.random() ** 2)
            seen.append((0, r.choice("RW"), 8 * block, 8))
            (os.preadv if seen[-1][1] == "R" else os.pwritev)(one, [page], 4096 * block)
            os.pwritev(other, [page], 4096 * block)
        rows = a.end()
        os.close(one)
        os.close(other)
        compare(rows, seen)
        above = dm.DmDevice.create("above", f"0 2048 linear {loop}p1 0")  # as LVM on a partition is
        for words in ((loop, f"{loop}p2"), (f"{loop}p1", loop), (loop, loop), (above, loop), (loop, above), (f"{loop}p1", above)):
            run = command.run("larder", "advise", *words, check=False)
            assert run.returncode == 2 and "would count twice" in run.stderr
        run = command.run("larder", "advise", "--for", "1s", f"{loop}p2", above, check=False)
        assert "twice" not in run.stderr, run.stderr
        above.remove()
    finally:
        command.run("losetup", "-d", loop)


def test_device_below_another(hdd):
    linear = dm.DmDevice.create("above", f"0 2048 linear {hdd} 0")
    run = command.run("larder", "advise", linear, hdd, check=False)
    assert run.returncode == 2 and "would count twice" in run.stderr


def test_lost_requests_are_counted(hdd, make_oracle, advise):
    """It is stopped while its ring, made small, runs over."""
    load = make_oracle(hdd, size="16m")
    a = advise(hdd)
    a.process.send_signal(signal.SIGSTOP)
    (a.instance / "buffer_size_kb").write_text("16")
    with simdisk.Trace(1 << 18) as trace:
        load.run(**LOAD)
        seen = len(requests(trace, hdd))
    a.process.send_signal(signal.SIGCONT)
    rows = a.end()
    lost = rows[0]["lost"]
    assert lost > 500 and rows[0]["reads"] + rows[0]["writes"] + lost == seen
    assert f"{lost:.0f} requests are missing" in a.said


def test_killed(hdd, make_oracle, advise):
    """What it leaves goes on to trace until the next run removes it; one that lives is left alone."""
    alive, killed = advise(hdd), advise(hdd)
    killed.process.kill()
    killed.process.communicate()
    assert killed.instance.exists()
    after = advise(hdd)
    assert not killed.instance.exists() and alive.instance.exists()
    make_oracle(hdd, size="16m").run(**LOAD)
    rows = after.end()
    assert rows == alive.end() and rows[0]["reads"] + rows[0]["writes"] == LOAD["ops"]


def test_nothing_to_see(hdd, advise):
    """--for ends by itself."""
    run = command.run("larder", "advise", hdd, "--for", "1s", check=False)
    assert run.returncode == 1 and "no request was seen" in run.stderr and str(hdd) in run.stderr
