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
    from setups import SETUPS  # noqa: PLC0415

    scale, set_ = session["scale"], cases.SETS[session["set"]]
    sizes = {"ssd": set_.ssd_mb, "hdd": set_.hdd_mb}
    prealloc = {"ssd": True, "hdd": set_.prealloc}
    disks = {
        kind: [
            simdisk.Simdisk.create(f"{kind}{i}", mb=sizes[kind], crash=False, prealloc=prealloc[kind], scale=scale, **session[kind])
            for i in range(2 if set_.setups else 1)
        ]
        for kind in sizes
    }
    ssds, hdds = disks.values()
    line.send({"parameters": {kind: of[0].parameters() for kind, of in disks.items()}})

    def stats(kind: str) -> dict:
        """Of all of a kind together; what is no number: of the first."""
        each = [d.stats() for d in disks[kind]]
        return {name: sum(s[name] for s in each) if isinstance(value, int) else value for name, value in each[0].items()}

    def quiet() -> bool:
        s = stats("hdd")
        return not s["inflight"] and not s["wc_extents"]

    def settle() -> None:
        """Delayed work of peers, and the disk's own cache, come to an end."""
        time.sleep(3 * scale / 2 + 1)
        wait_for(quiet, 100 * scale, "the disk to be idle")

    def reset() -> None:
        for d in (*ssds, *hdds):
            d.reset_stats()

    def flush_disks() -> None:
        for d in hdds:
            d.flush()

    devices = jobs.Devices(reset, lambda: {kind: stats(kind) for kind in disks}, settle, flush_disks)
    rig = Rig(str(ssds[0]), str(hdds[0]), *sizes.values(), scale, *(str(of[1]) for of in (ssds, hdds) if set_.setups))
    start = images.Starter(scale, session["ssd"], session["hdd"]).start
    peer = (PEERS | SETUPS)[session["peer"]](rig)
    jobs.Session(rig, peer, devices, line.send, start).run(set_, session["only"])


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
