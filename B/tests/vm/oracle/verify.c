// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads every sector of the region and compares it with the model, which from then on expects just that.  A chunk that cannot be
 * read is read again in smaller pieces, so that each unreadable sector is known.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "oracle.h"

#define CHUNK	(1u << 20)	/* bytes */

struct verify {
	const struct options *o;
	struct model *m;
	struct report *r;
	struct device dev;
	void *buf;
	int lines;
};

static bool right(const struct verify *v, uint32_t sector, const struct found *f)
{
	switch (v->o->after) {
	case AFTER_LOSS:
		return model_loss(v->m, sector, f);
	case AFTER_CRASH:
		return model_crash(v->m, sector, f);
	case AFTER_CLEAN:
		return model_clean(v->m, sector, f);
	default:
		return model_read(v->m, sector, f);
	}
}

static void judge(struct verify *v, uint32_t sector, const void *data)
{
	struct found f = stamp_look(data, v->m->offset + sector, v->m->seed);
	struct sector_state was = v->m->s[sector];

	v->r->sectors++;
	v->r->zeroes += f.kind == FOUND_ZERO;
	v->r->stamped += f.kind == FOUND_STAMP;
	v->r->foreign += f.kind == FOUND_FOREIGN;
	if (right(v, sector, &f))
		return;
	v->m->s[sector] = was;
	v->r->mismatches++;
	if (v->lines++ < 16)
		model_explain(v->m, stderr, sector, &f, v->o->after >= AFTER_CRASH, v->lines == 1);
}

/* bytes: a power of two times the block size. */
static void read_range(struct verify *v, uint32_t sector, uint32_t count)
{
	uint32_t i, half;
	int err = device_read(&v->dev, v->buf, (size_t)count * SECTOR, (v->m->offset + sector) * SECTOR);

	if (!err) {
		for (i = 0; i < count; i++)
			judge(v, sector + i, (char *)v->buf + i * SECTOR);
		return;
	}
	if (count * SECTOR > v->dev.block) {
		half = count / 2 * SECTOR / v->dev.block * v->dev.block / SECTOR;
		if (!half)
			half = v->dev.block / SECTOR;
		read_range(v, sector, half);
		read_range(v, sector + half, count - half);
		return;
	}
	v->r->unreadable += count;
	if (!v->r->first_error)
		v->r->first_error = err;
	if (!v->o->unreadable_ok && v->lines++ < 8)
		fprintf(stderr, "UNREADABLE sector=%llu: %s\n", (unsigned long long)(v->m->offset + sector), strerror(-err));
}

int verify_run(const struct options *o, struct model *m, struct report *r)
{
	struct verify v = { .o = o, .m = m, .r = r };
	double start = now_seconds();
	uint64_t at, n;
	int err = device_open(&v.dev, o->dev, 0);

	if (!err && (m->offset + m->sectors) * SECTOR > v.dev.bytes)
		err = -ERANGE;
	if (!err && posix_memalign(&v.buf, 4096, CHUNK))
		err = -ENOMEM;
	if (err) {
		fprintf(stderr, "oracle: %s: %s\n", o->dev, strerror(-err));
		return 2;
	}
	for (at = 0; at < m->sectors; at += n) {
		n = m->sectors - at < CHUNK / SECTOR ? m->sectors - at : CHUNK / SECTOR;
		read_range(&v, at, n);
	}
	if (o->after != AFTER_NOTHING)
		model_settled(m);
	if (o->after == AFTER_CRASH || o->after == AFTER_LOSS)
		m->rounds++;
	r->seconds = now_seconds() - start;
	free(v.buf);
	device_close(&v.dev);
	return r->mismatches || (r->unreadable && !o->unreadable_ok);
}
