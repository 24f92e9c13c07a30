// SPDX-License-Identifier: GPL-2.0-only
/*
 * Service times of a hard disk: one arm (seek curve, rotation), a queue of reads served nearest first, a write cache of merged
 * extents that is drained when the arm is idle, when it fills up, or for a flush, and one read-ahead segment.
 * Everything but init and free runs under sim_disk.lock.
 *
 * The arm is idle, or busy until media_busy: with a read or an uncached write (cur), or draining the write cache (cur == NULL).
 * A flush waits until everything older is on the medium; commands that come meanwhile are held behind it.
 */
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "simdisk.h"

#define SEEK_TAB_BITS	16

/* Write cache: an extent of sectors [s, e).  No two overlap or touch. */
struct extent {
	struct rb_node rb;
	u64 s, e;
};

static u64 sec_ns(struct sim_disk *sd, u64 n)
{
	return div64_u64(n * sd->sec_num, sd->sec_den);
}

/* Time from now until the head is over sector s; *seek: the arm's part of it. */
static u64 pos_cost(struct sim_disk *sd, u64 now, u64 s, u64 *seek)
{
	u64 t0 = div64_u64(sd->head, sd->spt), t1, off, want, at, d;

	t1 = div64_u64_rem(s, sd->spt, &off);
	d = t1 > t0 ? t1 - t0 : t0 - t1;
	*seek = sd->seek_tab[min(d, sd->ntracks) >> sd->seek_shift];
	want = sec_ns(sd, off);
	div64_u64_rem(now + *seek, sd->rev_ns, &at);
	/* a sector just reached (rounding) still counts */
	if (want + sd->rev_ns / 2000 >= at)
		d = want > at ? want - at : 0;
	else
		d = want + sd->rev_ns - at;
	return *seek + d;
}

/* Where read-ahead has got to: the head streams on over the track. */
static u64 la_end(struct sim_disk *sd, u64 now)
{
	u64 e = sd->la_e;

	if (sd->la_live && now > sd->la_t)
		e = min(e + div64_u64((now - sd->la_t) * sd->sec_den, sd->sec_num), sd->la_max);
	return e;
}

/* ------------------------------------------------------------------ write cache */

/* The first extent that ends behind s. */
static struct extent *wc_find(struct sim_disk *sd, u64 s)
{
	struct rb_node *n = sd->wc.rb_node;
	struct extent *x, *best = NULL;

	while (n) {
		x = rb_entry(n, struct extent, rb);
		if (x->e > s) {
			best = x;
			n = n->rb_left;
		} else {
			n = n->rb_right;
		}
	}
	return best;
}

static struct extent *wc_next(struct extent *x)
{
	struct rb_node *n = rb_next(&x->rb);

	return n ? rb_entry(n, struct extent, rb) : NULL;
}

static void wc_del(struct sim_disk *sd, struct extent *x)
{
	rb_erase(&x->rb, &sd->wc);
	sd->wc_n--;
	sd->wc_bytes -= (x->e - x->s) << 9;
	kfree(x);
}

/* False: no memory. */
static bool wc_insert(struct sim_disk *sd, u64 s, u64 e)
{
	struct rb_node **p = &sd->wc.rb_node, *parent = NULL;
	struct extent *x = kmalloc(sizeof(*x), GFP_ATOMIC), *y;

	if (!x)
		return false;
	while ((y = wc_find(sd, s ? s - 1 : 0)) && y->s <= e) {	/* swallows what overlaps or touches */
		s = min(s, y->s);
		e = max(e, y->e);
		wc_del(sd, y);
	}
	x->s = s;
	x->e = e;
	while (*p) {
		parent = *p;
		p = s < rb_entry(parent, struct extent, rb)->s ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&x->rb, parent, p);
	rb_insert_color(&x->rb, &sd->wc);
	sd->wc_n++;
	sd->wc_bytes += (e - s) << 9;
	return true;
}

/* An empty cache takes any command, whatever its size. */
static bool wc_room(struct sim_disk *sd, struct sim_cmd *c)
{
	return !sd->wc_n ||
		(sd->wc_n < sd->p.wc_ext && sd->wc_bytes + ((c->e - c->s) << 9) <= sd->p.wc_kb << 10);
}

/* ------------------------------------------------------------------ the arm */

/* No medium involved. */
static void bus_only(struct sim_disk *sd, struct sim_cmd *c, u64 now)
{
	u64 t = max(now + sd->p.cmd_ns * sd->p.scale, sd->ctrl_free);

	if (c->fast)
		sd->ctrl_free = t + sd->p.discard_ns * sd->p.scale;
	else
		sd->ctrl_free = t + sim_xfer_ns(sd, (c->e - c->s) << 9, sd->p.bus_mbs);
	sim_promise(sd, c, sd->ctrl_free);
}

/* The arm starts at t for sectors [s, e), after pos ns of positioning. */
static void begin(struct sim_disk *sd, u64 t, struct sim_cmd *c, u64 s, u64 e, u64 pos)
{
	sd->la_e = la_end(sd, t);
	sd->la_live = false;
	sd->cur = c;
	sd->cur_s = s;
	sd->cur_e = e;
	sd->media_start = t;
	sd->media_busy = t + pos + sec_ns(sd, e - s);
	sd->st.media_ops++;
	sd->st.seek_ns += pos;
	sd->st.media_ns += sd->media_busy - t;
	sd->last_was_wc = !c;
}

static void start_read(struct sim_disk *sd, u64 t)
{
	struct sim_cmd *c, *best = NULL;
	u64 cost, bcost = SIM_NEVER, seek, le = la_end(sd, t), s = 0;
	bool stream = false;

	c = list_first_entry(&sd->rq, struct sim_cmd, list);
	if (t > c->arrive && t - c->arrive > sd->p.starve_ns * sd->p.scale) {
		best = c;
		bcost = pos_cost(sd, t, c->s, &seek);
		s = c->s;
	} else {
		list_for_each_entry(c, &sd->rq, list) {
			u64 from = c->s;
			bool str = sd->la_live && le < sd->la_max && c->s >= sd->la_s &&
				c->s <= le + 64 && c->e > le;

			if (str) {	/* the rest of a read-ahead hit */
				cost = c->s > le ? sec_ns(sd, c->s - le) : 0;
				from = max(c->s, le);
			} else {
				cost = pos_cost(sd, t, c->s, &seek);
			}
			if (cost < bcost) {
				bcost = cost;
				best = c;
				s = from;
				stream = str;
			}
		}
	}
	list_del_init(&best->list);
	if (!stream)
		sd->la_s = sd->la_e = best->s;	/* one read-ahead segment only */
	sd->la_live &= stream;
	begin(sd, t, best, s, best->e, bcost);
}

/* Writes up to 1 MiB of the cheapest of the next wc_scan extents. */
static void start_drain(struct sim_disk *sd, u64 t)
{
	struct extent *x = wc_find(sd, sd->head), *best = NULL;
	u64 cost, bcost = SIM_NEVER, seek, i, s, e;

	for (i = 0; i < min_t(u64, max_t(u64, sd->p.wc_scan, 1), sd->wc_n); i++) {
		if (!x)
			x = rb_entry(rb_first(&sd->wc), struct extent, rb);
		cost = pos_cost(sd, t, x->s, &seek);
		if (cost < bcost) {
			bcost = cost;
			best = x;
		}
		x = wc_next(x);
	}
	s = best->s;
	e = min(best->e, s + 2048);
	if (e == best->e) {
		wc_del(sd, best);
	} else {
		best->s = e;
		sd->wc_bytes -= (e - s) << 9;
	}
	begin(sd, t, NULL, s, e, bcost);
}

static void accept(struct sim_disk *sd, struct sim_cmd *c, u64 now)
{
	struct extent *x;

	if (sd->flush) {
		list_add_tail(&c->list, &sd->held);
	} else if (c->flush) {
		sd->flush = c;
	} else if (c->fast) {
		bus_only(sd, c, now);
	} else if (c->write && sd->p.wce) {
		if (list_empty(&sd->wwait) && wc_room(sd, c) && wc_insert(sd, c->s, c->e))
			bus_only(sd, c, now);
		else
			list_add_tail(&c->list, &sd->wwait);
	} else {
		x = c->write ? NULL : wc_find(sd, c->s);
		if (!c->write && ((x && x->s <= c->s && x->e >= c->e) ||
				  (c->s >= sd->la_s && c->e <= la_end(sd, now) && sd->la_e > sd->la_s))) {
			sd->st.hits++;
			sd->last_read = now;
			bus_only(sd, c, now);
			return;
		}
		list_add_tail(&c->list, &sd->rq);
	}
}

/* The arm has finished what it was doing, at t. */
static void finish(struct sim_disk *sd, u64 t)
{
	struct sim_cmd *c = sd->cur, *n;

	sd->media_busy = 0;
	sd->head = sd->cur_e;
	sd->cur = NULL;
	if (c && !c->write) {
		sd->la_e = sd->cur_e;
		/* as much is kept behind the head as it reads ahead: what a stream has left behind is forgotten */
		sd->la_s = max(sd->la_s, sd->cur_e - min(sd->cur_e, sd->p.la_kb * 2));
		sd->la_t = t;
		sd->la_max = min(sd->cur_e + sd->p.la_kb * 2, sd->nsect);
		sd->la_live = true;
		sd->last_read = t;
	}
	if (c) {
		sim_promise(sd, c, t + sd->p.cmd_ns * sd->p.scale);
		return;
	}
	list_for_each_entry_safe(c, n, &sd->wwait, list) {
		if (!wc_room(sd, c) || !wc_insert(sd, c->s, c->e))
			break;
		list_del_init(&c->list);
		bus_only(sd, c, t);
	}
}

/* Everything older than the flush is on the medium, at t. */
static void finish_flush(struct sim_disk *sd, u64 t)
{
	struct sim_cmd *c = sd->flush;

	t = max(t, sd->last_done) + sd->p.flush_ns * sd->p.scale;
	sd->flush = NULL;
	sd->ctrl_free = t;
	sim_promise(sd, c, t);
	while (!sd->flush && !list_empty(&sd->held)) {
		c = list_first_entry(&sd->held, struct sim_cmd, list);
		list_del_init(&c->list);
		accept(sd, c, t);
	}
}

/* Does the arm drain the write cache next, rather than read? */
static bool drain_next(struct sim_disk *sd, u64 t, bool reads)
{
	bool high = !list_empty(&sd->wwait) || sd->wc_n > sd->p.wc_ext / 2 ||
		sd->wc_bytes > sd->p.wc_kb << 9;

	return sd->wc_n && (sd->flush || (high && !(reads && sd->last_was_wc)) ||
			    (!reads && t >= sd->last_read + sd->p.wc_idle_ns * sd->p.scale));
}

/* Brings the drive up to now; media_busy = 0 means that the arm is idle. */
void sim_hdd_advance(struct sim_disk *sd, u64 now)
{
	bool reads;
	u64 t;

	for (;;) {
		t = now;
		if (sd->media_busy) {
			if (sd->media_busy > now)
				return;
			t = sd->media_busy;
			finish(sd, t);
		}
		if (sd->flush && list_empty(&sd->rq) && list_empty(&sd->wwait) && !sd->wc_n)
			finish_flush(sd, t);
		reads = !list_empty(&sd->rq);
		if (drain_next(sd, t, reads))
			start_drain(sd, t);
		else if (reads)
			start_read(sd, t);
		else
			return;
	}
}

void sim_hdd_submit(struct sim_disk *sd, struct sim_cmd *c, u64 now)
{
	sim_hdd_advance(sd, now);
	if (c->write && !c->fast)
		sim_account_write(sd, c);
	accept(sd, c, now);
	sim_hdd_advance(sd, now);
}

/* When the arm next needs sim_hdd_advance(), ns; or SIM_NEVER. */
u64 sim_hdd_next(struct sim_disk *sd, u64 now)
{
	if (sd->media_busy)
		return sd->media_busy;
	if (sd->wc_n)
		return max(now, sd->last_read + sd->p.wc_idle_ns * sd->p.scale);
	return SIM_NEVER;
}

void sim_hdd_reset(struct sim_disk *sd, struct list_head *cmds)
{
	struct rb_node *n;

	while ((n = rb_first(&sd->wc)))
		wc_del(sd, rb_entry(n, struct extent, rb));
	list_splice_tail_init(&sd->rq, cmds);
	list_splice_tail_init(&sd->wwait, cmds);
	list_splice_tail_init(&sd->held, cmds);
	if (sd->flush)
		list_add_tail(&sd->flush->list, cmds);
	if (sd->cur)
		list_add_tail(&sd->cur->list, cmds);
	sd->flush = NULL;
	sd->cur = NULL;
	sd->media_busy = 0;
	sd->head = 0;
	sd->la_live = false;
	sd->la_s = sd->la_e = 0;
}

/* Sleeps.  -ENOMEM, -EINVAL. */
int sim_hdd_init(struct sim_disk *sd)
{
	struct sim_params *p = &sd->p;
	u64 d, n;

	if (!p->rpm || !p->hdd_mbs)
		return -EINVAL;
	sd->rev_ns = div64_u64(60000000000ull, p->rpm) * p->scale;
	sd->spt = div64_u64(p->hdd_mbs * 1000000 / 512 * 60, p->rpm);
	if (!sd->spt || !sd->rev_ns)
		return -EINVAL;
	sd->sec_num = sd->rev_ns;
	sd->sec_den = sd->spt;
	sd->ntracks = div64_u64(sd->nsect, sd->spt) + 1;
	while (sd->ntracks >> sd->seek_shift >> SEEK_TAB_BITS)
		sd->seek_shift++;
	n = sd->ntracks >> sd->seek_shift;
	sd->seek_tab = vzalloc((n + 1) * sizeof(u64));
	if (!sd->seek_tab)
		return -ENOMEM;
	for (d = 1; d <= n; d++) {
		u64 frac = div64_u64(d << 32, n);	/* of the whole stroke, 32 bits behind the point */

		sd->seek_tab[d] = p->scale * (p->seek_a + ((p->seek_b * int_sqrt(frac)) >> 16) +
					      ((p->seek_c * (frac >> 8)) >> 24));
	}
	return 0;
}

/* Nothing is in flight. */
void sim_hdd_free(struct sim_disk *sd)
{
	struct rb_node *n;

	while ((n = rb_first(&sd->wc)))
		wc_del(sd, rb_entry(n, struct extent, rb));
	vfree(sd->seek_tab);
}
