// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loading a checkpoint into empty indexes, in bulk.
 *
 * Its chunks are read segment by segment, the next one while this one is worked on.  What tells where the log begins (STREAM, OPEN,
 * MARKS, SEGMENTS) stands before the first REGION: between them the log is scanned (replay.c), so that regions are loaded without
 * what SEGMENT_OPEN drops.
 *
 * Nothing read is trusted: chunks pass larder_check_chunk(), items larder_chunk_next(), extents larder_index_check_region();
 * extents lie in the data slots of one segment, regions come once, the list ends with END and nowhere else.  What is valid in
 * itself but of a volume that the table does not have, or has smaller, is skipped: the number may have been given to another volume
 * since, and the log says so (FORGET).
 *
 * Only reads: a power cut at any time changes nothing.
 */
#include "replay.h"


struct loader {
	struct start *s;
	struct named_checkpoint *n;	/* what is loaded; gets its segments */
	u32 total, number;		/* chunks in all; of the next one */
	u32 per_segment;
	struct larder_chunk *buf[2];	/* per_segment of them each */
	struct bulk_io io[2];
	bool absent[2];			/* its SSD is not in the set */
	u64 *extents;
	bool regions, end;		/* the first REGION, the END was seen */
	const char *why;
};

/* ------------------------------------------------------------------ items */

static int load_pos(struct loader *l, const struct larder_item_in *item)
{
	struct replay *r = &l->s->r;

	if (!item->count)
		return 0;
	larder_item_pos(item, &r->pos[item->volume]);
	r->has_pos[item->volume] = true;
	r->highest = max(r->highest, r->pos[item->volume].prev_sequence);
	return 0;
}

static int link_copies(struct loader *l, u32 first, u64 further)
{
	if (!replay_copies_ok(l->s->c, first, further)) {
		l->why = "two copies of a segment on one SSD";
		return -EINVAL;
	}
	replay_link(&l->s->r, first, further);
	return 0;
}

static int load_opened(struct loader *l, const struct larder_item_in *item)
{
	struct replay *r = &l->s->r;
	u32 *nr = &r->nr_opened[item->volume], i;
	int err = 0;

	if (item->count > LARDER_MAX_OPENED - *nr) {
		l->why = "too many opened segments of a stream";
		return -EINVAL;
	}
	for (i = 0; i < item->count && !err; i++) {
		u64 value = larder_item_u64(item, i);


		r->opened[item->volume][(*nr)++] = (u32)value;
		err = link_copies(l, (u32)value, larder_further(value >> 32, item->number));
	}
	return err;
}

static int load_marks(struct loader *l, const struct larder_item_in *item)
{
	struct start *s = l->s;
	struct volume *v = s->c->volumes[item->volume];
	u64 region;
	u32 i;
	int err = 0;

	for (i = 0; v && i < item->count && !err; i++) {
		region = larder_item_u64(item, i);
		if (region <= (v->sectors - 1) >> LARDER_INTENT_SHIFT)
			err = xa_err(xa_store(&s->r.marks[item->volume], region, xa_mk_value(1), GFP_KERNEL));
	}
	return err;
}

static int load_segments(struct loader *l, const struct larder_item_in *item)
{
	struct larder_segment_in info;
	struct segment *seg;
	int err = 0;
	u32 i;

	for (i = 0; i < item->count && !err; i++) {
		larder_item_segment(item, i, &info);
		seg = &l->s->c->segments[item->number + i];
		seg->stream = info.stream;
		seg->sequence = info.state == LARDER_SEGMENT_USED ? info.sequence : 0;
		seg->prefer_mirror = info.flags & LARDER_SEGMENT_FIRST_UNSURE ? PREFER_AND_MEND :
				     info.flags & LARDER_SEGMENT_COPIES_UNSURE ? MEND_COPIES :
				     info.flags & LARDER_SEGMENT_COPY_UNSURE ? PREFER_MIRROR : PREFER_NONE;
		if (segment_to_mend(seg))
			scrub_mend_later(l->s->c);
		l->s->r.highest = max(l->s->r.highest, seg->sequence);
		/* a FREE one is a second copy, and names the third; the one in use may be known already, or come later */
		if (info.state == LARDER_SEGMENT_OPENED || !info.mirror)
			continue;
		if (!replay_copies_ok(l->s->c, item->number + i, info.mirror)) {
			l->why = "two copies of a segment on one SSD";
			return -EINVAL;
		}
		replay_link_next(&l->s->r, item->number + i, info.mirror - 1, info.state == LARDER_SEGMENT_USED);
	}
	return err;
}

/* Does each extent lie in the data slots of one segment? */
static bool extents_in_segments(const struct cache *c, const u64 *extents, u32 n)
{
	u64 within;
	u32 i;

	for (i = 0; i < n; i++) {
		if (larder_extent_state(extents[i]) == LARDER_ST_ZERO)
			continue;
		within = larder_extent_cache(extents[i]) & (c->segment_sectors - 1);
		if (within + larder_extent_len(extents[i]) > c->data_slots * LARDER_SLOT_SECTORS)
			return false;
	}
	return true;
}

/* Takes those out that SEGMENT_OPEN drops. */
static u32 extents_filter(const struct replay *r, u64 *extents, u32 n)
{
	u32 i, kept = 0;

	for (i = 0; i < n; i++)
		if (larder_extent_state(extents[i]) == LARDER_ST_ZERO ||
		    !replay_reopened(r, cache_segment(r->c, larder_extent_cache(extents[i]))))
			extents[kept++] = extents[i];
	return kept;
}

static int load_region(struct loader *l, const struct larder_item_in *item)
{
	struct start *s = l->s;
	struct cache *c = s->c;
	struct volume *v = c->volumes[item->volume];
	u64 sectors = (u64)c->nr_segments << c->segment_shift;
	u32 n = item->count;
	int err;

	larder_item_copy_u64(item, l->extents);
	if (larder_index_check_region((item->number + 1) << LARDER_REGION_SHIFT, item->number, l->extents, n, sectors) ||
	    !extents_in_segments(c, l->extents, n)) {
		l->why = "extents of a region";
		return -EINVAL;
	}
	if (!v || larder_index_check_region(v->sectors, item->number, l->extents, n, sectors)) {
		s->lost += n;
		return 0;
	}
	n = extents_filter(&s->r, l->extents, n);
	if (!n)
		return 0;
	err = larder_index_load_region(v->index, item->number, l->extents, n);
	if (err) {
		l->why = err == -EEXIST ? "a region twice" : "no memory";
		return err;
	}
	marks_known(v, item->number << LARDER_REGION_SHIFT, 1);	/* regions of marks hold whole regions of the index */
	return 0;
}

/* The log is looked at between what tells where it begins and the first region. */
static int load_scan(struct loader *l)
{
	struct replay *r = &l->s->r;
	int err;

	err = replay_scan(r);
	if (!err)
		err = replay_check_end(r);
	if (err) {
		l->s->fatal = true;
		l->why = err == -EBADMSG ? "the log behind it is damaged" : "the log behind it could not be read";
		return err;
	}
	if (r->last_write < l->s->must_reach) {
		DMERR(
			"%pg: the log ends at sequence %llu, a checkpoint stands on %llu: damaged; to go on would lose flushed writes",
			cache_bdev(r->c), r->last_write, l->s->must_reach);
		l->s->fatal = true;
		l->why = "the log behind it is damaged";
		return -EBADMSG;
	}
	return 0;
}

static int load_item(struct loader *l, const struct larder_item_in *item)
{
	int err;

	if (l->end) {
		l->why = "something behind the end";
		return -EINVAL;
	}
	if (item->kind == LARDER_ITEM_REGION || item->kind == LARDER_ITEM_END) {
		if (!l->regions) {
			l->regions = true;
			err = load_scan(l);
			if (err)
				return err;
		}
	} else if (l->regions) {
		l->why = "order of items";
		return -EINVAL;
	}
	switch (item->kind) {
	case LARDER_ITEM_REGION:
		return load_region(l, item);
	case LARDER_ITEM_MARKS:
		return load_marks(l, item);
	case LARDER_ITEM_OPEN:
		return load_opened(l, item);
	case LARDER_ITEM_STREAM:
		return load_pos(l, item);
	case LARDER_ITEM_SEGMENTS:
		return load_segments(l, item);
	default:
		l->end = true;
		return 0;
	}
}

/* ------------------------------------------------------------------ chunks */

static int check_chunk(struct loader *l, const struct larder_chunk *chunk, u32 number)
{
	struct larder_chunk_expect e = {
		.geo = &l->s->r.geo, .hash = l->n->hash, .sequence = l->n->sequence, .number = number,
	};

	return larder_check_chunk(chunk, &e, &l->why);
}

static int load_chunk(struct loader *l, const struct larder_chunk *chunk)
{
	struct larder_item_in item;
	u32 at = 0;
	int err;

	err = check_chunk(l, chunk, l->number);
	if (err)
		return err;
	while ((err = larder_chunk_next(chunk, &l->s->r.geo, &at, &item, &l->why)) > 0) {
		err = load_item(l, &item);
		if (err)
			return err;
	}
	l->number += !err;
	cond_resched();
	return err;
}

struct cache_device *chunk_place(struct cache *c, u32 segment, u32 chunk, sector_t *where)
{
	return copy_sector_device(c, slot_sector(c, segment, 0) + chunk * CHUNK_SECTORS, where);
}

/* A segment of chunks, and its further copies: larder_further(). */
struct place {
	u32 segment;
	u64 further;
};

/* All of them: how many.  *there: of these, on SSDs that are in the set. */
static u32 place_copies(struct cache *c, const struct place *p, u32 copy[SEGMENT_COPIES], u32 *there)
{
	u64 further = p->further;
	u32 n = 0, i;

	copy[n++] = p->segment;
	for (; larder_second(further); further >>= 32)
		copy[n++] = larder_second(further) - 1;
	for (i = *there = 0; i < n; i++)
		*there += !segment_device(c, copy[i])->failed;
	return n;
}

/* n chunks of a segment into one of the buffers, in the background. */
static void load_begin(struct loader *l, unsigned int which, const struct place *p, u32 n)
{
	u32 copy[SEGMENT_COPIES], there, nr = place_copies(l->s->c, p, copy, &there), i = 0;
	struct cache_device *d;
	sector_t where;

	while (i + 1 < nr && segment_device(l->s->c, copy[i])->failed)
		i++;
	d = chunk_place(l->s->c, copy[i], 0, &where);
	l->absent[which] = d->failed;
	if (!d->failed)
		bulk_start(&l->io[which], d->bdev, REQ_OP_READ | REQ_META, where, l->buf[which], (size_t)n * LARDER_CHUNK_SIZE);
}

/* Chunk i of a segment, from whichever copy has it whole; l->why: of the last one tried. */
static int read_chunk(struct loader *l, const struct place *p, u32 i, u32 number, struct larder_chunk *chunk)
{
	u32 copy[SEGMENT_COPIES], there, nr = place_copies(l->s->c, p, copy, &there), k;
	struct cache *c = l->s->c;
	struct cache_device *d;
	int err = -ENODEV;
	sector_t where;

	l->why = "its SSD is missing";

	for (k = 0; k < nr; k++) {
		d = chunk_place(c, copy[k], i, &where);
		if (d->failed)
			continue;
		l->why = "read error";
		err = super_io(d->bdev, REQ_OP_READ | REQ_META, where, chunk, LARDER_CHUNK_SIZE) ?: check_chunk(l, chunk, number);
		if (err)
			continue;
		if (k && !segment_device(c, copy[0])->failed)
			DMWARN("%pg: chunk %u of a checkpoint is damaged in segment %u; its copy on %pg is used",
			       segment_device(c, copy[0])->bdev, number, copy[0], d->bdev);
		l->why = NULL;
		return 0;
	}
	return err;
}

/* Until they are read.  What is not whole in this copy may be in another one: each chunk for itself. */
static int load_wait(struct loader *l, unsigned int which, const struct place *p, u32 n)
{
	int err = l->absent[which] ? -ENODEV : bulk_wait(&l->io[which]), got = 0;
	u32 copy[SEGMENT_COPIES], there, i;

	if (err && err != -ENODEV)
		cache_error(l->s->c, errors_read);
	place_copies(l->s->c, p, copy, &there);
	if (there < 2) {
		if (err)
			l->why = err == -ENODEV ? "its SSD is missing" : "read error";
		return err;
	}
	for (i = 0; i < n && !got; i++)
		if (err || check_chunk(l, &l->buf[which][i], l->number + i))
			got = read_chunk(l, p, i, l->number + i, &l->buf[which][i]);
	return got;
}

/* Where the chunk behind this one, the last in its segment, is. */
static int load_next_segment(struct loader *l, const struct larder_chunk *last, u32 number, struct place *next)
{
	int err = check_chunk(l, last, number);

	if (err)
		return err;
	next->segment = le32_to_cpu(last->next_segment);
	next->further = larder_further(le32_to_cpu(last->next_mirror), le32_to_cpu(last->next_third));
	if (next->segment == LARDER_NO_SEGMENT || !larder_further_ok(next->segment, next->further, l->s->c->nr_segments)) {
		l->why = "next_segment";
		return -EINVAL;
	}
	return 0;
}

static int load_chunks(struct loader *l)
{
	struct place here = { l->n->first_segment, l->n->first_further }, next = { LARDER_NO_SEGMENT };
	u32 left = l->total, n = min(left, l->per_segment), i;
	unsigned int which = 0;
	bool reading = true;
	int err = 0;

	load_begin(l, which, &here, n);
	while (reading && !err) {
		err = load_wait(l, which, &here, n);
		reading = false;
		if (err)
			break;
		l->n->segments[l->n->nr_segments++] = here.segment;
		if (here.further)
			err = link_copies(l, here.segment, here.further);
		left -= n;
		if (left && !err) {
			err = load_next_segment(l, &l->buf[which][n - 1], l->number + n - 1, &next);
			if (!err) {
				load_begin(l, !which, &next, min(left, l->per_segment));
				reading = true;
			}
		}
		for (i = 0; i < n && !err; i++)
			err = load_chunk(l, &l->buf[which][i]);
		which = !which;
		here = next;
		n = min(left, l->per_segment);
	}
	if (reading && !l->absent[which])
		bulk_wait(&l->io[which]);
	if (!err && !l->end) {
		l->why = "no end";
		err = -EINVAL;
	}
	return err;
}

static int loader_create(struct loader *l, struct start *s, struct named_checkpoint *n)
{
	u64 chunks = div_u64(n->bytes, LARDER_CHUNK_SIZE);

	memset(l, 0, sizeof(*l));
	l->s = s;
	l->n = n;
	l->per_segment = s->c->segment_sectors / CHUNK_SECTORS;
	if (!chunks || chunks > (u64)s->c->nr_segments * l->per_segment) {
		l->why = "bytes";
		return -EINVAL;
	}
	l->total = chunks;
	l->buf[0] = vmalloc((size_t)l->per_segment * LARDER_CHUNK_SIZE);
	l->buf[1] = vmalloc((size_t)l->per_segment * LARDER_CHUNK_SIZE);
	l->extents = kvmalloc_array(LARDER_REGION_SECTORS, sizeof(u64), GFP_KERNEL);
	kvfree(n->segments);
	n->nr_segments = 0;
	n->segments = kvmalloc_array(DIV_ROUND_UP(l->total, l->per_segment), sizeof(u32), GFP_KERNEL);
	if (l->buf[0] && l->buf[1] && l->extents && n->segments)
		return 0;
	l->why = "no memory";
	return -ENOMEM;
}

static void loader_destroy(struct loader *l)
{
	kvfree(l->extents);
	vfree(l->buf[1]);
	vfree(l->buf[0]);
}

/* The epoch that the records behind this checkpoint belong to. */
static int load_epoch(struct start *s, const struct named_checkpoint *n)
{
	const struct larder_cache_sb *sb = s->c->dev[0].sb;
	u32 i;

	for (i = 0; i < LARDER_NR_EPOCHS; i++) {
		if (!n->epoch || le32_to_cpu(sb->epochs[i].epoch) != n->epoch)
			continue;
		s->r.epoch = n->epoch;
		s->r.hash = larder_log_hash(s->c->uuid, le64_to_cpu(sb->epochs[i].secret));
		s->r.first_sequence = le64_to_cpu(sb->epochs[i].first_sequence);
		s->r.durable = n->epoch == s->c->epoch ? s->durable : 0;
		s->r.replay_sequence = n->replay_sequence;
		s->r.highest = max(n->replay_sequence, le64_to_cpu(sb->epochs[0].first_sequence));
		return 0;
	}
	return -EINVAL;
}

/* One checkpoint, whole, into empty indexes; the log behind it is scanned. */
int checkpoint_load(struct start *s, unsigned int which)
{
	struct named_checkpoint *n = &s->old[which];
	struct loader l;
	int err;

	s->lost = 0;
	err = loader_create(&l, s, n);
	if (!err)
		err = load_epoch(s, n);
	if (!err)
		err = load_chunks(&l);
	if (err)
		DMERR("%pg: checkpoint %llu is not usable: %s, in chunk %u of %u (error %d)", cache_bdev(s->c), n->sequence,
		      l.why ?: "its epoch is unknown", l.number, l.total, err);
	if (err == -ENOMEM)
		s->fatal = true;
	loader_destroy(&l);
	return err;
}

/* They are not reused before that checkpoint is given up.  -ENOMEM, or 0: what cannot be read cannot be loaded, either. */
int checkpoint_protect(struct start *s, struct named_checkpoint *n)
{
	struct place here = { n->first_segment, n->first_further };
	struct loader l;
	u32 end;
	int err = n->sequence ? loader_create(&l, s, n) : -ENOENT;

	if (err == -ENOENT)
		return 0;
	while (!err) {
		end = min(l.number + l.per_segment, l.total);
		n->segments[n->nr_segments++] = here.segment;
		if (here.further && link_copies(&l, here.segment, here.further))
			here.further = 0;
		if (end == l.total)
			break;
		err = read_chunk(&l, &here, l.per_segment - 1, end - 1, l.buf[0]);
		if (!err)
			err = load_next_segment(&l, l.buf[0], end - 1, &here);
		l.number = end;
	}
	loader_destroy(&l);
	return err == -ENOMEM ? err : 0;
}
