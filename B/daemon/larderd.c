// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larderd: caches and volumes come up by themselves, in whatever order their devices appear.
 *
 * It waits for events of block devices; behind one it makes a pass (assembly.h) in a child process, so that a device that hangs, or a start
 * that takes its time, keeps neither the watchdog nor the end of the daemon waiting.  One pass at a time; what happens during it asks for
 * another one behind it.  At events of device-mapper, which are mostly others', and each minute beside a snapshot, it has a look at what can be seen
 * without a disk being read, and makes a pass only if that has changed: disks that sleep are let sleep.  What it saw is shown on the system bus, where there is one (bus.h).  It keeps nothing that a restart would lose, but what ran, to know what somebody stopped, and what has been said.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libudev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <systemd/sd-id128.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "../lib/descriptors.h"
#include "../lib/left.h"
#include "../lib/message.h"
#include "../lib/superblock.h"
#include "../lib/turn.h"
#include "assembly.h"
#include "bus.h"
#include "child.h"
#include "conf.h"
#include "dm_digest.h"
#include "facts.h"
#include "jobs.h"
#include "journal.h"
#include "metrics_server.h"
#include "shown.h"
#include "stall_watch.h"
#include "text_hash.h"

#define SETTLE_US   50000 /* events come in bursts */
#define DM_EVENT_US 1000000 /* and those of device-mapper are mostly others' */
#define TOLD_MAX    1024
#define END_US 5000000 /* what a pass gets to finish */
#define STORES_US 60000000 /* nothing tells of a snapshot's store that fills up */
#define JOBS_US 5000000 /* how far a job is makes no event */
#define HEARD_US 10000000 /* who is not root is heard so often */

/* One mapping, shared with the child of the moment. */
struct shared {
	struct assembly_memory memory;
	uint64_t told[TOLD_MAX]; /* hashes of what was said at the end of the last pass */
	uint32_t nr_told;
	uint64_t again;
	uint32_t started, waiting, refused;
	bool looked; /* the pass came to its end, and saw what there is */
	bool stores; /* of snapshots were in use */
	bool changed; /* what a look at device-mapper is compared with, which is: */
	struct dm_digest seen; /* what device-mapper said in front of the last look at the disks */
};

/* What a child does. */
enum work {
	WORK_PASS,
	WORK_JOBS, /* a look at jobs */
	WORK_LOOK, /* at device-mapper */
};

struct daemon {
	sd_event *event;
	sd_event_source *timer, *look_timer, *jobs_timer, *heard_timer;
	struct shared *shared;
	uint64_t wait;
	uint64_t began; /* see began_noted() */
	uint64_t cut_us; /* for how long the next pass is put off, as the last one was cut off; 0: it was not */
	uint64_t heard; /* when who is not root was heard last; 0: never */
	struct udev_monitor *monitor;
	sd_event_source *dm_event;
	int dm_watch; /* -1: none */
	sd_event_source *md_event;
	struct bus *bus;
	struct metrics_server *metrics;
	struct stall_watch *stalls;
	struct address listen; /* length 0: as larder.conf has it */
	int seen; /* file with the objects of the last pass */
	bool observe, running, more, more_looks, ready, ending;
	enum work work; /* of what runs */
	bool retry, asked; /* what failed is tried again in the next pass: something was done; somebody has asked for it */
};

/* ------------------------------------------------------------------ journal */

static const struct {
	int priority;
	const char *id;
	const char *left; /* word for what is not started for it, and lasts; NULL: another thing */
} messages[] = {
	[ASSEMBLY_STARTED] = { 6, "ddc3a4b0a5d94c2a8f3e1d6b7a9c0e11" },	 [ASSEMBLY_DEGRADED] = { 4, "a1f06b1c5e2d4d7c9b3a8e7f6d5c4b22" },
	[ASSEMBLY_ALONE] = { 4, "7c9e2f4b8a6d4e1f8c5b3a2d1e0f9833" },	 [ASSEMBLY_CLEARED] = { 5, "3e8d7c6b5a4f4e3d9c2b1a0f9e8d7c44" },
	[ASSEMBLY_WAITING] = { 6, "b5a4c3d2e1f04a9b8c7d6e5f4a3b2c55" },	 [ASSEMBLY_REFUSED] = { 4, "e0f1a2b3c4d54e6f8a7b9c8d7e6f5a66", "refused" },
	[ASSEMBLY_SPARE] = { 4, "c41d9be05a7743d0a2f95f0c6de81b99" },
	[ASSEMBLY_RETURNED] = { 5, "595c6fdf120047b19a14014e97000e0b" }, [ASSEMBLY_WRITE_HOLE] = { 3, "82d4e606c6a34c9ca82ee28413cb49de", "write-hole" },
	[ASSEMBLY_CONF] = { 4, "5d0c1f3e8b6a4c7f9e2d7a1b4c8f6e88", "conf" },
	[ASSEMBLY_FAILED] = { 3, "92b8f1e7d6c54b3a8291e0f7d6c5b477", "failed" },
};

static struct shared *shared; /* of tell(), which runs in the child */
static uint64_t now_told[TOLD_MAX];
static uint32_t nr_now_told;
static struct left_list left; /* of this pass */

/* Of what lasts: was it said at the end of the last pass already? */
static bool said_before(uint64_t value)
{
	if (nr_now_told < TOLD_MAX)
		now_told[nr_now_told++] = value;
	for (uint32_t i = 0; i < shared->nr_told; i++)
		if (shared->told[i] == value)
			return true;
	return false;
}

static void tell(enum assembly_event event, const uint8_t uuid[16], const char *text)
{
	bool lasts = event == ASSEMBLY_WAITING || messages[event].left;
	char uuid_string[UUID_TEXT];

	if (messages[event].left)
		left_add(&left, messages[event].left, uuid, text);
	if (lasts && said_before(text_hash(TEXT_HASH_BASIS, text)))
		return;
	if (sd_journal_send("MESSAGE=%s", text, "MESSAGE_ID=%s", messages[event].id, "PRIORITY=%d", messages[event].priority,
			    "LARDER_UUID=%s", uuid_text(uuid, uuid_string), NULL) < 0 ||
	    isatty(STDERR_FILENO) || access("/run/systemd/journal/socket", F_OK))
		fprintf(stderr, "larderd: %s\n", text);
}

/* ------------------------------------------------------------------ the child */

static int seen_file; /* of seen() */
static const struct objects *seen_last; /* of the look before */

static void seen(const struct look *look, const struct plan *plan)
{
	struct objects objects;

	objects_make(&objects, look, plan, seen_last);
	if (objects_write(&objects, seen_file))
		remark("cannot keep what is to be shown on the bus");
	objects_free(&objects);
}

static struct dm_digest digest; /* of looks() */

static void looks(void)
{
	dm_digest_take(&digest);
}

/* For the next pass, and for who follows `larder events`. */
static void keep(const struct daemon *daemon, const struct assembly *assembly)
{
	static const char untold[] = "/run/larder/left: cannot be written: who follows `larder events` is not told what was not started";

	if (!daemon->observe && left_write(&left) && !said_before(text_hash(TEXT_HASH_BASIS, untold)))
		remark("%s", untold);
	memcpy(shared->told, now_told, sizeof(now_told));
	shared->nr_told = nr_now_told;
	shared->again = assembly->again;
	shared->started = (uint32_t)assembly->started;
	shared->waiting = (uint32_t)assembly->waiting;
	shared->refused = (uint32_t)assembly->refused;
	shared->stores = assembly->stores;
	shared->seen = digest;
	shared->looked = true;
}

static _Noreturn void pass(const struct daemon *daemon)
{
	struct assembly assembly = {
		.wait = daemon->wait,
		.began = daemon->began,
		.marked = true,
		.memory = daemon->observe ? NULL : &daemon->shared->memory,
		.observe = daemon->observe,
		.seen = seen,
		.looks = looks,
		.tell = tell,
	};
	sigset_t none;
	int result;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	shared = daemon->shared;
	seen_file = daemon->seen;
	seen_last = bus_seen(daemon->bus);
	result = assembly_pass(&assembly);
	if (!assembly.blind) /* else what was told stands */
		keep(daemon, &assembly);
	fflush(NULL);
	_exit(result);
}

/* Between two passes, while there are jobs: dm and md are asked how far they are, and no disk is touched. */
static _Noreturn void look_at_jobs(const struct daemon *daemon)
{
	struct objects objects;
	int result;

	objects_copy(&objects, bus_seen(daemon->bus));
	result = jobs_look(&objects);
	if (!result && objects_write(&objects, daemon->seen))
		result = complain(LARDER_FAILED, "cannot keep what is to be shown on the bus");
	fflush(NULL);
	_exit(result);
}

static _Noreturn void look_at_dm(const struct daemon *daemon)
{
	struct shared *s = daemon->shared;
	struct dm_digest now;

	dm_digest_take(&now);
	/* what is refused, or waits, may do so for what others have */
	s->changed = !dm_digest_same(&now, &s->seen, s->refused || s->waiting);
	fflush(NULL);
	_exit(LARDER_DONE);
}

/* ------------------------------------------------------------------ the loop */

static void schedule(struct daemon *daemon, uint64_t when);
static void look_later(struct daemon *daemon, uint64_t when);

static int dm_event(sd_event_source *source, int fd, uint32_t events, void *data)
{
	struct daemon *daemon = data;

	(void)fd;
	(void)events;
	/* it stays readable: until the next look once is enough */
	sd_event_source_set_enabled(source, SD_EVENT_OFF);
	look_later(daemon, facts_clock() + DM_EVENT_US);
	return 0;
}

/* Events on dm devices from now on: states that change, devices that come and go without udev. */
static void watch_dm(struct daemon *daemon)
{
	daemon->dm_event = sd_event_source_disable_unref(daemon->dm_event);
	if (daemon->dm_watch >= 0)
		close(daemon->dm_watch);
	daemon->dm_watch = mapped_watch();
	if (daemon->dm_watch >= 0)
		sd_event_add_io(daemon->event, &daemon->dm_event, daemon->dm_watch, EPOLLIN, dm_event, daemon);
}

static int md_event(sd_event_source *source, int fd, uint32_t events, void *data)
{
	struct daemon *daemon = data;

	(void)fd;
	(void)events;
	sd_event_source_set_enabled(source, SD_EVENT_OFF);
	schedule(daemon, facts_clock() + SETTLE_US);
	return 0;
}

/* That an array has lost a disk makes no event of a device; who has this file open is told.  Without md there is none. */
static void watch_md(struct daemon *daemon)
{
	int fd = open("/proc/mdstat", O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	daemon->md_event = sd_event_source_disable_unref(daemon->md_event);
	if (fd >= 0 && (sd_event_add_io(daemon->event, &daemon->md_event, fd, EPOLLPRI, md_event, daemon) < 0 ||
			sd_event_source_set_io_fd_own(daemon->md_event, true) < 0))
		close(fd);
}

static void show(struct daemon *daemon)
{
	struct objects objects;

	/* of a pass that was killed what the one before has seen stays */
	if (!objects_read(&objects, daemon->seen))
		return;
	stall_watch_show(daemon->stalls, &objects);
	bus_show(daemon->bus, &objects);
}

static void stalls_changed(void *data)
{
	struct daemon *daemon = data;
	struct objects objects;

	objects_copy(&objects, bus_seen(daemon->bus));
	stall_watch_show(daemon->stalls, &objects);
	bus_show(daemon->bus, &objects);
}

static void report(struct daemon *daemon, int status)
{
	const struct shared *s = daemon->shared;

	sd_notifyf(0, "%sSTATUS=%u waiting, %u refused%s", daemon->ready ? "" : "READY=1\n", s->waiting, s->refused,
		   status ? "; a start has failed" : "");
	daemon->ready = true;
}

/* When the next pass comes, behind one that has ended. */
static void plan_next(struct daemon *daemon)
{
	uint64_t soonest = facts_clock() + SETTLE_US;

	/* killed, or unable to look: what it had begun is looked at anew; if that is what ends it (memory is short), less and less often */
	daemon->cut_us = daemon->shared->looked ? 0 : attempts_wait(daemon->cut_us, SETTLE_US);
	if (daemon->more)
		schedule(daemon, soonest);
	else if (daemon->cut_us)
		schedule(daemon, facts_clock() + daemon->cut_us);
	else if (daemon->shared->again)
		schedule(daemon, daemon->shared->again > soonest ? daemon->shared->again : soonest);
}

static void look_at_jobs_later(struct daemon *daemon)
{
	sd_event_source_set_time(daemon->jobs_timer, facts_clock() + JOBS_US);
	sd_event_source_set_enabled(daemon->jobs_timer, SD_EVENT_ONESHOT);
}

static void look_at_stores_later(struct daemon *daemon)
{
	if (daemon->shared->stores)
		look_later(daemon, facts_clock() + STORES_US);
}

static int child_ended(sd_event_source *source, const siginfo_t *info, void *data)
{
	struct daemon *daemon = data;
	bool failed = info->si_code != CLD_EXITED || info->si_status;

	sd_event_source_unref(source);
	daemon->running = false;
	if (daemon->work == WORK_PASS)
		report(daemon, failed);
	if (daemon->work != WORK_LOOK)
		show(daemon);
	if (daemon->ending)
		return sd_event_exit(daemon->event, LARDER_DONE);
	if (daemon->work == WORK_PASS)
		plan_next(daemon);
	else if (daemon->more || (daemon->work == WORK_LOOK && (failed || daemon->shared->changed)))
		schedule(daemon, facts_clock());
	if (daemon->more_looks)
		look_later(daemon, facts_clock() + SETTLE_US);
	daemon->more_looks = false;
	look_at_stores_later(daemon);
	if (jobs_run(bus_seen(daemon->bus)))
		look_at_jobs_later(daemon);
	return 0;
}

/* In a child, as what it asks may hang; one child at a time. */
static int start_child(struct daemon *daemon, enum work work)
{
	static void (*const run[])(const struct daemon *) = { pass, look_at_jobs, look_at_dm };
	pid_t child = child_fork();
	int error;

	if (!child)
		run[work](daemon);
	error = child < 0 ? -errno : child_watch(daemon->event, child, child_ended, daemon);
	daemon->running = !error;
	daemon->work = work;
	return error;
}

static int start_pass(sd_event_source *source, uint64_t when, void *data)
{
	struct daemon *daemon = data;
	int error;

	(void)source;
	(void)when;
	if (daemon->ending)
		return 0;
	if (daemon->running) {
		daemon->more = true;
		return 0;
	}
	daemon->more = false;
	daemon->shared->again = 0;
	daemon->shared->looked = false;
	if (daemon->retry)
		assembly_retry(&daemon->shared->memory, daemon->asked);
	daemon->retry = daemon->asked = false;
	watch_dm(daemon);
	watch_md(daemon);
	error = start_child(daemon, WORK_PASS);
	if (error) {
		journal_say(3, "", "cannot fork, or wait for a child: %s", strerror(-error));
		schedule(daemon, facts_clock() + 1000000);
	}
	return 0;
}

static int start_look_at_jobs(sd_event_source *source, uint64_t when, void *data)
{
	struct daemon *daemon = data;

	(void)source;
	(void)when;
	/* a pass that runs sees them, too, and is followed by one of these */
	if (daemon->ending || daemon->running)
		return 0;
	if (start_child(daemon, WORK_JOBS))
		look_at_jobs_later(daemon);
	return 0;
}

static int start_look(sd_event_source *source, uint64_t when, void *data)
{
	struct daemon *daemon = data;

	(void)source;
	(void)when;
	if (daemon->ending)
		return 0;
	if (daemon->running) {
		daemon->more_looks = true;
		return 0;
	}
	daemon->shared->changed = true; /* until the look has come to its end */
	watch_dm(daemon);
	if (start_child(daemon, WORK_LOOK))
		schedule(daemon, facts_clock() + 1000000);
	return 0;
}

/* At that time at the latest. */
static void set_timer(sd_event_source *timer, uint64_t when)
{
	uint64_t set = 0;
	int on = SD_EVENT_OFF;

	sd_event_source_get_enabled(timer, &on);
	sd_event_source_get_time(timer, &set);
	if (on != SD_EVENT_OFF && set <= when)
		return;
	sd_event_source_set_time(timer, when);
	sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

static void schedule(struct daemon *daemon, uint64_t when)
{
	set_timer(daemon->timer, when);
}

static void look_later(struct daemon *daemon, uint64_t when)
{
	set_timer(daemon->look_timer, when);
}

/* ------------------------------------------------------------------ events */

/* Of a member itself: it came, or was changed.  A start that fails makes no such event. */
static bool is_of_a_member(struct udev_device *device)
{
	const char *type = udev_device_get_property_value(device, "ID_FS_TYPE"), *action = udev_device_get_action(device);

	return type && !strcmp(type, "larder_member") && !(action && !strcmp(action, "remove"));
}

/* A pass reads each member, which wakes up its disk: not for the loop devices of others, say. */
static bool concerns_us(const struct daemon *daemon, struct udev_device *device)
{
	const char *type = udev_device_get_property_value(device, "ID_FS_TYPE"), *uuid = udev_device_get_property_value(device, "DM_UUID"),
		   *action = udev_device_get_action(device);

	/* of arrays the disks as well: one that was away may return; what goes may have been what used a member that is not started for that */
	return (type && (!strcmp(type, "larder_member") || !strcmp(type, "linux_raid_member"))) || (uuid && !strncmp(uuid, "LARDER-", strlen("LARDER-"))) ||
	       udev_device_get_property_value(device, "LARDER_GONE") ||
	       (action && !strcmp(action, "remove") && (daemon->shared->refused || daemon->shared->waiting));
}

static int device_event(sd_event_source *source, int fd, uint32_t events, void *data)
{
	struct daemon *daemon = data;
	struct udev_device *device;

	(void)source;
	(void)fd;
	(void)events;
	errno = 0;
	while ((device = udev_monitor_receive_device(daemon->monitor))) {
		daemon->retry |= is_of_a_member(device);
		if (concerns_us(daemon, device))
			schedule(daemon, facts_clock() + SETTLE_US);
		udev_device_unref(device);
		errno = 0;
	}
	if (errno == ENOBUFS) { /* there were too many, and some are lost: of whatever */
		daemon->retry = true;
		schedule(daemon, facts_clock() + SETTLE_US);
	}
	return 0;
}

/* A method has done something, or root asks, by whatever. */
static void refresh(struct daemon *daemon)
{
	daemon->retry = daemon->asked = true;
	schedule(daemon, facts_clock() + SETTLE_US);
}

static int hear(sd_event_source *source, uint64_t when, void *data)
{
	struct daemon *daemon = data;

	(void)source;
	(void)when;
	daemon->heard = facts_clock();
	refresh(daemon);
	return 0;
}

/*
 * A pass reads each member, and tries again what has failed: of those who may ask for it as often as they like, all who ask while it is too
 * early have one.
 */
static void refresh_asked(void *data, bool at_once)
{
	struct daemon *daemon = data;
	uint64_t next = daemon->heard ? daemon->heard + HEARD_US : 0;

	if (at_once) {
		refresh(daemon);
	} else if (facts_clock() >= next) {
		hear(NULL, 0, daemon);
	} else {
		sd_event_source_set_time(daemon->heard_timer, next);
		sd_event_source_set_enabled(daemon->heard_timer, SD_EVENT_ONESHOT);
	}
}

/* What is wrong in the file a pass says. */
static void ignore(const char *line, void *data)
{
	(void)line;
	(void)data;
}

/* As larder.conf has it. */
static void set_services(struct daemon *daemon)
{
	struct address address = daemon->listen;
	struct conf conf;

	conf_read(&conf, ignore, NULL);
	if (!address.length && conf.metrics_listen)
		address_parse(conf.metrics_listen, &address);
	metrics_server_listen(daemon->metrics, address.length ? &address : NULL);
	stall_watch_set(daemon->stalls, conf.stall);
	conf_free(&conf);
}

static int hang_up(sd_event_source *source, const struct signalfd_siginfo *info, void *data)
{
	(void)source;
	(void)info;
	set_services(data);
	refresh(data);
	return 0;
}

static int connection_to_bus(const void *data)
{
	return bus_descriptor(((const struct daemon *)data)->bus);
}

static void leave_metrics(const void *data)
{
	metrics_server_leave(((const struct daemon *)data)->metrics);
}

/* Sockets that systemd, by larderd.socket, has made for us. */
static void take_sockets(struct daemon *daemon)
{
	int number = sd_listen_fds(1);

	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + number; fd++) {
		int error = metrics_server_take(daemon->metrics, fd);

		if (error)
			journal_remark("metrics: file descriptor %d of systemd: %s: is no stream socket that listens, or one too many", fd, strerror(-error));
	}
}

static int end_now(sd_event_source *source, uint64_t when, void *data)
{
	struct daemon *daemon = data;

	(void)source;
	(void)when;
	return sd_event_exit(daemon->event, LARDER_DONE);
}

static int end(sd_event_source *source, const struct signalfd_siginfo *info, void *data)
{
	struct daemon *daemon = data;

	(void)source;
	(void)info;
	sd_notify(0, "STOPPING=1");
	daemon->ending = true;
	if (!daemon->running)
		return sd_event_exit(daemon->event, LARDER_DONE);
	return sd_event_add_time(daemon->event, NULL, CLOCK_MONOTONIC, facts_clock() + END_US, 0, end_now, daemon);
}

static int listen_to_devices(struct daemon *daemon)
{
	struct udev *udev = must_allocate(udev_new());

	daemon->monitor = udev_monitor_new_from_netlink(udev, "udev");
	if (!daemon->monitor || udev_monitor_filter_add_match_subsystem_devtype(daemon->monitor, "block", NULL) < 0 ||
	    udev_monitor_enable_receiving(daemon->monitor) < 0)
		return -EIO;
	udev_monitor_set_receive_buffer_size(daemon->monitor, 16 << 20);
	return sd_event_add_io(daemon->event, NULL, udev_monitor_get_fd(daemon->monitor), EPOLLIN, device_event, daemon);
}

static int set_up(struct daemon *daemon)
{
	sigset_t mask;
	int error;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	daemon->shared = mmap(NULL, sizeof(*daemon->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (daemon->shared == MAP_FAILED)
		return -errno;
	daemon->began = began_noted(facts_clock(), !daemon->observe);
	daemon->dm_watch = -1;
	daemon->seen = memfd_create("larderd", MFD_CLOEXEC);
	if (daemon->seen < 0)
		return -errno;
	mapped_init(false);
	error = sd_event_default(&daemon->event);
	error = error < 0 ? error : journal_open(daemon->event);
	error = error < 0 ? error : sd_event_set_watchdog(daemon->event, true);
	error = error < 0 ? error : sd_event_add_signal(daemon->event, NULL, SIGTERM, end, daemon);
	error = error < 0 ? error : sd_event_add_signal(daemon->event, NULL, SIGINT, end, daemon);
	error = error < 0 ? error : sd_event_add_signal(daemon->event, NULL, SIGHUP, hang_up, daemon);
	error = error < 0 ? error : listen_to_devices(daemon);
	error = error < 0 ? error : bus_new(&daemon->bus, daemon->event, refresh_asked, daemon);
	error = error < 0 ? error : sd_event_add_time(daemon->event, &daemon->jobs_timer, CLOCK_MONOTONIC, facts_clock(), 1000000, start_look_at_jobs, daemon);
	error = error < 0 ? error : sd_event_add_time(daemon->event, &daemon->look_timer, CLOCK_MONOTONIC, 0, 1000, start_look, daemon);
	error = error < 0 ? error : sd_event_source_set_enabled(daemon->look_timer, SD_EVENT_OFF);
	error = error < 0 ? error : sd_event_add_time(daemon->event, &daemon->heard_timer, CLOCK_MONOTONIC, 0, 1000, hear, daemon);
	error = error < 0 ? error : sd_event_source_set_enabled(daemon->heard_timer, SD_EVENT_OFF);
	if (error < 0)
		return error;
	daemon->metrics = metrics_server_new(daemon->event);
	if (!daemon->metrics)
		return -errno;
	child_leaves(&(struct connections){ .bus = connection_to_bus, .leave = leave_metrics, .data = daemon });
	take_sockets(daemon);
	error = stall_watch_new(&daemon->stalls, daemon->event, !daemon->observe, stalls_changed, daemon);
	if (error < 0)
		return error;
	set_services(daemon);
	/* the first pass at once: what came before we listened */
	return sd_event_add_time(daemon->event, &daemon->timer, CLOCK_MONOTONIC, facts_clock(), 1000, start_pass, daemon);
}

int main(int argc, char **argv)
{
	static const char usage[] = "usage: larderd [--wait SECONDS] [--observe] [--metrics-listen ADDRESS]";
	static const struct option options[] = { { "wait", required_argument, NULL, 'w' }, { "observe", no_argument, NULL, 'o' }, { "metrics-listen", required_argument, NULL, 'm' }, { "help", no_argument, NULL, 'h' }, { 0 } };
	static struct daemon daemon = { .wait = ASSEMBLY_WAIT_CONF };
	int option, error;

	descriptors_fill();
	while ((option = getopt_long(argc, argv, "w:om:h", options, NULL)) != -1) {
		if (option == 'h') {
			puts(usage);
			return LARDER_DONE;
		}
		if (option != 'w' && option != 'o' && option != 'm')
			return complain(LARDER_USAGE, "%s", usage);
		daemon.observe |= option == 'o';
		if (option == 'w' && !conf_parse_wait(optarg, &daemon.wait))
			return complain(LARDER_USAGE, "--wait: '%s' is no number of seconds up to %d", optarg, CONF_WAIT_MAX_S);
		if (option == 'm' && !address_parse(optarg, &daemon.listen))
			return complain(LARDER_USAGE, "--metrics-listen: '%s' is not " ADDRESS_WORDS, optarg);
	}
	if (optind < argc)
		return complain(LARDER_USAGE, "%s", usage);
	if (!daemon.observe && assembly_is_off()) {
		remark("larder.auto=no is on the kernel's command line: nothing is assembled");
		sd_notify(0, "READY=1");
		return LARDER_DONE;
	}
	error = set_up(&daemon);
	error = error < 0 ? error : sd_event_loop(daemon.event);
	if (daemon.metrics)
		metrics_server_free(daemon.metrics);
	if (daemon.stalls)
		stall_watch_free(daemon.stalls);
	journal_close();
	if (error < 0)
		return complain(LARDER_FAILED, "cannot go on: %s", strerror(-error));
	return error;
}
