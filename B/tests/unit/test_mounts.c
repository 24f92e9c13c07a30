// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/mounts.c: lines of mountinfo, as the kernel writes them, and such that are none.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/mounts.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

/* The first one of it, which is found; NULL: there is none. */
static struct mount *read_text(const char *text)
{
	struct mount *mount = calloc(1, sizeof(*mount));
	FILE *file = fmemopen((void *)text, strlen(text), "r");
	bool there = mounts_next(file, mount);

	fclose(file);
	if (there)
		return mount;
	free(mount);
	return NULL;
}

static void words(void)
{
	struct mount *m = read_text("36 35 98:7 /@ /mnt\\040a\\134b rw,noatime master:1 propagate_from:2 - btrfs /dev/mapper/a\\134x20b rw,errors=continue\n");

	CHECK(m && m->id == 36 && m->parent == 35 && m->high == 98 && m->low == 7, "numbers");
	CHECK(!strcmp(m->root, "/@") && !strcmp(m->point, "/mnt a\\b") && !strcmp(m->type, "btrfs"), "%s, %s, %s", m->root, m->point, m->type);
	CHECK(!strcmp(m->source, "/dev/mapper/a\\x20b"), "a source is octal, too: %s", m->source);
	free(m);
	m = read_text("1 1 0:1 / /a\\0 rw - tmpfs  rw\n");
	CHECK(m && !strcmp(m->point, "/a\\0") && !*m->source, "an end in the middle of what looks octal; no source");
	free(m);
}

/* Each is followed by a good one, which is found. */
static void broken(void)
{
	static const char *const lines[] = { "36 35 98:0 /a - ext4 /dev/sda rw", "36 35 98:0 /a /b rw ext4 /dev/sda", "36 35 98 / /b rw - ext4 x rw", "", "36 35 98:0 / /b rw -" };
	char text[PATH_MAX * 6], *at;
	struct mount *m;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		snprintf(text, sizeof(text), "%s\n1 1 0:1 / /good rw - tmpfs tmpfs rw\n", lines[i]);
		m = read_text(text);
		CHECK(m && !strcmp(m->point, "/good"), "of '%s' there is %s", lines[i], m ? m->point : "none");
		free(m);
	}
	/* as long as a path can be, all of it octal; and longer by a byte */
	for (int more = 0; more < 2; more++) {
		at = text + sprintf(text, "36 35 98:0 / /");
		for (int i = 0; i < PATH_MAX - 2 + more; i++)
			at += sprintf(at, "\\040");
		strcpy(at, " rw - ext4 /dev/sda rw\n1 1 0:1 / /good rw - tmpfs tmpfs rw\n");
		m = read_text(text);
		CHECK(m && (more ? !strcmp(m->point, "/good") : strlen(m->point) == PATH_MAX - 1), "%s", m ? m->point : "none");
		free(m);
	}
}

/* Of this machine: a filesystem that is mounted, and a directory of it. */
static void points(void)
{
	CHECK(mounts_has("/proc") == 1, "%d", mounts_has("/proc"));
	CHECK(!mounts_has("/proc/self") && !mounts_has("/proc/"), "%d, %d", mounts_has("/proc/self"), mounts_has("/proc/"));
}

int main(void)
{
	run_test("words", words);
	run_test("points", points);
	run_test("broken", broken);
	return 0;
}
