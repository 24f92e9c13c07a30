# SPDX-License-Identifier: GPL-2.0-or-later
"""A virtual machine over the host's file system, by virtme-ng: one command runs in it, then it ends; or it is killed.

The guest sees the host's files read-only (with throw-away writable layers over /etc, /tmp and others) and one directory, the
results, read-write at the same path.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import autopsy, build, kernels, process, tpm

SESSION = Path(__file__).resolve().parents[1] / "guest" / "session.py"
KVM_PROBE_SECONDS = 20
# TCG emulates string instructions by the byte, and crc32 by the bit: without them the kernel copies four times as fast
TCG_CPU = "max,-erms,-fsrm,-sse4.2"
FROZEN = 120  # seconds past the time limit of a test
# drivers that udev would load at a boot for devices that no test uses: half of the time it takes under TCG
UNUSED = "ahci,sr_mod,sg,kvm,kvm_amd,kvm_intel,iTCO_wdt,i6300esb,lpc_ich,i2c_i801,psmouse,pcspkr,button,aesni_intel,powernow_k8"


def kvm_works() -> bool:
    """Whether a kernel boots under KVM (a /dev/kvm that opens is not enough); remembered.  LARDER_KVM=0|1 decides instead."""
    if os.environ.get("LARDER_KVM") in ("0", "1"):
        return os.environ["LARDER_KVM"] == "1"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with build.locked(build.cache_directory() / "build"):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        memory = build.cache_directory() / "build" / "kvm.json"
        if memory.exists():
            known = json.loads(memory.read_text())
            if known.get("boot_id") == boot_id:
                return known["works"]
        works = _probe_kvm()
        memory.write_text(json.dumps({"boot_id": boot_id, "works": works}))
        return works


def _probe_kvm() -> bool:
    versions = kernels.installed()
    if not versions:
        return False
    command = ["qemu-system-x86_64", "-accel", "kvm", "-cpu", "max", "-m", "256M", "-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-serial", "stdio", "-kernel", str(kernels.image(versions[-1]))]
    command += ["-append", "console=ttyS0 earlyprintk=serial,ttyS0,115200 panic=-1"]
    try:
        out = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=KVM_PROBE_SECONDS
        ).stdout
    except subprocess.TimeoutExpired as e:
        out = e.stdout or b""
    return b"Kernel panic" in out


class Machine:
    """One boot.  command: argument list, run in the guest as root by the session (which loads modules first)."""

    def __init__(
        self,
        kernel: str,
        results: Path,
        products: build.Products,
        command: list[str],
        *,
        disks: list[Path] | None = None,
        memory: str = "2G",
        environment: dict[str, str] | None = None,
        udev: bool = False,
        icount: bool = False,
        modules: bool = True,
        append: str = "",
        share: Path | None = None,
        tpm: bool = False,
    ):
        self.kernel = kernel
        self.results = results
        self.disks = disks or []
        self.memory = memory
        self.icount = icount
        self.append = append
        self.share = share  # another directory that the guest may write
        # an emulated debug kernel takes minutes to compile all that a test imports
        self.bytecode = build.cache_directory() / "bytecode"
        self.tpm = tpm  # an emulated TPM2, new and empty
        self.process: subprocess.Popen | None = None
        self.swtpm: subprocess.Popen | None = None
        self.started = 0.0
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir(parents=True)
        self.bytecode.mkdir(parents=True, exist_ok=True)
        session = {
            "command": command,
            "modules": [self._keep(m) for m in products.modules] if modules else [],
            "programs": [str(p) for p in products.programs],
            "environment": {"PYTHONPYCACHEPREFIX": str(self.bytecode)} | (environment or {}),
            "udev": udev,
        }
        (results / "session.json").write_text(json.dumps(session, indent=1))

    def _keep(self, module: Path) -> str:
        """A copy of its own: the next build may come before this machine has loaded it."""
        return shutil.copy(module, self.results)

    def _disk_options(self) -> list[str]:
        """For QEMU: a power cut keeps what they have completed."""
        options = []
        for i, disk in enumerate(self.disks):
            options += ["-drive", f"if=none,id=larder{i},file={disk},format=raw,cache=writeback,discard=unmap"]
            options += ["-device", f"virtio-blk-pci,drive=larder{i},serial=larder{i}"]
        return options

    def _command(self) -> list[str]:
        c = ["vng", "-r", str(kernels.image(self.kernel)), "--verbose", "--force-9p", "--user", "root", "--cwd", "/"]
        c += ["--cpus", "1", "-m", self.memory, f"--rwdir={self.results}", f"--rwdir={self.bytecode}"]
        if self.share:
            c.append(f"--rwdir={self.share}")
        emulated = self.icount or not kvm_works()
        options = ["-cpu", TCG_CPU if emulated else "max", "-mon", "chardev=monitor,mode=readline"]
        options += ["-chardev", f"socket,id=monitor,path={self.results}/monitor,server=on,wait=off"]
        if emulated:
            c.append("--disable-kvm")
        if self.icount:
            options += ["-icount", "shift=0,sleep=off"]
        options += self._disk_options()
        if self.tpm:
            options += tpm.options(self.results / "tpm")
        c.append("--qemu-opts=" + shlex.join(options))
        c += ["--append", f"log_buf_len=4M modprobe.blacklist={UNUSED} {self.append}".strip()]
        return [*c, "--", shlex.join([sys.executable, str(SESSION), str(self.results)])]

    def start(self) -> "Machine":
        if self.tpm:
            self.swtpm = tpm.start(self.results / "tpm")
        with open(self.results / "output", "wb") as out, open(self.results / "console", "wb") as console:
            self.process = process.start(self._command(), stdout=out, stderr=console, cwd=self.results)
        self.started = time.monotonic()
        return self

    def wait(self, seconds: float) -> str:
        """ "done", "hung" (a test said so), "frozen" (it should have said so) or "timeout"; the machine is gone in any case."""
        end = self.started + seconds
        while True:
            if self.poll() is not None:
                return "done"
            if (self.results / "hung").exists():
                time.sleep(2)  # the kernel log is on its way
                self.kill()
                return "hung"
            frozen = self._frozen()
            if frozen or time.monotonic() > end:
                (self.results / "autopsy").write_text(autopsy.examine(self.results))
                self.kill()
                return "frozen" if frozen else "timeout"
            time.sleep(0.2)

    def _frozen(self) -> bool:
        """Whether the guest's own watchdog is overdue (lib/watchdog.py: it writes the limit of the running test)."""
        limit = self.results / "limit"
        try:
            return time.time() > limit.stat().st_mtime + float(limit.read_text()) + FROZEN
        except (OSError, ValueError):
            return False

    def poll(self) -> int | None:
        return self.process.poll()

    def wait_for(self, name: str, seconds: float) -> None:
        """Until the guest has made the file NAME in the results directory."""
        end = time.monotonic() + seconds
        while not (self.results / name).exists():
            if self.poll() is not None:
                raise RuntimeError(f"the VM ended before it made {name}; see {self.results}")
            if time.monotonic() > end:
                self.kill()
                raise TimeoutError(f"no {name} after {seconds} s; see {self.results}")
            time.sleep(0.1)

    def kill(self) -> None:
        """At once, as a power cut: what virtio disks have completed is in their files, the rest is not."""
        for started in (self.process, self.swtpm):
            if started:
                process.kill(started)

    def exit_status(self) -> int | None:
        """Of the command; None: it did not come to its end."""
        f = self.results / "exit"
        return int(f.read_text()) if f.exists() else None

    def output(self) -> str:
        """What the command printed."""
        return (self.results / "output").read_text(errors="replace")

    def console(self) -> str:
        return (self.results / "console").read_text(errors="replace")
