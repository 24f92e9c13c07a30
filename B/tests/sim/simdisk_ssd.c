// SPDX-License-Identifier: GPL-2.0-only
/*
 * Service times of an SSD: a command and bus stage that serves one command at a time, channels that read in parallel, and a
 * medium that programs pages behind a buffer.  Writes that continue one of a few open streams cost their pages; others cost
 * rnd_pct of them (the flash's own garbage collection).  Everything here runs under sim_disk.lock and is a pure function of what
 * was submitted before, and when.
 */
#include <linux/hash.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include "simdisk.h"

/* Does this write, of pages [p, q), continue stream st?  Sets *n to the pages it newly uses, *late for a late piece behind endp. */
static bool continues(struct sim_disk *sd, struct sim_stream *st, u64 s, u64 p, u64 q, u64 *n, bool *late)
{
	*late = false;
	if (!st->used)
		return false;
	if (s == st->end_s && (s % SIM_PG_SECT)) {	/* appends inside the last, partly filled page */
		*n = q - st->endp + (st->flushgen == sd->flushgen ? 0 : 1);
		return true;
	}
	if (p >= st->endp && p - st->endp <= 16)
		return true;
	if (q <= st->endp && st->endp - p <= 32) {
		u32 m = (u32)(((1ull << (q - p)) - 1) << (st->endp - q));

		if (!(st->map & m)) {
			st->map |= m;
			*late = true;
			return true;
		}
	}
	return false;
}

/* Returns the pages that the write of sectors [s, e) newly uses; *seq: it continues an open stream. */
static u64 classify_write(struct sim_disk *sd, u64 s, u64 e, bool *seq)
{
	u64 p = s / SIM_PG_SECT, q = DIV_ROUND_UP(e, SIM_PG_SECT), n = q - p, i, ahead;
	struct sim_stream *st = &sd->str[0], *lru = st;
	u32 pages = q - p >= 32 ? ~0u : (1u << (q - p)) - 1;
	bool late;

	sd->clock++;
	*seq = false;
	for (i = 0; i < sd->p.streams; i++) {
		st = &sd->str[i];
		*seq = continues(sd, st, s, p, q, &n, &late);
		if (*seq)
			break;
		if (st->used < lru->used)
			lru = st;
	}
	if (*seq && late) {
		st->used = sd->clock;
		return n;
	}
	if (*seq) {
		ahead = q - st->endp;		/* pages newly behind endp */
		st->map = ahead >= 32 ? 0 : st->map << ahead;
		st->map |= pages;
	} else {
		st = lru;
		st->map = pages;
	}
	st->endp = q;
	st->end_s = e;
	st->flushgen = sd->flushgen;
	st->used = sd->clock;
	return n;
}

/* Returns the cost of the write in 1/100 of a page. */
static u64 account(struct sim_disk *sd, struct sim_cmd *c)
{
	u64 n, rnd, cost;
	bool seq;

	n = classify_write(sd, c->s, c->e, &seq);
	if ((c->s | c->e) % SIM_PG_SECT)
		sd->st.subpage++;
	cost = n * 100;
	if (!seq) {
		sd->st.nonseq++;
		rnd = min(n, sd->p.rnd_kb / 4);
		cost += rnd * (sd->p.rnd_pct ? sd->p.rnd_pct - 100 : 0);
	}
	sd->st.media_bytes += cost * 4096 / 100;
	return cost;
}

/* For the models that have no flash: the statistics only. */
void sim_account_write(struct sim_disk *sd, struct sim_cmd *c)
{
	account(sd, c);
}

static void submit_flush(struct sim_disk *sd, struct sim_cmd *c, u64 now)
{
	u64 t = max(now, sd->ctrl_free);

	if (sd->p.excl)		/* a non-queued command: drains, then blocks */
		t = max(t, sd->last_done);
	if (!sd->p.plp)
		t = max(t, sd->media_free);
	t += (sd->dirty ? sd->p.flush_ns : sd->p.flush_clean_ns) * sd->p.scale;
	sd->dirty = false;
	sd->flushgen++;
	if (sd->p.excl)
		sd->ctrl_free = t;
	sim_promise(sd, c, t);
}

/* start: the command is decoded.  Returns the end of the last channel's work. */
static u64 read_pages(struct sim_disk *sd, struct sim_cmd *c, u64 now, u64 start, u64 end)
{
	u64 first = c->s / SIM_PG_SECT, last = DIV_ROUND_UP(c->e, SIM_PG_SECT), i;
	u64 rd = sd->p.read_ns * sd->p.scale, pg = sim_xfer_ns(sd, 4096, sd->p.bus_mbs);

	if (sd->media_free > now)
		rd += div_u64(rd * sd->p.rw_pct, 100);
	for (i = first; i < last; i++) {
		u64 *ch = &sd->ch_free[hash_64(i, 32) % sd->p.channels];

		start += pg;
		*ch = max(*ch, start) + rd;
		sd->st.media_ns += rd;
		end = max(end, *ch);
	}
	return end;
}

static u64 program_pages(struct sim_disk *sd, struct sim_cmd *c, u64 end)
{
	u64 n = div_u64(account(sd, c) * sd->page_ns, 100);

	sd->st.media_ns += n;
	sd->media_free = max(sd->media_free, end) + n;
	sd->dirty = true;
	end += sd->p.wlat_ns * sd->p.scale;
	if (sd->media_free > sd->buf_ns)
		end = max(end, sd->media_free - sd->buf_ns);
	if (c->fua && !sd->p.plp)
		end = max(end, sd->media_free) + sd->p.fua_ns * sd->p.scale;
	return end;
}

void sim_ssd_submit(struct sim_disk *sd, struct sim_cmd *c, u64 now)
{
	u64 t, end;

	if (c->flush) {
		submit_flush(sd, c, now);
		return;
	}
	t = max(now, sd->ctrl_free) + sd->p.cmd_ns * sd->p.scale;
	if (c->fast) {
		sd->ctrl_free = t;
		sd->dirty = true;
		sim_promise(sd, c, t + sd->p.discard_ns * sd->p.scale);
		return;
	}
	sd->ctrl_free = t + sim_xfer_ns(sd, (c->e - c->s) << 9, sd->p.bus_mbs);
	end = c->write ? program_pages(sd, c, sd->ctrl_free) : read_pages(sd, c, now, t, sd->ctrl_free);
	sim_promise(sd, c, end);
}

/* After a power cut: nothing is busy. */
void sim_ssd_reset(struct sim_disk *sd)
{
	memset(sd->ch_free, 0, sizeof(sd->ch_free));
	memset(sd->str, 0, sizeof(sd->str));
	sd->media_free = 0;
	sd->dirty = false;
}
