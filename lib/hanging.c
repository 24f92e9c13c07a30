// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Devices that hang, and what is not read for them.
 *
 * Three looks: at what has requests and answers none; by a read of each device, as of what has had none yet our own would be the first (first_read.h); and at what the
 * kernel says of those meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "disks.h"
#include "first_read.h"
#include "hanging.h"
#include "message.h"
#include "stalled.h"

static struct {
	bool begun, given; /* given: the devices are, by LARDER_DEVICES */
	bool asking;
	struct stalls stalls;
	dev_t *asked;
	size_t nr_asked;
	const struct stall_device **out; /* that hang, and for which something was not read */
	size_t nr_out, nr_said;
	struct stalled_list told; /* by larderd, where it runs; as of the look */
} all;

static const char *root(void)
{
	const char *given = getenv("LARDER_ROOT");

	return given ? given : "";
}

static void note_out(const struct stalls *stalls, const struct stall_device *device, void *data)
{
	(void)stalls;
	*(bool *)data = true;
	for (size_t i = 0; i < all.nr_out; i++)
		if (all.out[i] == device)
			return;
	all.out = must_allocate(realloc(all.out, (all.nr_out + 1) * sizeof(*all.out)));
	all.out[all.nr_out++] = device;
}

static const struct stall_device *find(dev_t number)
{
	char *directory = disk_directory(root(), "", true, number);
	const struct stall_device *device = stalls_find(&all.stalls, directory);

	free(directory);
	return device;
}

static bool hangs(dev_t number)
{
	return stalls_any(&all.stalls, find(number), STALL_SECONDS);
}

/* Of device_worth_reading(). */
static bool is_left_out(dev_t number)
{
	bool any = false;

	if (all.asking)
		return false;
	hanging_ask(&number, 1);
	stalls_each(&all.stalls, find(number), STALL_SECONDS, note_out, &any);
	return any;
}

static char *directory_of(const struct mapped *mapped)
{
	return disk_directory(root(), mapped->name, mapped->number, mapped->number);
}

/* True: for the first time. */
static bool begin(void)
{
	if (all.begun)
		return false;
	all.begun = true;
	all.given = getenv("LARDER_DEVICES");
	stalls_init(&all.stalls, root());
	if (!all.given)
		stalls_add_all(&all.stalls);
	stalled_read(&all.told);
	device_leave_out(is_left_out);
	return true;
}

void hanging_look(const struct mapped_list *list)
{
	bool first = begin();
	size_t before = all.stalls.number;

	for (size_t i = 0; list && i < list->number; i++) {
		char *directory = directory_of(&list->mapped[i]);

		stalls_add(&all.stalls, directory);
		free(directory);
	}
	if (first || all.stalls.number > before)
		stalls_watch(&all.stalls, STALL_SECONDS);
}

static void look(void)
{
	stalls_look(&all.stalls, stalls_clock());
}

static bool is_asked(dev_t number)
{
	for (size_t i = 0; i < all.nr_asked; i++)
		if (all.asked[i] == number)
			return true;
	return false;
}

/* False: it will not be read, or it is known how it is. */
static bool is_to_be_asked(dev_t number)
{
	char *directory;

	if (is_asked(number) || !device_worth_reading(number))
		return false;
	all.asked = must_allocate(realloc(all.asked, (all.nr_asked + 1) * sizeof(*all.asked)));
	all.asked[all.nr_asked++] = number;
	directory = disk_directory(root(), "", true, number);
	stalls_add(&all.stalls, directory);
	free(directory);
	return !hangs(number);
}

void hanging_ask(const dev_t *number, size_t count)
{
	dev_t *those = must_allocate(malloc((count + 1) * sizeof(*those)));
	size_t asked = 0;

	hanging_look(NULL);
	all.asking = true;
	for (size_t i = 0; !all.given && i < count; i++)
		if (is_to_be_asked(number[i]))
			those[asked++] = number[i];
	all.asking = false;
	first_read(those, asked, look, hangs);
	free(those);
}

/* larderd, where it runs, knows for longer. */
static double seconds_of(const struct stalls *stalls, const struct stall_device *device)
{
	double seconds = stalls->now - device->since;

	for (size_t i = 0; i < all.told.number; i++)
		if (!strcmp(all.told.stalled[i].disk, device->name) && stalls->now - all.told.stalled[i].since > seconds)
			seconds = stalls->now - all.told.stalled[i].since;
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
	for (; all.nr_said < all.nr_out; all.nr_said++) {
		const struct stall_device *device = all.out[all.nr_said];
		char *text = stall_text(device, seconds_of(&all.stalls, device));

		remark("%s; what is on it, and on what lies on it, was not read", text);
		free(text);
	}
}

bool hanging_each(void (*visit)(const char *node, void *data), void *data)
{
	for (size_t i = 0; i < all.nr_out; i++) {
		char *node = stall_node(all.out[i]);

		visit(node, data);
		free(node);
	}
	return all.nr_out;
}
