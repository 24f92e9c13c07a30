/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The only includes that the pure parts (index.c, policy.c, class.c, congestion.c, speed.c, pace.c, settings.c, format.c) may have,
 * besides their own headers and larder_format.h.
 *
 * In the kernel these are the real headers.  In a unit test tests/unit/pure_user.h stands in for them, so that the very same .c is
 * run under ASan, UBSan and TSan in userland.  What a pure part needs and does not find here is added to both sides at once.
 */
#ifndef LARDER_PURE_H
#define LARDER_PURE_H

#ifdef __KERNEL__

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/cache.h>
#include <linux/compiler.h>
#include <linux/crc32c.h>
#include <linux/ctype.h>
#include <linux/err.h>
#include <linux/errno.h>
#include <linux/hash.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/kstrtox.h>
#include <linux/limits.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/seqlock.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/types.h>
#include <linux/vmalloc.h>

#include <asm/byteorder.h>

#else

#include "../tests/unit/pure_user.h"

#endif
#endif
