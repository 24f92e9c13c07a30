// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disks that a member lies on, by sysfs; how they say they are; and what smartctl, where it is installed, says of their patience.
 *
 * A disk that tries for longer to read a bad sector than the kernel waits for it is reset, and may drop out of an array, for one sector.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disks.h"
#include "doctor.h"
#include "health.h"
#include "message.h"
#include "program.h"

#define PATIENCE 180 /* seconds that a disk without a limit of its own may try; larger than any known */
#define ALIGNMENT 4096 /* bytes: what is written is a multiple of it */

struct place {
	struct findings *findings;
	const struct member *member;
	const struct stacks *stacks;
	char *directory; /* in sysfs */
};

/* Of a partition these are its disk's. */
static bool queue_number(const struct place *p, const char *name, uint64_t *value)
{
	char path[64];

	snprintf(path, sizeof(path), "queue/%s", name);
	if (sysfs_number(p->directory, path, value))
		return true;
	snprintf(path, sizeof(path), "../queue/%s", name);
	return sysfs_number(p->directory, path, value);
}

static void examine_alignment(const struct place *p)
{
	uint64_t offset, start, block;
	char text[32];

	if (sysfs_text(p->directory, "alignment_offset", text, sizeof(text)) && !strcmp(text, "-1")) {
		finding(p->findings, FINDING_ADVICE, "alignment", p->member->path,
			"the kernel says that it does not begin where what is below it would have it (of several devices, each has its own): writes touch "
			"more than they should; partition the disks anew, from 1 MiB on");
		return;
	}
	if (sysfs_number(p->directory, "alignment_offset", &offset) && offset) {
		finding(p->findings, FINDING_ADVICE, "alignment", p->member->path,
			"the kernel says that it begins %" PRIu64 " bytes off a physical block: every write touches two; partition the disk anew, from 1 MiB on",
			offset);
		return;
	}
	if (!queue_number(p, "physical_block_size", &block) || block < ALIGNMENT)
		block = ALIGNMENT;
	if (sysfs_number(p->directory, "start", &start) && start << 9 & (block - 1))
		finding(p->findings, FINDING_ADVICE, "alignment", p->member->path,
			"the partition begins at sector %" PRIu64 ", not at a multiple of %" PRIu64 " bytes: every write touches two blocks; partition the "
			"disk anew, from 1 MiB on",
			start, block);
}

static void examine_class(const struct place *p)
{
	char whole[PATH_MAX];
	uint64_t rotational;

	if (le32toh(p->member->sb.head.kind) == LARDER_KIND_CACHE && queue_number(p, "rotational", &rotational) && rotational && sysfs_disk(p->directory, whole))
		finding(p->findings, FINDING_ADVICE, "rotational", p->member->path,
			"the kernel takes this cache device for a rotating disk: it is no faster than what it is to speed up; if it is an SSD behind a "
			"controller that hides that: echo 0 > /sys/block/%s/queue/rotational, at each boot, else larder cache replace",
			strrchr(whole, '/') + 1);
}

static void examine_flush(const struct place *p)
{
	if (disks_flush_early(p->directory))
		finding(p->findings, FINDING_WRONG, "flush", p->member->path,
			"a RAID 5 below it has a partial parity log (PPL), with which md answers a flush before its disks have written: what fsync and the cache take for "
			"safe may be gone behind a power cut; mdadm --grow ARRAY --consistency-policy=resync, then mdadm --grow ARRAY --bitmap=internal; "
			"or turn off the write caches of its disks (hdparm -W 0 DISK) at each boot");
}

/* ------------------------------------------------------------------ the disks below */

static void examine_zones(const struct place *p, const struct disk *disk)
{
	char zoned[32];

	if (sysfs_text(disk->directory, "queue/zoned", zoned, sizeof(zoned)) && strcmp(zoned, "none"))
		finding(p->findings, FINDING_ADVICE, "smr", p->member->path,
			"%s is a shingled disk (%s): writeback, which is not sequential, is slow on it for minutes at a time; a disk that is not (CMR), or "
			"larder volume set VOLUME writeback_rate_max=KIB",
			disk->name, zoned);
}

enum { NO_LIMIT = 0, NO_LIMIT_EVER = -1, NOT_KNOWN = -2 };

/* Tenths of a second until the disk gives up reading a sector.  Or it has no limit; cannot be given one, as most for desktops; or cannot be asked. */
static int error_recovery(const char *name)
{
	static const char unable[] = "SCT Error Recovery Control command not supported";
	char *path = must_print("/dev/%s", name), text[4096], *rest = text, *line;
	const char *const words[] = { "smartctl", "-l", "scterc", path, NULL };
	size_t length = 0;
	int limit = NOT_KNOWN;

	if (program_there("smartctl"))
		program_answer(words, health_patience(), text, sizeof(text) - 1, &length);
	text[length] = 0;
	while ((line = strsep(&rest, "\n"))) {
		char *word = line + strspn(line, " ");

		if (!strncmp(word, unable, strlen(unable)))
			limit = NO_LIMIT_EVER;
		if (strncmp(word, "Read:", strlen("Read:")))
			continue;
		word += strlen("Read:");
		word += strspn(word, " ");
		limit = strncmp(word, "Disabled", strlen("Disabled")) ? atoi(word) : NO_LIMIT;
	}
	free(path);
	return limit;
}

/* A limit for the disk only where an array has elsewhere what it gives up behind it; else the kernel waits for as long as it tries. */
static char *patience_words(const struct disk *disk, int limit)
{
	if (!disk->redundant || limit == NO_LIMIT_EVER)
		return must_print("echo %d > /sys/block/%s/device/timeout, at each boot", PATIENCE, disk->name);
	return must_print("smartctl -l scterc,70,70 /dev/%s, at each boot, or echo %d > /sys/block/%s/device/timeout", disk->name, PATIENCE, disk->name);
}

static void examine_patience(const struct place *p, const struct disk *disk, bool rotational)
{
	const char *name = disk->name;
	uint64_t timeout;
	char *words;
	int limit;

	if (!rotational || !sysfs_number(disk->directory, "device/timeout", &timeout) || !disk_name_is_plain(name))
		return;
	limit = error_recovery(name);
	words = patience_words(disk, limit);
	if (limit > 0 && (uint64_t)limit >= timeout * 10)
		finding(p->findings, FINDING_ADVICE, "timeout", p->member->path,
			"/dev/%s tries for %d.%d s to read a bad sector, and is reset by the kernel after %" PRIu64 " s; %s", name, limit / 10, limit % 10,
			timeout, words);
	if ((limit == NO_LIMIT || limit == NO_LIMIT_EVER) && timeout < PATIENCE)
		finding(p->findings, FINDING_ADVICE, "timeout", p->member->path,
			"/dev/%s has no limit for its tries to read a bad sector, and is reset by the kernel after %" PRIu64 " s; %s", name, timeout, words);
	free(words);
}

static void examine_link(const struct place *p, const struct disk *disk)
{
	double now, most;

	if (disk_pcie(disk, &now, &most) && now < most)
		finding(p->findings, FINDING_ADVICE, "link", p->member->path,
			"%s is on PCIe with %.0f GT/s over all lanes, and it and its slot could do %.0f; see that it sits well in its slot, and what the firmware "
			"has set for that",
			disk->name, now, most);
}

/* NULL: the member is of none, or a spare. */
static const struct stack *stack_of(const struct place *p)
{
	const union superblock *sb = &p->member->sb;
	uint32_t kind = le32toh(sb->head.kind);
	uint8_t part[16];

	for (size_t i = 0; i < p->stacks->number; i++) {
		const struct stack *s = &p->stacks->found[i].stack;

		stack_part(s, "volume", part);
		if (kind == LARDER_KIND_VOLUME ? !memcmp(sb->head.uuid, part, 16) :
						 kind == LARDER_KIND_CACHE && !memcmp(sb->cache.cache_uuid, s->cache, 16))
			return s;
	}
	return NULL;
}

/* Its place in the array of the stack, which is the member; -1: that is not known. */
static int place_of(const struct place *p, const struct disk *disk)
{
	struct md_disks disks = { 0 };
	int place = -1;

	if (!p->member->block || !md_disks(p->member->number, &disks))
		return -1;
	for (size_t i = 0; i < disks.number; i++) {
		char *directory = disk_directory("", disks.disk[i].node, true, disks.disk[i].number);
		struct disks below = { 0 };

		if (*disks.disk[i].node)
			disks_below(&below, directory, false);
		for (size_t n = 0; n < below.number; n++)
			if (!strcmp(below.disk[n].name, disk->name))
				place = disks.disk[i].place;
		disks_free(&below);
		free(directory);
	}
	return place;
}

/* The commands for that disk, as of the stack, or cache, that it is of.  NULL: those for any. */
static char *replace_words(const struct place *p, const struct disk *disk)
{
	const struct stack *s = stack_of(p);
	int place;

	if (disk->cache && s)
		return must_print("larder replace %s ssd%u NEW", s->name, le32toh(p->member->sb.cache.device_number));
	if (!s)
		return NULL;
	if (!*s->raid)
		return must_print("have a backup; %s is on it alone: make another one, and copy it there", s->name);
	place = place_of(p, disk);
	if (place < 0)
		return must_print("larder replace %s diskN NEW (larder show %s has N)", s->name, s->name);
	return must_print("larder replace %s disk%d NEW", s->name, place);
}

static char *scrub_words(const struct place *p)
{
	const struct stack *s = stack_of(p);

	return s && (*s->raid || le32toh(p->member->sb.head.kind) == LARDER_KIND_CACHE) ? must_print("larder scrub %s", s->name) : NULL;
}

/* How it says it is. */
static void examine_health(const struct place *p, const struct disk *disk, bool rotational, const struct health *health)
{
	char *replace = replace_words(p, disk), *scrub = scrub_words(p);
	struct health_of of = { .disk = disk->name, .cache = disk->cache, .rotational = rotational, .replace = replace, .scrub = scrub };
	struct problems wrong = { 0 }, advice = { 0 };

	health_judge(health, &of, &wrong, &advice);
	for (size_t i = 0; i < wrong.number; i++)
		finding(p->findings, FINDING_WRONG, "health", p->member->path, "%s", wrong.text[i]);
	for (size_t i = 0; i < advice.number; i++)
		finding(p->findings, FINDING_ADVICE, "health", p->member->path, "%s", advice.text[i]);
	problems_free(&wrong);
	problems_free(&advice);
	free(replace);
	free(scrub);
}

void examine_disks(struct findings *findings, const struct member *member, const struct stacks *stacks)
{
	struct place place = { .findings = findings, .member = member, .stacks = stacks };
	struct disks disks = { 0 };

	place.directory = disk_directory(findings->root, member->path, member->block, member->number);
	examine_alignment(&place);
	examine_class(&place);
	examine_flush(&place);
	disks_below(&disks, place.directory, le32toh(member->sb.head.kind) == LARDER_KIND_CACHE);
	for (size_t i = 0; i < disks.number; i++) {
		const struct disk *disk = &disks.disk[i];
		bool rotational = disk_rotates(disk);
		struct health health;

		health_ask(&health, disk->name, true, health_patience());
		examine_zones(&place, disk);
		if (!health.silent)
			examine_patience(&place, disk, rotational);
		examine_link(&place, disk);
		examine_health(&place, disk, rotational, &health);
	}
	disks_free(&disks);
	free(place.directory);
}
