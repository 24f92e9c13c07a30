// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder create, before the first write: what will be made of the words and the devices, whether it can be, and how it is shown.
 *
 * Whatever can be refused is refused now, so that what fails later has failed for a reason that nobody could know.  The words have
 * been read (stack_words.c); devices are looked at by stack_claims.c, paths of this machine by stack_paths.c; the cache, names,
 * programs, and room in the descriptions here.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "integrity.h"
#include "program.h"
#include "running.h"
#include "set.h"
#include "stack_claims.h"
#include "stack_names.h"
#include "stack_paths.h"
#include "stack_plan.h"
#include "stack_room.h"
#include "stack_store.h"
#include "stacks.h"
#include "status.h"
#include "turn.h"

static const struct size_format human = { 'h', true };

/* ------------------------------------------------------------------ what it takes on this machine */

static int check_programs(const struct stack *stack, bool dry_run)
{
	char *mkfs = must_print("mkfs.%s", stack->fs);
	int result = LARDER_DONE;

	if (*stack->raid && !program_there("mdadm"))
		result = complain(LARDER_FAILED, "mdadm: is missing, and --raid needs it; apt install mdadm");
	else if (*stack->integrity && !dry_run && leg_check_kernel())
		result = LARDER_FAILED;
	else if (*stack->fs && !program_there(mkfs))
		result = complain(LARDER_FAILED, "%s: is missing; apt install %s", mkfs,
				  !strcmp(stack->fs, "ext4") ? "e2fsprogs" :
				  !strcmp(stack->fs, "xfs") ? "xfsprogs" :
							      "btrfs-progs");
	free(mkfs);
	return result;
}

int stack_check_token(struct making *m)
{
	const char *why = *m->stack.token ? token_parse(m->stack.token, &m->token) : NULL;
	bool held;
	int result;

	if (why)
		return complain(LARDER_FAILED, "%s: the key '%s' that its description has %s", m->stack.name, m->stack.token, why);
	if (!*m->stack.token)
		return LARDER_DONE;
	held = turn_pause(); /* a server may take its time */
	result = token_check(&m->token, m->request->yes || m->request->dry_run);
	turn_resume(held);
	if (result)
		return result;
	token_text(&m->token, m->stack.token);
	if (!*m->stack.token)
		return complain(LARDER_USAGE, "--encrypt: tang: the URL and the thumbprint of its key are too long");
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ the cache */

/* What its option `mirror` is: as it runs, else as each start sets it.  To be freed. */
static char *mirror_of(const struct stacks *stacks, const uint8_t cache[16], const char *stored)
{
	const struct mapped *running = running_by_uuid(&stacks->list, cache, true);
	char *mirror = running ? status_value(running->status, "mirror") : NULL;
	struct stored_option option;

	while (!mirror && stored_options_next(&stored, &option))
		if (stored_option_is(&option, "mirror"))
			mirror = must_print("%.*s", option.value_length, option.value);
	return mirror ? mirror : must_print("dirty");
}

/* On how many of so many SSDs dirty data lies. */
static uint32_t copies_of(const char *mirror, uint32_t ssds)
{
	uint32_t copies = !strcmp(mirror, "none") ? 1 : !strcmp(mirror, "dirty:3") ? 3 : 2;

	return copies < ssds ? copies : ssds;
}

/* A place that was drained stays one of the set; an SSD that has failed, or leaves it, keeps nothing for the new stack. */
static uint32_t count_active(const struct larder_table *table)
{
	uint32_t number = 0;

	for (uint32_t i = 0; i < LARDER_MAX_DEVICES; i++)
		number += le32toh(table->devices[i].state) == LARDER_DEVICE_ACTIVE;
	return number;
}

int stack_look_at_cache(const struct stacks *stacks, const uint8_t cache[16], struct tier_set *set, uint32_t *ssds, uint32_t *copies)
{
	struct larder_table *table = must_allocate(malloc(sizeof(*table)));
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	char uuid[UUID_TEXT], *mirror;
	int result = stack_list_read(cache, list);

	if (!result && !set_newest_table(&stacks->members, cache, table))
		result = complain(LARDER_FAILED, "%s: table: none of its SSDs has one that can be read", uuid_text(cache, uuid));
	if (!result) {
		tiers_of_table(table, list, set);
		*ssds = count_active(table);
		mirror = mirror_of(stacks, cache, list->options);
		*copies = copies_of(mirror, *ssds);
		free(mirror);
	}
	free(list);
	free(table);
	return result;
}

/* Of the cache that is named, all that a plan hangs on. */
static int look_at_cache(struct making *m, const struct stacks *stacks)
{
	const struct member *member;
	int result = stack_named_cache(stacks, m->request->caches.value[0], &member);

	if (result)
		return result;
	memcpy(m->stack.cache, member->sb.cache.cache_uuid, 16);
	label_text(member->sb.cache.label, m->cache_label);
	return stack_look_at_cache(stacks, m->stack.cache, &m->set, &m->ssds, &m->copies);
}

/* That which is made with the stack, or the one that is named; and what is asked of its SSDs. */
static int choose_cache(struct making *m, const struct stacks *stacks)
{
	const struct tiers_request *asked = &m->request->tiers;
	int result;

	if (m->stack.own_cache) {
		uuid_generate_random(m->stack.cache);
		m->ssds = (uint32_t)m->request->caches.number;
		m->copies = copies_of("dirty", m->ssds);
		strcpy(m->cache_label, m->request->name);
		result = tiers_new_set(&asked->labels, m->request->caches.number, &m->set);
	} else {
		result = look_at_cache(m, stacks);
	}
	if (!result && tiers_wanted(asked))
		result = tiers_plan(asked, m->request->mode, m->stack.own_cache, &m->set, &m->stack);
	return result;
}

static bool set_is_same(const struct tier_set *a, const struct tier_set *b)
{
	for (uint32_t i = 0; i < LARDER_MAX_DEVICES; i++)
		if (a->there[i] != b->there[i] || a->role[i] != b->role[i] || strcmp(a->label[i], b->label[i]))
			return false;
	return true;
}

/* One that is there is still what mode and tiers were chosen for, and was shown. */
static int check_same_cache(const struct making *m, const struct stacks *stacks)
{
	struct making *now;
	bool same;
	int result;

	if (m->stack.own_cache)
		return LARDER_DONE;
	now = must_allocate(calloc(1, sizeof(*now)));
	now->request = m->request;
	result = look_at_cache(now, stacks);
	same = !result && !memcmp(now->stack.cache, m->stack.cache, 16) && now->ssds == m->ssds && now->copies == m->copies &&
	       set_is_same(&now->set, &m->set);
	free(now);
	if (result || same)
		return result;
	return complain(LARDER_BUSY,
			"%s: the cache %s was changed meanwhile; nothing was written; begin anew, and see what would be made now",
			m->request->name, m->request->caches.value[0]);
}

void stack_show_risk(const char *mode, uint32_t ssds, uint32_t copies)
{
	if (copies > 1 || strcmp(mode, "writeback"))
		return;
	if (ssds < 2)
		printf("RISK: mode writeback on a single SSD: if it is lost, so is what was not yet written back\n");
	else
		printf("RISK: mode writeback on a cache with mirror=none: if an SSD is lost, so is what it had that was not yet written back\n");
}

static void choose_mode(struct making *m)
{
	const char *asked = *m->stack.mode ? m->stack.mode : m->request->mode; /* by --foreground, or in words */
	const char *mode = asked ? asked : m->copies > 1 ? "writeback" : "writethrough";

	memmove(m->stack.mode, mode, strlen(mode) + 1);
	stack_show_risk(m->stack.mode, m->ssds, m->copies);
	if (m->copies > 1 || asked)
		return;
	if (m->ssds < 2)
		printf("mode writethrough: there is one SSD, and in writeback its loss would be that of the newest data\n");
	else
		printf("mode writethrough: the cache has mirror=none, and in writeback the loss of an SSD would be that of the newest data\n");
}

/* ------------------------------------------------------------------ the description: its names, and room for it */

static int check_names(const struct making *m, const struct stacks *stacks)
{
	struct stack stack = m->stack;
	int result;

	do
		result = stack_check_names(stacks, &stack, stack.own_cache ? m->request->name : NULL, "NAME");
	while (!result && stack_next(&stack, &stack));
	return result;
}

/* Is that one of those that are made? */
static bool is_made(const struct making *m, const uint8_t uuid[16])
{
	struct stack stack = m->stack;
	bool made;

	do
		made = !memcmp(stack.uuid, uuid, 16);
	while (!made && stack_next(&stack, &stack));
	return made;
}

/* The others of a cache that is there are to have room to be removed, too, beside those that are made. */
static int check_room_of_others(const struct making *m, struct stack_list *list)
{
	struct stacks stacks;
	const char *whose;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	for (size_t i = 0; i < list->number; i++)
		if (!list->brief[i] && is_made(m, list->stack[i].uuid))
			list->stack[i].state = STACK_READY;
	whose = stack_list_lacks_room(&stacks, m->stack.cache, list);
	if (whose)
		result = complain(LARDER_FAILED,
				  "%s: with it the list of stacks on the SSDs of its cache, of 2 KiB, has no room to remove %s some day; a shorter name, or another cache",
				  m->request->name, whose);
	stacks_free(&stacks);
	return result;
}

/* Would it have room without its paths, and words? */
static bool fits_without_paths(const struct making *m, struct stack_list *list)
{
	uint8_t field[LARDER_STACK_SIZE];
	struct stack bare = m->stack;

	bare.state = STACK_REMOVING;
	bare = stack_listed(&bare);
	return stack_list_put(list, &bare) && !stack_list_encode(list, field);
}

/* Fits the longest that the description may become into both fields? */
static int check_room(const struct making *m)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	struct stack stack = m->stack, longest;
	const char *why = NULL, *remedy;
	int result = LARDER_DONE;

	memcpy(list->label, m->set.label, sizeof(list->label));
	if (!m->stack.own_cache)
		result = stack_list_read(m->stack.cache, list);
	do {
		longest = stack;
		longest.generation = 1000000;
		longest.step = STEP_MOUNT;
		longest.wiped = *longest.aead ? INT64_MAX : 0;
		/* of those that are made one behind the other two are in the making at most */
		longest.state = stack.next > 1 ? STACK_READY : STACK_REMOVING;
		if (!result && !stack_list_put(list, &longest))
			why = "its cache has the most stacks that it can have";
	} while (stack_next(&stack, &stack));
	if (!result && !why)
		why = stack_list_encode(list, field);
	if (!result && why) {
		remedy = m->request->separate ? "fewer disks at once, or " : fits_without_paths(m, list) ? "shorter paths, or " : "";
		result = complain(LARDER_FAILED, "%s: %s; %sanother cache", m->request->name, why, remedy);
	}
	if (!result && !m->stack.own_cache)
		result = check_room_of_others(m, list);
	free(list);
	return result;
}

static int check_readable(const struct making *m)
{
	struct stack stack = m->stack;
	int result;

	do
		result = stack_check_readable(&stack);
	while (!result && stack_next(&stack, &stack));
	return result;
}

/* ------------------------------------------------------------------ all of it */

int stack_plan(struct making *m)
{
	const struct stack_request *r = m->request;
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	result = result ? result : check_names(m, &stacks);
	result = result ? result : claims_check_twice(r, &m->stack);
	result = result ? result : choose_cache(m, &stacks);
	stacks_free(&stacks);
	result = result ? result : check_programs(&m->stack, r->dry_run);
	result = result ? result : stack_check_token(m);
	result = result ? result : stack_check_backup(&m->stack, r->header_backup, r->dry_run);
	result = result ? result : stack_check_mount(&m->stack);
	result = result ? result : claims_look(r, &m->stack, &m->claims);
	if (result)
		return result;
	choose_mode(m);
	result = check_room(m);
	return result ? result : check_readable(m);
}

int stack_plan_again(const struct making *m)
{
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	result = check_names(m, &stacks);
	result = result ? result : check_same_cache(m, &stacks);
	stacks_free(&stacks);
	result = result ? result : stack_check_backup(&m->stack, m->request->header_backup, false);
	result = result ? result : stack_check_mount(&m->stack);
	return result ? result : check_room(m);
}

/* ------------------------------------------------------------------ what will be done */

static void show_list(const struct argument_list *list)
{
	for (int i = 0; i < list->number; i++)
		printf("%s%s", i ? ", " : " ", list->value[i]);
}

static void show_disks(const char *what, const struct argument_list *disks)
{
	if (!disks->number)
		return;
	printf("  %s:", what);
	show_list(disks);
	printf(", to be overwritten\n");
}

static void show_tiers(const struct making *m)
{
	char text[TIER_TEXT];

	for (uint32_t i = 0; i < m->set.number; i++)
		if (m->set.there[i])
			printf("  SSD %u: label %s, role %s\n", i, *m->set.label[i] ? m->set.label[i] : "-",
			       role_text(m->set.role[i]));
	printf("  foreground: %s\n", tiers_foreground(&m->set, &m->stack, text));
	printf("  promote: %s\n", tiers_promote(&m->set, &m->stack, text));
	printf("  background: %s\n", tiers_background(&m->stack));
}

/* Of the smallest disk, which the others follow. */
static void show_integrity(const struct making *m)
{
	uint64_t least = m->claims.least;
	char a[SIZE_TEXT], b[SIZE_TEXT];

	printf("  integrity: %s of each 4 KiB by dm-integrity below each disk of the array, with a journal: they take %s of %s; each write goes to a disk twice; "
	       "what was there before is checked once the kernel has computed its sums, in the background\n",
	       m->stack.integrity, size_print(a, least - leg_capacity(least), &human), size_print(b, least, &human));
}

static void show_array(const struct making *m)
{
	const struct stack *s = &m->stack;
	const struct stack_request *r = m->request;
	bool volatile_cache = *s->integrity || md_has_volatile_cache(r->disks.value, (unsigned)r->disks.number) ||
			      md_has_volatile_cache(r->spares.value, (unsigned)r->spares.number);
	const char *keeps = md_consistency(s->raid, volatile_cache);

	printf("  array: RAID %s of %u disks, metadata 1.2%s%s\n", s->raid, s->legs, *keeps ? ", " : "", keeps);
	if (md_has_write_hole(s->raid, volatile_cache))
		printf("  parity: has no log: cut off while it is written to, and short of a disk, the array may compute wrong data (start --accept-write-hole); RAID 1 "
		       "and 10 do not, nor 5 on disks whose write caches are off%s\n",
		       *s->integrity ? ", without dm-integrity" : "");
}

static void show_cache(const struct making *m)
{
	const struct stack *s = &m->stack;
	const char *copies = m->copies > 2 ? ", dirty data on three of them" : ", dirty data on two of them";

	printf("  cache:");
	if (s->own_cache)
		show_list(&m->request->caches);
	printf("%s %s, %u SSD%s%s\n", s->own_cache ? ", to be formatted as" : " that of the name", m->cache_label, m->ssds,
	       m->ssds == 1 ? "" : "s", m->copies > 1 && !strcmp(s->mode, "writeback") ? copies : "");
}

/* With --separate; each disk is a stack. */
static void show_separate(const struct making *m)
{
	struct stack one = m->stack;
	char uuid[UUID_TEXT];
	int number = 0;

	do
		printf("  stack %s: %s, to be overwritten; UUID %s\n", one.name, m->request->disks.value[number++],
		       uuid_text(one.uuid, uuid));
	while (stack_next(&one, &one));
}

static void show_volume(const struct making *m)
{
	const struct stack *s = &m->stack;
	bool separate = m->request->separate;
	char size[SIZE_TEXT];

	printf("  volume: %s%s%s, mode %s%s%s\n", separate ? "one on each" : s->name, s->size ? ", " : "",
	       s->size ? size_print(size, s->size, &human) : "", s->mode, *s->class ? ", class " : "", s->class);
	if (s->size)
		printf("  free: the rest of %s%s\n", *s->raid ? "the array" : separate ? "each disk" : "the disk",
		       *s->aead ? "; a stack with tags cannot grow into it" : "; larder resize takes it");
}

static void show_encryption(const struct making *m)
{
	const struct stack *s = &m->stack;
	char *backup = stack_backup_path(s, m->request->header_backup), *token = *s->token ? token_describe(&m->token) : NULL;

	printf("  encryption: LUKS2%s%s, opened by %s%s%s; backup of its header: %s\n", *s->aead ? ", authenticated by " : "",
	       s->aead, token ? token : "", token ? ", and where that fails by " : "", *s->keyfile ? s->keyfile : "a passphrase",
	       !backup ? "none" : m->request->separate ? "a file for each in " BACKUP_DIRECTORY : backup);
	if (*s->aead)
		printf("  tags: all of the volume is written once before it can be used, at the speed of the disks (hours for each TB); "
		       "the stack cannot grow, and takes no discards\n");
	free(token);
	free(backup);
}

void stack_show_plan(const struct making *m)
{
	const struct stack_request *r = m->request;
	const struct stack *s = &m->stack;
	char uuid[UUID_TEXT], size[SIZE_TEXT];

	if (r->separate)
		printf("%u stacks of one cache, each a disk:\n", s->next + 1);
	else
		printf("stack %s, UUID %s:\n", s->name, uuid_text(s->uuid, uuid));
	show_cache(m);
	if (r->separate)
		show_separate(m);
	else
		show_disks("disks", &r->disks);
	show_disks("spares of the array", &r->spares);
	show_disks("spares of the cache", &r->cache_spares);
	if (*s->raid)
		show_array(m);
	if (*s->integrity)
		show_integrity(m);
	if (m->claims.unused)
		printf("  unused: %s, as the disks are of unequal size\n", size_print(size, m->claims.unused, &human));
	show_volume(m);
	if (tiers_wanted(&r->tiers) || r->tiers.labels.number)
		show_tiers(m);
	if (s->encrypted)
		show_encryption(m);
	if (*s->fs)
		printf("  filesystem: %s%s%s%s%s\n", s->fs, *s->label ? ", label " : "", s->label, *s->mkfs ? ", mkfs with " : "",
		       s->mkfs);
	if (*s->mount)
		printf("  mount: %s, with a line in fstab%s\n", s->mount, r->essential ? ", for which each boot waits" : "");
}
