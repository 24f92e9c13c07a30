# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables, messages, devices, superblocks and tables of volumes that are wrong: one line in the kernel log that names device, field
and remedy, and not a write to any disk.  docs/testing.md, "Bad inputs", lists them; test_listed compares.

Damaged checkpoints and logs: host/test_images.py.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from lib import command, dm, simdisk
from lib.block import BlockDevice
from lib.damage import SUPER, TABLES, damage, fields
from lib.larder import Cache, Stack, Target, Volume
from lib.refusal import areas, assert_unused, changes, module_users, refused, said

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
STEP = 128  # sectors: what is saved of disks, piece by piece


# ---------------------------------------------------------------------- disks, formatted once


class Saved:
    """What is not zero on a disk, to be put on another one."""

    def __init__(self, disk: simdisk.Simdisk):
        self.pieces = []
        for sector in range(0, disk.sectors, STEP * 16):
            data = disk.read(sector, STEP * 16)
            if data.count(0) != len(data):
                self.pieces.append((sector, data))

    def restore(self, disk: simdisk.Simdisk, clean: bool = False) -> None:
        if not clean:
            disk.discard(0, disk.sectors)
        for sector, data in self.pieces:
            disk.write(sector, data)


_saved: dict[str, tuple[Saved, Saved]] = {}


class Disks:
    """ssd: of a cache; hdd: of a volume of it; blank: nothing.  state: "new", or "used" (two checkpoints, dirty data)."""

    def __init__(self, make_disk: Callable[..., simdisk.Simdisk], state: str):
        self.state = state
        self.ssd = make_disk("ssd0", mb=16, wce=1, fua=1, discard="zero", write_zeroes=1)
        self.hdd = make_disk("hdd0", mb=32, wce=1, discard="zero", write_zeroes=1)
        self.blank = make_disk("blank0", mb=16)
        self.restore(clean=True)

    def restore(self, clean: bool = False) -> None:
        if self.state in _saved:
            for saved, disk in zip(_saved[self.state], (self.ssd, self.hdd), strict=True):
                saved.restore(disk, clean)
            return
        stack = Stack(self.ssd, self.hdd, format_cache=("--segment-size", "128K"), format_volume=("--cache", "c"))
        if self.state == "used":
            stack.volume.message("set", "writeback", "off")
            stack.volume.write(0, b"\1" * 65536)
            stack.cache.message("checkpoint")
            stack.volume.write(4096, b"\2" * 65536)
            stack.cache.message("checkpoint")
        stack.stop()
        _saved[self.state] = Saved(self.ssd), Saved(self.hdd)

    def names(self, text: str) -> str:
        for name in ("ssd", "hdd", "blank"):
            text = text.replace(f"{{{name}}}", str(getattr(self, name)))
        return text


@pytest.fixture
def new(make_disk: Callable[..., simdisk.Simdisk]) -> Disks:
    return Disks(make_disk, "new")


@pytest.fixture
def used(make_disk: Callable[..., simdisk.Simdisk]) -> Disks:
    return Disks(make_disk, "used")


@pytest.fixture(autouse=True)
def nothing_left(clean_devices: None) -> Iterator[None]:
    """After each test the module is not held by anything that was refused."""
    yield
    dm.remove_all()
    assert_unused()


def table(device: str, line: str | list[str]) -> Callable[[], object]:
    return lambda: Target.create(device, line)


def message(device: Target, *words: str) -> None:
    device.message(*words)


def start(disks: Disks) -> Callable[[], object]:
    return lambda: Cache.start(disks.ssd)


def start_volume(disks: Disks) -> Callable[[], object]:
    return lambda: Volume.start(disks.hdd, "-")


def usable(disks: Disks) -> None:
    """The stack starts, takes writes and stops."""
    c = Cache.start(disks.ssd)
    v = Volume.start(disks.hdd, c)
    v.write(512, b"\3" * 4096)
    v.flush()
    assert v.read(512, 8) == b"\3" * 4096
    v.remove()
    c.remove()


# ---------------------------------------------------------------------- tables of a cache

NUMBERS = ["-1", "+5", "5x", "0x10", "1.5", "4294967297", "99999999999999999999", "on"]
SWITCH = ["On", "1"]

# id: (words behind "larder-cache", or several to be tried; patterns)
CACHE_TABLES = {
    "cache-no-words": ("", [r"number of SSDs", r"1 to 16"]),
    "cache-count-0": ("0 {ssd} 0", [r"1 to 16"]),
    "cache-count-17": ("17 {ssd} 0", [r"1 to 16"]),
    "cache-count-negative": ("-1 {ssd} 0", [r"1 to 16"]),
    "cache-count-word": ("one {ssd} 0", [r"1 to 16"]),
    "cache-count-trailing": ("1x {ssd} 0", [r"1 to 16"]),
    "cache-count-2-same-ssd": ("2 {ssd} {ssd} 0", [r"one SSD|on one|once"]),
    "cache-count-2-one-given": ("2 {ssd}", [r"one SSD|on one|SSDs given"]),
    "cache-ssd-left-out": ("1", [r"Fewer SSDs"]),
    "cache-ssd-absent": ("1 /dev/nosuch 0", [r"/dev/nosuch", r"SSD"]),
    "cache-ssd-absent-number": ("1 4095:1 0", [r"4095:1", r"SSD"]),
    "cache-ssd-directory": ("1 /tmp 0", [r"/tmp", r"SSD"]),
    "cache-ssd-character-device": ("1 /dev/null 0", [r"/dev/null", r"SSD"]),
    "cache-ssd-no-member": ("1 {blank} 0", [r"blank0", r"magic", r"larder cache create"]),
    "cache-ssd-is-a-backing": ("1 {hdd} 0", [r"hdd0", r"kind", r"larder super check"]),
    "cache-second-ssd": ("1 {ssd} {ssd} 0", [r"#opts|number of words"]),
    "cache-opts-word": ("1 {ssd} none", [r"#opts"]),
    "cache-opts-negative": ("1 {ssd} -2 gather 4", [r"#opts"]),
    "cache-opts-odd": ("1 {ssd} 1 gather", [r"#opts"]),
    "cache-opts-more-than-words": ("1 {ssd} 4 gather 4", [r"#opts|not enough|Not enough|words"]),
    "cache-opts-fewer-than-words": ("1 {ssd} 2 gather 4 discard on", [r"#opts"]),
    "cache-opts-66": ("1 {ssd} 66 " + "gather 4 " * 33, [r"#opts"]),
    "cache-option-unknown": ("1 {ssd} 2 wombat 1", [r"wombat", r"docs/interface.md"]),
    "cache-option-case": ("1 {ssd} 2 Gather 4", [r"Gather", r"docs/interface.md"]),
    "cache-option-of-a-volume": ("1 {ssd} 2 mode writeback", [r"mode", r"docs/interface.md"]),
    "cache-option-stale": ("1 {ssd} 2 stale discard", [r"stale", r"discard", r"refuse or accept"]),
    "cache-second-option-wrong": ("1 {ssd} 4 gather 8 commit never", [r"commit", r"never"]),
}
CACHE_OPTIONS = {
    "commit": (["Auto", "never"], r"auto, always or buffered"),
    "commit_interval": (["0", "60001"], r"1 to 60000"),
    "gather": (["0", "65", *NUMBERS], r"1 to 64"),
    "memory_limit": (["-1", "16777217"], r"0 to 16777216"),
    "small_percent": (["4", "11"], r"5 to 10"),
    "discard": (SWITCH, r"on or off"),
    "max_marks": (["63", "1025"], r"64 to 1024"),
    "checkpoint_percent": (["0", "51"], r"1 to 50"),
    "congestion_read": (["60000001"], r"0 to 60000000"),
    "congestion_write": (["60000001"], r"0 to 60000000"),
    "scrub_rate": (["16777217", "fast"], r"0 to 16777216"),
    "resync_rate": (["16777217", "fast"], r"0 to 16777216"),
    "mend": (SWITCH, r"on or off"),
}


def all_refused(log, cases: Iterable[tuple]) -> None:
    """Of (id, attempt, patterns...): every one; those that were not are listed, all of them."""
    wrong = []
    there = dm.names()
    before = areas()
    for name, attempt, *patterns in cases:
        try:
            refused(log, attempt, *patterns)
        except AssertionError as e:
            wrong.append(f"{name}: {e}")
            for made in set(dm.names()) - set(there):
                dm.DmDevice(made).remove()
    assert not wrong, "\n".join(wrong)
    assert areas() == before, "superblocks or tables have changed"


def option_cases(options: dict, device: str, line: str) -> Iterator[tuple]:
    """By table; line: without its options."""
    for key, (values, pattern) in options.items():
        for value in values:
            attempt = table(device, f"{line} 2 {key} {value}")
            yield f"{device}-option-{key}: {value}", attempt, rf"{key}: '{re.escape(value)}'", pattern


def message_cases(options: dict, device: dm.DmDevice) -> Iterator[tuple]:
    for key, (values, pattern) in options.items():
        for value in values:
            attempt = partial(message, device, "set", key, value)
            yield f"{device.name}-option-{key}: {value}, by message", attempt, rf"{key}: '{re.escape(value)}'", pattern


def test_cache_tables(new, kernel_log):
    line = f"0 {new.ssd.sectors} larder-cache "
    all_refused(kernel_log, ((k, table("c", line + new.names(w)), *p) for k, (w, p) in CACHE_TABLES.items()))


def test_cache_options(new, kernel_log):
    all_refused(kernel_log, option_cases(CACHE_OPTIONS, "c", f"0 {new.ssd.sectors} larder-cache 1 {new.ssd}"))


def test_cache_not_alone(new, kernel_log):
    lines = [f"0 8 larder-cache 1 {new.ssd} 0", f"8 8 linear {new.blank} 0"]
    refused(kernel_log, table("c", lines), r"larder-cache", r"singleton|alone|sector 0")
    lines = [f"0 8 linear {new.blank} 0", f"8 8 larder-cache 1 {new.ssd} 0"]
    refused(kernel_log, table("c", lines), r"larder-cache", r"singleton|alone|sector 0")
    refused(kernel_log, table("c", f"8 8 larder-cache 1 {new.ssd} 0"), r"larder-cache", r"[Gg]ap|sector 0")


# ---------------------------------------------------------------------- tables of a volume

VOLUME_TABLES = {
    "volume-no-words": ("", [r"<backing> <cache"]),
    "volume-one-word": ("{hdd}", [r"<backing> <cache"]),
    "volume-backing-absent": ("/dev/nosuch - 0", [r"/dev/nosuch", r"backing"]),
    "volume-backing-directory": ("/tmp - 0", [r"/tmp", r"backing"]),
    "volume-backing-no-member": ("{blank} - 0", [r"blank0", r"magic", r"larder volume create"]),
    "volume-backing-is-an-ssd": ("{ssd} - 0", [r"ssd0|backing"]),
    "volume-backing-none": ("- - 0", [r"backing"]),
    "volume-cache-absent": ("{hdd} /dev/mapper/nosuch 0", [r"nosuch", r"start it first"]),
    "volume-cache-is-an-ssd": ("{hdd} {blank} 0", [r"blank0", r"not a cache", r"larder-cache"]),
    "volume-cache-is-its-backing": ("{hdd} {hdd} 0", [r"hdd0", r"not a cache", r"larder-cache"]),
    "volume-cache-is-the-raw-ssd": ("{hdd} {ssd} 0", [r"ssd0"]),
    "volume-opts-word": ("{hdd} - none", [r"#opts"]),
    "volume-opts-odd": ("{hdd} - 1 mode", [r"#opts"]),
    "volume-opts-more-than-words": ("{hdd} - 4 fill on", [r"#opts|not enough|Not enough|words"]),
    "volume-opts-fewer-than-words": ("{hdd} - 2 fill on writeback on", [r"#opts"]),
    "volume-opts-66": ("{hdd} - 66 " + "fill on " * 33, [r"#opts"]),
    "volume-option-unknown": ("{hdd} - 2 wombat 1", [r"wombat", r"docs/interface.md"]),
    "volume-option-of-a-cache": ("{hdd} - 2 gather 4", [r"gather", r"docs/interface.md"]),
    "volume-option-stale": ("{hdd} - 2 stale maybe", [r"stale", r"maybe", r"refuse, discard or accept"]),
}
VOLUME_OPTIONS = {
    "mode": (["passthrough", "writeBack", "0"], r"writeback, writethrough or writearound"),
    "sequential_cutoff": (["4194305", "-1", "Auto"], r"auto nor a number of KiB \(0 to 4194304\)"),
    "fill": (SWITCH, r"on or off"),
    "admit": (["on", "second"], r"always or second-miss"),
    "writeback": (SWITCH, r"on or off"),
    "writeback_percent": (["101", *NUMBERS], r"0 to 100"),
    "writeback_rate_min": (["16777217"], r"0 to 16777216"),
    "writeback_rate_max": (["16777217"], r"0 to 16777216"),
    "writeback_depth": (["0", "129"], r"1 to 128"),
    "readahead": (["505"], r"0 to 504"),
    "share_min": (["76"], r"0 to 75"),
    "share_max": (["0", "101"], r"1 to 100"),
    "stripes": (SWITCH, r"on or off"),
    "quiet": (SWITCH, r"on or off"),
    "failure_wait": (["-1", "86401", "ever"], r"0 to 86400"),
    "verify": (["on", "read"], r"none or reads"),
    "class": (
        ["any", "small:cache", "any:keep", "any:pin-91", "size-0:cache", "lba-9-8:cache", "Special"],
        r"has a|is neither a preset",
    ),
}


def test_volume_tables(new, kernel_log):
    line = f"0 {new.hdd.sectors - 4096} larder "
    all_refused(kernel_log, ((k, table("v", line + new.names(w)), *p) for k, (w, p) in VOLUME_TABLES.items()))


def test_volume_options(new, kernel_log):
    all_refused(kernel_log, option_cases(VOLUME_OPTIONS, "v", f"0 {new.hdd.sectors - 4096} larder {new.hdd} -"))


def test_volume_lengths(new, kernel_log):
    sectors = new.hdd.sectors - 4096
    refused(kernel_log, table("v", Volume.line(new.hdd, "-", sectors + 1)), r"hdd0", rf"{sectors + 1} sectors", r"at most")
    refused(kernel_log, table("v", Volume.line(new.hdd, "-", sectors - 8)), r"hdd0", r"sectors", r"smaller: give that many")
    refused(kernel_log, table("v", Volume.line(new.hdd, "-", 1 << 50)), r"hdd0|larder")
    refused(kernel_log, table("v", Volume.line(new.hdd, "-", 0)), r"larder|zero-length")
    lines = [f"0 8 linear {new.blank} 0", f"8 8 larder {new.hdd} - 0"]
    refused(kernel_log, table("v", lines), r"larder", r"singleton|alone|sector 0")


# ---------------------------------------------------------------------- what does not go together


def clone(source: simdisk.Simdisk, make_disk: Callable[..., simdisk.Simdisk], name: str) -> simdisk.Simdisk:
    copy = make_disk(name, sectors=source.sectors, wce=1)
    Saved(source).restore(copy, clean=True)
    return copy


def test_cache_in_use(new, make_disk, kernel_log):
    copy = clone(new.ssd, make_disk, "ssd1")
    cache = Cache.start(new.ssd)
    refused(kernel_log, lambda: Cache.start(new.ssd, "c2"), r"c2|ssd0", r"in use|another dm device")
    refused(kernel_log, lambda: Cache.start(copy, "c2"), r"in use by another dm device", r"remove")
    assert cache.status()["state"] == "running"
    cache.remove()
    usable(new)


def test_handle_of_another_cache(new, make_disk, kernel_log):
    other = make_disk("ssd1", mb=16, wce=1)
    Cache.format("d", other, "--segment-size", "128K")
    cache = Cache.start(new.ssd)
    refused(kernel_log, lambda: cache.load(f"0 {other.sectors} larder-cache 1 {other} 0"), r"ssd1", r"handle of cache")
    assert cache.status()["state"] == "running"


def test_volume_in_use(new, make_disk, kernel_log):
    copy = clone(new.hdd, make_disk, "hdd1")
    cache = Cache.start(new.ssd)
    volume = Volume.start(new.hdd, cache)
    refused(kernel_log, lambda: Volume.start(new.hdd, cache, "v2"), r"hdd0", r"in use by dm device", r"remove that one first")
    refused(kernel_log, lambda: Volume.start(copy, cache, "v2"), r"hdd1", r"in use by dm device", r"UUID of its own")
    refused(kernel_log, lambda: Volume.start(copy, "-", "v2"), r"hdd1", r"in use by dm device", r"UUID of its own")
    volume.write(0, b"\4" * 4096)
    assert volume.read(0, 8) == b"\4" * 4096


def test_volume_of_another_cache(used, make_disk, kernel_log):
    other = make_disk("ssd1", mb=16, wce=1)
    Cache.format("d", other, "--segment-size", "128K")
    cache = Cache.start(other, "d")
    refused(kernel_log, lambda: Volume.start(used.hdd, cache), r"hdd0", r"belongs to cache", r"detach")
    refused(kernel_log, lambda: Volume.start(used.hdd, "-"), r"hdd0", r"dirty data in cache", r"start that one")


def test_cache_not_started(new, kernel_log):
    cache = Cache.create("c", f"0 {new.ssd.sectors} larder-cache 1 {new.ssd} 0", suspended=True)
    number = "{major}:{minor}".format(**cache.info())  # it has no node before it is resumed
    refused(kernel_log, lambda: Volume.start(new.hdd, number), r"not a cache that runs", r"resumed")


def test_cache_suspended(new, kernel_log):
    cache = Cache.start(new.ssd)
    cache.suspend()
    refused(kernel_log, lambda: Volume.start(new.hdd, cache), r"hdd0", r"suspended", r"resume")
    cache.resume()
    Volume.start(new.hdd, cache)


def test_detach_while_dirty(new, kernel_log):
    volume = Volume.start(new.hdd, Cache.start(new.ssd), writeback="off")
    volume.write(0, b"\5" * 4096)
    volume.flush()  # so that no commit is left to the timer
    line = Volume.line(new.hdd, "-", new.hdd.sectors - 4096)
    refused(kernel_log, lambda: volume.load(line), r"hdd0", r"8 dirty sectors", r"flush")
    assert volume.read(0, 8) == b"\5" * 4096


# ---------------------------------------------------------------------- messages

UUID = "11111111-2222-4333-8444-555555555555"
CACHE_MESSAGES = {
    "cache-message-unknown": ("wombat", [r"wombat", r"set, commit, checkpoint, reclaim, forget"]),
    "cache-message-of-a-volume": ("drop_clean", [r"drop_clean", r"set, commit"]),
    "cache-message-set-1-word": ("set gather", [r"'set' with 2 words"]),
    "cache-message-set-3-words": ("set gather 4 4", [r"'set' with 4 words"]),
    "cache-message-set-unknown": ("set wombat 1", [r"wombat", r"docs/interface.md"]),
    "cache-message-commit-words": ("commit now", [r"'commit' with 2 words"]),
    "cache-message-checkpoint-words": ("checkpoint 1", [r"'checkpoint' with 2 words"]),
    "cache-message-reclaim-no-number": ("reclaim", [r"'reclaim' with 1 words"]),
    "cache-message-reclaim-0": ("reclaim 0", [r"reclaim: '0'", r"1 to \d+"]),
    "cache-message-reclaim-negative": ("reclaim -1", [r"reclaim: '-1'", r"1 to \d+"]),
    "cache-message-reclaim-too-many": ("reclaim 100000", [r"reclaim: '100000'", r"1 to \d+"]),
    "cache-message-reclaim-word": ("reclaim all", [r"reclaim: 'all'", r"1 to \d+"]),
    "cache-message-forget-no-uuid": ("forget", [r"'forget' with 1 words"]),
    "cache-message-forget-bad-uuid": ("forget 1234", [r"forget: '1234' is not a UUID"]),
    "cache-message-forget-unknown": (f"forget {UUID}", [r"forget", UUID]),
    "cache-message-forget-bad-word": (f"forget {UUID} please", [r"please", r"discard_dirty"]),
    "cache-message-stack-no-word": ("stack", [r"'stack' with 1 words"]),
    "cache-message-stack-no-hex": ("stack xy", [r"stack", r"2048 bytes in hex"]),
    "cache-message-stack-odd": ("stack 123", [r"stack", r"2048 bytes in hex"]),
    "cache-message-forget-in-use": ("forget {uuid}", [r"forget", r"in use", r"stop it first"]),
}
VOLUME_MESSAGES = {
    "volume-message-unknown": ("wombat", [r"wombat", r"set, flush, flush_stop, drop_clean, discard_dirty"]),
    "volume-message-of-a-cache": ("checkpoint", [r"checkpoint", r"set, flush"]),
    "volume-message-set-1-word": ("set mode", [r"'set' with 2 words"]),
    "volume-message-set-unknown": ("set wombat 1", [r"wombat", r"docs/interface.md"]),
    "volume-message-set-stale": ("set stale discard", [r"stale", r"docs/interface.md"]),
    "volume-message-flush-words": ("flush all", [r"'flush' with 2 words"]),
    "volume-message-discard-dirty-no-uuid": ("discard_dirty", [r"'discard_dirty' with 1 words"]),
    "volume-message-discard-dirty-bad-uuid": ("discard_dirty 1234", [r"discard_dirty: '1234' is not a UUID"]),
    "volume-message-stack-no-hex": ("stack xy", [r"stack", r"2048 bytes in hex"]),
    "volume-message-stack-odd": ("stack 123", [r"stack", r"2048 bytes in hex"]),
    "volume-message-discard-dirty-in-use": ("discard_dirty {cache}", [r"unmount it, suspend it"]),
}


def test_messages(new, kernel_log):
    """All of them to one stack that runs: none changes it."""
    cache = Cache.start(new.ssd)
    volume = Volume.start(new.hdd, cache)
    named = {"uuid": volume.status()["uuid"], "cache": volume.status()["cache"]}
    before = cache.table(), volume.table()
    cases = []
    for device, messages in ((cache, CACHE_MESSAGES), (volume, VOLUME_MESSAGES)):
        for name, (words, patterns) in messages.items():
            cases.append((name, partial(message, device, *words.format(**named).split()), *patterns))
    cases += [*message_cases(CACHE_OPTIONS, cache), *message_cases(VOLUME_OPTIONS, volume)]
    all_refused(kernel_log, cases)
    cache.suspend()
    refused(kernel_log, lambda: cache.message("checkpoint"), r"suspended", r"set")
    cache.resume()
    assert (cache.table(), volume.table()) == before
    volume.write(0, b"\6" * 4096)
    assert volume.read(0, 8) == b"\6" * 4096


# ---------------------------------------------------------------------- devices


def test_devices_too_small(make_disk, kernel_log):
    tiny = make_disk("tiny0", sectors=8)
    for line in (f"0 8 larder-cache 1 {tiny} 0", f"0 8 larder {tiny} - 0"):
        refused(kernel_log, table("x", line), r"tiny0", r"too small")


def test_device_that_shrank(new, make_disk, kernel_log):
    for source, attempt, name in (
        (new.ssd, Cache.start, "ssd1"),
        (new.hdd, lambda d: Volume.create("v", f"0 8 larder {d} - 0"), "hdd1"),
    ):
        small = make_disk(name, mb=8, wce=1)
        small.write(0, source.read(0, 2048))
        refused(kernel_log, lambda small=small, attempt=attempt: attempt(small), name, r"device_sectors", r"smaller")


def test_devices_read_only(new, kernel_log):
    for disk, attempt in ((new.ssd, start(new)), (new.hdd, start_volume(new))):
        command.run("blockdev", "--setro", disk)
        refused(kernel_log, attempt, disk.name, r"read-only", r"blockdev --setrw")
        command.run("blockdev", "--setrw", disk)
    usable(new)


@pytest.fixture
def make_zoned() -> Iterator[Callable[[str, simdisk.Simdisk], BlockDevice]]:
    """A zoned disk as large as another one, with its head; its first zones are conventional, the last one is not."""
    made, root = [], Path("/sys/kernel/config")
    command.run("modprobe", "null_blk", "nr_devices=0")
    if not root.is_mount():
        command.run("mount", "-t", "configfs", "none", root)

    def make(name: str, like: simdisk.Simdisk) -> BlockDevice:
        node = root / "nullb" / name
        node.mkdir()
        made.append(node)
        zones = like.sectors // 8192
        for key, value in {
            "size": like.sectors // 2048,
            "memory_backed": 1,
            "zoned": 1,
            "zone_size": 4,
            "zone_nr_conv": zones - 1,
            "power": 1,
        }.items():
            (node / key).write_text(str(value))
        zoned = BlockDevice(Path("/dev") / name)
        assert Path(f"/sys/block/{name}/queue/zoned").read_text().strip() == "host-managed"
        zoned.write(0, like.read(0, 2048))
        return zoned

    yield make
    for node in made:
        (node / "power").write_text("0")
        node.rmdir()
    command.run("modprobe", "-r", "null_blk")


def test_devices_zoned(new, make_zoned, kernel_log):
    """By the dm core, in one line or two, before anything of the device counts.  The command looks by itself (lib/claim.c)."""
    ssd, hdd = make_zoned("nullb0", new.ssd), make_zoned("nullb1", new.hdd)
    before = [d.read(0, 24576) for d in (ssd, hdd)]
    for device, attempt in ((ssd, lambda: Cache.start(ssd)), (hdd, lambda: Volume.start(hdd, "-"))):
        kernel_log.mark()
        with pytest.raises(command.CommandError):
            attempt()
        assert any(re.search(f"{device.kernel_name}|zone", x) for x in said(kernel_log)), said(kernel_log)
    assert [d.read(0, 24576) for d in (ssd, hdd)] == before
    usable(new)


def test_tables_read_only(new, kernel_log):
    for line in (f"0 8 larder-cache 1 {new.ssd} 0", f"0 8 larder {new.hdd} - 0"):
        refused(kernel_log, lambda line=line: dm.DmDevice.create("x", line, readonly=True), r"read-only")
    usable(new)


def test_devices_mounted(new, kernel_log, tmp_path):
    command.run("mkfs.ext4", "-q", new.blank)
    command.run("mount", "-o", "ro", new.blank, tmp_path)
    for line in (f"0 8 larder-cache 1 {new.blank} 0", f"0 8 larder {new.blank} - 0"):
        refused(kernel_log, table("x", line), r"blank0", r"error -16")


def test_superblocks_unreadable(new, kernel_log):
    kernel_log.expect("I/O error")
    for disk, attempt in ((new.ssd, start(new)), (new.hdd, start_volume(new))):
        disk.fail(op="read", status="ioerr")
        before = disk.stats()["writes"]
        kernel_log.mark()
        with pytest.raises(command.CommandError):
            attempt()
        assert any(disk.name in x and "read error" in x for x in said(kernel_log)), said(kernel_log)
        assert disk.stats()["writes"] == before
        disk.heal()
    usable(new)


# ---------------------------------------------------------------------- superblocks: what each field may not be

ODD = 1 << 40
HEAD_DAMAGE = {
    "magic": ("head.magic[3]=^1", "magic"),
    "version": ("head.version=2", "version"),
    "incompat": (f"head.incompat={1 << 63}", "incompat"),
    "kind-0": ("head.kind=0", "kind"),
    "kind-5": ("head.kind=5", "kind"),
    "kind-spare": ("head.kind=3", "kind"),
    "device-sectors-3": ("head.device_sectors=3", "device_sectors"),
    "device-sectors-larger": ("head.device_sectors=+8", "device_sectors"),
    "device-sectors-huge": (f"head.device_sectors={1 << 63}", "device_sectors"),
    "copy-offset-4096": ("head.copy_offset=4096", "copy_offset"),
    "copy-offset-odd": ("head.copy_offset=8193", "copy_offset"),
    "copy-offset-beyond": (f"head.copy_offset={ODD}", "copy_offset"),
    "copy-offset-wraps": (f"head.copy_offset={(1 << 64) - 4096}", "copy_offset"),
}
CACHE_DAMAGE = HEAD_DAMAGE | {
    "ro-compat": ("head.ro_compat=1", "ro_compat"),
    "kind-backing": ("head.kind=2", "not an SSD of a cache"),
    "nr-devices-0": ("nr_devices=0", "nr_devices"),
    "nr-devices-17": ("nr_devices=17", "nr_devices"),
    "nr-devices-2": ("nr_devices=2", "set of 2 SSDs"),
    "device-number-16": ("device_number=16", "device_number"),
    "device-number-1": ("device_number=1", "number 1 of a set"),
    "segment-size-0": ("segment_size=0", "segment_size"),
    "segment-size-odd": ("segment_size=393216", "segment_size"),
    "segment-size-too-large": (f"segment_size={1 << 25}", "segment_size"),
    "segments-offset-low": ("segments_offset=4096", "segments_offset"),
    "segments-offset-odd": ("segments_offset=+512", "segments_offset"),
    "segments-offset-beyond": (f"segments_offset={ODD}", "segments_offset"),
    "nr-segments-0": ("nr_segments=0", "nr_segments"),
    "nr-segments-31": ("nr_segments=31", "nr_segments|checkpoint|epochs"),
    "nr-segments-beyond": ("nr_segments=0xffffffff", "nr_segments"),
    "first-segment-beyond": ("first_segment=0xfffffff0", "first_segment|epochs|checkpoint"),
    "epoch": ("epoch=+1", "epoch"),
    "epochs-not-falling": ("epochs[1].epoch=99", "epochs"),
    "epochs-segment": ("epochs[0].segment=99999", "epochs.segment"),
    "epochs-first-sequence": ("epochs[0].first_sequence=0", "first_sequence"),
    "checkpoint-bytes-0": ("checkpoint[0].bytes=0", "checkpoint.bytes"),
    "checkpoint-bytes-odd": ("checkpoint[0].bytes=+1", "checkpoint.bytes"),
    "checkpoint-bytes-huge": (f"checkpoint[0].bytes={1 << 60}", "checkpoint.bytes"),
    "checkpoint-first-segment": ("checkpoint[0].first_segment=99999", "checkpoint.first_segment"),
    "checkpoint-epoch": ("checkpoint[0].epoch=99", "checkpoint.epoch"),
    "checkpoint-order": ("checkpoint[1].sequence=+1000", "checkpoint.sequence"),
    "checkpoint-newest-empty": ("checkpoint[0].sequence=0", "checkpoint"),
    "cache-uuid": ("cache_uuid=^1", "table of volumes"),
    "ssd-uuid": ("head.uuid=^1", "table of volumes"),
    "table-generation": ("table_generation=+1000", "table of volumes.*generation"),
}
VOLUME_DAMAGE = HEAD_DAMAGE | {
    "ro-compat": ("head.ro_compat=1", "ro_compat"),
    "kind-ssd": ("head.kind=1", "not the backing of a volume"),
    "mode-3": ("mode=3", "mode"),
    "data-offset-low": ("data_offset=4096", "data_offset"),
    "data-offset-odd": ("data_offset=+512", "data_offset"),
    "data-offset-beyond": (f"data_offset={ODD}", "data_offset"),
    "data-offset-in-copy": ("data_offset=8192", "copy_offset"),
    "tail-reserve-odd": ("tail_reserve=+1", "tail_reserve"),
    "tail-reserve-beyond": (f"tail_reserve={ODD}", "tail_reserve"),
    "sectors-0": ("sectors=0", "sectors"),
    "sectors-beyond": ("sectors=+8", "sectors"),  # less than the table line: the volume grows, see test_grow.py
    "dirty-without-a-cache": ("cache_uuid=x:" + "00" * 16, "may_be_dirty|dirty data"),
}
TABLE_DAMAGE = {
    "magic": ("head.magic=^1", "magic"),
    "generation": ("head.generation=0", "generation"),
    "cache-uuid": ("head.cache_uuid=^1", "uuid"),
    "nr-devices-0": ("head.nr_devices=0", "nr_devices"),
    "nr-devices-17": ("head.nr_devices=17", "nr_devices"),
    "nr-devices-2": ("head.nr_devices=2", "nr_devices"),
    "nr-volumes-1025": ("head.nr_volumes=1025", "nr_volumes"),
    "device-state": ("devices[0].state=5", "devices.state"),
    "device-none": ("devices[0].state=0", "devices|nr_devices"),
    "device-uuid": ("devices[0].uuid=^1", "devices"),
    "device-role": ("devices[0].role=3", "devices.role"),
    "device-first-segment": ("devices[0].first_segment=+1", "devices|segment"),
    "device-nr-segments-0": ("devices[0].nr_segments=0", "devices.nr_segments"),
    "device-nr-segments": ("devices[0].nr_segments=+1", "devices|segments"),
    "device-segments-offset": ("devices[0].segments_offset=+4096", "devices|segments_offset"),
    "volume-state": ("volumes[0].state=3", "volumes.state"),
    "volume-sectors-0": ("volumes[0].sectors=0", "volumes.sectors"),
    "volume-sectors-huge": (f"volumes[0].sectors={(1 << 43) + 1}", "volumes.sectors"),
}


def damaged(disk: simdisk.Simdisk, places: tuple, damages: dict, attempt: Callable, restore: Callable) -> Iterator[tuple]:
    for name, (change, pattern) in damages.items():
        damage(disk, places, change)
        yield name, attempt, disk.name, pattern
        restore()


@pytest.mark.limit(600)
def test_cache_superblock_fields(used, kernel_log):
    all_refused(kernel_log, damaged(used.ssd, SUPER, CACHE_DAMAGE, start(used), used.restore))
    usable(used)


@pytest.mark.limit(600)
def test_volume_superblock_fields(used, kernel_log):
    cache = Cache.start(used.ssd)
    Volume.start(used.hdd, cache).remove()
    saved = Saved(used.hdd)
    attempt = lambda: Volume.start(used.hdd, cache)  # noqa: E731
    all_refused(kernel_log, damaged(used.hdd, SUPER, VOLUME_DAMAGE, attempt, lambda: saved.restore(used.hdd)))
    assert Volume.start(used.hdd, cache).read(0, 8) == b"\1" * 4096


@pytest.mark.limit(600)
def test_table_fields(used, kernel_log):
    all_refused(kernel_log, damaged(used.ssd, TABLES, TABLE_DAMAGE, start(used), used.restore))
    usable(used)


def test_volumes_beyond_memory(used, kernel_log):
    """A table may name volumes of 4 PiB that no disk has: 90 MiB each."""
    many = [f"volumes[{i}].{word}" for i in range(1, 15) for word in ("state=1", f"uuid=x:{i:032x}", f"sectors={1 << 43}")]
    damage(used.ssd, TABLES, "head.nr_volumes=15", *many)
    all_refused(kernel_log, [("15 volumes", start(used), used.ssd.name, r"volumes\.sectors: 15 volumes", "add memory")])
    used.restore()
    usable(used)


# ---------------------------------------------------------------------- every field, flipped

# Fields that say nothing which could be checked, or whose other value is right too.
# A checkpoint that does not fit gives way to the older one.  Ancestors are compared with those of other SSDs of the set alone.
# A table may know fewer segments of its SSD than that has.  That the backing has noted more is what `stale accept` is for.
FREE = re.compile(
    r"reserved|label|stack|created|head\.(flags|generation|compat)$|generation$|incarnation$|^noted$|^mode$|nr_volumes$|role$|"
    r"^checkpoint\[|^epochs\[0\]\.(segment|secret|first_sequence)|^epochs\[1\]|^volumes\[|^devices\[1\]|^ancestors|"
    r"^devices\[0\]\.nr_segments$"
)

KNOWN = {"cache superblock": "head.incompat=^1"}  # a feature that this release has: copies that are three


def flip(path: str, size: int, number: int) -> str:
    """Lowest and highest bit in turn."""
    return f"{path}=^{1 << 8 * size - 1 if number % 2 and size <= 8 else 1}"


def attempt_flipped(kernel_log, attempt: Callable[[], object], stop: Callable[[], object]) -> bool:
    """Refused as it must be, or started.  True: started."""
    before = changes()
    kernel_log.mark()
    try:
        attempt()
    except command.CommandError:
        lines = said(kernel_log)
        assert lines and len(lines) <= 4, lines
        assert changes() == before, lines
        return False
    stop()
    return True


@pytest.mark.limit(900)
@pytest.mark.parametrize("what", ["cache superblock", "volume superblock", "table"])
def test_every_field_flipped(used, kernel_log, seed, what):
    """With the crc repaired: refused, or started in order.  Not repaired: in both copies refused, in the first the other counts."""
    kind = {"cache superblock": "larder_cache_sb", "volume superblock": "larder_volume_sb", "table": "larder_table"}[what]
    places = TABLES if what == "table" else SUPER
    disk = used.hdd if what == "volume superblock" else used.ssd
    cache = Cache.start(used.ssd) if what == "volume superblock" else None
    # accept: a superblock that is put back between them is older than the cache has seen
    attempt = (lambda: Volume.start(used.hdd, cache, stale="accept")) if cache else start(used)
    stop = Volume("v").remove if cache else Cache("c").remove
    if cache:
        attempt()
        stop()
    saved = Saved(disk)
    wrong = []
    for i, (path, size) in enumerate(fields(kind)):
        # what is tried, where, with which crc, and whether it may, or must, start
        change = flip(path, size, i + seed)
        tries = [(places, False, bool(FREE.search(path)) or change == KNOWN.get(what), False)]
        if i % 3 == 0 and not path.endswith("crc"):
            tries.append((places, True, False, False))
        if i % 8 == 0:
            tries.append((places[:1], True, True, True))
        for where, keep_crc, may, must in tries:
            damage(disk, where, change, keep_crc=keep_crc)
            started = attempt_flipped(kernel_log, attempt, stop)
            if started > may or started < must:
                wrong.append(
                    f"{change} in {where}, crc {'as it was' if keep_crc else 'repaired'}: started {started}"
                )
            saved.restore(disk)
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------------- the module, and the document


def test_module_unloads(new, kernel_log):
    """After all that: it can be removed and loaded again, and runs."""
    usable(new)
    assert module_users() == 0
    command.run("rmmod", "larder")
    assert not Path("/sys/module/larder").exists()
    command.run("insmod", Path(os.environ["LARDER_RESULTS"]) / "larder.ko")
    usable(new)


def ids() -> set[str]:
    found = {*CACHE_TABLES, *VOLUME_TABLES, *CACHE_MESSAGES, *VOLUME_MESSAGES}
    found |= {f"cache-option-{k}" for k in CACHE_OPTIONS} | {f"volume-option-{k}" for k in VOLUME_OPTIONS}
    for prefix, damages in (("ssd-superblock", CACHE_DAMAGE), ("backing-superblock", VOLUME_DAMAGE), ("table", TABLE_DAMAGE)):
        found |= {f"{prefix}-{k}" for k in damages}
    return found | {name for name in globals() if name.startswith("test_")}


def test_listed():
    """docs/testing.md lists what is tried here, and nothing else."""
    section = DOCUMENT.read_text().split("\n### Refused by the kernel\n")[1].split("\n### ")[0]
    listed = set(re.findall(r"^\| `([^`]+)`", section, flags=re.M))
    elsewhere = {"test_listed", "test_module_unloads", "test_cache_tables", "test_cache_options", "test_volume_tables"}
    elsewhere |= {
        "test_volume_options",
        "test_messages",
        "test_cache_superblock_fields",
        "test_volume_superblock_fields",
        "test_table_fields",
    }
    assert listed == ids() - elsewhere, f"not listed: {ids() - elsewhere - listed}; not tried: {listed - ids()}"
