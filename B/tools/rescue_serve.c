// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder rescue serve: the merged volume, read-only, by NBD.  The protocol is nbdkit's business; what it serves is ours
 * (tools/nbdkit/rescue.c, a plugin).
 *
 * The devices are opened and judged here first, for messages and exit codes of our own; then nbdkit takes this process over.
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arguments.h"
#include "rescue_names.h"
#include "verbs.h"

#define PLUGIN "nbdkit-larder-plugin.so"

struct request {
	struct argument_list ssds;
	struct cache_names cache;
	const char *socket, *port, *address;
	bool dry_run;
};

static char *absolute(const char *path)
{
	char *real = realpath(path, NULL);

	return real ? real : must_print("%s", path);
}

/* Beside the program, as built, or in ../lib/larder, as installed.  The caller frees it. */
static int find_plugin(char **plugin)
{
	char program[PATH_MAX] = "";
	const char *directory;

	if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		return complain(LARDER_FAILED, "/proc/self/exe: %s", strerror(errno));
	directory = dirname(program);
	*plugin = must_print("%s/" PLUGIN, directory);
	if (!access(*plugin, R_OK))
		return LARDER_DONE;
	free(*plugin);
	*plugin = must_print("%s/../lib/larder/" PLUGIN, directory);
	if (!access(*plugin, R_OK))
		return LARDER_DONE;
	free(*plugin);
	return complain(LARDER_NOT_FOUND, PLUGIN ": neither in %s nor in ../lib/larder: this larder was built without nbdkit's headers",
			directory);
}

static int check_request(const struct request *request)
{
	if (!request->socket == !request->port)
		return complain(LARDER_USAGE, "give either --socket PATH or --port NUMBER");
	if (request->address && !request->port)
		return complain(LARDER_USAGE, "--address goes with --port");
	return LARDER_DONE;
}

/* Words of a command, each allocated. */
struct command {
	char *word[LARDER_MAX_DEVICES * 2 + 16];
	unsigned number;
};

static void add_word(struct command *command, const char *prefix, const char *word)
{
	if (command->number < sizeof(command->word) / sizeof(command->word[0]) - 1)
		command->word[command->number++] = must_print("%s%s", prefix, word);
}

static void add_device(struct command *command, const char *prefix, const struct device *device)
{
	char *path = absolute(device->path);

	add_word(command, prefix, path);
	free(path);
}

static void add_place(struct command *command, const struct request *request)
{
	add_word(command, "", request->socket ? "--unix" : "--port");
	add_word(command, "", request->socket ? request->socket : request->port);
	if (request->socket)
		return;
	add_word(command, "", "--ipaddr");
	add_word(command, "", request->address ? request->address : "127.0.0.1");
}

/* Returns only if it fails, or with --dry-run.  The devices are closed by exec. */
static int run_nbdkit(const struct command *command, bool dry_run)
{
	if (dry_run) {
		for (unsigned i = 0; i < command->number; i++)
			printf("%s%c", command->word[i], i == command->number - 1 ? '\n' : ' ');
		return LARDER_DONE;
	}
	fflush(stdout);
	umask(077); /* the socket is for this user alone */
	execvp(command->word[0], command->word);
	return complain(LARDER_FAILED, "nbdkit: %s; it serves NBD: install the package nbdkit", strerror(errno));
}

static int serve(struct rescue_cache *cache, const struct rescue_volume *volume, void *data)
{
	const struct request *request = data;
	struct command command = { { "nbdkit", "--foreground", "--readonly" }, 3 };
	char *plugin = NULL;
	int result = rescue_judge(cache, volume);

	result = result ? result : find_plugin(&plugin);
	if (result)
		return result;
	rescue_tell_lost(cache, volume);
	add_place(&command, request);
	add_word(&command, "", plugin);
	free(plugin);
	for (size_t i = 0; i < cache->set.number; i++)
		/* without one that was to join the set may not be complete */
		if (cache->set.ssd[i].standing == SSD_MEMBER || cache->set.ssd[i].standing == SSD_JOINING)
			add_device(&command, "ssd=", &cache->set.ssd[i].device);
	add_device(&command, "backing=", &volume->device);
	if (request->cache.degraded)
		add_word(&command, "", "degraded=yes");
	result = run_nbdkit(&command, request->dry_run);
	for (unsigned i = 3; i < command.number; i++)
		free(command.word[i]);
	return result;
}

int rescue_serve(int argc, char **argv)
{
	static const char usage[] = "larder rescue serve VOLUME --socket PATH | --port NUMBER [--address IP] [--cache CACHE|SSD]... [--degraded] "
				    "[--dry-run]";
	struct request request = { 0 };
	const struct argument arguments[] = {
		{ "socket", 0, ARGUMENT_TEXT, &request.socket, "PATH", "serve at this Unix socket" },
		{ "port", 0, ARGUMENT_TEXT, &request.port, "NUMBER", "serve at this TCP port" },
		{ "address", 0, ARGUMENT_TEXT, &request.address, "IP", "of this address; without it 127.0.0.1" },
		{ "cache", 0, ARGUMENT_LIST, &request.ssds, "CACHE", "its cache, or each SSD of it, if it is not found by its UUID" },
		DEGRADED_ARGUMENT(request.cache.degraded),
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the nbdkit command" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	result = check_request(&request);
	if (result)
		return result;
	request.cache.name = request.ssds.value;
	request.cache.number = request.ssds.number;
	return rescue_with_volume(argv[first], &request.cache, DEVICE_EXAMINE, serve, &request);
}
