# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that must fail, each for its own reason: host/test_harness.py runs them and looks at what is reported."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from lib import command, dm, simdisk


def test_good():
    print("said by a good test")


def test_wrong():
    assert 2 + 2 == 5


def test_warning_in_the_log():
    Path("/dev/kmsg").write_text("WARNING: CPU: 0 PID: 1 at nowhere\n")


def test_warning_that_was_expected(kernel_log):
    kernel_log.expect("at somewhere")
    Path("/dev/kmsg").write_text("WARNING: CPU: 0 PID: 1 at somewhere\n")


def test_error_in_a_thread():
    thread = threading.Thread(target=int, args=("no number",))
    thread.start()
    thread.join()


def test_reads_what_was_freed():
    command.run("reads_what_was_freed", check=False)


@pytest.mark.limit(3)
def test_slow():
    time.sleep(1000)


def test_leaves_a_held_device(ssd):
    dm.DmDevice.create("held", f"0 2048 linear {ssd} 0")
    globals()["holder"] = open("/dev/mapper/held", "rb")  # noqa: SIM115


def test_after_that():
    assert simdisk.all_disks() == [] and dm.names() == ["held"]


@pytest.mark.limit(3)
def test_hung_in_the_kernel(ssd):
    ssd.fail(op="read", status="ok", delay_ms=10_000_000)
    ssd.read(0, 8)


@pytest.mark.limit(3)
def test_frozen():
    """With its watchdog, as by a kernel that lets nobody run."""
    os.kill(os.getpid(), signal.SIGSTOP)


def test_crash():
    Path("/proc/sys/kernel/panic").write_text("-1")
    Path("/proc/sysrq-trigger").write_text("c")
    time.sleep(1000)
