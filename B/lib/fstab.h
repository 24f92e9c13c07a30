/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A marked line in fstab for a stack: the mark is an option of the line, x-larder.stack=UUID.  Who copies that line for another directory, a subvolume say,
 * has several with the mark.
 */
#ifndef LARDER_FSTAB_H
#define LARDER_FSTAB_H

#include <stdbool.h>
#include <stdint.h>

/* Does systemd make mount units of this fstab? */
bool fstab_is_systemds(void);
#define FSTAB_REMOTE 1u /* it needs the network, and is unmounted before that goes */
#define FSTAB_ESSENTIAL 2u /* a boot does wait for it */
#define FSTAB_HELD 4u /* it will, behind fstab_release() */
/*
 * Puts it there in the place of those with the mark; changes nothing else.  source NULL: takes them out; where there is
 * none fstab is not written.  A boot does not wait for the device, which is mounted whenever it comes.  flags: FSTAB_*.  Complains.
 */
int fstab_set(const uint8_t uuid[16], const char *source, const char *directory, const char *type, unsigned flags);
/* Is there such a line?  False also where fstab cannot be read. */
bool fstab_has(const uint8_t uuid[16]);
/* The same, of one that names this directory. */
bool fstab_mounts(const uint8_t uuid[16], const char *directory);
/*
 * The first line of somebody else that names this directory, which whoever mounts it by fstab may take for ours: "line 7 of /etc/fstab, /dev/sdb1", to be
 * freed; NULL: there is none, or fstab cannot be read.
 */
char *fstab_other(const uint8_t uuid[16], const char *directory);
/* The same lines, if they are there: what somebody changed in them besides stays.  Complain. */
int fstab_move(const uint8_t uuid[16], const char *source);
int fstab_set_remote(const uint8_t uuid[16]); /* FSTAB_REMOTE, from now on */
/*
 * Of several the one for the directory that the stack is, or (before) was, mounted on, which may be empty: none of several; an only one whatever it
 * names.  Others stay as they are.  Complain, too, where none of several names it.
 */
int fstab_add(const uint8_t uuid[16], const char *source, const char *directory, const char *type, unsigned flags); /* as fstab_set(), and none moves */
int fstab_take_out(const uint8_t uuid[16], const char *before);
int fstab_move_mount(const uint8_t uuid[16], const char *before, const char *directory);
int fstab_set_essential(const uint8_t uuid[16], const char *directory, bool essential);
/*
 * While the device that such a line names may not come, a boot would wait for ever: held, none waits, and the line says that it is to once it is
 * released.  Nothing to be done where a boot does not wait, or is held already; or is not held.  Complain.
 */
int fstab_hold(const uint8_t uuid[16]);
int fstab_release(const uint8_t uuid[16]);
bool fstab_is_held(const uint8_t uuid[16]);

#endif
