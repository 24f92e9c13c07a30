# SPDX-License-Identifier: GPL-2.0-or-later
"""A system of system.py that a test drives while it runs: commands by a second serial port, SCSI disks that are plugged and pulled.

WORK is what it runs at the end of its boot: a shell that reads commands from that port, until it is told to switch itself off.
"""

import contextlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from . import plain, process
from .monitor import ask

MODULES = ["virtio_scsi", "sd_mod"]
WORK = r"""#!/bin/bash
stty -F /dev/ttyS1 raw -echo
exec 3<> /dev/ttyS1
modprobe -a virtio_scsi sd_mod
until read -r -t 1 -u 3 line; do echo READY >&3; done
while [ "$line" != off ]; do
	said=$(eval "$line" 2>&1 < /dev/null 3>&-)
	printf '%s\n=%d=\n' "$said" $? >&3
	read -r -u 3 line
done
"""


class Driven:
    """Use driven()."""

    def __init__(self, name: str, initramfs: Path, root: Path, append: str, memory: int, directory: Path):
        """directory: with a short name, for sockets."""
        self.monitor = directory / "monitor"
        self.console_file = Path(os.environ["LARDER_RESULTS"], f"{name}.console")
        words = plain.command(initramfs, [root], append, memory)
        words += ["-device", "virtio-scsi-pci,id=scsi", "-monitor", f"unix:{self.monitor},server=on,wait=off"]
        words += ["-chardev", f"socket,id=port,path={directory}/port,server=on,wait=off", "-serial", "chardev:port"]
        with open(self.console_file, "wb") as console:
            self.process = process.start(words, stdout=console, stderr=console)
        self.plugged = 0
        self.port = socket.socket(socket.AF_UNIX)
        self._connect(directory / "port")
        self._read(r"READY\n")
        self._send("true")
        self._read(r"=0=\n")

    def _connect(self, path: Path) -> None:
        while True:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return self.port.connect(str(path))
            assert self.process.poll() is None, self.console()
            time.sleep(0.05)

    def _send(self, line: str) -> None:
        self.port.sendall(line.encode() + b"\n")

    def _read(self, end: str) -> tuple[str, re.Match]:
        """All that comes up to that, a regular expression of few characters."""
        self.port.settimeout(plain.SECONDS)
        shown = ""
        while not (found := re.search(f"{end}$", shown[-20:])):
            more = self.port.recv(65536).decode(errors="replace")
            assert more, f"QEMU has ended: {shown}\n{self.console()}"
            shown += more
        return shown, found

    def console(self) -> str:
        return self.console_file.read_text(errors="replace")

    def run(self, command: str, status: int | None = 0) -> str:
        """One line of bash; what it says.  status: that it must end with; None: any."""
        self._send(command)
        said, end = self._read(r"=(\d+)=\n")
        said = said[: -len(end[0])].strip("\n")
        assert status in (None, int(end[1])), f"{command}: {end[1]}\n{said}\n{self.console()[-4000:]}"
        return said

    def _tell_qemu(self, *commands: str) -> None:
        said = ask(self.monitor, *commands)
        assert "rror" not in said, said

    def plug(self, disk: Path) -> None:
        """It appears soon, as /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_ and the stem of the file's name."""
        self.plugged += 1
        drive = f"{disk.stem}-{self.plugged}"
        self._tell_qemu(
            f"drive_add 0 if=none,id={drive},file={disk},format=raw,cache=writeback,discard=unmap",
            f"device_add scsi-hd,bus=scsi.0,drive={drive},id={disk.stem},serial={disk.stem}",
        )

    def pull(self, disk: Path) -> None:
        """At once, whatever is being done with it."""
        self._tell_qemu(f"device_del {disk.stem}")

    def off(self) -> str:
        """Its console, when it has switched itself off."""
        self._send("off")
        self.process.wait(plain.SECONDS)
        return self.console()


@contextlib.contextmanager
def driven(name: str, initramfs: Path, root: Path, append: str = "", memory: int = 1024) -> Iterator[Driven]:
    directory = Path(tempfile.mkdtemp(prefix="larder-"))
    machine = Driven(name, initramfs, root, append, memory, directory)
    try:
        yield machine
    finally:
        process.kill(machine.process)
        machine.port.close()
        shutil.rmtree(directory)
