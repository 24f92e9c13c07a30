# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots of stacks without device-mapper: what descriptions of them may say, and what starts, would start, and is refused."""

import json
import os
import struct
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import (
    BUSY,
    DONE,
    FAILED,
    HEAD,
    KIB,
    MAGIC,
    MIB,
    NOT_FOUND,
    SB,
    SB_SIZE,
    UNSAFE,
    USAGE,
    VOLUME,
    attach_by_hand,
    blkid,
    digest,
    field,
    one_line,
    patch,
    patch_both,
    patch_tables,
    read,
)
from test_command_stack import Described

pytest_plugins = ["larder_fixtures"]


@pytest.fixture
def described(larder):
    return Described(larder)


def store_of(larder, described, serial, name="store", size=64 * MIB):
    """A device with the mark of a store."""
    path = larder.image(name, size)
    mark = uuid.uuid5(described.uuid, f"snapshot {serial}").bytes
    patch(path, HEAD, at=SB, magic=MAGIC, version=1, kind=4, generation=1, uuid=mark, device_sectors=size // 512)
    return path


def listed(larder):
    text = larder("snapshot", "list", "-o", "all", "--reportformat", "json").stdout
    return {r["snapshot"]: r for r in json.loads(text)["snapshots"]}


def assembled(larder, code):
    return larder("assemble", "--all", "--degraded", "--dry-run", code=code)


BAD = [
    "17 ready daily",
    [],
    [17],
    ["17 ready"],
    ["17 ready daily more"],
    ["0 ready daily"],
    ["017 ready daily"],
    ["-1 ready daily"],
    ["99999999999999999999 ready daily"],
    ["17 gone daily"],
    ["17 ready a@b"],
    ["17 ready a/b"],
    ["17 ready ."],
    ["17 ready " + 32 * "x"],
    ["17 ready a", "17 ready b"],
    ["17 ready a", "18 ready a"],
    [f"{i} ready s{i}" for i in range(1, 10)],
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_description_is_refused(larder, described, bad):
    """As by a larder that does not know snapshots: nothing starts by itself, and the reason is said."""
    described.volume(described.plain | {"snapshots": bad})
    rows, said = described.rows()
    assert not rows and "not known, or a value out of bounds" in said
    one_line(larder("volume", "start", "data", "--dry-run", code=5), "newer larder")


def test_not_while_it_is_made(larder, described):
    described.volume(described.plain | {"state": "creating", "snapshots": ["17 ready daily"]})
    assert "contradicts itself" in described.rows()[1]


def test_store_is_missing(larder, described):
    """Refused, whoever starts it; one that does not count holds up nothing."""
    described.volume(described.plain | {"snapshots": ["17 ready daily", "19 creating weekly", "20 lost x", "21 removing y"]})
    assert {k: (v["state"], v["store"]) for k, v in listed(larder).items()} == {
        "data@daily": ("stopped", ""),
        "data@weekly": ("creating", ""),
        "data@x": ("lost", ""),
        "data@y": ("removing", ""),
    }
    before = digest(described.hdd)
    for how in ("--without-cache", "--without-module"):
        run = larder("volume", "start", "data", how, "--dry-run", code=NOT_FOUND)
        one_line(run, "snapshot daily", "--drop-snapshot daily")
    larder.devices.remove(described.ssd)
    run = assembled(larder, 5)
    assert "the store of its snapshot daily is not here" in run.stdout + run.stderr
    assert "dmsetup create data" not in run.stdout
    one_line(larder("remove", "data", "--discard-data", described.uuid, code=BUSY), "has snapshots")
    assert digest(described.hdd) == before
    described.volume(described.plain | {"snapshots": ["19 creating weekly", "20 lost x", "21 removing y"]})
    assert "dmsetup create data --uuid" in assembled(larder, 0).stdout


def test_given_up_behind_what_is_refused(larder, loop):
    """An SSD is away as well: to give up the snapshot is no word for that, and whoever attaches both has it still."""
    described = Described(larder, larder.image("other", 64 * MIB))
    described.volume(described.plain | {"snapshots": ["17 ready daily"]})
    described.ssds({"ready": [f"{described.uuid} data 3"], "changing": []})
    images = described.ssd, *described.others, described.hdd
    before = [digest(x) for x in images]
    larder.devices = [loop(described.ssd), described.hdd]
    one_line(larder("start", "data", "--drop-snapshot", "daily", code=UNSAFE), "SSDs that were not found", "--degraded")
    assert [digest(x) for x in images] == before


@pytest.mark.parametrize("verb", [["start"], ["volume", "start"]])
def test_given_up_without_the_module(larder, described, loop, verb):
    """Of a volume that is dirty it is refused, and the snapshot is still there."""
    described.volume(described.plain | {"snapshots": ["17 ready daily"]})
    described.ssds({"ready": [f"{described.uuid} data 3"], "changing": []})
    device, start = loop(described.hdd), [*verb, "data", "--without-module", "--drop-snapshot", "daily"]
    larder.devices = [described.ssd, device]
    patch_both(device, VOLUME, flags=1)
    before = [digest(x) for x in (described.ssd, described.hdd)]
    one_line(larder(*start, code=UNSAFE), device, "may_be_dirty", "larder rescue writeback")
    if verb == ["start"]:  # nor without any of its SSDs
        larder.devices = [device]
        run = larder(*verb, "data", "--degraded", "--drop-snapshot", "daily", code=UNSAFE)
        one_line(run, device, "may_be_dirty", "bring that cache back")
        larder.devices = [described.ssd, device]
    assert [digest(x) for x in (described.ssd, described.hdd)] == before
    patch_both(device, VOLUME, flags=0)
    if verb == ["volume", "start"]:
        before = digest(described.hdd)
        for how in ("--without-module", "--without-cache"):
            one_line(larder(*verb, "data", how, "--drop-snapshot", "daily", "--name", "/", code=USAGE), "--name")
        larder(*start, "--dry-run")
        assert digest(described.hdd) == before
    larder(*start, code=None)  # device-mapper need not be here
    assert listed(larder)["data@daily"]["state"] == "lost"


def test_of_an_older_disk(larder, described):
    """What is stored on it would make it as new as its SSDs say, and their cache would lie over it."""
    described.volume(described.plain | {"snapshots": ["17 ready daily", "19 lost weekly"]})
    described.ssds({"ready": [f"{described.uuid} data 5"], "changing": []})
    before = [digest(x) for x in (described.ssd, described.hdd)]
    for name in ("daily", "weekly"):
        one_line(larder("snapshot", "remove", f"data@{name}", code=5), "generation 3 here", "have seen 5")
    give_up = ["start", "data", "--discard-newer", described.uuid]
    one_line(larder(*give_up, code=5), "snapshot daily shares what is newer", "--drop-snapshot daily")
    assert [digest(x) for x in (described.ssd, described.hdd)] == before
    was = field(described.hdd, VOLUME, "incarnation")
    assert "losetup" in larder(*give_up, "--drop-snapshot", "daily", code=USAGE).stderr
    assert field(described.hdd, VOLUME, "incarnation") != was
    assert {k: v["state"] for k, v in listed(larder).items()} == {"data@daily": "lost", "data@weekly": "lost"}
    # and as new as anybody knows: what is stored lowers nothing
    removed(larder, "weekly")
    larder("volume", "start", "data", "--without-cache", "--dry-run")


def test_older_disk_is_accepted(larder, described):
    """What it, or its cache, has lost a snapshot shares: it would be of two moments."""
    described.volume(described.plain | {"snapshots": ["17 ready daily"]})
    described.ssds({"ready": [f"{described.uuid} data 3"], "changing": []})
    store_of(larder, described, 17)
    attach_by_hand(described.ssd, described.hdd)
    generation, was = (field(described.hdd, VOLUME, name) for name in ("generation", "incarnation"))
    start = ["volume", "start", "data", "--dry-run"]
    for word in ("accept", "discard"):
        for older in (1, 0):
            patch_tables(described.ssd, volume0__incarnation=was, volume0__seen=generation + older)
            run = larder(*start, "--option", f"stale={word}", code=UNSAFE if older else DONE)
            if older:
                one_line(run, "snapshot daily shares what is lost", "--drop-snapshot daily")
            else:
                assert "dmsetup create data@daily " in run.stdout
    patch_tables(described.ssd, volume0__seen=generation + 1)
    one_line(larder(*start, "--option", "stale=accept", "--drop-snapshot", "x", code=NOT_FOUND), "it has no snapshot x")
    run = larder(*start, "--option", "stale=accept", "--drop-snapshot", "daily")
    assert "data@daily" not in run.stdout and "stale accept" in run.stdout.splitlines()[-1]


def test_order_of_a_start(larder, described):
    """Stores, what is below, snapshots, and last of all what can be written to."""
    described.volume(described.plain | {"snapshots": ["17 ready daily", "19 ready weekly"]})
    store_of(larder, described, 17)
    weekly = store_of(larder, described, 19, "other")
    wanted = [
        "data@daily-store",
        "data@weekly-store",
        "data-origin",
        "data@daily",
        "data@weekly",
        "data",
    ]
    text = larder("volume", "start", "data", "--without-cache", "--dry-run").stdout
    assert [line.split()[2] for line in text.splitlines() if line.startswith("dmsetup create")] == wanted
    assert text.splitlines()[-1].split("'")[1].split()[2] == "snapshot-origin"
    larder.devices.remove(described.ssd)
    text = assembled(larder, 0).stdout
    assert [line.split()[2] for line in text.splitlines() if line.startswith("dmsetup create")] == wanted
    # a copy of a store is none
    copy = larder.image("copy", 64 * MIB)
    copy.write_bytes(weekly.read_bytes())
    run = assembled(larder, 5)
    assert str(weekly) in run.stdout + run.stderr and str(copy) in run.stdout + run.stderr
    assert "dmsetup create data" not in run.stdout


def removed(larder, name, code=DONE, env=None):
    run = larder("snapshot", "remove", f"data@{name}", code=code, env=env)
    assert code or f"snapshot data@{name}: removed" in run.stdout
    return run


@pytest.mark.parametrize("kept", [signatures.md_1_0, signatures.zfs_tail, signatures.gpt_backup], ids=lambda kept: kept.__name__)
def test_kept_data_look_like_a_signature(larder, described, kept):
    """Of the stack, at the end of a store, where libblkid looks: no start minds, and a removal leaves nothing of it."""
    described.volume(described.plain | {"snapshots": ["17 ready daily"]})
    store = store_of(larder, described, 17)
    kept(store)
    larder("volume", "start", "data", "--without-cache", "--dry-run")
    assert not removed(larder, "daily").stderr
    assert not listed(larder) and not field(store, HEAD, "magic").strip(b"\0") and not blkid(store)


def kept(store, chunk, *origins):
    """As dm-snapshot keeps chunks of the volume with these numbers, in as many areas as it takes; where each is in the store."""
    places, each, area = {}, chunk // 16, 1
    signatures.write(store, MIB, struct.pack("<4I", 0x70416E53, 1, 1, chunk // 512))
    for at in range(0, len(origins) + 1, each):
        table = b""
        for i, origin in enumerate(origins[at : at + each]):
            places[origin] = MIB + (area + 1 + i) * chunk
            signatures.write(store, places[origin], b"%07d." % origin * (chunk // 8))
            table += struct.pack("<2Q", origin, area + 1 + i)
        signatures.write(store, MIB + area * chunk, table.ljust(chunk, b"\0"))
        area += each + 1
    return places


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("chunk", [16 * KIB, 4 * KIB])
def test_kept_key_slots_are_overwritten(larder, described, encrypted, chunk):
    """What the store has of the first 16 MiB of the volume, which is where LUKS has them; in whichever area; and nothing else."""
    crypt = {"crypt": str(uuid.uuid5(described.uuid, "crypt"))} if encrypted else {}
    described.volume(described.plain | crypt | {"snapshots": ["17 ready daily"]})
    store = store_of(larder, described, 17)
    slots = 16 * MIB // chunk
    origins = [5000 + i for i in range(chunk // 16 - 1)] + [slots - 1, slots, 0, *range(9000, 9300), 1]
    places = kept(store, chunk, *origins)
    assert not removed(larder, "daily").stderr
    assert not listed(larder) and not field(store, HEAD, "magic").strip(b"\0")
    gone = {origin for origin, at in places.items() if not read(store, at, chunk).strip(b"\0")}
    assert gone == ({slots - 1, 0, 1} if encrypted else set())
    assert all(read(store, at, 8) == b"%07d." % origin for origin, at in places.items() if origin not in gone)


def test_kept_key_slots_are_wiped(larder, described):
    """Of a store that was away when its snapshot was removed."""
    store = store_of(larder, described, 17)
    places = kept(store, 16 * KIB, 0, 5000)
    one_line(larder("super", "wipe", store, code=FAILED), store, "--yes")
    assert read(store, places[0], 8).strip(b"\0")
    assert not larder("super", "wipe", store, "--yes").stderr
    assert not field(store, HEAD, "magic").strip(b"\0")
    assert not read(store, places[0], 16 * KIB).strip(b"\0") and read(store, places[5000], 8) == b"0005000."


def test_inactive_store_is_activated(larder, described, lvm):
    """Key slots that it has kept would stay in the space that it has had; where it cannot be, that is said."""
    crypt = {"crypt": str(uuid.uuid5(described.uuid, "crypt"))}
    described.volume(described.plain | crypt | {"snapshots": ["17 lost daily"]})
    name = f"space/larder-{uuid.uuid5(described.uuid, 'snapshot 17')}"
    assert not removed(larder, "daily", env=lvm("  space\n", 0)).stderr
    assert lvm.told() == f"lvchange --yes --activate y {name}\nlvremove --yes {name}\n"


def test_store_that_tells_nothing_of_its_chunks(larder, described):
    """Its head says what cannot be: it is given up all the same, with a line."""
    described.volume(described.plain | {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "snapshots": ["17 ready daily"]})
    for size in (0, 512, 24 * KIB, 1 << 30):
        store = store_of(larder, described, 17)
        kept(store, 16 * KIB, 0)
        signatures.write(store, MIB + 12, struct.pack("<I", size // 512))
        one_line(removed(larder, "daily"), store, "LUKS header cannot be overwritten")
        assert not listed(larder)
        described.ssds({"ready": [f"{described.uuid} data"], "changing": []})  # or it is older than they have seen by now
        described.volume(described.plain | {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "snapshots": ["17 ready daily"]})
        larder.devices.remove(store)
        store.unlink()
    # places beyond its end, and in front of its contents
    store = store_of(larder, described, 17)
    kept(store, 16 * KIB, 0, 1, 2)
    signatures.write(store, MIB + 16 * KIB, struct.pack("<6Q", 0, 1 << 40, 1, 4096, 2, (1 << 64) - 1))
    before = store.stat().st_size
    assert not removed(larder, "daily").stderr
    assert store.stat().st_size == before and not listed(larder)


def test_store_is_somebody_elses(larder, described):
    """A signature in front of the data is no part of them."""
    described.volume(described.plain | {"snapshots": ["17 ready daily"]})
    store = store_of(larder, described, 17)
    signatures.luks(store)
    before = digest(store)
    one_line(larder("volume", "start", "data", "--without-cache", "--dry-run", code=UNSAFE), store, "crypto_LUKS")
    one_line(removed(larder, "daily"), store, "crypto_LUKS", "left as it is")
    assert not listed(larder) and digest(store) == before


@pytest.fixture
def lvm(tmp_path):
    """Of our own: what `lvs` says, and how it ends, and what else it was told.  The environment of who is to run it."""
    directory, told = tmp_path / "bin", tmp_path / "told"
    directory.mkdir()
    program = directory / "lvm"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = lvs ] || {{ echo "$@" >> {told}; exit 0; }}\ncat {tmp_path}/lvs\nexit $(cat {tmp_path}/code)\n'
    )
    program.chmod(0o755)

    def says(text, code):
        (tmp_path / "lvs").write_text(text)
        (tmp_path / "code").write_text(str(code))
        told.write_text("")
        return {"PATH": f"{directory}:{os.environ['PATH']}"}

    says.told = told.read_text
    return says


def test_lvm_cannot_be_asked(larder, described, lvm):
    """Whether a store that is not here is a logical volume: the snapshot is not forgotten before that is known."""
    described.volume(described.plain | {"snapshots": ["17 ready daily", "19 ready weekly", "21 ready x"]})
    name = f"larder-{uuid.uuid5(described.uuid, 'snapshot 17')}"
    one_line(removed(larder, "daily", FAILED, lvm("", 5)), name, "lvs: has failed", "run the same again")
    assert listed(larder)["data@daily"]["state"] == "removing" and not lvm.told()
    assert not removed(larder, "daily", env=lvm("  space\n", 0)).stderr
    assert lvm.told() == f"lvremove --yes space/{name}\n" and set(listed(larder)) == {"data@weekly", "data@x"}
    # it has said where it is, and failed with another group
    removed(larder, "weekly", env=lvm("  space\n", 5))
    assert "lvremove --yes space/larder-" in lvm.told()
    # what is here, and is none of LVM's, needs no answer
    store = store_of(larder, described, 21)
    assert not removed(larder, "x", env=lvm("", 5)).stderr
    assert not listed(larder) and not field(store, HEAD, "magic").strip(b"\0") and not lvm.told()


def test_store_is_not_here(larder, described, lvm):
    """The snapshot goes; how its store is ended, wherever it is, is said."""
    described.volume(described.plain | {"snapshots": ["17 lost daily"]})
    name = uuid.uuid5(described.uuid, "snapshot 17")
    run = removed(larder, "daily", env=lvm("", 0))
    one_line(run, f"its store {name} is not here", "larder super wipe", f"lvremove, if it is the logical volume larder-{name}")
    assert not listed(larder) and not lvm.told()


def lost_disk(larder, described):
    """Both superblocks of the disk are gone.  The words that put them back from a backup of just before, and its UUID."""
    file, copy = larder.directory / "backup", field(described.hdd, VOLUME, "copy_offset")
    name = str(uuid.UUID(bytes=field(described.hdd, VOLUME, "uuid")))
    larder("super", "backup", described.hdd, file)
    for at in (SB, copy):
        signatures.write(described.hdd, at, bytes(SB_SIZE))
    return ("super", "restore", file, described.hdd), name


def test_volume_from_a_backup_has_no_snapshots(larder, described):
    """What they share with it was in the cache, too, that it comes back without."""
    described.volume(described.plain | {"snapshots": ["17 ready daily", "19 removing weekly"]})
    store_of(larder, described, 17)
    assert listed(larder)["data@daily"]["state"] == "stopped"
    restore, name = lost_disk(larder, described)
    one_line(larder(*restore, code=UNSAFE), "each snapshot", "LOST")
    larder(*restore, "--discard-dirty", name)
    assert [s["state"] for s in listed(larder).values()] == ["lost", "lost"]


@pytest.mark.parametrize(("state", "said"), [("creating", "created"), ("removing", "removed")])
def test_volume_from_a_backup_of_half_a_stack(larder, described, state, said):
    """Who finishes that formats, or wipes, what has come to be on it since."""
    described.volume(described.plain | {"state": state})
    restore, name = lost_disk(larder, described)
    one_line(larder(*restore, "--discard-dirty", name, code=UNSAFE), f"was being {said}", "newer backup")


@pytest.mark.parametrize("bad", ["", "-x", ".", "..", "a/b", "a b", "x" * 128, 17], ids=str)
def test_space_that_is_none(larder, described, bad):
    """As what this larder does not know: nothing starts by itself."""
    described.volume(described.plain | {"space": bad})
    assert "start" not in assembled(larder, None).stdout
    described.volume(described.plain | {"space": "vg0"})
    shown = json.loads(larder("show", "data", "-o", "+space", "--reportformat", "json").stdout)
    assert "vg0" in str(shown)


def test_space_is_asked_for(larder, described):
    described.volume(described.plain)
    before = digest(described.hdd)
    run = larder("snapshot", "create", "data@one", code=USAGE)
    one_line(run, "--store: is missing", "larder set data --snapshot-space GROUP")
    one_line(larder("snapshot", "create", "data@one", "--size", "soon", code=USAGE), "--size", "'soon' is no size")
    one_line(larder("snapshot", "create", "data@one", "--size", "1G", "--store", "/dev/x", code=USAGE), "--size", "/dev/x has one")
    one_line(larder("set", "data", "--snapshot-space", "a/b", code=USAGE), "'a/b' is not a volume group")
    assert digest(described.hdd) == before
