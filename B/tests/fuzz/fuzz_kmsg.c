// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for the kernel's log (lib/kernellog.c).  Input: records of /dev/kmsg, each ended by a NUL.  Aborts where the reason is no line of a
 * record, or is about something else.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "input.h"
#include "kernellog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *all = input_text(data, size), *record, *reason;
	int ends[2];

	/* as the kernel has it: a record each read() */
	must(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), "a socket");
	for (record = all; record < all + size; record += strlen(record) + 1)
		if (*record && write(ends[1], record, strlen(record)) < 0)
			size = (size_t)(record - all); /* so many have no room */
	close(ends[1]);
	reason = kernellog_reason(ends[0], -1);
	if (reason) {
		bool found = false;

		must(!strchr(reason, '\n') && (strstr(reason, "larder") || strstr(reason, "device-mapper:")), "a line about us");
		for (record = all; record < all + size; record += strlen(record) + 1) {
			const char *text = strchr(record, ';');

			found |= text && !strncmp(text + 1, reason, strlen(reason));
		}
		must(found, "a line of a record");
	}
	free(reason);
	free(all);
	return 0;
}
