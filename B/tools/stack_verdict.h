/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a stack is, and why. */
#ifndef LARDER_STACK_VERDICT_H
#define LARDER_STACK_VERDICT_H

#include "problems.h"
#include "stack_layers.h"

/* How a stack is: the worst of what was found. */
enum health {
	FINE,
	DEGRADED,
	FAILED,
};

struct verdict {
	enum health health;
	bool stopped, foreign;
	bool stalled; /* a device below it hangs */
	struct problems words;
	struct problems wrong; /* of these what makes it degraded or failed, but for the advice on its volume and cache (advice.h) */
};

struct view {
	const struct stacks *stacks;
	const struct found *found;
	struct layers layers;
	struct md_disks disks; /* of an array that runs */
	struct verdict verdict;
};

/* found: of stacks, which stay for as long as the view is open. */
void view_open(struct view *view, const struct stacks *stacks, const struct found *found);
void view_close(struct view *view);
/* "fine", "degraded", "failed", "stopped", ... */
const char *view_verdict(const struct view *view);

#endif
