// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder: SSD caches for slow disks.  This is the table of verbs; each has its function in a file of its own or of its group.
 */
#include <endian.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive.h"
#include "arguments.h"
#include "descriptors.h"
#include "hanging.h"
#include "message.h"
#include "program.h"
#include "snapshot.h"
#include "stacks.h"
#include "verbs.h"

#ifndef LARDER_RELEASE
#define LARDER_RELEASE "development"
#endif

struct verb {
	const char *noun, *name; /* noun "": stands alone */
	int (*function)(int argc, char **argv);
	const char *help;
};

static int help(int argc, char **argv);
static int complete(int argc, char **argv);

static const struct verb verbs[] = {
	{ "", "create", stack_create, "make a whole stack: RAID, volume, encryption, filesystem" },
	{ "", "start", stack_start, "start a stack, and mount it" },
	{ "", "stop", stack_stop, "unmount a stack, and stop it" },
	{ "", "remove", stack_remove, "take a stack apart: all in it is lost" },
	{ "", "lock", stack_lock, "close the encryption of a stack" },
	{ "", "unlock", stack_unlock, "open it again" },
	{ "", "passwd", stack_passwd, "list, add, change and remove keys of an encrypted stack" },
	{ "", "rename", stack_rename, "give a stopped stack another name" },
	{ "", "set", stack_set, "change where a stack is mounted, its key file, its class, ..." },
	{ "", "resize", stack_resize, "let a stack grow with its disks" },
	{ "", "scrub", stack_scrub, "read and compare all that a stack keeps twice" },
	{ "", "replace", stack_replace, "put another disk or SSD in the place of one of a stack" },
	{ "", "add", stack_add, "add a disk, a spare, or an SSD to a stack" },
	{ "", "drop", stack_drop, "take a disk, a spare, or an SSD out of a stack" },
	{ "", "pin", stack_pin, "keep files on the SSD" },
	{ "", "unpin", stack_unpin, "let them go like any other" },
	{ "", "list", stacks_list, "show all stacks as trees" },
	{ "", "show", stack_show, "show one stack, with all UUIDs" },
	{ "", "status", stack_status, "is a stack fine (0), degraded (10), failed (11)?" },
	{ "", "upgrade", upgrade, "let superblocks have what only a newer larder knows" },
	{ "cache", "create", cache_create, "format an SSD as a cache" },
	{ "cache", "start", cache_start, "start a cache" },
	{ "cache", "stop", cache_stop, "stop a cache that no volume uses" },
	{ "cache", "add", cache_add, "add an SSD to a started cache" },
	{ "cache", "replace", cache_replace, "put an SSD in the place of one that has failed" },
	{ "cache", "remove", cache_remove, "drain an SSD of a started cache, and take it out" },
	{ "cache", "resize", cache_resize, "let a started cache grow with its SSD" },
	{ "cache", "scrub", cache_scrub, "read what a started cache holds, and repair it" },
	{ "cache", "label", cache_label, "give an SSD a label, for --foreground and --promote" },
	{ "cache", "list", cache_list, "list caches, started or not" },
	{ "cache", "status", cache_status, "show what a cache does" },
	{ "cache", "get", cache_get, "show options of a started cache" },
	{ "cache", "set", cache_set, "change options of a started cache" },
	{ "volume", "create", volume_create, "format a disk as the backing of a volume" },
	{ "volume", "start", volume_start, "start a volume, and its cache if need be" },
	{ "volume", "stop", volume_stop, "stop a volume; dirty data stays in the cache" },
	{ "volume", "attach", volume_attach, "put a started volume behind a cache" },
	{ "volume", "detach", volume_detach, "take a started volume off its cache" },
	{ "volume", "resize", volume_resize, "let a started volume grow with its disk" },
	{ "volume", "get", volume_get, "show options of a started volume" },
	{ "volume", "set", volume_set, "change options of a started volume" },
	{ "volume", "flush", volume_flush, "write dirty data back at full speed" },
	{ "volume", "list", volume_list, "list volumes, started or not" },
	{ "volume", "status", volume_status, "show what a volume does" },
	{ "snapshot", "create", snapshot_create, "keep what a stack is at this moment, beside it" },
	{ "snapshot", "list", snapshot_list, "list snapshots, and how full their stores are" },
	{ "snapshot", "remove", snapshot_remove, "let a snapshot go" },
	{ "super", "show", super_show, "show the superblock of a device" },
	{ "super", "check", super_check, "check both superblocks and the tables of a device" },
	{ "super", "wipe", super_wipe, "remove the superblocks of a device" },
	{ "super", "backup", super_backup, "copy superblocks and tables of a device into a file" },
	{ "super", "restore", super_restore, "put them back where they are damaged" },
	{ "rescue", "check", rescue_check, "without the module: is what a cache holds whole?" },
	{ "rescue", "list", rescue_list, "without the module: what is dirty in a cache" },
	{ "rescue", "writeback", rescue_writeback, "without the module: write dirty data to the volume's disk" },
	{ "rescue", "serve", rescue_serve, "without the module: serve a volume read-only by NBD" },
	{ "", "assemble", assemble, "start all caches and volumes that are complete" },
	{ "", "probe", probe, "say what is on a device" },
	{ "", "monitor", monitor, "what volumes do, again and again" },
	{ "", "top", top, "the same, live in a terminal" },
	{ "", "events", events, "what is wrong, and what changes; for a program too" },
	{ "", "metrics", metrics, "all counters and gauges in OpenMetrics text" },
	{ "", "advise", advise, "how much SSD serves which share of what disks are asked for" },
	{ "", "doctor", doctor, "all that is wrong, and the commands that cure it" },
	{ "", "collect", collect, "what who is to help needs to know, in a tar file without secrets" },
	{ "", "help", help, "this list" },
	{ "", "complete", complete, NULL },
};

#define NR_VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void print_verbs(const char *noun)
{
	for (const struct verb *v = verbs; v < verbs + NR_VERBS; v++)
		if (v->help && (!noun || !strcmp(v->noun, noun)))
			printf("  larder %s%s%-*s  %s\n", v->noun, *v->noun ? " " : "", (int)(*v->noun ? 15 - strlen(v->noun) : 16),
			       v->name, v->help);
}

static int help(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	puts("larder " LARDER_RELEASE ": SSD caches for slow disks.  See larder(8); each verb takes --help.\n");
	print_verbs(NULL);
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ completion */

static void candidate(const char *word, const char *current, const char *text)
{
	if (!strncmp(word, current, strlen(current)))
		printf("%s\t%s\n", word, text);
}

/* Verbs that stand alone, and each noun once. */
static void first_words(const char *current)
{
	for (const struct verb *v = verbs; v < verbs + NR_VERBS; v++) {
		if (!*v->noun && v->help)
			candidate(v->name, current, v->help);
		else if (*v->noun && strcmp(v->noun, v[-1].noun))
			candidate(v->noun, current, "verbs of its own");
	}
}

static void verbs_of(const char *noun, const char *current)
{
	for (const struct verb *v = verbs; v < verbs + NR_VERBS; v++)
		if (!strcmp(v->noun, noun))
			candidate(v->name, current, v->help);
}

/* Those that do something to what does not run, too. */
static int (*const of_stopped[])(int, char **) = {
	stack_start, stack_unlock, stack_rename, stack_remove, stack_set, stack_passwd, stack_show, stack_status, cache_start, volume_start,
};

static bool is_said(const struct mapped_list *list, bool cache, const char *name)
{
	for (size_t i = 0; i < list->number; i++)
		if (list->mapped[i].cache == cache && !strcmp(snapshot_name(list, &list->mapped[i]), name))
			return true;
	return false;
}

/* Of stacks, or of caches and volumes by their labels. */
static void stopped_names(const struct verb *verb, const char *current)
{
	bool cache = !strcmp(verb->noun, "cache");
	struct stacks stacks;
	char label[LARDER_LABEL_SIZE + 1];

	if (stacks_look(&stacks))
		return;
	for (size_t i = 0; !*verb->noun && i < stacks.number; i++)
		if (!is_said(&stacks.list, false, stacks.found[i].stack.name))
			candidate(stacks.found[i].stack.name, current, "stack");
	for (size_t i = 0; *verb->noun && i < stacks.members.number; i++) {
		const union superblock *sb = &stacks.members.member[i]->sb;

		if (le32toh(sb->head.kind) != (cache ? LARDER_KIND_CACHE : LARDER_KIND_VOLUME) || (cache && le32toh(sb->cache.device_number)))
			continue;
		if (!is_said(&stacks.list, cache, label_text(sb->cache.label, label)))
			candidate(label, current, cache ? "cache" : "volume");
	}
	stacks_free(&stacks);
}

/* What runs, and what does not where that makes sense; and files, for devices. */
static void names(const struct verb *verb, const char *current)
{
	bool cache = !strcmp(verb->noun, "cache");
	struct mapped_list list;

	mapped_init(false);
	if (strcmp(verb->name, "create") && !snapshot_take(&list)) {
		for (size_t i = 0; i < list.number; i++)
			if (list.mapped[i].cache == cache)
				candidate(snapshot_name(&list, &list.mapped[i]), current, cache ? "cache" : "volume");
		mapped_list_free(&list);
	}
	for (size_t i = 0; i < sizeof(of_stopped) / sizeof(of_stopped[0]); i++)
		if (verb->function == of_stopped[i])
			stopped_names(verb, current);
	puts(":files");
}

static const struct verb *verb_of(int *argc, char ***argv)
{
	for (const struct verb *v = verbs; v < verbs + NR_VERBS; v++) {
		int words = *v->noun ? 2 : 1;

		if (*argc <= words || strcmp(*v->noun ? v->noun : v->name, (*argv)[0]) || (*v->noun && strcmp(v->name, (*argv)[1])))
			continue;
		*argc -= words;
		*argv += words;
		return v;
	}
	return NULL;
}

/*
 * larder complete WORD...: what may stand for the last of these words of a command line, for the completion of shells: a line each, a tab and
 * a word about it; ":files" where the name of a file may stand.
 */
static int complete(int argc, char **argv)
{
	const struct verb *verb;
	bool taken;

	if (--argc < 1)
		return complain(LARDER_USAGE, "a word is missing; usage: larder complete WORD...");
	argv++;
	verb = verb_of(&argc, &argv);
	if (verb && verb->function != help && verb->help) {
		char *words[] = { (char *)verb->name, NULL };

		arguments_complete(argc > 1 ? argv[argc - 2] : NULL, argv[argc - 1], &taken);
		verb->function(1, words);
		if (!taken)
			names(verb, argv[argc - 1]);
	} else if (!verb && argc == 1) {
		first_words(argv[0]);
	} else if (!verb && argc == 2) {
		verbs_of(argv[0], argv[1]);
	}
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ running a verb */

/* Those that may change superblocks or tables, themselves or by what the kernel does for them. */
static int (*const changing[])(int, char **) = {
	stack_create, stack_start, stack_remove, stack_passwd, stack_rename, stack_set, stack_resize, stack_replace, stack_add, stack_drop, stack_pin, stack_unpin, snapshot_create, snapshot_remove, cache_create, cache_start, cache_add, cache_replace, cache_remove, cache_resize, cache_set, cache_label, upgrade,
	volume_create, volume_start, volume_attach, volume_detach, volume_resize, volume_set, super_wipe, super_restore, rescue_writeback, assemble,
};

static bool may_change(const struct verb *v, int argc, char **argv)
{
	bool may = false;

	for (size_t i = 0; i < sizeof(changing) / sizeof(changing[0]); i++)
		may |= v->function == changing[i];
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || !strcmp(argv[i], "--dry-run") || !strcmp(argv[i], "-n") ||
		    (v->function == stack_pin && (!strcmp(argv[i], "--list") || !strcmp(argv[i], "-l"))))
			return false;
	return may;
}

static void archive(const char *when, const struct verb *v)
{
	char *why = must_print("%s larder %s%s%s", when, v->noun, *v->noun ? " " : "", v->name);

	archive_members(why);
	free(why);
}

static int run(const struct verb *v, int argc, char **argv)
{
	bool archived = may_change(v, argc, argv);
	int result;

	if (archived)
		archive("before", v);
	result = v->function(argc, argv);
	if (archived)
		archive("after", v);
	if (v->help)
		hanging_remark();
	return result;
}

static int dispatch(int argc, char **argv)
{
	bool noun = false;

	for (const struct verb *v = verbs; v < verbs + NR_VERBS; v++) {
		if (!*v->noun && !strcmp(v->name, argv[1]))
			return run(v, argc - 1, argv + 1);
		if (strcmp(v->noun, argv[1]))
			continue;
		noun = true;
		if (argc > 2 && !strcmp(v->name, argv[2]))
			return run(v, argc - 2, argv + 2);
	}
	if (noun && argc > 2 && (!strcmp(argv[2], "--help") || !strcmp(argv[2], "help"))) {
		print_verbs(argv[1]);
		return LARDER_DONE;
	}
	if (noun && argc == 2)
		return complain(LARDER_USAGE, "%s: a verb is missing; larder %s help lists them", argv[1], argv[1]);
	if (noun)
		return complain(LARDER_USAGE, "%s: no verb '%s'; larder %s help lists them", argv[1], argv[2], argv[1]);
	return complain(LARDER_USAGE, "no verb '%s'; larder help lists them", argv[1]);
}

static void end(int number)
{
	_exit(128 + number); /* as a shell would say it */
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = end };
	int result;

	descriptors_fill();
	/* in a unit of our own: systemd would call it a clean end, and systemd-run success, if SIGTERM were ours */
	if (getenv(PROGRAM_WAITED_FOR))
		sigaction(SIGTERM, &action, NULL);
	if (argc < 2)
		return complain(LARDER_USAGE, "a verb is missing; larder help lists them");
	if (!strcmp(argv[1], "--version")) {
		puts("larder " LARDER_RELEASE);
		return LARDER_DONE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help(argc, argv);
	result = dispatch(argc, argv);
	if (fflush(stdout) && !result)
		result = complain(LARDER_FAILED, "cannot write the output");
	return result;
}
