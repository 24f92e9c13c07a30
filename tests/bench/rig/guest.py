#!/usr/bin/python3 -B
# SPDX-License-Identifier: GPL-2.0-or-later
"""The first process of the VM.  Everything it needs is in the initramfs, and results leave by a serial line, so that no device of
the host is ever waited for: with -icount the whole run is a pure function of its inputs.

/etc/bench.json: model, peer, set, only, scale, parameters of the simulated disks, modules in the order of loading.
"""

import base64
import json
import os
import subprocess
import sys
import termios
import time
import traceback
import tty
import zlib
from pathlib import Path

sys.path[:0] = ["/bench", "/bench/vm"]


def mount_all() -> None:
    for kind, where in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp"), ("tmpfs", "/run")):
        os.makedirs(where, exist_ok=True)
        subprocess.run(["mount", "-t", kind, kind, where], check=True)
    os.makedirs("/dev/shm", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "shm", "/dev/shm"], check=True)
    subprocess.run(["mount", "-t", "debugfs", "none", "/sys/kernel/debug"], check=True)


class Line:
    """The serial line: one JSON object per line."""

    def __init__(self, path: str):
        self.fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.fd)

    def send(self, value: dict) -> None:
        data = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self.fd, data) :]
        termios.tcdrain(self.fd)


def symbols(all_: bool) -> str:
    """Lines of /proc/kallsyms for functions, of modules or all: deflated, in base 85."""
    lines = [x for x in Path("/proc/kallsyms").read_text().splitlines() if x[17] in "tT" and (all_ or x.endswith("]"))]
    return base64.b85encode(zlib.compress("\n".join(lines).encode() + b"\n", 1)).decode()


def measure(session: dict, line: Line) -> None:
    import cases  # noqa: PLC0415 (needs the mounts)
    import images  # noqa: PLC0415
    import jobs  # noqa: PLC0415
    from lib import simdisk  # noqa: PLC0415
    from peers import PEERS, Rig, wait_for  # noqa: PLC0415

    scale, set_ = session["scale"], cases.SETS[session["set"]]
    sizes = {"ssd": set_.ssd_mb, "hdd": session["hdd_mb"]}
    ssd = simdisk.Simdisk.create("ssd0", mb=sizes["ssd"], crash=False, prealloc=True, scale=scale, **session["ssd"])
    hdd = simdisk.Simdisk.create("hdd0", mb=sizes["hdd"], crash=False, scale=scale, **session["hdd"])
    line.send({"parameters": {"ssd": ssd.parameters(), "hdd": hdd.parameters()}})

    def quiet() -> bool:
        s = hdd.stats()
        return not s["inflight"] and not s["wc_extents"]

    def settle() -> None:
        """Delayed work of peers, and the disk's own cache, come to an end."""
        time.sleep(3 * scale / 2 + 1)
        wait_for(quiet, 100 * scale, "the disk to be idle")

    def reset() -> None:
        ssd.reset_stats()
        hdd.reset_stats()

    devices = jobs.Devices(reset, lambda: {"ssd": ssd.stats(), "hdd": hdd.stats()}, settle, hdd.flush)
    rig = Rig(str(ssd), str(hdd), sizes["ssd"], sizes["hdd"], scale)
    start = images.Starter(scale, session["ssd"], session["hdd"]).start
    jobs.Session(rig, PEERS[session["peer"]](rig), devices, line.send, start).run(set_, session["only"])


def main() -> None:
    os.environ.update({"PATH": "/bin", "LC_ALL": "C", "HOME": "/", "DM_DISABLE_UDEV": "1"})
    mount_all()
    session = json.loads(Path("/etc/bench.json").read_text())
    line = Line("/dev/ttyS1")
    try:
        for module in session["modules"]:
            subprocess.run(["insmod", f"/modules/{module}"], check=True, capture_output=True)
        line.send({"kernel": os.uname().release})
        if session["symbols"]:
            line.send({"symbols": symbols(session["symbols"] == "all")})
        measure(session, line)
        line.send({"done": True})
    except Exception:
        line.send({"failed": traceback.format_exc()[-3000:]})
    Path("/proc/sysrq-trigger").write_text("b")  # QEMU is told not to reboot: it ends
    time.sleep(1000)


if __name__ == "__main__":
    main()
