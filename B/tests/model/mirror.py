# SPDX-License-Identifier: GPL-2.0-or-later
"""Executable specification of a set of SSDs: mirrored dirty data, spread clean data, generations (rule 14).

One volume, two to four SSDs and one backing, each with a volatile write cache; a record of the write stream is on all members, or
on as many as a scenario's `copies` says, a clean copy on one.  An SSD may die, be missing at a start, come back stale, join again;
a power cut or a kernel crash may come at any step, those of a start included.  Same interface as model.py, which has the rules of
one SSD; mirror.md is the recipe that follows from this.

Simplifications (README.md):
 * a record is one entry with its data and its commit block, appended to each SSD as a whole (model.py has the rest)
 * a segment holds one record, so "slot", "segment" and "record" are one
 * a member is listed by number; a replaced SSD has another number
 * table, superblock and backing's superblock are written durably, each in one step
 * a mark, once set, stays

Values are ints: block * 10 + n is the n-th write to that block, n = 0 what the backing held at first.
"""
from itertools import combinations, product
from typing import NamedTuple

GARBAGE = 91
WRITE, CLEAN, INTENT, SEGMENT_OPEN, FILL = range(5)     # FILL is a stream of its own, on one SSD
NONE, FLIGHT, VOLATILE, DURABLE, LOST, BAD = range(6)   # a record's copy on one SSD; LOST: garbage; BAD: cannot be read
COMPLETE = (VOLATILE, DURABLE)
ST_DIRTY, ST_CLEANING, ST_CLEAN = range(3)              # state of an index entry (record, state, SSDs that hold it)
BACKING = -1                                            # among the targets of a generation
BEGUN, COPYING, COPIED, FLUSHED, NAMED = range(1, 6)    # how far an SSD has joined

# name: (rule of the design's section 6, what it says)
RULES = {
    'ack-waits-for-copies': (1, 'a write is acknowledged when its append is complete on every member, not on the first'),
    'ack-behind-failed-append': (1, 'nothing is acknowledged behind an append that failed on a member'),
    'flush-every-ssd': (2, 'a flush counts when every member was flushed'),
    'flush-waits-for-removal': (2, 'a flush that failed on one SSD counts only when its removal is durable'),
    'checkpoint-durable-everywhere': (8, 'a superblock names a checkpoint when all that it shows is durable on every member'),
    'free-after-clean-durable': (9, 'the second copy is freed when the CLEAN records are durable on every member'),
    'free-after-replay': (9, 'the second copy is freed when no replay, from any member\'s superblock, needs a record in it'),
    'free-logged': (9, 'the freed copy\'s SEGMENT-OPEN is durable on every member before its reuse'),
    'second-copy-opens': (9, 'replay of a SEGMENT-OPEN drops what a checkpoint maps to its second copy too'),
    'merge-copies': (10, 'a record is valid if either copy is'),
    'copy-before-read': (10, 'a record found on one SSD only is copied to the others before the first read'),
    'recovery-flushes-every-ssd': (10, 'recovery flushes every SSD before the first read'),
    'epoch-everywhere': (10, 'the new epoch is durable on every member before the first read'),
    'superblocks-before-chunks': (10, 'a start brings older superblocks to the newest before it writes over what they name'),
    'generation-before-ack': (14, 'a dead SSD is waited for until a generation without it is durable'),
    'generation-on-ssds': (14, 'a generation is durable on every remaining SSD'),
    'generation-on-backing': (14, 'a generation is durable on the backing'),
    'ssds-before-backing': (14, 'a generation is written to the SSDs first, then to the backing'),
    'generation-tag': (14, 'generations have a random tag and know their ancestors: two with one number are not the same'),
    'generation-at-start': (14, 'a start without a member raises the generation before the first read'),
    'refuse-older': (14, 'a set is refused unless the backing\'s generation is its own or an ancestor'),
    'newest-generation-only': (14, 'only members of the newest generation are read'),
    'lost-stays-known': (14, 'what a lost SSD held stays known (rule 6) until the generation without it is durable'),
    'join-after-old-io': (14, 'an SSD joins again when all I/O of its former life has ended'),
    'join-appends-first': (14, 'a joining SSD gets all new appends before the copying to it begins'),
    'join-waits-for-appends': (14, 'the copying waits for the appends that were in flight when the joining began'),
    'join-copies': (14, 'a joining SSD gets a copy of all dirty data'),
    'join-flushed': (14, 'a joining SSD is flushed before it becomes a member'),
    'join-counts-before-flush': (14, 'from that flush on whatever counts must count on the joining SSD too'),
    'join-drops-old-mappings': (14, 'before it becomes a member a checkpoint is named that maps nothing to its former life'),
    'join-superblock': (14, 'before it becomes a member it has the newest superblock'),
    'join-own-table-last': (14, 'a generation with a new member is written to that member last'),
    'ack-waits-for-third': (1, 'with three copies a write is acknowledged when its append is complete in the third, too'),
    'flush-third': (2, 'with three copies a flush counts when the SSD of the third was flushed, too'),
    'third-copy-named': (9, 'what names a segment names its third copy, too: SEGMENT-OPEN, checkpoint, superblock'),
    'merge-third': (10, 'with three copies a record is valid if it is whole in the third alone'),
    'copy-to-every-copy': (10, 'a record found in one of three copies is copied to both others before the first read'),
    'start-says-what-was-said': (16, 'a start says of all members what superblocks said, not what it has chosen of those present'),
    'resync-owns-range': (7, 'what is appended again: no write of it is in flight at the look, and no bypass until it is applied'),
    'resync-yields': (7, 'what was written since it was looked up is not appended again'),
}
ALL_RULES = frozenset(RULES)

RELAXATIONS = {
    'any-superblock': 'recovery takes any member\'s superblock, the oldest too',
    'own-table-ignored': 'an SSD that the newest generation names is a member even if its own table is older',
}


class Record(NamedTuple):
    kind: int
    block: int
    value: int          # WRITE, FILL: the data
    names: tuple        # CLEAN: (record,); SEGMENT_OPEN: (record, SSD); WRITE: (record,) that is appended again, or ()
    epoch: int
    copies: tuple       # by SSD
    shown: bool
    place: tuple | None = None      # the SSDs that its segment is on; None: all members


class Super(NamedTuple):
    number: int
    epoch: int
    index: tuple | None # the checkpoint; None: the chunks of another one are where it was
    mark: bool
    replay_from: int
    all: int            # the number that the superblocks of all members have had, durably


class Disk(NamedTuple):
    table: tuple | None         # generations, oldest first: (number, tag, members); the last one counts
    superblock: Super | None


class State(NamedTuple):
    # on the backing
    hdd: tuple                  # per block the values that a power cut may leave, oldest first; a read returns the last
    backing: tuple              # (number, tag) of its generation
    # on the SSDs
    disks: tuple
    log: tuple
    # in memory
    alive: tuple                # by SSD: answers
    members: tuple              # of the newest generation that is durable
    history: tuple              # as in Disk.table
    raising: tuple | None       # (history, targets still to be written)
    joining: tuple | None       # (SSD, how far, records to be copied)
    epoch: int
    begun: int                  # the epoch's first record
    index: tuple
    mark: bool
    known: tuple                # per block: replay may find a copy (rule 6)
    naming: tuple | None        # (superblock, SSDs that do not have it yet)
    starting: tuple             # steps of a start that are left; (): runs
    ops: tuple                  # sorted
    # oracle
    lossy: tuple                # by SSD: was dead at a crash since the last read: what was not flushed may be gone
    acked: tuple
    allowed: tuple
    # bounds
    versions: tuple
    writes_left: int
    crashes_left: int
    losses_left: int
    tags: int
    epochs: int
    all: int            # of the superblocks; in memory


def put(items, i, item):
    return items[:i] + (item,) + items[i + 1:]


def show(value):
    return 'garbage' if value == GARBAGE else f'{"abc"[value // 10]}{value % 10}'


def describe_record(r):
    names = {WRITE: 'WRITE', CLEAN: 'CLEAN', INTENT: 'INTENT', SEGMENT_OPEN: 'SEGMENT_OPEN', FILL: 'FILL'}
    return f'{names[r.kind]}({show(r.value)})' if r.kind in (WRITE, FILL) else \
        f'{names[r.kind]}({"abc"[r.block]})' if r.kind == CLEAN else names[r.kind]


def describe(label):
    if isinstance(label, str):
        return 'BROKEN: ' + label
    if label[0] in ('power-cut', 'kernel-crash'):
        what, log, hdd, present, members = label
        found = ', '.join(f'{describe_record(r)} on {names(d for d, c in enumerate(r.copies) if c in COMPLETE)}' for r in log)
        return f'{what}: log has {found or "nothing"}; backing has {" ".join(show(v[-1]) for v in hdd)}; {names(present)} start' + (
            f' as {names(members)}' if members else '')
    return ' '.join(label)


def name(disk):
    return 'the backing' if disk == BACKING else 'ABCD'[disk]


def names(disks):
    return '{' + ', '.join(map(name, sorted(disks))) + '}'


def where(place):
    """Words of a label: on which SSDs, where that is not all members."""
    return ('to', names(place)) if place else ()


class System:
    """The design under one set of rules, within one scenario's bounds."""

    def __init__(self, rules=ALL_RULES, relaxations=(), actions=(), blocks=1, disks=2, members=(0, 1), writes=2, crashes=1,
                 losses=1, max_log=4, copies=None, kernel_crashes=True, always=False, strict_discard=False):
        del strict_discard                      # of model.py
        self.rules, self.relaxed, self.actions = frozenset(rules), frozenset(relaxations), frozenset(actions)
        self.blocks, self.nr_disks, self.first_members = blocks, disks, tuple(members)
        self.writes, self.crashes, self.losses, self.max_log = writes, crashes, losses, max_log
        self.crash_kinds = (True, False) if kernel_crashes else (True,)         # is it a power cut?
        self.copies = copies                    # of a record of the write stream, where there are more members; None: all have it
        self.always = always                    # commit=always

    def initial(self):
        start = tuple(b * 10 for b in range(self.blocks))
        nothing = (None,) * self.blocks
        table = ((1, 0, self.first_members),)
        member = Disk(table, Super(1, 0, nothing, False, 0, 0))
        disks = tuple(member if d in self.first_members else Disk(None, None) for d in range(self.nr_disks))
        return State(
            hdd=tuple((v,) for v in start), backing=(1, 0), disks=disks, log=(), alive=(True,) * self.nr_disks,
            members=self.first_members, history=table, raising=None, joining=None, epoch=0, begun=0, index=nothing, mark=False,
            known=(False,) * self.blocks, naming=None, starting=(), ops=(),
            lossy=(False,) * self.nr_disks, acked=start, allowed=tuple((v,) for v in start),
            versions=(0,) * self.blocks, writes_left=self.writes, crashes_left=self.crashes, losses_left=self.losses, tags=0,
            epochs=0, all=1)

    # -- who must hold it -------------------------------------------------------------------------------------------

    def required(self, s):
        """The SSDs on which a record, or a flush, must be done to count."""
        counted = s.members
        if s.joining and s.joining[1] >= FLUSHED and 'join-counts-before-flush' in self.rules:
            counted += (s.joining[0],)
        if 'generation-before-ack' not in self.rules:
            counted = tuple(d for d in counted if s.alive[d])
        return counted

    def places(self, s):
        """The sets of SSDs that a segment may be on.  One that has died is left out when the generation without it is durable."""
        if not self.copies or len(s.members) <= self.copies:
            return [None]
        return [p for p in combinations(s.members, self.copies) if any(s.alive[d] for d in p)]

    def targets(self, s, place=None):
        """The SSDs that an append is sent to."""
        joins = s.joining and (s.joining[1] >= COPIED or 'join-appends-first' in self.rules)
        return tuple(d for d in (place or s.members) + ((s.joining[0],) if joins else ()) if s.alive[d])

    @staticmethod
    def pending(s, record, disk, states=(FLIGHT,)):
        """Is this copy still to be waited for?  That of an SSD that was dead at the append: until it is no member any more."""
        return record.copies[disk] in states or record.copies[disk] == NONE and not s.alive[disk]

    def complete(self, s, record):
        copies, states = [c for c in record.copies if c != NONE], (FLIGHT,)
        if 'ack-waits-for-third' not in self.rules and len(copies) > 2 and copies.count(FLIGHT) == 1:
            states = ()
        pending = [self.pending(s, record, d, states) for d in self.required(s)]
        return not any(pending) if 'ack-waits-for-copies' in self.rules else not all(pending)

    def durable(self, s, position):
        """Will replay find this entry of the write stream after a power cut, whichever member is left?"""
        return not self.volatile(s, position + 1, self.required(s))

    def volatile(self, s, end, disks):
        return any(self.pending(s, r, d, (FLIGHT, VOLATILE)) for r in s.log[s.begun:end] if r.kind != FILL for d in disks)

    def idle(self, s):
        return all(r.shown for r in s.log) and not any(self.pending(s, r, d) for r in s.log[s.begun:] if r.kind != FILL
                                                       for d in self.required(s))

    # -- what a state shows ------------------------------------------------------------------------------------------

    def visible(self, s, block):
        """Every value that a read may return: from any SSD that is thought to hold it."""
        entry = s.index[block]
        if not entry:
            return {s.hdd[block][-1]}
        record, state, holders = entry
        r = s.log[record]
        copies = [r.copies[d] for d in holders if s.alive[d] and r.copies[d] != BAD]
        if not copies:
            return {s.hdd[block][-1] if state == ST_CLEAN else GARBAGE}
        return {r.value if c in (FLIGHT, *COMPLETE) else GARBAGE for c in copies}

    @staticmethod
    def in_flight(s, block):
        return {op[2] for op in s.ops if op[0] == 'bypass' and op[1] == block} | \
            {r.value for r in s.log if r.kind == WRITE and not r.names and r.block == block and not r.shown}

    def violation(self, s):
        """While the system runs, a read returns the last acknowledged write, or one in flight."""
        if s.starting:
            return None
        for b in range(self.blocks):
            wrong = self.visible(s, b) - {s.acked[b]} - self.in_flight(s, b)
            if wrong:
                return f'block {b} reads {show(min(wrong))}, last acknowledged is {show(s.acked[b])}'
        return None

    # -- the log -----------------------------------------------------------------------------------------------------

    def append(self, s, kind, block=0, value=0, named=(), copies=None, place=None):
        if copies is None:
            to = self.targets(s, place)
            copies = tuple(FLIGHT if d in to else NONE for d in range(self.nr_disks))
        return s._replace(log=s.log + (Record(kind, block, value, named, s.epoch, copies, False, place),))

    def append_durably(self, s, kind, **fields):
        """Append and flush as one step.  Only for metadata, with the stream idle and every member alive."""
        to = self.targets(s)
        return self.settle(self.append(s, kind, copies=tuple(DURABLE if d in to else NONE for d in range(self.nr_disks)), **fields))

    def can_append_durably(self, s):
        return self.room(s) and self.idle(s) and all(s.alive[d] for d in self.required(s)) and self.durable(s, len(s.log))

    def room(self, s):
        return len(s.log) < self.max_log

    def settle(self, s):
        """Show what is complete in the index, and acknowledge it, in the order of the log."""
        for i in range(s.begun, len(s.log)):
            r = s.log[i]
            if r.shown:
                continue
            if not self.complete(s, r):
                if 'ack-behind-failed-append' in self.rules:
                    break
                continue
            s = s._replace(log=put(s.log, i, r._replace(shown=True)))
            if r.kind == WRITE:
                holders = tuple(d for d in s.members if r.copies[d] != NONE and s.alive[d])
                s = s._replace(index=put(s.index, r.block, (i, ST_DIRTY, holders)))
                if not r.names:
                    s = s._replace(acked=put(s.acked, r.block, r.value))
            elif r.kind == CLEAN and s.index[r.block] and s.index[r.block][0] == r.names[0]:
                s = s._replace(index=put(s.index, r.block, (r.names[0], ST_CLEAN, s.index[r.block][2])))
            elif r.kind == INTENT:
                s = s._replace(mark=True)
        return s

    def flush_disk(self, s, disk, upto=None):
        upto = len(s.log) if upto is None else upto
        return s._replace(log=tuple(
            r._replace(copies=put(r.copies, disk, DURABLE)) if i < upto and r.copies[disk] == VOLATILE else r
            for i, r in enumerate(s.log)))

    @staticmethod
    def begin(s, op):
        return s._replace(ops=tuple(sorted(s.ops + (op,))))

    @staticmethod
    def end(s, op):
        ops = list(s.ops)
        ops.remove(op)
        return s._replace(ops=tuple(ops))

    # -- steps -------------------------------------------------------------------------------------------------------

    def successors(self, s):
        """Every (label, state) one step away.  A state may be a str: the step itself broke a promise."""
        if s.starting:
            yield from self.start_step(s)
        else:
            yield from self.user_steps(s)
            yield from self.device_steps(s)
            yield from self.cache_steps(s)
            yield from self.loss_steps(s)
            yield from self.raise_steps(s)
            yield from self.join_steps(s)
        if s.crashes_left:
            yield from self.crash_steps(s)

    def next_value(self, s, block):
        n = s.versions[block] + 1
        value = block * 10 + n
        return value, s._replace(versions=put(s.versions, block, n), writes_left=s.writes_left - 1,
                                 allowed=put(s.allowed, block, s.allowed[block] + (value,)),
                                 known=put(s.known, block, True))

    def user_steps(self, s):
        can = self.actions
        for b in range(self.blocks):
            if not s.writes_left or self.in_flight(s, b):
                continue
            if 'write' in can and self.room(s):
                value, after = self.next_value(s, b)
                for place in self.places(s):
                    yield ('write', 'abc'[b], *where(place)), self.append(after, WRITE, b, value, place=place)
            if 'bypass' in can and self.may_bypass(s, b):
                known = s.known
                value, after = self.next_value(s, b)
                after = after._replace(index=put(s.index, b, None), known=known)
                yield ('bypass', 'abc'[b]), self.begin(after, ('bypass', b, value))
        if 'flush' in can and self.idle(s) and not any(op[0] == 'flush' for op in s.ops):
            to = self.required(s)
            to = to if 'flush-every-ssd' in self.rules else to[:1]
            to = to if 'flush-third' in self.rules else to[:2]
            yield ('flush issued',), self.begin(s, ('flush', to, s.acked, len(s.log)))

    def resync_steps(self, s):
        """What is dirty is appended again, as a write of what is there: by then an SSD may have left."""
        for b in range(self.blocks):
            entry = s.index[b]
            mine = any(op[:2] == ('resync', b) for op in s.ops)
            if entry and entry[1] != ST_CLEAN and not mine and self.room(s) and (
                    'resync-owns-range' not in self.rules or not self.in_flight(s, b)):
                yield ('looked up again', 'abc'[b]), self.begin(s, ('resync', b, entry[0], len(s.log)))
        for op in s.ops:
            if op[0] != 'resync':
                continue
            _, b, record, since = op
            if 'resync-yields' in self.rules and any(r.kind == WRITE and r.block == b for r in s.log[since:]):
                yield ('given up', 'abc'[b]), self.end(s, op)
            elif self.room(s):
                for place in self.places(s):
                    yield ('appended again', 'abc'[b], *where(place)), self.append(
                        self.end(s, op), WRITE, b, s.log[record].value, (record,), place=place)

    def may_bypass(self, s, block):
        entry = s.index[block]
        if 'resync-owns-range' in self.rules and (any(op[:2] == ('resync', block) for op in s.ops) or any(
                r.kind == WRITE and r.names and r.block == block and not r.shown for r in s.log)):
            return False
        if entry and entry[1] != ST_CLEAN or any(op[0] == 'writeback' and op[1] == block for op in s.ops):
            return False
        if any(r.kind == CLEAN and r.block == block and not self.durable(s, i) for i, r in enumerate(s.log)):
            return False
        return not s.known[block] or s.mark and all(self.durable(s, i) for i, r in enumerate(s.log) if r.kind == INTENT)

    def device_steps(self, s):
        for i, r in enumerate(s.log):
            for d in range(self.nr_disks):
                if i >= s.begun and r.copies[d] == FLIGHT and s.alive[d] and (d in s.members or s.joining and s.joining[0] == d):
                    after = s._replace(log=put(s.log, i, r._replace(copies=put(r.copies, d, VOLATILE))))
                    yield (describe_record(r), 'completes on', name(d)), self.settle(after)
        for op in s.ops:
            if op[0] == 'flush':
                yield from self.flush_steps(s, op)
            elif op[0] == 'bypass':
                _, b, value = op
                landed = self.end(s, op)._replace(hdd=put(s.hdd, b, s.hdd[b] + (value,)), acked=put(s.acked, b, value))
                yield ('bypass completes', 'abc'[b]), landed
            elif op[0] == 'writeback':
                _, b, record = op
                landed = self.end(s, op)._replace(hdd=put(s.hdd, b, s.hdd[b] + (s.log[record].value,)))
                yield ('writeback completes', 'abc'[b]), self.begin(landed, ('written-back', b, record))
            elif op[0] == 'stray':
                yield from self.stray_steps(s, op)
        for d in range(self.nr_disks):
            if s.alive[d] and any(r.copies[d] == VOLATILE for r in s.log):
                yield ('ssd-flush', name(d)), self.flush_disk(s, d)
        if any(len(values) > 1 for values in s.hdd):
            yield ('backing-flush',), self.flush_backing(s)

    @staticmethod
    def flush_backing(s):
        return s._replace(hdd=tuple(values[-1:] for values in s.hdd))

    def flush_steps(self, s, op):
        _, pending, promised, upto = op
        for d in pending:
            left = tuple(p for p in pending if p != d)
            if s.alive[d]:
                after, what = self.flush_disk(s, d, upto), 'flush completes on'
            elif d not in s.members or 'flush-waits-for-removal' not in self.rules:
                after, what = s, 'flush is content without'
            else:
                continue
            after = self.end(after, op)
            if left:
                yield (what, name(d)), self.begin(after, ('flush', left, promised, upto))
            else:
                yield (what, name(d) + ': acknowledged'), self.secure(self.flush_backing(after), promised)

    @staticmethod
    def secure(s, promised):
        allowed = list(s.allowed)
        for b, base in enumerate(promised):
            if base in allowed[b]:
                allowed[b] = allowed[b][allowed[b].index(base):]
        return s._replace(allowed=tuple(allowed))

    # -- writeback, clean data, checkpoints, the second copy ---------------------------------------------------------

    def cache_steps(self, s):
        can = self.actions
        for op in s.ops:
            if op[0] == 'written-back':
                _, b, record = op
                if not s.index[b] or s.index[b][:2] != (record, ST_CLEANING):
                    yield ('writeback superseded', 'abc'[b]), self.end(s, op)
                elif self.room(s) and len(s.hdd[b]) == 1:
                    yield ('clean appended', 'abc'[b]), self.append(self.end(s, op), CLEAN, b, named=(record,))
        for b in range(self.blocks):
            entry = s.index[b]
            if 'writeback' in can and entry and entry[1] == ST_DIRTY and self.durable(s, entry[0]) and not any(
                    op[0] in ('writeback', 'written-back', 'bypass') and op[1] == b for op in s.ops):
                cleaning = s._replace(index=put(s.index, b, (entry[0], ST_CLEANING, entry[2])))
                yield ('writeback begins', 'abc'[b]), self.begin(cleaning, ('writeback', b, entry[0]))
            if 'evict' in can and entry and entry[1] == ST_CLEAN:
                yield ('evict', 'abc'[b]), s._replace(index=put(s.index, b, None))
            if 'fill' in can and not entry and self.room(s) and not self.in_flight(s, b) and (s.mark or len(s.hdd[b]) == 1):
                for d in s.members:
                    if s.alive[d]:
                        yield ('fill', 'abc'[b], 'on', name(d)), self.fill(s, b, d)
            if 'free' in can and entry and entry[1] == ST_CLEAN and len(entry[2]) > 1:
                for d in entry[2]:
                    if self.may_free(s, b, entry[0]):
                        yield ('copy freed', 'abc'[b], 'on', name(d)), self.free(s, b, d)
        if 'reopen' in can and self.can_append_durably(s):
            for i in range(len(s.log)):
                yield from self.reopen_steps(s, i)
        if 'resync' in can:
            yield from self.resync_steps(s)
        if 'mark' in can and not s.mark and self.can_append_durably(s):
            yield ('mark set',), self.append_durably(s, INTENT)
        if 'checkpoint' in can and not s.naming and not s.joining and not s.raising and self.idle(s):
            yield ('checkpoint begins',), self.name_begin(s, s.members)
        if s.naming:
            yield from self.name_steps(s)

    def fill(self, s, block, disk):
        copies = tuple(VOLATILE if d == disk else NONE for d in range(self.nr_disks))
        i = len(s.log)
        s = self.append(s, FILL, block, s.hdd[block][-1], copies=copies)
        return s._replace(log=put(s.log, i, s.log[i]._replace(shown=True)), known=put(s.known, block, True),
                          index=put(s.index, block, (i, ST_CLEAN, (disk,))))

    def may_free(self, s, block, record):
        if not self.can_append_durably(s) and 'free-logged' in self.rules:
            return False
        if 'free-after-clean-durable' in self.rules and any(
                r.kind == CLEAN and r.block == block and not self.durable(s, i) for i, r in enumerate(s.log)):
            return False
        return 'free-after-replay' not in self.rules or all(s.disks[d].superblock.replay_from > record for d in s.members)

    def free(self, s, block, disk):
        record, state, holders = s.index[block]
        if 'free-logged' in self.rules:
            s = self.append_durably(s, SEGMENT_OPEN, named=(record, disk))
        r = s.log[record]
        return s._replace(log=put(s.log, record, r._replace(copies=put(r.copies, disk, LOST))),
                          index=put(s.index, block, (record, state, tuple(d for d in holders if d != disk))))

    def reopen_steps(self, s, record):
        """Its place on an SSD, to which nothing is mapped, becomes the second copy of a segment of the write stream."""
        r = s.log[record]
        if r.kind not in (WRITE, FILL) or any(e and e[0] == record for e in s.index):
            return
        if any(s.disks[d].superblock.replay_from <= record for d in s.members):
            return
        for d in s.members:
            if r.copies[d] not in COMPLETE:
                continue
            named = (record, d) if 'second-copy-opens' in self.rules else ()
            opened = self.append_durably(s, SEGMENT_OPEN, named=named)
            yield ('second copy opened over', describe_record(r), 'on', name(d)), opened._replace(
                log=put(opened.log, record, r._replace(copies=put(r.copies, d, LOST))))

    @staticmethod
    def snapshot(s):
        return tuple(e and (e[0], ST_CLEAN if e[1] == ST_CLEAN else ST_DIRTY, e[2]) for e in s.index)

    def name_begin(self, s, disks):
        number = 1 + max(s.disks[d].superblock.number for d in s.members)
        return s._replace(naming=(Super(number, s.epoch, self.snapshot(s), s.mark, len(s.log), s.all), disks))

    def name_steps(self, s):
        superblock, disks = s.naming
        d = disks[0]
        if not s.alive[d]:
            if d not in s.members:
                yield ('superblock: goes without', name(d)), s._replace(naming=(superblock, disks[1:]) if disks[1:] else None)
            return
        wanted = self.required(s) if 'checkpoint-durable-everywhere' in self.rules else (d,)
        if self.volatile(s, superblock.replay_from, wanted):
            return
        if any(r.copies[m] == VOLATILE and s.alive[m] for r in s.log[s.begun:superblock.replay_from] if r.kind == FILL
               for m in s.members):
            return
        after = s._replace(disks=put(s.disks, d, s.disks[d]._replace(superblock=superblock)),
                           naming=(superblock, disks[1:]) if disks[1:] else None)
        if after.naming is None and after.joining and after.joining[1] == FLUSHED:
            after = after._replace(joining=(after.joining[0], NAMED, ()))
        yield ('superblock written on', name(d)), self.counted_as_had(after, superblock.number)

    def counted_as_had(self, s, number):
        """A superblock was written to one more SSD."""
        by_tables = set(s.members) | set(s.raising[0][-1][2] if s.raising else ())
        lacks = [d for d in by_tables if not s.disks[d].superblock or s.disks[d].superblock.number < number]
        return s if lacks else s._replace(all=number)

    # -- loss --------------------------------------------------------------------------------------------------------

    def loss_steps(self, s):
        for d in range(self.nr_disks):
            if 'die' in self.actions and s.alive[d] and s.losses_left and s.disks[d].superblock and (
                    d not in s.members or any(s.alive[m] for m in s.members if m != d)):
                yield (name(d), 'dies'), self.die(s, d)
            expected = d in s.members or s.joining and s.joining[0] == d or s.raising and d in s.raising[0][-1][2]
            if 'join' in self.actions and not s.alive[d] and not expected:
                yield (name(d), 'answers again'), s._replace(alive=put(s.alive, d, True))
            if 'damage' in self.actions and s.losses_left and d in s.members:
                for i, r in enumerate(s.log):
                    others = sum(r.copies[m] == DURABLE and s.alive[m] for m in s.members if m != d)
                    if r.copies[d] == DURABLE and others:
                        left = s.losses_left - 1 if others >= s.losses_left else 0
                        bad = s._replace(log=put(s.log, i, r._replace(copies=put(r.copies, d, BAD))), losses_left=left)
                        yield ('copy of', describe_record(r), 'on', name(d), 'goes bad'), bad

    def die(self, s, disk):
        s = s._replace(alive=put(s.alive, disk, False), losses_left=s.losses_left - 1)
        if 'join' in self.actions and any(r.copies[disk] == FLIGHT for r in s.log[s.begun:]):
            s = self.begin(s, ('stray', disk))
        if s.joining and s.joining[0] == disk and not s.raising:
            s = s._replace(joining=None, naming=None)
        return s

    def stray_steps(self, s, op):
        """An append of an SSD's former life reaches it at last."""
        disk, ended = op[1], self.end(s, op)
        if disk not in s.members and not (s.joining and s.joining[0] == disk):
            yield ('old I/O of', name(disk), 'ends'), ended
        for i, r in enumerate(s.log):
            if r.copies[disk] in COMPLETE:
                yield ('an old append lands on', name(disk), 'in place of', describe_record(r)), ended._replace(
                    log=put(s.log, i, r._replace(copies=put(r.copies, disk, LOST))))

    # -- generations -------------------------------------------------------------------------------------------------

    def next_generation(self, s, members, history):
        tag = s.tags + 1
        s = s._replace(tags=tag)
        return s, history + ((history[-1][0] + 1, tag if 'generation-tag' in self.rules else 0, members),)

    def generation_targets(self, old, new):
        """Who is written, in this order: SSDs that stay, the backing, SSDs that are new."""
        stay = tuple(d for d in new if d in old) if 'generation-on-ssds' in self.rules else ()
        join = tuple(d for d in new if d not in old)
        backing = (BACKING,) if 'generation-on-backing' in self.rules else ()
        first = stay + backing if 'ssds-before-backing' in self.rules else backing + stay
        return first + join if 'join-own-table-last' in self.rules else join + first

    def raise_begin(self, s, members, history):
        s, history = self.next_generation(s, members, history)
        return s._replace(raising=(history, self.generation_targets(s.members, members)))

    def raise_steps(self, s):
        dead = [d for d in s.members if not s.alive[d]]
        if not s.raising:
            if dead:
                members = tuple(d for d in s.members if s.alive[d])
                after = self.drop_disks(self.raise_begin(s, members, s.history), dead)
                if 'lost-stays-known' not in self.rules:
                    after = self.recompute_known(after, members)
                yield ('removal begins of', ', '.join(map(name, dead))), after
            return
        history, targets = s.raising
        lost = [d for d in history[-1][2] if not s.alive[d]]
        if lost:
            members = tuple(d for d in history[-1][2] if s.alive[d])
            joining = None if s.joining and s.joining[0] in lost else s.joining
            after = self.raise_begin(s._replace(joining=joining), members, history)
            yield ('generation begun again without', ', '.join(map(name, lost))), self.drop_disks(after, lost)
            return
        if targets:
            yield ('generation', names(history[-1][2]), 'written to', name(targets[0])), self.raise_ended(
                self.write_generation(s, targets[0], history)._replace(raising=(history, targets[1:])))

    @staticmethod
    def write_generation(s, target, history):
        if target == BACKING:
            return s._replace(backing=history[-1][:2])
        return s._replace(disks=put(s.disks, target, s.disks[target]._replace(table=history)))

    def raise_ended(self, s):
        history, targets = s.raising
        if targets:
            return s
        members = history[-1][2]
        s = s._replace(raising=None, history=history, members=members)
        if s.joining and s.joining[0] in members:
            d = s.joining[0]
            s = s._replace(joining=None, index=tuple(
                e if not e or e[1] == ST_CLEAN and s.log[e[0]].copies[d] == NONE or d in e[2]
                else (e[0], e[1], tuple(sorted(e[2] + (d,)))) for e in s.index))
        return self.settle(self.recompute_known(s, members))

    @staticmethod
    def drop_disks(s, dead):
        """The index without them: clean extents that nobody else holds are gone."""
        index = []
        for entry in s.index:
            if entry:
                holders = tuple(d for d in entry[2] if d not in dead)
                entry = None if entry[1] == ST_CLEAN and not holders else (entry[0], entry[1], holders)
            index.append(entry)
        return s._replace(index=tuple(index))

    def recompute_known(self, s, members):
        def known(b):
            if s.index[b] or any(r.block == b and r.kind in (WRITE, FILL) and any(r.copies[d] != NONE for d in members)
                                 for r in s.log[s.begun:]):
                return True
            blocks = [s.disks[d].superblock.index[b] for d in members if s.disks[d].superblock]
            return any(e and set(e[2]) & set(members) for e in blocks)
        return s._replace(known=tuple(known(b) for b in range(self.blocks)))

    # -- joining -----------------------------------------------------------------------------------------------------

    def join_steps(self, s):
        if 'join' not in self.actions or s.raising:
            return
        if not s.joining:
            if s.naming or any(not s.alive[d] for d in s.members):
                return
            for d in range(self.nr_disks):
                if d in s.members or not s.alive[d] or 'join-after-old-io' in self.rules and ('stray', d) in s.ops:
                    continue
                log = tuple(r._replace(copies=put(r.copies, d, NONE)) for r in s.log)
                yield (name(d), 'begins to join'), s._replace(log=log, disks=put(s.disks, d, Disk(None, None)),
                                                              joining=(d, BEGUN, ()))
            return
        d, phase, wanted = s.joining
        if phase == BEGUN and ('join-waits-for-appends' not in self.rules or not any(
                r.copies[d] == NONE and self.pending(s, r, m) for r in s.log[s.begun:] for m in s.members if r.kind != FILL)):
            yield ('copying begins to', name(d)), s._replace(joining=(d, COPYING, self.join_wants(s, d)))
        elif phase == COPYING:
            log = tuple(r._replace(copies=put(r.copies, d, VOLATILE)) if i in wanted else r for i, r in enumerate(s.log))
            yield ('all copied to', name(d)), s._replace(log=log, joining=(d, COPIED, ()))
        elif phase == COPIED and ('join-flushed' not in self.rules or not any(r.copies[d] == FLIGHT for r in s.log)):
            after = self.flush_disk(s, d) if 'join-flushed' in self.rules else s
            yield ('flushed, counts:', name(d)), after._replace(joining=(d, FLUSHED, ()))
        elif phase == FLUSHED and not s.naming:
            yield from self.join_name(s, d)
        elif phase == NAMED:
            yield ('generation begins with', name(d)), self.raise_begin(s, tuple(sorted(s.members + (d,))), s.history)

    def join_wants(self, s, disk):
        """What a joining SSD needs a copy of: dirty data, and what replay needs."""
        if 'join-copies' not in self.rules:
            return ()
        dirty = {e[0] for e in s.index if e and e[1] != ST_CLEAN}
        return tuple(i for i, r in enumerate(s.log) if r.copies[disk] == NONE and r.kind != FILL and (i in dirty or i >= s.begun)
                     and any(r.copies[m] in COMPLETE for m in s.members))

    def join_name(self, s, disk):
        """A checkpoint on all, the new one included."""
        if 'join-drops-old-mappings' not in self.rules:
            newest = max((s.disks[m].superblock for m in s.members), key=lambda x: x.number)
            yield ('superblock copied to', name(disk)), s._replace(
                disks=put(s.disks, disk, s.disks[disk]._replace(superblock=newest)), joining=(disk, NAMED, ()))
            return
        if self.idle(s):
            to = s.members + ((disk,) if 'join-superblock' in self.rules else ())
            begun = self.name_begin(s, to)
            superblock = begun.naming[0]
            index = tuple(e and (e[0], e[1], tuple(sorted({*e[2], disk})) if s.log[e[0]].copies[disk] != NONE else e[2])
                          for e in superblock.index)
            yield ('checkpoint begins',), begun._replace(naming=(superblock._replace(index=index), to))

    # -- crash and start ---------------------------------------------------------------------------------------------

    def crash_steps(self, s):
        s = s._replace(crashes_left=s.crashes_left - 1)
        good = set(s.members) & {d for d in range(self.nr_disks) if s.alive[d]}
        if s.raising:
            good &= set(s.raising[0][-1][2])
        if s.starting:                          # joined as far as its own table says
            good = {d for d in good if s.disks[d].table and s.disks[d].table[-1] in s.history}
        for power in self.crash_kinds:
            for log in self.surviving_logs(s, power):
                for hdd in self.surviving_backings(s, power):
                    crashed = s._replace(log=log, hdd=hdd, ops=(), raising=None, joining=None, naming=None, lossy=tuple(
                        lossy or not alive for lossy, alive in zip(s.lossy, s.alive, strict=True)))
                    for present in self.presences(s):
                        missing = sum(s.alive[d] and s.disks[d].table is not None for d in range(self.nr_disks) if d not in present)
                        after = crashed._replace(losses_left=s.losses_left - missing)
                        label = ('power-cut' if power else 'kernel-crash', log[s.begun:], hdd, present)
                        yield from self.start(after, label, present, power, good)

    def presences(self, s):
        """Which SSDs are there at the next start."""
        choices = []
        for d in range(self.nr_disks):
            blank = s.disks[d].table is None
            choices.append((True,) if blank else (True, False) if not s.alive[d] or s.losses_left else (True,))
        for there in product(*choices):
            present = tuple(d for d in range(self.nr_disks) if there[d])
            missing = sum(s.alive[d] and s.disks[d].table is not None for d in range(self.nr_disks) if not there[d])
            if present and missing <= s.losses_left:
                yield present

    def surviving_logs(self, s, power):
        choices = []
        for r in s.log:
            copies = []
            for d, c in enumerate(r.copies):
                lossy = power or not s.alive[d]
                if c == FLIGHT:
                    copies.append((LOST, DURABLE if lossy else VOLATILE))
                elif c == VOLATILE and lossy:
                    copies.append((LOST, DURABLE))
                else:
                    copies.append((c,))
            choices.append(tuple(product(*copies)))
        for chosen in product(*choices):
            yield tuple(r._replace(copies=c) for r, c in zip(s.log, chosen, strict=True))

    def surviving_backings(self, s, power):
        choices = []
        for b in range(self.blocks):
            flying = [op[2] if op[0] == 'bypass' else s.log[op[2]].value for op in s.ops
                      if op[0] in ('bypass', 'writeback') and op[1] == b]
            if power:
                choices.append(sorted({(v,) for v in (*s.hdd[b], *flying)}))
            else:
                choices.append([s.hdd[b]] + [s.hdd[b] + (v,) for v in flying])
        return product(*choices)

    def accepts(self, s, table):
        """Does the backing accept a set with this table?"""
        if 'refuse-older' not in self.rules:
            return True
        if 'generation-tag' not in self.rules:
            return table[-1][0] >= s.backing[0]
        return any(g[:2] == s.backing for g in table)

    def newest_table(self, s, present):
        tables = {s.disks[d].table for d in present if s.disks[d].table}
        def key(table):
            return [g[:2] for g in table]
        newest = [t for t in tables if not any(t != u and t[-1][:2] in key(u) for u in tables)] or list(tables)
        newest.sort(key=lambda t: (not self.accepts(s, t), t))
        return newest[0] if newest else None

    def start(self, s, label, present, power, good):
        power = power or s.starting[:1] == (('power',),)
        table = self.newest_table(s, present)
        refused = None
        if table is None:
            refused = 'no SSD has a table'
        elif not self.accepts(s, table):
            refused = 'the set is older than the backing'
        else:
            if 'newest-generation-only' not in self.rules:
                members = tuple(d for d in present if s.disks[d].table)
            else:
                members = tuple(d for d in table[-1][2] if d in present and (
                    s.disks[d].table == table or 'own-table-ignored' in self.relaxed and s.disks[d].superblock))
            if not members or not any(s.disks[d].superblock for d in members):
                refused = 'no member is there'
        if refused is None:
            there = [d for d in members if s.disks[d].superblock]
            had = max(s.disks[d].superblock.all for d in there)
            older = [d for d in there if s.disks[d].superblock.number < had]
            if older:
                yield (*label, ()), f'refused, as {names(older)} is older than it was, which it is not'
                return
            after = self.plan(s, table, members, present, power or all(s.lossy[d] for d in members))
            if after is not None:
                yield (*label, members), after
                return
            refused = 'dirty data is missing'
        if good & set(present):
            yield (*label, ()), f'{refused}: refused, though {names(good & set(present))} has everything'

    def plan(self, s, table, members, present, power):
        """What a start will do, and the state that it will show."""
        supers = [s.disks[d].superblock for d in members if s.disks[d].superblock]
        newest = (min if 'any-superblock' in self.relaxed else max)(supers, key=lambda x: x.number)
        if newest.index is None:
            return None
        found = self.replay(s, newest, members)
        if found is None:
            return None
        index, mark, copies = found
        alive = tuple(d in present for d in range(self.nr_disks))
        steps = [('copy', d, tuple(r for r, m in copies if m == d)) for d in members if any(m == d for _, m in copies)]
        if 'copy-before-read' not in self.rules:
            steps = []
        flushed = members if 'recovery-flushes-every-ssd' in self.rules else members[:1]
        steps.append(('flush', flushed))
        history = table
        raised = set(members) != set(table[-1][2]) and 'generation-at-start' in self.rules
        if raised:
            s, history = self.next_generation(s, members, table)
        generation = []
        for target in self.generation_targets(members, members):
            if target == BACKING and s.backing != history[-1][:2] or target != BACKING and s.disks[target].table != history:
                generation.append(('generation', target))
        said = max(x.all for x in supers) if 'start-says-what-was-said' in self.rules else newest.number
        last = max(x.number for x in supers)
        settled, settle = newest._replace(number=last + 1, all=said), []    # [] also where they are the same but for the number
        if 'superblocks-before-chunks' not in self.rules:
            settle = [('settle', d, s.disks[d].superblock._replace(index=None)) for d in members
                      if s.disks[d].superblock and s.disks[d].superblock.number != newest.number]
        elif set(members) != set(table[-1][2]) or any(x.number != last for x in supers):
            settle = [('settle', d, settled) for d in members]
        steps += settle + generation if raised else generation + settle
        epoch = s.epochs + 1
        whole = set(members) == set(table[-1][2]) and 'superblocks-before-chunks' in self.rules
        superblock = Super(settled.number + 1, epoch, index, mark, len(s.log), settled.number if whole and settle else said)
        steps += [('superblock', d) for d in (members if 'epoch-everywhere' in self.rules else members[:1])]
        s = s._replace(log=tuple(r._replace(shown=True) for r in s.log), epochs=epoch, epoch=epoch, begun=len(s.log), index=index,
                       mark=mark, alive=alive, members=history[-1][2], history=history,
                       naming=(superblock, ()), all=superblock.all, starting=(('power' if power else 'kernel',), *steps))
        return s

    def replay(self, s, superblock, members):
        """(index, mark, copies to be made), or None if dirty data is nowhere."""
        def whole(r, d):
            return r.copies[d] in COMPLETE
        one = 'merge-copies' not in self.rules

        def places(r):
            """The members that are known to have it, and those of them that are looked at."""
            named = r.place or tuple(range(self.nr_disks))
            if 'third-copy-named' not in self.rules and r.kind != FILL:
                named = named[:2]
            there = tuple(d for d in members if d in named)
            return there, there if 'merge-third' in self.rules or r.kind == FILL else there[:2]
        index, mark, hole = list(superblock.index), superblock.mark, False
        for i, r in enumerate(s.log):
            if i < superblock.replay_from or r.epoch != superblock.epoch:
                continue
            there, looked_at = places(r)
            if not any(whole(r, d) for d in (members[:1] if one and r.kind != FILL else looked_at)):
                hole = hole or r.kind != FILL
                continue
            if hole and r.kind != FILL:
                continue
            if r.kind in (WRITE, FILL):
                holders = tuple(d for d in there if r.kind == WRITE or r.copies[d] != NONE)
                index[r.block] = (i, ST_DIRTY if r.kind == WRITE else ST_CLEAN, holders)
            elif r.kind == CLEAN and index[r.block] and index[r.block][0] == r.names[0]:
                index[r.block] = (r.names[0], ST_CLEAN, index[r.block][2])
            elif r.kind == INTENT:
                mark = True
            elif r.kind == SEGMENT_OPEN:
                index = [e and (e[0], e[1], tuple(d for d in e[2] if (e[0], d) != r.names)) for e in index]
        copies = []
        for b, entry in enumerate(index):
            if not entry:
                continue
            record, state, holders = entry
            holders = tuple(d for d in holders if d in members)
            index[b] = (record, state, holders)
            if state == ST_CLEAN and (mark or not holders):
                index[b] = None
                continue
            source = [d for d in holders if whole(s.log[record], d)]
            if not source and state == ST_DIRTY:
                return None
            if record >= superblock.replay_from and s.log[record].epoch == superblock.epoch:     # nobody looks at the others
                lack = [d for d in holders if source and not whole(s.log[record], d)]
                copies += [(record, d) for d in (lack if 'copy-to-every-copy' in self.rules else lack[:1])]
        return tuple(index), mark, copies

    def start_step(self, s):
        (kind,), *steps = s.starting
        if not steps:
            return
        step, *rest = steps
        label, after = self.started(s, step)
        after = after._replace(starting=((kind,), *rest))
        if rest:
            yield label, after
            return
        after = self.counted_as_had(after._replace(starting=(), naming=None), s.naming[0].number)
        yield (*label, '; serves'), self.observe(self.recompute_known(after, after.members), kind == 'power')

    def started(self, s, step):
        what, target, *more = step
        if what == 'copy':
            log = list(s.log)
            for i in more[0]:
                log[i] = log[i]._replace(copies=put(log[i].copies, target, VOLATILE))
            return ('start: copies missing records to', name(target)), s._replace(log=tuple(log))
        if what == 'flush':
            for d in target:
                s = self.flush_disk(s, d)
            return ('start: flushes', names(target), 'and the backing'), self.flush_backing(s)
        if what == 'generation':
            return ('start: generation', names(s.history[-1][2]), 'to', name(target)), self.write_generation(s, target, s.history)
        if what == 'settle':
            words = 'brings the superblock up to date on' if more[0].index is not None else 'writes chunks over those named on'
            return ('start:', words, name(target)), s._replace(
                disks=put(s.disks, target, s.disks[target]._replace(superblock=more[0])))
        return ('start: new epoch on', name(target)), s._replace(
            disks=put(s.disks, target, s.disks[target]._replace(superblock=s.naming[0])))

    def observe(self, s, power):
        """What is read now was allowed; from now on nothing else is, until it is written again."""
        acked = []
        for b in range(self.blocks):
            values, allowed = self.visible(s, b), s.allowed[b]
            if self.always and not power:
                allowed = allowed[len(allowed) - 1 - allowed[::-1].index(s.acked[b]):]
            if values - set(allowed) or len(values) > 1:
                seen = ' or '.join(map(show, sorted(values)))
                return f'block {b} reads {seen} after the crash; allowed: {", ".join(map(show, allowed))}'
            acked.append(values.pop())
        return s._replace(acked=tuple(acked), allowed=tuple((v,) for v in acked), lossy=(False,) * self.nr_disks)
