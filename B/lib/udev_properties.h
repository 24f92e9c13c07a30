/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a superblock means to udev. */
#ifndef LARDER_UDEV_PROPERTIES_H
#define LARDER_UDEV_PROPERTIES_H

#include "superblock.h"

/* Prints KEY=value lines: those that libblkid would set (ID_FS_*), and ours (LARDER_*). */
void udev_properties_print(const union superblock *sb);

#endif
