/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * I/O classes: an ordered list of rules that says what of a volume's requests goes to the SSD.  Pure: includes pure.h only, tested
 * in userland.
 *
 * A list is the name of a preset, or rules divided by '/', in order; the first whose matches all hold decides.  What none matches
 * is cached.
 *	list   = preset | rule *("/" rule)		at most LARDER_CLASS_RULES, LARDER_CLASS_TEXT bytes
 *	rule   = match *("+" match) ":" action
 *	match  = any | read | write | metadata | sync | readahead | sequential | size-N | lba-A-B |
 *		 ioprio-rt | ioprio-be | ioprio-idle
 *	action = cache | bypass | pin-P | write-only | read-only
 */
#ifndef LARDER_CLASS_H
#define LARDER_CLASS_H

#include "pure.h"

#define LARDER_CLASS_RULES	16u
#define LARDER_CLASS_TEXT	512u	/* with its end */
#define LARDER_CLASS_PINS	3u	/* rules that pin, per volume */
#define LARDER_CLASS_NONE	0xffu	/* no rule matches */

/* What a request is, and a rule wants; a bit each. */
enum larder_class_is {
	LARDER_IS_READ		= 1 << 0,
	LARDER_IS_WRITE		= 1 << 1,
	LARDER_IS_METADATA	= 1 << 2,	/* REQ_META or REQ_PRIO */
	LARDER_IS_SYNC		= 1 << 3,	/* a write with REQ_SYNC or REQ_FUA: somebody waits for it */
	LARDER_IS_READAHEAD	= 1 << 4,
	LARDER_IS_SEQUENTIAL	= 1 << 5,	/* of a stream longer than sequential_cutoff */
};

/* I/O priority classes: the kernel's numbers. */
enum larder_class_ioprio { LARDER_IOPRIO_ANY, LARDER_IOPRIO_RT, LARDER_IOPRIO_BE, LARDER_IOPRIO_IDLE };

enum larder_class_action {
	LARDER_CLASS_CACHE,		/* reads fill, writes are cached */
	LARDER_CLASS_BYPASS,		/* neither */
	LARDER_CLASS_PIN,		/* as CACHE, and kept while the class has no more than its share */
	LARDER_CLASS_WRITE_ONLY,	/* writes are cached, reads do not fill */
	LARDER_CLASS_READ_ONLY,		/* reads fill, writes go to the backing */
};

struct larder_class {
	u8 want;			/* enum larder_class_is: all of them */
	u8 ioprio;
	u8 action;
	u8 percent;			/* PIN: share of the cache, 1 to 90 */
	u8 pin;				/* PIN: its ordinal among those that pin, from 1; else 0 */
	u32 sectors;			/* at most so many */
	u64 first, end;			/* it begins in [first, end) */
};

struct larder_classes {
	u8 preset;			/* its number, or LARDER_CLASS_NONE */
	u8 nr;
	u8 pins;			/* rules that pin */
	struct larder_class rule[LARDER_CLASS_RULES];
};

struct larder_class_request {
	u8 is;				/* enum larder_class_is */
	u8 ioprio;
	u32 sectors;
	u64 sector;
};

#define LARDER_CLASS_DEFAULT	0	/* the number of the preset `default`: streams pass by, all else is cached */

void larder_classes_default(struct larder_classes *l);
/* -EINVAL: *why says what is wrong, after "class: 'text' "; *l is as it was. */
int larder_classes_parse(struct larder_classes *l, const char *text, const char **why);
/* As parse takes it, with its end in size bytes; returns the length without. */
unsigned int larder_classes_print(const struct larder_classes *l, char *buf, unsigned int size);
bool larder_classes_same(const struct larder_classes *a, const struct larder_classes *b);
/* Any context.  The number of the first rule that matches, or LARDER_CLASS_NONE. */
u8 larder_classes_match(const struct larder_classes *l, const struct larder_class_request *rq);
/* Does a request of this rule (NULL: none matched) pass the cache by? */
bool larder_class_bypasses(const struct larder_class *rule, bool write);

#endif
