# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine of plain QEMU that sees nothing of the host: a kernel, an initramfs, disks.  It ends by switching itself off."""

import lzma
import os
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from . import build, kernels, machine

SECONDS = 1200
# what it is built with, and a shared directory needs, must be loaded first: nothing answers request_module()
MODULES = ["virtio_pci", "virtio_blk", "9p", "9pnet_virtio", "crc32c_generic", "libcrc32c", "dm-mod"]
# what an /init of busybox's shell begins with, behind its PATH: loads what put_modules() has put
SET_UP = """mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /run
echo 8 > /proc/sys/kernel/printk
for m in /modules/*; do insmod $m; done
"""


def environment(kernel: str, products: build.Products, results: Path) -> dict[str, str]:
    """What is read here."""
    return {
        "LARDER_KERNEL": kernel,
        "LARDER_RESULTS": str(results),
        "LARDER_MODULES": ":".join(map(str, products.modules)),
        "LARDER_PROGRAMS": ":".join(map(str, products.programs)),
    }


def kernel() -> str:
    return os.environ["LARDER_KERNEL"]


def program(name: str) -> Path:
    """One that tests/vm/run has built."""
    return next(p / name for p in map(Path, os.environ["LARDER_PROGRAMS"].split(":")) if (p / name).exists())


def larder_module(name: str = "larder.ko") -> Path:
    """That under test, or the one of simulated disks."""
    return next(Path(p) for p in os.environ["LARDER_MODULES"].split(":") if p.endswith(f"/{name}"))


def run(*words: object, **environment: str) -> str:
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=os.environ | environment)
    assert r.returncode == 0, f"{words}: {r.returncode}\n{r.stdout}{r.stderr}"
    return r.stdout


def modules_of(names: list[str], release: str = "", root: Path = Path("/")) -> list[Path]:
    """Files of modules, each behind those it needs."""
    release = release or kernel()
    found = {}
    for name in names:
        for line in run("modprobe", "--show-depends", "--ignore-install", "-d", root, "-S", release, name).splitlines():
            if line.startswith("insmod"):
                found[Path("/", line.split()[1].lstrip("/"))] = True  # below / it says //lib
    return list(found)


def put_modules(tree: Path, modules: list[Path]) -> None:
    """As tree/modules/NUMBER.ko, to be loaded in this order."""
    (tree / "modules").mkdir()
    for i, module in enumerate(modules):
        data = module.read_bytes()
        (tree / "modules" / f"{i:02}.ko").write_bytes(lzma.decompress(data) if module.suffix == ".xz" else data)


def pack(tree: Path, initramfs: Path) -> Path:
    with open(initramfs, "wb") as f:
        subprocess.run("find . | cpio -o -H newc --quiet", shell=True, cwd=tree, stdout=f, check=True)
    return initramfs


def command(initramfs: Path, disks: list[Path], append: str, memory: int, *ports: Path) -> list[str]:
    """Its console is the terminal.  ports: files for more serial ports.  A disk's serial number is the stem of its file's name."""
    words = ["qemu-system-x86_64", "-machine", "q35", "-m", memory, "-nographic", "-no-reboot", "-nodefaults"]
    words += ["-accel", "kvm", "-cpu", "max"] if machine.kvm_works() else ["-cpu", machine.TCG_CPU]
    for port in ("stdio", *(f"file:{p}" for p in ports)):
        words += ["-serial", port]
    words += ["-kernel", kernels.image(kernel()), "-initrd", initramfs, "-append", f"console=ttyS0 panic=-1 {append}"]
    for i, disk in enumerate(disks):
        words += ["-drive", f"if=none,id=d{i},file={disk},format=raw,discard=unmap"]
        words += ["-device", f"virtio-blk-pci,drive=d{i},serial={disk.stem}"]
    return [str(w) for w in words]


def boot(
    name: str,
    initramfs: Path,
    disks: list[Path],
    append: str,
    memory: int = 512,
    options: Iterable[str] = (),
    answers: tuple[tuple[str, str], ...] = (),
) -> str:
    """What its console, in the results as NAME.console, has shown.

    options: more words for QEMU.  answers: (what it shows, what is typed then), one after the other.
    """
    console = Path(os.environ["LARDER_RESULTS"], f"{name}.console")
    words, shown = [*command(initramfs, disks, append, memory), *options], b""
    left = [(a.encode(), b.encode()) for a, b in answers]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0) as process:
        limit = threading.Timer(SECONDS, process.kill)
        limit.start()
        with open(console, "wb", buffering=0) as f:
            while more := process.stdout.read(65536):
                f.write(more)
                shown += more
                if left and left[0][0] in shown:
                    shown = shown.partition(left[0][0])[2]
                    time.sleep(2)  # as who types: systemd's prompt comes before what is typed is hidden
                    process.stdin.write(left.pop(0)[1])
        limit.cancel()
    text = console.read_text(errors="replace")
    assert process.returncode == 0, f"QEMU has ended with {process.returncode}, after {SECONDS} s perhaps\n{text[-4000:]}"
    assert not left, f"{name}: nobody has asked: {left[0][0]}\n{text[-4000:]}"
    return text
