// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A pass, of daemon/assembly.c and daemon/facts.c with daemon/plan.c, with a clock, a udev and a kernel of our own: a volume, and the SSD of its cache, which udev is
 * through with later, or never; a disk that its array has had, and a copy of it; a disk that cannot be
 * opened.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <endian.h>
#include <libudev.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t now; /* microseconds */
static bool udev_there, queue;

static int our_clock(clockid_t clock, struct timespec *time)
{
	*time = (struct timespec){ (time_t)(now / 1000000), (long)(now % 1000000) * 1000 };
	return 0;
}

static int our_sleep(unsigned us)
{
	now += us;
	return 0;
}

static int our_access(const char *path, int mode)
{
	return (!strcmp(path, "/run/udev/control") && udev_there) || (!strcmp(path, "/run/udev/queue") && queue) ? 0 : -1;
}

#define clock_gettime our_clock
#define usleep our_sleep
#define access our_access
#include "../../daemon/facts.c"
#include "../../daemon/assembly.c"
#undef access

#include "check.h"

#define S UINT64_C(1000000)
#define NEVER UINT64_MAX

struct udev_device {
	const char *node, *size, *own, *wwid; /* of a disk of an array its UUID */
	uint32_t kind;
	uint64_t here, done, gone; /* when the kernel has it, udev is through with it, and it goes */
};

enum { VOLUME, SSD, OTHER, LEG_A, LEG_B, LEG_C, DEVICES };
#define IN_ARRAY(leg) (1u << (leg))
static unsigned array; /* of its disks those that md has */
static uint64_t sequences[DEVICES]; /* 0: it is not here */
static struct udev_device devices[DEVICES];
static struct member made[DEVICES];
static struct assembly_memory memory;
static uint64_t started; /* when the volume was; 0: it was not */
static bool with_cache; /* then with this */
static char started_what[128], said[4096];
static unsigned looks_taken;
static uint64_t silent_from, silent_to; /* the SSD cannot be opened */
static double kept_silent; /* it is not asked until then, seconds */
static bool silent, others_hang;
static unsigned asked;
static bool under_writes; /* a disk that returns left so, with a volatile cache */
static struct larder_table table;

/* ------------------------------------------------------------------ udev */

struct udev *udev_new(void)
{
	return (struct udev *)devices;
}

struct udev *udev_unref(struct udev *udev)
{
	return NULL;
}

struct udev_device *udev_device_new_from_devnum(struct udev *udev, char type, dev_t number)
{
	return &devices[number - 1];
}

dev_t udev_device_get_devnum(struct udev_device *device)
{
	return (dev_t)(device - devices) + 1;
}

/* Of the disks of arrays that are here: an entry is the place in the list, behind 0. */
struct udev_enumerate *udev_enumerate_new(struct udev *udev)
{
	return (struct udev_enumerate *)devices;
}

struct udev_enumerate *udev_enumerate_unref(struct udev_enumerate *all)
{
	return NULL;
}

int udev_enumerate_add_match_subsystem(struct udev_enumerate *all, const char *subsystem)
{
	return 0;
}

int udev_enumerate_add_match_property(struct udev_enumerate *all, const char *property, const char *value)
{
	return 0;
}

int udev_enumerate_scan_devices(struct udev_enumerate *all)
{
	return 0;
}

struct udev_list_entry *udev_enumerate_get_list_entry(struct udev_enumerate *all)
{
	return (struct udev_list_entry *)&devices[LEG_A];
}

struct udev_list_entry *udev_list_entry_get_next(struct udev_list_entry *entry)
{
	struct udev_device *next = (struct udev_device *)entry + 1;

	return next < &devices[DEVICES] ? (struct udev_list_entry *)next : NULL;
}

const char *udev_list_entry_get_name(struct udev_list_entry *entry)
{
	return (const char *)entry;
}

struct udev_device *udev_device_new_from_syspath(struct udev *udev, const char *path)
{
	struct udev_device *device = (struct udev_device *)path;

	return sequences[device - devices] ? device : NULL;
}

struct udev_device *udev_device_unref(struct udev_device *device)
{
	return NULL;
}

int udev_device_get_is_initialized(struct udev_device *device)
{
	return now >= device->done;
}

const char *udev_device_get_devnode(struct udev_device *device)
{
	return device->node;
}

const char *udev_device_get_sysattr_value(struct udev_device *device, const char *name)
{
	return strcmp(name, "size") ? NULL : device->size;
}

const char *udev_device_get_property_value(struct udev_device *device, const char *name)
{
	static char since[24];

	if (device->own)
		return !strcmp(name, "ID_FS_TYPE") ? "linux_raid_member" : !strcmp(name, "ID_FS_UUID_SUB") ? device->own : NULL;
	if (!device->kind || now < device->done)
		return NULL;
	snprintf(since, sizeof(since), "%llu", (unsigned long long)device->done);
	return !strcmp(name, "ID_FS_TYPE") ? "larder_member" : !strcmp(name, "LARDER_APPEARED") ? since : NULL;
}

/* As hanging.c asks it, once in a process. */
static bool is_silent(void)
{
	if (silent || (double)now / S < kept_silent)
		return silent = true;
	if (now < silent_from || now >= silent_to)
		return false;
	asked++;
	now += 10 * S;
	return silent = true;
}

void members_scan_where(struct members *members, bool (*wanted)(struct udev_device *device))
{
	*members = (struct members){ .member = calloc(DEVICES, sizeof(*members->member)) };
	looks_taken++;
	for (size_t i = 0; i < DEVICES; i++) {
		made[i] = (struct member){ .path = (char *)devices[i].node, .block = true, .number = (dev_t)i + 1 };
		made[i].sb.head.kind = htole32(devices[i].kind);
		made[i].sb.head.uuid[0] = (uint8_t)(i + 1);
		memset(made[i].sb.cache.cache_uuid, 9, 16);
		strcpy((char *)made[i].sb.cache.label, "data");
		if (i == SSD && now >= devices[i].here && wanted(&devices[i]) && is_silent())
			continue;
		if (now >= devices[i].here && now < devices[i].gone && wanted(&devices[i]) && devices[i].kind)
			members->member[members->number++] = &made[i];
	}
}

void members_free(struct members *members)
{
	free(members->member);
}

/* ------------------------------------------------------------------ the rest of what is there */

int device_try(struct device *device, const char *path)
{
	*device = (struct device){ .bytes = 1 << 30 };
	return 0;
}

void device_close(struct device *device)
{
}

bool signature_of_others(const struct device *device, const union superblock *own, struct signature_others *others)
{
	return false;
}

bool device_usage(dev_t number, char *text, size_t size)
{
	return false;
}

uint64_t disk_sequence(dev_t number)
{
	return sequences[number - 1];
}

char *disk_directory(const char *root, const char *path, bool block, dev_t number)
{
	return must_print("%s", devices[number - 1].wwid ? devices[number - 1].wwid : "");
}

char *disk_identity(const char *directory)
{
	return *directory ? must_print("%s", directory) : NULL;
}

bool device_is_below(dev_t below, dev_t above)
{
	return false;
}

bool md_disks(dev_t device, struct md_disks *disks)
{
	*disks = (struct md_disks){ 0 };
	for (int leg = LEG_A; leg <= LEG_C; leg++)
		if (array & IN_ARRAY(leg)) {
			struct md_disk *disk = &disks->disk[disks->number++];

			*disk = (struct md_disk){ .number = (dev_t)leg + 1, .role = MD_MEMBER };
			strcpy(disk->node, devices[leg].node);
		}
	return true;
}

void md_find_where(const uint8_t uuid[16], bool (*wanted)(dev_t number, const void *data), const void *data, struct md_array *found)
{
	*found = (struct md_array){ .device = 9 };
	for (int leg = LEG_A; leg <= LEG_C; leg++)
		if (sequences[leg]) {
			found->leg[found->number] = (char *)devices[leg].node;
			uuid_parse(devices[leg].own, found->super[found->number].own);
			found->leg_number[found->number++] = (dev_t)leg + 1;
		}
}

void md_free(struct md_array *found)
{
}

bool md_returns_whole(const struct md_array *found, size_t leg)
{
	return under_writes;
}

bool md_has(const struct md_disks *disks, const struct md_array *found, size_t leg)
{
	return array & IN_ARRAY(found->leg_number[leg] - 1);
}

void md_now(const struct md_array *found, const struct md_disks *disks, struct md_now *to)
{
	*to = (struct md_now){ 0 };
}

void md_contents(const struct md_leg *leg, struct contents *contents)
{
}

bool signature_besides(const struct device *device, const struct contents *contents, const char *type, struct signature_others *others)
{
	return false;
}

bool leg_of_device(dev_t number, uint8_t own[16], char disk[64])
{
	return false;
}

void stack_part(const struct stack *stack, const char *what, uint8_t uuid[16])
{
}

bool leg_is(const union superblock *sb, struct leg_fields *fields)
{
	return false;
}

const char *stack_decode(const uint8_t field[static LARDER_STACK_SIZE], struct stack *stack, bool *there)
{
	*there = false;
	return NULL;
}

const char *stack_list_decode(const uint8_t field[static LARDER_STACK_SIZE], struct stack_list *list, bool *there)
{
	*there = false;
	memset(list, 0, sizeof(*list));
	return NULL;
}

bool stack_host_is_foreign(const uint8_t host[16])
{
	return false;
}

bool stack_host_is_unknown(const uint8_t host[16])
{
	return false;
}

void tables_read(const struct device *device, const struct larder_cache_sb *sb, struct cache_tables *tables)
{
	*tables = (struct cache_tables){ .chosen = &table };
}

void tables_free(struct cache_tables *tables)
{
}

uint64_t lacks_noted(const uint8_t uuid[16])
{
	return 0;
}

uint64_t returned_since(const uint8_t uuid[16])
{
	return 0;
}

char *volume_too_old(const struct members *members, const struct member *volume, const struct stack *stack)
{
	return NULL;
}

char *cache_too_old(const struct members *members, const struct member *volume, const struct stack *stack)
{
	return NULL;
}

int snapshot_take(struct mapped_list *list)
{
	*list = (struct mapped_list){ 0 };
	return 0;
}

int mapped_scan_names(struct mapped_names *names)
{
	*names = (struct mapped_names){ 0 };
	return 0;
}

void mapped_list_free(struct mapped_list *list)
{
}

void mapped_names_free(struct mapped_names *names)
{
}

void mapped_init(bool dry_run)
{
}

size_t stopped_list(uint8_t (**uuids)[16])
{
	*uuids = NULL;
	return 0;
}

void turn_take(void)
{
}

void turn_give(void)
{
}

void hanging_look(const struct mapped_list *list)
{
}

void hanging_again(void)
{
}

void hanging_wait(double seconds)
{
}

bool hanging_any(void)
{
	return silent;
}

bool hanging_each(void (*visit)(const char *node, void *data), void *data)
{
	if (silent)
		visit("/dev/sdb", data);
	return silent;
}

bool hanging_only_silent(void)
{
	return silent && !others_hang;
}

size_t hanging_silent(dev_t *number, size_t room)
{
	*number = SSD + 1;
	return silent;
}

void hanging_keep_silent(const dev_t *number, size_t count, double seconds)
{
	if (count)
		kept_silent = (double)now / S + seconds;
}

void conf_read(struct conf *conf, void (*say)(const char *line, void *data), void *data)
{
	*conf = (struct conf){ .wait = 30 * S };
}

void conf_free(struct conf *conf)
{
}

void conf_apply(const struct conf *conf, struct facts *facts)
{
}

int claim_check(const char *path, uint32_t kind, const uint8_t uuid[16])
{
	return 0;
}

char *stored_options_words(const char *options, const char *class)
{
	return must_print("0");
}

int mapped_create(const char *name, const char *uuid, const char *target, uint64_t sectors, const char *params)
{
	snprintf(started_what, sizeof(started_what), "%s %s", name, params);
	started = now;
	return 0;
}

static void tell(enum assembly_event event, const uint8_t uuid[16], const char *text)
{
	if (!strstr(said, text))
		strncat(said, text, sizeof(said) - strlen(said) - 1);
}

/* ------------------------------------------------------------------ cases */

/* A clean volume that was there at 1 s, and the SSD of its cache. */
static void begin(uint64_t here, uint64_t done)
{
	devices[VOLUME] = (struct udev_device){ .node = "/dev/sda", .size = "2097152", .kind = LARDER_KIND_VOLUME, .done = 1 * S, .gone = NEVER };
	devices[SSD] = (struct udev_device){ .node = "/dev/sdb", .size = "2097152", .kind = LARDER_KIND_CACHE, .here = here, .done = done, .gone = NEVER };
	devices[OTHER] = (struct udev_device){ .node = "/dev/loop0", .size = "0", .done = NEVER, .gone = NEVER };
	table = (struct larder_table){ .head.nr_devices = htole32(1), .devices[0] = { .state = htole32(LARDER_DEVICE_ACTIVE), .uuid = { SSD + 1 } } };
	memset(&memory, 0, sizeof(memory));
	udev_there = true;
	queue = false;
	started = 0;
	*started_what = *said = 0;
	looks_taken = 0;
	silent_from = silent_to = 0;
	others_hang = false;
	asked = 0;
	now = 1 * S;
}

/* As larderd, until something has started, or the end: a pass when one is asked for, and when the SSD is through, which makes an event. */
static void larderd(uint64_t end)
{
	while (!started && now < end) {
		struct assembly a = { .wait = ASSEMBLY_WAIT_CONF, .began = 1 * S, .marked = true, .memory = &memory, .tell = tell };
		uint64_t next;

		silent = false;
		kept_silent = 0;
		assembly_pass(&a);
		next = a.again ? a.again : end;
		if (devices[SSD].done > now && devices[SSD].done < next)
			next = devices[SSD].done;
		now = started || next > end ? now : next;
		if (next >= end)
			break;
	}
}

/* As larder assemble --degraded. */
static struct assembly degraded(void)
{
	struct assembly a = { .tell = tell };

	assembly_pass(&a);
	return a;
}

static bool alone(void)
{
	return started && !strncmp(started_what, "data /dev/sda - ", 16);
}

static bool whole(void)
{
	return started && !strncmp(started_what, "larder-cache-data 1 /dev/sdb", 28);
}

static void by_larderd(void)
{
	begin(NEVER, NEVER);
	larderd(600 * S);
	check(alone() && started == 31 * S && !strstr(said, "udev"), "an SSD that is not there is waited for as long as larder.conf says");
	begin(5 * S, 45 * S);
	queue = true;
	larderd(600 * S);
	check(whole() && started == 45 * S && strstr(said, "/dev/sdb: udev is not through with it"), "one that udev gets to later than that");
	check(looks_taken < 12, "and is looked for each five seconds, no more");
	begin(5 * S, 20 * S);
	queue = true;
	larderd(600 * S);
	check(whole() && started == 20 * S && !strstr(said, "/dev/sdb: udev"), "one that comes in time is not told of");
	begin(5 * S, NEVER);
	queue = true;
	larderd(900 * S);
	check(alone() && started >= 31 * S + 180 * S && started <= 31 * S + 181 * S, "one that udev never gets to holds up nothing for longer than udev's own limit");
	begin(5 * S, NEVER);
	larderd(900 * S);
	check(alone() && started >= 61 * S && started <= 62 * S, "nor one of which udev has no event");
}

static void others(void)
{
	begin(NEVER, NEVER);
	queue = true;
	larderd(600 * S);
	check(alone() && started == 31 * S, "an empty loop device holds up nothing, whatever udev does");
	begin(5 * S, 45 * S);
	devices[OTHER].size = "1000";
	queue = true;
	now = 45 * S;
	larderd(600 * S);
	check(whole() && started == 45 * S && !strstr(said, "udev"), "what is whole waits for no other device");
	begin(NEVER, NEVER);
	devices[OTHER] = (struct udev_device){ .node = "/dev/sdc", .size = "1000", .here = 5 * S, .done = 40 * S, .gone = NEVER };
	queue = true;
	larderd(600 * S);
	check(alone() && started >= 40 * S && started <= 46 * S, "what was another's is not waited for any more");
	begin(0, NEVER);
	udev_there = false;
	larderd(600 * S);
	check(whole() && started == 1 * S, "without udevd each device is read");
}

static void by_command(void)
{
	struct assembly a;

	begin(0, 45 * S);
	queue = true;
	now = 20 * S;
	a = degraded();
	check(whole() && started == 45 * S && !a.waiting, "larder assemble --degraded waits for what udev is not through with");
	begin(0, NEVER);
	queue = true;
	now = 20 * S;
	a = degraded();
	check(alone() && started == 200 * S && !a.waiting, "not for longer than udev's own limit");
	begin(NEVER, NEVER);
	queue = true;
	now = 20 * S;
	a = degraded();
	check(alone() && started == 20 * S, "nor where there is nothing like that");
}

static void silent_ones(void)
{
	begin(0, 1 * S);
	devices[VOLUME].here = NEVER;
	silent_to = NEVER;
	larderd(3601 * S);
	check(asked >= 12 && asked <= 20 && !started, "what cannot be opened is asked less and less often");
	check(looks_taken < 40, "and for that alone nothing else is read");
	begin(0, 1 * S);
	devices[VOLUME].here = NEVER;
	silent_to = NEVER;
	others_hang = true;
	larderd(3601 * S);
	check(asked <= 20 && looks_taken > 400, "beside what hangs it is asked no more often");
	begin(0, 1 * S);
	silent_to = 25 * S;
	larderd(600 * S);
	check(whole() && started < 40 * S, "what answers in time is used");
	begin(0, 1 * S);
	silent_to = NEVER;
	larderd(600 * S);
	check(alone() && asked > 2, "what does not is missing");
	begin(0, 1 * S);
	devices[VOLUME].here = NEVER;
	silent_to = 1000 * S;
	larderd(3601 * S);
	check(whole() && started <= 1310 * S, "once it answers it is used");
	begin(0, 1 * S);
	devices[VOLUME].here = NEVER;
	sequences[SSD] = 1;
	silent_to = 1000 * S;
	larderd(1001 * S);
	sequences[SSD] = 2;
	now = 1001 * S;
	larderd(1002 * S);
	check(whole() && started == 1001 * S, "one that went and came is asked at once");
}

/* What larderd's next look at the array says of B, or C, whichever returns: 'c' that it is a copy, 's' that it stayed, '-' neither; ' ': nothing returns. */
static char returns_as(void)
{
	struct fact_member volume = { .lost_disks.lacks = array != (IN_ARRAY(LEG_A) | IN_ARRAY(LEG_B)) };
	struct look look = { 0 };
	char as = ' ';

	take_array(&look, udev_new(), &volume, 9, true);
	find_stayed(&memory, &look);
	find_copies(&memory, &look);
	for (size_t i = 0; i < look.facts.nr_returning; i++)
		as = look.facts.returning[i].copy ? 'c' : look.facts.returning[i].stayed ? 's' : '-';
	facts_free(&look);
	return as;
}

/* A mirror of A and B, and C, which is not there, and has the UUID of B once it is. */
static void begin_array(const char *wwid_of_b, const char *wwid_of_c)
{
	static const char a[] = "aaaaaaaa-0000-4000-8000-000000000000", b[] = "bbbbbbbb-0000-4000-8000-000000000000";

	begin(NEVER, NEVER);
	devices[LEG_A] = (struct udev_device){ .node = "/dev/a", .own = a, .wwid = "naa.1" };
	devices[LEG_B] = (struct udev_device){ .node = "/dev/b", .own = b, .wwid = wwid_of_b };
	devices[LEG_C] = (struct udev_device){ .node = "/dev/c", .own = b, .wwid = wwid_of_c };
	array = IN_ARRAY(LEG_A) | IN_ARRAY(LEG_B);
	memset(sequences, 0, sizeof(sequences));
	sequences[LEG_A] = 1;
	sequences[LEG_B] = 2;
	returns_as();
}

static void b_dies(void)
{
	array = IN_ARRAY(LEG_A);
	sequences[LEG_B] = 0;
	returns_as();
}

static void copies(void)
{
	begin_array(NULL, NULL);
	sequences[LEG_C] = 3;
	returns_as();
	b_dies();
	check(returns_as() == 'c' && returns_as() == 'c', "a copy that was made while the array ran is none of its disks when the other one has gone");
	sequences[LEG_C] = 0;
	returns_as();
	sequences[LEG_C] = 4;
	check(returns_as() == '-', "behind a new number of a disk that says of itself nothing it is another one");
	begin_array("naa.2", "naa.3");
	b_dies();
	sequences[LEG_C] = 3;
	check(returns_as() == 'c', "a copy that comes later is another disk than the array had");
	array |= IN_ARRAY(LEG_C); /* by larder start --take-back */
	returns_as();
	array = IN_ARRAY(LEG_A);
	sequences[LEG_C] = 0;
	returns_as();
	sequences[LEG_C] = 4;
	check(returns_as() == '-', "once the array has taken it, it is that one");
	begin_array("naa.2", NULL);
	b_dies();
	sequences[LEG_B] = 3;
	check(returns_as() == '-', "the disk itself is no copy");
	begin_array("naa.2", "naa.2");
	sequences[LEG_C] = 3;
	returns_as();
	b_dies();
	check(returns_as() == '-', "nor is it by another path");
}

static char told[512];

static void hear(enum assembly_event event, const uint8_t uuid[16], const char *text)
{
	snprintf(told, sizeof(told), "%d %s", event, text);
}

static bool tells(bool all, int result, const char *words)
{
	struct fact_return returning = { .path = "/dev/b", .all = all };
	struct facts facts = { .returning = &returning, .nr_returning = 1 };
	struct step step = { .kind = PLAN_RETURN, .name = "data" };
	struct assembly a = { .tell = hear };

	tell_step(&a, &facts, &step, result);
	return strstr(told, words) && strtol(told, NULL, 10) == (result ? ASSEMBLY_FAILED : ASSEMBLY_RETURNED);
}

static void lost_caches(void)
{
	for (int i = 0; i < 2; i++) {
		struct look look = { 0 };
		struct fact_member volume = { .lost_disks.lacks = 2 };

		begin_array(NULL, NULL);
		array = IN_ARRAY(LEG_A);
		under_writes = i;
		take_array(&look, udev_new(), &volume, 9, true);
		check(look.facts.nr_returning == 1 && look.facts.returning[0].all == i, "larderd sees what a disk that returns may have lost");
		facts_free(&look);
	}
	under_writes = false;
	check(tells(true, 0, "the stack data, and all is copied to it, as it left while the array was written to, and its volatile write cache"), "that is told");
	check(tells(false, 0, "the stack data, and gets what it lacks; larder status data"), "of what it may not have lost nothing is");
	check(tells(true, 1, "could not be taken back"), "nor of one that is not taken");
}

int main(void)
{
	silent_ones();
	copies();
	lost_caches();
	by_larderd();
	others();
	by_command();
	return failed;
}
