// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for the words of a command line (tools/arguments.c).  Input: a byte (bit 0: they are to be completed; 1: there may be three words at most),
 * then words, each ended by a NUL.  Aborts where a word or a value is lost, or comes from nowhere, and where a complaint names none of the words.
 */
#include "../../tools/arguments.c"
#include "input.h"

#define WORDS_MAX 100

struct values {
	bool flag, other, units_given;
	const char *text;
	uint64_t size;
	struct argument_list list;
	struct size_format units;
};

static FILE *terminal;
static char *complaint;
static size_t complaint_size;

static bool is_end_of(const char *word, const char *of)
{
	size_t a = strlen(word), b = strlen(of);

	return a <= b && !strcmp(of + b - a, word);
}

static bool among(const char *word, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (is_end_of(word, argv[i]))
			return true;
	return false;
}

/* What an error says begins with the word that it is about, or is about how many there are. */
static void check_complaint(int argc, char **argv)
{
	static const char *const whole[] = { "a word is empty", "a word is missing", "too many words" };
	const char *text = complaint, *colon;
	bool named = false;

	must(complaint_size && !strncmp(text, "larder: ", 8) && text[complaint_size - 1] == '\n', "a line");
	must(strchr(text, '\n') == text + complaint_size - 1, "one line");
	text += 8;
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
		named |= !strncmp(text, whole[i], strlen(whole[i]));
	for (int i = 1; i < argc && !named; i++) {
		/* as it is printed: no control characters */
		char *word = strdup(argv[i]);

		for (char *c = word; *c; c++)
			*c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
		named = *word == '-' && !strncmp(text, word, strlen(word)) && text[strlen(word)] == ':';
		free(word);
	}
	colon = strchr(text, ':');
	must(named || (colon && !strncmp(text, "--", 2) && strstr(" --flag --other --text --size --list --units ", "--") && strchr(text, ' ') > colon),
	     "it names a word, or an option");
}

static void check_values(const struct values *v, int argc, char **argv, int first)
{
	must(first >= 1 && first <= argc, "the first word");
	must(!v->text || (*v->text && among(v->text, argc, argv)), "a text that was given");
	must(v->list.number >= 0 && v->list.number <= ARGUMENT_LIST_MAX, "so many");
	for (int i = 0; i < v->list.number; i++)
		must(*v->list.value[i] && among(v->list.value[i], argc, argv), "a value that was given");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *argv[WORDS_MAX + 1] = { NULL }, *kept[WORDS_MAX];
	struct values v = { 0 };
	const struct argument arguments[] = {
		{ "flag", 'f', ARGUMENT_FLAG, &v.flag, NULL, "a flag" },
		{ "other-flag", 'o', ARGUMENT_FLAG, &v.other, NULL, "another one" },
		{ "text", 't', ARGUMENT_TEXT, &v.text, "TEXT", "a text" },
		{ "size", 0, ARGUMENT_SIZE, &v.size, "SIZE", "a size" },
		{ "list", 'l', ARGUMENT_LIST, &v.list, "VALUE", "a list" },
		{ "units", 0, ARGUMENT_UNITS, &v.units, "UNIT", "a unit" },
		ARGUMENTS_END,
	};
	unsigned switches = size ? data[0] : 0;
	int argc = 1, first = 0, result = 0;
	bool good, taken;

	if (!size)
		return 0;
	data++;
	size--;
	argv[0] = strdup("verb");
	while (size && argc < WORDS_MAX)
		argv[argc++] = input_next(&data, &size);
	memcpy(kept, argv, sizeof(kept));
	terminal = stderr;
	stderr = open_memstream(&complaint, &complaint_size);
	must(stderr, "memory");
	if (switches & 1)
		arguments_complete(argc > 2 ? argv[argc - 2] : NULL, argv[argc - 1], &taken);
	good = arguments_words(argc, argv, "larder verb WORD...", arguments, 0, switches & 2 ? 3 : -1, &first, &result);
	fclose(stderr);
	stderr = terminal;
	if (switches & 1) {
		must(!good && !result && !complaint_size, "only completed");
		completion.taken = NULL;
	} else if (good) {
		must(!result && !complaint_size, "nothing is said");
		check_values(&v, argc, argv, first);
		must(!(switches & 2) || argc - first <= 3, "no more words than there may be");
	} else if (result) {
		must(result == LARDER_USAGE, "its code");
		check_complaint(argc, argv);
	}
	free(complaint);
	complaint = NULL;
	for (int i = 0; i < argc; i++)
		free(kept[i]);
	return 0;
}
