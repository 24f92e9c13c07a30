# SPDX-License-Identifier: GPL-2.0-or-later
"""An emulated TPM2 (swtpm) of a machine.  What it keeps is in its directory: the next machine may go on with that."""

import subprocess
import time
from pathlib import Path

from . import process


def start(directory: Path) -> subprocess.Popen:
    """It ends with the machine.  One whose directory is new is empty."""
    directory.mkdir(exist_ok=True)
    socket = directory / "socket"
    socket.unlink(missing_ok=True)
    command = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={directory}", "--terminate", "--ctrl", f"type=unixio,path={socket}"]
    with open(directory / "log", "wb") as log:
        started = process.start(command, stdout=log, stderr=log)
    while not socket.exists():
        if started.poll() is not None:
            raise RuntimeError(f"swtpm: {(directory / 'log').read_text()}")
        time.sleep(0.05)
    return started


def options(directory: Path) -> list[str]:
    """Of QEMU."""
    words = ["-chardev", f"socket,id=tpm,path={directory}/socket", "-tpmdev", "emulator,id=tpm,chardev=tpm"]
    return [*words, "-device", "tpm-tis,tpmdev=tpm"]
