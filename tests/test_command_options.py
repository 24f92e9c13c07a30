# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that each start gives a cache, or the volume of a stack: where they are stored, and that who starts them uses them."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import CACHE, NOT_FOUND, SB, UNSAFE, USAGE, digest, field, one_line, read
from test_command_stack import HEAD, ON_SSD, ON_VOLUME, SIZE, Described, identified

pytest_plugins = ["larder_fixtures"]


@pytest.fixture
def described(larder):
    return Described(larder)


def listed(path, layout=ON_SSD):
    """The description that it has; None: it has none."""
    text = read(path, SB + layout["stack"][0] + HEAD, SIZE - HEAD).rstrip(b"\0")
    return json.loads(text) if text else None


def of_cache(described, options, **more):
    described.ssds({"ready": [f"{described.uuid} data"], "changing": [], "options": options, **more})


def of_volume(described, options, **more):
    described.volume(described.plain | {"options": options} | more)


def stored(larder, kind, name, *keys):
    return larder(kind, "get", name, *keys, "--stored").stdout.split()


def test_start_of_a_cache(larder, described):
    """By hand and by assembly; what is said at the start is stronger."""
    of_cache(described, "mirror=dirty:3 commit=always")
    ssd = described.ssd
    assert f"larder-cache 1 {ssd} 4 mirror dirty:3 commit always'" in larder("cache", "start", "fast", "--dry-run").stdout
    run = larder("cache", "start", "fast", "--option", "mirror=all", "--option", "gather=2", "--dry-run")
    assert f"larder-cache 1 {ssd} 6 commit always mirror all gather 2'" in run.stdout
    assert f"larder-cache 1 {ssd} 4 mirror dirty:3 commit always'" in larder("assemble", "fast", "--dry-run").stdout


def test_start_of_a_volume(larder, described):
    of_cache(described, "commit=always")
    of_volume(described, "share_max=50 quiet=on", **{"class": "special"})
    run = larder("volume", "start", "data", "--dry-run")
    assert run.stdout.strip().endswith(" 6 share_max 50 quiet on class special'")
    run = larder("volume", "start", "data", "--option", "quiet=off", "--dry-run")
    assert run.stdout.strip().endswith(" 6 share_max 50 quiet off class special'")
    said = larder("assemble", "--all", "--dry-run").stdout
    assert "2 commit always'" in said and " 6 class special share_max 50 quiet on'" in said
    # with its pins; what is given goes before it
    of_volume(described, "fill=off", **{"class": "lba-8-16:pin-75/any:cache"})
    run = larder("volume", "start", "data", "--dry-run")
    assert run.stdout.strip().endswith(" 4 fill off class lba-8-16:pin-75/any:cache'")
    run = larder("volume", "start", "data", "--option", "class=any:bypass", "--option", "fill=on", "--dry-run")
    assert run.stdout.strip().endswith(" 4 class any:bypass fill on'")


def test_they_are_shown(larder, described):
    of_cache(described, "mirror=all commit=always")
    of_volume(described, "share_max=50 quiet=on")
    assert stored(larder, "cache", "fast") == ["mirror=all", "commit=always"]
    assert stored(larder, "cache", "fast", "commit", "gather") == ["commit=always"]
    assert stored(larder, "volume", "data") == ["share_max=50", "quiet=on"]
    rows = json.loads(larder("show", "data", "-o", "layer,options", "--reportformat", "json").stdout)["stacks"]
    shown = {row["layer"]: row["options"] for row in rows}
    assert (shown["volume"], shown["cache"], shown["disk"]) == ("share_max=50 quiet=on", "mirror=all commit=always", "")


def test_one_is_taken_away(larder, described):
    """Of what is stopped, too; nothing else of a description changes but its generation."""
    of_cache(described, "mirror=all commit=always")
    of_volume(described, "share_max=50 quiet=on")
    before = [digest(described.ssd), digest(described.hdd)]
    for words in (("cache", "fast", "mirror="), ("volume", "data", "quiet=")):
        larder(words[0], "set", *words[1:], "--persist", "--dry-run")
    assert [digest(described.ssd), digest(described.hdd)] == before
    larder("cache", "set", "fast", "mirror=", "--persist")
    assert listed(described.ssd)["options"] == "commit=always"
    larder("volume", "set", "data", "quiet=", "--persist")
    now = listed(described.hdd, ON_VOLUME)
    assert now["options"] == "share_max=50" and now["generation"] == 4
    assert now | {"generation": 3} == described.plain | {"options": "share_max=50"}
    larder("volume", "set", "data", "share_max=", "--persist")
    larder("cache", "set", "fast", "commit=", "--persist")
    assert "options" not in listed(described.hdd, ON_VOLUME) and "options" not in listed(described.ssd)


def test_cache_without_a_stack(larder):
    """Its list has options alone, and none when they are gone."""
    ssd = larder.cache("fast")
    assert stored(larder, "cache", "fast") == []
    larder("cache", "set", "fast", "commit=", "--persist")
    assert listed(ssd) is None


def test_persist_refused(larder, described):
    of_cache(described, "commit=always")
    described.volume(described.plain)
    alone = larder.volume("alone")
    before = [digest(x) for x in (described.ssd, described.hdd, alone)]
    # only its kernel knows which values there are
    one_line(larder("cache", "set", "fast", "commit=always", "--persist", code=NOT_FOUND), "fast")
    one_line(larder("volume", "set", "data", "quiet=on", "--persist", code=NOT_FOUND), "data")
    one_line(larder("volume", "set", "alone", "quiet=on", "--persist", code=NOT_FOUND), "alone")
    one_line(larder("volume", "set", "data", "class=special", "--persist", code=USAGE), "larder set data --class special")
    one_line(larder("volume", "set", "data", "mode=writethrough", "quiet=on", "--persist", code=USAGE), "mode", "of its own")
    one_line(larder("cache", "set", "fast", "commit=", code=USAGE), "commit")
    one_line(larder("cache", "set", "fast", "nonsense=", "--persist", code=USAGE), "nonsense")
    one_line(larder("cache", "get", "fast", "nonsense", "--stored", code=USAGE), "nonsense")
    assert [digest(x) for x in (described.ssd, described.hdd, alone)] == before


@identified
def test_cache_of_another_machine(larder, described):
    of_cache(described, "commit=always", host="99999999-1234-4321-8765-123456789abc")
    before = digest(described.ssd)
    one_line(larder("cache", "set", "fast", "commit=", "--persist", code=UNSAFE), "another machine")
    assert digest(described.ssd) == before


@pytest.mark.parametrize(
    "options",
    ["", " ", "commit", "commit=", "=always", "commit=always ", " commit=always", "commit=always  gather=2", "Commit=always",
     "commit=a\\b", "commit='a'", 'commit="a"', "commit=always commit=always", "class=a\tb", "x=" + "y" * 254, 5, ["a=b"]],
)
def test_wrong_text(larder, described, options):
    """Nothing of a list or a description is believed then, as with any key."""
    of_cache(described, options)
    one_line(larder("cache", "start", "fast", "--dry-run", code=UNSAFE), str(described.ssd), "stack:")
    of_volume(described, options)
    assert "stack:" in larder("list").stderr
    one_line(larder("volume", "start", "data", "--dry-run", code=UNSAFE), str(described.hdd), "stack:")


def test_longest_text(larder, described):
    text = "x=" + "y" * 253
    of_cache(described, text)
    assert f"2 x {'y' * 253}'" in larder("cache", "start", "fast", "--dry-run").stdout
    assert field(described.ssd, CACHE, "device_number") == 0
