// SPDX-License-Identifier: GPL-2.0-only
/*
 * I/O classes: lists of rules, parsed, printed, matched (class.h).
 *
 * Parsing is strict, as everywhere (settings.c): a number is digits only and in bounds.  A list that was parsed prints as it was
 * given, but for the order of matches within a rule.
 */
#include "class.h"

#define CLASS_KIB_MAX		1048576u	/* 1 GiB */
#define CLASS_PERCENT_MAX	90u
#define CLASS_SECTOR_MAX	(1ull << 50)	/* 512 PiB */
#define CLASS_WORD		64		/* of one match or action, with its end */

struct class_preset {
	const char *name, *text;
};

static const struct class_preset class_presets[] = {
	[LARDER_CLASS_DEFAULT] = { "default", "sequential:bypass" },
	{ "special", "metadata:cache/size-32:cache/any:bypass" },
	{ "log", "sync:cache/any:bypass" },
	{ "everything", "any:cache" },
};

struct class_word {
	const char *word;
	u8 value;
};

static const struct class_word class_is[] = {
	{ "read", LARDER_IS_READ }, { "write", LARDER_IS_WRITE }, { "metadata", LARDER_IS_METADATA }, { "sync", LARDER_IS_SYNC },
	{ "readahead", LARDER_IS_READAHEAD }, { "sequential", LARDER_IS_SEQUENTIAL }, { NULL, 0 }
};

static const struct class_word class_ioprio[] = {
	{ "ioprio-rt", LARDER_IOPRIO_RT }, { "ioprio-be", LARDER_IOPRIO_BE }, { "ioprio-idle", LARDER_IOPRIO_IDLE }, { NULL, 0 }
};

static const struct class_word class_action[] = {
	{ "cache", LARDER_CLASS_CACHE }, { "bypass", LARDER_CLASS_BYPASS }, { "write-only", LARDER_CLASS_WRITE_ONLY },
	{ "read-only", LARDER_CLASS_READ_ONLY }, { NULL, 0 }
};

/* ------------------------------------------------------------- parsing */

/* The entry of a word, or NULL. */
static const struct class_word *class_find(const struct class_word *table, const char *word)
{
	for (; table->word; table++)
		if (!strcmp(table->word, word))
			return table;
	return NULL;
}

/* Copies *text up to any of stop, or its end, to word, and moves *text there.  false: empty, or too long. */
static bool class_take(const char **text, const char *stop, char word[CLASS_WORD])
{
	unsigned int n = 0;

	while (**text && !strchr(stop, **text)) {
		if (n == CLASS_WORD - 1)
			return false;
		word[n++] = *(*text)++;
	}
	word[n] = 0;
	return n;
}

/* What follows the prefix in the word, or NULL. */
static const char *class_after(const char *word, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(word, prefix, n) ? NULL : word + n;
}

/* Digits up to 'stop', at most max; *at: behind it. */
static bool class_number(const char **at, char stop, u64 max, u64 *n)
{
	const char *p = *at;

	if (*p < '0' || *p > '9')
		return false;
	for (*n = 0; *p >= '0' && *p <= '9'; p++) {
		*n = *n * 10 + (*p - '0');
		if (*n > max)
			return false;
	}
	if (*p != stop)
		return false;
	*at = stop ? p + 1 : p;
	return true;
}

static int class_parse_size(struct larder_class *r, const char *text, const char **why)
{
	u64 kib;

	*why = "has a size- that is not a number of KiB (1 to 1048576)";
	if (r->sectors != U32_MAX || !class_number(&text, 0, CLASS_KIB_MAX, &kib) || !kib)
		return -EINVAL;
	r->sectors = kib * 2;
	return 0;
}

static int class_parse_lba(struct larder_class *r, const char *text, const char **why)
{
	u64 first, end;

	*why = "has an lba- that is not lba-FIRST-END in sectors, FIRST below END";
	if (r->end != U64_MAX || !class_number(&text, '-', CLASS_SECTOR_MAX, &first) ||
	    !class_number(&text, 0, CLASS_SECTOR_MAX, &end) || first >= end)
		return -EINVAL;
	r->first = first;
	r->end = end;
	return 0;
}

static int class_parse_match(struct larder_class *r, const char *word, const char **why)
{
	const struct class_word *w = class_find(class_is, word);
	const char *rest;

	if (w) {
		*why = "has a match twice in one rule";
		if (r->want & w->value)
			return -EINVAL;
		r->want |= w->value;
		return 0;
	}
	w = class_find(class_ioprio, word);
	if (w) {
		*why = "has two ioprio classes in one rule";
		if (r->ioprio)
			return -EINVAL;
		r->ioprio = w->value;
		return 0;
	}
	rest = class_after(word, "size-");
	if (rest)
		return class_parse_size(r, rest, why);
	rest = class_after(word, "lba-");
	if (rest)
		return class_parse_lba(r, rest, why);
	*why = "has a match that does not exist: any read write metadata sync readahead sequential size-N ioprio-C lba-A-B";
	return -EINVAL;
}

static int class_parse_action(struct larder_classes *l, struct larder_class *r, const char *word, const char **why)
{
	const struct class_word *w = class_find(class_action, word);
	const char *rest = class_after(word, "pin-");
	u64 percent;

	if (w) {
		r->action = w->value;
		return 0;
	}
	*why = "has an action that does not exist: cache, bypass, pin-P, write-only, read-only";
	if (!rest)
		return -EINVAL;
	*why = "has a pin- without a share in percent (1 to 90)";
	if (!class_number(&rest, 0, CLASS_PERCENT_MAX, &percent) || !percent)
		return -EINVAL;
	*why = "has more than 3 rules that pin";
	if (l->pins == LARDER_CLASS_PINS)
		return -EINVAL;
	r->action = LARDER_CLASS_PIN;
	r->percent = percent;
	r->pin = ++l->pins;
	return 0;
}

/* The matches of a rule, and the ':' behind them.  'any' stands alone. */
static int class_parse_matches(struct larder_class *r, const char **text, const char **why)
{
	char word[CLASS_WORD], stop;
	unsigned int n = 0;
	int err = 0;

	do {
		*why = "is neither a preset (default, special, log, everything) nor rules MATCH+...:ACTION/...";
		if (!class_take(text, "+:/", word) || (**text != '+' && **text != ':'))
			return -EINVAL;
		stop = *(*text)++;
		if (n++ || stop != ':' || strcmp(word, "any"))
			err = class_parse_match(r, word, why);
	} while (!err && stop == '+');
	return err;
}

/* One rule, up to '/' or the end. */
static int class_parse_rule(struct larder_classes *l, const char **text, const char **why)
{
	struct larder_class *r = &l->rule[l->nr];
	char word[CLASS_WORD];
	int err;

	*why = "has more than 16 rules";
	if (l->nr == LARDER_CLASS_RULES)
		return -EINVAL;
	*r = (struct larder_class){ .sectors = U32_MAX, .end = U64_MAX };
	err = class_parse_matches(r, text, why);
	if (err)
		return err;
	*why = "has a rule without an action";
	if (!class_take(text, "+:/", word) || (**text && **text != '/'))
		return -EINVAL;
	err = class_parse_action(l, r, word, why);
	l->nr += !err;
	return err;
}

static int class_parse_rules(struct larder_classes *l, const char *text, const char **why)
{
	int err;

	l->preset = LARDER_CLASS_NONE;
	l->nr = 0;
	l->pins = 0;
	for (;;) {
		err = class_parse_rule(l, &text, why);
		if (err || !*text)
			return err;
		text++;
	}
}

void larder_classes_default(struct larder_classes *l)
{
	const char *why;

	memset(l, 0, sizeof(*l));
	class_parse_rules(l, class_presets[LARDER_CLASS_DEFAULT].text, &why);
	l->preset = LARDER_CLASS_DEFAULT;
}

int larder_classes_parse(struct larder_classes *l, const char *text, const char **why)
{
	struct larder_classes new;
	unsigned int i;
	int err;

	*why = "is longer than 511 bytes";
	if (strlen(text) >= LARDER_CLASS_TEXT)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(class_presets) && strcmp(class_presets[i].name, text); i++)
		;
	memset(&new, 0, sizeof(new));
	err = class_parse_rules(&new, i < ARRAY_SIZE(class_presets) ? class_presets[i].text : text, why);
	if (err)
		return err;
	if (i < ARRAY_SIZE(class_presets))
		new.preset = i;
	*l = new;
	return 0;
}

/* ------------------------------------------------------------- printing */

struct class_out {
	char *buf;
	unsigned int size, at;
};

static void class_put(struct class_out *o, const char *text)
{
	for (; *text && o->at + 1 < o->size; text++)
		o->buf[o->at++] = *text;
}

static void class_put_number(struct class_out *o, u64 n)
{
	char digits[21];
	int i = sizeof(digits) - 1;

	digits[i] = 0;
	do {
		u32 rest;

		n = div_u64_rem(n, 10, &rest);
		digits[--i] = '0' + rest;
	} while (n);
	class_put(o, digits + i);
}

/* The separator before each match but the first. */
static void class_put_match(struct class_out *o, const char *text, bool *first)
{
	if (!*first)
		class_put(o, "+");
	*first = false;
	class_put(o, text);
}

static void class_put_rule(struct class_out *o, const struct larder_class *r)
{
	const struct class_word *w;
	bool first = true;

	for (w = class_is; w->word; w++)
		if (r->want & w->value)
			class_put_match(o, w->word, &first);
	if (r->sectors != U32_MAX) {
		class_put_match(o, "size-", &first);
		class_put_number(o, r->sectors / 2);
	}
	for (w = class_ioprio; w->word; w++)
		if (r->ioprio == w->value)
			class_put_match(o, w->word, &first);
	if (r->end != U64_MAX) {
		class_put_match(o, "lba-", &first);
		class_put_number(o, r->first);
		class_put(o, "-");
		class_put_number(o, r->end);
	}
	class_put(o, first ? "any:" : ":");
	for (w = class_action; w->word; w++)
		if (r->action == w->value)
			class_put(o, w->word);
	if (r->action == LARDER_CLASS_PIN) {
		class_put(o, "pin-");
		class_put_number(o, r->percent);
	}
}

unsigned int larder_classes_print(const struct larder_classes *l, char *buf, unsigned int size)
{
	struct class_out o = { .buf = buf, .size = size };
	unsigned int i;

	if (l->preset < ARRAY_SIZE(class_presets)) {
		class_put(&o, class_presets[l->preset].name);
	} else {
		for (i = 0; i < l->nr; i++) {
			if (i)
				class_put(&o, "/");
			class_put_rule(&o, &l->rule[i]);
		}
	}
	if (size)
		buf[o.at] = 0;
	return o.at;
}

static bool class_same(const struct larder_class *a, const struct larder_class *b)
{
	return a->want == b->want && a->ioprio == b->ioprio && a->action == b->action && a->percent == b->percent &&
	       a->sectors == b->sectors && a->first == b->first && a->end == b->end;
}

bool larder_classes_same(const struct larder_classes *a, const struct larder_classes *b)
{
	unsigned int i;

	if (a->preset != b->preset || a->nr != b->nr)
		return false;
	for (i = 0; i < a->nr && class_same(&a->rule[i], &b->rule[i]); i++)
		;
	return i == a->nr;
}

/* ------------------------------------------------------------- matching */

u8 larder_classes_match(const struct larder_classes *l, const struct larder_class_request *rq)
{
	u8 i;

	for (i = 0; i < l->nr; i++) {
		const struct larder_class *r = &l->rule[i];

		if (!(r->want & ~rq->is) && rq->sectors <= r->sectors && rq->sector >= r->first && rq->sector < r->end &&
		    (!r->ioprio || r->ioprio == rq->ioprio))
			return i;
	}
	return LARDER_CLASS_NONE;
}

bool larder_class_bypasses(const struct larder_class *rule, bool write)
{
	if (!rule)
		return false;
	return rule->action == LARDER_CLASS_BYPASS ||
	       rule->action == (write ? LARDER_CLASS_READ_ONLY : LARDER_CLASS_WRITE_ONLY);
}
