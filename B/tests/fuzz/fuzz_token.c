// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for lib/token.c: keys as words have them, and clevis' tokens as a header has them.  The first byte of the input says which.
 * Aborts where words that were accepted could be more than a word of JSON, URL or option, or are others when they are read again, and where what is
 * shown or handed on of a token has other bytes than it may.
 */
#include "../../lib/token.c"
#include "input.h"

/* Of lib/luks.c; nothing here gets that far. */
int luks_slots(const char *device, struct luks_slot slots[static LUKS_SLOTS], unsigned *number)
{
	abort();
}

int luks_fits(const char *device, const struct secret *secret, bool *fits)
{
	abort();
}

int secret_take(int file, const char *name, struct secret *secret)
{
	abort();
}

void secret_free(struct secret *secret)
{
	abort();
}

static void try_words(const char *text)
{
	struct token token, again;
	char written[TOKEN_TEXT_MAX];

	if (token_parse(text, &token))
		return;
	must(token.kind == TOKEN_TANG ? !*token.pcrs && (!strncmp(token.url, "http://", 7) || !strncmp(token.url, "https://", 8)) :
					!*token.url && !*token.thumbprint, "what only the other kind has");
	must(!token.url[strcspn(token.url, "\"\\, \t\n'$`;&|<>(){}*?#")], "the URL");
	must(!token.thumbprint[strspn(token.thumbprint, TEXT "-_")] && !token.pcrs[strspn(token.pcrs, "0123456789+")], "thumbprint, or PCRs");
	token_text(&token, written);
	must(*written && !token_parse(written, &again) && !memcmp(&token, &again, sizeof(token)), "words that are read again");
}

static void try_token(const char *json)
{
	char pin[16], *text = compact(json);
	unsigned dots = 0;

	for (const char *at = text; *at; at++)
		dots += *at == '.';
	must(dots == 4 && !text[strspn(text, TEXT "-_.")], "what clevis gets");
	free(text);
	token_pin(json, pin);
	must(!pin[strspn(pin, TEXT "-_")], "what is shown");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	if (*data)
		try_token(text);
	else
		try_words(text);
	free(text);
	return 0;
}
