// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder events: what is wrong, and what changes, in words and for a program.
 *
 * The descriptor of device-mapper's control node is opened before each look: what happens after that wakes the next poll(), so nothing
 * is slept through.  What larderd does not start it leaves in a file (left.h), and so what hangs (stalled.h).  What comes and goes between two looks is not seen.  Disks raise no event: they are asked now and then (disk_watch.h).
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../daemon/conf.h"
#include "alert.h"
#include "arguments.h"
#include "changes.h"
#include "clock.h"
#include "disk_watch.h"
#include "left.h"
#include "mailed.h"
#include "monitor.h"
#include "program.h"
#include "snapshot.h"
#include "stalled.h"
#include "unsent.h"
#include "verbs.h"

#define LEFT_SETTLES_US 2000000u /* of what larderd leaves at a boot some is there for a moment only, until somebody else is done */
#define PASSING_TRIES 20 /* of a start, or a reload, that is under way: ten seconds */
#define PASSING_US 500000u

struct request {
	const char *program; /* of --exec; or NULL */
	bool alert; /* whom larder.conf names, too */
	bool on;
	double interval, disks; /* seconds; disks 0: they are not asked */
	struct unsent unsent; /* with on */
	struct mailed mailed;
};

static void print(const struct change *c)
{
	time_t clock = time(NULL);
	struct tm local;
	char text[40];

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", localtime_r(&clock, &local));
	printf("%s %s %s %s: %s\n", text, c->event, c->kind, c->name, c->text);
}

static void say_mistake(const char *line, void *data)
{
	(void)data;
	remark("%s", line);
}

static void mail(struct request *request, const char *address, const struct change *c, time_t at)
{
	if (!alert_mail(address, c, at, program_is_unit()) && request->on)
		unsent_add(&request->unsent, c, at, clock_seconds());
}

/* The file is read anew each time: what is written there counts for the next alert. */
static void alert(const struct changes *changes, struct request *request)
{
	time_t at = time(NULL);
	double now = clock_seconds();
	bool unit = program_is_unit();
	struct conf conf;

	conf_read(&conf, say_mistake, NULL);
	for (size_t i = 0; i < changes->number; i++) {
		const struct change *c = &changes->change[i];

		if (conf.program)
			alert_program(conf.program, c, "program in larder.conf", unit);
		if (!c->alarm)
			mailed_over(&request->mailed, c);
		else if (conf.mail && mailed_may(&request->mailed, c, at, now))
			mail(request, conf.mail, c, at);
	}
	conf_free(&conf);
}

static void say_nothing(const char *line, void *data)
{
	(void)line;
	(void)data;
}

static void try_unsent(struct unsent *unsent)
{
	struct conf conf;

	if (unsent_left(unsent, clock_seconds()) != 0)
		return;
	conf_read(&conf, say_nothing, NULL); /* its mistakes were said when it happened */
	unsent_try(unsent, conf.mail, program_is_unit(), clock_seconds());
	conf_free(&conf);
}

/* What was mailed of a while ago, has come again, and lasts. */
static void mail_held(struct request *request)
{
	double now = clock_seconds();
	struct mailed_held held;
	struct conf conf;

	if (mailed_left(&request->mailed, now) != 0)
		return;
	conf_read(&conf, say_nothing, NULL);
	while (mailed_due(&request->mailed, &held, now)) {
		if (conf.mail)
			mail(request, conf.mail, &held.change, held.at);
		mailed_drop(&held);
	}
	conf_free(&conf);
}

static int report_changes(struct changes *changes, struct request *request)
{
	for (size_t i = 0; i < changes->number; i++) {
		print(&changes->change[i]);
		if (request->program)
			alert_program(request->program, &changes->change[i], "--exec", false);
	}
	if (request->alert && changes->number)
		alert(changes, request);
	changes_free(changes);
	return fflush(stdout) ? complain(LARDER_FAILED, "cannot write the output") : LARDER_DONE;
}

/* Does whoever is named get it? */
static int test(struct request *request)
{
	struct changes changes = { 0 };

	changes_add(&changes, &(struct change){
				      .event = "test",
				      .kind = "cache",
				      .alarm = true,
				      .name = must_print("test"),
				      .device = must_print("/dev/null"),
				      .text = must_print("nothing is wrong: this is what an alert looks like"),
			      });
	return report_changes(&changes, request);
}

/* Seconds, a moment more than there are: a wait is not to end in front of it. */
static double until(double due)
{
	double left = due - clock_seconds();

	return (left > 0 ? left : 0) + 0.001;
}

static void add_left(struct changes *changes, const char *event, bool alarm, const struct left *left)
{
	changes_add(changes, &(struct change){
				     .event = event,
				     .kind = "assembly",
				     .alarm = alarm,
				     .name = must_print("%s", left->uuid),
				     .device = must_print("-"),
				     .text = must_print("%s%s: %s", alarm ? "" : MAILED_OVER, left->word, left->text),
			     });
}

/* What is in now and was not before is an alarm; what was is over. */
static void left_changes(struct changes *changes, const struct left_list *before, const struct left_list *now)
{
	for (size_t i = 0; i < before->number; i++)
		if (!left_has(now, &before->left[i]))
			add_left(changes, "recovered", false, &before->left[i]);
	for (size_t i = 0; i < now->number; i++)
		if (!left_has(before, &now->left[i]))
			add_left(changes, "left", true, &now->left[i]);
}

/* One that was pulled, or has left by itself, is seen by nobody any more, whatever it does. */
static char *not_stalled(const struct stalled *s)
{
	const char *root = getenv("LARDER_ROOT");
	char *path = must_print("%s/sys/class/block/%s", root ? root : "", s->disk);
	bool there = !access(path, F_OK);

	free(path);
	return must_print("%s %s", s->disk, there ? "does not hang any more" : "is not seen to hang any more: it is not there");
}

static void add_stalled(struct changes *changes, const char *event, bool alarm, const struct stalled *s)
{
	const char *kind = s->cache ? "cache" : "volume";
	char *words = alarm ? must_print("%s", s->text) : not_stalled(s);

	changes_add(changes, &(struct change){
				     .event = event,
				     .kind = "disk",
				     .alarm = alarm,
				     .name = must_print("%s", s->disk),
				     .device = must_print("/dev/%s", s->disk),
				     .text = must_print("%s %s: %s", kind, s->name, words),
			     });
	free(words);
}

static void stalled_changes(struct changes *changes, const struct stalled_list *before, const struct stalled_list *now)
{
	for (size_t i = 0; i < before->number; i++)
		if (!stalled_find(now, &before->stalled[i]))
			add_stalled(changes, "recovered", false, &before->stalled[i]);
	for (size_t i = 0; i < now->number; i++)
		if (!stalled_find(before, &now->stalled[i]))
			add_stalled(changes, "stalled", true, &now->stalled[i]);
}

/* What there is to see of one look, and what wakes the next one. */
struct view {
	struct mapped_list list;
	struct left_list left;
	struct stalled_list stalled;
	int watch, left_watch; /* of dm's devices, of larderd's files; -1: nothing wakes */
};

/*
 * Until something happens to a dm device, or to what larderd leaves, or for so long (negative: for ever), or until disks have answered, or one has
 * not in time: then it is told what they say, and that.  True: only that.
 */
static bool wait_for_event(const struct view *view, double seconds, struct disk_watch *disks, struct changes *changes)
{
	struct pollfd event[3] = { { disks->answers, POLLIN, 0 } };
	char notes[4096];

	if (view) {
		event[1] = (struct pollfd){ view->watch, POLLIN, 0 };
		event[2] = (struct pollfd){ view->left_watch, POLLIN, 0 };
	}
	poll(event, view ? 3 : 1, seconds < 0 ? -1 : (int)(seconds * 1000)); /* whatever it says: the status is looked at */
	if (event[2].revents) {
		usleep(LEFT_SETTLES_US);
		while (read(view->left_watch, notes, sizeof(notes)) > 0)
			;
	}
	if (!event[0].revents && disk_watch_left(disks) == 0) {
		disk_watch_give_up(disks, changes);
		return !event[1].revents && !event[2].revents;
	}
	if (!event[0].revents)
		return false;
	disk_watch_hear(disks, changes);
	disk_watch_give_up(disks, changes);
	return !event[1].revents && !event[2].revents;
}

/* before: what the last look has shown. */
static int look_at_mapped(const struct mapped_list *before, struct mapped_list *now)
{
	int result = snapshot_take(now);

	for (unsigned tries = 0; !result && tries < PASSING_TRIES && changes_pass(before, now); tries++) {
		mapped_list_free(now);
		usleep(PASSING_US);
		result = snapshot_take(now);
	}
	return result;
}

/* What the next wait is for; it begins before the look. */
static int look(struct view *view, const struct mapped_list *before)
{
	if (view->watch >= 0)
		close(view->watch);
	view->watch = -1;
	if (!getenv("LARDER_STATUS"))
		view->watch = mapped_watch();
	if (view->left_watch < 0)
		view->left_watch = left_watch();
	left_read(&view->left);
	stalled_read(&view->stalled);
	return look_at_mapped(before, &view->list);
}

/* What comes of one wait, which ends when the disks are due to be asked, seconds from now (negative: never), if not before. */
static int turn(struct request *request, double due, struct disk_watch *disks, struct view *view)
{
	double wait = due >= 0 && due < request->interval ? due : request->interval, answer = disk_watch_left(disks),
	       unsent = unsent_left(&request->unsent, clock_seconds()), held = mailed_left(&request->mailed, clock_seconds());
	struct changes changes = { 0 };
	struct view before = *view;
	int result;

	wait = answer >= 0 && answer < wait ? answer + 0.001 : wait;
	wait = unsent >= 0 && unsent < wait ? unsent + 0.001 : wait;
	wait = held >= 0 && held < wait ? held + 0.001 : wait;
	if (wait_for_event(view, wait, disks, &changes))
		return report_changes(&changes, request);
	result = look(view, &before.list);
	left_changes(&changes, &before.left, &view->left);
	stalled_changes(&changes, &before.stalled, &view->stalled);
	if (!result)
		changes_between(&changes, &before.list, &view->list);
	left_free(&before.left);
	stalled_free(&before.stalled);
	mapped_list_free(&before.list);
	if (!result)
		return report_changes(&changes, request);
	changes_free(&changes);
	return result;
}

static int follow(struct request *request)
{
	struct view view = { .watch = -1, .left_watch = -1 };
	struct changes changes = { 0 };
	struct disk_watch disks;
	double due = clock_seconds();
	int result = look(&view, &(struct mapped_list){ 0 });

	disk_watch_init(&disks);
	if (!result) {
		left_changes(&changes, &(struct left_list){ 0 }, &view.left);
		stalled_changes(&changes, &(struct stalled_list){ 0 }, &view.stalled);
		changes_first(&changes, &view.list);
		result = report_changes(&changes, request);
	}
	while (!result) {
		if (disks.behind)
			disk_watch_ask(&disks, &view.list);
		if (request->disks > 0 && clock_seconds() >= due) {
			disk_watch_ask(&disks, &view.list);
			due = clock_seconds() + request->disks;
		}
		if (request->on) {
			try_unsent(&request->unsent);
			mail_held(request);
			result = turn(request, request->disks > 0 ? until(due) : -1, &disks, &view);
			continue;
		}
		while (disks.answers >= 0) {
			wait_for_event(NULL, disk_watch_left(&disks) + 0.001, &disks, &changes);
			if (disks.behind)
				disk_watch_ask(&disks, &view.list);
		}
		result = report_changes(&changes, request);
		break;
	}
	disk_watch_free(&disks);
	unsent_free(&request->unsent);
	mailed_free(&request->mailed);
	left_free(&view.left);
	stalled_free(&view.stalled);
	mapped_list_free(&view.list);
	if (view.watch >= 0)
		close(view.watch);
	if (view.left_watch >= 0)
		close(view.left_watch);
	return result;
}

int events(int argc, char **argv)
{
	const char *interval_text = NULL, *disks_text = NULL;
	struct request request = { .interval = 60, .disks = 3600 };
	bool try = false;
	const struct argument arguments[] = {
		{ "follow", 'f', ARGUMENT_FLAG, &request.on, NULL, "go on with what changes, until interrupted" },
		{ "exec", 0, ARGUMENT_TEXT, &request.program, "PROGRAM", "run PROGRAM EVENT NAME TEXT for each" },
		{ "alert", 0, ARGUMENT_FLAG, &request.alert, NULL, "tell whom larder.conf names, by mail or program" },
		{ "test", 0, ARGUMENT_FLAG, &try, NULL, "with --alert or --exec: only an event that is a test" },
		{ "interval", 'i', ARGUMENT_TEXT, &interval_text, "SECONDS", "look that often where no event tells; default: 60" },
		{ "disks", 0, ARGUMENT_TEXT, &disks_text, "SECONDS", "ask disks that often how they are; default: 3600; 0: never" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, "larder events [--follow] [--exec PROGRAM] [--alert] [--test] [--interval SECONDS] [--disks SECONDS]", arguments, 0,
			     0, &first, &result))
		return result;
	if (!interval_parse("--interval", interval_text, &request.interval))
		return LARDER_USAGE;
	if (disks_text && !strcmp(disks_text, "0"))
		request.disks = 0;
	else if (!interval_parse("--disks", disks_text, &request.disks))
		return LARDER_USAGE;
	if (request.program && !*request.program)
		return complain(LARDER_USAGE, "--exec: the name of a program is missing");
	if (try && (request.on || (!request.alert && !request.program)))
		return complain(LARDER_USAGE, "--test: goes with --alert or --exec, and without --follow");
	if (try)
		return test(&request);
	mapped_init(false);
	return follow(&request);
}
