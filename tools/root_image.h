/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The image that starts a root filesystem was made before something came to its stack. */
#ifndef LARDER_ROOT_IMAGE_H
#define LARDER_ROOT_IMAGE_H

/*
 * Of a stack that / or /usr is on: the next boot needs device, of which the initramfs may have no driver, nor what starts what that is on.  mounted: where the
 * filesystem is; called: the stack, or its snapshot, as somebody gave it.  Of another stack nothing is said.
 */
void remark_of_root(const char *mounted, const char *called, const char *device);

#endif
