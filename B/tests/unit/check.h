/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of a few fixed cases: a line for each, "ok" or "not ok", its number and what it is.  main() returns `failed`.  Random ones: seeded.h.
 */
#ifndef LARDER_TEST_CHECK_H
#define LARDER_TEST_CHECK_H

static int failed, checks;

static void check(bool good, const char *name)
{
	printf("%sok %d %s\n", good ? "" : "not ", ++checks, name);
	failed |= !good;
}

#endif
