# SPDX-License-Identifier: GPL-2.0-or-later
"""The root filesystem on a volume: an initramfs made by initramfs-tools with our hook and scripts, booted by plain QEMU.

Nothing of the host's root is seen by these machines: what they find is on their disks.  The encrypted root is a Debian that was
copied into a stack, in one of them, and has made its initramfs itself: by initramfs-tools, or by dracut with our module, whose
systemd asks for the passphrase.
"""

import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from host import plain, system
from host.plain import kernel, larder_module, program, run
from lib import kernel_log

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
    for directory in ("hooks", "scripts/local-top", "scripts/local-block", "conf.d"):
        (conf / directory).mkdir(parents=True)
    shutil.copy(TOP / "udev/initramfs/hook", conf / "hooks/larder")
    for stage in ("local-top", "local-block"):
        shutil.copy(TOP / "udev/initramfs" / stage, conf / "scripts" / stage / "larder")
    (conf / "hooks/module").write_text(MODULE_HOOK)
    (conf / "hooks/module").chmod(0o755)
    out = conf / "initrd"
    ours = {"LARDER_PROGRAM": str(program("larder")), "LARDER_PROBE": str(program("larder-probe"))}
    ours["LARDER_RULES"] = str(TOP / "udev")
    ours["LARDER_ROOT"] = str(TOP / "udev" / "larder-root")
    run("mkinitramfs", "-d", conf, "-o", out, kernel(), **ours)
    names = run("lsinitramfs", out).splitlines()
    rules = ("62-z-larder.rules", "63-md-z-larder.rules", "55-dm.rules")
    assert "etc/machine-id" in names or not Path("/etc/machine-id").exists()
    for wanted in ("sbin/larder", "larder-probe", "larder.ko", "local-top/larder", "local-block/larder", *rules):
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


PASSPHRASE = "telltale of a passphrase"


class Maker:
    """Of an initramfs: what it comes in; what that says of the LUKS layer as it is made; what asks for the passphrase there, and
    is said on the console of a wrong one, if anything is."""

    def __init__(self, packages: str, made: str, prompt: str, refused: str):
        self.packages, self.made, self.prompt, self.refused = packages, made, prompt, refused
        self.answer, self.wrong = (prompt, PASSPHRASE + "\n"), (prompt, PASSPHRASE[:-1] + "\n")

    def asked(self, text: str) -> tuple[int, int]:
        """How often; how often it was wrong."""
        times = text.count(self.prompt)
        return times, text.count(self.refused) if self.refused else times - 1


MAKERS = {
    "initramfs-tools": Maker(
        ",initramfs-tools,cryptsetup-initramfs,busybox",
        "root-crypt has no line in /etc/crypttab, and needs none",
        "Please unlock disk root-crypt:",
        "bad password or options?",
    ),
    "dracut": Maker(",dracut-core", "", "Please enter passphrase for disk root (root-crypt)", ""),
}

# what the system does at the end of each boot; the first one is of the disk that it is copied from
WORK = (
    system.SHELL
    + r"""
udevadm settle
case $phase in
create)
	printf %s '"""
    + PASSPHRASE
    + r"""' | larder create root --backing $disks-hdd --cache $disks-ssd0 --cache $disks-ssd1 --encrypt luks2 --iter-time 10 \
		--mkfs ext4 --yes || say "cannot create root"
	rm -rf /usr/share/locale /usr/share/doc /usr/share/man
	mount /dev/mapper/root-crypt /mnt && cp -ax /. /mnt || say "cannot copy"
	echo "/dev/mapper/root-crypt / ext4 defaults 0 1" > /mnt/etc/fstab
	echo 0 > /mnt/root/boots
	for d in dev proc sys; do mount --rbind /$d /mnt/$d; done
	if command -v dracut > /dev/null; then
		chroot /mnt dracut --kver "$(uname -r)" "/boot/initrd.img-$(uname -r)" || say "cannot make the initramfs"
	else
		echo MODULES=dep > /mnt/etc/initramfs-tools/conf.d/modules # what it takes by itself is not enough
		chroot /mnt update-initramfs -c -k "$(uname -r)" || say "cannot make the initramfs"
	fi
	tar -C /mnt/boot -cf $disks-initrd "initrd.img-$(uname -r)" || say "cannot hand it out"
	sync
	;;
*)
	unit=larder-unlock@root
	for ((i = 0; i < 600; i++)); do [ "$(systemctl is-active $unit)" = active ] && break; sleep 0.5; done
	boots=$(($(< /root/boots) + 1))
	say "boot $boots on $(findmnt --noheadings --output SOURCE,FSTYPE,OPTIONS / | sed 's/,.*//' | xargs)"
	echo "$boots" > /root/boots
	larder status root; say "status $?"
	larder show root --noheadings -o type,state,mount | head -n 3 | while read -r layer; do say "$(echo $layer)"; done
	larder lock root; say "lock $?"
	larder stop root; say "stop $?"
	echo "$boots" > /root/after || say "not writable any more"
	say "unit $(systemctl is-active $unit), $(ls /run/systemd/ask-password | grep -c ^ask) questions"
	say "$(ls /run/larder/stopped 2> /dev/null | wc -l) marks of what was stopped, or locked"
	;;
esac
systemctl list-units --failed --no-legend | grep -e larder -e crypt | xargs -r echo "SYSTEM: $phase: failed units"
dmesg
sync
"""
)


@pytest.fixture
def directory() -> Iterator[Path]:
    """Among the results: the minutes of a machine outlast what others leave of the temporary directories of pytest."""
    d = Path(os.environ["LARDER_RESULTS"], "encrypted")
    d.mkdir()
    yield d
    shutil.rmtree(d)


@pytest.fixture(params=MAKERS)
def maker(request) -> Maker:
    return MAKERS[request.param]


@pytest.fixture
def encrypted(make_disk_file, directory, maker):
    """The initramfs that the system in the stack has made; two SSDs and a disk, which the stack is on."""
    disks = [make_disk_file(*disk) for disk in (("ssd0", 64), ("ssd1", 64), ("hdd", 800))]
    root, out = system.image(directory, WORK, maker.packages), make_disk_file("initrd", 128)
    said, text = start("create", system.initramfs(directory), [root, *disks, out])
    root.unlink()
    assert said == [], text[-6000:]
    assert maker.made in text
    with tarfile.open(out) as tar:
        tar.extractall(directory)
    return directory / f"initrd.img-{kernel()}", disks


def start(phase: str, initramfs: Path, disks: list[Path], *answers: tuple[str, str]) -> tuple[list[str], str]:
    """What it said, and its console.

    The kernel is silent, so that no line of its log is in the middle of a prompt; and a busy host makes what it takes for lockups.
    """
    words = f"root=/dev/mapper/root-crypt ro phase={phase} loglevel=4 nosoftlockup systemd.mask=serial-getty@ttyS0.service"
    text = plain.boot(f"encrypted-{phase}", initramfs, disks, words, memory=1024, answers=answers)
    bad = kernel_log.bad_lines(x for x in text.splitlines() if x.startswith("["))
    assert not bad, f"kernel log of the boot {phase}:\n" + "\n".join(bad)
    assert PASSPHRASE[:-1] not in text
    return system.said(phase, text), text


def seen(boots: int, status: int, word: str) -> list[str]:
    """What the system says at one of its boots; it is refused that its own root is locked, or stopped, which stays writable."""
    return [
        f"boot {boots} on /dev/mapper/root-crypt ext4 rw",
        f"status {status}",
        f"encrypted {word} /",
        "ext4 mounted /",
        "luks2 open",
        "lock 4",
        "stop 4",
        "unit active, 0 questions",
        "0 marks of what was stopped, or locked",
    ]


def test_encrypted_root(encrypted, maker):
    """The passphrase is asked for once, and larder knows that the stack is open; without an SSD, behind a wrong one."""
    initramfs, (*ssds, hdd) = encrypted
    said, text = start("whole", initramfs, [*ssds, hdd], maker.answer)
    assert maker.asked(text) == (1, 0)
    assert said == seen(1, 0, "fine"), text[-6000:]
    said, text = start("degraded", initramfs, [ssds[1], hdd], maker.wrong, maker.answer)
    assert maker.asked(text) == (2, 1)
    assert "WITHOUT ALL OF ITS SSDs" in text
    assert said == seen(2, 10, "degraded"), text[-6000:]
