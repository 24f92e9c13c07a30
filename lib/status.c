// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The status of the targets: one table of keys per target, in the order of docs/interface.md.  Keys that the kernel has and these
 * tables have not are skipped by reports, and shown by `status --all`.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "status.h"

const struct field cache_status_fields[] = {
	{ "uuid", VALUE_TEXT, "UUID", "UUID of the cache" },
	{ "state", VALUE_TEXT, "State", "running, suspended, failed; stopped: not started" },
	{ "devices", VALUE_NUMBER, "#Dev", "number of SSDs" },
	{ "devices_failed", VALUE_NUMBER, "#Failed", "of these, those that have failed, are missing or stale" },
	{ "mirrored", VALUE_NUMBER, "Mirrored", "1: what the option mirror names is written to two SSDs" },
	{ "below_sectors", VALUE_SECTORS, "Below", "has fewer copies than the option mirror asks for" },
	{ "set_generation", VALUE_NUMBER, "SetGen", "number of changes of the set of SSDs" },
	{ "joining", VALUE_TEXT, "Joining", "number of the SSD that joins, or -" },
	{ "join_sectors", VALUE_SECTORS, "JoinCopied", "copied to it so far" },
	{ "drain_segments", VALUE_NUMBER, "#Drain", "segments that the SSD being drained still has in use" },
	{ "ssds", VALUE_TEXT, "SSDs", "state of each SSD, by number: active, draining, joining, failed, removed" },
	{ "roles_honoured", VALUE_NUMBER, "Roles?", "1: the SSDs have the segments that their roles ask for" },
	{ "single_sectors", VALUE_SECTORS, "Single", "dirty data that has one copy of two" },
	{ "resync", VALUE_TEXT, "Resync", "second copies of it are made: idle, running, waiting, failed" },
	{ "resync_sectors", VALUE_SECTORS, "Resynced", "copied since that began" },
	{ "lost_sectors", VALUE_SECTORS, "Lost", "acknowledged from memory, on no SSD, and the cache has failed" },
	{ "trouble", VALUE_TEXT, "Trouble", "flush: the last flush of an SSD failed; single: dirty data has one copy; -: nothing" },
	{ "scrub", VALUE_TEXT, "Scrub", "idle, running, done, stopped, failed" },
	{ "scrub_segments", VALUE_NUMBER, "#Scrubbed", "segments that the scrub is done with" },
	{ "scrub_slots", VALUE_NUMBER, "ScrRead", "4 KiB slots that it has read" },
	{ "scrub_errors", VALUE_NUMBER, "ScrErr", "damaged copies of slots that it has found" },
	{ "scrub_repaired", VALUE_NUMBER, "ScrRepaired", "of these, those repaired from another copy" },
	{ "scrub_dropped", VALUE_NUMBER, "ScrDropped", "slots dropped, as their data is clean, or not needed" },
	{ "scrub_unrepairable", VALUE_NUMBER, "ScrLost", "dirty slots of which no copy is whole, and copies that cannot be written" },
	{ "mended_slots", VALUE_NUMBER, "Mended", "damaged slots that a read has found, overwritten with another copy" },
	{ "segment_sectors", VALUE_SECTORS, "Segment", "size of a segment" },
	{ "segments", VALUE_NUMBER, "#Seg", "number of segments" },
	{ "segments_free", VALUE_NUMBER, "#Free", "segments: free" },
	{ "segments_opened", VALUE_NUMBER, "#Opened", "segments: opened, not yet begun" },
	{ "segments_write", VALUE_NUMBER, "#Write", "segments: of the write stream" },
	{ "segments_fill", VALUE_NUMBER, "#Fill", "segments: of the fill stream" },
	{ "segments_keep", VALUE_NUMBER, "#Keep", "segments: of the keep stream" },
	{ "segments_checkpoint", VALUE_NUMBER, "#Ckpt", "segments: of checkpoints" },
	{ "segments_waiting", VALUE_NUMBER, "#Wait", "segments: empty, but a replay may need them" },
	{ "segments_mirror", VALUE_NUMBER, "#Mirror", "segments: second copies" },
	{ "segments_lost", VALUE_NUMBER, "#Lost", "segments: on an SSD that has failed, or a place that takes no checkpoint" },
	{ "volumes", VALUE_NUMBER, "#Vol", "volumes attached" },
	{ "live_sectors", VALUE_SECTORS, "Live", "cached data" },
	{ "dirty_sectors", VALUE_SECTORS, "Dirty", "cached data newer than its backing" },
	{ "index_bytes", VALUE_BYTES, "Index", "memory of the indexes" },
	{ "memory_bytes", VALUE_BYTES, "Memory", "memory of everything" },
	{ "memory_limit_bytes", VALUE_BYTES, "MemLimit", "bound of memory_bytes" },
	{ "epoch", VALUE_NUMBER, "Epoch", "newest epoch" },
	{ "sequence", VALUE_NUMBER, "Sequence", "last sequence number given" },
	{ "records_applied", VALUE_NUMBER, "Applied", "ordinal of the newest record applied" },
	{ "records_durable", VALUE_NUMBER, "Durable", "ordinal of the newest record durable" },
	{ "appends", VALUE_NUMBER, "Appends", "data appends to the SSD" },
	{ "append_slots", VALUE_NUMBER, "Slots", "4 KiB slots in them" },
	{ "gathered_appends", VALUE_NUMBER, "Gathered", "appends of more than one write" },
	{ "commits", VALUE_NUMBER, "Commits", "commit blocks" },
	{ "commits_full", VALUE_NUMBER, "CmtFull", "commit blocks due to a full record" },
	{ "commits_timer", VALUE_NUMBER, "CmtTimer", "commit blocks due to commit_interval" },
	{ "commits_flush", VALUE_NUMBER, "CmtFlush", "commit blocks due to a flush" },
	{ "commits_fua", VALUE_NUMBER, "CmtFUA", "commit blocks due to a FUA write" },
	{ "commits_with_data", VALUE_NUMBER, "CmtData", "commit blocks in one append with their data" },
	{ "commits_asked", VALUE_NUMBER, "CmtAsked", "commit blocks asked for from within" },
	{ "fill_records", VALUE_NUMBER, "FillRec", "records of the fill stream" },
	{ "keep_records", VALUE_NUMBER, "KeepRec", "records of the keep stream" },
	{ "summaries", VALUE_NUMBER, "Summaries", "segment summaries written" },
	{ "ssd_flushes", VALUE_NUMBER, "Flushes", "flushes issued to the SSD" },
	{ "fua_appends", VALUE_NUMBER, "FUAAppends", "appends sent with FUA" },
	{ "append_retries", VALUE_NUMBER, "Retries", "appends sent again after an error" },
	{ "checkpoints", VALUE_NUMBER, "Ckpts", "checkpoints taken" },
	{ "checkpoint_bytes", VALUE_BYTES, "CkptBytes", "written for checkpoints" },
	{ "superblock_writes", VALUE_NUMBER, "SBWrites", "writes of the superblock" },
	{ "segment_opens", VALUE_NUMBER, "SegOpens", "segments opened" },
	{ "chunk_opens", VALUE_NUMBER, "ChunkOpens", "segments opened for chunks of a checkpoint" },
	{ "reclaimed", VALUE_NUMBER, "Reclaimed", "segments reclaimed" },
	{ "reclaim_kept_slots", VALUE_NUMBER, "RclKept", "slots re-appended by reclaim" },
	{ "reclaim_moved_slots", VALUE_NUMBER, "RclMoved", "dirty slots that cannot be written back, re-appended by reclaim" },
	{ "reclaim_dropped_slots", VALUE_NUMBER, "RclDropped", "slots dropped by reclaim" },
	{ "reclaim_relinked", VALUE_NUMBER, "RclRelinked", "segments put back young" },
	{ "reclaim_discards", VALUE_NUMBER, "RclDiscards", "segments discarded on the SSD" },
	{ "discards_skipped", VALUE_NUMBER, "DiscSkipped", "segments that were not discarded, as writes would have waited for it" },
	{ "checked_slots", VALUE_NUMBER, "SumOK", "slots that matched their checksum before they were copied, or with verify=reads read" },
	{ "unchecked_slots", VALUE_NUMBER, "SumUnknown", "slots copied, or read with verify=reads, unchecked" },
	{ "sums_reads", VALUE_NUMBER, "SumReads", "reads of the SSD for checksums" },
	{ "waits_space", VALUE_NUMBER, "WaitSpace", "requests that waited for a free segment" },
	{ "waits_pace", VALUE_NUMBER, "WaitPace", "attempts of writes that waited for their share of the room that writeback makes" },
	{ "waits_memory", VALUE_NUMBER, "WaitMemory", "misses not filled for memory_limit, and attempts that found no memory" },
	{ "waits_pool", VALUE_NUMBER, "WaitPool", "requests that waited for a record buffer" },
	{ "errors_read", VALUE_NUMBER, "ErrRead", "read errors of the SSD" },
	{ "errors_write", VALUE_NUMBER, "ErrWrite", "write errors of the SSD" },
	{ "errors_checksum", VALUE_NUMBER, "ErrSum", "checksum errors of the SSD" },
	{ "errors_flush", VALUE_NUMBER, "ErrFlush", "flush errors of the SSD" },
	{ "replayed_records", VALUE_NUMBER, "Replayed", "records replayed by the last start" },
	{ "replayed_bytes", VALUE_BYTES, "ReplayBytes", "bytes of log replayed by the last start" },
	{ "start_ms", VALUE_NUMBER, "StartMs", "duration of the last start, ms" },
	{ "read_latency_us", VALUE_NUMBER, "RdLatency", "average latency of reads of the SSD, us" },
	{ "write_latency_us", VALUE_NUMBER, "WrLatency", "average latency of appends to the SSD, us" },
	{ "read_avoided_percent", VALUE_NUMBER, "RdAvoid%", "share of reads that leaves the slow SSD alone" },
	{ "write_avoided_percent", VALUE_NUMBER, "WrAvoid%", "share of writes that leaves the slow SSD alone" },
	{ "pinned_sectors", VALUE_SECTORS, "Pinned", "cached data that is pinned" },
	{ "commit", VALUE_OPTION, "Commit", "option: when a write is acknowledged" },
	{ "commit_interval", VALUE_OPTION, "CmtIntv", "option: ms, longest wait for a commit block" },
	{ "gather", VALUE_OPTION, "Gather", "option: appends in flight beyond which writes are gathered" },
	{ "memory_limit", VALUE_OPTION, "MemOpt", "option: MiB, 0: 10 % of RAM" },
	{ "small_percent", VALUE_OPTION, "Small%", "option: share of the small queue" },
	{ "discard", VALUE_OPTION, "Discard", "option: discard freed segments" },
	{ "mirror", VALUE_OPTION, "Mirror", "option: which data has a copy on a second SSD" },
	{ "roles", VALUE_OPTION, "Roles", "option: what each SSD is for, by number: both, write, read" },
	{ "max_marks", VALUE_OPTION, "MaxMarks", "option: intent marks at once, per volume" },
	{ "checkpoint_percent", VALUE_OPTION, "Ckpt%", "option: replay longer than this asks for a checkpoint" },
	{ "congestion_read", VALUE_OPTION, "CongRd", "option: us, reads slower than this avoid the SSD; 0: off" },
	{ "congestion_write", VALUE_OPTION, "CongWr", "option: us, appends slower than this avoid the SSD; 0: off" },
	{ "scrub_rate", VALUE_OPTION, "ScrRate", "option: KiB/s, bound of a scrub; 0: none" },
	{ "resync_rate", VALUE_OPTION, "RsnRate", "option: KiB/s, bound of a resync; 0: none" },
	{ "mend", VALUE_OPTION, "Mend", "option: copies that a read has found damaged are mended" },
};
const size_t cache_status_count = sizeof(cache_status_fields) / sizeof(cache_status_fields[0]);

const struct field volume_status_fields[] = {
	{ "uuid", VALUE_TEXT, "UUID", "UUID of the volume" },
	{ "cache", VALUE_TEXT, "CacheUUID", "UUID of its cache, or -" },
	{ "state", VALUE_TEXT, "State", "running, passthrough, leaving, passing, cache-failed; stopped: not started" },
	{ "mode", VALUE_TEXT, "Mode", "writeback, writethrough, writearound, passthrough" },
	{ "room_sectors", VALUE_SECTORS, "Room", "size that the volume may have on its backing as it is now" },
	{ "cached_sectors", VALUE_SECTORS, "Cached", "cached data" },
	{ "dirty_sectors", VALUE_SECTORS, "Dirty", "cached data newer than the backing" },
	{ "extents", VALUE_NUMBER, "Extents", "number of extents" },
	{ "index_bytes", VALUE_BYTES, "Index", "memory of the index" },
	{ "may_be_dirty", VALUE_NUMBER, "MayDirty", "1: the cache may hold what the backing does not" },
	{ "incarnation", VALUE_NUMBER, "Incarn", "raised when the volume ran without its cache" },
	{ "marks", VALUE_NUMBER, "Marks", "intent marks set" },
	{ "flushing", VALUE_NUMBER, "Flushing", "1: everything dirty is being written back" },
	{ "trouble", VALUE_TEXT, "Trouble", "what the disk refuses now: writeback, flush, superblock; full: and so the cache does; -: nothing" },
	{ "read_hits", VALUE_NUMBER, "RdHits", "reads: served by the cache" },
	{ "read_misses", VALUE_NUMBER, "RdMisses", "reads: served by the backing" },
	{ "read_mixed", VALUE_NUMBER, "RdMixed", "reads: split at an extent's end" },
	{ "read_bypass", VALUE_NUMBER, "RdBypass", "reads: past the cache" },
	{ "read_zeroes", VALUE_NUMBER, "RdZeroes", "reads: of zeroed extents" },
	{ "read_congested", VALUE_NUMBER, "RdCongest", "reads: of cached data from the backing, the SSD being slow" },
	{ "read_buffered", VALUE_NUMBER, "RdBuffered", "reads: from the memory of writes that are not on the SSD yet" },
	{ "write_cached", VALUE_NUMBER, "WrCached", "writes: to the cache" },
	{ "write_buffered", VALUE_NUMBER, "WrBuffered", "writes: acknowledged from memory" },
	{ "write_through", VALUE_NUMBER, "WrThrough", "writes: to cache and backing" },
	{ "write_around", VALUE_NUMBER, "WrAround", "writes: to the backing, mode writearound" },
	{ "write_bypass", VALUE_NUMBER, "WrBypass", "writes: past the cache" },
	{ "write_zeroes", VALUE_NUMBER, "WrZeroes", "write-zeroes requests" },
	{ "write_congested", VALUE_NUMBER, "WrCongest", "writes: to pass the cache by, the SSD being slow" },
	{ "write_stripes", VALUE_NUMBER, "WrStripes", "writes: to pass the cache by as whole stripes" },
	{ "write_over_share", VALUE_NUMBER, "WrOver", "writes: to pass the cache by for share_max" },
	{ "discards", VALUE_NUMBER, "Discards", "discards" },
	{ "flushes", VALUE_NUMBER, "Flushes", "flushes" },
	{ "fuas", VALUE_NUMBER, "FUAs", "FUA writes" },
	{ "read_hit_sectors", VALUE_SECTORS, "RdHitSize", "read from the cache" },
	{ "read_miss_sectors", VALUE_SECTORS, "RdMissSize", "read from the backing" },
	{ "write_cached_sectors", VALUE_SECTORS, "WrCacheSize", "written to the cache" },
	{ "write_backing_sectors", VALUE_SECTORS, "WrBackSize", "written to the backing" },
	{ "fills", VALUE_NUMBER, "Fills", "fills appended" },
	{ "fill_sectors", VALUE_SECTORS, "FillSize", "filled into the cache" },
	{ "fills_dropped", VALUE_NUMBER, "FillDrop", "fills given up for a racing write" },
	{ "fills_denied", VALUE_NUMBER, "FillDeny", "fills not begun" },
	{ "fills_first", VALUE_NUMBER, "FillFirst", "fills not begun: the first miss there (admit=second-miss)" },
	{ "fills_over_share", VALUE_NUMBER, "FillOver", "fills not begun for share_max" },
	{ "readaheads", VALUE_NUMBER, "RdAhead", "misses that read more than was asked for" },
	{ "readahead_sectors", VALUE_SECTORS, "RdAheadSize", "read ahead" },
	{ "writeback_writes", VALUE_NUMBER, "WbWrites", "writes of the writeback" },
	{ "writeback_sectors", VALUE_SECTORS, "WbSize", "written back" },
	{ "writeback_superseded", VALUE_NUMBER, "WbSuper", "written back, but overwritten meanwhile" },
	{ "writeback_rate", VALUE_SECTORS, "WbRate", "what the controller allows per second; means little at full speed" },
	{ "backing_flushes", VALUE_NUMBER, "BkFlushes", "flushes issued to the backing" },
	{ "marks_set", VALUE_NUMBER, "MarksSet", "intent marks set so far" },
	{ "marks_cleared", VALUE_NUMBER, "MarksClr", "intent marks cleared so far" },
	{ "deferred", VALUE_NUMBER, "Deferred", "requests handed to the worker" },
	{ "errors_read", VALUE_NUMBER, "ErrRead", "read errors of the backing" },
	{ "errors_write", VALUE_NUMBER, "ErrWrite", "write errors of the backing" },
	{ "errors_flush", VALUE_NUMBER, "ErrFlush", "flush errors of the backing" },
	{ "errors_checksum", VALUE_NUMBER, "ErrSum", "damaged data on the SSD" },
	{ "class_reads", VALUE_TEXT, "ClassRd", "reads by rule of class, the last: no rule matched" },
	{ "class_writes", VALUE_TEXT, "ClassWr", "writes by rule of class" },
	{ "class_read_sectors", VALUE_TEXT, "ClassRdSize", "sectors read by rule of class" },
	{ "class_write_sectors", VALUE_TEXT, "ClassWrSize", "sectors written by rule of class" },
	{ "pinned_sectors", VALUE_SECTORS, "Pinned", "cached data that is pinned" },
	{ "stream_read_ssd", VALUE_NUMBER, "StrRdSsd", "sequential_cutoff=auto: KiB/s that a read of a stream gets from the SSD; 0: not known" },
	{ "stream_read_backing", VALUE_NUMBER, "StrRdBk", "the same from the backing" },
	{ "stream_write_ssd", VALUE_NUMBER, "StrWrSsd", "sequential_cutoff=auto: KiB/s that a write of a stream gets on the SSD; 0: not known" },
	{ "stream_write_backing", VALUE_NUMBER, "StrWrBk", "the same on the backing" },
	{ "sequential_cutoff", VALUE_OPTION, "SeqCutoff", "option: KiB, longer streams bypass the cache; auto: go where they are faster; 0: off" },
	{ "fill", VALUE_OPTION, "Fill", "option: misses fill the cache" },
	{ "admit", VALUE_OPTION, "Admit", "option: which misses do: always, or second-miss" },
	{ "writeback", VALUE_OPTION, "Writeback", "option: background writeback" },
	{ "writeback_percent", VALUE_OPTION, "Wb%", "option: dirty share aimed at" },
	{ "writeback_rate_min", VALUE_OPTION, "WbMin", "option: KiB/s" },
	{ "writeback_rate_max", VALUE_OPTION, "WbMax", "option: KiB/s, 0: none" },
	{ "writeback_depth", VALUE_OPTION, "WbDepth", "option: writes to the backing in flight" },
	{ "readahead", VALUE_OPTION, "Readahead", "option: KiB read behind a miss while the backing is idle; 0: off" },
	{ "share_min", VALUE_OPTION, "ShareMin", "option: percent of the cache that it keeps" },
	{ "share_max", VALUE_OPTION, "ShareMax", "option: percent of the cache that it has at most" },
	{ "stripes", VALUE_OPTION, "Stripes", "option: writes of whole stripes go to the backing" },
	{ "quiet", VALUE_OPTION, "Quiet", "option: an idle disk is left alone until more than writeback_percent is dirty" },
	{ "failure_wait", VALUE_OPTION, "FailWait", "option: seconds that writes wait for what is dirty in a cache that has failed, or is full" },
	{ "verify", VALUE_OPTION, "Verify", "option: what of the SSD is compared with its checksums, beside what is copied: none, or reads" },
	{ "class", VALUE_OPTION, "Class", "option: what goes to the SSD: rules, or default, special, log, everything" },
};
const size_t volume_status_count = sizeof(volume_status_fields) / sizeof(volume_status_fields[0]);

void status_each(const char *status, void (*visit)(const char *key, const char *value, void *data), void *data)
{
	char *copy = must_allocate(strdup(status)), *rest = copy, *word;

	while ((word = strsep(&rest, " \n"))) {
		char *value = strchr(word, '=');

		if (!value)
			continue;
		*value++ = 0;
		visit(word, value, data);
	}
	free(copy);
}

struct wanted {
	const char *key;
	char *value;
};

static void keep_wanted(const char *key, const char *value, void *data)
{
	struct wanted *wanted = data;

	if (wanted->value || strcmp(key, wanted->key))
		return;
	wanted->value = must_allocate(strdup(value));
}

char *status_value(const char *status, const char *key)
{
	struct wanted wanted = { .key = key };

	status_each(status, keep_wanted, &wanted);
	return wanted.value;
}

static bool number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && end != text && !*end && text[0] != '-';
}

uint64_t status_number(const char *status, const char *key)
{
	char *text = status_value(status, key);
	uint64_t value = 0;

	if (text && !number(text, &value))
		value = 0;
	free(text);
	return value;
}

bool status_is(const char *status, const char *key, const char *value)
{
	char *text = status_value(status, key);
	bool same = text && !strcmp(text, value);

	free(text);
	return same;
}

bool status_has(const char *status, const char *key, const char *word)
{
	char *value = status_value(status, key), *rest = value, *next;
	bool has = false;

	while (value && !has && (next = strsep(&rest, "/")))
		has = !strcmp(next, word);
	free(value);
	return has;
}

char *field_text(enum value_kind kind, const char *value, const struct size_format *format, uint64_t *sort)
{
	unsigned shift = kind == VALUE_SECTORS ? 9 : 0;
	char text[SIZE_TEXT];

	*sort = 0;
	if (!value)
		return must_print("%s", "");
	if (kind == VALUE_DECIMAL)
		*sort = (uint64_t)(strtod(value, NULL) * 1000);
	if (kind == VALUE_DECIMAL || !number(value, sort) || kind == VALUE_TEXT || kind == VALUE_OPTION || kind == VALUE_NUMBER ||
	    *sort > UINT64_MAX >> shift)
		return must_print("%s", value);
	*sort <<= shift;
	return must_print("%s", size_print(text, *sort, format));
}
