/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The LUKS layer of a stack, as device-mapper shows it. */
#ifndef LARDER_CRYPT_LAYER_H
#define LARDER_CRYPT_LAYER_H

#include <sys/types.h>

#include "stack.h"

#define CRYPT_END "-crypt" /* of its name */

char *crypt_name(const struct stack *stack); /* NAME and CRYPT_END; the caller frees it */
char *crypt_tags_name(const struct stack *stack); /* "NAME-crypt_dif": dm-integrity below it, as libcryptsetup calls it */
bool crypt_is_ours(const struct stack *stack, const char *dm_uuid);
/* Is it open?  *half: it is there without a live table: whoever opens it is at it just now, or was killed. */
bool crypt_look(const struct stack *stack, dev_t *number, bool *half);
bool crypt_is_open(const struct stack *stack);

#endif
