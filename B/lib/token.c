// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * systemd-cryptenroll and clevis do the work: what they write into a header is theirs to change.
 *
 * A key that opens the header goes to them in a memory file without a name, which they have open: not in words, not in the environment, not on a disk.
 * What clevis finds out comes through its pipe into locked memory.  Nothing of that is in the words of the programs that it runs itself.
 */
#include <dirent.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "program.h"
#include "token.h"

#define TPM_CLASS "/sys/class/tpmrm"
#define SECONDS	  "30" /* for an answer of a server; else LARDER_TANG_WAIT */
#define BIND_ROOM 60 /* seconds more: what clevis derives and writes when it binds */
#define PIPE_ROOM 65536u
#define SCRATCH	  "TMPDIR=/run" /* a copy of the header that clevis keeps meanwhile is not to be on a disk */
#define TEXT	  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* Whole seconds; others are not believed. */
static const char *wait_seconds(void)
{
	const char *given = getenv("LARDER_TANG_WAIT");

	return given && *given >= '1' && *given <= '9' && strlen(given) < 6 && !given[strspn(given, "0123456789")] ? given : SECONDS;
}

/* ------------------------------------------------------------------ the words */

/* The next word between commas, which may be empty; false: there was none.  Begin with the text, of less than TOKEN_TEXT_MAX bytes. */
static bool take_word(const char **rest, char word[static TOKEN_TEXT_MAX])
{
	size_t length;

	if (!*rest)
		return false;
	length = strcspn(*rest, ",");
	memcpy(word, *rest, length);
	word[length] = 0;
	*rest = (*rest)[length] ? *rest + length + 1 : NULL;
	return true;
}

static bool url_valid(const char *url)
{
	const char *host = !strncmp(url, "http://", 7) ? url + 7 : !strncmp(url, "https://", 8) ? url + 8 : "";

	/* it goes into JSON, and is given to curl as it is */
	return *host && *host != '/' && *host != ':' && *host != '-' && !host[strspn(host, TEXT "-._~:/[]%")];
}

/* "7", "0+7+11" */
static bool pcrs_valid(const char *text)
{
	char *end;

	do {
		if (*text < '0' || *text > '9' || strtoul(text, &end, 10) > 23)
			return false;
		text = end + 1;
	} while (*end == '+');
	return !*end;
}

const char *token_parse(const char *text, struct token *token)
{
	const char *rest = text;
	char word[TOKEN_TEXT_MAX];

	*token = (struct token){ 0 };
	if (strlen(text) >= TOKEN_TEXT_MAX || text[strcspn(text, "\"\\\n")])
		return "is too long, or not printable";
	take_word(&rest, word);
	if (!strncmp(word, "tang=", 5)) {
		token->kind = TOKEN_TANG;
		if (!url_valid(word + 5))
			return "has no URL of a tang server, http://HOST[:PORT]";
		strcpy(token->url, word + 5);
	} else if (strcmp(word, "tpm2")) {
		return "is not " TOKEN_GRAMMAR;
	}
	while (take_word(&rest, word)) {
		if (token->kind == TOKEN_TPM2 && !*token->pcrs && !strncmp(word, "pcrs=", 5) && strlen(word + 5) < sizeof(token->pcrs)) {
			if (!pcrs_valid(word + 5))
				return "has no PCRs: 0 to 23, with + between them";
			strcpy(token->pcrs, word + 5);
		} else if (token->kind == TOKEN_TANG && !*token->thumbprint && !strncmp(word, "thp=", 4) && strlen(word + 4) < sizeof(token->thumbprint)) {
			if (!word[4] || word[4 + strspn(word + 4, TEXT "-_")])
				return "has no thumbprint: letters, digits, - and _, as `tang-show-keys` prints it";
			strcpy(token->thumbprint, word + 4);
		} else {
			return "is not " TOKEN_GRAMMAR;
		}
	}
	return NULL;
}

void token_text(const struct token *token, char text[static TOKEN_TEXT_MAX])
{
	bool tang = token->kind == TOKEN_TANG;
	const char *more = tang ? token->thumbprint : token->pcrs;
	int length = snprintf(text, TOKEN_TEXT_MAX, "%s%s%s%s", tang ? "tang=" : "tpm2", token->url, !*more ? "" : tang ? ",thp=" : ",pcrs=", more);

	if (length >= TOKEN_TEXT_MAX)
		*text = 0;
}

char *token_describe(const struct token *token)
{
	if (token->kind == TOKEN_TPM2)
		return must_print("the TPM2 of this machine (PCR %s)", *token->pcrs ? token->pcrs : "7");
	return must_print("the tang server %s (thumbprint of its key: %s)", token->url, *token->thumbprint ? token->thumbprint : "not known");
}

/* ------------------------------------------------------------------ is all here? */

static int need(const char *program, const char *what, const char *package)
{
	return program_there(program) ? LARDER_DONE :
					complain(LARDER_FAILED, "%s: is missing, and a key by %s needs it; apt install %s", program, what, package);
}

static unsigned count_tpms(void)
{
	DIR *directory = opendir(TPM_CLASS);
	struct dirent *entry;
	unsigned number = 0;

	while (directory && (entry = readdir(directory)))
		number += *entry->d_name != '.';
	if (directory)
		closedir(directory);
	return number;
}

static int check_tpm2(void)
{
	/* it loads the libraries of the TPM as enrolment does, and fails without them */
	const char *words[] = { "systemd-cryptenroll", "--tpm2-device=list", NULL };
	unsigned number;
	char *said;
	int result = need("systemd-cryptenroll", "TPM2", "systemd");

	if (result)
		return result;
	if (program_run(words, &said))
		result = complain(LARDER_FAILED, "tpm2: systemd-cryptenroll cannot use a TPM2: %s; apt install libtss2-esys-3.0.2-0 libtss2-mu0 libtss2-rc0",
				  said);
	free(said);
	if (result)
		return result;
	number = count_tpms();
	if (!number)
		return complain(LARDER_NOT_FOUND, "tpm2: this machine has no TPM2 (nothing in " TPM_CLASS "); is it switched on in the firmware?");
	return number == 1 ? LARDER_DONE :
			     complain(LARDER_FAILED, "tpm2: this machine has %u TPM2s, and no token says which of them has the key; use another kind of key", number);
}

/* Asks for its advertisement; prints the thumbprint of a key that it is signed by.  Are those signatures good?  clevis looks at that when it binds. */
static const char fetch[] = "adv=$(curl -sSfg --max-time \"$2\" -- \"$0/adv$1\") || exit; "
			    "exec 2>/dev/null; keys=$(printf %s \"$adv\" | jose fmt -j- -Og payload -SyOg keys -AUo-) && "
			    "keys=$(printf %s \"$keys\" | jose jwk use -i- -r -u verify -o-) && printf %s \"$keys\" | jose jwk thp -i- -a S256";

static int check_tang(struct token *token, bool trusted)
{
	char *known = must_print("%s%s", *token->thumbprint ? "/" : "", token->thumbprint), *said, *made;
	const char *words[] = { "sh", "-c", fetch, token->url, known, wait_seconds(), NULL };
	int result = need("clevis-encrypt-tang", "tang", "clevis"), code;

	result = result ? result : need("clevis-luks-bind", "tang", "clevis-luks");
	result = result ? result : need("curl", "tang", "curl");
	result = result ? result : need("jose", "tang", "jose");
	if (!result) {
		/* clevis makes its keys by it, and finds out too late that it lacks its dictionary; this one is nobody's */
		if (program_run((const char *const[]){ "pwmake", "256", NULL }, &made))
			result = complain(LARDER_FAILED, "tang: pwmake cannot make a key for clevis: %s; apt install libpwquality-tools cracklib-runtime", made);
		free(made);
	}
	if (!result) {
		code = program_run(words, &said);
		if (code && *token->thumbprint)
			result = complain(LARDER_NOT_FOUND, "tang: %s: cannot be asked for what its key %s has signed: %s", token->url, token->thumbprint,
					  *said ? said : "no advertisement");
		else if (code || !*said || strlen(said) >= sizeof(token->thumbprint) || said[strspn(said, TEXT "-_")])
			result = complain(LARDER_NOT_FOUND, "tang: %s: cannot be asked for its keys: %s", token->url,
					  code && *said ? said : "what it answers is no advertisement");
		else if (!*token->thumbprint && !trusted && !isatty(STDIN_FILENO))
			result = complain(LARDER_UNSAFE, "tang: %s: signs with a key whose thumbprint is %s; is that the one it should have?  tang=%s,thp=%s, or --yes",
					  token->url, said, token->url, said);
		else if (!*token->thumbprint)
			strcpy(token->thumbprint, said);
		free(said);
	}
	free(known);
	return result;
}

int token_check(struct token *token, bool trusted)
{
	return token->kind == TOKEN_TPM2 ? check_tpm2() : check_tang(token, trusted);
}

/* ------------------------------------------------------------------ enrolment */

/* A file without a name, in memory that is not swapped while it is mapped; children have it. */
static int lend_key(const struct secret *key, char **memory)
{
	int file = memfd_create("key", 0);

	*memory = MAP_FAILED;
	if (file >= 0 && !fchmod(file, 0600) && !ftruncate(file, (off_t)key->length))
		*memory = mmap(NULL, key->length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (*memory == MAP_FAILED || mlock(*memory, key->length)) {
		if (*memory != MAP_FAILED)
			munmap(*memory, key->length);
		if (file >= 0)
			close(file);
		return -1;
	}
	memcpy(*memory, key->bytes, key->length);
	return file;
}

/* What it says goes to stderr: of an error the last line tells least, and that PCRs bind nothing is a warning. */
static int run_words(const char *const *words, const char *device, const char *name)
{
	char rest[256];
	int out;
	pid_t child = program_begin(words, &out);

	while (child >= 0 && read(out, rest, sizeof(rest)) > 0)
		;
	if (child >= 0)
		close(out);
	return child < 0 || program_end(child, false) ? complain(LARDER_FAILED, "%s: %s cannot add the key", device, name) : LARDER_DONE;
}

static int run_tool(const struct token *token, const char *device, const struct secret *old)
{
	char *memory, *path, *unlock, *pcrs, *conf, *most;
	int file = lend_key(old, &memory), result;

	if (file < 0)
		return complain(LARDER_FAILED, "%s: cannot hand on the key: no memory that can be locked", device);
	path = must_print("/proc/self/fd/%d", file);
	unlock = must_print("--unlock-key-file=%s", path);
	pcrs = must_print("--tpm2-pcrs=%s", *token->pcrs ? token->pcrs : "7");
	most = must_print("%lu", strtoul(wait_seconds(), NULL, 10) + BIND_ROOM);
	conf = must_print("{\"url\":\"%s\",\"thp\":\"%s\"}", token->url, token->thumbprint);
	{
		const char *tpm2[] = { "systemd-cryptenroll", unlock, "--tpm2-device=auto", pcrs, device, NULL };
		const char *tang[] = { "env", SCRATCH, "timeout", "--kill-after=1", most, "clevis-luks-bind", "-d", device, "-k", path, "tang", conf, NULL };

		result = token->kind == TOKEN_TPM2 ? run_words(tpm2, device, "systemd-cryptenroll") : run_words(tang, device, "clevis luks bind");
	}
	free(conf);
	free(most);
	free(pcrs);
	free(unlock);
	free(path);
	explicit_bzero(memory, old->length);
	munmap(memory, old->length);
	close(file);
	return result;
}

static bool has_slot(const struct luks_slot *slots, unsigned number, int slot)
{
	for (unsigned i = 0; i < number; i++)
		if (slots[i].number == slot)
			return true;
	return false;
}

int token_enrol(const struct token *token, const char *device, const struct secret *old, int *slot)
{
	struct luks_slot before[LUKS_SLOTS], after[LUKS_SLOTS];
	unsigned had, has = 0;
	bool fits;
	int result = luks_slots(device, before, &had);

	result = result ? result : luks_fits(device, old, &fits);
	if (!result && !fits)
		result = complain(LARDER_FAILED, "%s: no key of it fits this passphrase or key file", device);
	result = result ? result : run_tool(token, device, old);
	result = result ? result : luks_slots(device, after, &has);
	if (result)
		return result;
	for (unsigned i = 0; i < has; i++)
		if (*after[i].token && !has_slot(before, had, after[i].number)) {
			*slot = after[i].number;
			return LARDER_DONE;
		}
	/* systemd-cryptenroll ends well where these PCRs have a slot */
	return complain(LARDER_BUSY, "%s: has such a key already; nothing was changed", device);
}

/* ------------------------------------------------------------------ clevis' token */

static const char *part_of(struct json_object *jwe, const char *name)
{
	struct json_object *part;
	const char *text = json_object_object_get_ex(jwe, name, &part) && json_object_is_type(part, json_type_string) ? json_object_get_string(part) : "";

	return text[strspn(text, TEXT "-_")] ? "" : text;
}

static struct json_object *jwe_of(struct json_object *token)
{
	struct json_object *jwe;

	return token && json_object_object_get_ex(token, "jwe", &jwe) && json_object_is_type(jwe, json_type_object) ? jwe : NULL;
}

/* base64url, RFC 4648; to be freed.  The alphabet was looked at. */
static char *from_base64(const char *text)
{
	static const char alphabet[] = TEXT "-_";
	char *bytes = must_allocate(malloc(strlen(text) + 1)), *to = bytes;
	unsigned bits = 0, held = 0;

	for (; *text; text++) {
		held = held << 6 | (unsigned)(strchr(alphabet, *text) - alphabet);
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			*to++ = (char)(held >> bits);
		}
	}
	*to = 0;
	return bytes;
}

void token_pin(const char *json, char pin[static 16])
{
	struct json_object *token = json_tokener_parse(json), *jwe = jwe_of(token), *head, *clevis, *word;
	char *text = jwe ? from_base64(part_of(jwe, "protected")) : must_print("%s", "");

	*pin = 0;
	head = json_tokener_parse(text);
	if (json_object_object_get_ex(head, "clevis", &clevis) && json_object_object_get_ex(clevis, "pin", &word) &&
	    json_object_is_type(word, json_type_string)) {
		const char *name = json_object_get_string(word);

		if (strlen(name) < 16 && !name[strspn(name, TEXT "-_")])
			strcpy(pin, name);
	}
	json_object_put(head);
	free(text);
	json_object_put(token);
}

/* What `clevis decrypt` takes: the five parts with dots between them; to be freed. */
static char *compact(const char *json)
{
	struct json_object *token = json_tokener_parse(json), *jwe = jwe_of(token);
	char *text = must_print("%s.%s.%s.%s.%s", part_of(jwe, "protected"), part_of(jwe, "encrypted_key"), part_of(jwe, "iv"), part_of(jwe, "ciphertext"),
				part_of(jwe, "tag"));

	json_object_put(token);
	return text;
}

bool token_decrypt(const char *json, struct secret *secret)
{
	/* timeout ends what clevis has begun, too */
	const char *words[] = { "env", SCRATCH, "timeout", "--kill-after=1", wait_seconds(), "clevis", "decrypt", NULL };
	char *text = compact(json);
	size_t length = strlen(text);
	struct pollfd answer = { .events = POLLIN };
	pid_t child = -1;
	bool there = false;
	int in[2];

	if (length <= PIPE_ROOM && !pipe2(in, O_CLOEXEC)) {
		bool filled = write(in[1], text, length) == (ssize_t)length;

		close(in[1]);
		child = filled ? program_begin_with(words, in[0], &answer.fd) : -1;
		close(in[0]);
	}
	free(text);
	if (child < 0)
		return false;
	while (poll(&answer, 1, -1) < 0)
		;
	there = answer.revents & POLLIN && !secret_take(answer.fd, "clevis decrypt", secret);
	close(answer.fd);
	if (program_end(child, false) && there) {
		secret_free(secret);
		there = false;
	}
	return there;
}
