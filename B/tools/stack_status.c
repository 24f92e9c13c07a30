// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder status: how a stack is, in a line, and by the exit code.
 *
 * It comes to an end also where a device hangs (apart.h).
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "hanging.h"
#include "snapshot.h"
#include "stack_verdict.h"
#include "verbs.h"

#define EXIT_DEGRADED 10
#define EXIT_FAILED   11

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
		result = result ? result : tell(&stacks, found);
	}
	stacks_free(&stacks);
	return result;
}

int stack_status(int argc, char **argv)
{
	static const char usage[] = "larder status NAME";
	const struct argument arguments[] = { ARGUMENTS_END };
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	return look_and_tell(argv[first]);
}
