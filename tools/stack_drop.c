// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder drop: a disk, or SSD, leaves a stack that runs.
 *
 * A mirror of more than two disks becomes one of fewer.  What takes redundancy away needs a word that says so; what would take data away is
 * refused.  The superblock of who left goes last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "stack_devices.h"
#include "turn.h"
#include "verbs.h"

#define POLL_US 100000u
#define PATIENCE 100

struct dropping {
	struct devices_request request;
	const char *word;
	struct part gone; /* the one that goes, as it was found; without disk */
	bool had; /* the array has it */
	unsigned places; /* that the array has afterwards; 0: as before */
};

/* ------------------------------------------------------------------ a disk */

static unsigned others(const struct devices *d, const struct part *part, enum md_role role)
{
	unsigned number = 0;

	for (size_t i = 0; i < d->disks.number; i++)
		number += &d->disks.disk[i] != part->disk && d->disks.disk[i].role == role;
	return number;
}

static bool mirror(const struct devices *d)
{
	return !strcmp(d->stack.raid, "1");
}

static int check_member(const struct dropping *r, const struct devices *d, const struct part *part)
{
	unsigned whole = others(d, part, MD_MEMBER);

	if (others(d, part, MD_SPARE))
		return complain(LARDER_BUSY, "%s: a spare would take its place: larder replace %s %s SPARE, or drop the spare first", r->word,
				r->request.name, r->word);
	if (mirror(d) ? !whole : whole + 1 < d->disks.places)
		return complain(LARDER_UNSAFE, "%s: the others do not have everything: the array would fail without it; larder show %s", r->word,
				r->request.name);
	if (!d->disks.idle)
		return complain(LARDER_BUSY, "%s: the array is rebuilt, or checked; wait until it is idle, see /proc/mdstat", r->word);
	return mirror(d) && whole >= 2 ? LARDER_DONE : redundancy_check(d, &r->request, r->word, "the array would lack a disk");
}

static int check_disk(const struct dropping *r, const struct devices *d, const struct part *part)
{
	const struct md_disk *disk = part->disk;
	int result = array_check(d);

	if (result)
		return result;
	/* one that goes gives its number to another: the same words, once more, would mean that */
	if (!strncmp(r->word, "disk", 4) && !strchr(r->word, '/') && *part->node)
		return complain(LARDER_USAGE, "%s: is %s: give that path", r->word, part->node);
	if (disk && (disk->role == MD_COPIED || (disk->role == MD_REBUILT && others(d, part, MD_COPIED))))
		return complain(LARDER_BUSY, "%s: is being replaced, or takes a place; wait for that, or fail one of the two by mdadm", r->word);
	return disk && disk->role == MD_MEMBER ? check_member(r, d, part) : LARDER_DONE;
}

/* Places that a mirror has without this one. */
static unsigned places_after(const struct devices *d, const struct part *part)
{
	bool holds = part->disk && part->place >= 0 && part->disk->role != MD_FAILED,
	     gone = !part->marked && (!part->disk || part->disk->role == MD_FAILED) && d->disks.missing; /* marked: it may never have had one */

	return mirror(d) && d->disks.places > 2 && (holds || gone) ? d->disks.places - 1 : 0;
}

static int begin_disk(struct dropping *r, const struct devices *d, const struct part *part)
{
	const char *node = d->layers.array.node;
	int result = check_disk(r, d, part);

	if (result)
		return result;
	r->had = part->disk;
	r->places = places_after(d, part);
	if (!part->disk && !*part->node && !r->places)
		return complain(LARDER_NOT_FOUND, "%s: is missing already; larder replace %s %s NEW puts another one there", r->word,
				r->request.name, r->word);
	printf("stack %s, array %s:\n", d->stack.name, node);
	printf("  %s: %s%s\n", r->gone.name, part->disk ? "leaves it" : "is no part of it", *r->gone.node ? "; its superblock is erased" : "");
	if (r->places)
		printf("  the array: has %u disks then\n", r->places);
	if (!r->request.claim.dry_run)
		return turn_confirm(r->request.name, r->request.claim.yes, "Drop it?");
	if (part->disk && part->disk->role != MD_SPARE && part->disk->role != MD_FAILED)
		disk_change(d, md_fail, r->gone.name, true);
	if (part->disk)
		disk_change(d, md_remove, r->gone.name, true);
	if (r->places)
		md_set_places(node, r->places, true);
	if (*r->gone.node)
		printf("%s %s\n", *d->stack.integrity ? "larder super wipe" : "mdadm --zero-superblock", r->gone.node);
	return LARDER_DONE;
}

/* The array as it is now: while somebody was asked another disk may have failed.  devices_free() after LARDER_DONE. */
static int judge_again(struct dropping *r, struct devices *d, struct part *part)
{
	int result = devices_look(r->request.name, d);

	*part = (struct part){ .place = -1 };
	if (result)
		return result;
	if (part_find(d, r->gone.name, part)) {
		result = part_check_same(d, part, &r->gone, r->word);
		result = result ? result : check_disk(r, d, part);
	}
	if (result)
		devices_free(d);
	return result;
}

static int fail_disk(struct dropping *r)
{
	struct devices d;
	struct part part;
	int result = judge_again(r, &d, &part);

	if (result)
		return result;
	result = array_thaw(&d.layers.array);
	if (!result && part.disk && part.disk->role != MD_SPARE && part.disk->role != MD_FAILED)
		result = disk_change(&d, md_fail, part.name, false);
	devices_free(&d);
	return result;
}

/* md does not change the number while it rebuilds: one that was rebuilt is failed, and it will end that in a moment. */
static int set_places(const struct dropping *r)
{
	struct md_disks disks = { 0 };
	struct devices d;
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	for (int i = 0; md_disks(d.layers.array.device, &disks) && !disks.idle && i < PATIENCE; i++)
		usleep(POLL_US);
	if (disks.places > r->places)
		result = md_set_places(d.layers.array.node, r->places, false);
	devices_free(&d);
	return result;
}

static int drop_disk(struct dropping *r)
{
	struct devices d;
	struct part part;
	int result = judge_again(r, &d, &part);

	if (result)
		return result;
	if (part.disk || *part.node)
		r->places = places_after(&d, &part); /* others may have come, or gone, while somebody was asked */
	devices_free(&d);
	result = devices_store(r->request.name, r->places);
	result = result ? result : fail_disk(r);
	if (!result && r->had)
		result = disk_remove(r->request.name, &r->gone);
	if (!result && r->places)
		result = set_places(r);
	/* what has left does not have this generation: it is not taken for the stack */
	result = result ? result : devices_store(r->request.name, 0);
	result = result ? result : disk_erase(r->request.name, &r->gone);
	if (result)
		return result;
	printf("%s: %s has left its array\n", r->request.name, r->gone.name);
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ an SSD */

static int check_ssd(const struct dropping *r, const struct devices *d, const struct part *part)
{
	char state[16];
	bool works = !strcmp(ssd_state(d, part->place, state), "active"), dirty;
	int result;

	if (works && ssds_active(d) < 2)
		return complain(LARDER_UNSAFE, "%s: is the last SSD of the cache; larder volume detach %s takes the volume off it", r->word,
				d->stack.name);
	if (!works || ssds_active(d) > 2)
		return LARDER_DONE;
	result = ssds_may_be_dirty(d, &dirty);
	if (!result && dirty)
		result = redundancy_check(d, &r->request, r->word, "the one SSD that is left would have the only copy of what is dirty");
	return result;
}

static int begin_ssd(const struct dropping *r, struct devices *d, const struct part *part)
{
	char state[16];
	bool works = !strcmp(ssd_state(d, part->place, state), "active");
	int result = check_ssd(r, d, part);

	if (result)
		return result;
	printf("stack %s, cache %s:\n", d->stack.name, d->set.mapped->name);
	printf("  %s: %s%s\n", r->gone.name, works ? "is drained, and leaves the set" : part->spare ? "is no spare any more" : "leaves the set", *r->gone.node ? "; its superblocks are erased" : "");
	fflush(stdout);
	if (!r->request.claim.dry_run)
		return turn_confirm(r->request.name, r->request.claim.yes, "Drop it?");
	return part->place >= 0 ? ssd_remove(d, &r->request, part->place) : LARDER_DONE;
}

static int drop_ssd(const struct dropping *r)
{
	struct part part = { .place = -1 };
	struct devices d;
	bool left;
	char state[16];
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	/* while somebody was asked another one may have come there, or failed */
	if (part_find(&d, r->gone.name, &part))
		result = part_check_same(&d, &part, &r->gone, r->word);
	ssd_state(&d, part.place, state);
	left = part.place < 0 || !r->request.no_wait || !strcmp(state, "removed") || !strcmp(state, "failed") ||
	       !strcmp(state, "joining");
	result = result ? result : check_ssd(r, &d, &part);
	if (!result && part.place >= 0)
		result = ssd_remove(&d, &r->request, part.place);
	devices_free(&d);
	if (result || !left)
		return result;
	result = devices_store(r->request.name, 0);
	return result ? result : ssd_erase(r->request.name, r->gone.node);
}

/* ------------------------------------------------------------------ both */

static int drop(struct dropping *r)
{
	struct devices d;
	struct part part;
	bool ssd;
	int result = devices_look(r->request.name, &d);

	if (result)
		return result;
	result = part_get(&d, r->word, &part);
	ssd = !result && part.ssd;
	if (!result) {
		r->gone = part;
		r->gone.disk = NULL;
		result = ssd ? begin_ssd(r, &d, &part) : begin_disk(r, &d, &part);
	}
	devices_free(&d);
	if (result || r->request.claim.dry_run)
		return result;
	return ssd ? drop_ssd(r) : drop_disk(r);
}

int stack_drop(int argc, char **argv)
{
	static const char usage[] = "larder drop NAME DEVICE [--discard-redundancy UUID] [--no-wait] [--dry-run] [--yes]";
	struct dropping r = { 0 };
	const struct argument arguments[] = {
		{ "discard-redundancy", 0, ARGUMENT_TEXT, &r.request.discard_redundancy, "UUID",
		  "also if the redundancy of the stack with this UUID is LOST: then the next device that fails takes data with it" },
		{ "no-wait", 0, ARGUMENT_FLAG, &r.request.no_wait, NULL, "begin to drain an SSD; the same command, later, ends it" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &r.request.claim.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &r.request.claim.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 2, 2, &first, &result))
		return result;
	r.request.name = argv[first];
	r.word = argv[first + 1];
	mapped_init(false);
	if (!r.request.claim.dry_run)
		turn_take();
	return drop(&r);
}
