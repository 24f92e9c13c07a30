/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What device-mapper says of our devices, and of all, in a number each: whether another pass would see more is known without reading a disk. */
#ifndef LARDER_DM_DIGEST_H
#define LARDER_DM_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

struct dm_digest {
	bool known; /* it could be asked */
	uint64_t ours; /* of larder's devices: names, UUIDs, numbers, how many events each has raised, which are suspended or have no table; how full stores are; LUKS on volumes */
	uint64_t all; /* the same, and the names of all others */
};

/* Complains where it cannot be asked. */
void dm_digest_take(struct dm_digest *digest);
/* Nothing has changed since; others: nor have their names.  False if one of the two is not known. */
bool dm_digest_same(const struct dm_digest *a, const struct dm_digest *b, bool others);

#endif
