/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Tables of fields, by libdevmapper's report: -o, --sort, --units, --noheadings, --reportformat json. */
#ifndef LARDER_REPORT_H
#define LARDER_REPORT_H

#include "status.h"

struct report_options {
	const char *fields; /* -o: "a,b", "+a,b" adds to the default, "help" lists them, "all" is each; NULL: default */
	const char *sort; /* --sort: "a,-b" */
	const char *format; /* "basic", "json" */
	struct size_format units;
	bool noheadings, nosuffix;
	bool steady; /* reports follow each other: columns of numbers are as wide as most values need */
};

struct report;

#define REPORT_FIELDS_MAX 128

/* One line of a report.  Zero to begin with. */
struct row {
	struct cell {
		char *value; /* as the kernel or a superblock gave it; NULL: empty */
		const struct field *field;
		const struct report *report;
	} cell[REPORT_FIELDS_MAX];
};

/*
 * fields: sections of them, one after another.  Complains of unknown fields and formats (NULL then; the code is in *result); "-o
 * help" prints the list, and NULL with LARDER_DONE is returned too.
 */
struct report *report_new(const char *name, const struct field *const *sections, const size_t *counts, size_t nr_sections,
			  const char *default_fields, const struct report_options *options, int *result);
/* Place of a field in rows; -1: none of that name. */
int report_field(const struct report *report, const char *name);
/* Gives a field of a row its value, a copy of it. */
void report_set(const struct report *report, struct row *row, const char *field, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Adds a row; frees its values. */
void report_add(struct report *report, struct row *row);
/* Instead of report_add(): prints the row's fields one below the other, by their headings; frees its values. */
void report_show(const struct report *report, struct row *row);
/* Frees it unprinted. */
void report_discard(struct report *report);
/* Prints and frees. */
int report_print(struct report *report);

#endif
