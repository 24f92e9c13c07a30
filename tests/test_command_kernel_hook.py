# SPDX-License-Identifier: GPL-2.0-or-later
"""What a package of a kernel is told (udev/kernel-postinst): a kernel without the module, where others have it."""

import os
import re
import subprocess
from pathlib import Path

HOOK = Path(__file__).resolve().parents[1] / "udev" / "kernel-postinst"


def kernel(directory, version, module=True, headers=True):
    tree = directory / version
    (tree / "build").mkdir(parents=True)
    ours = "updates/dkms/larder.ko: kernel/drivers/md/dm-mod.ko\n"
    (tree / "modules.dep").write_text("kernel/drivers/md/dm-mod.ko:\n" + ours * module)
    if headers:
        (tree / "build" / "Makefile").write_text("")


def said(directory, *words):
    done = subprocess.run(
        [HOOK, *words], capture_output=True, text=True, env=dict(os.environ, LARDER_MODULES=str(directory)), check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


def test_kernel_without_the_module(tmp_path):
    kernel(tmp_path, "6.1.0-1-amd64")
    kernel(tmp_path, "6.12.1-amd64", module=False)
    text = said(tmp_path, "6.12.1-amd64", "/boot/vmlinuz-6.12.1-amd64")
    assert text.count("\n") == 1 and "6.12.1-amd64 has no module larder" in text and "dkms autoinstall -k 6.12.1-amd64" in text
    assert said(tmp_path, "6.1.0-1-amd64") == ""


def test_headers_are_missing(tmp_path):
    kernel(tmp_path, "6.1.0-1-amd64")
    kernel(tmp_path, "6.12.1-amd64", module=False, headers=False)
    assert "linux-headers-6.12.1-amd64" in said(tmp_path, "6.12.1-amd64")


def test_nobody_uses_larder(tmp_path):
    kernel(tmp_path, "6.1.0-1-amd64", module=False)
    kernel(tmp_path, "6.12.1-amd64", module=False)
    assert said(tmp_path, "6.12.1-amd64") == ""


def test_nothing_to_look_at(tmp_path):
    kernel(tmp_path, "6.1.0-1-amd64")
    (tmp_path / "6.12.1-amd64").mkdir()
    assert said(tmp_path) == said(tmp_path, "6.12.1-amd64") == said(tmp_path, "6.13.0-amd64") == ""


def test_it_is_run_behind_dkms():
    """run-parts goes by names."""
    makefile = (HOOK.parents[1] / "daemon" / "Makefile").read_text()
    for directory in ("postinst.d", "header_postinst.d"):
        name = re.search(rf"install .*kernel-postinst \S*\(KERNEL_HOOKS\)/{directory}/(\S+)", makefile)[1]
        assert sorted([name, "dkms", "initramfs-tools"])[-1] == name
