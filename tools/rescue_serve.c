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
	const char *cache, *socket, *port, *address;
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

/* Returns only if it fails, or with --dry-run.  The devices are closed by exec. */
static int run_nbdkit(const char *plugin, char *ssd, char *backing, const struct request *request)
{
	const char *words[16] = { "nbdkit", "--foreground", "--readonly" };
	int n = 3;

	if (request->socket) {
		words[n++] = "--unix";
		words[n++] = request->socket;
	} else {
		words[n++] = "--port";
		words[n++] = request->port;
		words[n++] = "--ipaddr";
		words[n++] = request->address ? request->address : "127.0.0.1";
	}
	words[n++] = plugin;
	words[n++] = ssd;
	words[n++] = backing;
	if (request->dry_run) {
		for (int i = 0; i < n; i++)
			printf("%s%c", words[i], i == n - 1 ? '\n' : ' ');
		return LARDER_DONE;
	}
	fflush(stdout);
	umask(077); /* the socket is for this user alone */
	execvp(words[0], (char **)words);
	return complain(LARDER_FAILED, "nbdkit: %s; it serves NBD: install the package nbdkit", strerror(errno));
}

static int serve(const struct rescue_cache *cache, const struct rescue_volume *volume, const struct request *request)
{
	char *plugin = NULL, *ssd_path, *backing_path, *ssd, *backing;
	int result = rescue_judge(cache, volume);

	result = result ? result : find_plugin(&plugin);
	if (result)
		return result;
	ssd_path = absolute(cache->device.path);
	backing_path = absolute(volume->device.path);
	ssd = must_print("ssd=%s", ssd_path);
	backing = must_print("backing=%s", backing_path);
	result = run_nbdkit(plugin, ssd, backing, request);
	free(ssd);
	free(backing);
	free(ssd_path);
	free(backing_path);
	free(plugin);
	return result;
}

int rescue_serve(int argc, char **argv)
{
	static const char usage[] = "larder rescue serve VOLUME --socket PATH | --port NUMBER [--address IP] [--cache CACHE] [--dry-run]";
	struct request request = { 0 };
	const struct argument arguments[] = {
		{ "socket", 0, ARGUMENT_TEXT, &request.socket, "PATH", "serve at this Unix socket" },
		{ "port", 0, ARGUMENT_TEXT, &request.port, "NUMBER", "serve at this TCP port" },
		{ "address", 0, ARGUMENT_TEXT, &request.address, "IP", "of this address; without it 127.0.0.1" },
		{ "cache", 0, ARGUMENT_TEXT, &request.cache, "CACHE", "its cache, if it is not found by its UUID" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the nbdkit command" },
		ARGUMENTS_END
	};
	struct rescue_volume volume;
	struct rescue_cache cache;
	bool has_cache;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	result = check_request(&request);
	result = result ? result :
			  rescue_named_volume(argv[first], request.cache, DEVICE_EXAMINE, &cache, &volume, &has_cache);
	if (result)
		return result;
	result = serve(&cache, &volume, &request);
	rescue_volume_close(&volume);
	if (has_cache)
		rescue_cache_close(&cache);
	return result;
}
