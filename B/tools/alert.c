// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Alerts, as mdadm --monitor has them: a program is told of everything, and a mail is written where something is wrong.
 *
 * larder-events.service is confined, and neither a mail system nor somebody's program can work so: where systemd runs us, they run in a unit of
 * their own.  One that hangs is ended after a minute: the next event must not wait behind it.  What they are told comes from superblocks, too: it has no control characters, and in the head of a mail nothing but ASCII.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "alert.h"
#include "clock.h"
#include "message.h"
#include "program.h"

#define EXEC_FAILED 127 /* as of a shell */
#define WORDS_MAX   28
#define PATIENCE_S  60 /* LARDER_ALERT_SECONDS: another number */
#define POLL_US	    20000

/* The words of a command; those of systemd-run before it. */
struct command {
	const char *word[WORDS_MAX];
	size_t number;
};

static void say(struct command *command, const char *word)
{
	command->word[command->number++] = word;
}

/* For the program, behind its name; goes with the process. */
static void tell(struct command *command, const char *word, bool unit)
{
	say(command, unit ? program_unit_word(word) : word);
}

unsigned alert_patience(void)
{
	const char *text = getenv("LARDER_ALERT_SECONDS");
	unsigned seconds = text ? (unsigned)strtoul(text, NULL, 10) : 0;

	return seconds ? seconds : PATIENCE_S;
}

static void begin(struct command *command, const char *const *environment, bool unit)
{
	char *limit = must_print("RuntimeMaxSec=%u", alert_patience()); /* goes with the process */

	*command = (struct command){ 0 };
	setpgid(0, 0);
	if (!unit)
		return;
	for (const char *const *word = program_unit; *word; word++)
		say(command, *word);
	say(command, "--property");
	say(command, limit);
	for (; *environment; environment++) {
		say(command, "--setenv");
		say(command, *environment);
	}
	say(command, "--");
}

static _Noreturn void become(const struct command *command)
{
	execvp(command->word[0], (char *const *)command->word);
	_exit(EXEC_FAILED);
}

/* False: errno says why. */
static bool wait_for(pid_t child, int *status, bool *hangs)
{
	double begun = clock_seconds();
	pid_t ended;

	*hangs = false;
	for (;;) {
		ended = waitpid(child, status, *hangs ? 0 : WNOHANG);
		if (ended || *hangs)
			return ended == child;
		*hangs = clock_seconds() - begun > alert_patience();
		if (!*hangs)
			usleep(POLL_US);
		else if (kill(-child, SIGKILL))
			kill(child, SIGKILL);
	}
}

/* The end of a child; what is said of one that did not do it.  True: it did. */
static bool judge(pid_t child, const char *program, const char *how, const struct change *c)
{
	int status = 0;
	bool hangs;

	if (child < 0 || !wait_for(child, &status, &hangs))
		remark("%s: cannot run it: %s; %s names it", program, strerror(errno), how);
	else if (hangs)
		remark("%s: it had not ended after %u seconds, and was killed, for the event %s of %s %s", program, alert_patience(), c->event, c->kind, c->name);
	else if (WIFEXITED(status) && WEXITSTATUS(status) == EXEC_FAILED)
		remark("%s: it cannot be run; %s names it", program, how);
	else if (!WIFEXITED(status) || WEXITSTATUS(status))
		remark("%s: it failed for the event %s of %s %s", program, c->event, c->kind, c->name);
	else
		return true;
	return false;
}

/* ------------------------------------------------------------------ a program */

static _Noreturn void become_program(const char *program, const struct change *c, bool unit)
{
	char *kind = must_print("LARDER_KIND=%s", c->kind), *device = must_print("LARDER_DEVICE=%s", c->device);
	const char *environment[] = { kind, device, NULL };
	int null = open("/dev/null", O_RDONLY);
	struct command command;

	if (null >= 0)
		dup2(null, STDIN_FILENO);
	putenv(kind);
	putenv(device);
	begin(&command, environment, unit);
	say(&command, program);
	tell(&command, c->event, unit);
	tell(&command, c->name, unit);
	tell(&command, c->text, unit);
	become(&command);
}

void alert_program(const char *program, const struct change *c, const char *how, bool unit)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		become_program(program, c, unit);
	judge(child, program, how, c);
}

/* ------------------------------------------------------------------ a mail */

static _Noreturn void become_sendmail(int in, bool unit)
{
	const char *environment[] = { NULL };
	struct command command;
	char *path = must_print("%s:/usr/sbin:/usr/lib", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");

	dup2(in, STDIN_FILENO);
	setenv("PATH", path, 1);
	begin(&command, environment, unit);
	say(&command, "sendmail");
	say(&command, "-t");
	say(&command, "-i");
	become(&command);
}

/* ascii: as the head of a mail has it. */
static void print_clean(FILE *file, const char *text, bool ascii)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		fputc(c < 0x20 || c == 0x7f || (ascii && c > 0x7f) ? '?' : c, file);
	}
}

static void write_mail(FILE *mail, const char *address, const struct change *c, time_t at)
{
	char host[256] = "", date[64];
	struct tm local;

	gethostname(host, sizeof(host) - 1);
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S %z", localtime_r(&at, &local));
	fprintf(mail, "From: larder <root>\nTo: %s\nSubject: larder: %s %s ", address, c->event, c->kind);
	print_clean(mail, c->name, true);
	fputs(" on ", mail);
	print_clean(mail, host, true);
	fputs("\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n", mail);
	fprintf(mail, "%s, %s: %s ", date, host, c->kind);
	print_clean(mail, c->name, false);
	fprintf(mail, " (%s), event %s:\n\n", c->device, c->event);
	print_clean(mail, c->text, false);
	fputs("\n\n`larder doctor` looks at all of it. This mail comes from `larder events --alert`; larder.conf(5) has the address.\n", mail);
}

bool alert_mail(const char *address, const struct change *c, time_t at, bool unit)
{
	void (*before)(int);
	FILE *mail;
	pid_t child;
	int in[2];

	fflush(stdout);
	if (pipe2(in, O_CLOEXEC)) {
		remark("sendmail: cannot run it: %s", strerror(errno));
		return false;
	}
	child = fork();
	if (!child)
		become_sendmail(in[0], unit);
	close(in[0]);
	mail = must_allocate(fdopen(in[1], "w"));
	before = signal(SIGPIPE, SIG_IGN); /* what it does with the mail its exit code says */
	if (child >= 0)
		write_mail(mail, address, c, at);
	fclose(mail);
	signal(SIGPIPE, before);
	return judge(child, "sendmail", "mail in larder.conf", c);
}
