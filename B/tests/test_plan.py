# SPDX-License-Identifier: GPL-2.0-or-later
"""
daemon/plan.c on worlds that hypothesis makes: tests/unit/test_plan.c makes caches, SSDs, volumes, spares and legs of the numbers
that it is given, and judges each plan by what it knows of them (docs/daemon.md has the invariants: no stale member, nothing in two
steps, an end).  A world in which one is broken is made smaller, and printed: echo SEED NUMBERS | tests/unit/build/test_plan -
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

UNIT = Path(__file__).resolve().parent / "unit"


class Planner:
    """Started anew behind a world that it did not survive."""

    def __init__(self, program: Path):
        self.program = program
        self.process: subprocess.Popen | None = None

    def judge(self, seed: int, numbers: list[int]) -> None:
        if self.process is None:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen([self.program, "-"], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self.process.stdin.write(" ".join(map(str, [seed, *numbers])) + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        if said != "ok\n":
            said += self.end()
        assert said == "ok\n"

    def end(self) -> str:
        """What else it says."""
        process, self.process = self.process, None
        return process.communicate()[0] if process else ""


@pytest.fixture(scope="module")
def planner(tmp_path_factory) -> Iterator[Planner]:
    build = tmp_path_factory.mktemp("plan")
    subprocess.run(["make", "--no-print-directory", "-s", "-C", UNIT, f"BUILD={build}", build / "test_plan"], check=True)
    planner = Planner(build / "test_plan")
    yield planner
    assert planner.end() == "", "a leak"


# of the numbers test_plan.c takes remainders: chances are of a hundred, and what is below them comes about
seeds = st.integers(0, (1 << 32) - 1)
worlds = st.lists(st.one_of(st.integers(0, 99), st.integers(0, (1 << 64) - 1)), max_size=300)
many = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)


@many
@given(seeds, worlds)
def test_any_world(planner, seed, world):
    planner.judge(seed, world)


def test_the_judge_notices(tmp_path, planner):
    """A planner that takes members which somebody else uses."""
    source = (UNIT.parents[1] / "daemon" / "plan.c").read_text()
    wrong = source.replace("|| m->copy_only || m->used || m->held;", "|| m->copy_only || m->held;")
    assert wrong != source
    test = (UNIT / "test_plan.c").read_text()
    (tmp_path / "plan.c").write_text(wrong.replace('#include "', f'#include "{UNIT.parents[1]}/daemon/'))
    test = test.replace("../../daemon/plan.c", str(tmp_path / "plan.c")).replace("../../lib/", f"{UNIT.parents[1]}/lib/")
    (tmp_path / "test_plan.c").write_text(test)
    subprocess.run(["gcc", "-std=gnu11", "-I", UNIT, "-o", tmp_path / "wrong", tmp_path / "test_plan.c", "-luuid"], check=True)
    other = Planner(tmp_path / "wrong")

    @many
    @given(seeds, worlds)
    def any_world(seed, world):
        other.judge(seed, world)

    with pytest.raises(AssertionError, match="not ok"):
        any_world()
    other.end()
