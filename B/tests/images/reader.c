// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Shows a cache, images or devices of its SSDs, as the command's library reads it (lib/cache_image.c, written from docs/on-disk-format.md): checks, dumps, replays.
 * For debugging, and to hold the kernel against; it writes nothing.
 *
 *	reader super|table|checkpoint|log|extents|check|scrub SSD[,SSD]...
 *	reader view SSD[,SSD]... BACKING [VOLUME]	the volume's contents as they are after a start, to stdout
 *
 * Of several SSDs those count that are members of the set; super and table show those of the newest.
 */
#include "cache_image.h"
#include "image.h"
#include "slot_sums.h"

static const char *ssd; /* as given */
static struct ssd_set set;
static const struct larder_cache_sb *sb;
static const struct larder_table *table;
static struct cache_image image;
static size_t problems;

static const char *hex(const uint8_t *p, unsigned n)
{
	static char text[4][40];
	static unsigned turn;
	char *to = text[turn++ % 4];

	for (unsigned i = 0; i < n; i++)
		sprintf(to + 2 * i, "%02x", p[i]);
	return to;
}

static void tell(const char *name, const char *what, uint64_t offset, const struct problems *p)
{
	problems += p->number;
	for (size_t i = 0; i < p->number; i++)
		if (what)
			fprintf(stderr, "%s: %s at byte %" PRIu64 ": %s\n", name, what, offset, p->text[i]);
		else
			fprintf(stderr, "%s: %s\n", name, p->text[i]);
}

static void tell_image(void)
{
	tell(ssd, NULL, 0, &image.problems);
	tell(ssd, NULL, 0, &image.lost);
	tell(ssd, NULL, 0, &image.torn);
}

static void open_set(char *names)
{
	const char *path[LARDER_MAX_DEVICES];
	size_t number = 0;

	for (char *name; (name = strsep(&names, ",")) && number < LARDER_MAX_DEVICES;)
		path[number++] = name;
	if (ssd_set_open(&set, path, number, DEVICE_READ))
		exit(1);
}

static void load_superblocks(void)
{
	for (size_t i = 0; i < set.number; i++) {
		const struct superblocks *found = &set.ssd[i].super;
		const char *path = set.ssd[i].device.path;

		tell(path, "superblock", found->main.offset, &found->main.problems);
		if (found->copy.offset)
			tell(path, "superblock", found->copy.offset, &found->copy.problems);
		if (!found->chosen)
			exit(1);
		if (!set.ssd[i].sb)
			die("%s: kind: not an SSD of a cache", path);
		if (!sb || le64toh(set.ssd[i].sb->head.generation) > le64toh(sb->head.generation))
			sb = set.ssd[i].sb;
	}
}

static void load_table(void)
{
	for (size_t i = 0; i < set.number; i++) {
		tell(set.ssd[i].device.path, "table", LARDER_TABLE_OFFSET_A, &set.ssd[i].tables.problems[0]);
		tell(set.ssd[i].device.path, "table", LARDER_TABLE_OFFSET_B, &set.ssd[i].tables.problems[1]);
	}
	if (ssd_set_choose(&set))
		exit(1);
	cache_image_init(&image, &set);
	sb = set.sb;
	table = set.table;
}

/* A step of loading */
static void must(bool good)
{
	if (good)
		return;
	tell_image();
	exit(1);
}

static void print_record(const struct larder_commit *c)
{
	static const char *const kinds[] = { "?", "WRITE", "FILL", "ZERO", "CLEAN", "INVALIDATE", "SEGMENT_OPEN", "INTENT", "FORGET", "CHECKPOINT" };

	printf("record sequence=%" PRIu64 " stream=%u segment=%u slot=%u first=%u end=%u entries=%u prev=%" PRIu64 " durable=%" PRIu64 "\n",
	       le64toh(c->sequence), c->stream, le32toh(c->segment), le16toh(c->slot), le16toh(c->first), le16toh(c->end), le16toh(c->nr_entries),
	       le64toh(c->prev_sequence), le64toh(c->durable_sequence));
	for (uint32_t i = 0; i < le16toh(c->nr_entries); i++) {
		const struct larder_entry *e = commit_entry(c, i);

		printf("  %s volume=%u sector=%" PRIu64 " length=%u cache=%" PRIu64 "\n", kinds[e->kind], le16toh(e->volume), le64toh(e->sector),
		       le32toh(e->length), le64toh(e->cache));
	}
}

static void print_records(void)
{
	struct larder_commit c;

	for (uint64_t i = 0; i < image.nr_records; i++) {
		if (image.record[i].sequence < image.replay_from)
			continue;
		if (!record_read(&image, &image.record[i], &c))
			die("%s: record %" PRIu64 " cannot be read", ssd, image.record[i].sequence);
		print_record(&c);
	}
}

static void print_item(const struct larder_item *item)
{
	if (item->kind != LARDER_ITEM_REGION)
		printf("item kind=%u volume=%u count=%u number=%" PRIu64 "\n", item->kind, le16toh(item->volume), le32toh(item->count),
		       le64toh(item->number));
}

static void verb_super(void)
{
	printf("uuid=%s cache_uuid=%s label=%.64s generation=%" PRIu64 " flags=%u segment_size=%u segments=%u segments_offset=%" PRIu64
	       " table_generation=%" PRIu64 " epoch=%u\n", hex(sb->head.uuid, 16), hex(sb->cache_uuid, 16), (const char *)sb->label,
	       le64toh(sb->head.generation), le32toh(sb->head.flags), le32toh(sb->segment_size), le32toh(sb->nr_segments), le64toh(sb->segments_offset),
	       le64toh(sb->table_generation), le32toh(sb->epoch));
	for (unsigned i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		const struct larder_checkpoint_ptr *p = &sb->checkpoint[i];

		printf("checkpoint[%u] sequence=%" PRIu64 " bytes=%" PRIu64 " replay_sequence=%" PRIu64 " first_segment=%u epoch=%u\n", i,
		       le64toh(p->sequence), le64toh(p->bytes), le64toh(p->replay_sequence), le32toh(p->first_segment), le32toh(p->epoch));
	}
	for (unsigned i = 0; i < LARDER_NR_EPOCHS && sb->epochs[i].epoch; i++)
		printf("epochs[%u] epoch=%u first_sequence=%" PRIu64 " segment=%u\n", i, le32toh(sb->epochs[i].epoch),
		       le64toh(sb->epochs[i].first_sequence), le32toh(sb->epochs[i].segment));
}

static void verb_table(void)
{
	printf("generation=%" PRIu64 " set_generation=%" PRIu64 " devices=%u volumes=%u\n", le64toh(table->head.generation),
	       le64toh(table->head.set_generation), le32toh(table->head.nr_devices), le32toh(table->head.nr_volumes));
	for (unsigned i = 0; i < le32toh(table->head.nr_volumes); i++) {
		const struct larder_table_volume *v = &table->volumes[i];

		if (v->state)
			printf("volumes[%u] uuid=%s state=%u sectors=%" PRIu64 " incarnation=%" PRIu64 " label=%.64s\n", i, hex(v->uuid, 16),
			       le32toh(v->state), le64toh(v->sectors), le64toh(v->incarnation), (const char *)v->label);
	}
}

/* Calls visit for each extent of a volume, in order. */
static void each_extent(const struct cached_volume *v, void (*visit)(uint64_t sector, uint64_t extent, void *data), void *data)
{
	size_t n;
	struct region **regions = extent_map_regions(&v->map, &n);

	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < regions[i]->n; k++)
			visit(regions[i]->number * LARDER_REGION_SECTORS + extent_first(regions[i]->extent[k]), regions[i]->extent[k], data);
	free(regions);
}

static void print_extent(uint64_t sector, uint64_t e, void *data)
{
	static const char *const states[] = { "none", "clean", "dirty", "cleaning", "zero" };

	printf("%u %" PRIu64 " %u %s %" PRIu64 "\n", *(unsigned *)data, sector, extent_length(e), states[extent_state(e)], extent_cache(e));
}

static void verb_extents(void)
{
	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++)
		each_extent(&image.volume[i], print_extent, &i);
}

static void count_extent(uint64_t sector, uint64_t e, void *data)
{
	uint64_t *sectors = data;

	(void)sector;
	sectors[extent_state(e)] += extent_length(e);
}

static void print_summary(void)
{
	uint64_t sectors[16] = { 0 }, last = 0, marks = 0;

	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++) {
		each_extent(&image.volume[i], count_extent, sectors);
		marks += image.volume[i].nr_marks;
	}
	for (uint64_t i = 0; i < image.nr_records; i++)
		last = image.record[i].sequence > last ? image.record[i].sequence : last;
	printf("checkpoint=%" PRIu64 " epoch=%u replayed=%" PRIu64 " last_sequence=%" PRIu64 " durable=%" PRIu64 " extents=%" PRIu64
	       " clean_sectors=%" PRIu64 " dirty_sectors=%" PRIu64 " zero_sectors=%" PRIu64 " marks=%" PRIu64 " dropped=%" PRIu64 " ignored=%" PRIu64 " skipped=%" PRIu64
	       " problems=%zu\n", image.loaded ? le64toh(image.loaded->sequence) : 0, image.epoch, image.nr_records, last, image.durable, image.usage.extents,
	       sectors[LARDER_ST_CLEAN], sectors[LARDER_ST_DIRTY], sectors[LARDER_ST_ZERO], marks, image.dropped, image.ignored, image.skipped,
	       problems + image.problems.number + image.lost.number + image.torn.number);
}

/* The data of every segment that has a valid summary of its present life. */
static void verb_scrub(void)
{
	uint32_t data_slots = image.segment_slots - LARDER_SUMMARY_SLOTS;
	uint64_t summaries = 0, slots = 0, bad = 0;

	for (uint32_t segment = 0; segment < image.segments_end; segment++) {
		const struct larder_summary *s = (const struct larder_summary *)window_block(&image, 0, data_slots);
		uint32_t sum;

		if (!segment_exists(&image, segment))
			continue;
		segment_read(&image, segment);
		if (!summary_ok(&image, s, segment))
			continue;
		summaries++;
		for (uint32_t i = 0; i < le32toh(s->nr_sums); i++) {
			memcpy(&sum, s->body + le32toh(s->nr_entries) * 24 + i * 4, 4);
			if (!sum)
				continue;
			slots++;
			if (le32toh(sum) == crc32c(~0u, window_block(&image, 0, i), LARDER_SLOT_SIZE))
				continue;
			problems++;
			if (bad++ < 20)
				fprintf(stderr, "%s: segment %u slot %u: its data does not match its sum\n", ssd, segment, i);
		}
	}
	printf("summaries=%" PRIu64 " slots=%" PRIu64 " bad=%" PRIu64 "\n", summaries, slots, bad);
}

static void read_at(const struct device *from, void *to, size_t bytes, uint64_t at)
{
	char *p = to;

	while (bytes) {
		ssize_t n = pread(from->fd, p, bytes, (off_t)at);

		if (n <= 0)
			die("%s: cannot read %zu bytes at %" PRIu64 ": %s", from->path, bytes, at, n ? strerror(errno) : "end of device");
		p += n;
		at += (uint64_t)n;
		bytes -= (size_t)n;
	}
}

/* From the first copy that is here.  False: there is none. */
static bool read_cache(void *to, size_t bytes, uint64_t cache)
{
	uint32_t unit = image.usage.segment_sectors, copy[SEGMENT_COPIES];

	for (unsigned i = 0, n = segment_copies(&image, (uint32_t)(cache / unit), copy); i < n; i++) {
		uint64_t offset;
		const struct device *device = segment_device(&image, copy[i], &offset);

		if (!device)
			continue;
		read_at(device, to, bytes, offset + cache % unit * SECTOR);
		return true;
	}
	return false;
}

/* What is mapped in a region, over what the backing has there.  From the cache even where it is clean, as a start would. */
static void overlay(const struct region *r, uint8_t *data)
{
	for (uint32_t n = 0; r && n < r->n; n++) {
		uint64_t e = r->extent[n];
		uint8_t *to = data + extent_first(e) * SECTOR;

		if (extent_state(e) == LARDER_ST_ZERO)
			memset(to, 0, extent_length(e) * SECTOR);
		else if (!read_cache(to, extent_length(e) * SECTOR, extent_cache(e)) && extent_state(e) == LARDER_ST_DIRTY)
			die("%s: dirty data is on an SSD that is not here", ssd);
	}
}

static void verb_view(const char *backing, unsigned number)
{
	static uint8_t data[LARDER_REGION_SECTORS * SECTOR];
	uint64_t all = image.volume[number].sectors;
	const struct larder_volume_sb *vsb;
	struct superblocks super;
	struct device b;

	if (device_open(&b, backing, DEVICE_READ))
		exit(1);
	superblocks_read(&b, &super, false);
	if (!super.chosen)
		die("%s: has no superblock that is whole", backing);
	vsb = &super.chosen->sb->volume;
	if (!all || memcmp(vsb->head.uuid, table->volumes[number].uuid, 16))
		die("%s: is not the backing of volume %u", backing, number);
	if (vsb->incarnation != table->volumes[number].incarnation)
		die("%s: incarnation: the cache is stale", backing);
	for (uint64_t at = 0; at < all; at += LARDER_REGION_SECTORS) {
		uint64_t sectors = all - at < LARDER_REGION_SECTORS ? all - at : LARDER_REGION_SECTORS;

		read_at(&b, data, sectors * SECTOR, le64toh(vsb->data_offset) + at * SECTOR);
		overlay(extent_map_find(&image.volume[number].map, at / LARDER_REGION_SECTORS), data);
		if (fwrite(data, SECTOR, sectors, stdout) != sectors)
			die("stdout: %s", strerror(errno));
	}
	superblocks_free(&super);
	device_close(&b);
}

static int usage(void)
{
	fputs("usage: reader super|table|checkpoint|log|extents|check|scrub SSD[,SSD]...\n       reader view SSD[,SSD]... BACKING [VOLUME NUMBER]\n", stderr);
	return 2;
}

static int show(const char *verb, int argc, char **argv)
{
	bool replay = !strcmp(verb, "log") || !strcmp(verb, "extents") || !strcmp(verb, "check") || !strcmp(verb, "view");

	if (!replay && strcmp(verb, "checkpoint") && strcmp(verb, "scrub"))
		return usage();
	image.on_item = strcmp(verb, "checkpoint") ? NULL : print_item;
	must(cache_image_checkpoint(&image));
	if (strcmp(verb, "checkpoint"))
		must(cache_image_records(&image));
	if (!strcmp(verb, "log"))
		print_records();
	if (replay)
		must(cache_image_replay(&image));
	if (!strcmp(verb, "view") && (image.lost.number || image.spent)) {
		tell_image();
		return 1;
	}
	if (!strcmp(verb, "scrub"))
		verb_scrub();
	else if (!strcmp(verb, "extents"))
		verb_extents();
	else if (!strcmp(verb, "view"))
		verb_view(argv[3], argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) % LARDER_MAX_VOLUMES : 0);
	else
		print_summary();
	tell_image();
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	bool view = !strcmp(verb, "view");
	int result = 0;

	if (argc < 3 + view || argc > 3 + 2 * view)
		return usage();
	ssd = strdup(argv[2]);
	open_set(argv[2]);
	load_superblocks();
	if (!strcmp(verb, "super")) {
		verb_super();
	} else {
		load_table();
		if (!strcmp(verb, "table"))
			verb_table();
		else
			result = show(verb, argc, argv);
	}
	if (fflush(stdout))
		die("stdout: %s", strerror(errno));
	cache_image_free(&image);
	ssd_set_close(&set);
	return result ? result : problems != 0;
}
