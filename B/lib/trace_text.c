// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lines of traces of the block layer:
 *
 *	             fio-611   [001] .....   102.330214: block_bio_queue: 8,16 RA 2048 + 256 [fio]
 *	CPU:1 [LOST 673 EVENTS]
 *	  8,16   1        9     0.000318721   611  Q  WS 4096 + 8 [fio]
 *
 * perf has "block:" before the name of the event, trace-cmd more blanks behind it and none of the flags; so what stands between the process and the time is not
 * looked at.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace_text.h"

#define EVENT	    "block_bio_queue: "
#define MINOR_MAX   0xfffffu
#define MAJOR_MAX   0xfffu
#define SECTORS_BIO (UINT32_MAX >> 9) /* of a read or a write: the kernel counts bytes in 32 bits */

/* A number at the beginning of *text, no sign and no space before it; *text then points behind it. */
static bool number(const char **text, uint64_t max, uint64_t *value)
{
	const char *p = *text;

	*value = 0;
	for (; isdigit((unsigned char)*p); p++) {
		uint64_t digit = (uint64_t)(*p - '0');

		if (*value > (max - digit) / 10)
			return false;
		*value = *value * 10 + digit;
	}
	if (p == *text)
		return false;
	*text = p;
	return true;
}

static bool skip(const char **text, const char *what)
{
	size_t length = strlen(what);

	if (strncmp(*text, what, length))
		return false;
	*text += length;
	return true;
}

static void skip_spaces(const char **text)
{
	*text += strspn(*text, " \t");
}

/* What blk_fill_rwbs() has made of the operation; false: none that moves or discards data.  An F before W or R is a flush that comes with it. */
static bool access_of(const char *flags, enum hit_access *access)
{
	flags += *flags == 'F';
	switch (*flags) {
	case 'R':
		*access = HIT_READ;
		return true;
	case 'W':
		*access = HIT_WRITE;
		return true;
	case 'D':
		*access = HIT_DISCARD;
		return true;
	}
	return false;
}

/* "8,16" */
static bool device(const char **text, struct trace_request *request)
{
	uint64_t major, minor;

	if (!number(text, MAJOR_MAX, &major) || !skip(text, ",") || !number(text, MINOR_MAX, &minor))
		return false;
	request->major = (unsigned)major;
	request->minor = (unsigned)minor;
	return true;
}

/* "RA 2048 + 256" */
static enum trace_line what(const char *text, struct trace_request *request)
{
	uint64_t sectors;

	if (!access_of(text, &request->access))
		return TRACE_OTHER;
	text += strcspn(text, " ");
	skip_spaces(&text);
	if (!number(&text, HIT_SECTOR_MAX, &request->sector))
		return TRACE_BAD;
	/* a flush without data; blkparse writes no length then */
	if (!skip(&text, " + "))
		return TRACE_OTHER;
	if (!number(&text, request->access == HIT_DISCARD ? UINT32_MAX : SECTORS_BIO, &sectors) || (*text && *text != ' '))
		return TRACE_BAD;
	if (!sectors)
		return TRACE_OTHER;
	request->sectors = (uint32_t)sectors;
	return request->sector + sectors <= HIT_SECTOR_MAX ? TRACE_REQUEST : TRACE_BAD;
}

/* The word before the event: "102.330214:", or "102.330214: block:" */
static double time_before(const char *line, const char *event)
{
	const char *end = event;

	while (end > line && end[-1] != ' ')
		end--;
	while (end > line && (end[-1] == ' ' || end[-1] == ':'))
		end--;
	while (end > line && (isdigit((unsigned char)end[-1]) || end[-1] == '.'))
		end--;
	return isdigit((unsigned char)*end) ? strtod(end, NULL) : 0;
}

/* Of blkparse: "  8,16   1        9     0.000318721   611  Q  WS 4096 + 8 [fio]" */
static enum trace_line blkparse(const char *text, struct trace_request *request)
{
	uint64_t ignored;
	char *end;

	skip_spaces(&text);
	if (!device(&text, request) || *text != ' ')
		return TRACE_OTHER;
	for (int i = 0; i < 4; i++) {
		skip_spaces(&text);
		if (i == 2) {
			if (!isdigit((unsigned char)*text))
				return TRACE_OTHER;
			request->time = strtod(text, &end);
			text = end;
		} else if (!number(&text, UINT64_MAX, &ignored)) {
			return TRACE_OTHER;
		}
	}
	skip_spaces(&text);
	if (!skip(&text, "Q "))
		return TRACE_OTHER;
	skip_spaces(&text);
	return what(text, request);
}

enum trace_line trace_line_parse(const char *line, struct trace_request *request, uint64_t *lost)
{
	const char *text = line, *event = strstr(line, EVENT);
	uint64_t cpu;

	if (event) {
		text = event + strlen(EVENT);
		request->time = time_before(line, event);
		skip_spaces(&text);
		return device(&text, request) && skip(&text, " ") ? what(text, request) : TRACE_BAD;
	}
	if (skip(&text, "CPU:") && number(&text, UINT32_MAX, &cpu) && skip(&text, " [LOST ")) {
		/* "LOST EVENTS" where the kernel has not counted them */
		if (!number(&text, UINT64_MAX, lost) || !*lost)
			*lost = 1;
		return TRACE_LOST;
	}
	return blkparse(line, request);
}
