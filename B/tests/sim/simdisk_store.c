// SPDX-License-Identifier: GPL-2.0-only
/*
 * The content of a disk: what a read returns now, and, with crash=1, what a power cut may leave.
 *
 * Current content: a page per 4 KiB, holes read as zeroes; a flat table (prealloc=1 or small disks) or an xarray.  Pages are
 * never freed while the disk lives, but by "save" and "restore", while nobody has it open: readers take no lock.  Data is
 * copied when a command is submitted; only its completion is delayed.
 *
 * crash=1.  A page that differs from the medium has a struct sim_vpage: its durable content, and a list of pieces (struct
 * sim_frag) in order of submission; a piece is what one write, discard or write-zeroes changed in this page.  Invariants, under
 * sim_lock:
 *   - current content = durable content with the pieces applied in order; without pieces there is no vpage;
 *   - a piece belongs to a command in flight (on its chain) or is volatile (on store.complete, in order of completion);
 *   - a piece becomes durable
 *       when its command completes, if that is FUA, or the disk has no volatile cache (wce=0, plp=1);
 *       when a flush completes whose issue came after the completion of its command (done <= flush_mark);
 *     then earlier pieces lose the sectors it covers: they can no longer survive;
 *   - a reset (simdisk_fault.c) takes all volatile pieces at once;
 *   - anything else survives a cut or not, each version on its own (sim_store_settle()): what was in flight as well.
 */
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "simdisk.h"

#define PG_ALL	0xff		/* mask of the sectors of a page */

struct sim_vpage {
	u64 nr;			/* page number */
	u8 *durable;		/* 4 KiB */
	struct list_head frags;	/* in order of submission */
};

struct sim_frag {
	struct list_head order;		/* sim_vpage.frags; empty: every sector was superseded while in flight */
	struct list_head complete;	/* sim_store.complete; empty: in flight */
	struct sim_frag *next;		/* of the same command, in flight */
	struct sim_vpage *vp;
	u64 nr;				/* page number */
	u64 done;			/* number of the completion of its command */
	u64 serial;			/* of the command: order of submission over the disk */
	u8 first, count;		/* sectors of the page that data holds */
	u8 mask;			/* those of them that are not superseded */
	u8 *data;			/* NULL: zeroes */
};

static const gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN;	/* queue_rq() may not sleep; blk-mq tries again */

static u8 sector_mask(u32 first, u32 count)
{
	return ((1u << count) - 1) << first;
}

/* ------------------------------------------------------------------ current content */

static struct page *store_page(struct sim_store *st, u64 nr)
{
	return st->flat ? READ_ONCE(st->flat[nr]) : xa_load(&st->tree, nr);
}

/* Any context.  The page is about to change and is kept, once, for "restore"; its copy takes its place.  NULL: no memory. */
static struct page *store_keep_page(struct sim_store *st, u64 nr)
{
	struct page *fresh = alloc_page(gfp | __GFP_ZERO);
	unsigned long flags;

	if (!fresh)
		return NULL;
	spin_lock_irqsave(&st->saved_lock, flags);
	if (!test_bit(nr, st->changed)) {
		st->saved[nr] = st->flat[nr];
		if (st->saved[nr])
			copy_page(page_address(fresh), page_address(st->saved[nr]));
		WRITE_ONCE(st->flat[nr], fresh);
		__set_bit(nr, st->changed);
		fresh = NULL;
	}
	spin_unlock_irqrestore(&st->saved_lock, flags);
	if (fresh)
		__free_page(fresh);
	return st->flat[nr];
}

/* Any context.  The page, made if it was a hole, to be changed; NULL: no memory. */
static struct page *store_make_page(struct sim_store *st, u64 nr)
{
	struct page *pg = store_page(st, nr), *fresh;
	unsigned long flags;

	if (st->changed && !test_bit(nr, st->changed))
		return store_keep_page(st, nr);
	if (pg)
		return pg;
	fresh = alloc_page(gfp | __GFP_ZERO);
	if (!fresh)
		return NULL;
	if (st->flat) {
		pg = cmpxchg(&st->flat[nr], NULL, fresh);
	} else {
		xa_lock_irqsave(&st->tree, flags);
		pg = __xa_cmpxchg(&st->tree, nr, NULL, fresh, gfp);
		xa_unlock_irqrestore(&st->tree, flags);
	}
	if (!pg)
		return fresh;
	__free_page(fresh);
	return xa_is_err(pg) ? NULL : pg;
}

/* The first page that is not a hole, numbered *nr or later but below end; NULL: none. */
static struct page *store_next_page(struct sim_store *st, u64 *nr, u64 end)
{
	unsigned long i = *nr;
	struct page *pg;

	if (!st->flat) {
		pg = end ? xa_find(&st->tree, &i, end - 1, XA_PRESENT) : NULL;
		*nr = i;
		return pg;
	}
	for (; *nr < end; ++*nr) {
		pg = READ_ONCE(st->flat[*nr]);
		if (pg)
			return pg;
	}
	return NULL;
}

static void read_bytes(struct sim_store *st, u64 pos, u8 *to, u32 len)
{
	while (len) {
		u32 o = offset_in_page(pos), n = min_t(u32, len, PAGE_SIZE - o);
		struct page *pg = store_page(st, pos >> PAGE_SHIFT);

		if (pg)
			memcpy(to, page_address(pg) + o, n);
		else
			memset(to, 0, n);
		pos += n;
		to += n;
		len -= n;
	}
}

static bool write_bytes(struct sim_store *st, u64 pos, const u8 *from, u32 len)
{
	while (len) {
		u32 o = offset_in_page(pos), n = min_t(u32, len, PAGE_SIZE - o);
		struct page *pg = store_make_page(st, pos >> PAGE_SHIFT);

		if (!pg)
			return false;
		memcpy(page_address(pg) + o, from, n);
		pos += n;
		from += n;
		len -= n;
	}
	return true;
}

/* Copies between the request and the current content. */
static bool copy_request(struct sim_disk *sd, struct request *rq, bool write)
{
	u64 pos = blk_rq_pos(rq) << 9;
	struct req_iterator it;
	struct bio_vec bv;
	bool ok = true;

	rq_for_each_segment(bv, rq, it) {
		u8 *mem = bvec_kmap_local(&bv);

		if (write)
			ok = write_bytes(&sd->store, pos, mem, bv.bv_len);
		else
			read_bytes(&sd->store, pos, mem, bv.bv_len);
		kunmap_local(mem);
		if (!ok)
			return false;
		pos += bv.bv_len;
	}
	return true;
}

/* Injected: every byte that was read is wrong. */
static void spoil_request(struct request *rq)
{
	struct req_iterator it;
	struct bio_vec bv;
	u32 i;

	rq_for_each_segment(bv, rq, it) {
		u8 *mem = bvec_kmap_local(&bv);

		for (i = 0; i < bv.bv_len; i++)
			mem[i] ^= 0x5a;
		kunmap_local(mem);
	}
}

/* What a discard or write-zeroes leaves in the sectors [s, e) of one page.  random: not zeroes. */
static void fill_sectors(void *page, u32 first, u32 count, bool random, u64 seed)
{
	u64 *p = page + (first << 9);
	u32 i;

	if (!random) {
		memset(p, 0, count << 9);
		return;
	}
	for (i = 0; i < count << 6; i++)
		p[i] = sim_random(&seed);
}

/* crash=0: current content only.  Holes stay holes. */
static bool fill_range(struct sim_disk *sd, struct sim_cmd *c, bool random)
{
	u64 nr = c->s / SIM_PG_SECT, end = DIV_ROUND_UP(c->e, SIM_PG_SECT);
	struct page *pg;

	for (; (pg = store_next_page(&sd->store, &nr, end)); nr++) {
		u64 s = max(c->s, nr * SIM_PG_SECT), e = min(c->e, (nr + 1) * SIM_PG_SECT);

		pg = store_make_page(&sd->store, nr);
		if (!pg)
			return false;
		fill_sectors(page_address(pg), s % SIM_PG_SECT, e - s, random, s);
	}
	return true;
}

/* ------------------------------------------------------------------ volatile pieces */

static void free_frag(struct sim_frag *f)
{
	kfree(f->data);
	kfree(f);
}

static void free_chain(struct sim_frag *f)
{
	struct sim_frag *next;

	for (; f; f = next) {
		next = f->next;
		free_frag(f);
	}
}

/* Sectors [s, e) lie in page nr.  with_data: room for content. */
static struct sim_frag *new_frag(struct sim_cmd *c, u64 nr, u64 s, u64 e, bool with_data)
{
	struct sim_frag *f = kzalloc(sizeof(*f), gfp);

	if (!f)
		return NULL;
	INIT_LIST_HEAD(&f->order);
	INIT_LIST_HEAD(&f->complete);
	f->nr = nr;
	f->serial = c->id;
	f->first = s - nr * SIM_PG_SECT;
	f->count = e - s;
	f->mask = sector_mask(f->first, f->count);
	if (with_data) {
		f->data = kmalloc(f->count << 9, gfp);
		if (!f->data) {
			kfree(f);
			return NULL;
		}
	}
	return f;
}

/* Copies a write's data into its pieces, which are in order of sectors. */
static void fill_frags(struct request *rq, struct sim_frag *f)
{
	struct req_iterator it;
	struct bio_vec bv;
	u32 at = 0;		/* bytes filled of f */

	rq_for_each_segment(bv, rq, it) {
		u8 *mem = bvec_kmap_local(&bv);
		u32 off = 0, n;

		while (off < bv.bv_len) {
			n = min_t(u32, bv.bv_len - off, (f->count << 9) - at);
			memcpy(f->data + at, mem + off, n);
			off += n;
			at += n;
			if (at == f->count << 9) {
				f = f->next;
				at = 0;
			}
		}
		kunmap_local(mem);
	}
}

/* The pieces of a command: of every page for a write, of those that are no holes for a discard.  -ENOMEM. */
static int make_frags(struct sim_disk *sd, struct request *rq, struct sim_cmd *c, bool random, struct sim_frag **chain)
{
	u64 nr = c->s / SIM_PG_SECT, end = DIV_ROUND_UP(c->e, SIM_PG_SECT);
	struct sim_frag *f, **tail = chain;
	bool data = c->op == SIM_WRITE;

	*chain = NULL;
	for (; nr < end; nr++) {
		if (!data && !store_next_page(&sd->store, &nr, end))
			break;
		f = new_frag(c, nr, max(c->s, nr * SIM_PG_SECT), min(c->e, (nr + 1) * SIM_PG_SECT), data || random);
		if (!f) {
			free_chain(*chain);
			*chain = NULL;
			return -ENOMEM;
		}
		if (!data && random)
			fill_sectors(f->data, 0, f->count, true, c->id + nr);
		*tail = f;
		tail = &f->next;
	}
	if (data)
		fill_frags(rq, *chain);
	return 0;
}

/* sim_lock.  The pieces' pages become volatile: durable content is set aside.  -ENOMEM: some vpages may have no pieces. */
static int make_vpages(struct sim_disk *sd, struct sim_frag *f)
{
	struct sim_store *st = &sd->store;
	struct sim_vpage *vp;
	struct page *pg;

	for (; f; f = f->next) {
		f->vp = xa_load(&st->vol, f->nr);
		pg = store_page(st, f->nr);
		if (!f->vp) {
			vp = kzalloc(sizeof(*vp), gfp);
			if (!vp)
				return -ENOMEM;
			vp->nr = f->nr;
			INIT_LIST_HEAD(&vp->frags);
			vp->durable = pg ? kmemdup(page_address(pg), PAGE_SIZE, gfp) : kzalloc(PAGE_SIZE, gfp);
			if (!vp->durable || xa_err(xa_store(&st->vol, f->nr, vp, gfp))) {
				kfree(vp->durable);
				kfree(vp);
				return -ENOMEM;
			}
			st->nr_vpages++;
			f->vp = vp;
		}
		if (!pg && !store_make_page(st, f->nr))
			return -ENOMEM;
	}
	return 0;
}

/* sim_lock.  A page without pieces equals the medium. */
static void drop_vpage(struct sim_disk *sd, struct sim_vpage *vp)
{
	if (!list_empty(&vp->frags))
		return;
	xa_erase(&sd->store.vol, vp->nr);
	sd->store.nr_vpages--;
	kfree(vp->durable);
	kfree(vp);
}

/* Copies those sectors of the piece that are in mask. */
static void apply_frag(void *page, const struct sim_frag *f, u8 mask)
{
	u32 i;

	for (i = f->first; i < f->first + f->count; i++) {
		if (!(mask & (1u << i)))
			continue;
		if (f->data)
			memcpy(page + (i << 9), f->data + ((i - f->first) << 9), 512);
		else
			memset(page + (i << 9), 0, 512);
	}
}

/* sim_lock.  The command's pieces enter the lists and the current content. */
static void link_frags(struct sim_disk *sd, struct sim_cmd *c, struct sim_frag *chain)
{
	struct sim_frag *f;

	for (f = chain; f; f = f->next) {
		list_add_tail(&f->order, &f->vp->frags);
		apply_frag(page_address(store_page(&sd->store, f->nr)), f, f->mask);
		sd->store.nr_frags++;
	}
	c->frags = chain;
}

/* sim_lock.  Unlinks the piece; it is freed unless its command still has it on its chain. */
static void forget_frag(struct sim_disk *sd, struct sim_frag *f)
{
	list_del_init(&f->order);
	f->vp = NULL;
	sd->store.nr_frags--;
	if (!list_empty(&f->complete)) {
		list_del(&f->complete);
		free_frag(f);
	}
}

/* sim_lock.  The piece, no longer on a chain, reaches the medium: it goes, and earlier ones lose its sectors. */
static void harden_frag(struct sim_disk *sd, struct sim_frag *f)
{
	struct sim_vpage *vp = f->vp;
	struct sim_frag *o, *n;

	if (f->data && f->mask == PG_ALL)
		swap(vp->durable, f->data);
	else
		apply_frag(vp->durable, f, f->mask);
	list_for_each_entry_safe(o, n, &vp->frags, order) {
		if (o == f)
			break;
		o->mask &= ~f->mask;
		if (!o->mask)
			forget_frag(sd, o);
	}
	forget_frag(sd, f);
	drop_vpage(sd, vp);
}

/* A command that changes content, crash=1. */
static blk_status_t submit_volatile(struct sim_disk *sd, struct request *rq, struct sim_cmd *c, bool random)
{
	struct sim_frag *chain, *f;
	unsigned long flags;
	blk_status_t ret = BLK_STS_OK;

	if (make_frags(sd, rq, c, random, &chain))
		return BLK_STS_RESOURCE;
	spin_lock_irqsave(&sim_lock, flags);
	if (sd->off) {
		ret = BLK_STS_IOERR;
	} else if (make_vpages(sd, chain)) {
		for (f = chain; f; f = f->next)
			if (f->vp && xa_load(&sd->store.vol, f->nr))
				drop_vpage(sd, f->vp);
		ret = BLK_STS_RESOURCE;
	} else {
		link_frags(sd, c, chain);
		c->power_gen = sd->power_gen;
		sim_power_tick(sd, c->op);
	}
	spin_unlock_irqrestore(&sim_lock, flags);
	if (ret != BLK_STS_OK)
		free_chain(chain);
	return ret;
}

/* Any context, sim_lock not held, for as long as that takes.  Injected: what was answered, and not secured, is lost. */
static void lose_volatile(struct sim_disk *sd)
{
	struct sim_frag *f, *g;
	struct sim_vpage *vp;
	unsigned long flags;
	u8 *page;

	spin_lock_irqsave(&sim_lock, flags);
	while ((f = list_first_entry_or_null(&sd->store.complete, struct sim_frag, complete))) {
		vp = f->vp;
		forget_frag(sd, f);
		page = page_address(store_page(&sd->store, vp->nr));
		memcpy(page, vp->durable, PAGE_SIZE);
		list_for_each_entry(g, &vp->frags, order)
			apply_frag(page, g, g->mask);
		drop_vpage(sd, vp);
	}
	spin_unlock_irqrestore(&sim_lock, flags);
}

/* ------------------------------------------------------------------ commands */

/* A command that changes nothing; its place among the completions counts. */
static blk_status_t submit_other(struct sim_disk *sd, struct sim_cmd *c)
{
	unsigned long flags;
	blk_status_t ret = BLK_STS_OK;

	spin_lock_irqsave(&sim_lock, flags);
	if (sd->off) {
		ret = BLK_STS_IOERR;
	} else {
		c->power_gen = sd->power_gen;
		c->flush_mark = sd->store.nr_done;
		sim_power_tick(sd, c->op);
	}
	spin_unlock_irqrestore(&sim_lock, flags);
	return ret;
}

blk_status_t sim_store_submit(struct sim_disk *sd, struct request *rq, struct sim_cmd *c)
{
	bool leave = c->op == SIM_DISCARD && sd->p.discard == SIM_DISCARD_LEAVE;
	bool random = c->op == SIM_DISCARD && sd->p.discard == SIM_DISCARD_RANDOM;
	bool changes = (c->write || c->fast) && !leave && !c->lose && (c->status == BLK_STS_OK || c->keep);
	blk_status_t ret = BLK_STS_OK;

	c->frags = NULL;
	if (c->reset)
		lose_volatile(sd);
	if (sd->p.crash) {
		ret = changes ? submit_volatile(sd, rq, c, random) : submit_other(sd, c);
	} else {
		c->power_gen = READ_ONCE(sd->power_gen);
		if (READ_ONCE(sd->off))
			return BLK_STS_IOERR;
		if (changes && c->write && !copy_request(sd, rq, true))
			return BLK_STS_RESOURCE;
		if (changes && c->fast && !fill_range(sd, c, random))
			return BLK_STS_RESOURCE;
	}
	if (ret == BLK_STS_OK && c->op == SIM_READ && c->status == BLK_STS_OK) {
		copy_request(sd, rq, false);
		if (c->corrupt)
			spoil_request(rq);
	}
	return ret;
}

/* sim_lock.  An acknowledged command's pieces: durable, or volatile from now on. */
static void settle_chain(struct sim_disk *sd, struct sim_cmd *c, bool durable)
{
	struct sim_store *st = &sd->store;
	struct sim_frag *f, *next;

	for (f = c->frags; f; f = next) {
		next = f->next;
		if (!f->vp) {		/* superseded while in flight */
			free_frag(f);
			continue;
		}
		f->done = st->nr_done;
		list_add_tail(&f->complete, &st->complete);
		if (durable)
			harden_frag(sd, f);
	}
	c->frags = NULL;
}

/* sim_lock.  Everything whose command had completed before the flush was issued. */
static void harden_marked(struct sim_disk *sd, u64 mark)
{
	struct sim_frag *f;

	while ((f = list_first_entry_or_null(&sd->store.complete, struct sim_frag, complete)) && f->done <= mark)
		harden_frag(sd, f);
}

blk_status_t sim_store_complete(struct sim_disk *sd, struct sim_cmd *c, blk_status_t status)
{
	unsigned long flags;

	if (!sd->p.crash)
		return READ_ONCE(sd->power_gen) != c->power_gen ? BLK_STS_IOERR : status;
	spin_lock_irqsave(&sim_lock, flags);
	if (sd->off || sd->power_gen != c->power_gen)
		status = BLK_STS_IOERR;
	sd->store.nr_done++;
	if (c->op == SIM_FLUSH && status == BLK_STS_OK && !sd->p.ignore_flush)
		harden_marked(sd, c->flush_mark);
	if (c->frags)
		settle_chain(sd, c, status == BLK_STS_OK &&
			     ((c->fua && !sd->p.ignore_fua) || !sd->p.wce || sd->p.plp));
	spin_unlock_irqrestore(&sim_lock, flags);
	return status;
}

/* ------------------------------------------------------------------ power cut */

/* Chooses for one page.  A piece survives with the given chance; torn: each sector has any of its versions, or the durable one. */
static void settle_page(void *page, struct sim_vpage *vp, enum sim_cut_mode mode, u64 *rng, u32 percent, u64 prefix)
{
	struct sim_frag *f;
	u32 i, n, pick;
	bool live;

	if (mode == SIM_CUT_KEEP)
		return;
	memcpy(page, vp->durable, PAGE_SIZE);
	if (mode == SIM_CUT_TORN) {
		for (i = 0; i < SIM_PG_SECT; i++) {
			n = 0;
			list_for_each_entry(f, &vp->frags, order)
				n += !!(f->mask & (1u << i));
			if (!n || sim_random(rng) % 100 >= percent)
				continue;
			pick = sim_random(rng) % n;
			list_for_each_entry(f, &vp->frags, order)
				if ((f->mask & (1u << i)) && !pick--)
					apply_frag(page, f, 1u << i);
		}
		return;
	}
	list_for_each_entry(f, &vp->frags, order) {
		live = mode == SIM_CUT_RANDOM ? sim_random(rng) % 100 < percent :
			mode == SIM_CUT_PREFIX ? f->serial <= prefix : false;
		if (live)
			apply_frag(page, f, f->mask);
	}
}

/* mode prefix: the disk wrote in order of submission up to a command chosen at random; its number. */
static u64 choose_prefix(struct sim_disk *sd, u64 *rng)
{
	u64 lo = SIM_NEVER, hi = 0;
	struct sim_vpage *vp;
	struct sim_frag *f;
	unsigned long i;

	xa_for_each(&sd->store.vol, i, vp)
		list_for_each_entry(f, &vp->frags, order) {
			lo = min(lo, f->serial);
			hi = max(hi, f->serial);
		}
	return hi ? lo - 1 + sim_random(rng) % (hi - lo + 2) : 0;
}

void sim_store_settle(struct sim_disk *sd, enum sim_cut_mode mode, u64 seed, u32 percent)
{
	u64 rng = seed ^ sim_hash_name(sd->name), prefix = 0;
	struct sim_store *st = &sd->store;
	struct sim_vpage *vp;
	struct sim_frag *f, *n;
	unsigned long i;

	if (mode == SIM_CUT_PREFIX)
		prefix = choose_prefix(sd, &rng);
	xa_for_each(&st->vol, i, vp) {
		settle_page(page_address(store_page(st, vp->nr)), vp, mode, &rng, percent, prefix);
		list_for_each_entry_safe(f, n, &vp->frags, order)
			free_frag(f);
		kfree(vp->durable);
		kfree(vp);
		cond_resched();
	}
	xa_destroy(&st->vol);
	INIT_LIST_HEAD(&st->complete);
	st->nr_vpages = 0;
	st->nr_frags = 0;
}

/* ------------------------------------------------------------------ damage, init, free */

int sim_store_damage(struct sim_disk *sd, u64 from, u64 to, u64 seed)
{
	struct sim_store *st = &sd->store;
	unsigned long flags;
	struct page *pg;
	struct sim_vpage *vp;
	struct sim_frag *f;
	u64 s;

	for (s = from; s < to; s++) {
		u32 i = s % SIM_PG_SECT;

		pg = store_make_page(st, s / SIM_PG_SECT);
		if (!pg)
			return -ENOMEM;
		spin_lock_irqsave(&sim_lock, flags);
		vp = xa_load(&st->vol, s / SIM_PG_SECT);
		if (vp)
			fill_sectors(vp->durable, i, 1, true, seed ^ s);
		if (vp)
			list_for_each_entry(f, &vp->frags, order)
				if (f->data && (f->mask & (1u << i)))
					fill_sectors(f->data, i - f->first, 1, true, seed ^ s);
		fill_sectors(page_address(pg), i, 1, true, seed ^ s);
		spin_unlock_irqrestore(&sim_lock, flags);
		cond_resched();
	}
	return 0;
}

/* Nothing is kept any more, and everything counts as unchanged. */
static void saved_clear(struct sim_store *st, u64 pages, bool back)
{
	u64 nr;

	for_each_set_bit(nr, st->changed, pages) {
		if (back)
			swap(st->flat[nr], st->saved[nr]);
		if (st->saved[nr])
			__free_page(st->saved[nr]);
		st->saved[nr] = NULL;
	}
	bitmap_zero(st->changed, pages);
}

int sim_store_save(struct sim_disk *sd)
{
	u64 pages = DIV_ROUND_UP(sd->nsect, SIM_PG_SECT);
	struct sim_store *st = &sd->store;
	unsigned long *changed;

	if (st->changed) {
		saved_clear(st, pages, false);
		return 0;
	}
	st->saved = vzalloc(array_size(pages, sizeof(*st->saved)));
	changed = vzalloc(BITS_TO_LONGS(pages) * sizeof(long));
	if (!st->saved || !changed) {
		vfree(st->saved);
		vfree(changed);
		return -ENOMEM;
	}
	WRITE_ONCE(st->changed, changed);
	return 0;
}

int sim_store_restore(struct sim_disk *sd)
{
	if (!sd->store.changed)
		return -ENODATA;
	saved_clear(&sd->store, DIV_ROUND_UP(sd->nsect, SIM_PG_SECT), true);
	return 0;
}

int sim_store_init(struct sim_disk *sd, bool prealloc)
{
	struct sim_store *st = &sd->store;
	u64 pages = DIV_ROUND_UP(sd->nsect, SIM_PG_SECT), i;

	BUILD_BUG_ON(PAGE_SIZE != SIM_PG_SECT << 9);
	xa_init_flags(&st->tree, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&st->vol, XA_FLAGS_LOCK_IRQ);
	INIT_LIST_HEAD(&st->complete);
	spin_lock_init(&st->saved_lock);
	if (!prealloc && sd->nsect > SIM_FLAT_SECTORS)
		return 0;
	st->flat = vzalloc(array_size(pages, sizeof(*st->flat)));
	if (!st->flat)
		return -ENOMEM;
	for (i = 0; prealloc && i < pages; i++) {
		st->flat[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!st->flat[i])
			return -ENOMEM;
	}
	return 0;
}

void sim_store_free(struct sim_disk *sd)
{
	struct sim_store *st = &sd->store;
	u64 nr = 0, end = DIV_ROUND_UP(sd->nsect, SIM_PG_SECT);
	struct page *pg;

	if (!st->complete.next)		/* sim_store_init() was not reached */
		return;
	sim_store_settle(sd, SIM_CUT_KEEP, 0, 0);
	if (st->changed)
		saved_clear(st, end, false);
	vfree(st->saved);
	vfree(st->changed);
	for (; (pg = store_next_page(st, &nr, end)); nr++) {
		__free_page(pg);
		cond_resched();
	}
	xa_destroy(&st->tree);
	vfree(st->flat);
}
