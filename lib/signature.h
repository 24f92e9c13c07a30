/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What libblkid finds on a device, and its removal. */
#ifndef LARDER_SIGNATURE_H
#define LARDER_SIGNATURE_H

#include <stdbool.h>

#include "device.h"
#include "problems.h"

/*
 * Adds a line "type: what it is" for every signature, damaged ones included, at head and tail.  Complains of I/O errors.  ours: it is a member
 * (superblocks_stand()), and what lies where a volume or a log has its data is no signature of anybody; a wipe asks for all of them.
 */
int signatures_find(const struct device *device, bool ours, struct problems *found);
/*
 * Is there any that is not ours?  Then the type of the first, "linux_raid_member", "swap", "dos".  Commands leave none on what they format, and what is
 * in a volume or a segment does not count, nor lie elsewhere where libblkid looks: it came later, with a new owner.  Says nothing.
 */
bool signature_of_others(const struct device *device, char *type, size_t size);
/* The same, where that of this type is ours: of a disk of an array, say. */
bool signature_besides(const struct device *device, const char *mine, char *type, size_t size);
/* Is it of this type, and of no other?  May be mounted.  Complains of I/O errors. */
int signature_is(const struct device *device, const char *type, bool *is);
/* Overwrites each, flushes, and looks again: what is left is an error.  The device is open by DEVICE_CLAIM. */
int signatures_wipe(const struct device *device);

#endif
