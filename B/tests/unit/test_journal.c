// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon/journal.c: a journal that takes nothing, and takes all that was kept then; one that is not there, and a stderr that nobody reads.  Nothing waits: an
 * alarm ends the process.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#define say say_without_waiting
#include "../../daemon/journal.c"
#undef say

#include "check.h"

#define SAID 300

static int journald(const char *root)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char *directory = must_print("mkdir -p %s/run/systemd/journal", root);
	int made = system(directory), fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s" SOCKET, root);
	if (made || fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)))
		exit(1);
	free(directory);
	return fd;
}

/* Runs the loop until the journal has a line: is it this one? */
static bool comes(sd_event *event, int fd, const char *wanted)
{
	for (int tries = 0; tries < 100; tries++) {
		char got[1024];
		ssize_t length = recv(fd, got, sizeof(got) - 1, 0);

		if (length >= 0) {
			got[length] = 0;
			if (strcmp(got, wanted))
				printf("# %s", got);
			return !strcmp(got, wanted);
		}
		sd_event_run(event, 100000);
	}
	return false;
}

static void taken_later(sd_event *event, int fd)
{
	char wanted[256];
	bool all = true;
	unsigned lost;

	for (int i = 0; i < SAID; i++)
		journal_say(3, "MESSAGE_ID=x\n", "line %d\n%c", i, 7);
	lost = journal.lost;
	check(journal.number == KEPT_MAX && lost, "what is not taken is kept, and of too many the newest are counted");
	for (unsigned i = 0; all && i < SAID - lost; i++) {
		snprintf(wanted, sizeof(wanted), "MESSAGE=line %u\?\?\nPRIORITY=3\nSYSLOG_IDENTIFIER=larderd\nMESSAGE_ID=x\n", i);
		all = comes(event, fd, wanted);
	}
	check(all, "all that was kept comes, in its order");
	snprintf(wanted, sizeof(wanted), "MESSAGE=%u lines of larderd are lost, as nobody took them\nPRIORITY=4\nSYSLOG_IDENTIFIER=larderd\n", lost);
	check(comes(event, fd, wanted), "and then how many are lost");
}

static void taken_on_stderr(sd_event *event)
{
	int ends[2], before = dup(STDERR_FILENO);
	char got[65536 + 64 * SAID];
	ssize_t length;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		exit(1);
	memset(got, 'x', sizeof(got));
	while (write(ends[1], got, 4096) > 0)
		;
	fcntl(ends[1], F_SETFL, 0);
	dup2(ends[1], STDERR_FILENO);
	for (int i = 0; i < SAID; i++)
		journal_remark("line %d", i);
	check(journal.number == KEPT_MAX && journal.lost == SAID - KEPT_MAX, "nor is who reads stderr waited for");
	while (read(ends[0], got, 4096) > 0)
		;
	while (journal.number)
		sd_event_run(event, 100000);
	length = read(ends[0], got, sizeof(got) - 1);
	got[length > 0 ? length : 0] = 0;
	check(!strncmp(got, "larderd: line 0\nlarderd: line 1\n", 32) && strstr(got, "larderd: line 255\nlarderd: 44 lines of larderd are lost, as nobody took them\n"),
	      "and gets them once he reads");
	close(ends[0]);
	journal_remark("nobody is there");
	check(!journal.number, "a pipe that nobody reads any more takes it away");
	dup2(before, STDERR_FILENO);
	close(before);
	close(ends[1]);
}

int main(void)
{
	static char root[] = "/tmp/larder-journal-XXXXXX";
	char *rm;
	sd_event *event;
	int fd;

	alarm(60);
	signal(SIGPIPE, SIG_DFL);
	if (!mkdtemp(root) || sd_event_default(&event) < 0)
		return 1;
	setenv("LARDER_ROOT", root, 1);
	fd = journald(root);
	check(!journal_open(event), "it is opened");
	journal_remark("a word");
	check(comes(event, fd, "MESSAGE=a word\nPRIORITY=6\nSYSLOG_IDENTIFIER=larderd\n"), "a line is a datagram, a field a line");
	taken_later(event, fd);
	journal_close();
	close(fd);
	check(!journal_open(event), "it is opened again");
	taken_on_stderr(event);
	journal_close();
	sd_event_unref(event);
	rm = must_print("rm -rf %s", root);
	if (system(rm))
		return 1;
	free(rm);
	return failed;
}
