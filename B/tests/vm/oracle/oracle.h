/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The oracle's parts: load (makes operations), verify (reads everything), journal (survives the kill of a VM), their options and report. */
#ifndef ORACLE_H
#define ORACLE_H

#include "device.h"
#include "model.h"

#define MAX_QD		256
#define MAX_BYTES	(1u << 20)	/* of one operation */
#define MAX_SIZES	8

struct size_class {
	uint32_t bytes;		/* sizes from the class before up to this */
	uint32_t percent;
};

struct options {
	const char *dev, *state, *journal, *control;
	uint64_t seed;
	uint64_t ops;		/* 0: until an error, or the time is over */
	uint64_t seconds;	/* 0: no limit */
	uint64_t offset, size;	/* bytes; size 0: to the end, at most what the model is made for */
	unsigned int qd;
	unsigned int every;	/* operations between two control commands, on average */
	unsigned int mix[NR_OPS];	/* weights */
	struct size_class sizes[MAX_SIZES];
	unsigned int nr_sizes;
	uint32_t align;		/* bytes; at least the logical block size */
	int control_fd;
	bool journal_at_once, until_error, errors_ok, unknown, control_may_fail;
	/* verify */
	enum { AFTER_NOTHING, AFTER_CLEAN, AFTER_CRASH, AFTER_LOSS } after;
	bool unreadable_ok;
};

struct report {
	uint64_t count[NR_OPS];
	uint64_t bytes_read, bytes_written;
	uint64_t errors;	/* operations that failed */
	uint64_t unsupported;	/* discards that the device does not know */
	uint64_t controls, controls_failed;
	uint64_t mismatches;	/* sectors */
	uint64_t sectors, zeroes, stamped, foreign, unreadable;	/* verify */
	int first_error;	/* negative errno */
	double seconds;
};

/* 0: the load ran to its end; 1: mismatch, or an error nobody asked for; 2: could not run. */
int load_run(const struct options *o, struct model *m, struct report *r);
int verify_run(const struct options *o, struct model *m, struct report *r);

/* Operations as they are issued and end, for a later model_load() + journal_replay().  All: 0 or negative errno. */
struct journal;
int journal_open(struct journal **j, const char *path);
void journal_issue(struct journal *j, uint32_t version, enum op_kind kind, uint32_t first, uint32_t count);
void journal_end(struct journal *j, uint32_t version, int error);
void journal_flushed(struct journal *j, uint64_t mark);
/* Nothing is submitted, nothing relied on, before its records are out. */
int journal_write(struct journal *j);
int journal_close(struct journal *j);
int journal_replay(struct model *m, const char *path);
/* Some whole records of one. */
int journal_apply(struct model *m, const void *records, size_t bytes);

/* Deterministic random numbers. */
struct rng {
	uint64_t state;
};
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n);

double now_seconds(void);

#endif
