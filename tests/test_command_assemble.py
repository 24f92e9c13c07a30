# SPDX-License-Identifier: GPL-2.0-or-later
"""larder assemble on images: a dry run says what would be started, and what is refused, and writes nothing.

What plans must hold is shown by tests/unit/test_plan.c; here superblocks, signatures and tables become facts.
"""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import CACHE, KIB, MIB, NOT_FOUND, SB, SB_SIZE, TABLES, TOP, UNSAFE, VOLUME
from harness import attach_by_hand, blkid, digest, field, one_line, patch_both, patch_tables
from status_lines import line

pytest_plugins = ["larder_fixtures"]

MAY_BE_DIRTY = 1


@pytest.fixture
def stack(larder):
    """Two SSDs, a disk: cache `fast`, volume `data`."""
    a, b = larder.image("a", 64 * MIB), larder.image("b", 64 * MIB)
    larder("cache", "create", "fast", "--cache", a, "--cache", b, "--yes")
    return a, b, larder.volume("data", 64 * MIB, "--cache", "fast")


@pytest.fixture
def prober(larder_probe):
    """What it prints of a device of which udev knows that, but for the time."""

    def probe(path, known):
        run = subprocess.run([larder_probe, path], capture_output=True, text=True, env=os.environ | known, check=False)
        assert run.stderr == "" and run.returncode == (0 if run.stdout else 1), run
        return [line for line in run.stdout.splitlines() if not line.startswith("LARDER_APPEARED=")]

    return probe


def dry(larder, *words, code=0):
    before = [digest(d) for d in larder.devices]
    run = larder("assemble", *(words or ("--all",)), "--dry-run", code=code)
    assert [digest(d) for d in larder.devices] == before
    return run


def names(run):
    return [line.split()[2] for line in run.stdout.splitlines()]


def test_whole(larder, stack):
    """In whatever order the devices are found."""
    a, b, hdd = stack
    cache, volume = uuid.UUID(bytes=field(a, CACHE, "cache_uuid")), uuid.UUID(bytes=field(hdd, VOLUME, "uuid"))
    sectors = 2 * field(a, CACHE, "nr_segments") * field(a, CACHE, "segment_size") // 512
    for order in itertools.permutations(stack):
        larder.devices = list(order)
        for words in (["--all"], ["data"], [str(volume)], ["fast"]):
            assert dry(larder, *words).stdout.splitlines() == [
                f"dmsetup create larder-cache-fast --uuid LARDER-{cache}-cache --table '0 {sectors} larder-cache 2 {a} {b} 0'",
                f"dmsetup create data --uuid LARDER-{volume} --table '0 {62 * 2048} larder {hdd} /dev/mapper/larder-cache-fast 0'",
            ]


def test_only_what_is_asked_for(larder, stack):
    larder.cache("slow")
    larder.volume("more", 64 * MIB)
    larder.volume("other", 64 * MIB, "--cache", "slow")
    assert sorted(names(dry(larder))) == ["data", "larder-cache-fast", "larder-cache-slow", "more", "other"]
    assert names(dry(larder, "other")) == ["larder-cache-slow", "other"]
    assert names(dry(larder, "more")) == ["more"]


def test_missing_ssd(larder, stack):
    _, b, _ = stack
    larder.devices.remove(b)
    one_line(dry(larder, code=NOT_FOUND), "cache fast: waits for 1 of its 2 SSDs")
    # no table knows the volume: nothing tells whether the cache was used without this SSD
    one_line(dry(larder, "--all", "--degraded", code=UNSAFE), "larder cache start fast --degraded")


def test_again(larder, stack):
    """Until it is there: systemd is told behind the first look, and what it waits for."""
    _, b, hdd = stack
    away, path = b.with_name("away"), str(larder.directory / "notify")
    b.rename(away)
    words = [larder.program, "assemble", "--again", "--conf", "data", "--dry-run"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(60)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(words, env=larder.environment({"NOTIFY_SOCKET": path}), **pipes) as process:
            assert s.recv(4096).decode() == "READY=1\nSTATUS=something is missing; looks again when a device comes, and in 5 s"
            assert s.recv(4096).decode() == "STATUS=something is missing; looks again when a device comes, and in 10 s"
            away.rename(b)
            assert s.recv(4096).decode() == "READY=1\nSTATUS=started"
            assert process.wait(60) == 0
            assert [row.split()[2] for row in process.stdout] == ["larder-cache-fast", "data"]
            assert process.stderr.read().count("cache fast: waits for 1 of its 2 SSDs") == 2
    larder.image("copy", 64 * MIB).write_bytes(hdd.read_bytes())
    assert "neither is used" in dry(larder, "--again", "fast", "data", code=UNSAFE).stderr  # nobody waits for an end of that


@contextlib.contextmanager
def again(larder, *words, conf="", code=0):
    """With --again, told() is what systemd is told next; `out` and `err`, behind the block, are what was said."""
    path = str(larder.directory / "notify")
    (larder.directory / "again.conf").write_text(conf)
    env = {"NOTIFY_SOCKET": path, "LARDER_CONF": str(larder.directory / "again.conf")}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(60)
        with larder.started("assemble", "--again", "--conf", *words, "data", "--dry-run", env=env, code=code) as process:
            process.told = lambda: s.recv(4096).decode()
            yield process


def test_again_without_what_is_missing(larder, stack):
    """The time is over for what is here at the first look alone: what comes later waits as larder.conf has it."""
    away = [device.rename(device.with_name(f"away-{device.name}")) for device in stack]
    with again(larder, "--degraded", conf="wait 2") as process:
        assert process.told().endswith("in 5 s")
        away[2].rename(stack[2])
        assert process.told() == "STATUS=something is missing; looks again when a device comes, and in 2 s"
        for i in range(2):
            away[i].rename(stack[i])
        assert process.told() == "READY=1\nSTATUS=started"
    assert [row.split()[2] for row in process.out.splitlines()] == ["larder-cache-fast", "data"], process.err
    assert "volume data: waits for its cache" in process.err


def test_again_beside_what_is_refused(larder, stack):
    """An SSD put back from an image, which may stay here for ever: the one that is missing is looked for all the same."""
    a, b, _ = stack
    had = field(a, CACHE, "generation")
    for ssd in (a, b):
        patch_both(ssd, CACHE, generation=had + 2, all_generation=had + 1)
    missing = b.rename(b.with_name("missing"))
    shutil.copy(missing, b)
    patch_both(b, CACHE, generation=had, all_generation=had)
    with again(larder) as process:
        assert process.told() == "READY=1\nSTATUS=something is missing; looks again when a device comes, and in 5 s"
        missing.rename(b)
        assert process.told() == "READY=1\nSTATUS=started"
    assert "is older than it was" in process.err
    assert [row.split()[2] for row in process.out.splitlines()] == ["larder-cache-fast", "data"], process.err


@pytest.mark.parametrize("away", [0, 1])
def test_missing_ssd_of_a_volume_that_ran(larder, stack, away):
    *ssds, hdd = stack
    here = ssds[1 - away]
    for ssd in ssds:
        attach_by_hand(ssd, hdd)
    patch_both(hdd, VOLUME, set_generation=field(here, CACHE, "set_generation"), incarnation=0)  # as in that entry
    larder.devices.remove(ssds[away])
    one_line(dry(larder, code=NOT_FOUND), "cache fast: waits for 1 of its 2 SSDs")
    run = dry(larder, "--all", "--degraded")
    places = [str(here) if ssd == here else "-" for ssd in ssds]
    assert names(run) == ["larder-cache-fast", "data"] and f"larder-cache 2 {' '.join(places)} 0'" in run.stdout
    # the volume ran with the other SSD alone: the one that is here was left
    patch_both(hdd, VOLUME, set_generation=field(here, CACHE, "set_generation") + (1 << 32))
    run = dry(larder, "--all", "--degraded", code=UNSAFE)
    one_line(run, "ran with other SSDs")
    assert run.stdout == ""
    # without the disk nobody knows
    larder.devices.remove(hdd)
    one_line(dry(larder, "--all", "--degraded", code=UNSAFE), "no volume of it is here")


@pytest.mark.parametrize("which", [0, 1])
def test_ssd_put_back_from_an_image(larder, stack, which):
    """It counts as missing, and is told of; for `cache start` too, but for who says that it is the one."""
    *ssds, _ = stack
    had = field(ssds[which], CACHE, "generation")
    for ssd, values in ((ssds[which], {}), (ssds[1 - which], {"all_generation": had + 1})):
        patch_both(ssd, CACHE, generation=had + (2 if values else 0), **values)
    run = dry(larder, code=UNSAFE)
    assert "cache fast: waits for 1 of its 2 SSDs" in run.stderr
    told = f"{ssds[which]}: SSD {which} of the cache fast is older than it was (generation {had}, and all had {had + 1})"
    assert told in run.stderr
    start = ("cache", "start", "fast", "--dry-run")
    told = larder(*start, code=UNSAFE).stderr
    assert f"{ssds[which]}: generation: is {had}, and all SSDs of the set had {had + 1}" in told and "were not found" in told
    places = " ".join("-" if ssd == ssds[which] else str(ssd) for ssd in ssds)
    assert f"larder-cache 2 {places} 0" in larder(*start, "--degraded").stdout
    assert f"larder-cache 2 {ssds[0]} {ssds[1]} 2 stale accept" in larder(*start, "--option", "stale=accept").stdout
    patch_both(ssds[which], CACHE, generation=had + 1)
    assert f"larder-cache 2 {ssds[0]} {ssds[1]} 0" in larder(*start).stdout and "older" not in dry(larder).stderr


def test_missing_cache(larder, stack):
    hdd = stack[2]
    larder.devices = [hdd]
    one_line(dry(larder, code=NOT_FOUND), "volume data: waits for its cache")
    run = dry(larder, "--all", "--degraded")
    assert run.stdout.endswith(f" larder {hdd} - 0'\n")
    patch_both(hdd, VOLUME, flags=MAY_BE_DIRTY)
    one_line(dry(larder, "--all", "--degraded", code=UNSAFE), "may hold newer data")


@pytest.mark.parametrize("which", [0, 2])
def test_copy(larder, stack, which):
    """Of an SSD or of the disk: neither is used; of the disk, the cache is."""
    clone = larder.image("clone", 0)
    shutil.copy(stack[which], clone)
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], clone, "neither is used", "larder super wipe")
    assert names(run) == (["larder-cache-fast"] if which == 2 else [])


@pytest.mark.parametrize("which", [0, 2])
def test_somebody_elses(larder, stack, which):
    """An LVM label beside our superblock: not ours to use."""
    signatures.lvm(stack[which])
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], "LVM2_member", "wipefs")
    assert names(run) == (["larder-cache-fast"] if which == 2 else [])


# without ext4, and on an SSD GPT, which overwrite all that says larder
LEAVE_US = [(w, k) for w in (0, 2) for k in signatures.HEAD if k != "ext4" and (w, k) != (0, "gpt")]


@pytest.mark.parametrize(("which", "kind"), LEAVE_US)
def test_given_to_somebody_else(larder, stack, which, kind):
    """A filesystem, swap area, partition table came behind us, and leaves our superblock, or its copy: not written to by itself."""
    signatures.HEAD[kind](stack[which])
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], "larder super wipe")
    assert names(run) == (["larder-cache-fast"] if which == 2 else [])
    # nor when its name is given; the commands that start one thing do it by the path
    assert names(dry(larder, "data", code=UNSAFE)) == names(run)


@pytest.mark.parametrize("which", [0, 2])
@pytest.mark.parametrize("what", [bytes(SB_SIZE), b"\xa5" * SB_SIZE])
def test_only_a_copy_is_left(larder, stack, which, what):
    with open(stack[which], "r+b") as f:
        f.seek(SB)
        f.write(what)
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], "only its copy is left", f"larder {'volume' if which else 'cache'} start {stack[which]}")
    assert names(run) == (["larder-cache-fast"] if which == 2 else [])


def inside(path, offset, size, write, scratch):
    """What write() makes on a device of its own, in the data of a member."""
    scratch.write_bytes(b"")
    os.truncate(scratch, size)
    write(scratch)
    with open(path, "r+b") as f:
        f.seek(offset)
        f.write(scratch.read_bytes())


@pytest.mark.parametrize("kind", [*signatures.HEAD, *signatures.TAIL])
@pytest.mark.parametrize("layout", [[], ["--data-offset", "8K"], ["--data-offset", "64K"]])
def test_signatures_in_the_data_are_ours(larder, tmp_path, kind, layout):
    """What a volume holds is its user's, wherever its data begin; so is what a cache holds of it."""
    write = (signatures.HEAD | {k: w for k, (_, w) in signatures.TAIL.items()})[kind]
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, *layout)
    segments = field(ssd, CACHE, "nr_segments") * field(ssd, CACHE, "segment_size")
    inside(hdd, field(hdd, VOLUME, "data_offset"), 512 * field(hdd, VOLUME, "sectors"), write, tmp_path / "scratch")
    inside(ssd, field(ssd, CACHE, "segments_offset"), segments, write, tmp_path / "scratch")
    assert sorted(names(dry(larder))) == ["data", "larder-cache-fast"]


@pytest.mark.parametrize("kind", signatures.TAIL_ALONE)
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("reserve", [[], ["--tail-reserve", "0"]], ids=["reserve", "none"])
def test_signature_at_the_tail_hinders_nothing(larder, kind, which, reserve):
    """Of an SSD: its log; of a disk: the end of its volume, or what is reserved behind that.  Of neither is it another owner's."""
    type_, write = signatures.TAIL_ALONE[kind]
    a, b = larder.image("a", 64 * MIB), larder.image("b", 64 * MIB)
    larder("cache", "create", "fast", "--cache", a, "--cache", b, "--yes")
    member = (a, b, larder.volume("data", 64 * MIB, "--cache", "fast", *reserve))[which]
    write(member)
    assert type_ in blkid(member) or kind == "gpt backup"  # that it asks for by force alone
    assert sorted(names(dry(larder))) == ["data", "larder-cache-fast"]


@pytest.mark.parametrize("kind", signatures.TAIL_ALONE)
@pytest.mark.parametrize("which", [0, 2])
def test_signature_behind_a_member_is_its_owners(larder, stack, kind, which):
    """The leg of a mirror with its superblock at the end, or the disk below DRBD, shows the member on top, and is longer."""
    type_, write = signatures.TAIL_ALONE[kind]
    os.truncate(stack[which], stack[which].stat().st_size + MIB)
    write(stack[which])
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], f"carries a signature {type_} behind the member", "drbdadm", "mdadm")
    assert "wipe" not in run.stderr
    assert names(run) == (["larder-cache-fast"] if which == 2 else [])
    # before the data as well: that is somebody else's now, and comes first
    signatures.lvm(stack[which])
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], "carries a signature LVM2_member as well", f"wipefs --types LVM2_member --all {stack[which]}")


@pytest.mark.parametrize("kind", signatures.TAIL_ALONE)
def test_legs_of_a_mirror_that_does_not_run(larder, stack, kind):
    """Both have the superblock, and each a signature behind it: nothing is named that destroys either."""
    hdd, clone = stack[2], larder.image("clone", 0)
    shutil.copy(hdd, clone)
    for leg in (hdd, clone):
        os.truncate(leg, leg.stat().st_size + MIB)
        signatures.TAIL_ALONE[kind][1](leg)
    run = dry(larder, code=UNSAFE)
    for leg in (hdd, clone):
        assert f"{leg}: carries a signature" in run.stderr
    assert "wipe" not in run.stderr and names(run) == ["larder-cache-fast"]


@pytest.mark.parametrize("which", [0, 2])
def test_signature_at_the_tail_hides_none_at_the_head(larder, stack, which):
    """libblkid looks for md's at the end first, and tells of one; what is named to erase the other leaves what is data."""
    signatures.md_1_0(stack[which])
    signatures.md_1_1(stack[which])
    assert "linux_raid_member" in blkid(stack[which])
    run = dry(larder, code=UNSAFE)
    one_line(run, stack[which], "linux_raid_member", f"wipefs --offset 0 {stack[which]},")
    tail = stack[which].read_bytes()[-MIB:]
    subprocess.run(["wipefs", "--quiet", "--offset", "0", stack[which]], check=True)
    assert sorted(names(dry(larder))) == ["data", "larder-cache-fast"]
    assert stack[which].read_bytes()[-MIB:] == tail and "linux_raid_member" in blkid(stack[which])


@pytest.mark.parametrize("kind", signatures.TAIL_ALONE)
def test_what_udev_takes_for_something_else(larder, prober, kind):
    """larder-probe, with what udev has found: of a member's data it is one nevertheless; of anything else it is its owner's."""
    type_, write = signatures.TAIL_ALONE[kind]
    known = {"DEVTYPE": "disk", "ID_PART_TABLE_TYPE" if type_ == "gpt" else "ID_FS_TYPE": type_}
    hdd = larder.volume("data", 64 * MIB)
    write(hdd)
    said = prober(hdd, known)
    assert f"LARDER_UUID={uuid.UUID(bytes=field(hdd, VOLUME, 'uuid'))}" in said and "ID_FS_TYPE=larder_member" in said
    assert prober(hdd, {}) == prober(hdd, {"ID_FS_TYPE": "larder_member"}) == said
    # said by something else than libblkid, which does not find it
    assert prober(hdd, known | {"ID_FS_TYPE": "mpath_member"}) == []
    # a partition has its disk's
    assert prober(hdd, {"DEVTYPE": "partition", "ID_PART_TABLE_TYPE": "dos"}) != []
    assert prober(hdd, {"DEVTYPE": "disk", "ID_PART_TABLE_TYPE": "dos"}) == []
    # before the data as well
    signatures.lvm(hdd)
    assert prober(hdd, known) == [] and prober(hdd, {"ID_FS_TYPE": "LVM2_member"}) == []
    signatures.write(hdd, 512, bytes(512))
    assert prober(hdd, known) == said
    # behind the member: a leg, say
    os.truncate(hdd, 66 * MIB)
    write(hdd)
    assert prober(hdd, known) == []


@pytest.mark.parametrize("layout", [[], ["--data-offset", "8K"]])
def test_what_lies_before_us_is_kept(larder, layout):
    """create keeps the first 4 KiB but for signatures, and what is left there is nobody's."""
    hdd = larder.image("loader", 64 * MIB)
    loader = b"\xeb\x63\x90" + b"a loader".ljust(4093, b"\x90")
    hdd.write_bytes(loader + hdd.read_bytes()[4096:])
    larder("volume", "create", "data", "--backing", hdd, *layout)
    assert hdd.read_bytes()[:4096] == loader and names(dry(larder)) == ["data"]


def test_one_label_for_two(larder):
    first = larder.volume("data")
    larder.devices = []
    second = larder.image("second", 64 * MIB)
    larder("volume", "create", "data", "--backing", second)
    larder.devices.append(first)
    run = dry(larder, code=UNSAFE)
    assert run.stdout == "" and len(run.stderr.splitlines()) == 2
    for path in (first, second):
        assert f"larder volume start {uuid.UUID(bytes=field(path, VOLUME, 'uuid'))} --name NAME" in run.stderr


def test_damaged(larder, stack):
    """A member without a valid superblock is none; one without a valid table is not used."""
    a, b, _ = stack
    with open(b, "r+b") as f:
        for table in (128, 256):
            f.seek(table * KIB)
            f.write(bytes(4096))
    run = dry(larder, code=UNSAFE)
    assert f"{b}: table: neither copy is valid" in run.stderr and run.stdout == ""
    with open(a, "r+b") as f:
        f.seek(SB)
        f.write(bytes(SB_SIZE))
        f.seek(64 * MIB - SB_SIZE)
        f.write(bytes(SB_SIZE))
    run = dry(larder, code=UNSAFE)
    assert "table: neither copy is valid" in run.stderr and run.stdout == ""


# ---------------------------------------------------------------- spares


class Running:
    """The cache of `stack` runs without its second SSD, as LARDER_STATUS says; spares by hand, as `cache add` needs a kernel."""

    def __init__(self, larder, stack):
        self.larder, (self.a, self.b, self.hdd), self.file = larder, stack, larder.directory / "status"
        patch_tables(self.a, device1__state=3)
        self.cache = field(self.a, CACHE, "cache_uuid")
        self.places = "active/failed"
        larder.devices.remove(self.b)

    def spare(self, name="spare", size=64 * MIB):
        others, self.larder.devices = self.larder.devices, []
        path = self.larder.cache(name, size)
        self.larder.devices = [*others, path]
        unit = field(self.a, CACHE, "segment_size")
        patch_both(path, CACHE, kind=3, flags=0, cache_uuid=self.cache, label=b"fast", segment_size=unit)
        return path

    def status(self, state="running"):
        text = line("cache", "larder-cache-fast", uuid=str(uuid.UUID(bytes=self.cache)), ssds=self.places, state=state)
        # at once: a daemon that runs may just be reading it
        new = self.file.with_suffix(".new")
        new.write_text(text + line("volume", "data", uuid=str(uuid.UUID(int=5))))
        new.rename(self.file)

    def dry(self, *words, code=0, state="running"):
        self.status(state)
        before = [digest(d) for d in self.larder.devices]
        env = {"LARDER_STATUS": str(self.file)}
        run = self.larder("assemble", *(words or ("fast", "--degraded")), "--dry-run", env=env, code=code)
        assert [digest(d) for d in self.larder.devices] == before
        added = [row.split() for row in run.stdout.splitlines() if row.startswith("larder cache replace ")]
        assert all(row[3] == "larder-cache-fast" and row[4] == "1" and row[6:] == ["--spare"] for row in added)
        return run, [row[5] for row in added]


@pytest.fixture
def degraded(larder, stack):
    return Running(larder, stack)


@pytest.fixture
def spare_daemon(larderd):
    """It runs, on images, and for real: what it would start runs already, as the status says."""

    @contextlib.contextmanager
    def run(degraded, *words, within=(), more=None):
        directory = degraded.larder.directory
        path = f"{directory}/bin:{os.environ['PATH']}"
        devices = ":".join(str(d) for d in degraded.larder.devices if d != degraded.hdd)
        environment = os.environ | {"LARDER_STATUS": str(degraded.file), "LARDER_DEVICES": devices, "PATH": path}
        environment.pop("INVOCATION_ID", None)
        environment |= more or {}
        log, command = directory / "larderd.log", [*within, larderd, *map(str, words)]
        with open(log, "w") as out, subprocess.Popen(command, env=environment, stderr=out) as process:
            try:
                yield log, process
            finally:
                process.terminate()
                process.wait(60)

    return run


def test_spare_is_used(degraded):
    """The smaller one of those that are large enough, and one at a time."""
    degraded.spare("large", 128 * MIB)
    middle, small = degraded.spare("middle", 64 * MIB), degraded.spare("small", 48 * MIB)
    for devices in itertools.permutations(degraded.larder.devices):
        degraded.larder.devices = list(devices)
        assert degraded.dry()[1] == [str(middle)]
    # who does not wait, and whom nobody has asked for it by name, leaves it: an initramfs
    assert degraded.dry("--all", "--degraded")[1] == degraded.dry("fast", "--degraded", "--conf")[1] == []
    run, used = degraded.dry("fast", code=NOT_FOUND)
    one_line(run, "larder-cache-fast: SSD 1 has failed", f"its spare {middle} waits")
    assert used == []
    degraded.larder.devices = [degraded.a, small]
    run, used = degraded.dry(code=UNSAFE)
    one_line(run, "its spares have less room", "larder cache add")
    assert used == []


def test_spare_that_was_begun(degraded):
    """The command that was to add it was killed behind its superblock: it goes on, before other spares, in that place alone."""
    begun, other = degraded.spare("begun"), degraded.spare("other")
    patch_both(begun, CACHE, kind=1, flags=4, device_number=1, nr_devices=2, nr_segments=field(degraded.a, CACHE, "nr_segments"))
    for table in TABLES:
        signatures.write(begun, table, bytes(64))
    assert degraded.dry()[1] == [str(begun)]
    degraded.places = "active/joining"
    assert degraded.dry()[1] == []
    degraded.places = "active/failed"
    patch_both(begun, CACHE, device_number=2)
    assert degraded.dry()[1] == [str(other)]


def test_spare_is_not_needed(degraded):
    degraded.spare()
    for places in ("active/active", "active/joining", "active/removed", "draining/failed", "joining/failed"):
        degraded.places = places
        assert degraded.dry()[1] == [], places
    degraded.places = "active/failed"
    assert degraded.dry(state="failed")[1] == [] and len(degraded.dry()[1]) == 1
    # the cache does not run, or it is another one's: nothing is done with a spare
    degraded.cache = bytes(16)
    assert degraded.dry()[1] == []


@pytest.mark.parametrize("what", ["ext4", "lvm"])
def test_spare_with_something_on_it(degraded, what):
    """Whatever it is, not only what a volume manager would take: a spare is used unasked."""
    spare = degraded.spare()
    if what == "lvm":
        signatures.lvm(spare)
    else:
        signatures.write(spare, 1024, struct.pack("<4xI", 16384))
        signatures.write(spare, 1024 + 56, b"\x53\xef")
        signatures.write(spare, 1024 + 76, struct.pack("<I", 1))
        signatures.write(spare, 1024 + 96, struct.pack("<I", 0x40))
    run, used = degraded.dry(code=UNSAFE)
    one_line(run, spare, "carries a signature", "wipefs")
    assert used == []


@pytest.mark.parametrize("kind", signatures.TAIL_ALONE)
def test_spare_with_something_at_its_tail(degraded, kind):
    """A spare is used unasked, and no log is in it: what is there came later."""
    type_, write = signatures.TAIL_ALONE[kind]
    spare = degraded.spare()
    write(spare)
    run, used = degraded.dry(code=UNSAFE)
    one_line(run, spare, f"carries a signature {type_}", "wipefs")
    assert used == []


@pytest.mark.parametrize("offset", [1 << 20, 2 << 20, 4 << 20, 1 << 19])
def test_luks_in_the_log_is_no_signature(degraded, offset):
    """The second header of a volume, at a place of the log where libblkid looks for one; in front of the log it is somebody's."""
    spare = degraded.spare()
    signatures.luks2_second_header(spare, offset)
    assert "crypto_LUKS" in subprocess.run(["blkid", "-p", spare], capture_output=True, text=True, check=False).stdout
    _, used = degraded.dry(code=UNSAFE if offset < 1 << 20 else 0)
    assert bool(used) == (offset >= 1 << 20)


@pytest.mark.parametrize("what", ["copy", "whole"])
def test_spare_of_somebody_else_is_not_listed(degraded, what):
    spare = degraded.spare()
    if what == "copy":
        signatures.write(spare, 4096, b"\x5a" * 4096)
    degraded.status()
    run = degraded.larder("cache", "list", "-o", "name,spares", "--noheadings", env={"LARDER_STATUS": str(degraded.file)})
    assert run.stdout.split()[-1] == ("0" if what == "copy" else "1"), run.stdout


def test_spare_twice(degraded):
    spare = degraded.spare()
    clone = degraded.larder.image("clone", 0)
    shutil.copy(spare, clone)
    run, used = degraded.dry(code=UNSAFE)
    one_line(run, spare, clone, "neither is used")
    assert used == []


def told(log, text, times=1):
    """Waits until larderd has said it so often."""
    until(lambda: log.read_text().count(text) >= times, log)


def until(done, log):
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


@pytest.mark.parametrize("code", [0, 1])
def test_spare_by_larderd(degraded, spare_daemon, code):
    """It waits for the SSD, and gives the command once; one that fails is tried again if somebody asks, not by its own events."""
    spare, calls = degraded.spare(), degraded.larder.directory / "calls"
    degraded.status()
    with spare_daemon(degraded, "--wait", 3600) as (log, _):
        told(log, f"SSD 1 has failed: its spare {spare} waits, in case that comes back")
    assert not calls.exists()
    program = degraded.larder.directory / "bin" / "larder"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{calls}\necho "larder: no luck"\nexit {code}\n')
    program.chmod(0o755)
    if not code:  # as it is behind the command
        program.write_text(program.read_text() + f"sed -i s,active/failed,active/joining, {degraded.file}\n")
        program.write_text(program.read_text().replace(f"exit {code}\n", ""))
    with spare_daemon(degraded, "--wait", 0) as (log, process):
        told(log, "could not join, see above" if code else f"its spare {spare} takes its place")
        if code:
            told(log, "could not join: it is tried again later")
        for times in (2, 3):
            process.send_signal(signal.SIGHUP)
            if code:
                until(lambda expected=times: len(calls.read_text().splitlines()) == expected, log)
            time.sleep(0.3)
    expected = f"cache replace larder-cache-fast 1 {spare} --spare --no-wait --yes"
    assert calls.read_text().splitlines() == [expected] * (3 if code else 1)


BEFORE_DBUS = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec "$@"', "sh"]


@pytest.mark.skipif(subprocess.run(["unshare", "-rm", "true"], check=False).returncode, reason="no mount namespace here")
def test_spare_before_dbus(degraded, spare_daemon):
    """systemd-run reaches systemd by D-Bus alone: early at a boot, or on a machine without, the command is run as it is."""
    spare, calls, programs = degraded.spare(), degraded.larder.directory / "calls", degraded.larder.directory / "bin"
    degraded.status()
    programs.mkdir()
    for name, text in (("larder", f"sed -i s,active/failed,active/joining, {degraded.file}"), ("systemd-run", "exit 1")):
        (programs / name).write_text(f'#!/bin/sh\necho "${{0##*/}} $1 $2" >>{calls}\n{text}\n')
        (programs / name).chmod(0o755)
    with spare_daemon(degraded, "--wait", 0, within=BEFORE_DBUS, more={"INVOCATION_ID": "0"}) as (log, _):
        told(log, f"its spare {spare} takes its place")
    assert calls.read_text().splitlines() == ["larder cache replace"]


DBUS = [*BEFORE_DBUS[:-2], BEFORE_DBUS[-2].replace("&& exec", "/run/dbus && touch /run/dbus/system_bus_socket && exec"), "sh"]


@pytest.mark.skipif(subprocess.run(["unshare", "-rm", "true"], check=False).returncode, reason="no mount namespace here")
def test_spare_that_sigterm_ends(degraded, spare_daemon):
    """In a unit of its own; of one whose end is a SIGTERM systemd-run says 0, but larder is told to end with a number then."""
    degraded.spare()
    calls, programs = degraded.larder.directory / "calls", degraded.larder.directory / "bin"
    degraded.status()
    programs.mkdir()
    unit = 'for word; do shift; case "$word" in --setenv=*) export "${word#--setenv=}";; --) break;; esac; done\n"$@"'
    ends = '[ -z "$LARDER_WAITED_FOR" ] || exit 143'
    for name, text in (("larder", ends), ("systemd-run", unit)):
        (programs / name).write_text(f'#!/bin/sh\necho "${{0##*/}}" >>{calls}\n{text}\n')
        (programs / name).chmod(0o755)
    with spare_daemon(degraded, "--wait", 0, within=DBUS, more={"INVOCATION_ID": "0"}) as (log, _):
        until(lambda: "could not join, see above" in log.read_text() or "takes its place" in log.read_text(), log)
        assert "could not join, see above" in log.read_text()
    assert calls.read_text().splitlines() == ["systemd-run", "larder"]


BEGAN = """
mount -t tmpfs none /run
for words in "--observe" "" ""; do
	"$1" --wait 3600 $words 2> /run/log &
	# it has looked: there is no device-mapper, or what it says of the SSDs
	tries=0
	until [ -s /run/log ] || [ "$words" ] || [ $((tries += 1)) -gt 600 ]; do sleep 0.05; done
	[ -z "$words" ] || sleep 0.5
	kill $!
	wait $!
	cat /run/log >&2
	rm /run/log
	readlink /run/larder/began || echo none
done
"""


@pytest.mark.skipif(subprocess.run(["unshare", "-rm", "true"], check=False).returncode, reason="no mount namespace here")
def test_when_larderd_began(degraded, larderd):
    """What is missing is waited for from then on, whatever udev's database has kept of the initramfs; a restart keeps it."""
    degraded.status()
    devices = ":".join(str(d) for d in degraded.larder.devices)
    environment = os.environ | {"LARDER_STATUS": str(degraded.file), "LARDER_DEVICES": devices}
    earliest = time.monotonic_ns() // 1000
    command = ["unshare", "-rm", "sh", "-c", BEGAN, "sh", larderd]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    observed, first, again = run.stdout.split()
    assert observed == "none" and first == again, run.stderr
    assert earliest <= int(first) <= time.monotonic_ns() // 1000


def test_what_is_left(degraded, spare_daemon, run_directory):
    """For who follows `larder events`: in a file, for as long as it is so."""
    file = run_directory / "left"
    signatures.lvm(degraded.spare())
    degraded.status()
    with spare_daemon(degraded, "--wait", 0) as (log, process):
        until(lambda: file.exists() and "refused" in file.read_text(), log)
        (row,) = file.read_text().splitlines()
        word, number, text = row.split(" ", 2)
        assert word == "refused" and uuid.UUID(number) and text in log.read_text()
        before = file.stat().st_ino
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert file.stat().st_ino == before, "nothing has changed"
        degraded.places = "active/active"
        degraded.status()
        process.send_signal(signal.SIGHUP)
        until(lambda: not file.read_text(), log)


def test_spare_is_left_where_the_ssd_is_back(degraded, spare_daemon):
    """Also by who was not there when it came: a daemon that was started behind it, a command."""
    spare, said = degraded.spare(), f"{degraded.b}: SSD 1 has failed, and is here again: its spare is left"
    degraded.larder.devices.append(degraded.b)
    run, used = degraded.dry(code=UNSAFE)
    assert used == [] and said in run.stderr
    with spare_daemon(degraded, "--wait", 0) as (log, _):
        told(log, said)
        assert f"larder cache replace larder-cache-fast 1 {spare} the spare instead" in log.read_text()
        assert "its spare" not in log.read_text().replace(said, "")
    # what is nobody's SSD any more is not waited for
    signatures.lvm(degraded.b)
    assert degraded.dry(code=UNSAFE)[1] == [str(spare)]


def test_spare_is_shown(degraded):
    spare = degraded.spare()
    for words in (["probe", spare], ["super", "show", spare]):
        assert "spare" in degraded.larder(*words).stdout
    properties = degraded.larder("probe", "--udev", spare).stdout.splitlines()
    cache = uuid.UUID(bytes=degraded.cache)
    assert {"LARDER_KIND=spare", f"LARDER_CACHE_UUID={cache}", f"ID_FS_UUID={cache}", "ID_FS_LABEL=fast"} <= set(properties)
    assert degraded.larder("cache", "list", "-o", "spares", "--noheadings").stdout.split() == ["1"]
    # no SSD of the cache: neither started with it nor taken for it
    assert str(spare) not in dry(degraded.larder).stdout
    one_line(degraded.larder("cache", "create", "x", "--cache", spare, code=UNSAFE), spare, "spare", "--wipe")


# ---------------------------------------------------------------- larder.conf


def with_conf(larder, text, *words, code=0):
    path = larder.directory / "larder.conf"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return larder("assemble", *(words or ("--all",)), "--dry-run", env={"LARDER_CONF": str(path)}, code=code)


@pytest.mark.parametrize(
    ("text", "started"),
    [
        ("", "larder-cache-fast larder-cache-slow data more other"),
        ("auto no all", ""),
        ("auto yes data\nauto no all", "larder-cache-fast data"),  # the cache it needs comes along
        ("auto yes all\nauto no all", "larder-cache-fast larder-cache-slow data more other"),  # the first line decides
        ("auto no data other # and nothing else", "larder-cache-fast larder-cache-slow more"),
        ("auto no slow", "larder-cache-fast data more"),  # and what needs it
        ("auto yes {uuid}\nauto no all", "more"),
        ("auto yes fast\nauto no all", "larder-cache-fast"),
    ],
)
def test_conf_auto(larder, stack, text, started):
    larder.cache("slow")
    larder.volume("other", 64 * MIB, "--cache", "slow")
    more = larder.volume("more", 64 * MIB)
    text = text.replace("{uuid}", str(uuid.UUID(bytes=field(more, VOLUME, "uuid"))))
    for devices in (larder.devices, larder.devices[::-1]):
        larder.devices = list(devices)
        assert sorted(names(with_conf(larder, text))) == sorted(started.split())
    # what is asked for by its name starts all the same
    assert names(with_conf(larder, text, "other")) == ["larder-cache-slow", "other"]


def test_conf_leaves_a_name(larder):
    """Two volumes of one label: the one that is left takes no name."""
    first = larder.volume("data", 64 * MIB)
    larder.devices = []
    second = larder.image("second", 64 * MIB)
    larder("volume", "create", "data", "--backing", second)
    larder.devices = [second, first]
    run = with_conf(larder, f"auto yes {uuid.UUID(bytes=field(first, VOLUME, 'uuid'))}\nauto no all\n")
    assert names(run) == ["data"] and str(first) in run.stdout and str(second) not in run.stdout


def test_conf_degraded(larder, stack):
    *ssds, hdd = stack
    for ssd in ssds:
        attach_by_hand(ssd, hdd)
    patch_both(hdd, VOLUME, set_generation=field(ssds[0], CACHE, "set_generation"), incarnation=0)
    larder.devices.remove(ssds[1])
    words = ["--all", "--degraded"]
    assert names(with_conf(larder, "", *words)) == ["larder-cache-fast", "data"]
    for who in ("all", "fast", "data"):
        run = with_conf(larder, f"degraded no {who}", *words, code=UNSAFE)
        one_line(run, "larder.conf", "degraded no", "larder cache start fast --degraded")
        assert not run.stdout
    assert names(with_conf(larder, "degraded no fast", "data", "--degraded")) == ["larder-cache-fast", "data"]
    # as an initramfs asks for root
    assert names(with_conf(larder, "degraded no other", "data", "--degraded", "--conf")) == ["larder-cache-fast", "data"]
    one_line(with_conf(larder, "degraded no data", "data", "--degraded", "--conf", code=UNSAFE), "larder.conf", "degraded no")
    assert names(with_conf(larder, "auto no all", "data", "--degraded", "--conf")) == []
    larder.devices = [hdd]
    assert names(with_conf(larder, "", *words)) == ["data"]
    one_line(with_conf(larder, "degraded no data", *words, code=UNSAFE), "larder.conf", "--without-cache")


def test_conf_with_mistakes(larder, stack):
    """Each is one line, with file and number; the others count; nothing is held up."""
    mistakes = ["auto", "auto perhaps data", "auto no", "automatic yes data", "auto no bad\x01name"]
    lines = ["", *mistakes, "wait", "wait 5 6", "wait soon", "wait 999999", "auto no data"]
    run = with_conf(larder, "\n".join(lines))
    said = run.stderr.splitlines()
    path = larder.directory / "larder.conf"
    assert [x.split(": ")[1] for x in said] == [f"{path}:{n}" for n in range(2, 11)]
    assert all("the line is ignored" in x for x in said) and "\x01" not in run.stderr
    assert names(run) == ["larder-cache-fast"]
    one_line(with_conf(larder, b"auto no all\0\n"), f"{path}:1", "byte 0")


def test_conf_that_cannot_be_read(larder, stack):
    """Nobody knows what it keeps from starting: nothing starts by itself; what is asked for by its name does."""
    long = "#" * 70000 + "\nauto no all\n"
    run = with_conf(larder, long)
    one_line(run, "longer than", "nothing starts by itself")
    assert not names(run)
    run = larder("assemble", "--all", "--dry-run", env={"LARDER_CONF": str(larder.directory)})
    one_line(run, "is no file", "nothing starts by itself")
    assert not names(run)
    assert names(with_conf(larder, long, "data")) == ["larder-cache-fast", "data"]
    run = larder("assemble", "--all", "--dry-run", env={"LARDER_CONF": str(larder.directory / "none")})
    assert not run.stderr and len(names(run)) == 2


def test_random_edits_of_the_conf(tmp_path):
    """tests/fuzz/fuzz_conf.c without clang."""
    fuzz = TOP / "tests" / "fuzz"
    subprocess.run(["make", "-s", "-C", fuzz, f"WORK={tmp_path}", "standalone-conf"], check=True, stdout=subprocess.DEVNULL)
    program = [tmp_path / "standalone-conf", "1", "50000", fuzz / "larder.conf"]
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1")
    run = subprocess.run(program, capture_output=True, text=True, errors="replace", env=environment)
    assert run.returncode == 0 and "Sanitizer" not in run.stderr, run.stderr[-4000:]
