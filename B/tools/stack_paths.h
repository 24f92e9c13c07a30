/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Paths on this machine that go with a stack: mount point, key file, backup of the LUKS header.  May they be used? */
#ifndef LARDER_STACK_PATHS_H
#define LARDER_STACK_PATHS_H

#include "stack.h"

#define BACKUP_DIRECTORY "/var/lib/larder" /* of backups that were not told where to be */

/* Where it is to be mounted is a directory, nothing is mounted there, and no line in fstab but its own would be.  Complains. */
int stack_check_mount(const struct stack *stack);
/*
 * A key file that lies behind the mount would never be read.  Where both lie is seen without links.  option: what it is said by.
 * Complains.
 */
int stack_check_keyfile(const struct stack *stack, const char *option);

/* Where the backup of its LUKS header goes, to be freed by the caller; NULL: nowhere.  word: of --header-backup, or NULL. */
char *stack_backup_path(const struct stack *stack, const char *word);
/* What is there by that name, if anything, may be replaced: it is a backup of the header of this stack.  Complains. */
int stack_check_backup_file(const struct stack *stack, const char *path);
/* It does not lie behind the mount of the stack, as with a key file.  Complains. */
int stack_check_backup_place(const struct stack *stack, const char *path);
/* The one of the default name, if there is one, would not be hidden by that mount (--mount).  Complains. */
int stack_check_backup_seen(const struct stack *stack);
/*
 * May it be made there, as --header-backup (word; NULL: not given) has it?  Where that file is there it is one of this stack's, of
 * a try that was cut short.  Makes BACKUP_DIRECTORY, if it would lie there; a dry run makes none, and leaves open whether
 * the directory can be written to.  Complains.
 */
int stack_check_backup(const struct stack *stack, const char *word, bool dry_run);

#endif
