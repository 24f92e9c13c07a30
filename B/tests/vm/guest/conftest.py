# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of tests inside the VM; each test gets fresh disks, a time limit, and a clean kernel log to leave behind."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lib import above, command, dealt, dm, outcome, simdisk, watchdog
from lib.kernel_log import KernelLog, begin_test
from lib.oracle import Oracle

RESULTS = Path(os.environ.get("LARDER_RESULTS", "/tmp"))
LIMIT = 300  # seconds for one test; @pytest.mark.limit(SECONDS) for another
FACTOR = float(os.environ.get("LARDER_LIMIT_FACTOR", "1"))  # a debug kernel is slow


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): time limit of this test")
    config.addinivalue_line("markers", "core: of those of its suite that make check has time for")
    # what a thread of a test raises fails that test: there is nobody else to see it
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnhandledThreadExceptionWarning")
    config.pluginmanager.register(outcome.Recorder(RESULTS), "outcome-recorder")
    config.pluginmanager.register(dealt.Dealer())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    mark = item.get_closest_marker("limit")
    (RESULTS / "running").write_text(item.nodeid)
    begin_test(item.nodeid)
    with watchdog.Watchdog(item.nodeid, (mark.args[0] if mark else LIMIT) * FACTOR, RESULTS):
        yield


@pytest.fixture(autouse=True)
def kernel_log() -> Iterator[KernelLog]:
    """The kernel log since the test began.  A bad line (WARN, BUG...) fails the test, unless kernel_log.expect() was told."""
    log = KernelLog()
    yield log
    bad = log.bad()
    if log.excused:
        with open(RESULTS / "excused", "a") as f:
            f.write("\n".join(log.excused) + "\n")
    text = "kernel log:\n" + "\n".join(log.lines()[-200:])
    log.close()
    assert not bad, text


_reported: set[Path] = set()  # of sanitizers, that tests have failed for


@pytest.fixture(autouse=True)
def sanitizers() -> Iterator[None]:
    """What a program built with ASan and UBSan (tests/vm/run --sanitize) reports fails the test beside which it came, whatever
    that expected of its exit status."""
    yield
    reports = [r for r in sorted(RESULTS.glob("sanitizer.*")) if r not in _reported]
    _reported.update(reports)
    assert not reports, "\n".join(r.read_text(errors="replace")[:4000] for r in reports)


_stuck: set[str] = set()  # left by earlier tests, which have failed for it


@pytest.fixture(autouse=True)
def clean_devices(kernel_log: KernelLog) -> Iterator[None]:
    """What a test leaves: unmounted, dm devices removed, disks powered, healed and removed.  What does not go fails the test."""
    yield
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        device, point = line.split()[:2]
        if device.startswith("/dev/mapper/") or device.removeprefix("/dev/") in [d.name for d in simdisk.all_disks()]:
            command.run("umount", "-l", point, check=False)
    for d in simdisk.all_disks():
        d.heal()
    if simdisk.all_disks():
        simdisk.power_up()
    left = dm.remove_all()
    for d in simdisk.all_disks():
        try:
            d.remove(seconds=3)
        except OSError:
            left.append(d.name)
            d.remove(force=True)
    simdisk.control("trace size=0")
    new = set(left) - _stuck
    _stuck.update(left)
    assert not new, f"devices that could not be removed: {sorted(new)}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of this test in this run: from --seed and the test's name."""
    return random.Random(f"{os.environ.get('LARDER_SEED', '1')} {request.node.nodeid}").randrange(1, 1 << 31)


@pytest.fixture
def make_disk(clean_devices: None) -> Callable[..., simdisk.Simdisk]:
    """make_disk("ssd0", model="nvme", mb=256, ...) -> Simdisk; removed after the test."""
    return simdisk.Simdisk.create


@pytest.fixture
def ssd(make_disk: Callable[..., simdisk.Simdisk]) -> simdisk.Simdisk:
    """128 MiB, fast (no model of time), a volatile cache, FUA, discards that zero."""
    return make_disk("ssd0", model="null", mb=128, wce=1, fua=1, discard="zero", write_zeroes=1)


@pytest.fixture
def hdd(make_disk: Callable[..., simdisk.Simdisk]) -> simdisk.Simdisk:
    """512 MiB, fast (no model of time), a volatile cache, no FUA, no discards."""
    return make_disk("hdd0", model="null", mb=512, wce=1, write_zeroes=1)


@pytest.fixture
def disks(ssd: simdisk.Simdisk, hdd: simdisk.Simdisk) -> tuple[simdisk.Simdisk, simdisk.Simdisk]:
    return ssd, hdd


@pytest.fixture
def trace() -> Iterator[simdisk.Trace]:
    with simdisk.Trace() as t:
        yield t


@pytest.fixture
def make_oracle(tmp_path: Path, seed: int, clean_devices: None) -> Callable[..., Oracle]:
    """make_oracle(device, size="64m") -> Oracle, its state in the test's own directory."""
    count = 0

    def make(device: object, **options: object) -> Oracle:
        nonlocal count
        count += 1
        return Oracle(device, **({"seed": seed + count, "state": tmp_path / f"oracle-{count}.state"} | options))

    return make


@pytest.fixture
def make_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_devices: None) -> Callable[..., above.Above]:
    """make_layer(kind, device) -> Above, on the device."""
    above.configure_lvm(tmp_path, monkeypatch)
    return lambda kind, device: above.Above(kind, device, tmp_path / "key-of-above")


@pytest.fixture
def key(tmp_path):
    """Of LUKS: the path of a file."""
    path = tmp_path / "key"
    path.write_bytes(os.urandom(64))
    return path
