/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One marked line in fstab for a stack: the mark is an option of the line, x-larder.stack=UUID. */
#ifndef LARDER_FSTAB_H
#define LARDER_FSTAB_H

#include <stdint.h>

/* Puts it there in the place of the one with the mark; changes nothing else.  source NULL: takes it out.  Complains. */
int fstab_set(const uint8_t uuid[16], const char *source, const char *directory, const char *type);

#endif
