// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The steps by which a stack is started, and stopped: each layer by itself.
 *
 * Every step looks anew at what is there: a layer that was started a moment ago shows devices that were not there before.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cow.h"
#include "crypt_layer.h"
#include "device.h"
#include "fstab.h"
#include "integrity.h"
#include "message.h"
#include "program.h"
#include "running.h"
#include "stack_age.h"
#include "stack_layers.h"
#include "stack_legs.h"
#include "stack_snapshot.h"
#include "stack_steps.h"
#include "turn.h"
#include "verbs.h"

#define SYSTEMCTL_NO_UNIT 5 /* its exit status, as LSB has it for "not installed" */

/* What one step works on: all stacks, and the layers of this one. */
struct sight {
	struct stacks stacks;
	struct layers layers;
};

static int look(const struct stack *stack, struct sight *sight)
{
	int result = stacks_scan(&sight->stacks);

	if (!result)
		layers_find(&sight->stacks, stack, &sight->layers);
	return result;
}

static void look_away(struct sight *sight)
{
	layers_free(&sight->layers);
	stacks_free(&sight->stacks);
}

/* ------------------------------------------------------------------ start */

int start_cache(const struct stack *stack, unsigned flags)
{
	char uuid[UUID_TEXT];
	char *words[] = { "start", uuid, NULL, NULL, NULL };
	int number = 2;
	struct sight sight;
	bool runs;
	int result = look(stack, &sight);

	if (result)
		return result;
	runs = sight.layers.cache;
	look_away(&sight);
	if (runs)
		return LARDER_DONE;
	uuid_text(stack->cache, uuid);
	if (flags & START_DEGRADED)
		words[number++] = "--degraded";
	if (flags & START_IMPORT)
		words[number++] = "--import";
	return cache_start(number, words);
}

bool stack_cache_here(const struct stack *stack)
{
	struct sight sight;
	bool here;

	if (look(stack, &sight))
		return false;
	here = sight.layers.cache || member_cache(&sight.stacks.members, stack->cache);
	look_away(&sight);
	return here;
}

/* Without a log of what was being written, parity that was cut off says something wrong of what is missing. */
static int check_write_hole(const struct stack *stack, const struct md_rest *rest, unsigned flags)
{
	char uuid[UUID_TEXT];

	if (!rest->write_hole)
		return LARDER_DONE;
	uuid_text(stack->uuid, uuid);
	if (stack->state != STACK_READY)
		return complain(LARDER_UNSAFE,
				"%s: its array was written to when it was cut off, and lacks %u of its %u disks: what is computed in their place may be wrong, and nothing says where (write hole); it is half made, or being removed: attach them, or larder remove %s",
				stack->name, rest->missing, rest->places, stack->name);
	if (!(flags & START_WRITE_HOLE))
		return complain(LARDER_UNSAFE,
				"%s: its array was written to when it was cut off, and lacks %u of its %u disks: what is computed in their place may be wrong, and nothing says where (write hole); attach them; if they are gone: larder start %s --degraded --accept-write-hole %s, and then check the filesystem",
				stack->name, rest->missing, rest->places, stack->name, uuid);
	remark("%s: its array starts WITHOUT %u of its %u disks, and with parity that may be wrong: what was written last, and what lies beside it, may read as something else, and nothing says where; check the filesystem, and compare with a backup",
	       stack->name, rest->missing, rest->places);
	return LARDER_DONE;
}

/*
 * Disks of a mirror that has just started without them, as mdadm takes no disks together that name different numbers of them.  They were told nothing of
 * the change, and of what was written since, which the bitmap has: as they were in the array until then, md had flushed them before it cleared any of that.
 * One that is not taken back keeps nobody from starting without it.
 */
static void take_back_torn(const struct stack *stack, const uint8_t uuid[16], const struct md_array *array, const struct md_rest *rest)
{
	struct md_array now;

	if (!rest->torn)
		return;
	md_find(uuid, &now);
	for (size_t i = 0; *now.node && i < array->number; i++) {
		bool all = false;

		if (rest->torn >> i & 1 && !md_take_back(now.node, array->leg[i], &all))
			printf("%s: the superblock of %s names another number of disks than that of others, as a power cut leaves it while that is changed: it is taken back into its array, and %s\n",
			       stack->name, array->leg[i], all ? "all is copied to it" : "gets what it lacks");
	}
	md_free(&now);
}

/* Of a mirror each half of which was used without the other, the one that the SSDs have not seen last: md might start that one, and it would be refused. */
static void leave_out_behind(const struct stacks *stacks, const struct stack *stack, struct md_array *array)
{
	uint64_t behind = stack_disks_behind(&stacks->members, stack, array);

	for (size_t i = 0; i < array->number; i++)
		if (behind >> i & 1)
			remark("%s: its array starts WITHOUT %s, which is older than what its SSDs have seen, and was used without the others", stack->name, array->leg[i]);
	md_leave_out(array, behind);
}

int assemble_array(const struct stacks *stacks, const struct stack *stack, struct md_array *array, unsigned flags)
{
	uint8_t part[16];
	struct md_rest rest;
	int result = md_leave_out_read_only(array, flags & START_DEGRADED);

	if (!result && !(flags & START_OLDER))
		leave_out_behind(stacks, stack, array);
	md_rest(array->super, array->number, &rest);
	result = result ? result : check_write_hole(stack, &rest, flags);
	stack_part(stack, "md", part);
	result = result ? result : md_assemble(part, array, flags & START_DEGRADED, rest.write_hole);
	if (!result)
		take_back_torn(stack, part, array, &rest);
	return result;
}

/* As udev has put it together, of a disk that is read-only as well: without that one, if it is to start degraded.  Not as somebody has made it. */
static int start_read_only(const struct stacks *stacks, const struct stack *stack, struct md_array *array, unsigned flags)
{
	char *why = md_why_read_only(array->device, array->node, stack->name);
	int result = LARDER_DONE;
	bool by_a_disk = false;

	for (size_t i = 0; i < array->number; i++)
		by_a_disk |= device_is_read_only(array->leg_number[i]);
	if (!by_a_disk || !(flags & START_DEGRADED))
		result = complain(LARDER_UNSAFE, "%s: %s: %s", stack->name, array->node, why);
	free(why);
	result = result ? result : md_stop(array->node);
	return result ? result : assemble_array(stacks, stack, array, flags);
}

int start_array(const struct stack *stack, unsigned flags)
{
	struct sight sight;
	int result = *stack->integrity ? start_legs(stack->name, stack->uuid, flags) : LARDER_DONE;
	size_t number;

	if (!result && *stack->raid) {
		result = look(stack, &sight);
		if (result && *stack->integrity)
			release_legs(stack);
	}
	if (result || !*stack->raid)
		return result;
	number = sight.layers.array.number;
	if (*sight.layers.array.node)
		result = !*sight.layers.node && device_is_read_only(sight.layers.array.device) ?
				 start_read_only(&sight.stacks, stack, &sight.layers.array, flags) :
				 LARDER_DONE;
	else if (!number)
		result = complain(LARDER_NOT_FOUND, "%s: no disk of its array is here", stack->name);
	else if (number < stack->legs && !(flags & START_DEGRADED))
		result = complain(LARDER_UNSAFE, "%s: only %zu of the %u disks of its array are here; attach the others, or %s%s", stack->name, number, stack->legs,
				  stack->state == STACK_READY ? "start with --degraded" : "larder remove ", stack->state == STACK_READY ? "" : stack->name);
	else
		result = assemble_array(&sight.stacks, stack, &sight.layers.array, flags);
	look_away(&sight);
	if (*stack->integrity && result)
		release_legs(stack);
	else if (*stack->integrity)
		legs_expect_errors(stack);
	/* one that is not taken back keeps nobody from starting without it */
	if (!result)
		legs_take_back(stack, NULL);
	return result;
}

int start_volume(const struct stack *stack, unsigned flags)
{
	char uuid[UUID_TEXT], *class = must_print("class=%s", stack->class);
	char *words[] = { "start", uuid, "--name", (char *)stack->name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL };
	int number = 4;
	struct sight sight;
	uint8_t part[16];
	int result = look(stack, &sight);

	if (flags & START_IMPORT)
		words[number++] = "--import";
	if (flags & START_WITHOUT_MODULE) {
		words[number++] = "--without-module";
	} else if (*stack->class) {
		words[number++] = "--option";
		words[number++] = class;
	}
	if (flags & START_WITHOUT_CACHE)
		words[number++] = "--without-cache";
	if (flags & START_STALE && !(flags & START_WITHOUT_MODULE)) { /* it leaves its cache anyway */
		words[number++] = "--option";
		words[number++] = "stale=discard";
	}
	if (!result) {
		bool runs = *sight.layers.node;

		look_away(&sight);
		stack_part(stack, "volume", part);
		uuid_text(part, uuid);
		if (!runs)
			result = volume_start(number, words);
	}
	free(class);
	return result;
}

void crypt_mark(const struct stack *stack, bool locked)
{
	uint8_t part[16];

	stack_part(stack, "crypt", part);
	if (locked)
		stopped_set(part);
	else
		stopped_clear(part);
}

bool crypt_is_marked(const struct stack *stack)
{
	uint8_t part[16];

	stack_part(stack, "crypt", part);
	return stopped_is(part);
}

static void restart_unit(const char *volume)
{
	const char *escape[] = { "systemd-escape", "--template=larder-unlock@.service", "--", volume, NULL };
	char *unit, *said = NULL;
	int code = program_run(escape, &unit);

	if (!code)
		code = program_run((const char *const[]){ "systemctl", "try-restart", "--no-block", "--", unit, NULL }, &said);
	if (code)
		remark("%s: nobody is asked for its passphrase: %s; larder unlock goes on", volume, said ? said : unit);
	free(unit);
	free(said);
}

void crypt_ask_again(const struct stack *stack)
{
	const char *volume;
	struct sight sight;

	if (!fstab_is_systemds() || look(stack, &sight))
		return;
	volume = strrchr(sight.layers.node, '/');
	if (volume && !sight.layers.open)
		restart_unit(volume + 1);
	look_away(&sight);
}

bool stack_locked(const struct stack *stack)
{
	struct sight sight;
	bool locked;

	if (!stack->encrypted || look(stack, &sight))
		return false;
	locked = !sight.layers.open;
	look_away(&sight);
	return locked;
}

/* dm-integrity alone, as a kill between the two leaves it. */
static int stop_tags(const struct stack *stack)
{
	char dm_uuid[DM_UUID_MAX], *name = crypt_tags_name(stack);
	dev_t number;
	int result = LARDER_DONE;

	if (mapped_look(name, dm_uuid, &number) && crypt_is_ours(stack, dm_uuid))
		result = mapped_remove(name);
	free(name);
	return result;
}

#define HALF_TRIES 30
#define HALF_US	   100000u

/*
 * As a kill between two steps of libcryptsetup leaves it.  Who is between them just now, for which a module may have to be loaded, is so no more by the
 * end of this.
 */
static int stop_half(const struct stack *stack)
{
	dev_t number;
	bool half;
	char *name;
	int result;

	for (int i = 0; i < HALF_TRIES; i++) {
		crypt_look(stack, &number, &half);
		if (!half)
			return LARDER_DONE;
		usleep(HALF_US);
	}
	name = crypt_name(stack);
	result = mapped_remove(name);
	free(name);
	return result;
}

/* How its LUKS layer is to be opened. */
struct opening {
	const struct secret *secret; /* NULL: by its tokens */
	bool *wrong;
	unsigned only; /* as in struct luks_by */
	bool agent; /* opens nothing that somebody locks meanwhile */
	unsigned outcome;
};

/* From here on it is opened to the end, or not at all: whoever locks it ends an agent's process by SIGTERM. */
static bool is_wanted(void *data)
{
	sigset_t end;

	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	return !crypt_is_marked(data);
}

static int open_by(const struct stack *stack, const char *node, const char *name, struct opening *how)
{
	const struct luks_by by = { .only = how->only, .wanted = how->agent ? is_wanted : NULL, .data = (void *)stack };
	sigset_t before;
	int result;

	sigprocmask(SIG_BLOCK, NULL, &before);
	if (how->secret)
		result = luks_unlock(node, name, how->secret, how->wrong);
	else
		result = luks_unlock_by_token(node, name, &by, &how->outcome);
	how->outcome = how->secret && !result ? LUKS_OPENED : how->outcome;
	if (how->outcome == LUKS_OPENED && how->agent && crypt_is_marked(stack)) {
		/* who locked it has looked before it was open, and waits no more */
		how->outcome = LUKS_NO_TOKEN;
		result = luks_lock(name);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return result;
}

static int start_crypt_by(const struct stack *stack, struct opening *how)
{
	struct sight sight;
	char *name;
	int result = stack->encrypted ? look(stack, &sight) : LARDER_DONE;

	if (result || !stack->encrypted)
		return result;
	name = crypt_name(stack);
	if (sight.layers.open) {
		how->outcome = LUKS_OPENED;
	} else if (!*sight.layers.node) {
		result = complain(LARDER_NOT_FOUND, "%s: is not started; larder start %s", stack->name, stack->name);
	} else {
		result = stop_half(stack);
		if (!result && crypt_is_open(stack)) /* by then */
			how->outcome = LUKS_OPENED;
		else if (!result && *stack->aead)
			result = stop_tags(stack);
		if (!result && how->outcome != LUKS_OPENED)
			result = open_by(stack, sight.layers.node, name, how);
		if (how->outcome == LUKS_OPENED && !how->agent)
			crypt_mark(stack, false);
	}
	free(name);
	look_away(&sight);
	return result;
}

int start_crypt(const struct stack *stack, const struct secret *secret, unsigned flags, bool *wrong)
{
	return start_crypt_by(stack, &(struct opening){ .secret = secret, .agent = flags & CRYPT_BY_AGENT, .wrong = wrong });
}

int start_crypt_by_token(const struct stack *stack, unsigned flags, unsigned *outcome)
{
	struct opening how = { .only = flags & LUKS_LATER, .agent = flags & CRYPT_BY_AGENT };
	int result = start_crypt_by(stack, &how);

	*outcome = how.outcome;
	return result;
}

/*
 * A mount of our own beside systemd's would race with it, or be undone by it until it has heard of the device.  False: it has no unit for
 * it, as when somebody took the line out of fstab; who does not wait is a unit himself (larder-unlock@.service), and confined: he mounts nothing.
 */
static bool mount_by_systemd(const struct stack *stack, bool wait, int *code, char **said)
{
	const char *words[] = { "systemctl", "start", wait ? "--quiet" : "--no-block", "--", stack->mount, NULL };

	if (!fstab_is_systemds())
		return false;
	*code = program_run(words, said);
	if (*code != SYSTEMCTL_NO_UNIT)
		return true;
	if (!wait) {
		remark("%s: is not mounted: fstab has no line for %s; larder set %s --mount %s writes one, and mounts it", stack->name, stack->mount, stack->name,
		       stack->mount);
		*code = 0;
		return true;
	}
	free(*said);
	return false;
}

/* By the line in fstab, where there is one, which somebody may have given other options. */
static int mount_by_program(const struct stack *stack, const char *node, char **said)
{
	const char *by_fstab[] = { "mount", stack->mount, NULL }, *plain[] = { "mount", "-t", stack->fs, node, stack->mount, NULL };

	return program_run(fstab_mounts(stack->uuid, stack->mount) ? by_fstab : plain, said);
}

/* Who mounts by fstab, or by a unit that is active, may have found something else there, and be content with it. */
static int check_mounted(const struct stack *stack, const char *node)
{
	struct sight sight;
	int result = look(stack, &sight);

	if (result)
		return result;
	if (!*sight.layers.mounted)
		result = complain(LARDER_FAILED,
				  "%s: is not mounted on %s: something else is, or fstab has another line for it; see findmnt %s; unmount that, or take its line out, then larder start %s",
				  node, stack->mount, stack->mount, stack->name);
	look_away(&sight);
	return result;
}

int start_mount(const struct stack *stack, bool wait)
{
	struct sight sight;
	int result = *stack->mount ? look(stack, &sight) : LARDER_DONE, code;
	bool later = false, held;
	char *said;

	if (result || !*stack->mount)
		return result;
	if (!*sight.layers.mounted) {
		/* fsck takes its time, and what it is mounted on may be another stack's, which is yet to be started */
		held = turn_pause();
		if (mount_by_systemd(stack, wait, &code, &said))
			later = !wait;
		else
			code = mount_by_program(stack, sight.layers.top, &said);
		turn_resume(held);
		if (code)
			result = complain(LARDER_FAILED, "%s: cannot mount it on %s: %s", sight.layers.top, stack->mount, said);
		else if (!later)
			result = check_mounted(stack, sight.layers.top);
		free(said);
	}
	look_away(&sight);
	/* what was cut off behind the last step of a create has it held still; larder-unlock@.service, which does not wait, may not write there */
	if (!result && wait && stack->state == STACK_READY && fstab_is_held(stack->uuid)) {
		held = turn_pause();
		turn_take(); /* nobody else writes it */
		fstab_release(stack->uuid);
		if (!held)
			turn_give();
	}
	return result;
}

int mount_note_remote(const struct stack *stack)
{
	return *stack->mount && stack_is_remote(stack) ? fstab_set_remote(stack->uuid) : LARDER_DONE;
}

/* ------------------------------------------------------------------ stop */

int stop_check(const struct stack *stack)
{
	uint8_t part[16];

	stack_part(stack, "volume", part);
	return cow_check_unused(part);
}

int stop_mount(const struct stack *stack)
{
	struct sight sight;
	char *said;
	int result, code;

	for (;;) {
		bool mounted;

		result = look(stack, &sight);
		if (result)
			return result;
		mounted = *sight.layers.mounted;
		if (!strcmp(sight.layers.mounted, "/")) {
			/* the kernel's umount(2) of it would succeed, at times, and make it read-only */
			result = complain(LARDER_BUSY, "%s: is the root filesystem, which is not unmounted while the system runs", stack->name);
		} else if (sight.layers.covered) {
			result = complain(LARDER_BUSY, "%s: something else is mounted over %s; unmount that first", stack->name, sight.layers.mounted);
		} else if (mounted) {
			const char *words[] = { "umount", sight.layers.mounted, NULL };

			bool held = turn_pause(); /* what is dirty in memory is written back: it may take its time; we look again */

			code = program_run(words, &said);
			turn_resume(held);
			if (code)
				result = complain(LARDER_BUSY, "%s: cannot unmount %s: %s", stack->name, sight.layers.mounted, said);
			free(said);
		}
		look_away(&sight);
		if (result || !mounted)
			return result;
	}
}

int stop_crypt(const struct stack *stack)
{
	struct sight sight;
	int result = stack->encrypted ? look(stack, &sight) : LARDER_DONE;
	char *name;

	if (result || !stack->encrypted)
		return result;
	name = crypt_name(stack);
	result = sight.layers.open ? luks_lock(name) : stop_half(stack);
	free(name);
	look_away(&sight);
	return result || !*stack->aead ? result : stop_tags(stack);
}

static int stop_without_larder(const struct stack *stack)
{
	uint8_t part[16];
	int result;

	stack_part(stack, "volume", part);
	result = cow_check_unused(part);
	return result ? result : snapshots_stop_linear(stack->name, part);
}

int stop_volume(const struct stack *stack)
{
	struct sight sight;
	uint8_t part[16];
	char usage[PATH_MAX];
	int result = look(stack, &sight);

	if (result)
		return result;
	stack_part(stack, "volume", part);
	if (sight.layers.left_over)
		result = cow_clear(part);
	else if (*sight.layers.node && (sight.layers.linear || sight.layers.volume->open_count) &&
	    device_usage(sight.layers.node_number, usage, sizeof(usage)))
		result = complain(LARDER_BUSY, "%s: in use: %s; release it first", sight.layers.node, usage);
	else if (sight.layers.linear)
		result = stop_without_larder(stack);
	else if (sight.layers.volume)
		result = stop_running(sight.layers.volume, false);
	else if (running_left_over(part)) /* also without a volume: stores, say */
		result = cow_clear(part);
	look_away(&sight);
	return result;
}

int stop_cache(const struct stack *stack)
{
	struct sight sight;
	int result = look(stack, &sight);

	if (result)
		return result;
	result = running_clear_cache(stack->cache);
	if (!result && sight.layers.cache && !sight.layers.cache->open_count)
		result = stop_running(sight.layers.cache, false);
	look_away(&sight);
	return result;
}

int stop_array(const struct stack *stack)
{
	struct sight sight;
	int result = *stack->raid ? look(stack, &sight) : LARDER_DONE;

	if (result || !*stack->raid)
		return result;
	if (*sight.layers.array.node || *sight.layers.array.inactive)
		result = md_stop(*sight.layers.array.node ? sight.layers.array.node : sight.layers.array.inactive);
	look_away(&sight);
	return result || !*stack->integrity ? result : legs_stop(stack->uuid);
}
