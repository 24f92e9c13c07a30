// SPDX-License-Identifier: GPL-2.0-only
/*
 * The status lines of both targets: INFO as docs/interface.md lists it, in that order; TABLE, which can be loaded back; IMA.
 *
 * Numbers are read without locks, each for itself: sums over CPUs and fields that others change meanwhile.  INFO of a volume that
 * has not been bound yet, or is not any more, shows what there is.
 */
#include "larder.h"

struct counter_key {
	const char *key;
	unsigned int n;
};

/* ------------------------------------------------------------------ cache */

static void cache_counters_sum(struct cache *c, struct cache_counters *sum)
{
	unsigned int cpu, i;

	memset(sum, 0, sizeof(*sum));
	for_each_possible_cpu(cpu)
		for (i = 0; i < NR_CACHE_COUNTERS; i++)
			sum->n[i] += READ_ONCE(per_cpu_ptr(c->counters, cpu)->n[i]);
}

static const char *cache_state_name(struct cache *c)
{
	switch (READ_ONCE(c->state)) {
	case CACHE_RUNNING:
		return "running";
	case CACHE_FAILED:
		return "failed";
	default:
		return "suspended";
	}
}

static u32 segments_sealed(struct cache *c, unsigned int stream)
{
	return READ_ONCE(c->nr_sealed[stream]) + (READ_ONCE(c->log.stream[stream].segment) != LARDER_NO_SEGMENT);
}

static u32 cache_volumes(struct cache *c, u64 *index_bytes)
{
	struct volume *v;
	unsigned int i;
	u32 n = 0;

	*index_bytes = 0;
	rcu_read_lock();
	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = rcu_dereference_raw(c->volumes[i]);
		if (!v)
			continue;
		n++;
		*index_bytes += larder_index_bytes(v->index);
	}
	rcu_read_unlock();
	return n;
}

/* Until its own table says so: none other joins, leaves or is drained before. */
static bool device_joins(const struct cache_device *d)
{
	return READ_ONCE(d->joining) || (READ_ONCE(d->untold) && !READ_ONCE(d->failed));
}

static const char *device_state_name(const struct cache_device *d)
{
	if (device_joins(d))
		return "joining";
	if (READ_ONCE(d->removed))
		return "removed";
	return READ_ONCE(d->failed) ? "failed" : READ_ONCE(d->draining) ? "draining" : "active";
}

static const char *const resync_names[] = {
	[RESYNC_IDLE] = "idle",
	[RESYNC_RUNNING] = "running",
	[RESYNC_WAITING] = "waiting",
	[RESYNC_FAILED] = "failed",
};

/* What is wrong now, divided by '/' */
static unsigned int cache_info_trouble(struct cache *c, u64 single_sectors, char *result, unsigned int sz, unsigned int maxlen)
{
	bool flush = cache_in_doubt(c) && READ_ONCE(c->state) != CACHE_FAILED, single = cache_mirrored(c) && single_sectors;

	/* two of three copies are no trouble; two of two, and what one SSD alone had, are none once all of them are durable */
	if (cache_copies(c) <= 2 || READ_ONCE(c->resync.alone) || READ_ONCE(c->resync.raising))
		single |= READ_ONCE(c->resync.state) != RESYNC_IDLE;

	DMEMIT(" trouble=%s%s%s%s", flush ? "flush" : "", flush && single ? "/" : "", single ? "single" : "",
	       flush || single ? "" : "-");
	return sz;
}

static unsigned int cache_info_set(struct cache *c, char *result, unsigned int sz, unsigned int maxlen)
{
	u32 i, nr, devices = 0, failed = 0, joining = LARDER_MAX_DEVICES;
	const char *name[LARDER_MAX_DEVICES];
	struct segments_short few;
	u64 below = segments_below(c, &few);

	spin_lock_irq(&c->log.lock);
	for (i = 0; i < c->nr_devices; i++) {
		name[i] = device_state_name(&c->dev[i]);
		devices += !READ_ONCE(c->dev[i].removed);
		failed += READ_ONCE(c->dev[i].failed) && !READ_ONCE(c->dev[i].removed);
		if (device_joins(&c->dev[i]))
			joining = i;
	}
	nr = i;
	spin_unlock_irq(&c->log.lock);
	DMEMIT(" devices=%u devices_failed=%u mirrored=%u below_sectors=%llu set_generation=%u", devices, failed,
	       cache_mirrored(c), below, (u32)(READ_ONCE(c->set_generation) >> 32));
	if (joining < LARDER_MAX_DEVICES)
		DMEMIT(" joining=%u", joining);
	else
		DMEMIT(" joining=-");
	DMEMIT(" join_sectors=%llu drain_segments=%u ssds=", (u64)READ_ONCE(c->join_copied) * LARDER_SLOT_SECTORS,
	       READ_ONCE(c->nr_draining) ? READ_ONCE(c->drain_left) : 0);
	for (i = 0; i < nr; i++)
		DMEMIT("%s%s", i ? "/" : "", name[i]);
	DMEMIT(" roles_honoured=%u single_sectors=%llu resync=%s resync_sectors=%llu", segments_roles_honoured(c), few.single,
	       resync_names[READ_ONCE(c->resync.state)], (u64)atomic64_read(&c->resync.copied));
	DMEMIT(" lost_sectors=%llu", (u64)atomic64_read(&c->lost_sectors));
	return cache_info_trouble(c, few.single, result, sz, maxlen);
}

static unsigned int cache_info_scrub(struct cache *c, char *result, unsigned int sz, unsigned int maxlen)
{
	static const char *const names[] = {
		[SCRUB_IDLE] = "idle",
		[SCRUB_RUNNING] = "running",
		[SCRUB_DONE] = "done",
		[SCRUB_STOPPED] = "stopped",
		[SCRUB_FAILED] = "failed",
	};
	const struct scrub_counts *n = &c->scrub.n;

	DMEMIT(" scrub=%s scrub_segments=%u scrub_slots=%llu", names[READ_ONCE(c->scrub.state)], READ_ONCE(c->scrub.pos),
	       READ_ONCE(n->slots));
	DMEMIT(" scrub_errors=%llu scrub_repaired=%llu scrub_dropped=%llu scrub_unrepairable=%llu", READ_ONCE(n->errors),
	       READ_ONCE(n->repaired), READ_ONCE(n->dropped), READ_ONCE(n->unrepairable));
	DMEMIT(" mended_slots=%llu", READ_ONCE(c->scrub.mended));
	return sz;
}

static unsigned int cache_info_state(struct cache *c, char *result, unsigned int sz, unsigned int maxlen)
{
	u64 index_bytes;
	u32 volumes = cache_volumes(c, &index_bytes);

	DMEMIT("uuid=%pUb state=%s", c->uuid, cache_state_name(c));
	sz = cache_info_set(c, result, sz, maxlen);
	sz = cache_info_scrub(c, result, sz, maxlen);
	DMEMIT(" segment_sectors=%u segments=%u", c->segment_sectors, c->nr_segments);
	DMEMIT(" segments_free=%u segments_opened=%u", READ_ONCE(c->nr_state[SEGMENT_FREE]),
	       READ_ONCE(c->nr_state[SEGMENT_OPENING]) + READ_ONCE(c->nr_state[SEGMENT_OPENED]));
	DMEMIT(" segments_write=%u segments_fill=%u segments_keep=%u", segments_sealed(c, LARDER_STREAM_WRITE),
	       segments_sealed(c, LARDER_STREAM_FILL), segments_sealed(c, LARDER_STREAM_KEEP));
	DMEMIT(" segments_checkpoint=%u segments_waiting=%u segments_mirror=%u segments_lost=%u",
	       READ_ONCE(c->nr_state[SEGMENT_CHECKPOINT]), READ_ONCE(c->nr_state[SEGMENT_WAITING]),
	       READ_ONCE(c->nr_state[SEGMENT_MIRROR]), READ_ONCE(c->nr_state[SEGMENT_LOST]));
	DMEMIT(" volumes=%u live_sectors=%llu dirty_sectors=%llu", volumes, (u64)atomic64_read(&c->live_sectors),
	       (u64)atomic64_read(&c->dirty_sectors));
	DMEMIT(" index_bytes=%llu memory_bytes=%llu memory_limit_bytes=%llu", index_bytes, cache_memory_bytes(c),
	       cache_memory_limit(c));
	DMEMIT(" epoch=%u sequence=%llu records_applied=%llu records_durable=%llu", c->epoch, READ_ONCE(c->log.next_sequence) - 1,
	       READ_ONCE(c->log.applied_lsn), READ_ONCE(c->log.durable_lsn));
	return sz;
}

/* In the order of docs/interface.md */
#define KEY(name) { .key = #name, .n = C_##name }
static const struct counter_key cache_keys[] = {
	KEY(appends), KEY(append_slots), KEY(gathered_appends),
	KEY(commits), KEY(commits_full), KEY(commits_timer), KEY(commits_flush), KEY(commits_fua),
	KEY(commits_with_data), KEY(commits_asked),
	KEY(fill_records), KEY(keep_records), KEY(summaries), KEY(ssd_flushes), KEY(fua_appends), KEY(append_retries),
	KEY(checkpoints), KEY(checkpoint_bytes), KEY(superblock_writes), KEY(segment_opens), KEY(chunk_opens),
	KEY(reclaimed), KEY(reclaim_kept_slots), KEY(reclaim_moved_slots), KEY(reclaim_dropped_slots), KEY(reclaim_relinked),
	KEY(reclaim_discards), KEY(discards_skipped),
	KEY(checked_slots), KEY(unchecked_slots), KEY(sums_reads),
	KEY(waits_space), KEY(waits_pace), KEY(waits_memory), KEY(waits_pool),
	KEY(errors_read), KEY(errors_write), KEY(errors_checksum), KEY(errors_flush),
};
#undef KEY

static unsigned int cache_info_probes(struct cache *c, char *result, unsigned int sz, unsigned int maxlen)
{
	const struct larder_congestion *r = &c->probe[SSD_READ].state, *w = &c->probe[SSD_WRITE].state;

	DMEMIT(" read_latency_us=%u write_latency_us=%u", READ_ONCE(r->latency_us), READ_ONCE(w->latency_us));
	DMEMIT(" read_avoided_percent=%u write_avoided_percent=%u", READ_ONCE(r->share) * 100 / LARDER_CONGESTION_FULL,
	       READ_ONCE(w->share) * 100 / LARDER_CONGESTION_FULL);
	DMEMIT(" pinned_sectors=%llu", (u64)atomic64_read(&c->pinned) * LARDER_SLOT_SECTORS);
	return sz;
}

static unsigned int cache_info_counters(struct cache *c, char *result, unsigned int sz, unsigned int maxlen)
{
	struct cache_counters sum;
	unsigned int i;

	cache_counters_sum(c, &sum);
	for (i = 0; i < ARRAY_SIZE(cache_keys); i++)
		DMEMIT(" %s=%llu", cache_keys[i].key, sum.n[cache_keys[i].n]);
	DMEMIT(" replayed_records=%llu replayed_bytes=%llu start_ms=%llu", c->replayed_records, c->replayed_bytes, c->start_ms);
	return cache_info_probes(c, result, sz, maxlen);
}

static unsigned int cache_table(struct cache_target *ct, char *result, unsigned int maxlen)
{
	unsigned int sz = 0, i, count;

	DMEMIT("%u", ct->nr_devices);
	for (i = 0; i < ct->nr_devices; i++)
		DMEMIT(" %s", ct->dev[i] ? ct->dev[i]->name : "-");
	cache_settings_print(&ct->set, true, "  ", NULL, 0, &count);
	DMEMIT(" %u", count);
	if (sz < maxlen)
		sz += cache_settings_print(&ct->set, true, "  ", result + sz, maxlen - sz, &count);
	return sz;
}

static unsigned int cache_ima(struct cache_target *ct, struct cache *c, char *result, unsigned int maxlen)
{
	unsigned int sz = 0, i, count;

	DMEMIT_TARGET_NAME_VERSION(ct->ti->type);
	DMEMIT(",uuid=%pUb,nr_devices=%u", c->uuid, ct->nr_devices);
	for (i = 0; i < ct->nr_devices; i++)
		DMEMIT(",device_%u=%s", i, ct->dev[i] ? ct->dev[i]->name : "-");
	if (sz < maxlen)
		sz += cache_settings_print(&ct->set, false, ",=", result + sz, maxlen - sz, &count);
	DMEMIT(";");
	return sz;
}

void cache_status(struct dm_target *ti, status_type_t type, unsigned int flags, char *result, unsigned int maxlen)
{
	struct cache_target *ct = ti->private;
	struct cache *c = cache_target_get(ct);
	unsigned int sz = 0, count;

	switch (type) {
	case STATUSTYPE_INFO:
		sz = cache_info_state(c, result, sz, maxlen);
		sz = cache_info_counters(c, result, sz, maxlen);
		if (sz < maxlen)
			cache_settings_print(&ct->set, false, " =", result + sz, maxlen - sz, &count);
		break;
	case STATUSTYPE_TABLE:
		cache_table(ct, result, maxlen);
		break;
	case STATUSTYPE_IMA:
		cache_ima(ct, c, result, maxlen);
		break;
	}
	cache_put(c);
}

/* ------------------------------------------------------------------ volume */

static void volume_counters_sum(struct volume *v, struct volume_counters *sum)
{
	unsigned int cpu, i;

	memset(sum, 0, sizeof(*sum));
	if (!v)
		return;
	for_each_possible_cpu(cpu)
		for (i = 0; i < NR_VOLUME_COUNTERS; i++)
			sum->n[i] += READ_ONCE(per_cpu_ptr(v->counters, cpu)->n[i]);
}

/*
 * Where the cache has failed: passing: the backing has all of it, and the cache is not asked any more; leaving: that is to come,
 * and what would change something waits (leave.c).
 */
static const char *volume_state_name(struct volume_target *vt, const struct volume *v)
{
	if (!vt->cache)
		return "passthrough";
	if (READ_ONCE(vt->cache->state) != CACHE_FAILED)
		return "running";
	if (!v || READ_ONCE(v->leave) == LEAVE_REFUSED)
		return "cache-failed";
	return READ_ONCE(v->leave) == LEAVE_DONE ? "passing" : "leaving";
}

static const char *volume_mode_name(struct volume_target *vt)
{
	static const char *const names[] = {
		[LARDER_WRITEBACK] = "writeback",
		[LARDER_WRITETHROUGH] = "writethrough",
		[LARDER_WRITEAROUND] = "writearound",
		[LARDER_PASSTHROUGH] = "passthrough",
	};

	return names[vt->cache ? READ_ONCE(vt->set.mode) : LARDER_PASSTHROUGH];
}

/* What the backing refuses at present. */
static unsigned int volume_info_trouble(struct volume *v, char *result, unsigned int sz, unsigned int maxlen)
{
	const struct {
		bool is;
		const char *name;
	} troubles[] = {
		{ v && READ_ONCE(v->writeback_error), "writeback" },
		{ v && READ_ONCE(v->flusher.failed), "flush" },
		{ v && READ_ONCE(v->behind), "superblock" },
		{ v && volume_is_full(v), "full" },
	};
	const char *before = "";
	unsigned int i;

	DMEMIT(" trouble=");
	for (i = 0; i < ARRAY_SIZE(troubles); i++) {
		if (!troubles[i].is)
			continue;
		DMEMIT("%s%s", before, troubles[i].name);
		before = "/";
	}
	if (!*before)
		DMEMIT("-");
	return sz;
}

/* v: NULL before it is bound for the first time. */
static unsigned int volume_info_state(struct volume_target *vt, struct volume *v, char *result, unsigned int sz,
				      unsigned int maxlen)
{
	struct larder_index *index = v ? v->index : NULL;

	DMEMIT("uuid=%pUb", vt->sb->head.uuid);
	if (vt->cache)
		DMEMIT(" cache=%pUb", vt->cache->uuid);
	else
		DMEMIT(" cache=-");
	DMEMIT(" state=%s mode=%s room_sectors=%llu", volume_state_name(vt, v), volume_mode_name(vt),
	       volume_room(vt->sb, vt->backing->bdev));
	DMEMIT(" cached_sectors=%llu dirty_sectors=%llu extents=%llu index_bytes=%llu",
	       v ? (u64)atomic64_read(&v->cached_sectors) : 0, v ? (u64)atomic64_read(&v->dirty_sectors) : 0,
	       index ? larder_index_extents(index) : 0, index ? larder_index_bytes(index) : 0);
	DMEMIT(" may_be_dirty=%u incarnation=%llu marks=%u flushing=%u", v ? READ_ONCE(v->may_be_dirty) : 0,
	       v ? READ_ONCE(v->incarnation) : le64_to_cpu(vt->sb->incarnation), v ? READ_ONCE(v->nr_marks) : 0,
	       v ? READ_ONCE(v->flushing) : 0);
	return volume_info_trouble(v, result, sz, maxlen);
}

#define KEY(name) { .key = #name, .n = V_##name }
static const struct counter_key volume_keys[] = {
	KEY(read_hits), KEY(read_misses), KEY(read_mixed), KEY(read_bypass), KEY(read_zeroes), KEY(read_congested),
	KEY(read_buffered),
	KEY(write_cached), KEY(write_buffered), KEY(write_through), KEY(write_around), KEY(write_bypass), KEY(write_zeroes),
	KEY(write_congested), KEY(write_stripes), KEY(write_over_share),
	KEY(discards), KEY(flushes), KEY(fuas),
	KEY(read_hit_sectors), KEY(read_miss_sectors), KEY(write_cached_sectors), KEY(write_backing_sectors),
	KEY(fills), KEY(fill_sectors), KEY(fills_dropped), KEY(fills_denied),
	KEY(fills_first), KEY(fills_over_share), KEY(readaheads), KEY(readahead_sectors),
	KEY(writeback_writes), KEY(writeback_sectors), KEY(writeback_superseded),	/* writeback_rate follows */
	KEY(backing_flushes), KEY(marks_set), KEY(marks_cleared), KEY(deferred),
	KEY(errors_read), KEY(errors_write), KEY(errors_flush), KEY(errors_checksum),
};
#undef KEY

static unsigned int volume_info_counters(struct volume *v, char *result, unsigned int sz, unsigned int maxlen)
{
	struct volume_counters sum;
	unsigned int i;

	volume_counters_sum(v, &sum);
	for (i = 0; i < ARRAY_SIZE(volume_keys); i++) {
		DMEMIT(" %s=%llu", volume_keys[i].key, sum.n[volume_keys[i].n]);
		if (volume_keys[i].n == V_writeback_superseded)
			DMEMIT(" writeback_rate=%llu", v && v->cache ? READ_ONCE(v->rate.rate) : 0);
	}
	return sz;
}

/* By rule, in order, the last for what matches none; "-": the preset default, which has no counters. */
static unsigned int volume_info_classes(struct volume *v, char *result, unsigned int sz, unsigned int maxlen)
{
	static const struct {
		const char *key;
		size_t offset;
	} keys[] = {
		{ "class_reads", offsetof(struct class_count, reads) },
		{ "class_writes", offsetof(struct class_count, writes) },
		{ "class_read_sectors", offsetof(struct class_count, read_sectors) },
		{ "class_write_sectors", offsetof(struct class_count, write_sectors) },
	};
	struct class_count sums[LARDER_CLASS_RULES + 1];
	unsigned int i, k, nr = v && v->cache ? volume_class_counts(v, sums) : 0;
	u64 pinned = 0;

	for (k = 0; k < ARRAY_SIZE(keys); k++) {
		DMEMIT(" %s=%s", keys[k].key, nr ? "" : "-");
		for (i = 0; i < nr; i++)
			DMEMIT("%s%llu", i ? "/" : "", *(u64 *)((void *)&sums[i] + keys[k].offset));
	}
	for (i = 0; v && i < LARDER_CLASS_PINS; i++)
		pinned += atomic64_read(&v->pinned[i]);
	DMEMIT(" pinned_sectors=%llu", pinned * LARDER_SLOT_SECTORS);
	return sz;
}

/* KiB/s that one request of a stream gets; 0: not known, or nothing asks for it. */
static unsigned int volume_info_speed(struct volume *v, char *result, unsigned int sz, unsigned int maxlen)
{
	static const char *const keys[2][LARDER_NR_SIDES] = {
		{ "stream_read_ssd", "stream_read_backing" }, { "stream_write_ssd", "stream_write_backing" },
	};
	unsigned int write, side;

	for (write = 0; write < 2; write++)
		for (side = 0; side < LARDER_NR_SIDES; side++)
			DMEMIT(" %s=%u", keys[write][side], v ? larder_speed_kib(&v->speed[write], side) : 0);
	return sz;
}

static unsigned int volume_table(struct volume_target *vt, char *result, unsigned int maxlen)
{
	unsigned int sz = 0, count;

	DMEMIT("%s %s", vt->backing->name, vt->cache_dev ? vt->cache_dev->name : "-");
	volume_settings_print(&vt->set, vt->given_mask, "  ", NULL, 0, &count);
	DMEMIT(" %u", count);
	if (sz < maxlen)
		sz += volume_settings_print(&vt->set, vt->given_mask, "  ", result + sz, maxlen - sz, &count);
	return sz;
}

static unsigned int volume_ima(struct volume_target *vt, char *result, unsigned int maxlen)
{
	unsigned int sz = 0, count;

	DMEMIT_TARGET_NAME_VERSION(vt->ti->type);
	DMEMIT(",uuid=%pUb,backing=%s,cache=%s", vt->sb->head.uuid, vt->backing->name, vt->cache_dev ? vt->cache_dev->name : "-");
	if (sz < maxlen)
		sz += volume_settings_print(&vt->set, ~0u, ",=", result + sz, maxlen - sz, &count);
	DMEMIT(";");
	return sz;
}

void volume_status(struct dm_target *ti, status_type_t type, unsigned int flags, char *result, unsigned int maxlen)
{
	struct volume_target *vt = ti->private;
	unsigned int sz = 0, count;
	struct volume *v;

	switch (type) {
	case STATUSTYPE_INFO:
		v = volume_target_get(vt);
		sz = volume_info_state(vt, v, result, sz, maxlen);
		sz = volume_info_counters(v, result, sz, maxlen);
		sz = volume_info_classes(v, result, sz, maxlen);
		sz = volume_info_speed(v, result, sz, maxlen);
		if (v)
			volume_put(v);
		/* 'mode' is among the keys above */
		if (sz < maxlen)
			volume_settings_print(&vt->set, ~(1u << VOLUME_SETTING_MODE), " =", result + sz, maxlen - sz, &count);
		break;
	case STATUSTYPE_TABLE:
		volume_table(vt, result, maxlen);
		break;
	case STATUSTYPE_IMA:
		volume_ima(vt, result, maxlen);
		break;
	}
}
