// SPDX-License-Identifier: GPL-2.0-or-later
/* Reads block traces (trace.h). */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUEST_SECTORS_MAX	(1u << 22)
#define VOLUME_MAX		255u
#define SECTOR_MAX		(1ull << 43)

/* Numbers of blocks by open addressing; a power of two, at most half full. */
struct numbering {
	uint32_t *place, size;
};

static void die(const char *name, const char *what)
{
	fprintf(stderr, "policy: %s: %s\n", name, what);
	exit(1);
}

void *take(uint64_t n, uint64_t bytes)
{
	void *p = calloc(n ? n : 1, bytes);

	if (!p)
		die("memory", strerror(errno));
	return p;
}

static void *grow(void *p, uint64_t n, uint64_t bytes)
{
	p = realloc(p, n * bytes);
	if (!p)
		die("memory", strerror(errno));
	return p;
}

void links_take(struct links *l, uint32_t blocks)
{
	l->prev = take(blocks, sizeof(*l->prev));
	l->next = take(blocks, sizeof(*l->next));
}

void links_free(struct links *l)
{
	free(l->prev);
	free(l->next);
}

static uint32_t numbering_place(const struct numbering *n, const struct trace *t, uint64_t number)
{
	uint32_t i = (number * 0x9e3779b97f4a7c15ull >> 32) & (n->size - 1);

	while (n->place[i] != NONE && t->number[n->place[i]] != number)
		i = (i + 1) & (n->size - 1);
	return i;
}

static uint32_t numbering_block(struct numbering *n, struct trace *t, uint64_t number)
{
	uint32_t i;

	if (t->blocks * 2ull >= n->size) {
		n->size = n->size ? n->size * 2 : 1u << 16;
		n->place = grow(n->place, n->size, sizeof(*n->place));
		t->number = grow(t->number, n->size / 2 + 1, sizeof(*t->number));
		memset(n->place, 0xff, n->size * sizeof(*n->place));
		for (i = 0; i < t->blocks; i++)
			n->place[numbering_place(n, t, t->number[i])] = i;
	}
	i = numbering_place(n, t, number);
	if (n->place[i] == NONE) {
		t->number[t->blocks] = number;
		n->place[i] = t->blocks++;
	}
	return n->place[i];
}

static FILE *trace_open(const char *name, pid_t *child)
{
	size_t n = strlen(name);
	int fd[2];
	FILE *f;

	*child = 0;
	if (!strcmp(name, "-"))
		return stdin;
	if (n < 4 || strcmp(name + n - 4, ".zst")) {
		f = fopen(name, "r");
		if (!f)
			die(name, strerror(errno));
		return f;
	}
	if (access(name, R_OK) || pipe(fd))
		die(name, strerror(errno));
	*child = fork();
	if (*child < 0)
		die(name, strerror(errno));
	if (!*child) {
		dup2(fd[1], STDOUT_FILENO);
		close(fd[0]);
		close(fd[1]);
		execlp("zstd", "zstd", "-qdc", "--", name, NULL);
		_exit(127);
	}
	close(fd[1]);
	f = fdopen(fd[0], "r");
	if (!f)
		die(name, strerror(errno));
	return f;
}

static bool request_parse(const char *line, struct request *r)
{
	unsigned long long start, sectors;
	unsigned int volume;
	char op;

	if (sscanf(line, "%c %u %llu %llu", &op, &volume, &start, &sectors) != 4 || !strchr("RWU", op) || volume > VOLUME_MAX ||
	    sectors > REQUEST_SECTORS_MAX || start > SECTOR_MAX)
		return false;
	*r = (struct request){ .sector = start, .sectors = sectors, .volume = volume, .write = op == 'W' };
	return true;
}

static void trace_add(struct trace *t, struct numbering *n, struct request r, uint32_t room[2])
{
	uint64_t block = r.sector / BLOCK_SECTORS, last = (r.sector + r.sectors - 1) / BLOCK_SECTORS;

	if (t->requests == room[0]) {
		room[0] = room[0] ? room[0] * 2 : 1u << 16;
		t->request = grow(t->request, room[0], sizeof(*t->request));
	}
	r.first = t->accesses;
	r.n = last - block + 1;
	for (; block <= last; block++) {
		if (t->accesses == room[1]) {
			room[1] = room[1] ? room[1] * 2 : 1u << 16;
			t->access = grow(t->access, room[1], sizeof(*t->access));
		}
		t->access[t->accesses++] = numbering_block(n, t, (uint64_t)r.volume << 40 | block);
	}
	t->request[t->requests++] = r;
}

void trace_load(struct trace *t, const char *name)
{
	struct numbering n = { 0 };
	uint32_t room[2] = { 0 };
	unsigned long line_number = 0;
	struct request r;
	char line[256];
	int status = 0;
	pid_t child;
	FILE *f = trace_open(name, &child);

	memset(t, 0, sizeof(*t));
	while (fgets(line, sizeof(line), f)) {
		line_number++;
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (!request_parse(line, &r)) {
			fprintf(stderr, "policy: %s:%lu: not a request\n", name, line_number);
			exit(1);
		}
		if (r.sectors)
			trace_add(t, &n, r, room);
	}
	if (f != stdin)
		fclose(f);
	if (child && (waitpid(child, &status, 0) < 0 || status))
		die(name, "zstd could not decompress it");
	if (!t->accesses)
		die(name, "no requests");
	free(n.place);
}

void trace_free(struct trace *t)
{
	free(t->request);
	free(t->access);
	free(t->number);
}
