// SPDX-License-Identifier: GPL-2.0-or-later
/* tools/stack_mkfs.c: which words go to mkfs, of a description too, which another one may have written. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../lib/message.c"
#include "../../tools/stack_mkfs.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static unsigned programs;
static char ran[512], errors[80];

int program_run(const char *const *words, char **said)
{
	*ran = 0;
	for (; *words; words++)
		snprintf(ran + strlen(ran), sizeof(ran) - strlen(ran), "%s ", *words);
	*said = NULL;
	programs++;
	return 0;
}

void stack_part(const struct stack *stack, const char *part, uint8_t uuid[16])
{
	memset(uuid, 0, 16);
}

const char *uuid_text(const uint8_t bytes[16], char text[static UUID_TEXT])
{
	return strcpy(text, "UUID");
}

bool turn_pause(void)
{
	return true;
}

void turn_resume(bool held)
{
}

int stack_check_same(const struct stack *stack)
{
	return LARDER_DONE;
}

static int make(const char *fs, const char *words)
{
	struct stack stack = { .name = "data" };

	strcpy(stack.fs, fs);
	strcpy(stack.mkfs, words);
	return stack_mkfs(&stack, "/dev/null");
}

static void options(void)
{
	CHECK(!make("ext4", "-m 1  -E stride=4,stripe_width=8 -O ^has_journal -L label"), "ext4");
	CHECK(!strcmp(ran, "mkfs.ext4 -q -F -U UUID -m 1 -E stride=4,stripe_width=8 -O ^has_journal -L label /dev/null "), "%s", ran);
	CHECK(!make("xfs", "-d su=64k,sw=2 -l size=64m,version=2 -n size=8192 -K -bsize=4096"), "xfs");
	CHECK(!strcmp(ran, "mkfs.xfs -q -f -m uuid=UUID -d su=64k,sw=2 -l size=64m,version=2 -n size=8192 -K -bsize=4096 /dev/null "), "%s", ran);
	CHECK(!make("btrfs", "-M --nodesize 16k --checksum=xxhash -O ^no-holes"), "btrfs");
	CHECK(!make("btrfs", "") && programs == 4, "none");
}

static void others(void)
{
	static const char *const refused[][2] = {
		{ "btrfs", "/dev/sdb1" },	   { "btrfs", "-m single ../dev/sdb1" },  { "btrfs", "-f dev/sdb1" },
		{ "btrfs", "-- disk" },		   { "btrfs", "-m single disk" },	  { "btrfs", "--rootdir=/srv" },
		{ "ext4", "-F /dev/sda2 -L" },	   { "ext4", "-m 1 disk" },		  { "ext4", "-m 1 - disk" },
		{ "ext4", "-J device=/dev/sda2" }, { "ext4", "-Jdevice=UUID=some" },	  { "ext4", "-d /srv" },
		{ "xfs", "-l logdev=/dev/sda2" },  { "xfs", "-lsize=64m,logdev=a-file" }, { "xfs", "-r rtdev=a-file" },
		{ "xfs", "-d file,name=a-file" },  { "xfs", "-coptions=/etc/some" },
	};

	programs = 0;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		CHECK(make(refused[i][0], refused[i][1]) == LARDER_USAGE && !programs, "%s", refused[i][1]);
}

int main(void)
{
	snprintf(errors, sizeof(errors), "/tmp/larder-mkfs-%d", getpid());
	if (!freopen(errors, "w", stderr)) /* each refusal is said */
		return 1;
	unlink(errors);
	run_test("options", options);
	run_test("others", others);
	return 0;
}
