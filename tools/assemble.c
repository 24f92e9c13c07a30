// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder assemble: what larderd does, in one go, for who has no daemon: an initramfs, a rescue system.
 *
 * Exit code: 0 when everything that is here runs; 3 when something waits for what is missing, 5 when something was refused; the
 * code of the first start that failed.
 *
 * --again, of the units for one volume or cache: each look is a process of its own, and systemd is told of the first one that all there is has been
 * started (READY=1), whatever is missing: or the boot would not be over for as long.
 */
#include <errno.h>
#include <libudev.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "../daemon/assembly.h"
#include "arguments.h"
#include "clock.h"
#include "hanging.h"
#include "integrity.h"
#include "pauses.h"
#include "stacks.h"
#include "turn.h"
#include "verbs.h"

static void tell(enum assembly_event event, const uint8_t uuid[16], const char *text)
{
	(void)uuid;
	if (event == ASSEMBLY_STARTED)
		puts(text);
	else
		remark("%s", text);
}

/*
 * Where a volume is not here, legs of its array may be, whose dm-integrity nobody else starts: by its UUID, or by the name of its stack, which an SSD knows.
 * *below: there is one; uuid: of the volume.  Complains of legs of two.
 */
static int find_leg(const struct stacks *stacks, const char *name, uint8_t uuid[16], bool *below)
{
	char one[UUID_TEXT], other[UUID_TEXT];
	uint8_t given[16], volume[16];
	bool by_uuid = !uuid_parse(name, given);

	for (size_t i = 0; i < stacks->members.number; i++) {
		const struct found *f;
		struct leg_fields leg;
		struct stack stack;

		if (!leg_is(&stacks->members.member[i]->sb, &leg))
			continue;
		f = stack_by_uuid(stacks, leg.stack);
		memcpy(stack.uuid, leg.stack, 16);
		stack_part(&stack, "volume", volume);
		if (by_uuid ? memcmp(given, volume, 16) != 0 : !f || f->whole || strcmp(f->stack.name, name) != 0)
			continue;
		if (*below && memcmp(uuid, volume, 16) != 0)
			return complain(LARDER_UNSAFE, "%s: disks of two stacks of this name are here; give the UUID of the volume, %s or %s", name,
					uuid_text(uuid, one), uuid_text(volume, other));
		memcpy(uuid, volume, 16);
		*below = true;
	}
	return LARDER_DONE;
}

/*
 * UUID of the volume, or cache, with this name.  Of a stack whose disks are not here, or its array does not run, it is not that of the cache with its name.
 * *below: of the volume no more than legs is here.
 */
static int find(const char *name, uint8_t uuid[16], bool *below)
{
	const struct member *member;
	struct stacks stacks;
	int result = stacks_scan(&stacks);
	bool volume = false, listed = false;

	if (result)
		return result;
	for (size_t i = 0; i < stacks.members.number; i++)
		volume |= member_is(stacks.members.member[i], name, LARDER_KIND_VOLUME);
	for (size_t i = 0; i < stacks.number; i++)
		listed |= !stacks.found[i].whole && !strcmp(stacks.found[i].stack.name, name);
	*below = false;
	if (!volume)
		result = find_leg(&stacks, name, uuid, below);
	if (result || *below)
		goto out;
	if (!volume && listed)
		result = complain(LARDER_NOT_FOUND, "%s: the disks of this stack are not here, or their array does not run; larder start %s says more", name, name);
	else
		result = member_find(&stacks.members, name, volume ? LARDER_KIND_VOLUME : LARDER_KIND_CACHE, &member);
	if (!result)
		memcpy(uuid, volume ? member->sb.head.uuid : member->sb.cache.cache_uuid, 16);
out:
	stacks_free(&stacks);
	return result;
}

/* What a look leaves to who looks again, beside its code. */
struct came {
	bool hangs; /* something was left out, as it hangs */
	bool waits; /* something is missing, whatever is refused beside it */
	uint64_t again; /* on the clock of facts: so long it is waited for; 0: nobody says */
	uint64_t unread_since, unready_since; /* as in struct assembly */
};

static int run(struct assembly *assembly, struct came *came)
{
	int result = assembly_pass(assembly);

	came->waits |= assembly->waiting;
	if (assembly->again && (!came->again || assembly->again < came->again))
		came->again = assembly->again;
	if (result)
		return result;
	return assembly->refused ? LARDER_UNSAFE : assembly->waiting ? LARDER_NOT_FOUND : LARDER_DONE;
}

/* Of a volume of which legs are here: until its array runs it is missing, whatever is refused, or fails. */
static int run_below(struct assembly *assembly, const char *name, struct came *came)
{
	char uuid[UUID_TEXT], *dm_uuid = must_print("LARDER-%s", uuid_text(assembly->only, uuid));
	int result = run(assembly, came);

	if (result != LARDER_BUSY && !mapped_is_shown(dm_uuid))
		result = complain(LARDER_NOT_FOUND, "%s: its array does not run; md's rules gather that from the disks whose dm-integrity was started; larder list says more",
				  name);
	free(dm_uuid);
	return result;
}

/* Without privileges there may be nothing to see: that is no success. */
static int check_seen(void)
{
	struct members members;

	members_scan(&members);
	members_free(&members);
	return members_check_seen();
}

/* What was asked for, all of it; words: the names, NULL behind them; none: all. */
static int look(struct assembly *assembly, char **words, struct came *came)
{
	int result, worst = LARDER_DONE;
	uint8_t uuid[16];
	bool below;

	if (!*words) {
		result = geteuid() ? check_seen() : LARDER_DONE;
		return result ? result : run(assembly, came);
	}
	for (; *words; words++) {
		result = find(*words, uuid, &below);
		assembly->only = uuid;
		if (!result && !assembly->dry_run && !assembly->obey)
			stopped_clear(uuid);
		result = result ? result : below ? run_below(assembly, *words, came) : run(assembly, came);
		came->waits |= result == LARDER_NOT_FOUND;
		worst = worst ? worst : result;
	}
	return worst;
}

/* ------------------------------------------------------------------ again and again */

#define SETTLES_S 2 /* behind an event others may follow */
#define MISSING_S 3600 /* what comes makes an event */
#define BUSY_S	  60 /* what is released, or answers again, may make none */

/* sd_notify(): who has no larderd may have no systemd. */
static void tell_systemd(const char *text)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;
	int fd;

	if (!length || length >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, length);
	if (*path == '@')
		to.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	/* where nobody hears it nothing else can be done either */
	if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		remark("systemd cannot be told how far this is: %s", strerror(errno));
	close(fd);
}

/* In a process of its own: it is to remember nothing, and hold no lock.  Its code; came: in memory that both share. */
static int look_apart(struct assembly *assembly, char **words, struct came *came)
{
	struct came left = { 0 };
	int status = 0, result;
	pid_t child;

	*came = left;
	fflush(stdout);
	child = fork();
	if (!child) {
		result = look(assembly, words, &left);
		hanging_remark();
		left.hangs = hanging_any();
		left.unread_since = assembly->unread_since;
		left.unready_since = assembly->unready_since;
		if (fflush(stdout))
			_exit(LARDER_FAILED);
		*came = left;
		_exit(result);
	}
	if (child < 0)
		return complain(LARDER_FAILED, "cannot fork: %s", strerror(errno));
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	assembly->unread_since = came->unread_since;
	assembly->unready_since = came->unready_since;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); /* then systemd starts us again */
}

static bool drain(struct udev_monitor *monitor)
{
	struct udev_device *device;
	bool any = false;

	while ((device = udev_monitor_receive_device(monitor))) {
		udev_device_unref(device);
		any = true;
	}
	return any;
}

/* True: something has come, or changed. */
static bool wait_for_device(struct udev_monitor *monitor, const struct pauses *pauses)
{
	struct pollfd events = { .fd = monitor ? udev_monitor_get_fd(monitor) : -1, .events = POLLIN };
	double began = clock_seconds(), end = began + pauses->pause, left, now = began;
	bool any = false;

	while ((left = end - now) > 0) {
		bool came = poll(&events, 1, (int)(left * 1000) + 1) > 0 && drain(monitor);

		now = clock_seconds();
		if (!came || any)
			continue;
		any = true;
		end = began + pauses_gap(pauses);
		end = end > now + SETTLES_S ? end : now + SETTLES_S;
	}
	return any;
}

/* Of block devices, as udev has them. */
static struct udev_monitor *new_monitor(struct udev *udev)
{
	struct udev_monitor *monitor = udev ? udev_monitor_new_from_netlink(udev, "udev") : NULL;

	if (monitor && (udev_monitor_filter_add_match_subsystem_devtype(monitor, "block", NULL) < 0 || udev_monitor_enable_receiving(monitor) < 0))
		monitor = udev_monitor_unref(monitor);
	return monitor;
}

/* Seconds, up to `most`, and 1 at least. */
static unsigned seconds_until(uint64_t when, unsigned most)
{
	uint64_t now = facts_clock(), left = when > now ? (when - now - 1) / 1000000 + 1 : 1;

	return left < most ? (unsigned)left : most;
}

/* The longest pause behind such a look.  What hangs has its own: nothing tells when it answers. */
static unsigned longest(const struct came *came, bool busy)
{
	unsigned most = busy ? BUSY_S : MISSING_S;

	return came->again && !came->hangs ? seconds_until(came->again, most) : most;
}

static int look_again(struct assembly *assembly, char **words)
{
	struct came *came = mmap(NULL, sizeof(*came), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct udev *udev = udev_new();
	struct udev_monitor *monitor = new_monitor(udev);
	struct pauses pauses = { 0 };
	bool by_event = false, busy;
	const char *ready = "READY=1\n";
	int result;
	char *text;

	must_allocate(came == MAP_FAILED ? NULL : came);
	for (;;) {
		result = look_apart(assembly, words, came);
		if (result != LARDER_NOT_FOUND && result != LARDER_BUSY && !(result == LARDER_UNSAFE && came->waits))
			break;
		busy = came->hangs || result == LARDER_BUSY;
		pauses_next(&pauses, by_event, longest(came, busy));
		text = must_print("%sSTATUS=%s; looks again when a device comes, and in %u s", ready,
				  result == LARDER_BUSY ? "something is in use" : busy ? "something does not answer" : "something is missing", pauses.pause);
		tell_systemd(text);
		free(text);
		ready = "";
		/* whoever called has waited for what is here, and not for what comes behind that */
		if (!assembly->wait)
			assembly->wait = ASSEMBLY_WAIT_CONF;
		by_event = wait_for_device(monitor, &pauses);
	}
	if (!result)
		tell_systemd("READY=1\nSTATUS=started");
	udev_monitor_unref(monitor);
	udev_unref(udev);
	munmap(came, sizeof(*came));
	return result;
}

int assemble(int argc, char **argv)
{
	static const char usage[] = "larder assemble --all | NAME|UUID... [--conf] [--degraded] [--again] [--dry-run]";
	struct assembly assembly = { .wait = ASSEMBLY_WAIT_FOR_EVER, .tell = tell };
	bool all = false, degraded = false, again = false;
	const struct argument arguments[] = {
		{ "all", 'a', ARGUMENT_FLAG, &all, NULL, "whatever is here, but what was stopped" },
		{ "degraded", 0, ARGUMENT_FLAG, &degraded, NULL, "wait no longer for what is missing, where nothing is lost by that" },
		{ "conf", 0, ARGUMENT_FLAG, &assembly.obey, NULL, "also of what is named only what larder.conf lets start by itself" },
		{ "again", 0, ARGUMENT_FLAG, &again, NULL, "while something is missing, or in use, look again: later and later, and when a device comes (larder-assemble@.service does so)" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &assembly.dry_run, NULL, "only print the dmsetup commands, and what is refused" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 0, -1, &first, &result))
		return result;
	if (all == (first < argc))
		return complain(LARDER_USAGE, "%s; usage: %s", all ? "--all goes without names" : "a name, or --all, is missing", usage);
	if (degraded)
		assembly.wait = 0;
	if ((all || assembly.obey) && assembly_is_off()) {
		remark("larder.auto=no is on the kernel's command line: nothing is assembled; larder assemble NAME does it all the same");
		return LARDER_DONE;
	}
	return again ? look_again(&assembly, argv + first) : look(&assembly, argv + first, &(struct came){ 0 });
}
