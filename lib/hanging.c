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
#include <unistd.h>

#include "clock.h"
#include "device.h"
#include "disks.h"
#include "first_read.h"
#include "hanging.h"
#include "message.h"
#include "stalled.h"

#define LOOK_US 500000 /* between two looks */
#define SILENT_SECONDS 30 /* for which what was silent is not asked again: that takes its time */

struct numbers {
	dev_t *number;
	size_t count;
};

static struct {
	bool begun, given; /* given: the devices are, by LARDER_DEVICES */
	bool asking;
	struct stalls stalls;
	struct numbers asked, silent; /* silent: have not answered when they were asked, and do not hang */
	double silent_until; /* they are not asked before */
	const struct stall_device **out; /* that hang, or are silent, and for which something was not read */
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

static bool has(const struct numbers *numbers, dev_t number)
{
	for (size_t i = 0; i < numbers->count; i++)
		if (numbers->number[i] == number)
			return true;
	return false;
}

static void add(struct numbers *numbers, dev_t number)
{
	numbers->number = must_allocate(realloc(numbers->number, (numbers->count + 1) * sizeof(*numbers->number)));
	numbers->number[numbers->count++] = number;
}

static void note_silent(dev_t number)
{
	add(&all.silent, number);
	all.silent_until = clock_seconds() + SILENT_SECONDS;
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
	if (!any && has(&all.silent, number) && find(number))
		note_out(&all.stalls, find(number), &any);
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
	stalls_look(&all.stalls, clock_seconds());
}

static void add_to_look(dev_t number)
{
	char *directory = disk_directory(root(), "", true, number);

	stalls_add(&all.stalls, directory);
	free(directory);
}

/* False: it will not be read, or it is known how it is. */
static bool is_to_be_asked(dev_t number)
{
	if (has(&all.asked, number) || has(&all.silent, number) || !device_worth_reading(number))
		return false;
	add(&all.asked, number);
	add_to_look(number);
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
	first_read(those, asked, look, hangs, note_silent);
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

/* What is silent has no requests, and so has answered nothing for no time that is known. */
static char *text_of(const struct stall_device *device)
{
	char *node, *text;

	if (stalls_any(&all.stalls, device, STALL_SECONDS))
		return stall_text(device, seconds_of(&all.stalls, device));
	node = stall_node(device);
	text = must_print("%s could not be opened and read within %d s, as if its host were busy with the errors of another disk", node, FIRST_READ_SECONDS);
	free(node);
	return text;
}

void hanging_remark(void)
{
	for (; all.nr_said < all.nr_out; all.nr_said++) {
		char *text = text_of(all.out[all.nr_said]);

		remark("%s; what is on it, and on what lies on it, was not read", text);
		free(text);
	}
}

void hanging_again(void)
{
	if (!all.nr_out)
		return;
	look();
	all.asked.count = all.nr_out = all.nr_said = 0;
	if (clock_seconds() > all.silent_until)
		all.silent.count = 0;
}

size_t hanging_silent(dev_t *number, size_t room)
{
	size_t count = 0;

	for (; count < all.silent.count && count < room; count++)
		number[count] = all.silent.number[count];
	return count;
}

void hanging_keep_silent(const dev_t *number, size_t count, double seconds)
{
	hanging_look(NULL);
	all.silent_until = clock_seconds() + seconds;
	for (size_t i = 0; i < count; i++) {
		add(&all.silent, number[i]);
		add_to_look(number[i]);
	}
}

bool hanging_only_silent(void)
{
	for (size_t i = 0; i < all.nr_out; i++)
		if (stalls_any(&all.stalls, all.out[i], STALL_SECONDS))
			return false;
	return all.nr_out;
}

static bool any_hangs(void)
{
	for (size_t i = 0; i < all.stalls.number; i++)
		if (stalls_any(&all.stalls, all.stalls.device[i], STALL_SECONDS))
			return true;
	return false;
}

void hanging_wait(double seconds)
{
	double end = clock_seconds() + seconds;

	while (any_hangs() && clock_seconds() < end) {
		usleep(LOOK_US);
		look();
	}
}

bool hanging_any(void)
{
	return all.nr_out;
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
