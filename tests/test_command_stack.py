# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks without devices: what `larder create` would do and refuses; descriptions that anybody may have written."""

import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
sys.path.append(str(Path(__file__).resolve().parent / "vm/guest/lib"))
import signatures
from harness import (
    BUSY,
    CACHE,
    FAILED,
    KIB,
    MIB,
    NOT_FOUND,
    SB,
    SB_SIZE,
    TABLE_SIZE,
    TABLES,
    TOP,
    UNSAFE,
    USAGE,
    VOLUME,
    attach_by_hand,
    digest,
    field,
    one_line,
    patch_both,
    pieces,
    patch_tables,
    preload,
    preloaded,
    read,
)
from question import answered

pytest_plugins = ["larder_fixtures"]

SIZE, HEAD, MAGIC = 2048, 16, 0x4B54534C
ON_VOLUME, ON_SSD = VOLUME | {"stack": (512, f"{SIZE}s")}, CACHE | {"stack": (928, f"{SIZE}s")}
OF_VOLUME, OF_CACHE = 1, 2
BROKEN = 11
CLEAN_STOP = 1
DEVICES = [["replace", "data", "disk0", "/new"], ["add", "data", "--backing", "/new", "--spare"], ["drop", "data", "ssd0"]]


MACHINE_ID = Path("/etc/machine-id")
identified = pytest.mark.skipif(
    not MACHINE_ID.exists() or len(MACHINE_ID.read_text().strip()) != 32, reason="this machine has no machine-id"
)


@pytest.fixture
def images(larder):
    """Two SSDs, two disks of unequal size."""
    sizes = {"ssd0": 64, "ssd1": 64, "hdd0": 512, "hdd1": 600}
    return [larder.image(name, size * MIB) for name, size in sizes.items()]


def words(images, *more, raid="1"):
    ssd0, ssd1, hdd0, hdd1 = images
    return ["create", "data", "--cache", ssd0, "--cache", ssd1, "--backing", hdd0, "--backing", hdd1, "--raid", raid, *more]


# ---------------------------------------------------------------------- the plan


def test_plan_changes_nothing(larder, images):
    key = larder.directory / "key"
    key.write_bytes(b"k" * 64)
    before = [digest(i) for i in images]
    said = larder(*words(images, "--encrypt", f"luks2:keyfile={key}", "--mkfs", "xfs", "--label", "films"), "--dry-run").stdout
    for part in ("RAID 1 of 2 disks", "bitmap", "unused: 88.00MiB", "mode writeback", "xfs, label films", "on two of them"):
        assert part in said, part
    assert f"opened by {key}" in said
    said = larder(*words(images, "--backing", larder.image("hdd2", 512 * MIB), raid="5"), "--dry-run").stdout
    assert "bitmap" in said and "parity: has no log" in said, "of a file nobody knows whether it has a write cache"
    assert [digest(i) for i in images] == before


def test_plan_of_a_cache_above_the_limit(larder, images):
    """Two SSDs that only together are too large; a spare counts for itself."""
    large, *_ = images
    try:
        os.truncate(large, 17 << 40)
        other = larder.image("large", 16 << 40)
    except OSError:
        pytest.skip("the file system of the tests has no files of that size")
    before = [digest(i) for i in images]
    base = ["create", "data", "--cache", large, "--backing", images[2], "--dry-run"]
    one_line(larder(*base, "--cache", other, code=FAILED), other, "32 TiB", "all its SSDs together")
    os.truncate(other, 17 << 40)
    larder(*base, "--cache-spare", other)
    assert [digest(i) for i in images] == before


def test_plan_of_authenticated_encryption(larder, images):
    before = [digest(i) for i in images]
    said = larder(*words(images, "--encrypt", "luks2-aead", "--mkfs", "ext4"), "--dry-run").stdout
    for part in (
        "LUKS2, authenticated by chacha20-poly1305, opened by a passphrase",
        "written once before",
        "cannot grow",
        "no discards",
    ):
        assert part in said, part
    said = larder(*words(images, "--encrypt", "luks2-aead:passphrase", "--cipher", "aes-gcm"), "--dry-run").stdout
    assert "authenticated by aes-gcm" in said
    assert "authenticated" not in larder(*words(images, "--encrypt", "luks2"), "--dry-run").stdout
    assert [digest(i) for i in images] == before


def test_plan_of_a_size(larder, images):
    """Of a volume that leaves room: shown; refused where it is no size for this stack, with one that is."""
    ssd, _, hdd, _ = images
    before = [digest(i) for i in images]
    alone = ["create", "data", "--cache", ssd, "--backing", hdd, "--dry-run"]
    said = larder(*alone, "--size", "100M").stdout
    assert "volume: data, 100.00MiB, mode" in said and "free: the rest of the disk; larder resize takes it" in said
    assert "free:" not in larder(*alone).stdout
    assert "the rest of the array" in larder(*words(images, "--size", "400M"), "--dry-run").stdout
    said = larder(*words(images, "--size", "400M", "--encrypt", "luks2-aead"), "--dry-run").stdout
    assert "free: the rest of the array; a stack with tags cannot grow into it" in said
    assert "the rest of each disk" in larder(*separate(images, "--size", "510M")).stdout

    def refused(code, more, *parts, base=alone):
        one_line(larder(*base, *more, code=code), *parts)

    for size in ("0", "100000001", "512b"):
        refused(USAGE, ["--size", size], "--size", "multiple of 4096", "not 0")
    refused(USAGE, ["--size", "much"], "--size", "not a size")
    refused(USAGE, ["--size", "8M", "--encrypt", "luks2"], "--size", "too small", "20.00MiB")
    room = 510 * MIB  # 1 MiB before the data, and one behind them
    larder(*alone, "--size", room)
    refused(FAILED, ["--size", room + 4096], hdd, "--size", str(room))
    refused(FAILED, ["--size", "520M"], hdd, "--size", str(room), base=separate(images))
    given = larder(*words(images, "--size", "511M", "--dry-run"), code=FAILED)
    one_line(given, "--raid", "--size")
    larder(*words(images, "--size", re.search(r"\(([0-9]+) bytes\)", given.stderr)[1]), "--dry-run")
    refused(USAGE, [], "--resume", base=["create", "data", "--resume", "--size", "100M"])
    # of large disks mdadm leaves 128 MiB in front, to be reshaped into, and a little more
    tera, large = 1 << 40, [*images[:2], *(larder.image(f"large{i}", 1 << 40) for i in range(2))]
    refused(FAILED, ["--size", tera - 130 * MIB, "--dry-run"], "--raid", "--size", base=words(large))
    larder(*words(large, "--size", tera - 136 * MIB, "--dry-run"))
    assert [digest(i) for i in images] == before


def test_size_of_a_volume(larder, images):
    """Of `volume create`: the superblock has it, and the rest is free."""
    hdd = images[2]
    made = ["volume", "create", "data", "--backing", hdd, "--yes"]
    for size, code in (("0", USAGE), ("1000", USAGE), ("511M", FAILED)):
        one_line(larder(*made, "--size", size, code=code), hdd, "--size")
    assert not any(read(hdd, SB, SB_SIZE))
    assert "100.00MiB" in larder(*made, "--size", "100M").stdout
    assert field(hdd, VOLUME, "sectors") == 100 * MIB // 512


def test_free_room_is_shown(larder, described):
    described.volume(described.plain)
    show = ["show", "data", "-o", "layer,free", "--units", "b", "--reportformat", "json"]

    def free():
        return {r["layer"]: r["free"] for r in json.loads(larder(*show).stdout)["stacks"]}["volume"]

    assert not free()
    patch_both(described.hdd, VOLUME, sectors=field(described.hdd, VOLUME, "sectors") - 2048)
    assert free() == f"{MIB}B"


def test_plan_with_integrity(larder, images):
    """What the sums take is shown, and counted where there is not enough left."""
    before = [digest(i) for i in images]
    said = larder(*words(images, "--integrity"), "--dry-run").stdout
    assert "integrity: crc32c of each 4 KiB" in said and "with a journal" in said
    taken = float(re.search(r"they take ([0-9.]+)MiB of 512.00MiB", said)[1])
    least = 512 / 1024 + 512 / 128 + 1
    assert least <= taken <= least + 1, "a tag of 4 bytes for 4 KiB, a 128th for the journal, the superblock"
    assert "integrity" not in larder(*words(images), "--dry-run").stdout
    small = [larder.image(f"small{i}", 22 * MIB) for i in range(2)]
    larder(*words([*images[:2], *small], "--mkfs", "ext4"), "--dry-run")
    one_line(larder(*words([*images[:2], *small], "--mkfs", "ext4", "--integrity"), "--dry-run", code=FAILED), "too small")
    assert [digest(i) for i in images] == before


LEG_FLAG = 1


def become_leg(described):
    """Its disk is one of an array with dm-integrity, of which nobody has started anything."""
    own = uuid.uuid5(described.uuid, "disk 0").bytes
    patch_both(described.hdd, VOLUME, kind=4, flags=LEG_FLAG, copy_offset=0, uuid=own, cache_uuid=described.uuid.bytes)


def test_leg_with_integrity(larder, described):
    """A disk that says whose leg it is: shown with its stack, whose array nobody has started; removed with it."""
    described.ssds({"ready": [f"{described.uuid} data"], "changing": []})
    become_leg(described)
    with open(described.hdd, "r+b") as f:
        f.seek(MIB)
        f.write(b"integrt\0" * 512)
    assert described.rows()[0][0]["state"] == "stopped", "its leg is here"
    assert f"leg with dm-integrity of the stack {described.uuid}" in larder("probe", described.hdd).stdout
    md = str(uuid.uuid5(described.uuid, "md"))
    text = described.plain | {"state": "creating", "step": 1, "raid": "1", "legs": 2, "md": md, "integrity": "crc32c"}
    described.ssds({"ready": [], "changing": [text]})
    rows = json.loads(larder("list", "-o", "layer,type,device", "--reportformat", "json").stdout)["stacks"]
    assert [(r["type"], r["device"]) for r in rows if r["layer"] == "disk"] == [("crc32c", str(described.hdd))]
    larder("remove", "data")
    assert not described.rows()[0]
    left = described.hdd.read_bytes()
    assert not any(left[SB : SB + SB_SIZE]) and not any(left[MIB : 2 * MIB]), "superblock, or dm-integrity's"


def test_default_mode_and_its_reason(larder, images):
    ssd0, _, hdd0, _ = images
    one = ["create", "data", "--backing", hdd0, "--cache", ssd0, "--dry-run"]
    said = larder(*one).stdout
    assert "mode writethrough: there is one SSD" in said and "RISK" not in said
    said = larder(*one, "--mode", "writeback").stdout
    assert "RISK: mode writeback on a single SSD" in said and "volume: data, mode writeback" in said
    assert "mode writearound" in larder(*one, "--mode", "writearound").stdout


def test_cache_that_is_there(larder, images):
    larder("cache", "create", "fast", "--cache", images[0], "--cache", images[1])
    said = larder("create", "data", "--backing", images[2], "--cache", "fast", "--dry-run").stdout
    assert "that of the name fast, 2 SSDs" in said and "mode writeback" in said
    one_line(larder("create", "data", "--backing", images[2], "--cache", "other", "--dry-run", code=NOT_FOUND), "other")


REMOVED = 4


def test_ssds_that_take_data(larder, images):
    """Of a cache that is there a place that was drained counts for nothing; with mirror=none two SSDs are as good as one."""
    larder("cache", "create", "fast", "--cache", images[0], "--cache", images[1], "--cache", larder.image("ssd2", 64 * MIB))
    ssds = [*images[:2], larder.devices[-1]]
    base = ["create", "data", "--backing", images[2], "--cache", "fast", "--dry-run"]

    def plans(mirror, said, *copies):
        text = {"ready": [], "changing": []} | ({"options": f"mirror={mirror}"} if mirror else {})
        for ssd in ssds:
            patch_both(ssd, ON_SSD, stack=pack(text, OF_CACHE))
        plain, risky = larder(*base).stdout, larder(*base, "--mode", "writeback").stdout
        for part in said:
            assert part in plain, plain
        for part in copies:
            assert part in plain and part in risky and "RISK" not in risky, risky
        assert copies or ("dirty data on" not in plain + risky and "mode writethrough:" in plain and "RISK" in risky), plain + risky
        return risky

    plans("", ["3 SSDs", "mode writeback"], "dirty data on two of them")
    plans("all", ["3 SSDs", "mode writeback"], "dirty data on two of them")
    plans("dirty:3", ["3 SSDs", "mode writeback"], "dirty data on three of them")
    risky = plans("none", ["3 SSDs", "mode writethrough: the cache has mirror=none"])
    assert "RISK: mode writeback on a cache with mirror=none" in risky
    assert "RISK" not in larder(*base, "--mode", "writearound").stdout
    for ssd in ssds:
        patch_tables(ssd, device1__state=REMOVED)
    plans("dirty:3", ["2 SSDs", "mode writeback"], "dirty data on two of them")
    for ssd in ssds:
        patch_tables(ssd, device2__state=REMOVED)
    assert "RISK: mode writeback on a single SSD" in plans("", ["1 SSD\n", "mode writethrough: there is one SSD"])


def separate(images, *more, name="data"):
    ssd0, ssd1, hdd0, hdd1 = images
    made = ["create", name, "--cache", ssd0, "--cache", ssd1, "--backing", hdd0, "--backing", hdd1, "--separate"]
    return [*made, "--dry-run", *more]


def test_plan_of_separate_stacks(larder, images):
    ssd0, ssd1, hdd0, hdd1 = images
    before = [digest(i) for i in images]
    said = larder(*separate(images, "--encrypt", "luks2", "--raid", "none")).stdout
    for part in (
        "2 stacks of one cache",
        f"stack data-1: {hdd0}, to be overwritten",
        f"stack data-2: {hdd1}, to be overwritten",
        "to be formatted as data, 2 SSDs",
        "volume: one on each, mode writeback",
        "a file for each in /var/lib/larder",
    ):
        assert part in said, part
    assert "array" not in said and "unused" not in said
    assert "backup of its header: none" in larder(*separate(images, "--encrypt", "luks2", "--header-backup", "none")).stdout
    assert [digest(i) for i in images] == before
    # beside others: on a cache that is there, and where a name is taken
    larder("cache", "create", "fast", "--cache", ssd0, "--cache", ssd1)
    shared = ["create", "data", "--backing", hdd0, "--backing", hdd1, "--cache", "fast", "--separate", "--dry-run"]
    assert "that of the name fast" in larder(*shared).stdout
    third = larder.volume("data-2", 64 * MIB)
    one_line(larder(*shared, code=BUSY), "data-2", "label", third)


def test_refused_separate_stacks(larder, images):
    ssd0, _, hdd0, hdd1 = images

    def refused(code, more, *parts, name="data"):
        one_line(larder(*separate(images, *more, name=name), code=code), *parts)

    refused(USAGE, ["--raid", "1"], "--separate", "--raid 1")
    for more in (["--mkfs", "btrfs"], ["--mount", "/mnt"], ["--label", "films"]):
        refused(USAGE, more, "--separate", "--mkfs", "mkfs.btrfs -d raid1")
    refused(USAGE, ["--encrypt", "luks2", "--header-backup", "/root/header"], "--header-backup", "--separate")
    refused(USAGE, [], "NAME", "too long", name="x" * 63)
    one_line(larder("create", "data", "--cache", ssd0, "--backing", hdd0, "--separate", code=USAGE), "--separate", "one is given")
    one_line(larder("create", "data", "--cache", ssd0, "--separate", code=USAGE), "--separate", "none is given")
    two = ["create", "data", "--cache", ssd0, "--backing", hdd0, "--backing", hdd1, "--dry-run"]
    one_line(larder(*two, code=USAGE), "--raid: is missing", "--separate")
    small = larder.image("small", 2 * MIB)
    one_line(larder(*separate([*images[:3], small]), code=FAILED), small, "size", "too small")
    refused(USAGE, ["--backing", hdd0], "given twice", hdd0)
    many = [w for i in range(50) for w in ("--backing", larder.image(f"m{i}", 64 * MIB))]
    refused(FAILED, many, "data", "does not fit", "fewer disks")
    assert "30 stacks of one cache" in larder(*separate(images, *many[:56])).stdout


def test_spares_at_create(larder, images):
    disk, ssd = larder.image("spare", 520 * MIB), larder.image("spare ssd", 64 * MIB)
    before = [digest(i) for i in (*images, disk, ssd)]
    said = larder(*words(images, "--spare", disk, "--cache-spare", ssd, "--dry-run")).stdout
    parts = ("RAID 1 of 2 disks", "unused: 88.00MiB", f"spares of the array: {disk}, to be", f"spares of the cache: {ssd}, to be")
    for part in parts:
        assert part in said, part
    assert [digest(i) for i in (*images, disk, ssd)] == before

    def refused(code, more, *parts, base=None):
        one_line(larder(*(base or words(images)), *more, "--dry-run", code=code), *parts)

    small, tiny = larder.image("small", 511 * MIB), larder.image("tiny", 32 * MIB)
    refused(FAILED, ["--spare", small], small, "size", "too small for a spare", "512")
    refused(FAILED, ["--cache-spare", tiny], tiny, "size", "could replace none")
    refused(USAGE, ["--spare", images[2]], "given twice", images[2])
    refused(USAGE, ["--cache-spare", disk, "--spare", disk], "given twice", disk)
    refused(USAGE, ["--spare", disk], "--spare", disk, "--raid 1, 10, 5 or 6", base=words(images, raid="0"))
    one = ["create", "data", "--cache", images[0], "--backing", images[2]]
    refused(USAGE, ["--spare", disk], "--spare", "no array", base=one)
    refused(USAGE, ["--spare", disk], "--spare", "no array", base=[w for w in separate(images) if w != "--dry-run"])
    signatures.luks(disk)
    refused(UNSAFE, ["--spare", disk], disk, "crypto_LUKS", "--wipe")
    refused(USAGE, ["--resume"], "--resume", base=["create", "data", "--spare", disk])
    larder("cache", "create", "fast", "--cache", images[0])
    shared = ["create", "data", "--cache", "fast", "--backing", images[2]]
    refused(USAGE, ["--cache-spare", ssd], "larder cache add fast", base=shared)


def test_refused_words(larder, images):
    plain = words(images, "--dry-run")

    def refused(code, more, *parts, base=plain):
        one_line(larder(*base, *more, code=code), *parts)

    refused(USAGE, [], "NAME", base=["create", "../x", *plain[2:]])
    refused(USAGE, [], "NAME", base=["create", "x" * 65, *plain[2:]])
    refused(USAGE, ["--raid", "7"], "none, 0, 1, 10, 5, 6")
    refused(USAGE, ["--raid", "6"], "at least 4 disks")
    refused(USAGE, ["--raid", "none"], "one disk")
    refused(USAGE, [], "--raid: is missing", base=plain[:10] + ["--dry-run"])
    refused(USAGE, ["--mode", "fast"], "--mode")
    for bad in ("a b", "any\r", "any\x1b", "any\x7f", "a\\b", "\x01", ""):
        refused(USAGE, ["--class", bad], "--class")
    refused(USAGE, ["--encrypt", "luks1"], "--encrypt")
    refused(USAGE, ["--encrypt", "luks2:secret"], "--encrypt")
    refused(USAGE, ["--encrypt", "luks2-aea"], "--encrypt", "luks2-aead")
    refused(USAGE, ["--encrypt", "luks2-aead:secret"], "--encrypt")
    refused(NOT_FOUND, ["--encrypt", "luks2-aead:keyfile=/nothing"], "key file")
    refused(USAGE, ["--encrypt", "luks2-aead", "--cipher", "aegis128"], "--cipher", "chacha20-poly1305, aes-gcm, aes-xts-hmac")
    refused(USAGE, ["--encrypt", "luks2", "--cipher", "aes-gcm"], "--cipher", "luks2-aead")
    refused(USAGE, ["--cipher", "aes-gcm"], "--cipher", "luks2-aead")
    alone = ["create", "data", *plain[2:4], *plain[6:8], "--dry-run"]
    refused(USAGE, ["--integrity"], "--integrity", "no redundancy", "--raid 1", base=alone)
    refused(USAGE, ["--integrity", "--raid", "0"], "--integrity", "no redundancy")
    refused(USAGE, ["--integrity", "--separate"], "--integrity", base=plain[:10] + ["--dry-run"])
    refused(NOT_FOUND, ["--encrypt", "luks2:keyfile=/nothing"], "key file")
    inside = ["--mkfs", "ext4", "--mount", larder.directory, "--encrypt", f"luks2:keyfile={images[0]}"]
    refused(USAGE, inside, "behind the mount")
    refused(USAGE, ["--encrypt", "luks2", "--header-backup", "here"], "--header-backup", "absolute")
    refused(USAGE, ["--encrypt", "luks2", "--header-backup", images[0]], "--header-backup", "is there already")
    refused(USAGE, ["--header-backup", "/root/header"], "--header-backup", "is for --encrypt")
    refused(USAGE, ["--mkfs", "vfat"], "--mkfs")
    refused(USAGE, ["--mount", "/mnt"], "--mkfs")
    refused(USAGE, ["--mkfs", "ext4", "--essential"], "--essential", "--mount")
    refused(USAGE, ["--mkfs", "ext4", "--mount", "mnt"], "absolute")
    refused(NOT_FOUND, ["--mkfs", "ext4", "--mount", "/nothing/here"], "no such directory")
    refused(BUSY, ["--mkfs", "ext4", "--mount", "/"], "mounted there")
    refused(USAGE, ["--mkfs", "xfs", "--label", "thirteen-long"], "--label", "12")
    refused(USAGE, ["--mkfs", "ext4", "--mkfs-options", "a" * 256], "--mkfs-options")
    others = (("btrfs", "/dev/sdb1"), ("ext4", "-F /dev/sda2 -L"), ("ext4", "-J device=/dev/sdb1"), ("xfs", "-l logdev=/dev/sdb1"))
    for fs, other in others:
        refused(USAGE, ["--mkfs", fs, "--mkfs-options", other], "--mkfs-options", "/dev/sd", "names another device")
    refused(USAGE, ["--mkfs", "btrfs", "--mkfs-options", "-m single disk"], "--mkfs-options: 'disk'", "no option of mkfs")
    for fs, good in (("ext4", "-m 1 -E stride=4 -O ^has_journal"), ("xfs", "-d su=64k,sw=2")):
        larder(*plain, "--mkfs", fs, "--mkfs-options", good)
    refused(USAGE, ["--encrypt", "luks2", "--iter-time", "4294967297"], "--iter-time", "4294967295")
    refused(USAGE, ["--resume"], "--resume")
    refused(USAGE, [], "--cache: is missing", base=["create", "data", "--backing", images[2]])
    refused(USAGE, [], "--backing: is missing", base=["create", "data", "--cache", images[0]])
    for verb in ("show", "status", "start", "stop", "remove", "lock", "unlock", "resize", "scrub", "passwd"):
        one_line(larder(verb, "data", code=NOT_FOUND), "no such stack")
    for verb in (["replace", "data", "disk0", "/new"], ["add", "data", "--cache", "/new"], ["drop", "data", "ssd0"]):
        one_line(larder(*verb, code=NOT_FOUND), "no such stack")


def test_behind_the_mount(larder, images, tmp_path):
    """What is needed to open a stack is not to lie where it is mounted, by whatever path either is given."""
    where, other, key = (tmp_path / name for name in ("where", "whereabouts", "where/key"))
    for directory in (where, other):
        directory.mkdir()
    key.write_bytes(b"k" * 32)
    link = tmp_path / "link"
    link.symlink_to(where)
    plain = words(images, "--mkfs", "ext4", "--dry-run")
    for mount in (where, f"{where}/", f"/{where}", f"{tmp_path}//where", link, f"{link}/", tmp_path):
        for path in (key, link / "key"):
            run = larder(*plain, "--mount", mount, "--encrypt", f"luks2:keyfile={path}", code=USAGE)
            one_line(run, "--encrypt", key, "behind the mount", "elsewhere")
        for path in (where / "header", link / "header", link / "deep" / "er"):
            run = larder(*plain, "--mount", mount, "--encrypt", "luks2", "--header-backup", path, code=USAGE)
            one_line(run, "--header-backup", path, f"behind the mount {mount}", "another file, or none")
    larder(*plain, "--mount", other, "--encrypt", f"luks2:keyfile={key}", "--header-backup", where / "header")
    run = larder(*plain, "--mount", "/var", "--encrypt", "luks2", code=USAGE)
    one_line(run, "--header-backup", "/var/lib/larder", "behind the mount /var")
    larder(*plain, "--mount", other, "--encrypt", "luks2", "--header-backup", "none")


def test_what_is_mounted_there(larder, images, tmp_path):
    """Of the same filesystem, too, which a look at the directory does not show."""
    where, link = tmp_path / "a b", tmp_path / "link"
    where.mkdir()
    link.symlink_to(where)
    argv = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"', where]
    if subprocess.run([*argv, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    for mount, code in ((where, BUSY), (link, BUSY), (f"/{where}/", BUSY), (tmp_path, 0)):
        made = [larder.program, *words(images, "--mkfs", "ext4", "--mount", mount, "--dry-run")]
        larder(*made[1:])
        run = subprocess.run([*argv, *made], capture_output=True, text=True, env=larder.environment(), timeout=120)
        assert run.returncode == code, run.stderr
        if code:
            one_line(run, "--mount", mount, "mounted there", "another directory")


def test_refused_words_of_devices(larder, images):
    """Of replace, add, drop: before anything is looked at."""

    def refused(more, *parts):
        one_line(larder(*more, code=USAGE), *parts)

    refused(["replace", "data", "/old"], "missing")
    refused(["replace", "data", "/old", "/new", "/more"], "too many")
    refused(["replace", "data", "/old", "/new", "--role", "fast"], "--role", "both, write, read")
    refused(["add", "data"], "--cache", "--backing")
    refused(["add", "data", "--cache", images[0], "--backing", images[1]], "--cache", "--backing")
    refused(["add", "data", "--cache", images[0], "--spare", "--role", "read"], "--role", "--spare")
    refused(["add", "data", "--backing", images[2], "--role", "read"], "--role")
    refused(["add", "data", "--cache", images[0], "--role", "fast"], "--role", "both, write, read")
    refused(["drop", "data"], "missing")


def test_refused_words_of_passwd(larder, described):
    described.volume(described.plain)
    for more, code, part in (
        (["--add", "--change"], USAGE, "one of them"),
        (["--remove", "1", "--list"], USAGE, "one of them"),
        (["--remove", "32"], USAGE, "0 to 31"),
        (["--remove", "x"], USAGE, "--remove"),
        (["--add", "--slot", "-1"], USAGE, "--slot"),
        (["--remove", "1", "--slot", "1"], USAGE, "--add or --change"),
        (["--list", "--new-keyfile", "/k"], USAGE, "--new-keyfile"),
        (["--list", "--keyfile", "/k"], USAGE, "needs no key"),
        (["--add", "--iter-time", "4294967297"], USAGE, "4294967295"),
        (["--add", "--discard-data", "x"], USAGE, "--remove"),
        (["--new-token", "tpm2"], USAGE, "goes with --add"),
        (["--add", "--new-token", "tpm"], USAGE, "'tpm' is not tpm2"),
        (["--add", "--new-token", "tang=h"], USAGE, "no URL"),
        (["--add", "--new-token", "tpm2", "--slot", "2"], USAGE, "--slot"),
        (["--add", "--new-token", "tpm2", "--new-keyfile", "/k"], USAGE, "--new-keyfile"),
        (["--add", "--yes"], USAGE, "goes with --new-token"),
        (["--header-backup", "here"], USAGE, "absolute"),
        (["--backup", "--header-backup", "none"], USAGE, "FILE"),
        ([], USAGE, "not encrypted"),
    ):
        one_line(larder("passwd", "data", *more, code=code), part)
    crypt = described.plain | {"crypt": str(uuid.uuid5(described.uuid, "crypt"))}
    described.volume(crypt | {"state": "creating", "step": 3})
    one_line(larder("passwd", "data", code=UNSAFE), "half made")
    described.volume(crypt)
    before = digest(described.hdd)
    said = larder("passwd", "data", "--remove", "3", "--dry-run").stdout
    assert "starts array, cache and volume" in said and "remove a key, slot 3" in said and "dry run" in said
    assert digest(described.hdd) == before


@identified
def test_keys_of_another_machine(larder, described):
    crypt = described.plain | {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "host": str(uuid.uuid4())}
    described.volume(crypt)
    one_line(larder("passwd", "data", "--add", code=UNSAFE), "another machine", "--import")
    # its cache alone says so
    described.ssds({"ready": [f"{described.uuid} data 3"], "changing": [], "host": crypt.pop("host")})
    described.volume(crypt)
    one_line(larder("passwd", "data", "--add", code=UNSAFE), "another machine", "--import")


def test_refused_devices(larder, images):
    ssd0, ssd1, hdd0, hdd1 = images

    def refused(code, old, new, *parts):
        one_line(larder(*[new if w is old else w for w in words(images, "--dry-run")], code=code), *parts)

    refused(NOT_FOUND, hdd0, larder.directory / "nothing", "no such device")
    refused(USAGE, hdd0, hdd1, "given twice")
    refused(USAGE, ssd1, hdd1, "given twice")
    link = larder.directory / "link"
    link.symlink_to(ssd0)
    refused(USAGE, ssd1, link, "given twice", ssd0)
    refused(FAILED, ssd0, larder.image("small", 2 * MIB), "too small")
    refused(FAILED, hdd1, larder.image("small disk", 2 * MIB), "too small")
    refused(USAGE, hdd1, Path("/dev/null"), "block device")
    signatures.luks(hdd1)
    refused(UNSAFE, None, None, hdd1, "crypto_LUKS", "--wipe")
    assert "wipe" in larder(*words(images, "--dry-run", "--wipe")).stdout
    one_line(larder(*words(images, "--wipe"), code=USAGE), "losetup")
    volume = larder.volume("old", 64 * MIB, "--cache", str(larder.cache("fast")))
    patch_both(volume, VOLUME, flags=1)
    own = uuid.UUID(bytes=field(volume, VOLUME, "uuid"))
    dirty = ["create", "data", "--backing", volume, "--cache", ssd0, "--wipe", "--dry-run"]
    one_line(larder(*dirty, code=UNSAFE), f"--discard-dirty {own}")
    one_line(larder("create", "old", "--backing", hdd0, "--cache", ssd0, "--dry-run", code=BUSY), "old", "label")


# ---------------------------------------------------------------------- the description


def pack(text, of, version=1, magic=MAGIC, length=None):
    data = text if isinstance(text, bytes) else json.dumps(text).encode()
    return (struct.pack("<4I", magic, version, of, len(data) if length is None else length) + data)[:SIZE].ljust(SIZE, b"\0")


class Described:
    """A volume and its cache, with descriptions made here, from docs/on-disk-format.md."""

    def __init__(self, larder, *ssds, size=64 * MIB):
        """ssds: further ones; size: of the disk."""
        self.larder, self.others = larder, ssds
        self.ssd = larder.cache("fast", 64 * MIB, *(w for ssd in ssds for w in ("--cache", ssd)))
        self.hdd = larder.volume("data", size, "--cache", "fast")
        self.uuid = uuid.UUID("12345678-1234-4321-8765-123456789abc")
        self.plain = {
            "name": "data",
            "uuid": str(self.uuid),
            "generation": 3,
            "state": "ready",
            "step": 6,
            "legs": 1,
            "cache": str(uuid.UUID(bytes=field(self.ssd, CACHE, "cache_uuid"))),
            "own_cache": 1,
            "mode": "writeback",
            "volume": str(uuid.uuid5(self.uuid, "volume")),
        }
        patch_both(self.hdd, VOLUME, uuid=uuid.uuid5(self.uuid, "volume").bytes)

    def volume(self, text, **more):
        patch_both(self.hdd, ON_VOLUME, stack=pack(text, OF_VOLUME, **more))

    def ssds(self, text, **more):
        for ssd in (self.ssd, *self.others):
            patch_both(ssd, ON_SSD, stack=pack(text, OF_CACHE, **more))

    def rows(self):
        run = self.larder("list", "-o", "layer,name,state,type,uuid,mount", "--reportformat", "json")
        return json.loads(run.stdout)["stacks"], run.stderr


@pytest.fixture
def described(larder):
    return Described(larder)


def test_description_is_shown(larder, described):
    described.volume(described.plain)
    rows, said = described.rows()
    assert not said and [r["layer"] for r in rows] == ["stack", "volume", "cache", "ssd", "disk"]
    assert rows[0] == {"layer": "stack", "name": "data", "state": "stopped", "type": "", "uuid": str(described.uuid), "mount": ""}
    assert "stopped" in larder("status", "data", code=NOT_FOUND).stdout
    assert str(described.hdd) in larder("show", str(described.uuid)).stdout
    one_line(larder("remove", "data", code=UNSAFE), "LOST", described.uuid)
    one_line(larder("resize", "data", code=NOT_FOUND), "not started")
    one_line(larder("scrub", "data", code=NOT_FOUND), "not started")
    for verb in DEVICES:
        one_line(larder(*verb, code=NOT_FOUND), "not started", "larder start data")
    numbers = json.loads(larder("show", "data", "-o", "layer,number", "--reportformat", "json").stdout)["stacks"]
    assert [(r["layer"], r["number"]) for r in numbers if r["number"]] == [("ssd", "ssd0")]
    one_line(larder("create", "data", "--backing", larder.image("x", 64 * MIB), "--cache", "fast", "--dry-run", code=BUSY), "data")
    # encrypted, on an array, with a filesystem
    part = {name: str(uuid.uuid5(described.uuid, name)) for name in ("md", "crypt", "fs")}
    more = {"raid": "1", "legs": 2, "md": part["md"], "crypt": part["crypt"], "fs": "ext4", "fs_uuid": part["fs"], "mount": "/srv"}
    described.volume(described.plain | more)
    assert [r["layer"] for r in described.rows()[0]] == ["stack", "filesystem", "luks", "volume", "cache", "ssd", "array"]
    described.volume(described.plain | more | {"aead": "aes-gcm"})
    shown = described.rows()[0]
    assert [r["type"] for r in shown if r["layer"] in ("stack", "luks")] == ["authenticated", "luks2-aead:aes-gcm"]
    one_line(larder("resize", "data", code=UNSAFE), "luks2-aead", "cannot grow", "nothing was changed")


def test_assembly_of_one_whose_disks_are_not_here(larder, described):
    """Its name is not that of its cache then: who asks for it again would take a cache that runs for the stack."""
    cache = str(uuid.UUID(bytes=field(described.ssd, CACHE, "cache_uuid")))
    assert "larder-cache-fast" in larder("assemble", "fast", "--dry-run").stdout
    described.ssds({"ready": [f"{uuid.uuid4()} fast"], "changing": []})
    for words in (["--conf"], ["--conf", "--degraded"], []):
        run = larder("assemble", "fast", *words, "--dry-run", code=NOT_FOUND)
        one_line(run, "the disks of this stack are not here", "larder start fast")
        assert run.stdout == ""
    assert "larder-cache-fast" in larder("assemble", cache, "--dry-run").stdout


def test_assembly_starts_legs(larder, described):
    """Which nobody else starts: by the volume's UUID, as an initramfs has it, or by the stack's name, which an SSD knows."""
    volume, conf = str(uuid.uuid5(described.uuid, "volume")), larder.directory / "larder.conf"
    conf.write_text("auto no all\n")
    described.ssds({"ready": [f"{described.uuid} films"], "changing": []})
    become_leg(described)
    patch_both(described.hdd, VOLUME, label=b"")  # where a leg has its machine

    def assembled(*words, conf="/nonexistent"):
        """Is that disk started, as far as a file can be?  Its array does not run, and so the volume is missing."""
        run = larder("assemble", *words, "--dry-run", env={"LARDER_CONF": str(conf)}, code=NOT_FOUND)
        assert "larder-cache" not in run.stdout and run.stderr.splitlines()[-1].startswith(f"larder: {words[0]}: ")
        return f"{described.hdd}: size: is smaller than a leg" in run.stderr

    for name in (volume, "films"):
        for words in ([], ["--conf"], ["--conf", "--degraded"]):
            assert assembled(name, *words), (name, words)
        assert not assembled(name, "--conf", conf=conf) and assembled(name, conf=conf)
    assert not assembled(str(uuid.uuid4()))
    # what no SSD knows has no name
    described.ssds({"ready": [], "changing": []})
    assert assembled(volume) and not assembled("films")
    patch_both(described.hdd, VOLUME, label=b"another machine")
    assert not assembled(volume)


def test_assembly_of_legs_of_two_stacks(larder, described):
    """Of one name: neither is taken for the other."""
    other = uuid.uuid4()
    described.ssds({"ready": [f"{described.uuid} films", f"{other} films"], "changing": []})
    become_leg(described)
    patch_both(described.hdd, VOLUME, label=b"")
    copy = larder.image("copy", 0)
    shutil.copy(described.hdd, copy)
    patch_both(copy, VOLUME, uuid=uuid.uuid5(other, "disk 0").bytes, cache_uuid=other.bytes)
    volumes = [str(uuid.uuid5(x, "volume")) for x in (described.uuid, other)]
    one_line(larder("assemble", "films", "--dry-run", code=UNSAFE), "films", *volumes)
    run = larder("assemble", volumes[1], "--dry-run", code=NOT_FOUND)
    assert f"{copy}: size: " in run.stderr and str(described.hdd) not in run.stderr


def test_pins_of_a_stopped_stack(larder, described):
    """Rules that pin are in the description; which files they are for is in the filesystem, which is not seen."""
    described.volume(described.plain | {"class": "lba-8-16:pin-75/sequential:bypass"})
    listed = json.loads(larder("pin", "--list", "--reportformat", "json").stdout)["pins"]
    assert [(r["stack"], r["state"], r["file"], r["size"]) for r in listed] == [("data", "stopped", "", "")]
    before = described.hdd.read_bytes()
    assert larder("pin", "--refresh").stdout == ""
    one_line(larder("pin", "--refresh", "data", code=NOT_FOUND), "not started", "larder start data")
    assert described.hdd.read_bytes() == before
    described.volume(described.plain | {"class": "lba-8-16:pin-74/sequential:bypass"})
    assert json.loads(larder("pin", "--list", "--reportformat", "json").stdout)["pins"] == []


def test_newer_generation_counts(larder, described):
    described.volume(described.plain)
    described.ssds({"ready": [], "changing": [described.plain | {"generation": 4, "state": "removing"}]})
    assert described.rows()[0][0]["state"] == "removing"
    described.volume(described.plain | {"generation": 5, "state": "creating", "step": 3})
    assert described.rows()[0][0]["state"] == "creating"
    assert "half made" in larder("status", "data", code=BROKEN).stdout
    one_line(larder("start", "data", code=UNSAFE), "--resume", "remove")
    elsewhere = larder.directory / "no-kernels"
    elsewhere.mkdir()
    cures = {"creating": "made; larder create --resume data, or larder remove data", "removing": "removed; larder remove data"}
    for generation, state in enumerate(cures, 6):
        described.volume(described.plain | {"generation": generation, "state": state, "step": 3})
        said = larder("doctor", "--root", elsewhere, code=BROKEN).stdout
        assert said == f"wrong: data: stack: it is half {cures[state]}\n"
    for verb in (["resize", "data"], *DEVICES):
        one_line(larder(*verb, code=UNSAFE), "half made")


@identified
def test_another_machine(larder, described):
    described.volume(described.plain | {"host": str(uuid.uuid4())})
    one_line(larder("start", "data", code=UNSAFE), "another machine", "--import")
    one_line(larder("volume", "start", "data", "--dry-run", code=UNSAFE), described.hdd, "larder start --import data")
    for verb in DEVICES:
        one_line(larder(*verb, code=UNSAFE), "another machine", "larder start --import data")
    assert "dmsetup create data" in larder("volume", "start", "data", "--dry-run", "--import").stdout
    one_line(larder("start", "--crashed", "data", code=USAGE), "--import")
    # one that may run there
    patch_both(described.ssd, CACHE, epoch=1, epochs0__epoch=1, epochs0__segment=0, epochs0__first_sequence=1)
    one_line(larder("start", "--import", "data", code=UNSAFE), "may run there", "larder start --import --crashed data")
    assert "may run there" not in larder("start", "--import", "--crashed", "data", code=None).stderr
    patch_both(described.ssd, CACHE, flags=CLEAN_STOP)
    assert "may run there" not in larder("start", "--import", "data", code=None).stderr
    described.volume(described.plain | {"host": str(uuid.uuid5(uuid.UUID(MACHINE_ID.read_text().strip()), "larder"))})
    assert "another machine" not in larder("start", "data", code=None).stderr


def moved(larder, described, host, generation, ssd=True):
    """What a start with --import leaves on the disk, and, where it is there, on the SSD."""
    of = str(uuid.uuid5(uuid.UUID(host), "larder"))
    described.volume(described.plain | {"host": of, "generation": generation})
    if ssd:
        described.ssds({"ready": [f"{described.uuid} data {generation}"], "changing": [], "host": of})


def test_moved_between_two_machines(larder, described):
    """docs/two-machines.md: both see disk and SSD; then the disk alone moves, and what stayed behind is stale."""
    machines = [f"{n:032x}" for n in (1, 2)]
    a, b = ({"LARDER_MACHINE_ID": str(larder.directory / m)} for m in machines)
    for m in machines:
        (larder.directory / m).write_text(m + "\n")
    attach_by_hand(described.ssd, described.hdd)
    patch_tables(described.ssd, volume0__incarnation=field(described.hdd, VOLUME, "incarnation"))

    def starts(here):
        return len(larder("assemble", "--all", "--dry-run", env=here).stdout.splitlines()) == 2

    def refused(here):
        ssd, hdd = larder("assemble", "--all", "--dry-run", env=here, code=UNSAFE).stderr.splitlines()
        assert "the cache fast is another machine's, for the stack data" in ssd and "larder start --import data" in ssd
        assert "the stack data was made on another machine" in hdd and "larder start --import data" in hdd
        verbs = [["volume", "start", "data"], ["volume", "start", described.hdd], ["cache", "start", "fast"]]
        for verb in (["start", "data"], *([*w, "--dry-run"] for w in verbs)):
            one_line(larder(*verb, env=here, code=UNSAFE), "another machine", "larder start --import data")
        return True

    for generation, (mine, here, there) in enumerate([(machines[0], a, b), (machines[1], b, a), (machines[0], a, b)], 3):
        moved(larder, described, mine, generation)
        assert starts(here) and refused(there)
    # it runs on A, as far as its SSD says
    stopped = field(described.ssd, CACHE, "flags")
    patch_both(described.ssd, CACHE, flags=0, epoch=1, epochs0__epoch=1, epochs0__segment=0, epochs0__first_sequence=1)
    run = larder("start", "--import", "data", env=b, code=UNSAFE)
    one_line(run, "may run there", "larder stop data on that one", "larder start --import --crashed data")
    # on B without the SSD, which alone knew
    larder.devices.remove(described.ssd)
    one_line(larder("start", "data", env=b, code=UNSAFE), "another machine")
    run = larder("start", "--import", "data", env=b, code=NOT_FOUND)
    one_line(run, "no SSD of its cache is here", "larder start --degraded data")
    alone = ["volume", "start", "data", "--import", "--without-cache", "--dry-run"]
    patch_both(described.hdd, VOLUME, flags=1)
    one_line(larder(*alone, env=b, code=UNSAFE), described.hdd, "may_be_dirty")
    patch_both(described.hdd, VOLUME, flags=0)
    assert "dmsetup create data" in larder(*alone, env=b).stdout
    # and back to A, behind its first write
    patch_both(described.hdd, VOLUME, incarnation=field(described.hdd, VOLUME, "incarnation") + 1000)
    moved(larder, described, machines[1], 6, ssd=False)
    larder.devices.append(described.ssd)
    patch_both(described.ssd, CACHE, flags=stopped, epoch=0, epochs0__epoch=0, epochs0__first_sequence=0)
    one_line(larder("start", "data", env=a, code=UNSAFE), "another machine")
    moved(larder, described, machines[0], 7, ssd=False)
    run = larder("assemble", "--all", "--dry-run", env=a, code=UNSAFE)
    one_line(run, described.hdd, "incarnation: the volume data ran without its cache larder-cache-fast, which is stale")
    assert "larder volume start data --option stale=discard" in run.stderr
    assert run.stdout.count("dmsetup create") == 1 and "larder-cache-fast" in run.stdout


def test_machine_without_an_identity(larder, described):
    """In an initramfs that has no machine-id nothing says whose a stack is: what names a machine does not start by itself there."""
    machine = larder.directory / "machine-id"
    env = {"LARDER_MACHINE_ID": str(machine)}
    host = str(uuid.uuid5(uuid.UUID(int=7), "larder"))
    listed = {"ready": [f"{described.uuid} data"], "changing": []}
    for description in (described.plain, described.plain | {"host": host}):
        described.volume(description)
        described.ssds(listed | {k: v for k, v in description.items() if k == "host"})
        for text in ("", "uninitialized\n", f"{7:032x}\n"):
            machine.write_text(text)
            held = description != described.plain and len(text) < 33
            run = larder("assemble", "--all", "--dry-run", env=env, code=UNSAFE if held else 0)
            assert len(run.stdout.splitlines()) == (0 if held else 2)
            if held:
                ssd, hdd = run.stderr.splitlines()
                assert "machine-id" in ssd and "larder cache start fast" in ssd
                assert "machine-id" in hdd and "larder volume start data" in hdd
    machine.unlink()
    run = larder("assemble", "--all", "--dry-run", env=env, code=UNSAFE)
    assert not run.stdout
    assert "dmsetup create" in larder("volume", "start", "data", "--dry-run", env=env).stdout
    # the volume is held for itself
    described.ssds(listed)
    run = larder("assemble", "--all", "--dry-run", env=env, code=UNSAFE)
    one_line(run, described.hdd, "machine-id", "larder volume start data")


def test_description_of_a_newer_larder(larder, described):
    """One more key than this one knows: it may be half made, or another machine's, and is not started but by --import."""
    described.volume(described.plain | {"novelty": "x"})
    run = larder("assemble", "--all", "--dry-run", code=UNSAFE)
    one_line(run, described.hdd, "newer larder", "larder volume start --import data")
    assert run.stdout.count("dmsetup create") == 1
    one_line(larder("volume", "start", "data", "--dry-run", code=UNSAFE), described.hdd, "newer larder", "--import")
    assert "dmsetup create data" in larder("volume", "start", "data", "--dry-run", "--import").stdout
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data"], "changing": [], "novelty": "x"})
    run = larder("assemble", "--all", "--dry-run", code=UNSAFE)
    one_line(run, described.ssd, "newer larder", "larder cache start --import fast")
    assert not run.stdout
    one_line(larder("cache", "start", "fast", "--dry-run", code=UNSAFE), described.ssd, "newer larder", "--import")
    assert "dmsetup create" in larder("cache", "start", "fast", "--dry-run", "--import").stdout


@identified
def test_cache_of_another_machine(larder, described):
    """Its SSDs say so, also where no disk of the stack is here."""
    entry = {"ready": [f"{described.uuid} data"], "changing": []}
    described.ssds(entry | {"host": str(uuid.uuid4())})
    one_line(larder("start", "data", code=UNSAFE), "another machine", "--import")
    one_line(larder("cache", "start", "fast", "--dry-run", code=UNSAFE), described.ssd, "larder start --import data")
    assert "dmsetup create" in larder("cache", "start", "fast", "--dry-run", "--import").stdout
    one_line(larder("volume", "start", "data", "--dry-run", code=UNSAFE), described.ssd, "another machine")
    run = larder("assemble", "--all", "--dry-run", code=UNSAFE)
    assert not run.stdout
    one_line(run, described.ssd, "the cache fast is another machine's", "larder start --import data")
    described.ssds(entry)
    assert len(larder("assemble", "--all", "--dry-run").stdout.splitlines()) == 2


@identified
def test_half_made_on_another_machine(larder, described):
    """Nobody goes on with it here, or takes it away, before it was taken over: it may be in use there."""
    described.plain["host"] = str(uuid.uuid4())
    for state, verbs in (("creating", (["create", "--resume"], ["remove"])), ("removing", (["remove"],)), ("ready", (["remove"],))):
        text = described.plain | {"state": state, "step": 3}
        described.volume(text)
        ready = [f"{described.uuid} data"] if state == "ready" else []
        described.ssds({"ready": ready, "changing": [] if ready else [text]})
        before = [digest(path) for path in (described.ssd, described.hdd)]
        for words in verbs:
            more = ["--discard-data", described.uuid] if words == ["remove"] else []
            one_line(larder(*words, "data", *more, code=UNSAFE), "another machine", "larder start --import data")
        one_line(larder("start", "data", code=UNSAFE), "another machine", "--import")
        assert [digest(path) for path in (described.ssd, described.hdd)] == before
    # its cache alone says so
    text = described.plain | {"state": "removing"}
    del text["host"]
    described.volume(text)
    described.ssds({"ready": [], "changing": [text], "host": str(uuid.uuid4())})
    one_line(larder("remove", "data", code=UNSAFE), "another machine", "--import")
    # not while it may run there; then it is this machine's, and still half made
    patch_both(described.ssd, CACHE, epoch=1, epochs0__epoch=1, epochs0__segment=0, epochs0__first_sequence=1)
    one_line(larder("start", "--import", "data", code=UNSAFE), "may run there", "--crashed")
    one_line(larder("start", "--import", "--crashed", "data", code=UNSAFE), "is being removed; larder remove data")
    assert "another machine" not in larder("remove", "data", code=None).stderr


@identified
def test_stack_for_a_cache_of_another_machine(larder, described):
    described.ssds({"ready": [f"{described.uuid} films"], "changing": [], "host": str(uuid.uuid4())})
    words = ["create", "new", "--backing", larder.image("disk", 64 * MIB), "--cache", "fast", "--dry-run"]
    one_line(larder(*words, code=UNSAFE), "fast", "another machine", "larder start --import films")
    described.ssds({"ready": [f"{described.uuid} films"], "changing": []})
    assert "that of the name fast" in larder(*words).stdout


@identified
def test_name_of_another_machine(larder, described):
    """A stack of another machine with the name of one of this one keeps that from nothing."""
    described.volume(described.plain)
    other = uuid.uuid4()
    crafted = larder.image("crafted", 64 * MIB)
    larder.devices.remove(described.hdd)
    larder("volume", "create", "data", "--backing", crafted, "--yes")
    larder.devices.append(described.hdd)
    text = described.plain | {"uuid": str(other), "volume": str(uuid.uuid5(other, "volume")), "host": str(uuid.uuid4())}
    patch_both(crafted, ON_VOLUME, uuid=uuid.uuid5(other, "volume").bytes, stack=pack(text, OF_VOLUME))
    for devices in ([described.ssd, described.hdd, crafted], [crafted, described.hdd, described.ssd]):
        larder.devices = devices
        run = larder("assemble", "--all", "--dry-run", code=UNSAFE)
        assert f"larder {described.hdd} /dev/mapper/larder-cache-fast" in run.stdout and str(crafted) not in run.stdout
        one_line(run, crafted, "made on another machine")


def test_stack_whose_disks_are_away(larder, described):
    other = uuid.uuid4()
    described.ssds({"ready": [f"{other} films"], "changing": []})
    rows, _ = described.rows()
    assert [(r["name"], r["state"], r["uuid"]) for r in rows] == [("films", "incomplete", str(other))]
    assert "its disks are not here" in larder("status", "films", code=BROKEN).stdout
    before = digest(described.ssd)
    one_line(larder("remove", "films", code=NOT_FOUND), "not here", f"LOST, with --discard-data {other}")
    one_line(larder("remove", "films", "--discard-data", described.uuid, code=UNSAFE), str(other), "nothing was removed")
    # what cannot be read may be its disk
    lost = larder.volume("lost", 64 * MIB)
    for known in (False, True):
        patch_both(lost, VOLUME, uuid=uuid.uuid5(other, "volume").bytes if known else bytes(16))
        signatures.write(lost, SB + 200, b"x")
        signatures.write(lost, field(lost, VOLUME, "copy_offset") + 200, b"x")
        run = larder("remove", "films", "--discard-data", other, code=UNSAFE)
        one_line(run, lost, "not valid", "films", f"larder super check {lost}")
        larder.devices.remove(lost)
        lost.unlink()
        lost = larder.volume("lost", 64 * MIB)
    assert digest(described.ssd) == before
    one_line(larder("start", "films", code=NOT_FOUND), "not here")
    for verb in (["resize", "data"], *DEVICES):
        one_line(larder(verb[0], "films", *verb[2:], code=NOT_FOUND), "not started, or its disks are not here")


def test_resume_judges_the_header_backup(larder, described):
    """As the first run does: a file that is there may be the only backup of another stack's header."""
    crypt = uuid.uuid5(described.uuid, "crypt")
    described.volume(described.plain | {"state": "creating", "step": 3, "crypt": str(crypt)})

    def resume(word, code):
        before = file.read_bytes()
        run = larder("create", "--resume", "data", "--header-backup", word, code=code)
        assert file.read_bytes() == before
        return run

    file = larder.directory / "other.luks-header"
    file.write_bytes((b"LUKS\xba\xbe" + bytes(162) + str(uuid.uuid4()).encode()).ljust(8192, b"\0"))
    one_line(resume(file, USAGE), "--header-backup", "is there already")
    one_line(resume("backup", USAGE), "--header-backup", "absolute")
    one_line(resume(larder.directory / "nothing" / "file", FAILED), "--header-backup", "nothing")
    # of this stack: of a run that was cut short behind it; it goes on to the empty passphrase
    file.write_bytes((b"LUKS\xba\xbe" + bytes(162) + str(crypt).encode()).ljust(8192, b"\0"))
    assert "--header-backup" not in resume(file, FAILED).stderr
    described.volume(described.plain | {"state": "creating", "step": 4, "crypt": str(crypt)})
    one_line(resume(larder.directory / "new", USAGE), "--header-backup", "made already", "larder passwd data --backup")
    described.volume(described.plain | {"state": "creating", "step": 3})
    one_line(resume(larder.directory / "new", USAGE), "--header-backup", "is for --encrypt")


@pytest.mark.parametrize("action", [["--backup"], ["--change"], ["--add"], ["--remove", "1"]], ids=lambda x: x[0])
def test_passwd_judges_the_header_backup(larder, described, action):
    """The file that a new backup replaces is overwritten: only one of this header may be, by whatever name."""
    crypt = uuid.uuid5(described.uuid, "crypt")
    described.volume(described.plain | {"crypt": str(crypt)})

    def header(of):
        return (b"LUKS\xba\xbe" + bytes(162) + str(of).encode()).ljust(8192, b"\0")

    def passwd(word, code):
        return larder("passwd", "data", *action, "--header-backup", word, "--dry-run", code=code)

    file, link, nowhere = (larder.directory / name for name in ("file", "link", "nowhere"))
    link.symlink_to(file)
    nowhere.symlink_to(larder.directory / "nothing")
    for kept in (header(uuid.uuid4()), b"a key", b"", header(crypt)[:200]):
        file.write_bytes(kept)
        for word in (file, link):
            one_line(passwd(word, USAGE), "--header-backup", file, "is there already", "another name")
        one_line(larder("passwd", "data", *action, "--header-backup", file, code=USAGE), "is there already")
        assert file.read_bytes() == kept
    fifo = larder.directory / "fifo"
    os.mkfifo(fifo)
    for word in (nowhere, fifo, "/dev/null", larder.directory):
        one_line(passwd(word, USAGE), "--header-backup", "is there already")
    # its own: the file goes, and the link to it stays
    file.write_bytes(header(crypt))
    for word in (file, link):
        assert f"backup of the LUKS header: {file}\n" in passwd(word, 0).stdout
    assert f"backup of the LUKS header: {larder.directory / 'new'}\n" in passwd(larder.directory / "new", 0).stdout
    if action != ["--backup"]:
        assert "backup of the LUKS header: none" in passwd("none", 0).stdout
    # in the stack itself nobody could read it when it is needed
    mounted = {"crypt": str(crypt), "fs": "ext4", "fs_uuid": str(uuid.uuid5(described.uuid, "fs")), "mount": f"/{larder.directory}"}
    described.volume(described.plain | mounted)
    one_line(passwd(larder.directory / "new", USAGE), "--header-backup", "behind the mount", "another file, or none")


@pytest.mark.parametrize("what", ["volume", "ssd", "mark"])
def test_copy_of_a_device(larder, described, what):
    """dd, or a snapshot: nobody knows which is the stack's, and neither is written to."""
    text = described.plain | ({"state": "creating", "step": 1} if what == "mark" else {})
    described.volume(text)
    described.ssds({"ready": [], "changing": [text]} if what == "mark" else {"ready": [f"{described.uuid} data"], "changing": []})
    original = described.ssd if what == "ssd" else described.hdd
    if what == "mark":
        original = larder.volume("marked", 64 * MIB)
        patch_both(original, VOLUME, kind=4, uuid=uuid.uuid5(described.uuid, "disk 0").bytes)
    copy = larder.image("copy", original.stat().st_size)
    copy.write_bytes(original.read_bytes())
    before = [digest(x) for x in (described.ssd, described.hdd, copy)]
    for devices in (larder.devices, larder.devices[::-1]):
        larder.devices = devices
        for words in (
            ["start", "data"],
            ["remove", "data", "--discard-data", described.uuid],
            ["rename", "data", "films"],
            ["resize", "data"],
            ["set", "data", "--backing-label", "films"],
            ["replace", "data", "cache", larder.image("new", 64 * MIB, seen=False)],
            ["create", "--resume", "data"],
            *DEVICES,
        ):
            if (words[0] == "create") != (what == "mark"):
                continue
            one_line(larder(*words, code=UNSAFE), original, copy, "copy of the other")
        assert "data" in larder("list").stdout
    assert [digest(x) for x in (described.ssd, described.hdd, copy)] == before
    larder.devices.remove(copy)
    assert "copy" not in larder("start", "data", code=None).stderr


# ---------------------------------------------------------------------- somebody else's by now


def pv(path):
    """pvcreate: a label in sector 1, and what it keeps at byte 4096."""
    signatures.lvm(path)
    signatures.write(path, SB, b"\x9c LVM2 x[5A%r0N*>" + b"m" * (SB_SIZE - 18))


def taken_on_top(path):
    """A label in sector 0 alone: both superblocks are left."""
    signatures.luks(path)


def taken(path):
    """mkfs, luksFormat, pvcreate: what it writes at byte 4096 leaves the copy."""
    pv(path)


def taken_and_wiped(path):
    """No signature that anybody knows; only the copy is left."""
    signatures.write(path, SB, b"\x5a" * SB_SIZE)


REUSED = [taken, taken_on_top, taken_and_wiped]


def left_alone(run, path, how):
    (line,) = [x for x in run.stderr.splitlines() if "somebody else's now" in x]
    assert line.count(str(path)) >= 2 and f"larder super wipe {path}" in line, line
    assert {taken: "LVM2_member", taken_on_top: "crypto_LUKS", taken_and_wiped: "only its copy is left"}[how] in line, line


@pytest.fixture
def pair(larder, described):
    """Two SSDs of one cache, and a stack on it."""
    other = larder.image("other", described.ssd.stat().st_size)
    other.write_bytes(described.ssd.read_bytes())
    patch_both(other, CACHE, uuid=uuid.uuid4().bytes, device_number=1)
    described.other = other
    return described


@pytest.mark.parametrize("how", REUSED)
def test_remove_leaves_an_ssd_of_somebody_else(larder, pair, how):
    """It fell out of the set, and was used for something else: the rest goes, to the end."""
    text = pair.plain | {"state": "removing", "crypt": str(uuid.uuid5(pair.uuid, "crypt"))}
    pair.volume(text)
    pair.ssds({"ready": [], "changing": [text]})
    how(pair.other)
    before = pair.other.read_bytes()
    run = larder("remove", "data")
    left_alone(run, pair.other, how)
    discarded = [x for x in run.stderr.splitlines() if "cannot be discarded" in x]
    assert len(discarded) == 1 and str(pair.ssd) in discarded[0]  # tried: it is a file
    assert "data: removed; what is somebody else's now was left as it is" in run.stdout
    assert pair.other.read_bytes() == before
    for path in (pair.ssd, pair.hdd):
        assert read(path, SB, SB_SIZE) == bytes(SB_SIZE)


@pytest.mark.parametrize("how", REUSED)
def test_remove_leaves_a_volume_of_somebody_else(larder, pair, how):
    pair.volume(pair.plain | {"crypt": str(uuid.uuid5(pair.uuid, "crypt"))})
    pair.ssds({"ready": [f"{pair.uuid} data"], "changing": []})
    patch_both(pair.other, CACHE, cache_uuid=uuid.uuid4().bytes)
    how(pair.hdd)
    signatures.write(pair.hdd, MIB, b"whose this is" * 1000)
    before = pair.hdd.read_bytes()
    run = larder("remove", "data", "--discard-data", pair.uuid)
    assert f"larder super wipe {pair.hdd}" in run.stderr and "removed; what is somebody else's now" in run.stdout
    assert pair.hdd.read_bytes() == before
    assert read(pair.ssd, SB, SB_SIZE) == bytes(SB_SIZE)


@pytest.mark.parametrize("how", REUSED)
def test_descriptions_leave_an_ssd_of_somebody_else(larder, pair, how):
    """rename writes to the SSDs of the cache, replace cache to those that the stack leaves."""
    pair.volume(pair.plain)
    pair.ssds({"ready": [f"{pair.uuid} data"], "changing": []})
    how(pair.other)
    before = pair.other.read_bytes()
    run = larder("rename", "data", "films")
    assert f"larder super wipe {pair.other}" in run.stderr
    assert pair.other.read_bytes() == before
    assert b"films" in read(pair.ssd, SB + ON_SSD["stack"][0], SIZE) and b"films" in read(pair.hdd, SB, SB_SIZE)
    run = larder("replace", "films", "cache", larder.image("new", 64 * MIB), "--yes")
    assert f"larder super wipe {pair.other}" in run.stderr
    assert pair.other.read_bytes() == before
    assert read(pair.ssd, SB + ON_SSD["stack"][0], SIZE) == bytes(SIZE)


@pytest.mark.parametrize("how", REUSED)
def test_descriptions_leave_a_volume_of_somebody_else(larder, pair, how):
    """Half of such a change would be none: nothing is written, to the SSDs neither."""
    pair.volume(pair.plain)
    pair.ssds({"ready": [f"{pair.uuid} data"], "changing": []})
    how(pair.hdd)
    new = larder.image("new", 64 * MIB)
    paths = (pair.hdd, pair.ssd, pair.other, new)
    before = [digest(x) for x in paths]
    rename, replace = ["rename", "data", "films"], ["replace", "data", "cache", new, "--yes"]
    alone = ["volume", "start", "data", "--without-module", "--dry-run"]
    for words in (rename, replace, ["volume", "set", "data", "mode=writethrough", "--persist"], alone):
        left_alone(larder(*words, code=UNSAFE), pair.hdd, how)
        assert [digest(x) for x in paths] == before, words


@pytest.mark.parametrize("which", ["hdd", "other"])
def test_another_device_has_the_path_by_then(larder, pair, tmp_path, which):
    """From any moment on at which a device is opened: that other one is not written to."""
    pair.volume(pair.plain)
    pair.ssds({"ready": [f"{pair.uuid} data"], "changing": []})
    path, stranger, its = getattr(pair, which), tmp_path / "stranger", uuid.uuid4().bytes
    stranger.write_bytes(path.read_bytes())
    patch_both(stranger, VOLUME if which == "hdd" else CACHE, uuid=its, cache_uuid=uuid.uuid4().bytes)
    heads = {x: (read(x, 0, MIB), read(x, x.stat().st_size - MIB, MIB)) for x in (pair.ssd, pair.other, pair.hdd)}
    swap = preloaded("swap_at", tmp_path) | {"SWAP_PATH": str(path), "SWAP_BY": str(stranger)}
    refused = 0
    for at in range(1, 100):
        for x, (first, last) in heads.items():
            signatures.write(x, 0, first)
            signatures.write(x, x.stat().st_size - MIB, last)
        run = larder("rename", "data", "films", env=swap | {"SWAP_AT": str(at)}, code=None)
        if its not in read(path, SB, SB_SIZE):  # it was not opened so often
            break
        assert path.read_bytes() == stranger.read_bytes(), at
        refused += "is another device than a moment ago" in run.stderr
    assert at > 2 and refused


@pytest.mark.parametrize("how", REUSED)
def test_starts_leave_a_volume_of_somebody_else(larder, pair, how):
    """Whoever starts it by its name, or that of its stack, may not know what became of the disk since."""
    pair.volume(pair.plain)
    pair.ssds({"ready": [f"{pair.uuid} data 3"], "changing": []})
    assert str(pair.hdd) in larder("volume", "start", "data", "--dry-run").stdout
    how(pair.hdd)
    before = digest(pair.hdd)
    for more in ([], ["--cache", "fast"], ["--import"], ["--without-cache"]):
        run = larder("volume", "start", "data", "--dry-run", *more, code=UNSAFE)
        one_line(run, pair.hdd, "somebody else's now", f"larder volume start {pair.hdd}")
        assert not run.stdout
    assert f" {pair.hdd} " in larder("volume", "start", pair.hdd, "--dry-run").stdout
    assert digest(pair.hdd) == before


@pytest.mark.parametrize("how", REUSED)
def test_starts_leave_an_ssd_of_somebody_else(larder, how):
    """It is missing, and leaves the set only where that is the word; of an only one nothing starts."""
    first, other = (larder.image(name, 64 * MIB) for name in ("first", "other"))
    larder("cache", "create", "duo", "--cache", first, "--cache", other)
    disk, alone = larder.volume("data", 64 * MIB, "--cache", "duo"), larder.cache("single")
    assert f"2 {first} {other} " in larder("cache", "start", "duo", "--dry-run").stdout
    how(other)
    how(alone)
    line = f"larder cache start {other}"
    before = [digest(x) for x in (first, other, alone)]
    for words in (["cache", "start", "duo"], ["cache", "start", first], ["volume", "start", "data"], ["volume", "start", disk]):
        run = larder(*words, "--dry-run", code=UNSAFE)
        said = run.stderr.splitlines()
        assert len(said) == 2 and "somebody else's now" in said[0] and line in said[0], said
        assert f"not found (2 {first} -)" in said[1] and "--degraded" in said[1] and not run.stdout, said
    run = larder("cache", "start", "duo", "--degraded", "--dry-run")
    assert f"2 {first} - " in run.stdout and line in run.stderr
    assert f"2 {first} {other} " in larder("cache", "start", other, "--dry-run").stdout
    for more in ([], ["--degraded"]):
        said = larder("cache", "start", "single", "--dry-run", *more, code=UNSAFE).stderr.splitlines()
        assert len(said) == 2 and f"larder cache start {alone}" in said[0] and "no SSD left" in said[1], said
    assert f"1 {alone} " in larder("cache", "start", alone, "--dry-run").stdout
    assert [digest(x) for x in (first, other, alone)] == before


@pytest.mark.parametrize("how", REUSED)
def test_rescue_leaves_a_volume_of_somebody_else(larder, pair, how):
    """By the volume's name; the path of the device says that it is known what it is."""
    pair.volume(pair.plain)
    pair.ssds({"ready": [f"{pair.uuid} data 3"], "changing": []})
    patch_both(pair.other, CACHE, cache_uuid=uuid.uuid4().bytes)
    how(pair.hdd)
    before = digest(pair.hdd)
    for words in (["--yes"], ["--dry-run"], ["--yes", "--cache", pair.ssd]):
        run = larder("rescue", "writeback", "data", *words, code=UNSAFE)
        one_line(run, "somebody else's now", f"larder rescue writeback {pair.hdd}")
        assert digest(pair.hdd) == before, words
    socket = larder.directory / "socket"
    assert str(pair.hdd) in larder("rescue", "serve", "data", "--socket", socket, "--dry-run").stdout  # only reads
    assert "no cache now" in larder("rescue", "writeback", pair.hdd, "--yes").stdout


@pytest.mark.parametrize("how", [taken, taken_and_wiped])
def test_wipe_takes_the_copy_alone(larder, pair, how):
    """`super wipe`, which is what they are told, takes nothing that a new owner wrote."""
    how(pair.other)
    before = bytearray(pair.other.read_bytes())
    copy = field(pair.ssd, CACHE, "copy_offset")
    larder("super", "wipe", pair.other, "--yes", "--discard-dirty", pair.plain["cache"])
    before[copy : copy + SB_SIZE] = bytes(SB_SIZE)
    assert pair.other.read_bytes() == before
    assert "data" not in larder("probe", pair.other, code=None).stdout


@pytest.mark.parametrize("how", [*REUSED, None])
def test_list_of_an_ssd_that_left_is_not_believed(larder, pair, how):
    """It was written to more often than those that are in the set: what it lists is that of then."""
    pair.volume(pair.plain)
    since, then = f"{uuid.uuid4()} since 4", f"{uuid.uuid4()} then 4"
    pair.ssds({"ready": [f"{pair.uuid} data 3", since], "changing": []})
    patch_both(pair.ssd, CACHE, set_generation=3 << 32)
    text = pack({"ready": [f"{pair.uuid} data 2", then], "changing": []}, OF_CACHE)
    was = 3 << 32 if how else 2 << 32  # by another one's signature, or by the set that it knows
    patch_both(pair.other, ON_SSD, stack=text, generation=1000, set_generation=was)
    if how:
        how(pair.other)
    for devices in (larder.devices, larder.devices[::-1]):
        larder.devices = devices
        larder("rename", pair.uuid, "films")
        listed = json.loads(read(pair.ssd, SB + ON_SSD["stack"][0] + HEAD, SIZE - HEAD).rstrip(b"\0"))["ready"]
        assert since in listed and then not in listed, listed


def test_table_of_the_newest_set_counts(larder):
    """Each was used without the other; that of the older set was written more often, and lacks a volume that came since."""
    other = larder.image("other", 64 * MIB)
    made = Described(larder, other)
    made.volume(made.plain)
    made.ssds({"ready": [f"{made.uuid} data 3"], "changing": []})
    attach_by_hand(made.ssd, larder.volume("films", 64 * MIB, "--cache", "fast"))
    for ssd, number, generation in ((made.ssd, 3, 5), (other, 2, 50)):
        patch_tables(ssd, set_generation=number << 32 | generation, generation=generation)
        patch_both(ssd, CACHE, set_generation=number << 32 | generation, table_generation=generation)
    whole = {x: x.read_bytes() for x in (made.ssd, other, made.hdd)}
    for devices in (larder.devices, larder.devices[::-1]):
        for path, was in whole.items():
            path.write_bytes(was)
        larder.devices = devices
        run = larder("remove", "data", "--discard-data", made.uuid, code=USAGE)
        assert "is a regular file" in run.stderr  # it is to be started, to forget the volume
        assert all(read(ssd, SB, SB_SIZE) != bytes(SB_SIZE) for ssd in (made.ssd, other))


@pytest.mark.parametrize("how", REUSED)
def test_what_an_ssd_has_seen_stays_true(larder, pair, how):
    """Somebody else has it by now; a disk that is older is older all the same."""
    pair.volume(pair.plain)
    pair.ssds({"ready": [f"{pair.uuid} data 3"], "changing": []})
    patch_both(pair.other, ON_SSD, stack=pack({"ready": [f"{pair.uuid} data 5"], "changing": []}, OF_CACHE))
    how(pair.other)
    assert "have seen 5" in larder("assemble", "--all", "--dry-run", code=UNSAFE).stderr
    one_line(larder("start", "data", code=UNSAFE), pair.hdd, "generation 3 here", "have seen 5")


def test_generations_that_end(larder, described):
    """Written by anybody: the last number there is neither wraps nor keeps anything from starting for ever."""
    last = 2**63 - 1
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data {last}"], "changing": []})
    one_line(larder("start", "data", code=UNSAFE), described.hdd, f"have seen {last}")
    assert "losetup" in larder("start", "data", "--discard-newer", described.uuid, code=USAGE).stderr
    for name in ("films", "data"):
        larder("rename", described.uuid, name)
        assert described.rows()[0][0]["name"] == name
        run = larder("assemble", "--all", "--dry-run", code=None)
        assert "stack" not in run.stderr and str(described.hdd) in run.stdout


def test_cut_off_erase_and_format_are_larders(larder, pair):
    """Nothing where the main superblock was, and the copy: a power cut in between; that is gone on with."""
    pair.volume(pair.plain | {"state": "removing"})
    pair.ssds({"ready": [], "changing": [pair.plain | {"state": "removing"}]})
    copy = field(pair.other, CACHE, "copy_offset")
    signatures.write(pair.other, SB, bytes(SB_SIZE))
    run = larder("remove", "data")
    assert "somebody" not in run.stderr + run.stdout
    assert read(pair.other, copy, SB_SIZE) == bytes(SB_SIZE)


def test_its_own_disk_is_no_ssd(larder, described):
    """Given among the SSDs by mistake, with --wipe, as these were used before."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data"], "changing": []})
    link = larder.directory / "link"
    link.symlink_to(described.hdd)
    new = larder.image("new", 64 * MIB)
    before = [digest(x) for x in (described.hdd, described.ssd, new)]
    for disk in (described.hdd, link):
        for words in ([disk], [new, disk]):
            run = larder("replace", "data", "cache", *words, "--wipe", "--yes", code=USAGE)
            one_line(run, disk, "is a disk of data itself", described.hdd)
    assert [digest(x) for x in (described.hdd, described.ssd, new)] == before


def test_words_about_the_disks_of_an_array(larder, described):
    """What may be wrong is accepted of the stack that is named, if its array lacks a disk; a disk comes back to what runs."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data"], "changing": []})
    before = [digest(x) for x in (described.ssd, described.hdd)]
    run = larder("start", "data", "--accept-write-hole", described.uuid, code=USAGE)
    one_line(run, "--accept-write-hole", "--degraded")
    for given in (uuid.uuid4(), "data"):
        run = larder("start", "data", "--degraded", "--accept-write-hole", given, code=UNSAFE)
        one_line(run, "--accept-write-hole", described.uuid, str(given), "nothing was done")
    one_line(larder("start", "data", "--take-back", described.hdd, code=NOT_FOUND), "is not started", "larder start data")
    one_line(larder("start", "films", "--take-back", described.hdd, code=NOT_FOUND), "films")
    assert [digest(x) for x in (described.ssd, described.hdd)] == before


# ---------------------------------------------------------------------- another cache


def test_older_than_its_ssds_say(larder, described):
    """A leg that had left the array, or a disk put back from a backup: not below the cache of today."""
    described.volume(described.plain)
    brief = f"{described.uuid} data"
    for generation in ("", " 2", " 3"):
        described.ssds({"ready": [brief + generation], "changing": []})
        assert len(larder("assemble", "--all", "--dry-run").stdout.splitlines()) == 2
        one_line(larder("start", "data", code=USAGE), "losetup")
    described.ssds({"ready": [f"{uuid.uuid4()} other 9", brief + " 5"], "changing": []})
    before = [digest(x) for x in (described.ssd, described.hdd)]
    why = ("generation 3 here", "have seen 5", f"LOST with larder start data --discard-newer {described.uuid}")
    run = larder("assemble", "--all", "--dry-run", code=UNSAFE)
    one_line(run, described.hdd, *why)
    assert len(run.stdout.splitlines()) == 1 and str(described.hdd) not in run.stdout
    for words in (
        ["start", "data"],
        ["start", "data", "--degraded"],
        ["rename", "data", "films"],
        ["volume", "start", "data", "--dry-run"],
        ["replace", "data", "cache", larder.image("new", 64 * MIB, seen=False)],
        ["volume", "set", "data", "mode=writethrough", "--persist"],
    ):
        one_line(larder(*words, code=UNSAFE), described.hdd, *why)
    one_line(larder("volume", "start", "data", "--dry-run", "--import", code=UNSAFE), described.hdd, *why)
    run = larder("start", "data", "--discard-newer", uuid.uuid4(), code=UNSAFE)
    one_line(run, "--discard-newer", described.uuid, "nothing was done")
    assert [digest(x) for x in (described.ssd, described.hdd)] == before
    # it is the newest then; the cache is told apart from it by the incarnation
    was = field(described.hdd, VOLUME, "incarnation")
    assert "losetup" in larder("start", "data", "--discard-newer", described.uuid, code=USAGE).stderr
    assert field(described.hdd, VOLUME, "incarnation") != was
    assert not larder("assemble", "--all", "--dry-run", code=None).stderr.count("have seen")
    # a disk that had left before the stack got the cache of today names another one, or none
    for cache in (uuid.uuid4().bytes, bytes(16)):
        described.volume(described.plain)
        patch_both(described.hdd, VOLUME, cache_uuid=cache)
        run = larder("assemble", "--all", "--dry-run", "--degraded", code=UNSAFE)
        assert all(part in run.stderr for part in why) and str(described.hdd) not in run.stdout
        one_line(larder("volume", "start", "data", "--dry-run", "--without-cache", code=UNSAFE), described.hdd, *why)
        assert "losetup" in larder("start", "data", "--discard-newer", described.uuid, code=USAGE).stderr
        assert "have seen" not in larder("assemble", "--all", "--dry-run", code=None).stderr


def test_image_below_the_cache_of_today(larder, described):
    """The same description, the same incarnation; but what the cache has seen of its superblock it has not become yet."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data 3"], "changing": []})
    attach_by_hand(described.ssd, described.hdd)
    generation, was = (field(described.hdd, VOLUME, name) for name in ("generation", "incarnation"))
    for seen in (0, generation - 1, generation):
        patch_tables(described.ssd, volume0__incarnation=was, volume0__seen=seen)
        one_line(larder("start", "data", code=USAGE), "losetup")
    # another incarnation is another matter: the kernel's
    patch_tables(described.ssd, volume0__incarnation=was + 1, volume0__seen=generation + 1)
    one_line(larder("start", "data", code=USAGE), "losetup")
    patch_tables(described.ssd, volume0__incarnation=was, volume0__seen=generation + 1)
    before = [digest(x) for x in (described.ssd, described.hdd)]
    cure = f"LOST with larder start data --discard-newer {described.uuid}"
    why = described.hdd, f"generation {generation}", f"seen {generation + 1}", cure
    for words in (
        ["start", "data"],
        ["start", "data", "--degraded"],
        ["volume", "set", "data", "mode=writethrough", "--persist"],
        ["volume", "start", "data", "--without-module", "--dry-run"],
    ):
        one_line(larder(*words, code=UNSAFE), *why)
    run = larder("rescue", "writeback", "data", "--yes", code=UNSAFE)
    one_line(run, described.hdd, "older than what cache", "give the one that it had")
    listed = json.loads(larder("rescue", "list", described.ssd, "--reportformat", "json").stdout)
    assert [v["state"] for v in listed["volumes"]] == ["older"]
    assert [digest(x) for x in (described.ssd, described.hdd)] == before
    assert "losetup" in larder("start", "data", "--discard-newer", described.uuid, code=USAGE).stderr
    assert field(described.hdd, VOLUME, "incarnation") != was
    one_line(larder("start", "data", code=USAGE), "losetup")


def test_image_of_the_ssd_below_todays_disk(larder, described):
    """The other way round: the disk knows that its cache had seen more of it than the SSD that is here says."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data 3"], "changing": []})
    attach_by_hand(described.ssd, described.hdd)
    generation, was = (field(described.hdd, VOLUME, name) for name in ("generation", "incarnation"))
    # it is no older; nothing is known of it; what is known is of another incarnation
    for seen, noted, of in ((5, 5, was), (6, 5, was), (0, 5, was), (4, 5, was + 1)):
        patch_both(described.hdd, VOLUME, generation=generation + 9, noted=noted, noted_incarnation=of)
        patch_tables(described.ssd, volume0__incarnation=was, volume0__seen=seen)
        one_line(larder("start", "data", code=USAGE), "losetup")
    patch_both(described.hdd, VOLUME, noted_incarnation=was)
    before = [digest(x) for x in (described.ssd, described.hdd)]
    cure = f"LOST with larder start data --discard-newer {described.uuid}"
    why = described.hdd, described.ssd, "generation 4", "had seen 5", cure
    for more in ([], ["--degraded"]):
        one_line(larder("start", "data", *more, code=UNSAFE), *why)
    run = larder("assemble", "--all", "--dry-run", code=UNSAFE)
    assert all(str(part) in run.stderr for part in why)
    run = larder("rescue", "writeback", "data", "--yes", code=UNSAFE)
    one_line(run, described.hdd, "noted: cache", "give the one that it had")
    listed = json.loads(larder("rescue", "list", described.ssd, "--reportformat", "json").stdout)
    assert [v["state"] for v in listed["volumes"]] == ["cache_older"]
    shown = json.loads(larder("super", "show", described.hdd, "--reportformat", "json").stdout)
    assert shown["superblock"][0]["noted"] == "5"
    assert [digest(x) for x in (described.ssd, described.hdd)] == before
    # the disk is taken as it is, and the SSD that it had is another cache from then on
    assert "losetup" in larder("start", "data", "--discard-newer", described.uuid, code=USAGE).stderr
    assert field(described.hdd, VOLUME, "incarnation") != was
    one_line(larder("start", "data", code=USAGE), "losetup")


def test_rescue_lays_nothing_over_an_older_disk(larder, described):
    """Today's cache over a disk of last month, written or only shown, would be neither."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data 5"], "changing": []})
    why = ("generation 3 here", "have seen 5", f"LOST with larder start data --discard-newer {described.uuid}")
    socket = larder.directory / "socket"
    before = [digest(x) for x in (described.ssd, described.hdd)]

    def refused(*more):
        serve = ["serve", "data", "--socket", socket, "--dry-run"]
        for words in (["writeback", "data", "--yes"], ["writeback", described.hdd, "--yes"], serve):
            one_line(larder("rescue", *words, *more, code=UNSAFE), described.hdd, *why)
        assert [digest(x) for x in (described.ssd, described.hdd)] == before

    refused()
    # one that is given, and in no scan
    larder.devices.remove(described.ssd)
    refused("--cache", described.ssd)
    # nor alone, as what "the disk alone holds": an SSD of whichever cache has seen more
    larder.devices.append(described.ssd)
    patch_both(described.hdd, VOLUME, cache_uuid=bytes(16))
    before = [digest(x) for x in (described.ssd, described.hdd)]
    refused()
    described.volume(described.plain | {"generation": 5})
    assert "belongs to no cache" in larder("rescue", "writeback", "data", "--yes").stdout


def test_descriptions_with_bad_generations(larder, described):
    described.volume(described.plain)
    for bad in (" 0", " -1", " 01", " 1x", " ", " 5 6", " 9223372036854775808", " 99999999999999999999999"):
        described.ssds({"ready": [f"{described.uuid} data{bad}"], "changing": []})
        assert "stack: an entry" in described.rows()[1], bad
    # a list that is full does without them, but for that of the stack that is changed, where it fits then
    many = [f"{uuid.uuid4()} {'n' * 10} {10**12 + i}" for i in range(30)]
    described.ssds({"ready": [*many, f"{described.uuid} data 3"], "changing": []})
    name = "f" * 64
    larder("rename", "data", name)
    text = read(described.ssd, SB + ON_SSD["stack"][0] + HEAD, SIZE - HEAD).rstrip(b"\0")
    assert set(json.loads(text)["ready"]) == {x.rsplit(" ", 1)[0] for x in many} | {f"{described.uuid} {name} 4"}


@pytest.mark.parametrize("keep", ["none", "7"])
@pytest.mark.parametrize("verb", ["rename {} films", "set {} --backing-label films"])
def test_power_cuts_never_make_it_older(larder, described, tools, tmp_path, keep, verb):
    """Whatever a change of the description was cut off at, SSDs have not seen more than the volume has."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data 3"], "changing": []})
    devices = {x: x.read_bytes() for x in (described.ssd, described.hdd)}
    seen, at, done = set(), 0, False
    while not done:
        at += 1
        for path, content in devices.items():
            path.write_bytes(content)
        cut = preload(tools / "power_cut.so") | {"POWER_CUT_AT": str(at), "POWER_CUT_KEEP": keep}
        cut["POWER_CUT_LOG"] = str(tmp_path / "calls")
        words = verb.format(described.uuid).split()
        run = subprocess.run([larder.program, *words], capture_output=True, text=True, env=larder.environment(cut), timeout=60)
        done = run.returncode == 0
        assert done or run.returncode == 88, run.stderr
        run = larder("assemble", "--all", "--dry-run")
        assert not run.stderr and len(run.stdout.splitlines()) == 2, at
        texts = []
        for path, offset in ((described.hdd, ON_VOLUME["stack"][0]), (described.ssd, ON_SSD["stack"][0])):
            copy = field(path, VOLUME, "copy_offset")
            block = max((read(path, x, 4096) for x in (SB, copy)), key=lambda b: int.from_bytes(b[32:40], "little"))
            texts.append(json.loads(block[offset + HEAD : offset + SIZE].rstrip(b"\0")))
        volume, ssd = texts[0]["generation"], int(texts[1]["ready"][0].split()[2])
        seen.add((volume, ssd))
        assert ssd <= volume
        larder(*words)
    assert seen == {(3, 3), (4, 3), (4, 4)}


@pytest.mark.parametrize("changes", [False, True])
def test_a_question_holds_up_nobody(larder, described, changes):
    """Who is asked may have gone home: others have their turn (where there is a lock); the answer is for what was asked about."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data"], "changing": []})
    new = larder.image("new", 64 * MIB, seen=False)
    before = []

    def others():
        if changes:
            larder("rename", "data", "films")
        else:
            larder("cache", "stop", "nowhere", code=None)  # waits for the lock
        before.extend(digest(x) for x in (described.ssd, described.hdd, new))

    words = [larder.program, "replace", "data", "cache", new]
    run = answered(words, "Give it this cache?", others, larder.environment())
    if changes:
        assert run.returncode == BUSY and "data: was changed meanwhile" in run.stderr, run.stderr
        assert [digest(x) for x in (described.ssd, described.hdd, new)] == before
    else:
        assert run.returncode == 0 and "its cache is data-" in run.stdout, run.stdout + run.stderr


def cache_of(larder, path):
    """Of a member, as whoever starts it reads it: its cache, and whether that is whole."""
    run = larder("super", "show", path, "-o", "cache_uuid,incarnation", "--reportformat", "json", code=None)
    return json.loads(run.stdout)["superblock"][0] if run.returncode == 0 else None


def test_cache_is_gone(larder, described):
    """The only SSD has died: the stack is clean, and gets another cache, which it has for good."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data"], "changing": []})
    former = described.plain["cache"]
    before = cache_of(larder, described.hdd)
    assert before["cache_uuid"] == former
    larder.devices.remove(described.ssd)
    one_line(larder("start", "data", code=NOT_FOUND), "no SSD of its cache", "--degraded data", "larder replace data cache SSD")
    one_line(larder("start", "data", "--degraded", code=USAGE), described.hdd, "losetup")  # the volume alone, were it no file
    new = larder.image("new", 64 * MIB)
    digests = [digest(described.hdd), digest(new)]
    said = larder("replace", "data", "cache", new, "--dry-run").stdout
    assert "leaves the cache " + former in said and "RISK: mode writeback" in said and str(described.hdd) in said
    assert [digest(described.hdd), digest(new)] == digests
    one_line(larder("replace", "data", "cache", new, "--no-wait", code=USAGE), "--no-wait")
    one_line(larder("replace", "data", "cache", "nowhere", code=NOT_FOUND), "nowhere")
    patch_both(described.hdd, VOLUME, flags=1)
    one_line(larder("start", "data", "--degraded", code=USAGE), "losetup")
    one_line(larder("replace", "data", "cache", new, code=UNSAFE), "may_be_dirty", f"LOST with --discard-dirty {former}")
    one_line(larder("replace", "data", "cache", new, "--discard-dirty", described.uuid, code=UNSAFE), "may_be_dirty")
    patch_both(described.hdd, VOLUME, flags=0)
    assert digest(new) == digests[1]
    larder("replace", "data", "cache", new, "--yes")
    after = cache_of(larder, described.hdd)
    assert after["cache_uuid"] == cache_of(larder, new)["cache_uuid"] != former
    assert int(after["incarnation"]) > int(before["incarnation"])
    (row,) = [r for r in described.rows()[0] if r["layer"] == "cache"]
    assert row["uuid"] == after["cache_uuid"]
    run = larder("assemble", "--all", "--dry-run").stdout.splitlines()
    assert len(run) == 2 and str(new) in run[0] and str(described.hdd) in run[1]
    # the former one comes back: it keeps nobody from starting, and is not what the stack starts with
    larder.devices.append(described.ssd)
    run = larder("assemble", "--all", "--dry-run").stdout
    assert str(new) in run and f"{described.hdd} /dev/mapper/larder-cache-data-" in run
    (row,) = [r for r in described.rows()[0] if r["layer"] == "cache"]
    assert row["uuid"] == after["cache_uuid"]


def test_cache_is_left(larder, described):
    """For one that has a name, while the former one is here: that forgets the stack."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data"], "changing": []})
    one_line(larder("replace", "data", "cache", "fast", code=USAGE), "is the cache of data already")
    larger = larder.cache("larger")
    patch_both(described.hdd, VOLUME, flags=1)
    one_line(larder("replace", "data", "cache", "larger", code=UNSAFE), "is here, and may hold newer data", "detach data --flush")
    patch_both(described.hdd, VOLUME, flags=0)
    run = larder("replace", "data", "cache", "larger")
    assert f"larder super wipe {described.ssd}" in run.stderr
    assert "RISK: mode writeback on a single SSD" in run.stdout
    assert read(described.ssd, SB + ON_SSD["stack"][0], SIZE) == bytes(SIZE)
    assert str(described.uuid).encode() in read(larger, SB + ON_SSD["stack"][0], SIZE)
    assert cache_of(larder, described.hdd)["cache_uuid"] == str(uuid.UUID(bytes=field(larger, CACHE, "cache_uuid")))
    # dirty, and the cache is gone
    larder.devices.remove(larger)
    patch_both(described.hdd, VOLUME, flags=1)
    gone = str(uuid.UUID(bytes=field(larger, CACHE, "cache_uuid")))
    ssds = [larder.image(f"new{i}", 64 * MIB) for i in range(2)]
    larder("replace", "data", "cache", *ssds, "--discard-dirty", gone, "--yes")
    assert field(described.hdd, VOLUME, "flags") == 0
    assert {cache_of(larder, x)["cache_uuid"] for x in (*ssds, described.hdd)} == {cache_of(larder, ssds[1])["cache_uuid"]}
    described.volume(described.plain | {"state": "removing", "generation": 9})
    one_line(larder("replace", "data", "cache", "fast", code=UNSAFE), "half made, or being removed")


def test_what_writeback_risks_on_a_cache_that_is_there(larder, described):
    """As `create` says it: by how many SSDs of it take dirty data."""
    described.volume(described.plain)
    described.ssds({"ready": [f"{described.uuid} data"], "changing": []})
    larder.cache("one")
    pair = [larder.image(f"pair{i}", 64 * MIB) for i in range(2)]
    larder("cache", "create", "pair", *(w for x in pair for w in ("--cache", x)))

    def risks(cache):
        said = larder("replace", "data", "cache", cache, "--dry-run").stdout.splitlines()
        return [line for line in said if line.startswith("RISK")]

    assert len(risks("one")) == 1 and "on a single SSD" in risks("one")[0]
    assert risks("pair") == []
    for ssd in pair:
        patch_both(ssd, ON_SSD, stack=pack({"ready": [], "changing": [], "options": "mirror=none"}, OF_CACHE))
    assert len(risks("pair")) == 1 and "a cache with mirror=none" in risks("pair")[0]
    described.volume(described.plain | {"mode": "writethrough"})
    assert risks("one") == risks("pair") == []


def test_volume_of_a_stack_gets_no_other_cache(larder, described):
    """Detached, and with another one than its description has no verb of the stack would start it."""
    described.volume(described.plain)
    patch_both(described.hdd, VOLUME, cache_uuid=bytes(16))
    larder.cache("other")
    run = larder("volume", "start", "data", "--cache", "other", "--dry-run", code=UNSAFE)
    one_line(run, described.hdd, "stack: is the volume of data", described.plain["cache"], "larder replace data cache")
    assert run.stdout == ""
    assert "larder-cache-fast" in larder("volume", "start", "data", "--cache", "fast", "--dry-run").stdout
    patch_both(described.hdd, ON_VOLUME, stack=bytes(SIZE))
    assert "larder-cache-other" in larder("volume", "start", "data", "--cache", "other", "--dry-run").stdout


def test_cache_is_gone_with_what_a_snapshot_shares(larder, described):
    """No snapshot stays that would show as of its moment what only the former cache had."""
    text = described.plain | {"snapshots": ["15 lost x", "17 ready daily"]}
    described.volume(text)
    patch_both(described.hdd, VOLUME, flags=1)
    larder.devices.remove(described.ssd)
    new = larder.image("new", 64 * MIB)
    before = [digest(x) for x in (described.hdd, new)]
    words = ["replace", "data", "cache", new, "--discard-dirty", text["cache"], "--yes"]
    one_line(larder(*words, code=UNSAFE), "snapshot daily", "larder snapshot remove data@daily")
    assert [digest(x) for x in (described.hdd, new)] == before
    larder("snapshot", "remove", "data@daily")
    larder(*words)
    assert cache_of(larder, described.hdd)["cache_uuid"] == cache_of(larder, new)["cache_uuid"]


@pytest.mark.parametrize("keep", ["none", "7", "11"])
def test_power_cuts_while_it_is_removed(larder, tools, tmp_path, keep):
    """At each write and flush: it is whole, or the same command ends it; then nothing is left of its LUKS header on its disk."""
    other = larder.image("other", 64 * MIB)
    stack = Described(larder, other, size=4 * MIB)
    stack.volume(stack.plain | {"crypt": str(uuid.uuid5(stack.uuid, "crypt"))})
    stack.ssds({"ready": [f"{stack.uuid} data 3"], "changing": []})
    signatures.write(stack.hdd, MIB, b"LUKS\xba\xbe and its key slots".ljust(64 * KIB, b"."))
    header = read(stack.hdd, MIB, MIB)
    whole = {x: (x.stat().st_size, list(pieces(x))) for x in (stack.ssd, other, stack.hdd)}
    cut = preload(tools / "power_cut.so") | {"POWER_CUT_KEEP": keep, "POWER_CUT_LOG": str(tmp_path / "calls")}
    remove, seen, at = ["remove", "data", "--discard-data", str(stack.uuid)], set(), 0
    while "done" not in seen:
        at += 1
        for path, (size, content) in whole.items():
            os.truncate(path, 0)
            os.truncate(path, size)
            for offset, piece in content:
                signatures.write(path, offset, piece)
        environment = larder.environment(cut | {"POWER_CUT_AT": str(at)})
        run = subprocess.run([larder.program, *remove], capture_output=True, text=True, env=environment, timeout=60)
        assert run.returncode in (0, 88), run.stderr
        found = [r["state"] for r in stack.rows()[0] if r["layer"] == "stack"]
        seen.add("done" if run.returncode == 0 else found[0] if found else "gone")
        assert not found or run.returncode
        if found == ["stopped"]:
            assert read(stack.hdd, MIB, MIB) == header, f"at {at}"
        if found:
            last = larder(*(remove if found == ["stopped"] else remove[:2]))
        assert read(stack.hdd, MIB, MIB) == bytes(MIB), f"at {at}"
        for path in whole:
            run = larder("probe", path, code=None)
            assert run.returncode == NOT_FOUND, f"at {at}: {run.stdout}{last.stderr}"
    assert seen >= {"stopped", "removing", "done"}, seen


@pytest.mark.parametrize("keep", ["none", "7"])
def test_power_cuts_while_it_gets_another_cache(larder, described, tools, tmp_path, keep):
    """At each write and flush: it has its former cache, or the new one, which is whole; the same command ends it."""
    described.volume(described.plain)
    former = described.plain["cache"]
    larder.devices.remove(described.ssd)
    new, saved, log = larder.image("new", 64 * MIB), tmp_path / "saved", tmp_path / "calls"
    saved.write_bytes(described.hdd.read_bytes())
    seen = {}
    at = 0
    while "end" not in seen:
        at += 1
        described.hdd.write_bytes(saved.read_bytes())
        os.truncate(new, 0)
        os.truncate(new, 64 * MIB)
        cut = preload(tools / "power_cut.so") | {"POWER_CUT_AT": str(at), "POWER_CUT_KEEP": keep}
        cut["POWER_CUT_LOG"] = str(log)
        words = [larder.program, "replace", "data", "cache", str(new), "--yes"]
        run = subprocess.run(words, capture_output=True, text=True, env=larder.environment(cut), timeout=60)
        volume = cache_of(larder, described.hdd)
        assert volume, f"at {at}: the volume has no superblock"
        old = volume["cache_uuid"] == former
        assert [r["state"] for r in described.rows()[0] if r["layer"] == "stack"] == ["stopped"]
        if not old:
            assert cache_of(larder, new)["cache_uuid"] == volume["cache_uuid"], f"at {at}: the new cache is not whole"
            assert str(described.uuid).encode() in read(new, SB + ON_SSD["stack"][0], SIZE)
        seen["former" if old else "new"] = at
        if run.returncode == 0:
            seen["end"] = at
        else:
            assert run.returncode == 88, run.stderr
            larder("replace", "data", "cache", new, "--yes", "--wipe")
            assert cache_of(larder, new)["cache_uuid"] == cache_of(larder, described.hdd)["cache_uuid"]
    assert seen["former"] > 8 and set(seen) == {"former", "new", "end"}, seen


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("early", [True, False], ids=["before the question waits", "at the question"])
def test_terminal_shows_what_is_typed_again(larder, described, how, early, tmp_path):
    """Whoever ends the command at the passphrase has the terminal as it was, and nothing was done."""
    described.volume(described.plain | {"state": "creating", "step": 3, "crypt": str(uuid.uuid5(described.uuid, "crypt"))})
    before = digest(described.hdd)
    shell, terminal = pty.openpty()
    words = [larder.program, "create", "--resume", "data", "--header-backup", "none"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = larder.environment()
    if early:
        environment |= preloaded("early_signal", tmp_path) | {"EARLY_SIGNAL": str(int(how))}
    was = signal.signal(how, signal.default_int_handler)  # of who ignores it, as nohup does, the command would, too
    run = subprocess.Popen(words, stdin=terminal, **pipes, text=True, env=environment)
    signal.signal(how, was)
    try:
        while not early and termios.tcgetattr(terminal)[3] & termios.ECHO:
            assert run.poll() is None
        if not early:
            run.send_signal(how)
        said = run.communicate(timeout=60)[1]
    finally:
        run.kill()
    assert "Passphrase of the stack data" in said
    assert run.returncode == -how and termios.tcgetattr(terminal)[3] & termios.ECHO and digest(described.hdd) == before
    os.close(shell)
    os.close(terminal)


# What a shell does with a job: it takes the terminal when that stops, and gives it back ("fg"), or not ("bg").
SHELL = """
import os, signal, sys, termios
ours = termios.tcgetattr(0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if not job:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
print("job", job, flush=True)
while os.WIFSTOPPED(status := os.waitpid(job, os.WUNTRACED)[1]):
    os.tcsetpgrp(0, os.getpid())
    print("stopped", os.WSTOPSIG(status), bool(termios.tcgetattr(0)[3] & termios.ECHO), flush=True)
    termios.tcsetattr(0, termios.TCSANOW, ours)
    if sys.stdin.readline() == "fg\\n":
        os.tcsetpgrp(0, job)
    os.kill(job, signal.SIGCONT)
print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGTSTP, signal.SIGSTOP])
def test_passphrase_is_not_shown_behind_a_stop(larder, described, how):
    """^Z, bg, fg: the terminal is the shell's meanwhile; then the question comes again, and what is typed is not shown."""
    described.volume(described.plain | {"state": "creating", "step": 3, "crypt": str(uuid.uuid5(described.uuid, "crypt"))})
    before, said = digest(described.hdd), b""
    words = [larder.program, "create", "--resume", "data", "--header-backup", "none"]
    pid, terminal = pty.fork()
    if not pid:
        os.execve(sys.executable, [sys.executable, "-c", SHELL, *words], larder.environment())

    def until(*wanted):
        nonlocal said
        while not all(text in said for text in wanted):
            said += os.read(terminal, 4096)
        text, said = said, b""
        return text

    question = b"Passphrase of the stack data: "
    job = int(re.search(rb"job (\d+)", until(b"job ", b"\n", question))[1])
    if how == signal.SIGTSTP:
        os.write(terminal, b"abc\x1a")
        until(b"stopped %d True" % how)
    else:
        os.kill(job, how)
        until(b"stopped %d False" % how)
    os.write(terminal, b"bg\n")
    until(b"stopped %d True" % signal.SIGTTOU)
    os.write(terminal, b"fg\n")
    until(question)
    os.write(terminal, b"xyzzy\n")
    assert b"xyzzy" not in until(b"The same once more: ")
    os.write(terminal, b"plugh\n")
    text = until(b"ended %d" % FAILED)
    assert b"the two passphrases differ" in text and b"plugh" not in text and digest(described.hdd) == before
    os.waitpid(pid, 0)
    os.close(terminal)


def test_fstab_loses_no_line(larder, described, tmp_path):
    """The line of the stack goes; all others stay as they are, also where one cannot be read, and a link stays one."""
    fstab, real = tmp_path / "fstab", tmp_path / "real"
    others = [b"/dev/sda1 / ext4 defaults 0 1\n", b"# a\0b\n", b"/dev/sdb1 /b ext4 defaults 0 2"]
    mine = f"/dev/mapper/data /srv ext4 nofail,x-larder.stack={described.uuid} 0 2\n".encode()
    real.write_bytes(others[0] + mine + others[1] + others[2])
    real.chmod(0o640)
    fstab.symlink_to(real)
    text = described.plain | {"state": "removing"}
    described.volume(text)
    described.ssds({"ready": [], "changing": [text]})
    environment = {"LIBMOUNT_FSTAB": str(fstab)}
    before = real.read_bytes()
    failing = environment | preloaded("read_error", tmp_path) | {"READ_ERROR": str(real)}
    run = larder("remove", "data", env=failing, code=FAILED)
    assert f"{real}: cannot change it: Input/output error" in run.stderr and "larder remove data goes on" in run.stderr
    assert real.read_bytes() == before and fstab.is_symlink() and not (tmp_path / "real.larder-new").exists()
    larder("remove", "data", env=environment)
    assert real.read_bytes() == b"".join(others) + b"\n" and fstab.is_symlink()
    assert real.stat().st_mode & 0o7777 == 0o640 and not real.with_name("real.larder-new").exists()


def test_another_line_of_fstab(larder, described, images, tmp_path):
    """Of two lines for one directory whoever mounts it takes the first: refused, with the line; its own is none."""
    fstab, where = tmp_path / "fstab", tmp_path / "a b"
    where.mkdir()
    field = str(where).replace(" ", "\\040")
    environment = {"LIBMOUNT_FSTAB": str(fstab)}
    made = [*words(images, "--mkfs", "ext4", "--dry-run"), "--mount", where]
    moved = ["set", "data", "--mount", where, "--dry-run"]
    described.volume(described.plain | {"fs": "ext4", "fs_uuid": str(uuid.uuid5(described.uuid, "fs"))})
    fstab.write_text(f"# {field}\n/dev/sdb1 {field}/below ext4 defaults 0 2\n")
    larder(*moved, env=environment)
    for line in (f"/dev/sdb1 {field} ext4 defaults 0 2", f"LABEL=x {field}/ xfs noauto,x-larder.stack={uuid.uuid4()} 0 0"):
        fstab.write_text("# by hand\n" + line)
        for given in (["create", "new", *made[2:]], moved):
            said = larder(*given, env=environment, code=BUSY)
            one_line(said, f"--mount: {where}", f"line 2 of {fstab}", line.split()[0], "take that out, or give another directory")
    fstab.write_text(f"/dev/mapper/data {field} ext4 nofail,x-larder.stack={described.uuid} 0 2\n")
    larder(*moved, env=environment)


def test_names_that_follow_are_reserved(larder, described, images):
    """Of a stack that is stopped, or away: fstab would mount whatever has the name of its device by then."""
    ssd0, _, hdd0, _ = images
    crypt = {"crypt": str(uuid.uuid5(described.uuid, "crypt"))}
    described.ssds({"ready": [f"{described.uuid} data"], "changing": []})

    def create(name, *more, code=BUSY):
        run = larder("create", name, "--backing", hdd0, "--cache", ssd0, *more, "--dry-run", code=code)
        return code or run.returncode, run

    def taken(run, device, whose):
        one_line(run, f"would be called {device},", whose, "choose another name")

    described.volume(described.plain | crypt)
    taken(create("data-crypt")[1], "data-crypt", "the stack data")
    create("data-crypt_dif", code=0)
    described.volume(described.plain | crypt | {"aead": "aes-gcm"})
    taken(create("data-crypt_dif")[1], "data-crypt_dif", "the stack data")
    described.volume(described.plain | {"snapshots": ["1 ready monday"]})
    for name in ("data-origin", "data@monday", "data@monday-store"):
        taken(create(name)[1], name, "the stack data")
    # one that is not encrypted has no such device, but what of those that are away is not known
    described.volume(described.plain)
    create("data-crypt", code=0)
    described.ssds({"ready": [f"{described.uuid} data", f"{uuid.uuid4()} films"], "changing": []})
    taken(create("films-crypt")[1], "films-crypt", "the stack films")
    # the other way round
    described.volume(described.plain | {"name": "x-crypt"})
    described.ssds({"ready": [f"{described.uuid} x-crypt"], "changing": []})
    create("x", code=0)
    taken(create("x", "--encrypt", "luks2")[1], "x-crypt", "the stack x-crypt")
    larder.volume("y-crypt")
    taken(create("y", "--encrypt", "luks2")[1], "y-crypt", "the volume on")
    before = [digest(x) for x in (described.hdd, described.ssd)]
    one_line(larder("rename", "x-crypt", "larder-cache-fast", code=USAGE), "NEW", "those of caches")
    one_line(larder("rename", "x-crypt", "y" * 65, code=USAGE), "NEW")
    one_line(larder("rename", "x-crypt", "y-crypt", code=BUSY), "label", "y-crypt")
    described.volume(described.plain | crypt | {"name": "x"})
    described.ssds({"ready": [f"{described.uuid} x", f"{uuid.uuid4()} z-crypt"], "changing": []})
    taken(larder("rename", "x", "y", code=BUSY), "y-crypt", "the volume on")
    taken(larder("rename", "x", "z", code=BUSY), "z-crypt", "the stack z-crypt")
    larder("rename", "x", "x2")
    assert before != [digest(x) for x in (described.hdd, described.ssd)]


def test_names_that_follow_are_reserved_for_volumes_and_caches(larder, described, images):
    """What `volume create` and `cache create` make has none of them either."""
    ssd0, _, hdd0, _ = images
    crypt = {"crypt": str(uuid.uuid5(described.uuid, "crypt"))}
    away = [f"{uuid.uuid4()} {name}" for name in ("films", "larder-cache")]
    described.ssds({"ready": [f"{described.uuid} data", *away], "changing": []})
    described.volume(described.plain | crypt | {"snapshots": ["1 ready monday"]})
    before = digest(hdd0), digest(ssd0)
    taken = ("data-crypt", "data-origin", "data@monday", "data@monday-store", "films", "films-crypt", "films-crypt_dif")
    for name, whose in ((name, name[: len("films" if name[0] == "f" else "data")]) for name in taken):
        for words in (["--dry-run"], []):
            run = larder("volume", "create", name, "--backing", hdd0, *words, code=BUSY)
            one_line(run, name, "label", f"a device of the stack {whose} is", "choose another")
    one_line(larder("volume", "create", "x", "--label", "data-crypt", "--backing", hdd0, code=BUSY), "data-crypt", "label")
    one_line(larder("cache", "create", "crypt", "--cache", ssd0, code=BUSY), "larder-cache-crypt", "the stack larder-cache")
    assert (digest(hdd0), digest(ssd0)) == before
    larder("volume", "create", "data-crypt_dif", "--backing", hdd0)
    larder("cache", "create", "films-crypt", "--cache", ssd0)


@pytest.mark.parametrize("what", ["label", "rename"])
def test_room_to_remove_is_kept(larder, described, what):
    """A label, or name, that grows is refused if `remove` had no room on the SSDs then; with what is taken it has."""
    uuids = {key: str(uuid.uuid5(described.uuid, part)) for key, part in (("crypt", "crypt"), ("fs_uuid", "fs"))}
    more = {"aead": "chacha20-poly1305", "fs": "ext4", "mount": "/srv"}
    plain = {key: value for key, value in described.plain.items() if key != "own_cache"} | uuids | more
    longer = "x" * 31 if what == "label" else "y" * 64
    words = ["cache", "label", "fast", "0", longer] if what == "label" else ["rename", "data", longer]
    refused = set()
    others = [f"{uuid.uuid4()} stack-{i:02}-with-a-name" for i in range(40)]
    saved = described.ssd.read_bytes(), described.hdd.read_bytes()
    for number in range(1, len(others), 4):
        for image, content in zip((described.ssd, described.hdd), saved, strict=True):
            image.write_bytes(content)
        text = {"ready": [f"{described.uuid} data", *others[:number]], "changing": []}
        if len(json.dumps(text, separators=(",", ":"))) > SIZE - HEAD - 110:
            break
        described.volume(plain)
        described.ssds(json.dumps(text, separators=(",", ":")).encode())
        before = digest(described.ssd), digest(described.hdd)
        run = larder(*words, code=None)
        refused.add(run.returncode)
        if run.returncode:
            assert run.returncode == FAILED and "no room to remove" in run.stderr and "2 KiB" in run.stderr, run.stderr
            assert (digest(described.ssd), digest(described.hdd)) == before
            if what == "label":
                one_line(larder(*words, "--dry-run", code=FAILED), "no room to remove")
                larder("cache", "label", "fast", "0", "none")
            continue
        # it begins, and ends where a kernel has the cache forget the volume
        run = larder("remove", "data" if what == "label" else longer, "--discard-data", described.uuid, code=USAGE)
        assert "is a regular file" in run.stderr and b'"state":"removing"' in field(described.ssd, ON_SSD, "stack"), run.stderr
    assert refused == {0, FAILED}, refused


def test_room_to_remove_the_others_is_kept(larder, described):
    """As a list that has room for a new stack, and to remove it, may have none to remove a larger one beside it."""
    crypt = {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "aead": "chacha20-poly1305"}
    described.volume({key: value for key, value in described.plain.items() if key != "own_cache"} | crypt)
    hdd, said = larder.image("more.hdd", 64 * MIB), []
    others = [f"{uuid.uuid4()} x{i:02}" for i in range(40)]
    for number in range(len(others), 0, -1):
        text = json.dumps({"ready": [f"{described.uuid} data", *others[:number]], "changing": []}, separators=(",", ":"))
        if len(text) > SIZE - HEAD:
            continue
        described.ssds(text.encode())
        run = larder("create", "more", "--backing", hdd, "--cache", "fast", "--dry-run", code=None)
        if not run.returncode:
            break
        assert run.returncode == FAILED
        said.append(run.stderr)
    assert not run.returncode and said[0].endswith("does not fit into 2 KiB; another cache\n"), "there are too many others"
    full = ["--mkfs", "ext4", "--mkfs-options", "-" * 250]
    run = larder("create", "more", "--backing", hdd, "--cache", "fast", "--dry-run", *full, code=FAILED)
    one_line(run, "does not fit into 2 KiB; shorter paths, or another cache")
    one_line_said = [x for x in said if "no room to remove" in x]
    assert one_line_said and all("more: with it" in x and "another cache" in x for x in one_line_said)


def test_room_of_one_that_is_half_made(larder, described):
    """It stays as large as it is while another one is made, whatever that is called."""
    crypt = {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "aead": "chacha20-poly1305"}
    described.volume({key: value for key, value in described.plain.items() if key != "own_cache"} | crypt)
    half = uuid.uuid4()
    made = described.plain | {"name": "more-1", "uuid": str(half), "state": "creating", "step": 1, "fs": "ext4", "mkfs": "x" * 200}
    made |= {"volume": str(uuid.uuid5(half, "volume")), "fs_uuid": str(uuid.uuid5(half, "fs"))}
    hdd, most = larder.image("more.hdd", 64 * MIB), {}
    others = [f"{uuid.uuid4()} x{i:02}" for i in range(30)]
    for number in range(len(others), 0, -1):
        text = {"ready": [f"{described.uuid} data", *others[:number]], "changing": [made]}
        text = json.dumps(text, separators=(",", ":")).encode()
        if len(text) > SIZE - HEAD:
            continue
        described.ssds(text)
        for name in ("more", "else"):
            run = larder("create", name, "--backing", hdd, "--cache", "fast", "--dry-run", code=None)
            assert not run.returncode or "2 KiB" in run.stderr, run.stderr
            if not run.returncode:
                most.setdefault(name, number)
    assert 0 < most["more"] == most["else"] < len(others)


def test_room_to_remove_is_kept_in_another_cache(larder, described):
    """The cache that a stack gets has a list of others: refused, and nothing written, where one could be removed no more."""
    crypt = {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "aead": "chacha20-poly1305"}
    described.volume(described.plain | crypt | {"cache": str(uuid.uuid4())})
    others, said = [f"{uuid.uuid4()} x{i:02}" for i in range(60)], []
    for number in range(len(others), 0, -1):
        text = json.dumps({"ready": others[:number], "changing": []}, separators=(",", ":"))
        if len(text) > SIZE - HEAD:
            continue
        described.ssds(text.encode())
        before = digest(described.ssd), digest(described.hdd)
        for more in (["--dry-run"], ["--yes"]):
            run = larder("replace", "data", "cache", "fast", *more, code=None)
        if not run.returncode:
            break
        assert run.returncode == FAILED and "another cache" in run.stderr, run.stderr
        assert (digest(described.ssd), digest(described.hdd)) == before
        said.append(run.stderr)
    assert not run.returncode
    assert "does not fit into 2 KiB" in said[0] and "fast: with it" in said[-1] and "no room to remove" in said[-1]
    run = larder("remove", "data", "--discard-data", described.uuid, code=USAGE)
    assert "is a regular file" in run.stderr and b'"state":"removing"' in field(described.ssd, ON_SSD, "stack"), run.stderr


def test_remove_where_no_table_can_be_read(larder, pair):
    """Nobody knows whose newest data that cache has: refused as unsafe, with the word that gives it up; the rest goes on."""
    pair.volume(pair.plain)
    pair.ssds({"ready": [f"{pair.uuid} data"], "changing": []})
    pair.other.unlink()
    larder.devices.remove(pair.other)
    whole = {x: x.read_bytes() for x in (pair.ssd, pair.hdd)}
    for table in TABLES:
        signatures.write(pair.ssd, table, bytes(TABLE_SIZE))
    before = [digest(x) for x in (pair.ssd, pair.hdd)]
    cache = pair.plain["cache"]
    remove = ["remove", "data", "--discard-data", pair.uuid]
    one_line(larder(*remove, code=UNSAFE), pair.ssd, "table", f"larder super wipe --discard-dirty {cache}", "larder remove data")
    assert [digest(x) for x in (pair.ssd, pair.hdd)] == before
    larder("super", "wipe", pair.ssd, "--discard-dirty", cache, "--yes")
    larder(*remove)
    assert read(pair.hdd, SB, SB_SIZE) == bytes(SB_SIZE)
    # one table is enough; an SSD of somebody else has none
    for lost, how in ((TABLES[:1], None), (TABLES, taken)):
        for path, was in whole.items():
            path.write_bytes(was)
        for table in lost:
            signatures.write(pair.ssd, table, bytes(TABLE_SIZE))
        if how:
            how(pair.ssd)
        theirs = digest(pair.ssd)
        larder(*remove)
        assert read(pair.hdd, SB, SB_SIZE) == bytes(SB_SIZE)
        assert how or read(pair.ssd, SB, SB_SIZE) == bytes(SB_SIZE)
        assert not how or digest(pair.ssd) == theirs


def test_dry_run_starts_no_leg(larder, described):
    """Where the description is behind an array that is stopped a dry run ends, and says what to do; the disk is left as it is."""
    described.ssds({"ready": [f"{described.uuid} films"], "changing": []})
    become_leg(described)
    new, before = larder.image("new", 64 * MIB), digest(described.hdd)
    for given in (["set", "films", "--backing-label", "x"], ["passwd", "films", "--backup"], ["replace", "films", "cache", new]):
        run = larder(*given, "--dry-run", code=NOT_FOUND)
        one_line(run, "films", "its array is stopped", "a dry run starts nothing", "larder start --locked films")
        assert digest(described.hdd) == before


def test_remove_has_room_in_a_full_list(larder, described, tmp_path):
    """What has grown since it was made, by `set`, is not needed to remove it."""
    more = {"fs": "ext4", "fs_uuid": str(uuid.uuid5(described.uuid, "fs")), "mkfs": "x" * 200}
    more |= {"mount": "/" + "m" * 200, "class": "c" * 400}
    others = [f"{uuid.uuid4()} other{i} 12" for i in range(20)]
    described.volume(described.plain | more)
    described.ssds({"ready": [f"{described.uuid} data", *others], "changing": []})
    environment = {"LIBMOUNT_FSTAB": str(tmp_path / "fstab")}
    # the cache is a file, which cannot be started to tell it that the volume is gone
    run = larder("remove", "data", "--discard-data", described.uuid, env=environment, code=None)
    assert "does not fit" not in run.stderr and "larder remove data goes on" in run.stderr
    assert read(described.hdd, SB, SB_SIZE) == bytes(SB_SIZE)
    stored = read(described.ssd, SB + ON_SSD["stack"][0], SIZE)
    (one,) = json.loads(stored[HEAD : HEAD + struct.unpack_from("<4I", stored)[3]])["changing"]
    assert one["state"] == "removing" and one["uuid"] == str(described.uuid) and not {"mount", "mkfs", "class", "fs"} & set(one)


def test_two_of_one_name(larder, described):
    described.volume(described.plain)
    described.ssds({"ready": [f"{uuid.uuid4()} data"], "changing": []})
    one_line(larder("start", "data", code=UNSAFE), "two stacks")
    assert larder("show", str(described.uuid)).stdout


LINK = {"name": "data-1", "state": "creating", "own_cache": 2, "next": 2}
BAD = {
    "version": (lambda p: p, {"version": 2}, "another version"),
    "magic": (lambda p: p, {"magic": 1}, "no description"),
    "length 0": (lambda p: p, {"length": 0}, "damaged"),
    "length beyond": (lambda p: p, {"length": SIZE - HEAD + 1}, "damaged"),
    "length of all": (lambda p: p, {"length": 0xFFFFFFFF}, "damaged"),
    "cut off": (lambda p: p, {"length": 40}, "JSON"),
    "more behind": (lambda p: json.dumps(p).encode() + b"x", {}, "JSON"),
    "no object": (lambda p: [1], {}, "JSON"),
    "deep": (lambda p: b"[" * 1500, {}, "JSON"),
    "unknown key": (lambda p: p | {"shape": "round"}, {}, "not known"),
    "name": (lambda p: p | {"name": "../x"}, {}, "bounds"),
    "name with an end in it": (lambda p: p | {"name": "a\0b"}, {}, "bounds"),
    "long name": (lambda p: p | {"name": "x" * 65}, {}, "bounds"),
    "number for a name": (lambda p: p | {"name": 5}, {}, "bounds"),
    "uuid": (lambda p: p | {"uuid": "12345"}, {}, "bounds"),
    "negative": (lambda p: p | {"generation": -1}, {}, "bounds"),
    "step": (lambda p: p | {"step": 7}, {}, "bounds"),
    "legs": (lambda p: p | {"legs": 65}, {}, "bounds"),
    "state": (lambda p: p | {"state": "well"}, {}, "bounds"),
    "raid": (lambda p: p | {"raid": "linear"}, {}, "bounds"),
    "fs": (lambda p: p | {"fs": "../../bin/sh"}, {}, "bounds"),
    "mount": (lambda p: p | {"fs": "ext4", "mount": "srv"}, {}, "bounds"),
    "line end in mount": (lambda p: p | {"fs": "ext4", "mount": "/srv\n/dev/sda / ext4"}, {}, "bounds"),
    "long mount": (lambda p: p | {"fs": "ext4", "mount": "/" + "x" * 255}, {}, "bounds"),
    "class": (lambda p: p | {"class": "a b"}, {}, "bounds"),
    "long class": (lambda p: p | {"class": "x" * 512}, {}, "bounds"),
    "mode": (lambda p: p | {"mode": "passthrough"}, {}, "bounds"),
    "cipher": (lambda p: p | {"crypt": str(uuid.uuid5(uuid.UUID(p["uuid"]), "crypt")), "aead": "rot13"}, {}, "bounds"),
    "cipher alone": (lambda p: p | {"aead": "aes-gcm"}, {}, "contradicts"),
    "tags of nothing": (lambda p: p | {"crypt": str(uuid.uuid5(uuid.UUID(p["uuid"]), "crypt")), "wiped": 5}, {}, "contradicts"),
    "sums by what": (lambda p: p | {"raid": "1", "legs": 2, "integrity": "md5"}, {}, "bounds"),
    "sums of no array": (lambda p: p | {"integrity": "crc32c"}, {}, "contradicts"),
    "sums below a stripe": (lambda p: p | {"raid": "0", "legs": 2, "integrity": "crc32c"}, {}, "contradicts"),
    "key file alone": (lambda p: p | {"keyfile": "/etc/key"}, {}, "contradicts"),
    "further key of nothing": (lambda p: p | {"state": "creating", "token": "tpm2"}, {}, "contradicts"),
    "further key of one that is ready": (
        lambda p: p | {"crypt": str(uuid.uuid5(uuid.UUID(p["uuid"]), "crypt")), "token": "tpm2"},
        {},
        "contradicts",
    ),
    "further key too long": (lambda p: p | {"token": "x" * 256}, {}, "bounds"),
    "further key without a word": (lambda p: p | {"token": ""}, {}, "bounds"),
    "disks without array": (lambda p: p | {"legs": 3}, {}, "contradicts"),
    "no cache": (lambda p: {k: v for k, v in p.items() if k != "cache"}, {}, "lacks"),
    "cache of whom": (lambda p: p | {"own_cache": 3}, {}, "bounds"),
    "too many behind it": (lambda p: p | LINK | {"next": 64}, {}, "bounds"),
    "more behind it than have a number": (lambda p: p | LINK | {"name": "data-2", "next": 63}, {}, "contradicts"),
    "those behind it have no name": (lambda p: p | LINK | {"name": "data"}, {}, "contradicts"),
    "name too long for those behind it": (lambda p: p | LINK | {"name": "x" * 62 + "-9"}, {}, "contradicts"),
    "more behind one that is ready": (lambda p: p | LINK | {"state": "ready"}, {}, "contradicts"),
    "spares of no array": (lambda p: p | {"state": "creating", "spares": 1}, {}, "contradicts"),
    "spares of a stripe": (lambda p: p | {"state": "creating", "raid": "0", "legs": 2, "spares": 1}, {}, "contradicts"),
    "spares of one that is ready": (lambda p: p | {"raid": "1", "legs": 2, "spares": 1}, {}, "contradicts"),
    "too many spares": (lambda p: p | {"state": "creating", "raid": "1", "legs": 2, "spares": 63}, {}, "contradicts"),
    "more spares than disks may be": (lambda p: p | {"state": "creating", "raid": "1", "legs": 2, "spares": 64}, {}, "bounds"),
    "array before others": (lambda p: p | LINK | {"raid": "1", "legs": 2}, {}, "contradicts"),
    "another's part": (lambda p: p | {"volume": str(uuid.uuid4())}, {}, "not the stack's"),
}


def chain(described):
    """UUIDs of the stacks behind the first one, from docs/on-disk-format.md."""
    second = uuid.uuid5(described.uuid, "next")
    return second, uuid.uuid5(second, "next")


def test_half_made_separate_stacks(larder, described):
    """One has a description, those behind it a mark on their disks: remove takes all of it."""
    crypt = str(uuid.uuid5(described.uuid, "crypt"))
    text = described.plain | LINK | {"step": 4, "crypt": crypt}
    described.volume(text)
    described.ssds({"ready": [], "changing": [text]})
    marked = []
    for number, own in enumerate(chain(described)):
        marked.append(larder.volume(f"marked{number}", 64 * MIB))
        patch_both(marked[-1], VOLUME, kind=4, uuid=uuid.uuid5(own, "disk 0").bytes)
    other = larder.volume("other", 64 * MIB)
    patch_both(other, VOLUME, kind=4, uuid=uuid.uuid5(uuid.uuid4(), "disk 0").bytes)
    assert [(r["name"], r["state"]) for r in described.rows()[0] if r["layer"] == "stack"] == [("data-1", "creating")]
    before = digest(other)
    for word in ("data-1", "data"):
        one_line(larder("create", "--resume", word, "--header-backup", "/root/header", code=USAGE), "2 more headers", "data-1")
    one_line(larder("create", "--resume", "dat", code=NOT_FOUND), "dat")
    larder("remove", "data-1")
    for path in (described.ssd, described.hdd, *marked):
        assert read(path, SB, SB_SIZE) == bytes(SB_SIZE), path
    assert digest(other) == before


def test_half_made_with_spares(larder, described):
    """Marked, and not yet of an array: remove takes the marks of spares, too, and the spares of a cache that goes."""
    array = {"raid": "1", "legs": 2, "spares": 1, "md": str(uuid.uuid5(described.uuid, "md"))}
    text = described.plain | {"state": "creating", "step": 1} | array
    described.volume({})
    patch_both(described.hdd, VOLUME, kind=4, uuid=uuid.uuid5(described.uuid, "disk 0").bytes)
    described.ssds({"ready": [], "changing": [text]})
    marked = [larder.volume(f"marked{number}", 64 * MIB) for number in (1, 2, 3)]
    for number, path in enumerate(marked, 1):
        patch_both(path, VOLUME, kind=4, uuid=uuid.uuid5(described.uuid, f"disk {number}").bytes)
    larder("remove", "data")
    for path in (described.ssd, described.hdd, *marked[:2]):
        assert read(path, SB, SB_SIZE) == bytes(SB_SIZE), path
    assert read(marked[2], SB, SB_SIZE) != bytes(SB_SIZE), "no disk of it has that number"


ABOVE_MARKS = [signatures.dos, signatures.swap, signatures.md_0_90, signatures.md_1_0, signatures.luks, signatures.gpt]


@pytest.mark.parametrize("shape", ["one", "array", "separate"])
@pytest.mark.parametrize("how", ABOVE_MARKS, ids=lambda x: x.__name__)
def test_resume_leaves_a_disk_of_somebody_else(larder, described, how, shape):
    """Given up, and used for something else that left the mark whole: nobody goes on with it, nor is anything started."""
    text = described.plain | {"state": "creating", "step": 1}
    own = [described.uuid]
    if shape == "array":
        text |= {"raid": "1", "legs": 2, "md": str(uuid.uuid5(described.uuid, "md"))}
    elif shape == "separate":
        text |= LINK
        own += chain(described)
    parts = [(x, number) for x in own for number in range(text["legs"])]
    described.volume({})
    described.ssds({"ready": [], "changing": [text]})
    larder.devices.remove(described.hdd)
    marked = []
    for number, (of, disk) in enumerate(parts):
        marked.append(larder.volume(f"marked{number}", 64 * MIB))
        patch_both(marked[-1], VOLUME, kind=4, uuid=uuid.uuid5(of, f"disk {disk}").bytes)
    name = text["name"]
    assert "losetup" in larder("create", "--resume", name, code=USAGE).stderr
    how(marked[-1])
    before = [digest(x) for x in (*marked, described.ssd)]
    for more in ([], ["--wipe"]):
        run = larder("create", "--resume", name, *more, code=UNSAFE)
        said = run.stderr.splitlines()
        assert len(said) == 2 and str(marked[-1]) in said[0] and "somebody else's now" in said[0], said
        assert "nothing goes on with that disk; larder remove" in said[1], said
        assert [digest(x) for x in (*marked, described.ssd)] == before
    larder("remove", name)
    assert digest(marked[-1]) == before[-2]
    for path in (*marked[:-1], described.ssd):
        assert read(path, SB, SB_SIZE) == bytes(SB_SIZE), path


def test_name_of_a_cache_made_together(larder, described):
    """It has a name of its own, which stays when one of its stacks gets another one."""
    described.volume(described.plain | {"name": "data-1", "own_cache": 2})
    described.ssds({"ready": [f"{described.uuid} data-1"], "changing": []})
    larder("rename", "data-1", "films")
    assert field(described.ssd, CACHE, "label").rstrip(b"\0") == b"fast"
    assert field(described.hdd, VOLUME, "label").rstrip(b"\0") == b"films"
    described.volume(described.plain | {"name": "films", "generation": 9})
    larder("rename", "films", "music")
    assert field(described.ssd, CACHE, "label").rstrip(b"\0") == b"music"


@pytest.mark.parametrize("name", BAD)
def test_bad_description(larder, described, name):
    """Left out, with a line that says why; nothing else is disturbed."""
    make, more, why = BAD[name]
    described.volume(make(described.plain), **more)
    rows, said = described.rows()
    assert rows == [] and why in said and str(described.hdd) in said and len(said.splitlines()) == 1
    assert "data" in larder("volume", "list").stdout
    described.volume(described.plain)
    if isinstance(make(described.plain), dict):
        described.ssds({"ready": [], "changing": [make(described.plain)]}, **more)
        rows, said = described.rows()
        assert [r["layer"] for r in rows][:1] == ["stack"] and why in said and str(described.ssd) in said


def test_bad_lists_of_a_cache(larder, described):
    entry = f"{uuid.uuid4()} films"
    ready = ([5], [entry[1:]], entry, [f"{entry}/x"], [entry[:36]])
    for bad in (*({"ready": x} for x in ready), {"other": []}):
        described.ssds(bad)
        rows, said = described.rows()
        assert rows == [] and "stack: " in said, bad
    described.ssds({"ready": [f"{uuid.uuid4()} {i}" for i in range(40)], "changing": []})
    assert len(described.rows()[0]) == 40
    # the description of a volume in the place of a list
    patch_both(described.ssd, ON_SSD, stack=pack(described.plain, OF_VOLUME))
    assert "damaged" in described.rows()[1]


def test_volume_of_another_stack(larder, described):
    """A description copied to another disk is not that disk's."""
    described.volume(described.plain)
    other = larder.volume("other", 64 * MIB)
    patch_both(other, ON_VOLUME, stack=read(described.hdd, SB + 512, SIZE))
    rows, said = described.rows()
    assert [r["name"] for r in rows if r["layer"] == "stack"] == ["data"] and "another volume" in said and str(other) in said


def test_random_edits_of_a_description(tmp_path):
    """tests/fuzz/fuzz_stack.c without clang: what is accepted is in bounds, and the same when it was written and read again."""
    fuzz = TOP / "tests" / "fuzz"
    subprocess.run(["make", "-s", "-C", fuzz, f"WORK={tmp_path}", "standalone-stack"], check=True, stdout=subprocess.DEVNULL)
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1")
    for name, number in (("stack.json", 50000), ("stack_chain.json", 20000)):
        program = [tmp_path / "standalone-stack", "1", str(number), fuzz / name]
        run = subprocess.run(program, capture_output=True, text=True, errors="replace", env=environment)
        assert run.returncode == 0 and "Sanitizer" not in run.stderr, run.stderr[-4000:]
