// SPDX-License-Identifier: GPL-2.0-or-later
#include <string.h>
#include <uuid/uuid.h>

#include "message.h"
#include "program.h"
#include "root_image.h"

#define PATIENCE_SECONDS 10 /* it reads sysfs, and the table of mounts */

/* Where there is no such program, an initramfs has no part of ours either. */
static bool root_needs(const uint8_t uuid[16])
{
	static const char *const words[] = { "/usr/lib/udev/larder-root", "--uuids", NULL };
	char answer[65536], text[37];
	size_t length;

	program_answer(words, PATIENCE_SECONDS, answer, sizeof(answer), &length);
	uuid_unparse_lower(uuid, text);
	return memmem(answer, length, text, strlen(text));
}

void remark_of_root(const uint8_t uuid[16], const char *called, const char *device)
{
	if (!root_needs(uuid))
		return;
	remark("%s: root, or /usr, needs it, and may not start without %s: if an initramfs starts it, make that anew, with the driver of that, and what starts what it is on: update-initramfs -u -k \"$(uname -r)\", and -k of each other kernel that is to boot, or dracut --regenerate-all --force",
	       called, device);
}
