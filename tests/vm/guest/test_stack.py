# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole stacks by one command: RAID, volume, encryption, filesystem, mount; made, cut short at every step, started, broken, removed."""

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from lib import command, dm, simdisk

DONE, FAILED, USAGE, NOT_FOUND, BUSY, UNSAFE = range(6)
DEGRADED, BROKEN = 10, 11
NAME, CONTENT = "telltale-of-a-file-name", b"telltale of what is in it. " * 40
MOUNTED = Path("/run/stack")
FSTAB = Path("/run/stack.fstab")
HAND_MADE = "# by hand\n/dev/none /none ext4 noauto 0 0\n"


def larder(*words, code=DONE, **more):
    run = command.run("larder", *words, check=False, **more)
    assert run.returncode == code, f"{words}: {run.returncode}, not {code}\n{run.stdout}{run.stderr}"
    return run


def refused(code, words, *parts):
    run = larder(*words, code=code)
    for part in parts:
        assert str(part) in run.stderr, f"{part!r} is not in: {run.stderr}"


def rows(name="data"):
    found = json.loads(larder("list", "-o", "name,layer,type,state,uuid,device", "--reportformat", "json").stdout)["stacks"]
    return {row["layer"]: row for row in found if row["name"] == name}


def arrays():
    return [f"/dev/{p.name}" for p in Path("/sys/block").glob("md*")]


def release():
    """All layers go, as far as a kernel without power lets them."""
    command.run("umount", "-l", MOUNTED, check=False)
    dm.remove_all()
    for node in arrays():
        command.run("mdadm", "--stop", node, check=False)


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(os.urandom(64))
    return path


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    """Two SSDs, two disks; a mount point, and an fstab of our own."""
    for module in ("md-mod", "raid1", "dm-crypt"):
        if command.run("modprobe", module, check=False).returncode:
            pytest.skip(f"this kernel has no {module}")
    kernel_log.expect("I/O error|Buffer I/O|md/raid1|super_written|EXT4-fs|JBD2|Aborting journal|md: |lost|shutting down")
    MOUNTED.mkdir(exist_ok=True)
    FSTAB.write_text(HAND_MADE)
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(FSTAB))
    ssds = [make_disk(f"ssd{i}", model="null", mb=32, wce=1, fua=1) for i in range(2)]
    hdds = [make_disk(f"hdd{i}", model="null", mb=96 + 8 * i, wce=1) for i in range(2)]
    yield [*ssds, *hdds]
    release()


def words(disks, key=None, **options):
    """Of create: RAID 1, two SSDs, ext4, mounted; encrypted where a key is given."""
    ssd0, ssd1, hdd0, hdd1 = disks
    w = ["create", "data", "--backing", hdd0, "--backing", hdd1, "--raid", "1", "--cache", ssd0, "--cache", ssd1]
    w += ["--mkfs", "ext4", "--mount", MOUNTED]
    return w + (["--encrypt", f"luks2:keyfile={key}", "--iter-time", "10"] if key else [])


def write(number, content=CONTENT):
    """A file that is durable when this returns."""
    with open(MOUNTED / f"{NAME}-{number}", "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    directory = os.open(MOUNTED, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def check(numbers):
    for number in numbers:
        assert (MOUNTED / f"{NAME}-{number}").read_bytes() == CONTENT, number


def remove():
    uuid = rows()["stack"]["uuid"]
    refused(UNSAFE, ["remove", "data"], "LOST", uuid)
    refused(UNSAFE, ["remove", "data", "--discard-data", "11111111-2222-4333-8444-555555555555"], uuid)
    larder("remove", "data", "--discard-data", uuid)


def nothing_left(disks):
    assert not rows() and not dm.names() and not arrays()
    assert FSTAB.read_text() == HAND_MADE
    for disk in disks:
        assert not command.run("blkid", "-p", disk, check=False).stdout, disk
        assert not command.run("wipefs", "--no-act", "--noheadings", disk).stdout, disk
        assert command.run("mdadm", "--examine", disk, check=False).returncode, disk
        larder("probe", disk, code=NOT_FOUND)


def on_disk(disks, what):
    return [d.name for d in disks if what in Path(f"/dev/{d.name}").read_bytes()]


def test_whole_stack(disks, key):
    """Five layers: made, stopped, started, cut off, started, degraded, removed; nothing readable on any disk."""
    said = larder(*words(disks, key)).stdout
    assert "unused: 8" in said and "dirty data on two of them" in said
    layers = rows()
    assert [layers[x]["type"] for x in ("filesystem", "luks", "volume", "array")] == ["ext4", "luks2", "writeback", "raid1"]
    assert os.path.ismount(MOUNTED) and str(MOUNTED) in FSTAB.read_text() and FSTAB.read_text().startswith(HAND_MADE)
    assert "fine" in larder("status", "data").stdout
    assert dm.DmDevice("data-crypt").info()["uuid"].startswith("CRYPT-LUKS2-")
    for i in range(8):
        write(i)
    larder("stop", "data")
    assert not dm.names() and not arrays()
    assert "stopped" in larder("status", "data", code=NOT_FOUND).stdout
    assert not on_disk(disks, NAME.encode()) and not on_disk(disks, CONTENT[:27])

    larder("start", "data")
    check(range(8))
    larder("lock", "data")
    assert "locked" in larder("status", "data").stdout and not os.path.ismount(MOUNTED)
    refused(FAILED, ["unlock", "data", "--keyfile", "/etc/hostname"], "no key")
    larder("unlock", "data")
    check(range(8))

    write("durable")
    simdisk.power_cut(mode="random", seed=3)
    release()
    simdisk.power_up()
    larder("start", "data")
    check([*range(8), "durable"])

    (node,) = arrays()
    command.run("mdadm", node, "--fail", disks[3], "--remove", disks[3])
    assert "array: 1 of 2 disks" in larder("status", "data", code=DEGRADED).stdout
    check([*range(8), "durable"])
    remove()
    command.run("mdadm", "--zero-superblock", disks[3], check=False)  # it had left the stack
    nothing_left(disks)


def test_plain_stacks_of_one_cache(disks):
    """What the search for names finds; the second stack of a cache, which stays when the first one goes."""
    ssd0, _, hdd0, hdd1 = disks
    said = larder("create", "data", "--backing", hdd0, "--cache", ssd0, "--mkfs", "ext4", "--mount", MOUNTED).stdout
    assert "mode writethrough: there is one SSD" in said
    write(0)
    refused(BUSY, ["create", "data", "--backing", hdd1, "--cache", "data"], "name")
    assert "RISK" in larder("create", "more", "--backing", hdd1, "--cache", "data", "--mode", "writeback").stdout
    assert rows("more")["volume"]["type"] == "writeback" and set(rows()) >= {"stack", "volume", "cache", "ssd", "disk"}
    larder("stop", "more")
    assert "data-crypt" not in dm.names() and "larder-cache-data" in dm.names()
    larder("stop", "data")
    assert not dm.names()
    assert on_disk(disks, NAME.encode()) and on_disk(disks, CONTENT[:27])
    larder("start", "data")
    check([0])
    assert "its cache stays" in larder("remove", "data", "--discard-data", rows()["stack"]["uuid"]).stdout
    assert not rows() and "stopped" in rows("more")["stack"]["state"]
    larder("start", "more")
    larder("remove", "more", "--discard-data", rows("more")["stack"]["uuid"])
    assert not dm.names()
    # the cache was made with the first stack, and the second one only used it
    command.run("larder", "super", "wipe", ssd0, "--yes")
    nothing_left(disks)


def test_description_outlives_the_kernel(disks):
    """The kernel writes superblocks of its own accord; the description stays."""
    ssd0, ssd1, hdd0, _ = disks
    larder("create", "data", "--backing", hdd0, "--cache", ssd0, "--cache", ssd1, "--class", "special")
    before = rows()
    cache, volume = dm.DmDevice("larder-cache-data"), dm.DmDevice("data")
    volume.write(0, b"\1" * 4096)  # may_be_dirty
    for _ in range(3):
        cache.message("checkpoint")
    volume.message("flush")
    larder("stop", "data")
    assert {k: v["uuid"] for k, v in rows().items()} == {k: v["uuid"] for k, v in before.items()}
    larder("start", "data")
    assert larder("volume", "get", "data", "class").stdout == "class=special\n"
    for text in ("zz", "123", "00" * 2049):
        with pytest.raises(command.CommandError):
            volume.message("stack", text)
        with pytest.raises(command.CommandError):
            cache.message("stack", text)
    assert rows()["stack"]["state"] == "fine"
    # without the disk the SSDs say whose it is; without the SSDs the disk does
    larder("stop", "data")
    command.run("larder", "super", "wipe", hdd0, "--yes", "--discard-dirty", before["volume"]["uuid"])
    assert rows()["stack"]["state"] == "incomplete"
    assert "its disks are not here" in larder("status", "data", code=BROKEN).stdout


@pytest.mark.parametrize("way", ["resume", "remove"])
def test_killed_at_each_step(disks, key, way):
    """Wherever the command dies, --resume or remove comes to an end that is whole."""
    seen = 0
    for step in range(1, 9):
        child = subprocess.Popen([*map(str, ["larder", *words(disks, key)])], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        lines = 0
        for line in child.stdout:
            lines += line.startswith("data: ")
            if lines == step:
                child.kill()
                break
        child.wait()
        child.stdout.close()
        found = rows()
        state = found["stack"]["state"] if found else ""
        assert state in ("", "creating", "fine"), state
        seen += state == "creating"
        if way == "resume" and state == "creating":
            run = command.run("larder", "create", "--resume", "data", check=False)
            # before all disks had their marks there is nothing to go on with, and it says what there is to do
            assert run.returncode == DONE or ("larder remove data" in run.stderr and step <= 2), run.stderr
            state = "fine" if run.returncode == DONE else state
        if state == "fine":
            write(step)
            larder("stop", "data")
            larder("start", "data")
            check([step])
            remove()
        elif state:
            uuid = found["stack"]["uuid"]
            larder("remove", "data", "--discard-data", uuid)
        else:
            for disk in disks:
                command.run("larder", "super", "wipe", disk, "--yes", check=False)
        nothing_left(disks)
    assert seen >= 4


@pytest.mark.limit(600)
def test_power_cuts_while_it_is_made(disks, key, seed):
    """After the N-th write command; what was made by then is gone on with, or taken away."""
    states = []
    for i, after in enumerate((5, 30, 90, 150, 220)):
        simdisk.power_cut(mode=("random", "lose")[i % 2], seed=seed + i, after=after, ops="write")
        run = command.run("larder", *words(disks, key), check=False)
        cut = any(d.state()["power"] == "off" for d in disks)
        release()
        simdisk.power_up()
        found = rows()
        states.append(found["stack"]["state"] if found else "nothing")
        if found and i % 2 == 0 and states[-1] == "creating":
            run = command.run("larder", "create", "--resume", "data", check=False)
            assert run.returncode == DONE or "larder remove data" in run.stderr, run.stderr
        assert cut or run.returncode == DONE
        if found:
            uuid = found["stack"]["uuid"]
            run = command.run("larder", "remove", "data", "--discard-data", uuid, check=False)
            if run.returncode == NOT_FOUND:
                larder("start", "data")
                larder("remove", "data", "--discard-data", uuid)
        else:
            for disk in disks:
                command.run("larder", "super", "wipe", disk, "--yes", check=False)
                command.run("wipefs", "-a", disk, check=False)
        nothing_left(disks)
    print(states)
    assert "creating" in states


def test_wrong_devices(disks, make_disk, key, tmp_path):
    """Refused, with the documented code, before anything is changed."""
    ssd0, ssd1, hdd0, hdd1 = disks
    small = make_disk("hdd9", model="null", mb=4, wce=1)
    before = [d.read(0, 4096) for d in disks]
    ok = words(disks, key)

    def but(old, new):
        return [new if w is old else w for w in ok]

    refused(NOT_FOUND, but(hdd0, "/dev/nothing"), "/dev/nothing", "no such device")
    refused(USAGE, but(hdd0, hdd1), "given twice")
    refused(USAGE, but(ssd0, hdd1), "given twice")
    link = tmp_path / "link"
    link.symlink_to(hdd1)
    refused(USAGE, but(hdd0, link), "given twice")
    refused(FAILED, but(hdd0, small), "too small")
    refused(FAILED, but(ssd0, small), "too small")
    refused(USAGE, but("data", "../x"), "NAME")
    refused(USAGE, but("data", "x" * 65), "NAME")
    refused(USAGE, but("1", "5"), "at least 3 disks")
    refused(USAGE, but("1", "none"), "none is for one disk")
    refused(NOT_FOUND, but(MOUNTED, "/run/nowhere"), "no such directory")
    refused(BUSY, but(MOUNTED, "/proc"), "mounted there already")
    refused(USAGE, [*ok, "--label", "x" * 17], "--label")
    refused(FAILED, [*ok, "--mkfs", "xfs"], "too small")
    command.run("mkfs.ext4", "-q", small)
    command.run("mount", small, MOUNTED)
    refused(BUSY, but(hdd0, small), f"mounted on {MOUNTED}")
    command.run("umount", MOUNTED)
    refused(UNSAFE, but(hdd0, small), "ext4", "--wipe")
    holder = dm.DmDevice.create("holder", f"0 8 linear {hdd0} 0")
    refused(BUSY, ok, "held by")
    holder.remove()
    taken = dm.DmDevice.create("data-crypt", f"0 8 linear {small} 0")
    refused(BUSY, ok, "data-crypt")
    taken.remove()
    small.write(8, bytes(4096))
    assert [d.read(0, 4096) for d in disks] == before and FSTAB.read_text() == HAND_MADE and not arrays()


def test_passphrase_stays_hidden(disks, tmp_path):
    """On stdin; in no process list, no superblock, no log."""
    secret = "correct horse battery staple"
    seen, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            for p in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.append(p.read_bytes())
                except OSError:
                    pass

    w = words(disks)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run = larder(*w, "--encrypt", "luks2:passphrase", "--iter-time", "10", stdin=secret + "\n")
    finally:
        stop.set()
        watcher.join()
    assert any(b"create" in x for x in seen) and not any(secret.encode() in x for x in seen)
    assert secret not in run.stdout + run.stderr
    larder("stop", "data")
    assert not on_disk(disks, secret.encode())
    refused(FAILED, ["start", "data", "--keyfile", "/etc/hostname"], "no key")
    larder("start", "data", stdin=secret + "\n")
    assert os.path.ismount(MOUNTED)
    remove()
    nothing_left(disks)
