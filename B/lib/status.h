/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The status of the targets: what docs/interface.md says of each key, and the reading of it. */
#ifndef LARDER_STATUS_H
#define LARDER_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "size.h"

enum value_kind {
	VALUE_TEXT,
	VALUE_NUMBER,
	VALUE_DECIMAL, /* with a fraction */
	VALUE_BYTES, /* shown in the units asked for */
	VALUE_SECTORS, /* of 512 bytes; shown likewise */
	VALUE_OPTION, /* an option as set: text, may be changed by `set` */
};

/* A field of a report. */
struct field {
	const char *name;
	enum value_kind kind;
	const char *heading, *help;
};

extern const struct field cache_status_fields[], volume_status_fields[];
extern const size_t cache_status_count, volume_status_count;

/* Value of a key in "key=value key=value ...": a copy that the caller frees, or NULL. */
char *status_value(const char *status, const char *key);
uint64_t status_number(const char *status, const char *key); /* 0 if missing or no number */
bool status_is(const char *status, const char *key, const char *value);
bool status_has(const char *status, const char *key, const char *word); /* one of the words of a value like a/b/c */
/* Calls visit for each pair, in order. */
void status_each(const char *status, void (*visit)(const char *key, const char *value, void *data), void *data);

/* A value as a report shows it; the caller frees it.  sort: what it is sorted by. */
char *field_text(enum value_kind kind, const char *value, const struct size_format *format, uint64_t *sort);

#endif
