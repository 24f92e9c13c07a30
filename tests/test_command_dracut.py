# SPDX-License-Identifier: GPL-2.0-or-later
"""The module for dracut (udev/dracut), by dracut's functions as dracut.modules(7) has them: what it puts into an initramfs.

dracut itself is not run.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
MODULE = TOP / "udev" / "dracut"
ARRAY = "1f2e3d4c:00112233:44556677:8899aabb"
VOLUME = "4762e82b-29a8-5b0e-813a-5b13a9901745"
# each says what it was called for; nothing else of dracut is there
STUBS = """
set -eu
say() { printf '%s\\n' "$*"; }
require_binaries() { [ "$*" = "/usr/sbin/larder /usr/lib/udev/larder-probe" ] && [ -n "$binaries" ]; }
modinfo() { [ "$*" = "-k 6.1.0 larder" ] && [ -z "$module_is_missing" ]; }
dwarn() { say warned; }
dfatal() { say "$*"; }
lsinitrd() { [ "$*" = "$outfile" ] && [ "$image_has" != unknown ] && say "-rw-r--r-- 1 root root 9 Jan 1 1970 $image_has"; }
# a device is called by its numbers here: / is on 9:0, on 253:1, on 8:0
for_each_host_dev_and_slaves() { for d in 9:0 253:1 8:0; do ! "$1" $d || return 0; done; return 1; }
mdadm() { [ "$*" = "--detail --export /dev/md127" ] && say MD_LEVEL=raid1 && say "MD_UUID=$of_array"; }
for f in instmods inst inst_multiple inst_rules inst_hook dracut_need_initqueue; do
	eval "$f() { say $f \\"\\$@\\"; }"
done
moddir=MODULE mount_needs= kernel=6.1.0
: ${module_is_missing=} ${image_has=usr/lib/modules/6.1.0/updates/dkms/larder.ko.xz}
. "$module/module-setup.sh"
"""


def call(function, *, hostonly="", binaries="yes", image="/nowhere", root="/nowhere", **more):
    env = dict(os.environ, module=str(MODULE), hostonly=hostonly, binaries=binaries, initdir=str(image), LARDER_ROOT=str(root))
    env |= {"of_array": ARRAY, "LARDER_MACHINE_ID": "/nowhere"} | more
    return subprocess.run(["bash", "-c", f"{STUBS}\n{function}\n"], capture_output=True, text=True, env=env)


def larder_root(tmp_path, volume="", luks="", arrays="", lvs="", far="", code=0):
    """In the place of that script, which has tests of its own (test_command_initramfs.py)."""
    path = tmp_path / "larder-root"
    words = {"--luks": luks, "--arrays": arrays, "--lvs": lvs, "--far": far, "*": volume}
    case = f"case ${{1-}} in {' '.join(f'{k}) say {v} ;;' for k, v in words.items())} esac"
    path.write_text(f'#!/bin/sh\nsay() {{ [ -z "$*" ] || echo "$*"; }}\n{case}\nexit {code}\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("uuid", ["", f"LARDER-{VOLUME}", "LVM-x"])
@pytest.mark.parametrize(
    ("hostonly", "volume", "known", "binaries"),
    [
        ("", "", True, "yes"),
        ("", "", True, ""),  # larder is not installed
        ("yes", "", True, "yes"),
        ("yes", VOLUME, True, "yes"),
        ("yes", "", False, "yes"),
        ("yes", VOLUME, True, ""),
    ],
)
def test_check(tmp_path, hostonly, volume, known, binaries, uuid):
    """Where dracut takes what this machine needs: if root is on a volume, or what else the initramfs is to find.

    By nothing of blkid's, which does not know members.
    """
    if uuid:
        (tmp_path / "dev/block/253:1/dm").mkdir(parents=True)
        (tmp_path / "dev/block/253:1/dm/uuid").write_text(uuid + "\n")
    root = larder_root(tmp_path, volume, code=0 if known else 1)
    run = call("r=0; check || r=$?; exit $r", hostonly=hostonly, binaries=binaries, root=root, LARDER_SYS=str(tmp_path))
    wanted = not hostonly or volume or uuid.startswith("LARDER")
    assert (run.returncode, run.stderr) == (1 if not binaries else 0 if wanted else 255, "")
    assert run.stdout == "" if binaries else "warned\n"


@pytest.mark.parametrize("known", [True, False])
def test_contents(tmp_path, known):
    root, image = larder_root(tmp_path, VOLUME, code=0 if known else 1), tmp_path / "image"
    run = call("say $(depends); installkernel; install", hostonly="yes", image=image, root=root)
    assert not (image / "etc/crypttab").exists() and not (image / "etc/cmdline.d").exists()
    recorded = image / "etc/larder/root"
    assert recorded.read_text() == VOLUME + "\n" if known else not recorded.exists()
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout.splitlines() == [
        "dm rootfs-block",
        "instmods dm_mod larder dm_snapshot dm_integrity crc32c_generic",
        "inst /usr/sbin/larder /sbin/larder",
        "inst_multiple /usr/lib/udev/larder-probe",
        "inst_rules 11-dm-larder.rules 56-dm-larder.rules 62-z-larder.rules 63-md-z-larder.rules",
        "inst_multiple -o /etc/larder/larder.conf",
        *([] if known else ["warned"]),
        "inst_hook initqueue/settled 70 MODULE/larder-assemble.sh",
        "inst_hook initqueue/timeout 70 MODULE/larder-degraded.sh",
        "dracut_need_initqueue",
    ]


@pytest.mark.parametrize(("volume", "missing"), [("", "yes"), (VOLUME, ""), (VOLUME, "yes")])
def test_kernel_without_the_module(tmp_path, volume, missing):
    """Said where root needs it."""
    root = larder_root(tmp_path, volume)
    run = call("install", image=tmp_path / "image", root=root, module_is_missing=missing)
    assert (run.returncode, run.stderr) == (0, "")
    assert ("warned" in run.stdout.splitlines()) == bool(volume and missing)
    (tmp_path / "initrd").touch()
    run = call("install", image=tmp_path / "image", root=root, module_is_missing=missing, outfile=str(tmp_path / "initrd"))
    stays = bool(volume and missing)
    assert (run.returncode, "stays as it is" in run.stdout) == (int(stays), stays), "what boots, if anything does"


@pytest.mark.parametrize(
    ("has", "stays"), [("usr/lib/modules/6.1.0/extra/larder.ko", True), ("sbin/larder", False), ("unknown", True), (None, False)]
)
@pytest.mark.parametrize("volume", ["", VOLUME])
@pytest.mark.parametrize("hostonly", ["", "yes"])
def test_image_of_before(tmp_path, has, stays, volume, hostonly):
    """It stays where the next one would not boot, if that one does, or nobody can list it."""
    root, outfile = larder_root(tmp_path, volume), tmp_path / "initrd"
    if has:
        outfile.touch()
    more = {"outfile": str(outfile), "image_has": has or ""}
    stays = stays and bool(volume)
    run = call("check || exit 9", hostonly=hostonly, binaries="", root=root, **more)
    assert (run.returncode, run.stderr, "stays as it is" in run.stdout) == (1 if stays else 9, "", stays), "the command is missing"
    run = call("install", image=tmp_path / "image", root=root, module_is_missing="yes", **more)
    assert (run.returncode, run.stderr, "stays as it is" in run.stdout) == (int(stays), "", stays), "the module is missing"


@pytest.mark.parametrize("arrays", ["", "md127"])
@pytest.mark.parametrize("hostonly", ["", "yes"])
def test_arrays_below_root(tmp_path, arrays, hostonly):
    """An image for any machine assembles those alone that the words name, or all (rd.auto)."""
    image, root = tmp_path / "image", larder_root(tmp_path, VOLUME, arrays=arrays)
    run = call("say $(depends); install", hostonly=hostonly, image=image, root=root)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[0] == ("dm rootfs-block mdraid" if arrays else "dm rootfs-block")
    words, listed = image / "etc/cmdline.d/90larder.conf", image / "etc/larder/arrays"
    if arrays:
        assert (words.read_text(), listed.read_text()) == (f"rd.md.uuid={ARRAY}\n", ARRAY + "\n")
    else:
        assert not words.exists() and not listed.exists()


@pytest.mark.parametrize(("far", "crypttab", "warned"), [("", "", 0), ("two deep", "", 1), ("two deep", "deep UUID=1 none\n", 0)])
def test_other_volumes_of_the_cache(tmp_path, far, crypttab, warned):
    """Without one of them root's cache does not start without an SSD: it is said of one that the image does not reach."""
    (tmp_path / "image/etc").mkdir(parents=True)
    (tmp_path / "image/etc/crypttab").write_text(crypttab)
    run = call("install", image=tmp_path / "image", root=larder_root(tmp_path, VOLUME, far=far))
    assert (run.returncode, run.stderr, run.stdout.count("warned\n")) == (0, "", warned)


@pytest.mark.parametrize("lvs", ["", "vg0/store"])
def test_stores_of_root(tmp_path, lvs):
    """On logical volumes: dracut sees none of them below root, and starts those alone that words name, if any do."""
    image = tmp_path / "image"
    run = call("say $(depends); install", hostonly="yes", image=image, root=larder_root(tmp_path, VOLUME, lvs=lvs))
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[0] == ("dm rootfs-block lvm" if lvs else "dm rootfs-block")
    recorded = image / "etc/larder/lvs"
    assert recorded.read_text() == lvs + "\n" if lvs else not recorded.exists()
    (tmp_path / "lvs").write_text("vg0/store\nvg0/here\n" if lvs else "")
    (tmp_path / "dev/vg0").mkdir(parents=True)
    (tmp_path / "dev/vg0/here").touch()
    started = ["lvm lvchange -aay --sysinit vg0/store"] if lvs else []
    assert sourced(tmp_path, "assemble", 0) == ["modprobe -q larder", *started, "larder assemble --all"]


@pytest.mark.parametrize(
    ("image_has", "machine_has", "then"),
    [(None, "id\n", "id\n"), ("", "id\n", "id\n"), ("own\n", "id\n", "own\n"), ("", "", "")],
)
def test_machine_id(tmp_path, image_has, machine_has, then):
    """Where dracut has made an empty one for any machine, root's stack would be another machine's."""
    path = tmp_path / "image/etc/machine-id"
    path.parent.mkdir(parents=True)
    if image_has is not None:
        path.write_text(image_has)
        path.chmod(0o444)
    (tmp_path / "id").write_text(machine_has)
    run = call("install", image=tmp_path / "image", root=larder_root(tmp_path, VOLUME), LARDER_MACHINE_ID=str(tmp_path / "id"))
    assert (run.returncode, run.stderr, path.read_text()) == (0, "", then)


HEADER = "0dd5b1f2-86a4-4cd0-9a5e-4a3e9bb3b0c7"
OTHER = "swap /dev/sdb1 none luks\n"


@pytest.mark.parametrize(
    ("mapping", "line", "flags", "options"),
    [
        ("root-crypt", "", "", "luks,x-initrd.attach"),
        ("root-crypt", "# root-crypt", "1 allow_discards", "luks,x-initrd.attach,discard"),
        ("luks", "", "", "luks,x-initrd.attach"),
        ("root-crypt", "\troot-crypt UUID=1 none luks", "", ""),  # what the administrator says counts
    ],
)
def test_encrypted_root(tmp_path, mapping, line, flags, options):
    """The module crypt is taken in, and told which LUKS layer it is and what it is called, for systemd and without."""
    image, root, dmsetup = tmp_path / "image", larder_root(tmp_path, luks=f"{mapping} {HEADER} root"), tmp_path / "dmsetup"
    table = f"0 8 crypt aes-xts-plain64 :64:logon:x 0 253:1 0 {flags}"
    dmsetup.write_text(f'#!/bin/sh\n[ "$*" = "table {mapping}" ] && echo "{table}"\n')
    dmsetup.chmod(0o755)
    (tmp_path / "crypttab").write_text(line + "\n")
    (tmp_path / "crypto").write_text("module : xts\n\nmodule       : aes_generic\n\nmodule : xts\n")
    (image / "etc").mkdir(parents=True)
    (image / "etc/crypttab").write_text(OTHER)
    more = {"LARDER_CRYPTTAB": str(tmp_path / "crypttab"), "LARDER_CRYPTO": str(tmp_path / "crypto")}
    more["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    run = call("say $(depends); installkernel; install", hostonly="yes", image=image, root=root, **more)
    assert run.returncode == 0 and run.stderr == ""
    said = run.stdout.splitlines()
    assert said[0] == "dm rootfs-block crypt"
    assert "instmods dm_crypt aes_generic xts" in said
    assert ("warned" in said) == (mapping != "root-crypt")
    words = image / "etc/cmdline.d/90larder.conf"
    if options:
        assert (image / "etc/crypttab").read_text() == f"{OTHER}{mapping} /dev/disk/by-uuid/{HEADER} none {options}\n"
        assert words.read_text() == f"rd.luks.uuid={HEADER} rd.luks.name={HEADER}={mapping}\n"
    else:
        assert (image / "etc/crypttab").read_text() == OTHER and not words.exists()


def test_what_it_names_is_there():
    """Rules and hooks of this repository, by their names; and all of it is installed."""
    text = (MODULE / "module-setup.sh").read_text()
    installed = (TOP / "daemon" / "Makefile").read_text()
    for rule in re.findall(r"[\w-]+\.rules", text):
        assert f"/rules.d/{rule}" in installed or (TOP / "udev" / rule).is_file()
    hooks = re.findall(r'"\$moddir/([\w.-]+)"', text)
    assert len(hooks) == 2
    for name in ["module-setup.sh", *hooks]:
        assert (MODULE / name).is_file() and os.access(MODULE / name, os.X_OK) and f"dracut/{name}" in installed


def sourced(tmp_path, hook, code, root="", cmdline="", recorded="", arrays=(), conf=False):
    """By a shell that goes on behind it, whatever larder says."""
    by = "case ${LARDER_CONF-} in */none) echo -n 'by no file: ' ;; esac"
    for name, end in (("larder", code), ("modprobe", 1), ("lvm", 5)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{{ {by}; echo {name} $*; }} >>{tmp_path}/ran\nexit {end}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "ran").touch()
    (tmp_path / "root").write_text(recorded)
    text = (MODULE / f"larder-{hook}.sh").read_text()
    (tmp_path / "arrays").write_text("".join(f"{x}\n" for x in arrays))
    if conf:
        (tmp_path / "larder.conf").touch()
    for path in ("/etc/larder/root", "/etc/larder/arrays", "/etc/larder/larder.conf", "/dev/disk/by-id", "/etc/larder/lvs"):
        text = text.replace(path, str(tmp_path / Path(path).name))
    (tmp_path / "hook.sh").write_text(text.replace("/dev/$larder_name", f"{tmp_path}/dev/$larder_name"))
    env = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", root=root, cmdline=cmdline)
    getarg = 'getarg() { for w in $cmdline; do case $w in "$1"*) echo "${w#"$1"}"; return 0;; esac; done; return 1; }'
    cancel = f"cancel_wait_for_dev() {{ echo cancel $* >>{tmp_path}/ran; }}"
    words = ["sh", "-c", f"{getarg}; {cancel}; . {tmp_path}/hook.sh; echo on"]
    run = subprocess.run(words, capture_output=True, text=True, env=env)
    assert (run.stdout, run.stderr) == ("on\n", "")
    return (tmp_path / "ran").read_text().splitlines()


@pytest.mark.parametrize("code", [0, 3, 5])
def test_hook_of_what_is_whole(tmp_path, code):
    assert sourced(tmp_path, "assemble", code) == ["modprobe -q larder", "larder assemble --all"]


@pytest.mark.parametrize("conf", [False, True])
def test_root_of_a_machine_where_little_starts_by_itself(tmp_path, conf):
    """`auto no all`, say: root= has asked for root all the same."""
    of_root = [f"by no file: larder assemble --conf {x}" for x in (VOLUME, VOLUME[::-1])]
    ran = sourced(tmp_path, "assemble", 5, recorded=f"{VOLUME}\n{VOLUME[::-1]}\n", conf=conf)
    assert ran == ["modprobe -q larder", "larder assemble --all"] + of_root * conf


@pytest.mark.parametrize(
    ("root", "cmdline", "recorded", "name"),
    [
        ("block:/dev/mapper/root", "", "", "root"),
        ("block:/dev/larder/root", "quiet", "", "root"),
        ("block:/dev/mapper/vg-root", "quiet", VOLUME, VOLUME),
        ("block:/dev/disk/by-uuid/12345678-1234-4321-8765-123456789abc", "quiet", "", ""),
        ("block:/dev/disk/by-uuid/12345678-1234-4321-8765-123456789abc", "quiet", VOLUME, VOLUME),
        ("block:/dev/disk/by-uuid/12345678-1234-4321-8765-123456789abc", "quiet larder.degraded=sys ro", VOLUME, "sys"),
        ("nfs:server:/root", "", "", ""),
    ],
)
@pytest.mark.parametrize("code", [0, 5])
def test_hook_of_what_is_degraded(tmp_path, code, root, cmdline, recorded, name):
    """Root's volume alone."""
    by = "by no file: " if "larder.degraded" in cmdline else ""
    expected = ["modprobe -q larder", f"{by}larder assemble --degraded --conf {name}"] if name else []
    assert sourced(tmp_path, "degraded", code, root, cmdline, recorded) == expected


@pytest.mark.parametrize("recorded", ["", VOLUME])
def test_hook_waits_for_no_array_that_is_missing(tmp_path, recorded):
    """rd.md.uuid= has it waited for to the end, and then nothing is mounted; root is waited for anyway.  Once."""
    (tmp_path / "by-id").mkdir()
    (tmp_path / "by-id" / f"md-uuid-{ARRAY}").touch()
    ran = sourced(tmp_path, "degraded", 0, recorded=recorded, arrays=[ARRAY, ARRAY[::-1]])
    cancelled = [f"cancel {tmp_path}/by-id/md-uuid-{ARRAY[::-1]}"] if recorded else []
    assert ran[2 * bool(recorded) :] == cancelled
    assert (tmp_path / "arrays").exists() != bool(recorded)
