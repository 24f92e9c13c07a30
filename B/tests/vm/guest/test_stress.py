# SPDX-License-Identifier: GPL-2.0-or-later
"""A million random operations (LARDER_STRESS_OPS: another number) against the oracle; `make stress`."""

import os

import pytest
from lib.stress import stress

OPS = int(os.environ.get("LARDER_STRESS_OPS", "1000000"))


@pytest.mark.limit(86400)
def test_stress(make_disk, make_oracle):
    stress(make_disk, make_oracle, OPS)
