// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder snapshot create, remove: what a stack was at one moment, beside the stack that goes on.  Its devices (lib/cow.h) are made
 * and taken away by snapshot_devices.c; what keeps the changes is taken, marked and given up by snapshot_store.c.
 *
 * What is on the devices after a kill, or a power cut, in each step:
 *
 *	create: the store is wiped	nothing of ours
 *	it is noted as `creating`	a start passes over it: nobody was told that there is one
 *	(in a group of LVM the store	likewise, or a volume with the name that follows from the note: it has no other one before it is
 *	is made by now)			gone
 *	the store is marked		likewise
 *	all moves over to the new	a process that no kill reaches ends it, or goes back; a power cut takes it away, the note is
 *	devices, in one stop		as it was
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
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "claim.h"
#include "crypt_layer.h"
#include "message.h"
#include "root_image.h"
#include "signature.h"
#include "size.h"
#include "snapshot_devices.h"
#include "snapshot_space.h"
#include "snapshot_store.h"
#include "stack_layers.h"
#include "stack_names.h"
#include "stack_room.h"
#include "stack_steps.h"
#include "stack_store.h"
#include "status.h"
#include "turn.h"
#include "verbs.h"

static const struct size_format human = { 'h', true };

struct job {
	struct claim_request claim; /* path: of the store; NULL: it is taken from the space of the stack */
	uint64_t size; /* bytes of such a store; 0: as the stack asks for */
	const char *called; /* NAME@SNAPSHOT */
	char *word; /* NAME alone; SNAPSHOT is behind its end */
	const char *name; /* SNAPSHOT, there */
	struct stacks stacks;
	struct stack stack;
	struct layers layers;
	struct cow cow; /* of this snapshot alone */
	char *taken; /* path of a store that was made for this */
	bool anew; /* what a command that was cut short has left of it has gone, or goes where this is no dry run */
	bool noted; /* the description was to get it, and may have it */
	bool marked; /* its store was to get its mark, and may have it */
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
	job->layers = (struct layers){ 0 };
	stacks_free(&job->stacks);
}

/* On an error nothing is seen any more. */
static int look_again(struct job *job)
{
	look_away(job);
	return look(job);
}

static int end(struct job *job, int result)
{
	look_away(job);
	free(job->taken);
	free(job->word);
	return result;
}

/* On an error there is nothing to end. */
static int begin(struct job *job, const char *called)
{
	char *at;
	int result;

	job->called = called;
	job->word = must_print("%s", called);
	at = strrchr(job->word, '@');
	if (!at || at == job->word || !snapshot_name_valid(at + 1)) {
		result = complain(LARDER_USAGE, "%s: is not NAME@SNAPSHOT: a stack, and 1 to %d of A-Z a-z 0-9 # + . : = _ -, not beginning with - or a dot", called,
				  SNAPSHOT_NAME_MAX - 1);
	} else {
		*at = 0;
		job->name = at + 1;
		turn_take();
		result = look(job);
	}
	result = result ? result : stack_check_ready(&job->stacks, &job->stack);
	return result ? end(job, result) : LARDER_DONE;
}

/* This snapshot, which the description has, as cow.h has it. */
static void name_devices(struct job *job)
{
	const struct stack_snapshot *one = stack_snapshot_find(&job->stack, job->name);
	struct cow_snapshot *to = &job->cow.snapshot[0];

	job->cow = (struct cow){ .name = job->layers.volume ? job->layers.volume->name : job->stack.name, .number = 1 };
	stack_part(&job->stack, "volume", job->cow.volume);
	snprintf(to->name, sizeof(to->name), "%s", job->name);
	stack_snapshot_uuid(&job->stack, one, to->uuid);
}

static int note(struct job *job, enum snapshot_state state)
{
	stack_snapshot_find(&job->stack, job->name)->state = state;
	return job->claim.dry_run ? LARDER_DONE : stack_store(&job->stack);
}

/* Its devices, then its store.  (A dry run shows the first.) */
static int take_apart(const struct job *job)
{
	int result = snapshot_devices_stop(&job->cow, job->layers.volume);
	bool never = job->noted && !job->marked; /* of our own, and nobody is to look for it */

	return result || job->claim.dry_run ? result : snapshot_store_give_up(job->cow.snapshot[0].uuid, job->stack.encrypted, never ? NULL : job->called);
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
	bool btrfs = !strcmp(s->fs, "btrfs"), lvm = false;
	struct device device;
	int result = LARDER_DONE;

	if (!btrfs) {
		result = device_open(&device, l->top, DEVICE_READ);
		if (result)
			return result;
		result = signature_is(&device, "btrfs", &btrfs);
		result = result ? result : signature_is(&device, "LVM2_member", &lvm);
		device_close(&device);
	}
	if (!result && btrfs)
		result = complain(LARDER_USAGE, "%s: is a btrfs, which must not see a copy of itself, and has snapshots of its own: btrfs subvolume snapshot", s->name);
	else if (!result && lvm)
		result = complain(LARDER_USAGE,
				  "%s: is a physical volume of LVM, which activates and changes no group one of whose volumes it sees twice, and has snapshots of its own: lvcreate --snapshot",
				  s->name);
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
		return complain(LARDER_UNSAFE, "%s: was started as %s; larder volume stop it, and larder start %s", s->name,
				l->volume->name, s->name);
	if (s->encrypted && !l->open)
		return complain(LARDER_NOT_FOUND, "%s: is locked, and what it holds may not be at rest; larder unlock %s", s->name,
				s->name);
	result = snapshot_devices_check_running(l->volume);
	result = result ? result : check_cache(s, l);
	result = result ? result : check_top(s, l);
	return result ? result : check_content(s, l); /* last: what is suspended cannot be read */
}

/* Higher than those of all others, and than any that there was: by it a store has a UUID that no disk has. */
static int give_serial(const struct job *job, struct stack_snapshot *one)
{
	const struct stack *stack = &job->stack;
	uint64_t last = stack->generation;

	for (uint32_t i = 0; i < stack->snapshots; i++)
		if (stack->snapshot[i].serial > last)
			last = stack->snapshot[i].serial;
	one->serial = stack_raise(last, 1);
	if (one->serial > last)
		return LARDER_DONE;
	return complain(LARDER_UNSAFE, "%s: generation: can be raised no more, and a store could be taken for an earlier one; copy what it holds to another stack",
			job->word);
}

/*
 * What a command that was cut short has left of it goes: its store, which may be another one, is one no longer, here or not.
 * Complains.
 */
static int begin_anew(struct job *job)
{
	struct stack_snapshot *one = stack_snapshot_find(&job->stack, job->name);
	int result;

	if (!one || one->state != SNAPSHOT_CREATING)
		return LARDER_DONE;
	job->anew = true;
	name_devices(job);
	result = take_apart(job);
	if (result || job->claim.dry_run)
		return result;
	result = look_again(job);
	one = result ? NULL : stack_snapshot_find(&job->stack, job->name);
	return one ? give_serial(job, one) : result;
}

/* Puts it into the description, if it is not there. */
static int check_place(struct job *job)
{
	struct stack_snapshot *one = stack_snapshot_find(&job->stack, job->name), new = { .state = SNAPSHOT_CREATING };
	struct stack was = job->stack;
	const char *why;
	int result;

	if (one && one->state == SNAPSHOT_READY)
		return complain(LARDER_BUSY, "%s: there is a snapshot of that name; larder snapshot remove %s, or take another name",
				job->called, job->called);
	if (one && one->state != SNAPSHOT_CREATING)
		return complain(LARDER_BUSY, "%s: is being removed, or is lost; larder snapshot remove %s goes on", job->called,
				job->called);
	if (one)
		return LARDER_DONE;
	if (job->stack.snapshots == SNAPSHOTS_MAX)
		return complain(LARDER_UNSAFE, "%s: has %d snapshots, the most that it can have", job->word, SNAPSHOTS_MAX);
	result = give_serial(job, &new);
	if (result)
		return result;
	snprintf(new.name, sizeof(new.name), "%s", job->name);
	job->stack.snapshot[job->stack.snapshots++] = new;
	why = stack_lacks_room(&job->stack, &was);
	return why ? complain(LARDER_UNSAFE, "%s: %s with one more snapshot", job->word, why) : LARDER_DONE;
}

/* Names its devices. */
static int check_names(struct job *job)
{
	int result;

	name_devices(job);
	result = snapshot_devices_check_names(&job->cow, job->layers.volume, job->word, job->anew);
	return result ? result : stack_check_snapshot_names(&job->stacks, &job->stack, job->name);
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
	return result ? result : check_names(job);
}

/* May what is on the store go?  Asked without the lock: who is asked may have gone home. */
static int ask(struct job *job)
{
	const struct claim_request *claim = &job->claim;
	int result;

	if (!claim->wipe || claim->yes || claim->dry_run || !isatty(STDIN_FILENO))
		return LARDER_DONE;
	result = snapshot_store_judge(claim, job->layers.volume, job->word);
	result = result ? result : turn_confirm(job->word, false, "Wipe it?  All on it will be lost.");
	return result ? result : judge_again(job);
}

/* ------------------------------------------------------------------ create: the steps */

static int note_begun(struct job *job)
{
	job->noted = true;
	return note(job, SNAPSHOT_CREATING);
}

/*
 * A store from the space that the stack has been given.  It is nobody's, and may be wiped.  Noted first: its name follows from the note, and nobody else
 * could find it.  (A dry run shows how, and what of.)
 */
static int make_store(struct job *job)
{
	const char *group = job->stack.space;
	uint64_t bytes = job->size;
	char size[SIZE_TEXT];
	int result = space_size(group, job->layers.volume->sectors << LARDER_SECTOR_SHIFT, &bytes);

	result = result ? result : note_begun(job);
	result = result ? result : space_take(group, job->cow.snapshot[0].uuid, bytes, job->claim.dry_run, &job->taken);
	if (!result && job->claim.dry_run)
		printf("snapshot %s: what changes from then on is kept on %s, %s\n", job->called, job->taken,
		       size_print(size, bytes, &human));
	job->claim.path = job->taken;
	job->claim.wipe = job->claim.yes = true;
	return result;
}

/* Opened for us alone, judged, wiped, noted if it was not, marked. */
static int take_store(struct job *job)
{
	struct cow_snapshot *one = &job->cow.snapshot[0];
	struct device device;
	int result;

	job->claim.yes = true; /* it has been asked for */
	result = snapshot_store_claim(&device, &job->claim, job->layers.volume, job->word);
	if (result)
		return result;
	one->store = job->claim.path;
	one->bytes = device.bytes;
	result = job->noted ? LARDER_DONE : note_begun(job);
	if (!result && !job->claim.dry_run) {
		job->marked = true;
		result = snapshot_store_mark(&device, one->uuid);
	}
	device_close(&device);
	return result;
}

static void show(const struct job *job)
{
	const struct cow_snapshot *one = &job->cow.snapshot[0];
	char size[SIZE_TEXT];

	printf("snapshot %s: what changes from now on is kept on %s, %s\n", job->called, one->store,
	       size_print(size, one->bytes - COW_STORE_OFFSET, &human));
	fflush(stdout);
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

static int make_devices(struct job *job)
{
	char *top = job->layers.open ? crypt_name(&job->stack) : NULL;
	int result = snapshot_devices_make(&job->cow, job->layers.volume);

	if (!result && !job->claim.dry_run)
		sync_filesystem(job);
	result = result ? result : snapshot_devices_show(&job->cow, job->layers.volume, top, &job->blocked);
	free(top);
	return result;
}

static int make(struct job *job)
{
	struct cow_status status;
	int result = make_devices(job);

	if (result || job->claim.dry_run)
		return result;
	cow_status(job->cow.volume, job->cow.snapshot[0].uuid, &status);
	if (status.state != COW_VALID)
		return complain(LARDER_FAILED, "%s: its store %s was full, or failed, at once", job->called,
				job->cow.snapshot[0].store);
	result = look_again(job);
	if (!result && !stack_snapshot_find(&job->stack, job->name))
		result = complain(LARDER_FAILED, "%s: its description is gone", job->called);
	result = result ? result : mount_note_remote(&job->stack);
	return result ? result : note(job, SNAPSHOT_READY);
}

/* Back to where it was before; what cannot be undone `remove` ends. */
static void undo(struct job *job)
{
	const struct stack_snapshot *one;
	int result = look_again(job);

	one = result ? NULL : stack_snapshot_find(&job->stack, job->name);
	if (!result && !one)
		return; /* the first note was not written, and what comes behind it was not begun */
	if (one)
		name_devices(job);
	/* it was noted on some of the disks: no start may believe a store that nobody writes to any more */
	if (one && one->state == SNAPSHOT_READY)
		result = note(job, SNAPSHOT_REMOVING);
	result = result ? result : take_apart(job);
	result = result ? result : forget(job);
	if (result)
		remark("%s: is half made; larder snapshot remove %s", job->called, job->called);
}

static int create(struct job *job)
{
	bool made = !job->claim.path;
	int result = LARDER_DONE;

	if (made && !*job->stack.space)
		result = complain(LARDER_USAGE,
				  "--store: is missing: which device keeps what changes?  Or larder set %s --snapshot-space GROUP: a volume group from which it is taken",
				  job->word);
	result = result ? result : check_stack(job);
	result = result ? result : begin_anew(job);
	result = result ? result : check_place(job);
	result = result ? result : check_names(job);
	if (!result && made)
		result = make_store(job);
	if (result || (made && job->claim.dry_run))
		return result;
	result = ask(job);
	result = result ? result : take_store(job);
	if (result)
		return result;
	show(job);
	return make(job);
}

int snapshot_create(int argc, char **argv)
{
	static const char usage[] = "larder snapshot create NAME@SNAPSHOT [--store DEVICE [--wipe] [--discard-dirty UUID] [--yes] | --size SIZE] [--dry-run]";
	struct job job = { 0 };
	const char *size = NULL;
	const struct argument arguments[] = {
		{ "store", 's', ARGUMENT_TEXT, &job.claim.path, "DEVICE", "where what changes is kept: a disk, a partition, a logical volume; default: one in the volume group that larder set --snapshot-space has named" },
		{ "size", 0, ARGUMENT_TEXT, &size, "SIZE", "of one in that group; default: a tenth of what the stack has, at least 64 MiB, at most what is free" },
		{ "wipe", 'w', ARGUMENT_FLAG, &job.claim.wipe, NULL, "what is on it may be overwritten" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &job.claim.discard_dirty, "UUID", "and dirty data of this cache or volume be LOST with it" },
		{ "yes", 'y', ARGUMENT_FLAG, &job.claim.yes, NULL, "ask nothing" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &job.claim.dry_run, NULL, "check all, only print what would be done" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	if (job.claim.path && size)
		return complain(LARDER_USAGE, "--size: is for a store that is made; %s has one", job.claim.path);
	if (size && !size_parse(size, &job.size))
		return complain(LARDER_USAGE, "--size: '%s' is no size; as 20G, 512M", size);
	mapped_init(job.claim.dry_run);
	result = begin(&job, argv[first]);
	if (result)
		return result;
	result = create(&job);
	if (job.claim.dry_run)
		return end(&job, result);
	if (result && job.noted) {
		undo(&job);
	} else if (!result) {
		printf("snapshot %s: made; writes were blocked for %.1f ms\n", job.called, (double)job.blocked / 1000);
		remark_of_root(job.cow.volume, job.called, job.cow.snapshot[0].store); /* with all its snapshots, or not at all */
	}
	return end(&job, result);
}

/* ------------------------------------------------------------------ remove */

/* That it is being removed is noted first, by the cache while that runs. */
static int check_takes_note(const struct job *job)
{
	const struct mapped *cache = job->layers.cache;

	if (!cache || status_is(cache->status, "state", "running"))
		return LARDER_DONE;
	return complain(LARDER_BUSY, "%s: state: its cache %s is suspended, or has failed, and takes no note while it runs: larder stop %s, then larder snapshot remove %s",
			job->called, cache->name, job->word, job->called);
}

int snapshot_remove(int argc, char **argv)
{
	static const char usage[] = "larder snapshot remove NAME@SNAPSHOT [--dry-run]";
	struct job job = { 0 };
	const struct argument arguments[] = {
		{ "dry-run", 'n', ARGUMENT_FLAG, &job.claim.dry_run, NULL, "only print the dmsetup commands" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	mapped_init(job.claim.dry_run);
	result = begin(&job, argv[first]);
	if (result)
		return result;
	if (!stack_snapshot_find(&job.stack, job.name))
		return end(&job, complain(LARDER_NOT_FOUND, "%s: there is no such snapshot; see larder snapshot list %s", job.called, job.word));
	name_devices(&job);
	result = snapshot_devices_check_unused(&job.cow);
	if (!result && job.layers.volume)
		result = snapshot_devices_check_running(job.layers.volume);
	result = result ? result : check_takes_note(&job);
	result = result ? result : note(&job, SNAPSHOT_REMOVING);
	result = result ? result : take_apart(&job);
	if (!result && !job.claim.dry_run) {
		result = forget(&job);
		if (!result)
			printf("snapshot %s: removed\n", job.called);
	}
	return end(&job, result);
}
