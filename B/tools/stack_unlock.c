// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder unlock --agent: what larder-unlock@.service does when the volume of an encrypted stack has come up.
 *
 * A token of its header opens it, the key file, or a passphrase that the password agents of systemd are asked for; as long as they have no answer, the
 * key file or the TPM2 may still appear, a tang server answer, as when the network comes up later, and somebody may unlock it by hand.  Whatever is not to
 * be opened by itself is left alone, and said: that is no failure.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "agent.h"
#include "crypt_layer.h"
#include "hanging.h"
#include "message.h"
#include "program.h"
#include "stack_layers.h"
#include "stack_steps.h"
#include "stacks.h"
#include "verbs.h"

#define TRIES	   3 /* of a human being */
#define LATER_WAIT 5 /* seconds between two tries to reach a server, or a TPM2 */

/* The stack whose volume this is; name: of dm.  False: of none. */
static bool find_by_volume(const struct stacks *stacks, const char *name, struct stack *stack)
{
	for (size_t i = 0; i < stacks->number; i++) {
		const struct found *f = &stacks->found[i];
		const struct mapped *volume = f->whole ? stack_volume(stacks, &f->stack) : NULL;

		if (volume && !strcmp(volume->name, name)) {
			*stack = f->stack;
			return true;
		}
	}
	return false;
}

/* NULL: it is ours to unlock. */
static const char *left_alone(const struct stack *stack)
{
	if (!stack->encrypted)
		return "is not encrypted by larder";
	if (stack->state != STACK_READY)
		return "is half made, or being removed";
	if (stack_is_foreign(stack))
		return "was made on another machine";
	if (crypt_is_marked(stack))
		return "was locked by hand";
	return crypt_is_open(stack) ? "is unlocked already" : NULL;
}

struct watch {
	const struct stack *stack;
	bool for_key; /* the key file is not here yet */
	unsigned later; /* a tang server did not answer yet, or there is no TPM2: LUKS_LATER */
	pid_t trying; /* a child of ours tries that; 0: none */
	unsigned seconds; /* since the last one */
};

static bool key_is_here(const struct stack *stack)
{
	return *stack->keyfile && !access(stack->keyfile, R_OK);
}

/* Has it ended?  It tells what may still open it later. */
static bool tried(struct watch *watch)
{
	int status;
	pid_t ended = waitpid(watch->trying, &status, WNOHANG);

	if (ended == watch->trying && WIFEXITED(status) && WEXITSTATUS(status) <= (int)LUKS_LATER)
		watch->later = (unsigned)WEXITSTATUS(status);
	return ended;
}

/* Beside the question, which an answer ends at once.  Who of both comes second finds it open. */
static void try_later(struct watch *watch)
{
	unsigned outcome;
	pid_t parent = getpid();
	int null;

	if (watch->trying && !tried(watch))
		return;
	watch->trying = 0;
	if (!watch->later || ++watch->seconds < LATER_WAIT)
		return;
	watch->seconds = 0;
	watch->trying = fork();
	if (watch->trying < 0)
		watch->trying = 0;
	if (watch->trying)
		return;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(LARDER_FAILED);
	null = open("/dev/null", O_WRONLY | O_CLOEXEC); /* why not was said once */
	dup2(null, STDERR_FILENO);
	if (start_crypt_by_token(watch->stack, CRYPT_BY_AGENT | watch->later, &outcome))
		_exit((int)LUKS_LATER + 1);
	_exit((int)(outcome & LUKS_LATER));
}

/* Or it would open, once the server answers, what somebody has locked by then.  What it has begun to open it opens. */
static void end_trying(const struct watch *watch)
{
	if (watch->trying)
		program_end(watch->trying, true);
}

static bool is_over(void *data)
{
	struct watch *watch = data;

	if (watch->later)
		try_later(watch);
	return crypt_is_open(watch->stack) || crypt_is_marked(watch->stack) || (watch->for_key && key_is_here(watch->stack));
}

/* Each passphrase of an answer.  *wrong: none fits. */
static int try_all(const struct stack *stack, const struct secret *answer, bool *wrong)
{
	struct secret part = { 0 };
	int result = LARDER_FAILED;

	*wrong = true;
	while (*wrong && agent_next(answer, &part))
		result = start_crypt(stack, &part, CRYPT_BY_AGENT, wrong);
	return result;
}

/* *wrong: it does not fit, or is not to be read: that was said. */
static int try_key(const struct stack *stack, bool *wrong)
{
	struct secret key;
	int result = secret_read(stack->keyfile, stack->name, false, &key);

	*wrong = result;
	if (result)
		return result;
	result = start_crypt(stack, &key, CRYPT_BY_AGENT, wrong);
	secret_free(&key);
	if (*wrong)
		remark("%s: no key of the stack %s fits this key file", stack->keyfile, stack->name);
	return result;
}

/* Why somebody is asked. */
static const char *why_asked(const struct watch *watch)
{
	return watch->for_key			    ? " (its key file is not here)" :
	       watch->later == LUKS_SERVER_LATER ? " (its tang server does not answer)" :
	       watch->later == LUKS_TPM2_LATER	    ? " (its TPM2 is not here)" :
	       watch->later			    ? " (its TPM2 is not here, nor does its tang server answer)" : "";
}

static int ask(const struct stack *stack, struct watch *watch, bool cached, bool *answered, bool *wrong)
{
	char *prompt = must_print("Passphrase of the stack %s%s", stack->name, why_asked(watch));
	char *id = must_print("larder:%s", stack->name);
	const struct agent_question question = { .prompt = prompt, .id = id, .cached = cached, .over = is_over, .data = watch };
	struct secret answer;
	int result = agent_ask(&question, &answer, answered);

	*wrong = false;
	if (!result && *answered) {
		result = try_all(stack, &answer, wrong);
		secret_free(&answer);
	}
	free(prompt);
	free(id);
	return result;
}

/* By what is there by then: the key file, an answer, or (a child does it) the server's. */
static int wait_for_key(const struct stack *stack, struct watch *watch)
{
	bool answered, wrong = true, cached = true;
	int result = LARDER_FAILED;

	for (unsigned typed = 0; wrong && typed < TRIES;) {
		if (left_alone(stack))
			return LARDER_DONE;
		if (watch->for_key && key_is_here(stack)) {
			result = try_key(stack, &wrong);
			watch->for_key = false;
			continue;
		}
		result = ask(stack, watch, cached, &answered, &wrong);
		if (!answered && !result)
			wrong = true; /* look again */
		else if (wrong)
			remark("%s: no key of the stack fits this passphrase", stack->name);
		typed += answered && !cached; /* the first answer may be one that was typed for others */
		cached = false;
	}
	if (wrong)
		result = complain(LARDER_FAILED, "%s: is still locked; larder unlock %s", stack->name, stack->name);
	return result && crypt_is_open(stack) ? LARDER_DONE : result;
}

static int unlock(const struct stack *stack)
{
	struct watch watch = { .stack = stack, .for_key = *stack->keyfile };
	unsigned outcome;
	int result = start_crypt_by_token(stack, CRYPT_BY_AGENT, &outcome);

	if (result || outcome == LUKS_OPENED)
		return result;
	watch.later = outcome;
	result = wait_for_key(stack, &watch);
	end_trying(&watch);
	return result;
}

#define LOOKS 4 /* for a stack that is not seen */
#define LOOK_AGAIN_S 2

/*
 * The stack of a volume that has just appeared.  Its disk may not be seen: it hangs, and is looked for until it does not; or it is suspended for a moment, or
 * there was no memory.  Nobody starts us again.
 */
static int find_stack(const char *volume, struct stack *stack, bool *found)
{
	unsigned looks = 0;
	int result;

	for (;;) {
		struct stacks stacks;

		result = stacks_scan(&stacks);
		*found = !result && find_by_volume(&stacks, volume, stack);
		if (!result)
			stacks_free(&stacks);
		if (*found || (++looks >= LOOKS && !hanging_any()))
			return result;
		sleep(LOOK_AGAIN_S);
		hanging_again();
	}
}

int stack_unlock_by_agent(const char *volume)
{
	const char *why = "belongs to no stack";
	struct stack stack;
	bool found;
	int result;

	/*
	 * Without the lock: whoever makes the stack, or starts it, holds that while systemd mounts it for him, behind this.  They are known by
	 * the state of the stack, and by the mark.
	 */
	result = find_stack(volume, &stack, &found);
	if (result)
		return result;
	if (found)
		why = left_alone(&stack);
	if (why) {
		remark("%s: %s: left as it is", volume, why);
		return LARDER_DONE;
	}
	result = unlock(&stack);
	if (!result && crypt_is_open(&stack))
		result = start_mount(&stack, false);
	return result;
}
