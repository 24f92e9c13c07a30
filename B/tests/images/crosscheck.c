// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Walks an image with the kernel's own checks (kernel/format.c, compiled for userland): what the writer, which was made from the document alone, writes must
 * pass them, all of it.  Prints what it found; exits 1 at the first thing that is refused.
 *
 *	crosscheck SSD BACKING
 */
#include "../../kernel/format.c"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static u64 any_volume[LARDER_MAX_VOLUMES];
static struct larder_geometry geo = { .nr_volumes = LARDER_MAX_VOLUMES, .volume_sectors = any_volume };

static void refused(const char *what, u64 number, int error, const char *why)
{
	fprintf(stderr, "crosscheck: %s %llu: %s (%d)\n", what, (unsigned long long)number, why ? why : "?", error);
	exit(1);
}

static void get(int fd, void *p, size_t bytes, u64 at)
{
	if (pread(fd, p, bytes, (off_t)at) != (ssize_t)bytes)
		refused("byte", at, -EIO, "cannot be read");
}

static u64 sectors_of(int fd)
{
	return (u64)lseek(fd, 0, SEEK_END) / 512;
}

static void check_super(int fd, struct larder_sb_head *sb, u32 kind, u64 copy)
{
	static u8 b[LARDER_SB_SIZE] __aligned(8);
	const char *why = NULL;
	int chosen;

	get(fd, sb, LARDER_SB_SIZE, LARDER_SB_OFFSET);
	get(fd, b, LARDER_SB_SIZE, copy);
	chosen = larder_choose_sb(sb, (void *)b, copy, kind, sectors_of(fd), &why);
	if (chosen)
		refused("superblock", kind, chosen, why);
	chosen = larder_check_sb((void *)b, sectors_of(fd), &why);
	if (chosen)
		refused("copy of superblock", kind, chosen, why);
}

static u64 segment_at(const struct larder_cache_sb *sb, u32 segment)
{
	return le64_to_cpu(sb->segments_offset) + (u64)segment * geo.segment_slots * LARDER_SLOT_SIZE;
}

/* Returns the extents in it. */
static u64 check_checkpoint(int fd, const struct larder_cache_sb *sb, const struct larder_checkpoint_ptr *p)
{
	static struct larder_chunk c;
	u32 segment = le32_to_cpu(p->first_segment), per_segment = geo.segment_slots * LARDER_SLOT_SIZE / LARDER_CHUNK_SIZE, i, at;
	struct larder_chunk_expect e = { &geo, le64_to_cpu(p->hash), le64_to_cpu(p->sequence), 0 };
	struct larder_item_in item = { .kind = 0 };
	const char *why = NULL;
	u64 extents = 0;
	int got;

	for (i = 0; i < le64_to_cpu(p->bytes) / LARDER_CHUNK_SIZE; i++) {
		get(fd, &c, sizeof(c), segment_at(sb, segment) + (u64)(i % per_segment) * LARDER_CHUNK_SIZE);
		e.number = i;
		got = larder_check_chunk(&c, &e, &why);
		for (at = 0; !got && (got = larder_chunk_next(&c, &geo, &at, &item, &why)) > 0; got = 0)
			extents += item.kind == LARDER_ITEM_REGION ? item.count : 0;
		if (got)
			refused("chunk", i, got, why);
		if ((i + 1) % per_segment == 0)
			segment = le32_to_cpu(c.next_segment);
	}
	if (item.kind != LARDER_ITEM_END)
		refused("checkpoint", e.sequence, -EINVAL, "no END");
	return extents;
}

/* Of one of the last epochs; 0: none of that number. */
static u64 hash_of(const struct larder_cache_sb *sb, u32 epoch)
{
	u32 i;

	for (i = 0; i < LARDER_NR_EPOCHS; i++)
		if (epoch && le32_to_cpu(sb->epochs[i].epoch) == epoch)
			return larder_log_hash(sb->cache_uuid, le64_to_cpu(sb->epochs[i].secret));
	return 0;
}

/* Whatever has the hash of its epoch must be valid in full.  (What else has the magic is of an older life.) */
static void check_segment(int fd, const struct larder_cache_sb *sb, u32 segment, u8 *buf, u64 *commits, u64 *summaries)
{
	u32 slot, data_slots = geo.segment_slots - LARDER_SUMMARY_SLOTS;
	struct larder_commit_expect e = { .geo = &geo, .segment = segment, .any_prev = true };
	struct larder_summary_expect es = { .geo = &geo, .segment = segment };
	const struct larder_summary *s = (void *)(buf + (size_t)data_slots * LARDER_SLOT_SIZE);
	const char *why = NULL;
	int error;

	get(fd, buf, geo.segment_slots * LARDER_SLOT_SIZE, segment_at(sb, segment));
	for (slot = 0; slot < data_slots; slot++) {
		const struct larder_commit *c = (void *)(buf + (size_t)slot * LARDER_SLOT_SIZE);

		e.epoch = le32_to_cpu(c->epoch);
		e.hash = hash_of(sb, e.epoch);
		if (le32_to_cpu(c->magic) != LARDER_COMMIT_MAGIC || le64_to_cpu(c->hash) != e.hash)
			continue;
		e.slot = slot;
		e.stream = c->stream;
		error = larder_check_commit(c, &e, &why);
		if (error)
			refused("commit block of segment", segment, error, why);
		(*commits)++;
	}
	es.epoch = le32_to_cpu(s->epoch);
	es.hash = hash_of(sb, es.epoch);
	if (le32_to_cpu(s->magic) != LARDER_SUMMARY_MAGIC || le64_to_cpu(s->hash) != es.hash)
		return;
	es.stream = s->stream;
	error = larder_check_summary(s, &es, &why);
	if (error)
		refused("summary of segment", segment, error, why);
	(*summaries)++;
}

int main(int argc, char **argv)
{
	static struct larder_table a, b;
	static struct larder_cache_sb sb;
	static struct larder_volume_sb vsb;
	u64 commits = 0, summaries = 0, extents = 0;
	const char *why = NULL;
	int fd, backing, got;
	u32 i;
	u8 *buf;

	if (argc != 3) {
		fprintf(stderr, "usage: crosscheck SSD BACKING\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	backing = open(argv[2], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || backing < 0)
		refused("open", 0, -errno, strerror(errno));
	check_super(fd, &sb.head, LARDER_KIND_CACHE, larder_cache_copy_offset(sectors_of(fd)));
	check_super(backing, &vsb.head, LARDER_KIND_VOLUME, LARDER_DEF_VOLUME_COPY_OFFSET);
	geo.segment_slots = le32_to_cpu(sb.segment_size) / LARDER_SLOT_SIZE;
	geo.nr_segments = le32_to_cpu(sb.nr_segments);
	get(fd, &a, sizeof(a), LARDER_TABLE_OFFSET_A);
	get(fd, &b, sizeof(b), LARDER_TABLE_OFFSET_B);
	got = larder_choose_table(&a, &b, &sb, &why);
	if (got < 0 || larder_check_table(&b, &sb, &why))
		refused("table", 0, got, why);
	for (i = 0; i < LARDER_MAX_VOLUMES; i++)
		any_volume[i] = a.volumes[i].state ? le64_to_cpu(a.volumes[i].sectors) : 0;
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		if (!larder_checkpoint_empty(&sb.checkpoint[i]))
			extents = check_checkpoint(fd, &sb, &sb.checkpoint[i]);
	buf = malloc((size_t)geo.segment_slots * LARDER_SLOT_SIZE);
	if (!buf)
		refused("memory", 0, -ENOMEM, "none");
	for (i = 0; i < geo.nr_segments; i++)
		check_segment(fd, &sb, i, buf, &commits, &summaries);
	free(buf);
	printf("checkpoint_extents=%llu commits=%llu summaries=%llu\n", (unsigned long long)extents, (unsigned long long)commits,
	       (unsigned long long)summaries);
	return 0;
}
