// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * journald takes one line after the other, and none while it waits for a disk, which may be one that hangs: then sd_journal_send() waits
 * for it, and so does who writes to stderr.  So a line is a datagram in journald's own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL), a
 * field a line, sent without waiting; and what nobody takes is kept, in its order, and tried again.  Of too many the newest are lost, and
 * counted.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../lib/message.h"
#include "../lib/superblock.h"
#include "journal.h"

#define SOCKET	  "/run/systemd/journal/socket"
#define KEPT_MAX  256
#define AGAIN_US  UINT64_C(100000)

struct line {
	struct line *next;
	char *datagram, *text;
	bool in_journal; /* and still to be said on stderr */
};

enum taken {
	TAKEN,
	LATER,
	NOBODY, /* there is no journal */
};

static struct {
	sd_event_source *again;
	struct sockaddr_un address;
	int socket;
	struct line *oldest;
	unsigned number, lost;
} journal = { .socket = -1 };

/* ------------------------------------------------------------------ a line */

static void line_free(struct line *line)
{
	free(line->datagram);
	free(line->text);
	free(line);
}

static enum taken take_into_journal(const struct line *line)
{
	if (sendto(journal.socket, line->datagram, strlen(line->datagram), MSG_DONTWAIT | MSG_NOSIGNAL,
		   (const struct sockaddr *)&journal.address, sizeof(journal.address)) >= 0)
		return TAKEN;
	return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM ? LATER : NOBODY;
}

/* A line of less than PIPE_BUF goes as a whole into what says that it takes something. */
static enum taken take_on_stderr(const struct line *line)
{
	struct pollfd at = { .fd = STDERR_FILENO, .events = POLLOUT };
	char *text;

	if (poll(&at, 1, 0) < 0 || !at.revents)
		return LATER;
	if (at.revents & (POLLERR | POLLHUP | POLLNVAL))
		return NOBODY;
	text = must_print("larderd: %s\n", line->text);
	if (write(STDERR_FILENO, text, strlen(text)) < 0) {
		/* nobody hears it */
	}
	free(text);
	return TAKEN;
}

static enum taken take(struct line *line)
{
	if (!line->in_journal) {
		enum taken taken = take_into_journal(line);

		if (taken == LATER || (taken == TAKEN && !isatty(STDERR_FILENO)))
			return taken;
		line->in_journal = true;
	}
	return take_on_stderr(line);
}

/* ------------------------------------------------------------------ those that are kept */

static void add(int priority, const char *fields, char *text)
{
	struct line **at = &journal.oldest, *line = must_allocate(calloc(1, sizeof(*line)));

	text_clean(text);
	line->text = text;
	line->datagram = must_print("MESSAGE=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=larderd\n%s", text, priority, fields);
	while (*at)
		at = &(*at)->next;
	*at = line;
	journal.number++;
}

static void take_all(void)
{
	while (journal.oldest && take(journal.oldest) != LATER) {
		struct line *line = journal.oldest;

		journal.oldest = line->next;
		journal.number--;
		line_free(line);
		if (!journal.oldest && journal.lost) {
			add(4, "", must_print("%u lines of larderd are lost, as nobody took them", journal.lost));
			journal.lost = 0;
		}
	}
	if (journal.oldest && journal.again) {
		sd_event_source_set_time_relative(journal.again, AGAIN_US);
		sd_event_source_set_enabled(journal.again, SD_EVENT_ONESHOT);
	}
}

static int try_again(sd_event_source *source, uint64_t when, void *data)
{
	(void)source;
	(void)when;
	(void)data;
	take_all();
	return 0;
}

static void say(int priority, const char *fields, char *text)
{
	if (journal.number == KEPT_MAX) {
		free(text);
		journal.lost++;
	} else {
		add(priority, fields, text);
	}
	take_all();
}

void journal_say(int priority, const char *fields, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(priority, fields, must_vprint(format, args));
	va_end(args);
}

void journal_remark(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(6, "", must_vprint(format, args));
	va_end(args);
}

/* ------------------------------------------------------------------ begin, end */

int journal_open(sd_event *event)
{
	const char *root = getenv("LARDER_ROOT");
	int error;

	journal.address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(journal.address.sun_path, sizeof(journal.address.sun_path), "%s" SOCKET, root ? root : "");
	journal.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (journal.socket < 0)
		return -errno;
	error = sd_event_add_time_relative(event, &journal.again, CLOCK_MONOTONIC, 0, 0, try_again, NULL);
	return error < 0 ? error : sd_event_source_set_enabled(journal.again, SD_EVENT_OFF);
}

void journal_close(void)
{
	struct line *line;

	take_all();
	while ((line = journal.oldest)) {
		journal.oldest = line->next;
		line_free(line);
	}
	journal.again = sd_event_source_disable_unref(journal.again);
	if (journal.socket >= 0)
		close(journal.socket);
	journal.socket = -1;
}
