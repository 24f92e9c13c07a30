// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/fstab.c: the line of a stack, as systemd reads it at a boot, and all others as they are.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/message.c"
#include "../../lib/directory.c"
#include "../../lib/fstab.c"

static int failed;

static void check(bool good, int number, const char *name)
{
	printf("%sok %d %s\n", good ? "" : "not ", number, name);
	failed |= !good;
}

/* Of lib/superblock.c and lib/program.c, which are not under test: no systemd reads this fstab. */
const char *uuid_text(const uint8_t uuid[16], char text[static UUID_TEXT])
{
	snprintf(text, UUID_TEXT, "%02x", uuid[0]);
	return text;
}

int program_run(const char *const *words, char **said)
{
	*said = NULL;
	check(false, 0, words[0]);
	return 1;
}

static bool is(const char *path, const char *wanted)
{
	char text[4096];
	FILE *file = fopen(path, "r");
	size_t length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	text[length] = 0;
	if (file)
		fclose(file);
	if (strcmp(text, wanted))
		printf("# found:\n%s# instead of:\n%s", text, wanted);
	return !strcmp(text, wanted);
}

int main(void)
{
	static const char hand[] = "# by hand\nLABEL=x / ext4 defaults 0 1";
	static const char remarks[] = "/dev/sda /x-larder.stack=aa ext4 defaults 0 0 x-larder.stack=aa\n"
				      "/dev/sdb /b ext4 x-larder.stack=aaa,y-x-larder.stack=aa 0 0\n"
				      "\t/dev/sdc\t/c ext4 nofail,x-larder.stack=aa\n"
				      "/dev/mapper/b /d xfs ,,x-larder.stack=bb\n";
	const uint8_t one[16] = { 0xaa }, two[16] = { 0xbb };
	char path[] = "/tmp/larder-fstab-XXXXXX";
	int fd = mkstemp(path);
	FILE *file;

	check(fd >= 0 && write(fd, hand, strlen(hand)) == (ssize_t)strlen(hand), 1, "one by hand, without an end of its line");
	close(fd);
	setenv("LIBMOUNT_FSTAB", path, 1);
	check(!fstab_set(one, "/dev/mapper/a", "/a b", "ext4", FSTAB_ESSENTIAL) && !fstab_set(two, "/dev/mapper/b", "/b", "xfs", FSTAB_REMOTE) &&
		      is(path, "# by hand\nLABEL=x / ext4 defaults 0 1\n"
			       "/dev/mapper/a /a\\040b ext4 x-systemd.device-timeout=0,x-larder.stack=aa 0 2\n"
			       "/dev/mapper/b /b xfs nofail,_netdev,x-systemd.device-timeout=0,x-larder.stack=bb 0 0\n"),
	      2, "a boot waits for what is essential alone, and that for ever for its device; what needs the network goes before that does");
	check(!fstab_move(one, "/dev/mapper/c") && !fstab_set(two, NULL, NULL, NULL, 0) &&
		      is(path, "# by hand\nLABEL=x / ext4 defaults 0 1\n"
			       "/dev/mapper/c /a\\040b ext4 x-systemd.device-timeout=0,x-larder.stack=aa 0 2\n"),
	      3, "each is known by its mark");
	check(!fstab_move_mount(one, "/new place") && !fstab_set_essential(one, false) && !fstab_move_mount(two, "/nowhere") &&
		      is(path, "# by hand\nLABEL=x / ext4 defaults 0 1\n"
			       "/dev/mapper/c /new\\040place ext4 x-systemd.device-timeout=0,x-larder.stack=aa,nofail 0 2\n"),
	      4, "another mount, for which no boot waits; of none there is nothing to move");
	file = fopen(path, "w");
	fputs("# x-larder.stack=aa\n \t/dev/mapper/c\t/a  ext4 nofail,x-nofail=1,noatime,x-larder.stack=aa,nofail\n", file);
	fclose(file);
	check(!fstab_set_essential(one, true) && !fstab_set_essential(one, true) && !fstab_move_mount(one, "/b") &&
		      is(path, "# x-larder.stack=aa\n \t/dev/mapper/c\t/b  ext4 x-nofail=1,noatime,x-larder.stack=aa\n"),
	      5, "what somebody changed stays: blanks, other options, fields that are left out");
	check(fstab_has(one) && !fstab_has(two) && !fstab_set(one, NULL, NULL, NULL, 0) && !fstab_has(one), 6, "whether there is one; not in a comment");
	fd = open(path, O_WRONLY | O_TRUNC);
	check(fd >= 0 && write(fd, remarks, strlen(remarks)) == (ssize_t)strlen(remarks) && !close(fd) && !fstab_set(one, NULL, NULL, NULL, 0) &&
		      !fstab_move(two, "/dev/mapper/d") &&
		      is(path, "/dev/sda /x-larder.stack=aa ext4 defaults 0 0 x-larder.stack=aa\n"
			       "/dev/sdb /b ext4 x-larder.stack=aaa,y-x-larder.stack=aa 0 0\n"
			       "/dev/mapper/d /d xfs ,,x-larder.stack=bb\n"),
	      4, "the mark is an option, all of it, and none of another line");
	unlink(path);
	return failed;
}
