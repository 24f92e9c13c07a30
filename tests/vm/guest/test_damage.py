# SPDX-License-Identifier: GPL-2.0-or-later
"""Damaged images, each started, read, written back, reclaimed, stopped (lib/damage_runs.py); LARDER_DAMAGE_SEEDS=FIRST:COUNT says
which (`make damage`).  Their disks stay from one test to the next, and get their content back."""

import os

import pytest
from lib import dm, simdisk
from lib.block import SECTOR
from lib.damage_edits import PAGE
from lib.damage_runs import Rigs, Run, Wrong, run_damage

FIRST, COUNT = map(int, os.environ.get("LARDER_DAMAGE_SEEDS", "0:65").split(":"))
SEEDS = range(FIRST, FIRST + COUNT)
DEEP = 1 if "LARDER_DAMAGE_SEEDS" in os.environ else 5  # a check has no time for all of them


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


@pytest.fixture
def run(rigs, kernel_log):
    """Of one SSD, not damaged yet."""
    if "one" not in rigs.made:
        pytest.skip("no seed given needs it")
    run = Run(*rigs.made["one"], kernel_log, 0)
    run.damage.clear()
    return run


def flushed(run: Run, data: bytes) -> list[int]:
    """Where in that data sectors stand that somebody has flushed."""
    content = run.base.content
    known = {content[at : at + SECTOR] for at in range(0, len(content), SECTOR)} - {bytes(SECTOR)}
    return [at for at in range(0, len(data), SECTOR) if data[at : at + SECTOR] in known]


def test_wrong_data_is_noticed(run):
    """Without checksums nobody knows what is damaged, but the judge."""
    first, size, number = run.damage.atlas.segments[0]
    data = bytes(run.damage.read(0, first, size * number))
    for at in flushed(run, data):
        run.damage.write(0, first + at, bytes([data[at] ^ 1]))
    assert run.damage.pages
    run.options["verify"] = "none"
    with pytest.raises(Wrong, match="oracle verify: status 1"):
        run.go()


def test_exchanged_segments(run):
    """Two that the log in front of the newest checkpoint filled: their commit blocks say where they belong."""
    damage, (first, size, number) = run.damage, run.damage.atlas.segments[0]
    live = {at for s in damage.atlas.structures if s.live and s.kind != "larder_summary" for _, at in s.places}
    found = [at for at in range(first, first + size * number, size) if not live & set(range(at, at + size, PAGE))]
    one, other, *_ = sorted(found, key=lambda at: -len(flushed(run, bytes(damage.read(0, at, size)))))
    data = [bytes(damage.read(0, at, size)) for at in (one, other)]
    damage.write(0, one, data[1])
    damage.write(0, other, data[0])
    run.unchecked_ok = False
    run.go()
