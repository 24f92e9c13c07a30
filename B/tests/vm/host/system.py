# SPDX-License-Identifier: GPL-2.0-or-later
"""A Debian 12 with systemd on a disk of its own, and an initramfs that does no more than mount it.

The packages come from a mirror, once: their tar file is kept in the cache directory, under a name that has the list in it.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from . import build
from .plain import kernel, larder_module, modules_of, pack, program, put_modules, run

TOP = build.TOP
RELEASE = "bookworm"
PACKAGES = "systemd-sysv,udev,dbus,kmod,dmsetup,mdadm,cryptsetup-bin,e2fsprogs,mount"
PACKAGES += ",libjson-c5,libcryptsetup12,libdevmapper1.02.1,libncursesw6"  # of the command
MACHINE_ID = "6c61726465722d746573742d6d616368"
# what it loads, with what that depends on; and first of all what its root needs
MODULES = ["dm_mod", "dm_crypt", "raid456", "xts", "ecb", "aes_generic", "cbc", "sha256_generic", "algif_skcipher", "algif_hash"]
FIRST = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"]
SIZE = "900M"
# what tar and mkfs are told where we are not root: all is root's in that system
AS_USER = ([], []) if os.getuid() == 0 else (["--no-same-owner"], ["unshare", "--map-root-user"])

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /new
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
for m in /modules/*; do /bin/busybox insmod $m; done
disk=$(/bin/busybox grep -l '^system$' /sys/block/vd*/serial)
disk=${disk%/serial}
/bin/busybox mount -t ext4 /dev/${disk##*/} /new
/bin/busybox umount /proc /sys /dev
exec /bin/busybox switch_root /new /sbin/init
"""

# what a test lets it do at the end of each boot
UNIT = """[Unit]
Description=What the test does
[Service]
Type=oneshot
ExecStart=/root/work
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
"""


# what such a script may begin with: the word phase= of the command line is $phase, and what it sees it says in lines with SYSTEM
SHELL = r"""#!/bin/bash
phase=$(sed 's/.*phase=\([a-z]*\).*/\1/' /proc/cmdline)
say() { echo "SYSTEM: $phase: $*"; }
disks=/dev/disk/by-id/virtio

# fill DIR: a file with what is in it, durable
fill() {
	head -c 300000 /dev/urandom > "$1/content" || say "cannot write to $1"
	(cd "$1" && sha256sum content > sum && sync -f .) || say "cannot write to $1"
}
check() { (cd "$1" && mountpoint -q . && sha256sum --quiet -c sum) && say "$1 holds what was written" || say "$1 is WRONG"; }
# arrives DIR...: until each is mounted
arrives() { for d; do for ((i = 0; i < 600; i++)); do mountpoint -q "$d" && break; sleep 0.5; done; done; }
# questions of password agents that are open now, by file
questions() { grep -l '^Id=larder:' /run/systemd/ask-password/ask.* 2> /dev/null; }
# asked N: until so many are
asked() { for ((i = 0; i < 600; i++)); do [ "$(questions | wc -l)" = "$1" ] && break; sleep 0.5; done; }
answer() { printf %s "$2" | /lib/systemd/systemd-reply-password 1 "$(sed -n 's/^Socket=//p' "$1")"; }
"""
# and end with
SHELL_END = r"""
systemctl list-units --failed --no-legend | grep -e larder -e srv -e crypt | xargs -r echo "SYSTEM: failed units"
sync
"""


def said(phase: str, console: str) -> list[str]:
    """In these lines."""
    return re.findall(rf"SYSTEM: (?:{phase}: )?(.*?)\r?$", console, re.MULTILINE)


def clean(packages: str = PACKAGES) -> Path:
    """The tar file of the system without anything of ours."""
    key = hashlib.sha256(f"{RELEASE} {packages}".encode()).hexdigest()[:12]
    directory = build.cache_directory() / "system"
    tar = directory / f"{RELEASE}-{key}.tar"
    with build.locked(directory):
        if not tar.exists():
            new = tar.with_suffix(".new")
            words = ["mmdebstrap", "--quiet", "--format=tar", "--variant=minbase", "--components=main"]
            words += ["--aptopt=APT::Install-Recommends false", f"--include={packages}", RELEASE, new]
            run(*words)
            new.rename(tar)
    return tar


def initramfs(directory: Path) -> Path:
    tree = directory / "initramfs"
    (tree / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    put_modules(tree, modules_of(FIRST))
    return pack(tree, directory / "initrd")


def put(tree: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)


def image(
    directory: Path,
    work: str,
    more: str = "",
    simulated: bool = False,
    files: dict[str, str] | None = None,
    modules: Iterable[str] = (),
) -> Path:
    """The disk, whose serial number is "system".

    work: a script that runs at the end of each boot; then the machine goes off.  more: packages, each behind a comma.
    simulated: it has the module of simulated disks, too.  files: more of them, with their text.  modules: more of the kernel's.
    """
    tree, out = directory / "tree", directory / "system.img"
    tree.mkdir()
    run("tar", "-C", tree, "--exclude=./dev/*", *AS_USER[0], "-xf", clean(PACKAGES + more))
    for part, products in (("tools", program("larder").parent), ("daemon", program("larderd").parent)):
        run("make", "-s", "-C", TOP / part, "install", f"BUILD={products}", f"DESTDIR={tree}", "PREFIX=/usr")
    loadable = tree / "usr/lib/modules" / kernel()
    for module in modules_of([*FIRST, *MODULES, *modules]):
        to = loadable / module.relative_to(Path("/lib/modules", kernel()))
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(module, to)
    (loadable / "updates").mkdir()
    for name in ("larder.ko", *(["simdisk.ko"] if simulated else [])):
        shutil.copy(larder_module(name), loadable / "updates" / name)
    for name in ("modules.builtin", "modules.order", "modules.builtin.modinfo"):
        shutil.copy(Path("/lib/modules", kernel(), name), loadable)
    run("depmod", "-b", tree, kernel())
    shutil.copy(f"/boot/config-{kernel()}", tree / "boot")  # for who makes an initramfs
    put(tree, "etc/machine-id", MACHINE_ID + "\n")
    put(tree, "etc/hostname", "larder\n")
    put(tree, "etc/fstab", "/dev/disk/by-id/virtio-system / ext4 defaults 0 1\n")
    put(tree, "etc/systemd/system/work.service", UNIT)
    put(tree, "root/work", work, 0o755)
    for name, text in (files or {}).items():
        put(tree, name, text)
    wanted = tree / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    (wanted / "work.service").symlink_to("../work.service")
    run(*AS_USER[1], "mkfs.ext4", "-q", "-F", "-d", tree, out, SIZE)
    shutil.rmtree(tree)
    return out
