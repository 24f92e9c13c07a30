/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A stack whose volume a verb needs for a moment, say to read the LUKS header, of which the newest copy may be on the SSDs: where the stack is stopped
 * the layers below LUKS are started, marked as locked so that nobody unlocks them, and stopped again.
 */
#ifndef LARDER_STACK_LEND_H
#define LARDER_STACK_LEND_H

#include "stack.h"

/* What was running before, and what we began. */
struct lent {
	bool array, cache, volume, mark, lent;
	bool assembled; /* by us, to read the description */
};

/*
 * A copy of the description, of a stack that is ready and this machine's.  May be called again, when it was changed meanwhile.  dry_run: refused
 * where its array would have to be started for that.  Complains.
 */
int lend_load(const char *name, bool dry_run, struct stack *stack, struct lent *was);
/* Nothing where the volume runs.  Complains; lend_return() after it in any case. */
int lend_start(const struct stack *stack, struct lent *was);
/* Node of the volume, to be freed by the caller; NULL: it has complained. */
char *lend_node(const struct stack *stack);
/* Volume and cache are as they were before; the array still runs.  A snapshot that was lost meanwhile is noted, in this copy, too. */
int lend_stop_volume(struct stack *stack, struct lent *was);
/* All is as it was before. */
int lend_return(struct stack *stack, struct lent *was);

#endif
