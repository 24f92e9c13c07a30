// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fields of superblocks as text, and what names and labels may be.
 */
#include <string.h>
#include <uuid/uuid.h>

#include "superblock.h"

bool uuid_is_zero(const uint8_t uuid[16])
{
	return uuid_is_null(uuid);
}

const char *uuid_text(const uint8_t uuid[16], char text[static UUID_TEXT])
{
	if (uuid_is_null(uuid))
		return strcpy(text, "-");
	uuid_unparse_lower(uuid, text);
	return text;
}

const char *label_text(const uint8_t label[LARDER_LABEL_SIZE], char text[static LARDER_LABEL_SIZE + 1])
{
	memcpy(text, label, LARDER_LABEL_SIZE);
	text[LARDER_LABEL_SIZE] = 0;
	if (text[0] && !label_valid(text))
		for (char *c = text; *c; c++)
			if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
				*c = '?';
	return text;
}

/* Length of the well-formed UTF-8 character at p, 0 if there is none: no overlong forms, no surrogates, nothing past U+10FFFF. */
static int utf8_length(const unsigned char *p)
{
	static const struct {
		unsigned char first, last, low, high;
		int length;
	} forms[] = {
		{ 0x20, 0x7e, 0, 0, 1 },       { 0xc2, 0xc2, 0xa0, 0xbf, 2 }, /* U+0080 to U+009F are control characters */
		{ 0xc3, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
		{ 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (*p < forms[i].first || *p > forms[i].last)
			continue;
		for (int n = 1; n < forms[i].length; n++) {
			unsigned char low = n == 1 ? forms[i].low : 0x80, high = n == 1 ? forms[i].high : 0xbf;

			if (p[n] < low || p[n] > high)
				return 0;
		}
		return forms[i].length;
	}
	return 0;
}

void text_clean(char *text)
{
	while (*text) {
		int step = utf8_length((unsigned char *)text);

		if (!step)
			*text = '?';
		text += step ? step : 1;
	}
}

bool label_valid(const char *label)
{
	const unsigned char *p = (const unsigned char *)label;
	size_t length = strlen(label);

	if (!length || length > LARDER_LABEL_SIZE)
		return false;
	while (*p) {
		int step = utf8_length(p);

		if (!step)
			return false;
		p += step;
	}
	return true;
}

bool name_valid(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789#+.:=@_-";
	size_t length = strlen(name);

	return length && length <= LARDER_LABEL_SIZE && name[0] != '-' && name[0] != '.' && strspn(name, allowed) == length &&
	       strcmp(name, "control");
}

static const char *name_of(const char *const *names, uint32_t count, uint32_t value)
{
	return value < count ? names[value] : "unknown";
}

static bool name_parse(const char *const *names, uint32_t count, const char *text, uint32_t *value)
{
	for (*value = 0; *value < count; ++*value)
		if (!strcmp(names[*value], text))
			return true;
	return false;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const modes[] = {
	[LARDER_WRITEBACK] = "writeback",
	[LARDER_WRITETHROUGH] = "writethrough",
	[LARDER_WRITEAROUND] = "writearound",
};

const char *mode_text(uint32_t mode)
{
	return name_of(modes, COUNT(modes), mode);
}

bool mode_parse(const char *text, uint32_t *mode)
{
	return name_parse(modes, COUNT(modes), text, mode);
}

static const char *const roles[] = {
	[LARDER_ROLE_BOTH] = "both",
	[LARDER_ROLE_WRITE] = "write",
	[LARDER_ROLE_READ] = "read",
};

const char *role_text(uint32_t role)
{
	return name_of(roles, COUNT(roles), role);
}

bool role_parse(const char *text, uint32_t *role)
{
	return name_parse(roles, COUNT(roles), text, role);
}

const char *kind_text(uint32_t kind)
{
	static const char *const kinds[] = {
		[LARDER_KIND_CACHE] = "cache",
		[LARDER_KIND_VOLUME] = "volume",
		[LARDER_KIND_SPARE] = "spare",
		[LARDER_KIND_OTHER] = "other",
	};

	return kind >= LARDER_KIND_CACHE && kind <= LARDER_KIND_OTHER ? kinds[kind] : "unknown";
}
