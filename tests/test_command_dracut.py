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
VOLUME = "4762e82b-29a8-5b0e-813a-5b13a9901745"
# each says what it was called for; nothing else of dracut is there
STUBS = """
set -eu
say() { printf '%s\\n' "$*"; }
require_binaries() { [ "$*" = "/usr/sbin/larder /usr/lib/udev/larder-probe" ] && [ -n "$binaries" ]; }
modinfo() { [ "$*" = "-k 6.1.0 larder" ] && [ -z "$module_is_missing" ]; }
dwarn() { say warned; }
for f in instmods inst inst_multiple inst_rules inst_hook dracut_need_initqueue; do
	eval "$f() { say $f \\"\\$@\\"; }"
done
moddir=MODULE mount_needs= kernel=6.1.0
: ${module_is_missing=}
. "$module/module-setup.sh"
"""


def call(function, *, hostonly="", types="", binaries="yes", image="/nowhere", root="/nowhere", **more):
    text = f"declare -A host_fs_types=({types})\n{STUBS}\n{function}\n"
    env = dict(os.environ, module=str(MODULE), hostonly=hostonly, binaries=binaries, initdir=str(image), LARDER_ROOT=str(root))
    env |= more
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, env=env)


@pytest.mark.parametrize(
    ("hostonly", "types", "binaries", "code"),
    [
        ("", "", "yes", 0),
        ("", "", "", 1),  # larder is not installed
        ("yes", "", "yes", 255),
        ("yes", "[/dev/sda1]=ext4 [/dev/sda2]=linux_raid_member", "yes", 255),
        ("yes", "[/dev/dm-0]=ext4 [/dev/sdb]=larder_member", "yes", 0),
        ("yes", "[/dev/sdb]=larder_member", "", 1),
    ],
)
def test_check(hostonly, types, binaries, code):
    run = call("r=0; check || r=$?; exit $r", hostonly=hostonly, types=types, binaries=binaries)
    assert (run.returncode, run.stderr) == (code, "")
    assert run.stdout == "" if binaries else "warned\n"


@pytest.mark.parametrize("known", [True, False])
def test_contents(tmp_path, known):
    root, image = tmp_path / "larder-root", tmp_path / "image"
    root.write_text(f'#!/bin/sh\n[ "$1" = --luks ] || echo {VOLUME}\nexit {0 if known else 1}\n')
    root.chmod(0o755)
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
        "inst_rules 11-dm-larder.rules 56-dm-larder.rules 62-larder.rules 63-md-z-larder.rules",
        "inst_multiple -o /etc/larder/larder.conf /etc/machine-id",
        *([] if known else ["warned"]),
        "inst_hook initqueue/settled 70 MODULE/larder-assemble.sh",
        "inst_hook initqueue/timeout 70 MODULE/larder-degraded.sh",
        "dracut_need_initqueue",
    ]


@pytest.mark.parametrize(("volume", "missing"), [("", "yes"), (VOLUME, ""), (VOLUME, "yes")])
def test_kernel_without_the_module(tmp_path, volume, missing):
    """Said where root needs it."""
    root = tmp_path / "larder-root"
    root.write_text(f'#!/bin/sh\n[ "$1" = --luks ] || [ -z "{volume}" ] || echo {volume}\n')
    root.chmod(0o755)
    run = call("install", image=tmp_path / "image", root=root, module_is_missing=missing)
    assert (run.returncode, run.stderr) == (0, "")
    assert ("warned" in run.stdout.splitlines()) == bool(volume and missing)


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
    image, root, dmsetup = tmp_path / "image", tmp_path / "larder-root", tmp_path / "dmsetup"
    root.write_text(f'#!/bin/sh\n[ "$1" != --luks ] || echo {mapping} {HEADER} root\n')
    table = f"0 8 crypt aes-xts-plain64 :64:logon:x 0 253:1 0 {flags}"
    dmsetup.write_text(f'#!/bin/sh\n[ "$*" = "table {mapping}" ] && echo "{table}"\n')
    for path in (root, dmsetup):
        path.chmod(0o755)
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
        assert (TOP / "udev" / rule).is_file()
    hooks = re.findall(r'"\$moddir/([\w.-]+)"', text)
    assert len(hooks) == 2
    for name in ["module-setup.sh", *hooks]:
        assert (MODULE / name).is_file() and os.access(MODULE / name, os.X_OK) and f"dracut/{name}" in installed


def sourced(tmp_path, hook, code, root="", cmdline="", recorded=""):
    """By a shell that goes on behind it, whatever larder says."""
    for name, end in (("larder", code), ("modprobe", 1)):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} $* >>{tmp_path}/ran\nexit {end}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "ran").touch()
    (tmp_path / "root").write_text(recorded)
    text = (MODULE / f"larder-{hook}.sh").read_text()
    (tmp_path / "hook.sh").write_text(text.replace("/etc/larder/root", str(tmp_path / "root")))
    env = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", root=root, cmdline=cmdline)
    getarg = 'getarg() { for w in $cmdline; do case $w in "$1"*) echo "${w#"$1"}"; return 0;; esac; done; return 1; }'
    run = subprocess.run(["sh", "-c", f"{getarg}; . {tmp_path}/hook.sh; echo on"], capture_output=True, text=True, env=env)
    assert (run.stdout, run.stderr) == ("on\n", "")
    return (tmp_path / "ran").read_text().splitlines()


@pytest.mark.parametrize("code", [0, 3, 5])
def test_hook_of_what_is_whole(tmp_path, code):
    assert sourced(tmp_path, "assemble", code) == ["modprobe -q larder", "larder assemble --all"]


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
    expected = ["modprobe -q larder", f"larder assemble --degraded --conf {name}"] if name else []
    assert sourced(tmp_path, "degraded", code, root, cmdline, recorded) == expected
