// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Stands in for libFuzzer where there is no clang: random inputs, and files of a directory with random edits, without coverage.
 *
 *   random_NAME SEED SECONDS LENGTH [DIRECTORY]
 *   random_NAME FILE                               that input alone; of a directory: those in it, as they are
 *
 * Prints executions=N.  An input that ends the process is in crash-SEED-PID of the working directory; libFuzzer takes it as well.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void));

static uint8_t *input;
static size_t input_size;
static char crash[64];
static struct {
	uint8_t *data;
	size_t size;
} file[FILES];
static size_t nr_files;

static void save(void)
{
	int to = open(crash, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (to >= 0 && write(to, input, input_size) >= 0)
		close(to);
}

static void aborted(int signal)
{
	save();
	_exit(128 + signal);
}

static size_t below(size_t n)
{
	return (size_t)random() % n;
}

static void read_directory(const char *name, size_t length)
{
	DIR *directory = opendir(name);
	struct dirent *entry;
	char path[4096];

	while (directory && nr_files < FILES && (entry = readdir(directory))) {
		FILE *from;

		snprintf(path, sizeof(path), "%s/%s", name, entry->d_name);
		from = *entry->d_name == '.' ? NULL : fopen(path, "re");
		if (!from)
			continue;
		file[nr_files].data = malloc(length);
		file[nr_files].size = fread(file[nr_files].data, 1, length, from);
		nr_files += file[nr_files].size > 0;
		fclose(from);
	}
	if (directory)
		closedir(directory);
}

static uint8_t favourite(void)
{
	static const uint8_t favourites[] = { 0, 1, 2, 0x7f, 0x80, 0xff, ' ', '\n', '=', '/', '-', '"', '\\', '0', '9', '.' };

	return below(3) ? (uint8_t)random() : favourites[below(sizeof(favourites))];
}

/* One edit: a byte, a bit, a piece cut out, copied to another place, or taken from another file. */
static void edit(size_t room)
{
	size_t from = below(input_size), to = below(input_size), n = below(32);

	n = from + n > input_size ? input_size - from : n;
	switch (below(5)) {
	case 0:
		input[from] = favourite();
		return;
	case 1:
		input[from] ^= (uint8_t)(1u << below(8));
		return;
	case 2:
		if (n >= input_size)
			return;
		memmove(input + from, input + from + n, input_size - from - n);
		input_size -= n;
		return;
	case 3:
		if (input_size + n > room)
			return;
		memmove(input + to + n, input + to, input_size - to);
		memmove(input + to, input + (from < to ? from : from + n), from < to && from + n > to ? to - from : n);
		input_size += n;
		return;
	default:
		if (nr_files) {
			size_t k = below(nr_files), at = below(file[k].size);

			n = n < file[k].size - at ? n : file[k].size - at;
			n = n < input_size - to ? n : input_size - to;
			memcpy(input + to, file[k].data + at, n);
		}
	}
}

static void make(size_t length)
{
	if (nr_files && below(8)) {
		size_t k = below(nr_files);

		input_size = file[k].size;
		memcpy(input, file[k].data, input_size);
	} else {
		input_size = 1 + below(length);
		for (size_t i = 0; i < input_size; i++)
			input[i] = favourite();
	}
	for (size_t edits = below(6); edits; edits--)
		edit(length);
}

/* An allocation that is exactly so big: ASan sees any byte beyond. */
static int try(const uint8_t *data, size_t size)
{
	uint8_t *exact = malloc(size);
	int result;

	memcpy(exact, data, size);
	result = LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	return result;
}

static int as_they_are(const char *name)
{
	static uint8_t data[1 << 16];
	FILE *from = fopen(name, "re");
	int result = 0;
	size_t size;

	if (!from)
		return 2;
	size = fread(data, 1, sizeof(data), from);
	if (!ferror(from)) {
		fclose(from);
		return try(data, size);
	}
	fclose(from);
	read_directory(name, sizeof(data));
	for (size_t i = 0; i < nr_files && !result; i++)
		result = try(file[i].data, file[i].size);
	printf("executions=%zu\n", nr_files);
	return result;
}

int main(int argc, char **argv)
{
	size_t length = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	unsigned long executions = 0;
	time_t end;

	if (argc == 2)
		return as_they_are(argv[1]);
	if (!length)
		return 2;
	input = malloc(length);
	srandom((unsigned)atol(argv[1]));
	snprintf(crash, sizeof(crash), "crash-%s-%d", argv[1], getpid());
	signal(SIGABRT, aborted);
	__sanitizer_set_death_callback(save);
	if (argc > 4)
		read_directory(argv[4], length);
	for (end = time(NULL) + atol(argv[2]); time(NULL) < end || !executions; executions++) {
		make(length);
		try(input, input_size);
	}
	printf("executions=%lu\n", executions);
	return 0;
}
