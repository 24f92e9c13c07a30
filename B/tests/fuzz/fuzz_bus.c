// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what the daemon's part on D-Bus reads (daemon/methods.c, daemon/bus_call.c, daemon/objects.c): the arguments of a method, what a command has
 * said, and the objects of a pass.  Input: a byte (0: a call; 1: what a command says; else objects).  Of a call a byte follows that says which method, and texts, each
 * ended by a NUL: one for each argument; of an argument "as" any number, of "a{sv}" any number of pairs of name and value, up to a text that is "\1".  A name may be one
 * byte from 2 on, which counts the method's own options; the first letter of a value is its type (a, b, h, s; "=": the right one), and what is behind it the value (of "a"
 * the texts between commas).  Of a job
 * the texts are what it runs.  Aborts where the words are not those that the head of methods.c says (of what a caller gives nothing may be an option but the value of one),
 * or lose something by less than "destroy", or an error is no plain line, or objects are others when they are written and read again.
 */
#include <sys/mman.h>
#include <sys/socket.h>

#include "../../daemon/bus_call.c"
#include "../../daemon/methods.c"
#include "input.h"

#define UUID "aaaaaaaa-0000-4000-8000-0000000000aa"
#define NR_METHODS (sizeof(methods) / sizeof(methods[0]) - 1)

/* A message needs a bus; nobody is at its other end. */
static sd_bus *a_bus(void)
{
	static sd_bus *bus;
	static int ends[2];

	if (bus)
		return bus;
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), "a socket");
	must(sd_bus_new(&bus) >= 0 && sd_bus_set_fd(bus, ends[0], ends[0]) >= 0 && sd_bus_start(bus) >= 0, "a bus");
	return bus;
}

/* ------------------------------------------------------------------ a call */

/* As it is put into a message, and what is to become of it. */
struct given {
	const uint8_t *data;
	size_t size;
	sd_bus_message *message;
	const struct method *method;
	struct words front, behind; /* of "--" */
	char *object;
	int file, keys;
	size_t bytes; /* of texts */
	bool refused;
	bool sent; /* else it is nothing that could be: no UTF-8 */
};

static bool is_more(const struct given *g, const char *text)
{
	return strcmp(text, "\1") && (g->size || *text);
}

static void give(struct given *g, char type, const void *value)
{
	g->sent = g->sent && sd_bus_message_append_basic(g->message, type, value) >= 0;
	g->bytes += type == 's' ? strlen(value) + 1 : 0;
	g->refused |= g->bytes > METHOD_TEXTS_MAX;
}

static void give_text(struct given *g, const char *form)
{
	char *text = input_next(&g->data, &g->size);

	give(g, 's', text);
	if (*form == '=')
		join(&g->behind.word[g->behind.number - 1], "=", text);
	else if (*form == '@')
		join(&g->object, "@", text);
	else if (*form == '-' || (*form == '?' && *text))
		put(&g->front, must_print("%s=%s", form + (*form == '?'), text));
	else if (!*form)
		put(&g->behind, must_print("%s", text));
	free(text);
}

/* Of a list; takes the text. */
static void give_one(struct given *g, const char *form, char *text)
{
	g->refused |= g->front.number + g->behind.number >= WORDS_MAX;
	if (*form != '-') {
		put(&g->behind, text);
		return;
	}
	put(&g->front, must_print("%s=%s", form, text));
	free(text);
}

static void give_texts(struct given *g, const char *form)
{
	char *text = input_next(&g->data, &g->size);

	if (*form && *form != '-')
		put(&g->behind, must_print("%s", form));
	must(!g->sent || sd_bus_message_open_container(g->message, 'a', "s") >= 0, "a list");
	for (; is_more(g, text); text = input_next(&g->data, &g->size)) {
		give(g, 's', text);
		give_one(g, form, text);
	}
	free(text);
	must(!g->sent || sd_bus_message_close_container(g->message) >= 0, "the end of a list");
}

static void expect_option(struct given *g, const struct method_option *o, const char *value, bool yes)
{
	if (!o->name || *o->type != *value)
		g->refused = true;
	else if (*value == 's')
		put(&g->front, must_print("%s=%s", o->word, value + 1));
	else if (yes && *value != 'a' && o->word)
		put(&g->front, must_print("%s", o->word));
	g->keys += !g->refused && *value == 'h';
	g->refused |= g->keys > 1;
}

static const struct method_option *option_of(const struct method *method, const char *name)
{
	const struct method_option *o = method->options;

	for (unsigned i = 2; o->name && (*name < 2 || *name >= 0x20 || name[1] ? strcmp(o->name, name) != 0 : i < (unsigned)*name); i++)
		o++;
	return o;
}

/* Of an option that is a list. */
static void give_list(struct given *g, const struct method_option *o, const char *value)
{
	char *copy = must_print("%s", value), *rest = copy, *text;

	must(!g->sent || sd_bus_message_open_container(g->message, 'a', "s") >= 0, "a list");
	while ((text = strsep(&rest, ","))) {
		give(g, 's', text);
		if (!g->refused && o->name && *o->type == 'a')
			give_one(g, o->word, must_print("%s", text));
	}
	must(!g->sent || sd_bus_message_close_container(g->message) >= 0, "the end of a list");
	free(copy);
}

static void give_option(struct given *g, const char *name)
{
	const struct method_option *o = option_of(g->method, name);
	char *value = input_next(&g->data, &g->size), type[3] = { *value, 0 };
	int yes = *value && value[1] == '1';

	if (*value == '=')
		*type = o->name ? *o->type : 's';
	else if (*value != 'b' && *value != 'h' && *value != 'a')
		*type = 's';
	if (*value) {
		*value = *type;
		type[1] = *type == 'a' ? 's' : 0;
		must(!g->sent || sd_bus_message_open_container(g->message, 'e', "sv") >= 0, "an option");
		give(g, 's', o->name ? o->name : name);
		must(!g->sent || sd_bus_message_open_container(g->message, 'v', type) >= 0, "a value");
		if (*type == 'a')
			give_list(g, o, value + 1);
		else
			give(g, *type, *type == 'b' ? &yes : *type == 'h' ? (const void *)&g->file : value + 1);
		must(!g->sent || (sd_bus_message_close_container(g->message) >= 0 && sd_bus_message_close_container(g->message) >= 0), "its end");
		if (!g->refused)
			expect_option(g, o, value, *type != 'b' || yes);
	}
	free(value);
}

static void give_options(struct given *g)
{
	char *name = input_next(&g->data, &g->size);

	must(!g->sent || sd_bus_message_open_container(g->message, 'a', "{sv}") >= 0, "options");
	for (; is_more(g, name); name = input_next(&g->data, &g->size)) {
		give_option(g, name);
		free(name);
	}
	free(name);
	must(!g->sent || sd_bus_message_close_container(g->message) >= 0, "their end");
}

static void give_arguments(struct given *g)
{
	const char *at = g->method->signature ? g->method->signature : "";

	for (size_t i = 0; *at; i++) {
		const char *form = g->method->form[i];

		if (*at == 's') {
			give_text(g, form);
			at++;
		} else if (*at == 'h') {
			give(g, 'h', &g->file);
			put(&g->front, must_print("%s", form));
			g->keys++;
			at++;
		} else if (at[1] == 's') {
			give_texts(g, form);
			at += 2;
		} else {
			give_options(g);
			at += strlen("a{sv}");
		}
	}
}

static char **check_equal(char **word, const struct words *to_be, const char *what)
{
	for (size_t i = 0; i < to_be->number; i++, word++)
		must(*word && !strcmp(*word, to_be->word[i]), what);
	return word;
}

static void check_front(const struct words *front, const char *action)
{
	for (size_t i = 0; i < front->number; i++) {
		const char *word = front->word[i];

		must(!strncmp(word, "--", 2) && word[2] >= 'a' && word[2] <= 'z', "an option");
		must((strncmp(word, "--wipe", 6) && strncmp(word, "--discard", 9)) || !strcmp(action, "destroy"), "what loses something asks for it");
		must(strcmp(word, "--repair") || !strcmp(action, "manage"), "what repairs asks for it");
	}
}

/* What systemd makes of it is the word. */
static void check_escaped(const char *word)
{
	char *text = program_unit_word(word);
	const char *c = text;

	for (; *word; word++, c++) {
		must(*c == *word, "a word of a unit");
		c += *c == '$';
		must(*word != '$' || *c == '$', "no variable");
	}
	must(!*c, "the end of a word of a unit");
	free(text);
}

static void check_command(const struct given *g, const struct command *command)
{
	const struct method *m = g->method;
	char *none[] = { NULL }, **word = command->words ? command->words : none, **end = word + command->number;

	if (m->kind == OBJECT_JOB) /* its own words, and no more */
		check_equal(word, &g->behind, "what the job runs");
	for (size_t i = 0; m->kind != OBJECT_JOB && i < sizeof(m->words) / sizeof(m->words[0]) && m->words[i]; i++)
		must(!strcmp(*word++, m->words[i]), "the method's words");
	if (m->kind != OBJECT_JOB) {
		word = check_equal(word, &g->front, "options");
		must(!m->signature || !strcmp(*word++, "--"), "--");
		must(!g->object || !strcmp(*word++, g->object), "the object");
		word = check_equal(word, &g->behind, "other arguments");
		must(word == end, "no more words");
	} else {
		must(command->number == g->behind.number, "no more words of a job");
	}
	must(!*end, "the end");
	check_front(&g->front, command->action);
	for (size_t i = 0; i < command->number; i++)
		check_escaped(command->words[i]);
	must((command->in >= 0) == !!g->keys && command->in != g->file, "the key on stdin");
}

static void give_words_of_job(struct given *g, struct object *job)
{
	const char *const property[] = { "cancel", "pause", "resume" };

	for (char *text = input_next(&g->data, &g->size);; text = input_next(&g->data, &g->size)) {
		if (!*text) {
			free(text);
			return;
		}
		for (size_t i = 0; i < 3; i++)
			object_append(job, property[i], text);
		text_clean(text);
		put(&g->behind, text);
	}
}

static int lowest_free(int file)
{
	int copy = dup(file);

	close(copy);
	return copy;
}

static void try_call(const uint8_t *data, size_t size)
{
	static int file = -1;
	struct given g = { .data = data + !!size, .size = size - !!size, .method = &methods[(size ? data[0] : 0) % NR_METHODS], .sent = true };
	sd_bus_error error = SD_BUS_ERROR_NULL;
	struct command command;
	struct objects objects = { 0 };
	struct object *object = NULL;
	int result, before;

	g.file = file = file < 0 ? memfd_create("key", MFD_CLOEXEC) : file;
	must(sd_bus_message_new_method_call(a_bus(), &g.message, BUS_NAME, BUS_ROOT, BUS_NAME, g.method->member) >= 0, "a message");
	if (g.method->kind != METHOD_OF_MANAGER)
		object = object_at(&objects, (enum object_kind)g.method->kind, must_print(BUS_ROOT "/x"));
	if (object && object->kind == OBJECT_JOB) {
		give_words_of_job(&g, object);
	} else if (object) {
		object_set(object, "UUID", UUID);
		g.object = must_print(UUID);
	}
	give_arguments(&g);
	if (g.sent) {
		must(sd_bus_message_seal(g.message, 1, 0) >= 0, "a message");
		before = lowest_free(file);
		result = method_command(g.method, object, g.message, &command, &error);
		must((result < 0) == g.refused && (result < 0) == !!sd_bus_error_is_set(&error), "refused, and why");
		must(result >= 0 || (!command.words && command.in < 0), "nothing to be run");
		if (result >= 0)
			check_command(&g, &command);
		command_free(&command);
		must(lowest_free(file) == before, "no descriptor is left");
	}
	sd_bus_error_free(&error);
	sd_bus_message_unref(g.message);
	objects_free(&objects);
	words_free(&g.front);
	words_free(&g.behind);
	free(g.object);
}

/* ------------------------------------------------------------------ the others */

static void try_words(const uint8_t *data, size_t size)
{
	struct call *call = calloc(1, sizeof(*call));
	const char *line;
	int ends[2];

	must(call && !pipe2(ends, O_CLOEXEC | O_NONBLOCK), "a pipe");
	must(write(ends[1], data, size) == (ssize_t)size, "room");
	close(ends[1]);
	call->said = ends[0];
	must(!hear(call) && call->length < SAID_MAX, "all of it is heard");
	line = last_line(call);
	for (const unsigned char *c = (const unsigned char *)line; *c; c++)
		must(*c >= 0x20 && *c != 0x7f, "a plain line");
	close(ends[0]);
	free(call);
}

static int file_of(const uint8_t *data, size_t size)
{
	int file = memfd_create("objects", MFD_CLOEXEC);

	must(file >= 0 && write(file, data, size) == (ssize_t)size, "memory");
	return file;
}

static void try_objects(const uint8_t *data, size_t size)
{
	int file = file_of(data, size);
	struct objects objects, again;

	if (objects_read(&objects, file)) {
		for (size_t i = 0; i < objects.number; i++) {
			const struct object *o = &objects.object[i];

			must(o->kind < NR_OBJECT_KINDS && objects_find(&objects, o->path) == o, "its kind, and its path once");
			must(object_value(o, "UUID") && !object_value(o, "None"), "its values");
		}
		must(!objects_write(&objects, file) && objects_read(&again, file) && again.number == objects.number, "they are read again");
		for (size_t i = 0; i < again.number; i++) {
			const struct object *a = &again.object[i], *o = &objects.object[i];

			must(a->kind == o->kind && !strcmp(a->path, o->path), "the same object");
			for (size_t k = 0; k < object_classes[a->kind].number; k++)
				must(!strcmp(a->value[k], o->value[k]), "the same value");
		}
		objects_free(&again);
		objects_free(&objects);
	}
	close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] == 0)
		try_call(data + 1, size - 1);
	else if (data[0] == 1)
		try_words(data + 1, size - 1);
	else
		try_objects(data + 1, size - 1);
	return 0;
}
