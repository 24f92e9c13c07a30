# SPDX-License-Identifier: GPL-2.0-or-later
"""
The simulator of policies (tests/sim/policy), built with ASan and UBSan, against naive twins of each policy written here, on small
random traces; and what must hold for any trace.
"""

import functools
import importlib.machinery
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TOP = Path(__file__).resolve().parents[1]
POLICY = TOP / "tests" / "sim" / "policy"
CAPACITIES = (1, 2, 3, 4, 5, 7, 10, 13, 20, 40)
LARDER = ("larder:segment_slots=4,segments=1", "small:segment_slots=4,segments=1,small_percent=5")

Request = tuple[str, int, int]  # op, block, blocks

requests = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("RWU"), st.integers(0, 24), st.just(1)),
        st.tuples(st.sampled_from("RW"), st.integers(0, 24), st.integers(1, 9)),
    ),
    min_size=1,
    max_size=120,
)
some = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    build = tmp_path_factory.mktemp("sim")
    subprocess.run(["make", "--no-print-directory", "-s", "-C", str(POLICY), f"BUILD={build}", "sanitized"], check=True)
    return build / "simulate-sanitized"


def run_script():
    loader = importlib.machinery.SourceFileLoader("sim_run", str(POLICY / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sim_run", loader))
    loader.exec_module(module)
    return module


def simulate(program: Path, trace: list[Request], capacities: tuple[int, ...] = CAPACITIES, variants=LARDER) -> dict:
    text = "".join(f"{op} 0 {block * 8} {n * 8} -\n" for op, block, n in trace)
    command = [str(program), "-b", ",".join(map(str, capacities)), *(word for v in variants for word in ("-v", v)), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def accesses(trace: list[Request]) -> list[int]:
    return [b for _, block, n in trace for b in range(block, block + n)]


def numbered(blocks: list[int]) -> tuple[int, ...]:
    """The same trace with its blocks numbered as they come, so that the search below remembers more."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(b, len(seen)) for b in blocks)


# ---------------------------------------------------------------- twins: lists, the oldest first


def lru(blocks, capacity):
    cache, hits = [], 0
    for b in blocks:
        if b in cache:
            hits += 1
            cache.remove(b)
        elif len(cache) == capacity:
            cache.pop(0)
        cache.append(b)
    return hits


def clock(most):
    def policy(blocks, capacity):
        cache, used, hits = [], {}, 0
        for b in blocks:
            if b in cache:
                hits += 1
                used[b] = min(used[b] + 1, most)
                continue
            while len(cache) == capacity:
                old = cache.pop(0)
                if used[old]:
                    used[old] -= 1
                    cache.append(old)
            cache.append(b)
            used[b] = 0
        return hits

    return policy


def sieve(blocks, capacity):
    cache, used, hand, hits = [], {}, None, 0
    for b in blocks:
        if b in cache:
            hits += 1
            used[b] = True
            continue
        if len(cache) == capacity:
            at = cache.index(hand) if hand is not None else 0
            while used[cache[at]]:
                used[cache[at]] = False
                at = (at + 1) % len(cache)
            cache.pop(at)
            hand = cache[at] if at < len(cache) else None
        cache.append(b)
        used[b] = False
    return hits


def twoq(blocks, capacity):
    inside, out, main, hits = [], [], [], 0
    for b in blocks:
        if b in main:
            hits += 1
            main.remove(b)
            main.append(b)
            continue
        if b in inside:
            hits += 1
            continue
        back = b in out
        if back:
            out.remove(b)
        if len(inside) + len(main) == capacity:
            if len(inside) > max(capacity // 4, 1) or not main:
                out.append(inside.pop(0))
                del out[: -max(capacity // 2, 1)]
            else:
                main.pop(0)
        (main if back else inside).append(b)
    return hits


def arc(blocks, capacity):
    t1, t2, b1, b2, p, hits = [], [], [], [], 0.0, 0

    def replace(in_b2):
        if t1 and (len(t1) > p or (in_b2 and len(t1) == int(p)) or not t2):
            b1.append(t1.pop(0))
        else:
            b2.append(t2.pop(0))

    for b in blocks:
        if b in t1 or b in t2:
            hits += 1
            (t1 if b in t1 else t2).remove(b)
        elif b in b1:
            p = min(p + max(len(b2) / len(b1), 1), capacity)
            replace(False)
            b1.remove(b)
        elif b in b2:
            p = max(p - max(len(b1) / len(b2), 1), 0)
            replace(True)
            b2.remove(b)
        else:
            if len(t1) + len(b1) == capacity:
                if len(t1) < capacity:
                    b1.pop(0)
                    replace(False)
                else:
                    t1.pop(0)
            elif len(t1 + t2 + b1 + b2) >= capacity:
                if len(t1 + t2 + b1 + b2) == 2 * capacity:
                    b2.pop(0)
                replace(False)
            t1.append(b)
            continue
        t2.append(b)
    return hits


def s3fifo(blocks, capacity):
    size = max(capacity // 10, 1)
    room = capacity - size
    small, main, ghost, used, hits = [], [], [], {}, 0

    def evict_main():
        while main:
            b = main.pop(0)
            if not used[b]:
                return
            used[b] -= 1
            main.append(b)

    for b in blocks:
        if b in small or b in main:
            hits += 1
            used[b] = min(used[b] + 1, 3)
            continue
        back = b in ghost and room > 0
        if b in ghost:
            ghost.remove(b)
        while len(small) + len(main) >= capacity:
            if len(small) < size:
                evict_main()
                continue
            old = small.pop(0)
            if used[old] > 1 and room:
                used[old] = 0
                main.append(old)
                if len(main) > room:
                    evict_main()
            else:
                ghost.append(old)
                if len(ghost) > room:
                    ghost.pop(0)
        used[b] = 0
        (main if back else small).append(b)
    return hits


def lirs(blocks, capacity):
    spare = max(capacity // 100, 2)
    if capacity <= spare:
        return lru(blocks, capacity)
    stack, queue, left, lir, hits = [], [], [], set(), 0

    def prune():
        while stack and stack[0] not in lir:
            b = stack.pop(0)
            if b in left:
                left.remove(b)

    def push(b):
        if b in stack:
            stack.remove(b)
        stack.append(b)

    def promote(b):
        lir.add(b)
        push(b)
        prune()
        if len(lir) > capacity - spare:
            old = stack.pop(0)
            lir.remove(old)
            queue.append(old)
            prune()

    for b in blocks:
        if b in lir:
            hits += 1
            push(b)
            prune()
            continue
        if b in queue:
            hits += 1
            queue.remove(b)
            if b in stack:
                promote(b)
            else:
                push(b)
                queue.append(b)
            continue
        if len(lir) + len(queue) == capacity:
            old = queue.pop(0)
            if old in stack:
                left.append(old)
        back = b in left
        if back:
            left.remove(b)
        if back or len(lir) < capacity - spare:
            promote(b)
            continue
        push(b)
        queue.append(b)
        if len(left) > 2 * capacity:
            stack.remove(left.pop(0))
            prune()
    return hits


def best_possible(blocks, capacity):
    """By search: at each miss any block may leave, or the newcomer."""

    @functools.cache
    def search(at, cache):
        if at == len(blocks):
            return 0
        b = blocks[at]
        if b in cache:
            return 1 + search(at + 1, cache)
        if len(cache) < capacity:
            return max(search(at + 1, cache), search(at + 1, cache | {b}))
        return max([search(at + 1, cache)] + [search(at + 1, cache - {old} | {b}) for old in cache])

    return search(0, frozenset())


TWINS = {
    "LRU": lru,
    "FIFO": clock(0),
    "CLOCK": clock(1),
    "CLOCK-2": clock(3),
    "SIEVE": sieve,
    "2Q": twoq,
    "ARC": arc,
    "S3-FIFO": s3fifo,
    "LIRS": lirs,
}


# ---------------------------------------------------------------- tests


@some
@given(requests)
def test_policies_are_as_their_twins(program, trace):
    out = simulate(program, trace)
    blocks = accesses(trace)
    assert (out["accesses"], out["blocks"]) == (len(blocks), len(set(blocks)))
    assert out["writes"] == sum(n for op, _, n in trace if op == "W")
    assert set(out["sizes"][0]["hits"]) == {*TWINS, "MIN"}
    for size in out["sizes"]:
        for name, twin in TWINS.items():
            assert size["hits"][name] == twin(blocks, size["blocks"]), (name, size["blocks"])


@some
@given(requests)
def test_what_holds_for_any_trace(program, trace):
    out = simulate(program, trace)
    once = out["accesses"] - out["blocks"]
    for size in out["sizes"]:
        best = size["hits"]["MIN"]
        for name, hits in [*size["hits"].items(), *((n, r["hits"]) for n, r in size["larder"].items())]:
            assert 0 <= hits <= best <= once, (name, size["blocks"])
            if size["blocks"] >= out["blocks"] and name in size["hits"]:
                assert hits == once, name
        for r in size["larder"].values():
            assert r["inserted"] <= r["written"]
            assert r["segments"] * r["segment_slots"] <= size["blocks"]
    for name in ("LRU", "MIN"):  # stack algorithms: a larger cache holds what a smaller one does
        hits = [size["hits"][name] for size in out["sizes"]]
        assert hits == sorted(hits)


@some
@given(st.lists(st.integers(0, 5), min_size=1, max_size=14), st.integers(1, 4))
def test_min_is_the_best_there_is(program, blocks, capacity):
    out = simulate(program, [("R", b, 1) for b in blocks], (capacity,))
    assert out["sizes"][0]["hits"]["MIN"] == best_possible(numbered(blocks), capacity)


@some
@given(requests)
def test_larder_counts_what_it_writes(program, trace):
    """Reads insert what they miss, writes all they write; a cache with room for all of it keeps all and copies nothing."""
    reads = [("R", block, n) for _, block, n in trace]
    writes = [("W", block, n) for _, block, n in trace]
    for size in simulate(program, reads)["sizes"]:
        for r in size["larder"].values():
            assert r["inserted"] == len(accesses(trace)) - r["hits"]
    for size in simulate(program, writes)["sizes"]:
        for r in size["larder"].values():
            assert r["inserted"] == len(accesses(trace))
    roomy = simulate(program, reads, (1024,), ("larder:segment_slots=4",))
    assert roomy["sizes"][0]["larder"]["larder"]["hits"] == roomy["accesses"] - roomy["blocks"]
    assert roomy["sizes"][0]["larder"]["larder"]["written"] == roomy["blocks"]


def test_larder_evicts(program):
    """Or the tests above could all hold for a log that is never full."""
    out = simulate(program, [("R", b % 200, 1) for b in range(5000)], (64, 128))
    for size in out["sizes"]:
        assert size["larder"]["larder"]["hits"] < out["accesses"] - out["blocks"]


def test_larder_leaves_long_runs_to_the_disk(program):
    trace = [("R", b, 8) for b in range(0, 4096, 8)] * 2
    plain, cutoff = (
        simulate(program, trace, (8192,), (f"larder:sequential_cutoff={kib}",))["sizes"][0]["larder"]["larder"] for kib in (0, 1024)
    )
    assert plain["inserted"] == 4096 and plain["hits"] == 4096
    assert 0 < cutoff["inserted"] <= 2 * 256  # 1 MiB of each run


@pytest.mark.parametrize("line", ["X 0 0 8 -", "R 0 0", "R 256 0 8 -", "R 0 0 99999999 -", "R 0 99999999999999 8 -"])
def test_what_is_no_trace_is_refused(program, line):
    done = subprocess.run([str(program), "-"], input=f"# comment\nR 0 0 8 -\n{line}\n", capture_output=True, text=True)
    assert done.returncode == 1 and "-:3: not a request" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["-s", "0"],
        ["-s", "101"],
        ["-b", "x"],
        ["-v", "a:b=1"],
        ["-v", "a:small_percent=4"],
        ["-v", "a:segment_slots=5"],
        ["-z"],
        [],
    ],
)
def test_a_wrong_command_line_is_refused(program, options):
    command = [str(program), *options, *(["-"] if options else [])]
    done = subprocess.run(command, input="R 0 0 8 -\n", capture_output=True, text=True)
    assert done.returncode == 2 and "usage" in done.stderr


def test_report_of_small_traces(program, tmp_path):
    """The tables of `make sim`: means, the best single policy, a trace left out, and a simulator that beats MIN is found."""
    run = run_script()
    for n in range(2):
        lines = [f"R 0 {(i * i * (n + 3)) % 701 * 8} 8 -" for i in range(3000)]
        (tmp_path / f"t{n}.trace").write_text("\n".join(lines) + "\n")
    found = run.traces(tmp_path)
    assert {"t0", "t1", "arc-p3", "hp-ajw", "vm-boots-a"} <= set(found)
    traces = {n: run.simulate(program, found[n], (40, 80), run.VARIANTS) for n in ("t0", "t1")}
    m = run.Means(traces)
    size = next(iter(m.at))
    best = m.best(size)
    assert m.hits(size, best) == max(m.hits(size, p) for p in run.online(m.at[size][0][1]))
    assert m.behind(size) == m.hits(size, run.MAIN) - m.hits(size, best)
    assert [t for t, _ in run.Means(traces, "t0").at[size]] == [traces["t1"]]
    text = "\n".join(run.report(traces))
    assert "| t0 |" in text and "points from the best single online policy" in text
    assert not run.beaten(traces)
    traces["t0"]["sizes"][0]["hits"]["LRU"] = traces["t0"]["sizes"][0]["hits"]["MIN"] + 1
    assert run.beaten(traces) == [f"t0 at {traces['t0']['sizes'][0]['size']:g} %: LRU has more hits than MIN"]
    with pytest.raises(ValueError, match=r"no NAME\.trace"):
        run.traces(tmp_path / "..")
