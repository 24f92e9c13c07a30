// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder set: facts of a stack that create was told, and that no other verb changes: where it is mounted, and whether a boot waits for that, its key
 * file, class and mode of its volume, the label of its disks, where stores of its snapshots come from.
 *
 * What can be refused is checked first: that a key file opens the volume, by the LUKS header, and a class list, by the kernel; of a stack that is
 * stopped the volume is started for that (stack_lend.h).  Then it is unmounted where it is mounted elsewhere from now on, the description is stored, in
 * all superblocks, and what follows from it is set: fstab, the mount.  Cut off in between, the same command goes on: it does not ask what is done already.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cow.h"
#include "disks.h"
#include "fstab.h"
#include "pins.h"
#include "snapshot_space.h"
#include "stack_layers.h"
#include "stack_lend.h"
#include "stack_paths.h"
#include "stack_room.h"
#include "stack_steps.h"
#include "stack_store.h"
#include "stack_words.h"
#include "stacks.h"
#include "turn.h"
#include "verbs.h"

struct set_request {
	const char *name, *mount, *essential, *class, *keyfile, *label, *mode, *space;
	bool dry_run;
};

struct setting {
	const struct set_request *request;
	struct stack was, stack;
	struct lent lent;
	bool here; /* what the filesystem lies on runs */
	bool mounted; /* where its description had it */
	bool placed; /* where it is to be */
	bool linear; /* without the module */
	char *elsewhere; /* where somebody mounted it by hand, and it stays; NULL: nowhere */
};

static bool is_none(const char *word)
{
	return !strcmp(word, "none");
}

/* ------------------------------------------------------------------ the words */

/* As far as no stack is needed to see it. */
static int check_words(const struct set_request *r)
{
	struct stack ignored = { 0 };

	if (!r->mount && !r->essential && !r->class && !r->keyfile && !r->label && !r->mode && !r->space)
		return complain(LARDER_USAGE, "%s: nothing is said that is to change; --mount, --essential, --class, --keyfile, --backing-label, --mode, --snapshot-space", r->name);
	if (r->essential && strcmp(r->essential, "yes") && strcmp(r->essential, "no"))
		return complain(LARDER_USAGE, "--essential: '%s' is neither yes nor no", r->essential);
	if (r->mount && is_none(r->mount) && r->essential)
		return complain(LARDER_USAGE, "--essential: is for a mount, and --mount none takes that away");
	if (r->mount && !is_none(r->mount) && stack_parse_mount(&ignored, r->mount))
		return LARDER_USAGE;
	if (r->class && stack_parse_class(&ignored, r->class))
		return LARDER_USAGE;
	if (r->label && !is_none(r->label) && stack_parse_label(&ignored, r->label))
		return LARDER_USAGE;
	if (r->space && !is_none(r->space) && !space_name_valid(r->space))
		return complain(LARDER_USAGE, "--snapshot-space: '%s' is not " SPACE_NAME_WORDS, r->space);
	return r->mode ? stack_parse_mode(r->mode) : LARDER_DONE;
}

/* What larder pin has put into the list stays in front of it. */
static int parse_class(struct stack *stack, const char *word)
{
	struct ranges pins, others;
	char *list;
	int result;

	class_pins(word, &others);
	class_pins(stack->class, &pins);
	list = class_with_pins(word, &pins);
	if (others.number)
		result = complain(LARDER_USAGE, "--class: rules lba-A-B:pin-%u at the beginning of a list are those of larder pin, which puts them there itself; leave them out",
				  PIN_PERCENT);
	else
		result = stack_parse_class(stack, list);
	if (!result && !strcmp(list, "default"))
		*stack->class = 0;
	free(list);
	ranges_free(&pins);
	ranges_free(&others);
	return result;
}

static int parse(struct setting *s)
{
	const struct set_request *r = s->request;
	struct stack *stack = &s->stack;
	int result = LARDER_DONE;

	if (r->mount && !*stack->fs)
		return complain(LARDER_USAGE, "%s: --mount: the stack has no filesystem of its own (create --mkfs); what is on it goes into fstab by hand", stack->name);
	if (r->mount && is_none(r->mount))
		*stack->mount = 0;
	else if (r->mount)
		result = stack_parse_mount(stack, r->mount);
	if (!result && r->essential && !*stack->mount)
		return complain(LARDER_USAGE, "%s: --essential: it is mounted nowhere; --mount DIR says where", stack->name);
	if (!result && r->keyfile && !stack->encrypted)
		return complain(LARDER_USAGE, "%s: --keyfile: is not encrypted", stack->name);
	if (r->keyfile && is_none(r->keyfile))
		*stack->keyfile = 0;
	else if (!result && r->keyfile)
		result = stack_parse_keyfile(stack, "--keyfile", r->keyfile);
	result = result ? result : stack_check_keyfile(stack, r->keyfile ? "--keyfile" : "--mount");
	if (!result && r->class)
		result = parse_class(stack, r->class);
	if (r->label && is_none(r->label))
		*stack->disks = 0;
	else if (!result && r->label)
		result = stack_parse_label(stack, r->label);
	if (!result && r->space)
		snprintf(stack->space, sizeof(stack->space), "%s", is_none(r->space) ? "" : r->space);
	return result;
}

/* ------------------------------------------------------------------ what can be refused */

static int look(struct setting *s)
{
	struct stacks stacks;
	struct layers layers;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	layers_find(&stacks, &s->was, &layers);
	s->here = *layers.top;
	s->mounted = *s->was.mount && !strcmp(layers.mounted, s->was.mount);
	s->placed = *s->stack.mount && !strcmp(layers.mounted, s->stack.mount);
	s->linear = layers.linear;
	if (*layers.mounted && !s->mounted && !s->placed)
		s->elsewhere = must_print("%s", layers.mounted);
	layers_free(&layers);
	stacks_free(&stacks);
	return LARDER_DONE;
}

static int check(const struct setting *s)
{
	const struct set_request *r = s->request;
	const struct stack *stack = &s->stack;
	const char *why = stack_lacks_room(stack, &s->was);

	if (why)
		return complain(LARDER_FAILED, "%s: %s; shorter paths, or a shorter class", stack->name, why);
	if (stack_check_readable(stack))
		return LARDER_FAILED;
	if (r->mode && s->lent.volume)
		return complain(LARDER_BUSY,
				"%s: --mode: the volume runs, and the mode of its next starts is in the superblock, which is the kernel's until it stops; larder stop %s "
				"first; larder volume set %s mode=%s is for now alone", stack->name, stack->name, stack->name, r->mode);
	if (r->class && s->linear)
		return complain(LARDER_FAILED, "%s: --class: it runs without larder's module, which knows what a class is; start it with that", stack->name);
	if (r->essential && !r->mount && !fstab_has(stack->uuid))
		return complain(LARDER_NOT_FOUND, "%s: --essential: fstab has no line of the stack; --mount %s puts one there", stack->name, stack->mount);
	if (*stack->space && strcmp(stack->space, s->was.space) && space_check(stack->space))
		return LARDER_NOT_FOUND;
	if (!r->mount || s->placed)
		return LARDER_DONE;
	return stack_check_backup_seen(stack) ? LARDER_USAGE : stack_check_mount(stack);
}

/* Where nobody could type the key that it is opened by from now on, a boot would ask in vain. */
static int check_slots(const struct stack *stack, const char *node)
{
	struct luks_slot slots[LUKS_SLOTS];
	unsigned number, others = 0;
	int result = luks_slots(node, slots, &number);

	for (unsigned i = 0; !result && i < number; i++)
		others += !slots[i].unbound && (slots[i].kind != LUKS_KEYFILE || *slots[i].token);
	if (!result && !others)
		result = complain(LARDER_UNSAFE, "%s: --keyfile none: it has no key but such from files, and a boot would ask for a passphrase; larder passwd %s --add first",
				  stack->name, stack->name);
	return result;
}

static int check_key(const struct stack *stack)
{
	char *node = lend_node(stack);
	struct secret key = { 0 };
	bool fits;
	int result = node ? LARDER_DONE : LARDER_NOT_FOUND;

	if (!result && !*stack->keyfile) {
		result = check_slots(stack, node);
	} else if (!result) {
		result = secret_read(stack->keyfile, stack->name, false, &key);
		result = result ? result : luks_fits(node, &key, &fits);
		if (!result && !fits)
			result = complain(LARDER_NOT_FOUND, "%s: --keyfile: %s: fits none of its key slots; nothing was changed; larder passwd %s --add --new-keyfile %s first",
					  stack->name, stack->keyfile, stack->name, stack->keyfile);
		secret_free(&key);
	}
	free(node);
	return result;
}

/* ------------------------------------------------------------------ the change */

/* Of the volume that runs; *before: what it was, to be freed.  The kernel says what is wrong with it. */
static int send_class(const struct stack *stack, const char *list, char **before)
{
	const struct mapped *volume;
	struct stacks stacks;
	char *message = must_print("set class %s", *list ? list : "default");
	int result = stacks_scan(&stacks);

	volume = result ? NULL : stack_volume(&stacks, stack);
	if (!result && !volume)
		result = complain(LARDER_NOT_FOUND, "%s: its volume does not run", stack->name);
	if (!result && before)
		*before = status_value(volume->status, "class");
	result = result ? result : mapped_message(volume->target, message);
	stacks_free(&stacks);
	free(message);
	return result;
}

/* With --class without the list that is stored: the kernel may refuse that by now. */
static int lend(struct setting *s)
{
	struct stack stack = s->was;

	if (s->request->class)
		*stack.class = 0;
	return lend_start(&stack, &s->lent);
}

static bool is_remote(const struct setting *s)
{
	const struct found *found;
	struct stacks stacks;
	struct cow cow;
	char uuid[UUID_TEXT];
	bool remote = false;

	if (s->here)
		return stack_is_remote(&s->stack);
	if (stacks_scan(&stacks))
		return false;
	if (!stack_find(&stacks, uuid_text(s->stack.uuid, uuid), &found)) {
		remote = (found->volume && device_is_remote(found->volume->path)) || (found->cache && device_is_remote(found->cache->path));
		cow_find(&cow, s->stack.name, &s->stack, &stacks.members);
		for (unsigned i = 0; i < cow.number; i++)
			remote |= cow.snapshot[i].store && device_is_remote(cow.snapshot[i].store);
	}
	stacks_free(&stacks);
	return remote;
}

static int set_fstab(const struct setting *s)
{
	const struct set_request *r = s->request;
	const struct stack *stack = &s->stack;
	bool essential = r->essential && !strcmp(r->essential, "yes");
	char *node;
	int result = LARDER_DONE;

	if (r->mount && !*stack->mount)
		return fstab_take_out(stack->uuid, s->was.mount);
	/* of one that was mounted nowhere a line for another directory is somebody's copy, for what else is in it */
	if (r->mount && (!fstab_has(stack->uuid) || (!*s->was.mount && !fstab_mounts(stack->uuid, stack->mount)))) {
		node = stack_top_node(stack);
		result = fstab_add(stack->uuid, node, stack->mount, stack->fs,
				   (is_remote(s) ? FSTAB_REMOTE : 0) | (essential ? FSTAB_ESSENTIAL : 0));
		free(node);
		return result;
	}
	if (r->mount)
		result = fstab_move_mount(stack->uuid, *s->was.mount ? s->was.mount : stack->mount, stack->mount);
	return result || !r->essential ? result : fstab_set_essential(stack->uuid, stack->mount, essential);
}

/* A list that was set makes the kernel forget what is pinned. */
static void tell_of_pins(const struct stack *stack)
{
	struct ranges pins;

	class_pins(stack->class, &pins);
	if (pins.number)
		remark("%s: what is pinned stays on the SSDs once it is read again; larder pin --refresh %s reads it", stack->name, stack->name);
	ranges_free(&pins);
}

/* With the description of its volume, in one write. */
static int set_mode(const struct stack *stack, const char *mode)
{
	char uuid[UUID_TEXT], *pair = must_print("mode=%s", mode), *words[] = { "set", uuid, pair, "--persist", NULL };
	uint8_t part[16];
	int result;

	stack_part(stack, "volume", part);
	uuid_text(part, uuid);
	result = volume_set(4, words);
	free(pair);
	return result;
}

static bool is_described(const struct setting *s)
{
	const struct stack *a = &s->was, *b = &s->stack;

	return !strcmp(a->mount, b->mount) && !strcmp(a->keyfile, b->keyfile) && !strcmp(a->class, b->class) && !strcmp(a->disks, b->disks) &&
	       !strcmp(a->space, b->space);
}

static int store(struct setting *s)
{
	int result = is_described(s) ? LARDER_DONE : stack_store(&s->stack);

	return result || !s->request->mode ? result : set_mode(&s->stack, s->request->mode);
}

/* On the layers that run, or are lent. */
static int change_running(struct setting *s, char **before)
{
	const struct set_request *r = s->request;
	int result = r->class || r->keyfile ? lend(s) : LARDER_DONE, after;

	if (!result && r->keyfile)
		result = check_key(&s->stack);
	if (!result && s->mounted && strcmp(s->was.mount, s->stack.mount)) {
		result = stop_mount(&s->was);
		/* others had their turn: what they have stored is not undone */
		result = result ? result : stack_check_same(&s->was);
	}
	if (!result && r->class)
		result = send_class(&s->stack, s->stack.class, before);
	after = lend_stop_volume(&s->was, &s->lent);
	/* what that has noted stays so when the rest is stored */
	s->stack.generation = s->was.generation;
	memcpy(s->stack.snapshot, s->was.snapshot, sizeof(s->stack.snapshot));
	return result ? result : after;
}

static int change(struct setting *s)
{
	const struct stack *stack = &s->stack;
	char *before = NULL;
	int result = change_running(s, &before);

	result = result ? result : store(s);
	if (result) {
		if (before && s->lent.volume)
			send_class(stack, before, NULL);
		if (s->mounted)
			start_mount(&s->was, true);
		free(before);
		return result;
	}
	free(before);
	result = set_fstab(s);
	if (!result && s->request->mount && s->here)
		result = start_mount(stack, true);
	if (result)
		remark("%s: its description is set, what follows from it is not; the same command once more goes on", stack->name);
	else
		printf("%s: is set\n", stack->name);
	if (!result && s->request->class && s->lent.volume)
		tell_of_pins(stack);
	return result;
}

/* ------------------------------------------------------------------ what will be done */

static void show(const char *what, const char *was, const char *is, const char *none)
{
	printf("  %s: %s", what, *is ? is : none);
	if (strcmp(was, is))
		printf(", was %s", *was ? was : none);
	putchar('\n');
}

static void show_plan(const struct setting *s)
{
	const struct set_request *r = s->request;

	printf("stack %s:\n", s->stack.name);
	if (!s->lent.volume && (r->class || r->keyfile))
		printf("  is stopped: array, cache and volume are started, and stopped again\n");
	if (r->mount) {
		show("mount", s->was.mount, s->stack.mount, "none");
		if (s->mounted && strcmp(s->was.mount, s->stack.mount))
			printf("  is unmounted from %s\n", s->was.mount);
		if (s->elsewhere)
			printf("  stays mounted on %s until it is unmounted there\n", s->elsewhere);
	}
	if (r->essential)
		printf("  essential: %s\n", r->essential);
	if (r->keyfile)
		show("keyfile", s->was.keyfile, s->stack.keyfile, "none");
	if (r->class)
		show("class", s->was.class, s->stack.class, "default");
	if (r->mode)
		show("mode", s->was.mode, r->mode, "none");
	if (r->label)
		show("backing-label", s->was.disks, s->stack.disks, "none");
	if (r->space)
		show("snapshot-space", s->was.space, s->stack.space, "none");
	fflush(stdout);
}

static int set(const struct set_request *request)
{
	struct setting s = { .request = request };
	int result = lend_load(request->name, request->dry_run, &s.was, &s.lent), after;

	s.stack = s.was;
	result = result ? result : parse(&s);
	result = result ? result : look(&s);
	result = result ? result : check(&s);
	if (!result) {
		show_plan(&s);
		if (request->dry_run)
			puts("dry run: nothing was written");
		else
			result = change(&s);
	}
	after = lend_return(&s.was, &s.lent);
	free(s.elsewhere);
	return result ? result : after;
}

int stack_set(int argc, char **argv)
{
	static const char usage[] = "larder set NAME [--mount DIR|none] [--essential yes|no] [--keyfile FILE|none] [--class CLASS] [--mode MODE] [--backing-label LABEL|none] [--snapshot-space GROUP|none] [--dry-run]";
	struct set_request request = { 0 };
	const struct argument arguments[] = {
		{ "mount", 0, ARGUMENT_TEXT, &request.mount, "DIR", "mount it there, now and at every boot; none: nowhere" },
		{ "essential", 0, ARGUMENT_TEXT, &request.essential, "yes|no", "whether each boot waits for that mount, however long it takes" },
		{ "keyfile", 0, ARGUMENT_TEXT, &request.keyfile, "FILE", "what opens it at a boot, which must be a key of it already; none: a passphrase is asked for" },
		{ "class", 0, ARGUMENT_TEXT, &request.class, "CLASS", "what is to be cached, now and from each start on: a preset, see docs/interface.md" },
		{ "mode", 'm', ARGUMENT_TEXT, &request.mode, "MODE", "writeback, writethrough, writearound: of a stopped stack, from each start on" },
		{ "backing-label", 0, ARGUMENT_TEXT, &request.label, "LABEL", "of its disks; none: they have none" },
		{ "snapshot-space", 0, ARGUMENT_TEXT, &request.space, "GROUP", "volume group of LVM whose free space is for stores of its snapshots; none: it has none" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only say what would be done" },
		ARGUMENTS_END
	};
	int first, result;

	secrets_protect();
	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	request.name = argv[first];
	result = check_words(&request);
	if (result)
		return result;
	mapped_init(false);
	turn_take();
	return set(&request);
}
