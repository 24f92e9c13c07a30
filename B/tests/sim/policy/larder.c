// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The log cache as the kernel keeps it, without I/O.  Every decision is one of kernel/policy.c, which is compiled in here; what
 * kernel/reclaim.c, io.c and fill.c do with the answers is followed here step by step.
 *
 * A write or a fill is an entry: neighbouring slots of one segment, cut where the segment ends.  What of an entry is still live, in
 * one piece, is kept or dropped as a whole, by the hottest of its slots, as an extent of the index is.
 *
 * Not modelled: dirty data (it is written back in no time, so no segment waits for it), commit blocks and summaries (a hundredth of
 * a segment), classes, pins and shares, time (a run of sequential requests is never too old to go on).
 */
#include "../../../kernel/policy.c"

#include "larder.h"

#define ENTRY_SLOTS	126u	/* of a record of the log, at most */
#define DEAD_WALK	256u	/* as in reclaim.c:find_dead() */
#define RESERVE		3u	/* segments kept free: one for each stream */

enum stream { STREAM_WRITE, STREAM_FILL, STREAM_KEEP, STREAMS };	/* as in larder_format.h */

struct segment {
	u32 used, live;		/* slots */
	u64 born;		/* position of the log when it was begun */
	u64 sealed;		/* order among all */
	enum stream stream;
};

struct log_cache {
	const struct trace *trace;
	const struct larder_options *o;
	struct larder_result r;
	u32 capacity, entry_slots;	/* entry_slots: of a write or a fill, at most */
	u32 *block, *entry;	/* of a slot: its block or NONE; the first slot of its entry */
	u32 *at;		/* of a block: its slot, or NONE */
	struct segment *segment;
	struct links links;
	struct list sealed[STREAMS], free;
	u32 open[STREAMS];
	u64 position, sealings;
	struct larder_heat heat;
	struct larder_ghost *ghost;
	struct larder_seq *seq[256];
};

static struct segment *segment_of(struct log_cache *c, u32 slot)
{
	return &c->segment[slot / c->r.segment_slots];
}

static void slot_dies(struct log_cache *c, u32 slot)
{
	segment_of(c, slot)->live--;
	c->at[c->block[slot]] = NONE;
	c->block[slot] = NONE;
}

/* The open segment of a stream with room in it. */
static u32 stream_segment(struct log_cache *c, enum stream stream)
{
	u32 n = c->open[stream];

	if (n != NONE && c->segment[n].used < c->r.segment_slots)
		return n;
	if (n != NONE) {
		c->segment[n].sealed = ++c->sealings;
		list_push(&c->sealed[stream], n);
	}
	n = list_pop(&c->free);
	c->segment[n] = (struct segment){ .born = c->position, .stream = stream };
	larder_heat_set(&c->heat, (u64)n * c->r.segment_slots, c->r.segment_slots, 0);
	c->open[stream] = n;
	return n;
}

/* Appends n blocks that follow one another in their volume, and are not cached. */
static void append(struct log_cache *c, enum stream stream, const u32 *block, u32 n, const unsigned int *heat)
{
	u32 entry = NONE, in = NONE, slot, i;

	for (i = 0; i < n; i++) {
		u32 segment = stream_segment(c, stream);

		slot = segment * c->r.segment_slots + c->segment[segment].used++;
		if (segment != in || slot - entry == ENTRY_SLOTS)
			entry = slot;
		in = segment;
		c->block[slot] = block[i];
		c->entry[slot] = entry;
		c->at[block[i]] = slot;
		c->segment[segment].live++;
		if (heat[i])
			larder_heat_set(&c->heat, slot, 1, heat[i]);
		c->position++;
		c->r.written++;
	}
}

/* ------------------------------------------------------------- reclaim */

/* The live slots from *slot on that are one extent: their number; 0: none are left up to end. */
static u32 next_extent(const struct log_cache *c, u32 *slot, u32 end)
{
	u32 n = 1;

	while (*slot < end && c->block[*slot] == NONE)
		++*slot;
	if (*slot >= end)
		return 0;
	while (*slot + n < end && c->block[*slot + n] != NONE && c->entry[*slot + n] == c->entry[*slot])
		n++;
	return n;
}

static enum larder_extent_fate extent_fate(const struct log_cache *c, u32 slot, u32 n, bool main, bool dead, unsigned int *heat)
{
	unsigned int most = 0;

	while (n--)
		most = max(most, larder_heat_get(&c->heat, slot + n));
	return larder_extent_fate(most, main, dead, heat);
}

static struct segment *find_dead(struct log_cache *c)
{
	u32 i, n, walk;

	for (i = 0; i < STREAMS; i++) {
		walk = DEAD_WALK;
		for (n = c->sealed[i].tail; n != NONE && walk--; n = c->links.prev[n])
			if (larder_dead_first(c->segment[n].live, c->r.segment_slots))
				return &c->segment[n];
	}
	return NULL;
}

static struct segment *queue_oldest(struct log_cache *c, enum larder_small_or_main queue)
{
	u32 w = c->sealed[STREAM_WRITE].tail, f = c->sealed[STREAM_FILL].tail, k = c->sealed[STREAM_KEEP].tail, n;

	if (queue == LARDER_QUEUE_MAIN)
		n = k;
	else if (w == NONE || f == NONE)
		n = w == NONE ? f : w;
	else
		n = c->segment[w].sealed <= c->segment[f].sealed ? w : f;
	return n == NONE ? NULL : &c->segment[n];
}

static struct segment *reclaim_choose(struct log_cache *c, bool *dead)
{
	struct larder_queue_facts f = {
		.small_segments = c->sealed[STREAM_WRITE].n + c->sealed[STREAM_FILL].n,
		.main_segments = c->sealed[STREAM_KEEP].n,
		.total_segments = c->r.segments,
		.small_percent = c->o->small_percent,
	};
	struct segment *s = find_dead(c);

	*dead = s;
	return s ?: queue_oldest(c, larder_evict_queue(&f));
}

static void ghost_add(struct log_cache *c, u32 b)
{
	larder_ghost_add(c->ghost, c->trace->number[b] >> 40, c->trace->number[b] & ((1ull << 40) - 1));
}

static bool ghost_take(struct log_cache *c, u32 b)
{
	return larder_ghost_take(c->ghost, c->trace->number[b] >> 40, c->trace->number[b] & ((1ull << 40) - 1));
}

static void extent_keep(struct log_cache *c, u32 slot, u32 n, enum stream to, unsigned int after)
{
	unsigned int heat[ENTRY_SLOTS];
	u32 block[ENTRY_SLOTS], i;

	for (i = 0; i < n; i++) {
		block[i] = c->block[slot + i];
		heat[i] = after;
		slot_dies(c, slot + i);
	}
	append(c, to, block, n, heat);
}

static void extent_drop(struct log_cache *c, u32 slot, u32 n, bool ghost)
{
	for (; n--; slot++) {
		if (ghost)
			ghost_add(c, c->block[slot]);
		slot_dies(c, slot);
	}
}

static void relink(struct log_cache *c, struct segment *s)
{
	u32 number = s - c->segment;

	larder_heat_cool(&c->heat, (u64)number * c->r.segment_slots, c->r.segment_slots, s->stream == STREAM_KEEP);
	s->born = c->position;
	s->stream = STREAM_KEEP;
	s->sealed = ++c->sealings;
	list_push(&c->sealed[STREAM_KEEP], number);
}

/* As reclaim.c:reclaim_one(). */
static void reclaim_one(struct log_cache *c)
{
	bool dead, main;
	struct segment *s = reclaim_choose(c, &dead);
	u32 n, number = s - c->segment, first = number * c->r.segment_slots, end = first + c->r.segment_slots, slot, hot = 0;
	enum larder_extent_fate fate;
	unsigned int heat;

	main = s->stream == STREAM_KEEP;
	list_del(&c->sealed[s->stream], number);
	for (slot = first; (n = next_extent(c, &slot, end)); slot += n)
		hot += extent_fate(c, slot, n, main, dead, &heat) == LARDER_EXTENT_KEEP ? n : 0;
	if (larder_segment_fate(s->live, 0, hot, c->r.segment_slots, main) == LARDER_FATE_RELINK) {
		relink(c, s);
		return;
	}
	for (slot = first; (n = next_extent(c, &slot, end)); slot += n) {
		fate = extent_fate(c, slot, n, main, dead, &heat);
		if (fate == LARDER_EXTENT_KEEP || fate == LARDER_EXTENT_AGAIN)
			extent_keep(c, slot, n, fate == LARDER_EXTENT_KEEP ? STREAM_KEEP : STREAM_FILL, heat);
		else
			extent_drop(c, slot, n, fate == LARDER_EXTENT_GHOST);
	}
	pure_check(!s->live, "an emptied segment has live slots");
	list_push(&c->free, number);
}

static void reclaim(struct log_cache *c)
{
	while (c->free.n < RESERVE)
		reclaim_one(c);
}

/* ------------------------------------------------------------- requests */

static bool hit_counts(struct log_cache *c, u32 slot)
{
	return larder_heat_counts(c->position - segment_of(c, slot)->born, c->capacity);
}

/* The heat of a block that is written: log.c:log_replaces(), item_ghost(). */
static unsigned int write_heat(struct log_cache *c, u32 b)
{
	u32 slot = c->at[b];

	if (slot == NONE)
		return ghost_take(c, b) ? LARDER_HEAT_KEPT : 0;
	return larder_heat_overwritten(larder_heat_get(&c->heat, slot), hit_counts(c, slot),
				       segment_of(c, slot)->stream == STREAM_KEEP);
}

static void write_blocks(struct log_cache *c, const u32 *block, u32 n, bool bypass)
{
	unsigned int heat[ENTRY_SLOTS] = { 0 };
	u32 i;

	for (i = 0; i < n; i++) {
		heat[i] = bypass ? 0 : write_heat(c, block[i]);
		if (c->at[block[i]] == NONE)
			continue;
		c->r.hits += !bypass;
		slot_dies(c, c->at[block[i]]);
	}
	if (bypass)
		return;
	c->r.inserted += n;
	append(c, STREAM_WRITE, block, n, heat);
	reclaim(c);
}

/* io.c:read_admits().  Blocks of a request follow one another in their volume. */
static bool missed_before(struct log_cache *c, const u32 *block, u32 n)
{
	u64 number = c->trace->number[*block];

	return larder_ghost_missed(c->ghost, number >> 40, number & ((1ull << 40) - 1), n);
}

static void fill(struct log_cache *c, const u32 *block, u32 n)
{
	unsigned int heat[ENTRY_SLOTS] = { 0 };
	bool back = false;
	u32 i;

	if (c->o->second_miss && !missed_before(c, block, n))
		return;
	for (i = 0; i < n; i++)
		back |= ghost_take(c, block[i]);
	c->r.inserted += n;
	append(c, back ? STREAM_KEEP : STREAM_FILL, block, n, heat);
	reclaim(c);
}

static void read_blocks(struct log_cache *c, const u32 *block, u32 n, bool bypass)
{
	u32 hole;

	for (; n; block += hole, n -= hole) {
		hole = 0;
		while (hole < n && hole < c->entry_slots && c->at[block[hole]] == NONE)
			hole++;
		if (hole) {
			if (!bypass)
				fill(c, block, hole);
			continue;
		}
		c->r.hits++;
		if (hit_counts(c, c->at[*block]))
			larder_heat_hit(&c->heat, c->at[*block], 1);
		hole = 1;
	}
}

static bool sequential(struct log_cache *c, const struct request *r)
{
	if (!c->o->cutoff)
		return false;
	if (!c->seq[r->volume])
		c->seq[r->volume] = larder_seq_create();
	return larder_seq_account(c->seq[r->volume], r->sector, r->sectors, r->write, 0, 0) > (u64)c->o->cutoff << 10;
}

static void replay_request(struct log_cache *c, const struct request *r)
{
	const u32 *block = &c->trace->access[r->first];
	bool bypass = sequential(c, r);
	u32 n = r->n, part;

	if (!r->write) {
		read_blocks(c, block, n, bypass);
		return;
	}
	for (; n; block += part, n -= part) {
		part = min(n, c->entry_slots);
		write_blocks(c, block, part, bypass);
	}
}

static bool log_cache_create(struct log_cache *c, u32 capacity)
{
	u32 i, size = c->o->segment_slots;

	while (size > LARDER_LEAST_SLOTS && capacity / size < c->o->segments)
		size /= 2;
	c->r.segment_slots = size;
	c->r.segments = capacity / size;
	c->entry_slots = min(size, ENTRY_SLOTS);
	if (c->r.segments < 4 * RESERVE)
		return false;
	c->capacity = c->r.segments * size;
	c->block = take(c->capacity, sizeof(u32));
	c->entry = take(c->capacity, sizeof(u32));
	c->at = take(c->trace->blocks, sizeof(u32));
	memset(c->block, 0xff, c->capacity * sizeof(u32));
	memset(c->at, 0xff, c->trace->blocks * sizeof(u32));
	c->segment = take(c->r.segments, sizeof(*c->segment));
	links_take(&c->links, c->r.segments);
	c->free = list_empty(&c->links);
	for (i = 0; i < STREAMS; i++) {
		c->sealed[i] = list_empty(&c->links);
		c->open[i] = NONE;
	}
	for (i = 0; i < c->r.segments; i++)
		list_push(&c->free, i);
	c->position = c->capacity;
	c->ghost = larder_ghost_create(c->capacity / 2);
	return c->ghost && !larder_heat_init(&c->heat, c->capacity);
}

static void log_cache_destroy(struct log_cache *c)
{
	u32 i;

	free(c->block);
	free(c->entry);
	free(c->at);
	free(c->segment);
	links_free(&c->links);
	larder_heat_free(&c->heat);
	larder_ghost_destroy(c->ghost);
	for (i = 0; i < ARRAY_SIZE(c->seq); i++)
		larder_seq_destroy(c->seq[i]);
}

bool larder_replay(const struct trace *t, u32 capacity, const struct larder_options *o, struct larder_result *r)
{
	struct log_cache c = { .trace = t, .o = o };
	bool fits = log_cache_create(&c, capacity);
	u32 i;

	for (i = 0; fits && i < t->requests; i++)
		replay_request(&c, &t->request[i]);
	*r = c.r;
	log_cache_destroy(&c);
	return fits;
}
