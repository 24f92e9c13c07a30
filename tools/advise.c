// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder advise: how much SSD gives which hit ratio, from what disks are asked for now, or from a trace of it.
 *
 * Nothing of larder need run, or be there: the requests are those that the block layer hands to the devices.  What is kept is in lib/hit_curve.c, so memory does
 * not grow with the time or the traffic.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "advise.h"
#include "clock.h"
#include "device.h"
#include "signals.h"
#include "trace_text.h"
#include "tracefs.h"
#include "verbs.h"

#define DEVICES	 64
#define PAUSE_MS 50 /* between looks at the trace: its ring holds more than disks do in that time */
#define BUFFER	 65536
#define WEEK	 (7 * 86400.0)
#define CUTOFF	 "4M" /* larder's own sequential_cutoff */

/* A device whose requests count: as the kernel traces them, of a whole disk. */
struct watched {
	const char *name;
	dev_t number, disk;
	uint64_t begin, end; /* sectors of the disk */
};

struct advise {
	struct watched watched[DEVICES]; /* none, of a file: all in it */
	unsigned nr_watched;
	struct hit_curve *curve;
	uint64_t requests, lost, bad;
	double first, last; /* times in the trace */
	struct report_options options;
	struct argument_list sizes;
	const char *svg_path;
	FILE *svg;
};

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
	(void)number;
	interrupted = 1;
}

/* ------------------------------------------------------------------ requests */

static void take_request(struct advise *a, const struct trace_request *r)
{
	dev_t disk = makedev(r->major, r->minor);

	if (!a->nr_watched) {
		hit_curve_add(a->curve, (uint32_t)r->major << 20 | r->minor, r->access, r->sector, r->sectors);
	} else {
		unsigned i = 0;

		while (i < a->nr_watched && (a->watched[i].disk != disk || r->sector < a->watched[i].begin || r->sector >= a->watched[i].end))
			i++;
		if (i == a->nr_watched)
			return;
		hit_curve_add(a->curve, i, r->access, r->sector - a->watched[i].begin, r->sectors);
	}
	if (!a->requests++)
		a->first = r->time;
	a->last = r->time;
}

static void take_line(struct advise *a, const char *line)
{
	struct trace_request request = { 0 };
	uint64_t lost = 0;

	switch (trace_line_parse(line, &request, &lost)) {
	case TRACE_REQUEST:
		take_request(a, &request);
		break;
	case TRACE_LOST:
		a->lost = a->lost > UINT64_MAX - lost ? UINT64_MAX : a->lost + lost;
		break;
	case TRACE_BAD:
		a->bad++;
		break;
	case TRACE_OTHER:
		break;
	}
}

/* Text that comes in pieces: the beginning of a line stays for the next one. */
struct lines {
	char text[BUFFER];
	size_t length;
};

/* So many bytes have come behind lines->length. */
static void take_text(struct advise *a, struct lines *lines, size_t got)
{
	char *line = lines->text, *end;

	lines->length += got;
	while ((end = memchr(line, '\n', lines->length - (size_t)(line - lines->text)))) {
		*end = 0;
		take_line(a, line);
		line = end + 1;
	}
	lines->length -= (size_t)(line - lines->text);
	memmove(lines->text, line, lines->length);
	/* no line of a trace is as long as that */
	if (lines->length == sizeof(lines->text) - 1)
		lines->length = 0;
}

/* ------------------------------------------------------------------ a file */

/* 0 or errno */
static int read_text(struct advise *a, int fd)
{
	struct lines *lines = must_allocate(calloc(1, sizeof(*lines)));
	ssize_t got = 0;
	int error;

	while (!interrupted && (got = read(fd, lines->text + lines->length, sizeof(lines->text) - lines->length - 1)) > 0)
		take_text(a, lines, (size_t)got);
	error = got < 0 && !interrupted ? errno : 0;
	lines->text[lines->length] = 0;
	take_line(a, lines->text);
	free(lines);
	return error;
}

static int read_file(struct advise *a, const char *path)
{
	bool standard = !strcmp(path, "-");
	int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), error;

	if (fd < 0)
		return complain(errno == ENOENT ? LARDER_NOT_FOUND : LARDER_FAILED, "%s: %s", path, strerror(errno));
	error = read_text(a, fd);
	if (!standard)
		close(fd);
	if (error)
		return complain(LARDER_FAILED, "%s: %s", path, strerror(error));
	if (a->bad)
		remark("%s: left out %" PRIu64 " requests whose numbers cannot be", path, a->bad);
	if (a->requests)
		return LARDER_DONE;
	return complain(LARDER_FAILED,
			"%s: no request%s in it; --from takes the text of ftrace (event block_bio_queue) or of blkparse (action Q), see larder-advise(8)", path,
			a->nr_watched ? " to these devices" : "");
}

/* "8:16", of a machine that may be another one. */
static bool take_number(struct advise *a, const char *word)
{
	struct watched *w = &a->watched[a->nr_watched];
	unsigned major, minor;
	int length = -1;

	if (!isdigit((unsigned char)*word) || sscanf(word, "%4u:%7u%n", &major, &minor, &length) != 2 || word[length]) {
		complain(LARDER_USAGE, "%s: with --from a device is named by its numbers, as 8:16", word);
		return false;
	}
	*w = (struct watched){ .name = word, .number = makedev(major, minor), .disk = makedev(major, minor), .end = UINT64_MAX };
	a->nr_watched++;
	return true;
}

/* ------------------------------------------------------------------ live */

/* A partition's requests are traced as those of its disk. */
static int find_disk(struct watched *w, uint64_t bytes)
{
	char text[64];
	unsigned major, minor;

	w->disk = w->number;
	w->end = HIT_SECTOR_MAX;
	if (!device_attribute(w->number, "partition", text, sizeof(text)))
		return LARDER_DONE;
	if (!device_attribute(w->number, "../dev", text, sizeof(text)) || sscanf(text, "%u:%u", &major, &minor) != 2)
		return complain(LARDER_FAILED, "%s: sysfs does not say of which disk it is a partition; name the disk", w->name);
	w->disk = makedev(major, minor);
	if (!device_attribute(w->number, "start", text, sizeof(text)) || sscanf(text, "%" SCNu64, &w->begin) != 1)
		return complain(LARDER_FAILED, "%s: sysfs does not say where it begins; name the disk", w->name);
	w->end = w->begin + (bytes >> 9);
	return LARDER_DONE;
}

static int take_device(struct advise *a, const char *path)
{
	struct watched *w = &a->watched[a->nr_watched];
	struct device device;
	int result = device_open(&device, path, DEVICE_READ);

	if (result)
		return result;
	*w = (struct watched){ .name = path, .number = device.number };
	result = device.block ? find_disk(w, device.bytes) : complain(LARDER_USAGE, "%s: is not a block device", path);
	device_close(&device);
	for (unsigned i = 0; !result && i < a->nr_watched; i++) {
		const struct watched *o = &a->watched[i];

		if ((o->disk == w->disk && o->begin < w->end && w->begin < o->end) || device_lies_on(o->number, w->number) ||
		    device_lies_on(w->number, o->number))
			result = complain(LARDER_USAGE, "%s: is, has, or is part of %s: its requests would count twice; name one of them", path, o->name);
	}
	a->nr_watched += !result;
	return result;
}

/* Of the devices' requests, for the kernel. */
static char *make_filter(const struct advise *a)
{
	char *filter = must_print("%s", "");

	for (unsigned i = 0; i < a->nr_watched; i++) {
		const struct watched *w = &a->watched[i];
		char *more = must_print("%s%s(dev == %u && sector >= %" PRIu64 " && sector < %" PRIu64 ")", filter, i ? " || " : "",
					major(w->disk) << 20 | minor(w->disk), w->begin, w->end);

		free(filter);
		filter = more;
	}
	return filter;
}

static void progress(const struct advise *a, double seconds, bool last)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%.0f s: %" PRIu64 " requests%s; Ctrl-C ends it   %s", seconds, a->requests, a->lost ? ", some lost" : "", last ? "\n" : "");
}

/* Until the time is over or a signal comes; then what is on its way. */
static int watch(struct advise *a, const struct tracefs *trace, double seconds)
{
	struct lines *lines = must_allocate(calloc(1, sizeof(*lines)));
	double begin = clock_seconds(), now = begin, shown = begin;
	bool stopped = false;
	ssize_t got = 0;

	while (got >= 0 && !(stopped && !got)) {
		if (!stopped && (interrupted || now - begin >= seconds)) {
			tracefs_stop(trace);
			stopped = true;
		} else if (!stopped && !got) {
			usleep(PAUSE_MS * 1000);
		}
		now = clock_seconds();
		if (now - shown >= 1) {
			progress(a, now - begin, false);
			shown = now;
		}
		got = tracefs_read(trace, lines->text + lines->length, sizeof(lines->text) - lines->length - 1);
		if (got > 0)
			take_text(a, lines, (size_t)got);
	}
	progress(a, now - begin, true);
	free(lines);
	a->first = 0;
	a->last = now - begin;
	return got < 0 ? complain(LARDER_FAILED, "%s/trace_pipe: %s", trace->path, strerror((int)-got)) : LARDER_DONE;
}

static int watch_live(struct advise *a, double seconds)
{
	char *filter = make_filter(a);
	struct tracefs trace;
	int result;

	result = tracefs_begin(&trace, filter);
	free(filter);
	if (result)
		return result;
	result = watch(a, &trace, seconds);
	tracefs_end(&trace);
	if (!result && !a->requests)
		result = complain(LARDER_FAILED, "%s%s: no request was seen in %.0f s; trace it under its ordinary load", a->watched[0].name,
				  a->nr_watched > 1 ? " and others" : "", a->last);
	return result;
}

/* ------------------------------------------------------------------ the verb */

static bool duration_parse(const char *text, double *seconds)
{
	static const struct {
		const char *unit;
		double factor;
	} units[] = { { "", 1 }, { "s", 1 }, { "m", 60 }, { "min", 60 }, { "h", 3600 }, { "d", 86400 } };
	char *end;

	*seconds = strtod(text, &end);
	for (size_t i = 0; end != text && isdigit((unsigned char)*text) && i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(end, units[i].unit)) {
			*seconds *= units[i].factor;
			if (*seconds >= 1 && *seconds <= WEEK)
				return true;
		}
	complain(LARDER_USAGE, "--for: '%s' is not a time from 1s to 7d; write it as 90s, 30m, 1h", text);
	return false;
}

/* Before anything is waited for; a file that is there already stays as it is. */
static int svg_open(struct advise *a)
{
	int fd;

	if (!a->svg_path)
		return LARDER_DONE;
	fd = open(a->svg_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return complain(LARDER_FAILED, "--svg: %s: %s%s", a->svg_path, strerror(errno), errno == EEXIST ? "; name another file" : "");
	a->svg = must_allocate(fdopen(fd, "w"));
	return LARDER_DONE;
}

static int svg_close(struct advise *a, const struct advice_seen *seen)
{
	bool good;

	if (!a->svg)
		return LARDER_DONE;
	if (seen)
		chart_svg(seen, a->svg);
	good = !ferror(a->svg);
	good = !fclose(a->svg) && good;
	if (good && seen)
		return LARDER_DONE;
	unlink(a->svg_path);
	return seen ? complain(LARDER_FAILED, "--svg: %s: cannot be written", a->svg_path) : LARDER_DONE;
}

static char *names(const struct advise *a, const char *from)
{
	char *all = must_print("%s", !from ? "" : strcmp(from, "-") ? from : "stdin");

	for (unsigned i = 0; i < a->nr_watched; i++) {
		char *more = must_print("%s%s%s", all, *all ? " " : "", a->watched[i].name);

		free(all);
		all = more;
	}
	return all;
}

static int show(struct advise *a, const char *from)
{
	struct advice_seen seen = { .curve = a->curve, .seconds = fmax(0, a->last - a->first), .lost = a->lost, .smallest = UINT64_C(1) << 20 };
	int result, drawn;

	hit_curve_totals(a->curve, &seen.totals);
	while ((double)(seen.smallest >> HIT_BLOCK_SHIFT) * seen.totals.rate < FOLLOWED_LEAST)
		seen.smallest *= 2;
	seen.largest = 2 * seen.smallest;
	while (seen.largest >> HIT_BLOCK_SHIFT < seen.totals.working_set)
		seen.largest *= 2;
	seen.what = names(a, from);
	if (a->lost)
		remark("%s: %" PRIu64 " requests are missing: they were lost before they could be read", seen.what, a->lost);
	drawn = svg_close(a, &seen);
	result = advice_show(&seen, &a->options, &a->sizes);
	free(seen.what);
	return result ? result : drawn;
}

static int take_words(struct advise *a, char **words, int number, const char *from)
{
	int result = LARDER_DONE;

	if (number > DEVICES)
		return complain(LARDER_USAGE, "more than %d devices", DEVICES);
	if (!number && !from)
		return complain(LARDER_USAGE, "a DEVICE is missing, or --from FILE; larder advise --help");
	for (int i = 0; !result && i < number; i++)
		result = !from ? take_device(a, words[i]) : take_number(a, words[i]) ? LARDER_DONE : LARDER_USAGE;
	return result;
}

static int options_check(const struct advise *a, const char *from, const char *time, const char *cutoff, double *seconds, struct hit_options *options)
{
	uint64_t bytes;

	*seconds = HUGE_VAL;
	if (time && from)
		return complain(LARDER_USAGE, "--for: a file of --from is read to its end");
	if (time && !duration_parse(time, seconds))
		return LARDER_USAGE;
	if (!size_parse(cutoff, &options->cutoff))
		return complain(LARDER_USAGE, "--cutoff: '%s' is not a size; write it as 4M, 0: no stream goes past the cache", cutoff);
	for (int i = 0; i < a->sizes.number; i++)
		if (!size_parse(a->sizes.value[i], &bytes) || !bytes)
			return complain(LARDER_USAGE, "--size: '%s' is not a size; write it as 480G, 1.92TB", a->sizes.value[i]);
	return LARDER_DONE;
}

int advise(int argc, char **argv)
{
	struct advise a = { .options = { .units = { 'h', true } } };
	struct hit_options options = { .samples = HIT_SAMPLES };
	const char *time_text = NULL, *from = NULL, *cutoff = CUTOFF;
	const struct argument arguments[] = {
		{ "for", 0, ARGUMENT_TEXT, &time_text, "TIME", "how long: 90s, 30m, 1h; default: until interrupted (Ctrl-C)" },
		{ "from", 0, ARGUMENT_TEXT, &from, "FILE", "read a trace instead, of ftrace or blkparse; -: from stdin" },
		{ "size", 0, ARGUMENT_LIST, &a.sizes, "SIZE", "show this size too; may be repeated" },
		{ "cutoff", 0, ARGUMENT_TEXT, &cutoff, "SIZE", "what streams have beyond it goes past the cache (sequential_cutoff); default: " CUTOFF "; 0: off" },
		{ "svg", 0, ARGUMENT_TEXT, &a.svg_path, "FILE", "draw the curve into this new file" },
		REPORT_ARGUMENTS(a.options),
		ARGUMENTS_END
	};
	double seconds;
	int first, result;
	bool go_on;

	if (!arguments_words(argc, argv, "larder advise [--for TIME] [--svg FILE] [-o FIELD,...] [--reportformat json] DEVICE... | --from FILE [MAJOR:MINOR...]",
			     arguments, 0, -1, &first, &result))
		return result;
	result = advice_check(&a.options, &go_on);
	if (!go_on)
		return result;
	result = options_check(&a, from, time_text, cutoff, &seconds, &options);
	if (!result)
		result = take_words(&a, argv + first, argc - first, from);
	if (!result)
		result = svg_open(&a);
	if (result)
		return result;
	signals_catch(signals_that_end, interrupt, (int)SA_RESETHAND, NULL); /* a second one ends us at once; what we leave the next run takes away */
	a.curve = hit_curve_new(&options);
	result = from ? read_file(&a, from) : watch_live(&a, seconds);
	if (result)
		svg_close(&a, NULL);
	else
		result = show(&a, from);
	hit_curve_free(a.curve);
	return result;
}
