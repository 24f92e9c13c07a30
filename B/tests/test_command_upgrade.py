# SPDX-License-Identifier: GPL-2.0-or-later
"""`larder upgrade`: that there is nothing to upgrade; and with features that only a build for these tests has, how it is done."""

import json
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import (
    CACHE,
    DONE,
    MIB,
    NOT_FOUND,
    SB,
    TOP,
    UNSAFE,
    USAGE,
    VOLUME,
    Larder,
    digest,
    field,
    one_line,
    patch_both,
    preload,
    read,
)
from test_command_stack import ON_VOLUME, SIZE, Described, identified

pytest_plugins = ["larder_fixtures"]
SSD_BIT, DISK_BIT, MODULE_BIT = 1 << 61, 1 << 62, 1 << 63
FOREIGN_BIT = 1 << 20


@pytest.fixture
def described(larder):
    """A stack: one SSD, one disk."""
    made = Described(larder)
    made.volume(made.plain)
    made.ssds({"ready": [f"{made.uuid} data 3"], "changing": []})
    return made


@pytest.fixture(scope="session")
def newer():
    """A larder that knows more features than this one: all the same, but for the table."""
    return sys.modules["larder_fixtures"].build("tools", "later", SANITIZE="1")


@pytest.fixture
def targets(larder):
    """Says which versions of the targets the kernel has; returns the environment."""

    def write(version):
        path = larder.directory / "targets"
        path.write_text(f"striped          v1.6.0\nlarder-cache     v{version}\nlarder           v{version}\nlinear v1.4.0\n")
        return {"LARDER_TARGETS": str(path)}

    return write


@pytest.fixture
def upgraded(larder, newer):
    """The same devices, by the newer larder."""
    made = Larder(newer, larder.directory)
    made.devices = larder.devices
    return made


def compat(path):
    assert field(path, VOLUME, "compat") == field(path, VOLUME, "compat", at=field(path, VOLUME, "copy_offset"))
    return field(path, VOLUME, "compat")


# ---------------------------------------------------------------------- nothing to upgrade


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["", "dry run"])
def test_nothing_to_upgrade(larder, described, dry_run):
    before = [digest(x) for x in (described.ssd, described.hdd)]
    for word in ("data", str(described.uuid)):
        said = larder("upgrade", word, *dry_run).stdout.splitlines()
        assert said == [
            f"{described.ssd}: SSD 0 of fast, format version 1, features -: nothing to upgrade",
            f"{described.hdd}: volume of data, format version 1, features -: nothing to upgrade",
            f"{word}: nothing to upgrade: this larder writes format version 1, and a feature is set when it is first used",
        ]
    assert larder("upgrade", "fast", *dry_run).stdout.splitlines()[0].startswith(f"{described.ssd}: SSD 0")
    assert [digest(x) for x in (described.ssd, described.hdd)] == before
    assert "upgrade" not in larder("status", "data", code=NOT_FOUND).stdout


def test_features_are_named(larder, described):
    """That of three copies, and one that only a newer larder knows, and this one may ignore."""
    patch_both(described.ssd, CACHE, incompat=1)
    patch_both(described.hdd, VOLUME, compat=FOREIGN_BIT)
    said = larder("upgrade", "data").stdout
    assert "features third: nothing to upgrade" in said and "features compat:0x100000: nothing to upgrade" in said
    rows = json.loads(larder("show", "data", "-o", "layer,format", "--reportformat", "json").stdout)["stacks"]
    assert {r["layer"]: r["format"] for r in rows if r["format"]} == {"volume": "1 compat:0x100000", "ssd": "1 third"}


def test_every_known_feature_is_in_the_table():
    """The kernel's masks, the table of the command, and the document know the same bits."""
    header = (TOP / "kernel" / "larder_format.h").read_text()
    table = (TOP / "lib" / "format_features.c").read_text().split("#ifdef LARDER_TEST_FEATURES")[0]
    defined = [w.split()[1] for w in header.splitlines() if w.startswith(("#define LARDER_INCOMPAT_", "#define LARDER_COMPAT_"))]
    bits = [name for name in defined if not name.startswith(("LARDER_INCOMPAT_OF", "LARDER_COMPAT_ALL"))]
    assert bits == ["LARDER_INCOMPAT_THIRD"] and all(name in table for name in bits)
    assert "#define LARDER_COMPAT_ALL\t0ull" in header and "#define LARDER_RO_COMPAT_ALL\t0ull" in header
    assert "`THIRD`" in (TOP / "docs" / "on-disk-format.md").read_text().split("## 9.")[1]


def test_upgrade_of_what_is_not_there(larder, described):
    one_line(larder("upgrade", "films", code=NOT_FOUND), "films")
    one_line(larder("upgrade", code=USAGE), "a word is missing")
    one_line(larder("upgrade", "data", "fast", code=USAGE), "too many words")
    larder.devices.remove(described.hdd)
    one_line(larder("upgrade", "data", code=NOT_FOUND), "volume is not here")
    larder.devices.append(described.hdd)
    described.volume(described.plain | {"generation": 9, "state": "removing"})
    one_line(larder("upgrade", "data", code=UNSAFE), "half made, or being removed")


# ---------------------------------------------------------------------- one is possible


def test_upgraded(larder, upgraded, described, targets):
    env = targets("1.1.0")
    assert "an upgrade is possible (test-disk): larder upgrade data" in upgraded("status", "data", code=NOT_FOUND).stdout
    before = [digest(x) for x in (described.ssd, described.hdd)]
    said = upgraded("upgrade", "data", "--dry-run", env=env).stdout
    none = "format version 1, features -; to be set"
    assert f"{described.ssd}: SSD 0 of fast, {none}: test-ssd (test)\n" in said
    assert f"{described.hdd}: volume of data, {none}: test-disk (test), test-module (test)\n" in said
    assert f"write superblock to {described.ssd}\nwrite superblock to {described.hdd}\ndata: dry run" in said
    assert [digest(x) for x in (described.ssd, described.hdd)] == before
    patch_both(described.hdd, VOLUME, compat=FOREIGN_BIT)
    names = ("uuid", "label", "flags", "incompat")
    kept = {name: [field(x, VOLUME, name) for x in (described.ssd, described.hdd)] for name in names}
    stacks = read(described.ssd, SB + 928, 2048), read(described.hdd, SB + 512, 2048)
    generations = [field(x, VOLUME, "generation") for x in (described.ssd, described.hdd)]
    said = upgraded("upgrade", "data", env=env).stdout
    assert said.splitlines()[-1] == "data: upgraded; larders before this one may refuse it"
    assert compat(described.ssd) == SSD_BIT
    assert compat(described.hdd) == DISK_BIT | MODULE_BIT | FOREIGN_BIT, "what it does not know is kept"
    assert [field(x, VOLUME, "generation") for x in (described.ssd, described.hdd)] == [g + 1 for g in generations]
    for name, values in kept.items():
        assert [field(x, VOLUME, name) for x in (described.ssd, described.hdd)] == values
    assert (read(described.ssd, SB + 928, 2048), read(described.hdd, SB + 512, 2048)) == stacks
    # once: a second one writes nothing; and this larder, which does not know these, may ignore them
    before = [digest(x) for x in (described.ssd, described.hdd)]
    assert "nothing to upgrade" in upgraded("upgrade", "data").stdout.splitlines()[-1]
    assert "upgrade" not in upgraded("status", "data", code=NOT_FOUND).stdout
    assert "features compat:0x2000000000000000: nothing" in larder("upgrade", "data").stdout
    for path in (described.ssd, described.hdd):
        larder("super", "check", path)
    assert [digest(x) for x in (described.ssd, described.hdd)] == before


def test_by_cache_and_by_volume(upgraded, described, targets):
    upgraded("upgrade", "fast")  # needs no module
    assert (compat(described.ssd), compat(described.hdd)) == (SSD_BIT, 0)
    # no stack any more: a volume by itself
    patch_both(described.hdd, ON_VOLUME, label=b"alone", stack=bytes(SIZE))
    described.ssds({"ready": [], "changing": []})
    upgraded("upgrade", "alone", env=targets("1.1.3"))
    assert compat(described.hdd) == DISK_BIT | MODULE_BIT


@pytest.mark.parametrize(
    "version,code,said",
    [
        ("1.0.0", UNSAFE, ["test-module", "needs version 1.1", "has 1.0.0", "load the new one"]),
        ("2.0.0", UNSAFE, ["needs version 1.1", "has 2.0.0"]),
        (None, NOT_FOUND, ["test-module", "modprobe larder"]),
        ("nonsense", NOT_FOUND, ["modprobe larder"]),
    ],
)
def test_module_that_does_not_know_it(upgraded, described, targets, version, code, said):
    """The previous module is still loaded, or none: nothing is written, on SSDs either."""
    env = targets(version) if version else {"LARDER_TARGETS": str(upgraded.directory / "nothing")}
    before = [digest(x) for x in (described.ssd, described.hdd)]
    for dry_run in ([], ["--dry-run"]):
        one_line(upgraded("upgrade", "data", *dry_run, env=env, code=code), described.hdd, *said)
    assert [digest(x) for x in (described.ssd, described.hdd)] == before


def refused(upgraded, described, targets, code, *said):
    before = [digest(x) for x in (described.ssd, described.hdd)]
    run = upgraded("upgrade", "data", env=targets("1.1.0"), code=code)
    assert "upgraded" not in run.stdout
    one_line(run, *said)
    assert [digest(x) for x in (described.ssd, described.hdd)] == before


@identified
def test_of_another_machine(upgraded, described, targets):
    described.volume(described.plain | {"host": str(uuid.uuid4())})
    refused(upgraded, described, targets, UNSAFE, "data: is another machine's", "--import data")
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data"], "changing": [], "host": str(uuid.uuid4())})
    refused(upgraded, described, targets, UNSAFE, "data: is another machine's", "--import data")
    one_line(upgraded("upgrade", "fast", code=UNSAFE), described.ssd, "another machine's", "--import")
    assert compat(described.ssd) == 0


def test_somebody_elses_now(upgraded, described, targets):
    signatures.luks(described.hdd)
    before = [digest(x) for x in (described.ssd, described.hdd)]
    run = upgraded("upgrade", "data", env=targets("1.1.0"), code=UNSAFE)
    assert str(described.hdd) in run.stderr and "crypto_LUKS" in run.stderr
    assert [digest(x) for x in (described.ssd, described.hdd)] == before


def test_set_that_lacks_an_ssd(larder, upgraded):
    ssds = [larder.image(f"ssd{i}", 64 * MIB) for i in range(2)]
    larder("cache", "create", "pair", "--cache", ssds[0], "--cache", ssds[1])
    larder.devices.remove(ssds[1])
    one_line(upgraded("upgrade", "pair", code=NOT_FOUND), "SSD 1", "not here", "attach it")
    assert compat(ssds[0]) == 0
    larder.devices.append(ssds[1])
    upgraded("upgrade", "pair")
    assert [compat(x) for x in ssds] == [SSD_BIT, SSD_BIT]


def test_read_only_for_this_larder(upgraded, described, targets):
    patch_both(described.hdd, VOLUME, ro_compat=1 << 5)
    before = digest(described.hdd)
    run = upgraded("upgrade", "data", env=targets("1.1.0"), code=None)
    assert run.returncode and "ro_compat" in run.stderr and "newer larder" in run.stderr
    assert digest(described.hdd) == before


def test_copy_of_a_device(upgraded, described, targets):
    """Of two volumes with one superblock nobody knows which is the stack's."""
    copy = upgraded.image("copy", described.hdd.stat().st_size)
    shutil.copyfile(described.hdd, copy)
    refused(upgraded, described, targets, UNSAFE, described.hdd, copy)
    assert compat(copy) == 0


@pytest.mark.parametrize("keep", ["none", "all", "7"])
def test_power_cuts_while_it_is_upgraded(larder, newer, upgraded, described, targets, tools, tmp_path, keep):
    """At each write and flush: each superblock is that of before or after, in one of its places at least; again, and it is done."""
    saved = [x.read_bytes() for x in (described.ssd, described.hdd)]
    env = targets("1.1.0") | preload(tools / "power_cut.so") | {"POWER_CUT_KEEP": keep}
    env["POWER_CUT_LOG"] = str(tmp_path / "calls")
    seen = set()
    at = 0
    ended = False
    while not ended:
        at += 1
        for path, content in zip((described.ssd, described.hdd), saved, strict=True):
            path.write_bytes(content)
        words = [newer, "upgrade", "data"]
        cut = larder.environment(env | {"POWER_CUT_AT": str(at)})
        run = subprocess.run(words, capture_output=True, text=True, env=cut, timeout=60)
        ended = run.returncode == DONE
        assert ended or run.returncode == 88, run.stderr
        state = []
        for path, bits in ((described.ssd, SSD_BIT), (described.hdd, DISK_BIT | MODULE_BIT)):
            shown = larder("super", "show", path, "-o", "features", "--noheadings").stdout.strip()
            assert shown in ("0 0 0", f"{bits:x} 0 0"), f"at {at}: {shown}"
            state.append(shown != "0 0 0")
        assert state != [False, True], "SSDs first"
        seen.add(tuple(state))
        assert "stopped" in larder("status", "data", code=NOT_FOUND).stdout
        upgraded("upgrade", "data", env=targets("1.1.0"))
        assert (compat(described.ssd), compat(described.hdd)) == (SSD_BIT, DISK_BIT | MODULE_BIT)
        for path in (described.ssd, described.hdd):
            larder("super", "check", path)
    first = set() if keep == "all" else {(False, False)}  # the first write that is cut has come through, then
    assert at > 6 and seen == first | {(True, False), (True, True)}, (at, seen)


def test_nothing_of_this_in_what_is_shipped(larder, described):
    """The features of the tests are in no other build."""
    assert b"test-module" not in Path(larder.program).read_bytes()
    assert "upgrade" not in larder("status", "data", code=NOT_FOUND).stdout
