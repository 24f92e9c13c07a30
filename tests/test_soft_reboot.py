# SPDX-License-Identifier: GPL-2.0-or-later
"""systemctl soft-reboot stops units as a shutdown does, and keeps the kernel and /run: what is put right behind it.

Programs, and /sys, are stand-ins.
"""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
A, B, C = (f"{n}-d0c2-4d6e-9b1f-3a5c7e9d1b2f" for n in ("aaaaaaaa", "bbbbbbbb", "cccccccc"))


@pytest.fixture
def told(tmp_path):
    """told(words of a command) -> what was told to these programs."""
    programs, said = tmp_path / "programs", tmp_path / "said"
    programs.mkdir()
    for name in ("systemctl", "losetup"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{said}\n')
        (programs / name).chmod(0o755)

    def run(*words):
        said.write_text("")
        r = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"})
        assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
        return said.read_text().splitlines()

    return run


def line_of(unit, key):
    return re.search(f"^{key}=-?(.*)", (TOP / "udev" / unit).read_text(), re.M)[1]


def test_what_the_network_has_stopped_starts_again(told, tmp_path):
    """And larderd is told; what somebody stopped himself stays so."""
    run = tmp_path / "larder"
    words = shlex.split(line_of("larder-network.service", "ExecStart").replace("$$", "$").replace("/run/larder", str(run)))
    assert told(*words) == [], "at a boot there is nothing"
    for name in (f"stopped/{A}", f"stopped/{B}", f"shutdown/{A}", f"shutdown/{C}"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
    assert told(*words) == ["systemctl kill --kill-who=main --signal=HUP larderd.service"]
    assert [str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()] == [f"stopped/{B}"]
    assert told(*words) == []


def test_snapshots_are_held_no_more(told, tmp_path):
    """By loop devices as a shutdown makes them, and by no others; before anybody looks."""
    block = tmp_path / "block"
    for name, uuid in (("dm-3", f"LARDER-{A}-snapshot-{B}"), ("dm-4", f"LARDER-{A}"), ("dm-5", "LVM-x"), ("sda", None)):
        (block / name / "dm").mkdir(parents=True)
        if uuid:
            (block / name / "dm" / "uuid").write_text(f"{uuid}\n")
    # of a hold the path is that in a /dev which is gone
    loops = [("/dm-3", 1, 4096), ("/dev/dm-3", 1, 4096), ("/dm-3", 0, 4096), ("/dm-3", 1, 0), ("/dm-4", 1, 4096)]
    loops += [("/dm-5", 1, 4096), ("/dev/sda", 1, 4096), ("/srv/an image", 1, 4096), None]
    for number, loop in enumerate(loops):
        (block / f"loop{number}").mkdir()
        (block / f"loop{number}" / "ro").write_text(f"{loop[1] if loop else 0}\n")
        for name, value in zip(("backing_file", "sizelimit"), (loop[0], loop[2]), strict=True) if loop else ():
            (block / f"loop{number}" / "loop").mkdir(exist_ok=True)
            (block / f"loop{number}" / "loop" / name).write_text(f"{value}\n")
    script = tmp_path / "larder-release"
    script.write_text((TOP / "udev" / "larder-release").read_text().replace("/sys/block", str(block)))
    assert told("sh", str(script)) == ["losetup --detach /dev/loop0", "losetup --detach /dev/loop1"]
    made = line_of("larder-snapshots.service", "ExecStop")
    assert "losetup --read-only " in made and " --sizelimit 4096 " in made
    for unit in ("larderd.service", "larder-assemble@.service"):
        assert line_of(unit, "ExecStartPre") == "/usr/lib/udev/larder-release"
