// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for the options of caches and volumes as tables and messages have them: kernel/settings.c and kernel/class.c.
 * Input: a byte whose lowest bit says whose options, then "key value" pairs, each ended by a newline.  Aborts where a value is out of the
 * bounds of docs/interface.md, or what is printed is not read back as it was.
 */
#include "../../kernel/class.c"
#include "../../kernel/settings.c"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

#define must(c) pure_check(c, #c)
#define TEXT 4096

static void check_cache(const struct cache_settings *s)
{
	u32 i;

	must(s->mirror <= MIRROR_DIRTY_3 && s->commit_interval - 1 < 60000 && s->gather - 1 < 64 && s->memory_limit <= 16777216);
	must(s->small_percent >= 5 && s->small_percent <= 10 && s->max_marks >= 64 && s->max_marks <= 1024);
	must(s->checkpoint_percent - 1 < 50 && s->congestion_read <= 60000000 && s->congestion_write <= 60000000);
	must(s->scrub_rate <= 16777216 && s->resync_rate <= 16777216 && s->nr_roles <= LARDER_MAX_DEVICES);
	for (i = 0; i < LARDER_MAX_DEVICES; i++)
		must(s->role[i] <= LARDER_ROLE_READ && (i < s->nr_roles || !s->role[i]));
}

static void check_volume(const struct volume_settings *s)
{
	u32 i, percent = 0;

	must(s->mode <= LARDER_WRITEAROUND && s->admit <= ADMIT_SECOND_MISS && s->verify <= VERIFY_READS && s->writeback_percent <= 100);
	must(s->sequential_cutoff <= 4194304 || s->sequential_cutoff == LARDER_CUTOFF_AUTO);
	must(s->writeback_rate_min <= 16777216 && s->writeback_rate_max <= 16777216 && s->writeback_depth - 1 < 128);
	must(s->readahead <= 504 && s->share_min <= 75 && s->share_max - 1 < 100);
	must(s->class.nr <= LARDER_CLASS_RULES && s->class.pins <= LARDER_CLASS_PINS);
	for (i = 0; i < s->class.nr; i++) {
		const struct larder_class *c = &s->class.rule[i];

		must(c->action <= LARDER_CLASS_READ_ONLY && c->ioprio <= LARDER_IOPRIO_IDLE && c->first <= c->end);
		must(!c->pin == (c->action != LARDER_CLASS_PIN) && c->pin <= s->class.pins);
		must(c->action != LARDER_CLASS_PIN || c->percent - 1u < 90);
		percent += c->action == LARDER_CLASS_PIN ? c->percent : 0;
	}
	must(percent <= 270);
}

/* Of the text of a table, " key value key value ...". */
static void read_again(char *text, bool cache, struct cache_settings *c, struct volume_settings *v)
{
	const char *why = NULL;
	char *key, *value;

	while ((key = strsep(&text, " "))) {
		if (!*key)
			continue;
		value = strsep(&text, " ");
		must(value);
		must((cache ? cache_setting_parse(c, key, value, &why) : volume_setting_parse(v, key, value, &why)) >= 0);
	}
}

static void print_and_read(const struct cache_settings *c, const struct volume_settings *v, u32 given)
{
	struct cache_settings c2;
	struct volume_settings v2;
	static char text[TEXT], again[TEXT];
	u32 count, n;

	*text = 0;	/* nothing is written where nothing was changed */
	cache_settings_default(&c2);
	n = cache_settings_print(c, true, "  ", text, sizeof(text), &count);
	must(n == strlen(text) && n < sizeof(text));
	memcpy(again, text, sizeof(again));
	read_again(again, true, &c2, NULL);
	*again = 0;
	cache_settings_print(&c2, true, "  ", again, sizeof(again), &count);
	must(!strcmp(text, again));

	*text = 0;
	volume_settings_default(&v2);
	n = volume_settings_print(v, given, "  ", text, sizeof(text), &count);
	must(n == strlen(text) && n < sizeof(text));
	memcpy(again, text, sizeof(again));
	v2.mode = v->mode;	/* the default is the superblock's */
	read_again(again, false, NULL, &v2);
	*again = 0;
	volume_settings_print(&v2, given, "  ", again, sizeof(again), &count);
	must(!strcmp(text, again));
	/* into too little room */
	cache_settings_print(c, false, " =", again, 16, &count);
	volume_settings_print(v, ~0u, " =", again, 40, &count);
	must(strnlen(again, 40) < 40);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct cache_settings c, c_before;
	struct volume_settings v, v_before;
	char *text, *rest, *line, *value;
	const char *why;
	u32 given = 0;
	int number;

	if (!size)
		return 0;
	text = rest = strndup((const char *)data + 1, size - 1);
	must(text);
	cache_settings_default(&c);
	volume_settings_default(&v);
	while ((line = strsep(&rest, "\n"))) {
		value = strchr(line, ' ');
		if (!value)
			continue;
		*value++ = 0;
		why = NULL;
		c_before = c;
		v_before = v;
		number = data[0] & 1 ? volume_setting_parse(&v, line, value, &why) : cache_setting_parse(&c, line, value, &why);
		if (number < 0) {
			must(why && !memcmp(&c, &c_before, sizeof(c)) && !memcmp(&v, &v_before, sizeof(v)));
			continue;
		}
		if (data[0] & 1)
			given |= 1u << number;
		check_cache(&c);
		check_volume(&v);
	}
	print_and_read(&c, &v, given);
	free(text);
	return 0;
}
