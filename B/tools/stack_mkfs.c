// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The filesystem of a stack that is being made.
 *
 * Others have their turn meanwhile: mkfs discards all of the device, which may take long.  Open, the device goes from below nobody, and is no other one's by
 * that name; locked (udev locks nothing of dm's), no other larder goes on with the stack.  The turn is ours again before that lock is given up, and until the
 * step is noted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "message.h"
#include "program.h"
#include "stack_mkfs.h"
#include "stacks.h"
#include "turn.h"

/* "-" is a name to mkfs, and behind "--" all are. */
static bool is_option(const char *word)
{
	return *word == '-' && strcmp(word, "-") && strcmp(word, "--");
}

/* A log or a journal of its own, a file with data or options: any path, and what ext4 and xfs take without one (UUID=, a file that is here). */
static bool names_another(const char *word)
{
	return strchr(word, '/') || strstr(word, "dev=") || strstr(word, "device=") || strstr(word, "name=");
}

int stack_check_mkfs_words(const char *words)
{
	char *copy = must_print("%s", words), *rest = copy, *word;
	bool behind_option = false;
	int result = LARDER_DONE;

	while (!result && (word = strsep(&rest, " "))) {
		if (!*word)
			continue;
		if (names_another(word))
			result = complain(LARDER_USAGE, "--mkfs-options: '%s' names another device, or a file; the filesystem lies in the stack alone", word);
		else if (!is_option(word) && !behind_option)
			result = complain(LARDER_USAGE, "--mkfs-options: '%s' is no option of mkfs, nor the value of one", word);
		behind_option = is_option(word);
	}
	free(copy);
	return result;
}

/* The words of mkfs, and those of --mkfs-options between them. */
static int run_mkfs(const struct stack *stack, const char *device)
{
	const char *words[STACK_PATH_MAX / 2 + 16];
	char uuid[UUID_TEXT], *program = must_print("mkfs.%s", stack->fs), *option, *further = must_print("%s", stack->mkfs), *rest = further,
	     *word, *said;
	uint8_t part[16];
	unsigned n = 0;
	int code;

	stack_part(stack, "fs", part);
	uuid_text(part, uuid);
	option = must_print("uuid=%s", uuid);
	words[n++] = program;
	words[n++] = "-q";
	words[n++] = strcmp(stack->fs, "ext4") ? "-f" : "-F";
	words[n++] = strcmp(stack->fs, "xfs") ? "-U" : "-m";
	words[n++] = strcmp(stack->fs, "xfs") ? uuid : option;
	if (*stack->label) {
		words[n++] = "-L";
		words[n++] = stack->label;
	}
	while ((word = strsep(&rest, " ")))
		if (*word)
			words[n++] = word;
	words[n++] = device;
	words[n] = NULL;
	code = program_run(words, &said);
	if (code)
		complain(LARDER_FAILED, "%s: %s failed: %s", device, program, said);
	free(said);
	free(further);
	free(option);
	free(program);
	return code ? LARDER_FAILED : LARDER_DONE;
}

int stack_mkfs(const struct stack *stack, const char *node)
{
	int file, result = stack_check_mkfs_words(stack->mkfs); /* as the disk has them, which another one may have written */
	bool held;

	if (result)
		return result;
	file = open(node, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return complain(LARDER_FAILED, "%s: %s", node, strerror(errno));
	if (flock(file, LOCK_EX | LOCK_NB)) {
		close(file);
		return complain(LARDER_BUSY, "%s: another larder makes its filesystem just now; wait for that, or end it, and then larder create --resume %s",
				stack->name, stack->name);
	}
	held = turn_pause();
	result = run_mkfs(stack, node);
	turn_resume(held);
	close(file);
	return result ? result : stack_check_same(stack);
}
