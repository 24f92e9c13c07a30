# SPDX-License-Identifier: GPL-2.0-or-later
"""What a package of a kernel is told (udev/kernel-postinst): a kernel without the module, where others have it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[1] / "udev" / "kernel-postinst"


def kernel(directory, version, module=True, headers=True):
    tree = directory / version
    (tree / "build").mkdir(parents=True)
    ours = "updates/dkms/larder.ko: kernel/drivers/md/dm-mod.ko\n"
    (tree / "modules.dep").write_text("kernel/drivers/md/dm-mod.ko:\n" + ours * module)
    if module:
        (tree / "updates" / "dkms").mkdir(parents=True)
        (tree / "updates" / "dkms" / "larder.ko").write_text("")
    if headers:
        (tree / "build" / "Makefile").write_text("")


def said(directory, *words, **more):
    environment = os.environ | {"LARDER_MODULES": str(directory), "LARDER_BOOT": str(directory / "boot")} | more
    done = subprocess.run([HOOK, *words], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


def test_kernel_without_the_module(tmp_path):
    kernel(tmp_path, "6.1.0-1-amd64")
    kernel(tmp_path, "6.12.1-amd64", module=False)
    text = said(tmp_path, "6.12.1-amd64", "/boot/vmlinuz-6.12.1-amd64")
    assert text.count("\n") == 1 and "6.12.1-amd64 has no module larder" in text
    assert "dkms autoinstall -k 6.12.1-amd64, then update-initramfs -u -k 6.12.1-amd64" in text
    assert said(tmp_path, "6.1.0-1-amd64") == ""


def test_headers_are_missing(tmp_path):
    kernel(tmp_path, "6.1.0-1-amd64")
    kernel(tmp_path, "6.12.1-amd64", module=False, headers=False)
    text = said(tmp_path, "6.12.1-amd64")
    assert "linux-headers-6.12.1-amd64" in text and "then update-initramfs -u -k 6.12.1-amd64" in text


@pytest.mark.parametrize("name", ["initrd.img-6.1.0-1-amd64", "initramfs-6.1.0-1-amd64.img"])
def test_module_came_behind_the_initramfs(tmp_path, name):
    """From headers that came later."""
    kernel(tmp_path, "6.1.0-1-amd64")
    (tmp_path / "boot").mkdir()
    image = tmp_path / "boot" / name
    image.write_text("")
    assert said(tmp_path, "6.1.0-1-amd64") == ""
    os.utime(image, (1, 1))
    text = said(tmp_path, "6.1.0-1-amd64")
    assert text.count("\n") == 1 and "older than its module larder" in text and "update-initramfs -u -k 6.1.0-1-amd64" in text


def test_remedy_of_dracut(tmp_path):
    """Where that makes the initramfs."""
    kernel(tmp_path, "6.1.0-1-amd64")
    kernel(tmp_path, "6.12.1-amd64", module=False)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sed", "head", "find", "grep"):
        (programs / name).symlink_to(shutil.which(name))
    (programs / "dracut").symlink_to("/bin/true")
    assert "then dracut --force --kver 6.12.1-amd64" in said(tmp_path, "6.12.1-amd64", PATH=str(programs))


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
