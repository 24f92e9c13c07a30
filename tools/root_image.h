/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The image that starts a root filesystem was made before something came to its stack. */
#ifndef LARDER_ROOT_IMAGE_H
#define LARDER_ROOT_IMAGE_H

#include <stdint.h>

/*
 * Of a volume that / or /usr is on, whatever lies between, of its cache, or of another volume of that, which has device from now on: the next boot needs that,
 * and the initramfs may have no driver of it, nor what starts what it is on.  uuid: of the volume, or the cache; called: that, its stack or snapshot, as
 * somebody gave it.  Of others nothing is said, nor where the daemon is not installed.  Runs a program.
 */
void remark_of_root(const uint8_t uuid[16], const char *called, const char *device);

#endif
