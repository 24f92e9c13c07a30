/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Given these facts, which steps?  A pure function: no device, no clock, no environment.
 *
 * What holds of every plan, whatever the facts (tests/unit/test_plan.c, docs/daemon.md):
 *   1. no step uses a member of which there is a copy, which carries another owner's signature, whose superblock was overwritten and is known
 *      by its copy alone, which is in use by others, or whose stack is half made, being removed, or another machine's
 *   2. no step uses an SSD that the newest table of its set does not call active in its place (one that joins goes on joining in a
 *      place that is vacant), nor any of a set of which two sides were used without one another
 *   3. no member is in two steps, or in a step and in something that runs
 *   4. a cache starts without an active SSD only when the time to wait is over, a volume of it is here, and every volume that its
 *      table knows is here and proves by its superblock that the set was not used without the SSDs that are; that time is counted from when the
 *      newest of what is here came, and not from before facts.began, or facts.unread_since, nor is it over before
 *      facts.unready_until
 *   5. a volume starts without its cache only when the time to wait is over, no SSD of that cache is here, and nothing is dirty; neither 4 nor 5
 *      where a disk is here that the array of such a volume does not have, and that was used without it
 *   6. nothing is started that larder.conf leaves, nor without what is missing what it wants whole, unless it is asked for by name
 *   7. a spare that is whole, and nothing else but what was to join in that very place, is used only for a cache that runs, to which nothing joins and
 *      of which nothing is drained, in the place of an SSD that failed longer ago than the time to wait, is not here again, and was no larger;
 *      one for each failure, and only where spares may be used at all
 *   8. the order in which facts are listed does not matter
 *   9. with its steps done, or marked as failed, planning again ends in no step
 *  10. a volume of a stack that has snapshots which count starts with a store for each of them, or not at all
 *  11. a note is made only of a volume that runs, of a stack that is whole and this machine's, whose array lacks a disk that the stack does not know of, takes
 *      too few read errors of its legs, or which has lost a snapshot
 *  12. a disk joins the array of a volume that runs, of a stack that is whole and this machine's, only if it has a superblock of that array alone, of which there is no
 *      copy, is none of one that was seen in the array, is nobody's, did not stay here when it was taken out, and has nothing which the array
 *      has not (md_leg.h); the newest of several first
 *  13. an array is never started; one that does not run when the time to wait is over is told of, and apart from others one whose parity may be wrong
 *  14. dm-integrity of a leg starts whatever else is here, as md's rules, not ours, gather the array from such legs; not where the volume of its stack was
 *      stopped, or larder.conf leaves that
 */
#ifndef LARDER_PLAN_H
#define LARDER_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../kernel/larder_format.h"
#include "../lib/md_leg.h"
#include "../lib/stack.h"

/* One that the volume does not start without. */
struct fact_snapshot {
	char name[SNAPSHOT_NAME_MAX];
	uint8_t uuid[16]; /* of the member of LARDER_KIND_OTHER that is its store */
};

struct fact_member {
	const char *path;
	uint64_t appeared; /* microseconds; on the clock of facts.now */
	uint32_t kind; /* of LARDER_KIND_OTHER stores of snapshots, and legs, concern us */
	uint8_t uuid[16]; /* its own */
	uint8_t cache_uuid[16]; /* zero: a volume without one */
	char label[LARDER_LABEL_SIZE + 1];
	const char *foreign; /* another owner's signature: "linux_raid_member", "swap", "dos"; or NULL */
	const char *wipefs; /* of that: words for wipefs that erase it, and nothing of ours */
	bool below; /* of that: it lies behind the member alone: this is the leg, or the disk, below what carries the member */
	const char *disk; /* which disk it is, and where on it, by what that says; NULL: it does not say, or nobody else here has this superblock */
	bool copy_only; /* where its superblock was there is something else: found by the copy alone */
	bool read_only; /* of an SSD: it counts as missing; who has a volume on such a device is held */
	const char *used; /* "mounted on /x", by somebody who is not us; or NULL */
	bool newer; /* a description that only a newer larder reads is why */
	const char *held; /* why its stack, or its cache, does not start by itself: "the stack x is half made; ..."; or NULL */
	bool older; /* of a volume: that is since its SSDs have seen more of it */
	char stack[LARDER_LABEL_SIZE + 1]; /* of a volume; "": none */
	uint8_t stack_uuid[16];
	bool left, whole; /* larder.conf: does not start by itself; only with all that belongs to it */
	/* an SSD; of a spare nr_segments alone, that it has room for */
	uint32_t place, nr_segments, first_segment, segment_size;
	uint64_t segments_offset, generation, all_generation; /* of its superblock, and which one those of all members have had */
	bool joins;
	const struct larder_table *table; /* NULL: neither copy is valid */
	/* a leg with dm-integrity; stack and stack_uuid above are those of its stack, the first as far as an SSD here knows it */
	bool leg, runs;
	uint8_t volume[16]; /* of that stack */
	/* a backing */
	bool may_be_dirty, integrity; /* integrity: the array that it is on has such legs */
	bool few_errors; /* and does not take as many read errors of them as it should */
	bool left_cache; /* which had failed, of its own accord: the kernel attaches it anew */
	uint64_t sectors, incarnation, set_generation; /* sectors: of a store those of its device */
	struct md_lost lost_disks; /* of the array that it is on */
	const char *class; /* option of the target that its stack was made with; NULL: the default */
	const char *options; /* and those that each start gives it, as an SSD has them for its cache: stored_options.h; NULL: none */
	struct fact_snapshot snapshot[SNAPSHOTS_MAX];
	uint32_t snapshots, lost; /* lost: so many of them have become unreadable while they ran, which their stores may not know */
	const char *warning; /* of its snapshots what somebody should know before it is too late, or after; or NULL */
};

struct fact_running {
	const char *name; /* of dm */
	uint8_t uuid[16];
	bool cache;
	uint32_t failed; /* places of a cache that takes writes: bit by bit */
	uint64_t failed_since[LARDER_MAX_DEVICES]; /* of each when it was first seen so; on the clock of facts.now */
	/* a spare could not join: no other one before then, but one that came since; or what its array lacks could not be noted; 0: not so */
	uint64_t held_since, held_until;
	bool busy; /* an SSD joins it, or is drained */
	bool left_over; /* of a volume that is not shown: a start, or a stop, was cut short */
};

/* A disk with a superblock of an array that runs, which does not have it. */
struct fact_return {
	const char *path; /* of the disk, also where dm-integrity is between */
	dev_t number; /* of what md has, or would have */
	uint8_t volume[16]; /* on that array */
	struct md_leg leg;
	struct md_now now; /* the array */
	bool stayed; /* it was whole in an array, and has not been away since: somebody took it out, or its errors did */
	uint64_t identity; /* as of struct present */
	bool copy; /* of the disk that it says it is: that was seen in the array beside it, or was another disk */
	bool all; /* if it is taken back, all is copied to it, as its volatile cache may have lost what no bitmap shows */
	const char *foreign, *wipefs, *used; /* as of a member */
	uint64_t held_until; /* it could not be taken back: not before then */
};

/* What is here of the array of a stack, known by its SSDs, whose array does not run. */
struct fact_rest {
	char stack[LARDER_LABEL_SIZE + 1];
	uint8_t stack_uuid[16], volume[16];
	uint64_t appeared; /* the newest of its disks */
	struct md_rest rest;
	bool left; /* larder.conf: does not start by itself */
};

struct facts {
	struct fact_member *member;
	size_t nr_members;
	struct fact_running *running;
	size_t nr_running;
	struct fact_return *returning;
	size_t nr_returning;
	struct fact_rest *rest;
	size_t nr_rests;
	const char **taken; /* all names of dm devices, ours too */
	size_t nr_taken;
	const char **half; /* names of dm devices that a start of ours made and did not finish */
	size_t nr_half;
	uint8_t (*stopped)[16]; /* volumes and caches that somebody stopped, and did not start again */
	size_t nr_stopped;
	uint8_t (*failed)[16]; /* of which a step failed already */
	size_t nr_failed;
	uint64_t now, wait; /* microseconds */
	uint64_t unread_since; /* from when on something hangs that may be what is missing; 0: nothing does */
	uint64_t unready_until; /* till then at most, as udev is not through with what may be what is missing; 0: it is */
	uint64_t began; /* from when on is waited at the earliest: what came before had nobody who could wait for the rest; 0: from whenever it came */
	bool spares, notes; /* they may be used, made */
	const uint8_t *only; /* just this volume, or cache, and what it needs; or NULL */
};

/* NULL: no cache, or volume, with this UUID runs. */
const struct fact_running *facts_running(const struct facts *facts, const uint8_t uuid[16], bool cache);

enum step_kind {
	PLAN_CLEAR, /* remove what a start left unfinished */
	PLAN_CACHE,
	PLAN_VOLUME,
	PLAN_SPARE, /* one becomes an SSD of a cache */
	PLAN_LEG, /* dm-integrity of one disk of an array */
	PLAN_RETURN, /* a disk that was away joins its array again */
	PLAN_NOTE, /* a snapshot that is lost counts no more; what is on the disks of a stack that runs becomes newer than what a disk has that its array lacks */
};

struct step {
	enum step_kind kind;
	uint8_t uuid[16]; /* of the cache, volume, or leg; of a spare that of its cache; of a disk that returns its own, in md's superblock */
	char name[LARDER_LABEL_SIZE + 32]; /* of dm; of a spare its cache's; of a note, or a disk that returns, its stack's */
	uint64_t sectors;
	uint32_t number; /* of places; of a spare the place that it takes */
	int member[LARDER_MAX_DEVICES]; /* place in facts.member; -1: missing.  A volume, a leg, a spare, a note: [0] alone */
	bool degraded; /* a cache without an SSD that is active; a volume without its cache */
	char cache[LARDER_LABEL_SIZE + 32]; /* of a volume: dm name of its cache, or "-" */
	int returning; /* place in facts.returning; member[0] is the volume then */
	int store[SNAPSHOTS_MAX]; /* of a volume: place in facts.member of the store of each of its snapshots */
};

/* What is left as it is, and why: one line, with the command that resolves it. */
struct refusal {
	uint8_t uuid[16];
	bool waiting; /* time may resolve it */
	bool write_hole; /* it is that, and somebody has to decide */
	bool below; /* nothing is wrong with it: what lies upon it is the member */
	bool warning; /* of what runs: nothing is left for it */
	char *text;
};

/* Of a volume: there is something that larder start --note notes. */
bool plan_has_to_note(const struct fact_member *m);

/*
 * Of a volume on an array that another disk of it was used without, as of a mirror of which udev has gathered one half: what else can be done; "": there is no
 * such disk.  To be freed.
 */
char *plan_other_half(const struct facts *facts, const uint8_t volume[16]);

struct plan {
	struct step *step;
	size_t nr_steps;
	struct refusal *refusal;
	size_t nr_refusals;
	uint64_t again; /* something waits until then; 0: nothing does */
	bool stores; /* of snapshots of what runs: nothing tells of one that fills up */
};

void plan_make(const struct facts *facts, struct plan *plan);
void plan_free(struct plan *plan);

#endif
