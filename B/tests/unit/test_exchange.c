// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/dm.c, with a device-mapper of our own: a table is exchanged for another one, and whatever fails then, the device is not left suspended
 * that could go on.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>

#include "../../lib/message.c"
#include "../../lib/dm.c"

#include "check.h"

/* ------------------------------------------------------------------ libdevmapper, and one device of the kernel */

struct dm_task {
	int type, error;
	const char *table;
};

static struct {
	const char *live, *loaded;
	bool suspended;
	bool freeze_fails, load_fails; /* of what follows */
	unsigned swap_fails, new_fails; /* so many exchanges, and resumes of the new one */
} device;

struct dm_task *dm_task_create(int type)
{
	struct dm_task *task = calloc(1, sizeof(*task));

	task->type = type;
	return task;
}

void dm_task_destroy(struct dm_task *task)
{
	free(task);
}

int dm_task_get_errno(struct dm_task *task)
{
	return task->error;
}

int dm_task_set_name(struct dm_task *task, const char *name)
{
	return task && !strcmp(name, "c");
}

int dm_task_add_target(struct dm_task *task, uint64_t start, uint64_t sectors, const char *type, const char *params)
{
	task->table = params;
	return !start && sectors == 8 && !strcmp(type, TARGET_CACHE);
}

int dm_task_no_flush(struct dm_task *task)
{
	return task != NULL;
}

int dm_task_no_open_count(struct dm_task *task)
{
	return task != NULL;
}

int dm_task_skip_lockfs(struct dm_task *task)
{
	return task != NULL;
}

int dm_task_set_cookie(struct dm_task *task, uint32_t *cookie, uint16_t flags)
{
	return task && cookie && !flags;
}

int dm_udev_get_sync_support(void)
{
	return 0;
}

int dm_udev_wait(uint32_t cookie)
{
	return !cookie;
}

const char *dm_task_get_uuid(const struct dm_task *task)
{
	return task ? "" : NULL;
}

/* The compiled name has the version of the structure. */
#undef dm_task_get_info
int dm_task_get_info(struct dm_task *task, struct dm_info *info)
{
	*info = (struct dm_info){ .exists = task->type == DM_DEVICE_INFO, .suspended = device.suspended, .live_table = 1 };
	return 1;
}

static unsigned resumes; /* so many were tried */

/* do_resume() of drivers/md/dm-ioctl.c */
static int resume_device(void)
{
	const char *new = device.loaded;

	if (new && !device.suspended && device.freeze_fails)
		return EIO; /* it stays loaded */
	device.loaded = NULL;
	if (new) {
		device.suspended = true;
		if (device.swap_fails) {
			device.swap_fails--;
			return EINVAL;
		}
		device.live = new;
	}
	if (!strcmp(device.live, "new") && device.new_fails) {
		device.new_fails--;
		return ESTALE;
	}
	device.suspended = false;
	return 0;
}

int dm_task_run(struct dm_task *task)
{
	switch (task->type) {
	case DM_DEVICE_RELOAD:
		task->error = device.load_fails ? ENXIO : 0;
		if (!task->error)
			device.loaded = task->table;
		break;
	case DM_DEVICE_RESUME:
		resumes++;
		task->error = resume_device();
		break;
	}
	return !task->error;
}

/* ------------------------------------------------------------------ the kernel's log */

#define END 7 /* the mark of where the new table's reason ends */

static unsigned marked; /* so many resumes came before it */

void kernellog_move(int mark)
{
	marked = mark == END ? resumes : 0;
}

/* ------------------------------------------------------------------ tests */

/* "new" is loaded, and made live; then this table is, or the device is suspended: NULL.  What is said of the way back is apart. */
static bool ends(int error, const char *live)
{
	struct swap swap = { .name = "c", .target = TARGET_CACHE, .old = "old", .sectors = 8, .end = END };
	bool good;

	device.live = "old";
	device.loaded = "new";
	device.suspended = false;
	resumes = marked = 0;
	good = swap_tables(&swap) == error && marked == 1 && device.suspended == !live && (!live || !strcmp(device.live, live));
	device.freeze_fails = device.load_fails = false;
	device.swap_fails = device.new_fails = 0;
	return good;
}

int main(void)
{
	check(ends(0, "new"), "it is exchanged");
	device.freeze_fails = true;
	check(ends(EIO, "old"), "it cannot be suspended: it goes on");
	device.new_fails = 1;
	check(ends(ESTALE, "old"), "the new one does not resume: the old one does");
	device.swap_fails = 1;
	check(ends(EINVAL, "old"), "it is not swapped: the old one is loaded again");
	device.swap_fails = 2;
	check(ends(EINVAL, "old"), "nor is the old one for itself: it is live still");
	device.swap_fails = 1;
	device.load_fails = true;
	check(ends(EINVAL, "old"), "it is not swapped, and cannot be loaded again: the old one is live still");
	device.new_fails = 1;
	device.load_fails = true;
	check(ends(ESTALE, "new"), "the old one cannot be loaded again: the new one resumes at a second try");
	device.new_fails = 3;
	device.load_fails = true;
	check(ends(ESTALE, NULL), "nor does the new one resume: it stays suspended, and is said to be");
	return failed;
}
