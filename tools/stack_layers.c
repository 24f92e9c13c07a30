// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The layers of a stack: which of them run, where their devices are, and where the filesystem is mounted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cow.h"
#include "crypt_layer.h"
#include "disks.h"
#include "message.h"
#include "mounts.h"
#include "running.h"
#include "stack_layers.h"

struct mapped *stack_volume(const struct stacks *stacks, const struct stack *stack)
{
	uint8_t part[16];

	stack_part(stack, "volume", part);
	return running_by_uuid(&stacks->list, part, false);
}

/* A btrfs has a number of its own in mountinfo, but tells its device. */
static bool mount_is_of(const struct mount *mount, dev_t number)
{
	struct stat status;

	return makedev(mount->high, mount->low) == number ||
	       (mount->source[0] == '/' && !stat(mount->source, &status) && S_ISBLK(status.st_mode) && status.st_rdev == number);
}

/* Where a device is mounted: as root, if it is, wherever else.  *covered: something else is, too, at the same place, and would be unmounted first. */
static void find_mount(dev_t number, char where[static PATH_MAX], bool *covered)
{
	FILE *file = mounts_open();
	struct mount *mounts = must_allocate(calloc(2, sizeof(*mounts))), *ours = &mounts[0], *other = &mounts[1];

	where[0] = 0;
	*covered = false;
	while (file && strcmp(where, "/") && mounts_next(file, other))
		if (mount_is_of(other, number) && (!*where || !strcmp(other->point, "/"))) {
			*ours = *other;
			strcpy(where, ours->point);
		}
	if (file)
		rewind(file);
	while (file && *where && mounts_next(file, other))
		*covered |= other->parent == ours->id && !strcmp(other->point, ours->point) && !mount_is_of(other, number);
	if (file)
		fclose(file);
	free(mounts);
}

static void find_node(const struct stack *stack, const uint8_t uuid[16], struct layers *layers)
{
	char text[UUID_TEXT], found[DM_UUID_MAX], *dm_uuid = must_print("LARDER-%s", uuid_text(uuid, text));
	const char *name = layers->volume ? layers->volume->name : stack->name;

	if (layers->volume)
		layers->node_number = layers->volume->number;
	else
		layers->linear = mapped_look(name, found, &layers->node_number) && !strcmp(found, dm_uuid) && mapped_is_without_larder(name);
	if (layers->volume || layers->linear)
		snprintf(layers->node, sizeof(layers->node), "/dev/mapper/%s", name);
	free(dm_uuid);
}

void layers_find(const struct stacks *stacks, const struct stack *stack, struct layers *layers)
{
	uint8_t part[16];

	*layers = (struct layers){ 0 };
	if (*stack->raid) {
		stack_part(stack, "md", part);
		md_find(part, &layers->array);
	}
	stack_part(stack, "volume", part);
	layers->volume = running_by_uuid(&stacks->list, part, false);
	layers->left_over = layers->volume && strstr(layers->volume->uuid, BELOW_ORIGIN);
	if (layers->left_over)
		layers->volume = NULL;
	layers->cache = running_by_uuid(&stacks->list, stack->cache, true);
	find_node(stack, part, layers);
	if (stack->encrypted) {
		char *name = crypt_name(stack);
		bool half;

		layers->open = crypt_look(stack, &layers->top_number, &half);
		if (layers->open)
			snprintf(layers->top, sizeof(layers->top), "/dev/mapper/%s", name);
		free(name);
	} else {
		layers->top_number = layers->node_number;
		memcpy(layers->top, layers->node, sizeof(layers->top));
	}
	if (*layers->top)
		find_mount(layers->top_number, layers->mounted, &layers->covered);
}

void layers_free(struct layers *layers)
{
	md_free(&layers->array);
}

char *stack_top_node(const struct stack *stack)
{
	char *name = stack->encrypted ? crypt_name(stack) : must_print("%s", stack->name), *node = mapper_path(name);

	free(name);
	return node;
}

static bool mapped_is_remote(const char *name)
{
	char *node = mapper_path(name);
	bool remote = device_is_remote(node);

	free(node);
	return remote;
}

/* A store is below its snapshot, and not below the volume. */
bool stack_is_remote(const struct stack *stack)
{
	char name[DM_NAME_MAX], *uuid;
	struct mapped_names names;
	uint8_t part[16];
	bool remote;

	stack_part(stack, "volume", part);
	uuid = cow_volume_uuid(part);
	remote = mapped_name_of(uuid, name) && mapped_is_remote(name);
	if (!remote) {
		mapped_scan_below(uuid, &names);
		for (size_t i = 0; i < names.nr_half && !remote; i++)
			remote = mapped_is_remote(names.half[i]);
		mapped_names_free(&names);
	}
	free(uuid);
	return remote;
}
