// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The model in a file: a header, sector states, history, pending operations.  Host byte order; the file is written beside its name and
 * renamed, so that a killed VM leaves the old one or the new one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "model.h"

#define STATE_MAGIC 0x3174737261726fULL

struct header {
	uint64_t magic, seed, offset, sectors, nr_pending;
	uint32_t unknown, version, event, rounds;
};

static int write_all(const struct model *m, FILE *f)
{
	struct header h = {
		.magic = STATE_MAGIC, .seed = m->seed, .offset = m->offset, .sectors = m->sectors,
		.nr_pending = m->pending_next - m->pending_first, .unknown = m->unknown, .version = m->version,
		.event = m->event, .rounds = m->rounds,
	};
	uint64_t i;

	if (fwrite(&h, sizeof(h), 1, f) != 1 || fwrite(m->s, sizeof(*m->s), m->sectors, f) != m->sectors ||
	    fwrite(m->history, sizeof(*m->history), HISTORY, f) != HISTORY)
		return -EIO;
	for (i = m->pending_first; i < m->pending_next; i++)
		if (fwrite(&m->pending[i % m->pending_room], sizeof(*m->pending), 1, f) != 1)
			return -EIO;
	if (fflush(f) || fsync(fileno(f)))
		return -errno;
	return 0;
}

int model_save(const struct model *m, const char *path)
{
	char *tmp;
	FILE *f;
	int err;

	if (asprintf(&tmp, "%s.new", path) < 0)
		return -ENOMEM;
	f = fopen(tmp, "wb");
	if (!f) {
		free(tmp);
		return -errno;
	}
	err = write_all(m, f);
	if (fclose(f) && !err)
		err = -errno;
	if (!err && rename(tmp, path))
		err = -errno;
	free(tmp);
	return err;
}

static int read_all(struct model *m, FILE *f)
{
	struct header h;
	uint64_t i, room;

	if (fread(&h, sizeof(h), 1, f) != 1 || h.magic != STATE_MAGIC || h.sectors > UINT32_MAX)
		return -EINVAL;
	model_init(m, h.seed, h.offset, h.sectors);
	m->unknown = h.unknown;
	m->version = h.version;
	m->event = h.event;
	m->rounds = h.rounds;
	if (fread(m->s, sizeof(*m->s), m->sectors, f) != m->sectors ||
	    fread(m->history, sizeof(*m->history), HISTORY, f) != HISTORY)
		return -EINVAL;
	for (room = m->pending_room; room < h.nr_pending; room *= 2)
		;
	free(m->pending);
	m->pending = calloc(room, sizeof(*m->pending));
	if (!m->pending)
		return -ENOMEM;
	m->pending_room = room;
	m->pending_next = h.nr_pending;
	for (i = 0; i < h.nr_pending; i++)
		if (fread(&m->pending[i], sizeof(*m->pending), 1, f) != 1)
			return -EINVAL;
	return 0;
}

int model_load(struct model *m, const char *path)
{
	FILE *f = fopen(path, "rb");
	int err;

	if (!f)
		return -errno;
	err = read_all(m, f);
	fclose(f);
	return err;
}
