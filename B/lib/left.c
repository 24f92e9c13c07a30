// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A line for each: the word, the UUID, the text.  It is a state, not a history: who begins to look later sees what is so now, and larderd, which may be
 * killed at any moment, has nothing to remember.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "left.h"
#include "message.h"
#include "run_file.h"

#define NAME	 "left"
#define WORD_LETTERS "abcdefghijklmnopqrstuvwxyz-"
#define WORD_MAX (sizeof(((struct left *)NULL)->word) - 1)

void left_add(struct left_list *list, const char *word, const uint8_t uuid[16], const char *text)
{
	struct left *left;

	list->left = must_allocate(realloc(list->left, (list->number + 1) * sizeof(*list->left)));
	left = &list->left[list->number++];
	snprintf(left->word, sizeof(left->word), "%s", word);
	uuid_text(uuid, left->uuid);
	left->text = must_print("%s", text);
	text_clean(left->text);
}

void left_free(struct left_list *list)
{
	for (size_t i = 0; i < list->number; i++)
		free(list->left[i].text);
	free(list->left);
	*list = (struct left_list){ 0 };
}

static bool same(const struct left *a, const struct left *b)
{
	return !strcmp(a->word, b->word) && !strcmp(a->uuid, b->uuid) && !strcmp(a->text, b->text);
}

bool left_has(const struct left_list *list, const struct left *left)
{
	for (size_t i = 0; i < list->number; i++)
		if (same(&list->left[i], left))
			return true;
	return false;
}

static bool holds_all(const struct left_list *list, const struct left_list *of)
{
	for (size_t i = 0; i < of->number; i++)
		if (!left_has(list, &of->left[i]))
			return false;
	return true;
}

static void print(FILE *file, const void *data)
{
	const struct left_list *list = data;

	for (size_t i = 0; i < list->number; i++)
		fprintf(file, "%s %s %s\n", list->left[i].word, list->left[i].uuid, list->left[i].text);
}

int left_write(const struct left_list *list)
{
	struct left_list there = { 0 };
	int error = 0;

	left_read(&there);
	if (!holds_all(list, &there) || !holds_all(&there, list))
		error = run_file_replace(NAME, print, list);
	left_free(&there);
	return error;
}

/* What is between two blanks, or behind the last one; NULL: it ends before. */
static char *next_word(char **rest)
{
	return *rest ? strsep(rest, " ") : NULL;
}

static bool is_word(const char *word)
{
	return *word && strlen(word) <= WORD_MAX && strspn(word, WORD_LETTERS) == strlen(word);
}

/* As uuid_text() writes it: "-" is that of what is of none, of larder.conf say. */
static bool parse_uuid(const char *text, uint8_t uuid[16])
{
	memset(uuid, 0, 16);
	return !strcmp(text, "-") || (!uuid_parse(text, uuid) && !uuid_is_null(uuid));
}

static void take_line(char *line, void *data)
{
	struct left_list *list = data;
	char *rest = line, *word = next_word(&rest), *uuid = next_word(&rest);
	uint8_t number[16];

	if (!word || !is_word(word) || !uuid || !parse_uuid(uuid, number) || !rest || !*rest)
		return;
	left_add(list, word, number, rest);
}

void left_read(struct left_list *list)
{
	*list = (struct left_list){ 0 };
	run_file_lines(NAME, take_line, list);
}

int left_watch(void)
{
	char *directory = run_path("");
	int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (watch >= 0 && inotify_add_watch(watch, directory, IN_MOVED_TO) < 0) {
		close(watch);
		watch = -1;
	}
	free(directory);
	return watch;
}
