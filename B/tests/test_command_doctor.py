# SPDX-License-Identifier: GPL-2.0-or-later
"""`larder doctor`: each of its findings is made, on images and on a system below --root, and nothing else is found.

What runs comes from LARDER_STATUS; a disk of sysfs that an image stands for is below --root too.
docs/larder-doctor.8 lists the checks.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid5

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import CACHE, MIB, NOT_FOUND, SB, SB_SIZE, TABLES, TOP, USAGE, VOLUME, blkid, digest, field, one_line, patch, preloaded
from signatures import TAIL_ALONE, luks2_second_header, write
from smart import Smartctl, ata, nvme
from status_lines import line
from test_command_stack import Described

pytest_plugins = ["larder_fixtures"]

ADVICE, WRONG = 10, 11


class System:
    """A healthy one: a cache and a volume on images, a kernel with the module, and disks without a fault."""

    def __init__(self, larder, pair=None):
        self.larder, self.root = larder, larder.directory / "root"
        self.status = larder.directory / "status"
        self.ssd, self.hdd = pair or (larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast"))
        self.runs()
        self.kernel("6.1.0-1-amd64")
        self.disk(self.ssd, "nvme9n1", rotational=0)
        self.disk(self.hdd, "sdz", rotational=1)

    def runs(self, *lines):
        self.status.write_text("".join(lines))

    def file(self, path, text=""):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def kernel(self, release, module="updates/dkms/larder.ko.xz"):
        self.file(f"lib/modules/{release}/modules.builtin")
        self.file(f"lib/modules/{release}/modules.dep", f"kernel/drivers/md/dm-mod.ko:\n{module}: kernel/drivers/md/dm-mod.ko\n")
        return self.file(f"lib/modules/{release}/{module}")

    def disk(self, image, name, rotational, partition=None, **attributes):
        """What sysfs has of the disk that the image is, or is a partition of, with a partition's first sector."""
        directory = f"sys/devices/{name}"
        self.file(f"{directory}/queue/rotational", f"{rotational}\n")
        self.file(f"{directory}/queue/zoned", "none\n")
        self.file(f"{directory}/queue/physical_block_size", "4096\n")
        self.file(f"{directory}/alignment_offset", "0\n")
        for key, value in attributes.items():
            self.file(f"{directory}/{key.replace('__', '/')}", f"{value}\n")
        target = directory
        if partition is not None:
            target = f"{directory}/{name}1"
            self.file(f"{target}/partition", "1\n")
            self.file(f"{target}/start", f"{partition}\n")
        self.link(image, target)

    def link(self, image, target):
        entry = self.root / "sys/dev/image" / image.name
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.unlink(missing_ok=True)
        entry.symlink_to(self.root / target)

    def examine(self, *words, code, path=None):
        env = {"LARDER_STATUS": str(self.status)} | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})
        return self.larder("doctor", "--root", self.root, *words, code=code, env=env).stdout

    def findings(self, code, **kw):
        text = self.examine("--reportformat", "json", code=code, **kw)
        return [(row["level"], row["check"], row["subject"], row["text"]) for row in json.loads(text)["findings"]]

    def only(self, level, check, subject, *parts, **kw):
        """One finding, with these parts."""
        found = self.findings(ADVICE if level == "advice" else WRONG, **kw)
        assert [row[:3] for row in found] == [(level, check, str(subject))], found
        for part in parts:
            assert str(part) in found[0][3], found[0][3]


@pytest.fixture
def system(larder):
    return System(larder)


def test_nothing_is_found(system):
    before = digest(system.ssd), digest(system.hdd)
    assert system.examine(code=0) == "" and system.findings(code=0) == []
    assert (digest(system.ssd), digest(system.hdd)) == before


def test_what_runs(system):
    system.runs(line("cache", "larder-cache-fast", errors_checksum=3), line("volume", "data"))
    system.only("wrong", "status", "larder-cache-fast", "larder cache scrub")


def digest_of_data(hdd):
    with open(hdd, "rb") as f:
        return hashlib.sha256(f.read(63 * MIB)).hexdigest()


def wipefs(path):
    return subprocess.run(["wipefs", "--no-act", "--noheadings", path], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("kind", ["ext4", "luks"])
def test_signature(system, kind):
    """On a member, where its superblocks leave room; the command that is named removes it, and nothing else."""
    place, magic = {"ext4": (1080, b"\x53\xef"), "luks": (0, b"LUKS\xba\xbe\0\2")}[kind]
    if kind == "ext4":
        write(system.hdd, 1024, bytes(4) + b"\1\0\0\0" + bytes(1016))
        write(system.hdd, 1024 + 4, (16384).to_bytes(4, "little"))
        write(system.hdd, 1024 + 76, (1).to_bytes(4, "little"))
        write(system.hdd, 1024 + 96, (0x40).to_bytes(4, "little"))
    write(system.hdd, place, magic)
    if kind == "luks":
        write(system.hdd, 8, (16384).to_bytes(8, "big"))
    ours, theirs = UUID(bytes=field(system.hdd, VOLUME, "uuid")), {"ext4": "ext4", "luks": "crypto_LUKS"}[kind]
    cures = f"wipefs --offset {place} {system.hdd},", f"larder super wipe {system.hdd}"
    system.only("wrong", "signature", system.hdd, f"larder (volume, UUID {ours}) and {theirs}: ", *cures)
    write(system.hdd, place, bytes(len(magic)))
    assert system.findings(code=0) == []


@pytest.mark.parametrize("kind", TAIL_ALONE)
@pytest.mark.parametrize("which", ["ssd", "hdd"])
def test_signature_behind_the_member(system, kind, which):
    """A leg of a mirror that does not run, the disk of a Secondary of DRBD: no fault, and neither of both is to be erased."""
    type_, make = TAIL_ALONE[kind]
    device = getattr(system, which)
    os.truncate(device, device.stat().st_size + MIB)
    make(device)
    uuid = UUID(bytes=field(device, CACHE if which == "ssd" else VOLUME, "uuid"))
    system.only("advice", "signature", device, f" {type_}: ", str(uuid), "drbdadm", "mdadm")
    assert "wipe" not in system.examine(code=ADVICE)


@pytest.mark.parametrize("kind", TAIL_ALONE)
def test_signature_behind_the_data(system, kind):
    """In what is reserved at the end of a volume's disk: told of, as others look there; what is named to erase it takes no data."""
    type_, make = TAIL_ALONE[kind]
    make(system.hdd)
    data = digest_of_data(system.hdd)
    for _ in range(20):
        found = system.findings(code=ADVICE)
        assert [row[:3] for row in found] == [("advice", "signature", str(system.hdd))] and f" {type_}: " in found[0][3], found
        named = re.search(rf"wipefs (?:--force )?--offset (\d+) {system.hdd},", found[0][3])
        assert int(named[1]) >= 63 * MIB
        subprocess.run(named[0].rstrip(",").split(), check=True, capture_output=True)
        if type_ not in blkid(system.hdd) + wipefs(system.hdd):
            break
    assert system.findings(code=0) == [] and digest_of_data(system.hdd) == data


@pytest.mark.parametrize("kind", TAIL_ALONE)
@pytest.mark.parametrize("where", ["disk", "ssd"])
def test_signature_among_the_data(larder, kind, where):
    """At the end of a volume without a reserve, or of a log: nothing to cure, and nothing is named that would erase it."""
    type_, make = TAIL_ALONE[kind]
    system = System(larder, (larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast", "--tail-reserve", "0")))
    member = system.hdd if where == "disk" else system.ssd
    copy = field(system.ssd, CACHE, "copy_offset")
    make(member)
    if where == "ssd" and any(member.read_bytes()[copy + SB_SIZE - 512 : copy + SB_SIZE]):
        return  # it lies upon the copy of the superblock, which is told of
    found = system.findings(code=None)
    assert [row for row in found if row[1] == "signature"] == []
    said = larder("probe", member).stdout
    assert re.search(rf"^{member}: {type_}: .* \(in its data, at the end: no owner's\)$", said, re.M), said


@pytest.mark.parametrize("offset", [512 << 10, 1 << 20, 4 << 20])
def test_luks_in_the_log(system, offset):
    """The second header of an encrypted volume, where libblkid looks for one in the log, is nobody's; in front of that it is."""
    luks2_second_header(system.ssd, offset)
    assert "crypto_LUKS" in blkid(system.ssd)
    if offset < 1 << 20:
        system.only("wrong", "signature", system.ssd, "crypto_LUKS", "larder super wipe")
    else:
        assert system.findings(code=0) == []
    assert ("(in its data: no owner's)" in system.larder("probe", system.ssd).stdout) == (offset >= 1 << 20)


def test_damaged_superblock(system):
    write(system.ssd, SB + 500, b"x")
    system.only("advice", "superblock", system.ssd, "larder super check", "crc")


def test_damaged_copy(system):
    copy = field(system.hdd, VOLUME, "copy_offset")
    write(system.hdd, copy + 500, b"x")
    system.only("advice", "superblock", system.hdd, "copy is damaged")


def destroyed(path):
    """Neither superblock is valid."""
    copy = field(path, VOLUME, "copy_offset")
    write(path, SB + 500, b"x")
    write(path, copy + 500, b"x")
    return copy


def test_no_valid_superblock(system, monkeypatch):
    """Of what is no member any more there is a copy in the archive, or there may be a backup; and no list is silent about it."""
    destroyed(system.hdd)
    cures = [f"larder super {what} {system.hdd}" for what in ("check", "restore FILE", "wipe")]
    system.only("wrong", "superblock", system.hdd, "crc", *cures)
    for words in (["volume", "list"], ["cache", "list"], ["list"], ["probe"]):
        one_line(system.larder(*words), system.hdd, "not valid", "larder doctor")
    archive = system.larder.directory / "archive"
    archive.mkdir()
    monkeypatch.setenv("LARDER_ARCHIVE", str(archive))
    uuid = UUID(bytes=field(system.hdd, VOLUME, "uuid"))
    names = [archive / f"{uuid}-2026112{day}T000000Z-00000000.backup" for day in (1, 2)]
    for name in names:
        name.touch()
    system.only("wrong", "superblock", system.hdd, f"larder super restore {names[1]} {system.hdd}")


def test_unreadable_superblock(system, monkeypatch):
    copy = field(system.hdd, VOLUME, "copy_offset")
    places = [f"{system.hdd}:{at}:4096" for at in (SB, copy)]
    for key, value in (preloaded("io_error", system.larder.directory) | {"IO_ERROR": ",".join(places)}).items():
        monkeypatch.setenv(key, value)
    system.only("wrong", "superblock", system.hdd, "cannot be read", "ddrescue", "larder super restore")


def test_damaged_tables(system):
    write(system.ssd, TABLES[0] + 500, b"x")
    system.only("advice", "superblock", system.ssd, "one copy of its table")
    write(system.ssd, TABLES[1] + 500, b"x")
    system.only("wrong", "superblock", system.ssd, "neither copy", "larder rescue")


def test_kernel_without_the_module(system):
    system.kernel("6.12.5-amd64", module="kernel/drivers/md/dm-larderette.ko")
    system.file("lib/modules/5.10-removed/modules.dep")  # what a removed kernel leaves
    system.only("wrong", "module", "6.12.5-amd64", "install linux-headers-6.12.5-amd64, then dkms autoinstall -k 6.12.5-amd64")
    (system.root / "lib/modules/6.12.5-amd64/build").symlink_to("/usr/src/linux-headers-that-are-not-below-this-root")
    system.only("wrong", "module", "6.12.5-amd64", "sees no volume; dkms autoinstall -k 6.12.5-amd64")
    system.kernel("6.12.5-amd64", module="extra/larder.ko")
    assert system.findings(code=0) == []


@pytest.mark.parametrize(
    ("maker", "remedy"),
    [
        ("share/initramfs-tools/hook-functions", "update-initramfs -u -k 6.12.5-amd64"),
        ("lib/dracut/dracut-functions.sh", "dracut --force --kver 6.12.5-amd64"),
    ],
)
def test_initramfs_of_a_kernel_without_the_module(system, maker, remedy):
    """DKMS does not make it anew."""
    system.file(f"usr/{maker}")
    for part in ("initramfs-tools/hooks", "initramfs-tools/scripts/local-top", "initramfs-tools/scripts/local-block"):
        system.file(f"usr/share/{part}/larder")
    system.file("usr/lib/dracut/modules.d/90larder/module-setup.sh")
    system.kernel("6.12.5-amd64", module="extra/other.ko")
    dkms = "then dkms autoinstall -k 6.12.5-amd64, then "
    system.only("wrong", "module", "6.12.5-amd64", "install linux-headers-6.12.5-amd64, " + dkms + remedy)
    (system.root / "lib/modules/6.12.5-amd64/build").symlink_to("/usr/src/linux-headers-that-are-not-below-this-root")
    system.only("wrong", "module", "6.12.5-amd64", dkms[5:] + remedy)


def version_code(version):
    a, b, c = version
    return (a << 16) + (b << 8) + min(c, 255)


def test_kernel_that_is_too_old(system):
    """DKMS would build nothing.  Those that kernel/compat.h refuses: at the ends of each of its ranges."""
    number = r"KERNEL_VERSION\((.*?), (.*?), (.*?)\)"
    ranges = re.findall(rf"FROM_TO\({number}, {number}", (TOP / "kernel/compat.h").read_text())
    assert len(ranges) == 4
    for release in [tuple(map(int, m)) for m in ranges]:
        first, fine = release[:3], release[3:]
        for version in (first, (*fine[:2], fine[2] - 1), fine, (*fine[:2], 300)):
            name = f"{version[0]}.{version[1]}.0-7-amd64"
            text = f"#define LINUX_VERSION_CODE {version_code(version)}\n#define KERNEL_VERSION(a,b,c) 0\n"
            system.kernel(name, module="extra/other.ko")
            system.file(f"lib/modules/{name}/build/include/generated/uapi/linux/version.h", text)
            said = "dkms autoinstall -k" if fine <= version else "too old for larder"
            system.only("wrong", "module", name, said)
            shutil.rmtree(system.root / "lib/modules" / name)


@pytest.mark.parametrize(
    ("release", "old"),
    [("5.10.0-30-amd64", True), ("6.0.0-1-amd64", True), ("6.5.0-9", True), ("6.1.0-13-amd64", False), ("next", False)],
)
def test_release_of_a_kernel_that_is_too_old(system, release, old):
    """Without its headers: Debian's 6.1.0-13 may be one that is not."""
    system.kernel(release, module="extra/other.ko")
    system.only("wrong", "module", release, "too old for larder" if old else "install linux-headers-")


@pytest.mark.parametrize("maker", ["share/initramfs-tools/hook-functions", "lib/dracut/dracut-functions.sh"])
@pytest.mark.parametrize("name", ["initrd.img-6.1.0-1-amd64", "initramfs-6.1.0-1-amd64.img"])
def test_image_of_either_name(system, maker, name):
    """Debian's dracut calls it as initramfs-tools does."""
    system.file(f"usr/{maker}")
    for part in ("initramfs-tools/hooks", "initramfs-tools/scripts/local-top", "initramfs-tools/scripts/local-block"):
        system.file(f"usr/share/{part}/larder")
    system.file("usr/lib/dracut/modules.d/90larder/module-setup.sh")
    image, module = system.file(f"boot/{name}"), system.kernel("6.1.0-1-amd64")
    os.utime(image, (1000, 1000))
    os.utime(module, (1001, 1001))
    system.only("advice", "initramfs", "6.1.0-1-amd64", "dracut --force --kver" if "dracut" in maker else "update-initramfs -u -k")
    os.utime(image, (1002, 1002))
    assert system.findings(code=0) == []


def test_initramfs(system):
    system.file("usr/share/initramfs-tools/hook-functions")
    subjects = [row[1:3] for row in system.findings(code=ADVICE)]
    parts = ("hooks", "scripts/local-top", "scripts/local-block")
    assert subjects == [("initramfs", f"{part}/larder") for part in parts]
    for part in parts:
        system.file(f"usr/share/initramfs-tools/{part}/larder")
    assert system.findings(code=0) == [], "no image at all is none of ours"
    image, module = system.file("boot/initrd.img-6.1.0-1-amd64"), system.kernel("6.1.0-1-amd64")
    os.utime(image, (1000, 1000))
    os.utime(module, (1001, 1001))
    system.only("advice", "initramfs", "6.1.0-1-amd64", "update-initramfs -u -k 6.1.0-1-amd64")
    os.utime(image, (1002, 1002))
    assert system.findings(code=0) == []


def test_dracut(system):
    system.file("usr/lib/dracut/dracut-functions.sh")
    system.file("usr/lib/dracut/modules.d/90dm/module-setup.sh")
    system.only("advice", "initramfs", "dracut", "dracut --regenerate-all --force")
    system.file("usr/lib/dracut/modules.d/90larder/module-setup.sh")
    assert system.findings(code=0) == []


def test_rotating_cache(system):
    system.disk(system.ssd, "sdy", rotational=1)
    cure = "echo 0 > /sys/block/sdy/queue/rotational, at each boot"
    system.only("advice", "rotational", system.ssd, cure, "larder cache replace")
    system.disk(system.ssd, "sdy", rotational=1, partition=2048)
    system.only("advice", "rotational", system.ssd, cure)


@pytest.mark.parametrize("start, good", [(2048, True), (8, True), (63, False), (2049, False)])
def test_alignment_of_a_partition(system, start, good):
    system.disk(system.hdd, "sdz", rotational=1, partition=start)
    if good:
        assert system.findings(code=0) == []
    else:
        system.only("advice", "alignment", system.hdd, f"sector {start}", "1 MiB")


def test_alignment_that_the_kernel_knows(system):
    system.disk(system.hdd, "sdz", rotational=1, alignment_offset=3584)
    system.only("advice", "alignment", system.hdd, "3584 bytes")


def test_alignment_that_the_kernel_calls_wrong(system):
    """-1: there is no number of bytes by which it would be right."""
    system.disk(system.hdd, "sdz", rotational=1, alignment_offset=-1)
    system.only("advice", "alignment", system.hdd, "does not begin where")
    ((*_, text),) = system.findings(code=ADVICE)
    assert "bytes" not in text and "18446744073709551615" not in text


@pytest.mark.parametrize("zoned", ["host-aware", "host-managed"])
def test_shingled_disk(system, zoned):
    system.disk(system.hdd, "sdz", rotational=1, queue__zoned=zoned)
    system.only("advice", "smr", system.hdd, "sdz", zoned, "CMR")


@pytest.mark.parametrize(
    ("policy", "caches", "wrong"),
    [
        ("ppl", ("through", "back"), True),
        ("ppl", ("through", "through"), False),
        ("ppl", ("through", None), True),
        ("bitmap", ("back", "back"), False),
    ],
)
def test_flush_that_md_answers_early(system, policy, caches, wrong):
    """RAID 5 with a partial parity log, through a partition of it, and a volume of LVM in that."""
    system.disk(system.hdd, "dm-7", rotational=1, queue__write_cache="write back")
    system.file("sys/devices/md0/md/consistency_policy", f"{policy}\n")
    system.file("sys/devices/md0/md0p1/partition", "1\n")
    for directory, name, target in [("dm-7", "md0p1", "md0/md0p1"), *(("md0", f"sd{c}2", f"sd{c}/sd{c}2") for c in "ab")]:
        place = system.root / "sys/devices" / directory / "slaves"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(system.root / "sys/devices" / target)
    for disk, cache in zip("ab", caches, strict=True):
        system.file(f"sys/devices/sd{disk}/sd{disk}2/partition", "2\n")
        system.file(f"sys/devices/sd{disk}/queue/rotational", "1\n")
        if cache:
            system.file(f"sys/devices/sd{disk}/queue/write_cache", f"write {cache}\n")
    if wrong:
        system.only("wrong", "flush", system.hdd, "PPL", "--bitmap=internal", "hdparm -W 0")
    else:
        assert system.findings(code=0) == []


@pytest.mark.parametrize("partition", [None, 2048])
def test_disks_below_an_array(system, partition):
    """Through md, partitions of its legs, and one of it: each leg is looked at."""
    system.disk(system.hdd, "md0", rotational=1, partition=partition)
    for name, zoned in (("sda", "none"), ("sdb", "host-managed")):
        system.file(f"sys/devices/{name}/queue/zoned", f"{zoned}\n")
        system.file(f"sys/devices/{name}/{name}2/partition", "2\n")
        (system.root / "sys/devices/md0/slaves").mkdir(exist_ok=True)
        (system.root / f"sys/devices/md0/slaves/{name}2").symlink_to(system.root / f"sys/devices/{name}/{name}2")
    system.only("advice", "smr", system.hdd, "sdb is")


@pytest.fixture
def smartctl(larder):
    """A smartctl that knows nothing, until it is told what it says."""
    return Smartctl(larder.directory / "bin")


@pytest.mark.parametrize(
    "read, timeout, found",
    [
        ("    70 (7.0 seconds)", 30, None),
        ("Disabled", 30, "no limit"),
        ("Disabled", 180, None),
        ("   400 (40.0 seconds)", 30, "40.0 s"),
        ("   300 (30.0 seconds)", 30, "30.0 s"),
        (None, 30, "no limit"),
        (None, 180, None),
    ],
)
@pytest.mark.parametrize("level", [None, "raid0", "raid1", "raid6"])
def test_patience_of_a_disk(system, smartctl, read, timeout, found, level):
    """A limit is named only where an array has elsewhere what the disk gives up; read None: it cannot be given one."""
    system.disk(system.hdd, "sdz", rotational=1, device__timeout=timeout)
    if level:
        system.disk(system.hdd, "md7", rotational=1, md__level=level)
        (system.root / "sys/devices/md7/slaves").mkdir()
        (system.root / "sys/devices/md7/slaves/sdz").symlink_to(system.root / "sys/devices/sdz")
    if read:
        smartctl.patience(read)
    else:
        smartctl.no_patience()
    if found:
        system.only("advice", "timeout", system.hdd, found, "echo 180 > /sys/block/sdz/device/timeout", path=smartctl.directory)
        limit = read is not None and level in ("raid1", "raid6")
        assert ("smartctl -l scterc,70,70 /dev/sdz" in system.examine(code=ADVICE, path=smartctl.directory)) == limit
    else:
        assert system.findings(code=0, path=smartctl.directory) == []
    assert smartctl.asked().count("-l scterc /dev/sdz") == (2 if found else 1)


def test_patience_without_an_answer(system, smartctl):
    """smartctl is not there, or does not know: nothing is said.  No name out of sysfs gets to a shell."""
    system.disk(system.hdd, "sdz", rotational=1, device__timeout=30)
    (smartctl.directory / "smartctl").write_text("#!/bin/sh\necho 'Unable to detect device type'\nexit 1\n")
    assert system.findings(code=0, path=smartctl.directory) == []
    another = Smartctl(smartctl.directory)
    another.patience("Disabled")
    system.disk(system.hdd, f"sd;touch {smartctl.directory.name}", rotational=1, device__timeout=30)
    assert system.findings(code=0, path=smartctl.directory) == []
    assert not [words for words in another.asked() if "/dev/sd" in words]


HEALTH = {
    "well": (ata(), None),
    "about to fail": (ata(passed=False), ("wrong", "failing: sdz", "mdadm --replace")),
    "pending sectors": (ata(pending=7), ("advice", "pending: sdz cannot read 7", "sync_action")),
    "too hot, by its limit": (ata(celsius=61), ("advice", "hot: sdz has 61 degrees", "60")),
    "hot, and made for it": (ata(celsius=69, limit=70), None),
    "warmer than it should be on average": (ata(celsius=50, limit=45), None),
    "hot, and its limit is not known": (ata(celsius=61, limit=None), ("advice", "hot: ", "60 at most")),
    "pending, by another name": (ata(pending=7, called="Total_Pending_Sectors"), ("advice", "pending: sdz cannot read 7")),
    "what flips, and is no sector": (ata(pending=1, called="Bogus_Current_Pend_Sect"), None),
    "likewise": (ata(pending=1, called="Bogus_Current_Pending_Sector"), None),
    "slow link": (ata(link=15), ("advice", "link: sdz runs at 1.5 Gbit/s, and could at 6.0", "cable")),
    "worn, by the statistics": (ata(statistic=93), ("advice", "worn: sdz has taken 93 %")),
    "worn, by an attribute": (ata(wearout=5), ("advice", "worn: sdz has taken 95 %")),
    "the statistics count": (ata(statistic=20, wearout=5), None),
    "worn out": (ata(statistic=104), ("wrong", "worn: sdz has taken all the writes", "104 %")),
}


@pytest.mark.parametrize("name", HEALTH)
def test_health_of_a_disk(system, smartctl, name):
    says, found = HEALTH[name]
    smartctl.says("sdz", says)
    if found:
        system.only(found[0], "health", system.hdd, *found[1:], path=smartctl.directory)
    else:
        assert system.findings(code=0, path=smartctl.directory) == []
    assert [words.split()[0] for words in smartctl.asked() if words.endswith("/dev/sdz")] == ["--json"]


def test_disk_that_does_not_answer(system, smartctl, monkeypatch):
    """It is said, once, and holds up neither the others nor whoever reads the output."""
    monkeypatch.setenv("LARDER_DISK_SECONDS", "1")
    system.disk(system.hdd, "sdz", rotational=1, device__timeout=30)
    smartctl.patience("Disabled")
    smartctl.stays("sdz")
    system.only("wrong", "health", system.hdd, "answer: sdz does not answer", "1 seconds ago", path=smartctl.directory)
    smartctl.stays("sdz", so=False)
    system.only("advice", "timeout", system.hdd, path=smartctl.directory)


NVME = {
    "well": (nvme(), None),
    "spare blocks": (nvme(warning=1, spare=9), ("wrong", "spare: nvme9n1 has 9 %", "larder cache replace")),
    "hot": (nvme(warning=2, celsius=88), ("advice", "hot: nvme9n1 has 88 degrees")),
    "hot, and made for it": (nvme(celsius=79), None),
    "not reliable": (nvme(warning=4), ("wrong", "failing: nvme9n1", "larder cache replace")),
    "read-only": (nvme(warning=8), ("wrong", "read_only: nvme9n1", "larder cache replace")),
    "no backup of its memory": (nvme(warning=16), ("wrong", "failing: nvme9n1")),
    "worn": (nvme(used=90), ("advice", "worn: nvme9n1 has taken 90 %", "larder cache replace")),
    "not yet": (nvme(used=89), None),
    "worn out": (nvme(used=255), ("wrong", "worn: nvme9n1", "255 %")),
}


@pytest.mark.parametrize(
    ("raid", "replace", "scrub"),
    [
        ({}, "data is on it alone", "echo check"),
        ({"raid": "1", "legs": 2}, "larder replace data diskN NEW (larder show data has N)", "larder scrub data reads"),
    ],
)
def test_health_of_a_disk_of_a_stack(larder, smartctl, raid, replace, scrub):
    """Not by mdadm, which may put a disk in without its dm-integrity."""
    described = Described(larder)
    described.volume(described.plain | raid | ({"md": str(uuid5(described.uuid, "md"))} if raid else {}))
    system = System(larder, (described.ssd, described.hdd))
    for name, says in (("sdz", ata(passed=False, pending=3)), ("nvme9n1", nvme(used=104))):
        smartctl.says(name, says)
    found = {row[3].split(":")[0]: row[3] for row in system.findings(code=WRONG, path=smartctl.directory)}
    assert replace in found["failing"] and scrub in found["pending"]
    assert found["worn"].endswith("larder replace data ssd0 NEW") and "mdadm" not in found["failing"]


def test_what_cannot_be_looked_at(system):
    """All else is found, and told."""
    destroyed(system.hdd)
    system.status = system.root / "none"
    assert str(system.hdd) in system.examine(code=NOT_FOUND)
    (row,) = json.loads(system.examine("--reportformat", "json", code=NOT_FOUND))["findings"]
    assert row["subject"] == str(system.hdd)


@pytest.mark.parametrize("name", NVME)
def test_health_of_an_ssd(system, smartctl, name):
    """NVMe by smartctl, where the kernel has no such disk; its own log is decoded by tests/unit/test_health.c."""
    says, found = NVME[name]
    smartctl.says("nvme9n1", says)
    if found:
        system.only(found[0], "health", system.ssd, *found[1:], path=smartctl.directory)
    else:
        assert system.findings(code=0, path=smartctl.directory) == []


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "7", '"text"', "{}" * 9, "\0{}", "{" * 5000,
        '{"temperature": []}', '{"smart_status": {"passed": 0}}',
        '{"ata_smart_attributes": {"table": {"id": 197}}, "temperature": {"current": 20}}',
        '{"ata_smart_attributes": {"table": [1, null, [], {"id": 197}, {"id": "x", "raw": 3}]}, "temperature": {"current": 20}}',
        '{"temperature": {"current": 99999999999999999999}}', '{"temperature": {"current": -40}}',
        '{"smart_status": {"passed": true}, "interface_speed": {"max": {"units_per_second": 9223372036854775807}}}',
        '{"interface_speed": {"max": {"bits_per_unit": 9, "units_per_second": 9000000000000000000}}}',
    ],
)  # fmt: skip
def test_health_of_any_text(system, smartctl, text):
    smartctl.says("sdz", text)
    assert system.findings(code=0, path=smartctl.directory) == []


@pytest.mark.parametrize(
    ("now", "disk", "slot", "found"),
    [
        (("16.0 GT/s PCIe", 4), ("16.0 GT/s PCIe", 4), ("16.0 GT/s PCIe", 4), False),
        (("8.0 GT/s PCIe", 4), ("16.0 GT/s PCIe", 4), ("8.0 GT/s PCIe", 16), False),  # an older slot is what it is
        (("8.0 GT/s PCIe", 2), ("16.0 GT/s PCIe", 4), ("8.0 GT/s PCIe", 4), True),
        (("2.5 GT/s PCIe", 4), ("8.0 GT/s PCIe", 4), ("16.0 GT/s PCIe", 4), True),
        (("Unknown", 4), ("8.0 GT/s PCIe", 4), ("16.0 GT/s PCIe", 4), False),
        (("8.0 GT/s PCIe", 0), ("8.0 GT/s PCIe", 4), ("16.0 GT/s PCIe", 4), False),
    ],
)
@pytest.mark.parametrize("subsystem", [False, True], ids=["controller", "subsystem"])
def test_link_of_an_ssd(system, now, disk, slot, found, subsystem):
    """With the kernel's own multipath a namespace lies in its subsystem, which has links to the controllers."""

    def link(place, which, value):
        system.file(f"{place}/{which}_link_speed", f"{value[0]}\n")
        system.file(f"{place}/{which}_link_width", f"{value[1]}\n")

    link("sys/devices/slot", "max", slot)
    link("sys/devices/slot/disk", "max", disk)
    link("sys/devices/slot/disk", "current", now)
    (system.root / "sys/devices/slot/disk/nvme9").mkdir()
    (system.root / "sys/devices/slot/disk/nvme9/device").symlink_to(system.root / "sys/devices/slot/disk")
    if subsystem:
        (system.root / "sys/devices/nvme-subsys9").mkdir()
        (system.root / "sys/devices/nvme-subsys9/nvme9").symlink_to(system.root / "sys/devices/slot/disk/nvme9")
    device = "sys/devices/nvme-subsys9" if subsystem else "sys/devices/slot/disk/nvme9"
    (system.root / "sys/devices/nvme9n1/device").symlink_to(system.root / device)
    if found:
        system.only("advice", "link", system.ssd, "nvme9n1", "slot")
    else:
        assert system.findings(code=0) == []


def test_worst_counts(system):
    system.disk(system.ssd, "sdy", rotational=1)
    system.kernel("6.12", module="extra/other.ko")
    text = system.examine(code=WRONG)
    assert sorted(row.split(": ")[0] for row in text.splitlines()) == ["advice", "wrong"]
    rows = system.examine("-o", "check", "--noheadings", "--sort", "check", code=WRONG).split()
    assert rows == ["module", "rotational"]


def test_hostile_label(system):
    """What stands in superblocks and sysfs breaks neither lines nor JSON."""
    patch(system.hdd, VOLUME, label=b'a"b\\c')
    system.disk(system.hdd, 'sd"z', rotational=1, queue__zoned='host"aware')
    system.only("advice", "smr", system.hdd, 'host"aware')


def test_usage_of_doctor(system, larder):
    env = {"LARDER_STATUS": str(system.status)}
    one_line(larder("doctor", "sda", env=env, code=USAGE), "too many words")
    one_line(larder("doctor", "--root", "/nowhere", env=env, code=NOT_FOUND), "/nowhere", "--root")
    one_line(larder("doctor", "-o", "wombat", env=env, code=USAGE), "wombat")
    assert "subject" in larder("doctor", "-o", "help", env=env).stdout


def test_documented_checks(system):
    """larder-doctor(8) has a paragraph for each check of the sources, and no other."""
    sources = "".join(path.read_text() for path in (TOP / "tools").glob("doctor*.c"))
    checks = set(re.findall(r'finding\([^"]*?FINDING_\w+, "(\w+)"', sources)) | set(re.findall(r'FINDING_WRONG, "(\w+)"', sources))
    manual = (TOP / "docs" / "larder-doctor.8").read_text().split(".It Cm doctor\n", 1)[1]
    assert len(checks) >= 9 and set(re.findall(r"^\.It Cm (\w+)$", manual, re.M)) == checks
