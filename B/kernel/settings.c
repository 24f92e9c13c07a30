// SPDX-License-Identifier: GPL-2.0-only
/*
 * Options by name: one table for constructors, messages, the printed table and the status, so that whatever can be set can be seen
 * and loaded back.
 *
 * Parsing is strict: a value is one of the words listed, or digits only and in bounds.  *why is static and is meant to follow
 * "key: 'value' ".  No locks: a struct of settings in use is changed as a whole by its target, and read field by field.
 */
#include "settings.h"

struct setting {
	const char *key;
	const char *const *words;	/* by value, NULL-terminated; stored in a byte.  NULL: a number, stored in a u32 */
	const char *why;		/* what a wrong value is not */
	size_t offset;
	u32 min, max;
	bool classes;			/* a struct larder_classes instead; it has reasons of its own */
	bool automatic;			/* a number, or 'auto': U32_MAX */
	bool roles;			/* role[] and nr_roles instead: 'words' of it, divided by '/', or '-': none is given */
};

static const char *const words_switch[] = { "off", "on", NULL };
static const char *const words_commit[] = { "auto", "always", "buffered", NULL };
static const char *const words_mirror[] = { "none", "dirty", "all", "dirty:3", NULL };
static const char *const words_role[] = { "both", "write", "read", NULL };
static const char *const words_admit[] = { "always", "second-miss", NULL };
static const char *const words_verify[] = { "none", "reads", NULL };
static const char *const words_mode[] = { "writeback", "writethrough", "writearound", NULL };

#define WORDS(type, member, name, list, text)                                                                  \
	{                                                                                                      \
		.key = (name), .words = (list), .why = "is not " text, .offset = offsetof(struct type, member) \
	}
#define NUMBER(type, member, low, high, unit)	{ .key = #member, .why = "is not a number" unit " (" #low " to " #high ")", \
						  .offset = offsetof(struct type, member), .min = (low), .max = (high) }

static const struct setting cache_table[] = {
	WORDS(cache_settings, commit, "commit", words_commit, "auto, always or buffered"),
	NUMBER(cache_settings, commit_interval, 1, 60000, " of ms"),
	NUMBER(cache_settings, gather, 1, 64, ""),
	NUMBER(cache_settings, memory_limit, 0, 16777216, " of MiB"),
	NUMBER(cache_settings, small_percent, 5, 10, ""),
	WORDS(cache_settings, discard, "discard", words_switch, "on or off"),
	WORDS(cache_settings, mirror, "mirror", words_mirror, "none, dirty, dirty:3 or all"),
	{ .key = "roles", .roles = true, .words = words_role,
	  .why = "is not '-', or both, write or read for each SSD, divided by '/'" },
	NUMBER(cache_settings, max_marks, 64, 1024, ""),
	NUMBER(cache_settings, checkpoint_percent, 1, 50, ""),
	NUMBER(cache_settings, congestion_read, 0, 60000000, " of us"),
	NUMBER(cache_settings, congestion_write, 0, 60000000, " of us"),
	NUMBER(cache_settings, scrub_rate, 0, 16777216, " of KiB/s"),
	NUMBER(cache_settings, resync_rate, 0, 16777216, " of KiB/s"),
	WORDS(cache_settings, mend, "mend", words_switch, "on or off"),
};

static const struct setting volume_table[] = {
	[VOLUME_SETTING_MODE] = WORDS(volume_settings, mode, "mode", words_mode, "writeback, writethrough or writearound"),
	{ .key = "sequential_cutoff", .why = "is neither auto nor a number of KiB (0 to 4194304)", .automatic = true,
	  .offset = offsetof(struct volume_settings, sequential_cutoff), .max = 4194304 },
	WORDS(volume_settings, fill, "fill", words_switch, "on or off"),
	WORDS(volume_settings, admit, "admit", words_admit, "always or second-miss"),
	WORDS(volume_settings, writeback, "writeback", words_switch, "on or off"),
	NUMBER(volume_settings, writeback_percent, 0, 100, ""),
	NUMBER(volume_settings, writeback_rate_min, 0, 16777216, " of KiB/s"),
	NUMBER(volume_settings, writeback_rate_max, 0, 16777216, " of KiB/s"),
	NUMBER(volume_settings, writeback_depth, 1, 128, ""),
	NUMBER(volume_settings, readahead, 0, 504, " of KiB"),
	NUMBER(volume_settings, share_min, 0, 75, " of percent"),
	NUMBER(volume_settings, share_max, 1, 100, " of percent"),
	WORDS(volume_settings, stripes, "stripes", words_switch, "on or off"),
	WORDS(volume_settings, quiet, "quiet", words_switch, "on or off"),
	NUMBER(volume_settings, failure_wait, 0, 86400, " of seconds"),
	WORDS(volume_settings, verify, "verify", words_verify, "none or reads"),
	{ .key = "class", .classes = true, .offset = offsetof(struct volume_settings, class) },
};

static_assert(sizeof(bool) == sizeof(u8));
static_assert(COMMIT_AUTO == 0 && COMMIT_ALWAYS == 1 && COMMIT_BUFFERED == 2);
static_assert(MIRROR_NONE == 0 && MIRROR_DIRTY == 1 && MIRROR_ALL == 2 && MIRROR_DIRTY_3 == 3);
static_assert(LARDER_ROLE_BOTH == 0 && LARDER_ROLE_WRITE == 1 && LARDER_ROLE_READ == 2);
static_assert(VERIFY_NONE == 0 && VERIFY_READS == 1);
static_assert(ADMIT_ALWAYS == 0 && ADMIT_SECOND_MISS == 1);
static_assert(LARDER_WRITEBACK == 0 && LARDER_WRITETHROUGH == 1 && LARDER_WRITEAROUND == 2);

void cache_settings_default(struct cache_settings *s)
{
	*s = (struct cache_settings) {
		.mirror = MIRROR_DIRTY,
		.commit_interval = 10,
		.gather = 4,
		.small_percent = 10,
		.max_marks = 1024,
		.checkpoint_percent = 2,
		.congestion_read = 2000,
		.congestion_write = 20000,
		.scrub_rate = 204800,
		.resync_rate = 204800,
		.mend = true,
	};
}

void volume_settings_default(struct volume_settings *s)
{
	*s = (struct volume_settings) {
		.mode = LARDER_WRITEBACK,
		.fill = true,
		.writeback = true,
		.sequential_cutoff = 4096,
		.writeback_percent = 10,
		.writeback_rate_min = 1024,
		.writeback_depth = 32,
		.share_max = 100,
		.stripes = true,
		.failure_wait = 300,
	};
	larder_classes_default(&s->class);
}

static u32 setting_get(const struct setting *t, const void *s)
{
	return t->words ? *(const u8 *)(s + t->offset) : *(const u32 *)(s + t->offset);
}

static bool setting_same(const struct setting *t, const void *a, const void *b)
{
	const struct cache_settings *x = a, *y = b;

	if (t->classes)
		return larder_classes_same(a + t->offset, b + t->offset);
	if (t->roles)
		return !memcmp(x->role, y->role, sizeof(x->role));
	return setting_get(t, a) == setting_get(t, b);
}

/* 0, or -EINVAL */
static int setting_value(const struct setting *t, const char *value, u32 *n)
{
	unsigned int i;

	if (t->words) {
		for (i = 0; t->words[i]; i++) {
			if (!strcmp(t->words[i], value)) {
				*n = i;
				return 0;
			}
		}
		return -EINVAL;
	}
	if (t->automatic && !strcmp(value, "auto")) {
		*n = U32_MAX;
		return 0;
	}
	/* kstrtou32() takes a sign and a newline; here it is digits only */
	for (i = 0; value[i]; i++)
		if (!isdigit(value[i]))
			return -EINVAL;
	if (kstrtou32(value, 10, n) || *n < t->min || *n > t->max)
		return -EINVAL;
	return 0;
}

static int roles_parse(struct cache_settings *s, const char *value)
{
	u8 role[LARDER_MAX_DEVICES] = { };
	unsigned int nr = 0, len;
	int n;

	if (strcmp(value, "-")) {
		for (;; value += len + 1) {
			len = strcspn(value, "/");
			for (n = 0; words_role[n] && (strlen(words_role[n]) != len || strncmp(words_role[n], value, len)); n++)
				;
			if (!words_role[n] || nr == LARDER_MAX_DEVICES)
				return -EINVAL;
			role[nr++] = n;
			if (!value[len])
				break;
		}
	}
	memcpy(s->role, role, sizeof(role));
	s->nr_roles = nr;
	return 0;
}

static unsigned int roles_print(const struct cache_settings *s, char *buf, unsigned int size)
{
	unsigned int i, sz = 0;

	for (i = 0; i < s->nr_roles; i++)
		sz += scnprintf(buf + sz, size - sz, "%s%s", i ? "/" : "", words_role[s->role[i]]);
	return sz ?: scnprintf(buf, size, "-");
}

/* The number of the key, or -EINVAL and *why. */
static int setting_parse(const struct setting *table, unsigned int nr, void *s, const char *key, const char *value,
			 const char **why)
{
	const struct setting *t;
	unsigned int i;
	u32 n;

	for (i = 0; i < nr && strcmp(table[i].key, key); i++)
		;
	if (i == nr) {
		*why = "is given for an option that does not exist: docs/interface.md lists them";
		return -EINVAL;
	}
	t = &table[i];
	if (t->classes)
		return larder_classes_parse(s + t->offset, value, why) ?: i;
	if (t->roles) {
		*why = t->why;
		return roles_parse(s, value) ?: i;
	}
	if (setting_value(t, value, &n)) {
		*why = t->why;
		return -EINVAL;
	}
	if (t->words)
		WRITE_ONCE(*(u8 *)(s + t->offset), n);
	else
		WRITE_ONCE(*(u32 *)(s + t->offset), n);
	return i;
}

int cache_setting_parse(struct cache_settings *s, const char *key, const char *value, const char **why)
{
	return setting_parse(cache_table, ARRAY_SIZE(cache_table), s, key, value, why);
}

int volume_setting_parse(struct volume_settings *s, const char *key, const char *value, const char **why)
{
	return setting_parse(volume_table, ARRAY_SIZE(volume_table), s, key, value, why);
}

static unsigned int setting_print(const struct setting *t, const void *s, const char *sep, char *buf, unsigned int size)
{
	unsigned int sz;
	u32 n;

	if (t->classes) {
		sz = scnprintf(buf, size, "%c%s%c", sep[0], t->key, sep[1]);
		return sz + larder_classes_print(s + t->offset, buf + sz, size - sz);
	}
	if (t->roles) {
		sz = scnprintf(buf, size, "%c%s%c", sep[0], t->key, sep[1]);
		return sz + roles_print(s, buf + sz, size - sz);
	}
	n = setting_get(t, s);
	if (t->words || (t->automatic && n == U32_MAX))
		return scnprintf(buf, size, "%c%s%c%s", sep[0], t->key, sep[1], t->words ? t->words[n] : "auto");
	return scnprintf(buf, size, "%c%s%c%u", sep[0], t->key, sep[1], n);
}

unsigned int cache_settings_print(const struct cache_settings *s, bool only_changed, const char *sep, char *buf, unsigned int size,
				  unsigned int *count)
{
	struct cache_settings def;
	unsigned int i, sz = 0;

	cache_settings_default(&def);
	*count = 0;
	for (i = 0; i < ARRAY_SIZE(cache_table); i++) {
		if (only_changed && setting_same(&cache_table[i], s, &def))
			continue;
		*count += 2;
		if (sz < size)
			sz += setting_print(&cache_table[i], s, sep, buf + sz, size - sz);
	}
	return sz;
}

unsigned int volume_settings_print(const struct volume_settings *s, u32 given_mask, const char *sep, char *buf, unsigned int size,
				   unsigned int *count)
{
	struct volume_settings def;
	unsigned int i, sz = 0;

	volume_settings_default(&def);
	def.mode = s->mode;		/* the default is the superblock's */
	*count = 0;
	for (i = 0; i < ARRAY_SIZE(volume_table); i++) {
		if (!(given_mask & BIT(i)) && setting_same(&volume_table[i], s, &def))
			continue;
		*count += 2;
		if (sz < size)
			sz += setting_print(&volume_table[i], s, sep, buf + sz, size - sz);
	}
	return sz;
}
