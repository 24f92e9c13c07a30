// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder pin, larder unpin: files whose blocks stay on the SSDs of their stack.
 *
 * A file is looked up in its filesystem, and followed down to sectors of the volume; rules at the beginning of the volume's class list pin these, in the
 * kernel and in the description of the stack.  The names are in the filesystem (lib/pinned_names.h): a description is not encrypted.  So a pin is wherever
 * volume and files are, and there is no file of ours that could be lost.
 *
 * The kernel knows sectors, not files: one that is written anew, or grows, is elsewhere until --refresh.  All that is pinned of a stack is therefore
 * mapped anew by each change: the rules are a function of the files, as they are now.  A list takes three rules that pin; what lies in more pieces is pinned
 * with what is in between, if that is little, or not at all.
 *
 * Order: what can be refused is checked; then the names, the kernel, the description.  Cut off, or refused, in between, names and rules differ until the
 * next command, which makes the rules those of the names: ours are known by how they look (lib/pins.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "device.h"
#include "file_extents.h"
#include "pin_place.h"
#include "running.h"
#include "stack_layers.h"
#include "stack_room.h"
#include "stack_store.h"
#include "stacks.h"
#include "status.h"
#include "turn.h"
#include "verbs.h"

#define PIECE_BYTES (1u << 20) /* of one read */
#define PASSES	    3 /* of reading: a fill may be given up for a write near by, or while the SSD is slow */

struct pin_request {
	bool list, refresh, no_load, dry_run;
	struct report_options report;
};

/* One stack, and what is to be pinned of it. */
struct job {
	struct stack stack;
	struct mapped *volume, *cache; /* of stacks->list */
	const struct mapped_list *list;
	struct ranges pins, written; /* of all files that are there */
	uint64_t length; /* of what is to be pinned, without what is in between */
	size_t pieces, files; /* files: that are there */
	bool quiet; /* nobody asked for this stack by its name */
	bool mounted; /* some filesystem on it is */
	bool set; /* the rules are those of the files */
	int result;
};

/* All that a command does.  Nothing is changed before all of its words are understood; under the lock until it is read to the SSDs. */
struct work {
	const struct pin_request *request;
	struct stacks stacks;
	struct pin_roots roots;
	struct job *job;
	size_t jobs;
	int result; /* of a stack that nobody asked for by its name, and that cannot be looked at: the others are */
};

static const char *size_text(char text[static SIZE_TEXT], uint64_t sectors)
{
	static const struct size_format format = { 'h', true };

	return size_print(text, sectors << LARDER_SECTOR_SHIFT, &format);
}

/* ------------------------------------------------------------------ stacks */

static const struct found *found_by_volume(const struct stacks *stacks, dev_t number)
{
	for (size_t i = 0; i < stacks->number; i++) {
		const struct mapped *volume = stacks->found[i].whole ? stack_volume(stacks, &stacks->found[i].stack) : NULL;

		if (volume && volume->target_number == number)
			return &stacks->found[i];
	}
	return NULL;
}

static int job_begin(const struct stacks *stacks, const struct found *found, struct job *job)
{
	const struct stack *stack = &found->stack;
	int result;

	*job = (struct job){ .stack = *stack, .list = &stacks->list };
	if (!found->whole)
		return complain(LARDER_NOT_FOUND, "%s: is not started, or its disks are not here; larder start %s", stack->name, stack->name);
	result = stack_check_ready(stacks, stack);
	if (result)
		return result;
	job->volume = stack_volume(stacks, stack);
	job->cache = running_by_uuid(&stacks->list, stack->cache, true);
	if (!job->volume)
		return complain(LARDER_NOT_FOUND, "%s: is not started; larder start %s", stack->name, stack->name);
	if (!job->cache || status_is(job->volume->status, "cache", "-"))
		return complain(LARDER_FAILED, "%s: runs without its cache, where there is nothing to pin in; larder show %s", stack->name, stack->name);
	return LARDER_DONE;
}

static void job_free(struct job *job)
{
	ranges_free(&job->pins);
	ranges_free(&job->written);
}

static void take_ranges(struct ranges *to, const struct ranges *from)
{
	for (size_t i = 0; i < from->number; i++)
		ranges_add(to, from->range[i].first, from->range[i].end);
}

/* A file that cannot be followed is complained of, and pins nothing, as its sectors are others' by now. */
static int map_file(struct job *job, const struct pin_root *root, const char *name)
{
	char *path = place_path(root, name);
	struct place place;
	int result = place_of_name(root, name, &place);

	if (!result && place.volume != job->volume->target_number)
		result = complain(LARDER_NOT_FOUND, "%s: lies on another volume than that of the stack %s", path, job->stack.name);
	if (!result) {
		take_ranges(&job->pins, &place.all);
		take_ranges(&job->written, &place.written);
		job->files++;
		if (place.unplaced)
			remark("%s: is being written: %zu of its extents have no place on the disk yet, and are pinned by larder pin --refresh", path,
			       place.unplaced);
	} else {
		remark("%s: is not pinned as long as that is so; for good: larder unpin %s", path, path);
	}
	place_free(&place);
	free(path);
	return result;
}

/* All files of the stack.  Returns the first result that is not good. */
static int job_map(struct job *job, const struct pin_roots *roots)
{
	char name[PINNED_NAMES_MAX];
	int first = LARDER_DONE;

	for (size_t i = 0; i < roots->number; i++) {
		const struct pin_root *root = &roots->root[i];
		size_t at = 0;

		if (root->again || root->volume != job->volume->target_number)
			continue;
		job->mounted = true;
		while (pinned_names_next(root->names, &at, name)) {
			int result = map_file(job, root, name);

			first = first ? first : result;
		}
	}
	ranges_join(&job->pins);
	ranges_join(&job->written);
	job->pieces = job->pins.number;
	job->length = ranges_length(&job->pins);
	return first;
}

/* ------------------------------------------------------------------ what the kernel takes */

static unsigned others_pins(const char *list)
{
	struct ranges pins;
	unsigned pinning;

	class_rules(class_pins(list, &pins), &pinning);
	ranges_free(&pins);
	return pinning;
}

/* No more pieces than the list takes, with little in between. */
static int fit_rules(struct job *job, const char *live)
{
	unsigned stored = others_pins(job->stack.class), others = others_pins(live), room;
	char gaps_text[SIZE_TEXT], text[SIZE_TEXT];
	uint64_t gaps;

	others = others > stored ? others : stored;
	room = others < CLASS_PINS_MAX ? CLASS_PINS_MAX - others : 0;
	if (!room)
		return complain(LARDER_FAILED, "%s: class: %u rules of the list pin already, and it takes no more; larder volume set %s class=...",
				job->stack.name, others, job->volume->name);
	gaps = ranges_close(&job->pins, room);
	if (gaps <= job->length / PIN_GAPS_DIVISOR)
		return LARDER_DONE;
	return complain(LARDER_FAILED,
			"%s: what is to be pinned lies in %zu pieces of the volume, and its class list has room for %u; nothing was changed: to pin what is "
			"in between, too, would take %s beside %s; defragment the files (e4defrag, xfs_fsr, btrfs filesystem defragment) or copy each into one "
			"piece, pin fewer, or use a rule by size or metadata in the option class",
			job->stack.name, job->pieces, room, size_text(gaps_text, gaps), size_text(text, job->length));
}

/* As much as these rules pin, or less: there is room for it, or there will be no more of it than now. */
static bool pins_no_more(const struct job *job, const char *live)
{
	struct ranges set;
	bool no_more;

	class_pins(live, &set);
	no_more = ranges_length(&job->pins) <= ranges_length(&set);
	ranges_free(&set);
	return no_more;
}

/* All pins, and what is guaranteed to volumes, are to leave reclaim a quarter of the cache. */
static int fit_cache(const struct job *job)
{
	uint64_t size = status_number(job->cache->status, "segments") * status_number(job->cache->status, "segment_sectors"),
		 all = status_number(job->cache->status, "pinned_sectors"), own = status_number(job->volume->status, "pinned_sectors"), guaranteed = 0,
		 room;
	char text[SIZE_TEXT], room_text[SIZE_TEXT], *cache = status_value(job->cache->status, "uuid");

	if (status_is(job->cache->status, "mirror", "all") && status_number(job->cache->status, "mirrored"))
		size /= 2;
	for (size_t i = 0; cache && i < job->list->number; i++)
		if (!job->list->mapped[i].cache && status_is(job->list->mapped[i].status, "cache", cache))
			guaranteed += status_number(job->list->mapped[i].status, "share_min");
	free(cache);
	guaranteed = guaranteed < PIN_PERCENT ? guaranteed : PIN_PERCENT;
	room = size / 100 * (PIN_PERCENT - guaranteed);
	all = all > own ? all - own : 0;
	room = room > all ? room - all : 0;
	if (ranges_length(&job->pins) <= room)
		return LARDER_DONE;
	return complain(LARDER_FAILED,
			"%s: what is to be pinned has %s, and the cache has room for %s: pins and share_min of all its volumes together may have %u %% of it; "
			"nothing was changed; pin less, or let the cache grow",
			job->stack.name, size_text(text, ranges_length(&job->pins)), size_text(room_text, room), PIN_PERCENT);
}

static int check_list(const struct job *job, const char *list)
{
	unsigned pinning;

	if (class_rules(list, &pinning) <= CLASS_RULES_MAX && strlen(list) <= CLASS_TEXT_MAX)
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: class: with the rules that pin the list would have more than %u rules, or %u bytes; shorten it: larder volume set %s class=...",
			job->stack.name, CLASS_RULES_MAX, CLASS_TEXT_MAX, job->volume->name);
}

/* ------------------------------------------------------------------ set, store, load */

static int set_class(const struct job *job, const char *list)
{
	char *message = must_print("set class %s", list);
	int result = mapped_message(job->volume->target, message);

	free(message);
	return result;
}

static int store_names(const struct job *job, struct pin_roots *roots)
{
	int result = LARDER_DONE;

	for (size_t i = 0; !result && i < roots->number; i++)
		if (roots->root[i].changed && roots->root[i].volume == job->volume->target_number)
			result = pin_root_store(&roots->root[i]);
	return result;
}

/* live, stored: the lists as they shall be. */
static int change(struct job *job, struct pin_roots *roots, const char *before, const char *live, const char *stored, bool dry_run)
{
	const char *wanted = strcmp(stored, "default") ? stored : "", *why;
	struct stack was = job->stack;
	int result;

	snprintf(job->stack.class, sizeof(job->stack.class), "%s", wanted);
	why = stack_lacks_room(&job->stack, &was);
	if (why)
		return complain(LARDER_FAILED, "%s: %s with these rules; pin less, or files that lie in fewer pieces", job->stack.name, why);
	result = dry_run ? LARDER_DONE : store_names(job, roots);
	if (!result && strcmp(before, live))
		result = set_class(job, live);
	if (result || dry_run || !strcmp(was.class, wanted))
		return result;
	result = stack_store(&job->stack);
	if (result)
		remark("%s: is so until it is stopped, as its description could not be written", job->stack.name);
	return result;
}

/* Makes the rules those of the files. */
static int job_set(struct job *job, struct pin_roots *roots, bool dry_run)
{
	char *before = status_value(job->volume->status, "class"), *live, *stored;
	int result;

	if (!before)
		return complain(LARDER_FAILED, "%s: its status cannot be understood", job->volume->name);
	result = job->pins.number ? fit_rules(job, before) : LARDER_DONE;
	result = result || pins_no_more(job, before) ? result : fit_cache(job);
	live = class_with_pins(before, &job->pins);
	stored = class_with_pins(job->stack.class, &job->pins);
	result = result ? result : check_list(job, live);
	result = result ? result : check_list(job, stored);
	result = result ? result : change(job, roots, before, live, stored, dry_run);
	free(before);
	free(live);
	free(stored);
	return result;
}

static int read_range(const struct job *job, int fd, void *buffer, struct range range)
{
	uint64_t at = range.first << LARDER_SECTOR_SHIFT, end = range.end << LARDER_SECTOR_SHIFT;

	while (at < end) {
		ssize_t got = pread(fd, buffer, end - at < PIECE_BYTES ? end - at : PIECE_BYTES, (off_t)at);

		if (got <= 0)
			return complain(LARDER_FAILED, "%s: is pinned; reading it to the SSD failed at sector %" PRIu64 ": %s", job->volume->name,
					at >> LARDER_SECTOR_SHIFT, got ? strerror(errno) : "end of device");
		at += (uint64_t)got;
	}
	return LARDER_DONE;
}

static int read_all(const struct job *job)
{
	char *node = mapper_path(job->volume->name);
	int fd = open(node, O_RDONLY | O_DIRECT | O_CLOEXEC), result = LARDER_DONE;
	void *buffer = device_buffer(PIECE_BYTES);

	if (fd < 0)
		result = complain(LARDER_FAILED, "%s: is pinned, but cannot be read to the SSD: %s", node, strerror(errno));
	for (size_t i = 0; !result && i < job->written.number; i++)
		result = read_range(job, fd, buffer, job->written.range[i]);
	if (fd >= 0)
		close(fd);
	free(buffer);
	free(node);
	/* fills wait in memory for more of their kind */
	return result ? result : mapped_message(job->cache->name, "commit");
}

/*
 * Reads what is pinned past the filesystem and its encryption, from the volume: what is on the SSD already is read there, and pinned by that; the rest
 * is filled.  A change of the list makes the kernel forget which blocks are pinned, so this is of all files.
 */
static int job_load(const struct job *job)
{
	uint64_t want = ranges_length(&job->written), have = 0;
	char text[SIZE_TEXT], want_text[SIZE_TEXT];
	int result = LARDER_DONE;

	for (int i = 0; !result && have < want && i < PASSES; i++) {
		result = read_all(job);
		result = result ? result : mapped_refresh(job->volume);
		have = result ? 0 : status_number(job->volume->status, "pinned_sectors");
	}
	if (!result && have < want)
		remark("%s: %s of %s are on the SSD now; the rest follows as it is read", job->stack.name, size_text(text, have), size_text(want_text, want));
	return result;
}

/* What is pinned is a function of all names. */
static int check_names(const struct job *job, const struct pin_roots *roots)
{
	int result = LARDER_DONE;

	for (size_t i = 0; !result && i < roots->number; i++)
		if (roots->root[i].volume == job->volume->target_number)
			result = pin_root_check(&roots->root[i]);
	return result;
}

static int job_change(struct job *job, struct pin_roots *roots, const struct pin_request *request)
{
	int missing, result = check_names(job, roots);
	char text[SIZE_TEXT];

	if (result)
		return result;
	missing = job_map(job, roots);
	if (!job->mounted) {
		remark("%s: no filesystem on it is mounted that could say which files are pinned; its pins stay as they are", job->stack.name);
		return job->quiet ? LARDER_DONE : LARDER_NOT_FOUND;
	}
	result = job_set(job, roots, request->dry_run);
	if (result || request->dry_run)
		return result;
	job->set = true;
	if (!job->files)
		printf("%s: nothing is pinned\n", job->stack.name);
	else
		printf("%s: %zu file%s pinned, %s in %zu piece%s\n", job->stack.name, job->files, job->files == 1 ? "" : "s",
		       size_text(text, job->length), job->pieces, job->pieces == 1 ? "" : "s");
	fflush(stdout);
	return missing;
}

/* ------------------------------------------------------------------ the work */

/* The job of a stack: begun, if it has none. */
static int work_job(struct work *work, const struct found *found, struct job **job)
{
	for (size_t i = 0; i < work->jobs; i++)
		if (!memcmp(work->job[i].stack.uuid, found->stack.uuid, 16)) {
			*job = &work->job[i];
			return LARDER_DONE;
		}
	work->job = must_allocate(realloc(work->job, (work->jobs + 1) * sizeof(*work->job)));
	*job = &work->job[work->jobs++];
	return job_begin(&work->stacks, found, *job);
}

static int work_begin(struct work *work, const struct pin_request *request)
{
	int result;

	*work = (struct work){ .request = request };
	mapped_init(request->dry_run);
	if (!request->dry_run && !request->list)
		turn_take();
	result = stacks_scan(&work->stacks);
	if (result)
		return result;
	pin_roots_find(&work->roots);
	for (size_t i = 0; i < work->roots.number; i++)
		work->roots.root[i].volume = place_volume(&work->roots.root[i]);
	return LARDER_DONE;
}

static int work_do(struct work *work)
{
	int all = work->result;

	for (size_t i = 0; i < work->jobs; i++)
		work->job[i].result = job_change(&work->job[i], &work->roots, work->request);
	if (!work->request->dry_run)
		turn_give(); /* what follows may take long */
	for (size_t i = 0; i < work->jobs; i++) {
		struct job *job = &work->job[i];

		if (job->files && !work->request->no_load && !work->request->dry_run && job->set) {
			int result = job_load(job);

			job->result = job->result ? job->result : result;
		}
		all = all ? all : job->result;
	}
	return all;
}

static int work_end(struct work *work, int result)
{
	for (size_t i = 0; i < work->jobs; i++)
		job_free(&work->job[i]);
	free(work->job);
	pin_roots_free(&work->roots);
	stacks_free(&work->stacks);
	return result;
}

/* ------------------------------------------------------------------ pin, unpin: words */

/* A volume that is no stack's has no description. */
static int refuse_loose(const struct stacks *stacks, const char *path, const struct place *place)
{
	const char *name = "?";
	char *list;
	int result;

	for (size_t i = 0; i < stacks->list.number; i++)
		if (stacks->list.mapped[i].target_number == place->volume)
			name = stacks->list.mapped[i].name;
	list = class_with_pins("default", &place->all);
	result = place->all.number <= CLASS_PINS_MAX ?
			 complain(LARDER_FAILED,
				  "%s: its volume %s belongs to no stack, whose description could keep a pin; until it is stopped: larder volume set %s class=%s", path,
				  name, name, list) :
			 complain(LARDER_FAILED, "%s: its volume %s belongs to no stack, whose description could keep a pin, and it lies in %zu pieces there", path,
				  name, place->all.number);
	free(list);
	return result;
}

/* volume: that the file lies on.  The names are looked for in the filesystems that begin on a volume. */
static int put_name(const struct work *work, const char *path, int fd, dev_t volume)
{
	char name[PATH_MAX];
	struct pin_root *root = pin_root_of(&work->roots, path, name);

	if (!place_is_name(root, name, fd))
		return complain(LARDER_FAILED, "%s: is seen there by a mount of a part of its filesystem; name it below where the whole is mounted", path);
	if (root->volume != volume)
		return complain(LARDER_FAILED, "%s: its filesystem, %s, begins on another device than the volume that the file lies on (a logical volume over several?): "
				"files can be pinned where all of it is on one volume", path, root->point);
	if (!pinned_name_valid(name))
		return complain(LARDER_FAILED, "%s: has control characters in its path", path);
	if (pin_root_check(root))
		return LARDER_FAILED;
	if (pinned_names_have(root->names, name))
		return LARDER_DONE;
	if (!pinned_names_add(root->names, name))
		return complain(LARDER_FAILED, "%s: the paths of all pinned files in %s have more than %d bytes; unpin some", path, root->point, PINNED_NAMES_MAX - 1);
	root->changed = true;
	return LARDER_DONE;
}

static int add_file(struct work *work, const char *word)
{
	char path[PATH_MAX];
	const struct found *found;
	struct place place;
	struct job *job;
	int fd, result;

	place_plain_path(word, path);
	fd = file_open(-1, path);
	result = place_find(path, fd, &place);
	if (result) {
		if (fd >= 0)
			close(fd);
		return result;
	}
	found = found_by_volume(&work->stacks, place.volume);
	result = found ? work_job(work, found, &job) : refuse_loose(&work->stacks, path, &place);
	result = result ? result : put_name(work, path, fd, place.volume);
	close(fd);
	if (!result && place.shared)
		remark("%s: %zu of its extents belong to a snapshot or another file, too: what is written to them goes elsewhere, and is pinned by larder pin "
		       "--refresh",
		       path, place.shared);
	place_free(&place);
	return result;
}

static int drop_file(struct work *work, const char *word)
{
	char path[PATH_MAX], name[PATH_MAX];
	const struct found *found;
	struct pin_root *root;
	struct job *job;

	place_plain_path(word, path);
	root = pin_root_of(&work->roots, path, name);
	if (!root || !pinned_names_have(root->names, name))
		return complain(LARDER_NOT_FOUND, "%s: is not pinned; see larder pin --list", path);
	found = found_by_volume(&work->stacks, root->volume);
	pinned_names_drop(root->names, name);
	root->changed = true;
	if (found)
		return work_job(work, found, &job);
	/* a list that came with a copy of the filesystem pins nothing */
	return work->request->dry_run ? LARDER_DONE : pin_root_store(root);
}

static int run_files(int words, char **word, const struct pin_request *request, int (*take)(struct work *, const char *))
{
	struct work work;
	int result = work_begin(&work, request);

	for (int i = 0; !result && i < words; i++)
		result = take(&work, word[i]);
	return work_end(&work, result ? result : work_do(&work));
}

/* ------------------------------------------------------------------ refresh, list */

/* Has a stack pins of ours: in its description, or in the kernel? */
static bool stack_has_pins(const struct work *work, const struct stack *stack)
{
	const struct mapped *volume = stack_volume(&work->stacks, stack);
	char *live = volume ? status_value(volume->status, "class") : NULL;
	struct ranges stored, set = { 0 };
	bool some;

	class_pins(stack->class, &stored);
	if (live)
		class_pins(live, &set);
	some = stored.number || set.number;
	for (size_t i = 0; volume && i < work->roots.number; i++)
		some |= work->roots.root[i].volume == volume->target_number && *work->roots.root[i].names;
	ranges_free(&stored);
	ranges_free(&set);
	free(live);
	return some;
}

/* Those with these names; without names all that have pins. */
static int each_stack(int words, char **word, struct work *work, int (*visit)(struct work *, const struct found *, bool named, void *), void *data)
{
	const struct found *found;
	int result = LARDER_DONE;

	for (int i = 0; !result && i < words; i++) {
		result = stack_find(&work->stacks, word[i], &found);
		result = result ? result : visit(work, found, true, data);
	}
	for (size_t i = 0; !result && !words && i < work->stacks.number; i++) {
		found = &work->stacks.found[i];
		if (found->whole && found->stack.state == STACK_READY && stack_has_pins(work, &found->stack))
			result = visit(work, found, false, data);
	}
	return result;
}

static int refresh_one(struct work *work, const struct found *found, bool named, void *data)
{
	struct job *job;
	int result;

	(void)data;
	if (!named && !stack_volume(&work->stacks, &found->stack))
		return LARDER_DONE; /* not started: as it is to be, it seems */
	result = work_job(work, found, &job);
	job->quiet = !named;
	if (!result || named)
		return result;
	work->jobs--;
	work->result = result;
	return LARDER_DONE;
}

static int refresh(int words, char **word, const struct pin_request *request)
{
	struct work work;
	int result = work_begin(&work, request);

	result = result ? result : each_stack(words, word, &work, refresh_one, NULL);
	return work_end(&work, result ? result : work_do(&work));
}

static const struct field fields[] = {
	{ "stack", VALUE_TEXT, "Stack", "whose volume the file lies on" },
	{ "state", VALUE_TEXT, "State", "pinned; moved: larder pin --refresh; missing: not there, or cannot be followed; off: the class list was set without pins; unmounted or stopped: has pins, of files that cannot be seen" },
	{ "size", VALUE_SECTORS, "Size", "of the file on disk" },
	{ "in_place", VALUE_SECTORS, "In place", "of this, in sectors that are pinned" },
	{ "extents", VALUE_NUMBER, "Extents", "of the file, as pieces of the volume" },
	{ "extents_in_place", VALUE_NUMBER, "There", "of these, such as are pinned in full" },
	{ "file", VALUE_TEXT, "File", "by path" },
};

static void list_place(const struct report *report, struct row *row, const struct ranges *pins, const struct ranges *now)
{
	uint64_t in_place = 0, length = ranges_length(now);
	size_t there = 0;

	for (size_t i = 0; i < now->number; i++) {
		uint64_t common = ranges_common(pins, now->range[i].first, now->range[i].end);

		in_place += common;
		there += common == now->range[i].end - now->range[i].first;
	}
	report_set(report, row, "size", "%" PRIu64, length);
	report_set(report, row, "in_place", "%" PRIu64, in_place);
	report_set(report, row, "extents", "%zu", now->number);
	report_set(report, row, "extents_in_place", "%zu", there);
	report_set(report, row, "state", "%s", !pins->number ? "off" : in_place == length ? "pinned" : "moved");
}

static void list_root(struct report *report, const struct stack *stack, const struct mapped *volume, const struct pin_root *root, const struct ranges *pins)
{
	char name[PINNED_NAMES_MAX];
	size_t at = 0;

	while (pinned_names_next(root->names, &at, name)) {
		char *path = place_path(root, name);
		struct row row = { 0 };
		struct place place;

		report_set(report, &row, "stack", "%s", stack->name);
		report_set(report, &row, "file", "%s", path);
		if (place_of_name(root, name, &place) || place.volume != volume->target_number)
			report_set(report, &row, "state", "missing");
		else
			list_place(report, &row, pins, &place.all);
		place_free(&place);
		free(path);
		report_add(report, &row);
	}
}

static int list_one(struct work *work, const struct found *found, bool named, void *data)
{
	const struct mapped *volume = stack_volume(&work->stacks, &found->stack);
	char *live = volume ? status_value(volume->status, "class") : NULL;
	struct ranges pins = { 0 };
	bool mounted = false;

	if (live)
		class_pins(live, &pins);
	for (size_t i = 0; volume && i < work->roots.number; i++) {
		const struct pin_root *root = &work->roots.root[i];

		if (root->again || root->volume != volume->target_number)
			continue;
		mounted = true;
		list_root(data, &found->stack, volume, root, &pins);
	}
	if (!mounted && (!named || stack_has_pins(work, &found->stack))) {
		struct row row = { 0 };

		report_set(data, &row, "stack", "%s", found->stack.name);
		report_set(data, &row, "state", "%s", volume ? "unmounted" : "stopped");
		report_add(data, &row);
	}
	ranges_free(&pins);
	free(live);
	return LARDER_DONE;
}

static int list(int words, char **word, const struct pin_request *request)
{
	const struct field *sections[] = { fields };
	const size_t counts[] = { sizeof(fields) / sizeof(fields[0]) };
	struct report *report;
	struct work work;
	int result;

	report = report_new("pins", sections, counts, 1, "stack,state,size,in_place,extents,extents_in_place,file", &request->report, &result);
	if (!report)
		return result;
	result = work_begin(&work, request);
	result = result ? result : each_stack(words, word, &work, list_one, report);
	if (!result)
		result = report_print(report);
	else
		report_discard(report);
	return work_end(&work, result);
}

/* ------------------------------------------------------------------ the verbs */

int stack_pin(int argc, char **argv)
{
	static const char usage[] = "larder pin FILE... [--no-load] [--dry-run] | --refresh [NAME...] [--no-load] [--dry-run] | --list [NAME...] [-o FIELD,...]";
	struct pin_request request = { 0 };
	const struct argument arguments[] = {
		{ "refresh", 'r', ARGUMENT_FLAG, &request.refresh, NULL, "pin files that are pinned where they are now, and read them" },
		{ "list", 'l', ARGUMENT_FLAG, &request.list, NULL, "show what is pinned, and how much of it is where it was" },
		{ "no-load", 0, ARGUMENT_FLAG, &request.no_load, NULL, "do not read them to the SSD: it has what it will be asked for from now on" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the dmsetup commands" },
		REPORT_ARGUMENTS(request.report),
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 0, -1, &first, &result))
		return result;
	if (request.list + request.refresh > 1 || (request.list && (request.no_load || request.dry_run)))
		return complain(LARDER_USAGE, "--list stands alone; usage: %s", usage);
	if (request.list)
		return list(argc - first, argv + first, &request);
	if (request.refresh)
		return refresh(argc - first, argv + first, &request);
	if (first == argc)
		return complain(LARDER_USAGE, "a file is missing; usage: %s", usage);
	return run_files(argc - first, argv + first, &request, add_file);
}

int stack_unpin(int argc, char **argv)
{
	struct pin_request request = { 0 };
	const struct argument arguments[] = {
		{ "no-load", 0, ARGUMENT_FLAG, &request.no_load, NULL, "do not read what stays pinned" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the dmsetup commands" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, "larder unpin FILE... [--no-load] [--dry-run]", arguments, 1, -1, &first, &result))
		return result;
	return run_files(argc - first, argv + first, &request, drop_file);
}
