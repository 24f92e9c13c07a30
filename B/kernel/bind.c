// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a table of `larder` and the superblock of the backing ask for together: bound, attached, detached, passed through, or
 * refused.
 *
 * The constructor has it checked, so that a live volume is not left suspended by a table that cannot be; preresume reads the
 * superblock anew and checks again:
 *
 *   table	superblock names	the cache has of it		what happens
 *   cache C	C			an entry, same incarnation	bound; clean_void: without what is clean, and if nothing
 *									is dirty either, as one that left by itself; refused if
 *									it has pieces of less than a block of the backing
 *   cache C	C			an entry, another one, or it	refused as stale; `stale discard`, or it left by itself
 *				is older or newer (age.c)	(leave.c): forgotten, attached anew
 *   cache C	C			nothing				may_be_dirty: refused; else attached anew
 *   cache C	another cache		-				refused
 *   cache C	none			nothing, or leftovers		may_be_dirty: refused; else attached anew
 *   -		none			-				passed through
 *   -		C, running		an entry, same incarnation	detached; refused while anything is dirty
 *   -		C			nothing, stale, older or newer	may_be_dirty: refused; else passed through, raised
 *
 * raised: the incarnation, before the first write; so too where the two copies of the superblock differ: a power cut came between
 * them, and the older one says something else.  leftovers: of an attach or a detach that was cut off; nothing dirty is in
 * them, or they are stale.
 *
 * Locks: c->targets_lock (mutex, outermost: it is held while the volumes of a cache are suspended and resumed, so never taken by
 * what runs then), vt->lock (preresume, postsuspend, and messages that change what these read), then those of larder.h.
 */
#include "larder.h"

static LIST_HEAD(volume_targets);		/* cache_registry_lock */

static bool uuid_none(const u8 uuid[16])
{
	return !memchr_inv(uuid, 0, LARDER_UUID_SIZE);
}

static bool uuid_same(const u8 a[16], const u8 b[16])
{
	return !memcmp(a, b, LARDER_UUID_SIZE);
}

static bool sb_may_be_dirty(const struct larder_volume_sb *sb)
{
	return le32_to_cpu(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY;
}

/* What the cache that it names has of it, whatever a replay finds, was on the backing when it left: leave.c */
static bool sb_left(const struct volume_target *vt)
{
	return le32_to_cpu(vt->sb->head.flags) & LARDER_VOLUME_LEFT && uuid_same(vt->sb->cache_uuid, vt->cache->uuid);
}

static bool sb_is_older(const struct volume_target *vt, const struct volume *v)
{
	return !vt->accept_older && volume_is_older(v, vt->backing->bdev, vt->sb);
}

/* The other way round: an SSD that was put back from an image, say. */
static bool cache_lags(const struct volume_target *vt, const struct volume *v)
{
	return !vt->accept_older && cache_is_older(v, vt->backing->bdev, vt->sb);
}

static bool ages_apart(const struct volume_target *vt, const struct volume *v)
{
	return sb_is_older(vt, v) || cache_lags(vt, v);
}

/* What v has is of this backing, of no later time than what is there, and of no earlier one than what that knows of. */
static bool sb_fits(const struct volume_target *vt, const struct volume *v)
{
	return le64_to_cpu(vt->sb->incarnation) == v->incarnation && !ages_apart(vt, v);
}

/* The backing was written past the log of the cache that it names, which had failed: leave.c */
static bool sb_clean_void(const struct volume_target *vt)
{
	return le32_to_cpu(vt->sb->head.flags) & LARDER_VOLUME_CLEAN_VOID;
}

/* ------------------------------------------------------------------ what fits, and what is refused */

/* Table with a cache, superblock naming another one. */
static int check_named(struct volume_target *vt)
{
	const struct larder_volume_sb *sb = vt->sb;

	if (uuid_none(sb->cache_uuid)) {
		if (!sb_may_be_dirty(sb))
			return 0;
		DMERR("%pg: may_be_dirty is set, and no cache is named: 'larder super check' says more", vt->backing->bdev);
		return -EINVAL;
	}
	if (uuid_same(sb->cache_uuid, vt->cache->uuid))
		return 0;
	DMERR("%pg: volume %pUb belongs to cache %pUb, not to %pUb: 'larder volume detach' it from that one first",
	      vt->backing->bdev, sb->head.uuid, sb->cache_uuid, vt->cache->uuid);
	return -EINVAL;
}

/*
 * v: what the cache has of it, which counts.  Behind another bus or bridge the backing may show larger blocks than what is cached
 * was written in: what lies beside such a piece could not be read, nor the piece be written back.  Once, where v is not in use.
 */
static int check_blocks(struct volume_target *vt, struct volume *v)
{
	unsigned int size = bdev_logical_block_size(vt->backing->bdev), n = 0;
	u32 mask = (size >> SECTOR_SHIFT) - 1;
	struct larder_map m;
	u64 from;

	if (!mask || vt->blocks_fit)
		return 0;
	for (from = 0; larder_index_next(v->index, from, v->sectors, ~0u, &m); from = m.sector + m.len) {
		if ((m.sector | m.len) & mask) {
			DMERR("%pg: its blocks have %u bytes here, volume %pUb is cached in smaller pieces (sector %llu): %s",
			      vt->backing->bdev, size, v->uuid, m.sector,
			      "start it where they are smaller, or 'larder rescue writeback' it");
			return -EINVAL;
		}
		if (!(++n % 1024))
			cond_resched();
	}
	vt->blocks_fit = !READ_ONCE(v->active);
	return 0;
}

/* cure: where it is not the one that it had. */
static void tell_ages(const struct volume_target *vt, const struct volume *v, const char *cure)
{
	const struct larder_volume_sb *sb = vt->sb;

	if (sb_is_older(vt, v))
		DMERR("%pg: volume %pUb is older than what cache %pUb has seen of it (generation %llu there, %llu here): %s",
		      vt->backing->bdev, sb->head.uuid, vt->cache->uuid, READ_ONCE(v->seen), le64_to_cpu(sb->head.generation),
		      "put back from an image? give the disk that it had");
	else
		DMERR("%pg: cache %pUb is older than what volume %pUb knows of it (generation %llu there, %llu here): %s",
		      vt->backing->bdev, vt->cache->uuid, sb->head.uuid, READ_ONCE(v->seen), le64_to_cpu(sb->noted),
		      "an SSD put back from an image, or its copy? give the one that it had");
	DMERR("%pg: if it is, and loses what it acknowledges: option 'stale accept'; else %s (%llu sectors dirty: LOST)",
	      vt->backing->bdev, cure, (u64)atomic64_read(&v->dirty_sectors));
}

/* v: what the cache has of it.  Leftovers of a detach that was cut off are no obstacle while nothing dirty is among them. */
static int check_incarnation(struct volume_target *vt, struct volume *v)
{
	const struct larder_volume_sb *sb = vt->sb;
	u64 dirty = atomic64_read(&v->dirty_sectors);
	const char *cure = sb_may_be_dirty(sb) ? "load a table with '-' and send it 'discard_dirty'" :
						 "option 'stale discard' attaches it anew";

	if (!uuid_none(sb->cache_uuid) && sb_fits(vt, v))
		return check_blocks(vt, v);
	/* that one left says nothing of what the cache has got since */
	if ((vt->discard_stale || (sb_left(vt) && !sb_is_older(vt, v))) && !sb_may_be_dirty(sb))
		return 0;
	if (uuid_none(sb->cache_uuid) && !dirty)
		return 0;
	if (ages_apart(vt, v)) {
		tell_ages(vt, v, cure);
		return -ESTALE;
	}
	DMERR("%pg: volume %pUb ran without cache %pUb, which is stale (incarnation %llu there, %llu here; %llu sectors dirty): %s",
	      vt->backing->bdev, sb->head.uuid, vt->cache->uuid, v->incarnation, le64_to_cpu(sb->incarnation), dirty, cure);
	return -ESTALE;
}

/* Table with a cache.  Constructor and preresume. */
static int check_cached(struct volume_target *vt)
{
	struct volume *v;
	int err = check_named(vt);

	if (err)
		return err;
	if (vt->cache->started && uuid_same(vt->sb->cache_uuid, vt->cache->uuid) &&
	    !set_knows(vt->cache, le64_to_cpu(vt->sb->set_generation))) {
		DMERR("%pg: volume %pUb ran with other SSDs of cache %pUb (set %llx, these: %llx): start it with those",
		      vt->backing->bdev, vt->sb->head.uuid, vt->cache->uuid, le64_to_cpu(vt->sb->set_generation),
		      vt->cache->set_generation);
		return -ESTALE;
	}
	v = cache_find_volume(vt->cache, vt->sb->head.uuid);
	if (v) {
		err = check_incarnation(vt, v);
		volume_put(v);
		return err;
	}
	if (!sb_may_be_dirty(vt->sb))
		return 0;
	DMERR("%pg: cache %pUb has lost the dirty data of volume %pUb: load a table with '-' and send it 'discard_dirty'",
	      vt->backing->bdev, vt->cache->uuid, vt->sb->head.uuid);
	return -EINVAL;
}

/*
 * The cache that the superblock names, if it runs, with the SSDs that the volume ran with last, and has this incarnation of the
 * volume: *v, counted; *c, counted.  False: neither.
 */
static bool find_attached(struct volume_target *vt, struct cache **c, struct volume **v)
{
	if (uuid_none(vt->sb->cache_uuid))
		return false;
	mutex_lock(&cache_registry_lock);
	*c = cache_find_uuid(vt->sb->cache_uuid);
	mutex_unlock(&cache_registry_lock);
	if (!*c)
		return false;
	*v = (*c)->started ? cache_find_volume(*c, vt->sb->head.uuid) : NULL;
	if (*v && sb_fits(vt, *v) && set_knows(*c, le64_to_cpu(vt->sb->set_generation)))
		return true;
	if (*v)
		volume_put(*v);
	cache_put(*c);
	return false;
}

/* May v be detached now, or, in the constructor, soon?  It is bound to the table before then.  runs: the cache is not suspended. */
static int check_detach(struct volume_target *vt, struct cache *c, struct volume *v, bool runs)
{
	u64 dirty = atomic64_read(&v->dirty_sectors);

	if (dirty || (v->active && v->set.mode == LARDER_WRITEBACK)) {
		DMERR("%pg: volume %pUb has %llu dirty sectors%s: 'set mode writethrough', 'flush', wait, then load it again",
		      vt->backing->bdev, v->uuid, dirty, dirty ? "" : " and is in mode writeback");
		return -EBUSY;
	}
	if (READ_ONCE(c->state) != CACHE_FAILED && (READ_ONCE(c->state) != CACHE_RUNNING || !runs)) {
		DMERR("%pg: cache %pUb is suspended: resume it, then detach volume %pUb", vt->backing->bdev, c->uuid, v->uuid);
		return -EBUSY;
	}
	return 0;
}

static int check_passthrough_dirty(struct volume_target *vt)
{
	if (!sb_may_be_dirty(vt->sb))
		return 0;
	DMERR("%pg: volume %pUb may have dirty data in cache %pUb: start that one; 'discard_dirty %pUb' loses the data",
	      vt->backing->bdev, vt->sb->head.uuid, vt->sb->cache_uuid, vt->sb->cache_uuid);
	return -EUCLEAN;
}

/* Bound, or to be bound again when its cache is resumed. */
static bool volume_target_claims(struct volume_target *vt)
{
	return READ_ONCE(vt->live) || READ_ONCE(vt->suspended) || READ_ONCE(vt->resumed_by);
}

/* cache_registry_lock held.  Is v bound, or does a table wait to have it again: its cache is suspended, or just being resumed? */
bool volume_is_claimed(struct volume *v)
{
	struct volume_target *vt;

	lockdep_assert_held(&cache_registry_lock);
	list_for_each_entry(vt, &volume_targets, list)
		if (vt->volume == v && volume_target_claims(vt))
			return true;
	return v->ti;
}

/* cache_registry_lock held.  Is the volume, or another backing with its UUID, live under another dm device? */
static int check_duplicate(struct volume_target *vt)
{
	struct volume_target *other;

	list_for_each_entry(other, &volume_targets, list) {
		if (!volume_target_claims(other) || !uuid_same(other->sb->head.uuid, vt->sb->head.uuid) ||
		    dm_table_get_md(other->ti->table) == dm_table_get_md(vt->ti->table))
			continue;
		DMERR("%pg: volume %pUb is in use by dm device %s (backing %pg): remove that one first%s", vt->backing->bdev,
		      vt->sb->head.uuid, volume_target_name(other), other->backing->bdev,
		      other->backing->bdev == vt->backing->bdev ? "" : ", or give this copy a UUID of its own");
		return -EBUSY;
	}
	return 0;
}

static int check_unused(struct volume_target *vt)
{
	int err;

	mutex_lock(&cache_registry_lock);
	err = check_duplicate(vt);
	mutex_unlock(&cache_registry_lock);
	if (err)
		vt->ti->error = "The volume is in use by another dm device";
	return err;
}

/*
 * Constructor, of a table that is shorter than the superblock says: is it what the dm device goes back to because the superblock
 * of a longer one could not be written?  That one may be on the backing all the same.
 */
static bool goes_back(struct volume_target *vt)
{
	struct volume_target *other;
	bool found = false;

	mutex_lock(&cache_registry_lock);
	list_for_each_entry(other, &volume_targets, list)
		if (dm_table_get_md(other->ti->table) == dm_table_get_md(vt->ti->table) && other->grows_from &&
		    uuid_same(other->sb->head.uuid, vt->sb->head.uuid))
			found |= vt->ti->len >= other->grows_from;
	mutex_unlock(&cache_registry_lock);
	return found;
}

static int check_length(struct volume_target *vt)
{
	u64 len = vt->ti->len, sectors = le64_to_cpu(vt->sb->sectors), room = volume_room(vt->sb, vt->backing->bdev);

	if (len < sectors && !goes_back(vt)) {
		DMERR("%pg: sectors: the table has %llu, the volume %llu, and a volume cannot be made smaller: give that many",
		      vt->backing->bdev, len, sectors);
		vt->ti->error = "The table is shorter than the volume";
		return -EINVAL;
	}
	if (len > max(sectors, room)) {
		DMERR("%pg: sectors: the table has %llu sectors, the volume %llu: give %llu at most, or make the backing larger",
		      vt->backing->bdev, len, sectors, max(sectors, room));
		vt->ti->error = "There is no room for so many sectors on the backing";
		return -EINVAL;
	}
	vt->grows_from = len > sectors ? sectors : 0;
	return 0;
}

static int resume_read_super(struct volume_target *vt);

/* Constructor: it may have been unbound since its superblock was read, and so be older than what was seen as it was. */
static int check_read_again(struct volume_target *vt)
{
	struct volume *v = cache_find_volume(vt->cache, vt->sb->head.uuid);
	bool older = v && sb_is_older(vt, v);

	if (v)
		volume_put(v);
	return older ? resume_read_super(vt) : 0;
}

/*
 * Constructor: what would leave a live volume suspended is refused when the table is loaded.  Without its cache the table is
 * loaded even if may_be_dirty is set, so that there is something to send 'discard_dirty' to; preresume refuses it.
 */
int volume_target_check(struct volume_target *vt)
{
	struct volume *v;
	struct cache *c;
	int err = check_unused(vt);

	if (!err)
		err = check_length(vt);
	if (err)
		return err;
	if (vt->cache) {
		err = check_read_again(vt) ?: check_cached(vt);
	} else if (find_attached(vt, &c, &v)) {
		err = check_detach(vt, c, v, !READ_ONCE(c->suspending));
		volume_put(v);
		cache_put(c);
	} else {
		err = 0;
	}
	if (err)
		vt->ti->error = "Backing and cache do not fit: the line before says why";
	return err;
}

/* ------------------------------------------------------------------ the list of tables */

void volume_target_list(struct volume_target *vt)
{
	if (vt->cache) {
		mutex_lock(&vt->cache->targets_lock);
		list_add_tail(&vt->sibling, &vt->cache->targets);
		mutex_unlock(&vt->cache->targets_lock);
	}
	mutex_lock(&cache_registry_lock);
	list_add_tail(&vt->list, &volume_targets);
	mutex_unlock(&cache_registry_lock);
}

/* Takes back the internal suspend that volumes_resume() would have taken back. */
void volume_target_unlist(struct volume_target *vt)
{
	mutex_lock(&cache_registry_lock);
	list_del(&vt->list);
	mutex_unlock(&cache_registry_lock);
	if (!vt->cache)
		return;
	mutex_lock(&vt->cache->targets_lock);
	list_del(&vt->sibling);
	if (vt->suspended)
		dm_internal_resume(dm_table_get_md(vt->ti->table));
	mutex_unlock(&vt->cache->targets_lock);
}

/* ------------------------------------------------------------------ preresume */

/* The table before may have written the superblock since the constructor read it. */
static int resume_read_super(struct volume_target *vt)
{
	struct block_device *bdev = vt->backing->bdev;
	struct larder_volume_sb *sb = kzalloc(LARDER_SB_SIZE, GFP_NOIO);
	const char *why;
	int err;

	if (!sb)
		return -ENOMEM;
	err = super_read_volume(bdev, sb, &why);
	if (err) {
		DMERR("%pg: %s: the volume cannot be started; 'larder super check' says more", bdev, why);
	} else if (!uuid_same(sb->head.uuid, vt->sb->head.uuid) || sb->data_offset != vt->sb->data_offset ||
		   sb->sectors != vt->sb->sectors) {
		DMERR("%pg: the superblock is another one than when the table was loaded: load the table again", bdev);
		err = -ESTALE;
	} else {
		memcpy(vt->sb, sb, LARDER_SB_SIZE);
		vt->sb_whole = super_volume_whole(bdev, sb, vt->ti->len, &vt->b_first);
		vt->b_first &= !vt->sb_whole;
	}
	kfree(sb);
	return err;
}

/* cache_registry_lock held.  It has left its cache, which had failed: bound again, it goes past that, and its SSDs (leave.c). */
static bool has_left(const struct volume_target *vt)
{
	return vt->volume && READ_ONCE(vt->cache->state) == CACHE_FAILED && READ_ONCE(vt->volume->leave) == LEAVE_DONE;
}

/* From here to volume_postsuspend(), or to the error, the UUID is ours and the cache is not suspended, or was left. */
static int resume_claim(struct volume_target *vt)
{
	const struct cache *c = vt->cache;
	int err;

	mutex_lock(&cache_registry_lock);
	err = check_duplicate(vt);
	if (!err && c && (c->suspending || !c->started || c->state == CACHE_SUSPENDED) && !has_left(vt)) {
		DMERR("%pg: cache %pUb %s, then volume %pUb", vt->backing->bdev, c->uuid,
		      c->ti ? "is suspended: resume it" : "has no table: load that into its device, resume it", vt->sb->head.uuid);
		err = -EBUSY;
	}
	if (!err)
		WRITE_ONCE(vt->live, true);
	mutex_unlock(&cache_registry_lock);
	return err;
}

static void resume_unclaim(struct volume_target *vt)
{
	mutex_lock(&cache_registry_lock);
	WRITE_ONCE(vt->live, false);
	mutex_unlock(&cache_registry_lock);
}

/*
 * cache_registry_lock held.  A passthrough volume flushes its backing as it is unbound.  What that has failed to secure users are
 * told of by the next flush, which is that of another one: bound by this table, or the next.
 */
static void resume_take_owed(const struct volume_target *vt, struct volume *v)
{
	struct volume_target *other;

	list_for_each_entry(other, &volume_targets, list)
		if (other->volume && other->volume != v && !other->volume->cache && other->backing->bdev == vt->backing->bdev)
			flusher_hand_over(&other->volume->flusher, &v->flusher);
}

/* vt->volume: v, whose reference it takes over. */
static void resume_set_volume(struct volume_target *vt, struct volume *v)
{
	struct volume *old;

	mutex_lock(&cache_registry_lock);
	if (v)
		resume_take_owed(vt, v);
	old = vt->volume;
	vt->volume = v;
	mutex_unlock(&cache_registry_lock);
	if (old)
		volume_put(old);
}

/* Bound, with the settings of this table, and not active yet. */
static int resume_bind(struct volume_target *vt, struct volume *v)
{
	int err = volume_settings_apply(v, &vt->set);

	if (err)
		return err;
	mutex_lock(&v->super_lock);
	v->b_first = vt->b_first;
	mutex_unlock(&v->super_lock);
	err = volume_bind(v, vt->ti, vt->backing->bdev, vt->sb);
	if (err == -EBUSY)
		DMERR("%pg: volume %pUb is being forgotten by its cache: try again later", vt->backing->bdev, v->uuid);
	if (err)
		return err;
	mutex_lock(&v->super_lock);
	memcpy(vt->sb, v->sb, LARDER_SB_SIZE);	/* it may have grown */
	mutex_unlock(&v->super_lock);
	return 0;
}

/*
 * Before anything is read through it: what is clean in the index does not count (void-drops-clean).  The log has it still, and each
 * start comes to this again, until the incarnation is raised.  Reclaim may be moving some of it.
 */
static void resume_void(struct volume_target *vt, struct volume *v)
{
	if (!sb_clean_void(vt) || v->clean_voided)
		return;
	while (volume_drop_clean(v, 0, v->sectors))
		;
	v->clean_voided = true;
	DMWARN("%pg: volume %pUb was written past cache %pUb, which had failed: what is clean there does not count",
	       vt->backing->bdev, v->uuid, vt->cache->uuid);
}

/* The superblock that v has got, durable. */
static int resume_write_super(struct volume_target *vt, struct volume *v)
{
	int err;

	mutex_lock(&v->super_lock);
	err = volume_super_write(v);
	if (!err)
		memcpy(vt->sb, v->sb, LARDER_SB_SIZE);
	mutex_unlock(&v->super_lock);
	return err;
}

/*
 * The backing knows the set that it runs with before anything is read through it, or written back to it (rule 14): a generation
 * that every SSD has, as one that a power cut takes from them would be known to none.  v is bound, and not active.  attached: its
 * superblock has more that is new.  Nor does it run with two copies that differ: what an older one says of may_be_dirty, generation
 * and incarnation would count if the newer one were lost.  (Where they say the same but for more sectors than the table has, as a
 * growth has failed, that makes no difference.)  And each time is one that an image may be older than: age.c.
 */
static int resume_generation(struct volume_target *vt, struct volume *v, bool attached)
{
	struct cache *c = vt->cache;
	bool needed, dirty;
	u64 generation;
	int err;

	set_wait(c);
	mutex_lock(&v->super_lock);
	generation = READ_ONCE(c->set_durable);
	/* an older superblock was accepted: what the cache has is of a later one, which said so (rule 11) */
	dirty = atomic64_read(&v->dirty_sectors) && !sb_may_be_dirty(v->sb);
	if (dirty)
		v->sb->head.flags |= cpu_to_le32(LARDER_VOLUME_MAY_BE_DIRTY);
	needed = attached || dirty || !vt->sb_whole || le64_to_cpu(v->sb->set_generation) != generation;
	v->sb->set_generation = cpu_to_le64(generation);
	/* older, and accepted: the next bind asks for no word */
	if (le64_to_cpu(v->sb->head.generation) < v->seen)
		v->sb->head.generation = cpu_to_le64(v->seen);
	WRITE_ONCE(v->flusher.written, false);
	err = volume_super_write(v);
	WRITE_ONCE(v->see_failed, err);
	if (!err && dirty)
		WRITE_ONCE(v->may_be_dirty, true);
	if (!err)
		memcpy(vt->sb, v->sb, LARDER_SB_SIZE);
	mutex_unlock(&v->super_lock);
	if (!err) {
		volume_seen(v, le64_to_cpu(vt->sb->head.generation));
		mutex_lock(&v->super_lock);
		if (!v->see_failed)
			memcpy(vt->sb, v->sb, LARDER_SB_SIZE);
		mutex_unlock(&v->super_lock);
		return 0;
	}
	/* a disk that can be read only is read: of either copy all but the generation is as it was */
	if (!needed) {
		DMWARN("%pg: the superblock could not be written: error %d; volume %pUb is started as it is", vt->backing->bdev,
		       err, v->uuid);
		return 0;
	}
	DMERR("%pg: the set of SSDs could not be noted in the superblock: error %d; the volume is not started", vt->backing->bdev,
	      err);
	return err;
}

/* Active, with a superblock that names the cache and its set. */
static int resume_bind_cached(struct volume_target *vt, struct volume *v, bool attached)
{
	int err = resume_bind(vt, v);

	if (err)
		return err;
	err = resume_generation(vt, v, attached);
	if (err)
		volume_unbind(v);
	else
		volume_activate(v);
	return err;
}

/* The entry in the cache first, then the superblock: attach.c. */
static int resume_attach(struct volume_target *vt)
{
	struct larder_volume_sb *sb = vt->sb;
	struct cache *c = vt->cache;
	struct volume *v;
	int err;

	if (READ_ONCE(c->state) != CACHE_RUNNING) {
		DMERR("%pg: cache %pUb has failed: nothing can be attached to it", vt->backing->bdev, c->uuid);
		return -EIO;
	}
	err = cache_attach(c, sb->head.uuid, sb->label, le64_to_cpu(sb->sectors), le64_to_cpu(sb->incarnation), &v);
	if (err) {
		DMERR("%pg: volume %pUb cannot be attached to cache %pUb: error %d%s", vt->backing->bdev, sb->head.uuid, c->uuid,
		      err, err == -ENOSPC ? ", its table of volumes is full: 'forget' one that is not needed" : "");
		return err;
	}
	memcpy(sb->cache_uuid, c->uuid, LARDER_UUID_SIZE);
	sb->head.flags &= ~cpu_to_le32(LARDER_VOLUME_LEFT | LARDER_VOLUME_CLEAN_VOID);
	sb->set_generation = cpu_to_le64(READ_ONCE(c->set_durable));
	err = resume_bind_cached(vt, v, true);
	if (err)
		volume_put(v);
	else
		resume_set_volume(vt, v);
	return err;
}

/* What the cache has of it is of no use: stale, or the leftovers of a detach. */
static int resume_forget(struct volume_target *vt, struct volume *v)
{
	u64 dirty = atomic64_read(&v->dirty_sectors);
	int err;

	resume_set_volume(vt, NULL);	/* it may have had v before: it has no claim to it any more */
	err = cache_forget(vt->cache, v);
	if (err)
		DMERR("%pg: what cache %pUb has of volume %pUb cannot be forgotten: error %d", vt->backing->bdev, vt->cache->uuid,
		      v->uuid, err);
	else if (dirty)
		DMWARN("cache %pUb: %llu dirty sectors of a stale volume %pUb were given up (stale discard)", vt->cache->uuid,
		       dirty, v->uuid);
	return err;
}

/*
 * The superblock of the backing alone, no volume of it bound: nothing dirty counts, and what any cache has is stale.  left: in the
 * words of leave.c, for an attach to the cache that it names; else it names none.
 */
static int outdate_super(struct volume_target *vt, bool left)
{
	struct volume *v = volume_create(NULL, 0, vt->sb->head.uuid, le64_to_cpu(vt->sb->sectors));
	int err;

	if (IS_ERR(v))
		return PTR_ERR(v);
	memcpy(v->sb, vt->sb, LARDER_SB_SIZE);
	v->b_first = vt->b_first;
	v->sb->incarnation = cpu_to_le64(incarnation_next(le64_to_cpu(vt->sb->incarnation)));
	v->sb->head.flags &= ~cpu_to_le32(LARDER_VOLUME_OF_CACHE);
	if (left)
		v->sb->head.flags |= cpu_to_le32(LARDER_VOLUME_LEFT);
	else
		memset(v->sb->cache_uuid, 0, LARDER_UUID_SIZE);
	v->bdev = v->flusher.bdev = vt->backing->bdev;
	err = resume_write_super(vt, v);
	volume_put(v);
	return err;
}

static int resume_cached(struct volume_target *vt)
{
	bool named = uuid_same(vt->sb->cache_uuid, vt->cache->uuid), left;
	struct volume *v;
	int err = check_cached(vt);

	if (err)
		return err;
	v = cache_find_volume(vt->cache, vt->sb->head.uuid);
	if (v && named && sb_clean_void(vt) && sb_fits(vt, v) &&
	    READ_ONCE(vt->cache->state) == CACHE_RUNNING && !atomic64_read(&v->dirty_sectors)) {
		/* it was leaving, and nothing of it is dirty: it leaves, and is attached anew below */
		err = outdate_super(vt, true);
		if (err) {
			volume_put(v);
			return err;
		}
	}
	if (v && named && sb_fits(vt, v)) {
		/* an attach that was cut off behind its entry: the flag goes with the superblock that is written now */
		left = READ_ONCE(vt->cache->state) == CACHE_RUNNING && sb_left(vt);
		if (left)
			vt->sb->head.flags &= ~cpu_to_le32(LARDER_VOLUME_LEFT);
		resume_void(vt, v);
		err = resume_bind_cached(vt, v, left);
		if (err)
			volume_put(v);
		else
			resume_set_volume(vt, v);
		return err;
	}
	if (v && READ_ONCE(vt->cache->state) == CACHE_FAILED) {
		DMERR("%pg: cache %pUb has failed, and can forget nothing: start it again, or load a table with '-'",
		      vt->backing->bdev, vt->cache->uuid);
		volume_put(v);
		return -EIO;
	}
	if (v) {
		/* the one that it had may come back, and is another one from here on, wherever this is cut off */
		err = ages_apart(vt, v) ? outdate_super(vt, true) : 0;
		err = err ?: resume_forget(vt, v);
		volume_put(v);
		if (err)
			return err;
		/* may_be_dirty needs another word than 'stale discard': check_cached() says which */
		err = check_cached(vt);
		if (err)
			return err;
	}
	return resume_attach(vt);
}

/*
 * The backing says that it needs no cache.  The incarnation makes what that has stale: what cannot be forgotten now is forgotten by
 * the next attach.
 */
static void leave_behind(struct cache *c, bool entered, struct volume *v)
{
	u64 dirty = atomic64_read(&v->dirty_sectors);
	int err = entered ? cache_forget(c, v) : -EBUSY;

	if (err)
		DMWARN("cache %pUb: volume %pUb has left it, but is not forgotten: error %d; message 'forget %pUb%s' does that",
		       c->uuid, v->uuid, err, v->uuid, dirty ? " discard_dirty" : "");
}

/* Everything of it is on the backing, durably; then the backing says that it needs no cache, and only then the cache forgets it. */
static int detach_volume(struct volume_target *vt, struct cache *c, bool entered, struct volume *v, struct volume *pass)
{
	struct larder_volume_sb *sb = pass->sb;
	int err = !entered || READ_ONCE(c->state) == CACHE_FAILED ? 0 : log_sync(c);

	if (err && READ_ONCE(c->state) != CACHE_FAILED)
		return err;
	err = check_detach(vt, c, v, entered);
	if (err)
		return err;
	err = blkdev_issue_flush(vt->backing->bdev);
	if (err) {
		DMERR("%pg: the flush that a detach needs failed: error %d; check the device and its cables", vt->backing->bdev,
		      err);
		return err;
	}
	mutex_lock(&pass->super_lock);
	memset(sb->cache_uuid, 0, LARDER_UUID_SIZE);
	sb->incarnation = cpu_to_le64(incarnation_next(le64_to_cpu(sb->incarnation)));
	sb->head.flags &= ~cpu_to_le32(LARDER_VOLUME_OF_CACHE);
	mutex_unlock(&pass->super_lock);
	err = resume_write_super(vt, pass);
	if (err)
		return err;
	pass->incarnation = le64_to_cpu(sb->incarnation);
	pass->may_be_dirty = false;
	pass->raised = true;
	leave_behind(c, entered, v);
	return 0;
}

static int resume_detach(struct volume_target *vt, struct cache *c, struct volume *v, struct volume *pass)
{
	bool entered = cache_enter(c);
	int err = entered ? doubt_try(c) : 0;

	if (!err)
		err = detach_volume(vt, c, entered, v, pass);
	if (!err)
		flusher_hand_over(&v->flusher, &pass->flusher);
	cache_leave(c);
	return err;
}

static int resume_passthrough(struct volume_target *vt)
{
	struct volume *pass, *v;
	struct cache *c;
	bool attached;
	int err = 0;

	attached = find_attached(vt, &c, &v);
	if (!attached)
		err = check_passthrough_dirty(vt);
	if (err)
		return err;
	pass = volume_create(NULL, 0, vt->sb->head.uuid, le64_to_cpu(vt->sb->sectors));
	if (IS_ERR(pass)) {
		err = PTR_ERR(pass);
		goto put;
	}
	err = resume_bind(vt, pass);
	if (!err) {
		/* an older copy may name a cache, and count one day: it is written over before anything is */
		pass->raised = uuid_none(vt->sb->cache_uuid) && vt->sb_whole;
		if (attached)
			err = resume_detach(vt, c, v, pass);
		if (err)
			volume_unbind(pass);
		else
			volume_activate(pass);
	}
	if (err)
		volume_put(pass);
	else
		resume_set_volume(vt, pass);
put:
	if (attached) {
		volume_put(v);
		cache_put(c);
	}
	return err;
}

/*
 * Its cache was suspended, and nobody else could have the volume meanwhile: it goes on with the superblock and the settings that
 * it has.  An error here would leave it suspended, with nobody told; so what the backing refuses now is what it would refuse had
 * the cache not been suspended at all.
 */
static int resume_again(struct volume_target *vt)
{
	struct volume *v = vt->volume;
	int err = volume_settings_apply(v, &vt->set);

	if (err)
		DMWARN("%pg: volume %pUb: no memory for its settings: classes and shares are as before", vt->backing->bdev,
		       v->uuid);
	err = volume_bind(v, vt->ti, vt->backing->bdev, NULL);
	if (err)
		return err;
	set_wait(vt->cache);
	mutex_lock(&v->super_lock);
	if (READ_ONCE(v->behind) || le64_to_cpu(v->sb->set_generation) != READ_ONCE(vt->cache->set_durable))
		volume_tell_generation(v);
	memcpy(vt->sb, v->sb, LARDER_SB_SIZE);
	mutex_unlock(&v->super_lock);
	volume_activate(v);
	return 0;
}

/*
 * preresume: does what table and superblock ask for, and binds the volume.  Sleeps; the caller has said memalloc_noio_save().  An
 * error leaves it unbound, with the reason in the log.
 */
int volume_target_bind(struct volume_target *vt)
{
	bool again = READ_ONCE(vt->resumed_by) == current;
	int err;

	mutex_lock(&vt->lock);
	err = resume_claim(vt);
	if (err)
		goto out;
	/* nobody else writes it by now */
	err = again ? 0 : resume_read_super(vt);
	if (err) {
		resume_unclaim(vt);
		goto out;
	}
	if (vt->cache)
		doubt_try(vt->cache);	/* without it what fails below says so */
	if (again)
		err = resume_again(vt);
	else
		err = vt->cache ? resume_cached(vt) : resume_passthrough(vt);
	if (err) {
		resume_unclaim(vt);
	} else {
		vt->discard_stale = vt->accept_older = false;	/* once */
		vt->grows_from = 0;
	}
out:
	mutex_unlock(&vt->lock);
	return err;
}

/* Twice for one bind, or without one, does no harm.  Sleeps, as above. */
static void volume_target_unbind(struct volume_target *vt)
{
	struct volume *v;

	mutex_lock(&vt->lock);		/* a message ends first */
	v = vt->volume;
	if (!v || !vt->live)
		goto out;
	if (v->cache && !vt->noflush && READ_ONCE(v->cache->state) == CACHE_RUNNING) {
		marks_stop(v);
		/* with nothing dirty the backing is told so, and may then be started without its cache (rule 11) */
		if (!atomic64_read(&v->dirty_sectors))
			volume_try_clean(v);
		volume_see(v);
	}
	volume_unbind(v);
	resume_unclaim(vt);
out:
	mutex_unlock(&vt->lock);
}

/* Sleeps, as above. */
void volume_target_postsuspend(struct volume_target *vt)
{
	if (!READ_ONCE(vt->suspended))
		volume_target_unbind(vt);
}

/* ------------------------------------------------------------------ with its cache */

/*
 * All come to rest before one of them is unbound, which volume_target_postsuspend() leaves to this: what the last one waits for
 * may be space that is made by writing back what others have dirty.  dm counts internal suspends: each of ours is taken back
 * once, by volumes_resume(), or by the destructor of the volume.
 */
void volumes_suspend(struct cache *c)
{
	struct volume_target *vt;
	unsigned int noio;

	/* so also as dm destroys the cache, with locks of a class of which those of volumes are taken below */
	if (list_empty(&c->targets))
		return;
	mutex_lock(&c->targets_lock);
	list_for_each_entry(vt, &c->targets, sibling) {
		if (vt->suspended || !READ_ONCE(vt->live))
			continue;
		WRITE_ONCE(vt->suspended, true);
		dm_internal_suspend_noflush(dm_table_get_md(vt->ti->table));
	}
	noio = memalloc_noio_save();
	list_for_each_entry(vt, &c->targets, sibling) {
		if (!vt->suspended)
			continue;
		volume_target_unbind(vt);
		dm_table_event(vt->ti->table);
	}
	memalloc_noio_restore(noio);
	mutex_unlock(&c->targets_lock);
}

void volumes_resume(struct cache *c)
{
	struct volume_target *vt;

	mutex_lock(&c->targets_lock);
	list_for_each_entry(vt, &c->targets, sibling) {
		if (!vt->suspended)
			continue;
		/* first: as soon as it is resumed somebody else may suspend it.  At once: nobody finds it unclaimed in between */
		mutex_lock(&cache_registry_lock);
		WRITE_ONCE(vt->resumed_by, current);
		WRITE_ONCE(vt->suspended, false);
		mutex_unlock(&cache_registry_lock);
		dm_internal_resume(dm_table_get_md(vt->ti->table));
		WRITE_ONCE(vt->resumed_by, NULL);
		dm_table_event(vt->ti->table);
	}
	mutex_unlock(&c->targets_lock);
}

/* ------------------------------------------------------------------ dirty data given up */

/* vt->lock held, not claimed.  The superblock goes first: cut off behind it, what the cache has is stale. */
static int discard_dirty(struct volume_target *vt, struct cache *c, bool entered)
{
	u8 uuid[LARDER_UUID_SIZE];
	struct volume *v = NULL;
	int err;

	memcpy(uuid, vt->sb->cache_uuid, LARDER_UUID_SIZE);
	if (c && c->started && c->state != CACHE_FAILED && (c->state != CACHE_RUNNING || !entered)) {
		DMERR("%s: cache %pUb is suspended: resume it, then send the message again", volume_target_name(vt), uuid);
		return -EBUSY;
	}
	if (c && c->started)
		v = cache_find_volume(c, vt->sb->head.uuid);
	err = outdate_super(vt, false);
	if (!err) {
		DMWARN("%pg: dirty data of volume %pUb in cache %pUb was given up by message: %llu sectors are known of",
		       vt->backing->bdev, vt->sb->head.uuid, uuid, v ? (u64)atomic64_read(&v->dirty_sectors) : 0);
		if (v && c->state == CACHE_RUNNING)
			leave_behind(c, entered, v);
	}
	if (v)
		volume_put(v);
	return err;
}

/* Message `discard_dirty`, with the volume not bound.  uuid: of the cache whose data is to be lost.  Sleeps, as above. */
int volume_target_discard_dirty(struct volume_target *vt, const u8 uuid[16])
{
	struct cache *c = NULL;
	int err;

	mutex_lock(&vt->lock);
	/* also one that its cache has suspended: whoever has mounted it knows nothing of that */
	if (volume_target_claims(vt)) {
		DMERR("%s: giving up dirty data changes what the volume reads: unmount it, suspend it, then try again",
		      volume_target_name(vt));
		err = -EBUSY;
		goto out;
	}
	err = resume_read_super(vt);
	if (err)
		goto out;
	if (!uuid_same(vt->sb->cache_uuid, uuid)) {
		DMERR("%pg: volume %pUb belongs to cache %pUb, not to %pUb: name the cache whose data is to be lost",
		      vt->backing->bdev, vt->sb->head.uuid, vt->sb->cache_uuid, uuid);
		err = -EINVAL;
		goto out;
	}
	mutex_lock(&cache_registry_lock);
	err = check_duplicate(vt);
	if (!err)
		c = cache_find_uuid(uuid);
	mutex_unlock(&cache_registry_lock);
	err = err ?: discard_dirty(vt, c, c && cache_enter(c));
	if (c) {
		cache_leave(c);
		cache_put(c);
	}
out:
	mutex_unlock(&vt->lock);
	return err;
}
