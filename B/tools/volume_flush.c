// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder volume flush: write dirty data back at full speed, and wait for it if asked.
 *
 * Progress is read from the status twice a second.  A volume in mode writeback under load may get dirty again while it is
 * flushed; the kernel ends its flush when what was dirty is written, so the end is flushing=0, and what is left then is judged
 * by the caller's purpose.
 */
#include <stdio.h>
#include <unistd.h>

#include "clock.h"
#include "drain.h"
#include "running.h"
#include "signals.h"
#include "verbs.h"

#define POLL_MICROSECONDS 500000
#define PATIENCE	  20 /* polls without flushing=1 and without progress before we believe that it was given up */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
	(void)number;
	interrupted = 1;
}

static uint64_t dirty_bytes(const struct mapped *volume)
{
	return status_number(volume->status, "dirty_sectors") << 9;
}

/* The rate is measured: writeback_rate says what is allowed, which at full speed is anything. */
static void progress(const struct mapped *volume, uint64_t begun, double since, bool last)
{
	const struct size_format human = { 'h', true };
	char left[SIZE_TEXT], rate[SIZE_TEXT];
	uint64_t dirty = dirty_bytes(volume), done = begun > dirty ? begun - dirty : 0;
	double seconds = clock_seconds() - since;

	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%s: %s dirty, %.0f %% done, %s/s   %s", volume->name, size_print(left, dirty, &human),
		begun ? 100.0 * (double)done / (double)begun : 100.0,
		size_print(rate, seconds > 0 ? (uint64_t)((double)done / seconds) : 0, &human), last ? "\n" : "");
}

void drain_catch_signals(void)
{
	signals_catch(signals_that_end, interrupt, 0, NULL);
}

static int wait_drained(struct mapped *volume)
{
	uint64_t begun, least;
	int quiet = 0, result = mapped_refresh(volume);
	double since = clock_seconds();

	begun = least = result ? 0 : dirty_bytes(volume);
	while (!result && !interrupted && dirty_bytes(volume) && quiet < PATIENCE) {
		progress(volume, begun, since, false);
		usleep(POLL_MICROSECONDS);
		result = mapped_refresh(volume);
		if (result)
			break;
		quiet = status_number(volume->status, "flushing") || dirty_bytes(volume) < least ? 0 : quiet + 1;
		least = dirty_bytes(volume) < least ? dirty_bytes(volume) : least;
		/* done, but written to since: that is the caller's affair */
		if (!status_number(volume->status, "flushing") && quiet > 1)
			break;
	}
	if (!result)
		progress(volume, begun, since, true);
	return result;
}

int drain(struct mapped *volume)
{
	int result;

	drain_catch_signals();
	result = mapped_message(volume->target, "flush");
	result = result ? result : wait_drained(volume);
	if (result)
		return result;
	if (interrupted) {
		mapped_message(volume->target, "flush_stop");
		return complain(LARDER_FAILED, "%s: interrupted: %llu bytes are still dirty", volume->name,
				(unsigned long long)dirty_bytes(volume));
	}
	if (dirty_bytes(volume))
		return complain(LARDER_FAILED,
				"%s: the flush has ended, and %llu bytes are dirty: written meanwhile, or the backing fails "
				"(errors_write=%llu); see dmesg, or flush again",
				volume->name, (unsigned long long)dirty_bytes(volume),
				(unsigned long long)status_number(volume->status, "errors_write"));
	return LARDER_DONE;
}

int volume_flush(int argc, char **argv)
{
	bool wait = false, stop = false, dry_run = false;
	const struct argument arguments[] = { { "wait", 'w', ARGUMENT_FLAG, &wait, NULL,
						"until nothing is dirty, with progress on a terminal" },
					      { "stop", 0, ARGUMENT_FLAG, &stop, NULL, "give a flush up" },
					      { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup command" },
					      ARGUMENTS_END };
	struct mapped *volume;
	struct mapped_list list;
	int first, result;

	if (!arguments_words(argc, argv, "larder volume flush NAME|UUID|DEVICE [--wait | --stop] [--dry-run]", arguments, 1, 1,
			     &first, &result))
		return result;
	if (wait && stop)
		return complain(LARDER_USAGE, "--wait and --stop exclude each other");
	mapped_init(dry_run);
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, argv[first], false, &volume);
	if (!result)
		result = wait && !dry_run ? drain(volume) : mapped_message(volume->target, stop ? "flush_stop" : "flush");
	mapped_list_free(&list);
	return result;
}
