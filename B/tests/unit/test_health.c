// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/health.c: NVMe's health log, byte by byte as the standard has it; and that any log, and any text of a smartctl, ends in a judgement.
 *
 *	test_health [seed]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/problems.c"
#include "../../lib/program.c"
#include "../../lib/disks.c"
#include "../../lib/health.c"

typedef unsigned long long u64;
static long pure_live;
#include "seeded.h"

/* Of an SSD that is well: 38 degrees, all of its spare blocks, 3 % used. */
static const uint8_t well[HEALTH_NVME_LOG_SIZE] = { 0, 0x37, 0x01, 100, 10, 3 };

/* Keys of what is found, "wrong/advice"; judged as an SSD of a cache. */
static const char *judged(const struct health *health)
{
	static char keys[256];
	struct health_of of = { .disk = "nvme0n1", .cache = true };
	struct problems wrong = { 0 }, advice = { 0 };
	const struct problems *both[] = { &wrong, &advice };

	health_judge(health, &of, &wrong, &advice);
	*keys = 0;
	for (int i = 0; i < 2; i++) {
		for (size_t k = 0; k < both[i]->number; k++) {
			size_t length = strcspn(both[i]->text[k], ":");

			CHECK(both[i]->text[k][length] == ':' && strstr(both[i]->text[k], "nvme0n1"), "no key, or no disk: %s", both[i]->text[k]);
			snprintf(keys + strlen(keys), sizeof(keys) - strlen(keys), "%.*s ", (int)length, both[i]->text[k]);
		}
		strcat(keys, i ? "" : "/");
	}
	problems_free(&wrong);
	problems_free(&advice);
	return keys;
}

static void nvme_log(void)
{
	static const struct {
		unsigned at;
		uint8_t value;
		const char *keys;
	} cases[] = {
		{ 0, 0x02, "/hot " },	   { 0, 0x04, "failing /" }, { 0, 0x08, "read_only /" }, { 0, 0x10, "failing /" },
		{ 1, 0x57, "/" /* 70 */ }, { 1, 0x70, "/" /* 95: it says itself */ },     { 3, 10, "/" },	       { 3, 9, "spare /" },
		{ 5, 89, "/" },		   { 5, 90, "/worn " },	     { 5, 100, "worn /" },     { 5, 255, "worn /" },
		{ 32, 255, "/" },	   { 160, 255, "/" }, /* how much was read; media errors */
	};
	struct health health;
	uint8_t log[HEALTH_NVME_LOG_SIZE];

	health_of_nvme(&health, well);
	CHECK(health.celsius == 38 && health.spare == 100 && health.spare_least == 10 && health.used == 3, "decoded wrongly");
	CHECK(!strcmp(judged(&health), "/"), "something is wrong: %s", judged(&health));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memcpy(log, well, sizeof(log));
		log[cases[i].at] = cases[i].value;
		health_of_nvme(&health, log);
		CHECK(!strcmp(judged(&health), cases[i].keys), "byte %u = %u: %s, not %s", cases[i].at, cases[i].value, judged(&health), cases[i].keys);
		operations++;
	}
}

static void any_log(void)
{
	for (unsigned i = 0; i < 100000; i++) {
		uint8_t log[HEALTH_NVME_LOG_SIZE];
		struct health health;

		for (unsigned k = 0; k < sizeof(log); k++)
			log[k] = (uint8_t)rnd(256);
		health_of_nvme(&health, log);
		judged(&health);
		operations++;
	}
}

static const char text[] =
	"{\"smart_status\":{\"passed\":true},\"temperature\":{\"current\":41,\"op_limit_max\":60},\"nvme_smart_health_information_log\":"
	"{\"critical_warning\":1,\"percentage_used\":95,\"available_spare\":9,\"available_spare_threshold\":10},\"endurance_used\":"
	"{\"current_percent\":95},\"ata_device_statistics\":{\"pages\":[{\"table\":[{\"name\":\"Percentage Used Endurance Indicator\",\"value\":7}]}]},"
	"\"ata_smart_attributes\":{\"table\":[{\"id\":197,\"name\":\"Current_Pending_Sector\",\"value\":100,\"raw\":{\"value\":8}},{\"id\":233,\"name\":"
	"\"Media_Wearout_Indicator\",\"value\":5}]},\"interface_speed\":{\"max\":{\"units_per_second\":60,\"bits_per_unit\":100000000},\"current\":"
	"{\"units_per_second\":30,\"bits_per_unit\":100000000}}}";

/* Whole, cut off anywhere, and with some bytes of it changed. */
static void any_text(void)
{
	struct health health;

	health_of_smartctl(&health, text, strlen(text));
	CHECK(!strcmp(judged(&health), "spare /worn pending link "), "%s", judged(&health));
	for (size_t i = 0; i < strlen(text); i++) {
		char *cut = malloc(i + 1);

		memcpy(cut, text, i);
		health_of_smartctl(&health, cut, i);
		CHECK(!health.answered, "of %zu bytes of it", i);
		judged(&health);
		free(cut);
		operations++;
	}
	for (unsigned i = 0; i < 20000; i++) {
		char *other = strdup(text);

		for (unsigned k = 0; k < 1 + rnd(6); k++)
			other[rnd(strlen(text))] = "{}[],:\"019-et\n"[rnd(14)];
		health_of_smartctl(&health, other, strlen(text));
		judged(&health);
		free(other);
		operations++;
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("nvme_log", nvme_log);
	run_test("any_log", any_log);
	run_test("any_text", any_text);
	return 0;
}
