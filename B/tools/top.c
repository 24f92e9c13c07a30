// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder top: what volumes do, live in a terminal.
 */
#include <curses.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "advice.h"
#include "arguments.h"
#include "clock.h"
#include "monitor.h"
#include "rates.h"
#include "signals.h"
#include "snapshot.h"
#include "terminal.h"
#include "verbs.h"

#define CELL_TEXT 64

struct line {
	const struct mapped *volume;
	struct volume_rates rates;
	bool known; /* the rates are */
	size_t wrong; /* things that advice finds */
};

/* Columns: what is shown, what it is sorted by, and the key for that. */
struct column {
	const char *heading;
	char key;
	int width; /* negative: text, to the left */
	bool is_bytes;
	double (*value)(const struct line *line); /* negative: nothing to show; NULL: the name, or the last one */
};

static double hit_percent(const struct line *line)
{
	return line->known && line->rates.hit_ratio >= 0 ? 100 * line->rates.hit_ratio : -1;
}

/* Rates are known from the second look on. */
#define RATE(function, field) \
	static double function(const struct line *line) { return line->known ? line->rates.field : -1; }
RATE(reads, reads)
RATE(writes, writes)
RATE(read_bytes, read_bytes)
RATE(write_bytes, write_bytes)
RATE(written_back, writeback_bytes)
#undef RATE

static double cached(const struct line *line)
{
	return (double)(status_number(line->volume->status, "cached_sectors") << 9);
}

static double dirty(const struct line *line)
{
	return (double)(status_number(line->volume->status, "dirty_sectors") << 9);
}

static const struct column columns[] = {
	{ "Name", 'n', -16, false, NULL },
	{ "Hit%", 'h', 6, false, hit_percent },
	{ "Rd/s", 'r', 9, false, reads },
	{ "Read/s", 'R', 10, true, read_bytes },
	{ "Wr/s", 'w', 9, false, writes },
	{ "Written/s", 'W', 10, true, write_bytes },
	{ "Cached", 'c', 10, true, cached },
	{ "Dirty", 'd', 10, true, dirty },
	{ "Wb/s", 'b', 10, true, written_back },
};

#define NR_COLUMNS (sizeof(columns) / sizeof(columns[0]))

struct top {
	struct sample before, now;
	bool twice; /* before is a look, too */
	struct line *lines;
	size_t number, first; /* lines; the first that is on the screen */
	size_t sort; /* a column */
	bool upwards;
	double interval;
	struct size_format units;
	char *const *names;
	int nr_names;
};

static const struct top *sorting; /* qsort() hands nothing on */

static int compare(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	const struct column *column = &columns[sorting->sort];
	int order = strcmp(x->volume->name, y->volume->name);

	if (column->value) {
		double vx = column->value(x), vy = column->value(y);

		if (vx != vy) /* numbers: the largest first */
			return (vx < vy) != sorting->upwards ? 1 : -1;
		return order;
	}
	return sorting->upwards ? -order : order;
}

static void sort_lines(struct top *top)
{
	sorting = top;
	if (top->number)
		qsort(top->lines, top->number, sizeof(*top->lines), compare);
}

static void make_lines(struct top *top)
{
	const struct mapped_list *list = &top->now.list;

	top->lines = must_allocate(realloc(top->lines, (list->number + 1) * sizeof(*top->lines)));
	top->number = 0;
	for (size_t i = 0; i < list->number; i++) {
		const struct mapped *m = &list->mapped[i];
		struct line *line = &top->lines[top->number];
		struct problems found = { 0 };

		if (m->cache || !volume_wanted(m, top->names, top->nr_names))
			continue;
		*line = (struct line){ .volume = m };
		line->known = top->twice && rates_of_volume(&top->before, &top->now, m, &line->rates);
		advise_volume(m->name, m->status, &found);
		line->wrong = found.number;
		problems_free(&found);
		top->number++;
	}
	sort_lines(top);
}

/* ------------------------------------------------------------------ screen */

/* In the row that the cursor is in; what does not fit is cut. */
static void put(int attributes, const char *text)
{
	int room = COLS - getcurx(stdscr);

	attrset(attributes);
	if (room > 0)
		addnstr(text, room);
	attrset(A_NORMAL);
}

static void put_cell(const struct top *top, const struct line *line, const struct column *column, int attributes)
{
	char cell[CELL_TEXT], value[SIZE_TEXT] = "-";
	double number = column->value ? column->value(line) : 0;

	if (!column->value)
		snprintf(value, sizeof(value), "%.*s", (int)sizeof(value) - 1, line->volume->name);
	else if (number >= 0 && column->is_bytes)
		size_print(value, (uint64_t)number, &top->units);
	else if (number >= 0)
		snprintf(value, sizeof(value), "%.1f", number);
	snprintf(cell, sizeof(cell), "%*.*s ", column->width, abs(column->width), value);
	put(attributes, cell);
}

static void draw_volume(const struct top *top, int row, const struct line *line)
{
	char *state = status_value(line->volume->status, "state"), *trouble = status_value(line->volume->status, "trouble");
	int attributes = line->wrong ? A_BOLD : A_NORMAL;

	move(row, 0);
	for (size_t i = 0; i < NR_COLUMNS; i++)
		put_cell(top, line, &columns[i], attributes);
	put(attributes, state ? state : "?");
	if (trouble && strcmp(trouble, "-")) {
		put(attributes, ": ");
		put(attributes, trouble);
	}
	free(state);
	free(trouble);
}

static void draw_headings(const struct top *top, int row)
{
	char cell[CELL_TEXT];

	move(row, 0);
	for (size_t i = 0; i < NR_COLUMNS; i++) {
		snprintf(cell, sizeof(cell), "%*s ", columns[i].width, columns[i].heading);
		put(i == top->sort ? A_REVERSE | A_BOLD : A_REVERSE, cell);
	}
	put(A_REVERSE, "State");
	for (int room = COLS - getcurx(stdscr); room > 0 && getcury(stdscr) == row; room--)
		put(A_REVERSE, " ");
}

static void draw_cache(const struct top *top, int row, const struct mapped *cache)
{
	char text[256], live[SIZE_TEXT], unclean[SIZE_TEXT], *state = status_value(cache->status, "state");
	struct problems found = { 0 };

	advise_cache(cache->name, cache->status, &found);
	snprintf(text, sizeof(text), "cache %s: %s, %s cached, %s dirty, SSD read %" PRIu64 " us, write %" PRIu64 " us",
		 snapshot_name(&top->now.list, cache), state ? state : "?",
		 size_print(live, status_number(cache->status, "live_sectors") << 9, &top->units),
		 size_print(unclean, status_number(cache->status, "dirty_sectors") << 9, &top->units),
		 status_number(cache->status, "read_latency_us"), status_number(cache->status, "write_latency_us"));
	move(row, 0);
	put(found.number ? A_BOLD : A_NORMAL, text);
	if (found.number)
		put(A_BOLD, "; wrong: larder cache status says what");
	problems_free(&found);
	free(state);
}

static void draw_title(const struct top *top)
{
	time_t clock = time(NULL);
	char text[96], when[16];
	struct tm local;

	strftime(when, sizeof(when), "%H:%M:%S", localtime_r(&clock, &local));
	snprintf(text, sizeof(text), "larder top  %s  volumes: %zu  every %g s  sorted by %s", when, top->number, top->interval,
		 columns[top->sort].heading);
	move(0, 0);
	put(A_BOLD, text);
}

static void draw(struct top *top)
{
	int row = 1, room;

	erase();
	draw_title(top);
	for (size_t i = 0; i < top->now.list.number && row < LINES / 2; i++)
		if (top->now.list.mapped[i].cache)
			draw_cache(top, row++, &top->now.list.mapped[i]);
	draw_headings(top, row++);
	room = LINES - 1 - row;
	if (room < 1)
		room = 1;
	if (top->first + (size_t)room > top->number)
		top->first = top->number > (size_t)room ? top->number - (size_t)room : 0;
	for (size_t i = top->first; i < top->number && room-- > 0; i++)
		draw_volume(top, row++, &top->lines[i]);
	move(LINES - 1, 0);
	put(A_DIM, "q quit  sort: n name h hit r R read w W write c cached d dirty b written back  i other way round  arrows");
	refresh();
}

/* ------------------------------------------------------------------ keys and time */

/* False: it is to end. */
static bool take_key(struct top *top, int key)
{
	switch (key) {
	case 'q':
	case 'Q':
		return false;
	case 'i':
		top->upwards = !top->upwards;
		break;
	case KEY_DOWN:
		top->first++;
		break;
	case KEY_UP:
		top->first -= top->first > 0;
		break;
	default:
		for (size_t i = 0; i < NR_COLUMNS; i++)
			if (key == columns[i].key)
				top->sort = i;
	}
	sort_lines(top);
	return true;
}

/* By this signal, of which curses knows nothing: the terminal is to be given back first. */
static volatile sig_atomic_t ended;

static void end(int number)
{
	ended = number;
}

/* Also at an exit() from wherever memory was missing. */
static void leave_screen(void)
{
	if (stdscr && !isendwin())
		endwin();
}

/* Until the next look is due, but once at least, however late it is.  False: it is to end, or the terminal is gone. */
static bool take_keys(struct top *top)
{
	int key;

	for (bool drawn = false;; drawn = true) {
		double left = top->now.at + top->interval - clock_seconds();

		if (left <= 0 && drawn)
			return true;
		draw(top);
		timeout(left > 0 ? (int)(left * 1000) + 1 : 0);
		key = getch();
		if (ended || (key == ERR && !isatty(STDIN_FILENO)))
			return false;
		if (key != ERR && !take_key(top, key))
			return false;
	}
}

static int run(struct top *top)
{
	int result = LARDER_DONE;

	while (!result) {
		make_lines(top);
		if (!take_keys(top))
			break;
		if (top->twice)
			sample_free(&top->before);
		top->before = top->now;
		top->twice = true;
		result = sample_take(&top->now);
	}
	return result;
}

static int on_screen(struct top *top)
{
	static const int ends[] = { SIGHUP, SIGQUIT, 0 };
	struct signals was;
	const char *term = getenv("TERM");
	SCREEN *screen;
	int result;

	setlocale(LC_CTYPE, "");
	/* asked before, as newterm() loses memory where it fails */
	screen = terminal_known() ? newterm(NULL, stdout, stdin) : NULL;
	if (!screen)
		return complain(LARDER_USAGE, "top: this terminal is not known: TERM=%s; larder monitor does without", term ? term : "");
	atexit(leave_screen);
	signals_catch(ends, end, 0, &was);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	result = run(top);
	leave_screen();
	delscreen(screen);
	signals_restore(&was);
	if (ended)
		raise((int)ended);
	/* what was said went to a screen that is not there any more */
	return result ? complain(result, "top: cannot look at the devices any more; larder volume list says why") : LARDER_DONE;
}

int top(int argc, char **argv)
{
	struct top top = { .interval = 2, .units = { 'h', true }, .sort = 0 };
	const char *interval_text = NULL;
	char **known = NULL;
	const struct argument arguments[] = {
		{ "interval", 'i', ARGUMENT_TEXT, &interval_text, "SECONDS", "length of an interval; default: 2" },
		{ "units", 0, ARGUMENT_UNITS, &top.units, "UNIT", "h (fitting), b, s, k, m, g, t; capital: powers of 1000" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, "larder top [--interval SECONDS] [--units UNIT] [VOLUME...]", arguments, 0, -1, &first, &result))
		return result;
	if (!interval_parse("--interval", interval_text, &top.interval))
		return LARDER_USAGE;
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return complain(LARDER_USAGE, "top: it needs a terminal; larder monitor does without");
	mapped_init(false);
	top.names = argv + first;
	top.nr_names = argc - first;
	result = sample_take(&top.now);
	if (!result)
		result = volumes_known(&top.now.list, top.names, top.nr_names, &known);
	top.names = known;
	if (!result)
		result = on_screen(&top);
	free(top.lines);
	volumes_forget(known);
	if (top.twice)
		sample_free(&top.before);
	sample_free(&top.now);
	return result;
}
