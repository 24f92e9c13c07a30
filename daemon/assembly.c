// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A pass: look, plan, do what is planned, look again.
 *
 * It may be killed anywhere.  Each step is one dm device: there, not there, or there without a table (PLAN_CLEAR of the next pass).  What
 * a step does on the disks is what the kernel does at any start.  That a spare takes a place is a command of its own: killed anywhere, it leaves a
 * spare, one that was to join in that place, which the next pass goes on with, or one that joins.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/claim.h"
#include "../lib/cow.h"
#include "../lib/disks.h"
#include "../lib/hanging.h"
#include "../lib/integrity.h"
#include "../lib/md.h"
#include "../lib/message.h"
#include "../lib/program.h"
#include "../lib/stored_options.h"
#include "../lib/turn.h"
#include "assembly.h"
#include "conf.h"

/* ------------------------------------------------------------------ steps */

#define UNREAD_AGAIN_US 5000000
#define UNREAD_LAST_AGAIN_US UINT64_C(300000000) /* of what is silent: each look at it may leave a child behind */
#define UNREAD_PATIENCE_S 30 /* where nobody waits for what is missing: for what hangs */
#define UNREADY_US UINT64_C(180000000) /* what udev gives an event, of a device that it is not through with */
#define UNREADY_IDLE_US UINT64_C(30000000) /* where it has none: the kernel still reads partitions, or nobody tells udev */
#define UNREADY_LOOK_US 1000000 /* between two looks at it, where nobody waits for what is missing */
#define LOOK_LASTS_US 1000000 /* behind that nothing is started without what is missing before another look */

static bool turn_given; /* since the last look somebody else may have had it */

/* What each start gives a cache, or a volume; NULL: nothing.  All SSDs that count say the same. */
static const char *stored_options(const struct facts *facts, const struct step *step)
{
	uint32_t number = step->kind == PLAN_CACHE ? step->number : 1;

	for (uint32_t i = 0; i < number; i++)
		if (step->member[i] >= 0 && facts->member[step->member[i]].options)
			return facts->member[step->member[i]].options;
	return NULL;
}

static char *set_params(const struct facts *facts, const struct step *step, const char *options)
{
	char *params = must_print("%u", step->number), *words = stored_options_words(options ? options : "", NULL), *longer;

	for (uint32_t i = 0; i < step->number; i++) {
		longer = must_print("%s %s", params, step->member[i] < 0 ? "-" : facts->member[step->member[i]].path);
		free(params);
		params = longer;
	}
	longer = must_print("%s %s", params, words);
	free(params);
	free(words);
	return longer;
}

static char *volume_params(const struct facts *facts, const struct step *step, const char *options)
{
	const struct fact_member *m = &facts->member[step->member[0]];
	char *words = stored_options_words(options ? options : "", m->class),
	     *params = must_print("%s %s%s %s", m->path, strcmp(step->cache, "-") ? "/dev/mapper/" : "", step->cache, words);

	free(words);
	return params;
}

/*
 * A command of larder, which takes its turn.  Where there is systemd, and D-Bus, it is a unit of its own: who stops the daemon does not stop it.  Else it is
 * cut off then, as anything may cut it off.
 */
static int run_larder(const char *const *command)
{
	const char *words[32] = { NULL };
	char *escaped[32] = { NULL }, *said;
	size_t number = 0, unit;
	int result = LARDER_DONE;

	for (; program_is_unit() && program_unit[number]; number++)
		words[number] = program_unit[number];
	if (number) {
		/* or one that SIGTERM ends would count as done */
		words[number++] = "--setenv=" PROGRAM_WAITED_FOR "=1";
		words[number++] = "--";
	}
	unit = number;
	for (; *command; command++) {
		escaped[number] = unit ? program_unit_word(*command) : NULL;
		words[number] = unit ? escaped[number] : *command;
		number++;
	}
	turn_given = true;
	turn_give();
	if (program_run(words, &said))
		result = complain(LARDER_FAILED, "%s", strncmp(said, "larder: ", strlen("larder: ")) ? said : said + strlen("larder: "));
	turn_take();
	free(said);
	while (number > unit)
		free(escaped[--number]);
	return result;
}

/* What `larder cache replace --spare` does: it judges cache, place and device once more, when nobody else can open that. */
static int use_spare(const struct facts *facts, const struct step *step, bool dry_run)
{
	char *place = must_print("%u", step->number);
	const char *path = facts->member[step->member[0]].path,
		   *words[] = { "larder", "cache", "replace", step->name, place, path, "--spare", "--no-wait", "--yes", NULL };
	int result = LARDER_DONE;

	if (dry_run)
		printf("larder cache replace %s %s %s --spare\n", step->name, place, path);
	else
		result = run_larder(words);
	free(place);
	return result;
}

static int take_back(const uint8_t stack[16], const char *disk)
{
	char uuid[UUID_TEXT];
	const char *words[] = { "larder", "start", uuid_text(stack, uuid), "--take-back", disk, NULL };

	return run_larder(words);
}

/* It judges the disk once more, and mdadm, and the kernel. */
static int take_return(const struct facts *facts, const struct step *step, bool dry_run)
{
	const char *path = facts->returning[step->returning].path;

	if (!dry_run)
		return take_back(facts->member[step->member[0]].stack_uuid, path);
	printf("larder start %s --take-back %s\n", step->name, path);
	return LARDER_DONE;
}

static int note(const struct facts *facts, const struct step *step)
{
	char uuid[UUID_TEXT];
	const char *words[] = { "larder", "start", "--note", uuid_text(facts->member[step->member[0]].stack_uuid, uuid), NULL };

	return run_larder(words);
}

static int start_volume(const struct facts *facts, const struct step *step, const char *dm_uuid, const char *params)
{
	const struct fact_member *m = &facts->member[step->member[0]];
	struct cow cow = { .name = step->name, .number = m->snapshots };
	/* the name of its disk may have become another one's since the look, and the kernel is given that alone */
	int result = claim_check(m->path, LARDER_KIND_VOLUME, m->uuid);

	if (result || !m->snapshots)
		return result ? result : mapped_create(step->name, dm_uuid, TARGET_VOLUME, step->sectors, params);
	memcpy(cow.volume, m->uuid, 16);
	for (uint32_t i = 0; i < m->snapshots; i++) {
		const struct fact_member *store = &facts->member[step->store[i]];

		result = result ? result : claim_check_store(store->path, m->snapshot[i].uuid);
		memcpy(cow.snapshot[i].name, m->snapshot[i].name, sizeof(cow.snapshot[i].name));
		memcpy(cow.snapshot[i].uuid, m->snapshot[i].uuid, 16);
		cow.snapshot[i].store = store->path;
		cow.snapshot[i].bytes = store->sectors << LARDER_SECTOR_SHIFT;
	}
	return result ? result : cow_start(&cow, TARGET_VOLUME, step->sectors, params);
}

/* From there on each error of a disk is a sector that the array repairs.  larderd may not: then it has that noted. */
static void expect_read_errors(const struct fact_member *m)
{
	struct stat status;

	if (m->integrity && !stat(m->path, &status) && S_ISBLK(status.st_mode))
		md_take_read_errors(status.st_rdev, MD_READ_ERRORS);
}

/* Of an array that runs already: md's rules give it back only where mdadm.conf says so. */
static int start_leg(const struct facts *facts, const struct step *step, bool dry_run)
{
	const struct fact_member *m = &facts->member[step->member[0]];
	int result = leg_start(m->path, step->uuid, m->stack_uuid);

	for (size_t i = 0; !result && !dry_run && i < facts->nr_running; i++)
		if (!facts->running[i].cache && !memcmp(facts->running[i].uuid, m->volume, 16))
			take_back(m->stack_uuid, m->path);
	return result;
}

static int start(const struct facts *facts, const struct step *step, const char *options)
{
	bool cache = step->kind == PLAN_CACHE;
	char uuid[UUID_TEXT], *dm_uuid = must_print("LARDER-%s%s", uuid_text(step->uuid, uuid), cache ? "-cache" : ""),
			      *params = cache ? set_params(facts, step, options) : volume_params(facts, step, options);
	int result = cache ? mapped_create(step->name, dm_uuid, TARGET_CACHE, step->sectors, params) : start_volume(facts, step, dm_uuid, params);

	free(dm_uuid);
	free(params);
	return result;
}

static int carry_out(const struct facts *facts, const struct step *step, bool dry_run)
{
	const char *options;
	int result;

	if (step->kind == PLAN_CLEAR)
		return mapped_remove(step->name);
	if (step->kind == PLAN_SPARE)
		return use_spare(facts, step, dry_run);
	if (step->kind == PLAN_RETURN)
		return take_return(facts, step, dry_run);
	if (step->kind == PLAN_NOTE)
		return note(facts, step);
	if (step->kind == PLAN_LEG)
		return start_leg(facts, step, dry_run);
	if (step->kind == PLAN_VOLUME && !dry_run)
		expect_read_errors(&facts->member[step->member[0]]);
	options = stored_options(facts, step);
	result = start(facts, step, options);
	/* a boot does not end for them */
	if (result == LARDER_FAILED && options) {
		stored_options_refused(step->name, options, step->kind == PLAN_CACHE);
		result = start(facts, step, NULL);
	}
	return result;
}

static void tell_failed(struct assembly *a, const struct facts *facts, bool cache, const char *name, const uint8_t uuid[16])
{
	const char *kind = cache ? "cache" : "volume";
	char *half = plan_other_half(facts, uuid), *text = !strncmp(name, LEG_PREFIX, strlen(LEG_PREFIX)) ?
			     must_print("%s: dm-integrity of a disk of an array was not started, see above; larder assemble tries again", name) :
			     must_print("%s %s: not started, see above; larder %s start %s tries again%s", kind, name, kind, uuid_text(uuid, (char[UUID_TEXT]){ 0 }), half);

	a->tell(ASSEMBLY_FAILED, uuid, text);
	free(text);
	free(half);
}

/* Of what runs; a failure for as long as it is held (tell_held()). */
static void tell_other(struct assembly *a, const struct step *step, enum assembly_event event, const uint8_t uuid[16], const char *text)
{
	a->tell(event, uuid, text);
	if (event == ASSEMBLY_FAILED && a->memory)
		attempts_told(&a->memory->others, step->uuid, uuid, text);
}

static void tell_spare(struct assembly *a, const struct facts *facts, const struct step *step, int result)
{
	const char *path = facts->member[step->member[0]].path;
	char *text = result ? must_print("%s: SSD %u has failed, and its spare %s could not join, see above; larder cache replace %s %u %s tries again",
					 step->name, step->number, path, step->name, step->number, path) :
			      must_print("%s: SSD %u has failed: its spare %s takes its place; larder cache add %s SSD --spare makes another one", step->name,
					 step->number, path, step->name);

	tell_other(a, step, result ? ASSEMBLY_FAILED : ASSEMBLY_SPARE, step->uuid, text);
	free(text);
}

static void tell_return(struct assembly *a, const struct facts *facts, const struct step *step, int result)
{
	const struct fact_return *r = &facts->returning[step->returning];
	char *text = result ? must_print("%s: could not be taken back into the array of the stack %s, see above; larder start %s --take-back %s tries again", r->path,
					 step->name, step->name, r->path) :
			      must_print("%s: is taken back into the array of the stack %s, and %s%s; larder status %s shows how far it is", r->path, step->name,
					 r->all ? "all is copied to it" : "gets what it lacks", r->all ? MD_RETURN_WHY_ALL : "", step->name);

	tell_other(a, step, result ? ASSEMBLY_FAILED : ASSEMBLY_RETURNED, r->volume, text);
	free(text);
}

/* That a disk is lacked others tell. */
static void tell_note(struct assembly *a, const struct step *step, int result)
{
	char *text;

	if (!result)
		return;
	text = must_print("stack %s: its array lacks a disk, or it has lost a snapshot, and that could not be noted, see above: what is lost would be taken for whole; "
			  "larder start --note %s tries again", step->name, step->name);
	tell_other(a, step, ASSEMBLY_FAILED, step->uuid, text);
	free(text);
}

static void tell_step(struct assembly *a, const struct facts *facts, const struct step *step, int result)
{
	enum assembly_event event = ASSEMBLY_STARTED;
	const char *kind = step->kind == PLAN_CACHE ? "cache" : "volume", *how = "";
	char *text;

	if (step->kind == PLAN_CLEAR) {
		event = result ? ASSEMBLY_FAILED : ASSEMBLY_CLEARED;
		text = result ? must_print("%s: a start had left it, and it cannot be removed, see above: its volume does not start before that", step->name) :
				must_print("%s: removed: a start had left it without a table", step->name);
	} else if (step->kind == PLAN_SPARE) {
		tell_spare(a, facts, step, result);
		return;
	} else if (step->kind == PLAN_RETURN) {
		tell_return(a, facts, step, result);
		return;
	} else if (step->kind == PLAN_NOTE) {
		tell_note(a, step, result);
		return;
	} else if (step->kind == PLAN_LEG && !result) {
		return; /* the volume tells */
	} else if (result) {
		tell_failed(a, facts, step->kind == PLAN_CACHE, step->name, step->uuid);
		return;
	} else {
		if (step->degraded)
			event = step->kind == PLAN_CACHE ? ASSEMBLY_DEGRADED : ASSEMBLY_ALONE;
		if (event == ASSEMBLY_DEGRADED)
			how = ", WITHOUT ALL OF ITS SSDs: those that are missing have left the set; larder cache add takes them back";
		else if (event == ASSEMBLY_ALONE)
			how = ", WITHOUT ITS CACHE, which is missing; nothing was dirty, and a write makes that cache stale";
		text = must_print("%s %s: started%s", kind, step->name, how);
		a->started++;
	}
	a->tell(event, step->uuid, text);
	free(text);
}

/* ------------------------------------------------------------------ who was stopped */

static bool runs(const struct facts *facts, const uint8_t uuid[16])
{
	if (facts_running(facts, uuid, true) || facts_running(facts, uuid, false))
		return true;
	for (size_t i = 0; i < facts->nr_members; i++)
		if (facts->member[i].runs && !memcmp(facts->member[i].uuid, uuid, 16))
			return true;
	return false;
}

static bool is_here(const struct facts *facts, const uint8_t uuid[16])
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (!memcmp(facts->member[i].uuid, uuid, 16) ||
		    (facts->member[i].kind == LARDER_KIND_CACHE && !memcmp(facts->member[i].cache_uuid, uuid, 16)))
			return true;
	return false;
}

static void add_stopped(struct facts *facts, const uint8_t uuid[16])
{
	facts->stopped = must_allocate(realloc(facts->stopped, (facts->nr_stopped + 1) * sizeof(*facts->stopped)));
	memcpy(facts->stopped[facts->nr_stopped++], uuid, 16);
}

/* By plain dmsetup, say: what ran does not any more, and its devices are here. */
static void find_stopped(const struct assembly_memory *memory, struct facts *facts)
{
	for (uint32_t i = 0; i < memory->number; i++)
		if (!runs(facts, memory->ran[i]) && is_here(facts, memory->ran[i])) {
			stopped_set(memory->ran[i]);
			add_stopped(facts, memory->ran[i]);
		}
}

static void remember(struct assembly_memory *memory, const struct facts *facts)
{
	memory->number = 0;
	for (size_t i = 0; i < facts->nr_running && memory->number < ASSEMBLY_RAN_MAX; i++) {
		if (facts->running[i].left_over)
			continue;
		memcpy(memory->ran[memory->number++], facts->running[i].uuid, 16);
		stopped_clear(facts->running[i].uuid); /* somebody wants it again */
	}
}

/* ------------------------------------------------------------------ whose SSDs have failed */

static struct assembly_failure *find_failure(struct assembly_memory *memory, const uint8_t uuid[16])
{
	for (uint32_t i = 0; i < memory->nr_failures; i++)
		if (!memcmp(memory->failure[i].uuid, uuid, 16))
			return &memory->failure[i];
	return NULL;
}

static void forget_failures(struct assembly_memory *memory, const struct facts *facts)
{
	for (uint32_t i = 0; i < memory->nr_failures;) {
		bool lasts = false;

		for (size_t k = 0; k < facts->nr_running; k++)
			lasts |= facts->running[k].failed && !memcmp(facts->running[k].uuid, memory->failure[i].uuid, 16);
		if (lasts) {
			i++;
			continue;
		}
		attempts_forget(&memory->others, memory->failure[i].uuid);
		memory->failure[i] = memory->failure[--memory->nr_failures];
	}
}

static bool returns(const struct facts *facts, const uint8_t disk[16])
{
	for (size_t i = 0; i < facts->nr_returning; i++)
		if (!memcmp(facts->returning[i].leg.own, disk, 16))
			return true;
	return false;
}

/* Of a volume: is there still what was to be noted? */
static bool is_noted(const struct facts *facts, const uint8_t uuid[16])
{
	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if (m->kind == LARDER_KIND_VOLUME && !memcmp(m->uuid, uuid, 16))
			return !plan_has_to_note(m);
	}
	return false;
}

/* What failed of what runs, and when that is tried again. */
static void hold_others(struct assembly_memory *memory, struct facts *facts)
{
	for (uint32_t i = 0; i < memory->others.number;) {
		const uint8_t *uuid = memory->others.attempt[i].uuid;

		if ((runs(facts, uuid) && !is_noted(facts, uuid)) || returns(facts, uuid))
			i++;
		else
			attempts_forget(&memory->others, uuid);
	}
	for (size_t i = 0; i < facts->nr_running; i++) {
		const struct attempt *failed = attempts_find(&memory->others, facts->running[i].uuid);

		facts->running[i].held_since = failed ? failed->again - failed->wait : 0;
		facts->running[i].held_until = failed ? failed->again : 0;
	}
	for (size_t i = 0; i < facts->nr_returning; i++) {
		const struct attempt *failed = attempts_find(&memory->others, facts->returning[i].leg.own);

		facts->returning[i].held_until = failed ? failed->again : 0;
	}
}

/* ------------------------------------------------------------------ whose disks went and came */

static struct assembly_disk *find_disk(struct assembly_memory *memory, const uint8_t own[16])
{
	for (uint32_t i = 0; i < memory->nr_disks; i++)
		if (!memcmp(memory->disk[i].own, own, 16))
			return &memory->disk[i];
	return NULL;
}

/* Which disk has that UUID now. */
static void remember_disk(struct assembly_memory *memory, const struct present *p)
{
	struct assembly_disk *disk = uuid_is_zero(p->own) ? NULL : find_disk(memory, p->own);

	if (!disk && !uuid_is_zero(p->own) && memory->nr_disks < ASSEMBLY_DISKS_MAX)
		disk = &memory->disk[memory->nr_disks++];
	if (!disk)
		return;
	memcpy(disk->own, p->own, 16);
	disk->identity = p->identity;
}

static bool is_same(const struct present *a, const struct present *b)
{
	return a->number == b->number && a->sequence == b->sequence;
}

static bool is_among(const struct present *list, size_t count, const struct present *p)
{
	for (size_t i = 0; i < count; i++)
		if (is_same(&list[i], p))
			return true;
	return false;
}

/*
 * A disk that was copied while its array ran has what was written until then, and the bitmap begins where that loses the one it was copied
 * from: it would get what was written from there on alone.  It is told by having been here beside that, or by being another disk.
 */
static void find_copies(struct assembly_memory *memory, struct look *look)
{
	for (uint32_t i = 0; i < memory->nr_copies;)
		if (present_lasts(&memory->copy[i]) && !is_among(look->present, look->nr_present, &memory->copy[i]))
			i++;
		else
			memory->copy[i] = memory->copy[--memory->nr_copies];
	for (size_t i = 0; i < look->facts.nr_returning; i++) {
		struct fact_return *r = &look->facts.returning[i];
		const struct assembly_disk *disk = find_disk(memory, r->leg.own);

		r->copy = disk && disk->identity && r->identity && disk->identity != r->identity;
		for (uint32_t k = 0; k < memory->nr_copies; k++)
			r->copy |= memory->copy[k].number == r->number && !memcmp(memory->copy[k].own, r->leg.own, 16);
	}
	for (size_t i = 0; i < look->nr_copies; i++)
		if (!is_among(memory->copy, memory->nr_copies, &look->copy[i]) && memory->nr_copies < ASSEMBLY_COPIES_MAX)
			memory->copy[memory->nr_copies++] = look->copy[i];
	for (size_t i = 0; i < look->nr_present; i++)
		remember_disk(memory, &look->present[i]);
}

/* Of those that were seen in an array before: who is away, or another disk by now, is forgotten. */
static void find_stayed(struct assembly_memory *memory, struct look *look)
{
	for (uint32_t i = 0; i < memory->nr_present;)
		if (present_lasts(&memory->present[i]))
			i++;
		else
			memory->present[i] = memory->present[--memory->nr_present];
	for (size_t i = 0; i < look->facts.nr_returning; i++) {
		struct fact_return *r = &look->facts.returning[i];

		for (uint32_t k = 0; k < memory->nr_present; k++)
			r->stayed |= memory->present[k].number == r->number;
	}
	for (size_t i = 0; i < look->nr_present; i++)
		if (!is_among(memory->present, memory->nr_present, &look->present[i]) && memory->nr_present < ASSEMBLY_PRESENT_MAX)
			memory->present[memory->nr_present++] = look->present[i];
}

/* What an array has again would have to be noted anew, and what has begun to come back as soon as it has failed. */
static void remember_lost(struct facts *facts)
{
	for (size_t i = 0; i < facts->nr_members; i++) {
		struct fact_member *m = &facts->member[i];
		struct md_lost before = m->lost_disks;

		md_lost_seen(&m->lost_disks);
		if (m->lost_disks.noted != before.noted)
			lacks_set(m->uuid, m->lost_disks.noted);
		if (m->lost_disks.returned != before.returned)
			returned_set(m->uuid, m->lost_disks.returned);
	}
}

/* Since when?  Without a memory: since now. */
static void date_failures(struct assembly_memory *memory, struct facts *facts)
{
	if (memory)
		forget_failures(memory, facts);
	for (size_t i = 0; i < facts->nr_running; i++) {
		struct fact_running *r = &facts->running[i];
		struct assembly_failure *f = memory ? find_failure(memory, r->uuid) : NULL;

		for (unsigned place = 0; place < LARDER_MAX_DEVICES; place++)
			r->failed_since[place] = facts->now;
		if (!memory || !r->failed || (!f && memory->nr_failures == ASSEMBLY_FAILURES_MAX))
			continue;
		if (!f) {
			f = &memory->failure[memory->nr_failures++];
			*f = (struct assembly_failure){ 0 };
			memcpy(f->uuid, r->uuid, 16);
		}
		for (unsigned place = 0; place < LARDER_MAX_DEVICES; place++)
			if (r->failed & ~f->places & 1u << place)
				f->since[place] = facts->now;
		f->places = r->failed;
		memcpy(r->failed_since, f->since, sizeof(f->since));
	}
}

void assembly_retry(struct assembly_memory *memory, bool asked)
{
	memory->attempts.number = 0;
	if (asked)
		memory->others.number = 0;
}

/* ------------------------------------------------------------------ rounds */

/* What a step was tried of in this pass: settled, however it went. */
struct tried {
	uint8_t (*uuid)[16];
	size_t number;
	bool cleared, uncleared;
};

static void add_tried_uuid(struct tried *tried, const uint8_t uuid[16])
{
	tried->uuid = must_allocate(realloc(tried->uuid, (tried->number + 1) * sizeof(*tried->uuid)));
	memcpy(tried->uuid[tried->number++], uuid, 16);
}

static void add_tried(struct tried *tried, const struct step *step)
{
	if (step->kind == PLAN_CLEAR)
		tried->cleared = true;
	else
		add_tried_uuid(tried, step->uuid);
}

static void complete(const struct assembly *a, const struct conf *conf, const struct tried *tried, struct facts *facts)
{
	facts->wait = a->wait == ASSEMBLY_WAIT_CONF ? conf->wait : a->wait;
	facts->began = a->began;
	facts->only = a->only;
	/* by who can wait for the one that has failed, or by name: not by an initramfs */
	facts->spares = a->memory || (a->only && !a->obey);
	facts->notes = a->memory;
	date_failures(a->memory, facts);
	if (a->memory) {
		hold_others(a->memory, facts);
		remember_lost(facts);
	}
	facts->failed = tried->uuid;
	facts->nr_failed = tried->number;
	if (a->only && !a->obey)
		facts->nr_stopped = 0;
	else
		conf_apply(conf, facts);
	if (tried->cleared)
		facts->nr_half = 0;
}

static void tell_refusals(struct assembly *a, const struct plan *plan)
{
	for (size_t i = 0; i < plan->nr_refusals; i++) {
		const struct refusal *r = &plan->refusal[i];

		a->tell(r->waiting ? ASSEMBLY_WAITING : r->write_hole ? ASSEMBLY_WRITE_HOLE : ASSEMBLY_REFUSED, r->uuid, r->text);
		a->waiting += r->waiting;
		a->refused += !r->waiting && !r->warning;
	}
	a->again = plan->again;
	a->stores = plan->stores;
}

static void look_again(struct assembly *a, uint64_t when)
{
	if (!a->again || when < a->again)
		a->again = when;
}

/* Those of earlier passes that are not tried in this one. */
static void hold_failed(struct assembly_memory *memory, struct tried *tried)
{
	attempts_hold(&memory->attempts, facts_clock());
	attempts_hold(&memory->others, facts_clock());
	for (uint32_t i = 0; i < memory->attempts.number; i++)
		if (memory->attempts.attempt[i].held)
			add_tried_uuid(tried, memory->attempts.attempt[i].uuid);
}

/* Of a newer larder's stack that runs nothing is noted, and no disk taken back: it has been updated, and whoever looks has not. */
static void tell_newer(struct assembly *a, const struct facts *facts)
{
	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];
		char *text;

		if (!m->newer || m->kind != LARDER_KIND_VOLUME || !facts_running(facts, m->uuid, false))
			continue;
		text = must_print("volume %s: runs, and its stack's description is a newer larder's: that its array lacks a disk would not be noted, and no disk is taken back; "
				  "systemctl restart larderd, once the newer one is installed",
				  m->label);
		a->tell(ASSEMBLY_REFUSED, m->uuid, text);
		free(text);
	}
}

/* What does not run yet is said again, and its time asked for; *result is that of the first.  Of what runs the planner asks for that. */
static void tell_held(struct assembly *a, const struct facts *facts, int *result)
{
	const struct attempts *others = &a->memory->others;
	struct attempts *attempts = &a->memory->attempts;
	uint64_t again;

	for (uint32_t i = 0; i < others->number; i++)
		if (others->attempt[i].held)
			a->tell(ASSEMBLY_FAILED, others->attempt[i].about, others->attempt[i].text);

	for (uint32_t i = 0; i < attempts->number;) {
		const struct attempt *one = &attempts->attempt[i];

		if (runs(facts, one->uuid) || !is_here(facts, one->uuid)) {
			attempts_forget(attempts, one->uuid); /* the last one is in its place now */
			continue;
		}
		if (one->held)
			tell_failed(a, facts, one->cache, one->name, one->uuid);
		*result = *result ? *result : one->result;
		i++;
	}
	again = attempts_again(attempts, facts->now);
	if (again)
		look_again(a, again);
}

static void remember_result(struct assembly_memory *memory, const struct step *step, int error)
{
	bool other = step->kind == PLAN_SPARE || step->kind == PLAN_NOTE || step->kind == PLAN_RETURN;

	if (error && step->kind != PLAN_CLEAR)
		attempts_failed(other ? &memory->others : &memory->attempts, step->uuid, step->kind == PLAN_CACHE, step->name, error, facts_clock());
	else if (other)
		attempts_forget(&memory->others, step->uuid);
}

/*
 * True: there were some, so there may be more to do.  Not all of them on one look: what is missing may have come since, and somebody else have had the
 * turn.
 */
static bool run_steps(struct assembly *a, const struct look *look, const struct plan *plan, struct tried *tried, int *result)
{
	uint64_t looked = facts_clock();

	turn_given = false;
	for (size_t i = 0; i < plan->nr_steps && !turn_given; i++) {
		int error;

		if (i && plan->step[i].degraded && !a->dry_run && facts_clock() - looked > LOOK_LASTS_US)
			break;
		error = carry_out(&look->facts, &plan->step[i], a->dry_run);
		add_tried(tried, &plan->step[i]);
		tried->uncleared |= error && plan->step[i].kind == PLAN_CLEAR;
		if (a->memory)
			remember_result(a->memory, &plan->step[i], error);
		if (!a->dry_run || error)
			tell_step(a, &look->facts, &plan->step[i], error);
		*result = *result ? *result : error;
	}
	return plan->nr_steps;
}

static void tell_unread_one(const char *node, void *data)
{
	static const uint8_t none[16];
	struct assembly *a = data;
	char *text = must_print("%s: answers nothing: neither it nor what lies on it is read, and both count as missing for as long; larder doctor says more", node);

	a->tell(ASSEMBLY_WAITING, none, text);
	free(text);
}

/* What is silent is asked less and less often, but once more when what is missing has been waited for long enough: it may be that. */
static void remember_silent(struct assembly *a, uint64_t looked)
{
	struct assembly_memory *memory = a->memory;
	dev_t number[ASSEMBLY_SILENT_MAX];
	bool asked = looked >= memory->silent_until;

	memory->nr_silent = (uint32_t)hanging_silent(number, ASSEMBLY_SILENT_MAX);
	for (uint32_t i = 0; i < memory->nr_silent; i++)
		memory->silent[i] = (struct present){ .number = number[i], .sequence = disk_sequence(number[i]) };
	if (!memory->nr_silent)
		memory->silent_until = memory->silent_wait = 0;
	if (!memory->nr_silent || !asked)
		return;
	memory->silent_wait = attempts_wait(memory->silent_wait, UNREAD_AGAIN_US);
	if (memory->silent_wait > UNREAD_LAST_AGAIN_US)
		memory->silent_wait = UNREAD_LAST_AGAIN_US;
	memory->silent_until = facts_clock() + memory->silent_wait;
	if (a->again && a->again < memory->silent_until)
		memory->silent_until = a->again;
}

/* Those of earlier passes; not one that has gone and come. */
static void recall_silent(const struct assembly_memory *memory)
{
	dev_t number[ASSEMBLY_SILENT_MAX];
	uint64_t now = facts_clock();
	size_t count = 0;

	for (uint32_t i = 0; i < memory->nr_silent; i++)
		if (present_lasts(&memory->silent[i]))
			number[count++] = memory->silent[i].number;
	if (now < memory->silent_until)
		hanging_keep_silent(number, count, (double)(memory->silent_until - now) / 1000000);
}

/* That one answers again makes no event. */
static void tell_unread(struct assembly *a, uint64_t looked)
{
	bool any = hanging_each(tell_unread_one, a);

	if (a->memory)
		remember_silent(a, looked);
	if (any)
		look_again(a, a->memory && hanging_only_silent() ? a->memory->silent_until : facts_clock() + UNREAD_AGAIN_US);
}

/* It may be here: what is missing beside it is waited for from when it was first seen to hang. */
static void find_unread(struct assembly *a, struct facts *facts)
{
	uint64_t *since = a->memory ? &a->memory->unread_since : &a->unread_since;

	*since = !hanging_any() ? 0 : *since ? *since : facts->now;
	facts->unread_since = *since;
}

/*
 * Likewise what udev is not through with, as its driver takes its time, or many others are before it: not for longer than udev gives it,
 * as some devices it may never get to.
 */
static void find_unready(struct assembly *a, struct look *look)
{
	uint64_t *since = a->memory ? &a->memory->unready_since : &a->unready_since, until;

	*since = !look->unready || a->observe ? 0 : *since ? *since : look->facts.now;
	until = *since + (look->udev_busy ? UNREADY_US : UNREADY_IDLE_US);
	look->facts.unready_until = *since && until > look->facts.now ? until : 0;
}

static void tell_unready(struct assembly *a, const struct look *look)
{
	static const uint8_t none[16];
	char *text = must_print("%s: udev is not through with it, and it may be what is missing: nothing is started without that for up to %u s; "
				"udevadm settle waits for udev",
				look->unready, (unsigned)(UNREADY_US / 1000000));

	a->tell(ASSEMBLY_WAITING, none, text);
	free(text);
}

/* Is something waited for that it may be? */
static bool waits_for_udev(const struct look *look, const struct plan *plan)
{
	return look->facts.unready_until && plan->again;
}

/* That udev is through with it makes an event, which is one for us only if it is a member. */
static void look_at_unready(struct assembly *a, const struct look *look, const struct plan *plan)
{
	if (!waits_for_udev(look, plan))
		return;
	tell_unready(a, look);
	look_again(a, facts_clock() + UNREAD_AGAIN_US);
}

/* Nobody looks again: so here.  What is whole has been started. */
static void wait_for_udev(void)
{
	turn_give();
	usleep(UNREADY_LOOK_US);
	turn_take();
}

#define DRY_ROUNDS 5 /* what is left over, caches, volumes, spares, and what is refused then */

static void tell_mistake(const char *line, void *data)
{
	const struct assembly *a = data;

	a->tell(ASSEMBLY_CONF, (const uint8_t[16]){ 0 }, line);
}

static int dry_rounds(struct assembly *a, const struct conf *conf)
{
	struct tried tried = { 0 };
	struct plan plan[DRY_ROUNDS]; /* what is pretended points into them */
	struct look look;
	int result = facts_look(&look, a->marked);

	if (result)
		return result;
	for (unsigned i = 0; i < DRY_ROUNDS; i++) {
		complete(a, conf, &tried, &look.facts);
		plan_make(&look.facts, &plan[i]);
		run_steps(a, &look, &plan[i], &tried, &result);
		for (size_t k = 0; k < plan[i].nr_steps; k++)
			facts_pretend(&look.facts, &plan[i].step[k]);
	}
	tell_refusals(a, &plan[DRY_ROUNDS - 1]);
	tell_unread(a, look.facts.now);
	facts_free(&look);
	for (unsigned i = 0; i < DRY_ROUNDS; i++)
		plan_free(&plan[i]);
	free(tried.uuid);
	return result;
}

static int rounds(struct assembly *a, const struct conf *conf)
{
	struct tried tried = { 0 };
	int result = LARDER_DONE;
	bool more = true, told = false;
	uint64_t began = facts_clock();

	if (a->memory)
		hold_failed(a->memory, &tried);
	while (more) {
		struct look look;
		struct plan plan;
		int error;

		if (a->looks)
			a->looks();
		hanging_again();
		error = facts_look(&look, a->marked);
		if (error) {
			a->blind = true;
			result = result ? result : error;
			break;
		}
		if (a->memory) /* in each round: while a spare joins, the turn is somebody else's */
			find_stopped(a->memory, &look.facts);
		if (a->memory)
			find_stayed(a->memory, &look);
		if (a->memory)
			find_copies(a->memory, &look);
		find_unread(a, &look.facts);
		find_unready(a, &look);
		complete(a, conf, &tried, &look.facts);
		plan_make(&look.facts, &plan);
		more = !a->observe && run_steps(a, &look, &plan, &tried, &result);
		if (!more && !a->wait && !a->memory && waits_for_udev(&look, &plan)) {
			if (!told)
				tell_unready(a, &look);
			told = more = true;
			wait_for_udev();
		}
		if (!more) {
			tell_refusals(a, &plan);
			tell_unread(a, began);
			look_at_unready(a, &look, &plan);
			tell_newer(a, &look.facts);
			if (a->memory)
				tell_held(a, &look.facts, &result);
			if (tried.uncleared)
				look_again(a, look.facts.now + ATTEMPT_FIRST_US);
			if (a->seen)
				a->seen(&look, &plan);
			if (a->memory)
				remember(a->memory, &look.facts);
		}
		plan_free(&plan);
		facts_free(&look);
	}
	free(tried.uuid);
	return result;
}

int assembly_pass(struct assembly *a)
{
	struct conf conf;
	int result;

	a->again = 0;
	a->blind = a->stores = false;
	a->started = a->waiting = a->refused = 0;
	mapped_init(a->dry_run);
	hanging_look(NULL); /* it may take its time: not with the turn */
	if (a->memory)
		recall_silent(a->memory);
	if (!a->wait && !a->memory && !a->dry_run)
		hanging_wait(UNREAD_PATIENCE_S); /* nobody looks again, and what answers in a moment is not missing */
	turn_take();
	conf_read(&conf, tell_mistake, a);
	result = a->dry_run ? dry_rounds(a, &conf) : rounds(a, &conf);
	conf_free(&conf);
	return result;
}

bool assembly_is_off(void)
{
	char line[4096] = "", *rest = line, *word;
	FILE *file = fopen("/proc/cmdline", "re");
	bool off = false;

	if (!file)
		return false;
	if (fgets(line, sizeof(line), file))
		while ((word = strsep(&rest, " \n")))
			off |= !strcmp(word, "larder.auto=no");
	fclose(file);
	return off;
}
