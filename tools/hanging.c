// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Devices that hang, and what is not read for them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "disks.h"
#include "hanging.h"
#include "message.h"
#include "stalled.h"

static struct {
	bool begun;
	struct stalls stalls;
	const struct stall_device **known; /* that hang */
	size_t nr_known;
	const struct stall_device **out; /* that hang, and for which something was not read */
	size_t nr_out;
} all;

static const char *root(void)
{
	const char *given = getenv("LARDER_ROOT");

	return given ? given : "";
}

static bool is_among(const struct stall_device *const *list, size_t number, const struct stall_device *device)
{
	for (size_t i = 0; i < number; i++)
		if (list[i] == device)
			return true;
	return false;
}

static void keep(const struct stall_device ***list, size_t *number, const struct stall_device *device)
{
	if (is_among(*list, *number, device))
		return;
	*list = must_allocate(realloc(*list, (*number + 1) * sizeof(**list)));
	(*list)[(*number)++] = device;
}

static void note_known(const struct stalls *stalls, const struct stall_device *device, void *data)
{
	(void)stalls;
	(void)data;
	keep(&all.known, &all.nr_known, device);
}

static void note_out(const struct stalls *stalls, const struct stall_device *device, void *data)
{
	(void)stalls;
	keep(&all.out, &all.nr_out, device);
	*(bool *)data = true;
}

static bool hangs(dev_t number)
{
	char *directory = disk_directory(root(), "", true, number);
	bool any = false;

	stalls_each(&all.stalls, stalls_find(&all.stalls, directory), STALL_SECONDS, note_out, &any);
	free(directory);
	return any;
}

static void note_all(void)
{
	for (size_t i = 0; i < all.stalls.number; i++)
		stalls_each(&all.stalls, all.stalls.device[i], STALL_SECONDS, note_known, NULL);
}

static char *directory_of(const struct mapped *mapped)
{
	return disk_directory(root(), mapped->name, mapped->number, mapped->number);
}

void hanging_look(const struct mapped_list *list)
{
	size_t before = all.stalls.number;

	if (!all.begun) {
		stalls_init(&all.stalls, root());
		if (!getenv("LARDER_DEVICES"))
			stalls_add_all(&all.stalls);
	}
	for (size_t i = 0; list && i < list->number; i++) {
		char *directory = directory_of(&list->mapped[i]);

		stalls_add(&all.stalls, directory);
		free(directory);
	}
	if (!all.begun || all.stalls.number > before) {
		stalls_watch(&all.stalls, STALL_SECONDS);
		note_all();
	}
	all.begun = true;
	device_leave_out(hangs);
}

bool hanging_more(void)
{
	size_t before = all.nr_known;

	stalls_look(&all.stalls, stalls_clock());
	note_all();
	return all.nr_known > before;
}

/* larderd, where it runs, knows for longer. */
static double seconds_of(const struct stalls *stalls, const struct stall_device *device)
{
	double seconds = stalls->now - device->since;
	struct stalled_list list;

	stalled_read(&list);
	for (size_t i = 0; i < list.number; i++)
		if (!strcmp(list.stalled[i].disk, device->name) && stalls->now - list.stalled[i].since > seconds)
			seconds = stalls->now - list.stalled[i].since;
	stalled_free(&list);
	return seconds;
}

static void add_problem(const struct stalls *stalls, const struct stall_device *device, void *data)
{
	char *text = stall_text(device, seconds_of(stalls, device)), *node = stall_node(device), *line = must_print("stall: %s ", node);
	struct problems *problems = data;
	bool known = false;

	for (size_t i = 0; i < problems->number; i++)
		known |= !strncmp(problems->text[i], line, strlen(line));
	if (!known)
		problem(problems, "stall", "%s", text);
	free(line);
	free(node);
	free(text);
}

static void below(char *directory, struct problems *problems)
{
	stalls_each(&all.stalls, stalls_find(&all.stalls, directory), STALL_SECONDS, add_problem, problems);
	free(directory);
}

void hanging_below(const struct mapped *mapped, struct problems *problems)
{
	below(directory_of(mapped), problems);
}

void hanging_below_device(dev_t number, struct problems *problems)
{
	below(disk_directory(root(), "", true, number), problems);
}

void hanging_remark(void)
{
	for (size_t i = 0; i < all.nr_out; i++) {
		char *text = stall_text(all.out[i], seconds_of(&all.stalls, all.out[i]));

		remark("%s; what is on it, and on what lies on it, was not read", text);
		free(text);
	}
}
