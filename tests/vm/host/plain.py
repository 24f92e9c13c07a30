# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine of plain QEMU that sees nothing of the host: a kernel, an initramfs, disks.  It ends by switching itself off."""

import lzma
import os
import subprocess
from pathlib import Path

from . import kernels, machine

RESULTS = Path(os.environ.get("LARDER_RESULTS", "."))
KERNEL = os.environ.get("LARDER_KERNEL", "")
PROGRAMS = [Path(p) for p in os.environ.get("LARDER_PROGRAMS", "").split(":")]
SECONDS = 1200


def program(name: str) -> Path:
    """One that tests/vm/run has built."""
    return next(p / name for p in PROGRAMS if (p / name).exists())


def larder_module() -> Path:
    return next(Path(p) for p in os.environ["LARDER_MODULES"].split(":") if p.endswith("larder.ko"))


def run(*words: object, **environment: str) -> str:
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=os.environ | environment)
    assert r.returncode == 0, f"{words}: {r.returncode}\n{r.stdout}{r.stderr}"
    return r.stdout


def modules_of(names: list[str], release: str = KERNEL, root: Path = Path("/")) -> list[Path]:
    """Files of modules, each behind those it needs."""
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


def boot(name: str, initramfs: Path, disks: list[Path], append: str, memory: int = 512) -> str:
    """What its console, in the results as NAME.console, has shown.  A disk's serial number is the stem of its file's name."""
    words = ["qemu-system-x86_64", "-machine", "q35", "-cpu", machine.TCG_CPU, "-m", memory, "-nographic", "-no-reboot"]
    words += ["-nodefaults", "-serial", "stdio", "-kernel", kernels.image(KERNEL), "-initrd", initramfs]
    words += ["-append", f"console=ttyS0 panic=-1 {append}"]
    for i, disk in enumerate(disks):
        words += ["-drive", f"if=none,id=d{i},file={disk},format=raw,discard=unmap"]
        words += ["-device", f"virtio-blk-pci,drive=d{i},serial={disk.stem}"]
    console = RESULTS / f"{name}.console"
    with open(console, "wb") as f:
        subprocess.run(
            [str(w) for w in words], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, timeout=SECONDS, check=True
        )
    return console.read_text(errors="replace")
