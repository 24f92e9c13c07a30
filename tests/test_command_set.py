# SPDX-License-Identifier: GPL-2.0-or-later
"""`larder set` without devices: facts of a stopped stack in its superblocks and in fstab; what is refused before a start.

What needs a volume that runs, a mount, a key that opens it, a class that the kernel takes, is in tests/vm/guest/test_stacks.py."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import BUSY, FAILED, NOT_FOUND, SB, SB_SIZE, USAGE, VOLUME, digest, field, one_line, read
from test_command_keys import namespaces
from test_command_stack import HEAD, ON_SSD, ON_VOLUME, SIZE, Described

pytest_plugins = ["larder_fixtures"]
WRITETHROUGH = 1


@pytest.fixture
def described(larder):
    made = Described(larder)
    made.plain |= {"fs": "ext4", "fs_uuid": str(uuid.uuid5(made.uuid, "fs")), "mount": "/srv"}
    made.volume(made.plain)
    made.ssds({"ready": [f"{made.uuid} data 3"], "changing": []})
    return made


@pytest.fixture
def fstab(described):
    file = described.larder.directory / "fstab"
    file.write_text("# by hand\n/dev/none /none ext4 noauto 0 0\n")
    return file


@pytest.fixture
def change(described, fstab):
    def run(*words, code=0, **more):
        return described.larder("set", "data", *words, code=code, env={"LIBMOUNT_FSTAB": str(fstab)}, **more)

    return run


def text(path, offset):
    copy = field(path, VOLUME, "copy_offset")
    block = max((read(path, x, SB_SIZE) for x in (SB, copy)), key=lambda b: int.from_bytes(b[32:40], "little"))
    return json.loads(block[offset + HEAD : offset + SIZE].rstrip(b"\0"))


def stored(described):
    return text(described.hdd, ON_VOLUME["stack"][0])


def marked(fstab):
    return [line for line in fstab.read_text().splitlines() if "x-larder.stack" in line]


def test_mount(described, change, fstab, tmp_path):
    hand = fstab.read_text()
    said = change("--mount", tmp_path, "--dry-run").stdout
    assert f"mount: {tmp_path}, was /srv" in said and "dry run: nothing was written" in said
    assert stored(described) == described.plain and fstab.read_text() == hand
    change("--mount", tmp_path)
    now = stored(described)
    assert (now["mount"], now["generation"]) == (str(tmp_path), 4)
    assert text(described.ssd, ON_SSD["stack"][0])["ready"] == [f"{described.uuid} data 4"]
    options = f"nofail,x-systemd.device-timeout=0,x-larder.stack={described.uuid}"
    assert marked(fstab) == [f"/dev/mapper/data {tmp_path} ext4 {options} 0 2"]
    # what somebody put there stays, and what another one left out of it is set
    fstab.write_text(fstab.read_text().replace("nofail,", "nofail,noatime,"))
    other = tmp_path / "an other"
    other.mkdir()
    change("--mount", other, "--essential", "yes")
    assert f"{tmp_path}/an\\040other ext4 noatime,x-" in marked(fstab)[0]
    change("--essential", "no")
    assert stored(described)["generation"] == 5, "fstab alone has that"
    assert marked(fstab)[0].split()[3].endswith(",nofail")
    change("--mount", "none")
    assert "mount" not in stored(described) and fstab.read_text() == hand
    # once more: what was cut off behind the description
    change("--mount", "none")
    assert stored(described)["generation"] == 6


def test_copy_of_its_line(described, change, fstab, tmp_path):
    """Of another subvolume, say: it keeps its directory, whatever becomes of the stack's own line."""
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
    change("--mount", first)
    copy = f"/dev/mapper/data /home ext4 nofail,subvol=home,x-larder.stack={described.uuid} 0 0"
    fstab.write_text(f"{copy}\n{fstab.read_text()}")
    change("--mount", second, "--essential", "yes")
    mine = f"/dev/mapper/data {second} ext4 x-systemd.device-timeout=0,x-larder.stack={described.uuid} 0 2"
    assert marked(fstab) == [copy, mine]
    change("--mount", "none")
    assert marked(fstab) == [copy]
    change("--mount", first)
    assert marked(fstab)[0] == copy and [line.split()[1] for line in marked(fstab)] == ["/home", str(first)]


def test_shown(described, change, tmp_path):
    change("--mount", tmp_path, "--backing-label", "films")
    run = described.larder("show", "data", "-o", "layer,mountpoint,label", "--reportformat", "json")
    rows = {row["layer"]: row for row in json.loads(run.stdout)["stacks"]}
    assert rows["filesystem"]["mountpoint"] == str(tmp_path) and rows["disk"]["label"] == "films"


def test_mount_is_refused(described, change, fstab, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    before = [digest(described.ssd), digest(described.hdd), fstab.read_text()]
    for words, code, parts in (
        (["--mount", tmp_path / "nothing"], NOT_FOUND, ["--mount", "no such directory"]),
        (["--mount", file], USAGE, ["--mount", "not a directory"]),
        (["--mount", "/proc"], BUSY, ["--mount", "mounted there"]),
        (["--mount", "/" + "x" * 300], USAGE, ["--mount", "too long"]),
        (["--essential", "yes"], NOT_FOUND, ["--essential", "fstab has no line", "--mount /srv"]),
    ):
        one_line(change(*words, code=code), *parts)
    assert before == [digest(described.ssd), digest(described.hdd), fstab.read_text()]
    described.volume({k: v for k, v in described.plain.items() if k != "mount"})
    one_line(change("--essential", "no", code=USAGE), "--essential", "mounted nowhere")
    described.volume({k: v for k, v in described.plain.items() if k not in ("mount", "fs", "fs_uuid")})
    one_line(change("--mount", tmp_path, code=USAGE), "--mount", "no filesystem")


def test_fstab_cannot_be_written(described, fstab, tmp_path):
    """The description is set; the same once more goes on."""
    run = described.larder("set", "data", "--mount", "none", code=1, env={"LIBMOUNT_FSTAB": str(tmp_path)})
    assert "the same command once more goes on" in run.stderr and "mount" not in stored(described)


def test_keyfile_is_refused(described, change, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    one_line(change("--keyfile", key, code=USAGE), "--keyfile", "not encrypted")
    described.volume(described.plain | {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "mount": str(tmp_path)})
    before = digest(described.hdd)
    one_line(change("--keyfile", tmp_path / "none", code=NOT_FOUND), "--keyfile", "no such key file")
    one_line(change("--keyfile", key, code=USAGE), "--keyfile", "behind the mount")
    link = tmp_path.with_name(f"{tmp_path.name}-link")
    link.symlink_to(tmp_path)
    one_line(change("--mount", link, "--keyfile", key, code=USAGE), "--keyfile", "behind the mount")
    one_line(change("--mount", f"/{tmp_path}", "--keyfile", link / "key", code=USAGE), "--keyfile", "behind the mount")
    assert "is stopped: array, cache and volume are started" in change("--keyfile", "none", "--dry-run").stdout
    # it is not believed: the volume is to be started, which is a file here
    change("--keyfile", __file__, code=USAGE)
    assert digest(described.hdd) == before
    described.volume(described.plain | {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "keyfile": str(key)})
    for mount in (tmp_path, link, f"{tmp_path}//"):
        one_line(change("--mount", mount, code=USAGE), "--mount", "behind the mount")


@namespaces
def test_header_backup_would_be_hidden(described, change, tmp_path):
    """Behind the new mount no change of a key would replace it."""
    described.volume(described.plain | {"crypt": str(uuid.uuid5(described.uuid, "crypt"))})
    backup = tmp_path / "larder" / f"{described.uuid}.luks-header"
    backup.parent.mkdir()
    within = ["unshare", "-rm", "sh", "-c", 'mount --bind "$0" /var/lib && exec "$@"', tmp_path, described.larder.program]
    argv = [*map(str, within), "set", "data", "--mount", "/var/lib/larder", "--dry-run"]
    env = described.larder.environment({"LIBMOUNT_FSTAB": str(described.larder.directory / "fstab")})
    for there in (False, True):
        if there:
            backup.write_text("")
        run = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert run.returncode == (USAGE if there else 0), run.stderr
    one_line(run, "--mount", "/var/lib/larder", backup.name, "--header-backup")


def test_class_keeps_pins(described, change):
    """What `larder pin` has put in front of the list stays; nobody else writes such rules there."""
    pins = "lba-8-16:pin-75/lba-32-40:pin-75"
    described.volume(described.plain | {"class": pins + "/any:cache"})
    said = change("--class", "size-32:bypass/any:cache", "--dry-run").stdout
    assert f"class: {pins}/size-32:bypass/any:cache, was {pins}" in said
    one_line(change("--class", "lba-0-8:pin-75/any:cache", code=USAGE), "--class", "larder pin")
    one_line(change("--class", "x" * 511, code=USAGE), "--class")


def test_mode_of_a_stopped_stack(described, change):
    """Superblock and description say the same, by either verb."""
    change("--mode", "writethrough", "--backing-label", "films")
    now = stored(described)
    assert (now["mode"], now["disks"], now["generation"]) == ("writethrough", "films", 5)
    assert field(described.hdd, VOLUME, "mode") == WRITETHROUGH
    described.larder("volume", "set", "data", "mode=writearound", "--persist")
    assert stored(described)["mode"] == "writearound" and field(described.hdd, VOLUME, "mode") == 2
    assert described.rows()[0][2]["type"] == "writearound"
    change("--backing-label", "none")
    assert "disks" not in stored(described)


def test_too_long_for_the_description(described, change, tmp_path):
    """Refused before anything is written, of what the SSDs list, too."""
    snapshots = [f"{i} ready {'s' * 30}{i}" for i in range(1, 9)]
    full = described.plain | {"mount": "/m", "snapshots": snapshots, "mkfs": "o" * 250, "label": "l" * 60}
    full |= {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "keyfile": "/" + "k" * 240}
    full["class"] = "c" * min(511, 2000 - len(json.dumps(full)))
    described.volume(full)
    before = [digest(described.ssd), digest(described.hdd)]
    deep = tmp_path.joinpath(*["d" * 50] * 3)
    deep.mkdir(parents=True)
    one_line(change("--backing-label", "b" * 31, "--mount", deep, code=FAILED), "does not fit", "shorter")
    assert before == [digest(described.ssd), digest(described.hdd)]


def test_room_for_what_comes_later(described, change):
    """The longest class that is taken leaves room for later generations, and to remove all."""
    snapshots = [f"{i} ready {'s' * 30}{i}" for i in range(1, 9)]
    full = described.plain | {"snapshots": snapshots, "mkfs": "o" * 250, "label": "l" * 60}
    full |= {"crypt": str(uuid.uuid5(described.uuid, "crypt")), "keyfile": "/" + "k" * 240, "mount": "/" + "m" * 250}
    full["class"] = "c" * (1860 - len(json.dumps(full | {"class": ""}, separators=(",", ":"))))
    described.volume(full)

    def takes(length):
        run = change("--class", "c" * length, "--dry-run", code=None)
        if run.returncode:
            one_line(run, "does not fit", "shorter")
        return not run.returncode

    low, high = len(full["class"]), 511
    assert low < high and takes(low - 1) and not takes(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    removing = [x.replace("ready", "removing") for x in snapshots]
    later = full | {"class": "c" * low, "generation": 999999, "state": "removing", "snapshots": removing}
    assert SIZE - HEAD - 16 < len(json.dumps(later, separators=(",", ":"))) <= SIZE - HEAD
