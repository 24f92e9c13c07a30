// SPDX-License-Identifier: GPL-2.0-or-later
#include <string.h>

#include "message.h"
#include "root_image.h"

void remark_of_root(const char *mounted, const char *called, const char *device)
{
	if (strcmp(mounted, "/") && strcmp(mounted, "/usr"))
		return;
	remark("%s: %s is on this stack, and may not start without %s: if an initramfs starts it, make that anew, with the driver of that, and what starts what it is on: update-initramfs -u -k \"$(uname -r)\", and -k of each other kernel that is to boot, or dracut --regenerate-all --force",
	       called, mounted, device);
}
