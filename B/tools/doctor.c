// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder doctor: everything that is wrong, or could be better, and the command that cures it.  Nothing is changed.
 *
 * Exit code: 0 nothing was found; 10 advice only; 11 something is wrong.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advice.h"
#include "archive.h"
#include "arguments.h"
#include "doctor.h"
#include "hanging.h"
#include "signature.h"
#include "stack_verdict.h"
#include "verbs.h"

#define EXIT_ADVICE 10
#define EXIT_WRONG  11

static const struct field fields[] = {
	{ "level", VALUE_TEXT, "Level", "wrong, or advice" },
	{ "check", VALUE_TEXT, "Check", "what was looked at" },
	{ "subject", VALUE_TEXT, "Subject", "what it is about: a device, cache, volume, stack, kernel" },
	{ "text", VALUE_TEXT, "Text", "what was found, and the command that cures it" },
};

static const char *level_text(enum finding_level level)
{
	return level == FINDING_WRONG ? "wrong" : "advice";
}

void finding(struct findings *findings, enum finding_level level, const char *check, const char *subject, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = must_vprint(format, args);
	va_end(args);
	findings->finding = must_allocate(realloc(findings->finding, (findings->number + 1) * sizeof(*findings->finding)));
	findings->finding[findings->number++] = (struct finding){
		.level = level,
		.check = check,
		.subject = must_allocate(strdup(subject)),
		.text = text,
	};
}

static void findings_free(struct findings *findings)
{
	for (size_t i = 0; i < findings->number; i++) {
		free(findings->finding[i].subject);
		free(findings->finding[i].text);
	}
	free(findings->finding);
}

/* ------------------------------------------------------------------ what runs, and what does not */

static void examine_running(struct findings *f, const struct mapped_list *list)
{
	for (size_t i = 0; i < list->number; i++) {
		const struct mapped *m = &list->mapped[i];
		struct problems found = { 0 }, stalls = { 0 };

		(m->cache ? advise_cache : advise_volume)(m->name, m->status, &found);
		for (size_t n = 0; n < found.number; n++)
			finding(f, FINDING_WRONG, "status", m->name, "%s", found.text[n]);
		hanging_below(m, &stalls);
		for (size_t n = 0; n < stalls.number; n++)
			finding(f, FINDING_WRONG, "stall", m->name, "%s", stalls.text[n] + strlen("stall: "));
		problems_free(&found);
		problems_free(&stalls);
	}
}

/* Of one that runs; what its volume and cache say of themselves is found already. */
static void examine_stack(struct findings *f, const struct stacks *stacks, const struct found *found)
{
	struct view view;

	view_open(&view, stacks, found);
	for (size_t i = 0; *view.layers.node && i < view.verdict.wrong.number; i++)
		finding(f, FINDING_WRONG, "stack", found->stack.name, "%s", view.verdict.wrong.text[i]);
	view_close(&view);
}

static void examine_stacks(struct findings *f, const struct stacks *stacks)
{
	for (size_t i = 0; i < stacks->number; i++) {
		const struct stack *s = &stacks->found[i].stack;

		if (stacks->found[i].whole && s->state == STACK_CREATING)
			finding(f, FINDING_WRONG, "stack", s->name, "it is half made; larder create --resume %s, or larder remove %s", s->name, s->name);
		else if (stacks->found[i].whole && s->state == STACK_REMOVING)
			finding(f, FINDING_WRONG, "stack", s->name, "it is half removed; larder remove %s", s->name);
		else if (stacks->found[i].whole)
			examine_stack(f, stacks, &stacks->found[i]);
	}
}

/* ------------------------------------------------------------------ members */

static void examine_superblocks(struct findings *f, const struct device *device, const struct superblocks *found)
{
	const struct superblock_copy *copies[2] = { &found->main, &found->copy };

	for (int i = 0; i < 2; i++) {
		char *line = problems_line(&copies[i]->problems);

		if (copies[i]->problems.number)
			finding(f, FINDING_ADVICE, "superblock", device->path,
				"its superblock%s is damaged (%s); the other one is used, and both are written anew at the next start; larder super check %s",
				i ? " copy" : "", line, device->path);
		free(line);
	}
	if (found->chosen && le32toh(found->chosen->sb->head.kind) == LARDER_KIND_CACHE) {
		struct cache_tables tables;

		tables_read(device, &found->chosen->sb->cache, &tables);
		if (!tables.chosen)
			finding(f, FINDING_WRONG, "superblock", device->path,
				"neither copy of its table is whole: it cannot be started; larder super check %s says why, larder rescue reads what it holds",
				device->path);
		else if (tables.problems[0].number || tables.problems[1].number)
			finding(f, FINDING_ADVICE, "superblock", device->path,
				"one copy of its table is damaged; the other one is used; larder super check %s", device->path);
		tables_free(&tables);
	}
}

/* Two owners have signed it: both are named, and what to do if it is the one's, or the other's. */
static void examine_signatures(struct findings *f, const struct device *device, const struct superblocks *superblocks)
{
	const union superblock *sb = superblocks_best(superblocks);
	struct signatures found = { 0 };
	struct contents contents;
	bool stand = superblocks_stand(superblocks);

	if (stand)
		superblock_contents(sb, &contents);
	if (signatures_find(device, stand ? &contents : NULL, &found))
		return;
	for (size_t i = 0; i < found.number; i++) {
		const struct signature *s = &found.signature[i];
		char uuid[UUID_TEXT];

		if (s->place == SIGNATURE_OUTSIDE && strcmp(s->type, "larder_member") && stand && signature_is_behind(sb, s))
			finding(f, FINDING_ADVICE, "signature", device->path,
				"it is longer than the device that larder (%s, UUID %s) has signed, and behind that there is %s: it is the disk, or leg, below what "
				"carries the member, and not started; bring that up (drbdadm up, mdadm --assemble), the member is found there; erase neither of both",
				kind_text(le32toh(sb->head.kind)), uuid_text(sb->head.uuid, uuid), s->text);
		else if (s->place == SIGNATURE_OUTSIDE && strcmp(s->type, "larder_member"))
			finding(f, FINDING_WRONG, "signature", device->path,
				"two have signed it, and it is not started: larder (%s, UUID %s) and %s; if it is larder's: wipefs %s %s, "
				"while it is stopped; if it is the other's, it is no member any more: larder super wipe %s",
				kind_text(le32toh(sb->head.kind)), uuid_text(sb->head.uuid, uuid), s->text, s->wipefs, device->path, device->path);
		else if (s->place == SIGNATURE_RESERVE)
			finding(f, FINDING_ADVICE, "signature", device->path,
				"behind the volume's data there is %s; larder does not heed it, but others who look at the end of a disk (mdadm, dmraid) may take it "
				"for theirs; nothing of the volume lies there: wipefs %s %s, while it is stopped",
				s->text, s->wipefs, device->path);
	}
	signatures_free(&found);
}

static void examine_damaged(struct findings *f, const struct damaged *d)
{
	char *newest = d->known ? archive_newest(d->uuid) : NULL;

	if (d->error)
		finding(f, FINDING_WRONG, "superblock", d->path,
			"it cannot be read, nor can its copy (%s): what it is of is not started; check the device (smartctl, the kernel's log); what can be "
			"read of it may be copied to another one (ddrescue), and there: larder super restore %s DEVICE",
			d->why, newest ? newest : "FILE");
	else
		finding(f, FINDING_WRONG, "superblock", d->path,
			"neither it nor its copy is valid (%s): what it is of is not started; larder super check %s says more; %s%s %s gives it back, and says "
			"first what that loses; if it is no member any more: larder super wipe %s",
			d->why, d->path, newest ? "larder super restore " : "with a backup, larder super restore ", newest ? newest : "FILE", d->path, d->path);
	free(newest);
}

static void examine_members(struct findings *f, const struct stacks *stacks)
{
	const struct members *members = &stacks->members;
	struct superblocks found;
	struct device device;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (!device_try(&device, m->path)) {
			superblocks_read(&device, &found, false);
			examine_superblocks(f, &device, &found);
			examine_signatures(f, &device, &found);
			superblocks_free(&found);
			device_close(&device);
		}
		examine_disks(f, m, stacks);
	}
}

/* ------------------------------------------------------------------ the verb */

static struct report *new_report(const struct report_options *options, int *result)
{
	const struct field *sections[] = { fields };
	const size_t counts[] = { sizeof(fields) / sizeof(fields[0]) };

	return report_new("findings", sections, counts, 1, "level,check,subject,text", options, result);
}

static void print_lines(const struct findings *f)
{
	for (size_t i = 0; i < f->number; i++)
		printf("%s: %s: %s: %s\n", level_text(f->finding[i].level), f->finding[i].subject, f->finding[i].check, f->finding[i].text);
}

static int print_report(const struct findings *f, struct report *report)
{
	struct row row = { 0 };

	for (size_t i = 0; i < f->number; i++) {
		report_set(report, &row, "level", "%s", level_text(f->finding[i].level));
		report_set(report, &row, "check", "%s", f->finding[i].check);
		report_set(report, &row, "subject", "%s", f->finding[i].subject);
		report_set(report, &row, "text", "%s", f->finding[i].text);
		report_add(report, &row);
	}
	return report_print(report);
}

static int verdict(const struct findings *f)
{
	int code = f->number ? EXIT_ADVICE : LARDER_DONE;

	for (size_t i = 0; i < f->number; i++)
		if (f->finding[i].level == FINDING_WRONG)
			code = EXIT_WRONG;
	return code;
}

/* What cannot be looked at keeps nothing else from being: the code says so at the end, and it was complained of. */
static int examine(struct findings *f)
{
	const struct damaged *damaged;
	struct stacks stacks;
	size_t number;
	int result = stacks_look(&stacks), other;

	if (result)
		members_scan(&stacks.members);
	damaged = members_damaged(&number);
	for (size_t i = 0; i < number; i++)
		examine_damaged(f, &damaged[i]);
	examine_running(f, &stacks.list);
	other = examine_assembly(f);
	examine_stacks(f, &stacks);
	examine_members(f, &stacks);
	examine_system(f);
	stacks_free(&stacks);
	return result ? result : other;
}

static bool is_directory(const char *path)
{
	struct stat status;

	return !stat(path, &status) && S_ISDIR(status.st_mode);
}

struct request {
	struct report_options options;
	const char *root;
};

static int look(const struct request *request)
{
	const struct report_options *options = &request->options;
	struct findings findings = { .root = request->root };
	struct report *report;
	int result, printed;

	/* -o help, and complaints, before anything is looked at */
	report = new_report(options, &result);
	if (!report)
		return result;
	mapped_init(false);
	result = examine(&findings);
	if (options->fields || options->format || options->sort) {
		printed = print_report(&findings, report);
		result = result ? result : printed;
	} else {
		report_discard(report);
		print_lines(&findings);
	}
	result = result ? result : verdict(&findings);
	findings_free(&findings);
	return result;
}

int doctor(int argc, char **argv)
{
	struct request request = { .options = { .units = { 'h', true } }, .root = "" };
	const struct argument arguments[] = {
		{ "root", 0, ARGUMENT_TEXT, &request.root, "DIRECTORY", "kernels, initramfs and /sys of the system below this directory" },
		REPORT_ARGUMENTS(request.options),
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, "larder doctor [--root DIRECTORY] [-o FIELD,...] [--reportformat json]", arguments, 0, 0, &first, &result))
		return result;
	if (*request.root && !is_directory(request.root))
		return complain(LARDER_NOT_FOUND, "%s: there is no such directory; --root names it", request.root);
	if (geteuid() && !getenv("LARDER_DEVICES"))
		return complain(LARDER_FAILED, "doctor: devices cannot be read; run larder as root");
	return look(&request);
}
