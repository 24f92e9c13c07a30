// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder pin without a device: lib/pins.c (ranges, and lists with rules that pin, against the kernel's own reading of them), lib/descent.c (layers that a
 * test gives), lib/file_extents.c (extents that a test gives), lib/pinned_names.c (lists of names).  Ranges are judged by a bitmap, lists by kernel/class.c.
 *
 *	test_pins [seed]
 */
#include "../../kernel/class.c"

#include "../../lib/message.c"
#include "../../lib/pins.c"
#include "../../lib/descent.c"
#include <sys/ioctl.h>
#include <unistd.h>

static int asked(int fd, unsigned long request, void *argument); /* a filesystem */
static unsigned int pauses;

#define ioctl asked
#define usleep(us) (void)((us) && pauses++)
#include "../../lib/file_extents.c"
#undef ioctl
#undef usleep
#include "../../lib/mounts.c"
#include <sys/xattr.h>

static const char *attribute; /* what is read of a filesystem's root; NULL: nothing, and errno is `unread` */
static int unread;

static ssize_t attribute_read(int fd, const char *name, void *value, size_t size)
{
	size_t length = attribute ? strlen(attribute) : 0;

	errno = !attribute ? unread : length > size ? ERANGE : 0;
	if (errno)
		return -1;
	memcpy(value, attribute, length);
	return (ssize_t)length;
}

#define fgetxattr attribute_read
#include "../../lib/pinned_names.c"
#undef fgetxattr

#include "seeded.h"

#define SECTORS 200u /* of a small device */

/* ------------------------------------------------------------------ ranges */

struct bits {
	bool set[SECTORS];
};

static void take(struct bits *bits, const struct ranges *ranges)
{
	for (size_t i = 0; i < ranges->number; i++)
		for (uint64_t s = ranges->range[i].first; s < ranges->range[i].end; s++) {
			CHECK(s < SECTORS);
			bits->set[s] = true;
		}
}

static unsigned int count(const struct bits *bits)
{
	unsigned int n = 0;

	for (unsigned int s = 0; s < SECTORS; s++)
		n += bits->set[s];
	return n;
}

static void any_ranges(struct ranges *ranges)
{
	*ranges = (struct ranges){ 0 };
	for (u64 n = 1 + rnd(12); n; n--) {
		u64 first = rnd(SECTORS - 1);

		ranges_add(ranges, first, first + 1 + rnd(SECTORS - first < 20 ? SECTORS - first : 20));
	}
}

/* The least that may be pinned in between, if no more than max ranges are left: all ways of keeping max - 1 gaps. */
static uint64_t least(const struct ranges *r, size_t max)
{
	uint64_t best = UINT64_MAX;

	for (unsigned int kept = 0; kept < 1u << (r->number - 1); kept++) {
		uint64_t closed = 0;

		if ((size_t)__builtin_popcount(kept) > max - 1)
			continue;
		for (size_t i = 0; i + 1 < r->number; i++)
			if (!(kept & 1u << i))
				closed += r->range[i + 1].first - r->range[i].end;
		best = closed < best ? closed : best;
	}
	return best;
}

/* As it was written first, a gap at a time: the same ranges are left. */
static uint64_t close_one_by_one(struct ranges *ranges, size_t max)
{
	struct range *r = ranges->range;
	uint64_t gaps = 0;

	while (ranges->number > max && ranges->number > 1) {
		size_t at = 0;

		for (size_t i = 1; i + 1 < ranges->number; i++)
			if (r[i + 1].first - r[i].end < r[at + 1].first - r[at].end)
				at = i;
		gaps += r[at + 1].first - r[at].end;
		r[at].end = r[at + 1].end;
		ranges->number--;
		memmove(&r[at + 1], &r[at + 2], (ranges->number - at - 1) * sizeof(*r));
	}
	return gaps;
}

static void same_as_one_by_one(void)
{
	for (int i = 0; i < 3000; i++, operations++) {
		struct ranges r = { 0 }, s = { 0 };
		size_t max = rnd(6);
		u64 at = rnd(9), n = rnd(300), far = 1 + rnd(40), gaps, want;

		for (; n; n--) {
			u64 end = at + 1 + rnd(5);

			ranges_add(&r, at, end);
			ranges_add(&s, at, end);
			at = end + 1 + rnd(far);
		}
		gaps = ranges_close(&r, max);
		want = close_one_by_one(&s, max);
		CHECK(gaps == want && r.number == s.number, "%llu, not %llu", gaps, want);
		CHECK(!r.number || !memcmp(r.range, s.range, r.number * sizeof(*r.range)), "others of %zu", r.number);
		ranges_free(&r);
		ranges_free(&s);
	}
}

/* A file in so many pieces is no reason to hold up whoever waits for the lock: one by one, this takes minutes. */
static void many_ranges(void)
{
	struct ranges r = { 0 };
	clock_t begin = clock();

	for (u64 i = 0; i < 1000000; i++)
		ranges_add(&r, 16 * i, 16 * i + 8);
	ranges_join(&r);
	CHECK(ranges_close(&r, 3) == 8 * (1000000 - 3) && r.number == 3);
	CHECK(clock() - begin < 20 * CLOCKS_PER_SEC, "%g s", (double)(clock() - begin) / CLOCKS_PER_SEC);
	ranges_free(&r);
}

static void test_ranges(void)
{
	for (int i = 0; i < 20000; i++, operations++) {
		struct bits before = { 0 }, joined = { 0 }, closed = { 0 };
		struct ranges r;
		uint64_t gaps, want;
		size_t max = 1 + rnd(4), pieces;
		u64 a = rnd(SECTORS), b = rnd(SECTORS), common = 0;

		any_ranges(&r);
		take(&before, &r);
		ranges_join(&r);
		take(&joined, &r);
		CHECK(!memcmp(&before, &joined, sizeof(before)) && ranges_length(&r) == count(&before));
		for (size_t k = 1; k < r.number; k++)
			CHECK(r.range[k].first > r.range[k - 1].end, "they touch");
		for (u64 s = a; s < b; s++)
			common += joined.set[s];
		CHECK(ranges_common(&r, a, b) == common);
		pieces = r.number;
		want = pieces > max ? least(&r, max) : 0;
		gaps = ranges_close(&r, max);
		take(&closed, &r);
		CHECK(r.number == (pieces < max ? pieces : max) && gaps == want && count(&closed) == count(&before) + gaps, "%zu pieces, %zu", pieces, max);
		for (unsigned int s = 0; s < SECTORS; s++)
			CHECK(!before.set[s] || closed.set[s]);
		ranges_free(&r);
	}
}

/* ------------------------------------------------------------------ lists */

static const char *const lists[] = {
	"default", "special", "log", "everything", "any:pin-10/read:cache", "lba-0-100:bypass", "read+size-8:bypass/any:write-only",
	"lba-10-20:pin-30/any:cache", "sync:cache/lba-5-9:pin-75/any:bypass",
};

static void same_preset(void)
{
	CHECK(NR_PRESETS == ARRAY_SIZE(class_presets));
	for (size_t i = 0; i < NR_PRESETS; i++)
		CHECK(!strcmp(presets[i].name, class_presets[i].name) && !strcmp(presets[i].rules, class_presets[i].text), "%s", presets[i].name);
	CHECK(CLASS_PINS_MAX == LARDER_CLASS_PINS && CLASS_RULES_MAX == LARDER_CLASS_RULES && CLASS_TEXT_MAX == LARDER_CLASS_TEXT - 1);
	CHECK(PIN_PERCENT <= CLASS_PERCENT_MAX);
}

static struct larder_class any_rule_of(const char *text, const struct larder_class_request *rq, bool *none)
{
	struct larder_classes l;
	const char *why = "";
	u8 n;

	CHECK(!larder_classes_parse(&l, text, &why), "%s: %s", text, why);
	n = larder_classes_match(&l, rq);
	*none = n == LARDER_CLASS_NONE;
	return *none ? (struct larder_class){ 0 } : l.rule[n];
}

/* Within the ranges the kernel pins; elsewhere it does as the list says alone; and the list comes back. */
static void test_lists(void)
{
	same_preset();
	for (int i = 0; i < 5000; i++, operations++) {
		const char *list = lists[rnd(ARRAY_SIZE(lists))], *printed_why = "";
		char *with, *again, *without, printed[LARDER_CLASS_TEXT];
		struct larder_classes parsed;
		struct ranges r, found;
		unsigned int pinning, rules;

		any_ranges(&r);
		ranges_join(&r);
		ranges_close(&r, 2);
		with = class_with_pins(list, &r);
		CHECK(!larder_classes_parse(&parsed, with, &printed_why), "%s: %s", with, printed_why);
		larder_classes_print(&parsed, printed, sizeof(printed));
		CHECK(!strcmp(printed, with), "the kernel shows %s for %s", printed, with);
		rules = class_rules(with, &pinning);
		CHECK(rules == parsed.nr && pinning == parsed.pins, "%s", with);
		class_pins(printed, &found);
		CHECK(found.number == r.number && !memcmp(found.range, r.range, r.number * sizeof(*r.range)), "%s", with);
		without = class_without_pins(printed);
		CHECK(!strcmp(without, list), "%s came back as %s", list, without);
		for (int k = 0; k < 20; k++) {
			struct larder_class_request rq = { .is = (u8)rnd(64), .ioprio = (u8)rnd(4), .sectors = 1 + (u32)rnd(64), .sector = rnd(SECTORS) };
			bool none, alone_none;
			struct larder_class rule = any_rule_of(with, &rq, &none), alone = any_rule_of(list, &rq, &alone_none);

			if (ranges_common(&r, rq.sector, rq.sector + 1)) {
				CHECK(!none && rule.action == LARDER_CLASS_PIN && rule.percent == PIN_PERCENT, "%s", with);
			} else {
				rule.pin = alone.pin = 0; /* an ordinal */
				CHECK(none == alone_none && !memcmp(&rule, &alone, sizeof(rule)), "%s, sector %llu", with, rq.sector);
			}
		}
		/* other pins instead, and none */
		ranges_add(&found, 1000000, 1000008);
		again = class_with_pins(with, &found);
		free(without);
		without = class_without_pins(again);
		CHECK(!strcmp(without, list), "%s", again);
		free(with);
		free(again);
		free(without);
		ranges_free(&found);
		with = class_with_pins(list, &found);
		CHECK(!strcmp(with, list), "%s", with);
		free(with);
		ranges_free(&r);
	}
}

static void not_ours(void)
{
	static const char *const other[] = { "lba-1-2:pin-74/any:cache", "lba-1-2:pin-755", "lba-1-2+read:pin-75", "lba-1-2:pin-75+read:cache", "lba-2-1:pin-75", "" };
	static const struct ranges none;
	struct ranges found;

	for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
		CHECK(class_pins(other[i], &found) == other[i] && !found.number, "%s", other[i]);
		ranges_free(&found);
	}
	{
		char *all = class_with_pins("lba-1-2:pin-75", &none), *empty = class_with_pins("", &none);

		CHECK(!strcmp(all, "everything") && !strcmp(empty, "default"));
		free(all);
		free(empty);
	}
}

/* ------------------------------------------------------------------ layers */

static unsigned int looks;

/* 1: a filesystem's device: two segments; 2: LUKS on 4; 3: the second disk of the volume group; 4: the volume; 5: a disk; 6: striped; 7: on itself */
static int look(dev_t number, struct level *level)
{
	looks++;
	*level = (struct level){ 0 };
	snprintf(level->name, sizeof(level->name), "level-%u", minor(number));
	switch (minor(number)) {
	case 1:
		level_take_target(level, 0, 100, "linear", "9:2 50");
		level_take_target(level, 100, 60, "linear", "9:2 10");
		level_take_target(level, 160, 10, "linear", "9:3 0");
		level_take_target(level, 170, 10, "striped", "2 8 9:2 0 9:2 100");
		break;
	case 2:
		level_take_target(level, 0, 1000, "crypt", "aes-xts-plain64 :64:logon:cryptsetup:x-d0 0 9:4 32768 1 sector_size:4096");
		break;
	case 3:
		level_take_target(level, 0, 1000, "linear", "9:5 0");
		break;
	case 4:
		level_take_target(level, 0, 100000, "larder", "9:5 9:6 0");
		break;
	case 6:
		level_take_target(level, 0, 1000, "crypt", "aes-xts-plain64 key 0 /dev/sda 32768");
		break;
	case 7:
		level_take_target(level, 0, 1000, "linear", "9:7 0");
		break;
	case 8:
		level_take_target(level, 0, 1000, "larder", "9:5 9:6 0");
		break;
	case 9:
		level_take_target(level, 0, 10, "linear", "9:4 0");
		level_take_target(level, 10, 10, "linear", "9:8 0");
		break;
	case 10:
		level_take_target(level, 0, 1000, "snapshot-origin", "9:4");
		break;
	case 11:
		level_take_target(level, 0, 1000, "snapshot", "9:4 9:5 PO 32");
		break;
	default:
		level->kind = LEVEL_DISK;
	}
	return LARDER_DONE;
}

/* level_look_here() is not called */
int mapped_targets(dev_t number, char name[static DM_NAME_MAX], struct mapped_target **target, size_t *targets)
{
	CHECK(!number || !name || !target || !targets);
	return LARDER_FAILED;
}
void mapped_targets_free(struct mapped_target *target, size_t targets) { CHECK(!target && !targets); }
bool device_attribute(dev_t number, const char *name, char *text, size_t size) { return number && name && text && size && false; }
bool device_node(dev_t number, char *text, size_t size) { return number && text && size && false; }

static int descent_of(unsigned int from, uint64_t first, uint64_t end, struct ranges *found, dev_t *volume)
{
	struct range one = { first, end };
	struct ranges ranges = { &one, 1 };

	*found = (struct ranges){ 0 };
	*volume = 0;
	return descend("FILE", makedev(9, from), &ranges, look, volume, found);
}

static void test_descent(void)
{
	static const struct {
		unsigned int from;
		uint64_t first, end;
		int result;
		struct range found[2];
	} cases[] = {
		{ 4, 5, 9, LARDER_DONE, { { 5, 9 } } },
		{ 2, 5, 9, LARDER_DONE, { { 32773, 32777 } } },
		{ 1, 0, 100, LARDER_DONE, { { 32818, 32918 } } },
		{ 1, 90, 110, LARDER_DONE, { { 32908, 32918 }, { 32778, 32788 } } }, /* over the seam of two segments */
		{ 1, 150, 165, LARDER_NOT_FOUND, { { 0 } } }, /* and onto another disk */
		{ 1, 165, 170, LARDER_NOT_FOUND, { { 0 } } },
		{ 1, 169, 172, LARDER_NOT_FOUND, { { 0 } } },
		{ 1, 172, 174, LARDER_FAILED, { { 0 } } }, /* striped */
		{ 2, 990, 1010, LARDER_FAILED, { { 0 } } }, /* beyond its end */
		{ 5, 0, 1, LARDER_NOT_FOUND, { { 0 } } },
		{ 6, 0, 1, LARDER_FAILED, { { 0 } } }, /* a table that is not as the kernel shows it */
		{ 7, 0, 1, LARDER_FAILED, { { 0 } } }, /* without end */
		{ 9, 5, 15, LARDER_FAILED, { { 0 } } }, /* two volumes */
		{ 10, 5, 9, LARDER_DONE, { { 5, 9 } } }, /* one that has snapshots */
		{ 11, 5, 9, LARDER_FAILED, { { 0 } } }, /* what is on a snapshot may be in its store */
	};

	CHECK(freopen("/dev/null", "w", stderr)); /* complaints */
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ranges found;
		dev_t volume;
		int result = descent_of(cases[i].from, cases[i].first, cases[i].end, &found, &volume);

		CHECK(result == cases[i].result, "case %zu: %d", i, result);
		for (size_t k = 0; !result && k < found.number; k++)
			CHECK(k < 2 && found.range[k].first == cases[i].found[k].first && found.range[k].end == cases[i].found[k].end, "case %zu: %llu-%llu", i,
			      (u64)found.range[k].first, (u64)found.range[k].end);
		CHECK(result || (found.number == 1 + !!cases[i].found[1].end && volume == makedev(9, 4)), "case %zu", i);
		ranges_free(&found);
	}
}

/* However many extents a file has, each device is asked once. */
static void looks_once(void)
{
	struct ranges ranges = { 0 }, found = { 0 };
	dev_t volume = 0;

	for (uint64_t i = 0; i < 50; i++)
		ranges_add(&ranges, 3 * i, 3 * i + 2);
	looks = 0;
	CHECK(!descend("FILE", makedev(9, 1), &ranges, look, &volume, &found));
	CHECK(looks == 3 && volume == makedev(9, 4), "%u looks", looks);
	CHECK(ranges_length(&found) == ranges_length(&ranges));
	ranges_free(&ranges);
	ranges_free(&found);
}

/* ------------------------------------------------------------------ extents */

static const struct btrfs_place chunks[] = {
	{ 1 << 20, 1 << 20, 8 << 20, NULL },
	{ 2 << 20, 1 << 20, 4 << 20, NULL }, /* the next addresses, elsewhere */
	{ 3 << 20, 1 << 20, 16 << 20, "is kept twice" },
};

static const char *extent_of(uint64_t at, uint64_t length, uint32_t flags, bool btrfs, struct file_extents *extents)
{
	struct fiemap_extent e = { .fe_physical = at, .fe_length = length, .fe_flags = flags };

	*extents = (struct file_extents){ 0 };
	return file_extent_take(extents, &e, btrfs ? chunks : NULL, btrfs ? ARRAY_SIZE(chunks) : 0);
}

static void test_extents(void)
{
	static const struct {
		uint64_t at, length;
		uint32_t flags;
		bool btrfs, refused;
		size_t written;
		struct range found[2];
	} cases[] = {
		{ 4096, 8192, FIEMAP_EXTENT_LAST, false, false, 1, { { 8, 24 } } },
		{ 4096, 8192, FIEMAP_EXTENT_UNWRITTEN, false, false, 0, { { 8, 24 } } },
		{ 4096, 8192, FIEMAP_EXTENT_SHARED | FIEMAP_EXTENT_MERGED, false, false, 1, { { 8, 24 } } },
		{ 4100, 100, FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED, false, true, 0, { { 0 } } },
		{ 4096, 100, FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_NOT_ALIGNED, false, true, 0, { { 0 } } },
		{ 4096, 131072, FIEMAP_EXTENT_ENCODED, false, true, 0, { { 0 } } },
		{ 4100, 4096, 0, false, true, 0, { { 0 } } },
		{ UINT64_MAX - 511, 1024, 0, false, true, 0, { { 0 } } },
		{ (1 << 20) + 4096, 4096, 0, true, false, 1, { { 16392, 16400 } } },
		{ (2 << 20) - 4096, 8192, 0, true, false, 2, { { 18424, 18432 }, { 8192, 8200 } } }, /* over the seam of two chunks */
		{ (3 << 20) - 4096, 8192, 0, true, true, 0, { { 0 } } },
		{ 4096, 4096, 0, true, true, 0, { { 0 } } }, /* in no chunk */
		{ (4 << 20) - 4096, 8192, 0, true, true, 0, { { 0 } } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct file_extents extents;
		const char *why = extent_of(cases[i].at, cases[i].length, cases[i].flags, cases[i].btrfs, &extents);

		CHECK(!why == !cases[i].refused, "case %zu: %s", i, why ?: "taken");
		for (size_t k = 0; !why && k < extents.all.number; k++)
			CHECK(k < 2 && extents.all.range[k].first == cases[i].found[k].first && extents.all.range[k].end == cases[i].found[k].end, "case %zu", i);
		CHECK(why || (extents.all.number == 1 + !!cases[i].found[1].end && extents.written.number == cases[i].written), "case %zu", i);
		CHECK(why || extents.shared == !!(cases[i].flags & FIEMAP_EXTENT_SHARED));
		file_extents_free(&extents);
	}
}

/* A file that is appended to: behind two extents, one of them not written yet, there is one without a place, as often as it is asked so many times. */
static unsigned int appended, times_asked;
static bool placed;

static int asked(int fd, unsigned long request, void *argument)
{
	struct fiemap *map = argument;

	CHECK(request == FS_IOC_FIEMAP && fd >= 0 && map->fm_extent_count >= 3 && map->fm_flags == FIEMAP_FLAG_SYNC);
	map->fm_mapped_extents = 0;
	if (placed) {
		map->fm_extents[map->fm_mapped_extents++] = (struct fiemap_extent){ .fe_physical = 4096, .fe_length = 8192, .fe_flags = FIEMAP_EXTENT_SHARED };
		map->fm_extents[map->fm_mapped_extents++] =
			(struct fiemap_extent){ .fe_logical = 8192, .fe_physical = 65536, .fe_length = 4096, .fe_flags = FIEMAP_EXTENT_UNWRITTEN };
	}
	if (times_asked++ < appended)
		map->fm_extents[map->fm_mapped_extents++] =
			(struct fiemap_extent){ .fe_logical = 12288, .fe_length = 4096, .fe_flags = FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN };
	if (map->fm_mapped_extents)
		map->fm_extents[map->fm_mapped_extents - 1].fe_flags |= FIEMAP_EXTENT_LAST;
	return 0;
}

static void appended_to(void)
{
	static const struct btrfs_map none;

	for (appended = 0; appended <= TRIES + 1; appended++) {
		struct file_extents extents = { 0 };

		placed = true;
		times_asked = pauses = 0;
		CHECK(!ask_again("FILE", 0, &extents, &none), "%u times", appended);
		CHECK(times_asked == (appended < TRIES ? appended + 1 : TRIES) && pauses == times_asked - 1, "asked %u times", times_asked);
		CHECK(extents.all.number == 2 && extents.written.number == 1 && extents.shared == 1, "what has its place is pinned");
		CHECK(extents.all.range[0].first == 8 && extents.all.range[0].end == 24 && extents.all.range[1].first == 128 && extents.all.range[1].end == 136);
		CHECK(extents.unplaced == (appended < TRIES ? 0 : 1), "%zu", extents.unplaced);
		file_extents_free(&extents);
	}
}

/* An answer of BTRFS_IOC_TREE_SEARCH as the kernel writes it. */
static void test_chunks(void)
{
	static const struct {
		uint64_t logical, physical, type;
		uint16_t stripes;
		bool single;
	} items[] = {
		{ 22020096, 38797312, BTRFS_BLOCK_GROUP_DATA, 1, true },
		{ 30408704, 47185920, BTRFS_BLOCK_GROUP_DATA | BTRFS_BLOCK_GROUP_DUP, 2, false },
		{ 40000000, 1000000, BTRFS_BLOCK_GROUP_DATA | BTRFS_BLOCK_GROUP_RAID0, 1, false },
		{ 50000000, 2000000, BTRFS_BLOCK_GROUP_DATA, 2, false },
	};
	struct btrfs_ioctl_search_args args = { 0 };
	struct btrfs_map map = { 0 };
	uint64_t next = 0;
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
		struct btrfs_ioctl_search_header header = { .offset = items[i].logical, .type = BTRFS_CHUNK_ITEM_KEY };
		struct btrfs_chunk chunk = { .length = htole64(8388608), .type = htole64(items[i].type), .num_stripes = htole16(items[i].stripes) };

		chunk.stripe.offset = htole64(items[i].physical);
		header.len = (uint32_t)(sizeof(chunk) + (items[i].stripes - 1u) * sizeof(struct btrfs_stripe));
		memcpy(args.buf + at, &header, sizeof(header));
		memcpy(args.buf + at + sizeof(header), &chunk, sizeof(chunk));
		at += sizeof(header) + header.len;
		args.key.nr_items++;
	}
	take_items(&map, &args, &next);
	CHECK(map.number == ARRAY_SIZE(items) && next == items[3].logical + 1);
	for (size_t i = 0; i < map.number; i++)
		CHECK(map.place[i].logical == items[i].logical && map.place[i].physical == items[i].physical && map.place[i].length == 8388608 &&
		      !map.place[i].profile == items[i].single, "item %zu", i);
	free(map.place);
}

/* ------------------------------------------------------------------ names */

static void which_names(void)
{
	static const char *const good[] = { "a", "a/b", "..a", "a..", "...", ".a/b.", "with blank", "\xc3\xa4" };
	static const char *const bad[] = { "", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/./b", "../a", "a/../b", "a/..", "a\nb", "a\tb", "a\x7f" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		CHECK(pinned_name_valid(good[i]), "%s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(!pinned_name_valid(bad[i]), "%s", bad[i]);
	CHECK(list_valid("", 0) && list_valid("a\nb/c\n", 6) && !list_valid("a\nb", 3) && !list_valid("a\n\n", 3) && !list_valid("\na\n", 3));
	CHECK(!list_valid("a\n../b\n", 7) && !list_valid("a\n", 3) && !list_valid("a\n/b\n", 5));
}

/* A list is a set, in the order that it was filled; nothing is cut off where there is no room. */
static void lists_of_names(void)
{
	for (int i = 0; i < 300; i++) {
		char names[PINNED_NAMES_MAX] = "", one[PINNED_NAMES_MAX], name[400];
		bool in[40] = { false };
		size_t bytes = 0;

		for (int k = 0; k < 100; k++, operations++) {
			unsigned int n = (unsigned int)rnd(40), length = n * 9 + 2, seen = 0, wanted = 0;
			size_t at = 0;

			snprintf(name, sizeof(name), "%0*u", (int)length, n);
			CHECK(pinned_names_have(names, name) == in[n]);
			if (in[n]) {
				pinned_names_drop(names, name);
				in[n] = false;
				bytes -= length + 1;
			} else {
				bool fits = bytes + length + 2 <= sizeof(names);

				CHECK(pinned_names_add(names, name) == fits, "%zu bytes and %u", bytes, length);
				in[n] = fits;
				bytes += fits ? length + 1 : 0;
			}
			CHECK(strlen(names) == bytes && list_valid(names, bytes));
			while (pinned_names_next(names, &at, one)) {
				CHECK(in[strtoul(one, NULL, 10)]);
				seen++;
			}
			for (unsigned int m = 0; m < 40; m++)
				wanted += in[m];
			CHECK(seen == wanted && at == bytes);
		}
	}
}

/* The deepest filesystem above a path; its first mount has the names. */
static void whose_path(void)
{
	static struct pin_root root[] = { { .point = "/", .number = 1 }, { .point = "/srv", .number = 2 }, { .point = "/srv/a b", .number = 3 },
					  { .point = "/mnt", .number = 2, .again = true } };
	static const struct {
		const char *path;
		int root;
		const char *name;
	} cases[] = {
		{ "/x", 0, "x" }, { "/srv/x/y", 1, "x/y" }, { "/srvx/y", 0, "srvx/y" }, { "/srv/a b/c", 2, "c" }, { "/srv/a bc", 1, "a bc" },
		{ "/mnt/x", 1, "x" }, { "/srv", 0, "srv" },
	};
	struct pin_roots roots = { root, ARRAY_SIZE(root) };
	char name[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		CHECK(pin_root_of(&roots, cases[i].path, name) == &root[cases[i].root] && !strcmp(name, cases[i].name), "%s: %s", cases[i].path, name);
	roots.number = 0;
	CHECK(!pin_root_of(&roots, "/x", name));
}

/* Nothing may be made of a list that is not known: only where there is none are there no names. */
static void lists_that_are_not_known(void)
{
	static char large[PINNED_NAMES_MAX + 2];
	const struct {
		const char *attribute;
		int error;
		bool known;
	} cases[] = {
		{ "a\nb\n", 0, true }, { "", 0, true }, { NULL, ENODATA, true }, { NULL, EIO, false }, { NULL, EACCES, false }, { "a", 0, false },
		{ "../a\n", 0, false }, { large, 0, false },
	};

	memset(large, 'a', sizeof(large) - 1);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct pin_root root = { .point = "/srv" };

		attribute = cases[i].attribute;
		unread = cases[i].error;
		read_names(-1, &root);
		CHECK(root.unreadable == !cases[i].known && !strcmp(root.names, cases[i].known && attribute ? attribute : ""), "%zu: %s", i, root.names);
		CHECK(pin_root_check(&root) == (cases[i].known ? LARDER_DONE : LARDER_FAILED), "%zu", i);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("ranges", test_ranges);
	run_test("same as one by one", same_as_one_by_one);
	run_test("many ranges", many_ranges);
	run_test("lists", test_lists);
	run_test("not ours", not_ours);
	run_test("extents", test_extents);
	run_test("appended to", appended_to);
	run_test("chunks", test_chunks);
	run_test("which names", which_names);
	run_test("lists of names", lists_of_names);
	run_test("whose path", whose_path);
	run_test("lists that are not known", lists_that_are_not_known);
	run_test("looks once", looks_once);
	run_test("descent", test_descent);
	return 0;
}
