# SPDX-License-Identifier: GPL-2.0-or-later
"""`make check-debug` can fail: what KASAN, UBSAN, lockdep and kmemleak report of a module that is wrong on purpose is no pass."""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from host import build, suites

MODULE = Path(__file__).resolve().parents[1] / "guest/_checkers/module"
KERNEL = os.environ["LARDER_KERNEL"]


@pytest.fixture
def faulty(tmp_path) -> Path:
    for source in MODULE.iterdir():
        shutil.copy(source, tmp_path)
    build.run("faulty.ko", "make", "-s", "-C", f"/lib/modules/{KERNEL}/build", f"M={tmp_path}", "modules")
    return tmp_path / "faulty.ko"


@pytest.mark.skipif("debug" not in KERNEL, reason="of the kernel of make check-debug")
def test_each_is_heard(faulty):
    a = argparse.Namespace(expression="", seed=1, env=[], memory="2G", udev=False, icount=False, timeout=1800)
    modules = [Path(p) for p in os.environ["LARDER_MODULES"].split(":") if Path(p).name == "simdisk.ko"]
    products = build.Products([*modules, faulty], [Path(p) for p in os.environ["LARDER_PROGRAMS"].split(":")])
    with tempfile.TemporaryDirectory(prefix="larder-") as where:  # below the results QEMU's socket would have too long a path
        (v,) = suites.run(KERNEL, ["_checkers"], products, Path(where), a)
    text = v.text(True)
    assert not v.error, text
    outcomes = {t["name"].rpartition("::")[2]: t["outcome"] for t in v.tests}
    failed = dict.fromkeys(("test_planted[circle]", "test_planted[shift]", "test_planted[overflow]"), "failed")
    assert outcomes == failed | {"test_planted[leak]": "passed"}, text  # it is found when all is over
    for report in ("possible circular locking", "BUG: memory leak", "UBSAN: shift-out-of-bounds", "KASAN: slab-out-of-bounds"):
        assert any(report in line for line in v.log), f"no {report} in\n{text}"
    assert any("memory leak" in line and "[faulty]" in line for line in v.log), text
