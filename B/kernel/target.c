// SPDX-License-Identifier: GPL-2.0-only
/*
 * Target `larder`: a volume, one backing through a cache, or through none.  docs/interface.md has its table, messages and status.
 *
 * The constructor opens and checks; nothing is written, for the table before may still be live.  What the table and the superblock
 * ask for is done by preresume: bind.c.  Requests: io.c.
 *
 * Whoever may be waited for by memory reclaim (a volume that is suspended, a message that holds locks) allocates under
 * memalloc_noio_save().
 */
#include "larder.h"

#define VOLUME_MAX_WORDS	64u
#define DISCARD_SECTORS		(1u << 21)	/* 1 GiB */

/* ------------------------------------------------------------------ constructor: parsing */

static int parse_backing(struct volume_target *vt, const char *path)
{
	struct dm_target *ti = vt->ti;
	struct larder_volume_sb *sb = vt->sb;
	struct block_device *bdev;
	const char *why;
	int err;

	err = dm_get_device(ti, path, dm_table_get_mode(ti->table), &vt->backing);
	if (err) {
		DMERR("%s: cannot open the backing %s: error %d", volume_target_name(vt), path, err);
		vt->backing = NULL;
		ti->error = "Cannot open the backing: the line before names it";
		return err;
	}
	bdev = vt->backing->bdev;
	err = super_read_volume(bdev, sb, &why);
	if (err) {
		super_refused(bdev, why, "the backing of a volume", "volume");
		ti->error = "The backing has no valid volume superblock: the line before names it";
		return err;
	}
	if (larder_sb_read_only(&sb->head)) {
		DMERR("%pg: ro_compat features %#llx are not known: only a newer larder may write to it", bdev,
		      le64_to_cpu(sb->head.ro_compat));
		ti->error = "The volume needs a newer larder";
		return -EROFS;
	}
	if (bdev_read_only(bdev)) {
		DMERR("%pg: the backing is read-only: 'blockdev --setrw' makes it writable", bdev);
		ti->error = "The backing is read-only: the line before names it";
		return -EROFS;
	}
	return 0;
}

/* vt->cache: a cache that has been started, by its dm device; NULL for "-". */
static int parse_cache(struct volume_target *vt, const char *path)
{
	struct dm_target *ti = vt->ti;
	struct cache *c;
	int err;

	if (!strcmp(path, "-"))
		return 0;
	err = dm_get_device(ti, path, dm_table_get_mode(ti->table), &vt->cache_dev);
	if (err) {
		DMERR("%s: cannot open the cache %s: error %d; start it first, or give '-' for none", volume_target_name(vt), path,
		      err);
		vt->cache_dev = NULL;
		ti->error = "Cannot open the cache: the line before names it";
		return err;
	}
	mutex_lock(&cache_registry_lock);
	c = cache_find_disk(vt->cache_dev->bdev->bd_disk);
	mutex_unlock(&cache_registry_lock);
	vt->cache = c;
	if (!c || !c->started) {
		DMERR("%s: %pg is not a cache that runs: give the dm device of a larder-cache, resumed once",
		      volume_target_name(vt), vt->cache_dev->bdev);
		ti->error = "The cache device is not a larder-cache that runs";
		return -EINVAL;
	}
	return 0;
}

static int parse_option(struct volume_target *vt, const char *key, const char *value)
{
	const char *why = "is not refuse, discard or accept";
	int n;

	if (!strcmp(key, "stale")) {
		vt->discard_stale = !strcmp(value, "discard");
		vt->accept_older = !strcmp(value, "accept");
		if (vt->discard_stale || vt->accept_older || !strcmp(value, "refuse"))
			return 0;
	} else {
		n = volume_setting_parse(&vt->set, key, value, &why);
		if (n >= 0) {
			vt->given_mask |= BIT(n);
			return 0;
		}
	}
	DMERR("%s: %s: '%s' %s", volume_target_name(vt), key, value, why);
	vt->ti->error = "Invalid option: the line before names it";
	return -EINVAL;
}

static int parse_options(struct volume_target *vt, struct dm_arg_set *as)
{
	static const struct dm_arg args[] = {
		{ 0, VOLUME_MAX_WORDS, "#opts must be the number of words that follow, at most 64" },
	};
	const char *key, *value;
	unsigned int n = 0;
	int err = 0;

	volume_settings_default(&vt->set);
	if (le32_to_cpu(vt->sb->mode) <= LARDER_WRITEAROUND)
		vt->set.mode = le32_to_cpu(vt->sb->mode);
	if (as->argc)
		err = dm_read_arg_group(args, as, &n, &vt->ti->error);
	if (err)
		return err;
	if (n % 2 || as->argc != n) {
		vt->ti->error = "#opts must be the number of words that follow: twice the number of options";
		return -EINVAL;
	}
	for (; n && !err; n -= 2) {
		key = dm_shift_arg(as);
		value = dm_shift_arg(as);
		err = parse_option(vt, key, value);
	}
	return err;
}

/* ------------------------------------------------------------------ constructor, destructor */

static void volume_target_free(struct volume_target *vt)
{
	if (vt->volume)
		volume_put(vt->volume);
	if (vt->cache)
		cache_put(vt->cache);
	if (vt->cache_dev)
		dm_put_device(vt->ti, vt->cache_dev);
	if (vt->backing)
		dm_put_device(vt->ti, vt->backing);
	kfree(vt->sb);
	kfree(vt);
}

static struct volume_target *volume_target_alloc(struct dm_target *ti)
{
	struct volume_target *vt = kzalloc(sizeof(*vt), GFP_KERNEL);

	if (!vt)
		return NULL;
	vt->sb = kzalloc(LARDER_SB_SIZE, GFP_KERNEL);
	if (!vt->sb) {
		kfree(vt);
		return NULL;
	}
	vt->ti = ti;
	mutex_init(&vt->lock);
	INIT_LIST_HEAD(&vt->list);
	return vt;
}

/* A volume without a cache takes what its backing takes; with one, a discard takes out of the cache what it names. */
static void volume_target_limits(struct dm_target *ti)
{
	const struct volume_target *vt = ti->private;

	ti->num_flush_bios = 1;
	ti->num_discard_bios = 1;
	ti->num_write_zeroes_bios = 1;
	ti->flush_supported = true;
	ti->discards_supported = !!vt->cache;
	ti->limit_swap_bios = true;
	ti->per_io_data_size = sizeof(struct larder_io);
}

static int volume_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	struct volume_target *vt;
	int err;

	if (ti->begin) {
		ti->error = "A volume starts at sector 0 of its dm device";
		return -EINVAL;
	}
	if (argc < 2) {
		ti->error = "<backing> <cache or -> [<#opts> [<key> <value>]...] expected";
		return -EINVAL;
	}
	vt = volume_target_alloc(ti);
	if (!vt) {
		ti->error = "Not enough memory";
		return -ENOMEM;
	}
	err = parse_backing(vt, dm_shift_arg(&as));
	if (!err)
		err = parse_cache(vt, dm_shift_arg(&as));
	if (!err)
		err = parse_options(vt, &as);
	if (!err)
		err = volume_target_check(vt);
	if (err) {
		volume_target_free(vt);
		return err;
	}
	volume_target_list(vt);
	ti->private = vt;
	volume_target_limits(ti);
	return 0;
}

static void volume_dtr(struct dm_target *ti)
{
	struct volume_target *vt = ti->private;

	volume_target_unlist(vt);
	volume_target_free(vt);
}

/* ------------------------------------------------------------------ suspend and resume */

static void volume_presuspend(struct dm_target *ti)
{
	struct volume_target *vt = ti->private;

	vt->noflush = dm_noflush_suspending(ti);
}

static void volume_postsuspend(struct dm_target *ti)
{
	unsigned int noio = memalloc_noio_save();

	volume_target_postsuspend(ti->private);
	memalloc_noio_restore(noio);
}

static int volume_preresume(struct dm_target *ti)
{
	unsigned int noio = memalloc_noio_save();
	int err = volume_target_bind(ti->private);

	memalloc_noio_restore(noio);
	return err;
}

/* ------------------------------------------------------------------ requests */

static int volume_map(struct dm_target *ti, struct bio *bio)
{
	struct volume_target *vt = ti->private;

	return io_begin(vt->volume, bio);
}

static int volume_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct volume_target *vt = ti->private;

	return fn(ti, vt->backing, le64_to_cpu(vt->sb->data_offset) >> LARDER_SECTOR_SHIFT, ti->len, data);
}

/* Where there is no cache, dm has stacked them already. */
static void volume_io_hints(struct dm_target *ti, struct queue_limits *limits)
{
	const struct volume_target *vt = ti->private;
	unsigned int granularity;

	if (!vt->cache)
		return;
	/* 6.1 tells it of a device that takes no discards, too */
	granularity = bdev_max_discard_sectors(vt->backing->bdev) ? limits->discard_granularity : 0;
	larder_limit_discard(limits, DISCARD_SECTORS, granularity ?: limits->logical_block_size);
	larder_limit_write_zeroes(limits, LARDER_MAX_ZERO_SECTORS);
}

/* ------------------------------------------------------------------ messages */

struct volume *volume_target_get(struct volume_target *vt)
{
	struct volume *v;

	mutex_lock(&cache_registry_lock);
	v = vt->volume;
	if (v)
		volume_get(v);
	mutex_unlock(&cache_registry_lock);
	return v;
}

static int message_set(struct volume_target *vt, const char *key, const char *value)
{
	struct volume_settings set;
	struct volume *v;
	const char *why;
	int n, err = 0;

	mutex_lock(&vt->lock);
	v = vt->volume;
	set = vt->set;
	n = volume_setting_parse(&set, key, value, &why);
	if (n >= 0) {
		err = v && v->active ? volume_settings_apply(v, &set) : 0;
		if (!err) {
			vt->set = set;
			vt->given_mask |= BIT(n);
			if (v && v->active && v->cache)
				writeback_kick(v);
		}
	}
	mutex_unlock(&vt->lock);
	if (err)
		DMERR("%s: %s: not enough memory: nothing was changed", volume_target_name(vt), key);
	if (n < 0)
		DMERR("%s: %s: '%s' %s", volume_target_name(vt), key, value, why);
	return err ?: min(n, 0);
}

static void volume_flush(struct volume_target *vt, struct volume *v, bool begin)
{
	if (!v->cache) {
		dm_table_event(vt->ti->table);	/* nothing to do */
		return;
	}
	if (!begin && !READ_ONCE(v->flushing))
		return;
	/* what is acknowledged from memory is dirty when it is applied */
	if (begin && READ_ONCE(v->cache->look) & LOOK_BUFFERED)
		log_wait_applied(v->cache, log_close_open(v->cache, CLOSE_ASKED));
	WRITE_ONCE(v->flushing, begin);
	if (begin)
		WRITE_ONCE(v->writeback_retry, jiffies);	/* who asks for it has mended what was wrong */
	writeback_kick(v);
	if (!begin)
		dm_table_event(vt->ti->table);
}

/* Not under vt->lock, which a suspend needs: it may wait for the SSD. */
static int message_flush(struct volume_target *vt, bool begin)
{
	struct volume *v = volume_target_get(vt);
	bool active = v && v->active;

	if (active)
		volume_flush(vt, v, begin);
	else
		DMERR("%s: the volume is suspended: resume it, then flush", volume_target_name(vt));
	if (v)
		volume_put(v);
	return active ? 0 : -EBUSY;
}

/*
 * In core only: the log still says that it is cached, and after a start it may be again; it is CLEAN, and what the backing gets
 * meanwhile is marked (rule 6).
 */
static int message_drop_clean(struct volume_target *vt)
{
	struct volume *v;

	mutex_lock(&vt->lock);
	v = vt->volume;
	if (!v || !v->active) {
		mutex_unlock(&vt->lock);
		DMERR("%s: the volume is suspended: resume it, then drop what is clean", volume_target_name(vt));
		return -EBUSY;
	}
	if (v->cache) {
		volume_drop_clean(v, 0, v->sectors);
		reclaim_kick(v->cache);
	}
	mutex_unlock(&vt->lock);
	return 0;
}

static int message_discard_dirty(struct volume_target *vt, const char *text)
{
	uuid_t uuid;

	if (uuid_parse(text, &uuid)) {
		DMERR("%s: discard_dirty: '%s' is not a UUID", volume_target_name(vt), text);
		return -EINVAL;
	}
	return volume_target_discard_dirty(vt, uuid.b);
}

static int message_stack(struct volume_target *vt, const char *hex)
{
	struct volume *v;
	int err;

	mutex_lock(&vt->lock);
	v = vt->volume;
	err = v && v->active ? volume_set_stack(v, hex) : -EBUSY;
	mutex_unlock(&vt->lock);
	if (err == -EINVAL)
		DMERR("%s: stack: neither '-' nor up to %u bytes in hex", volume_target_name(vt), LARDER_STACK_SIZE);
	else if (err == -EBUSY)
		DMERR("%s: stack: the volume is suspended: resume it, then send the message again", volume_target_name(vt));
	return err;
}

static int volume_message_run(struct volume_target *vt, unsigned int argc, char **argv)
{
	if (argc == 3 && !strcasecmp(argv[0], "set"))
		return message_set(vt, argv[1], argv[2]);
	if (argc == 1 && !strcasecmp(argv[0], "flush"))
		return message_flush(vt, true);
	if (argc == 1 && !strcasecmp(argv[0], "flush_stop"))
		return message_flush(vt, false);
	if (argc == 1 && !strcasecmp(argv[0], "drop_clean"))
		return message_drop_clean(vt);
	if (argc == 2 && !strcasecmp(argv[0], "discard_dirty"))
		return message_discard_dirty(vt, argv[1]);
	if (argc == 2 && !strcasecmp(argv[0], "stack"))
		return message_stack(vt, argv[1]);
	DMERR("%s: message '%s' with %u words is not known: set, flush, flush_stop, drop_clean, discard_dirty, stack",
	      volume_target_name(vt), argv[0], argc);
	return -EINVAL;
}

static int volume_message(struct dm_target *ti, unsigned int argc, char **argv, char *result, unsigned int maxlen)
{
	unsigned int noio = memalloc_noio_save();
	struct volume_target *vt = ti->private;
	int err = volume_message_run(vt, argc, argv);

	if (vt->cache)
		cache_tick_wake(vt->cache);
	memalloc_noio_restore(noio);
	return err;
}

struct target_type volume_target_type = {
	.name = "larder",
	.version = { 1, 0, 0 },
	.features = DM_TARGET_SINGLETON | DM_TARGET_ALWAYS_WRITEABLE | DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = volume_ctr,
	.dtr = volume_dtr,
	.map = volume_map,
	.end_io = io_end,
	.presuspend = volume_presuspend,
	.postsuspend = volume_postsuspend,
	.preresume = volume_preresume,
	.message = volume_message,
	.status = volume_status,
	.iterate_devices = volume_iterate_devices,
	.io_hints = volume_io_hints,
};
