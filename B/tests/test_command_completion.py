# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion: what `larder complete` says against `larder help` and each verb's --help; each shell's script, run by that shell."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import TOP, USAGE, one_line
from status_lines import line
from test_command_stack import Described

pytest_plugins = ["larder_fixtures"]

SCRIPTS = TOP / "tools" / "completion"


@pytest.fixture
def complete(larder):
    """What may stand for the last word; with two caches and two volumes running."""
    status = larder.directory / "status"
    lines = [line("cache", "larder-cache-fast"), line("cache", "plain"), line("volume", "data"), line("volume", "dump")]
    status.write_text("".join(lines))
    larder.env = {"LARDER_STATUS": str(status)}

    def words(*before):
        run = larder("complete", *before, env=larder.env)
        assert run.stderr == ""
        return [row.split("\t")[0] for row in run.stdout.splitlines()]

    return words


def verbs(larder):
    return [v.split() for v in re.findall(r"^  larder (.+?)  ", larder("help").stdout, re.M)]


def options(larder, verb):
    return re.findall(r"^ +(?:-\w, )?(--[\w-]+)(?: (\S+))? +\S", larder(*verb, "--help").stdout, re.M)


def test_every_verb_is_offered(larder, complete):
    known = verbs(larder)
    assert len(known) > 40
    assert set(complete("")) == {v[0] for v in known}
    for noun in {v[0] for v in known if len(v) == 2}:
        alone = [v for v in known if v == [noun]]
        assert not alone and set(complete(noun, "")) == {v[1] for v in known if v[0] == noun and len(v) == 2}


def test_every_option_is_offered(larder, complete):
    """And behind an option that wants a value no other option, nor a name."""
    values = 0
    for verb in verbs(larder):
        if verb == ["help"]:
            continue
        known = options(larder, verb)
        assert set(complete(*verb, "-")) == {name for name, _ in known} | {"--help"}, verb
        for name, value in known:
            if value:
                assert complete(*verb, name, "") == [":files"] == complete(*verb, name, "-"), (verb, name)
                values += 1
    assert values > 50


def test_beginnings(complete):
    assert complete("vol") == ["volume"] and complete("cache", "st") == ["start", "stop", "status"]
    assert complete("volume", "status", "--report") == ["--reportformat"]
    assert complete("volume", "status", "-o", "") == [":files"]
    assert complete("no-such", "") == complete("volume", "no-such", "") == complete("volume", "volume", "volume", "") == []
    assert complete("help", "") == []


def test_names(complete):
    assert complete("volume", "stop", "") == ["data", "dump", ":files"]
    assert complete("volume", "stop", "data", "--dry-run", "du") == ["dump", ":files"]
    assert complete("cache", "status", "") == ["fast", "plain", ":files"]
    assert complete("monitor", "da") == ["data", ":files"]
    assert complete("volume", "create", "") == [":files"]


def test_names_of_what_does_not_run(larder, complete):
    """Where that is what a verb is for: caches and volumes by their labels, stacks."""
    described = Described(larder)
    described.volume(described.plain | {"name": "films"})
    larder.volume("music")
    assert complete("cache", "start", "") == ["fast", "plain", ":files"], "one that runs is offered once"
    assert complete("volume", "start", "") == ["data", "dump", "music", ":files"]
    for verb in ("start", "unlock", "rename", "remove"):
        assert complete(verb, "") == ["data", "dump", "films", ":files"]
    assert complete("stop", "") == complete("volume", "stop", "") == ["data", "dump", ":files"]


def test_usage_of_complete(larder):
    one_line(larder("complete", code=USAGE), "larder complete WORD")
    assert "larder complete" not in larder("help").stdout


BASH = """
source {scripts}/larder.bash
COMP_WORDS=({words}) COMP_CWORD={last}
_larder
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
fpath=({scripts})
autoload -Uz _larder
_describe() {{ print -rl -- "${{(@)${{(@P)2}}%%:*}}" }}
_files() {{ print -rl -- *(N) }}
words=({words}) CURRENT={last}+1
_larder
"""
FISH = """
source {scripts}/larder.fish
complete -C {line} | string replace -r '\\t.*' ''
true
"""


def in_shell(larder, shell, *words):
    """What it offers for the last word, in a directory with two files."""
    place = larder.directory / "place"
    place.mkdir(exist_ok=True)
    (place / "larder").unlink(missing_ok=True)
    (place / "bin").mkdir(exist_ok=True)
    (place / "bin" / "larder").unlink(missing_ok=True)
    (place / "bin" / "larder").symlink_to(larder.program)
    here = place / "here"
    here.mkdir(exist_ok=True)
    for name in ("disk.img", "my disk.img"):
        (here / name).touch()
    text = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell].format(
        scripts=shlex.quote(str(SCRIPTS)),
        words=" ".join(shlex.quote(word) for word in ("larder", *words)),
        last=len(words),
        line=shlex.quote(shlex.join(("larder", *words[:-1])) + " " + words[-1]),
    )
    environment = larder.environment(larder.env) | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place)}
    argv = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "--no-config", "-c"]}[shell]
    run = subprocess.run([*argv, text], cwd=here, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    return sorted(word for word in run.stdout.splitlines() if word)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell(larder, complete, shell):
    assert set(in_shell(larder, shell, "")) >= {v[0] for v in verbs(larder)}
    assert in_shell(larder, shell, "cache", "st") == ["start", "status", "stop"]
    assert {"--reportformat", "--sort", "--help"} <= set(in_shell(larder, shell, "volume", "list", "--"))
    offered = in_shell(larder, shell, "volume", "stop", "d")
    assert {"data", "dump", "disk.img"} <= set(offered) and "--dry-run" not in offered
    offered = in_shell(larder, shell, "volume", "create", "x", "--backing", "")
    assert "disk.img" in offered and not {"data", "fast"} & set(offered)
