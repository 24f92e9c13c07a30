# SPDX-License-Identifier: GPL-2.0-or-later
"""A random workload with one random fault each; LARDER_FAULT_SEEDS=FIRST:COUNT says which (`make faults`)."""

import os

import pytest
from lib.fault_runs import run_fault

FIRST, COUNT = map(int, os.environ.get("LARDER_FAULT_SEEDS", "0:9").split(":"))


@pytest.mark.parametrize("number", range(FIRST, FIRST + COUNT))
def test_run(make_disk, make_oracle, kernel_log, number):
    run_fault(make_disk, make_oracle, kernel_log, number)
