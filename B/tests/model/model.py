# SPDX-License-Identifier: GPL-2.0-or-later
"""Executable specification of larder's ordering rules.

One volume, one SSD, one backing, both with a volatile write cache.  A state is an immutable tuple; successors() lists
every step that the rules allow from it, each with the state it leads to; violation() says which promise a state breaks.
A rule is a name in RULES: taking it out of the set that a System is built with takes the rule out of the design.

Simplifications that hold everywhere (README.md argues them):
 * a block is what one sector run is to the design; a segment holds ONE block of data, so "slot" and "segment" are one
 * a record is a COMMIT block and the entries of its stream since the previous one; its sequence number is the position
   of the COMMIT in State.log; an entry without a COMMIT behind it waits in memory: no replay will see it
 * metadata entries (CLEAN, INVALIDATE, INTENT, SEGMENT_OPEN) have no data and take no slot
 * a COMMIT that is sent while data of its record is in flight completes together with it, as one append
 * one intent region covers the whole volume
 * the flushes that the cache needs for itself are one instant in most scenarios (ssd_flush(), hdd_flush()): on the media a
   flush that completes later leaves nothing else behind.  It differs in what the cache believes meanwhile: needs_flush,
   flushes, failed.  User flushes always have two steps; the action 'device-flush' adds flushes of the cache that have two
 * at most one user write or discard in flight per block (the block layer orders nothing else)

Values are ints: block * 10 + n is the n-th write to that block, n = 0 what the backing held at first.
"""
from itertools import product
from typing import NamedTuple

ZERO, GARBAGE, ANY, ERROR = 90, 91, 92, 93   # discarded; torn; oracle: any value this block ever had; a read that fails
WRITE, CLEAN, INVALIDATE, INTENT, SEGMENT_OPEN, COMMIT = range(6)       # the write stream
FILL, OMITTED, FILL_COMMIT = range(6, 9)                # the fill stream; OMITTED: data that no commit block will describe
DATA, COMMITS = (WRITE, FILL), (COMMIT, FILL_COMMIT)
IN_FLIGHT, COMPLETED, SHOWN, TORN = range(4)            # phase of an entry; SHOWN: the index shows it
ST_DIRTY, ST_CLEANING, ST_CLEAN = range(3)              # state of an index entry (slot, state)
RUNNING, PASSTHROUGH, FAILED, PASSING = range(4)        # FAILED: the SSD is only read; PASSING: the volume has left it
SSD, HDD = DEVICES = range(2)
BELIEVED = 2                                            # durable, for all the cache knows; the device knows better
SECURED = 3                                             # on media, if it is there still, but behind a hole for all the cache knows
FUA_SENT, FUA_WAITS = 1, 2                              # Entry.flag of a FUA write: sent with FUA; or flushed behind it
FLUSHED, LOOKED = 2, 3                                  # State.doubt: 1 since a flush of the SSD failed

# name: (rule of the design's section 6, what it says)
RULES = {
    'ack-in-order': (1, 'a write is acknowledged, and shown, after all earlier ones of the write stream'),
    'flush-waits': (2, 'a flush waits for all appends in flight'),
    'flush-commits': (2, 'a flush appends the commit block of all that was accepted before it'),
    'flush-ssd': (2, 'a flush flushes the SSD'),
    'flush-backing': (2, 'a flush flushes the backing if a bypassed, written-through or discarded range reached it'),
    'flush-waits-for-flush-in-flight': (2, 'a flush is acknowledged after all device flushes in flight when it looked, also '
                                           'those that others issued'),
    'flag-cleared-at-issue': (2, 'the flag "needs a flush" is cleared when a device flush is issued, not when it completes'),
    'flush-counts-from-issue': (2, 'a device flush counts only for what completed before it was issued (rules 3, 4, 6, 11)'),
    'failed-flush-sets-flag': (2, 'a failed device flush sets the flag again: the next flush repeats it'),
    'failed-flush-sticks': (2, 'a FUA write first repeats a failed flush'),
    'error-after-all-ended': (2, 'an error, too, is returned only after all device flushes that the flush waits for ended'),
    'stuck-until-reissued': (2, 'only the success of a device flush that was issued after the last failure ends that'),
    'failed-flush-owed': (2, 'a flush of the backing that failed while what users were told is done was volatile there, and of '
                             'which no user was told, fails one flush, or one FUA write, of a user'),
    'backing-flush-in-flight': (2, 'a flush of the backing that succeeds beside an earlier one ends as that does'),
    'doubt-blocks': (2, 'while the SSD is in doubt (a flush of it has failed) nothing counts as durable on it that was not before: '
                        'no CLEAN, mark, SEGMENT-OPEN, checkpoint, detach, FUA write or flush; new writes wait'),
    'doubt-reads': (2, 'what is read is compared with its checksums as it ends meanwhile, and a doubt ends after the reads that '
                       'began before it: what is gone gives errors, or is read from the backing'),
    'doubt-reissued': (2, 'a flush of the SSD that was issued before another one failed secures nothing'),
    'doubt-in-flight': (2, 'nor does one if another that was in flight as it ended fails'),
    'doubt-closes': (2, 'the flush that begins to end a doubt is issued when all that was submitted before is applied'),
    'doubt-looks': (2, 'behind it what was written since the last flush that counts is compared: what is gone and CLEAN leaves the '
                       'index, what is gone and dirty gives errors'),
    'doubt-looks-at-copies': (2, 'also at copies whose record has an earlier number than one that is durable: they are of '
                                 'another stream'),
    'doubt-owed': (2, 'and fails a flush, or a FUA write, of a user'),
    'doubt-fua': (2, 'a FUA write whose own data is gone fails, whoever else was told'),
    'doubt-checkpoint': (2, 'a doubt ends when a checkpoint that began behind the look is named'),
    'doubt-kept': (2, 'what is gone and dirty is known to each start that finds it mapped: it gives errors there, too, and is '
                      'owed again'),
    'fua-prefix': (3, 'a FUA write is acknowledged only when its whole record and all earlier ones are durable'),
    'durable-is-prefix': (3, 'a record counts as durable only with all earlier records of the write stream'),
    'writeback-durable-only': (4, 'writeback takes only data whose record is durable'),
    'writeback-owns-range': (4, 'a discard or bypassed write waits for a writeback of its range in flight'),
    'clean-after-backing-flush': (4, 'a CLEAN record is appended only after a flush of the backing'),
    'clean-without-error': (4, 'and not if one has failed since the data was written'),
    'clean-names-slot': (4, 'a CLEAN record names the slot, and cleans only a mapping to that slot'),
    'void-before-drain': (4, 'what a failed SSD cannot make durable is written back all the same, after CLEAN_VOID is durable'),
    'pin-writebacks': (4, 'a slot is not reused while a writeback of it has neither logged its CLEAN nor been given up'),
    'bypass-not-over-dirty': (5, 'a write bypasses only where nothing is cached or all is CLEAN'),
    'bypass-after-clean-durable': (5, 'a bypassed write waits until the CLEAN record is durable'),
    'tomb': (5, 'a range is not bypassed before the INVALIDATE of its dirty data is durable'),
    'intent-before-bypass': (6, 'the mark is durable before a bypassed write reaches a range with a CLEAN copy'),
    'intent-uncached': (6, 'the mark is needed also where the index shows nothing cached'),
    'intent-discard': (6, 'the mark is needed for discards too'),
    'intent-clear-after-flush': (6, 'a mark is cleared only after the backing was flushed'),
    'intent-clear-drops': (6, 'where a flush of the backing has failed since a mark was set what is CLEAN in its region leaves the '
                              'cache, by an INVALIDATE ahead of the clearing'),
    'invalidate-bypassed': (6, 'an INVALIDATE of the bypassed range is in the stream ahead of the clearing of the mark'),
    'invalidate-shown': (6, 'a snapshot waits for what an INVALIDATE before its replay start names to leave the index'),
    'fill-yields-to-later-write': (7, 'a fill is dropped if a write or discard was issued after the miss began'),
    'fill-yields-to-write-in-flight': (7, 'a fill is dropped if a write or discard was in flight when the miss began'),
    'fill-commit-yields': (7, 'a commit block omits a fill whose range was written or discarded since its append'),
    'checkpoint-after-flush': (8, 'the superblock names a checkpoint after all it refers to is durable'),
    'checkpoint-commits': (8, 'and only after every write and metadata record that it shows is complete'),
    'checkpoint-from-unapplied': (8, 'replay starts at the oldest record not applied (all complete, up to it) at the '
                                     'snapshot'),
    'checkpoint-keeps-marks': (8, 'the intent marks are part of the checkpoint'),
    'checkpoint-mark-until-cleared': (8, 'a mark is set in the checkpoint until its clearing record, and all before '
                                         'it, completed'),
    'reuse-logged': (9, 'SEGMENT-OPEN is durable before the reuse; its replay drops every mapping to the segment'),
    'reuse-after-clean-durable': (9, 'a slot is reused only once the CLEAN record is durable'),
    'reuse-after-superseded-durable': (9, 'a slot is reused only once the record that superseded its data is durable'),
    'chunks-logged': (9, 'so too where chunks of a checkpoint go, unless neither that one, nor the named one, nor its log '
                         'maps anything there'),
    'pin-reads': (9, 'a slot that a read uses is not reused'),
    'keep-replay-segments': (9, 'a slot with a record that replay needs is not reused before the next checkpoint'),
    'replay-stops-at-hole': (10, 'replay of the write stream stops at the first invalid record'),
    'entries-in-order': (10, 'the entries of a commit block, data and metadata, are replayed in the order of acceptance'),
    'replay-by-sequence': (10, 'replay merges the streams by sequence number'),
    'epoch-seals': (10, 'a new epoch seals what lies behind the hole, before the first append'),
    'drop-marked': (10, 'recovery drops CLEAN extents in marked regions'),
    'recovery-flushes': (10, 'recovery flushes both devices before it serves the first read'),
    'void-drops-clean': (10, 'recovery drops all CLEAN extents of a volume whose superblock says CLEAN_VOID'),
    'recovery-logs-drops': (10, 'recovery logs an INVALIDATE for each extent it dropped for a mark, or for CLEAN_VOID'),
    'dirty-flag-first': (11, 'may_be_dirty is durable before the first dirty write'),
    'dirty-flag-clear-after-flush': (11, 'may_be_dirty is cleared after the backing was flushed'),
    'dirty-flag-clear-after-durable': (11, 'may_be_dirty is cleared only when each CLEAN and each INVALIDATE of dirty '
                                           'data is durable'),
    'incarnation': (11, 'the incarnation is raised before the first write without the cache'),
    'void-until-dropped': (11, 'CLEAN_VOID is cleared only when no replay finds what was dropped for it'),
    'leave-after-drain': (11, 'the incarnation is raised for a failed cache only when nothing of the volume is dirty'),
    'leave-after-drain-flushed': (11, 'and only after a flush of the backing behind all that was written back'),
    'leave-tells-first': (11, 'and is durable before anything that waited goes past the cache, or a flush is answered'),
}
ALL_RULES = frozenset(RULES)

# Variants of a rule that would be cheaper.  Each is safe where the explorer finds nothing with it on.
RELAXATIONS = {
    'flush-at-once': 'a flush waits only for the records of what was acknowledged',
    'flush-waits-for-last': 'a flush waits for one device flush: the last one issued, its own or another\'s',
    'idle-flush-fails': 'a flush of the backing that had nothing to secure, is the last one that was issued, and fails while there '
                        'still is nothing, is not repeated, and nobody fails or waits for it',
    'flush-spares-ssd': 'a flush neither commits nor flushes the SSD where all writes, CLEANs and INVALIDATEs of dirty data '
                        'count as durable',
    'bypass-after-clean-applied': 'for writes without FUA it is enough that the CLEAN (or the INVALIDATE) and '
                                  'all earlier records completed',
    'bypass-after-clean-shown': 'for writes without FUA it is enough that the index shows CLEAN or nothing',
    'checkpoint-from-unshown': 'replay starts at the oldest record with an entry that the index did not show',
    'mark-only-where-replay-finds-a-copy': 'no mark, no INVALIDATE for a bypassed write where neither the index, nor the '
                                           'checkpoint, nor a record since it, nor a fill in flight knows the block; but '
                                           'then no fill of it before the next backing flush',
    'clear-by-checkpoint': 'no INVALIDATE for bypassed writes: only a checkpoint clears a mark, one whose snapshot begins '
                           'after the backing flush and whose replay start is later than the last bypassed write',
    'void-by-checkpoint': 'no INVALIDATE for what was dropped for CLEAN_VOID: only a checkpoint that began after the start '
                          'clears the flag',
    'void-only-where-not-durable': 'what is durable in the cache is written back without CLEAN_VOID',
    'no-separate-reuse-waits': 'reuse waits for its SEGMENT-OPEN only, not for CLEAN or superseding records by themselves',
}


class Entry(NamedTuple):
    kind: int
    block: int
    value: int          # WRITE, FILL: the data; INTENT: set (1) or clear (0)
    slot: int           # WRITE, FILL: where the data is; CLEAN, SEGMENT_OPEN: the slot named
    phase: int
    durable: int        # WRITE, FILL: the data; COMMIT: the block
    flag: bool          # WRITE, COMMIT: FUA; FILL: must not enter the index; INVALIDATE: removed dirty data
    covered: int = 0    # by how many flushes in flight: the last ones issued
    gone: bool = False  # the SSD has dropped it, or will as it completes; the cache does not know


class DeviceFlush(NamedTuple):
    device: int
    cover: tuple        # HDD: per block, how many of State.hdd's values completed before the issue
    waiters: tuple      # user flushes
    repeat: bool        # its success ends State.failed
    risk: bool = False  # HDD: something of a user's completed since the flush before it was issued, and no later one succeeded
    doomed: bool = False            # it will fail, and has dropped what was volatile
    number: int = 0                 # its name in awaits
    awaits: tuple | None = None     # it has succeeded, and counts if these do, too; None: in flight
    idle: bool = False              # HDD: it had nothing to secure as it was issued, and none was issued since


class State(NamedTuple):
    # on the backing: per block the values a power cut may leave, oldest first; the last is what a read returns
    hdd: tuple
    may_be_dirty: bool
    stale: bool                     # the backing's incarnation differs from the cache's
    void: bool                      # CLEAN_VOID: what a replay finds CLEAN does not count
    # on the SSD
    slots: tuple                    # data by slot; None: never written
    checkpoint: tuple               # (index, mark, whether something dirty is known to be gone)
    log: tuple                      # entries and commit blocks that replay may need, in the order of their append
    replay_from: int                # a record whose COMMIT is before it is in flight still, but not replayed
    ghosts: tuple | None         # (gap, entries) behind a hole that no epoch sealed
    # in memory
    mode: int
    index: tuple                    # per block None or (slot, state)
    mark: bool
    free: tuple                     # by slot: may be written
    ops: tuple                      # operations in flight, sorted
    snapshot: tuple | None       # checkpoint being written: (replay start, first index entry, mark, chunks are gone)
    needs_flush: tuple              # by device: something completed there since the last flush was issued
    flushes: tuple                  # device flushes in flight, in the order of issue
    failed: tuple                   # by device: a flush failed, none was successfully repeated
    believed: tuple                 # per block: the backing was flushed, for all the cache knows
    risk: bool                      # something of a user's completed on the backing since the last flush was issued
    untold: bool                    # a flush failed that may have dropped such data, and no user was told
    errors: bool                    # a flush of the backing has failed since the mark was set
    doubt: int                      # a flush of the SSD has failed: 1, FLUSHED, LOOKED; 0: none
    bad: tuple                      # per block: dirty data that is known to be gone
    # oracle
    acked: tuple                    # per block: last acknowledged value
    allowed: tuple                  # per block: what a power cut may leave: last flushed value, then later ones
    owed: tuple | None           # values that a failed flush was to secure: the next FUA write must
    lost: tuple                     # per block None or (acknowledged value that the backing dropped, what it has, was a user told?)
    gone: tuple                     # values that the SSD dropped, of which no user was told
    unknown: tuple                  # per block: the backing dropped what was volatile, and nobody knows: it counts as that
    broken: str | None           # a promise that a step broke
    # bounds
    versions: tuple
    writes_left: int
    crashes_left: int
    failures_left: int
    deaths_left: int


def put(items, i, item):
    return items[:i] + (item,) + items[i + 1:]


def records(log):
    """(position of the COMMIT, positions of its entries) in sequence; last, with None, what has no COMMIT yet."""
    waiting = [], []
    for i, entry in enumerate(log):
        stream = waiting[entry.kind >= FILL]
        if entry.kind in COMMITS:
            yield i, tuple(stream)
            stream.clear()
        else:
            stream.append(i)
    yield None, tuple(sorted(waiting[0] + waiting[1]))


class System:
    """The design under one set of rules, within one scenario's bounds."""

    def __init__(self, rules=ALL_RULES, relaxations=(), actions=(), blocks=1, slots=2, writes=3, crashes=2,
                 max_log=6, flushes=1, failures=0, deaths=0, drops=False, drops_early=False, ssd_drops=False, strict_discard=False,
                 kernel_crashes=True, always=False):
        self.rules, self.relaxed = frozenset(rules), frozenset(relaxations)
        self.actions, self.blocks, self.nr_slots = frozenset(actions), blocks, slots
        self.writes, self.crashes, self.max_log, self.strict_discard = writes, crashes, max_log, strict_discard
        self.flushes, self.failures = flushes, failures        # user flushes at once, device flushes that may fail
        self.deaths = deaths                    # how often the SSD may stop taking writes; at the next start it is well again
        self.drops = drops or drops_early       # the backing may drop what is volatile when a flush fails
        self.drops_early = drops_early          # and the error comes later than that
        self.ssd_drops = ssd_drops              # so may the SSD: any of it
        self.always = always                    # commit=always
        self.crash_kinds = (True, False) if kernel_crashes else (True,)         # is it a power cut?

    def initial(self):
        n = range(self.blocks)
        start = tuple(b * 10 for b in n)
        nothing = (None,) * self.blocks
        return State(
            hdd=tuple((v,) for v in start), may_be_dirty=False, stale=False, void=False,
            slots=(None,) * self.nr_slots, checkpoint=(nothing, False, False), log=(), replay_from=0, ghosts=None,
            mode=RUNNING, index=nothing, mark=False, free=(True,) * self.nr_slots, ops=(), snapshot=None,
            needs_flush=(False, False), flushes=(), failed=(False, False), believed=(False,) * self.blocks,
            unknown=(False,) * self.blocks,
            risk=False, untold=False, errors=False, doubt=0, bad=(False,) * self.blocks, gone=(),
            acked=start, allowed=tuple((v,) for v in start), owed=None, lost=nothing, broken=None, versions=(0,) * self.blocks,
            writes_left=self.writes, crashes_left=self.crashes, failures_left=self.failures, deaths_left=self.deaths)

    # -- what a state shows ------------------------------------------------------------------------------------------

    def visible(self, s, block):
        entry = s.index[block]
        cached = s.mode == RUNNING or s.mode == FAILED and entry and entry[1] != ST_CLEAN
        if entry and cached and s.slots[entry[0]] == GARBAGE and (s.bad[block] or s.doubt and 'doubt-reads' in self.rules):
            return s.hdd[block][-1] if entry[1] == ST_CLEAN else ERROR
        return s.slots[entry[0]] if entry and cached else s.hdd[block][-1]

    def blocked(self, s):
        return s.doubt and 'doubt-blocks' in self.rules

    def flush_counts(self, s):
        """Would a flush of the SSD that is issued and completes now secure what it should?"""
        return not self.blocked(s) and ('doubt-in-flight' not in self.rules or not any(f.device == SSD for f in s.flushes)) or \
            not self.ssd_drops

    @staticmethod
    def permitted(value, allowed, block):
        return value in allowed or ANY in allowed and (value == ZERO or value // 10 == block)

    def violation(self, s):
        """While the system runs, a read returns the last acknowledged write, one in flight, or what the backing was left with."""
        if s.broken:
            return s.broken
        for b in range(self.blocks):
            value, coming = self.visible(s, b), self.values_in_flight(s, b)
            if value == s.acked[b] or value in coming or s.lost[b] and value == s.lost[b][1] or \
                    ZERO in coming and self.permitted(value, (ANY,), b):
                continue
            if value == ERROR and (s.doubt or s.untold or s.lost[b] and s.lost[b][2]):
                continue
            if value == GARBAGE and any(f.doomed for f in s.flushes):      # nobody knows yet
                continue
            return f'block {b} reads {show(value)}, last acknowledged is {show(s.acked[b])}'
        return None

    @staticmethod
    def values_in_flight(s, block):
        """Values of user writes and discards of block that are issued and not acknowledged."""
        return [op[2] for op in s.ops if op[0] in ('logged', 'bypass', 'discard', 'fua-waits') and op[1] == block] + \
               [r.value for r in s.log if r.kind == WRITE and r.block == block and r.phase < SHOWN]

    # -- the log -----------------------------------------------------------------------------------------------------

    @staticmethod
    def reached(log, position, good, prefix=True):
        """Has this entry a COMMIT, and is everything of the write stream good up to that (without prefix: its record)?"""
        first = 0 if prefix else 1 + max((i for i in range(position) if log[i].kind == COMMIT), default=-1)
        for i in range(first, len(log)):
            if log[i].kind < FILL and not good(log[i]):
                return False
            if log[i].kind == COMMIT and i >= position:
                return True
        return False

    def durable(self, s, position):
        """Will replay find this entry of the write stream after a power cut?"""
        return self.reached(s.log, position, lambda r: r.durable not in (False, SECURED), 'durable-is-prefix' in self.rules)

    def applied(self, s, position, prefix=True):
        """Would replay find it if the devices kept what they completed?"""
        return self.reached(s.log, position, lambda r: r.phase != IN_FLIGHT, prefix)

    def pending(self, s, block, kinds):
        """Is there an entry of these kinds for block that is not durable yet?"""
        return any(r.block == block and r.kind in kinds and not self.durable(s, i) for i, r in enumerate(s.log))

    @staticmethod
    def stream_idle(s):
        return not any(r.phase == IN_FLIGHT for r in s.log if r.kind < FILL)

    @staticmethod
    def waiting(s, fills=False):
        """The entries of a stream that no COMMIT covers yet."""
        *_, (_, positions) = records(s.log)
        entries = tuple(s.log[i] for i in positions if s.log[i].kind != OMITTED)
        return tuple(r for r in entries if (r.kind == FILL) == fills)

    def room(self, s):
        return sum(r.kind not in COMMITS for r in s.log) < self.max_log

    def append(self, s, kind, block, value=0, slot=-1, phase=COMPLETED, flag=False):
        log, slots, free = s.log, s.slots, s.free
        if kind in DATA:                    # the data that was in the slot is gone
            log = tuple(r._replace(phase=TORN, slot=-1) if r.slot == slot and r.kind in DATA else r for r in log)
            slots, free = put(slots, slot, value), put(free, slot, False)
        entry = Entry(kind, block, value, slot, phase, kind not in DATA, flag)
        return self.settle(s._replace(log=log + (entry,), slots=slots, free=free))

    def commit(self, s, fills=False, phase=IN_FLIGHT, durable=False, fua=False):
        """Append the commit block for everything of the stream that has none."""
        ghosts = s.ghosts
        if ghosts and not fills:
            ghosts = (ghosts[0] - 1, ghosts[1]) if ghosts[0] else None
        block = Entry(FILL_COMMIT if fills else COMMIT, 0, 0, -1, phase, durable, fua)
        if phase != IN_FLIGHT:
            s = self.set_flag(s, SSD)
        return self.settle(s._replace(log=s.log + (block,), ghosts=ghosts))

    def append_durably(self, s, kind, **fields):
        """Append, commit and make durable, as one step.  Only for metadata; needs stream_idle() under durable-is-prefix."""
        s = self.append(s, kind, 0, **fields)
        if 'durable-is-prefix' in self.rules:
            return self.ssd_flush(self.commit(s, phase=SHOWN))
        return self.commit(s, phase=SHOWN, durable=True)

    def can_append_durably(self, s):
        return self.room(s) and self.flush_counts(s) and ('durable-is-prefix' not in self.rules or self.stream_idle(s))

    def settle(self, s):
        """Show completed entries in the index, and acknowledge their writes, as far as the order allows."""
        blocked = False
        for i in range(len(s.log)):
            entry = s.log[i]
            if entry.phase == COMPLETED and (entry.kind >= FILL or not blocked):
                s = self.show(s, i, entry)
            if s.log[i].phase < SHOWN and s.log[i].kind < COMMIT:
                blocked = 'ack-in-order' in self.rules
        for op in s.ops:
            if op[0] == 'fua-waits' and not self.blocked(s):
                s = self.fua_settles(s, op)
        return s

    def fua_settles(self, s, op):
        """A FUA write that was not sent as such: its record is applied; is it durable?"""
        _, block, value = op
        position = next((i for i, r in enumerate(s.log) if r.kind == WRITE and r.value == value), None)
        if position is not None and not self.durable(s, position):
            return s
        s = self.end(s, op)
        if s.bad[block] and 'doubt-fua' in self.rules:
            lost = s.lost                   # it fails, and is what is read all the same
            s = self.acknowledge(s, block, value, False)
            return self.tell(s._replace(lost=lost))._replace(owed=None)
        if s.lost[block] and s.lost[block][0] == value:
            return s._replace(broken=f'{show(value)} is gone, and its FUA write was acknowledged')
        return self.acknowledge(s, block, value, True)

    def show(self, s, i, entry):
        kind, b, slot = entry.kind, entry.block, entry.slot
        if kind == WRITE and (self.always or entry.flag):
            if not self.applied(s, i, 'ack-in-order' in self.rules):
                return s
            if entry.flag == FUA_SENT and 'fua-prefix' in self.rules and not self.durable(s, i):
                return s                    # until a flush of the SSD
        s = s._replace(log=put(s.log, i, s.log[i]._replace(phase=SHOWN)))
        if kind == WRITE:
            s = s._replace(index=put(s.index, b, (slot, ST_DIRTY)), bad=put(s.bad, b, False))
            if entry.flag == FUA_WAITS:
                s = self.begin(s, ('fua-waits', b, entry.value))._replace(lost=put(s.lost, b, None))
            else:
                s = self.acknowledge(s, b, entry.value, entry.flag)
            return self.lose(s, b, entry.value) if entry.gone else s
        if kind == FILL and not entry.flag:
            return s._replace(index=put(s.index, b, (slot, ST_CLEAN)))
        if kind == CLEAN and s.index[b] and (s.index[b] == (slot, ST_CLEANING) or 'clean-names-slot' not in self.rules):
            return s._replace(index=put(s.index, b, (s.index[b][0], ST_CLEAN)))
        return s

    # -- flushes -----------------------------------------------------------------------------------------------------

    @staticmethod
    def set_flag(s, device, value=True):
        return s._replace(needs_flush=put(s.needs_flush, device, value))

    def ssd_flush(self, s):
        """Issued and completed in one instant, as hdd_flush()."""
        log = tuple(r._replace(durable=True, covered=0) if r.phase in (COMPLETED, SHOWN) else r for r in s.log)
        return self.settle(self.set_flag(s._replace(log=log), SSD, False))

    def hdd_flush(self, s):
        for b in range(self.blocks):
            s = self.trim(s, b, len(s.hdd[b]) - 1)
        s = s._replace(risk=False, unknown=(False,) * self.blocks, flushes=tuple(f._replace(risk=False) for f in s.flushes))
        return self.set_flag(s, HDD, False)

    @staticmethod
    def trim(s, block, n):
        """The n oldest values of block can no longer come back."""
        return s._replace(hdd=put(s.hdd, block, s.hdd[block][n:]), flushes=tuple(
            f._replace(cover=put(f.cover, block, max(f.cover[block] - n, 1))) if f.device == HDD else f
            for f in s.flushes))

    def land(self, s, block, value):
        """A write completed on the backing."""
        return s._replace(hdd=put(s.hdd, block, s.hdd[block] + (value,)), believed=put(s.believed, block, False))

    @staticmethod
    def flushed(s, block):
        """Has the backing been flushed since the last write of block completed there?"""
        return (len(s.hdd[block]) == 1 or s.believed[block]) and not s.unknown[block]

    def issue_flush(self, s, device):
        """What has completed on the device will be durable when this flush completes; what completes later may or may not."""
        idle = 'idle-flush-fails' in self.relaxed and self.idles(s) and device == HDD
        if device == HDD:
            s = s._replace(flushes=tuple(f._replace(idle=False) if f.idle else f for f in s.flushes))
        if 'flag-cleared-at-issue' in self.rules:
            s = self.set_flag(s, device, False)
        if device == SSD:
            s = s._replace(log=tuple(r._replace(covered=r.covered + 1) if r.phase in (COMPLETED, SHOWN) and
                                     r.durable in (False, SECURED) else r for r in s.log))
        cover = tuple(map(len, s.hdd)) if device == HDD else ()
        number = min(set(range(9)) - {f.number for f in s.flushes}) if self.ssd_drops or self.drops_early else 0
        flush = DeviceFlush(device, cover, (), s.failed[device], device == HDD and s.risk, number=number, idle=idle)
        return s._replace(flushes=s.flushes + (flush,), risk=s.risk and device != HDD)

    @staticmethod
    def idles(s):
        """Is there nothing for a flush of the backing to do, nor one in flight that has something to do?"""
        in_flight = any(f.device == HDD and not f.idle for f in s.flushes)
        return not (s.needs_flush[HDD] or s.failed[HDD] or s.risk or in_flight)

    def flush_completes(self, s, n):
        if self.ssd_drops and s.flushes[n].device == SSD:
            return self.ssd_flush_completes(s, n)
        if self.drops_early and s.flushes[n].device == HDD:
            return self.backing_flush_completes(s, n)
        flush, later = s.flushes[n], sum(f.device == SSD for f in s.flushes[n:])
        before = tuple(f._replace(risk=f.risk and flush.device != HDD) for f in s.flushes[:n])
        s = s._replace(flushes=before + s.flushes[n + 1:])
        everything = 'flush-counts-from-issue' not in self.rules
        if flush.device == SSD:
            log = (r._replace(durable=True, covered=0) if r.covered >= later else r for r in s.log)
            s = s._replace(log=tuple(r._replace(durable=r.durable or BELIEVED) if everything and
                                     r.phase in (COMPLETED, SHOWN) else r for r in log))
        else:
            for b in range(self.blocks):
                s = self.trim(s, b, flush.cover[b] - 1)
            s = s._replace(believed=(everything,) * self.blocks)
        if 'flag-cleared-at-issue' not in self.rules:
            s = self.set_flag(s, flush.device, False)
        if flush.repeat or 'stuck-until-reissued' not in self.rules:
            s = s._replace(failed=put(s.failed, flush.device, False))
        return self.settle(self.end_flushes(s))

    def backing_flush_completes(self, s, n):
        """Of a backing that may have dropped what was volatile for an earlier one in flight, and not have said so."""
        flush = s.flushes[n]
        for b in range(self.blocks):
            s = self.trim(s, b, flush.cover[b] - 1)
        if 'flag-cleared-at-issue' not in self.rules:
            s = self.set_flag(s, HDD, False)
        earlier = self.earlier(s, n)
        if earlier and 'backing-flush-in-flight' in self.rules:
            to = earlier[-1]
            def joined(f):
                if f.device == HDD and (f.number == flush.number or f.awaits == (flush.number,)):
                    return f._replace(awaits=(to,))
                if f.device == HDD and f.number == to:
                    return f._replace(risk=f.risk or flush.risk, repeat=f.repeat or flush.repeat, idle=False)
                return f
            flushes = tuple(map(joined, s.flushes))
            return self.settle(self.end_flushes(s._replace(flushes=flushes)))
        rest = tuple(f if f.device == SSD or f.number not in earlier else f._replace(risk=False)     # without the rule
                     for f in s.flushes if f.device == SSD or f.number != flush.number and f.awaits != (flush.number,))
        s = s._replace(flushes=rest, believed=('flush-counts-from-issue' not in self.rules,) * self.blocks,
                       unknown=(False,) * self.blocks)
        if flush.repeat or 'stuck-until-reissued' not in self.rules:
            s = s._replace(failed=put(s.failed, HDD, False))
        return self.settle(self.end_flushes(s))

    @staticmethod
    def earlier(s, n):
        """Names of the flushes of the backing that were issued before this one, and are in flight."""
        return [f.number for f in s.flushes[:n] if f.device == HDD and f.awaits is None]

    def ssd_flush_completes(self, s, n):
        """Of an SSD that may drop what is volatile: so it may have by now, for a flush in flight of which that is not known."""
        number, later = s.flushes[n].number, sum(f.device == SSD for f in s.flushes[n:])
        others = tuple(f.number for f in s.flushes if f.device == SSD and f.awaits is None and f.number != number)
        awaits = others if 'doubt-in-flight' in self.rules else ()
        s = s._replace(log=tuple(r._replace(durable=r.durable or SECURED) if r.covered >= later and not r.gone else r
                                 for r in s.log))
        s = s._replace(flushes=tuple(f._replace(awaits=awaits) if f.number == number else
                                     f._replace(awaits=f.awaits and tuple(a for a in f.awaits if a != number)) for f in s.flushes))
        while True:
            n = next((n for n, f in enumerate(s.flushes) if f.awaits == ()), None)
            if n is None:
                return self.settle(self.end_flushes(s))
            s = self.ssd_flush_counts(s, n)

    def ssd_flush_counts(self, s, n):
        flush, later = s.flushes[n], sum(f.device == SSD for f in s.flushes[n:])
        s = s._replace(flushes=s.flushes[:n] + s.flushes[n + 1:])
        counts = flush.repeat or not s.doubt or 'doubt-reissued' not in self.rules
        how = bool(counts and not self.blocked(s))
        s = s._replace(log=tuple(r._replace(durable=how or r.durable, covered=0) if r.covered >= later else r for r in s.log))
        if how and flush.repeat:
            s = s._replace(failed=put(s.failed, SSD, False))
        return s._replace(doubt=max(s.doubt, FLUSHED)) if counts and s.doubt else s

    def flush_fails(self, s, n, drops=False):
        """Nothing became durable, and what was volatile on the backing may be gone; those who wait for it will get the error."""
        flush, later, beside = s.flushes[n], sum(f.device == SSD for f in s.flushes[n:]), False
        if flush.device == HDD and self.drops_early:        # those that end as it does
            ended = [f for f in s.flushes if f.awaits == (flush.number,) and f.device == HDD]
            flush = flush._replace(waiters=flush.waiters + tuple(w for f in ended for w in f.waiters))
            s = s._replace(flushes=tuple(flush if i == n else f for i, f in enumerate(s.flushes) if f not in ended))
            n, beside = s.flushes.index(flush), bool(ended)
        if flush.device == HDD:
            s = self.backing_flush_fails(s, flush, drops, beside)
            heir = next((i for i, f in enumerate(s.flushes) if i > n and f.device == HDD), None) if flush.risk else None
            if heir is not None:
                s = s._replace(flushes=put(s.flushes, heir, s.flushes[heir]._replace(risk=True)))
            else:
                s = s._replace(risk=s.risk or flush.risk)
        if flush.device == SSD:
            s = s._replace(log=tuple(r._replace(covered=r.covered - 1) if r.covered >= later else r for r in s.log))
        for op in s.ops:
            if op[0] == 'flush' and op[1] in flush.waiters:
                s = self.begin(self.end(s, op), op[:3] + (True,) + op[4:])
        if self.ssd_drops and flush.device == SSD:
            s = self.doubt_begins(s, flush)
        if flush.idle and self.idles(s):
            return self.end_flushes(s._replace(flushes=s.flushes[:n] + s.flushes[n + 1:], failures_left=s.failures_left - 1))
        flushes = tuple(f._replace(repeat=f.repeat and f.device != flush.device)
                        for f in s.flushes[:n] + s.flushes[n + 1:] if flush.number not in (f.awaits or ()) or not self.ssd_drops)
        s = s._replace(flushes=flushes, failed=put(s.failed, flush.device, True),
                       failures_left=s.failures_left - (not flush.doomed))
        return self.end_flushes(self.set_flag(s, flush.device) if 'failed-flush-sets-flag' in self.rules else s)

    def doubt_begins(self, s, flush):
        if flush.repeat:                    # an attempt to end it has failed: whoever waits gets the error
            waiting = [op for op in s.ops if op[0] == 'flush' and not any(op[1] in f.waiters for f in s.flushes)]
            for op in waiting:
                s = self.begin(self.end(s, op), op[:3] + (True,) + op[4:])
        snapshot = None if 'doubt-blocks' in self.rules else s.snapshot
        return s._replace(doubt=1, snapshot=snapshot)

    def doubt_steps(self, s):
        if s.doubt == 1 and not any(f.repeat for f in s.flushes) and len(s.flushes) < 3:
            closed = not any(r.phase == IN_FLIGHT for r in s.log) and not self.waiting(s) and not self.waiting(s, True)
            if closed or 'doubt-closes' not in self.rules:
                yield ('doubt-flush issued',), self.issue_flush(s, SSD)
        elif s.doubt == FLUSHED and not ('doubt-reads' in self.rules and any(op[0] == 'read' for op in s.ops)):
            yield ('doubt-looks',), self.doubt_looks(s)
        elif s.doubt == LOOKED and 'doubt-checkpoint' not in self.rules:
            yield ('doubt-ends',), self.doubt_ends(s)

    def doubt_looks(self, s):
        durable = max((i for i, r in enumerate(s.log) if r.kind == COMMIT and r.durable in (True, BELIEVED)), default=-1)
        passed = {r.slot for r in s.log[:durable + 1] if r.kind == FILL} if 'doubt-looks-at-copies' not in self.rules else ()
        s = s._replace(doubt=LOOKED)
        for b in range(self.blocks) if 'doubt-looks' in self.rules else ():
            if not s.index[b] or s.slots[s.index[b][0]] != GARBAGE or s.index[b][0] in passed:
                continue
            if s.index[b][1] == ST_CLEAN:
                s = s._replace(index=put(s.index, b, None))
            else:
                s = s._replace(bad=put(s.bad, b, True), untold=s.untold or 'doubt-owed' in self.rules)
        return s

    def doubt_ends(self, s):
        log = tuple(r._replace(durable=True) if r.durable == SECURED else r for r in s.log)
        s = s._replace(doubt=0, log=log, failed=put(s.failed, SSD, False))
        return self.settle(self.end_flushes(s))

    def ssd_losses(self, s):
        """What a flush that fails may take with it, by position."""
        volatile = [i for i, r in enumerate(s.log) if not r.durable and not r.gone and r.phase != TORN and r.flag != FUA_SENT and
                    r.kind in DATA + COMMITS]
        completed = [i for i in volatile if s.log[i].phase != IN_FLIGHT]
        choices = [volatile, completed, [i for i in volatile if s.log[i].kind in DATA],
                   [i for i in volatile if s.log[i].kind in COMMITS]] + [[i] for i in volatile]
        return sorted({tuple(c) for c in choices if c} | ({()} if s.snapshot else set()))

    def ssd_drop(self, s, n, positions):
        log, slots = s.log, s.slots
        for i in positions:
            r = log[i]
            log = put(log, i, r._replace(gone=True))
            slots = put(slots, r.slot, GARBAGE) if r.kind in DATA else slots
        s = s._replace(log=log, slots=slots, flushes=put(s.flushes, n, s.flushes[n]._replace(doomed=True)),
                       snapshot=s.snapshot and s.snapshot[:3] + (True,), failures_left=s.failures_left - 1)
        for i in positions:
            r = s.log[i]
            if r.kind == WRITE and s.index[r.block] and s.index[r.block][0] == r.slot:
                s = self.lose(s, r.block, r.value)
        return s

    @staticmethod
    def lose(s, block, value):
        return s._replace(lost=put(s.lost, block, (value, ERROR, False)), gone=tuple(sorted({*s.gone, value})))

    def backing_flush_fails(self, s, flush, drops, beside):
        """Who is told, what is gone.  beside: one that succeeded ends as this one does, though it may have secured all."""
        told = any(op[0] == 'flush' and op[1] in flush.waiters and not op[4] for op in s.ops)
        risk = s.risk or any(f.risk for f in s.flushes)
        s = s._replace(errors=True)
        if risk and not told and 'failed-flush-owed' in self.rules:
            # a FUA write may have secured by itself what was at risk: nobody keeps book of that
            if 'bypass-fua' not in self.actions and not beside and not any(len(values) > 1 for values in s.hdd) and not any(s.lost):
                s = s._replace(broken='an error is owed, and nothing was at risk')
            s = s._replace(untold=True)
        for op in s.ops:
            if op[0] == 'written-back' and 'clean-without-error' in self.rules:
                _, block, slot = op
                again = s.index[block] == (slot, ST_CLEANING)
                s = self.end(s, op)._replace(index=put(s.index, block, (slot, ST_DIRTY)) if again else s.index)
        if flush.doomed:                    # it has dropped that before
            s = s._replace(unknown=(False,) * self.blocks)
            if told:
                s = s._replace(lost=tuple(v and (v[0], v[1], True) for v in s.lost))
                for b in range(self.blocks):
                    s = self.unpromise(s, b, s.lost[b][0]) if s.lost[b] else s
        return self.drop(s, told) if drops else s

    def at_risk(self, s):
        """Per block: would the acknowledged value be gone, did the backing lose what is volatile there?"""
        return tuple(s.acked[b] in s.hdd[b][1:] and not (s.index[b] and s.index[b][1] != ST_CLEAN) and
                     ZERO not in self.values_in_flight(s, b) for b in range(self.blocks))

    def drop(self, s, told):
        """The backing loses all that is volatile there."""
        lost, gone = s.lost, self.at_risk(s)
        for b in range(self.blocks):
            if gone[b] and s.hdd[b][0] != s.hdd[b][-1]:
                lost = put(lost, b, (s.acked[b], s.hdd[b][0], told or s.acked[b] == ZERO))
        flushes = tuple(f._replace(cover=(1,) * self.blocks) if f.device == HDD else f for f in s.flushes)
        s = s._replace(hdd=tuple(values[:1] for values in s.hdd), lost=lost, flushes=flushes)
        for b in range(self.blocks) if told else ():
            s = self.unpromise(s, b, s.lost[b][0]) if s.lost[b] else s
        return s

    def doom(self, s, n):
        """So it does now, and says so later."""
        unknown = tuple(u or len(values) > 1 for u, values in zip(s.unknown, s.hdd, strict=True))
        s = self.drop(s, False)
        return s._replace(unknown=unknown, flushes=put(s.flushes, n, s.flushes[n]._replace(doomed=True)),
                          failures_left=s.failures_left - 1)

    def answer(self, s, promised):
        return self.tell(s) if s.untold else self.secure(s, promised)

    @staticmethod
    def tell(s):
        """A user got an error from a flush, or from a FUA write: what is gone is promised no more."""
        s = s._replace(untold=False, lost=tuple(v and (v[0], v[1], True) for v in s.lost))
        for value in s.gone:                # without doubt-kept a later start finds the slot mapped still, and does not know
            b = value // 10
            if value in s.allowed[b]:
                n = s.allowed[b].index(value) + 1
                s = s._replace(allowed=put(s.allowed, b, s.allowed[b][:n] + (GARBAGE,) + s.allowed[b][n:]))
        s = s._replace(gone=())
        for b in range(len(s.lost)):
            s = System.unpromise(s, b, s.lost[b][0]) if s.lost[b] else s
        return s

    @staticmethod
    def unpromise(s, block, value):
        """Whoever waits for a flush is promised nothing of this value any more: it is gone, or of an older discard."""
        def less(promised):
            return promised and put(promised, block, None if promised[block] == value else promised[block])
        ops = tuple(op[:2] + (less(op[2]),) + op[3:] if op[0] in ('flush', 'owed') else op for op in s.ops)
        return s._replace(ops=tuple(sorted(ops)), owed=less(s.owed))

    def flush(self, s, of_fua=False):
        """A user flush looks which devices need one.  All appends before it are complete."""
        spared = 'flush-spares-ssd' in self.relaxed and not any(
            not self.durable(s, i) and (r.kind in (WRITE, CLEAN) or r.kind == INVALIDATE and r.flag) for i, r in enumerate(s.log))
        if not spared and 'flush-commits' in self.rules and any(r.phase == SHOWN or self.stream_idle(s) for r in self.waiting(s)):
            s = self.commit(s, phase=SHOWN)
        me = min({0, 1, 2} - {op[1] for op in s.ops if op[0] == 'flush'})
        s = self.begin(s, ('flush', me, self.promised(s), False, of_fua))
        for device, rule in (SSD, 'flush-ssd'), (HDD, 'flush-backing'):
            if rule not in self.rules or device == SSD and (self.blocked(s) or spared):
                continue
            own = s.needs_flush[device]
            if own:
                s = self.issue_flush(s, device)
            awaited = [n for n, f in enumerate(s.flushes) if f.device == device and not f.idle]
            if 'flush-waits-for-flush-in-flight' not in self.rules:
                awaited = awaited[-1:] if own else []
            elif 'flush-waits-for-last' in self.relaxed:
                awaited = awaited[-1:]
            s = s._replace(flushes=tuple(f._replace(waiters=f.waiters + (me,)) if n in awaited else f
                                         for n, f in enumerate(s.flushes)))
        after = self.end_flushes(s)
        verdict = '' if any(op[:2] == ('flush', me) for op in after.ops) else f': acknowledges F{me + 1}'
        return (f'{"preflush" if of_fua else "flush"} F{me + 1} issued{verdict}',), after

    def end_flushes(self, s):
        """Answer the user flushes that wait for nothing any more."""
        for me in [op[1] for op in s.ops if op[0] == 'flush']:
            op = next(op for op in s.ops if op[:2] == ('flush', me))
            _, me, promised, error, of_fua = op
            if error and 'error-after-all-ended' not in self.rules:
                s = s._replace(flushes=tuple(f._replace(waiters=tuple(w for w in f.waiters if w != me))
                                             for f in s.flushes))
            if not any(me in f.waiters for f in s.flushes) and (error or not self.blocked(s)):
                s = self.end(s, op)
                if s.untold and not of_fua:
                    error = True
                if error and not of_fua:
                    s = self.tell(s)
                # dm drops the error of a flush in front of a FUA write
                if error or of_fua:
                    s = s._replace(owed=promised) if of_fua or not (self.drops or self.ssd_drops) else s
                else:
                    s = self.secure(s, promised)
        return s

    def flush_steps(self, s):
        for n, flush in enumerate(s.flushes):
            if flush.awaits is not None:
                continue
            name = 'backing-flush' if flush.device == HDD else 'ssd-flush'
            same = [i for i, f in enumerate(s.flushes) if f.device == flush.device]
            which = f' {same.index(n) + 1} of {len(same)}' if len(same) > 1 else ''
            if not flush.doomed:
                after = self.flush_completes(s, n)
                yield (f'{name}{which} completes' + answers(s, after),), after
            if self.drops_early and flush.device == HDD and s.failures_left and not flush.doomed and not self.earlier(s, n):
                yield (f'{name}{which} will fail, drops all',), self.doom(s, n)
            if self.ssd_drops and flush.device == SSD and s.failures_left and not flush.doomed:
                for positions in self.ssd_losses(s):
                    what = ', '.join(record_name(s.log[i]) for i in positions) or 'chunks'
                    yield (f'{name}{which} will fail, drops {what}',), self.ssd_drop(s, n, positions)
            if s.failures_left or flush.doomed:
                after = self.flush_fails(s, n)
                yield (f'{name}{which} FAILS' + answers(s, after, True),), after
                if self.drops and flush.device == HDD and not flush.doomed:
                    after = self.flush_fails(s, n, True)
                    yield (f'{name}{which} FAILS, drops all' + answers(s, after, True),), after
        if 'device-flush' in self.actions and len(s.flushes) < 3:
            for device in DEVICES if s.mode == RUNNING and not (self.ssd_drops and s.doubt) else (HDD,):
                idle = device == HDD and 'idle-flush-fails' in self.relaxed and self.idles(s) and not any(f.idle for f in s.flushes)
                if s.needs_flush[device] or s.failed[device] or idle:
                    name = 'backing-flush' if device == HDD else 'ssd-flush'
                    yield (name + ' issued',), self.issue_flush(s, device)

    # -- the oracle --------------------------------------------------------------------------------------------------

    def issue(self, s, block, value):
        if value in (ZERO, ANY) and value not in s.allowed[block]:    # a flush may be promised an older discard
            s = self.unpromise(s, block, value)
        allowed = s.allowed[block] + (value,)
        return s._replace(allowed=put(s.allowed, block, allowed), writes_left=s.writes_left - 1)

    def acknowledge(self, s, block, value, fua):
        if s.lost[block]:
            s = self.unpromise(s, block, s.lost[block][0])
        s = s._replace(acked=put(s.acked, block, value), lost=put(s.lost, block, None))
        if fua:
            s = s._replace(allowed=put(s.allowed, block, (value,)))
            for op in s.ops:
                if op[:2] == ('owed', block):
                    s = self.secure(self.end(s, op), op[2])
        return s

    @staticmethod
    def promised(s):
        """What a flush that is issued now must secure."""
        return tuple(ANY if v == ZERO and ANY in s.allowed[b] else None if s.lost[b] and s.lost[b][2] else v
                     for b, v in enumerate(s.acked))

    @staticmethod
    def secure(s, promised):
        """A flush was acknowledged: nothing older than the values acknowledged at its issue may be seen again."""
        allowed = list(s.allowed)
        for b, base in enumerate(promised):
            if s.lost[b] and s.lost[b][0] == base:
                return s._replace(broken=f'{show(base)} is gone, and no flush has told a user')
            if base in allowed[b]:              # else a later flush or FUA write was faster
                allowed[b] = allowed[b][allowed[b].index(base):]
        return s._replace(allowed=tuple(allowed))

    # -- user writes -------------------------------------------------------------------------------------------------

    def busy(self, s, block):
        return bool(self.values_in_flight(s, block))

    def next_value(self, s, block):
        n = s.versions[block] + 1
        return block * 10 + n, s._replace(versions=put(s.versions, block, n))

    def spoil_fills(self, s, block):
        """Rule 7: a write or discard of block was issued."""
        if 'fill-yields-to-later-write' in self.rules:
            s = s._replace(ops=tuple(op for op in s.ops if op[0] != 'fill' or op[1] != block),
                           log=tuple(r._replace(flag=True) if r.kind == FILL and r.block == block and r.phase < SHOWN
                                     else r for r in s.log))
        if 'fill-commit-yields' in self.rules:
            *_, (_, waiting) = records(s.log)
            for i in waiting:
                if s.log[i].kind == FILL and s.log[i].block == block:
                    s = s._replace(log=put(s.log, i, s.log[i]._replace(kind=OMITTED)))
        return s

    def cached_write(self, s, block, fua):
        if True not in s.free or not self.room(s):
            return None
        value, s = self.next_value(s, block)
        s = self.spoil_fills(self.issue(s, block, value), block)
        if 'dirty-flag-first' in self.rules:
            s = s._replace(may_be_dirty=True)
        if fua and self.ssd_drops:
            fua = FUA_SENT if all(r.durable in (True, BELIEVED) for r in s.log if r.kind < FILL) else FUA_WAITS
        s = self.append(s, WRITE, block, value, s.free.index(True), IN_FLIGHT, flag=fua)
        s = self.owe(s, block) if fua else s
        return self.commit(s, fua=fua == FUA_SENT) if fua else s

    def replay_may_find(self, s, block):
        return s.checkpoint[0][block] or s.snapshot or any(r.block == block and r.kind in DATA for r in s.log)

    def mark_needed(self, s, block, through=False):
        if 'mark-only-where-replay-finds-a-copy' in self.relaxed:
            return bool(through or s.index[block] or self.replay_may_find(s, block))
        return 'intent-uncached' in self.rules or bool(s.index[block])

    def backing_is_owned(self, s, block):
        return 'writeback-owns-range' in self.rules and any(op[0] == 'writeback' and op[1] == block for op in s.ops)

    def unsettled(self, s, block, kind, fua):
        """Could replay still find dirty data that a CLEAN or INVALIDATE record of block took away?"""
        def waits(i, r):
            if fua or not self.relaxed & {'bypass-after-clean-applied', 'bypass-after-clean-shown'}:
                return not self.durable(s, i)
            return r.phase < SHOWN or 'bypass-after-clean-shown' not in self.relaxed and not self.applied(s, i)
        return any(r.block == block and r.kind == kind and (r.flag or kind == CLEAN) and waits(i, r)
                   for i, r in enumerate(s.log))

    def bypass(self, s, block, fua, through):
        """through: written through, a clean copy follows it to the cache."""
        entry = s.index[block]
        if 'bypass-not-over-dirty' in self.rules and entry and entry[1] != ST_CLEAN or self.backing_is_owned(s, block):
            return None
        if 'bypass-after-clean-durable' in self.rules and self.unsettled(s, block, CLEAN, fua):
            return None
        if 'tomb' in self.rules and self.unsettled(s, block, INVALIDATE, fua):
            return None
        needed = self.mark_needed(s, block, through)
        if needed and 'intent-before-bypass' in self.rules and not s.mark:
            return None
        value, s = self.next_value(s, block)
        s = self.spoil_fills(self.issue(s, block, value), block)
        kind = 'bypass'
        if needed and 'invalidate-bypassed' in self.rules and 'clear-by-checkpoint' not in self.relaxed:
            if not self.room(s):
                return None
            s = self.append(s, INVALIDATE, block)
            # the rule makes one step of the two for all that a snapshot can see
            kind = 'bypass' if 'invalidate-shown' in self.rules else 'logged'
        s = s if kind == 'logged' else s._replace(index=put(s.index, block, None))
        s = self.owe(s, block) if fua else s
        return self.begin(s, (kind, block, value, fua, through))

    def stuck(self, s):
        return 'failed-flush-sticks' in self.rules and any(s.failed)

    def owe(self, s, block):
        """dm drops the error of the flush before a FUA write: the write, acknowledged, says that the flush succeeded."""
        return self.begin(s, ('owed', block, s.owed))._replace(owed=None) if s.owed else s

    def discard(self, s, block):
        if self.backing_is_owned(s, block) or not self.room(s):
            return None
        if 'intent-discard' in self.rules and not s.mark and self.mark_needed(s, block):
            return None
        dirty = bool(s.index[block]) and s.index[block][1] != ST_CLEAN
        s = self.spoil_fills(self.issue(s, block, ZERO if self.strict_discard else ANY), block)
        s = s._replace(index=put(s.index, block, None))
        s = self.append(s, INVALIDATE, block, flag=dirty)
        return self.begin(s, ('discard', block, ZERO, False, False))

    @staticmethod
    def begin(s, op):
        return s._replace(ops=tuple(sorted(s.ops + (op,))))

    @staticmethod
    def end(s, op):
        ops = list(s.ops)
        ops.remove(op)
        return s._replace(ops=tuple(ops))

    def reached_backing(self, s, op):
        """A bypassed write or discard completed on the backing: acknowledge it."""
        _, block, value, fua, through = op
        s = self.land(self.end(s, op), block, value)
        s = self.trim(s, block, len(s.hdd[block]) - 1) if fua else self.set_flag(s, HDD)._replace(risk=True)
        s = self.acknowledge(s, block, value, fua)
        return self.begin(s, ('fill', block, value)) if through and s.mode == RUNNING else s

    # -- steps -------------------------------------------------------------------------------------------------------

    def successors(self, s):
        """Every (label, state) one step away.  A state may be a str: the step itself broke a promise."""
        if s.mode == RUNNING:
            yield from self.user_steps(s)
            yield from self.device_steps(s)
            yield from self.cache_steps(s)
        elif s.mode == FAILED:
            yield from self.failed_steps(s)
            yield from self.device_steps(s)
        else:
            yield from self.passthrough_steps(s)
            yield from self.device_steps(s)
        if s.crashes_left:
            yield from self.crash_steps(s)

    def user_steps(self, s):
        can = self.actions
        for b in range(self.blocks):
            if s.writes_left and not self.busy(s, b) and not self.blocked(s):
                for name, step, *how in (('write', self.cached_write, False),
                                         ('write-fua', self.cached_write, True),
                                         ('bypass', self.bypass, False, False),
                                         ('bypass-fua', self.bypass, True, False),
                                         ('writethrough', self.bypass, False, True),
                                         ('discard', self.discard)):
                    if name in can and name.endswith('fua') and s.untold:
                        yield (name + ' refused', b), self.tell(s)._replace(owed=None)
                    elif name in can and not (name.endswith('fua') and self.stuck(s)):
                        after = step(s, b, *how)
                        if after:
                            yield (name, b), after
            if 'fill' in can and self.may_miss(s, b):
                yield ('miss', b), self.begin(s, ('fill', b, s.hdd[b][-1]))
            if 'keep' in can and self.may_keep(s, b):
                yield ('keep', b), self.begin(s, ('fill', b, self.visible(s, b)))
            if 'read' in can and s.index[b] and not any(op[0] == 'read' for op in s.ops):
                slot = s.index[b][0]
                yield ('read-begins', b), self.begin(s, ('read', b, slot, s.slots[slot]))
        if 'flush' in can:
            if self.may_flush(s):
                yield self.flush(s)
                if 'preflush' in can:
                    yield self.flush(s, True)

    @staticmethod
    def filling(s, block):
        return any(op[0] == 'fill' and op[1] == block for op in s.ops) or \
            any(r.kind == FILL and r.block == block and r.phase < SHOWN for r in s.log)

    def may_keep(self, s, block):
        """Reclaim re-appends a clean extent to the keep stream: to the rules this is a fill whose source is the SSD."""
        if not s.index[block] or s.index[block][1] != ST_CLEAN or self.filling(s, block):
            return False
        if s.slots[s.index[block][0]] == GARBAGE and self.ssd_drops:        # it is compared first
            return False
        return 'fill-yields-to-write-in-flight' not in self.rules or not self.busy(s, block)

    def may_miss(self, s, block):
        if s.index[block] or self.filling(s, block):
            return False
        if 'mark-only-where-replay-finds-a-copy' in self.relaxed and not s.mark and not self.flushed(s, block):
            return False
        return 'fill-yields-to-write-in-flight' not in self.rules or not self.busy(s, block)

    def may_flush(self, s):
        if sum(op[0] == 'flush' for op in s.ops) == self.flushes:
            return False
        if 'flush-waits' not in self.rules or self.stream_idle(s):
            return True
        if 'flush-at-once' not in self.relaxed:
            return False
        last = max((i for i, r in enumerate(s.log) if r.kind < COMMIT and r.phase == SHOWN), default=None)
        return last is None or self.applied(s, last)

    def device_steps(self, s):
        if s.mode == RUNNING:
            yield from self.append_steps(s)
        if s.mode in (RUNNING, FAILED):
            yield from self.flush_steps(s)
        for op in s.ops:
            kind, block = op[0], op[1]
            if kind in ('bypass', 'discard'):
                yield (kind + '-completes', block), self.reached_backing(s, op)
            elif kind == 'logged':
                hidden = self.end(s, op)._replace(index=put(s.index, block, None))
                yield ('range-hidden', block), self.begin(hidden, ('bypass', *op[1:]))
            elif kind == 'writeback':
                landed = self.set_flag(self.land(self.end(s, op), block, op[3]), HDD)
                yield ('writeback-completes', block), self.begin(landed, ('written-back', block, op[2]))
            elif kind == 'read':
                unsure = s.doubt and 'doubt-reads' in self.rules or any(f.doomed for f in s.flushes)
                if s.slots[op[2]] != op[3] and not (unsure and s.slots[op[2]] == GARBAGE):
                    yield ('read-ends', block), f'a read of block {block} returned {show(s.slots[op[2]])}'
                else:
                    yield ('read-ends', block), self.end(s, op)
        if s.mode in (RUNNING, PASSTHROUGH) and not self.ssd_drops and any(
                not r.durable and r.phase in (COMPLETED, SHOWN) for r in s.log):
            yield ('ssd-flush',), self.ssd_flush(s)
        if any(len(values) > 1 for values in s.hdd) and not self.drops:     # or the cache would owe an error for what is safe
            yield ('backing-flush',), self.hdd_flush(s)

    def append_steps(self, s):
        """Appends complete: data by itself, or a commit block with the data of its record that is in flight."""
        for commit, entries in records(s.log):
            in_flight = [i for i in entries if s.log[i].phase == IN_FLIGHT]
            if commit is not None and s.log[commit].phase == IN_FLIGHT:
                log = s.log
                for i in in_flight + [commit]:
                    landed = SHOWN if i == commit else COMPLETED
                    fua = log[i].flag == FUA_SENT and log[i].kind in (WRITE, COMMIT)
                    log = put(log, i, log[i]._replace(phase=landed, durable=fua))
                label = ('commit-completes',) + tuple(s.log[i] for i in entries)
                after = s._replace(log=log)
                if any(not log[i].durable for i in in_flight + [commit]):
                    after = self.set_flag(after, SSD)
                yield label, self.settle(after)
                continue
            for i in in_flight:
                landed = s.log[i]._replace(phase=COMPLETED)
                after = self.set_flag(s._replace(log=put(s.log, i, landed)), SSD)
                yield ('data-completes', s.log[i]), self.settle(after)
        for fills in (False, True):
            waiting = self.waiting(s, fills)
            if waiting:
                yield ('commit',) + waiting, self.commit(s, fills)

    def cache_steps(self, s):
        can = self.actions
        for op in s.ops:
            if op[0] == 'fill' and True in s.free and self.room(s):
                yield ('fill-appended', op[1]), self.append(self.end(s, op), FILL, op[1], op[2], s.free.index(True),
                                                            IN_FLIGHT)
            elif op[0] == 'written-back':
                yield from self.clean_steps(s, op)
        for b in range(self.blocks):
            entry = s.index[b]
            if 'evict' in can and entry and entry[1] == ST_CLEAN:
                yield ('evict', b), s._replace(index=put(s.index, b, None))
            if 'writeback' in can and entry and entry[1] == ST_DIRTY and self.may_write_back(s, b, entry[0]):
                cleaning = s._replace(index=put(s.index, b, (entry[0], ST_CLEANING)))
                yield ('writeback-begins', b), self.begin(cleaning, ('writeback', b, entry[0], s.slots[entry[0]]))
        if 'reclaim' in can:
            for slot in range(self.nr_slots):
                if self.may_reclaim(s, slot):
                    yield from self.reclaim_steps(s, slot)
        if 'mark' in can:
            yield from self.mark_steps(s)
        if s.doubt:
            yield from self.doubt_steps(s)
        if 'checkpoint' in can and not self.blocked(s) or s.doubt == LOOKED and 'doubt-checkpoint' in self.rules:
            yield from self.checkpoint_steps(s)
        if 'chunks' in can and s.snapshot:
            yield from self.chunk_steps(s)
        if 'missing' in can:
            yield from self.dirty_flag_steps(s)
        if s.void and 'void-by-checkpoint' not in self.relaxed and ('void-until-dropped' not in self.rules or not any(
                self.pending(s, b, (INVALIDATE,)) for b in range(self.blocks))):
            yield ('void-cleared',), s._replace(void=False)
        if s.deaths_left:
            yield ('ssd-fails',), self.fail(s)

    def may_write_back(self, s, block, slot):
        if any(op[0] == 'writeback' and op[1] == block for op in s.ops):
            return False
        if s.slots[slot] == GARBAGE and self.ssd_drops:         # it is compared first
            return False
        if s.mode == FAILED and (s.void or 'void-before-drain' not in self.rules):
            return True
        if s.mode == FAILED and 'void-only-where-not-durable' not in self.relaxed:
            return False
        return 'writeback-durable-only' not in self.rules or not any(
            r.kind == WRITE and r.slot == slot and r.phase != TORN and not self.durable(s, i)
            for i, r in enumerate(s.log))

    def clean_steps(self, s, op):
        _, block, slot = op
        if s.index[block] != (slot, ST_CLEANING):
            yield ('writeback-superseded', block), self.end(s, op)
        elif self.room(s) and ('clean-after-backing-flush' not in self.rules or self.flushed(s, block)):
            yield ('clean-appended', block), self.append(self.end(s, op), CLEAN, block, slot=slot)

    def may_reclaim(self, s, slot):
        if s.free[slot] or any(entry and entry[0] == slot for entry in s.index):
            return False
        for commit, entries in records(s.log):      # a segment is sealed when all its records are complete
            if any(s.log[i].slot == slot and s.log[i].kind in (WRITE, FILL, OMITTED) and
                   (s.log[i].phase < COMPLETED or s.log[i].kind != OMITTED and
                    (commit is None or s.log[commit].phase == IN_FLIGHT)) for i in entries):
                return False
        if 'pin-reads' in self.rules and any(op[0] == 'read' and op[2] == slot for op in s.ops):
            return False
        if 'pin-writebacks' in self.rules and any(op[0] in ('writeback', 'written-back') and op[2] == slot for op in s.ops):
            return False
        if 'keep-replay-segments' in self.rules and any(r.kind == WRITE and r.slot == slot for r in s.log):
            return False
        if s.slots[slot] == GARBAGE or 'no-separate-reuse-waits' in self.relaxed:
            return True
        owner = s.slots[slot] // 10 if s.slots[slot] not in (None, ZERO) else None
        if owner is None:
            return True
        if 'reuse-after-clean-durable' in self.rules and self.pending(s, owner, (CLEAN,)):
            return False
        return 'reuse-after-superseded-durable' not in self.rules or not self.pending(s, owner, (WRITE, INVALIDATE))

    def reclaim_steps(self, s, slot):
        if 'reuse-logged' not in self.rules:
            yield ('reclaim', slot), s._replace(free=put(s.free, slot, True))
        elif self.can_append_durably(s):
            opened = self.append_durably(s, SEGMENT_OPEN, slot=slot)
            yield ('reclaim', slot), opened._replace(free=put(s.free, slot, True))

    def mark_steps(self, s):
        if not s.mark and self.can_append_durably(s):
            yield ('mark-set',), self.append_durably(s, INTENT, value=1)._replace(mark=True, errors=False)
        if s.mark and 'clear-by-checkpoint' not in self.relaxed and self.room(s) and self.backing_settled(s):
            if s.errors and 'intent-clear-drops' in self.rules:
                doubtful = [b for b in range(self.blocks) if s.index[b] and s.index[b][1] == ST_CLEAN or self.filling(s, b)]
                for b in doubtful:
                    dropped = s._replace(index=put(s.index, b, None)) if s.index[b] and s.index[b][1] == ST_CLEAN else s
                    yield ('doubtful-dropped', b), self.append(self.spoil_fills(dropped, b), INVALIDATE, b)
                if doubtful:
                    return
            yield ('mark-cleared',), self.append(s._replace(mark=False), INTENT, 0)

    def backing_settled(self, s):
        """Nothing that was bypassed, written through or discarded is in flight or volatile on the backing."""
        if any(op[0] in ('logged', 'bypass', 'discard') for op in s.ops):
            return False
        return 'intent-clear-after-flush' not in self.rules or all(self.flushed(s, b) for b in range(self.blocks))

    def checkpoint_steps(self, s):
        """A fuzzy snapshot in two pieces: block 0 when it begins, the rest when it ends."""
        if s.snapshot is None:
            start = self.replay_start(s)
            clears = 'clear-by-checkpoint' in self.relaxed and not s.errors and self.backing_settled(s) and start == len(s.log)
            clearing = 'checkpoint-mark-until-cleared' in self.rules and any(
                r.kind == INTENT and not r.value and not self.applied(s, i) for i, r in enumerate(s.log))
            mark = (s.mark and not clears or clearing) and 'checkpoint-keeps-marks' in self.rules
            begun = s._replace(snapshot=(start, s.index[0], mark, False), mark=s.mark and not clears)
            yield ('checkpoint-begins',), begun
            return
        start, first, mark, gone = s.snapshot
        if not self.flush_counts(s._replace(doubt=0)):
            return
        last = max((i for i, r in enumerate(s.log) if r.kind < COMMIT and r.phase == SHOWN), default=None)
        if 'checkpoint-commits' in self.rules and last is not None and not self.applied(s, last):
            return
        if 'checkpoint-after-flush' in self.rules:
            s = self.ssd_flush(s)
        index = tuple(e and (e[0], ST_CLEAN if e[1] == ST_CLEAN else ST_DIRTY) for e in (first,) + s.index[1:])
        kept = []                           # of what lies before start: what belongs to a later COMMIT, or is in flight
        for commit, entries in records(s.log[:start]):
            if commit is None:
                kept += entries
            elif s.log[commit].phase == IN_FLIGHT:
                kept += entries + (commit,)
        unfinished = tuple(s.log[i] for i in sorted(kept))
        kept = 'doubt-kept' in self.rules and any(s.bad)
        s = s._replace(checkpoint=(index, mark, kept), log=unfinished + s.log[start:], snapshot=None,
                       replay_from=len(unfinished))
        if gone:
            s = s._replace(broken='a checkpoint is named of which chunks are gone')
        if s.doubt == LOOKED and 'doubt-checkpoint' in self.rules:
            before, s = s, self.doubt_ends(s)
            yield ('checkpoint-named, doubt ends' + answers(before, s),), s
        else:
            yield ('checkpoint-named',), s
        if s.void and 'void-by-checkpoint' in self.relaxed:
            yield ('checkpoint-named-void-cleared',), s._replace(void=False)

    def chunk_steps(self, s):
        """A chunk is written where nothing is mapped any more.  Content that is neither here nor there is garbage to a reader."""
        for slot in range(self.nr_slots):
            if not s.free[slot] and not self.may_reclaim(s, slot):
                continue
            shown = any(e and e[0] == slot for e in s.checkpoint[0] + s.snapshot[1:2])
            mapped = shown or any(r.kind in DATA and r.slot == slot for r in s.log)
            if mapped and not s.free[slot] and 'chunks-logged' in self.rules:
                continue
            log = tuple(r._replace(phase=TORN, slot=-1) if r.slot == slot and r.kind in DATA else r for r in s.log)
            if s.slots[slot] != GARBAGE:
                yield ('chunk-written', slot), s._replace(log=log, slots=put(s.slots, slot, GARBAGE),
                                                          free=put(s.free, slot, False))

    def replay_start(self, s):
        """For a snapshot that begins now: the first COMMIT that replay must not skip, or the next one to be appended."""
        if 'checkpoint-from-unapplied' in self.rules:
            for commit, entries in records(s.log):
                if commit is None:
                    break
                unshown = any(s.log[i].phase < SHOWN for i in entries)
                in_flight = s.log[commit].phase == IN_FLIGHT
                unapplied = in_flight if s.log[commit].kind == FILL_COMMIT else not self.applied(s, commit)
                if unshown or unapplied and 'checkpoint-from-unshown' not in self.relaxed:
                    return commit
        return len(s.log)

    def dirty_flag_steps(self, s):
        if self.blocked(s):
            return
        clean = not any(e and e[1] != ST_CLEAN for e in s.index) and not any(
            r.kind == WRITE and r.phase < SHOWN for r in s.log)
        flushed = 'dirty-flag-clear-after-flush' not in self.rules or all(self.flushed(s, b) for b in range(self.blocks))
        gone = 'dirty-flag-clear-after-durable' not in self.rules or not any(
            self.unsettled(s, b, kind, True) for b in range(self.blocks) for kind in (CLEAN, INVALIDATE))
        if s.may_be_dirty and clean and flushed and gone:
            yield ('dirty-flag-cleared',), s._replace(may_be_dirty=False)
        if not s.may_be_dirty and clean and flushed and not s.ops and not s.flushes and self.stream_idle(s):
            yield ('detach',), s._replace(mode=PASSTHROUGH, index=(None,) * self.blocks, snapshot=None,
                                          stale='incarnation' in self.rules)

    # -- an SSD that takes no more writes ----------------------------------------------------------------------------

    def fail(self, s):
        """Nothing is appended, shown or flushed there any more.  What is in flight may be on the media, or not."""
        ops = tuple(('held-flush', op[2]) if op[0] == 'flush' else op for op in s.ops if op[0] not in ('fill', 'read'))
        owned = {op[2] for op in ops if op[0] in ('writeback', 'written-back')}
        index = tuple((e[0], ST_DIRTY) if e and e[1] == ST_CLEANING and e[0] not in owned else e for e in s.index)
        flushes = tuple(f._replace(waiters=()) for f in s.flushes if f.device == HDD)
        return s._replace(mode=FAILED, index=index, ops=tuple(sorted(ops)), flushes=flushes, snapshot=None,
                          deaths_left=s.deaths_left - 1)

    def failed_steps(self, s):
        """User writes and flushes wait.  What is dirty, durable or not, is read from the SSD and written to the backing."""
        dirty = [b for b, e in enumerate(s.index) if e and e[1] != ST_CLEAN]
        if dirty and not s.void:
            yield ('void-set',), s._replace(void=True)
        for b in dirty:
            slot, state = s.index[b]
            if state == ST_DIRTY and self.may_write_back(s, b, slot):
                cleaning = s._replace(index=put(s.index, b, (slot, ST_CLEANING)))
                yield ('writeback-begins', b), self.begin(cleaning, ('writeback', b, slot, s.slots[slot]))
        for op in s.ops:
            if op[0] != 'written-back':
                continue
            _, block, slot = op
            if s.index[block] != (slot, ST_CLEANING):
                yield ('writeback-superseded', block), self.end(s, op)
            elif 'leave-after-drain-flushed' not in self.rules or self.flushed(s, block):
                yield ('drained', block), self.end(s, op)._replace(index=put(s.index, block, (slot, ST_CLEAN)))
        if not dirty or 'leave-after-drain' not in self.rules:
            yield ('leave',), self.leave(s)

    def leave(self, s):
        """One write of the backing's superblock; what has waited goes to the backing from now on."""
        waited = [r for r in s.log if r.kind == WRITE and r.phase < SHOWN]
        s = s._replace(mode=PASSING, index=(None,) * self.blocks, flushes=())
        for r in waited:
            s = self.begin(s, ('bypass', r.block, r.value, r.flag, False))
        if 'leave-tells-first' not in self.rules:
            return s._replace(log=tuple(r._replace(phase=SHOWN) if r in waited else r for r in s.log))
        start = self.initial()              # nobody will read the SSD again
        return s._replace(stale=True, may_be_dirty=False, void=False, log=(), replay_from=0, ghosts=None, mark=False,
                          slots=start.slots, checkpoint=start.checkpoint, free=start.free)

    def passthrough_steps(self, s):
        for b in range(self.blocks):
            if s.writes_left and not self.busy(s, b):
                value, after = self.next_value(s, b)
                after = self.begin(self.issue(after, b, value), ('bypass', b, value, False, False))
                raised = s.stale or s.mode == PASSTHROUGH and 'incarnation' in self.rules
                yield ('write-without-cache', b), after._replace(stale=raised)
        for op in s.ops:
            if op[0] == 'held-flush':
                yield ('held-flush-answered',), self.answer(self.hdd_flush(self.end(s, op)), op[1])
        if 'flush' in self.actions:
            yield ('flush',), self.answer(self.hdd_flush(s), self.promised(s))

    # -- crash and recovery ------------------------------------------------------------------------------------------

    def crash_steps(self, s):
        """Power cut: any subset of what is not durable survives.  Kernel crash: the devices keep what they completed."""
        s = s._replace(crashes_left=s.crashes_left - 1)
        shaken = any(r.gone and r.kind < FILL for r in s.log)       # what no flush has secured is as after a power cut
        for power in self.crash_kinds:
            for log, lost, garbage in self.surviving_logs(s, power):
                for hdd in self.surviving_backings(s, power):
                    slots = tuple(GARBAGE if k in garbage else v for k, v in enumerate(s.slots))
                    crashed = s._replace(log=log, hdd=hdd, slots=slots, ops=(), snapshot=None, needs_flush=(False, False),
                                         flushes=(), failed=(False, False), believed=(False,) * self.blocks,
                                         unknown=(False,) * self.blocks, risk=False,
                                         untold=False, errors=False, owed=None, doubt=0, bad=(False,) * self.blocks,
                                         gone=())
                    label = ('power-cut' if power else 'kernel-crash', lost, tuple(v[-1] for v in hdd))
                    yield from self.start_steps(crashed, label, power or shaken)

    @staticmethod
    def surviving_logs(s, power):
        """(log, entries lost, slots torn): each record is kept or torn as a whole; what no COMMIT covers is lost."""
        whole = list(records(s.log))
        def safe(r):
            return r.durable == 1 if power else r.phase != IN_FLIGHT
        choices = []
        for commit, entries in whole:
            members = [s.log[i] for i in entries + (() if commit is None else (commit,))]
            torn = commit is None or any(r.phase == TORN or r.gone for r in members)
            choices.append((False,) if torn else (True,) if all(map(safe, members)) else (True, False))
        for kept in product(*choices):
            log, lost, garbage = list(s.log), (), set()
            for keep, (commit, entries) in zip(kept, whole, strict=True):
                for i in entries + (() if commit is None else (commit,)):
                    r = s.log[i]
                    if keep:
                        log[i] = r._replace(phase=SHOWN, durable=power or r.durable == 1, flag=False, covered=0)
                        continue
                    log[i] = r._replace(phase=TORN)
                    if r.phase != TORN:
                        lost += () if r.kind in COMMITS else (r,)
                        if r.kind in (WRITE, FILL, OMITTED) and not safe(r):
                            garbage.add(r.slot)
            yield tuple(log), lost, garbage

    def surviving_backings(self, s, power):
        choices = []
        for b in range(self.blocks):
            in_flight = [op[3] if op[0] == 'writeback' else op[2] for op in s.ops
                         if op[0] in ('bypass', 'discard', 'writeback') and op[1] == b]
            if power:
                choices.append(sorted({(v,) for v in s.hdd[b]} | {(v,) for v in in_flight}))
            else:
                choices.append([s.hdd[b]] + [s.hdd[b] + (v,) for v in in_flight])
        return product(*choices)

    def start_steps(self, s, label, power):
        """The next start, with the cache or without it; then the oracle looks at every block."""
        starts = []
        if not s.stale:
            found = self.recover(s)
            starts.append(('starts', found))
            if s.void and ('leave-after-drain' not in self.rules or not any(e and e[1] != ST_CLEAN for e in found.index)):
                starts.append(('starts, leaves the cache', s._replace(mode=PASSTHROUGH, stale=True, may_be_dirty=False)))
        elif s.stale:
            starts.append(('starts, stale cache refused', s._replace(mode=PASSTHROUGH)))
        if 'missing' in self.actions and not s.may_be_dirty and not s.stale:
            starts.append(('starts without the cache', s._replace(mode=PASSTHROUGH)))
        for how, start in starts:
            up = start
            if up.mode == PASSTHROUGH:
                up = up._replace(index=(None,) * self.blocks)
            if 'recovery-flushes' in self.rules:
                up = self.hdd_flush(up)
                if up.mode == RUNNING:
                    up = self.ssd_flush(up)
            yield label + (how,), self.observe(up, power)

    def observe(self, s, power):
        """Promises 1 to 3 and 6: what is read now was allowed; from now on nothing else is, until it is written again."""
        acked = []
        for b in range(self.blocks):
            value, allowed = self.visible(s, b), s.allowed[b]
            if self.always and not power and not s.lost[b]:         # the devices kept what they completed: so must we
                base = ANY if s.acked[b] == ZERO and ANY in allowed else s.acked[b]
                allowed = allowed[len(allowed) - 1 - allowed[::-1].index(base):]
            if not self.permitted(value, allowed, b) and not (value == ERROR and s.untold) and \
                    not (s.lost[b] and value == s.lost[b][1]):
                return f'block {b} reads {show(value)} after the crash; allowed: {", ".join(map(show, allowed))}'
            acked.append(value)
        # a value other than the last flushed one was lost or kept for good: it is as if it had been flushed
        return s._replace(acked=tuple(acked), allowed=tuple((v,) for v in acked), lost=(None,) * self.blocks)

    def recover(self, s):
        log, ghosts = self.valid_records(s)
        index, mark = list(s.checkpoint[0]), s.checkpoint[1]
        records = log if 'replay-by-sequence' in self.rules else sorted(log, key=lambda r: r.kind >= FILL)
        for kind, b, value, slot, *_ in records:
            if kind in DATA:
                index[b] = (slot, ST_DIRTY if kind == WRITE else ST_CLEAN)
            elif kind == CLEAN and index[b] and (index[b][0] == slot or 'clean-names-slot' not in self.rules):
                index[b] = (index[b][0], ST_CLEAN)
            elif kind == INVALIDATE:
                index[b] = None
            elif kind == INTENT:
                mark = bool(value)
            elif kind == SEGMENT_OPEN:
                index = [None if e and e[0] == slot else e for e in index]
        marked, void = mark and 'drop-marked' in self.rules, s.void and 'void-drops-clean' in self.rules
        dropped = [b for b in range(self.blocks) if (marked or void) and index[b] and index[b][1] == ST_CLEAN]
        for b in dropped:
            index[b] = None
        s = s._replace(log=tuple(log), replay_from=0, ghosts=ghosts, mode=RUNNING, index=tuple(index), mark=mark,
                       free=tuple(v is None for v in s.slots))
        if s.checkpoint[2]:                 # doubt-kept
            bad = tuple(bool(e) and e[1] != ST_CLEAN and s.slots[e[0]] == GARBAGE for e in index)
            s = s._replace(bad=bad, untold=any(bad) and 'doubt-owed' in self.rules)
        unlogged = {'clear-by-checkpoint'} if not void else {'void-by-checkpoint'} if not marked else \
            {'clear-by-checkpoint', 'void-by-checkpoint'}
        if 'recovery-logs-drops' in self.rules and not unlogged <= self.relaxed:
            for b in dropped:
                s = self.append(s, INVALIDATE, b, phase=SHOWN)
        return s

    def valid_records(self, s):
        """The records that replay takes, and those behind a hole that a missing epoch would bring back."""
        valid, behind, gap, hole = [], [], 0, False
        for commit, entries in records(s.log):
            if commit is None or commit < s.replay_from:
                continue
            torn = s.log[commit].phase == TORN
            record = [s.log[i] for i in entries + (commit,) if s.log[i].kind != OMITTED]
            if 'entries-in-order' not in self.rules:        # data first
                record.sort(key=lambda r: r.kind not in DATA)
            if s.log[commit].kind == FILL_COMMIT:
                valid += () if torn else record
            elif torn:
                hole = 'replay-stops-at-hole' in self.rules
                gap += not behind
            elif hole:
                behind += record
            else:
                valid += record
        if 'epoch-seals' in self.rules:
            return valid, None
        if s.ghosts and s.ghosts[0] == 0 and not hole:
            valid += [r for r in s.ghosts[1] if r.kind != WRITE or s.slots[r.slot] == r.value]
        return valid, (gap, tuple(behind)) if behind else None


def show(value):
    if value in (ZERO, GARBAGE, ANY, ERROR):
        return {ZERO: 'zeroes', GARBAGE: 'garbage', ANY: 'any older value', ERROR: 'an error'}[value]
    return f'{"ab"[value // 10] if value // 10 < 2 else "c"}{value % 10}'


def record_name(r):
    return {WRITE: 'WRITE', FILL: 'FILL', COMMIT: 'COMMIT', FILL_COMMIT: 'COMMIT of fills'}[r.kind] + (
        f'({show(r.value)})' if r.kind in DATA else '')


def answers(before, after, failing=False):
    """For the label of a step: the user flushes that it ends."""
    waiting = [op[1] for op in after.ops if op[0] == 'flush']
    texts = [f'{"error for" if op[3] or failing else "acknowledges"} F{op[1] + 1}'
             for op in before.ops if op[0] == 'flush' and op[1] not in waiting]
    return f': {", ".join(texts)}' if texts else ''
