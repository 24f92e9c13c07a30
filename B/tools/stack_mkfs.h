/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The filesystem of a stack that is being made. */
#ifndef LARDER_STACK_MKFS_H
#define LARDER_STACK_MKFS_H

#include "stack.h"

/* On the device with this node, which is there.  In our turn, without it meanwhile, and with it again: its step is to be noted then.  Complains. */
int stack_mkfs(const struct stack *stack, const char *node);

/* Of --mkfs-options: are they options, and values of such, that name no device or file besides?  Complains. */
int stack_check_mkfs_words(const char *words);

#endif
