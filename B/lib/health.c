// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How a disk says it is.
 *
 * Counters that never fall (media errors, sectors that were replaced) are not judged: they would be said for ever, of disks that work.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <linux/nvme_ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "disks.h"
#include "health.h"
#include "message.h"
#include "program.h"

#define WORN_SOON  90 /* percent of the writes that an SSD is made for */
#define HOT_DISK   60 /* degrees: what nearly all are made for; no limit of SCT is taken that is lower: many give what they should have on average */
#define HOT_SSD	   70
#define ANSWER_MAX (1 << 20) /* bytes */
#define PATIENCE_S 60 /* LARDER_DISK_SECONDS: another number */

static void unknown(struct health *health)
{
	*health = (struct health){
		.celsius = HEALTH_UNKNOWN,
		.limit = HEALTH_UNKNOWN,
		.used = HEALTH_UNKNOWN,
		.spare = HEALTH_UNKNOWN,
		.spare_least = HEALTH_UNKNOWN,
		.pending = HEALTH_UNKNOWN,
	};
}

/* ------------------------------------------------------------------ NVMe */

/* Critical Warning, byte 0 */
#define NVME_SPARE	 0x01 /* told by the numbers, too */
#define NVME_TEMPERATURE 0x02
#define NVME_RELIABILITY 0x04
#define NVME_READ_ONLY	 0x08
#define NVME_BACKUP	 0x10 /* of volatile memory: what it acknowledged may be lost with the power */
#define NVME_KELVIN	 273

static void take_warning(struct health *health, unsigned warning)
{
	health->hot = warning & NVME_TEMPERATURE;
	health->read_only = warning & NVME_READ_ONLY;
	health->failing = warning & (NVME_RELIABILITY | NVME_BACKUP);
}

void health_of_nvme(struct health *health, const uint8_t log[static HEALTH_NVME_LOG_SIZE])
{
	int kelvin = log[1] | log[2] << 8;

	unknown(health);
	health->answered = health->says_hot = true;
	take_warning(health, log[0]);
	if (kelvin > NVME_KELVIN)
		health->celsius = kelvin - NVME_KELVIN;
	health->spare = log[3];
	health->spare_least = log[4];
	health->used = log[5];
}

static bool ask_nvme(struct health *health, const char *disk)
{
	uint8_t log[HEALTH_NVME_LOG_SIZE] = { 0 };
	struct nvme_admin_cmd command = {
		.opcode = 0x02, /* Get Log Page */
		.nsid = 0xffffffff,
		.addr = (uint64_t)(uintptr_t)log,
		.data_len = sizeof(log),
		.cdw10 = 0x02 | (sizeof(log) / 4 - 1) << 16, /* SMART / Health Information; dwords, less one */
	};
	char *path = must_print("/dev/%s", disk);
	int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	bool good = file >= 0 && !ioctl(file, NVME_IOCTL_ADMIN_CMD, &command);

	if (good)
		health_of_nvme(health, log);
	if (file >= 0)
		close(file);
	free(path);
	return good;
}

/* ------------------------------------------------------------------ smartctl --json */

/* The value below these keys; NULL: there is none. */
static struct json_object *below(struct json_object *from, const char *first, const char *second)
{
	struct json_object *value = NULL;

	if (!json_object_is_type(from, json_type_object) || !json_object_object_get_ex(from, first, &value))
		return NULL;
	if (!second)
		return value;
	from = value;
	if (!json_object_is_type(from, json_type_object) || !json_object_object_get_ex(from, second, &value))
		return NULL;
	return value;
}

static int64_t number_below(struct json_object *from, const char *first, const char *second)
{
	struct json_object *value = below(from, first, second);
	int64_t number = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : HEALTH_UNKNOWN;

	return number < 0 ? HEALTH_UNKNOWN : number;
}

/* Of what cannot be more than a few hundred: anything else is no answer. */
static int small_below(struct json_object *from, const char *first, const char *second)
{
	int64_t number = number_below(from, first, second);

	return number > 1000 ? HEALTH_UNKNOWN : (int)number;
}

static int either(int first, int second)
{
	return first == HEALTH_UNKNOWN ? second : first;
}

/* Current_Pending_Sector, Total_Pending_Sectors; smartctl's name begins with Bogus where it has learned that the firmware counts something else. */
static bool is_pending(const char *name)
{
	return name && strstr(name, "Pending_Sector") && strncmp(name, "Bogus", strlen("Bogus"));
}

static void take_attribute(struct health *health, struct json_object *row)
{
	int64_t id = number_below(row, "id", NULL), raw = number_below(row, "raw", "value");
	int left = small_below(row, "value", NULL);

	if (id == 197 && is_pending(json_object_get_string(below(row, "name", NULL))))
		health->pending = raw;
	/* Media_Wearout_Indicator, SSD_Life_Left: of 100 that many are left; other makers' numbers mean something else */
	else if ((id == 233 || id == 231) && left >= 0 && left <= 100 && health->used == HEALTH_UNKNOWN) {
		const char *name = json_object_get_string(below(row, "name", NULL));

		if (name && (!strcmp(name, "Media_Wearout_Indicator") || !strcmp(name, "SSD_Life_Left")))
			health->used = 100 - left;
	}
}

/* Of a list of objects each; of anything else none. */
static void each(struct json_object *list, struct health *health, void (*take)(struct health *health, struct json_object *row))
{
	for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++)
		take(health, json_object_array_get_idx(list, i));
}

static void take_statistic(struct health *health, struct json_object *row)
{
	const char *name = json_object_get_string(below(row, "name", NULL));

	if (name && !strcmp(name, "Percentage Used Endurance Indicator"))
		health->used = either(health->used, small_below(row, "value", NULL));
}

static void take_page(struct health *health, struct json_object *page)
{
	each(below(page, "table", NULL), health, take_statistic);
}

static uint64_t speed(struct json_object *link)
{
	int64_t units = number_below(link, "units_per_second", NULL), bits = number_below(link, "bits_per_unit", NULL);

	return units > 0 && bits > 0 && units < INT64_MAX / bits ? (uint64_t)(units * bits) : 0;
}

void health_of_smartctl(struct health *health, const char *json, size_t length)
{
	struct json_tokener *tokener = must_allocate(json_tokener_new());
	struct json_object *o = json_tokener_parse_ex(tokener, json, length > INT32_MAX ? INT32_MAX : (int)length), *passed;
	static const char nvme[] = "nvme_smart_health_information_log";
	int64_t warning;

	unknown(health);
	passed = below(o, "smart_status", "passed");
	health->celsius = small_below(o, "temperature", "current");
	health->limit = small_below(o, "temperature", "op_limit_max");
	health->answered = passed || health->celsius != HEALTH_UNKNOWN;
	warning = number_below(o, nvme, "critical_warning");
	health->says_hot = warning >= 0;
	if (warning > 0)
		take_warning(health, (unsigned)warning);
	else if (json_object_is_type(passed, json_type_boolean)) /* of NVMe it says no more than the warning */
		health->failing = !json_object_get_boolean(passed);
	health->used = either(small_below(o, nvme, "percentage_used"), small_below(o, "endurance_used", "current_percent"));
	health->used = either(health->used, small_below(o, "scsi_percentage_used_endurance_indicator", NULL));
	each(below(o, "ata_device_statistics", "pages"), health, take_page);
	health->spare = either(small_below(o, nvme, "available_spare"), small_below(o, "spare_available", "current_percent"));
	health->spare_least = either(small_below(o, nvme, "available_spare_threshold"), small_below(o, "spare_available", "threshold_percent"));
	each(below(o, "ata_smart_attributes", "table"), health, take_attribute);
	health->link = speed(below(o, "interface_speed", "current"));
	health->link_most = speed(below(o, "interface_speed", "max"));
	json_object_put(o);
	json_tokener_free(tokener);
}

double health_patience(void)
{
	const char *text = getenv("LARDER_DISK_SECONDS");
	double seconds = text ? strtod(text, NULL) : 0;

	return seconds > 0 ? seconds : PATIENCE_S;
}

char *health_silence(const char *disk, double seconds)
{
	return must_print("%s does not answer: it was asked how it is %.0f seconds ago; the kernel's log may say why", disk, seconds);
}

static void ask_smartctl(struct health *health, const char *disk, bool wake, double seconds)
{
	char *path = must_print("/dev/%s", disk), *answer = must_allocate(malloc(ANSWER_MAX));
	const char *words[] = { "smartctl", "--json", "-i", "-H", "-A", "-l", "scttempsts", "-l", "ssd", path, wake ? NULL : "-n", "standby", NULL };
	size_t length;

	/* its exit code says what is wrong with the disk, too */
	if (!program_there("smartctl"))
		;
	else if (program_answer(words, seconds, answer, ANSWER_MAX, &length))
		health_of_smartctl(health, answer, length);
	else
		health->silent = seconds;
	free(answer);
	free(path);
}

void health_ask(struct health *health, const char *disk, bool wake, double seconds)
{
	unknown(health);
	if (!disk_name_is_plain(disk))
		return;
	if (strncmp(disk, "nvme", strlen("nvme")) || !ask_nvme(health, disk))
		ask_smartctl(health, disk, wake, seconds);
}

/* ------------------------------------------------------------------ the judgement */

static const char *exchange(const struct health_of *of)
{
	if (of->replace)
		return of->replace;
	return of->cache ? "of a stack larder replace STACK ssdN NEW (larder show STACK has N), else larder cache replace CACHE PLACE NEW-SSD" :
			   "have a backup, and replace it: of a stack larder replace STACK diskN NEW (larder show STACK has N), of another array "
			   "mdadm --replace, else copy it to another disk";
}

static const char *reading(const struct health_of *of)
{
	if (of->scrub)
		return of->scrub;
	return of->cache ? "larder scrub STACK, or larder cache scrub CACHE," :
			   "of a stack larder scrub STACK, of another array echo check > /sys/block/mdN/md/sync_action,";
}

static void judge_wear(const struct health *h, const struct health_of *of, struct problems *wrong, struct problems *advice)
{
	if (h->spare >= 0 && h->spare_least > 0 && h->spare < h->spare_least)
		problem(wrong, "spare", "%s has %d %% of its spare blocks left, and is to be replaced below %d %%; %s", of->disk, h->spare, h->spare_least,
			exchange(of));
	if (h->used >= 100)
		problem(wrong, "worn", "%s has taken all the writes that it is made for (%d %%), and may fail, or refuse writes; %s", of->disk, h->used,
			exchange(of));
	else if (h->used >= WORN_SOON)
		problem(advice, "worn", "%s has taken %d %% of the writes that it is made for; get another one, and %s", of->disk, h->used, exchange(of));
}

static void judge_heat(const struct health *h, const struct health_of *of, struct problems *advice)
{
	int least = of->rotational ? HOT_DISK : HOT_SSD, limit = h->limit > least ? h->limit : least;

	if (h->hot && h->celsius >= 0)
		problem(advice, "hot", "%s has %d degrees, more than its limit: it becomes slow, and ages; see to its cooling", of->disk, h->celsius);
	else if (h->hot)
		problem(advice, "hot", "%s is hotter than its limit: it becomes slow, and ages; see to its cooling", of->disk);
	else if (!h->says_hot && h->celsius > limit)
		problem(advice, "hot", "%s has %d degrees, and is made for %d at most; see to its cooling", of->disk, h->celsius, limit);
}

void health_judge(const struct health *h, const struct health_of *of, struct problems *wrong, struct problems *advice)
{
	if (h->silent > 0) {
		char *words = health_silence(of->disk, h->silent);

		problem(wrong, "answer", "%s", words);
		free(words);
	}
	if (!h->answered)
		return;
	if (h->failing)
		problem(wrong, "failing", "%s says itself that it fails, or is about to; %s", of->disk, exchange(of));
	if (h->read_only)
		problem(wrong, "read_only", "%s takes no writes any more; %s", of->disk, exchange(of));
	judge_wear(h, of, wrong, advice);
	judge_heat(h, of, advice);
	if (h->pending > 0)
		problem(advice, "pending", "%s cannot read %" PRId64 " of its sectors; %s reads all of it, and repairs what there is elsewhere", of->disk,
			h->pending, reading(of));
	if (h->link && h->link < h->link_most)
		problem(advice, "link", "%s runs at %" PRIu64 ".%" PRIu64 " Gbit/s, and could at %" PRIu64 ".%" PRIu64 "; check cable, port and controller",
			of->disk, h->link / 1000000000, h->link / 100000000 % 10, h->link_most / 1000000000, h->link_most / 100000000 % 10);
}
