// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kernel/class.c: the grammar of class lists, round trips, matching against a naive reading of the same text.
 *
 *	test_class [seed]
 */
#include "../../kernel/class.c"

#include "seeded.h"

/* ------------------------------------------------------------- what is taken, and what not */

static const char *const good[] = {
	"any:cache",
	"metadata:cache/size-32:cache/any:bypass",
	"read+metadata+size-4:pin-90/write+sync:write-only/any:bypass",
	"lba-0-2048:pin-1/lba-2048-4096:pin-2/lba-4096-1125899906842624:pin-3/any:read-only",
	"readahead+sequential+size-1048576+ioprio-idle+lba-8-16:read-only",
	"ioprio-rt:cache/ioprio-be:cache/ioprio-idle:bypass",
};

static const char *const bad[] = {
	"", ":", "/", "any", "any:", ":cache", "any:cache/", "/any:cache", "any:cache//any:cache", "any:cache:bypass", "any+sync:cache",
	"sync+any:cache", "+sync:cache", "sync+:cache", "sync++read:cache", "any:cached", "all:cache", "special/any:cache", "Special",
	"any:pin", "any:pin-", "any:pin-0", "any:pin-91", "any:pin-1a", "any:pin-01x", "size-:cache", "size-0:cache", "size--1:cache",
	"size-1048577:cache", "size-99999999999999999999:cache", "size-4+size-8:cache", "size-4k:cache", "lba-:cache", "lba-5:cache",
	"lba-5-5:cache", "lba-6-5:cache", "lba-5-:cache", "lba--5:cache", "lba-0-9+lba-1-2:cache", "lba-0-1125899906842625:cache",
	"sync+sync:cache", "ioprio-rt+ioprio-be:cache", "ioprio-none:cache", "any:bypass any:cache", "any:cache\n", "any: cache",
	"any:pin-1/any:pin-1/any:pin-1/any:pin-1",
	"metadatametadatametadatametadatametadatametadatametadatametadatametadata:cache",
};

static void test_good(void)
{
	struct larder_classes l, again;
	char text[LARDER_CLASS_TEXT];
	const char *why = NULL;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		CHECK(!larder_classes_parse(&l, good[i], &why), "%s %s", good[i], why);
		CHECK(larder_classes_print(&l, text, sizeof(text)) == strlen(good[i]) && !strcmp(text, good[i]), "%s became %s", good[i],
		      text);
		CHECK(!larder_classes_parse(&again, text, &why) && larder_classes_same(&l, &again));
	}
	for (i = 0; i < ARRAY_SIZE(class_presets); i++) {
		CHECK(!larder_classes_parse(&l, class_presets[i].name, &why) && l.preset == i);
		larder_classes_print(&l, text, sizeof(text));
		CHECK(!strcmp(text, class_presets[i].name));
		CHECK(!larder_classes_parse(&again, class_presets[i].text, &why) && again.preset == LARDER_CLASS_NONE);
		CHECK(!larder_classes_same(&l, &again) && again.nr == l.nr);
		larder_classes_print(&again, text, sizeof(text));
		CHECK(!strcmp(text, class_presets[i].text));
	}
	larder_classes_default(&l);
	CHECK(!larder_classes_parse(&again, "default", &why) && larder_classes_same(&l, &again));
}

static void test_bad(void)
{
	struct larder_classes l, before;
	char text[2 * LARDER_CLASS_TEXT] = "";
	const char *why;
	unsigned int i;

	larder_classes_parse(&l, good[1], &why);
	before = l;
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		why = NULL;
		CHECK(larder_classes_parse(&l, bad[i], &why) == -EINVAL && why, "'%s' was taken", bad[i]);
		CHECK(larder_classes_same(&l, &before));
	}
	for (i = 0; i < LARDER_CLASS_RULES; i++)
		strcat(text, i ? "/any:cache" : "any:cache");
	CHECK(!larder_classes_parse(&l, text, &why));
	strcat(text, "/any:cache");
	CHECK(larder_classes_parse(&l, text, &why) == -EINVAL && strstr(why, "16"));
	memset(text, 'a', LARDER_CLASS_TEXT);
	text[LARDER_CLASS_TEXT] = 0;
	CHECK(larder_classes_parse(&l, text, &why) == -EINVAL && strstr(why, "511"));
}

/* The text of every list that can be made fits into what it was parsed from: into LARDER_CLASS_TEXT. */
static void test_print_is_cut(void)
{
	struct larder_classes l;
	char text[LARDER_CLASS_TEXT], part[LARDER_CLASS_TEXT];
	const char *why;
	unsigned int n, size;

	larder_classes_parse(&l, good[3], &why);
	n = larder_classes_print(&l, text, sizeof(text));
	for (size = 0; size <= n + 1; size++) {
		memset(part, '!', sizeof(part));
		CHECK(larder_classes_print(&l, part, size) == (size ? min(n, size - 1) : 0));
		CHECK(part[size] == '!' && (!size || !memcmp(part, text, size - 1)));
	}
}

/* Random bytes, and good lists with a byte changed: no more than taken or refused; what is taken prints as something that is taken. */
static void test_anything(void)
{
	static const char bytes[] = "abcdeilmnoprstuwyz-+:/0123456789 ";
	struct larder_classes l, again;
	char text[LARDER_CLASS_TEXT + 8], out[LARDER_CLASS_TEXT];
	unsigned int i, k, n, taken = 0;
	const char *why;

	for (i = 0; i < 200000; i++) {
		strcpy(text, good[rnd(ARRAY_SIZE(good))]);
		n = strlen(text);
		for (k = rnd(3); k < 3; k++)
			text[rnd(n)] = bytes[rnd(sizeof(bytes) - 1)];
		if (rnd(2))
			text[rnd(n)] = 0;
		if (larder_classes_parse(&l, text, &why))
			continue;
		taken++;
		CHECK(l.nr && l.nr <= LARDER_CLASS_RULES && l.pins <= LARDER_CLASS_PINS);
		larder_classes_print(&l, out, sizeof(out));
		CHECK(!larder_classes_parse(&again, out, &why) && larder_classes_same(&l, &again), "%s as %s", text, out);
	}
	CHECK(taken > 1000 && taken < 150000, "%u taken", taken);
}

/* ------------------------------------------------------------- matching */

/* One match, read from its text by somebody else. */
static bool naive_match(const char *word, const struct larder_class_request *rq)
{
	unsigned long long a, b;

	if (sscanf(word, "size-%llu", &a) == 1)
		return rq->sectors <= 2 * a;
	if (sscanf(word, "lba-%llu-%llu", &a, &b) == 2)
		return rq->sector >= a && rq->sector < b;
	switch (word[0]) {
	case 'a':
		return true;
	case 'i':
		return rq->ioprio == (word[7] == 'r' ? 1 : word[7] == 'b' ? 2 : 3);
	case 'm':
		return rq->is & LARDER_IS_METADATA;
	case 'w':
		return rq->is & LARDER_IS_WRITE;
	case 's':
		return rq->is & (word[1] == 'y' ? LARDER_IS_SYNC : LARDER_IS_SEQUENTIAL);
	default:
		return rq->is & (strcmp(word, "read") ? LARDER_IS_READAHEAD : LARDER_IS_READ);
	}
}

static unsigned int naive_list(const char *list, const struct larder_class_request *rq)
{
	char text[LARDER_CLASS_TEXT], *rest = text, *rule, *word;
	unsigned int n = 0;

	strcpy(text, list);
	for (; (rule = strsep(&rest, "/")); n++) {
		bool all = true;

		*strchr(rule, ':') = 0;
		while ((word = strsep(&rule, "+")))
			all &= naive_match(word, rq);
		if (all)
			return n;
	}
	return LARDER_CLASS_NONE;
}

static void test_match(void)
{
	struct larder_classes l;
	struct larder_class_request rq;
	const char *why;
	unsigned int i, k, none = 0;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		CHECK(!larder_classes_parse(&l, good[i], &why));
		for (k = 0; k < 50000; k++) {
			rq.is = rnd(64);
			rq.ioprio = rnd(4);
			rq.sectors = rnd(2) ? 1 + rnd(70) : 1 + rnd(1 << 22);
			rq.sector = rnd(2) ? rnd(6000) : rnd(1ull << 51);
			CHECK(larder_classes_match(&l, &rq) == naive_list(good[i], &rq), "%s", good[i]);
			none += larder_classes_match(&l, &rq) == LARDER_CLASS_NONE;
		}
	}
	CHECK(none > 1000);
}

static bool bypasses(const char *list, u8 is, u32 sectors)
{
	struct larder_class_request rq = { .is = is, .ioprio = LARDER_IOPRIO_BE, .sectors = sectors };
	struct larder_classes l;
	const char *why;
	u8 n;

	CHECK(!larder_classes_parse(&l, list, &why), "%s %s", list, why);
	n = larder_classes_match(&l, &rq);
	return larder_class_bypasses(n < l.nr ? &l.rule[n] : NULL, is & LARDER_IS_WRITE);
}

static void test_actions(void)
{
	const u8 r = LARDER_IS_READ, w = LARDER_IS_WRITE;

	CHECK(!bypasses("default", r, 2048) && !bypasses("default", w, 2048));
	CHECK(bypasses("default", r | LARDER_IS_SEQUENTIAL, 8) && bypasses("default", w | LARDER_IS_SEQUENTIAL, 8));
	CHECK(!bypasses("everything", r | LARDER_IS_SEQUENTIAL, 8) && !bypasses("everything", w | LARDER_IS_SEQUENTIAL, 2048));
	CHECK(!bypasses("special", r, 64) && !bypasses("special", w, 64) && bypasses("special", r, 65) && bypasses("special", w, 65));
	CHECK(!bypasses("special", r | LARDER_IS_METADATA, 2048) && !bypasses("special", w | LARDER_IS_METADATA, 2048));
	CHECK(!bypasses("log", w | LARDER_IS_SYNC, 2048) && bypasses("log", w, 8) && bypasses("log", r, 8));
	CHECK(bypasses("any:write-only", r, 8) && !bypasses("any:write-only", w, 8));
	CHECK(!bypasses("any:read-only", r, 8) && bypasses("any:read-only", w, 8));
	CHECK(!bypasses("any:pin-5", r, 8) && !bypasses("any:pin-5", w, 8));
	CHECK(!bypasses("metadata:bypass", r, 8) && bypasses("metadata:bypass", r | LARDER_IS_METADATA, 8));
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("lists that are taken print as they were given", test_good);
	run_test("lists that are refused, with a reason", test_bad);
	run_test("printing into too little room", test_print_is_cut);
	run_test("lists, anything", test_anything);
	run_test("matching against a naive reading", test_match);
	run_test("what presets and actions do", test_actions);
	printf("class: %u tests passed, seed %llu\n", tests, seed);
	return 0;
}
