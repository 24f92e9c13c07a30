// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what lib/md.c reads: md's superblock, of any disk, and the texts of md in sysfs.  Input: a byte (bit 0: sysfs, else the superblock).
 * Of a superblock edits follow: two bytes of offset, one whose low three bits are the length less one, and so many bytes.  Of sysfs texts, each ended by a NUL: what
 * each file that is read has, in turn, names of the directory among them.  Aborts where a disk is taken for one of another array, or a place is none.
 */
#include <dirent.h>

#include "input.h"

/* The directory of an array, and of what holds a disk. */
static struct dirent *next_entry(void);
#define opendir(path)  ((DIR *)(path))
#define readdir(dir)   ((void)(dir), next_entry())
#define closedir(dir)  ((void)(dir))
#include "../../lib/md.c"

static const uint8_t *texts;
static size_t texts_size;
static struct md_super on_disk;

static struct dirent *next_entry(void)
{
	static struct dirent entry;
	char *name;

	if (!texts_size)
		return NULL;
	name = input_next(&texts, &texts_size);
	snprintf(entry.d_name, sizeof(entry.d_name), "%.*s", (int)strcspn(name, "/"), name);
	free(name);
	return &entry;
}

/* ------------------------------------------------------------------ lib/device.c */

int device_try(struct device *device, const char *path)
{
	*device = (struct device){ .block = true };
	return strcmp(path, "disk") ? -ENOENT : 0;
}

void device_close(struct device *device)
{
	*device = (struct device){ 0 };
}

void *device_buffer(size_t bytes)
{
	return calloc(1, bytes);
}

int device_read(const struct device *device, uint64_t offset, void *buffer, size_t bytes)
{
	must(device->block && offset == MD_OFFSET && bytes == sizeof(on_disk), "where the superblock is");
	memcpy(buffer, &on_disk, bytes);
	return 0;
}

int device_sync(const struct device *device)
{
	return device->block ? 0 : -EIO;
}

bool device_attribute(dev_t number, const char *name, char *text, size_t size)
{
	char *next;
	bool there = texts_size;

	must(number || *name, "a device");
	next = input_next(&texts, &texts_size);
	if (there)
		snprintf(text, size, "%s", next);
	free(next);
	return there;
}

int device_set_attribute(dev_t number, const char *name, const char *text)
{
	return number || *name || *text ? 0 : EINVAL;
}

bool device_node(dev_t number, char *text, size_t size)
{
	snprintf(text, size, "/dev/%llu", (unsigned long long)number);
	return number % 3;
}

bool device_worth_reading(dev_t number)
{
	return number;
}

bool device_is_below(dev_t below, dev_t above)
{
	return below > above;
}

int program_run(const char *const *words, char **said)
{
	must(false, words[0]);
	*said = NULL;
	return 1;
}

/* ------------------------------------------------------------------ the two */

static const uint8_t uuid[16] = "an array's UUID";

static void sample(void)
{
	memset(&on_disk, 0, sizeof(on_disk));
	on_disk.magic = htole32(MD_MAGIC);
	on_disk.version = htole32(1);
	memcpy(on_disk.uuid, uuid, 16);
	memcpy(on_disk.own, "the disk's UUID", 16);
	on_disk.places = htole32(4);
	on_disk.number = htole32(2);
	for (unsigned i = 0; i < sizeof(on_disk.roles) / sizeof(on_disk.roles[0]); i++)
		on_disk.roles[i] = htole16(i < 4 ? i : 0xffff);
}

static void try_super(const uint8_t *data, size_t size)
{
	uint8_t *p = (uint8_t *)&on_disk, own[16];
	bool readable, same;
	uint32_t places;
	dev_t number;

	sample();
	while (size > 3) {
		size_t at = (size_t)(data[0] | data[1] << 8) % sizeof(on_disk), n = (data[2] & 7) + 1u;

		/* three of four are in front of the roles, or are the first ones */
		at = data[2] >> 6 ? at % 288 : at;
		n = n < size - 3 ? n : size - 3;
		memcpy(p + at, data + 3, n < sizeof(on_disk) - at ? n : sizeof(on_disk) - at);
		data += 3 + n;
		size -= 3 + n;
	}
	same = on_disk.magic == htole32(MD_MAGIC) && on_disk.version == htole32(1) && !memcmp(on_disk.uuid, uuid, 16);
	must(md_is_leg("disk", uuid, &readable) == same && readable, "a disk of this array");
	must(is_leg("disk", uuid, &number, &places, &readable) == same && (same || !places), "so many places");
	must(!md_leg_settled("disk", uuid) || same, "settled in this array");
	if (md_leg_settled("disk", uuid))
		must(!(le32toh(on_disk.features) & MD_PARTIAL) && le32toh(on_disk.number) < MD_PLACES_MAX &&
			     le16toh(on_disk.roles[le32toh(on_disk.number)]) <= MD_ROLE_MAX,
		     "settled in a place");
	must(!same || md_leg_uuid("disk", own), "its own UUID");
	must(!md_is_leg("none", uuid, &readable) && !readable, "a disk that is not there");
}

static void try_sysfs(const uint8_t *data, size_t size)
{
	struct md_array array = { 0 };
	struct md_disks disks;
	unsigned missing;
	uint64_t now, room;
	dev_t device = makedev(9, 1);

	texts = data;
	texts_size = size;
	if (md_disks(device, &disks)) {
		must(disks.number <= MD_LEGS_MAX && disks.missing <= disks.places && disks.percent <= 100, "so many disks, and of a hundred");
		for (size_t i = 0; i < disks.number; i++) {
			const struct md_disk *d = &disks.disk[i];

			must(strnlen(d->name, sizeof(d->name)) < sizeof(d->name), "its name");
			must(d->role <= MD_FAILED && d->place >= -1, "its place");
			must(d->place < 0 || d->role == MD_FAILED || md_held(&disks, d->place), "its place is held");
		}
	}
	texts = data;
	texts_size = size;
	find_node(makedev(8, 1), &array);
	must(strnlen(array.node, sizeof(array.node)) < sizeof(array.node) && !*array.node == !array.device, "a node");
	texts = data;
	texts_size = size;
	must(strstr(" active degraded failed resyncing scrubbing ", md_state(device, &missing)) && missing <= 64, "a state");
	if (md_leg_room(device, &now, &room))
		must(room >= now, "as much as it takes is there");
	md_read_errors(device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] & 1)
		try_sysfs(data + 1, size - 1);
	else
		try_super(data + 1, size - 1);
	return 0;
}
