// SPDX-License-Identifier: GPL-2.0-only
/*
 * Policy: what goes past the cache, what stays in it, how fast dirty data leaves it.  Questions with answers, no I/O (policy.h).
 *
 * Invariants:
 * - A stream's 'settled' sectors lie in [start, next); 'pending' ones in its pieces, which are disjoint, do not touch one
 *   another and begin behind 'next'.  settled + pending is what the run is worth; never more than its requests read or wrote.
 * - Every stream is on the age ring; it is on the ring of its bucket from its first request on.
 * - A set of the ghost is filled from its front, newest first, without gaps; 0 is an empty place.
 * - budget and debt of a rate are never both above zero.
 *
 * Locks: larder_seq.lock and larder_ghost.lock[] are leaves, irq-safe.  Heat has none.  Everything else is the caller's to
 * serialise.
 */
#include "policy.h"

/* ------------------------------------------------------------- sequential streams
 *
 * A stream is known by where it would go on.  Streams are hashed by the 1 MiB granule of that sector, so that one look at the
 * request's granule and at its two neighbours finds the stream it continues, and also those from which it is out of order:
 * requests of one reader arrive nearly in order only (bios split below a filesystem, kcryptd's threads).  One that comes early
 * is kept as a piece and counts at once; the run goes on through it when what lies before it has come, or is not larger than
 * the piece itself (strided reads are one run to a disk).  One that comes late may fill such a hole.
 *
 * Random I/O within a small range must not grow into a run, though each of its requests comes "early" to some stream.  So a
 * stream that collects more than LARDER_SEQ_PIECES separate pieces is none and begins anew (unless it is long already, and has
 * few holes), and one is forgotten that does not grow while LARDER_SEQ_NOISE is asked for around it.  Measured
 * (tests/unit/test_policy.c): a reader whose 24 outstanding requests arrive in any order is one run; of random requests of up
 * to 16 KiB within 4 MiB to 1 TiB fewer than 1 in 1,000 are taken for part of a run of 4 MiB, of up to 64 KiB fewer than 1 in
 * 200, of up to 128 KiB fewer than 3 in 100.
 *
 * The log of a database, or of a filesystem, is written in order, too, but each piece of it is waited for until it is durable: at
 * a disk that is a turn of the platter for each, however long the run.  So a stream of writes with less than LARDER_SEQ_SYNCED
 * between one flush of the volume and a later one begins anew behind that.  Whoever copies a file is ahead of the flushes of
 * others by the size of a request at least.
 */
#define LARDER_SEQ_WINDOW	2048u	/* sectors: how early or late a request may come; a granule of the hash */
#define LARDER_SEQ_PIECES	24
#define LARDER_SEQ_LONG		2048u	/* sectors: from here on a run may leave out holes that are larger than what follows them */
#define LARDER_SEQ_NOISE	2048u	/* sectors asked for near a stream that did not let it grow: from here on it is none */
#define LARDER_SEQ_SYNCED	512u	/* sectors of writes between two flushes: from here on it is no log that is waited for */
#define LARDER_SEQ_WALK		16	/* streams looked at in a bucket, the latest first */
#define LARDER_SEQ_AGE		(5 * HZ)
#define LARDER_SEQ_BUCKETS	(256 - LARDER_NR_STREAMS_SEEN)
#define LARDER_SEQ_TASKS	64
#define LARDER_SEQ_RUN_MAX	32768u	/* sectors: what one run adds to a task's average at most */
#define LARDER_SEQ_NONE		0xff

/* Rings of u8: members [0, LARDER_NR_STREAMS_SEEN), heads behind them. */
struct larder_ring {
	u8 prev, next;
};

/* Low halves of sectors: pieces are always near their stream's 'next', and a request is shorter than 2^23 sectors. */
struct larder_piece {
	u32 first, end;
};

struct larder_stream {
	u64 start, next;	/* sectors */
	u64 settled;		/* sectors seen of [start, next) */
	u32 holes;		/* sectors of it not seen, at most a window's: late requests take from them */
	u32 pending;		/* sectors in pieces */
	u32 flushes;		/* larder_seq.flushes at its last write */
	u32 unflushed;		/* sectors written since that last changed */
	u32 noise;		/* sectors asked for within a window of 'next' since it has grown; of one request 32 to 128 */
	unsigned long used;	/* jiffies of the last request that let it grow */
	u8 pieces;
	bool write, live;
	struct larder_piece piece[LARDER_SEQ_PIECES + 1];	/* one more while a request is added */
};

struct larder_seq_task {
	u32 task;
	u32 run;		/* sectors since it last began a stream */
	u32 average;		/* sectors, of such runs */
	unsigned long used;
};

struct larder_seq {
	spinlock_t lock;	/* all of it but flushes */
	u32 flushes;		/* of the volume, and writes with FUA; racy: one that is missed is one of many */
	struct larder_ring age[LARDER_NR_STREAMS_SEEN + 1];	/* the last is the head; next of it: used last */
	struct larder_ring hash[LARDER_NR_STREAMS_SEEN + LARDER_SEQ_BUCKETS];
	struct larder_stream stream[LARDER_NR_STREAMS_SEEN];
	struct larder_seq_task task[LARDER_SEQ_TASKS];
};

/* The higher, the better a match. */
enum larder_seq_match {
	LARDER_SEQ_NEW,		/* continues none */
	LARDER_SEQ_EARLY,	/* begins within a window behind 'next' */
	LARDER_SEQ_FRONT,	/* ends where a young stream started */
	LARDER_SEQ_LATE,	/* lies within a window before 'next', where a hole was left */
	LARDER_SEQ_GOES_ON,	/* begins at 'next', or before it and ends behind it */
};

static void larder_ring_del(struct larder_ring *ring, u8 i)
{
	ring[ring[i].prev].next = ring[i].next;
	ring[ring[i].next].prev = ring[i].prev;
	ring[i].prev = i;
	ring[i].next = i;
}

/* Behind 'head', which may be any member. */
static void larder_ring_add(struct larder_ring *ring, u8 head, u8 i)
{
	ring[i].prev = head;
	ring[i].next = ring[head].next;
	ring[ring[head].next].prev = i;
	ring[head].next = i;
}

u64 larder_seq_bytes(void)
{
	return sizeof(struct larder_seq);
}

/* Sleeps.  NULL: no memory. */
struct larder_seq *larder_seq_create(void)
{
	struct larder_seq *seq = kvzalloc(sizeof(*seq), GFP_KERNEL);
	unsigned int i;

	BUILD_BUG_ON(LARDER_NR_STREAMS_SEEN >= LARDER_SEQ_NONE);
	BUILD_BUG_ON(LARDER_SEQ_BUCKETS & (LARDER_SEQ_BUCKETS - 1));
	BUILD_BUG_ON(LARDER_SEQ_TASKS & (LARDER_SEQ_TASKS - 1));
	if (!seq)
		return NULL;
	spin_lock_init(&seq->lock);
	for (i = 0; i < ARRAY_SIZE(seq->hash); i++)
		seq->hash[i] = (struct larder_ring){ i, i };
	seq->age[LARDER_NR_STREAMS_SEEN] = (struct larder_ring){ LARDER_NR_STREAMS_SEEN, LARDER_NR_STREAMS_SEEN };
	for (i = 0; i < LARDER_NR_STREAMS_SEEN; i++)
		larder_ring_add(seq->age, LARDER_NR_STREAMS_SEEN, i);
	return seq;
}

/* Sleeps.  NULL is fine. */
void larder_seq_destroy(struct larder_seq *seq)
{
	kvfree(seq);
}

static u64 larder_seq_granule(u64 sector)
{
	return sector / LARDER_SEQ_WINDOW;
}

static u8 larder_seq_bucket(u64 granule, bool write)
{
	u64 h = (granule * 2 + write) * 0x9e3779b97f4a7c15ull;

	return LARDER_NR_STREAMS_SEEN + (h >> 40) % LARDER_SEQ_BUCKETS;
}

/* How a request of [sector, end) relates to a stream; *distance: of two like matches the nearer is better. */
static enum larder_seq_match larder_seq_relate(const struct larder_stream *s, u64 sector, u64 end, u64 *distance)
{
	if (sector >= s->next) {
		*distance = sector - s->next;
		if (*distance > LARDER_SEQ_WINDOW)
			return LARDER_SEQ_NEW;
		return *distance ? LARDER_SEQ_EARLY : LARDER_SEQ_GOES_ON;
	}
	*distance = s->next - sector;
	if (end > s->next)
		return sector >= s->start ? LARDER_SEQ_GOES_ON : LARDER_SEQ_NEW;
	if (*distance > LARDER_SEQ_WINDOW)
		return LARDER_SEQ_NEW;
	if (sector >= s->start)
		return s->holes >= end - sector ? LARDER_SEQ_LATE : LARDER_SEQ_NEW;
	return end == s->start ? LARDER_SEQ_FRONT : LARDER_SEQ_NEW;
}

/* The nearest stream that a request belongs to; what it is to that one. */
static enum larder_seq_match larder_seq_find(struct larder_seq *seq, u64 sector, u64 end, bool write, unsigned long now, u8 *found)
{
	static const s8 order[] = { 0, -1, 1 };
	enum larder_seq_match match, best = LARDER_SEQ_NEW;
	u64 distance, least = U64_MAX;
	unsigned int n, walk;
	u8 head, i;

	for (n = 0; n < ARRAY_SIZE(order); n++) {
		if (best == LARDER_SEQ_GOES_ON && !least)
			break;
		head = larder_seq_bucket(larder_seq_granule(sector) + order[n], write);
		walk = LARDER_SEQ_WALK;
		for (i = seq->hash[head].next; i != head && walk; i = seq->hash[i].next, walk--) {
			struct larder_stream *s = &seq->stream[i];

			if (s->write != write || now - s->used > LARDER_SEQ_AGE || s->noise > LARDER_SEQ_NOISE)
				continue;
			match = larder_seq_relate(s, sector, end, &distance);
			if (distance <= LARDER_SEQ_WINDOW)
				s->noise += clamp_t(u64, end - sector, 32, 128);
			if (match < best || match == LARDER_SEQ_NEW || (match == best && distance >= least))
				continue;
			best = match;
			least = distance;
			*found = i;
		}
	}
	return best;
}

static void larder_piece_del(struct larder_stream *s, unsigned int i)
{
	s->pending -= s->piece[i].end - s->piece[i].first;
	s->pieces--;
	memmove(&s->piece[i], &s->piece[i + 1], (s->pieces - i) * sizeof(s->piece[0]));
}

static void larder_seq_take(struct larder_stream *s, unsigned int i)
{
	s32 hole = s->piece[i].first - (u32)s->next;
	s32 reach = s->piece[i].end - (u32)s->next;

	larder_piece_del(s, i);
	if (hole > 0)
		s->holes = min(s->holes + hole, LARDER_SEQ_WINDOW);
	if (reach > 0) {
		s->settled += reach - max(hole, 0);
		s->next += reach;
	}
}

/* Lets the stream go on through the pieces that 'next' has reached, or that are no smaller than the hole before them. */
static void larder_seq_settle(struct larder_stream *s)
{
	unsigned int i = 0;

	while (i < s->pieces) {
		s32 hole = s->piece[i].first - (u32)s->next;

		if (hole > 0 && (u32)hole > s->piece[i].end - s->piece[i].first) {
			i++;
			continue;
		}
		larder_seq_take(s, i);
		i = 0;	/* another one may be reached now */
	}
}

/* No place for one more piece: a long run with few holes goes on at the nearest one.  false: this is no stream. */
static bool larder_seq_skip(struct larder_stream *s)
{
	u32 base = s->next;
	unsigned int i, near = 0;

	for (i = 1; i < s->pieces; i++)
		if (s->piece[i].first - base < s->piece[near].first - base)
			near = i;
	if (s->settled < LARDER_SEQ_LONG || s->holes + s->piece[near].first - base > LARDER_SEQ_WINDOW)
		return false;
	larder_seq_take(s, near);
	larder_seq_settle(s);
	return true;
}

/*
 * Keeps an early request, in one piece with those that it overlaps or touches, or goes on through it.  false: too many pieces,
 * this is no stream.
 */
static bool larder_piece_add(struct larder_stream *s, u64 sector, u64 end)
{
	u32 base = s->next, first = sector, last = end;
	unsigned int i = 0;

	while (i < s->pieces) {
		struct larder_piece *p = &s->piece[i];

		if (p->first - base > last - base || first - base > p->end - base) {
			i++;
			continue;
		}
		if (p->first - base < first - base)
			first = p->first;
		if (p->end - base > last - base)
			last = p->end;
		larder_piece_del(s, i);
	}
	s->piece[s->pieces++] = (struct larder_piece){ first, last };
	s->pending += last - first;
	larder_seq_settle(s);
	return s->pieces <= LARDER_SEQ_PIECES || larder_seq_skip(s);
}

static void larder_stream_begin(struct larder_stream *s, u64 sector, u64 end, bool write)
{
	s->start = sector;
	s->next = end;
	s->settled = end - sector;
	s->holes = 0;
	s->pending = 0;
	s->pieces = 0;
	s->write = write;
	s->live = true;
}

/* Adds a request to the stream that it matches.  Returns what it turned out to be. */
static enum larder_seq_match larder_stream_add(struct larder_stream *s, enum larder_seq_match match, u64 sector, u64 end)
{
	switch (match) {
	case LARDER_SEQ_NEW:
		break;
	case LARDER_SEQ_GOES_ON:
		s->settled += end - s->next;
		s->next = end;
		larder_seq_settle(s);
		return match;
	case LARDER_SEQ_EARLY:
		if (!larder_piece_add(s, sector, end))
			break;
		return match;
	case LARDER_SEQ_LATE:
		s->holes -= end - sector;
		s->settled += end - sector;
		return match;
	case LARDER_SEQ_FRONT:
		s->start = sector;
		s->settled += end - sector;
		return match;
	}
	larder_stream_begin(s, sector, end, s->write);
	return LARDER_SEQ_NEW;
}

/* A flush has come between its last write and this one.  False: it is the log of somebody who waits for each piece. */
static bool larder_stream_flushed(struct larder_stream *s, u32 flushes)
{
	bool ahead = s->unflushed >= LARDER_SEQ_SYNCED;

	s->flushes = flushes;
	s->unflushed = 0;
	return ahead;
}

static struct larder_seq_task *larder_seq_task(struct larder_seq *seq, u32 task)
{
	return &seq->task[(task * 0x9e3779b1u >> 16) % LARDER_SEQ_TASKS];
}

/*
 * The average length of a reader's runs, in sectors: one that reads large files in a row is recognised at the start of the
 * next.  Runs are counted from one new stream to the next, so that a scan does not lend its length to look-ups made between.
 * Reads only: a fill withheld is read again, but a write sent past the cache costs a seek now, and the flusher thread writes
 * large and small files alike.
 */
static u32 larder_task_average(struct larder_seq *seq, u32 task, u32 sectors, bool began, unsigned long now)
{
	struct larder_seq_task *t = larder_seq_task(seq, task);

	if (t->task != task || now - t->used > LARDER_SEQ_AGE)
		*t = (struct larder_seq_task){ .task = task };
	if (began) {
		t->average += t->run / 8 - t->average / 8;
		t->run = 0;
	}
	t->run = min(t->run + min(sectors, LARDER_SEQ_RUN_MAX), LARDER_SEQ_RUN_MAX);
	t->used = now;
	return t->average;
}

/*
 * Bytes of the run that the request of 'sectors' at 'sector' belongs to, itself included; for a read not less than the task's
 * average run.  0 for an empty request.  Process context, softirq, interrupt.
 */
u64 larder_seq_account(struct larder_seq *seq, u64 sector, u32 sectors, bool write, u32 task, unsigned long now_jiffies)
{
	enum larder_seq_match match;
	struct larder_stream *s;
	unsigned long flags;
	u64 run, next;
	u32 flushes;
	u8 i = LARDER_SEQ_NONE;
	bool known;

	if (!sectors)
		return 0;
	spin_lock_irqsave(&seq->lock, flags);
	match = larder_seq_find(seq, sector, sector + sectors, write, now_jiffies, &i);
	if (match == LARDER_SEQ_NEW)
		i = seq->age[LARDER_NR_STREAMS_SEEN].prev;
	s = &seq->stream[i];
	known = s->live && match != LARDER_SEQ_NEW;
	next = s->next;
	s->write = write;
	if (write) {
		flushes = READ_ONCE(seq->flushes);
		if (!known) {
			s->flushes = flushes;
			s->unflushed = 0;
		} else if (s->flushes != flushes && !larder_stream_flushed(s, flushes)) {
			match = LARDER_SEQ_NEW;
		}
		s->unflushed = min(s->unflushed + min(sectors, LARDER_SEQ_RUN_MAX), LARDER_SEQ_RUN_MAX);
	}
	match = larder_stream_add(s, match, sector, sector + sectors);
	if (!known || larder_seq_granule(next) != larder_seq_granule(s->next)) {
		larder_ring_del(seq->hash, i);
		larder_ring_add(seq->hash, larder_seq_bucket(larder_seq_granule(s->next), write), i);
	}
	if (s->next != next || match == LARDER_SEQ_NEW || match == LARDER_SEQ_FRONT) {
		larder_ring_del(seq->age, i);
		larder_ring_add(seq->age, LARDER_NR_STREAMS_SEEN, i);
		s->used = now_jiffies;
		s->noise = 0;
	}
	run = s->settled + s->pending;
	if (!write)
		run = max_t(u64, run, larder_task_average(seq, task, sectors, match == LARDER_SEQ_NEW, now_jiffies));
	spin_unlock_irqrestore(&seq->lock, flags);
	return run << 9;
}

void larder_seq_flushed(struct larder_seq *seq, u32 sectors)
{
	/* no log has so large a piece */
	if (sectors >= LARDER_SEQ_SYNCED)
		return;
	WRITE_ONCE(seq->flushes, READ_ONCE(seq->flushes) + 1);
}

/* What the request went on, or began, goes on where the rest begins.  A stream that ran ahead of it has the rest already. */
void larder_seq_cut(struct larder_seq *seq, u64 rest, u64 end, bool write, u32 task)
{
	struct larder_seq_task *t = larder_seq_task(seq, task);
	u8 head = larder_seq_bucket(larder_seq_granule(end), write), i;
	unsigned int walk = LARDER_SEQ_WALK;
	struct larder_stream *s;
	unsigned long flags;
	u64 sectors = end - rest;

	spin_lock_irqsave(&seq->lock, flags);
	if (!write && t->task == task)
		t->run -= min_t(u64, t->run, sectors);
	for (i = seq->hash[head].next; i != head && walk; i = seq->hash[i].next, walk--) {
		s = &seq->stream[i];
		if (s->next != end || s->write != write || s->pieces || s->settled <= sectors)
			continue;
		s->next = rest;
		s->settled -= sectors;
		s->unflushed -= min_t(u64, s->unflushed, sectors);	/* 0 of one that is read */
		larder_ring_del(seq->hash, i);
		larder_ring_add(seq->hash, larder_seq_bucket(larder_seq_granule(rest), write), i);
		break;
	}
	spin_unlock_irqrestore(&seq->lock, flags);
}

/* ------------------------------------------------------------- heat
 *
 * A slot's heat is a number of two bits, warm the lower one, hot the higher: 0 to 3.  They lie in two words, so two hits at
 * once may count as one, and a reader between the two stores of a step sees the slot hotter than it is.  Heat is a hint:
 * neither does harm.
 */
int larder_heat_init(struct larder_heat *h, u64 slots)
{
	u64 bytes = DIV_ROUND_UP(slots, BITS_PER_LONG) * sizeof(unsigned long);

	h->warm = NULL;
	h->hot = NULL;
	h->slots = slots;
	if (!slots || slots > U64_MAX / 2)
		return -EINVAL;
	if (bytes > LONG_MAX)
		return -ENOMEM;
	h->warm = vzalloc(bytes);
	h->hot = vzalloc(bytes);
	if (h->warm && h->hot)
		return 0;
	larder_heat_free(h);
	return -ENOMEM;
}

/* Sleeps.  Fine after a failed init, and twice. */
void larder_heat_free(struct larder_heat *h)
{
	vfree(h->warm);
	vfree(h->hot);
	h->warm = NULL;
	h->hot = NULL;
	h->slots = 0;
}

/* The next word's share of [*slot, *slot + *n): its bits; *word: which one.  0: none left. */
static unsigned long larder_heat_step(const struct larder_heat *h, u64 *slot, u32 *n, size_t *word)
{
	u32 bit = *slot % BITS_PER_LONG, count;

	if (!*n || *slot >= h->slots)
		return 0;
	count = min_t(u32, *n, BITS_PER_LONG - bit);	/* the last word may have bits of no slot */
	*word = *slot / BITS_PER_LONG;
	*slot += count;
	*n -= count;
	return (~0ul >> (BITS_PER_LONG - count)) << bit;
}

static void larder_heat_set_bits(unsigned long *word, unsigned long bits)
{
	for (; bits; bits &= bits - 1)
		set_bit(__ffs(bits), word);
}

static void larder_heat_clear_bits(unsigned long *word, unsigned long bits)
{
	for (; bits; bits &= bits - 1)
		clear_bit(__ffs(bits), word);
}

void larder_heat_hit(struct larder_heat *h, u64 slot, u32 n)
{
	unsigned long mask, warm, hot;
	size_t w;

	while ((mask = larder_heat_step(h, &slot, &n, &w))) {
		warm = READ_ONCE(h->warm[w]);
		hot = READ_ONCE(h->hot[w]);
		if (!(mask & ~(warm & hot)))
			continue;
		larder_heat_set_bits(&h->hot[w], mask & warm & ~hot);	/* 1 to 2: higher bit first, never cold between */
		larder_heat_clear_bits(&h->warm[w], mask & warm & ~hot);
		larder_heat_set_bits(&h->warm[w], mask & ~warm);	/* 0 to 1, 2 to 3 */
	}
}

void larder_heat_set(struct larder_heat *h, u64 slot, u32 n, unsigned int heat)
{
	unsigned long mask, warm, hot;
	size_t w;

	heat = min(heat, LARDER_HEAT_MAX);
	while ((mask = larder_heat_step(h, &slot, &n, &w))) {
		warm = READ_ONCE(h->warm[w]);
		hot = READ_ONCE(h->hot[w]);
		if (heat & 2)
			larder_heat_set_bits(&h->hot[w], mask & ~hot);
		else
			larder_heat_clear_bits(&h->hot[w], mask & hot);
		if (heat & 1)
			larder_heat_set_bits(&h->warm[w], mask & ~warm);
		else
			larder_heat_clear_bits(&h->warm[w], mask & warm);
	}
}

void larder_heat_raise(struct larder_heat *h, u64 slot, unsigned int heat)
{
	heat = min(heat, LARDER_HEAT_MAX);
	if (heat <= larder_heat_get(h, slot) || slot >= h->slots)
		return;
	if (heat & 2)
		larder_slot_set(slot, h->hot);
	if (heat & 1)
		larder_slot_set(slot, h->warm);
	else
		larder_slot_clear(slot, h->warm);
}

void larder_heat_cool(struct larder_heat *h, u64 slot, u32 n, bool main)
{
	unsigned int heat;

	for (; n--; slot++) {
		if (!larder_heat_get(h, slot))
			continue;
		larder_keep_worthy(larder_heat_get(h, slot), main, &heat);
		larder_heat_set(h, slot, 1, heat);
	}
}

/* ------------------------------------------------------------- ghost
 *
 * A set is one cache line: 32 fingerprints, newest first, so that its order is its age and nothing else need be stored.  A
 * fingerprint is one of 65,535 values: a block that never was in a full set is found there with a probability of 32 / 65,535, 1
 * in 2,048; a wider set would be better at FIFO and worse at that.
 */
#define LARDER_GHOST_WAYS	32
#define LARDER_GHOST_LOCKS	64

struct larder_ghost_set {
	u16 print[LARDER_GHOST_WAYS];
};

struct larder_ghost {
	spinlock_t lock[LARDER_GHOST_LOCKS];	/* the sets whose number ends in it */
	u64 sets;
	struct larder_ghost_set *set;
};

struct larder_ghost *larder_ghost_create(u64 blocks)
{
	struct larder_ghost *g;
	u64 sets = DIV_ROUND_UP(max_t(u64, blocks, 1), LARDER_GHOST_WAYS);
	unsigned int i;

	BUILD_BUG_ON(sizeof(struct larder_ghost_set) != 64);
	if (blocks > U64_MAX / 2 || sets > U32_MAX || sets > LONG_MAX / sizeof(struct larder_ghost_set))
		return NULL;
	g = kvzalloc(sizeof(*g), GFP_KERNEL);
	if (!g)
		return NULL;
	for (i = 0; i < LARDER_GHOST_LOCKS; i++)
		spin_lock_init(&g->lock[i]);
	g->sets = sets;
	g->set = vzalloc(sets * sizeof(struct larder_ghost_set));
	if (g->set)
		return g;
	kvfree(g);
	return NULL;
}

/* Sleeps.  NULL is fine. */
void larder_ghost_destroy(struct larder_ghost *g)
{
	if (!g)
		return;
	vfree(g->set);
	kvfree(g);
}

/* The set of a block, and its fingerprint: from the high and the low half of a hash of block and volume. */
static u32 larder_ghost_hash(const struct larder_ghost *g, u32 volume, u64 block, u16 *print)
{
	u64 h = block + ((u64)volume << 48 | volume) * 0xd6e8feb86659fd93ull;

	h = (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
	h = (h ^ h >> 29) * 0x9e3779b97f4a7c15ull;
	h ^= h >> 32;
	*print = 1 + ((h & U32_MAX) * 65535 >> 32);
	return (h >> 32) * g->sets >> 32;
}

/* The place of a fingerprint in its set; LARDER_GHOST_WAYS: not there, all places taken; else an empty one. */
static unsigned int larder_ghost_find(const struct larder_ghost_set *set, u16 print)
{
	unsigned int i;

	for (i = 0; i < LARDER_GHOST_WAYS; i++)
		if (set->print[i] == print || !set->print[i])
			break;
	return i;
}

/* Any context.  A block that is there already becomes the newest. */
void larder_ghost_add(struct larder_ghost *g, u32 volume, u64 block)
{
	u16 print;
	u32 n = larder_ghost_hash(g, volume, block, &print);
	struct larder_ghost_set *set = &g->set[n];
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&g->lock[n % LARDER_GHOST_LOCKS], flags);
	i = min_t(unsigned int, larder_ghost_find(set, print), LARDER_GHOST_WAYS - 1);
	memmove(&set->print[1], &set->print[0], i * sizeof(print));
	set->print[0] = print;
	spin_unlock_irqrestore(&g->lock[n % LARDER_GHOST_LOCKS], flags);
}

/* Is it there?  take: it is not any more. */
static bool larder_ghost_look(struct larder_ghost *g, u32 volume, u64 block, bool take)
{
	u16 print;
	u32 n = larder_ghost_hash(g, volume, block, &print);
	struct larder_ghost_set *set = &g->set[n];
	unsigned long flags;
	unsigned int i;
	bool there;

	spin_lock_irqsave(&g->lock[n % LARDER_GHOST_LOCKS], flags);
	i = larder_ghost_find(set, print);
	there = i < LARDER_GHOST_WAYS && set->print[i];
	if (there && take) {
		memmove(&set->print[i], &set->print[i + 1], (LARDER_GHOST_WAYS - 1 - i) * sizeof(print));
		set->print[LARDER_GHOST_WAYS - 1] = 0;
	}
	spin_unlock_irqrestore(&g->lock[n % LARDER_GHOST_LOCKS], flags);
	return there;
}

/* Any context. */
bool larder_ghost_take(struct larder_ghost *g, u32 volume, u64 block)
{
	return larder_ghost_look(g, volume, block, true);
}

/* Any context. */
bool larder_ghost_missed(struct larder_ghost *g, u32 volume, u64 block, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (larder_ghost_look(g, volume, block + i, false))
			return true;
	for (i = 0; i < n; i++)
		larder_ghost_add(g, volume, block + i);
	return false;
}

u64 larder_ghost_bytes(const struct larder_ghost *g)
{
	return g ? sizeof(*g) + g->sets * sizeof(struct larder_ghost_set) : 0;
}

/* ------------------------------------------------------------- eviction */
#define LARDER_RELINK_PERCENT	75
#define LARDER_DEAD_PERCENT	25

/*
 * The queue whose oldest segment goes next.  Small: while it holds more than its goal, or main less; the only one that holds
 * anything, always.
 */
enum larder_small_or_main larder_evict_queue(const struct larder_queue_facts *f)
{
	unsigned int percent = clamp(f->small_percent, 5u, 10u);

	u64 goal = f->total_segments * percent;

	if (!f->main_segments)
		return LARDER_QUEUE_SMALL;
	if (!f->small_segments)
		return LARDER_QUEUE_MAIN;
	return f->small_segments * 100 > goal || f->main_segments * 100 < goal ? LARDER_QUEUE_SMALL : LARDER_QUEUE_MAIN;
}

/*
 * Dirty data first: until it is written back a segment can neither be dropped nor become one of keep, which holds clean data
 * only.  RELINK: the segment goes to the young end of keep as it is, cooled (larder_heat_cool()): as no hit of it counts before
 * the log has gone on, it comes round three times at most without that.  DROP_REST: what is worth keeping is copied to keep, the
 * rest dropped.  Alike in both queues: what differs is how many are hot.
 */
enum larder_fate larder_segment_fate(u32 live, u32 dirty, u32 hot, u32 size, bool main)
{
	if (dirty)
		return LARDER_FATE_WAIT_WRITEBACK;
	if (hot && hot <= live && (u64)hot * 100 >= (u64)size * LARDER_RELINK_PERCENT)
		return LARDER_FATE_RELINK;
	return LARDER_FATE_DROP_REST;
}

bool larder_dead_first(u32 live, u32 size)
{
	return (u64)live * 100 <= (u64)size * LARDER_DEAD_PERCENT;
}

bool larder_keep_worthy(unsigned int heat_now, bool main, unsigned int *heat)
{
	bool worthy = heat_now >= (main ? 1 : LARDER_HEAT_KEPT);

	*heat = main ? heat_now - worthy : worthy;
	return worthy;
}

/*
 * Who is remembered: what the small queue let go of too early comes back soon, and keep is the place for it.  What left keep had
 * its time there; in the ghost it would only take the place of others (as in S3-FIFO).
 */
enum larder_extent_fate larder_extent_fate(unsigned int heat_now, bool main, bool dead, unsigned int *heat)
{
	if (dead) {
		*heat = heat_now;
		return main ? LARDER_EXTENT_KEEP : LARDER_EXTENT_AGAIN;
	}
	if (larder_keep_worthy(heat_now, main, heat))
		return LARDER_EXTENT_KEEP;
	return main ? LARDER_EXTENT_DROP : LARDER_EXTENT_GHOST;
}

/* ------------------------------------------------------------- rate of writeback
 *
 * With e = dirty - target:  rate = e / 8 s + integral,  d(integral)/dt = e / (16 s)^2, the bounds apart.  Dirty data flows in
 * at F, out at the rate: critically damped with a time constant of 16 s, and the integral comes to equal F.  It stands still
 * (anti-windup) where integrating would push a rate further that is at its bound already, or that the device cannot reach,
 * which shows in budget left over; and outside of control (idle, urgent).
 *
 * The bucket: what a caller spends beyond the budget (a merged write is not torn) is debt that the next refills pay first, so
 * the cap holds in any case: over T seconds at most T * cap + the larger of one second's worth and one request, + the one
 * overdraft.
 */
#define LARDER_RATE_STEP_NS	(10 * NSEC_PER_MSEC)	/* time is counted from steps of this on: calls between cost nothing */
#define LARDER_RATE_P_SHIFT	3			/* s: proportional part, sectors/s = sectors >> 3 */
#define LARDER_RATE_I_SHIFT	8			/* s^2 */
#define LARDER_RATE_SCALE_SHIFT	10			/* of 'integral' */
#define LARDER_RATE_REQUEST	2048u			/* sectors: the bucket holds one request, however slow the rate */
#define LARDER_RATE_MIN		8u			/* sectors/s: never starving, even if asked to */
#define LARDER_RATE_MAX		(1ull << 32)		/* sectors/s: 2 TB/s; keeps the products below in 64 bits */
#define LARDER_RATE_ERROR_MAX	(1ll << 36)		/* sectors */

void larder_rate_init(struct larder_rate *r, u64 now_ns)
{
	memset(r, 0, sizeof(*r));
	r->rate = LARDER_RATE_MIN;
	r->last_ns = now_ns;
}

/* The integral's step for an error of so many sectors over dt_ns. */
static s64 larder_rate_integrate(s64 error, u64 dt_ns)
{
	s64 dt_us = div_u64(dt_ns, NSEC_PER_USEC);

	return div_s64(error * dt_us, USEC_PER_SEC >> (LARDER_RATE_SCALE_SHIFT - LARDER_RATE_I_SHIFT));
}

/* The controller's answer, sectors/s, within [least, most].  idle_budget: what was granted was not used up. */
static u64 larder_rate_control(struct larder_rate *r, const struct larder_rate_facts *f, u64 least, u64 most, u64 dt_ns,
			       bool idle_budget)
{
	s64 error = clamp_t(s64, (s64)(f->dirty - f->target), -LARDER_RATE_ERROR_MAX, LARDER_RATE_ERROR_MAX);
	s64 top = (s64)most << LARDER_RATE_SCALE_SHIFT;
	s64 p = div_s64(error, 1 << LARDER_RATE_P_SHIFT);
	s64 want = p + (r->integral >> LARDER_RATE_SCALE_SHIFT);

	if (error > 0 ? want < (s64)most && !idle_budget : want > (s64)least)
		r->integral += larder_rate_integrate(error, dt_ns);
	r->integral = clamp_t(s64, r->integral, 0, top);
	want = p + (r->integral >> LARDER_RATE_SCALE_SHIFT);
	return clamp_t(s64, want, (s64)least, (s64)most);
}

/* Fills the bucket for dt_ns at the present rate.  Returns whether it ran over because much of it had not been asked for. */
static bool larder_rate_refill(struct larder_rate *r, u64 dt_ns)
{
	u64 size = max_t(u64, r->rate, LARDER_RATE_REQUEST), left = r->budget, paid;
	u32 rest;
	u64 add = div_u64_rem(r->rate * dt_ns + r->rest, NSEC_PER_SEC, &rest);

	r->rest = rest;
	paid = min(add, r->debt);
	r->debt -= paid;
	r->budget += add - paid;
	if (r->budget < size)
		return false;
	r->budget = size;
	return left > size / 4;
}

/*
 * Any context; the caller serialises.  Returns how many sectors may go now, 0 for none, LARDER_RATE_FULL for no limit.  Tell
 * what went by larder_rate_spent().
 */
u64 larder_rate_update(struct larder_rate *r, const struct larder_rate_facts *f)
{
	u64 most = f->max_rate ? min_t(u64, f->max_rate, LARDER_RATE_MAX) : LARDER_RATE_MAX;
	u64 least = min(clamp_t(u64, f->min_rate, LARDER_RATE_MIN, LARDER_RATE_MAX), most);
	u64 dt = f->now_ns > r->last_ns ? f->now_ns - r->last_ns : 0;
	bool fast = f->backing_idle || f->urgent || f->space_short, over = false;

	r->full = f->space_short || (fast && !f->max_rate);
	if (dt >= LARDER_RATE_STEP_NS || f->now_ns < r->last_ns) {
		dt = min_t(u64, dt, NSEC_PER_SEC);
		r->last_ns = f->now_ns;
		over = larder_rate_refill(r, dt);
		if (!fast)
			r->rate = larder_rate_control(r, f, least, most, dt, over);
	}
	r->rate = fast ? most : clamp(r->rate, least, most);	/* the bounds may have changed */
	r->budget = min(r->budget, max_t(u64, r->rate, LARDER_RATE_REQUEST));
	if (!r->full)
		return r->budget;
	r->budget = 0;
	r->debt = 0;
	return LARDER_RATE_FULL;
}

/* After the last answer so many sectors were sent to the backing. */
void larder_rate_spent(struct larder_rate *r, u64 sectors)
{
	u64 have = min(r->budget, sectors);

	if (r->full)
		return;
	r->budget -= have;
	r->debt += sectors - have;
}
