/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LUKS2.  luks.c is the only file that knows libcryptsetup. */
#ifndef LARDER_LUKS_H
#define LARDER_LUKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LUKS_HEADER (16u << 20) /* bytes that LUKS2 takes at the head of a device */

/* In memory that is locked and wiped; never in a log, a process list or a core dump. */
struct secret {
	char *bytes;
	size_t length;
};

/* No core dump, no ptrace, of this process from now on. */
void secrets_protect(void);
/*
 * The whole file, or (NULL) what is typed, with the echo off, or one line of stdin if that is no terminal; twice: asked for twice.
 * Complains; secret_free() after success.
 */
int secret_read(const char *keyfile, const char *stack, bool twice, struct secret *secret);
/* All that comes from an open file; name: of what complaints are about. */
int secret_take(int file, const char *name, struct secret *secret);
void secret_free(struct secret *secret);

/* All complain.  iteration_ms: how long a guess of the passphrase is to take; 0: libcryptsetup's default. */
int luks_make(const char *device, const uint8_t uuid[16], unsigned iteration_ms, const struct secret *secret);
/* wrong, unless NULL: that no key fits is told there, and not complained of. */
int luks_unlock(const char *device, const char *name, const struct secret *secret, bool *wrong);
/* To all of the device; the secret as for unlocking: the kernel may have the volume key where nobody can read it. */
int luks_resize(const char *device, const char *name, const struct secret *secret);
int luks_lock(const char *name);
/* The header with its key slots into a file, which nobody else may read; it is replaced as a whole, and durable when this returns. */
int luks_backup(const char *device, const char *path);

#endif
