# SPDX-License-Identifier: GPL-2.0-or-later
"""Images of caches that tests/images/writer made, started by the kernel, and held against tests/images/reader, the second
implementation of docs/on-disk-format.md: what both find must be the same, damage included, and what the reader finds in what the
kernel wrote must be what the kernel says.

The start of a full cache of 64 GiB, after a clean stop and after a power cut: the seconds are printed, not judged.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from host import build
from host.conftest import Boots

IMAGES = build.TOP / "tests" / "images"
SCRIPT = build.TOP / "tests" / "vm" / "guest" / "start_images.py"
SECTOR = 512
MIB = 1 << 20


@pytest.fixture(scope="session")
def tools() -> Path:
    directory = build.cache_directory() / "build" / "images"
    with build.locked(directory):
        build.run("tests/images", "make", "-s", "-C", str(IMAGES), f"BUILD={directory}", "all")
    return directory


def key_values(text: str) -> dict[str, str]:
    return dict(w.split("=", 1) for w in text.split() if "=" in w)


class Image:
    """A cache and its backing, in two files."""

    def __init__(self, tools: Path, directory: Path, name: str, *options: str):
        self.tools, self.name = tools, name
        directory.mkdir(parents=True, exist_ok=True)
        self.ssd, self.hdd = directory / f"{name}.ssd", directory / f"{name}.hdd"
        made = self._run("writer", "--cache", self.ssd, "--backing", self.hdd, *options)
        self.made = key_values(made.stdout)
        table = self._run("reader", "table", self.ssd).stdout
        self.sectors = int(re.search(r"volumes\[0\].* sectors=(\d+)", table)[1])

    def _run(self, tool: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess:
        return subprocess.run([self.tools / tool, *map(str, arguments)], capture_output=True, text=True, check=check)

    def check(self) -> tuple[dict[str, str], str]:
        """The reader's summary, {} if it could not load the image; what it complained of."""
        r = self._run("reader", "check", self.ssd, check=False)
        return key_values(r.stdout), r.stderr

    def superblock(self) -> dict[str, str]:
        return key_values(self._run("reader", "super", self.ssd, check=False).stdout)

    def records(self, stream: int) -> list[dict[str, str]]:
        out = self._run("reader", "log", self.ssd, check=False).stdout
        found = [key_values(x) for x in out.splitlines() if x.startswith("record")]
        return [r for r in found if int(r["stream"]) == stream]

    def view(self, to: Path) -> bool:
        """What the volume holds, by the reader.  False: it cannot tell."""
        with open(to, "wb") as f:
            subprocess.run([self.tools / "reader", "view", self.ssd, self.hdd], stdout=f, stderr=subprocess.DEVNULL)
        return to.stat().st_size == self.sectors * SECTOR

    def damage(self, *words: str) -> None:
        subprocess.run([IMAGES / "damage", self.ssd, *words], check=True, stdout=subprocess.DEVNULL)

    def spoil(self, record: dict[str, str], text: bytes, byte: int = 0) -> None:
        """Overwrites data of a record."""
        s = self.superblock()
        size, offset = int(s["segment_size"]), int(s["segments_offset"])
        with open(self.ssd, "r+b") as f:
            f.seek(offset + int(record["segment"]) * size + int(record["first"]) * 4096 + byte)
            f.write(text)


# ---------------------------------------------------------------------- a full cache

SAMPLE = 60


def stamp_sample(image: Image) -> list[list]:
    """Marks the data of some cached extents, and of places on the backing that are not cached; [[sector, text]] to be read."""
    offset = int(image.superblock()["segments_offset"])
    lines = subprocess.run(
        [image.tools / "reader", "extents", image.ssd], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout.splitlines()
    chosen = [x.split() for x in lines[7 :: len(lines) // SAMPLE]]
    before = image.check()
    sample = []
    with open(image.ssd, "r+b") as ssd, open(image.hdd, "r+b") as hdd:
        for _, sector, _, state, cache in chosen:
            if state == "zero":
                continue
            text = f"sector {sector} of the volume, {state}, in the cache at {cache}"
            ssd.seek(offset + int(cache) * SECTOR)
            ssd.write(text.encode())
            sample.append([int(sector), text])
        for a, b in zip(lines[7 :: len(lines) // SAMPLE], lines[8 :: len(lines) // SAMPLE], strict=False):
            end, following = sum(map(int, a.split()[1:3])), int(b.split()[1])
            if following - end < 8:
                continue
            text = f"sector {end} of the volume, from the backing"
            hdd.seek(MIB + end * SECTOR)
            hdd.write(text.encode())
            sample.append([end, text])
    assert image.check() == before, "the sample is part of what a start sums"
    assert len(sample) > SAMPLE
    return sample


def whole(index: int, path: Path) -> list:
    return [f"larder{index}", 0, path.stat().st_size // SECTOR]


def test_start_of_a_full_cache(boots, share, tools):
    where = share.parent
    images = [
        Image(tools, where, "clean", "--cache-size", "64G", "--state", "clean"),
        Image(tools, where, "power-cut", "--cache-size", "64G", "--state", "crashed"),
    ]
    jobs = []
    for i, image in enumerate(images):
        sample = stamp_sample(image)
        jobs.append(
            {
                "name": image.name,
                "ssd": whole(2 * i, image.ssd),
                "hdd": whole(2 * i + 1, image.hdd),
                "sectors": image.sectors,
                "sample": sample,
                "write": [s + 1024 for s, _ in sample[:5]],
            }
        )
    summaries = [image.check()[0] for image in images]
    seen = run_jobs(boots, share, jobs, [f for image in images for f in (image.ssd, image.hdd)])
    for image, found, reader in zip(images, seen, summaries, strict=True):
        assert found["started"] and not found["wrong"] and not found["left"], found
        status = found["cache"]
        print(
            f"{image.name}: start of a full 64 GiB cache in {status['start_ms'] / 1000:.1f} s: {reader['extents']} extents, "
            f"{status['replayed_records']} records replayed, index {status['index_bytes'] >> 20} MiB, "
            f"sample of {len(jobs[0]['sample'])} right"
        )
        assert status["dirty_sectors"] == int(reader["dirty_sectors"]) + int(reader["zero_sectors"])
        assert status["replayed_records"] == int(reader["replayed"])
        # what the kernel has written, read by the second implementation
        again, complaints = image.check()
        assert again and again["problems"] == "0", complaints
        last = found["last"]["volume"]
        assert int(again["dirty_sectors"]) + int(again["zero_sectors"]) == last["dirty_sectors"]
        image.ssd.unlink()
        image.hdd.unlink()


def run_jobs(boots, share: Path, jobs: list[dict], disks: list[Path]) -> list[dict]:
    (share / "jobs").write_text(json.dumps(jobs))
    boots.run(["/usr/bin/python3", SCRIPT, share / "jobs", share / "seen"], seconds=900, disks=disks)
    return json.loads((share / "seen").read_text())


# ---------------------------------------------------------------------- damage

SMALL = ("--cache-size", "24M", "--segment-size", "128K", "--volume-size", "12M", "--pattern", "--dirty", "50")
CRASHED = (*SMALL, "--state", "crashed", "--tail", "12", "--fill-tail", "5", "--checkpoints", "2", "--unsynced", "4")
ONE = (*SMALL, "--state", "crashed", "--tail", "12", "--fill-tail", "5", "--checkpoints", "1", "--unsynced", "4")
RECORD = 2  # of the write stream, behind the checkpoint


def commit(*words: str, record: int = RECORD):
    """A field of a commit block in the middle of the log, or of that record of the write stream."""

    def change(image: Image) -> None:
        r = image.records(0)[record]
        image.damage(f"commit:{r['segment']}:{r['slot']}", *words)

    return change


def damage_all(image: Image, records: list[dict[str, str]]) -> None:
    for r in records:
        image.damage(f"commit:{r['segment']}:{r['slot']}", "magic=0")


def field(*words: str):
    return lambda image: image.damage(*words)


def both(*changes):
    def change(image: Image) -> None:
        for c in changes:
            c(image)

    return change


def torn(stream: int, index: int, byte: int = 0):
    return lambda image: image.spoil(image.records(stream)[index], b"spoilt", byte)


OPEN, SEGMENTS = 3, 5  # items of a checkpoint


def items(image: Image, kind: int) -> list[tuple[int, bytes]]:
    """(where in the payload its data begins, the data) of those in the first chunk of the newest checkpoint."""
    sb = image.superblock()
    with open(image.ssd, "rb") as f:
        f.seek(4096 + 288 + 24)
        segment = int.from_bytes(f.read(4), "little")
        f.seek(int(sb["segments_offset"]) + segment * int(sb["segment_size"]))
        chunk = f.read(65536)
    unit = {1: 8, 2: 8, OPEN: 8, 4: 32, SEGMENTS: 16, 6: 1}
    payload, at, found = chunk[64 : 64 + int.from_bytes(chunk[28:32], "little")], 0, []
    while at < len(payload):
        size = unit[payload[at]] * int.from_bytes(payload[at + 4 : at + 8], "little")
        if payload[at] == kind:
            found.append((at + 16, payload[at + 16 : at + 16 + size]))
        at += 16 + size
    return found


def second(segment: int) -> int:
    """The number + 1 of another one."""
    return 3 if segment == 1 else 2


def opened_pair(image: Image) -> None:
    at, data = next((at, data) for at, data in items(image, OPEN) if data)
    image.damage("chunk:0:0", f"payload[{at + 4}]={second(int.from_bytes(data[:4], 'little'))}")


def used_pair(image: Image) -> None:
    at, data = items(image, SEGMENTS)[0]
    segment = next(i for i in range(len(data) // 16) if data[16 * i] == 1)
    image.damage("chunk:0:0", f"payload[{at + 16 * segment + 4}]={second(segment)}")


def chunk_pair(image: Image) -> None:
    for copy in ("super", "super-copy"):
        image.damage(copy, "checkpoint[0].first_mirror=1", "head.generation=+1")


LONG_ZERO = ("entry[0].kind=3", "entry[0].sector=0", "entry[0].cache=5", "entry[0].length=131073")
FAR = 1 << 62  # no start where a counter has come to that


def supers(*words: str):
    return both(*(field(s, *words, "head.generation=+1") for s in ("super", "super-copy")))


def tables(*words: str):
    return both(*(field(t, *words) for t in ("table-a", "table-b")))


def far_checkpoint(image: Image) -> None:
    with open(image.ssd, "rb") as f:
        f.seek(4096 + 288 + 8)
        chunks = int.from_bytes(f.read(8), "little") // 65536
    for i in range(chunks):
        image.damage(f"chunk:0:{i}", f"sequence={FAR}")
    supers(f"checkpoint[0].sequence={FAR}")(image)


# id: (options of the writer, damage, what the kernel must say if it refuses; None: it starts)
DAMAGE = {
    "image-clean": (SMALL, None, None),
    "image-power-cut": (CRASHED, None, None),
    "image-two-mark-regions": ((*CRASHED, "--volume-size", "96M"), None, None),
    "image-drop-clean": (CRASHED, field("super", "head.flags=2", "head.generation=+1"), None),
    "super-crc": (CRASHED, field("super", "label[0]=^1", "--keep-crc"), None),
    "super-copy-crc": (CRASHED, field("super-copy", "label[0]=^1", "--keep-crc"), None),
    "super-both-crc": (
        CRASHED,
        both(field("super-copy", "label=^1", "--keep-crc"), field("super", "label=^1", "--keep-crc")),
        "checksum",
    ),
    "table-a-crc": (CRASHED, field("table-a", "volumes[0].sectors=1", "--keep-crc"), None),
    "table-both-crc": (
        CRASHED,
        both(*(field(t, "volumes[0].sectors=1", "--keep-crc") for t in ("table-a", "table-b"))),
        "table of volumes",
    ),
    "checkpoint-crc": (CRASHED, field("chunk:0:0", "payload[300]=^4", "--keep-crc"), None),
    "checkpoint-used": (CRASHED, field("chunk:0:0", "used=+9"), None),
    "checkpoint-hash": (CRASHED, field("chunk:0:0", "hash=^1"), None),
    "checkpoint-magic-only-one": (ONE, field("chunk:0:0", "magic=0"), "checkpoint"),
    "checkpoint-crc-only-one": (ONE, field("chunk:0:0", "payload[300]=^4", "--keep-crc"), "checkpoint"),
    "checkpoint-item-kind-only-one": (ONE, field("chunk:0:0", "payload[0]=77"), "item kind"),
    "checkpoint-item-count-only-one": (ONE, field("chunk:0:0", "payload[7]=255"), "item count"),
    "opened-64": ((*CRASHED, "--opened", "64"), None, None),
    "opened-again": ((*CRASHED, "--opened-again", "--fill-tail", "20"), None, None),
    "opened-65": ((*CRASHED, "--opened", "65"), None, "too many opened segments of a stream"),
    "pair-on-one-ssd-opened": (ONE, opened_pair, "two copies of a segment on one SSD"),
    "pair-on-one-ssd-used": (ONE, used_pair, "two copies of a segment on one SSD"),
    "pair-on-one-ssd-of-chunks": (ONE, chunk_pair, "two copies of a segment on one SSD"),
    "pair-on-one-ssd-in-the-log": (
        CRASHED,
        commit("entry[0].kind=6", "entry[0].sector=1", "entry[0].cache=3", "entry[0].length=0"),
        "were durable",
    ),
    "counter-generation": (SMALL, supers(f"head.generation={FAR}"), "superblock: generation"),
    "counter-epoch": (
        SMALL,
        supers("epoch=0xffffffff", "epochs[0].epoch=0xffffffff", "checkpoint[0].epoch=0xffffffff"),
        "superblock: epoch",
    ),
    "counter-checkpoint": (SMALL, far_checkpoint, "superblock: checkpoint.sequence"),
    "counter-table": (SMALL, tables(f"head.generation={FAR}"), "table: generation"),
    "counter-set": (SMALL, tables(f"head.set_generation={FAR}"), "table: set_generation"),
    "counter-replay-sequence": (SMALL, supers(f"checkpoint[0].replay_sequence={FAR}"), "log: sequence number"),
    "counter-first-sequence": (SMALL, supers(f"epochs[0].first_sequence={FAR}"), "log: sequence number"),
    "checkpoint-of-an-older-epoch": (
        CRASHED,
        both(supers("checkpoint[1].epoch=-1"), field("chunk:0:0", "magic=0")),
        "checkpoint",
    ),
    "checkpoint-both": (CRASHED, both(field("chunk:1:0", "magic=0"), field("chunk:0:0", "magic=0")), "checkpoint"),
    "commit-magic": (CRASHED, commit("magic=0"), "were durable"),
    "commit-crc": (CRASHED, commit("body[4]=^1", "--keep-crc"), "were durable"),
    "commit-hash": (CRASHED, commit("hash=^1"), "were durable"),
    "commit-segment": (CRASHED, commit("segment=+1"), "were durable"),
    "commit-sequence": (CRASHED, commit("sequence=0"), "were durable"),
    "commit-prev-crc": (CRASHED, commit("prev_crc=^1"), "were durable"),
    "commit-end": (CRASHED, commit("end=+1"), "were durable"),
    "commit-nr-entries": (CRASHED, commit("nr_entries=160"), "were durable"),
    "commit-flags": (CRASHED, commit("flags=0"), "were durable"),
    "entry-cache": (CRASHED, commit("entry[0].cache=+100000"), "were durable"),
    "entry-kind": (CRASHED, commit("entry[1].kind=77"), "were durable"),
    "entry-length": (CRASHED, commit("entry[2].length=0"), "were durable"),
    "zero-too-long": (CRASHED, commit(*LONG_ZERO, record=-1), None),
    "commit-not-known-durable": (CRASHED, commit("magic=0", record=-2), None),
    "commit-last": (CRASHED, commit("magic=0", record=-1), None),
    "commits-behind-it-all": (CRASHED, lambda image: damage_all(image, image.records(0)[RECORD:]), "were durable"),
    "super-durable": (CRASHED, both(*(field(s, "durable_sequence=+100000") for s in ("super", "super-copy"))), "were durable"),
    "super-durable-of-no-epoch": (
        CRASHED,
        both(*(field(s, "durable_sequence=12", "head.generation=+1") for s in ("super", "super-copy"))),
        None,
    ),
    "data-torn-at-the-end": (CRASHED, torn(0, -1, 40000), None),
    "data-torn-in-the-middle": (CRASHED, torn(0, RECORD, 4000), None),
    "data-torn-fill": (CRASHED, torn(1, 1), None),
}
# A commit block that is damaged looks like one never written: superblock, later blocks, or those of the other streams
# (commits-behind-it-all) tell that it was, up to the last of which any of them says that it was durable.


class Disk:
    """A file of slices, one behind the other, MiB by MiB."""

    def __init__(self, path: Path, index: int):
        self.path, self.serial = path, f"larder{index}"
        path.write_bytes(b"")

    def add(self, source: Path) -> list:
        first, size = self.path.stat().st_size, source.stat().st_size
        with open(self.path, "ab") as to, open(source, "rb") as f:
            shutil.copyfileobj(f, to, MIB)
            to.truncate((to.tell() + MIB - 1) // MIB * MIB)
        return [self.serial, first // SECTOR, size // SECTOR]

    def read(self, where: list) -> bytes:
        with open(self.path, "rb") as f:
            f.seek(where[1] * SECTOR)
            return f.read(where[2] * SECTOR)


@pytest.fixture(scope="module")
def damaged(tools) -> dict[str, dict]:
    """All images are made, damaged, and started in one VM; by id: what the reader found, what the kernel did."""
    where = Path(os.environ["LARDER_RESULTS"]) / "damage"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    disk = Disk(where / "disk", 0)
    jobs, found = [], {}
    for name, (options, change, _) in DAMAGE.items():
        image = Image(tools, where, name, *options)
        if change:
            change(image)
        job = {"name": name, "sectors": image.sectors, "ssd": disk.add(image.ssd), "hdd": disk.add(image.hdd)}
        view = where / "view"
        summary, complaints = image.check()
        if image.view(view):
            job["view"] = disk.add(view)
        jobs.append(job)
        found[name] = {"job": job, "reader": summary, "complaints": complaints, "before": disk.read(job["ssd"])}
        for f in (image.ssd, image.hdd, view):
            f.unlink(missing_ok=True)
    share = where / "share"
    share.mkdir()
    boots = Boots(where, share)
    try:
        seen = run_jobs(boots, share, jobs, [disk.path])
        for s in seen:
            found[s["name"]]["seen"] = s
            found[s["name"]]["after"] = disk.read(found[s["name"]]["job"]["ssd"])
    finally:
        for m in boots.made:
            m.kill()
        disk.path.unlink()
    return found


@pytest.mark.parametrize("name", list(DAMAGE))
def test_damage(damaged, name):
    f, refusal = damaged[name], DAMAGE[name][2]
    seen, log = f["seen"], f["seen"]["log"]
    said = "\n".join(log)
    assert not seen["bad"] and not seen["left"], seen
    if refusal:
        assert not seen["started"], said
        reasons = [x for x in log if refusal in x and x.startswith("device-mapper: larder: ")]
        assert reasons, said
        assert f["after"] == f["before"], "a refused start changed the SSD"
        assert "view" not in f["job"], "the reader takes what the kernel refuses"
        return
    assert seen["started"], f"{seen.get('error')}\n{said}"
    assert "view" in f["job"], f"the reader does not load it: {f['complaints']}"
    assert not seen["difference"], f"kernel and reader differ: {seen['difference']}\n{said}\n{f['complaints']}"
    assert int(f["reader"]["replayed"]) == seen["cache"]["replayed_records"], f"{f['reader']}\n{said}"
    dirty = int(f["reader"]["dirty_sectors"]) + int(f["reader"]["zero_sectors"])
    assert seen["cache"]["dirty_sectors"] == dirty, said


def test_listed():
    """docs/testing.md lists these images, and no others."""
    section = (build.TOP / "docs" / "testing.md").read_text().split("\n### Damaged images\n")[1].split("\n### ")[0]
    listed = set(re.findall(r"^\| `([^`]+)`", section, flags=re.M))
    assert listed == set(DAMAGE), f"not listed: {set(DAMAGE) - listed}; not tried: {listed - set(DAMAGE)}"
