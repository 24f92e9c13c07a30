// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder: SSD caches for slow disks.  This is the table of verbs; each has its function in a file of its own or of its group.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "message.h"
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

static const struct verb verbs[] = {
	{ "", "create", stack_create, "make a whole stack: RAID, volume, encryption, filesystem" },
	{ "", "start", stack_start, "start a stack, and mount it" },
	{ "", "stop", stack_stop, "unmount a stack, and stop it" },
	{ "", "remove", stack_remove, "take a stack apart: all in it is lost" },
	{ "", "lock", stack_lock, "close the encryption of a stack" },
	{ "", "unlock", stack_unlock, "open it again" },
	{ "", "list", stacks_list, "show all stacks as trees" },
	{ "", "show", stack_show, "show one stack, with all UUIDs" },
	{ "", "status", stack_status, "is a stack fine (0), degraded (10), failed (11)?" },
	{ "cache", "create", cache_create, "format an SSD as a cache" },
	{ "cache", "start", cache_start, "start a cache" },
	{ "cache", "stop", cache_stop, "stop a cache that no volume uses" },
	{ "cache", "add", cache_add, "add an SSD to a started cache" },
	{ "cache", "replace", cache_replace, "put an SSD in the place of one that has failed" },
	{ "cache", "remove", cache_remove, "drain an SSD of a started cache, and take it out" },
	{ "cache", "scrub", cache_scrub, "read what a started cache holds, and repair it" },
	{ "cache", "list", cache_list, "list caches, started or not" },
	{ "cache", "status", cache_status, "show what a cache does" },
	{ "cache", "get", cache_get, "show options of a started cache" },
	{ "cache", "set", cache_set, "change options of a started cache" },
	{ "volume", "create", volume_create, "format a disk as the backing of a volume" },
	{ "volume", "start", volume_start, "start a volume, and its cache if need be" },
	{ "volume", "stop", volume_stop, "stop a volume; dirty data stays in the cache" },
	{ "volume", "attach", volume_attach, "put a started volume behind a cache" },
	{ "volume", "detach", volume_detach, "take a started volume off its cache" },
	{ "volume", "get", volume_get, "show options of a started volume" },
	{ "volume", "set", volume_set, "change options of a started volume" },
	{ "volume", "flush", volume_flush, "write dirty data back at full speed" },
	{ "volume", "list", volume_list, "list volumes, started or not" },
	{ "volume", "status", volume_status, "show what a volume does" },
	{ "super", "show", super_show, "show the superblock of a device" },
	{ "super", "check", super_check, "check both superblocks and the tables of a device" },
	{ "super", "wipe", super_wipe, "remove the superblocks of a device" },
	{ "rescue", "check", rescue_check, "without the module: is what a cache holds whole?" },
	{ "rescue", "list", rescue_list, "without the module: what is dirty in a cache" },
	{ "rescue", "writeback", rescue_writeback, "without the module: write dirty data to the volume's disk" },
	{ "rescue", "serve", rescue_serve, "without the module: serve a volume read-only by NBD" },
	{ "", "assemble", assemble, "start all caches and volumes that are complete" },
	{ "", "probe", probe, "say what is on a device" },
	{ "", "help", help, "this list" },
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

static int dispatch(int argc, char **argv)
{
	bool noun = false;

	for (const struct verb *v = verbs; v < verbs + NR_VERBS; v++) {
		if (!*v->noun && !strcmp(v->name, argv[1]))
			return v->function(argc - 1, argv + 1);
		if (strcmp(v->noun, argv[1]))
			continue;
		noun = true;
		if (argc > 2 && !strcmp(v->name, argv[2]))
			return v->function(argc - 2, argv + 2);
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

int main(int argc, char **argv)
{
	int result;

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
