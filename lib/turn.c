// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /run/larder: lock, stopped/UUID, shutdown/UUID, scrub-UUID, lacks-UUID, returned-UUID, and began.  Empty files, and numbers as targets of symbolic links, which a tmpfs keeps in
 * the inode: where somebody has filled /run up all of it still works.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "message.h"
#include "superblock.h"
#include "turn.h"

#define STOPPED RUN_DIRECTORY "/stopped"
#define SHUTDOWN RUN_DIRECTORY "/shutdown" /* of these marks: udev/larder-network.service reads it */

#define STEP_US 50000
#define TELL_US 5000000

static int lock = -1;

/* For a moment others have it all the time; who sits at a terminal is told of more. */
static void wait_and_tell(void)
{
	for (unsigned waited = 0; isatty(STDERR_FILENO) && flock(lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; waited += STEP_US) {
		if (waited >= TELL_US) {
			remark("waits for its turn: another larder, or larderd, is at work; fuser -v " RUN_DIRECTORY "/lock names it");
			return;
		}
		usleep(STEP_US);
	}
}

void turn_take(void)
{
	mkdir(RUN_DIRECTORY, 0755);
	if (lock < 0)
		lock = open(RUN_DIRECTORY "/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0)
		lock = open("/run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock >= 0)
		wait_and_tell();
	while (lock >= 0 && flock(lock, LOCK_EX) && errno == EINTR)
		;
}

void turn_give(void)
{
	if (lock >= 0)
		close(lock);
	lock = -1;
}

bool turn_pause(void)
{
	bool held = lock >= 0;

	turn_give();
	return held;
}

void turn_resume(bool held)
{
	if (held)
		turn_take();
}

int turn_confirm(const char *name, bool yes, const char *question)
{
	bool held = !yes && isatty(STDIN_FILENO) && turn_pause();
	int result = confirm(name, yes, question);

	turn_resume(held);
	return result;
}

#define MARK_PATH (sizeof(SHUTDOWN) + UUID_TEXT + 1)

static void path_of(const char *directory, const uint8_t uuid[16], char path[static MARK_PATH])
{
	char text[UUID_TEXT];

	snprintf(path, MARK_PATH, "%s/%s", directory, uuid_text(uuid, text));
}

/* False: see errno. */
static bool mark(const char *directory, const uint8_t uuid[16])
{
	char path[MARK_PATH];
	int fd;

	mkdir(RUN_DIRECTORY, 0755);
	mkdir(directory, 0755);
	path_of(directory, uuid, path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void stopped_set(const uint8_t uuid[16])
{
	static bool said;
	bool good = mark(STOPPED, uuid);

	if (!good && !said)
		remark(STOPPED ": %s: what is stopped now cannot be noted, and larderd may start it again: mend /run", strerror(errno));
	said |= !good;
}

void stopped_for_shutdown(const uint8_t uuid[16])
{
	if (!stopped_is(uuid) && !mark(SHUTDOWN, uuid))
		remark(SHUTDOWN ": %s: what is stopped now stays so behind systemctl soft-reboot: mend /run", strerror(errno));
}

void stopped_clear(const uint8_t uuid[16])
{
	static const char *const directories[] = { STOPPED, SHUTDOWN };
	char path[MARK_PATH];

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
		path_of(directories[i], uuid, path);
		unlink(path);
	}
}

bool stopped_is(const uint8_t uuid[16])
{
	char path[MARK_PATH];

	path_of(STOPPED, uuid, path);
	return !access(path, F_OK);
}

size_t stopped_list(uint8_t (**uuids)[16])
{
	DIR *directory = opendir(STOPPED);
	struct dirent *entry;
	size_t number = 0;

	*uuids = NULL;
	while (directory && (entry = readdir(directory))) {
		uint8_t uuid[16];

		if (uuid_parse(entry->d_name, uuid))
			continue;
		*uuids = must_allocate(realloc(*uuids, (number + 1) * sizeof(**uuids)));
		memcpy((*uuids)[number++], uuid, 16);
	}
	if (directory)
		closedir(directory);
	return number;
}

/* ------------------------------------------------------------------ numbers: 0 is none */

#define NOTE_TEXT   48
#define NUMBER_PATH (sizeof(RUN_DIRECTORY) + 24 + UUID_TEXT)

/* uuid: NULL where there is one for all. */
static void number_path(const char *what, const uint8_t *uuid, const char *suffix, char path[static NUMBER_PATH])
{
	char text[UUID_TEXT];

	snprintf(path, NUMBER_PATH, RUN_DIRECTORY "/%s%s%s%s", what, uuid ? "-" : "", uuid ? uuid_text(uuid, text) : "", suffix);
}

static bool note_set(const char *what, const uint8_t *uuid, const char *text)
{
	char path[NUMBER_PATH], new[NUMBER_PATH];

	number_path(what, uuid, "", path);
	if (!*text)
		return !unlink(path) || errno == ENOENT;
	number_path(what, uuid, ".new", new);
	mkdir(RUN_DIRECTORY, 0755);
	unlink(new);
	return !symlink(text, new) && !rename(new, path);
}

static bool note_get(const char *what, const uint8_t *uuid, char text[static NOTE_TEXT])
{
	char path[NUMBER_PATH];
	ssize_t n;

	number_path(what, uuid, "", path);
	n = readlink(path, text, NOTE_TEXT - 1);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

static bool number_set(const char *what, const uint8_t *uuid, uint64_t number)
{
	char text[NOTE_TEXT] = "";

	if (number)
		snprintf(text, sizeof(text), "%" PRIu64, number);
	return note_set(what, uuid, text);
}

static uint64_t number_get(const char *what, const uint8_t *uuid)
{
	char text[NOTE_TEXT], *end;
	uint64_t number;

	if (!note_get(what, uuid, text))
		return 0;
	errno = 0;
	number = strtoull(text, &end, 10);
	return *end || errno ? 0 : number;
}

/* "AT+DIFFER", with an r behind it of a repair; "+DIFFER" of one that was not stopped. */
void scrub_note_set(const uint8_t uuid[16], const struct scrub_note *note)
{
	char text[NOTE_TEXT] = "";

	if (note->stopped)
		snprintf(text, sizeof(text), "%" PRIu64 "+%" PRIu64 "%s", note->at, note->differ, note->repair ? "r" : "");
	else if (note->differ)
		snprintf(text, sizeof(text), "+%" PRIu64, note->differ);
	note_set("scrub", uuid, text);
}

void scrub_note_get(const uint8_t uuid[16], struct scrub_note *note)
{
	char text[NOTE_TEXT], *end = text;

	*note = (struct scrub_note){ 0 };
	if (!note_get("scrub", uuid, text))
		return;
	note->stopped = *text >= '0' && *text <= '9';
	if (note->stopped)
		note->at = strtoull(text, &end, 10);
	if (*end == '+')
		note->differ = strtoull(end + 1, &end, 10);
	note->repair = note->stopped && *end == 'r';
}

bool lacks_set(const uint8_t uuid[16], uint64_t places)
{
	return number_set("lacks", uuid, places);
}

uint64_t lacks_noted(const uint8_t uuid[16])
{
	return number_get("lacks", uuid);
}

bool returned_set(const uint8_t uuid[16], uint64_t places)
{
	return number_set("returned", uuid, places);
}

uint64_t returned_since(const uint8_t uuid[16])
{
	return number_get("returned", uuid);
}

uint64_t began_noted(uint64_t now, bool note)
{
	uint64_t began = number_get("began", NULL);

	if (began && began <= now)
		return began;
	if (note)
		number_set("began", NULL, now); /* where it cannot be, a restart has to wait anew */
	return now;
}

void began_forget(void)
{
	number_set("began", NULL, 0);
}
