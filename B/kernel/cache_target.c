// SPDX-License-Identifier: GPL-2.0-only
/*
 * Target `larder-cache`: the handle of a cache.  docs/interface.md has its table, messages and status.
 *
 * The constructor opens and checks the SSDs and finds or creates the object; nothing is started, for the table before may still be
 * live.  preresume binds the object to this table's devices and settings and starts it the first time; postsuspend stops what it
 * does by itself, commits and flushes.  Live volumes are suspended before and resumed after it, so that none has a request in a
 * cache that stands still.
 *
 * Whoever may be waited for by memory reclaim (a device that is suspended, a message that holds the cache's locks) allocates under
 * memalloc_noio_save().
 */
#include "larder.h"

#define CACHE_MAX_WORDS 64u

static const char roles_why[] = "has more roles than the set has SSDs";

/* ------------------------------------------------------------------ constructor */

static bool sb_joins(const struct larder_cache_sb *sb)
{
	return le32_to_cpu(sb->head.flags) & LARDER_CACHE_JOINS;
}

/* May this SSD be used at all, and is its place in the set free?  Logs why not. */
static int check_device(struct cache_target *ct, struct block_device *bdev, const struct larder_cache_sb *sb)
{
	u32 number = le32_to_cpu(sb->device_number);

	if (bdev_read_only(bdev)) {
		DMERR("%pg: the SSD is read-only: 'blockdev --setrw' makes it writable", bdev);
		ct->ti->error = "An SSD is read-only: the line before names it";
		return -EROFS;
	}
	if (le32_to_cpu(sb->nr_devices) > ct->nr_devices || number >= ct->nr_devices || ct->dev[number]) {
		DMERR("%pg: it is number %u of a set of %u SSDs, and %u are given: give each SSD of the set once", bdev, number,
		      le32_to_cpu(sb->nr_devices), ct->nr_devices);
		ct->ti->error = "The set of SSDs is not complete";
		return -EINVAL;
	}
	if (sb_joins(sb) && ct->joins) {
		DMERR("%pg: two SSDs are to join the set: give one after the other", bdev);
		ct->ti->error = "Two SSDs are to join the set";
		return -EINVAL;
	}
	if (larder_sb_read_only(&sb->head)) {
		DMERR("%pg: ro_compat features %#llx are not known: only a newer larder may write to it", bdev,
		      le64_to_cpu(sb->head.ro_compat));
		ct->ti->error = "The cache needs a newer larder";
		return -EINVAL;
	}
	if (bdev_logical_block_size(bdev) > LARDER_SLOT_SIZE) {
		DMERR("%pg: its logical blocks have %u bytes, more than %u: not supported", bdev, bdev_logical_block_size(bdev),
		      LARDER_SLOT_SIZE);
		ct->ti->error = "The logical block size of an SSD is too large";
		return -EINVAL;
	}
	return 0;
}

static int parse_device(struct cache_target *ct, const char *path)
{
	struct dm_target *ti = ct->ti;
	struct larder_cache_sb *sb = kzalloc(LARDER_SB_SIZE, GFP_KERNEL);
	struct dm_dev *dev;
	const char *why;
	int err;

	if (!sb) {
		ti->error = "Not enough memory";
		return -ENOMEM;
	}
	err = dm_get_device(ti, path, dm_table_get_mode(ti->table), &dev);
	if (err) {
		DMERR("%s: cannot open the SSD %s: error %d", dm_device_name(dm_table_get_md(ti->table)), path, err);
		ti->error = "Cannot open an SSD: the line before names it";
		goto free;
	}
	err = super_read_cache(dev->bdev, sb, &why);
	if (err) {
		super_refused(dev->bdev, why, "an SSD of a cache", "cache");
		ti->error = "An SSD has no valid cache superblock: the line before names it";
		goto put;
	}
	/* its table is written last: it has joined, and a power cut came before its superblock said so */
	if (sb_joins(sb) && super_has_table(dev->bdev, sb))
		sb->head.flags &= cpu_to_le32(~LARDER_CACHE_JOINS);
	err = check_device(ct, dev->bdev, sb);
	if (err)
		goto put;
	ct->dev[le32_to_cpu(sb->device_number)] = dev;
	ct->sb[le32_to_cpu(sb->device_number)] = sb;
	if (sb_joins(sb))
		ct->joins = le32_to_cpu(sb->device_number) + 1;
	return 0;
put:
	dm_put_device(ti, dev);
free:
	kfree(sb);
	return err;
}

/* Of those that may be members; the one that is to join is none. */
static u32 first_number(const struct cache_target *ct)
{
	return ffz(ct->absent | (ct->joins ? 1u << (ct->joins - 1) : 0));
}

static struct larder_cache_sb *first_sb(const struct cache_target *ct)
{
	return ct->sb[first_number(ct)];
}

static struct block_device *first_bdev(const struct cache_target *ct)
{
	return ct->dev[first_number(ct)]->bdev;
}

/* Are they of one cache, with segments of one size? */
static int check_set(struct cache_target *ct)
{
	const struct larder_cache_sb *first = first_sb(ct);
	u32 i;

	for (i = 0; i < ct->nr_devices; i++) {
		const struct larder_cache_sb *sb = ct->sb[i];

		if (!sb || (!memcmp(sb->cache_uuid, first->cache_uuid, LARDER_UUID_SIZE) &&
			    sb->segment_size == first->segment_size))
			continue;
		DMERR("%pg: of cache %pUb (segments of %u bytes), %pg: of cache %pUb (%u): give the SSDs of one cache",
		      ct->dev[i]->bdev, sb->cache_uuid, le32_to_cpu(sb->segment_size), first_bdev(ct), first->cache_uuid,
		      le32_to_cpu(first->segment_size));
		ct->ti->error = "The SSDs are of different caches";
		return -EINVAL;
	}
	return 0;
}

/* The newest table of those that can be read; false: none. */
static bool newest_table(struct cache_target *ct, struct larder_table *newest, struct larder_table *t)
{
	bool any = false, in_b;
	u32 i;

	for (i = 0; i < ct->nr_devices; i++) {
		if (!ct->sb[i] || sb_joins(ct->sb[i]) || super_read_table(ct->dev[i]->bdev, ct->sb[i], t, &in_b))
			continue;
		if (!any || table_newer(t, newest))
			memcpy(newest, t, sizeof(*t));
		any = true;
	}
	return any;
}

/* Does the table have so many places, but for that of one that joins in a place of its own? */
static int check_number(struct cache_target *ct, const struct larder_table *t)
{
	u32 nr = le32_to_cpu(t->head.nr_devices);

	if (nr == ct->nr_devices || (nr + 1 == ct->nr_devices && ct->joins == ct->nr_devices))
		return 0;
	DMERR("%pg: it is number %u of a set of %u SSDs, and %u are given: give each SSD of the set once", first_bdev(ct),
	      first_number(ct), nr, ct->nr_devices);
	ct->ti->error = "The set of SSDs is not complete";
	return -EINVAL;
}

/* Where the segments of each are: an SSD's superblock says it; of one that is absent, the table of another does. */
static int find_places(struct cache_target *ct)
{
	struct larder_table *t = kvzalloc(sizeof(*t), GFP_KERNEL), *buf = kvzalloc(sizeof(*buf), GFP_KERNEL);
	bool any = t && buf && newest_table(ct, t, buf);
	int err = any ? check_number(ct, t) : t && buf ? 0 : -ENOMEM;
	u32 i;

	if (!any && !err) {
		ct->ti->error = "No SSD has a valid table of volumes: the line before says why";
		err = -ENODATA;
	}
	for (i = 0; i < ct->nr_devices && !err; i++) {
		struct larder_table_device *p = &ct->place[i];
		const struct larder_cache_sb *sb = ct->sb[i];

		*p = t->devices[i];
		if (!sb)
			continue;
		if (sb_joins(sb) && i < le32_to_cpu(t->head.nr_devices) &&
		    (sb->first_segment != p->first_segment || sb->nr_segments != p->nr_segments)) {
			DMERR("%pg: was to join as SSD %u, whose place is another one by now: it does not, and may be added again",
			      ct->dev[i]->bdev, i);
			continue;
		}
		ct->began |= sb_joins(sb) && !memcmp(p->uuid, sb->head.uuid, sizeof(p->uuid));
		/* one that is stale may have grown when it left the set: others may have these numbers */
		if (le32_to_cpu(p->state) == LARDER_DEVICE_ACTIVE || sb_joins(sb) ||
		    le32_to_cpu(p->nr_segments) > le32_to_cpu(sb->nr_segments))
			p->nr_segments = sb->nr_segments;
		memcpy(p->uuid, sb->head.uuid, sizeof(p->uuid));
		p->first_segment = sb->first_segment;
		p->segments_offset = sb->segments_offset;
	}
	kvfree(buf);
	kvfree(t);
	return err;
}

/* Numbered through, from the first SSD to the last. */
static int check_places(struct cache_target *ct)
{
	u64 next = 0;
	u32 i;

	for (i = 0; i < ct->nr_devices; i++) {
		const struct larder_table_device *p = &ct->place[i];

		if (le32_to_cpu(p->first_segment) != next || !p->nr_segments) {
			DMERR("%pg: the segments of SSD %u begin at number %u, and %llu is expected; see 'larder super show'",
			      first_bdev(ct), i, le32_to_cpu(p->first_segment), next);
			ct->ti->error = "The superblocks of the SSDs do not fit together";
			return -EINVAL;
		}
		next += le32_to_cpu(p->nr_segments);
	}
	if (next >= LARDER_MIN_SEGMENTS && next <= LARDER_NO_SEGMENT)
		return 0;
	DMERR("%pg: the set has %llu segments: %u or more are needed", first_bdev(ct), next, LARDER_MIN_SEGMENTS);
	ct->ti->error = "The cache is too small";
	return -EINVAL;
}

static u32 set_segments(const struct cache_target *ct)
{
	const struct larder_table_device *last = &ct->place[ct->nr_devices - 1];

	return le32_to_cpu(last->first_segment) + le32_to_cpu(last->nr_segments);
}

/* <n> <ssd>...: each SSD of the set once, in any order; "-" for one that is not there. */
static int parse_devices(struct cache_target *ct, struct dm_arg_set *as)
{
	static const struct dm_arg args[] = {
		{ 1, LARDER_MAX_DEVICES, "The number of SSDs must be 1 to 16" },
	};
	unsigned int n, i, given = 0;
	const char *path;
	int err;

	err = dm_read_arg(args, as, &n, &ct->ti->error);
	if (err)
		return err;
	if (as->argc < n) {
		ct->ti->error = "Fewer SSDs given than their number says";
		return -EINVAL;
	}
	ct->nr_devices = n;
	for (i = 0; i < n && !err; i++) {
		path = dm_shift_arg(as);
		if (strcmp(path, "-")) {
			err = parse_device(ct, path);
			given++;
		}
	}
	if (!err && !given) {
		ct->ti->error = "At least one SSD must be given";
		err = -EINVAL;
	}
	if (err)
		return err;
	for (i = 0; i < n; i++)
		if (!ct->dev[i])
			ct->absent |= 1u << i;
	if (ct->joins && given == 1) {
		DMERR("%pg: it is to join the set of SSDs: give those of the set too", ct->dev[ct->joins - 1]->bdev);
		ct->ti->error = "Only the SSD that is to join is given";
		return -EINVAL;
	}
	err = check_set(ct);
	if (!err)
		err = find_places(ct);
	return err ?: check_places(ct);
}

static int parse_cache_option(struct cache_target *ct, const char *key, const char *value)
{
	const char *why = "is not refuse or accept";

	if (strcmp(key, "stale")) {
		if (cache_setting_parse(&ct->set, key, value, &why) >= 0)
			return 0;
	} else {
		ct->accept_older = !strcmp(value, "accept");
		if (ct->accept_older || !strcmp(value, "refuse"))
			return 0;
	}
	DMERR("%s: %s: '%s' %s", dm_device_name(dm_table_get_md(ct->ti->table)), key, value, why);
	ct->ti->error = "Invalid option: the line before names it";
	return -EINVAL;
}

static int parse_options(struct cache_target *ct, struct dm_arg_set *as)
{
	static const struct dm_arg args[] = {
		{ 0, CACHE_MAX_WORDS, "#opts must be the number of words that follow, at most 64" },
	};
	const char *key;
	unsigned int n = 0;
	int err = 0;

	if (as->argc)
		err = dm_read_arg_group(args, as, &n, &ct->ti->error);
	if (err)
		return err;
	if (n % 2 || as->argc != n) {
		ct->ti->error = "#opts must be the number of words that follow: twice the number of options";
		return -EINVAL;
	}
	while (n) {
		key = dm_shift_arg(as);
		err = parse_cache_option(ct, key, dm_shift_arg(as));
		if (err)
			return err;
		n -= 2;
	}
	if (ct->set.nr_roles > ct->nr_devices) {
		DMERR("%s: roles: %s", dm_device_name(dm_table_get_md(ct->ti->table)), roles_why);
		ct->ti->error = "More roles than SSDs are given";
		return -EINVAL;
	}
	return 0;
}

/* Those that a start does not look at. */
static u32 not_used(const struct cache_target *ct)
{
	return ct->absent | (ct->joins ? 1u << (ct->joins - 1) : 0);
}

/* Is it to be started with the SSDs that the table has which it was made for? */
static bool starts_with(const struct cache *c, const struct cache_target *ct)
{
	u32 i, failed = 0;

	for (i = 0; i < c->nr_devices; i++)
		failed |= c->dev[i].failed ? 1u << i : 0;
	return failed == not_used(ct);
}

/* The places of a running cache do not change; one that joins may be new behind them. */
static bool places_fit(const struct cache_target *ct, const struct cache *c)
{
	u32 nr = READ_ONCE(c->nr_devices), last = ct->nr_devices - 1;

	if (c->segment_sectors != le32_to_cpu(first_sb(ct)->segment_size) >> LARDER_SECTOR_SHIFT)
		return false;
	/* more: the last one has begun to grow */
	if (nr == ct->nr_devices)
		return c->nr_segments == set_segments(ct) ||
		       (c->started && c->nr_segments < set_segments(ct) &&
			c->dev[last].first_segment == le32_to_cpu(ct->place[last].first_segment));
	return c->started && nr + 1 == ct->nr_devices && ct->joins == ct->nr_devices &&
	       c->nr_segments == le32_to_cpu(ct->place[nr].first_segment);
}

/* cache_registry_lock held.  1: *c, counted, is the object of this table; 0: there is none yet; -EBUSY. */
static int find_object(struct cache_target *ct, struct gendisk *disk, struct cache **c)
{
	const char *name = dm_device_name(dm_table_get_md(ct->ti->table));
	struct cache *other;

	*c = cache_find_uuid(first_sb(ct)->cache_uuid);
	if (*c && (*c)->disk != disk) {
		DMERR("%s: cache %pUb (%pg) is in use by another dm device: remove that one first", name, (*c)->uuid,
		      first_bdev(ct));
		ct->ti->error = "The cache is in use by another dm device";
		goto refuse;
	}
	if (*c && !places_fit(ct, *c)) {
		DMERR("%s: cache %pUb has %u segments of %u sectors, the superblock of %pg says otherwise: stop it first",
		      name, (*c)->uuid, (*c)->nr_segments, (*c)->segment_sectors, first_bdev(ct));
		ct->ti->error = "The superblock does not fit the running cache";
		goto refuse;
	}
	if (*c && !(*c)->started && !starts_with(*c, ct)) {
		DMERR("%s: cache %pUb is loaded with other SSDs missing, and was not resumed: dmsetup clear, then load this table",
		      name, (*c)->uuid);
		ct->ti->error = "Another table of this cache is loaded, with other SSDs: clear it first";
		goto refuse;
	}
	if (*c && ct->nr_devices > READ_ONCE((*c)->nr_devices) && (READ_ONCE((*c)->nr_joining) || READ_ONCE((*c)->nr_draining))) {
		DMERR("%s: SSD %u is to join, and another one joins or is drained: wait for that, or send message 'drain_stop'",
		      name, ct->joins - 1);
		ct->ti->error = "Another SSD joins or is drained: wait for that";
		goto refuse;
	}
	if (*c)
		return 1;
	other = cache_find_disk(disk);
	if (!other)
		return 0;
	DMERR("%s: it is the handle of cache %pUb, and %pg is of cache %pUb: use a dm device of its own", name, other->uuid,
	      first_bdev(ct), first_sb(ct)->cache_uuid);
	ct->ti->error = "This dm device is the handle of another cache";
	*c = other;
refuse:
	mutex_unlock(&cache_registry_lock);
	cache_put(*c);
	mutex_lock(&cache_registry_lock);
	return -EBUSY;
}

/* ct->cache: found, or created; created outside of the lock, for that needs memory. */
static int parse_object(struct cache_target *ct)
{
	struct gendisk *disk = dm_disk(dm_table_get_md(ct->ti->table));
	struct cache *c, *new = NULL;
	int r;

	for (;;) {
		mutex_lock(&cache_registry_lock);
		r = find_object(ct, disk, &c);
		if (!r && new)
			r = cache_register(new);
		mutex_unlock(&cache_registry_lock);
		if (r || new)
			break;
		new = cache_create(first_sb(ct), ct->place, ct->nr_devices, not_used(ct), disk);
		if (IS_ERR(new)) {
			ct->ti->error = "Not enough memory for the cache";
			return PTR_ERR(new);
		}
	}
	if (!r) {
		ct->cache = new;
		return 0;
	}
	if (new)
		cache_put(new);
	if (r < 0)
		return r;
	ct->cache = c;
	return 0;
}

/* super_lock not held.  Into sb; *least: what both copies have had before that; -ESTALE: it is none that the cache wrote there. */
static int read_left(struct cache *c, struct cache_device *d, struct block_device *bdev, struct larder_cache_sb *sb, u64 *least,
		     u64 *most)
{
	bool same;
	const char *why;
	u64 own;
	int err;

	mutex_lock(&c->super_lock);
	*least = d->written;
	mutex_unlock(&c->super_lock);
	err = super_read_cache(bdev, sb, &why);
	if (err) {
		DMERR("%pg: %s: it is an SSD of cache %pUb, and its superblock cannot be read", bdev, why, c->uuid);
		return err;
	}
	own = le64_to_cpu(sb->head.generation);
	mutex_lock(&c->super_lock);
	*most = le64_to_cpu(d->sb->head.generation);
	/* another life may have come to the same number */
	same = !memcmp(sb->head.uuid, d->uuid, LARDER_UUID_SIZE) && (own != *most || sb->head.crc == d->sb->head.crc);
	mutex_unlock(&c->super_lock);
	return same && own >= *least && own <= *most ? 0 : -ESTALE;
}

/*
 * Is it what the cache, which goes on with what it has in memory, left there?  An older copy of it has other data in the slots that
 * the index names, and not what is said to be durable; one that was started elsewhere has another epoch in the log.  A write that
 * failed may have left what it wrote, in one copy.  Beside it may be written: in the constructor.
 */
static int check_left(struct cache *c, u32 i, struct block_device *bdev)
{
	struct larder_cache_sb *sb = kzalloc(LARDER_SB_SIZE, GFP_NOIO);
	u64 least, most, own;
	int err = sb ? read_left(c, &c->dev[i], bdev, sb, &least, &most) : -ENOMEM;

	if (err == -ESTALE) {
		own = le64_to_cpu(sb->head.generation);
		DMERR("%pg: SSD %u of cache %pUb is not what the cache left there (generation %llu; it left %llu): %s", bdev, i,
		      c->uuid, own, own < least ? least : most,
		      own < least ? "put back from an image, or a copy of before? give the one that it has" :
				    "written to by others since? put back what it had");
	}
	kfree(sb);
	return err;
}

/*
 * A running cache goes on with the SSDs it has; one that has left it is not used, whether it is in the table or not.  A device
 * that it has had open all the time is asked nothing: it may be failing just now, and the set goes on without it then.
 */
static int check_members(struct cache_target *ct)
{
	struct cache *c = ct->cache;
	int err;
	u32 i;

	for (i = 0; c->started && i < c->nr_devices; i++) {
		if (READ_ONCE(c->dev[i].failed))
			continue;
		if (ct->dev[i] && !memcmp(ct->sb[i]->head.uuid, c->dev[i].uuid, LARDER_UUID_SIZE)) {
			err = ct->dev[i]->bdev == c->dev[i].bdev ? 0 : check_left(c, i, ct->dev[i]->bdev);
			if (err) {
				ct->ti->error = "An SSD is not what the cache left there: the line before names it";
				return err;
			}
			continue;
		}
		DMERR("cache %pUb: SSD %u is in use, and the table has %s for it: give it, or remove it first", c->uuid, i,
		      ct->dev[i] ? "another one" : "'-'");
		ct->ti->error = "An SSD that the cache uses is not in the table";
		return -EINVAL;
	}
	return 0;
}

static void cache_target_free(struct cache_target *ct)
{
	unsigned int i;

	if (ct->cache)
		cache_put(ct->cache);
	for (i = 0; i < LARDER_MAX_DEVICES; i++) {
		if (ct->dev[i])
			dm_put_device(ct->ti, ct->dev[i]);
		kfree(ct->sb[i]);
	}
	kfree(ct);
}

/*
 * With second copies on a small one there may be less room for log and checkpoints than without it: then all writes would wait.
 * Not asked of what takes the place of one that has failed: it is as large as that.
 */
static bool joiner_too_small(const struct cache_target *ct)
{
	struct cache *c = ct->cache;
	u32 place = ct->joins - 1, units;

	if (!ct->set.mirror || ct->began || (place < c->nr_devices && !c->dev[place].removed))
		return false;
	units = segments_units_with(c, place, le32_to_cpu(ct->sb[place]->nr_segments));
	if (units >= segments_units(c, NULL) || checkpoint_fits(c, units))
		return false;
	DMERR("%pg: it is too small for second copies of what cache %pUb needs: add a larger one, or set mirror=none first",
	      ct->dev[place]->bdev, c->uuid);
	return true;
}

/* Of a cache that runs; as it is started cache_join() asks. */
static int check_joiner(struct cache_target *ct)
{
	if (!ct->joins || !ct->cache->started || !joiner_too_small(ct))
		return 0;
	ct->ti->error = "The SSD that is to join is too small";
	return -ENOSPC;
}

static int cache_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	struct cache_target *ct;
	int err;

	if (ti->begin) {
		ti->error = "A cache starts at sector 0 of its dm device";
		return -EINVAL;
	}
	ct = kzalloc(sizeof(*ct), GFP_KERNEL);
	if (!ct) {
		ti->error = "Not enough memory";
		return -ENOMEM;
	}
	ct->ti = ti;
	mutex_init(&ct->lock);
	cache_settings_default(&ct->set);
	err = parse_devices(ct, &as);
	if (!err)
		err = parse_options(ct, &as);
	if (!err)
		err = parse_object(ct);
	/* and again in preresume: it would leave the cache and its volumes suspended */
	if (!err)
		err = check_members(ct);
	if (!err)
		err = check_joiner(ct);
	if (!err && ct->set.commit == COMMIT_BUFFERED) {
		err = buffered_create(ct->cache);
		if (err)
			ti->error = "Not enough memory for commit=buffered";
	}
	if (err) {
		cache_target_free(ct);
		return err;
	}
	ti->private = ct;
	return 0;
}

/*
 * Stopped by postsuspend, and no other table has taken over, but perhaps `error`, by a removal that was forced.  Of a cache that
 * runs the same table, loaded again, lets the volumes go on: it has what is dirty.  One that has failed may get none any more, as
 * its SSDs cannot be read: those that have left it need none, and of the others dm makes an ordinary suspend, which `error` or `-`
 * ends.  No lock of dm is held here.
 */
static void volumes_left_alone(struct cache *c)
{
	if (READ_ONCE(c->state) != CACHE_FAILED) {
		DMERR("cache %pUb: it has no table any more, and its volumes stand still: load that into this device again",
		      c->uuid);
		return;
	}
	DMERR("cache %pUb: it has failed, and has no table any more: of its volumes those go on that have left it", c->uuid);
	volumes_resume(c);
}

static void cache_dtr(struct dm_target *ti)
{
	struct cache_target *ct = ti->private;
	struct cache *c = ct->cache;
	bool alone = false;
	unsigned int i;

	mutex_lock(&cache_registry_lock);
	if (c->ti == ti) {
		alone = c->started && !list_empty(&c->targets);
		c->ti = NULL;
		for (i = 0; i < c->nr_devices; i++) {
			c->dev[i].dev = NULL;
			c->dev[i].bdev = NULL;
			c->dev[i].flusher.bdev = NULL;
		}
	}
	mutex_unlock(&cache_registry_lock);
	if (alone)
		volumes_left_alone(c);
	cache_target_free(ct);
}

/* ------------------------------------------------------------------ suspend and resume */

/* cache_registry_lock held.  dev: NULL, '-' in the table.  Returns what reads must look at. */
static u8 bind_device(struct cache_device *d, struct dm_dev *dev)
{
	d->dev = dev;
	d->bdev = dev ? dev->bdev : NULL;
	d->lbs = d->bdev ? bdev_logical_block_size(d->bdev) : SECTOR_SIZE;
	d->flusher.bdev = d->bdev;
	return d->lbs > SECTOR_SIZE ? LOOK_LARGE : 0;
}

/* ct->lock held.  The devices and settings of this table are those of the cache from now on. */
static void cache_bind(struct cache *c, struct cache_target *ct)
{
	dev_t joining = c->joining_dev;
	u8 large = 0;
	unsigned int i;

	lockdep_assert_held(&ct->lock);
	mutex_lock(&cache_registry_lock);
	c->ti = ct->ti;
	for (i = 0; i < c->nr_devices; i++) {
		struct cache_device *d = &c->dev[i];

		large |= bind_device(d, ct->dev[i]);
		if (d->joining && (!d->bdev || d->bdev->bd_dev != joining))
			join_forget(c, d);
	}
	WRITE_ONCE(c->look, (c->look & ~LOOK_LARGE) | large);
	mutex_unlock(&cache_registry_lock);
	if (c->started && ct->set.mirror && !c->set.mirror)
		resync_raise(c);	/* cache_run() looks */
	c->accept_older = ct->accept_older;
	c->set = ct->set;
}

/* ct->lock held.  Those that the settings give are written to the SSDs; then the settings have all of them. */
static int cache_roles(struct cache_target *ct)
{
	struct cache *c = ct->cache;
	u32 i;
	int err;

	lockdep_assert_held(&ct->lock);
	mutex_lock(&c->super_lock);
	err = cache_roles_write(c, ct->set.role, ct->set.nr_roles);
	for (i = 0; i < c->nr_devices; i++)
		ct->set.role[i] = c->dev[i].role;
	ct->set.nr_roles = c->nr_devices;
	mutex_unlock(&c->super_lock);
	c->set = ct->set;
	if (err)
		DMERR("cache %pUb: the roles of its SSDs could not be written: error %d; they hold until it is stopped",
		      c->uuid, err);
	segments_open_kick(c);
	return err;
}

/* Does the SSD still say that it joins in this place?  It may have joined since, and failed again; or been given to others. */
static bool still_joins(const struct cache_target *ct, u32 number)
{
	struct larder_cache_sb *sb = ct->sb[number];
	const struct cache *c = ct->cache;
	const struct cache_device *d = &c->dev[number];
	bool new = number == c->nr_devices;
	u32 first = new ? c->nr_segments : d->first_segment;
	u32 nr = new ? le32_to_cpu(ct->place[number].nr_segments) : d->nr_segments;
	const char *why;

	return !super_read_cache(ct->dev[number]->bdev, sb, &why) && sb_joins(sb) && le32_to_cpu(sb->device_number) == number &&
	       !memcmp(sb->cache_uuid, c->uuid, sizeof(c->uuid)) && le32_to_cpu(sb->nr_segments) == nr &&
	       le32_to_cpu(sb->first_segment) == first;
}

/* One place more, behind the others: this SSD's, which has passed all checks. */
static int cache_place(struct cache_target *ct, u32 number)
{
	struct cache *c = ct->cache;
	int err;

	mutex_lock(&cache_registry_lock);
	err = cache_grow(c, &ct->place[number]);
	if (!err)
		WRITE_ONCE(c->look, c->look | bind_device(&c->dev[number], ct->dev[number]));
	mutex_unlock(&cache_registry_lock);
	if (err)
		DMERR("cache %pUb: no memory for %u segments more: SSD %u does not join; load the table again later", c->uuid,
		      le32_to_cpu(ct->place[number].nr_segments), number);
	return err;
}

/*
 * ct->lock held.  The SSD of this table that is to join begins to, or goes on; without it, and its place if that is new, the cache
 * goes on too.
 */
static void cache_join(struct cache_target *ct)
{
	struct cache *c = ct->cache;
	u32 number = ct->joins ? ct->joins - 1 : 0;
	struct cache_device *d = &c->dev[number];
	bool new = number == c->nr_devices;

	WRITE_ONCE(c->shape_pause, false);
	if (!ct->joins || (!new && (!d->failed || d->joining)) || READ_ONCE(c->state) == CACHE_FAILED)
		return;
	if (c->nr_joining || c->nr_draining) {
		DMERR("cache %pUb: SSD %u is to join, and another one joins or is drained: load the table again later", c->uuid,
		      number);
		return;
	}
	if (set_leaves_lost(c)) {
		DMERR("cache %pUb: SSD %u is to join, and the log has still to leave those that failed: load the table again later",
		      c->uuid, number);
		return;
	}
	/* what those had is forgotten with the place; of one that is alone its copies are on the others */
	if (!new && set_nr_lost(c) > 1 && set_start_needs_lost(c)) {
		DMERR("cache %pUb: SSD %u is to join, and a start would need those that failed: load the table again later",
		      c->uuid, number);
		return;
	}
	if (!still_joins(ct, number)) {
		if (new)
			DMERR("cache %pUb: %pg does not say any more that it joins as SSD %u: add it again", c->uuid,
			      ct->dev[number]->bdev, number);
		return;
	}
	if (joiner_too_small(ct) || (new && cache_place(ct, number)))
		return;
	d->start = le64_to_cpu(ct->sb[number]->segments_offset) >> LARDER_SECTOR_SHIFT;
	if (!join_begin(c, d, ct->sb[number]))
		c->joining_dev = d->bdev->bd_dev;
	/* its own, whatever the table says */
	ct->set.role[number] = d->role;
}

/* Has the table the places of the cache, but for a new one of an SSD that joins? */
static int check_growth(struct cache_target *ct)
{
	struct cache *c = ct->cache;

	if (!c->started || ct->nr_devices == c->nr_devices || places_fit(ct, c))
		return 0;
	DMERR("cache %pUb: its set has changed since this table was loaded: load it again", c->uuid);
	return -ESTALE;
}

static void cache_unbind(struct cache *c, struct dm_target *ti)
{
	mutex_lock(&cache_registry_lock);
	if (c->ti == ti)
		c->ti = NULL;
	mutex_unlock(&cache_registry_lock);
}

struct cache *cache_target_get(struct cache_target *ct)
{
	struct cache *c;

	mutex_lock(&cache_registry_lock);
	c = ct->cache;
	cache_get(c);
	mutex_unlock(&cache_registry_lock);
	return c;
}

/* A start that failed leaves an object that nobody can use: the next attempt begins with a new one. */
static int cache_renew(struct cache_target *ct)
{
	struct cache *old = ct->cache, *new;
	int err;

	if (old->started || !list_empty(&old->registry))
		return 0;
	new = cache_create(first_sb(ct), ct->place, ct->nr_devices, not_used(ct), old->disk);
	if (IS_ERR(new))
		return PTR_ERR(new);
	mutex_lock(&ct->lock);
	err = ct->set.commit == COMMIT_BUFFERED ? buffered_create(new) : 0;
	if (err)
		goto put;
	mutex_lock(&cache_registry_lock);
	err = cache_register(new);
	if (!err)
		ct->cache = new;
	mutex_unlock(&cache_registry_lock);
	if (err)
		DMERR("cache %pUb: another table has it by now: load this one again", old->uuid);
put:
	mutex_unlock(&ct->lock);
	cache_put(err ? new : old);
	return err;
}

static int cache_first_start(struct cache *c)
{
	int err = cache_start(c);

	if (err) {
		DMERR("cache %pUb on %pg: the start failed: error %d; the lines before say why", c->uuid, cache_bdev(c), err);
		cache_abandon(c);
		return err;
	}
	return 0;
}

static void cache_run(struct cache *c)
{
	enum cache_state was = READ_ONCE(c->state);

	while (was != CACHE_FAILED && was != CACHE_RUNNING && !try_cmpxchg(&c->state, &was, CACHE_RUNNING))
		;
	WRITE_ONCE(c->stopping, false);
	log_resume(c);
	if (READ_ONCE(c->state) == CACHE_RUNNING)
		cache_allow_third(c);
	WRITE_ONCE(c->resting, false);
	queue_delayed_work(c->meta_wq, &c->tick, HZ);
	segments_open_kick(c);
	reclaim_kick(c);
	/* these append: no SSD says any more that it was stopped in order */
	if (READ_ONCE(c->nr_joining))
		queue_work(c->bg_wq, &c->join_work);
	if (READ_ONCE(c->nr_draining))
		queue_work(c->bg_wq, &c->drain_work);
	if (READ_ONCE(c->nr_failed))
		queue_work(c->meta_wq, &c->lost_work);
	resync_look(c);
	resync_kick(c);
	scrub_resume(c);
	doubt_resume(c);
	cache_tell(c);
}

/* A table that was loaded for a cache that runs: what its SSDs have grown by is used.  Not while its set changes. */
static void cache_take_growth(struct cache_target *ct)
{
	struct cache *c = ct->cache;
	u32 last = c->nr_devices - 1;

	if (ct->joins || READ_ONCE(c->nr_joining))
		return;
	cache_grow_last(c);
	ct->place[last].nr_segments = cpu_to_le32(c->dev[last].nr_segments);
}

/* It runs again: no SSD says that it was stopped in order. */
static void cache_unstop(struct cache *c)
{
	bool stopped = false;
	u32 i;

	mutex_lock(&c->super_lock);
	for (i = 0; i < c->nr_devices; i++)
		stopped |= !READ_ONCE(c->dev[i].failed) && c->dev[i].sb->head.flags & cpu_to_le32(LARDER_CACHE_CLEAN_STOP);
	if (stopped && READ_ONCE(c->state) != CACHE_FAILED)
		cache_super_write(c, 0);	/* an error is told, and is that SSD's */
	mutex_unlock(&c->super_lock);
}

/*
 * What the cache says of an SSD's durable data was flushed on the block device that it has had.  On another one, a copy, or where
 * nobody had it meanwhile, it is, before anybody believes it.  One that joins as another than it was begins again.
 */
static int check_devices(struct cache_target *ct)
{
	struct cache *c = ct->cache;
	struct block_device *bdev;
	int err = 0;
	u32 i;

	for (i = 0; i < c->nr_devices && !err; i++) {
		struct cache_device *d = &c->dev[i];

		bdev = ct->dev[i] ? ct->dev[i]->bdev : NULL;
		if (!bdev || bdev == d->bdev)
			continue;
		if (d->joining && bdev->bd_dev == c->joining_dev && (check_left(c, i, bdev) || blkdev_issue_flush(bdev)))
			c->joining_dev = 0;
		if (READ_ONCE(d->failed) || READ_ONCE(c->state) == CACHE_FAILED)
			continue;
		err = blkdev_issue_flush(bdev);
		if (err)
			DMERR("%pg: the flush that SSD %u of cache %pUb needs failed: error %d; check the device and its cables",
			      bdev, i, c->uuid, err);
	}
	return err;
}

static int cache_preresume(struct dm_target *ti)
{
	struct cache_target *ct = ti->private;
	unsigned int noio = memalloc_noio_save();
	int err = cache_renew(ct);
	bool loaded;

	if (err)
		goto out;
	loaded = ct->cache->started && ct->cache->ti != ti;
	err = check_members(ct) ?: check_growth(ct) ?: (loaded ? check_devices(ct) : 0);
	if (err)
		goto out;
	mutex_lock(&ct->lock);
	cache_bind(ct->cache, ct);
	mutex_unlock(&ct->lock);
	if (!ct->cache->started)
		err = cache_first_start(ct->cache);
	if (err) {
		cache_unbind(ct->cache, ti);
	} else {
		mutex_lock(&ct->lock);
		if (loaded)
			cache_take_growth(ct);
		ct->accept_older = false;	/* once */
		cache_join(ct);
		cache_roles(ct);
		mutex_unlock(&ct->lock);
		cache_unstop(ct->cache);
		cache_run(ct->cache);
	}
out:
	memalloc_noio_restore(noio);
	return err;
}

static void cache_set_suspending(struct cache *c, bool suspending)
{
	mutex_lock(&cache_registry_lock);
	c->suspending = suspending;
	mutex_unlock(&cache_registry_lock);
}

static void cache_resume(struct dm_target *ti)
{
	struct cache_target *ct = ti->private;

	cache_set_suspending(ct->cache, false);
	volumes_resume(ct->cache);
}

static void cache_presuspend(struct dm_target *ti)
{
	struct cache_target *ct = ti->private;

	cache_set_suspending(ct->cache, true);
	volumes_suspend(ct->cache);
}

static void cache_presuspend_undo(struct dm_target *ti)
{
	cache_resume(ti);
}

/*
 * Those that came before c->suspending.  Messages: dm has waited for them in front of a suspend, but not in front of a removal.  Of
 * volumes that leave dm knows nothing.
 */
static void users_wait(struct cache *c)
{
	down_write(&c->users);
	up_write(&c->users);
}

/*
 * No volume is bound.  What the cache does by itself ends first, but segments may still be opened: the last commit, or checkpoint,
 * may need one.  Then nothing is begun any more.
 */
static void cache_postsuspend(struct dm_target *ti)
{
	struct cache_target *ct = ti->private;
	struct cache *c = ct->cache;
	unsigned int noio = memalloc_noio_save();
	enum cache_state was = CACHE_RUNNING;

	users_wait(c);
	WRITE_ONCE(c->shape_pause, true);
	cancel_work_sync(&c->join_work);
	cancel_work_sync(&c->drain_work);
	cancel_work_sync(&c->resync.work);
	cancel_work_sync(&c->lost_work);
	cancel_delayed_work_sync(&c->scrub.work);
	cancel_delayed_work_sync(&c->tick);
	cancel_work_sync(&c->reclaim_work);
	cancel_work_sync(&c->checkpoint_work);
	cancel_delayed_work_sync(&c->doubt.work);
	cache_stop(c);
	WRITE_ONCE(c->stopping, true);
	cancel_delayed_work_sync(&c->doubt.work);
	cancel_delayed_work_sync(&c->tick);
	cancel_work_sync(&c->reclaim_work);
	cancel_work_sync(&c->checkpoint_work);
	cancel_delayed_work_sync(&c->scrub.work);	/* who reads for reclaim may have asked for it */
	cancel_work_sync(&c->open_work);
	flush_work(&c->set_work);
	cancel_delayed_work_sync(&c->copy_timer);
	hrtimer_cancel(&c->log.timer);
	flush_work(&c->log.work);
	user_flushes_wait(c);
	log_drain(c);
	/* what it waited for may have made an SSD leave; now only set_work's own writes can, which it sees to in the same run */
	flush_work(&c->set_work);
	cancel_work_sync(&c->set_work);
	cancel_work_sync(&c->lost_work);
	try_cmpxchg(&c->state, &was, CACHE_SUSPENDED);
	cache_tell(c);
	memalloc_noio_restore(noio);
}

/* ------------------------------------------------------------------ requests: none */

static int cache_map(struct dm_target *ti, struct bio *bio)
{
	if (bio_op(bio) != REQ_OP_READ)
		return DM_MAPIO_KILL;
	zero_fill_bio(bio);
	bio_endio(bio);
	return DM_MAPIO_SUBMITTED;
}

static int cache_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct cache_target *ct = ti->private;
	struct cache *c = ct->cache;
	unsigned int i;
	int r = 0;

	/* ti->len is any length: what the cache uses of each SSD counts */
	for (i = 0; !r && i < ct->nr_devices; i++)
		if (ct->dev[i])
			r = fn(ti, ct->dev[i], le64_to_cpu(ct->place[i].segments_offset) >> SECTOR_SHIFT,
			       (sector_t)le32_to_cpu(ct->place[i].nr_segments) << c->segment_shift, data);
	return r;
}

/* ------------------------------------------------------------------ messages */

static int message_set(struct cache_target *ct, bool entered, const char *key, const char *value)
{
	struct cache_settings set;
	struct cache *c;
	const char *why;
	int n, err = 0;
	bool runs;

	mutex_lock(&ct->lock);		/* one change after the other, and no other cache meanwhile */
	c = ct->cache;
	set = ct->set;
	n = cache_setting_parse(&set, key, value, &why);
	if (n >= 0 && set.nr_roles > ct->nr_devices) {
		why = roles_why;
		n = -EINVAL;
	}
	if (n >= 0 && set.commit == COMMIT_BUFFERED) {
		err = buffered_create(c);
		if (err) {
			DMERR("cache %pUb: not enough memory for commit=buffered: it stays as it was; try again", c->uuid);
			mutex_unlock(&ct->lock);
			return err;
		}
	}
	if (n >= 0) {
		if (set.mirror && !ct->set.mirror)
			resync_raise(c);
		ct->set = set;
		c->set = set;
		/* else the resume sees to it: without this table bound there is nothing to write to that stays open */
		runs = entered && c->started && READ_ONCE(c->state) == CACHE_RUNNING && READ_ONCE(c->ti) == ct->ti;
		if (!strcmp(key, "mirror") && runs) {
			cache_allow_third(c);
			resync_look(c);
		}
		if (!strcmp(key, "roles") && runs)
			err = cache_roles(ct);
		if (!strcmp(key, "commit") || !strcmp(key, "commit_interval"))
			log_interval_changed(c);
		if (!strcmp(key, "mend") && runs)
			scrub_resume(c);
	}
	if (n < 0)
		DMERR("cache %pUb: %s: '%s' %s", c->uuid, key, value, why);
	mutex_unlock(&ct->lock);
	return min(n, 0) ?: err;
}

static int message_reclaim(struct cache *c, const char *number)
{
	u32 n;

	if (kstrtou32(number, 10, &n) || !n || n > c->nr_segments) {
		DMERR("cache %pUb: reclaim: '%s' is not a number of segments (1 to %u)", c->uuid, number, c->nr_segments);
		return -EINVAL;
	}
	return reclaim_now(c, n);
}

/* A message with the number of an SSD. */
static int message_ssd(struct cache *c, const char *message, const char *number)
{
	int err;
	u32 n;

	if (kstrtou32(number, 10, &n) || n >= c->nr_devices) {
		DMERR("cache %pUb: %s: '%s' is not the number of an SSD (0 to %u)", c->uuid, message, number, c->nr_devices - 1);
		return -EINVAL;
	}
	if (!strcasecmp(message, "drain"))
		return drain_begin(c, n);
	err = set_dismiss_failed(c, &c->dev[n]);
	if (!err)
		cache_tell(c);
	return err;
}

static int message_forget(struct cache *c, unsigned int argc, char **argv)
{
	struct volume *v;
	uuid_t uuid;
	u64 dirty;
	int err;

	if (uuid_parse(argv[1], &uuid)) {
		DMERR("cache %pUb: forget: '%s' is not a UUID", c->uuid, argv[1]);
		return -EINVAL;
	}
	if (argc == 3 && strcmp(argv[2], "discard_dirty")) {
		DMERR("cache %pUb: forget: '%s' is not discard_dirty", c->uuid, argv[2]);
		return -EINVAL;
	}
	v = cache_find_volume(c, uuid.b);
	if (!v) {
		err = cache_forget_rest(c, uuid.b);
		if (err == -ENOENT)
			DMERR("cache %pUb: forget: it knows no volume %pUb", c->uuid, &uuid);
		return err;
	}
	dirty = atomic64_read(&v->dirty_sectors);
	if (dirty && argc != 3) {
		DMERR("cache %pUb: forget: %llu dirty sectors of volume %pUb: start it and 'flush', or 'discard_dirty' loses them",
		      c->uuid, dirty, &uuid);
		err = -EBUSY;
	} else {
		err = cache_forget(c, v);
		if (err == -EBUSY)
			DMERR("cache %pUb: forget: volume %pUb is in use: stop it first", c->uuid, &uuid);
		else if (!err && dirty)
			DMWARN("cache %pUb: %llu dirty sectors of volume %pUb were given up by message", c->uuid, dirty, &uuid);
	}
	volume_put(v);
	return err;
}

static int message_stack(struct cache *c, const char *hex)
{
	int err = cache_set_stack(c, hex);

	if (err == -EINVAL)
		DMERR("cache %pUb: stack: neither '-' nor up to %u bytes in hex", c->uuid, LARDER_STACK_SIZE);
	return err;
}

static int message_running(struct cache *c, bool entered)
{
	if (READ_ONCE(c->state) == CACHE_RUNNING && entered)
		return 0;
	DMERR("cache %pUb: it is %s: only 'set' is possible now", c->uuid, c->state == CACHE_FAILED ? "failed" : "suspended");
	return -EBUSY;
}

static int message_commit(struct cache *c)
{
	u64 lsn = log_close_open(c, CLOSE_ASKED);

	fills_flush(c);		/* whose callers have been answered */
	copies_wait(c, MAX_SCHEDULE_TIMEOUT);
	return log_wait_applied(c, lsn);
}

static int cache_message_run(struct cache_target *ct, struct cache *c, bool entered, unsigned int argc, char **argv)
{
	int err;

	if (argc == 3 && !strcasecmp(argv[0], "set"))
		return message_set(ct, entered, argv[1], argv[2]);
	err = message_running(c, entered);
	if (err)
		return err;
	doubt_try(c);	/* what needs an end of it fails by itself */
	if (argc == 1 && !strcasecmp(argv[0], "commit"))
		return message_commit(c);
	if (argc == 1 && !strcasecmp(argv[0], "checkpoint"))
		return checkpoint_take(c);
	if (argc == 2 && !strcasecmp(argv[0], "reclaim"))
		return message_reclaim(c, argv[1]);
	if ((argc == 2 || argc == 3) && !strcasecmp(argv[0], "forget"))
		return message_forget(c, argc, argv);
	if (argc == 2 && (!strcasecmp(argv[0], "drain") || !strcasecmp(argv[0], "dismiss")))
		return message_ssd(c, argv[0], argv[1]);
	if (argc == 1 && !strcasecmp(argv[0], "drain_stop"))
		return drain_stop(c);
	if (argc == 1 && !strcasecmp(argv[0], "scrub"))
		return scrub_begin(c);
	if (argc == 1 && !strcasecmp(argv[0], "scrub_stop"))
		return scrub_stop(c);
	if (argc == 2 && !strcasecmp(argv[0], "stack"))
		return message_stack(c, argv[1]);
	DMERR("cache %pUb: message '%s' with %u words is not known: %s", c->uuid, argv[0], argc,
	      "set, commit, checkpoint, reclaim, forget, drain, drain_stop, dismiss, scrub, scrub_stop, stack");
	return -EINVAL;
}

static int cache_message(struct dm_target *ti, unsigned int argc, char **argv, char *result, unsigned int maxlen)
{
	unsigned int noio = memalloc_noio_save();
	struct cache_target *ct = ti->private;
	struct cache *c;
	int err;

	c = cache_target_get(ct);
	err = cache_message_run(ct, c, cache_enter(c), argc, argv);
	cache_tick_wake(c);
	cache_leave(c);
	cache_put(c);
	memalloc_noio_restore(noio);
	return err;
}

struct target_type cache_target_type = {
	.name = "larder-cache",
	.version = { 1, 0, 0 },
	.features = DM_TARGET_SINGLETON | DM_TARGET_ALWAYS_WRITEABLE | DM_TARGET_IMMUTABLE,
	.module = THIS_MODULE,
	.ctr = cache_ctr,
	.dtr = cache_dtr,
	.map = cache_map,
	.presuspend = cache_presuspend,
	.presuspend_undo = cache_presuspend_undo,
	.postsuspend = cache_postsuspend,
	.preresume = cache_preresume,
	.resume = cache_resume,
	.message = cache_message,
	.status = cache_status,
	.iterate_devices = cache_iterate_devices,
};
