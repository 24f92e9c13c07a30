/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ranges of sectors, and the rules of a volume's class list that pin them.  Text and numbers, no I/O.
 *
 * What `larder pin` has put into a list are the rules lba-A-B:pin-75 at its beginning, and nothing else is: so they are found again in any list, without
 * a second record of them that could say otherwise.  A rule is bounded by its range, so its share is as large as the kernel grants to all pins together;
 * it stays right when the cache becomes another one.
 */
#ifndef LARDER_PINS_H
#define LARDER_PINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLASS_PINS_MAX	  3u /* rules that pin in one list; as kernel/class.h has it, and the two below */
#define CLASS_RULES_MAX	  16u
#define CLASS_TEXT_MAX	  511u /* bytes */
#define PIN_PERCENT	  75u /* of a cache may be pinned: docs/interface.md, Classes */
#define PIN_GAPS_DIVISOR  8u /* what is pinned in between may be so much of what was asked for */

struct range {
	uint64_t first, end; /* sectors first to end - 1 */
};

struct ranges {
	struct range *range;
	size_t number;
};

void ranges_add(struct ranges *ranges, uint64_t first, uint64_t end);
/* Sorts them, and makes one of those that touch or overlap. */
void ranges_join(struct ranges *ranges);
/* Of joined ones: closes the smallest gaps until there are no more than max of them.  Returns the sectors of these gaps. */
uint64_t ranges_close(struct ranges *ranges, size_t max);
uint64_t ranges_length(const struct ranges *ranges);
/* How many sectors of [first, end) are in them, joined as they are. */
uint64_t ranges_common(const struct ranges *ranges, uint64_t first, uint64_t end);
void ranges_free(struct ranges *ranges);

/* The ranges that a list begins with; free them.  Returns what is behind them, "" if nothing. */
const char *class_pins(const char *list, struct ranges *pins);
/* The list without them: a preset again where it was one; the caller frees it. */
char *class_without_pins(const char *list);
/* The list with these instead of those that it has; the caller frees it.  Not checked against the bounds. */
char *class_with_pins(const char *list, const struct ranges *pins);
/* Rules of a list, and of these such that pin. */
unsigned class_rules(const char *list, unsigned *pinning);

#endif
