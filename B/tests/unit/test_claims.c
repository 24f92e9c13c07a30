// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_claims.c: whether what is given has room for a new stack.  Devices are what the tests say of them, and want their
 * requests to be as the tests say, which a file does not.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.h"

static char said[512]; /* the last complaint */
#define complain(code, ...) ((void)snprintf(said, sizeof(said), __VA_ARGS__), code)
#include "../../tools/stack_claims.c"
#include "check.h"

#define MIB (1ull << 20)
#define SAS 16773120u /* what many disks report: 4095 blocks */

static struct {
	uint64_t bytes, io_opt;
} disks[4]; /* called "0", "1", ... */

int claim_open(struct device *device, const struct claim_request *request)
{
	int number = atoi(request->path);

	*device = (struct device){ .path = (char *)request->path, .block = true, .logical_block = 512 };
	device->bytes = disks[number].bytes;
	device->number = (dev_t)number + 1;
	return LARDER_DONE;
}

int claim_clear(const struct device *device, const struct claim_request *request)
{
	return device->block && request->dry_run ? LARDER_DONE : LARDER_FAILED;
}

void device_close(struct device *device)
{
	*device = (struct device){ 0 };
}

void device_topology(const struct device *device, struct device_topology *topology)
{
	*topology = (struct device_topology){ .io_min = 4096, .io_opt = disks[atoi(device->path)].io_opt };
}

static dev_t entangled; /* a disk that lies on a volume of the cache */

int running_check_entangled(const struct mapped_list *list, const char *path, dev_t number, const uint8_t cache[16])
{
	return !list && path && cache && number == entangled ? LARDER_UNSAFE : LARDER_DONE;
}

int create_check_apart(const char *const *paths, int number, const char *what)
{
	return paths && number && what ? LARDER_DONE : LARDER_FAILED;
}

/* So many disks of that kind, with a filesystem over them; raid "": each has a volume of its own. */
static int look(unsigned number, uint64_t bytes, uint64_t io_opt, const char *raid, const char *fs, uint64_t size)
{
	struct stack stack = { .legs = *raid ? number : 1, .size = size };
	struct stack_request request = { .disks = { { "0", "1", "2", "3" }, (int)number }, .separate = number > 1 && !*raid };
	struct claims claims = { 0 };

	strcpy(stack.raid, raid);
	strcpy(stack.fs, fs);
	for (unsigned i = 0; i < number; i++) {
		disks[i].bytes = bytes;
		disks[i].io_opt = io_opt;
	}
	return claims_look(&request, &stack, &claims);
}

/* The most that --size may be, by halves. */
static uint64_t most(unsigned number, uint64_t bytes, uint64_t io_opt, const char *raid)
{
	uint64_t good = 4 * MIB, bad = 2 * number * bytes;

	while (bad - good > LARDER_SLOT_SIZE) {
		uint64_t middle = (good + bad) / 2 & ~(uint64_t)(LARDER_SLOT_SIZE - 1);

		if (look(number, bytes, io_opt, raid, "", middle))
			bad = middle;
		else
			good = middle;
	}
	return good;
}

/* What the data of a volume have of an array: as mdadm leaves it, behind an offset that is chosen for what the array hands on. */
static uint64_t has(uint64_t array, uint64_t io_opt)
{
	const struct device_topology topology = { .io_min = 4096, .io_opt = io_opt };

	return array - volume_data_offset(&topology, array) - LARDER_DEF_TAIL_RESERVE;
}

int main(void)
{
	check(!look(1, 304 * MIB, 0, "", "xfs", 0), "a LUN of 304 MiB for xfs");
	check(look(1, 304 * MIB, 4 * MIB, "", "xfs", 0) == LARDER_FAILED, "not where its data begin at 4 MiB");
	check(strstr(said, "0: size: too small: of 304.00MiB 299.00MiB would be left") && strstr(said, "needs 300.00MiB"), said);
	check(!look(1, 305 * MIB, 4 * MIB, "", "xfs", 0), "with one MiB more it is");
	check(!look(1, 302 * MIB, 0, "", "xfs", 0), "just enough");
	check(look(1, 302 * MIB - 4096, 0, "", "xfs", 0) == LARDER_FAILED, "a block less");
	check(!look(2, 304 * MIB, 0, "", "xfs", 0), "several volumes");
	check(look(2, 304 * MIB, 4 * MIB, "", "xfs", 0) == LARDER_FAILED, "each of which is too small");
	check(most(1, 5000 * MIB, 0, "") == 4998 * MIB, "a size on one disk");
	check(most(1, 5000 * MIB, 4 * MIB, "") == 4995 * MIB, "behind 4 MiB");
	/* mdadm leaves 16 MiB at most in front of so small an array: whatever is taken now must be there then */
	check(most(2, 5000 * MIB, 0, "1") <= has(4984 * MIB, 0), "a mirror");
	check(most(2, 5000 * MIB, SAS, "1") <= has(4984 * MIB, SAS), "a mirror of disks that want 16 MiB at once");
	check(most(2, 5000 * MIB, SAS, "1") + 2 * MIB > has(4984 * MIB, SAS), "no more than a little is left for that");
	check(most(4, 5000 * MIB, 3 * MIB, "10") <= has(2 * 4984 * MIB, 6 * MIB), "stripes of 2 MiB, disks that want 3 MiB: 6 MiB");
	check(look(2, 22 * MIB, SAS, "1", "ext4", 0) == LARDER_DONE, "a small mirror takes no notice");
	entangled = 2;
	check(look(2, 304 * MIB, 0, "1", "", 0) == LARDER_UNSAFE, "a disk that lies on a volume of its cache");
	return failed;
}
