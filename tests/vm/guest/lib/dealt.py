# SPDX-License-Identifier: GPL-2.0-or-later
"""A part of a suite."""

import os

import pytest

from .outcome import suite_of


class Dealer:
    """A plugin of pytest.  LARDER_PART=I/N: the tests of each suite are dealt to N parts in turn; the I-th."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        part, _, parts = os.environ.get("LARDER_PART", "1/1").partition("/")
        dealt: dict[str, int] = {}
        mine, others = [], []
        for item in items:
            suite = suite_of(item.nodeid)
            (mine if dealt.setdefault(suite, 0) % int(parts) == int(part) - 1 else others).append(item)
            dealt[suite] += 1
        config.hook.pytest_deselected(items=others)
        items[:] = mine
