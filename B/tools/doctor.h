/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What `larder doctor` looks at, and what it finds. */
#ifndef LARDER_DOCTOR_H
#define LARDER_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "stacks.h"

enum finding_level {
	FINDING_ADVICE, /* it works, but slower or less safe than it could */
	FINDING_WRONG, /* something does not work, or will not after the next boot, or data is in danger */
};

struct finding {
	enum finding_level level;
	const char *check; /* larder-doctor(8) lists them */
	char *subject; /* a device, cache, volume, stack, kernel */
	char *text; /* what it is; and the command that cures it */
};

struct findings {
	const char *root; /* of the system that is examined: "" or a directory */
	struct finding *finding;
	size_t number;
};

void finding(struct findings *findings, enum finding_level level, const char *check, const char *subject, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* What could be started and is not, and why.  Returns 0 or an exit code, and has complained. */
int examine_assembly(struct findings *findings);
/* Installed kernels without the module, initramfs images without our parts. */
void examine_system(struct findings *findings);
/* The disks that a member, of one of these stacks or of none, is on: how it is aligned to them, what they are like. */
void examine_disks(struct findings *findings, const struct member *member, const struct stacks *stacks);

#endif
