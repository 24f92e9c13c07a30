# SPDX-License-Identifier: GPL-2.0-or-later
"""Which kernels can be booted: an image in /boot or /lib/modules (tests/debug/kernel), with headers in /lib/modules."""

import os
import re
import subprocess
from pathlib import Path

from . import build


class NoKernelError(Exception):
    """No kernel of that version is installed."""


def installed() -> list[str]:
    """Full versions, newest last."""
    found = [p.parent.name for p in Path("/lib/modules").glob("*/build") if image(p.parent.name).exists()]
    return sorted(found, key=lambda v: [int(n) for n in re.findall(r"\d+", v)])


def image(version: str) -> Path:
    own = Path("/lib/modules", version, "vmlinuz")
    return own if own.exists() else Path("/boot") / f"vmlinuz-{version}"


def ordinary(version: str) -> bool:
    """As kernel/build has it."""
    return "debug" not in version and not Path("/lib/modules", version, "toolchain").exists()


def tested() -> list[str]:
    """Those that kernel/build says tests run on; LARDER_KERNELS, with commas, says otherwise."""
    if os.environ.get("LARDER_KERNELS"):
        return os.environ["LARDER_KERNELS"].split(",")
    return subprocess.run(
        [build.TOP / "kernel" / "build", "--kernels"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()


def choose(wanted: str) -> list[str]:
    """ "all", or full versions or series ("6.1": the newest, but for debug kernels and those of tests/kernels/run), with commas."""
    chosen = []
    for w in tested() if wanted == "all" else wanted.split(","):
        matching = [v for v in installed() if v == w or (re.match(re.escape(w) + r"[.-]", v) and ordinary(v))]
        if not matching:
            there = ", ".join(installed()) or "none"
            raise NoKernelError(f"kernel {w or '(none)'} is not installed with its headers; there are: {there}")
        chosen.append(w if w in matching else matching[-1])
    if not chosen:
        raise NoKernelError("no kernel is installed with its headers")
    return chosen
