// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a volume did between two looks at its status.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "rates.h"
#include "snapshot.h"
#include "status.h"

int sample_take(struct sample *sample)
{
	int result = snapshot_take(&sample->list);

	sample->at = clock_seconds();
	return result;
}

void sample_free(struct sample *sample)
{
	mapped_list_free(&sample->list);
}

/* The same device at that time; NULL: it was not there. */
static const struct mapped *then(const struct sample *before, const struct mapped *m)
{
	char *uuid = status_value(m->status, "uuid");
	const struct mapped *found = NULL;

	for (size_t i = 0; uuid && !found && i < before->list.number; i++) {
		const struct mapped *other = &before->list.mapped[i];

		if (other->cache == m->cache && !strcmp(other->name, m->name) && status_is(other->status, "uuid", uuid))
			found = other;
	}
	free(uuid);
	return found;
}

struct span {
	const char *before, *now; /* the status */
	double seconds;
};

static double grown(const struct span *s, const char *key)
{
	uint64_t before = status_number(s->before, key), now = status_number(s->now, key);

	return (double)(now < before ? now : now - before);
}

static double per_second(const struct span *s, const char *const *keys, double each)
{
	double sum = 0;

	for (; *keys; keys++)
		sum += grown(s, *keys);
	return sum * each / s->seconds;
}

/* Keys whose counters add up to one rate. */
#define PER_SECOND(span, each, ...) per_second(span, (const char *const[]){ __VA_ARGS__, NULL }, each)

static void of_cache(const struct sample *before, const struct sample *now, const struct mapped *volume, struct volume_rates *rates)
{
	const struct mapped *cache = snapshot_cache(&now->list, volume), *earlier = cache ? then(before, cache) : NULL;

	rates->has_cache = cache;
	if (!cache)
		return;
	rates->read_latency_us = status_number(cache->status, "read_latency_us");
	rates->write_latency_us = status_number(cache->status, "write_latency_us");
	if (earlier)
		rates->waits = grown(&(struct span){ earlier->status, cache->status, 1 }, "waits_space") / rates->seconds;
}

bool rates_of_volume(const struct sample *before, const struct sample *now, const struct mapped *volume, struct volume_rates *rates)
{
	const struct mapped *earlier = then(before, volume);
	struct span s;
	double hits;

	*rates = (struct volume_rates){ .hit_ratio = -1 };
	if (!earlier || now->at <= before->at)
		return false;
	s = (struct span){ earlier->status, volume->status, now->at - before->at };
	rates->seconds = s.seconds;
	/* read_misses has those that bypass the cache, read_mixed counts requests whose pieces are among the others */
	rates->reads = PER_SECOND(&s, 1, "read_hits", "read_zeroes", "read_misses");
	rates->writes = PER_SECOND(&s, 1, "write_cached", "write_through", "write_around", "write_bypass", "write_zeroes");
	rates->flushes = PER_SECOND(&s, 1, "flushes");
	rates->read_bytes = PER_SECOND(&s, 512, "read_hit_sectors", "read_miss_sectors");
	rates->write_bytes = PER_SECOND(&s, 512, "write_cached_sectors", "write_backing_sectors");
	rates->fill_bytes = PER_SECOND(&s, 512, "fill_sectors");
	rates->writeback_bytes = PER_SECOND(&s, 512, "writeback_sectors");
	hits = PER_SECOND(&s, 1, "read_hits", "read_zeroes");
	if (rates->reads > 0)
		rates->hit_ratio = hits / rates->reads;
	rates->cached_bytes = status_number(volume->status, "cached_sectors") << 9;
	rates->dirty_bytes = status_number(volume->status, "dirty_sectors") << 9;
	of_cache(before, now, volume, rates);
	return true;
}
