# SPDX-License-Identifier: GPL-2.0-or-later
"""`make install` on machines that are not the project's own."""

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("part", ["tools", "daemon"])
def test_compiler_that_fortifies_by_itself(tmp_path, part):
    """As those of some distributions do, with another level: no warning of a macro that is defined twice."""
    words = ["-s", "-C", TOP / part, f"BUILD={tmp_path}", "CC=gcc -D_FORTIFY_SOURCE=3", "WERROR=1", tmp_path / "message.o"]
    run = subprocess.run(["make", *words], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("part", ["tools", "daemon"])
def test_warning_of_a_compiler_to_come(tmp_path, part):
    """It is an error where the project checks itself, and nowhere else."""
    (tmp_path / "new.h").write_text("#warning a new one\n")
    words = ["-s", "-C", TOP / part, f"BUILD={tmp_path}", f"CC=gcc -include {tmp_path}/new.h", tmp_path / "message.o"]
    for werror in ("", "1"):
        run = subprocess.run(["make", *words, f"WERROR={werror}"], capture_output=True, text=True)
        assert "a new one" in run.stderr and bool(run.returncode) == bool(werror)


def stand_ins(tmp_path):
    """Of systemd and udev, in the environment; what is told to them is kept."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("systemctl", "udevadm"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/ran\nexit 1\n')
        (programs / name).chmod(0o755)
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}


def told(tmp_path):
    """Since it was asked last."""
    ran = tmp_path / "ran"
    lines = ran.read_text().splitlines() if ran.exists() else []
    ran.unlink(missing_ok=True)
    return lines


def install(tmp_path, destdir=""):
    """As on a machine, all of whose places are below tmp_path: these, and words of make for them."""
    names = "UDEV UNITS DBUS CATALOG POLKIT INITRAMFS DRACUT KERNEL_HOOKS PREFIX"
    places = {x: tmp_path / x.lower() for x in names.split()}
    words = ["make", "-s", "-C", TOP / "daemon", f"DESTDIR={destdir}", *(f"{k}={v}" for k, v in places.items())]
    build = tmp_path / "build"
    build.mkdir()
    for name in ("larderd", "larder-probe"):
        (build / name).touch()
    words_of_all = [*words, "-o", "all", "install", f"BUILD={build}"]
    subprocess.run(words_of_all, check=True, capture_output=True, text=True, env=stand_ins(tmp_path))
    return places, words


def test_order_of_rules(tmp_path):
    """Ours come behind multipath's, which says of a disk that it is a path, wherever it is called 62, too; and around md's."""
    rules = tmp_path / "udev" / "rules.d"
    rules.mkdir(parents=True)
    (rules / "62-larder.rules").touch()  # of an earlier release
    install(tmp_path)
    for other in ("10-dm", "55-dm", "60-multipath", "62-multipath", "63-md-raid-arrays", "64-md-raid-assembly"):
        (rules / f"{other}.rules").touch()
    assert sorted(x.stem for x in rules.iterdir()) == [
        "10-dm",
        "11-dm-larder",
        "55-dm",
        "56-dm-larder",
        "60-multipath",
        "62-multipath",
        "62-z-larder",
        "63-md-raid-arrays",
        "63-md-z-larder",
        "64-md-raid-assembly",
    ]


def uninstall(tmp_path, root_is_on="", destdir=""):
    """How it ends; what has run of systemd and udev; what is left."""
    places, words = install(tmp_path, destdir)
    told(tmp_path)
    (places["UDEV"] / "larder-root").write_text(f"#!/bin/sh\necho {root_is_on}\n")
    run = subprocess.run([*words, "uninstall"], capture_output=True, text=True, env=stand_ins(tmp_path))
    ran = told(tmp_path)
    left = [x for place in places.values() for x in place.rglob("*") if x.is_file()]
    return run, ran, left


@pytest.mark.parametrize("destdir", ["", "/../"])
def test_release_that_runs_is_replaced(tmp_path, destdir):
    """One of before may not understand what the new command stores, and would note nothing more; a package does that itself."""
    install(tmp_path, destdir)
    restart = "systemctl try-restart --no-block larderd.service larder-events.service"
    assert told(tmp_path) == ([] if destdir else ["systemctl daemon-reload", "udevadm control --reload", restart])


def test_uninstall_of_the_daemon(tmp_path):
    """What would start it goes first; what runs stops, before its files go; links of instances go; of an initramfs one is told."""
    run, ran, left = uninstall(tmp_path)
    assert run.returncode == 0 and "update-initramfs -u -k all" in run.stdout and not left
    units = "larder-scrub.timer larder-events.service larderd.service"
    assert ran == [
        "udevadm control --reload",
        f"systemctl stop {units} larder-last-resort@* larder-assemble@*",
        f"systemctl --quiet disable {units} larder-assemble@.service",
        "systemctl daemon-reload",
        "udevadm control --reload",
    ]


def test_uninstall_below_root(tmp_path):
    """The next boot would find no root."""
    run, ran, left = uninstall(tmp_path, root_is_on="4762e82b-29a8-5b0e-813a-5b13a9901745")
    assert run.returncode != 0 and "nothing was removed" in run.stderr and not ran and len(left) > 20


def test_uninstall_of_the_others_below_root(tmp_path):
    """Nor without the command, and without the module."""
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "dkms").write_text("#!/bin/sh\necho dkms $*\n")
    (tmp_path / "udev").symlink_to(TOP / "udev")
    (tmp_path / "sbin").mkdir()
    for file in (tmp_path / "kernel" / "dkms", tmp_path / "larder-root", tmp_path / "sbin" / "larder"):
        file.touch()
        file.chmod(0o755)
    tools = ["-C", TOP / "tools", f"PREFIX={tmp_path}", "DESTDIR=", "uninstall"]
    dkms = ["-C", tmp_path, "-f", TOP / "Makefile", "dkms-uninstall"]
    for volume in ("4762e82b-29a8-5b0e-813a-5b13a9901745", ""):
        (tmp_path / "larder-root").write_text(f"#!/bin/sh\necho {volume}\n")
        runs = [subprocess.run(["make", "-s", f"UDEV={tmp_path}", *w], capture_output=True, text=True) for w in (tools, dkms)]
        assert [bool(x.returncode) for x in runs] == [bool(volume)] * 2 and runs[1].stdout == ("" if volume else "dkms uninstall\n")
        assert all(("nothing was removed" in x.stderr) == bool(volume) for x in runs)
        assert (tmp_path / "sbin" / "larder").exists() == bool(volume)


def test_guard_of_root_without_what_was_installed(tmp_path):
    """As behind a daemon that was taken away by hand: by the one of these sources."""
    for name in ("keep-root", "larder-root"):
        (tmp_path / name).write_text((TOP / "udev" / name).read_text() if name == "keep-root" else "#!/bin/sh\necho volume\n")
        (tmp_path / name).chmod(0o755)
    run = subprocess.run([tmp_path / "keep-root", "/nowhere/larder-root"], capture_output=True, text=True)
    assert run.returncode == 1 and "nothing was removed" in run.stderr


def test_uninstall_from_a_package(tmp_path):
    """With DESTDIR the machine itself is left alone."""
    run, ran, _ = uninstall(tmp_path, root_is_on="4762e82b-29a8-5b0e-813a-5b13a9901745", destdir="/../")
    assert run.returncode == 0 and not ran
