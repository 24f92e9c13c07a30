// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for tables and statuses of dm's other targets, as the kernel tells them: the way down from a file to a volume (lib/descent.c), snapshots
 * (lib/cow.c), dm-integrity (lib/integrity.c).  Input: a byte (0: a snapshot's status; 1: dm-integrity's; else tables), then for tables targets, "DEVICE FIRST SECTORS
 * TYPE PARAMETERS" each, ended by a NUL, and else the text.  Aborts where what is found is not as long as what was looked for, or a figure is none.
 */
#include <inttypes.h>
#include <sys/sysmacros.h>

#include "cow.h"
#include "descent.h"
#include "input.h"
#include "integrity.h"
#include "message.h"

#define DEVICES 5u

static const char *said;
static struct level tables[DEVICES];
static bool there[DEVICES];

/* Of lib/dm.c: the one that is asked for is there. */
bool mapped_status(const char *name, const char *target, char *text, size_t size)
{
	must(*name && *target, "of a device");
	snprintf(text, size, "%s", said);
	return true;
}

bool mapped_name_of(const char *dm_uuid, char name[static DM_NAME_MAX])
{
	snprintf(name, DM_NAME_MAX, "%s", dm_uuid);
	return true;
}

bool mapped_is_shown(const char *dm_uuid)
{
	return *dm_uuid;
}

static void try_snapshot(void)
{
	static const uint8_t uuid[16] = { 1 };
	struct stack_snapshot snapshot = { .state = SNAPSHOT_READY };
	struct cow_status status;

	cow_status(uuid, uuid, &status);
	must(status.state > COW_ABSENT && status.state <= COW_OVERFLOW, "its state");
	must(status.state == COW_VALID || (!status.used && !status.total), "figures of what is valid alone");
	must(cow_percent(&status) <= 100 && cow_nearly_full(&status) == (status.state == COW_VALID && cow_percent(&status) >= COW_NEARLY_FULL), "of a hundred");
	must(*cow_state_text(&snapshot, &status), "a word");
	must(!cow_is_lost(uuid, uuid) || status.state == COW_INVALID, "lost is invalid");
}

static void try_integrity(void)
{
	static const uint8_t leg[16] = { 1 };
	struct leg_status status;

	if (leg_status(leg, &status))
		must(status.computed <= status.sectors, "no more than all has tags");
}

/* Each device lies on those with greater numbers, as the kernel has it: no table leads back. */
static int look(dev_t number, struct level *level)
{
	unsigned i = minor(number);

	*level = (struct level){ .kind = LEVEL_DISK };
	if (i >= DEVICES || !there[i])
		return LARDER_DONE;
	level->kind = tables[i].kind;
	for (size_t k = 0; k < tables[i].pieces; k++) {
		struct piece piece = tables[i].piece[k];

		if (minor(piece.number) <= i)
			piece.number = makedev(253, i + 1);
		piece.refused = piece.refused ? strdup(piece.refused) : NULL;
		level->piece = realloc(level->piece, (k + 1) * sizeof(piece));
		must(level->piece, "memory");
		level->piece[level->pieces++] = piece;
	}
	return LARDER_DONE;
}

static void take_target(char *text)
{
	uint64_t first, sectors;
	unsigned device;
	char type[32];
	int length = 0;

	if (sscanf(text, "%u %" SCNu64 " %" SCNu64 " %31s %n", &device, &first, &sectors, type, &length) != 4 || !length)
		return;
	device %= DEVICES;
	if (tables[device].pieces == 6)
		return;
	there[device] = true;
	level_take_target(&tables[device], first, sectors, type, text + length);
}

static void try_tables(const uint8_t *data, size_t size)
{
	struct range asked_range[] = { { 0, 8 }, { 2048, 4096 } };
	struct ranges asked = { asked_range, 2 }, found = { 0 };
	dev_t volume = 0;

	memset(tables, 0, sizeof(tables));
	memset(there, 0, sizeof(there));
	while (size) {
		char *text = input_next(&data, &size);

		take_target(text);
		free(text);
	}
	if (!descend(NULL, makedev(253, 0), &asked, look, &volume, &found)) {
		for (size_t i = 0; i < found.number; i++)
			must(found.range[i].first < found.range[i].end, "a range");
		must(volume && ranges_length(&found) == ranges_length(&asked), "all of it is found once");
	}
	ranges_free(&found);
	for (size_t i = 0; i < DEVICES; i++)
		level_free(&tables[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	text = input_text(data + 1, size - 1);
	said = text;
	if (data[0] == 0)
		try_snapshot();
	else if (data[0] == 1)
		try_integrity();
	else
		try_tables(data + 1, size - 1);
	free(text);
	return 0;
}
