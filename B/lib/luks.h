/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LUKS2, by libcryptsetup. */
#ifndef LARDER_LUKS_H
#define LARDER_LUKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LUKS_HEADER (16u << 20) /* bytes that LUKS2 takes at the head of a device */

/* What a key is; noted in the header, as it is not to be seen from a slot. */
enum luks_kind {
	LUKS_UNKNOWN, /* somebody else made the slot */
	LUKS_PASSPHRASE,
	LUKS_KEYFILE,
};

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
/*
 * The key that a stack has: of the file that was given (NULL: none was; "-": it is to be asked for), else of that which it was created with
 * ("": none).
 */
int secret_read_old(const char *given, const char *keyfile, const char *stack, struct secret *secret);
/* The same of a key that it is to have from now on: the prompt says so, and a terminal is asked twice. */
int secret_read_new(const char *keyfile, const char *stack, struct secret *secret);
/* All that comes from an open file; name: of what complaints are about. */
int secret_take(int file, const char *name, struct secret *secret);
void secret_free(struct secret *secret);

struct luks_format {
	uint8_t uuid[16];
	unsigned iteration_ms; /* how long a guess of the passphrase is to take; 0: libcryptsetup's default */
	const struct secret *secret;
	enum luks_kind kind;
	const char *aead; /* as a description has it; "": encrypted without authentication */
};

/* All complain. */
int luks_make(const char *device, const struct luks_format *format);
/*
 * Writes all sectors of one with authentication, as none can be read before it was written: a tag that nobody made is an I/O error.  From a
 * byte on, through a mapping of that name, which is gone afterwards.  noted(): so many of all bytes are durable with their tags; an error of
 * it ends this.
 */
struct luks_wipe {
	const char *name;
	const struct secret *secret;
	uint64_t from;
	int (*noted)(uint64_t done, uint64_t all, void *data);
	void *data;
};
int luks_wipe(const char *device, const struct luks_wipe *wipe);
/* wrong, unless NULL: that no key fits is told there, and not complained of. */
int luks_unlock(const char *device, const char *name, const struct secret *secret, bool *wrong);

#define LUKS_NO_TOKEN	  0u /* opens it */
#define LUKS_SERVER_LATER 1u /* no token opens it now; one of clevis may, when its server answers */
#define LUKS_TPM2_LATER	  2u /* likewise; one of systemd-tpm2, when there is a TPM2: it may appear late at a boot */
#define LUKS_LATER	  3u
#define LUKS_OPENED	  4u
/*
 * only: by the tokens alone that may open it later, as it was told; 0: by all.  wanted(), unless NULL: is it still, once a server has answered, for
 * which some time may have gone by?
 */
struct luks_by {
	unsigned only;
	bool (*wanted)(void *data);
	void *data;
};
/*
 * By the tokens of the header that need nobody: a TPM2 (systemd-tpm2, by the plug-in of libcryptsetup), clevis.  Says which did not open it, and why;
 * complains only of what is wrong with the header.
 */
int luks_unlock_by_token(const char *device, const char *name, const struct luks_by *by, unsigned *outcome);
/* What such a layer that is open may have of a device of so many bytes, and the size of its sectors.  Complains. */
int luks_room(const char *name, uint64_t device, uint64_t *bytes, unsigned *sector);
/* To all of the device; the secret as for unlocking: the kernel may have the volume key where nobody can read it. */
int luks_resize(const char *device, const char *name, const struct secret *secret);
int luks_lock(const char *name);
/*
 * The header with its key slots into a file, which nobody else may read; it is replaced as a whole, and durable when this returns.  The file
 * that was there, which may have keys that are gone, is overwritten then, unless it has another name too; if that is no backup of the same header, it stays,
 * and this fails.  Complains.
 */
int luks_backup(const char *device, const char *path);
/* That file goes, and what a try that was cut short has left beside it: both are overwritten like that.  There may be none.  Complains. */
int luks_forget_backup(const char *path);
/* Has the file that header as it is now?  False also where one of them cannot be read: says nothing. */
bool luks_backup_is_current(const char *device, const char *path);
/* Is it one of the header with this UUID?  Says nothing. */
bool luks_backup_is_of(const char *path, const uint8_t uuid[16]);

/* ------------------------------------------------------------------ key slots */

#define LUKS_SLOTS    32
#define LUKS_ANY_SLOT (-1)

/* Of a slot that is in use what anybody may know. */
struct luks_slot {
	int number;
	enum luks_kind kind;
	char token[64]; /* type of another program's token that is assigned to it ("systemd-tpm2"); "": none */
	char pin[16]; /* of a token of clevis: what keeps its key, "tang", "tpm2"; else "" */
	bool unbound; /* its key is not that of the volume */
	char pbkdf[32], hash[32]; /* hash: of pbkdf2 only */
	uint32_t iterations, memory_kib, threads;
};

/* What is to be done with a key slot: a key that opens the volume (old), and the one that it is to have. */
struct luks_request {
	const char *device;
	int slot; /* LUKS_ANY_SLOT: the first that is empty, or the one that the old key opens */
	unsigned iteration_ms; /* as for luks_make() */
	const struct secret *old, *new;
	enum luks_kind kind; /* of the new one */
};

/* All complain, and have durably done all or nothing of what counts: docs/design.md 11. */
int luks_slots(const char *device, struct luks_slot slots[static LUKS_SLOTS], unsigned *number);
/* *slot: where. */
int luks_add(const struct luks_request *request, int *slot);
int luks_change(const struct luks_request *request, int *slot);
/* old: of another slot than this one; or NULL, which removes the last key as well. */
int luks_remove(const struct luks_request *request);
/* Does this key open the volume?  *fits is set on success. */
int luks_fits(const char *device, const struct secret *secret, bool *fits);

#endif
