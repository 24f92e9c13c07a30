// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "descriptors.h"

void descriptors_fill(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int got = fd;

		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		/* the other way round: what is said to a closed one is not taken for said */
		got = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
		if (got < 0)
			got = open("/", O_PATH); /* early at boot */
		if (got != fd)
			abort();
	}
}
