/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the targets of userland have in common: how a broken promise ends, and texts of an input. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s: broken: %s\n", program_invocation_short_name, what);
	abort();
}

/* All of it as a text, in memory exactly so big, so that ASan sees any byte beyond; the caller frees it. */
static inline char *input_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	must(text, "memory");
	if (size)
		memcpy(text, data, size);
	text[size] = 0;
	return text;
}

/* The bytes up to the next NUL, and on behind that; "" at the end.  The caller frees it. */
static inline char *input_next(const uint8_t **data, size_t *size)
{
	const uint8_t *end = *size ? memchr(*data, 0, *size) : NULL;
	size_t length = end ? (size_t)(end - *data) : *size;
	char *text = input_text(*data, length);

	length += !!end;
	*data += length;
	*size -= length;
	return text;
}

#endif
