# SPDX-License-Identifier: GPL-2.0-or-later
"""Tiers by labels of devices: what --foreground, --promote and --background become, or why not, and where labels are kept."""

import json
import shutil
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import (
    CACHE,
    FAILED,
    MIB,
    NOT_FOUND,
    SB,
    TABLES,
    UNSAFE,
    USAGE,
    digest,
    field,
    one_line,
    patch_both,
    patch_tables,
    read,
)
from test_command_stack import HEAD, OF_CACHE, ON_SSD, ON_VOLUME, SIZE, Described, identified, pack

pytest_plugins = ["larder_fixtures"]
BOTH = 0


@pytest.fixture
def images(larder):
    """Two SSDs and a disk."""
    return [larder.image(name, mib * MIB) for name, mib in (("ssd0", 64), ("ssd1", 64), ("hdd", 512))]


@pytest.fixture
def described(larder):
    return Described(larder)


def words(images, *more):
    ssd0, ssd1, hdd0 = images
    return ["create", "data", "--cache", ssd0, "--cache", ssd1, "--backing", hdd0, "--dry-run", *more]


def plan(larder, images, *more):
    """What is said of tiers: mode and class of the volume, labels and roles of the SSDs, the three targets."""
    said = {}
    for line in larder(*words(images, *more)).stdout.splitlines():
        name, _, rest = line.strip().partition(": ")
        said[name] = rest
    return said


SSD, APART = ["--cache-label", "ssd"], ["--cache-label", "nvme", "--cache-label", "sata"]
HDD, CACHED = ["--backing-label", "hdd"], ["--foreground", "ssd", "--promote", "ssd"]


@pytest.mark.parametrize(
    "options,volume,roles,tiers",
    [
        ([*SSD, *HDD, "ssd", "ssd", "hdd"], "mode writeback", "both both", "ssd ssd hdd"),
        ([*SSD, "ssd", "ssd", "backing"], "mode writeback", "both both", "ssd ssd backing"),
        ([*SSD, "ssd", "ssd"], "mode writeback", "both both", "ssd ssd backing"),
        ([*SSD, *HDD, "hdd", "ssd", "hdd"], "mode writearound", "both both", "hdd ssd hdd"),
        ([*SSD, "none", "ssd"], "mode writearound", "both both", "backing ssd backing"),
        ([*SSD, "--mode", "writethrough", "backing", "ssd"], "mode writethrough", "both both", "backing ssd backing"),
        ([*SSD, "--mode", "writeback", "ssd", "ssd"], "mode writeback", "both both", "ssd ssd backing"),
        ([*APART, "nvme", "sata"], "mode writeback", "write read", "nvme sata backing"),
        ([*SSD, "ssd", "none"], "mode writeback, class any:write-only", "both both", "ssd none backing"),
        (["--cache-label", "ssd.a", "--cache-label", "ssd.b", "ssd", "ssd.b"], "mode writeback", "write both", "ssd ssd.b backing"),
        (["--cache-label", "ssd.a", "--cache-label", "ssd.a", "ssd", "ssd"], "mode writeback", "both both", "ssd.a ssd.a backing"),
        ([*SSD, "--class", "special", "ssd", "ssd"], "mode writeback, class special", "both both", "ssd ssd backing"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_targets(larder, images, options, volume, roles, tiers):
    before = [digest(x) for x in images]
    end = max(i for i, word in enumerate(options) if word.startswith("--")) + 2
    targets = zip(("--foreground", "--promote", "--background"), options[end:], strict=False)
    said = plan(larder, images, *options[:end], *(word for target in targets for word in target))
    assert said["volume"] == f"data, {volume}"
    assert [said[f"SSD {i}"].split("role ")[1] for i in range(2)] == roles.split()
    assert [said[name] for name in ("foreground", "promote", "background")] == tiers.split()
    assert [digest(x) for x in images] == before


@pytest.mark.parametrize(
    "options,said",
    [
        ([*SSD, "--foreground", "ssd"], ["--promote: is missing", "or none"]),
        ([*SSD, "--promote", "ssd"], ["--foreground: is missing", "or backing"]),
        ([*SSD, "--background", "ssd"], ["--foreground: is missing"]),
        ([*SSD, "--foreground", "nvme", "--promote", "ssd"], ["--foreground: 'nvme'", "--cache-label", "--backing-label"]),
        ([*SSD, "--foreground", "ss", "--promote", "ssd"], ["--foreground: 'ss'"]),
        ([*SSD, "--foreground", "a b", "--promote", "ssd"], ["--foreground: 'a b'", "nor could it be one"]),
        ([*SSD, "--foreground", "ssd.a", "--promote", "ssd"], ["--foreground: 'ssd.a'"]),
        ([*SSD, "--foreground", "", "--promote", "ssd"], ["--foreground: its value is empty"]),
        ([*SSD, "--foreground", "ssd", "--promote", "backing"], ["--promote: 'backing' is the disks", "none"]),
        ([*SSD, *HDD, "--foreground", "ssd", "--promote", "hdd"], ["--promote: 'hdd' is the disks"]),
        ([*SSD, *CACHED, "--background", "ssd"], ["rest on the disks", "these are SSDs", "--background backing"]),
        ([*SSD, *HDD, *CACHED, "--background", "none"], ["--background hdd, or leave it out"]),
        ([*SSD, *CACHED, "--background", "hdd"], ["--backing-label gives them one"]),
        ([*SSD, "--foreground", "none", "--promote", "none"], ["leaves nothing to the SSDs", "writeback", "writearound"]),
        ([*APART, "--foreground", "nvme", "--promote", "nvme"], ["SSD 1 (label sata)", "of no use"]),
        (["--foreground", "backing", "--promote", "ssd"], ["--promote: 'ssd'", "--cache-label"]),
        ([*SSD, "--backing-label", "ssd.x", *CACHED], ["of SSDs and of the disks", "--backing-label"]),
        ([*SSD, "--mode", "writethrough", *CACHED], ["mode writeback", "--foreground backing"]),
        ([*SSD, "--mode", "writeback", "--foreground", "none", "--promote", "ssd"], ["writearound or writethrough", "LABEL"]),
        ([*SSD, "--class", "special", "--foreground", "ssd", "--promote", "none"], ["any:write-only", "--class special"]),
        ([*SSD, *SSD, *SSD], ["--cache-label: given 3 times for 2 SSDs"]),
        (["--cache-label", "none"], ["--cache-label: 'none'"]),
        (["--cache-label", "a..b"], ["--cache-label: 'a..b'", "between dots"]),
        (["--cache-label", ".a"], ["--cache-label: '.a'"]),
        (["--cache-label", "a."], ["--cache-label: 'a.'"]),
        (["--cache-label", "a b"], ["--cache-label: 'a b'"]),
        (["--cache-label", "x" * 32], ["1 to 31"]),
        (["--backing-label", "backing"], ["--backing-label: 'backing'"]),
    ],
    ids=lambda x: " ".join(x) if x and x[0].startswith("--") else None,
)
def test_targets_refused(larder, images, options, said):
    before = [digest(x) for x in images]
    one_line(larder(*words(images, *options), code=USAGE), *said)
    assert [digest(x) for x in images] == before


def test_resume_takes_none_of_them(larder):
    one_line(larder("create", "--resume", "data", "--foreground", "ssd", code=USAGE), "--resume: takes the name")
    one_line(larder("create", "--resume", "data", "--cache-label", "ssd", code=USAGE), "--resume: takes the name")


# ---------------------------------------------------------------------- where they are kept


def listed(ssd):
    """The description that an SSD has; None: it has none."""
    text = read(ssd, SB + ON_SSD["stack"][0] + HEAD, SIZE - HEAD).rstrip(b"\0")
    return json.loads(text) if text else None


def labelled(larder, images, *labels, roles=()):
    more = [x for label in labels for x in ("--cache-label", label)] + [x for role in roles for x in ("--role", role)]
    larder("cache", "create", "fast", "--cache", images[0], "--cache", images[1], *more)
    return images[:2]


def on_cache(larder, images, *more, code=0):
    return larder("create", "data", "--cache", "fast", "--backing", images[2], "--dry-run", *more, code=code)


def test_labels_of_a_cache(larder, images):
    ssds = labelled(larder, images, "nvme.0", "sata")
    for ssd in ssds:
        assert listed(ssd)["labels"] == ["nvme.0", "sata"]
        larder("super", "check", ssd)
    # by number, by UUID, by path; on all SSDs each time
    larder("cache", "label", "fast", "1", "nvme.1")
    assert [listed(x)["labels"] for x in ssds] == [["nvme.0", "nvme.1"]] * 2
    larder("cache", "label", "fast", uuid.UUID(bytes=field(ssds[0], CACHE, "uuid")), "none")
    assert [listed(x)["labels"] for x in ssds] == [["-", "nvme.1"]] * 2
    before = [digest(x) for x in images]
    assert "dry run" in larder("cache", "label", "fast", ssds[1], "other", "--dry-run").stdout
    one_line(larder("cache", "label", "fast", "2", "x", code=NOT_FOUND), "2", "no SSD of fast")
    one_line(larder("cache", "label", "fast", images[2], "x", code=NOT_FOUND), images[2], "no SSD of fast")
    one_line(larder("cache", "label", "slow", "0", "x", code=NOT_FOUND), "slow")
    one_line(larder("cache", "label", "fast", "0", "backing", code=USAGE), "LABEL: 'backing'")
    one_line(larder("cache", "label", "fast", "0", code=USAGE), "a word is missing")
    assert [digest(x) for x in images] == before
    larder("cache", "label", "fast", ssds[1], "none")
    assert [listed(x) for x in ssds] == [None, None]


def test_label_of_an_ssd_that_has_left(larder, images):
    """Its superblock still says that it has the place of the one that took it."""
    ssds = labelled(larder, images, "nvme.0", "sata")
    old = larder.image("old", images[0].stat().st_size, seen=False)
    shutil.copy(ssds[0], old)
    patch_both(old, CACHE, uuid=uuid.uuid4().bytes)
    larder.devices.insert(0, old)
    for word in (old, uuid.UUID(bytes=field(old, CACHE, "uuid"))):
        one_line(larder("cache", "label", "fast", word, "x", code=NOT_FOUND), word, "no SSD of fast")
    assert listed(ssds[0])["labels"] == ["nvme.0", "sata"]
    assert str(ssds[0]) in larder("cache", "label", "fast", "0", "nvme.1").stdout
    assert listed(ssds[0])["labels"] == ["nvme.1", "sata"]
    for ssd in (*ssds, old):
        for at in TABLES:
            signatures.write(ssd, at + 100, b"?")
    # which one it is nobody knows
    assert "SSD 0" in larder("cache", "label", "fast", old, "x", "--dry-run").stdout


@pytest.mark.parametrize("which", [0, 1])
def test_labels_of_one_put_back_from_an_image(larder, images, which):
    """It is told from the others by the generation of its superblock, which stays as it is when those of the others are written."""
    ssds = labelled(larder, images, "nvme.0", "sata")
    old, new = ssds[which], ssds[1 - which]
    had = field(old, CACHE, "generation")
    patch_both(new, CACHE, generation=had + 2, all_generation=had + 1)
    before = digest(old)
    for label in ("a", "b"):
        run = larder("cache", "label", "fast", "0", label)
        assert f"{old}: generation: is {had}, and all SSDs of the set had {had + 1}" in run.stderr
        assert digest(old) == before and listed(new)["labels"][0] == label
    assert field(new, CACHE, "generation") > had + 2
    patch_both(old, CACHE, generation=had + 1)
    assert larder("cache", "label", "fast", "0", "c").stderr == "" and listed(old)["labels"][0] == "c"


@identified
def test_label_in_a_cache_of_another_machine(larder, described):
    described.ssds({"ready": [f"{described.uuid} data"], "changing": [], "host": str(uuid.uuid4())})
    before = digest(described.ssd)
    one_line(larder("cache", "label", "fast", "0", "ssd", code=UNSAFE), "another machine")
    assert digest(described.ssd) == before


def test_cache_of_several_stacks(larder, images):
    """The roles are what they are: a further stack may ask for what they give."""
    labelled(larder, images, "nvme", "sata", roles=("write", "read"))
    said = on_cache(larder, images, "--foreground", "nvme", "--promote", "sata").stdout
    assert "volume: data, mode writeback\n" in said and "SSD 1: label sata, role read" in said
    said = on_cache(larder, images, "--foreground", "backing", "--promote", "sata").stdout
    assert "mode writearound" in said and "promote: sata" in said
    assert "class any:write-only" in on_cache(larder, images, "--foreground", "nvme", "--promote", "none").stdout
    run = on_cache(larder, images, "--foreground", "sata", "--promote", "sata", code=USAGE)
    one_line(run, "SSD 0 (label nvme) has the role write", "--foreground nvme")
    run = on_cache(larder, images, "--foreground", "nvme", "--promote", "nvme", code=USAGE)
    one_line(run, "--promote nvme", "--promote sata")
    run = on_cache(larder, images, "--cache-label", "x", code=USAGE)
    one_line(run, "larder cache label fast SSD LABEL")
    # no label means both of them
    patch_tables(images[0], device0__role=BOTH)
    patch_tables(images[1], device0__role=BOTH)
    run = on_cache(larder, images, "--foreground", "nvme", "--promote", "nvme", code=USAGE)
    one_line(run, "--promote nvme: SSD 1 (label sata) has the role read", "larder cache label")
    for at in (128 << 10, 256 << 10):
        for ssd in images[:2]:
            with open(ssd, "r+b") as image:
                image.seek(at + 100)
                image.write(b"?")
    one_line(on_cache(larder, images, code=FAILED), "table", "can be read")


def columns(larder, *more):
    run = larder("show", "data", "-o", "layer,label,foreground,promote,background", "--reportformat", "json", *more)
    rows = {row["layer"]: row for row in json.loads(run.stdout)["stacks"]}
    volume = rows["volume"]
    return rows["ssd"]["label"], rows["disk"]["label"], *(volume[x] for x in ("foreground", "promote", "background"))


def test_columns(larder, described):
    entry = {"ready": [f"{described.uuid} data"], "changing": []}
    described.volume(described.plain)
    described.ssds(entry)
    assert columns(larder) == ("", "", "ssd0", "ssd0", "backing")
    described.ssds(entry | {"labels": ["ssd.fast"]})
    described.volume(described.plain | {"disks": "hdd"})
    assert columns(larder) == ("ssd.fast", "hdd", "ssd.fast", "ssd.fast", "hdd")
    described.volume(described.plain | {"disks": "hdd", "mode": "writearound"})
    assert columns(larder) == ("ssd.fast", "hdd", "hdd", "ssd.fast", "hdd")
    for rules in ("any:write-only", "lba-8-16:pin-75/any:write-only"):
        described.volume(described.plain | {"class": rules})
        assert columns(larder)[2:] == ("ssd.fast", "none", "backing")
    assert "ssd.fast" in larder("list", "-o", "+label").stdout
    # of several, where no label means them all
    other = larder.image("other", described.ssd.stat().st_size)
    other.write_bytes(described.ssd.read_bytes())
    patch_both(other, CACHE, uuid=uuid.uuid4().bytes, device_number=1)
    shown_as = ((["a", "b"], "a,b"), (["a"], "a,ssd1"), (["x.a", "x.b"], "x"), (["x.a", "x.a"], "x.a"), (["-", "b"], "ssd0,b"))
    for labels, shown in shown_as:
        for ssd in (described.ssd, other):
            patch_both(ssd, ON_SSD, stack=pack(entry | {"labels": labels}, OF_CACHE))
        described.volume(described.plain)
        assert columns(larder)[2] == shown


def test_labels_survive(larder, described):
    """A new name, another stack, another cache."""
    described.volume(described.plain | {"disks": "hdd"})
    described.ssds({"ready": [f"{described.uuid} data"], "changing": [], "labels": ["ssd"]})
    larder("rename", "data", "films")
    larder("rename", "films", "data")
    assert columns(larder) == ("ssd", "hdd", "ssd", "ssd", "hdd")
    assert json.loads(read(described.hdd, SB + ON_VOLUME["stack"][0] + HEAD, SIZE - HEAD).rstrip(b"\0"))["disks"] == "hdd"
    new = [larder.image(f"new{i}", 64 * MIB) for i in range(2)]
    larder("replace", "data", "cache", *new, "--cache-label", "nvme", "--yes")
    assert [listed(x)["labels"] for x in new] == [["nvme", "nvme"]] * 2
    # the former cache has lost the stack, and no label
    assert listed(described.ssd) == {"ready": [], "changing": [], "labels": ["ssd"]}
    run = larder("replace", "data", "cache", "fast", "--cache-label", "x", "--yes", code=USAGE)
    one_line(run, "larder cache label fast SSD LABEL")


@pytest.mark.parametrize("labels", [["none"], [""], ["a", 1], "a", ["a"] * 17, ["a" * 32], [["a"]], ["a\u0000b"], ["a."]], ids=str)
def test_damaged_labels(larder, described, labels):
    described.ssds({"ready": [f"{described.uuid} data"], "changing": [], "labels": labels})
    run = larder("list")
    assert f"{described.ssd}: stack: has a key that is not known, or a value out of bounds" in run.stderr
    before = digest(described.ssd)
    assert "out of bounds" in larder("cache", "label", "fast", "0", "ssd", code=FAILED).stderr
    assert digest(described.ssd) == before


@pytest.mark.parametrize("disks", ["none", "", 1, "a" * 32, "a/b"], ids=str)
def test_damaged_label_of_the_disks(larder, described, disks):
    described.volume(described.plain | {"disks": disks})
    assert "out of bounds" in larder("list").stderr


def test_full_list(larder, described):
    """Where there is no room for one more label it is refused, and what is there stays."""
    full = {"ready": [f"{uuid.uuid4()} {'n' * 26}{i:02}" for i in range(29)], "changing": []}
    described.ssds(json.dumps(full, separators=(",", ":")).encode())
    before = digest(described.ssd)
    run = larder("cache", "label", "fast", "0", "x" * 31, code=FAILED)
    assert "does not fit" in run.stderr and "shorter, or fewer stacks" in run.stderr
    # a shorter one fits, and then none of them could be removed
    one_line(larder("cache", "label", "fast", "0", "x", code=FAILED), "label", "no room to remove", full["ready"][0].split()[1])
    assert digest(described.ssd) == before
    full["ready"] = full["ready"][:20]
    described.ssds(json.dumps(full, separators=(",", ":")).encode())
    larder("cache", "label", "fast", "0", "x")


@pytest.mark.parametrize(
    "verb,said",
    [
        (["add", "data", "--backing", "/new", "--cache-label", "x"], "--cache-label goes with --cache"),
        (["add", "data", "--cache", "/new", "--spare", "--cache-label", "x"], "--cache-label goes with --cache"),
        (["add", "data", "--cache", "/new", "--cache-label", "none"], "--cache-label: 'none'"),
        (["replace", "data", "ssd0", "/new", "--cache-label", "none"], "--cache-label: 'none'"),
        (["cache", "add", "fast", "/new", "--cache-label", "-"], "--cache-label: '-'"),
        (["cache", "add", "fast", "/new", "--spare", "--cache-label", "x"], "--spare"),
        (["cache", "replace", "fast", "0", "/new", "--cache-label", ""], "--cache-label: its value is empty"),
        (["cache", "create", "fast", "--cache", "/new", "--cache-label", ""], "--cache-label: its value is empty"),
        (["cache", "create", "fast", "--cache", "/new", *SSD, *SSD], "2 times for 1 SSDs"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_usage_of_labels(larder, verb, said):
    one_line(larder(*verb, code=USAGE), said)
