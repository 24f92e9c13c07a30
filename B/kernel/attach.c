// SPDX-License-Identifier: GPL-2.0-only
/*
 * Volumes come to a cache, and go.
 *
 * Attach, each step durable before the next one:
 *   1. the entry in the cache's table: UUID, sectors, incarnation
 *   2. the cache's UUID in the superblock of the backing (target.c)
 * Cut off between them the backing names no cache, so that it is complete without it; the next attach forgets the entry and begins
 * again.
 *
 * Detach, with nothing dirty left:
 *   1. the superblock of the backing: no cache, another incarnation, may_be_dirty clear (target.c)
 *   2. what the cache has of it is forgotten
 * Cut off between them the entry's incarnation tells that it is stale.
 *
 * Forgetting, also of what is stale or given up:
 *   1. the table's entry says FORGETTING, durably: cut off from here on, the next start drops what there is and frees the number
 *   2. FORGET is durable
 *   3. the volume is unpublished, so that the next checkpoint has nothing of it, then its index is dropped; copies of it in
 *      flight come to their end
 *   4. a checkpoint is named: no replay sees an entry of that number again
 *   5. the table's entry is free, durably, and the number may be given to another volume
 * Where there was an error, in 1 already, the number alone is left of it in core once 3 is done: the others are done (again) by it,
 * when somebody asks for it, or attaches the volume: cache_forget_rest(), one at a time (forget_lock).
 */
#include "larder.h"

static bool entry_used(const struct larder_table_volume *e)
{
	return le32_to_cpu(e->state) != LARDER_VOLUME_NONE;
}

/* super_lock held.  The number of the volume's entry, or of a free one; -ENOSPC. */
static int table_number(struct cache *c, const u8 uuid[16])
{
	int i, unused = -ENOSPC;

	lockdep_assert_held(&c->super_lock);
	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		const struct larder_table_volume *e = &c->table->volumes[i];

		if (entry_used(e) && !memcmp(e->uuid, uuid, LARDER_UUID_SIZE))
			return i;
		if (unused < 0 && !entry_used(e) && !c->volumes[i])
			unused = i;
	}
	return unused;
}

/* super_lock held: [0, nr_volumes) holds all that are in use. */
static void table_count(struct cache *c)
{
	u32 n = LARDER_MAX_VOLUMES;

	while (n && !entry_used(&c->table->volumes[n - 1]))
		n--;
	c->table->head.nr_volumes = cpu_to_le32(n);
}

/* super_lock held.  A new entry, durable, and its volume, published.  An error leaves the table as it was. */
static int attach_new(struct cache *c, u16 number, const u8 uuid[16], const char *label, u64 sectors, u64 incarnation)
{
	struct larder_table_volume *e = &c->table->volumes[number];
	struct volume *v = volume_create(c, number, uuid, sectors);
	int err;

	if (IS_ERR(v))
		return PTR_ERR(v);
	v->incarnation = incarnation;
	memcpy(v->label, label, LARDER_LABEL_SIZE);
	memset(e, 0, sizeof(*e));
	memcpy(e->uuid, uuid, LARDER_UUID_SIZE);
	memcpy(e->label, label, LARDER_LABEL_SIZE);
	e->state = cpu_to_le32(LARDER_VOLUME_ATTACHED);
	e->sectors = cpu_to_le64(sectors);
	e->incarnation = cpu_to_le64(incarnation);
	table_count(c);
	err = cache_table_write(c);
	if (err) {
		memset(e, 0, sizeof(*e));
		table_count(c);
		volume_put(v);
		return err;
	}
	smp_store_release(&c->volumes[number], v);	/* pairs with rcu_dereference_raw() of those who look through them */
	return 0;
}

/* As cache_attach(); -EBUSY: one that is being forgotten, or was to be. */
static int attach(struct cache *c, const u8 uuid[16], const char *label, u64 sectors, u64 incarnation, struct volume **v)
{
	const struct larder_table_volume *e;
	int number, err = 0;

	mutex_lock(&c->super_lock);
	number = table_number(c, uuid);
	if (number < 0) {
		err = number;
		goto out;
	}
	e = &c->table->volumes[number];
	if (!entry_used(e))
		err = attach_new(c, number, uuid, label, sectors, incarnation);
	else if (!c->volumes[number])
		err = -EBUSY;
	else if (le64_to_cpu(e->incarnation) != incarnation || le64_to_cpu(e->sectors) != sectors)
		err = -EEXIST;
	if (!err) {
		*v = c->volumes[number];
		volume_get(*v);
	}
out:
	mutex_unlock(&c->super_lock);
	return err;
}

/*
 * Sleeps.  label: LARDER_LABEL_SIZE bytes.  *v is counted.  An entry of this UUID and incarnation is taken as it is; the rest of
 * one that was not forgotten to the end goes first.  -EEXIST: there is one of another incarnation or size; -ENOSPC: the table is
 * full.
 */
int cache_attach(struct cache *c, const u8 uuid[16], const char *label, u64 sectors, u64 incarnation, struct volume **v)
{
	int err = attach(c, uuid, label, sectors, incarnation, v);

	if (err != -EBUSY)
		return err;
	err = cache_forget_rest(c, uuid);
	/* -ENOENT: somebody else has done it by now */
	return err && err != -ENOENT ? err : attach(c, uuid, label, sectors, incarnation, v);
}

/* ------------------------------------------------------------------ forgetting */

/*
 * Nobody will bind it from now on.  -EBUSY: somebody has, or would be left suspended: a reload of the cache unbinds volumes that
 * are mounted, and binds them again one after the other, with messages in between.
 */
static int forget_claim(struct volume *v)
{
	int err = 0;

	mutex_lock(&cache_registry_lock);
	if (volume_is_claimed(v) || v->forgotten)
		err = -EBUSY;
	else
		v->forgotten = true;
	mutex_unlock(&cache_registry_lock);
	return err;
}

/*
 * Durable; NONE frees the number.  An error leaves either state on the SSD: FORGETTING stays in memory, too, as whoever used the
 * volume then might find it dropped by the next start; NONE does not, and is written again.
 */
static int forget_entry(struct cache *c, u16 number, u32 state)
{
	struct larder_table_volume *e = &c->table->volumes[number], was;
	int err;

	mutex_lock(&c->super_lock);
	was = *e;
	if (state == LARDER_VOLUME_NONE)
		memset(e, 0, sizeof(*e));
	else
		e->state = cpu_to_le32(state);
	table_count(c);
	err = cache_table_write(c);
	if (err && state == LARDER_VOLUME_NONE) {
		*e = was;
		table_count(c);
	}
	mutex_unlock(&c->super_lock);
	return err;
}

/* Steps 1 and 2. */
static int forget_begin(struct cache *c, u16 number)
{
	struct larder_entry_in e = { .kind = LARDER_FORGET, .volume = number };

	return forget_entry(c, number, LARDER_VOLUME_FORGETTING) ?: log_entry_wait(c, &e, NULL) ?: log_sync(c);
}

/* Works that found it in c->volumes[] have ended afterwards, or hold a reference. */
static void forget_unpublish(struct cache *c, struct volume *v)
{
	mutex_lock(&c->super_lock);
	WRITE_ONCE(c->volumes[v->number], NULL);
	mutex_unlock(&c->super_lock);
	synchronize_rcu();
	flush_work(&c->reclaim_work);
	/* a reclaim that found it, for whomever: behind this its copies are on their way, or never */
	mutex_lock(&c->reclaim_lock);
	mutex_unlock(&c->reclaim_lock);
	flush_work(&c->tick.work);
	flush_work(&c->event_work);
}

/* Every extent, accounted away.  Whole extents go, so that nothing has to be allocated. */
static void forget_index(struct volume *v)
{
	u32 mask = 1u << LARDER_ST_CLEAN | 1u << LARDER_ST_DIRTY | 1u << LARDER_ST_CLEANING | 1u << LARDER_ST_ZERO |
		   1u << LARDER_ST_ZERO_CLEANING;
	struct larder_map m;
	u64 sector = 0;
	unsigned int n = 0;

	while (sector < v->sectors && larder_index_next(v->index, sector, v->sectors, mask, &m)) {
		if (WARN_ON_ONCE(volume_map_store(v, m.sector, m.len, 0, LARDER_ST_NONE, NULL)))
			break;
		sector = m.sector + m.len;
		if (!(++n % 1024))
			cond_resched();
	}
}

/* Steps 4 and 5, unless there was an error before. */
static int forget_end(struct cache *c, u16 number, const u8 uuid[16], int err)
{
	/* two: neither of the named ones may know the number once another volume can have it */
	if (!err)
		err = checkpoint_take(c);
	if (!err)
		err = checkpoint_take(c);
	if (!err)
		err = forget_entry(c, number, LARDER_VOLUME_NONE);
	if (err) {
		DMERR("cache %pUb: volume %pUb: forgetting it failed: error %d; check the SSD, then 'forget' it again", c->uuid,
		      uuid, err);
		cache_tell(c);
	}
	segments_release(c);
	reclaim_kick(c);
	return err;
}

/*
 * Sleeps.  Dirty data of it is lost: asking first is the caller's.  v: counted by the caller too.  -EBUSY: it is in use, or being
 * forgotten already; another error: the cache could not write; cache_forget_rest(), or the next start, does the rest of the steps
 * above.
 */
int cache_forget(struct cache *c, struct volume *v)
{
	int err = forget_claim(v);

	if (err)
		return err;
	moves_leave(c);
	mutex_lock(&c->forget_lock);
	err = forget_begin(c, v->number);
	forget_unpublish(c, v);
	forget_index(v);
	copies_wait(c, MAX_SCHEDULE_TIMEOUT);
	forget_index(v);	/* a copy that was on its way */
	err = forget_end(c, v->number, v->uuid, err);
	mutex_unlock(&c->forget_lock);
	reclaim_unstick(c);
	volume_put(v);		/* that of c->volumes[] */
	return err;
}

/* forget_lock held: nobody is at work on it.  -ENOENT */
static int forget_left(struct cache *c, const u8 uuid[16])
{
	const struct larder_table_volume *e;
	int number;

	mutex_lock(&c->super_lock);
	number = table_number(c, uuid);
	if (number >= 0) {
		e = &c->table->volumes[number];
		if (le32_to_cpu(e->state) != LARDER_VOLUME_FORGETTING || c->volumes[number])
			number = -ENOENT;
	}
	mutex_unlock(&c->super_lock);
	return number < 0 ? -ENOENT : number;
}

int cache_forget_rest(struct cache *c, const u8 uuid[16])
{
	int number, err;

	mutex_lock(&c->forget_lock);
	number = forget_left(c, uuid);
	err = number < 0 ? number : forget_end(c, number, uuid, forget_begin(c, number));
	mutex_unlock(&c->forget_lock);
	return err;
}

/* ------------------------------------------------------------------ without the cache */

/*
 * larder_wq: before the first write of a passthrough volume whose superblock names a cache, or one of its two copies may (rule 11):
 * that cache is stale from then on.  Sleeps; an error is the write's, and the next one tries again.
 */
int volume_raise_incarnation(struct volume *v)
{
	u64 next;
	int err = 0;

	mutex_lock(&v->super_lock);
	if (v->raised)
		goto out;
	next = incarnation_next(le64_to_cpu(v->sb->incarnation));
	v->sb->incarnation = cpu_to_le64(next);
	err = volume_super_write(v);
	if (err) {
		/* it may be on the device all the same: never go back */
		DMERR("%pg: the incarnation could not be raised: error %d; nothing is written before it is", v->bdev, err);
		goto out;
	}
	v->incarnation = next;
	WRITE_ONCE(v->raised, true);
out:
	mutex_unlock(&v->super_lock);
	return err;
}
