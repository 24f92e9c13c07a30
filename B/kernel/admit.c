// SPDX-License-Identifier: GPL-2.0-only
/*
 * What goes to the SSD: a request against the volume's classes, the speed of both sides, the SSD's congestion, the volume's share,
 * the backing's stripes.
 *
 * All of it only ever asks for a path that is there already: io->bypass makes a miss not fill, and a write go by bypass_write()
 * where rules 5 and 6 let it; a hit of CLEAN data is read from the backing instead.  Nothing here has a say in what is right.
 *
 * Classes: v->classes is NULL while the list is the preset `default`, which io_judge() knows by itself; else a table under RCU,
 * replaced as a whole.  A request keeps what it was judged to be.  dm hands the rest of a request that was cut to map() as a new
 * one: the table remembers where the rest begins, so that it stays in its class, whatever its size is now.
 *
 * Pins: a bitmap of slots per ordinal of a pinning rule, made when a list that pins is first applied.  A slot is pinned only
 * while it is mapped: whoever takes a mapping away unpins (index_changed()); who pins looks, afterwards, whether the mapping is
 * still there.  So a volume's counts are exact, and a bit never outlives the data that it was set for.  Not on disk: after a
 * start hits pin anew.
 *
 * Locks: probe->lock (irqsave) is a leaf.  volume_settings_apply(): the caller's, one at a time per volume.
 */
#include <linux/ioprio.h>
#include <linux/vmalloc.h>

#include "larder.h"

#define KEPT_PERCENT_MAX	75	/* of the cache may be pinned or guaranteed: reclaim needs the rest to find space in */
#define CLASS_CUTS		16

struct class_counters {
	struct class_count n[LARDER_CLASS_RULES + 1];	/* the last: no rule matched */
};

/* The rest of a request that was cut.  Unlocked: who reads nonsense takes it for no cut, or for a class that exists. */
struct class_cut {
	u64 sector;
	pid_t task;
	u8 class;
};

struct class_table {
	struct rcu_head rcu;
	u8 generation;
	struct larder_classes list;
	struct class_counters __percpu *counters;
	struct class_cut cut[CLASS_CUTS];
};

static_assert((int)LARDER_IOPRIO_RT == IOPRIO_CLASS_RT && (int)LARDER_IOPRIO_IDLE == IOPRIO_CLASS_IDLE);

/* ------------------------------------------------------------------ pins */

static u64 cache_slots(const struct cache *c)
{
	return (u64)c->nr_segments * c->segment_slots;
}

/* Slots of clean data */
static s64 percent_of_cache(const struct cache *c, u32 percent)
{
	return div_u64(segments_room(c, USE_CLEAN) * percent, 100);
}

/* Sleeps. */
static int pins_create(struct cache *c, u8 pins)
{
	u64 bytes = BITS_TO_LONGS(cache_slots(c)) * sizeof(long);
	unsigned int i;

	for (i = 0; i < pins; i++) {
		unsigned long *bits;

		if (READ_ONCE(c->pins[i]))
			continue;
		bits = vzalloc(bytes);
		if (!bits)
			return -ENOMEM;
		if (cmpxchg(&c->pins[i], NULL, bits))
			vfree(bits);	/* another volume was faster */
		else
			atomic64_add(bytes, &c->pins_bytes);
	}
	return 0;
}

void pins_destroy(struct cache *c)
{
	unsigned int i;

	for (i = 0; i < LARDER_CLASS_PINS; i++)
		vfree(c->pins[i]);
}

static bool pin_fits(struct volume *v, u32 slots, u8 pin)
{
	int rest = KEPT_PERCENT_MAX - min(atomic_read(&v->cache->guaranteed), KEPT_PERCENT_MAX);

	return atomic64_read(&v->pinned[pin - 1]) + slots <= percent_of_cache(v->cache, READ_ONCE(v->pin_percent[pin - 1])) &&
	       atomic64_read(&v->cache->pinned) + slots <= percent_of_cache(v->cache, rest);
}

void pin_set(struct volume *v, u64 sector, u64 cache, u32 len, u8 pin)
{
	u64 slot = cache / LARDER_SLOT_SECTORS, last = (cache + len - 1) / LARDER_SLOT_SECTORS;
	unsigned long *bits = READ_ONCE(v->cache->pins[pin - 1]);
	struct larder_map m;

	/* whoever takes a list away waits for those that still pin by it */
	rcu_read_lock();
	if (!bits || !pin_fits(v, last - slot + 1, pin)) {
		rcu_read_unlock();
		return;
	}
	for (; slot <= last; slot++) {
		if (test_bit(slot, bits) || larder_slot_test_and_set(slot, bits))
			continue;
		atomic64_inc(&v->pinned[pin - 1]);
		atomic64_inc(&v->cache->pinned);
	}
	/* pairs with the one in index_changed(): either pins_clear() finds the bit, or we find the mapping gone */
	smp_mb();
	for (; len; sector += m.len, cache += m.len, len -= m.len) {
		larder_index_lookup(v->index, sector, len, &m);
		if (m.state == LARDER_ST_NONE || larder_state_zero(m.state) || m.cache != cache)
			pins_clear(v, cache, m.len);
	}
	rcu_read_unlock();
}

void pins_clear(struct volume *v, u64 cache, u32 len)
{
	u64 first = cache / LARDER_SLOT_SECTORS, last = (cache + len - 1) / LARDER_SLOT_SECTORS, slot;
	unsigned int i;

	for (i = 0; i < LARDER_CLASS_PINS; i++) {
		unsigned long *bits = READ_ONCE(v->cache->pins[i]);

		if (!bits)
			continue;
		for (slot = first; slot <= last; slot++) {
			if (!test_bit(slot, bits) || !larder_slot_test_and_clear(slot, bits))
				continue;
			atomic64_dec(&v->pinned[i]);
			atomic64_dec(&v->cache->pinned);
		}
	}
}

u8 pin_of(const struct cache *c, u64 cache, u32 len)
{
	u64 first = cache / LARDER_SLOT_SECTORS, last = (cache + len - 1) / LARDER_SLOT_SECTORS;
	unsigned int i;

	for (i = 0; i < LARDER_CLASS_PINS; i++) {
		unsigned long *bits = READ_ONCE(c->pins[i]);

		if (bits && find_next_bit(bits, last + 1, first) <= last)
			return i + 1;
	}
	return 0;
}

/* Sleeps: the pins of a list that is gone. */
static void pins_forget(struct volume *v)
{
	struct larder_map m;
	u64 sector = 0;
	unsigned int n = 0;

	while (sector < v->sectors && larder_index_next(v->index, sector, v->sectors, ~0u, &m)) {
		sector = m.sector + m.len;
		if (!larder_state_zero(m.state))
			pins_clear(v, m.cache, m.len);
		if (!(++n % 1024))
			cond_resched();
	}
}

/* ------------------------------------------------------------------ shares */

bool admit_keeps(struct volume *v, const struct larder_map *m)
{
	int percent = READ_ONCE(v->guaranteed);

	return pin_of(v->cache, m->cache, m->len) ||
	       (percent && atomic64_read(&v->cached_sectors) <= percent_of_cache(v->cache, percent) * LARDER_SLOT_SECTORS);
}

u32 admit_segments_kept(struct cache *c)
{
	s64 slots = atomic64_read(&c->pinned) + percent_of_cache(c, atomic_read(&c->guaranteed));

	return div_u64(max(slots, 0ll), c->data_slots);
}

bool share_is_used_up(struct volume *v)
{
	return atomic64_read(&v->cached_sectors) >= percent_of_cache(v->cache, READ_ONCE(v->set.share_max)) * LARDER_SLOT_SECTORS;
}

/* What all volumes of the cache are guaranteed together, and pins, leaves reclaim its part: beyond it a guarantee is none. */
static void share_apply(struct volume *v, const struct volume_settings *set)
{
	struct cache *c = v->cache;
	int before = v->guaranteed, now = set->share_min;

	if (atomic_add_return(now - before, &c->guaranteed) > KEPT_PERCENT_MAX && now > before) {
		DMWARN("cache %pUb: %d percent of it are guaranteed: share_min of volume %pUb counts for nothing, %d would do",
		       c->uuid, atomic_read(&c->guaranteed), v->uuid, KEPT_PERCENT_MAX);
		atomic_sub(now, &c->guaranteed);
		now = 0;
	}
	WRITE_ONCE(v->guaranteed, now);
}

/* ------------------------------------------------------------------ settings */

static void class_table_free(struct class_table *t)
{
	if (t)
		free_percpu(t->counters);
	kfree(t);
}

static void class_table_free_rcu(struct rcu_head *rcu)
{
	class_table_free(container_of(rcu, struct class_table, rcu));
}

static struct class_table *class_table_create(const struct larder_classes *list, u8 generation)
{
	struct class_table *t = kzalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return NULL;
	t->generation = generation;
	t->list = *list;
	t->counters = larder_counters(struct class_counters);
	if (t->counters)
		return t;
	class_table_free(t);
	return NULL;
}

static int classes_apply(struct volume *v, const struct larder_classes *list)
{
	struct class_table *old = rcu_dereference_protected(v->classes, true), *new = NULL;
	unsigned int i;
	int err;

	if (old ? larder_classes_same(&old->list, list) : list->preset == LARDER_CLASS_DEFAULT)
		return 0;
	err = pins_create(v->cache, list->pins);
	if (err)
		return err;
	if (list->preset != LARDER_CLASS_DEFAULT) {
		new = class_table_create(list, old ? old->generation + 1 : 1);
		if (!new)
			return -ENOMEM;
	}
	memset(v->pin_percent, 0, sizeof(v->pin_percent));
	rcu_assign_pointer(v->classes, new);
	if (old && old->list.pins) {
		synchronize_rcu();
		pins_forget(v);
	}
	for (i = 0; i < list->nr; i++)
		if (list->rule[i].pin)
			WRITE_ONCE(v->pin_percent[list->rule[i].pin - 1], list->rule[i].percent);
	if (old)
		call_rcu(&old->rcu, class_table_free_rcu);
	return 0;
}

int volume_settings_apply(struct volume *v, const struct volume_settings *set)
{
	int err = v->cache ? classes_apply(v, &set->class) : 0;

	if (err)
		return err;
	if (v->cache)
		share_apply(v, set);
	v->set = *set;
	return 0;
}

void volume_admit_destroy(struct volume *v)
{
	class_table_free(rcu_dereference_protected(v->classes, true));
	if (v->cache)
		atomic_sub(v->guaranteed, &v->cache->guaranteed);
}

/* ------------------------------------------------------------------ classes: a request */

static struct class_cut *class_cut_of(struct class_table *t)
{
	return &t->cut[current->pid % CLASS_CUTS];
}

static u8 class_is(const struct bio *bio, bool sequential)
{
	bool write = op_is_write(bio_op(bio));
	u8 is = write ? LARDER_IS_WRITE : LARDER_IS_READ;

	if (bio->bi_opf & (REQ_META | REQ_PRIO))
		is |= LARDER_IS_METADATA;
	if (write && bio->bi_opf & (REQ_SYNC | REQ_FUA))
		is |= LARDER_IS_SYNC;
	if (bio->bi_opf & REQ_RAHEAD)
		is |= LARDER_IS_READAHEAD;
	if (sequential)
		is |= LARDER_IS_SEQUENTIAL;
	return is;
}

static u8 class_of(struct class_table *t, const struct bio *bio, const struct larder_io *io, bool sequential)
{
	int prio = bio->bi_ioprio ?: get_current_ioprio();
	struct larder_class_request rq = {
		.is = class_is(bio, sequential), .ioprio = IOPRIO_PRIO_CLASS(prio), .sectors = io->len, .sector = io->sector,
	};
	struct class_cut *cut = class_cut_of(t);
	u8 class = READ_ONCE(cut->class);

	if (READ_ONCE(cut->task) == current->pid && READ_ONCE(cut->sector) == io->sector) {
		WRITE_ONCE(cut->task, 0);
		if (class < t->list.nr || class == LARDER_CLASS_NONE)
			return class;
	}
	return larder_classes_match(&t->list, &rq);
}

static void class_count(struct class_table *t, u8 class, bool write, s64 requests, s64 sectors)
{
	struct class_count *n = &get_cpu_ptr(t->counters)->n[min_t(u8, class, t->list.nr)];

	if (write) {
		n->writes += requests;
		n->write_sectors += sectors;
	} else {
		n->reads += requests;
		n->read_sectors += sectors;
	}
	put_cpu_ptr(t->counters);
}

void io_classify(struct volume *v, struct bio *bio, struct larder_io *io, bool sequential)
{
	bool write = op_is_write(bio_op(bio));
	const struct larder_class *rule = NULL;
	struct class_table *t;

	rcu_read_lock();
	t = rcu_dereference(v->classes);
	if (t) {
		io->class = class_of(t, bio, io, sequential);
		io->class_generation = t->generation;
		if (io->class < t->list.nr)
			rule = &t->list.rule[io->class];
		io->bypass = larder_class_bypasses(rule, write);
		io->pin = rule ? rule->pin : 0;
		class_count(t, io->class, write, 1, io->len);
	} else {
		io->bypass = sequential;	/* just replaced by the default */
	}
	rcu_read_unlock();
}

void io_class_cut(struct volume *v, struct bio *bio, struct larder_io *io, u32 sectors)
{
	struct class_table *t;

	rcu_read_lock();
	t = rcu_dereference(v->classes);
	if (t && io->class_generation == t->generation) {
		struct class_cut *cut = class_cut_of(t);

		WRITE_ONCE(cut->sector, io->sector + sectors);
		WRITE_ONCE(cut->class, io->class);
		WRITE_ONCE(cut->task, current->pid);
		class_count(t, io->class, op_is_write(bio_op(bio)), 0, -(s64)(io->len - sectors));
	}
	rcu_read_unlock();
}

unsigned int volume_class_counts(struct volume *v, struct class_count *sums)
{
	struct class_table *t;
	unsigned int cpu, i, nr = 0;

	rcu_read_lock();
	t = rcu_dereference(v->classes);
	if (t) {
		nr = t->list.nr + 1;
		memset(sums, 0, nr * sizeof(*sums));
		for_each_possible_cpu(cpu)
			for (i = 0; i < nr; i++) {
				const struct class_count *n = &per_cpu_ptr(t->counters, cpu)->n[i];

				sums[i].reads += READ_ONCE(n->reads);
				sums[i].writes += READ_ONCE(n->writes);
				sums[i].read_sectors += READ_ONCE(n->read_sectors);
				sums[i].write_sectors += READ_ONCE(n->write_sectors);
			}
	}
	rcu_read_unlock();
	return nr;
}

/* ------------------------------------------------------------------ streams: sequential_cutoff=auto */

static u64 probe_now_ms(void)
{
	return jiffies64_to_msecs(get_jiffies_64());
}

/* As long as no more is dirty, segments come free without a word to the writeback. */
static bool stream_has_room(struct cache *c)
{
	return atomic64_read(&c->dirty_sectors) * 100 < segments_room(c, USE_LOG) * LARDER_SLOT_SECTORS * LARDER_STREAM_ROOM;
}

bool stream_bypasses(struct volume *v, struct larder_io *io, u64 run, bool write)
{
	struct larder_speed *s = &v->speed[write];

	if (run <= (u64)LARDER_STREAM_TIMED << 10)
		return false;
	io->began = ktime_get_ns();
	if (run <= (u64)LARDER_STREAM_CUTOFF << 10)
		return false;
	if (!write)
		return larder_speed_read_bypasses(s);
	/* the other modes write to the backing in any case */
	return v->set.mode != LARDER_WRITEBACK ||
	       larder_speed_write(s, io->len, stream_has_room(v->cache), probe_now_ms()) == LARDER_SIDE_BACKING;
}

void stream_ended(struct volume *v, const struct larder_io *io, bool write)
{
	enum larder_side side = io->backing ? LARDER_SIDE_BACKING : LARDER_SIDE_SSD;

	larder_speed_sample(&v->speed[write], side, io->len, ktime_get_ns() - io->began);
}

/* ------------------------------------------------------------------ congestion */

static u32 probe_threshold(const struct cache *c, enum ssd_direction dir)
{
	return dir == SSD_READ ? READ_ONCE(c->set.congestion_read) : READ_ONCE(c->set.congestion_write);
}

/* p->lock held. */
static void probe_sample(struct cache *c, enum ssd_direction dir, u64 us)
{
	struct ssd_probe *p = &c->probe[dir];

	larder_congestion_sample(&p->state, us, probe_threshold(c, dir), probe_now_ms());
	if (p->state.share > LARDER_CONGESTION_FULL / 2 && tell_again(&p->told)) {
		DMWARN("cache %pUb: its SSDs take %u us for %s, more than the %u us allowed: most go to the backing", c->uuid,
		       p->state.latency_us, dir == SSD_READ ? "reads" : "writes", probe_threshold(c, dir));
		cache_tell(c);
	}
}

/* Once per jiffy and direction.  One that is in flight counts by its age, so that an SSD that does not answer is noticed. */
bool ssd_probe_try(struct cache *c, enum ssd_direction dir)
{
	struct ssd_probe *p = &c->probe[dir];
	u32 threshold = probe_threshold(c, dir);
	bool begun = false;
	unsigned long flags;
	u64 now, age;

	spin_lock_irqsave(&p->lock, flags);
	WRITE_ONCE(p->looked, jiffies);
	if (!p->in_flight && (threshold || p->state.share)) {
		p->in_flight = true;
		p->began = ktime_get_ns();
		begun = true;
	} else if (p->in_flight) {
		now = ktime_get_ns();
		age = div_u64(now - p->began, NSEC_PER_USEC);
		if (age > threshold)
			probe_sample(c, dir, age);
	}
	spin_unlock_irqrestore(&p->lock, flags);
	return begun;
}

void ssd_probe_end(struct cache *c, enum ssd_direction dir)
{
	struct ssd_probe *p = &c->probe[dir];
	unsigned long flags;

	spin_lock_irqsave(&p->lock, flags);
	probe_sample(c, dir, div_u64(ktime_get_ns() - p->began, NSEC_PER_USEC));
	p->in_flight = false;
	spin_unlock_irqrestore(&p->lock, flags);
}

bool ssd_avoids(struct cache *c, enum ssd_direction dir)
{
	return larder_congestion_avoids(&c->probe[dir].state, probe_threshold(c, dir), probe_now_ms());
}

/* ------------------------------------------------------------------ whole stripes */

void volume_stripe_init(struct volume *v)
{
	unsigned int opt = bdev_io_opt(v->bdev), min = bdev_io_min(v->bdev);

	v->stripe = 0;
	/* an array: chunks larger than a block, several in a stripe.  Some disks name their largest request instead. */
	if (!opt || min <= max_t(u32, LARDER_SLOT_SIZE, bdev_physical_block_size(v->bdev)) || opt < 2 * min || opt % min)
		return;
	v->stripe = opt >> SECTOR_SHIFT;
	div_u64_rem(get_start_sect(v->bdev) + v->data_start, v->stripe, &v->stripe_phase);
}

u32 io_stripes(const struct volume *v, const struct larder_io *io, u32 *lead)
{
	u32 into;

	div_u64_rem(io->sector + v->stripe_phase, v->stripe, &into);
	*lead = into ? v->stripe - into : 0;
	if (io->len < *lead + v->stripe)
		return 0;
	return rounddown(io->len - *lead, v->stripe);
}
