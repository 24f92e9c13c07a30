// SPDX-License-Identifier: GPL-2.0-only
/*
 * The write stream: records are gathered, appended, committed, applied in order.
 *
 * A write reserves slots of the open record under log->lock, copies its data into the record's pages outside of it, and goes out
 * at once as an append of its own while few are in flight; beyond that several leave together (log_gathered()).  Its entry waits in
 * the record's commit block until the record is closed: full, commit_interval over, a flush, a FUA write, somebody who waits for
 * durability, or at once where flushes follow single writes.  A closed record's commit block stands directly behind its data and
 * leaves together with what of it is not submitted yet.
 *
 * A record:  open
 *         -> closed (sequence number, place of the commit block)
 *         -> built (checksum, when all is copied) and sent
 *         -> commit_done and all items done
 *         -> applied
 *
 * Items are acknowledged, and shown by the index, in log order (rule 1: ack-in-order); a record is applied when it and all before
 * it are complete.  One applier at a time does both, in whatever context the last completion came in.  The metadata entries of a
 * record take effect when it is applied.
 *
 * Memory: records and pages are preallocated (rule 12); LARDER_METADATA_PAGES pages and as many records are kept for metadata, and
 * the last opened segment.
 */
#include "larder.h"
#include "trace.h"

#define LOG_RECORDS		256u
#define LOG_PAGES		4096u	/* 16 MiB of data, each slot in a page of its own */
#define LOG_APPENDS		(128u * SEGMENT_COPIES)	/* in flight */
#define METADATA_RECORDS	16u
#define METADATA_PAGES		16u
#define OPEN_SLOTS		8u	/* of the last opened segment: only SEGMENT_OPEN may use them */
#define GATHERED_SLOTS		16u	/* that wait for no more */
#define APPEND_TRIES		4u	/* more, of an append that fails, on an SSD that has to stay, */
#define APPEND_PAUSE		msecs_to_jiffies(10)
#define APPEND_PATIENCE		(2 * HZ)	/* where it fails within that: who waits has waited long enough */

/*
 * In log order somebody waits for every append, and 'gather' bounds those in flight: wbt, which holds back writes that nobody waits
 * for, shall not.
 */
#define APPEND_OPF		(REQ_OP_WRITE | REQ_SYNC | REQ_IDLE)

/*
 * A write of data slots and perhaps the commit block; one for each copy of the segment.  Its bio's vectors are the record's, which
 * outlives it.
 */
struct append {
	struct append *next;		/* log->free_appends, log->again */
	struct record *record;
	struct cache_device *device;
	struct append *first;		/* of the copies; what follows, but the bio and joining, is there */
	struct append *more;		/* first->more, and so on: for the other copies, as many as there may be */
	u16 from, to;			/* data slots */
	bool commit, fua;
	bool probe;			/* it is timed: ssd_probe_end() */
	bool joining;			/* it does not count: its SSD is no member yet */
	u8 tries;			/* left, if it fails */
	unsigned long sent;		/* jiffies */
	u8 copies;			/* those of members: if none of them is made, the append has failed */
	atomic_t left, failed;
	struct bio bio;
};

static const char append_failed[] = "an append to it failed";

static void append_end(struct bio *bio);
static void append_again_work(struct work_struct *work);

/* log->lock held.  NULL: none is left. */
static struct append *append_get(struct log *log)
{
	struct append *a = log->free_appends;

	if (a) {
		log->free_appends = a->next;
		log->nr_free_appends--;
	}
	return a;
}

/* log->lock held */
static void append_put(struct log *log, struct append *a)
{
	a->next = log->free_appends;
	log->free_appends = a;
	log->nr_free_appends++;
}

/* ------------------------------------------------------------------ creation */

static int stream_create(struct cache *c, struct stream *s, u8 number)
{
	s->number = number;
	s->segment = LARDER_NO_SEGMENT;
	s->summary_segment = LARDER_NO_SEGMENT;
	INIT_LIST_HEAD(&s->unbuilt);
	s->opened.size = LARDER_MAX_OPENED;
	s->opened.segment = kcalloc(s->opened.size, sizeof(u32), GFP_KERNEL);
	s->entries = kvcalloc(c->segment_slots, sizeof(*s->entries), GFP_KERNEL);
	s->sums = kvcalloc(c->segment_slots, sizeof(*s->sums), GFP_KERNEL);
	return s->opened.segment && s->entries && s->sums ? 0 : -ENOMEM;
}

static enum hrtimer_restart log_timer(struct hrtimer *timer)
{
	struct cache *c = container_of(timer, struct cache, log.timer);

	WRITE_ONCE(c->log.timer_armed, false);
	log_kick(c);
	return HRTIMER_NORESTART;
}

static void log_work(struct work_struct *work);

static int log_create_record(struct cache *c)
{
	struct record *r = kzalloc(sizeof(*r), GFP_KERNEL);
	u32 i;

	if (!r)
		return -ENOMEM;
	r->cache = c;
	for (i = 0; i < ARRAY_SIZE(r->vec); i++)
		r->vec[i].bv_len = LARDER_SLOT_SIZE;
	list_add(&r->list, &c->log.free_records);
	return 0;
}

int log_create(struct cache *c)
{
	struct log *log = &c->log;
	struct append *a;
	unsigned int i;
	int err;

	/* a slot has a page of its own; of larger ones only the beginning is used */
	BUILD_BUG_ON(PAGE_SIZE < LARDER_SLOT_SIZE);
	spin_lock_init(&log->lock);
	INIT_LIST_HEAD(&log->records);
	INIT_LIST_HEAD(&log->copies);
	INIT_LIST_HEAD(&log->items);
	INIT_LIST_HEAD(&log->free_records);
	INIT_LIST_HEAD(&log->read_from);
	INIT_LIST_HEAD(&log->flush_waiters);
	init_waitqueue_head(&log->wait);
	INIT_WORK(&log->work, log_work);
	INIT_DELAYED_WORK(&log->again_work, append_again_work);
	larder_hrtimer_setup(&log->timer, log_timer);
	c->record_slots = min(RECORD_SLOTS, c->data_slots - 1);
	/* four full records and their commit blocks fill the default segment to the last slot */
	if (c->record_slots > 126 && c->data_slots % 127 == 0)
		c->record_slots = 126;
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		err = stream_create(c, &log->stream[i], i);
		if (err)
			return err;
	}
	err = bioset_init(&c->bios, 64, 0, BIOSET_NEED_BVECS);
	if (err)
		return err;
	log->free_pages = kvcalloc(LOG_PAGES, sizeof(*log->free_pages), GFP_KERNEL);
	if (!log->free_pages)
		return -ENOMEM;
	for (; log->nr_pages < LOG_PAGES; log->nr_pages++) {
		struct page *page = alloc_page(GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);

		/* a small machine does with less */
		if (!page && log->nr_pages < LOG_PAGES / 8)
			return -ENOMEM;
		if (!page)
			break;
		log->free_pages[log->nr_free_pages++] = page;
	}
	for (; log->nr_records < LOG_RECORDS; log->nr_records++) {
		err = log_create_record(c);
		if (err)
			return err;
	}
	for (i = 0; i < LOG_APPENDS; i++) {
		a = kzalloc(sizeof(*a), GFP_KERNEL);
		if (!a)
			return -ENOMEM;
		append_put(log, a);
	}
	c->fixed_bytes += (u64)log->nr_pages * PAGE_SIZE + LOG_RECORDS * sizeof(struct record) + LOG_APPENDS * sizeof(*a);
	/* what was in the cache before this start counts as old (heat) */
	log->position = (u64)c->nr_segments * c->data_slots;
	log->next_lsn = 1;
	log->next_sequence = 1;
	return 0;
}

void log_destroy(struct cache *c)
{
	struct log *log = &c->log;
	struct record *r, *next;
	unsigned int i;

	if (!log->wait.head.next)
		return;		/* log_create() was never called */
	hrtimer_cancel(&log->timer);
	buffered_destroy(c);
	list_for_each_entry_safe(r, next, &log->free_records, list)
		kfree(r);
	while (log->nr_free_appends)
		kfree(append_get(log));
	while (log->nr_free_pages)
		__free_page(log->free_pages[--log->nr_free_pages]);
	kvfree(log->free_pages);
	bioset_exit(&c->bios);
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		kfree(log->stream[i].opened.segment);
		kvfree(log->stream[i].entries);
		kvfree(log->stream[i].sums);
	}
}

void log_reset(struct cache *c, u64 next_sequence)
{
	struct log *log = &c->log;
	unsigned int i;

	spin_lock_irq(&log->lock);
	log->next_sequence = next_sequence;
	log->applied_sequence = next_sequence - 1;
	log->durable_sequence = next_sequence - 1;
	log->applied_lsn = log->durable_lsn = log->next_lsn - 1;
	log->durable_frozen = false;
	log->full_since = 0;
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		struct stream *s = &log->stream[i];

		s->segment = LARDER_NO_SEGMENT;
		s->summary_segment = LARDER_NO_SEGMENT;
		s->head = 0;
		s->last_sequence = 0;		/* the first record of an epoch has no predecessor */
		s->built_sequence = 0;
		s->built_crc = 0;
		s->nr_entries = 0;
	}
	spin_unlock_irq(&log->lock);
}

void log_kick(struct cache *c)
{
	queue_work(c->io_wq, &c->log.work);
}

/* Nothing of this cache is in flight on an SSD any more: no end-io of ours can come.  Sleeps; nothing new may begin. */
void log_drain(struct cache *c)
{
	struct log *log = &c->log;
	bool busy;
	u32 i;

	log_close_open(c, CLOSE_ASKED);
	if (READ_ONCE(c->state) == CACHE_FAILED)
		copies_abort(c);
	copies_close(c, LARDER_STREAM_FILL);
	copies_close(c, LARDER_STREAM_KEEP);
	for (;;) {
		flush_work(&log->work);
		user_flushes_wait(c);
		spin_lock_irq(&log->lock);
		busy = log->in_flight || atomic_read(&log->sending) != SEND_IDLE || log->applying || !list_empty(&log->copies) ||
		       !list_empty(&log->records);
		spin_unlock_irq(&log->lock);
		busy |= atomic_read(&c->summaries_in_flight);
		for (i = 0; i < c->nr_devices; i++) {
			struct flusher *f = &c->dev[i].flusher;

			spin_lock_irq(&f->lock);
			busy |= !list_empty(&f->in_flight);
			spin_unlock_irq(&f->lock);
		}
		if (!busy)
			break;
		schedule_timeout_uninterruptible(1);
	}
}

/* The timer was cancelled: it is armed anew when a record is opened, or by the work for the one that is open. */
void log_resume(struct cache *c)
{
	spin_lock_irq(&c->log.lock);
	c->log.timer_armed = false;
	spin_unlock_irq(&c->log.lock);
	log_kick(c);
}

/* Neither what was opened for another interval, nor the timer, on which what is opened later would rely, goes on with that. */
void log_interval_changed(struct cache *c)
{
	log_close_open(c, CLOSE_ASKED);
	hrtimer_cancel(&c->log.timer);
	log_resume(c);
}

bool log_idle(struct cache *c)
{
	struct log *log = &c->log;
	unsigned long flags;
	bool idle;

	spin_lock_irqsave(&log->lock, flags);
	idle = list_empty(&log->records) && list_empty(&log->items) && list_empty(&log->copies);
	spin_unlock_irqrestore(&log->lock, flags);
	return idle;
}

/* ------------------------------------------------------------------ records; log->lock held */

struct record *log_record_get(struct cache *c, u8 stream)
{
	struct log *log = &c->log;
	struct record *r = list_first_entry_or_null(&log->free_records, struct record, list);

	if (!r || !log->nr_free_pages)
		return NULL;
	list_del_init(&r->list);
	log->nr_records--;
	r->commit_page = log->free_pages[--log->nr_free_pages];
	r->commit = page_address(r->commit_page);
	larder_commit_init(r->commit);
	r->stream = stream;
	r->closed = r->commit_done = r->acts = r->fua = r->buffered = false;
	r->error = 0;
	r->items_left = r->copying = 0;
	r->opened_at = ktime_get();
	INIT_LIST_HEAD(&r->unbuilt);
	INIT_LIST_HEAD(&r->acks);
	INIT_LIST_HEAD(&r->copies);
	bitmap_zero(r->copied, RECORD_SLOTS + 1);
	return r;
}

void log_record_put(struct cache *c, struct record *r)
{
	struct log *log = &c->log;
	u32 i, n = r->end - r->first;

	log->free_pages[log->nr_free_pages++] = r->commit_page;
	if (r->stream == LARDER_STREAM_WRITE)
		for (i = 0; i < n; i++)
			log->free_pages[log->nr_free_pages++] = r->vec[i].bv_page;
	log->nr_records++;
	list_add(&r->list, &log->free_records);
}

/* Opened segments that the write stream may go on in: none of SSDs that have left. */
static u32 log_usable(struct cache *c)
{
	const struct opened_list *o = &c->log.stream[LARDER_STREAM_WRITE].opened;

	return opened_left(c, o, o->usable);
}

int log_next_segment(struct cache *c, struct stream *s, bool metadata)
{
	struct opened_list *o = &s->opened;
	bool writes = s->number == LARDER_STREAM_WRITE;
	u32 segment;

	/* streams of clean copies pass over all that is lost, even if nothing is behind it */
	if ((writes ? log_usable(c) : o->usable) < (writes && !metadata ? 2 : 1)) {
		segments_open_kick(c);
		return -EAGAIN;
	}
	if (s->segment != LARDER_NO_SEGMENT)
		segment_set_state(c, s->segment, segment_gone(c, s->segment) ? SEGMENT_LOST : SEGMENT_SEALED);
	segment = o->segment[o->head];
	o->head = (o->head + 1) % o->size;
	o->count--;
	o->usable--;
	if (segment_lost(c, segment) || (s->number != LARDER_STREAM_WRITE && segment_draining(c, segment))) {
		/* a stream of clean copies: what replay does not find behind this one is merely not cached */
		c->segments[segment].sequence = c->log.next_sequence;
		segment_set_state(c, segment, segment_gone(c, segment) ? SEGMENT_LOST : SEGMENT_WAITING);
		s->segment = LARDER_NO_SEGMENT;
		return log_next_segment(c, s, metadata);
	}
	segment_set_state(c, segment, SEGMENT_ACTIVE);
	c->segments[segment].born = c->log.position;
	s->segment = segment;
	s->head = 0;
	if (opened_left(c, o, o->count) < 4)
		segments_open_kick(c);
	return 0;
}

void log_assign(struct cache *c, struct stream *s, struct record *r)
{
	r->closed = true;
	r->vec[r->end - r->first].bv_page = r->commit_page;
	r->sequence = c->log.next_sequence++;
	r->prev_sequence = s->last_sequence;
	s->last_sequence = r->sequence;
	s->head = r->end + 1;
	c->log.position++;
	cache_tick_wake(c);
}

static void log_timer_arm(struct cache *c, u32 ms)
{
	/* what it was armed for may be a longer commit_interval */
	if (c->log.timer_armed && likely(c->set.commit != COMMIT_BUFFERED))
		return;
	c->log.timer_armed = true;
	hrtimer_start(&c->log.timer, ms_to_ktime(ms), HRTIMER_MODE_REL_SOFT);
}

static void count_close(struct cache *c, enum close_reason why)
{
	cache_count(c, commits, 1);
	switch (why) {
	case CLOSE_FULL:
		cache_count(c, commits_full, 1);
		break;
	case CLOSE_TIMER:
		cache_count(c, commits_timer, 1);
		break;
	case CLOSE_FLUSH:
		cache_count(c, commits_flush, 1);
		break;
	case CLOSE_FUA:
		cache_count(c, commits_fua, 1);
		break;
	case CLOSE_WITH_DATA:
		cache_count(c, commits_with_data, 1);
		break;
	case CLOSE_ASKED:
		cache_count(c, commits_asked, 1);
		break;
	}
}

u64 log_close_locked(struct cache *c, enum close_reason why)
{
	struct log *log = &c->log;
	struct record *r = log->open;

	lockdep_assert_held(&log->lock);
	if (r) {
		log_assign(c, &log->stream[LARDER_STREAM_WRITE], r);
		r->close_reason = why;
		list_add_tail(&r->unbuilt, &log->stream[LARDER_STREAM_WRITE].unbuilt);
		log->open = NULL;
		log->overdue = false;
		count_close(c, why);
	}
	return log->next_lsn - 1;
}

/*
 * Who may use what: what users cause (writes, marks, INVALIDATE) leaves the last opened segment alone; what is moved to make space
 * (move.c) may begin it, as several segments become free by what fits in there; what makes space again (CLEAN, the clearing of
 * marks) may use all of it but its last slots; those are for SEGMENT_OPEN.  So a full log can always make progress.
 */
enum log_rank { RANK_USER, RANK_MOVE, RANK_SPACE, RANK_OPEN };

static enum log_rank entry_rank(const struct larder_entry_in *e)
{
	switch (e->kind) {
	case LARDER_SEGMENT_OPEN:
		return RANK_OPEN;
	case LARDER_CLEAN:
	case LARDER_FORGET:
	case LARDER_CHECKPOINT:
		return RANK_SPACE;
	case LARDER_INTENT:
		return e->length ? RANK_USER : RANK_SPACE;
	default:
		return RANK_USER;
	}
}

/* Does it change something in core when its record is applied?  CLEAN does, and the clearing of a mark. */
static bool entry_acts(const struct larder_entry_in *e)
{
	return e->kind == LARDER_CLEAN || (e->kind == LARDER_INTENT && !e->length);
}

static void log_no_space(struct cache *c, enum log_rank rank)
{
	cache_count(c, waits_space, 1);
	if (rank != RANK_USER)
		return;
	if (!c->log.full_since)
		WRITE_ONCE(c->log.full_since, jiffies ?: 1);
	if (tell_again(&c->full_told))
		cache_tell(c);
}

bool log_full_for(struct cache *c, unsigned long ticks)
{
	struct log *log = &c->log;
	bool full;

	if (likely(!READ_ONCE(log->full_since)))
		return false;
	spin_lock_irq(&log->lock);
	full = log->full_since && time_after(jiffies, log->full_since + ticks) && log_usable(c) < 2;
	spin_unlock_irq(&log->lock);
	return full;
}

/* Opens a record with room for nr_slots and a commit block.  -EAGAIN: no segment, no record, no page. */
static int log_open_record(struct cache *c, u32 nr_slots, enum log_rank rank)
{
	struct log *log = &c->log;
	struct stream *s = &log->stream[LARDER_STREAM_WRITE];
	struct record *r;
	int err;

	if (rank <= RANK_MOVE) {
		if (log->nr_records <= METADATA_RECORDS || log->nr_free_pages < nr_slots + 1 + METADATA_PAGES) {
			cache_count(c, waits_pool, 1);
			return -EAGAIN;
		}
		if (log_usable(c) < (rank == RANK_USER ? 2 : 1)) {
			segments_open_kick(c);
			log_no_space(c, rank);
			return -EAGAIN;
		}
	}
	if (s->segment == LARDER_NO_SEGMENT || segment_lost(c, s->segment) || s->head + nr_slots + 1 > c->data_slots) {
		err = log_next_segment(c, s, rank != RANK_USER);
		if (err) {
			log_no_space(c, rank);
			return err;
		}
	}
	if (rank == RANK_USER)
		log->full_since = 0;
	if (rank == RANK_SPACE && !log_usable(c) && s->head + OPEN_SLOTS >= c->data_slots) {
		segments_open_kick(c);
		return -EAGAIN;
	}
	r = log_record_get(c, LARDER_STREAM_WRITE);
	if (!r) {
		cache_count(c, waits_pool, 1);
		return -EAGAIN;
	}
	r->lsn = log->next_lsn++;
	r->segment = s->segment;
	r->first = r->end = r->ready = r->submitted = s->head;
	segment_pin(c, r->segment);
	list_add_tail(&r->list, &log->records);
	log->open = r;
	log_timer_arm(c, buffered_interval(c, r));
	return 0;
}

u32 log_sums(struct cache *c, u32 segment, u32 slot, u32 n, u32 *sums)
{
	const struct record *r;
	u32 found = 0, i;

	memset(sums, 0, n * sizeof(*sums));
	spin_lock_irq(&c->log.lock);
	list_for_each_entry(r, &c->log.records, list) {
		if (r->segment != segment)
			continue;
		for (i = max_t(u32, r->first, slot); i < min_t(u32, r->ready, slot + n); i++, found++)
			sums[i - slot] = r->sums[i - r->first];
	}
	spin_unlock_irq(&c->log.lock);
	return found;
}

bool log_writes_to(struct cache *c, u32 segment)
{
	const struct record *r;
	bool found = false;

	spin_lock_irq(&c->log.lock);
	list_for_each_entry(r, &c->log.records, list)
		found |= r->segment == segment;
	list_for_each_entry(r, &c->log.copies, list)
		found |= r->segment == segment;
	spin_unlock_irq(&c->log.lock);
	return found;
}

bool log_at_its_end(struct cache *c)
{
	struct log *log = &c->log;
	const struct stream *s = &log->stream[LARDER_STREAM_WRITE];
	const struct record *r;
	bool room = false;

	spin_lock_irq(&log->lock);
	r = log->open;
	if (s->segment != LARDER_NO_SEGMENT && !segment_lost(c, s->segment))
		room = (r ? r->end + 1 : s->head) < c->data_slots || (r && larder_commit_room(r->commit, 1, r->end - r->first));
	room |= opened_left(c, &s->opened, s->opened.count);
	spin_unlock_irq(&log->lock);
	return !room;
}

/* An open record with room for nr_slots more, one more entry. */
static int log_room(struct cache *c, u32 nr_slots, enum log_rank rank)
{
	struct log *log = &c->log;
	struct record *r = log->open;

	if (r) {
		u32 slots = r->end - r->first + nr_slots;

		/* a record that was opened with the last segment in hand is not for users */
		if (rank <= RANK_MOVE && !log_usable(c)) {
			segments_open_kick(c);
			log_no_space(c, rank);
			return -EAGAIN;
		}
		if (slots <= c->record_slots && r->end + nr_slots + 1 <= c->data_slots && larder_commit_room(r->commit, 1, slots)) {
			if (!nr_slots || log->nr_free_pages >= nr_slots + METADATA_PAGES)
				return 0;
			cache_count(c, waits_pool, 1);
			return -EAGAIN;
		}
		log_close_locked(c, CLOSE_FULL);
	}
	return log_open_record(c, nr_slots, rank);
}

/* ------------------------------------------------------------------ submission */

void log_pinned_crc(struct stream *s, struct record *r, u32 crc)
{
	s->built_sequence = r->sequence;
	s->built_crc = crc;
	if (r->sequence == s->pinned_sequence)
		s->pinned_crc = crc;
}

/* Sender: the checksum over all of it, then entries and sums for the segment's summary. */
static noinline void log_finish(struct cache *c, struct stream *s, struct record *r, u64 durable_sequence)
{
	struct larder_commit_place p = {
		.hash = c->hash, .sequence = r->sequence, .prev_sequence = r->prev_sequence,
		.durable_sequence = durable_sequence, .prev_crc = s->built_crc, .epoch = c->epoch,
		.segment = r->segment, .slot = r->end, .first = r->first, .end = r->end, .stream = s->number,
	};
	u32 crc = larder_commit_finish(r->commit, &p, r->sums);

	spin_lock_irq(&c->log.lock);
	log_pinned_crc(s, r, crc);
	spin_unlock_irq(&c->log.lock);
	log_summary_add(c, s, r);
}

/*
 * Is it time for what of the open record is ready?  Yes, if it is a share of all that is out, were there 'gather' appends: so deep
 * queues leave in few large ones, and shallow ones do not wait.
 */
static bool log_gathered(const struct cache *c)
{
	const struct log *log = &c->log;
	u32 ready = log->open ? log->open->ready - log->open->submitted : 0;

	if (!ready || !log->in_flight)
		return ready;
	return log->in_flight < c->set.gather && (ready >= GATHERED_SLOTS || ready * (c->set.gather - 1) >= log->slots_in_flight);
}

/* What goes out next, if anything may: a record only behind all of those before it, so that a segment is written front to back. */
static struct record *log_sendable(struct cache *c)
{
	struct log *log = &c->log;
	struct record *r = list_first_entry_or_null(&log->stream[LARDER_STREAM_WRITE].unbuilt, struct record, unbuilt);

	if (r) {
		if (r->copying)
			return NULL;
	} else {
		r = log->open;
		if (!log_gathered(c))
			return NULL;
	}
	if (unlikely(log->nr_free_appends < SEGMENT_COPIES)) {
		log->starved = true;	/* append_done() sees to it */
		return NULL;
	}
	return r;
}

/* Takes what is copied and not sent of the record, which is sendable.  *items: how many are in it. */
static struct append *log_send_take(struct cache *c, struct record *r, u32 *items)
{
	struct log *log = &c->log;
	struct append *a = append_get(log), *more;
	u32 i;

	a->record = r;
	a->first = a;
	a->more = NULL;
	a->tries = APPEND_TRIES;
	for (i = 1; i < min(c->nr_devices, SEGMENT_COPIES); i++) {
		more = append_get(log);
		more->more = a->more;
		more->tries = APPEND_TRIES;
		a->more = more;
	}
	a->commit = r->closed;
	a->from = r->submitted;
	a->to = r->closed ? r->end : r->ready;
	/* rule 3, fua-prefix: all before it is durable, and all of it is in this bio */
	a->fua = r->closed && r->close_reason == CLOSE_FUA && a->from == r->first && log->durable_lsn == r->lsn - 1;
	r->fua = a->fua;
	r->submitted = a->to;
	if (r->closed)
		list_del_init(&r->unbuilt);
	for (i = a->from, *items = 0; i < a->to; i++)
		*items += !!r->items[i - r->first];
	log->in_flight++;
	log->slots_in_flight += a->to - a->from;
	return a;
}

struct append_copy {
	u32 segment;
	bool joining;
};

/* The copies of the record's segment that can be written; 0: none that a member has.  *members: those that count. */
static u32 append_copies(struct cache *c, const struct record *r, struct append_copy copy[SEGMENT_COPIES], u32 *members)
{
	u32 all[SEGMENT_COPIES], nr = segment_ring(c, r->segment, all), n = 0, i;
	struct cache_device *d;
	bool failed;

	*members = 0;
	for (i = 0; i < nr; i++) {
		d = segment_device(c, all[i]);
		if (!device_written_as(d, &failed))
			continue;
		copy[n++] = (struct append_copy){ .segment = all[i], .joining = failed };
		*members += !failed;
	}
	return *members ? n : 0;
}

/* copy: the one that this bio writes. */
static void append_init(struct append *a, struct append *first, struct append_copy copy)
{
	struct record *r = first->record;
	u32 slots = first->to - first->from + first->commit;
	sector_t where;

	a->first = first;
	a->joining = copy.joining;
	a->sent = jiffies;
	a->device = copy_sector_device(r->cache, slot_sector(r->cache, copy.segment, first->from), &where);
	bio_init_for_all(&a->bio, a->device->bdev, &r->vec[first->from - r->first], slots,
			 APPEND_OPF | (first->fua ? REQ_FUA : 0));
	a->bio.bi_vcnt = slots;
	a->bio.bi_iter.bi_size = slots * LARDER_SLOT_SIZE;
	a->bio.bi_iter.bi_sector = where;
	a->bio.bi_end_io = append_end;
}

/* n copies are written; those of members count. */
static void append_count(struct cache *c, struct append *a, u32 n, u32 members)
{
	a->copies = members;
	atomic_set(&a->left, max(n, 1u));
	atomic_set(&a->failed, 0);
	a->probe = !a->fua && ssd_probe_begin(c, SSD_WRITE);
}

/* Of several SSDs. */
static noinline void append_init_copies(struct cache *c, struct append *a)
{
	struct append_copy copy[SEGMENT_COPIES] = { { .segment = a->record->segment } };
	u32 members, n = append_copies(c, a->record, copy, &members), i;
	struct append *more = a->more, *next;

	append_count(c, a, n, members);
	append_init(a, a, copy[0]);
	/* the one of the first copy goes last: a is not free before it ends */
	for (i = 1; i < n; i++, more = next) {
		next = more->more;
		append_init(more, a, copy[i]);
		submit_bio_noacct(&more->bio);
	}
}

/*
 * To each copy that can be written.  No copy is left: it fails.  The system has counted what users write already, and priority and
 * cgroup of the task that happens to send are not those of all who wait for it.
 */
static void append_submit(struct cache *c, struct append *a)
{
	if (likely(c->nr_devices == 1)) {
		append_count(c, a, 1, !READ_ONCE(c->dev[0].failed));
		append_init(a, a, (struct append_copy){ .segment = a->record->segment });
	} else {
		append_init_copies(c, a);
	}
	if (likely(a->copies))
		submit_bio_noacct(&a->bio);
	else
		bio_io_error(&a->bio);
}

/* All copies have ended; log->lock held. */
static void append_free(struct log *log, struct append *a)
{
	struct append *more;

	while ((more = a->more)) {
		a->more = more->more;
		append_put(log, more);
	}
	append_put(log, a);
}

/* log->lock held: is there something behind what was just taken?  What comes later asks for itself. */
static bool log_sends_more(const struct log *log)
{
	return !list_empty(&log->stream[LARDER_STREAM_WRITE].unbuilt) || (log->open && log->open->ready != log->open->submitted);
}

/*
 * log->lock held with interrupts off; lets go of it.  One sender at a time, whoever comes first: it also sends what others make
 * ready meanwhile.  So appends reach submit_bio() in the order of the log, each segment front to back.
 *
 * A sender that left nothing behind ends without the lock, if nobody has asked (SEND_AGAIN) by then: whoever makes something ready
 * asks behind that, under the lock, and either finds the sender at work, which then looks again, or becomes it.
 */
static void log_send_unlock(struct cache *c)
	__releases(&c->log.lock)
{
	struct log *log = &c->log;
	struct record *r;
	struct append *a;
	u64 durable;
	u32 items;
	bool more;

	if (atomic_xchg(&log->sending, SEND_AGAIN) != SEND_IDLE) {
		spin_unlock_irq(&log->lock);
		return;
	}
	while ((r = log_sendable(c))) {
		/* asked for until now is what this one sees */
		atomic_set(&log->sending, SEND_RUNS);
		a = log_send_take(c, r, &items);
		more = log_sends_more(log);
		durable = log->durable_sequence;
		spin_unlock_irq(&log->lock);

		if (a->commit)
			log_finish(c, &log->stream[LARDER_STREAM_WRITE], r, durable);
		if (a->to > a->from) {
			cache_count(c, appends, 1);
			cache_count(c, append_slots, a->to - a->from);
		}
		if (items > 1)
			cache_count(c, gathered_appends, 1);
		if (a->fua)
			cache_count(c, fua_appends, 1);
		trace_larder_append(c, r, a->from, a->to, a->commit);
		append_submit(c, a);
		if (!more && atomic_cmpxchg(&log->sending, SEND_RUNS, SEND_IDLE) == SEND_RUNS)
			return;
		spin_lock_irq(&log->lock);
	}
	atomic_set(&log->sending, SEND_IDLE);
	spin_unlock_irq(&log->lock);
}

void log_send(struct cache *c)
{
	spin_lock_irq(&c->log.lock);
	log_send_unlock(c);
}

u64 log_close_open(struct cache *c, enum close_reason why)
{
	u64 lsn;

	spin_lock_irq(&c->log.lock);
	lsn = log_close_locked(c, why);
	log_send_unlock(c);
	return lsn;
}

/*
 * log->lock held; commit_interval is over.  Not while as many appends are on their way as may gather: an SSD that takes longer for
 * each than the interval would have one more of them in front of it each time, until all records that there are wait for it.  The
 * next one that completes calls again (append_leaves_work()).
 */
static void log_close_due(struct cache *c)
{
	struct log *log = &c->log;

	log->overdue = c->set.commit != COMMIT_BUFFERED && log->in_flight >= c->set.gather;
	if (!log->overdue)
		log_close_locked(c, CLOSE_TIMER);
}

/* What interrupt context and the timer left to do. */
static void log_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, log.work);
	struct log *log = &c->log;
	bool apply = READ_ONCE(log->apply_left);
	unsigned long flags;
	s64 age;

	if (READ_ONCE(log->apply_stalled)) {
		/* who reclaims memory may wait for what is to be applied: not the other way round (rule 12) */
		if (cache_refill(c, larder_index_refill_stalled))
			schedule_timeout_uninterruptible(1);
		WRITE_ONCE(log->apply_stalled, false);
		apply = true;
	}
	if (apply) {
		spin_lock_irqsave(&log->lock, flags);
		log_apply(c);
		spin_unlock_irqrestore(&log->lock, flags);
	}
	log_send(c);
	spin_lock_irq(&log->lock);
	if (log->open) {
		age = ktime_ms_delta(ktime_get(), log->open->opened_at);
		if (READ_ONCE(c->want_commit) || (c->set.commit == COMMIT_ALWAYS && !log->in_flight))
			log_close_locked(c, CLOSE_ASKED);
		else if (age >= buffered_interval(c, log->open))
			log_close_due(c);
		else
			log_timer_arm(c, buffered_interval(c, log->open) - age);
	}
	WRITE_ONCE(c->want_commit, false);
	log_send_unlock(c);
}

/* ------------------------------------------------------------------ writes */

/* Whole pages by the copy that the architecture has for them. */
static void log_copy_bytes(void *to, const void *from, u32 n)
{
	if (n == PAGE_SIZE && LARDER_SLOT_SIZE == PAGE_SIZE && PAGE_ALIGNED(from))
		copy_page(to, (void *)from);
	else
		memcpy(to, from, n);
}

/* Copies the bio into the pages of its slots, and sums them.  The last slot is padded with zeroes.  Most are one whole slot. */
static void log_copy(struct record *r, struct item *it, struct bio *bio)
{
	u32 i = it->slot - r->first, off = 0, n, done;
	struct bvec_iter iter;
	struct bio_vec bv;
	void *to = bvec_virt(&r->vec[i]);

	bv = bio_iovec(bio);
	if (bio->bi_iter.bi_size == LARDER_SLOT_SIZE && bv.bv_len == LARDER_SLOT_SIZE) {
		void *from = bvec_kmap_local(&bv);

		log_copy_bytes(to, from, LARDER_SLOT_SIZE);
		kunmap_local(from);
		r->sums[i] = larder_crc(to, LARDER_SLOT_SIZE);
		return;
	}
	bio_for_each_segment(bv, bio, iter) {
		void *from = bvec_kmap_local(&bv);

		for (done = 0; done < bv.bv_len; done += n) {
			if (off == LARDER_SLOT_SIZE) {
				r->sums[i] = larder_crc(to, LARDER_SLOT_SIZE);
				to = bvec_virt(&r->vec[++i]);
				off = 0;
			}
			n = min(bv.bv_len - done, LARDER_SLOT_SIZE - off);
			log_copy_bytes(to + off, from + done, n);
			off += n;
		}
		kunmap_local(from);
	}
	if (off < LARDER_SLOT_SIZE)
		memset(to + off, 0, LARDER_SLOT_SIZE - off);
	r->sums[i] = larder_crc(to, LARDER_SLOT_SIZE);
}

/* log->lock held: slots, pages, entry and place in the order of one write. */
static void log_reserve(struct cache *c, struct volume *v, struct item *it, u32 nr_slots)
{
	struct log *log = &c->log;
	struct record *r = log->open;
	struct larder_entry_in e = { .sector = it->sector, .length = it->len, .volume = v->number, .kind = it->kind };
	u32 i = r->end - r->first, n;

	it->record = r;
	it->volume = v;
	it->slot = r->end;
	it->nr_slots = nr_slots;
	bitmap_zero(it->replaces, RECORD_SLOTS);
	it->done = !nr_slots;
	it->error = 0;
	if (it->kind == LARDER_WRITE)
		it->cache = slot_sector(c, r->segment, r->end);
	e.cache = it->cache;
	larder_commit_add(r->commit, &e);
	for (n = 0; n < nr_slots; n++) {
		r->vec[i + n].bv_page = log->free_pages[--log->nr_free_pages];
		r->items[i + n] = n ? NULL : it;
	}
	r->end += nr_slots;
	r->copying += !!nr_slots;
	r->items_left++;
	log->position += nr_slots;
	log->writes_since_flush++;
	v->items++;
	WRITE_ONCE(v->last_dirty_lsn, r->lsn);
	list_add_tail(&it->list, &log->items);
}

/* log->lock held: its data is in place; [first, ready) grows by all that is. */
static void log_copied(struct record *r, struct item *it)
{
	if (!--r->copying) {
		r->ready = r->end;
		return;
	}
	bitmap_set(r->copied, it->slot - r->first, it->nr_slots);
	r->ready = r->first + find_next_zero_bit(r->copied, r->end - r->first, r->ready - r->first);
}

/* The same where nobody waits for it: it lets those leave that it was in front of, and does not leave by itself. */
static void log_copied_unsent(struct record *r, const struct item *it)
{
	u32 end = it->slot - r->first + it->nr_slots;

	r->copying--;
	bitmap_set(r->copied, it->slot - r->first, it->nr_slots);
	if (end < r->end - r->first && test_bit(end, r->copied))
		r->ready = r->first + find_next_zero_bit(r->copied, r->end - r->first, r->ready - r->first);
}

/* log->lock held.  Rule 11; what is moved must be what the index still shows, up to this place in the log.  -ESTALE */
static int log_may_write(const struct volume *v, const struct larder_io *io)
{
	if (v->cache->state == CACHE_FAILED)
		return -EAGAIN;
	if (likely(!io->mover))
		return v->may_be_dirty ? 0 : -EAGAIN;
	/* the flag is not cleared while anything is dirty; the volume may be unbound */
	return READ_ONCE(io->mover->copy.raced) || !atomic64_read(&v->dirty_sectors) ? -ESTALE : 0;
}

/* log->lock held: a user's write has its place, and may complete as soon as the lock is let go of.  No counter ever falls. */
static void log_count_write(struct volume *v, const struct larder_io *io)
{
	volume_count(v, write_cached, 1);
	volume_count(v, write_cached_sectors, io->len);
	if (io->fua)
		volume_count(v, fuas, 1);
}

static bool log_full(const struct cache *c, const struct record *r)
{
	return r->end - r->first == c->record_slots || r->end + 1 == c->data_slots;
}

/* log->lock held, and room: its place in the log, if it shall be answered from memory; or NULL. */
static struct item *log_reserve_buffered(struct volume *v, const struct larder_io *io, u32 nr_slots)
{
	struct item *it = buffered_take(v, io);
	struct cache *c = v->cache;

	if (!it)
		return NULL;
	it->sector = io->sector;
	it->len = io->len;
	it->kind = LARDER_WRITE;
	log_reserve(c, v, it, nr_slots);
	log_count_write(v, io);
	it->record->buffered = true;
	if (log_full(c, it->record))
		log_close_locked(c, CLOSE_FULL);
	return it;
}

/* Nobody waits for it: it leaves with its record, or with what somebody waits for. */
static void log_write_buffered(struct volume *v, struct bio *bio, struct item *it)
{
	struct cache *c = v->cache;
	struct record *r = it->record;

	trace_larder_write(v, it->sector, it->len, it->cache);
	log_copy(r, it, bio);
	buffered_show(c, it);
	spin_lock_irq(&c->log.lock);
	log_copied_unsent(r, it);
	log_send_unlock(c);
	io_complete(bio, 0);
}

int log_write(struct volume *v, struct bio *bio, struct larder_io *io)
{
	struct cache *c = v->cache;
	struct log *log = &c->log;
	struct item *it = &io->item, *buffered;
	u32 nr_slots = DIV_ROUND_UP(io->len, LARDER_SLOT_SECTORS);
	bool close;
	int err;

	it->sector = io->sector;
	it->len = io->len;
	it->kind = LARDER_WRITE;
	it->answer = io->fua ? ANSWER_DURABLE : ANSWER_APPLIED;
	spin_lock_irq(&log->lock);
	err = log_may_write(v, io) ?: log_room(c, nr_slots, io->mover && io->mover->makes_space ? RANK_MOVE : RANK_USER);
	if (err) {
		/* log_room() may have closed a record */
		log_send_unlock(c);
		return err;
	}
	if (unlikely(c->set.commit == COMMIT_BUFFERED)) {
		buffered = log_reserve_buffered(v, io, nr_slots);
		if (buffered) {
			spin_unlock_irq(&log->lock);
			log_write_buffered(v, bio, buffered);
			return 0;
		}
	}
	log_reserve(c, v, it, nr_slots);
	if (likely(!io->mover))
		log_count_write(v, io);
	close = io->fua || (log->flush_follows >= 4 && log->writes_since_flush <= 2) ||
		(c->set.commit == COMMIT_ALWAYS && !log->in_flight);
	if (close)
		log_close_locked(c, io->fua ? CLOSE_FUA : CLOSE_WITH_DATA);
	else if (log_full(c, it->record))
		log_close_locked(c, CLOSE_FULL);	/* the commit block leaves with this write, not with the next */
	spin_unlock_irq(&log->lock);
	trace_larder_write(v, io->sector, io->len, it->cache);

	log_copy(it->record, it, bio);

	spin_lock_irq(&log->lock);
	log_copied(it->record, it);
	log_send_unlock(c);
	return 0;
}

int log_write_zeroes(struct volume *v, struct bio *bio, struct larder_io *io)
{
	struct cache *c = v->cache;
	struct log *log = &c->log;
	struct item *it = &io->item;
	int err;

	it->sector = io->sector;
	it->len = io->len;
	it->kind = LARDER_ZERO;
	it->answer = io->fua ? ANSWER_DURABLE : ANSWER_APPLIED;
	spin_lock_irq(&log->lock);
	err = v->may_be_dirty && c->state != CACHE_FAILED ? log_room(c, 0, RANK_USER) : -EAGAIN;
	if (!err) {
		/* apart from the addresses of any cache below 16 TiB: a CLEAN names one or the other */
		it->cache = 1ull << (LARDER_CACHE_SECTOR_BITS - 1) | (u64)(c->epoch & 0x7fff) << 20 |
			    (++log->zero_serial & 0xfffff);
		log_reserve(c, v, it, 0);
		/* else nobody would: no append of its own completes, and none is sent for what was answered from memory */
		if (io->fua || (c->set.commit == COMMIT_ALWAYS && !log->in_flight) ||
		    list_first_entry(&log->items, struct item, list)->answer == ANSWERED)
			log_close_locked(c, io->fua ? CLOSE_FUA : CLOSE_WITH_DATA);
		log_apply(c);		/* nothing of it has to arrive; in its turn */
	}
	log_send_unlock(c);
	return err;
}

/* ------------------------------------------------------------------ metadata */

int log_entry_locked(struct cache *c, const struct larder_entry_in *e, u64 *lsn)
{
	int err;

	if (READ_ONCE(c->state) == CACHE_FAILED)
		return -EIO;
	err = log_room(c, 0, entry_rank(e));
	if (err)
		return err;
	larder_commit_add(c->log.open->commit, e);
	c->log.open->acts |= entry_acts(e);
	if (lsn)
		*lsn = c->log.open->lsn;
	return 0;
}

/* dirties: a volume whose dirty data it changes, or NULL. */
static int log_entry_of(struct cache *c, const struct larder_entry_in *e, struct volume *dirties, u64 *lsn)
{
	unsigned long flags;
	int err;

	spin_lock_irqsave(&c->log.lock, flags);
	err = log_entry_locked(c, e, lsn);
	/* under the lock: whoever sees it applied sees this, too */
	if (!err && dirties)
		WRITE_ONCE(dirties->last_dirty_lsn, *lsn);
	spin_unlock_irqrestore(&c->log.lock, flags);
	if (err || !list_empty(&c->log.stream[LARDER_STREAM_WRITE].unbuilt))
		log_kick(c);
	return err;
}

int log_entry(struct cache *c, const struct larder_entry_in *e, u64 *lsn)
{
	return log_entry_of(c, e, NULL, lsn);
}

int log_entry_dirty(struct volume *v, const struct larder_entry_in *e, u64 *lsn)
{
	return log_entry_of(v->cache, e, v, lsn);
}

int log_entry_wait(struct cache *c, const struct larder_entry_in *e, u64 *lsn)
{
	int err;

	while ((err = log_entry(c, e, lsn)) == -EAGAIN) {
		if (READ_ONCE(c->state) == CACHE_FAILED)
			return -EIO;
		schedule_timeout_uninterruptible(1);
	}
	return err;
}

/* Which checkpoint is named last: for a record that has nothing else to say. */
static struct larder_entry_in log_note_entry(const struct cache *c)
{
	return (struct larder_entry_in){ .kind = LARDER_CHECKPOINT, .sector = READ_ONCE(c->named[0].sequence) };
}

int log_note(struct cache *c)
{
	struct larder_entry_in e = log_note_entry(c);

	return log_entry(c, &e, NULL);
}

int log_roll(struct cache *c)
{
	struct larder_entry_in e = log_note_entry(c);
	struct stream *s = &c->log.stream[LARDER_STREAM_WRITE];
	int err = 0;

	spin_lock_irq(&c->log.lock);
	log_close_locked(c, CLOSE_ASKED);
	/* replay finds the one behind it only through a record in this one: it is not left before it has got one */
	if (s->segment == LARDER_NO_SEGMENT || s->head)
		err = log_next_segment(c, s, true);
	if (!err)
		err = log_entry_locked(c, &e, NULL);
	log_close_locked(c, CLOSE_ASKED);
	log_send_unlock(c);
	return err;
}

bool stream_uses(struct cache *c, const struct stream *s, bool (*is)(struct cache *c, u32 segment, const void *arg),
		 const void *arg)
{
	const struct opened_list *o = &s->opened;
	bool uses = s->segment != LARDER_NO_SEGMENT && is(c, s->segment, arg);
	u32 i;

	for (i = 0; i < o->count && !uses; i++)
		uses = is(c, o->segment[(o->head + i) % o->size], arg);
	return uses;
}

bool log_uses(struct cache *c, bool (*is)(struct cache *c, u32 segment, const void *arg), const void *arg)
{
	bool uses;

	spin_lock_irq(&c->log.lock);
	uses = stream_uses(c, &c->log.stream[LARDER_STREAM_WRITE], is, arg);
	spin_unlock_irq(&c->log.lock);
	return uses;
}

int log_wait_applied(struct cache *c, u64 lsn)
{
	wait_event(c->log.wait, READ_ONCE(c->log.applied_lsn) >= lsn || c->state == CACHE_FAILED);
	return READ_ONCE(c->state) == CACHE_FAILED ? -EIO : 0;
}

int log_sync(struct cache *c)
{
	u64 lsn = log_close_open(c, CLOSE_ASKED);
	int err = log_wait_applied(c, lsn);

	if (err)
		return err;
	return cache_flush_ssds(c);
}

/* ------------------------------------------------------------------ completion: interrupt context */

/*
 * Is log_work() to send what has gathered?  log->lock held.  Whoever writes next does it for less: a completion that leaves more
 * than half of 'gather' in flight leaves it to him, or to the completions that are still to come.
 */
static bool append_leaves_work(const struct cache *c)
{
	const struct log *log = &c->log;

	if (!log->open)
		return false;
	if (c->set.commit == COMMIT_ALWAYS && !log->in_flight)
		return true;
	if (unlikely(log->overdue) && log->in_flight < c->set.gather)
		return true;
	return log->in_flight <= c->set.gather / 2 && log_gathered(c);
}

/* All copies have ended.  One will do: before it counts, the set without the other is durable (rule 14, log->held). */
static void append_done(struct append *a)
{
	struct record *r = a->record;
	struct cache *c = r->cache;
	struct log *log = &c->log;
	int error = atomic_read(&a->failed) < a->copies ? 0 : -EIO;
	unsigned long flags;
	bool kick;
	u16 i;

	if (unlikely(a->probe))
		ssd_probe_end(c, SSD_WRITE);
	if (error)
		cache_fail(c, "an append to the SSD failed");
	spin_lock_irqsave(&log->lock, flags);
	/* nothing becomes durable any more, whatever is flushed: replay will stop at this record */
	if (error)
		log->durable_frozen = true;
	for (i = a->from; i < a->to; i++) {
		struct item *it = r->items[i - r->first];

		if (it) {
			WARN_ON_ONCE(it->slot + it->nr_slots > a->to);
			it->error = error;
			it->done = true;
			r->items[i - r->first] = NULL;
		}
	}
	if (error)
		r->error = error;
	if (a->commit)
		r->commit_done = true;
	log->in_flight--;
	log->slots_in_flight -= a->to - a->from;
	append_free(log, a);
	kick = log->starved || append_leaves_work(c);
	log->starved = false;
	log_apply(c);
	spin_unlock_irqrestore(&log->lock, flags);
	if (kick)
		log_kick(c);
}

/*
 * Shall another attempt be made, soon?  Not of one that has had all the time that there is: whoever waits for it has waited long
 * enough, and his volume can go on without the SSD, but for what somebody was told long ago that it is done (buffered.c).
 */
static bool append_may_pass(const struct log *log, const struct append *a)
{
	return a->tries &&
	       (time_before(jiffies, a->sent + APPEND_PATIENCE) || READ_ONCE(log->ring_head) != READ_ONCE(log->ring_tail));
}

/*
 * It has failed, as the last copy, or not.  True: it is sent again, where it was to go: what it holds is not anywhere else.  Not
 * where another copy is, to an SSD that the set can do without: it may have been reset, and have dropped what was not flushed, and
 * that would be read from it.  For one that stays that is a doubt, also where the append succeeds then, and nobody else is told.
 */
static bool append_again(struct cache *c, struct append *a, bool last)
{
	struct log *log = &c->log;
	unsigned long flags;

	if (!c->started || READ_ONCE(c->state) == CACHE_FAILED || !device_written(a->device) || !append_may_pass(log, a) ||
	    (!last && set_spares(c, a->device, append_failed)))
		return false;
	/* with FUA it may have a flush in it, whose error is not of that place */
	if (a->first->fua || blk_path_error(a->bio.bi_status))
		doubt_begin_resent(c, &a->device->flusher);
	cache_count(c, append_retries, 1);
	a->tries--;
	if (!a->joining)
		atomic_dec(&a->first->failed);
	spin_lock_irqsave(&log->lock, flags);
	a->next = log->again;
	log->again = a;
	queue_delayed_work(c->io_wq, &log->again_work, APPEND_PAUSE);
	spin_unlock_irqrestore(&log->lock, flags);
	return true;
}

static void append_again_work(struct work_struct *work)
{
	struct cache *c = container_of(to_delayed_work(work), struct cache, log.again_work);
	struct log *log = &c->log;
	struct append_copy copy;
	u32 all[SEGMENT_COPIES], n;
	struct append *a, *next;

	/* what fails meanwhile has its own pause */
	spin_lock_irq(&log->lock);
	next = log->again;
	log->again = NULL;
	spin_unlock_irq(&log->lock);
	while ((a = next)) {
		next = a->next;
		if (READ_ONCE(c->state) == CACHE_FAILED || !device_written(a->device)) {
			a->bio.bi_status = BLK_STS_IOERR;
			append_end(&a->bio);
			continue;
		}
		n = segment_ring(c, a->first->record->segment, all);
		while (--n && segment_device(c, all[n]) != a->device)
			;
		copy = (struct append_copy){ .segment = all[n], .joining = a->joining };
		bio_uninit(&a->bio);
		append_init(a, a->first, copy);
		submit_bio(&a->bio);
	}
}

static void append_end(struct bio *bio)
{
	struct append *a = container_of(bio, struct append, bio), *first = a->first;
	struct cache *c = first->record->cache;

	flusher_wrote(&a->device->flusher);
	if (bio->bi_status) {
		if (append_again(c, a, !a->joining && atomic_inc_return(&first->failed) >= first->copies))
			return;
		cache_error(c, errors_write);
		set_device_failed(c, a->device, append_failed);
	}
	bio_uninit(bio);
	if (atomic_dec_and_test(&first->left))
		append_done(first);
}

/* The entries that change something when their record is applied: entry_acts(). */
static void log_apply_entries(struct cache *c, struct record *r)
{
	u32 i, n = larder_commit_entries(r->commit);
	struct larder_entry_in e;
	struct volume *v;

	if (!r->acts)
		return;
	for (i = 0; i < n; i++) {
		larder_commit_entry(r->commit, i, &e);
		if (!entry_acts(&e))
			continue;
		rcu_read_lock();
		v = rcu_dereference_raw(c->volumes[e.volume]);
		if (v && e.kind == LARDER_INTENT)
			marks_cleared(v, e.sector);
		else if (v)
			writeback_cleaned(v, &e);
		rcu_read_unlock();
	}
}

static void item_complete(struct item *it)
{
	struct larder_io *io = container_of(it, struct larder_io, item);

	if (unlikely(io->mover)) {
		move_applied(io);
	} else if (unlikely(it->error) && leave_may(it->volume)) {
		io->kind = IO_NONE;
		defer_bio(it->volume, larder_io_bio(io));
	} else {
		io_complete(larder_io_bio(io), it->error);
	}
}

/* The first record is complete and all before it are applied: its entries, its waiters.  Returns how much it was, in items. */
static noinline u32 log_apply_record(struct cache *c, struct record *r)
	__must_hold(&c->log.lock)
{
	struct log *log = &c->log;
	struct item *it, *next;
	struct larder_io *io;
	u32 n = 1 + larder_commit_entries(r->commit);

	list_del_init(&r->list);
	spin_unlock(&log->lock);
	if (!READ_ONCE(log->durable_frozen))
		log_apply_entries(c, r);
	spin_lock(&log->lock);
	c->segments[r->segment].sequence = r->sequence;
	WRITE_ONCE(log->applied_lsn, r->lsn);
	smp_store_release(&log->applied_sequence, r->sequence);	/* pairs with flush_op_issue() */
	/* FUA may be a write and a flush behind it, which succeeds where one that failed in between has dropped what was written */
	if (unlikely(c->doubt.on))
		r->fua = false;
	if (r->fua && !log->durable_frozen && log->durable_lsn == r->lsn - 1) {
		log->durable_lsn = r->lsn;
		log->durable_sequence = r->sequence;
	}
	trace_larder_applied(c, r);
	list_for_each_entry_safe(it, next, &r->acks, list) {
		io = container_of(it, struct larder_io, item);
		list_del_init(&it->list);
		n++;
		if (!it->error && log->durable_frozen)
			it->error = -EIO;
		if (!it->error && it->answer == ANSWER_DURABLE && (!r->fua || READ_ONCE(it->volume->behind))) {
			user_flush_fua(c, io);
			continue;
		}
		spin_unlock(&log->lock);
		item_complete(it);
		spin_lock(&log->lock);
	}
	segment_unpin(c, r->segment);
	if (unlikely(atomic_read(&r->readers))) {
		r->applied = true;
		list_add(&r->list, &log->read_from);
	} else {
		log_record_put(c, r);
	}
	user_flush_ready(c);
	return n;
}

/* What the sectors of m, which this item has replaced, leave to its slots.  A hint: what changes meanwhile does no harm. */
static void heat_take_over(struct cache *c, const struct item *it, const struct larder_map *m)
{
	const struct segment *seg = &c->segments[cache_segment(c, m->cache)];
	bool counts = segment_heat_counts(c, seg);
	u32 off = m->sector - it->sector, end = off + m->len, next;
	bool main = seg->stream == LARDER_STREAM_KEEP;
	unsigned int heat;
	u64 slot;

	for (; off < end; off = next) {
		next = round_down(off, LARDER_SLOT_SECTORS) + LARDER_SLOT_SECTORS;
		slot = (it->cache + off) / LARDER_SLOT_SECTORS;
		heat = larder_heat_get(&c->heat, (m->cache + (it->sector + off - m->sector)) / LARDER_SLOT_SECTORS);
		heat = larder_heat_overwritten(heat, counts, main);
		if (heat)
			larder_heat_raise(&c->heat, slot, heat);
	}
}

void log_replaces(struct item *it, const struct larder_map *m)
{
	u32 off = m->sector - it->sector, first = off / LARDER_SLOT_SECTORS, last = (off + m->len - 1) / LARDER_SLOT_SECTORS;

	if (first == last)
		__set_bit(first, it->replaces);
	else
		bitmap_set(it->replaces, first, last - first + 1);
	if (larder_state_dirty(m->state))
		it->gone_dirty += m->len;
	if (!larder_state_zero(m->state)) {
		it->gone += m->len;
		heat_take_over(it->volume->cache, it, m);
	}
}

/* Slots that took nothing's place, of blocks that the ghost knows, begin as those do that are kept. */
static void item_ghost(struct cache *c, const struct item *it)
{
	u64 slot = it->cache / LARDER_SLOT_SECTORS, block = it->sector / LARDER_SLOT_SECTORS;
	u32 i;

	for_each_clear_bit(i, it->replaces, it->nr_slots)
		if (larder_ghost_take(c->ghost, it->volume->number, block + i))
			larder_heat_set(&c->heat, slot + i, 1, LARDER_HEAT_KEPT);
}

/* It is in the index, or has failed: no bypass, and no copy, has to wait for it any more. */
static void item_leave(struct cache *c, struct item *it)
{
	struct larder_io *io = container_of(it, struct larder_io, item);

	if (unlikely(it->answer == ANSWERED)) {
		buffered_applied(c, it);
		return;
	}
	if (unlikely(io->pin) && !it->error)
		pin_set(it->volume, it->sector, it->cache, it->len, io->pin);
	race_end(c, it->volume, it->sector, it->len, io->mover ? RACE_RESYNC : RACE_WRITE);
}

/* The first item: into the index, then to its caller (or to its record's acks).  -ENOMEM: nothing has changed. */
static int log_apply_item(struct cache *c, struct item *it)
	__must_hold(&c->log.lock)
{
	struct log *log = &c->log;
	struct record *r = it->record;
	struct volume *v = it->volume;
	u8 state = it->kind == LARDER_ZERO ? LARDER_ST_ZERO : LARDER_ST_DIRTY;
	int err = 0;
	bool waits;

	list_del_init(&it->list);
	spin_unlock(&log->lock);
	if (c->state == CACHE_FAILED && !it->error)
		it->error = -EIO;	/* nothing counts behind an append that failed (rule 1) */
	if (!it->error)
		err = volume_map_store(v, it->sector, it->len, it->cache, state, state == LARDER_ST_DIRTY ? it : NULL);
	if (!err && !it->error && (it->nr_slots > 1 || !test_bit(0, it->replaces)))
		item_ghost(c, it);
	if (!err)
		item_leave(c, it);
	waits = it->answer == ANSWER_DURABLE || c->set.commit == COMMIT_ALWAYS;
	/* volume_unbind() waits for v->items */
	if (!err && !waits && it->answer == ANSWER_APPLIED) {
		item_complete(it);
		it = NULL;
	}
	spin_lock(&log->lock);
	if (err) {
		list_add(&it->list, &log->items);
		return err;
	}
	v->items--;
	r->items_left--;
	if (it && unlikely(it->answer == ANSWERED))
		buffered_put(log, it);
	else if (it)
		list_add_tail(&it->list, &r->acks);
	return 0;
}

/* log->lock held.  Rule 14: until the set without an SSD that has failed is durable, nothing counts. */
static bool log_is_held(const struct cache *c)
{
	return unlikely(c->log.held) && READ_ONCE(c->state) != CACHE_FAILED;
}

/* What can be applied next.  Returns how much, in items of up to 128 KiB; 0: nothing can; -ENOMEM: the index needs memory. */
static int log_apply_next(struct cache *c)
	__must_hold(&c->log.lock)
{
	struct item *it = list_first_entry_or_null(&c->log.items, struct item, list);
	struct record *r;
	int n = 0;

	if (log_is_held(c))
		return 0;
	if (it && it->done) {
		int most = 1 + it->len / 256;	/* one of zeroes may take thousands of extents away */

		n = log_apply_item(c, it);
		if (n)
			return n;
		n = most;
	}
	r = list_first_entry_or_null(&c->log.records, struct record, list);
	if (r && r->closed && r->commit_done && !r->items_left && !log_is_held(c))
		n += log_apply_record(c, r);
	return n;
}

/*
 * Interrupts are off, and other processors complete more meanwhile: what is left behind so many items is for log->work, or for the
 * next append that completes, whichever comes first.
 */
#define APPLY_ITEMS	64

/* log->lock held, interrupts off; lets go of it in between. */
void log_apply(struct cache *c)
{
	struct log *log = &c->log;
	int n = 0, done = 0;

	if (log->applying) {
		log->apply_again = true;
		return;
	}
	if (log->apply_stalled || log_is_held(c))
		return;
	log->applying = true;
	do {
		log->apply_again = false;
		while (done < APPLY_ITEMS && (n = log_apply_next(c)) > 0)
			done += n;
	} while (done < APPLY_ITEMS && n == 0 && log->apply_again);
	log->applying = false;
	if (n < 0)
		log->apply_stalled = true;
	log->apply_left = n > 0;
	if (n)
		log_kick(c);
	if (done) {
		/* its barrier: who waits looks at the ordinals after entering the queue */
		if (wq_has_sleeper(&log->wait))
			wake_up(&log->wait);
		/* soon, not at once: it looks at all that is deferred */
		if (!list_empty(&c->deferring))
			queue_delayed_work(c->io_wq, &c->defer_again, 1);
	}
}
