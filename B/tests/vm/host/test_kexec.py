# SPDX-License-Identifier: GPL-2.0-or-later
"""A kernel is exchanged for the next one by kexec: under load, which is a power cut for what is in memory and no more, and from a
system that has stopped its volume and cache.  The oracle has a journal on the host of what was written and flushed.

The machine is plain QEMU with an initramfs of a shell, dmsetup and the oracle, which does the same behind each kexec.
"""

import re
import shlex
import shutil
from pathlib import Path

from host import kernels, plain
from host.kills import CONTROL, DRAIN, START
from lib import kernel_log

LOAD = 150_000  # bytes of journal before the kernel goes

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin DM_DISABLE_UDEV=1
{set_up}mkdir -p {share}
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none share {share}
boot=$(sed 's/.*boot=\\([0-9]*\\).*/\\1/' /proc/cmdline)
echo "KEXEC: boot $boot at $(cut -d ' ' -f 1 /proc/uptime)"
sh -ex {share}/boot-$boot && echo "KEXEC: boot $boot ended"
poweroff -f
"""


class Boots:
    """Scripts that follow one another by kexec.  share: where they, and the journals, are."""

    def __init__(self, share: Path, seed: int):
        self.share, self.seed, self.number = share, seed, 0
        self.oracle = f"--dev /dev/mapper/v --state {share / 'state'}"
        self.verify = ""  # what the boot before has left

    def script(self, text: str, verify: str = "", after: bool = True) -> None:
        """Behind start and judgement.  verify: how the next boot has to judge.  after: loads the next kernel, too."""
        append = f"console=ttyS0 panic=-1 boot={self.number + 1}"
        load = f"kexec {self.share}/vmlinuz {self.share}/initrd {shlex.quote(append)}" if after else ""
        script = "\n".join((START, self.verify, load, text))
        (self.share / f"boot-{self.number}").write_text(script)
        self.number += 1
        self.verify = verify

    def run(self, more: str) -> str:
        return f"oracle run {self.oracle} --size 32m --seed {self.seed + self.number} {more}"

    def under_load(self) -> None:
        """The load is going on when the next kernel begins."""
        journal = self.share / f"journal-{self.number}"
        text = f"""{self.run(f"--journal {journal} --ops 0 --every 150 --control '{CONTROL.format(cache='c')}'")} &
until [ "$(stat -c %s {journal} || echo 0)" -gt {LOAD} ]; do sleep 0.1; kill -0 $!; done
kexec"""
        self.script(text, f"oracle verify {self.oracle} --journal {journal} --after crash\noracle verify {self.oracle}")

    def orderly(self) -> None:
        """Volume and cache are stopped; dirty data stays in the cache."""
        text = f"""dmsetup message v 0 set mode writeback
{self.run("--ops 1500")}
dmsetup status v | grep -v ' dirty_sectors=0 '
dmsetup remove v
dmsetup remove c
sync
kexec"""
        self.script(text, f"oracle verify {self.oracle} --after clean")

    def end(self) -> None:
        text = f"""{DRAIN}
oracle verify {self.oracle}
dmsetup remove v
dmsetup remove c"""
        self.script(text, after=False)


def initramfs(share: Path, directory: Path) -> None:
    tree = directory / "tree"
    for d in ("bin", "lib", "lib64", "proc", "sys", "dev", "run", "tmp"):
        (tree / d).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin")
    plain.run("cc", "-O2", "-Wall", "-static", "-o", tree / "bin/kexec", Path(__file__).parent / "kexec.c")
    for program in (Path("/sbin/dmsetup"), plain.program("oracle")):
        shutil.copy(program, tree / "bin")
        for library in re.findall(r"(/lib\S+)", plain.run("ldd", program)):
            to = tree / library.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, to)
    plain.put_modules(tree, [*plain.modules_of(plain.MODULES), plain.larder_module()])
    (tree / "init").write_text(INIT.format(set_up=plain.SET_UP, share=share))
    (tree / "init").chmod(0o755)
    plain.pack(tree, share / "initrd")
    shutil.copy(kernels.image(plain.kernel()), share / "vmlinuz")
    shutil.rmtree(tree)


def test_kexec(make_disk_file, share, seed, tmp_path):
    """Twice under load, then from a system that has stopped them; what is left dirty is written back by the fourth kernel."""
    ssd, hdd = make_disk_file("ssd", 48), make_disk_file("hdd", 128)
    larder, given = plain.program("larder"), f"{ssd}:{hdd}"
    plain.run(larder, "cache", "create", "c", "--cache", ssd, "--segment-size", "256K", "--yes", LARDER_DEVICES=given)
    plain.run(larder, "volume", "create", "v", "--backing", hdd, "--cache", "c", "--yes", LARDER_DEVICES=given)
    initramfs(share, tmp_path)
    boots = Boots(share, seed)
    boots.under_load()
    boots.under_load()
    boots.orderly()
    boots.end()
    options = ["-virtfs", f"local,path={share},mount_tag=share,security_model=none,multidevs=remap"]
    console = plain.boot("kexec", share / "initrd", [ssd, hdd], "boot=0", memory=1024, options=options)
    bad = kernel_log.bad_lines(console.splitlines())
    assert not bad, "kernel log:\n" + "\n".join(bad)
    assert re.findall(r"KEXEC: (boot \d)", console) == [f"boot {i}" for i in (0, 1, 2, 3, 3)], console[-6000:]
    assert "KEXEC: boot 3 ended" in console, console[-6000:]
    assert len(re.findall(r"\] Linux version ", console)) == 4, "another kernel by a reset would have begun with boot 0"
