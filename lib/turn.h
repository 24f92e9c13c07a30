/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What larder keeps in /run/larder, for as long as the machine is up: a lock, so that a command and the daemon do not start the same thing
 * at once, and which caches and volumes somebody stopped, and what he locked, so that they are left so, or only until the network is there again; where a scrub was stopped; what arrays lacked when
 * that was noted on their disks, and what has come back since; when larderd began.  Nothing of it is needed to start anything.
 *
 * LARDER_RUN (run_file.h) names no other place for it: there is one lock for the whole machine.
 */
#ifndef LARDER_TURN_H
#define LARDER_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_DIRECTORY "/run/larder" /* gone at the next boot */

/* Waits for the lock, which the process holds from then on until it ends.  Of /run itself where there can be no /run/larder. */
void turn_take(void);
/* Before then: whoever waits for a human being does not hold up the others. */
void turn_give(void);
/* The same for a while, if it holds it, which is returned: what was looked at before is to be looked at again behind turn_resume(). */
bool turn_pause(void);
void turn_resume(bool held);
/* confirm() without the lock, if somebody is asked: what was looked at before is to be looked at again. */
int turn_confirm(const char *name, bool yes, const char *question);

/*
 * A mark on a cache, a volume, or the LUKS layer of a stack: somebody stopped it, or wants it again.  Where there can be none, that is
 * said, once.
 */
void stopped_set(const uint8_t uuid[16]);
void stopped_clear(const uint8_t uuid[16]);
bool stopped_is(const uint8_t uuid[16]);
/*
 * Said before a stop: a mark that this one sets is for a shutdown, and one that is none for the kernel (systemctl soft-reboot) keeps /run:
 * larder-network.service takes the mark away when it starts again.  One that was there before stays.  stopped_clear() takes this away, too.
 */
void stopped_for_shutdown(const uint8_t uuid[16]);
/* Those marked; the caller frees the list. */
size_t stopped_list(uint8_t (**uuids)[16]);

/* Of an array: where its scrub was stopped, and may go on; and what was found in front of that: md counts anew with each part. */
struct scrub_note {
	bool stopped, repair; /* and that made its disks the same */
	uint64_t at; /* sector of its disks */
	uint64_t differ; /* sectors: in front of it; (not stopped) of where the one that runs went on */
};
void scrub_note_set(const uint8_t uuid[16], const struct scrub_note *note);
void scrub_note_get(const uint8_t uuid[16], struct scrub_note *note); /* all 0: there is none */

/* Of a volume: the places of its array that lacked a disk when that was noted last (larder start --note), bit by bit.  false: that cannot be, see errno. */
bool lacks_set(const uint8_t uuid[16], uint64_t places);
uint64_t lacks_noted(const uint8_t uuid[16]);
/* The same of those where a disk is, or was, rebuilt since: that has what was noted, and may fail again. */
bool returned_set(const uint8_t uuid[16], uint64_t places);
uint64_t returned_since(const uint8_t uuid[16]);

/*
 * When larderd started for the first time in this boot, behind the initramfs: microseconds of CLOCK_MONOTONIC, of which it is `now`.  note: that it does so
 * now, if it has not before.
 */
uint64_t began_noted(uint64_t now, bool note);
void began_forget(void); /* the next start is that of a boot: the disks come anew */

#endif
