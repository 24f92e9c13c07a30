/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The requests that block devices get, from the kernel's tracepoint block:block_bio_queue, as lines of text. */
#ifndef LARDER_TRACEFS_H
#define LARDER_TRACEFS_H

#include <stddef.h>
#include <sys/types.h>

/* An instance of tracefs of our own: what others trace is left alone. */
struct tracefs {
	char *path; /* its directory */
	int directory, pipe;
};

/*
 * Begins to trace what the filter (of the event's fields dev and sector) lets through.  Removes what processes that were killed have left.  0, or the
 * code of what it has complained of; then there is nothing to end.
 */
int tracefs_begin(struct tracefs *trace, const char *filter);
/* What has come since, never waits: 0: nothing; negative: -errno. */
ssize_t tracefs_read(const struct tracefs *trace, char *buffer, size_t size);
/* No more is traced; what has come can still be read. */
void tracefs_stop(const struct tracefs *trace);
/* Removes the instance. */
void tracefs_end(struct tracefs *trace);

#endif
