# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults that a checker of the debug kernel reports, each of which must fail its test: host/test_checkers.py runs these."""

from pathlib import Path

import pytest

DO = Path("/sys/module/faulty/parameters/do")


@pytest.mark.parametrize("fault", ["circle", "leak", "shift", "overflow"])  # behind a report of KASAN lockdep looks no more
def test_planted(kernel_log, fault):
    kernel_log.expect("")  # which excuses none of them
    DO.write_text(fault)
