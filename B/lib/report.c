// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tables of fields.  A row is an array of cells with the texts that the kernel, or a superblock, gave; how they are shown and
 * sorted follows from the field's kind.  One function serves all fields.
 */
#include <libdevmapper.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dm.h"
#include "message.h"
#include "report.h"
#include "superblock.h"

#define REPORT_TYPE 1u

struct report {
	struct dm_report *handle; /* NULL: not begun */
	const char *name;
	char *names, *sort; /* fields to show, and to sort by */
	struct dm_report_field_type *types;
	struct field fields[REPORT_FIELDS_MAX];
	size_t number;
	struct size_format units;
	bool json, headings, steady;
};

static bool is_text(const struct field *field)
{
	return field->kind == VALUE_TEXT || field->kind == VALUE_OPTION;
}

static void *row_data(void *object)
{
	return object;
}

static const struct dm_report_object_type object_types[] = {
	{ REPORT_TYPE, "larder", "", row_data },
	{ 0, "", "", NULL },
};

/* Of the character that begins here; 0: it is none. */
static size_t utf8_bytes(const unsigned char *text)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t bytes = *text < 0x80 ? 1 : *text >> 5 == 6 ? 2 : *text >> 4 == 14 ? 3 : *text >> 3 == 30 ? 4 : 0;
	uint32_t code = bytes ? *text & (bytes == 1 ? 0x7f : 0x7f >> bytes) : 0;

	for (size_t i = 1; i < bytes; i++) {
		if (text[i] >> 6 != 2)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	return code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0 : bytes;
}

/*
 * Of what JSON wants escaped libdevmapper sees to the quotes only.  Control characters are kept out of labels and status lines, but paths have what
 * somebody has put into them.
 */
static char *escape_for_json(struct dm_pool *pool, const char *text)
{
	const unsigned char *from = (const unsigned char *)text;
	char *copy = dm_pool_alloc(pool, 6 * strlen(text) + 1), *to = copy;

	if (!copy)
		return NULL;
	while (*from) {
		size_t bytes = utf8_bytes(from);

		if (*from == '\\') {
			*to++ = '\\';
			*to++ = '\\';
		} else if (!bytes || *from < 0x20 || *from == 0x7f) {
			to += sprintf(to, "\\u%04x", bytes ? *from : 0xfffd);
		} else {
			memcpy(to, from, bytes);
			to += bytes;
		}
		from += bytes ? bytes : 1;
	}
	*to = 0;
	return copy;
}

/* libdevmapper asks for the text of one cell. */
static int print_cell(struct dm_report *handle, struct dm_pool *pool, struct dm_report_field *field, const void *data,
		      void *private)
{
	uint64_t *sort = dm_pool_alloc(pool, sizeof(*sort));
	const struct cell *cell = data;
	char *text, *copy;

	(void)handle;
	(void)private;
	if (!sort)
		return 0;
	text = field_text(cell->field->kind, cell->value, &cell->report->units, sort);
	if (!cell->report->json)
		text_clean(text); /* for a terminal */
	copy = cell->report->json ? escape_for_json(pool, text) : dm_pool_strdup(pool, text);
	free(text);
	if (!copy)
		return 0;
	dm_report_field_set_value(field, copy, is_text(cell->field) ? NULL : sort);
	return 1;
}

/* That libdevmapper begins with; it makes a column wider for a value that needs it. */
static int32_t width(const struct report *report, const struct field *field)
{
	int32_t least = !report->steady || is_text(field)					? 0 :
			field->kind == VALUE_BYTES || field->kind == VALUE_SECTORS ? 9 :
										       7;
	int32_t heading = (int32_t)strlen(field->heading);

	return heading > least ? heading : least;
}

static void make_types(struct report *report, size_t n)
{
	report->types = must_allocate(calloc(n + 1, sizeof(*report->types)));
	for (size_t i = 0; i < n; i++) {
		const struct field *f = &report->fields[i];
		struct dm_report_field_type *type = &report->types[i];

		type->type = REPORT_TYPE;
		type->flags = is_text(f) ? DM_REPORT_FIELD_TYPE_STRING : DM_REPORT_FIELD_TYPE_NUMBER | DM_REPORT_FIELD_ALIGN_RIGHT;
		type->offset = (uint32_t)(i * sizeof(struct cell));
		type->width = width(report, f);
		snprintf((char *)type->id, sizeof(type->id), "%s", f->name);
		snprintf((char *)type->heading, sizeof(type->heading), "%s", f->heading);
		type->report_fn = print_cell;
		type->desc = f->help;
	}
}

static void list_fields(const struct report *report)
{
	for (size_t i = 0; i < report->number; i++)
		printf("%-24s %s\n", report->fields[i].name, report->fields[i].help);
}

static int check_name(const struct report *report, const char *name, const char *option)
{
	if (report_field(report, name) >= 0)
		return LARDER_DONE;
	return complain(LARDER_USAGE, "%s: no field '%s'; -o help lists them", option, name);
}

/* Of --sort: "a,-b,+c".  Complains of the first that is no field. */
static int check_sort(const struct report *report, const char *names)
{
	char *copy = must_allocate(strdup(names)), *rest = copy, *word;
	int result = LARDER_DONE;

	while (!result && (word = strsep(&rest, ",")))
		result = check_name(report, word + (*word == '+' || *word == '-'), "--sort");
	free(copy);
	return result;
}

/* Each once: a key of JSON cannot be there twice. */
static void add_name(char **names, const char *name)
{
	char *longer = must_print("%s%s%s", *names, **names ? "," : "", name), *found = *names;
	size_t length = strlen(name);

	while ((found = strstr(found, name)) && ((found > *names && found[-1] != ',') || (found[length] && found[length] != ',')))
		found++;
	free(found ? longer : *names);
	*names = found ? *names : longer;
}

/* Of -o: "a,b", "+c" behind the default; all of them: "all".  Complains. */
static int add_names(const struct report *report, const char *asked, char **names)
{
	char *copy = must_allocate(strdup(asked)), *rest = copy, *word;
	int result = LARDER_DONE;

	while (!result && (word = strsep(&rest, ","))) {
		word += *word == '+';
		if (*word == '-')
			result = complain(LARDER_USAGE, "-o: '%s': nothing is taken away; name the fields that are to be shown", word);
		else if (strcmp(word, "all"))
			result = check_name(report, word, "-o");
		for (size_t i = 0; !result && !strcmp(word, "all") && i < report->number; i++)
			add_name(names, report->fields[i].name);
		if (!result && strcmp(word, "all"))
			add_name(names, word);
	}
	free(copy);
	return result;
}

void report_discard(struct report *report)
{
	if (report->handle)
		dm_report_free(report->handle);
	free(report->types);
	free(report->names);
	free(report->sort);
	free(report);
}

/* Before anything is looked at, or waited for.  The group is for the end: it cannot be destroyed without printing something. */
static int begin(struct report *report)
{
	uint32_t types = REPORT_TYPE, flags = DM_REPORT_OUTPUT_ALIGNED | DM_REPORT_OUTPUT_BUFFERED;

	if (report->headings)
		flags |= DM_REPORT_OUTPUT_HEADINGS;
	report->handle = dm_report_init(&types, object_types, report->types, report->names, "  ", flags, report->sort, report);
	if (report->handle)
		return LARDER_DONE;
	return complain(LARDER_FAILED, "report: libdevmapper does not take the fields '%s', sorted by '%s'", report->names, report->sort);
}

struct report *report_new(const char *name, const struct field *const *sections, const size_t *counts, size_t nr_sections,
			  const char *default_fields, const struct report_options *options, int *result)
{
	struct report *report = must_allocate(calloc(1, sizeof(*report)));
	bool listed = false;

	for (size_t s = 0; s < nr_sections; s++)
		for (size_t i = 0; i < counts[s] && report->number < REPORT_FIELDS_MAX; i++)
			report->fields[report->number++] = sections[s][i];
	mapped_take_messages();
	report->units = options->units;
	report->units.suffix = !options->nosuffix;
	report->steady = options->steady;
	report->json = options->format && !strcmp(options->format, "json");
	*result = LARDER_DONE;
	if (options->format && !report->json && strcmp(options->format, "basic"))
		*result = complain(LARDER_USAGE, "--reportformat: '%s' is neither basic nor json", options->format);
	if (!*result && options->fields && !strcmp(options->fields, "help")) {
		list_fields(report);
		listed = true;
	}
	if (!*result && !listed) {
		make_types(report, report->number);
		report->names = must_print("%s", "");
		if (!options->fields || *options->fields == '+')
			*result = add_names(report, default_fields, &report->names);
		if (!*result && options->fields)
			*result = add_names(report, options->fields, &report->names);
	}
	if (!*result && !listed && options->sort && *options->sort)
		*result = check_sort(report, options->sort);
	report->name = name;
	report->headings = !options->noheadings;
	report->sort = must_print("%s", options->sort ? options->sort : "");
	if (!*result && !listed)
		*result = begin(report);
	if (!*result && !listed)
		return report;
	report_discard(report);
	return NULL;
}

int report_field(const struct report *report, const char *name)
{
	for (size_t i = 0; i < report->number; i++)
		if (!strcmp(report->fields[i].name, name))
			return (int)i;
	return -1;
}

void report_set(const struct report *report, struct row *row, const char *field, const char *format, ...)
{
	int place = report_field(report, field);
	va_list args;
	char *text;

	if (place < 0)
		return;
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	free(row->cell[place].value);
	row->cell[place].value = must_allocate(text);
}

void report_add(struct report *report, struct row *row)
{
	for (size_t i = 0; i < report->number; i++) {
		row->cell[i].field = &report->fields[i];
		row->cell[i].report = report;
	}
	must_allocate(dm_report_object(report->handle, row->cell) ? report : NULL);
	for (size_t i = 0; i < report->number; i++)
		free(row->cell[i].value);
	*row = (struct row){ 0 };
}

void report_show(const struct report *report, struct row *row)
{
	for (size_t i = 0; i < report->number; i++) {
		const struct field *f = &report->fields[i];
		uint64_t sort;
		char *text;

		if (row->cell[i].value) {
			text = field_text(f->kind, row->cell[i].value, &report->units, &sort);
			text_clean(text);
			printf("%-20s %s\n", f->heading, text);
			free(text);
		}
		free(row->cell[i].value);
	}
	*row = (struct row){ 0 };
}

int report_print(struct report *report)
{
	struct dm_report_group *group;
	bool good;

	group = dm_report_group_create(report->json ? DM_REPORT_GROUP_JSON : DM_REPORT_GROUP_SINGLE, NULL);
	/* destroying it is what prints */
	good = group && dm_report_group_push(group, report->handle, (void *)report->name);
	good = group && dm_report_group_destroy(group) && good;
	report_discard(report);
	return good ? LARDER_DONE : complain(LARDER_FAILED, "report: libdevmapper cannot print it");
}
