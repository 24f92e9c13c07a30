// SPDX-License-Identifier: GPL-2.0-only
/*
 * A backing that is older than what its cache has seen of it: a disk put back from an image, one half of a mirror that had left it.
 * UUID and incarnation are those that it had; what is cached would lie over a disk that lacks what was written beside it.
 * And a cache that is older than its backing: an SSD put back from an image, or one that was copied to another and is still there.
 * What is cached would lie over what was written since, and what is dirty would be written over that.
 *
 * Each write of the backing's superblock raises its generation.  Each time that the volume is bound the superblock is written, and
 * the table of the cache names that generation (`seen`): from then on an image of before has a lower one, and the volume is stale.
 * So too as it is unbound, and once an hour, if the backing has been written since: not told from the disk that was there is an
 * image of the hour before a power cut, with no start or stop in between.
 *
 * When the table names it, in both places of every SSD, the backing's superblock says so (`noted`): where the volume is bound,
 * before anything goes through it.  A cache that names less is older, and stale.  Not told is an SSD put back from an image of the
 * time since then.
 *
 * Order: both copies of the backing's superblock are durable, then the table is written, then both copies say so.  After a power
 * cut, at any step
 *   before the first copy is		the table names a generation that both copies have, or one below
 *   between them			the same of the older copy, and the newer one is above
 *   before the table is		both copies are above what it names
 *   between its two places		each names one that both copies have, or have passed, and none less than they note
 *   before the copies note it		the table names more than is noted
 *   between them			the newer one notes what every table names
 * so no backing that was there is refused, and no SSD; nor is one whose superblock could not be written: the table names the one
 * before.  One that loses what it has acknowledged with FUA may be: `stale accept`.  A table whose `seen` is 0 says nothing: an
 * attach was cut off behind its entry, or it was put back from an archive.
 */
#include <linux/random.h>

#include "larder.h"

#define SEE_SECONDS	3600u

static unsigned int see_seconds = SEE_SECONDS;
module_param(see_seconds, uint, 0644);
MODULE_PARM_DESC(see_seconds, "How long a backing may be written before its cache notes a new generation of it");

u64 incarnation_next(u64 incarnation)
{
	return incarnation + 1 + (get_random_u64() >> (64 - LARDER_INCARNATION_BITS));
}

bool volume_is_older(const struct volume *v, const struct block_device *bdev, const struct larder_volume_sb *sb)
{
	return READ_ONCE(v->bdev) != bdev && le64_to_cpu(sb->incarnation) == v->incarnation &&
	       le64_to_cpu(sb->head.generation) < READ_ONCE(v->seen);
}

bool cache_is_older(const struct volume *v, const struct block_device *bdev, const struct larder_volume_sb *sb)
{
	u64 seen = READ_ONCE(v->seen);

	return READ_ONCE(v->bdev) != bdev && le64_to_cpu(sb->incarnation) == v->incarnation &&
	       sb->noted_incarnation == sb->incarnation && seen && seen < le64_to_cpu(sb->noted);
}

void volume_note(struct volume *v)
{
	u64 noted = READ_ONCE(v->noted);

	lockdep_assert_held(&v->super_lock);
	if (!noted)
		return;
	v->sb->noted = cpu_to_le64(noted);
	v->sb->noted_incarnation = cpu_to_le64(v->incarnation);
}

/* That every table names it.  Sleeps; an error is no reason to stop. */
static void write_noted(struct volume *v)
{
	int err;

	mutex_lock(&v->super_lock);
	err = volume_super_write(v);
	WRITE_ONCE(v->see_failed, err);	/* each attempt may fail a user's flush: flusher_doubt() */
	mutex_unlock(&v->super_lock);
	if (err)
		DMWARN("%pg: what cache %pUb has seen of volume %pUb could not be noted: error %d", v->bdev, v->cache->uuid,
		       v->uuid, err);
}

void volume_seen(struct volume *v, u64 generation)
{
	struct cache *c = v->cache;
	struct larder_table_volume *e = &c->table->volumes[v->number];
	bool newer = false;
	const char *why;
	int err = 0;

	WRITE_ONCE(v->seen_when, jiffies);
	mutex_lock(&c->super_lock);
	if (c->volumes[v->number] == v && generation > v->seen && READ_ONCE(c->state) == CACHE_RUNNING) {
		/* not yet written as it is by now: more than that would be new in the next one */
		bool changed = larder_check_table(c->table, NULL, &why);

		WRITE_ONCE(v->seen, generation);
		e->seen = cpu_to_le64(generation);	/* true already, whether or not it can be written */
		err = changed ? cache_table_write(c) : cache_table_write_seen(c);
		/* one that fails just now has not got it, and may be all that is left, by the set as it was (rule 14) */
		newer = !err && !READ_ONCE(c->log.held);
		if (newer)
			WRITE_ONCE(v->noted, generation);
	}
	mutex_unlock(&c->super_lock);
	if (err)
		DMWARN("cache %pUb: what was seen of volume %pUb (generation %llu) could not be noted: error %d", c->uuid, v->uuid,
		       generation, err);
	if (newer)
		write_noted(v);
}

bool volume_see_due(const struct volume *v)
{
	unsigned long most = (unsigned long)READ_ONCE(see_seconds) * HZ;

	/* quiet: it would wake the disk */
	return READ_ONCE(v->flusher.written) && !v->see_failed && !v->set.quiet &&
	       time_after(jiffies, READ_ONCE(v->seen_when) + most);
}

void volume_see(struct volume *v)
{
	u64 generation;
	int err;

	if (!READ_ONCE(v->flusher.written) || v->see_failed)
		return;
	WRITE_ONCE(v->flusher.written, false);	/* what completes from here on is for the next one */
	mutex_lock(&v->super_lock);
	err = volume_super_write(v);
	generation = le64_to_cpu(v->sb->head.generation);
	mutex_unlock(&v->super_lock);
	if (!err)
		volume_seen(v, generation);
	else
		WRITE_ONCE(v->see_failed, true);	/* each attempt may fail a user's flush: flusher_doubt() */
}
