// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A method of org.larder1, from the call to its answer:
 *
 *	call -> may the caller? (root; else polkit is asked) -> the command larder -> its end: empty answer, or the last line it said as an error
 *
 * The command runs outside of the daemon's sandbox, as a unit of its own, where systemd runs: a mount inside would be nobody else's.  It gets no
 * secret: who has a passphrase gives it to `larder unlock`, or to the agents of larder-unlock@.service.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "../lib/message.h"
#include "../lib/program.h"
#include "../lib/superblock.h"
#include "bus_call.h"

#define COMMANDS_MAX	16 /* that run at once */
#define WORDS_MAX	16
#define SAID_MAX	4096
#define POLKIT_US	(10 * 60 * UINT64_C(1000000)) /* somebody types a password */
#define POLKIT_INTERACTIVE 1u

static const struct method {
	enum object_kind kind;
	const char *member, *action;
	const char *words[5]; /* of the command; behind them the UUID, and KEY=VALUE of SetOption */
} methods[] = {
	{ OBJECT_STACK, "Start", "start", { "start" } },
	{ OBJECT_STACK, "Stop", "stop", { "stop" } },
	{ OBJECT_STACK, "Lock", "lock", { "lock" } },
	{ OBJECT_STACK, "Unlock", "unlock", { "unlock" } },
	{ OBJECT_CACHE, "Start", "start", { "cache", "start" } },
	{ OBJECT_CACHE, "Stop", "stop", { "cache", "stop" } },
	{ OBJECT_CACHE, "Scrub", "maintain", { "cache", "scrub" } },
	{ OBJECT_CACHE, "StopScrub", "maintain", { "cache", "scrub", "--stop" } },
	{ OBJECT_CACHE, "SetOption", "configure", { "cache", "set" } },
	{ OBJECT_VOLUME, "Start", "start", { "volume", "start" } },
	{ OBJECT_VOLUME, "Stop", "stop", { "volume", "stop" } },
	{ OBJECT_VOLUME, "Flush", "maintain", { "volume", "flush" } },
	{ OBJECT_VOLUME, "SetOption", "configure", { "volume", "set" } },
};

/* From the call to its answer. */
struct call {
	sd_bus_message *message;
	const struct method *method; /* NULL: none, then() does it */
	char *uuid, *option;
	void (*then)(void *data);
	void *data;
	int said; /* what the command says */
	sd_event_source *words;
	size_t length;
	char text[SAID_MAX];
};

static unsigned running;

static void forget(struct call *call)
{
	sd_bus_message_unref(call->message);
	free(call->uuid);
	free(call->option);
	sd_event_source_disable_unref(call->words);
	if (call->said >= 0)
		close(call->said);
	free(call);
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

static int command_ended(sd_event_source *source, const siginfo_t *info, void *data)
{
	struct call *call = data;
	const char *line;

	sd_event_source_unref(source);
	running--;
	hear(call);
	line = last_line(call);
	if (info->si_code == CLD_EXITED && !info->si_status)
		sd_bus_reply_method_return(call->message, NULL);
	else if (info->si_code == CLD_EXITED)
		sd_bus_reply_method_errorf(call->message, error_of(info->si_status), "%s", *line ? line : "the command larder has failed, and said nothing");
	else
		sd_bus_reply_method_errorf(call->message, error_of(LARDER_FAILED), "the command larder was killed");
	call->then(call->data);
	forget(call);
	return 0;
}

static _Noreturn void become(const struct call *call, int out)
{
	const char *words[WORDS_MAX] = { NULL };
	int null = open("/dev/null", O_RDONLY);
	size_t number = 0;
	sigset_t none;

	if (sd_booted() > 0) {
		for (; program_unit[number]; number++)
			words[number] = program_unit[number];
		words[number++] = "--";
	}
	words[number++] = "larder";
	for (const char *const *word = call->method->words; *word; word++)
		words[number++] = *word;
	words[number++] = call->uuid;
	words[number++] = call->option;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(null, STDIN_FILENO);
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
	int ends[2], result;
	pid_t child;

	if (running >= COMMANDS_MAX) {
		result = sd_bus_reply_method_errorf(call->message, SD_BUS_ERROR_LIMITS_EXCEEDED, "%u commands are running already; try again", running);
		forget(call);
		return result;
	}
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
		result = sd_bus_reply_method_errnof(call->message, errno, "cannot make a pipe: %m");
		forget(call);
		return result;
	}
	fflush(NULL);
	child = fork();
	if (!child) {
		fcntl(ends[1], F_SETFL, 0);
		become(call, ends[1]);
	}
	close(ends[1]);
	call->said = ends[0];
	if (child < 0) {
		result = sd_bus_reply_method_errnof(call->message, errno, "cannot fork: %m");
		forget(call);
		return result;
	}
	running++;
	if (sd_event_add_child(event, NULL, child, WEXITED, command_ended, call) < 0) {
		kill(child, SIGTERM);
		running--;
		result = sd_bus_reply_method_errorf(call->message, error_of(LARDER_FAILED), "cannot wait for the command");
		forget(call);
		return result;
	}
	/* who says much must not be kept waiting for us */
	sd_event_add_io(event, &call->words, call->said, EPOLLIN, words_came, call);
	return 1;
}

/* ------------------------------------------------------------------ may the caller? */

static int go_on(struct call *call)
{
	int result;

	if (call->method)
		return run(call);
	call->then(call->data);
	result = sd_bus_reply_method_return(call->message, NULL);
	forget(call);
	return result;
}

static int polkit_answered(sd_bus_message *answer, void *data, sd_bus_error *error)
{
	struct call *call = data;
	int may = 0, challenge = 0, result;

	(void)error;
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

static int ask_polkit(struct call *call, const char *action)
{
	char *name = must_print(BUS_NAME ".%s", action);
	sd_bus *bus = sd_bus_message_get_bus(call->message);
	uint32_t flags = sd_bus_message_get_allow_interactive_authorization(call->message) > 0 ? POLKIT_INTERACTIVE : 0;
	sd_bus_message *question = NULL;
	int result = sd_bus_message_new_method_call(bus, &question, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority",
						    "org.freedesktop.PolicyKit1.Authority", "CheckAuthorization");

	if (result >= 0)
		result = sd_bus_message_append(question, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
					       sd_bus_message_get_sender(call->message), name, 0, flags, "");
	if (result >= 0)
		result = sd_bus_call_async(bus, NULL, question, polkit_answered, call, POLKIT_US);
	sd_bus_message_unref(question);
	free(name);
	if (result < 0)
		forget(call);
	return result < 0 ? result : 1;
}

static bool is_root(sd_bus_message *message)
{
	sd_bus_creds *creds = NULL;
	uid_t uid = (uid_t)-1;
	bool root = sd_bus_query_sender_creds(message, SD_BUS_CREDS_EUID, &creds) >= 0 && sd_bus_creds_get_euid(creds, &uid) >= 0 && !uid;

	sd_bus_creds_unref(creds);
	return root;
}

static int authorise(struct call *call, const char *action)
{
	return is_root(call->message) ? go_on(call) : ask_polkit(call, action);
}

/* ------------------------------------------------------------------ the methods */

static struct call *new_call(sd_bus_message *message, void (*then)(void *data), void *data)
{
	struct call *call = must_allocate(calloc(1, sizeof(*call)));

	*call = (struct call){ .message = sd_bus_message_ref(message), .then = then, .data = data, .said = -1 };
	return call;
}

/* A key, and a value without blanks: the command judges them, and takes neither for an option of its own. */
static int read_option(sd_bus_message *message, char **option, sd_bus_error *error)
{
	const char *key, *value;
	int result = sd_bus_message_read(message, "ss", &key, &value);

	if (result < 0)
		return result;
	if (!*key || key[strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_")])
		return sd_bus_error_setf(error, BUS_NAME ".Error.Usage", "the key is no name of an option");
	*option = must_print("%s=%s", key, value);
	return 0;
}

int bus_call(sd_bus_message *message, const struct object *object, void (*ended)(void *data), void *data, sd_bus_error *error)
{
	const char *member = sd_bus_message_get_member(message);

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		const struct method *m = &methods[i];
		char *option = NULL;
		struct call *call;
		int result = 0;

		if (m->kind != object->kind || strcmp(m->member, member))
			continue;
		if (!strcmp(member, "SetOption"))
			result = read_option(message, &option, error);
		if (result < 0)
			return result;
		call = new_call(message, ended, data);
		call->method = m;
		call->uuid = must_print("%s", object_value(object, "UUID"));
		call->option = option;
		return authorise(call, m->action);
	}
	return sd_bus_error_setf(error, SD_BUS_ERROR_UNKNOWN_METHOD, "no method %s", member);
}

int bus_call_refresh(sd_bus_message *message, void (*then)(void *data), void *data, sd_bus_error *error)
{
	(void)error;
	return authorise(new_call(message, then, data), "refresh");
}
