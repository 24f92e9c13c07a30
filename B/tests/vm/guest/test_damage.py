# SPDX-License-Identifier: GPL-2.0-or-later
"""Damaged images, each started, read, written back, reclaimed, stopped (lib/damage_runs.py); LARDER_DAMAGE_SEEDS=FIRST:COUNT says
which (`make damage`).  Their disks stay from one test to the next, and get their content back."""

import os

import pytest
from lib import dm, simdisk
from lib.block import SECTOR
from lib.damage_bases import KINDS
from lib.damage_edits import PAGE, get, put, seal
from lib.damage_runs import Rigs, Run, Wrong, run_damage
from lib.larder import DATA_SECTOR

WRITE = 0  # the number of that stream
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
def run_of(rigs, kernel_log):
    """run_of(name of a base) -> a run that has nothing damaged yet."""

    def make(name):
        if name not in rigs.made:
            pytest.skip("no seed given needs it")
        run = Run(*rigs.made[name], kernel_log, list(KINDS).index(name))
        run.damage.clear()
        return run

    return make


@pytest.fixture
def run(run_of):
    """Of one SSD."""
    return run_of("one")


def flushed(run: Run, data: bytes) -> list[int]:
    """Where in that data sectors stand that somebody has flushed."""
    content = run.base.content
    known = {content[at : at + SECTOR] for at in range(0, len(content), SECTOR)} - {bytes(SECTOR)}
    return [at for at in range(0, len(data), SECTOR) if data[at : at + SECTOR] in known]


def dirty(run: Run, data: bytes) -> list[int]:
    """Where in that data sectors stand that were flushed, and are not on the backing."""
    content, backing = run.base.content, run.base.images[-1][DATA_SECTOR * SECTOR :]
    sectors = range(0, len(content), SECTOR)
    unlike = {content[at : at + SECTOR] for at in sectors if content[at : at + SECTOR] != backing[at : at + SECTOR]}
    return [at for at in range(0, len(data), SECTOR) if data[at : at + SECTOR] in unlike - {bytes(SECTOR)}]


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
    one, other, *_ = sorted(found, key=lambda at: -len(dirty(run, bytes(damage.read(0, at, size)))))
    assert dirty(run, bytes(damage.read(0, one, size)))
    data = [bytes(damage.read(0, at, size)) for at in (one, other)]
    damage.write(0, one, data[1])
    damage.write(0, other, data[0])
    run.unchecked_ok = False
    run.go()


def test_refused_start_mends_nothing(run_of):
    """A block of another stream says that more was durable than the write stream has: the start is refused for it, and until then
    has not written to one SSD what it lacks of a record that is whole on the other one."""
    run = run_of("two")
    damage = run.damage
    live = [s for s in damage.atlas.structures if s.kind == "larder_commit" and s.live]

    def field(s, name):
        return get(damage.read(*s.places[0], PAGE), s.kind, name)

    newest = max((s for s in live if field(s, "stream") != WRITE), key=lambda s: field(s, "sequence"))
    for d, at in newest.places:
        block = damage.read(d, at, PAGE)
        put(block, newest.kind, "durable_sequence", (1 << 64) - 2)
        seal(block, newest.kind)
        damage.write(d, at, block)
    damage.crafted = True
    pairs = [s for s in live if field(s, "stream") == WRITE and len(s.places) == 2]
    (d, at), _ = max(pairs, key=lambda s: field(s, "sequence")).places
    damage.write(d, at, bytes(PAGE))
    run.go()
    assert run.report["start"] == "refused" and run.kernel_log.matching("were durable")
