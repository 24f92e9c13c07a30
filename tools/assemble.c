// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder assemble: what larderd does, in one go, for who has no daemon: an initramfs, a rescue system.
 *
 * Exit code: 0 when everything that is here runs; 3 when something waits for what is missing, 5 when something was refused; the
 * code of the first start that failed.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../daemon/assembly.h"
#include "arguments.h"
#include "stacks.h"
#include "turn.h"
#include "verbs.h"

static void tell(enum assembly_event event, const uint8_t uuid[16], const char *text)
{
	(void)uuid;
	if (event == ASSEMBLY_STARTED)
		puts(text);
	else
		remark("%s", text);
}

/* UUID of the volume, or cache, with this name.  Of a stack whose disks are not here, or its array does not run, it is not that of the cache with its name. */
static int find(const char *name, uint8_t uuid[16])
{
	const struct member *member;
	struct stacks stacks;
	int result = stacks_scan(&stacks);
	bool volume = false, listed = false;

	if (result)
		return result;
	for (size_t i = 0; i < stacks.members.number; i++)
		volume |= member_is(stacks.members.member[i], name, LARDER_KIND_VOLUME);
	for (size_t i = 0; i < stacks.number; i++)
		listed |= !stacks.found[i].whole && !strcmp(stacks.found[i].stack.name, name);
	if (!volume && listed)
		result = complain(LARDER_NOT_FOUND, "%s: the disks of this stack are not here, or their array does not run; larder start %s says more", name, name);
	else
		result = member_find(&stacks.members, name, volume ? LARDER_KIND_VOLUME : LARDER_KIND_CACHE, &member);
	if (!result)
		memcpy(uuid, volume ? member->sb.head.uuid : member->sb.cache.cache_uuid, 16);
	stacks_free(&stacks);
	return result;
}

static int run(struct assembly *assembly)
{
	int result = assembly_pass(assembly);

	if (result)
		return result;
	return assembly->refused ? LARDER_UNSAFE : assembly->waiting ? LARDER_NOT_FOUND : LARDER_DONE;
}

/* Without privileges there may be nothing to see: that is no success. */
static int check_seen(void)
{
	struct members members;

	members_scan(&members);
	members_free(&members);
	return members_check_seen();
}

int assemble(int argc, char **argv)
{
	static const char usage[] = "larder assemble --all | NAME|UUID... [--conf] [--degraded] [--dry-run]";
	struct assembly assembly = { .wait = ASSEMBLY_WAIT_FOR_EVER, .tell = tell };
	bool all = false, degraded = false;
	const struct argument arguments[] = {
		{ "all", 'a', ARGUMENT_FLAG, &all, NULL, "whatever is here, but what was stopped" },
		{ "degraded", 0, ARGUMENT_FLAG, &degraded, NULL, "wait no longer for what is missing, where nothing is lost by that" },
		{ "conf", 0, ARGUMENT_FLAG, &assembly.obey, NULL, "also of what is named only what larder.conf lets start by itself" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &assembly.dry_run, NULL, "only print the dmsetup commands, and what is refused" },
		ARGUMENTS_END
	};
	int first, result, worst = LARDER_DONE;
	uint8_t uuid[16];

	if (!arguments_words(argc, argv, usage, arguments, 0, -1, &first, &result))
		return result;
	if (all == (first < argc))
		return complain(LARDER_USAGE, "%s; usage: %s", all ? "--all goes without names" : "a name, or --all, is missing", usage);
	if (degraded)
		assembly.wait = 0;
	if ((all || assembly.obey) && assembly_is_off()) {
		remark("larder.auto=no is on the kernel's command line: nothing is assembled; larder assemble NAME does it all the same");
		return LARDER_DONE;
	}
	if (all) {
		result = geteuid() ? check_seen() : LARDER_DONE;
		return result ? result : run(&assembly);
	}
	for (int i = first; i < argc; i++) {
		result = find(argv[i], uuid);
		assembly.only = uuid;
		if (!result && !assembly.dry_run && !assembly.obey)
			stopped_clear(uuid);
		result = result ? result : run(&assembly);
		worst = worst ? worst : result;
	}
	return worst;
}
