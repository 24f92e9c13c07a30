/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Speed: on which side streams are faster, on the SSD or on the backing (sequential_cutoff=auto).  Pure: includes pure.h only,
 * tested in userland.
 *
 * Requests of streams are timed, from when the volume gets them to their end; what a KiB took goes into an average of the side that
 * they went to.  Whoever reads or writes a stream has as many requests in flight on either side, so the averages compare as
 * throughputs do.
 *
 * Writes: streams go to one side, and are known there.  The other side is asked again by a probe, a piece of a stream, so small and
 * so seldom that it costs less than a hundredth where the other side is five times slower.  They change sides for a tenth.
 * Reads: the SSD is known from hits, the backing from misses; both come by themselves.
 *
 * No locks: averages and counts are read and written by anybody, who may lose one.
 */
#ifndef LARDER_SPEED_H
#define LARDER_SPEED_H

#include "pure.h"

enum larder_side { LARDER_SIDE_SSD, LARDER_SIDE_BACKING, LARDER_NR_SIDES };

#define LARDER_STREAM_TIMED	1024u	/* KiB: from here on a run is timed, */
#define LARDER_STREAM_CUTOFF	4096u	/* and from here on it is a stream that may go to the backing */
#define LARDER_STREAM_ROOM	50u	/* percent of the cache that are dirty: from here on streams of writes go to the backing */
#define LARDER_PROBE_EVERY	1048576u	/* KiB of streams between two probes of the other side, */
#define LARDER_PROBE_MS		60000u	/* and so long, once that side is known */
#define LARDER_PROBE_KIB	2048u	/* of a probe */

struct larder_speed {
	u32 ns[LARDER_NR_SIDES];	/* per KiB, average; 0: not known */
	u8 side;			/* of streams of writes */
	u32 since;			/* KiB that went there since the last probe */
	u32 probe;			/* KiB that a probe has left */
	u64 probed_ms;			/* when the last one began */
};

/* A request of so many sectors took so long. */
void larder_speed_sample(struct larder_speed *s, enum larder_side side, u32 sectors, u64 ns);
/* A stream of reads: is the backing as fast, or is it not known? */
bool larder_speed_read_bypasses(const struct larder_speed *s);
/* Where the next request of a stream of writes goes.  room: the SSD can take it without making the writeback hurry. */
enum larder_side larder_speed_write(struct larder_speed *s, u32 sectors, bool room, u64 now_ms);
/* KiB/s that one request in flight gets, for status; 0: not known. */
u32 larder_speed_kib(const struct larder_speed *s, enum larder_side side);

#endif
