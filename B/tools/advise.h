/* SPDX-License-Identifier: GPL-2.0-or-later */
/* larder advise: what was seen, and the ways to show it. */
#ifndef LARDER_ADVISE_H
#define LARDER_ADVISE_H

#include <stdio.h>

#include "arguments.h"
#include "hit_curve.h"

#define KNEE_SHARE	0.9 /* of what the largest size serves */
#define FOLLOWED_LEAST	256 /* followed blocks in the smallest cache that is shown: fewer say too little */

/* What has been seen of the traffic, and the sizes at which it is shown. */
struct advice_seen {
	const struct hit_curve *curve;
	struct hit_totals totals;
	char *what; /* names of devices, or of a file */
	double seconds; /* from the first to the last request of a file; of a live trace: all of it */
	uint64_t lost; /* requests that the trace has not */
	uint64_t smallest, largest; /* bytes, powers of two: the largest holds all that was asked for */
};

/* Table, curve and words, as the options of the report say; sizes: beside the powers of two. */
int advice_show(const struct advice_seen *seen, const struct report_options *options, const struct argument_list *sizes);
/* Complains of a wrong field or format, before anything is waited for; LARDER_DONE and *go_on false: -o help was asked for. */
int advice_check(const struct report_options *options, bool *go_on);

/* The smallest of the powers of two that serves KNEE_SHARE of the reads that the largest does. */
uint64_t advice_knee(const struct advice_seen *seen);
/* "64 GiB" of a power of two; otherwise "1.46 TiB". */
const char *advice_size(char text[static SIZE_TEXT], uint64_t bytes);

void chart_print(const struct advice_seen *seen);
void chart_svg(const struct advice_seen *seen, FILE *file);

#endif
