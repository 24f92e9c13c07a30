// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * systemd-ask-password does the talking: it tells the agents, and looks into the keyring.  What it prints goes from its pipe into locked
 * memory; the words and the environment of a process show the question only.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "message.h"
#include "program.h"

#define OVER_MS 1000
#define KEYRING "--keyname=cryptsetup" /* as systemd-cryptsetup has it: one passphrase for its devices and ours is asked for once */

/* True: there is something to read, or it has ended. */
static bool answer_comes(int out, const struct agent_question *question)
{
	struct pollfd poll_out = { .fd = out, .events = POLLIN };

	for (;;) {
		int ready = poll(&poll_out, 1, OVER_MS);

		if (ready > 0 || (ready < 0 && errno != EINTR))
			return true;
		if (question->over(question->data))
			return false;
	}
}

int agent_ask(const struct agent_question *question, struct secret *answer, bool *answered)
{
	char *id = must_print("--id=%s", question->id);
	const char *words[] = { "systemd-ask-password", "--no-tty", "--timeout=0", "--icon=drive-harddisk", id, KEYRING, "--multiple",
				question->cached ? "--accept-cached" : question->prompt, question->cached ? question->prompt : NULL, NULL };
	int out, result = LARDER_DONE;
	pid_t child = program_begin(words, &out);

	*answer = (struct secret){ 0 };
	*answered = false;
	if (child < 0) {
		result = complain(LARDER_FAILED, "systemd-ask-password: cannot be run: %s", strerror(errno));
	} else {
		*answered = answer_comes(out, question);
		if (*answered)
			result = secret_take(out, "passphrase by systemd-ask-password", answer);
		close(out);
		program_end(child, !*answered);
	}
	free(id);
	return result;
}

bool agent_next(const struct secret *answer, struct secret *part)
{
	char *from = part->bytes ? part->bytes + part->length + 1 : answer->bytes, *end = answer->bytes + answer->length, *line;

	if (from >= end)
		return false;
	line = memchr(from, '\n', (size_t)(end - from));
	*part = (struct secret){ from, (size_t)((line ? line : end) - from) };
	return true;
}
