// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The curve of larder advise: in a terminal, in plain characters; and as SVG.  Both: sizes by doublings from left to right, 0 to 100 % from below.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "advise.h"

#define ROWS	  21 /* of a terminal, of 5 % each; every fourth one has a label */
#define MARGIN	  7
#define COLUMNS	  80 /* where it is no terminal */
#define LEAST	  40
#define MOST	  160
#define LABEL	  10 /* columns, for a size */

/* Of SVG. */
#define NAMESPACE "http://www.w3.org" "/2000/svg" /* a name; nothing is fetched from there */
#define WIDTH	  720
#define HEIGHT	  420
#define LEFT	  64
#define TOP	  48
#define RIGHT	  24
#define BOTTOM	  64
#define POINTS	  160

static const struct curve {
	enum hit_access kind;
	enum hit_measure measure;
	char mark;
	const char *name, *colour;
} curves[] = {
	{ HIT_WRITE, HIT_BLOCKS, 'o', "of what is written replaces what is in the cache", "#c05a00" },
	{ HIT_READ, HIT_REQUESTS, '*', "of reads are served", "#1f5fa8" },
};

#define NR_CURVES (sizeof(curves) / sizeof(curves[0]))

static double doublings(const struct advice_seen *seen)
{
	return log2((double)seen->largest / (double)seen->smallest);
}

/* Ratio at a place of the axis, 0 to 1; negative: nothing was seen of the kind. */
static double at(const struct advice_seen *seen, const struct curve *curve, double place, double *error)
{
	return hit_curve_ratio(seen->curve, curve->kind, curve->measure, (uint64_t)((double)seen->smallest * exp2(place * doublings(seen))), error);
}

static int terminal_columns(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
		return COLUMNS;
	return size.ws_col < LEAST ? LEAST : size.ws_col > MOST ? MOST : size.ws_col;
}

/* Below the axis: as many sizes as there is room for, the last one among them. */
static void print_sizes(const struct advice_seen *seen, int columns)
{
	int last = (int)(doublings(seen) + 0.5), step = (last + 1) * LABEL / columns + 1, used = 0;
	char text[SIZE_TEXT];

	printf("%*s", MARGIN, "");
	for (int i = last % step; i <= last; i += step) {
		int place = (int)lround((double)i / last * (columns - 1));
		const char *size = advice_size(text, seen->smallest << i);
		int length = (int)strlen(size);

		if (place + length > columns)
			place = columns - length;
		printf("%*s%s", place - used, "", size);
		used = place + length;
	}
	putchar('\n');
}

void chart_print(const struct advice_seen *seen)
{
	int columns = terminal_columns() - MARGIN - 2;
	char *cells = must_allocate(malloc((size_t)columns * ROWS));

	memset(cells, ' ', (size_t)columns * ROWS);
	for (size_t k = 0; k < NR_CURVES; k++)
		for (int x = 0; x < columns; x++) {
			double ratio = at(seen, &curves[k], (double)x / (columns - 1), NULL);

			if (ratio >= 0)
				cells[(ROWS - 1 - (int)lround(ratio * (ROWS - 1))) * columns + x] = curves[k].mark;
		}
	putchar('\n');
	for (int y = 0; y < ROWS; y++) {
		int end = columns;

		while (end && cells[y * columns + end - 1] == ' ')
			end--;
		if (y % 4)
			printf("%*s|%.*s\n", MARGIN - 1, "", end, cells + y * columns);
		else
			printf("%3d %% |%.*s\n", 100 * (ROWS - 1 - y) / (ROWS - 1), end, cells + y * columns);
	}
	printf("%*s+", MARGIN - 1, "");
	for (int x = 0; x < columns; x++)
		putchar('-');
	putchar('\n');
	print_sizes(seen, columns);
	for (size_t k = NR_CURVES; k-- > 0;)
		if (at(seen, &curves[k], 0, NULL) >= 0)
			printf("%*s %c %s\n", MARGIN - 1, "", curves[k].mark, curves[k].name);
	free(cells);
}

/* ------------------------------------------------------------------ SVG */

static double svg_x(double place)
{
	return LEFT + place * (WIDTH - LEFT - RIGHT);
}

static double svg_y(double ratio)
{
	return TOP + (1 - fmin(1, fmax(0, ratio))) * (HEIGHT - TOP - BOTTOM);
}

/* XML has no place for control characters, nor for what is no UTF-8: whatever is not plain is replaced. */
static void svg_text(FILE *file, const char *text)
{
	for (; *text; text++) {
		if (*text == '&')
			fputs("&amp;", file);
		else if (*text == '<')
			fputs("&lt;", file);
		else if (*text == '>')
			fputs("&gt;", file);
		else
			fputc((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f ? '?' : *text, file);
	}
}

static void svg_axes(const struct advice_seen *seen, FILE *file)
{
	int last = (int)(doublings(seen) + 0.5), step = last / 8 + 1;
	char text[SIZE_TEXT];

	for (int percent = 0; percent <= 100; percent += 20) {
		double y = svg_y(percent / 100.0);

		fprintf(file, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#d8d8d8\"/>\n", LEFT, y, WIDTH - RIGHT, y);
		fprintf(file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d %%</text>\n", LEFT - 8, y + 4, percent);
	}
	for (int i = 0; i <= last; i += step) {
		double x = svg_x((double)i / last);

		fprintf(file, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#d8d8d8\"/>\n", x, TOP, x, HEIGHT - BOTTOM);
		fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, HEIGHT - BOTTOM + 18, advice_size(text, seen->smallest << i));
	}
}

/* What two standard errors leave. */
static void svg_band(const struct advice_seen *seen, const struct curve *curve, FILE *file)
{
	double error, ratio;

	fprintf(file, "<polygon fill=\"%s\" fill-opacity=\"0.15\" points=\"", curve->colour);
	for (int i = 0; i <= POINTS; i++) {
		ratio = at(seen, curve, (double)i / POINTS, &error);
		fprintf(file, "%.1f,%.1f ", svg_x((double)i / POINTS), svg_y(ratio + 2 * error));
	}
	for (int i = POINTS; i >= 0; i--) {
		ratio = at(seen, curve, (double)i / POINTS, &error);
		fprintf(file, "%.1f,%.1f ", svg_x((double)i / POINTS), svg_y(ratio - 2 * error));
	}
	fputs("\"/>\n", file);
}

static void svg_curve(const struct advice_seen *seen, const struct curve *curve, int line, FILE *file)
{
	svg_band(seen, curve, file);
	fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", curve->colour);
	for (int i = 0; i <= POINTS; i++)
		fprintf(file, "%.1f,%.1f ", svg_x((double)i / POINTS), svg_y(at(seen, curve, (double)i / POINTS, NULL)));
	fputs("\"/>\n", file);
	fprintf(file, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", LEFT, HEIGHT - BOTTOM + 36 + 16 * line, curve->colour, curve->name);
}

void chart_svg(const struct advice_seen *seen, FILE *file)
{
	int line = 0;

	fprintf(file, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"%s\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
		"font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n<text x=\"%d\" y=\"28\" font-size=\"15\">",
		NAMESPACE, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
	svg_text(file, seen->what);
	fputs(": what a cache of this size serves</text>\n", file);
	svg_axes(seen, file);
	for (size_t k = NR_CURVES; k-- > 0;)
		if (at(seen, &curves[k], 0, NULL) >= 0)
			svg_curve(seen, &curves[k], line++, file);
	fputs("</svg>\n", file);
}
