// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Stores of snapshots from a volume group (snapshot_space.h), by the program lvm.
 *
 * The UUID of a store follows from its stack and a serial number, and the logical volume has its name by that.  The number is noted before there is one, and
 * forgotten when it is gone: whoever comes behind a command that was cut short finds it, in whichever group.  At a boot LVM activates it, and it is known by
 * its mark, as any store is.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cow.h"
#include "device.h"
#include "message.h"
#include "program.h"
#include "size.h"
#include "snapshot_space.h"

#define TAG   "larder_store"
#define BLANK (2ull << 20) /* bytes at either end: superblocks of ours, and what others have there, may be of what was in that space before */

static char *volume_name(const uint8_t uuid[16])
{
	char text[UUID_TEXT];

	return must_print("larder-%s", uuid_text(uuid, text));
}

/* *value, to be freed by the caller: what it reports, one value; "": none.  False: it failed, with part of it done perhaps, and has said why on our stderr. */
static bool ask(const char *const *words, char **value)
{
	char *line = NULL, *first = NULL;
	size_t room = 0;
	int out;
	pid_t child;
	FILE *file;

	/* of the shell that has started us, perhaps */
	setenv("LVM_SUPPRESS_FD_WARNINGS", "1", true);
	child = program_begin(words, &out);
	file = child < 0 ? NULL : fdopen(out, "r");
	while (file && getline(&line, &room, file) > 0)
		if (!first)
			first = must_print("%.*s", (int)strcspn(line + strspn(line, " "), " \n"), line + strspn(line, " "));
	*value = first ? first : must_print("%s", "");
	if (child < 0)
		return false;
	free(line);
	if (file)
		fclose(file);
	else
		close(out);
	return !program_end(child, false);
}

/* Bytes that are free in it.  Complains. */
static int look(const char *group, uint64_t *available)
{
	const char *const words[] = { "lvm", "vgs", "--noheadings", "--nosuffix", "--units", "b", "--options", "vg_free", group, NULL };
	char *said, *end;
	int result = LARDER_DONE;

	if (!program_there("lvm"))
		return complain(LARDER_NOT_FOUND, "%s: lvm: is not here; install lvm2", group);
	if (!ask(words, &said))
		result = complain(LARDER_NOT_FOUND, "%s: there is no such volume group, or it cannot be read; vgs shows those that there are", group);
	errno = 0;
	*available = strtoull(said, &end, 10);
	if (!result && (errno || !*said || *end))
		result = complain(LARDER_FAILED, "%s: vgs says '%s', which is no number of bytes", group, said);
	free(said);
	return result;
}

int space_check(const char *group)
{
	uint64_t available;

	return look(group, &available);
}

int space_size(const char *group, uint64_t stack, uint64_t *bytes)
{
	static const struct size_format human = { 'h', true };
	char a[SIZE_TEXT], b[SIZE_TEXT];
	uint64_t available;
	int result = look(group, &available);

	if (result)
		return result;
	if (!*bytes) {
		*bytes = stack / SPACE_OF_STACK > SPACE_LEAST ? stack / SPACE_OF_STACK : SPACE_LEAST;
		*bytes = *bytes < available ? *bytes : available;
		*bytes = *bytes > COW_STORE_MIN ? *bytes : COW_STORE_MIN;
	}
	if (*bytes < COW_STORE_MIN)
		return complain(LARDER_USAGE, "--size: too small: a store has %s at least", size_print(a, COW_STORE_MIN, &human));
	if (*bytes > available)
		return complain(LARDER_FAILED, "%s: has %s free, and the store is to have %s; remove a snapshot, vgextend the group, or give a smaller --size", group,
				size_print(a, available, &human), size_print(b, *bytes, &human));
	return LARDER_DONE;
}

static int blank(const char *path)
{
	struct device device;
	int error, result = device_open(&device, path, DEVICE_CLAIM);

	if (result)
		return result;
	error = device_zero(&device, 0, BLANK);
	error = error ? error : device_zero(&device, device.bytes - BLANK, BLANK);
	error = error ? error : device_sync(&device);
	device_close(&device);
	return error ? complain(LARDER_FAILED, "%s: cannot be written: %s", path, strerror(-error)) : LARDER_DONE;
}

int space_take(const char *group, const uint8_t uuid[16], uint64_t bytes, bool dry_run, char **path)
{
	char *name = volume_name(uuid), *size = must_print("%" PRIu64 "b", bytes), *said = NULL;
	const char *const words[] = { "lvm", "lvcreate", "--yes", "--wipesignatures", "n", "--addtag", TAG, "--name", name, "--size", size, group, NULL };
	int result = LARDER_DONE;

	*path = must_print("/dev/%s/%s", group, name);
	if (dry_run) {
		for (size_t i = 0; words[i]; i++)
			printf("%s%s", i ? " " : "", words[i]);
		printf("\n");
	} else {
		if (program_run(words, &said))
			result = complain(LARDER_FAILED, "%s: lvcreate: %s", group, said);
		free(said);
		result = result ? result : blank(*path);
	}
	free(size);
	free(name);
	return result;
}

/* *group, to be freed by the caller: that it is of; NULL, or "": none.  False: LVM cannot say. */
static bool find_group(const char *name, char **group)
{
	char *select = must_print("lv_name=%s && lv_tags=" TAG, name);
	const char *const find[] = { "lvm", "lvs", "--noheadings", "--options", "vg_name", "--select", select, NULL };
	bool answered;

	*group = NULL;
	answered = !program_there("lvm") || ask(find, group);
	free(select);
	return answered;
}

bool space_activate(const uint8_t uuid[16])
{
	char *name = volume_name(uuid), *group, *volume, *said = NULL;
	bool active = false;

	find_group(name, &group);
	if (group && *group) {
		volume = must_print("%s/%s", group, name);
		const char *const words[] = { "lvm", "lvchange", "--yes", "--activate", "y", volume, NULL };

		active = !program_run(words, &said);
		if (!active)
			remark("%s: lvchange: %s; key slots of then stay in the space that it has had", volume, said);
		free(said);
		free(volume);
	}
	free(group);
	free(name);
	return active;
}

int space_give_back(const uint8_t uuid[16], bool elsewhere, bool *was)
{
	char *name = volume_name(uuid), *group, *volume, *said = NULL;
	bool answered = find_group(name, &group);
	int result = LARDER_DONE;

	*was = group && *group;
	if (*was) {
		volume = must_print("%s/%s", group, name);
		const char *const words[] = { "lvm", "lvremove", "--yes", volume, NULL };

		if (program_run(words, &said))
			result = complain(LARDER_FAILED, "%s: lvremove: %s", volume, said);
		free(said);
		free(volume);
	} else if (!answered && !elsewhere) {
		result = complain(LARDER_FAILED, "%s: lvs: has failed, and the store may be this logical volume; once lvs works, run the same again", name);
	}
	free(group);
	free(name);
	return result;
}
