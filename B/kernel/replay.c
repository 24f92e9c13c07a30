// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replay: reads the log behind a checkpoint and brings the indexes up to its end.  Only reads, but for what one copy lacks and
 * another one has; a second replay does all of it again, so that a power cut at any time during it changes nothing.
 *
 * A stream's records form a chain: each names the sequence number and the checksum of the one before it.  The next one is looked
 * for in the slots behind the last one, at most a record's length ahead, for the epoch's hash, its own place and its predecessor;
 * what is not found there may begin the first opened segment that is not begun.  Blocks of an older life of a segment, and of other
 * epochs, name other predecessors.  A record is valid if its block is, and
 *   write stream	its sequence number is not above the newest durable_sequence of the chain, or its data matches its sums.
 *			The first one that is not valid ends the stream (rule 10), whatever stands behind it
 *   fill, keep		its data matches its sums: these may be torn behind any flush of the write stream.  One that does not match
 *			is ignored
 *
 * A damaged block of the write stream looks like its end.  It is told from it by what says that a later record was durable:
 * superblock, later blocks, blocks of the other streams.  Then the start is refused (replay_check_end()).
 *
 * What cannot be read is not taken for what a power cut leaves.  Where the next record of the write stream may be in such slots,
 * and is in no other, or the only thing that is wrong with its data is that it cannot be read, the end of the stream is not known,
 * and the start is refused.  Any other slot that cannot be read is as good as damaged; in opened segments most are nothing's.  To
 * the other streams it is the end: nobody was promised these.
 *
 * Two passes over the write stream.  The scan follows the chain without applying anything: where it ends, what is durable, which
 * segments are opened again.  The checkpoint is then loaded without the mappings into such segments, which SEGMENT_OPEN drops (rule
 * 9).  That is the same as dropping them at the place of the SEGMENT_OPEN: no record of such a segment's older life is replayed
 * (keep_sequence), nothing that stands before the SEGMENT_OPEN looks at a mapping and goes elsewhere for it, and what was mapped
 * there later is in the log.  The second pass merges the streams by sequence number and applies their entries.
 *
 * The scan also learns which segments are pairs: it follows the chain through segments that are opened in it, behind the end too,
 * where it looks for what was durable.  What a SEGMENT_OPEN behind the end says is not so, though: nothing was ever written to the
 * second copy that it names, and the two may still be what they were.  If there is such an end, the pairs become what the
 * checkpoint says, and what the records below the end do (scan_pairs_again()).
 *
 * A segment of the write stream may have further copies on other SSDs.  A slot counts if it is whole in any (merge-copies); what
 * one of them lacks of a record that was applied is written to it, with the bytes of another, before anybody reads
 * (copy-before-read, copy-to-every-copy).  Doing that again changes nothing.  That is a pass of its own (replay_repair()), where
 * there is anything to do: a start that is refused behind the second pass, for what blocks of other streams say, has written
 * nothing.
 *
 * A SEGMENT_OPEN of a segment that its stream's queue has, or had, is the one the checkpoint knew (checkpoint.c): nothing in which
 * a record is replayed is opened again.
 *
 * Nothing read is trusted: blocks pass larder_check_commit() (every entry inside its record's slots and its kind's bounds), volumes
 * are looked up, sectors compared.
 */
#include <linux/sched.h>

#include "replay.h"

/* ------------------------------------------------------------------ cursors */

static int queue_push(struct cursor *cur, u32 segment)
{
	u32 size, *to;

	if (__test_and_set_bit(segment, cur->queued))
		return 0;
	if (cur->nr == cur->size) {
		size = cur->size ? cur->size * 2 : 64;
		to = kvmalloc_array(size, sizeof(u32), GFP_KERNEL);
		if (!to)
			return -ENOMEM;
		cur->nr -= cur->next;
		if (cur->nr)
			memcpy(to, cur->queue + cur->next, cur->nr * sizeof(u32));
		cur->next = 0;
		kvfree(cur->queue);
		cur->queue = to;
		cur->size = size;
	}
	cur->queue[cur->nr++] = segment;
	return 0;
}

/* To the checkpoint's position. */
static int cursor_begin(struct replay *r, u8 stream)
{
	struct cursor *cur = &r->cursor[stream];
	u32 i, most = min(r->c->nr_devices, SEGMENT_COPIES);
	bool memory = true;
	int err = 0;

	cur->stream = stream;
	cur->ended = false;
	cur->drained = false;
	cur->doubted = false;
	cur->gap = LARDER_NO_SEGMENT;
	cur->segment = LARDER_NO_SEGMENT;
	cur->loaded = LARDER_NO_SEGMENT;
	cur->slot = 0;
	cur->prev_sequence = 0;
	cur->prev_crc = 0;
	cur->commit = NULL;
	cur->next = 0;
	cur->nr = 0;
	if (r->has_pos[stream]) {
		cur->segment = r->pos[stream].segment;
		cur->slot = r->pos[stream].slot;
		cur->prev_sequence = r->pos[stream].prev_sequence;
		cur->prev_crc = r->pos[stream].prev_crc;
	}
	if (!cur->buf)
		cur->buf = vmalloc(r->c->data_slots * LARDER_SLOT_SIZE);
	for (i = 0; i + 1 < most; i++) {
		if (!cur->copy[i])
			cur->copy[i] = vmalloc(r->c->data_slots * LARDER_SLOT_SIZE);
		memory &= !!cur->copy[i];
	}
	if (!cur->differ)
		cur->differ = bitmap_zalloc(r->c->data_slots, GFP_KERNEL);
	if (!cur->taken)
		cur->taken = bitmap_zalloc(r->c->data_slots, GFP_KERNEL);
	if (!cur->unread)
		cur->unread = bitmap_zalloc(r->c->data_slots, GFP_KERNEL);
	if (!cur->queued)
		cur->queued = kvmalloc_array(BITS_TO_LONGS(r->c->nr_segments), sizeof(long), GFP_KERNEL);
	if (!memory || !cur->buf || !cur->differ || !cur->taken || !cur->unread || !cur->queued)
		return -ENOMEM;
	bitmap_zero(cur->queued, r->c->nr_segments);
	for (i = 0; i < r->nr_opened[stream] && !err; i++)
		err = queue_push(cur, r->opened[stream][i]);
	return err;
}

void replay_cursors_free(struct replay *r)
{
	unsigned int i, k;

	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		kvfree(r->cursor[i].queue);
		kvfree(r->cursor[i].queued);
		vfree(r->cursor[i].buf);
		for (k = 0; k < SEGMENT_COPIES - 1; k++)
			vfree(r->cursor[i].copy[k]);
		bitmap_free(r->cursor[i].unread);
		bitmap_free(r->cursor[i].taken);
		bitmap_free(r->cursor[i].differ);
		memset(&r->cursor[i], 0, sizeof(r->cursor[i]));
	}
}

bool replay_copies_ok(struct cache *c, u32 first, u64 further)
{
	const struct cache_device *d = segment_device(c, first), *second, *third;

	if (!further)
		return true;
	second = segment_device(c, larder_second(further) - 1);
	third = larder_third(further) ? segment_device(c, larder_third(further) - 1) : NULL;
	return second != d && third != d && third != second;
}

/* A further copy leaves the chain, the others stay what they are.  Of a first one none is left: extents name it. */
static void chain_leave(struct replay *r, u32 segment)
{
	u32 before = r->mirror_of[segment], next = r->mirror[segment], n;

	if (before) {
		r->mirror[before - 1] = next;
		if (next)
			r->mirror_of[next - 1] = before;
	} else {
		for (; next; next = n) {
			n = r->mirror[next - 1];
			r->mirror[next - 1] = 0;
			r->mirror_of[next - 1] = 0;
		}
	}
	r->mirror[segment] = 0;
	r->mirror_of[segment] = 0;
}

void replay_link(struct replay *r, u32 first, u64 further)
{
	u32 last = first, next;

	chain_leave(r, first);
	for (; (next = larder_second(further)); further >>= 32) {
		chain_leave(r, next - 1);
		r->mirror[last] = next;
		r->mirror_of[next - 1] = last + 1;
		last = next - 1;
	}
}

/*
 * Hostile ones may go round, or come to an SSD again, and so may what is read at different moments: replay_copies() follows them no
 * further, and chain_leave() takes them apart.
 */
void replay_link_next(struct replay *r, u32 segment, u32 next, bool first)
{
	u32 was = r->mirror[segment], before = r->mirror_of[next];

	if (first && r->mirror_of[segment]) {
		r->mirror[r->mirror_of[segment] - 1] = 0;
		r->mirror_of[segment] = 0;
	}
	if (was)
		r->mirror_of[was - 1] = 0;
	if (before)
		r->mirror[before - 1] = 0;
	r->mirror[segment] = next + 1;
	r->mirror_of[next] = segment + 1;
}

u32 replay_copies(const struct replay *r, u32 segment, u32 copy[SEGMENT_COPIES])
{
	u32 n = 0, next, has = 0, bit;

	for (next = segment + 1; next && n < SEGMENT_COPIES; next = r->mirror[next - 1]) {
		bit = 1u << (segment_device(r->c, next - 1) - r->c->dev);
		if (has & bit)
			break;
		has |= bit;
		copy[n++] = next - 1;
	}
	return n;
}

static int cursor_read(struct replay *r, u32 segment, void *buf)
{
	struct cache *c = r->c;
	sector_t where;
	struct cache_device *d = copy_sector_device(c, slot_sector(c, segment, 0), &where);
	int err;

	if (d->failed)
		return -ENODEV;
	err = super_io(d->bdev, REQ_OP_READ | REQ_META, where, buf, c->data_slots * LARDER_SLOT_SIZE);
	if (!err)
		return 0;
	cache_error(c, errors_read);
	DMERR("%pg: cannot read the log in segment %u (sector %llu): error %d", d->bdev, segment, (unsigned long long)where, err);
	return err;
}

/* More of a segment than this, and it is not a bad place that the SSD has. */
#define MOST_UNREAD	64u

/* Of a slot that cannot be read: no block, and no data that anybody has, so that another copy differs. */
#define UNREAD_BYTE	0xa5
#define READ_SLOTS	32u		/* at once, where all cannot be */

/* Piece by piece, as it could not be read at once.  lacks: gets the slots that cannot be read.  Negative: too many of them. */
static int cursor_read_slots(struct replay *r, u32 segment, void *buf, unsigned long *lacks)
{
	struct cache *c = r->c;
	sector_t where;
	struct cache_device *d = copy_sector_device(c, slot_sector(c, segment, 0), &where);
	u32 slot, step, left = 0, n = 0;
	int err;

	bitmap_zero(lacks, c->data_slots);
	for (slot = 0; slot < c->data_slots; slot += step) {
		step = left ? 1 : min(READ_SLOTS, c->data_slots - slot);
		left -= !!left;
		err = super_io(d->bdev, REQ_OP_READ | REQ_META, where + slot * LARDER_SLOT_SECTORS,
			       buf + (size_t)slot * LARDER_SLOT_SIZE, step * LARDER_SLOT_SIZE);
		if (!err)
			continue;
		if (step > 1) {
			left = step;	/* these one by one */
			step = 0;
			continue;
		}
		if (++n > MOST_UNREAD) {
			r->gave_up |= 1u << (d - c->dev);
			return err;
		}
		memset(buf + (size_t)slot * LARDER_SLOT_SIZE, UNREAD_BYTE, LARDER_SLOT_SIZE);
		__set_bit(slot, lacks);
		cond_resched();
	}
	if (n)
		DMWARN("%pg: %u slots of segment %u cannot be read", d->bdev, n, segment);
	return 0;
}

static const struct larder_commit *cursor_slot(const struct cursor *cur, u32 slot)
{
	return cur->buf + (size_t)slot * LARDER_SLOT_SIZE;
}

/* The slot as it was read from copy i of those in copy[]. */
static const void *copy_slot(const struct cursor *cur, u32 i, u32 slot)
{
	return cur->copy[i] + (size_t)slot * LARDER_SLOT_SIZE;
}

/* How many of copy[] have something else in this slot than buf had, or may have? */
static u32 slot_others(const struct cursor *cur, u32 slot)
{
	return cur->nr_copies && test_bit(slot, cur->differ) ? cur->nr_copies : 0;
}

static void *load_buf(const struct cursor *cur, u32 got)
{
	return got ? cur->copy[got - 1] : cur->buf;
}

/*
 * The copies of a segment, as far as they can be read: what of one cannot be is as good as damaged there, and is written to it with
 * what it lacks.  Not of an SSD that has had a segment which could not be read at all, if another one has it whole: each read may
 * take it a minute (copies_left_out()).  -ENODEV: the SSD of the first one is not in the set, and none can be read.
 */
static int cursor_load(struct replay *r, struct cursor *cur, u32 segment)
{
	u32 all[SEGMENT_COPIES], later[SEGMENT_COPIES], n = replay_copies(r, segment, all), got = 0, nr_later = 0, i, slot;
	unsigned long *lacks = cur->taken;	/* not in use yet */
	int err = 0, failed;

	if (cur->loaded == segment)
		return 0;
	cur->loaded = LARDER_NO_SEGMENT;
	cur->nr_copies = 0;
	bitmap_zero(cur->differ, r->c->data_slots);
	bitmap_zero(cur->unread, r->c->data_slots);
	for (i = 0; i < n; i++) {
		failed = cursor_read(r, all[i], load_buf(cur, got));
		if (!failed)
			cur->from[got++] = all[i];
		else if (failed != -ENODEV)
			later[nr_later++] = all[i];
		if (failed && (!i || err == -ENODEV))
			err = failed;
	}
	if (!got)
		bitmap_fill(cur->unread, r->c->data_slots);
	for (i = 0; i < nr_later; i++) {
		if ((got && r->gave_up & 1u << (segment_device(r->c, later[i]) - r->c->dev)) ||
		    cursor_read_slots(r, later[i], load_buf(cur, got), lacks))
			continue;
		bitmap_and(cur->unread, cur->unread, lacks, r->c->data_slots);
		cur->from[got++] = later[i];
	}
	bitmap_zero(lacks, r->c->data_slots);
	if (!got)
		return err;
	cur->loaded = segment;
	cur->nr_copies = got - 1;
	for (i = 0; i < cur->nr_copies; i++)
		for (slot = 0; slot < r->c->data_slots; slot++)
			if (memcmp(cursor_slot(cur, slot), copy_slot(cur, i, slot), LARDER_SLOT_SIZE))
				__set_bit(slot, cur->differ);
	return 0;
}

/* Takes the slot from copy[i]. */
static void cursor_use_copy(const struct cursor *cur, u32 i, u32 slot)
{
	memcpy(cur->buf + (size_t)slot * LARDER_SLOT_SIZE, copy_slot(cur, i, slot), LARDER_SLOT_SIZE);
	__set_bit(slot, cur->taken);
}

/* Is it the commit block that is looked for? */
static bool commit_valid(struct replay *r, const struct larder_commit *commit, const struct larder_commit_expect *expect)
{
	struct larder_entry_in e;
	const char *why;
	u32 i;

	if (!larder_commit_maybe(commit, expect) || larder_check_commit(commit, expect, &why))
		return false;
	for (i = 0; i < larder_commit_entries(commit); i++) {
		larder_commit_entry(commit, i, &e);
		if (e.kind == LARDER_SEGMENT_OPEN && !replay_copies_ok(r->c, e.sector, e.cache))
			return false;
	}
	return true;
}

/* The record behind prev_sequence in the segment that is loaded, from this slot on; NULL: none. */
static const struct larder_commit *find_commit(struct replay *r, const struct cursor *cur, u32 segment, u32 slot, u64 prev_sequence,
					       u32 prev_crc)
{
	struct larder_commit_expect e = {
		.geo = &r->geo, .hash = r->hash, .prev_sequence = prev_sequence, .prev_crc = prev_crc, .epoch = r->epoch,
		.segment = segment, .from = slot, .stream = cur->stream,
	};
	u32 end = min(slot + LARDER_RECORD_SLOTS + 1, r->c->data_slots), i;
	const struct larder_commit *commit;

	for (e.slot = slot; e.slot < end; e.slot++) {
		commit = cursor_slot(cur, e.slot);
		if (commit_valid(r, commit, &e))
			return commit;
		for (i = 0; i < slot_others(cur, e.slot); i++) {
			if (!commit_valid(r, copy_slot(cur, i, e.slot), &e))
				continue;
			cursor_use_copy(cur, i, e.slot);
			return cursor_slot(cur, e.slot);
		}
	}
	return NULL;
}

/* What is there may be the log's, flushed, and cannot be read: where it ends is not known. */
static int refuse_unread(struct replay *r, u32 segment, int err)
{
	DMERR("%pg: the log may go on in segment %u, where it cannot be read%s: check the device and try again",
	      segment_device(r->c, segment)->bdev ?: cache_bdev(r->c), segment, r->repairs ? "" : ": nothing was changed");
	return err;
}

/* 1: cur->commit is the next record; 0: it is not here; cur->gap: as far as that can be read. */
static int cursor_find(struct replay *r, struct cursor *cur, u32 segment, u32 slot)
{
	int err = cursor_load(r, cur, segment);
	u32 end;

	/* clean copies that cannot be read, or whose SSD is not there, are not cached; of the write stream it is a loss */
	if (err && cur->stream != LARDER_STREAM_WRITE)
		return 0;
	if (err == -ENODEV)
		DMERR("%pg: segment %u of the log was only on SSD %u of the set, which is missing: add it to the table",
		      cache_bdev(r->c), segment, (u32)(segment_device(r->c, segment) - r->c->dev));
	else if (err)
		refuse_unread(r, segment, err);
	if (err)
		return err;
	cur->commit = find_commit(r, cur, segment, slot, cur->prev_sequence, cur->prev_crc);
	if (cur->commit)
		return 1;
	end = min(slot + LARDER_RECORD_SLOTS + 1, r->c->data_slots);
	if (cur->stream == LARDER_STREAM_WRITE && cur->gap == LARDER_NO_SEGMENT && find_next_bit(cur->unread, end, slot) < end)
		cur->gap = segment;
	return 0;
}

/* 1: cur->commit is the next record; 0: there is none (so far: more segments may be opened). */
static int cursor_peek(struct replay *r, struct cursor *cur)
{
	int found;

	if (cur->commit)
		return 1;
	if (cur->ended)
		return 0;
	if (cur->segment != LARDER_NO_SEGMENT && !cur->drained) {
		found = cursor_find(r, cur, cur->segment, cur->slot);
		if (found)
			return found;
		cur->drained = true;
	}
	found = cur->next < cur->nr ? cursor_find(r, cur, cur->queue[cur->next], 0) : 0;
	if (found > 0) {
		cur->segment = cur->queue[cur->next++];
		cur->slot = 0;
		cur->drained = false;
		cur->gap = LARDER_NO_SEGMENT;
	} else if (!found) {
		if (cur->gap != LARDER_NO_SEGMENT && !cur->doubted)
			return refuse_unread(r, cur->gap, -EIO);
		cur->ended = cur->next < cur->nr;
	}
	return found;
}

static u64 commit_sequence(const struct larder_commit *commit)
{
	return le64_to_cpu(commit->sequence);
}

static void cursor_take(struct cursor *cur)
{
	cur->prev_sequence = commit_sequence(cur->commit);
	cur->prev_crc = le32_to_cpu(cur->commit->crc);
	cur->slot = le16_to_cpu(cur->commit->slot) + 1;
	cur->commit = NULL;
}

/* Does a slot of the record's data match its sum?  It is taken from the copy which does. */
static bool slot_matches(const struct cursor *cur, u32 slot)
{
	u32 sum = larder_commit_sum(cur->commit, slot - le16_to_cpu(cur->commit->first)), i;

	if (test_bit(slot, cur->unread))
		return false;
	if (larder_crc(cursor_slot(cur, slot), LARDER_SLOT_SIZE) == sum)
		return true;
	for (i = 0; i < slot_others(cur, slot); i++) {
		if (larder_crc(copy_slot(cur, i, slot), LARDER_SLOT_SIZE) != sum)
			continue;
		cursor_use_copy(cur, i, slot);
		return true;
	}
	return false;
}

/* Does the record's data match its sums?  *unread: some cannot be read, and all else does. */
static bool data_matches(const struct cursor *cur, bool *unread)
{
	u32 slot;

	*unread = false;
	for (slot = le16_to_cpu(cur->commit->first); slot < le16_to_cpu(cur->commit->end); slot++) {
		if (slot_matches(cur, slot))
			continue;
		*unread = test_bit(slot, cur->unread);
		if (!*unread)
			return false;
	}
	return !*unread;
}

/* A copy of a segment is not what another one is, for all that anybody knows: until scrub_mend() has compared it. */
static void copy_unequal(struct replay *r, u32 first, u32 copy)
{
	struct segment *seg = &r->c->segments[first];

	if (copy == first && !prefers_mirror(seg))
		seg->prefer_mirror = PREFER_AND_MEND;
	else if (copy != first && seg->prefer_mirror == PREFER_NONE)
		seg->prefer_mirror = MEND_COPIES;
	/* of three: should the first be lost before that, the other one is read, and a new one made of it */
	if (copy != first)
		r->c->segments[copy].prefer_mirror = PREFER_MIRROR;
	scrub_mend_later(r->c);
}

/* It could not be written to.  Nor be read: whoever tries is given another copy. */
static bool slot_is_dead(const struct cache_device *d, sector_t where)
{
	void *buf = kmalloc(LARDER_SLOT_SIZE, GFP_KERNEL);
	bool dead = buf && super_io(d->bdev, REQ_OP_READ | REQ_META, where, buf, LARDER_SLOT_SIZE);

	kfree(buf);
	return dead;
}

static int slots_copy(struct replay *r, const struct cursor *cur, u32 segment, u32 slot, u32 n)
{
	sector_t where;
	struct cache_device *d = copy_sector_device(r->c, slot_sector(r->c, segment, slot), &where);
	int err = super_io(d->bdev, REQ_OP_WRITE | REQ_META, where, cur->buf + (size_t)slot * LARDER_SLOT_SIZE,
			   n * LARDER_SLOT_SIZE);

	flusher_wrote(&d->flusher);
	if (err && n > 1) {
		for (err = 0; n && !err; n--, slot++)
			err = slots_copy(r, cur, segment, slot, 1);
		return err;
	}
	if (err && slot_is_dead(d, where)) {
		DMWARN("%pg: slot %u of segment %u takes no data, and gives none: another SSD has it", d->bdev, slot, segment);
		copy_unequal(r, cur->segment, segment);
		return 0;
	}
	if (err)
		DMERR("%pg: a record cannot be copied to segment %u: error %d; give '-' for this SSD", d->bdev, segment, err);
	return err;
}

/* Does the copy in from[k] lack this slot of the record, and another one has it? */
static bool slot_lacks(const struct cursor *cur, u32 k, u32 slot)
{
	u32 block = le16_to_cpu(cur->commit->slot);

	if (!test_bit(slot, cur->differ) || (slot < block && (slot >= le16_to_cpu(cur->commit->end) || !slot_matches(cur, slot))))
		return false;
	/* what is whole is in buf now */
	return k ? memcmp(cursor_slot(cur, slot), copy_slot(cur, k - 1, slot), LARDER_SLOT_SIZE) : test_bit(slot, cur->taken);
}

static int copy_repair(struct replay *r, const struct cursor *cur, u32 k, bool *lacking)
{
	u32 slot = le16_to_cpu(cur->commit->first), end = le16_to_cpu(cur->commit->slot) + 1, n;
	bool lacks;
	int err = 0;

	for (; slot < end && !err; slot += n) {
		lacks = slot_lacks(cur, k, slot);
		for (n = 1; slot + n < end && slot_lacks(cur, k, slot + n) == lacks; )
			n++;
		if (!lacks)
			continue;
		*lacking = true;
		if (r->repairs)
			err = slots_copy(r, cur, cur->from[k], slot, n);
	}
	return err;
}

/*
 * The record that cur looks at, which is valid: where the copies differ, each one that is not whole gets what is, or, before
 * replay_repair(), is counted.  What none has stays as it is, and what is whole is not written to.
 */
static int record_repair(struct replay *r, struct cursor *cur)
{
	bool lacking = false;
	int err = 0;
	u32 k;

	for (k = 0; cur->nr_copies && k <= cur->nr_copies && !err; k++)
		err = copy_repair(r, cur, k, &lacking);
	*(r->repairs ? &r->repaired : &r->lacking) += lacking;
	return err;
}

/* ------------------------------------------------------------------ the scan */

/* durable_sequence of all the records of the chain in the segment just begun: most of them need no look at their data then. */
static void scan_ahead(struct replay *r, const struct cursor *cur)
{
	const struct larder_commit *commit = cur->commit;

	while (commit) {
		r->durable = max(r->durable, le64_to_cpu(commit->durable_sequence));
		commit = find_commit(r, cur, cur->segment, le16_to_cpu(commit->slot) + 1, commit_sequence(commit),
				     le32_to_cpu(commit->crc));
	}
}

/* Those that turned out to be durable are valid after all. */
static void doubts_settle(struct replay *r)
{
	u32 n = 0;

	while (n < r->nr_doubts && r->doubts[n].sequence <= r->durable)
		n++;
	if (!n)
		return;
	DMERR("%pg: the data of %u records of the log is damaged, the first has sequence %llu: what they hold is lost",
	      cache_bdev(r->c), n, r->doubts[0].sequence);
	r->damaged += n;
	cache_count(r->c, errors_checksum, n);
	r->nr_doubts -= n;
	memmove(r->doubts, r->doubts + n, r->nr_doubts * sizeof(*r->doubts));
}

static int doubts_add(struct replay *r, u64 sequence, u64 before, bool unread)
{
	struct doubt *to;
	u32 size;

	if (r->nr_doubts == r->size_doubts) {
		size = r->size_doubts ? r->size_doubts * 2 : 16;
		to = kvmalloc_array(size, sizeof(*to), GFP_KERNEL);
		if (!to)
			return -ENOMEM;
		if (r->nr_doubts)
			memcpy(to, r->doubts, r->nr_doubts * sizeof(*to));
		kvfree(r->doubts);
		r->doubts = to;
		r->size_doubts = size;
	}
	r->doubts[r->nr_doubts++] = (struct doubt){ .sequence = sequence, .before = before, .unread = unread };
	return 0;
}

/* The first time counts: a second one in the range of a replay is behind a checkpoint that was not named. */
static void scan_reopened(struct replay *r, u32 segment, u64 sequence)
{
	if (!r->reopened[segment])
		r->reopened[segment] = sequence;
}

/* Which segments does this record open?  What the checkpoint maps to a further copy is gone as well. */
static int scan_entries(struct replay *r, struct cursor *cur)
{
	u32 i, n = larder_commit_entries(cur->commit);
	struct larder_entry_in e;
	u64 further;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		larder_commit_entry(cur->commit, i, &e);
		if (e.kind != LARDER_SEGMENT_OPEN)
			continue;
		replay_link(r, e.sector, e.cache);
		scan_reopened(r, e.sector, commit_sequence(cur->commit));
		for (further = e.cache; larder_second(further); further >>= 32)
			scan_reopened(r, larder_second(further) - 1, commit_sequence(cur->commit));
		if (e.length == LARDER_STREAM_WRITE)
			err = queue_push(cur, e.sector);
	}
	return err;
}

/* After a scan that ended at r->end, from the pairs that were loaded: those that the records below it have made. */
static int scan_pairs_again(struct replay *r)
{
	struct cursor *cur = &r->cursor[LARDER_STREAM_WRITE];
	int err = cursor_begin(r, LARDER_STREAM_WRITE);
	u64 last = cur->prev_sequence;

	while (!err && (err = cursor_peek(r, cur)) > 0 && commit_sequence(cur->commit) < r->end) {
		err = scan_entries(r, cur);
		last = commit_sequence(cur->commit);
		cursor_take(cur);
		cond_resched();
	}
	if (err < 0 || last == r->last_write)
		return min(err, 0);
	DMERR("%pg: record %llu of the log is not what it was when it was read before: check the device", cache_bdev(r->c), last);
	return -EIO;
}

/* The newest durable_sequence in the epoch's blocks in slots [from, data_slots) of the segment loaded.  False: no such block. */
static bool blocks_durable(struct replay *r, const struct cursor *cur, u32 segment, u32 from)
{
	struct larder_commit_expect e = {
		.geo = &r->geo, .hash = r->hash, .epoch = r->epoch, .segment = segment, .stream = cur->stream, .any_prev = true,
	};
	const struct larder_commit *commit;
	bool found = false;
	u32 i;

	for (e.slot = from; e.slot < r->c->data_slots; e.slot++) {
		for (i = 0; i <= slot_others(cur, e.slot); i++) {
			commit = i ? copy_slot(cur, i - 1, e.slot) : cursor_slot(cur, e.slot);
			if (!commit_valid(r, commit, &e))
				continue;
			r->durable = max(r->durable, le64_to_cpu(commit->durable_sequence));
			found = true;
		}
	}
	return found;
}

/*
 * Behind the end of the write stream: what stands there does not count, but may say that records were durable which are not among
 * those found.  Opened segments are filled in order: behind two that have nothing (the damage may be all that one had) there is
 * nothing.
 */
static int scan_behind(struct replay *r, struct cursor *cur)
{
	u32 i, empty = 0;
	int err;

	if (cur->segment != LARDER_NO_SEGMENT) {
		err = cursor_load(r, cur, cur->segment);
		if (err)
			return refuse_unread(r, cur->segment, err);
		blocks_durable(r, cur, cur->segment, cur->slot);
	}
	for (i = cur->next; i < cur->nr && empty < 2; i++) {
		err = cursor_load(r, cur, cur->queue[i]);
		if (err && err != -ENODEV)
			return empty ? 0 : refuse_unread(r, cur->queue[i], err);
		/* one that is on a missing SSD counts as having nothing */
		empty = !err && blocks_durable(r, cur, cur->queue[i], 0) ? 0 : empty + 1;
		cond_resched();
	}
	return 0;
}

/*
 * What says of a record that it was durable, superblock or block, was written when it was, so no power cut takes the record away,
 * nor one before it: the chain is damaged, or a device has lost what it had flushed.
 */
int replay_check_end(struct replay *r)
{
	const struct cursor *cur = &r->cursor[LARDER_STREAM_WRITE];
	u32 segment = cur->segment, slot = cur->slot;

	/* before its first record an epoch says what was durable in the one before */
	if (r->durable <= r->last_write || r->durable < r->first_sequence)
		return 0;
	if (segment == LARDER_NO_SEGMENT && cur->next < cur->nr)
		segment = cur->queue[cur->next];
	DMERR("%pg: the log is damaged in segment %u, slot %u or later: it ends at record %llu, but those up to %llu were durable",
	      segment < r->c->nr_segments ? segment_device(r->c, segment)->bdev : cache_bdev(r->c), segment, slot, r->last_write,
	      r->durable);
	DMERR("cache %pUb: not started, for it would serve data older than what was flushed: 'larder rescue' saves what is left",
	      r->c->uuid);
	return -EBADMSG;
}

static int scan_chain(struct replay *r)
{
	struct cursor *cur = &r->cursor[LARDER_STREAM_WRITE];
	u32 ahead = LARDER_NO_SEGMENT;
	u64 sequence;
	bool unread;
	int err;

	err = cursor_begin(r, LARDER_STREAM_WRITE);
	while (!err && (err = cursor_peek(r, cur)) > 0) {
		sequence = commit_sequence(cur->commit);
		if (cur->segment != ahead) {
			ahead = cur->segment;
			scan_ahead(r, cur);
			doubts_settle(r);
		}
		err = 0;
		if (sequence > r->durable && !data_matches(cur, &unread))
			err = doubts_add(r, sequence, cur->prev_sequence, unread);
		cur->doubted = r->nr_doubts;
		if (!err)
			err = scan_entries(r, cur);
		r->last_write = sequence;
		r->highest = max(r->highest, sequence);
		cursor_take(cur);
		cond_resched();
	}
	if (!err)
		err = scan_behind(r, cur);
	doubts_settle(r);
	/* whether it ends there is not known, unless it ends before */
	if (!err && cur->gap != LARDER_NO_SEGMENT && !r->nr_doubts)
		err = refuse_unread(r, cur->gap, -EIO);
	return err;
}

int replay_scan(struct replay *r)
{
	size_t bytes = (size_t)r->c->nr_segments * sizeof(*r->mirror);
	u32 *mirror = kvmalloc(bytes, GFP_KERNEL), *mirror_of = kvmalloc(bytes, GFP_KERNEL);
	int err = -ENOMEM;

	if (!mirror || !mirror_of)
		goto out;
	memcpy(mirror, r->mirror, bytes);
	memcpy(mirror_of, r->mirror_of, bytes);
	r->scanned = true;
	r->end = U64_MAX;
	r->last_write = r->has_pos[LARDER_STREAM_WRITE] ? r->pos[LARDER_STREAM_WRITE].prev_sequence : 0;
	err = scan_chain(r);
	if (err || !r->nr_doubts)
		goto out;
	if (r->doubts[0].unread) {
		DMERR("%pg: data of record %llu of the log cannot be read: nothing was changed: check the device and try again",
		      cache_bdev(r->c), r->doubts[0].sequence);
		err = -EIO;
		goto out;
	}
	r->end = r->doubts[0].sequence;
	r->last_write = r->doubts[0].before;
	memcpy(r->mirror, mirror, bytes);
	memcpy(r->mirror_of, mirror_of, bytes);
	err = scan_pairs_again(r);
out:
	kvfree(mirror_of);
	kvfree(mirror);
	return err;
}

/* ------------------------------------------------------------------ applying */

/* The part of [sector, end) that lies in sector's region. */
static u32 region_part(u64 sector, u64 end)
{
	return min(end, (sector | (LARDER_REGION_SECTORS - 1)) + 1) - sector;
}

#define STORE_ATTEMPTS	16

int replay_store(struct volume *v, u64 sector, u64 len, u64 cache, u8 state)
{
	u64 end = sector + len;
	unsigned int attempt;
	u32 n;
	int err;

	for (; sector < end; sector += n) {
		n = region_part(sector, end);
		for (attempt = 0; (err = volume_map_store(v, sector, n, cache, state, NULL)) == -ENOMEM && attempt < STORE_ATTEMPTS;
		     attempt++)
			larder_index_refill(v->index);
		if (err)
			return err;
		if (state == LARDER_ST_CLEAN || state == LARDER_ST_DIRTY)
			cache += n;
		cond_resched();
	}
	return 0;
}

int replay_drop(struct volume *v, u64 sector, u64 end, u32 mask)
{
	struct larder_map m;
	int err = 0;

	while (!err && sector < end && larder_index_next(v->index, sector, end, mask, &m)) {
		err = replay_store(v, m.sector, m.len, 0, LARDER_ST_NONE);
		sector = m.sector + m.len;
		cond_resched();
	}
	return err;
}

/*
 * Not over what is dirty: in front of the copy that was written back, or invalidated, by a record that is lost, being behind the
 * end of the write stream.  What is dirty is whole, and no older than the copy, which may be on one SSD alone: it would hide it
 * from this start, which takes the place of what it does not see for free, and a start without that SSD would find it there again.
 */
static int replay_fill(struct volume *v, u64 sector, u64 len, u64 cache)
{
	u32 dirty = REPLAY_ALL_STATES & ~(1u << LARDER_ST_CLEAN);
	u64 end = sector + len, next;
	struct larder_map m;
	int err = 0;

	while (!err && sector < end) {
		if (!larder_index_next(v->index, sector, end, dirty, &m))
			m = (struct larder_map){ .sector = end };
		err = replay_store(v, sector, m.sector - sector, cache, LARDER_ST_CLEAN);
		next = m.sector + m.len;
		cache += next - sector;
		sector = next;
	}
	return err;
}

static int change(struct volume *v, u64 sector, u32 len, u64 cache, u8 from, u8 to)
{
	bool zero = from == LARDER_ST_ZERO;
	u64 end = sector + len;
	unsigned int attempt;
	u32 n;
	int err;

	for (; sector < end; sector += n) {
		n = region_part(sector, end);
		for (attempt = 0; attempt < STORE_ATTEMPTS; attempt++) {
			err = volume_map_change(v, sector, n, cache, 1u << from, cache, to);
			if (err != -ENOMEM)
				break;
			larder_index_refill(v->index);
		}
		if (err < 0)
			return err;
		if (!zero)
			cache += n;
		cond_resched();
	}
	return 0;
}

static int apply_mark(struct replay *r, const struct larder_entry_in *e)
{
	struct xarray *marks = &r->marks[e->volume];

	if (!e->length) {
		xa_erase(marks, e->sector);
		return 0;
	}
	return xa_err(xa_store(marks, e->sector, xa_mk_value(1), GFP_KERNEL));
}

static int apply_forget(struct replay *r, struct volume *v)
{
	xa_destroy(&r->marks[v->number]);	/* empty, and usable as before */
	return replay_drop(v, 0, v->sectors, REPLAY_ALL_STATES);
}

/* One entry of a volume that exists. */
static int apply_to_volume(struct replay *r, struct volume *v, const struct larder_entry_in *e)
{
	int err;

	if (e->kind == LARDER_FORGET)
		return apply_forget(r, v);
	if (e->kind == LARDER_INTENT ? e->sector > (v->sectors - 1) >> LARDER_INTENT_SHIFT :
	    e->length > v->sectors || e->sector > v->sectors - e->length) {
		r->skipped++;
		return 0;
	}
	switch (e->kind) {
	case LARDER_WRITE:
		marks_known(v, e->sector, e->length);
		return replay_store(v, e->sector, e->length, e->cache, LARDER_ST_DIRTY);
	case LARDER_FILL:
		marks_known(v, e->sector, e->length);
		return replay_fill(v, e->sector, e->length, e->cache);
	case LARDER_ZERO:
		marks_known(v, e->sector, e->length);
		return replay_store(v, e->sector, e->length, e->cache, LARDER_ST_ZERO);
	case LARDER_CLEAN:
		err = change(v, e->sector, e->length, e->cache, LARDER_ST_DIRTY, LARDER_ST_CLEAN);
		return err ?: change(v, e->sector, e->length, e->cache, LARDER_ST_ZERO, LARDER_ST_NONE);
	case LARDER_INVALIDATE:
		return replay_drop(v, e->sector, e->sector + e->length, REPLAY_ALL_STATES);
	case LARDER_INTENT:
		return apply_mark(r, e);
	default:
		return 0;
	}
}

static int apply_entries(struct replay *r, const struct larder_commit *commit)
{
	u32 i, n = larder_commit_entries(commit);
	struct larder_entry_in e;
	struct volume *v;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		larder_commit_entry(commit, i, &e);
		if (e.kind == LARDER_CHECKPOINT)
			continue;
		if (e.kind == LARDER_SEGMENT_OPEN) {
			if (e.length != LARDER_OPEN_CHUNKS)
				err = queue_push(&r->cursor[e.length], e.sector);
			continue;
		}
		if (r->repairs)
			continue;
		v = e.volume < LARDER_MAX_VOLUMES ? r->c->volumes[e.volume] : NULL;
		if (v)
			err = apply_to_volume(r, v, &e);
		else
			r->skipped++;
	}
	return err;
}

/* Copies that could not be read, and so were not looked at: they may lack what is behind the last flush. */
static void copies_left_out(struct replay *r, const struct cursor *cur)
{
	u32 all[SEGMENT_COPIES], n = replay_copies(r, cur->segment, all), i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k <= cur->nr_copies && cur->from[k] != all[i]; )
			k++;
		if (k > cur->nr_copies && !segment_device(r->c, all[i])->failed)
			copy_unequal(r, cur->segment, all[i]);
	}
}

/* The record that cur looks at. */
static int apply_record(struct replay *r, struct cursor *cur)
{
	struct segment *seg = &r->c->segments[cur->segment];
	u64 sequence = commit_sequence(cur->commit);
	bool unread, whole = cur->stream == LARDER_STREAM_WRITE || data_matches(cur, &unread);
	bool applies = whole && sequence >= r->replay_sequence;
	int err = 0;

	if (applies) {
		copies_left_out(r, cur);
		r->copies += cur->nr_copies + 1;
		err = record_repair(r, cur) ?: apply_entries(r, cur->commit);
	}
	if (r->repairs)
		return err;
	r->durable = max(r->durable, le64_to_cpu(cur->commit->durable_sequence));
	r->damaged += !whole;
	r->records += applies;
	r->slots += applies ? larder_commit_slots(cur->commit) + 1 : 0;
	seg->stream = cur->stream;
	seg->sequence = max(seg->sequence, sequence);
	r->highest = max(r->highest, sequence);
	return err;
}

/* The cursor whose next record has the lowest sequence number.  1, 0: none left, or an error. */
static int pick(struct replay *r, struct cursor **best)
{
	struct cursor *cur;
	unsigned int i;
	int found;

	*best = NULL;
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		cur = &r->cursor[i];
		found = cursor_peek(r, cur);
		if (found < 0)
			return found;
		if (found && i == LARDER_STREAM_WRITE && commit_sequence(cur->commit) >= r->end) {
			cur->commit = NULL;
			cur->ended = true;
			continue;
		}
		if (found && (!*best || commit_sequence(cur->commit) < commit_sequence((*best)->commit)))
			*best = cur;
	}
	return *best ? 1 : 0;
}

/* The walk of the write stream ended where the scan did: nothing is left out for a read that failed meanwhile. */
static int check_walked(const struct replay *r)
{
	u64 last = r->cursor[LARDER_STREAM_WRITE].prev_sequence;

	if (!r->scanned || last == r->last_write)
		return 0;
	DMERR("%pg: the log ended at record %llu when it was read before, and at %llu now: check the device", cache_bdev(r->c),
	      r->last_write, last);
	return -EIO;
}

static int apply_all(struct replay *r)
{
	struct cursor *cur;
	unsigned int i;
	int err = 0;

	r->copies = 0;
	for (i = 0; i < LARDER_NR_STREAMS && !err; i++)
		err = cursor_begin(r, i);
	while (!err && (err = pick(r, &cur)) > 0) {
		err = apply_record(r, cur);
		cursor_take(cur);
		cond_resched();
	}
	return err ?: check_walked(r);
}

/* The pairs that replay_apply() has seen: others may be told of checkpoints that are not loaded. */
static int pairs_keep(struct replay *r)
{
	size_t bytes = (size_t)r->c->nr_segments * sizeof(*r->mirror);

	r->applied_mirror = kvmalloc(bytes, GFP_KERNEL);
	r->applied_mirror_of = kvmalloc(bytes, GFP_KERNEL);
	if (!r->applied_mirror || !r->applied_mirror_of)
		return -ENOMEM;
	memcpy(r->applied_mirror, r->mirror, bytes);
	memcpy(r->applied_mirror_of, r->mirror_of, bytes);
	return 0;
}

static void pairs_swap(struct replay *r)
{
	swap(r->applied_mirror, r->mirror);
	swap(r->applied_mirror_of, r->mirror_of);
}

int replay_repair(struct replay *r)
{
	u64 copies = r->copies;
	int err;

	if (!r->lacking)
		return 0;
	pairs_swap(r);
	r->repairs = true;
	err = apply_all(r);
	if (!err && r->copies < copies) {
		DMERR("%pg: of %llu copies of records only %llu could be read again: check the devices and try again",
		      cache_bdev(r->c), copies, r->copies);
		err = -EIO;
	}
	r->repairs = false;
	pairs_swap(r);
	replay_cursors_free(r);
	return err;
}

/* What a checkpoint says of the copies of a segment that was opened since is of its earlier life: all of its records come now. */
static void forget_unsure(struct replay *r)
{
	u32 i;

	for (i = 0; i < r->c->nr_segments; i++)
		if (replay_reopened(r, i))
			r->c->segments[i].prefer_mirror = PREFER_NONE;
}

int replay_apply(struct replay *r)
{
	int err;

	forget_unsure(r);
	err = apply_all(r);
	if (!err && r->lacking)
		err = pairs_keep(r);
	if (r->skipped)
		DMWARN("%pg: %llu entries of the log were skipped: their volume is not in the table, or smaller",
		       cache_bdev(r->c), r->skipped);
	return err;
}
