// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder.conf(5).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "../lib/address.h"
#include "../lib/message.h"
#include "../lib/superblock.h"
#include "conf.h"

/* ------------------------------------------------------------------ read */

struct reader {
	const char *path;
	unsigned line;
	void (*say)(const char *line, void *data);
	void *data;
};

__attribute__((format(printf, 2, 3))) static void mistake(const struct reader *reader, const char *format, ...)
{
	char *what, *line;
	va_list args;

	va_start(args, format);
	what = must_vprint(format, args);
	va_end(args);
	/* what stands in a file may be anything */
	for (char *c = what; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	line = must_print("%s:%u: %s: the line is ignored", reader->path, reader->line, what);
	reader->say(line, reader->data);
	free(line);
	free(what);
}

bool conf_parse_wait(const char *text, uint64_t *wait)
{
	char *end;
	unsigned long seconds;

	errno = 0;
	seconds = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || seconds > CONF_WAIT_MAX_S)
		return false;
	*wait = (uint64_t)seconds * 1000000;
	return true;
}

static char *next_word(char **rest)
{
	char *word;

	do
		word = strsep(rest, " \t\r");
	while (word && !*word);
	if (!word || *word != '#')
		return word;
	*rest = NULL;
	return NULL;
}

static bool parse_who(const char *word, struct conf_rule *rule)
{
	rule->all = !strcmp(word, "all");
	rule->is_uuid = !rule->all && !uuid_parse(word, rule->uuid);
	if (!rule->all && !rule->is_uuid && !label_valid(word))
		return false;
	snprintf(rule->name, sizeof(rule->name), "%s", rule->all || rule->is_uuid ? "" : word);
	return true;
}

/* The words behind auto and degraded.  Of a line with a mistake no rule is kept. */
static void parse_rules(struct conf *conf, const struct reader *reader, enum conf_about about, const char *keyword, char *rest)
{
	const char *word = next_word(&rest);
	size_t before = conf->number;
	bool yes = word && !strcmp(word, "yes");

	if (!word || (!yes && strcmp(word, "no") != 0)) {
		mistake(reader, "%s: '%s' is neither yes nor no", keyword, word ? word : "");
		return;
	}
	while ((word = next_word(&rest))) {
		struct conf_rule rule = { .about = about, .yes = yes };

		if (!parse_who(word, &rule)) {
			mistake(reader, "%s: '%s' is no name, UUID, or all", keyword, word);
			conf->number = before;
			return;
		}
		conf->rule = must_allocate(realloc(conf->rule, (conf->number + 1) * sizeof(rule)));
		conf->rule[conf->number++] = rule;
	}
	if (conf->number == before)
		mistake(reader, "%s: says of nobody; a name, a UUID, or all", keyword);
}

/* One that sendmail takes for an address, and that breaks no header. */
static bool mail_valid(const char *word)
{
	for (const char *c = word; *c; c++)
		if (*c <= 0x20 || *c == 0x7f || strchr(",;:<>()[]\"\\", *c))
			return false;
	return *word && *word != '-' && strlen(word) <= CONF_MAIL_MAX;
}

static bool program_valid(const char *word)
{
	for (const char *c = word; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	return *word == '/';
}

static bool address_valid(const char *word)
{
	struct address ignored;

	return address_parse(word, &ignored);
}

/* The one word behind mail, program and metrics-listen. */
static void parse_word(char **kept, const struct reader *reader, const char *keyword, char *rest, bool (*valid)(const char *word), const char *what)
{
	char *word = next_word(&rest);

	if (!word || next_word(&rest) || !valid(word)) {
		mistake(reader, "%s: is not one %s", keyword, what);
		return;
	}
	free(*kept);
	*kept = must_allocate(strdup(word));
}

static void parse_line(struct conf *conf, const struct reader *reader, char *line)
{
	char *rest = line, *word = next_word(&rest), *seconds;

	if (!word)
		return;
	if (!strcmp(word, "auto")) {
		parse_rules(conf, reader, CONF_AUTO, word, rest);
	} else if (!strcmp(word, "degraded")) {
		parse_rules(conf, reader, CONF_DEGRADED, word, rest);
	} else if (!strcmp(word, "wait")) {
		seconds = next_word(&rest);
		if (!seconds || next_word(&rest) || !conf_parse_wait(seconds, &conf->wait))
			mistake(reader, "wait: is not one number of seconds up to %d", CONF_WAIT_MAX_S);
	} else if (!strcmp(word, "stall")) {
		uint64_t stall;

		seconds = next_word(&rest);
		if (!seconds || next_word(&rest) || !conf_parse_wait(seconds, &stall))
			mistake(reader, "stall: is not one number of seconds up to %d", CONF_WAIT_MAX_S);
		else
			conf->stall = (unsigned)(stall / 1000000);
	} else if (!strcmp(word, "mail")) {
		parse_word(&conf->mail, reader, word, rest, mail_valid, "mail address");
	} else if (!strcmp(word, "program")) {
		parse_word(&conf->program, reader, word, rest, program_valid, "path that begins with /");
	} else if (!strcmp(word, "metrics-listen")) {
		parse_word(&conf->metrics_listen, reader, word, rest, address_valid, ADDRESS_WORDS);
	} else {
		mistake(reader, "'%s' is not auto, degraded, wait, stall, mail, program or metrics-listen", word);
	}
}

void conf_parse(struct conf *conf, const char *text, size_t length, const char *path, void (*say)(const char *line, void *data), void *data)
{
	struct reader reader = { .path = path, .say = say, .data = data };
	const char *end = text + length;

	*conf = (struct conf){ .wait = CONF_WAIT_DEFAULT, .stall = CONF_STALL_DEFAULT_S };
	while (text < end) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		size_t size = (size_t)((stop ? stop : end) - text);
		char *line = must_allocate(strndup(text, size));

		reader.line++;
		if (strlen(line) != size)
			mistake(&reader, "has a byte 0 in it");
		else
			parse_line(conf, &reader, line);
		free(line);
		text += size + 1;
	}
}

void conf_read(struct conf *conf, void (*say)(const char *line, void *data), void *data)
{
	const char *given = getenv("LARDER_CONF"), *path = given ? given : CONF_PATH;
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = must_allocate(malloc(CONF_SIZE_MAX + 1)), *line = NULL;
	struct stat status;
	ssize_t length = 0;

	if (file < 0 && errno != ENOENT && errno != ENOTDIR)
		line = must_print("%s: cannot open it: %s: nothing starts by itself", path, strerror(errno));
	else if (file >= 0 && (fstat(file, &status) || !S_ISREG(status.st_mode)))
		line = must_print("%s: is no file: nothing starts by itself", path);
	else if (file >= 0 && (length = read(file, text, CONF_SIZE_MAX + 1)) < 0)
		line = must_print("%s: cannot read it: %s: nothing starts by itself", path, strerror(errno));
	else if (length > CONF_SIZE_MAX)
		line = must_print("%s: is longer than %d bytes: nothing starts by itself", path, CONF_SIZE_MAX);
	if (line)
		say(line, data);
	conf_parse(conf, text, line || length < 0 ? 0 : (size_t)length, path, say, data);
	if (line) { /* it may say so, and whoever wrote it had a reason */
		conf->rule = must_allocate(calloc(1, sizeof(*conf->rule)));
		conf->rule[conf->number++] = (struct conf_rule){ .about = CONF_AUTO, .all = true };
	}
	free(line);
	free(text);
	if (file >= 0)
		close(file);
}

void conf_free(struct conf *conf)
{
	free(conf->rule);
	free(conf->mail);
	free(conf->program);
	free(conf->metrics_listen);
	*conf = (struct conf){ 0 };
}

/* ------------------------------------------------------------------ apply */

static bool names(const struct conf_rule *rule, const struct fact_member *m)
{
	const uint8_t *uuid = m->kind == LARDER_KIND_CACHE ? m->cache_uuid : m->leg ? m->volume : m->uuid;

	if (rule->is_uuid)
		return !memcmp(rule->uuid, uuid, 16) || ((*m->stack || m->leg) && !memcmp(rule->uuid, m->stack_uuid, 16));
	return (!m->leg && !strcmp(rule->name, m->label)) || (*m->stack && !strcmp(rule->name, m->stack));
}

/* What the file says of it; *by_name: not by "all", or by saying nothing. */
static bool verdict(const struct conf *conf, enum conf_about about, const struct fact_member *m, bool *by_name)
{
	*by_name = false;
	for (size_t i = 0; i < conf->number; i++) {
		const struct conf_rule *rule = &conf->rule[i];

		if (rule->about != about || (!rule->all && !names(rule, m)))
			continue;
		*by_name = !rule->all;
		return rule->yes;
	}
	return true;
}

static bool of_cache(const struct fact_member *m, const struct fact_member *ssd)
{
	return !memcmp(m->cache_uuid, ssd->cache_uuid, 16);
}

/* A cache that nothing is said of by its name starts for a volume of it that does. */
static bool has_volume_that_starts(const struct facts *facts, const struct fact_member *ssd)
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (facts->member[i].kind == LARDER_KIND_VOLUME && of_cache(&facts->member[i], ssd) && !facts->member[i].left)
			return true;
	return false;
}

/* Neither does it start by half for a volume that is not to. */
static bool has_volume_that_is_whole(const struct facts *facts, const struct fact_member *ssd)
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (facts->member[i].kind == LARDER_KIND_VOLUME && of_cache(&facts->member[i], ssd) && facts->member[i].whole)
			return true;
	return false;
}

static bool rest_is_left(const struct conf *conf, const struct fact_rest *r)
{
	struct fact_member volume = { .kind = LARDER_KIND_VOLUME };
	bool by_name;

	memcpy(volume.uuid, r->volume, 16);
	memcpy(volume.stack, r->stack, sizeof(volume.stack));
	memcpy(volume.stack_uuid, r->stack_uuid, 16);
	return !verdict(conf, CONF_AUTO, &volume, &by_name);
}

void conf_apply(const struct conf *conf, struct facts *facts)
{
	bool by_name;

	for (size_t i = 0; i < facts->nr_members; i++) {
		struct fact_member *m = &facts->member[i];

		if (m->kind != LARDER_KIND_VOLUME && !m->leg)
			continue;
		m->left = !verdict(conf, CONF_AUTO, m, &by_name);
		m->whole = !verdict(conf, CONF_DEGRADED, m, &by_name);
	}
	for (size_t i = 0; i < facts->nr_members; i++) {
		struct fact_member *m = &facts->member[i];

		if (m->kind != LARDER_KIND_CACHE)
			continue;
		m->whole = !verdict(conf, CONF_DEGRADED, m, &by_name) || has_volume_that_is_whole(facts, m);
		m->left = !verdict(conf, CONF_AUTO, m, &by_name);
		if (!by_name && m->left)
			m->left = !has_volume_that_starts(facts, m);
	}
	for (size_t i = 0; i < facts->nr_rests; i++)
		facts->rest[i].left = rest_is_left(conf, &facts->rest[i]);
}
