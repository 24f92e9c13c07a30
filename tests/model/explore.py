#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Explore model.py: exhaustively within each scenario's bounds, or by long random walks."""
import argparse
import random
import sys
import time

from model import (ALL_RULES, CLEAN, FILL, INTENT, INVALIDATE, OMITTED, OPEN, RELAXATIONS, RULES, WRITE, Entry,
                   System, show)

KINDS = {WRITE: 'WRITE', FILL: 'FILL', OMITTED: 'FILL', CLEAN: 'CLEAN', INVALIDATE: 'INVALIDATE', INTENT: 'INTENT',
         OPEN: 'OPEN'}
MODES = {'auto': False, 'always': True}             # commit=

FLUSH = ('flush F1 issued', 'ssd-flush completes: acknowledges F1')
TWO_FLUSHES = ('mark-set', 'bypass a', 'bypass b', 'bypass-completes a', 'flush F1 issued', 'bypass-completes b',
               'flush F2 issued')
DIRTY_IN_CHECKPOINT = ('write a', 'commit WRITE(a1)', 'commit-completes WRITE(a1)', *FLUSH, 'checkpoint-begins',
                       'checkpoint-named')
THROUGH_AND_FLUSH = ('mark-set', 'bypass b', 'bypass-completes b', 'writethrough a', 'backing-flush issued')
WRITTEN_BACK = DIRTY_IN_CHECKPOINT + ('writeback-begins a', 'writeback-completes a', 'backing-flush')
BEHIND_A_WRITE = ('write a', 'data-completes WRITE(a1)', 'mark-set', 'write b')
FILLED_BEHIND_A_WRITE = ('mark-set', 'write b', 'commit WRITE(b1)', 'miss a', 'fill-appended a', 'commit FILL(a0)',
                         'commit-completes FILL(a0)')
BYPASSED_BEHIND_A_WRITE = FILLED_BEHIND_A_WRITE + ('bypass a', 'bypass-completes a', 'backing-flush')
SNAPSHOT_BEGUN = ('write b', 'commit WRITE(b1)', 'commit-completes WRITE(b1)', 'write b', 'commit WRITE(b2)',
                  'commit-completes WRITE(b2)', *FLUSH, 'checkpoint-begins', 'checkpoint-named', 'checkpoint-begins')
FILLED_AND_MARKED = ('miss a', 'fill-appended a', 'commit FILL(a0)', 'commit-completes FILL(a0)', 'mark-set')
COMMITTED = ('write a', 'commit WRITE(a1)', 'commit-completes WRITE(a1)', *FLUSH, 'mark-set')
CLEAN_APPENDED = COMMITTED + ('writeback-begins a', 'writeback-completes a', 'backing-flush', 'clean-appended a')
INVALIDATE_APPENDED = COMMITTED + ('discard a', 'discard-completes a', 'backing-flush')

# The rules as the design words them: which of the cheaper variants its rules 5, 6 (and 6b), and 9 are.
RULES_5_6_9 = ('bypass-after-clean-applied', 'mark-only-where-replay-finds-a-copy', 'no-separate-reuse-waits')
WORDINGS = {'plain': (), 'design (a)': RULES_5_6_9, 'design (b)': RULES_5_6_9 + ('clear-by-checkpoint',)}

# Each scenario races a few operations deeply; 'all' races everything, less deeply.
SCENARIOS = {
    'fua': dict(actions='write write-fua flush', blocks=2, slots=4, writes=4, crashes=2, max_log=4),
    'flushes': dict(actions='write flush', blocks=2, slots=3, writes=3, crashes=1, max_log=3, flushes=2),
    'flushes-backing': dict(actions='bypass mark flush', writes=3, crashes=1, max_log=5, flushes=2),
    'flush-inside': dict(actions='writeback evict mark device-flush', blocks=2, slots=2, writes=2, crashes=2, max_log=5,
                         prelude=COMMITTED + ('bypass b', 'bypass-completes b')),
    'flush-inside-mark': dict(actions='evict mark device-flush', blocks=2, slots=1, writes=2, crashes=2, max_log=4,
                              prelude=THROUGH_AND_FLUSH),
    'flush-fails': dict(actions='write write-fua flush device-flush', blocks=2, slots=4, writes=3, crashes=1, max_log=4,
                        flushes=2, failures=1),
    'flush-fails-backing': dict(actions='write-fua bypass flush', blocks=2, slots=1, writes=2, crashes=1, max_log=3,
                                failures=1, prelude=('mark-set',)),
    'flush-stuck': dict(actions='write-fua bypass-fua flush', blocks=2, slots=1, writes=3, crashes=1, max_log=4,
                        flushes=2, failures=2, prelude=TWO_FLUSHES),
    'bypass': dict(actions='bypass bypass-fua fill evict flush mark', slots=2, writes=3, crashes=2, max_log=5),
    'writethrough': dict(actions='writethrough write evict writeback flush mark', slots=3, writes=3, crashes=2, max_log=5),
    'writeback': dict(actions='write writeback fill evict flush', slots=3, writes=3, crashes=2, max_log=5),
    'tomb': dict(actions='write bypass bypass-fua writeback mark flush', slots=3, writes=3, crashes=1, max_log=6),
    'discard': dict(actions='write discard bypass-fua fill evict writeback mark', slots=3, writes=3, crashes=1, max_log=6),
    'reuse': dict(actions='write fill keep evict reclaim checkpoint flush read', blocks=2, slots=2, writes=2,
                  crashes=1, max_log=4),
    'read-reuse': dict(actions='fill evict reclaim read', blocks=2, slots=1, writes=0, crashes=1, max_log=4),
    'replay-range': dict(actions='write reclaim flush', slots=2, writes=3, crashes=1, max_log=4),
    'reopened': dict(actions='write reclaim checkpoint flush', blocks=2, slots=2, writes=3, crashes=1, max_log=4,
                     prelude=SNAPSHOT_BEGUN),
    'overwrite': dict(actions='write writeback fill evict reclaim checkpoint flush', blocks=2, slots=2, writes=3, crashes=1,
                      max_log=5, prelude=DIRTY_IN_CHECKPOINT),
    'late-clean': dict(actions='write writeback evict reclaim checkpoint', slots=2, writes=3, crashes=1, max_log=4,
                       prelude=WRITTEN_BACK),
    'checkpoint': dict(actions='write bypass fill evict checkpoint mark flush', slots=2, writes=3, crashes=2, max_log=5),
    'behind': dict(actions='write writeback bypass discard mark flush', blocks=2, slots=3, writes=4, crashes=1,
                   max_log=7, prelude=BEHIND_A_WRITE),
    'mark-cleared': dict(actions='write bypass bypass-fua evict checkpoint mark fill', blocks=2, slots=3, writes=3,
                         crashes=1, max_log=5, prelude=FILLED_BEHIND_A_WRITE),
    'cleared-behind': dict(actions='write evict checkpoint mark', blocks=2, slots=3, writes=3, crashes=1, max_log=6,
                           prelude=BYPASSED_BEHIND_A_WRITE),
    'marked': dict(actions='bypass bypass-fua evict mark', slots=1, writes=1, crashes=2, max_log=5,
                   prelude=FILLED_AND_MARKED),
    'through': dict(actions='writethrough evict mark', slots=1, writes=1, crashes=2, max_log=5),
    'over-clean': dict(actions='write bypass bypass-fua flush missing', slots=2, writes=2, crashes=2, max_log=6,
                       prelude=CLEAN_APPENDED),
    'over-discard': dict(actions='write bypass bypass-fua flush missing', slots=2, writes=3, crashes=2, max_log=6,
                         prelude=INVALIDATE_APPENDED),
    'missing': dict(actions='write bypass writeback fill evict flush mark missing', slots=2, writes=3, crashes=3,
                    max_log=5),
    'all': dict(actions='write write-fua bypass bypass-fua writethrough discard fill keep evict read flush writeback reclaim '
                        'mark checkpoint missing device-flush', blocks=2, slots=3, writes=5, crashes=3, max_log=8, flushes=2,
                failures=2),
}


def build(name, mode, rules, relaxations, options):
    bounds = dict(SCENARIOS[name])
    if options.deep:
        bounds.update(writes=bounds['writes'] + 1, max_log=bounds['max_log'] + 2)
    bounds['actions'] = bounds['actions'].split()
    bounds.pop('prelude', None)
    return System(rules, relaxations, strict_discard=options.strict_discard,
                  kernel_crashes=not options.power_cuts_only, always=MODES[mode], **bounds)


def begin(name, system):
    """The state that the scenario's prelude leads to, and the labels on the way."""
    state, labels = system.initial(), []
    actions, system.actions = system.actions, frozenset(SCENARIOS['all']['actions'].split())
    for wanted in SCENARIOS[name].get('prelude', ()):
        step = next((step for step in system.successors(state) if describe(step[0]) == wanted), None)
        if step is None:                    # a dropped rule changed the course of events
            assert system.rules != ALL_RULES, f'{name}: no step "{wanted}"'
            break
        labels.append(step[0])
        state = step[1]
    system.actions = actions
    return state, labels


def breadth_first(name, system, max_states, max_depth=1000):
    """Returns (states, exhausted, depth, trace or None).  The first trace found is a shortest one."""
    start, prelude = begin(name, system)
    parents = {hash(start): None}
    frontier, depth = [start], 0
    while frontier and depth < max_depth:
        depth, following = depth + 1, []
        for state in frontier:
            origin = hash(state)
            for label, after in system.successors(state):
                broken = after if isinstance(after, str) else None
                if not broken:
                    key = hash(after)
                    if key in parents:
                        continue
                    parents[key] = (origin, label)
                    broken = system.violation(after)
                if broken:
                    return len(parents), False, depth, prelude + path(parents, origin) + [label, broken]
                following.append(after)
            if len(parents) >= max_states:
                return len(parents), False, depth, None
        frontier = following
    return len(parents), not frontier, depth, None


def path(parents, key):
    labels = []
    while parents[key]:
        key, label = parents[key]
        labels.append(label)
    return labels[::-1]


def random_walk(system, steps, rng):
    state, labels = system.initial(), []
    for _ in range(steps):
        choices = list(system.successors(state))
        if not choices:
            break
        names = sorted({label[0] for label, _ in choices})
        quiet = [n for n in names if n not in ('power-cut', 'kernel-crash', 'detach')]
        name = rng.choice(quiet if quiet and rng.random() < .95 else names)     # by name: a crash has hundreds of outcomes
        label, state = rng.choice([c for c in choices if c[0][0] == name])
        labels.append(label)
        broken = state if isinstance(state, str) else system.violation(state)
        if broken:
            return labels + [broken]
    return None


def describe(label):
    if isinstance(label, str):
        return 'BROKEN: ' + label
    name, *rest = label
    if name in ('power-cut', 'kernel-crash'):
        lost, backing, how = rest
        lost = ', '.join(record_text(r) for r in lost) or 'nothing'
        return f'{name}: replay misses {lost}; backing has {" ".join(map(show, backing))}; {how}'
    return ' '.join([name] + [record_text(r) if isinstance(r, Entry) else 'abc'[r] if name != 'reclaim' else f'slot {r}'
                              for r in rest])


def record_text(record):
    value = show(record.value) if record.kind in (WRITE, FILL) else 'abc'[record.block]
    return f'{KINDS[record.kind]}({value})' if record.kind not in (INTENT, OPEN) else KINDS[record.kind]


def print_trace(trace):
    for number, label in enumerate(trace, 1):
        print(f'    {number:2}. {describe(label)}')


def shortest_failure(rules, relaxations, options):
    """The shortest trace over all scenarios; with commit=always only where commit=auto shows none."""
    best = None
    for mode in options.commit:
        for name in options.scenario or SCENARIOS:
            system = build(name, mode, rules, relaxations, options)
            limit = len(best[2]) - 2 if best else 1000        # only a shorter one is of interest
            *_, trace = breadth_first(name, system, options.states, limit - len(SCENARIOS[name].get('prelude', ())))
            if trace and (best is None or len(trace) < len(best[2])):
                best = (mode, name, trace)
        if best:
            return best
    return None


def explore(rules, relaxations, options):
    failed, explored = False, 0
    for mode in options.commit:
        total, began = 0, time.time()
        for wording, variants in ({'given': relaxations} if relaxations else WORDINGS).items():
            for name in options.scenario or SCENARIOS:
                system = build(name, mode, rules, variants, options)
                states, exhausted, depth, trace = breadth_first(name, system, options.states)
                total += states
                verdict = 'BROKEN' if trace else 'exhausted' if exhausted else 'bounded'
                if trace or not options.quiet:
                    print(f'{mode:7} {wording:10}  {name:14} {states:8} states  depth {depth:3}  {verdict}', flush=True)
                if trace:
                    failed = True
                    print_trace(trace)
        print(f'commit={mode}: {total} states in {time.time() - began:.0f} s')
        explored += total
    print(f'model: {explored} states, {"BROKEN" if failed else "no promise broken"}')
    return failed


def walk(rules, relaxations, options):
    for mode in options.commit:
        for wording, variants in ({'given': relaxations} if relaxations else WORDINGS).items():
            for number in range(options.walk):
                rng = random.Random(f'{options.seed}/{number}')
                system = build('all', mode, rules, variants, options)
                system.writes, system.crashes, system.max_log = 9, 4, 12
                trace = random_walk(system, 150, rng)
                if trace:
                    print(f'commit={mode}, {wording}, walk {number} of seed {options.seed}:')
                    print_trace(trace)
                    return True
            print(f'commit={mode}, {wording}: {options.walk} walks of up to 150 steps, nothing broken', flush=True)
    return False


# A rule that another one implies shows nothing when it alone is dropped: drop it with the rule that implies it.
IMPLIED_BY = {'dirty-flag-clear-after-flush': {'clean-after-backing-flush'},
              'reuse-after-clean-durable': {'reuse-logged'},
              'reuse-after-superseded-durable': {'reuse-logged'}}


def table(options):
    for name in options.table or RULES:
        number, text = RULES[name]
        best = shortest_failure(ALL_RULES - {name}, options.relax, options)
        print(f'\n{name} (rule {number}): {text}')
        if not best and name in IMPLIED_BY:
            print(f'  nothing alone; dropped together with {", ".join(sorted(IMPLIED_BY[name]))}:')
            best = shortest_failure(ALL_RULES - {name} - IMPLIED_BY[name], options.relax, options)
        if best:
            print(f'  commit={best[0]}, scenario {best[1]}, {len(best[2]) - 1} steps')
            print_trace(best[2])
        else:
            print('  no failure found')
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--without', action='append', default=[], choices=RULES, metavar='RULE', help='drop a rule')
    parser.add_argument('--relax', action='append', default=[], choices=RELAXATIONS, metavar='NAME',
                        help='use a cheaper variant')
    parser.add_argument('--commit', action='append', choices=MODES, help='default: both')
    parser.add_argument('--scenario', action='append', choices=SCENARIOS)
    parser.add_argument('--states', type=int, help='bound per scenario (default 15000; 1000000 with --deep)')
    parser.add_argument('--deep', action='store_true', help='one more write and two more records per scenario')
    parser.add_argument('--strict-discard', action='store_true', help='a discarded block may not read as older than before')
    parser.add_argument('--power-cuts-only', action='store_true', help='no crash that leaves the devices powered')
    parser.add_argument('--walk', type=int, default=0, metavar='N', help='N random walks instead')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--table', nargs='*', choices=RULES, metavar='RULE',
                        help='drop each rule (or each one named) in turn, show the shortest failure')
    parser.add_argument('--quiet', action='store_true', help='print totals, and what breaks')
    parser.add_argument('--list', action='store_true', help='list rules and relaxations')
    options = parser.parse_args()
    options.states = options.states or (1000000 if options.deep else 15000)
    options.commit = options.commit or list(MODES)
    if options.list:
        for name, (number, text) in RULES.items():
            print(f'{name:38} rule {number:2}  {text}')
        for name, text in RELAXATIONS.items():
            print(f'{name:38} variant  {text}')
        return 0
    if options.table is not None:
        table(options)
        return 0
    rules = ALL_RULES - set(options.without)
    run = walk if options.walk else explore
    return int(run(rules, options.relax, options))


if __name__ == '__main__':
    sys.exit(main())
