// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder super backup, larder super restore: what is small and fixed of a member's metadata, into a file and back.
 *
 * What a restore may write.  Nobody can know how old a backup is: every start, attach, detach, and every run without the cache changes superblock
 * or table behind it, and what is damaged cannot tell.  So nothing that says which data counts is ever taken from a backup:
 *
 *   on the device		written						so that
 *   a valid superblock, and	nothing: refused				the kernel mends the other copy by itself
 *    (of an SSD) a table
 *   SSD: a valid superblock,	the table of the backup, if it fits: not older	what the table may lack is volumes attached, or sectors
 *    no table			than the superblock says			grown, since: their records are skipped. The kernel
 *										refuses such a volume while it may be dirty
 *   SSD: no superblock		the cache as it was made: no epoch, no		all of its log is dead: it carries the hash of secrets that no
 *				checkpoint, no volumes				superblock knows any more. A volume that may be dirty is refused
 *   backing: no superblock	no cache, not dirty, incarnation raised by a	no table of any cache has this incarnation: whatever one holds
 *				random number					of the volume is stale, and the kernel refuses it
 *
 * All of that gives up what a cache alone has, so each needs --discard-dirty UUID.  Generations are raised far above those of the backup, so that
 * no copy which could not be read today counts tomorrow.
 *
 * Power cuts: tables before the superblock that needs them, each copy by copy with flushes between (lib/superblock.c); before the first copy of
 * the superblock is there nothing valid is on the device, as before; each of the two is the whole new state.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "archive.h"
#include "arguments.h"
#include "backup.h"
#include "claim.h"
#include "scan.h"
#include "stack.h"
#include "signature.h"
#include "verbs.h"

#define GENERATIONS_ABOVE (1u << 20)

/* ------------------------------------------------------------------ backup */

/* The one member of that name, of either kind; to be freed by the caller. */
static int find_member(const char *name, char **path)
{
	const struct member *found = NULL;
	struct members members;
	int result = LARDER_DONE;

	*path = NULL;
	if (strchr(name, '/')) {
		*path = must_allocate(strdup(name));
		return LARDER_DONE;
	}
	members_scan(&members);
	for (size_t i = 0; !result && i < members.number; i++) {
		const struct member *m = members.member[i];

		if (!member_is(m, name, LARDER_KIND_CACHE) && !member_is(m, name, LARDER_KIND_VOLUME))
			continue;
		if (found)
			result = complain(LARDER_UNSAFE, "%s: both %s and %s are of that name; give the device", name, found->path, m->path);
		found = m;
	}
	if (!result && !found) {
		char *why;

		result = LARDER_NOT_FOUND;
		why = members_unseen(&result);
		complain(result, "%s: no device has a superblock with that label or UUID; see larder probe%s", name, why);
		free(why);
	}
	if (!result)
		*path = must_allocate(strdup(found->path));
	members_free(&members);
	return result;
}

static void tell_unread(const struct device *device, const char *what, uint64_t offset, const char *why, const char *path)
{
	remark("%s: %s at byte %" PRIu64 ": cannot be read: %s; %s has zeroes in its place", device->path, what, offset, why, path);
}

/* Zeroes in the place of the tables: what is left of it is half a backup. */
static void tell_tables(const struct device *device, const struct larder_cache_sb *sb, const char *path)
{
	static const uint64_t offset[2] = { LARDER_TABLE_OFFSET_A, LARDER_TABLE_OFFSET_B };
	static const char unread[] = "table read: ";
	struct cache_tables tables;
	char *line[2];

	tables_read(device, sb, &tables);
	for (int i = 0; i < 2; i++) {
		line[i] = problems_line(&tables.problems[i]);
		if (tables.chosen && !strncmp(line[i], unread, strlen(unread)))
			tell_unread(device, "table", offset[i], line[i] + strlen(unread), path);
	}
	if (!tables.chosen)
		remark("%s: table: neither copy is valid (%s; %s): %s has none, and can bring back an empty cache, but no table of volumes", device->path, line[0],
		       line[1], path);
	free(line[0]);
	free(line[1]);
	tables_free(&tables);
}

/* What the file lacks. */
static void tell_missing(const struct device *device, const struct superblocks *found, const char *path)
{
	const struct superblock_copy *const copies[] = { &found->main, &found->copy };

	for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++)
		if (copies[i]->error)
			tell_unread(device, "superblock", copies[i]->offset, strerror(-copies[i]->error), path);
	if (le32toh(found->chosen->sb->head.kind) == LARDER_KIND_CACHE)
		tell_tables(device, &found->chosen->sb->cache, path);
}

static int backup_to(const struct device *device, const struct superblocks *found, const char *path)
{
	char uuid[UUID_TEXT];
	size_t bytes;
	uint8_t *file = backup_encode(device, found, "super backup", &bytes);
	int error = archive_write(path, file, bytes);

	free(file);
	if (error)
		return complain(LARDER_FAILED, "%s: cannot be written: %s%s", path, strerror(-error),
				error == -EEXIST ? "; give another name" : "");
	printf("%s: %s %s, generation %" PRIu64 ", of %s\n", path, kind_text(le32toh(found->chosen->sb->head.kind)),
	       uuid_text(found->chosen->sb->head.uuid, uuid), le64toh(found->chosen->sb->head.generation), device->path);
	tell_missing(device, found, path);
	return LARDER_DONE;
}

static int backup(const char *name, const char *given)
{
	const union superblock *sb;
	struct superblocks found;
	struct device device;
	char *path, *file, uuid[UUID_TEXT];
	int result = find_member(name, &path);

	if (result)
		return result;
	result = device_open(&device, path, DEVICE_READ);
	free(path);
	if (result)
		return result;
	superblocks_read(&device, &found, true);
	result = superblocks_choose(&device, &found, &sb);
	if (!result && le32toh(sb->head.kind) != LARDER_KIND_CACHE && le32toh(sb->head.kind) != LARDER_KIND_VOLUME)
		result = complain(LARDER_NOT_FOUND, "%s: kind: a %s has nothing to back up", device.path, kind_text(le32toh(sb->head.kind)));
	if (!result) {
		file = given ? must_allocate(strdup(given)) :
			       must_print("%s-%" PRIu64 ".backup", uuid_text(sb->head.uuid, uuid), le64toh(sb->head.generation));
		result = backup_to(&device, &found, file);
		free(file);
	}
	superblocks_free(&found);
	device_close(&device);
	return result;
}

int super_backup(int argc, char **argv)
{
	static const char usage[] = "larder super backup DEVICE|NAME|UUID [FILE]";
	const struct argument arguments[] = { ARGUMENTS_END };
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 2, &first, &result))
		return result;
	return backup(argv[first], argc - first > 1 ? argv[first + 1] : NULL);
}

/* ------------------------------------------------------------------ restore: the file */

/* *file: to be freed by the caller, also after an error. */
static int load(const char *path, uint8_t **file, struct backup *backup)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;
	size_t bytes = 0;
	ssize_t now = 0;
	char *wrong;
	int result;

	*file = device_buffer(BACKUP_MAX + LARDER_SB_SIZE); /* one that is too long is seen to be */
	if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode)) {
		result = complain(fd < 0 && errno == ENOENT ? LARDER_NOT_FOUND : LARDER_FAILED, "%s: cannot be read: %s", path,
				  fd < 0 ? strerror(errno) : "is no regular file");
		if (fd >= 0)
			close(fd);
		return result;
	}
	while (bytes <= BACKUP_MAX && (now = read(fd, *file + bytes, BACKUP_MAX + 1 - bytes)) > 0)
		bytes += (size_t)now;
	close(fd);
	if (now < 0)
		return complain(LARDER_FAILED, "%s: cannot be read: %s", path, strerror(errno));
	wrong = backup_decode(*file, bytes, backup);
	if (wrong)
		complain(LARDER_FAILED, "%s: %s", path, wrong);
	free(wrong);
	return wrong ? LARDER_FAILED : LARDER_DONE;
}

/* ------------------------------------------------------------------ restore: what may be written */

enum what { RESTORE_TABLE, RESTORE_EMPTY_CACHE, RESTORE_VOLUME };

struct restore {
	const char *path; /* of the file */
	const struct backup *backup;
	const char *discard_dirty;
	enum what what;
};

/* False: there is no stack, or none that can be made out. */
static bool stack_of_backup(const struct larder_volume_sb *sb, struct stack *stack)
{
	bool there;

	return !stack_decode(sb->stack, stack, &there) && there;
}

static int check_device(const struct device *device, const struct restore *r)
{
	struct signatures foreign = { 0 };
	struct contents contents;
	int result;

	if (device->bytes != r->backup->device_bytes)
		return complain(LARDER_UNSAFE, "%s: size: has %" PRIu64 " bytes, the device that %s is of had %" PRIu64 ": it is another one",
				device->path, device->bytes, r->path, r->backup->device_bytes);
	if (superblock_read_only(r->backup->sb))
		return complain(LARDER_FAILED, "%s: ro_compat: features that only a newer larder may write: use that one", r->path);
	if (le32toh(r->backup->sb->head.kind) == LARDER_KIND_CACHE && le32toh(r->backup->sb->cache.nr_devices) != 1)
		return complain(LARDER_UNSAFE,
				"%s: nr_devices: it is one of %u SSDs, of which the others go on without it: larder cache replace, or cache add, gives "
				"them a new one",
				r->path, le32toh(r->backup->sb->cache.nr_devices));
	/* whatever became of its superblock, where it had data there are none of anybody else */
	superblock_contents(r->backup->sb, &contents);
	result = signatures_find(device, &contents, &foreign);
	for (size_t i = 0; !result && i < foreign.number; i++)
		if (foreign.signature[i].place == SIGNATURE_OUTSIDE)
			result = complain(LARDER_UNSAFE, "%s: carries %s: a restore wipes nothing; if that is a leftover: wipefs %s %s",
					  device->path, foreign.signature[i].text, foreign.signature[i].wipefs, device->path);
	signatures_free(&foreign);
	return result;
}

/* A superblock is there, and valid. */
static int check_table(const struct device *device, const union superblock *sb, struct restore *r)
{
	struct problems problems = { 0 };
	struct cache_tables tables;
	char *line;
	int result = LARDER_DONE;

	tables_read(device, &sb->cache, &tables);
	if (tables.chosen)
		result = complain(LARDER_FAILED, "%s: its superblock (generation %" PRIu64 ") and table are whole: there is nothing to restore",
				  device->path, le64toh(sb->head.generation));
	tables_free(&tables);
	if (result)
		return result;
	r->what = RESTORE_TABLE;
	if (le32toh(sb->cache.nr_devices) != 1)
		return complain(LARDER_UNSAFE, "%s: nr_devices: is one of a set by now: larder cache replace gives the set a new one", device->path);
	if (!r->backup->table)
		return complain(LARDER_FAILED, "%s: table: neither copy in it is valid", r->path);
	table_verify(r->backup->table, &sb->cache, &problems);
	line = problems_line(&problems);
	if (problems.number)
		result = complain(LARDER_UNSAFE, "%s: %s: the SSD has changed since; take a newer backup, or see larder rescue", r->path, line);
	free(line);
	problems_free(&problems);
	return result;
}

/* An empty cache of one SSD is newer than all others: those of a set that has grown since would be stale beside it. */
static int check_alone(const struct device *device, const union superblock *sb)
{
	const struct member *other;
	struct members members;
	int result = LARDER_DONE;

	members_scan(&members);
	other = member_cache(&members, sb->cache.cache_uuid);
	if (other)
		result = complain(LARDER_UNSAFE,
				  "%s: cache_uuid: %s is of the same cache, and has what is cached: larder cache replace gives that a new SSD; if it is of no use: larder super wipe %s",
				  device->path, other->path, other->path);
	members_free(&members);
	return result;
}

/* One that was being made, or removed, then may have been given data since: whoever goes on where it was destroys that. */
static int check_stack(const struct restore *r)
{
	struct stack stack;

	if (!stack_of_backup(&r->backup->sb->volume, &stack) || stack.state == STACK_READY)
		return LARDER_DONE;
	return complain(LARDER_UNSAFE, "%s: stack: the stack %s was being %s when it was made, and what is on the disk may be newer; take a newer backup", r->path,
			stack.name, stack.state == STACK_CREATING ? "created" : "removed");
}

static int check_superblock(const struct device *device, const struct superblocks *found, struct restore *r)
{
	const union superblock *mine = r->backup->sb, *there = superblocks_best(found);
	bool cache = le32toh(mine->head.kind) == LARDER_KIND_CACHE;
	char uuid[UUID_TEXT];

	if (found->main.error || (found->copy.offset && found->copy.error))
		return complain(LARDER_FAILED, "%s: superblock: cannot be read: %s; what is there is not known", device->path,
				strerror(found->main.error ? -found->main.error : -found->copy.error));
	if (!found->chosen && there && superblock_is_whole(there))
		return complain(LARDER_UNSAFE, "%s: superblock: is whole, and of another version, or for another device; larder super check %s says more",
				device->path, device->path);
	if (!found->chosen) {
		r->what = cache ? RESTORE_EMPTY_CACHE : RESTORE_VOLUME;
		return cache ? check_alone(device, mine) : check_stack(r);
	}
	if (memcmp(found->chosen->sb->head.uuid, mine->head.uuid, 16) || found->chosen->sb->head.kind != mine->head.kind)
		return complain(LARDER_UNSAFE, "%s: uuid: is the %s %s: larder super wipe %s first, if that may go", device->path,
				kind_text(le32toh(found->chosen->sb->head.kind)), uuid_text(found->chosen->sb->head.uuid, uuid), device->path);
	if (cache)
		return check_table(device, found->chosen->sb, r);
	return complain(LARDER_FAILED, "%s: its superblock (generation %" PRIu64 ") is whole: there is nothing to restore", device->path,
			le64toh(found->chosen->sb->head.generation));
}

#define WHEN_TEXT 64

static const char *made_text(const struct backup *backup, char text[WHEN_TEXT])
{
	time_t made = (time_t)backup->made;
	struct tm tm;

	if (!gmtime_r(&made, &tm) || !strftime(text, WHEN_TEXT, "%Y-%m-%d %H:%M:%S UTC", &tm))
		snprintf(text, WHEN_TEXT, "?");
	return text;
}

/* A volume that has been resized since is as large as it was then. */
static uint64_t volume_bytes(const struct backup *backup)
{
	return le64toh(backup->sb->volume.sectors) << LARDER_SECTOR_SHIFT;
}

/* Each names what is lost. */
static int check_word(const struct device *device, const struct restore *r)
{
	const union superblock *sb = r->backup->sb;
	const uint8_t *needed = r->what == RESTORE_VOLUME ? sb->head.uuid : sb->cache.cache_uuid;
	char uuid[UUID_TEXT], when[WHEN_TEXT];
	struct stack stack;
	uint8_t given[16];

	if (r->discard_dirty && !uuid_parse(r->discard_dirty, given) && !memcmp(given, needed, 16))
		return LARDER_DONE;
	uuid_text(needed, uuid);
	made_text(r->backup, when);
	switch (r->what) {
	case RESTORE_TABLE:
		return complain(LARDER_UNSAFE,
				"%s: table: dirty data of volumes that were attached since %s, and of the part by which others grew since, is LOST with "
				"--discard-dirty %s",
				device->path, when, uuid);
	case RESTORE_EMPTY_CACHE:
		return complain(LARDER_UNSAFE, "%s: superblock: the cache comes back empty: all that is cached, and dirty, is LOST with --discard-dirty %s",
				device->path, uuid);
	case RESTORE_VOLUME:
		break;
	}
	return complain(LARDER_UNSAFE,
			"%s: superblock: the volume comes back without a cache, with %" PRIu64 " bytes, as on %s: dirty data that a cache has of it%s is LOST with "
			"--discard-dirty %s",
			device->path, volume_bytes(r->backup), when, stack_of_backup(&sb->volume, &stack) ? ", and each snapshot of its stack," : "", uuid);
}

/* ------------------------------------------------------------------ restore: writing */

static uint64_t above(__le64 generation)
{
	return htole64(le64toh(generation) + GENERATIONS_ABOVE);
}

/*
 * No SSD has seen a later description: it would be taken for a disk that had left its stack.  Its snapshots share what is lost with the cache, and
 * what has become of them since is not known: none of them counts.
 */
static void renew_description(struct larder_volume_sb *sb)
{
	uint8_t field[LARDER_STACK_SIZE];
	struct stack stack;

	if (!stack_of_backup(sb, &stack))
		return;
	stack.generation = stack_raise(stack.generation, GENERATIONS_ABOVE);
	for (uint32_t i = 0; i < stack.snapshots; i++)
		stack.snapshot[i].state = SNAPSHOT_LOST;
	if (!stack_encode(&stack, field))
		memcpy(sb->stack, field, sizeof(field));
}

/* As the kernel and rescue leave a volume that was detached. */
static int make_volume(union superblock *sb)
{
	sb->head.generation = above(sb->head.generation);
	sb->head.flags &= ~htole32(LARDER_VOLUME_OF_CACHE);
	memset(sb->volume.cache_uuid, 0, sizeof(sb->volume.cache_uuid));
	sb->volume.set_generation = 0;
	renew_description(&sb->volume);
	return superblock_part_ways(sb);
}

/* As `cache create` makes one, with the UUIDs, the label, the shape and the stacks that it had. */
static void make_cache(union superblock *sb, const struct larder_table *was, struct larder_table *table)
{
	struct larder_cache_sb *c = &sb->cache;
	struct larder_table_device *d = &table->devices[0];

	table->head.generation = above(was ? was->head.generation : c->table_generation);
	table->head.set_generation = c->set_generation;
	memcpy(table->head.cache_uuid, c->cache_uuid, 16);
	table->head.nr_devices = htole32(1);
	memcpy(d->uuid, sb->head.uuid, 16);
	d->state = htole32(LARDER_DEVICE_ACTIVE);
	d->role = c->role;
	d->first_segment = c->first_segment;
	d->nr_segments = c->nr_segments;
	d->segments_offset = c->segments_offset;
	if (was)
		memcpy(table->ancestors, was->ancestors, sizeof(table->ancestors));
	sb->head.generation = above(sb->head.generation);
	sb->head.flags = 0;
	c->table_generation = table->head.generation;
	c->epoch = 0;
	c->durable_sequence = 0;
	memset(c->checkpoint, 0, sizeof(c->checkpoint));
	memset(c->epochs, 0, sizeof(c->epochs));
	for (unsigned i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		c->checkpoint[i].first_segment = htole32(LARDER_NO_SEGMENT);
}

static int put_back(const struct device *device, const struct restore *r)
{
	struct larder_table *table = device_buffer(LARDER_TABLE_SIZE);
	union superblock *sb = device_buffer(LARDER_SB_SIZE);
	int error = 0, result = LARDER_DONE;

	*sb = *r->backup->sb;
	if (r->what == RESTORE_TABLE) {
		*table = *r->backup->table;
		/* what it has not seen yet, it says of nobody; less than a volume knows of would be the cache of an image */
		for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++)
			table->volumes[i].seen = 0;
	} else if (r->what == RESTORE_EMPTY_CACHE) {
		make_cache(sb, r->backup->table, table);
	} else {
		result = make_volume(sb);
	}
	if (!result && r->what != RESTORE_VOLUME)
		error = tables_write(device, table);
	if (!result && !error && r->what != RESTORE_TABLE)
		error = superblock_write(device, sb, NULL);
	if (error)
		result = complain(LARDER_FAILED, "%s: cannot be written: %s; run it again when it can", device->path, strerror(-error));
	free(table);
	free(sb);
	return result;
}

static int restore(const struct device *device, struct restore *r, bool dry_run)
{
	static const char *const text[] = {
		[RESTORE_TABLE] = "the table of volumes",
		[RESTORE_EMPTY_CACHE] = "the cache, empty",
		[RESTORE_VOLUME] = "the volume, without a cache",
	};
	struct superblocks found;
	char when[WHEN_TEXT];
	int result = check_device(device, r);

	if (result)
		return result;
	superblocks_read(device, &found, true);
	result = check_superblock(device, &found, r);
	superblocks_free(&found);
	result = result ? result : check_word(device, r);
	if (!result && !dry_run)
		result = put_back(device, r);
	if (result)
		return result;
	printf("%s: restored %s", device->path, text[r->what]);
	if (r->what == RESTORE_VOLUME)
		printf(", with %" PRIu64 " bytes, as on %s", volume_bytes(r->backup), made_text(r->backup, when));
	puts(dry_run ? " (dry run: nothing was written)" : "");
	return LARDER_DONE;
}

int super_restore(int argc, char **argv)
{
	static const char usage[] = "larder super restore FILE DEVICE [--discard-dirty UUID] [--dry-run]";
	struct claim_request request = { 0 };
	const struct argument arguments[] = { { "discard-dirty", 0, ARGUMENT_TEXT, &request.discard_dirty, "UUID",
						"of the cache or volume whose dirty data is LOST by it" },
					      { "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only say what would be done" },
					      ARGUMENTS_END };
	struct restore r = { 0 };
	struct device device;
	struct backup from;
	uint8_t *file;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 2, 2, &first, &result))
		return result;
	r.path = argv[first];
	r.backup = &from;
	r.discard_dirty = request.discard_dirty;
	request.path = argv[first + 1];
	result = load(r.path, &file, &from);
	if (!result) {
		result = claim_open(&device, &request);
		if (!result) {
			result = restore(&device, &r, request.dry_run);
			device_close(&device);
		}
	}
	free(file);
	return result;
}
