// SPDX-License-Identifier: GPL-2.0-or-later
/* The model of content; see model.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

const char *const op_name[NR_OPS] = { "read", "write", "fua", "flush", "discard", "zeroes" };

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "oracle: out of memory\n");
		exit(2);
	}
	return p;
}

void model_init(struct model *m, uint64_t seed, uint64_t offset, uint64_t sectors)
{
	memset(m, 0, sizeof(*m));
	m->seed = seed;
	m->offset = offset;
	m->sectors = sectors;
	m->s = must(calloc(sectors, sizeof(*m->s)));
	m->history = must(calloc(HISTORY, sizeof(*m->history)));
	m->pending_room = 4096;
	m->pending = must(calloc(m->pending_room, sizeof(*m->pending)));
}

void model_free(struct model *m)
{
	free(m->s);
	free(m->history);
	free(m->pending);
}

static struct op_record *record(const struct model *m, uint32_t version)
{
	return &m->history[version % HISTORY];
}

uint32_t model_issue(struct model *m, enum op_kind kind, uint32_t first, uint32_t count)
{
	uint32_t v = ++m->version, i;
	struct sector_state *s;

	*record(m, v) = (struct op_record) {
		.version = v, .kind = kind, .first = first, .count = count, .issued = ++m->event,
	};
	if (kind == OP_READ || kind == OP_FLUSH)
		return v;
	for (i = first; i < first + count; i++) {
		s = &m->s[i];
		s->last = v;
		s->hi = v;
		if (kind == OP_ZEROES || kind == OP_DISCARD)
			s->zero = v;
		if (kind == OP_DISCARD) {
			s->discard = v;
			s->lo = 0;
			s->durable = 0;
		}
	}
	return v;
}

static void secure(struct model *m, uint32_t version, uint32_t first, uint32_t count)
{
	struct sector_state *s;
	uint32_t i;

	for (i = first; i < first + count; i++) {
		s = &m->s[i];
		if (version > s->discard && version > s->durable)
			s->durable = version;
	}
}

/* Keeps [pending_first, pending_next) at the same place modulo the room. */
static void push_pending(struct model *m, const struct op_record *r)
{
	struct pending *more;
	uint64_t i;

	if (m->pending_next - m->pending_first == m->pending_room) {
		more = must(calloc(m->pending_room * 2, sizeof(*more)));
		for (i = m->pending_first; i < m->pending_next; i++)
			more[i % (m->pending_room * 2)] = m->pending[i % m->pending_room];
		free(m->pending);
		m->pending = more;
		m->pending_room *= 2;
	}
	m->pending[m->pending_next++ % m->pending_room] = (struct pending) { r->version, r->first, r->count };
}

/* The record of an operation in flight is never overwritten: far fewer than HISTORY are. */
void model_end(struct model *m, uint32_t version, int error)
{
	struct op_record *r = record(m, version);
	uint32_t i;

	r->ended = ++m->event;
	r->error = error;
	if (error || r->kind == OP_READ || r->kind == OP_FLUSH || r->kind == OP_DISCARD)
		return;
	for (i = r->first; i < r->first + r->count; i++)
		m->s[i].lo = version;
	if (r->kind == OP_FUA)
		secure(m, version, r->first, r->count);
	else
		push_pending(m, r);
}

uint64_t model_flush_mark(const struct model *m)
{
	return m->pending_next;
}

void model_flushed(struct model *m, uint64_t mark)
{
	struct pending *p;

	for (; m->pending_first < mark; m->pending_first++) {
		p = &m->pending[m->pending_first % m->pending_room];
		secure(m, p->version, p->first, p->count);
	}
}

/* ------------------------------------------------------------------ judging */

static bool in_set(const struct model *m, const struct sector_state *s, uint32_t lo, uint32_t hi, const struct found *f)
{
	if (f->kind == FOUND_STAMP && lo <= f->version && f->version <= hi)
		return true;
	if (f->kind == FOUND_ZERO && lo <= s->zero && s->zero <= hi)
		return true;
	return m->unknown && !lo;	/* never written for sure: whatever was there before the first run */
}

/* Foreign content has no version: the set stays as it is. */
static void narrow(struct sector_state *s, const struct found *f)
{
	if (f->kind == FOUND_FOREIGN)
		return;
	s->lo = s->hi = f->kind == FOUND_STAMP ? f->version : s->zero;
}

static void settle(struct sector_state *s, const struct found *f)
{
	if (f->kind == FOUND_FOREIGN) {
		*s = (struct sector_state) { 0 };
		return;
	}
	narrow(s, f);
	if (f->kind == FOUND_STAMP)
		s->zero = 0;	/* no longer possible: lo > 0 */
	s->durable = s->last = s->lo;
	s->discard = 0;
}

bool model_read(struct model *m, uint32_t sector, const struct found *f)
{
	struct sector_state *s = &m->s[sector];

	if (!in_set(m, s, s->lo, s->hi, f))
		return false;
	if (s->lo != s->hi)
		narrow(s, f);
	return true;
}

bool model_crash(struct model *m, uint32_t sector, const struct found *f)
{
	struct sector_state *s = &m->s[sector];

	if (!in_set(m, s, s->durable, s->last, f))
		return false;
	settle(s, f);
	return true;
}

bool model_loss(struct model *m, uint32_t sector, const struct found *f)
{
	struct sector_state *s = &m->s[sector];

	/* of the operations that made zeroes only the newest is remembered: before it there were zeroes, too, at the very beginning */
	if (f->kind != FOUND_ZERO && !in_set(m, s, 0, s->last, f))
		return false;
	settle(s, f);
	return true;
}

bool model_clean(struct model *m, uint32_t sector, const struct found *f)
{
	struct sector_state *s = &m->s[sector];

	if (!in_set(m, s, s->lo, s->hi, f))
		return false;
	settle(s, f);
	return true;
}

void model_settled(struct model *m)
{
	m->pending_first = m->pending_next;
}

/* ------------------------------------------------------------------ stamps */

/*
 * A sector is 64 words: magic, device sector, seed, version, then a sequence that depends on all of them.  Every byte is checked;
 * a sector of one version with a piece of another does not pass.
 */
static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t body(uint64_t sector, uint32_t version, uint64_t seed)
{
	return mix(sector * 0x9e3779b97f4a7c15ull + mix(version + mix(seed)));
}

void stamp_fill(void *buf, uint64_t device_sector, uint32_t version, uint64_t seed)
{
	uint64_t *w = buf, h = body(device_sector, version, seed);
	int i;

	w[0] = STAMP_MAGIC;
	w[1] = device_sector;
	w[2] = seed;
	w[3] = version;
	for (i = 4; i < 64; i++)
		w[i] = h += 0x9e3779b97f4a7c15ull;
}

struct found stamp_look(const void *buf, uint64_t device_sector, uint64_t seed)
{
	const uint64_t *w = buf;
	struct found f = { .kind = FOUND_FOREIGN, .magic = w[0], .sector = w[1], .seed = w[2], .raw_version = w[3] };
	uint64_t h, bad = 0;
	int i;

	if (!w[0]) {
		for (i = 0; i < 64; i++)
			bad |= w[i];
		if (!bad)
			f.kind = FOUND_ZERO;
		return f;
	}
	h = body(w[1], w[3], w[2]);
	for (i = 4; i < 64; i++)
		bad |= w[i] ^ (h += 0x9e3779b97f4a7c15ull);
	f.torn = w[0] == STAMP_MAGIC && bad;
	if (w[0] == STAMP_MAGIC && w[1] == device_sector && w[2] == seed && !bad && w[3] <= UINT32_MAX && w[3]) {
		f.kind = FOUND_STAMP;
		f.version = w[3];
	}
	return f;
}

/* ------------------------------------------------------------------ explaining */

static void print_found(FILE *f, const struct found *v)
{
	switch (v->kind) {
	case FOUND_ZERO:
		fprintf(f, "zeroes");
		break;
	case FOUND_STAMP:
		fprintf(f, "version=%u", v->version);
		break;
	default:
		if (v->magic == STAMP_MAGIC)
			fprintf(f, "%s stamp: sector=%llu version=%u seed=%llu", v->torn ? "torn" : "foreign",
				(unsigned long long)v->sector, v->raw_version, (unsigned long long)v->seed);
		else
			fprintf(f, "no stamp: words %016llx %016llx", (unsigned long long)v->magic, (unsigned long long)v->sector);
	}
}

void model_explain(const struct model *m, FILE *f, uint32_t sector, const struct found *found, bool crash, bool history)
{
	const struct sector_state *s = &m->s[sector];
	uint32_t lo = crash ? s->durable : s->lo, hi = crash ? s->last : s->hi, i, v;
	const struct op_record *r;

	fprintf(f, "MISMATCH sector=%llu region_sector=%u expected=[%u,%u]%s found: ", (unsigned long long)(m->offset + sector),
		sector, lo, hi, lo <= s->zero && s->zero <= hi ? " or zeroes" : "");
	print_found(f, found);
	fprintf(f, "\n");
	if (!history)
		return;
	fprintf(f, "  durable=%u last=%u live=[%u,%u] zero=%u discard=%u newest_version=%u\n", s->durable, s->last, s->lo, s->hi,
		s->zero, s->discard, m->version);
	for (i = HISTORY; i; i--) {
		v = m->version - i + 1;
		r = record(m, v);
		if (i > m->version || r->version != v || r->kind == OP_READ)
			continue;
		if (r->kind == OP_FLUSH && i > 64)
			continue;
		if (r->kind != OP_FLUSH && (sector < r->first || sector >= r->first + r->count))
			continue;
		fprintf(f, "  %-7s version=%u region_sectors=[%u,%u) issued=%u ended=%u error=%d\n", op_name[r->kind], r->version,
			r->first, r->first + r->count, r->issued, r->ended, r->error);
	}
}
