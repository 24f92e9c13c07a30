// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Facts to steps.  plan.h says what holds of every plan; docs/daemon.md has it as a table.
 *
 * A cache and the volumes on it are not planned together: a volume's step is made when its cache runs, so that what is planned rests on
 * what is, and whoever carries it out looks again behind each step.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/dm.h"
#include "../lib/integrity.h"
#include "../lib/message.h"
#include "../lib/superblock.h"
#include "plan.h"

/* ------------------------------------------------------------------ lists */

static struct step *add_step(struct plan *plan, enum step_kind kind, const uint8_t uuid[16])
{
	struct step *step;

	plan->step = must_allocate(realloc(plan->step, (plan->nr_steps + 1) * sizeof(*plan->step)));
	step = &plan->step[plan->nr_steps++];
	*step = (struct step){ .kind = kind };
	if (uuid)
		memcpy(step->uuid, uuid, 16);
	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
		step->member[i] = -1;
	for (unsigned i = 0; i < SNAPSHOTS_MAX; i++)
		step->store[i] = -1;
	return step;
}

__attribute__((format(printf, 4, 5))) static void refuse(struct plan *plan, const uint8_t uuid[16], bool waiting, const char *format, ...)
{
	struct refusal *refusal;
	va_list args;
	int length;

	plan->refusal = must_allocate(realloc(plan->refusal, (plan->nr_refusals + 1) * sizeof(*plan->refusal)));
	refusal = &plan->refusal[plan->nr_refusals++];
	*refusal = (struct refusal){ .waiting = waiting };
	memcpy(refusal->uuid, uuid, 16);
	va_start(args, format);
	length = vasprintf(&refusal->text, format, args);
	va_end(args);
	must_allocate(length < 0 ? NULL : refusal->text);
}

void plan_free(struct plan *plan)
{
	for (size_t i = 0; i < plan->nr_refusals; i++)
		free(plan->refusal[i].text);
	free(plan->refusal);
	free(plan->step);
	*plan = (struct plan){ 0 };
}

/* ------------------------------------------------------------------ questions about facts */

static bool same(const uint8_t a[16], const uint8_t b[16])
{
	return !memcmp(a, b, 16);
}

static bool listed(uint8_t (*list)[16], size_t number, const uint8_t uuid[16])
{
	for (size_t i = 0; i < number; i++)
		if (same(list[i], uuid))
			return true;
	return false;
}

const struct fact_running *facts_running(const struct facts *facts, const uint8_t uuid[16], bool cache)
{
	for (size_t i = 0; i < facts->nr_running; i++)
		if (facts->running[i].cache == cache && same(facts->running[i].uuid, uuid))
			return &facts->running[i];
	return NULL;
}

static bool name_taken(const struct facts *facts, const char *name)
{
	for (size_t i = 0; i < facts->nr_taken; i++)
		if (!strcmp(facts->taken[i], name))
			return true;
	return false;
}

static bool is_ssd_of(const struct fact_member *m, const uint8_t cache[16])
{
	return m->kind == LARDER_KIND_CACHE && same(m->cache_uuid, cache);
}

/* Another device with the same superblock; NULL: none. */
static const struct fact_member *copy_of(const struct facts *facts, const struct fact_member *m)
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (&facts->member[i] != m && same(facts->member[i].uuid, m->uuid))
			return &facts->member[i];
	return NULL;
}

/* Another volume, or cache, that would have the same name; what does not start by itself takes none. */
static bool is_namesake(const struct fact_member *a, const struct fact_member *b)
{
	const uint8_t *x = a->kind == LARDER_KIND_CACHE ? a->cache_uuid : a->uuid, *y = b->kind == LARDER_KIND_CACHE ? b->cache_uuid : b->uuid;

	return a->kind == b->kind && !b->held && !b->left && !same(x, y) && !strcmp(a->label, b->label);
}

static const struct fact_member *namesake_of(const struct facts *facts, const struct fact_member *m)
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (is_namesake(m, &facts->member[i]))
			return &facts->member[i];
	return NULL;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* A disk of the array of that volume which has what this has not, or may have; NULL: there is none. */
static const struct fact_return *other_half(const struct facts *facts, const uint8_t volume[16])
{
	const struct fact_return *first = NULL;

	for (size_t i = 0; i < facts->nr_returning; i++) {
		const struct fact_return *r = &facts->returning[i];
		enum md_return verdict = md_return(&r->leg, &r->now);

		if (same(r->volume, volume) && !r->foreign && (verdict == MD_RETURN_NEWER || verdict == MD_RETURN_APART) &&
		    (!first || strcmp(r->path, first->path) < 0))
			first = r;
	}
	return first;
}

char *plan_other_half(const struct facts *facts, const uint8_t volume[16])
{
	const struct fact_return *half = other_half(facts, volume);
	const struct fact_member *m = NULL;

	/* of a copy it is not known which one is meant */
	for (size_t i = 0; half && i < facts->nr_members; i++)
		if (facts->member[i].kind == LARDER_KIND_VOLUME && same(facts->member[i].uuid, volume) && !copy_of(facts, &facts->member[i]))
			m = &facts->member[i];
	if (!m)
		return must_print("%s", "");
	return must_print("; %s is another half of its array, each used without the other: mdadm --stop %s, then larder start %s puts it together anew, of the one that its SSDs have seen last, if they tell",
			  half->path, m->path, m->stack);
}

/* Is something waited for?  since: when the newest of what is here came. */
static bool wait_on(const struct facts *facts, struct plan *plan, uint64_t since)
{
	uint64_t end = later(later(later(since, facts->began), facts->unread_since) + facts->wait, facts->unready_until);

	if (facts->now >= end)
		return false;
	if (!plan->again || end < plan->again)
		plan->again = end;
	return true;
}

/* ------------------------------------------------------------------ what holds of a member, whatever it is for */

static void refuse_below(struct plan *plan, const struct fact_member *m, const uint8_t uuid[16])
{
	refuse(plan, uuid, false,
	       "%s: carries a signature %s behind the member: it is the leg, or disk, below what carries that, and left; bring that up (drbdadm up, mdadm --assemble), the member is found there",
	       m->path, m->foreign);
	plan->refusal[plan->nr_refusals - 1].below = true;
}

/* Of two of which neither is used; first: the superblock is told of from here.  Nothing is named that erases the only one that there is. */
static void refuse_copy(struct plan *plan, const struct fact_member *m, const struct fact_member *copy, const uint8_t uuid[16], bool first)
{
	if (copy->below)
		refuse(plan, uuid, false,
		       "%s: uuid: %s has it too, a leg, or disk, below what carries the member, by its signature %s behind that: neither is used; let that have it (drbdadm, mdadm), or detach it",
		       m->path, copy->path, copy->foreign);
	else if (first && m->disk && copy->disk && !strcmp(m->disk, copy->disk))
		refuse(plan, uuid, false,
		       "%s: uuid: %s has it too: the same disk by two paths (%s): neither is used; start multipathd, there is nothing to erase",
		       m->path, copy->path, m->disk);
	else if (first)
		refuse(plan, uuid, false,
		       "%s: uuid: %s has it too (a copy, or the same disk by two paths?): neither is used; of two paths: start multipathd; of a copy: detach it, or remove the superblock of the copy, and of that alone: larder super wipe COPY",
		       m->path, copy->path);
}

/* Owned by somebody else, or one of two that nobody can tell apart. */
static bool unfit(const struct facts *facts, struct plan *plan, const struct fact_member *m, const uint8_t uuid[16])
{
	const struct fact_member *copy = copy_of(facts, m);
	char *half = m->older ? plan_other_half(facts, m->uuid) : NULL;

	if (m->below)
		refuse_below(plan, m, uuid);
	else if (copy)
		refuse_copy(plan, m, copy, uuid, strcmp(m->path, copy->path) < 0);
	else if (m->foreign)
		refuse(plan, uuid, false,
		       "%s: carries a signature %s as well: left to that; if it is larder's, wipefs %s %s, then larder assemble; if not, larder super wipe %s",
		       m->path, m->foreign, m->wipefs, m->path, m->path);
	else if (m->copy_only && m->kind == LARDER_KIND_SPARE)
		refuse(plan, uuid, false,
		       "%s: superblock: overwritten, only its copy is left: no spare any more; if nobody else has it now: larder super wipe %s, and make it one again",
		       m->path, m->path);
	else if (m->copy_only)
		refuse(plan, uuid, false,
		       "%s: superblock: overwritten, only its copy is left: is it somebody else's now? if it is larder's: larder %s start %s; if not, larder super wipe %s",
		       m->path, m->kind == LARDER_KIND_CACHE ? "cache" : "volume", m->path, m->path);
	else if (m->used)
		refuse(plan, uuid, false, "%s: in use: %s; release it first", m->path, m->used);
	else if (m->held)
		refuse(plan, uuid, false, "%s: %s%s", m->path, m->held, half ? half : "");
	free(half);
	return copy || m->foreign || m->copy_only || m->used || m->held;
}

/* The name for dm; false: refused. */
static bool choose_name(const struct facts *facts, struct plan *plan, const struct fact_member *m, const uint8_t uuid[16], bool cache,
			char *name, size_t size)
{
	const struct fact_member *other = namesake_of(facts, m);
	const char *kind = cache ? "cache" : "volume";
	char text[UUID_TEXT];

	uuid_text(uuid, text);
	snprintf(name, size, "%s%s", cache ? CACHE_PREFIX : "", m->label);
	if (!name_valid(m->label))
		refuse(plan, uuid, false, "%s: label: '%s' cannot be a device's name; larder %s start %s --name NAME", m->path, m->label, kind,
		       text);
	else if (name_taken(facts, name))
		refuse(plan, uuid, false, "%s: label: another device is called %s; larder %s start %s --name NAME", m->path, name, kind, text);
	else if (other)
		refuse(plan, uuid, false, "%s: label: %s has it too; larder %s start %s --name NAME", m->path, other->path, kind, text);
	else
		return true;
	return false;
}

/* ------------------------------------------------------------------ a cache: who is a member? */

struct set {
	const uint8_t *uuid;
	const struct larder_table *table; /* the newest of those here */
	int member[LARDER_MAX_DEVICES]; /* by place */
	uint32_t number, missing;
	uint64_t segments, since, all; /* all: the generation that the superblocks of all members have had */
	const struct fact_member *any; /* of its members, in the lowest place */
};

/* The newest table; false: refused, because none is valid, or two of them do not know of each other. */
static bool choose_table(const struct facts *facts, struct plan *plan, struct set *set)
{
	const struct fact_member *from = NULL;

	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if (!is_ssd_of(m, set->uuid) || !m->table || (from && !table_is_newer(m->table, from->table)))
			continue;
		from = m;
	}
	for (size_t i = 0; from && i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];
		bool apart = is_ssd_of(m, set->uuid) && m->table &&
			     table_set_generation(m->table) != table_set_generation(from->table) &&
			     table_set_generation(m->table) >> 32 == table_set_generation(from->table) >> 32;

		if (!apart)
			continue;
		refuse(plan, set->uuid, false,
		       "%s: set_generation: %" PRIx64 ", and %" PRIx64
		       " on %s: they were used without one another; detach the side that is to be given up, then larder assemble",
		       strcmp(m->path, from->path) < 0 ? m->path : from->path, table_set_generation(m->table),
		       table_set_generation(from->table),
		       strcmp(m->path, from->path) < 0 ? from->path : m->path);
		return false;
	}
	if (from) {
		set->table = from->table;
		return true;
	}
	for (size_t i = 0; i < facts->nr_members; i++)
		if (is_ssd_of(&facts->member[i], set->uuid)) {
			refuse(plan, set->uuid, false, "%s: table: neither copy is valid; larder super check %s says more",
			       facts->member[i].path, facts->member[i].path);
			break;
		}
	return false;
}

enum standing {
	STANDS, /* a member in its place */
	JOINS, /* it was to take a place that is vacant */
	STALE,
	OLDER, /* put back from an image, as a rule: it lacks what it had (rule 16) */
};

static enum standing standing(const struct set *set, const struct fact_member *m)
{
	const struct larder_table_device *d = &set->table->devices[m->place];
	uint32_t number = le32toh(set->table->head.nr_devices);

	/* one that was to join behind the others, and has no place there yet, the kernel knows nothing of */
	if (m->place >= number || m->place >= LARDER_MAX_DEVICES)
		return STALE;
	/* where one has failed or was removed; or it is named already, and its own table, which is the last, is not written */
	if (m->joins && !m->table)
		return le32toh(d->state) != LARDER_DEVICE_ACTIVE || same(d->uuid, m->uuid) ? JOINS : STALE;
	if (!m->table || le32toh(d->state) != LARDER_DEVICE_ACTIVE || !same(d->uuid, m->uuid) ||
	    le32toh(d->first_segment) != m->first_segment || le32toh(d->nr_segments) > m->nr_segments ||
	    le64toh(d->segments_offset) != m->segments_offset)
		return STALE;
	if (!table_knows(set->table, table_set_generation(m->table)))
		return STALE;
	return m->generation < set->all ? OLDER : STANDS;
}

static void refuse_stale(struct plan *plan, const struct set *set, const struct fact_member *m)
{
	if (m->joins && !m->table)
		refuse(plan, m->uuid, false, "%s: was to join the cache %s, and is no member yet: not used; larder cache add %s %s, or larder super wipe %s",
		       m->path, m->label, m->label, m->path, m->path);
	else if (!m->table)
		refuse(plan, m->uuid, false, "%s: table: neither copy is valid: not used; larder super check %s says more", m->path, m->path);
	else if (!table_knows(set->table, table_set_generation(m->table)))
		refuse(plan, m->uuid, false,
		       "%s: SSD %u of the cache %s was used without the others (its own %" PRIx64 ", now %" PRIx64
		       "): not used; it may have the only copy of what was written then: larder rescue list %s",
		       m->path, m->place, m->label, table_set_generation(m->table), table_set_generation(set->table), m->path);
	else
		refuse(plan, m->uuid, false,
		       "%s: SSD %u of the cache %s is stale: it left the set (its own %" PRIx64 ", now %" PRIx64
		       "): not used; to take it back: larder cache add %s %s",
		       m->path, m->place, m->label, table_set_generation(m->table), table_set_generation(set->table), m->label, m->path);
}

/* Puts members into their places.  False: one of them is not to be used, and so is the set. */
static bool fill_places(const struct facts *facts, struct plan *plan, struct set *set)
{
	uint64_t all = 0;
	bool fit = true;

	set->number = le32toh(set->table->head.nr_devices);
	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if (is_ssd_of(m, set->uuid) && standing(set, m) == STANDS)
			all = later(all, m->all_generation);
	}
	set->all = all;
	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];
		enum standing stands;

		if (!is_ssd_of(m, set->uuid))
			continue;
		stands = standing(set, m);
		if (stands == STALE) {
			const struct fact_member *copy = copy_of(facts, m);

			/* an image of it that was cut off, say: it is told by the lower path of both */
			if (copy && is_ssd_of(copy, set->uuid) && standing(set, copy) != STALE)
				unfit(facts, plan, m, set->uuid);
			else
				refuse_stale(plan, set, m);
			continue;
		}
		if (unfit(facts, plan, m, set->uuid)) {
			fit = false;
			continue;
		}
		if (stands == OLDER) {
			refuse(plan, m->uuid, false,
			       "%s: SSD %u of the cache %s is older than it was (generation %" PRIu64 ", and all had %" PRIu64
			       "), as one put back from an image is: it counts as missing; attach the one that it had; if it is that, and loses what it has acknowledged: larder cache start %s --option stale=accept",
			       m->path, m->place, m->label, m->generation, set->all, m->label);
			continue;
		}
		/* as some do at the end of their life; the kernel would refuse the whole set for it */
		if (m->read_only) {
			refuse(plan, m->uuid, false,
			       "%s: SSD %u of the cache %s is read-only: it counts as missing; if that can be mended: blockdev --setrw %s, and larder cache add %s %s; "
			       "else see larder-cache(8), replace",
			       m->path, m->place, m->label, m->path, m->label, m->path);
			continue;
		}
		if (set->member[m->place] >= 0) /* two that join in one place: by UUID, so that order does not matter */
			if (memcmp(facts->member[set->member[m->place]].uuid, m->uuid, 16) < 0)
				continue;
		set->member[m->place] = (int)i;
		set->since = later(set->since, m->appeared);
	}
	for (uint32_t i = 0; i < set->number; i++) {
		if (set->member[i] >= 0)
			set->segments += facts->member[set->member[i]].nr_segments;
		else if (le32toh(set->table->devices[i].state) == LARDER_DEVICE_ACTIVE)
			set->missing++;
		if (set->member[i] >= 0 && !set->any && facts->member[set->member[i]].table &&
		    le32toh(set->table->devices[i].state) == LARDER_DEVICE_ACTIVE)
			set->any = &facts->member[set->member[i]];
	}
	return fit;
}

/* ------------------------------------------------------------------ a cache: may it start? */

/* A volume of it that is here ran with SSDs that these do not know of. */
static const struct fact_member *other_side(const struct facts *facts, const struct set *set)
{
	const struct fact_member *first = NULL;

	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if (m->kind != LARDER_KIND_VOLUME || !same(m->cache_uuid, set->uuid) || !m->set_generation ||
		    table_knows(set->table, m->set_generation))
			continue;
		if (!first || strcmp(m->path, first->path) < 0)
			first = m;
	}
	return first;
}

static const struct fact_member *volume_here(const struct facts *facts, const uint8_t uuid[16], const uint8_t cache[16])
{
	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if (m->kind == LARDER_KIND_VOLUME && same(m->uuid, uuid) && same(m->cache_uuid, cache) && !copy_of(facts, m) && !m->foreign &&
		    !m->copy_only && !m->held)
			return m;
	}
	return NULL;
}

/*
 * Volumes that the table knows: how many, how many of them are here.  Those here know no newer set (other_side()); only if all are,
 * nobody has used the set without the SSDs that are here.
 */
static void count_volumes(const struct facts *facts, struct set *set, unsigned *known, unsigned *here)
{
	*known = *here = 0;
	for (uint32_t i = 0; i < le32toh(set->table->head.nr_volumes) && i < LARDER_MAX_VOLUMES; i++) {
		const struct larder_table_volume *v = &set->table->volumes[i];
		const struct fact_member *m;

		if (le32toh(v->state) != LARDER_VOLUME_ATTACHED)
			continue;
		m = volume_here(facts, v->uuid, set->uuid);
		*known += 1;
		*here += m && m->set_generation;
		if (m)
			set->since = later(set->since, m->appeared);
	}
}

/* A volume of it whose array is one half of two; NULL: none. */
static const struct fact_member *volume_apart(const struct facts *facts, const uint8_t cache[16])
{
	const struct fact_member *first = NULL;

	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if (m->kind == LARDER_KIND_VOLUME && same(m->cache_uuid, cache) && other_half(facts, m->uuid) && (!first || strcmp(m->path, first->path) < 0))
			first = m;
	}
	return first;
}

/* Does larder.conf want it with all of its SSDs? */
static bool wanted_whole(const struct facts *facts, const uint8_t cache[16])
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (is_ssd_of(&facts->member[i], cache) && facts->member[i].whole)
			return true;
	return false;
}

/* Its members have one label; if not, one of them is enough to leave it. */
static bool cache_left(const struct facts *facts, const uint8_t cache[16])
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (is_ssd_of(&facts->member[i], cache) && facts->member[i].left)
			return true;
	return false;
}

/* SSDs are missing: start without them?  Refuses if not. */
static bool may_start_degraded(const struct facts *facts, struct plan *plan, struct set *set)
{
	const struct fact_member *m = set->any, *apart = volume_apart(facts, set->uuid);
	unsigned known, here;

	count_volumes(facts, set, &known, &here);
	if (wait_on(facts, plan, set->since))
		refuse(plan, set->uuid, true, "cache %s: waits for %u of its %u SSDs", m->label, set->missing, set->number);
	else if (wanted_whole(facts, set->uuid))
		refuse(plan, set->uuid, false,
		       "cache %s: %u of its %u SSDs are missing, and larder.conf has 'degraded no' for it; attach them, or larder cache start %s --degraded",
		       m->label, set->missing, set->number, m->label);
	else if (!here)
		refuse(plan, set->uuid, false,
		       "cache %s: %u of its %u SSDs are missing, and no volume of it is here; attach them, or larder cache start %s --degraded",
		       m->label, set->missing, set->number, m->label);
	else if (here < known)
		refuse(plan, set->uuid, false,
		       "cache %s: %u of its %u SSDs are missing, and so are %u of its %u volumes: it cannot be known whether those ran with SSDs that are newer; "
		       "attach them, or larder cache start %s --degraded",
		       m->label, set->missing, set->number, known - here, known, m->label);
	else if (apart)
		refuse(plan, set->uuid, false,
		       "cache %s: %u of its %u SSDs are missing, and %s is another half of the array of its volume %s, each used without the other: it cannot be known which of them ran with SSDs that are newer; "
		       "attach them, or larder cache start %s --degraded",
		       m->label, set->missing, set->number, other_half(facts, apart->uuid)->path, apart->label, m->label);
	else
		return true;
	return false;
}

static void plan_cache(const struct facts *facts, struct plan *plan, const uint8_t uuid[16])
{
	struct set set = { .uuid = uuid };
	const struct fact_member *other;
	struct step *step;
	char name[sizeof(step->name)];

	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
		set.member[i] = -1;
	if (!choose_table(facts, plan, &set))
		return;
	if (!fill_places(facts, plan, &set))
		return;
	if (!set.any) {
		refuse(plan, uuid, false, "cache %s: none of the SSDs that are here is a member of its newest set", uuid_text(uuid, (char[UUID_TEXT]){ 0 }));
		return;
	}
	other = other_side(facts, &set);
	if (other) {
		refuse(plan, uuid, false,
		       "cache %s: set_generation: the volume on %s ran with other SSDs of it (%" PRIx64 ", these: %" PRIx64 "): attach those",
		       set.any->label, other->path, other->set_generation, table_set_generation(set.table));
		return;
	}
	if (set.missing && !may_start_degraded(facts, plan, &set))
		return;
	if (!choose_name(facts, plan, set.any, uuid, true, name, sizeof(name)))
		return;
	step = add_step(plan, PLAN_CACHE, uuid);
	snprintf(step->name, sizeof(step->name), "%s", name);
	step->number = set.number;
	memcpy(step->member, set.member, sizeof(step->member));
	step->sectors = set.segments * (set.any->segment_size >> LARDER_SECTOR_SHIFT);
	step->degraded = set.missing;
}

/* ------------------------------------------------------------------ a volume */

/* Any device that says it is an SSD of that cache, fit or not. */
static bool cache_here(const struct facts *facts, const uint8_t cache[16])
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (is_ssd_of(&facts->member[i], cache))
			return true;
	return false;
}

/* What the newest table of its cache knows of the volume; NULL: nothing. */
static const struct larder_table_volume *entry_of(const struct facts *facts, const struct fact_member *volume)
{
	const struct larder_table *newest = NULL;

	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if (is_ssd_of(m, volume->cache_uuid) && m->table && (!newest || table_is_newer(m->table, newest)))
			newest = m->table;
	}
	for (uint32_t i = 0; newest && i < le32toh(newest->head.nr_volumes) && i < LARDER_MAX_VOLUMES; i++)
		if (le32toh(newest->volumes[i].state) == LARDER_VOLUME_ATTACHED && same(newest->volumes[i].uuid, volume->uuid))
			return &newest->volumes[i];
	return NULL;
}

/* Its cache does not run.  True: start it without. */
static bool may_start_alone(const struct facts *facts, struct plan *plan, const struct fact_member *m)
{
	const struct fact_return *half = other_half(facts, m->uuid);
	char text[UUID_TEXT];

	uuid_text(m->cache_uuid, text);
	if (cache_here(facts, m->cache_uuid)) /* what holds the cache back is said there */
		return false;
	if (wait_on(facts, plan, m->appeared))
		refuse(plan, m->uuid, true, "volume %s: waits for its cache %s", m->label, text);
	else if (m->may_be_dirty)
		refuse(plan, m->uuid, false, "volume %s: its cache %s is not here, and may hold newer data; bring that cache back", m->label, text);
	else if (m->whole)
		refuse(plan, m->uuid, false,
		       "volume %s: its cache %s is not here, and larder.conf has 'degraded no' for it; bring that cache back, or larder volume start %s --without-cache",
		       m->label, text, m->label);
	else if (half)
		refuse(plan, m->uuid, false,
		       "volume %s: its cache %s is not here, and %s is another half of its array, each used without the other: nobody knows which of them has all; bring that cache back, or larder volume start %s --without-cache",
		       m->label, text, half->path, m->label);
	else
		return true;
	return false;
}

/* Of two copies, neither of which is used, that which it is said of. */
static int find_store(const struct facts *facts, const uint8_t uuid[16])
{
	int found = -1;

	for (size_t i = 0; i < facts->nr_members; i++)
		if (facts->member[i].kind == LARDER_KIND_OTHER && same(facts->member[i].uuid, uuid) &&
		    (found < 0 || strcmp(facts->member[i].path, facts->member[found].path) < 0))
			found = (int)i;
	return found;
}

/* Without one of its snapshots a volume that was written to would leave that with contents that never were.  Refuses if one cannot be used. */
static bool find_stores(const struct facts *facts, struct plan *plan, const struct fact_member *m, int store[static SNAPSHOTS_MAX])
{
	bool good = true;

	for (uint32_t i = 0; i < m->snapshots; i++) {
		store[i] = find_store(facts, m->snapshot[i].uuid);
		if (store[i] >= 0) {
			good &= !unfit(facts, plan, &facts->member[store[i]], m->uuid);
			continue;
		}
		good = false;
		if (wait_on(facts, plan, m->appeared))
			refuse(plan, m->uuid, true, "volume %s: waits for the store of its snapshot %s", m->label, m->snapshot[i].name);
		else
			refuse(plan, m->uuid, false,
			       "volume %s: the store of its snapshot %s is not here; attach it, or larder start %s --drop-snapshot %s: the snapshot is LOST then",
			       m->label, m->snapshot[i].name, m->stack, m->snapshot[i].name);
	}
	return good;
}

static void plan_volume(const struct facts *facts, struct plan *plan, size_t place)
{
	const struct fact_member *m = &facts->member[place];
	bool alone = uuid_is_zero(m->cache_uuid), without = false;
	const struct fact_running *cache = alone ? NULL : facts_running(facts, m->cache_uuid, true);
	const struct larder_table_volume *entry;
	struct step *step;
	char name[sizeof(step->name)], *half;
	int store[SNAPSHOTS_MAX];

	if (unfit(facts, plan, m, m->uuid) || !find_stores(facts, plan, m, store))
		return;
	if (!alone && !cache) {
		without = may_start_alone(facts, plan, m);
		if (!without)
			return;
	}
	entry = cache ? entry_of(facts, m) : NULL;
	if (entry && le64toh(entry->incarnation) != m->incarnation && (!m->left_cache || m->may_be_dirty)) {
		half = plan_other_half(facts, m->uuid);
		refuse(plan, m->uuid, false,
		       "%s: incarnation: the volume %s ran without its cache %s, which is stale for it; larder volume start %s --option stale=discard%s",
		       m->path, m->label, cache->name, m->label, half);
		free(half);
		return;
	}
	if (!choose_name(facts, plan, m, m->uuid, false, name, sizeof(name)))
		return;
	step = add_step(plan, PLAN_VOLUME, m->uuid);
	snprintf(step->name, sizeof(step->name), "%s", name);
	snprintf(step->cache, sizeof(step->cache), "%s", cache ? cache->name : "-");
	step->number = 1;
	step->member[0] = (int)place;
	step->sectors = m->sectors;
	step->degraded = without;
	memcpy(step->store, store, m->snapshots * sizeof(*store));
}

/* ------------------------------------------------------------------ a spare */

static bool wanted(const struct facts *facts, const struct fact_member *m);

static bool is_spare_of(const struct fact_member *m, const uint8_t cache[16])
{
	return m->kind == LARDER_KIND_SPARE && same(m->cache_uuid, cache);
}

/* Whoever made it one that joins in this place was killed before the kernel knew of it: it carries nothing yet. */
static bool is_half_joined(const struct fact_member *m, const uint8_t cache[16], uint32_t place)
{
	return is_ssd_of(m, cache) && m->joins && !m->table && m->place == place;
}

static bool usable(const struct facts *facts, const struct fact_member *m)
{
	struct plan nobody = { 0 };
	bool bad = unfit(facts, &nobody, m, m->uuid) || m->read_only;

	plan_free(&nobody);
	return !bad;
}

/* What was begun goes first; then by size, then by UUID: the order in which they are listed does not matter. */
static bool is_before(const struct fact_member *a, const struct fact_member *b)
{
	if (a->kind != b->kind)
		return a->kind != LARDER_KIND_SPARE;
	if (a->nr_segments != b->nr_segments)
		return a->nr_segments < b->nr_segments;
	return memcmp(a->uuid, b->uuid, 16) < 0;
}

/* Who takes the place; -1: nobody.  *small: there is one, which has too little room. */
static int choose_spare(const struct facts *facts, const uint8_t cache[16], uint32_t place, uint32_t segments, bool *small)
{
	int best = -1;

	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if ((!is_spare_of(m, cache) && !is_half_joined(m, cache, place)) || !wanted(facts, m) || !usable(facts, m))
			continue;
		if (m->nr_segments < segments)
			*small = true;
		else if (best < 0 || is_before(m, &facts->member[best]))
			best = (int)i;
	}
	return best;
}

/* The kernel gives a place its next SSD's UUID before that has joined: where it could not, the table names who was begun there, not who failed. */
static bool names_begun(const struct facts *facts, const uint8_t cache[16], uint32_t place, const struct larder_table_device *d)
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (same(facts->member[i].uuid, d->uuid) && is_half_joined(&facts->member[i], cache, place))
			return true;
	return false;
}

/*
 * The SSD that failed, and that is here again: a cable, say; NULL: it is not.  One that failed and never went is held by the cache, as the kernel keeps
 * it; one that nobody holds is here for another reason, and no memory of when it came is needed.  What was begun carries nothing, and is no SSD yet.
 * Whom the table does not name any more is known by its place, and by having come since: others may have left that place long ago.
 */
static const struct fact_member *came_back(const struct facts *facts, const struct fact_running *cache, uint32_t place,
					   const struct larder_table_device *d)
{
	bool begun = names_begun(facts, cache->uuid, place, d);

	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];
		bool came = m->appeared > cache->failed_since[place],
		     it = begun ? came && m->table && m->place == place : same(m->uuid, d->uuid) && (came || !m->used);

		if (it && is_ssd_of(m, cache->uuid) && !is_half_joined(m, cache->uuid, place) && !m->foreign && !m->copy_only)
			return m;
	}
	return NULL;
}

/* A spare, or an SSD of it, that was not here when the last one could not join. */
static bool another_came(const struct facts *facts, const struct fact_running *cache)
{
	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		/* when it came is not known of one that comes now in each look */
		if ((is_spare_of(m, cache->uuid) || is_ssd_of(m, cache->uuid)) && m->appeared > cache->held_since && m->appeared < facts->now)
			return true;
	}
	return false;
}

/* Is it too early?  An SSD that is away for a moment only is not replaced, and a spare that could not join is not tried over and over. */
static bool spare_waits(const struct facts *facts, struct plan *plan, const struct fact_running *cache, uint32_t place, const char *spare)
{
	if (facts->now < cache->held_until && !another_came(facts, cache)) {
		if (!plan->again || cache->held_until < plan->again)
			plan->again = cache->held_until;
		refuse(plan, cache->uuid, true, "%s: SSD %u has failed, and its spare %s could not join: it is tried again later", cache->name, place,
		       spare);
		return true;
	}
	if (listed(facts->failed, facts->nr_failed, cache->uuid))
		return true;
	if (!wait_on(facts, plan, cache->failed_since[place]))
		return false;
	refuse(plan, cache->uuid, true, "%s: SSD %u has failed: its spare %s waits, in case that comes back", cache->name, place, spare);
	return true;
}

/* True: nothing more is planned for this cache. */
static bool plan_place(const struct facts *facts, struct plan *plan, const struct fact_running *cache, uint32_t place,
		       const struct larder_table_device *d)
{
	const struct fact_member *back;
	bool small = false;
	int spare = choose_spare(facts, cache->uuid, place, le32toh(d->nr_segments), &small);
	struct step *step;

	if (spare < 0 && small)
		refuse(plan, cache->uuid, false,
		       "%s: SSD %u has failed, and its spares have less room than that had: none is used; larder cache add %s SPARE adds one as it is",
		       cache->name, place, cache->name);
	if (spare < 0)
		return false;
	back = came_back(facts, cache, place, d);
	if (back) {
		refuse(plan, cache->uuid, false,
		       "%s: SSD %u has failed, and is here again: its spare is left; larder cache add %s %s takes it back, larder cache replace %s %u %s the spare instead",
		       back->path, place, cache->name, back->path, cache->name, place, facts->member[spare].path);
		return false;
	}
	if (spare_waits(facts, plan, cache, place, facts->member[spare].path))
		return false;
	step = add_step(plan, PLAN_SPARE, cache->uuid);
	snprintf(step->name, sizeof(step->name), "%s", cache->name);
	step->number = place;
	step->member[0] = spare;
	return true;
}

/* One at a time: what it gets is copied while it joins, and the next plan sees what came of it. */
static void plan_spares(const struct facts *facts, struct plan *plan, const struct fact_running *cache)
{
	struct set set = { .uuid = cache->uuid };
	struct plan nobody = { 0 }; /* of two sides that are here list_strangers() tells */
	bool whole;

	if (!cache->cache || !cache->failed || cache->busy || cache_left(facts, cache->uuid))
		return;
	whole = choose_table(facts, &nobody, &set);
	plan_free(&nobody);
	if (!whole)
		return;
	for (size_t i = 0; i < facts->nr_members; i++)
		if (is_spare_of(&facts->member[i], cache->uuid) && wanted(facts, &facts->member[i]))
			unfit(facts, plan, &facts->member[i], facts->member[i].uuid);
	for (uint32_t place = 0; place < LARDER_MAX_DEVICES && place < le32toh(set.table->head.nr_devices); place++)
		if (cache->failed >> place & 1 && le32toh(set.table->devices[place].state) == LARDER_DEVICE_FAILED &&
		    plan_place(facts, plan, cache, place, &set.table->devices[place]))
			return;
}

/* ------------------------------------------------------------------ what an array has lost */

bool plan_has_to_note(const struct fact_member *m)
{
	return md_lost_due(&m->lost_disks) || m->lost || m->few_errors;
}

/*
 * A disk that md has failed, or that is not here, has the description that the others have, and may be the only one here some day: the description of
 * these gets a generation that it lacks.
 */
static void plan_note(const struct facts *facts, struct plan *plan, size_t place)
{
	const struct fact_member *m = &facts->member[place];
	const struct fact_running *r = m->kind == LARDER_KIND_VOLUME ? facts_running(facts, m->uuid, false) : NULL;
	struct step *step;

	if (!r || !*m->stack || !plan_has_to_note(m) || m->held || copy_of(facts, m))
		return;
	if (facts->now < r->held_until) {
		if (!plan->again || r->held_until < plan->again)
			plan->again = r->held_until;
		return;
	}
	if (listed(facts->failed, facts->nr_failed, m->uuid))
		return;
	step = add_step(plan, PLAN_NOTE, m->uuid);
	snprintf(step->name, sizeof(step->name), "%s", m->stack);
	step->member[0] = (int)place;
}

/* ------------------------------------------------------------------ disks of arrays */

static bool volume_is_wanted(const struct facts *facts, const uint8_t volume[16]);

/* The volume on the array of a disk that returns, if that may be changed; -1. */
static int volume_of(const struct facts *facts, const struct fact_return *r)
{
	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];

		if (m->kind == LARDER_KIND_VOLUME && same(m->uuid, r->volume))
			return *m->stack && !m->held && !copy_of(facts, m) && facts_running(facts, m->uuid, false) ? (int)i : -1;
	}
	return -1;
}

/* Of several the one that is needed, and then the first by its path, so that each of them is told of, by the first or by itself. */
static const struct fact_return *return_twice(const struct facts *facts, const struct fact_return *r)
{
	const struct fact_return *twin = NULL;
	bool needed = false;

	for (size_t i = 0; i < facts->nr_returning; i++) {
		const struct fact_return *other = &facts->returning[i];
		bool is_needed = md_return(&other->leg, &other->now) != MD_RETURN_UNNEEDED;

		if (other == r || !same(other->leg.own, r->leg.own) || (twin && (is_needed != needed ? needed : strcmp(other->path, twin->path) >= 0)))
			continue;
		twin = other;
		needed = is_needed;
	}
	return twin;
}

/* Refuses what is left for good. */
static bool may_return(const struct facts *facts, struct plan *plan, const struct fact_return *r, const char *stack)
{
	enum md_return verdict = md_return(&r->leg, &r->now);
	const char *why = md_return_reason(verdict);
	const struct fact_return *twin = return_twice(facts, r);

	if (verdict == MD_RETURN_UNNEEDED)
		return false;
	if (twin) {
		if (strcmp(r->path, twin->path) < 0 || md_return(&twin->leg, &twin->now) == MD_RETURN_UNNEEDED || return_twice(facts, twin) != r)
			refuse(plan, r->volume, false,
			       "%s: uuid: %s has it too (a copy, or the same disk by two paths?): neither is taken back into the array of the stack %s; detach one, or mdadm --zero-superblock it",
			       r->path, twin->path, stack);
	} else if (r->foreign) {
		refuse(plan, r->volume, false,
		       "%s: carries a signature %s beside that of the array of the stack %s: left; if it is nobody's, wipefs %s %s; if it is, mdadm --zero-superblock %s", r->path,
		       r->foreign, stack, r->wipefs, r->path, r->path);
	} else if (r->used) {
		refuse(plan, r->volume, false, "%s: is a disk of the array of the stack %s, and in use: %s; release it first", r->path, stack, r->used);
	} else if (why) {
		refuse(plan, r->volume, false,
		       "%s: is not taken back into the array of the stack %s: it %s; larder replace %s diskN %s --wipe makes it a disk of that, and what is on it is LOST", r->path, stack,
		       why, stack, r->path);
	} else if (r->copy) {
		refuse(plan, r->volume, false,
		       "%s: uuid: is a copy of a disk that the array of the stack %s had (it was here beside that, or is another one by its wwid): left, as nobody knows "
		       "what it lacks; larder replace %s diskN %s --wipe makes it a disk of that, and what is on it is LOST; if it was made while the stack was "
		       "stopped, or is that disk in another case: larder start %s --take-back %s",
		       r->path, stack, stack, r->path, stack, r->path);
	} else if (r->stayed) {
		refuse(plan, r->volume, false,
		       "%s: was taken out of the array of the stack %s while it was here: left; larder start %s --take-back %s takes it back%s%s; if it is to stay out: mdadm --zero-superblock %s", r->path,
		       stack, stack, r->path, r->all ? ", and all is copied to it" : "", r->all ? MD_RETURN_WHY_ALL : "", r->path);
	} else {
		return true;
	}
	return false;
}

/* Not while it waits behind a try that failed. */
static bool may_try(const struct facts *facts, struct plan *plan, const struct fact_return *r)
{
	if (facts->now < r->held_until) {
		if (!plan->again || r->held_until < plan->again)
			plan->again = r->held_until;
		return false;
	}
	return !listed(facts->failed, facts->nr_failed, r->leg.own);
}

/* One of each array at a time: the next plan sees whose places are held then. */
static bool is_first(const struct facts *facts, const struct fact_return *r, const char *stack)
{
	struct plan nobody = { 0 };
	bool first = true;

	for (size_t i = 0; i < facts->nr_returning; i++) {
		const struct fact_return *other = &facts->returning[i];

		if (other != r && same(other->volume, r->volume) && md_return_before(&other->leg, &r->leg) && may_return(facts, &nobody, other, stack) &&
		    may_try(facts, &nobody, other))
			first = false;
	}
	plan_free(&nobody);
	return first;
}

static void plan_return(const struct facts *facts, struct plan *plan, size_t place)
{
	const struct fact_return *r = &facts->returning[place];
	int volume = volume_of(facts, r);
	struct step *step;

	if (volume < 0 || !volume_is_wanted(facts, r->volume) || !may_return(facts, plan, r, facts->member[volume].stack) || !may_try(facts, plan, r) ||
	    !is_first(facts, r, facts->member[volume].stack))
		return;
	step = add_step(plan, PLAN_RETURN, r->leg.own);
	snprintf(step->name, sizeof(step->name), "%s", facts->member[volume].stack);
	step->member[0] = volume;
	step->returning = (int)place;
}

/* Nobody starts it by himself; and where md's rules leave it, as what is missing may come, or as it is another host's by its name, they say nothing. */
static void tell_rest(const struct facts *facts, struct plan *plan, const struct fact_rest *r)
{
	const struct md_rest *rest = &r->rest;
	char text[UUID_TEXT];

	if (r->left || !volume_is_wanted(facts, r->volume) || listed(facts->stopped, facts->nr_stopped, r->volume))
		return;
	if (wait_on(facts, plan, r->appeared)) {
		if (rest->missing)
			refuse(plan, r->stack_uuid, true, "stack %s: waits for %u of the %u disks of its array%s", r->stack, rest->missing, rest->places,
			       rest->write_hole ? ", which was written to when it was cut off" : "");
		return;
	}
	if (rest->write_hole) {
		refuse(plan, r->stack_uuid, false,
		       "stack %s: its array was written to when it was cut off, and lacks %u of its %u disks: what is computed in their place may be wrong, and nothing says where (write hole): not started; attach them; if they are gone: larder start %s --degraded --accept-write-hole %s",
		       r->stack, rest->missing, rest->places, r->stack, uuid_text(r->stack_uuid, text));
		plan->refusal[plan->nr_refusals - 1].write_hole = true;
	} else if (!rest->missing || rest->mirror_torn) {
		refuse(plan, r->stack_uuid, false, "stack %s: its array does not run, and the disks that it needs are here; larder start %s", r->stack, r->stack);
	} else if (rest->enough) {
		refuse(plan, r->stack_uuid, false,
		       "stack %s: its array does not run, as it lacks %u of its %u disks; attach them; if they are gone: larder start %s --degraded", r->stack,
		       rest->missing, rest->places, r->stack);
	} else {
		refuse(plan, r->stack_uuid, false, "stack %s: its array does not run, as it lacks %u of its %u disks; attach them", r->stack, rest->missing,
		       rest->places);
	}
}

/* ------------------------------------------------------------------ how full the stores of snapshots are */

static void watch_snapshots(const struct facts *facts, struct plan *plan, const struct fact_member *m)
{
	if (m->kind != LARDER_KIND_VOLUME || !facts_running(facts, m->uuid, false) || copy_of(facts, m))
		return;
	if (m->warning) {
		refuse(plan, m->uuid, false, "stack %s: %s", m->stack, m->warning);
		plan->refusal[plan->nr_refusals - 1].warning = true;
	}
	plan->stores |= m->snapshots;
}

/* ------------------------------------------------------------------ all of it */

/* Is it asked for?  A cache is, with its spares, where a volume of it is. */
static bool wanted(const struct facts *facts, const struct fact_member *m)
{
	if (!facts->only || same(facts->only, m->uuid) || same(facts->only, m->cache_uuid))
		return true;
	if (m->leg)
		return same(facts->only, m->volume);
	for (size_t i = 0; m->kind != LARDER_KIND_VOLUME && i < facts->nr_members; i++)
		if (facts->member[i].kind == LARDER_KIND_VOLUME && same(facts->member[i].uuid, facts->only) &&
		    same(facts->member[i].cache_uuid, m->cache_uuid))
			return true;
	return false;
}

static bool volume_is_wanted(const struct facts *facts, const uint8_t volume[16])
{
	if (!facts->only || same(facts->only, volume))
		return true;
	for (size_t i = 0; i < facts->nr_members; i++)
		if (facts->member[i].kind == LARDER_KIND_VOLUME && same(facts->member[i].uuid, volume))
			return wanted(facts, &facts->member[i]);
	return false;
}

/* Nothing is to be done: it runs, somebody stopped it, it failed. */
static bool settled(const struct facts *facts, const uint8_t uuid[16], bool cache)
{
	return facts_running(facts, uuid, cache) || listed(facts->stopped, facts->nr_stopped, uuid) ||
	       listed(facts->failed, facts->nr_failed, uuid);
}

static void plan_leg(const struct facts *facts, struct plan *plan, size_t place)
{
	const struct fact_member *m = &facts->member[place];
	struct step *step;
	char text[UUID_TEXT];

	if (m->runs || m->left || settled(facts, m->uuid, false) || listed(facts->stopped, facts->nr_stopped, m->volume) || unfit(facts, plan, m, m->uuid))
		return;
	step = add_step(plan, PLAN_LEG, m->uuid);
	snprintf(step->name, sizeof(step->name), LEG_PREFIX "%s", uuid_text(m->uuid, text));
	step->number = 1;
	step->member[0] = (int)place;
}

/* Of what runs: those that are not part of it, though they look as if they were. */
static void list_strangers(const struct facts *facts, struct plan *plan, const struct fact_member *m)
{
	const struct fact_member *copy = copy_of(facts, m);

	struct set set = { .uuid = m->cache_uuid };

	if (copy && strcmp(m->path, copy->path) < 0)
		refuse(plan, m->uuid, false, "%s: uuid: %s has it too, and one of them runs; detach the other, or larder super wipe it", m->path,
		       copy->path);
	if (m->kind != LARDER_KIND_CACHE || copy || !m->table || !choose_table(facts, plan, &set))
		return;
	if (standing(&set, m) == STALE)
		refuse_stale(plan, &set, m);
}

static bool first_of_cache(const struct facts *facts, size_t place)
{
	for (size_t i = 0; i < place; i++)
		if (is_ssd_of(&facts->member[i], facts->member[place].cache_uuid))
			return false;
	return true;
}

void plan_make(const struct facts *facts, struct plan *plan)
{
	*plan = (struct plan){ 0 };
	for (size_t i = 0; i < facts->nr_half; i++) {
		struct step *step = add_step(plan, PLAN_CLEAR, NULL);

		snprintf(step->name, sizeof(step->name), "%s", facts->half[i]);
	}
	if (plan->nr_steps) /* they hold names and devices */
		return;
	for (size_t i = 0; i < facts->nr_members; i++) {
		const struct fact_member *m = &facts->member[i];
		bool cache = m->kind == LARDER_KIND_CACHE;
		const uint8_t *uuid = cache ? m->cache_uuid : m->uuid;

		if (m->leg && wanted(facts, m))
			plan_leg(facts, plan, i);
		if ((!cache && m->kind != LARDER_KIND_VOLUME) || !wanted(facts, m))
			continue;
		if (facts_running(facts, uuid, cache))
			list_strangers(facts, plan, m);
		if (settled(facts, uuid, cache) || (cache ? cache_left(facts, uuid) : m->left))
			continue;
		if (!cache)
			plan_volume(facts, plan, i);
		else if (first_of_cache(facts, i))
			plan_cache(facts, plan, uuid);
	}
	for (size_t i = 0; i < facts->nr_rests; i++)
		tell_rest(facts, plan, &facts->rest[i]);
	if (plan->nr_steps) /* what starts goes first */
		return;
	for (size_t i = 0; facts->notes && i < facts->nr_members; i++) {
		plan_note(facts, plan, i);
		watch_snapshots(facts, plan, &facts->member[i]);
	}
	for (size_t i = 0; i < facts->nr_returning; i++)
		plan_return(facts, plan, i);
	if (!facts->spares)
		return;
	for (size_t i = 0; i < facts->nr_running; i++)
		plan_spares(facts, plan, &facts->running[i]);
}
