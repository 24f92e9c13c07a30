/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Caches and volumes that run, and the starting of a cache: what several verbs need. */
#ifndef LARDER_RUNNING_H
#define LARDER_RUNNING_H

#include "arguments.h"
#include "dm.h"
#include "scan.h"

/* The device of a cache, or of a volume, with this UUID (of the set; of the volume); NULL: it does not run. */
struct mapped *running_by_uuid(const struct mapped_list *list, const uint8_t uuid[16], bool cache);
/*
 * The one that runs and is meant by a name: a dm name (for a cache also without its prefix), a UUID, a label, or a path (its own
 * node, or a member's). Complains when there is none.
 */
int running_find(const struct mapped_list *list, const char *name, bool cache, struct mapped **found);
/* By name, UUID or node of its dm device; NULL: none. */
struct mapped *running_named(const struct mapped_list *list, const char *name, bool cache);
/*
 * A volume that runs with this cache (UUID of the set), and lies below the device, or above it; NULL: none.  Two such must not have one cache: to write back
 * the upper one is to write to the lower one, which may wait for the room that this is to make, and to suspend both, one by one, waits as well.
 */
const struct mapped *running_entangled(const struct mapped_list *list, dev_t number, const uint8_t cache[16]);
/* The same, as an error that names it; list NULL: of what runs now. */
int running_check_entangled(const struct mapped_list *list, const char *path, dev_t number, const uint8_t cache[16]);
/* UUID that its status tells; false: none. */
bool running_uuid(const struct mapped *mapped, uint8_t uuid[16]);
/* That of the set, of the cache that a volume has; false: it has none. */
bool running_cache(const struct mapped *volume, uint8_t cache[16]);

/* Is there nothing of a volume but what a start or stop that was cut short has left of it, or below it? */
bool running_left_over(const uint8_t uuid[16]);
/* What a start that was cut short has left of this cache, the UUID of whose set it is: a device whose table is not live.  Complains. */
int running_clear_cache(const uint8_t uuid[16]);
/* Removes it, and tells the daemon to leave it so. */
int stop_running(const struct mapped *mapped, bool dry_run);

/* "/dev/mapper/NAME"; the caller frees it. */
char *mapper_path(const char *name);
/*
 * "key=value" words as the end of a table, "4 key value key value", behind those of the stored options that they say nothing of; the caller frees it.  NULL: it
 * has complained (LARDER_USAGE).
 */
char *table_options(const struct argument_list *options, const char *stored);
/*
 * The name for dm: the one asked for, or the label, with a prefix.  NULL: it has complained, *result says how.  The caller frees
 * it.
 */
char *dm_name(const char *asked, const uint8_t label[LARDER_LABEL_SIZE], const char *path, bool cache, int *result);

/* A volume may be dirty, and was to start without its cache, or without the module.  LARDER_UNSAFE. */
int volume_refuse_dirty(const char *path, const struct larder_volume_sb *sb, bool module);

#define BRING_UP_DRY 1u /* print the dmsetup command only */
#define BRING_UP_DEGRADED 2u /* also if SSDs of the set are missing: they leave it */
#define BRING_UP_IMPORT 4u /* also if it is another machine's */
#define BRING_UP_BY_PATH 8u /* the member was named by its path: it is taken whatever else is on it, unless it is a replica */
/*
 * Starts a cache that does not run, member being one of its SSDs.  *path, to be freed by the caller, is its node.  An SSD that somebody
 * else has by now is missing, and a line says so.
 */
int cache_bring_up(const struct members *members, const struct member *member, const char *name,
		   const struct argument_list *options, unsigned flags, char **path);

#endif
