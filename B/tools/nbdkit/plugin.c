// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin of nbdkit: a volume as its cache and its backing show it together, read-only.
 *
 *	nbdkit --readonly nbdkit-larder-plugin.so ssd=PATH... backing=PATH [degraded=yes]
 *
 * `larder rescue serve` starts it.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "message.h"
#include "rescue.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_SERIALIZE_ALL_REQUESTS /* struct cache_image is for one at a time */

static const char *ssd[LARDER_MAX_DEVICES], *backing;
static size_t nr_ssds;
static bool degraded;
static struct rescue_cache cache;
static struct rescue_volume volume;
static bool cache_open, volume_open;

static int take_config(const char *key, const char *value)
{
	if (!strcmp(key, "ssd") && nr_ssds < LARDER_MAX_DEVICES) {
		ssd[nr_ssds++] = value;
	} else if (!strcmp(key, "backing")) {
		backing = value;
	} else if (!strcmp(key, "degraded")) {
		degraded = !strcmp(value, "yes");
	} else {
		nbdkit_error("%s: no such parameter, or too many of it; there are ssd, backing and degraded", key);
		return -1;
	}
	return 0;
}

static int config_complete(void)
{
	if (nr_ssds && backing)
		return 0;
	nbdkit_error("ssd=PATH, for each SSD of the cache, and backing=PATH must be given");
	return -1;
}

/* Once, before the first client; what goes wrong has been said on stderr. */
static int get_ready(void)
{
	cache_open = !rescue_cache_open(&cache, ssd, nr_ssds, degraded);
	volume_open = cache_open && !rescue_volume_open(&volume, &cache, backing, DEVICE_EXAMINE);
	if (!volume_open || rescue_judge(&cache, &volume))
		return -1;
	rescue_tell_lost(&cache, &volume);
	rescue_settle(&cache, &volume);
	return 0;
}

static void unload(void)
{
	if (volume_open)
		rescue_volume_close(&volume);
	if (cache_open)
		rescue_cache_close(&cache);
}

static void *open_volume(int readonly)
{
	(void)readonly;
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t get_size(void *handle)
{
	(void)handle;
	return (int64_t)(le64toh(volume.sb->sectors) << LARDER_SECTOR_SHIFT);
}

static int can_multi_conn(void *handle)
{
	(void)handle;
	return 1; /* nothing is written: all connections see the same */
}

static int read_volume(void *handle, void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
	int error = rescue_read(&cache, &volume, offset, count, buffer);

	(void)handle;
	(void)flags;
	if (!error)
		return 0;
	nbdkit_error("bytes %llu to %llu: error %d: damaged, or not to be read", (unsigned long long)offset,
		     (unsigned long long)offset + count - 1, -error);
	nbdkit_set_error(-error);
	return -1;
}

static struct nbdkit_plugin plugin = {
	.name = "larder",
	.longname = "larder: a volume without the kernel module, read-only",
	.config = take_config,
	.config_complete = config_complete,
	.config_help = "ssd=PATH      an SSD of the cache, each one\n"
		       "backing=PATH  the disk of the volume\n"
		       "degraded=yes  also if SSDs of the cache are missing",
	.get_ready = get_ready,
	.unload = unload,
	.open = open_volume,
	.get_size = get_size,
	.can_multi_conn = can_multi_conn,
	.pread = read_volume,
};

NBDKIT_REGISTER_PLUGIN(plugin)
