# SPDX-License-Identifier: GPL-2.0-or-later
"""What is measured: sets of cases, as data.  A set is one boot (or, on real devices, one freshly made peer); within it the cases
follow in this order, because each leaves something behind for the next.

Everything here is the same for each peer and model; who skips what is said by Group.peers and in sets_of().
"""

import dataclasses
import re

PEERS = ("rawssd", "rawhdd", "linear", "bcache", "dmcache", "writecache", "writeboost", "larder")
RAW = ("rawssd", "rawhdd", "linear")  # no cache: what needs one is not asked of them
# of a small home server: setups.py; set "home" alone
SETUPS = ("one-disk", "encrypted", "striped", "replicated", "cached", "all-of-it")
WITHOUT_SSD = ("rawhdd", *SETUPS[:4])  # behind each model of an SSD the same
READS, WRITES = 15000, 12000  # I/Os per case of a hot region; all writes together stay below half of the cache
CPU = 50000  # fio's run time has a resolution of 1 ms: 20 instructions per I/O
FSYNCS = 500  # writeboost spends 512 KiB on each
HOT_MB = 64
DIRTY_MB = 32
STREAM_MB = 256
HDD_MB = 4096
SMALL_SSD_MB = 128  # of the set "full"
DEPTHS = (1, 2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(frozen=True)
class Area:
    """Of the device: offset and size in MiB; hdd: in sixteenths of the disk's size instead."""

    offset: int
    size: int
    hdd: bool = False

    def arguments(self, hdd_mb: int) -> list[str]:
        unit = hdd_mb // 16 if self.hdd else 1
        return [f"--offset={self.offset * unit}m", f"--size={self.size * unit}m"]


HOT = Area(0, HOT_MB)
ALL = Area(0, 16, hdd=True)
COLD = Area(4, 8, hdd=True)
STREAM = Area(HOT_MB, STREAM_MB)
SINGLE = ("--io_size=1t",)  # number_ios alone would end at the area's size


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of fio.  setup: runs whenever another case of its group does, and is no row of a table."""

    name: str
    rw: str
    area: Area
    number: int  # I/Os of each job
    depth: int = 1
    bs: str = "4k"
    jobs: int = 1
    seed: int = 1
    options: tuple[str, ...] = ()
    setup: bool = False
    settle: bool = True
    log_seconds: int = 0  # IOPS over time, averaged over so many seconds
    what: str = ""


@dataclasses.dataclass(frozen=True)
class Drain:
    """Everything dirty to the disk, the disk's own cache too: how long, how many writes."""

    name: str
    setup: bool = False
    what: str = ""


@dataclasses.dataclass(frozen=True)
class Restart:
    """Stop the peer, start it again: seconds of both."""

    name: str
    setup: bool = False
    what: str = ""


@dataclasses.dataclass(frozen=True)
class Start:
    """Of a full cache that tests/images/writer has made: seconds until the volume is there and a block was read.  larder only."""

    name: str
    gib: int
    state: str  # clean: stopped in order; crashed: a log tail behind the checkpoint
    setup: bool = False
    what: str = ""


@dataclasses.dataclass(frozen=True)
class Files:
    """A tree of files on ext4: part unpack, scan, or read; each mounts anew, with empty page cache."""

    name: str
    part: str
    files: int = 10000
    mib: int = 1024
    setup: bool = False
    what: str = ""


@dataclasses.dataclass(frozen=True)
class Database:
    """So many transactions of TPC-B on ext4; setup: the database is made.  engine: databases.py.  cold: it is not read before."""

    name: str
    engine: str
    scale: int
    transactions: int = 0
    clients: int = 1
    seed: int = 1
    cold: bool = False
    setup: bool = False
    what: str = ""


@dataclasses.dataclass(frozen=True)
class Trace:
    """Requests of a block trace (tests/sim/traces), one after the other, as fast as they go; on as much disk as it touches."""

    name: str
    trace: str
    number: int  # requests, at most
    depth: int = 8
    setup: bool = False
    what: str = ""


@dataclasses.dataclass(frozen=True)
class Memory:
    """What the peer holds of the VM's memory, beyond what was in use before it was made, bytes."""

    name: str
    setup: bool = False
    what: str = ""


Step = Case | Drain | Restart | Start | Files | Database | Trace | Memory


@dataclasses.dataclass(frozen=True)
class Group:
    """mode: what the peer is told before, see peers.py.  peers: who does not run it."""

    name: str
    mode: str
    steps: tuple[Step, ...]
    without: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Set:
    name: str
    groups: tuple[Group, ...]
    ssd_mb: int = 1024
    models: tuple[str, ...] = ()  # none: all but null
    without: tuple[str, ...] = ()
    minutes: int = 60  # of a VM, at most
    filesystem: bool = False
    postgresql: bool = False  # its programs come in the initramfs
    hdd_mb: int = HDD_MB
    prealloc: bool = False  # the disk has all of its memory from the start
    setups: bool = False  # of SETUPS, on two SSDs and two disks, instead of peers
    cpus: int = 1  # more: without the clock that counts instructions; run only if named


FSYNC = ("--fsync=1",)
PREFILL = Case("prefill", "write", HOT, 1024, depth=8, bs="64k", setup=True)
ZIPF = ("--rwmixread=70", "--random_distribution=zipf:1.1:0.3")


def _read(depth: int, number: int = READS) -> Case:
    return Case(
        f"rr-qd{depth}", "randread", HOT, number, depth, seed=depth + 3, options=SINGLE, what=f"random read, hit, depth {depth}"
    )


def _write(depth: int, number: int = WRITES) -> Case:
    return Case(
        f"rw-qd{depth}", "randwrite", HOT, number, depth, seed=depth + 7, options=SINGLE, what=f"random write, depth {depth}"
    )


HITS = Group(
    "hot",
    "micro",
    (
        PREFILL,
        *(_read(d) for d in (1, 16, 64)),
        *(_write(d) for d in DEPTHS),
        Case("fsync", "randwrite", HOT, FSYNCS, seed=99, options=FSYNC, what="write + fsync, existing blocks"),
        Case("fsync-j8", "randwrite", HOT, FSYNCS // 8, jobs=8, seed=98, options=FSYNC, what="the same, 8 jobs"),
    ),
)

# What one sequential append per write can reach: the limit of a log that pays one for each.
APPENDS = Group(
    "appends",
    "micro",
    (
        *(Case(f"append-{bs}-qd{d}", "write", HOT, WRITES // 2, d, bs) for bs in ("4k", "8k") for d in (1, 2, 4, 8)),
        Case("append-4k-fsync", "write", HOT, FSYNCS, options=FSYNC),
        Case("append-512k", "write", HOT, WRITES // 50, 4, "512k"),
        Case("sr1m", "read", STREAM, STREAM_MB, 4, "1m", what="sequential read of 1 MiB, depth 4"),
        Case("sw1m", "write", STREAM, STREAM_MB, 4, "1m", what="sequential write of 1 MiB, depth 4"),
    ),
    without=PEERS[1:],
)

BASIC = Set(
    "basic",
    (
        HITS,
        APPENDS,
        Group("clean", "micro", (Drain("clean", what="drain of what the cases above left"),), without=RAW),
        Group(
            "new",
            "micro",
            (
                Case("nw-qd1", "randwrite", ALL, FSYNCS, seed=41, what="random write, new blocks, depth 1"),
                Case("nfsync", "randwrite", ALL, FSYNCS, seed=42, options=FSYNC, what="write + fsync, new blocks"),
            ),
            without=("rawssd", "linear"),
        ),
        Group(
            "drain",
            "micro",
            (
                Case(
                    "dirty",
                    "randwrite",
                    ALL,
                    DIRTY_MB * 256,
                    16,
                    seed=3,
                    settle=False,
                    what=f"random write over the disk, depth 16, {DIRTY_MB} MiB",
                ),
                Drain("drain", what=f"drain of these {DIRTY_MB * 256} blocks"),
            ),
            without=("rawssd", "linear"),
        ),
        Group(
            "cold",
            "default",
            (
                Case("cold-qd1", "randread", COLD, 200, 1, seed=12, what="random read, miss, depth 1"),
                Case("cold-qd16", "randread", COLD, 600, 16, seed=27, what="random read, miss, depth 16"),
            ),
            without=("rawssd", "linear"),
        ),
        Group(
            "stream",
            "default",
            (
                Case("sr1m", "read", Area(12, 1, hdd=True), STREAM_MB, 4, "1m", what="sequential read of 1 MiB, depth 4"),
                Case(
                    "sw1m",
                    "write",
                    Area(12, 1, hdd=True),
                    STREAM_MB,
                    4,
                    "1m",
                    options=("--end_fsync=1",),
                    what="sequential write of 1 MiB, depth 4",
                ),
            ),
            without=("rawssd", "linear"),
        ),
        Group(
            "mixed",
            "mixed",
            (
                Case("mixwarm", "randrw", ALL, 60000, 16, seed=5, options=ZIPF, setup=True),
                Case(
                    "mixed",
                    "randrw",
                    ALL,
                    20000,
                    16,
                    seed=6,
                    options=ZIPF,
                    what="70 % reads, zipf 1.1 over 4 times the SSD, depth 16, after warm-up",
                ),
            ),
            without=("linear", "rawssd"),
        ),
    ),
)

CPU_COST = Set(
    "cpu",
    (
        Group(
            "hot",
            "micro",
            (
                PREFILL,
                *(_read(d, CPU) for d in (1, 32)),
                *(_write(d, CPU) for d in (1, 32)),
                Case("fsync", "randwrite", HOT, CPU // 5, options=(*FSYNC, "--io_size=1g"), what="write + fsync"),
            ),
        ),
    ),
    models=("null",),
    without=("rawhdd",),
)

# As an administrator will see it: the peer's own settings, an SSD that is full, the disk behind it.
FULL = Set(
    "full",
    (
        Group(
            "sustained",
            "mixed",
            (
                Case(
                    "sustained",
                    "randwrite",
                    ALL,
                    10 * SMALL_SSD_MB * 256,
                    16,
                    seed=61,
                    log_seconds=5,
                    options=("--io_size=64g",),
                    settle=False,
                    what="random writes for ten times the cache's size, depth 16",
                ),
                Case(
                    "full-qd1",
                    "randwrite",
                    ALL,
                    2000,
                    1,
                    seed=62,
                    settle=False,
                    what="random write, cache full of dirty data, depth 1",
                ),
                Case("full-qd16", "randwrite", ALL, 6000, 16, seed=63, settle=False, what="the same, depth 16"),
                Case(
                    "full-read-qd1",
                    "randread",
                    ALL,
                    500,
                    1,
                    seed=64,
                    settle=False,
                    what="random read, cache full of dirty data, depth 1",
                ),
            ),
            without=("rawssd", "linear"),
        ),
    ),
    ssd_mb=SMALL_SSD_MB,
    models=("sata", "nvme"),
    without=("rawssd", "linear"),
    minutes=240,
)

TEST_FILE = Area(1024, 256)


def _crystal(name: str, rw: str, number: int, depth: int, bs: str) -> Case:
    side = rw.removeprefix("rand")
    return Case(f"{name}-{side}", rw, TEST_FILE, number, depth, bs, seed=depth + 70, what=f"{name}, {side}")


CRYSTAL = Set(
    "crystal",
    (
        Group(
            "crystal",
            "mixed",
            (
                Case("testfile", "write", TEST_FILE, 256, 8, "1m", options=("--end_fsync=1",), setup=True),
                *(
                    _crystal(name, random + rw, number, depth, bs)
                    for rw in ("read", "write")
                    for name, random, number, depth, bs in (
                        ("SEQ1M-Q8", "", 256, 8, "1m"),
                        ("SEQ1M-Q1", "", 256, 1, "1m"),
                        ("RND4K-Q32", "rand", 8000, 32, "4k"),
                        ("RND4K-Q1", "rand", 1000, 1, "4k"),
                    )
                ),
            ),
        ),
    ),
    models=("sata", "nvme"),
)

SIZES = Set(
    "sizes",
    (
        Group(
            "sizes",
            "micro",
            (
                PREFILL,
                *(
                    Case(f"{short}-{bs}-qd{d}", rw, HOT, 3000, d, bs, seed=d, options=SINGLE, what=f"{word}, {bs}, depth {d}")
                    for short, rw, word in (("rr", "randread", "random read, hit"), ("rw", "randwrite", "random write"))
                    for bs in ("16k", "128k")
                    for d in (1, 16)
                    if not (bs == "128k" and short == "rw")
                ),
                *(
                    Case(
                        f"rw-128k-qd{d}",
                        "randwrite",
                        HOT,
                        1000,
                        d,
                        "128k",
                        seed=d,
                        options=SINGLE,
                        what=f"random write, 128k, depth {d}",
                    )
                    for d in (1, 16)
                ),
                *(
                    Case(f"{short}-j8", rw, HOT, 3000, 4, jobs=8, seed=8, options=SINGLE, what=f"{word}, 8 jobs of depth 4")
                    for short, rw, word in (("rr", "randread", "random read, hit"), ("rw", "randwrite", "random write"))
                ),
            ),
        ),
    ),
    models=("sata", "nvme"),
)

START = Set(
    "start",
    (
        Group(
            "start",
            "micro",
            (
                Case("fill", "randwrite", ALL, 100000, 32, seed=81, setup=True),
                Restart("restart", what="stop and start with 100,000 dirty blocks"),
            ),
            without=RAW,
        ),
    ),
    models=("sata", "nvme"),
    without=RAW,
)

AFTER = {"clean": "a clean stop", "crashed": "a power cut"}
IMAGES = Set(
    "images",
    (
        Group(
            "images",
            "micro",
            tuple(
                Start(f"start-{gib}g-{state}", gib, state, what=f"start of a full cache of {gib} GiB after {after}")
                for gib in (1, 10, 100)
                for state, after in AFTER.items()
            ),
        ),
    ),
    ssd_mb=SMALL_SSD_MB,
    models=("nvme",),
    without=PEERS[:-1],
    minutes=120,
)

SCALING = Set(
    "scaling",
    (
        Group(
            "hot",
            "micro",
            (
                PREFILL,
                *(
                    Case(
                        f"{short}-{jobs}job",
                        rw,
                        HOT,
                        40000,
                        1,
                        jobs=jobs,
                        seed=jobs,
                        options=SINGLE,
                        what=f"{word}, {jobs} jobs on 4 CPUs",
                    )
                    for short, rw, word in (("rr", "randread", "random read, hit"), ("rw", "randwrite", "random write"))
                    for jobs in (1, 4, 8)
                ),
            ),
        ),
    ),
    models=("null",),
    without=("rawhdd",),
    cpus=4,
)

FILES = Set(
    "files",
    (
        Group(
            "files",
            "mixed",
            (
                Files("files-unpack", "unpack", what="10,000 files unpacked, and sync"),
                Files("files-scan", "scan", what="scanned (as find does), with cold page cache"),
                Files("files-read", "read", what="read (as grep does), with cold page cache"),
            ),
        ),
    ),
    models=("sata", "nvme"),
    filesystem=True,
)

SQLITE = {"wal": "its log", "delete": "a journal that it deletes"}
DATABASES = Set(
    "databases",
    (
        *(
            Group(
                f"sqlite-{mode}",
                "mixed",
                (
                    Database(f"sqlite-{mode}-made", f"sqlite-{mode}", 1, setup=True),
                    Database(f"sqlite-{mode}", f"sqlite-{mode}", 1, 500, what=f"500 transactions of SQLite with {how}"),
                ),
            )
            for mode, how in SQLITE.items()
        ),
        Group(
            "postgresql",
            "mixed",
            (
                Database("pgbench-made", "postgresql", 10, setup=True),
                Database(
                    "pgbench-cold",
                    "postgresql",
                    10,
                    1000,
                    8,
                    seed=3,
                    cold=True,
                    what="1,000 transactions of pgbench, 8 clients, cold",
                ),
                Database("pgbench-c1", "postgresql", 10, 500, what="500 transactions of pgbench on PostgreSQL, 1 client"),
                Database("pgbench-c8", "postgresql", 10, 2000, 8, seed=2, what="2,000 transactions of pgbench, 8 clients"),
            ),
        ),
    ),
    models=("sata", "nvme"),
    filesystem=True,
    postgresql=True,
    minutes=120,
)

# Each on an SSD that has room for a tenth to a half of what they touch; for hp-ajw, of 1992, all of it fits.
TRACES = Set(
    "traces",
    tuple(
        Group(trace, "mixed", (Trace(f"trace-{trace}", trace, 100_000, what=f"requests of the trace {trace}, depth 8"),))
        for trace in ("arc-p3", "arc-p6", "hp-ajw", "vm-boots-a")
    ),
    ssd_mb=SMALL_SSD_MB,
    models=("sata", "nvme"),
    without=("rawssd", "linear"),
    minutes=120,
)

HOME_AREA = Area(256, 512)
HOME = Set(
    "home",
    (
        Group(
            "home",
            "default",
            (
                *(
                    Case(f"home-{rw}-1m", rw, HOME_AREA, 512, 16, "1m", seed=31, options=SINGLE, what=f"{rw}, 1 MiB, depth 16")
                    for rw in ("write", "randwrite", "read", "randread")
                ),
                Case("home-write-4k", "write", HOME_AREA, 16000, 16, seed=32, options=SINGLE, what="write, 4 KiB, depth 16"),
                Case(
                    "home-randwrite-4k",
                    "randwrite",
                    HOME_AREA,
                    16000,
                    16,
                    seed=33,
                    options=SINGLE,
                    what="randwrite, 4 KiB, depth 16",
                ),
                Case("home-read-4k", "read", HOME_AREA, 16000, 16, seed=34, options=SINGLE, what="read, 4 KiB, depth 16"),
                Case("home-warm", "randread", HOME_AREA, 150000, 16, seed=35, options=SINGLE, setup=True),
                Case(
                    "home-randread-4k",
                    "randread",
                    HOME_AREA,
                    16000,
                    16,
                    seed=36,
                    options=SINGLE,
                    what="randread, 4 KiB, depth 16, of what was read before",
                ),
            ),
        ),
    ),
    models=("sata", "nvme"),
    setups=True,
)

MEMORY = Set(
    "memory",
    (
        Group(
            "memory",
            "mixed",
            (
                Case("memory-written", "randwrite", ALL, 40000, 16, seed=51, setup=True),
                Case("memory-read", "randread", ALL, 40000, 16, seed=52, setup=True),
                Memory("memory", what="memory held, 1 GiB SSD, after 40,000 random writes and as many reads"),
            ),
        ),
    ),
    models=("nvme",),
    hdd_mb=1024,
    prealloc=True,
    without=RAW,
)


# What an SSD costs that is slower than the disk at everything: a worn one, a memory card.  The volume's own settings.
def _slower(
    name: str, rw: str, area: Area, number: int, depth: int, what: str, options: tuple[str, ...] = (), **more: object
) -> Case:
    return Case(f"slower-{name}", rw, area, number, depth, seed=depth + 90, options=options, what=what, **more)


SLOWER = Set(
    "slower",
    (
        Group(
            "slower",
            "default",
            (
                Case("slower-fill", "write", HOT, HOT_MB, 4, "1m", options=("--end_fsync=1",), setup=True),
                _slower("rr-qd1", "randread", ALL, 400, 1, "random read over the disk, depth 1"),
                _slower("rr-qd16", "randread", ALL, 1500, 16, "random read over the disk, depth 16"),
                _slower("rr-hot-qd1", "randread", HOT, 1000, 1, "random read of 64 MiB, depth 1", SINGLE),
                _slower("rr-hot-qd16", "randread", HOT, 4000, 16, "random read of 64 MiB, depth 16", SINGLE),
                _slower("rw-qd1", "randwrite", ALL, 1000, 1, "random write over the disk, depth 1", settle=False),
                _slower("rw-qd16", "randwrite", ALL, 4000, 16, "random write over the disk, depth 16", settle=False),
                _slower("fsync", "randwrite", ALL, 300, 1, "write + fsync, over the disk", FSYNC),
                _slower("mixed", "randrw", ALL, 4000, 16, "70 % reads, zipf 1.1 over the disk, depth 16", ZIPF),
                _slower("sr1m", "read", Area(12, 1, hdd=True), STREAM_MB, 4, "sequential read of 1 MiB, depth 4", bs="1m"),
                _slower(
                    "sw1m", "write", Area(12, 1, hdd=True), STREAM_MB, 4, "the same, write", options=("--end_fsync=1",), bs="1m"
                ),
            ),
            without=("rawssd", "linear"),
        ),
    ),
    models=("worn",),
    without=("rawssd", "linear"),
    minutes=120,
)

# What is off by default.  Beside larder: the SSD, and who acknowledges from memory, too; the SSD and the disk.
OPTIONS = Set(
    "options",
    (
        Group(
            "buffered",
            "buffered",
            (
                PREFILL,
                *(
                    dataclasses.replace(_write(d), name=f"buffered-qd{d}")
                    for d in (1, 2, 8, 32)
                ),
                Case("buffered-fsync", "randwrite", HOT, FSYNCS, seed=99, options=FSYNC, what="write + fsync"),
            ),
            without=tuple(p for p in PEERS if p not in ("rawssd", "writeboost", "larder")),
        ),
        Group(
            "auto",
            "auto",
            (
                Case("auto-learned", "write", STREAM, STREAM_MB, 4, "1m", setup=True),
                Case("auto-sw1m", "write", STREAM, STREAM_MB, 4, "1m", what="sequential write of 1 MiB, depth 4"),
                Case("auto-sr1m", "read", STREAM, STREAM_MB, 4, "1m", what="the same, read"),
            ),
            without=tuple(p for p in PEERS if p not in ("rawssd", "rawhdd", "larder")),
        ),
    ),
    models=("sata", "nvme"),
)

ENDLESS = 100_000_000
PROFILE = Set(  # for tests/bench/profile, which does not wait for its end
    "profile",
    (
        Group(
            "hot",
            "micro",
            (
                PREFILL,
                _read(1, ENDLESS),
                *(_write(depth, ENDLESS) for depth in (1, 8, 32)),
                Case("sw1m", "write", HOT, ENDLESS, 4, "1m", options=SINGLE, what="sequential write of 1 MiB, depth 4"),
            ),
        ),
    ),
    models=("profile",),
)

SETS = {
    s.name: s
    for s in (
        BASIC,
        CPU_COST,
        FULL,
        CRYSTAL,
        SIZES,
        START,
        IMAGES,
        FILES,
        DATABASES,
        TRACES,
        HOME,
        MEMORY,
        OPTIONS,
        SLOWER,
        SCALING,
        PROFILE,
    )
}
MODELS = ("null", "sata", "nvme", "nvmeplp", "slow", "worn")
OWN = ("null", "profile", "worn")  # those that run what names them, and nothing else


def sets_of(model: str, peer: str) -> list[Set]:
    theirs = [s for s in SETS.values() if s.setups == (peer in SETUPS) and peer not in s.without]
    return [s for s in theirs if model in s.models or (not s.models and model not in OWN)]


def chosen(group: Group, only: str, peer: str) -> list[Step]:
    """The steps of the group that run: those whose names match, and what they need."""
    if peer in group.without:
        return []
    wanted = [s for s in group.steps if not s.setup and re.search(only, s.name)]
    if not wanted:
        return []
    if any(isinstance(s, Drain | Restart | Files) for s in wanted):
        return [s for s in group.steps if s.setup or s in wanted or isinstance(s, Case) or getattr(s, "part", "") == "unpack"]
    return [s for s in group.steps if s.setup or s in wanted]


def names(set_: Set, only: str, peer: str) -> list[str]:
    return [s.name for g in set_.groups for s in chosen(g, only, peer) if not s.setup]
