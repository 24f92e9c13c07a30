// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * dm-integrity by libcryptsetup, over a linear target of ours.
 *
 * A sector without a tag cannot be read, and to write all of a disk takes hours.  So each start asks the kernel to compute the tags that are missing, from
 * what is there, in the background: it notes on the disk how far it came, and takes what lies behind that as it is.  Once all are computed the word
 * changes nothing.
 */
#include <endian.h>
#include <inttypes.h>
#include <libcryptsetup.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <uuid/uuid.h>

#include "claim.h"
#include "cryptsetup.h"
#include "dm.h"
#include "integrity.h"
#include "md.h"
#include "message.h"
#include "program.h"

#define BLOCK LEG_BLOCK
#define TAG   4u
#define ENDS  (1u << 20) /* bytes at either end of it, where whoever looks for signatures reads */
#define TARGET "integrity"

_Static_assert(sizeof(struct larder_sb_head) == 128 && sizeof(struct leg_fields) == 32, "as docs/on-disk-format.md has it");

/* ------------------------------------------------------------------ the superblock */

bool leg_is(const union superblock *sb, struct leg_fields *fields)
{
	memcpy(fields, sb->bytes + sizeof(sb->head), sizeof(*fields));
	return le32toh(sb->head.kind) == LARDER_KIND_OTHER && le32toh(sb->head.flags) & LEG_FLAG;
}

bool leg_is_of(const union superblock *sb, const uint8_t stack[16])
{
	struct leg_fields fields;

	return leg_is(sb, &fields) && !memcmp(fields.stack, stack, 16);
}

void leg_fill(union superblock *sb, const struct leg_fields *fields)
{
	sb->head.flags = htole32(LEG_FLAG);
	memcpy(sb->bytes + sizeof(sb->head), fields, sizeof(*fields));
}

struct host_change {
	const uint8_t *leg, *host;
};

static int change_host(union superblock *sb, bool *write, void *data)
{
	const struct host_change *change = data;
	struct leg_fields fields;

	*write = leg_is(sb, &fields) && !memcmp(sb->head.uuid, change->leg, 16);
	memcpy(fields.host, change->host, 16);
	if (*write)
		leg_fill(sb, &fields);
	return LARDER_DONE;
}

/* What runs begins behind the superblock, which nobody else writes to.  *held: it does. */
static int open_beside(struct device *device, const char *disk, const uint8_t leg[16], bool *held)
{
	int result = claim_check(disk, LARDER_KIND_OTHER, leg);

	*held = false;
	result = result ? result : device_open(device, disk, DEVICE_BESIDE);
	if (result)
		return result;
	*held = leg_is_held(leg, device->number);
	if (!*held)
		device_close(device);
	return LARDER_DONE;
}

int leg_set_host(const char *disk, const uint8_t leg[16], const uint8_t host[16])
{
	struct host_change change = { leg, host };
	struct superblocks found;
	struct device device;
	bool ours, held;
	int result = open_beside(&device, disk, leg, &held);

	if (!result && !held) {
		result = claim_member(&device, &found, disk, LARDER_KIND_OTHER, leg, &ours);
		if (result || !ours)
			return result ? result : LARDER_UNSAFE;
		superblocks_free(&found);
	}
	if (result)
		return result;
	result = superblock_change(&device, change_host, &change);
	device_close(&device);
	return result;
}

/* ------------------------------------------------------------------ sizes */

/* The kernel takes a 128th for its journal, 64 MiB at most; a tag for each block in whole areas; and what it rounds. */
uint64_t leg_capacity(uint64_t disk)
{
	uint64_t room = disk > LEG_MIN ? disk - LEG_OFFSET : 0, journal = room / 128 < (64u << 20) ? room / 128 : 64u << 20;

	room -= journal;
	return room - room / (BLOCK / TAG) - (room ? 512u << 10 : 0);
}

uint64_t leg_capacity_most(uint64_t disk)
{
	uint64_t room = disk > LEG_OFFSET ? disk - LEG_OFFSET : 0;

	return room - room / (BLOCK / TAG);
}

uint64_t leg_head(uint64_t disk)
{
	uint64_t room = disk > LEG_OFFSET ? disk - LEG_OFFSET : 0, head = (room / 128 < (64u << 20) ? room / 128 : 64u << 20) + ENDS;

	return (head < room ? head : room) & ~(uint64_t)(BLOCK - 1);
}

int leg_check_kernel(void)
{
	const char *words[] = { "modprobe", "--quiet", "dm-integrity", NULL };
	uint32_t version[3];
	char *said;

	if (target_version(TARGET, version))
		return LARDER_DONE;
	program_run(words, &said);
	free(said);
	return target_version(TARGET, version) ? LARDER_DONE :
						 complain(LARDER_FAILED, "--integrity: this kernel has no dm-integrity; modprobe dm-integrity says why");
}

/* ------------------------------------------------------------------ names */

static char *below_name(const uint8_t leg[16])
{
	char text[UUID_TEXT];

	return must_print("larder-disk-%s", uuid_text(leg, text));
}

static char *top_name(const uint8_t leg[16])
{
	char text[UUID_TEXT];

	return must_print(LEG_PREFIX "%s", uuid_text(leg, text));
}

static char *node_of(const char *name)
{
	return must_print("/dev/mapper/%s", name);
}

char *leg_node(const uint8_t leg[16])
{
	char *name = top_name(leg), *node = node_of(name);

	free(name);
	return node;
}

/* Is it the linear target of a leg of that stack?  *leg: of which. */
static bool is_below(const char *dm_uuid, const uint8_t stack[16], uint8_t leg[16])
{
	char text[UUID_TEXT], own[UUID_TEXT], *end;
	bool is;

	if (strncmp(dm_uuid, "LARDER-", strlen("LARDER-")) || strlen(dm_uuid) < strlen("LARDER-") + UUID_TEXT - 1)
		return false;
	snprintf(own, sizeof(own), "%.*s", UUID_TEXT - 1, dm_uuid + strlen("LARDER-"));
	end = must_print(BELOW_LEG "%s", uuid_text(stack, text));
	is = !strcmp(dm_uuid + strlen("LARDER-") + UUID_TEXT - 1, end) && !uuid_parse(own, leg);
	free(end);
	return is;
}

/* ------------------------------------------------------------------ look */

/* The disk below the linear target of a leg.  False: there is no such target. */
static bool find_disk(const uint8_t leg[16], dev_t *disk)
{
	char *name = below_name(leg), dm_uuid[DM_UUID_MAX], same[DM_NAME_MAX];
	struct mapped_target *target;
	unsigned high, low;
	size_t targets;
	dev_t number;
	bool found = mapped_look(name, dm_uuid, &number) && strstr(dm_uuid, BELOW_LEG) && !mapped_targets(number, same, &target, &targets);

	if (found) {
		found = targets == 1 && sscanf(target->params, "%u:%u", &high, &low) == 2;
		if (found)
			*disk = makedev(high, low);
		mapped_targets_free(target, targets);
	}
	free(name);
	return found;
}

bool leg_is_held(const uint8_t leg[16], dev_t disk)
{
	dev_t below;

	return find_disk(leg, &below) && below == disk;
}

static bool top_is_there(const uint8_t leg[16])
{
	char *name = top_name(leg), text[128];
	bool there = mapped_status(name, TARGET, text, sizeof(text));

	free(name);
	return there;
}

bool leg_runs(const uint8_t leg[16], dev_t disk)
{
	return leg_is_held(leg, disk) && top_is_there(leg);
}

bool leg_of_device(dev_t device, uint8_t leg[16], char disk[static 64])
{
	char name[DM_NAME_MAX];
	dev_t below;

	disk[0] = 0;
	if (!device_attribute(device, "dm/name", name, sizeof(name)) || strncmp(name, LEG_PREFIX, strlen(LEG_PREFIX)) ||
	    uuid_parse(name + strlen(LEG_PREFIX), leg))
		return false;
	if (!find_disk(leg, &below) || !device_node(below, disk, 64))
		disk[0] = 0;
	return true;
}

static bool running_on(dev_t disk, const uint8_t stack[16], uint8_t leg[16])
{
	struct mapped_names names;
	char dm_uuid[DM_UUID_MAX];
	dev_t number;
	bool found = false;

	if (mapped_scan_names(&names))
		return false;
	for (size_t i = 0; !found && i < names.number; i++)
		found = mapped_look(names.name[i], dm_uuid, &number) && is_below(dm_uuid, stack, leg) && leg_is_held(leg, disk);
	mapped_names_free(&names);
	return found;
}

bool leg_of_disk(const char *disk, const uint8_t stack[16], uint8_t leg[16])
{
	struct superblocks sbs;
	struct device device;
	bool found;

	if (device_try(&device, disk))
		return false;
	found = running_on(device.number, stack, leg);
	if (!found) {
		superblocks_read(&device, &sbs, false);
		found = sbs.chosen && leg_is_of(sbs.chosen->sb, stack);
		if (found)
			memcpy(leg, sbs.chosen->sb->head.uuid, 16);
		superblocks_free(&sbs);
	}
	device_close(&device);
	return found;
}

bool leg_is_formatted(const char *disk, bool *readable)
{
	struct device device;
	bool there = false;
	char *head;

	*readable = !device_try(&device, disk);
	if (!*readable)
		return false;
	head = device_buffer(BLOCK);
	*readable = !device_read(&device, LEG_OFFSET, head, BLOCK);
	there = *readable && !memcmp(head, "integrt", 8);
	free(head);
	device_close(&device);
	return there;
}

bool leg_status(const uint8_t leg[16], struct leg_status *status)
{
	char *name = top_name(leg), text[128], computed[24];
	bool there = mapped_status(name, TARGET, text, sizeof(text)) &&
		     sscanf(text, "%" SCNu64 " %" SCNu64 " %23s", &status->mismatches, &status->sectors, computed) == 3;

	if (there)
		status->computed = !strcmp(computed, "-") ? status->sectors : strtoull(computed, NULL, 10);
	if (there && status->computed > status->sectors)
		status->computed = status->sectors;
	free(name);
	return there;
}

/* ------------------------------------------------------------------ stop */

int leg_stop(const uint8_t leg[16])
{
	char *top = top_name(leg), *below = below_name(leg);
	int result = mapped_name_taken(top) ? mapped_remove(top) : LARDER_DONE;

	if (!result && mapped_name_taken(below))
		result = mapped_remove(below);
	free(below);
	free(top);
	return result;
}

int legs_stop(const uint8_t stack[16])
{
	struct mapped_names names;
	char dm_uuid[DM_UUID_MAX];
	uint8_t leg[16];
	dev_t number;
	int result = mapped_scan_names(&names);

	for (size_t i = 0; !result && i < names.number; i++)
		if (mapped_look(names.name[i], dm_uuid, &number) && is_below(dm_uuid, stack, leg))
			result = leg_stop(leg);
	mapped_names_free(&names);
	return result;
}

int leg_erase(const char *disk, const uint8_t leg[16])
{
	struct superblocks found;
	struct device device;
	bool ours;
	int error, result = leg_stop(leg);

	result = result ? result : claim_member(&device, &found, disk, LARDER_KIND_OTHER, leg, &ours);
	if (result || !ours)
		return result;
	error = device_zero(&device, LEG_OFFSET, leg_head(device.bytes));
	/* durable before the mark is gone, without which nobody would know any more that there is something left */
	error = error ? error : device_sync(&device);
	error = error ? error : superblocks_erase(&device, &found);
	superblocks_free(&found);
	device_close(&device);
	return error ? complain(LARDER_FAILED, "%s: cannot overwrite its superblock: %s", disk, strerror(-error)) : LARDER_DONE;
}

/* ------------------------------------------------------------------ start */

static int start_below(const char *disk, const uint8_t leg[16], const uint8_t stack[16])
{
	char *name = below_name(leg), a[UUID_TEXT], b[UUID_TEXT], *dm_uuid, *params;
	struct device device;
	int result = device_open(&device, disk, DEVICE_READ);

	if (!result) {
		dm_uuid = must_print("LARDER-%s" BELOW_LEG "%s", uuid_text(leg, a), uuid_text(stack, b));
		params = must_print("%u:%u %u", major(device.number), minor(device.number), LEG_OFFSET >> LARDER_SECTOR_SHIFT);
		if (!device.block || device.bytes < LEG_MIN)
			result = complain(LARDER_UNSAFE, "%s: size: is smaller than a leg with dm-integrity can be, or no block device", disk);
		else
			result = mapped_create(name, dm_uuid, "linear",
					       (device.bytes - LEG_OFFSET) / BLOCK * (BLOCK >> LARDER_SECTOR_SHIFT), params);
		free(params);
		free(dm_uuid);
		device_close(&device);
	}
	free(name);
	return result;
}

/* private: udev shows it to nobody. */
static int start_top(const char *disk, const uint8_t leg[16], bool format, bool private)
{
	struct crypt_params_integrity params = { .tag_size = TAG, .sector_size = BLOCK, .integrity = INTEGRITY_ALGORITHM };
	char *name = top_name(leg), *below = below_name(leg), *node = node_of(below);
	struct crypt_device *cd = NULL;
	int error;

	if (mapped_is_dry()) {
		printf("integritysetup open --integrity %s --integrity-recalculate %s %s\n", INTEGRITY_ALGORITHM, node, name);
		error = 0;
		goto out;
	}
	error = cryptsetup_open(node, &cd);
	if (!error && format)
		error = crypt_format(cd, CRYPT_INTEGRITY, NULL, NULL, NULL, NULL, 0, &params);
	else if (!error)
		error = crypt_load(cd, CRYPT_INTEGRITY, &params);
	error = error ? error :
			crypt_activate_by_volume_key(cd, name, NULL, 0, CRYPT_ACTIVATE_RECALCULATE | (private ? CRYPT_ACTIVATE_PRIVATE : 0));
	crypt_free(cd);
out:
	free(node);
	free(below);
	free(name);
	return cryptsetup_judge(error, disk, format ? "make dm-integrity on" : "start dm-integrity on");
}

static int zero(const struct device *device, const char *disk, uint64_t from, uint64_t bytes)
{
	int error = device_zero(device, from, bytes);

	return error ? complain(LARDER_FAILED, "%s: cannot clear it: %s", disk, strerror(-error)) : LARDER_DONE;
}

static int clear_node(const char *node, const char *disk, bool ends)
{
	struct device device;
	int result = device_open(&device, node, DEVICE_CLAIM);

	if (result)
		return result;
	result = zero(&device, disk, 0, ENDS);
	if (!result && ends)
		result = zero(&device, disk, (device.bytes - ENDS) & ~(uint64_t)(BLOCK - 1), ENDS);
	if (!result && device_sync(&device))
		result = complain(LARDER_FAILED, "%s: cannot flush it", disk);
	device_close(&device);
	return result;
}

int leg_format(const char *disk, const uint8_t leg[16], const uint8_t stack[16])
{
	char *below = below_name(leg), *under = node_of(below), *node = leg_node(leg);
	int result = claim_check(disk, LARDER_KIND_OTHER, leg);

	result = result ? result : leg_stop(leg);
	result = result ? result : start_below(disk, leg, stack);
	result = result ? result : clear_node(under, disk, false); /* of an earlier life, perhaps of other sizes */
	result = result ? result : start_top(disk, leg, true, true);
	/* an array that was there once would be gathered by md's rules as soon as it can be seen */
	result = result ? result : clear_node(node, disk, true);
	if (leg_stop(leg) && !result)
		result = LARDER_FAILED;
	free(node);
	free(under);
	free(below);
	return result;
}

/* Its disk is gone, or another one has this leg now: md does not read from it any more. */
static int drop_stale(const uint8_t leg[16])
{
	char *name = top_name(leg), dm_uuid[DM_UUID_MAX];
	dev_t number;

	if (mapped_look(name, dm_uuid, &number))
		md_give_up(number);
	free(name);
	return leg_stop(leg);
}

int leg_start(const char *disk, const uint8_t leg[16], const uint8_t stack[16])
{
	struct device device;
	dev_t number, below;
	bool here;
	int result = claim_check(disk, LARDER_KIND_OTHER, leg);

	result = result ? result : device_open(&device, disk, DEVICE_READ);
	if (result)
		return result;
	number = device.number;
	device_close(&device);
	if (leg_runs(leg, number))
		return LARDER_DONE;
	here = find_disk(leg, &below);
	if (here && below != number) {
		result = drop_stale(leg);
		here = false;
	}
	/* without a table, as one that was killed between its steps leaves it */
	if (!result && !here)
		result = leg_stop(leg);
	if (!result && !here)
		result = start_below(disk, leg, stack);
	if (!result) {
		result = start_top(disk, leg, false, false);
		if (result)
			leg_stop(leg);
	}
	return result;
}
