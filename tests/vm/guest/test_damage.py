# SPDX-License-Identifier: GPL-2.0-or-later
"""Damaged images, each started, read, written back, reclaimed, stopped (lib/damage_runs.py); LARDER_DAMAGE_SEEDS=FIRST:COUNT says
which (`make damage`).  Their disks stay from one test to the next, and get their content back."""

import os

import pytest
from lib import dm, simdisk
from lib.block import SECTOR
from lib.damage_runs import Rigs, Run, Wrong, run_damage

FIRST, COUNT = map(int, os.environ.get("LARDER_DAMAGE_SEEDS", "0:65").split(":"))
SEEDS = range(FIRST, FIRST + COUNT)
DEEP = 1 if "LARDER_DAMAGE_SEEDS" in os.environ else 3  # a check has no time for all of them


@pytest.fixture(scope="module")
def rigs():
    rigs = Rigs(simdisk.Simdisk.create, SEEDS)
    yield rigs
    rigs.remove()


@pytest.fixture(autouse=True)
def clean_devices(kernel_log):
    yield
    left = dm.remove_all()
    assert not left, f"devices that could not be removed: {left}"


@pytest.mark.limit(200)
@pytest.mark.parametrize("number", SEEDS)
def test_run(rigs, kernel_log, number):
    run_damage(rigs, kernel_log, number, DEEP)


def test_wrong_data_is_noticed(rigs, kernel_log):
    """Without checksums nobody knows what is damaged, but the judge."""
    run = Run(*rigs.of(FIRST), kernel_log, FIRST)
    damage, content = run.damage, run.base.content
    damage.clear()
    known = {content[at : at + SECTOR] for at in range(0, len(content), SECTOR)} - {bytes(SECTOR)}
    for d in damage.atlas.ssds:
        first, size, number = damage.atlas.segments[d]
        for at in range(first, first + size * number, SECTOR):
            if bytes(damage.read(d, at, SECTOR)) in known:
                damage.write(d, at + 100, bytes([damage.read(d, at + 100, 1)[0] ^ 1]))
    assert damage.pages
    run.options["verify"] = "none"
    with pytest.raises(Wrong, match="oracle verify: status 1"):
        run.go()
