# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine of another architecture, with a kernel, and as much userland as dmsetup needs, that tests/kernels/run has fetched.

It has a busybox, dmsetup and the oracle; results and share are where they are on the host.
"""

import json
import os
import shlex
import shutil
from pathlib import Path

from . import build, machine, plain

PROGRAMS = ["usr/bin/busybox", "usr/sbin/dmsetup", "usr/bin/oracle"]
INIT = """#!/usr/bin/busybox sh
/usr/bin/busybox --install -s /usr/bin
export PATH=/usr/bin:/usr/sbin DM_DISABLE_UDEV=1
{set_up}for d in {directories}; do
	mkdir -p $d
	mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none $(basename $d) $d
done
echo "page size: $(getconf PAGE_SIZE 2> /dev/null || sed -n 's/^KernelPageSize: *//p' /proc/self/smaps | head -n 1)"
{command} >> {results}/output 2>&1
echo $? > {results}/exit
sync
poweroff -f
"""


class Machine(machine.Machine):
    """Of the release LARDER_ARM64, whatever the kernel of the test is."""

    def _initramfs(self, release: str, root: Path) -> Path:
        session = json.loads((self.results / "session.json").read_text())
        tree = self.results / "tree"
        for d in ("usr/bin", "usr/sbin", "usr/lib", "proc", "sys", "dev", "run", "tmp"):
            (tree / d).mkdir(parents=True)
        for d in ("bin", "sbin", "lib"):
            (tree / d).symlink_to(f"usr/{d}")
        for name in PROGRAMS:
            shutil.copy(root / "arm64" / name, tree / name)
        for library in (root / "arm64/usr/lib").rglob("*.so*"):
            if library.parent.name in ("lib", "aarch64-linux-gnu"):
                to = tree / library.relative_to(root / "arm64")
                to.parent.mkdir(exist_ok=True)
                shutil.copy(library, to, follow_symlinks=False)
        larder = build.cache_directory() / "build" / release / "kernel" / "larder.ko"
        plain.put_modules(tree, [*plain.modules_of(plain.MODULES, release, root), larder])
        init = INIT.format(
            set_up=plain.SET_UP,
            directories=" ".join(str(d) for d in self._directories()),
            command=shlex.join(session["command"]),
            results=self.results,
        )
        (tree / "init").write_text(init)
        (tree / "init").chmod(0o755)
        initramfs = plain.pack(tree, self.results / "initrd")
        shutil.rmtree(tree)
        return initramfs

    def _directories(self) -> list[Path]:
        return [self.results, *([self.share] if self.share else [])]

    def _command(self) -> list[str]:
        release = os.environ["LARDER_ARM64"]
        root = Path(Path("/lib/modules", release, "toolchain").read_text().strip())
        c = ["qemu-system-aarch64", "-machine", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on", "-m", "1G", "-nographic"]
        c += ["-nodefaults", "-no-reboot", "-kernel", str(root / "boot" / f"vmlinuz-{release}")]
        c += ["-initrd", str(self._initramfs(release, root)), "-append", f"console=ttyAMA0 panic=-1 {self.append}".strip()]
        c += ["-chardev", f"file,id=console,path={self.results}/console,append=on", "-serial", "chardev:console"]
        for d in self._directories():
            c += ["-virtfs", f"local,path={d},mount_tag={d.name},security_model=none,multidevs=remap"]
        return c + self._disk_options()
