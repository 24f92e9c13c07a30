#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The model in a minute, for `make check`: every scenario with small bounds breaks nothing; and the explorer still has teeth:
without a rule, the scenario that counterexamples.txt names for it breaks, within as many steps."""
import argparse
import pathlib
import re
import sys

from explore import SCENARIOS, breadth_first, build, explore
from model import ALL_RULES

HEAD = re.compile(r'^([a-z-]+) \(rule \d+\)')
TRACE = re.compile(r'^  commit=(\w+), scenario ([\w-]+), (\d+) steps')
STATES, STEPS = 2500, 9         # bounds: states per scenario; longer counterexamples are left to `explore.py --table`


def counterexamples():
    """(rule, commit mode, scenario, steps) of those that drop one rule alone."""
    rule, alone = None, False
    for line in pathlib.Path(__file__).with_name('counterexamples.txt').read_text().splitlines():
        if head := HEAD.match(line):
            rule, alone = head[1], True
        elif line.startswith('  nothing alone'):
            alone = False
        elif alone and (trace := TRACE.match(line)):
            yield rule, trace[1], trace[2], int(trace[3])


def main():
    options = argparse.Namespace(commit=['auto', 'always'], scenario=None, states=STATES, deep=False, strict_discard=False,
                                 power_cuts_only=False, quiet=True)
    failed = explore(ALL_RULES, [], options)
    dropped = 0
    for rule, mode, scenario, steps in counterexamples():
        if steps > STEPS:
            continue
        system = build(scenario, mode, ALL_RULES - {rule}, [], options)
        *_, trace = breadth_first(scenario, system, 15000, steps - len(SCENARIOS[scenario].get('prelude', ())))
        dropped += 1
        if not trace:
            print(f'model: nothing breaks without {rule} (commit={mode}, scenario {scenario}, {steps} steps)')
            failed = True
    print(f'model: {dropped} rules dropped in turn, {"FAILED" if failed or not dropped else "each breaks a promise"}')
    return int(failed or not dropped)


if __name__ == '__main__':
    sys.exit(main())
