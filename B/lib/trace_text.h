/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests in the text of a trace: ftrace's (trace_pipe, trace; also perf script, trace-cmd report), event block_bio_queue; and blkparse's, in its default
 * format, action Q.  Pure.
 */
#ifndef LARDER_TRACE_TEXT_H
#define LARDER_TRACE_TEXT_H

#include <stdint.h>

#include "hit_curve.h"

enum trace_line {
	TRACE_REQUEST, /* *request is set: its numbers are such as hit_curve_add() takes */
	TRACE_LOST, /* *lost (at least 1) events are missing here */
	TRACE_OTHER, /* nothing that counts: another event, a flush, a heading */
	TRACE_BAD, /* a request with numbers that none can have */
};

struct trace_request {
	unsigned major, minor;
	enum hit_access access;
	uint64_t sector;
	uint32_t sectors; /* at least 1 */
	double time; /* seconds, on the clock of the trace */
};

/* line: without its newline, ends with a zero byte. */
enum trace_line trace_line_parse(const char *line, struct trace_request *request, uint64_t *lost);

#endif
