# SPDX-License-Identifier: GPL-2.0-or-later
"""Random operations against the oracle, with all that can be switched being switched: as `stress`, but fewer."""

import os

import pytest
from lib.stress import stress

OPS = int(os.environ.get("LARDER_RANDOM_OPS", "200000"))


@pytest.mark.limit(2400)
def test_random_operations(make_disk, make_oracle):
    stress(make_disk, make_oracle, OPS)
