/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What runs as numbers with names, units and types, for monitoring systems: docs/metrics.md. */
#ifndef LARDER_METRICS_H
#define LARDER_METRICS_H

#include <stdio.h>

#include "dm.h"
#include "stalled.h"

enum metrics_format {
	METRICS_OPENMETRICS, /* OpenMetrics 1.0 */
	METRICS_PROMETHEUS, /* the text format before it, 0.0.4, which the textfile collector of node_exporter takes */
};

/*
 * All metrics of the caches and volumes in the list, and of devices below them that hang: a function of the lists alone.  The caller looks for errors of
 * the stream.
 */
void metrics_write(FILE *out, const struct mapped_list *list, const struct stalled_list *stalled, enum metrics_format format);
/* All that there are, a line each: name of the sample, type, unit or -, what it is. */
void metrics_describe(FILE *out);

#endif
