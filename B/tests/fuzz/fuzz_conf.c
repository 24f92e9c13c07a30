// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for larder.conf (daemon/conf.c): the input is the file.  Aborts where what was accepted is out of bounds, where a mistake is
 * not said with the number of a line that is there, or where the rules written anew are not the same when they are read again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../daemon/conf.h"
#include "../../lib/superblock.h"
#include "input.h"

struct said {
	unsigned lines, number;
};

static void say(const char *line, void *data)
{
	struct said *said = data;
	unsigned number;

	said->number++;
	must(sscanf(line, "/x:%u: ", &number) == 1 && number >= 1 && number <= said->lines, "the number of a line");
	for (; *line; line++)
		must((unsigned char)*line >= 0x20 && *line != 0x7f, "a line for a terminal");
}

/* A rule a line. */
static char *write_anew(const struct conf *conf)
{
	char *text = malloc(conf->number * 128 + 128 + (conf->mail ? strlen(conf->mail) : 0) + (conf->program ? strlen(conf->program) : 0) + (conf->metrics_listen ? strlen(conf->metrics_listen) : 0)), *at = text, uuid[UUID_TEXT];

	for (size_t i = 0; i < conf->number; i++) {
		const struct conf_rule *r = &conf->rule[i];

		at += sprintf(at, "%s %s %s\n", r->about == CONF_AUTO ? "auto" : "degraded", r->yes ? "yes" : "no",
			      r->all ? "all" : r->is_uuid ? uuid_text(r->uuid, uuid) : r->name);
	}
	at += sprintf(at, "wait %llu\n", (unsigned long long)conf->wait / 1000000);
	at += sprintf(at, "stall %u\n", conf->stall);
	if (conf->mail)
		at += sprintf(at, "mail %s\n", conf->mail);
	if (conf->program)
		at += sprintf(at, "program %s\n", conf->program);
	if (conf->metrics_listen)
		sprintf(at, "metrics-listen %s\n", conf->metrics_listen);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct said said = { .lines = 1 };
	struct conf a, b;
	char *text;

	for (size_t i = 0; i < size; i++)
		said.lines += data[i] == '\n';
	conf_parse(&a, (const char *)data, size, "/x", say, &said);
	must(said.number <= said.lines, "more mistakes than lines");
	must(a.wait <= CONF_WAIT_MAX_S * UINT64_C(1000000) && a.stall <= CONF_WAIT_MAX_S, "wait, stall");
	for (size_t i = 0; i < a.number; i++) {
		const struct conf_rule *r = &a.rule[i];

		must(r->all + r->is_uuid + !!*r->name == 1, "one of all, UUID, name");
		must(!*r->name || label_valid(r->name), "name");
		/* a zero UUID is written as "-", which is a name */
		if (r->is_uuid && uuid_is_zero(r->uuid))
			goto out;
	}
	text = write_anew(&a);
	said = (struct said){ .lines = 0 };
	conf_parse(&b, text, strlen(text), "/x", say, &said);
	must(!said.number && a.number == b.number && a.wait == b.wait && a.stall == b.stall && !a.metrics_listen == !b.metrics_listen, "it is refused when read again");
	must(!a.number || !memcmp(a.rule, b.rule, a.number * sizeof(*a.rule)), "it is another one when read again");
	conf_free(&b);
	free(text);
out:
	conf_free(&a);
	return 0;
}

#ifdef STANDALONE
/* fuzz_conf SEED NUMBER FILE: so many times the file, with a few random bytes changed, dropped, or copied. */
int main(int argc, char **argv)
{
	static uint8_t whole[4096], data[4096];
	FILE *file = argc == 4 ? fopen(argv[3], "re") : NULL;
	size_t size = file ? fread(whole, 1, sizeof(whole), file) : 0;

	must(size > 1, "usage: fuzz_conf SEED NUMBER FILE");
	fclose(file);
	srand((unsigned)atoi(argv[1]));
	LLVMFuzzerTestOneInput(whole, size);
	for (int i = atoi(argv[2]); i > 0; i--) {
		size_t now = size;

		memcpy(data, whole, size);
		for (int edits = 1 + rand() % 4; edits && now > 1; edits--) {
			size_t at = (size_t)rand() % now;

			if (rand() % 3 == 0)
				now = at ? at : 1;
			else if (rand() % 2)
				data[at] = (uint8_t)rand();
			else
				memmove(data + at, data + (size_t)rand() % (at + 1), now - at);
		}
		LLVMFuzzerTestOneInput(data, now);
	}
	return 0;
}
#endif
