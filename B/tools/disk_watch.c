// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disks below what runs.
 *
 * From the child come lines: "/disk sequence wwid", for one that it begins to ask; "disk", if that has answered, and then "disk key: words" for each thing
 * that is wrong with it; "/" behind it.  What is wrong is told when it was not before, by disk and key, as numbers in the words change; what is not any
 * more, only of a disk that has answered, or in the place, and by the name, of which there is another one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "disk_watch.h"
#include "disks.h"
#include "health.h"
#include "message.h"

#define LATER_S 10 /* behind one that was given up */

/* behind: they are asked because one was given up. */
static double patience(bool behind)
{
	double seconds = health_patience();

	return behind && seconds > LATER_S ? LATER_S : seconds;
}

void disk_watch_init(struct disk_watch *watch)
{
	*watch = (struct disk_watch){ .answers = -1 };
}

/* ------------------------------------------------------------------ the child */

/* Caches first: a volume lies on its cache's SSDs, too. */
static void find_disks(struct disks *disks, const struct mapped_list *list)
{
	const char *root = getenv("LARDER_ROOT");

	for (int cache = 1; cache >= 0; cache--)
		for (size_t i = 0; i < list->number; i++) {
			const struct mapped *m = &list->mapped[i];
			char *directory;

			if (m->cache != cache)
				continue;
			directory = disk_directory(root ? root : "", m->name, m->number, m->number);
			disks_below(disks, directory, cache);
			free(directory);
		}
}

/* Which disk it is: the kernel's number of it, and what it says itself, if anything. */
static void begin(FILE *out, const struct disk *disk)
{
	char *wwid = disk_identity(disk->directory);
	uint64_t sequence = 0;

	sysfs_number(disk->directory, "diskseq", &sequence);
	fprintf(out, "/%s %" PRIu64 " %s\n", disk->name, sequence, wwid ? wwid : "");
	fflush(out);
	free(wwid);
}

static void answer(FILE *out, const struct disk *disk)
{
	struct health_of of = { .disk = disk->name, .cache = disk->cache, .rotational = disk_rotates(disk) };
	struct problems found = { 0 };
	struct health health;

	health_ask(&health, disk->name, false, 0); /* who started us has a clock */
	if (!health.answered)
		return;
	health_judge(&health, &of, &found, &found);
	fprintf(out, "%s\n", disk->name);
	for (size_t i = 0; i < found.number; i++)
		fprintf(out, "%s %s\n", disk->name, found.text[i]);
	problems_free(&found);
}

static bool is_lost(const struct disk_watch *watch, const char *disk)
{
	for (size_t i = 0; i < watch->nr_lost; i++)
		if (!strcmp(watch->lost[i].disk, disk))
			return true;
	return false;
}

/*
 * What a program that hangs would have from us: no output, as whoever reads it waits for its end; but, by a descriptor that is not closed when it is
 * run, the pipe, by which it is known that it hangs still.
 */
static void leave_output(int to)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 || dup(to) < 0)
		_exit(LARDER_FAILED);
}

static _Noreturn void ask(const struct disk_watch *watch, const struct mapped_list *list, int to)
{
	FILE *out = must_allocate(fdopen(to, "w"));
	struct disks disks = { 0 };
	size_t first = 0;

	leave_output(to);
	find_disks(&disks, list);
	for (size_t i = 0; watch->behind && i < disks.number; i++)
		if (!strcmp(disks.disk[i].name, watch->behind))
			first = i + 1;
	for (size_t i = first; i < disks.number; i++) {
		const char *name = disks.disk[i].name;

		if (is_lost(watch, name) || strpbrk(name, "\n "))
			continue;
		begin(out, &disks.disk[i]);
		answer(out, &disks.disk[i]);
		fputs("/\n", out);
		fflush(out);
	}
	_exit(fclose(out) ? LARDER_FAILED : LARDER_DONE);
}

/* The child, and what it had begun. */
static bool has_ended(struct disk_lost *lost)
{
	char rest[4096];
	ssize_t part;

	if (lost->child && waitpid(lost->child, NULL, WNOHANG))
		lost->child = 0;
	do
		part = read(lost->answers, rest, sizeof(rest));
	while (part > 0);
	return !lost->child && !part;
}

static void forget_lost(struct disk_lost *lost)
{
	close(lost->answers);
	free(lost->disk);
}

static void find_again(struct disk_watch *watch)
{
	size_t kept = 0;

	for (size_t i = 0; i < watch->nr_lost; i++) {
		if (has_ended(&watch->lost[i]))
			forget_lost(&watch->lost[i]);
		else
			watch->lost[kept++] = watch->lost[i];
	}
	watch->nr_lost = kept;
}

void disk_watch_ask(struct disk_watch *watch, const struct mapped_list *list)
{
	pid_t parent = getpid();
	int ends[2];

	if (watch->child)
		return;
	if (!watch->behind)
		find_again(watch);
	if (pipe2(ends, O_CLOEXEC))
		return;
	fflush(NULL);
	watch->child = fork();
	if (!watch->child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		ask(watch, list, ends[1]);
	}
	close(ends[1]);
	if (watch->child < 0) {
		close(ends[0]);
		watch->child = 0;
		return;
	}
	watch->answers = ends[0];
	watch->length = 0;
	watch->since = clock_seconds(); /* it looks for them first */
}

/* ------------------------------------------------------------------ what has changed */

/* One that came back may have another number; without either nobody knows, and it counts as the same. */
static bool is_same_disk(const char *one, const char *other)
{
	const char *wwid = strchr(one, ' ') + 1, *other_wwid = strchr(other, ' ') + 1;
	unsigned long long sequence = strtoull(one, NULL, 10), other_sequence = strtoull(other, NULL, 10);

	if (*wwid && *other_wwid)
		return !strcmp(wwid, other_wwid);
	return !sequence || !other_sequence || sequence == other_sequence;
}

static bool is_of(const char *what, const char *disk)
{
	size_t length = strlen(disk);

	return !strncmp(what, disk, length) && what[length] == ' ';
}

static bool is_found(const struct disk_watch *watch, const char *what)
{
	for (size_t i = 0; i < watch->nr_found; i++)
		if (!strcmp(watch->found[i], what))
			return true;
	return false;
}

static bool is_known(const struct disk_watch *watch, const char *what)
{
	for (size_t i = 0; i < watch->nr_known; i++)
		if (!strcmp(watch->known[i].what, what))
			return true;
	return false;
}

static void find(struct disk_watch *watch, char *what)
{
	watch->found = must_allocate(realloc(watch->found, (watch->nr_found + 1) * sizeof(*watch->found)));
	watch->found[watch->nr_found++] = what;
}

/* Of the disk that is asked. */
static void know(struct disk_watch *watch, const char *what)
{
	watch->known = must_allocate(realloc(watch->known, (watch->nr_known + 1) * sizeof(*watch->known)));
	watch->known[watch->nr_known++] = (struct disk_known){ must_print("%s", what), must_print("%s", watch->which) };
}

static void tell(struct changes *changes, const char *event, bool alarm, const char *disk, size_t length, char *text)
{
	changes_add(changes, &(struct change){
				     .event = event,
				     .kind = "disk",
				     .alarm = alarm,
				     .name = must_print("%.*s", (int)length, disk),
				     .device = must_print("/dev/%.*s", (int)length, disk),
				     .text = text,
			     });
}

/* Of the disk that is asked what was known is over, with these words behind that: where it was found again, only of another disk (other). */
static void forget(struct disk_watch *watch, bool other, const char *words, struct changes *changes)
{
	size_t length = strlen(watch->asked), kept = 0;

	for (size_t i = 0; i < watch->nr_known; i++) {
		struct disk_known *known = &watch->known[i];

		if (!is_of(known->what, watch->asked) || (other ? is_same_disk(known->which, watch->which) : is_found(watch, known->what))) {
			watch->known[kept++] = *known;
			continue;
		}
		tell(changes, "recovered", false, watch->asked, length, must_print("%s is over%s", known->what + length + 1, words));
		free(known->what);
		free(known->which);
	}
	watch->nr_known = kept;
}

/* "disk key: words", of which name and key are so long */
static void take_wrong(struct disk_watch *watch, const char *line, size_t name, size_t key, struct changes *changes)
{
	char *what = must_print("%.*s", (int)key, line);

	find(watch, what);
	if (is_known(watch, what))
		return;
	know(watch, what);
	tell(changes, "disk", true, line, name, must_print("%s", line + name + 1));
}

static void end_disk(struct disk_watch *watch)
{
	for (size_t i = 0; i < watch->nr_found; i++)
		free(watch->found[i]);
	watch->nr_found = 0;
	free(watch->asked);
	free(watch->which);
	watch->asked = watch->which = NULL;
	watch->answered = false;
}

/* "disk sequence wwid", of which the name is so long */
static void begin_disk(struct disk_watch *watch, const char *line, size_t name, struct changes *changes)
{
	watch->asked = must_print("%.*s", (int)name, line);
	watch->which = must_print("%s", line + name + 1);
	forget(watch, true, ": it is another disk now", changes);
}

static void take_line(struct disk_watch *watch, const char *line, struct changes *changes)
{
	size_t name = strcspn(line, " ");

	if (*line == '/') {
		if (watch->answered)
			forget(watch, false, "", changes);
		end_disk(watch);
		if (line[1])
			begin_disk(watch, line + 1, name - 1, changes);
		watch->since = clock_seconds();
	} else if (line[name]) {
		take_wrong(watch, line, name, strcspn(line, ":"), changes);
	} else if (*line) {
		watch->answered = watch->asked;
	}
}

/* Of its child, whose pipe is another's by now. */
static void stop_hearing(struct disk_watch *watch)
{
	watch->answers = -1;
	watch->child = 0;
	end_disk(watch);
	free(watch->behind);
	watch->behind = NULL;
}

void disk_watch_hear(struct disk_watch *watch, struct changes *changes)
{
	char *rest, *end;
	ssize_t part;

	watch->text = must_allocate(realloc(watch->text, watch->length + 4096 + 1));
	part = read(watch->answers, watch->text + watch->length, 4096);
	if (part < 0 && errno == EINTR)
		return;
	if (part <= 0) {
		while (waitpid(watch->child, NULL, 0) < 0 && errno == EINTR)
			;
		close(watch->answers);
		stop_hearing(watch);
		return;
	}
	watch->length += (size_t)part;
	watch->text[watch->length] = 0;
	for (rest = watch->text; (end = strchr(rest, '\n')); rest = end + 1) {
		*end = 0;
		take_line(watch, rest, changes);
	}
	watch->length -= (size_t)(rest - watch->text);
	memmove(watch->text, rest, watch->length);
}

double disk_watch_left(const struct disk_watch *watch)
{
	double left = watch->since + patience(watch->behind) - clock_seconds();

	return watch->answers < 0 ? -1 : left > 0 ? left : 0;
}

void disk_watch_give_up(struct disk_watch *watch, struct changes *changes)
{
	char *disk = watch->asked, *which = watch->which, *words, *line;
	double seconds = patience(watch->behind);

	if (watch->answers < 0 || clock_seconds() < watch->since + seconds)
		return;
	watch->asked = watch->which = NULL;
	kill(watch->child, SIGKILL);
	watch->lost = must_allocate(realloc(watch->lost, (watch->nr_lost + 1) * sizeof(*watch->lost)));
	watch->lost[watch->nr_lost++] = (struct disk_lost){ watch->child, watch->answers, must_print("%s", disk ? disk : "") };
	fcntl(watch->answers, F_SETFL, O_NONBLOCK);
	stop_hearing(watch);
	if (!disk)
		return;
	words = health_silence(disk, seconds);
	line = must_print("%s answer: %s", disk, words);
	watch->which = which;
	take_wrong(watch, line, strlen(disk), strcspn(line, ":"), changes);
	end_disk(watch);
	free(line);
	free(words);
	watch->behind = disk;
}

void disk_watch_free(struct disk_watch *watch)
{
	if (watch->answers >= 0) {
		close(watch->answers);
		stop_hearing(watch);
	}
	for (size_t i = 0; i < watch->nr_known; i++) {
		free(watch->known[i].what);
		free(watch->known[i].which);
	}
	for (size_t i = 0; i < watch->nr_lost; i++)
		forget_lost(&watch->lost[i]);
	free(watch->found);
	free(watch->known);
	free(watch->lost);
	free(watch->behind);
	free(watch->text);
	disk_watch_init(watch);
}
