// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon/plan.c: what must hold of every plan, for random worlds of caches, SSDs and volumes; and what must be planned where nothing
 * speaks against it.  The judge knows the history of each device, which the planner sees only through superblocks and tables.
 *
 *	test_plan [seed]
 *	test_plan -		a world for each line of numbers, of which it is made (tests/test_plan.py)
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/md_leg.c"
#include "../../daemon/plan.c"

typedef unsigned long long u64;
static long pure_live;
#include "seeded.h"

#define WORLDS 12000
#define MAX_CACHES 3
#define MAX_MEMBERS 128
#define MAX_SETS 3 /* set generations that a cache had, or sides of it */

enum history {
	CURRENT, /* a member of the newest set */
	LEFT, /* it was one */
	JOINING, /* it was to be one, in a place that is vacant */
	DAMAGED, /* no table */
	IMAGE, /* a member that was put back from an image */
};

struct ssd_truth {
	enum history history;
	int cache;
};

struct cache_truth {
	uint8_t uuid[16];
	u64 generation[MAX_SETS]; /* newest first */
	u64 side; /* not 0: somebody used some SSDs without the others */
	unsigned number, active, attached;
};

/* Members, and of each what it really is. */
static struct fact_member member[MAX_MEMBERS];
static struct ssd_truth truth[MAX_MEMBERS];
static char path[MAX_MEMBERS][16];
static size_t nr_members;
static struct cache_truth cache[MAX_CACHES];
static unsigned nr_caches;
static struct larder_table *table[MAX_MEMBERS];
static size_t nr_tables;
static struct fact_running running_now[MAX_MEMBERS];
static char running_name[MAX_MEMBERS][LARDER_LABEL_SIZE + 32];
static struct fact_return returning[MAX_MEMBERS];
static char returning_path[MAX_MEMBERS][16];
static struct fact_rest rest[MAX_MEMBERS];
static unsigned disks_returned, disks_left, disks_stayed, holes_told, rests_told, halves_told;
static unsigned legs_started, spares_used, notes_made, snapshots_started, snapshots_refused;
static const char *taken[MAX_MEMBERS];
static uint8_t stopped[MAX_MEMBERS][16], failed[MAX_MEMBERS][16];
static struct facts facts;

static bool chance(unsigned percent)
{
	return rnd(100) < percent;
}

static void random_uuid(uint8_t uuid[16])
{
	static u64 made;

	if (chosen) { /* no two alike: what is alike is made so */
		memset(uuid, 0, 16);
		made++;
		memcpy(uuid, &made, sizeof(made));
		return;
	}
	for (int i = 0; i < 16; i++)
		uuid[i] = (uint8_t)rnd(256);
}

static struct larder_table *new_table(const struct cache_truth *c, unsigned set)
{
	struct larder_table *t = calloc(1, sizeof(*t));

	t->head.generation = htole64(100 - set);
	t->head.set_generation = htole64(c->generation[set]);
	t->head.nr_devices = htole32(c->number);
	memcpy(t->head.cache_uuid, c->uuid, 16);
	for (unsigned i = set + 1; i < MAX_SETS; i++)
		t->ancestors[i - set - 1] = htole64(c->generation[i]);
	return table[nr_tables++] = t;
}

static struct fact_member *add_member(uint32_t kind, const char *label)
{
	struct fact_member *m = &member[nr_members];

	*m = (struct fact_member){ .kind = kind, .appeared = 1000 + rnd(1000), .path = path[nr_members] };
	snprintf(path[nr_members], sizeof(path[0]), "/dev/d%02zu", nr_members);
	snprintf(m->label, sizeof(m->label), "%s", label);
	random_uuid(m->uuid);
	m->foreign = chance(2) ? "linux_raid_member" : NULL;
	m->wipefs = m->foreign ? "--types linux_raid_member --all" : NULL;
	m->below = m->foreign && chance(50);
	m->copy_only = chance(2);
	m->used = chance(2) ? "mounted on /x" : NULL;
	m->held = chance(kind == LARDER_KIND_VOLUME ? 5 : 2) ? "the stack s is half made" : NULL;
	m->older = m->held && kind == LARDER_KIND_VOLUME && chance(80);
	m->left = chance(3);
	m->whole = chance(3);
	nr_members++;
	return m;
}

static void add_copy(const struct fact_member *of)
{
	truth[nr_members] = truth[of - member];
	member[nr_members] = *of;
	member[nr_members].path = path[nr_members];
	snprintf(path[nr_members], sizeof(path[0]), "/dev/d%02zu", nr_members);
	nr_members++;
}

static void label_of(char *label, size_t size, const char *kind)
{
	snprintf(label, size, chance(2) ? "bad/%s" : "%s%u", kind, chance(5) ? 0 : (unsigned)rnd(1000));
}

/* The SSDs of a cache: first who they are, by the newest table, then what is left of each and which are here. */
static void make_cache(int number)
{
	struct cache_truth *c = &cache[number];
	struct larder_table *now, *before, *other;
	char label[32];

	*c = (struct cache_truth){ .number = 1 + (unsigned)rnd(4) };
	random_uuid(c->uuid);
	for (unsigned i = 0; i < MAX_SETS; i++)
		c->generation[i] = (u64)(10 - i) << 32 | (rnd64() & 0xffffffff);
	label_of(label, sizeof(label), "c");
	now = new_table(c, 0);
	before = new_table(c, 1);
	other = new_table(c, 0);
	if (c->number > 1 && chance(5)) {
		c->side = c->generation[0] ^ 1;
		other->head.set_generation = htole64(c->side);
	}
	for (unsigned i = 0; i < c->number; i++) {
		struct fact_member *m = add_member(LARDER_KIND_CACHE, label);
		struct ssd_truth *t = &truth[m - member];
		struct larder_table_device d = { .state = htole32(LARDER_DEVICE_ACTIVE), .first_segment = htole32(i * 100), .nr_segments = htole32(100),
						 .segments_offset = htole64(1 << 20) };

		*t = (struct ssd_truth){ i && chance(15) ? LEFT : i && chance(5) ? JOINING : CURRENT, number };
		memcpy(m->cache_uuid, c->uuid, 16);
		m->place = i;
		m->nr_segments = 100;
		m->first_segment = i * 100;
		m->segment_size = 2 << 20;
		m->segments_offset = 1 << 20;
		m->table = t->history == LEFT ? (chance(10) ? NULL : before) : c->side && chance(50) ? other : chance(30) ? before : now;
		memcpy(d.uuid, m->uuid, 16);
		before->devices[i] = other->devices[i] = now->devices[i] = d;
		if (t->history != CURRENT)
			now->devices[i].state = other->devices[i].state = htole32(LARDER_DEVICE_FAILED);
		if (t->history == JOINING) {
			if (chance(50)) /* else the kernel had named it there already */
				random_uuid(now->devices[i].uuid);
			memcpy(before->devices[i].uuid, now->devices[i].uuid, 16);
			m->joins = true;
			m->table = NULL;
		}
		c->active += t->history == CURRENT;
		m->all_generation = t->history == CURRENT ? 50 : 0;
		m->generation = t->history == CURRENT ? 50 + rnd(2) : 40;
		if (t->history == CURRENT && chance(2)) {
			t->history = DAMAGED;
			m->table = NULL;
		} else if (t->history == CURRENT && chance(4)) {
			t->history = IMAGE;
			m->generation = 49;
			m->all_generation = 48;
		}
		if (chance(20))
			nr_members--; /* it is not here */
		else if (chance(3))
			add_copy(m);
	}
}

static void make_spare(const struct cache_truth *c)
{
	struct fact_member *m = add_member(LARDER_KIND_SPARE, "c");

	truth[m - member] = (struct ssd_truth){ CURRENT, (int)(c - cache) };
	memcpy(m->cache_uuid, c->uuid, 16);
	m->nr_segments = 98 + (uint32_t)rnd(10);
	if (chance(5))
		add_copy(m);
}

/* A volume with snapshots, and their stores, or some of them. */
static void make_snapshots(struct fact_member *m)
{
	m->snapshots = 1 + (uint32_t)rnd(3);
	m->warning = chance(30) ? "its snapshot s0 is nearly full" : NULL;
	for (uint32_t i = 0; i < m->snapshots; i++) {
		struct fact_member *store = add_member(LARDER_KIND_OTHER, "");

		store->left = store->whole = false;
		snprintf(m->snapshot[i].name, sizeof(m->snapshot[i].name), "s%u", i);
		memcpy(m->snapshot[i].uuid, store->uuid, 16);
		truth[store - member] = (struct ssd_truth){ CURRENT, -1 };
		if (chance(10))
			nr_members--;
		else if (chance(3))
			add_copy(store);
	}
}

static void make_volume(struct cache_truth *c)
{
	struct fact_member *m;
	char label[32];

	label_of(label, sizeof(label), "v");
	m = add_member(LARDER_KIND_VOLUME, label);
	truth[m - member] = (struct ssd_truth){ CURRENT, c ? (int)(c - cache) : -1 };
	m->sectors = 1000;
	m->incarnation = 7;
	m->may_be_dirty = chance(50);
	if (chance(30)) {
		snprintf(m->stack, sizeof(m->stack), "s");
		m->lost_disks = (struct md_lost){ .lacks = rnd(4), .noted = rnd(4), .returned = rnd(4), .rebuilt = rnd(4) };
		m->lost_disks.rebuilt &= m->lost_disks.lacks;
		m->lost = chance(20);
		m->few_errors = chance(20);
	}
	if (c) {
		memcpy(m->cache_uuid, c->uuid, 16);
		m->set_generation = c->generation[chance(20)];
		if (chance(3))
			m->set_generation = (u64)11 << 32 | 5; /* of SSDs that nobody here knows */
		if (chance(80)) {
			c->attached++;
			for (size_t i = 0; i < nr_tables; i++) {
				struct larder_table *t = table[i];
				uint32_t n = le32toh(t->head.nr_volumes);

				if (memcmp(t->head.cache_uuid, c->uuid, 16))
					continue;
				t->volumes[n] = (struct larder_table_volume){ .state = htole32(LARDER_VOLUME_ATTACHED), .incarnation = htole64(7) };
				memcpy(t->volumes[n].uuid, m->uuid, 16);
				t->head.nr_volumes = htole32(n + 1);
			}
			if (chance(5)) {
				m->incarnation = 8;
				m->left_cache = chance(50);
			}
		}
	}
	if (chance(15))
		nr_members--;
	else if (chance(3))
		add_copy(m);
	else if (chance(30))
		make_snapshots(m);
}

/* A leg of an array, of a volume that is here or not. */
static void make_leg(void)
{
	const struct fact_member *of = NULL;
	struct fact_member *m;

	for (size_t i = 0; i < nr_members; i++)
		if (member[i].kind == LARDER_KIND_VOLUME && chance(50))
			of = &member[i];
	m = add_member(LARDER_KIND_OTHER, "");
	truth[m - member] = (struct ssd_truth){ CURRENT, -1 };
	m->leg = true;
	m->runs = chance(20);
	m->left = chance(10);
	m->whole = false;
	if (of)
		memcpy(m->volume, of->uuid, 16);
	if (chance(5))
		add_copy(m);
}

/* Disks that an array of that volume, which lacks some, had once. */
static void make_returning(const struct fact_member *m)
{
	struct md_now now = { .events = 10, .whole = 3, .held = 3 | (chance(20) ? 4 : 0), .places = 4, .level = 6 };

	for (unsigned i = 0; i < rnd(4); i++) {
		size_t k = facts.nr_returning++;
		struct fact_return *r = &returning[k];

		*r = (struct fact_return){ .path = returning_path[k], .now = now, .stayed = chance(10), .copy = chance(10), .all = chance(50), .foreign = chance(5) ? "dos" : NULL, .wipefs = "--types dos --all", .used = chance(5) ? "mounted on /x" : NULL };
		snprintf(returning_path[k], sizeof(returning_path[0]), "/dev/r%02zu", k);
		memcpy(r->volume, m->uuid, 16);
		r->leg = (struct md_leg){ .events = 8 + rnd(4), .holds = chance(85) ? 15 : rnd(16), .place = (int)rnd(6) - 2, .places = chance(95) ? 4 : 5, .level = 6 };
		random_uuid(r->leg.own);
		if (i && chance(5))
			memcpy(r->leg.own, returning[k - 1].leg.own, 16);
		r->held_until = chance(10) ? 1000 + rnd(2000) : 0;
	}
}

static void make_rest(void)
{
	struct fact_rest *r = &rest[facts.nr_rests++];

	*r = (struct fact_rest){ .stack = "s", .appeared = 1000 + rnd(1000), .rest = { .places = 4, .missing = (uint32_t)rnd(3), .enough = chance(70), .mirror_torn = chance(10) }, .left = chance(10) };
	r->rest.write_hole = r->rest.missing && chance(60);
	random_uuid(r->volume);
	random_uuid(r->stack_uuid);
	if (chance(10))
		memcpy(stopped[facts.nr_stopped++], r->volume, 16);
}

static const uint8_t *unit_of(const struct fact_member *m)
{
	return m->kind == LARDER_KIND_CACHE ? m->cache_uuid : m->uuid;
}

static void add_running(const uint8_t uuid[16], bool is_cache, const char *name)
{
	struct fact_running *r = &running_now[facts.nr_running];

	snprintf(running_name[facts.nr_running], sizeof(running_name[0]), "%s", name);
	*r = (struct fact_running){ .name = running_name[facts.nr_running], .cache = is_cache };
	memcpy(r->uuid, uuid, 16);
	r->held_until = !is_cache && chance(10) ? 1000 + rnd(2000) : 0;
	if (is_cache) {
		r->failed = chance(70) ? 15 : (uint32_t)rnd(16);
		for (unsigned place = 0; place < LARDER_MAX_DEVICES; place++)
			r->failed_since[place] = 1000 + rnd(2000);
		r->held_until = chance(10) ? 1000 + rnd(2000) : 0;
		r->held_since = chance(50) ? r->held_until : 0;
		r->busy = chance(20);
	}
	facts.nr_running++;
	taken[facts.nr_taken++] = r->name;
}

static void free_tables(void)
{
	while (nr_tables)
		free(table[--nr_tables]);
}

static void make_world(void)
{
	bool all_run;

	free_tables();
	nr_members = 0;
	facts = (struct facts){ .member = member, .running = running_now, .taken = taken, .stopped = stopped, .failed = failed, .returning = returning, .rest = rest };
	nr_caches = (unsigned)rnd(MAX_CACHES + 1);
	for (unsigned i = 0; i < nr_caches; i++)
		make_cache((int)i);
	for (unsigned i = 0; i < rnd(5); i++)
		make_volume(nr_caches && chance(80) ? &cache[rnd(nr_caches)] : NULL);
	for (unsigned i = 0; nr_caches && i < rnd(8); i++)
		make_spare(&cache[rnd(nr_caches)]);
	for (unsigned i = 0; i < rnd(4); i++)
		make_leg();
	facts.nr_members = nr_members;
	facts.now = 1000 + rnd(2000);
	facts.spares = chance(90);
	facts.notes = chance(90);
	all_run = chance(30);
	facts.wait = chance(30) ? 0 : chance(30) ? (u64)1 << 62 : rnd(2000);
	facts.began = chance(50) ? 0 : rnd(facts.now) + 1;
	facts.unready_until = chance(80) ? 0 : facts.now + rnd(2000);
	for (size_t i = 0; i < nr_members; i++) {
		bool is_cache = member[i].kind == LARDER_KIND_CACHE;

		if ((all_run || chance(is_cache ? 8 : 3)) && member[i].kind != LARDER_KIND_SPARE && member[i].kind != LARDER_KIND_OTHER &&
		    !facts_running(&facts, unit_of(&member[i]), is_cache)) {
			char name[32];

			snprintf(name, sizeof(name), "r%zu", i);
			add_running(unit_of(&member[i]), is_cache, name);
		}
		if (chance(3))
			memcpy(stopped[facts.nr_stopped++], unit_of(&member[i]), 16);
		if (chance(2))
			taken[facts.nr_taken++] = member[i].label;
	}
	for (size_t i = 0; i < nr_members; i++)
		if (member[i].kind == LARDER_KIND_VOLUME && *member[i].stack)
			make_returning(&member[i]);
	if (chance(20))
		make_rest();
	if (nr_members && chance(5))
		facts.only = unit_of(&member[rnd(nr_members)]);
}

/* ------------------------------------------------------------- the judge */

static bool has_copy(const struct fact_member *m)
{
	for (size_t i = 0; i < nr_members; i++)
		if (&member[i] != m && !memcmp(member[i].uuid, m->uuid, 16))
			return true;
	return false;
}

static bool is_fit(const struct fact_member *m)
{
	return !has_copy(m) && !m->foreign && !m->copy_only && !m->used && !m->held;
}

static struct cache_truth *cache_by(const uint8_t uuid[16])
{
	for (unsigned i = 0; i < nr_caches; i++)
		if (!memcmp(cache[i].uuid, uuid, 16))
			return &cache[i];
	return NULL;
}

/* Does anybody here have the newest table of the cache?  Else those here believe an older one, as they must. */
static bool newest_is_here(const struct cache_truth *c)
{
	for (size_t i = 0; i < nr_members; i++)
		if (member[i].table && !memcmp(member[i].cache_uuid, c->uuid, 16) &&
		    le64toh(member[i].table->head.set_generation) >> 32 == c->generation[0] >> 32)
			return true;
	return false;
}

/* Does any of its SSDs here know what it lacks?  Else it is as good as current. */
static bool is_image(const struct fact_member *m)
{
	for (size_t i = 0; i < nr_members; i++)
		if (member[i].table && truth[i].history == CURRENT && !memcmp(member[i].cache_uuid, m->cache_uuid, 16))
			return truth[m - member].history == IMAGE;
	return false;
}

static bool both_sides_here(const struct cache_truth *c)
{
	bool one = false, two = false;

	for (size_t i = 0; i < nr_members; i++)
		if (member[i].table && !memcmp(member[i].cache_uuid, c->uuid, 16)) {
			one |= le64toh(member[i].table->head.set_generation) == c->generation[0];
			two |= c->side && le64toh(member[i].table->head.set_generation) == c->side;
		}
	return one && two;
}

/* When the time to wait is over of what came then. */
static u64 wait_ends(u64 since)
{
	u64 end = (since > facts.began ? since : facts.began) + facts.wait;

	return end > facts.unready_until ? end : facts.unready_until;
}

static u64 newest_arrival(const struct cache_truth *c)
{
	u64 newest = 0;

	for (size_t i = 0; i < nr_members; i++)
		if (member[i].kind == LARDER_KIND_CACHE && !memcmp(member[i].cache_uuid, c->uuid, 16) && truth[i].history == CURRENT)
			newest = member[i].appeared > newest ? member[i].appeared : newest;
	return newest;
}

/* A disk of its array has, or may have, what that has not. */
static const struct fact_return *is_apart(const struct fact_member *m)
{
	for (size_t i = 0; i < facts.nr_returning; i++) {
		const struct fact_return *r = &returning[i];
		bool vacant = r->leg.place >= 0 ? r->leg.place < 4 && !(r->now.held >> r->leg.place & 1) : r->now.held != 15;

		if (!memcmp(r->volume, m->uuid, 16) && !r->foreign && vacant && r->leg.place != MD_ROLE_NONE && r->leg.places == 4 &&
		    (r->leg.events > 10 || ~r->leg.holds & 3))
			return r;
	}
	return NULL;
}

static void judge_degraded(const struct cache_truth *c)
{
	unsigned here = 0;

	CHECK(facts.now >= wait_ends(newest_arrival(c)), "degraded too early");
	for (size_t i = 0; i < nr_members; i++) {
		const struct fact_member *m = &member[i];

		if (m->kind != LARDER_KIND_VOLUME || memcmp(m->cache_uuid, c->uuid, 16))
			continue;
		CHECK(m->set_generation >> 32 <= c->generation[0] >> 32, "a volume ran with SSDs that are newer");
		CHECK(!is_apart(m), "another half of a volume may have run with SSDs that are newer");
		if (!newest_is_here(c))
			CHECK(m->set_generation != c->generation[0], "a volume ran with SSDs that are newer");
		for (size_t t = 0, found = 0; t < nr_tables && !found; t++)
			if (!memcmp(table[t]->head.cache_uuid, c->uuid, 16))
				for (uint32_t v = 0; v < le32toh(table[t]->head.nr_volumes); v++)
					if (!memcmp(table[t]->volumes[v].uuid, m->uuid, 16) && !has_copy(m)) {
						here++;
						found = 1;
					}
	}
	CHECK(here && here == c->attached, "%u of %u volumes are here", here, c->attached);
}

static void judge_cache(const struct step *s)
{
	const struct cache_truth *c = cache_by(s->uuid);
	unsigned missing = 0, used = 0;

	CHECK(c, "of no cache");
	CHECK(!both_sides_here(c), "two sides");
	for (uint32_t i = 0; i < s->number; i++) {
		const struct fact_member *m = s->member[i] < 0 ? NULL : &member[s->member[i]];
		const struct ssd_truth *t = m ? &truth[m - member] : NULL;

		if (!m)
			continue;
		CHECK(m->place == i && !memcmp(m->cache_uuid, s->uuid, 16), "a stranger");
		CHECK(is_fit(m), "%s is a copy or somebody else's", m->path);
		CHECK(t->history == CURRENT || t->history == JOINING || t->history == IMAGE || !newest_is_here(c), "%s is stale", m->path);
		CHECK(m->table || t->history == JOINING, "%s has no table", m->path);
		CHECK(!is_image(m), "%s is older than it was", m->path);
		used += t->history == CURRENT || t->history == IMAGE;
	}
	if (newest_is_here(c)) {
		missing = c->active - used;
		CHECK(!!missing == s->degraded, "%u missing, %s", missing, s->degraded ? "degraded" : "whole");
	}
	CHECK(used || !newest_is_here(c), "no member");
	if (s->degraded)
		judge_degraded(c);
}

/* All of its snapshots that count, each with its own store, which is fit; or it does not start. */
static void judge_snapshots(const struct step *s)
{
	const struct fact_member *m = &member[s->member[0]];

	for (uint32_t i = 0; i < m->snapshots; i++) {
		const struct fact_member *store = s->store[i] < 0 ? NULL : &member[s->store[i]];

		CHECK(store && store->kind == LARDER_KIND_OTHER && !memcmp(store->uuid, m->snapshot[i].uuid, 16), "without its snapshot %u", i);
		CHECK(!store || is_fit(store), "the store is a copy or somebody else's");
		snapshots_started++;
	}
}

/* What a volume with snapshots lacks is said, and looked for again. */
static void judge_refused(const struct plan *plan, const struct fact_member *m)
{
	bool said = false, lacks = false;

	for (uint32_t i = 0; i < m->snapshots; i++) {
		bool here = false;

		for (size_t k = 0; k < nr_members; k++)
			here |= member[k].kind == LARDER_KIND_OTHER && !memcmp(member[k].uuid, m->snapshot[i].uuid, 16);
		lacks |= !here;
	}
	if (m->kind != LARDER_KIND_VOLUME || !lacks || !is_fit(m) || m->left || facts_running(&facts, m->uuid, false) || facts.only ||
	    listed(stopped, facts.nr_stopped, m->uuid) || listed(failed, facts.nr_failed, m->uuid))
		return;
	for (size_t i = 0; i < plan->nr_refusals; i++)
		if (!memcmp(plan->refusal[i].uuid, m->uuid, 16) && strstr(plan->refusal[i].text, "snapshot")) {
			said = true;
			CHECK(plan->refusal[i].waiting == (facts.now < wait_ends(m->appeared)) || strstr(plan->refusal[i].text, "uuid"), "waits, or does not");
		}
	CHECK(said, "%s lacks a store, and nobody says so", m->path);
	snapshots_refused++;
}

/* Nobody is told to give up what another half has. */
static void judge_older(const struct plan *plan, const struct fact_member *m)
{
	for (size_t i = 0; i < plan->nr_refusals; i++) {
		const struct refusal *r = &plan->refusal[i];
		bool other = m->kind == LARDER_KIND_VOLUME && m->older && !has_copy(m) && is_apart(m);

		if (memcmp(r->uuid, m->uuid, 16) || !m->held || !strstr(r->text, m->held) || !strstr(r->text, m->path))
			continue;
		CHECK(other == !!strstr(r->text, "another half"), "%s", r->text);
		CHECK(!other || strstr(r->text, "mdadm --stop"), "no remedy");
		halves_told += other;
	}
}

/* What is done beside what starts, and never before it. */
static bool is_beside(const struct step *s)
{
	return s->kind == PLAN_SPARE || s->kind == PLAN_NOTE || s->kind == PLAN_RETURN;
}

/* Of what runs: said, and its stores looked at; not while something is to be started. */
static void judge_warnings(const struct plan *plan)
{
	bool others = !facts.notes;

	for (size_t i = 0; i < plan->nr_steps; i++)
		others |= !is_beside(&plan->step[i]);
	for (size_t i = 0; i < nr_members; i++) {
		const struct fact_member *m = &member[i];
		bool said = false;

		if (others || m->kind != LARDER_KIND_VOLUME || !m->snapshots || !facts_running(&facts, m->uuid, false) || has_copy(m))
			continue;
		for (size_t k = 0; k < plan->nr_refusals; k++)
			said |= !memcmp(plan->refusal[k].uuid, m->uuid, 16) && strstr(plan->refusal[k].text, "nearly full");
		CHECK(said == !!m->warning, "it is said, or not");
		CHECK(plan->stores, "nobody looks at its stores again");
	}
}

/* Has an SSD that is here a table with that volume?  Else nobody but the kernel knows whether its cache is stale. */
static bool is_known(const struct fact_member *m)
{
	for (size_t i = 0; i < nr_members; i++) {
		const struct larder_table *t = member[i].kind == LARDER_KIND_CACHE && !memcmp(member[i].cache_uuid, m->cache_uuid, 16) ? member[i].table : NULL;

		for (uint32_t v = 0; t && v < le32toh(t->head.nr_volumes); v++)
			if (!memcmp(t->volumes[v].uuid, m->uuid, 16))
				return true;
	}
	return false;
}

static void judge_volume(const struct step *s)
{
	const struct fact_member *m = &member[s->member[0]];
	bool none = uuid_is_zero(m->cache_uuid), runs = false;

	CHECK(m->kind == LARDER_KIND_VOLUME && !memcmp(m->uuid, s->uuid, 16), "another volume");
	CHECK(is_fit(m), "%s is a copy or somebody else's", m->path);
	for (size_t i = 0; i < facts.nr_running; i++)
		if (facts.running[i].cache && !memcmp(facts.running[i].uuid, m->cache_uuid, 16)) {
			CHECK(!strcmp(facts.running[i].name, s->cache), "another cache");
			runs = true;
		}
	if (none || !runs)
		CHECK(!strcmp(s->cache, "-"), "with a cache that does not run");
	CHECK(!runs || !is_known(m) || m->incarnation == 7 || (m->left_cache && !m->may_be_dirty), "with a cache that is stale");
	CHECK(s->degraded == (!none && !runs), "degraded is not what it says");
	judge_snapshots(s);
	if (!s->degraded)
		return;
	CHECK(!m->may_be_dirty, "without its cache, and may be dirty");
	CHECK(!is_apart(m), "another half of it may have all");
	CHECK(facts.now >= wait_ends(m->appeared), "alone too early");
	for (size_t i = 0; i < nr_members; i++)
		CHECK(member[i].kind != LARDER_KIND_CACHE || memcmp(member[i].cache_uuid, m->cache_uuid, 16), "its cache is here");
}

static bool is_asked_for(const struct fact_member *m)
{
	bool by_volume = false;

	for (size_t i = 0; facts.only && m->kind != LARDER_KIND_VOLUME && i < nr_members; i++)
		by_volume |= member[i].kind == LARDER_KIND_VOLUME && !memcmp(facts.only, member[i].uuid, 16) &&
			     !memcmp(member[i].cache_uuid, m->cache_uuid, 16);
	return !facts.only || !memcmp(facts.only, m->uuid, 16) || !memcmp(facts.only, m->cache_uuid, 16) || by_volume;
}

/* May it be used there, as far as it is about itself: a spare, or what was begun in that very place? */
static bool is_ready(const struct fact_member *m, const uint8_t uuid[16], unsigned place)
{
	bool begun = m->kind == LARDER_KIND_CACHE && truth[m - member].history == JOINING && m->place == place;

	return (m->kind == LARDER_KIND_SPARE || begun) && !memcmp(m->cache_uuid, uuid, 16) && is_fit(m) && is_asked_for(m);
}

static bool is_left_alone(const struct fact_running *r)
{
	for (size_t i = 0; i < nr_members; i++)
		if (member[i].kind == LARDER_KIND_CACHE && !memcmp(member[i].cache_uuid, r->uuid, 16) && member[i].left)
			return true;
	return false;
}

/* The kernel and the newest table here both call the place failed, and there is no other side. */
static const struct larder_table_device *has_failed(const struct fact_running *r, unsigned place)
{
	const struct larder_table *t = NULL;
	bool is;

	for (size_t i = 0; i < nr_members; i++)
		if (member[i].table && !memcmp(member[i].cache_uuid, r->uuid, 16) &&
		    (!t || le64toh(member[i].table->head.generation) > le64toh(t->head.generation)))
			t = member[i].table;
	if (!r->cache || both_sides_here(cache_by(r->uuid)) || is_left_alone(r))
		return NULL;
	is = t && place < le32toh(t->head.nr_devices) && r->failed >> place & 1 && le32toh(t->devices[place].state) == LARDER_DEVICE_FAILED;

	return is ? &t->devices[place] : NULL;
}

/* The kernel holds one that failed in its place; one that nobody holds is here for another reason, whenever it came.  What was begun is not back. */
static bool is_back(const struct fact_running *r, unsigned place, const struct larder_table_device *d)
{
	for (size_t i = 0; i < nr_members; i++)
		if (member[i].kind == LARDER_KIND_CACHE && !memcmp(member[i].uuid, d->uuid, 16) && truth[i].history != JOINING &&
		    (!member[i].used || member[i].appeared > r->failed_since[place]) && !member[i].foreign && !member[i].copy_only)
			return true;
	return false; /* no world has one that left and one that was begun in the same place: who_failed_is_here_again() */
}

/* A spare could not join, and nothing of the cache has come since. */
static bool is_held(const struct fact_running *r)
{
	bool came = false;

	for (size_t i = 0; i < nr_members; i++)
		came |= member[i].kind != LARDER_KIND_VOLUME && member[i].kind != LARDER_KIND_OTHER && !memcmp(member[i].cache_uuid, r->uuid, 16) &&
			member[i].appeared > r->held_since && member[i].appeared < facts.now;
	return facts.now < r->held_until && !came;
}

static bool has_time(const struct fact_running *r, unsigned place)
{
	return facts.now >= wait_ends(r->failed_since[place]) && !is_held(r);
}

static void judge_spare(const struct step *s)
{
	const struct fact_member *m = &member[s->member[0]];
	const struct fact_running *r = facts_running(&facts, s->uuid, true);
	const struct larder_table_device *d = r ? has_failed(r, s->number) : NULL;

	CHECK(is_ready(m, s->uuid, s->number), "%s is no spare that may be used there", m->path);
	CHECK(facts.spares && d && !strcmp(r->name, s->name) && !r->busy, "it is not needed");
	CHECK(!d || (has_time(r, s->number) && !is_back(r, s->number, d)), "it may come back, or is here again");
	CHECK(m->nr_segments >= 100, "it is too small");
	for (size_t i = 0; m->kind == LARDER_KIND_SPARE && i < nr_members; i++)
		if (is_ready(&member[i], s->uuid, s->number))
			CHECK(member[i].kind == LARDER_KIND_SPARE && (member[i].nr_segments < 100 || member[i].nr_segments >= m->nr_segments), "%s would do",
			      member[i].path);
}

/* How many of those that could be used have room? */
static unsigned count_ready(const struct fact_running *r, unsigned place, unsigned *small)
{
	unsigned large = *small = 0;

	for (size_t i = 0; i < nr_members; i++)
		if (is_ready(&member[i], r->uuid, place)) {
			large += member[i].nr_segments >= 100;
			*small += member[i].nr_segments < 100;
		}
	return large;
}

/* One for each cache that needs one, has one, and has waited; or a word of why not. */
static void judge_spares(const struct plan *plan)
{
	bool others = !facts.spares;

	for (size_t i = 0; i < plan->nr_steps; i++)
		others |= !is_beside(&plan->step[i]);
	for (size_t i = 0; i < facts.nr_running; i++) {
		const struct fact_running *r = &facts.running[i];
		unsigned steps = 0, due = 0, early = 0, unsaid = 0, again = 0, small;

		for (unsigned place = 0; place < LARDER_MAX_DEVICES && r->cache && !r->busy; place++) {
			const struct larder_table_device *d = has_failed(r, place);

			if (!d)
				continue;
			if (!count_ready(r, place, &small))
				unsaid += !!small;
			else if (is_back(r, place, d))
				again++;
			else if (!is_held(r) && listed(failed, facts.nr_failed, r->uuid))
				continue;
			else if (has_time(r, place))
				due++;
			else
				early++;
		}
		for (size_t k = 0; k < plan->nr_steps; k++)
			steps += plan->step[k].kind == PLAN_SPARE && !strcmp(plan->step[k].name, r->name);
		CHECK(steps == (!others && due), "%u spares, %u places", steps, due);
		CHECK(others || due || !early || plan->again, "nobody looks again when the time has come");
		for (size_t k = 0; k < plan->nr_refusals; k++)
			if (!memcmp(plan->refusal[k].uuid, r->uuid, 16) && strstr(plan->refusal[k].text, "SSD "))
				unsaid = again = early = 0;
		CHECK(others || due || (!unsaid && !again && !early), "it is not said why no spare is used");
		spares_used += steps;
	}
}

static bool has(uint64_t places, unsigned place)
{
	return places >> place & 1;
}

/* What is lacked and not known is noted, or asked for again when its time has come; nothing else is. */
static void judge_notes(const struct plan *plan)
{
	bool others = !facts.notes;

	for (size_t i = 0; i < plan->nr_steps; i++)
		others |= !is_beside(&plan->step[i]);
	for (size_t i = 0; i < nr_members; i++) {
		const struct fact_member *m = &member[i];
		const struct fact_running *r = m->kind == LARDER_KIND_VOLUME ? facts_running(&facts, m->uuid, false) : NULL;
		bool lost = false, due, held;
		unsigned steps = 0;

		for (unsigned place = 0; place < 2; place++)
			lost |= has(m->lost_disks.lacks, place) &&
				(!has(m->lost_disks.noted, place) || (has(m->lost_disks.returned, place) && !has(m->lost_disks.rebuilt, place)));
		due = !others && r && *m->stack && (lost || m->lost || m->few_errors) && !has_copy(m) && !m->held;
		held = due && facts.now < r->held_until;

		for (size_t k = 0; k < plan->nr_steps; k++)
			steps += plan->step[k].kind == PLAN_NOTE && plan->step[k].member[0] == (int)i && !memcmp(plan->step[k].uuid, m->uuid, 16);
		CHECK(steps == (due && !held && !listed(failed, facts.nr_failed, m->uuid)), "%u notes of %s", steps, m->path);
		CHECK(!held || (plan->again && plan->again <= r->held_until), "nobody notes it when the time has come");
		notes_made += steps;
	}
}

static bool is_asked(const uint8_t volume[16])
{
	for (size_t i = 0; i < nr_members; i++)
		if (member[i].kind == LARDER_KIND_VOLUME && !memcmp(member[i].uuid, volume, 16) && facts.only && !memcmp(facts.only, member[i].cache_uuid, 16))
			return true;
	return !facts.only || !memcmp(facts.only, volume, 16);
}

static bool is_twin(const struct fact_return *r)
{
	for (size_t i = 0; i < facts.nr_returning; i++)
		if (&returning[i] != r && !memcmp(returning[i].leg.own, r->leg.own, 16))
			return true;
	return false;
}

static bool may_join(const struct fact_return *r)
{
	return !is_twin(r) && !r->foreign && !r->used && !r->stayed && !r->copy && md_return(&r->leg, &r->now) == MD_RETURN_TAKE;
}

/* One disk at most joins an array, the newest that may; of one that may not something is said, but where nothing is lacked. */
static void judge_returns(const struct plan *plan)
{
	bool others = false;

	for (size_t i = 0; i < plan->nr_steps; i++)
		others |= !is_beside(&plan->step[i]);
	for (size_t i = 0; i < nr_members; i++) {
		const struct fact_member *m = &member[i];
		bool free_to = m->kind == LARDER_KIND_VOLUME && *m->stack && !m->held && !has_copy(m) && facts_running(&facts, m->uuid, false) && is_asked(m->uuid) && !others;
		const struct fact_return *due = NULL;
		unsigned steps = 0;

		if (m->kind != LARDER_KIND_VOLUME || has_copy(m))
			continue;
		for (size_t k = 0; k < facts.nr_returning; k++) {
			const struct fact_return *r = &returning[k];
			bool said = false;

			if (memcmp(r->volume, m->uuid, 16))
				continue;
			for (size_t j = 0; j < plan->nr_refusals; j++) {
				const char *text = plan->refusal[j].text;

				said |= strstr(text, r->path) && !plan->refusal[j].waiting;
				if (strncmp(text, r->path, strlen(r->path)) || !strstr(text, "was taken out"))
					continue;
				CHECK(r->stayed && !!strstr(text, "takes it back, and all is copied to it, as it left while") == r->all, "%s", text);
				disks_stayed++;
			}
			if (md_return(&r->leg, &r->now) == MD_RETURN_UNNEEDED)
				CHECK(!said || is_twin(r), "%s is not needed, and told of", r->path);
			else if (free_to && !may_join(r))
				CHECK(said, "%s is left without a word", r->path);
			disks_left += said;
			if (!free_to || !may_join(r))
				continue;
			if (facts.now < r->held_until)
				CHECK(plan->again && plan->again <= r->held_until, "nobody tries it when the time has come");
			else if (!listed(failed, facts.nr_failed, r->leg.own) && (!due || md_return_before(&r->leg, &due->leg)))
				due = r;
		}
		for (size_t k = 0; k < plan->nr_steps; k++) {
			const struct step *s = &plan->step[k];

			if (s->kind != PLAN_RETURN || s->member[0] != (int)i)
				continue;
			steps++;
			CHECK(due && &facts.returning[s->returning] == due && !memcmp(s->uuid, due->leg.own, 16), "another one than the newest that may");
		}
		CHECK(steps == !!due, "%u disks, %d due", steps, !!due);
		disks_returned += steps;
	}
}

/* Never started, and told of when the time is over. */
static void judge_rests(const struct plan *plan)
{
	for (size_t i = 0; i < facts.nr_rests; i++) {
		const struct fact_rest *r = &rest[i];
		bool due = !r->left && !listed(stopped, facts.nr_stopped, r->volume) && is_asked(r->volume), late = facts.now >= wait_ends(r->appeared);
		bool whole = !r->rest.missing || r->rest.mirror_torn, hole = r->rest.write_hole;
		unsigned said = 0;

		for (size_t k = 0; k < plan->nr_refusals; k++)
			if (!memcmp(plan->refusal[k].uuid, r->stack_uuid, 16)) {
				CHECK(plan->refusal[k].waiting == !late && plan->refusal[k].write_hole == (late && hole), "too early, or too late");
				CHECK(!!strstr(plan->refusal[k].text, "--accept-write-hole") == (late && hole), "not the remedy: %s", plan->refusal[k].text);
				CHECK(!!strstr(plan->refusal[k].text, "--degraded") == (late && (hole || (!whole && r->rest.enough))), "not the remedy: %s",
				      plan->refusal[k].text);
				said++;
			}
		CHECK(said == (due && (late || r->rest.missing)), "told %u times", said);
		CHECK(!due || late || (plan->again && plan->again <= wait_ends(r->appeared)), "nobody looks again when the time has come");
		holes_told += said && late && hole;
		rests_told += said && late && !hole;
	}
}

/* Each leg that is fit and that nobody stopped, once; no other. */
static void judge_legs(const struct plan *plan)
{
	for (size_t i = 0; i < nr_members; i++) {
		const struct fact_member *m = &member[i];
		bool due = m->leg && !m->runs && !m->left && is_fit(m) && !listed(stopped, facts.nr_stopped, m->volume) &&
			   !listed(stopped, facts.nr_stopped, m->uuid) && !listed(failed, facts.nr_failed, m->uuid);
		unsigned steps = 0;

		due = due && (!facts.only || !memcmp(facts.only, m->uuid, 16) || !memcmp(facts.only, m->cache_uuid, 16) || !memcmp(facts.only, m->volume, 16));
		for (size_t k = 0; k < plan->nr_steps; k++)
			steps += plan->step[k].kind == PLAN_LEG && plan->step[k].member[0] == (int)i && !memcmp(plan->step[k].uuid, m->uuid, 16);
		CHECK(steps == due, "%u starts of the leg %s", steps, m->path);
		legs_started += steps;
	}
}

/* Its members, as larder.conf has them. */
static bool is_left(const struct step *s)
{
	for (size_t i = 0; i < nr_members; i++)
		if (!memcmp(unit_of(&member[i]), s->uuid, 16) && member[i].left)
			return true;
	return false;
}

static bool is_wanted_whole(const struct step *s)
{
	for (size_t i = 0; i < nr_members; i++)
		if (!memcmp(unit_of(&member[i]), s->uuid, 16) && member[i].whole)
			return true;
	return false;
}

static void judge(const struct plan *plan)
{
	bool taken_member[MAX_MEMBERS] = { false };

	for (size_t i = 0; i < plan->nr_steps; i++) {
		const struct step *s = &plan->step[i];

		if (s->kind == PLAN_CLEAR)
			continue;
		if (s->kind == PLAN_SPARE) {
			judge_spare(s);
			CHECK(!taken_member[s->member[0]], "two on %s", member[s->member[0]].path);
			taken_member[s->member[0]] = true;
			continue;
		}
		if (s->kind == PLAN_NOTE || s->kind == PLAN_RETURN)
			continue;
		CHECK(!facts_running(&facts, s->uuid, s->kind == PLAN_CACHE), "it runs already");
		CHECK(!listed(facts.stopped, facts.nr_stopped, s->uuid), "it was stopped");
		CHECK(!listed(facts.failed, facts.nr_failed, s->uuid), "it failed");
		CHECK(!is_left(s), "larder.conf leaves it");
		CHECK(!s->degraded || !is_wanted_whole(s), "larder.conf wants it whole");
		CHECK(!name_taken(&facts, s->name), "name %s is taken", s->name);
		for (size_t k = 0; k < i; k++)
			CHECK(strcmp(plan->step[k].name, s->name), "two are called %s", s->name);
		for (unsigned k = 0; k < LARDER_MAX_DEVICES; k++)
			if (s->member[k] >= 0) {
				CHECK(!taken_member[s->member[k]], "two on %s", member[s->member[k]].path);
				taken_member[s->member[k]] = true;
			}
		if (s->kind == PLAN_CACHE)
			judge_cache(s);
		else if (s->kind != PLAN_LEG)
			judge_volume(s);
	}
	judge_spares(plan);
	judge_notes(plan);
	judge_legs(plan);
	judge_returns(plan);
	judge_rests(plan);
	for (size_t i = 0; i < nr_members; i++) {
		judge_refused(plan, &member[i]);
		judge_older(plan, &member[i]);
	}
	judge_warnings(plan);
	for (size_t i = 0; i < plan->nr_refusals; i++)
		CHECK(strlen(plan->refusal[i].text) > 10, "says nothing");
	if (plan->again)
		CHECK(plan->again > facts.now, "waits for the past");
}

/* ------------------------------------------------------------- tests */

static const struct step *find_step(const struct plan *plan, const uint8_t uuid[16])
{
	for (size_t i = 0; i < plan->nr_steps; i++)
		if (!memcmp(plan->step[i].uuid, uuid, 16))
			return &plan->step[i];
	return NULL;
}

/* Done or failed, at random, until nothing is planned. */
static void settle(void)
{
	for (unsigned round = 0;; round++) {
		struct plan plan;

		CHECK(round < 2 * MAX_MEMBERS, "no end");
		plan_make(&facts, &plan);
		judge(&plan);
		operations++;
		for (size_t i = 0; i < plan.nr_steps; i++) {
			const struct step *s = &plan.step[i];

			if (s->kind == PLAN_SPARE && chance(90)) {
				for (size_t r = 0; r < facts.nr_running; r++)
					if (!memcmp(facts.running[r].uuid, s->uuid, 16))
						facts.running[r].failed &= ~(1u << s->number);
				member[s->member[0]].kind = LARDER_KIND_OTHER;
			} else if (s->kind == PLAN_NOTE && chance(90))
				md_lost_noted(&member[s->member[0]].lost_disks), member[s->member[0]].lost = 0, member[s->member[0]].few_errors = false;
			else if (s->kind == PLAN_RETURN && chance(90))
				returning[s->returning].now.held = UINT64_MAX;
			else if (s->kind == PLAN_LEG && chance(90))
				member[s->member[0]].runs = true;
			else if (!is_beside(s) && s->kind != PLAN_LEG && chance(90))
				add_running(s->uuid, s->kind == PLAN_CACHE, s->name);
			else
				memcpy(failed[facts.nr_failed++], s->uuid, 16);
			for (size_t r = 0; s->kind == PLAN_SPARE && r < facts.nr_running && listed(failed, facts.nr_failed, s->uuid); r++)
				if (!memcmp(facts.running[r].uuid, s->uuid, 16) && chance(80)) {
					facts.running[r].held_since = facts.now;
					facts.running[r].held_until = facts.now + 30;
				}
		}
		if (!plan.nr_steps) {
			plan_free(&plan);
			return;
		}
		plan_free(&plan);
	}
}

static void every_plan(void)
{
	for (unsigned i = 0; i < WORLDS; i++) {
		make_world();
		settle();
	}
	CHECK(spares_used > WORLDS / 200 && notes_made > WORLDS / 200, "%u spares, %u notes", spares_used, notes_made);
	CHECK(legs_started > WORLDS / 200, "%u legs", legs_started);
	CHECK(disks_stayed > WORLDS / 1000, "%u stayed", disks_stayed);
	CHECK(disks_returned > WORLDS / 200 && disks_left > WORLDS / 200 && holes_told > WORLDS / 200, "%u returned, %u left, %u holes", disks_returned, disks_left,
	      holes_told);
	CHECK(halves_told > WORLDS / 2000 && rests_told > WORLDS / 200, "%u halves, %u rests", halves_told, rests_told);
	CHECK(snapshots_started > WORLDS / 200 && snapshots_refused > WORLDS / 200, "%u snapshots, %u refused", snapshots_started, snapshots_refused);
}

/* The plan for this world is that for the same one, listed in another order. */
static void turn_around(void)
{
	struct fact_member shuffled[MAX_MEMBERS];
	struct fact_return turned[MAX_MEMBERS];
	struct plan a, b;

	plan_make(&facts, &a);
	memcpy(shuffled, member, sizeof(member));
	for (size_t k = nr_members; k > 1; k--) {
		size_t with = rnd(k);
		struct fact_member one = shuffled[k - 1];

		shuffled[k - 1] = shuffled[with];
		shuffled[with] = one;
	}
	facts.member = shuffled;
	for (size_t k = 0; k < facts.nr_returning; k++)
		turned[k] = returning[facts.nr_returning - 1 - k];
	facts.returning = turned;
	plan_make(&facts, &b);
	CHECK(a.nr_steps == b.nr_steps && a.nr_refusals == b.nr_refusals && a.again == b.again, "another plan");
	for (size_t k = 0; k < a.nr_steps; k++) {
		const struct step *x = &a.step[k], *y = find_step(&b, x->uuid);

		CHECK(y && y->kind == x->kind && y->degraded == x->degraded && !strcmp(y->name, x->name) && y->sectors == x->sectors &&
			      y->number == x->number, "another step");
		CHECK(x->kind != PLAN_RETURN || returning[x->returning].path == turned[y->returning].path, "another disk");
		for (uint32_t p = 0; p < SNAPSHOTS_MAX; p++)
			CHECK((x->store[p] < 0) == (y->store[p] < 0) &&
				      (x->store[p] < 0 || member[x->store[p]].path == shuffled[y->store[p]].path), "another store");
		for (uint32_t p = 0; p < x->number; p++)
			CHECK((x->member[p] < 0) == (y->member[p] < 0) &&
				      (x->member[p] < 0 || member[x->member[p]].path == shuffled[y->member[p]].path), "another member");
	}
	plan_free(&a);
	plan_free(&b);
	facts.member = member;
	facts.returning = returning;
	operations++;
}

static void order_does_not_matter(void)
{
	for (unsigned i = 0; i < WORLDS / 3; i++) {
		make_world();
		turn_around();
	}
}

/* Nothing speaks against it: it starts; with an SSD missing, when the wait is over; and a volume with its cache at once. */
static void what_is_whole_starts(void)
{
	unsigned whole = 0, degraded = 0, volumes = 0;

	for (unsigned i = 0; i < WORLDS; i++) {
		struct plan plan;

		make_world();
		facts.only = NULL;
		plan_make(&facts, &plan);
		for (unsigned k = 0; k < nr_caches; k++) {
			const struct cache_truth *c = &cache[k];
			const struct fact_member *any = NULL;
			unsigned here = 0, vols = 0;
			bool good = !both_sides_here(c) && newest_is_here(c);

			for (size_t m = 0; m < nr_members; m++) {
				const struct fact_member *one = &member[m];

				if (memcmp(one->cache_uuid, c->uuid, 16) || one->kind == LARDER_KIND_SPARE)
					continue;
				if (one->kind == LARDER_KIND_VOLUME) {
					good &= table_knows(table[0], 0) || one->set_generation >> 32 < 11;
					for (size_t t = 0; t < nr_members; t++) /* with the side that is here? */
						good &= !c->side;
					vols += is_fit(one);
					continue;
				}
				if (truth[m].history == CURRENT) {
					here++;
					any = one;
				}
				good &= (is_fit(one) || truth[m].history == LEFT) && !one->left;
			}
			good = good && any && here == c->active && !namesake_of(&facts, any) && name_valid(any->label) &&
			       !facts_running(&facts, c->uuid, true) && !listed(stopped, facts.nr_stopped, c->uuid);
			for (size_t t = 0; good && t < facts.nr_taken; t++) {
				char name[sizeof(any->label) + sizeof(CACHE_PREFIX)];

				snprintf(name, sizeof(name), "%s%s", CACHE_PREFIX, any->label);
				good = strcmp(name, taken[t]);
			}
			if (good) {
				CHECK(find_step(&plan, c->uuid), "cache %u is whole, and is not started", k);
				whole++;
			}
			degraded += find_step(&plan, c->uuid) && find_step(&plan, c->uuid)->degraded;
			volumes += vols;
		}
		plan_free(&plan);
		operations++;
	}
	/* or the worlds show nothing */
	CHECK(whole > WORLDS / 20 && degraded > WORLDS / 200 && volumes > WORLDS / 20, "%u whole, %u degraded, %u volumes", whole, degraded,
	      volumes);
}

static void what_is_unfinished_comes_first(void)
{
	static const char *half[] = { "larder-cache-x" };
	struct plan plan;

	do
		make_world();
	while (!nr_members);
	facts.half = half;
	facts.nr_half = 1;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].kind == PLAN_CLEAR && !strcmp(plan.step[0].name, half[0]), "not alone");
	plan_free(&plan);
}

/* One cache, of which there is nothing yet. */
static void make_empty_world(void)
{
	make_world();
	for (size_t i = 0; i < nr_tables; i++)
		free(table[i]);
	nr_members = nr_tables = 0;
	nr_caches = 1;
}

/* Two SSDs and a volume, one SSD away: by the clock. */
static void the_wait(void)
{
	struct cache_truth *c = &cache[0];
	struct larder_table *t;
	struct plan plan;
	size_t m;

	make_empty_world();
	*c = (struct cache_truth){ .number = 2, .active = 2, .attached = 1, .generation = { 5ull << 32, 4ull << 32, 3ull << 32 } };
	random_uuid(c->uuid);
	t = new_table(c, 0);
	m = nr_members;
	add_member(LARDER_KIND_CACHE, "c");
	add_member(LARDER_KIND_VOLUME, "v");
	for (size_t i = m; i < nr_members; i++) { /* nothing speaks against them */
		member[i].foreign = member[i].used = member[i].held = NULL;
		member[i].copy_only = member[i].below = member[i].left = member[i].whole = false;
	}
	memcpy(member[m].cache_uuid, c->uuid, 16);
	memcpy(member[m + 1].cache_uuid, c->uuid, 16);
	member[m].table = t;
	member[m].nr_segments = 10;
	member[m].segment_size = 2 << 20;
	member[m + 1].set_generation = 5ull << 32;
	for (int i = 0; i < 2; i++) {
		t->devices[i] = (struct larder_table_device){ .state = htole32(LARDER_DEVICE_ACTIVE), .nr_segments = htole32(10) };
		random_uuid(t->devices[i].uuid);
	}
	memcpy(t->devices[0].uuid, member[m].uuid, 16);
	t->head.nr_volumes = htole32(1);
	t->volumes[0].state = htole32(LARDER_VOLUME_ATTACHED);
	memcpy(t->volumes[0].uuid, member[m + 1].uuid, 16);
	truth[0] = truth[1] = (struct ssd_truth){ CURRENT, 0 };
	facts = (struct facts){ .member = member, .nr_members = 2, .running = running_now, .taken = taken, .stopped = stopped, .failed = failed,
				.wait = 30000000 };
	member[0].appeared = 1000000;
	member[1].appeared = 9000000;
	facts.now = 38999999;
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.again == 39000000 && plan.nr_refusals == 1 && plan.refusal[0].waiting, "does not wait");
	plan_free(&plan);
	facts.now = 39000000;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].degraded && plan.step[0].member[1] == -1 && !plan.again, "waits longer");
	plan_free(&plan);
	/* the passphrase of root was typed meanwhile: only then had what is missing a driver */
	facts.began = 20000000;
	facts.now = 49999999;
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.again == 50000000 && plan.nr_refusals == 1 && plan.refusal[0].waiting, "waited in the initramfs alone");
	plan_free(&plan);
	facts.now = 50000000;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].degraded && !plan.again, "waits longer");
	plan_free(&plan);
	/* something hangs, and may be it */
	facts.unread_since = 40000000;
	facts.now = 69999999;
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.again == 70000000 && plan.nr_refusals == 1 && plan.refusal[0].waiting, "does not wait for what hangs");
	plan_free(&plan);
	facts.now = 70000000;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].degraded && !plan.again, "waits longer for what hangs");
	plan_free(&plan);
	/* udev is not through with something that may be it */
	facts.unready_until = 90000000;
	facts.now = 89999999;
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.again == 90000000 && plan.nr_refusals == 1 && plan.refusal[0].waiting, "does not wait for udev");
	plan_free(&plan);
	facts.now = 90000000;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].degraded && !plan.again, "waits longer for udev");
	plan_free(&plan);
	facts.began = facts.unread_since = facts.unready_until = 0;
	member[1].set_generation = 6ull << 32;
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.nr_refusals == 1 && strstr(plan.refusal[0].text, "ran with other SSDs"), "the older side is started");
	plan_free(&plan);
}

/* As the_wait() leaves it, and the other SSD is here, and takes no writes: as if it were away. */
static void read_only_ssd(void)
{
	struct cache_truth *c = &cache[0];
	struct plan plan;

	the_wait();
	member[1].set_generation = 5ull << 32;
	add_member(LARDER_KIND_CACHE, "c");
	member[2].foreign = member[2].used = member[2].held = NULL;
	member[2].copy_only = member[2].below = member[2].left = member[2].whole = false;
	memcpy(member[2].cache_uuid, c->uuid, 16);
	memcpy(member[2].uuid, table[0]->devices[1].uuid, 16);
	member[2].table = member[0].table;
	member[2].nr_segments = 10;
	member[2].segment_size = 2 << 20;
	member[2].place = 1;
	member[2].appeared = 9000000;
	truth[2] = (struct ssd_truth){ CURRENT, 0 };
	facts.nr_members = 3;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && !plan.step[0].degraded && plan.step[0].member[1] == 2, "both are here, and not used");
	plan_free(&plan);
	member[2].read_only = true;
	facts.now = 38999999;
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.again == 39000000, "does not wait for what may be made writable");
	plan_free(&plan);
	facts.now = 39000000;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].degraded && plan.step[0].member[0] == 0 && plan.step[0].member[1] == -1, "keeps the others from it");
	CHECK(plan.nr_refusals == 1 && strstr(plan.refusal[0].text, "read-only"), "does not say why");
	plan_free(&plan);
}

/* An image of an SSD that was cut off behind its superblock: it has no table, and of which of both it is the copy nobody can tell. */
static void image_cut_off(void)
{
	static const char *const paths[] = { "/dev/a", "/dev/z" };
	struct plan plan;

	read_only_ssd();
	member[2].read_only = false;
	member[2].path = "/dev/k";
	member[3] = member[2];
	member[3].table = NULL;
	member[3].joins = false;
	truth[3] = (struct ssd_truth){ LEFT, 0 };
	facts.nr_members = 4;
	for (int i = 0; i < 2; i++) {
		member[3].path = paths[i];
		plan_make(&facts, &plan);
		CHECK(!plan.nr_steps, "one of two that nobody can tell apart is started");
		CHECK(plan.nr_refusals == 1 && strstr(plan.refusal[0].text, "has it too") && strstr(plan.refusal[0].text, paths[i]), "does not say why");
		plan_free(&plan);
	}
	member[2].set_generation = 1;
	member[2].table = NULL;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].degraded, "two copies of what is stale keep the others from it");
	plan_free(&plan);
}

/* Nobody is told to erase the only superblock of a disk that has two paths, or a replica. */
static void superblock_on_two_devices(void)
{
	static const struct {
		const char *a, *b, *said; /* what the disks say of themselves */
	} disks[] = {
		{ "naa.5", "naa.5", "multipathd" },
		{ "naa.5", "naa.6", "super wipe COPY" },
		{ NULL, "naa.6", "super wipe COPY" },
		{ NULL, NULL, "super wipe COPY" },
	};
	struct plan plan;

	make_empty_world();
	add_member(LARDER_KIND_VOLUME, "v");
	member[0].foreign = member[0].used = member[0].held = NULL;
	member[0].below = member[0].copy_only = member[0].left = member[0].whole = member[0].older = false;
	truth[0] = (struct ssd_truth){ CURRENT, -1 };
	add_copy(&member[0]);
	facts = (struct facts){ .member = member, .nr_members = 2, .running = running_now, .taken = taken, .stopped = stopped, .failed = failed };
	for (size_t i = 0; i < sizeof(disks) / sizeof(*disks); i++) {
		member[0].disk = disks[i].a;
		member[1].disk = disks[i].b;
		plan_make(&facts, &plan);
		CHECK(!plan.nr_steps && plan.nr_refusals == 1 && strstr(plan.refusal[0].text, "has it too") && strstr(plan.refusal[0].text, disks[i].said),
		      "%s", plan.nr_refusals ? plan.refusal[0].text : "does not say why");
		CHECK(i || !strstr(plan.refusal[0].text, "wipe"), "%s", plan.refusal[0].text);
		plan_free(&plan);
	}
	/* the leg of a mirror that lacks it, then both of one that does not run */
	for (int legs = 1; legs <= 2; legs++) {
		member[2 - legs].foreign = "linux_raid_member";
		member[2 - legs].wipefs = "--types linux_raid_member --all";
		member[2 - legs].below = true;
		plan_make(&facts, &plan);
		CHECK(!plan.nr_steps && plan.nr_refusals == 2, "does not say why");
		for (size_t i = 0; i < plan.nr_refusals; i++)
			CHECK(!strstr(plan.refusal[i].text, "wipe") && strstr(plan.refusal[i].text, "mdadm"), "%s", plan.refusal[i].text);
		CHECK(plan.refusal[0].below + plan.refusal[1].below == legs, "which one is below");
		plan_free(&plan);
	}
}

/* Two SSDs of a running cache have failed, one after the other: each is waited for by itself, and the one that is here again by no spare replaced. */
static void two_failures(void)
{
	struct cache_truth *c = &cache[0];
	struct fact_running *r = &running_now[0];
	struct larder_table *t;
	struct plan plan;

	make_empty_world();
	*c = (struct cache_truth){ .number = 3, .active = 1, .generation = { 5ull << 32, 4ull << 32, 3ull << 32 } };
	random_uuid(c->uuid);
	t = new_table(c, 0);
	facts = (struct facts){ .member = member, .running = running_now, .taken = taken, .stopped = stopped, .failed = failed, .wait = 30, .spares = true };
	add_member(LARDER_KIND_CACHE, "c");
	add_member(LARDER_KIND_SPARE, "c");
	add_member(LARDER_KIND_CACHE, "c"); /* SSD 1 */
	for (size_t i = 0; i < nr_members; i++) {
		member[i].foreign = member[i].used = member[i].held = NULL;
		member[i].copy_only = member[i].below = member[i].left = member[i].whole = false;
		member[i].nr_segments = 10;
		member[i].appeared = 5;
		member[i].table = member[i].kind == LARDER_KIND_CACHE ? t : NULL;
		memcpy(member[i].cache_uuid, c->uuid, 16);
		truth[i] = (struct ssd_truth){ i == 2 ? LEFT : CURRENT, 0 };
	}
	member[2].place = 1;
	for (int i = 0; i < 3; i++) {
		t->devices[i] = (struct larder_table_device){ .state = htole32(i ? LARDER_DEVICE_FAILED : LARDER_DEVICE_ACTIVE), .nr_segments = htole32(10) };
		random_uuid(t->devices[i].uuid);
	}
	memcpy(t->devices[0].uuid, member[0].uuid, 16);
	memcpy(t->devices[1].uuid, member[2].uuid, 16);
	add_running(c->uuid, true, "larder-cache-c");
	r->failed = 6;
	r->failed_since[1] = 120;
	r->failed_since[2] = 100;
	r->held_until = 0;
	r->busy = false;
	facts.now = 140;
	facts.nr_members = 2;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].number == 2 && plan.again == 150, "one that is waited for holds up the other");
	plan_free(&plan);
	facts.now = 1000;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].number == 1, "the lower place goes first");
	plan_free(&plan);
	facts.nr_members = 3;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].number == 2, "the spare is used where the SSD is here again");
	plan_free(&plan);
	member[2].used = "held by /dev/dm-1 (larder-cache-c)";
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].number == 1, "one that failed and never went is no SSD that is here again");
	plan_free(&plan);
}

/* A spare could not join: nobody tries in the same pass, somebody when its time has come; at once, where another one has come since. */
static void a_spare_that_could_not_join(void)
{
	struct fact_running *r = &running_now[0];
	struct plan plan;

	two_failures();
	r->failed = 4;
	facts.nr_members = 2;
	facts.now = 1000;
	r->held_since = 1000;
	r->held_until = 1030;
	memcpy(failed[facts.nr_failed++], r->uuid, 16);
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.again == 1030, "nobody looks again when its time has come");
	plan_free(&plan);
	facts.nr_failed = 0;
	facts.now = 1010;
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.again == 1030, "it is tried before its time");
	plan_free(&plan);
	member[1].appeared = 1005;
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].kind == PLAN_SPARE, "one that came since is not tried");
	plan_free(&plan);
}

/* A spare could not join, and the kernel had named it in the place already: who had that before is known all the same when it comes again. */
static void who_failed_is_here_again(void)
{
	struct fact_running *r = &running_now[0];
	struct plan plan;

	two_failures();
	r->failed = 2;
	facts.now = 1000;
	facts.nr_members = 3;
	member[1].kind = LARDER_KIND_CACHE; /* the spare */
	member[1].joins = true;
	member[1].table = NULL;
	member[1].place = 1;
	memcpy(table[0]->devices[1].uuid, member[1].uuid, 16);
	member[2].used = NULL;
	member[2].appeared = 100; /* before SSD 1 failed, at 120: one that left long ago */
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].member[0] == 1, "what was begun does not go on");
	plan_free(&plan);
	member[2].appeared = 130;
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps && plan.nr_refusals && strstr(plan.refusal[plan.nr_refusals - 1].text, "is here again"), "not known to be here again");
	plan_free(&plan);
}

/* Asked for by its volume the cache gets its spare, as by its own name. */
static void a_spare_by_its_volume(void)
{
	struct fact_member *m;
	struct plan plan;

	two_failures();
	facts.nr_members = nr_members = 2;
	m = add_member(LARDER_KIND_VOLUME, "v");
	memcpy(m->cache_uuid, cache[0].uuid, 16);
	facts.nr_members = nr_members;
	facts.only = m->uuid;
	add_running(m->uuid, false, "v");
	plan_make(&facts, &plan);
	CHECK(plan.nr_steps == 1 && plan.step[0].kind == PLAN_SPARE, "the spare is left");
	plan_free(&plan);
	facts.only = (const uint8_t[16]){ 1 };
	plan_make(&facts, &plan);
	CHECK(!plan.nr_steps, "the spare of another cache is used");
	plan_free(&plan);
}

/* One look of larderd at a mirror: is it noted now?  A note is done as it is. */
static bool looks(struct fact_member *m, u64 lacks, u64 rebuilt)
{
	struct plan plan;
	bool noted;

	m->lost_disks.lacks = lacks;
	m->lost_disks.rebuilt = rebuilt;
	md_lost_seen(&m->lost_disks);
	plan_make(&facts, &plan);
	noted = find_step(&plan, m->uuid) && find_step(&plan, m->uuid)->kind == PLAN_NOTE;
	if (noted)
		md_lost_noted(&m->lost_disks);
	plan_free(&plan);
	return noted;
}

/* Disk 0 of a mirror comes back, gets the note that it is behind, and fails again. */
static void a_disk_that_fails_again(void)
{
	struct fact_member *m = member;

	make_empty_world();
	*m = (struct fact_member){ .kind = LARDER_KIND_VOLUME, .path = "/dev/md0", .uuid = { 1 }, .label = "v", .stack = "s", .sectors = 1000 };
	running_now[0] = (struct fact_running){ .name = "v", .uuid = { 1 } };
	facts = (struct facts){ .member = m, .nr_members = 1, .running = running_now, .nr_running = 1, .now = 1000, .notes = true };
	CHECK(!looks(m, 0, 0) && looks(m, 1, 0) && !looks(m, 1, 0), "the first time: once");
	CHECK(!looks(m, 1, 1) && !looks(m, 1, 1), "what is noted while it is rebuilt is copied to it");
	CHECK(looks(m, 1, 0) && !looks(m, 1, 0), "it was seen being rebuilt, and failed again: once");
	/* as a command that gives it back says */
	m->lost_disks.returned = 1;
	CHECK(looks(m, 1, 0) && !looks(m, 1, 0), "it was rebuilt between two looks");
	CHECK(!looks(m, 1, 1) && !looks(m, 0, 0) && looks(m, 1, 0) && !looks(m, 1, 0), "it was whole");
	/* the note came late: it has what that says */
	m->lost_disks = (struct md_lost){ 0 };
	CHECK(looks(m, 1, 1) && !looks(m, 1, 1) && looks(m, 1, 0) && !looks(m, 1, 0), "noted while it was rebuilt");
	CHECK(!looks(m, 1, 1) && looks(m, 3, 1) && !looks(m, 3, 1) && looks(m, 3, 0), "another one fails while it is rebuilt");
	operations++;
}

/* Each line: a seed, 0 for a world in which all is well, and the numbers before those that come of it.  "ok", or how it failed, and the end. */
static void judge_chosen(void)
{
	static u64 numbers[4096];
	char *line = NULL;
	size_t size = 0;

	test_name = "chosen";
	while (getline(&line, &size, stdin) > 0) {
		char *at, *end;

		state = strtoull(line, &at, 10);
		nr_chosen = 0;
		chosen = numbers;
		for (u64 number; nr_chosen < sizeof(numbers) / sizeof(*numbers); at = end) {
			number = strtoull(at, &end, 10);
			if (end == at)
				break;
			numbers[nr_chosen++] = number;
		}
		make_world();
		turn_around();
		settle();
		printf("ok\n");
		fflush(stdout);
	}
	free(line);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "-")) {
		judge_chosen();
		free_tables();
		return 0;
	}
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("every_plan", every_plan);
	run_test("order_does_not_matter", order_does_not_matter);
	run_test("what_is_whole_starts", what_is_whole_starts);
	run_test("what_is_unfinished_comes_first", what_is_unfinished_comes_first);
	run_test("the_wait", the_wait);
	run_test("read_only_ssd", read_only_ssd);
	run_test("image_cut_off", image_cut_off);
	run_test("superblock_on_two_devices", superblock_on_two_devices);
	run_test("two_failures", two_failures);
	run_test("a_spare_that_could_not_join", a_spare_that_could_not_join);
	run_test("who_failed_is_here_again", who_failed_is_here_again);
	run_test("a_spare_by_its_volume", a_spare_by_its_volume);
	run_test("a_disk_that_fails_again", a_disk_that_fails_again);
	free_tables();
	return 0;
}
