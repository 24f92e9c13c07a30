# SPDX-License-Identifier: GPL-2.0-or-later
"""Which headers `make deps FOR=install` wants (tests/ci/dependencies): by the kernels of the machine.

apt and dpkg are stand-ins.
"""

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
PROGRAMS = {
    "id": "echo 0",
    "uname": "cat $state/release",
    "dpkg": "cat $state/architecture",
    # FORMAT wants what is depended on: of images; else those of the packages named that are installed
    "dpkg-query": """case $3 in
*Depends*) cat $state/images ;;
*) for p; do ! grep -qx "$p" $state/installed || echo "ii  $p"; done ;;
esac""",
    "apt-cache": 'grep -qx "$2" $state/offered || exit 100',
    "apt-get": 'case "$*" in *" update"*) cat $state/fetched >> $state/offered ;; *) echo "$*" >> $state/got ;; esac',
}

pytestmark = pytest.mark.skipif(not Path("/etc/debian_version").exists(), reason="no Debian")


def wanted(tmp_path, release, *, architecture="amd64", images="", offered="", fetched=""):
    """Headers and mokutil that it would install, and what it says.

    offered: of these apt knows; fetched: of these, when it has asked.
    """
    given = {"release": release, "architecture": architecture, "images": images, "installed": ""}
    given |= {"offered": offered.replace(" ", "\n"), "fetched": fetched.replace(" ", "\n")}
    for name, text in given.items():
        (tmp_path / name).write_text(text + "\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\nstate={tmp_path}\n{text}\n")
        (programs / name).chmod(0o755)
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    command = [TOP / "tests/ci/dependencies", "install"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0 and run.stdout == "", run.stderr
    (got,) = (tmp_path / "got").read_text().splitlines()
    assert {"build-essential", "dkms", "mdadm"} <= set(got.split())
    said = [line for line in run.stderr.splitlines() if "installing" not in line]
    return sorted(w for w in got.split() if w.startswith("linux-") or w == "mokutil"), "\n".join(said)


def image(name, version="6.1.0-30-amd64"):
    return f"ii  linux-image-{name} linux-image-{version} (= 6.1.124-1)\n"


ONE = "ii  linux-image-6.1.0-9-amd64 kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120) | linux-initramfs-tool\n"


@pytest.mark.parametrize(
    ("release", "flavour"),
    [
        ("6.1.0-9-amd64", "amd64"),
        ("6.1.0-9-cloud-amd64", "cloud-amd64"),
        ("6.1.0-9-rt-amd64", "rt-amd64"),
        ("6.1.0-0.deb11.7-rt-amd64", "rt-amd64"),
        ("6.12.9+bpo-amd64", "amd64"),
        ("6.12.9+bpo-686-pae", "686-pae"),
        ("6.1.0-9-686-pae", "686-pae"),
        ("6.12.41+deb13-cloud-arm64", "cloud-arm64"),
    ],
)
def test_flavour(tmp_path, release, flavour):
    """Of the kernel that runs, where none says what brings others."""
    headers = f"linux-headers-{flavour}", f"linux-headers-{release}"
    got, said = wanted(tmp_path, release, images=ONE, offered=" ".join(headers) + " mokutil")
    assert (got, said) == (sorted([*headers, "mokutil"]), "")


def test_images_say_it(tmp_path):
    """Two series, and a flavour; what debuggers want is none."""
    names = ["amd64", "6.12-amd64", "cloud-amd64"]
    images = "".join(map(image, names)) + ONE + image("amd64-dbg") + "un  linux-image-generic \n"
    offered = " ".join(f"linux-headers-{n}" for n in [*names, "6.1.0-9-amd64"])
    got, said = wanted(tmp_path, "6.1.0-9-amd64", images=images, offered=offered)
    assert (got, said) == (sorted(offered.split()), "")


def test_bare_system(tmp_path):
    """Whose lists of packages are not there yet."""
    got, said = wanted(tmp_path, "6.1.0-9-arm64", architecture="arm64", fetched="linux-headers-arm64 linux-headers-6.1.0-9-arm64")
    assert (got, said) == (["linux-headers-6.1.0-9-arm64", "linux-headers-arm64"], "")


def test_kernel_of_somebody_else(tmp_path):
    """It goes on with those of the architecture, and says what is left to do."""
    got, said = wanted(tmp_path, "6.18.44-mine", architecture="arm64", offered="linux-headers-arm64")
    assert got == ["linux-headers-arm64"] and "no package linux-headers-6.18.44-mine" in said and said.count("\n") == 0
    (tmp_path / "none").mkdir()
    got, said = wanted(tmp_path / "none", "6.18.44-mine")
    assert got == [] and "no package linux-headers-mine" in said and "no package linux-headers-6.18.44-mine" in said
