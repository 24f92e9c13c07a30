/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Snapshots of a volume, by dm's targets snapshot and snapshot-origin.
 *
 * They lie between the volume and what is on it: below the encryption, so that what a store keeps is encrypted, and a snapshot opens by the same LUKS
 * header and key.  Of a volume NAME with a snapshot SNAP there are
 *
 *	NAME-origin		the target that NAME would have without snapshots; nobody but us opens it
 *	NAME@SNAP-store		the store behind its mark
 *	NAME@SNAP		what NAME was then
 *	NAME			snapshot-origin: each first write to a chunk copies what was there into the stores
 *
 * NAME is made last, and goes first: what can be seen of a volume that has snapshots never changes without them.
 */
#ifndef LARDER_COW_H
#define LARDER_COW_H

#include "scan.h"
#include "stack.h"

#define COW_STORE_OFFSET SUPERBLOCK_OTHER_OFFSET /* bytes; before it is the mark, a superblock of LARDER_KIND_OTHER */
#define COW_STORE_MIN	 (16u << 20) /* bytes of a device that can be a store */
#define COW_CHUNK	 32u /* sectors: what is copied at once */
#define COW_ORIGIN	 "snapshot-origin"
#define COW_SNAPSHOT	 "snapshot"

struct cow_snapshot {
	char name[SNAPSHOT_NAME_MAX];
	uint8_t uuid[16]; /* of its store */
	const char *store; /* path; NULL: not here */
	const char *copy; /* of one with the same mark; NULL: there is none */
	uint64_t bytes; /* of that */
};

/* Those of one volume that count, as the description of its stack has them. */
struct cow {
	const char *name; /* of the volume, for dm */
	uint8_t volume[16];
	struct cow_snapshot snapshot[SNAPSHOTS_MAX];
	unsigned number;
};

/* Names, and UUIDs for dm; the caller frees them. */
char *cow_origin_name(const char *volume);
char *cow_snapshot_name(const char *volume, const char *snapshot);
char *cow_store_name(const char *volume, const char *snapshot);
char *cow_volume_uuid(const uint8_t volume[16]);
char *cow_origin_uuid(const uint8_t volume[16]);
char *cow_snapshot_uuid(const uint8_t volume[16], const uint8_t snapshot[16]);
char *cow_store_uuid(const uint8_t volume[16], const uint8_t snapshot[16]);
/* Parameters of the tables; the caller frees them. */
char *cow_snapshot_params(const char *volume, const char *snapshot);
char *cow_origin_params(const char *volume);

/* Stores are found by their marks.  What cow->snapshot points to is members'. */
void cow_find(struct cow *cow, const char *name, const struct stack *stack, const struct members *members);
/* The mark of a store, if it is here. */
const struct member *cow_store(const struct members *members, const uint8_t uuid[16]);

/* Is each of them here, and still its own?  Complains.  stack: its name. */
int cow_check_stores(const struct cow *cow, const char *stack);
/* The device of a store behind its mark.  Complains. */
int cow_start_store(const struct cow *cow, const struct cow_snapshot *snapshot);
/*
 * All of it, the volume last, with the table that it would have without snapshots.  What a start or stop that was cut short has left is removed first; on
 * an error nothing is left.  All stores are here.  Complains.
 */
int cow_start(const struct cow *cow, const char *target, uint64_t sectors, const char *params);
/* All but the volume, which is not shown any more, or never was.  Complains. */
int cow_clear(const uint8_t volume[16]);
/* A snapshot is in use, and the volume cannot stop.  Complains. */
int cow_check_unused(const uint8_t volume[16]);

enum cow_state {
	COW_ABSENT, /* it is not started */
	COW_GONE, /* its device was removed while the volume is shown: what is overwritten is copied no more */
	COW_VALID,
	COW_INVALID, /* its store was full, or failed: it cannot be read any more */
	COW_OVERFLOW, /* the store is full, and a write to the snapshot itself has failed */
};
struct cow_status {
	enum cow_state state;
	uint64_t used, total; /* bytes of the store; 0 where that is not known */
};
/* Has this snapshot, which counts, become unreadable while it runs, or was its device removed while the volume is shown? */
bool cow_is_lost(const uint8_t volume[16], const uint8_t snapshot[16]);
/* Of one that counts, by the UUIDs. */
void cow_status(const uint8_t volume[16], const uint8_t snapshot[16], struct cow_status *status);
/* Its device, if there is one: is it shown? */
bool cow_is_there(const struct cow_status *status);
/* name: of the snapshot, for dm; never COW_GONE. */
void cow_status_of(const char *name, struct cow_status *status);
#define COW_NEARLY_FULL 80u /* of a hundred: from here on it is said */
bool cow_nearly_full(const struct cow_status *status);
unsigned cow_percent(const struct cow_status *status);
/* "valid", "invalid", "overflow", "stopped"; "creating", "removing", "lost" */
const char *cow_state_text(const struct stack_snapshot *snapshot, const struct cow_status *status);

#endif
