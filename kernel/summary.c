// SPDX-License-Identifier: GPL-2.0-only
/*
 * Summaries: the last slots of a sealed segment name what its records hold, checksums included, so that reclaim and scrub read one
 * piece of it.
 *
 * The sender of a stream collects; the summary of a segment is written when the first record of the next one is built.  Nothing
 * depends on it: a segment without a valid summary is read whole.  So where memory is short it is left out, and a power cut that
 * tears it does no harm.
 */
#include "larder.h"
#include "trace.h"

struct summary_write {
	struct cache *cache;
	u32 segment;
	struct larder_summary *buf;
	struct bio_vec vec;
	struct bio bio;
};

static void summary_end(struct bio *bio)
{
	struct summary_write *w = container_of(bio, struct summary_write, bio);
	struct cache *c = w->cache;
	struct cache_device *d = segment_device(c, w->segment);

	flusher_wrote(&d->flusher);
	if (bio->bi_status)
		cache_count(c, errors_write, 1);
	else
		WRITE_ONCE(c->segments[w->segment].has_summary, true);
	segment_unpin(c, w->segment);
	bio_uninit(bio);
	kfree(w->buf);
	kfree(w);
	atomic_dec(&c->summaries_in_flight);	/* last: log_drain() */
}

static void summary_seal(struct cache *c, struct stream *s)
{
	struct larder_summary_place p = {
		.hash = c->hash, .first_sequence = s->first_sequence, .last_sequence = s->summary_sequence,
		.segment = s->summary_segment, .epoch = c->epoch, .stream = s->number, .flags = LARDER_SUMMARY_DATA_ONLY,
	};
	gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN;
	struct cache_device *d;
	struct summary_write *w;
	sector_t where;

	d = copy_sector_device(c, slot_sector(c, s->summary_segment, c->data_slots), &where);
	if (READ_ONCE(d->failed))
		return;
	w = kzalloc(sizeof(*w), gfp);
	if (!w)
		return;
	w->buf = kmalloc(sizeof(*w->buf), gfp);
	if (!w->buf || larder_summary_build(w->buf, &p, s->entries, s->nr_entries, s->sums, s->nr_sums)) {
		kfree(w->buf);
		kfree(w);
		return;
	}
	w->cache = c;
	w->segment = s->summary_segment;
	bio_init(&w->bio, d->bdev, &w->vec, 1, REQ_OP_WRITE);
	w->bio.bi_iter.bi_sector = where;
	w->bio.bi_end_io = summary_end;
	__bio_add_page(&w->bio, virt_to_page(w->buf), sizeof(*w->buf), offset_in_page(w->buf));
	segment_pin(c, w->segment);
	atomic_inc(&c->summaries_in_flight);
	cache_count(c, summaries, 1);
	submit_bio(&w->bio);
}

void log_summary_add(struct cache *c, struct stream *s, struct record *r)
{
	u32 i, n = larder_commit_entries(r->commit);

	if (s->summary_segment != r->segment) {
		if (s->summary_segment != LARDER_NO_SEGMENT && s->nr_entries)
			summary_seal(c, s);
		s->summary_segment = r->segment;
		s->nr_entries = 0;
		s->nr_sums = 0;
		s->first_sequence = r->sequence;
		memset(s->sums, 0, c->segment_slots * sizeof(*s->sums));
	}
	for (i = 0; i < n && s->nr_entries < c->segment_slots; i++) {
		larder_commit_entry(r->commit, i, &s->entries[s->nr_entries]);
		if (s->entries[s->nr_entries].kind == LARDER_WRITE || s->entries[s->nr_entries].kind == LARDER_FILL)
			s->nr_entries++;
	}
	for (i = r->first; i < r->end; i++)
		s->sums[i] = r->sums[i - r->first];
	s->nr_sums = r->end;
	s->summary_sequence = r->sequence;
}
