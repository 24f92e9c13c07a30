/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Block devices that hang: that have requests and answer none, without any error.  By sysfs alone: nothing is opened that could wait for them.
 *
 * A set is looked at again and again.  Before a look its devices are told anew (stalls_begin(), stalls_add()), or stay those of the last one.
 */
#ifndef LARDER_STALLS_H
#define LARDER_STALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Seconds for which a device that hangs has answered nothing, where a command waits to see that.  A disk that works answers within some 20 ms, a queue of
 * 32 of its requests within half a second, an SSD that collects garbage within one; longer are retries of a bad sector (7 s and more), and a start of the
 * motor (10 s): of these it is true as well that they answer nothing.  larderd has more time.
 */
#define STALL_SECONDS 2

/* What a look at a whole disk, md or dm device says. */
struct stall_counts {
	uint64_t answered; /* requests: another number behind each that was */
	uint64_t in_flight;
	uint64_t sequence; /* each device has its own, also behind one that had its name; 0: the kernel gives none */
	bool held; /* it begins no requests, and the kernel counts those that come nowhere: suspended (dm), or its connection is away */
};

struct stall_device {
	char *directory; /* in sysfs */
	const char *name; /* sda: the end of that */
	bool listed; /* for the next look */
	bool seen; /* in the last one */
	struct stall_counts counts;
	bool waits; /* it has requests, or is held, and has answered nothing */
	double since; /* if so; seconds, on the clock of the looks */
	double moved; /* when it was last seen to have answered something; negative: never */
	struct stall_device **below;
	size_t nr_below;
};

struct stalls {
	char *root; /* of the system below that directory; "": this one */
	bool old; /* the kernel counts requests of bio based devices when they begin: before 6.3 */
	double now; /* of the last look */
	struct stall_device **device;
	size_t number;
};

void stalls_init(struct stalls *stalls, const char *root);
void stalls_free(struct stalls *stalls);
void stalls_begin(struct stalls *stalls);
/* The device with that directory in sysfs, of a partition its disk, and all below it.  NULL: there is none. */
struct stall_device *stalls_add(struct stalls *stalls, const char *directory);
/* All block devices. */
void stalls_add_all(struct stalls *stalls);

void stalls_look(struct stalls *stalls, double now); /* clock_seconds() */
/* Looks for so many seconds, or until no device is left that has waited since the first look: at once, where none does. */
void stalls_watch(struct stalls *stalls, double seconds);

/*
 * The lowest devices that have hung for so many seconds, at device and below it.  One that waits, as nobody knows what it waits for below it, hangs only if
 * nothing has moved there meanwhile: an array, or a volume, may have one request, a flush say, that waits for a disk which is busy.
 */
void stalls_each(const struct stalls *stalls, const struct stall_device *device, double seconds,
		 void (*visit)(const struct stalls *stalls, const struct stall_device *device, void *data), void *data);
/* Does one, at it or below it?  What reads from it may wait then. */
bool stalls_any(const struct stalls *stalls, const struct stall_device *device, double seconds);
/* That directory's; NULL: it is not in the set. */
struct stall_device *stalls_find(const struct stalls *stalls, const char *directory);

/* In words: its node; what it does, for so long, and what mends it.  The caller frees them. */
char *stall_node(const struct stall_device *device);
char *stall_text(const struct stall_device *device, double seconds);

/*
 * Parts of a look, without I/O.  stat, inflight: the files of sysfs; partitions: in flight of its partitions, which are none of the disk's where that is
 * bio based.  False: that is no such file.
 */
bool stall_counts(struct stall_counts *counts, const char *stat, const char *inflight, uint64_t partitions, bool bio_based, bool old);
/* now: NULL: it is gone. */
void stall_judge(struct stall_device *device, const struct stall_counts *now, double clock);

#endif
