# SPDX-License-Identifier: GPL-2.0-or-later
"""The command larder does not take over what somebody else owns, and nobody takes over what is larder's."""

import fcntl
import os
import re
import shutil
import subprocess
import time
import uuid
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
sys.path.append(str(Path(__file__).resolve().parent / "vm/guest/lib"))
import signatures
from harness import (
    BUSY,
    CACHE,
    FAILED,
    MIB,
    NOT_FOUND,
    SB,
    SB_SIZE,
    TABLE,
    TABLES,
    UNSAFE,
    USAGE,
    VOLUME,
    attach_by_hand,
    blank,
    blkid,
    digest,
    field,
    one_line,
    patch_both,
    patch_tables,
    pieces,
    read,
)
from question import answered

pytest_plugins = ["larder_fixtures"]

# ---------------------------------------------------------------------- what is on a device


def test_regular_image_in_use(larder):
    path = larder.image("ssd", 64 * MIB)
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        one_line(larder("cache", "create", "fast", "--cache", path, code=BUSY), path, "in use")
        one_line(larder("cache", "create", "fast", "--cache", path, "--dry-run", code=BUSY), path, "in use")
    assert blank(path)
    larder("cache", "create", "fast", "--cache", path)


def test_image_that_a_loop_device_shows(larder, loop):
    """Its file's lock is free; what is written below the device is lost, to one of both.  Whatever name the file has."""
    image, link = larder.image("ssd", 64 * MIB), larder.image("link", 0)
    link.unlink()
    link.hardlink_to(image)
    made = larder.cache("made")
    saved = larder.directory / "saved"
    larder("super", "backup", made, saved)
    device, other = loop(image), loop(made, "--read-only")
    before = digest(made)
    for path in (image, link):
        for words in (["cache", "create", "fast", "--cache", path], ["volume", "create", "x", "--backing", path]):
            for dry_run in [], ["--dry-run"]:
                one_line(larder(*words, *dry_run, code=BUSY), path, "in use", f"held by {device};")
    assert blank(image)
    for words in (["super", "wipe", made, "--yes"], ["super", "restore", saved, made]):
        one_line(larder(*words, code=BUSY), made, "in use", f"held by {other};")
    larder("super", "check", made)
    assert digest(made) == before
    larder("cache", "create", "fast", "--cache", device)


FOREIGN = {name: (name, write) for name, write in signatures.HEAD.items()}
FOREIGN |= {name: ("linux_raid_member", write) for name, write in signatures.MD.items()}
FOREIGN |= {name: found for name, found in signatures.TAIL.items() if name not in signatures.MD}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_signature(larder, name):
    found, write = FOREIGN[name]
    path = larder.image("disk", 80 * MIB)
    write(path)
    before = digest(path)
    for words in (["cache", "create", "x", "--cache", path], ["volume", "create", "x", "--backing", path]):
        one_line(larder(*words, code=UNSAFE), path, found, "--wipe")
        one_line(larder(*words, "--discard-dirty", uuid.uuid4(), code=UNSAFE), found)
    assert f"{path}: {found}: " in larder("probe", path, code=NOT_FOUND).stdout
    assert digest(path) == before
    larder("volume", "create", "x", "--backing", path, "--wipe", "--yes")
    assert blkid(path) == ""
    assert not re.search(rf": {found}: ", larder("probe", path).stdout)
    larder("super", "check", path)


def test_two_signatures_both_named_and_wiped(larder):
    path = larder.image("disk", 80 * MIB)
    signatures.gpt(path)
    signatures.md_1_0(path)
    signatures.luks(path)
    run = larder("cache", "create", "x", "--cache", path, code=UNSAFE)
    one_line(run, "linux_raid_member", "crypto_LUKS")
    larder("cache", "create", "x", "--cache", path, "--wipe")
    assert blkid(path) == ""


def test_damaged_signature_counts(larder):
    """A physical volume whose checksum is wrong is refused as well."""
    path = larder.image("disk", 80 * MIB)
    signatures.lvm(path)
    signatures.write(path, 512 + 40, b"?")
    assert blkid(path) == ""
    one_line(larder("cache", "create", "x", "--cache", path, code=UNSAFE), "LVM2_member")


def test_own_superblock_needs_wipe(larder):
    for path, words in (
        (larder.cache("fast"), ["cache", "create", "new", "--cache"]),
        (larder.volume("data"), ["volume", "create", "new", "--backing"]),
    ):
        before = digest(path)
        one_line(larder(*words, path, code=UNSAFE), path, "larder", "--wipe")
        assert digest(path) == before
        larder(*words, path, "--wipe")
        assert field(path, CACHE, "label").rstrip(b"\0") == b"new"
        before = digest(path)
        one_line(larder("super", "wipe", path, code=FAILED), path, "left as it is", "--yes")  # nobody is there to be asked
        assert digest(path) == before
        larder("super", "wipe", path, "--yes")
        assert larder("probe", path, code=NOT_FOUND)
        larder("super", "check", path, code=NOT_FOUND)


@pytest.mark.parametrize("kind", signatures.TAIL_ALONE)
def test_replica_is_not_wiped_alone(larder, kind):
    """The leg of a mirror with its superblock at the end, or the disk below DRBD; but what was one, and is by itself now."""
    type_, write = signatures.TAIL_ALONE[kind]
    path = larder.volume("data")
    os.truncate(path, path.stat().st_size + MIB)
    write(path)
    before = digest(path)
    for dry_run in ["--dry-run"], []:
        one_line(larder("super", "wipe", path, "--yes", *dry_run, code=UNSAFE), path, type_, "drbdadm", "mdadm", f"{path} first")
        assert digest(path) == before
    remedy = re.search(rf"(wipefs .*{path}) first", larder("super", "wipe", path, "--yes", code=UNSAFE).stderr)[1]
    subprocess.run(remedy.split(), check=True, capture_output=True)
    larder("super", "wipe", path, "--yes")
    larder("super", "check", path, code=NOT_FOUND)


@pytest.mark.parametrize("kind", signatures.TAIL_ALONE)
def test_replica_is_not_started_alone(larder, kind):
    """Not by its path either: what its target writes the other one lacks."""
    type_, write = signatures.TAIL_ALONE[kind]
    for path, words in (
        (larder.volume("data"), ["volume", "start"]),
        (larder.cache("fast"), ["cache", "start"]),
    ):
        os.truncate(path, path.stat().st_size + MIB)
        write(path)
        run = larder(*words, path, "--dry-run", code=UNSAFE)
        said = run.stderr.splitlines()
        for part in (str(path), type_, "behind", "drbdadm", "mdadm", f"{path} first"):
            assert part in said[0], said[0]
        assert not run.stdout and (len(said) == 1 or "no SSD left" in said[1])
        remedy = re.search(rf"(wipefs .*{path}) first", run.stderr)[1]
        subprocess.run(remedy.split(), check=True, capture_output=True)
        assert "dmsetup create" in larder(*words, path, "--dry-run").stdout


@pytest.mark.parametrize("why", ["clean disk", "dirty", "no"])
def test_all_of_a_set_are_judged_before_one_is_wiped(larder, why):
    """A refusal, or an answer, that comes with the last SSD: the first one is as it was."""
    first, second = larder.volume("data"), larder.cache("fast")
    words = ["cache", "create", "new", "--cache", first, "--cache", second, "--wipe"]
    before = digest(first), digest(second)
    if why == "no":
        shell, answer = os.openpty()
        os.write(shell, b"y\nn\n")
        run = larder(*words, stdin=answer, code=FAILED)
        assert f"{second}: left as it is" in run.stderr and run.stderr.count("Wipe it?") == 2, run.stderr
        os.close(shell)
        os.close(answer)
    else:
        attach_by_hand(second, first)
        patch_both(first, VOLUME, cache_uuid=field(second, CACHE, "cache_uuid"))
        before = digest(first), digest(second)
    if why == "dirty":
        larder.devices = [second]  # the one on which nothing is dirty is not seen
        one_line(larder(*words, code=UNSAFE), second, "not here")
    assert (digest(first), digest(second)) == before
    if why == "clean disk":
        run = larder(*words, "--dry-run")
        assert [f"wipe {path}: " in run.stdout for path in (first, second)] == [True, True]
        assert (digest(first), digest(second)) == before
        larder(*words)  # the disk of which the second one has nothing dirty is wiped first
        assert field(second, CACHE, "label").rstrip(b"\0") == b"new"


def test_damaged_own_superblock_needs_wipe(larder):
    path = larder.cache("fast")
    for at in (SB, field(path, CACHE, "copy_offset")):
        signatures.write(path, at + 300, b"?")
    one_line(larder("volume", "create", "x", "--backing", path, code=UNSAFE), "damaged", "--wipe")
    larder("volume", "create", "x", "--backing", path, "--wipe")


@pytest.mark.parametrize("verb", ["create", "wipe"])
def test_dirty_volume_is_kept(larder, verb):
    larder.cache("fast")
    path = larder.volume("data", 64 * MIB, "--cache", "fast")
    patch_both(path, VOLUME, flags=1)
    own = uuid.UUID(bytes=field(path, VOLUME, "uuid"))
    words = ["super", "wipe", path, "--yes"] if verb == "wipe" else ["volume", "create", "new", "--backing", path, "--wipe"]
    before = digest(path)
    one_line(larder(*words, code=UNSAFE), path, "may_be_dirty", f"--discard-dirty {own}")
    one_line(larder(*words, "--discard-dirty", uuid.uuid4(), code=UNSAFE), "may_be_dirty")
    assert digest(path) == before
    larder(*words, "--discard-dirty", own)
    assert digest(path) != before


@pytest.mark.parametrize("verb", ["create", "wipe"])
def test_cache_of_dirty_volumes_is_kept(larder, verb):
    ssd = larder.cache("fast")
    hdd = larder.volume("data", 64 * MIB, "--cache", "fast")
    attach_by_hand(ssd, hdd)
    own, volume = uuid.UUID(bytes=field(ssd, CACHE, "cache_uuid")), uuid.UUID(bytes=field(hdd, VOLUME, "uuid"))
    words = ["super", "wipe", ssd, "--yes"] if verb == "wipe" else ["cache", "create", "new", "--cache", ssd, "--wipe"]
    before = digest(ssd)
    larder.devices = [ssd]
    one_line(larder(*words, code=UNSAFE), volume, "not here", f"--discard-dirty {own}")
    larder.devices = [ssd, hdd]
    patch_both(hdd, VOLUME, flags=1)
    one_line(larder(*words, code=UNSAFE), volume, hdd, f"--discard-dirty {own}")
    one_line(larder(*words, "--discard-dirty", volume, code=UNSAFE), own)
    assert digest(ssd) == before
    patch_both(hdd, VOLUME, flags=0)
    # put back from an image, when it was clean: what it is newer by may be in the cache alone
    patch_tables(ssd, volume0__incarnation=field(hdd, VOLUME, "incarnation"), volume0__seen=field(hdd, VOLUME, "generation") + 1)
    older = digest(ssd)
    one_line(larder(*words, code=UNSAFE), volume, hdd, f"--discard-dirty {own}")
    assert digest(ssd) == older
    patch_tables(ssd, volume0__seen=field(hdd, VOLUME, "generation"))
    before = digest(ssd)
    larder(*words, "--dry-run")
    assert digest(ssd) == before
    larder(*words)
    assert digest(ssd) != before


@pytest.mark.parametrize("verb", ["create", "wipe"])
@pytest.mark.parametrize("change", ["clean", "of another cache"])
@pytest.mark.parametrize("first", ["disk", "copy"])
def test_clean_copy_of_a_dirty_disk(larder, verb, change, first):
    """A snapshot, or a dd, of the disk: of both the newest data may be in the cache, in whatever order they are found."""
    ssd = larder.cache("fast")
    hdd = larder.volume("data", 64 * MIB, "--cache", "fast")
    attach_by_hand(ssd, hdd)
    copy = larder.image("copy", 0)
    shutil.copy(hdd, copy)
    patch_both(hdd, VOLUME, flags=1)
    patch_both(copy, VOLUME, **({"flags": 0} if change == "clean" else {"flags": 1, "cache_uuid": uuid.uuid4().bytes}))
    larder.devices = [ssd, hdd, copy] if first == "disk" else [ssd, copy, hdd]
    own, before = uuid.UUID(bytes=field(ssd, CACHE, "cache_uuid")), digest(ssd)
    words = ["super", "wipe", ssd] if verb == "wipe" else ["cache", "create", "new", "--cache", ssd, "--wipe"]
    run = larder(*words, "--yes", code=UNSAFE)
    one_line(run, f"{larder.devices[1]} and its copy {larder.devices[2]}", f"--discard-dirty {own}")
    assert digest(ssd) == before
    patch_both(hdd, VOLUME, flags=0)
    larder(*words, "--yes")
    assert digest(ssd) != before


def test_cache_of_dirty_volumes_given_up(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast")
    attach_by_hand(ssd, hdd)
    patch_both(hdd, VOLUME, flags=1)
    larder("cache", "create", "new", "--cache", ssd, "--wipe", "--discard-dirty", uuid.UUID(bytes=field(ssd, CACHE, "cache_uuid")))
    assert field(ssd, TABLE, "nr_volumes", TABLES[0]) == 0


@pytest.mark.parametrize("offset", [1 << 20, 4 << 20])
def test_luks_in_the_log_is_wiped(larder, offset):
    """The second header of an encrypted volume is nobody's, until the superblock in front of it is gone."""
    ssd = larder.cache("fast")
    signatures.luks2_second_header(ssd, offset)
    run = larder("volume", "create", "data", "--backing", ssd, code=UNSAFE)
    one_line(run, "larder cache superblock")
    assert "LUKS" not in run.stderr
    larder("volume", "create", "data", "--backing", ssd, "--wipe")
    assert "crypto_LUKS" not in blkid(ssd)


def test_cache_without_readable_tables_is_kept(larder):
    ssd = larder.cache("fast")
    for at in TABLES:
        signatures.write(ssd, at + 100, b"?")
    one_line(larder("cache", "create", "new", "--cache", ssd, "--wipe", code=UNSAFE), "table", "--discard-dirty")


@pytest.mark.parametrize("verb", ["create", "wipe"])
@pytest.mark.parametrize("change", [{"version": 2}, {"incompat": 1 << 40}, {"kind": 9}], ids=["version", "incompat", "kind"])
def test_superblock_of_a_newer_larder_is_kept(larder, verb, change):
    """Whole, but not to be understood: whatever it holds is not ours to call damaged."""
    ssd = larder.cache("fast")
    own = uuid.UUID(bytes=field(ssd, CACHE, "uuid"))
    patch_both(ssd, CACHE, **change)
    words = ["super", "wipe", ssd] if verb == "wipe" else ["cache", "create", "new", "--cache", ssd, "--wipe"]
    before = digest(ssd)
    one_line(larder(*words, "--yes", code=UNSAFE), ssd, "newer larder", f"--discard-dirty {own}")
    one_line(larder(*words, "--yes", "--discard-dirty", uuid.uuid4(), code=UNSAFE), "newer larder")
    assert digest(ssd) == before
    larder(*words, "--yes", "--discard-dirty", own)
    assert digest(ssd) != before


@pytest.mark.parametrize("verb", ["create", "wipe"])
def test_dirty_devices_that_show_less_are_kept(larder, verb):
    """Behind a bridge that hides some sectors: larder refuses to use it there, and it is as dirty as ever."""
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast")
    attach_by_hand(ssd, hdd)
    patch_both(hdd, VOLUME, flags=1)
    for path, layout, name in ((ssd, CACHE, "cache_uuid"), (hdd, VOLUME, "uuid")):
        own = uuid.UUID(bytes=field(path, layout, name))
        os.truncate(path, path.stat().st_size - MIB)
        how = ["super", "wipe", path] if verb == "wipe" else ["volume", "create", "new", "--backing", path, "--wipe"]
        before = digest(path)
        one_line(larder(*how, "--yes", code=UNSAFE), path, f"--discard-dirty {own}")
        assert digest(path) == before
    os.truncate(hdd, 64 * MIB)
    patch_both(hdd, VOLUME, flags=0)
    larder("super", "wipe", ssd, "--yes")  # all that it held is on the disk as well


# ---------------------------------------------------------------------- signatures made inside a volume


def inside(path, write, offset, tail):
    """Lets `write` work on a file that is the volume, then puts that into the backing."""
    volume = path.with_suffix(".inside")
    with open(volume, "wb") as image:
        image.truncate(path.stat().st_size - offset - tail)
    write(volume)
    for at, piece in pieces(volume):
        signatures.write(path, offset + at, piece)
    return volume


INSIDE = {name: write for name, (_, write) in FOREIGN.items()}


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("odd", [0, 12345 * 512])
def test_signature_inside_is_not_seen_outside(larder, name, odd):
    size = 256 * MIB + odd
    path = larder.image("hdd", size)
    larder("volume", "create", "data", "--backing", path)
    volume = inside(path, INSIDE[name], MIB, MIB)
    # the oracle can fail: on the volume itself it is found
    assert FOREIGN[name][0] in larder("probe", volume, code=NOT_FOUND).stdout
    lines = larder("probe", path).stdout.splitlines()
    assert len(lines) == 2 and ": larder volume, " in lines[1], lines
    assert blkid(path) == ""
    larder("super", "check", path)


@pytest.mark.parametrize("name", ["md 0.90", "imsm", "ddf", "zfs"])
def test_signature_inside_is_seen_without_a_reserve(larder, name):
    """What the tail reserve is for: this is what a disk taken over in place has to live with.  (md 1.0 and the backup of a GPT name
    their own sector, which is another one seen from outside: nobody claims them there.)"""
    path = larder.image("hdd", 256 * MIB)
    larder("volume", "create", "data", "--backing", path, "--tail-reserve", "0")
    inside(path, INSIDE[name], MIB, 0)
    assert re.search(rf": {FOREIGN[name][0]}: .* \(in its data, at the end: no owner's\)$", larder("probe", path).stdout, re.M)


@pytest.mark.parametrize("version", ["0.90", "1.0", "1.1", "1.2"])
def test_mdadm_does_not_claim_the_backing(larder, version):
    mdadm = next(
        (d + "/mdadm" for d in (os.environ["PATH"] + ":/sbin:/usr/sbin").split(":") if os.access(d + "/mdadm", os.X_OK)), None
    )
    if not mdadm:
        pytest.skip("mdadm is not installed")
    path = larder.image("hdd", 256 * MIB)
    larder("volume", "create", "data", "--backing", path)
    volume = inside(path, lambda image: signatures.md(image, version), MIB, MIB)

    def examine(image):
        run = subprocess.run([mdadm, "--examine", str(image)], capture_output=True, text=True)
        return (run.stdout + run.stderr).lower()

    if "no md superblock" in examine(volume):
        pytest.skip("this mdadm asks for more than a signature")
    assert "no md superblock" in examine(path)


# ---------------------------------------------------------------------- real block devices, where the tests may have them


def at_number(device, image):
    """A loop device of this number: other tests, which run beside these, may have been given it as a free one, for a moment."""
    giving_up = time.monotonic() + 60
    while (run := subprocess.run(["losetup", device, image], capture_output=True, text=True)).returncode:
        assert time.monotonic() < giving_up, run.stderr
        time.sleep(0.05)


def test_block_device(larder, loop):
    image = larder.image("ssd", 64 * MIB, seen=False)
    device = loop(image)
    larder.devices = [device]
    larder("cache", "create", "fast", "--cache", device)
    larder("super", "check", device)
    assert f"larder-cache 1 {device} 0'" in larder("cache", "start", "fast", "--dry-run").stdout
    larder("cache", "create", "slow", "--cache", device, "--wipe")
    larder("super", "wipe", device, "--yes")
    assert read(image, SB, 16) == bytes(16)


def test_path_becomes_another_device_at_the_question(larder, loop):
    """What was judged, and shown, is what is taken: not what has its name behind the answer.  By a link, and by the same number."""
    images = [larder.image(name, 128 * MIB, seen=False) for name in ("ssd", "other", "disk")]
    ssd, other, disk = map(loop, images)
    link = larder.directory / "link"

    def asked(change):
        link.unlink(missing_ok=True)
        link.symlink_to(ssd)
        before = []

        def others():
            change()
            before.extend(digest(image) for image in images)

        words = [larder.program, "create", "data", "--backing", disk, "--cache", link]
        run = answered(words, "Make it?", others, larder.environment())
        assert run.returncode == UNSAFE and f"{link}: is another device now" in run.stderr, run.stderr
        assert [digest(image) for image in images] == before

    def relink():
        link.unlink()
        link.symlink_to(other)

    def exchange():
        for device in (ssd, other):
            subprocess.run(["losetup", "--detach", device], check=True)
        for device, image in ((ssd, images[1]), (other, images[0])):
            at_number(device, image)

    asked(relink)
    asked(exchange)


def test_block_device_found_by_scanning(larder, loop):
    device = loop(larder.image("hdd", 64 * MIB, seen=False))
    larder("volume", "create", f"scan{os.getpid()}", "--backing", device)
    found = subprocess.run(
        [larder.program, "volume", "list", "-o", "name,backing", "--noheadings"],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "LARDER_DEVICES"},
    )
    assert [f"scan{os.getpid()}", device] in [line.split() for line in found.stdout.splitlines()], found.stdout + found.stderr


def test_loop_device_above_another_counts_once(larder, loop):
    below = loop(larder.image("disk", 64 * MIB, seen=False))
    above = loop(below, "--offset", str(MIB))
    for words in ((below, above), (above, below)):
        one_line(larder("advise", *words, code=USAGE), words[1], words[0], "would count twice")


def test_read_only_block_device(larder, loop):
    device = loop(larder.image("ssd", 64 * MIB, seen=False), "--read-only")
    run = larder("cache", "create", "fast", "--cache", device, code=FAILED)
    one_line(run, device, "ead-only")


def test_4k_sectors(larder, loop):
    device = loop(larder.image("hdd", 64 * MIB, seen=False), "--sector-size", "4096")
    larder("volume", "create", "data", "--backing", device, "--data-offset", "12K", "--tail-reserve", "4K")
    larder("super", "check", device)
    one_line(
        larder("volume", "create", "new", "--backing", device, "--tail-reserve", "512", "--wipe", code=FAILED), "--tail-reserve"
    )


def test_exclusively_opened_block_device(larder, loop):
    device = loop(larder.image("hdd", 64 * MIB, seen=False))
    other = os.open(device, os.O_RDWR | os.O_EXCL)
    try:
        for words in (
            ["volume", "create", "data", "--backing", device],
            ["volume", "create", "data", "--backing", device, "--dry-run"],
            ["cache", "create", "data", "--cache", device, "--wipe", "--yes"],
            ["super", "wipe", device],
        ):
            one_line(larder(*words, code=BUSY), device, "in use")
    finally:
        os.close(other)
    larder("volume", "create", "data", "--backing", device)


def test_mounted_block_device(larder, loop, tmp_path):
    image = larder.image("hdd", 64 * MIB, seen=False)
    signatures.ext4(image)
    device = loop(image)
    where = tmp_path / "mnt"
    where.mkdir()
    if subprocess.run(["mount", device, str(where)], capture_output=True).returncode:
        pytest.skip("no mounts here")
    try:
        one_line(larder("volume", "create", "data", "--backing", device, "--wipe", code=BUSY), device, f"mounted on {where}")
        assert f"mounted on {where}" in larder("probe", device, code=NOT_FOUND).stdout
    finally:
        subprocess.run(["umount", str(where)], check=True)
    larder("volume", "create", "data", "--backing", device, "--wipe")


def test_whole_disk_lock(larder, loop):
    """The lock that udev respects: held by another for good, we say so and write nothing."""
    image = larder.image("hdd", 64 * MIB, seen=False)
    device = loop(image)
    with open(device, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        one_line(larder("volume", "create", "data", "--backing", device, code=BUSY), device, "lock the whole disk")
    assert read(image, SB, SB_SIZE) == bytes(SB_SIZE)
