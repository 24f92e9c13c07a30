// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One state, started and judged.
 *
 * What must hold: the stack starts; each sector reads as its last secured value or a later one; what was read is read again; a file
 * system passes its check; the volume takes a write.  The same where everything was evicted and written back, and the stack stopped in
 * an orderly way, also by the backing alone, and behind another power cut in the middle of all that (of one before anything was read:
 * again the last secured value or a later one).  Whoever reads what is on the disks without the stack finds what the stack does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "explore.h"

#define CHUNK		(4u << 20)	/* bytes of a read */
#define BLOCK		4096u
#define PIECE		65536u		/* that a sum is of */
#define SECOND_BYTES	(128u << 20)	/* for the recording of a start and what follows: five times what a mount and an fsck of 32 MiB took */
#define SERVE		"serve"
#define SUMS		"/tmp/explore.sums"
#define LINES		8

struct run {
	struct recording *r;
	const struct stack *s;
	struct tally *t;
	uint64_t seed, kind;
	const char *when;
	char cut[96];
	int lines;
	int log;	/* /dev/kmsg, at what it said when the state was started; -1: there is none */
};

static struct sector_state *scratch[MAX_VOLUMES];

static bool has_oracle(const struct volume *v)
{
	return v->nr_pids;
}

static uint64_t nr_pieces(const struct volume *v)
{
	return (v->model.sectors * SECTOR + PIECE - 1) / PIECE;
}

int judge_init(struct recording *r)
{
	struct volume *v;

	for (v = r->volume; v < r->volume + r->nr_volumes; v++) {
		size_t bytes = v->model.sectors * SECTOR;

		if (!has_oracle(v)) {
			v->sum[0] = calloc(2 * nr_pieces(v), sizeof(**v->sum));
			if (!v->sum[0])
				return -ENOMEM;
			v->sum[1] = v->sum[0] + nr_pieces(v);
			continue;
		}
		scratch[v - r->volume] = calloc(v->model.sectors, sizeof(struct sector_state));
		v->found = calloc(v->model.sectors, sizeof(*v->found));
		if (posix_memalign((void **)&v->seen, 4096, bytes) || posix_memalign((void **)&v->again, 4096, bytes) || !v->found ||
		    !scratch[v - r->volume])
			return -ENOMEM;
		memset(v->seen, 0, bytes);
	}
	return 0;
}

static bool wrong(struct run *u, const char *what, int err)
{
	printf("WRONG %s%s: %s%s%s\n", u->when, u->cut, what, err ? ": " : "", err ? strerror(-err) : "");
	return false;
}

/* What the kernel has said since the state was started, as far as it was more than a remark: a line for each. */
static void kernel_says(const struct run *u)
{
	char line[8192], *text, *end;
	ssize_t got;

	if (u->log < 0)
		return;
	for (;;) {
		got = read(u->log, line, sizeof(line) - 1);
		if (got < 0 && errno == EPIPE)
			continue;
		if (got <= 0)
			return;
		line[got] = 0;
		text = strchr(line, ';');
		end = text ? strchrnul(text, '\n') : NULL;
		if (text && strtoul(line, NULL, 10) % 8 <= 4)
			printf("  kernel: %.*s\n", (int)(end - text - 1), text + 1);
	}
}

/* ------------------------------------------------------------------ the stack */

static bool command(const char *words)
{
	fflush(stdout);
	return !system(words);
}

/* Those of table[0..nr). */
static void remove_tables(const struct stack *s, unsigned int nr)
{
	while (nr--)
		if (!nr || strcmp(s->table_name[nr], s->table_name[nr - 1]))
			dm_remove(s->table_name[nr]);
}

static bool create_tables(struct run *u)
{
	const struct stack *s = u->s;
	unsigned int i, next;
	int err = 0;

	for (i = 0; i < s->nr_tables && !err; i = next) {
		for (next = i; next < s->nr_tables && !strcmp(s->table_name[next], s->table_name[i]); next++)
			if (next == i || err)
				err = dm_create(s->table_name[next], s->table[next]);
		if (!err)
			continue;
		remove_tables(s, i);
		printf("WRONG %s%s: %s does not start: %s\n", u->when, u->cut, s->table_name[i], strerror(-err));
	}
	return !err;
}

static bool start(struct run *u)
{
	double now = now_seconds();
	bool ok = create_tables(u);

	if (ok && u->s->start && !command(u->s->start)) {
		printf("WRONG %s%s: does not start: %s\n", u->when, u->cut, u->s->start);
		remove_tables(u->s, u->s->nr_tables);
		ok = false;
	}
	u->t->start += now_seconds() - now;
	return ok;
}

static bool stop(struct run *u)
{
	double now = now_seconds();
	bool ok = !u->s->stop || command(u->s->stop);

	if (!ok)
		printf("WRONG %s%s: does not stop: %s\n", u->when, u->cut, u->s->stop);
	remove_tables(u->s, u->s->nr_tables);
	u->t->stop += now_seconds() - now;
	return ok;
}

/* "NAME MESSAGE".  What cannot be done is no error: a volume that is not dirty, nothing to evict. */
static void send(const char *message)
{
	char name[64];
	size_t len = strcspn(message, " ");

	snprintf(name, sizeof(name), "%.*s", (int)len, message);
	dm_message(name, message + len + 1);
}

static bool drain(struct run *u)
{
	const struct volume *v;
	unsigned int i, tries;

	for (i = 0; i < u->s->nr_drain; i++)
		send(u->s->drain[i]);
	for (v = u->r->volume; u->s->drained && v < u->r->volume + u->r->nr_volumes; v++) {
		for (tries = 0; dm_status(v->name, u->s->drained) > 0; tries++) {
			if (tries == 20000)
				return wrong(u, "is not drained", 0);
			usleep(1000);
		}
	}
	return true;
}

/* ------------------------------------------------------------------ content */

/* Which blocks of it cannot be read: a line. */
static void explain_unread(int fd, uint8_t *to, uint64_t offset, uint64_t bytes)
{
	uint64_t at, bad = 0, first = 0;

	for (at = 0; at < bytes; at += BLOCK)
		if (pread(fd, to + at, bytes - at < BLOCK ? bytes - at : BLOCK, offset + at) < 0 && !bad++)
			first = offset + at;
	printf("  %llu blocks cannot be read, the first one at sector %llu\n", (unsigned long long)bad, (unsigned long long)first / SECTOR);
}

/* A device may be shorter than the region, as it has not grown yet: zeroes. */
static int read_region(int fd, uint8_t *to, uint64_t offset, uint64_t bytes)
{
	int err = 0;
	uint64_t at, n;
	ssize_t got;

	if (fd < 0)
		return -errno;
	for (at = 0; at < bytes && !err; at += n) {
		n = bytes - at < CHUNK ? bytes - at : CHUNK;
		got = pread(fd, to + at, n, offset + at);
		err = got < 0 ? -errno : 0;
		if (err)
			explain_unread(fd, to + at, offset + at, bytes - at);
		if (!err && got < (ssize_t)n)
			memset(to + at + got, 0, n - got);
	}
	close(fd);
	return err;
}

static const char *volume_path(const struct volume *v)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s%s", strchr(v->name, '/') ? "" : "/dev/mapper/", v->name);
	return path;
}

static int read_volume(const struct volume *v)
{
	return read_region(open(volume_path(v), O_RDONLY | O_DIRECT | O_CLOEXEC), v->again, v->model.offset * SECTOR, v->model.sectors * SECTOR);
}

static void explain(struct run *u, const struct volume *v, uint32_t i, const struct found *f)
{
	if (u->lines++ >= LINES)
		return;
	printf("WRONG %s%s: volume %s: ", u->when, u->cut, v->name);
	model_explain(&v->model, stdout, i, f, true, u->lines == 1);
}

/* After a power cut: judges v->again, which becomes what was seen. */
static bool judge_crash(struct run *u, struct volume *v)
{
	struct sector_state *s = scratch[v - u->r->volume];
	struct model m = v->model;
	bool ok = true;
	uint8_t *at;
	uint32_t i;

	memcpy(s, v->model.s, m.sectors * sizeof(*s));
	m.s = s;
	for (i = 0; i < m.sectors; i++) {
		at = v->again + (size_t)i * SECTOR;
		/* most sectors are those of the state before: what they are is known */
		if (!v->found[i].magic || memcmp(at, v->seen + (size_t)i * SECTOR, SECTOR))
			v->found[i] = stamp_look(at, m.offset + i, m.seed);
		if (model_crash(&m, i, &v->found[i]))
			continue;
		explain(u, v, i, &v->found[i]);
		ok = false;
	}
	memcpy(v->seen, v->again, m.sectors * SECTOR);
	return ok;
}

static bool same(struct run *u, const struct volume *v)
{
	struct found f;
	uint32_t i;

	if (!memcmp(v->again, v->seen, v->model.sectors * SECTOR))
		return true;
	for (i = 0; i < v->model.sectors; i++) {
		if (!memcmp(v->again + (size_t)i * SECTOR, v->seen + (size_t)i * SECTOR, SECTOR) || u->lines++ >= LINES)
			continue;
		f = stamp_look(v->again + (size_t)i * SECTOR, v->model.offset + i, v->model.seed);
		printf("WRONG %s%s: volume %s: changed by itself: was version %u (kind %d)\n  ", u->when, u->cut, v->name,
		       v->found[i].version, v->found[i].kind);
		model_explain(&v->model, stdout, i, &f, true, u->lines == 1);
	}
	return false;
}

static bool read_all(struct run *u, const char *when, bool crash)
{
	double now = now_seconds();
	struct volume *v;
	bool ok = true;
	int err;

	u->when = when;
	for (v = u->r->volume; v < u->r->volume + u->r->nr_volumes; v++) {
		if (!has_oracle(v))
			continue;
		err = read_volume(v);
		if (err)
			return wrong(u, "cannot be read", err);
		ok &= crash ? judge_crash(u, v) : same(u, v);
	}
	u->t->read += now_seconds() - now;
	return ok;
}

static bool check(struct run *u)
{
	u->when = "check";
	if (!u->s->check)
		return true;
	if (recording_texts(u->r, "sum ", SUMS))
		return wrong(u, "the sums cannot be written", 0);
	return command(u->s->check) || wrong(u, u->s->check, 0);
}

/* Nothing runs, and nothing is dirty, or was brought there by another one. */
static bool read_backings(struct run *u, const char *when, bool crash)
{
	struct volume *v;
	bool ok = true;
	int err;

	u->when = when;
	for (v = u->r->volume; v < u->r->volume + u->r->nr_volumes; v++) {
		if (v->backing < 0 || !has_oracle(v))
			continue;
		err = read_region(disk_open(&u->r->disk[v->backing]), v->again, (v->backing_sector + v->model.offset) * SECTOR, v->model.sectors * SECTOR);
		if (err)
			return wrong(u, "cannot be read", err);
		ok &= crash ? judge_crash(u, v) : same(u, v);
	}
	return ok;
}

static uint64_t sum_of(const uint8_t *at, uint64_t bytes)
{
	uint64_t sum = 0xcbf29ce484222325ull, word;

	for (; bytes; bytes -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sum = (sum ^ word) * 0x100000001b3ull;
		sum ^= sum >> 32;
	}
	return sum;
}

static int read_sums(const struct volume *v, int fd, uint64_t offset, uint64_t *sum)
{
	uint64_t bytes = v->model.sectors * SECTOR, at, n;
	static uint8_t *buf;
	int err = fd < 0 ? -errno : 0;

	if (!buf && posix_memalign((void **)&buf, 4096, CHUNK))
		exit(2);
	for (at = 0; at < bytes && !err; at += PIECE) {
		n = bytes - at < CHUNK ? bytes - at : CHUNK;
		if (at % CHUNK == 0 && pread(fd, buf, n, offset + at) != (ssize_t)n)
			err = errno ? -errno : -EIO;
		n = bytes - at < PIECE ? bytes - at : PIECE;
		sum[at / PIECE] = sum_of(buf + at % CHUNK, n);
	}
	if (fd >= 0)
		close(fd);
	return err;
}

/*
 * Of those that no oracle knows.  Before anything else is done with them: a mount writes.
 * compared: with what was found without the stack.
 */
static bool sum_others(struct run *u, bool stack, bool compared)
{
	const struct volume *v;
	uint64_t i;
	int err;

	for (v = u->r->volume; v < u->r->volume + u->r->nr_volumes; v++) {
		if (has_oracle(v) || v->backing < 0)
			continue;
		if (stack)
			err = read_sums(v, open(volume_path(v), O_RDONLY | O_DIRECT | O_CLOEXEC), 0, v->sum[1]);
		else
			err = read_sums(v, disk_open(&u->r->disk[v->backing]), v->backing_sector * SECTOR, v->sum[0]);
		if (err)
			return wrong(u, "cannot be read", err);
		for (i = 0; compared && i < nr_pieces(v); i++) {
			if (v->sum[0][i] == v->sum[1][i])
				continue;
			printf("WRONG %s%s: volume %s: is not what was found without the stack, from byte %llu on\n", u->when, u->cut,
			       v->name, (unsigned long long)i * PIECE);
			return false;
		}
	}
	return true;
}

/* Of what was found last of one that has a backing. */
static uint64_t found_sum(const struct volume *v, bool stack)
{
	return has_oracle(v) ? sum_of(v->seen, v->model.sectors * SECTOR) : sum_of((const uint8_t *)v->sum[stack], nr_pieces(v) * sizeof(**v->sum));
}

/* "POSITION KIND SUM...", of what has a backing. */
static void note_state(const struct run *u)
{
	const struct volume *v;

	fprintf(u->s->note, "%llu %llu", (unsigned long long)u->r->position, (unsigned long long)u->kind);
	for (v = u->r->volume; v < u->r->volume + u->r->nr_volumes; v++)
		if (v->backing >= 0)
			fprintf(u->s->note, " %llx", (unsigned long long)found_sum(v, true));
	fprintf(u->s->note, "\n");
}

bool judge_noted(struct recording *r, FILE *noted, uint64_t *position, uint64_t *kind)
{
	unsigned long long at, which, sum;
	struct volume *v;

	if (fscanf(noted, "%llu %llu", &at, &which) != 2)
		return false;
	*position = at;
	*kind = which;
	for (v = r->volume; v < r->volume + r->nr_volumes; v++) {
		if (v->backing < 0)
			continue;
		if (fscanf(noted, "%llx", &sum) != 1)
			return false;
		v->read_before = sum;
	}
	return true;
}

static bool as_noted(struct run *u)
{
	const struct volume *v;

	for (v = u->r->volume; v < u->r->volume + u->r->nr_volumes; v++) {
		if (v->backing < 0 || found_sum(v, false) == v->read_before)
			continue;
		printf("WRONG %s: volume %s: is not what the stack has read first\n", u->when, v->name);
		return false;
	}
	return true;
}

/* The last thing done with a state: it changes content. */
static bool take_writes(struct run *u)
{
	static uint8_t *buf, *back;
	struct volume *v;
	int fd, err;

	u->when = "a write";
	if (!buf && (posix_memalign((void **)&buf, 4096, 65536) || posix_memalign((void **)&back, 4096, 65536)))
		exit(2);
	memset(buf, 0xa5, 65536);
	for (v = u->r->volume; v < u->r->volume + u->r->nr_volumes; v++) {
		fd = open(volume_path(v), O_RDWR | O_DIRECT | O_CLOEXEC);
		if (fd < 0)
			return wrong(u, "cannot be opened", -errno);
		err = pwrite(fd, buf, 65536, 0) == 65536 && !fsync(fd) && pread(fd, back, 65536, 0) == 65536 ? 0 : -errno;
		close(fd);
		if (err || memcmp(buf, back, 65536))
			return wrong(u, "is not taken", err);
	}
	return true;
}

/* ------------------------------------------------------------------ a second power cut */

static bool put_state(struct run *u)
{
	double now = now_seconds();
	bool ok = !disks_restore(u->r) && !disks_write_open(u->r, u->seed, u->kind);

	u->t->put += now_seconds() - now;
	return ok;
}

/* The recording of the first start: as far as it came to the disks. */
static bool put_again(struct run *u, struct recording *second, uint64_t position, uint64_t seed, uint64_t kind)
{
	recording_rewind(second);
	return (!recording_advance(second, position) && put_state(u) && !disks_write_due(second, false) && !disks_write_open(second, seed, kind)) ||
		wrong(u, "the state cannot be made", 0);
}

/* What the backings hold is what was seen, or, fresh, what may be: from then on it is what was seen. */
static bool alone(struct run *u, const char *when, bool fresh)
{
	u->when = when;
	u->t->alone++;
	if (!command(u->s->alone))
		return wrong(u, u->s->alone, 0);
	return read_backings(u, when, fresh) && (disks_are_images() || sum_others(u, false, false));
}

static bool cut_again(struct run *u, struct recording *second, uint64_t position, uint64_t seed, uint64_t kind)
{
	bool ok, fresh = position < recording_find(second, SERVE), compared = u->s->alone && u->t->again % u->s->alone_each == 0;

	snprintf(u->t->second, sizeof(u->t->second), "%llu.%llu.%llu", (unsigned long long)position, (unsigned long long)kind,
		 (unsigned long long)seed);
	snprintf(u->cut, sizeof(u->cut), " (second power cut: %s)", u->t->second);
	u->when = "second start";
	ok = put_again(u, second, position, seed, kind);
	if (ok && compared)
		ok = alone(u, "second start, without the stack", fresh) && put_again(u, second, position, seed, kind);
	u->when = "second start";
	if (ok && start(u)) {
		ok = read_all(u, "second start", fresh && !compared) && (!compared || sum_others(u, true, true)) &&
			read_all(u, "second start, read again", false) && check(u) && take_writes(u);
		ok &= stop(u);
	} else {
		ok = false;
	}
	if (ok) {
		*u->t->second = 0;
		return true;
	}
	recording_describe(second, stdout, position);
	state_describe(second, stdout, seed, kind);
	return false;
}

static bool cut_at(struct run *u, struct recording *second, uint64_t position, struct rng *rng)
{
	uint64_t seed = rng_next(rng) >> 32;

	recording_rewind(second);
	return !recording_advance(second, position) && cut_again(u, second, position, seed, state_choose(second, rng));
}

static bool cuts_again(struct run *u, struct recording *second, unsigned int cuts, struct tally *t)
{
	struct rng rng = { .state = u->seed ^ u->kind << 20 ^ u->r->position };
	uint64_t serve = recording_find(second, SERVE);
	unsigned int i;
	bool ok = true;

	/* those behind the reads first: what was seen is what must be there */
	for (i = 0; i < cuts && ok && second->nr > serve; i++, t->again++)
		ok = cut_at(u, second, serve + rng_below(&rng, second->nr - serve + 1), &rng);
	for (i = 0; i < cuts && ok && serve > 1; i++, t->again++)
		ok = cut_at(u, second, 1 + rng_below(&rng, serve - 1), &rng);
	return ok;
}

/* ------------------------------------------------------------------ all of it */

static bool deeper(struct run *u)
{
	unsigned int i;

	for (i = 0; i < u->s->nr_evict; i++)
		send(u->s->evict[i]);
	if (!read_all(u, "after eviction", false))
		return false;
	u->when = "writeback";
	return drain(u) && read_all(u, "after writeback", false);
}

static bool restart(struct run *u)
{
	bool ok;

	u->when = "restart";
	if (!start(u))
		return false;
	ok = read_all(u, "after an orderly stop", false) && take_writes(u);
	return stop(u) && ok;
}

/* For a recording of the start of a state; one at a time. */
static struct recording same_disks(const struct recording *r)
{
	static struct disk disks[MAX_DISKS];
	unsigned int i;

	for (i = 0; i < r->nr_disks; i++)
		memcpy(disks[i].name, r->disk[i].name, sizeof(disks[i].name));
	return (struct recording) { .disk = disks, .nr_disks = r->nr_disks };
}

/* Of the start of this state. */
static const char *kept(const struct run *u)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s-%llu.%llu", u->s->keep, (unsigned long long)u->r->position, (unsigned long long)u->kind);
	return path;
}

/* A second power cut that was wrong: POSITION.KIND.SEED of a recording that was kept. */
static bool once_more(struct run *u, struct tally *t)
{
	struct recording second = same_disks(u->r);
	unsigned long long position, kind, seed;
	bool ok;

	if (sscanf(u->s->second, "%llu.%llu.%llu", &position, &kind, &seed) != 3 || recording_load(&second, kept(u)) ||
	    position > second.nr)
		return wrong(u, "no such second power cut", 0);
	ok = cut_again(u, &second, position, seed, kind);
	t->again++;
	recording_free(&second);
	return ok;
}

/* After an orderly stop, everything written back. */
static bool afterwards(struct run *u, unsigned int cuts, struct tally *t)
{
	struct recording second = same_disks(u->r);
	bool ok;

	if (recording_load(&second, RECORDING))
		return wrong(u, "cannot be recorded", 0);
	control("record size=0");
	ok = read_backings(u, "backing alone, after writeback", false) && restart(u) && cuts_again(u, &second, cuts, t);
	if (!ok && u->s->keep)
		recording_save(&second, kept(u));
	recording_free(&second);
	return ok;
}

/* compared: with what whoever knows no stack finds, who has been asked. */
static bool judge_start(struct run *u, bool compared, unsigned int deep)
{
	const struct stack *s = u->s;
	bool ok;

	u->when = "start";
	if (!put_state(u) || (deep && control("record size=%u", SECOND_BYTES)))
		return wrong(u, "the state cannot be made", 0);
	if (!start(u))
		return false;
	if (deep)
		mark(SERVE);
	if (s->second)
		deep = 0;
	ok = read_all(u, compared ? "first read, beside what was found without the stack" : "first read", !compared) &&
		(!(compared || s->note) || sum_others(u, true, compared));
	if (ok && s->note)
		note_state(u);
	ok = ok && check(u) && read_all(u, "read again", false) && (deep ? deeper(u) : take_writes(u));
	ok &= stop(u);
	if (ok && s->second)
		return once_more(u, u->t);
	if (!ok || !deep)
		return ok;
	return afterwards(u, deep, u->t);
}

bool judge(struct recording *r, const struct stack *s, uint64_t seed, uint64_t kind, unsigned int deep, struct tally *t)
{
	struct run u = { .r = r, .s = s, .t = t, .seed = seed, .kind = kind, .when = "start" };
	bool compared = s->alone && (disks_are_images() || t->states % s->alone_each == 0), ok;

	t->states++;
	*t->second = 0;
	if (compared && !(put_state(&u) ? alone(&u, "without the stack", true) : wrong(&u, "the state cannot be made", 0)))
		return false;
	if (disks_are_images())
		return !s->noted || (sum_others(&u, false, false) && as_noted(&u));
	u.log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (u.log >= 0)
		lseek(u.log, 0, SEEK_END);
	ok = judge_start(&u, compared, deep);
	if (!ok)
		kernel_says(&u);
	if (u.log >= 0)
		close(u.log);
	return ok;
}
