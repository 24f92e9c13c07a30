# SPDX-License-Identifier: GPL-2.0-or-later
"""dm-writeboost from the source that Debian's package dm-writeboost-dkms brings: unpacked, built for a kernel, not installed."""

import re
import subprocess
from pathlib import Path

from host import build

PACKAGE = "dm-writeboost-dkms"


def _source(directory: Path) -> Path | None:
    """Its source, as installed or from the package; None: neither is to be had."""
    for root in (Path("/usr/src"), directory / "usr" / "src"):
        for source in sorted(root.glob("dm-writeboost-*")):
            return source
    directory.mkdir(parents=True, exist_ok=True)
    if not list(directory.glob("*.deb")):
        r = subprocess.run(["apt-get", "-q", "download", PACKAGE], cwd=directory, capture_output=True, text=True)
        if r.returncode:
            return None
    for package in directory.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, directory], check=True, capture_output=True)
    return next(iter(sorted((directory / "usr" / "src").glob("dm-writeboost-*"))), None)


def module(kernel: str) -> Path | None:
    """None: there is no source, or it does not build for this kernel; the log says why."""
    directory = build.cache_directory() / "build" / "writeboost"
    target = directory / kernel / "dm-writeboost.ko"
    with build.locked(directory):
        source = _source(directory)
        if target.exists() or not source:
            return target if target.exists() else None
        work = directory / kernel
        work.mkdir(exist_ok=True)
        for f in source.iterdir():
            if re.search(r"\.[ch]$|^(Makefile|Kbuild)$", f.name):
                (work / f.name).write_bytes(f.read_bytes())
        with open(work / "log", "wb") as log:
            subprocess.run(["make", "-C", f"/lib/modules/{kernel}/build", f"M={work}", "modules"], stdout=log, stderr=log)
    return target if target.exists() else None
