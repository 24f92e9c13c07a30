// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Extents of a file by FS_IOC_FIEMAP (file_extents.h).
 *
 * What the filesystem calls the address of an extent is one of its device only where that is known: ext2 to ext4, and XFS but for its realtime device; others
 * are refused.  btrfs has addresses of its own; its chunk tree says where they are.
 *
 * Flags of an extent, after FIEMAP_FLAG_SYNC:
 *	UNWRITTEN	has its place, and what is written goes there: it counts, but there is nothing to be read
 *	SHARED		counts: it is where the file's data are, until it is written to
 *	DELALLOC, UNKNOWN	was written meanwhile, and has no place: asked again, then left out, as is all that is written later
 *	DATA_INLINE, DATA_TAIL	lies in a block of metadata beside others': refused
 *	ENCODED		compressed: its length on disk is not told: refused
 *	NOT_ALIGNED	only beside those; of others refused
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "file_extents.h"
#include "message.h"

#define XFS_MAGIC   0x58465342 /* "XFSB"; <linux/magic.h> of Debian 12 lacks it */
#define SECTOR	    512u
#define AT_A_TIME   256u /* extents of one call */
#define TRIES	    4 /* of a file that is being written */
#define PAUSE_US    50000u
#define PROFILES    (BTRFS_BLOCK_GROUP_PROFILE_MASK)

const char *file_extent_take(struct file_extents *extents, const struct fiemap_extent *extent, const struct btrfs_place *places, size_t number)
{
	uint64_t at = extent->fe_physical, end = at + extent->fe_length;

	if (extent->fe_flags & (FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL))
		return "is so small that it lies inside of the filesystem's metadata; a rule metadata:pin-P of the option class pins that";
	if (extent->fe_flags & FIEMAP_EXTENT_ENCODED)
		return "is compressed: the filesystem does not tell how long its pieces are on disk; write it anew without compression";
	if (extent->fe_flags & (FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN)) {
		extents->unplaced++;
		return NULL;
	}
	if (end < at || at % SECTOR || extent->fe_length % SECTOR)
		return "has an extent that does not lie at sectors";
	while (at < end) {
		uint64_t physical = at, stop = end;

		if (places) {
			size_t i = 0;

			while (i < number && (at < places[i].logical || at - places[i].logical >= places[i].length))
				i++;
			if (i == number)
				return "has been moved meanwhile by btrfs; try again";
			if (places[i].profile)
				return places[i].profile;
			physical = places[i].physical + (at - places[i].logical);
			if (stop - places[i].logical > places[i].length)
				stop = places[i].logical + places[i].length;
		}
		ranges_add(&extents->all, physical / SECTOR, (physical + (stop - at)) / SECTOR);
		if (!(extent->fe_flags & FIEMAP_EXTENT_UNWRITTEN))
			ranges_add(&extents->written, physical / SECTOR, (physical + (stop - at)) / SECTOR);
		at = stop;
	}
	extents->shared += !!(extent->fe_flags & FIEMAP_EXTENT_SHARED);
	return NULL;
}

/* ------------------------------------------------------------------ btrfs */

struct btrfs_map {
	struct btrfs_place *place;
	size_t number;
};

static void take_chunk(struct btrfs_map *map, uint64_t logical, const struct btrfs_chunk *chunk)
{
	struct btrfs_place place = {
		.logical = logical, .length = le64toh(chunk->length), .physical = le64toh(chunk->stripe.offset),
		.profile = le64toh(chunk->type) & PROFILES || le16toh(chunk->num_stripes) != 1 ?
				   "is kept by btrfs in more than one place (profile dup, or RAID); only the profile single can be followed" :
				   NULL,
	};

	map->place = must_allocate(realloc(map->place, (map->number + 1) * sizeof(place)));
	map->place[map->number++] = place;
}

/* The items of one answer; *next: the offset behind the last one. */
static void take_items(struct btrfs_map *map, const struct btrfs_ioctl_search_args *args, uint64_t *next)
{
	size_t at = 0;

	for (uint32_t i = 0; i < args->key.nr_items; i++) {
		struct btrfs_ioctl_search_header header;
		struct btrfs_chunk chunk;

		memcpy(&header, args->buf + at, sizeof(header));
		at += sizeof(header);
		if (header.type == BTRFS_CHUNK_ITEM_KEY && header.len >= sizeof(chunk)) {
			memcpy(&chunk, args->buf + at, sizeof(chunk));
			take_chunk(map, header.offset, &chunk);
		}
		at += header.len;
		*next = header.offset + 1;
	}
}

static int read_chunks(const char *path, int fd, struct btrfs_map *map)
{
	struct btrfs_ioctl_search_args *args = must_allocate(malloc(sizeof(*args)));
	uint64_t next = 0;
	int result = LARDER_DONE;

	do {
		memset(args, 0, sizeof(*args));
		args->key = (struct btrfs_ioctl_search_key){
			.tree_id = BTRFS_CHUNK_TREE_OBJECTID,
			.min_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID, .max_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
			.min_type = BTRFS_CHUNK_ITEM_KEY, .max_type = BTRFS_CHUNK_ITEM_KEY,
			.min_offset = next, .max_offset = UINT64_MAX, .max_transid = UINT64_MAX, .nr_items = UINT32_MAX,
		};
		if (ioctl(fd, BTRFS_IOC_TREE_SEARCH, args))
			result = complain(LARDER_FAILED, "%s: the chunks of its btrfs cannot be read: %s", path, strerror(errno));
		else
			take_items(map, args, &next);
	} while (!result && args->key.nr_items);
	free(args);
	return result;
}

/* The one device of a btrfs; a file's st_dev is that of its subvolume.  Returns what is wrong, or NULL. */
static const char *btrfs_device(int fd, dev_t *device)
{
	struct btrfs_ioctl_fs_info_args fs = { 0 };
	struct btrfs_ioctl_dev_info_args dev = { 0 };
	struct stat status;

	if (ioctl(fd, BTRFS_IOC_FS_INFO, &fs))
		return "lies on a btrfs that does not tell its devices";
	if (fs.num_devices != 1)
		return "lies on a btrfs of several devices; on one it can be followed";
	for (dev.devid = 0; dev.devid <= fs.max_id && ioctl(fd, BTRFS_IOC_DEV_INFO, &dev); dev.devid++)
		;
	if (dev.devid > fs.max_id || stat((const char *)dev.path, &status) || !S_ISBLK(status.st_mode))
		return "lies on a btrfs whose device cannot be found";
	*device = status.st_rdev;
	return NULL;
}

/* ------------------------------------------------------------------ the file */

int file_open(int root, const char *name)
{
	struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};

	return root < 0 ? open(name, (int)how.flags) : (int)syscall(SYS_openat2, root, name, &how, sizeof(how));
}

static bool is_btrfs(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == BTRFS_SUPER_MAGIC;
}

static const char *find_device(int fd, dev_t *device)
{
	struct fsxattr attributes;
	struct statfs fs;
	struct stat status;

	if (fstat(fd, &status) || fstatfs(fd, &fs))
		return "cannot be looked at";
	*device = status.st_dev;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
		return NULL;
	case XFS_MAGIC:
		return !ioctl(fd, FS_IOC_FSGETXATTR, &attributes) && attributes.fsx_xflags & FS_XFLAG_REALTIME ?
			       "lies on the realtime device of its XFS, which cannot be followed" :
			       NULL;
	case BTRFS_SUPER_MAGIC:
		return btrfs_device(fd, device);
	default:
		return "is in a filesystem of which it is not known where files are; ext4, XFS and btrfs can be followed";
	}
}

int file_device(const char *what, int fd, dev_t *device)
{
	const char *why = find_device(fd, device);

	if (why && what)
		complain(LARDER_FAILED, "%s: %s", what, why);
	return why ? LARDER_FAILED : LARDER_DONE;
}

static int ask(const char *path, int fd, struct file_extents *extents, const struct btrfs_map *map)
{
	struct fiemap *fiemap = must_allocate(malloc(sizeof(*fiemap) + AT_A_TIME * sizeof(struct fiemap_extent)));
	const char *why = NULL;
	uint64_t next = 0;
	bool last = false;
	int result = LARDER_DONE;

	while (!result && !last) {
		memset(fiemap, 0, sizeof(*fiemap) + AT_A_TIME * sizeof(struct fiemap_extent));
		*fiemap = (struct fiemap){ .fm_start = next, .fm_length = FIEMAP_MAX_OFFSET - next, .fm_flags = FIEMAP_FLAG_SYNC, .fm_extent_count = AT_A_TIME };
		if (ioctl(fd, FS_IOC_FIEMAP, fiemap)) {
			result = complain(LARDER_FAILED, "%s: its filesystem does not say where it is (FIEMAP): %s", path, strerror(errno));
			break;
		}
		for (uint32_t i = 0; i < fiemap->fm_mapped_extents && !why; i++) {
			const struct fiemap_extent *e = &fiemap->fm_extents[i];

			why = file_extent_take(extents, e, map->place, map->number);
			last |= !!(e->fe_flags & FIEMAP_EXTENT_LAST);
			next = e->fe_logical + e->fe_length;
		}
		last |= !fiemap->fm_mapped_extents;
		if (why)
			result = complain(LARDER_FAILED, "%s: %s", path, why);
	}
	free(fiemap);
	return result;
}

/* Whoever appends to it all the time has always written something since. */
static int ask_again(const char *path, int fd, struct file_extents *extents, const struct btrfs_map *map)
{
	int result = ask(path, fd, extents, map);

	for (int i = 1; !result && extents->unplaced && i < TRIES; i++) {
		usleep(PAUSE_US);
		file_extents_free(extents);
		extents->shared = extents->unplaced = 0;
		result = ask(path, fd, extents, map);
	}
	return result;
}

int file_extents_read(const char *what, int fd, struct file_extents *extents)
{
	struct btrfs_map map = { 0 };
	struct stat status;
	int result;

	*extents = (struct file_extents){ 0 };
	if (fstat(fd, &status) || !S_ISREG(status.st_mode))
		return complain(LARDER_USAGE, "%s: is no regular file; name files", what);
	result = file_device(what, fd, &extents->device);
	if (!result && is_btrfs(fd))
		result = read_chunks(what, fd, &map);
	result = result ? result : ask_again(what, fd, extents, &map);
	free(map.place);
	ranges_join(&extents->all);
	ranges_join(&extents->written);
	if (!result && !extents->all.number)
		result = complain(LARDER_FAILED, "%s: %s", what,
				  extents->unplaced ? "is being written, and has no place on the disk yet; try again" : "has no data on disk");
	if (result)
		file_extents_free(extents);
	return result;
}

void file_extents_free(struct file_extents *extents)
{
	ranges_free(&extents->all);
	ranges_free(&extents->written);
}
