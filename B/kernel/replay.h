/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between recover.c, which starts a cache and begins its new epoch, load.c, which loads a checkpoint, and replay.c, which reads the
 * log behind it.
 */
#ifndef LARDER_REPLAY_H
#define LARDER_REPLAY_H

#include "larder.h"

/* Reads the chain of one stream's records, in order.  'commit' is the next valid one, not taken yet; it points into 'buf'. */
struct cursor {
	u8 stream;
	bool ended;			/* nothing more, whatever is opened later */
	bool doubted;			/* scan: the stream may end before here: what cannot be read need not matter */
	bool drained;			/* nothing more in 'segment': it goes on in the first of the queue */
	u32 segment, slot;		/* the next record's slots begin here */
	u64 prev_sequence;
	u32 prev_crc;
	u32 *queue;			/* opened segments in order; [next, nr) are not begun */
	u32 next, nr, size;
	unsigned long *queued;		/* bit per segment: it is in the queue, or was */
	/* data_slots of segment 'loaded', of the first copy that could be read; what is not whole may come from another one */
	void *buf;
	void *copy[SEGMENT_COPIES - 1];	/* of the others */
	u32 nr_copies;			/* in copy[] */
	u32 from[SEGMENT_COPIES];	/* segments: of buf, of copy[0], ... */
	unsigned long *differ;		/* slots in which they differed when they were read */
	unsigned long *taken;		/* slots that buf has from another one */
	unsigned long *unread;		/* slots that cannot be read in any copy; in buf and copy[] they match no sum */
	u32 gap;			/* a segment that has such where the next record may be, if it is nowhere else; or none */
	u32 loaded;
	const struct larder_commit *commit;
};

/* A record whose data does not match its sums, not known durable so far. */
struct doubt {
	u64 sequence, before;		/* its own, and that of the record before it in the stream */
	bool unread;			/* what can be read of it does match: the rest might, too */
};

struct replay {
	struct cache *c;
	struct larder_geometry geo;	/* of any volume: what lies outside of its volume is skipped, not refused */
	u64 *any_volume;		/* ~0 for each */
	u64 hash;			/* of the epoch's records */
	u64 first_sequence;		/* of the epoch */
	u32 epoch;
	u64 replay_sequence;
	/* from the checkpoint */
	struct larder_pos_in pos[LARDER_NR_STREAMS];
	bool has_pos[LARDER_NR_STREAMS];
	u32 opened[LARDER_NR_STREAMS][LARDER_MAX_OPENED];
	u32 nr_opened[LARDER_NR_STREAMS];
	struct xarray *marks;		/* by volume: region -> value entry */
	/* from the scan */
	bool scanned;
	u64 *reopened;			/* by segment: sequence of the record that opens it again, 0: none */
	u32 *mirror, *mirror_of;	/* by segment: its next copy, and whose that is: a chain from the first; + 1, 0: none */
	u32 *applied_mirror, *applied_mirror_of;	/* the same as replay_apply() has seen it, for replay_repair(); or NULL */
	u64 end;			/* records of the write stream with this sequence number and later are not valid */
	u64 last_write;			/* the last valid one */
	u64 durable;			/* newest durable_sequence found, wherever it stands */
	struct doubt *doubts;		/* in order; scan only */
	u32 nr_doubts, size_doubts;
	/* in all */
	struct cursor cursor[LARDER_NR_STREAMS];
	u64 highest;			/* sequence number seen */
	u64 records, slots;		/* replayed */
	u64 skipped;			/* entries of unknown volumes, or outside of theirs */
	/* records with damaged data: ignored (fill, keep), or durable all the same (write stream) */
	u64 damaged;
	u64 lacking;			/* records that not every copy has whole */
	u64 repaired;			/* of these: written to those that had not */
	u64 copies;			/* that the records of this walk were read from */
	u32 gave_up;			/* by SSD: it had a segment that could not be read at all */
	bool repairs;			/* replay_repair() runs */
};

/* One start of a cache. */
struct start {
	struct cache *c;
	struct replay r;
	struct named_checkpoint old[LARDER_NR_CHECKPOINTS];	/* as the superblock names them */
	u32 flags;			/* of the superblock */
	unsigned int used;		/* which of old[] was loaded */
	bool fresh;			/* there is none */
	bool fatal;			/* the older checkpoint would not help */
	bool degraded;			/* a member of the set is not there any more */
	u64 must_reach;			/* a record of the write stream that is known to have been durable */
	u64 durable;			/* another one, by the superblock; of the newest epoch, or of none */
	u64 lost;			/* extents of the checkpoint whose volume is unknown, or smaller */
	struct volume *unloaded[LARDER_MAX_VOLUMES];	/* until nobody can find them any more */
};

/* load.c.  Sleep.  Of s->old[which]: everything, and its segments; the log is scanned.  Errors are logged. */
int checkpoint_load(struct start *s, unsigned int which);
/* The segments of a checkpoint that is not loaded, as far as its chain can be followed. */
int checkpoint_protect(struct start *s, struct named_checkpoint *n);

/* replay.c.  All sleep.  Negative: an I/O error or no memory; what is merely not valid is the end of a stream and no error. */
int replay_scan(struct replay *r);	/* what of the write stream is valid; reopened[] */
int replay_apply(struct replay *r);	/* merges the streams into the indexes and r->marks */
int replay_repair(struct replay *r);	/* behind it, once the start is to go on: the only writes; frees the cursors */
/* -EBADMSG, logged: a record of the write stream that was durable is not among those that are valid */
int replay_check_end(struct replay *r);
void replay_cursors_free(struct replay *r);
/* May these (larder_further()) be further copies of first?  Each is on an SSD of its own. */
bool replay_copies_ok(struct cache *c, u32 first, u64 further);
/* What is ok is so from now on; what they were before they are not any more. */
void replay_link(struct replay *r, u32 first, u64 further);
/* By the information on a segment, the first one or not: its next copy, of which it may be known already what comes behind it. */
void replay_link_next(struct replay *r, u32 segment, u32 next, bool first);
/* The copies of the segment, itself first, each on an SSD of its own: how many, so no more than there are SSDs */
u32 replay_copies(const struct replay *r, u32 segment, u32 copy[SEGMENT_COPIES]);
/* Was this segment opened again behind the checkpoint?  Then what the checkpoint maps to it is gone. */
static inline bool replay_reopened(const struct replay *r, u32 segment)
{
	return r->reopened[segment] && r->reopened[segment] < r->end;
}
/* In regions, with a refill of the index where it needs one. */
int replay_store(struct volume *v, u64 sector, u64 len, u64 cache, u8 state);
/* Removes every mapping of [sector, end) whose state is in mask. */
int replay_drop(struct volume *v, u64 sector, u64 end, u32 mask);

#define REPLAY_ALL_STATES	(1u << LARDER_ST_CLEAN | 1u << LARDER_ST_DIRTY | 1u << LARDER_ST_CLEANING | 1u << LARDER_ST_ZERO | \
				 1u << LARDER_ST_ZERO_CLEANING)

#endif
