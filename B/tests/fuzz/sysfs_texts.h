/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files of sysfs, in the place of lib/device.c's: what each that is read has is the next text of the input, whatever its name. */
#ifndef FUZZ_SYSFS_TEXTS_H
#define FUZZ_SYSFS_TEXTS_H

#include <sys/types.h>

#include "input.h"

static const uint8_t *texts;
static size_t texts_size;

/* False behind the last text: there is no such file. */
bool device_attribute(dev_t number, const char *name, char *text, size_t size)
{
	char *next;
	bool there = texts_size;

	must(number || *name, "a device");
	next = input_next(&texts, &texts_size);
	if (there)
		snprintf(text, size, "%s", next);
	free(next);
	return there;
}

#endif
