// SPDX-License-Identifier: GPL-2.0-only
/*
 * Caches and volumes as objects: who finds them, who keeps them alive, who has them in use.
 *
 * A cache is created by the first table of its dm device and goes with the last reference: those of the tables of the cache, and
 * those of the tables of its volumes (which keep its dm device open as well).  It is in the registry all that time, so that a UUID
 * is never live twice, and found by the gendisk of its dm device (compared only).  Its state:
 *
 *   LOADED -> RUNNING <-> SUSPENDED	cache_start(), cache_stop()
 *        any -> FAILED			cache_fail(), one way; only new tables of a new cache object help
 *
 * A volume belongs to its cache (c->volumes[] holds a reference) and is in use while it is bound: between preresume and
 * postsuspend of one live table.  A passthrough volume is an object of its table alone.
 *
 * Invariants
 *   A bound volume has ti, bdev and the buffer of its superblock; an unbound one has no I/O to a backing in flight, nor will it
 *     begin any.
 *   c->ti and v->ti are valid while they are not NULL and cache_registry_lock is held: whoever raises an event takes it.
 *   Nothing that waits for I/O is called under cache_registry_lock.
 */
#include <linux/mm.h>

#include "larder.h"

DEFINE_MUTEX(cache_registry_lock);	/* see larder.h */
static LIST_HEAD(cache_registry);
static bool cache_hibernating;		/* cache_registry_lock */

/* ------------------------------------------------------------------ finding */

struct cache *cache_find_uuid(const u8 uuid[16])
{
	struct cache *c;

	lockdep_assert_held(&cache_registry_lock);
	list_for_each_entry(c, &cache_registry, registry) {
		if (!memcmp(c->uuid, uuid, LARDER_UUID_SIZE)) {
			cache_get(c);
			return c;
		}
	}
	return NULL;
}

struct cache *cache_find_disk(struct gendisk *disk)
{
	struct cache *c;

	lockdep_assert_held(&cache_registry_lock);
	list_for_each_entry(c, &cache_registry, registry) {
		if (c->disk == disk) {
			cache_get(c);
			return c;
		}
	}
	return NULL;
}

bool cache_hibernate(bool begins)
{
	bool none;

	mutex_lock(&cache_registry_lock);
	none = list_empty(&cache_registry);
	cache_hibernating = begins && none;
	mutex_unlock(&cache_registry_lock);
	return none;
}

int cache_register(struct cache *c)
{
	struct cache *other;

	lockdep_assert_held(&cache_registry_lock);
	if (cache_hibernating) {
		DMERR("cache %pUb: it would be started in the image of a hibernation: start it behind that", c->uuid);
		return -EBUSY;
	}
	list_for_each_entry(other, &cache_registry, registry)
		if (other->disk == c->disk || !memcmp(other->uuid, c->uuid, LARDER_UUID_SIZE))
			return -EEXIST;
	list_add_tail(&c->registry, &cache_registry);
	return 0;
}

void cache_abandon(struct cache *c)
{
	mutex_lock(&cache_registry_lock);
	list_del_init(&c->registry);
	mutex_unlock(&cache_registry_lock);
}

struct volume *cache_find_volume(struct cache *c, const u8 uuid[16])
{
	struct volume *v;
	unsigned int i;

	rcu_read_lock();
	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = rcu_dereference_raw(c->volumes[i]);
		if (v && !memcmp(v->uuid, uuid, LARDER_UUID_SIZE) && kref_get_unless_zero(&v->ref)) {
			rcu_read_unlock();
			return v;
		}
	}
	rcu_read_unlock();
	return NULL;
}

/* ------------------------------------------------------------------ events and failure */

void volume_event(struct volume *v)
{
	mutex_lock(&cache_registry_lock);
	if (v->ti)
		dm_table_event(v->ti->table);
	mutex_unlock(&cache_registry_lock);
}

bool tell_again(unsigned long *told)
{
	unsigned long last = READ_ONCE(*told);

	if (last && time_before(jiffies, last + TOLD_AGAIN))
		return false;
	return cmpxchg(told, last, jiffies ?: 1) == last;
}

void cache_tell(struct cache *c)
{
	queue_work(larder_wq, &c->event_work);
}

void cache_tell_errors(struct cache *c)
{
	if (tell_again(&c->errors_told))
		cache_tell(c);
}

void volume_tell(struct volume *v)
{
	/* volume_unbind() waits for what was queued until it is not */
	if (READ_ONCE(v->active))
		queue_work(larder_wq, &v->event_work);
}

void volume_backing_failed(struct volume *v)
{
	WRITE_ONCE(v->backing_failed, jiffies ?: 1);
	if (READ_ONCE(v->active) && tell_again(&v->errors_told))
		volume_tell(v);
}

static void volume_event_work(struct work_struct *work)
{
	volume_event(container_of(work, struct volume, event_work));
}

/* The state of the cache has changed, and with it that of its volumes. */
static void cache_event_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, event_work);
	struct volume *v;
	unsigned int i;

	mutex_lock(&cache_registry_lock);
	if (c->ti)
		dm_table_event(c->ti->table);
	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		rcu_read_lock();
		v = rcu_dereference_raw(c->volumes[i]);
		if (v && !kref_get_unless_zero(&v->ref))
			v = NULL;
		rcu_read_unlock();
		if (!v)
			continue;
		if (v->ti)
			dm_table_event(v->ti->table);
		if (READ_ONCE(c->state) == CACHE_FAILED && READ_ONCE(v->leave) == LEAVE_UNDECIDED)
			leave_kick(v);
		/* never the last one: c->volumes[] gives its own back only behind a flush of this work */
		volume_put(v);
	}
	mutex_unlock(&cache_registry_lock);
}

bool cache_enter(struct cache *c)
{
	down_read(&c->users);
	return !READ_ONCE(c->suspending);
}

void cache_leave(struct cache *c)
{
	up_read(&c->users);
}

struct volume *cache_volume_get(struct cache *c, u32 number)
{
	struct volume *v;

	rcu_read_lock();
	v = number < LARDER_MAX_VOLUMES ? rcu_dereference_raw(c->volumes[number]) : NULL;
	if (v)
		volume_get(v);
	rcu_read_unlock();
	return v;
}

int cache_refill(struct cache *c, int (*refill)(struct larder_index *idx))
{
	struct volume *v;
	int err = 0;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = cache_volume_get(c, i);
		if (!v)
			continue;
		if (larder_index_low(v->index))
			err = refill(v->index) ?: err;
		volume_put(v);
	}
	return err;
}

/* Ahead of need.  An error: the next writer that takes from a reserve asks for it again. */
static void cache_refill_work(struct work_struct *work)
{
	cache_refill(container_of(work, struct cache, refill_work), larder_index_refill);
}

/* A writer of an index, any context: half of its reserve is gone. */
static void index_low(void *ctx)
{
	struct volume *v = ctx;

	queue_work(v->cache->bg_wq, &v->cache->refill_work);
}

void cache_fail(struct cache *c, const char *why)
{
	enum cache_state was = READ_ONCE(c->state);

	do {
		if (was == CACHE_FAILED)
			return;
	} while (!try_cmpxchg(&c->state, &was, CACHE_FAILED));
	DMERR("cache %pUb on %pg: %s: it has failed, nothing more is written to it; check the SSD, stop and start the cache",
	      c->uuid, cache_bdev(c), why);
	wake_up(&c->log.wait);
	defer_kick(c);
	cache_tell(c);
}

/* ------------------------------------------------------------------ memory */

/*
 * Under memalloc_noio_save(), as all starts and messages are, kernels before 6.15 take an allocation of this kind for one that may
 * not sleep: it has what is there already, and fails, with memory enough.  A work of theirs makes more then.
 */
void __percpu *counters_alloc(size_t bytes, size_t align)
{
	void __percpu *p;
	unsigned int i;

	for (i = 0; i < HZ; i++) {
		p = __alloc_percpu_gfp(bytes, align, GFP_KERNEL | __GFP_NOWARN);
		if (p)
			return p;
		schedule_timeout_uninterruptible(1);
	}
	return __alloc_percpu_gfp(bytes, align, GFP_KERNEL);
}

static u64 volume_memory_bytes(struct volume *v)
{
	u64 fixed = sizeof(*v) + LARDER_SB_SIZE + num_possible_cpus() * sizeof(*v->counters) + larder_seq_bytes();

	return fixed + larder_index_bytes(v->index) + READ_ONCE(v->nr_marks) * sizeof(struct mark) +
	       3 * BITS_TO_LONGS(v->nr_mark_regions) * sizeof(long);
}

u64 cache_memory_bytes(struct cache *c)
{
	u64 slots = (u64)c->nr_segments * c->segment_slots;
	u64 bytes = c->fixed_bytes + sums_bytes(c) + atomic64_read(&c->pins_bytes) + (READ_ONCE(c->bad_slots) ? slots / 8 : 0);
	struct volume *v;
	unsigned int i;

	rcu_read_lock();
	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = rcu_dereference_raw(c->volumes[i]);
		if (v)
			bytes += volume_memory_bytes(v);
	}
	rcu_read_unlock();
	return bytes;
}

u64 cache_memory_limit(struct cache *c)
{
	u32 mib = READ_ONCE(c->set.memory_limit);

	return mib ? (u64)mib << 20 : ((u64)totalram_pages() << PAGE_SHIFT) / 10;
}

/* ------------------------------------------------------------------ caches: creation */

static void cache_init_locks(struct cache *c)
{
	unsigned int i;

	for (i = 0; i < NR_SSD_DIRECTIONS; i++)
		spin_lock_init(&c->probe[i].lock);
	mutex_init(&c->targets_lock);
	init_rwsem(&c->users);
	INIT_LIST_HEAD(&c->targets);
	mutex_init(&c->super_lock);
	mutex_init(&c->set_lock);
	mutex_init(&c->forget_lock);
	mutex_init(&c->open_lock);
	mutex_init(&c->checkpoint_lock);
	mutex_init(&c->copies_lock);
	mutex_init(&c->reclaim_lock);
	spin_lock_init(&c->pace_lock);
	mutex_init(&c->page_pool_lock);
	mutex_init(&c->scrub.lock);
	mutex_init(&c->move_lock);
	atomic64_set(&c->writable, 1);
	spin_lock_init(&c->defer_lock);
	spin_lock_init(&c->copy_lock);
	INIT_LIST_HEAD(&c->deferring);
	INIT_LIST_HEAD(&c->fills_read);
	INIT_LIST_HEAD(&c->fills_done);
}

static void cache_init_works(struct cache *c)
{
	INIT_WORK(&c->event_work, cache_event_work);
	INIT_DELAYED_WORK(&c->defer_again, defer_again);
	INIT_WORK(&c->answer_work, fill_answer_work);
	INIT_WORK(&c->copy_work, fill_work);
	INIT_DELAYED_WORK(&c->copy_timer, copies_timer);
	INIT_WORK(&c->open_work, segments_open_work);
	INIT_WORK(&c->reclaim_work, reclaim_work);
	INIT_WORK(&c->checkpoint_work, checkpoint_work);
	INIT_WORK(&c->refill_work, cache_refill_work);
	INIT_WORK(&c->set_work, set_work);
	INIT_WORK(&c->lost_work, set_lost_work);
	INIT_WORK(&c->join_work, join_work);
	INIT_WORK(&c->drain_work, drain_work);
	INIT_WORK(&c->resync.work, resync_work);
	INIT_DELAYED_WORK(&c->scrub.work, scrub_work);
	INIT_DELAYED_WORK(&c->tick, cache_tick);
	doubt_init(c);
}

/* From a checked superblock of a set, and the places of all of its SSDs. */
static void cache_geometry(struct cache *c, const struct larder_cache_sb *sb, const struct larder_table_device *place, u32 nr,
			   u32 absent)
{
	struct cache_device *d;
	u32 i;

	memcpy(c->uuid, sb->cache_uuid, LARDER_UUID_SIZE);
	memcpy(c->label, sb->label, LARDER_LABEL_SIZE);
	c->nr_devices = nr;
	c->segment_sectors = le32_to_cpu(sb->segment_size) >> LARDER_SECTOR_SHIFT;
	c->segment_slots = c->segment_sectors / LARDER_SLOT_SECTORS;
	c->data_slots = c->segment_slots - LARDER_SUMMARY_SLOTS;
	c->segment_shift = ilog2(c->segment_sectors);
	for (i = 0; i < nr; i++) {
		d = &c->dev[i];
		memcpy(d->uuid, place[i].uuid, LARDER_UUID_SIZE);
		d->first_segment = le32_to_cpu(place[i].first_segment);
		d->nr_segments = le32_to_cpu(place[i].nr_segments);
		d->start = le64_to_cpu(place[i].segments_offset) >> LARDER_SECTOR_SHIFT;
		d->failed = absent & 1u << i;
		c->nr_failed += d->failed;
		c->nr_segments += d->nr_segments;
	}
	c->sb_generation = le64_to_cpu(sb->head.generation);
}

static int cache_create_queues(struct cache *c)
{
	c->io_wq = alloc_workqueue("larder-io", WQ_MEM_RECLAIM | WQ_HIGHPRI | LARDER_WQ_PERCPU, 0);
	c->set_wq = alloc_workqueue("larder-set", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	c->open_wq = alloc_workqueue("larder-open", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	c->reclaim_wq = alloc_workqueue("larder-reclaim", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	c->meta_wq = alloc_workqueue("larder-meta", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	c->bg_wq = alloc_workqueue("larder-bg", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	return c->io_wq && c->set_wq && c->open_wq && c->reclaim_wq && c->meta_wq && c->bg_wq ? 0 : -ENOMEM;
}

/* Half a cache's worth, of two bytes each; of a huge cache what a fortieth of RAM holds: a quarter of the default memory_limit. */
static u64 ghost_blocks(u64 slots)
{
	return min_t(u64, slots / 2, ((u64)totalram_pages() << PAGE_SHIFT) / 40 / sizeof(u16));
}

static int cache_create_memory(struct cache *c)
{
	u64 slots = (u64)c->nr_segments * c->segment_slots;
	unsigned int i;
	int err;

	c->counters = larder_counters(struct cache_counters);
	c->table = kvzalloc(sizeof(*c->table), GFP_KERNEL);
	c->races = kvcalloc(1u << RACE_BUCKETS_SHIFT, sizeof(*c->races), GFP_KERNEL);
	c->any_sectors = kvmalloc_array(LARDER_MAX_VOLUMES, sizeof(*c->any_sectors), GFP_KERNEL);
	if (!c->counters || !c->table || !c->races || !c->any_sectors)
		return -ENOMEM;
	memset(c->any_sectors, 0xff, LARDER_MAX_VOLUMES * sizeof(*c->any_sectors));
	for (i = 0; i < 1u << RACE_BUCKETS_SHIFT; i++) {
		spin_lock_init(&c->races[i].lock);
		INIT_LIST_HEAD(&c->races[i].copies);
		INIT_LIST_HEAD(&c->races[i].buffered);
	}
	for (i = 0; i < c->nr_devices; i++) {
		flusher_init(&c->dev[i].flusher, c, NULL);
		c->dev[i].sb = kzalloc(LARDER_SB_SIZE, GFP_KERNEL);
		if (!c->dev[i].sb)
			return -ENOMEM;
	}
	err = mempool_init_page_pool(&c->page_pool, WRITEBACK_GROUP_PAGES, 0);
	if (!err)
		err = larder_heat_init(&c->heat, slots);
	if (err)
		return err;
	c->ghost = larder_ghost_create(ghost_blocks(slots));
	if (!c->ghost)
		return -ENOMEM;
	c->fixed_bytes += sizeof(*c) + sizeof(*c->table) + (sizeof(*c->races) << RACE_BUCKETS_SHIFT) + slots / 4 +
			  larder_ghost_bytes(c->ghost);
	return 0;
}

/* No work is pending or running, and nothing is in flight: cache_stop() saw to that if it was started. */
static void cache_free(struct cache *c)
{
	unsigned int i;

	/* what was in flight last may still be waking those who have gone on: in an interrupt, or with them off */
	synchronize_rcu();
	for (i = 0; i < LARDER_MAX_VOLUMES; i++)
		if (c->volumes[i])
			volume_put(c->volumes[i]);
	log_destroy(c);
	sums_destroy(c);
	segments_destroy(c);
	if (c->bg_wq)
		destroy_workqueue(c->bg_wq);
	if (c->reclaim_wq)
		destroy_workqueue(c->reclaim_wq);
	if (c->meta_wq)
		destroy_workqueue(c->meta_wq);
	if (c->open_wq)
		destroy_workqueue(c->open_wq);
	if (c->set_wq)
		destroy_workqueue(c->set_wq);
	if (c->io_wq)
		destroy_workqueue(c->io_wq);
	larder_ghost_destroy(c->ghost);
	larder_heat_free(&c->heat);
	pins_destroy(c);
	scrub_destroy(c);
	vfree(c->bad_slots);
	mempool_exit(&c->page_pool);
	checkpoint_destroy(c);
	for (i = 0; i < c->nr_devices; i++)
		kfree(c->dev[i].sb);
	kvfree(c->any_sectors);
	kvfree(c->races);
	kvfree(c->table);
	free_percpu(c->counters);
	kvfree(c);
}

struct cache *cache_create(const struct larder_cache_sb *sb, const struct larder_table_device *place, u32 nr, u32 absent,
			   struct gendisk *disk)
{
	struct cache *c = kvzalloc(sizeof(*c), GFP_KERNEL);
	int err;

	if (!c)
		return ERR_PTR(-ENOMEM);
	kref_init(&c->ref);
	INIT_LIST_HEAD(&c->registry);
	c->disk = disk;
	c->devt = disk_devt(disk);
	c->state = CACHE_LOADED;
	c->captured_segment = c->chunk_failed = LARDER_NO_SEGMENT;
	c->stopping = true;		/* until cache_run(): a start is alone with its log, segments and index */
	c->suspending = true;		/* until cache_resume(): a volume that is bound may do what a start still changes */
	cache_init_locks(c);
	cache_init_works(c);
	cache_settings_default(&c->set);
	cache_geometry(c, sb, place, nr, absent);
	err = cache_create_queues(c);
	if (!err)
		err = cache_create_memory(c);
	if (!err)
		err = segments_create(c);
	if (!err)
		err = sums_create(c);
	if (!err)
		err = log_create(c);
	if (err) {
		cache_free(c);
		return ERR_PTR(err);
	}
	return c;
}

/* ------------------------------------------------------------------ caches: the last reference */

void cache_get(struct cache *c)
{
	kref_get(&c->ref);
}

/* Nothing of it is in flight, and it is not bound: those that run come to their end, none is queued anew. */
static void volume_cancel_works(struct volume *v)
{
	cancel_delayed_work_sync(&v->writeback_work);
	cancel_work_sync(&v->mark_work);
	cancel_work_sync(&v->tick_work);
	cancel_work_sync(&v->flush_work);
	cancel_work_sync(&v->defer_work);
}

static void cache_cancel_works(struct cache *c)
{
	struct volume *v;
	unsigned int i;

	WRITE_ONCE(c->stopping, true);
	cancel_delayed_work_sync(&c->tick);
	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = c->volumes[i];
		if (v)
			volume_cancel_works(v);
	}
	cancel_work_sync(&c->set_work);		/* queues some of those that follow */
	cancel_work_sync(&c->lost_work);
	cancel_work_sync(&c->reclaim_work);
	cancel_work_sync(&c->checkpoint_work);
	cancel_work_sync(&c->join_work);
	cancel_work_sync(&c->drain_work);
	cancel_work_sync(&c->resync.work);
	cancel_delayed_work_sync(&c->doubt.work);
	cancel_delayed_work_sync(&c->scrub.work);
	cancel_work_sync(&c->open_work);
	cancel_delayed_work_sync(&c->copy_timer);
	cancel_work_sync(&c->answer_work);
	cancel_work_sync(&c->copy_work);
	cancel_delayed_work_sync(&c->defer_again);
	hrtimer_cancel(&c->log.timer);
	cancel_delayed_work_sync(&c->log.again_work);
	cancel_work_sync(&c->log.work);
	cancel_work_sync(&c->refill_work);
	cancel_work_sync(&c->event_work);
}

/* cache_registry_lock held, dropped here. */
static void cache_release(struct kref *ref)
{
	struct cache *c = container_of(ref, struct cache, ref);

	list_del_init(&c->registry);
	mutex_unlock(&cache_registry_lock);
	cache_cancel_works(c);
	cache_free(c);
}

/* Sleeps; takes cache_registry_lock for the last one. */
void cache_put(struct cache *c)
{
	kref_put_mutex(&c->ref, cache_release, &cache_registry_lock);
}

/* ------------------------------------------------------------------ volumes: creation and the last reference */

void volume_get(struct volume *v)
{
	kref_get(&v->ref);
}

static void volume_free(struct volume *v)
{
	if (v->cache)
		marks_destroy(v);
	larder_seq_destroy(v->seq);
	if (v->index)
		larder_index_destroy(v->index);
	volume_admit_destroy(v);
	kfree(v->sb);
	free_percpu(v->counters);
	kfree(v);
}

static void volume_release(struct kref *ref)
{
	struct volume *v = container_of(ref, struct volume, ref);

	WARN_ON_ONCE(v->active);
	volume_cancel_works(v);
	volume_free(v);
}

/* Sleeps. */
void volume_put(struct volume *v)
{
	kref_put(&v->ref, volume_release);
}

u64 volume_base_bytes(u64 sectors)
{
	return sizeof(struct volume) + larder_index_base_bytes(sectors) + marks_base_bytes(sectors);
}

static int volume_create_cached(struct volume *v)
{
	int err = marks_create(v);

	if (err)
		return err;
	v->seq = larder_seq_create();
	v->index = larder_index_create(v->sectors, index_changed, index_low, v);
	if (!v->seq || !v->index)
		return -ENOMEM;
	larder_rate_init(&v->rate, ktime_get_ns());
	return 0;
}

/*
 * c == NULL: a passthrough volume.  Not GFP_KERNEL: a start may be what memory reclaim waits for; the caller says so by
 * memalloc_noio_save().
 */
struct volume *volume_create(struct cache *c, u16 number, const u8 uuid[16], u64 sectors)
{
	struct volume *v = kzalloc(sizeof(*v), GFP_KERNEL);
	int err;

	if (!v)
		return ERR_PTR(-ENOMEM);
	kref_init(&v->ref);
	mutex_init(&v->super_lock);
	mutex_init(&v->writeback_lock);
	flusher_init(&v->flusher, NULL, v);
	INIT_DELAYED_WORK(&v->writeback_work, writeback_work);
	INIT_WORK(&v->mark_work, marks_work);
	INIT_WORK(&v->tick_work, volume_tick_work);
	INIT_WORK(&v->flush_work, user_flush_work);
	INIT_WORK(&v->leave_work, leave_work);
	INIT_WORK(&v->event_work, volume_event_work);
	INIT_LIST_HEAD(&v->flush_ready);
	INIT_WORK(&v->defer_work, defer_work);
	spin_lock_init(&v->defer_lock);
	bio_list_init(&v->deferred);
	INIT_LIST_HEAD(&v->deferring);
	volume_settings_default(&v->set);
	v->cache = c;
	v->number = number;
	v->sectors = sectors;
	v->clean_since = jiffies ?: 1;
	memcpy(v->uuid, uuid, LARDER_UUID_SIZE);
	v->counters = larder_counters(struct volume_counters);
	v->sb = kzalloc(LARDER_SB_SIZE, GFP_KERNEL);
	err = c ? volume_create_cached(v) : 0;
	if (!v->counters || !v->sb)
		err = -ENOMEM;
	if (err) {
		volume_free(v);
		return ERR_PTR(err);
	}
	return v;
}

/* ------------------------------------------------------------------ volumes: in use */

static int volume_take(struct volume *v, struct dm_target *ti)
{
	int err = 0;

	mutex_lock(&cache_registry_lock);
	if (v->ti || v->forgotten) {
		err = -EBUSY;
	} else {
		v->ti = ti;
		if (v->cache)
			v->cache->live_volumes++;
	}
	mutex_unlock(&cache_registry_lock);
	return err;
}

static void volume_give_back(struct volume *v)
{
	mutex_lock(&cache_registry_lock);
	if (v->cache)
		v->cache->live_volumes--;
	v->ti = NULL;
	mutex_unlock(&cache_registry_lock);
}

/* Rule 10: the backing is flushed once after the start of its cache. */
static int volume_flush_backing(struct volume *v)
{
	int err = v->cache && !v->backing_flushed ? blkdev_issue_flush(v->bdev) : 0;

	if (err)
		DMERR("%pg: the flush that a start needs failed: error %d; check the device and its cables", v->bdev, err);
	else
		v->backing_flushed = true;
	return err;
}

/*
 * preresume of its table.  bdev and *sb: of the backing; sb is copied; NULL: it was bound to this table before, and nothing has
 * changed.  The caller has checked that cache, UUID and incarnation fit, and that the backing has room for all of the table.
 * Sleeps: may flush the backing, and grows the volume to the length of the table.  -EBUSY: another table has it, or it is being
 * forgotten.  volume_activate() follows, or volume_unbind(): until then none of its data is written to the backing.
 */
int volume_bind(struct volume *v, struct dm_target *ti, struct block_device *bdev, struct larder_volume_sb *sb)
{
	bool again = sb && v->backing_flushed;		/* not for the first time since the cache was started */
	int err = volume_take(v, ti);

	if (err)
		return err;
	mutex_lock(&v->super_lock);
	v->bdev = bdev;
	v->flusher.bdev = bdev;
	if (sb) {
		memcpy(v->sb, sb, LARDER_SB_SIZE);
		memcpy(v->label, sb->label, LARDER_LABEL_SIZE);
		v->incarnation = le64_to_cpu(sb->incarnation);
		v->data_start = le64_to_cpu(sb->data_offset) >> LARDER_SECTOR_SHIFT;
		volume_stripe_init(v);
		WRITE_ONCE(v->behind, false);		/* who binds it sees to the generation */
		WRITE_ONCE(v->may_be_dirty, le32_to_cpu(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY);
	}
	mutex_unlock(&v->super_lock);
	if (sb)
		err = volume_flush_backing(v) ?: volume_grow(v, ti->len);
	if (err) {
		mutex_lock(&v->super_lock);
		v->bdev = v->flusher.bdev = NULL;
		mutex_unlock(&v->super_lock);
		volume_give_back(v);
		return err;
	}
	if (again && v->cache)
		marks_bound_again(v);
	return 0;
}

/* preresume, the last step: its superblock says all that it has to, and requests come when this returns. */
void volume_activate(struct volume *v)
{
	v->last_io = v->last_user_io = jiffies;
	WRITE_ONCE(v->active, true);	/* background work may begin */
	if (!v->cache)
		return;
	v->clean_since = atomic64_read(&v->dirty_sectors) ? 0 : jiffies ?: 1;
	v->writeback_error = 0;
	v->flushing = v->emptying = false;
	if (unlikely(READ_ONCE(v->cache->state) == CACHE_FAILED))
		leave_begin(v);
	reclaim_unstick(v->cache);
	writeback_kick(v);
	cache_tick_wake(v->cache);
}

/*
 * postsuspend, or a bind that failed: no request is in flight.  What was acknowledged gets its commit block; dirty data stays
 * where it is.  Afterwards nothing touches the backing any more.  Sleeps, not for long: the batch of writeback in flight, and one
 * commit.
 */
void volume_unbind(struct volume *v)
{
	struct cache *c = v->cache;

	if (!v->bdev)
		return;
	WRITE_ONCE(v->active, false);
	if (c) {
		writeback_stop(v);
		fills_wait(v);
		log_wait_applied(c, log_close_open(c, CLOSE_ASKED));
		/* also where the cache has failed: what is acknowledged from memory is no request that dm has waited for */
		wait_event(c->log.wait, !READ_ONCE(v->items));
		/* those that found it active: they flush the backing and write its superblock; one that begins now does nothing */
		flush_work(&v->mark_work);
		flush_work(&v->tick_work);
		flush_work(&v->leave_work);
		flush_work(&v->flush_work);
	}
	flusher_sync(&v->flusher, false);
	mutex_lock(&v->super_lock);
	v->flusher.bdev = NULL;
	v->bdev = NULL;
	mutex_unlock(&v->super_lock);
	flush_work(&v->event_work);	/* nothing is in flight that could fail, and its superblock is written no more */
	volume_give_back(v);
	if (c)
		flush_work(&v->leave_work);	/* cache_event_work() queues it under the lock that was just held */
}
