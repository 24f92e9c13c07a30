# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine of plain QEMU that sees nothing of the host: a kernel, an initramfs, disks.  It ends by switching itself off."""

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
