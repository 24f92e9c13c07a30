#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The model in a minute, for `make check`: every scenario with small bounds breaks nothing; and the explorer still has teeth:
without a rule, the scenario that counterexamples.txt names for it breaks, within as many steps."""
import argparse
import sys

from explore import ALL_RULES, MIRROR_SCENARIOS, SCENARIOS, again, counterexamples, explore

STATES, MIRROR_STATES = 1000, 400      # bounds: states per scenario
TABLE_STATES = 15000                    # those of explore.py --table
STEPS, MIRROR_STEPS = 9, 9              # longer counterexamples are left to `explore.py --table`; mirror: not counting the prelude


def main():
    options = argparse.Namespace(commit=['auto', 'always'], scenario=None, states=STATES, deep=False, strict_discard=False,
                                 power_cuts_only=False, quiet=True)
    failed = False
    for options.states, options.scenario in ((STATES, [s for s in SCENARIOS if s not in MIRROR_SCENARIOS]),
                                             (MIRROR_STATES, list(MIRROR_SCENARIOS))):
        failed |= explore(ALL_RULES, [], options)
    dropped = 0
    options.states, options.relax = TABLE_STATES, []
    for rule, others, mode, scenario, steps in counterexamples():
        prelude = len(SCENARIOS[scenario].get('prelude', ()))
        if others or (steps - prelude > MIRROR_STEPS if scenario in MIRROR_SCENARIOS else steps > STEPS):
            continue
        trace = again(ALL_RULES - {rule}, mode, scenario, options, steps)
        dropped += 1
        if not trace:
            print(f'model: nothing breaks without {rule} (commit={mode}, scenario {scenario}, {steps} steps)')
            failed = True
    print(f'model: {dropped} rules dropped in turn, {"FAILED" if failed or not dropped else "each breaks a promise"}')
    return int(failed or not dropped)


if __name__ == '__main__':
    sys.exit(main())
