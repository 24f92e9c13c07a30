// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder replace: another disk, or SSD, in the place of one that works, fails, or is gone; the stack goes on meanwhile.
 *
 * A disk: NEW becomes a spare of the array, which takes the place of OLD: as a copy of it, if that works, so that nothing lacks redundancy
 * meanwhile; else rebuilt from the others.  OLD leaves the array when that is done, and loses its superblock last.
 * The whole cache: tools/stack_cache.c.
 * An SSD: NEW takes the place of one that failed; or it joins the set, and then OLD is drained and leaves it.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "snapshot.h"
#include "stack_devices.h"
#include "stack_store.h"
#include "turn.h"
#include "verbs.h"

struct replacing {
	struct devices_request request;
	const char *old; /* as it was given */
	struct part gone; /* the one that goes, as it was found; without disk */
	char label[DEVICE_LABEL_MAX]; /* of OLD */
	bool had; /* the array had OLD then: else whoever is found in its place is another */
	struct part failed[MD_LEGS_MAX]; /* OLD is a place, and nobody there: of those that md had failed, and kept, it may be one */
	size_t nr_failed;
	unsigned before; /* so many SSDs were active when it was shown, NEW not counted */
};

/* ------------------------------------------------------------------ a disk */

/* Is every place held, so that NEW can only become a spare?  Where OLD is one, or another took its place long ago. */
static bool spare_only(const struct devices *d, const struct part *old)
{
	bool holds = old->disk && old->place >= 0 && old->disk->role != MD_FAILED;

	return !holds && !d->disks.missing;
}

static int check_disk(const struct devices *d, const struct replacing *r, const struct part *old, const struct md_disk *new)
{
	int result = array_check(d);

	if (result)
		return result;
	if (old->disk && old->disk->role == MD_REBUILT && !(new && new->role == MD_REBUILT))
		return complain(LARDER_BUSY, "%s: is being rebuilt itself; wait for that, see larder show %s", old->name, r->request.name);
	if (new && (new->role == MD_MEMBER || new->role == MD_COPIED) && old->disk && old->disk->role == MD_MEMBER)
		return complain(LARDER_USAGE, "%s: is a disk of the array already; give one that is not, or a spare", r->request.claim.path);
	/* else one of before this one, which was cut off when NEW had got the place */
	if (new && (new->role == MD_MEMBER || new->role == MD_COPIED) && d->disks.missing && (old->place >= 0 ? new->place != old->place : old->disk != NULL))
		return complain(LARDER_USAGE,
				"%s: is a disk of the array already, in another place, and one is vacant; give one that is not in it, or a spare; what has failed larder drop takes out",
				r->request.claim.path);
	if (new && new->role == MD_REBUILT && old->disk && old->disk->role == MD_MEMBER && new->place != old->place)
		return complain(LARDER_BUSY, "%s: takes another place, disk%d; give a disk that is not in the array", r->request.claim.path,
				new->place);
	if (new && new->role == MD_FAILED)
		return complain(LARDER_FAILED, "%s: has failed in this array already; larder drop %s %s takes it out", r->request.claim.path,
				r->request.name, r->request.claim.path);
	if (old->disk && old->disk->role == MD_MEMBER && d->disks.missing)
		return complain(LARDER_UNSAFE, "%s: works, and another disk is missing; replace that first: larder show %s", old->name,
				r->request.name);
	return LARDER_DONE;
}

/*
 * md takes one that has failed out of its place, and keeps it: nobody knows any more which it had.  Where NEW has the only one that was vacant all of them
 * have lost theirs to others, and go.
 */
static void find_failed(const struct devices *d, struct replacing *r, const struct part *old, const struct md_disk *new)
{
	bool holds = new && new->place >= 0, known = r->had || *r->gone.node, spare = !holds && spare_only(d, old);

	r->nr_failed = 0;
	for (size_t i = 0; !known && !spare && d->disks.missing == (holds ? 0 : 1) && i < d->disks.number; i++) {
		const struct md_disk *disk = &d->disks.disk[i];

		if (disk->role == MD_FAILED && part_find(d, *disk->node ? disk->node : disk->name, &r->failed[r->nr_failed]))
			r->failed[r->nr_failed++].disk = NULL;
	}
}

static void show_disk(const struct devices *d, const struct replacing *r, const struct part *old, const struct md_disk *new)
{
	const char *path = r->request.claim.path;
	bool works = old->disk && (old->disk->role == MD_MEMBER || old->disk->role == MD_COPIED);

	printf("stack %s, array %s:\n", d->stack.name, d->layers.array.node);
	if (!new)
		printf("  %s: joins it\n", path);
	if (new && new->role == MD_MEMBER)
		printf("  %s: has its place already\n", path);
	else if (spare_only(d, old))
		printf("  %s: is a spare then, as no disk is missing\n", path);
	else
		printf("  %s: %s\n", path, works ? "gets a copy of that disk, and its place" : "is rebuilt from the others");
	printf("  %s: %s%s\n", r->gone.name, old->disk ? "leaves the array" : "is no part of it",
	       *r->gone.node ? ", and its superblock is erased" : "");
	for (size_t i = 0; i < r->nr_failed; i++)
		printf("  %s: has failed, leaves the array%s\n", r->failed[i].name, *r->failed[i].node ? ", and its superblock is erased" : "");
}

/* Has md to be told that another disk is to take the place?  Not of one that it wants to be rid of itself: it takes any spare for that, at once. */
static bool is_told(const struct part *old)
{
	return old->disk && old->disk->role == MD_MEMBER && !old->disk->unwanted;
}

static void print_erase(const struct devices *d, const char *node)
{
	if (*node)
		printf("%s %s\n", *d->stack.integrity ? "larder super wipe" : "mdadm --zero-superblock", node);
}

static int print_disk(const struct devices *d, const struct replacing *r, const struct part *old, const struct md_disk *new)
{
	const char *path = r->request.claim.path;

	if (!new)
		disk_change(d, md_add, path, true);
	if (is_told(old))
		disk_exchange(d, r->gone.name, path, true);
	if (old->disk)
		disk_change(d, md_remove, r->gone.name, true);
	for (size_t i = 0; i < r->nr_failed; i++)
		disk_change(d, md_remove, r->failed[i].name, true);
	print_erase(d, r->gone.node);
	for (size_t i = 0; i < r->nr_failed; i++)
		print_erase(d, r->failed[i].node);
	return LARDER_DONE;
}

static const struct md_disk *new_disk(const struct devices *d, const struct replacing *r, struct part *new)
{
	return part_find(d, r->request.claim.path, new) && !new->ssd ? new->disk : NULL;
}

/* NEW joins the array. */
static int join(struct replacing *r)
{
	struct devices d;
	struct part new;
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	result = array_thaw(&d.layers.array);
	if (!result && !new_disk(&d, r, &new)) {
		result = disk_take(&d, &r->request, false);
		result = result ? result : disk_change(&d, md_add, r->request.claim.path, false);
	}
	if (!result)
		devices_remark(&d, &r->request);
	devices_free(&d);
	return result;
}

/* It is told whose place it takes, if that one works.  *spare: there is none to take. */
static int take_place(struct replacing *r, bool *spare)
{
	struct devices d;
	struct part old = { .place = -1 }, new;
	const struct md_disk *disk;
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	if (r->had)
		part_find(&d, r->gone.name, &old);
	disk = new_disk(&d, r, &new);
	*spare = disk && disk->role == MD_SPARE && spare_only(&d, &old);
	if (disk && disk->role == MD_SPARE && is_told(&old))
		result = disk_exchange(&d, old.name, disk->node, false);
	devices_free(&d);
	return result;
}

/* NEW has its place: those that were shown, if they are what they were, and no place lacks a whole disk, go. */
static int remove_failed(struct replacing *r)
{
	size_t all = r->nr_failed;
	struct devices d;
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	r->nr_failed = 0;
	for (size_t i = 0; !result && i < all && !md_lacks(d.layers.array.device); i++) {
		const struct part failed = r->failed[i];
		struct part part;

		if (!part_find(&d, failed.name, &part) || !part.disk || part.disk->role != MD_FAILED)
			continue;
		result = disk_remove(r->request.name, &failed);
		r->failed[r->nr_failed++] = failed;
	}
	devices_free(&d);
	return result;
}

static int replace_disk(struct replacing *r)
{
	bool settled = false, spare = false;
	int result = join(r);

	result = result ? result : take_place(r, &spare);
	if (!result && !spare) {
		result = disk_wait(&r->request, r->request.claim.path, "replace", &settled);
		if (result || !settled)
			return result;
	}
	if (!result && r->had)
		result = disk_remove(r->request.name, &r->gone);
	if (!result && !spare && r->nr_failed)
		result = remove_failed(r);
	/* what md has written because of that is durable once this says so */
	if (!result && !spare)
		result = disk_wait(&r->request, r->request.claim.path, "replace", &settled);
	if (!result && !spare && !settled)
		return LARDER_DONE; /* --no-wait: it has said what is still to be done */
	result = result ? result : devices_store(r->request.name, 0);
	result = result ? result : disk_erase(r->request.name, &r->gone);
	for (size_t i = 0; !result && !spare && i < r->nr_failed; i++)
		result = disk_erase(r->request.name, &r->failed[i]);
	if (result)
		return result;
	printf("%s: %s %s\n", r->request.name, r->request.claim.path, spare ? "is a spare of its array" : "has taken its place in the array");
	return LARDER_DONE;
}

static int begin_disk(const struct devices *d, struct replacing *r, const struct part *old)
{
	struct part new;
	const struct md_disk *disk = new_disk(d, r, &new);
	int result = check_disk(d, r, old, disk);

	if (result)
		return result;
	find_failed(d, r, old, disk);
	show_disk(d, r, old, disk);
	fflush(stdout);
	if (!disk)
		result = disk_check_apart(d, r->request.claim.path, old->disk);
	if (!result && !disk)
		result = disk_take(d, &r->request, true);
	if (!result && r->request.claim.dry_run)
		return print_disk(d, r, old, disk);
	return result ? result : turn_confirm(r->request.name, r->request.claim.yes, "Replace it?");
}

/* ------------------------------------------------------------------ an SSD */

static bool works(const char *state)
{
	return !strcmp(state, "active") || !strcmp(state, "draining");
}

/* Has OLD a place of its own yet?  One that fails while NEW joins beside it keeps that, too, and is missed there. */
static bool stays(const struct part *old, const char *state, const struct replacing *r)
{
	return !part_is(old, r->request.claim.path) && (works(state) || !strcmp(state, "removed") || !strcmp(state, "failed"));
}

static bool active_at(const struct devices *d, int place)
{
	char state[16];

	return !strcmp(ssd_state(d, place, state), "active");
}

static bool new_is_active(const struct devices *d, const struct replacing *r)
{
	return active_at(d, set_find_device(&d->set, r->request.claim.path));
}

/* How many stay when OLD leaves? */
static unsigned ssds_left(const struct devices *d, const struct part *old)
{
	return ssds_active(d) - active_at(d, old->place);
}

/* It has left the set, or was drained before, which goes on; of what is not found in it that is known where nobody is missed. */
static bool has_gone(const struct devices *d, const struct part *old, const char *state)
{
	if (old->place < 0)
		return !status_number(d->set.mapped->status, "devices_failed");
	return !strcmp(state, "draining") || !strcmp(state, "removed");
}

/*
 * NEW may be in the set: by a replace that was cut off; or it is one of those that are to stay.  Where it is the only other one nothing tells the one from
 * the other: then what is asked for is what larder drop asks for.
 */
static int check_ssd(const struct devices *d, const struct replacing *r, const struct part *old)
{
	const char *path = r->request.claim.path, *name = d->stack.name;
	bool dirty = false;
	char state[16], *lost;
	int result;

	ssd_state(d, old->place, state);
	if (set_find_device(&d->set, path) == old->place || !new_is_active(d, r) || ssds_left(d, old) > 1 || has_gone(d, old, state))
		return LARDER_DONE;
	if (strcmp(state, "active"))
		return complain(LARDER_UNSAFE, "%s: is an SSD of the set already, and would be the only one without %s; give another one; larder drop %s %s does without it",
				path, old->name, name, r->old);
	result = ssds_may_be_dirty(d, &dirty);
	if (result || !dirty)
		return result;
	lost = must_print("is an SSD of the set already, and would have the only copy of what is dirty without %s; give another one; larder drop %s %s does without it; "
			  "or, as where a larder replace of the only SSD was cut off when this one had joined",
			  old->name, name, r->old);
	result = redundancy_check(d, &r->request, path, lost);
	free(lost);
	return result;
}

static void show_ssd(const struct devices *d, const struct replacing *r, const struct part *old)
{
	const char *path = r->request.claim.path;
	char state[16];

	ssd_state(d, old->place, state);
	printf("stack %s, cache %s:\n", d->stack.name, d->set.mapped->name);
	if (set_find_device(&d->set, path) >= 0)
		printf("  %s: is in the set already\n", path);
	else if (works(state) || old->place < 0)
		printf("  %s: joins the set\n", path);
	else
		printf("  %s: joins the set, in the place of SSD %d\n", path, old->place);
	printf("  %s: %s%s\n", r->gone.name, works(state) ? "is drained, and leaves the set" : "is no part of it any more",
	       *r->gone.node ? "; its superblocks are erased" : "");
	fflush(stdout);
}

/* NEW becomes a member; *joined: it is one. */
static int join_ssd(struct devices *d, const struct replacing *r, const struct part *old, bool *joined)
{
	int place = set_find_device(&d->set, r->request.claim.path), result;
	bool joins = !strcmp(ssd_state(d, place, (char[16]){ 0 }), "joining");
	char state[16];

	*joined = !strcmp(ssd_state(d, place, state), "active");
	if (*joined || (joins && r->request.no_wait))
		return LARDER_DONE;
	if (joins)
		result = ssd_wait(d, &r->request, place);
	else if (old->place < 0 || works(ssd_state(d, old->place, state)))
		result = ssd_add(d, &r->request);
	else
		result = ssd_replace(d, &r->request, old->place);
	*joined = !result && !r->request.no_wait;
	return result;
}

/* May OLD, which works, leave?  While NEW joined, which may have taken hours, others may have failed. */
static int check_left(const struct devices *d, const struct replacing *r, const struct part *old)
{
	unsigned left = ssds_left(d, old);
	bool dirty = false;
	int result = left < r->before ? ssds_may_be_dirty(d, &dirty) : LARDER_DONE;
	char *lost;

	if (result || !dirty)
		return result;
	lost = must_print("another SSD has failed meanwhile: without this one there would be %u, and %u there were; replace that first, see larder show %s; or", left,
			  r->before, d->stack.name);
	result = redundancy_check(d, &r->request, old->name, lost);
	free(lost);
	return result;
}

/* OLD is drained, and leaves; *left: it has. */
static int leave_ssd(struct replacing *r, bool *left)
{
	struct part old = { .place = -1 };
	struct devices d;
	char state[16];
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	part_find(&d, r->gone.name, &old);
	ssd_state(&d, old.place, state);
	*left = !stays(&old, state, r);
	if (!new_is_active(&d, r))
		result = complain(LARDER_FAILED, "%s: has failed, or left the set, as soon as it had joined; nothing else was done; the kernel's log says why; the same command, once more, has it join anew",
				  r->request.claim.path);
	if (!result && !*left)
		result = part_check_same(&d, &old, &r->gone, r->old); /* to join may have taken hours */
	if (!result && !*left && works(state))
		result = check_left(&d, r, &old);
	if (!result && !*left)
		result = ssd_remove(&d, &r->request, old.place);
	*left = *left || !r->request.no_wait || !works(state);
	devices_free(&d);
	return result;
}

/* What the same command will want then: check_ssd(). */
static int say_joins(const struct devices *d, const struct replacing *r, const struct part *old)
{
	char text[UUID_TEXT];
	bool dirty = false;
	int result = LARDER_DONE;

	if (r->before < 2 && active_at(d, old->place) && !r->request.discard_redundancy)
		result = ssds_may_be_dirty(d, &dirty);
	if (!result)
		printf("%s: %s joins; the same larder replace, once more%s%s, ends it\n", r->request.name, r->request.claim.path,
		       dirty ? ", with --discard-redundancy " : "", dirty ? uuid_text(d->stack.uuid, text) : "");
	return result;
}

/* NEW may get a place of its own: it has the label of OLD all the same, if no other is given. */
static int old_label(const struct devices *d, struct replacing *r, int place)
{
	struct stack_list *list;
	int result;

	if (r->request.label || place < 0)
		return LARDER_DONE;
	list = must_allocate(calloc(1, sizeof(*list)));
	result = stack_list_read(d->set.sb.cache_uuid, list);
	if (!result && *list->label[place]) {
		strcpy(r->label, list->label[place]);
		r->request.label = r->label;
	}
	free(list);
	return result;
}

static int replace_ssd(struct replacing *r)
{
	struct part old = { .place = -1 };
	bool joined, left;
	struct devices d;
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	part_find(&d, r->gone.name, &old);
	if (!r->request.role && !r->request.label && old.place >= 0)
		r->request.role = role_text(le32toh(d.set.table.devices[old.place].role));
	result = old_label(&d, r, old.place);
	turn_give(); /* this may take long */
	result = result ? result : join_ssd(&d, r, &old, &joined);
	if (!result && !joined)
		result = say_joins(&d, r, &old);
	devices_free(&d);
	if (result || !joined)
		return result;
	turn_take(); /* what is found is what leaves */
	result = leave_ssd(r, &left);
	if (result || !left)
		return result;
	turn_take();
	result = devices_store(r->request.name, 0);
	result = result ? result : ssd_erase(r->request.name, r->gone.node);
	if (result)
		return result;
	printf("%s: %s is an SSD of its cache\n", r->request.name, r->request.claim.path);
	return LARDER_DONE;
}

/* As far as it is known before it is begun. */
static int print_ssd(struct devices *d, const struct replacing *r, const struct part *old)
{
	char state[16];
	bool joined, leaves = stays(old, ssd_state(d, old->place, state), r) && (works(state) || set_find_device(&d->set, r->request.claim.path) >= 0);
	int result = join_ssd(d, r, old, &joined);

	if (!result && leaves)
		printf("larder cache remove %s %d\n", snapshot_name(&d->stacks.list, d->set.mapped), old->place);
	return result;
}

static int begin_ssd(struct devices *d, struct replacing *r, const struct part *old)
{
	int result = check_ssd(d, r, old);

	if (result)
		return result;
	r->before = ssds_active(d) - new_is_active(d, r);
	show_ssd(d, r, old);
	claim_note(r->request.claim.path);
	return r->request.claim.dry_run ? print_ssd(d, r, old) : turn_confirm(r->request.name, r->request.claim.yes, "Replace it?");
}

/* ------------------------------------------------------------------ both */

/* OLD may have left already, with nothing on it any more: then NEW is in, and there is little to do. */
static int find_old(const struct devices *d, struct replacing *r, struct part *old)
{
	const char *path = r->request.claim.path;
	struct part new;

	if (!part_find(d, r->old, old)) {
		if (!part_find(d, path, &new) || (new.ssd ? new.place < 0 : !new.disk || new.disk->role == MD_FAILED))
			return part_get(d, r->old, old);
		*old = (struct part){ .place = -1, .ssd = new.ssd };
		snprintf(old->name, sizeof(old->name), "%s", r->old);
	} else if (part_is(old, path)) {
		if (!strncmp(r->old, "/", 1))
			return complain(LARDER_USAGE, "%s: is given twice", path);
		/* "disk1", or "ssd0": NEW has the place already */
		*old = (struct part){ .place = old->ssd ? old->place : -1, .ssd = old->ssd };
		snprintf(old->name, sizeof(old->name), "%s", r->old);
	}
	r->had = old->disk;
	r->gone = *old;
	r->gone.disk = NULL;
	return LARDER_DONE;
}

/* While somebody was asked others may have changed the stack: what was named is still that, and may be replaced. */
static int judge_again(struct replacing *r)
{
	const struct replacing then = *r;
	struct devices d;
	struct part old, new;
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	result = find_old(&d, r, &old);
	result = result ? result : part_check_same(&d, &r->gone, &then.gone, r->old);
	if (!result)
		result = old.ssd ? check_ssd(&d, r, &old) : check_disk(&d, r, &old, new_disk(&d, r, &new));
	devices_free(&d);
	return result;
}

static int replace(struct replacing *r)
{
	struct devices d;
	struct part old;
	bool ssd;
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	result = find_old(&d, r, &old);
	ssd = !result && old.ssd;
	if (!result)
		result = ssd ? begin_ssd(&d, r, &old) : begin_disk(&d, r, &old);
	devices_free(&d);
	if (result || r->request.claim.dry_run)
		return result;
	result = judge_again(r);
	if (result)
		return result;
	return ssd ? replace_ssd(r) : replace_disk(r);
}

int stack_replace(int argc, char **argv)
{
	static const char usage[] = "larder replace NAME OLD NEW | NAME cache SSD...|CACHE [--wipe] [--discard-dirty UUID] [--discard-redundancy UUID] [--role ROLE] [--cache-label LABEL] [--no-wait] [--dry-run] [--yes]";
	struct replacing r = { 0 };
	const struct argument arguments[] = {
		{ "wipe", 'W', ARGUMENT_FLAG, &r.request.claim.wipe, NULL, "remove what is on NEW" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &r.request.claim.discard_dirty, "UUID",
		  "also if the dirty data of this cache or volume, on NEW, is LOST" },
		{ "discard-redundancy", 0, ARGUMENT_TEXT, &r.request.discard_redundancy, "UUID",
		  "also if one SSD of the stack with this UUID has the only copy of what is dirty then, or fewer have one than before" },
		{ "role", 'r', ARGUMENT_TEXT, &r.request.role, "ROLE", "of an SSD: both, write or read (default: as OLD, or both)" },
		{ "cache-label", 0, ARGUMENT_TEXT, &r.request.label, "LABEL", "of an SSD (default: as OLD); of all, with `cache`" },
		{ "no-wait", 0, ARGUMENT_FLAG, &r.request.no_wait, NULL, "begin it; the same command, later, ends it" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &r.request.claim.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &r.request.claim.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	uint32_t ignored;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 3, 2 + (int)LARDER_MAX_DEVICES, &first, &result))
		return result;
	r.request.name = argv[first];
	r.old = argv[first + 1];
	if (strcmp(r.old, "cache") && argc - first > 3)
		return complain(LARDER_USAGE, "too many words; usage: %s", usage);
	r.request.claim.path = argv[first + 2];
	if (r.request.role && !role_parse(r.request.role, &ignored))
		return complain(LARDER_USAGE, "--role: '%s' is not one of both, write, read", r.request.role);
	if (r.request.label && !device_label_valid(r.request.label))
		return complain(LARDER_USAGE, "--cache-label: '%s' is not " DEVICE_LABEL_WORDS, r.request.label);
	mapped_init(false);
	if (!r.request.claim.dry_run)
		turn_take();
	return strcmp(r.old, "cache") ? replace(&r) : stack_change_cache(&r.request, &argv[first + 2], argc - first - 2);
}
