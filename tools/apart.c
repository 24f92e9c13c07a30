// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A look at devices that comes to an end also where one of them hangs.
 *
 * What has requests and answers none is found before anything is read (hanging.h); of what has none yet our own would be the first.  So a child looks, and
 * is given up where a device begins to hang meanwhile: another one then reads nothing of that.  A child that is killed while it waits for a device lasts
 * until that answers; it has none of our descriptors, so nobody waits for its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apart.h"
#include "hanging.h"
#include "message.h"

#define LOOK_MS 500
#define TRIES	4

/* The child; its output and its complaints, as long as it may be given up. */
struct apart {
	pid_t child;
	struct pollfd end[2];
	char *text[2];
	size_t length[2];
};

static _Noreturn void be_child(int (*look)(void *data), void *data, const int to[2], pid_t parent)
{
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC), result;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(LARDER_FAILED);
	if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(to[0], STDOUT_FILENO) < 0 || dup2(to[1], STDERR_FILENO) < 0)
		_exit(LARDER_FAILED);
	close_range(STDERR_FILENO + 1, ~0U, 0);
	result = look(data);
	exit(fflush(stdout) ? LARDER_FAILED : result);
}

static bool begin(struct apart *apart, int (*look)(void *data), void *data)
{
	pid_t parent = getpid();
	int out[2], complaints[2];

	*apart = (struct apart){ 0 };
	if (pipe2(out, O_CLOEXEC))
		return false;
	if (pipe2(complaints, O_CLOEXEC)) {
		close(out[0]);
		close(out[1]);
		return false;
	}
	fflush(NULL);
	apart->child = fork();
	if (!apart->child)
		be_child(look, data, (const int[]){ out[1], complaints[1] }, parent);
	close(out[1]);
	close(complaints[1]);
	apart->end[0] = (struct pollfd){ out[0], POLLIN, 0 };
	apart->end[1] = (struct pollfd){ complaints[0], POLLIN, 0 };
	if (apart->child > 0)
		return true;
	close(out[0]);
	close(complaints[0]);
	return false;
}

/* Until it has closed both, which poll() is told by a negative number. */
static void hear(struct apart *apart)
{
	for (int i = 0; i < 2; i++) {
		ssize_t part;

		if (apart->end[i].fd < 0 || !apart->end[i].revents)
			continue;
		apart->text[i] = must_allocate(realloc(apart->text[i], apart->length[i] + 4096));
		part = read(apart->end[i].fd, apart->text[i] + apart->length[i], 4096);
		if (part < 0 && errno == EINTR)
			continue;
		if (part > 0) {
			apart->length[i] += (size_t)part;
			continue;
		}
		close(apart->end[i].fd);
		apart->end[i].fd = -1;
	}
}

static void give_up(struct apart *apart)
{
	kill(apart->child, SIGKILL);
	for (int i = 0; i < 2; i++) {
		if (apart->end[i].fd >= 0)
			close(apart->end[i].fd);
		free(apart->text[i]);
	}
}

/* It has closed both: nothing keeps it from ending. */
static int end(struct apart *apart, const char *verb)
{
	FILE *const to[] = { stdout, stderr };
	int status;

	while (waitpid(apart->child, &status, 0) < 0)
		if (errno != EINTR)
			return complain(LARDER_FAILED, "cannot wait for a child: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		if (apart->length[i])
			fwrite(apart->text[i], 1, apart->length[i], to[i]);
		free(apart->text[i]);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : complain(LARDER_FAILED, "%s: was killed by signal %d", verb, WTERMSIG(status));
}

/* False: a device has begun to hang, and may be what it waits for. */
static bool wait_for(struct apart *apart)
{
	while (apart->end[0].fd >= 0 || apart->end[1].fd >= 0) {
		if (poll(apart->end, 2, LOOK_MS) > 0)
			hear(apart);
		else if (hanging_more())
			return false;
	}
	return true;
}

int look_apart(const char *verb, int (*look)(void *data), void *data)
{
	struct apart apart;

	hanging_look(NULL);
	for (int i = 0; i < TRIES; i++) {
		if (!begin(&apart, look, data))
			return complain(LARDER_FAILED, "cannot start a child: %s", strerror(errno));
		if (wait_for(&apart))
			return end(&apart, verb);
		give_up(&apart);
	}
	return complain(LARDER_FAILED, "%s: one device after the other hangs; try again", verb);
}
