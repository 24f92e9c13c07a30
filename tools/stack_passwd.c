// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder passwd: the key slots of a stack's LUKS header: listed, added, changed, removed; and the backup of the header behind each change.
 *
 * The header is read and written through the volume, as the newest copy of it may be on the SSDs: of a stack that is stopped the layers below
 * LUKS are started for it, marked as locked so that nobody unlocks them, and stopped again.  All keys are asked for before that, and
 * before the lock is taken.
 *
 * Order: the header first, durably, then its backup.  In between the old backup has a key that is gone: luks_backup_is_current() tells, and
 * --list says it, with what to do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "dm.h"
#include "luks.h"
#include "running.h"
#include "stack_lend.h"
#include "stack_paths.h"
#include "stack_words.h"
#include "token.h"
#include "turn.h"
#include "verbs.h"

enum action {
	CHANGE,
	LIST,
	ADD,
	REMOVE,
	BACKUP,
};

struct passwd_request {
	const char *name, *keyfile, *new_keyfile, *new_token, *slot_text, *remove, *backup, *discard;
	struct token token; /* of new_token */
	bool list, add, change, backup_only, dry_run, yes;
	uint64_t iteration_ms;
	enum action action;
	int slot;
	struct report_options report;
};

static const struct field fields[] = {
	{ "slot", VALUE_NUMBER, "Slot", "number of the key slot" },
	{ "kind", VALUE_TEXT, "Kind", "passphrase, keyfile, tpm2, tang, the type of another token, or key: made by another program" },
	{ "token", VALUE_TEXT, "Token", "type of the token in the header that opens it: systemd-tpm2, clevis" },
	{ "state", VALUE_TEXT, "State", "active; last: no other one opens the volume; unbound: opens something else" },
	{ "pbkdf", VALUE_TEXT, "PBKDF", "how the key is made slow to guess" },
	{ "iterations", VALUE_NUMBER, "Iterations", "of the PBKDF" },
	{ "memory", VALUE_BYTES, "Memory", "of the PBKDF, for each guess" },
	{ "threads", VALUE_NUMBER, "Threads", "of the PBKDF" },
};

/* ------------------------------------------------------------------ the words */

static int parse_slot(const char *option, const char *text, int *slot)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || number >= LUKS_SLOTS)
		return complain(LARDER_USAGE, "--%s: '%s' is not a slot, 0 to %d; larder passwd NAME --list", option, text, LUKS_SLOTS - 1);
	*slot = (int)number;
	return LARDER_DONE;
}

static int parse_token(struct passwd_request *r)
{
	const char *why = token_parse(r->new_token, &r->token);

	if (r->action != ADD)
		return complain(LARDER_USAGE, "--new-token: goes with --add");
	if (r->new_keyfile || r->iteration_ms || r->slot_text)
		return complain(LARDER_USAGE, "--new-token: goes without --new-keyfile, --iter-time, --slot: key and slot are chosen by systemd-cryptenroll, or clevis");
	return why ? complain(LARDER_USAGE, "--new-token: '%s' %s", r->new_token, why) : LARDER_DONE;
}

static int parse(struct passwd_request *r)
{
	bool writes;
	int result;

	if (r->list + r->add + r->change + r->backup_only + !!r->remove > 1)
		return complain(LARDER_USAGE, "--list, --add, --change, --remove, --backup: one of them at a time");
	r->action = r->list ? LIST : r->add ? ADD : r->remove ? REMOVE : r->backup_only ? BACKUP : CHANGE;
	writes = r->action == ADD || r->action == CHANGE;
	r->slot = LUKS_ANY_SLOT;
	if (r->slot_text && !writes)
		return complain(LARDER_USAGE, "--slot: goes with --add or --change");
	if ((r->new_keyfile || r->iteration_ms) && !writes)
		return complain(LARDER_USAGE, "--new-keyfile, --iter-time: go with --add or --change");
	if (r->new_token && parse_token(r))
		return LARDER_USAGE;
	if (r->yes && !r->new_token)
		return complain(LARDER_USAGE, "--yes: goes with --new-token");
	if (stack_check_iteration(r->iteration_ms))
		return LARDER_USAGE;
	if (r->discard && r->action != REMOVE)
		return complain(LARDER_USAGE, "--discard-data: goes with --remove");
	if (r->action == LIST && (r->keyfile || r->backup))
		return complain(LARDER_USAGE, "--list: needs no key, and no --header-backup");
	if (r->backup && strcmp(r->backup, "none") && *r->backup != '/')
		return complain(LARDER_USAGE, "--header-backup: '%s' is not none, nor an absolute path", r->backup);
	if (r->action == BACKUP && r->backup && !strcmp(r->backup, "none"))
		return complain(LARDER_USAGE, "--backup: goes with --header-backup FILE, or alone");
	result = r->slot_text ? parse_slot("slot", r->slot_text, &r->slot) : LARDER_DONE;
	return result || !r->remove ? result : parse_slot("remove", r->remove, &r->slot);
}

/* "-": asked for. */
static const char *key_word(const char *word)
{
	return word && !strcmp(word, "-") ? "" : word;
}

/* The file that is to be replaced, to be freed; NULL: none.  A link stays one: the old keys are in what is behind it. */
static char *backup_path(const struct passwd_request *r, const struct stack *stack)
{
	char *path = r->action == LIST ? NULL : stack_backup_path(stack, r->backup), *real = path ? realpath(path, NULL) : NULL;

	if (real || (path && !r->backup && r->action != BACKUP && access(path, F_OK))) {
		free(path);
		path = real;
	}
	return path;
}

/* Before any key changes: the file that it replaces is overwritten, and could be the only backup of another header. */
static int check_backup(const struct passwd_request *r, const struct stack *stack)
{
	char *path = backup_path(r, stack);
	int result = path && (r->backup || r->action == BACKUP) ? stack_check_backup_place(stack, path) : LARDER_DONE;

	if (path && !result)
		result = stack_check_backup_file(stack, path);
	free(path);
	return result;
}

/* ------------------------------------------------------------------ list */

static const char *slot_kind(const struct luks_slot *slot)
{
	if (*slot->token)
		return *slot->pin ? slot->pin : !strcmp(slot->token, "systemd-tpm2") ? "tpm2" : slot->token;
	return slot->kind == LUKS_PASSPHRASE ? "passphrase" : slot->kind == LUKS_KEYFILE ? "keyfile" : "key";
}

static int list(const struct passwd_request *r, const struct stack *stack, const char *node)
{
	const struct field *sections[] = { fields };
	const size_t counts[] = { sizeof(fields) / sizeof(fields[0]) };
	struct luks_slot slots[LUKS_SLOTS];
	char *path = stack_backup_path(stack, NULL);
	unsigned number = 0, bound = 0;
	struct row row = { 0 };
	struct report *report;
	int result = luks_slots(node, slots, &number);

	report = result ? NULL : report_new("slots", sections, counts, 1, "slot,kind,state,pbkdf,iterations,memory,threads", &r->report, &result);
	for (unsigned i = 0; i < number; i++)
		bound += !slots[i].unbound;
	for (unsigned i = 0; report && i < number; i++) {
		const struct luks_slot *s = &slots[i];

		report_set(report, &row, "slot", "%d", s->number);
		report_set(report, &row, "kind", "%s", slot_kind(s));
		if (*s->token)
			report_set(report, &row, "token", "%s", s->token);
		report_set(report, &row, "state", "%s", s->unbound ? "unbound" : bound == 1 ? "last" : "active");
		report_set(report, &row, "pbkdf", "%s%s%s", s->pbkdf, *s->hash ? "-" : "", s->hash);
		report_set(report, &row, "iterations", "%u", s->iterations);
		if (s->memory_kib)
			report_set(report, &row, "memory", "%llu", (unsigned long long)s->memory_kib << 10);
		if (s->threads)
			report_set(report, &row, "threads", "%u", s->threads);
		report_add(report, &row);
	}
	if (report)
		result = report_print(report);
	if (!result && !access(path, F_OK) && !luks_backup_is_current(node, path))
		remark("%s: %s: is not of the header as it is now: a key that was removed since may still open the volume with it; "
		       "larder passwd %s --backup replaces it",
		       stack->name, path, stack->name);
	free(path);
	return result;
}

/* ------------------------------------------------------------------ changes */

/* Says what is lost with the last key; NULL in *old: it may go. */
static int check_last(const struct passwd_request *r, const struct stack *stack, const char *node, bool *last)
{
	struct luks_slot slots[LUKS_SLOTS];
	unsigned number, others = 0;
	bool there = false, unbound = false;
	char text[UUID_TEXT];
	uint8_t given[16];
	int result = luks_slots(node, slots, &number);

	*last = false;
	if (result)
		return result;
	for (unsigned i = 0; i < number; i++) {
		there |= slots[i].number == r->slot;
		unbound |= slots[i].number == r->slot && slots[i].unbound;
		others += slots[i].number != r->slot && !slots[i].unbound;
	}
	if (!there)
		return complain(LARDER_NOT_FOUND, "%s: slot %d: is empty; larder passwd %s --list", stack->name, r->slot, stack->name);
	*last = !others && !unbound;
	if (!*last)
		return r->discard ? complain(LARDER_USAGE, "%s: --discard-data: slot %d is not the last key", stack->name, r->slot) : LARDER_DONE;
	uuid_text(stack->uuid, text);
	if (!r->discard)
		return complain(LARDER_UNSAFE,
				"%s: slot %d: is the last key: without it all that is in the stack will be LOST once it is locked; only with --discard-data %s",
				stack->name, r->slot, text);
	if (uuid_parse(r->discard, given) || memcmp(given, stack->uuid, 16))
		return complain(LARDER_UNSAFE, "%s: --discard-data: the stack is %s, not %s; nothing was removed", stack->name, text, r->discard);
	return LARDER_DONE;
}

static int change(const struct passwd_request *r, const struct stack *stack, const char *node, const struct secret *old, const struct secret *new,
		  int *slot)
{
	const char *word = key_word(r->new_keyfile), *what = r->new_token ? r->new_token : word && *word ? "keyfile" : "passphrase";
	const struct luks_request request = { .device = node, .slot = r->slot, .iteration_ms = (unsigned)r->iteration_ms,
					      .old = old->bytes ? old : NULL, .new = new,
					      .kind = word && *word ? LUKS_KEYFILE : LUKS_PASSPHRASE };
	int result;

	*slot = r->slot;
	if (r->action == ADD) {
		result = r->new_token ? token_enrol(&r->token, node, old, slot) : luks_add(&request, slot);
		if (!result)
			printf("%s: slot %d: added, %s\n", stack->name, *slot, what);
	} else if (r->action == CHANGE) {
		result = luks_change(&request, slot);
		if (!result)
			printf("%s: slot %d: changed, %s\n", stack->name, *slot, what);
	} else {
		result = luks_remove(&request);
		if (!result)
			printf("%s: slot %d: removed\n", stack->name, *slot);
	}
	fflush(stdout);
	return result;
}

static int renew_backup(const struct passwd_request *r, const struct stack *stack, const char *node, int slot)
{
	bool revoked = r->action == CHANGE || r->action == REMOVE;
	char *path = backup_path(r, stack);
	int result = path ? luks_backup(node, path) : LARDER_DONE;

	if (path && !result)
		printf("%s: backup of the LUKS header: %s\n", stack->name, path);
	else if (path && revoked && !access(path, F_OK))
		remark("%s: %s: still opens the volume with the old key of slot %d; larder passwd %s --backup%s%s replaces it", stack->name, path,
		       slot, stack->name, r->backup ? " --header-backup " : "", r->backup ? r->backup : "");
	if (revoked)
		remark("%s: any %scopy of the LUKS header that was made before still opens the volume with the old key of slot %d: destroy it (shred -u), "
		       "or replace it (--backup --header-backup FILE); if a stranger may have it and the key, move the data to a new stack",
		       stack->name, path && !result ? "other " : "", slot);
	free(path);
	return result;
}

/* The new header may be on the SSDs alone: with quiet=on, or writeback=off, for days, and a stop leaves it there. */
static void check_written_back(const struct stack *stack, int slot)
{
	const struct mapped *volume;
	struct mapped_list list;
	uint8_t part[16];
	int result = mapped_scan(&list);

	stack_part(stack, "volume", part);
	volume = result ? NULL : running_by_uuid(&list, part, false);
	if (volume && status_number(volume->status, "dirty_sectors"))
		remark("%s: slot %d: until the new header is written back the disks may open by the old key without the SSDs, and one that is dropped or "
		       "replaced before does so from then on; with the stack started, larder volume flush %s --wait writes it back",
		       stack->name, slot, volume->name);
	mapped_list_free(&list);
}

/* What is read at a boot must open it. */
static void check_keyfile(const struct stack *stack, const char *node)
{
	struct secret key;
	bool fits;

	if (!*stack->keyfile || access(stack->keyfile, R_OK) || secret_read(stack->keyfile, stack->name, false, &key))
		return;
	if (!luks_fits(node, &key, &fits) && !fits)
		remark("%s: %s: which is to open the stack at a boot, fits no slot any more: a passphrase will be asked for; put a key that fits into it",
		       stack->name, stack->keyfile);
	secret_free(&key);
}

static int work(const struct passwd_request *r, const struct stack *stack, const char *node, const struct secret *old, const struct secret *new)
{
	int slot = r->slot, result = LARDER_DONE;
	bool last = false;

	if (r->action == LIST)
		return list(r, stack, node);
	result = check_backup(r, stack); /* who typed took his time */
	if (!result && r->action == REMOVE)
		result = check_last(r, stack, node, &last);
	if (!result && r->action != BACKUP)
		result = change(r, stack, node, last ? &(struct secret){ 0 } : old, new, &slot);
	if (result)
		return result;
	result = renew_backup(r, stack, node, slot);
	if (r->action == CHANGE || r->action == REMOVE)
		check_written_back(stack, slot);
	if (r->action == CHANGE || (r->action == REMOVE && !last))
		check_keyfile(stack, node);
	return result;
}

static int ask(const struct passwd_request *r, const struct stack *stack, struct secret *old, struct secret *new)
{
	int result = LARDER_DONE;

	/* a last key goes by --discard-data, without another one to show */
	if (r->action == ADD || r->action == CHANGE || (r->action == REMOVE && !r->discard))
		result = secret_read_old(r->keyfile, stack->keyfile, stack->name, old);
	if (!result && !r->new_token && (r->action == ADD || r->action == CHANGE))
		result = secret_read_new(key_word(r->new_keyfile), stack->name, new);
	return result;
}

static int say_plan(const struct passwd_request *r, const struct stack *stack, const struct lent *was)
{
	static const char *const words[] = { [CHANGE] = "change a key", [LIST] = "list the key slots", [ADD] = "add a key",
					     [REMOVE] = "remove a key", [BACKUP] = "write the backup" };
	char *path = backup_path(r, stack);

	if (!was->volume)
		printf("%s: is stopped: starts array, cache and volume, and stops them again\n", stack->name);
	printf("%s: %s%s%s", stack->name, words[r->action], r->new_token ? ", " : "", r->new_token ? r->new_token : "");
	if (r->slot != LUKS_ANY_SLOT)
		printf(", slot %d", r->slot);
	printf("; backup of the LUKS header: %s\ndry run: nothing was written\n", path ? path : "none");
	free(path);
	return LARDER_DONE;
}

/* What is to keep the key is here; a server is trusted by whoever asked for it, who sees by which key it signs. */
static int check_token(struct passwd_request *r)
{
	bool known = *r->token.thumbprint, held = turn_pause(); /* it may take its time; passwd() looks at the stack again */
	int result = token_check(&r->token, r->yes || r->dry_run);
	char *what;

	turn_resume(held);
	if (result || r->token.kind != TOKEN_TANG || known)
		return result;
	what = token_describe(&r->token);
	printf("%s: %s\n", r->name, what);
	free(what);
	return r->dry_run ? LARDER_DONE : turn_confirm(r->name, r->yes, "Trust it?  Who is behind it can open the stack with a copy of its header.");
}

/* What can be refused before anybody types. */
static int check_first(const struct passwd_request *r, const struct stack *stack, const struct lent *was)
{
	char *node = r->action == REMOVE && was->volume ? lend_node(stack) : NULL;
	int result = check_backup(r, stack);
	bool last;

	if (!result && node)
		result = check_last(r, stack, node, &last);
	free(node);
	return result;
}

static int on_volume(const struct passwd_request *r, const struct stack *stack, struct lent *was, const struct secret *old,
		     const struct secret *new)
{
	int result = lend_start(stack, was);
	char *node = result ? NULL : lend_node(stack);

	if (node)
		result = work(r, stack, node, old, new);
	else if (!result)
		result = LARDER_NOT_FOUND;
	free(node);
	return result;
}

static int load(const struct passwd_request *r, struct stack *stack, struct lent *was)
{
	int result = lend_load(r->name, r->dry_run, stack, was);

	return result || stack->encrypted ? result : complain(LARDER_USAGE, "%s: is not encrypted", stack->name);
}

/* Who is asked may end it (^C), and would leave what only the description was read from: it is given back before, and taken again behind that. */
static int give_back(const struct passwd_request *r, struct stack *stack, struct lent *was)
{
	bool asks = r->action == ADD || r->action == CHANGE || r->action == REMOVE;
	int result = asks && !r->dry_run ? lend_return(stack, was) : LARDER_DONE;

	if (asks && !r->dry_run)
		*was = (struct lent){ 0 };
	return result;
}

static int passwd(struct passwd_request *r)
{
	struct secret old = { 0 }, new = { 0 };
	struct lent was = { 0 };
	struct stack stack = { 0 };
	int result = load(r, &stack, &was), after;

	result = result ? result : check_first(r, &stack, &was);
	result = result ? result : give_back(r, &stack, &was);
	if (!result && r->new_token)
		result = check_token(r);
	if (!result && r->dry_run) {
		result = say_plan(r, &stack, &was);
	} else if (!result) {
		turn_give(); /* who types takes his time */
		result = ask(r, &stack, &old, &new);
		turn_take();
		after = load(r, &stack, &was); /* he may have started it meanwhile */
		result = result ? result : after;
		result = result ? result : on_volume(r, &stack, &was, &old, &new);
	}
	secret_free(&old);
	secret_free(&new);
	after = lend_return(&stack, &was);
	return result ? result : after;
}

int stack_passwd(int argc, char **argv)
{
	static const char usage[] =
		"larder passwd NAME [--change | --add | --remove SLOT | --list | --backup] [--slot N] [--keyfile FILE] [--new-keyfile FILE | --new-token TOKEN [--yes]] "
		"[--header-backup FILE|none] [--dry-run]";
	struct passwd_request request = { .report = { .units = { 'h', true } } };
	const struct argument arguments[] = {
		{ "change", 0, ARGUMENT_FLAG, &request.change, NULL, "give a slot another key (default)" },
		{ "add", 0, ARGUMENT_FLAG, &request.add, NULL, "a further key" },
		{ "remove", 0, ARGUMENT_TEXT, &request.remove, "SLOT", "the key of this slot opens nothing any more" },
		{ "list", 0, ARGUMENT_FLAG, &request.list, NULL, "show the key slots" },
		{ "backup", 0, ARGUMENT_FLAG, &request.backup_only, NULL, "only write the backup of the LUKS header anew" },
		{ "slot", 0, ARGUMENT_TEXT, &request.slot_text, "N", "which one to add or change (default: empty; that of the key)" },
		{ "keyfile", 0, ARGUMENT_TEXT, &request.keyfile, "FILE", "a key that opens it (default: as it was created); -: it is asked for" },
		{ "new-keyfile", 0, ARGUMENT_TEXT, &request.new_keyfile, "FILE", "the new key (default, or -: a passphrase is asked for)" },
		{ "new-token", 0, ARGUMENT_TEXT, &request.new_token, "TOKEN", "with --add: " TOKEN_GRAMMAR },
		{ "yes", 'y', ARGUMENT_FLAG, &request.yes, NULL, "don't ask whether the tang server is to be trusted" },
		{ "iter-time", 0, ARGUMENT_SIZE, &request.iteration_ms, "MS", "what a guess of the new one costs, as with cryptsetup" },
		{ "header-backup", 0, ARGUMENT_TEXT, &request.backup, "FILE",
		  "backup of the LUKS header to replace (default: that of create, if it is there), or none" },
		{ "discard-data", 0, ARGUMENT_TEXT, &request.discard, "UUID", "remove the last key: all in the stack with this UUID is LOST" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only say what would be done" },
		REPORT_ARGUMENTS(request.report),
		ARGUMENTS_END
	};
	int first, result;

	secrets_protect();
	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	request.name = argv[first];
	result = parse(&request);
	if (result)
		return result;
	mapped_init(false);
	turn_take();
	return passwd(&request);
}
