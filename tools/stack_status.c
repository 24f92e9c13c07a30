// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder status: how a stack is, in a line, and by the exit code.
 *
 * It comes to an end also where a device hangs.  What has requests and answers none is found before anything is read (hanging.h); of what has none yet our
 * own would be the first.  So a child looks, and is given up where a device begins to hang meanwhile: another one then reads nothing of that.  A child that
 * is killed while it waits for a device lasts until that answers; it has none of our descriptors, so nobody waits for its end.
 */
#include <endian.h>
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

#include "arguments.h"
#include "hanging.h"
#include "snapshot.h"
#include "stack_verdict.h"
#include "verbs.h"

#define EXIT_DEGRADED 10
#define EXIT_FAILED   11
#define LOOK_MS	      500
#define TRIES	      4

static const char *spares_text(const struct view *view, char text[static 64])
{
	unsigned disks = 0, ssds = 0;
	int length = 0;

	for (size_t i = 0; i < view->disks.number; i++)
		disks += view->disks.disk[i].role == MD_SPARE;
	for (size_t i = 0; i < view->stacks->members.number; i++) {
		const union superblock *sb = &view->stacks->members.member[i]->sb;

		ssds += le32toh(sb->head.kind) == LARDER_KIND_SPARE && !memcmp(sb->cache.cache_uuid, view->found->stack.cache, 16);
	}
	text[0] = 0;
	if (disks)
		length = snprintf(text, 64, "; %u spare disk%s", disks, disks == 1 ? "" : "s");
	if (ssds)
		snprintf(text + length, 64 - (size_t)length, "; %u spare SSD%s", ssds, ssds == 1 ? "" : "s");
	return text;
}

static int tell(const struct stacks *stacks, const struct found *found)
{
	struct view view;
	char *words, spares[64];
	int result;

	view_open(&view, stacks, found);
	words = problems_line(&view.verdict.words);
	printf("%s: %s%s%s%s\n", found->stack.name, view_verdict(&view), *words ? ": " : "", words, spares_text(&view, spares));
	free(words);
	result = view.verdict.health == FAILED	 ? EXIT_FAILED :
		 view.verdict.health == DEGRADED ? EXIT_DEGRADED :
		 view.verdict.stopped		 ? LARDER_NOT_FOUND :
						   LARDER_DONE;
	view_close(&view);
	return result;
}

static bool is_listed(const struct stacks *stacks, const char *name)
{
	for (size_t i = 0; i < stacks->number; i++)
		if (!strcmp(stacks->found[i].stack.name, name))
			return true;
	return false;
}

/* Of a volume of that name, which runs, no superblock can be read.  False: that is not so. */
static bool tell_unread(const struct stacks *stacks, const char *name)
{
	const struct mapped *volume = is_listed(stacks, name) ? NULL : snapshot_find(&stacks->list, name, false);
	struct problems found = { 0 };
	bool hangs;

	if (volume)
		hanging_below(volume, &found);
	hangs = found.number;
	if (hangs) {
		char *words = problems_line(&found);

		printf("%s: degraded: %s; stack: its superblocks cannot be read: what else there is to say of it is not known\n", name, words);
		free(words);
	}
	problems_free(&found);
	return hangs;
}

static int look_and_tell(const char *name)
{
	const struct found *found;
	struct stacks stacks;
	int result;

	mapped_init(false);
	result = stacks_look(&stacks);
	if (!result && tell_unread(&stacks, name)) {
		result = EXIT_DEGRADED;
	} else if (!result) {
		result = stack_find(&stacks, name, &found);
		if (result)
			hanging_remark();
		else
			result = tell(&stacks, found);
	}
	stacks_free(&stacks);
	return result;
}

/* ------------------------------------------------------------------ the child */

/* Its output and its complaints, as long as it may be given up. */
struct look {
	pid_t child;
	struct pollfd end[2];
	char *text[2];
	size_t length[2];
};

static _Noreturn void be_child(const char *name, const int to[2], pid_t parent)
{
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC), result;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(LARDER_FAILED);
	if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(to[0], STDOUT_FILENO) < 0 || dup2(to[1], STDERR_FILENO) < 0)
		_exit(LARDER_FAILED);
	close_range(STDERR_FILENO + 1, ~0U, 0);
	result = look_and_tell(name);
	exit(fflush(stdout) ? LARDER_FAILED : result);
}

static bool begin(struct look *look, const char *name)
{
	pid_t parent = getpid();
	int out[2], complaints[2];

	*look = (struct look){ 0 };
	if (pipe2(out, O_CLOEXEC))
		return false;
	if (pipe2(complaints, O_CLOEXEC)) {
		close(out[0]);
		close(out[1]);
		return false;
	}
	fflush(NULL);
	look->child = fork();
	if (!look->child)
		be_child(name, (const int[]){ out[1], complaints[1] }, parent);
	close(out[1]);
	close(complaints[1]);
	look->end[0] = (struct pollfd){ out[0], POLLIN, 0 };
	look->end[1] = (struct pollfd){ complaints[0], POLLIN, 0 };
	if (look->child > 0)
		return true;
	close(out[0]);
	close(complaints[0]);
	return false;
}

/* Until it has closed both, which poll() is told by a negative number. */
static void hear(struct look *look)
{
	for (int i = 0; i < 2; i++) {
		ssize_t part;

		if (look->end[i].fd < 0 || !look->end[i].revents)
			continue;
		look->text[i] = must_allocate(realloc(look->text[i], look->length[i] + 4096));
		part = read(look->end[i].fd, look->text[i] + look->length[i], 4096);
		if (part < 0 && errno == EINTR)
			continue;
		if (part > 0) {
			look->length[i] += (size_t)part;
			continue;
		}
		close(look->end[i].fd);
		look->end[i].fd = -1;
	}
}

static void give_up(struct look *look)
{
	kill(look->child, SIGKILL);
	for (int i = 0; i < 2; i++) {
		if (look->end[i].fd >= 0)
			close(look->end[i].fd);
		free(look->text[i]);
	}
}

/* It has closed both: nothing keeps it from ending. */
static int end(struct look *look)
{
	FILE *const to[] = { stdout, stderr };
	int status;

	while (waitpid(look->child, &status, 0) < 0)
		if (errno != EINTR)
			return complain(LARDER_FAILED, "cannot wait for a child: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		if (look->length[i])
			fwrite(look->text[i], 1, look->length[i], to[i]);
		free(look->text[i]);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : complain(LARDER_FAILED, "status: was killed by signal %d", WTERMSIG(status));
}

/* False: a device has begun to hang, and may be what it waits for. */
static bool wait_for(struct look *look)
{
	while (look->end[0].fd >= 0 || look->end[1].fd >= 0) {
		if (poll(look->end, 2, LOOK_MS) > 0)
			hear(look);
		else if (hanging_more())
			return false;
	}
	return true;
}

int stack_status(int argc, char **argv)
{
	static const char usage[] = "larder status NAME";
	const struct argument arguments[] = { ARGUMENTS_END };
	struct look look;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	hanging_look(NULL);
	for (int i = 0; i < TRIES; i++) {
		if (!begin(&look, argv[first]))
			return complain(LARDER_FAILED, "cannot start a child: %s", strerror(errno));
		if (wait_for(&look))
			return end(&look);
		give_up(&look);
	}
	return complain(LARDER_FAILED, "%s: one device after the other hangs; try again", argv[first]);
}
