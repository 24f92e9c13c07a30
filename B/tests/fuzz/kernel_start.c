// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A start, from the superblocks to what is mapped (kernel_start.h).  What the module has besides is stood in for where a start calls it: volumes with their indexes,
 * and the count of what is mapped to each segment.
 */
#include "kernel_user.h"

#include "../../kernel/class.c"
#include "../../kernel/format.c"
#include "../../kernel/index.c"
#include "../../kernel/load.c"
#include "../../kernel/replay.c"
#include "../../kernel/recover.c"
#include "../../kernel/settings.c"
#include "../../kernel/super.c"
#include "kernel_start.h"

#define must(c) pure_check(c, "promise broken: " #c)

/* ------------------------------------------------------------------ nobody to be told */

void cache_tell_errors(struct cache *c)
{
	must(c);
}

void volume_backing_failed(struct volume *v)
{
	must(v);
}

/* ------------------------------------------------------------------ volumes, segments */

static void count(struct volume *v, u64 cache, u32 len, u8 state, int sign)
{
	struct cache *c = v->cache;
	u32 segment = cache_segment(c, cache), within = cache & (c->segment_sectors - 1);

	if (larder_state_dirty(state))
		atomic64_add(sign * (s64)len, &v->dirty_sectors);
	atomic64_add(sign * (s64)len, &v->cached_sectors);
	if (larder_state_zero(state))
		return;
	must(segment < c->nr_segments && within + len <= c->data_slots * LARDER_SLOT_SECTORS);
	atomic_add(sign * (int)len, &c->segments[segment].live);
}

static void changed(void *ctx, const struct larder_map *was, u8 now, void *by)
{
	struct volume *v = ctx;

	if (was->state == now) {
		count(v, was->cache, was->len, now, 1);
		return;
	}
	count(v, was->cache, was->len, was->state, -1);
	if (now != LARDER_ST_NONE)
		count(v, was->cache, was->len, now, 1);
}

u64 volume_base_bytes(u64 sectors)
{
	return larder_index_base_bytes(sectors) + (sectors >> LARDER_INTENT_SHIFT) / 8 + sizeof(struct volume);
}

struct volume *volume_create(struct cache *c, u16 number, const u8 uuid[16], u64 sectors)
{
	struct volume *v = kzalloc(sizeof(*v), GFP_KERNEL);

	v->cache = c;
	v->number = number;
	v->sectors = sectors;
	v->nr_mark_regions = ((sectors - 1) >> LARDER_INTENT_SHIFT) + 1;
	v->known = bitmap_zalloc(v->nr_mark_regions, GFP_KERNEL);
	v->index = larder_index_create(sectors, changed, NULL, v);
	must(v->known && v->index);
	return v;
}

void volume_put(struct volume *v)
{
	larder_index_destroy(v->index);
	bitmap_free(v->known);
	kfree(v);
}

int volume_map_store(struct volume *v, u64 sector, u32 len, u64 cache, u8 state, struct item *by)
{
	int err = larder_index_store(v->index, sector, len, cache, state, by);

	if (!err && state != LARDER_ST_NONE)
		count(v, cache, len, state, 1);
	return err;
}

int volume_map_change(struct volume *v, u64 sector, u32 len, u64 cache, u32 from, u64 to_cache, u8 to_state)
{
	must(cache == to_cache);
	return larder_index_change(v->index, sector, len, cache, from, to_cache, to_state);
}

void marks_known(struct volume *v, u64 sector, u32 len)
{
	u64 region = sector >> LARDER_INTENT_SHIFT;

	must(len && sector + len <= v->nr_mark_regions << LARDER_INTENT_SHIFT);
	for (; region <= (sector + len - 1) >> LARDER_INTENT_SHIFT; region++)
		__set_bit(region, v->known);
}

void marks_load(struct volume *v, u64 region)
{
	must(region < v->nr_mark_regions);
	__set_bit(region, v->known);
}

void scrub_mend_later(struct cache *c)
{
}

void segment_set_state(struct cache *c, u32 segment, u8 state)
{
	must(segment < c->nr_segments);
	c->segments[segment].state = state;
}

/* ------------------------------------------------------------------ the cache */

/* As cache_geometry() has it, of the superblocks alone; false: the constructor would refuse them. */
static bool geometry(struct cache *c, unsigned int nr)
{
	const struct larder_cache_sb *first = NULL;
	u32 i;

	for (i = 0; i < nr; i++) {
		struct cache_device *d = &c->dev[i];
		const char *why;

		if (!d->bdev)
			continue;
		d->sb = kzalloc(LARDER_SB_SIZE, GFP_KERNEL);
		if (super_read_cache(d->bdev, d->sb, &why)) {
			must(why);
			return false;
		}
		first = first ?: d->sb;
		if (memcmp(first->cache_uuid, d->sb->cache_uuid, 16) || first->segment_size != d->sb->segment_size ||
		    le32_to_cpu(d->sb->device_number) != i)
			return false;
		memcpy(d->uuid, d->sb->head.uuid, 16);
		d->first_segment = le32_to_cpu(d->sb->first_segment);
		d->nr_segments = le32_to_cpu(d->sb->nr_segments);
		d->start = le64_to_cpu(d->sb->segments_offset) >> LARDER_SECTOR_SHIFT;
	}
	memcpy(c->uuid, first->cache_uuid, 16);
	c->nr_devices = nr;
	c->segment_sectors = le32_to_cpu(first->segment_size) >> LARDER_SECTOR_SHIFT;
	c->segment_slots = c->segment_sectors / LARDER_SLOT_SECTORS;
	c->data_slots = c->segment_slots - LARDER_SUMMARY_SLOTS;
	c->segment_shift = ilog2(c->segment_sectors);
	return true;
}

/* An SSD that is not given is as the table of another one says; numbered through, as check_places() has it. */
static bool places(struct cache *c)
{
	struct larder_table *t = kzalloc(sizeof(*t), GFP_KERNEL);
	bool good = true, in_b;
	u32 i;

	for (i = 0; i < c->nr_devices; i++)
		if (c->dev[i].bdev)
			good = good && !super_read_table(c->dev[i].bdev, c->dev[i].sb, t, &in_b);
	for (i = 0; good && i < c->nr_devices; i++) {
		struct cache_device *d = &c->dev[i];

		if (!d->bdev) {
			d->failed = true;
			c->nr_failed++;
			memcpy(d->uuid, t->devices[i].uuid, 16);
			d->first_segment = le32_to_cpu(t->devices[i].first_segment);
			d->nr_segments = le32_to_cpu(t->devices[i].nr_segments);
			d->sb = kzalloc(LARDER_SB_SIZE, GFP_KERNEL);
		}
		good = d->first_segment == c->nr_segments && d->nr_segments && d->nr_segments < 1u << 16;
		c->nr_segments += d->nr_segments;
	}
	kfree(t);
	return good && c->nr_segments >= LARDER_MIN_SEGMENTS;
}

static bool create(struct cache *c, unsigned int nr)
{
	u32 i;

	mutex_init(&c->super_lock);
	spin_lock_init(&c->log.lock);
	spin_lock_init(&c->segments_lock);
	for (i = 0; i < nr; i++)
		spin_lock_init(&c->dev[i].flusher.lock);
	c->counters = kzalloc(sizeof(*c->counters), GFP_KERNEL);
	c->table = kzalloc(sizeof(*c->table), GFP_KERNEL);
	if (!geometry(c, nr) || !places(c))
		return false;
	c->segments = kcalloc(c->nr_segments, sizeof(*c->segments), GFP_KERNEL);
	for (i = 0; i < c->nr_segments; i++)
		c->segments[i].mirror = LARDER_NO_SEGMENT;
	return true;
}

static void destroy(struct cache *c)
{
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++)
		if (c->volumes[i])
			volume_put(c->volumes[i]);
	for (i = 0; i < LARDER_MAX_DEVICES; i++)
		kfree(c->dev[i].sb);
	kfree(c->segments);
	kfree(c->table);
	kfree(c->counters);
	kfree(c);
}

/* ------------------------------------------------------------------ what was found */

/* All that is mapped lies in the volume, in order, and is what was counted. */
static u64 check_volume(struct volume *v)
{
	u64 at = 0, mapped = 0, dirty = 0;
	struct larder_map m;

	while (at < v->sectors && larder_index_next(v->index, at, v->sectors, REPLAY_ALL_STATES, &m)) {
		must(m.len && m.sector >= at && m.sector + m.len <= v->sectors);
		must(m.state == LARDER_ST_CLEAN || m.state == LARDER_ST_DIRTY || m.state == LARDER_ST_ZERO);
		must(test_bit(m.sector >> LARDER_INTENT_SHIFT, v->known));
		mapped += m.len;
		dirty += larder_state_dirty(m.state) ? m.len : 0;
		at = m.sector + m.len;
	}
	must(mapped == (u64)atomic64_read(&v->cached_sectors) && dirty == (u64)atomic64_read(&v->dirty_sectors));
	return dirty;
}

static void check_copies(const struct start *s)
{
	u32 copy[SEGMENT_COPIES], i, k, n;

	for (i = 0; i < s->c->nr_segments; i++) {
		must(atomic_read(&s->c->segments[i].live) >= 0);
		n = replay_copies(&s->r, i, copy);
		must(n && n <= SEGMENT_COPIES && copy[0] == i);
		for (k = 1; k < n; k++)
			must(copy[k] < s->c->nr_segments && segment_device(s->c, copy[k]) != segment_device(s->c, i));
	}
}

/* As start_run() begins. */
static int run(struct start *s, u64 *dirty)
{
	struct cache *c = s->c;
	u32 i;
	int err;

	err = start_superblocks(s) ?: replay_create(&s->r, c) ?: start_replay(s) ?: start_counters(s);
	if (err)
		return err;
	for (i = 0; i < LARDER_NR_CHECKPOINTS && !err; i++)
		if (i != s->used)
			err = checkpoint_protect(s, &s->old[i]);
	err = err ?: start_marks(s);
	if (!err && s->flags & LARDER_CACHE_DROP_CLEAN)
		err = start_drop_clean(c);
	if (err)
		return err;
	for (i = 0; i < LARDER_MAX_VOLUMES; i++)
		if (c->volumes[i])
			*dirty += check_volume(c->volumes[i]);
	check_copies(s);
	return 0;
}

int start_of_images(const struct start_ssd *ssd, unsigned nr, unsigned long long *dirty)
{
	struct block_device bdev[LARDER_MAX_DEVICES] = { };
	struct start *s = kzalloc(sizeof(*s), GFP_KERNEL);
	struct cache *c = kzalloc(sizeof(*c), GFP_KERNEL);
	int err = -EINVAL;
	u32 i;

	*dirty = 0;
	if (!larder_caches[0])
		must(!larder_index_init());
	for (i = 0; i < nr; i++) {
		bdev[i] = (struct block_device){ .bytes = ssd[i].bytes, .sectors = ssd[i].size >> SECTOR_SHIFT, .bad = ssd[i].bad, .nr_bad = ssd[i].nr_bad };
		c->dev[i].bdev = ssd[i].bytes ? &bdev[i] : NULL;
	}
	s->c = s->r.c = c;
	if (create(c, nr))
		err = run(s, dirty);
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		kvfree(s->old[i].segments);
	if (s->r.any_volume)
		replay_destroy(&s->r);
	destroy(c);
	kfree(s);
	for (i = 0; i < nr; i++)
		bdev_undo(&bdev[i]);
	return err;
}
