/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A start of the kernel's, up to where it begins to write, of SSDs in memory: kernel/recover.c, load.c, replay.c, super.c as they are. */
#ifndef FUZZ_KERNEL_START_H
#define FUZZ_KERNEL_START_H

#include <stddef.h>
#include <stdint.h>

struct start_ssd {
	uint8_t *bytes; /* NULL: it is not given */
	size_t size;
	uint64_t bad, nr_bad; /* sectors that cannot be read */
};

/*
 * 0, or why it is refused: -errno.  Aborts where a promise is broken; what a start has written to the SSDs is as it was.  *dirty: sectors that are newer than the
 * backing.
 */
int start_of_images(const struct start_ssd *ssd, unsigned nr, unsigned long long *dirty);

#endif
