# SPDX-License-Identifier: GPL-2.0-or-later
"""A part of a suite."""

import os

import pytest

from .outcome import suite_of


class Dealer:
    """A plugin of pytest.  LARDER_PART=I/N: the tests of each suite are dealt to N parts in turn; the I-th.  LARDER_PART=core:
    those that are marked so.  LARDER_PART="SUITE=I/N SUITE=core": of these; of others all."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        given = os.environ.get("LARDER_PART", "1/1")
        each = dict(word.split("=") for word in given.split()) if "=" in given else None
        dealt: dict[str, int] = {}
        mine, others = [], []
        for item in items:
            suite = suite_of(item.nodeid)
            wanted = given if each is None else each.get(suite, "1/1")
            part, _, parts = wanted.partition("/")
            number = dealt.setdefault(suite, 0)
            dealt[suite] += 1
            core = item.get_closest_marker("core") is not None
            (mine if (core if wanted == "core" else number % int(parts) == int(part) - 1) else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = mine
