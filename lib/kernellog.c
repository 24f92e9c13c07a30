// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The kernel's reason for an error, read from /dev/kmsg: one record per read(), "prefix;text\n key=value...".
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "kernellog.h"
#include "message.h"

int kernellog_mark(void)
{
	int mark = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	kernellog_move(mark);
	return mark;
}

void kernellog_move(int mark)
{
	if (mark >= 0)
		lseek(mark, 0, SEEK_END);
}

void kernellog_close(int mark)
{
	if (mark >= 0)
		close(mark);
}

/*
 * How much a line tells: what a target says itself, if it is no mere news, is more than the dm core's summary of it ("table: 253:1:
 * larder: ..."), which is more than that an ioctl failed; its errors are more than its warnings, as it may warn of how it goes on
 * behind them.  0: it is not about us.  level: syslog's
 */
static int weight(const char *text, int level)
{
	if (!strstr(text, "larder") && !strstr(text, "device-mapper:"))
		return 0;
	if (strstr(text, "ioctl: error adding target to table"))
		return 0;
	if (strstr(text, "device-mapper: larder"))
		return level <= LOG_ERR ? 4 : level == LOG_WARNING ? 3 : 1;
	return strstr(text, "device-mapper: table:") ? 2 : 1;
}

/* The next record, in a buffer of its size.  Returns its text, or NULL at the end of the log; its number, which rises from one to the next. */
static char *next_record(int mark, char *record, size_t size, unsigned long long *number)
{
	char *text, *comma;
	ssize_t length;

	for (;;) {
		length = read(mark, record, size - 1);
		if (length < 0 && (errno == EPIPE || errno == EINTR))
			continue; /* overwritten: the next read goes on behind it */
		if (length <= 0)
			return NULL;
		record[length] = 0;
		text = strchr(record, ';');
		comma = strchr(record, ',');
		if (!text || !comma || comma > text)
			continue;
		*number = strtoull(comma + 1, NULL, 10);
		text++;
		text[strcspn(text, "\n")] = 0;
		return text;
	}
}

char *kernellog_reason(int mark, int end)
{
	unsigned long long number, last = ULLONG_MAX;
	char record[8192], *text, *reason = NULL;
	int best = 1, level;

	if (end >= 0) {
		if (next_record(end, record, sizeof(record), &number))
			last = number;
		close(end);
	}
	if (mark < 0)
		return NULL;
	while ((text = next_record(mark, record, sizeof(record), &number)) && number < last) {
		level = LOG_PRI(atoi(record));
		if (weight(text, level) >= best) {
			best = weight(text, level);
			free(reason);
			reason = must_allocate(strdup(text));
		}
	}
	close(mark);
	return reason;
}
