/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the oracle knows of each sector of its region.
 *
 * Every operation that changes content has a sequence number, which is the version it writes; overlapping operations are never in flight
 * together, so that on each sector versions have one order.  Values: a version (stamp), or zeroes.  Sets of values are intervals of
 * versions [lo, hi]; zeroes belong to one if 'zero', the newest operation that made zeroes, does (0: nothing was written yet, zeroes).
 *
 *   live set    [lo, hi]         what a read may return now.  One value, unless a change failed, or after a discard; the first read of such a
 *                                sector narrows the set to what it returned
 *   crash set   [durable, last]  what may be found after a power cut: the last secured version or any later one, in flight or failed ones too
 *
 * Secured is what was acknowledged before a flush was issued that succeeded, and a FUA write itself.  A discard allows zeroes or any older value, in
 * both sets, until the sector is written again.
 */
#ifndef ORACLE_MODEL_H
#define ORACLE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum op_kind { OP_READ, OP_WRITE, OP_FUA, OP_FLUSH, OP_DISCARD, OP_ZEROES, NR_OPS };
extern const char *const op_name[NR_OPS];

#define SECTOR		512u
#define STAMP_MAGIC	0x6f7261636c653031ull	/* "oracle01" */

struct sector_state {
	uint32_t lo, hi;	/* live set */
	uint32_t durable, last;	/* crash set */
	uint32_t zero;		/* newest operation that made zeroes */
	uint32_t discard;	/* newest discard */
};

/* The life of one operation, for reports.  Kept in a ring. */
struct op_record {
	uint32_t version;	/* reads and flushes have one too */
	uint32_t kind;		/* enum op_kind */
	uint32_t first, count;	/* sectors of the region */
	uint32_t issued, ended;	/* positions in one order of events; ended 0: in flight */
	int32_t error;		/* negative errno */
	uint32_t pad;
};

#define HISTORY	65536u		/* records, a power of two */
#define NO_HISTORY UINT32_MAX

/* Acknowledged but not secured, in order of acknowledgement: a growing queue. */
struct pending {
	uint32_t version, first, count;
};

struct model {
	uint64_t seed;
	uint64_t offset;	/* first sector of the region on the device */
	uint64_t sectors;
	uint32_t unknown;	/* sectors never written may hold anything */
	uint32_t version;	/* newest */
	uint32_t event;		/* newest */
	uint32_t rounds;	/* verifications after a crash */
	struct sector_state *s;
	struct op_record *history;	/* HISTORY of them, by version */
	struct pending *pending;
	uint64_t pending_first, pending_next;	/* numbers, never reset; [first, next) are queued */
	uint64_t pending_room;
};

/* What a sector was found to hold. */
enum found_kind { FOUND_ZERO, FOUND_STAMP, FOUND_FOREIGN };
struct found {
	enum found_kind kind;
	uint32_t version;	/* FOUND_STAMP */
	/* FOUND_FOREIGN: the header as it is there */
	uint64_t magic, sector, seed;
	uint32_t raw_version;
	bool torn;		/* header is right, body is not */
};

/* Exits if there is no memory. */
void model_init(struct model *m, uint64_t seed, uint64_t offset, uint64_t sectors);
void model_free(struct model *m);

/* An operation is about to be issued; returns its version.  first, count: sectors of the region. */
uint32_t model_issue(struct model *m, enum op_kind kind, uint32_t first, uint32_t count);
/* A change has ended; error 0 or negative errno. */
void model_end(struct model *m, uint32_t version, int error);
/* For a flush: what it covers if it is issued now, and what follows from its success. */
uint64_t model_flush_mark(const struct model *m);
void model_flushed(struct model *m, uint64_t mark);

/* May a read return this?  If so narrows the live set to it. */
bool model_read(struct model *m, uint32_t sector, const struct found *f);
/* May this be found after a power cut?  If so it is what the sector holds from now on, durably. */
bool model_crash(struct model *m, uint32_t sector, const struct found *f);
/* As model_crash(), where flushed data may be lost as well: anything that this sector ever held. */
bool model_loss(struct model *m, uint32_t sector, const struct found *f);
/* As model_read(), after an orderly stop: what was read is durable. */
bool model_clean(struct model *m, uint32_t sector, const struct found *f);
/* After verification of every sector: nothing is pending. */
void model_settled(struct model *m);

/* Fills one sector of 512 bytes; looks at one. */
void stamp_fill(void *buf, uint64_t device_sector, uint32_t version, uint64_t seed);
struct found stamp_look(const void *buf, uint64_t device_sector, uint64_t seed);

/* Prints what was expected and found; history: and the changes of the sector, the last flushes. */
void model_explain(const struct model *m, FILE *f, uint32_t sector, const struct found *found, bool crash, bool history);

/* 0 or negative errno. */
int model_save(const struct model *m, const char *path);
int model_load(struct model *m, const char *path);

#endif
