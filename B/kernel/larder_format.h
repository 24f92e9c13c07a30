/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * larder on disk: the one description of it, shared by kernel and userland.
 *
 * docs/on-disk-format.md is the prose to this header and changes in the same commit.  All numbers are little-endian, all
 * checksums crc32c (initial value ~0, result not inverted; over the whole structure with its own crc field as zero).
 * Bytes called "reserved" or "zero" are written as zero; a reader ignores them unless a feature bit says otherwise.
 *
 * Every member of larder (an SSD of a cache, the backing of a volume, a spare) carries a superblock of 4 KiB at byte 4096.
 *
 *   SSD      | 4 KiB free | superblock | ... | table A at 128 KiB | table B at 256 KiB | ... 1 MiB: segments | superblock copy |
 *   backing  | 4 KiB free | superblock | ... | superblock copy | data_offset: the volume's data ... | tail reserve |
 *
 * A segment is written front to back and reused whole.  Its unit is the slot of 4 KiB:
 *
 *   | data | data | ... | commit block | data | data | commit block | ... unused | summary (LARDER_SUMMARY_SLOTS) |
 *
 * A record is a commit block and the data slots [first, end) in front of it; it is valid, or not valid, as a whole.
 */
#ifndef LARDER_FORMAT_H
#define LARDER_FORMAT_H

#include <linux/types.h>

#define LARDER_SECTOR_SHIFT	9
#define LARDER_SLOT_SIZE	4096u		/* bytes */
#define LARDER_SLOT_SECTORS	8u

#define LARDER_SB_OFFSET	4096u		/* bytes, every member */
#define LARDER_SB_SIZE		4096u
#define LARDER_VERSION		1u
#define LARDER_UUID_SIZE	16u
#define LARDER_LABEL_SIZE	64u		/* bytes of UTF-8, zero padded; no terminator needed when full */
/* no start where a generation or sequence number that it would raise is as high: no cache comes to it */
#define LARDER_COUNTER_END	(1ull << 62)

/* "larder" 0x1f 0xf9 and eight random bytes */
#define LARDER_MAGIC { 0x6c, 0x61, 0x72, 0x64, 0x65, 0x72, 0x1f, 0xf9, 0xc3, 0x0e, 0x8a, 0x57, 0xd1, 0x64, 0xb2, 0x9e }

enum larder_kind {
	LARDER_KIND_CACHE	= 1,	/* an SSD of a cache: struct larder_cache_sb */
	LARDER_KIND_VOLUME	= 2,	/* the backing of a volume: struct larder_volume_sb */
	/* an SSD that waits for one of a cache to fail: the head; cache_uuid, label, segment_size where those of kind 1 are */
	LARDER_KIND_SPARE	= 3,
	LARDER_KIND_OTHER	= 4,	/* a member whose contents another layer owns: the head only */
};

/* Feature masks.  Unknown compat: ignore; unknown ro_compat: do not write; unknown incompat: refuse. */
#define LARDER_COMPAT_ALL	0ull
#define LARDER_RO_COMPAT_ALL	0ull
/* Of SSDs: segments may have a third copy: see SEGMENT_OPEN, OPEN and SEGMENTS items, first_third, next_third */
#define LARDER_INCOMPAT_THIRD	0x1ull
/* Those that a superblock of this kind may have */
#define LARDER_INCOMPAT_OF(kind)	((kind) == LARDER_KIND_CACHE ? LARDER_INCOMPAT_THIRD : 0ull)

#define LARDER_STACK_SIZE	2048u	/* of a description of stacks, see docs/on-disk-format.md 3.4 */

/* 128 bytes, the same at the start of every superblock. */
struct larder_sb_head {
	__u8	magic[16];
	__le32	crc;			/* of all LARDER_SB_SIZE bytes */
	__le32	version;		/* LARDER_VERSION */
	__le32	kind;			/* enum larder_kind */
	__le32	flags;			/* LARDER_SB_* of the kind */
	__le64	generation;		/* raised by every write of the superblock; the higher valid copy counts */
	__le64	compat;
	__le64	ro_compat;
	__le64	incompat;
	__u8	uuid[16];		/* of this member: volume UUID; for an SSD, the UUID of this device */
	__le64	device_sectors;		/* size of the device when it was made, 512-byte sectors */
	__le64	copy_offset;		/* bytes: where the second copy is, 0: none */
	__le64	created;		/* seconds since 1970, UTC */
	__u8	reserved[24];
};

/* ------------------------------------------------------------------ cache (SSD) */

#define LARDER_MAX_DEVICES	16u
#define LARDER_MAX_VOLUMES	1024u
#define LARDER_MAX_VOLUME_SECTORS (1ull << 43)	/* 4 PiB, of one that a cache has */
#define LARDER_NR_EPOCHS	16u
#define LARDER_NR_ANCESTORS	1024u
#define LARDER_NR_CHECKPOINTS	2u
#define LARDER_NR_STREAMS	3u
#define LARDER_MIN_SEGMENT_SIZE	(128u << 10)	/* bytes, a power of two */
#define LARDER_MAX_SEGMENT_SIZE	(16u << 20)
#define LARDER_DEF_SEGMENT_SIZE	(2u << 20)
#define LARDER_MIN_SEGMENTS	32u		/* of one cache */
#define LARDER_SEGMENTS_OFFSET	(1u << 20)	/* bytes */
#define LARDER_TABLE_OFFSET_A	(128u << 10)	/* bytes */
#define LARDER_TABLE_OFFSET_B	(256u << 10)
#define LARDER_TABLE_SIZE	(128u << 10)
/* The linear address of a cache sector has 36 bits: 32 TiB for the whole set. */
#define LARDER_CACHE_SECTOR_BITS 36

enum larder_stream {
	LARDER_STREAM_WRITE	= 0,	/* dirty data and metadata; replayed strictly in order */
	LARDER_STREAM_FILL	= 1,	/* clean copies: first-time ones, and of segments that go before their turn */
	LARDER_STREAM_KEEP	= 2,	/* clean extents worth keeping, re-appended by reclaim */
};

#define LARDER_NO_SEGMENT	0xffffffffu
#define LARDER_COPIES		3u	/* of a segment, itself among them: at most */
#define LARDER_MAX_OPENED	64u	/* of a stream at once: OPEN items of a checkpoint */
#define LARDER_OPEN_CHUNKS	3u	/* in the place of the stream in a SEGMENT_OPEN: for chunks of a checkpoint */

/* 64 bytes.  Empty when first_segment is LARDER_NO_SEGMENT or sequence is 0. */
struct larder_checkpoint_ptr {
	__le64	sequence;		/* raised by every checkpoint, never 0 */
	__le64	bytes;			/* of all its chunks, a multiple of LARDER_CHUNK_SIZE */
	__le64	replay_sequence;	/* replay takes records with this sequence number and later */
	__le32	first_segment;		/* global number: its first chunk is at the segment's first slot */
	__le32	epoch;			/* of the records behind it */
	__le64	hash;			/* that its chunks carry */
	__le32	first_mirror;		/* second copy of first_segment: its number + 1; 0: none */
	__le32	first_third;		/* its third copy, likewise */
	__u8	reserved[16];
};

/* 32 bytes */
struct larder_epoch {
	__le32	epoch;			/* 0: empty; never reused */
	__le32	segment;		/* global number of the write stream's first segment */
	__le64	secret;			/* random */
	__le64	first_sequence;
	__u8	reserved[8];
};

#define LARDER_CACHE_CLEAN_STOP	0x1u	/* sb flags: stopped in order, nothing was in flight */
/* a start ran out of space: replay drops every CLEAN extent at its end, their segments may be reused */
#define LARDER_CACHE_DROP_CLEAN	0x2u
/* of an SSD without a table: it is to join the set in its place; nothing on it counts */
#define LARDER_CACHE_JOINS	0x4u

struct larder_cache_sb {
	struct larder_sb_head head;		/*    0: uuid is this SSD's own */
	__u8	cache_uuid[16];			/*  128: of the set */
	__u8	label[LARDER_LABEL_SIZE];	/*  144 */
	__le32	device_number;			/*  208: place of this SSD in the set */
	__le32	nr_devices;			/*  212: of the set, when this was written */
	__le64	set_generation;			/*  216: of the table of devices */
	__le32	segment_size;			/*  224: bytes */
	__le32	first_segment;			/*  228: global number of this SSD's first segment */
	__le32	nr_segments;			/*  232: on this SSD */
	__le32	role;				/*  236: of this SSD, as in the table; of one that joins: what it is to be */
	__le64	segments_offset;		/*  240: bytes, of this SSD's first segment */
	__le64	table_generation;		/*  248: older tables do not count: shape_generation of the newest */
	__le32	epoch;				/*  256: the newest */
	__le32	reserved1;			/*  260 */
	/*  264: newest record of the write stream known durable when this was written; counts from epochs[0].first_sequence on */
	__le64	durable_sequence;
	__le64	all_generation;			/*  272: the superblocks of all members have had it, durably: one below is older */
	__u8	reserved2[8];			/*  280 */
	struct larder_checkpoint_ptr checkpoint[LARDER_NR_CHECKPOINTS];	/*  288: [0] the newest */
	struct larder_epoch epochs[LARDER_NR_EPOCHS];			/*  416: [0] the newest */
	__u8	stack[LARDER_STACK_SIZE];	/*  928: which stacks use the cache (userland): opaque here */
	__u8	reserved3[1120];		/* 2976 */
};

/* ---- table of devices and volumes, 128 KiB, two copies, the valid one with the higher generation counts */

#define LARDER_TABLE_MAGIC	0x4c54424cu	/* "LTBL" */

/* 64 bytes */
struct larder_table_head {
	__le32	magic;
	__le32	crc;			/* of LARDER_TABLE_SIZE bytes */
	__le64	generation;		/* of this table */
	__le64	set_generation;		/* of the set of devices: a number in the upper half, a random tag in the lower */
	__u8	cache_uuid[16];
	__le32	nr_devices;
	__le32	nr_volumes;		/* entries of volumes[] that may be in use: [0, nr_volumes) */
	__le64	shape_generation;	/* of the table since which nothing but volumes[].seen has changed; 0: this one */
	__u8	reserved[8];
};

enum larder_device_state {
	LARDER_DEVICE_NONE	= 0,
	LARDER_DEVICE_ACTIVE	= 1,
	LARDER_DEVICE_DRAINING	= 2,
	LARDER_DEVICE_FAILED	= 3,
	LARDER_DEVICE_REMOVED	= 4,	/* drained: only its place in the set is left */
};

enum larder_device_role {		/* what segments of it are taken for */
	LARDER_ROLE_BOTH	= 0,
	LARDER_ROLE_WRITE	= 1,	/* the write stream and checkpoints */
	LARDER_ROLE_READ	= 2,	/* clean copies */
};

/* 64 bytes */
struct larder_table_device {
	__u8	uuid[16];
	__le32	state;			/* enum larder_device_state */
	__le32	role;			/* enum larder_device_role */
	__le32	first_segment;
	__le32	nr_segments;
	__le64	segments_offset;	/* bytes */
	__u8	reserved[24];
};

enum larder_volume_state {
	LARDER_VOLUME_NONE	= 0,
	LARDER_VOLUME_ATTACHED	= 1,
	LARDER_VOLUME_FORGETTING = 2,	/* detached; its extents are being dropped */
};

/* 112 bytes; the index in volumes[] is the volume's number in the log */
struct larder_table_volume {
	__u8	uuid[16];
	__le32	state;			/* enum larder_volume_state */
	__le32	flags;
	__le64	sectors;		/* of the volume */
	__le64	incarnation;		/* must be equal to the backing's */
	__u8	label[LARDER_LABEL_SIZE];
	__le64	seen;			/* a generation that the backing's superblock had, durably: one below is older */
};

struct larder_table {
	struct larder_table_head head;					/*      0 */
	struct larder_table_device devices[LARDER_MAX_DEVICES];		/*     64 */
	struct larder_table_volume volumes[LARDER_MAX_VOLUMES];		/*   1088 */
	__le64	ancestors[LARDER_NR_ANCESTORS];				/* 115776: set generations before, newest first */
	__u8	reserved[LARDER_TABLE_SIZE - 115776 - LARDER_NR_ANCESTORS * 8];
};

/* ------------------------------------------------------------------ volume (backing) */

#define LARDER_DEF_DATA_OFFSET	(1u << 20)	/* bytes */
#define LARDER_MIN_DATA_OFFSET	(8u << 10)
#define LARDER_DEF_TAIL_RESERVE	(1u << 20)	/* bytes; 0 is allowed */

#define LARDER_VOLUME_MAY_BE_DIRTY 0x1u	/* sb flags: the cache may hold what the backing does not */
#define LARDER_VOLUME_LEFT	0x2u	/* it left its cache, which had failed, with nothing dirty: attached anew without a word */
#define LARDER_VOLUME_CLEAN_VOID 0x4u	/* what a replay finds CLEAN of it does not count: the backing was written past the log */
/* what of its flags is about the cache that it names */
#define LARDER_VOLUME_OF_CACHE	(LARDER_VOLUME_MAY_BE_DIRTY | LARDER_VOLUME_LEFT | LARDER_VOLUME_CLEAN_VOID)

/* where another backing may have the same incarnation, now or one day, it is raised by 1 and a random number of so many bits */
#define LARDER_INCARNATION_BITS	40

enum larder_mode {
	LARDER_WRITEBACK	= 0,
	LARDER_WRITETHROUGH	= 1,
	LARDER_WRITEAROUND	= 2,
	LARDER_PASSTHROUGH	= 3,	/* in core only: no cache */
};

struct larder_volume_sb {
	struct larder_sb_head head;		/*    0: uuid is the volume's */
	__u8	cache_uuid[16];			/*  128: of its cache; zero: none */
	__u8	label[LARDER_LABEL_SIZE];	/*  144 */
	__le32	mode;				/*  208: enum larder_mode, the default at start */
	__le32	reserved0;			/*  212 */
	__le64	data_offset;			/*  216: bytes, a multiple of 4096 */
	__le64	tail_reserve;			/*  224: bytes */
	__le64	sectors;			/*  232: of the volume */
	__le64	incarnation;			/*  240: raised when the volume runs without its cache */
	__le64	set_generation;			/*  248: newest generation of the cache's set that this volume ran with */
	__le64	noted;				/*  256: `seen` in the table of its cache, durably: one that has less is older */
	__le64	noted_incarnation;		/*  264: of which noted tells; it tells nothing of another one */
	__u8	reserved1[240];			/*  272 */
	__u8	stack[LARDER_STACK_SIZE];	/*  512: description of the stack (userland): opaque here */
	__u8	reserved2[1536];		/* 2560 */
};

/* ------------------------------------------------------------------ log */

#define LARDER_COMMIT_MAGIC	0x544d434cu	/* "LCMT" */
#define LARDER_SUMMARY_MAGIC	0x4d55534cu	/* "LSUM" */
#define LARDER_CHUNK_MAGIC	0x4b48434cu	/* "LCHK" */
#define LARDER_SUMMARY_SLOTS	4u
#define LARDER_RECORD_SLOTS	127u		/* data slots of a record, at most */
#define LARDER_MAX_ZERO_SECTORS	(1u << 17)	/* of a ZERO, or a CLEAN: 64 MiB */

enum larder_entry_kind {
	LARDER_WRITE		= 1,	/* sector, length, cache: newer than the backing */
	LARDER_FILL		= 2,	/* sector, length, cache: equal to the backing */
	LARDER_ZERO		= 3,	/* sector, length; cache: a serial number of its own: zeroes, newer than the backing */
	LARDER_CLEAN		= 4,	/* sector, length, cache: what is mapped there to this place was written back */
	LARDER_INVALIDATE	= 5,	/* sector, length: nothing is cached there */
	/*
	 * sector: segment, length: enum larder_stream, cache: lower half: its second copy + 1, or 0; upper half: its third copy,
	 * likewise; the stream's next one, in order
	 */
	LARDER_SEGMENT_OPEN	= 6,
	LARDER_INTENT		= 7,	/* sector: region of 64 MiB, length: 1 set, 0 cleared */
	LARDER_FORGET		= 8,	/* the volume's extents and marks are gone */
	LARDER_CHECKPOINT	= 9,	/* sector: sequence of a checkpoint that was named; for readers' eyes only */
};

#define LARDER_INTENT_SHIFT	17	/* log2 of the sectors of an intent region: 64 MiB */

/* 24 bytes.  Entries of a commit block are in the order of acceptance and replayed in that order. */
struct larder_entry {
	__le64	sector;
	__le64	cache;			/* linear cache sector: global segment number * segment sectors + offset */
	__le32	length;			/* sectors, unless the kind says otherwise */
	__le16	volume;			/* number */
	__u8	kind;			/* enum larder_entry_kind */
	__u8	zero;
};

#define LARDER_COMMIT_SUMS_VALID 0x1u	/* flags: sums[] are those of the data slots (always set today) */

/* 4 KiB; entries[nr_entries], then sums[end - first]: crc32c of each data slot (all 4096 bytes, padding included) */
struct larder_commit {
	__le32	magic;
	__le32	crc;			/* of the 4096 bytes */
	__le64	hash;			/* larder_log_hash(cache UUID, secret of the epoch) */
	__le64	sequence;		/* of this record; unique and rising over all streams of the cache */
	__le64	prev_sequence;		/* of the record before it in this stream and epoch; 0: the first */
	__le64	durable_sequence;	/* newest record of the write stream known durable when this was built */
	__le32	prev_crc;		/* its crc; 0: the first */
	__le32	epoch;
	__le32	segment;		/* where this block is: global number */
	__le16	slot;			/* and slot */
	__le16	first;			/* data slots [first, end) of the segment belong to this record */
	__le16	end;
	__le16	nr_entries;
	__u8	stream;			/* enum larder_stream */
	__u8	flags;
	__u8	reserved[34];
	__u8	body[4096 - 96];	/* 96: entries, then sums */
};
#define LARDER_COMMIT_HEAD	96u
#define LARDER_COMMIT_BODY	(4096u - 96u)

/*
 * Last LARDER_SUMMARY_SLOTS slots of a sealed segment: the entries of its records that have data, those without left out
 * (LARDER_SUMMARY_DATA_ONLY) or, where they fit, all of them.  Body: entries[nr_entries], then sums[nr_sums] for slots [0, nr_sums)
 * (that of a slot which no entry describes is 0).
 */
#define LARDER_SUMMARY_DATA_ONLY 0x1u
struct larder_summary {
	__le32	magic;
	__le32	crc;			/* of LARDER_SUMMARY_SLOTS * 4096 bytes */
	__le64	hash;
	__le64	first_sequence;		/* of the segment's first record */
	__le64	last_sequence;
	__le32	segment;
	__le32	epoch;
	__le32	nr_entries;
	__le32	nr_sums;
	__u8	stream;
	__u8	flags;
	__u8	reserved[14];
	__u8	body[LARDER_SUMMARY_SLOTS * 4096 - 64];
};

/* ------------------------------------------------------------------ checkpoint */

#define LARDER_CHUNK_SIZE	(64u << 10)	/* bytes; chunks follow one another in a segment, then in the next one */

/*
 * The payload of all chunks, in order, is a list of items, each a struct larder_item and what it announces.  An item lies in one
 * chunk.  Region items are sorted by volume and region.
 */
struct larder_chunk {
	__le32	magic;
	__le32	crc;			/* of LARDER_CHUNK_SIZE bytes */
	__le64	hash;			/* checkpoint_ptr.hash */
	__le64	sequence;		/* of the checkpoint */
	__le32	number;			/* 0, 1, ... */
	__le32	used;			/* bytes of payload */
	__le32	next_segment;		/* where the chunk is that follows the last one of this segment; LARDER_NO_SEGMENT: none */
	__le32	next_mirror;		/* second copy of next_segment: its number + 1; 0: none */
	__le32	next_third;		/* its third copy, likewise */
	__u8	reserved[20];
	__u8	payload[LARDER_CHUNK_SIZE - 64];
};
#define LARDER_CHUNK_PAYLOAD	(LARDER_CHUNK_SIZE - 64u)

enum larder_item_kind {
	LARDER_ITEM_REGION	= 1,	/* count extents (__le64 each) of volume's 2 MiB region number */
	LARDER_ITEM_MARKS	= 2,	/* count set intent marks (__le64: number of the 64 MiB region) of volume */
	/*
	 * count segments (__le64: number, and in the upper half that of the second copy + 1, or 0) of stream volume, opened, not
	 * begun at the snapshot, in order.  number: the third copy + 1 of the only one; 0: those of this item have none
	 */
	LARDER_ITEM_OPEN	= 3,
	LARDER_ITEM_STREAM	= 4,	/* struct larder_stream_pos of stream volume: where replay of it starts; count 0 or 1 */
	LARDER_ITEM_SEGMENTS	= 5,	/* count struct larder_segment_info from segment number on */
	LARDER_ITEM_END		= 6,	/* the last item of a whole checkpoint */
};

/* 16 bytes */
struct larder_item {
	__u8	kind;
	__u8	zero;
	__le16	volume;
	__le32	count;
	__le64	number;
};

/* 32 bytes.  Where the replay of a stream begins. */
struct larder_stream_pos {
	__le32	segment;		/* LARDER_NO_SEGMENT: at the first slot of the first opened segment */
	__le32	slot;
	__le64	prev_sequence;
	__le32	prev_crc;
	__le32	zero;
	__le64	reserved;
};

enum larder_segment_state {
	LARDER_SEGMENT_FREE	= 0,	/* nothing in it */
	LARDER_SEGMENT_USED	= 1,	/* sealed, or being written, by a stream */
	LARDER_SEGMENT_OPENED	= 2,	/* SEGMENT-OPEN is logged; not yet begun */
};

/* Of a segment with further copies, in which records are not the same as in the first one, for all that was known. */
#define LARDER_SEGMENT_FIRST_UNSURE	0x1u	/* it lacks some: another copy is read until they were compared */
#define LARDER_SEGMENT_COPIES_UNSURE	0x2u	/* another copy may lack some: it is not read before they were compared */
#define LARDER_SEGMENT_COPY_UNSURE	0x4u	/* of a further copy: it is this one, or was */

/* 16 bytes */
struct larder_segment_info {
	__u8	state;			/* enum larder_segment_state */
	__u8	stream;
	__u8	flags;			/* LARDER_SEGMENT_*_UNSURE */
	__u8	zero;
	/* segment of its second copy + 1; 0: none.  Of a FREE one that is a second copy: the third copy, likewise */
	__le32	mirror;
	__le64	sequence;		/* of its last record: the order of age within a stream */
};

/*
 * An extent, in core and in checkpoints: 64 bits.
 *   bits  0..11  first sector in the 2 MiB region
 *   bits 12..23  length in sectors, less one
 *   bits 24..27  state
 *   bits 28..63  linear cache sector (LARDER_ST_ZERO: serial number, the same in all pieces of the extent)
 */
#define LARDER_REGION_SHIFT	12		/* log2 sectors of a region */
#define LARDER_REGION_SECTORS	4096u

enum larder_extent_state {
	LARDER_ST_NONE		= 0,	/* not cached; never stored */
	LARDER_ST_CLEAN		= 1,
	LARDER_ST_DIRTY		= 2,
	LARDER_ST_CLEANING	= 3,	/* in core only: written back, not yet recorded; a checkpoint says DIRTY */
	LARDER_ST_ZERO		= 4,	/* dirty zeroes, no place in the cache */
	LARDER_ST_ZERO_CLEANING	= 5,	/* in core only */
};

#endif
