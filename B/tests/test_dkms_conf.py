# SPDX-License-Identifier: GPL-2.0-or-later
"""Which kernels dkms.conf excludes: those that kernel/compat.h refuses.

A build that fails leaves their packages half installed.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
# sourced as dkms does it; then as dkms asks it of a release
ASK = """
. "$1/dkms.conf" && [ "$PACKAGE_NAME" = larder ] || exit 9
[[ $kernelver =~ $BUILD_EXCLUSIVE_KERNEL ]]
"""
COMPAT = (TOP / "kernel" / "compat.h").read_text()
VERSION = r"KERNEL_VERSION\((.*?), (.*?), (.*?)\)"
REFUSED = [tuple(map(int, m)) for m in re.findall(rf"FROM_TO\({VERSION}, {VERSION}", COMPAT)]


def excluded(tmp_path, release, version=None):
    """version: what the headers say; None: there are none."""
    if version:
        header = tmp_path / "include/generated/uapi/linux/version.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        a, b, c = version
        header.write_text(f"#define LINUX_VERSION_CODE {(a << 16) + (b << 8) + min(c, 255)}\n#define LINUX_VERSION_MAJOR {a}\n")
    given = {"kernelver": release, "kernel_source_dir": str(tmp_path) if version else "", "dkms_tree": "/var/lib/dkms"}
    run = subprocess.run(["bash", "-c", ASK, "bash", TOP], env=os.environ | given, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1) and run.stdout == run.stderr == ""
    return run.returncode == 1


def test_what_compat_refuses(tmp_path):
    """At each end of each of its ranges, and between."""
    assert len(REFUSED) == 4
    versions = {(6, minor, sub) for minor in range(1, 13) for sub in (0, 1, 2, 10, 11, 22, 23, 82, 83, 84, 255, 300)} | {(7, 0, 0)}
    for version in sorted(versions):
        refused = any(r[:3] <= version < r[3:] for r in REFUSED)
        release = f"{version[0]}.{version[1]}.0-99-amd64"
        assert excluded(tmp_path, release, version) == refused, version


@pytest.mark.parametrize(
    ("release", "version", "out"),
    [
        ("6.1.0-13-amd64", (6, 1, 55), True),  # Debian's do not say it
        ("6.1.0-30-amd64", (6, 1, 124), False),
        ("6.1.0-30-amd64", None, False),  # that there are no headers dkms says itself
        ("6.12.9+bpo-amd64", (6, 12, 9), False),
        ("5.10.0-30-amd64", (5, 10, 218), True),
        ("6.0.0-1-amd64", (6, 0, 3), True),
        ("5.10.0-30-amd64", None, True),
    ],
)
def test_release(tmp_path, release, version, out):
    assert excluded(tmp_path, release, version) == out
