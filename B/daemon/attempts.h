/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Starts that the kernel refused, and steps for what runs that failed.  A start makes a dm device and removes it again, and both are events: without
 * a memory the attempt itself would ask for the next one, for ever.  So each is held back, for longer each time, until its time comes or somebody has done something.
 */
#ifndef LARDER_ATTEMPTS_H
#define LARDER_ATTEMPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "../kernel/larder_format.h"

#define ATTEMPT_TEXT_MAX 512

#define ATTEMPTS_MAX 256 /* those that are too many are not held back */
#define ATTEMPT_FIRST_US UINT64_C(30000000)
#define ATTEMPT_LAST_US UINT64_C(3600000000)

struct attempt {
	uint8_t uuid[16]; /* of the cache, or volume */
	char name[LARDER_LABEL_SIZE + 32]; /* of dm */
	bool cache;
	int result;
	uint64_t again, wait; /* microseconds, on the clock of facts.now: when it is tried again; how long that was */
	bool held; /* in this pass */
	uint8_t about[16]; /* of attempts_told() */
	char text[ATTEMPT_TEXT_MAX];
};

struct attempts {
	uint32_t number;
	struct attempt attempt[ATTEMPTS_MAX];
};

/* For how long what has failed, or a pass that was killed, is put off, by how long it was the last time; 0: it was not, and this is the first time. */
uint64_t attempts_wait(uint64_t last, uint64_t first);
/* NULL: it has not failed. */
const struct attempt *attempts_find(const struct attempts *attempts, const uint8_t uuid[16]);
/* At the beginning of a pass: those whose time has not come are held. */
void attempts_hold(struct attempts *attempts, uint64_t now);
/* At the end of a pass that looked last at this time: when the next one is due; 0: for these there need not be any. */
uint64_t attempts_again(const struct attempts *attempts, uint64_t now);
/* A start failed at this time. */
void attempts_failed(struct attempts *attempts, const uint8_t uuid[16], bool cache, const char *name, int result, uint64_t now);
/* What was told of it, and of whom: for who tells that again while it is held. */
void attempts_told(struct attempts *attempts, const uint8_t uuid[16], const uint8_t about[16], const char *text);
/* It runs, or is not there any more. */
void attempts_forget(struct attempts *attempts, const uint8_t uuid[16]);

#endif
