// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A method of org.larder1, from the call to its answer:
 *
 *	call -> words (methods.h) -> who is the caller? (the bus is asked) -> may he? (root; else polkit is asked) -> the command
 *	larder -> its end: empty answer, or the last line it said as an error
 *
 * Anybody may call, and polkit may be a long time answering, as its agent may be the caller's own: what is kept of a call is small,
 * and bounded in number.
 * The command runs outside of the daemon's sandbox, as a unit of its own, where systemd runs: a mount inside would be nobody else's, and it goes
 * on when the daemon is started anew.  While it runs, one that takes long is a job (jobs.h).  The only secret that it gets is a descriptor of the
 * caller's, which nobody here reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "../lib/message.h"
#include "../lib/program.h"
#include "../lib/superblock.h"
#include "bus_call.h"
#include "child.h"
#include "jobs.h"
#include "methods.h"

#define COMMANDS_MAX	16 /* that run at once: of root; of all others together */
#define COMMANDS_OF_ONE 8 /* user, but for root */
#define UNKNOWN_MAX	256 /* calls of which the bus is asked who makes them */
#define ASKED_MAX	64 /* calls that wait for polkit; each may keep a file descriptor */
#define WAITING_OF_ONE	8 /* sender, or user */
#define SAID_MAX	4096
#define SECRET_WAIT	"60" /* seconds, in which a secret is to have come by the caller's pipe */
#define POLKIT_US	(10 * 60 * UINT64_C(1000000)) /* somebody types a password */
#define POLKIT_INTERACTIVE 1u

/* From the call to its answer. */
struct call {
	sd_bus_message *message; /* without its arguments */
	const struct bus_hooks *hooks;
	const struct method *method;
	struct command command;
	char *job; /* path: the call is about this one */
	char *of, *stack; /* paths: what the command is about */
	int said; /* what the command says */
	sd_event_source *words;
	size_t length;
	char text[SAID_MAX];
	uid_t user; /* -1: nobody knows */
	struct call *next; /* that is asked about, or whose command runs */
	/* while the command runs */
	unsigned serial;
	char *unit; /* of systemd; NULL: it is a child */
	pid_t child;
	bool cancelled;
	const char *state; /* of the job */
	char *error;
};

static struct call *unknown, *asking, *running; /* the oldest first */
static unsigned serial;

static void append(struct call **list, struct call *call)
{
	while (*list)
		list = &(*list)->next;
	*list = call;
	call->next = NULL;
}

static void take_out(struct call **list, struct call *call)
{
	while (*list != call)
		list = &(*list)->next;
	*list = call->next;
}

static bool is_of_sender(const struct call *one, const struct call *other)
{
	return !strcmp(sd_bus_message_get_sender(one->message), sd_bus_message_get_sender(other->message));
}

static bool is_of_user(const struct call *one, const struct call *other)
{
	return one->user == other->user;
}

static bool too_many(const struct call *list, unsigned most, bool (*is_of_same)(const struct call *one, const struct call *other),
		     const struct call *call)
{
	unsigned all = 0, of_one = 0;

	for (const struct call *other = list; other; other = other->next) {
		all++;
		of_one += is_of_same(other, call);
	}
	return all >= most || of_one >= WAITING_OF_ONE;
}

/* Nobody keeps root waiting, nor one user all others. */
static unsigned too_many_run(const struct call *call)
{
	unsigned all = 0, of_one = 0;

	for (const struct call *other = running; other; other = other->next) {
		all += !other->user == !call->user;
		of_one += is_of_user(other, call);
	}
	return all >= COMMANDS_MAX ? all : call->user && of_one >= COMMANDS_OF_ONE ? of_one : 0;
}

static void forget(struct call *call)
{
	sd_bus_message_unref(call->message);
	command_free(&call->command);
	free(call->job);
	free(call->of);
	free(call->stack);
	free(call->unit);
	free(call->error);
	sd_event_source_disable_unref(call->words);
	if (call->said >= 0)
		close(call->said);
	free(call);
}

/* ------------------------------------------------------------------ jobs */

static struct object *job_of(struct objects *objects, const struct call *call)
{
	struct object *job = job_add(objects, call->method->job, call->of, "command", call->serial);

	object_set(job, "Stack", "%s", call->stack);
	object_set(job, "State", "%s", call->state);
	object_set(job, "Error", "%s", call->error ? call->error : "");
	object_set(job, "CanCancel", "%d", call->method->cancel && !call->cancelled && !strcmp(call->state, "running"));
	return job;
}

void bus_call_jobs(struct objects *objects)
{
	static const char *const numbers[] = { "Done", "Left", "Total", "Unit" };

	for (const struct call *call = running; call; call = call->next) {
		const struct object *of, *at;
		struct object *job;

		if (!call->method->job)
			continue;
		job = job_of(objects, call);
		of = objects_find(objects, call->of);
		/* how far it is the devices know, if anybody */
		for (size_t i = 0; i < objects->number && of; i++) {
			at = &objects->object[i];
			if (at->kind != OBJECT_JOB || strcmp(object_value(at, "Source"), "devices") || !object_is_part(of, object_value(at, "Object")))
				continue;
			for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
				object_set(job, numbers[k], "%s", object_value(at, numbers[k]));
		}
	}
}

/* ------------------------------------------------------------------ the command */

static const char *error_of(int code)
{
	static const char *const names[] = {
		[LARDER_FAILED] = BUS_NAME ".Error.Failed", [LARDER_USAGE] = BUS_NAME ".Error.Usage",	[LARDER_NOT_FOUND] = BUS_NAME ".Error.NotFound",
		[LARDER_BUSY] = BUS_NAME ".Error.Busy",	    [LARDER_UNSAFE] = BUS_NAME ".Error.Unsafe",
	};

	return code > 0 && code <= LARDER_UNSAFE ? names[code] : names[LARDER_FAILED];
}

/* What there is of its words by now; the end of them, if they are too many.  False: there will be no more. */
static bool hear(struct call *call)
{
	ssize_t length;

	for (;;) {
		if (call->length > SAID_MAX / 2) {
			memmove(call->text, call->text + call->length - SAID_MAX / 4, SAID_MAX / 4);
			call->length = SAID_MAX / 4;
		}
		length = read(call->said, call->text + call->length, SAID_MAX - 1 - call->length);
		if (length <= 0)
			return length < 0 && errno == EAGAIN;
		call->length += (size_t)length;
	}
}

static const char *last_line(struct call *call)
{
	char *line;

	call->text[call->length] = 0;
	while (call->length && call->text[call->length - 1] == '\n')
		call->text[--call->length] = 0;
	line = strrchr(call->text, '\n');
	line = line ? line + 1 : call->text;
	text_clean(line);
	return strncmp(line, "larder: ", strlen("larder: ")) ? line : line + strlen("larder: ");
}

static int words_came(sd_event_source *source, int file, uint32_t events, void *data)
{
	(void)file;
	(void)events;
	if (!hear(data))
		sd_event_source_set_enabled(source, SD_EVENT_OFF);
	return 0;
}

static void answer(struct call *call, const siginfo_t *info)
{
	const char *line = last_line(call);
	bool killed = info->si_code != CLD_EXITED || info->si_status == 128 + SIGTERM;

	if (!killed && !info->si_status) {
		call->state = "done";
		sd_bus_reply_method_return(call->message, NULL);
		return;
	}
	call->state = call->cancelled ? "cancelled" : "failed";
	call->error = must_print("%s", call->cancelled ? "cancelled: the same call again goes on with it" :
				killed		  ? "the command larder was killed" :
				*line		  ? line :
						    "the command larder has failed, and said nothing");
	sd_bus_reply_method_errorf(call->message, call->cancelled ? BUS_NAME ".Error.Cancelled" : error_of(info->si_code == CLD_EXITED ? info->si_status : LARDER_FAILED),
				   "%s", call->error);
}

static int command_ended(sd_event_source *source, const siginfo_t *info, void *data)
{
	struct call *call = data;
	const struct bus_hooks *hooks = call->hooks;

	sd_event_source_unref(source);
	hear(call);
	answer(call, info);
	/* how the job ended is told of it, and then that it is gone */
	if (call->method->job)
		hooks->jobs_changed(hooks->data);
	take_out(&running, call);
	if (call->method->job)
		hooks->jobs_changed(hooks->data);
	hooks->ended(hooks->data);
	forget(call);
	return 0;
}

static _Noreturn void become(const struct call *call, int out)
{
	const char **words = must_allocate(calloc(call->command.number + 16, sizeof(*words)));
	int in = call->command.in >= 0 ? call->command.in : open("/dev/null", O_RDONLY);
	size_t number = 0;
	sigset_t none;

	setenv(PROGRAM_SECRET_WAIT, SECRET_WAIT, false); /* tests have another one */
	if (call->unit) {
		for (; program_unit[number]; number++)
			words[number] = program_unit[number];
		words[number++] = must_print("--unit=%s", call->unit);
		words[number++] = "--setenv=" PROGRAM_WAITED_FOR "=1";
		words[number++] = must_print("--setenv=" PROGRAM_SECRET_WAIT "=%s", getenv(PROGRAM_SECRET_WAIT));
		words[number++] = "--property=SendSIGKILL=no"; /* who has put a volume to rest has to go on, however long its disk takes */
		words[number++] = "--";
	}
	words[number++] = "larder";
	for (size_t i = 0; i < call->command.number; i++)
		words[number++] = call->unit ? program_unit_word(call->command.words[i]) : call->command.words[i];
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	execvp(words[0], (char *const *)words);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", words[0], strerror(errno));
	_exit(LARDER_FAILED);
}

/* Takes the call. */
static int run(struct call *call)
{
	sd_event *event = sd_bus_get_event(sd_bus_message_get_bus(call->message));
	unsigned many = too_many_run(call);
	int ends[2], result;

	if (many) {
		result = sd_bus_reply_method_errorf(call->message, SD_BUS_ERROR_LIMITS_EXCEEDED, "%u commands %sare running already; try again", many,
						    many < COMMANDS_MAX ? "of this user " : "");
		forget(call);
		return result;
	}
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
		result = sd_bus_reply_method_errnof(call->message, errno, "cannot make a pipe: %m");
		forget(call);
		return result;
	}
	call->serial = ++serial;
	if (sd_booted() > 0)
		call->unit = must_print("larder-call-%d-%u.service", (int)getpid(), call->serial);
	call->child = child_fork();
	if (!call->child) {
		fcntl(ends[1], F_SETFL, 0);
		become(call, ends[1]);
	}
	close(ends[1]);
	call->said = ends[0];
	if (call->child < 0) {
		result = sd_bus_reply_method_errnof(call->message, errno, "cannot fork: %m");
		forget(call);
		return result;
	}
	if (child_watch(event, call->child, command_ended, call)) {
		result = sd_bus_reply_method_errorf(call->message, error_of(LARDER_FAILED), "cannot wait for the command");
		forget(call);
		return result;
	}
	if (call->command.in >= 0)
		close(call->command.in);
	call->command.in = -1;
	call->state = "running";
	append(&running, call);
	/* who says much must not be kept waiting for us */
	sd_event_add_io(event, &call->words, call->said, EPOLLIN, words_came, call);
	if (call->method->job)
		call->hooks->jobs_changed(call->hooks->data);
	return 1;
}

/* ------------------------------------------------------------------ a command is cut off */

static struct call *find_by_job(const char *path)
{
	struct objects one = { 0 };
	struct call *call;
	bool found = false;

	for (call = running; call; call = call->next) {
		found = call->method->job && !strcmp(job_of(&one, call)->path, path);
		objects_free(&one);
		if (found)
			break;
	}
	return call;
}

/* Takes the call.  why: it is not cut off; NULL: it is, and may have ended by now. */
static int answer_cancel(struct call *call, const char *why)
{
	struct call *other = find_by_job(call->job);
	int result;

	if (other)
		other->cancelled = !why;
	if (why)
		result = sd_bus_reply_method_errorf(call->message, error_of(LARDER_FAILED), "%s: %s", call->job, why);
	else
		result = sd_bus_reply_method_return(call->message, NULL);
	call->hooks->jobs_changed(call->hooks->data);
	forget(call);
	return result;
}

static int unit_killed(sd_bus_message *said, void *data, sd_bus_error *error)
{
	(void)error;
	return answer_cancel(data, sd_bus_message_is_method_error(said, NULL) ? sd_bus_message_get_error(said)->message : NULL);
}

/* Takes the call. */
static int cancel(struct call *call)
{
	struct call *other = find_by_job(call->job);
	int result;

	if (!other)
		return answer_cancel(call, "has ended");
	if (!other->unit)
		return answer_cancel(call, kill(other->child, SIGTERM) ? strerror(errno) : NULL);
	/* its end may come before the answer */
	other->cancelled = true;
	result = sd_bus_call_method_async(sd_bus_message_get_bus(call->message), NULL, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
					  "org.freedesktop.systemd1.Manager", "KillUnit", unit_killed, call, "ssi", other->unit, "main", SIGTERM);
	return result < 0 ? answer_cancel(call, strerror(-result)) : 1;
}

/* ------------------------------------------------------------------ may the caller? */

static int go_on(struct call *call)
{
	int result;

	if (call->command.number)
		return run(call);
	if (call->job)
		return cancel(call);
	call->hooks->asked(call->hooks->data, !call->user);
	result = sd_bus_reply_method_return(call->message, NULL);
	forget(call);
	return result;
}

static int polkit_answered(sd_bus_message *answer, void *data, sd_bus_error *error)
{
	struct call *call = data;
	int may = 0, challenge = 0, result;

	(void)error;
	take_out(&asking, call);
	if (!sd_bus_message_is_method_error(answer, NULL) && sd_bus_message_enter_container(answer, 'r', "bba{ss}") > 0)
		sd_bus_message_read(answer, "bb", &may, &challenge);
	if (may)
		return go_on(call);
	result = sd_bus_reply_method_errorf(call->message,
					    challenge ? SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED : SD_BUS_ERROR_ACCESS_DENIED,
					    "only root may, or whom polkit lets");
	forget(call);
	return result;
}

/* Takes the call. */
static int refuse(struct call *call, int result, const char *what)
{
	result = sd_bus_reply_method_errnof(call->message, -result, "cannot ask %s: %m", what);
	forget(call);
	return result;
}

/* Takes the call. */
static int refuse_too_many(struct call *call, const char *what)
{
	int result = sd_bus_reply_method_errorf(call->message, SD_BUS_ERROR_LIMITS_EXCEEDED, "too many calls wait for %s", what);

	forget(call);
	return result;
}

/* Takes the call. */
static int ask_polkit(struct call *call)
{
	sd_bus *bus = sd_bus_message_get_bus(call->message);
	char *name;
	uint32_t flags = sd_bus_message_get_allow_interactive_authorization(call->message) > 0 ? POLKIT_INTERACTIVE : 0;
	sd_bus_message *question = NULL;
	int result;

	if (too_many(asking, ASKED_MAX, is_of_user, call))
		return refuse_too_many(call, "polkit already; answer, or cancel those");
	name = must_print(BUS_NAME ".%s", call->command.action);
	result = sd_bus_message_new_method_call(bus, &question, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority",
						"org.freedesktop.PolicyKit1.Authority", "CheckAuthorization");
	if (result >= 0)
		result = sd_bus_message_append(question, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
					       sd_bus_message_get_sender(call->message), name, 0, flags, "");
	if (result >= 0)
		result = sd_bus_call_async(bus, NULL, question, polkit_answered, call, POLKIT_US);
	sd_bus_message_unref(question);
	free(name);
	if (result < 0)
		return refuse(call, result, "polkit");
	append(&asking, call);
	return 1;
}

static int user_is_known(sd_bus_message *answer, void *data, sd_bus_error *error)
{
	struct call *call = data;
	uint32_t uid;

	(void)error;
	take_out(&unknown, call);
	if (!sd_bus_message_is_method_error(answer, NULL) && sd_bus_message_read(answer, "u", &uid) > 0)
		call->user = uid;
	return call->user ? ask_polkit(call) : go_on(call);
}

/* Takes the call.  Of a bus that stands still, or has much to do, the loop does not wait for the answer. */
static int ask_for_user(struct call *call)
{
	sd_bus *bus = sd_bus_message_get_bus(call->message);
	const char *sender = sd_bus_message_get_sender(call->message);
	int result;

	if (too_many(unknown, UNKNOWN_MAX, is_of_sender, call))
		return refuse_too_many(call, "the bus to say who makes them; try again");
	result = sd_bus_call_method_async(bus, NULL, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
					  "GetConnectionUnixUser", user_is_known, call, "s", sender);
	if (result < 0)
		return refuse(call, result, "the bus who calls");
	append(&unknown, call);
	return 1;
}

/*
 * What an answer needs of a message; its texts, which may be 32 MB, and 16 descriptors, whether the method takes any or not, go with the
 * message.
 */
static int without_arguments(sd_bus_message *message, sd_bus_message **bare)
{
	bool interactive = sd_bus_message_get_allow_interactive_authorization(message) > 0;
	uint64_t cookie;
	int result = sd_bus_message_get_cookie(message, &cookie);

	*bare = NULL;
	if (result >= 0)
		result = sd_bus_message_new_method_call(sd_bus_message_get_bus(message), bare, BUS_NAME, sd_bus_message_get_path(message),
							sd_bus_message_get_interface(message), sd_bus_message_get_member(message));
	if (result >= 0)
		result = sd_bus_message_set_sender(*bare, sd_bus_message_get_sender(message));
	if (result >= 0)
		result = sd_bus_message_set_expect_reply(*bare, sd_bus_message_get_expect_reply(message));
	if (result >= 0)
		result = sd_bus_message_set_allow_interactive_authorization(*bare, interactive);
	if (result >= 0)
		result = sd_bus_message_seal(*bare, cookie, 0);
	if (result < 0)
		*bare = sd_bus_message_unref(*bare);
	return result;
}

/* ------------------------------------------------------------------ the methods */

static const struct method *find_method(int kind, const char *member)
{
	for (const struct method *m = methods; m->member; m++)
		if (m->kind == kind && !strcmp(m->member, member))
			return m;
	return NULL;
}

/* A job is no longer one to do that with, or never was: the properties say which are. */
static int check_job(const struct object *job, const struct command *command, const char *member, sd_bus_error *error)
{
	bool by_us = !strcmp(member, "Cancel") && !strcmp(object_value(job, "Source"), "command") && !strcmp(object_value(job, "CanCancel"), "1");

	if (command->number || by_us)
		return 0;
	return sd_bus_error_setf(error, SD_BUS_ERROR_NOT_SUPPORTED, "%s: a job of this kind, in the state '%s', has no %s: see CanCancel, CanPause and State",
				 object_value(job, "Kind"), object_value(job, "State"), member);
}

int bus_call(sd_bus_message *message, const struct object *object, const struct bus_hooks *hooks, sd_bus_error *error)
{
	int kind = object ? (int)object->kind : METHOD_OF_MANAGER, result;
	const struct method *m = find_method(kind, sd_bus_message_get_member(message));
	sd_bus_message *bare = NULL;
	struct command command;
	struct call *call;

	if (!m)
		return sd_bus_error_setf(error, SD_BUS_ERROR_UNKNOWN_METHOD, "no method %s", sd_bus_message_get_member(message));
	result = method_command(m, object, message, &command, error);
	if (result < 0)
		return result;
	if (kind == OBJECT_JOB)
		result = check_job(object, &command, m->member, error);
	if (result >= 0)
		result = without_arguments(message, &bare);
	if (result < 0) {
		command_free(&command);
		return result;
	}
	call = must_allocate(calloc(1, sizeof(*call)));
	*call = (struct call){ .message = bare, .hooks = hooks, .method = m, .command = command, .said = -1, .user = (uid_t)-1 };
	call->job = kind == OBJECT_JOB ? must_print("%s", object->path) : NULL;
	call->of = must_print("%s", object ? object->path : BUS_ROOT);
	call->stack = must_print("%s", kind == OBJECT_STACK ? object->path : kind == OBJECT_VOLUME ? object_value(object, "Stack") : "/");
	return ask_for_user(call);
}
