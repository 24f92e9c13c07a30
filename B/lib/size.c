// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sizes in and out.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "size.h"

static const char units[] = "bkmgtpe";

/* "", "b", "s", "k", "kb", "kib" and so on, any case.  False if it is none of them. */
static bool unit_parse(const char *text, uint64_t *factor)
{
	const char *unit;
	bool thousand;

	*factor = 1;
	if (!*text || !strcasecmp(text, "b"))
		return true;
	if (!strcasecmp(text, "s")) {
		*factor = 512;
		return true;
	}
	unit = strchr(units + 1, tolower((unsigned char)*text));
	if (!unit)
		return false;
	thousand = !strcasecmp(text + 1, "b");
	if (text[1] && !thousand && strcasecmp(text + 1, "ib"))
		return false;
	for (long i = unit - units; i > 0; i--)
		*factor *= thousand ? 1000 : 1024;
	return true;
}

bool size_parse(const char *text, uint64_t *bytes)
{
	unsigned __int128 value = 0, fraction = 0, scale = 1;
	bool digits = false;
	uint64_t factor;

	for (; isdigit((unsigned char)*text); text++, digits = true) {
		value = value * 10 + (unsigned)(*text - '0');
		if (value > UINT64_MAX)
			return false;
	}
	if (digits && *text == '.')
		for (text++; isdigit((unsigned char)*text); text++) {
			if (scale >= 1000000000)
				continue;
			fraction = fraction * 10 + (unsigned)(*text - '0');
			scale *= 10;
		}
	while (*text == ' ')
		text++;
	if (!digits || !unit_parse(text, &factor))
		return false;
	value = value * factor + fraction * factor / scale;
	*bytes = (uint64_t)value;
	return value <= UINT64_MAX;
}

bool size_format_parse(const char *text, struct size_format *format)
{
	if (strlen(text) != 1 || !strchr("hbskmgtpeHBSKMGTPE", *text))
		return false;
	format->unit = *text;
	return true;
}

const char *size_print(char text[static SIZE_TEXT], uint64_t bytes, const struct size_format *format)
{
	char unit = (char)tolower((unsigned char)format->unit);
	unsigned base = isupper((unsigned char)format->unit) ? 1000 : 1024;
	double value = (double)bytes;
	const char *place;

	if (unit == 'b' || unit == 's' || (unit == 'h' && bytes < base)) {
		snprintf(text, SIZE_TEXT, "%" PRIu64 "%s", unit == 's' ? bytes / 512 : bytes,
			 !format->suffix ? "" :
			 unit == 's'	 ? "S" :
					   "B");
		return text;
	}
	place = units;
	while (unit == 'h' ? value >= base && place[1] : *place != unit) {
		value /= base;
		place++;
	}
	snprintf(text, SIZE_TEXT, "%.2f", value);
	if (format->suffix) {
		size_t length = strlen(text);

		snprintf(text + length, SIZE_TEXT - length, "%c%s", toupper((unsigned char)*place), base == 1000 ? "B" : "iB");
	}
	return text;
}
