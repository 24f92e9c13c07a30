// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what a disk says of itself (lib/health.c): NVMe's log, and the JSON of smartctl.  Input: a byte of switches (bit 0: it is
 * NVMe's log; 1: the disk is an SSD of a cache; 2: it rotates), then log or JSON.  Aborts where a number is one that no disk has, or where what is found is
 * said of a disk that has not answered, without its key, or with a number that is not known.
 */
#include "health.h"
#include "input.h"

static void check_numbers(const struct health *h)
{
	must(h->celsius >= HEALTH_UNKNOWN && h->celsius < 1 << 16 && h->limit >= HEALTH_UNKNOWN && h->limit <= 1000, "degrees");
	must(h->used >= HEALTH_UNKNOWN && h->used <= 1000 && h->spare >= HEALTH_UNKNOWN && h->spare <= 1000 && h->spare_least >= HEALTH_UNKNOWN, "percent");
	must(h->pending >= HEALTH_UNKNOWN && h->link <= INT64_MAX && h->link_most <= INT64_MAX, "counts");
}

static void check_texts(const struct problems *problems, const char *keys)
{
	for (size_t i = 0; i < problems->number; i++) {
		const char *text = problems->text[i], *end = strstr(text, ": ");
		char key[32];

		must(end && end - text < (ptrdiff_t)sizeof(key) - 2, "a key");
		snprintf(key, sizeof(key), " %.*s ", (int)(end - text), text);
		must(strstr(keys, key), "a key that there is");
		must(strstr(text, " sda ") && !strstr(text, " -1 "), "the disk, and a number that is known");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct problems wrong = { 0 }, advice = { 0 };
	struct health_of of = { .disk = "sda" };
	struct health health;

	if (!size)
		return 0;
	of.cache = data[0] & 2;
	of.rotational = data[0] & 4;
	if (data[0] & 1) {
		uint8_t log[HEALTH_NVME_LOG_SIZE] = { 0 };

		memcpy(log, data + 1, size - 1 < sizeof(log) ? size - 1 : sizeof(log));
		health_of_nvme(&health, log);
	} else {
		health_of_smartctl(&health, (const char *)data + 1, size - 1);
	}
	check_numbers(&health);
	health_judge(&health, &of, &wrong, &advice);
	must(health.answered || (!wrong.number && !advice.number), "found of a disk that has not answered");
	check_texts(&wrong, " failing read_only spare worn ");
	check_texts(&advice, " worn hot pending link ");
	problems_free(&wrong);
	problems_free(&advice);
	return 0;
}
