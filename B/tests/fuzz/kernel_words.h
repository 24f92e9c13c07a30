/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Words of tables and messages, as kernel/target.c and kernel/cache_target.c read them. */
#ifndef FUZZ_KERNEL_WORDS_H
#define FUZZ_KERNEL_WORDS_H

#include <stddef.h>
#include <stdint.h>

enum words_of { WORDS_CACHE_TABLE, WORDS_VOLUME_TABLE, WORDS_CACHE_MESSAGE, WORDS_VOLUME_MESSAGE, WORDS_STACK, NR_WORDS };

/* Bytes in memory that the words "ssd", "ssd1" and "hdd" of tables name. */
struct words_device {
	uint8_t *bytes;
	size_t size;
};

/* Aborts where a promise is broken. */
void words_read(enum words_of what, unsigned argc, char **argv, const struct words_device device[3]);

#endif
