/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a disk says it is: NVMe's health log, or what smartctl, where it is installed, says of any other.
 *
 * Asking, decoding and judging are apart: what decodes and judges is tested with what real disks have said.
 */
#ifndef LARDER_HEALTH_H
#define LARDER_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "problems.h"

#define HEALTH_NVME_LOG_SIZE 512
#define HEALTH_UNKNOWN	     (-1)

struct health {
	bool answered; /* else nothing below counts */
	double silent; /* it has not answered for so many seconds, and is not waited for */
	bool failing; /* its own verdict */
	bool read_only; /* it takes no writes any more */
	bool hot; /* beyond its own limit */
	bool says_hot; /* and it has one, and says so: NVMe */
	int celsius, limit; /* now; what it is made for, or some average */
	int used; /* percent of the writes that it is made for; may exceed 100 */
	int spare, spare_least; /* percent of its spare blocks */
	int64_t pending; /* sectors that it could not read, and that were not written since */
	uint64_t link, link_most; /* bits per second: agreed upon, and what the disk could; 0: not known */
};

struct health_of {
	const char *disk; /* sda */
	bool cache; /* an SSD of a cache, or else (part of) a backing */
	bool rotational;
	const char *replace, *scrub; /* commands that exchange it, and read all of it; NULL: not known, those for any are named */
};

/* Of the log page 2 of NVMe; of what `smartctl --json` prints, length bytes.  Neither believes what it reads: any bytes will do. */
void health_of_nvme(struct health *health, const uint8_t log[static HEALTH_NVME_LOG_SIZE]);
void health_of_smartctl(struct health *health, const char *json, size_t length);

/*
 * Asks the disk, which may take long where it is ill, or for ever; seconds: what smartctl may take, 0: as long as it does.  An idle one that has
 * spun down is left so, and not answered, unless wake.  Says nothing.
 */
void health_ask(struct health *health, const char *disk, bool wake, double seconds);
/* What a disk may take, in seconds. */
double health_patience(void);
/* The words about one that has taken more, to be freed by the caller. */
char *health_silence(const char *disk, double seconds);

/*
 * What follows: wrong is what puts data in danger, advice what will, or makes it slow.  Each text is "key: words", with the command that mends
 * it; the keys are answer, failing, read_only, spare, worn, hot, pending, link.
 */
void health_judge(const struct health *health, const struct health_of *of, struct problems *wrong, struct problems *advice);

#endif
