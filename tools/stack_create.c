// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder create: a whole stack; larder create --resume.
 *
 * First all devices are opened for us alone, and judged, and what will be done is shown; nothing is changed by that.  Then come the
 * steps of enum stack_step, each noted in the description when it is done, so that what a kill, an error or a power cut leaves is
 * either without any trace of the stack, or has a description that says how far it came:
 *
 *  NONE		the SSDs are formatted as a cache, each with the description (a cache that was there gets it by message): the
 *		first write of all, before any disk is touched
 *  DISKS	spares of the cache are made; then old signatures go, and each disk gets a superblock of kind 4 with a UUID that follows from the
 *		stack's: the next steps find the disks by it, whatever they are called by then, and never take another one
 *  ARRAY	mdadm makes the array over them; its superblock overwrites the mark.  With --integrity dm-integrity is made behind each mark first, which
 *		stays, and the array over that
 *  VOLUME	the superblock of the volume, with the description; from here on it lies in two places
 *  CRYPT	the LUKS2 header, with the key of a TPM2 or tang server; where the encryption authenticates, then a tag for each sector, and now and then how many there are
 *  FILESYSTEM	mkfs: noted before anybody can mount it, so that no repetition ever meets data
 *  MOUNT	fstab, the mount
 *
 * A step that was cut short is repeated from its beginning.  The state `ready` is the end.
 *
 * With --separate the stacks are made one behind the other, and only the first one is noted at the beginning, with the number of those behind it
 * (`next`): DISKS marks the disks of them all.  The one behind is noted, as one whose disk is marked, before this one is ready: of a chain that
 * is cut off there is always one link that --resume goes on with, and that remove takes away with all behind it.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "create.h"
#include "crypt_layer.h"
#include "fstab.h"
#include "integrity.h"
#include "program.h"
#include "running.h"
#include "stack_age.h"
#include "stack_layers.h"
#include "stack_legs.h"
#include "stack_mkfs.h"
#include "stack_paths.h"
#include "stack_plan.h"
#include "stack_steps.h"
#include "stack_store.h"
#include "stacks.h"
#include "turn.h"
#include "verbs.h"

static const struct size_format human = { 'h', true };

/* ------------------------------------------------------------------ the steps */

static void disk_uuid(const struct stack *stack, uint32_t number, uint8_t uuid[16])
{
	char part[32];

	snprintf(part, sizeof(part), "disk %u", number);
	stack_part(stack, part, uuid);
}

static int make_cache(struct making *m)
{
	struct cache_request request = { .name = m->cache_label, .label = m->cache_label, .paths = m->request->caches,
					 .claim = { .wipe = m->request->wipe, .yes = true, .discard_dirty = m->request->discard_dirty },
					 .uuid = m->stack.cache };
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	int result;

	for (uint32_t i = 0; i < m->set.number; i++)
		request.roles.value[request.roles.number++] = role_text(m->set.role[i]);
	memcpy(list->label, m->set.label, sizeof(list->label));
	if (!m->stack.own_cache) {
		free(list);
		result = start_cache(&m->stack, 0);
		return result ? result : stack_store(&m->stack);
	}
	m->stack.generation = 1;
	stack_list_put(list, &m->stack);
	stack_list_encode(list, field); /* check_room() has seen that it fits */
	free(list);
	request.stack = field;
	return cache_format(&request);
}

/* That mark stays, as the leg's superblock. */
static void fill_leg(const struct stack *stack, union superblock *sb)
{
	struct leg_fields fields;

	memcpy(fields.stack, stack->uuid, 16);
	memcpy(fields.host, stack->host, 16);
	leg_fill(sb, &fields);
}

static int mark_disk(const struct making *m, const struct stack *stack, uint32_t number, const char *path)
{
	struct claim_request claim = { .path = path, .wipe = m->request->wipe,
				       .discard_dirty = m->request->discard_dirty, .yes = true };
	struct device device;
	union superblock *sb;
	int result = claim_open(&device, &claim);

	if (result)
		return result;
	result = claim_clear(&device, &claim);
	if (!result) {
		sb = device_buffer(LARDER_SB_SIZE);
		create_head(&sb->head, LARDER_KIND_OTHER, &device, 0);
		disk_uuid(stack, number, sb->head.uuid);
		if (*stack->integrity)
			fill_leg(stack, sb);
		result = create_superblock(&device, sb, false);
		free(sb);
	}
	device_close(&device);
	return result;
}

static void free_disks(char *paths[MD_LEGS_MAX], unsigned number)
{
	for (unsigned i = 0; i < number; i++)
		free(paths[i]);
}

/*
 * Paths of the disks that are here, spares last, by their marks or, where mdadm was cut short, by its superblocks: which of those became
 * a spare is all one then.  The caller frees them.  Refused where one is somebody else's by now: a partition table leaves the mark whole.
 */
static int collect_disks(const struct stack *stack, char *paths[MD_LEGS_MAX], unsigned *number)
{
	struct md_array array = { 0 };
	struct members members;
	int result = LARDER_DONE;
	uint8_t uuid[16];

	*number = 0;
	members_scan(&members);
	for (uint32_t i = 0; i < stack->legs + stack->spares; i++) {
		disk_uuid(stack, i, uuid);
		for (size_t j = 0; !result && j < members.number; j++)
			if (!memcmp(members.member[j]->sb.head.uuid, uuid, 16) && *number < MD_LEGS_MAX) {
				paths[(*number)++] = must_print("%s", members.member[j]->path);
				result = claim_check(members.member[j]->path, LARDER_KIND_OTHER, uuid);
			}
	}
	members_free(&members);
	if (*stack->raid && !*stack->integrity) {
		stack_part(stack, "md", uuid);
		md_find(uuid, &array);
	}
	for (size_t i = 0; !result && i < array.number && *number < MD_LEGS_MAX; i++) {
		paths[(*number)++] = must_print("%s", array.leg[i]);
		result = claim_leg_is_ours(array.leg[i], false) ? LARDER_DONE : LARDER_UNSAFE;
	}
	md_free(&array);
	if (!result)
		return LARDER_DONE;
	free_disks(paths, *number);
	return complain(result, "%s: nothing goes on with that disk; larder remove %s takes away the rest, then create it anew",
			stack->name, stack->name);
}

/* All of them. */
static int find_disks(const struct stack *stack, char *paths[MD_LEGS_MAX], unsigned *number)
{
	uint32_t wanted = stack->legs + stack->spares;
	int result = collect_disks(stack, paths, number);

	if (result || *number == wanted)
		return result;
	free_disks(paths, *number);
	return complain(LARDER_NOT_FOUND,
			"%s: %u of its %u disks are found with its mark; attach the others, or larder remove %s and create it anew",
			stack->name, *number, wanted, stack->name);
}

/* Before anything is started: those that are not yet a part of an array or volume, of the stacks behind this one, too. */
static int check_owners(const struct stack *first)
{
	struct stack stack = *first;
	char *paths[MD_LEGS_MAX];
	unsigned number;
	int result;

	do {
		if (stack.step >= (*stack.raid ? STEP_ARRAY : STEP_VOLUME))
			continue;
		result = collect_disks(&stack, paths, &number);
		if (result)
			return result;
		free_disks(paths, number);
	} while (stack_next(&stack, &stack));
	return LARDER_DONE;
}

/* What was cut short may be the note alone; a disk without a mark could be any disk. */
static int check_marks(const struct making *m)
{
	struct stack stack = m->stack;
	char *paths[MD_LEGS_MAX];
	unsigned number;
	int result;

	do {
		result = find_disks(&stack, paths, &number);
		if (!result)
			free_disks(paths, number);
	} while (!result && stack_next(&stack, &stack));
	if (result && m->stack.next)
		remark("%s: without all of them larder remove %s takes away what there is; create them anew then", m->stack.name, m->stack.name);
	return result;
}

/* The cache runs by now: as by larder cache add. */
static int make_cache_spares(const struct making *m)
{
	char uuid[UUID_TEXT];
	int result = LARDER_DONE;

	uuid_text(m->stack.cache, uuid);
	for (int i = 0; !result && i < m->request->cache_spares.number; i++) {
		char *words[8] = { "add", uuid, (char *)m->request->cache_spares.value[i], "--spare", "--yes" };
		int number = 5;

		if (m->request->wipe)
			words[number++] = "--wipe";
		if (m->request->discard_dirty) {
			words[number++] = "--discard-dirty";
			words[number++] = (char *)m->request->discard_dirty;
		}
		result = cache_add(number, words);
	}
	return result;
}

static int make_disks(struct making *m)
{
	const char *const *paths = m->request->disks.value;
	struct stack stack = m->stack;
	int result = LARDER_DONE;

	if (m->request->resume)
		return check_marks(m);
	/* first: where the last mark is, these are there */
	result = make_cache_spares(m);
	do
		for (uint32_t i = 0; !result && i < stack.legs; i++)
			result = mark_disk(m, &stack, i, *paths++);
	while (!result && stack_next(&stack, &stack));
	for (uint32_t i = 0; !result && i < stack.spares; i++)
		result = mark_disk(m, &stack, stack.legs + i, m->request->spares.value[i]);
	return result;
}

/* Node of the array, or of the one disk; the caller frees it.  NULL: it has complained. */
static char *backing_path(const struct stack *stack)
{
	char *paths[MD_LEGS_MAX], *path = NULL;
	struct md_array array;
	uint8_t uuid[16];
	unsigned number;

	if (!*stack->raid)
		return find_disks(stack, paths, &number) ? NULL : paths[0];
	stack_part(stack, "md", uuid);
	md_find(uuid, &array);
	if (*array.node)
		path = must_print("%s", array.node);
	else
		complain(LARDER_NOT_FOUND, "%s: its array does not run", stack->name);
	md_free(&array);
	return path;
}

/* What its disks had where the data of the array are goes now, while nobody else can have put it there. */
static int clear_array(const struct making *m)
{
	struct claim_request claim = { .wipe = true, .discard_dirty = m->request->discard_dirty, .yes = true };
	char *path = backing_path(&m->stack);
	struct device device;
	int result;

	if (!path)
		return LARDER_NOT_FOUND;
	claim.path = path;
	result = claim_open(&device, &claim);
	if (!result) {
		result = claim_clear(&device, &claim);
		device_close(&device);
	}
	free(path);
	return result;
}

/* Each path becomes that of its leg: made anew, whatever a try that was cut short has left. */
static int make_legs(const struct stack *stack, char *paths[MD_LEGS_MAX], unsigned number)
{
	int result = leg_check_kernel();
	uint8_t uuid[16];

	for (uint32_t i = 0; !result && i < number; i++) {
		disk_uuid(stack, i, uuid);
		result = leg_format(paths[i], uuid, stack->uuid);
		result = result ? result : leg_start(paths[i], uuid, stack->uuid);
		free(paths[i]);
		paths[i] = leg_node(uuid);
	}
	return result;
}

static int make_array(struct making *m)
{
	char *paths[MD_LEGS_MAX];
	uint8_t uuid[16];
	unsigned number;
	int result;

	if (!*m->stack.raid)
		return LARDER_DONE;
	/* of an array that was cut short, or of which the note was */
	result = stop_array(&m->stack);
	result = result ? result : find_disks(&m->stack, paths, &number);
	if (result)
		return result;
	if (*m->stack.integrity)
		result = make_legs(&m->stack, paths, number);
	stack_part(&m->stack, "md", uuid);
	result = result ? result : md_create(uuid, m->stack.raid, (const char *const *)paths, number, m->stack.spares);
	free_disks(paths, number);
	if (!result && *m->stack.integrity)
		legs_expect_errors(&m->stack);
	return result ? result : clear_array(m);
}

static int make_volume(struct making *m)
{
	uint8_t uuid[16], field[LARDER_STACK_SIZE];
	struct stack noted = m->stack;
	struct stacks stacks;
	char cache[UUID_TEXT];
	struct volume_request request = {
		.name = m->stack.name,
		.label = m->stack.name,
		.cache = uuid_text(m->stack.cache, cache),
		.layout = { .data_offset = DATA_OFFSET_CHOSEN, .tail_reserve = LARDER_DEF_TAIL_RESERVE },
		.size = m->stack.size ? m->stack.size : VOLUME_SIZE_ALL,
		/* the mark goes; what else is there was put there since */
		.claim = { .stale = !*m->stack.raid, .wipe = *m->stack.raid && m->request->resume && m->request->wipe,
			   .discard_dirty = m->request->discard_dirty, .yes = true },
		.uuid = uuid,
		.stack = field,
	};
	bool there;
	int result = stacks_scan(&stacks);

	stack_part(&m->stack, "volume", uuid);
	there = !result && member_volume(&stacks.members, uuid);
	if (!result)
		stacks_free(&stacks);
	if (result || there) /* what was cut short is the note that it is there */
		return result;
	request.path = backing_path(&m->stack);
	if (!request.path)
		return LARDER_NOT_FOUND;
	mode_parse(m->stack.mode, &request.mode);
	noted.step = STEP_VOLUME;
	stack_encode(&noted, field);
	request.claim.path = request.path;
	result = volume_format(&request);
	free((char *)request.path);
	return result;
}

/* So far the tags are durable: that goes into the description, and what is cut off goes on behind it. */
static int note_tags(uint64_t done, uint64_t all, void *data)
{
	struct making *m = data;
	unsigned before = (unsigned)(m->stack.wiped * 10 / all), now = (unsigned)(done * 10 / all);
	char a[SIZE_TEXT], b[SIZE_TEXT];
	int result;

	m->stack.wiped = done;
	if (isatty(STDOUT_FILENO) || now > before) {
		printf("%s%s: tags: %u %%, %s of %s%s", isatty(STDOUT_FILENO) ? "\r" : "", m->stack.name, (unsigned)(done * 100 / all),
		       size_print(a, done, &human), size_print(b, all, &human), isatty(STDOUT_FILENO) && done < all ? "  " : "\n");
		fflush(stdout);
	}
	turn_take();
	result = stack_store(&m->stack);
	turn_give();
	return result;
}

static int write_tags(struct making *m, const char *node)
{
	char *name = crypt_name(&m->stack);
	const struct luks_wipe wipe = { .name = name, .secret = &m->secret, .from = m->stack.wiped, .noted = note_tags, .data = m };
	int result;

	turn_give(); /* for hours; the state `creating` keeps larderd off it, and luks_wipe() everybody else */
	result = luks_wipe(node, &wipe);
	turn_take();
	if (!result)
		m->stack.wiped = 0; /* with the step, which is noted next */
	free(name);
	return result;
}

static int make_crypt(struct making *m)
{
	struct luks_format format = { .iteration_ms = (unsigned)m->request->iteration_ms, .secret = &m->secret, .aead = m->stack.aead,
				      .kind = *m->stack.keyfile ? LUKS_KEYFILE : LUKS_PASSPHRASE };
	char *node, *backup;
	int result, slot;

	if (!m->stack.encrypted)
		return LARDER_DONE;
	/* of one that was cut short behind its end */
	result = stop_crypt(&m->stack);
	if (result)
		return result;
	stack_part(&m->stack, "crypt", format.uuid);
	node = mapper_path(m->stack.name);
	if (!m->stack.wiped) {
		result = luks_make(node, &format);
		if (!result && *m->stack.token)
			result = token_enrol(&m->token, node, &m->secret, &slot);
		backup = stack_backup_path(&m->stack, m->request->header_backup);
		if (!result && backup)
			result = luks_backup(node, backup);
		free(backup);
	}
	if (!result && *m->stack.aead)
		result = write_tags(m, node);
	free(node);
	return result;
}

static int make_filesystem(struct making *m)
{
	char *node;
	int result = start_crypt(&m->stack, &m->secret, 0, NULL);

	if (result || !*m->stack.fs)
		return result;
	node = stack_top_node(&m->stack);
	result = stack_mkfs(&m->stack, node);
	free(node);
	return result;
}

static int make_mount(struct making *m)
{
	bool held;
	char *node;
	int result = start_crypt(&m->stack, &m->secret, 0, NULL);

	if (result || !*m->stack.mount)
		return result;
	node = stack_top_node(&m->stack);
	/* until the stack is ready nobody starts it at a boot, which would wait for ever */
	held = m->request->essential || fstab_is_held(m->stack.uuid);
	result = fstab_set(m->stack.uuid, node, m->stack.mount, m->stack.fs,
			   (stack_is_remote(&m->stack) ? FSTAB_REMOTE : 0) | (held ? FSTAB_HELD : 0));
	free(node);
	return result ? result : start_mount(&m->stack, true);
}

/* Those that the next steps stand on; started by hand, or not, since the step before. */
static int start_below(struct making *m, enum stack_step next)
{
	int result = next > STEP_NONE ? start_cache(&m->stack, START_IMPORT) : LARDER_DONE;

	if (!result && next > STEP_ARRAY)
		result = start_array(&m->stack, 0);
	if (!result && next > STEP_VOLUME)
		result = start_volume(&m->stack, START_IMPORT);
	return result;
}

static const struct {
	const char *text;
	int (*make)(struct making *m);
} steps[NR_STEPS] = {
	[STEP_NONE] = { "the cache, with the description", make_cache },
	[STEP_DISKS] = { "the disks are cleared and marked", make_disks },
	[STEP_ARRAY] = { "the array", make_array },
	[STEP_VOLUME] = { "the volume", make_volume },
	[STEP_CRYPT] = { "the encryption", make_crypt },
	[STEP_FILESYSTEM] = { "the filesystem", make_filesystem },
	[STEP_MOUNT] = { "the mount", make_mount },
};

static bool step_is_empty(const struct stack *stack, enum stack_step step)
{
	return (step == STEP_ARRAY && !*stack->raid) || (step == STEP_CRYPT && !stack->encrypted) ||
	       (step == STEP_FILESYSTEM && !*stack->fs) || (step == STEP_MOUNT && !*stack->mount);
}

/* The stack behind this one, as it is noted by now: what was cut off may have noted it, or gone on with it.  Else *next is noted. */
static int note_next(struct stack *next)
{
	const struct found *noted;
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	noted = stack_by_uuid(&stacks, next->uuid);
	if (noted)
		*next = noted->stack;
	stacks_free(&stacks);
	return noted ? LARDER_DONE : stack_store(next);
}

/* Where its cache could not take it nothing goes on with it, nor takes it away.  In doubt it is there. */
static bool is_described(const struct stack *stack)
{
	struct stacks stacks;
	bool found;

	if (stacks_scan(&stacks))
		return true;
	found = stack_by_uuid(&stacks, stack->uuid);
	stacks_free(&stacks);
	return found;
}

static int make_one(struct making *m, enum stack_step from, struct stack *next)
{
	bool more = stack_next(&m->stack, next);
	int result = LARDER_DONE;

	for (enum stack_step step = from; !result && step < NR_STEPS; step++) {
		if (!step_is_empty(&m->stack, step)) {
			printf("%s: %s\n", m->stack.name, steps[step].text);
			fflush(stdout);
		}
		result = start_below(m, step);
		result = result ? result : steps[step].make(m);
		m->stack.step = result ? m->stack.step : step;
		if (!result && step > STEP_NONE && step < STEP_MOUNT)
			result = stack_store(&m->stack);
	}
	if (!result && more)
		result = note_next(next);
	if (!result) {
		m->stack.state = STACK_READY;
		m->stack.next = 0;
		m->stack.spares = 0;
		m->stack.size = 0;
		*m->stack.token = 0;
		result = stack_store(&m->stack);
		if (!result && fstab_release(m->stack.uuid))
			remark("%s: no boot waits for it yet; larder set %s --essential yes", m->stack.name, m->stack.name);
	}
	if (!more || next->state != STACK_CREATING)
		next->name[0] = 0;
	if (result && from == STEP_NONE && !is_described(&m->stack))
		remark("%s: there is no description of it yet: begin anew, with all that it is made of", m->stack.name);
	else if (result)
		remark("%s: is half made; larder create --resume %s goes on, larder remove %s takes it away", m->stack.name, m->stack.name,
		       m->stack.name);
	else
		printf("%s: ready%s%s\n", m->stack.name, *m->stack.mount ? ", mounted on " : "", m->stack.mount);
	return result;
}

static int make(struct making *m, enum stack_step from)
{
	struct stack next;
	int result = make_one(m, from, &next);

	while (!result && *next.name) {
		m->stack = next;
		result = make_one(m, m->stack.step + 1, &next);
	}
	return result;
}

static int get_secret(struct making *m, bool twice)
{
	/* one for all that are made together */
	const char *name = m->stack.next ? m->request->name : m->stack.name;

	int result;

	if (!m->stack.encrypted)
		return LARDER_DONE;
	turn_give(); /* who types takes his time */
	result = secret_read(m->stack.keyfile, name, twice, &m->secret);
	turn_take();
	return result;
}

static int create_new(const struct stack_request *request)
{
	struct making m = { .request = request };
	int result = stack_parse(request, &m.stack);

	result = result ? result : stack_plan(&m);
	if (result)
		return result;
	stack_show_plan(&m);
	if (request->dry_run) {
		puts("dry run: nothing was written");
		return LARDER_DONE;
	}
	result = turn_confirm(request->name, m.request->yes, "Make it?  All that is on these devices will be lost.");
	result = result ? result : get_secret(&m, true);
	result = result ? result : stack_plan_again(&m);
	result = result ? result : make(&m, STEP_NONE);
	secret_free(&m.secret);
	return result;
}

/* The header is still to be made, or there is nothing to say of its backup any more. */
static int check_resumed_backup(const struct stack *stack, const char *word)
{
	bool made = stack->step >= STEP_CRYPT || stack->wiped;

	if (stack->encrypted && stack->next && word && strcmp(word, "none"))
		return complain(LARDER_USAGE, "--header-backup: %u more headers are made behind that of %s; leave it out, or none", stack->next, stack->name);
	if (!stack->encrypted || !made || stack->next)
		return stack_check_backup(stack, word, false);
	return word ? complain(LARDER_USAGE, "--header-backup: the header is made already; larder passwd %s --backup --header-backup %s, once it is ready",
			       stack->name, word) :
		      LARDER_DONE;
}

/* By its name, or by that which --separate was given: the first of those that is half made. */
static int find_half_made(const struct stacks *stacks, const char *word, const struct found **found)
{
	const struct found *first = NULL;

	for (size_t i = 0; i < stacks->number; i++) {
		const struct found *f = &stacks->found[i];

		if (!strcmp(f->stack.name, word))
			return stack_find(stacks, word, found);
		if (f->whole && f->stack.state == STACK_CREATING && stack_is_one_of(&f->stack, word) && (!first || f->stack.next > first->stack.next))
			first = f;
	}
	*found = first;
	return first ? LARDER_DONE : stack_find(stacks, word, found);
}

static int resume(const struct stack_request *request)
{
	struct making m = { .request = request };
	const struct found *found;
	struct stacks stacks;
	char *why = NULL;
	int result = stacks_scan(&stacks);

	result = result ? result : find_half_made(&stacks, request->name, &found);
	if (!result) {
		m.stack = found->stack;
		if (m.stack.state == STACK_REMOVING)
			result = complain(LARDER_UNSAFE, "%s: is being removed; larder remove %s", m.stack.name, m.stack.name);
		else if (m.stack.state == STACK_READY)
			result = complain(LARDER_UNSAFE, "%s: is ready; larder start %s", m.stack.name, m.stack.name);
		if (!result && (why = stack_too_old(&stacks.members, &m.stack)))
			result = complain(LARDER_UNSAFE, "%s: %s; larder remove %s --discard-data UUID takes away what is here", m.stack.name, why,
					  m.stack.name);
		free(why);
	}
	stacks_free(&stacks);
	result = result ? result : stack_check_machine(&m.stack);
	result = result ? result : check_owners(&m.stack);
	if (!result && request->essential && !*m.stack.mount)
		result = complain(LARDER_USAGE, "--essential: is for --mount, and %s is mounted nowhere", m.stack.name);
	result = result ? result : check_resumed_backup(&m.stack, request->header_backup);
	/* of a header that is still to be made, here or behind this */
	if (!result && ((m.stack.step < STEP_CRYPT && !m.stack.wiped) || m.stack.next))
		result = stack_check_token(&m);
	/* and for those behind it, whose headers are still to be made */
	result = result ? result : get_secret(&m, (m.stack.step < STEP_CRYPT && !m.stack.wiped) || m.stack.next);
	result = result ? result : stack_check_same(&m.stack);
	result = result ? result : make(&m, m.stack.step + 1);
	secret_free(&m.secret);
	return result;
}

/* Of what a stack is made: one that is half made has that in its description, and is made of nothing else. */
static bool says_what(const struct stack_request *r)
{
	return r->disks.number || r->caches.number || r->spares.number || r->cache_spares.number || r->dry_run || r->size != VOLUME_SIZE_ALL ||
	       r->tiers.labels.number || r->tiers.disks || tiers_wanted(&r->tiers) || r->raid || r->integrity || r->separate || r->mode || r->class ||
	       r->encrypt || r->cipher || r->label || r->mkfs || r->mkfs_options || r->mount;
}

int stack_create(int argc, char **argv)
{
	static const char usage[] =
		"larder create NAME --backing DISK... [--raid LEVEL [--integrity] [--spare DISK...] | --separate] --cache SSD...|CACHE [--cache-spare SSD...] [--size SIZE] [--mode MODE] [--class CLASS] [--encrypt luks2[-aead][:KEY]] [--cipher CIPHER] "
		"[--header-backup FILE|none] "
		"[--mkfs TYPE] [--label TEXT] [--mount DIR [--essential]] [--cache-label LABEL...] [--backing-label LABEL] [--foreground LABEL --promote LABEL [--background LABEL]] "
		"[--wipe] [--dry-run] [--yes] | larder create --resume NAME";
	struct stack_request request = { .size = VOLUME_SIZE_ALL };
	const struct argument arguments[] = {
		{ "backing", 'b', ARGUMENT_LIST, &request.disks, "DISK", "a disk; once for each" },
		{ "raid", 0, ARGUMENT_TEXT, &request.raid, "LEVEL", "none (one disk), 0, 1, 10, 5, 6: an md array of the disks" },
		{ "integrity", 0, ARGUMENT_FLAG, &request.integrity, NULL, "dm-integrity below each disk of the array, so that md repairs what one returns wrong" },
		{ "separate", 0, ARGUMENT_FLAG, &request.separate, NULL, "a stack of each disk, NAME-1, NAME-2, ..., on one cache" },
		{ "cache", 'c', ARGUMENT_LIST, &request.caches, "SSD|CACHE", "an SSD (its path), once for each; or the name of a cache" },
		{ "spare", 0, ARGUMENT_LIST, &request.spares, "DISK", "a spare of the array; once for each" },
		{ "cache-spare", 0, ARGUMENT_LIST, &request.cache_spares, "SSD", "a spare of the cache; once for each" },
		{ "size", 's', ARGUMENT_SIZE, &request.size, "SIZE", "of the volume (default: all that there is room for); larder resize takes the rest" },
		{ "mode", 'm', ARGUMENT_TEXT, &request.mode, "MODE",
		  "writeback (default, with two SSDs), writethrough (with one), writearound" },
		{ "class", 0, ARGUMENT_TEXT, &request.class, "CLASS", "what is to be cached: a preset, see docs/interface.md" },
		{ "cache-label", 0, ARGUMENT_LIST, &request.tiers.labels, "LABEL", "of the SSDs, for the next options: once for each, or once for all" },
		{ "backing-label", 0, ARGUMENT_TEXT, &request.tiers.disks, "LABEL", "of the disks, likewise" },
		{ "foreground", 0, ARGUMENT_TEXT, &request.tiers.foreground, "LABEL", "where writes go first: SSDs (writeback), or backing" },
		{ "promote", 0, ARGUMENT_TEXT, &request.tiers.promote, "LABEL", "where what is read is copied to: SSDs, or none" },
		{ "background", 0, ARGUMENT_TEXT, &request.tiers.background, "LABEL", "where data comes to rest: the label of the disks, or backing" },
		{ "encrypt", 'e', ARGUMENT_TEXT, &request.encrypt, "HOW", "luks2 or luks2-aead, alone or with :passphrase, :keyfile=FILE, :" TOKEN_GRAMMAR },
		{ "cipher", 0, ARGUMENT_TEXT, &request.cipher, "CIPHER",
		  "of luks2-aead: chacha20-poly1305 (default), aes-gcm or aes-xts-hmac" },
		{ "iter-time", 0, ARGUMENT_SIZE, &request.iteration_ms, "MS", "what a guess of the passphrase costs, as with cryptsetup" },
		{ "header-backup", 0, ARGUMENT_TEXT, &request.header_backup, "FILE",
		  "backup of the LUKS header (default: below /var/lib/larder), or none" },
		{ "mkfs", 0, ARGUMENT_TEXT, &request.mkfs, "TYPE", "ext4, xfs or btrfs" },
		{ "mkfs-options", 0, ARGUMENT_TEXT, &request.mkfs_options, "WORDS", "further words for mkfs" },
		{ "label", 'L', ARGUMENT_TEXT, &request.label, "TEXT", "label of the filesystem" },
		{ "mount", 0, ARGUMENT_TEXT, &request.mount, "DIR", "mount it there, now and at every boot" },
		{ "essential", 0, ARGUMENT_FLAG, &request.essential, NULL, "each boot waits for that mount, however long it takes" },
		{ "wipe", 'W', ARGUMENT_FLAG, &request.wipe, NULL, "remove what is on the devices" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &request.discard_dirty, "UUID",
		  "also if this cache's or volume's dirty data is LOST" },
		{ "resume", 0, ARGUMENT_FLAG, &request.resume, NULL, "go on with a stack that is half made" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &request.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	int first, result;

	secrets_protect();
	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	request.name = argv[first];
	mapped_init(false);
	if (!request.dry_run)
		turn_take();	/* or larderd would start what is half made */
	if (!request.resume)
		return create_new(&request);
	if (says_what(&request))
		return complain(LARDER_USAGE, "--resume: takes the name, --iter-time, --header-backup, --essential, --wipe and --yes; the rest is in the description");
	return resume(&request);
}
