# SPDX-License-Identifier: GPL-2.0-or-later
"""A random workload with one random fault each; LARDER_FAULT_SEEDS=FIRST:COUNT says which (`make faults`).  Without it one of each
kind, half of the kinds on 6.1, the other half elsewhere: a check has no time for all on both kernels."""

import os

import pytest
from lib.fault_runs import KINDS, run_fault

HALF = len(KINDS) // 2
SEEDS = f"{HALF}:{len(KINDS) - HALF}" if os.uname().release.startswith("6.1.") else f"0:{HALF}"
FIRST, COUNT = map(int, os.environ.get("LARDER_FAULT_SEEDS", SEEDS).split(":"))


@pytest.mark.parametrize("number", range(FIRST, FIRST + COUNT))
def test_run(make_disk, make_oracle, kernel_log, number):
    run_fault(make_disk, make_oracle, kernel_log, number)
