# SPDX-License-Identifier: GPL-2.0-or-later
"""Every verb under circumstances that are not as they should be.  docs/testing.md, "Each verb", has the table.

Devices of the wrong kind, in use, of a wrong size, or that may not be read; stacks in a wrong state; programs that are missing.
"""

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import BUSY, FAILED, MIB, NOT_FOUND, TOP, UNSAFE, USAGE, digest, one_line, sane
from test_command_stack import Described, identified

pytest_plugins = ["larder_fixtures"]
BROKEN = 11


class Verb(NamedTuple):
    """What it is given; what that names: a stack, cache or volume, by its name; all there are; a device, by its path; none."""

    words: str
    finds: str
    busy: int | None = None  # exit codes; None: it does what it does, or refuses for a reason of its own, and writes nothing
    half: int | None = None
    foreign: int | None = None


WRITES = {"busy": BUSY}
STACK = {"half": UNSAFE}
CHANGES = {"half": UNSAFE, "foreign": UNSAFE}
VERBS = {
    "create": Verb("x --backing NEW --cache OTHER", "device", **WRITES),
    "start": Verb("data", "stack", **CHANGES),
    "stop": Verb("data", "stack"),
    "remove": Verb("data --discard-data UUID", "stack", busy=BUSY, foreign=UNSAFE),
    "lock": Verb("data", "stack"),
    "unlock": Verb("data", "stack", **STACK),
    "passwd": Verb("data --list", "stack"),
    "rename": Verb("data films", "stack", busy=BUSY, **CHANGES),
    "set": Verb("data --backing-label films", "stack", busy=BUSY, **CHANGES),
    "resize": Verb("data", "stack", **CHANGES),
    "scrub": Verb("data", "stack"),
    "replace": Verb("data cache NEW", "stack", busy=BUSY, **CHANGES),
    "add": Verb("data --cache NEW", "stack", **CHANGES),
    "drop": Verb("data ssd0", "stack", **CHANGES),
    "pin": Verb("--refresh data", "stack", **CHANGES),
    "unpin": Verb("/nowhere", "none"),
    "list": Verb("", "all"),
    "show": Verb("data", "stack"),
    "status": Verb("data", "stack", half=BROKEN),
    "upgrade": Verb("data", "volume", **STACK),  # or a stack, or a cache
    "cache create": Verb("x --cache NEW", "device", **WRITES),
    "cache start": Verb("fast", "cache"),
    "cache stop": Verb("fast", "cache"),
    "cache add": Verb("fast NEW", "cache"),
    "cache replace": Verb("fast 0 NEW", "cache"),
    "cache remove": Verb("fast 0", "cache"),
    "cache resize": Verb("fast", "cache"),
    "cache scrub": Verb("fast", "cache"),
    "cache label": Verb("fast 0 ssd", "cache", **WRITES),
    "cache list": Verb("", "all"),
    "cache status": Verb("fast", "cache"),
    "cache get": Verb("fast", "cache"),
    "cache set": Verb("fast commit=always", "cache"),
    "volume create": Verb("x --backing NEW", "device", **WRITES),
    "volume start": Verb("data", "volume"),
    "volume stop": Verb("data", "volume"),
    "volume attach": Verb("data --cache fast", "volume"),
    "volume detach": Verb("data", "volume"),
    "volume resize": Verb("data", "volume"),
    "volume get": Verb("data", "volume"),
    "volume set": Verb("data mode=writethrough --persist", "volume", busy=BUSY, foreign=UNSAFE),
    "volume flush": Verb("data", "volume"),
    "volume list": Verb("", "all"),
    "volume status": Verb("data", "volume"),
    "snapshot create": Verb("data@x --store NEW", "stack", **CHANGES),
    "snapshot list": Verb("data", "stack"),
    "snapshot remove": Verb("data@x", "stack", **CHANGES),
    "super show": Verb("SSD", "device"),
    "super check": Verb("SSD", "device"),
    "super wipe": Verb("SSD --yes", "device", **WRITES),
    "super backup": Verb("SSD FILE", "device"),
    "super restore": Verb("BACKUP SSD", "none", **WRITES),
    "rescue check": Verb("fast", "cache", busy=BUSY),
    "rescue list": Verb("fast", "cache", busy=BUSY),
    "rescue writeback": Verb("data --yes", "volume", **WRITES),
    "rescue serve": Verb("data --socket FILE --dry-run", "volume", busy=BUSY),
    "assemble": Verb("--all", "all"),
    "probe": Verb("SSD", "device"),
    "monitor": Verb("--count 1", "none"),
    "top": Verb("", "none"),
    "events": Verb("", "none"),
    "metrics": Verb("", "none"),
    "advise": Verb("NEW --for 1s", "device"),
    "doctor": Verb("", "none"),
    "collect": Verb("--output FILE", "none"),
    "help": Verb("", "none"),
}


class Machine:
    """A stack on a cache and a disk, and two empty devices."""

    def __init__(self, larder):
        self.larder = larder
        self.described = Described(larder)
        self.described.volume(self.described.plain)
        self.described.ssds({"ready": [f"{self.described.uuid} data 3"], "changing": []})
        directory = larder.directory
        self.places = {
            "NEW": larder.image("new", 64 * MIB, seen=False),
            "OTHER": larder.image("other", 64 * MIB, seen=False),
            "SSD": self.described.ssd,
            "BACKUP": directory / "kept.backup",
            "UUID": self.described.uuid,
            "FILE": directory / "file",
        }
        larder("super", "backup", self.described.ssd, self.places["BACKUP"])
        self.devices = [self.described.ssd, self.described.hdd, self.places["NEW"], self.places["OTHER"]]

    def words(self, verb):
        return [str(self.places.get(word, word)) for word in [*verb.split(), *VERBS[verb].words.split()]]

    def digests(self):
        return [digest(x) for x in self.devices]

    def unchanged(self, names, *before):
        """Runs these verbs, by the words `before`; none of them changes a device."""
        was = self.digests()
        for name in names:
            words = [*before, self.larder.program, *self.words(name)]
            run = subprocess.run(
                words, capture_output=True, text=True, env=self.larder.environment(), stdin=subprocess.DEVNULL, timeout=60
            )
            sane(run)
            yield name, run
            assert self.digests() == was, name


@pytest.fixture
def machine(larder):
    return Machine(larder)


def verbs(*finds, **more):
    """Those that find such, or that have an exit code for these."""
    found = {name: verb for name, verb in VERBS.items() if not finds or verb.finds in finds}
    return [name for name, verb in found.items() if all(getattr(verb, k) is not None for k in more)]


def test_every_verb_is_here(larder):
    listed = re.findall(r"^  larder (\S+(?: \S+)?)  +", larder("help").stdout, re.M)
    assert {" ".join(v.split()) for v in listed} == set(VERBS)


# ---------------------------------------------------------------------- wrong devices

DEVICES = {
    "create --backing": "create x --backing HERE --cache NEW --dry-run",
    "create --cache": "create x --backing NEW --cache HERE --dry-run",
    "create --spare": "create x --backing NEW --backing OTHER --raid 1 --spare HERE --cache fast --dry-run",
    "create --cache-spare": "create x --backing NEW --cache OTHER --cache-spare HERE --dry-run",
    "cache create": "cache create x --cache HERE",
    "cache start": "cache start HERE",
    "cache stop": "cache stop HERE",
    "cache label": "cache label fast HERE x",
    "volume create": "volume create x --backing HERE",
    "volume start": "volume start HERE",
    "volume stop": "volume stop HERE",
    "volume set": "volume set HERE mode=writethrough --persist",
    "replace": "replace data cache HERE --dry-run",
    "super show": "super show HERE",
    "super check": "super check HERE",
    "super wipe": "super wipe HERE --yes",
    "super backup": "super backup HERE FILE",
    "super restore": "super restore BACKUP HERE",
    "rescue check": "rescue check HERE",
    "rescue list": "rescue list HERE",
    "rescue writeback": "rescue writeback HERE --yes",
    "rescue serve": "rescue serve HERE --socket FILE --dry-run",
    "assemble": "assemble HERE",
    "probe": "probe HERE",
    "advise": "advise HERE --for 1s",
    "upgrade": "upgrade HERE",
}
WRONG = {
    "absent": NOT_FOUND,  # a path that is not there
    "directory": USAGE,
    "null": USAGE,  # /dev/null
    "fifo": USAGE,
    "loop": FAILED,  # a link to itself
    "long": FAILED,  # a path of 5000 bytes
}


def wrong(machine, kind):
    place = machine.larder.directory / kind
    if kind == "directory":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "loop":
        place.symlink_to(place)
    return {"null": "/dev/null", "long": "/" + "x" * 5000}.get(kind, str(place))


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_devices(machine, kind):
    """One line, which names it; of what is no device nothing is ever read or written, and nobody waits for it."""
    place = wrong(machine, kind)
    before = machine.digests()
    for name, text in DEVICES.items():
        words = [place if word == "HERE" else str(machine.places.get(word, word)) for word in text.split()]
        run = machine.larder(*words, code=None)
        assert run.returncode == (NOT_FOUND if name == "cache label" else WRONG[kind]), f"{name}: {run.returncode}: {run.stderr}"
        assert len(run.stderr.splitlines()) == 1 and run.stderr.startswith(f"larder: {place}: "), f"{name}: {run.stderr}"
    assert machine.digests() == before


@pytest.mark.parametrize("bytes", [0, 1, 120, 4096, 8192, 100001])
def test_devices_of_a_wrong_size(machine, bytes):
    place = machine.larder.directory / "small"
    place.write_bytes(bytes * b"x")
    before = machine.digests()
    for name, text in DEVICES.items():
        if name == "advise":  # whatever its size: it is no block device
            continue
        words = [str(place) if word == "HERE" else str(machine.places.get(word, word)) for word in text.split()]
        run = machine.larder(*words, code=None)
        assert run.returncode in (FAILED, NOT_FOUND, UNSAFE), f"{name}: {run.returncode}: {run.stderr}"
        lines = run.stderr.splitlines()
        if name == "probe":  # says what it is, and that is all
            assert str(place) in run.stdout and not lines
            continue
        most = 2 if name == "super check" else 1  # one for each place
        assert 1 <= len(lines) <= most and all(line.startswith(f"larder: {place}: ") for line in lines), f"{name}: {run.stderr}"
    assert machine.digests() == before and place.read_bytes() == bytes * b"x"


def test_empty_words(machine):
    """What a script makes of a variable that is not set: a usage, whatever the verb, and nothing is taken for it."""
    before = machine.digests()
    for name, verb in VERBS.items():
        words = machine.words(name)
        noun = len(name.split())
        for at in range(noun, len(words)):
            if words[at].startswith("--"):
                continue
            given = [*words[:at], "", *words[at + 1 :]]
            run = machine.larder(*given, code=USAGE)
            one_line(run, "empty")
            assert "usage" in run.stderr or words[at - 1] in run.stderr, f"{verb}: {run.stderr}"
    assert machine.digests() == before


# ---------------------------------------------------------------------- devices in use, cut off, or not to be read


def test_devices_in_use(machine):
    """By whoever has a lock on them."""
    with contextlib.ExitStack() as held:
        for path in machine.devices:
            fcntl.flock(held.enter_context(open(path, "rb")), fcntl.LOCK_SH)
        for name, run in machine.unchanged(verbs(busy=True)):
            first = run.stderr.splitlines()[0]
            assert run.returncode == BUSY and "in use" in first and any(str(path) in first for path in machine.devices), (name, run)


def test_devices_cut_off(machine):
    """They show fewer sectors than they had: nobody finds them, and which it is that is damaged is said."""
    for path in (machine.described.ssd, machine.described.hdd):
        os.truncate(path, path.stat().st_size - MIB)
    for name, run in machine.unchanged(verbs("stack", "cache", "volume")):
        assert run.returncode == NOT_FOUND, (name, run)
        one_line(run, "is not valid", f"larder super check {machine.described.ssd} says why")


DENIED = {
    "stack": ["data: there is no such stack", "2 devices could not be read", "run larder as root"],
    "cache": ["fast: no device has a cache superblock", "2 devices could not be read", "run larder as root"],
    "volume": ["data: no device has a volume superblock", "2 devices could not be read", "run larder as root"],
    "all": ["2 devices could not be read, and what is on them is not shown", "run larder as root"],
    "device": ["cannot open it: Permission denied", "run larder as root"],
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_privileges(machine):
    """That nothing is seen is not that nothing is there: an error, which says what is missing."""
    for path in machine.larder.directory.iterdir():
        path.chmod(0o600)
    machine.larder.directory.chmod(0o755)
    for name, run in machine.unchanged(verbs(*DENIED), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"):
        assert run.returncode == FAILED, (name, run)
        one_line(run, *DENIED[VERBS[name].finds])


# ---------------------------------------------------------------------- wrong states


@pytest.mark.parametrize("state", ["creating", "removing"])
def test_half_made(machine, state):
    machine.described.volume(machine.described.plain | {"state": state, "step": 3, "generation": 9})
    for name, run in machine.unchanged(verbs(half=True)):
        said = run.stdout if name == "status" else run.stderr
        assert run.returncode == VERBS[name].half and said.count("\n") == 1, (name, run)
        assert "data: " in said and re.search("half made|being removed", said), (name, said)


@identified
@pytest.mark.parametrize("says", ["description", "list"])
def test_of_another_machine(machine, says):
    """What writes one of both makes the other say this machine, too."""
    host, described = {"host": str(uuid.uuid4())}, machine.described
    if says == "description":
        described.volume(described.plain | host)
    else:
        described.ssds({"ready": [f"{described.uuid} data 3"], "changing": []} | host)
    for name, run in machine.unchanged(verbs(foreign=True)):
        assert run.returncode == VERBS[name].foreign, (name, run)
        one_line(run, "another machine", "larder start --import data")


def test_mode_of_a_volume_whose_owner_is_not_known(machine):
    machine.described.volume(machine.described.plain | {"novelty": 1})
    before = machine.digests()
    run = machine.larder(*machine.words("volume set"), code=UNSAFE)
    one_line(run, machine.described.hdd, "key that is not known", "nothing was written")
    assert machine.digests() == before


# ---------------------------------------------------------------------- missing programs, and a kernel without device-mapper


@pytest.mark.parametrize(
    "words,said",
    [
        ("create x --backing NEW --backing OTHER --raid 1 --cache fast --dry-run", ["mdadm: is missing", "apt install mdadm"]),
        ("create x --backing NEW --cache OTHER --mkfs ext4 --dry-run", ["mkfs.ext4: is missing", "apt install e2fsprogs"]),
        ("create x --backing NEW --cache OTHER --mkfs xfs --dry-run", ["mkfs.xfs: is missing", "apt install xfsprogs"]),
        ("create x --backing NEW --cache OTHER --mkfs btrfs --dry-run", ["mkfs.btrfs: is missing", "apt install btrfs-progs"]),
        ("rescue serve data --socket FILE", ["nbdkit", "install the package nbdkit"]),
    ],
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_missing_programs(machine, words, said):
    """Before anything is written, each with the package that has it."""
    hidden = "mount -t tmpfs none /usr/sbin && PATH=/nowhere"
    if subprocess.run(["unshare", "--mount", "sh", "-c", hidden], capture_output=True).returncode:
        pytest.skip("no mount namespace here")
    for name in ("NEW", "OTHER"):
        os.truncate(machine.places[name], 600 * MIB)
    before = machine.digests()
    given = [machine.larder.program, *(str(machine.places.get(word, word)) for word in words.split())]
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hidden + ' && exec "$@"', "sh", *given],
        capture_output=True, text=True, env=machine.larder.environment(), stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    sane(run)
    assert run.returncode == FAILED, run
    one_line(run, *said)
    assert machine.digests() == before


@pytest.mark.skipif("device-mapper" in Path("/proc/misc").read_text(), reason="this kernel has a device-mapper")
def test_kernel_without_device_mapper(machine):
    one_line(machine.larder("assemble", "--all", code=FAILED), "device-mapper: cannot be used", "modprobe dm_mod")


# ---------------------------------------------------------------------- the document


def rows():
    words = {None: "-"}
    for name, verb in VERBS.items():
        denied, cut = FAILED if verb.finds in DENIED else None, NOT_FOUND if verb.finds in ("stack", "cache", "volume") else None
        codes = (words.get(code, code) for code in (denied, cut, verb.busy, verb.half, verb.foreign))
        yield f"| `{f'larder {name} {verb.words}'.rstrip()}` | {' | '.join(map(str, codes))} |"


def test_listed():
    """docs/testing.md lists what is tried here, and nothing else."""
    section = (TOP / "docs" / "testing.md").read_text().split("\n### Each verb\n")[1].split("\n### ")[0]
    listed = [line for line in section.splitlines() if line.startswith("| `larder")]
    wanted = list(rows())
    assert listed == wanted, f"not listed: {set(wanted) - set(listed)}; not tried: {set(listed) - set(wanted)}"
    for kind, code in WRONG.items():
        assert f"`{kind}` {code}" in section
