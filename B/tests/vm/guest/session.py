# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in the guest, as root: prepares it, runs the command of session.json, leaves exit status and kernel log in the results."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

KMEMLEAK = Path("/sys/kernel/debug/kmemleak")
SETTINGS = {
    "kernel/printk": "8 4 1 7",
    "kernel/hung_task_timeout_secs": "60",
    "kernel/hung_task_warnings": "-1",
    "kernel/sysrq": "1",
}


def load_modules(modules: list[str]) -> None:
    subprocess.run(["modprobe", "-a", "virtio_blk", "dm-mod"], check=True)
    for m in modules:
        depends = subprocess.run(["modinfo", "-F", "depends", m], check=True, capture_output=True, text=True).stdout.strip()
        for name in filter(None, depends.split(",")):
            subprocess.run(["modprobe", name], check=True)
        subprocess.run(["insmod", m], check=True)


def quick_programs(path: str) -> str:
    """Copies of what tests run most, and of the libraries, in memory: the root is the host's by 9p without a cache, so that each
    start of a program fetches all of it again.  Returns the directory."""
    directory = Path("/run/larder")
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192M,mode=755", "larder", str(directory)], check=True)
    for name in ("larder", "larderd", "larder-probe", "oracle", "explore", "dmsetup", "mount", "umount", "e2fsck", "xfs_repair"):
        program = shutil.which(name, path=path)
        if not program:
            continue
        shutil.copy(program, directory)
        for plugin in Path(program).parent.glob(f"nbdkit-{name}-plugin.so"):  # larder looks for it beside itself
            shutil.copy(plugin, directory)
        libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"=> (/\S+)", libraries):
            if not (directory / Path(library).name).exists():
                shutil.copy(library, directory)
    return str(directory)


def stop_udev() -> None:
    """Its probing would show in the disks' counters, and hold devices open.  Device nodes are made by devtmpfs and libdevmapper."""
    subprocess.run(["udevadm", "settle", "-t", "30"], check=False)
    subprocess.run(["udevadm", "control", "--exit"], check=False)
    # on a busy host it may not have come to that: it would take away the nodes of devices that are removed
    subprocess.run(["pkill", "-KILL", "-x", "systemd-udevd|.udev-worker."], check=False)


def report_leaks(modules: list[str]) -> None:
    """What our modules allocated and nobody points to goes to the kernel log, as a bad line; only in a debug kernel."""
    if not KMEMLEAK.exists():
        return
    try:
        for _ in range(2):  # what is younger than 5 s is not looked at
            time.sleep(6)
            KMEMLEAK.write_text("scan")
        leaks = KMEMLEAK.read_text().split("unreferenced object")
    except OSError as e:
        Path("/dev/kmsg").write_text(f"BUG: memory leaks were not looked for: kmemleak has given up: {e}\n")
        return
    for leak in leaks:
        if any(f"[{Path(m).stem}]" in leak for m in modules):
            Path("/dev/kmsg").write_text("BUG: memory leak:" + " |".join(leak.splitlines())[:900])


def main() -> int:
    results = Path(sys.argv[1])
    session = json.loads((results / "session.json").read_text())
    path = f"{':'.join(session['programs'])}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    quick = quick_programs(path)
    os.environ.update({"PATH": f"{quick}:{path}", "LD_LIBRARY_PATH": quick})
    os.environ.update(session["environment"])
    os.environ.update({"LARDER_RESULTS": str(results), "LC_ALL": "C.UTF-8", "HOME": "/root"})
    # of programs that are built with sanitizers; conftest.py looks for it
    options = f"log_path={results}/sanitizer:detect_leaks=1:exitcode=99:quarantine_size_mb=32:print_stacktrace=1"
    os.environ.update({"ASAN_OPTIONS": options, "UBSAN_OPTIONS": options})
    for name, value in SETTINGS.items():
        Path("/proc/sys", name).write_text(value)
    status = 3
    try:
        if not session["udev"]:
            stop_udev()
            os.environ["DM_DISABLE_UDEV"] = "1"
        load_modules(session["modules"])
        os.environ["LARDER_MODULES"] = " ".join(session["modules"])
        shutil.copyfile("/proc/kallsyms", results / "kallsyms")  # for an autopsy
        status = subprocess.run(session["command"], cwd="/tmp", stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT).returncode
        report_leaks(session["modules"])
    except subprocess.CalledProcessError as e:
        print(f"session: {e}", flush=True)
    finally:
        with open(results / "dmesg", "wb") as f:
            subprocess.run(["dmesg"], stdout=f, check=False)
        (results / "exit.new").write_text(str(status))
        (results / "exit.new").rename(results / "exit")
    return status


if __name__ == "__main__":
    sys.exit(main())
