#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The model in a minute, for `make check`: every scenario with small bounds breaks nothing; and the explorer still has teeth:
without a rule, the scenario that counterexamples.txt names for it breaks, within as many steps."""
import argparse
import pathlib
import re
import sys

from explore import ALL_RULES, MIRROR_SCENARIOS, SCENARIOS, breadth_first, build, explore

HEAD = re.compile(r'^([a-z-]+) \(rule \d+\)')
TRACE = re.compile(r'^  commit=(\w+), scenario ([\w-]+), (\d+) steps')
STATES, MIRROR_STATES = 2500, 1000      # bounds: states per scenario
STEPS, MIRROR_STEPS = 9, 8              # longer counterexamples are left to `explore.py --table`; mirror: not counting the prelude


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
    failed = False
    for options.states, options.scenario in ((STATES, [s for s in SCENARIOS if s not in MIRROR_SCENARIOS]),
                                             (MIRROR_STATES, list(MIRROR_SCENARIOS))):
        failed |= explore(ALL_RULES, [], options)
    dropped = 0
    for rule, mode, scenario, steps in counterexamples():
        prelude = len(SCENARIOS[scenario].get('prelude', ()))
        if steps - prelude > MIRROR_STEPS if scenario in MIRROR_SCENARIOS else steps > STEPS:
            continue
        system = build(scenario, mode, ALL_RULES - {rule}, [], options)
        *_, trace = breadth_first(scenario, system, 15000, steps - prelude)
        dropped += 1
        if not trace:
            print(f'model: nothing breaks without {rule} (commit={mode}, scenario {scenario}, {steps} steps)')
            failed = True
    print(f'model: {dropped} rules dropped in turn, {"FAILED" if failed or not dropped else "each breaks a promise"}')
    return int(failed or not dropped)


if __name__ == '__main__':
    sys.exit(main())
