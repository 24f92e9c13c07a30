// SPDX-License-Identifier: GPL-2.0-or-later
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "claim.h"
#include "cow.h"
#include "device.h"
#include "dm.h"
#include "message.h"

/* ------------------------------------------------------------------ names */

char *cow_origin_name(const char *volume)
{
	return must_print("%s-origin", volume);
}

char *cow_snapshot_name(const char *volume, const char *snapshot)
{
	return must_print("%s@%s", volume, snapshot);
}

char *cow_store_name(const char *volume, const char *snapshot)
{
	return must_print("%s@%s-store", volume, snapshot);
}

char *cow_volume_uuid(const uint8_t volume[16])
{
	char text[UUID_TEXT];

	return must_print("LARDER-%s", uuid_text(volume, text));
}

char *cow_origin_uuid(const uint8_t volume[16])
{
	char text[UUID_TEXT];

	return must_print("LARDER-%s" BELOW_ORIGIN, uuid_text(volume, text));
}

char *cow_snapshot_uuid(const uint8_t volume[16], const uint8_t snapshot[16])
{
	char a[UUID_TEXT], b[UUID_TEXT];

	return must_print("LARDER-%s" BELOW_SNAPSHOT "%s", uuid_text(volume, a), uuid_text(snapshot, b));
}

char *cow_store_uuid(const uint8_t volume[16], const uint8_t snapshot[16])
{
	char a[UUID_TEXT], b[UUID_TEXT];

	return must_print("LARDER-%s" BELOW_STORE "%s", uuid_text(volume, a), uuid_text(snapshot, b));
}

/* By number: a node is there only when udev has seen its device. */
static char *table_word(char *name)
{
	char uuid[DM_UUID_MAX], *word;
	dev_t number;

	if (mapped_look(name, uuid, &number))
		word = must_print("%u:%u", major(number), minor(number));
	else
		word = must_print("/dev/mapper/%s", name);
	free(name);
	return word;
}

/* PO: it lasts; and where its store is full, a write to the snapshot fails, which does not end it. */
char *cow_snapshot_params(const char *volume, const char *snapshot)
{
	char *origin = table_word(cow_origin_name(volume)), *store = table_word(cow_store_name(volume, snapshot)),
	     *params = must_print("%s %s PO %u", origin, store, COW_CHUNK);

	free(store);
	free(origin);
	return params;
}

char *cow_origin_params(const char *volume)
{
	return table_word(cow_origin_name(volume));
}

/* ------------------------------------------------------------------ stores */

/* Of those with this mark the first one but `other`. */
static const struct member *store_but(const struct members *members, const uint8_t uuid[16], const struct member *other)
{
	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (m != other && le32toh(m->sb.head.kind) == LARDER_KIND_OTHER && !memcmp(m->sb.head.uuid, uuid, 16))
			return m;
	}
	return NULL;
}

const struct member *cow_store(const struct members *members, const uint8_t uuid[16])
{
	return store_but(members, uuid, NULL);
}

void cow_find(struct cow *cow, const char *name, const struct stack *stack, const struct members *members)
{
	*cow = (struct cow){ .name = name };
	stack_part(stack, "volume", cow->volume);
	for (uint32_t i = 0; i < stack->snapshots; i++) {
		const struct stack_snapshot *from = &stack->snapshot[i];
		struct cow_snapshot *to = &cow->snapshot[cow->number];
		const struct member *store, *copy;

		if (from->state != SNAPSHOT_READY)
			continue;
		memcpy(to->name, from->name, sizeof(to->name));
		stack_snapshot_uuid(stack, from, to->uuid);
		store = members ? cow_store(members, to->uuid) : NULL;
		to->store = store ? store->path : NULL;
		to->bytes = store ? store->bytes : 0;
		copy = store ? store_but(members, to->uuid, store) : NULL;
		to->copy = copy ? copy->path : NULL;
		cow->number++;
	}
}

int cow_check_stores(const struct cow *cow, const char *stack)
{
	int result = LARDER_DONE;

	for (unsigned i = 0; !result && i < cow->number; i++) {
		const struct cow_snapshot *s = &cow->snapshot[i];
		char uuid[UUID_TEXT];

		if (!s->store)
			result = complain(LARDER_NOT_FOUND,
					  "%s: the store of its snapshot %s is not here (%s); attach it; larder start %s --drop-snapshot %s starts without: the snapshot is LOST then",
					  stack, s->name, uuid_text(s->uuid, uuid), stack, s->name);
		else if (s->copy)
			result = complain(LARDER_UNSAFE, "%s: uuid: %s has it too (a copy?): which is the store of the snapshot %s of %s cannot be told; detach one, or larder super wipe it",
					  s->store, s->copy, s->name, stack);
		else
			result = claim_check_store(s->store, s->uuid);
	}
	return result;
}

int cow_start_store(const struct cow *cow, const struct cow_snapshot *snapshot)
{
	char *name = cow_store_name(cow->name, snapshot->name), *uuid = cow_store_uuid(cow->volume, snapshot->uuid),
	     *params = must_print("%s %u", snapshot->store, COW_STORE_OFFSET >> LARDER_SECTOR_SHIFT);
	int result = snapshot->bytes < COW_STORE_MIN ?
			     complain(LARDER_UNSAFE, "%s: size: is smaller than the store of a snapshot can be", snapshot->store) :
			     mapped_create(name, uuid, "linear", (snapshot->bytes - COW_STORE_OFFSET) >> LARDER_SECTOR_SHIFT, params);

	free(params);
	free(uuid);
	free(name);
	return result;
}

/* ------------------------------------------------------------------ start, stop */

/* Why it was not made.  Only a store that cannot be read is a reason to give it up. */
static void tell_not_made(const struct cow *cow, const struct cow_snapshot *snapshot, const char *name)
{
	uint32_t version[3];

	if (target_version(COW_SNAPSHOT, version))
		remark("%s: the store of this snapshot, %s, cannot be read; larder start %s --drop-snapshot %s gives the snapshot up", name, snapshot->store, cow->name,
		       snapshot->name);
	else
		remark("%s: dm-snapshot is missing, and nothing is wrong with this snapshot: keep it; an initramfs without that module is made anew by update-initramfs -u, or dracut --force",
		       name);
}

static int start_snapshot(const struct cow *cow, const struct cow_snapshot *snapshot, uint64_t sectors)
{
	char *name = cow_snapshot_name(cow->name, snapshot->name), *uuid = cow_snapshot_uuid(cow->volume, snapshot->uuid),
	     *params = cow_snapshot_params(cow->name, snapshot->name);
	int result = mapped_create(name, uuid, COW_SNAPSHOT, sectors, params);

	if (result)
		tell_not_made(cow, snapshot, name);
	free(params);
	free(uuid);
	free(name);
	return result;
}

int cow_start(const struct cow *cow, const char *target, uint64_t sectors, const char *params)
{
	char *origin = cow_origin_name(cow->name), *below = cow_origin_uuid(cow->volume), *uuid = cow_volume_uuid(cow->volume),
	     *shown;
	int result = cow_clear(cow->volume);

	for (unsigned i = 0; !result && i < cow->number; i++)
		result = cow_start_store(cow, &cow->snapshot[i]);
	result = result ? result : mapped_create(origin, below, target, sectors, params);
	for (unsigned i = 0; !result && i < cow->number; i++)
		result = start_snapshot(cow, &cow->snapshot[i], sectors);
	/* from here on it can be written to */
	shown = cow_origin_params(cow->name);
	result = result ? result : mapped_create(cow->name, uuid, COW_ORIGIN, sectors, shown);
	if (result)
		cow_clear(cow->volume);
	free(shown);
	free(uuid);
	free(below);
	free(origin);
	return result;
}

int cow_clear(const uint8_t volume[16])
{
	char *uuid = cow_volume_uuid(volume);
	int result = mapped_remove_left(uuid);

	free(uuid);
	return result;
}

int cow_check_unused(const uint8_t volume[16])
{
	char *uuid = cow_volume_uuid(volume), own[DM_UUID_MAX], usage[PATH_MAX];
	struct mapped_names names;
	int result = mapped_scan_below(uuid, &names);
	dev_t number;

	for (size_t i = 0; !result && i < names.nr_half; i++)
		if (mapped_look(names.half[i], own, &number) && strstr(own, BELOW_SNAPSHOT) && device_usage(number, usage, sizeof(usage)))
			result = complain(LARDER_BUSY, "%s: the snapshot is in use: %s; release it first", names.half[i], usage);
	mapped_names_free(&names);
	free(uuid);
	return result;
}

/* ------------------------------------------------------------------ status */

void cow_status_of(const char *name, struct cow_status *status)
{
	uint64_t used, total;
	char text[128];

	*status = (struct cow_status){ COW_ABSENT, 0, 0 };
	if (mapped_status(name, COW_SNAPSHOT, text, sizeof(text))) {
		status->state = !strcmp(text, "Overflow") ? COW_OVERFLOW : COW_INVALID;
		if (sscanf(text, "%" SCNu64 "/%" SCNu64, &used, &total) == 2 && total <= UINT64_MAX >> LARDER_SECTOR_SHIFT)
			*status = (struct cow_status){ COW_VALID, (used < total ? used : total) << LARDER_SECTOR_SHIFT, total << LARDER_SECTOR_SHIFT };
	}
}

/* Asked behind what was said of a snapshot that is not there: the volume comes last, and goes first. */
static bool is_shown(const uint8_t volume[16])
{
	char *uuid = cow_volume_uuid(volume);
	bool shown = mapped_is_shown(uuid);

	free(uuid);
	return shown;
}

void cow_status(const uint8_t volume[16], const uint8_t snapshot[16], struct cow_status *status)
{
	char *uuid = cow_snapshot_uuid(volume, snapshot), name[DM_NAME_MAX];

	*status = (struct cow_status){ COW_ABSENT, 0, 0 };
	if (mapped_name_of(uuid, name))
		cow_status_of(name, status);
	if (status->state == COW_ABSENT && is_shown(volume))
		status->state = COW_GONE;
	free(uuid);
}

bool cow_is_there(const struct cow_status *status)
{
	return status->state != COW_ABSENT && status->state != COW_GONE;
}

bool cow_is_lost(const uint8_t volume[16], const uint8_t snapshot[16])
{
	char *uuid = cow_snapshot_uuid(volume, snapshot), name[DM_NAME_MAX], text[128];
	bool lost = mapped_name_of(uuid, name) && mapped_status(name, COW_SNAPSHOT, text, sizeof(text)) ? !strcmp(text, "Invalid") : is_shown(volume);

	free(uuid);
	return lost;
}

bool cow_nearly_full(const struct cow_status *status)
{
	return status->state == COW_VALID && cow_percent(status) >= COW_NEARLY_FULL;
}

unsigned cow_percent(const struct cow_status *status)
{
	return status->total ? (unsigned)((double)status->used * 100 / (double)status->total) : 0;
}

const char *cow_state_text(const struct stack_snapshot *snapshot, const struct cow_status *status)
{
	static const char *const states[] = { "stopped", "invalid", "valid", "invalid", "overflow" };

	return snapshot->state == SNAPSHOT_READY ? states[status->state] : snapshot_state_text(snapshot->state);
}
