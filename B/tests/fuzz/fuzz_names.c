// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for names of pinned files (lib/pinned_names.c), as the attribute of a filesystem from anywhere has them, and lists of rules that pin
 * (lib/pins.c), as the kernel's status has them.  Input: a byte (0: an attribute; 1: a name, and a path below mounted filesystems, each ended by a NUL; else a
 * list of rules).  Aborts where a name leads out of its filesystem, or a list is another one when it is written anew.
 */
#include "../../lib/pinned_names.c"
#include "input.h"
#include "pins.h"

/* As pinned_names.h has it, said another way. */
static bool stays_below(const char *name)
{
	char *copy = input_text((const uint8_t *)name, strlen(name)), *rest = copy, *part;
	bool good = true;

	while ((part = strsep(&rest, "/")))
		good = good && *part && strcmp(part, ".") != 0 && strcmp(part, "..") != 0;
	for (const char *c = name; *c; c++)
		good = good && (unsigned char)*c >= 0x20 && *c != 0x7f;
	free(copy);
	return good;
}

static void try_attribute(const uint8_t *data, size_t size)
{
	char names[PINNED_NAMES_MAX], before[PINNED_NAMES_MAX], name[PINNED_NAMES_MAX];
	size_t at = 0;

	if (size >= sizeof(names))
		return;
	memcpy(names, data, size);
	names[size] = 0;
	if (!list_valid(names, size))
		return;
	while (pinned_names_next(names, &at, name)) {
		must(stays_below(name) && pinned_names_have(names, name), "a name leads out, or is not there");
		memcpy(before, names, sizeof(before));
		pinned_names_drop(before, name);
		must(!pinned_names_have(before, name) && list_valid(before, strlen(before)), "it is dropped");
		must(pinned_names_add(before, name) && list_valid(before, strlen(before)) && pinned_names_have(before, name), "it is added again");
	}
	must(at == size, "all of it are names");
}

static void try_name(const uint8_t *data, size_t size)
{
	char *name = input_next(&data, &size), *path = input_next(&data, &size), in[PATH_MAX];
	struct pin_roots roots = { 0 };
	const struct pin_root *root;

	must(pinned_name_valid(name) == stays_below(name), "a name that is valid");
	while (size && roots.number < 8) {
		char *point = input_next(&data, &size);
		struct pin_root *one;

		roots.root = realloc(roots.root, (roots.number + 1) * sizeof(*roots.root));
		must(roots.root, "memory");
		one = &roots.root[roots.number++];
		memset(one, 0, sizeof(*one));
		snprintf(one->point, sizeof(one->point), "/%s", point);
		one->number = *point;
		free(point);
	}
	root = strlen(path) < PATH_MAX ? pin_root_of(&roots, path, in) : NULL;
	if (root)
		must(strlen(in) < strlen(path) && !strcmp(path + strlen(path) - strlen(in), in), "the name is the end of the path");
	pin_roots_free(&roots);
	free(path);
	free(name);
}

static void try_rules(const uint8_t *data, size_t size)
{
	char *list = input_next(&data, &size), *without = class_without_pins(list), *with, *once;
	struct ranges pins, again;
	const char *rest = class_pins(list, &pins);
	unsigned pinning;

	must(rest >= list && rest <= list + strlen(list), "a rest");
	for (size_t i = 0; i < pins.number; i++)
		must(pins.range[i].first < pins.range[i].end, "a range");
	must(class_rules(list, &pinning) >= pins.number && pinning >= pins.number, "so many rules");
	with = class_with_pins(without, &pins);
	rest = class_pins(with, &again);
	must(again.number >= pins.number && (!pins.number || !memcmp(again.range, pins.range, pins.number * sizeof(*pins.range))), "other pins");
	once = class_with_pins(with, &again);
	must(!strcmp(with, once), "another list");
	ranges_join(&again);
	for (size_t i = 1; i < again.number; i++)
		must(again.range[i - 1].end < again.range[i].first, "joined");
	ranges_close(&again, 3);
	must(again.number <= 3 && ranges_length(&again) >= ranges_length(&pins) / (pins.number + 1), "closed");
	ranges_free(&again);
	ranges_free(&pins);
	free(once);
	free(with);
	free(without);
	free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] == 0)
		try_attribute(data + 1, size - 1);
	else if (data[0] == 1)
		try_name(data + 1, size - 1);
	else
		try_rules(data + 1, size - 1);
	return 0;
}
