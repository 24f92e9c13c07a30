#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Explore model.py and mirror.py: exhaustively within each scenario's bounds, or by long random walks."""
import argparse
import pathlib
import random
import re
import sys
import time
from itertools import product

import mirror
import model
from model import CLEAN, FILL, INTENT, INVALIDATE, OMITTED, SEGMENT_OPEN, WRITE, Entry, show

RULES = {**model.RULES, **mirror.RULES}
ALL_RULES = frozenset(RULES)
RELAXATIONS = {**model.RELAXATIONS, **mirror.RELAXATIONS}

KINDS = {WRITE: 'WRITE', FILL: 'FILL', OMITTED: 'FILL', CLEAN: 'CLEAN', INVALIDATE: 'INVALIDATE', INTENT: 'INTENT',
         SEGMENT_OPEN: 'SEGMENT_OPEN'}
MODES = {'auto': False, 'always': True}             # commit=

FLUSH = ('flush F1 issued', 'ssd-flush completes: acknowledges F1')
TWO_FLUSHES = ('mark-set', 'bypass a', 'bypass b', 'bypass-completes a', 'flush F1 issued', 'bypass-completes b',
               'flush F2 issued')
DIRTY_IN_CHECKPOINT = ('write a', 'commit WRITE(a1)', 'commit-completes WRITE(a1)', *FLUSH, 'checkpoint-begins',
                       'checkpoint-named')
THROUGH_AND_FLUSH = ('mark-set', 'bypass b', 'bypass-completes b', 'writethrough a', 'backing-flush issued')
WRITTEN_THROUGH = ('mark-set', 'writethrough a', 'bypass-completes a', 'fill-appended a', 'commit FILL(a1)',
                   'commit-completes FILL(a1)')
WRITTEN_BACK = DIRTY_IN_CHECKPOINT + ('writeback-begins a', 'writeback-completes a', 'backing-flush')
BEHIND_A_WRITE = ('write a', 'data-completes WRITE(a1)', 'mark-set', 'write b')
FILLED_BEHIND_A_WRITE = ('mark-set', 'write b', 'commit WRITE(b1)', 'miss a', 'fill-appended a', 'commit FILL(a0)',
                         'commit-completes FILL(a0)')
BYPASSED_BEHIND_A_WRITE = FILLED_BEHIND_A_WRITE + ('bypass a', 'bypass-completes a', 'backing-flush')
SNAPSHOT_BEGUN = ('write b', 'commit WRITE(b1)', 'commit-completes WRITE(b1)', 'write b', 'commit WRITE(b2)',
                  'commit-completes WRITE(b2)', *FLUSH, 'checkpoint-begins', 'checkpoint-named', 'checkpoint-begins')
FILLED_AND_MARKED = ('miss a', 'fill-appended a', 'commit FILL(a0)', 'commit-completes FILL(a0)', 'mark-set')
FILLING_AND_WRITING = ('miss b', 'fill-appended b', 'commit FILL(b0)', 'write a', 'data-completes WRITE(a1)')
BEHIND_A_WRITE_OF_B = ('write b', 'commit WRITE(b1)', 'commit-completes WRITE(b1)')
COMMITTED = ('write a', 'commit WRITE(a1)', 'commit-completes WRITE(a1)', *FLUSH, 'mark-set')
CLEAN_APPENDED = COMMITTED + ('writeback-begins a', 'writeback-completes a', 'backing-flush', 'clean-appended a')
INVALIDATE_APPENDED = COMMITTED + ('discard a', 'discard-completes a', 'backing-flush')
SSD_FAILED = ('miss a', 'fill-appended a', 'commit FILL(a0)', 'commit-completes FILL(a0)', 'write a', 'commit WRITE(a1)',
              'commit-completes WRITE(a1)', 'ssd-fails')
DRAIN_CUT_OFF = SSD_FAILED + ('void-set', 'writeback-begins a', 'power-cut: replay misses WRITE(a1); backing has a1; starts')

# The rules as the design words them: which of the cheaper variants its rules 4, 5, 6 (and 6b), 9 and 11 are.
RULES_5_6_9 = ('bypass-after-clean-applied', 'mark-only-where-replay-finds-a-copy', 'no-separate-reuse-waits')
DESIGN = RULES_5_6_9 + ('void-by-checkpoint', 'void-only-where-not-durable')
WORDINGS = {model: {'plain': (), 'design (a)': DESIGN, 'design (b)': DESIGN + ('clear-by-checkpoint',)},
            mirror: {'plain': (), 'cheap': tuple(mirror.RELAXATIONS)}}

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
    'flush-drops': dict(actions='bypass flush device-flush', blocks=2, slots=1, writes=2, crashes=1, max_log=3, flushes=1,
                        failures=2, drops=True, prelude=('mark-set',)),
    'flush-drops-fua': dict(actions='bypass bypass-fua write-fua flush preflush device-flush', blocks=2, slots=1, writes=2,
                            crashes=1, max_log=4, flushes=2, failures=1, drops=True, prelude=('mark-set',)),
    'flush-drops-through': dict(actions='evict fill mark flush device-flush', slots=2, writes=1, crashes=1, max_log=5, failures=1,
                                drops=True, prelude=WRITTEN_THROUGH[:3]),
    'flush-drops-copy': dict(actions='evict mark flush device-flush', slots=1, writes=1, crashes=1, max_log=5, failures=1,
                             drops=True, prelude=WRITTEN_THROUGH),
    'flush-drops-writeback': dict(actions='writeback evict bypass flush device-flush', blocks=2, slots=2, writes=2, crashes=1,
                                  max_log=4, failures=1, drops=True, prelude=COMMITTED),
    'flush-drops-early': dict(actions='bypass flush device-flush', blocks=2, slots=1, writes=2, crashes=1, max_log=3, flushes=2,
                              failures=1, drops_early=True, prelude=('mark-set',)),
    'flush-drops-early-writeback': dict(actions='writeback evict bypass flush device-flush', blocks=2, slots=2, writes=2, crashes=1,
                                        max_log=4, failures=1, drops_early=True, prelude=COMMITTED),
    'flush-drops-early-fua': dict(actions='bypass bypass-fua write-fua flush preflush device-flush', blocks=2, slots=1, writes=2,
                                  crashes=1, max_log=4, flushes=2, failures=1, drops_early=True, prelude=('mark-set',)),
    'doubt': dict(actions='write flush device-flush', slots=2, writes=2, crashes=1, max_log=3, failures=1, ssd_drops=True),
    'doubt-again': dict(actions='write flush device-flush', slots=2, writes=1, crashes=1, max_log=3, failures=2, ssd_drops=True),
    'doubt-flushes': dict(actions='write flush', blocks=2, slots=2, writes=2, crashes=1, max_log=3, flushes=2, failures=1,
                          ssd_drops=True),
    'doubt-fua': dict(actions='write-fua device-flush', blocks=2, slots=3, writes=2, crashes=1, max_log=3, failures=1,
                      ssd_drops=True, prelude=('write a', 'data-completes WRITE(a1)')),
    'doubt-fill': dict(actions='fill evict device-flush', slots=2, writes=0, crashes=1, max_log=3, failures=1, ssd_drops=True),
    'doubt-copies': dict(actions='flush device-flush', blocks=2, slots=2, writes=1, crashes=1, max_log=3, failures=1,
                         ssd_drops=True, prelude=FILLING_AND_WRITING),
    'doubt-writeback': dict(actions='write writeback evict device-flush', slots=2, writes=1, crashes=1, max_log=4, failures=1,
                            ssd_drops=True),
    'doubt-clean': dict(actions='bypass bypass-fua evict device-flush missing', slots=2, writes=2, crashes=1, max_log=4, failures=1,
                        ssd_drops=True, prelude=CLEAN_APPENDED),
    'doubt-mark': dict(actions='bypass evict mark device-flush', blocks=2, slots=2, writes=2, crashes=1, max_log=4, failures=1,
                       ssd_drops=True, prelude=FILLED_AND_MARKED[:4] + BEHIND_A_WRITE_OF_B),
    'doubt-reuse': dict(actions='write evict reclaim device-flush', blocks=2, slots=1, writes=2, crashes=1, max_log=4, failures=1,
                        ssd_drops=True, prelude=WRITTEN_BACK + ('clean-appended a',)),
    'doubt-checkpoint': dict(actions='write flush checkpoint device-flush', slots=2, writes=1, crashes=1, max_log=3, failures=1,
                             ssd_drops=True),
    'bypass': dict(actions='bypass bypass-fua fill evict flush mark', slots=2, writes=3, crashes=2, max_log=5),
    'writethrough': dict(actions='writethrough write evict writeback flush mark', slots=3, writes=3, crashes=2, max_log=5),
    'writeback': dict(actions='write writeback fill evict flush', slots=3, writes=3, crashes=2, max_log=5),
    'tomb': dict(actions='write bypass bypass-fua writeback mark flush', slots=3, writes=3, crashes=1, max_log=6),
    'discard': dict(actions='write discard bypass-fua fill evict writeback mark', slots=3, writes=3, crashes=1, max_log=6),
    'reuse': dict(actions='write fill keep evict reclaim checkpoint flush read', blocks=2, slots=2, writes=2,
                  crashes=1, max_log=4),
    'chunks': dict(actions='fill evict reclaim checkpoint chunks', blocks=2, slots=2, writes=0, crashes=1, max_log=4),
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
    'shown': dict(actions='bypass checkpoint mark flush', slots=1, writes=1, crashes=1, max_log=5,
                  prelude=FILLED_AND_MARKED),
    'through': dict(actions='writethrough evict mark', slots=1, writes=1, crashes=2, max_log=5),
    'over-clean': dict(actions='write bypass bypass-fua flush missing', slots=2, writes=2, crashes=2, max_log=6,
                       prelude=CLEAN_APPENDED),
    'over-discard': dict(actions='write bypass bypass-fua flush missing', slots=2, writes=3, crashes=2, max_log=6,
                         prelude=INVALIDATE_APPENDED),
    'missing': dict(actions='write bypass writeback fill evict flush mark missing', slots=2, writes=3, crashes=3,
                    max_log=5),
    'ssd-fails': dict(actions='write fill evict flush', slots=2, writes=2, crashes=2, max_log=3, deaths=1),
    'ssd-fails-fua': dict(actions='write write-fua flush', blocks=2, slots=2, writes=2, crashes=1, max_log=2, deaths=1),
    'ssd-fails-flush': dict(actions='writeback flush device-flush', blocks=2, slots=2, writes=2, crashes=1, max_log=3, deaths=1,
                            failures=1, prelude=COMMITTED + ('bypass b', 'bypass-completes b')),
    'ssd-fails-clean': dict(actions='write bypass writeback flush missing', slots=2, writes=2, crashes=1, max_log=6,
                            deaths=1, prelude=COMMITTED + ('writeback-begins a',)),
    'ssd-fails-bypass': dict(actions='write bypass discard mark', slots=2, writes=2, crashes=1, max_log=4, deaths=1,
                             prelude=FILLED_AND_MARKED),
    'ssd-fails-again': dict(actions='write fill evict checkpoint', slots=4, writes=2, crashes=3, max_log=5, deaths=2,
                            prelude=DRAIN_CUT_OFF),
    'ssd-fails-marked': dict(actions='bypass mark checkpoint evict', slots=2, writes=2, crashes=3, max_log=5, deaths=2,
                             prelude=DRAIN_CUT_OFF),
    'all': dict(actions='write write-fua bypass bypass-fua writethrough discard fill keep evict read flush writeback reclaim '
                        'mark checkpoint chunks missing device-flush', blocks=2, slots=3, writes=5, crashes=3, max_log=8, flushes=2,
                failures=2),
}
SCENARIOS['all-drops'] = dict(SCENARIOS['all'], drops=True, actions=SCENARIOS['all']['actions'] + ' preflush')
SCENARIOS['all-doubt'] = dict(SCENARIOS['all'], ssd_drops=True)
SCENARIOS['all-ssd-fails'] = dict(SCENARIOS['all'], deaths=3, prelude=SSD_FAILED)

A_WRITE = ('write a', 'WRITE(a1) completes on A', 'WRITE(a1) completes on B')
FLUSHED = ('ssd-flush A', 'ssd-flush B')
TWO_WRITTEN = A_WRITE + ('write b', 'WRITE(b1) completes on A', 'WRITE(b1) completes on B') + FLUSHED
CLEANED = ('writeback begins a', 'writeback completes a', 'backing-flush', 'clean appended a', 'CLEAN(a) completes on A',
           'CLEAN(a) completes on B')
WRITTEN_BACK_TWICE_HELD = A_WRITE + FLUSHED + CLEANED
CLEAN_DURABLE = WRITTEN_BACK_TWICE_HELD + FLUSHED
CHECKPOINT = ('checkpoint begins', 'superblock written on A', 'superblock written on B')
B_DIES = ('B dies', 'removal begins of B', 'generation {A} written to A', 'generation {A} written to the backing')
JOINS = ('B begins to join', 'copying begins to B', 'all copied to B', 'flushed, counts: B', 'checkpoint begins',
         'superblock written on A', 'superblock written on B', 'generation begins with B')
OLD_EPOCH = ('write a', 'WRITE(a1) completes on A', 'ssd-flush A',
             'power-cut: log has WRITE(a1) on {A}; backing has a0; {A, B} start as {A}', 'start: flushes {A} and the backing',
             'start: new epoch on A ; serves')

# three copies
A_WRITE_3 = (*A_WRITE, 'WRITE(a1) completes on C')
FLUSHED_3 = (*FLUSHED, 'ssd-flush C')
CLEANED_3 = (*CLEANED, 'CLEAN(a) completes on C')
CHECKPOINT_3 = (*CHECKPOINT, 'superblock written on C')
C_JOINS = ('C begins to join', 'copying begins to C', 'all copied to C', 'flushed, counts: C', 'ssd-flush A', 'ssd-flush B',
           'checkpoint begins', 'superblock written on A', 'superblock written on B', 'superblock written on C',
           'generation begins with C')

# The set of SSDs.  losses: SSDs that die, or are missing at a start, and copies that go bad, together.
MIRROR_SCENARIOS = {
    'mirror-write': dict(actions='write flush die', writes=1, crashes=1, losses=2, max_log=1),
    'mirror-two-blocks': dict(actions='write', blocks=2, writes=2, crashes=1, losses=1, max_log=2),
    'mirror-overwrite': dict(actions='write flush die', writes=2, crashes=1, losses=2, max_log=2),
    'mirror-start': dict(actions='write flush', writes=1, crashes=3, losses=2, max_log=1),
    'mirror-started': dict(actions='write flush', writes=2, crashes=2, losses=2, max_log=2, prelude=('write a',)),
    'mirror-damage': dict(actions='write flush damage', writes=1, crashes=2, losses=1, max_log=1),
    'mirror-checkpoint': dict(actions='write checkpoint flush die', writes=1, crashes=1, losses=1, max_log=1),
    'mirror-writeback': dict(actions='write writeback evict die', writes=2, crashes=1, losses=2, max_log=3,
                             prelude=(*A_WRITE, 'ssd-flush A', 'ssd-flush B')),
    'mirror-free': dict(actions='free', blocks=2, writes=2, crashes=1, losses=1, max_log=4, prelude=TWO_WRITTEN + CLEANED),
    'mirror-freed': dict(actions='free', writes=1, crashes=2, losses=1, max_log=3,
                         prelude=A_WRITE + FLUSHED + CHECKPOINT + CLEANED),
    'mirror-freed-lost': dict(actions='free write flush die', writes=2, crashes=1, losses=1, max_log=4,
                              prelude=A_WRITE + FLUSHED + CLEANED + FLUSHED + CHECKPOINT),
    'mirror-clean': dict(actions='fill bypass evict mark die', writes=1, crashes=2, losses=1, max_log=3,
                         prelude=('fill a on B', 'ssd-flush B')),
    'mirror-clean-lost': dict(actions='bypass mark', writes=1, crashes=2, losses=1, max_log=3,
                              prelude=('fill a on B', 'ssd-flush B', *CHECKPOINT, 'B dies')),
    'mirror-second': dict(actions='evict reopen die', writes=1, crashes=1, losses=1, max_log=3,
                          prelude=('fill a on B', 'ssd-flush B', *CHECKPOINT)),
    'mirror-second-written': dict(actions='evict reopen checkpoint', writes=1, crashes=2, losses=1, max_log=4,
                                  prelude=A_WRITE + FLUSHED + CLEANED + FLUSHED + CHECKPOINT),
    'mirror-former': dict(actions='bypass fill join', writes=1, crashes=1, losses=1, max_log=3,
                          prelude=('fill a on B', 'ssd-flush B', *CHECKPOINT, *B_DIES, 'B answers again')),
    'mirror-join': dict(actions='write flush join die', writes=2, crashes=1, losses=1, max_log=2, members=(0,)),
    'mirror-join-appends': dict(actions='write join', writes=2, crashes=0, losses=0, max_log=2, members=(0,),
                                prelude=('write a', 'B begins to join')),
    'mirror-join-late': dict(actions='write flush join', writes=1, crashes=1, losses=1, max_log=1, members=(0,), prelude=JOINS[:4]),
    'mirror-join-old': dict(actions='join', writes=1, crashes=2, losses=1, max_log=1, members=(0,), prelude=OLD_EPOCH),
    'mirror-joined': dict(actions='write flush', writes=1, crashes=2, losses=2, max_log=1, members=(0,), prelude=JOINS),
    'mirror-joined-dies': dict(actions='write flush die', writes=1, crashes=1, losses=2, max_log=1, members=(0,), prelude=JOINS),
    'mirror-rejoin': dict(actions='write flush join', writes=2, crashes=1, losses=2, max_log=2,
                          prelude=A_WRITE + FLUSHED + B_DIES + ('B answers again',)),
    'mirror-stray': dict(actions='write join', writes=2, crashes=1, losses=2, max_log=2,
                         prelude=('write a', 'WRITE(a1) completes on A', *B_DIES, 'B answers again')),
    'mirror-replace': dict(actions='write flush join', disks=3, writes=2, crashes=1, losses=2, max_log=2, prelude=A_WRITE + B_DIES),
    'mirror-three': dict(actions='write flush', disks=3, members=(0, 1, 2), writes=1, crashes=2, losses=2, max_log=1,
                         prelude=('C dies', 'removal begins of C', 'generation {A, B} written to A')),
    'mirror-resync': dict(actions='write resync flush die', writes=2, crashes=1, losses=1, max_log=3, prelude=A_WRITE),
    'mirror-resync-written': dict(actions='write resync', writes=2, crashes=0, losses=0, max_log=3, prelude=A_WRITE),
    'mirror-resync-clean': dict(actions='writeback bypass resync', writes=2, crashes=0, losses=0, max_log=4,
                                prelude=A_WRITE + FLUSHED + ('mark set',)),
    'mirror-3': dict(actions='write flush die', disks=3, members=(0, 1, 2), writes=1, crashes=1, losses=2, max_log=1),
    'mirror-3-flush': dict(actions='flush die', disks=3, members=(0, 1, 2), writes=1, crashes=1, losses=2, max_log=1,
                           prelude=(*A_WRITE_3, 'flush issued')),
    'mirror-3-overwrite': dict(actions='write flush die', disks=3, members=(0, 1, 2), writes=2, crashes=1, losses=2, max_log=2,
                               prelude=A_WRITE_3 + FLUSHED_3),
    'mirror-3-start': dict(actions='write flush', disks=3, members=(0, 1, 2), writes=1, crashes=2, losses=2, max_log=1),
    'mirror-3-damage': dict(actions='flush damage', disks=3, members=(0, 1, 2), writes=1, crashes=1, losses=2, max_log=1,
                            prelude=A_WRITE_3 + FLUSHED_3),
    'mirror-3-two-die': dict(actions='write flush die', disks=3, members=(0, 1, 2), writes=2, crashes=1, losses=2, max_log=2,
                             prelude=(*A_WRITE_3, *FLUSHED_3, 'C dies')),
    'mirror-3-freed': dict(actions='free write flush die', disks=3, members=(0, 1, 2), writes=2, crashes=1, losses=2, max_log=4,
                           prelude=A_WRITE_3 + FLUSHED_3 + CLEANED_3 + FLUSHED_3 + CHECKPOINT_3),
    'mirror-3-joins': dict(actions='write flush join die', disks=3, writes=2, crashes=1, losses=2, max_log=2,
                           prelude=('write a', 'C begins to join')),
    'mirror-3-joined': dict(actions='flush die', disks=3, writes=1, crashes=1, losses=2, max_log=1, prelude=A_WRITE + C_JOINS),
    'mirror-2-of-3': dict(actions='write flush die resync', disks=3, members=(0, 1, 2), copies=2, writes=2, crashes=1, losses=1,
                          max_log=3),
    'mirror-3-of-4': dict(actions='write flush die', disks=4, members=(0, 1, 2, 3), copies=3, writes=1, crashes=1, losses=2,
                          max_log=1),
    'mirror-3-of-4-two-die': dict(actions='write flush die', disks=4, members=(0, 1, 2, 3), copies=3, writes=2, crashes=1, losses=2,
                                  max_log=2, prelude=('write a to {A, B, C}', *A_WRITE_3[1:], *FLUSHED_3, 'B dies', 'C dies')),
    'mirror-all': dict(actions='write flush bypass fill evict writeback checkpoint free reopen mark die join damage resync',
                       blocks=2, disks=3, writes=3, crashes=2, losses=2, max_log=6),
}
SCENARIOS.update(MIRROR_SCENARIOS)


def model_of(name):
    return mirror if name in MIRROR_SCENARIOS else model


def scenarios_of(rule, options):
    """Only the model that has the rule can show what breaks without it."""
    return [s for s in options.scenario or SCENARIOS if rule in model_of(s).RULES]


def build(name, mode, rules, relaxations, options):
    bounds = dict(SCENARIOS[name])
    if options.deep:
        bounds.update(writes=bounds['writes'] + 1, max_log=bounds['max_log'] + 2)
    bounds['actions'] = bounds['actions'].split()
    bounds.pop('prelude', None)
    return model_of(name).System(rules, relaxations, strict_discard=options.strict_discard,
                                 kernel_crashes=not options.power_cuts_only, always=MODES[mode], **bounds)


def begin(name, system):
    """The state that the scenario's prelude leads to, and the labels on the way."""
    state, labels = system.initial(), []
    everything = 'mirror-all' if name in MIRROR_SCENARIOS else 'all'
    actions, system.actions = system.actions, frozenset(SCENARIOS[everything]['actions'].split())
    for wanted in SCENARIOS[name].get('prelude', ()):
        step = next((step for step in system.successors(state) if describe(step[0]) == wanted), None)
        if step is None:                    # a dropped rule changed the course of events
            assert not system.rules >= set(model_of(name).RULES), f'{name}: no step "{wanted}"'
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


def random_walk(name, system, steps, rng):
    state, labels = begin(name, system)
    for _ in range(steps):
        left = state.crashes_left
        quiet = left and rng.random() < .95
        choices = list(system.successors(state._replace(crashes_left=0) if quiet else state))
        if not choices and quiet:
            quiet, choices = False, list(system.successors(state))
        if not choices:
            break
        names = sorted({label[0] for label, _ in choices})      # by name: a crash has hundreds of outcomes
        name = rng.choice([n for n in names if not quiet or n not in ('detach', 'leave')] or names)
        label, after = rng.choice([c for c in choices if c[0][0] == name])
        labels.append(label)
        broken = after if isinstance(after, str) else system.violation(after)
        if broken:
            return labels + [broken]
        state = after._replace(crashes_left=left) if quiet else after
    return None


def describe(label):
    if isinstance(label, str):
        return 'BROKEN: ' + label
    name, *rest = label
    if all(isinstance(word, str) for word in label) or len(label) == 5:
        return mirror.describe(label)
    if name in ('power-cut', 'kernel-crash'):
        lost, backing, how = rest
        lost = ', '.join(record_text(r) for r in lost) or 'nothing'
        return f'{name}: replay misses {lost}; backing has {" ".join(map(show, backing))}; {how}'
    slots = name in ('reclaim', 'chunk-written')
    return ' '.join([name] + [record_text(r) if isinstance(r, Entry) else f'slot {r}' if slots else 'abc'[r]
                              for r in rest])


def record_text(record):
    value = show(record.value) if record.kind in (WRITE, FILL) else 'abc'[record.block]
    return f'{KINDS[record.kind]}({value})' if record.kind not in (INTENT, SEGMENT_OPEN) else KINDS[record.kind]


def print_trace(trace):
    for number, label in enumerate(trace, 1):
        print(f'    {number:2}. {describe(label)}')


def shortest_failure(rules, relaxations, scenarios, options):
    """The shortest trace over the scenarios; with commit=always only where commit=auto shows none."""
    best = None
    for mode in options.commit:
        for name in scenarios:
            system = build(name, mode, rules, relaxations, options)
            limit = len(best[2]) - 2 if best else 1000        # only a shorter one is of interest
            *_, trace = breadth_first(name, system, options.states, limit - len(SCENARIOS[name].get('prelude', ())))
            if trace and (best is None or len(trace) < len(best[2])):
                best = (mode, name, trace)
        if best:
            return best
    return None


def wordings(relaxations, options):
    """(name, variants, the scenarios to explore with them)"""
    chosen = options.scenario or SCENARIOS
    if relaxations:
        yield 'given', relaxations, chosen
        return
    for which, variants in WORDINGS.items():
        names = [s for s in chosen if model_of(s) is which]
        for wording in variants if names else ():
            yield wording, variants[wording], names


def explore(rules, relaxations, options):
    failed, explored = False, 0
    for mode in options.commit:
        total, began = 0, time.time()
        for wording, variants, names in wordings(relaxations, options):
            for name in names:
                system = build(name, mode, rules, variants, options)
                states, exhausted, depth, trace = breadth_first(name, system, options.states)
                total += states
                verdict = 'BROKEN' if trace else 'exhausted' if exhausted else 'bounded'
                if trace or not options.quiet:
                    print(f'{mode:7} {wording:10}  {name:19} {states:8} states  depth {depth:3}  {verdict}', flush=True)
                if trace:
                    failed = True
                    print_trace(trace)
        print(f'commit={mode}: {total} states in {time.time() - began:.0f} s')
        explored += total
    print(f'model: {explored} states, {"BROKEN" if failed else "no promise broken"}')
    return failed


def walk(rules, relaxations, options):
    for mode in options.commit:
        everything = argparse.Namespace(scenario=options.scenario or ['all', 'all-drops', 'all-ssd-fails', 'mirror-all'])
        for wording, variants, names in wordings(relaxations, everything):
            for number, name in product(range(options.walk), names):
                rng = random.Random(f'{options.seed}/{number}')
                system = build(name, mode, rules, variants, options)
                system.writes, system.crashes, system.max_log, system.losses = 9, 4, 8 if name == 'mirror-all' else 12, 3
                trace = random_walk(name, system, 150, rng)
                if trace:
                    print(f'commit={mode}, {name}, {wording}, walk {number} of seed {options.seed}:')
                    print_trace(trace)
                    return True
            print(f'commit={mode}, {", ".join(names)}, {wording}: {options.walk} walks of up to 150 steps, nothing broken',
                  flush=True)
    return False


# A rule that another one implies shows nothing when it alone is dropped: drop it with the rule that implies it.
IMPLIED_BY = {'dirty-flag-clear-after-flush': {'clean-after-backing-flush'},
              'free-after-clean-durable': {'free-logged'},
              'reuse-after-clean-durable': {'reuse-logged'},
              'reuse-after-superseded-durable': {'reuse-logged'}}


HEAD = re.compile(r'^([a-z-]+) \(rule \d+\)')
TOGETHER = re.compile(r'^  nothing alone; dropped together with (.*):$')
TRACE = re.compile(r'^  commit=(\w+), scenario ([\w-]+), (\d+) steps')


def counterexamples():
    """What --table has found, by counterexamples.txt: rule, those dropped with it, commit mode, scenario, steps."""
    rule, others = None, frozenset()
    for line in pathlib.Path(__file__).with_name('counterexamples.txt').read_text().splitlines():
        if head := HEAD.match(line):
            rule, others = head[1], frozenset()
        elif together := TOGETHER.match(line):
            others = frozenset(together[1].split(', '))
        elif trace := TRACE.match(line):
            yield rule, others, trace[1], trace[2], int(trace[3])


def again(rules, mode, scenario, options, steps=1000):
    """A trace, of up to so many steps, without these rules in a scenario where one is known."""
    system = build(scenario, mode, rules, options.relax, options)
    *_, trace = breadth_first(scenario, system, options.states, steps - len(SCENARIOS[scenario].get('prelude', ())))
    return (mode, scenario, trace) if trace else None


def known_failure(name, options):
    """(those dropped with it, (mode, scenario, trace) or None): where counterexamples.txt has one."""
    for rule, others, mode, scenario, _ in counterexamples():
        if others and others != IMPLIED_BY.get(rule):
            continue
        if rule == name and mode in options.commit and scenario in (options.scenario or SCENARIOS):
            return others, again(ALL_RULES - {name} - others, mode, scenario, options)
    return frozenset(), None


def failure_without(name, options):
    """(those that had to be dropped with it, (mode, scenario, trace) or None)"""
    if options.brief:
        others, found = known_failure(name, options)
        if found:
            return others, found
    others, scenarios = frozenset(), scenarios_of(name, options)
    found = shortest_failure(ALL_RULES - {name}, options.relax, scenarios, options)
    if not found and name in IMPLIED_BY:
        others = IMPLIED_BY[name]
        found = shortest_failure(ALL_RULES - {name} - others, options.relax, scenarios, options)
    return others, found


def print_row(name, others, found):
    number, text = RULES[name]
    if not found:
        what = f'BREAKS NOTHING: {text}'
    else:
        mode, scenario, trace = found
        together = f' (with {", ".join(sorted(others))})' if others else ''
        what = f'{len(trace) - 1:2} steps, commit={mode}, {scenario}{together}: {trace[-1]}'
    print(f'rule {number:2}  {name:38} {what}', flush=True)


def print_failure(name, others, found):
    number, text = RULES[name]
    print(f'\n{name} (rule {number}): {text}')
    if others:
        print(f'  nothing alone; dropped together with {", ".join(sorted(others))}:')
    if found:
        mode, scenario, trace = found
        print(f'  commit={mode}, scenario {scenario}, {len(trace) - 1} steps')
        print_trace(trace)
    else:
        print('  no failure found')
    sys.stdout.flush()


def table(options):
    """Whether some rule breaks nothing when it is dropped."""
    names, needless, together = options.table or list(RULES), [], 0
    for name in names:
        others, found = failure_without(name, options)
        (print_row if options.brief else print_failure)(name, others, found)
        together += bool(found and others)
        if not found:
            needless.append(name)
    if options.brief:
        verdict = f'FAILED: {", ".join(needless)} break nothing' if needless else \
            f'each breaks a promise, {together} of them only with the rule that implies it'
        print(f'model: {len(names)} rules dropped in turn, {verdict}')
    return bool(needless)


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
                        help='drop each rule (or each one named) in turn, show the shortest failure; fails if one breaks nothing')
    parser.add_argument('--brief', action='store_true',
                        help='with --table: a line a rule, of the scenario that counterexamples.txt names, as long as it shows one')
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
        return int(table(options))
    rules = ALL_RULES - set(options.without)
    run = walk if options.walk else explore
    return int(run(rules, options.relax, options))


if __name__ == '__main__':
    sys.exit(main())
