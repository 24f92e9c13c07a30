// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The table of features.
 *
 * A further one has its bit in kernel/larder_format.h, its meaning in docs/on-disk-format.md, and an entry here.  LARDER_TEST_FEATURES has such that are
 * for the tests of larder upgrade alone (tests/test_command_upgrade.py): bits of compat, which every larder leaves as they are.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "format_features.h"
#include "message.h"

static const struct feature features[] = {
	{ .name = "third",
	  .text = "segments may have a third copy",
	  .kind = LARDER_KIND_CACHE,
	  .mask = MASK_INCOMPAT,
	  .bit = LARDER_INCOMPAT_THIRD,
	  .by_use = true,
	  .target = { 1, 0 } },
#ifdef LARDER_TEST_FEATURES
	{ .name = "test-ssd", .text = "test", .kind = LARDER_KIND_CACHE, .mask = MASK_COMPAT, .bit = 1ull << 61 },
	{ .name = "test-disk", .text = "test", .kind = LARDER_KIND_VOLUME, .mask = MASK_COMPAT, .bit = 1ull << 62 },
	{ .name = "test-module", .text = "test", .kind = LARDER_KIND_VOLUME, .mask = MASK_COMPAT, .bit = 1ull << 63, .target = { 1, 1 } },
#endif
};

static const char *const masks[] = { [MASK_COMPAT] = "compat", [MASK_RO_COMPAT] = "ro_compat", [MASK_INCOMPAT] = "incompat" };

static uint64_t bits(const struct larder_sb_head *head, enum feature_mask mask)
{
	return le64toh(mask == MASK_COMPAT ? head->compat : mask == MASK_RO_COMPAT ? head->ro_compat : head->incompat);
}

const struct feature *feature_next(uint32_t kind, const struct feature *previous)
{
	const struct feature *end = features + sizeof(features) / sizeof(features[0]);

	for (const struct feature *f = previous ? previous + 1 : features; f < end; f++)
		if (f->kind == kind)
			return f;
	return NULL;
}

bool feature_is_set(const struct larder_sb_head *head, const struct feature *feature)
{
	return bits(head, feature->mask) & feature->bit;
}

void feature_set(struct larder_sb_head *head, const struct feature *feature)
{
	__le64 *field = feature->mask == MASK_COMPAT ? &head->compat : feature->mask == MASK_RO_COMPAT ? &head->ro_compat : &head->incompat;

	*field |= htole64(feature->bit);
}

const struct feature *feature_missing(const struct larder_sb_head *head, const struct feature *previous)
{
	const struct feature *f = previous;

	while ((f = feature_next(le32toh(head->kind), f)) && (f->by_use || feature_is_set(head, f)))
		;
	return f;
}

char *features_text(const struct larder_sb_head *head)
{
	uint64_t unnamed[] = { bits(head, MASK_COMPAT), bits(head, MASK_RO_COMPAT), bits(head, MASK_INCOMPAT) };
	char *text = must_print("%s", ""), *longer;

	for (const struct feature *f = NULL; (f = feature_next(le32toh(head->kind), f));) {
		if (!feature_is_set(head, f))
			continue;
		unnamed[f->mask] &= ~f->bit;
		longer = must_print("%s%s%s", text, *text ? "," : "", f->name);
		free(text);
		text = longer;
	}
	for (size_t i = 0; i < sizeof(unnamed) / sizeof(unnamed[0]); i++) {
		if (!unnamed[i])
			continue;
		longer = must_print("%s%s%s:0x%llx", text, *text ? "," : "", masks[i], (unsigned long long)unnamed[i]);
		free(text);
		text = longer;
	}
	if (*text)
		return text;
	free(text);
	return must_print("-");
}
