# SPDX-License-Identifier: GPL-2.0-or-later
"""A suite that shares its VM with one that is wrong on purpose: host/test_harness.py."""

from pathlib import Path


def test_good_too():
    """In a VM of its own, if the other suite has ended the first one."""
    assert Path("/proc/sys/kernel/panic").read_text() != "-1\n"
