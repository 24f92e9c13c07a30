// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A cache and a volume of it without the kernel's targets.
 *
 * Order of writes, each step durable before the next:
 *
 *   1. flush of the SSDs: records that were read count from now on
 *   2. dirty data to the backing's data area, in any order; flush of the backing
 *   3. the backing's superblock, copy by copy: no cache, not dirty, incarnation raised
 *
 * Cut off before 3 the cache counts as before: all that was written in 2 is dirty in it still, and hides what is half written.  From
 * the first copy of 3 on the backing alone is whole, whichever copy counts.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "rescue.h"

#define SECTOR	    (1u << LARDER_SECTOR_SHIFT)
#define WRITE_BYTES (1u << 20)
#define READ_BYTES  (1u << 20)
#define ALIGNMENT   4096u

/* A set that lacks a member may lack what only that one has: not without being told to. */
static int judge_set(const struct ssd_set *set, bool degraded)
{
	uint32_t missing = ssd_set_missing(set);
	char uuid[UUID_TEXT];
	unsigned first = 0;

	if (!missing)
		return LARDER_DONE;
	while (!(missing >> first & 1))
		first++;
	uuid_text(set->table->devices[first].uuid, uuid);
	if (degraded) {
		remark("%s: SSD %u of the set (%s) is missing: what only that one has is not seen", set->name, first, uuid);
		return LARDER_DONE;
	}
	return complain(LARDER_UNSAFE,
			"%s: SSD %u of the set (%s) is missing: give it too, or what the others hold is read by --degraded", set->name,
			first, uuid);
}

static int load(struct rescue_cache *cache)
{
	const char *name = cache->set.name;
	struct cache_image *image = &cache->image;

	cache_image_init(image, &cache->set);
	if (cache_image_load(image))
		return LARDER_DONE;
	for (size_t i = 0; i < image->problems.number; i++)
		remark("%s: %s", name, image->problems.text[i]);
	rescue_tell_lost(cache, NULL);
	if (image->absent)
		return complain(LARDER_UNSAFE, "%s: what the cache holds cannot be loaded without the SSDs that are missing; give them too",
				name);
	return complain(LARDER_FAILED, "%s: what the cache holds cannot be loaded; the kernel would refuse to start it too", name);
}

int rescue_cache_open(struct rescue_cache *cache, const char *const *paths, size_t number, bool degraded)
{
	int result;

	*cache = (struct rescue_cache){ 0 };
	result = ssd_set_open(&cache->set, paths, number, DEVICE_EXAMINE);
	if (result)
		return result;
	result = ssd_set_choose(&cache->set);
	result = result ? result : judge_set(&cache->set, degraded);
	result = result ? result : load(cache);
	if (result)
		rescue_cache_close(cache);
	return result;
}

void rescue_cache_close(struct rescue_cache *cache)
{
	cache_image_free(&cache->image);
	ssd_set_close(&cache->set);
}

/* ------------------------------------------------------------- volumes */

/* Does the cache hold anything behind so many sectors?  A volume that grows is larger in the cache's table first; no more than that. */
static bool reaches_behind(const struct cached_volume *v, uint64_t sectors)
{
	size_t n;
	struct region **region = extent_map_regions(&v->map, &n);
	bool behind = false;

	while (n && !region[n - 1]->n) /* all that was mapped there has gone */
		n--;
	if (n) {
		const struct region *last = region[n - 1];
		uint64_t e = last->extent[last->n - 1];

		behind = (last->number << LARDER_REGION_SHIFT) + extent_first(e) + extent_length(e) > sectors;
	}
	free(region);
	return behind;
}

enum standing rescue_standing(const struct rescue_cache *cache, const struct larder_volume_sb *sb, unsigned *number)
{
	const struct larder_table_volume *v;
	const struct larder_table *table;

	if (!cache)
		return STANDING_DETACHED;
	table = cache->set.table;
	v = table_volume(table, sb->head.uuid, number);
	if (uuid_is_zero(sb->cache_uuid)) /* or it is an image of before it was attached */
		return v && volume_is_older(v, sb) ? STANDING_OLDER : STANDING_DETACHED;
	if (memcmp(sb->cache_uuid, cache->set.sb->cache_uuid, 16))
		return STANDING_FOREIGN;
	if (sb->set_generation && !table_knows(table, le64toh(sb->set_generation)))
		return STANDING_OTHER_SET;
	if (!v)
		return STANDING_UNKNOWN;
	if (v->incarnation != sb->incarnation)
		return STANDING_STALE;
	if (volume_is_older(v, sb))
		return STANDING_OLDER;
	if (cache_is_older(v, sb))
		return STANDING_CACHE_OLDER;
	return reaches_behind(&cache->image.volume[*number], le64toh(sb->sectors)) ? STANDING_RESIZED : STANDING_ATTACHED;
}

const char *standing_text(enum standing standing)
{
	static const char *const text[] = { "attached", "older", "cache_older", "stale", "detached", "foreign", "unknown", "resized", "other_set" };

	return text[standing];
}

static bool may_be_dirty(const struct larder_volume_sb *sb)
{
	return le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY;
}

/*
 * Rule 11 of docs/design.md: what is found dirty of a volume that is not may have been written back, and over, by what the log has lost.  Without a
 * loss it counts, as in a start.
 */
static void find_cached(struct rescue_volume *volume, const struct rescue_cache *cache)
{
	bool loss = cache && cache->image.lost.number;

	volume->lost = loss && may_be_dirty(volume->sb);
	if (volume->standing == STANDING_ATTACHED && (volume->lost || !loss))
		volume->cached = &cache->image.volume[volume->number];
}

int rescue_volume_open(struct rescue_volume *volume, struct rescue_cache *cache, const char *path, enum device_access access)
{
	const union superblock *sb;
	int result;

	*volume = (struct rescue_volume){ 0 };
	result = device_open(&volume->device, path, access);
	if (result)
		return result;
	superblocks_read(&volume->device, &volume->super, false);
	result = superblocks_choose(&volume->device, &volume->super, &sb);
	if (!result && le32toh(sb->head.kind) != LARDER_KIND_VOLUME)
		result = complain(LARDER_NOT_FOUND, "%s: kind: is a %s, not a volume", path, kind_text(le32toh(sb->head.kind)));
	if (!result && access == DEVICE_CLAIM && volume->device.read_only)
		result = complain(LARDER_FAILED, "%s: is read-only; see blockdev --setrw", path);
	if (!result && access == DEVICE_CLAIM && superblock_read_only(sb))
		result = complain(LARDER_FAILED, "%s: ro_compat: features that only a newer larder may write: use that one", path);
	if (result) {
		rescue_volume_close(volume);
		return result;
	}
	volume->sb = &sb->volume;
	volume->standing = rescue_standing(cache, volume->sb, &volume->number);
	find_cached(volume, cache);
	return LARDER_DONE;
}

void rescue_volume_close(struct rescue_volume *volume)
{
	superblocks_free(&volume->super);
	device_close(&volume->device);
}

/* What only another state of its cache has may be newer than the disk. */
#define GIVE_UP                                                                                                                                     \
	"give the SSDs that it had; if they are gone, what only they have is given up (LOST) by a table with '-' and the message discard_dirty %s, or, " \
	"of a stack, by larder replace NAME cache SSD --discard-dirty %s"

int rescue_judge(const struct rescue_cache *cache, const struct rescue_volume *volume)
{
	const char *path = volume->device.path, *ssd = cache->set.name;
	char uuid[UUID_TEXT];

	uuid_text(volume->sb->cache_uuid, uuid);
	switch (volume->standing) {
	case STANDING_ATTACHED:
		return LARDER_DONE;
	case STANDING_OLDER:
		return complain(LARDER_UNSAFE,
				"%s: generation: older than what cache %s has seen of the volume, as a disk put back from an image is: give the one that it had",
				path, ssd);
	case STANDING_CACHE_OLDER:
		return complain(LARDER_UNSAFE,
				"%s: noted: cache %s is older than what the volume knows of it, as an SSD put back from an image is, or one that was copied: give the one that it had",
				path, ssd);
	case STANDING_STALE:
		if (may_be_dirty(volume->sb))
			return complain(LARDER_UNSAFE,
					"%s: incarnation: the volume ran without cache %s, which is stale: what it holds must not be used; may_be_dirty is set: " GIVE_UP,
					path, ssd, uuid, uuid);
		return complain(LARDER_UNSAFE,
				"%s: incarnation: the volume ran without cache %s, which is stale: what it holds must not be used; may_be_dirty is clear: the disk "
				"has all of it: larder volume start --without-module %s",
				path, ssd, path);
	case STANDING_DETACHED:
		return complain(LARDER_FAILED, "%s: cache_uuid: belongs to no cache: the disk alone holds all of it", path);
	case STANDING_FOREIGN:
		return complain(LARDER_UNSAFE, "%s: cache_uuid: belongs to cache %s, not to %s: give that one by --cache", path, uuid, ssd);
	case STANDING_RESIZED:
		return complain(LARDER_UNSAFE, "%s: sectors: the cache on %s holds data behind the end of the volume, which was larger: give the disk that it had",
				path, ssd);
	case STANDING_OTHER_SET:
		return complain(LARDER_UNSAFE,
				"%s: set_generation: the volume ran with other SSDs of its cache (set %" PRIx64 ", these: %" PRIx64
				"): what %s holds may be older; give those",
				path, le64toh(volume->sb->set_generation), le64toh(cache->set.table->head.set_generation), ssd);
	case STANDING_UNKNOWN:
		break;
	}
	if (!may_be_dirty(volume->sb))
		return LARDER_DONE;
	return complain(LARDER_UNSAFE, "%s: flags: may_be_dirty is set, but the cache on %s knows nothing of the volume: " GIVE_UP, path, ssd, uuid, uuid);
}

void rescue_tell_lost(const struct rescue_cache *cache, const struct rescue_volume *volume)
{
	if (volume && !volume->lost && cache->image.lost.number) {
		remark("%s: flags: may_be_dirty is clear: the disk has all of it, and nothing on %s counts, of which the log has lost records, or may have",
		       volume->device.path, cache->set.name);
		return;
	}
	for (size_t i = 0; i < cache->image.lost.number; i++)
		remark("%s: %s", cache->set.name, cache->image.lost.text[i]);
}

/* ------------------------------------------------------------- reading both */

static void settle(const struct device *device)
{
	int error = device_sync(device);

	if (error)
		remark("%s: cannot be flushed: %s; what was written to it last may be lost in a power cut", device->path, strerror(-error));
}

void rescue_settle(const struct rescue_cache *cache, const struct rescue_volume *volume)
{
	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
		if (cache->set.member[i])
			settle(&cache->set.member[i]->device);
	settle(&volume->device);
}

struct overlay {
	uint64_t offset; /* of the volume, bytes */
	size_t bytes;
	uint8_t *to;
	size_t covered; /* bytes that came from the cache: extents do not overlap */
};

static int overlay_piece(const struct dirty_piece *piece, void *data)
{
	struct overlay *o = data;
	uint64_t at = piece->sector * SECTOR, end = at + (uint64_t)piece->length * SECTOR;
	uint64_t from = at > o->offset ? at : o->offset, to = end < o->offset + o->bytes ? end : o->offset + o->bytes;

	if (from >= to)
		return 0;
	if (piece->state != SLOT_GOOD)
		return -EIO;
	if (piece->zero)
		memset(o->to + (from - o->offset), 0, to - from);
	else
		memcpy(o->to + (from - o->offset), piece->data + (from - at), to - from);
	o->covered += to - from;
	return 0;
}

/* At most READ_BYTES; buffer has room for ALIGNMENT at each end. */
static int read_backing(const struct rescue_volume *volume, uint64_t offset, size_t bytes, uint8_t *to, uint8_t *buffer)
{
	uint64_t block = volume->device.logical_block, at = le64toh(volume->sb->data_offset) + offset, from = at / block * block;
	uint64_t end = (at + bytes + block - 1) / block * block;
	int error;

	end = end < volume->device.bytes ? end : volume->device.bytes;
	error = device_read(&volume->device, from, buffer, end - from);
	if (!error)
		memcpy(to, buffer + (at - from), bytes);
	return error;
}

/*
 * At most READ_BYTES.  Where the disk cannot be read it is asked for parts, down to one block: what the cache has of it, dirty and good, is read all the
 * same, as by the kernel, which does not ask the disk for it.
 */
static int read_range(struct rescue_cache *cache, const struct rescue_volume *volume, uint64_t offset, size_t bytes, uint8_t *to, uint8_t *buffer)
{
	uint32_t block = volume->device.logical_block, step = bytes > ALIGNMENT ? ALIGNMENT : block;
	struct overlay o = { .offset = offset, .bytes = bytes, .to = to };
	int error = read_backing(volume, offset, bytes, to, buffer), damaged = 0;

	if (volume->cached)
		damaged = dirty_each(&cache->image, volume->cached, offset / SECTOR, (offset + bytes + SECTOR - 1) / SECTOR, overlay_piece, &o);
	if (damaged || !error || o.covered == bytes)
		return damaged;
	if (offset / block == (offset + bytes - 1) / block)
		return error;
	for (error = 0; !error && bytes;) {
		size_t now = step - offset % step;

		now = now < bytes ? now : bytes;
		error = read_range(cache, volume, offset, now, to, buffer);
		offset += now;
		to += now;
		bytes -= now;
	}
	return error;
}

int rescue_read(struct rescue_cache *cache, const struct rescue_volume *volume, uint64_t offset, size_t bytes, uint8_t *to)
{
	uint8_t *buffer = device_buffer(READ_BYTES + 2 * ALIGNMENT);
	int error = 0;

	while (!error && bytes) {
		size_t now = bytes < READ_BYTES ? bytes : READ_BYTES;

		error = read_range(cache, volume, offset, now, to, buffer);
		offset += now;
		to += now;
		bytes -= now;
	}
	free(buffer);
	return error;
}

static void damage_add(struct rescue_damage *damage, uint64_t sector, uint64_t end)
{
	struct rescue_run *last = damage->number ? &damage->run[damage->number - 1] : NULL;

	if (last && last->end == sector) {
		last->end = end;
		return;
	}
	if (damage->number == damage->room) {
		damage->room = damage->room ? 2 * damage->room : 16;
		damage->run = must_allocate(realloc(damage->run, damage->room * sizeof(*damage->run)));
	}
	damage->run[damage->number++] = (struct rescue_run){ sector, end };
}

/* All of it? */
static bool damage_has(const struct rescue_damage *damage, uint64_t sector, uint64_t end)
{
	size_t low = 0, high = damage->number;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (damage->run[middle].end <= sector)
			low = middle + 1;
		else
			high = middle;
	}
	return low < damage->number && damage->run[low].sector <= sector && end <= damage->run[low].end;
}

void rescue_damage_free(struct rescue_damage *damage)
{
	free(damage->run);
	*damage = (struct rescue_damage){ 0 };
}

struct verify {
	struct rescue_count count;
	struct rescue_damage *damage; /* or NULL */
	const struct rescue_cache *cache;
	const char *name; /* NULL: damage is only counted */
	struct dirty_piece run; /* damaged, not yet told */
};

static void tell_run(const struct verify *v)
{
	uint32_t unit = v->cache->image.usage.segment_sectors;

	if (!v->name || !v->run.length)
		return;
	remark("volume %s: sectors %" PRIu64 " to %" PRIu64 " are %s: segment %" PRIu64 ", sector %" PRIu64 " of the cache on %s", v->name,
	       v->run.sector, v->run.sector + v->run.length - 1, slot_state_text(v->run.state), v->run.cache / unit, v->run.cache % unit,
	       v->cache->set.name);
}

static int verify_piece(const struct dirty_piece *piece, void *data)
{
	struct verify *v = data;

	v->count.dirty += piece->length;
	v->count.zero += piece->zero ? piece->length : 0;
	v->count.differ += piece->state == SLOT_GOOD && piece->differs ? piece->length : 0;
	if (piece->state == SLOT_GOOD)
		return 0;
	v->count.damaged += piece->length;
	if (v->damage)
		damage_add(v->damage, piece->sector, piece->sector + piece->length);
	if (v->run.length && v->run.state == piece->state && v->run.sector + v->run.length == piece->sector &&
	    v->run.cache + v->run.length == piece->cache) {
		v->run.length += piece->length;
		return 0;
	}
	tell_run(v);
	v->run = *piece;
	return 0;
}

struct rescue_count rescue_verify(struct rescue_cache *cache, const struct cached_volume *cached, const char *name, bool say, struct rescue_damage *damage)
{
	struct verify v = { .cache = cache, .name = say ? name : NULL, .damage = damage };

	dirty_each(&cache->image, cached, 0, cached->sectors, verify_piece, &v);
	tell_run(&v);
	return v.count;
}

/* ------------------------------------------------------------- writing back */

struct writeback {
	const struct rescue_volume *volume;
	uint8_t *buffer, *edge; /* buffer: sectors [base, end); those below start are not ours */
	uint64_t base, start, end;
	const struct rescue_damage *accepted;
	uint64_t written, skipped;
	int result;
};

/* Of a logical block that is written in part, the rest is read. */
static int read_edge(struct writeback *w, uint64_t sector, uint64_t keep, uint64_t end)
{
	const struct device *device = &w->volume->device;
	int error = device_read(device, le64toh(w->volume->sb->data_offset) + sector * SECTOR, w->edge, device->logical_block);

	if (!error)
		memcpy(w->buffer + (keep - w->base) * SECTOR, w->edge + (keep - sector) * SECTOR, (end - keep) * SECTOR);
	return error;
}

static int write_out(struct writeback *w)
{
	const struct device *device = &w->volume->device;
	uint64_t block = device->logical_block / SECTOR, at = le64toh(w->volume->sb->data_offset) + w->base * SECTOR;
	uint64_t end = (w->end + block - 1) / block * block;
	int error = 0;

	if (w->start == w->end)
		return 0;
	if (w->start != w->base)
		error = read_edge(w, w->base, w->base, w->start);
	if (!error && w->end != end)
		error = read_edge(w, end - block, w->end, end);
	error = error ? error : device_write(device, at, w->buffer, (end - w->base) * SECTOR);
	if (error) {
		w->result = complain(LARDER_FAILED,
				     "%s: sectors %" PRIu64 " to %" PRIu64 " of the volume cannot be written: %s; the cache still has them",
				     device->path, w->start, w->end - 1, strerror(-error));
		return -1;
	}
	w->written += w->end - w->start;
	w->start = w->end;
	return 0;
}

static int write_piece(const struct dirty_piece *piece, void *data)
{
	struct writeback *w = data;
	uint64_t block = w->volume->device.logical_block / SECTOR;

	if (piece->state != SLOT_GOOD) {
		w->skipped += piece->length;
		if (damage_has(w->accepted, piece->sector, piece->sector + piece->length))
			return 0;
		w->result = complain(LARDER_FAILED, "%s: sectors %" PRIu64 " to %" PRIu64 " of the volume are %s now, and were not before",
				     w->volume->device.path, piece->sector, piece->sector + piece->length - 1,
				     slot_state_text(piece->state));
		return -1;
	}
	for (uint32_t done = 0, now; done < piece->length; done += now) {
		uint64_t sector = piece->sector + done;

		if (w->start == w->end || w->end != sector || (w->end - w->base) * SECTOR >= WRITE_BYTES) {
			if (write_out(w))
				return -1;
			w->start = w->end = sector;
			w->base = sector / block * block;
		}
		now = (uint32_t)(WRITE_BYTES / SECTOR - (w->end - w->base));
		now = now < piece->length - done ? now : piece->length - done;
		if (piece->zero)
			memset(w->buffer + (w->end - w->base) * SECTOR, 0, (size_t)now * SECTOR);
		else
			memcpy(w->buffer + (w->end - w->base) * SECTOR, piece->data + (size_t)done * SECTOR, (size_t)now * SECTOR);
		w->end += now;
	}
	return 0;
}

int rescue_write(struct rescue_cache *cache, const struct rescue_volume *volume, const struct rescue_damage *accepted, uint64_t *written,
		 uint64_t *skipped)
{
	struct writeback w = { .volume = volume, .accepted = accepted };
	int error;

	w.buffer = device_buffer(WRITE_BYTES + ALIGNMENT);
	w.edge = device_buffer(ALIGNMENT);
	if (volume->cached && !dirty_each(&cache->image, volume->cached, 0, volume->cached->sectors, write_piece, &w))
		write_out(&w);
	free(w.buffer);
	free(w.edge);
	*written = w.written;
	*skipped = w.skipped;
	if (w.result)
		return w.result;
	error = device_sync(&volume->device);
	if (error)
		return complain(LARDER_FAILED, "%s: what was written cannot be flushed: %s; the cache still has it",
				volume->device.path, strerror(-error));
	return LARDER_DONE;
}

/* Both copies have to say so: should the one that counts be lost, the other one would not. */
static int begin(union superblock *sb, bool *write, void *data)
{
	const struct rescue_volume *const *volume = data;

	*write = !(le32toh(sb->head.flags) & LARDER_VOLUME_CLEAN_VOID) || !superblocks_equal(&(*volume)->super);
	sb->head.flags |= htole32(LARDER_VOLUME_CLEAN_VOID);
	return LARDER_DONE;
}

int rescue_begin(const struct rescue_volume *volume)
{
	return superblock_change(&volume->device, begin, &volume);
}

static int release(union superblock *sb, bool *write, void *data)
{
	(void)write;
	(void)data;
	return superblock_leave_cache(sb);
}

int rescue_release(const struct rescue_volume *volume)
{
	int result = superblock_change(&volume->device, release, NULL);

	if (result)
		remark("%s: all data is on the disk, and whichever copy of the superblock counts is right", volume->device.path);
	return result;
}
