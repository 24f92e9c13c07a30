# SPDX-License-Identifier: GPL-2.0-or-later
"""Outcomes of tests, a line of JSON each, written as they end: if the machine dies later, they are known."""

import json
from pathlib import Path


def suite_of(nodeid: str) -> str:
    """test_NAME.py::test, or NAME/test_x.py::test"""
    return nodeid.replace("/", "::").partition("::")[0].removeprefix("test_").removesuffix(".py")


class Recorder:
    """A pytest plugin, in the guest and on the host."""

    def __init__(self, results: Path):
        self.results = results
        self.parts: dict[str, list] = {}

    def pytest_runtest_logreport(self, report: object) -> None:
        parts = self.parts.setdefault(report.nodeid, [])
        parts.append(report)
        if report.when != "teardown":
            return
        outcomes = [r.outcome for r in parts]
        outcome = "failed" if "failed" in outcomes else "skipped" if "skipped" in outcomes else "passed"
        text = "\n".join(r.longreprtext for r in parts if r.failed)
        text += "".join(f"\n--- {title} ---\n{body}" for title, body in report.sections if outcome == "failed" or "stdout" in title)
        line = {
            "suite": suite_of(report.nodeid),
            "name": report.nodeid.split("/")[-1],
            "outcome": outcome,
            "seconds": sum(r.duration for r in parts),
            "text": text.strip(),
        }
        with open(self.results / "tests.jsonl", "a") as f:
            f.write(json.dumps(line) + "\n")
