/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Device-mapper, as far as larder needs it.  dm.c is the only file that knows libdevmapper's ioctls; nothing of it shows here.
 *
 * Names: a volume is /dev/mapper/<name>, its UUID for dm "LARDER-<volume uuid>"; a cache is /dev/mapper/larder-cache-<name>, UUID
 * "LARDER-<cache uuid>-cache".  udev is told that a cache is nobody's but ours: no rule looks at what is on it.
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

/* A mapped device with one target of ours. */
struct mapped {
	char name[DM_NAME_MAX]; /* of dm */
	char uuid[DM_UUID_MAX]; /* of dm; may be empty if dmsetup made it */
	dev_t number;
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
/* Keeps libdevmapper's errors to ourselves; part of mapped_init(), alone for reports without devices. */
void mapped_take_messages(void);

/* All devices of our targets.  Without device-mapper in the kernel: none.  Complains only of errors. */
int mapped_scan(struct mapped_list *list);
void mapped_list_free(struct mapped_list *list);
/* Names of all dm devices; and of those that have a UUID of ours and no table: a start that did not end.  Complains. */
struct mapped_names {
	char **name, **half;
	size_t number, nr_half;
};
int mapped_scan_names(struct mapped_names *names);
void mapped_names_free(struct mapped_names *names);
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

/* Any dm device, of whatever target: its UUID for dm and its number.  False: there is none of that name. */
bool mapped_look(const char *name, char uuid[static DM_UUID_MAX], dev_t *number);
/* Has it a table, of a linear target: with a volume's UUID, one without larder's module? */
bool mapped_is_linear(const char *name);

/* All complain, with the kernel's reason where its log has one.  They wait for udev, where udev runs. */
int mapped_create(const char *name, const char *uuid, const char *target, uint64_t sectors, const char *params);
int mapped_remove(const char *name);
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

#endif
