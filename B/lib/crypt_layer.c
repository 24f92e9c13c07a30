// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The LUKS layer of a stack: a dm device with a name of ours, and a UUID that libcryptsetup gave it.
 */
#include <stdlib.h>
#include <string.h>

#include "crypt_layer.h"
#include "dm.h"
#include "message.h"

char *crypt_name(const struct stack *stack)
{
	return must_print("%s" CRYPT_END, stack->name);
}

char *crypt_tags_name(const struct stack *stack)
{
	return must_print("%s-crypt_dif", stack->name);
}

/* "CRYPT-LUKS2-<uuid without dashes>-<name>": as libcryptsetup has it. */
bool crypt_is_ours(const struct stack *stack, const char *dm_uuid)
{
	char text[UUID_TEXT], plain[UUID_TEXT], *to = plain;
	uint8_t part[16];

	stack_part(stack, "crypt", part);
	uuid_text(part, text);
	for (const char *c = text; *c; c++)
		if (*c != '-')
			*to++ = *c;
	*to = 0;
	return strstr(dm_uuid, plain);
}

bool crypt_look(const struct stack *stack, dev_t *number, bool *half)
{
	char dm_uuid[DM_UUID_MAX], *name = crypt_name(stack);
	bool there = mapped_look(name, dm_uuid, number) && crypt_is_ours(stack, dm_uuid), open = there && mapped_is_shown(dm_uuid);

	*half = there && !open;
	free(name);
	return open;
}

bool crypt_is_open(const struct stack *stack)
{
	dev_t number;
	bool half;

	return crypt_look(stack, &number, &half);
}
