// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes operations: up to qd in flight, none of which overlaps another unless both are reads.  Reads are checked when they end.
 * Discard and write-zeroes are system calls that wait; what is in flight goes on meanwhile.
 */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "oracle.h"

extern char **environ;

struct slot {
	struct iocb cb;
	void *buf;
	enum op_kind kind;
	uint32_t version, first, count;	/* sectors of the region */
	uint64_t mark;			/* flush */
	bool busy;
};

struct load {
	const struct options *o;
	struct model *m;
	struct report *r;
	struct device dev;
	struct journal *journal;
	struct rng rng;
	struct slot slots[MAX_QD];
	unsigned int inflight;
	uint32_t cursor;		/* where the newest operation ended */
	uint32_t align;			/* sectors */
	unsigned int weights;
	pid_t control;
	uint64_t next_control;
	int mismatch_lines;
	bool failed, stop;
};

uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	return rng_next(r) % n;
}

double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* ------------------------------------------------------------------ choosing */

static enum op_kind choose_kind(struct load *l)
{
	unsigned int x = rng_below(&l->rng, l->weights), k;

	for (k = 0; x >= l->o->mix[k]; k++)
		x -= l->o->mix[k];
	return k;
}

/* Sectors, a multiple of the alignment. */
static uint32_t choose_count(struct load *l)
{
	unsigned int x = rng_below(&l->rng, 100), k;
	uint32_t lo = 0, hi, n;

	for (k = 0; k < l->o->nr_sizes - 1 && x >= l->o->sizes[k].percent; k++) {
		x -= l->o->sizes[k].percent;
		lo = l->o->sizes[k].bytes / SECTOR;
	}
	hi = l->o->sizes[k].bytes / SECTOR;
	n = (lo + rng_below(&l->rng, hi - lo) + l->align) / l->align * l->align;
	if (!lo && rng_below(&l->rng, 2))	/* half of the small ones: a page */
		n = 8;
	if (n > l->m->sectors)
		n = l->m->sectors;
	return n < l->align ? l->align : n;
}

/* Half of them anywhere, a quarter in a hot sixteenth, a quarter where the last one ended; most at 4 KiB borders. */
static uint32_t choose_first(struct load *l, uint32_t count)
{
	uint32_t room = l->m->sectors - count + 1, first;

	switch (rng_below(&l->rng, 4)) {
	case 0:
		first = l->m->sectors / 3 + rng_below(&l->rng, l->m->sectors / 16 + 1);
		break;
	case 1:
		first = l->cursor;
		break;
	default:
		first = rng_below(&l->rng, room);
	}
	if (rng_below(&l->rng, 4))
		first -= first % 8;
	if (first >= room)
		first = rng_below(&l->rng, room);
	return first - first % l->align;
}

static bool overlaps(const struct load *l, enum op_kind kind, uint32_t first, uint32_t count)
{
	unsigned int i;

	for (i = 0; i < l->o->qd; i++) {
		const struct slot *s = &l->slots[i];

		if (s->busy && s->kind != OP_FLUSH && !(kind == OP_READ && s->kind == OP_READ) &&
		    first < s->first + s->count && s->first < first + count)
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------ ends */

static void note_error(struct load *l, int error)
{
	l->r->errors++;
	if (!l->r->first_error)
		l->r->first_error = error;
	if (l->o->errors_ok)
		return;
	l->stop = true;
	if (!l->o->until_error)
		l->failed = true;
}

static void check_read(struct load *l, const struct slot *s)
{
	struct found f;
	uint32_t i;

	for (i = 0; i < s->count; i++) {
		f = stamp_look((char *)s->buf + i * SECTOR, l->m->offset + s->first + i, l->m->seed);
		if (model_read(l->m, s->first + i, &f))
			continue;
		l->r->mismatches++;
		l->failed = l->stop = true;
		if (l->mismatch_lines++ < 16)
			model_explain(l->m, stderr, s->first + i, &f, false, l->mismatch_lines == 1);
	}
}

static void end_op(struct load *l, struct slot *s, int error)
{
	model_end(l->m, s->version, error);
	journal_end(l->journal, s->version, error);
	if (error) {
		note_error(l, error);
	} else if (s->kind == OP_READ) {
		check_read(l, s);
	} else if (s->kind == OP_FLUSH) {
		model_flushed(l->m, s->mark);
		journal_flushed(l->journal, s->mark);
	}
	if (l->o->journal_at_once && journal_write(l->journal))
		l->failed = l->stop = true;
	s->busy = false;
	l->inflight--;
}

static int reap(struct load *l, int min)
{
	struct completion c[64];
	int n = device_reap(&l->dev, c, min, 64), i;

	for (i = 0; i < n; i++)
		end_op(l, &l->slots[c[i].tag], c[i].error);
	return n < 0 ? n : 0;
}

/* ------------------------------------------------------------------ issue */

static struct slot *free_slot(struct load *l)
{
	unsigned int i;

	for (i = 0; i < l->o->qd; i++)
		if (!l->slots[i].busy)
			return &l->slots[i];
	return NULL;
}

/* Returns a negative errno only if the load cannot go on. */
static int issue(struct load *l, struct slot *s)
{
	uint64_t at = (l->m->offset + s->first) * SECTOR, bytes = (uint64_t)s->count * SECTOR;
	bool write = s->kind == OP_WRITE || s->kind == OP_FUA;
	uint32_t i;
	int err;

	s->mark = model_flush_mark(l->m);
	s->version = model_issue(l->m, s->kind, s->first, s->count);
	journal_issue(l->journal, s->version, s->kind, s->first, s->count);
	err = journal_write(l->journal);
	if (err)
		return err;
	s->busy = true;
	l->inflight++;
	l->r->count[s->kind]++;
	if (write) {
		for (i = 0; i < s->count; i++)
			stamp_fill((char *)s->buf + i * SECTOR, l->m->offset + s->first + i, s->version, l->m->seed);
		l->r->bytes_written += bytes;
	}
	switch (s->kind) {
	case OP_FLUSH:
		err = device_submit_flush(&l->dev, &s->cb);
		break;
	case OP_DISCARD:
		err = device_discard(&l->dev, at, bytes);
		if (err == -EOPNOTSUPP) {
			l->r->unsupported++;
			err = 0;
		}
		end_op(l, s, err);
		return 0;
	case OP_ZEROES:
		end_op(l, s, device_zero(&l->dev, at, bytes));
		return 0;
	default:
		if (s->kind == OP_READ)
			l->r->bytes_read += bytes;
		err = device_submit_rw(&l->dev, &s->cb, write, s->kind == OP_FUA, s->buf, bytes, at);
	}
	if (err)
		end_op(l, s, err);
	return 0;
}

static int one_op(struct load *l)
{
	enum op_kind kind = choose_kind(l);
	uint32_t count = 0, first = 0;
	struct slot *s;
	int err, tries;

	while (!(s = free_slot(l))) {
		err = reap(l, 1);
		if (err)
			return err;
	}
	if (kind != OP_FLUSH) {
		count = choose_count(l);
		for (tries = 0;; tries++) {
			first = choose_first(l, count);
			if (!overlaps(l, kind, first, count))
				break;
			err = tries < 3 ? 0 : reap(l, 1);
			if (err)
				return err;
		}
		l->cursor = first + count;
	}
	s->kind = kind;
	s->first = first;
	s->count = count;
	return issue(l, s);
}

/* ------------------------------------------------------------------ control commands */

static void reap_control(struct load *l, bool wait)
{
	int status;
	pid_t pid;

	if (!l->control)
		return;
	do {
		pid = waitpid(l->control, &status, wait ? 0 : WNOHANG);
	} while (pid < 0 && errno == EINTR);
	if (!pid)
		return;
	l->control = 0;
	if (pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status))
		return;
	l->r->controls_failed++;
	fprintf(stderr, "oracle: control command failed, wait status %#x\n", status);
	if (!l->o->control_may_fail)
		l->failed = l->stop = true;
}

/* One at a time: while one runs, the next is due but waits. */
static void control(struct load *l, uint64_t done)
{
	char number[24], line[40];
	char *argv[] = { "sh", "-c", (char *)l->o->control, "control", number, NULL };
	int n;

	reap_control(l, false);
	if (!l->o->every || done < l->next_control || l->control)
		return;
	l->next_control = done + 1 + rng_below(&l->rng, 2 * l->o->every);
	l->r->controls++;
	snprintf(number, sizeof(number), "%llu", (unsigned long long)l->r->controls);
	if (l->o->control_fd >= 0) {
		n = snprintf(line, sizeof(line), "ctl %llu\n", (unsigned long long)done);
		if (write(l->o->control_fd, line, n) != n)
			l->r->controls_failed++;
	}
	if (l->o->control && posix_spawn(&l->control, "/bin/sh", NULL, NULL, argv, environ)) {
		l->control = 0;
		l->r->controls_failed++;
	}
}

/* ------------------------------------------------------------------ the run */

static int prepare(struct load *l)
{
	unsigned int i;
	int err;

	err = device_open(&l->dev, l->o->dev, l->o->qd);
	if (err) {
		fprintf(stderr, "oracle: %s: %s\n", l->o->dev, strerror(-err));
		return err;
	}
	l->align = (l->o->align > l->dev.block ? l->o->align : l->dev.block) / SECTOR;
	if ((l->m->offset + l->m->sectors) * SECTOR > l->dev.bytes || l->m->offset % l->align || l->m->sectors % l->align) {
		fprintf(stderr, "oracle: %s: the region does not fit the device (%llu bytes, alignment %u)\n", l->o->dev,
			(unsigned long long)l->dev.bytes, l->align * SECTOR);
		return -ERANGE;
	}
	for (i = 0; i < l->o->qd; i++) {
		l->slots[i].cb.aio_data = i;
		if (posix_memalign(&l->slots[i].buf, 4096, MAX_BYTES))
			return -ENOMEM;
	}
	for (i = 0; i < NR_OPS; i++)
		l->weights += l->o->mix[i];
	/* another run of the same state makes other operations */
	l->rng.state = l->o->seed * 0x9e3779b97f4a7c15ull + l->m->version;
	l->next_control = l->o->every ? rng_below(&l->rng, 2 * l->o->every) : 0;
	return l->o->journal ? journal_open(&l->journal, l->o->journal) : 0;
}

int load_run(const struct options *o, struct model *m, struct report *r)
{
	struct load *l = calloc(1, sizeof(*l));
	double start = now_seconds();
	uint64_t done;
	unsigned int i;
	int err;

	if (!l)
		return 2;
	l->o = o;
	l->m = m;
	l->r = r;
	signal(SIGPIPE, SIG_IGN);
	err = prepare(l);
	if (err)
		return 2;
	for (done = 0; !l->stop && (!o->ops || done < o->ops); done++) {
		if (o->every)
			control(l, done);
		if (o->seconds && !(done % 64) && now_seconds() - start >= o->seconds)
			break;
		err = one_op(l);
		if (err)
			break;
	}
	while (!err && l->inflight)
		err = reap(l, 1);
	reap_control(l, true);
	r->seconds = now_seconds() - start;
	if (!err)
		err = journal_close(l->journal);
	if (err)
		fprintf(stderr, "oracle: cannot go on: %s\n", strerror(-err));
	for (i = 0; i < o->qd; i++)
		free(l->slots[i].buf);
	device_close(&l->dev);
	i = err ? 2 : l->failed;
	free(l);
	return i;
}
