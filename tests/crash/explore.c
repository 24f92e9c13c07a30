// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * explore - power cuts at positions of a recording: the states that each may leave are put on simulated disks, started and judged.
 *
 * Exit: 0 all right, 1 a state is wrong, 2 could not run.  stdout: what is wrong; the last line is key=value.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "explore.h"

static void usage(FILE *f)
{
	fputs("usage: explore --recording FILE --disk NAME... --volume LIST... --table NAME=TABLE... [options]\n"
	      "  --recording FILE   what simdisk/recording gave\n"
	      "  --disk NAME        a simulated disk, as in the recording: crash=0, empty, of the same size\n"
	      "  --disk NAME=BYTES --images DIRECTORY   the disks are regular files there: nothing is started, --alone is all that is judged\n"
	      "  --volume LIST      name=DM or path,size=BYTES,seed=N[,offset=BYTES][,backing=DISK,sector=N],pid=N[,pid=N]...: region and seed of the\n"
	      "                     oracle that ran on it, the processes that it ran as; where it is on a disk, when it is drained.\n"
	      "                     Without pid: what --alone leaves is compared with what the stack reads first, and nothing else is known of it\n"
	      "  --table NAME=TABLE a dm device of the stack, in order of starting; the same NAME again: tried where the one before is refused\n"
	      "  --start COMMAND, --stop COMMAND   starts behind the tables what is none of dm, stops it before they go; must succeed\n"
	      "  --evict \"NAME MESSAGE\", --drain \"NAME MESSAGE\"   messages that evict what is cached, write back what is dirty\n"
	      "  --drained KEY      the volumes' status says KEY=0 when that is done\n"
	      "  --check COMMAND    must succeed after the first reads; /tmp/explore.sums has what the marks \"sum ...\" before the cut say\n"
	      "  --alone COMMAND    brings the content to the backings without the stack: must succeed, and give what the stack reads then\n"
	      "  --alone-each N     of each N-th state (default 1)\n"
	      "  --note FILE        gets what is read first of each state; --noted FILE, with --images: these states are tried, and no others, and what\n"
	      "                     --alone leaves must be what was read\n"
	      "  --name NAME        of the workload, for the report\n"
	      "  --seed N           (default 1)\n"
	      "  --states N         about so many (default 1000)\n"
	      "  --each N           states of a position (default 3); of those with up to three open writes all, and of some others\n"
	      "  --complete N       of one of N positions all states, or all extremes, if these are no more than half of the states (default 8; with\n"
	      "                     --images also of all others, if they are no more than a 16th)\n"
	      "  --deep N           each N-th state is also evicted, written back, restarted, cut off again (default 8; 0: none)\n"
	      "  --cuts N           second power cuts, before and after the first read (default 2)\n"
	      "  --begin TEXT, --end TEXT   the marks between which positions are (default \"begin\", \"end\")\n"
	      "  --shard I/N        the I-th (from 0) of N parts\n"
	      "  --only POSITION.KIND[.deep]   this state alone\n"
	      "  --keep FILE        recordings of starts that a second power cut broke go to FILE-POSITION.KIND\n"
	      "  --second POSITION.KIND.SEED   with --only and --keep: this second power cut alone, in the recording that was kept\n"
	      "  --failures N       ends after so many (default 3)\n", f);
}

struct choice {
	const char *recording, *name, *begin, *end, *images, *note, *noted;
	uint64_t seed, states, each, complete, deep, cuts, shard, shards, failures;
	uint64_t only, only_kind;
	bool only_deep;
};

struct walk {
	const struct choice *o;
	struct recording *r;
	const struct stack *s;
	struct tally t;
	uint64_t positions, exhausted, extremes;
	double report;
};


static bool number(const char *s, uint64_t *v, char end)
{
	char *e;

	errno = 0;
	*v = strtoull(s, &e, 0);
	return e != s && *e == end && !errno;
}

/* ------------------------------------------------------------------ the command line */

static int disk_named(const struct recording *r, const char *name)
{
	unsigned int d;

	for (d = 0; d < r->nr_disks; d++)
		if (!strcmp(r->disk[d].name, name))
			return d;
	return -1;
}

static bool parse_volume(struct recording *r, char *list)
{
	struct volume *v = &r->volume[r->nr_volumes];
	uint64_t n, size = 0, seed = 0, offset = 0;
	char *word, *value;

	if (r->nr_volumes++ == MAX_VOLUMES)
		return false;
	v->backing = -1;
	while ((word = strsep(&list, ","))) {
		value = strchr(word, '=');
		if (!value)
			return false;
		*value++ = 0;
		n = 0;
		if (strcmp(word, "name") && strcmp(word, "backing") && !number(value, &n, 0))
			return false;
		if (!strcmp(word, "name"))
			v->name = value;
		else if (!strcmp(word, "backing"))
			v->backing = disk_named(r, value);
		else if (!strcmp(word, "sector"))
			v->backing_sector = n;
		else if (!strcmp(word, "size"))
			size = n;
		else if (!strcmp(word, "seed"))
			seed = n;
		else if (!strcmp(word, "offset"))
			offset = n;
		else if (!strcmp(word, "pid") && v->nr_pids < 16)
			v->pids[v->nr_pids++] = n;
		else
			return false;
	}
	if (!v->name || !size)
		return false;
	if (v->nr_pids)
		model_init(&v->model, seed, offset / SECTOR, size / SECTOR);
	else
		v->model.sectors = size / SECTOR;
	return true;
}

static bool parse_disk(struct recording *r, char *arg)
{
	struct disk *d = &r->disk[r->nr_disks];
	char *bytes = strchr(arg, '=');

	if (bytes)
		*bytes++ = 0;
	if (r->nr_disks == MAX_DISKS || strlen(arg) >= sizeof(d->name) || (bytes && !number(bytes, &d->bytes, 0)))
		return false;
	strcpy(d->name, arg);
	r->nr_disks++;
	return true;
}

static bool parse_table(struct stack *s, char *arg)
{
	char *table = strchr(arg, '=');

	if (!table || s->nr_tables == MAX_TABLES)
		return false;
	*table++ = 0;
	s->table_name[s->nr_tables] = arg;
	s->table[s->nr_tables++] = table;
	return true;
}

static bool parse_only(struct choice *o, char *arg)
{
	char *kind = strchr(arg, '.'), *deep;

	if (!kind)
		return false;
	*kind++ = 0;
	deep = strchr(kind, '.');
	if (deep)
		*deep++ = 0;
	o->only_deep = deep;
	return number(arg, &o->only, 0) && number(kind, &o->only_kind, 0) && o->only;
}

static bool parse_shard(struct choice *o, const char *arg)
{
	const char *of = strchr(arg, '/');

	return of && number(arg, &o->shard, '/') && number(of + 1, &o->shards, 0) && o->shard < o->shards;
}

enum { OPT_RECORDING = 256, OPT_DISK, OPT_VOLUME, OPT_TABLE, OPT_EVICT, OPT_DRAIN, OPT_DRAINED, OPT_CHECK, OPT_START, OPT_STOP, OPT_ALONE, OPT_ALONE_EACH, OPT_IMAGES, OPT_NOTE,
	OPT_NOTED, OPT_NAME, OPT_SEED, OPT_STATES, OPT_EACH, OPT_COMPLETE, OPT_DEEP, OPT_CUTS, OPT_BEGIN, OPT_END, OPT_SHARD, OPT_ONLY, OPT_KEEP, OPT_SECOND, OPT_FAILURES, OPT_HELP };

static const struct option long_options[] = {
	{ "recording", 1, NULL, OPT_RECORDING }, { "disk", 1, NULL, OPT_DISK }, { "volume", 1, NULL, OPT_VOLUME },
	{ "table", 1, NULL, OPT_TABLE }, { "evict", 1, NULL, OPT_EVICT }, { "drain", 1, NULL, OPT_DRAIN },
	{ "drained", 1, NULL, OPT_DRAINED }, { "check", 1, NULL, OPT_CHECK }, { "name", 1, NULL, OPT_NAME }, { "seed", 1, NULL, OPT_SEED },
	{ "states", 1, NULL, OPT_STATES }, { "each", 1, NULL, OPT_EACH }, { "deep", 1, NULL, OPT_DEEP }, { "cuts", 1, NULL, OPT_CUTS },
	{ "shard", 1, NULL, OPT_SHARD }, { "complete", 1, NULL, OPT_COMPLETE }, { "note", 1, NULL, OPT_NOTE }, { "noted", 1, NULL, OPT_NOTED },
	{ "begin", 1, NULL, OPT_BEGIN }, { "end", 1, NULL, OPT_END }, { "only", 1, NULL, OPT_ONLY }, { "keep", 1, NULL, OPT_KEEP },
	{ "second", 1, NULL, OPT_SECOND }, { "failures", 1, NULL, OPT_FAILURES },
	{ "start", 1, NULL, OPT_START }, { "stop", 1, NULL, OPT_STOP }, { "alone", 1, NULL, OPT_ALONE },
	{ "alone-each", 1, NULL, OPT_ALONE_EACH }, { "images", 1, NULL, OPT_IMAGES }, { "help", 0, NULL, OPT_HELP }, { 0 },
};

static bool parse_number(struct choice *o, int opt, const char *arg)
{
	switch (opt) {
	case OPT_SEED:
		return number(arg, &o->seed, 0);
	case OPT_STATES:
		return number(arg, &o->states, 0) && o->states;
	case OPT_EACH:
		return number(arg, &o->each, 0) && o->each;
	case OPT_COMPLETE:
		return number(arg, &o->complete, 0) && o->complete;
	case OPT_DEEP:
		return number(arg, &o->deep, 0);
	case OPT_CUTS:
		return number(arg, &o->cuts, 0) && o->cuts;
	default:
		return number(arg, &o->failures, 0) && o->failures;
	}
}

static bool parse_option(struct choice *o, struct recording *r, struct stack *s, int opt, char *arg)
{
	switch (opt) {
	case OPT_RECORDING:
		o->recording = arg;
		return true;
	case OPT_DISK:
		return parse_disk(r, arg);
	case OPT_IMAGES:
		o->images = arg;
		return true;
	case OPT_NOTE:
		o->note = arg;
		return true;
	case OPT_NOTED:
		o->noted = arg;
		return true;
	case OPT_VOLUME:
		return parse_volume(r, arg);
	case OPT_TABLE:
		return parse_table(s, arg);
	case OPT_EVICT:
		s->evict[s->nr_evict] = arg;
		return strchr(arg, ' ') && s->nr_evict++ < MAX_MESSAGES - 1;
	case OPT_DRAIN:
		s->drain[s->nr_drain] = arg;
		return strchr(arg, ' ') && s->nr_drain++ < MAX_MESSAGES - 1;
	case OPT_DRAINED:
		s->drained = arg;
		return true;
	case OPT_BEGIN:
		o->begin = arg;
		return true;
	case OPT_END:
		o->end = arg;
		return true;
	case OPT_SECOND:
		s->second = arg;
		return true;
	case OPT_CHECK:
		s->check = arg;
		return true;
	case OPT_START:
		s->start = arg;
		return true;
	case OPT_STOP:
		s->stop = arg;
		return true;
	case OPT_ALONE:
		s->alone = arg;
		return true;
	case OPT_ALONE_EACH:
		return number(arg, &s->alone_each, 0) && s->alone_each;
	case OPT_KEEP:
		s->keep = arg;
		return true;
	case OPT_NAME:
		o->name = arg;
		return true;
	case OPT_SHARD:
		return parse_shard(o, arg);
	case OPT_ONLY:
		return parse_only(o, arg);
	case '?':
		return false;
	default:
		return parse_number(o, opt, arg);
	}
}

/* ------------------------------------------------------------------ positions */

/* Goes there; what is durable is on the disks, saved. */
static int go(struct walk *w, uint64_t position)
{
	int err = recording_advance(w->r, position);

	/* the state before is taken back first */
	if (!err && w->positions++)
		err = disks_restore(w->r);
	return err ? err : disks_write_due(w->r, true);
}

static bool try_state(struct walk *w, uint64_t kind, bool deep)
{
	const struct choice *o = w->o;

	if (judge(w->r, w->s, o->seed, kind, deep ? o->cuts : 0, &w->t))
		return true;
	w->t.failed++;
	printf("FAILED workload=%s seed=%llu position=%llu kind=%llu: --only %llu.%llu%s%s%s\n", o->name, (unsigned long long)o->seed,
	       (unsigned long long)w->r->position, (unsigned long long)kind, (unsigned long long)w->r->position,
	       (unsigned long long)kind, deep ? ".deep" : "", *w->t.second ? " --second " : "", w->t.second);
	recording_describe(w->r, stdout, w->r->position);
	state_describe(w->r, stdout, o->seed, kind);
	fflush(stdout);
	return false;
}

static void try_position(struct walk *w, uint64_t each, uint64_t complete)
{
	struct rng rng = { .state = w->o->seed * 0x9e3779b97f4a7c15ull + w->r->position };
	static struct kinds k;
	unsigned int i;

	state_kinds(w->r, w->o->seed, each < MAX_KINDS ? each : MAX_KINDS, complete, &rng, &k);
	for (i = 0; i < k.nr && w->t.failed < w->o->failures; i++)
		try_state(w, k.kind[i], w->o->deep && w->t.states % w->o->deep == 0);
	w->exhausted += i == k.nr && k.exhausted;
	w->extremes += i == k.nr && k.extremes;
}

/*
 * Evenly over [from, to], each somewhere in its part.  Consecutive ones that are no different are one.  As some have fewer states than
 * others there are more parts than are needed, and whenever there have been states enough so far some are left out.
 */
static int walk(struct walk *w, uint64_t from, uint64_t to)
{
	const struct choice *o = w->o;
	uint64_t n = 0, p, each, parts, k, a, b, complete, mine = 0;
	struct rng rng = { .state = o->seed };
	int err;

	for (p = from; p <= to; p++)
		n += recording_matters(w->r, p);
	each = o->states > n * o->each ? (o->states + n - 1) / n : o->each;
	parts = (o->states * 2 + each - 1) / each;
	parts = parts < n ? parts : n;
	for (k = 0; k < parts && w->t.failed < o->failures; k++) {
		a = from + (to - from + 1) * k / parts;
		b = from + (to - from + 1) * (k + 1) / parts;
		p = b > a ? a + rng_below(&rng, b - a) : a;
		while (p + 1 < b && !recording_matters(w->r, p))
			p++;
		complete = o->states / o->shards / 2;
		if (rng_below(&rng, o->complete))
			complete = o->images ? complete / 8 : 0;
		if (k % o->shards != o->shard)
			continue;
		mine++;
		if (p < w->r->position || w->t.states >= (mine * o->states + parts - 1) / parts)
			continue;
		err = go(w, p);
		if (err)
			return err;
		try_position(w, each, complete);
		if (now_seconds() - w->report > 20) {
			w->report = now_seconds();
			fprintf(stderr, "explore: %s: position %llu of %llu, %llu states, %llu wrong\n", o->name,
				(unsigned long long)p, (unsigned long long)to, (unsigned long long)w->t.states,
				(unsigned long long)w->t.failed);
		}
	}
	return 0;
}

static int walk_noted(struct walk *w)
{
	const struct choice *o = w->o;
	uint64_t position, kind;
	int err = 0;

	while (!err && w->t.failed < o->failures && judge_noted(w->r, w->s->noted, &position, &kind)) {
		if (o->only && (position != o->only || kind != o->only_kind))
			continue;
		if (!w->positions || position != w->r->position)
			err = go(w, position);
		if (!err)
			try_state(w, kind, false);
	}
	return err;
}

/* The files that states are noted in, or were. */
static bool open_notes(const struct choice *o, struct stack *s)
{
	const char *path = o->note ? o->note : o->noted;
	FILE *f = path ? fopen(path, o->note ? "w" : "r") : NULL;

	*(o->note ? &s->note : &s->noted) = f;
	if (path && !f)
		fprintf(stderr, "explore: %s: %s\n", path, strerror(errno));
	return !path || f;
}

int main(int argc, char **argv)
{
	static struct disk disks[MAX_DISKS];
	static struct volume volumes[MAX_VOLUMES];
	struct choice o = { .name = "?", .begin = "begin", .end = "end", .seed = 1, .states = 1000, .each = 3, .complete = 8, .deep = 8, .cuts = 2, .shards = 1, .failures = 3 };
	struct recording r = { .disk = disks, .volume = volumes };
	struct stack s = { .alone_each = 1 };
	struct walk w = { .o = &o, .r = &r, .s = &s };
	double start = now_seconds();
	uint64_t from, to;
	int opt, err;

	while ((opt = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (opt == OPT_HELP) {
			usage(stdout);
			return 0;
		}
		if (!parse_option(&o, &r, &s, opt, optarg)) {
			fprintf(stderr, "explore: bad option or value: %s\n", optarg ? optarg : argv[optind - 1]);
			return 2;
		}
	}
	if (!o.recording || !r.nr_disks || !(s.nr_tables || s.start || (o.images && s.alone)) || (o.noted && (o.note || !o.images)) ||
	    optind != argc) {
		usage(stderr);
		return 2;
	}
	if (!open_notes(&o, &s) || recording_load(&r, o.recording) || judge_init(&r))
		return 2;
	if (o.images && disks_in(&r, o.images)) {
		fprintf(stderr, "explore: %s: the images cannot be made: %s\n", o.images, strerror(errno));
		return 2;
	}
	from = recording_find(&r, o.begin) + 1;
	to = recording_find(&r, o.end);
	to = to ? to : r.nr;
	w.report = start;
	if (o.noted)
		err = walk_noted(&w);
	else if (o.only)
		err = go(&w, o.only) || (try_state(&w, o.only_kind, o.only_deep), 0);
	else
		err = walk(&w, from, to);
	if (!o.images)
		control("record size=0");
	if (s.note && fclose(s.note))
		err = -errno;
	printf("explore workload=%s result=%s states=%llu again=%llu alone=%llu wrong=%llu positions=%llu exhausted=%llu "
	       "extremes=%llu entries=%llu seconds=%.0f put=%.0f start=%.0f read=%.0f stop=%.0f\n", o.name, err ? "failed" : w.t.failed ? "wrong" : "ok",
	       (unsigned long long)w.t.states, (unsigned long long)w.t.again, (unsigned long long)w.t.alone,
	       (unsigned long long)w.t.failed, (unsigned long long)w.positions, (unsigned long long)w.exhausted,
	       (unsigned long long)w.extremes, (unsigned long long)r.nr, now_seconds() - start, w.t.put, w.t.start, w.t.read, w.t.stop);
	recording_free(&r);
	return err ? 2 : w.t.failed > 0;
}
