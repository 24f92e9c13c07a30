// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder snapshot create, remove: what a stack was at one moment, beside the stack that goes on (lib/cow.h has the devices).
 *
 * What is on the devices after a kill, or a power cut, in each step:
 *
 *	create: (from a group of LVM:	nothing, or a volume that has the name of the store that comes next
 *	it is made there)
 *	the store is wiped		nothing of ours
 *	it is noted as `creating`	a start passes over it: nobody was told that there is one
 *	the store is marked		likewise
 *	all moves over to the new	a process that no kill reaches ends it, or goes back; a power cut takes it away, the note is as it was
 *	devices, in one stop
 *	noted as `ready`		from here on no start is without it
 *
 *	remove: noted as `removing`	a start passes over it, and what the store holds counts for nothing
 *	its devices go			likewise
 *	the store loses its mark	likewise
 *	(and goes, in a group of LVM)
 *	the note goes
 *
 * So the same command ends what was cut short, `create` by beginning anew, and `remove` ends either.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "claim.h"
#include "create.h"
#include "crypt_layer.h"
#include "signature.h"
#include "snapshot_space.h"
#include "stack_layers.h"
#include "stack_names.h"
#include "stack_snapshot.h"
#include "stack_store.h"
#include "turn.h"
#include "verbs.h"

#define COW_HEAD (64u << 10) /* bytes at the head of a store's contents: zeroes there are a store that has none yet */
#define STEPS_MAX 8u

static const struct size_format human = { 'h', true };

struct snapshot_request {
	struct claim_request claim; /* path: of the store; NULL: it is taken from the space of the stack */
	uint64_t size; /* bytes of such a store; 0: as the stack asks for */
};

struct job {
	const struct snapshot_request *request;
	char *word; /* NAME@SNAPSHOT; the first part ends where the other begins */
	const char *name; /* of the snapshot */
	struct stacks stacks;
	struct stack stack;
	struct layers layers;
	struct cow cow; /* of this snapshot alone */
	char *taken; /* path of a store that was made for this */
	bool anew; /* a command that was cut short may have left devices of it: they have gone, or go where this is no dry run */
	uint64_t blocked; /* microseconds */
};

/* ------------------------------------------------------------------ begin, end */

static int look(struct job *job)
{
	const struct found *found = NULL;
	int result = stacks_scan(&job->stacks);

	result = result ? result : stack_find(&job->stacks, job->word, &found);
	if (!result && !found->whole)
		result = complain(LARDER_NOT_FOUND, "%s: its disks are not here; larder start %s", job->word, job->word);
	if (result) {
		stacks_free(&job->stacks);
		return result;
	}
	job->stack = found->stack;
	layers_find(&job->stacks, &job->stack, &job->layers);
	return LARDER_DONE;
}

static void look_away(struct job *job)
{
	layers_free(&job->layers);
	stacks_free(&job->stacks);
}

/* On an error nothing is seen any more. */
static int look_again(struct job *job)
{
	look_away(job);
	job->layers = (struct layers){ 0 };
	return look(job);
}

static int begin(struct job *job, const char *word)
{
	char *at;
	int result;

	*job = (struct job){ .request = job->request, .word = must_print("%s", word) };
	at = strrchr(job->word, '@');
	if (!at || at == job->word || !snapshot_name_valid(at + 1)) {
		result = complain(LARDER_USAGE, "%s: is not NAME@SNAPSHOT: a stack, and 1 to %d of A-Z a-z 0-9 # + . : = _ -, not beginning with - or a dot", word,
				  SNAPSHOT_NAME_MAX - 1);
	} else {
		*at = 0;
		job->name = at + 1;
		turn_take();
		result = look(job);
	}
	if (result) {
		free(job->word);
		return result;
	}
	if (job->stack.state != STACK_READY)
		result = complain(LARDER_UNSAFE, "%s: is half made, or being removed; see larder show %s", job->word, job->word);
	else
		result = stack_check_machine(&job->stack);
	if (result) {
		look_away(job);
		free(job->word);
	}
	return result;
}

static int end(struct job *job, int result)
{
	look_away(job);
	free(job->taken);
	free(job->word);
	return result;
}

/* This snapshot as cow.h has it; store: its device, if that is here. */
static void name_devices(struct job *job, const struct member *store)
{
	const struct stack_snapshot *one = stack_snapshot_find(&job->stack, job->name);
	struct cow_snapshot *to = &job->cow.snapshot[0];

	job->cow = (struct cow){ .name = job->stack.name, .number = 1 };
	stack_part(&job->stack, "volume", job->cow.volume);
	snprintf(to->name, sizeof(to->name), "%s", job->name);
	stack_snapshot_uuid(&job->stack, one, to->uuid);
	to->store = store ? store->path : NULL;
	to->bytes = store ? store->bytes : 0;
	if (job->layers.volume)
		job->cow.name = job->layers.volume->name;
}

static int note(struct job *job, enum snapshot_state state)
{
	stack_snapshot_find(&job->stack, job->name)->state = state;
	return job->request->claim.dry_run ? LARDER_DONE : stack_store(&job->stack);
}

/* ------------------------------------------------------------------ the exchange */

/* All that is above the volume, and stops for that long. */
struct exchange {
	struct mapped_step step[STEPS_MAX], back[STEPS_MAX];
	size_t steps, backs;
};

static void put(struct exchange *x, enum mapped_action action, const char *name)
{
	x->step[x->steps++] = (struct mapped_step){ .action = action, .name = name };
}

static void put_table(struct exchange *x, const char *name, const char *target, uint64_t sectors, const char *params)
{
	x->step[x->steps++] = (struct mapped_step){ MAPPED_LOAD, name, target, params, sectors };
}

static void put_back(struct exchange *x, enum mapped_action action, const char *name)
{
	x->back[x->backs++] = (struct mapped_step){ .action = action, .name = name };
}

static void put_back_failing(struct exchange *x, const char *name, uint64_t sectors)
{
	x->back[x->backs++] = (struct mapped_step){ .action = MAPPED_FAIL, .name = name, .sectors = sectors };
}

static void put_back_table(struct exchange *x, const char *name, const char *target, uint64_t sectors, const char *params)
{
	x->back[x->backs++] = (struct mapped_step){ MAPPED_LOAD, name, target, params, sectors };
}

static bool has_layer(const struct mapped *volume)
{
	return strcmp(volume->name, volume->target);
}

/* The filesystem comes to rest, the snapshot begins; with the first one the volume's target moves into the device below. */
static int exchange_create(struct job *job)
{
	const struct mapped *volume = job->layers.volume;
	char *top = job->layers.open ? crypt_name(&job->stack) : NULL, *below = cow_origin_name(volume->name),
	     *snapshot = cow_snapshot_name(volume->name, job->name), *shown = cow_origin_params(volume->name), *params = NULL;
	bool first = !has_layer(volume);
	struct exchange x = { 0 };
	int result = mapped_table(volume, &params);

	put(&x, MAPPED_FREEZE, top ? top : volume->name);
	if (top)
		put(&x, MAPPED_SUSPEND, volume->name);
	if (first) {
		put_table(&x, below, TARGET_VOLUME, volume->sectors, params);
		put(&x, MAPPED_RESUME, below);
		/* it reads what is below, and whoever reads it would wait for that for ever */
		put_back_failing(&x, snapshot, volume->sectors);
		put_back(&x, MAPPED_SUSPEND, below);
		put_back_table(&x, volume->name, TARGET_VOLUME, volume->sectors, params);
	}
	put(&x, MAPPED_RESUME, snapshot);
	if (first)
		put_table(&x, volume->name, COW_ORIGIN, volume->sectors, shown);
	put(&x, MAPPED_RESUME, volume->name);
	put_back(&x, MAPPED_RESUME, volume->name);
	if (top) {
		put(&x, MAPPED_RESUME, top);
		put_back(&x, MAPPED_RESUME, top);
	}
	result = result ? result : mapped_exchange(x.step, x.steps, x.back, x.backs, &job->blocked);
	free(params);
	free(shown);
	free(snapshot);
	free(below);
	free(top);
	return result;
}

/* The volume's target moves back into the device that shows it. */
static int exchange_plain(struct job *job)
{
	const struct mapped *volume = job->layers.volume;
	char *shown = cow_origin_params(volume->name), *params = NULL;
	struct exchange x = { 0 };
	int result = mapped_table(volume, &params);

	put(&x, MAPPED_SUSPEND, volume->name);
	put(&x, MAPPED_SUSPEND, volume->target);
	put_table(&x, volume->name, TARGET_VOLUME, volume->sectors, params);
	put(&x, MAPPED_RESUME, volume->name);
	put_back(&x, MAPPED_RESUME, volume->target);
	put_back_table(&x, volume->name, COW_ORIGIN, volume->sectors, shown);
	put_back(&x, MAPPED_RESUME, volume->name);
	result = result ? result : mapped_exchange(x.step, x.steps, x.back, x.backs, &job->blocked);
	result = result ? result : mapped_remove(volume->target);
	free(params);
	free(shown);
	return result;
}

/* ------------------------------------------------------------------ taking it apart */

static bool is_ours(const char *name, const char *uuid)
{
	char found[DM_UUID_MAX];
	dev_t number;

	return mapped_look(name, found, &number) && !strcmp(found, uuid);
}

/* By the UUID, so that nobody else's device of that name goes. */
static int remove_device(const char *name, const char *uuid)
{
	return is_ours(name, uuid) ? mapped_remove(name) : LARDER_DONE;
}

static bool another_runs(const struct job *job)
{
	char *shown = cow_volume_uuid(job->cow.volume), uuid[DM_UUID_MAX];
	struct mapped_names names;
	bool some = mapped_scan_below(shown, &names);
	dev_t number;

	for (size_t i = 0; !some && i < names.nr_half; i++)
		some = mapped_look(names.half[i], uuid, &number) && strstr(uuid, BELOW_SNAPSHOT);
	mapped_names_free(&names);
	free(shown);
	return some;
}

/* What an exchange that was never begun has left below the volume. */
static int remove_unused_origin(const struct job *job)
{
	char *name = cow_origin_name(job->cow.name), *uuid = cow_origin_uuid(job->cow.volume);
	int result = remove_device(name, uuid);

	free(uuid);
	free(name);
	return result;
}

/* Its devices, and with the last one the layer that all of them need.  Each may be there or not. */
static int stop_snapshot(struct job *job)
{
	const struct cow_snapshot *one = &job->cow.snapshot[0];
	char *name = cow_snapshot_name(job->cow.name, one->name), *uuid = cow_snapshot_uuid(job->cow.volume, one->uuid),
	     *store = cow_store_name(job->cow.name, one->name), *store_uuid = cow_store_uuid(job->cow.volume, one->uuid);
	int result = remove_device(name, uuid);

	result = result ? result : remove_device(store, store_uuid);
	if (!result && job->layers.volume && !another_runs(job))
		result = has_layer(job->layers.volume) ? exchange_plain(job) : remove_unused_origin(job);
	free(store_uuid);
	free(store);
	free(uuid);
	free(name);
	return result;
}

/* The store carries nothing of ours any more, if it is here. */
static int erase_mark(const struct job *job, bool *here)
{
	const uint8_t *uuid = job->cow.snapshot[0].uuid;
	const struct member *store;
	struct members members;
	struct superblocks found;
	struct device device;
	bool ours = false;
	int result = LARDER_DONE, error;

	members_scan(&members);
	store = cow_store(&members, uuid);
	*here = store;
	if (store) {
		result = claim_member(&device, &found, store->path, LARDER_KIND_OTHER, uuid, &ours);
		error = !result && ours ? superblocks_erase(&device, &found) : 0;
		if (!result && ours) {
			superblocks_free(&found);
			device_close(&device);
		}
		if (error)
			result = complain(LARDER_FAILED, "%s: cannot overwrite the superblock: %s", store->path, strerror(-error));
	}
	members_free(&members);
	return result;
}

/* One that was made for this goes, too. */
static int give_up_store(const struct job *job)
{
	const uint8_t *uuid = job->cow.snapshot[0].uuid;
	char text[UUID_TEXT];
	bool here, made = false;
	int result = erase_mark(job, &here);

	result = result ? result : space_give_back(uuid, &made);
	if (!result && !here && !made)
		remark("%s@%s: its store %s is not here; larder super wipe ends it, where it is", job->word, job->name, uuid_text(uuid, text));
	return result;
}

static int forget(struct job *job)
{
	stack_snapshot_forget(&job->stack, job->name);
	return stack_store(&job->stack);
}

/* ------------------------------------------------------------------ create: what is refused */

/* What is above it must come to rest: one that somebody has put to rest already neither does, nor may it be resumed. */
static int check_top(const struct stack *s, const struct layers *l)
{
	char *name = crypt_name(s);
	int result = l->open && mapped_suspended(name) ? complain(LARDER_BUSY, "%s: is suspended; cryptsetup luksResume %s, or dmsetup resume %s", name, name, name) :
							 LARDER_DONE;

	free(name);
	return result;
}

/* A snapshot is noted on its SSDs, too: what takes no note is refused before a store is wiped for it. */
static int check_cache(const struct stack *s, const struct layers *l)
{
	if (l->cache && !status_is(l->cache->status, "state", "running"))
		return complain(LARDER_FAILED, "%s: state: its cache %s is suspended, or failed, and no snapshot can be noted on its SSDs; larder status %s says what to do",
				s->name, l->cache->name, s->name);
	return LARDER_DONE;
}

/* What the description says is what `create` has made; somebody may have made another filesystem there, or the only one. */
static int check_content(const struct stack *s, const struct layers *l)
{
	bool btrfs = !strcmp(s->fs, "btrfs");
	struct device device;
	int result = LARDER_DONE;

	if (!btrfs) {
		result = device_open(&device, l->top, DEVICE_READ);
		if (result)
			return result;
		result = signature_is(&device, "btrfs", &btrfs);
		device_close(&device);
	}
	if (!result && btrfs)
		result = complain(LARDER_USAGE, "%s: is a btrfs, which must not see a copy of itself, and has snapshots of its own: btrfs subvolume snapshot", s->name);
	return result;
}

static int check_stack(const struct job *job)
{
	const struct stack *s = &job->stack;
	const struct layers *l = &job->layers;
	int result;

	if (l->linear)
		return complain(LARDER_UNSAFE, "%s: runs without larder's module, and begins no snapshot", s->name);
	if (!l->volume)
		return complain(LARDER_NOT_FOUND, "%s: is not started; larder start %s", s->name, s->name);
	if (strcmp(l->volume->name, s->name))
		return complain(LARDER_UNSAFE, "%s: was started as %s; larder volume stop it, and larder start %s", s->name, l->volume->name, s->name);
	if (s->encrypted && !l->open)
		return complain(LARDER_NOT_FOUND, "%s: is locked, and what it holds may not be at rest; larder unlock %s", s->name, s->name);
	if (l->volume->suspended)
		return complain(LARDER_BUSY, "%s: is suspended; dmsetup resume %s", s->name, l->volume->name);
	result = check_cache(s, l);
	result = result ? result : check_top(s, l);
	return result ? result : check_content(s, l); /* last: what is suspended cannot be read */
}

/* Higher than those of all others: by it a store has a UUID that no disk has. */
static uint64_t new_serial(const struct stack *stack)
{
	uint64_t serial = stack_raise(stack->generation, 1);

	for (uint32_t i = 0; i < stack->snapshots; i++)
		if (stack->snapshot[i].serial >= serial)
			serial = stack_raise(stack->snapshot[i].serial, 1);
	return serial;
}

/* What a command that was cut short has left of it: its store, which may be another one, is one no longer, here or not.  Complains. */
static int begin_anew(struct job *job)
{
	struct stack_snapshot *one = stack_snapshot_find(&job->stack, job->name);
	int result;

	if (!one || one->state != SNAPSHOT_CREATING)
		return LARDER_DONE;
	job->anew = true;
	name_devices(job, NULL);
	result = stop_snapshot(job);
	if (result || job->request->claim.dry_run)
		return result;
	result = give_up_store(job);
	result = result ? result : look_again(job);
	one = result ? NULL : stack_snapshot_find(&job->stack, job->name);
	if (one)
		one->serial = new_serial(&job->stack);
	return result;
}

/* Puts it into the description, if it is not there. */
static int check_place(struct job *job)
{
	struct stack_snapshot *one = stack_snapshot_find(&job->stack, job->name);
	uint8_t field[LARDER_STACK_SIZE];
	const char *why;

	if (one && one->state == SNAPSHOT_READY)
		return complain(LARDER_BUSY, "%s@%s: there is a snapshot of that name; larder snapshot remove %s@%s, or take another name", job->word, job->name,
				job->word, job->name);
	if (one && one->state != SNAPSHOT_CREATING)
		return complain(LARDER_BUSY, "%s@%s: is being removed, or is lost; larder snapshot remove %s@%s goes on", job->word, job->name, job->word,
				job->name);
	if (one)
		return LARDER_DONE;
	if (job->stack.snapshots == SNAPSHOTS_MAX)
		return complain(LARDER_UNSAFE, "%s: has %d snapshots, the most that it can have", job->word, SNAPSHOTS_MAX);
	one = &job->stack.snapshot[job->stack.snapshots];
	*one = (struct stack_snapshot){ .serial = new_serial(&job->stack), .state = SNAPSHOT_CREATING };
	snprintf(one->name, sizeof(one->name), "%s", job->name);
	job->stack.snapshots++;
	why = stack_encode(&job->stack, field);
	return why ? complain(LARDER_UNSAFE, "%s: %s with one more snapshot", job->word, why) : LARDER_DONE;
}

/* Has another device than one that this snapshot has, or had, that name?  Complains. */
static int check_name(const struct job *job, const char *name, const char *uuid)
{
	bool ours;

	if (!mapped_name_taken(name))
		return LARDER_DONE;
	ours = is_ours(name, uuid);
	if (ours && job->anew)
		return LARDER_DONE;
	return ours ? complain(LARDER_BUSY, "%s@%s: %s is left of a snapshot that was cut off as it was made: larder snapshot list %s; create that again, or remove it",
			       job->word, job->name, name, job->word) :
		      complain(LARDER_BUSY, "%s@%s: a device is called %s; choose another name", job->word, job->name, name);
}

static int check_names(const struct job *job)
{
	const struct cow_snapshot *one = &job->cow.snapshot[0];
	char *names[3] = { cow_snapshot_name(job->cow.name, job->name), cow_store_name(job->cow.name, job->name), cow_origin_name(job->cow.name) };
	char *uuids[3] = { cow_snapshot_uuid(job->cow.volume, one->uuid), cow_store_uuid(job->cow.volume, one->uuid), cow_origin_uuid(job->cow.volume) };
	int result = LARDER_DONE;

	for (int i = 0; i < 3; i++) {
		if (!result && (i < 2 || !has_layer(job->layers.volume)))
			result = check_name(job, names[i], uuids[i]);
		free(names[i]);
		free(uuids[i]);
	}
	return result ? result : stack_check_snapshot_names(&job->stacks, &job->stack, job->name);
}

/* Could what is on it ask for what it is to keep?  What it lies on is in use, and nobody's to take. */
static int check_store(const struct job *job, const struct device *device)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];

	if (!device->block)
		return complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", device->path);
	if (device->bytes < COW_STORE_MIN)
		return complain(LARDER_FAILED, "%s: size: too small: it has %s, and a store has %s at least", device->path, size_print(a, device->bytes, &human),
				size_print(b, COW_STORE_MIN, &human));
	if (device_lies_on(device->number, job->layers.volume->number))
		return complain(LARDER_UNSAFE, "%s: lies on %s itself, and would wait for itself; give a device that does not", device->path, job->word);
	return LARDER_DONE;
}

/* As take_store() will judge it; shows what is on it. */
static int judge_store(const struct job *job)
{
	struct claim_request claim = job->request->claim;
	struct device device;
	int result;

	claim.dry_run = true;
	claim_note(claim.path);
	result = claim_open(&device, &claim);
	if (result)
		return result;
	result = check_store(job, &device);
	result = result ? result : claim_clear(&device, &claim);
	device_close(&device);
	fflush(stdout);
	return result;
}

/* The description is what it was; what runs may not be.  It keeps what was put into it. */
static int judge_again(struct job *job)
{
	struct stack stack = job->stack;
	int result = stack_check_same(&stack);

	result = result ? result : look_again(job);
	if (result)
		return result;
	job->stack = stack;
	result = check_stack(job);
	if (result)
		return result;
	name_devices(job, NULL);
	return check_names(job);
}

/* May what is on the store go?  Asked without the lock: who is asked may have gone home. */
static int ask(struct job *job)
{
	const struct claim_request *claim = &job->request->claim;
	int result;

	if (!claim->wipe || claim->yes || claim->dry_run || !isatty(STDIN_FILENO))
		return LARDER_DONE;
	result = judge_store(job);
	result = result ? result : turn_confirm(job->word, false, "Wipe it?  All on it will be lost.");
	return result ? result : judge_again(job);
}

/* ------------------------------------------------------------------ create: the steps */

/* A store from the space that the stack has been given.  It is nobody's, and may be wiped.  (A dry run shows how, and what of.) */
static int make_store(struct job *job, struct snapshot_request *request)
{
	const char *group = job->stack.space;
	uint64_t bytes = request->size;
	char size[SIZE_TEXT];
	int result = space_size(group, job->layers.volume->sectors << LARDER_SECTOR_SHIFT, &bytes);

	result = result ? result : space_take(group, job->cow.snapshot[0].uuid, bytes, request->claim.dry_run, &job->taken);
	if (!result && request->claim.dry_run)
		printf("snapshot %s@%s: what changes from then on is kept on %s, %s\n", job->word, job->name, job->taken, size_print(size, bytes, &human));
	request->claim.path = job->taken;
	request->claim.wipe = request->claim.yes = true;
	return result;
}

static int mark(const struct device *device, const uint8_t uuid[16])
{
	union superblock *sb = device_buffer(LARDER_SB_SIZE);
	int result = create_zero(device, COW_STORE_OFFSET, COW_STORE_OFFSET + COW_HEAD);

	create_head(&sb->head, LARDER_KIND_OTHER, device, 0);
	memcpy(sb->head.uuid, uuid, 16);
	result = result ? result : create_superblock(device, sb, false);
	free(sb);
	return result;
}

/* Opened for us alone, judged, wiped, noted (*noted: or begun to), marked. */
static int take_store(struct job *job, bool *noted)
{
	struct claim_request claim = job->request->claim;
	struct cow_snapshot *one = &job->cow.snapshot[0];
	struct device device;
	int result;

	claim.yes = true; /* it has been asked for */
	claim_note(claim.path);
	result = claim_open(&device, &claim);
	if (result)
		return result;
	result = check_store(job, &device);
	one->store = claim.path;
	one->bytes = device.bytes;
	result = result ? result : claim_clear(&device, &claim);
	*noted = !result;
	result = result ? result : note(job, SNAPSHOT_CREATING);
	if (!result && !claim.dry_run)
		result = mark(&device, one->uuid);
	device_close(&device);
	return result;
}

static int prepare(const struct job *job)
{
	const struct cow_snapshot *one = &job->cow.snapshot[0];
	const struct mapped *volume = job->layers.volume;
	char *below = cow_origin_name(volume->name), *below_uuid = cow_origin_uuid(job->cow.volume), *name = cow_snapshot_name(volume->name, one->name),
	     *uuid = cow_snapshot_uuid(job->cow.volume, one->uuid), *params;
	int result = cow_start_store(&job->cow, one);

	/* a device that never had a table cannot be opened, and volume's is loaded when nobody else has that any more */
	if (!result && !has_layer(volume))
		result = mapped_create_suspended(below, below_uuid, "error", volume->sectors, "");
	params = cow_snapshot_params(volume->name, one->name);
	result = result ? result : mapped_create_suspended(name, uuid, COW_SNAPSHOT, volume->sectors, params);
	free(params);
	free(uuid);
	free(name);
	free(below_uuid);
	free(below);
	return result;
}

/* What is written back before it stops need not be while it stands still. */
static void sync_filesystem(const struct job *job)
{
	int file = *job->layers.mounted ? open(job->layers.mounted, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (file < 0)
		return;
	syncfs(file);
	close(file);
}

static void show(const struct job *job)
{
	char size[SIZE_TEXT];

	printf("snapshot %s@%s: what changes from now on is kept on %s, %s\n", job->word, job->name, job->cow.snapshot[0].store,
	       size_print(size, job->cow.snapshot[0].bytes - COW_STORE_OFFSET, &human));
	fflush(stdout);
}

/* Back to where it was before; what cannot be undone `remove` ends. */
static void undo(struct job *job)
{
	const struct stack_snapshot *one;
	int result = look_again(job);

	one = result ? NULL : stack_snapshot_find(&job->stack, job->name);
	if (!one)
		return; /* the first note was not written, and what comes behind it was not begun */
	name_devices(job, NULL);
	/* it was noted on some of the disks: no start may believe a store that nobody writes to any more */
	if (one->state == SNAPSHOT_READY)
		result = note(job, SNAPSHOT_REMOVING);
	result = result ? result : stop_snapshot(job);
	result = result ? result : give_up_store(job);
	result = result ? result : forget(job);
	if (result)
		remark("%s@%s: is half made; larder snapshot remove %s@%s", job->word, job->name, job->word, job->name);
}

static int make(struct job *job)
{
	struct cow_status status;
	int result = prepare(job);

	if (!result && !job->request->claim.dry_run)
		sync_filesystem(job);
	result = result ? result : exchange_create(job);
	if (result || job->request->claim.dry_run)
		return result;
	cow_status(job->cow.name, job->name, &status);
	if (status.state != COW_VALID)
		return complain(LARDER_FAILED, "%s@%s: its store %s was full, or failed, at once", job->word, job->name, job->cow.snapshot[0].store);
	result = look_again(job);
	if (!result && !stack_snapshot_find(&job->stack, job->name))
		result = complain(LARDER_FAILED, "%s@%s: its description is gone", job->word, job->name);
	return result ? result : note(job, SNAPSHOT_READY);
}

int snapshot_create(int argc, char **argv)
{
	static const char usage[] = "larder snapshot create NAME@SNAPSHOT [--store DEVICE [--wipe] [--discard-dirty UUID] [--yes] | --size SIZE] [--dry-run]";
	struct snapshot_request request = { 0 };
	const char *size = NULL;
	const struct argument arguments[] = {
		{ "store", 's', ARGUMENT_TEXT, &request.claim.path, "DEVICE", "where what changes is kept: a disk, a partition, a logical volume; default: one in the volume group that larder set --snapshot-space has named" },
		{ "size", 0, ARGUMENT_TEXT, &size, "SIZE", "of one in that group; default: a tenth of what the stack has, at least 64 MiB, at most what is free" },
		{ "wipe", 'w', ARGUMENT_FLAG, &request.claim.wipe, NULL, "what is on it may be overwritten" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &request.claim.discard_dirty, "UUID", "and dirty data of this cache or volume be LOST with it" },
		{ "yes", 'y', ARGUMENT_FLAG, &request.claim.yes, NULL, "ask nothing" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.claim.dry_run, NULL, "check all, only print what would be done" },
		ARGUMENTS_END
	};
	struct job job = { .request = &request };
	bool noted = false, made;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	if (request.claim.path && !*request.claim.path) /* by the bus */
		request.claim.path = NULL;
	if (request.claim.path && size)
		return complain(LARDER_USAGE, "--size: is for a store that is made; %s has one", request.claim.path);
	if (size && !size_parse(size, &request.size))
		return complain(LARDER_USAGE, "--size: '%s' is no size; as 20G, 512M", size);
	mapped_init(request.claim.dry_run);
	result = begin(&job, argv[first]);
	if (result)
		return result;
	made = !request.claim.path;
	if (made && !*job.stack.space)
		result = complain(LARDER_USAGE,
				  "--store: is missing: which device keeps what changes?  Or larder set %s --snapshot-space GROUP: a volume group from which it is taken",
				  job.word);
	result = result ? result : check_stack(&job);
	result = result ? result : begin_anew(&job);
	if (result)
		return end(&job, result);
	result = check_place(&job);
	if (!result)
		name_devices(&job, NULL);
	result = result ? result : check_names(&job);
	if (!result && made)
		result = make_store(&job, &request);
	if (!result && made && request.claim.dry_run)
		return end(&job, LARDER_DONE);
	result = result ? result : ask(&job);
	result = result ? result : take_store(&job, &noted);
	if (!result) {
		show(&job);
		result = make(&job);
	}
	if (result && noted && !request.claim.dry_run)
		undo(&job);
	else if (result && job.taken && !request.claim.dry_run)
		space_give_back(job.cow.snapshot[0].uuid, NULL);
	if (!result && !request.claim.dry_run)
		printf("snapshot %s@%s: made; writes were blocked for %.1f ms\n", job.word, job.name, (double)job.blocked / 1000);
	return end(&job, result);
}

/* ------------------------------------------------------------------ remove */

static int check_unused(const struct job *job)
{
	char *name = cow_snapshot_name(job->cow.name, job->name), uuid[DM_UUID_MAX], usage[PATH_MAX];
	int result = LARDER_DONE;
	dev_t number;

	if (mapped_look(name, uuid, &number) && device_usage(number, usage, sizeof(usage)))
		result = complain(LARDER_BUSY, "%s: the snapshot is in use: %s; release it first", name, usage);
	free(name);
	return result;
}

int snapshot_remove(int argc, char **argv)
{
	static const char usage[] = "larder snapshot remove NAME@SNAPSHOT [--dry-run]";
	struct snapshot_request request = { 0 };
	const struct argument arguments[] = {
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.claim.dry_run, NULL, "only print the dmsetup commands" },
		ARGUMENTS_END
	};
	struct job job = { .request = &request };
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	mapped_init(request.claim.dry_run);
	result = begin(&job, argv[first]);
	if (result)
		return result;
	if (!stack_snapshot_find(&job.stack, job.name))
		return end(&job, complain(LARDER_NOT_FOUND, "%s@%s: there is no such snapshot; see larder snapshot list %s", job.word, job.name, job.word));
	name_devices(&job, NULL);
	result = check_unused(&job);
	result = result ? result : note(&job, SNAPSHOT_REMOVING);
	result = result ? result : stop_snapshot(&job);
	if (!request.claim.dry_run) {
		result = result ? result : give_up_store(&job);
		result = result ? result : forget(&job);
		if (!result)
			printf("snapshot %s@%s: removed\n", job.word, job.name);
	}
	return end(&job, result);
}

/* ------------------------------------------------------------------ at a start */

int snapshots_give_up(struct stack *stack, const struct argument_list *names, bool older)
{
	for (int i = 0; i < names->number; i++) {
		struct stack_snapshot *one = stack_snapshot_find(stack, names->value[i]);

		if (!one)
			return complain(LARDER_NOT_FOUND, "%s: --drop-snapshot: it has no snapshot %s", stack->name, names->value[i]);
		one->state = SNAPSHOT_LOST;
	}
	for (uint32_t i = 0; older && i < stack->snapshots; i++)
		if (stack->snapshot[i].state == SNAPSHOT_READY)
			return complain(LARDER_UNSAFE, "%s: --discard-newer: its snapshot %s shares what is newer: give that up too, by --drop-snapshot %s", stack->name,
					stack->snapshot[i].name, stack->snapshot[i].name);
	return names->number ? stack_store(stack) : LARDER_DONE;
}

static int note_lost(struct stack *stack)
{
	uint8_t volume[16], uuid[16];
	unsigned lost = 0;

	stack_part(stack, "volume", volume);
	for (uint32_t i = 0; i < stack->snapshots; i++) {
		stack_snapshot_uuid(stack, &stack->snapshot[i], uuid);
		if (stack->snapshot[i].state != SNAPSHOT_READY || !cow_is_lost(volume, uuid))
			continue;
		stack->snapshot[i].state = SNAPSHOT_LOST;
		remark("%s@%s: is lost: its store was full, or failed; larder snapshot remove %s@%s", stack->name, stack->snapshot[i].name, stack->name,
		       stack->snapshot[i].name);
		lost++;
	}
	return lost ? stack_store_note(stack) : LARDER_DONE;
}

/* Where it cannot be written the copy stays as it was: whoever tries again has it to note. */
int snapshots_note_lost_in(struct stack *stack)
{
	struct stack noted = *stack;
	int result = note_lost(&noted);

	if (!result)
		*stack = noted;
	return result;
}

int snapshots_note_lost(const char *name)
{
	const struct found *found = NULL;
	struct stacks stacks;
	struct stack stack;
	int result = stacks_scan(&stacks);

	result = result ? result : stack_find(&stacks, name, &found);
	if (!result)
		stack = found->stack;
	stacks_free(&stacks);
	return result ? result : note_lost(&stack);
}

int snapshots_note_lost_of(const uint8_t volume[16])
{
	struct stacks stacks;
	struct stack stack = { 0 };
	int result = stacks_scan(&stacks);

	for (size_t i = 0; !result && i < stacks.number; i++) {
		uint8_t part[16];

		stack_part(&stacks.found[i].stack, "volume", part);
		if (!memcmp(part, volume, 16))
			stack = stacks.found[i].stack;
	}
	stacks_free(&stacks);
	return result ? result : note_lost(&stack);
}
