# SPDX-License-Identifier: GPL-2.0-or-later
"""Crash states without a VM: which states the explorer tries, on disks that are files; what `make crash` counts and says; the judge
of files."""

import importlib.machinery
import importlib.util
import json
import os
import random
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
GUEST = TESTS / "vm/guest"
sys.path[:0] = [str(TESTS / "vm"), str(GUEST)]

from host.verdict import Verdict  # noqa: E402
from lib import storm, wrong_states  # noqa: E402


def load(path: Path):
    loader = importlib.machinery.SourceFileLoader(f"crash_{path.name}", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


RUN = load(TESTS / "crash/run")


# ------------------------------------------------------------------ states

SECTORS = 8
WRITES = 3  # that are open at the end of the recording, one on each disk
DISKS = [f"disk{i}" for i in range(WRITES)]


def entry(kind: str, number: int, disk: str = "", data: bytes = b"") -> bytes:
    """As tests/crash/explore.h has it: of a write to sector 0, its completion, or a mark."""
    padded = data + bytes(-len(data) % 8)
    sectors = len(data) if kind == "M" else SECTORS
    head = struct.pack("<IBBBBQQIi16s", 48 + len(padded), ord(kind), 1, 0, 0, number, 0, sectors, 0, disk.encode())
    return head + padded


@pytest.fixture(scope="module")
def explorer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("explorer")
    sanitize = {"CFLAGS": "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"}
    subprocess.run(["make", "-s", "-C", TESTS / "crash", f"O={directory}"], check=True, env=os.environ | sanitize)
    return directory / "explore"


@pytest.fixture
def kept(tmp_path):
    """As lib/crash.py keeps a recording, of one write to each of three disks, after which nothing is flushed."""
    directory = tmp_path / "crash-planted[x]"
    directory.mkdir()
    writes = [entry("S", i, disk, b"\xff" * SECTORS * 512) for i, disk in enumerate(DISKS)]
    ends = [entry("C", i, disk) for i, disk in enumerate(DISKS)]
    recording = b"".join([entry("M", 1, data=b"begin"), *writes, *ends, entry("M", 1, data=b"end")])
    (directory / "recording").write_bytes(recording)
    (directory / "disks").write_text(json.dumps({disk: {"mb": 1} for disk in DISKS}))
    (directory / "kernel").write_text("6.12.0\n")
    return directory


def found(*subset: int) -> str:
    """Shell: exits 0 if of the writes exactly these have arrived, whole."""
    sums = "; ".join(f"n=$(tr -d '\\0' </dev/{d} | wc -c); s=$s,$n" for d in DISKS)
    return f"s=; {sums}; [ $s = {''.join(f',{4096 if i in subset else 0}' for i in range(WRITES))} ]"


def words(command: str) -> list[str]:
    """Of the explorer; five states for each of the positions with something open."""
    disks = [w for d in DISKS for w in ("--disk", d)]
    return ["explore", "--recording", "?", "--name", "planted", *disks, "--alone", command, "--states", "20", "--deep", "0"]


@pytest.fixture
def rescue(monkeypatch, explorer, capsys, kept):
    """rescue(command, words of tests/crash/rescue...) -> exit status, what is printed"""
    module = load(TESTS / "crash/rescue")
    monkeypatch.setattr(module, "programs", lambda command: [explorer.parent])

    def run(command: str, *arguments: str, more: tuple[str, ...] = ()) -> tuple[int, str]:
        (kept / "argv").write_text(json.dumps(words("false")[:-4]) + "\n" + json.dumps(words(command) + [*more]) + "\n")
        monkeypatch.setattr(sys, "argv", ["rescue", *arguments])
        status = module.main()
        return status, capsys.readouterr().out

    return run


SUBSETS = [[i for i in range(WRITES) if mask >> i & 1] for mask in range(1 << WRITES)]


@pytest.mark.parametrize("subset", SUBSETS)
def test_each_subset_is_tried(rescue, kept, subset):
    """A stack that breaks where exactly these writes have arrived is found, wherever the power is cut: all subsets of three."""
    status, out = rescue(f"! ( {found(*subset)} )", "--exploration", "2", "--states", "12", str(kept))
    assert status == 1 and "WRONG without the stack" in out, out


def test_wrong_state_alone(rescue, kept):
    """Of those printed, by rescue and by the kernel, the first is run here: it is wrong again, and no other one is."""
    broken = f"! ( {found(0, 2)} )"
    status, out = rescue(broken, "--exploration", "2", "--states", "12", str(kept))
    lines = [line.strip() for line in out.splitlines() if line.startswith("  tests/crash/")]
    mine = [shlex.split(line) for line in lines if line.startswith("tests/crash/rescue")]
    kernel = [shlex.split(line) for line in lines if line.startswith("tests/crash/run")]
    assert status == 1 and mine and len(mine) == len(kernel), out
    for program, *arguments in mine:
        assert program == "tests/crash/rescue" and arguments[:3] == ["--exploration", "2", str(kept)]
        status, again = rescue(broken, *arguments)
        assert status == 1 and again.count("FAILED") == 1 and " states=1 " in again, again
    for arguments in kernel:
        assert arguments[:7] == ["tests/crash/run", "--kernel", "6.12.0", "--exploration", "2", "--again", str(kept)]
        assert arguments[7:] == mine[kernel.index(arguments)][4:]
    assert rescue("true", *mine[0][1:])[0] == 0


def sum_of(data: bytes) -> int:
    """As tests/crash/judge.c has it."""
    total = 0xCBF29CE484222325
    for (word,) in struct.iter_unpack("<Q", data):
        total = (total ^ word) * 0x100000001B3 % (1 << 64)
        total ^= total >> 32
    return total


@pytest.mark.parametrize("right", [True, False])
def test_what_the_stack_has_read(rescue, kept, right):
    """States that were started are tried without the stack, and no others: the same must be found."""
    sums = {0: sum_of(struct.pack("<Q", sum_of(bytes(4096)))), 1: sum_of(struct.pack("<Q", sum_of(b"\xff" * 4096)))}
    open_all = 1 + WRITES  # position: behind the mark and the writes
    noted = [(open_all, 400000, sums[0]), (open_all, 400005, sums[1]), (open_all + 1, 400006, sums[not right])]
    (kept / "noted-0").write_text("".join(f"{position} {kind} {total:x}\n" for position, kind, total in noted))
    volume = ("--volume", "name=v,size=4096,backing=disk0,sector=0", "--note", "/somewhere/noted-0")
    status, out = rescue("true", "--exploration", "2", str(kept), more=volume)
    first = out.splitlines()[0] if right else out
    assert status == (not right) and " states=3 " in first, out
    assert ("volume v: is not what the stack has read first" in out) != right
    if not right:
        assert f"--exploration 2 {kept} {open_all + 1}.400006" in out.replace("'", "")


def test_commands():
    said = """WRONG first read: volume v
FAILED workload=a seed=1 position=12 kind=400003: --only 12.400003
FAILED workload=a seed=1 position=40 kind=7: --only 40.7.deep --second 9.1.77
"""
    assert wrong_states.commands(said, "again", "files[x]") == ["again 'files[x]' 12.400003", "again 'files[x]' 40.7.deep 9.1.77"]
    assert wrong_states.commands("explore workload=a result=ok", "again") == []


# ------------------------------------------------------------------ make crash


def collected(expression: str) -> set[str]:
    """Functions of the suite that pytest would run."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-k", expression]
    argv += [f"--rootdir={GUEST}", f"--confcutdir={GUEST}", str(GUEST / "test_crash.py")]
    run = subprocess.run(argv, capture_output=True, text=True, cwd=GUEST, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert run.returncode == 0, run.stdout + run.stderr
    return {line.split("::")[1].split("[")[0] for line in run.stdout.splitlines() if "::" in line}


def begins_another(workload: str) -> bool:
    return any(other != workload and other.startswith(workload) for other in RUN.workloads())


def test_there_are_workloads():
    assert {"writes", "mirror", "mirror_of_three", "files"} <= set(RUN.workloads())
    assert not any("found" in w or w in ("again", "total") for w in RUN.workloads())
    assert begins_another("mirror")


@pytest.mark.parametrize("workload", [w for w in RUN.workloads() if begins_another(w)])
def test_each_workload_is_one_test(workload):
    """pytest looks for parts of names: one that begins with this one would be counted twice."""
    assert collected(RUN.expression(workload)) == {f"test_{workload}"}
    assert len(collected(f"test_{workload}")) > 1


@pytest.mark.parametrize(
    ("arguments", "each", "status"),
    [((), 2000, 0), ((), 10, 1), (("--states", "60"), 10, 0), (("writes",), 10, 0), (("writes",), 0, 1)],
    ids=["enough", "too few", "few asked for", "one workload", "none"],
)
def test_total(monkeypatch, tmp_path, capsys, arguments, each, status):
    """A run by default that judged fewer states than it is for has failed."""
    report = {"states": each, "again": 1, "alone": 1, "seconds": 1, "exhausted": 1, "extremes": 1}
    monkeypatch.setattr(RUN, "CACHE", tmp_path)
    monkeypatch.setattr(RUN, "part", lambda a, key, workload, shard: [report | {"workload": workload}])
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    assert RUN.main() == status
    last = capsys.readouterr().out.splitlines()[-1]
    workloads = 1 if "writes" in arguments else len(RUN.workloads())
    assert last.startswith(f"crash: {each * workloads} states, ")
    assert ("fewer than 20000" in last) == (arguments == () and status == 1)


def test_verdict_says_how_many(tmp_path):
    (tmp_path / "summary-crash").write_text("crash: 1234 states\n")
    tests = [{"suite": "crash", "name": "a", "outcome": "passed", "seconds": 1, "text": ""}]
    assert "crash: 1234 states" in Verdict("6.12", "crash", tmp_path, tests=tests).text(False)
    assert "1234" not in Verdict("6.12", "power", tmp_path, tests=tests).text(False)


# ------------------------------------------------------------------ files of a storm


@pytest.fixture
def files(tmp_path):
    """A directory, and the texts of all changes that were made in it, all of them durable."""
    storms = [storm.Storm(5, "0"), storm.Storm(5, "1")]
    texts = []
    for i in range(120):
        change = storms[i % 2].next()
        texts.append(change.begin)
        change.make(tmp_path)
        texts.append(change.done)
    assert {text.split()[3] for text in texts if text.startswith("begin")} == {"create", "append", "truncate", "replace"}
    return tmp_path, texts


def last(texts: list[str], kind: str) -> int:
    """Where the newest change of this kind begins that is the newest of its file."""
    for i in range(len(texts) - 2, -1, -2):
        _, name, _, found, _ = texts[i].split()
        if found == kind and not any(text.split()[1] == name for text in texts[i + 2 :]):
            return i
    raise AssertionError(f"no {kind} is the last of its file")


def test_files_as_they_are(files):
    directory, texts = files
    assert storm.judge(directory, texts) == ""
    assert storm.judge(directory, []) == ""


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b"x" + b[1:], lambda b: b + b"x", None])
def test_files_that_are_wrong(files, change):
    """Shorter, another byte, longer, gone."""
    directory, texts = files
    path = next(p for p in sorted(directory.iterdir()) if p.stat().st_size)
    if change:
        path.write_bytes(change(path.read_bytes()))
    else:
        path.unlink()
    assert path.name in storm.judge(directory, texts)


@pytest.mark.parametrize("kind", ["append", "truncate", "replace"])
def test_change_that_was_lost(files, kind):
    """What the file was before is right while its change is in flight, and wrong when that is done."""
    directory, texts = files
    i = last(texts, kind)
    change = storm.Change((words := texts[i].split())[1], int(words[2]), words[3], int(words[4]))
    path = directory / change.name
    after = path.read_bytes()
    in_flight = texts[: i + 1] + texts[i + 2 :]
    assert storm.judge(directory, in_flight) == ""
    path.unlink()
    assert change.name in storm.judge(directory, in_flight)
    before = None
    for text in texts[:i]:
        if text.startswith("begin") and text.split()[1] == change.name:
            _, name, number, what, size = text.split()
            before = storm.Change(name, int(number), what, int(size)).after(before)
    path.write_bytes(before)
    assert storm.judge(directory, in_flight) == ""
    assert (change.name in storm.judge(directory, texts)) == (before != after)


@pytest.mark.parametrize(
    ("kind", "size", "found", "right"),
    [
        ("append", 3000, lambda old, new: new[: len(old) + 512], True),
        ("append", 3000, lambda old, new: old + bytes(1024) + new[len(old) + 1024 :], True),
        ("append", 3000, lambda old, new: old[:-1], False),
        ("append", 3000, lambda old, new: old[:-512] + bytes(512) + new[len(old) :], False),
        ("append", 3000, lambda old, new: old + b"\1" * 512, False),
        ("append", 3000, lambda old, new: new + bytes(1), False),
        ("truncate", 1000, lambda old, new: new + bytes(3096) + old[4096:], True),
        ("truncate", 1000, lambda old, new: new[:-1] + b"\1" + old[1000:], False),
        ("truncate", 1000, lambda old, new: new[:-1], False),
        ("replace", 3000, lambda old, new: new[:512], False),
        ("replace", 3000, lambda old, new: old[:512] + new[512:], False),
        ("replace", 3000, lambda old, new: None, False),
    ],
)
def test_change_in_flight(kind, size, found, right):
    old = random.Random(3).randbytes(5000)
    change = storm.Change("a", 1, kind, size)
    assert storm.in_flight(old, change, found(old, change.after(old))) == right


def test_file_that_is_created():
    change = storm.Change("a", 1, "create", 3000)
    for n in (0, 512, 3000):
        assert storm.in_flight(None, change, change.data[:n])
    assert storm.in_flight(None, change, None)
    assert not storm.in_flight(None, change, b"\1" * 512)
