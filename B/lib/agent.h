/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Passphrases by the password agents of systemd: on the console, by plymouth, on a terminal of whoever runs systemd-tty-ask-password-agent.
 */
#ifndef LARDER_AGENT_H
#define LARDER_AGENT_H

#include <stdbool.h>

#include "luks.h"

struct agent_question {
	const char *prompt;
	const char *id; /* for agents that keep answers: "larder:NAME" */
	/*
	 * Take what was typed for another stack, or for systemd-cryptsetup, in the last minutes: in the kernel's keyring, where the answer
	 * goes, too.
	 */
	bool cached;
	/* Asked each second: true if the answer is not needed any more. */
	bool (*over)(void *data);
	void *data;
};

/*
 * Waits for ever.  The answer has one passphrase in each line.  *answered false: over() came first.  Complains; secret_free() after an
 * answer.
 */
int agent_ask(const struct agent_question *question, struct secret *answer, bool *answered);
/* The next passphrase of an answer: part points into it, and is not to be freed.  Begin with *part all zero. */
bool agent_next(const struct secret *answer, struct secret *part);

#endif
