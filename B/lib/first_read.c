// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The first read of devices that may not answer.
 *
 * Who reads from a device that hangs cannot be stopped, not by SIGKILL either, before that answers.  So a child does it, a thread for each device, and is given up.
 * It has none of our descriptors: neither a lock nor a pipe is held for as long as it lasts.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kernel/larder_format.h"
#include "clock.h"
#include "device.h"
#include "first_read.h"
#include "message.h"
#include "stalls.h"

#define LOOK_MS	    500
#define AT_ONCE	    256
#define STACK_BYTES (256 << 10)
#define TO	    3 /* the child's end of the pipe */

struct reader {
	pthread_t thread;
	bool runs;
	dev_t number;
	uint32_t index; /* what the parent is told when it has been read */
};

/* ------------------------------------------------------------------ the child */

static void answered(const struct reader *reader)
{
	if (write(TO, &reader->index, sizeof(reader->index)) != sizeof(reader->index))
		_exit(1); /* the parent is told of the end of all */
}

static void *read_one(void *data)
{
	const struct reader *reader = data;
	char node[300];
	void *block;
	int fd;

	if (device_node(reader->number, node, sizeof(node)) && !posix_memalign(&block, LARDER_SB_SIZE, LARDER_SB_SIZE)) {
		fd = open(node, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
		if (fd >= 0 && pread(fd, block, LARDER_SB_SIZE, LARDER_SB_OFFSET) < 0)
			errno = 0; /* an answer as any other */
		if (fd >= 0)
			close(fd);
		free(block);
	}
	answered(reader);
	return NULL;
}

static _Noreturn void be_child(const dev_t *number, size_t count, int to, pid_t parent)
{
	static struct reader readers[AT_ONCE];
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	pthread_attr_t attributes;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || nothing < 0)
		_exit(1);
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (dup2(nothing, fd) < 0)
			_exit(1);
	if (to != TO && dup2(to, TO) < 0)
		_exit(1);
	close_range(TO + 1, ~0U, 0);
	if (pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, STACK_BYTES))
		_exit(1);
	for (size_t i = 0; i < count; i++) {
		readers[i] = (struct reader){ .number = number[i], .index = (uint32_t)i };
		readers[i].runs = !pthread_create(&readers[i].thread, &attributes, read_one, &readers[i]);
		if (!readers[i].runs)
			answered(&readers[i]); /* who reads it next finds out */
	}
	for (size_t i = 0; i < count; i++)
		if (readers[i].runs)
			pthread_join(readers[i].thread, NULL);
	_exit(0);
}

/* ------------------------------------------------------------------ the parent */

struct wait {
	const dev_t *number;
	size_t count, left;
	bool done[AT_ONCE];
};

/* False: the child has ended. */
static bool hear(struct wait *wait, int from)
{
	uint32_t index[64];
	ssize_t got = read(from, index, sizeof(index));

	for (ssize_t i = 0; i < got / (ssize_t)sizeof(*index); i++) {
		wait->left -= !wait->done[index[i]];
		wait->done[index[i]] = true;
	}
	return got > 0 || (got < 0 && errno == EINTR);
}

static bool all_hang(const struct wait *wait, bool (*hangs)(dev_t number))
{
	for (size_t i = 0; i < wait->count; i++)
		if (!wait->done[i] && !hangs(wait->number[i]))
			return false;
	return true;
}

static void tell_silent(const struct wait *wait, bool (*hangs)(dev_t number), void (*silent)(dev_t number))
{
	for (size_t i = 0; i < wait->count; i++)
		if (!wait->done[i] && !hangs(wait->number[i]))
			silent(wait->number[i]);
}

static void wait_for(struct wait *wait, int from, void (*look)(void), bool (*hangs)(dev_t number), void (*silent)(dev_t number))
{
	double end_of_patience = clock_seconds() + FIRST_READ_SECONDS;
	struct pollfd end = { from, POLLIN, 0 };

	while (wait->left) {
		int ready = poll(&end, 1, LOOK_MS);

		if (ready > 0 && !hear(wait, from))
			return;
		if (ready)
			continue;
		look();
		if (all_hang(wait, hangs))
			return;
		if (clock_seconds() >= end_of_patience) {
			tell_silent(wait, hangs, silent);
			return;
		}
	}
}

/* What has not begun is read by who comes next, which may wait for it. */
static void read_some(const dev_t *number, size_t count, void (*look)(void), bool (*hangs)(dev_t number), void (*silent)(dev_t number))
{
	struct wait wait = { .number = number, .count = count, .left = count };
	pid_t parent = getpid(), child;
	int end[2];

	if (pipe2(end, O_CLOEXEC)) {
		remark("cannot look by a child whether devices answer: %s", strerror(errno));
		return;
	}
	child = fork();
	if (!child)
		be_child(number, count, end[1], parent);
	close(end[1]);
	if (child < 0)
		remark("cannot look by a child whether devices answer: %s", strerror(errno));
	else
		wait_for(&wait, end[0], look, hangs, silent);
	close(end[0]);
	if (child < 0)
		return;
	if (wait.left)
		kill(child, SIGKILL);
	/* one that was given up ends when the device answers */
	while (waitpid(child, NULL, wait.left ? WNOHANG : 0) < 0 && errno == EINTR)
		;
}

void first_read(const dev_t *number, size_t count, void (*look)(void), bool (*hangs)(dev_t number), void (*silent)(dev_t number))
{
	for (size_t i = 0; i < count; i += AT_ONCE)
		read_some(&number[i], count - i < AT_ONCE ? count - i : AT_ONCE, look, hangs, silent);
}
