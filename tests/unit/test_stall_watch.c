// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon/stall_watch.c: what a larderd that was killed, or restarted, has told of stays told of until it is judged; and who stood still does not catch up with looks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "../../daemon/stall_watch.c"

#include "check.h"

#define DATA  "00000000-0000-4000-8000-00000000000a" /* a volume that runs */
#define OTHER "00000000-0000-4000-8000-00000000000b" /* and one that does not */

static char root[] = "/tmp/larder-stall-watch-XXXXXX";

static void __attribute__((format(printf, 1, 2))) shell(const char *format, ...)
{
	va_list args;
	char *command;

	va_start(args, format);
	command = must_vprint(format, args);
	va_end(args);
	if (system(command))
		exit(1);
	free(command);
}

static void put_stat(const char *disk, int answered, int in_flight)
{
	shell("cd %s/sys/devices/%s && echo %d 0 0 0 0 0 0 0 %d 0 0 0 0 0 0 0 0 >stat.new && mv stat.new stat", root, disk, answered, in_flight);
}

static void make_disk(const char *disk, int in_flight)
{
	shell("cd %s && mkdir -p sys/devices/%s/slaves sys/devices/%s/mq sys/block && ln -s %s/sys/devices/%s sys/block/%s", root, disk, disk, root, disk, disk);
	put_stat(disk, 10, in_flight);
	if (strcmp(disk, "dm-0") != 0)
		shell("ln -s %s/sys/devices/%s %s/sys/devices/dm-0/slaves/%s", root, disk, root, disk);
}

static void add_told(struct stalled_list *list, const char *disk, const char *uuid)
{
	struct stalled one = { .since = 1, .name = must_print("data"), .text = must_print("%s hangs, as was told", disk) };

	strcpy(one.disk, disk);
	strcpy(one.uuid, uuid);
	stalled_add(list, &one);
}

/* The disks of the file, as it is now; of those that were told of before with a star. */
static char *told(void)
{
	struct stalled_list list;
	char *all = must_print("%s", "");

	stalled_read(&list);
	for (size_t i = 0; i < list.number; i++) {
		const struct stalled *s = &list.stalled[i];
		char *more = must_print("%s%s%s ", all, s->disk, s->since == 1 && strstr(s->text, "was told") ? "*" : "");

		free(all);
		all = more;
	}
	stalled_free(&list);
	return all;
}

/* Runs the loop until these are told of. */
static void check_told(sd_event *event, const char *wanted, const char *name)
{
	double giving_up = clock_seconds() + 30;
	char *now = told();

	while (strcmp(now, wanted) != 0 && clock_seconds() < giving_up) {
		sd_event_run(event, 50000);
		free(now);
		now = told();
	}
	check(!strcmp(now, wanted), name);
	if (strcmp(now, wanted) != 0)
		printf("# told: %s\n", now);
	free(now);
}

static void run_for(sd_event *event, double seconds)
{
	for (double end = clock_seconds() + seconds; clock_seconds() < end;)
		sd_event_run(event, 50000);
}

/* What the journal has got since: the first line of each. */
static char *said(int fd)
{
	char *all = must_print("%s", ""), got[1024];
	ssize_t length;

	while ((length = recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT)) >= 0) {
		char *more;

		got[length] = 0;
		got[strcspn(got, "\n")] = 0;
		more = must_print("%s%s\n", all, got + strlen("MESSAGE="));
		free(all);
		all = more;
	}
	return all;
}

static void check_said(int fd, const char *wanted, const char *name)
{
	char *all = said(fd);

	check(!strcmp(all, wanted), name);
	if (strcmp(all, wanted) != 0)
		printf("# %s\n", all);
	free(all);
}

static unsigned changes, looks;

static void changed(void *data)
{
	(void)data;
	changes++;
}

int mapped_scan(struct mapped_list *list)
{
	*list = (struct mapped_list){ 0 };
	return LARDER_FAILED;
}

void mapped_list_free(struct mapped_list *list)
{
}

static void make_dm(unsigned number, const char *name, const char *uuid)
{
	shell("cd %s && mkdir -p sys/devices/dm-%u/dm sys/devices/dm-%u/slaves sys/block && echo %s >sys/devices/dm-%u/dm/name && echo LARDER-%s >sys/devices/dm-%u/dm/uuid && "
	      "ln -s %s/sys/devices/dm-%u sys/block/dm-%u", root, number, number, name, number, uuid, number, root, number, number);
}

/* As by dmsetup: no two are called the same. */
static void names(void)
{
	static const char *const shown[] = { "fast", "larder-cache-fast", "larder-cache-", "other", "larder-cache-data" };
	static const char *const of_dm[] = { "fast", "larder-cache-fast", "larder-cache-", "larder-cache-other", "larder-cache-data" };
	struct stall_watch watch = { 0 };
	struct tops tops = { 0 };
	unsigned found = 0;

	stalls_init(&watch.stalls, root);
	for (unsigned i = 0; i < 5; i++)
		make_dm(90 + i, of_dm[i], i < 4 ? DATA "-cache" : DATA);
	find_tops(&watch, &tops);
	for (size_t i = 0; i < tops.number; i++)
		for (unsigned k = 0; k < 5; k++)
			found |= !strcmp(tops.top[i].name, shown[k]) << k;
	check(tops.number == 5 && found == 0x1f, "a cache goes by its name without larder-cache-, unless that is another one's, or nothing");
	free(tops.top);
	stalls_free(&watch.stalls);
	shell("rm -r %s/sys", root);
}

static void those_that_are_left(sd_event *event, int journal)
{
	struct stalled_list before = { 0 };
	struct stall_watch *watch;

	make_disk("dm-0", 0);
	shell("mkdir %s/sys/devices/dm-0/dm && echo data >%s/sys/devices/dm-0/dm/name && echo LARDER-" DATA " >%s/sys/devices/dm-0/dm/uuid", root, root, root);
	make_disk("sda", 2);
	make_disk("sdb", 2);
	make_disk("sdc", 0);
	add_told(&before, "sda", DATA);
	add_told(&before, "sdb", DATA);
	add_told(&before, "sdc", DATA);
	add_told(&before, "sdd", DATA);
	add_told(&before, "sda", OTHER);
	check(!stalled_write(&before), "a larderd was killed");
	stalled_free(&before);
	check(stall_watch_new(&watch, event, true, changed, NULL) >= 0, "there is another one");
	check_told(event, "sda* sdb* sdc* sdd* sda* ", "what was told of still is");
	stall_watch_set(watch, 3);
	check_told(event, "sda* sdb* ", "of that the first look leaves what may hang");
	check_said(journal, "volume data: sdc answers again\nvolume data: sdd answered nothing, and is not there any more\nvolume data: sda answers again\n",
		   "and says what has ended");
	put_stat("sdb", 11, 2);
	check_told(event, "sda* ", "a disk that answers does not hang, however much is in flight");
	check_said(journal, "volume data: sdb answers again\n", "which is said");
	check_told(event, "sda* sdb ", "unless it hangs from then on");
	check(!watch->left.number, "of the other one it was seen meanwhile");
	free(said(journal));
	put_stat("sda", 11, 0);
	put_stat("sdb", 12, 0);
	check_told(event, "", "all of it ends");
	run_for(event, 1.5); /* one look may have seen the one, and the next one the other */
	check_said(journal, "volume data: sda answers again\nvolume data: sdb answers again\n", "and that is said once");
	check(changes >= 4, "whoever shows it is told each time");
	stall_watch_free(watch);
}

/* It hangs on, and is told of once; what has answered meanwhile the next one says. */
static void restarted(sd_event *event, int journal)
{
	struct stall_watch *watch;

	put_stat("sda", 12, 2);
	put_stat("sdb", 13, 2);
	check(stall_watch_new(&watch, event, true, changed, NULL) >= 0, "one that is restarted");
	stall_watch_set(watch, 3);
	check_told(event, "sda sdb ", "has told of two");
	free(said(journal));
	stall_watch_free(watch);
	check_told(event, "sda sdb ", "which are told of while it is not there");
	put_stat("sdb", 14, 0);
	check(stall_watch_new(&watch, event, true, changed, NULL) >= 0, "the next one");
	stall_watch_set(watch, 3);
	check_told(event, "sda ", "takes over");
	run_for(event, 4);
	check_told(event, "sda ", "and sees the same");
	check_said(journal, "volume data: sdb answers again\n", "of which it says nothing again");
	put_stat("sda", 13, 0);
	check_told(event, "", "all of it ends");
	stall_watch_set(watch, 0);
	stall_watch_free(watch);
}

static int count(sd_event_source *source, void *data)
{
	const struct stall_watch *watch = data;
	static double last;

	looks += watch->stalls.now != last;
	last = watch->stalls.now;
	return 0;
}

/* As behind a SIGSTOP, or a suspend: the loop has not run for so many pauses. */
static void stood_still(sd_event *event)
{
	sd_event_source *each;
	struct stall_watch *watch;

	check(stall_watch_new(&watch, event, true, changed, NULL) >= 0 && sd_event_add_post(event, &each, count, watch) >= 0, "another one");
	stall_watch_set(watch, 9);
	run_for(event, 0.1);
	check(looks == 1, "it looks");
	sleep(10);
	run_for(event, 0.5);
	check(looks == 2, "once, behind ten seconds in which it could not");
	sd_event_source_unref(each);
	stall_watch_free(watch);
}

int main(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	sd_event *event;
	int journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	alarm(120);
	if (!mkdtemp(root) || journal < 0 || sd_event_default(&event) < 0)
		return 1;
	setenv("LARDER_ROOT", root, 1);
	shell("mkdir -p %s/run/systemd/journal", root);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/run/systemd/journal/socket", root);
	if (bind(journal, (const struct sockaddr *)&address, sizeof(address)) || journal_open(event) < 0)
		return 1;
	setenv("LARDER_RUN", root, 1);
	names();
	those_that_are_left(event, journal);
	restarted(event, journal);
	stood_still(event);
	journal_close();
	close(journal);
	sd_event_unref(event);
	shell("rm -rf %s", root);
	return failed;
}
