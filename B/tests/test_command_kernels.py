# SPDX-License-Identifier: GPL-2.0-or-later
"""The command over a module that is older or newer than itself: keys of the status that are missing, or unknown.

Tools are replaced while the previous module goes on; and a reboot may bring another one back.  The status comes from a file.
"""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import DONE, FAILED, NOT_FOUND
from prometheus_client.openmetrics import parser
from status_lines import keys, line, options

pytest_plugins = ["larder_fixtures"]

NAME = {"cache": "larder-cache-fast", "volume": "data"}
NEWER = {"brand_new": 5, "brand_new_words": "some/words", "brand_new_empty": "", "UPPER-case.key": "-1"}
IDENTITY = ["uuid", "cache", "state", "mode"]  # each by itself: what else is shown hangs on them


def parts(noun):
    """Keys that go missing together."""
    rest = [key for key in [*keys(noun), *options(noun)] if key not in IDENTITY]
    return [[key] for key in keys(noun) if key in IDENTITY] + [rest[i : i + 8] for i in range(0, len(rest), 8)]


MISSING = [(noun, part) for noun in NAME for part in parts(noun)]


@pytest.fixture
def running(larder):
    """What runs: a cache and its volume; the keys of one of them may be given.  Returns the environment for the command."""

    def write(noun="cache", **values):
        path = larder.directory / "status"
        path.write_text("".join(line(n, name, **(values if n == noun else {})) for n, name in NAME.items()))
        return {"LARDER_STATUS": str(path)}

    return write


def samples(larder, env):
    found = {}
    for family in parser.text_string_to_metric_families(larder("metrics", env=env).stdout):
        for sample in family.samples:
            found[(sample.name, *sorted(sample.labels.items()))] = sample.value
    return found


def shown(larder, noun, env):
    run = larder(noun, "status", NAME[noun].removeprefix("larder-cache-"), "-o", "all", "--reportformat", "json", env=env)
    (rows,) = json.loads(run.stdout).values()
    return rows[0]


@pytest.mark.parametrize("noun,missing", MISSING, ids=lambda x: x if isinstance(x, str) else x[0])
def test_keys_are_missing(larder, running, noun, missing):
    """Nothing else is taken for them, or is missing with them, and nobody is alarmed."""
    whole = running()
    before, rows = samples(larder, whole), shown(larder, noun, whole)
    less = running(noun, **dict.fromkeys(missing))
    after = samples(larder, less)
    changed = {k[0] for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    # a number has one metric; all options, and all words, one more together
    assert len(changed) <= len(missing) + 3 or missing[0] in IDENTITY, changed
    if missing != ["uuid"]:  # by which it is found
        row = shown(larder, noun, less)
        differs = {k for k in rows if row.get(k) != rows[k]}
        assert row.keys() == rows.keys() and differs <= {*missing, *(["cache_name"] if missing == ["cache"] else [])}, differs
    assert larder("events", env=less).stdout == "" or missing == ["state"]


@pytest.mark.parametrize("noun", NAME)
def test_keys_of_a_newer_module(larder, running, noun):
    """They stand anywhere, and change nothing; `status --all` shows them."""
    env = running()
    before, row = samples(larder, env), shown(larder, noun, env)
    env = running(noun, **NEWER)
    assert samples(larder, env) == before
    assert shown(larder, noun, env) == row
    assert larder("events", env=env).stdout == ""
    said = larder(noun, "status", NAME[noun].removeprefix("larder-cache-"), "--all", env=env).stdout
    assert all(key in said for key in NEWER), said


@pytest.mark.parametrize("noun", NAME)
@pytest.mark.parametrize("verb", ["metrics", "events", "monitor --count 1", "cache status", "volume status"])
def test_status_without_keys(larder, noun, verb):
    """Of a module that nobody has made: no verb ends in anything but its own codes."""
    path = larder.directory / "status"
    lines = {n: line(n, name) for n, name in NAME.items()}
    target = {"cache": "larder-cache", "volume": "larder"}[noun]
    for status in ("", "Error", "= =x x="):
        path.write_text("".join((lines | {noun: f"{NAME[noun]}: 0 2048 {target} {status}\n"}).values()))
        run = larder(*verb.split(), env={"LARDER_STATUS": str(path)}, code=None)
        assert run.returncode in (DONE, FAILED, NOT_FOUND), run.stderr
