// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disks of a stack with dm-integrity below its array: started before the array, for which they are its disks.
 */
#include <string.h>
#include <sys/stat.h>

#include "integrity.h"
#include "stacks.h"

bool stack_has_legs(const struct members *members, const uint8_t uuid[16])
{
	for (size_t i = 0; i < members->number; i++)
		if (leg_is_of(&members->member[i]->sb, uuid))
			return true;
	return false;
}

static int start_leg(const char *name, const struct member *m, unsigned flags)
{
	struct leg_fields fields;
	uint8_t host[16];
	int result = LARDER_DONE;

	leg_is(&m->sb, &fields);
	if (leg_runs(m->sb.head.uuid, m->number))
		return LARDER_DONE;
	if (stack_host_is_foreign(fields.host)) {
		stack_host(host);
		result = flags & START_IMPORT ?
				 leg_set_host(m->path, m->sb.head.uuid, host) :
				 complain(LARDER_UNSAFE, "%s: is a disk of the stack %s as another machine has it; if that does not use it any more: larder start --import %s",
					  m->path, name, name);
	}
	return result ? result : leg_start(m->path, m->sb.head.uuid, fields.stack);
}

int start_legs(const char *name, const uint8_t uuid[16], unsigned flags)
{
	struct members members;
	int result = LARDER_DONE;

	members_scan(&members);
	for (size_t i = 0; !result && i < members.number; i++) {
		const struct member *m = members.member[i];

		if (!leg_is_of(&m->sb, uuid))
			continue;
		for (size_t j = 0; !result && j < members.number; j++)
			if (j != i && !memcmp(m->sb.head.uuid, members.member[j]->sb.head.uuid, 16))
				result = stack_refuse_copy(name, m->path, members.member[j]->path);
		result = result ? result : start_leg(name, m, flags);
		if (result && flags & START_DEGRADED) {
			remark("%s: goes on without %s", name, m->path);
			result = LARDER_DONE;
		}
	}
	members_free(&members);
	return result;
}

void release_legs(const struct stack *stack)
{
	struct md_array array;
	uint8_t part[16];

	stack_part(stack, "md", part);
	md_find(part, &array);
	if (!*array.node && !*array.inactive)
		legs_stop(stack->uuid);
	md_free(&array);
}

/* Of these each error is a sector that is repaired. */
void legs_expect_errors(const struct stack *stack)
{
	struct md_array array;
	uint8_t part[16];

	stack_part(stack, "md", part);
	md_find(part, &array);
	if (*array.node)
		md_take_read_errors(array.device, MD_READ_ERRORS);
	md_free(&array);
}

static bool is_among(const struct md_disks *disks, const char *node)
{
	struct stat status;

	for (size_t i = 0; !stat(node, &status) && i < disks->number; i++)
		if (disks->disk[i].number == status.st_rdev)
			return true;
	return false;
}

/* mdadm's rules for udev do that only where mdadm.conf says so. */
void legs_take_back(const struct stack *stack)
{
	struct md_array array;
	struct md_disks disks;
	uint8_t part[16];

	stack_part(stack, "md", part);
	md_find(part, &array);
	if (*array.node && md_disks(array.device, &disks) && disks.missing)
		for (size_t i = 0; i < array.number; i++)
			if (!is_among(&disks, array.leg[i]) && md_take_back(array.node, array.leg[i]))
				remark("%s: is not taken back: it is rebuilt as any disk by larder replace %s diskN DISK --wipe; larder show %s says which", stack->name,
				       stack->name, stack->name);
	md_free(&array);
}

bool stack_disks(const struct stack *stack, dev_t array, struct md_disks *disks)
{
	bool there = md_disks(array, disks);
	struct device device;
	uint8_t leg[16];
	char node[64];

	for (size_t i = 0; there && *stack->integrity && i < disks->number; i++) {
		struct md_disk *disk = &disks->disk[i];

		if (!*disk->node || !leg_of_device(disk->number, leg, node) || device_try(&device, node))
			continue;
		memcpy(disk->node, node, sizeof(disk->node));
		disk->number = device.number;
		device_close(&device);
	}
	return there;
}

char *stack_disk_for_md(const struct stack *stack, const char *disk)
{
	uint8_t leg[16];

	return *stack->integrity && leg_of_disk(disk, stack->uuid, leg) ? leg_node(leg) : must_print("%s", disk);
}
