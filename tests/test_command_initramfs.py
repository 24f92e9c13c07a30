# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts for initramfs-tools (udev/initramfs), and what says which volume root is on (udev/larder-root).

Programs of the tests' stand in for real ones.

initramfs-tools itself, and a boot, are in the suite `root` of the VM.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
PARTS = TOP / "udev" / "initramfs"
OF_ROOT = "4762e82b-29a8-5b0e-813a-5b13a9901745"
HEADER = "0dd5b1f2-86a4-4cd0-9a5e-4a3e9bb3b0c7"
DM_HEADER = f"CRYPT-LUKS2-{HEADER.replace('-', '')}"
ENTRY = "root-crypt /dev/mapper/root none luks"


def program(directory, name, text):
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def here(directory, text, *paths):
    """A script that finds these paths in the directory."""
    for path in paths:
        assert path in text
        text = text.replace(path, str(directory / path.rstrip().split("/")[-1]) + " " * path.endswith(" "))
    return text


def larder(tmp_path, text="", end=0):
    """It says what it was asked for, and by which file, where that is not the usual one."""
    say = "case ${LARDER_CONF-} in */none) echo -n 'by no file: ' ;; esac; echo larder $*"
    return program(tmp_path, "larder", f"{{ {say}; }} >>{tmp_path}/ran\n{text}\nexit {end}")


def local_block(tmp_path, end, cmdline="", recorded="", appears=(), conf=False):
    """The script; appears: volumes that larder shows when it is run; conf: there is a larder.conf."""
    paths = ("/sbin/larder ", "/proc/uptime", "/proc/cmdline", "/etc/larder/root", "/etc/larder/larder.conf", "/sys/class/block")
    text = here(tmp_path, (PARTS / "local-block").read_text(), *paths)
    for other in ("cryptroot", "mdadm"):
        text = text.replace(f"/scripts/local-block/{other}", str(tmp_path / other))
    text = here(tmp_path, text, "/run/larder-arrays", "/run/count.mdadm.initrd")
    (tmp_path / "local-block").write_text(text)
    block = tmp_path / "block"
    show = "\n".join(f"mkdir -p {block}/dm-{i}/dm; echo {x} >{block}/dm-{i}/dm/uuid" for i, x in enumerate(appears))
    larder(tmp_path, show, end)
    program(tmp_path, "modprobe", f"echo modprobe $* >>{tmp_path}/ran\nexit 1")
    if conf:
        (tmp_path / "larder.conf").touch()
    (tmp_path / "cmdline").write_text(cmdline + "\n")
    (tmp_path / "root").write_text(recorded)

    def run(root, uptime, **variables):
        (tmp_path / "uptime").write_text(f"{uptime}.50 7.00\n")
        env = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", ROOT=root) | variables
        done = subprocess.run(["sh", "-e", tmp_path / "local-block", root], capture_output=True, text=True, env=env)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        ran = (tmp_path / "ran").read_text().splitlines()
        (tmp_path / "ran").unlink()
        return ran

    return run


WHOLE = ["modprobe -q larder", "larder assemble --all"]


@pytest.mark.parametrize(
    ("root", "cmdline", "recorded", "name"),
    [
        ("/dev/mapper/root", "quiet", "", "root"),
        ("/dev/larder/root", "quiet", "", "root"),
        ("/dev/mapper/vg-root", "quiet", OF_ROOT, OF_ROOT),
        ("/dev/mapper/root-crypt", "quiet", OF_ROOT, OF_ROOT),
        ("/dev/sda1", "quiet", "", ""),
        ("UUID=12345678-1234-4321-8765-123456789abc", "quiet ro", "", ""),
        ("UUID=12345678-1234-4321-8765-123456789abc", "quiet ro", OF_ROOT, OF_ROOT),
        ("UUID=12345678-1234-4321-8765-123456789abc", "quiet larder.degraded=sys ro", OF_ROOT, "sys"),
        ("", "", "", ""),
    ],
)
def test_local_block(tmp_path, root, cmdline, recorded, name):
    """initramfs-tools: what is whole starts; when the wait is nearly over, root's volume alone starts without what is missing."""
    run = local_block(tmp_path, 5, cmdline, recorded)
    by = "by no file: " if "larder.degraded" in cmdline else ""
    late = [f"{by}larder assemble --degraded --conf {name}"] if name else []
    for uptime, then in ((5, []), (24, []), (25, late), (40, late)):
        assert run(root, uptime, starttime="4") == WHOLE + then


@pytest.mark.parametrize(("delay", "until"), [("", 24), ("5", 24), ("30", 24), ("60", 44)])
def test_wait_is_that_of_init(tmp_path, delay, until):
    """Which sleeps rootdelay= before it runs the script, as often as there is time left, and once at least."""
    run = local_block(tmp_path, 0, recorded=OF_ROOT)
    late = [f"larder assemble --degraded --conf {OF_ROOT}"]
    assert run("UUID=1", until, starttime="4", ROOTDELAY=delay) == WHOLE
    assert run("UUID=1", until + 1, starttime="4", ROOTDELAY=delay) == WHOLE + late


@pytest.mark.parametrize("appears", [(), (f"LARDER-{OF_ROOT}",)])
def test_cryptroot_follows_what_starts(tmp_path, appears):
    """cryptroot may have been run before, and it may be the last time: it gets another turn, once, and may fail."""
    run = local_block(tmp_path, 0, appears=appears)
    assert run("UUID=1", 5) == WHOLE  # it is not installed
    for old in (tmp_path / "block").rglob("uuid"):
        old.unlink()
    program(tmp_path, "cryptroot", f"echo cryptroot $* >>{tmp_path}/ran\nexit 1")
    assert run("UUID=1", 5) == WHOLE + ["cryptroot UUID=1"] * bool(appears)
    assert run("UUID=1", 5) == WHOLE, "all of it was there before"


@pytest.mark.parametrize("delay", ["", "60"])
def test_array_that_lacks_a_disk(tmp_path, delay):
    """md's script starts it at the run that it counts; where init's first round is its last it has them all before larder looks."""
    run, at = local_block(tmp_path, 0), 20 if not delay else 40
    count = tmp_path / "count.mdadm.initrd"
    text = f"n=$(($(cat {count} 2>/dev/null || echo 0) + 1)); echo md $n >>{tmp_path}/ran\n"
    program(tmp_path, "mdadm", f"{text}[ $n = {at} ] && rm {count} || echo $n >{count}; exit 1")
    program(tmp_path, "udevadm", f"echo udevadm $* >>{tmp_path}/ran")
    whole, all_of_it = WHOLE, [WHOLE[0], *(f"md {i}" for i in range(8, at + 1)), "udevadm settle --timeout=10", WHOLE[1]]
    count.write_text("7\n")
    assert run("UUID=1", at, ROOTDELAY=delay) == whole, "init has time"
    assert run("UUID=1", at + 1, ROOTDELAY=delay) == all_of_it
    assert run("UUID=1", at + 2, ROOTDELAY=delay) == whole, "once"


@pytest.mark.parametrize("conf", [False, True])
def test_root_of_a_machine_where_little_starts_by_itself(tmp_path, conf):
    """`auto no all`, say: root= has asked for root all the same; larder.conf says whether it starts degraded."""
    run = local_block(tmp_path, 5, recorded=f"{OF_ROOT}\n{OF_ROOT[::-1]}\n", conf=conf)
    whole = WHOLE + [f"by no file: larder assemble --conf {x}" for x in (OF_ROOT, OF_ROOT[::-1])] * conf
    assert run("UUID=1", 5) == whole
    assert run("UUID=1", 35) == whole + [f"larder assemble --degraded --conf {x}" for x in (OF_ROOT, OF_ROOT[::-1])]


@pytest.mark.parametrize(("end", "recorded"), [(0, ""), (5, ""), (5, OF_ROOT)])
def test_local_top(tmp_path, end, recorded):
    """What is whole starts before cryptroot looks for it: that one comes last there.  Root, whatever larder.conf says."""
    larder(tmp_path, "echo noise", end)
    program(tmp_path, "modprobe", f"echo modprobe $* >>{tmp_path}/ran\nexit 1")
    paths = ("/sbin/larder ", "/etc/larder/root", "/etc/larder/larder.conf")
    text = here(tmp_path, (PARTS / "local-top").read_text(), *paths)
    (tmp_path / "larder.conf").touch()
    (tmp_path / "root").write_text(recorded and recorded + "\n")
    (tmp_path / "local-top").write_text(text)
    env = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}")
    run = subprocess.run(["sh", "-e", tmp_path / "local-top"], capture_output=True, text=True, env=env)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    root = [f"by no file: larder assemble --conf {recorded}"] if recorded else []
    assert (tmp_path / "ran").read_text().splitlines() == WHOLE + root


BELOW = {
    "sda": [],
    "dm-0": ["sda"],
    "dm-1": ["sda", "dm-0"],  # a volume, with its cache
    "dm-2": ["dm-1"],  # its LUKS layer
    "dm-3": ["dm-2", "dm-4"],
    "dm-4": ["sda"],  # another volume
    "dm-5": ["dm-4"],
    "dm-6": ["dm-5"],  # a LUKS layer that authenticates, over dm-integrity
    "dm-7": ["dm-2", "dm-6"],
    "dm-8": ["dm-1"],
    "dm-10": ["dm-8"],  # a LUKS layer on LVM on the volume
    "md0": ["sda"],
    "md1p2": ["sda"],
    "md2": ["sda", "md0"],
    "dm-11": ["md1p2"],  # a cache
    "dm-12": ["md0", "dm-11"],
    "md126": ["dm-12"],  # an array of volumes
    "sdb": [],
    "md3": ["sdb"],
    "dm-13": ["dm-14"],  # a store, on LVM, on an array
    "dm-14": ["md3"],
    "dm-15": ["sdb"],  # another one
    "dm-16": ["sda"],  # what they are below: a volume without its snapshots,
    "dm-17": ["dm-16"],  # and with them
    "dm-18": ["dm-17"],  # LVM on that
    "dm-19": ["dm-20", "dm-22"],  # a volume on LVM, and its cache, too
    "dm-20": ["dm-21"],
    "dm-21": ["sda"],  # a part of that logical volume
    "dm-22": ["dm-23"],
    "dm-23": ["sdb"],
    "dm-24": ["sda"],  # a cache of several volumes: root's,
    "dm-25": ["md4", "dm-24"],
    "dm-26": ["dm-24", "dm-27"],  # one on LVM, on an array, with snapshots,
    "dm-27": ["md5"],
    "dm-28": ["dm-26"],
    "dm-29": ["nbd0", "dm-24"],  # one of the network,
    "dm-30": ["dm-31", "dm-24"],  # one inside of LUKS, on iSCSI,
    "dm-31": ["sdi"],
    "dm-32": ["sdi", "dm-24"],  # one on iSCSI,
    "dm-33": ["dm-35", "dm-24"],  # one on a volume of another cache, one of whose volumes is on one of this cache
    "dm-34": ["md6"],
    "dm-35": ["md7", "dm-34"],
    "dm-36": ["dm-25", "dm-34"],
    "md4": ["sda"],
    "md5": ["sda"],
    "md6": ["sda"],
    "md7": ["sda"],
    "nbd0": [],
    "sdi": [],
}
SNAPPED = "00000000-0000-4000-8000-000000000001"
UUIDS = {
    "dm-0": f"LARDER-{OF_ROOT}-cache",
    "dm-1": f"LARDER-{OF_ROOT}",
    "dm-2": f"{DM_HEADER}-root-crypt",
    "dm-3": "LVM-x",
    "dm-4": f"LARDER-{OF_ROOT[::-1]}",
    "dm-5": "CRYPT-INTEGRITY-two-crypt_dif",
    "dm-6": f"{DM_HEADER}-two-crypt",
    "dm-7": "LVM-y",
    "dm-8": "LVM-z",
    "dm-10": f"{DM_HEADER}-luks",
    "dm-11": f"LARDER-{OF_ROOT}-cache",
    "dm-12": f"LARDER-{OF_ROOT}",
}
UUIDS |= {"dm-13": f"LARDER-{SNAPPED}-store-{OF_ROOT}", "dm-14": "LVM-s", "dm-15": f"LARDER-{SNAPPED}-store-{OF_ROOT[::-1]}"}
UUIDS |= {"dm-16": f"LARDER-{SNAPPED}-origin", "dm-17": f"LARDER-{SNAPPED}", "dm-18": "LVM-t"}
UUIDS |= {"dm-19": f"LARDER-{OF_ROOT}", "dm-20": "LVM-u", "dm-21": "LVM-v", "dm-22": f"LARDER-{OF_ROOT}-cache", "dm-23": "LVM-w"}
UUIDS |= {"dm-24": "LARDER-c-cache", "dm-25": "LARDER-1", "dm-26": "LARDER-2-origin", "dm-27": "LVM-x", "dm-28": "LARDER-2"}
UUIDS |= {"dm-29": "LARDER-3", "dm-30": "LARDER-4", "dm-31": f"{DM_HEADER}-deep", "dm-32": "LARDER-5", "dm-33": "LARDER-6"}
UUIDS |= {"dm-34": "LARDER-d-cache", "dm-35": "LARDER-7", "dm-36": "LARDER-8"}
NAMES = {"dm-14": "a--b---c--d", "dm-0": "larder-cache-x", "dm-1": "root", "dm-2": "root-crypt", "dm-10": "luks"}
NAMES |= {"dm-20": "vg-hdd", "dm-21": "vg-hdd_rimage_0", "dm-23": "vg-ssd"}
NAMES |= {"dm-26": "two-origin", "dm-27": "vg-two", "dm-29": "three", "dm-30": "four", "dm-31": "deep", "dm-32": "five"}
NAMES |= {"dm-4": "two", "dm-5": "two-crypt_dif", "dm-6": "two-crypt"}


def larder_root(tmp_path, source, *words, usr="", btrfs=()):
    """What it prints of a / on this device, and a /usr on that one, by sysfs; btrfs: devices of one filesystem."""
    block, filesystems = tmp_path / "block", tmp_path / "btrfs"
    tmp_path.mkdir(exist_ok=True)
    session = tmp_path / "host0" / "session1" / "sdi"
    session.mkdir(parents=True)
    block.mkdir()
    (block / "sdi").symlink_to(session)
    for name in BELOW:
        (block / name / "slaves").mkdir(parents=True)
        (block / name / "holders").mkdir()
    for name, lower in BELOW.items():
        (block / name / "dev").write_text("1:1\n")
        for one in lower:
            (block / name / "slaves" / one).symlink_to(block / one)
            (block / one / "holders" / name).symlink_to(block / name)
        if name in UUIDS:
            (block / name / "dm").mkdir()
            (block / name / "dm" / "uuid").write_text(UUIDS[name] + "\n")
            (block / name / "dm" / "name").write_text(NAMES.get(name, name) + "\n")
    for one in btrfs:
        (filesystems / "x" / "devices").mkdir(parents=True, exist_ok=True)
        (filesystems / "x" / "devices" / one).symlink_to(block / one)
    script = tmp_path / "larder-root"
    text = (TOP / "udev" / "larder-root").read_text().replace("/sys/class/block", str(block))
    script.write_text(text.replace("/sys/fs/btrfs", str(filesystems)))
    program(tmp_path, "findmnt", f'case $* in */usr) s={usr} ;; *) s={source} ;; esac; [ -n "$s" ] && echo "$s"')
    real = shutil.which("readlink")
    program(tmp_path, "readlink", f'case $*: in -f*) exec {real} "$@" ;; -e*/*) echo "$2" ;; *) exit 1 ;; esac')
    env = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}")
    run = subprocess.run(["sh", script, *words], capture_output=True, text=True, env=env)
    assert run.stderr == ""
    return run.returncode, run.stdout.splitlines()


@pytest.mark.parametrize(
    ("source", "code", "found"),
    [
        ("/dev/dm-1", 0, [OF_ROOT]),
        ("/dev/dm-2", 0, [OF_ROOT]),
        ("/dev/dm-3", 0, [OF_ROOT, OF_ROOT[::-1]]),  # LVM over encryption, and over another volume
        ("/dev/sda", 0, []),
        ("/dev/dm-9", 1, []),  # not to be seen from a chroot
        ("overlay", 1, []),
        ("", 1, []),
    ],
)
def test_volume_of_root(tmp_path, source, code, found):
    """Of what / is on, by sysfs; the cache below the volume is none."""
    assert larder_root(tmp_path, source) == (code, found)


@pytest.mark.parametrize(
    ("source", "found"), [("/dev/dm-12", ["md0", "md1"]), ("/dev/md126", ["md0", "md1"]), ("/dev/dm-2", []), ("/dev/md2", [])]
)
def test_arrays_below_root(tmp_path, source, found):
    """Of the volume and of its cache; what root is on beside volumes is none of ours."""
    assert larder_root(tmp_path, source, "--arrays") == (0, found)
    assert larder_root(tmp_path / "usr", "/dev/sda", "--arrays", usr=source) == (0, found)


@pytest.mark.parametrize(("source", "found"), [("/dev/dm-19", ["vg/hdd", "vg/ssd"]), ("/dev/dm-10", []), ("/dev/dm-3", [])])
def test_logical_volumes_below_root(tmp_path, source, found):
    """Of the volume and of its cache; not those above it."""
    assert larder_root(tmp_path, source, "--lvs") == (0, found)


@pytest.mark.parametrize("source", ["/dev/dm-17", "/dev/dm-18"])
def test_stores_of_root(tmp_path, source):
    """Which nothing leads to from there; of other volumes none, nor LVM that root itself is on."""
    of_stores = {"--stores": ["dm-14", "sdb"], "--lvs": ["a-b-/c-d"], "--arrays": ["md3"], "": [SNAPPED]}
    for word, found in of_stores.items():
        (tmp_path / word).mkdir(exist_ok=True)
        assert larder_root(tmp_path / f"{word}x", source, *([word] if word else [])) == (0, found)
        if word:
            assert larder_root(tmp_path / f"{word}y", "/dev/dm-3", word) == (0, [])


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("", ["1"]),
        ("--arrays", ["md4", "md5", "md6", "md7"]),
        ("--lvs", ["vg/two"]),
        ("--beside", ["dm-27", "dm-31", "dm-35", "nbd0", "sdi"]),
        ("--uuids", ["1", "2", "3", "4", "5", "6", "7", "8", "c", "d"]),
        ("--far", ["five sdi", "four deep", "three nbd0"]),
        ("--stores", []),
        ("--luks", []),
    ],
)
def test_other_volumes_of_the_cache_of_root(tmp_path, word, found):
    """It starts without an SSD only where all that it knows are seen; one leads to another, and back: once."""
    assert larder_root(tmp_path, "/dev/dm-25", *([word] if word else [])) == (0, found)
    alone = {"": [OF_ROOT], "--uuids": [OF_ROOT], "--arrays": ["md0", "md1"]}.get(word, [])
    assert larder_root(tmp_path / "alone", "/dev/dm-12", *([word] if word else [])) == (0, alone)


@pytest.mark.parametrize(
    ("source", "usr", "code", "found"),
    [
        ("/dev/sda", "/dev/dm-1", 0, [OF_ROOT]),
        ("/dev/dm-2", "/dev/dm-4", 0, [OF_ROOT, OF_ROOT[::-1]]),
        ("/dev/dm-2", "/dev/dm-2", 0, [OF_ROOT]),  # subvolumes, say: once
        ("/dev/dm-2", "overlay", 0, [OF_ROOT]),
        ("/dev/dm-2", "/dev/dm-9", 0, [OF_ROOT]),
        ("overlay", "/dev/dm-2", 1, []),
    ],
)
def test_volume_of_usr(tmp_path, source, usr, code, found):
    """The initramfs mounts it, too."""
    assert larder_root(tmp_path, source, usr=usr) == (code, found)


@pytest.mark.parametrize(("source", "usr"), [("/dev/sda", "/dev/dm-2"), ("/dev/dm-2", "/dev/dm-2"), ("/dev/dm-2", "")])
def test_luks_layer_of_usr(tmp_path, source, usr):
    assert larder_root(tmp_path, source, "--luks", usr=usr) == (0, [f"root-crypt {HEADER} root"])


@pytest.mark.parametrize("source", ["/dev/dm-2", "/dev/dm-6"])
def test_btrfs_of_several_devices(tmp_path, source):
    """Of which findmnt names one."""
    (tmp_path / "luks").mkdir()
    devices = ["dm-2", "dm-6"]
    assert larder_root(tmp_path, source, btrfs=devices) == (0, [OF_ROOT, OF_ROOT[::-1]])
    both = [f"root-crypt {HEADER} root", f"two-crypt {HEADER} two"]
    assert larder_root(tmp_path / "luks", source, "--luks", btrfs=devices) == (0, both)
    (tmp_path / "other").mkdir()
    assert larder_root(tmp_path / "other", "/dev/sda", btrfs=devices) == (0, [])


@pytest.mark.parametrize(
    ("source", "code", "found"),
    [
        ("/dev/dm-1", 0, []),
        ("/dev/dm-2", 0, [f"root-crypt {HEADER} root"]),
        ("/dev/dm-3", 0, [f"root-crypt {HEADER} root"]),  # LVM over it; the other volume is not encrypted
        ("/dev/dm-6", 0, [f"two-crypt {HEADER} two"]),
        ("/dev/dm-7", 0, [f"root-crypt {HEADER} root", f"two-crypt {HEADER} two"]),
        ("/dev/dm-10", 0, []),  # not on the volume itself: crypttab's
        ("/dev/sda", 0, []),
        ("overlay", 1, []),
    ],
)
def test_luks_layer_of_root(tmp_path, source, code, found):
    """Those that lie on a volume, with the name and the UUID that cryptsetup needs."""
    assert larder_root(tmp_path, source, "--luks") == (code, found)


def hook(
    tmp_path,
    *,
    known=True,
    luks="",
    crypttab=None,
    installed=True,
    flags="",
    module=True,
    volume=OF_ROOT,
    stores=(),
    beside=(),
    far="",
    lvm=True,
    code=0,
    **more,
):
    """What it says; the image is in tmp_path.

    luks: what / is on; installed: cryptsetup-initramfs; flags: of the mapping; beside, far: of other volumes of root's cache; lvm:
    lvm2 is installed."""
    functions, script, image = tmp_path / "hook-functions", tmp_path / "hook", tmp_path / "image"
    functions.write_text('copy_exec() { echo "$1"; }\nmanual_add_modules() { echo modules "$@"; }\n')
    with open(functions, "a") as file:
        file.write('block_dev_mod_add() { echo drivers "$@"; }\n')
    if lvm:
        program(tmp_path, "lvm2", "")
    paths = ("/usr/share/initramfs-tools/hooks/lvm2", "/usr/share/initramfs-tools/hook-functions", "/etc/crypttab", "/proc/crypto")
    script.write_text(here(tmp_path, (PARTS / "hook").read_text(), "/boot/initrd.img-", *paths))
    aes = "name : aes\nmodule : aes_generic\n\n"
    (tmp_path / "crypto").write_text(f"name : xts(aes)\nmodule       : xts\n\n{aes}{aes}")
    print_luks = f'[ "$1" != --luks ] || {{ printf "{luks}"; exit; }}\n[ "$1" != --far ] || {{ printf "{far}"; exit; }}'
    for word, words in (("--stores", stores), ("--beside", beside), ("--lvs", [x for x in stores if x.startswith("dm")])):
        print_luks += f'\n[ "$1" != {word} ] || {{ printf "%s\\n" {" ".join(words)} | sed "/^$/d"; exit; }}'
    print_root = f"[ -z '{volume}' ] || echo {volume}"
    root = program(tmp_path, "larder-root", f"{print_luks}\n{print_root}\nexit {0 if known else 1}")
    table = f"0 8 crypt aes-xts-plain64 :64:logon:x 0 253:1 0 {flags}"
    program(tmp_path, "dmsetup", f'[ "$*" = "table {luks.split(" ")[0]}" ] && echo "{table}"')
    program(tmp_path, "modinfo", f'[ "$*" = "-k 6.1.0-9-amd64 larder" ] && {str(module).lower()}')
    if crypttab is not None:
        (tmp_path / "crypttab").write_text(crypttab)
    if installed:
        (image / "lib/cryptsetup").mkdir(parents=True, exist_ok=True)
        (image / "lib/cryptsetup/functions").touch()
    ours = {"LARDER_PROGRAM": "/bin/true", "LARDER_PROBE": "/bin/true", "LARDER_RULES": str(TOP / "udev"), "LARDER_ROOT": str(root)}
    env = os.environ | ours | {"DESTDIR": str(image), "PATH": f"{tmp_path}:{os.environ['PATH']}", "version": "6.1.0-9-amd64"} | more
    run = subprocess.run(["sh", "-e", script], capture_output=True, text=True, env=env)
    assert run.returncode == code, run.stderr
    assert not (image / "etc/larder/luks").exists()
    return run


def entries(tmp_path):
    path = tmp_path / "image/cryptroot/crypttab"
    return path.read_text().splitlines() if path.exists() else None


def test_hook_comes_behind_that_of_cryptsetup():
    """Which would begin the image's crypttab anew."""
    run = subprocess.run(["sh", "-e", PARTS / "hook", "prereqs"], capture_output=True, text=True)
    assert run.stdout.split() == ["udev", "cryptroot"]


@pytest.mark.parametrize("known", [True, False])
def test_hook_records_the_volume_of_root(tmp_path, known):
    """Or says the word that is needed."""
    run = hook(tmp_path, known=known)
    recorded = tmp_path / "image/etc/larder/root"
    assert recorded.read_text() == OF_ROOT + "\n" if known else not recorded.exists()
    assert ("larder.degraded=NAME" in run.stderr) != known
    assert "modules dm_mod larder dm_snapshot dm_integrity crc32c_generic" in run.stdout.splitlines()
    assert entries(tmp_path) is None and "askpass" not in run.stdout and "xts" not in run.stdout


@pytest.mark.parametrize(
    ("flags", "options"),
    [("", ""), ("1 allow_discards", ",discard"), ("2 allow_discards no_read_workqueue", ",discard"), ("1 sector_size:4096", "")],
)
def test_hook_has_an_encrypted_root_asked_for(tmp_path, flags, options):
    """An entry in the image's crypttab, with the discards that are allowed now; the program that asks; the algorithms."""
    crypttab = "# <target name>\nswap /dev/sdb1 /dev/urandom swap\n"
    run = hook(tmp_path, luks=f"root-crypt {HEADER} root\\n", crypttab=crypttab, flags=flags)
    assert entries(tmp_path) == [ENTRY + options]
    assert "/lib/cryptsetup/askpass" in run.stdout.splitlines()
    assert "modules dm_crypt aes_generic xts" in run.stdout.splitlines()
    (said,) = run.stderr.splitlines()
    assert "asks for its passphrase" in said


@pytest.mark.parametrize(("module", "volume"), [(True, OF_ROOT), (False, ""), (False, OF_ROOT)])
def test_hook_of_a_kernel_without_the_module(tmp_path, module, volume):
    """Where root needs it."""
    run = hook(tmp_path, module=module, volume=volume)
    said = "6.1.0-9-amd64 has no module larder" in run.stderr and "update-initramfs -u -k 6.1.0-9-amd64" in run.stderr
    assert said == bool(not module and volume) and run.stderr.count("\n") == said


IMAGE = "initrd.img-6.1.0-9-amd64"
BOOTS = "usr/lib/modules/6.1.0-9-amd64/updates/dkms/larder.ko.xz"


def image_of_before(tmp_path, has, lister=True):
    """What lsinitramfs prints of it; lister: there is one."""
    path = tmp_path / IMAGE
    path.touch()
    program(tmp_path, "lsinitramfs", f'[ "$*" = {path} ] && {str(lister).lower()} && printf "%s\\n" usr/sbin/init {has}')


@pytest.mark.parametrize(("module", "volume"), [(True, OF_ROOT), (False, ""), (False, OF_ROOT)])
def test_hook_leaves_the_image_that_boots(tmp_path, module, volume):
    """A module that does not build any more, as for an update of its package: update-initramfs runs all the same, and stops where a
    hook fails."""
    image_of_before(tmp_path, BOOTS)
    fails = not module and bool(volume)
    run = hook(tmp_path, module=module, volume=volume, code=int(fails))
    assert (f"{IMAGE} stays as it is" in run.stderr) == fails


@pytest.mark.parametrize(("has", "lister", "fails"), [("usr/sbin/larder", True, False), ("", True, False), ("", False, True)])
@pytest.mark.parametrize("missing", ["module", "LARDER_PROGRAM"])
def test_hook_of_an_image_that_does_not_boot_anyway(tmp_path, has, lister, fails, missing):
    """It was made without the module: nothing is lost by another one, and a package's trigger must end.  Where nobody can list it
    it may boot."""
    image_of_before(tmp_path, has, lister)
    words = {"module": False} if missing == "module" else {missing: "/nowhere/larder"}
    run = hook(tmp_path, **words, code=int(fails))
    assert (f"{IMAGE} stays as it is" in run.stderr) == fails and run.stderr.count("\n") == 1 + fails


@pytest.mark.parametrize("which", ["LARDER_PROGRAM", "LARDER_PROBE"])
@pytest.mark.parametrize("of_root", [True, False])
def test_hook_without_the_command(tmp_path, which, of_root):
    """By a PREFIX of another one, say.  Where root needs it, what boots stays."""
    run = hook(tmp_path, **{which: "/nowhere/larder"})
    (said,) = run.stderr.splitlines()
    assert "/nowhere/larder is not there" in said and "make install install-daemon" in said
    assert run.stdout == ""
    image_of_before(tmp_path, BOOTS)
    run = hook(tmp_path, **{which: "/nowhere/larder"}, volume=OF_ROOT if of_root else "", code=int(of_root))
    assert (f"{IMAGE} stays as it is" in run.stderr) == of_root and run.stdout == ""
    run = hook(tmp_path, **{which: "/nowhere/larder"}, known=False, volume="")
    assert run.stderr.count("\n") == 1, "nobody knows what root is on: a chroot, say"


def test_hook_adds_to_what_is_there(tmp_path):
    path = tmp_path / "image/cryptroot/crypttab"
    path.parent.mkdir(parents=True)
    path.write_text("swap UUID=1 none luks\n")
    hook(tmp_path, luks=f"root-crypt {HEADER} root\\ntwo-crypt {HEADER} two\\n")
    assert entries(tmp_path) == ["swap UUID=1 none luks", ENTRY, "two-crypt /dev/mapper/two none luks"]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("root-crypt /dev/larder/root none luks", True),
        ("  root-crypt\tUUID=1 /etc/key luks,keyscript=/bin/x", True),
        ("#root-crypt /dev/larder/root none luks", False),
        ("root-crypt2 /dev/larder/root none luks", False),
        ("rootxcrypt /dev/larder/root none luks", False),
    ],
)
def test_hook_leaves_the_line_of_an_administrator(tmp_path, line, left):
    run = hook(tmp_path, luks=f"root-crypt {HEADER} root\\n", crypttab=f"{line}\n")
    assert entries(tmp_path) == (None if left else [ENTRY])
    assert (run.stderr == "") == left


def test_hook_without_what_asks(tmp_path):
    run = hook(tmp_path, luks=f"root-crypt {HEADER} root\\n", installed=False)
    assert entries(tmp_path) is None
    (said,) = run.stderr.splitlines()
    assert "install cryptsetup-initramfs" in said


def test_hook_of_another_name(tmp_path):
    """What root is called now is what fstab and root= say: it is not called otherwise, but that is said."""
    run = hook(tmp_path, luks=f"cryptroot {HEADER} root\\n")
    assert entries(tmp_path) == ["cryptroot /dev/mapper/root none luks"]
    assert "takes root-crypt for unlocked" in run.stderr


@pytest.mark.parametrize("lvm", [True, False])
def test_hook_of_stores(tmp_path, lvm):
    """Their drivers, where the image has those of root alone; who starts logical volumes, or that nobody does."""
    run = hook(tmp_path, stores=["dm-14", "cciss!c0d0p1"], lvm=lvm)
    assert [x for x in run.stdout.splitlines() if x.startswith("drivers")] == ["drivers /dev/dm-14", "drivers /dev/cciss/c0d0p1"]
    assert ("install lvm2" in run.stderr) != lvm


def test_hook_of_other_volumes_of_the_cache(tmp_path):
    """Their drivers, too; what is not to be reached is said, unless the image opens it."""
    (tmp_path / "image/cryptroot").mkdir(parents=True)
    (tmp_path / "image/cryptroot/crypttab").write_text("open\tUUID=1 none luks\n")
    run = hook(tmp_path, stores=["sda"], beside=["sdb", "cciss!c0d0p1"], far="three open.\\ntwo open\\none nbd0\\n")
    drivers = [x for x in run.stdout.splitlines() if x.startswith("drivers")]
    assert drivers == ["drivers /dev/sda", "drivers /dev/sdb", "drivers /dev/cciss/c0d0p1"]
    of_three, of_one = run.stderr.splitlines()
    assert "volume three" in of_three and "volume one" in of_one and "(on nbd0)" in of_one and "another cache" in of_one
    assert not (tmp_path / "image/etc/larder/far").exists()


def test_what_is_installed():
    """All parts, each where initramfs-tools looks for it."""
    rules = (TOP / "daemon" / "Makefile").read_text()
    for part in PARTS.iterdir():
        where = "hooks" if part.name == "hook" else f"scripts/{part.name}"
        assert os.access(part, os.X_OK)
        assert f"$(udev)/initramfs/{part.name} $(DESTDIR)$(INITRAMFS)/{where}/larder" in rules
        assert f"$(DESTDIR)$(INITRAMFS)/{where}/larder" in rules.split("\nuninstall:")[1]


def test_prefix(tmp_path):
    """What is made an initramfs of is what was installed: units, hook and dracut's module name one place."""
    build, root = tmp_path / "build", tmp_path / "root"
    build.mkdir()
    for name in ("larderd", "larder-probe"):
        program(build, name, "")
    words = ["-s", "-C", TOP / "daemon", "-o", "all", "install", f"BUILD={build}", f"DESTDIR={root}", "PREFIX=/opt/x"]
    subprocess.run(["make", *words], check=True, capture_output=True, text=True)
    unit, hook, module = "lib/systemd/system/larderd.service", "hooks/larder", "modules.d/90larder/module-setup.sh"
    for name in (unit, f"usr/share/initramfs-tools/{hook}", f"usr/lib/dracut/{module}"):
        text = (root / name).read_text()
        assert "/opt/x/sbin/larder" in text and "/usr/sbin/larder" not in text, name


def test_stacks_of_the_network_stop_before_snapshots_are_held():
    """With its snapshot held none stops; units stop in the order in which they do not start."""
    after = re.findall("^After=(.*)", (TOP / "udev" / "larder-network.service").read_text(), re.M)
    assert "larder-snapshots.service" in " ".join(after).split()


def test_isolate_does_not_stop_it():
    """^D in an emergency shell is an isolate, and ends what its target does not want, unless the unit says otherwise."""
    services = ("larderd", "larder-events", "larder-network", "larder-snapshots", "larder-unlock@", "larder-assemble@")
    for name in (f"{s}.service" for s in services):
        assert "\nIgnoreOnIsolate=true\n" in (TOP / "udev" / name).read_text(), name
    for name in ("larder-last-resort@.timer", "larder-last-resort@.service"):
        assert "\nIgnoreOnIsolate=true\n" in (TOP / "udev" / name).read_text(), name
