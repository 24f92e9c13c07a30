// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * LUKS2 by libcryptsetup: aes-xts with 512 bits, or ciphers that authenticate, over dm-integrity.
 *
 * What kind of key a slot has is not in LUKS2: a token of the type "larder" says it, one for each slot; others leave it alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <libcryptsetup.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "cryptsetup.h"
#include "directory.h"
#include "luks.h"
#include "message.h"
#include "program.h"
#include "signals.h"
#include "superblock.h"
#include "token.h"

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

/* For a secret as a whole; 0: for ever. */
static unsigned secret_wait(void)
{
	const char *seconds = getenv(PROGRAM_SECRET_WAIT);

	return seconds ? (unsigned)strtoul(seconds, NULL, 10) : 0;
}

/* When it is given up, by clock_seconds(); 0: never. */
static double secret_end(void)
{
	unsigned seconds = secret_wait();

	return seconds ? clock_seconds() + seconds : 0;
}

/*
 * read(); of a terminal with the signals that end it let in while it waits, and no sooner: one that came just before would be lost.  What is not to wait
 * for ever (end) is non-blocking: somebody else may read what poll() has seen.
 */
static ssize_t read_some(int file, void *bytes, size_t length, const sigset_t *waiting, double end)
{
	struct pollfd wanted = { .fd = file, .events = POLLIN };
	struct timespec left = { 0 };
	int ready = 1;
	ssize_t got;

	do {
		double seconds = end > 0 ? end - clock_seconds() : 0;

		left.tv_sec = seconds > 0 ? (time_t)seconds : 0;
		left.tv_nsec = seconds > 0 ? (long)((seconds - (double)left.tv_sec) * 1e9) : 0;
		if (waiting || end > 0)
			ready = ppoll(&wanted, 1, end > 0 ? &left : NULL, waiting);
		if (!ready)
			errno = ETIME;
		got = ready > 0 ? read(file, bytes, length) : -1;
	} while (ready > 0 && got < 0 && end > 0 && errno == EAGAIN);
	return got;
}

/* Until the end, or (line) the end of the line; waiting: the signal mask while it waits, NULL: as it is; end: of read_some(). */
static int read_all(int file, const char *name, bool line, const sigset_t *waiting, double end, struct secret *secret)
{
	char *bytes = must_allocate(crypt_safe_alloc(SECRET_MAX));
	size_t length = 0;
	ssize_t got = 0;

	while (length < SECRET_MAX && (got = read_some(file, bytes + length, line ? 1 : SECRET_MAX - length, waiting, end)) > 0) {
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
	if (got < 0 && errno == EINTR && waiting)
		return LARDER_FAILED; /* by a signal: ask() says, or does, what follows */
	if (got < 0 && errno == ETIME)
		return complain(LARDER_FAILED, "%s: did not end within %u s; close the writing end of a pipe behind the key", name, secret_wait());
	return complain(LARDER_FAILED, "%s: %s", name, got < 0 ? strerror(errno) : length ? "is longer than 64 KiB" : "is empty");
}

static volatile sig_atomic_t caught;

static void catch_signal(int number)
{
	caught = number;
}

/* In the background the terminal has somebody else's settings: until fg. */
static void wait_for_terminal(void)
{
	pid_t group = tcgetpgrp(STDIN_FILENO);

	if (group > 0 && group != getpgrp())
		raise(SIGTTOU);
}

/*
 * Whatever ends or stops it, the terminal shows again what is typed.  Signals that are ignored stay so.  True: it was stopped, and goes on now, with a
 * terminal that somebody else has had meanwhile: the question is to be asked again.
 */
static bool ask_once(const char *prompt, struct secret *secret, int *result)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGCONT, 0 };
	struct signals was;
	struct termios before, quiet;
	sigset_t held, mask;

	wait_for_terminal();
	caught = 0;
	sigemptyset(&held);
	for (size_t i = 0; ends[i]; i++)
		sigaddset(&held, ends[i]);
	sigprocmask(SIG_BLOCK, &held, &mask);
	signals_catch(ends, catch_signal, 0, &was);
	tcgetattr(STDIN_FILENO, &before);
	quiet = before;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
	fprintf(stderr, "%s: ", prompt);
	*result = read_all(STDIN_FILENO, "passphrase", true, &mask, 0, secret);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
	fputc('\n', stderr);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	signals_restore(&was);
	if (caught && !*result)
		secret_free(secret);
	*result = caught ? LARDER_FAILED : *result;
	if (caught)
		raise((int)caught);
	return caught == SIGTSTP || caught == SIGCONT;
}

static int ask(const char *prompt, struct secret *secret)
{
	int result;

	while (ask_once(prompt, secret, &result))
		;
	return result;
}

static int ask_user(const char *which, const char *stack, bool twice, struct secret *secret)
{
	char *prompt = must_print("%s of the stack %s", which, stack);
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

/* One line of it, which is no terminal; or is a stranger's, who is not waited for: a pipe, say, opened anew, as its flags are his. */
static int read_stdin(struct secret *secret)
{
	static const char name[] = "passphrase on stdin";
	struct stat status;
	int file, result;

	if (!secret_wait() || fstat(STDIN_FILENO, &status) || S_ISREG(status.st_mode))
		return read_all(STDIN_FILENO, name, true, NULL, secret_end(), secret);
	file = open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (file < 0)
		return complain(LARDER_FAILED, "%s: %s", name, errno == ENXIO ? "is a socket; use a pipe" : strerror(errno));
	result = read_all(file, name, true, NULL, secret_end(), secret);
	close(file);
	return result;
}

static int read_secret(const char *keyfile, const char *which, const char *stack, bool twice, struct secret *secret)
{
	int file, result;

	*secret = (struct secret){ 0 };
	if (!keyfile || !*keyfile)
		return isatty(STDIN_FILENO) && !secret_wait() ? ask_user(which, stack, twice, secret) : read_stdin(secret);
	file = open(keyfile, O_RDONLY | O_CLOEXEC | O_NOCTTY | (secret_wait() ? O_NONBLOCK : 0));
	if (file < 0)
		return complain(errno == ENOENT ? LARDER_NOT_FOUND : LARDER_FAILED, "%s: key file: %s", keyfile, strerror(errno));
	result = read_all(file, keyfile, false, NULL, secret_end(), secret);
	close(file);
	return result;
}

int secret_read(const char *keyfile, const char *stack, bool twice, struct secret *secret)
{
	return read_secret(keyfile, "Passphrase", stack, twice, secret);
}

int secret_read_old(const char *given, const char *keyfile, const char *stack, struct secret *secret)
{
	const char *word = given ? given : keyfile;

	if (!given && *word && access(word, F_OK))
		return complain(LARDER_NOT_FOUND, "%s: key file: %s; --keyfile - asks for a passphrase", word, strerror(errno));
	return secret_read(strcmp(word, "-") ? word : NULL, stack, false, secret);
}

int secret_read_new(const char *keyfile, const char *stack, struct secret *secret)
{
	return read_secret(keyfile, "New passphrase", stack, true, secret);
}

int secret_take(int file, const char *name, struct secret *secret)
{
	return read_all(file, name, false, NULL, 0, secret);
}

/* ------------------------------------------------------------------ LUKS2 */

static int open_header(const char *device, unsigned iteration_ms, struct crypt_device **cd)
{
	int error = cryptsetup_open(device, cd);

	error = error ? error : crypt_load(*cd, CRYPT_LUKS2, NULL);
	if (!error && iteration_ms)
		crypt_set_iteration_time(*cd, iteration_ms);
	return error;
}

#define TOKEN_TYPE "larder"

static const char *const kinds[] = { [LUKS_PASSPHRASE] = "passphrase", [LUKS_KEYFILE] = "keyfile" };

/* The next token that is assigned to a slot, from *token on; its type.  NULL: there is none. */
static const char *next_token(struct crypt_device *cd, int slot, int *token)
{
	for (; *token < crypt_token_max(CRYPT_LUKS2); ++*token) {
		const char *type;
		crypt_token_info info = crypt_token_status(cd, *token, &type);

		if (info != CRYPT_TOKEN_INVALID && info != CRYPT_TOKEN_INACTIVE && !crypt_token_is_assigned(cd, *token, slot))
			return type;
	}
	return NULL;
}

/* Notes what a slot has now, in the place of what it had. */
static int set_kind(struct crypt_device *cd, int slot, enum luks_kind kind)
{
	char *json = must_print("{\"type\":\"" TOKEN_TYPE "\",\"keyslots\":[\"%d\"],\"kind\":\"%s\"}", slot, kinds[kind]);
	const char *type;
	int token = 0, error;

	while ((type = next_token(cd, slot, &token)) && strcmp(type, TOKEN_TYPE))
		token++;
	error = crypt_token_json_set(cd, type ? token : CRYPT_ANY_TOKEN, json);
	free(json);
	return error < 0 ? error : 0;
}

/* Behind a change that is done: this only shows, and fails none. */
static void note_kind(struct crypt_device *cd, const struct luks_request *request, int slot)
{
	int error = set_kind(cd, slot, request->kind);

	if (error)
		remark("%s: slot %d: that it has a %s cannot be noted in the header: %s; --list shows it as a key", request->device, slot, kinds[request->kind],
		       cryptsetup_words(error));
}

/* As dm-crypt and libcryptsetup call them; bytes of all keys together. */
static const struct cipher {
	const char *name, *cipher, *mode, *integrity;
	size_t key;
} ciphers[] = {
	{ "", "aes", "xts-plain64", NULL, 64 },
	{ "chacha20-poly1305", "chacha20", "random", "poly1305", 32 },
	{ "aes-gcm", "aes", "gcm-random", "aead", 32 },
	{ "aes-xts-hmac", "aes", "xts-plain64", "hmac(sha256)", 64 + 32 },
};

static const struct cipher *find_cipher(const char *name)
{
	for (size_t i = 0; i < sizeof(ciphers) / sizeof(ciphers[0]); i++)
		if (!strcmp(ciphers[i].name, name))
			return &ciphers[i];
	return NULL;
}

/* A tag for each 4 KiB; dm-integrity's journal keeps a sector of ours whole where those of the disk are smaller. */
static uint32_t tagged_bytes(const char *device)
{
	int file = open(device, O_RDONLY | O_CLOEXEC);
	off_t end = file < 0 ? 0 : lseek(file, 0, SEEK_END);

	if (file >= 0)
		close(file);
	return end % 4096 ? 512 : 4096;
}

int luks_make(const char *device, const struct luks_format *format)
{
	const struct cipher *cipher = find_cipher(format->aead);
	struct crypt_params_luks2 params = { .integrity = cipher ? cipher->integrity : NULL };
	struct crypt_device *cd = NULL;
	char text[UUID_TEXT];
	int error = cipher ? cryptsetup_open(device, &cd) : -EINVAL;

	if (!error && format->iteration_ms)
		crypt_set_iteration_time(cd, format->iteration_ms);
	if (!error && cipher->integrity)
		params.sector_size = tagged_bytes(device);
	uuid_text(format->uuid, text);
	error = error ? error :
			crypt_format(cd, CRYPT_LUKS2, cipher->cipher, cipher->mode, text, NULL, cipher->key,
				     cipher->integrity ? &params : NULL);
	error = error ? error : crypt_keyslot_add_by_volume_key(cd, 0, NULL, 0, format->secret->bytes, format->secret->length);
	error = error < 0 ? error : set_kind(cd, 0, format->kind);
	crypt_free(cd);
	return cryptsetup_judge(error, device, "encrypt");
}

#define WIPE_BLOCK (1u << 20)
#define PART_LEAST (8u << 20) /* or a hundredth */

static int write_zeroes(struct crypt_device *cd, const char *path, uint64_t from, uint64_t to)
{
	return crypt_wipe(cd, path, CRYPT_WIPE_ZERO, from, to - from, WIPE_BLOCK, 0, NULL, NULL);
}

/*
 * Part by part, each durable before it is noted; the two ends before all, as whoever looks for superblocks reads there.  Held open all the
 * while, so that nobody locks it, or makes it anew.
 */
static int wipe_parts(struct crypt_device *cd, const char *path, const struct luks_wipe *wipe, int *result)
{
	struct crypt_active_device active;
	int file = open(path, O_RDWR | O_CLOEXEC), error = file < 0 ? -errno : crypt_get_active_device(cd, wipe->name, &active);
	uint64_t all = error ? 0 : active.size << LARDER_SECTOR_SHIFT, part = all / 100 > PART_LEAST ? all / 100 / WIPE_BLOCK * WIPE_BLOCK : PART_LEAST,
		 end = all < WIPE_BLOCK ? all : WIPE_BLOCK;

	error = error ? error : write_zeroes(cd, path, 0, end);
	error = error ? error : write_zeroes(cd, path, (all - end) & ~4095ull, all);
	for (uint64_t at = wipe->from; !error && !*result && at < all; at += part) {
		uint64_t to = part < all - at ? at + part : all;

		error = write_zeroes(cd, path, at, to);
		if (!error && fsync(file))
			error = -errno;
		if (!error)
			*result = wipe->noted(to, all, wipe->data);
	}
	if (file >= 0)
		close(file);
	return error;
}

int luks_wipe(const char *device, const struct luks_wipe *wipe)
{
	/* without dm-integrity's journal: what is cut off is written again */
	const uint32_t flags = CRYPT_ACTIVATE_PRIVATE | CRYPT_ACTIVATE_NO_JOURNAL | CRYPT_ACTIVATE_SERIALIZE_MEMORY_HARD_PBKDF;
	char *path = must_print("/dev/mapper/%s", wipe->name);
	struct crypt_device *cd = NULL;
	int error = cryptsetup_open(device, &cd), result = LARDER_DONE;

	error = error ? error : crypt_load(cd, CRYPT_LUKS2, NULL);
	error = error ? error :
			crypt_activate_by_passphrase(cd, wipe->name, CRYPT_ANY_SLOT, wipe->secret->bytes, wipe->secret->length, flags);
	if (error >= 0) {
		error = wipe_parts(cd, path, wipe, &result);
		if (crypt_deactivate(cd, wipe->name) && !error)
			error = -EBUSY;
	}
	crypt_free(cd);
	free(path);
	return result ? result : cryptsetup_judge(error, device, "write the tags of");
}

/* One with authentication has no discards: what was discarded would have no tag. */
static bool takes_discards(struct crypt_device *cd)
{
	struct crypt_params_integrity integrity = { 0 };

	return crypt_get_integrity_info(cd, &integrity) || !integrity.tag_size;
}

int luks_unlock(const char *device, const char *name, const struct secret *secret, bool *wrong)
{
	/* one memory-hard guess at a time on this machine, systemd-cryptsetup's among them */
	uint32_t flags = CRYPT_ACTIVATE_SERIALIZE_MEMORY_HARD_PBKDF;
	struct crypt_device *cd = NULL;
	int error = cryptsetup_open(device, &cd);

	error = error ? error : crypt_load(cd, CRYPT_LUKS2, NULL);
	if (!error && takes_discards(cd))
		flags |= CRYPT_ACTIVATE_ALLOW_DISCARDS;
	error = error ? error :
			crypt_activate_by_passphrase(cd, name, CRYPT_ANY_SLOT, secret->bytes, secret->length, flags);
	crypt_free(cd);
	if (wrong)
		*wrong = error == -EPERM;
	if (wrong && *wrong)
		return LARDER_FAILED;
	return cryptsetup_judge(error, device, "unlock");
}

/* The key of clevis is that of the slots that its token is assigned to. */
static int activate_by_clevis(struct crypt_device *cd, const char *name, int token, uint32_t flags, const struct luks_by *by)
{
	struct secret secret;
	const char *json;
	int error = crypt_token_json_get(cd, token, &json);

	if (error < 0 || !token_decrypt(json, &secret))
		return error < 0 ? error : -EAGAIN;
	error = by->wanted && !by->wanted(by->data) ? -ECANCELED : -EPERM;
	for (int slot = 0; error == -EPERM && slot < crypt_keyslot_max(CRYPT_LUKS2); slot++)
		if (!crypt_token_is_assigned(cd, token, slot))
			error = crypt_activate_by_passphrase(cd, name, slot, secret.bytes, secret.length, flags);
	secret_free(&secret);
	return error;
}

static const char *why_not(int error)
{
	return *cryptsetup_said()	? cryptsetup_said() :
	       error == -EAGAIN ? "the key cannot be had now" :
	       error == -ENOANO ? "it asks for a PIN, which larder cannot" :
	       error == -ENOENT || error == -EINVAL ? "libcryptsetup's plug-in for it is not here, or what it needs" :
	       error == -ECANCELED ? "it was locked meanwhile" :
	       error == -EPERM ? "the key does not fit" : strerror(-error);
}

int luks_unlock_by_token(const char *device, const char *name, const struct luks_by *by, unsigned *outcome)
{
	uint32_t flags = CRYPT_ACTIVATE_SERIALIZE_MEMORY_HARD_PBKDF;
	struct crypt_device *cd = NULL;
	int error = open_header(device, 0, &cd), result = cryptsetup_judge(error, device, "unlock");

	*outcome = LUKS_NO_TOKEN;
	if (!result && takes_discards(cd))
		flags |= CRYPT_ACTIVATE_ALLOW_DISCARDS;
	for (int token = 0; !result && *outcome != LUKS_OPENED && token < crypt_token_max(CRYPT_LUKS2); token++) {
		const char *type = "";
		crypt_token_info info = crypt_token_status(cd, token, &type);
		bool clevis = info >= CRYPT_TOKEN_INTERNAL && !strcmp(type, "clevis");
		unsigned later = clevis ? LUKS_SERVER_LATER : LUKS_TPM2_LATER;

		if ((!clevis && (info < CRYPT_TOKEN_INTERNAL || strcmp(type, "systemd-tpm2"))) || (by->only && !(by->only & later)))
			continue;
		cryptsetup_listen();
		error = clevis ? activate_by_clevis(cd, name, token, flags, by) : crypt_activate_by_token_pin(cd, name, NULL, token, NULL, 0, NULL, flags);
		if (error >= 0)
			*outcome = LUKS_OPENED;
		else if (clevis || error == -EAGAIN) /* behind other errors of a TPM2 each try could lock it up */
			*outcome |= later;
		if (error < 0)
			remark("%s: the token %s does not open it: %s", device, type, why_not(error));
	}
	crypt_free(cd);
	return result;
}

int luks_room(const char *name, uint64_t device, uint64_t *bytes, unsigned *sector)
{
	struct crypt_active_device active;
	struct crypt_device *cd = NULL;
	uint64_t offset;
	int error;

	cryptsetup_listen();
	error = crypt_init_by_name(&cd, name);
	error = error ? error : crypt_get_active_device(cd, name, &active);
	if (!error) {
		offset = active.offset << LARDER_SECTOR_SHIFT;
		*sector = (unsigned)crypt_get_sector_size(cd);
		*bytes = device > offset ? device - offset : 0;
		*bytes -= *bytes % *sector;
	}
	crypt_free(cd);
	return cryptsetup_judge(error, name, "look at the encryption");
}

int luks_resize(const char *device, const char *name, const struct secret *secret)
{
	struct crypt_active_device active;
	struct crypt_device *cd = NULL;
	int error;

	cryptsetup_listen();
	error = crypt_init_by_name(&cd, name);
	error = error ? error : crypt_get_active_device(cd, name, &active);
	if (!error && active.flags & CRYPT_ACTIVATE_KEYRING_KEY)
		error = crypt_activate_by_passphrase(cd, NULL, CRYPT_ANY_SLOT, secret->bytes, secret->length,
						     CRYPT_ACTIVATE_KEYRING_KEY | CRYPT_ACTIVATE_SERIALIZE_MEMORY_HARD_PBKDF);
	error = error < 0 ? error : crypt_resize(cd, name, 0);
	crypt_free(cd);
	return cryptsetup_judge(error, device, "resize the encryption of");
}

int luks_lock(const char *name)
{
	int error;

	cryptsetup_listen();
	error = crypt_deactivate_by_name(NULL, name, 0);
	return cryptsetup_judge(error, name, "lock");
}

/* A new file beside it: what a rename then makes durable is whole.  To be freed. */
static char *next_backup(const char *path)
{
	return must_print("%s.larder-new", path);
}

/* What had the name before: its key slots go from the disk, as far as that writes in place. */
static void overwrite(int file)
{
	static const char zeroes[65536];
	struct stat status;

	if (fstat(file, &status) || !S_ISREG(status.st_mode) || status.st_nlink)
		return;
	for (off_t at = 0; at < status.st_size;) {
		size_t left = (size_t)(status.st_size - at);
		ssize_t done = pwrite(file, zeroes, left < sizeof(zeroes) ? left : sizeof(zeroes), at);

		if (done <= 0)
			return;
		at += done;
	}
	fsync(file);
}

/* 0, or -errno; that there is none is well.  It may be a pipe by now, of whoever owns the directory: nobody waits for one who reads it. */
static int forget(const char *path)
{
	int file = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int error = unlink(path) && errno != ENOENT && errno != ENOTDIR ? -errno : 0;

	if (file >= 0 && !error)
		overwrite(file);
	if (file >= 0)
		close(file);
	return error;
}

static int make_backup(const char *device, const char *path)
{
	struct crypt_device *cd = NULL;
	struct stat status;
	int file, error = forget(path); /* of one that was cut off: with keys that may have been removed since */

	error = error ? error : cryptsetup_open(device, &cd);
	error = error ? error : crypt_load(cd, CRYPT_LUKS2, NULL);
	error = error ? error : crypt_header_backup(cd, CRYPT_LUKS2, path);
	crypt_free(cd);
	if (error)
		return error;
	file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file < 0)
		return -errno;
	if (fstat(file, &status))
		error = -errno;
	else if (!S_ISREG(status.st_mode) || status.st_nlink != 1) /* whose directory this is has put something else there */
		error = -EEXIST;
	else
		error = fchmod(file, 0600) || fsync(file) ? -errno : 0;
	close(file);
	return error;
}

/* Salt, counter of changes, and checksum of all that describes the slots. */
static bool read_binary_header(const char *path, char header[static 4096])
{
	int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	bool good = file >= 0 && pread(file, header, 4096, 0) == 4096;

	if (file >= 0)
		close(file);
	return good;
}

static bool has_uuid(const char header[static 4096], const char *uuid)
{
	static const char magic[6] = { 'L', 'U', 'K', 'S', '\xba', '\xbe' };

	return !memcmp(header, magic, sizeof(magic)) && !strncmp(header + 168, uuid, 40); /* LUKS2: uuid[40] */
}

/* Nothing has the name, or what has it, itself or by a link, is one of the same header.  0, or -errno. */
static int check_replaced(const char *device, const char *path)
{
	char here[4096], there[4096];
	struct stat status;

	if (lstat(path, &status))
		return errno == ENOENT ? 0 : -errno;
	return !stat(path, &status) && S_ISREG(status.st_mode) && read_binary_header(device, here) && read_binary_header(path, there) &&
			       has_uuid(there, here + 168) ? 0 : -EEXIST;
}

/* 0, or -errno. */
static int replace_backup(const char *device, const char *path)
{
	char *next = next_backup(path);
	int old = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), error = check_replaced(device, path);

	if (!error) {
		error = make_backup(device, next);
		if (!error && rename(next, path))
			error = -errno;
		error = error ? error : sync_directory_of(path);
		if (error)
			forget(next);
		else if (old >= 0)
			overwrite(old);
	}
	if (old >= 0)
		close(old);
	free(next);
	return error;
}

/*
 * Whoever owns a directory on the path may put a link in its place at any moment: the last one is looked up once, and what has the name there, whatever the
 * caller has seen before, is judged, and replaced, in that.
 */
int luks_backup(const char *device, const char *path)
{
	const char *name = strrchr(path, '/');
	char *parent = name ? must_print("%.*s", (int)(name - path + 1), path) : must_print("."), *bound;
	int directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = directory < 0 ? -errno : 0;

	if (!error) {
		bound = must_print("/proc/self/fd/%d/%s", directory, name ? name + 1 : path);
		error = replace_backup(device, bound);
		free(bound);
		close(directory);
	}
	free(parent);
	if (error == -EEXIST)
		return complain(LARDER_FAILED, "%s: no backup of its LUKS header was written: %s: is there meanwhile, and is none of it; give another name",
				device, path);
	return error ? complain(LARDER_FAILED, "%s: cannot keep a backup of its LUKS header in %s: %s", device, path,
				cryptsetup_words(error)) :
		       LARDER_DONE;
}

int luks_forget_backup(const char *path)
{
	char *next = next_backup(path);
	int error = forget(next);

	error = error ? error : forget(path);
	free(next);
	return error ? complain(LARDER_FAILED, "%s: cannot remove it: %s", path, strerror(-error)) : LARDER_DONE;
}

bool luks_backup_is_current(const char *device, const char *path)
{
	char here[4096], there[4096];

	return read_binary_header(device, here) && read_binary_header(path, there) && !memcmp(here, there, sizeof(here));
}

bool luks_backup_is_of(const char *path, const uint8_t uuid[16])
{
	char header[4096], text[UUID_TEXT];

	return read_binary_header(path, header) && has_uuid(header, uuid_text(uuid, text));
}

/* ------------------------------------------------------------------ key slots */

static bool is_active(struct crypt_device *cd, int slot)
{
	crypt_keyslot_info info = crypt_keyslot_status(cd, slot);

	return info == CRYPT_SLOT_ACTIVE || info == CRYPT_SLOT_ACTIVE_LAST;
}

static void read_tokens(struct crypt_device *cd, struct luks_slot *slot)
{
	const char *type, *json;

	for (int token = 0; (type = next_token(cd, slot->number, &token)); token++) {
		if (strcmp(type, TOKEN_TYPE)) {
			snprintf(slot->token, sizeof(slot->token), "%s", type);
			if (!strcmp(type, "clevis") && crypt_token_json_get(cd, token, &json) >= 0)
				token_pin(json, slot->pin);
			continue;
		}
		if (crypt_token_json_get(cd, token, &json) < 0)
			continue;
		for (size_t i = LUKS_PASSPHRASE; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			char *word = must_print("\"%s\"", kinds[i]);

			if (strstr(json, word))
				slot->kind = (enum luks_kind)i;
			free(word);
		}
	}
}

int luks_slots(const char *device, struct luks_slot slots[static LUKS_SLOTS], unsigned *number)
{
	struct crypt_device *cd = NULL;
	int error = open_header(device, 0, &cd), last = error ? 0 : crypt_keyslot_max(CRYPT_LUKS2);

	*number = 0;
	for (int i = 0; i < last && *number < LUKS_SLOTS; i++) {
		struct luks_slot *slot = &slots[*number];
		struct crypt_pbkdf_type pbkdf = { 0 };
		crypt_keyslot_info info = crypt_keyslot_status(cd, i);

		if (info == CRYPT_SLOT_INVALID || info == CRYPT_SLOT_INACTIVE)
			continue;
		*slot = (struct luks_slot){ .number = i, .unbound = info == CRYPT_SLOT_UNBOUND };
		if (!crypt_keyslot_get_pbkdf(cd, i, &pbkdf)) {
			snprintf(slot->pbkdf, sizeof(slot->pbkdf), "%s", pbkdf.type);
			snprintf(slot->hash, sizeof(slot->hash), "%s", !strcmp(pbkdf.type, CRYPT_KDF_PBKDF2) ? pbkdf.hash : "");
			slot->iterations = pbkdf.iterations;
			slot->memory_kib = pbkdf.max_memory_kb;
			slot->threads = pbkdf.parallel_threads;
		}
		read_tokens(cd, slot);
		++*number;
	}
	crypt_free(cd);
	return cryptsetup_judge(error, device, "read the key slots of");
}

/* The slot that a key opens, one of those but `not`; -EPERM: none. */
static int slot_of(struct crypt_device *cd, const struct secret *secret, int not)
{
	int found = -EPERM;

	for (int i = 0; found == -EPERM && i < crypt_keyslot_max(CRYPT_LUKS2); i++) {
		if (i == not || !is_active(cd, i))
			continue;
		found = crypt_activate_by_passphrase(cd, NULL, i, secret->bytes, secret->length, CRYPT_ACTIVATE_SERIALIZE_MEMORY_HARD_PBKDF);
	}
	return found;
}

/* A key twice would survive the removal of one of its slots.  old: the slot that is to change; one that was cut off has left both keys. */
static int refuse_twice(struct crypt_device *cd, const struct luks_request *request, int old)
{
	int slot = slot_of(cd, request->new, LUKS_ANY_SLOT);

	if (slot == -EPERM)
		return LARDER_DONE;
	if (slot < 0)
		return cryptsetup_judge(slot, request->device, "try the new key on");
	if (old == LUKS_ANY_SLOT || old == slot)
		return complain(LARDER_BUSY, "%s: slot %d has this key already; nothing was changed", request->device, slot);
	return complain(LARDER_BUSY,
			"%s: slot %d has this key already, as a change that was cut off leaves it; nothing was changed: the old key still opens slot %d; "
			"larder passwd NAME --remove %d, with the new one, ends that change",
			request->device, slot, old, old);
}

static int check_old(struct crypt_device *cd, const struct luks_request *request, int *slot)
{
	*slot = slot_of(cd, request->old, LUKS_ANY_SLOT);
	return cryptsetup_judge(*slot, request->device, "unlock");
}

int luks_add(const struct luks_request *request, int *slot)
{
	struct crypt_device *cd = NULL;
	int error = open_header(request->device, request->iteration_ms, &cd), result = cryptsetup_judge(error, request->device, "read the key slots of");

	if (!result && request->slot != LUKS_ANY_SLOT && crypt_keyslot_status(cd, request->slot) != CRYPT_SLOT_INACTIVE)
		result = complain(LARDER_BUSY, "%s: slot %d is in use; remove it, or give another one", request->device, request->slot);
	result = result ? result : check_old(cd, request, slot);
	result = result ? result : refuse_twice(cd, request, LUKS_ANY_SLOT);
	if (!result) {
		*slot = crypt_keyslot_add_by_passphrase(cd, request->slot, request->old->bytes, request->old->length, request->new->bytes,
							request->new->length);
		result = cryptsetup_judge(*slot, request->device, "add a key to");
		if (!result)
			note_kind(cd, request, *slot);
	}
	crypt_free(cd);
	return result;
}

static int check_change(struct crypt_device *cd, const struct luks_request *request, int slot)
{
	struct luks_slot described = { .number = slot };
	unsigned used = 0;

	if (request->slot != LUKS_ANY_SLOT && slot != request->slot)
		return complain(LARDER_FAILED, "%s: slot %d: the key that was given is that of slot %d; nothing was changed", request->device,
				request->slot, slot);
	read_tokens(cd, &described);
	if (*described.token)
		return complain(LARDER_UNSAFE, "%s: slot %d: is opened by a token (%s), which a new key would break; add a key, and remove this slot",
				request->device, slot, described.token);
	for (int i = 0; i < crypt_keyslot_max(CRYPT_LUKS2); i++)
		used += crypt_keyslot_status(cd, i) != CRYPT_SLOT_INACTIVE;
	if (used == (unsigned)crypt_keyslot_max(CRYPT_LUKS2))
		return complain(LARDER_UNSAFE,
				"%s: all %u slots are in use: the old key would have to go before the new one is there; remove one first",
				request->device, used);
	return LARDER_DONE;
}

/* The new key is in a slot of its own, durably, before the old one goes: libcryptsetup then gives it the number of the old one. */
int luks_change(const struct luks_request *request, int *slot)
{
	struct crypt_device *cd = NULL;
	int error = open_header(request->device, request->iteration_ms, &cd), result = cryptsetup_judge(error, request->device, "read the key slots of");

	if (!result && request->slot != LUKS_ANY_SLOT && !is_active(cd, request->slot))
		result = complain(LARDER_NOT_FOUND, "%s: slot %d: has no key of the volume", request->device, request->slot);
	if (!result && request->slot != LUKS_ANY_SLOT) {
		*slot = crypt_activate_by_passphrase(cd, NULL, request->slot, request->old->bytes, request->old->length,
						     CRYPT_ACTIVATE_SERIALIZE_MEMORY_HARD_PBKDF);
		if (*slot == -EPERM)
			*slot = slot_of(cd, request->old, request->slot);
		result = cryptsetup_judge(*slot, request->device, "unlock");
	} else if (!result) {
		result = check_old(cd, request, slot);
	}
	result = result ? result : check_change(cd, request, *slot);
	result = result ? result : refuse_twice(cd, request, *slot);
	if (!result) {
		*slot = crypt_keyslot_change_by_passphrase(cd, *slot, CRYPT_ANY_SLOT, request->old->bytes, request->old->length,
							   request->new->bytes, request->new->length);
		result = cryptsetup_judge(*slot, request->device, "change a key of");
		if (!result)
			note_kind(cd, request, *slot);
	}
	crypt_free(cd);
	return result;
}

/* Tokens that open this slot and no other go with it. */
static int drop_tokens(struct crypt_device *cd, int slot)
{
	const char *type;
	int error = 0;

	for (int token = 0; error >= 0 && (type = next_token(cd, slot, &token)); token++) {
		bool shared = false;

		for (int i = 0; i < crypt_keyslot_max(CRYPT_LUKS2); i++)
			shared |= i != slot && !crypt_token_is_assigned(cd, token, i);
		error = shared ? crypt_token_unassign_keyslot(cd, token, slot) : crypt_token_json_set(cd, token, NULL);
	}
	return error < 0 ? error : 0;
}

/* Refused: without one that stays, all is lost. */
static int check_remove(struct crypt_device *cd, const struct luks_request *request)
{
	int other;

	if (!request->old || crypt_keyslot_status(cd, request->slot) == CRYPT_SLOT_UNBOUND)
		return LARDER_DONE;
	other = slot_of(cd, request->old, request->slot);
	if (other != -EPERM)
		return cryptsetup_judge(other, request->device, "unlock");
	other = crypt_activate_by_passphrase(cd, NULL, request->slot, request->old->bytes, request->old->length,
					     CRYPT_ACTIVATE_SERIALIZE_MEMORY_HARD_PBKDF);
	if (other < 0)
		return cryptsetup_judge(other, request->device, "unlock");
	return complain(LARDER_UNSAFE, "%s: slot %d: this is its own key, and nothing shows that another one is known; give the key of a slot that stays",
			request->device, request->slot);
}

int luks_remove(const struct luks_request *request)
{
	struct crypt_device *cd = NULL;
	int error = open_header(request->device, 0, &cd), result = cryptsetup_judge(error, request->device, "read the key slots of");

	if (!result && crypt_keyslot_status(cd, request->slot) == CRYPT_SLOT_INACTIVE)
		result = complain(LARDER_NOT_FOUND, "%s: slot %d: is empty", request->device, request->slot);
	result = result ? result : check_remove(cd, request);
	if (!result) {
		error = drop_tokens(cd, request->slot);
		error = error ? error : crypt_keyslot_destroy(cd, request->slot);
		result = cryptsetup_judge(error, request->device, "remove a key of");
	}
	crypt_free(cd);
	return result;
}

int luks_fits(const char *device, const struct secret *secret, bool *fits)
{
	struct crypt_device *cd = NULL;
	int error = open_header(device, 0, &cd), slot = error ? error : slot_of(cd, secret, LUKS_ANY_SLOT);

	crypt_free(cd);
	*fits = slot >= 0;
	return slot == -EPERM ? LARDER_DONE : cryptsetup_judge(slot, device, "unlock");
}
