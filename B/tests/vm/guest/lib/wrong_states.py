# SPDX-License-Identifier: GPL-2.0-or-later
"""The states that tests/crash/explore has called wrong, in what it says, and the commands that judge each of them alone."""

import re
import shlex

FAILED = re.compile(r"^FAILED .*: --only (\S+)(?: --second (\S+))?$", re.MULTILINE)


def commands(output: str, *words: object) -> list[str]:
    """The words, then POSITION.KIND[.deep] and, of one that was wrong behind a second power cut, POSITION.KIND.SEED of that."""
    return [shlex.join([*map(str, words), *filter(None, m.groups())]) for m in FAILED.finditer(output)]
