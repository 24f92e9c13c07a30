// SPDX-License-Identifier: GPL-2.0-or-later
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "../lib/cow.h"
#include "../lib/crypt_layer.h"
#include "../lib/dm.h"
#include "../lib/message.h"
#include "../lib/snapshot.h"
#include "dm_digest.h"
#include "text_hash.h"

/* Takes line. */
static void add(uint64_t *digest, char *line)
{
	*digest = text_hash(*digest, line);
	free(line);
}

/* One of our targets, also where it has no UUID as dmsetup made it. */
static void add_mapped(uint64_t *digest, const struct mapped *one)
{
	add(digest, must_print("%s %s %s %" PRIu64 " %" PRIu64 " %d %" PRIu32 "\n", one->name, one->target, one->uuid, (uint64_t)one->number,
			       (uint64_t)one->target_number, one->suspended, one->events));
}

/* The LUKS layer on a volume, by its name: as it comes and goes without larder, too, and whether a stack is locked hangs on it. */
static bool is_crypt_of(const char *name, const char *uuid, const struct mapped_list *mapped)
{
	size_t length = strlen(name), end = strlen(CRYPT_END);

	if (strncmp(uuid, "CRYPT-LUKS2-", strlen("CRYPT-LUKS2-")) || length <= end || strcmp(name + length - end, CRYPT_END))
		return false;
	for (size_t i = 0; i < mapped->number; i++) {
		const struct mapped *one = &mapped->mapped[i];

		if (!one->cache && strlen(one->name) == length - end && !memcmp(one->name, name, length - end))
			return true;
	}
	return false;
}

/* What has a UUID of ours, of whatever target: what lies below and beside volumes; and on them. */
static void add_beside(uint64_t *digest, const char *name, const struct mapped_list *mapped)
{
	char uuid[DM_UUID_MAX];
	struct cow_status status = { 0 };
	dev_t number;

	if (!mapped_look(name, uuid, &number))
		return;
	if (is_crypt_of(name, uuid, mapped))
		add(digest, must_print("%s %s %d\n", name, uuid, mapped_is_shown(uuid)));
	if (strncmp(uuid, "LARDER-", strlen("LARDER-")))
		return;
	if (strstr(uuid, BELOW_SNAPSHOT))
		cow_status_of(name, &status);
	add(digest, must_print("%s %s %" PRIu64 " %d %d\n", name, uuid, (uint64_t)number, (int)status.state, cow_nearly_full(&status)));
}

void dm_digest_take(struct dm_digest *digest)
{
	struct mapped_list mapped = { 0 };
	struct mapped_names names = { 0 };

	*digest = (struct dm_digest){ .known = !snapshot_take(&mapped) && !mapped_scan_names(&names), .ours = TEXT_HASH_BASIS };
	for (size_t i = 0; i < mapped.number; i++)
		add_mapped(&digest->ours, &mapped.mapped[i]);
	for (size_t i = 0; i < names.number; i++)
		add_beside(&digest->ours, names.name[i], &mapped);
	for (size_t i = 0; i < names.nr_half; i++)
		add(&digest->ours, must_print("half %s\n", names.half[i]));
	digest->all = digest->ours;
	for (size_t i = 0; i < names.number; i++)
		add(&digest->all, must_print("%s\n", names.name[i]));
	mapped_list_free(&mapped);
	mapped_names_free(&names);
}

bool dm_digest_same(const struct dm_digest *a, const struct dm_digest *b, bool others)
{
	return a->known && b->known && (others ? a->all == b->all : a->ours == b->ours);
}
