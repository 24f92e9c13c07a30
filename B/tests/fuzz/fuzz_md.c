// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what lib/md.c and lib/md_leg.c read: md's superblock, of any disk, and the texts of md in sysfs.  Input: a byte (bit 0: sysfs, else the
 * superblocks of four disks of an array).  Of these edits follow: two bytes of offset, one whose low three bits are the length less one, the next two the disk, and so many
 * bytes.  Of sysfs texts, each ended by a NUL: what each file that is read has, in turn, names of the directory among them.  Aborts where a disk is taken for one of another
 * array, or a place is none, or one that lacks something becomes a disk of an array, or counts as whole.
 */
#include <dirent.h>
#include <endian.h>
#include <linux/types.h>
#include <linux/raid/md_p.h>

#include "sysfs_texts.h"

/* The directory of an array, and of what holds a disk. */
static struct dirent *next_entry(void);
#define opendir(path)  ((DIR *)(path))
#define readdir(dir)   ((void)(dir), next_entry())
#define closedir(dir)  ((void)(dir))
#include "../../lib/md.c"

#define DISKS 4
#define ROLES_AT (sizeof(struct mdp_superblock_1) / 2) /* in words */
#define NR_ROLES (MD_SUPER_BYTES / 2 - ROLES_AT)

static union {
	struct mdp_superblock_1 sb;
	uint8_t bytes[MD_SUPER_BYTES];
	uint16_t words[MD_SUPER_BYTES / 2];
} on_disk[DISKS];

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
	if (path[0] < '0' || path[0] >= '0' + DISKS)
		return -ENOENT;
	device->number = makedev(8, path[0] - '0');
	return 0;
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
	must(device->block && offset == MD_OFFSET && bytes == MD_SUPER_BYTES, "where the superblock is");
	memcpy(buffer, &on_disk[minor(device->number)], bytes);
	return 0;
}

int device_sync(const struct device *device)
{
	return device->block ? 0 : -EIO;
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

bool device_is_read_only(dev_t number)
{
	return number % 5 == 4;
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
	for (unsigned i = 0; i < DISKS; i++) {
		struct mdp_superblock_1 *sb = &on_disk[i].sb;

		sb->magic = htole32(MD_SB_MAGIC);
		sb->major_version = htole32(1);
		sb->level = htole32(5);
		sb->raid_disks = htole32(DISKS);
		sb->dev_number = htole32(i);
		sb->events = htole64(7);
		sb->resync_offset = htole64(UINT64_MAX);
		sb->max_dev = htole32(128);
		memcpy(sb->set_uuid, uuid, 16);
		memcpy(sb->device_uuid, "the disk's UUID", 16);
		sb->device_uuid[15] = (uint8_t)i;
		for (unsigned k = 0; k < NR_ROLES; k++)
			on_disk[i].words[ROLES_AT + k] = htole16(k < DISKS ? k : MD_DISK_ROLE_SPARE);
	}
}

static void edit(const uint8_t *data, size_t size)
{
	sample();
	while (size > 3) {
		size_t at = (size_t)(data[0] | data[1] << 8) % MD_SUPER_BYTES, n = (data[2] & 7) + 1u;

		/* three of four are in front of the roles, or are the first ones */
		at = data[2] >> 6 ? at % 288 : at;
		n = n < size - 3 ? n : size - 3;
		memcpy(on_disk[data[2] >> 3 & 3].bytes + at, data + 3, n < MD_SUPER_BYTES - at ? n : MD_SUPER_BYTES - at);
		data += 3 + n;
		size -= 3 + n;
	}
}

/* Places that have a disk, by the superblock of this one. */
static uint64_t places_in_table(unsigned disk)
{
	unsigned number = le32toh(on_disk[disk].sb.max_dev);
	uint64_t places = 0;

	for (unsigned i = 0; i < number && i < NR_ROLES; i++) {
		unsigned place = le16toh(on_disk[disk].words[ROLES_AT + i]);

		places |= place < MD_PLACES_MAX ? UINT64_C(1) << place : 0;
	}
	return places;
}

/* Of this array, and what it says? */
static bool check_disk(unsigned i, struct md_leg *leg)
{
	const struct mdp_superblock_1 *sb = &on_disk[i].sb;
	const char path[] = { (char)('0' + i), 0 };
	bool same = sb->magic == htole32(MD_SB_MAGIC) && sb->major_version == htole32(1) && !memcmp(sb->set_uuid, uuid, 16), readable;
	uint32_t number = le32toh(sb->dev_number);
	uint8_t own[16];
	dev_t device;

	must(md_is_leg(path, uuid, &readable) == same && readable, "a disk of this array");
	must(is_leg(path, uuid, false, &device, &readable, leg) == same && device == makedev(8, i), "the same disk");
	must(!md_leg_settled(path, uuid) || same, "settled in this array");
	if (!same)
		return false;
	must(md_leg_uuid(path, own) && !memcmp(own, sb->device_uuid, 16) && !memcmp(own, leg->own, 16), "its own UUID");
	must(leg->places == le32toh(sb->raid_disks) && leg->events == le64toh(sb->events), "so many places, so many events");
	must(leg->place >= MD_ROLE_NONE && leg->place < MD_PLACES_MAX, "a place");
	must(leg->place < 0 || (number < NR_ROLES && le16toh(on_disk[i].words[ROLES_AT + number]) == leg->place), "its own place");
	must(leg->holds == places_in_table(i), "places that have a disk");
	must(!leg->numbers || leg->holds, "disks that have a place");
	must(leg->place < 0 || leg->holds >> leg->place & 1, "it has its own place itself");
	must(md_leg_settled(path, uuid) == (leg->place >= 0 && !(le32toh(sb->feature_map) & (MD_FEATURE_RECOVERY_OFFSET | MD_FEATURE_REPLACEMENT))), "settled in a place");
	return true;
}

static void check_rest(const struct md_leg *legs, size_t number)
{
	uint64_t newest = 0;
	size_t first = number;
	bool dirty = false;
	struct md_rest rest;

	md_rest(legs, number, &rest);
	for (size_t i = 0; i < number; i++)
		newest = legs[i].events > newest ? legs[i].events : newest;
	for (size_t i = 0; i < number; i++) {
		const struct md_leg *leg = &legs[i];
		bool fresh = rest.fresh >> i & 1;

		must(!fresh || (leg->place >= 0 && !leg->partial && newest - leg->events <= 1), "a disk that is whole, and as new as the newest");
		first = first == number && leg->events == newest ? i : first;
		must(i != first || fresh || leg->place < 0 || leg->partial || !(rest.alike >> i & 1), "the newest disk");
		must(!fresh || rest.alike >> i & 1, "of the shape that is chosen");
		must(!(rest.torn >> i & 1) || (newest - leg->events <= 1 && !(rest.alike >> i & 1)), "of the same state, and another shape");
		for (size_t k = 0; k < number; k++)
			must((~rest.alike >> i | ~rest.alike >> k) & 1 || (legs[k].places == leg->places && legs[k].level == leg->level), "of one shape");
		dirty |= newest - leg->events <= 1 && leg->dirty;
	}
	must(number >= 64 || !((rest.fresh | rest.alike | rest.torn) >> number), "a disk that is here");
	must(!rest.mirror_torn || (rest.torn && rest.fresh), "a mirror that can start");
	must(rest.missing <= rest.places && rest.places - rest.missing <= number, "so many places");
	must(!rest.write_hole || (dirty && rest.missing >= 1 && rest.missing <= 2), "parity that may be wrong");
}

/* The last one returns to an array of the others. */
static void check_return(const struct md_leg *legs, size_t number)
{
	const struct md_leg *back = &legs[number - 1];
	struct md_array array = { .number = number - 1 };
	struct md_disks disks = { .number = number - 1, .places = number > 1 ? legs[0].places : 0 };
	enum md_return verdict;
	struct md_now now;

	for (size_t i = 0; i < number - 1; i++) {
		array.leg_number[i] = disks.disk[i].number = makedev(8, i);
		array.super[i] = legs[i];
		disks.disk[i].place = legs[i].place < 0 ? -1 : legs[i].place;
		disks.disk[i].role = legs[i].place < 0 ? MD_SPARE : legs[i].partial ? MD_REBUILT : MD_MEMBER;
	}
	md_now(&array, &disks, &now);
	must(!(now.whole & ~now.held), "what is whole is held");
	verdict = md_return(back, &now);
	must(!md_return_reason(verdict) == (verdict == MD_RETURN_TAKE || verdict == MD_RETURN_UNNEEDED), "why it is left");
	if (verdict != MD_RETURN_TAKE)
		return;
	must(back->level == now.level && !back->reshaped, "the same level");
	must(back->places == now.places || back->level == 1, "the same shape, or a mirror");
	must(back->place == MD_ROLE_SPARE || back->places != now.places || (back->place >= 0 && !md_held(&disks, back->place) && (uint32_t)back->place < now.places), "a place that is free");
	for (size_t i = 0; i < number - 1; i++)
		if (disks.disk[i].role == MD_MEMBER && back->places == now.places)
			must(back->holds >> legs[i].place & 1, "it knows each disk of it");
		else if (disks.disk[i].role == MD_MEMBER)
			must(legs[i].number < MD_PLACES_MAX && back->numbers >> legs[i].number & 1, "it knows each disk of it, wherever that was");
	must(back->events <= now.events, "it has nothing that the array has not");
}

static void try_super(const uint8_t *data, size_t size)
{
	struct md_leg legs[DISKS];
	size_t number = 0;
	bool readable;

	edit(data, size);
	for (unsigned i = 0; i < DISKS; i++)
		number += check_disk(i, &legs[number]);
	must(!md_is_leg("none", uuid, &readable) && !readable, "a disk that is not there");
	check_rest(legs, number);
	for (size_t i = 0; i < number; i++)
		for (size_t k = 0; k < number; k++)
			must(!md_return_before(&legs[i], &legs[k]) || !md_return_before(&legs[k], &legs[i]), "one of them is first");
	if (number)
		check_return(legs, number);
}

static bool is_being_taken(const struct md_disks *disks, int place)
{
	for (size_t i = 0; i < disks->number; i++)
		if (disks->disk[i].role == MD_REBUILT && disks->disk[i].place == place)
			return true;
	return false;
}

static void try_sysfs(const uint8_t *data, size_t size)
{
	struct md_array array = { 0 };
	struct md_disks disks;
	struct md_now now_is;
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
			must(d->role != MD_COPIED || is_being_taken(&disks, d->place), "a disk that takes its place");
			array.leg_number[array.number] = d->number;
			array.super[array.number++] = (struct md_leg){ .events = i };
		}
		md_now(&array, &disks, &now_is);
		must(!(now_is.whole & ~now_is.held) && now_is.places == disks.places && now_is.events <= MD_LEGS_MAX, "an array that runs");
		for (int place = 0; place < MD_LEGS_MAX; place++)
			must((now_is.held >> place & 1) == md_held(&disks, place), "a place that is held");
		for (size_t i = 0; i < array.number; i++)
			must(md_has(&disks, &array, i) == !!array.leg_number[i], "a disk that it has");
	}
	texts = data;
	texts_size = size;
	find_node(makedev(8, 1), &array);
	must(strnlen(array.inactive, sizeof(array.inactive)) < sizeof(array.inactive), "what holds them");
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
