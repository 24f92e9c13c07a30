/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints larder:*: the life of a request, a record, a segment, a miss, a batch of writeback. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM larder

#if !defined(LARDER_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define LARDER_TRACE_H

#include <linux/tracepoint.h>
#include "larder.h"

DECLARE_EVENT_CLASS(larder_request,
	TP_PROTO(struct volume *v, u64 sector, u32 len),
	TP_ARGS(v, sector, len),
	TP_STRUCT__entry(__field(u16, volume) __field(u64, sector) __field(u32, len)),
	TP_fast_assign(__entry->volume = v->number; __entry->sector = sector; __entry->len = len;),
	TP_printk("volume=%u sector=%llu len=%u", __entry->volume, __entry->sector, __entry->len)
);

DEFINE_EVENT(larder_request, larder_miss,
	TP_PROTO(struct volume *v, u64 sector, u32 len), TP_ARGS(v, sector, len));
DEFINE_EVENT(larder_request, larder_fill,
	TP_PROTO(struct volume *v, u64 sector, u32 len), TP_ARGS(v, sector, len));

TRACE_EVENT(larder_write,
	TP_PROTO(struct volume *v, u64 sector, u32 len, u64 cache),
	TP_ARGS(v, sector, len, cache),
	TP_STRUCT__entry(__field(u16, volume) __field(u64, sector) __field(u32, len) __field(u64, cache)),
	TP_fast_assign(__entry->volume = v->number; __entry->sector = sector; __entry->len = len; __entry->cache = cache;),
	TP_printk("volume=%u sector=%llu len=%u cache=%llu", __entry->volume, __entry->sector, __entry->len, __entry->cache)
);

TRACE_EVENT(larder_bypass,
	TP_PROTO(struct volume *v, u64 sector, u32 len, bool exempt),
	TP_ARGS(v, sector, len, exempt),
	TP_STRUCT__entry(__field(u16, volume) __field(u64, sector) __field(u32, len) __field(bool, exempt)),
	TP_fast_assign(__entry->volume = v->number; __entry->sector = sector; __entry->len = len; __entry->exempt = exempt;),
	TP_printk("volume=%u sector=%llu len=%u exempt=%d", __entry->volume, __entry->sector, __entry->len, __entry->exempt)
);

TRACE_EVENT(larder_append,
	TP_PROTO(struct cache *c, struct record *r, u32 from, u32 to, bool commit),
	TP_ARGS(c, r, from, to, commit),
	TP_STRUCT__entry(__field(u8, stream) __field(u32, segment) __field(u32, from) __field(u32, to) __field(bool, commit)
			 __field(u64, lsn) __field(u64, sequence)),
	TP_fast_assign(__entry->stream = r->stream; __entry->segment = r->segment; __entry->from = from; __entry->to = to;
		       __entry->commit = commit; __entry->lsn = r->lsn; __entry->sequence = r->sequence;),
	TP_printk("stream=%u segment=%u slots=[%u,%u) commit=%d lsn=%llu sequence=%llu", __entry->stream, __entry->segment,
		  __entry->from, __entry->to, __entry->commit, __entry->lsn, __entry->sequence)
);

TRACE_EVENT(larder_applied,
	TP_PROTO(struct cache *c, struct record *r),
	TP_ARGS(c, r),
	TP_STRUCT__entry(__field(u64, lsn) __field(u64, sequence) __field(u64, durable)),
	TP_fast_assign(__entry->lsn = r->lsn; __entry->sequence = r->sequence; __entry->durable = c->log.durable_lsn;),
	TP_printk("lsn=%llu sequence=%llu durable=%llu", __entry->lsn, __entry->sequence, __entry->durable)
);

TRACE_EVENT(larder_flush,
	TP_PROTO(dev_t dev, u64 number),
	TP_ARGS(dev, number),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u64, number)),
	TP_fast_assign(__entry->dev = dev; __entry->number = number;),
	TP_printk("dev=%u:%u number=%llu", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->number)
);

TRACE_EVENT(larder_flush_done,
	TP_PROTO(dev_t dev, u64 number, int error),
	TP_ARGS(dev, number, error),
	TP_STRUCT__entry(__field(dev_t, dev) __field(u64, number) __field(int, error)),
	TP_fast_assign(__entry->dev = dev; __entry->number = number; __entry->error = error;),
	TP_printk("dev=%u:%u number=%llu error=%d", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->number, __entry->error)
);

TRACE_EVENT(larder_open,
	TP_PROTO(struct cache *c, u32 opened, u32 free),
	TP_ARGS(c, opened, free),
	TP_STRUCT__entry(__field(u32, opened) __field(u32, free)),
	TP_fast_assign(__entry->opened = opened; __entry->free = free;),
	TP_printk("opened=%u free=%u", __entry->opened, __entry->free)
);

TRACE_EVENT(larder_reclaim,
	TP_PROTO(struct cache *c, u32 segment, u32 live, u32 hot),
	TP_ARGS(c, segment, live, hot),
	TP_STRUCT__entry(__field(u32, segment) __field(u32, live) __field(u32, hot)),
	TP_fast_assign(__entry->segment = segment; __entry->live = live; __entry->hot = hot;),
	TP_printk("segment=%u live=%u hot=%u", __entry->segment, __entry->live, __entry->hot)
);

TRACE_EVENT(larder_marks,
	TP_PROTO(struct volume *v, u32 n, bool set),
	TP_ARGS(v, n, set),
	TP_STRUCT__entry(__field(u16, volume) __field(u32, n) __field(bool, set)),
	TP_fast_assign(__entry->volume = v->number; __entry->n = n; __entry->set = set;),
	TP_printk("volume=%u n=%u set=%d", __entry->volume, __entry->n, __entry->set)
);

TRACE_EVENT(larder_writeback,
	TP_PROTO(struct volume *v, u32 pieces, int error),
	TP_ARGS(v, pieces, error),
	TP_STRUCT__entry(__field(u16, volume) __field(u32, pieces) __field(int, error)),
	TP_fast_assign(__entry->volume = v->number; __entry->pieces = pieces; __entry->error = error;),
	TP_printk("volume=%u pieces=%u error=%d", __entry->volume, __entry->pieces, __entry->error)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
