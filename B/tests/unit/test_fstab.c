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
#include <sys/stat.h>
#include <unistd.h>

static int give(int file, uid_t owner, gid_t group);

#include "../../lib/message.c"
#include "../../lib/directory.c"
#include "../../lib/mounts.c"
#define fchown(file, owner, group) give(file, owner, group)
#include "../../lib/fstab.c"
#undef fchown

#include "check.h"

static mode_t mode_before = 07777; /* of the new one, when all is in it that others may not read */

static int give(int file, uid_t owner, gid_t group)
{
	struct stat status;

	mode_before = fstat(file, &status) ? 07777 : status.st_mode & 07777;
	return fchown(file, owner, group);
}

/* Of lib/superblock.c and lib/program.c, which are not under test: no systemd reads this fstab. */
const char *uuid_text(const uint8_t uuid[16], char text[static UUID_TEXT])
{
	snprintf(text, UUID_TEXT, "%02x", uuid[0]);
	return text;
}

int program_run(const char *const *words, char **said)
{
	*said = strdup("is not run here"); /* as the real one has a text where it fails */
	check(false, words[0]);
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

/* Is that what is told of another line? */
static bool is_other(const uint8_t uuid[16], const char *directory, const char *where, const char *source)
{
	char *found = fstab_other(uuid, directory);
	bool good = found && strstr(found, where) && strstr(found, source);

	if (!good)
		printf("# found: %s\n", found ? found : "nothing");
	free(found);
	return good;
}

static void by_another_name(const char *path, const uint8_t one[16])
{
	char directory[] = "/tmp/larder-place-XXXXXX", linked[64];
	bool made = mkdtemp(directory);
	FILE *file = fopen(path, "w");

	snprintf(linked, sizeof(linked), "%s.link", directory);
	fprintf(file, "/dev/e %s ext4\n", directory);
	fclose(file);
	check(made && !symlink(directory, linked) && is_other(one, linked, "line 1 of", "/dev/e"), "a directory by the name of a link to it");
	unlink(linked);
	rmdir(directory);
}

/* What only root may read stays so at each moment; what a kill has left, whatever it is, is not written to; without a line there is nothing to write. */
static void in_place(const char *path, const uint8_t one[16])
{
	char next[64], victim[64];
	struct stat before, after;
	FILE *file;

	snprintf(next, sizeof(next), "%s.larder-new", path);
	snprintf(victim, sizeof(victim), "%s.victim", path);
	file = fopen(victim, "w");
	fputs("whose this is\n", file);
	fclose(file);
	umask(022);
	check(!chmod(path, 0600) && !symlink(victim, next) && !fstab_set(one, "/dev/mapper/a", "/a", "ext4", 0) && mode_before == 0600 &&
		      !stat(path, &after) && (after.st_mode & 07777) == 0600 && is(victim, "whose this is\n"), "nobody else reads it meanwhile");
	check(!fstab_set(one, NULL, NULL, NULL, 0) && !stat(path, &before) && !fstab_set(one, NULL, NULL, NULL, 0) && !fstab_move(one, "/dev/mapper/b") &&
		      !stat(path, &after) && before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec, "without a line it is not written");
	unlink(victim);
}

static void held(const char *path, const uint8_t one[16], const uint8_t two[16])
{
	struct stat before, after;
	FILE *file = fopen(path, "w");

	fputs("/dev/a /a ext4 noatime,x-larder.stack=aa 0 2\n/dev/b /b ext4 nofail,x-larder.stack=bb 0 2\n", file);
	fclose(file);
	check(!stat(path, &before) && !fstab_hold(two) && !fstab_release(one) && !fstab_release(two) && !stat(path, &after) && before.st_ino == after.st_ino &&
		      !fstab_is_held(one) && !fstab_is_held(two), "no boot waits for it, or one may: nothing to hold, nothing to release");
	check(!fstab_hold(one) && fstab_is_held(one) && !fstab_is_held(two) &&
		      is(path, "/dev/a /a ext4 noatime,x-larder.stack=aa,nofail,x-larder.essential 0 2\n/dev/b /b ext4 nofail,x-larder.stack=bb 0 2\n"),
	      "held, none waits, and the line says that it is to");
	check(!fstab_hold(one) && !fstab_move(one, "/dev/c") && fstab_is_held(one) && !fstab_release(one) && !fstab_is_held(one) &&
		      is(path, "/dev/c /a ext4 noatime,x-larder.stack=aa 0 2\n/dev/b /b ext4 nofail,x-larder.stack=bb 0 2\n"), "released it is as it was");
	check(!fstab_hold(one) && !fstab_set_essential(one, "/a", false) && !fstab_is_held(one) && !fstab_hold(one) && !fstab_release(one) &&
		      is(path, "/dev/c /a ext4 noatime,x-larder.stack=aa,nofail 0 2\n/dev/b /b ext4 nofail,x-larder.stack=bb 0 2\n"),
	      "who says meanwhile that none is to wait is heard");
	check(!fstab_set(two, "/dev/b", "/b", "ext4", FSTAB_HELD) && fstab_is_held(two) && !fstab_release(two) &&
		      is(path, "/dev/c /a ext4 noatime,x-larder.stack=aa,nofail 0 2\n"
			       "/dev/b /b ext4 x-systemd.device-timeout=0,x-larder.stack=bb 0 2\n"), "and a new one");
	check(!setenv("LIBMOUNT_FSTAB", "/", 1) && fstab_hold(one) && !setenv("LIBMOUNT_FSTAB", "/nowhere/fstab", 1) && !fstab_hold(one) &&
		      !setenv("LIBMOUNT_FSTAB", path, 1), "what cannot be read may have a line that waits; what is not there has none");
}

/* Somebody's copy of the line, for a subvolume: it has the mark, and another directory. */
static void copies(const char *path, const uint8_t one[16])
{
	static const char home[] = "/dev/a /home btrfs nofail,subvol=home,x-larder.stack=aa\n", others[] = "/dev/z /z ext4 x-larder.stack=bb\n";
	char wanted[512];
	FILE *file = fopen(path, "w");

	fprintf(file, "%s/dev/a /srv btrfs nofail,x-larder.stack=aa\n%s", home, others);
	fclose(file);
	snprintf(wanted, sizeof(wanted), "%s/dev/a /new btrfs nofail,x-larder.stack=aa\n%s", home, others);
	check(!fstab_move_mount(one, "/srv/", "/new") && is(path, wanted), "the line of what it was mounted on moves, and no copy");
	snprintf(wanted, sizeof(wanted), "%s/dev/a /new btrfs x-larder.stack=aa\n%s", home, others);
	check(!fstab_set_essential(one, "/new", true) && is(path, wanted), "a boot waits for that one");
	check(fstab_move_mount(one, "/elsewhere", "/x") == LARDER_FAILED && fstab_set_essential(one, "/elsewhere", false) == LARDER_FAILED &&
		      fstab_take_out(one, "/elsewhere") == LARDER_FAILED && !fstab_take_out(one, "") && is(path, wanted), "which of several is not guessed");
	snprintf(wanted, sizeof(wanted), "/dev/b /home btrfs nofail,subvol=home,x-larder.stack=aa\n/dev/b /new btrfs x-larder.stack=aa\n%s", others);
	check(!fstab_move(one, "/dev/b") && is(path, wanted), "all of them have the new name of the device");
	check(!fstab_move(one, "/dev/a") && !fstab_take_out(one, "/new") && snprintf(wanted, sizeof(wanted), "%s%s", home, others) && is(path, wanted),
	      "that one goes, the copy stays");
	snprintf(wanted, sizeof(wanted), "%s%s/dev/a /new btrfs nofail,x-systemd.device-timeout=0,x-larder.stack=aa 0 0\n", home, others);
	check(!fstab_add(one, "/dev/a", "/new", "btrfs", 0) && !fstab_add(one, "/dev/a", "/new", "btrfs", 0) && is(path, wanted), "a new one beside it");
	check(!fstab_set(one, NULL, NULL, NULL, 0) && is(path, others), "with the stack all go");
	file = fopen(path, "w");
	fputs(home, file);
	fclose(file);
	check(!fstab_move_mount(one, "/srv", "/new") && is(path, "/dev/a /new btrfs nofail,subvol=home,x-larder.stack=aa\n") && !fstab_take_out(one, "/srv") &&
		      is(path, ""), "an only one is that of the stack, as of one that was cut off");
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

	check(fd >= 0 && write(fd, hand, strlen(hand)) == (ssize_t)strlen(hand), "one by hand, without an end of its line");
	close(fd);
	setenv("LIBMOUNT_FSTAB", path, 1);
	check(!fstab_set(one, "/dev/mapper/a", "/a b", "ext4", FSTAB_ESSENTIAL) && !fstab_set(two, "/dev/mapper/b", "/b", "xfs", FSTAB_REMOTE) &&
		      is(path, "# by hand\nLABEL=x / ext4 defaults 0 1\n"
			       "/dev/mapper/a /a\\040b ext4 x-systemd.device-timeout=0,x-larder.stack=aa 0 2\n"
			       "/dev/mapper/b /b xfs nofail,_netdev,x-systemd.after=larder-network.service,x-systemd.device-timeout=0,x-larder.stack=bb 0 0\n"), "a boot waits for what is essential alone, and that for ever for its device; what needs the network goes before that does");
	check(!fstab_move(one, "/dev/mapper/c") && !fstab_set(two, NULL, NULL, NULL, 0) &&
		      is(path, "# by hand\nLABEL=x / ext4 defaults 0 1\n"
			       "/dev/mapper/c /a\\040b ext4 x-systemd.device-timeout=0,x-larder.stack=aa 0 2\n"), "each is known by its mark");
	check(!fstab_move_mount(one, "/a b", "/new place") && !fstab_set_essential(one, "/new place", false) && !fstab_move_mount(two, "/b", "/nowhere") &&
		      is(path, "# by hand\nLABEL=x / ext4 defaults 0 1\n"
			       "/dev/mapper/c /new\\040place ext4 x-systemd.device-timeout=0,x-larder.stack=aa,nofail 0 2\n"), "another mount, for which no boot waits; of none there is nothing to move");
	file = fopen(path, "w");
	fputs("# x-larder.stack=aa\n \t/dev/mapper/c\t/a  ext4 nofail,x-nofail=1,noatime,x-larder.stack=aa,nofail\n", file);
	fclose(file);
	check(!fstab_set_essential(one, "/a", true) && !fstab_set_essential(one, "/a", true) && !fstab_move_mount(one, "/a", "/b") &&
		      is(path, "# x-larder.stack=aa\n \t/dev/mapper/c\t/b  ext4 x-nofail=1,noatime,x-larder.stack=aa\n"), "what somebody changed stays: blanks, other options, fields that are left out");
	check(!fstab_set_remote(one) && !fstab_set_remote(one) && !fstab_set_remote(two) &&
		      is(path, "# x-larder.stack=aa\n \t/dev/mapper/c\t/b  ext4 x-nofail=1,noatime,x-larder.stack=aa,_netdev,x-systemd.after=larder-network.service\n"), "a disk of the network that joins later");
	check(fstab_has(one) && !fstab_has(two) && !fstab_set(one, NULL, NULL, NULL, 0) && !fstab_has(one), "whether there is one; not in a comment");
	fd = open(path, O_WRONLY | O_TRUNC);
	check(fd >= 0 && write(fd, remarks, strlen(remarks)) == (ssize_t)strlen(remarks) && !close(fd) && !fstab_set(one, NULL, NULL, NULL, 0) &&
		      !fstab_move(two, "/dev/mapper/d") &&
		      is(path, "/dev/sda /x-larder.stack=aa ext4 defaults 0 0 x-larder.stack=aa\n"
			       "/dev/sdb /b ext4 x-larder.stack=aaa,y-x-larder.stack=aa 0 0\n"
			       "/dev/mapper/d /d xfs ,,x-larder.stack=bb\n"), "the mark is an option, all of it, and none of another line");
	check(fstab_mounts(two, "/d") && fstab_mounts(two, "//d/") && !fstab_mounts(two, "/b") && !fstab_mounts(one, "/d"), "what it is mounted on");
	check(is_other(two, "/b", "line 2 of", "/dev/sdb") && !fstab_other(two, "/d") && is_other(one, "/d/", "line 3 of", "/dev/mapper/d"),
	      "another line for a directory; its own is none");
	file = fopen(path, "w");
	fputs("# /dev/a /a ext4\n\n/dev/c none swap sw 0 0\nLABEL=a\\040b\t//a\\040b/ ext4 noauto\n/dev/d\n", file);
	fclose(file);
	check(is_other(one, "/a b", "line 4 of", "LABEL=a b") && !fstab_other(one, "/a") && !fstab_other(one, "/") && !fstab_other(one, "none"),
	      "by what its fields mean; not of a remark, or swap");
	held(path, one, two);
	copies(path, one);
	by_another_name(path, one);
	in_place(path, one);
	unlink(path);
	return failed;
}
