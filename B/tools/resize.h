/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Growth of what runs: what `larder volume resize` and `larder resize` share. */
#ifndef LARDER_RESIZE_H
#define LARDER_RESIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "dm.h"

/* To so many bytes, 0: all that its disk has room for.  Says what it did; complains. */
int volume_resize_running(struct mapped *volume, uint64_t bytes, bool dry_run);

#endif
