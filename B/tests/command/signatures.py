# SPDX-License-Identifier: GPL-2.0-or-later
"""Signatures of others, as far as libblkid asks for them, written into the file of a device image by hand: what the tools that
make them would need (root, devices, packages) is no business of these tests."""

import struct
import subprocess
import zlib

SECTOR = 512


def write(path, offset, data):
    with open(path, "r+b") as image:
        image.seek(offset)
        image.write(data)


def size_of(path):
    return path.stat().st_size


def ext4(path):
    subprocess.run(["mkfs.ext4", "-q", "-F", str(path)], check=True)


def swap(path):
    subprocess.run(["mkswap", str(path)], check=True, capture_output=True)


def lvm(path):
    """A physical volume's label in sector 1."""
    rest = struct.pack("<I8s32sQ", 32, b"LVM2 001", b"a" * 32, size_of(path)).ljust(SECTOR - 20, b"\0")
    crc = zlib.crc32(rest, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    write(path, SECTOR, struct.pack("<8sQI", b"LABELONE", 1, crc) + rest)


def luks(path):
    write(path, 0, b"LUKS\xba\xbe" + struct.pack(">H", 1))
    write(path, 168, b"11111111-2222-3333-4444-555555555555")


def luks2_second_header(path, offset):
    write(path, offset, b"SKUL\xba\xbe" + struct.pack(">HQQ", 2, 16384, 3) + bytes(48) + b"sha256".ljust(32, b"\0"))
    write(path, offset + 168, b"9f2c52d5-7d8e-4d3a-9c41-0c3d1c0f6a11".ljust(40, b"\0"))
    write(path, offset + 256, struct.pack(">Q", 16384))


def bcache(path):
    magic = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
    write(path, 4096, struct.pack("<QQQ16s16s", 0, 8, 1, magic, b"u" * 16))


def md(path, version):
    """The superblock of a RAID member: 0.90 and 1.0 lie at the end, 1.1 at the beginning, 1.2 at 4 KiB."""
    size = size_of(path)
    if version == "0.90":
        offset = (size & ~0xFFFF) - 0x10000
        kib = offset // 1024
        write(path, offset, struct.pack("<16I", 0xA92B4EFC, 0, 90, 0, 0, 1, 0, 1, kib, 2, 2, 0, 0, 2, 3, 4))
        return
    offset = {"1.0": (size & ~0xFFF) - 0x2000, "1.1": 0, "1.2": 4096}[version]
    superblock = bytearray(256)
    struct.pack_into("<4I16s32s", superblock, 0, 0xA92B4EFC, 1, 0, 0, b"u" * 16, b"array")
    struct.pack_into("<QQQ", superblock, 128, 0, 0, offset // SECTOR)
    write(path, offset, bytes(superblock))


def md_0_90(path):
    md(path, "0.90")


def md_1_0(path):
    md(path, "1.0")


def md_1_1(path):
    md(path, "1.1")


def md_1_2(path):
    md(path, "1.2")


def zfs(path):
    """Uberblocks in all four labels: two at the beginning, two at the end."""
    label = 256 * 1024
    size = size_of(path) // label * label
    for at in (0, label, size - 2 * label, size - label):
        for i in range(8):
            write(path, at + 128 * 1024 + i * 1024, struct.pack("<QQQQQ", 0x00BAB10C, 5000, i, 1, 1))


def zfs_tail(path):
    """The two labels at the end, as a volume that a pool is on has them at the end of its disk."""
    size = size_of(path) // (256 * 1024) * 256 * 1024
    for at in (size - 512 * 1024, size - 256 * 1024):
        for i in range(8):
            write(path, at + 128 * 1024 + i * 1024, struct.pack("<QQQQQ", 0x00BAB10C, 5000, i, 1, 1))


def drbd(path):
    """Internal metadata of DRBD: their last block."""
    write(path, size_of(path) - 4096, struct.pack(">QQQQQQQII", 1, 2, 3, 4, 5, 6, 0, 0, 0x8374026B))


def ddf(path):
    header = bytearray(b"\xff" * SECTOR)
    struct.pack_into(">II24s8sII", header, 0, 0xDE11DE11, 0, b"g" * 24, b"01.02.00", 1, 1)
    struct.pack_into(">QQ", header, 96, 0, 0)
    write(path, size_of(path) - SECTOR, bytes(header))


def imsm(path):
    write(path, size_of(path) - 2 * SECTOR, b"Intel Raid ISM Cfg Sig. 1.3.00\0\0")


def _gpt_header(own, other, size, entries, entries_crc):
    def pack(crc):
        last = size // SECTOR - 1
        return struct.pack(
            "<8sIIIIQQQQ16sQIII",
            b"EFI PART",
            0x10000,
            92,
            crc,
            0,
            own,
            other,
            34,
            last - 33,
            b"d" * 16,
            entries,
            128,
            128,
            entries_crc,
        )

    return pack(zlib.crc32(pack(0)))


def gpt_backup(path):
    """Without its main part: what is left of a GPT that something was written over."""
    size = size_of(path)
    last = size // SECTOR - 1
    entries = bytearray(128 * 128)
    struct.pack_into("<16s16sQQ", entries, 0, b"t" * 16, b"p" * 16, 2048, 4095)
    crc = zlib.crc32(bytes(entries))
    write(path, (last - 32) * SECTOR, bytes(entries))
    write(path, last * SECTOR, _gpt_header(last, 1, size, last - 32, crc))


def gpt(path):
    size = size_of(path)
    last = size // SECTOR - 1
    gpt_backup(path)
    with open(path, "rb") as image:
        image.seek((last - 32) * SECTOR)
        entries = image.read(128 * 128)
    write(path, 2 * SECTOR, entries)
    write(path, SECTOR, _gpt_header(1, last, size, 2, zlib.crc32(entries)))
    protective = bytes(446) + struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xEE, b"\xff\xff\xff", 1, last) + bytes(48) + b"\x55\xaa"
    write(path, 0, protective)


def dos(path):
    """A table of one partition."""
    write(path, 446, struct.pack("<B3sB3sII", 0x80, b"\0\2\0", 0x83, b"\xff\xff\xff", 2048, 4096))
    write(path, 510, b"\x55\xaa")


# name in libblkid, what writes it
HEAD = {
    "ext4": ext4,
    "swap": swap,
    "LVM2_member": lvm,
    "crypto_LUKS": luks,
    "bcache": bcache,
    "gpt": gpt,
    "dos": dos,
}
MD = {"md 0.90": md_0_90, "md 1.0": md_1_0, "md 1.1": md_1_1, "md 1.2": md_1_2}
# those that are found at the end of a device
TAIL = {
    "md 0.90": ("linux_raid_member", md_0_90),
    "md 1.0": ("linux_raid_member", md_1_0),
    "zfs": ("zfs_member", zfs),
    "ddf": ("ddf_raid_member", ddf),
    "imsm": ("isw_raid_member", imsm),
    "gpt backup": ("gpt", gpt_backup),
}
# and nowhere else, whatever the device is of
TAIL_ALONE = TAIL | {"zfs": ("zfs_member", zfs_tail), "drbd": ("drbd", drbd)}
