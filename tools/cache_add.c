// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache add, larder cache replace: an SSD joins the set of a cache that runs, in use or not.
 *
 * The SSD gets a superblock that says so, and no table: until the kernel has copied to it what it needs, and named it in the tables
 * of the others, it is no member, whatever happens.  Then the table of the cache is reloaded with the SSD in its place: that of one
 * that has failed, if it is large enough for that; of one that was removed; or one behind the others, as large as the SSD is: with
 * --new-place in any case, so that one that was removed and has grown comes back with all of it.
 *
 * A spare has a superblock alone, that names its cache.  It is taken without --wipe as long as nothing else is on it, and is one until, in a single
 * write, it becomes an SSD that joins: whatever is cut short, it is one of the two.  larderd has it take a place by `cache replace --spare`, which takes
 * nothing else, and only where an SSD has failed.
 *
 * What an SSD that was away holds is stale, and goes: it joins as a new one does.  Not so what others have put on it since: that needs --wipe.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "create.h"
#include "layout.h"
#include "root_image.h"
#include "set.h"
#include "stack_store.h"
#include "tiers.h"
#include "turn.h"
#include "verbs.h"

struct add_request {
	const char *cache, *ssd, *old, *role;
	const char *label; /* of the SSD; NULL: that of its place */
	struct claim_request claim;
	bool no_wait, new_place, spare; /* spare: becomes one; with old: is to be one */
};

static uint32_t place_state(const struct set *set, uint32_t place)
{
	return place < set->number ? le32toh(set->table.devices[place].state) : LARDER_DEVICE_NONE;
}

static bool fits(const struct set *set, uint32_t place, uint32_t segments, uint32_t state)
{
	return place_state(set, place) == state && le32toh(set->table.devices[place].nr_segments) <= segments;
}

/* Where it goes; set->number: behind the others. */
static uint32_t choose_place(const struct set *set, uint32_t segments, const union superblock *was, bool new_place)
{
	static const uint32_t states[] = { LARDER_DEVICE_FAILED, LARDER_DEVICE_REMOVED };
	uint32_t before = was ? le32toh(was->cache.device_number) : 0;

	if (new_place)
		return set->number;
	if (was && (fits(set, before, segments, LARDER_DEVICE_FAILED) || (fits(set, before, segments, LARDER_DEVICE_REMOVED) &&
									  !memcmp(set->table.devices[before].uuid, was->head.uuid, 16))))
		return before;
	for (size_t s = 0; s < sizeof(states) / sizeof(states[0]); s++)
		for (uint32_t i = 0; i < set->number; i++)
			if (fits(set, i, segments, states[s]))
				return i;
	return set->number;
}

/* Segments of all places, up to the last: where one behind the others begins. */
static uint32_t end_of(const struct set *set)
{
	uint32_t end = 0;

	for (uint32_t i = 0; i < set->number; i++) {
		const struct larder_table_device *e = &set->table.devices[i];

		if (le32toh(e->first_segment) + le32toh(e->nr_segments) > end)
			end = le32toh(e->first_segment) + le32toh(e->nr_segments);
	}
	return end;
}

/* layout: of the SSD; one behind the others gets its place there, too. */
static int check_place(const struct set *set, uint32_t place, struct cache_layout *layout, const char *path)
{
	const char *why = place < set->number ? NULL : cache_layout_behind(layout, end_of(set));
	const struct larder_table_device *e = &set->table.devices[place];
	uint32_t segments = layout->nr_segments;

	if (place >= LARDER_MAX_DEVICES)
		return complain(LARDER_FAILED, "%s: the cache has %u SSDs already; replace one", path, LARDER_MAX_DEVICES);
	if (why)
		return complain(LARDER_FAILED, "%s: %s", path, why);
	if (place < set->number && place_state(set, place) == LARDER_DEVICE_ACTIVE)
		return complain(LARDER_BUSY, "%s: SSD %u is in use; 'larder cache remove' takes it out of the set first", path, place);
	if (place < set->number && le32toh(e->nr_segments) > segments)
		return complain(LARDER_FAILED, "%s: size: has room for %u segments, SSD %u had %u; add it as one more SSD instead", path,
				segments, place, le32toh(e->nr_segments));
	return LARDER_DONE;
}

/* role: as given, or NULL: that of the one before it in its place */
static void fill(union superblock *sb, const struct set *set, const struct device *device, const struct cache_layout *layout,
		 uint32_t place, const char *role)
{
	struct larder_cache_sb *c = &sb->cache;
	const struct larder_table_device *e = &set->table.devices[place];
	uint32_t n = place < set->number ? le32toh(e->role) : LARDER_ROLE_BOTH;

	if (role)
		role_parse(role, &n);
	create_head(&c->head, LARDER_KIND_CACHE, device, layout->copy_offset);
	c->head.flags = htole32(LARDER_CACHE_JOINS);
	memcpy(c->cache_uuid, set->sb.cache_uuid, 16);
	memcpy(c->label, set->sb.label, sizeof(c->label));
	c->role = htole32(n);
	c->segment_size = set->sb.segment_size;
	c->device_number = htole32(place);
	c->nr_devices = htole32(place < set->number ? set->number : place + 1);
	c->segments_offset = htole64(layout->segments_offset);
	c->first_segment = place < set->number ? e->first_segment : htole32(layout->first_segment);
	c->nr_segments = place < set->number ? e->nr_segments : htole32(layout->nr_segments);
	for (unsigned i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		c->checkpoint[i].first_segment = htole32(LARDER_NO_SEGMENT);
}

/* keep: the superblock that is there says what it is until the new one does. */
static int format(const struct set *set, const struct device *device, const struct cache_layout *layout, uint32_t place,
		  const struct add_request *request, bool keep)
{
	bool dry_run = request->claim.dry_run;
	union superblock *sb = device_buffer(LARDER_SB_SIZE);
	int result = dry_run ? LARDER_DONE : create_zero(device, LARDER_SB_OFFSET + (keep ? LARDER_SB_SIZE : 0), layout->segments_offset);

	fill(sb, set, device, layout, place, request->role);
	result = result ? result : create_superblock(device, sb, dry_run);
	free(sb);
	return result;
}

/* One at a time: the kernel does not let one join while another one does, or is drained. */
static int check_others(const struct set *set, const char *path)
{
	int ours = set_find_device(set, path), result = LARDER_DONE;
	const char *cache = set->mapped->name;

	for (uint32_t i = 0; i < set->number && !result; i++) {
		char *state = set_state(set, i);

		if (state && !strcmp(state, "draining"))
			result = complain(LARDER_BUSY,
					  "%s: SSD %u of %s is being drained: wait for that, or give it up: larder cache remove %s %u --stop",
					  path, i, cache, cache, i);
		else if (state && !strcmp(state, "joining") && (int)i != ours)
			result = complain(LARDER_BUSY, "%s: SSD %u of %s is joining: wait for that; larder cache status %s shows it", path, i,
					  cache, cache);
		free(state);
	}
	return result;
}

/* Of the SSDs, one by one, as the status has them. */
static char *states(const struct set *set)
{
	char *list = status_value(set->mapped->status, "ssds");

	return list ? list : must_print("%s", "");
}

/*
 * Its former place in the dm table still has it open, for nothing; so have others that have failed, and may not be readable any more.
 * *before: the states of the SSDs, as take_turn() compares them: what this changes is nobody else's doing.
 */
static int let_go(struct set *set, const char *path, char **before)
{
	int result, place = set_find_device(set, path);

	set_forget_failed(set);
	if (place < 0 || place_state(set, (uint32_t)place) == LARDER_DEVICE_ACTIVE)
		return LARDER_DONE;
	free(set->ssd[place]);
	set->ssd[place] = must_print("-");
	result = set_reload(set, 0);
	result = result ? result : mapped_refresh(set->mapped);
	if (result)
		return result;
	free(*before);
	*before = states(set);
	return LARDER_DONE;
}

/* Whoever was to have it join in this place was killed before the kernel knew of it. */
static bool is_half_joined(const struct set *set, const struct device *device, const union superblock *sb, uint32_t place)
{
	struct cache_tables tables;
	bool empty;

	if (!set_is_stale(set, sb) || !(le32toh(sb->head.flags) & LARDER_CACHE_JOINS) || le32toh(sb->cache.device_number) != place)
		return false;
	tables_read(device, &sb->cache, &tables);
	empty = !tables.chosen;
	tables_free(&tables);
	return empty;
}

/* replace --spare: nothing else is taken, and for one that has failed alone.  *keep: see format() */
static int check_spare(const struct set *set, const struct device *device, const struct superblocks *found, const struct add_request *request, uint32_t place,
		       bool *keep)
{
	const union superblock *sb = found->chosen == &found->main ? found->main.sb : NULL;
	char *state = set_state(set, place);
	bool failed = state && !strcmp(state, "failed") && place_state(set, place) == LARDER_DEVICE_FAILED;

	free(state);
	*keep = sb && (set_is_spare(set, sb) || is_half_joined(set, device, sb, place));
	if (!request->spare)
		return LARDER_DONE;
	if (!failed)
		return complain(LARDER_BUSY, "%s: SSD %u of %s has not failed: no spare is needed there", request->ssd, place, set->mapped->name);
	if (!*keep)
		return complain(LARDER_UNSAFE, "%s: superblock: is no spare of %s; larder cache replace without --spare takes any device", request->ssd,
				set->mapped->name);
	return LARDER_DONE;
}

/* The same SSDs in their places, as far as both name them: where "-" is, one has failed, or left. */
static bool same_ssds(const struct set *a, const struct set *b)
{
	for (uint32_t i = 0; a->number == b->number && i < a->number; i++)
		if (strcmp(a->ssd[i], "-") && strcmp(b->ssd[i], "-") && strcmp(a->ssd[i], b->ssd[i]))
			return false;
	return a->number == b->number;
}

/* Others may have set options, or made the last SSD larger: what is loaded, and written, follows what there is now.  Complains. */
static int read_again(struct set *set)
{
	struct set now;
	char *params = set->params;
	int result = set_read(&now, set->mapped);

	if (result)
		return result;
	if (same_ssds(set, &now)) {
		set->params = now.params;
		set->options = now.options;
		set->sb = now.sb;
		set->table = now.table;
		now.params = params;
	} else {
		result = complain(LARDER_BUSY, "%s: its SSDs are other ones by now; look at it, and begin anew", set->mapped->name);
	}
	set_free(&now);
	return result;
}

/* Our turn, for a change of the set; before: its states when it was looked at. */
static int take_turn(struct set *set, const struct add_request *request, const char *before)
{
	char *now;
	int result;

	if (request->claim.dry_run)
		return LARDER_DONE;
	turn_take();
	result = mapped_refresh(set->mapped);
	now = status_value(set->mapped->status, "ssds");
	if (!result && (!now || strcmp(now, before)))
		result = complain(LARDER_BUSY, "%s: its SSDs have changed meanwhile (%s, now %s); look at it, and begin anew", set->mapped->name, before,
				  now ? now : "unknown");
	free(now);
	return result ? result : read_again(set);
}

/* A spare that is a part of the disk of another one of the cache, or of an SSD, goes with that; so SSDs that are added are none of a spare's disk. */
static int check_spares(const struct set *set, const struct add_request *request)
{
	struct members members;
	int result = LARDER_DONE;

	if (request->old)
		return LARDER_DONE; /* what takes the place of one that fails may be on what there is */
	members_scan(&members);
	for (size_t i = 0; !result && i < members.number; i++)
		if (set_is_spare(set, &members.member[i]->sb))
			result = create_check_joins(request->ssd, (const char *const *)&members.member[i]->path, 1, "SSD");
	members_free(&members);
	return result;
}

/*
 * Claimed and read; claim->stale: it has left this set, which has all of it, or is a spare of it.  Both are the caller's, if it is LARDER_DONE.  Not a part of a disk that
 * another one of the set, or a spare of it, is a part of; those that have failed are to be forgotten.
 */
static int open_ssd(const struct set *set, const struct add_request *request, struct claim_request *claim, struct device *device,
		    struct superblocks *found)
{
	int result = create_check_joins(request->ssd, (const char *const *)set->ssd, (int)set->number, "SSD");

	result = result ? result : check_spares(set, request);
	if (result)
		return result;
	*claim = request->claim;
	claim->path = request->ssd;
	result = claim_open(device, claim);
	if (result)
		return result;
	superblocks_read(device, found, true);
	claim->stale = found->chosen && (set_is_spare(set, found->chosen->sb) ||
					 (set_is_stale(set, found->chosen->sb) && set_knows(set, request->ssd, found->chosen->sb)));
	return LARDER_DONE;
}

/*
 * Judges, takes over and formats the device; it is closed again, for the kernel to open it.  Has the turn afterwards.  *keep: it was a spare, or was to
 * join already.
 */
static int prepare(struct set *set, const struct add_request *request, int wanted, const char *before, uint32_t *place, uint64_t *more,
		   bool *keep)
{
	struct cache_layout layout = { .segment_size = le32toh(set->sb.segment_size) };
	struct claim_request claim;
	struct superblocks found;
	struct device device;
	const char *why;
	int result = open_ssd(set, request, &claim, &device, &found);

	if (result)
		return result;
	why = cache_layout(&layout, device.bytes, device.logical_block);
	if (why)
		result = complain(LARDER_FAILED, "%s: %s", request->ssd, why);
	*place = wanted >= 0 ? (uint32_t)wanted :
			       choose_place(set, layout.nr_segments, found.chosen && set_is_stale(set, found.chosen->sb) ? found.chosen->sb : NULL,
					    request->new_place);
	result = result ? result : check_place(set, *place, &layout, request->ssd);
	result = result ? result : check_spare(set, &device, &found, request, *place, keep);
	superblocks_free(&found);
	result = result ? result : claim_judge(&device, &claim);
	result = result ? result : take_turn(set, request, before);
	claim.judged = true;
	result = result ? result : claim_clear(&device, &claim);
	result = result ? result : format(set, &device, &layout, *place, request, *keep);
	*more = *place < set->number ? 0 : (uint64_t)layout.nr_segments * (layout.segment_size >> LARDER_SECTOR_SHIFT);
	device_close(&device);
	return result;
}

/* Without a word for it the role is that of its label. */
static int role_by_label(const struct set *set, struct add_request *request)
{
	struct stack_list *list;
	struct tier_set tiers;
	const char *role;
	int result;

	if (!request->label || request->role)
		return LARDER_DONE;
	list = must_allocate(calloc(1, sizeof(*list)));
	result = stack_list_read(set->sb.cache_uuid, list);
	if (!result) {
		tiers_of_table(&set->table, list, &tiers);
		role = tiers_role(&tiers, request->label, request->ssd, &result);
		request->role = role ? role : request->role;
	}
	free(list);
	return result;
}

/* Before it is a member: once it is, it has what the others have. */
static int store_label(const struct set *set, const struct add_request *request, uint32_t place)
{
	if (!request->label)
		return LARDER_DONE;
	if (!request->claim.dry_run)
		return stack_list_store_label(set->sb.cache_uuid, place, request->label, false);
	printf("label of SSD %u: %s\n", place, request->label);
	return LARDER_DONE;
}

static int join(struct set *set, struct add_request *request, int wanted)
{
	char *before = states(set);
	uint32_t place = 0;
	uint64_t more = 0;
	bool spare = false;
	int result = check_others(set, request->ssd);

	result = result ? result : take_turn(set, request, before);
	result = result ? result : role_by_label(set, request);
	result = result ? result : let_go(set, request->ssd, &before);
	turn_give(); /* somebody may be asked */
	result = result ? result : prepare(set, request, wanted, before, &place, &more, &spare);
	free(before);
	if (result)
		return result;
	if (place == set->number)
		set->number++;
	free(set->ssd[place]);
	set->ssd[place] = must_print("%s", request->ssd);
	result = store_label(set, request, place);
	result = result ? result : set_reload(set, more);
	/* the kernel will not have it: it says no more that it joins, and can be used for something else */
	if (result && !spare && !request->claim.dry_run)
		set_erase(request->ssd, LARDER_KIND_CACHE, set->sb.cache_uuid);
	turn_give(); /* the rest may take long */
	if (result || request->claim.dry_run)
		return result;
	result = mapped_refresh(set->mapped);
	if (!result && !request->no_wait)
		result = set_wait(set, place, "joining");
	return result ? result : set_say_joined(set, place, request->ssd);
}

/* ------------------------------------------------------------------ a spare */

/* Nothing that was there is left where a member has something. */
static int format_spare(const struct set *set, const struct device *device, const struct cache_layout *layout, bool dry_run)
{
	union superblock *sb = device_buffer(LARDER_SB_SIZE);
	int result = dry_run ? LARDER_DONE : create_zero(device, LARDER_SB_OFFSET, layout->segments_offset);

	create_head(&sb->head, LARDER_KIND_SPARE, device, layout->copy_offset);
	memcpy(sb->cache.cache_uuid, set->sb.cache_uuid, 16);
	memcpy(sb->cache.label, set->sb.label, sizeof(sb->cache.label));
	sb->cache.segment_size = set->sb.segment_size;
	result = result ? result : create_superblock(device, sb, dry_run);
	free(sb);
	return result;
}

/* Would it fit into any place?  Else it would wait for ever. */
static int check_room(const struct set *set, const struct cache_layout *layout, const char *path)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t i = 0; i < set->number; i++)
		if (place_state(set, i) == LARDER_DEVICE_ACTIVE || place_state(set, i) == LARDER_DEVICE_FAILED)
			least = le32toh(set->table.devices[i].nr_segments) < least ? le32toh(set->table.devices[i].nr_segments) : least;
	if (layout->nr_segments < least)
		return complain(LARDER_FAILED, "%s: size: has room for %u segments, the smallest SSD of the cache has %u: it could replace none; give a larger one",
				path, layout->nr_segments, least);
	return LARDER_DONE;
}

static int make_spare(const struct set *set, const struct device *device, const struct claim_request *claim)
{
	struct cache_layout layout = { .segment_size = le32toh(set->sb.segment_size) };
	const char *why = cache_layout(&layout, device->bytes, device->logical_block);
	int result = why ? complain(LARDER_FAILED, "%s: %s", device->path, why) : check_room(set, &layout, device->path);

	result = result ? result : claim_clear(device, claim);
	return result ? result : format_spare(set, device, &layout, claim->dry_run);
}

static int keep_spare(struct set *set, const struct add_request *request)
{
	struct claim_request claim;
	struct superblocks found;
	struct device device;
	bool already;
	int result;

	set_forget_failed(set);
	result = open_ssd(set, request, &claim, &device, &found);
	if (result)
		return result;
	already = found.chosen == &found.main && set_is_spare(set, found.chosen->sb);
	superblocks_free(&found);
	if (already && !claim.wipe)
		result = claim_clear(&device, &claim); /* what else is on it? */
	else
		result = make_spare(set, &device, &claim);
	device_close(&device);
	if (!result && !claim.dry_run)
		printf("cache %s: %s is a spare%s; larderd has it take the place of an SSD that fails\n", set->mapped->name, request->ssd,
		       already && !claim.wipe ? " already" : "");
	if (!result && !claim.dry_run)
		remark_of_root(set->sb.cache_uuid, set->mapped->name, request->ssd);
	return result;
}

/* ------------------------------------------------------------------ both */

static int run(struct add_request *request)
{
	struct mapped_list list;
	struct mapped *cache;
	struct set set;
	int wanted = -1, result;

	mapped_init(request->claim.dry_run);
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, request->cache, true, &cache);
	result = result ? result : set_read(&set, cache);
	if (result) {
		mapped_list_free(&list);
		return result;
	}
	if (request->old) {
		wanted = set_place(&set, request->old);
		result = wanted < 0 ? LARDER_NOT_FOUND : LARDER_DONE;
	}
	if (!result)
		result = request->spare && !request->old ? keep_spare(&set, request) : join(&set, request, wanted);
	set_free(&set);
	mapped_list_free(&list);
	return result;
}

static int parse(int argc, char **argv, const char *usage, int words, struct add_request *request)
{
	const struct argument arguments[] = {
		{ "wipe", 'W', ARGUMENT_FLAG, &request->claim.wipe, NULL, "remove what is on the device" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &request->claim.discard_dirty, "UUID",
		  "also if the dirty data of this cache or volume, on that device, is LOST" },
		{ "role", 'r', ARGUMENT_TEXT, &request->role, "ROLE",
		  "both, write or read (default: that of its predecessor, or both)" },
		{ "cache-label", 0, ARGUMENT_TEXT, &request->label, "LABEL",
		  "of the SSD (default: that of its predecessor); the role is that of others with this label" },
		{ "new-place", 0, ARGUMENT_FLAG, &request->new_place, NULL, "behind the others, with all of the SSD; in no other's place" },
		{ "spare", 0, ARGUMENT_FLAG, &request->spare, NULL, "add: it waits until an SSD has failed; replace: NEW is one" },
		{ "no-wait", 0, ARGUMENT_FLAG, &request->no_wait, NULL, "do not wait until it is a member" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request->claim.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &request->claim.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	uint32_t ignored;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, words, words, &first, &result))
		return result;
	request->cache = argv[first];
	request->ssd = argv[first + words - 1];
	request->old = words == 3 ? argv[first + 1] : NULL;
	if (request->new_place && request->old)
		return complain(LARDER_USAGE, "--new-place: a replacement takes the place of what it replaces; see larder cache add");
	if (request->spare && (request->new_place || request->role || request->label))
		return complain(LARDER_USAGE,
				"--spare: takes the place, role and label of the SSD that fails; --role, --cache-label and --new-place do not go with it");
	if (request->label && !device_label_valid(request->label))
		return complain(LARDER_USAGE, "--cache-label: '%s' is not " DEVICE_LABEL_WORDS, request->label);
	if (request->spare && request->old && request->claim.wipe)
		return complain(LARDER_USAGE, "--spare: nothing is wiped for it; larder cache replace without --spare takes any device");
	if (request->role && !role_parse(request->role, &ignored))
		return complain(LARDER_USAGE, "--role: '%s' is not one of both, write, read", request->role);
	return run(request);
}

int cache_add(int argc, char **argv)
{
	struct add_request request = { 0 };

	return parse(argc, argv,
		     "larder cache add CACHE SSD [--spare] [--role ROLE] [--cache-label LABEL] [--new-place] [--wipe] [--discard-dirty UUID] [--no-wait] [--dry-run] [--yes]",
		     2, &request);
}

int cache_replace(int argc, char **argv)
{
	struct add_request request = { 0 };

	return parse(argc, argv,
		     "larder cache replace CACHE OLD NEW [--spare] [--role ROLE] [--cache-label LABEL] [--wipe] [--discard-dirty UUID] [--no-wait] [--dry-run] [--yes]", 3, &request);
}
