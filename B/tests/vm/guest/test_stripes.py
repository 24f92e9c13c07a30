# SPDX-License-Identifier: GPL-2.0-or-later
"""What an array below gets, and what programs above see of it: writeback by whole stripes, limits, where the data begin."""

import os
import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib import command, simdisk
from lib.block import BlockDevice
from lib.larder import Cache, Stack, Target, Volume, larder

KIB = 2  # sectors
MIB = 2048


class Placed(Stack):
    """Its data begin where the command has chosen."""

    def start(self) -> None:
        self.data, self.sectors = data_of(self.hdd)
        self.cache = Cache.start(self.ssd, **self.cache_options)
        self.volume = Volume.create("v", Volume.line(self.hdd, self.cache, self.sectors, **self.options))


def data_of(backing: BlockDevice) -> tuple[int, int]:
    """First sector, and number."""
    offset, _, sectors = struct.unpack_from("<QQQ", backing.read(8, 8), 216)
    return offset // 512, sectors


def make_stack(make_disk, hdd: BlockDevice, **options: object) -> Placed:
    """Nothing is written back but by drain(); whole stripes may be written to the cache."""
    ssd = make_disk("ssd0", model="null", mb=128, wce=1, fua=1)
    fixed = {"sequential_cutoff": 0, "stripes": "off", "writeback": "off", "class": "any:cache"}
    return Placed(ssd, hdd, format_volume=("--cache", "c"), **fixed | options)


def write_scattered(stack: Placed, runs: list[tuple[int, int]], rng: random.Random) -> dict[int, bytes]:
    """[from, to) of the volume, in pieces, in random order.  What was written, by sector."""
    pieces = []
    for at, end in runs:
        while at < end:
            n = min(end - at, 8 * rng.randint(1, 12))
            pieces.append((at, n))
            at += n
    rng.shuffle(pieces)
    written = {at: rng.randbytes(n * 512) for at, n in pieces}
    for at, data in written.items():
        stack.volume.write(at, data)
    assert stack.volume.dirty() == sum(n for _, n in pieces)
    return written


def check_backing(stack: Placed, written: dict[int, bytes]) -> None:
    assert all(stack.hdd.read(stack.data + at, len(data) // 512) == data for at, data in written.items())


def cuts(stripe: int, at: int) -> Iterator[int]:
    """Where a stripe that begins there may be cut."""
    yield from range(at, at + stripe, MIB)


# ---------------------------------------------------------------- writeback

GEOMETRY = {  # number of chunks, KiB
    "4 x 64K": (4, 64),
    "3 x 64K": (3, 64),
    "5 x 128K": (5, 128),
    "2 x 512K": (2, 512),
    "3 x 512K": (3, 512),
    "9 x 256K": (9, 256),
}


@pytest.mark.parametrize("rate", [0, 8192])
@pytest.mark.parametrize("name", list(GEOMETRY))
def test_whole_stripes_are_written_back_whole(make_disk, seed, name, rate):
    """Runs that begin and end with a stripe, and ragged ones, of up to some MiB.  With a rate a batch is less than a stripe."""
    number, chunk = GEOMETRY[name]
    stripe = chunk * number * KIB
    hdd = make_disk("hdd0", model="null", mb=320, wce=1, io_min=chunk << 10, io_opt=stripe * 512)
    stack = make_stack(make_disk, hdd, writeback_rate_max=rate)
    assert stack.data % stripe == 0, "the data do not begin with a stripe"
    rng = random.Random(seed)
    whole, runs, at = set(), [], 0
    # ragged ones too, and some less than a stripe
    half = stripe // 2
    for length, head, tail in [(1, 0, 0), (7, 0, 0), (1, 8, 0), (3, 0, half), (4, half + 8, 24), (0, 0, 40), (0, 32, 16)]:
        begin = at + stripe
        end = begin + length * stripe
        if (end - begin) // MIB > 12:
            end = begin + 2 * stripe
        whole |= set(range(begin, end, stripe))
        runs.append((begin - head, end + tail))
        at = (end + tail + stripe - 1) // stripe * stripe + stripe
    written = write_scattered(stack, runs, rng)
    with simdisk.Trace() as trace:
        stack.volume.drain(seconds=240)
        writes = [(c.sector - stack.data, c.sectors) for c in trace.commands(hdd, "write") if c.sector >= stack.data]
    assert sum(n for _, n in writes) == sum(end - begin for begin, end in runs)
    begins = {at for at, _ in writes}
    for at in whole:
        if stripe <= MIB:
            assert any(a <= at and at + stripe <= a + n for a, n in writes), f"the stripe at {at} is torn: {sorted(writes)}"
        else:
            # the disk takes no more than 1 MiB at once, and the block layer joins the rest of the last stripe and what is behind it
            torn = {x for x in begins if at < x < at + stripe} - set(cuts(stripe, at))
            assert not torn and at in begins, f"the stripe at {at} is cut elsewhere: {sorted(torn)}"
    # what begins and ends with a stripe is written in such, and in as few writes as may be
    for begin, end in runs:
        mine = [(a, n) for a, n in writes if begin <= a < end]
        if begin % stripe == 0 and end % stripe == 0 and stripe <= MIB:
            assert all(a % stripe == 0 and n % stripe == 0 for a, n in mine), mine
            assert rate or len(mine) == -(-(end - begin) // (MIB // stripe * stripe)), mine
    check_backing(stack, written)
    stack.stop()


@pytest.fixture
def array(make_disk) -> Iterator[tuple[BlockDevice, list[simdisk.Simdisk]]]:
    """RAID 5 of three chunks of 64 KiB and parity."""
    if command.run("modprobe", "raid456", check=False).returncode:
        pytest.skip("this kernel has no raid456")
    disks = [make_disk(f"hdd{i}", model="null", mb=144, wce=1) for i in range(4)]
    command.run(
        "mdadm",
        "--create",
        "/dev/md9",
        "--run",
        "--quiet",
        "--level=5",
        "--raid-devices=4",
        "--chunk=64",
        "--assume-clean",
        "--bitmap=none",
        *disks,
        stdin="y\n",
    )
    md = BlockDevice("/dev/md9")
    yield md, disks
    for name in ("v", "raw", "c"):
        command.run("dmsetup", "remove", name, check=False)
    command.run("mdadm", "--stop", "/dev/md9")


@pytest.mark.parametrize("rate", [0, 8192])
def test_raid_5_reads_nothing_for_its_parity(make_disk, array, seed, rate):
    md, disks = array
    stack = make_stack(make_disk, md, writeback_rate_max=rate)
    stripe = 192 * KIB
    assert int(md.queue("optimal_io_size")) == stripe * 512 and stack.data % stripe == 0
    runs = [(stripe * at, stripe * (at + n)) for at, n in ((3, 1), (7, 40), (60, 11), (90, 3))]
    written = write_scattered(stack, runs, random.Random(seed))
    for disk in disks:
        disk.reset_stats()
    stack.volume.drain(seconds=240)
    stats = [disk.stats() for disk in disks]
    assert [s["rbytes"] for s in stats] == [0] * 4, "it was read for parity"
    # data, parity; superblocks of md and of the volume
    assert sum(s["wbytes"] for s in stats) < sum(end - begin for begin, end in runs) * 512 * 4 // 3 + (64 << 10)
    check_backing(stack, written)
    # so the counter counts: less than a stripe is read for
    stack.volume.write(200 * stripe, os.urandom(4096))
    stack.volume.drain(seconds=240)
    assert sum(disk.stats()["rbytes"] for disk in disks) > 0
    stack.stop()


# ---------------------------------------------------------------- limits

LIMITS = ("logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size", "read_ahead_kb", "rotational")
DISCARDS = ("discard_granularity", "discard_max_bytes", "discard_max_hw_bytes")
STRIPED = {"io_min": 64 << 10, "io_opt": 192 << 10}
BACKINGS = {
    "512n": {"lbs": 512, "pbs": 512},
    "512e": {"lbs": 512, "pbs": 4096},
    "4Kn": {"lbs": 4096, "pbs": 4096},
    "stripes": STRIPED,
    "stripes of 4Kn": STRIPED | {"lbs": 4096},
    "stripes of 1 MiB": {"io_min": 256 << 10, "io_opt": 1 << 20},
    "large stripes": {"io_min": 512 << 10, "io_opt": 1536 << 10},
    "largest request": {"io_opt": 33553920},
    "chunks": {"io_min": 192 << 10, "io_opt": 192 << 10},
    "discard": {"discard": "zero"},
    "discard 1M": {"discard": "zero", "discard_gran": 1 << 20},
    # behind another mapping: alignment offsets that are not 0
    "discard 1M, shifted": {"discard": "zero", "discard_gran": 1 << 20, "shift": 128},
    "512e, shifted": {"pbs": 4096, "shift": 7},
    "stripes, shifted": STRIPED | {"shift": 40},
}


def attribute(device: BlockDevice, name: str) -> str:
    return Path("/sys/block", device.kernel_name, name).read_text().strip()


def seen(device: BlockDevice) -> dict[str, str]:
    """What programs see of it, and would do with it; nothing is written.  Without its name."""
    programs = {
        "blkid": ("blkid", "-i", "-o", "export", device),
        "lsblk": ("lsblk", "-d", "-n", "-t", "-o", "ALIGNMENT,MIN-IO,OPT-IO,PHY-SEC,LOG-SEC,ROTA,RA", device),
        "mkfs.xfs": ("mkfs.xfs", "-N", "-f", "-K", device),
        "mkfs.ext4": ("mkfs.ext4", "-n", "-F", "-E", "nodiscard", device),
        "sfdisk": ("sfdisk", "--no-act", "--no-reread", "--label", "gpt", device),
    }
    out = {}
    for name, words in programs.items():
        run = command.run(*words, stdin=",,\n" if name == "sfdisk" else None, check=False)
        text = run.stdout.replace(str(device), "DEVICE").replace(device.kernel_name, "DEVICE")
        text = re.sub(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "UUID", text)
        out[name] = f"{run.returncode}\n{re.sub(' +', ' ', text)}"
    return out


def partition(device: BlockDevice) -> tuple[str, list[str]]:
    """What parted and sfdisk make of it: written, shown, gone again."""
    shown = []
    command.run("sfdisk", "--quiet", "--no-reread", "--wipe", "never", device, stdin="label: gpt\n,,\n", check=False)
    dump = command.run("sfdisk", "--dump", device).stdout.replace(str(device), "DEVICE")
    shown.append(re.sub(r"(uuid|id|device)[=:] *\S+", "", dump))
    if command.run("sh", "-c", "command -v parted", check=False).returncode == 0:
        parted = ("parted", "--script", device)
        shown += [command.run(*parted, "align-check", how, 1, check=False).stdout for how in ("optimal", "minimal")]
        command.run(*parted, "mklabel", "gpt", "mkpart", "one", "0%", "100%", check=False)
        shown.append(command.run(*parted, "--machine", "unit", "s", "print", check=False).stdout.splitlines()[2:])
        # parted makes mappings of the partitions of one
        for mapping in (f"{Path(device).name}1", f"{Path(device).name}p1"):
            command.run("dmsetup", "remove", mapping, check=False)
    return shown


def made(make_disk, name: str) -> BlockDevice:
    what = dict(BACKINGS[name])
    shift = what.pop("shift", 0)
    hdd = make_disk("hdd0", model="null", mb=336, wce=1, **what)
    return Target.create("shifted", f"0 {hdd.sectors - 4096} linear {hdd} {shift}") if shift else hdd


def odd(backing: BlockDevice) -> bool:
    """A stripe of no whole number of blocks: the dm core of 6.1 makes none of it, and takes what is above for misaligned."""
    return int(backing.queue("optimal_io_size")) % int(backing.queue("physical_block_size")) > 0


def compare(backing: BlockDevice, volume: BlockDevice, start: int, sectors: int, cached: bool) -> None:
    """The volume and the same sectors of the backing, as dm-linear shows them, without any code of larder."""
    raw = Target.create("raw", f"0 {sectors} linear {backing} {start}")
    try:
        for name in LIMITS:
            assert volume.queue(name) == raw.queue(name), name
            if name not in ("read_ahead_kb", "rotational") and not (name == "optimal_io_size" and odd(backing)):
                assert volume.queue(name) == backing.queue(name), f"{name} is not the backing's"
        assert attribute(volume, "alignment_offset") == attribute(raw, "alignment_offset")
        assert attribute(volume, "discard_alignment") == attribute(raw, "discard_alignment")
        takes = int(backing.queue("discard_max_bytes")) > 0
        if takes or not cached:
            assert volume.queue("discard_granularity") == raw.queue("discard_granularity")
        if not cached:
            assert {n: volume.queue(n) for n in DISCARDS} == {n: raw.queue(n) for n in DISCARDS}
            assert takes or volume.queue("discard_max_bytes") == "0"
        else:
            # a discard takes out of the cache what it names, so there is one whatever is below
            assert int(volume.queue("discard_max_bytes")) == 1 << 30
            blocks = [volume.queue(f"{kind}_block_size") for kind in ("logical", "physical")]
            assert takes or volume.queue("discard_granularity") in blocks
        on_raw, on_volume = seen(raw), seen(volume)
        for name, text in on_raw.items():
            assert on_volume[name] == text, name
    finally:
        raw.remove()


def sunit(device: BlockDevice) -> list[str]:
    """Stripes, as mkfs takes them for granted: of xfs, of ext4."""
    xfs = command.run("mkfs.xfs", "-N", "-f", "-K", device, check=False)
    ext4 = command.run("mkfs.ext4", "-n", "-F", device, check=False)
    return re.findall(r"sunit=\S+|swidth=\S+|sectsz=\S+", xfs.stdout) + re.findall(r"Stride=.*", ext4.stdout)


@pytest.mark.parametrize("name", list(BACKINGS))
def test_limits_are_those_of_the_backing(make_disk, name):
    backing = made(make_disk, name)
    unformatted = sunit(backing)
    stack = make_stack(make_disk, backing)
    compare(backing, stack.volume, stack.data, stack.sectors, cached=True)
    if "shifted" not in name and not odd(backing):
        assert attribute(stack.volume, "alignment_offset") == "0"
        assert sunit(stack.volume) == unformatted
    stack.detach()
    compare(backing, stack.volume, stack.data, stack.sectors, cached=False)
    stack.stop()


def test_limits_of_an_array(make_disk, array):
    md, _ = array
    unformatted = sunit(md)
    assert unformatted and any("swidth" in x for x in unformatted)
    stack = make_stack(make_disk, md)
    assert stack.data == 1152 * KIB
    compare(md, stack.volume, stack.data, stack.sectors, cached=True)
    assert sunit(stack.volume) == unformatted
    stack.stop()


@pytest.mark.parametrize("name", ["512e", "4Kn", "stripes", "large stripes"])
def test_partitions(make_disk, name):
    backing = made(make_disk, name)
    stack = make_stack(make_disk, backing, writeback="on")
    on_volume = partition(stack.volume)
    stack.volume.drain()
    stack.stop()
    raw = Target.create("raw", f"0 {data_of(backing)[1]} linear {backing} {data_of(backing)[0]}")
    raw.zero(0, 2 * MIB)
    assert partition(raw) == on_volume
    assert "start=" in on_volume[0]
    raw.remove()


@pytest.mark.parametrize("start, offset", [(MIB, 1088), (192 * 16 * KIB, 1152), (63, 1024)])
def test_data_begin_with_a_stripe_of_the_disk(array, start, offset):
    """A partition of the array; of one that begins within a block nothing can be mended."""
    md, _ = array
    command.run("sfdisk", "--quiet", "--wipe", "never", md, stdin=f"label: dos\nstart={start},type=83\n")
    part = BlockDevice(f"{md}p1")
    larder("volume", "create", "v", "--backing", part, "--yes")
    assert data_of(part)[0] == offset * KIB


def test_data_offset_that_is_given(make_disk):
    hdd = make_disk("hdd0", model="null", mb=336, wce=1, **STRIPED)
    larder("volume", "create", "v", "--backing", hdd, "--data-offset", "1M", "--yes")
    assert data_of(hdd)[0] == MIB


def test_copy_is_found_where_all_look_for_it(make_disk):
    """The data begin behind 1 MiB, and the superblock is lost: kernel and command know no other place than the default one."""
    hdd = make_disk("hdd0", model="null", mb=336, wce=1, io_min=512 << 10, io_opt=5 << 20)
    stack = make_stack(make_disk, hdd)
    assert stack.data == 5 * MIB
    stack.volume.write(0, b"x" * 4096)
    stack.stop()
    hdd.write(8, bytes(4096))
    stack.cache = Cache.start(stack.ssd, **stack.cache_options)
    stack.volume = Volume.create("v", Volume.line(hdd, stack.cache, stack.sectors, **stack.options))
    assert stack.volume.read(0, 8) == b"x" * 4096
    stack.stop()
    larder("super", "check", hdd)
