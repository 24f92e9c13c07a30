# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything at once, for LARDER_SOAK_MINUTES of the guest's time, or LARDER_SOAK_WORLDS of LARDER_SOAK_ROUNDS; `make soak`."""

import os

import pytest
from conftest import RESULTS
from lib import soak

MINUTES = float(os.environ.get("LARDER_SOAK_MINUTES", "1"))
WORLDS = int(os.environ.get("LARDER_SOAK_WORLDS", "0"))
ROUNDS = int(os.environ.get("LARDER_SOAK_ROUNDS", soak.ROUNDS))
SEED = os.environ.get("LARDER_SOAK_SEED")


@pytest.mark.limit(1800 + 120 * MINUTES + 3600 * WORLDS)
def test_soak(make_disk, make_oracle, kernel_log, seed):
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|lost async page write")
    figures = soak.soak(make_disk, make_oracle, int(SEED) if SEED else seed, MINUTES, RESULTS, WORLDS, ROUNDS)
    print(figures.line())
