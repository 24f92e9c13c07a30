/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Device-mapper, as far as larder needs it.  dm.c is the only file that knows libdevmapper's ioctls; nothing of it shows here.
 *
 * Names: a volume is /dev/mapper/<name>, its UUID for dm "LARDER-<volume uuid>"; a cache is /dev/mapper/larder-cache-<name>, UUID
 * "LARDER-<cache uuid>-cache".  udev is told that a cache is nobody's but ours: no rule looks at what is on it.
 *
 * A volume that has snapshots (cow.h) has its target in a device below, which nobody but us uses: what has the volume's name shows it by dm's
 * snapshot-origin.
 */
#ifndef LARDER_DM_H
#define LARDER_DM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TARGET_CACHE  "larder-cache"
#define TARGET_VOLUME "larder"
#define CACHE_PREFIX  "larder-cache-"
#define DM_NAME_MAX   128
#define DM_UUID_MAX   129

/* UUIDs for dm of what lies below a volume, or beside it: these behind the volume's own, and behind the last two a snapshot's. */
#define BELOW_ORIGIN   "-origin"
#define BELOW_STORE    "-store-"
#define BELOW_SNAPSHOT "-snapshot-"
/* Behind a leg's UUID, and before its stack's: what dm-integrity stands on (integrity.h). */
#define BELOW_LEG      "-leg-"

/*
 * A mapped device with one target of ours.  Of a volume with snapshots name, uuid, number, open_count and suspended are those of the device that shows
 * it, if that is there; target is the device that tables and messages go to.
 */
struct mapped {
	char name[DM_NAME_MAX]; /* of dm */
	char target[DM_NAME_MAX];
	char uuid[DM_UUID_MAX]; /* of dm; may be empty if dmsetup made it */
	dev_t number, target_number;
	bool cache; /* TARGET_CACHE, or else TARGET_VOLUME */
	bool suspended;
	int open_count;
	uint32_t events; /* raised on it so far */
	uint64_t sectors;
	char *status; /* what the target says; "" when it says nothing */
};

struct mapped_list {
	struct mapped *mapped;
	size_t number;
};

/* With dry_run the functions that change something print the dmsetup command instead, and succeed. */
void mapped_init(bool dry_run);
bool mapped_is_dry(void);
/* Keeps libdevmapper's errors to ourselves; part of mapped_init(), alone for reports without devices. */
void mapped_take_messages(void);

/* All devices of our targets.  Without device-mapper in the kernel: none.  Complains only of errors. */
int mapped_scan(struct mapped_list *list);
void mapped_list_free(struct mapped_list *list);
/*
 * Names of all dm devices; and of those that a start, or a stop, that did not end has left: with a UUID of ours and no table, or made for a volume that
 * is not shown.  These in the order in which they can be removed.  Complains.
 */
struct mapped_names {
	char **name, **half;
	size_t number, nr_half;
};
int mapped_scan_names(struct mapped_names *names);
/*
 * As half: all that is below or beside the volume with this UUID for dm, in the order in which it can be removed once that is; in front of them itself, if it
 * has no table that is live.
 */
int mapped_scan_below(const char *dm_uuid, struct mapped_names *names);
void mapped_names_free(struct mapped_names *names);
/* Is there a device with this UUID for dm, and a table? */
bool mapped_is_shown(const char *dm_uuid);
/* Its name, if there is one with this UUID for dm and a table. */
bool mapped_name_of(const char *dm_uuid, char name[static DM_NAME_MAX]);
/* What the first target of a device says, if it is of that kind. */
bool mapped_status(const char *name, const char *target, char *text, size_t size);
/* Takes the status anew.  Complains. */
int mapped_refresh(struct mapped *mapped);
/* The live table's parameters, the caller frees them.  Complains. */
int mapped_table(const struct mapped *mapped, char **params);
/* Is there a dm device with that name, of whatever target? */
bool mapped_name_taken(const char *name);

/* A target of the live table of any dm device.  params of a crypt target may have its key: they are wiped when they are freed. */
struct mapped_target {
	uint64_t first, sectors;
	char type[32];
	char *params;
};
/* Those of the device with this number, whose name is returned, too.  Complains. */
int mapped_targets(dev_t number, char name[static DM_NAME_MAX], struct mapped_target **target, size_t *targets);
void mapped_targets_free(struct mapped_target *target, size_t targets);

/*
 * A descriptor, to be closed, of which poll() says POLLIN once an event is raised on any dm device after this call, or one is made, renamed
 * or removed.  -1: there is no device-mapper, or we may not; says nothing.
 */
int mapped_watch(void);
/*
 * Version of a target that the kernel has now; false: it has none (the module is not loaded), or cannot be asked.  LARDER_TARGETS names a file with what
 * `dmsetup targets` says, of another machine, say.
 */
bool target_version(const char *target, uint32_t version[static 3]);

/* Any dm device, of whatever target: its UUID for dm and its number.  False: there is none of that name. */
bool mapped_look(const char *name, char uuid[static DM_UUID_MAX], dev_t *number);
/* Has it a table that needs no target of larder's: with a volume's UUID, and none of that below, one without larder's module? */
bool mapped_is_without_larder(const char *name);

/* All complain, with the kernel's reason where its log has one.  They wait for udev, where udev runs. */
int mapped_create(const char *name, const char *uuid, const char *target, uint64_t sectors, const char *params);
int mapped_remove(const char *name);
/* All of mapped_scan_below(), as it lies there.  Complains. */
int mapped_remove_left(const char *dm_uuid);
/* Requests are drained, filesystems not frozen. */
int mapped_suspend(const char *name);
int mapped_resume(const char *name);
bool mapped_suspended(const char *name);
/*
 * Loads a table and makes it live; one that is suspended already is resumed too.  From the moment that the device stands still no kill of
 * this process leaves it so (lib/guard.h).
 */
int mapped_reload(const char *name, const char *target, uint64_t sectors, const char *params);
int mapped_message(const char *name, const char *message);

/* With its table, which is not live before it is resumed.  Complains. */
int mapped_create_suspended(const char *name, const char *uuid, const char *target, uint64_t sectors, const char *params);

/* A change of several devices at once, of which nobody sees a part. */
enum mapped_action {
	MAPPED_FREEZE, /* suspended, a filesystem on it frozen first */
	MAPPED_SUSPEND, /* suspended, requests drained */
	MAPPED_LOAD, /* a table, to be live when it is resumed */
	MAPPED_RESUME,
	MAPPED_FAIL, /* only to go back: a table whose reads and writes fail at once, live */
};
struct mapped_step {
	enum mapped_action action;
	const char *name, *target, *params; /* target, params: of MAPPED_LOAD */
	uint64_t sectors; /* of MAPPED_LOAD and MAPPED_FAIL */
};
/*
 * Carries out the steps, in a process that no kill of this one reaches (lib/guard.h); or, where one of them fails or that process is killed, the steps of
 * `back`: of those whose device is suspended, or for MAPPED_SUSPEND and MAPPED_FAIL is not; and those up to the last table only where each device that gets
 * one is suspended.  No node or link is made while a device is suspended, and none waited for before the end.  *blocked: microseconds from the first step
 * to the last.  Complains.
 */
int mapped_exchange(const struct mapped_step *steps, size_t number, const struct mapped_step *back, size_t nr_back, uint64_t *blocked);

#endif
