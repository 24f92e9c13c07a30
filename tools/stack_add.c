// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder add: one more disk, or SSD, for a stack that runs.
 *
 * A disk becomes a spare of the array; of a mirror then one more of its legs, unless --spare was given: each leg has everything, so nothing is
 * rearranged, and what is cut short is a mirror with one leg that is not whole yet.  RAID 5, 6 and 10 are spread over it if --reshape was given,
 * which moves every stripe: md does that, into the room in front of the data, so that it goes on behind a power cut, by itself, and needs no file.
 * RAID 5 has no log of its parity meanwhile, as md cannot reshape with one; whoever is cut off runs the same again, which waits, and gives it back.
 * RAID 0 is not grown: mdadm makes it RAID 4 for that, without a parity, and has to be there at the end.
 * An SSD joins the set of the cache, or waits as its spare.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "stack_devices.h"
#include "turn.h"
#include "verbs.h"

struct adding {
	struct devices_request request;
	const char *disk, *ssd;
};

/* ------------------------------------------------------------------ a disk */

static const struct md_disk *find(const struct devices *d, const struct adding *a)
{
	struct part part;

	return part_find(d, a->request.claim.path, &part) && !part.ssd ? part.disk : NULL;
}

static bool grows(const struct devices *d, const struct adding *a)
{
	return a->request.reshape || (!a->request.spare && !strcmp(d->stack.raid, "1"));
}

/* A reshape leaves its log off until it is done. */
static bool lacks_guard(const struct devices *d)
{
	return md_lacks_guard(d->stack.raid, d->layers.array.device);
}

/* Is it one of the legs, and noted as one? */
static bool is_in(const struct devices *d, const struct md_disk *disk)
{
	return disk && (disk->role == MD_MEMBER || disk->role == MD_COPIED || disk->role == MD_REBUILT) && d->stack.legs >= d->disks.places;
}

/* md takes any spare for a place more: then the disk that was given would be left one, and the next try a place more again.  Complains. */
static int check_spares(const struct devices *d, const struct adding *a, const struct md_disk *disk)
{
	const char *path = a->request.claim.path, *name = a->request.name;

	for (size_t i = 0; i < d->disks.number; i++) {
		const struct md_disk *spare = &d->disks.disk[i];
		const char *node = *spare->node ? spare->node : spare->name;

		if (spare != disk && spare->role == MD_SPARE)
			return complain(LARDER_BUSY, "%s: the array has a spare, %s, which would be spread over instead; larder drop %s %s first, and add it as one afterwards",
					path, node, name, node);
	}
	return LARDER_DONE;
}

static int check_disk(const struct devices *d, const struct adding *a, const struct md_disk *disk)
{
	const char *path = a->request.claim.path, *name = a->request.name;
	int result = array_check(d);

	if (result)
		return result;
	if (a->request.reshape && !strcmp(d->stack.raid, "1"))
		return complain(LARDER_USAGE, "%s: --reshape: is for RAID 5, 6 and 10; each disk of RAID 1 has everything: leave it out", name);
	if (disk && disk->role == MD_FAILED)
		return complain(LARDER_FAILED, "%s: has failed in this array; larder drop %s %s takes it out", path, name, path);
	if (!grows(d, a) || is_in(d, disk))
		return LARDER_DONE;
	if (d->disks.missing && !disk)
		return complain(LARDER_UNSAFE, "%s: its array lacks a disk; larder replace %s OLD %s first, or --spare, and it is rebuilt there", name,
				name, path);
	if (d->disks.places == MD_LEGS_MAX)
		return complain(LARDER_FAILED, "%s: its array has %u disks, and cannot have more", name, MD_LEGS_MAX);
	if (d->disks.places > d->stack.legs)
		return LARDER_DONE; /* it has grown already */
	if (!d->disks.idle)
		return complain(LARDER_BUSY, "%s: its array is rebuilt, or checked; wait until it is idle, see /proc/mdstat", name);
	return a->request.reshape ? check_spares(d, a, disk) : LARDER_DONE;
}

static void show_disk(const struct devices *d, const struct adding *a, const struct md_disk *disk)
{
	const char *path = a->request.claim.path;

	printf("stack %s, array %s:\n", d->stack.name, d->layers.array.node);
	if (is_in(d, disk))
		printf("  %s: is a disk of it already\n", path);
	else if (a->request.reshape)
		printf("  %s: becomes one more disk of it; all that is in it is moved, which takes as long as to write all of its disks\n", path);
	else if (grows(d, a))
		printf("  %s: becomes one more disk of it, with a copy of everything\n", path);
	else if (d->disks.missing)
		printf("  %s: takes the place of a disk that is missing\n", path);
	else
		printf("  %s: becomes a spare, which takes the place of the first disk that fails\n", path);
	if (a->request.reshape && md_is_logged(d->layers.array.device))
		printf("  until that is done it has no log of its parity: data may be wrong behind a power cut with which a disk fails\n");
	if (!a->request.spare && !grows(d, a))
		printf("  RAID %s is not grown: that would move all that is in it; --reshape does\n", d->stack.raid);
	fflush(stdout);
}

/* One place more, noted; where it was cut short it is only noted.  The log of its parity is off until end_reshape(). */
static int grow(const struct adding *a, const struct devices *d)
{
	const char *node = d->layers.array.node;
	bool dry_run = a->request.claim.dry_run;
	unsigned places = d->disks.places + (d->disks.places <= d->stack.legs);
	bool logged = places > d->disks.places && md_is_logged(d->layers.array.device);
	int result = LARDER_DONE;

	if (logged)
		result = md_stop_log(node, dry_run);
	if (!result && places > d->disks.places)
		result = md_set_places(node, places, dry_run);
	if (dry_run ? logged : result && lacks_guard(d))
		md_set_guard(node, d->layers.array.device, dry_run);
	return result || dry_run ? result : devices_store(a->request.name, places);
}

static int begin_disk(const struct devices *d, const struct adding *a, bool *done)
{
	const struct md_disk *disk = find(d, a);
	int result = check_disk(d, a, disk);

	if (result)
		return result;
	show_disk(d, a, disk);
	*done = is_in(d, disk) && disk->role != MD_REBUILT && !(a->request.reshape && (!d->disks.idle || lacks_guard(d)));
	if (!disk)
		result = disk_check_apart(d, a->request.claim.path, NULL);
	if (!result && !disk)
		result = disk_take(d, &a->request, true);
	if (result || !a->request.claim.dry_run)
		return result ? result : *done ? LARDER_DONE : turn_confirm(a->request.name, a->request.claim.yes, "Add it?");
	if (!disk)
		disk_change(d, md_add, a->request.claim.path, true);
	if (grows(d, a) && !is_in(d, disk))
		grow(a, d);
	return LARDER_DONE;
}

/* One step; *waits: it is rebuilt now. */
static int join(const struct adding *a, bool *waits)
{
	const struct md_disk *disk;
	struct devices d;
	int result = devices_look(a->request.name, &d);

	if (result)
		return result;
	result = check_disk(&d, a, find(&d, a)); /* somebody may have been asked meanwhile */
	result = result ? result : array_thaw(&d.layers.array);
	if (!result && !find(&d, a)) {
		result = disk_take(&d, &a->request, false);
		result = result ? result : disk_change(&d, md_add, a->request.claim.path, false);
	}
	disk = find(&d, a);
	*waits = d.disks.missing || (disk && disk->role == MD_REBUILT) || a->request.reshape;
	if (!result && grows(&d, a) && !is_in(&d, disk)) {
		result = grow(a, &d);
		*waits = true;
	} else if (!result) {
		result = devices_store(a->request.name, 0);
	}
	if (!result)
		devices_remark(&d, &a->request);
	devices_free(&d);
	return result;
}

/* Behind a reshape. */
static int end_reshape(const struct adding *a)
{
	struct devices d;
	int result = devices_look(a->request.name, &d);

	if (result)
		return result;
	if (lacks_guard(&d))
		result = md_set_guard(d.layers.array.node, d.layers.array.device, false);
	devices_free(&d);
	if (!result)
		printf("%s: larder resize %s makes its volume and filesystem as large as its array is now\n", a->request.name, a->request.name);
	return result;
}

static int add_disk(const struct adding *a)
{
	const struct md_disk *disk;
	struct devices d;
	bool waits, spare = false, settled = true;
	int result = join(a, &waits);

	if (result)
		return result;
	result = waits ? devices_look(a->request.name, &d) : LARDER_DONE;
	if (!result && waits) {
		disk = find(&d, a);
		spare = !d.disks.missing && disk && disk->role == MD_SPARE; /* another spare has taken the place */
		devices_free(&d);
	}
	if (!result && waits && (!spare || a->request.reshape))
		result = disk_wait(&a->request, a->request.claim.path, "add", &settled);
	if (!result && settled && a->request.reshape)
		result = end_reshape(a);
	if (!result && settled)
		printf("%s: %s is a %s of its array\n", a->request.name, a->request.claim.path, waits && !spare ? "disk" : "spare");
	return result;
}

/* ------------------------------------------------------------------ an SSD */

static int no_cache(const char *name)
{
	return complain(LARDER_NOT_FOUND, "%s: its cache does not run; larder status %s", name, name);
}

static int begin_ssd(struct devices *d, const struct adding *a)
{
	const char *path = a->request.claim.path;
	bool is_there;

	if (!d->set.mapped)
		return no_cache(d->stack.name);
	is_there = set_find_device(&d->set, path) >= 0;
	printf("stack %s, cache %s:\n", d->stack.name, d->set.mapped->name);
	printf("  %s: %s\n", path,
	       is_there		? "is in the set already" :
	       a->request.spare ? "becomes a spare, which takes the place of the first SSD that fails" :
				  "joins the set");
	if (is_there && a->request.spare)
		return complain(LARDER_BUSY, "%s: is no spare while it is in the set; larder drop %s %s takes it out", path, d->stack.name, path);
	fflush(stdout);
	claim_note(path);
	if (a->request.claim.dry_run)
		return is_there ? LARDER_DONE : ssd_add(d, &a->request);
	return turn_confirm(a->request.name, a->request.claim.yes, "Add it?");
}

static int add_ssd(const struct adding *a)
{
	struct devices d;
	char state[16];
	int place, result = devices_look(a->request.name, &d);

	if (result)
		return result;
	if (!d.set.mapped) {
		devices_free(&d);
		return no_cache(a->request.name);
	}
	place = set_find_device(&d.set, a->request.claim.path);
	ssd_state(&d, place, state);
	turn_give(); /* this may take long */
	if (!strcmp(state, "joining") && !a->request.no_wait)
		result = ssd_wait(&d, &a->request, place);
	else if (strcmp(state, "joining") && strcmp(state, "active"))
		result = ssd_add(&d, &a->request);
	devices_free(&d);
	turn_take();
	return result || a->request.spare ? result : devices_store(a->request.name, 0);
}

/* ------------------------------------------------------------------ both */

static int add(const struct adding *a)
{
	struct devices d;
	bool done = false;
	int result = devices_look(a->request.name, &d);

	if (result)
		return result;
	result = a->ssd ? begin_ssd(&d, a) : begin_disk(&d, a, &done);
	devices_free(&d);
	if (result || done || a->request.claim.dry_run)
		return result;
	return a->ssd ? add_ssd(a) : add_disk(a);
}

int stack_add(int argc, char **argv)
{
	static const char usage[] = "larder add NAME --cache SSD | --backing DISK [--spare | --reshape] [--role ROLE] [--cache-label LABEL] [--wipe] [--discard-dirty UUID] [--no-wait] "
				    "[--dry-run] [--yes]";
	struct adding a = { 0 };
	const struct argument arguments[] = {
		{ "cache", 'c', ARGUMENT_TEXT, &a.ssd, "SSD", "joins the cache" },
		{ "backing", 'b', ARGUMENT_TEXT, &a.disk, "DISK", "joins the array: of RAID 1 as one more mirror, else as a spare" },
		{ "spare", 0, ARGUMENT_FLAG, &a.request.spare, NULL, "only to take the place of one that fails" },
		{ "reshape", 0, ARGUMENT_FLAG, &a.request.reshape, NULL, "spread an array of RAID 5, 6 or 10 over it: all that is in it is moved" },
		{ "role", 'r', ARGUMENT_TEXT, &a.request.role, "ROLE", "of an SSD: both, write or read (default: both)" },
		{ "cache-label", 0, ARGUMENT_TEXT, &a.request.label, "LABEL", "of an SSD; its role is that of others with this label" },
		{ "wipe", 'W', ARGUMENT_FLAG, &a.request.claim.wipe, NULL, "remove what is on the device" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &a.request.claim.discard_dirty, "UUID",
		  "also if the dirty data of this cache or volume, on that device, is LOST" },
		{ "no-wait", 0, ARGUMENT_FLAG, &a.request.no_wait, NULL, "do not wait until it has all that it is to have" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &a.request.claim.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &a.request.claim.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	uint32_t ignored;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	a.request.name = argv[first];
	a.request.claim.path = a.ssd ? a.ssd : a.disk;
	if (!a.ssd == !a.disk)
		return complain(LARDER_USAGE, "give one of --cache SSD and --backing DISK");
	if (a.request.reshape && (!a.disk || a.request.spare))
		return complain(LARDER_USAGE, "--reshape: goes with --backing, and not with --spare");
	if (a.request.role && (a.disk || a.request.spare))
		return complain(LARDER_USAGE, "--role goes with --cache, and not with --spare: it has the role of the SSD that fails");
	if (a.request.role && !role_parse(a.request.role, &ignored))
		return complain(LARDER_USAGE, "--role: '%s' is not one of both, write, read", a.request.role);
	if (a.request.label && (a.disk || a.request.spare))
		return complain(LARDER_USAGE, "--cache-label goes with --cache, and not with --spare: it has the label of the SSD that fails");
	if (a.request.label && !device_label_valid(a.request.label))
		return complain(LARDER_USAGE, "--cache-label: '%s' is not " DEVICE_LABEL_WORDS, a.request.label);
	mapped_init(false);
	if (!a.request.claim.dry_run)
		turn_take();
	return add(&a);
}
