// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * LUKS2 by libcryptsetup, aes-xts with 512 bits.
 */
#include <errno.h>
#include <fcntl.h>
#include <libcryptsetup.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "luks.h"
#include "message.h"
#include "superblock.h"

#define SECRET_MAX 65536u

void secrets_protect(void)
{
	const struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
}

void secret_free(struct secret *secret)
{
	crypt_safe_free(secret->bytes);
	*secret = (struct secret){ 0 };
}

/* Until the end, or (line) the end of the line. */
static int read_all(int file, const char *name, bool line, struct secret *secret)
{
	char *bytes = must_allocate(crypt_safe_alloc(SECRET_MAX));
	size_t length = 0;
	ssize_t got = 0;

	while (length < SECRET_MAX && (got = read(file, bytes + length, line ? 1 : SECRET_MAX - length)) > 0) {
		length += (size_t)got;
		if (line && bytes[length - 1] == '\n')
			break;
	}
	if (line && length && bytes[length - 1] == '\n')
		length--;
	*secret = (struct secret){ bytes, length };
	if (got >= 0 && length && length < SECRET_MAX)
		return LARDER_DONE;
	secret_free(secret);
	return complain(LARDER_FAILED, "%s: %s", name, got < 0 ? strerror(errno) : length ? "is longer than 64 KiB" : "is empty");
}

static int ask(const char *prompt, struct secret *secret)
{
	struct termios before, quiet;
	int result;

	fprintf(stderr, "%s: ", prompt);
	tcgetattr(STDIN_FILENO, &before);
	quiet = before;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
	result = read_all(STDIN_FILENO, "passphrase", true, secret);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
	fputc('\n', stderr);
	return result;
}

static int ask_user(const char *stack, bool twice, struct secret *secret)
{
	char *prompt = must_print("Passphrase of the stack %s", stack);
	struct secret again;
	int result = ask(prompt, secret);

	free(prompt);
	if (result || !twice)
		return result;
	result = ask("The same once more", &again);
	if (!result) {
		if (again.length != secret->length || memcmp(again.bytes, secret->bytes, again.length))
			result = complain(LARDER_FAILED, "%s: the two passphrases differ; nothing was done", stack);
		secret_free(&again);
	}
	if (result)
		secret_free(secret);
	return result;
}

int secret_read(const char *keyfile, const char *stack, bool twice, struct secret *secret)
{
	int file, result;

	*secret = (struct secret){ 0 };
	if (!keyfile || !*keyfile)
		return isatty(STDIN_FILENO) ? ask_user(stack, twice, secret) : read_all(STDIN_FILENO, "passphrase on stdin", true, secret);
	file = open(keyfile, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return complain(errno == ENOENT ? LARDER_NOT_FOUND : LARDER_FAILED, "%s: key file: %s", keyfile, strerror(errno));
	result = read_all(file, keyfile, false, secret);
	close(file);
	return result;
}

int secret_take(int file, const char *name, struct secret *secret)
{
	return read_all(file, name, false, secret);
}

/* ------------------------------------------------------------------ LUKS2 */

static char last_word[256];

static void take_log(int level, const char *message, void *data)
{
	(void)data;
	if (level == CRYPT_LOG_ERROR)
		snprintf(last_word, sizeof(last_word), "%.*s", (int)strcspn(message, "\n"), message);
}

static int open_context(const char *device, struct crypt_device **cd)
{
	last_word[0] = 0;
	crypt_set_log_callback(NULL, take_log, NULL);
	return crypt_init(cd, device);
}

static int judge(int error, const char *device, const char *action)
{
	if (error >= 0)
		return LARDER_DONE;
	if (error == -EPERM)
		return complain(LARDER_FAILED, "%s: no key of it fits this passphrase or key file", device);
	return complain(error == -EBUSY ? LARDER_BUSY : LARDER_FAILED, "%s: cannot %s it: %s", device, action,
			*last_word ? last_word : strerror(-error));
}

int luks_make(const char *device, const uint8_t uuid[16], unsigned iteration_ms, const struct secret *secret)
{
	struct crypt_device *cd = NULL;
	char text[UUID_TEXT];
	int error = open_context(device, &cd);

	if (!error && iteration_ms)
		crypt_set_iteration_time(cd, iteration_ms);
	uuid_text(uuid, text);
	error = error ? error : crypt_format(cd, CRYPT_LUKS2, "aes", "xts-plain64", text, NULL, 64, NULL);
	error = error ? error :
			crypt_keyslot_add_by_volume_key(cd, CRYPT_ANY_SLOT, NULL, 0, secret->bytes, secret->length);
	crypt_free(cd);
	return judge(error, device, "encrypt");
}

int luks_unlock(const char *device, const char *name, const struct secret *secret, bool *wrong)
{
	/* one memory-hard guess at a time on this machine, systemd-cryptsetup's among them */
	const uint32_t flags = CRYPT_ACTIVATE_ALLOW_DISCARDS | CRYPT_ACTIVATE_SERIALIZE_MEMORY_HARD_PBKDF;
	struct crypt_device *cd = NULL;
	int error = open_context(device, &cd);

	error = error ? error : crypt_load(cd, CRYPT_LUKS2, NULL);
	error = error ? error :
			crypt_activate_by_passphrase(cd, name, CRYPT_ANY_SLOT, secret->bytes, secret->length, flags);
	crypt_free(cd);
	if (wrong)
		*wrong = error == -EPERM;
	if (wrong && *wrong)
		return LARDER_FAILED;
	return judge(error, device, "unlock");
}

int luks_resize(const char *device, const char *name, const struct secret *secret)
{
	struct crypt_active_device active;
	struct crypt_device *cd = NULL;
	int error;

	last_word[0] = 0;
	crypt_set_log_callback(NULL, take_log, NULL);
	error = crypt_init_by_name(&cd, name);
	error = error ? error : crypt_get_active_device(cd, name, &active);
	if (!error && active.flags & CRYPT_ACTIVATE_KEYRING_KEY)
		error = crypt_activate_by_passphrase(cd, NULL, CRYPT_ANY_SLOT, secret->bytes, secret->length,
						     CRYPT_ACTIVATE_KEYRING_KEY);
	error = error < 0 ? error : crypt_resize(cd, name, 0);
	crypt_free(cd);
	return judge(error, device, "resize the encryption of");
}

int luks_lock(const char *name)
{
	int error;

	last_word[0] = 0;
	crypt_set_log_callback(NULL, take_log, NULL);
	error = crypt_deactivate_by_name(NULL, name, 0);
	return judge(error, name, "lock");
}

/* A new file beside it: what a rename then makes durable is whole. */
static int make_backup(const char *device, const char *path)
{
	struct crypt_device *cd = NULL;
	int file, error;

	unlink(path);
	error = open_context(device, &cd);
	error = error ? error : crypt_load(cd, CRYPT_LUKS2, NULL);
	error = error ? error : crypt_header_backup(cd, CRYPT_LUKS2, path);
	crypt_free(cd);
	if (error)
		return error;
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -errno;
	error = fchmod(file, 0600) || fsync(file) ? -errno : 0;
	close(file);
	return error;
}

static int sync_directory(const char *path)
{
	char *parent = must_print("%s", path);
	int file, error;

	parent[strrchr(parent, '/') - parent + 1] = 0;
	file = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	error = file < 0 || fsync(file) ? -errno : 0;
	if (file >= 0)
		close(file);
	free(parent);
	return error;
}

int luks_backup(const char *device, const char *path)
{
	char *next = must_print("%s.new", path);
	int error = make_backup(device, next);

	if (!error && rename(next, path))
		error = -errno;
	error = error ? error : sync_directory(path);
	if (error)
		unlink(next);
	free(next);
	return error ? complain(LARDER_FAILED, "%s: cannot keep a backup of its LUKS header in %s: %s", device, path,
				*last_word ? last_word : strerror(-error)) :
		       LARDER_DONE;
}
