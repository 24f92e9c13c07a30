// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for fstab (lib/fstab.c): a file of anybody's, in which the line of a stack is set, moved or taken out.  Input: a byte (bits 0 and 1:
 * which of these; 2 and 3: FSTAB_*; 4: a directory with blanks), then the file.  Aborts where another line is lost or changed, or where the one of the stack is
 * not what getmntent(3) reads.
 */
#include <mntent.h>
#include <unistd.h>

#include "fstab.h"
#include "input.h"

#define MARK "x-larder.stack=aaaaaaaa-0000-4000-8000-0000000000aa"

static const uint8_t uuid[16] = { 0xaa, 0xaa, 0xaa, 0xaa, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0xaa };
static char path[64], next[80];

struct file {
	char *text;
	size_t size;
};

static void clean(void)
{
	unlink(path);
	unlink(next);
}

static void begin(void)
{
	if (*path)
		return;
	snprintf(path, sizeof(path), "/dev/shm/larder-fuzz-fstab-%d", getpid()); /* each input is synced */
	snprintf(next, sizeof(next), "%s.larder-new", path);
	setenv("LIBMOUNT_FSTAB", path, 1);
	atexit(clean);
}

static struct file read_file(void)
{
	struct file file = { malloc(1 << 16), 0 };
	FILE *from = fopen(path, "re");

	must(file.text && from, "a file");
	file.size = fread(file.text, 1, 1 << 16, from);
	fclose(from);
	return file;
}

/* May the line be the stack's: has it the mark anywhere?  (None that has not may be touched.) */
static bool may_be_ours(const char *line, size_t length)
{
	return memmem(line, length, MARK, strlen(MARK));
}

/* The lines that have no mark are there, in order, each with an end; *ours: how many others. */
static void check_others(const struct file *before, const struct file *after, size_t *ours)
{
	const char *at = before->text, *end = at + before->size, *in = after->text, *in_end = in + after->size;

	*ours = 0;
	must(!after->size || in_end[-1] == '\n', "the last line has an end");
	while (at < end) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t length = (size_t)((stop ? stop : end) - at);

		if (may_be_ours(at, length)) {
			++*ours;
		} else {
			for (;;) {
				const char *in_stop = in < in_end ? memchr(in, '\n', (size_t)(in_end - in)) : NULL;
				bool same;

				must(in_stop, "a line is lost, or changed");
				same = (size_t)(in_stop - in) == length && !memcmp(in, at, length);
				must(same || may_be_ours(in, (size_t)(in_stop - in)), "a line is another one");
				in = in_stop + 1;
				if (same)
					break;
			}
		}
		at += length + 1;
	}
}

static bool is_ours(const struct mntent *one)
{
	char *copy = strdup(one->mnt_opts), *rest = copy, *option;
	bool ours = false;

	while ((option = strsep(&rest, ",")))
		ours |= !strcmp(option, MARK);
	free(copy);
	return ours;
}

/* Lines that getmntent() reads with the mark among the options. */
static unsigned entries(const char *source, const char *directory)
{
	FILE *file = setmntent(path, "re");
	struct mntent *one;
	unsigned number = 0;

	must(file, "a file");
	while ((one = getmntent(file))) {
		if (!is_ours(one))
			continue;
		number++;
		must(!source || !strcmp(one->mnt_fsname, source), "its source");
		must(!directory || !strcmp(one->mnt_dir, directory), "its directory");
	}
	endmntent(file);
	return number;
}

static void operate(unsigned what, unsigned flags, const char *directory)
{
	switch (what) {
	case 0:
		must(!fstab_set(uuid, NULL, NULL, NULL, 0), "it is taken out");
		return;
	case 1:
		must(!fstab_move(uuid, "/dev/mapper/moved"), "it is moved");
		return;
	default:
		must(!fstab_set(uuid, "/dev/mapper/a", directory, "ext4", flags), "it is set");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned what, before, after;
	const char *directory;
	struct file old, new, again;
	size_t ours;
	bool same;
	FILE *file;

	begin();
	if (!size || memchr(data + 1, 0, size - 1)) /* of such a line getmntent() leaves out the next one */
		return 0;
	what = data[0] & 3;
	directory = data[0] & 16 ? "/a b\\c\td" : "/srv";
	file = fopen(path, "we");
	must(file && fwrite(data + 1, 1, size - 1, file) == size - 1 && !fclose(file), "a file");
	old = read_file();
	before = entries(NULL, NULL);
	operate(what, data[0] >> 2 & 3, directory);
	new = read_file();
	same = new.size == old.size && !memcmp(new.text, old.text, old.size);
	if (!same)
		check_others(&old, &new, &ours);
	after = entries(what ? what == 1 ? "/dev/mapper/moved" : "/dev/mapper/a" : NULL, what > 1 ? directory : NULL);
	must(what == 0 ? !after : what == 1 ? after <= before : after == 1, "so many lines of the stack");
	must(before || what > 1 || same, "nothing to change is nothing changed");
	must(what <= 1 || fstab_mounts(uuid, directory), "its directory is found");
	free(fstab_other(uuid, directory));
	operate(what, data[0] >> 2 & 3, directory);
	again = read_file();
	must(again.size == new.size && !memcmp(again.text, new.text, new.size), "the second time is as the first");
	free(old.text);
	free(new.text);
	free(again.text);
	return 0;
}
