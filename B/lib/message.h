/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the command says, and how it ends.
 *
 * Whoever notices an error says it, once, in one line on stderr: which device, which field, what to do next; and returns the exit
 * code.  So a function of this library that returns an int returns 0 or one of these codes, and has already spoken.
 */
#ifndef LARDER_MESSAGE_H
#define LARDER_MESSAGE_H

#include <stdarg.h>
#include <stdbool.h>

enum larder_exit {
	LARDER_DONE = 0,
	LARDER_FAILED = 1,
	LARDER_USAGE = 2,
	LARDER_NOT_FOUND = 3,
	LARDER_BUSY = 4,
	LARDER_UNSAFE = 5, /* refused: it would, or could, lose data */
};

/* Prints "larder: ..." as one line on stderr, bytes that could confuse a terminal replaced; returns code. */
int complain(enum larder_exit code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what is no error. */
void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Asks on stderr, reads a line of stdin. */
bool answer_is_yes(const char *question);
/* The same before what is done to `name`, unless (yes) it was answered already, or there is no terminal to ask at.  Complains when the answer is no. */
int confirm(const char *name, bool yes, const char *question);

/* Out of memory is the one error nobody recovers from here: says so and ends the process with LARDER_FAILED. */
void *must_allocate(void *pointer);
char *must_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *must_vprint(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

#endif
