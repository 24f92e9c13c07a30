// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder collect: what who is to help needs to know, in a tar file, without secrets.
 *
 * Only what is in the tables below is collected, by programs and from files that have no secret to tell: no environment, no command line of the
 * kernel, no fstab or crypttab, no key file, no header of LUKS, no raw superblock (that of an SSD has the secrets of its log), no journal of anybody
 * else.  Every line goes through lib/redact.c all the same.  A program that is missing, fails or does not end leaves a line about that, and the rest
 * is collected.  What is to be looked at may hang, and whoever looks hangs with it, so that no signal ends him: nothing is waited for without a limit,
 * and no device is opened in this process.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arguments.h"
#include "clock.h"
#include "program.h"
#include "redact.h"
#include "scan.h"
#include "signals.h"
#include "verbs.h"

#define SECONDS	    60u /* for each program; LARDER_COLLECT_SECONDS: another number */
#define SECONDS_LESS 10u /* behind one that was given up: what it waited for others wait for, too */
#define WORDS	    24

enum filter { FILTER_TEXT, FILTER_TABLE, FILTER_LARDER };

/* "larder" as the first word: this program. */
static const struct {
	const char *file;
	enum filter filter;
	const char *words[WORDS];
} programs[] = {
	{ "version.txt", FILTER_TEXT, { "larder", "--version" } },
	{ "doctor.txt", FILTER_TEXT, { "larder", "doctor" } },
	{ "list.txt", FILTER_TEXT, { "larder", "list", "-o", "+uuid" } },
	{ "caches.json", FILTER_TEXT, { "larder", "cache", "list", "-o", "all", "--reportformat", "json" } },
	{ "volumes.json", FILTER_TEXT, { "larder", "volume", "list", "-o", "all", "--reportformat", "json" } },
	{ "cache-status.txt", FILTER_TEXT, { "larder", "cache", "status", "--all" } },
	{ "volume-status.txt", FILTER_TEXT, { "larder", "volume", "status", "--all" } },
	{ "metrics.txt", FILTER_TEXT, { "larder", "metrics" } },
	{ "probe.txt", FILTER_TEXT, { "larder", "probe" } },
	{ "dm-table.txt", FILTER_TABLE, { "dmsetup", "table" } },
	{ "dm-status.txt", FILTER_TABLE, { "dmsetup", "status", "--noflush" } },
	{ "dm-info.txt", FILTER_TABLE, { "dmsetup", "info", "-c", "--noheadings", "-o", "name,major,minor,attr,open,segments,events,suspended,readonly" } },
	{ "lsblk.txt",
	  FILTER_TEXT,
	  { "lsblk", "-a", "-o", "NAME,KNAME,MAJ:MIN,TYPE,SIZE,RO,ROTA,LOG-SEC,PHY-SEC,MIN-IO,OPT-IO,DISC-GRAN,SCHED,FSTYPE,UUID,MOUNTPOINT,MODEL,STATE" } },
	{ "kernel-log.txt", FILTER_LARDER, { "dmesg" } },
	{ "journal.txt",
	  FILTER_TEXT,
	  /* an identifier is the sender's word, the rest of it the journal's */
	  { "journalctl", "--no-pager", "-q", "-n", "5000", "-o", "short-iso", "SYSLOG_IDENTIFIER=larder", "_UID=0", "+", "SYSLOG_IDENTIFIER=larderd", "_UID=0",
	    "+", "_SYSTEMD_UNIT=larderd.service", "+", "_SYSTEMD_UNIT=larder-events.service" } },
	{ "module.txt", FILTER_TEXT, { "modinfo", "larder" } },
	{ "versions-dmsetup.txt", FILTER_TABLE, { "dmsetup", "version" } },
	{ "versions-mdadm.txt", FILTER_TEXT, { "mdadm", "--version" } },
	{ "versions-cryptsetup.txt", FILTER_TEXT, { "cryptsetup", "--version" } },
	{ "versions-udev.txt", FILTER_TEXT, { "udevadm", "--version" } },
	{ "kernel.txt", FILTER_TEXT, { "uname", "-srvmo" } },
};

static const struct {
	const char *file, *path;
} files[] = {
	{ "os-release.txt", "/etc/os-release" },
	{ "mdstat.txt", "/proc/mdstat" },
	{ "meminfo.txt", "/proc/meminfo" },
};

struct bundle {
	char *directory, *inside; /* inside: the one directory in it, which is what is packed */
	const char *name; /* of that */
	char program[4096]; /* path of ours */
	size_t number;
	unsigned patience; /* seconds */
};

static volatile sig_atomic_t interrupted; /* by this signal */

static void interrupt(int number)
{
	interrupted = number;
}

static int open_part(struct bundle *b, const char *file, FILE **to)
{
	char *path = must_print("%s/%s", b->inside, file);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	*to = fd < 0 ? NULL : fdopen(fd, "w");
	if (!*to)
		complain(LARDER_FAILED, "%s: cannot be written: %s", path, strerror(errno));
	free(path);
	b->number += *to ? 1 : 0;
	return *to ? LARDER_DONE : LARDER_FAILED;
}

static int close_part(struct bundle *b, FILE *to)
{
	int error = ferror(to) ? EIO : 0; /* why it was is forgotten */

	if (fclose(to))
		error = errno;
	return error ? complain(LARDER_FAILED, "%s: cannot be written: %s", b->inside, strerror(error)) : LARDER_DONE;
}

/*
 * Of the kernel, device-mapper or a program of larder?  A command line of the kernel may name larder, and has secrets of others (a password of iSCSI); it is in
 * the log in words of the kernel, and of what an initramfs runs.
 */
static bool is_of_larder(const char *line)
{
	static const char *const words[] = { "larder:", "larderd:", "larder[", "larderd[", "larder]" };

	if (strcasestr(line, "command line"))
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(line, words[i]))
			return true;
	return strstr(line, "device-mapper:") && strstr(line, "larder");
}

static void copy_lines(FILE *from, FILE *to, enum filter filter)
{
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, from) > 0) {
		line[strcspn(line, "\n")] = 0;
		if (filter == FILTER_TABLE)
			redact_table(line, to);
		else if (filter != FILTER_LARDER || is_of_larder(line))
			redact_text(line, to);
	}
	free(line);
}

/* Seconds between a signal, the next one, and giving up. */
static unsigned grace_of(const struct bundle *b)
{
	return b->patience < 5 ? b->patience : 5;
}

/*
 * All that comes from a child until it ends, or the time is over: then it is killed, which it may not hear, and given up.  False: that, or somebody
 * has interrupted us.  The caller frees *said, which has *bytes.
 */
static bool hear(struct bundle *b, pid_t child, int from, char **said, size_t *bytes, int *code)
{
	double due = clock_seconds() + b->patience + 2 * grace_of(b);
	struct pollfd more = { .fd = from, .events = POLLIN };
	size_t room = 0;
	ssize_t part = -1;

	*said = NULL;
	*bytes = 0;
	while (part && !interrupted && clock_seconds() < due) {
		if (poll(&more, 1, 500) < 1)
			continue;
		room = *bytes + 65536;
		*said = must_allocate(realloc(*said, room));
		part = read(from, *said + *bytes, room - *bytes);
		*bytes += part > 0 ? (size_t)part : 0;
		if (part < 0 && errno != EINTR)
			break;
	}
	close(from);
	while (!part && !interrupted && clock_seconds() < due) {
		int status;

		if (waitpid(child, &status, WNOHANG) == child) {
			*code = WIFEXITED(status) ? WEXITSTATUS(status) : 127;
			return true;
		}
		usleep(10000);
	}
	kill(child, SIGKILL);
	b->patience = b->patience < SECONDS_LESS ? b->patience : SECONDS_LESS;
	return false;
}

static void copy_said(const char *said, size_t bytes, FILE *to, enum filter filter)
{
	FILE *from = bytes ? must_allocate(fmemopen((char *)said, bytes, "r")) : NULL;

	if (!from)
		return;
	copy_lines(from, to, filter);
	fclose(from);
}

/* What a program prints, complaints among it, and how it ended if not well. */
static void add_output(struct bundle *b, FILE *to, enum filter filter, const char *const *words)
{
	char *limit = must_print("%u", b->patience), *grace = must_print("--kill-after=%u", grace_of(b)), *said;
	const char *all[WORDS + 5] = { "timeout", grace, limit };
	unsigned given_up = b->patience + 2 * grace_of(b);
	int n = 3, out, code = 0;
	size_t bytes;
	pid_t child;

	for (int i = 0; words[i]; i++)
		all[n++] = !i && !strcmp(words[0], "larder") ? b->program : words[i];
	all[n] = NULL;
	child = program_begin_all(all, &out);
	if (child < 0) {
		fprintf(to, "cannot run %s: %s\n", words[0], strerror(errno));
	} else {
		bool ended = hear(b, child, out, &said, &bytes, &code);

		copy_said(said, bytes, to, filter);
		free(said);
		if (!ended)
			fprintf(to, "# %s did not end, and was given up after %u seconds\n", words[0], given_up);
		else if (code)
			fprintf(to, "# %s ended with %d%s%s%s\n", words[0], code, code == 124 || code == 137 ? ": after " : "",
				code == 124 || code == 137 ? limit : "", code == 124 || code == 137 ? " seconds" : "");
		if (code == 124 || code == 137)
			b->patience = b->patience < SECONDS_LESS ? b->patience : SECONDS_LESS;
	}
	free(limit);
	free(grace);
}

static int add_programs(struct bundle *b)
{
	int result = LARDER_DONE;
	FILE *to;

	for (size_t i = 0; !result && !interrupted && i < sizeof(programs) / sizeof(programs[0]); i++) {
		result = open_part(b, programs[i].file, &to);
		if (result)
			break;
		add_output(b, to, programs[i].filter, programs[i].words);
		result = close_part(b, to);
	}
	return result;
}

static int add_files(struct bundle *b)
{
	int result = LARDER_DONE;

	for (size_t i = 0; !result && !interrupted && i < sizeof(files) / sizeof(files[0]); i++) {
		FILE *from = fopen(files[i].path, "re"), *to;

		result = open_part(b, files[i].file, &to);
		if (!result && from)
			copy_lines(from, to, FILTER_TEXT);
		else if (!result)
			fprintf(to, "# %s: %s\n", files[i].path, strerror(errno));
		result = result ? result : close_part(b, to);
		if (from)
			fclose(from);
	}
	return result;
}

/* "BYTES PATH" of each device of larder, a zero behind each. */
static _Noreturn void scan(int to, pid_t parent)
{
	struct members members;

	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	members_scan(&members);
	for (size_t i = 0; i < members.number; i++)
		dprintf(to, "%llu %s%c", (unsigned long long)members.member[i]->bytes, members.member[i]->path, 0);
	_exit(0);
}

static pid_t begin_scan(int *from)
{
	pid_t parent = getpid(), child;
	int ends[2];

	fflush(NULL);
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (!child)
		scan(ends[1], parent);
	close(ends[1]);
	if (child < 0)
		close(ends[0]);
	*from = ends[0];
	return child;
}

static int add_member(struct bundle *b, size_t number, const char *bytes, const char *path)
{
	const char *const words[][6] = {
		{ "larder", "super", "show", path },
		{ "larder", "super", "check", path },
		{ "udevadm", "info", "--query=property", "--name", path },
	};
	char *file = must_print("member-%zu.txt", number);
	FILE *to;
	int result = open_part(b, file, &to);

	free(file);
	if (result)
		return result;
	fprintf(to, "# %s, %s bytes\n", path, bytes);
	for (size_t n = 0; !interrupted && n < sizeof(words) / sizeof(words[0]); n++) {
		fprintf(to, "# %s %s\n", words[n][0], words[n][1]);
		add_output(b, to, FILTER_TEXT, words[n]);
	}
	return close_part(b, to);
}

/* Why no device is looked at. */
static int add_no_members(struct bundle *b, const char *why)
{
	FILE *to;
	int result = open_part(b, "members.txt", &to);

	if (result)
		return result;
	fprintf(to, "# the devices of larder are not known: %s\n", why);
	return close_part(b, to);
}

/* Superblock, verdict and udev's properties of each device of larder. */
static int add_members(struct bundle *b)
{
	int from, code = 0, result = LARDER_DONE;
	size_t bytes = 0, number = 0;
	char *said = NULL;
	pid_t child = interrupted ? -1 : begin_scan(&from);

	if (child < 0)
		return interrupted ? LARDER_DONE : add_no_members(b, strerror(errno));
	if (!hear(b, child, from, &said, &bytes, &code) || code)
		result = interrupted ? LARDER_DONE : add_no_members(b, code ? "the scan broke off" : "a device does not answer");
	for (char *one = said; !result && !interrupted && one && one < said + bytes; one += strlen(one) + 1) {
		char *space = memchr(one, ' ', (size_t)(said + bytes - one));

		if (!space || !memchr(space, 0, (size_t)(said + bytes - space)))
			break; /* cut off */
		*space = 0;
		result = add_member(b, number++, one, space + 1);
		*space = ' ';
	}
	free(said);
	return result;
}

/* ------------------------------------------------------------------ the file */

static int prepare(struct bundle *b, const char *name)
{
	const char *place = getenv("TMPDIR");
	ssize_t length = readlink("/proc/self/exe", b->program, sizeof(b->program) - 1);

	if (length <= 0)
		return complain(LARDER_FAILED, "/proc/self/exe: cannot be read: %s; is /proc mounted?", strerror(errno));
	b->directory = must_print("%s/larder-collect.XXXXXX", place && *place ? place : "/tmp");
	if (!mkdtemp(b->directory)) {
		int result = complain(LARDER_FAILED, "%s: cannot be made: %s; TMPDIR names another place", b->directory, strerror(errno));

		free(b->directory);
		b->directory = NULL;
		return result;
	}
	b->name = name;
	b->inside = must_print("%s/%s", b->directory, name);
	if (mkdir(b->inside, 0700))
		return complain(LARDER_FAILED, "%s: cannot be made: %s", b->inside, strerror(errno));
	return LARDER_DONE;
}

static void clear(struct bundle *b)
{
	DIR *directory = b->inside ? opendir(b->inside) : NULL;
	const struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(directory), entry->d_name, 0);
	if (directory)
		closedir(directory);
	if (b->inside)
		rmdir(b->inside);
	if (b->directory)
		rmdir(b->directory);
	free(b->inside);
	free(b->directory);
}

static int pack(const struct bundle *b, const char *path)
{
	const char *const words[] = { "tar",	   "--create",	"--format=ustar", "--owner=0", "--group=0", "--numeric-owner", "--force-local", "--file", path,
				      "--directory", b->directory, b->name,	  NULL };
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), result = LARDER_DONE;
	char *said;

	if (fd < 0)
		return complain(LARDER_FAILED, "%s: cannot be written: %s%s", path, strerror(errno), errno == EEXIST ? "; -o names another file" : "");
	close(fd);
	if (program_run(words, &said))
		result = complain(LARDER_FAILED, "%s: cannot be written by tar: %s", path, said);
	if (result || interrupted)
		unlink(path);
	free(said);
	return result;
}

static unsigned patience(void)
{
	const char *text = getenv("LARDER_COLLECT_SECONDS");
	unsigned seconds = text ? (unsigned)strtoul(text, NULL, 10) : 0;

	return seconds ? seconds : SECONDS;
}

static int gather(const char *name, const char *path)
{
	struct bundle b = { .patience = patience() };
	struct signals was;
	int result;

	signals_catch(signals_that_end, interrupt, 0, &was);
	result = prepare(&b, name);
	result = result ? result : add_programs(&b);
	result = result ? result : add_files(&b);
	result = result ? result : add_members(&b);
	result = result || interrupted ? result : pack(&b, path);
	if (!result && !interrupted)
		printf("%s: %zu files, without keys and passphrases; names of devices, hosts and mount points are in them: read it before you give it away\n", path,
		       b.number);
	clear(&b);
	signals_restore(&was);
	if (interrupted)
		raise(interrupted);
	return result;
}

int collect(int argc, char **argv)
{
	const char *path = NULL;
	const struct argument arguments[] = { { "output", 'o', ARGUMENT_TEXT, &path, "FILE", "the tar file; default: larder-TIME.tar here" }, ARGUMENTS_END };
	char name[64], *given;
	time_t now = time(NULL);
	int first, result;

	if (!arguments_words(argc, argv, "larder collect [--output FILE]", arguments, 0, 0, &first, &result))
		return result;
	if (path && !strcmp(path, "-"))
		return complain(LARDER_USAGE, "--output: '-': nothing is written to standard output; name the tar file");
	if (geteuid() && !getenv("LARDER_DEVICES"))
		return complain(LARDER_FAILED, "collect: devices cannot be read; run larder as root");
	strftime(name, sizeof(name), "larder-%Y%m%dT%H%M%SZ", gmtime(&now));
	given = path ? must_allocate(strdup(path)) : must_print("%s.tar", name);
	if (!access(given, F_OK))
		result = complain(LARDER_FAILED, "%s: is there already; -o names another file", given);
	else
		result = gather(name, given);
	free(given);
	return result;
}
