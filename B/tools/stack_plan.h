/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What `larder create` will make of its words and of the devices that it is given: nothing is written here. */
#ifndef LARDER_STACK_PLAN_H
#define LARDER_STACK_PLAN_H

#include "luks.h"
#include "stack_claims.h"
#include "stack_words.h"
#include "stacks.h"
#include "token.h"

/* What is being made. */
struct making {
	struct stack stack; /* with --separate the first one, then the next ones in its place */
	const struct stack_request *request;
	struct claims claims;
	uint32_t ssds; /* of its cache, that take data */
	uint32_t copies; /* of these dirty data is on so many */
	struct tier_set set; /* all places of it */
	char cache_label[LARDER_LABEL_SIZE + 1];
	struct secret secret;
	struct token token; /* where stack.token is given: as found to be usable */
};

/*
 * Behind stack_parse(), whose words and description m has.  The devices: free, fit, large enough, with nothing on them; the names
 * are not taken; what it takes is on this machine; the descriptions have room.  Fills the rest, but for the secret.  May give the
 * lock away for a while (stack_check_token()): whoever writes then asks stack_plan_again() first.  Complains.
 */
int stack_plan(struct making *m);
/*
 * Behind a question, or any other pause: what others can have taken, or changed, meanwhile.  The devices are claimed anew when they
 * are cleared.  Complains.
 */
int stack_plan_again(const struct making *m);
/* Of a cache that is there: its places, the SSDs that take data, and on how many of these dirty data is.  Complains. */
int stack_look_at_cache(const struct stacks *stacks, const uint8_t cache[16], struct tier_set *set, uint32_t *ssds, uint32_t *copies);
/* What writeback risks where dirty data is on one SSD alone, on stdout; else nothing. */
void stack_show_risk(const char *mode, uint32_t ssds, uint32_t copies);
/* Prints it, on stdout. */
void stack_show_plan(const struct making *m);
/*
 * The key that a TPM2 or a server is to keep: can it be made?  Fills token, and stack.token with what was found out.  Without the
 * lock meanwhile: what was looked at before is to be looked at again.  Complains.
 */
int stack_check_token(struct making *m);

#endif
