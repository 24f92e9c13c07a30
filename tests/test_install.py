# SPDX-License-Identifier: GPL-2.0-or-later
"""`make install` on machines that are not the project's own."""

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
