/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Other programs: mdadm, mkfs, mount, systemctl. */
#ifndef LARDER_PROGRAM_H
#define LARDER_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * What stands before the words of a program that is to run as a unit of systemd's own: outside of our sandbox, and on when we are gone.  Ends with
 * NULL; then come --setenv NAME=VALUE, "--", and the words.
 */
extern const char *const program_unit[];
/* A variable with which larder, in such a unit, ends with 128 + SIGTERM if that ends it: systemd-run would say 0. */
#define PROGRAM_WAITED_FOR "LARDER_WAITED_FOR"
/* A variable with the seconds for which larder waits for a secret (luks.h), of a stranger whose pipe may never end; without it, for ever. */
#define PROGRAM_SECRET_WAIT "LARDER_SECRET_WAIT"
/*
 * Are we such a unit of systemd, which may be confined, or stopped, and can it be asked for another one?  By D-Bus alone: early at a boot, and
 * on a machine without, the program is to be run as it is.
 */
bool program_is_unit(void);
/* Is it in PATH, or where the system keeps programs of root? */
bool program_there(const char *name);
/*
 * Runs it, words ending with NULL, without stdin and locale; it dies when we do.  Returns its exit code, or 127.  *said, to be freed by
 * the caller: the last line that it printed, "" if none.
 */
int program_run(const char *const *words, char **said);
/* Likewise, beside us: what it prints is read from *out, which the caller closes; its complaints go to our stderr.  -1: errno says why not. */
pid_t program_begin(const char *const *words, int *out);
/* The same, with a stdin, which the caller closes. */
pid_t program_begin_with(const char *const *words, int in, int *out);
/* Likewise, with its complaints among what it prints. */
pid_t program_begin_all(const char *const *words, int *out);
/*
 * Likewise, to its end: what it prints, of which `room` bytes are kept, and nothing else of it.  What has not ended by then (seconds; 0: for ever) is
 * killed, and not waited for, as it may not hear that: false.  An exit code is not looked at.
 */
bool program_answer(const char *const *words, double seconds, char *answer, size_t room, size_t *length);
/* A word for a program in such a unit, to be freed by the caller: systemd would put in variables.  Not for the first one, the program's name. */
char *program_unit_word(const char *word);
/* Waits for its end, which (stop) it is told of.  Returns its exit code, or 127. */
int program_end(pid_t child, bool stop);

#endif
