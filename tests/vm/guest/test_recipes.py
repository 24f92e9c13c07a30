# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/recipes.md, run as it stands there: its blocks, in their order, on simulated disks of the names that it uses.

Behind each block files are written to what is mounted on /mnt, and those of before are read: what a recipe loses fails it.
There is no udevd here, so /dev/larder/data, which a rule makes, is made by the test; and no systemd, which mounts configfs and
starts iscsid.
"""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest
from lib import above, command, dm
from lib.larder import wait_for
from lib.scsi_disks import scsi_disks

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "recipes.md"
MOUNTED = Path("/mnt")
FIRST = "To begin with"
DISKS = {"sdb": 192, "sdc": 192, "sdd": 192, "nvme0n1p4": 64}  # MiB
WITH_DATA = ("sda", "sda1")  # of one recipe, whose test makes it

Block = tuple[str, str]  # what it is: sh, fstab, crypttab, unit NAME; and its text


def sections() -> dict[str, tuple[str, list[Block]]]:
    """Heading: text, blocks."""
    parts = re.split(r"^## (.+)\n", DOCUMENT.read_text(), flags=re.M)[1:]
    return {
        heading: (text, re.findall(r"^```(\S[^\n]*)\n(.*?)^```$", text, flags=re.M | re.S))
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


SECTIONS = sections()


class Files:
    """On /mnt; whatever was written there must be there whenever something is mounted."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.checks = 0

    def look(self, name: str) -> None:
        if not os.path.ismount(MOUNTED):
            return
        command.run("sh", "-c", "echo 3 > /proc/sys/vm/drop_caches")
        for file, data in self.content.items():
            assert (MOUNTED / file).read_bytes() == data, f"{file}, before or behind {name}"
        self.checks += bool(self.content)
        self.content[name] = os.urandom(300000)
        with open(MOUNTED / name, "wb") as f:
            f.write(self.content[name])
            f.flush()
            os.fsync(f.fileno())


@pytest.fixture
def place(make_disk, tmp_path, monkeypatch):
    """The disks of the document, a key, and settings by which lvm takes simulated disks for disks."""
    command.run("modprobe", "loop")
    for name, mib in DISKS.items():
        make_disk(name, model="null", mb=mib, wce=1, fua=1, discard="zero", write_zeroes=1)
    above.configure_lvm(tmp_path, monkeypatch)
    monkeypatch.setenv("MDADM_NO_UDEV", "1")
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(tmp_path / "fstab"))
    (tmp_path / "fstab").write_text("")
    key, link = Path("/etc/keys/data.key"), Path("/dev/larder/data")
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_bytes(os.urandom(64))
    key.chmod(0o600)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to("/dev/mapper/data")
    yield tmp_path
    link.unlink()
    key.unlink()
    command.run("pkill", "-KILL", "postgres", check=False)
    command.run("umount", MOUNTED, check=False)
    command.run("dmsetup", "remove", "--retry", "data-crypt", check=False)
    command.run("vgchange", "-a", "n", "pool", check=False)
    for noun in ("volume", "cache"):
        for name in ("data", "pv", "fast"):
            command.run("larder", noun, "stop", name, check=False)
    for name in ("disk-crypt", "ssd-crypt", "plain"):
        command.run("dmsetup", "remove", "--retry", name, check=False)
    command.run("vgchange", "-a", "n", "pool", check=False)
    command.run("mdadm", "--stop", "--scan", check=False)


@pytest.fixture
def partitioned(place, kernel_log):
    """One that may have partitions, which simulated disks do not."""
    kernel_log.expect("sd |scsi|scsi_debug")
    with scsi_disks(1, 96) as (disk,):
        assert str(disk) == "/dev/sda"
        yield
        command.run("umount", MOUNTED, check=False)
        command.run("larder", "volume", "stop", "data", check=False)


def shell(text: str) -> None:
    run = subprocess.run(["bash", "-euxo", "pipefail", "-c", text], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert run.returncode == 0, f"{text}\n{run.stdout}{run.stderr}"


def unit(name: str, text: str, place: Path) -> None:
    """What it says is right, as far as systemd can tell without running; then it is mounted as it says."""
    path = place / name
    path.write_text(text)
    said = command.run("systemd-analyze", "verify", "--recursive-errors=no", "--man=no", path, check=False)
    assert said.returncode == 0 and name not in said.stderr, said.stderr
    assert command.output("systemd-escape", "--path", "--suffix=mount", MOUNTED).strip() == name
    value = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    command.run("umount", value["Where"])
    command.run("mount", "-t", value["Type"], "-o", value["Options"], value["What"], value["Where"])


def crypttab(text: str) -> None:
    """As systemd-cryptsetup@.service calls it."""
    (line,) = text.splitlines()
    name, device, key, options = line.split()
    command.run("umount", MOUNTED)
    command.run("cryptsetup", "close", name)
    command.run("/lib/systemd/systemd-cryptsetup", "attach", name, device, key, options)
    command.run("mount", f"/dev/mapper/{name}", MOUNTED)


def run_block(block: Block, place: Path) -> None:
    kind, text = block
    if kind == "sh":
        shell(text)
    elif kind == "fstab":
        (place / "fstab").write_text(text)
    elif kind == "crypttab":
        crypttab(text)
    else:
        word, name = kind.split()
        assert word == "unit", kind
        unit(name, text, place)


@pytest.fixture
def network(place, monkeypatch):
    """The loopback device is up; what servers of disks and their clients expect of a system."""
    command.run("ip", "link", "set", "lo", "up")
    if not os.path.ismount("/sys/kernel/config"):
        command.run("modprobe", "configfs")
        command.run("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
    monkeypatch.setenv("HOME", str(place))  # targetcli keeps settings there
    command.run("modprobe", "-a", "sd_mod", "iscsi_tcp", "iscsi_target_mod", "target_core_iblock")
    Path("/etc/iscsi/initiatorname.iscsi").write_text("InitiatorName=iqn.2026-11.org.example:ssd\n")
    Path("/run/lock/iscsi").mkdir(parents=True, exist_ok=True)
    iscsid = subprocess.Popen(["iscsid", "--foreground"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    Path("/run/dbus").mkdir(exist_ok=True)  # targetcli asks for services there
    bus = int(command.output("dbus-daemon", "--system", "--fork", "--nopidfile", "--print-pid"))
    yield
    command.run("pkill", "nbdkit", check=False)
    os.kill(bus, signal.SIGKILL)
    iscsid.kill()
    iscsid.wait()


@pytest.mark.limit(600)
@pytest.mark.parametrize("heading", [h for h in SECTIONS if h != FIRST])
def test_recipe(place, request, heading):
    text, blocks = SECTIONS[heading]
    if "127.0.0.1" in text:
        request.getfixturevalue("network")
    if "/dev/sda " in text:
        request.getfixturevalue("partitioned")
    assert blocks, heading
    files = Files()
    if "*Begins with nothing.*" not in text:
        assert "*Begins with [these](#to-begin-with).*" in text, "where it begins is not said"
        blocks = SECTIONS[FIRST][1] + blocks
    for number, block in enumerate(blocks):
        run_block(block, place)
        files.look(f"{number}")
    # a recipe of one block has been looked at as well; one that ends unmounted was, before
    if os.path.ismount(MOUNTED):
        files.look("end")
    assert files.checks >= 1, "nothing of what was written was read again"


def test_leaves_without_larder(place):
    """While the disk is used by itself nothing of larder runs, and what the loop device shows is the volume."""
    blocks = SECTIONS[FIRST][1] + SECTIONS["Leave larder"][1]
    files = Files()
    for number, block in enumerate(blocks[:-1]):
        run_block(block, place)
        files.look(str(number))
        if number >= 2:
            assert not [n for n in dm.names() if n != "plain"]
    assert files.checks >= 2 and "loop" in command.output("findmnt", "-n", "-o", "SOURCE", MOUNTED)
    command.run("umount", MOUNTED)
    wait_for(lambda: not command.output("losetup", "--list", "--noheadings").strip(), 20, "the loop device")


class Orders:
    """Writes to the database of the recipe, each order by itself, until it is told to stop; what was committed, and when."""

    def __init__(self, path: str) -> None:
        self.path, self.committed, self.longest, self.stop = path, 0, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        with contextlib.closing(sqlite3.connect(self.path, timeout=120, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=FULL")
            while not self.stop.is_set():
                began = time.monotonic()
                db.execute("INSERT INTO orders VALUES (?, ?)", (self.committed, "x" * 3000))
                self.committed += 1
                self.longest = max(self.longest, time.monotonic() - began)

    def __enter__(self) -> "Orders":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


@pytest.mark.limit(900)
def test_copies_of_databases_in_use(place):
    """As the recipe has it, while both are written to: what was committed before the copy began is in it, and it is whole.  How
    long a writer waited is printed, beside a copy of all bytes."""
    make, copy, start, copy_pg, look = [text for _, text in SECTIONS["Copies of a running database"][1]]
    shell(make)
    with Orders("/mnt/db/orders.db") as orders:
        wait_for(lambda: orders.committed > 200, 120, "some orders")
        before, orders.longest = orders.committed, 0.0
        shell(copy)
        waited = orders.longest
        began = time.monotonic()
        command.run("sh", "-c", "cp --reflink=never /mnt/db/orders.db /mnt/db/plain && sync /mnt/db/plain")
        print(f"sqlite: a writer waited {waited * 1000:.0f} ms; a plain copy takes {(time.monotonic() - began) * 1000:.0f} ms")
        wait_for(lambda: orders.committed > before + 20, 120, "more of them")
    with contextlib.closing(sqlite3.connect("/mnt/db/copy.db")) as db:
        numbers = [n for (n,) in db.execute("SELECT number FROM orders ORDER BY number")]
    assert before <= len(numbers) < orders.committed and numbers == list(range(len(numbers)))
    shell(start)
    words = ["runuser", "-u", "postgres", "--", "/usr/lib/postgresql/15/bin/pgbench", "-n", "-T", "600"]
    with subprocess.Popen(words, cwd="/mnt/pg", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
        done = "SELECT count(*) FROM pgbench_history"
        wait_for(lambda: int(psql(done)) > 50, 120, "some transactions")
        before = int(psql(done))
        shell(copy_pg)
        wait_for(lambda: int(psql(done)) > before + 50, 120, "more of them")
        load.terminate()
    # the last block stops both: it is looked at in between
    steps = look.split("runuser -u postgres -- pg_ctl -D /mnt/pg-copy -w stop")
    shell(steps[0])
    assert before <= int(psql(done, "-p", "5433")) < int(psql(done))
    sums = [f"SELECT coalesce(sum({column}), 0) FROM pgbench_{table}" for table, column in BALANCES.items()]
    assert len({psql(s, "-p", "5433") for s in sums}) == 1, "a transaction is there in part"
    shell(look.splitlines()[0] + "\ncd /mnt/pg\nrunuser -u postgres -- pg_ctl -D /mnt/pg-copy -w stop" + steps[1])
    command.run("larder", "stop", "data")


BALANCES = {"accounts": "abalance", "tellers": "tbalance", "branches": "bbalance", "history": "delta"}


def psql(question: str, *words: str) -> str:
    return command.output("runuser", "-u", "postgres", "--", "psql", *words, "-A", "-t", "-c", question).strip()


def test_every_block_is_known():
    """No block is of a kind that is not run, and the table of contents names every recipe."""
    text = DOCUMENT.read_text()
    fences = re.findall(r"^```", text, flags=re.M)
    kinds = [kind.split()[0] for _, blocks in SECTIONS.values() for kind, _ in blocks]
    assert len(fences) == 2 * len(kinds) and set(kinds) == {"sh", "fstab", "crypttab", "unit"}
    contents = re.findall(r"\]\(#([a-z-]+)\)", text.split("\n## ")[0])
    assert contents == [h.lower().replace(" ", "-") for h in SECTIONS if h != FIRST]
    used = set(re.findall(r"/dev/((?:sd|nvme)\w+)", text))
    assert used == {*DISKS, *WITH_DATA}
