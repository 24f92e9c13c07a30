/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The kernel that kernel_user.h is a twin of, for kernel/compat.h. */
#ifndef FUZZ_COMPAT_H
#define FUZZ_COMPAT_H

#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#define LINUX_VERSION_CODE	KERNEL_VERSION(6, 12, 0)

#endif
