// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/luks.c: key slots in a header that lies in a regular file.  Which keys open it, what is refused, and that a power cut at any write or
 * flush of libcryptsetup's leaves a header that opens: of an add by the old key, of a change by the old or the new one, of a removal
 * by the one that stays.  And lib/token.c: the words for keys of a TPM2 or a server, and a token of clevis, with a clevis of our own.
 *
 *	test_luks [seed]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <libcryptsetup.h>

static bool hard; /* the guesses of new keys take memory */

/* No benchmark, and a guess that costs nothing: there are thousands here. */
static void set_cheap_guess(struct crypt_device *cd)
{
	const struct crypt_pbkdf_type cheap = { .type = CRYPT_KDF_PBKDF2, .hash = "sha256", .iterations = 1000, .flags = CRYPT_PBKDF_NO_BENCHMARK },
				      memory_hard = { .type = CRYPT_KDF_ARGON2ID,
						      .hash = "sha256",
						      .iterations = 4,
						      .max_memory_kb = 65536, /* more than 32 MiB: less takes nobody's */
						      .parallel_threads = 1,
						      .flags = CRYPT_PBKDF_NO_BENCHMARK };

	crypt_set_pbkdf_type(cd, hard ? &memory_hard : &cheap);
}
#define crypt_set_iteration_time(cd, ms) set_cheap_guess(cd)

#include "../../lib/message.c"
#include "../../lib/cryptsetup.c"
#include "../../lib/directory.c"
#include "../../lib/luks.c"
#include "../../lib/program.c"
#include "../../lib/signals.c"
#include "../../lib/token.c"

typedef unsigned long long u64;
static long pure_live;
#include "seeded.h"

#define SIZE (LUKS_HEADER + (1u << 20))

static char directory[64], header[80], backup[80], errors[80];
static const uint8_t uuid[16] = { 0x22, 0x94, 0x08, 0x84, 0xbe, 0x32, 0x50, 0x2e, 0xa8, 0x8c, 0xf9, 0xee, 0x26, 0x00, 0x23, 0x76 };

const char *uuid_text(const uint8_t bytes[16], char text[static UUID_TEXT])
{
	snprintf(text, UUID_TEXT, "%02x%02x%02x%02x-be32-502e-a88c-f9ee26002376", bytes[0], bytes[1], bytes[2], bytes[3]);
	return text;
}

/* ------------------------------------------------------------------ a disk that loses power */

/* What was written to the header and not yet flushed: as it was before. */
static struct undo {
	off_t at;
	size_t length;
	char *before;
} undo[4096];
static int undos, calls, cut_at; /* cut_at 0: never */

static bool is_header(int fd)
{
	struct stat a, b;

	return *header && !fstat(fd, &a) && !stat(header, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* Of what was not flushed each write is lost or not. */
static void power_cut(void)
{
	int fd = open(header, O_RDWR);

	while (undos--)
		if (rnd(2))
			syscall(SYS_pwrite64, fd, undo[undos].before, undo[undos].length, undo[undos].at);
	_exit(77);
}

static void note(int fd, size_t length, off_t at)
{
	struct undo *u;

	if (++calls == cut_at)
		power_cut();
	u = &undo[undos++];
	*u = (struct undo){ at, length, malloc(length) };
	memset(u->before, 0, length);
	if (syscall(SYS_pread64, fd, u->before, length, at) < 0) {
		int other = open(header, O_RDONLY); /* it is open for writing only */

		syscall(SYS_pread64, other, u->before, length, at);
		close(other);
	}
}

ssize_t write(int fd, const void *bytes, size_t length)
{
	if (cut_at && is_header(fd))
		note(fd, length, lseek(fd, 0, SEEK_CUR));
	return syscall(SYS_write, fd, bytes, length);
}

static void (*at_fsync)(void); /* once, as somebody else does something in the middle of ours */

int fsync(int fd)
{
	void (*now)(void) = at_fsync;

	at_fsync = NULL;
	if (now)
		now();
	if (cut_at && is_header(fd)) {
		if (++calls == cut_at)
			power_cut();
		while (undos)
			free(undo[--undos].before);
	}
	return is_header(fd) ? 0 : (int)syscall(SYS_fsync, fd);
}

/* ------------------------------------------------------------------ keys */

static struct secret key(const char *text)
{
	return (struct secret){ (char *)text, strlen(text) };
}

static bool opens(const char *device, const char *text)
{
	struct secret secret = key(text);
	bool fits = false;

	CHECK(!luks_fits(device, &secret, &fits), "the header cannot be read");
	return fits;
}

static struct luks_request request(int slot, struct secret *old, struct secret *new, enum luks_kind kind)
{
	return (struct luks_request){ .device = header, .slot = slot, .iteration_ms = 1, .old = old, .new = new, .kind = kind };
}

static int add(int slot, const char *old, const char *new, enum luks_kind kind, int *got)
{
	struct secret a = key(old), b = key(new);
	struct luks_request r = request(slot, &a, &b, kind);

	return luks_add(&r, got);
}

static int change(int slot, const char *old, const char *new, enum luks_kind kind, int *got)
{
	struct secret a = key(old), b = key(new);
	struct luks_request r = request(slot, &a, &b, kind);

	return luks_change(&r, got);
}

static int drop(int slot, const char *old)
{
	struct secret a = key(old ? old : "");
	struct luks_request r = request(slot, old ? &a : NULL, NULL, LUKS_UNKNOWN);

	return luks_remove(&r);
}

static void make(void)
{
	struct secret secret = key("first");
	struct luks_format format = { .iteration_ms = 1, .kind = LUKS_PASSPHRASE, .aead = "" };
	int fd = open(header, O_RDWR | O_CREAT | O_TRUNC, 0600);

	memcpy(format.uuid, uuid, sizeof(uuid));
	CHECK(fd >= 0 && !ftruncate(fd, SIZE), "no room for a header");
	close(fd);
	format.secret = &secret;
	CHECK(!luks_make(header, &format), "not made");
}

/* "0 passphrase, 1 keyfile, " */
static const char *listed(void)
{
	static const char *const names[] = { "key", "passphrase", "keyfile" };
	static char text[1024];
	struct luks_slot slots[LUKS_SLOTS];
	unsigned number;

	*text = 0;
	CHECK(!luks_slots(header, slots, &number), "not listed");
	for (unsigned i = 0; i < number; i++) {
		const struct luks_slot *s = &slots[i];

		CHECK(*s->pbkdf && s->iterations && !s->unbound, "slot %d", s->number);
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d %s, ", s->number, *s->token ? s->token : names[s->kind]);
	}
	operations++;
	return text;
}

#define LISTED(expected) CHECK(!strcmp(listed(), expected), "the slots are: %s", listed())

static void slots(void)
{
	int got;

	make();
	LISTED("0 passphrase, ");
	CHECK(!add(LUKS_ANY_SLOT, "first", "second", LUKS_KEYFILE, &got) && got == 1, "add");
	CHECK(!add(7, "second", "third", LUKS_PASSPHRASE, &got) && got == 7, "add to a slot");
	LISTED("0 passphrase, 1 keyfile, 7 passphrase, ");
	CHECK(opens(header, "first") && opens(header, "second") && opens(header, "third") && !opens(header, "fourth"), "keys");
	CHECK(!change(LUKS_ANY_SLOT, "second", "fourth", LUKS_PASSPHRASE, &got) && got == 1, "change: slot %d", got);
	CHECK(!opens(header, "second") && opens(header, "fourth"), "the old key still opens, or the new one does not");
	CHECK(!change(0, "first", "fifth", LUKS_KEYFILE, &got) && got == 0, "change of a slot");
	LISTED("0 keyfile, 1 passphrase, 7 passphrase, ");
	CHECK(!drop(1, "third"), "remove");
	LISTED("0 keyfile, 7 passphrase, ");
	CHECK(!opens(header, "fourth") && opens(header, "fifth") && opens(header, "third"), "keys after a removal");
}

/* ------------------------------------------------------------------ guesses that take memory */

static unsigned guesses, beside; /* those whose memory is taken; of them while others may do the same */

/* The lock by which libcryptsetup, and systemd-cryptsetup, let one at a time take the memory. */
static bool have_the_lock(void)
{
	DIR *all = opendir("/proc/self/fd");
	bool have = false;
	struct dirent *one;

	while (all && !have && (one = readdir(all))) {
		char path[300], text[4096];
		int fd = -1;
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", one->d_name);
		length = readlink(path, text, sizeof(text) - 1);
		if (length > 0) {
			text[length] = 0;
			if (!strstr(text, "/LN_memory-hard-access"))
				continue;
			snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", one->d_name);
			fd = open(path, O_RDONLY);
		}
		length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		text[length > 0 ? length : 0] = 0;
		have = strstr(text, "FLOCK") && strstr(text, "WRITE");
		if (fd >= 0)
			close(fd);
	}
	if (all)
		closedir(all);
	return have;
}

/* Its beginning, as of libargon2.so.1. */
struct argon2_context {
	uint8_t *out;
	uint32_t out_length;
	uint8_t *password;
	uint32_t password_length;
	uint8_t *salt;
	uint32_t salt_length;
};

/* In the place of libargon2's: it costs nothing, and notes whether others might run beside it. */
int argon2_ctx(struct argon2_context *c, int type)
{
	uint64_t state = 0xcbf29ce484222325ull ^ (unsigned)type;

	guesses++;
	beside += !have_the_lock();
	for (size_t i = 0; i < c->password_length; i++)
		state = (state ^ c->password[i]) * 0x100000001b3ull;
	for (size_t i = 0; i < c->salt_length; i++)
		state = (state ^ c->salt[i]) * 0x100000001b3ull;
	for (size_t i = 0; i < c->out_length; i++) {
		state = (state ^ i) * 0x100000001b3ull;
		c->out[i] = (uint8_t)(state >> 56);
	}
	return 0;
}

static void in_turn(unsigned number, const char *what)
{
	CHECK(guesses == number && !beside, "%s: %u guesses, not %u; %u may run beside others", what, guesses, number, beside);
	guesses = beside = 0;
}

static void memory_hard_in_turn(void)
{
	struct secret first = key("first"), second = key("second"), wrong_one = key("third");
	bool wrong;
	int got;

	hard = true;
	make();
	CHECK(guesses == 1, "libcryptsetup takes its argon2 from elsewhere than libargon2.so.1: %u", guesses);
	CHECK(!add(LUKS_ANY_SLOT, "first", "second", LUKS_PASSPHRASE, &got) && got == 1, "add");
	hard = false;
	CHECK(beside, "what makes a key has no lock: nothing would be seen here");
	guesses = beside = 0;
	/* without a name it is not activated */
	CHECK(!luks_unlock(header, NULL, &second, &wrong) && !wrong, "unlock");
	in_turn(2, "unlock");
	CHECK(luks_unlock(header, NULL, &wrong_one, &wrong) && wrong, "unlock with a wrong key");
	in_turn(2, "unlock with a wrong key");
	CHECK(opens(header, "second") && !opens(header, "third"), "fits");
	in_turn(4, "fits");
	CHECK(drop(1, "second"), "the own key of a slot removes it");
	in_turn(2, "remove, refused");
	CHECK(!drop(1, "first"), "remove");
	in_turn(1, "remove");
	CHECK(!luks_unlock(header, NULL, &first, NULL), "unlock by the other one");
	in_turn(1, "unlock by the other one");
}

/* Does the last line of those that were said have that in it? */
static bool says(const char *words)
{
	char said[4096];
	ssize_t length;
	int fd;

	fflush(stderr);
	fd = open(errors, O_RDONLY);
	length = pread(fd, said, sizeof(said) - 1, lseek(fd, 0, SEEK_END) < (off_t)sizeof(said) ? 0 : lseek(fd, 0, SEEK_END) - (off_t)sizeof(said) + 1);
	close(fd);
	said[length > 0 ? length : 0] = 0;
	for (char *line = strstr(said, words); line; line = strstr(line + 1, words))
		if (!strchr(line, '\n') || !strchr(line, '\n')[1])
			return true;
	return false;
}

/* The stack's own key file, one that was given, or the word that asks. */
static void old_key(void)
{
	const char *nothing = "/nowhere/key";
	struct secret secret;
	int fd[2];

	CHECK(secret_read_old(NULL, nothing, "data", &secret) == LARDER_NOT_FOUND && says("--keyfile - asks for a passphrase\n"), "its file is gone");
	CHECK(secret_read_old(nothing, header, "data", &secret) == LARDER_NOT_FOUND && says("key file: No such file or directory\n"), "one that was given");
	for (int i = 0; i < 2; i++) {
		CHECK(!pipe(fd) && write(fd[1], "typed\n", 6) == 6 && dup2(fd[0], STDIN_FILENO) == STDIN_FILENO, "a pipe");
		CHECK(!secret_read_old(i ? "-" : NULL, i ? nothing : "", "data", &secret) && secret.length == 5 && !memcmp(secret.bytes, "typed", 5), "asked for");
		secret_free(&secret);
		close(fd[0]);
		close(fd[1]);
	}
}

/* Nothing is changed by what is refused. */
static void refused(void)
{
	int got;

	make();
	CHECK(!add(1, "first", "second", LUKS_PASSPHRASE, &got), "add");
	luks_backup(header, backup);
	CHECK(add(LUKS_ANY_SLOT, "wrong", "third", LUKS_PASSPHRASE, &got) == LARDER_FAILED, "a wrong key adds");
	CHECK(add(1, "first", "third", LUKS_PASSPHRASE, &got) == LARDER_BUSY, "into a slot in use");
	CHECK(add(LUKS_ANY_SLOT, "first", "second", LUKS_PASSPHRASE, &got) == LARDER_BUSY, "the same key twice");
	CHECK(change(LUKS_ANY_SLOT, "wrong", "third", LUKS_PASSPHRASE, &got) == LARDER_FAILED, "a wrong key changes");
	CHECK(change(1, "first", "third", LUKS_PASSPHRASE, &got) == LARDER_FAILED, "the key of another slot changes");
	CHECK(change(5, "first", "third", LUKS_PASSPHRASE, &got) == LARDER_NOT_FOUND, "change of an empty slot");
	CHECK(change(0, "first", "second", LUKS_PASSPHRASE, &got) == LARDER_BUSY, "into a key that there is");
	CHECK(says("the old key still opens slot 0; larder passwd NAME --remove 0"), "a change that was cut off");
	CHECK(change(0, "first", "first", LUKS_PASSPHRASE, &got) == LARDER_BUSY && says("slot 0 has this key already; nothing was changed\n"), "into itself");
	CHECK(drop(5, "first") == LARDER_NOT_FOUND, "remove an empty slot");
	CHECK(drop(1, "second") == LARDER_UNSAFE, "its own key is no proof");
	CHECK(drop(1, "wrong") == LARDER_FAILED, "a wrong key removes");
	CHECK(luks_backup_is_current(header, backup), "something was changed");
	CHECK(!drop(1, "first") && drop(0, "first") == LARDER_UNSAFE && opens(header, "first"), "the last key");
	CHECK(!drop(0, NULL) && !opens(header, "first"), "the last key, on purpose");
	LISTED("");
}

/* Tokens of others stay, or go with the one slot that they open; a change would break them. */
static void tokens(void)
{
	struct crypt_device *cd;
	int got;

	make();
	CHECK(!add(1, "first", "second", LUKS_PASSPHRASE, &got) && !add(2, "first", "third", LUKS_PASSPHRASE, &got), "add");
	CHECK(!crypt_init(&cd, header) && !crypt_load(cd, CRYPT_LUKS2, NULL), "open");
	CHECK(crypt_token_json_set(cd, CRYPT_ANY_TOKEN, "{\"type\":\"other\",\"keyslots\":[\"1\"]}") >= 0, "token");
	CHECK(crypt_token_json_set(cd, 20, "{\"type\":\"both\",\"keyslots\":[\"0\",\"2\"]}") >= 0, "token");
	crypt_free(cd);
	LISTED("0 both, 1 other, 2 both, ");
	CHECK(change(1, "second", "fourth", LUKS_PASSPHRASE, &got) == LARDER_UNSAFE && opens(header, "second"), "change under a token");
	CHECK(!drop(1, "first") && !drop(2, "first"), "remove");
	LISTED("0 both, ");
	CHECK(!crypt_init(&cd, header) && !crypt_load(cd, CRYPT_LUKS2, NULL), "open");
	for (int i = 0; i < crypt_token_max(CRYPT_LUKS2); i++) {
		const char *type;
		bool there = crypt_token_status(cd, i, &type) != CRYPT_TOKEN_INACTIVE;

		CHECK(there == (i == 20 || (there && !strcmp(type, "larder") && !crypt_token_is_assigned(cd, i, 0))), "token %d", i);
	}
	crypt_free(cd);
}

/* What is taken comes out as it went in; what is not, with a reason. */
static void token_words(void)
{
	static const char *const good[] = { "tpm2", "tpm2,pcrs=7", "tpm2,pcrs=0+7+23", "tang=http://h", "tang=https://[fe80::1]:7500/x,thp=aZ0-_" };
	static const char *const bad[] = { "", "tpm", "tpm2,", "tpm2,pcrs=", "tpm2,pcrs=24", "tpm2,pcrs=7+", "tpm2,pcrs=7,thp=x", "tpm2=", "tang", "tang=",
					   "tang=h", "tang=ftp://h", "tang=http://", "tang=http://:1", "tang=http:///x", "tang=http://-o", "tang=http://h x",
					   "tang=http://h\"", "tang=http://h,thp=", "tang=http://h,thp=a/b", "tang=http://h,pcrs=7", "tang=http://h?a", "tang=http://h&a", "tpm2,pcrs=7,pcrs=1",
					   "tang=http://h,thp=ab,thp=c" };
	char text[TOKEN_TEXT_MAX], longest[2 * TOKEN_TEXT_MAX];
	struct token token;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		const char *why = token_parse(good[i], &token);

		token_text(&token, text);
		CHECK(!why && !strcmp(text, good[i]), "%s: %s, %s", good[i], why ? why : "", text);
		operations++;
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(token_parse(bad[i], &token), "%s: is taken", bad[i]);
	memset(longest, 'a', sizeof(longest));
	longest[sizeof(longest) - 1] = 0;
	memcpy(longest, "tang=http://", 12);
	CHECK(token_parse(longest, &token), "too long");
	longest[TOKEN_TEXT_MAX - 1] = 0;
	CHECK(!token_parse(longest, &token), "as long as it may be");
	strcpy(token.thumbprint, "x");
	token_text(&token, text);
	CHECK(!*text, "too long with its thumbprint");
}

/* {"alg":"ECDH-ES","clevis":{"pin":"tang","tang":{"url":"http://h"}}} */
#define PROTECTED "eyJhbGciOiJFQ0RILUVTIiwiY2xldmlzIjp7InBpbiI6InRhbmciLCJ0YW5nIjp7InVybCI6Imh0dHA6Ly9oIn19fQ"

static void put_clevis(const char *jwe)
{
	char *json = must_print("{\"type\":\"clevis\",\"keyslots\":[\"1\"],\"jwe\":%s}", jwe);
	struct crypt_device *cd;

	CHECK(!crypt_init(&cd, header) && !crypt_load(cd, CRYPT_LUKS2, NULL), "open");
	CHECK(crypt_token_json_set(cd, 9, json) == 9, "token");
	crypt_free(cd);
	free(json);
}

static void make_program(const char *name, const char *script)
{
	char *path = must_print("%s/%s", directory, name);
	FILE *file = must_allocate(fopen(path, "w"));

	fputs(script, file);
	fclose(file);
	chmod(path, 0755);
	free(path);
}

/* A program clevis that gives the key for one text, and for no other. */
static void make_clevis(const char *script)
{
	make_program("clevis", script);
}

#define OUTCOME(expected) CHECK(!luks_unlock_by_token(header, NULL, &by, &outcome) && outcome == (expected), "outcome %d", outcome)

static bool is_not_wanted(void *data)
{
	(void)data;
	return false;
}

/* Of a key of clevis: listed by what keeps it; opens; goes with its slot.  What nobody can understand harms nothing. */
static void clevis(void)
{
	static const char *const broken[] = { "{}", "[]", "7", "null", "{\"protected\":7}", "{\"protected\":\"e30\"}", "{\"protected\":\"!!\"}", "{\"protected\":\"W10\"}",
					      "{\"protected\":\"eyJjbGV2aXMiOjd9\"}", "{\"protected\":\"eyJjbGV2aXMiOnsicGluIjo3fX0\"}" };
	char *path = must_print("%s:%s", directory, getenv("PATH")), *program = must_print("%s/clevis", directory);
	unsigned outcome;
	struct luks_slot slot[LUKS_SLOTS];
	struct luks_by by = { 0 };
	unsigned number;
	int got;

	make();
	setenv("PATH", path, 1);
	make_clevis("#!/bin/sh\nread -r text\n[ \"$text\" = " PROTECTED "..aXY.Y2lwaGVy.dGFn ] && [ $* = decrypt ] && printf second\n");
	CHECK(!add(1, "first", "second", LUKS_PASSPHRASE, &got), "add");
	OUTCOME(LUKS_NO_TOKEN);
	put_clevis("{\"protected\":\"" PROTECTED "\",\"encrypted_key\":\"\",\"iv\":\"aXY\",\"ciphertext\":\"Y2lwaGVy\",\"tag\":\"dGFn\"}");
	CHECK(!luks_slots(header, slot, &number) && number == 2 && !strcmp(slot[1].token, "clevis") && !strcmp(slot[1].pin, "tang"), "pin %s", slot[1].pin);
	OUTCOME(LUKS_OPENED);
	by.only = LUKS_SERVER_LATER;
	OUTCOME(LUKS_OPENED);
	by.wanted = is_not_wanted;
	OUTCOME(LUKS_SERVER_LATER);
	by.wanted = NULL;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		put_clevis(broken[i]);
		CHECK(!luks_slots(header, slot, &number) && number == 2 && !*slot[1].pin, "%s: pin %s", broken[i], slot[1].pin);
		OUTCOME(LUKS_SERVER_LATER);
		operations++;
	}
	put_clevis("{\"protected\":\"" PROTECTED "\",\"iv\":\"aXY\",\"ciphertext\":\"Y2lwaGVy\",\"tag\":\"dGFn\"}");
	OUTCOME(LUKS_OPENED);
	/* another key, none, one and an error */
	make_clevis("#!/bin/sh\nprintf third\n");
	OUTCOME(LUKS_SERVER_LATER);
	make_clevis("#!/bin/sh\nexit 0\n");
	OUTCOME(LUKS_SERVER_LATER);
	make_clevis("#!/bin/sh\nprintf second\nexit 1\n");
	OUTCOME(LUKS_SERVER_LATER);
	/* one that never answers is waited for no longer than that */
	setenv("LARDER_TANG_WAIT", "1", 1);
	make_clevis("#!/bin/sh\nsleep 100000\nprintf second\n");
	OUTCOME(LUKS_SERVER_LATER);
	CHECK(!drop(1, "first"), "remove");
	OUTCOME(LUKS_NO_TOKEN);
	LISTED("0 passphrase, ");
	unlink(program);
	free(program);
	free(path);
}

static int tpm2_says; /* -errno; 0: the second key */

static int open_by_tpm2(struct crypt_device *cd, int token, char **buffer, size_t *length, void *data)
{
	(void)cd;
	(void)token;
	(void)data;
	if (!tpm2_says) {
		*buffer = strdup("second");
		*length = strlen("second");
	}
	return tpm2_says;
}

/* A TPM2 that is not there yet is to be tried again; one that gives no key is not, as that could lock it up. */
static void late_tpm2(void)
{
	const crypt_token_handler handler = { .name = "systemd-tpm2", .open = open_by_tpm2 };
	struct luks_by by = { 0 };
	struct crypt_device *cd;
	unsigned outcome;
	int got;

	make();
	CHECK(!crypt_token_register(&handler), "a plug-in of our own");
	CHECK(!add(1, "first", "second", LUKS_PASSPHRASE, &got), "add");
	CHECK(!crypt_init(&cd, header) && !crypt_load(cd, CRYPT_LUKS2, NULL), "open");
	CHECK(crypt_token_json_set(cd, CRYPT_ANY_TOKEN, "{\"type\":\"systemd-tpm2\",\"keyslots\":[\"1\"]}") >= 0, "token");
	crypt_free(cd);
	OUTCOME(LUKS_OPENED);
	tpm2_says = -EAGAIN;
	OUTCOME(LUKS_TPM2_LATER);
	put_clevis("{}");
	OUTCOME(LUKS_LATER);
	by.only = LUKS_SERVER_LATER;
	OUTCOME(LUKS_SERVER_LATER);
	by.only = LUKS_TPM2_LATER;
	OUTCOME(LUKS_TPM2_LATER);
	tpm2_says = -EPERM;
	OUTCOME(LUKS_NO_TOKEN);
	tpm2_says = 0;
	OUTCOME(LUKS_OPENED);
}

/* A server that never answers while clevis binds is not waited for any longer than that: its programs are another one's to end. */
static void bound_in_time(void)
{
	char *was = must_print("%s", getenv("PATH")), *path = must_print("%s:%s", directory, was);
	const struct token token = { .kind = TOKEN_TANG, .url = "http://h", .thumbprint = "x" };
	struct secret old = key("first");
	int slot;

	make();
	setenv("PATH", path, 1);
	setenv("LARDER_TANG_WAIT", "7", 1);
	make_program("timeout", "#!/bin/sh\n[ \"$1 $2 $3\" = '--kill-after=1 67 clevis-luks-bind' ] && exit 124\nexit 0\n");
	make_program("clevis-luks-bind", "#!/bin/sh\nexit 0\n"); /* not ended by anybody */
	CHECK(token_enrol(&token, header, &old, &slot) == LARDER_FAILED, "bound");
	LISTED("0 passphrase, ");
	for (int i = 0; i < 2; i++) {
		char *program = must_print("%s/%s", directory, i ? "timeout" : "clevis-luks-bind");

		unlink(program);
		free(program);
	}
	setenv("PATH", was, 1);
	free(path);
	free(was);
}

/* The file that was there has no key any more, unless it has another name. */
static void backups(void)
{
	char other[96], kept[96], bytes[4096];
	int got, fd;

	make();
	snprintf(other, sizeof(other), "%s.link", backup);
	snprintf(kept, sizeof(kept), "%s.kept", backup);
	unlink(backup);
	CHECK(!luks_backup(header, backup) && luks_backup_is_current(header, backup), "backup");
	fd = open(backup, O_RDONLY);
	CHECK(!change(LUKS_ANY_SLOT, "first", "second", LUKS_PASSPHRASE, &got), "change");
	CHECK(!luks_backup_is_current(header, backup) && opens(backup, "first"), "an old backup is told");
	CHECK(!luks_backup(header, backup) && luks_backup_is_current(header, backup), "again");
	CHECK(opens(backup, "second") && !opens(backup, "first"), "the new backup");
	for (off_t at = 0; pread(fd, bytes, sizeof(bytes), at) > 0; at += sizeof(bytes))
		for (size_t i = 0; i < sizeof(bytes); i++)
			CHECK(!bytes[i], "byte %zu of the old one", (size_t)at + i);
	close(fd);
	CHECK(!link(backup, kept) && !luks_backup(header, backup) && luks_backup_is_current(header, kept), "one with two names");
	CHECK(!symlink(header, other) && luks_backup(header, "/nowhere/backup") == LARDER_FAILED, "into no directory");
	CHECK(!luks_backup(header, other) && opens(header, "second"), "over a link: that goes, not what it is to");
	unlink(other);
	unlink(kept);
}

static char theirs[80], away[80], roots[80], victim[96]; /* a directory of somebody else's, which he moves; one of root's */

static void swap(void)
{
	CHECK(!rename(theirs, away) && !symlink(roots, theirs), "to put a link there");
}

static void swap_back(void)
{
	CHECK(!unlink(theirs) && !rename(away, theirs), "and to take it away");
}

static bool victim_is_whole(void)
{
	char text[32] = "";
	int fd = open(victim, O_RDONLY);
	struct stat status;
	bool good = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && !strcmp(text, "of root alone") && !fstat(fd, &status) &&
		    (status.st_mode & 07777) == 0644 && status.st_nlink == 1;

	close(fd);
	return good;
}

/* By a directory that became a link nothing is replaced but a backup of the same header: neither behind what the caller has seen nor meanwhile. */
static void elsewhere(void)
{
	char path[96], moved[96], next[128];
	int fd;

	make();
	snprintf(theirs, sizeof(theirs), "%s/theirs", directory);
	snprintf(away, sizeof(away), "%s/away", directory);
	snprintf(roots, sizeof(roots), "%s/roots", directory);
	snprintf(victim, sizeof(victim), "%s/name", roots);
	snprintf(path, sizeof(path), "%s/name", theirs);
	snprintf(moved, sizeof(moved), "%s/name", away);
	snprintf(next, sizeof(next), "%s/name.larder-new", roots);
	CHECK(!mkdir(theirs, 0700) && !mkdir(roots, 0700) && (fd = creat(victim, 0644)) >= 0 && write(fd, "of root alone", 13) == 13 &&
		      !fchmod(fd, 0644) && !close(fd), "directories");
	CHECK(!luks_backup(header, path), "where nobody moves anything");
	swap();
	CHECK(luks_backup(header, path) == LARDER_FAILED && victim_is_whole() && access(next, F_OK), "replaced by a link that came before");
	CHECK(says("is there meanwhile, and is none of it; give another name\n"), "not said");
	swap_back();
	at_fsync = swap;
	CHECK(!luks_backup(header, path) && !at_fsync && victim_is_whole() && access(next, F_OK) && luks_backup_is_current(header, moved),
	      "a link that comes meanwhile is not looked up");
	swap_back();
	unlink(path);
	unlink(victim);
	rmdir(theirs);
	rmdir(roots);
}

static bool is_zero(int fd)
{
	char bytes[4096];
	ssize_t got;

	for (off_t at = 0; (got = pread(fd, bytes, sizeof(bytes), at)) > 0; at += got)
		for (ssize_t i = 0; i < got; i++)
			if (bytes[i])
				return false;
	return !got;
}

/* Neither it nor what a kill has left beside it can be opened any more, by whoever finds what was on the disk. */
static void forgotten(void)
{
	char next[96], kept[96];
	struct stat status;
	int fd[2];

	make();
	snprintf(next, sizeof(next), "%s.larder-new", backup);
	snprintf(kept, sizeof(kept), "%s.kept", backup);
	CHECK(!luks_backup(header, backup) && !luks_backup(header, next), "backups");
	fd[0] = open(backup, O_RDONLY);
	fd[1] = open(next, O_RDONLY);
	CHECK(!is_zero(fd[0]) && !is_zero(fd[1]), "nothing is in them");
	CHECK(!luks_forget_backup(backup) && access(backup, F_OK) && access(next, F_OK), "they are there");
	CHECK(is_zero(fd[0]) && is_zero(fd[1]) && !fstat(fd[1], &status) && status.st_size >= LUKS_HEADER, "not overwritten");
	close(fd[0]);
	close(fd[1]);
	CHECK(!luks_forget_backup(backup) && !luks_forget_backup("/nowhere/backup") && !luks_forget_backup("/dev/null/backup"), "where there is none");
	CHECK(!luks_backup(header, backup) && !link(backup, kept) && !luks_forget_backup(backup) && opens(kept, "first"), "one with two names");
	CHECK(!symlink(kept, backup) && !luks_forget_backup(backup) && access(backup, F_OK) && opens(kept, "first"), "a link");
	CHECK(!mkdir(next, 0700) && luks_forget_backup(backup) == LARDER_FAILED && !rmdir(next), "what cannot go is said");
	unlink(kept);
}

/* Whose directory it is has put a pipe beside it, which he reads or does not: nobody waits for him, and nothing is written to it. */
static void pipe_beside_it(void)
{
	char next[96], byte;
	int fd;

	make();
	snprintf(next, sizeof(next), "%s.larder-new", backup);
	unlink(backup);
	alarm(60);
	for (int i = 0; i < 4; i++) {
		bool goes = i / 2, is_read = i % 2;

		CHECK(!mkfifo(next, 0600), "a pipe");
		fd = is_read ? open(next, O_RDONLY | O_NONBLOCK) : -1;
		CHECK(goes ? !luks_forget_backup(backup) && access(backup, F_OK) : !luks_backup(header, backup) && luks_backup_is_current(header, backup),
		      "%d: the backup", i);
		CHECK(access(next, F_OK) && (!is_read || !read(fd, &byte, 1)), "%d: the pipe", i);
		if (is_read)
			close(fd);
		operations++;
	}
	alarm(0);
}

/* ------------------------------------------------------------------ power cuts */

enum what { ADD, CHANGE, REMOVE };

static int act(enum what what)
{
	int got;

	return what == ADD ? add(LUKS_ANY_SLOT, "first", "new", LUKS_KEYFILE, &got) :
	       what == CHANGE ? change(1, "second", "new", LUKS_KEYFILE, &got) : drop(1, "first");
}

/* The header before; of each cut. */
static void put_back(void)
{
	static char bytes[1 << 20];
	int from = open(backup, O_RDONLY), to = open(header, O_WRONLY);
	ssize_t got;

	while ((got = read(from, bytes, sizeof(bytes))) > 0)
		CHECK(write(to, bytes, (size_t)got) == got, "copy");
	close(from);
	close(to);
}

/* True: the cut came. */
static bool cut(enum what what, int at)
{
	pid_t child;
	int status;

	put_back();
	child = fork();
	if (!child) {
		cut_at = at;
		_exit(act(what));
	}
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 77 || !WEXITSTATUS(status)), "status %x", status);
	operations++;
	return WEXITSTATUS(status) == 77;
}

static void cuts_of(enum what what)
{
	bool old_seen = false, new_seen = false, goes_on;
	int at = 1, got;

	make();
	CHECK(!add(1, "first", "second", LUKS_PASSPHRASE, &got) && !luks_backup(header, backup), "add");
	do {
		bool old, new;

		goes_on = cut(what, at);
		old = opens(header, "second");
		new = opens(header, "new");
		CHECK(opens(header, "first"), "cut %d: the key that nobody touched is lost", at);
		CHECK(what == REMOVE ? !new : what == ADD ? old : old || new, "cut %d: no key", at);
		CHECK(goes_on || (what == ADD ? new : !old), "it says it is done");
		old_seen |= old;
		new_seen |= new;
		/* what was cut off can be done */
		if (at % 4)
			;
		else if (what == REMOVE && strstr(listed(), "1 "))
			CHECK(!act(REMOVE) && !opens(header, "second"), "cut %d: cannot be removed", at);
		else if (what != REMOVE && !new)
			CHECK(!act(what) && opens(header, "new"), "cut %d: cannot be done again", at);
		at++;
	} while (goes_on);
	CHECK(at > 10 && old_seen && (what == REMOVE || new_seen), "%d cuts: that was no test", at);
}

static void cuts_of_add(void)
{
	cuts_of(ADD);
}

static void cuts_of_change(void)
{
	cuts_of(CHANGE);
}

static void cuts_of_remove(void)
{
	cuts_of(REMOVE);
}

/* What reading a key, `way` it comes, ends with; of a pipe whose other end stays open.  Asked for by a stranger: it is not waited for. */
static int read_from(int way, const char *text, bool ended, struct secret *secret)
{
	char *fifo = must_print("%s/fifo", directory);
	int ends[2], was = dup(STDIN_FILENO), result;

	CHECK(!pipe(ends) && write(ends[1], text, strlen(text)) == (ssize_t)strlen(text), "pipe");
	if (ended)
		close(ends[1]);
	dup2(ends[0], STDIN_FILENO);
	if (way == 2) { /* one that nobody ever writes to */
		CHECK(!mkfifo(fifo, 0600), "fifo");
		result = secret_read(fifo, "data", false, secret);
		unlink(fifo);
	} else {
		result = secret_read(way ? "/dev/stdin" : NULL, "data", false, secret);
	}
	dup2(was, STDIN_FILENO);
	close(was);
	close(ends[0]);
	if (!ended)
		close(ends[1]);
	free(fifo);
	operations++;
	return result;
}

static void strangers(void)
{
	struct secret secret;

	setenv(PROGRAM_SECRET_WAIT, "1", 1);
	alarm(20);
	CHECK(read_from(0, "half a line", false, &secret) && read_from(0, "", false, &secret), "a line that does not end");
	CHECK(read_from(1, "a key", false, &secret), "a pipe that does not end");
	CHECK(read_from(2, "", true, &secret), "a pipe of which there is no other end");
	CHECK(!read_from(0, "a line\nand more", false, &secret) && secret.length == 6 && !memcmp(secret.bytes, "a line", 6), "line");
	secret_free(&secret);
	for (int way = 0; way < 2; way++) {
		CHECK(!read_from(way, "a key", true, &secret) && secret.length == 5 && !memcmp(secret.bytes, "a key", 5), "pipe that ends, way %d", way);
		secret_free(&secret);
	}
	alarm(0);
	unsetenv(PROGRAM_SECRET_WAIT);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	strcpy(directory, access("/dev/shm", W_OK) ? "/tmp/test_luks.XXXXXX" : "/dev/shm/test_luks.XXXXXX");
	if (!mkdtemp(directory))
		return 1;
	snprintf(header, sizeof(header), "%s/header", directory);
	snprintf(backup, sizeof(backup), "%s/backup", directory);
	snprintf(errors, sizeof(errors), "%s/errors", directory);
	if (!freopen(errors, "w", stderr)) /* what is refused is said there */
		return 1;
	run_test("slots", slots);
	run_test("memory_hard_in_turn", memory_hard_in_turn);
	run_test("refused", refused);
	run_test("old_key", old_key);
	run_test("tokens", tokens);
	run_test("backups", backups);
	run_test("elsewhere", elsewhere);
	run_test("forgotten", forgotten);
	run_test("pipe_beside_it", pipe_beside_it);
	run_test("cuts_of_add", cuts_of_add);
	run_test("cuts_of_change", cuts_of_change);
	run_test("cuts_of_remove", cuts_of_remove);
	run_test("token_words", token_words);
	run_test("clevis", clevis);
	run_test("late_tpm2", late_tpm2);
	run_test("strangers", strangers);
	run_test("bound_in_time", bound_in_time);
	unlink(header);
	unlink(backup);
	unlink(errors);
	rmdir(directory);
	return 0;
}
