// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Device-mapper by libdevmapper.
 *
 * Every change carries a udev cookie and waits for it, so that the nodes and links are there (or gone) when the command ends;
 * where udevd does not run, libdevmapper notices and makes the nodes itself.  libdevmapper's own messages are kept back (what it
 * says names an ioctl, not a remedy), but for the lines of its reports, which take the same way.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libdevmapper.h>
#include <linux/dm-ioctl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "dm.h"
#include "guard.h"
#include "kernellog.h"
#include "message.h"

#define DM_PREFIX "device-mapper: " /* of lines in the kernel's log */

#define UUID_LENGTH 36

static bool dry;

#define LEVEL_MASK   0x0f /* of a message of libdevmapper */
#define LEVEL_PRINT  4 /* warnings have it too, but with */
#define LEVEL_STDERR 0x80

static void take_message(int level, const char *file, int line, int error, const char *format, ...)
{
	va_list args;

	(void)file;
	(void)line;
	(void)error;
	if ((level & LEVEL_MASK) != LEVEL_PRINT || level & LEVEL_STDERR)
		return;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

void mapped_take_messages(void)
{
	dm_log_with_errno_init(take_message);
}

void mapped_init(bool dry_run)
{
	dry = dry_run;
	mapped_take_messages();
	dm_set_name_mangling_mode(DM_STRING_MANGLING_NONE);
}

bool mapped_is_dry(void)
{
	return dry;
}

/* libdevmapper would load a module and make a node just to be asked for a list */
static bool dm_available(void)
{
	char line[64];
	bool found = false;
	FILE *file = fopen("/proc/misc", "re");

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file))
		found = strstr(line, "device-mapper");
	fclose(file);
	return found;
}

#define UNKNOWN_ERROR 254 /* libdevmapper failed, and left no errno: greater than any, less than GUARD_BROKEN */

static int code_of(int error)
{
	switch (error) {
	case EBUSY:
		return LARDER_BUSY;
	case ENXIO:
	case ENODEV:
		return LARDER_NOT_FOUND;
	case ESTALE: /* the cache holds what is older than the volume */
	case EUCLEAN: /* its cache may hold what is newer */
		return LARDER_UNSAFE;
	default:
		return LARDER_FAILED;
	}
}

/* mark, end: of kernellog_reason() */
static int complain_until(int error, int mark, int end, const char *name, const char *action)
{
	char *reason = kernellog_reason(mark, end);
	const char *what = error == UNKNOWN_ERROR ? "refused by the kernel" : strerror(error);
	int code = code_of(error);

	if (!dm_available())
		code = complain(LARDER_FAILED, "%s: cannot %s it: this kernel has no device-mapper; modprobe dm_mod", name, action);
	else if (reason)
		complain(code, "%s: cannot %s it: %s: %s", name, action, what,
			 strncmp(reason, DM_PREFIX, strlen(DM_PREFIX)) ? reason : reason + strlen(DM_PREFIX));
	else
		complain(code, "%s: cannot %s it: %s; see dmesg", name, action, what);
	free(reason);
	return code;
}

static int complain_of(int error, int mark, const char *name, const char *action)
{
	return complain_until(error, mark, -1, name, action);
}

/* ------------------------------------------------------------------ look */

/* NULL: errno says why.  (libdevmapper does not: it has tried to open its control node by then.) */
static struct dm_task *try_task(int type)
{
	struct dm_task *task = dm_task_create(type);
	char *path;
	int fd;

	if (task)
		return task;
	path = must_print("%s/" DM_CONTROL_NODE, dm_dir());
	fd = open(path, O_RDWR | O_CLOEXEC);
	free(path);
	if (fd >= 0) {
		close(fd);
		errno = ENOMEM;
	}
	return NULL;
}

static const char *cure_of(int error)
{
	return error == EACCES || error == EPERM ? "; run larder as root" : error == ENODEV || error == ENOENT ? "; modprobe dm_mod" : "";
}

static struct dm_task *must_task(int type)
{
	struct dm_task *task = try_task(type);

	if (task)
		return task;
	complain(LARDER_FAILED, "device-mapper: cannot be used: %s%s", strerror(errno), cure_of(errno));
	exit(LARDER_FAILED);
}

/* One read-only ioctl on a device by name.  NULL: errno says why. */
static struct dm_task *ask(int type, const char *name)
{
	struct dm_task *task = try_task(type);
	int error;

	if (!task)
		return NULL;
	dm_task_no_flush(task);
	dm_task_no_open_count(task);
	if ((!name || dm_task_set_name(task, name)) && dm_task_run(task))
		return task;
	error = dm_task_get_errno(task);
	dm_task_destroy(task);
	errno = error ? error : EIO;
	return NULL;
}

/* The first target of a status or table task.  False if there is none. */
static bool first_target(struct dm_task *task, uint64_t *sectors, const char **type, const char **params)
{
	char *t = NULL, *p = NULL;
	uint64_t start = 0;

	*sectors = 0;
	dm_get_next_target(task, NULL, &start, sectors, &t, &p);
	*type = t;
	*params = p ? p : "";
	return t;
}

static bool read_open_count(struct mapped *mapped)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_INFO);
	struct dm_info info;
	bool good;

	good = task && dm_task_set_name(task, mapped->name) && dm_task_run(task) && dm_task_get_info(task, &info) && info.exists;
	if (good) {
		const char *uuid = dm_task_get_uuid(task);

		mapped->open_count = info.open_count;
		mapped->suspended = info.suspended;
		mapped->events = info.event_nr;
		mapped->number = makedev(info.major, info.minor);
		snprintf(mapped->uuid, sizeof(mapped->uuid), "%s", uuid ? uuid : "");
	}
	if (task)
		dm_task_destroy(task);
	return good;
}

/* Of the device with this UUID for dm.  False: there is none that has a table. */
static bool shown_by(const char *uuid, struct mapped *shown)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_INFO);
	struct dm_info info;
	bool good = task && dm_task_set_uuid(task, uuid) && dm_task_run(task) && dm_task_get_info(task, &info) && info.exists && info.live_table;

	if (good) {
		snprintf(shown->name, sizeof(shown->name), "%s", dm_task_get_name(task));
		snprintf(shown->uuid, sizeof(shown->uuid), "%s", uuid);
		shown->open_count = info.open_count;
		shown->suspended = info.suspended;
		shown->number = makedev(info.major, info.minor);
	}
	if (task)
		dm_task_destroy(task);
	return good;
}

/* "LARDER-<uuid>" for what is below or beside that volume; false: it is neither. */
static bool volume_above(const char *uuid, char above[static DM_UUID_MAX])
{
	static const char *const below[] = { BELOW_ORIGIN, BELOW_STORE, BELOW_SNAPSHOT };
	const size_t length = strlen("LARDER-") + UUID_LENGTH;
	bool is = false;

	if (strncmp(uuid, "LARDER-", strlen("LARDER-")) || strlen(uuid) <= length)
		return false;
	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++)
		is |= !strncmp(uuid + length, below[i], strlen(below[i]));
	snprintf(above, DM_UUID_MAX, "%.*s", (int)length, uuid);
	return is;
}

/* Is this the device that shows a volume which has no snapshots any more: what was below it is left over? */
static bool shows_itself(const struct mapped *shown)
{
	struct dm_task *task = ask(DM_DEVICE_TABLE, shown->name);
	const char *type, *params;
	uint64_t sectors;
	bool itself = task && first_target(task, &sectors, &type, &params) && !strcmp(type, TARGET_VOLUME);

	if (task)
		dm_task_destroy(task);
	return itself;
}

/* Fills it if the device of that name is one of ours. */
static bool read_mapped(const char *name, struct mapped *mapped)
{
	struct dm_task *task = ask(DM_DEVICE_STATUS, name);
	const char *type, *params;
	bool ours;

	if (!task)
		return false;
	*mapped = (struct mapped){ 0 };
	ours = first_target(task, &mapped->sectors, &type, &params) &&
	       (!strcmp(type, TARGET_CACHE) || !strcmp(type, TARGET_VOLUME));
	if (ours) {
		char above[DM_UUID_MAX];

		snprintf(mapped->name, sizeof(mapped->name), "%s", name);
		snprintf(mapped->target, sizeof(mapped->target), "%s", name);
		mapped->cache = !strcmp(type, TARGET_CACHE);
		mapped->status = must_allocate(strdup(params));
		ours = read_open_count(mapped);
		mapped->target_number = mapped->number;
		if (ours && volume_above(mapped->uuid, above))
			ours = !shown_by(above, mapped) || !shows_itself(mapped);
		if (!ours)
			free(mapped->status);
	}
	dm_task_destroy(task);
	return ours;
}

/* Calls visit with the name of each dm device.  Without device-mapper: with none.  Complains. */
static int each_name(void (*visit)(const char *name, void *data), void *data)
{
	struct dm_task *task;
	struct dm_names *names;

	if (!dm_available())
		return LARDER_DONE;
	task = ask(DM_DEVICE_LIST, NULL);
	names = task ? dm_task_get_names(task) : NULL;
	if (!names) {
		if (task)
			dm_task_destroy(task);
		return complain(LARDER_FAILED, "device-mapper: cannot list its devices: %s%s", strerror(errno), cure_of(errno));
	}
	while (names->dev) {
		visit(names->name, data);
		if (!names->next)
			break;
		names = (struct dm_names *)((char *)names + names->next);
	}
	dm_task_destroy(task);
	return LARDER_DONE;
}

static void add_mapped(const char *name, void *data)
{
	struct mapped_list *list = data;
	struct mapped one;

	if (!read_mapped(name, &one))
		return;
	list->mapped = must_allocate(realloc(list->mapped, (list->number + 1) * sizeof(one)));
	list->mapped[list->number++] = one;
}

int mapped_scan(struct mapped_list *list)
{
	*list = (struct mapped_list){ 0 };
	return each_name(add_mapped, list);
}

/* A UUID of ours, and no live table; or the volume that it was made for is not shown. */
static bool is_half(const char *name, char uuid[static DM_UUID_MAX])
{
	struct dm_task *task = ask(DM_DEVICE_INFO, name);
	char above[DM_UUID_MAX];
	struct mapped shown;
	struct dm_info info;
	bool half = task && dm_task_get_info(task, &info) && info.exists && dm_task_get_uuid(task);

	if (half) {
		snprintf(uuid, DM_UUID_MAX, "%s", dm_task_get_uuid(task));
		half = !strncmp(uuid, "LARDER-", strlen("LARDER-")) &&
		       (!info.live_table || (volume_above(uuid, above) && !shown_by(above, &shown)));
	}
	if (task)
		dm_task_destroy(task);
	return half;
}

static void push(char ***list, size_t *number, const char *name)
{
	*list = must_allocate(realloc(*list, (*number + 1) * sizeof(**list)));
	(*list)[(*number)++] = must_allocate(strdup(name));
}

static void add_name(const char *name, void *data)
{
	struct mapped_names *names = data;

	push(&names->name, &names->number, name);
}

/* What shows a volume goes first, then its snapshots, what is below both, their stores; and anything else. */
static unsigned removed_in_turn(const char *uuid)
{
	static const char *const order[] = { BELOW_SNAPSHOT, BELOW_ORIGIN, BELOW_STORE };
	char above[DM_UUID_MAX];

	for (unsigned i = 0; volume_above(uuid, above) && i < sizeof(order) / sizeof(order[0]); i++)
		if (strstr(uuid, order[i]))
			return i + 1;
	return 0;
}

int mapped_scan_names(struct mapped_names *names)
{
	char uuid[DM_UUID_MAX];
	int result;

	*names = (struct mapped_names){ 0 };
	result = each_name(add_name, names);
	for (unsigned turn = 0; turn < 4; turn++)
		for (size_t i = 0; i < names->number; i++)
			if (is_half(names->name[i], uuid) && removed_in_turn(uuid) == turn)
				push(&names->half, &names->nr_half, names->name[i]);
	return result;
}

int mapped_scan_below(const char *dm_uuid, struct mapped_names *names)
{
	char uuid[DM_UUID_MAX], above[DM_UUID_MAX];
	dev_t number;
	int result;

	*names = (struct mapped_names){ 0 };
	result = each_name(add_name, names);
	/* a start that was cut short may have left it with a table that is not live, and holds what is below */
	for (size_t i = mapped_is_shown(dm_uuid) ? names->number : 0; i < names->number; i++)
		if (mapped_look(names->name[i], uuid, &number) && !strcmp(uuid, dm_uuid))
			push(&names->half, &names->nr_half, names->name[i]);
	for (unsigned turn = 1; turn < 4; turn++)
		for (size_t i = 0; i < names->number; i++)
			if (mapped_look(names->name[i], uuid, &number) && removed_in_turn(uuid) == turn && volume_above(uuid, above) &&
			    !strcmp(above, dm_uuid))
				push(&names->half, &names->nr_half, names->name[i]);
	return result;
}

bool mapped_is_shown(const char *dm_uuid)
{
	struct mapped shown;

	return dm_available() && shown_by(dm_uuid, &shown);
}

bool mapped_name_of(const char *dm_uuid, char name[static DM_NAME_MAX])
{
	struct mapped shown;
	bool there = dm_available() && shown_by(dm_uuid, &shown);

	if (there)
		snprintf(name, DM_NAME_MAX, "%s", shown.name);
	return there;
}

bool mapped_status(const char *name, const char *target, char *text, size_t size)
{
	struct dm_task *task = dm_available() ? ask(DM_DEVICE_STATUS, name) : NULL;
	const char *type, *params;
	uint64_t sectors;
	bool there = task && first_target(task, &sectors, &type, &params) && !strcmp(type, target);

	if (there)
		snprintf(text, size, "%s", params);
	if (task)
		dm_task_destroy(task);
	return there;
}

void mapped_names_free(struct mapped_names *names)
{
	for (size_t i = 0; i < names->number; i++)
		free(names->name[i]);
	for (size_t i = 0; i < names->nr_half; i++)
		free(names->half[i]);
	free(names->name);
	free(names->half);
	*names = (struct mapped_names){ 0 };
}

void mapped_list_free(struct mapped_list *list)
{
	for (size_t i = 0; i < list->number; i++)
		free(list->mapped[i].status);
	free(list->mapped);
	*list = (struct mapped_list){ 0 };
}

int mapped_refresh(struct mapped *mapped)
{
	struct mapped now;

	if (!read_mapped(mapped->target, &now))
		return complain(LARDER_NOT_FOUND, "%s: is gone, or is no larder device any more", mapped->name);
	free(mapped->status);
	*mapped = now;
	return LARDER_DONE;
}

/* The caller frees *params.  Complains. */
static int read_table(const char *name, uint64_t *sectors, char **params)
{
	struct dm_task *task = ask(DM_DEVICE_TABLE, name);
	const char *type, *text;

	if (!task)
		return complain(LARDER_FAILED, "%s: cannot read its table: %s", name, strerror(errno));
	if (!first_target(task, sectors, &type, &text)) {
		dm_task_destroy(task);
		return complain(LARDER_FAILED, "%s: cannot read its table: it has none; see dmsetup info %s", name, name);
	}
	*params = must_allocate(strdup(text));
	dm_task_destroy(task);
	return LARDER_DONE;
}

int mapped_table(const struct mapped *mapped, char **params)
{
	uint64_t sectors;

	return read_table(mapped->target, &sectors, params);
}

static bool mapped_info(const char *name, struct dm_info *info)
{
	struct dm_task *task = ask(DM_DEVICE_INFO, name);
	bool there = task && dm_task_get_info(task, info) && info->exists;

	if (task)
		dm_task_destroy(task);
	return there;
}

bool mapped_name_taken(const char *name)
{
	struct dm_info info;

	return dm_available() && mapped_info(name, &info);
}

bool mapped_suspended(const char *name)
{
	struct dm_info info;

	return mapped_info(name, &info) && info.suspended;
}

bool mapped_look(const char *name, char uuid[static DM_UUID_MAX], dev_t *number)
{
	struct dm_task *task = dm_available() ? ask(DM_DEVICE_INFO, name) : NULL;
	struct dm_info info;
	bool there = task && dm_task_get_info(task, &info) && info.exists;

	if (there) {
		const char *text = dm_task_get_uuid(task);

		snprintf(uuid, DM_UUID_MAX, "%s", text ? text : "");
		*number = makedev(info.major, info.minor);
	}
	if (task)
		dm_task_destroy(task);
	return there;
}

bool mapped_is_without_larder(const char *name)
{
	struct dm_task *task = dm_available() ? ask(DM_DEVICE_STATUS, name) : NULL;
	const char *type, *params;
	bool linear = false;
	uint64_t sectors;

	if (task) {
		linear = first_target(task, &sectors, &type, &params) && (!strcmp(type, "linear") || !strcmp(type, "snapshot-origin"));
		dm_task_destroy(task);
	}
	return linear;
}

static void add_target(struct mapped_target **target, size_t *targets, const struct mapped_target *one)
{
	*target = must_allocate(realloc(*target, (*targets + 1) * sizeof(**target)));
	(*target)[(*targets)++] = *one;
}

int mapped_targets(dev_t number, char name[static DM_NAME_MAX], struct mapped_target **target, size_t *targets)
{
	struct dm_task *task = must_task(DM_DEVICE_TABLE);
	void *next = NULL;
	bool good;

	*target = NULL;
	*targets = 0;
	/* of a LUKS layer there may be the key in it */
	good = dm_task_secure_data(task) && dm_task_no_flush(task) && dm_task_no_open_count(task) &&
	       dm_task_set_major_minor(task, (int)major(number), (int)minor(number), 0) && dm_task_run(task);
	if (!good) {
		int error = dm_task_get_errno(task);

		dm_task_destroy(task);
		return complain(LARDER_FAILED, "%u:%u: its table cannot be read: %s", major(number), minor(number), strerror(error ? error : EIO));
	}
	snprintf(name, DM_NAME_MAX, "%s", dm_task_get_name(task));
	do {
		struct mapped_target one = { 0 };
		char *type = NULL, *params = NULL;

		next = dm_get_next_target(task, next, &one.first, &one.sectors, &type, &params);
		if (!type)
			break;
		snprintf(one.type, sizeof(one.type), "%s", type);
		one.params = must_print("%s", params ? params : "");
		add_target(target, targets, &one);
	} while (next);
	dm_task_destroy(task);
	return LARDER_DONE;
}

void mapped_targets_free(struct mapped_target *target, size_t targets)
{
	for (size_t i = 0; i < targets; i++) {
		explicit_bzero(target[i].params, strlen(target[i].params));
		free(target[i].params);
	}
	free(target);
}

int mapped_watch(void)
{
	char *path = must_print("%s/" DM_CONTROL_NODE, dm_dir());
	int fd = dm_available() ? open(path, O_RDWR | O_CLOEXEC) : -1; /* the kernel notes the number of the last event at open() */

	free(path);
	return fd;
}

/* ------------------------------------------------------------------ change */

/* "larder-cache     v1.0.0" */
static bool read_version(const char *path, const char *target, uint32_t version[static 3])
{
	FILE *file = fopen(path, "re");
	char line[256], name[64];
	bool known = false;

	while (file && !known && fgets(line, sizeof(line), file))
		known = sscanf(line, "%63s v%" SCNu32 ".%" SCNu32 ".%" SCNu32, name, &version[0], &version[1], &version[2]) == 4 && !strcmp(name, target);
	if (file)
		fclose(file);
	return known;
}

/* (The dm core loads dm-<target> by itself when a table asks for it.) */
bool target_version(const char *target, uint32_t version[static 3])
{
	const char *given = getenv("LARDER_TARGETS");
	struct dm_versions *one;
	struct dm_task *task;
	bool known = false;

	if (given)
		return read_version(given, target, version);
	task = dm_available() ? ask(DM_DEVICE_LIST_VERSIONS, NULL) : NULL;
	one = task ? dm_task_get_versions(task) : NULL;
	while (one && !(known = !strcmp(one->name, target)) && one->next)
		one = (struct dm_versions *)((char *)one + one->next);
	if (known)
		memcpy(version, one->version, sizeof(one->version));
	if (task)
		dm_task_destroy(task);
	return known;
}

static uint64_t microseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* udev kills who handles an event for longer than 180 s, by a disk that hangs, say: then nobody is left to tell libdevmapper. */
#define UDEV_WAIT_US	 200000000u
#define UDEV_LOOK_US	 500u
#define UDEV_LOOK_MOST_US 8000u

static void wait_for_cookie(uint32_t cookie)
{
	uint64_t end = microseconds() + UDEV_WAIT_US;
	unsigned pause = UDEV_LOOK_US;
	int ready = 0;

	while (dm_udev_wait_immediate(cookie, &ready) && !ready && microseconds() < end) {
		usleep(pause);
		pause = 2 * pause < UDEV_LOOK_MOST_US ? 2 * pause : UDEV_LOOK_MOST_US;
	}
	if (ready || microseconds() < end)
		return;
	remark("udev has not been through with a device for %u s: not waited for any longer; is it running, and does a disk hang?", UDEV_WAIT_US / 1000000);
	while (dm_udev_complete(cookie) && dm_udev_wait_immediate(cookie, &ready) && !ready)
		;
}

/* Until udev is through with what has that cookie; without udev libdevmapper makes the nodes, in the last of these calls. */
static void wait_for_udev(uint32_t cookie)
{
	if (cookie && dm_udev_get_sync_support())
		wait_for_cookie(cookie);
	dm_udev_wait(0);
}

/* Runs a task that changes the state of a device, under a cookie; destroys it.  Returns 0, a positive errno or UNKNOWN_ERROR. */
static int run_flags(struct dm_task *task, bool with_cookie, uint16_t flags)
{
	uint32_t cookie = 0;
	int error = 0;

	errno = 0;
	if (with_cookie && !dm_task_set_cookie(task, &cookie, flags))
		error = errno ? errno : EIO;
	if (!error && !dm_task_run(task))
		error = dm_task_get_errno(task) ? dm_task_get_errno(task) : UNKNOWN_ERROR;
	dm_task_destroy(task);
	if (with_cookie)
		wait_for_udev(cookie);
	return error;
}

static int run(struct dm_task *task, bool with_cookie)
{
	return run_flags(task, with_cookie, 0);
}

static struct dm_task *new_task(int type, const char *name)
{
	struct dm_task *task = must_task(type);

	must_allocate(dm_task_set_name(task, name) ? task : NULL);
	return task;
}

/*
 * For udev: nobody but us looks at a cache, at what is below dm-integrity, or below a volume with snapshots; and of a snapshot nobody reads what is on it, as its filesystem
 * has the UUID of the volume's.  (Where others resume them: udev/11-dm-larder.rules.)
 */
static uint16_t udev_flags(const char *name)
{
	struct dm_task *task = ask(DM_DEVICE_INFO, name);
	const char *uuid = task ? dm_task_get_uuid(task) : NULL;
	char above[DM_UUID_MAX];
	uint16_t flags = 0;

	if (uuid && !strncmp(uuid, "LARDER-", strlen("LARDER-"))) {
		bool below = volume_above(uuid, above);

		if (below || strstr(uuid, BELOW_LEG) || !strcmp(uuid + strlen(uuid) - strlen("-cache"), "-cache"))
			flags = DM_UDEV_DISABLE_DISK_RULES_FLAG | DM_UDEV_DISABLE_OTHER_RULES_FLAG;
		if (below && strstr(uuid, BELOW_SNAPSHOT))
			flags = DM_UDEV_DISABLE_DISK_RULES_FLAG;
	}
	if (task)
		dm_task_destroy(task);
	return flags;
}

/* What is not suspended, and has a table loaded, is drained first, filesystems not frozen. */
static int resume(const char *name)
{
	struct dm_task *task = new_task(DM_DEVICE_RESUME, name);

	dm_task_skip_lockfs(task);
	return run_flags(task, true, udev_flags(name));
}

static int simple(int type, const char *name, bool with_cookie)
{
	struct dm_task *task = new_task(type, name);

	if (type == DM_DEVICE_REMOVE)
		dm_task_retry_remove(task);
	if (type == DM_DEVICE_SUSPEND)
		dm_task_skip_lockfs(task);
	return run(task, with_cookie);
}

static int load(const char *name, const char *target, uint64_t sectors, const char *params)
{
	struct dm_task *task = new_task(DM_DEVICE_RELOAD, name);

	if (dm_task_add_target(task, 0, sectors, target, params))
		return run(task, false);
	dm_task_destroy(task);
	return ENOMEM;
}

/* An empty device, its table, its resume: in one task libdevmapper would undo what fails, and forget the errno. */
static int create(const char *name, const char *uuid, const char *target, uint64_t sectors, const char *params)
{
	struct dm_task *task = new_task(DM_DEVICE_CREATE, name);
	int error;

	if (!dm_task_set_uuid(task, uuid)) {
		dm_task_destroy(task);
		return ENOMEM;
	}
	error = run(task, false);
	if (error)
		return error;
	error = load(name, target, sectors, params);
	error = error ? error : resume(name);
	if (error)
		simple(DM_DEVICE_REMOVE, name, true);
	return error;
}

int mapped_create(const char *name, const char *uuid, const char *target, uint64_t sectors, const char *params)
{
	uint32_t version[3];
	int error, mark;

	if (dry) {
		printf("dmsetup create %s --uuid %s --table '0 %llu %s %s'\n", name, uuid, (unsigned long long)sectors, target,
		       params);
		return LARDER_DONE;
	}
	mark = kernellog_mark();
	error = create(name, uuid, target, sectors, params);
	if (!error) {
		kernellog_close(mark);
		return LARDER_DONE;
	}
	if (dm_available() && !target_version(target, version)) {
		kernellog_close(mark);
		return strncmp(target, TARGET_VOLUME, strlen(TARGET_VOLUME)) ?
			       complain(LARDER_FAILED, "%s: cannot create it: the kernel has no target %s; modprobe dm-%.8s", name, target, target) :
			       complain(LARDER_FAILED, "%s: cannot create it: the kernel has no target %s; modprobe larder, or start what is clean with --without-module", name,
					target);
	}
	return complain_of(error, mark, name, "create");
}

int mapped_create_suspended(const char *name, const char *uuid, const char *target, uint64_t sectors, const char *params)
{
	struct dm_task *task;
	bool made;
	int error, mark, result;

	if (dry) {
		printf("dmsetup create %s --uuid %s --notable\n", name, uuid);
		printf("dmsetup load %s --table '0 %llu %s %s'\n", name, (unsigned long long)sectors, target, params);
		return LARDER_DONE;
	}
	mark = kernellog_mark();
	task = new_task(DM_DEVICE_CREATE, name);
	error = dm_task_set_uuid(task, uuid) ? 0 : ENOMEM;
	if (error)
		dm_task_destroy(task);
	else
		error = run(task, false);
	made = !error;
	error = error ? error : load(name, target, sectors, params);
	if (!error) {
		kernellog_close(mark);
		return LARDER_DONE;
	}
	result = complain_of(error, mark, name, made ? "load a table into" : "create");
	if (made)
		simple(DM_DEVICE_REMOVE, name, true);
	return result;
}

/* dmsetup's word for a task of that type, and ours for what it does */
static int change(int type, const char *name, const char *word, const char *action)
{
	int error, mark;

	if (dry) {
		printf("dmsetup %s %s\n", word, name);
		return LARDER_DONE;
	}
	mark = kernellog_mark();
	error = simple(type, name, type != DM_DEVICE_SUSPEND);
	if (error)
		return complain_of(error, mark, name, action);
	kernellog_close(mark);
	return LARDER_DONE;
}

int mapped_remove(const char *name)
{
	return change(DM_DEVICE_REMOVE, name, "remove", "stop");
}

int mapped_remove_left(const char *dm_uuid)
{
	struct mapped_names names;
	int result = mapped_scan_below(dm_uuid, &names);

	for (size_t i = 0; !result && i < names.nr_half; i++)
		result = mapped_remove(names.half[i]);
	mapped_names_free(&names);
	return result;
}

int mapped_suspend(const char *name)
{
	return change(DM_DEVICE_SUSPEND, name, "suspend --nolockfs", "suspend");
}

int mapped_resume(const char *name)
{
	return change(DM_DEVICE_RESUME, name, "resume", "resume");
}

struct swap {
	const char *name, *target, *old; /* parameters of the live table */
	uint64_t sectors;
	int end; /* kernellog's mark: of what was said of the new table, not of the way back */
};

/*
 * Makes the loaded table live: the kernel suspends, swaps and resumes in one call, which a kill does not divide.  When the new table does
 * not resume the old one is gone, the device suspended: it is loaded again.  It is resumed also where that cannot be, as where an SSD that it
 * names has died since: the kernel may have refused to swap, and have the old one still, or take the new one now; and once more where it has
 * refused again, as the table that was loaded is gone then, and what it has is left.  Returns 0 or an error, with the old table live if that
 * could be.
 */
static int swap_tables(void *argument)
{
	const struct swap *swap = argument;
	int error = resume(swap->name);

	kernellog_move(swap->end);
	if (error && mapped_suspended(swap->name)) {
		load(swap->name, swap->target, swap->sectors, swap->old);
		if (resume(swap->name))
			resume(swap->name);
	}
	return error;
}

static int swap_guarded(struct swap *swap)
{
	int mark = kernellog_mark(), error, code;

	swap->end = kernellog_mark();
	error = guard_run(swap_tables, swap);
	if (error == GUARD_BROKEN)
		kernellog_move(swap->end);
	if (!error) {
		kernellog_close(mark);
		kernellog_close(swap->end);
		return LARDER_DONE;
	}
	code = complain_until(error == GUARD_BROKEN ? EINTR : error, mark, swap->end, swap->name, "switch the table of");
	if (mapped_suspended(swap->name))
		complain(code, "%s: stays suspended: the old table cannot be resumed either; try dmsetup resume %s", swap->name, swap->name);
	return code;
}

int mapped_reload(const char *name, const char *target, uint64_t sectors, const char *params)
{
	struct swap swap = { .name = name, .target = target };
	int error, mark, result;
	char *old;

	if (dry) {
		printf("dmsetup load %s --table '0 %llu %s %s'\n", name, (unsigned long long)sectors, target, params);
		printf("dmsetup resume --nolockfs %s\n", name);
		return LARDER_DONE;
	}
	result = read_table(name, &swap.sectors, &old);
	if (result)
		return result;
	mark = kernellog_mark();
	error = load(name, target, sectors, params);
	if (error) {
		result = complain_of(error, mark, name, "load a table into");
	} else {
		kernellog_close(mark);
		swap.old = old;
		result = swap_guarded(&swap);
	}
	free(old);
	return result;
}

/* ------------------------------------------------------------------ several at once */

struct exchange {
	const struct mapped_step *steps, *back;
	size_t number, nr_back;
	struct exchange_result { /* in memory that the process which carries it out shares */
		uint64_t blocked;
		size_t failed; /* place of the step */
	} *result;
	int end; /* kernellog's mark, as that of a swap */
};

static int one_step(const struct mapped_step *step, uint32_t *cookie)
{
	bool resumes = step->action == MAPPED_RESUME || step->action == MAPPED_FAIL;
	struct dm_task *task;
	int error;

	if (step->action == MAPPED_LOAD)
		return load(step->name, step->target, step->sectors, step->params);
	error = step->action == MAPPED_FAIL ? load(step->name, "error", step->sectors, "") : 0;
	if (error)
		return error;
	task = new_task(resumes ? DM_DEVICE_RESUME : DM_DEVICE_SUSPEND, step->name);
	if (step->action != MAPPED_FREEZE)
		dm_task_skip_lockfs(task);
	/* where udev cannot be told it goes on all the same */
	if (resumes)
		dm_task_set_cookie(task, cookie, udev_flags(step->name));
	return run(task, false);
}

static bool stands_still(const char *name)
{
	struct dm_info info;

	return mapped_info(name, &info) && (info.suspended || !info.live_table);
}

/* Where what a table is loaded into runs, it has the new one, or never lost the old one: all that is left is to resume. */
static size_t first_to_go_back(const struct exchange *x)
{
	size_t behind = 0; /* the tables */
	bool tables = true;

	for (size_t i = 0; i < x->nr_back; i++)
		if (x->back[i].action == MAPPED_LOAD) {
			tables &= mapped_suspended(x->back[i].name);
			behind = i + 1;
		}
	return tables ? 0 : behind;
}

static void go_back(const struct exchange *x, uint32_t *cookie)
{
	for (size_t i = first_to_go_back(x); i < x->nr_back; i++) {
		const struct mapped_step *step = &x->back[i];
		bool runs = step->action == MAPPED_SUSPEND || step->action == MAPPED_FAIL;

		if (runs ? !stands_still(step->name) : mapped_suspended(step->name))
			one_step(step, cookie);
	}
}

static int exchange(void *argument)
{
	const struct exchange *x = argument;
	uint64_t begun = microseconds();
	uint32_t cookie = 0;
	int error = 0;

	for (size_t i = 0; !error && i < x->number; i++) {
		x->result->failed = i;
		error = one_step(&x->steps[i], &cookie);
	}
	kernellog_move(x->end);
	if (error)
		go_back(x, &cookie);
	x->result->blocked = microseconds() - begun;
	wait_for_udev(cookie);
	return error;
}

static void print_steps(const struct mapped_step *steps, size_t number)
{
	static const char *const words[] = { "suspend", "suspend --nolockfs", "load", "resume" };

	for (size_t i = 0; i < number; i++)
		if (steps[i].action == MAPPED_LOAD)
			printf("dmsetup load %s --table '0 %llu %s %s'\n", steps[i].name, (unsigned long long)steps[i].sectors, steps[i].target,
			       steps[i].params);
		else
			printf("dmsetup %s %s\n", words[steps[i].action], steps[i].name);
}

int mapped_exchange(const struct mapped_step *steps, size_t number, const struct mapped_step *back, size_t nr_back, uint64_t *blocked)
{
	static const char *const actions[] = { "suspend", "suspend", "load a table into", "resume" };
	struct exchange x = { steps, back, number, nr_back, NULL, -1 };
	uint32_t cookie = 0;
	int error, mark, result = LARDER_DONE;

	*blocked = 0;
	if (dry) {
		print_steps(steps, number);
		return LARDER_DONE;
	}
	x.result = mmap(NULL, sizeof(*x.result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must_allocate(x.result == MAP_FAILED ? NULL : x.result);
	mark = kernellog_mark();
	x.end = kernellog_mark();
	mlockall(MCL_CURRENT | MCL_FUTURE); /* where the process that carries it out is killed, or ends early, it is ours to go back */
	error = guard_run(exchange, &x);
	if (error) {
		if (error == GUARD_BROKEN)
			kernellog_move(x.end);
		go_back(&x, &cookie);
		wait_for_udev(cookie);
	}
	munlockall();
	if (error) {
		result = complain_until(error == GUARD_BROKEN ? EINTR : error, mark, x.end, steps[x.result->failed].name,
					actions[steps[x.result->failed].action]);
	} else {
		kernellog_close(mark);
		kernellog_close(x.end);
	}
	for (size_t i = error ? first_to_go_back(&x) : nr_back; i < nr_back; i++)
		if (back[i].action == MAPPED_RESUME && mapped_suspended(back[i].name))
			complain(result, "%s: stays suspended: the old table cannot be resumed either; try dmsetup resume %s", back[i].name, back[i].name);
	*blocked = x.result->blocked;
	munmap(x.result, sizeof(*x.result));
	return result;
}

int mapped_message(const char *name, const char *message)
{
	struct dm_task *task;
	int error, mark;

	if (dry) {
		printf("dmsetup message %s 0 '%s'\n", name, message);
		return LARDER_DONE;
	}
	mark = kernellog_mark();
	task = new_task(DM_DEVICE_TARGET_MSG, name);
	if (!dm_task_set_sector(task, 0) || !dm_task_set_message(task, message)) {
		dm_task_destroy(task);
		error = ENOMEM;
	} else {
		error = run(task, false);
	}
	if (error) {
		char *action = must_print("send '%s' to", message);
		int code = complain_of(error, mark, name, action);

		free(action);
		/* of a table it may be the device that is not as it should be, of a message only its words */
		return error == EINVAL ? LARDER_USAGE : code;
	}
	kernellog_close(mark);
	return LARDER_DONE;
}
