// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A recording, replayed up to a position.
 *
 * A change is durable when it completes, if it is FUA, and when a flush completes that was submitted behind its completion; an earlier change
 * loses the sectors of a later one that is durable.  Whatever else was submitted is open: it has arrived or not.  (The same model as
 * tests/sim/simdisk_store.c.)
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "explore.h"

static int read_all(struct recording *r, const char *path)
{
	size_t room = 1 << 20;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	r->bytes = NULL;
	r->size = 0;
	do {
		if (!r->bytes || r->size == room) {
			room *= 2;
			r->bytes = realloc(r->bytes, room);
			if (!r->bytes)
				exit(2);
		}
		n = read(fd, r->bytes + r->size, room - r->size);
		if (n > 0)
			r->size += n;
	} while (n > 0);
	close(fd);
	return n < 0 ? -errno : 0;
}

int recording_load(struct recording *r, const char *path)
{
	const struct entry *e;
	int err = read_all(r, path);
	size_t at;

	if (err) {
		fprintf(stderr, "explore: %s: %s\n", path, strerror(-err));
		return err;
	}
	r->nr = 0;
	for (at = 0; at + sizeof(*e) <= r->size; at += e->size) {
		e = (struct entry *)(r->bytes + at);
		if (e->size < sizeof(*e) || e->size % 8 || e->size > r->size - at) {
			fprintf(stderr, "explore: %s: no recording\n", path);
			return -EINVAL;
		}
		r->nr++;
	}
	r->entry = calloc(r->nr + 1, sizeof(*r->entry));
	if (!r->entry)
		exit(2);
	for (at = r->nr = 0; at + sizeof(*e) <= r->size; at += e->size) {
		e = (struct entry *)(r->bytes + at);
		r->entry[r->nr++] = e;
	}
	r->position = 0;
	return 0;
}

void recording_save(const struct recording *r, const char *path)
{
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(r->bytes, 1, r->size, f) != r->size)
		perror(path);
	if (f)
		fclose(f);
}

void change_free(struct change *c)
{
	free(c->mask);
	c->mask = NULL;
}

void recording_rewind(struct recording *r)
{
	unsigned int d, i;

	for (d = 0; d < r->nr_disks; d++) {
		for (i = 0; i < r->disk[d].nr_open; i++)
			change_free(&r->disk[d].open[i]);
		for (i = 0; i < r->disk[d].nr_due; i++)
			change_free(&r->disk[d].due[i]);
		r->disk[d].nr_open = r->disk[d].nr_due = 0;
	}
	memset(r->flush_at, 0, sizeof(r->flush_at));
	r->position = 0;
}

void recording_free(struct recording *r)
{
	recording_rewind(r);
	free(r->entry);
	free(r->bytes);
	r->entry = NULL;
	r->bytes = NULL;
}

const void *entry_data(const struct entry *e)
{
	return e->op == DISK_WRITE ? e + 1 : NULL;
}

static int find_disk(const struct recording *r, const struct entry *e)
{
	unsigned int d;

	for (d = 0; d < r->nr_disks; d++)
		if (!strncmp(r->disk[d].name, e->disk, sizeof(e->disk)))
			return d;
	return -1;
}

/* Sectors that are durable in a later change are lost to c.  True: it has some left. */
static bool supersede(struct change *c, const struct entry *by)
{
	uint64_t from = c->e->sector > by->sector ? c->e->sector : by->sector, s;
	uint64_t a = c->e->sector + c->e->sectors, b = by->sector + by->sectors, to = a < b ? a : b;
	uint32_t i;

	if (from >= to)
		return true;
	if (!c->mask) {
		c->mask = malloc(c->e->sectors);
		if (!c->mask)
			exit(2);
		memset(c->mask, 1, c->e->sectors);
	}
	for (s = from; s < to; s++)
		c->mask[s - c->e->sector] = 0;
	for (i = 0; i < c->e->sectors; i++)
		if (c->mask[i])
			return true;
	return false;
}

static void remove_open(struct disk *d, unsigned int i)
{
	d->nr_open--;
	memmove(&d->open[i], &d->open[i + 1], (d->nr_open - i) * sizeof(d->open[0]));
}

/* Open change i is durable.  Returns how many before it have gone with it. */
static unsigned int harden(struct disk *d, unsigned int i)
{
	struct change c = d->open[i];
	unsigned int k, kept = 0;

	if (d->nr_due == d->room_due) {
		d->room_due = d->room_due ? d->room_due * 2 : 256;
		d->due = realloc(d->due, d->room_due * sizeof(*d->due));
		if (!d->due)
			exit(2);
	}
	d->due[d->nr_due++] = c;
	remove_open(d, i);
	for (k = 0; k < i; k++) {
		if (supersede(&d->open[k], c.e))
			d->open[kept++] = d->open[k];
		else
			change_free(&d->open[k]);
	}
	memmove(&d->open[kept], &d->open[i], (d->nr_open - i) * sizeof(d->open[0]));
	d->nr_open -= i - kept;
	return i - kept;
}

static void flushed(struct disk *d, uint64_t at)
{
	unsigned int i = 0;

	while (i < d->nr_open) {
		if (d->open[i].ended && d->open[i].ended <= at)
			i -= harden(d, i);
		else
			i++;
	}
}

static int submitted(struct recording *r, unsigned int d, const struct entry *e)
{
	struct disk *disk = &r->disk[d];
	unsigned int i;

	if (e->op == DISK_FLUSH) {
		for (i = 0; i < 64 && r->flush_at[d][i]; i++)
			;
		if (i == 64)
			return -E2BIG;
		r->flush_at[d][i] = r->position + 1;
		r->flush_id[d][i] = e->id;
		return 0;
	}
	if (disk->nr_open == MAX_OPEN)
		return -E2BIG;
	disk->open[disk->nr_open++] = (struct change) { .e = e };
	return 0;
}

static void completed(struct recording *r, unsigned int d, const struct entry *e)
{
	struct disk *disk = &r->disk[d];
	unsigned int i;

	for (i = 0; i < 64; i++) {
		if (!r->flush_at[d][i] || r->flush_id[d][i] != e->id)
			continue;
		if (!e->error)
			flushed(disk, r->flush_at[d][i]);
		r->flush_at[d][i] = 0;
		return;
	}
	for (i = 0; i < disk->nr_open; i++) {
		if (disk->open[i].e->id != e->id || e->error)
			continue;
		disk->open[i].ended = r->position + 1;
		if (disk->open[i].e->fua)
			harden(disk, i);
		return;
	}
}

static struct volume *marked_volume(const struct recording *r, const struct entry *e)
{
	unsigned int v, i;

	for (v = 0; v < r->nr_volumes; v++)
		for (i = 0; i < r->volume[v].nr_pids; i++)
			if (r->volume[v].pids[i] == e->id)
				return &r->volume[v];
	return NULL;
}

int recording_advance(struct recording *r, uint64_t position)
{
	const struct entry *e;
	struct volume *v;
	int d, err;

	for (; r->position < position; r->position++) {
		e = r->entry[r->position];
		err = 0;
		if (e->type == ENTRY_MARK) {
			v = marked_volume(r, e);
			if (v)
				err = journal_apply(&v->model, e + 1, e->sectors);
		} else {
			d = find_disk(r, e);
			if (d >= 0 && e->type == ENTRY_SUBMIT)
				err = submitted(r, d, e);
			else if (d >= 0)
				completed(r, d, e);
		}
		if (err) {
			fprintf(stderr, "explore: position %llu: %s\n", (unsigned long long)r->position, strerror(-err));
			return err;
		}
	}
	return 0;
}

bool recording_matters(const struct recording *r, uint64_t position)
{
	const struct entry *e = r->entry[position - 1];

	return e->type != ENTRY_MARK || marked_volume(r, e);
}

uint64_t recording_find(const struct recording *r, const char *text)
{
	uint64_t p;

	for (p = r->nr; p; p--)
		if (r->entry[p - 1]->type == ENTRY_MARK && r->entry[p - 1]->sectors == strlen(text) &&
		    !memcmp(r->entry[p - 1] + 1, text, strlen(text)))
			return p;
	return 0;
}

int recording_texts(const struct recording *r, const char *begin, const char *path)
{
	size_t n = strlen(begin);
	const struct entry *e;
	FILE *f = fopen(path, "w");
	uint64_t p;

	if (!f)
		return -errno;
	for (p = 0; p < r->position; p++) {
		e = r->entry[p];
		if (e->type == ENTRY_MARK && e->sectors > n && !memcmp(e + 1, begin, n))
			fprintf(f, "%.*s\n", (int)(e->sectors - n), (const char *)(e + 1) + n);
	}
	return fclose(f) ? -errno : 0;
}

unsigned int recording_open(const struct recording *r)
{
	unsigned int d, n = 0;

	for (d = 0; d < r->nr_disks; d++)
		n += r->disk[d].nr_open;
	return n;
}

/* The entries around a position. */
void recording_describe(const struct recording *r, FILE *f, uint64_t position)
{
	static const char *const op[] = { "read", "write", "flush", "discard", "zeroes" };
	uint64_t p = position > 12 ? position - 12 : 0;
	const struct entry *e;

	for (; p < r->nr && p < position + 4; p++) {
		e = r->entry[p];
		fprintf(f, "  %s%llu %c %.16s ", p == position ? "---- power cut ----\n  " : "", (unsigned long long)p, e->type,
			e->type == ENTRY_MARK ? "mark" : e->disk);
		if (e->type == ENTRY_SUBMIT)
			fprintf(f, "id=%llu %s sector=%llu count=%u%s\n", (unsigned long long)e->id, op[e->op % 5],
				(unsigned long long)e->sector, e->sectors, e->fua ? " fua" : "");
		else
			fprintf(f, "id=%llu error=%d\n", (unsigned long long)e->id, e->error);
	}
}
