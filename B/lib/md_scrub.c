// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "md_scrub.h"

/* Behind the end of any array, a whole number of its chunks: md makes "max" of it once it has come to its end, and only then. */
#define OPEN "1152921504606846976"

#define STOP_TRIES	  600u
#define STOP_MICROSECONDS 100000u

bool md_scrub_look(dev_t device, struct md_scrub *scrub)
{
	char text[64];

	*scrub = (struct md_scrub){ 0 };
	if (!device_attribute(device, "md/sync_action", scrub->action, sizeof(scrub->action)) ||
	    !device_attribute(device, "md/mismatch_cnt", text, sizeof(text)))
		return false;
	scrub->differ = strtoull(text, NULL, 10);
	if (device_attribute(device, "md/sync_completed", text, sizeof(text)) &&
	    (sscanf(text, "%" SCNu64 " / %" SCNu64, &scrub->done, &scrub->all) != 2 || scrub->done > scrub->all))
		scrub->done = scrub->all = 0;
	scrub->open = device_attribute(device, "md/sync_max", text, sizeof(text)) && !strcmp(text, OPEN);
	scrub->from = device_attribute(device, "md/sync_min", text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
	return true;
}

int md_scrub_begin(dev_t device, bool repair, uint64_t from)
{
	char text[32];
	int error;

	snprintf(text, sizeof(text), "%" PRIu64, from);
	error = device_set_attribute(device, "md/sync_min", text);
	error = error ? error : device_set_attribute(device, "md/sync_max", OPEN);
	return error ? error : device_set_attribute(device, "md/sync_action", repair ? "repair" : "check");
}

int md_scrub_stop(dev_t device, uint64_t *at)
{
	struct md_scrub scrub;
	uint64_t chunk = 8;
	char text[32];
	int error;

	*at = 0;
	if (!md_scrub_look(device, &scrub))
		return ENODEV;
	error = device_set_attribute(device, "md/sync_action", "idle");
	if (error)
		return error;
	if (device_attribute(device, "md/chunk_size", text, sizeof(text)) && strtoull(text, NULL, 10) >> 9)
		chunk = strtoull(text, NULL, 10) >> 9;
	*at = scrub.done - scrub.done % chunk;
	for (unsigned i = 0; i < STOP_TRIES && md_scrub_look(device, &scrub) && md_scrub_runs(&scrub); i++)
		usleep(STOP_MICROSECONDS);
	return md_scrub_runs(&scrub) ? EBUSY : 0;
}
