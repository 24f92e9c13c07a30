/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * larder in core: structures, lifetimes, lock order.
 *
 * Objects
 *   struct cache     one cache: SSDs, segments, log.  Counted; outlives tables.  In the registry while a table of `larder-cache`
 *                    lives.
 *   struct volume    one volume of a cache (its index is loaded even while its backing is absent), or a passthrough one
 *                    (cache == NULL).  Counted.
 *   struct record    a commit block in the making and the data slots it describes.  Write stream: log.c; fill and keep: copies.c.
 *   struct item      one user write in the write stream, in the bio's per-bio data.
 *
 * Ordinals: the write stream's records are numbered by lsn when they are OPENED; all records get a sequence number when they are
 * CLOSED.  log->applied_lsn and log->durable_lsn move in order: every record up to them is applied, or durable, in the sense of
 * docs/design.md.
 *
 * Locks, outermost first
 *   cache->users        (rwsem)  read by each message, and by a volume that leaves the cache, to the end: a suspend waits for them
 *   cache->forget_lock  (mutex)  one volume is forgotten after the other; nothing that volumes wait for takes it
 *   cache_target->lock  (mutex)  one change of the settings after the other; SSDs are written to under it
 *   cache_registry_lock (mutex)  the list of caches, and a volume's being bound; nothing waits for I/O under it
 *   cache->super_lock   (mutex)  superblock and table of the cache, their buffers and generations; volume->super_lock likewise
 *   cache->open_lock    (mutex)  opening of segments (SEGMENT_OPEN); checkpoint_lock: one checkpoint at a time
 *   log->lock           (spin, irqsave)  records, items, streams' heads, sequence numbers, opened segments, page stack.
 *                                Nothing is copied, summed, submitted or looked up under it
 *   cache->segments_lock (spin, irqsave)  segment states and queues; nests inside log->lock
 *   race_bucket->lock (spin, irqsave)  one at a time; region locks nest inside
 *   region locks of the index (irqsave, inside index.c): nothing nests inside but atomics
 *   volume->defer_lock (spin, irqsave)  cache->defer_lock nests inside, which is a leaf
 *   flusher->lock (spin, irqsave)  volume->marks_lock (spin, irqsave), a leaf, nests inside
 *   sums.lock (spin, process context)  a leaf, but for segments_lock
 *
 * Contexts: map() never waits; what would wait goes to cache->io_wq (defer_bio()).  End-io runs in interrupt context: it changes
 * indexes and completes bios, it never submits.  Works on io_wq never wait for other works; those that do (open, marks, checkpoint,
 * reclaim, writeback) have queues of their own.
 */
#ifndef LARDER_H
#define LARDER_H

#include <linux/bio.h>
#include <linux/blk-cgroup.h>
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/mempool.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rwsem.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "pure.h"
#include "larder_format.h"
#include "format.h"
#include "index.h"
#include "policy.h"
#include "class.h"
#include "congestion.h"
#include "speed.h"
#include "pace.h"
#include "settings.h"

#define DM_MSG_PREFIX "larder"

#define NO_MEMORY_MS	10u	/* pause before memory that nothing but an error could do without is asked for again */

struct cache;
struct volume;
struct record;

/* ------------------------------------------------------------------ counters: one on every distinct path (status.c prints them) */

#define LARDER_CACHE_COUNTERS(X) \
	X(appends) X(append_slots) X(gathered_appends) \
	X(commits) X(commits_full) X(commits_timer) X(commits_flush) X(commits_fua) X(commits_with_data) X(commits_asked) \
	X(fill_records) X(keep_records) X(summaries) \
	X(ssd_flushes) X(fua_appends) X(append_retries) \
	X(checkpoints) X(checkpoint_bytes) X(superblock_writes) X(segment_opens) X(chunk_opens) \
	X(reclaimed) X(reclaim_kept_slots) X(reclaim_moved_slots) X(reclaim_dropped_slots) X(reclaim_relinked) \
	X(reclaim_discards) X(discards_skipped) \
	X(checked_slots) X(unchecked_slots) X(sums_reads) \
	X(waits_space) X(waits_pace) X(waits_memory) X(waits_pool) \
	X(errors_read) X(errors_write) X(errors_checksum) X(errors_flush)

#define LARDER_VOLUME_COUNTERS(X) \
	X(read_hits) X(read_misses) X(read_mixed) X(read_bypass) X(read_zeroes) X(read_congested) X(read_buffered) \
	X(write_cached) X(write_buffered) X(write_through) X(write_around) X(write_bypass) X(write_zeroes) \
	X(write_congested) X(write_stripes) X(write_over_share) \
	X(discards) X(flushes) X(fuas) \
	X(read_hit_sectors) X(read_miss_sectors) X(write_cached_sectors) X(write_backing_sectors) \
	X(fills) X(fill_sectors) X(fills_dropped) X(fills_denied) X(fills_first) X(fills_over_share) \
	X(readaheads) X(readahead_sectors) \
	X(writeback_writes) X(writeback_sectors) X(writeback_superseded) \
	X(backing_flushes) X(marks_set) X(marks_cleared) X(deferred) \
	X(errors_read) X(errors_write) X(errors_flush) X(errors_checksum)

enum cache_counter {
#define X(n) C_##n,
	LARDER_CACHE_COUNTERS(X)
#undef X
	NR_CACHE_COUNTERS
};
enum volume_counter {
#define X(n) V_##n,
	LARDER_VOLUME_COUNTERS(X)
#undef X
	NR_VOLUME_COUNTERS
};
struct cache_counters { u64 n[NR_CACHE_COUNTERS]; };
struct volume_counters { u64 n[NR_VOLUME_COUNTERS]; };

#define cache_count(c, name, by)	this_cpu_add((c)->counters->n[C_##name], (by))
#define volume_count(v, name, by)	this_cpu_add((v)->counters->n[V_##name], (by))

/* Any context.  A device has failed a request: counted, and whoever looks after the machine is told, if that was not just done. */
#define cache_error(c, name) do { cache_count(c, name, 1); cache_tell_errors(c); } while (0)
#define volume_error(v, name) do { volume_count(v, name, 1); volume_backing_failed(v); } while (0)

/* ------------------------------------------------------------------ device flushes (flush.c; ordering rule 2) */

struct flush_wait {
	struct list_head list;
	u8 index;			/* its place in larder_io->wait */
	bool tells;			/* a user gets its error */
	void (*done)(struct flush_wait *w, int error);	/* interrupt context */
};

struct flusher {
	spinlock_t lock;		/* all below */
	struct block_device *bdev;
	struct cache *cache;		/* whose durable_lsn this flush moves: SSDs only */
	struct volume *volume;		/* backings only */
	bool needed;			/* something a caller may rely on completed here since the last flush was issued */
	bool own;			/* of a backing: so did something that only larder relies on, for its next flush */
	bool written;			/* of a backing: something has completed since its cache has seen it (age.c); no lock */
	bool failed;			/* sticky: no flush issued after the last failure has succeeded yet */
	/* of a backing, failed-flush-owed */
	bool acked;			/* something that a user was told is done completed here since the last flush was issued */
	bool owed;			/* a flush has failed that may have dropped such data, and no user was told */
	u64 issued;			/* number of the last flush issued */
	u64 fail_barrier;		/* a success counts against 'failed' only if issued later than this */
	/* of an SSD: applied when the newest flush that has succeeded was issued */
	u64 covered_lsn, covered_sequence;
	u64 covered_copies;		/* log->copies_sequence then */
	struct list_head in_flight;	/* of struct flush_op, in order of issue */
	atomic_t errors;		/* flushes and writes that have failed, and may have taken other data with them: rule 4 */
};

/* ------------------------------------------------------------------ segments (segment.c) */

enum segment_state {
	SEGMENT_FREE,
	SEGMENT_OPENING,		/* SEGMENT_OPEN appended, not durable yet */
	SEGMENT_OPENED,			/* durable; in its stream's queue */
	SEGMENT_ACTIVE,			/* being written */
	SEGMENT_SEALED,			/* in its stream's queue of age */
	SEGMENT_RECLAIMING,
	SEGMENT_WAITING,		/* empty; a named checkpoint's replay may need its records, or readers are still there */
	SEGMENT_MIRROR,			/* a further copy of another one: segment_first() */
	SEGMENT_LOST,			/* on an SSD that has failed, or takes no chunk: it is not used */
	SEGMENT_CHECKPOINT,
};

/* Is another copy read before the first? */
enum prefer_mirror {
	PREFER_NONE,
	MEND_COPIES,			/* no; but a start could not make another one what the first is: scrub_mend() */
	MENDING_COPIES,			/* the same, while that looks at it */
	PREFER_MIRROR,			/* the first could not be read, or does not match its checksums; or so this further one */
	PREFER_AND_MEND,		/* the same, found by a read, and not looked at since: scrub_mend() */
};

#define SEGMENT_COPIES	LARDER_COPIES	/* of a segment, at most */

struct segment {
	struct list_head list;		/* of its state or stream */
	atomic_t live;			/* sectors mapped by an index */
	atomic_t dirty;			/* of these, newer than the backing */
	atomic_t pins;			/* readers, writebacks, appends in flight */
	u8 state;			/* enum segment_state; segments_lock */
	u8 stream;
	bool relinked:1;		/* not to be put back young: its SSD is drained; reclaim_lock */
	bool settled:1;			/* its SSD is drained: judge_evacuate() has found it pinned; reclaim_lock */
	bool has_summary;		/* it may have one: reading it tells */
	u8 prefer_mirror;		/* enum prefer_mirror */
	bool foreign;			/* no block of its own was found, but one of another segment: segment_holds_another() */
	u16 stale;			/* slots of this copy, on an SSD that joins, that are not copied yet; segments_lock */
	/* the next copy of the same segment, behind the last the first: a ring; LARDER_NO_SEGMENT: there is one; segments_lock */
	u32 mirror;
	u64 sequence;			/* of its last record */
	u64 emptied;			/* log->next_sequence when it became free of what was mapped to it, 0: at the start */
	union {
		u64 born;		/* log position (slots written to the cache) when it was sealed: age for heat */
		u64 known_to;		/* WAITING: the last checkpoint that may have it as a second copy */
	};
	struct segment_sums *sums;	/* sums.lock; NULL: not kept */
	unsigned long damaged;		/* jiffies of when dirty data of it did not match its sum; 0: never */
	unsigned long stays;		/* jiffies of when there was no room to carry over what is in it; 0: never */
	u64 stuck;			/* c->writable when nothing dirty of it could be written back, or moved; 0: never */
};

/* ------------------------------------------------------------------ the log */

struct opened_list {			/* segments of a stream, in order; log->lock */
	u32 *segment;			/* ring */
	u32 size, head, count;		/* count: all; the first 'usable' have a durable SEGMENT_OPEN */
	u32 usable;
};

struct stream {				/* log->lock unless said */
	u8 number;			/* enum larder_stream */
	u32 segment;			/* being written, or LARDER_NO_SEGMENT */
	u32 head;			/* next slot of it */
	bool leave;			/* a write to it failed: the next record goes elsewhere (clean copies) */
	u64 last_sequence;		/* of the last record closed */
	u64 built_sequence;		/* of the last commit block built; sender only */
	u32 built_crc;
	u64 pinned_sequence;		/* a checkpoint wants this record's crc: the sender leaves it in pinned_crc */
	u32 pinned_crc;
	struct list_head unbuilt;	/* closed records that are not sent, in order */
	struct opened_list opened;
	u32 summary_segment;		/* of what follows; sender only, like all of it; also sums.lock: it and sums */
	struct larder_entry_in *entries;	/* those with data, for the summary of that segment */
	u32 nr_entries;
	u32 *sums;			/* by slot */
	u32 nr_sums;
	u64 first_sequence, summary_sequence;	/* of that segment's first and newest record */
};

#define RECORD_SLOTS	LARDER_RECORD_SLOTS

enum close_reason { CLOSE_FULL, CLOSE_TIMER, CLOSE_FLUSH, CLOSE_FUA, CLOSE_WITH_DATA, CLOSE_ASKED };

struct record {
	struct list_head list;		/* log->records (write stream, by lsn), log->copies (others), or the free list */
	struct list_head unbuilt;	/* stream->unbuilt */
	struct cache *cache;
	u8 stream;
	u64 lsn;			/* write stream only */
	u64 sequence;			/* when closed */
	u64 prev_sequence;
	u32 segment;
	u16 first, end;			/* data slots [first, end) reserved so far */
	u16 ready;			/* [first, ready) are copied: may be submitted */
	u16 submitted;			/* [first, submitted) are in appends */
	u16 items_left;			/* items not applied yet */
	u16 copying;			/* items reserved, not copied yet */
	bool closed;			/* no more entries; its commit block stands at slot 'end' */
	bool commit_done;		/* it is on the SSD */
	bool acts;			/* among its entries are some for log_apply_entries() */
	bool seals;			/* last record of its segment: the summary follows */
	bool fua;			/* durable when complete: everything before it was durable at submission */
	u8 close_reason;		/* CLOSE_FUA: its last write is one, or a zeroing */
	int error;
	ktime_t opened_at;
	DECLARE_BITMAP(copied, RECORD_SLOTS + 1);
	u32 sums[RECORD_SLOTS];
	/* by slot - first; behind the last data slot, once closed, the commit block's.  Whole slots: only pages come and go */
	struct bio_vec vec[RECORD_SLOTS + 1];
	struct page *commit_page;
	struct larder_commit *commit;	/* in it */
	struct list_head acks;		/* items that wait until this record is applied (commit=always, FUA) */
	/* of writes that were acknowledged from memory (buffered.c): */
	bool buffered;			/* there are some */
	bool applied;			/* it is, and waits for its readers in log->read_from */
	atomic_t readers;		/* they copy from its pages; and what is lost, which stays there */
	struct list_head copies;	/* struct copy: fill and keep only, as all below, which is of its append */
	atomic_t writes_left, writes_failed;	/* one for each copy of the segment; and one while it is submitted */
	u8 writes;			/* those that count */
	u8 joining;			/* bits: the first one, or a further one, does not */
	u32 copy[SEGMENT_COPIES];	/* of the segment, itself first */
	struct item *items[RECORD_SLOTS];	/* by first slot */
};

/* Who answers its caller: log_apply_item(), at once; it, when the record is applied; nobody: it was answered from memory. */
enum item_answer { ANSWER_APPLIED, ANSWER_DURABLE, ANSWERED };

/* A user write in the write stream; lives in struct larder_io, or in log->ring. */
struct item {
	struct list_head list;		/* log->items in log order, then perhaps record->acks */
	struct record *record;
	struct volume *volume;
	u64 sector;
	u64 cache;			/* linear cache sector; ZERO: serial */
	u32 len;			/* sectors */
	u16 slot, nr_slots;		/* of the record's segment */
	u32 gone, gone_dirty;		/* volume_map_store(): sectors that were cached, and dirty, where it is now */
	DECLARE_BITMAP(replaces, RECORD_SLOTS);	/* its slots: something was mapped where they are now */
	u8 kind;			/* LARDER_WRITE, LARDER_ZERO */
	bool done;			/* its data is on the SSD */
	u8 answer;			/* enum item_answer; DURABLE: FUA */
	int error;
};

/* RUNS: it has seen all that asked.  AGAIN: somebody has asked since. */
enum log_sending { SEND_IDLE, SEND_RUNS, SEND_AGAIN };

struct log {
	/*
	 * irqsave; all below, but what a stream's sender collects.  timer_armed and apply_stalled are also cleared without it, and
	 * READ_ONCE() looks at ordinals without it.
	 */
	spinlock_t lock;
	u64 next_lsn;			/* of the next record to be opened */
	u64 next_sequence;
	u64 applied_lsn, applied_sequence;
	u64 durable_lsn, durable_sequence;
	u64 copies_sequence;		/* every record of fill and keep before this one is complete */
	bool durable_frozen;		/* an append failed: durable_sequence is not written to commit blocks any more */
	u64 position;			/* slots appended since start, all streams */
	struct stream stream[LARDER_NR_STREAMS];
	struct record *open;		/* of the write stream */
	struct list_head records;	/* write stream: opened, not applied, by lsn */
	struct list_head copies;	/* fill and keep: closed, not complete */
	struct list_head items;		/* accepted, not applied, in log order */
	struct list_head free_records;
	struct buffered *ring;		/* of writes that were acknowledged from memory, in log order; NULL: there never was one */
	u32 ring_size, ring_head, ring_tail;
	struct list_head read_from;	/* records that are applied, and read from, or have what is lost */
	struct append *free_appends;
	struct append *again;		/* those that have failed, and are to be sent again */
	u32 nr_free_appends;
	bool starved;			/* something could be sent, and no append was left */
	bool overdue;			/* the open record leaves once fewer appends are on their way: log_close_due() */
	struct page **free_pages;
	u32 nr_free_pages, nr_pages;
	u32 nr_records;
	unsigned int in_flight;		/* appends */
	unsigned int slots_in_flight;	/* data slots of these */
	atomic_t sending;		/* enum log_sending: one sender at a time.  Only its end (IDLE) is not under the lock */
	bool held;			/* an SSD has failed: nothing counts before the set without it is durable (rule 14) */
	bool applying;			/* one applier at a time */
	bool apply_again;
	bool apply_stalled;		/* the index needs memory: the worker goes on */
	bool apply_left;		/* there was more than one interrupt should do: the worker goes on */
	unsigned int flush_follows;	/* learnt: how often a flush followed a single write lately (0..8) */
	u32 zero_serial;		/* of ZERO entries in this epoch */
	u32 writes_since_flush;
	unsigned long full_since;	/* jiffies: a record of a user's found no space, and none has since; 0 */
	struct list_head flush_waiters;	/* larder_io of user flushes, waiting for applied_lsn >= target */
	wait_queue_head_t wait;		/* applied_lsn, durable_lsn, copies, opened segments: any progress */
	struct hrtimer timer;
	bool timer_armed;
	struct work_struct work;	/* submits what was gathered, commits by timer, goes on applying */
	struct delayed_work again_work;
};

/* ------------------------------------------------------ races between copies and writes (rules 4, 5, 7): hashed by 2 MiB region */

struct race_bucket {
	spinlock_t lock;		/* all below; irqsave; region locks nest inside */
	u32 writes;			/* cached writes in flight */
	u32 bypasses;			/* bypassed and written-through writes, discards in flight */
	u32 writebacks;			/* writes of writeback in flight, and what resync copies, until that is applied */
	u32 resyncs;			/* of these */
	u64 turn_until;			/* get_jiffies_64(): no write or writeback begins before, for a bypass that has waited */
	struct list_head copies;	/* struct copy_link: copies whose range begins or ends here */
	struct list_head buffered;	/* struct buffered: acknowledged from memory, not in the index */
	u64 barrier_lsn;		/* a bypass needs applied_lsn >= this (CLEAN or INVALIDATE of dirty data pending) */
};
#define RACE_BUCKETS_SHIFT 12
#define WRITEBACK_GROUP_PAGES 256u	/* a write of 1 MiB at most */

/* ------------------------------------------------------------------ cache */

struct cache_device {
	struct dm_dev *dev;		/* of the live table */
	struct block_device *bdev;
	u8 uuid[16];
	u32 first_segment, nr_segments;
	struct list_head free;		/* its FREE segments; segments_lock */
	u32 nr_free, nr_lost;		/* those that are so; segments_lock */
	sector_t start;			/* sectors: of its first segment */
	unsigned int lbs;		/* bytes */
	bool failed;			/* no member: it is not read from, nor written to unless it joins; log->lock to change it */
	bool joining;			/* no member yet, but sent all that its segments are; log->lock to change it */
	bool doubtful;			/* failed, and may alone have dirty data (set_judge()); log->lock to change it */
	bool untold;			/* a member that its own table does not name yet; log->lock to change it */
	bool draining;			/* a member that no segment is opened on; log->lock to change it */
	bool removed;			/* failed, and not missed: drained, dismissed, or none yet; log->lock to change it */
	u8 role;			/* enum larder_device_role; super_lock to change it */
	struct flusher flusher;
	bool refuses_discards;		/* one has failed */
	bool refuses;			/* an attempt to end this doubt has found that it takes no write; doubt.lock */
	struct larder_cache_sb *sb;	/* super_lock */
	u64 written;			/* generation of the last one that both its copies have got; super_lock */
};

/* segments_lock held, or for a number that is shown: those that are neither free nor passed over */
static inline u32 device_segments_used(const struct cache_device *d)
{
	return d->nr_segments - d->nr_free - d->nr_lost;
}

/* What segments are needed for: the write stream and checkpoints; fill and keep.  An SSD's role says which it is for. */
enum segment_use { USE_LOG, USE_CLEAN, NR_SEGMENT_USES };

/* What a scrub has found (scrub.c) */
struct scrub_counts {
	u64 slots;			/* read */
	u64 errors;			/* damaged: each copy of a slot or block counts */
	u64 repaired;			/* of these: overwritten with what another copy has */
	u64 dropped;			/* clean slots without a copy that left the index; blocks that are not needed any more */
	u64 unrepairable;		/* dirty slots without a copy; copies that could not be overwritten */
};

enum scrub_state { SCRUB_IDLE, SCRUB_RUNNING, SCRUB_DONE, SCRUB_STOPPED, SCRUB_FAILED };

struct scrub {
	struct mutex lock;		/* begin and stop */
	struct delayed_work work;	/* whose is what follows while the state is SCRUB_RUNNING; others look */
	bool mend;			/* some segment may be PREFER_AND_MEND, or MEND_COPIES */
	bool begins;			/* a scrub waits for the work to end what it mends */
	u32 mended_last;		/* the segment that was looked at last for that; the work */
	u64 mended;			/* slots; the work */
	unsigned long mend_break;	/* jiffies, before the next one: it could not be read; the work */
	enum scrub_state state;
	u32 pos;			/* next segment */
	u32 tries;			/* of that one */
	bool forget;			/* something was dropped that a named checkpoint may show */
	u64 due_ns;			/* of the next segment, by scrub_rate */
	struct scrub_counts n;
	struct scrub_pass *pass;
};

/* A flush of an SSD has failed that stays in the set, or a write: doubt.c.  log->lock, but for the last three */
struct flush_doubt {
	bool on, certain;		/* not certain: it is suspected alone */
	u32 suspects;			/* writes that have failed, and are sent again to know why */
	u32 begun, ended;		/* attempts to end it: number of the newest, and of the newest that has ended; 0: none */
	u32 settled;			/* the newest that has ended one; 0: none */
	int error;			/* of the one that has ended */
	u32 failures;			/* flushes, and writes, that have failed */
	u32 counted;			/* by the attempt: as step 1 began; the attempt only */
	u64 from, copies_from;		/* may be gone: records of the write stream behind, of others from these on */
	u32 first;			/* attempt, of this doubt */
	bool behind;			/* a checkpoint behind the hole has been named; the attempt only */
	struct task_struct *by;		/* who is at an attempt: its own flushes count */
	struct mutex lock;		/* one attempt at a time */
	u32 resent, counted_resent;	/* of the failures: appends that are sent again; when the attempt began to count */
	unsigned long asked;		/* jiffies: when each SSD was asked whether it takes a write; 0: not in this doubt; lock */
	struct delayed_work work;
	unsigned int wait;		/* seconds until the next attempt that nobody asks for */
};

/* waiting: there is no room, or an SSD joins; failed: some could not be read, it is tried again */
enum resync_state { RESYNC_IDLE, RESYNC_RUNNING, RESYNC_WAITING, RESYNC_FAILED };

struct resync {
	struct work_struct work;
	enum resync_state state;	/* leaves RESYNC_IDLE by resync_begin(), comes back by the work */
	atomic64_t copied;		/* sectors, since it began */
	bool said;			/* that it began */
	bool alone;			/* as it began something was on one SSD only */
	bool raising;			/* no SSD is lost, and what is dirty may be on one only: none can be spared */
	unsigned long again;		/* jiffies: RESYNC_FAILED: of the next try */
};

/* Checksums of segments in memory (sums.c) */
struct sums {
	spinlock_t lock;		/* all below, segments[].sums, sums and summary_segment of the streams; process context */
	struct list_head kept;		/* struct segment_sums, least recently used first */
	u32 nr, most;
};

enum cache_state { CACHE_LOADED, CACHE_RUNNING, CACHE_SUSPENDED, CACHE_FAILED };

/* ------------------------------------------------------------------ congestion (admit.c, congestion.c) */

enum ssd_direction { SSD_READ, SSD_WRITE, NR_SSD_DIRECTIONS };

struct ssd_probe {
	unsigned long looked;		/* jiffies: once each it is asked whether a request is to be timed */
	spinlock_t lock;		/* irqsave; all below, but share and debt of the state, see congestion.h */
	bool in_flight;			/* one is */
	u64 began;			/* ns */
	unsigned long told;		/* tell_again() */
	struct larder_congestion state;
};

/* What is not so on every cache, and reads must look at: an SSD of blocks of more than 512 bytes; writes in memory (buffered.c) */
#define LOOK_LARGE	1u
#define LOOK_BUFFERED	2u

struct named_checkpoint {		/* super_lock */
	u64 sequence, replay_sequence, bytes, hash;
	u32 first_segment, epoch;
	u64 first_further;		/* its further copies: larder_further() */
	u32 replay_segment;		/* the write stream was in it; LARDER_NO_SEGMENT: in none, or it is one of a former run */
	u32 *segments;			/* of its chunks */
	u32 nr_segments;
};

struct cache {
	struct list_head registry;	/* cache_registry_lock */
	struct kref ref;
	struct gendisk *disk;		/* of the dm device that is its handle: compared, never dereferenced */
	dev_t devt;			/* of the same */
	struct dm_target *ti;		/* of the live table, for events; cache_registry_lock */
	struct mutex targets_lock;	/* targets, and that they are suspended with it */
	struct list_head targets;	/* volume_target.sibling */
	struct work_struct event_work;	/* raises the event of a state that changed in interrupt context */
	unsigned long errors_told, full_told;	/* tell_again() */
	bool suspending;		/* no volume may be bound; cache_registry_lock */
	struct rw_semaphore users;	/* read: by cache_enter() */
	u8 uuid[16];
	char label[LARDER_LABEL_SIZE + 1];
	enum cache_state state;
	bool started;			/* loaded, replayed, epoch begun */
	struct cache_settings set;
	u32 nr_devices;
	u8 look;			/* LOOK_*: what reads must look at; cache_registry_lock to change it */
	u32 nr_failed;			/* of dev[]; log->lock to change it, as the two below */
	u32 nr_joining;			/* of these; 0 or 1 */
	u32 nr_draining;		/* of the members; 0 or 1 */
	u32 failures;			/* in all, and other changes of who holds copies: whoever finds it changed asks again */
	struct cache_device dev[LARDER_MAX_DEVICES];
	u32 segment_sectors, segment_slots, data_slots;	/* data_slots: without the summary */
	u32 record_slots;		/* data slots of a record, at most */
	u32 segment_shift;		/* log2 of segment_sectors */
	u32 nr_segments;
	u32 epoch;
	u64 hash;			/* of the epoch's records */
	u64 secret;

	spinlock_t segments_lock;	/* irqsave; segments' states, their queues and counts, keep_sequence */
	struct segment *segments;
	struct list_head waiting;
	struct list_head sealed[LARDER_NR_STREAMS];	/* oldest first */
	u32 nr_state[SEGMENT_CHECKPOINT + 1];
	u32 nr_sealed[LARDER_NR_STREAMS];
	u32 reserve_checkpoint;		/* free segments that only a checkpoint may take */
	u32 reserve_roles;		/* the same, for whether roles can be honoured: it does not follow each small step down */
	u64 checkpoint_bytes;		/* of the newest, or of one now, if that is more */
	u32 checkpoint_tried;		/* segments that one lacked room for, 0: none since the newest; checkpoint_lock */
	u32 chunk_failed;		/* whose chunk the last one could not write, or LARDER_NO_SEGMENT; checkpoint_lock, as: */
	u32 settle_failed;		/* attempts in a row to write a superblock that is in doubt */
	unsigned long settle_since;	/* jiffies of the first of them */
	u64 keep_sequence;		/* records with this sequence number and later may be replayed */
	u64 keep_checkpoint;		/* the older one that is named */

	struct log log;
	struct sums sums;
	struct race_bucket *races;
	struct larder_heat heat;
	struct larder_ghost *ghost;

	struct mutex super_lock;	/* table, its place and the generations, sb of dev[], named[], writes to volumes[] */
	struct larder_table *table;
	u64 table_generation;		/* as the superblock says it: older tables do not count */
	u64 set_generation, sb_generation;
	u64 all_generation;		/* of the superblocks: every member has had it, durably; super_lock */
	u32 members;			/* bits by number: ACTIVE by the tables, where one is in doubt by either; super_lock */
	bool accept_older;		/* in the table that starts it: so be it if a member has not got that any more */
	u64 set_durable;		/* the newest one that all members have: backings are told no other; super_lock */
	u32 table_places;		/* SSDs by the table that is in both places of all members */
	bool table_in_b;		/* the newest table is copy B */
	bool third;			/* the superblocks say, or some do, that segments may have a third copy; super_lock */
	bool third_durable;		/* all do: they may be given one */
	u32 nr_thirds;			/* rings of three; segments_lock */
	u64 third_until;		/* newest checkpoint that may know, or whose log may name, one; checkpoint_lock */
	struct named_checkpoint named[LARDER_NR_CHECKPOINTS];	/* [0] the newest; sequence 0: none */
	struct named_checkpoint doubtful;	/* its superblock could not be written: neither named nor free; checkpoint_lock */
	u64 checkpoint_sequence;

	struct volume *volumes[LARDER_MAX_VOLUMES];	/* by number; RCU for readers, super_lock for writers */

	struct bio_set bios;		/* those of ours that have no place of their own */
	mempool_t page_pool;		/* of writeback: WRITEBACK_GROUP_PAGES at least */
	struct mutex page_pool_lock;	/* one takes what it needs of it, waiting for memory or pages; nothing else */
	struct workqueue_struct *io_wq;	/* never waits for other works */
	struct workqueue_struct *set_wq, *open_wq, *reclaim_wq, *meta_wq, *bg_wq;	/* each may wait for those before it */
	spinlock_t defer_lock;		/* irqsave; deferring */
	struct list_head deferring;	/* volumes that have deferred requests */
	struct delayed_work defer_again;
	struct work_struct answer_work, copy_work;
	spinlock_t copy_lock;		/* irqsave; fills_read, fills_done */
	struct list_head fills_read;	/* struct fill: read, to be copied to their callers */
	struct list_head fills_done;	/* struct fill: to be handed to the fill stream */
	struct delayed_work copy_timer;
	struct mutex copies_lock;	/* open records of fill and keep, and their closing */
	struct record *open_copies[LARDER_NR_STREAMS];
	struct mutex forget_lock;	/* one volume is forgotten at a time; outside of checkpoint_lock and super_lock */
	struct mutex open_lock, checkpoint_lock, reclaim_lock;
	spinlock_t pace_lock;		/* pace, wrote, but to look; irqsave */
	unsigned long wrote;		/* jiffies: when users' writes last asked for room in the log */
	atomic64_t writable;		/* how often what is dirty could be written back that could not before; segment->stuck */
	unsigned long refused;		/* jiffies: segments are stuck since then which a disk has refused; 0: none */
	struct larder_pace pace;	/* of users' writes, while reclaim writes back to make room */
	unsigned long discard_after;	/* jiffies; of a segment; open_lock */
	u64 *any_sectors;		/* LARDER_MAX_VOLUMES of ~0: bounds of volumes are not checked where the index decides */
	struct work_struct open_work, reclaim_work, checkpoint_work;
	struct work_struct set_work, lost_work, join_work, drain_work;
	struct work_struct refill_work;	/* bg_wq: reserves of the indexes; may wait for memory */
	struct mutex set_lock;		/* one change of the set at a time; outside of super_lock */
	struct scrub scrub;
	struct flush_doubt doubt;
	unsigned long *bad_slots;	/* bit per slot: dirty data there does not match its sum; NULL: there never was one */
	struct resync resync;
	struct mutex move_lock;		/* while a piece is looked up and goes into the log: cache_forget(), marks_resize() */
	bool shape_pause;		/* the cache is about to stand still: join_work, drain_work, the scrub and the resync end */
	dev_t joining_dev;
	u32 join_copied;		/* slots */
	u32 drain_left;			/* segments */
	bool roles_ignored;		/* open_lock: said so */
	u32 unmirror_pos;		/* cache_tick() only: where segments_unmirror() goes on */
	/* where the replay of the checkpoint that is being written begins: it keeps its copies, which are named later than it is */
	u32 captured_segment;
	struct delayed_work tick;	/* once a second: rates, flags, idle marks */
	bool resting;			/* there is nothing to do: it does not run.  Set under log->lock */
	u32 rest_ticks;			/* cache_tick() only, both: so often in a row there was nothing to do; */
	u64 rest_sequence;		/* log->next_sequence then */
	u64 log_bytes_at_checkpoint;	/* log->position when the last checkpoint began */
	bool want_checkpoint;
	bool want_commit;		/* a request waits for the open record */
	u8 memory_pressure;		/* 1: at the limit: no fills; 2: beyond: clean extents go, new blocks bypass */
	struct ssd_probe probe[NR_SSD_DIRECTIONS];
	unsigned long *pins[LARDER_CLASS_PINS];	/* bit per slot; NULL until a volume needs it */
	atomic64_t pins_bytes, pinned;	/* their memory; slots pinned */
	atomic_t guaranteed;		/* percent, of all volumes */
	atomic_t summaries_in_flight;
	bool stopping;
	atomic_t fills_in_flight;
	atomic64_t live_sectors, dirty_sectors;
	atomic64_t lost_sectors;	/* acknowledged from memory, in no copy on an SSD, and the cache has failed */
	struct cache_counters __percpu *counters;
	u64 replayed_records, replayed_bytes, start_ms;
	unsigned int live_volumes;	/* bound to live tables; cache_registry_lock */
	u64 fixed_bytes;		/* memory that does not change */
};

/* ------------------------------------------------------------------ volume */

enum mark_state { MARK_WANTED, MARK_SETTING, MARK_SET, MARK_CLEARING, MARK_CLEARED };
struct mark {
	struct list_head list;		/* volume->marks, least recently used first */
	u64 region;			/* of 64 MiB */
	u8 state;
	u32 in_flight;
	unsigned int errors;		/* of the flusher, before anything was written under it */
	unsigned long used;		/* jiffies */
};

/*
 * Is everything on the backing, which knows that what the cache has is stale?  UNDECIDED: what would change something waits.
 * REFUSED: it gets errors; but what is dirty may be on its way to the backing still, and then it is DONE.
 */
enum volume_leave { LEAVE_UNDECIDED, LEAVE_DONE, LEAVE_REFUSED };

struct volume {
	struct kref ref;
	struct cache *cache;		/* NULL: passthrough */
	u16 number;
	u8 uuid[16];
	char label[LARDER_LABEL_SIZE + 1];
	u64 sectors;
	u64 incarnation;
	u64 seen;			/* age.c; cache->super_lock to change it */
	u64 noted;			/* age.c: of seen, what every table has had since this start, durably; 0: nothing */
	unsigned long seen_when;	/* jiffies */
	bool see_failed;		/* a superblock could not be written for it: not again while it is bound */
	struct larder_index *index;
	struct volume_settings set;

	/* what goes to the SSD: admit.c */
	struct class_table __rcu *classes;	/* NULL: the preset default */
	atomic64_t pinned[LARDER_CLASS_PINS];	/* slots, by ordinal of the rule */
	u8 pin_percent[LARDER_CLASS_PINS];	/* of the cache: its limit */
	int guaranteed;			/* percent of the cache, as counted in cache->guaranteed */
	u32 stripe, stripe_phase;	/* sectors; 0: the backing has none.  A stripe begins where sector + phase is a multiple */

	/* bound to a live table */
	bool active;
	bool forgotten;			/* cache_forget() is at work: cannot be bound any more; cache_registry_lock */
	bool backing_flushed;		/* rule 10: once after the start of the cache, before the first read */
	struct dm_target *ti;		/* for events; cache_registry_lock */
	struct block_device *bdev;
	sector_t data_start;		/* sectors */
	struct mutex super_lock;
	struct larder_volume_sb *sb;
	bool b_first;			/* of its two superblocks the first is newer than the copy; super_lock */
	bool may_be_dirty;		/* durable on the backing; log->lock for clearing (rule 11) */
	bool raised;			/* passthrough: both copies have a raised incarnation, or need not */
	/* attempts of doubt.c: the first of the doubt, and the last, in which dirty data of it was found gone; 0: none */
	u32 doubt_first, doubt_lost;
	u32 leave;			/* enum volume_leave: where the cache has failed; leave.c */
	bool leave_drains;		/* CLEAN_VOID is durable: what is dirty is written back past the log */
	u8 leave_vain;			/* batches in a row that brought nothing; writeback_lock */
	bool clean_voided;		/* the index has nothing CLEAN of before CLEAN_VOID */
	unsigned long leave_since;	/* jiffies: requests wait since then */
	struct work_struct leave_work;	/* larder_wq; holds a reference while it is queued */
	struct work_struct event_work;	/* larder_wq; queued while it is active only */
	unsigned long errors_told;	/* tell_again() */
	u32 items;			/* in log->items; log->lock */
	unsigned long clean_since;	/* jiffies; 0: dirty */
	/*
	 * Newest record by which it has other dirty data than before: a write, zeroes, a CLEAN, an INVALIDATE of dirty data.  Must
	 * be durable before the flag is cleared, and for a flush to be spared the SSDs (user_flush_spares_ssd()).  log->lock
	 */
	u64 last_dirty_lsn;

	struct flusher flusher;
	struct larder_seq *seq;
	struct larder_speed speed[2];	/* of streams of reads, and of writes; racy */
	atomic64_t cached_sectors, dirty_sectors;

	spinlock_t marks_lock;		/* irqsave; struct mark, marks_lru, nr_marks, nofill*; the bits of known are atomic */
	struct xarray marks;		/* region -> struct mark */
	struct list_head marks_lru;
	u32 nr_marks;
	bool marks_stopping;		/* the volume is about to be unbound: all are cleared, none is set */
	/* what waits for this backing, or its marks, is each volume's own: one that hangs stops nobody else */
	struct work_struct mark_work, tick_work;	/* meta_wq */
	struct work_struct flush_work;	/* io_wq */
	struct list_head flush_ready;	/* log->lock: larder_io of flushes that may go to the devices: flush_work */
	unsigned long marks_looked;	/* jiffies: for idle ones; while there is I/O beside them each costs the disk a flush */
	u32 marks_to_clear;		/* marks_work only, both */
	bool clearing_again;		/* the log had no room for all clearings */
	unsigned long *known;		/* bit per 64 MiB: index, checkpoint, log or a fill may know something of it */
	/* bypassed without a mark: not filled before the next flush of the backing */
	unsigned long *nofill, *nofill_flushing;
	bool nofill_any, nofill_flushing_any, nofill_some;	/* the last: one of the others; read without the lock */
	u64 nofill_flush_number;	/* of the flush that nofill_flushing waits for */
	u64 nr_mark_regions;

	spinlock_t defer_lock;		/* irqsave; the two that follow; outside of that of the cache */
	struct bio_list deferred;
	u32 nr_deferred;		/* with those that the work has taken */
	struct list_head deferring;	/* cache->deferring */
	struct work_struct defer_work;	/* io_wq; without a cache larder_wq */
	u64 turn_until;			/* get_jiffies_64(): a request of it has a turn in the race buckets; defer_work only */

	struct delayed_work writeback_work;
	struct mutex writeback_lock;	/* one batch at a time */
	struct larder_rate rate;
	u64 writeback_pos;
	bool zeroes_as_data;		/* the backing's command for zeroes has failed, or was refused */
	bool writeback_singly;		/* the last batch was written in vain: the next one write by write; writeback_lock */
	int dirty_error;		/* of an attempt to set may_be_dirty, until a write has met it */
	bool behind;			/* the backing does not know the set of SSDs (rule 14); super_lock to change it */
	bool want_dirty;		/* a write waits for may_be_dirty; marks_work sets it */
	bool flushing;			/* message flush */
	bool writeback_urgent;		/* reclaim waits for it: full speed */
	struct larder_batch batch;	/* how many pieces are written back together; writeback_lock to change it */
	bool writeback_beside;		/* the batch at hand is a short one, beside readers; writeback_lock */
	bool emptying;			/* option quiet: begun, and goes on until nothing is dirty; writeback_work() only */
	u64 clean_lsn;			/* of the last batch's CLEAN records */
	unsigned long writeback_backoff;	/* jiffies */
	int writeback_error;		/* of the last batch; writeback_lock to change these */
	unsigned long writeback_tried, writeback_retry;	/* jiffies: when it failed, when the background tries again */
	unsigned long damaged;		/* jiffies of when dirty data of it did not match its sum; 0: never; writeback_lock */
	u32 unreadable_row;		/* pieces of a batch in a row that no copy gives; writeback_lock */
	unsigned long unreadable;	/* jiffies of the event for dirty data that could not be read; 0: never */
	unsigned long refused;		/* the same, for writes that a full cache refused */
	atomic_t fills;			/* in flight */
	atomic_t fill_pages;		/* that they hold */
	atomic_t backing_reads;		/* user reads in flight there */
	unsigned long backing_silent;	/* jiffies: since then it has answered none of them */
	unsigned long backing_failed;	/* jiffies: of its last error; 0: never */
	unsigned long last_io;		/* jiffies: of any user I/O to the backing */
	unsigned long last_user_io;	/* jiffies: of any user I/O */
	struct volume_counters __percpu *counters;
};

/* What of a volume a table holds: ti->private of `larder` */
struct volume_target {
	struct dm_target *ti;
	struct dm_dev *backing, *cache_dev;
	struct cache *cache;		/* counted */
	struct volume *volume;		/* counted; NULL until preresume where it is attached then */
	struct volume_settings set;
	struct larder_volume_sb *sb;	/* as read by the constructor */
	bool sb_whole;			/* both copies on the backing say what preresume has read: super_volume_whole() */
	bool b_first;			/* of those two only the first says it */
	bool discard_stale;
	bool accept_older;		/* than the cache has seen: the user knows that it is the one */
	bool blocks_fit;		/* nothing is cached in pieces of less than a block of the backing */
	u64 grows_from;			/* sectors by the superblock, if the table has more, until it was resumed; else 0 */
	u32 given_mask;			/* options given, a bit per key: the printed table has them even if they are the default */
	struct mutex lock;		/* preresume and message discard_dirty */
	struct list_head list;		/* of all; cache_registry_lock */
	struct list_head sibling;	/* cache->targets; its targets_lock */
	bool live;			/* bound; cache_registry_lock */
	bool suspended;			/* internally, because its cache is; the cache's targets_lock */
	struct task_struct *resumed_by;	/* taking that back just now: whoever it is knows it for itself */
	bool noflush;			/* the suspend under way */
};

/* What of a cache a table holds: ti->private of `larder-cache` */
struct cache_target {
	struct dm_target *ti;
	struct cache *cache;		/* counted; replaced under lock and cache_registry_lock: cache_target_get() */
	u32 nr_devices;
	struct dm_dev *dev[LARDER_MAX_DEVICES];	/* by device number, as c->dev[] */
	struct larder_cache_sb *sb[LARDER_MAX_DEVICES];	/* by device number, as read by the constructor; NULL: absent */
	struct larder_table_device place[LARDER_MAX_DEVICES];
	u32 absent;			/* bits by device number: '-' in the table */
	u32 joins;			/* the SSD that is to join is not counted among the others: 1 + its number, or 0 */
	bool began;			/* it has begun to, says the table of the SSDs */
	struct mutex lock;		/* set, and its being brought to the cache: preresume, message 'set' */
	bool accept_older;		/* a member that lacks what all had; for one start */
	struct cache_settings set;
};

/* ------------------------------------------------------------------ per-bio data */

enum io_kind { IO_NONE, IO_HIT, IO_MISS, IO_WRITE, IO_FLUSH, IO_BYPASS, IO_DISCARD, IO_FILL, IO_THROUGH, IO_PASS };

/*
 * A read of an SSD failed: clean data leaves the cache, of dirty data another copy is read; or the SSD takes no such vectors.  Or
 * one of the backing, which was asked for what an SSD has as well.
 */
enum io_retry { RETRY_NONE, RETRY_ELSEWHERE, RETRY_BOUNCED, RETRY_HERE };

struct larder_io {
	/* from here to 'volume': zero when a bio arrives; io_begin() */
	u8 kind;			/* enum io_kind */
	bool raced;			/* bucket counters are held */
	bool marked;			/* a mark is held */
	bool fua;
	bool only_ssd;			/* IO_FLUSH: a cached FUA write, the backing need not be flushed */
	bool of_data;			/* IO_FLUSH: dm sends it in front of a write, and drops its error */
	bool again;			/* IO_FLUSH: committed and applied, only the devices are left */
	u8 stage;			/* IO_FLUSH: SSDs whose flush is under way, and one; 0: not begun */
	u8 retries;			/* enum io_retry */
	u8 turns;			/* that a bypass had */
	u8 state;			/* IO_HIT: enum larder_extent_state */
	bool bypass;			/* as judged: does not fill; a write goes to the backing where rules 5 and 6 let it */
	bool probe;			/* IO_HIT: it is timed */
	bool spared;			/* IO_MISS: an SSD has it too: hit_elsewhere() */
	u8 pin;				/* ordinal of the rule that pins it, 0: none */
	u8 class, class_generation;
	bool exempt;			/* IO_BYPASS: no mark was needed */
	bool backing;			/* it went there; else to the SSD: stream_ended() */
	bool asked;			/* for may_be_dirty, by the worker */
	bool spares_ssd;		/* IO_FLUSH: user_flush_spares_ssd() */
	bool paced;			/* space_admits() has said no */
	u32 doubt;			/* the attempt to end a doubt that it waits for; 0: none */
	u32 doubt_lost;			/* IO_FLUSH: v->doubt_lost when it came: a doubt may begin and end within it */
	u64 raced_since;		/* get_jiffies_64(): a bypass found its buckets in use, or its last turn ends; 0: not yet */
	u64 began;			/* ns: of a run that is timed; 0: not */
	struct mover *mover;		/* of no bio: a piece of move.c, its range while log_write() looks; NULL: a user's */
	struct volume *volume;
	u64 sector;			/* volume sector, as accepted */
	u32 len;
	int error;
	struct segment *segment;	/* pinned: IO_HIT */
	struct cache_device *device;	/* IO_HIT: it is read from */
	u64 cache;			/* IO_HIT */
	struct bvec_iter iter;		/* for a retry */
	u64 target;			/* IO_FLUSH: lsn */
	atomic_t pending;
	u32 failures;			/* IO_FLUSH: of SSDs when it began */
	int ssd_error;			/* IO_FLUSH: the last one of an SSD; 'error' has those of the backing */
	struct list_head list;
	union {
		struct flush_wait wait[2];		/* IO_FLUSH */
		struct work_struct verify_work;		/* a read */
	};
	struct flush_set *set;		/* IO_FLUSH: several SSDs */
	struct item item;
};

/* For traces, as blktrace has them, and Z: write zeroes. */
static inline char io_letter(struct bio *bio)
{
	switch (bio_op(bio)) {
	case REQ_OP_READ:
		return 'R';
	case REQ_OP_DISCARD:
		return 'D';
	case REQ_OP_WRITE_ZEROES:
		return 'Z';
	default:
		return bio->bi_opf & REQ_PREFLUSH ? 'F' : 'W';
	}
}

/* Of its cache's dm device; 0: it has none. */
static inline dev_t volume_devt(const struct volume *v) { return v->cache ? v->cache->devt : 0; }
static inline struct larder_io *larder_io(struct bio *bio) { return dm_per_bio_data(bio, sizeof(struct larder_io)); }
static inline struct bio *larder_io_bio(struct larder_io *io) { return dm_bio_from_per_bio_data(io, sizeof(*io)); }

/* ------------------------------------------------------------------ addresses */

static inline u32 cache_segment(const struct cache *c, u64 cache_sector) { return cache_sector >> c->segment_shift; }

/* Does a hit of what lies in it count as heat? */
static inline bool segment_heat_counts(const struct cache *c, const struct segment *seg)
{
	return larder_heat_counts(c->log.position - seg->born, (u64)c->nr_segments * c->data_slots);
}

static inline u64 slot_sector(const struct cache *c, u32 segment, u32 slot)
{
	return ((u64)segment << c->segment_shift) + slot * LARDER_SLOT_SECTORS;
}

/* Any context: the SSD that the segment is on. */
static inline struct cache_device *segment_device(struct cache *c, u32 segment)
{
	u32 i = 0;

	while (i + 1 < c->nr_devices && segment >= c->dev[i + 1].first_segment)
		i++;
	return &c->dev[i];
}

/*
 * Any context: the copies of the segment, itself first: how many.  Without segments_lock, and with nothing that keeps them together
 * (a pin), a look.
 */
static inline u32 segment_ring(const struct cache *c, u32 segment, u32 copy[SEGMENT_COPIES])
{
	u32 n = 0, next = segment;

	do {
		copy[n++] = next;
		next = READ_ONCE(c->segments[next].mirror);
	} while (next != LARDER_NO_SEGMENT && next != segment && n < SEGMENT_COPIES);
	return n;
}

/* Any context: has it another copy? */
static inline bool segment_mirrored(const struct cache *c, u32 segment)
{
	return READ_ONCE(c->segments[segment].mirror) != LARDER_NO_SEGMENT;
}

/* Any context: the segment's further copies as they are named on disk: larder_further(). */
static inline u64 segment_names(const struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy);

	return larder_further(n > 1 ? copy[1] + 1 : 0, n > 2 ? copy[2] + 1 : 0);
}

/* Any context: the place of this very sector. */
static inline struct cache_device *copy_sector_device(struct cache *c, u64 cache_sector, sector_t *where)
{
	struct cache_device *d;

	if (likely(c->nr_devices == 1)) {
		*where = c->dev[0].start + cache_sector;	/* its segments are all there are: the first one is 0 */
		return &c->dev[0];
	}
	d = segment_device(c, cache_segment(c, cache_sector));
	*where = d->start + cache_sector - ((u64)d->first_segment << c->segment_shift);
	return d;
}

/* Any context: the same sector in another copy of its segment. */
static inline u64 copy_sector(const struct cache *c, u64 cache_sector, u32 copy)
{
	return slot_sector(c, copy, 0) + (cache_sector & (c->segment_sectors - 1));
}

/* Any context: this copy, of the first one of a segment, or of a further one, is known to be bad */
static inline bool prefers_mirror(const struct segment *seg) { return READ_ONCE(seg->prefer_mirror) >= PREFER_MIRROR; }
/* May another copy than the first lack something? */
static inline bool copies_unsure(u8 prefer_mirror) { return prefer_mirror == MEND_COPIES || prefer_mirror == MENDING_COPIES; }

/* Any context: is it one that scrub_mend() takes? */
static inline bool segment_to_mend(const struct segment *seg)
{
	u8 prefer = READ_ONCE(seg->prefer_mirror);

	return prefer == PREFER_AND_MEND || prefer == MEND_COPIES;
}

/*
 * Any context: the first further copy of the segment that is on an SSD which has not failed, and not known to be bad, if there is
 * one; LARDER_NO_SEGMENT: there is none.
 */
static inline u32 segment_further(struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), bad = LARDER_NO_SEGMENT, i;

	for (i = 1; i < n; i++) {
		if (READ_ONCE(segment_device(c, copy[i])->failed))
			continue;
		if (!prefers_mirror(&c->segments[copy[i]]))
			return copy[i];
		bad = bad == LARDER_NO_SEGMENT ? copy[i] : bad;
	}
	return bad;
}

/* Any context: cache_sector_device() of several */
struct cache_device *set_sector_device(struct cache *c, u64 cache_sector, sector_t *where);

/* Any context: where to read it: in the first copy of its segment, unless that is known to be bad and there is another one. */
static inline struct cache_device *cache_sector_device(struct cache *c, u64 cache_sector, sector_t *where)
{
	if (likely(c->nr_devices == 1))
		return copy_sector_device(c, cache_sector, where);
	return set_sector_device(c, cache_sector, where);
}

/* Any context.  The first SSD of the table, for messages: place 0 of a set may be empty. */
static inline struct block_device *cache_bdev(const struct cache *c)
{
	u32 i = 0;

	while (i + 1 < c->nr_devices && !c->dev[i].bdev)
		i++;
	return c->dev[i].bdev;
}

/* Any context.  No copy of it can be read. */
static inline bool segment_lost(struct cache *c, u32 segment)
{
	return unlikely(READ_ONCE(c->nr_failed)) && READ_ONCE(segment_device(c, segment)->failed) &&
	       segment_further(c, segment) == LARDER_NO_SEGMENT;
}

/* Any context.  And none comes again: not where one is on an SSD that joins, with which it is whole, or all of it becomes free. */
static inline bool segment_gone(struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n;

	if (likely(!segment_lost(c, segment)))
		return false;
	for (n = segment_ring(c, segment, copy); n--; )
		if (READ_ONCE(segment_device(c, copy[n])->joining))
			return false;
	return true;
}

/* Any context: is it sent what is appended, flushed, and told of checkpoints?  *failed: it does not count: no member, or joins. */
static inline bool device_written_as(const struct cache_device *d, bool *failed)
{
	bool joining = READ_ONCE(d->joining);

	smp_rmb();	/* pairs with set_count(): one that has joined meanwhile is the one or the other */
	*failed = READ_ONCE(d->failed);
	return joining || !*failed;
}

static inline bool device_written(const struct cache_device *d)
{
	bool failed;

	return device_written_as(d, &failed);
}

/* Any context: may segments be taken of it? */
static inline bool device_usable(const struct cache_device *d) { return !READ_ONCE(d->failed) && !READ_ONCE(d->draining); }

/* Any context: does the set keep two copies of what is dirty? */
static inline bool cache_mirrored(const struct cache *c)
{
	return READ_ONCE(c->set.mirror) && c->nr_devices - READ_ONCE(c->nr_failed) - READ_ONCE(c->nr_draining) > 1;
}

/* Any context: how many copies `mirror` asks for, of the write stream; what is on disk must be able to say so */
static inline u32 mirror_copies(const struct cache *c)
{
	u8 level = READ_ONCE(c->set.mirror);

	return level == MIRROR_DIRTY_3 && READ_ONCE(c->third_durable) ? 3 : level ? 2 : 1;
}

/* Any context: so many of them can be made on the usable SSDs */
static inline u32 cache_copies(const struct cache *c)
{
	u32 usable = c->nr_devices - READ_ONCE(c->nr_failed) - READ_ONCE(c->nr_draining);

	return clamp(usable, 1u, mirror_copies(c));
}

/* Any context: three copies are asked for, and could be made, but not all superblocks say yet that there may be any */
static inline bool third_is_due(const struct cache *c)
{
	return READ_ONCE(c->set.mirror) == MIRROR_DIRTY_3 && !READ_ONCE(c->third_durable) &&
	       c->nr_devices - READ_ONCE(c->nr_failed) - READ_ONCE(c->nr_draining) > 2;
}

/* Any context: are segments taken in pairs?  Also by a last SSD and the one that joins it. */
static inline bool cache_pairs(const struct cache *c)
{
	return cache_mirrored(c) || (READ_ONCE(c->set.mirror) && READ_ONCE(c->nr_joining));
}

/* Any context: is it to have a second copy now?  Its stream, and what is mapped to it, tell. */
static inline bool segment_wants_copy(const struct cache *c, const struct segment *seg)
{
	return READ_ONCE(c->set.mirror) == MIRROR_ALL ? atomic_read(&seg->live) : c->set.mirror && atomic_read(&seg->dirty);
}

/* Any context */
static inline enum segment_use stream_use(u8 stream) { return stream == LARDER_STREAM_WRITE ? USE_LOG : USE_CLEAN; }

/* Any context: are segments of this stream taken in pairs, where that is possible? */
static inline bool stream_pairs(const struct cache *c, u8 stream)
{
	return stream == LARDER_STREAM_WRITE || READ_ONCE(c->set.mirror) == MIRROR_ALL;
}

/* Any context: is a copy of it on this SSD? */
static inline bool segment_on(struct cache *c, u32 segment, const struct cache_device *d)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy);

	while (n--)
		if (segment_device(c, copy[n]) == d)
			return true;
	return false;
}

/* Any context: is a copy of it on an SSD that is being drained? */
static inline bool segment_draining(struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n;

	if (likely(!READ_ONCE(c->nr_draining)))
		return false;
	n = segment_ring(c, segment, copy);
	while (n--)
		if (READ_ONCE(segment_device(c, copy[n])->draining))
			return true;
	return false;
}

static inline struct race_bucket *race_bucket(struct cache *c, const struct volume *v, u64 region)
{
	return &c->races[hash_64(region * 1031 + v->number, RACE_BUCKETS_SHIFT)];
}

/* ------------------------------------------------------------------ registry.c: objects and lifetimes.  All sleep unless said. */
extern struct mutex cache_registry_lock;
/* Sleeps.  The cache does not come to rest before cache_leave().  False: it has, or is about to: nothing may be written to it. */
bool cache_enter(struct cache *c);
void cache_leave(struct cache *c);
struct volume *cache_volume_get(struct cache *c, u32 number);	/* any context; counted, or NULL */
int cache_refill(struct cache *c, int (*refill)(struct larder_index *idx));	/* sleeps: of indexes whose reserve is low */
struct cache *cache_find_uuid(const u8 uuid[16]);	/* registry lock held; counted */
struct cache *cache_find_disk(struct gendisk *disk);	/* registry lock held; counted */
/* allocates everything that depends on geometry; ERR_PTR */
/* sb: of one SSD; place[nr]: where all of them are in the set, checked; bit of absent: it is not there */
struct cache *cache_create(const struct larder_cache_sb *sb, const struct larder_table_device *place, u32 nr, u32 absent,
			   struct gendisk *disk);
/* -EEXIST: the UUID or the disk is taken.  Taken out by the last cache_put() */
int cache_register(struct cache *c);
bool cache_hibernate(bool begins);			/* sleeps: none is registered until it ends; false: there are some */
void cache_abandon(struct cache *c);			/* could not be started: nobody shall find it any more */
void cache_get(struct cache *c);
void cache_put(struct cache *c);
u64 volume_base_bytes(u64 sectors);	/* memory of one of so many sectors of which nothing is cached */
struct volume *volume_create(struct cache *c, u16 number, const u8 uuid[16], u64 sectors);	/* ERR_PTR; not yet in c->volumes */
struct volume *cache_find_volume(struct cache *c, const u8 uuid[16]);	/* counted, or NULL */
void volume_get(struct volume *v);
void volume_put(struct volume *v);
/* preresume; sleeps */
int volume_bind(struct volume *v, struct dm_target *ti, struct block_device *bdev, struct larder_volume_sb *sb);
void volume_activate(struct volume *v);		/* it is bound, and its superblock says so */
void volume_unbind(struct volume *v);		/* postsuspend: everything in flight has ended; or a bind is given up */
void cache_fail(struct cache *c, const char *why);	/* any context: one way; raises the event */
void volume_event(struct volume *v);			/* a dm event, if it is bound */
#define TOLD_AGAIN	(600 * HZ)	/* between two events for what one cause may repeat at will */
bool tell_again(unsigned long *told);	/* any context.  told: of the last event; false: not long ago */
void cache_tell(struct cache *c);			/* any context: an event of it and its volumes, soon */
void cache_tell_errors(struct cache *c);	/* any context */
void volume_tell(struct volume *v);		/* any context: an event, soon */
void volume_backing_failed(struct volume *v);	/* any context: it has failed a request, which is told */
/* Any context.  Around a user's read of the backing. */
static inline void backing_read_begins(struct volume *v)
{
	if (atomic_inc_return(&v->backing_reads) == 1)
		WRITE_ONCE(v->backing_silent, jiffies);
}
static inline void backing_read_ended(struct volume *v)
{
	WRITE_ONCE(v->backing_silent, jiffies);
	atomic_dec(&v->backing_reads);
}
/* Zeroed, for free_percpu(), or NULL; waits up to a second for memory that the kernel has not made ready */
void __percpu *counters_alloc(size_t bytes, size_t align);
#define larder_counters(type)	((type __percpu *)counters_alloc(sizeof(type), __alignof__(type)))
u64 cache_memory_bytes(struct cache *c);
u64 cache_memory_limit(struct cache *c);

/* ---------------------------------------------------------- super.c: superblocks and tables on their devices.  Sleep; GFP_NOIO. */
/* Reads both copies, takes the newer valid one; *why names what was wrong with the first otherwise. */
int super_read_cache(struct block_device *bdev, struct larder_cache_sb *sb, const char **why);
int super_read_volume(struct block_device *bdev, struct larder_volume_sb *sb, const char **why);
/*
 * Does each of its two places say what sb does, but for the generation, and have so many sectors at least?  If not, a power cut
 * came between them, or one is damaged: the other may count later.  Which of two that agree counts makes no difference to a volume
 * of that size.  *first_counts: sb is what the first one has
 */
bool super_volume_whole(struct block_device *bdev, const struct larder_volume_sb *sb, u64 sectors, bool *first_counts);
/* Logs why it is not what it should be ("an SSD of a cache"), and the remedy; noun: of the command that makes one */
void super_refused(struct block_device *bdev, const char *why, const char *what, const char *noun);
int super_init(void);
void super_exit(void);
/* Large I/O in the background: several bios.  The buffer and *b belong to it until bulk_wait(), which returns the error. */
struct bulk_io {
	atomic_t left;
	struct completion done;
	int error;
	bool read;
	void *buf;
	size_t bytes;
	struct cache *cache;		/* cache_device_write() to 'device'; else NULL */
	struct cache_device *device;
	bool stays;			/* in the set, if it fails */
	u32 suspected;			/* doubt_suspect() */
};
void bulk_start(struct bulk_io *b, struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buf, size_t bytes);
int bulk_wait(struct bulk_io *b);
/*
 * Synchronous I/O of bytes to or from a vmalloc or kmalloc buffer, 4 KiB units.  opf: REQ_OP_READ, REQ_OP_WRITE | REQ_FUA |
 * REQ_PREFLUSH ...
 */
int super_io(struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buf, size_t bytes);
/* The same, a read of data of the cache.  -EIO: its SSD has failed, or is missing, and then its place has no block device. */
static inline int device_read(const struct cache_device *d, blk_opf_t opf, sector_t sector, void *buf, size_t bytes)
{
	return READ_ONCE(d->failed) ? -EIO : super_io(d->bdev, opf, sector, buf, bytes);
}
/*
 * The same, a write of superblock, table, chunk or a repair to an SSD of the cache.  If it fails one of several leaves the set; one
 * that stays may have been reset: the write is sent again to know that, and nothing counts meanwhile (doubt.c).
 */
int cache_device_write(struct cache *c, struct cache_device *d, blk_opf_t opf, sector_t sector, void *buf, size_t bytes);
/*
 * Sleeps; takes super_lock.  Does d take a write?  A copy of its superblock is written as it lies there, without a flush.  The
 * error of the second one, if neither can be read and written; -ENOMEM: nobody knows.
 */
int cache_super_touch(struct cache *c, struct cache_device *d);
/* super_lock held: from c->named, c->epoch...; both copies of every SSD, durable */
int cache_super_write(struct cache *c, u32 flags);
/* Sleeps; the cache runs, its SSDs are bound.  Where `mirror` asks for three copies: superblocks say so before there are any */
void cache_allow_third(struct cache *c);
/* super_lock held: only the second copy of this SSD; and the erasing of one that was written so and never named by the first */
int cache_super_write_ahead(struct cache *c, struct cache_device *d);
void cache_super_drop_ahead(struct cache *c, struct cache_device *d);
/* sleeps */
bool super_has_table(struct block_device *bdev, const struct larder_cache_sb *sb);	/* a valid one */
int super_read_table(struct block_device *bdev, const struct larder_cache_sb *sb, struct larder_table *to, bool *in_b);
/* Is a a newer table than b, of the set, or, in the same set, of its volumes? */
bool table_newer(const struct larder_table *a, const struct larder_table *b);
int cache_table_read(struct cache *c);			/* at start */
int cache_table_settle(struct cache *c);		/* at start, super_lock held: what was read, on every member */
int cache_table_write(struct cache *c);			/* super_lock held: the older copy, durable */
int cache_table_write_seen(struct cache *c);		/* likewise; but older tables count still */
int cache_table_places(struct cache *c);
/* super_lock held: those of the first nr SSDs are these, durably if any was another; dev[] follows the table */
int cache_roles_write(struct cache *c, const u8 *role, u32 nr);
/* super_lock held: both places of this SSD alone: as they are; blank */
int cache_table_tell(struct cache *c, struct cache_device *d);
int cache_table_blank(struct cache *c, struct cache_device *d);
int volume_super_write(struct volume *v);		/* v->super_lock held: v->sb, both copies, durable */
int cache_set_stack(struct cache *c, const char *hex);	/* sleeps, takes c->super_lock */
int volume_set_stack(struct volume *v, const char *hex);	/* sleeps, takes v->super_lock */
int volume_set_may_be_dirty(struct volume *v, bool dirty);	/* takes v->super_lock; rule 11's conditions are the caller's */

/* ------------------------------------------------------------------ set.c */
/* Any context.  An SSD has failed a write or a flush: the set goes on without it, or, if it must not, the cache fails. */
void set_device_failed(struct cache *c, struct cache_device *d, const char *why);
/* Any context.  An append of clean copies failed: one of several SSDs leaves the set.  False: it stays, without these copies. */
bool set_copy_failed(struct cache *c, struct cache_device *d, blk_status_t status);
/* Any context.  A write failed: if the others have everything, or it only joins, it leaves the set, for 'why'.  False: it stays. */
bool set_spares(struct cache *c, struct cache_device *d, const char *why);
/* Any context.  A write of superblock, table, chunk or a repair failed: one of several SSDs leaves the set. */
void set_metadata_failed(struct cache *c, struct cache_device *d);
/* Any context.  That of a summary: for a bad place none leaves. */
void set_summary_failed(struct cache *c, struct cache_device *d, blk_status_t status);
/* Any context: it leaves the set if the others have everything, and the cache has started; else its flusher remembers (rule 2). */
void set_flush_failed(struct cache *c, struct cache_device *d);
/* Sleeps.  Until the set without those that have failed is durable, or the cache has failed. */
void set_wait(struct cache *c);
/*
 * Any context.  0: a copy of it can be read.  -EIO: none.  -EAGAIN: none by now, and it is being decided whether an SSD that failed
 * is taken back for it: set_work() wakes log->wait, and kicks what is deferred.
 */
int segment_unreadable(struct cache *c, u32 segment);
/* sleeps, v->super_lock held: the set's generation goes to the backing; where that fails it is behind, and the log says so */
void volume_tell_generation(struct volume *v);
int volume_catch_up(struct volume *v);			/* sleeps: the generation is durable on a backing that is behind */
void set_raise(struct cache *c);			/* super_lock held: the next set, without those that failed, in memory */
/* Sleeps.  Is this generation, of a backing, the set's own, or one before it?  0: it has seen none. */
bool set_knows(struct cache *c, u64 generation);
void set_work(struct work_struct *work);
void set_lost_work(struct work_struct *work);
/* Process context.  Has the log yet to leave segments that are on none but SSDs which left?  They are not used anew before. */
bool set_leaves_lost(struct cache *c);
bool set_start_needs_lost(struct cache *c);		/* sleeps; not below super_lock */
u32 set_nr_lost(const struct cache *c);			/* any context: SSDs that have failed, and were not drained or given up */
void set_drop_lost(struct cache *c);			/* sleeps: what only SSDs have that are not in the set leaves the index */
/* Sleeps.  A generation with 'd', which joins and has everything, becomes durable; d is a member. */
int set_admit(struct cache *c, struct cache_device *d);

/* Sleeps.  d is drained: a generation without it becomes durable. */
int set_dismiss(struct cache *c, struct cache_device *d, u32 failures);
/* Sleeps.  d has failed, and is missed no more: its place is empty, as behind a drain.  -EBUSY: it has not, or had dirty data */
int set_dismiss_failed(struct cache *c, struct cache_device *d);
/* Sleeps.  -EBUSY, and said: dirty data of which no copy is left but on d; it would read as whatever comes to that place */
int set_check_lost(struct cache *c, const struct cache_device *d);

/* ------------------------------------------------------------------ drain.c.  Sleep. */
int drain_begin(struct cache *c, u32 number);		/* message */
int drain_stop(struct cache *c);
void drain_work(struct work_struct *work);

/* ------------------------------------------------------------------ scrub.c.  Sleep. */
int scrub_begin(struct cache *c);			/* message */
int scrub_stop(struct cache *c);
void scrub_resume(struct cache *c);			/* goes on, if a suspend came between */
void scrub_mend_later(struct cache *c);			/* any context: some segment is PREFER_AND_MEND, or MEND_COPIES */
void scrub_work(struct work_struct *work);
void scrub_destroy(struct cache *c);
/* Nothing that changes the shape of the cache, or walks all of it, goes on: the resume begins it again */
static inline bool shape_ended(const struct cache *c)
{
	return READ_ONCE(c->shape_pause) || READ_ONCE(c->state) == CACHE_FAILED;
}
bool scrub_ended(struct cache *c);			/* any context: stopped, or interrupted by a suspend */
/* Whose it is: a scrub's, which ends with it, or when the cache is to stand still; doubt.c's, which goes on; scrub_mend()'s */
enum scrub_reason { SCRUB_ASKED, SCRUB_DOUBT, SCRUB_MEND };
void scrub_counts_add(struct scrub_counts *sum, const struct scrub_counts *n);	/* any context: of sum others may read */
/* scrub_segment.c: its buffers, or NULL */
struct scrub_pass *scrub_pass_create(struct cache *c, enum scrub_reason reason);
void scrub_pass_free(struct scrub_pass *p);
/* 0: done, or nothing to do; -EAGAIN: later; *n: what was found */
int scrub_segment(struct cache *c, struct scrub_pass *p, u32 segment, struct scrub_counts *n);
/* super.c, checkpoint.c: the scrub of superblocks and tables, and of chunks; *n is added to.  Errors: of reading, or -ENOMEM */
int super_scrub(struct cache *c, struct scrub_counts *n);
int checkpoint_scrub(struct cache *c, struct scrub_counts *n);
/* Sleeps, while there is user I/O: so that what took this long has a fifth of the time. */
void give_way(struct cache *c, u64 took_ns);

/* ------------------------------------------------------------------ resync.c: second copies of what has one */
/* Process context: an SSD has left, or is missing; nothing happens if the set asks for no second copies, or has one SSD left. */
void resync_begin(struct cache *c);
/* Process context: an SSD may be written to that was not before, and c->failures has changed.  Begins if anything has one copy */
void resync_look(struct cache *c);
/* Process context: `mirror` is raised from none, which resync_look() is to follow.  No SSD can be spared until that has ended */
void resync_raise(struct cache *c);
void resync_third(struct cache *c);			/* cache_tick(): once more what cache_allow_third() could not do */
void resync_kick(struct cache *c);			/* any context: goes on, if it has begun */
void resync_work(struct work_struct *work);

/* ------------------------------------------------------------------ join.c.  Sleep. */
/* The cache stands still.  sb: of the SSD that is to join in place d, whose device is bound; an error leaves it out */
int join_begin(struct cache *c, struct cache_device *d, const struct larder_cache_sb *sb);
void join_forget(struct cache *c, struct cache_device *d);	/* the cache stands still: its SSD is gone or another one */
void join_work(struct work_struct *work);
/* The cache stands still: one place more, of segments behind all others.  -ENOMEM: nothing has changed */
int cache_grow(struct cache *c, const struct larder_table_device *place);
/* Likewise: nr segments, of which those that are new are this SSD's.  -ENOMEM: none of them is used */
int cache_more_segments(struct cache *c, struct cache_device *d, u32 nr);

/* ------------------------------------------------------------------ segment.c.  Any context unless said. */
int segments_create(struct cache *c);			/* sleeps */
void segments_destroy(struct cache *c);
/*
 * With a second copy, if the set is mirrored and the stream's segments have one.  LARDER_NO_SEGMENT: none; only SEGMENT_CHECKPOINT
 * takes of the reserve.
 */
u32 segment_take_free(struct cache *c, u8 state, u8 stream);
/* segments_lock held: a free segment of this SSD, not for chunks; LARDER_NO_SEGMENT: it has none */
u32 segment_take_of(struct cache *c, struct cache_device *d, u8 state);
/* May a named checkpoint, or the one being written, map something to it or to its second copy? */
bool segment_may_be_mapped(struct cache *c, u32 segment);
/*
 * Any context: how many the members have, but for this one; pairs, where the set is to be mirrored: of SSDs of very different size
 * these are few, and what the log and checkpoints need is counted by them.
 */
u32 segments_units(const struct cache *c, const struct cache_device *without);
u32 segments_units_with(const struct cache *c, u32 place, u32 segments);	/* of an SSD in this place, whoever is there */
/* Any context: slots of such data that there would be room for, were there nothing else; each takes as many as it has copies. */
u64 segments_room(const struct cache *c, enum segment_use use);
/* Sleeps; the cache stands still: those from the last one up to nr, free, of this SSD.  -ENOMEM: nothing has changed */
int segments_grow(struct cache *c, struct cache_device *d, u32 nr);
/* The cache stands still: what a stream of clean copies had opened, or begun, is none of it if no copy is left. */
void segments_forget_opened(struct cache *c);
/* log->lock held.  Of the first so many that are opened: those that are not lost, in which the log can go on */
u32 opened_left(struct cache *c, const struct opened_list *o, u32 first);
/* segments_lock held: further, which has none, is one more copy of first from now on; it becomes SEGMENT_MIRROR */
void segment_link(struct cache *c, u32 first, u32 further);
/* segments_lock held: the one of these copies that extents name, and that is no SEGMENT_MIRROR */
u32 segment_first(const struct cache *c, u32 segment);
#define SEGMENTS_AT_ONCE 1024u
/*
 * Process context, segments_lock held with interrupts off, by whoever looks at so many segments: it is let go of now and then.  n:
 * the number of the one at hand
 */
static inline void segments_turn(struct cache *c, u32 n)
{
	if (n % SEGMENTS_AT_ONCE)
		return;
	spin_unlock_irq(&c->segments_lock);
	cond_resched();
	spin_lock_irq(&c->segments_lock);
}
/* Bits of the SSDs of which one free segment more would make more of what is short possible; nothing is short: of anything */
u32 segments_wanted(struct cache *c);
/*
 * Process context: how many, of the first thousand that wait, will help where any is missing, once readers are gone and a
 * checkpoint is named.
 */
u32 segments_coming(struct cache *c);
/* is it, or its second copy, on one of these? */
bool segment_helps(struct cache *c, u32 segment, u32 wanted);
void segment_become_lost(struct cache *c, u32 segment);	/* segments_lock held: nothing is mapped to it */
/* Takes segments_lock.  The same, of one that takes no chunk, and is no copy any more.  Another copy, or LARDER_NO_SEGMENT. */
u32 segment_pass_over(struct cache *c, u32 segment);
/* segments_lock held: nothing is mapped to it, or what is has another copy; with a first copy its further ones go */
void segment_free_lost(struct cache *c, u32 segment);
/*
 * A read of its copy on this SSD failed, or is to fail.  True: there is another one; if it is the first one, that is read from now
 * on, and (mend) the first one is mended, unless it was known already.
 */
bool segment_try_mirror(struct cache *c, u32 segment, const struct cache_device *d, bool mend);
/*
 * Any context.  Where the cache sector is in another copy of its segment than those that were tried, the last of them that on d.
 * NULL: there is none that can be read, or they may be older.  *tried: of devices, bit by bit; 0 at first.
 */
struct cache_device *segment_next_copy(struct cache *c, u64 cache, const struct cache_device *d, u32 *tried, sector_t *where);
#define UNMIRROR_BATCH	8192u				/* segments looked at by each call */
void segments_unmirror(struct cache *c);		/* sleeps not; second copies that nothing needs any more become free */
/* Of dirty sectors */
struct segments_short {
	u64 single;			/* one member has them, and no other */
	u64 some;			/* some have them, but fewer than could */
};
/* Sectors that have fewer copies than the set asks for.  A look */
u64 segments_below(struct cache *c, struct segments_short *n);
u32 segment_members(struct cache *c, u32 segment);	/* how many have it */
bool segment_short(struct cache *c, u32 segment);	/* some have it, but fewer than could */
bool segment_below(struct cache *c, u32 segment, const void *ignored);	/* do fewer have it than could, or none? */
/* moves it between lists and counts; segments_lock taken inside */
void segment_set_state(struct cache *c, u32 segment, u8 state);
/* any context: is one WAITING with this sequence number, or a later one? */
bool segments_wait_for(struct cache *c, u64 sequence);
void segments_release(struct cache *c);			/* sleeps; WAITING ones that nothing needs become FREE; wakes who waits */
/* that can be taken, as pairs where the set is mirrored; without the reserve, and with it */
u32 segments_free_count(struct cache *c, enum segment_use use);
u32 segments_free_all(struct cache *c, enum segment_use use);
u32 segments_free_goal(struct cache *c, enum segment_use use);	/* of these */
u32 segments_short(struct cache *c);			/* how many of one use, at most, are missing for that */
bool segments_roles_honoured(struct cache *c);		/* does each use have SSDs of its own role, and room enough on them? */
bool segment_misplaced(struct cache *c, u32 segment);	/* is its SSD not for clean data? */
static inline void segment_pin(struct cache *c, u32 segment) { atomic_inc(&c->segments[segment].pins); }
static inline void segment_unpin(struct cache *c, u32 segment) { atomic_dec(&c->segments[segment].pins); }
/* larder_index_change_fn; ctx: struct volume; by: the struct item that takes its place, or NULL */
void index_changed(void *ctx, const struct larder_map *was, u8 now, void *by);
void index_account_new(struct volume *v, u64 cache, u32 len, u8 state);	/* a mapping was stored */
/* store + account, over region borders; by: for index_changed(); -ENOMEM: partly done, call again */
int volume_map_store(struct volume *v, u64 sector, u32 len, u64 cache, u8 state, struct item *by);
/* over region borders; sectors changed */
int volume_map_change(struct volume *v, u64 sector, u32 len, u64 cache, u32 from, u64 to_cache, u8 to_state);
/* [sector, end).  Sleeps.  In core only.  How many extents it found: what reclaim moved meanwhile is found by another call. */
u64 volume_drop_clean(struct volume *v, u64 sector, u64 end);
/* is all of it mapped as it was, in one of these states? */
bool volume_maps(struct volume *v, const struct larder_map *m, u32 states);
void cache_account_loaded(struct cache *c);		/* sleeps: after bulk load, nothing to do if change() counted */
u32 segments_opened_goal(struct cache *c);		/* of all streams */
void segments_open_kick(struct cache *c);		/* asks open_work for more opened segments */
void segments_want_checkpoint(struct cache *c);		/* sleeps not; if that would free any */
void segments_open_work(struct work_struct *work);
/* at start: takes segments for each stream's opened list without a record (the checkpoint names them) */
int segments_open_initial(struct cache *c);

/* ------------------------------------------------------------------ log.c: the write stream */
int log_create(struct cache *c);			/* sleeps */
void log_destroy(struct cache *c);
void log_reset(struct cache *c, u64 next_sequence);	/* at start: a new epoch */
/*
 * map() or worker: reserves, copies, sums, perhaps submits.  0: the bio is ours and will be completed; -EAGAIN: defer.  io->mover:
 * the bio is not needed afterwards, move_applied() follows; -ESTALE: its range was written to
 */
int log_write(struct volume *v, struct bio *bio, struct larder_io *io);
int log_write_zeroes(struct volume *v, struct bio *bio, struct larder_io *io);		/* as log_write() */
/*
 * Any context but holding no lock; appends metadata to the open record.  0, -EAGAIN (no room now: log_entry_wait()).  *lsn: its
 * record's.
 */
int log_entry(struct cache *c, const struct larder_entry_in *e, u64 *lsn);
int log_entry_dirty(struct volume *v, const struct larder_entry_in *e, u64 *lsn);	/* changes what is dirty: last_dirty_lsn */
int log_note(struct cache *c);			/* as log_entry(): a record that changes nothing */
int log_entry_locked(struct cache *c, const struct larder_entry_in *e, u64 *lsn);	/* log->lock held */
/* Sleeps until there is room (metadata may use the last opened segment).  Not on io_wq. */
int log_entry_wait(struct cache *c, const struct larder_entry_in *e, u64 *lsn);
/* log->lock held: closes; log_send() must follow; the lsn to wait for */
u64 log_close_locked(struct cache *c, enum close_reason why);
/* process context: closes, sends; returns the lsn that must be applied */
u64 log_close_open(struct cache *c, enum close_reason why);
int log_wait_applied(struct cache *c, u64 lsn);		/* sleeps */
/* sleeps: commit, wait, flush the SSDs: everything accepted before is durable */
int log_sync(struct cache *c);
void log_kick(struct cache *c);				/* any context: log->work */
/* Any context.  What is in the open record is waited for: one that nobody waits for need not be sent soon. */
static inline void log_hurry(struct cache *c)
{
	WRITE_ONCE(c->want_commit, true);
	log_kick(c);
}
/* process context: sends what is ready, in the order of the log; closed records with their commit blocks */
void log_send(struct cache *c);
void log_apply(struct cache *c);			/* any context: applies in log order what has completed */
void log_replaces(struct item *it, const struct larder_map *m);	/* region lock held: index_changed() */
/* sleeps: until no end-io of ours can come; nothing new may begin */
void log_drain(struct cache *c);
void log_resume(struct cache *c);			/* after a suspend */
void log_interval_changed(struct cache *c);		/* sleeps: c->set has another commit or commit_interval */
bool log_idle(struct cache *c);				/* nothing in flight and nothing open */
/* sleeps: the write stream goes on in its next segment; -EAGAIN: none is opened yet */
int log_roll(struct cache *c);
/* is any segment such a one that the write stream writes to, or has opened? */
bool log_uses(struct cache *c, bool (*is)(struct cache *c, u32 segment, const void *arg), const void *arg);
/* log->lock held: the same of any stream */
bool stream_uses(struct cache *c, const struct stream *s, bool (*is)(struct cache *c, u32 segment, const void *arg),
		 const void *arg);
bool stream_lost(struct cache *c, u32 segment, const void *ignored);	/* segment_lost(), for these */
/* nothing that the write stream has opened is left, and the segment that it is in, if that is, has no room to open another one */
bool log_at_its_end(struct cache *c);
/* Any context but holding no lock.  For so long no record of a user's has found space, and there is none now */
bool log_full_for(struct cache *c, unsigned long ticks);
/* Process context.  Sums of slots [slot, slot + n) that records of the write stream have which are not complete; how many */
u32 log_sums(struct cache *c, u32 segment, u32 slot, u32 n, u32 *sums);
bool log_writes_to(struct cache *c, u32 segment);	/* process context: records that are not complete are in it */
int log_next_segment(struct cache *c, struct stream *s, bool metadata);	/* log->lock held: begins the next opened one; -EAGAIN */
void log_assign(struct cache *c, struct stream *s, struct record *r);	/* log->lock held: sequence numbers at closing */
void log_pinned_crc(struct stream *s, struct record *r, u32 crc);	/* sender: built_sequence, built_crc, pinned_* */
struct record *log_record_get(struct cache *c, u8 stream);	/* log->lock held, or NULL */
void log_record_put(struct cache *c, struct record *r);	/* log->lock held: pages and record go back */

/* ------------------------------------------------------------------ buffered.c: writes that are acknowledged from memory */
/* Sleeps: from now on that is possible.  -ENOMEM */
int buffered_create(struct cache *c);
void buffered_destroy(struct cache *c);			/* nothing is in flight */
/* ms after which a record that was opened is closed: commit_interval, or less */
u32 buffered_interval(const struct cache *c, const struct record *r);
/* log->lock held, room is reserved.  The item of a write that shall be answered from memory; NULL: it must wait for the SSD */
struct item *buffered_take(struct volume *v, const struct larder_io *io);
void buffered_show(struct cache *c, struct item *it);	/* process context: it is copied; reads find it from now on */
void buffered_applied(struct cache *c, struct item *it);	/* log_apply_item(): it is in the index, or lost */
void buffered_put(struct log *log, const struct item *it);	/* log->lock held, behind that */
/*
 * Any context that may take locks.  1: the first *len sectors are in the bio; 0: such a write has none of them; -EAGAIN, -EIO (the
 * cache has failed): *len are not all, and they must be (!may_cut)
 */
int buffered_read(struct volume *v, struct bio *bio, const struct larder_io *io, bool may_cut, u32 *len);

/* ------------------------------------------------------------------ summary.c: what a segment holds */
/* sender: entries and sums of a built record; seals the segment before */
void log_summary_add(struct cache *c, struct stream *s, struct record *r);
/* the cache stands still: no summary of a segment on this SSD is written any more */
void summary_forget(struct cache *c, struct stream *s);
struct segment_contents {
	struct larder_entry_in *entries;	/* those with data; room for segment_slots of them; NULL: not wanted */
	u32 nr_entries;
	u32 *sums;				/* data_slots of them, by slot; 0: not known */
};
/* Sleeps.  Of a segment that nobody writes to.  What cannot be read is left out; -ENOMEM */
int segment_read_contents(struct cache *c, u32 segment, struct segment_contents *sc);
int segment_read_summary(struct cache *c, u32 segment, struct segment_contents *sc);	/* the same, or an error: it has none */
/* buf: the data slots of one copy of it.  The commit block in this slot, or NULL */
const struct larder_commit *segment_block(struct cache *c, u32 segment, const void *buf, u32 slot);
/* in [0, end): the one with the sequence number of its last record, or NULL; *slot: where it is */
const struct larder_commit *segment_last_block(struct cache *c, u32 segment, const void *buf, u32 end, u32 *slot);
/* a block of this cache that belongs into another segment, and that nothing but an SSD that mistakes places puts there */
bool segment_holds_another(struct cache *c, u32 segment, const void *buf);
/* the sums that the blocks of this life know, into data_slots of them */
void segment_block_sums(struct cache *c, u32 segment, const void *const *buf, u32 copies, u32 *sums);

/* ------------------------------------------------------------------ sums.c: checksums.  Process context. */
int sums_create(struct cache *c);			/* sleeps */
void sums_destroy(struct cache *c);
u64 sums_bytes(const struct cache *c);
void sums_shrink(struct cache *c);			/* memory is short: all but a few go */
void sums_put(struct cache *c, u32 segment, const u32 *sums);	/* data_slots of them */
void sums_drop(struct cache *c, u32 segment);		/* it begins another life */
bool sums_look(struct cache *c, u32 segment, u32 *sums);	/* data_slots of them, if they are in memory */
/*
 * The slot of this cache sector holds data that does not match its sum, in any copy: reads of it fail if it is dirty.  Sleeps;
 * -ENOMEM.  Any context: it does match.
 */
int slot_bad_set(struct cache *c, u64 cache);
void slot_bad_clear(struct cache *c, u64 cache);
void slots_bad_forget(struct cache *c, u32 segment);	/* any context: it begins another life */
u32 slots_good(struct cache *c, u64 cache, u32 len);	/* any context: sectors in front of the first such slot */
/* Sleeps.  The sums of n slots of one segment, from this cache sector on; 0: not known.  -ENOMEM */
int slot_sums(struct cache *c, u64 cache, u32 n, u32 *sums);
/* Any context.  0: it matches, or is dirty and its sum not known; -EBADMSG; -ENODATA: clean, and not known.  Counts. */
int slot_judge(struct cache *c, u64 cache, u32 known, u32 found, bool clean);
/* Sleeps.  The whole slot.  No sum known (0): of copies that are up to date.  -EBADMSG: none matches; -EIO: none can be read */
int slot_from_copies(struct cache *c, u64 cache, u32 known, void *slot);
/* Cached data in a buffer: cache sectors [cache, cache + len), which lie in one segment, from sector 'offset' of the pages on. */
struct cached_data {
	struct page **pages;
	u32 offset, len;
	u64 cache;
	const u32 *sums;		/* of its segment, by slot; NULL: to be looked up */
	u64 damaged;			/* the slot that does not match, or cannot be read: cache sector */
	bool clean;			/* the backing has it: a slot whose sum is not known is not believed */
};
/* Adds sectors of a buffer, from 'offset' on, to a bio that has room for them. */
void data_bio_add(struct bio *bio, struct page **pages, u32 offset, u32 sectors);
/* Any context.  Does its SSD take such a read?  dm-crypt with sectors of 4096 bytes wants each of them in one vector. */
bool data_reads_whole(struct cache *c, const struct cached_data *x);
/*
 * A read of all whole slots of it, to be submitted; NULL: it has none.  ERR_PTR(-EIO): no SSD that has them is left, by now; what
 * stands for it has no block device, or what was there before.
 */
struct bio *data_read_bio(struct cache *c, const struct cached_data *x);
/*
 * Sleep.  Reads what data_read_bio() leaves out, and compares that with its sums; compares what data_read_bio() has read with its
 * sums; does all three.  -EBADMSG: damaged; -ENODATA: clean, and its sum is not known; -EIO: an SSD does not give it
 */
int data_read_edges(struct cache *c, struct cached_data *x);
int data_check(struct cache *c, struct cached_data *x);
int data_read(struct cache *c, struct cached_data *x);
/* Sleeps.  The same slot by slot, each from whichever copy has it.  -EBADMSG, -EIO: none has x->damaged */
int data_read_slots(struct cache *c, struct cached_data *x);

/* ------------------------------------------------------------------ verify.c: verify=reads */
void verify_hit(struct volume *v, struct larder_io *io);	/* any context: what a hit has read; takes the bio and its pin */
/* Sleeps.  Fills the bio with an extent whose segment is pinned.  -EIO: no SSD gives it, or what was written */
int verify_read(struct volume *v, struct bio *bio, const struct larder_map *m);

/* ------------------------------------------------------------------ copies.c: the fill and keep streams */
struct copy;
struct copy_link {
	struct list_head list;		/* race_bucket->copies */
	struct copy *copy;
};

struct copy {				/* a clean copy on its way into the cache */
	struct list_head list;
	struct volume *volume;
	u64 sector;
	u32 len;
	u64 cache;			/* where it goes, once reserved */
	u64 from;			/* keep: where it is now; fill: COPY_FROM_BACKING */
	struct copy_link link[2];	/* for its first and its last region of 2 MiB */
	bool raced;			/* a write or discard of its range was issued since it began; bucket lock */
	u16 nr_slots;
	bool omitted;
	struct page **pages;		/* nr_slots of them, owned */
	void (*done)(struct copy *copy, int error);	/* interrupt context; frees pages and copy */
	void *ctx;
};
/* process context, sleeps on copies_lock; -EAGAIN: no segment; the copy stays the caller's */
int copies_add(struct cache *c, u8 stream, struct copy *copy);
void copies_close(struct cache *c, u8 stream);		/* sleeps: what is open goes out now */
/* Sleeps.  Their open segments for which this is true are sealed; those that they have opened are passed over. */
void copies_leave(struct cache *c, bool (*is)(struct cache *c, u32 segment, const void *arg), const void *arg);
/* Does copies_add() find no room because writes in flight have all that is not in reserve?  Any context; a snapshot. */
bool copies_starve(const struct cache *c);
void copies_wait(struct cache *c, long timeout);	/* jiffies; sleeps: until what had been gathered is in the index */
#define COPY_FROM_BACKING (~0ull)
/*
 * Any context.  From here on a write or discard of its range voids it; false: one is in flight already (own_bypasses: those of the
 * caller not counted), or in its neighbourhood.  copy_end_race() in either case.
 */
bool copy_begin_race(struct cache *c, struct copy *copy, u32 own_bypasses);
void copy_end_race(struct cache *c, struct copy *copy);
void copies_timer(struct work_struct *work);
void copies_abort(struct cache *c);			/* sleeps: the cache has failed, what is gathered is given up */

/* ------------------------------------------------------------------ move.c: dirty data goes to another place */
#define MOVE_SLOTS	64u		/* of a piece, at most */
struct mover {				/* one task's */
	struct cache *c;
	bool (*ended)(struct cache *c);	/* is nothing to be waited for any more? */
	bool makes_space;		/* by what it moves: the log has more room for it than for users */
	bool turns;			/* where others write beside a piece they are held up, for 100 ms at most */
	bool busy;			/* something was left out for what was in flight beside it */
	atomic_t in_flight;		/* pieces in the log that are not applied */
	struct copy copy;		/* the range of the piece at hand */
	struct bio bio;			/* of the pages, for log_write() */
	struct page *pages[MOVE_SLOTS];
	struct bio_vec vec[MOVE_SLOTS];
};
/* Sleep; NULL: no memory. */
struct mover *mover_create(struct cache *c, bool (*ended)(struct cache *c), gfp_t gfp);
void mover_free(struct mover *mv);		/* NULL is fine */
/* Sectors that a piece may have. */
static inline u32 move_sectors(const struct cache *c) { return min(MOVE_SLOTS, c->record_slots) * LARDER_SLOT_SECTORS; }
/*
 * Sleeps.  Appends a dirty piece to the write stream again.  -ESTALE: it is not there any more, or is written to; -EAGAIN: no room
 * in the log, or not now; -EIO, -EBADMSG: no copy of it can be read; -ENOMEM.  The volume has to stay until move_wait().
 */
int move_piece(struct mover *mv, struct volume *v, const struct larder_map *m);
void move_wait(struct mover *mv);		/* sleeps: until all that was appended is applied */
void move_applied(struct larder_io *io);	/* any context: log.c has applied a piece, or given it up */
/* Sleeps.  v->forgotten is set: nothing of the volume goes into the log after it */
void moves_leave(struct cache *c);

/* ------------------------------------------------------------------ flush.c */
void flusher_init(struct flusher *f, struct cache *c, struct volume *v);
/*
 * Any context that may take GFP_NOWAIT/NOIO by may_wait.  1: w will be called; 0: nothing to wait for; -EAGAIN: no memory and
 * !may_wait.
 */
int flusher_flush(struct flusher *f, struct flush_wait *w, bool force, bool may_wait);
int flusher_sync(struct flusher *f, bool force);	/* sleeps */
void flusher_wait(struct flusher *f);			/* sleeps: until the flushes that are in flight now have ended */
/* Any context.  A write has failed, ours or a user's: an error that is of its place alone (no space, a bad sector) counts not */
void flusher_write_failed(struct flusher *f, blk_status_t status);
void flusher_own_write_failed(struct flusher *f, blk_status_t status);	/* the same, of a write that no user is told of */
static inline void flusher_wrote(struct flusher *f)
{
	if (!READ_ONCE(f->needed))
		WRITE_ONCE(f->needed, true);
}

/* Any context: what was written back has reached the backing; no flush of a user need secure it, as it is dirty still. */
static inline void flusher_wrote_own(struct flusher *f)
{
	WRITE_ONCE(f->own, true);
	WRITE_ONCE(f->written, true);
}

/* Any context: a user is about to be told that this is done. */
static inline void flusher_acked(struct flusher *f)
{
	if (!READ_ONCE(f->acked))
		WRITE_ONCE(f->acked, true);
	if (!READ_ONCE(f->written))
		WRITE_ONCE(f->written, true);
	flusher_wrote(f);
}

/*
 * Sleeps.  All that has completed on the backing is durable there, if nothing has failed since 'errors' was read of the flusher;
 * else -EIO: whatever was volatile may be gone, though this flush has succeeded.
 */
int backing_secure(struct volume *v, unsigned int errors);
void flusher_owe_user(struct flusher *f);		/* any context: the next flush of a user, or FUA write, fails */
void flusher_hand_over(struct flusher *from, struct flusher *to); /* any context: what is owed; the user goes on with that one */
bool flusher_take_owed(struct flusher *f);		/* any context: the caller has a user to tell, with an error */
void flusher_doubt(struct flusher *f);			/* any context: a superblock's write, and so perhaps a flush, has failed */
int cache_flush_ssds(struct cache *c);			/* sleeps: moves durable_lsn */
void flushers_started(struct cache *c);			/* the end of a start: all that is on the SSDs is durable */
/* map(), or, of a volume without a cache, its worker: takes the bio */
void user_flush(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait);
void user_flush_after(struct volume *v, struct larder_io *io);	/* interrupt context: a bypassed FUA write completed */
void user_flush_fua(struct cache *c, struct larder_io *io);	/* log->lock held, any context: a cached FUA write is applied */
void flush_enqueue(struct cache *c, struct larder_io *io);	/* any context */
int flush_init(void);
void flush_exit(void);
/* log->lock held, any context: moves waiters whose target is applied, queues the work */
void user_flush_ready(struct cache *c);
void user_flush_work(struct work_struct *work);
void user_flushes_kick(struct cache *c);		/* process context: log->held has ended, or the cache has failed */
void user_flushes_wait(struct cache *c);		/* sleeps: until none of their works runs */
/* any context: a write must first repeat a flush that has failed (rule 2), or bring the backing up to the set of SSDs (rule 14) */
bool volume_in_doubt(struct volume *v);
bool cache_in_doubt(struct cache *c);		/* the last flush of an SSD of the set has failed */
bool fua_fails(struct volume *v, struct bio *bio);	/* any context: failed-flush-owed; then it has been answered */
int write_settle(struct volume *v, struct larder_io *io);	/* sleeps: does that; -EAGAIN: later */

/* ------------------------------------------------------------------ doubt.c (rule 2) */
void doubt_init(struct cache *c);
void doubt_resume(struct cache *c);		/* goes on, if a suspend came between */
/*
 * Any context: what a read of v gets from an SSD is compared with its checksums.  That of a cache that has failed, too: it may have
 * dropped what it had not flushed, also where no doubt has begun (a flush that fails is what makes the last SSD leave; an append
 * that has run out of time).
 */
static inline bool reads_verified(const struct volume *v)
{
	return v->set.verify || READ_ONCE(v->cache->doubt.on) || unlikely(READ_ONCE(v->cache->state) == CACHE_FAILED);
}
void doubt_begin(struct cache *c, struct flusher *f);	/* any context: a flush of an SSD that stays in the set has failed */
void doubt_begin_resent(struct cache *c, struct flusher *f);	/* the same of an append, which is sent again */
/* Any context.  Another write to an SSD that stays has failed: the same, if that may have been a reset. */
void doubt_write_failed(struct cache *c, struct cache_device *d, blk_status_t status);
bool doubt_may_be_reset(const struct cache *c, const struct cache_device *d, blk_status_t status);	/* any context */
/* Any context.  A write of cache_device_write() has: nothing counts, until doubt_suspect_end(), by whoever sent it, says why. */
void doubt_suspect(struct cache *c, struct cache_device *d);
void doubt_suspect_end(struct cache *c, struct cache_device *d, bool reset);	/* process context, log->lock not held */
bool doubt_is_vain(struct cache *c);		/* sleeps: the caller is at an attempt to end it, which has failed already */
bool doubt_blocks(const struct cache *c);	/* any context: nothing counts as durable, but for who is at ending that */
/*
 * log->lock held, any context.  0: there is no doubt.  -EAGAIN: an attempt to end it is made, ask again; *asked, 0 at first, has
 * its number.  Else: the error that it has ended with
 */
int doubt_ask(struct cache *c, u32 *asked);
/* log->lock held, any context: the attempt that somebody waits for who begins to wait now; 0: there is no doubt */
u32 doubt_next(const struct cache *c);
bool doubt_cost(struct volume *v, u32 asked);	/* any context: has dirty data of v been found gone in the doubt of that attempt? */
void doubt_lost(struct volume *v);		/* an attempt has */
int doubt_try(struct cache *c);			/* sleeps: one attempt; 0: there is no doubt (any more) */
void doubt_work(struct work_struct *work);

/* ------------------------------------------------------------------ grow.c (rule 15) */
/* Sectors that a volume may have on its backing as it is now; a multiple of its logical block size */
u64 volume_room(const struct larder_volume_sb *sb, struct block_device *bdev);
/*
 * To so many sectors, for which there is room, or, where the superblock has as many or more, with that many.  Sleeps; the volume is
 * taken, with its superblock and backing, and not active.  An error leaves it as it was, or larger on disk than in core
 */
int volume_grow(struct volume *v, u64 sectors);
/*
 * The last SSD of the set has room for more segments: they are the cache's.  Sleeps; the cache runs, and stands still.  An error
 * leaves it as it was, in core; the next call goes on where this one came to
 */
void cache_grow_last(struct cache *c);

/* ------------------------------------------------------------------ mark.c (rule 6) */
u64 marks_base_bytes(u64 sectors);
int marks_create(struct volume *v);
/* For so many sectors, if that is more.  Sleeps; the volume is not active, nothing of it in flight.  -ENOMEM: as it was */
int marks_resize(struct volume *v, u64 sectors);
void marks_destroy(struct volume *v);
/* Any context.  For [sector, sector+len): 0: marks held (mark_put() later); 1: exempt, nothing held; -EAGAIN: being set, defer */
int marks_get(struct volume *v, u64 sector, u32 len, bool through);
void marks_put(struct volume *v, u64 sector, u32 len);	/* interrupt context */
bool marks_due(const struct volume *v);			/* is marks_work() to look for idle ones? */
void marks_work(struct work_struct *work);
/* any context: something of it enters the index, or a fill begins */
void marks_known(struct volume *v, u64 sector, u32 len);
bool marks_may_fill(struct volume *v, u64 sector, u32 len);
void marks_exempt(struct volume *v, u64 sector, u32 len);	/* at issue and at completion of an exempt bypass */
void marks_flush_issued(struct volume *v, u64 number);	/* before the flush is submitted */
void marks_flush_done(struct volume *v, u64 number, bool ok);
void marks_stop(struct volume *v);			/* sleeps; not on meta_wq */
/*
 * The volume is being bound again to its cache, which has run meanwhile, and is not active yet.  Where marks are left, its disk has
 * not flushed what went there, and may have lost power since: what is clean there leaves the index, and the log as they are
 * cleared, which is soon.  Sleeps.
 */
void marks_bound_again(struct volume *v);
void marks_load(struct volume *v, u64 region);		/* at start: set */
void marks_cleared(struct volume *v, u64 region);	/* the INTENT-clear record is applied; interrupt context */
u32 marks_copy(struct volume *v, u64 *regions, u32 max, u32 skip);	/* for a checkpoint: all but those that are only wanted */

/* ------------------------------------------------------------------ io.c, bypass.c, fill.c: requests */
/* map(): judges the bio, or the piece of one that was cut, and acts on it.  Returns DM_MAPIO_*. */
int io_begin(struct volume *v, struct bio *bio);
/* Acts on one that has been judged.  Returns DM_MAPIO_*; -EAGAIN when may_wait and it must be tried again. */
int io_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait);
void read_lost(struct volume *v, u64 sector, u32 len);	/* any context: dirty data that no SSD gives */
void io_read_again(struct volume *v, struct bio *bio, struct larder_io *io);	/* any context: a hit; not what is clean of it */
/* Process context: the log has been full for failure_wait seconds, and dirty data of the volume cannot be written back */
bool volume_is_full(const struct volume *v);
int io_end(struct dm_target *ti, struct bio *bio, blk_status_t *error);
void defer_bio(struct volume *v, struct bio *bio);
void defer_kick(struct cache *c);			/* any context: conditions changed */
void defer_work(struct work_struct *work);
enum race_kind { RACE_WRITE, RACE_BYPASS, RACE_WRITEBACK, RACE_RESYNC };
/*
 * Any context.  Announces a request on the buckets of its range; true: a conflicting kind is in flight there (then race_end(), and
 * try again later).
 */
bool race_begin(struct cache *c, struct volume *v, u64 sector, u64 len, enum race_kind kind);
void race_end(struct cache *c, struct volume *v, u64 sector, u64 len, enum race_kind kind);
/* Bypasses only.  In the buckets of the range nothing else begins before get_jiffies_64() is until; 0: at once. */
void race_turn(struct cache *c, struct volume *v, u64 sector, u64 len, u64 until);
void race_barrier(struct cache *c, struct volume *v, u64 sector, u64 len, u64 lsn);	/* a bypass there needs this lsn applied */
u64 race_barrier_lsn(struct cache *c, struct volume *v, u64 sector, u64 len);
/*
 * Any context.  bio_init() for what all users of a cache wait for, in the order of the log: charged to the root cgroup, for the
 * limits (io.max, io.latency, io.weight) of that of the task which happens to send it are not for the others.
 */
static inline void bio_init_for_all(struct bio *bio, struct block_device *bdev, struct bio_vec *vecs, unsigned short n,
				    blk_opf_t opf)
{
	bio_init(bio, NULL, vecs, n, opf);	/* no look-up of the task's */
	bio->bi_bdev = bdev;
	bio_associate_blkg_from_css(bio, blkcg_root_css);
}

/* Any context.  Charged to whom that request is, where it was noted (io_map()): a worker sends it. */
static inline void bio_charge_as(struct bio *bio, struct bio *request)
{
#ifdef CONFIG_BLK_CGROUP
	if (request->bi_blkg)
		bio_clone_blkg_association(bio, request);
#endif
}

int io_issue(struct bio *bio, bool may_wait);		/* a remapped clone: to dm (map) or down (worker); DM_MAPIO_* */
void io_complete(struct bio *bio, int error);		/* any context */
/* DM_MAPIO_*; -EAGAIN: try again later; -EBUSY: something dirty is there: to the cache */
int bypass_write(struct volume *v, struct bio *bio, struct larder_io *io, bool through, bool may_wait);
/* the same with zeroes, to a backing that has no command for them: written as data, by a worker, which waits for them */
int bypass_zeroes(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait);
int bypass_discard(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait);
void defer_again(struct work_struct *work);
int read_backing_mixed(struct volume *v, struct bio *bio, struct larder_io *io);	/* worker */
void bypass_end(struct volume *v, struct larder_io *io, bool ok);	/* interrupt context */
/* To the backing, past any cache; as io_issue(). */
int pass_issue(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait);
int passthrough_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait);

/* ------------------------------------------------------------------ leave.c */
/* What changes something, while the cache has failed: as io_map(). */
int leave_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait);
/* Any context.  Would an error of the cache be no error of this volume, or is that not known yet? */
bool leave_may(const struct volume *v);
/* Any context.  The cache has failed, and what is dirty is written back past its log: no record need be durable, none follows. */
bool leave_drains(const struct volume *v);
/* writeback_work(): true: the cache has failed, and there is nothing to write back, or not yet. */
bool leave_waits(struct volume *v);
/* writeback_work(): after a batch; err: -ENODATA: there was nothing to take.  before: sectors that were dirty before it */
void leave_drained(struct volume *v, int err, u64 before);
void leave_late(struct volume *v);	/* sleeps not; errors to who waits, if failure_wait is over */
void leave_begin(struct volume *v);	/* process context: it is bound to a cache that has failed */
void leave_kick(struct volume *v);	/* process context: the cache has failed */
void leave_work(struct work_struct *work);
void leave_clean(struct cache *c, const char *why);	/* any context: the cache fails for this if nothing at all is dirty */
/* 0: the write goes to the backing from a copy that fills the cache after it */
int fill_through(struct volume *v, struct bio *bio, struct larder_io *io);
int fill_miss(struct volume *v, struct bio *bio, struct larder_io *io);	/* 0: taken; -EAGAIN: plain miss */
void fill_answer_work(struct work_struct *work);
void fill_work(struct work_struct *work);
void fills_flush(struct cache *c);			/* sleeps: what has been read is answered, and gathered */
void fills_wait(struct volume *v);			/* sleeps: until none of the volume is in flight */

/* ------------------------------------------------------------------ admit.c: what goes to the SSD.  Any context unless said. */
struct class_count { u64 reads, writes, read_sectors, write_sectors; };
/* sleeps; v->set, and all that follows from it.  One at a time.  -ENOMEM: nothing has changed */
int volume_settings_apply(struct volume *v, const struct volume_settings *set);
void volume_admit_destroy(struct volume *v);		/* the last reference is gone */
void volume_stripe_init(struct volume *v);		/* v->bdev and v->data_start are set */
/* process context: io->bypass, pin, class; sequential: of a long stream */
void io_classify(struct volume *v, struct bio *bio, struct larder_io *io, bool sequential);
/* sequential_cutoff=auto: a request of a run of so many bytes.  Shall it, if it may, go past the cache? */
bool stream_bypasses(struct volume *v, struct larder_io *io, u64 run, bool write);
void stream_ended(struct volume *v, const struct larder_io *io, bool write);	/* any context */
/* map() is about to accept so many sectors: the rest comes back as a request of its own */
void io_class_cut(struct volume *v, struct bio *bio, struct larder_io *io, u32 sectors);
/* by rule, the last: none matched; returns how many, 0: no table.  sums: LARDER_CLASS_RULES + 1 */
unsigned int volume_class_counts(struct volume *v, struct class_count *sums);
/* pins the slots that [sector, sector + len) has in the cache from 'cache' on, as long as they are mapped and the share lasts */
void pin_set(struct volume *v, u64 sector, u64 cache, u32 len, u8 pin);
void pins_clear(struct volume *v, u64 cache, u32 len);	/* a mapping has gone */
u8 pin_of(const struct cache *c, u64 cache, u32 len);	/* 0: none of it is pinned */
void pins_destroy(struct cache *c);
bool admit_keeps(struct volume *v, const struct larder_map *m);	/* reclaim: pinned, or of a volume below its guaranteed share */
u32 admit_segments_kept(struct cache *c);	/* any context: so many segments would be full of such data, at most */
bool share_is_used_up(struct volume *v);	/* any context: has it share_max, below 100, of the cache? */
/* Whole stripes in a write behind its first *lead sectors; 0: none.  v->stripe is not 0. */
u32 io_stripes(const struct volume *v, const struct larder_io *io, u32 *lead);

bool ssd_probe_try(struct cache *c, enum ssd_direction dir);
/* Is this request to be timed?  Then ssd_probe_end() when it ends, whatever became of it. */
static inline bool ssd_probe_begin(struct cache *c, enum ssd_direction dir)
{
	return unlikely(jiffies - READ_ONCE(c->probe[dir].looked)) && ssd_probe_try(c, dir);
}
void ssd_probe_end(struct cache *c, enum ssd_direction dir);
bool ssd_avoids(struct cache *c, enum ssd_direction dir);
static inline bool ssd_congested(struct cache *c, enum ssd_direction dir) { return READ_ONCE(c->probe[dir].state.share); }

/* ------------------------------------------------------------------ zeroes.c */
int zeroes_init(void);
void zeroes_exit(void);
/*
 * Sleeps.  Whole logical blocks of the backing, in space that it keeps: by its command for that; as data where that is refused,
 * or has failed before.  A failure may have cost what was volatile there: flusher_write_failed() is the caller's.
 */
int zeroes_write(struct volume *v, sector_t sector, sector_t sectors);

/* ------------------------------------------------------------------ writeback.c, reclaim.c */
#define PIECE_SECTORS 1920u		/* of a piece that has data, at most: it fits one write */
struct piece {				/* an extent to be written back */
	u64 sector, cache;
	u32 len;
	u8 state;
	bool tried;
	bool held;			/* CLEANING, its buckets and its segment's pin are ours */
	bool written;
	bool damaged;			/* it does not match its checksums, or cannot be read */
};
/* Sectors of the piece that begins at this sector, which is in the cache there, and has 'len' sectors at most. */
u32 writeback_piece_len(const struct volume *v, u64 sector, u64 cache, u32 len);
/*
 * Sleeps; not on io_wq.  Writes pieces (sorted by sector) back: data, flush of the backing, CLEAN records.  Returns 0, or the first
 * error (what failed stays dirty); -EBADMSG: damaged pieces were left out.
 */
int writeback_pieces(struct volume *v, struct piece *pieces, u32 n);
/*
 * writeback_lock held.  A batch has ended, with so many sectors on the backing: what has failed stays dirty, and is tried again,
 * ever later, by the background, and once a second by who needs space: writeback_fails() until then.  False: it has failed.
 */
bool writeback_ended(struct volume *v, int err, u64 sent);
/* Any context.  So many pieces are to be written back together; beside: others read from the disk, and nobody waits for room. */
u32 writeback_batch(const struct volume *v, bool beside);
bool writeback_is_beside(const struct volume *v);
/* Any context.  Jiffies that a batch which began then leaves to those who have read from the disk meanwhile. */
unsigned long writeback_gives_way(const struct volume *v, unsigned long began);
bool writeback_fails(const struct volume *v);
void writeback_work(struct work_struct *work);
void writeback_cleaned(struct volume *v, const struct larder_entry_in *e);	/* interrupt context: a CLEAN is applied */
void writeback_kick(struct volume *v);
bool writeback_waits(const struct volume *v);		/* dirty data stays where it is until something changes */
void writeback_stop(struct volume *v);			/* sleeps: waits for the batch in flight */
/*
 * Process context.  Only where c->pace.on: may a user's write have some of the log now?  deferred: it has waited, and is not to
 * wait for those that do.  Then, if it got it, space_taken().
 */
bool space_admits(struct volume *v, bool deferred);
/* Any context.  Is less free than the log is to have, and somebody writes, or may wait? */
bool space_is_wanted(struct cache *c);
void reclaim_unstick(struct cache *c);	/* any context: dirty data of a volume can be written back that could not */
void space_taken(struct cache *c, u32 sectors);
void reclaim_work(struct work_struct *work);
void reclaim_kick(struct cache *c);
int reclaim_now(struct cache *c, u32 n);		/* message; sleeps */
/*
 * Sleeps; what can be done now.  Drain: empties segments on this SSD, and writes back what has a copy there.  Single: writes back
 * what has one copy.
 */
void reclaim_drain(struct cache *c, const struct cache_device *d);
void reclaim_single(struct cache *c);
void cache_tick(struct work_struct *work);
void volume_tick_work(struct work_struct *work);
void cache_tick_wake(struct cache *c);			/* any context: something has changed that it may have to see to */
int volume_try_clean(struct volume *v);			/* sleeps: clears may_be_dirty if rule 11 allows; 0: it is clear */

/* ------------------------------------------------------------------ checkpoint_room.c */
/* reserve_checkpoint, for one of so many bytes, or as large as c->named[0].  Any context but interrupts: one at a time, or racy */
void checkpoint_set_reserve(struct cache *c, u64 bytes);
/* Any context: would so many segments do, with what is open, and two that are named? */
bool checkpoint_fits(struct cache *c, u32 units);
/* Bytes: of the next one, about (takes super_lock); and what it may have: from there on memory is short */
u64 checkpoint_estimate(struct cache *c);
u64 checkpoint_most(struct cache *c);
/*
 * Sleeps.  Are there segments for one now?  One that came to their end would have opened, in the log, those that are mapped, and
 * given them back: tried again and again it would use up the slots that are kept for SEGMENT_OPEN.
 */
bool checkpoint_has_room(struct cache *c);
u64 checkpoint_limit(struct cache *c, u32 units);	/* slots of replay that make one due, of so many segments for it */

/* ------------------------------------------------------------------ checkpoint.c, recover.c */
enum checkpoint_pace { CHECKPOINT_AT_ONCE, CHECKPOINT_GENTLY };	/* gently: 5 % of the SSD's time, given up when the cache stops */
/*
 * All but the superblock: snapshot and chunks.  checkpoint_lock held, or nobody else there yet.  *position: log->position at the
 * snapshot.
 */
int checkpoint_write(struct cache *c, struct named_checkpoint *n, enum checkpoint_pace pace, u64 *position);
void checkpoint_free(struct cache *c, struct named_checkpoint *n);	/* its segments are FREE again */
/* checkpoint_lock, or a start.  The last one did; where that is so a second time the segment is passed over. */
bool checkpoint_met_bad_place(const struct cache *c);
#define CHUNK_SECTORS	(LARDER_CHUNK_SIZE >> LARDER_SECTOR_SHIFT)
/* Any context: the SSD with this copy of a checkpoint's segment, and where its chunk'th chunk is there, in sectors. */
struct cache_device *chunk_place(struct cache *c, u32 segment, u32 chunk, sector_t *where);
void checkpoint_destroy(struct cache *c);		/* cache_put(): frees the lists of segments of c->named and c->doubtful */
/* Sleeps.  Would a replay look for its first record on this SSD? */
bool checkpoint_begins_on(struct cache *c, const struct cache_device *d);
void checkpoint_set_keep(struct cache *c);		/* keep_sequence, keep_checkpoint from c->named */
int checkpoint_take(struct cache *c);			/* sleeps: snapshot, chunks, sync, superblock */
void checkpoint_work(struct work_struct *work);
void checkpoint_kick(struct cache *c);
bool checkpoint_due(struct cache *c);
/* sleeps: loads the checkpoint, replays, new epoch, checkpoint, superblock; volumes exist afterwards */
int cache_start(struct cache *c);
void cache_stop(struct cache *c);			/* sleeps: postsuspend: commit, flush, perhaps a checkpoint */

/* attach.c: volumes come and go.  Sleep. */
int cache_attach(struct cache *c, const u8 uuid[16], const char *label, u64 sectors, u64 incarnation, struct volume **v);
int cache_forget(struct cache *c, struct volume *v);	/* index dropped, FORGET logged, table entry gone; -EBUSY: in use */
int cache_forget_rest(struct cache *c, const u8 uuid[16]);	/* of one that met an error; -ENOENT: there is none */
/* before the first write without the cache; sets v->raised.  Not on io_wq */
int volume_raise_incarnation(struct volume *v);

/* age.c */
/* Any context.  The next incarnation: a random one above, as another copy of the volume may take the same steps from here. */
u64 incarnation_next(u64 incarnation);
/* Any context.  Is what has this superblock v's backing, before what its cache has seen of it?  False for the one v is bound to */
bool volume_is_older(const struct volume *v, const struct block_device *bdev, const struct larder_volume_sb *sb);
/* Any context.  Is v's cache of a time before what this superblock, its backing's, knows that it had seen?  False as above */
bool cache_is_older(const struct volume *v, const struct block_device *bdev, const struct larder_volume_sb *sb);
/* v->super_lock held: what the table of the cache has, for the superblock that is written next. */
void volume_note(struct volume *v);
/*
 * Sleeps.  v is bound, and its superblock has this generation, durably: the table of its cache says so, if it can be written, and
 * then the superblock that it does.  v->see_failed: that could not be.
 */
void volume_seen(struct volume *v, u64 generation);
bool volume_see_due(const struct volume *v);		/* any context: has it been written since, and for so long? */
/*
 * Sleeps, v is bound.  If the backing has been written since: a new generation for it, then volume_seen().  An error of the backing
 * leaves it at the one before, until v is bound again.
 */
void volume_see(struct volume *v);

/* main.c */
extern struct workqueue_struct *larder_wq;		/* WQ_MEM_RECLAIM: what has no cache */

/* bind.c.  Sleep. */
int volume_target_check(struct volume_target *vt);	/* constructor: could it be bound, as things are?  Sets ti->error */
void volume_target_list(struct volume_target *vt);
void volume_target_unlist(struct volume_target *vt);
int volume_target_bind(struct volume_target *vt);	/* preresume */
void volume_target_postsuspend(struct volume_target *vt);
int volume_target_discard_dirty(struct volume_target *vt, const u8 uuid[16]);	/* -EBUSY: bound, or its cache is suspended */
bool volume_is_claimed(struct volume *v);		/* cache_registry_lock held: bound, or will be when its cache is resumed */
void volumes_suspend(struct cache *c);			/* its live ones, internally and without flush; c->suspending is set */
void volumes_resume(struct cache *c);			/* those again; c->suspending is clear, or the cache has failed */
static inline const char *volume_target_name(const struct volume_target *vt)
{
	return dm_device_name(dm_table_get_md(vt->ti->table));
}

/* status.c */
/* Sleep.  What the target has, counted: a resume that is tried again replaces it; volume_target_get(): NULL before the first one */
struct cache *cache_target_get(struct cache_target *ct);
struct volume *volume_target_get(struct volume_target *vt);
void cache_status(struct dm_target *ti, status_type_t type, unsigned int flags, char *result, unsigned int maxlen);
void volume_status(struct dm_target *ti, status_type_t type, unsigned int flags, char *result, unsigned int maxlen);

extern struct target_type cache_target_type, volume_target_type;

#endif
