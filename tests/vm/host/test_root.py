# SPDX-License-Identifier: GPL-2.0-or-later
"""The root filesystem on a volume: an initramfs made by initramfs-tools with our hook and script, booted by plain QEMU.

Nothing of the host's root is seen by these machines: what they find is on their disks.
"""

import re
import shutil
from pathlib import Path

import pytest
from host import plain
from host.plain import kernel, larder_module, program, run

TOP = Path(__file__).resolve().parents[3]
DATA_OFFSET = 1 << 20

INIT = """#!/bin/busybox sh
PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -o remount,rw /
boots=$(busybox cat /boots)
boots=$((boots + 1))
echo $boots > /boots
busybox sync
root=$(busybox grep -o '^/dev/[^ ]* / ' /proc/mounts)
echo "ROOT: boot $boots on $root of "$(busybox cat /sys/block/dm-*/dm/name | busybox sort)
busybox mount -o remount,ro /
busybox poweroff -f
"""

MODULES = "virtio_pci\nvirtio_blk\next4\ncrc32c_generic\ndm_mod\n"

# puts the module that is under test where an installed one would be; mkinitramfs runs depmod behind the hooks
MODULE_HOOK = f"""#!/bin/sh
[ "$1" != prereqs ] || exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules dm_mod crc32c
mkdir -p "$DESTDIR/lib/modules/$version/updates"
cp {larder_module()} "$DESTDIR/lib/modules/$version/updates/larder.ko"
"""


@pytest.fixture(scope="module")
def initramfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    conf = tmp_path_factory.mktemp("conf")
    (conf / "initramfs.conf").write_text("MODULES=list\nBUSYBOX=y\nCOMPRESS=gzip\n")
    (conf / "modules").write_text(MODULES)
    for directory in ("hooks", "scripts/local-block", "conf.d"):
        (conf / directory).mkdir(parents=True)
    shutil.copy(TOP / "udev/initramfs/hook", conf / "hooks/larder")
    shutil.copy(TOP / "udev/initramfs/local-block", conf / "scripts/local-block/larder")
    (conf / "hooks/module").write_text(MODULE_HOOK)
    (conf / "hooks/module").chmod(0o755)
    out = conf / "initrd"
    ours = {"LARDER_PROGRAM": str(program("larder")), "LARDER_PROBE": str(program("larder-probe"))}
    ours["LARDER_RULES"] = str(TOP / "udev")
    ours["LARDER_ROOT"] = str(TOP / "udev" / "larder-root")
    run("mkinitramfs", "-d", conf, "-o", out, kernel(), **ours)
    names = run("lsinitramfs", out).splitlines()
    rules = ("62-larder.rules", "63-md-z-larder.rules", "55-dm.rules")
    assert "etc/machine-id" in names or not Path("/etc/machine-id").exists()
    for wanted in ("sbin/larder", "larder-probe", "larder.ko", "local-block/larder", *rules):
        assert any(x.endswith(wanted) for x in names), f"{wanted} is not in the initramfs"
    return out


@pytest.fixture
def disks(make_disk_file, tmp_path) -> list[Path]:
    """Two SSDs and a disk; the filesystem is written to it where the volume's data are.  Three more that root does not need."""
    ssds, hdd = [make_disk_file(f"ssd{i}", 32) for i in range(2)], make_disk_file("hdd", 96)
    larder = program("larder")
    given = ":".join(map(str, [*ssds, hdd]))
    run(larder, "cache", "create", "root", "--cache", ssds[0], "--cache", ssds[1], "--yes", LARDER_DEVICES=given)
    run(larder, "volume", "create", "root", "--backing", hdd, "--cache", "root", "--yes", LARDER_DEVICES=given)
    others = [make_disk_file(f"other{i}", 32) for i in range(3)]
    given = ":".join(map(str, others))
    run(larder, "cache", "create", "other", "--cache", others[0], "--cache", others[1], "--yes", LARDER_DEVICES=given)
    run(larder, "volume", "create", "other", "--backing", others[2], "--cache", "other", "--yes", LARDER_DEVICES=given)
    tree = tmp_path / "tree"
    for directory in ("bin", "sbin", "proc", "sys", "dev", "run", "root"):
        (tree / directory).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin/busybox")
    (tree / "bin/sh").symlink_to("busybox")
    (tree / "sbin/init").write_text(INIT)
    (tree / "sbin/init").chmod(0o755)
    (tree / "boots").write_text("0\n")
    run("mkfs.ext4", "-q", "-F", "-d", tree, "-E", f"offset={DATA_OFFSET}", hdd, "90M")
    return [*ssds, hdd, *others]


def boot(name: str, initramfs: Path, disks: list[Path]) -> str:
    return plain.boot(name, initramfs, disks, "root=/dev/mapper/root ro")


def test_root(initramfs, disks):
    """Whole, twice, in another order of disks; then without an SSD: what was written is there; what else lacks one waits."""
    both = r"ROOT: boot {} on /dev/\S+ / +of larder-cache-other larder-cache-root other root"
    on = r"ROOT: boot {} on /dev/\S+ / +of larder-cache-root root"
    text = boot("whole", initramfs, disks)
    assert re.search(both.format(1), text), text[-4000:]
    text = boot("reversed", initramfs, disks[::-1])
    assert re.search(both.format(2), text), text[-4000:]
    assert "WITHOUT" not in text
    text = boot("degraded", initramfs, [*disks[1:3], *disks[4:]])
    assert re.search(on.format(3), text), text[-4000:]
    assert "WITHOUT ALL OF ITS SSDs" in text
