/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints larder:*: the life of a request, a record, a segment, a miss, a mark, a batch of writeback (docs/interface.md). */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM larder

#if !defined(LARDER_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define LARDER_TRACE_H

#include <linux/tracepoint.h>
#include "larder.h"

#define LARDER_TRACE_VOLUME __field(dev_t, dev) __field(u16, volume)
#define LARDER_TRACE_RANGE LARDER_TRACE_VOLUME __field(u64, sector) __field(u32, len)
#define LARDER_TRACE_PRINT "cache=%u:%u"
#define LARDER_TRACE_DEV MAJOR(__entry->dev), MINOR(__entry->dev)

/* what reads a trace outside of the kernel knows the numbers only if they are exported */
TRACE_DEFINE_ENUM(SEGMENT_FREE);
TRACE_DEFINE_ENUM(SEGMENT_OPENING);
TRACE_DEFINE_ENUM(SEGMENT_OPENED);
TRACE_DEFINE_ENUM(SEGMENT_ACTIVE);
TRACE_DEFINE_ENUM(SEGMENT_SEALED);
TRACE_DEFINE_ENUM(SEGMENT_RECLAIMING);
TRACE_DEFINE_ENUM(SEGMENT_WAITING);
TRACE_DEFINE_ENUM(SEGMENT_MIRROR);
TRACE_DEFINE_ENUM(SEGMENT_LOST);
TRACE_DEFINE_ENUM(SEGMENT_CHECKPOINT);

#define larder_segment_states \
	{ SEGMENT_FREE, "free" }, { SEGMENT_OPENING, "opening" }, { SEGMENT_OPENED, "opened" }, { SEGMENT_ACTIVE, "active" }, \
	{ SEGMENT_SEALED, "sealed" }, { SEGMENT_RECLAIMING, "reclaiming" }, { SEGMENT_WAITING, "waiting" }, \
	{ SEGMENT_MIRROR, "mirror" }, { SEGMENT_LOST, "lost" }, { SEGMENT_CHECKPOINT, "checkpoint" }

/* ------------------------------------------------------------------ requests */

DECLARE_EVENT_CLASS(larder_request,
	TP_PROTO(struct volume *v, u64 sector, u32 len),
	TP_ARGS(v, sector, len),
	TP_STRUCT__entry(LARDER_TRACE_RANGE),
	TP_fast_assign(__entry->dev = volume_devt(v); __entry->volume = v->number; __entry->sector = sector; __entry->len = len;),
	TP_printk(LARDER_TRACE_PRINT " volume=%u sector=%llu len=%u", LARDER_TRACE_DEV, __entry->volume, __entry->sector,
		  __entry->len)
);

DEFINE_EVENT(larder_request, larder_miss,
	TP_PROTO(struct volume *v, u64 sector, u32 len), TP_ARGS(v, sector, len));
DEFINE_EVENT(larder_request, larder_fill,
	TP_PROTO(struct volume *v, u64 sector, u32 len), TP_ARGS(v, sector, len));
DEFINE_EVENT(larder_request, larder_through,
	TP_PROTO(struct volume *v, u64 sector, u32 len), TP_ARGS(v, sector, len));
DEFINE_EVENT(larder_request, larder_discard,
	TP_PROTO(struct volume *v, u64 sector, u32 len), TP_ARGS(v, sector, len));
DEFINE_EVENT(larder_request, larder_zeroes,
	TP_PROTO(struct volume *v, u64 sector, u32 len), TP_ARGS(v, sector, len));

DECLARE_EVENT_CLASS(larder_placed,
	TP_PROTO(struct volume *v, u64 sector, u32 len, u64 cache),
	TP_ARGS(v, sector, len, cache),
	TP_STRUCT__entry(LARDER_TRACE_RANGE __field(u64, cache)),
	TP_fast_assign(__entry->dev = volume_devt(v); __entry->volume = v->number; __entry->sector = sector; __entry->len = len;
		       __entry->cache = cache;),
	TP_printk(LARDER_TRACE_PRINT " volume=%u sector=%llu len=%u place=%llu", LARDER_TRACE_DEV, __entry->volume,
		  __entry->sector, __entry->len, __entry->cache)
);

DEFINE_EVENT(larder_placed, larder_hit,
	TP_PROTO(struct volume *v, u64 sector, u32 len, u64 cache), TP_ARGS(v, sector, len, cache));
DEFINE_EVENT(larder_placed, larder_write,
	TP_PROTO(struct volume *v, u64 sector, u32 len, u64 cache), TP_ARGS(v, sector, len, cache));

TRACE_EVENT(larder_bypass,
	TP_PROTO(struct volume *v, u64 sector, u32 len, bool exempt),
	TP_ARGS(v, sector, len, exempt),
	TP_STRUCT__entry(LARDER_TRACE_RANGE __field(bool, exempt)),
	TP_fast_assign(__entry->dev = volume_devt(v); __entry->volume = v->number; __entry->sector = sector; __entry->len = len;
		       __entry->exempt = exempt;),
	TP_printk(LARDER_TRACE_PRINT " volume=%u sector=%llu len=%u exempt=%d", LARDER_TRACE_DEV, __entry->volume,
		  __entry->sector, __entry->len, __entry->exempt)
);

DECLARE_EVENT_CLASS(larder_bio,
	TP_PROTO(struct volume *v, struct bio *bio, struct larder_io *io, int error),
	TP_ARGS(v, bio, io, error),
	TP_STRUCT__entry(LARDER_TRACE_RANGE __field(char, op) __field(int, error)),
	TP_fast_assign(__entry->dev = volume_devt(v); __entry->volume = v->number; __entry->op = io_letter(bio);
		       __entry->sector = io->sector; __entry->len = io->len;
		       __entry->error = error;),
	TP_printk(LARDER_TRACE_PRINT " volume=%u op=%c sector=%llu len=%u error=%d", LARDER_TRACE_DEV, __entry->volume,
		  __entry->op, __entry->sector, __entry->len, __entry->error)
);

DEFINE_EVENT(larder_bio, larder_defer,
	TP_PROTO(struct volume *v, struct bio *bio, struct larder_io *io, int error), TP_ARGS(v, bio, io, error));
DEFINE_EVENT(larder_bio, larder_done,
	TP_PROTO(struct volume *v, struct bio *bio, struct larder_io *io, int error), TP_ARGS(v, bio, io, error));

TRACE_EVENT(larder_copy,
	TP_PROTO(struct copy *copy, u8 stream, int error),
	TP_ARGS(copy, stream, error),
	TP_STRUCT__entry(LARDER_TRACE_RANGE __field(u8, stream) __field(u64, cache) __field(int, error)),
	TP_fast_assign(__entry->dev = volume_devt(copy->volume); __entry->volume = copy->volume->number;
		       __entry->sector = copy->sector; __entry->len = copy->len; __entry->stream = stream;
		       __entry->cache = copy->cache; __entry->error = error;),
	TP_printk(LARDER_TRACE_PRINT " volume=%u sector=%llu len=%u stream=%u place=%llu error=%d", LARDER_TRACE_DEV,
		  __entry->volume, __entry->sector, __entry->len, __entry->stream, __entry->cache, __entry->error)
);

/* ------------------------------------------------------------------ records, flushes, checkpoints */

TRACE_EVENT(larder_append,
	TP_PROTO(struct cache *c, struct record *r, u32 from, u32 to, bool commit),
	TP_ARGS(c, r, from, to, commit),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u8, stream) __field(u32, segment) __field(u32, from) __field(u32, to)
			 __field(bool, commit) __field(u64, lsn) __field(u64, sequence)),
	TP_fast_assign(__entry->dev = c->devt; __entry->stream = r->stream; __entry->segment = r->segment; __entry->from = from;
		       __entry->to = to; __entry->commit = commit; __entry->lsn = r->lsn; __entry->sequence = r->sequence;),
	TP_printk(LARDER_TRACE_PRINT " stream=%u segment=%u slots=[%u,%u) commit=%d lsn=%llu sequence=%llu", LARDER_TRACE_DEV,
		  __entry->stream, __entry->segment, __entry->from, __entry->to, __entry->commit, __entry->lsn,
		  __entry->sequence)
);

TRACE_EVENT(larder_applied,
	TP_PROTO(struct cache *c, struct record *r),
	TP_ARGS(c, r),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u64, lsn) __field(u64, sequence) __field(u64, durable)),
	TP_fast_assign(__entry->dev = c->devt; __entry->lsn = r->lsn; __entry->sequence = r->sequence;
		       __entry->durable = c->log.durable_lsn;),
	TP_printk(LARDER_TRACE_PRINT " lsn=%llu sequence=%llu durable=%llu", LARDER_TRACE_DEV, __entry->lsn, __entry->sequence,
		  __entry->durable)
);

TRACE_EVENT(larder_flush,
	TP_PROTO(dev_t dev, u64 number),
	TP_ARGS(dev, number),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u64, number)),
	TP_fast_assign(__entry->dev = dev; __entry->number = number;),
	TP_printk("dev=%u:%u number=%llu", LARDER_TRACE_DEV, __entry->number)
);

TRACE_EVENT(larder_flush_done,
	TP_PROTO(dev_t dev, u64 number, int error),
	TP_ARGS(dev, number, error),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u64, number) __field(int, error)),
	TP_fast_assign(__entry->dev = dev; __entry->number = number; __entry->error = error;),
	TP_printk("dev=%u:%u number=%llu error=%d", LARDER_TRACE_DEV, __entry->number, __entry->error)
);

TRACE_EVENT(larder_checkpoint,
	TP_PROTO(struct cache *c, int error),
	TP_ARGS(c, error),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u64, sequence) __field(u64, bytes) __field(int, error)),
	TP_fast_assign(__entry->dev = c->devt; __entry->sequence = c->named[0].sequence; __entry->bytes = c->named[0].bytes;
		       __entry->error = error;),
	TP_printk(LARDER_TRACE_PRINT " sequence=%llu bytes=%llu error=%d", LARDER_TRACE_DEV, __entry->sequence, __entry->bytes,
		  __entry->error)
);

/* ------------------------------------------------------------------ segments */

TRACE_EVENT(larder_segment,
	TP_PROTO(struct cache *c, u32 segment, u8 was, u8 state),
	TP_ARGS(c, segment, was, state),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u32, segment) __field(u8, stream) __field(u8, was) __field(u8, state)),
	TP_fast_assign(__entry->dev = c->devt; __entry->segment = segment; __entry->stream = c->segments[segment].stream;
		       __entry->was = was; __entry->state = state;),
	TP_printk(LARDER_TRACE_PRINT " segment=%u stream=%u was=%s state=%s", LARDER_TRACE_DEV, __entry->segment, __entry->stream,
		  __print_symbolic(__entry->was, larder_segment_states), __print_symbolic(__entry->state, larder_segment_states))
);

TRACE_EVENT(larder_open,
	TP_PROTO(struct cache *c, u32 opened, u32 free),
	TP_ARGS(c, opened, free),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u32, opened) __field(u32, free)),
	TP_fast_assign(__entry->dev = c->devt; __entry->opened = opened; __entry->free = free;),
	TP_printk(LARDER_TRACE_PRINT " opened=%u free=%u", LARDER_TRACE_DEV, __entry->opened, __entry->free)
);

TRACE_EVENT(larder_reclaim,
	TP_PROTO(struct cache *c, u32 segment, u32 live, u32 hot),
	TP_ARGS(c, segment, live, hot),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u32, segment) __field(u32, live) __field(u32, hot)),
	TP_fast_assign(__entry->dev = c->devt; __entry->segment = segment; __entry->live = live; __entry->hot = hot;),
	TP_printk(LARDER_TRACE_PRINT " segment=%u live=%u hot=%u", LARDER_TRACE_DEV, __entry->segment, __entry->live,
		  __entry->hot)
);

/* segment ~0: superblocks, tables and chunks */
TRACE_EVENT(larder_scrub,
	TP_PROTO(struct cache *c, u32 segment, const struct scrub_counts *n),
	TP_ARGS(c, segment, n),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u32, segment) __field(u64, slots) __field(u64, errors) __field(u64, repaired)
			 __field(u64, dropped) __field(u64, unrepairable)),
	TP_fast_assign(__entry->dev = c->devt; __entry->segment = segment; __entry->slots = n->slots;
		       __entry->errors = n->errors; __entry->repaired = n->repaired; __entry->dropped = n->dropped;
		       __entry->unrepairable = n->unrepairable;),
	TP_printk(LARDER_TRACE_PRINT " segment=%u slots=%llu errors=%llu repaired=%llu dropped=%llu unrepairable=%llu",
		  LARDER_TRACE_DEV, __entry->segment, __entry->slots, __entry->errors, __entry->repaired, __entry->dropped,
		  __entry->unrepairable)
);

/* ------------------------------------------------------------------ marks, writeback */

TRACE_EVENT(larder_mark,
	TP_PROTO(struct volume *v, u64 region, bool set),
	TP_ARGS(v, region, set),
	TP_STRUCT__entry(LARDER_TRACE_VOLUME __field(u64, region) __field(bool, set)),
	TP_fast_assign(__entry->dev = volume_devt(v); __entry->volume = v->number; __entry->region = region; __entry->set = set;),
	TP_printk(LARDER_TRACE_PRINT " volume=%u region=%llu set=%d", LARDER_TRACE_DEV, __entry->volume, __entry->region,
		  __entry->set)
);

DECLARE_EVENT_CLASS(larder_batch,
	TP_PROTO(struct volume *v, u32 pieces, int error),
	TP_ARGS(v, pieces, error),
	TP_STRUCT__entry(LARDER_TRACE_VOLUME __field(u32, pieces) __field(int, error)),
	TP_fast_assign(__entry->dev = volume_devt(v); __entry->volume = v->number; __entry->pieces = pieces;
		       __entry->error = error;),
	TP_printk(LARDER_TRACE_PRINT " volume=%u pieces=%u error=%d", LARDER_TRACE_DEV, __entry->volume, __entry->pieces,
		  __entry->error)
);

DEFINE_EVENT(larder_batch, larder_writeback_begin,
	TP_PROTO(struct volume *v, u32 pieces, int error), TP_ARGS(v, pieces, error));
DEFINE_EVENT(larder_batch, larder_writeback,
	TP_PROTO(struct volume *v, u32 pieces, int error), TP_ARGS(v, pieces, error));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
