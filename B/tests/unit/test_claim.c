// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/claim.c: what had a path when it was looked at first is what has it when it is opened; who notes that says nothing.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>

#include "../../lib/claim.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"
#include "memory.h"

static unsigned complaints;

int complain(enum larder_exit code, const char *format, ...)
{
	complaints += code == LARDER_UNSAFE;
	return code;
}

static uint64_t bytes; /* of what has the path now; 0: nothing has */

int device_try(struct device *device, const char *path)
{
	*device = (struct device){ .path = (char *)path, .fd = -1, .bytes = bytes };
	return bytes ? 0 : -ENOENT;
}

int device_open(struct device *device, const char *path, enum device_access access)
{
	return device_try(device, path) ? LARDER_NOT_FOUND : LARDER_DONE;
}

void device_close(struct device *device)
{
	(void)device;
}

/* As of a store: judged before it is asked whether it may be wiped, and taken behind the answer. */
static void swapped(void)
{
	const struct claim_request request = { .path = "store" };
	struct device device;

	bytes = 0;
	claim_note(request.path);
	bytes = 64;
	claim_note(request.path);
	CHECK(!claim_open(&device, &request) && !complaints, "%u complaints", complaints);
	bytes = 65;
	claim_note(request.path);
	CHECK(!complaints, "who notes it has complained");
	CHECK(claim_open(&device, &request) == LARDER_UNSAFE && complaints == 1, "%u complaints", complaints);
	bytes = 64;
	CHECK(!claim_open(&device, &request) && complaints == 1, "it is what it was");
}

int main(void)
{
	run_test("swapped", swapped);
	return 0;
}
