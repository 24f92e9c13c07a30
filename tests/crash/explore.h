/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The crash-state explorer: what a power cut may leave, built from a recording of simulated disks, started, judged.
 *
 *   recording.c  the recording; at a position in it: what is durable on each disk, what may be or not, what each volume may hold
 *   state.c      the states of a position: which of the writes that are not durable have arrived, whole or torn
 *   disk.c       a state put on simulated disks
 *   dm.c         device-mapper by ioctl
 *   judge.c      starts the stack on a state, reads, evicts, drains, restarts, cuts the power again; asks who reads it without the stack
 *   explore.c    the command
 */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../vm/oracle/oracle.h"

#define MAX_DISKS	8
#define MAX_VOLUMES	4
#define MAX_TABLES	16
#define MAX_MESSAGES	8
#define MAX_OPEN	16384		/* writes of a disk that are not durable */
#define MAX_KINDS	256		/* states of a position */

#define CONTROL		"/sys/kernel/debug/simdisk/ctl"
#define RECORDING	"/sys/kernel/debug/simdisk/recording"

/* ------------------------------------------------------------------ recording.c */

enum entry_type { ENTRY_SUBMIT = 'S', ENTRY_COMPLETE = 'C', ENTRY_MARK = 'M' };
enum entry_op { DISK_READ, DISK_WRITE, DISK_FLUSH, DISK_DISCARD, DISK_ZEROES };

/* As tests/sim/simdisk_record.c has it; the bytes of a write or mark follow. */
struct entry {
	uint32_t size;
	uint8_t type, op, fua, pad;
	uint64_t id, sector;
	uint32_t sectors;
	int32_t error;
	char disk[16];
};

/* A write, discard or write-zeroes on its way to the medium. */
struct change {
	const struct entry *e;
	uint8_t *mask;		/* a byte per sector: 1 if no later change of the sector is durable.  NULL: all of them */
	uint64_t ended;		/* position of its completion, 0: in flight */
};

struct disk {
	char name[16];
	uint64_t bytes;			/* of its image */
	int durable;			/* file with what is durable of it */
	uint8_t *mapped;		/* the same */
	struct change open[MAX_OPEN];	/* not durable, in order of submission */
	unsigned int nr_open;
	struct change *due;		/* became durable since the disk was written last, in that order */
	unsigned int nr_due, room_due;
};

/* What one oracle knows; of one without processes nothing: what is found without the stack is only compared with what the stack reads. */
struct volume {
	const char *name;		/* of the dm device, or a path */
	struct model model;
	uint64_t pids[16];		/* processes whose marks are its own */
	unsigned int nr_pids;
	/* where its sector 0 is on a disk, once it is drained */
	int backing;			/* disk, -1: not known */
	uint64_t backing_sector;
	/* what the region was found to hold, and what was found the last time (found[] belongs to seen) */
	uint8_t *seen, *again;
	struct found *found;
	uint64_t *sum[2];	/* of the pieces of one that no oracle knows: without the stack, read from it */
	uint64_t read_before;	/* sum of what the stack has read first of this state, as it was noted */
};

struct recording {
	uint8_t *bytes;
	size_t size;
	const struct entry **entry;
	uint64_t nr;			/* entries; position p: entries [0, p) have happened */
	uint64_t position;
	struct disk *disk;
	unsigned int nr_disks;
	struct volume *volume;		/* may be NULL */
	unsigned int nr_volumes;
	uint64_t flush_at[MAX_DISKS][64];	/* flushes in flight: position of the submission, 0: free */
	uint64_t flush_id[MAX_DISKS][64];
};

/* 0 or a negative errno, with a line on stderr. */
int recording_load(struct recording *r, const char *path);
void recording_save(const struct recording *r, const char *path);
void recording_free(struct recording *r);
/* To position 0; volumes are left alone. */
void recording_rewind(struct recording *r);
/* Forward only. */
int recording_advance(struct recording *r, uint64_t position);
/* Is something different after this entry, on a disk or in what is expected? */
bool recording_matters(const struct recording *r, uint64_t position);
/* Position behind the newest mark of this text (no oracle's), 0: none. */
uint64_t recording_find(const struct recording *r, const char *mark);
/* The marks before the position that begin so, without that, a line each.  0 or a negative errno. */
int recording_texts(const struct recording *r, const char *begin, const char *path);
void change_free(struct change *c);
const void *entry_data(const struct entry *e);	/* NULL: zeroes */
unsigned int recording_open(const struct recording *r);
void recording_describe(const struct recording *r, FILE *f, uint64_t position);

/* ------------------------------------------------------------------ state.c */

/* Which of the open changes have arrived, by chance: kinds 0 none, 1 all, and those of state.c. */
uint64_t state_choose(const struct recording *r, struct rng *rng);

/* States of a position, no two of them the same. */
struct kinds {
	uint64_t kind[MAX_KINDS], number[MAX_KINDS];
	unsigned int nr;
	bool exhausted;		/* some changes are open: all subsets of them */
	bool extremes;		/* many are open: none, all, each alone, all but each */
};

/*
 * Those to try: all subsets where very few changes are open; where few are, or all extremes, if these are no more than so many
 * (complete, 0: never); and a sample.  Else so many (each) by chance.
 */
void state_kinds(const struct recording *r, uint64_t seed, unsigned int each, uint64_t complete, struct rng *rng, struct kinds *k);
/* Does sector i of open change c of disk d survive? */
bool state_has(const struct recording *r, uint64_t seed, uint64_t kind, unsigned int d, unsigned int c, uint32_t i);
/* The same number: the same sectors survive. */
uint64_t state_number(const struct recording *r, uint64_t seed, uint64_t kind);
void state_describe(const struct recording *r, FILE *f, uint64_t seed, uint64_t kind);

/* ------------------------------------------------------------------ disk.c: 0 or a negative errno, with a line on stderr */

int control(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on the disks are regular files there, NAME, and NAME.durable. */
int disks_in(struct recording *r, const char *directory);
bool disks_are_images(void);
int disk_open(const struct disk *d);
/* What is due becomes the content that disk_restore() brings back, if save; else it is only written. */
int disks_write_due(struct recording *r, bool save);
int disks_restore(const struct recording *r);
int disks_write_open(const struct recording *r, uint64_t seed, uint64_t kind);
int mark(const char *text);

/* ------------------------------------------------------------------ dm.c: 0 or a negative errno */

int dm_create(const char *name, const char *table);	/* lines "START SECTORS TARGET ARGUMENTS..." */
int dm_remove(const char *name);
int dm_message(const char *name, const char *text);
/* The value of key=NUMBER in the status; negative: none. */
int64_t dm_status(const char *name, const char *key);

/* ------------------------------------------------------------------ judge.c */

struct stack {
	const char *table_name[MAX_TABLES], *table[MAX_TABLES];	/* in order of starting; of one name: the first that is not refused */
	unsigned int nr_tables;
	const char *start, *stop;	/* commands behind the tables, and before they go; NULL: none */
	const char *evict[MAX_MESSAGES], *drain[MAX_MESSAGES];	/* "NAME MESSAGE" */
	unsigned int nr_evict, nr_drain;
	const char *drained;		/* "KEY": the status of each volume says KEY=0 */
	const char *check;		/* a command that must succeed when all runs */
	const char *alone;		/* a command that brings all content to the backings without the stack; of each so many states */
	uint64_t alone_each;
	FILE *note;			/* gets a line of each state: what the stack has read first; NULL: none */
	FILE *noted;			/* such lines: the same must be found without the stack; NULL: none */
	const char *second;		/* not NULL: only this second power cut, in the recording that keep names */
	const char *keep;		/* and "-POSITION.KIND": file for the recording of a start that a second power cut broke */
};

struct tally {
	uint64_t states, again, alone, failed;
	char second[64];	/* POSITION.KIND.SEED, if the newest state was wrong behind a second power cut */
	double put, start, read, stop;	/* seconds: states made, starts, reads judged, stops */
};

/* The state is on no disk yet.  deep: evict, drain, restart, and cuts of the power in the middle of it.  True: it is right. */
bool judge(struct recording *r, const struct stack *s, uint64_t seed, uint64_t kind, unsigned int deep, struct tally *t);
int judge_init(struct recording *r);
/* The next state that was noted: judge() is to be called with it. */
bool judge_noted(struct recording *r, FILE *noted, uint64_t *position, uint64_t *kind);

#endif
