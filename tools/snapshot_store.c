// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The store of a snapshot (snapshot_store.h): a mark, which is a superblock of LARDER_KIND_OTHER with the UUID of the store, and
 * behind it what is dm-snapshot's own.  That begins with zeroes before the mark is there: dm-snapshot would believe what an
 * earlier one has left.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cow.h"
#include "create.h"
#include "luks.h"
#include "message.h"
#include "running.h"
#include "signature.h"
#include "size.h"
#include "snapshot_space.h"
#include "snapshot_store.h"

#define COW_HEAD (64u << 10) /* bytes at the head of a store's contents: zeroes there are a store that has none yet */

/* ------------------------------------------------------------------ taken, marked */

/* What is kept of a volume is written as that is written back: not to another one of its cache. */
static int check_cache(const struct device *device, const struct mapped *volume)
{
	uint8_t cache[16];

	return running_cache(volume, cache) ? running_check_entangled(NULL, device->path, device->number, cache) : LARDER_DONE;
}

/* Could what is on it ask for what it is to keep?  What it lies on is in use, and nobody's to take. */
static int check(const struct device *device, const struct mapped *volume, const char *word)
{
	static const struct size_format human = { 'h', true };
	char a[SIZE_TEXT], b[SIZE_TEXT];

	if (!device->block)
		return complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", device->path);
	if (device->bytes < COW_STORE_MIN)
		return complain(LARDER_FAILED, "%s: size: too small: it has %s, and a store has %s at least", device->path, size_print(a, device->bytes, &human),
				size_print(b, COW_STORE_MIN, &human));
	/* what is below it, where it has snapshots: on that they lie as well */
	if (device_lies_on(device->number, volume->target_number))
		return complain(LARDER_UNSAFE, "%s: lies on %s itself, or on a snapshot of it, and would wait for itself; give a device that does not", device->path,
				word);
	return check_cache(device, volume);
}

int snapshot_store_claim(struct device *device, const struct claim_request *request, const struct mapped *volume, const char *word)
{
	int result;

	claim_note(request->path);
	result = claim_open(device, request);
	if (result)
		return result;
	result = check(device, volume, word);
	result = result ? result : claim_clear(device, request);
	if (result)
		device_close(device);
	return result;
}

int snapshot_store_judge(const struct claim_request *request, const struct mapped *volume, const char *word)
{
	struct claim_request claim = *request;
	struct device device;
	int result;

	claim.dry_run = true;
	result = snapshot_store_claim(&device, &claim, volume, word);
	if (!result)
		device_close(&device);
	fflush(stdout);
	return result;
}

int snapshot_store_mark(const struct device *device, const uint8_t uuid[16])
{
	union superblock *sb = device_buffer(LARDER_SB_SIZE);
	int result = create_zero(device, COW_STORE_OFFSET, COW_STORE_OFFSET + COW_HEAD);

	create_head(&sb->head, LARDER_KIND_OTHER, device, 0);
	memcpy(sb->head.uuid, uuid, 16);
	result = result ? result : create_superblock(device, sb, false);
	free(sb);
	return result;
}

/* ------------------------------------------------------------------ key slots */

/*
 * What dm-snapshot has in a store, by chunks: 0 is its head; then an area, of one chunk, which says where in the store the chunks behind it are from, as many
 * as it has room for; then the next one.  The first place without a chunk ends it.  All of it is little endian.
 */
#define KEPT_MAGIC 0x70416e53u
#define KEPT_READ  4096u /* bytes; also the least that a chunk has here */
struct kept_head {
	uint32_t magic, valid, version, chunk; /* chunk: sectors */
};
struct kept_chunk {
	uint64_t from, at; /* numbers of chunks of the volume, and behind the mark of the store */
};

static int read_head(const struct device *device, struct kept_head *head)
{
	struct kept_head *read = device_buffer(KEPT_READ);
	int error = device_read(device, COW_STORE_OFFSET, read, KEPT_READ);

	*head = *read;
	free(read);
	return error;
}

/* Overwrites those of an area that are from the LUKS header; *more: there may be another area. */
static int zero_kept(const struct device *device, const struct kept_chunk *area, uint64_t bytes, uint64_t chunks, bool *more)
{
	int error = 0;

	for (size_t i = 0; !error && *more && i < bytes / sizeof(*area); i++) {
		uint64_t from = le64toh(area[i].from), at = le64toh(area[i].at);

		*more = at != 0;
		if (at && at < chunks && from < LUKS_HEADER / bytes)
			error = device_zero(device, COW_STORE_OFFSET + at * bytes, bytes);
	}
	return error;
}

/* A key of then opens what is in the volume now, though it was taken out since: only the slots have changed. */
static int zero_key_slots(const struct device *device)
{
	uint64_t bytes, chunks, next;
	struct kept_chunk *area;
	struct kept_head head;
	bool more = true;
	int error = read_head(device, &head);

	if (error || le32toh(head.magic) != KEPT_MAGIC)
		return error;
	bytes = (uint64_t)le32toh(head.chunk) << LARDER_SECTOR_SHIFT;
	if (bytes < KEPT_READ || bytes > LUKS_HEADER || bytes & (bytes - 1))
		return -EINVAL;
	chunks = (device->bytes - COW_STORE_OFFSET) / bytes;
	area = device_buffer(bytes);
	for (next = 1; !error && more && next < chunks; next += 1 + bytes / sizeof(*area)) {
		error = device_read(device, COW_STORE_OFFSET + next * bytes, area, bytes);
		error = error ? error : zero_kept(device, area, bytes, chunks, &more);
	}
	free(area);
	return error ? error : device_sync(device);
}

void snapshot_store_zero_keys(const struct device *device)
{
	int error = device->bytes < COW_STORE_MIN ? 0 : zero_key_slots(device);

	if (error)
		remark("%s: what it has kept of the LUKS header cannot be overwritten: %s; key slots of then stay on it until it is", device->path, strerror(-error));
}

/* ------------------------------------------------------------------ given up */

/* What it has kept may look like a signature, and is one once the mark is gone: it goes before.  Where it cannot be read that was said, and the mark goes. */
static int erase(const struct device *device, const struct superblocks *found, bool keys)
{
	struct signatures kept = { 0 };
	int error;

	if (keys)
		snapshot_store_zero_keys(device);
	if (!signatures_find(device, NULL, &kept) && kept.number)
		signatures_wipe(device);
	signatures_free(&kept);
	error = superblocks_erase(device, found);
	return error ? complain(LARDER_FAILED, "%s: cannot overwrite the superblock: %s", device->path, strerror(-error)) : LARDER_DONE;
}

/* *here: a device with its mark; *made: it may have been made for this, as it is a logical volume. */
static int erase_mark(const uint8_t uuid[16], bool keys, bool *here, bool *made)
{
	const struct member *store;
	struct members members;
	struct superblocks found;
	struct device device;
	bool ours = false;
	char of_dm[DM_UUID_MAX];
	int result = LARDER_DONE;

	members_scan(&members);
	store = cow_store(&members, uuid);
	*here = store;
	*made = store && store->block && device_attribute(store->number, "dm/uuid", of_dm, sizeof(of_dm)) && !strncmp(of_dm, "LVM-", strlen("LVM-"));
	if (store)
		result = claim_store(&device, &found, store->path, uuid, &ours);
	if (!result && ours) {
		result = erase(&device, &found, keys);
		superblocks_free(&found);
		device_close(&device);
	}
	members_free(&members);
	return result;
}

int snapshot_store_give_up(const uint8_t uuid[16], bool keys, const char *snapshot)
{
	char text[UUID_TEXT];
	bool here, made, was = false;
	int result = erase_mark(uuid, keys, &here, &made);

	/* of one that is not active nothing can be overwritten */
	if (!result && keys && !here && space_activate(uuid))
		result = erase_mark(uuid, keys, &here, &made);
	result = result ? result : space_give_back(uuid, here && !made, &was);
	if (!result && !here && !was && snapshot)
		remark("%s: its store %s is not here; where it is, larder super wipe ends it, and then lvremove, if it is the logical volume larder-%s", snapshot,
		       uuid_text(uuid, text), text);
	return result;
}
