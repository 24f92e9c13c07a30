// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Taking a device over, to format it, or to change what is ours on it.
 *
 * Order: open exclusively, fitness, our own superblocks, foreign signatures; nothing is changed before all have been
 * judged.  --wipe lets go what is on the device.  What is not on it needs a word of its own: a cache may hold the only copy of
 * data of other disks, and a volume's disk is worth little without what its cache holds.  --discard-dirty UUID says that this is
 * known.
 *
 * A device is known by its path, and often looked at, closed, asked about, and opened again: what has the path by then must be what was looked
 * at.  The number of a disk may be that of another one after a hotplug; the kernel's sequence of disks (Linux 5.15) never is.
 */
#include <endian.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "claim.h"
#include "integrity.h"
#include "md.h"
#include "message.h"
#include "scan.h"
#include "signature.h"

static bool names_uuid(const char *text, const uint8_t uuid[16])
{
	uint8_t given[16];

	return text && !uuid_parse(text, given) && !memcmp(given, uuid, 16);
}

/*
 * Where a volume that is not seen to be clean lies, as text; the caller frees it.  NULL: it is clean, or has gone its own way since, and nothing of the
 * cache counts for it any more.  Of a disk and its copies (a snapshot, a dd) each has to be: nobody knows which one is used.
 */
static char *dirty_backings(const struct members *members, const struct larder_table_volume *v, const struct larder_cache_sb *sb)
{
	bool dirty = false;
	char *all = NULL;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];
		char *longer;

		if (le32toh(m->sb.head.kind) != LARDER_KIND_VOLUME || memcmp(m->sb.head.uuid, v->uuid, 16))
			continue;
		/* of an older one nothing that it says is of today */
		dirty = dirty || volume_is_older(v, &m->sb.volume) ||
			(le32toh(m->sb.head.flags) & LARDER_VOLUME_MAY_BE_DIRTY && !memcmp(m->sb.volume.cache_uuid, sb->cache_uuid, 16));
		longer = must_print("%s%s%s", all ? all : "", all ? " and its copy " : "", m->path);
		free(all);
		all = longer;
	}
	if (all && !dirty) {
		free(all);
		return NULL;
	}
	return all ? all : must_print("its backing is not here");
}

/* Volumes attached to a cache that are not seen to be clean, as text; NULL: none.  The caller frees it. */
static char *perhaps_dirty(const struct larder_table *table, const struct larder_cache_sb *sb)
{
	struct members members;
	char *list = NULL;

	members_scan(&members);
	for (uint32_t i = 0; i < le32toh(table->head.nr_volumes); i++) {
		const struct larder_table_volume *v = &table->volumes[i];
		char uuid[UUID_TEXT], label[LARDER_LABEL_SIZE + 1], *where, *longer;

		if (le32toh(v->state) != LARDER_VOLUME_ATTACHED)
			continue;
		where = dirty_backings(&members, v, sb);
		if (!where)
			continue;
		longer = must_print("%s%s%s (%s, %s)", list ? list : "", list ? ", " : "", label_text(v->label, label),
				    uuid_text(v->uuid, uuid), where);
		free(where);
		free(list);
		list = longer;
	}
	members_free(&members);
	return list;
}

static int judge_cache(const struct device *device, const struct larder_cache_sb *sb, const char *discard_dirty)
{
	struct cache_tables tables;
	char uuid[UUID_TEXT], *list;
	int result = LARDER_DONE;

	if (names_uuid(discard_dirty, sb->cache_uuid))
		return LARDER_DONE;
	uuid_text(sb->cache_uuid, uuid);
	tables_read(device, sb, &tables);
	if (!tables.chosen) {
		result = complain(LARDER_UNSAFE,
				  "%s: table: the volumes of this cache cannot be read, so it may hold dirty data: LOST with "
				  "--discard-dirty %s",
				  device->path, uuid);
	} else {
		list = perhaps_dirty(tables.chosen, sb);
		if (list)
			result = complain(LARDER_UNSAFE,
					  "%s: volumes: this cache may hold the newest data of %s: LOST with --discard-dirty %s",
					  device->path, list, uuid);
		free(list);
	}
	tables_free(&tables);
	return result;
}

/* What stands there as it was written, whether this larder can use it here or not: a device may show less than it has.  NULL: it is damaged. */
static const union superblock *find_whole(const struct superblocks *found)
{
	if (found->chosen)
		return found->chosen->sb;
	if (found->main.magic && superblock_is_whole(found->main.sb))
		return found->main.sb;
	return found->copy.offset && found->copy.magic && superblock_is_whole(found->copy.sb) ? found->copy.sb : NULL;
}

static bool is_understood(const struct larder_sb_head *head)
{
	uint32_t kind = le32toh(head->kind);

	return le32toh(head->version) == LARDER_VERSION && !(le64toh(head->incompat) & ~LARDER_INCOMPAT_OF(kind)) && kind >= LARDER_KIND_CACHE &&
	       kind <= LARDER_KIND_OTHER;
}

int claim_superblock(const struct device *device, const struct superblocks *found, const char *discard_dirty)
{
	const union superblock *sb = find_whole(found);
	char uuid[UUID_TEXT];

	if (!sb)
		return LARDER_DONE; /* damaged beyond use: --wipe is enough */
	if (!is_understood(&sb->head))
		return names_uuid(discard_dirty, sb->head.uuid) ?
			       LARDER_DONE :
			       complain(LARDER_UNSAFE,
					"%s: superblock: is a newer larder's, which alone can say whether dirty data is in it: what there is is LOST "
					"with --discard-dirty %s",
					device->path, uuid_text(sb->head.uuid, uuid));
	if (le32toh(sb->head.kind) == LARDER_KIND_CACHE)
		return judge_cache(device, &sb->cache, discard_dirty);
	if (le32toh(sb->head.kind) != LARDER_KIND_VOLUME || !(le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY) ||
	    names_uuid(discard_dirty, sb->head.uuid))
		return LARDER_DONE;
	return complain(LARDER_UNSAFE,
			"%s: flags: may_be_dirty: the volume's newest data may be in its cache: LOST, with the volume, by "
			"--discard-dirty %s",
			device->path, uuid_text(sb->head.uuid, uuid));
}

/* Whose superblock shows on what lies below its device. */
static const char BEHIND[] = "%s: carries a signature %s behind the device that larder has signed: is the disk, or leg, below that, and left as it is; "
			     "start what it is a part of (drbdadm, mdadm)";

/* The same to who gave it by its path, so that he knows it. */
static const char REPLICA[] =
	"%s: carries a signature %s behind the device that larder has signed: is the disk, or leg, below that; start what it is a part of (drbdadm, mdadm), "
	"and give that; if it is a part of nothing any more: wipefs %s %s first";

int claim_check_replica(const struct device *device, const struct superblocks *found)
{
	struct signature_others others;

	if (!found->chosen || !signature_of_others(device, found->chosen->sb, &others) || !others.behind)
		return LARDER_DONE;
	return complain(LARDER_UNSAFE, REPLICA, device->path, others.type, others.wipefs, device->path);
}

/* sb: what it is known by, with its data; NULL: it has none. */
static bool is_ours(const struct device *device, const struct superblocks *found, const union superblock *sb)
{
	struct signature_others others;
	bool carries = signature_of_others(device, sb, &others);

	if (carries && others.behind)
		remark(BEHIND, device->path, others.type);
	else if (carries)
		remark("%s: carries a signature %s: is somebody else's now, and left as it is; if it is larder's after all: larder super wipe %s", device->path,
		       others.type, device->path);
	else if (superblocks_overwritten(found))
		remark("%s: superblock: overwritten, only its copy is left: is somebody else's now, and left as it is; if it is larder's after all: larder super wipe %s",
		       device->path, device->path);
	else
		return true;
	return false;
}

/* That of a disk that is to become a part of a stack: behind it there is nothing yet. */
static bool is_mark(const struct larder_sb_head *head)
{
	return le32toh(head->kind) == LARDER_KIND_OTHER && !(le32toh(head->flags) & LEG_FLAG);
}

bool claim_is_ours(const struct device *device, const struct superblocks *found)
{
	const union superblock *sb = found->chosen ? found->chosen->sb : NULL;

	return is_ours(device, found, sb && is_mark(&sb->head) ? NULL : sb);
}

bool claim_leg_is_ours(const char *path, bool written)
{
	struct signature_others others;
	struct contents contents;
	struct device device;
	bool foreign;

	if (device_try(&device, path))
		return true;
	if (written)
		md_contents_of(&device, &contents);
	foreign = signature_besides(&device, written ? &contents : NULL, "linux_raid_member", &others);
	device_close(&device);
	if (foreign)
		remark("%s: carries a signature %s beside that of the array: is somebody else's now, and left as it is; if it is not: mdadm --zero-superblock %s", path,
		       others.type, path);
	return !foreign;
}

/* What lies there, if it can be read; type "": nothing of others.  Says nothing. */
static bool read_others(const char *path, struct signature_others *others)
{
	struct superblocks found;
	struct device device;
	bool overwritten;

	*others = (struct signature_others){ 0 };
	if (device_try(&device, path))
		return false;
	superblocks_read(&device, &found, false);
	signature_of_others(&device, found.chosen ? found.chosen->sb : NULL, others);
	overwritten = superblocks_overwritten(&found);
	superblocks_free(&found);
	device_close(&device);
	return *others->type || overwritten;
}

bool claim_is_others(const char *path)
{
	struct signature_others others;

	return read_others(path, &others);
}

bool claim_may_start(const char *path, bool by_path, const char *verb)
{
	struct signature_others others;

	if (!read_others(path, &others) || (by_path && !others.behind))
		return true;
	if (others.behind && by_path)
		remark(REPLICA, path, others.type, others.wipefs, path);
	else if (others.behind)
		remark(BEHIND, path, others.type);
	else if (*others.type)
		remark("%s: carries a signature %s: is somebody else's now, and left as it is; if it is larder's after all: larder %s %s, "
		       "or first wipefs %s %s",
		       path, others.type, verb, path, others.wipefs, path);
	else
		remark("%s: superblock: overwritten, only its copy is left: is somebody else's now, and left as it is; "
		       "if it is larder's after all: larder %s %s",
		       path, verb, path);
	return false;
}

static int open_named(struct device *device, struct superblocks *found, const char *path, enum device_access access, uint32_t kind,
		      const uint8_t uuid[16], const union superblock **sb)
{
	int result = device_open(device, path, access);

	if (result)
		return result;
	superblocks_read(device, found, false);
	*sb = found->chosen ? found->chosen->sb : NULL;
	/* cache_uuid lies at the same place in all kinds; a volume's is not its own */
	if (*sb && le32toh((*sb)->head.kind) == kind &&
	    (!memcmp((*sb)->head.uuid, uuid, 16) || (kind != LARDER_KIND_VOLUME && !memcmp((*sb)->cache.cache_uuid, uuid, 16))))
		return LARDER_DONE;
	superblocks_free(found);
	device_close(device);
	return complain(LARDER_UNSAFE, "%s: uuid: is another device than a moment ago, or damaged; nothing was written to it", path);
}

/* data: there is some behind it, where it is a mark, too. */
static int open_member(struct device *device, struct superblocks *found, const char *path, enum device_access access, uint32_t kind,
		       const uint8_t uuid[16], bool data, bool *ours)
{
	const union superblock *sb;
	int result = open_named(device, found, path, access, kind, uuid, &sb);

	if (result) {
		*ours = false;
		return result;
	}
	*ours = data ? is_ours(device, found, sb) : claim_is_ours(device, found);
	if (*ours)
		return LARDER_DONE;
	superblocks_free(found);
	device_close(device);
	return LARDER_DONE;
}

static int check(const char *path, uint32_t kind, const uint8_t uuid[16], bool data)
{
	struct superblocks found;
	struct device device;
	bool ours;
	int result = open_member(&device, &found, path, DEVICE_READ, kind, uuid, data, &ours);

	if (result || !ours)
		return result ? result : LARDER_UNSAFE;
	superblocks_free(&found);
	device_close(&device);
	return LARDER_DONE;
}

int claim_check(const char *path, uint32_t kind, const uint8_t uuid[16])
{
	return check(path, kind, uuid, false);
}

int claim_check_store(const char *path, const uint8_t uuid[16])
{
	return check(path, LARDER_KIND_OTHER, uuid, true);
}

static int take(struct device *device, struct superblocks *found, const char *path, uint32_t kind, const uint8_t uuid[16], bool data, bool *ours)
{
	/* first by looking: its new owner may have it in use */
	int result = open_member(device, found, path, DEVICE_READ, kind, uuid, data, ours);

	if (result || !*ours)
		return result;
	superblocks_free(found);
	device_close(device);
	return open_member(device, found, path, DEVICE_CLAIM, kind, uuid, data, ours);
}

int claim_member(struct device *device, struct superblocks *found, const char *path, uint32_t kind, const uint8_t uuid[16], bool *ours)
{
	return take(device, found, path, kind, uuid, false, ours);
}

int claim_change(const char *path, uint32_t kind, const uint8_t uuid[16], int (*change)(union superblock *sb, bool *write, void *data), void *data, bool *ours)
{
	struct superblocks found;
	struct device device;
	int result = claim_member(&device, &found, path, kind, uuid, ours);

	if (result || !*ours)
		return result;
	superblocks_free(&found);
	result = superblock_change(&device, change, data);
	device_close(&device);
	return result;
}

int claim_store(struct device *device, struct superblocks *found, const char *path, const uint8_t uuid[16], bool *ours)
{
	return take(device, found, path, LARDER_KIND_OTHER, uuid, true, ours);
}

struct sight {
	struct sight *next;
	char *path;
	bool block;
	dev_t device; /* of a file: that it is on */
	ino_t inode;
	uint64_t bytes, sequence; /* sequence 0: not known */
};

/* All that this process has looked at. */
static struct sight *sights;

static struct sight look(const struct device *device)
{
	struct sight now = { .block = device->block, .bytes = device->bytes };
	struct stat status;

	if (fstat(device->fd, &status))
		return now;
	now.device = device->block ? status.st_rdev : status.st_dev;
	now.inode = device->block ? 0 : status.st_ino;
#ifdef BLKGETDISKSEQ
	if (device->block && ioctl(device->fd, BLKGETDISKSEQ, &now.sequence))
		now.sequence = 0;
#endif
	return now;
}

/* NULL: of this path there was none yet. */
static const struct sight *first_sight(const struct device *device)
{
	const struct sight *s = sights;

	while (s && strcmp(s->path, device->path))
		s = s->next;
	return s;
}

static void remember(const struct device *device)
{
	struct sight *s = must_allocate(malloc(sizeof(*s)));

	*s = look(device);
	s->path = must_print("%s", device->path);
	s->next = sights;
	sights = s;
}

static int check_same(const struct device *device)
{
	const struct sight *s = first_sight(device);
	struct sight now;

	if (!s) {
		remember(device);
		return LARDER_DONE;
	}
	now = look(device);
	if (s->block == now.block && s->device == now.device && s->inode == now.inode && s->bytes == now.bytes && s->sequence == now.sequence)
		return LARDER_DONE;
	return complain(LARDER_UNSAFE, "%s: is another device now, or of another size, than when it was looked at; begin anew, and see what it is",
			device->path);
}

void claim_note(const char *path)
{
	struct device device;

	if (device_try(&device, path))
		return;
	if (!first_sight(&device))
		remember(&device);
	device_close(&device);
}

static int check_fitness(const struct device *device)
{
	if (device->read_only)
		return complain(LARDER_FAILED, "%s: is read-only; see blockdev --setrw", device->path);
	if (device->zoned)
		return complain(LARDER_FAILED, "%s: is zoned, which larder cannot use; give another device", device->path);
	return LARDER_DONE;
}

static char *describe(const struct superblocks *found)
{
	const union superblock *sb = superblocks_best(found);
	char label[LARDER_LABEL_SIZE + 1], uuid[UUID_TEXT];

	return must_print("larder %s superblock%s, label %s, UUID %s", kind_text(le32toh(sb->head.kind)),
			  found->chosen ? "" : " (damaged)", label_text(sb->cache.label, label), uuid_text(sb->head.uuid, uuid));
}

int claim_confirm(const struct device *device, const char *what, const struct claim_request *request)
{
	if (request->yes || request->dry_run || !isatty(STDIN_FILENO))
		return LARDER_DONE;
	fprintf(stderr, "%s: %s\n", device->path, what);
	if (answer_is_yes("Wipe it?  All on it will be lost."))
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: left as it is", device->path);
}

/* All of them: what was data of a log is a signature once the superblock is gone. */
static int wipe_signatures(const struct device *device)
{
	struct signatures all = { 0 };
	int result = signatures_find(device, NULL, &all);

	if (!result && all.number)
		result = signatures_wipe(device);
	signatures_free(&all);
	return result;
}

static int wipe(const struct device *device, const struct superblocks *found, const char *what, const struct claim_request *request)
{
	int error, result;

	if (request->dry_run) {
		printf("wipe %s: %s\n", device->path, what);
		return LARDER_DONE;
	}
	if (superblocks_any(found)) {
		error = superblocks_erase(device, found);
		if (error)
			return complain(LARDER_FAILED, "%s: cannot overwrite the superblock: %s", device->path, strerror(-error));
	}
	result = wipe_signatures(device);
	if (!result)
		printf("wiped %s: %s\n", device->path, what);
	return result;
}

/* *what: it carries, and may go, as text for the caller to free; NULL: nothing. */
static int judge(const struct device *device, const struct superblocks *found, const struct claim_request *request, char **what)
{
	struct signatures foreign = { 0 };
	struct contents contents;
	char *ours, *line;
	/* a copy alone is what is left of it where another has written since */
	bool stand = superblocks_stand(found), nothing = request->stale ? found->chosen == &found->main : !superblocks_any(found);
	int result;

	*what = NULL;
	if (stand)
		superblock_contents(found->chosen->sb, &contents);
	result = signatures_find(device, stand ? &contents : NULL, &foreign);
	/* what lies at the end hinders no start, and may be somebody's all the same: it goes with --wipe only */
	line = signatures_line(&foreign, SIGNATURES_ALL & ~(1u << SIGNATURE_DATA));
	signatures_free(&foreign);
	if (result || (!*line && nothing)) {
		free(line);
		return result;
	}
	ours = superblocks_any(found) ? describe(found) : must_print("%s", "");
	*what = must_print("%s%s%s", ours, *ours && *line ? "; " : "", line);
	free(ours);
	free(line);
	if (request->judged)
		return LARDER_DONE;
	if (!request->wipe)
		result = complain(LARDER_UNSAFE, "%s: carries %s; --wipe overwrites it", device->path, *what);
	result = result || request->stale ? result : claim_superblock(device, found, request->discard_dirty);
	return result ? result : claim_confirm(device, *what, request);
}

int claim_open(struct device *device, const struct claim_request *request)
{
	int result = device_open(device, request->path, request->dry_run ? DEVICE_EXAMINE : DEVICE_CLAIM);

	if (result)
		return result;
	result = check_fitness(device);
	result = result ? result : check_same(device);
	if (result)
		device_close(device);
	return result;
}

int claim_judge(const struct device *device, const struct claim_request *request)
{
	struct superblocks found;
	char *what;
	int result;

	superblocks_read(device, &found, true);
	result = judge(device, &found, request, &what);
	free(what);
	superblocks_free(&found);
	return result;
}

int claim_clear(const struct device *device, const struct claim_request *request)
{
	struct superblocks found;
	char *what;
	int result;

	superblocks_read(device, &found, true);
	result = judge(device, &found, request, &what);
	if (!result && what)
		result = wipe(device, &found, what, request);
	free(what);
	superblocks_free(&found);
	return result;
}
