// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The journal: when the VM that runs the load is killed, the model in its memory is gone.  A file on a file system of the host has every
 * issue before its submission and the ends that were seen; what is missing at the end counts as in flight.  Records have a
 * fixed size and a check word; replay stops at the first that is not whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "oracle.h"

enum type { ISSUE = 1, END, FLUSHED };

struct entry {
	uint32_t type, kind, version, first, count;
	int32_t error;
	uint64_t mark;
	uint64_t check;
};

struct journal {
	int fd, error;
	unsigned int n;
	struct entry e[256];
};

static uint64_t check(const struct entry *e)
{
	const uint32_t *w = (const uint32_t *)e;
	uint64_t h = 0x6a6f75726e616cull;
	unsigned int i;

	for (i = 0; i < offsetof(struct entry, check) / 4; i++)
		h = (h ^ w[i]) * 0x100000001b3ull;
	return h;
}

int journal_open(struct journal **j, const char *path)
{
	*j = calloc(1, sizeof(**j));
	if (!*j)
		return -ENOMEM;
	(*j)->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	return (*j)->fd < 0 ? -errno : 0;
}

int journal_write(struct journal *j)
{
	size_t len, done = 0;
	ssize_t n;

	if (!j)
		return 0;
	for (len = j->n * sizeof(j->e[0]); done < len && !j->error; done += n) {
		n = write(j->fd, (char *)j->e + done, len - done);
		if (n < 0) {
			j->error = -errno;
			break;
		}
	}
	j->n = 0;
	return j->error;
}

static void add(struct journal *j, struct entry e)
{
	if (!j)
		return;
	e.check = check(&e);
	j->e[j->n++] = e;
	if (j->n == sizeof(j->e) / sizeof(j->e[0]))
		journal_write(j);
}

void journal_issue(struct journal *j, uint32_t version, enum op_kind kind, uint32_t first, uint32_t count)
{
	add(j, (struct entry) { .type = ISSUE, .version = version, .kind = kind, .first = first, .count = count });
}

void journal_end(struct journal *j, uint32_t version, int error)
{
	add(j, (struct entry) { .type = END, .version = version, .error = error });
}

void journal_flushed(struct journal *j, uint64_t mark)
{
	add(j, (struct entry) { .type = FLUSHED, .mark = mark });
}

int journal_close(struct journal *j)
{
	int err = journal_write(j);

	if (!j)
		return 0;
	close(j->fd);
	free(j);
	return err;
}

static int apply(struct model *m, const struct entry *e)
{
	switch (e->type) {
	case ISSUE:
		if (e->kind >= NR_OPS || (uint64_t)e->first + e->count > m->sectors ||
		    model_issue(m, e->kind, e->first, e->count) != e->version)
			return -EINVAL;
		return 0;
	case END:
		model_end(m, e->version, e->error);
		return 0;
	default:
		if (e->mark > m->pending_next)
			return -EINVAL;
		model_flushed(m, e->mark);
		return 0;
	}
}

int journal_apply(struct model *m, const void *records, size_t bytes)
{
	const char *at = records;
	struct entry e;
	int err = 0;

	for (; !err && bytes; at += sizeof(e), bytes -= sizeof(e)) {
		if (bytes < sizeof(e))
			return -EINVAL;
		memcpy(&e, at, sizeof(e));
		err = e.check == check(&e) ? apply(m, &e) : -EINVAL;
	}
	return err;
}

int journal_replay(struct model *m, const char *path)
{
	FILE *f = fopen(path, "rb");
	struct entry e;
	int err = 0;

	if (!f)
		return -errno;
	while (!err && fread(&e, sizeof(e), 1, f) == 1 && e.check == check(&e))
		err = apply(m, &e);
	fclose(f);
	return err;
}
