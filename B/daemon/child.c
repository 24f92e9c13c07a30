// SPDX-License-Identifier: GPL-2.0-or-later
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"

static struct connections connections;

void child_leaves(const struct connections *left)
{
	connections = *left;
}

pid_t child_fork(void)
{
	int bus = connections.bus ? connections.bus(connections.data) : -1;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child)
		return child;
	if (bus >= 0)
		close(bus);
	if (connections.leave)
		connections.leave(connections.data);
	return 0;
}

int child_watch(sd_event *event, pid_t child, sd_event_child_handler_t ended, void *data)
{
	int error = sd_event_add_child(event, NULL, child, WEXITED, ended, data);

	if (error >= 0)
		return 0;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return error;
}
