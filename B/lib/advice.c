// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Status lines in words.  Counters of errors count since the cache was made in the kernel, so what they tell may be over: said as such.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "status.h"

#define CONGESTED 50 /* percent of the requests of one kind: as from there on the kernel tells of it.  A few come and go with each load */

static void advise_set(const char *name, const char *status, struct problems *found)
{
	char *ssds = status_value(status, "ssds");

	if (status_number(status, "devices_failed"))
		problem(found, "devices_failed",
			"%" PRIu64 " of %" PRIu64 " SSDs failed, or are missing (by place: %s): dirty data has fewer copies; "
			"larder cache replace %s PLACE NEW-SSD, larder cache add %s SSD if it was only away, or larder cache remove %s PLACE to go on with fewer",
			status_number(status, "devices_failed"), status_number(status, "devices"), ssds ? ssds : "?", name, name, name);
	free(ssds);
	if (status_is(status, "roles_honoured", "0"))
		problem(found, "roles_honoured",
			"too few SSDs are left for a role, or too small ones: others do its work; larder cache add %s SSD --role ROLE", name);
}

/* Sectors that dirty data has room for: each is written as often as `mirror` says, and counted once. */
static uint64_t room_for_dirty(const char *status)
{
	uint64_t segments = status_number(status, "segments"), lost = status_number(status, "segments_lost"), copies = 1;

	if (status_number(status, "mirrored"))
		copies = status_is(status, "mirror", "dirty:3") && status_number(status, "devices") >= 3 + status_number(status, "devices_failed") ? 3 : 2;
	return (segments > lost ? segments - lost : 0) * status_number(status, "segment_sectors") / copies;
}

static void advise_contents(const char *name, const char *status, struct problems *found)
{
	uint64_t size = room_for_dirty(status), dirty = status_number(status, "dirty_sectors");

	if (status_number(status, "lost_sectors"))
		problem(found, "lost_sectors",
			"%" PRIu64 " sectors that were acknowledged (commit=buffered) and never flushed are in memory alone; copy what you need "
			"from the volumes, they can be read; larder cache stop %s gives it up",
			status_number(status, "lost_sectors"), name);
	if (status_number(status, "scrub_unrepairable"))
		problem(found, "scrub_unrepairable",
			"%" PRIu64 " damaged slots without a whole copy: reads of them fail, the kernel's log names volume and sectors; "
			"write them anew or discard them",
			status_number(status, "scrub_unrepairable"));
	else if (status_number(status, "errors_checksum") && !status_is(status, "scrub", "done"))
		problem(found, "errors_checksum",
			"%" PRIu64 " times data of an SSD did not match its checksum; larder cache scrub %s reads and repairs all of it",
			status_number(status, "errors_checksum"), name);
	if (status_is(status, "scrub", "failed"))
		problem(found, "scrub", "the last scrub could not read an SSD, the kernel's log names it; check it, then larder cache scrub %s", name);
	if (status_number(status, "errors_read"))
		problem(found, "errors_read",
			"%" PRIu64 " reads of an SSD have failed since the cache was started, perhaps of one that was replaced since; check it (smartctl); "
			"larder cache scrub %s tells what is lost, if anything is; behind larder cache stop %s, larder cache start %s it is counted anew",
			status_number(status, "errors_read"), name, name, name);
	if (size && dirty >= size / 2)
		problem(found, "dirty_sectors",
			"half of the cache or more is not written back: when it is full, writes wait; larder volume flush VOLUME; if a disk is "
			"gone for good, dmsetup message %s 0 forget UUID-OF-VOLUME discard_dirty gives its data up",
			name);
}

void advise_cache(const char *name, const char *status, struct problems *found)
{
	uint64_t read = status_number(status, "read_avoided_percent"), write = status_number(status, "write_avoided_percent");
	bool dirty = status_number(status, "dirty_sectors");
	char *resync = status_value(status, "resync");

	if (status_is(status, "state", "failed"))
		problem(found, "state",
			"an SSD refuses writes, and nothing more is written to it; reads go on; %s. Check the SSD, stop the volumes, then "
			"larder cache stop %s, larder cache start %s; if it takes no writes any more: %s",
			dirty ? "what it alone has is written to the disks: of a volume that is leaving writes and flushes wait for that, "
				"of one that is cache-failed they fail (larder volume status)" :
				"nothing is in it alone, and its volumes go on without it",
			name, name, dirty ? "larder rescue writeback" : "larder volume detach VOLUME");
	if (status_is(status, "state", "suspended"))
		problem(found, "state", "it is suspended, or its start failed: the kernel's log says why; dmsetup resume %s", name);
	advise_set(name, status, found);
	if (status_has(status, "trouble", "flush"))
		problem(found, "trouble",
			"the last flush of an SSD failed: writes and flushes fail until one succeeds, each tries again; check the SSD and its cables");
	if (status_has(status, "trouble", "single"))
		problem(found, "trouble",
			"an SSD has left: dirty data (%" PRIu64 " sectors) has one copy, and gets a second one (resync: %s)%s",
			status_number(status, "single_sectors"), resync ? resync : "?",
			resync && !strcmp(resync, "failed") ? "; some of it cannot be read: the kernel's log; write it anew or discard it" :
			resync && !strcmp(resync, "waiting") ? "; there is no room for it: it goes on when some is written back, or add an SSD" :
							       "; do not take another SSD away before that has ended");
	free(resync);
	advise_contents(name, status, found);
	if (read >= CONGESTED || write >= CONGESTED)
		problem(found, "congestion",
			"an SSD answers slowly: %" PRIu64 " %% of the reads and %" PRIu64 " %% of the writes that may go to the disks do; it is "
			"asked again by itself; larder cache set %s congestion_read=0 congestion_write=0 switches that off",
			read, write, name);
}

void advise_volume(const char *name, const char *status, struct problems *found)
{
	if (status_is(status, "state", "passing"))
		problem(found, "state",
			"its cache has failed, and it goes on without, as slow as its disk: nothing was in the cache alone; larder cache status "
			"says what is wrong there; for another one: of a stack larder stop %s, larder replace %s cache SSD...; else larder volume detach %s, larder "
			"volume attach %s --cache OTHER",
			name, name, name, name);
	if (status_is(status, "state", "leaving"))
		problem(found, "state",
			"its cache has failed, and what only that has is read from it and written to the disk (dirty_sectors); writes wait for that, "
			"failure_wait seconds at most; then it goes on without, by itself");
	if (status_is(status, "state", "cache-failed"))
		problem(found, "state",
			"its cache has failed: writes and flushes fail%s; larder cache status says what mends it%s%s",
			status_number(status, "dirty_sectors") ?
				", until the dirty data is written to the disk, which is tried again and again (the kernel's log says what is in the way)" : "",
			status_number(status, "dirty_sectors") ? "" : "; nothing is dirty: to go on without it, larder volume detach ",
			status_number(status, "dirty_sectors") ? "" : name);
	if (status_has(status, "trouble", "writeback"))
		problem(found, "trouble",
			"dirty data cannot be written to the disk (the kernel's log says why); it stays in the cache, and is tried again. Check the "
			"disk, or the space of the pool below it; larder volume flush %s tries at once",
			name);
	if (status_has(status, "trouble", "flush"))
		problem(found, "trouble",
			"the last flush of the disk failed: writes and flushes fail until one succeeds, each tries again; check the disk and its cables");
	if (status_has(status, "trouble", "superblock"))
		problem(found, "trouble",
			"the superblock of the disk cannot be written: it must name the SSDs that are left before any write succeeds; check the disk");
	if (status_has(status, "trouble", "full"))
		problem(found, "trouble",
			"the cache is full of dirty data that cannot be written to the disk: writes fail, also of what is cached; they go on by "
			"themselves when some can be written. Make the disk, or the pool below it, take writes again, then larder volume flush %s",
			name);
	if (status_number(status, "errors_checksum"))
		problem(found, "errors_checksum",
			"%" PRIu64 " times data of it on the SSD did not match its checksum, and was not copied; larder cache scrub, on its cache; behind "
			"larder volume stop %s, larder volume start %s it is counted anew",
			status_number(status, "errors_checksum"), name, name);
	if (status_number(status, "errors_read") || status_number(status, "errors_write") || status_number(status, "errors_flush"))
		problem(found, "errors",
			"requests to the disk have failed (read %" PRIu64 ", write %" PRIu64 ", flush %" PRIu64 ") since it was started, perhaps to one that "
			"was replaced since; check it (smartctl); behind larder volume stop %s, larder volume start %s they are counted anew",
			status_number(status, "errors_read"), status_number(status, "errors_write"), status_number(status, "errors_flush"), name, name);
}
