// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The table of methods.  Words are put together as
 *
 *	words, those of options, "--", the UUID of the object, the other arguments
 *
 * so that nothing behind "--" is an option, whatever it is; without arguments there is no "--".  The form of an argument:
 *
 *	""		a word; of "as": one for each
 *	"--option"	--option=VALUE; of "as": once for each
 *	"?--option"	likewise, but nothing where it is empty
 *	"="		joined to the argument before it, KEY=VALUE
 *	"@"		joined to the UUID, UUID@VALUE
 *	"word"		this word, and then the argument
 *
 * Options are of the types s, b, h and as, and become words likewise.  A descriptor (h) becomes stdin, and its form is the word that has the command read
 * that, NULL where it does so by itself: a secret is in no message, and in no list of processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lib/message.h"
#include "methods.h"

#define WORDS_MAX 4096

struct method_option {
	const char *name, *type, *word;
	const char *action; /* that it asks for; NULL: that of the method */
};

#define KEY_ON_STDIN   "--keyfile=/dev/stdin"
#define LINES_ON_STDIN "--keyfile=-" /* the key that opens it, and a new one */
#define ROLE	     { "role", "s", "--role", NULL }
#define LABEL	     { "label", "s", "--cache-label", NULL }
#define PASSPHRASE    { "passphrase", "h", NULL, NULL }
#define HEADER_BACKUP { "header-backup", "s", "--header-backup", NULL }
#define NEW_KEY	     { "slot", "s", "--slot", NULL }, { "new-keyfile", "s", "--new-keyfile", NULL }
#define WIPE	     { "wipe", "b", "--wipe", "destroy" }
#define SPARE	     { "spare", "b", "--spare", NULL }
#define DISCARD_REDUNDANCY { "discard-redundancy", "s", "--discard-redundancy", "destroy" }
#define OVERWRITE    WIPE, { "discard-dirty", "s", "--discard-dirty", "destroy" }

static const struct method_option set_options[] = {
	{ "mount", "s", "--mount", NULL }, { "essential", "s", "--essential", NULL }, { "keyfile", "s", "--keyfile", NULL }, { "class", "s", "--class", NULL },
	{ "mode", "s", "--mode", NULL },   { "backing-label", "s", "--backing-label", NULL },
	{ "snapshot-space", "s", "--snapshot-space", NULL }, { 0 }
};
static const struct method_option create_options[] = {
	{ "raid", "s", "--raid", NULL },
	{ "integrity", "b", "--integrity", NULL },
	{ "separate", "b", "--separate", NULL },
	{ "spare", "as", "--spare", NULL },
	{ "cache-spare", "as", "--cache-spare", NULL },
	{ "size", "s", "--size", NULL },
	{ "mode", "s", "--mode", NULL },
	{ "class", "s", "--class", NULL },
	{ "label", "as", "--cache-label", NULL },
	{ "backing-label", "s", "--backing-label", NULL },
	{ "foreground", "s", "--foreground", NULL },
	{ "promote", "s", "--promote", NULL },
	{ "background", "s", "--background", NULL },
	{ "encrypt", "s", "--encrypt", NULL },
	PASSPHRASE,
	{ "cipher", "s", "--cipher", NULL },
	HEADER_BACKUP,
	{ "mkfs", "s", "--mkfs", NULL },
	{ "mkfs-options", "s", "--mkfs-options", "destroy" }, /* words of another program */
	{ "filesystem-label", "s", "--label", NULL },
	{ "mount", "s", "--mount", NULL },
	{ "essential", "b", "--essential", NULL },
	OVERWRITE,
	{ 0 }
};
static const struct method_option resume_options[] = { PASSPHRASE, HEADER_BACKUP, WIPE, { 0 } };
static const struct method_option change_key_options[] = { NEW_KEY, HEADER_BACKUP, { 0 } };
static const struct method_option add_key_options[] = { NEW_KEY, { "new-token", "s", "--new-token", NULL }, HEADER_BACKUP, { 0 } };
static const struct method_option remove_key_options[] = { HEADER_BACKUP, { "discard-data", "s", "--discard-data", "destroy" }, { 0 } };
static const struct method_option resize_options[] = {
	{ "array", "b", "--array", NULL }, { "size", "s", "--size", NULL }, { "key", "h", KEY_ON_STDIN, NULL }, { 0 }
};
static const struct method_option scrub_options[] = { { "repair", "b", "--repair", "manage" }, { 0 } };
static const struct method_option replace_options[] = { ROLE, LABEL, OVERWRITE, DISCARD_REDUNDANCY, { 0 } };
static const struct method_option replace_cache_options[] = { LABEL, OVERWRITE, { 0 } };
static const struct method_option add_ssd_options[] = { ROLE, LABEL, SPARE, OVERWRITE, { 0 } };
static const struct method_option add_disk_options[] = { SPARE, { "reshape", "b", "--reshape", NULL }, OVERWRITE, { 0 } };
static const struct method_option drop_options[] = { DISCARD_REDUNDANCY, { 0 } };
static const struct method_option snapshot_options[] = { { "size", "s", "--size", NULL }, OVERWRITE, { 0 } };
static const struct method_option cache_add_options[] = { ROLE, LABEL, SPARE, { "new-place", "b", "--new-place", NULL }, OVERWRITE, { 0 } };
static const struct method_option detach_options[] = {
	{ "flush", "b", "--flush", NULL }, { "discard-dirty", "s", "--discard-dirty", "destroy" }, { 0 }
};

#define P(name)			   SD_BUS_PARAM(name)
#define ARGUMENTS(types, list, ...) .signature = types, .names = list, .form = { __VA_ARGS__ }
#define JOB(kind)		   .job = kind
#define CAN_BE_CUT_OFF		   .cancel = true

const struct method methods[] = {
	{ OBJECT_STACK, "Start", "start", .words = { "start" } },
	{ OBJECT_STACK, "ResumeCreation", "manage", .words = { "create", "--resume" }, ARGUMENTS("a{sv}", P(options), ""),
	  .options = resume_options, JOB("create"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "Stop", "stop", .words = { "stop" } },
	{ OBJECT_STACK, "Lock", "lock", .words = { "lock" } },
	{ OBJECT_STACK, "Unlock", "unlock", .words = { "unlock" } },
	{ OBJECT_STACK, "UnlockWithKey", "unlock", .words = { "unlock" }, ARGUMENTS("h", P(key), KEY_ON_STDIN) },
	{ OBJECT_STACK, "ChangeKey", "manage", .words = { "passwd", "--change" }, ARGUMENTS("ha{sv}", P(keys) P(options), LINES_ON_STDIN, ""),
	  .options = change_key_options },
	{ OBJECT_STACK, "AddKey", "manage", .words = { "passwd", "--add" }, ARGUMENTS("ha{sv}", P(keys) P(options), LINES_ON_STDIN, ""),
	  .options = add_key_options },
	{ OBJECT_STACK, "RemoveKey", "manage", .words = { "passwd" }, ARGUMENTS("sha{sv}", P(slot) P(key) P(options), "--remove", LINES_ON_STDIN, ""),
	  .options = remove_key_options },
	{ OBJECT_STACK, "BackupHeader", "manage", .words = { "passwd", "--backup" }, ARGUMENTS("s", P(file), "?--header-backup") },
	{ OBJECT_STACK, "Rename", "configure", .words = { "rename" }, ARGUMENTS("s", P(name), "") },
	{ OBJECT_STACK, "Set", "manage", .words = { "set" }, ARGUMENTS("a{sv}", P(options), ""), .options = set_options },
	{ OBJECT_STACK, "Resize", "manage", .words = { "resize", "--yes" }, ARGUMENTS("a{sv}", P(options), ""),
	  .options = resize_options, JOB("resize"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "Scrub", "maintain", .words = { "scrub" }, ARGUMENTS("a{sv}", P(options), ""), .options = scrub_options },
	{ OBJECT_STACK, "StopScrub", "maintain", .words = { "scrub", "--stop" } },
	{ OBJECT_STACK, "Replace", "manage", .words = { "replace", "--yes" }, ARGUMENTS("ssa{sv}", P(old) P(new) P(options), "", "", ""),
	  .options = replace_options, JOB("replace"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "ReplaceCache", "manage", .words = { "replace", "--yes" }, ARGUMENTS("asa{sv}", P(cache) P(options), "cache", ""),
	  .options = replace_cache_options, JOB("replace"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "AddSSD", "manage", .words = { "add", "--yes" }, ARGUMENTS("sa{sv}", P(ssd) P(options), "--cache", ""),
	  .options = add_ssd_options, JOB("add"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "AddDisk", "manage", .words = { "add", "--yes" }, ARGUMENTS("sa{sv}", P(disk) P(options), "--backing", ""),
	  .options = add_disk_options, JOB("add"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "Drop", "manage", .words = { "drop", "--yes" }, ARGUMENTS("sa{sv}", P(device) P(options), "", ""),
	  .options = drop_options, JOB("drop"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "Remove", "destroy", .words = { "remove" }, ARGUMENTS("s", P(discard_data), "?--discard-data"), JOB("remove") },
	{ OBJECT_STACK, "CreateSnapshot", "manage", .words = { "snapshot", "create", "--yes" }, ARGUMENTS("ssa{sv}", P(name) P(store) P(options), "@", "?--store", ""),
	  .options = snapshot_options, JOB("snapshot"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "RemoveSnapshot", "destroy", .words = { "snapshot", "remove" },
	  ARGUMENTS("s", P(name), "@"), JOB("snapshot"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "RefreshPins", "maintain", .words = { "pin", "--refresh" }, JOB("pin"), CAN_BE_CUT_OFF },
	{ OBJECT_STACK, "Upgrade", "manage", .words = { "upgrade" } },
	{ OBJECT_CACHE, "Start", "start", .words = { "cache", "start" } },
	{ OBJECT_CACHE, "Stop", "stop", .words = { "cache", "stop" } },
	{ OBJECT_CACHE, "Scrub", "maintain", .words = { "cache", "scrub" } },
	{ OBJECT_CACHE, "StopScrub", "maintain", .words = { "cache", "scrub", "--stop" } },
	{ OBJECT_CACHE, "AddSSD", "manage", .words = { "cache", "add", "--yes" }, ARGUMENTS("sa{sv}", P(ssd) P(options), "", ""),
	  .options = cache_add_options, JOB("add"), CAN_BE_CUT_OFF },
	{ OBJECT_CACHE, "ReplaceSSD", "manage", .words = { "cache", "replace", "--yes" }, ARGUMENTS("ssa{sv}", P(old) P(new) P(options), "", "", ""),
	  .options = add_ssd_options, JOB("replace"), CAN_BE_CUT_OFF },
	{ OBJECT_CACHE, "RemoveSSD", "manage", .words = { "cache", "remove" }, ARGUMENTS("s", P(ssd), ""), JOB("drop"), CAN_BE_CUT_OFF },
	{ OBJECT_CACHE, "Resize", "manage", .words = { "cache", "resize" } },
	{ OBJECT_CACHE, "SetLabel", "configure", .words = { "cache", "label" }, ARGUMENTS("ss", P(ssd) P(label), "", "") },
	{ OBJECT_CACHE, "SetOption", "configure", .words = { "cache", "set" }, ARGUMENTS("ss", P(key) P(value), "", "=") },
	{ OBJECT_VOLUME, "Start", "start", .words = { "volume", "start" } },
	{ OBJECT_VOLUME, "Stop", "stop", .words = { "volume", "stop" } },
	{ OBJECT_VOLUME, "Flush", "maintain", .words = { "volume", "flush" } },
	{ OBJECT_VOLUME, "StopFlush", "maintain", .words = { "volume", "flush", "--stop" } },
	{ OBJECT_VOLUME, "Attach", "manage", .words = { "volume", "attach" }, ARGUMENTS("s", P(cache), "--cache") },
	{ OBJECT_VOLUME, "Detach", "manage", .words = { "volume", "detach" }, ARGUMENTS("a{sv}", P(options), ""),
	  .options = detach_options, JOB("detach"), CAN_BE_CUT_OFF },
	{ OBJECT_VOLUME, "Resize", "manage", .words = { "volume", "resize" } },
	{ OBJECT_VOLUME, "SetOption", "configure", .words = { "volume", "set" }, ARGUMENTS("ss", P(key) P(value), "", "=") },
	{ OBJECT_JOB, "Cancel", "maintain", .words = { NULL } },
	{ OBJECT_JOB, "Pause", "maintain", .words = { NULL } },
	{ OBJECT_JOB, "Resume", "maintain", .words = { NULL } },
	{ METHOD_OF_MANAGER, "Refresh", "refresh", .words = { NULL } },
	{ METHOD_OF_MANAGER, "Create", "manage", .words = { "create", "--yes" },
	  ARGUMENTS("sasasa{sv}", P(name) P(backing) P(cache) P(options), "", "--backing", "--cache", ""), .options = create_options, JOB("create"), CAN_BE_CUT_OFF },
	{ METHOD_OF_MANAGER, "Pin", "maintain", .words = { "pin" }, ARGUMENTS("as", P(files), ""), JOB("pin"), CAN_BE_CUT_OFF },
	{ METHOD_OF_MANAGER, "Unpin", "maintain", .words = { "unpin" }, ARGUMENTS("as", P(files), ""), JOB("pin"), CAN_BE_CUT_OFF },
	{ 0 },
};

/* ------------------------------------------------------------------ words */

struct words {
	char **word;
	size_t number;
};

/* Takes the text. */
static void put(struct words *words, char *text)
{
	words->word = must_allocate(realloc(words->word, (words->number + 2) * sizeof(*words->word)));
	words->word[words->number++] = text;
	words->word[words->number] = NULL;
}

static void join(char **word, const char *between, const char *text)
{
	char *longer = must_print("%s%s%s", *word, between, text);

	free(*word);
	*word = longer;
}

static void words_free(struct words *words)
{
	for (size_t i = 0; i < words->number; i++)
		free(words->word[i]);
	free(words->word);
	*words = (struct words){ 0 };
}

/* Behind those of `first`, which takes them. */
static void put_all(struct words *first, struct words *then)
{
	for (size_t i = 0; i < then->number; i++)
		put(first, then->word[i]);
	free(then->word);
	*then = (struct words){ 0 };
}

void command_free(struct command *command)
{
	struct words words = { command->words, command->number };

	words_free(&words);
	if (command->in >= 0)
		close(command->in);
	*command = (struct command){ .in = -1 };
}

/* ------------------------------------------------------------------ arguments */

/* While they are read. */
struct reading {
	sd_bus_message *call;
	const struct method *method;
	struct command *command;
	struct words options, others;
	char *object; /* the UUID; NULL: there is none */
	size_t bytes; /* of the texts that were read */
	sd_bus_error *error;
};

static int usage(struct reading *r, const char *text, const char *name)
{
	return sd_bus_error_setf(r->error, BUS_NAME ".Error.Usage", "%s: %s%s", r->method->member, name, text);
}

/* What becomes words is kept while somebody types a password, and is to be no more than a command line takes. */
static int read_text(struct reading *r, const char **text)
{
	int result = sd_bus_message_read_basic(r->call, 's', text);

	if (result <= 0)
		return result;
	r->bytes += strlen(*text) + 1;
	if (r->bytes <= METHOD_TEXTS_MAX)
		return result;
	return sd_bus_error_setf(r->error, BUS_NAME ".Error.TooLarge", "%s: its arguments are more than %d KiB together",
				 r->method->member, METHOD_TEXTS_MAX / 1024);
}

/* The command opens it anew, as root: nothing that the caller could not open for reading himself (O_PATH asks for no right at all). */
static bool is_readable(int file)
{
	int flags = fcntl(file, F_GETFL);

	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_WRONLY;
}

static int take_descriptor(struct reading *r, const char *word)
{
	int file, result = sd_bus_message_read_basic(r->call, 'h', &file);

	if (result < 0)
		return result;
	if (r->command->in >= 0)
		return usage(r, " is given twice", "a key");
	if (!is_readable(file))
		return usage(r, " is not open for reading; give a pipe or a memfd", "a key");
	r->command->in = fcntl(file, F_DUPFD_CLOEXEC, 3);
	if (r->command->in < 0)
		return sd_bus_error_set_errnof(r->error, errno, "%s: the descriptor of the key: %m", r->method->member);
	if (word)
		put(&r->options, must_print("%s", word));
	return 0;
}

static int take_text(struct reading *r, const char *form)
{
	const char *text;
	int result = read_text(r, &text);

	if (result < 0)
		return result;
	if (*form == '=' && r->others.number)
		join(&r->others.word[r->others.number - 1], "=", text);
	else if (*form == '@')
		join(&r->object, "@", text);
	else if (*form == '?' && *text)
		put(&r->options, must_print("%s=%s", form + 1, text));
	else if (*form == '-')
		put(&r->options, must_print("%s=%s", form, text));
	else if (*form != '?')
		put(&r->others, must_print("%s", text));
	return 0;
}

static int take_texts(struct reading *r, const char *form)
{
	const char *text;
	bool options = *form == '-';
	int result = sd_bus_message_enter_container(r->call, 'a', "s");

	if (result >= 0 && *form && !options)
		put(&r->others, must_print("%s", form));
	while (result >= 0 && (result = read_text(r, &text)) > 0) {
		if (r->others.number + r->options.number >= WORDS_MAX)
			return usage(r, " are more words than fit", "these");
		if (options)
			put(&r->options, must_print("%s=%s", form, text));
		else
			put(&r->others, must_print("%s", text));
	}
	return result < 0 ? result : sd_bus_message_exit_container(r->call);
}

static const char *type_in_words(const char *type)
{
	switch (*type) {
	case 'b':
		return ": is to be a boolean";
	case 'h':
		return ": is to be a file descriptor";
	case 'a':
		return ": is to be an array of strings";
	default:
		return ": is to be a string";
	}
}

static int take_option(struct reading *r, const char *name)
{
	const struct method_option *o = r->method->options;
	const char *text;
	int result, yes;

	while (o->name && strcmp(o->name, name))
		o++;
	if (!o->name)
		return usage(r, ": no such option", name);
	result = sd_bus_message_enter_container(r->call, 'v', o->type);
	if (result < 0)
		return usage(r, type_in_words(o->type), name);
	yes = 1;
	switch (*o->type) {
	case 'h':
		result = take_descriptor(r, o->word);
		break;
	case 'a':
		result = take_texts(r, o->word);
		break;
	case 'b':
		result = sd_bus_message_read_basic(r->call, 'b', &yes);
		if (result >= 0 && yes)
			put(&r->options, must_print("%s", o->word));
		break;
	default:
		result = read_text(r, &text);
		if (result >= 0)
			put(&r->options, must_print("%s=%s", o->word, text));
	}
	/* what loses something is never had by an option that asks for less */
	if (result >= 0 && yes && o->action && strcmp(r->command->action, "destroy"))
		r->command->action = o->action;
	return result < 0 ? result : sd_bus_message_exit_container(r->call);
}

static int take_options(struct reading *r)
{
	const char *name;
	int result = sd_bus_message_enter_container(r->call, 'a', "{sv}");

	while (result >= 0 && (result = sd_bus_message_enter_container(r->call, 'e', "sv")) > 0) {
		result = read_text(r, &name);
		result = result < 0 ? result : take_option(r, name);
		result = result < 0 ? result : sd_bus_message_exit_container(r->call);
	}
	return result < 0 ? result : sd_bus_message_exit_container(r->call);
}

static int take_arguments(struct reading *r)
{
	const char *at = r->method->signature;
	int result = 0;

	for (size_t i = 0; result >= 0 && at && *at; i++) {
		const char *form = r->method->form[i];

		if (*at == 'h')
			result = take_descriptor(r, form);
		else if (*at == 's')
			result = take_text(r, form);
		else if (!strncmp(at, "as", 2))
			result = take_texts(r, form);
		else
			result = take_options(r);
		at += *at != 'a' ? 1 : at[1] == 's' ? 2 : strlen("a{sv}");
	}
	return result;
}

/* What a job runs for this method, it has with itself. */
static void take_words_of_job(struct words *words, const struct object *job, const char *member)
{
	const char *property = !strcmp(member, "Cancel") ? "cancel" : !strcmp(member, "Pause") ? "pause" : "resume";
	char *copy = must_print("%s", object_value(job, property)), *rest = copy, *line;

	while (*copy && (line = strsep(&rest, "\n")))
		put(words, must_print("%s", line));
	free(copy);
}

int method_command(const struct method *method, const struct object *object, sd_bus_message *call, struct command *command, sd_bus_error *error)
{
	struct reading r = { .call = call, .method = method, .command = command, .error = error };
	struct words words = { 0 };
	int result;

	*command = (struct command){ .in = -1, .action = method->action };
	if (object && object->kind == OBJECT_JOB)
		take_words_of_job(&words, object, method->member);
	else if (object)
		r.object = must_print("%s", object_value(object, "UUID"));
	result = take_arguments(&r);
	for (size_t i = 0; i < sizeof(method->words) / sizeof(method->words[0]) && method->words[i]; i++)
		put(&words, must_print("%s", method->words[i]));
	put_all(&words, &r.options);
	if (method->signature)
		put(&words, must_print("--"));
	if (r.object)
		put(&words, r.object);
	put_all(&words, &r.others);
	command->words = words.word;
	command->number = words.number;
	if (result < 0)
		command_free(command);
	return result < 0 ? result : 0;
}
