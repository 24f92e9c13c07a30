// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for the words of tables and messages (kernel/target.c, kernel/cache_target.c).  Input: a byte (enum words_of of kernel_words.h), then words, each
 * ended by a NUL; "ssd", "ssd1" and "hdd" are devices, of the images in LARDER_FUZZ_IMAGES.  Aborts where a table is taken with fewer or other devices than it
 * names, a refusal says no why, or a message asks for what there is not, or loses dirty data without the word for it.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "kernel_words.h"

#define WORDS_MAX 80u

static struct words_device device[3];

static void begin(void)
{
	static const char *const names[] = { "ssd", "ssd1", "hdd" };
	const char *directory = getenv("LARDER_FUZZ_IMAGES");
	char path[4096];
	struct stat status;

	for (size_t i = 0; !device[2].bytes && i < 3; i++) {
		int file;

		snprintf(path, sizeof(path), "%s/%s", directory ? directory : ".", names[i]);
		file = open(path, O_RDONLY | O_CLOEXEC);
		must(file >= 0 && !fstat(file, &status), "LARDER_FUZZ_IMAGES has no image ssd, ssd1, or hdd");
		device[i].size = (size_t)status.st_size;
		device[i].bytes = mmap(NULL, device[i].size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
		must(device[i].bytes != MAP_FAILED, "memory");
		close(file);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *argv[WORDS_MAX + 1] = { NULL };
	unsigned argc = 0, what;

	begin();
	if (!size)
		return 0;
	what = *data++ % NR_WORDS;
	size--;
	while (size && argc < WORDS_MAX)
		argv[argc++] = input_next(&data, &size);
	words_read(what, argc, argv, device);
	for (unsigned i = 0; i < argc; i++)
		free(argv[i]);
	return 0;
}
