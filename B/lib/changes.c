// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What has changed between two looks.
 *
 * What is news by itself is compared: states, words of trouble, SSDs of the set, the ends of scrubs and flushes, and damage that was found.
 * What mends it is what lib/advice.c finds wrong now and did not before, by the fields that the change is about; what it finds beside that is told, too.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "changes.h"
#include "message.h"
#include "snapshot.h"
#include "status.h"

/* One device, then and now. */
struct pair {
	struct changes *changes;
	const struct mapped_list *list; /* of now */
	const struct mapped *mapped; /* now; then, if it is gone */
	const char *before, *now; /* status */
	uint32_t events_before;
	struct problems wrong_before, wrong; /* what advice finds */
	bool *told; /* of what is wrong: in the words of an event */
};

void changes_add(struct changes *changes, const struct change *change)
{
	changes->change = must_allocate(realloc(changes->change, (changes->number + 1) * sizeof(*changes->change)));
	changes->change[changes->number++] = *change;
}

static void add(const struct pair *p, const char *event, bool alarm, char *text)
{
	changes_add(p->changes, &(struct change){
					.event = event,
					.kind = p->mapped->cache ? "cache" : "volume",
					.alarm = alarm,
					.name = must_allocate(strdup(snapshot_name(p->list, p->mapped))),
					.device = must_print("/dev/mapper/%s", p->mapped->name),
					.text = text,
				});
}

static bool is_new(const struct pair *p, const char *finding)
{
	for (size_t i = 0; i < p->wrong_before.number; i++)
		if (!strcmp(p->wrong_before.text[i], finding))
			return false;
	return true;
}

/* A finding begins with the field that it is about, and ": ". */
static const char *about(const char *finding, const char *field)
{
	size_t length = strlen(field);

	return !strncmp(finding, field, length) && !strncmp(finding + length, ": ", 2) ? finding + length + 2 : NULL;
}

/* Is something wrong with this field that was not? */
static bool newly_wrong(const struct pair *p, const char *field)
{
	for (size_t i = 0; i < p->wrong.number; i++)
		if (about(p->wrong.text[i], field) && is_new(p, p->wrong.text[i]))
			return true;
	return false;
}

/* The same of the field that this finding begins with, whatever the words: they have numbers in them. */
static bool is_new_field(const struct pair *p, const char *finding)
{
	size_t length = strcspn(finding, ":") + 1;

	for (size_t i = 0; i < p->wrong_before.number; i++)
		if (!strncmp(p->wrong_before.text[i], finding, length))
			return false;
	return true;
}

/* Takes text; adds to it what is wrong with this field now, and was not before. */
static char *advised(const struct pair *p, char *text, const char *field)
{
	for (size_t i = 0; i < p->wrong.number; i++) {
		const char *words = is_new(p, p->wrong.text[i]) ? about(p->wrong.text[i], field) : NULL;
		char *longer = words ? must_print("%s; %s", text, words) : NULL;

		if (!words)
			continue;
		p->told[i] = true;
		free(text);
		text = longer;
	}
	return text;
}

static void compare_state(const struct pair *p, const char *key, const char *event)
{
	char *before = status_value(p->before, key), *now = status_value(p->now, key);

	if (before && now && strcmp(before, now))
		add(p, event, newly_wrong(p, key), advised(p, must_print("%s, was %s", now, before), key));
	free(before);
	free(now);
}

static bool has_word(const char *words, const char *word)
{
	size_t length = strlen(word);

	for (size_t n; words && *words; words += n + (words[n] == '/')) {
		n = strcspn(words, "/");
		if (n == length && !memcmp(words, word, n))
			return true;
	}
	return false;
}

/* A word of trouble that has come, or is over. */
static void compare_words(const struct pair *p, const char *words, const char *others, bool come)
{
	char *copy = must_allocate(strdup(words ? words : "")), *rest = copy, *word;

	while ((word = strsep(&rest, "/"))) {
		if (!*word || !strcmp(word, "-") || has_word(others, word))
			continue;
		if (come)
			add(p, "trouble", true, advised(p, must_print("%s", word), "trouble"));
		else
			add(p, "recovered", false, must_print("%s succeeds again", word));
	}
	free(copy);
}

static void compare_trouble(const struct pair *p)
{
	char *before = status_value(p->before, "trouble"), *now = status_value(p->now, "trouble");

	if (before && now) {
		compare_words(p, now, before, true);
		compare_words(p, before, now, false);
	}
	free(before);
	free(now);
}

/* Also what joins in the place of one that failed: it may be a spare, which nobody stood by to see; and what has not come to be a member. */
static bool is_alarming(const char *was, const char *is)
{
	return !strcmp(is, "failed") || (!strcmp(was, "failed") && !strcmp(is, "joining")) ||
	       (!strcmp(was, "joining") && !strcmp(is, "removed"));
}

/* SSD by SSD, in the places of the set. */
static void compare_set(const struct pair *p)
{
	char *before = status_value(p->before, "ssds"), *now = status_value(p->now, "ssds");
	char *rest_before = before, *rest_now = now, *then, *word;

	for (unsigned place = 0; (word = strsep(&rest_now, "/")); place++) {
		then = strsep(&rest_before, "/");
		if (!before || (then && !strcmp(then, word)))
			continue;
		if (then)
			add(p, "ssd", is_alarming(then, word), advised(p, must_print("SSD %u is %s, was %s", place, word, then), "devices_failed"));
		else
			add(p, "ssd", false, must_print("SSD %u is %s, was not there", place, word));
	}
	free(before);
	free(now);
}

static void compare_scrub(const struct pair *p)
{
	char *before = status_value(p->before, "scrub"), *now = status_value(p->now, "scrub"), *text;

	if (before && now && strcmp(before, now)) {
		text = must_print("%s, was %s: %" PRIu64 " errors, %" PRIu64 " repaired, %" PRIu64 " dropped, %" PRIu64 " unrepairable", now, before,
				  status_number(p->now, "scrub_errors"), status_number(p->now, "scrub_repaired"),
				  status_number(p->now, "scrub_dropped"), status_number(p->now, "scrub_unrepairable"));
		add(p, "scrub", newly_wrong(p, "scrub") || newly_wrong(p, "scrub_unrepairable"), advised(p, advised(p, text, "scrub"), "scrub_unrepairable"));
	}
	free(before);
	free(now);
}

static void compare_damage(const struct pair *p)
{
	uint64_t before = status_number(p->before, "errors_checksum"), now = status_number(p->now, "errors_checksum");
	/* the status alone does not tell what was counted behind a scrub from what that has seen to */
	bool behind = p->mapped->cache && status_is(p->before, "scrub", "done") && status_is(p->now, "scrub", "done");
	char *text;

	if (now <= before)
		return;
	if (behind)
		text = must_print("%" PRIu64 " times more, behind the last scrub; larder cache scrub %s reads and repairs all of it", now - before, p->mapped->name);
	else
		text = must_print("%" PRIu64 " times more", now - before);
	add(p, "damage", true, advised(p, text, "errors_checksum"));
}

static uint64_t more_of(const struct pair *p, const char *key)
{
	uint64_t before = status_number(p->before, key), now = status_number(p->now, key);

	return now > before ? now - before : 0;
}

static bool differs(const struct pair *p, const char *key)
{
	char *before = status_value(p->before, key);
	bool same = !before || status_is(p->now, key, before);

	free(before);
	return !same;
}

/* Flushes that had nothing to secure: of others the trouble is told. */
static uint64_t failed_flushes(const struct pair *p)
{
	return status_has(p->before, "trouble", "flush") || status_has(p->now, "trouble", "flush") ? 0 : more_of(p, "errors_flush");
}

/* Requests that a device has failed.  No alarm for those of an SSD that has left for them, or ended the cache: that is one. */
static void compare_errors(const struct pair *p)
{
	uint64_t reads = more_of(p, "errors_read"), writes = more_of(p, "errors_write"), flushes = failed_flushes(p);
	char *text;

	if (!reads && !writes && !flushes)
		return;
	text = must_print("%" PRIu64 " reads, %" PRIu64 " writes and %" PRIu64 " flushes of %s have failed", reads, writes, flushes,
			  p->mapped->cache ? "its SSDs" : "its disk");
	add(p, "errors", !differs(p, "state") && !differs(p, "ssds"), advised(p, advised(p, text, "errors_read"), "errors"));
}

/* No event says that a flush begins: where none was seen under way, one is raised at its end. */
static void compare_flush(const struct pair *p)
{
	uint64_t before = status_number(p->before, "dirty_sectors"), dirty = status_number(p->now, "dirty_sectors");
	bool failed = more_of(p, "errors_read") || more_of(p, "errors_write") || more_of(p, "errors_flush");
	bool seen = status_is(p->before, "flushing", "1") && status_is(p->now, "flushing", "0");

	if (!dirty && (seen || (before && p->mapped->events != p->events_before && !failed)))
		add(p, "flushed", false, must_print("nothing is dirty any more"));
	else if (seen)
		add(p, "flushed", false, must_print("given up, %" PRIu64 " sectors are dirty", dirty));
}

static void look(struct pair *p)
{
	void (*advise)(const char *name, const char *status, struct problems *found) = p->mapped->cache ? advise_cache : advise_volume;

	if (p->before)
		advise(p->mapped->name, p->before, &p->wrong_before);
	if (p->now)
		advise(p->mapped->name, p->now, &p->wrong);
	p->told = must_allocate(calloc(p->wrong.number + 1, sizeof(*p->told)));
}

static void look_away(struct pair *p)
{
	problems_free(&p->wrong_before);
	problems_free(&p->wrong);
	free(p->told);
}

static void all_wrong(const struct pair *p)
{
	for (size_t i = 0; i < p->wrong.number; i++)
		add(p, "wrong", true, must_print("%s", p->wrong.text[i]));
}

/*
 * What has come to be wrong, and is in the words of no other event.  Errors are told as they are counted, or with the trouble that they make; those
 * that a scrub has seen to are among the findings again when the next one begins.
 */
static void compare_rest(const struct pair *p)
{
	for (size_t i = 0; i < p->wrong.number; i++) {
		const char *finding = p->wrong.text[i];

		if (is_new_field(p, finding) && !p->told[i] && strncmp(finding, "errors", strlen("errors")))
			add(p, "wrong", true, must_print("%s", finding));
	}
}

static void compare(struct pair *p)
{
	look(p);
	compare_state(p, "state", "state");
	compare_trouble(p);
	if (p->mapped->cache) {
		compare_set(p);
		compare_scrub(p);
	} else {
		compare_state(p, "mode", "mode");
		compare_flush(p);
	}
	compare_damage(p);
	compare_errors(p);
	compare_rest(p);
	look_away(p);
}

/* The same device in the other list: what has its name and its UUID. */
static const struct mapped *same(const struct mapped_list *list, const struct mapped *mapped)
{
	char *uuid = status_value(mapped->status, "uuid");
	const struct mapped *found = NULL;

	for (size_t i = 0; !found && i < list->number; i++) {
		const struct mapped *m = &list->mapped[i];

		if (m->cache == mapped->cache && !strcmp(m->name, mapped->name) && (!uuid || status_is(m->status, "uuid", uuid)))
			found = m;
	}
	free(uuid);
	return found;
}

void changes_between(struct changes *changes, const struct mapped_list *before, const struct mapped_list *now)
{
	for (size_t i = 0; i < before->number; i++)
		if (!same(now, &before->mapped[i]))
			add(&(struct pair){ .changes = changes, .list = before, .mapped = &before->mapped[i] }, "stopped", false,
			    must_print("it is not there any more"));
	for (size_t i = 0; i < now->number; i++) {
		const struct mapped *m = &now->mapped[i], *then = same(before, m);
		struct pair p = { .changes = changes, .list = now, .mapped = m, .now = m->status };

		if (then) {
			p.before = then->status;
			p.events_before = then->events;
			compare(&p);
			continue;
		}
		look(&p);
		add(&p, "started", false, must_print("as /dev/mapper/%s", m->name));
		all_wrong(&p);
		look_away(&p);
	}
}

static bool is_suspended(const struct mapped *mapped)
{
	return mapped && status_is(mapped->status, "state", "suspended");
}

bool changes_pass(const struct mapped_list *before, const struct mapped_list *now)
{
	for (size_t i = 0; i < now->number; i++)
		if (is_suspended(&now->mapped[i]) && !is_suspended(same(before, &now->mapped[i])))
			return true;
	return false;
}

void changes_first(struct changes *changes, const struct mapped_list *now)
{
	for (size_t i = 0; i < now->number; i++) {
		struct pair p = { .changes = changes, .list = now, .mapped = &now->mapped[i], .now = now->mapped[i].status };

		look(&p);
		all_wrong(&p);
		look_away(&p);
	}
}

void changes_free(struct changes *changes)
{
	for (size_t i = 0; i < changes->number; i++) {
		free(changes->change[i].name);
		free(changes->change[i].device);
		free(changes->change[i].text);
	}
	free(changes->change);
	*changes = (struct changes){ 0 };
}
