// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <libcryptsetup.h>
#include <stdio.h>
#include <string.h>

#include "cryptsetup.h"
#include "message.h"

static char last_word[256];

static void take_log(int level, const char *message, void *data)
{
	(void)data;
	if (level == CRYPT_LOG_ERROR)
		snprintf(last_word, sizeof(last_word), "%.*s", (int)strcspn(message, "\n"), message);
}

void cryptsetup_listen(void)
{
	last_word[0] = 0;
	crypt_set_log_callback(NULL, take_log, NULL);
}

int cryptsetup_open(const char *device, struct crypt_device **cd)
{
	cryptsetup_listen();
	return crypt_init(cd, device);
}

const char *cryptsetup_said(void)
{
	return last_word;
}

const char *cryptsetup_words(int error)
{
	return *last_word ? last_word : strerror(-error);
}

int cryptsetup_judge(int error, const char *device, const char *action)
{
	if (error >= 0)
		return LARDER_DONE;
	if (error == -EPERM)
		return complain(LARDER_FAILED, "%s: no key of it fits this passphrase or key file", device);
	return complain(error == -EBUSY ? LARDER_BUSY : LARDER_FAILED, "%s: cannot %s it: %s", device, action, cryptsetup_words(error));
}
