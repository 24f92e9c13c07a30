// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disks below what runs.
 *
 * From the child come lines: "disk", for one that has answered, and then "disk key: words" for each thing that is wrong with it.  What is wrong is
 * told when it was not before, by disk and key, as numbers in the words change; what is not any more, only of a disk that has answered.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_watch.h"
#include "disks.h"
#include "health.h"
#include "message.h"

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

static void answer(FILE *out, const struct disk *disk)
{
	struct health_of of = { .disk = disk->name, .cache = disk->cache, .rotational = disk_rotates(disk) };
	struct problems found = { 0 };
	struct health health;

	health_ask(&health, disk->name, false);
	if (!health.answered)
		return;
	health_judge(&health, &of, &found, &found);
	fprintf(out, "%s\n", disk->name);
	for (size_t i = 0; i < found.number; i++)
		fprintf(out, "%s %s\n", disk->name, found.text[i]);
	problems_free(&found);
}

static _Noreturn void ask(const struct mapped_list *list, int to)
{
	FILE *out = must_allocate(fdopen(to, "w"));
	struct disks disks = { 0 };

	find_disks(&disks, list);
	for (size_t i = 0; i < disks.number; i++)
		answer(out, &disks.disk[i]);
	_exit(fclose(out) ? LARDER_FAILED : LARDER_DONE);
}

void disk_watch_ask(struct disk_watch *watch, const struct mapped_list *list)
{
	pid_t parent = getpid();
	int ends[2];

	if (watch->child || pipe2(ends, O_CLOEXEC))
		return;
	fflush(NULL);
	watch->child = fork();
	if (!watch->child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		ask(list, ends[1]);
	}
	close(ends[1]);
	if (watch->child < 0) {
		close(ends[0]);
		watch->child = 0;
		return;
	}
	watch->answers = ends[0];
	watch->length = 0;
}

/* ------------------------------------------------------------------ what has changed */

static bool is_known(char *const *known, size_t number, const char *what)
{
	for (size_t i = 0; i < number; i++)
		if (!strcmp(known[i], what))
			return true;
	return false;
}

static void know(char ***known, size_t *number, char *what)
{
	*known = must_allocate(realloc(*known, (*number + 1) * sizeof(**known)));
	(*known)[(*number)++] = what;
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

/* Those that were known of this disk, and are not found any more. */
static void forget(struct disk_watch *watch, char *const *found, size_t nr_found, const char *disk, struct changes *changes)
{
	size_t length = strlen(disk), kept = 0;

	for (size_t i = 0; i < watch->nr_known; i++) {
		char *what = watch->known[i];

		if (strncmp(what, disk, length) || what[length] != ' ' || is_known(found, nr_found, what)) {
			watch->known[kept++] = what;
			continue;
		}
		tell(changes, "recovered", false, disk, length, must_print("%s is over", what + length + 1));
		free(what);
	}
	watch->nr_known = kept;
}

static void compare(struct disk_watch *watch, struct changes *changes)
{
	char **found = NULL, **disk = NULL, *rest = watch->text, *line;
	size_t nr_found = 0, nr_disks = 0;

	while ((line = strsep(&rest, "\n"))) {
		size_t name = strcspn(line, " "), key = strcspn(line, ":");
		char *what;

		if (!*line)
			continue;
		if (!line[name]) {
			know(&disk, &nr_disks, line);
			continue;
		}
		what = must_print("%.*s", (int)key, line);
		know(&found, &nr_found, what);
		if (is_known(watch->known, watch->nr_known, what))
			continue;
		know(&watch->known, &watch->nr_known, must_allocate(strdup(what)));
		tell(changes, "disk", true, line, name, must_print("%s", line + name + 1));
	}
	for (size_t i = 0; i < nr_disks; i++)
		forget(watch, found, nr_found, disk[i], changes);
	for (size_t i = 0; i < nr_found; i++)
		free(found[i]);
	free(found);
	free(disk);
}

bool disk_watch_hear(struct disk_watch *watch, struct changes *changes)
{
	ssize_t part;
	int status = 0;

	watch->text = must_allocate(realloc(watch->text, watch->length + 4096 + 1));
	part = read(watch->answers, watch->text + watch->length, 4096);
	if (part < 0 && errno == EINTR)
		return false;
	if (part > 0) {
		watch->length += (size_t)part;
		return false;
	}
	close(watch->answers);
	watch->answers = -1;
	while (waitpid(watch->child, &status, 0) < 0 && errno == EINTR)
		;
	watch->child = 0;
	watch->text[watch->length] = 0;
	if (!status) /* else a part of it may be missing */
		compare(watch, changes);
	return true;
}

void disk_watch_free(struct disk_watch *watch)
{
	if (watch->answers >= 0)
		close(watch->answers);
	for (size_t i = 0; i < watch->nr_known; i++)
		free(watch->known[i]);
	free(watch->known);
	free(watch->text);
	disk_watch_init(watch);
}
