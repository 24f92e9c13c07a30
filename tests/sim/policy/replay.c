// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Replays a block trace through kernel/policy.c: does the policy reach what the design expects of it?
 *
 *	replay [-s PERCENT,...] [-p SMALL_PERCENT] [-g GHOST_PERCENT] [-b] TRACE|-
 *
 * TRACE is text, or zstd if it ends in .zst, a request a line: "op volume start sectors time"; op is R, W or U (not recorded: a
 * read); start and sectors in 512-byte sectors; '#' begins a comment.  -s: cache sizes in percent of the footprint (10); -p:
 * goal of the small queue (10); -g: entries of the ghost in percent of the cache (50, as the design has it); -b: reads later
 * than 4 MiB into a sequential run are not filled.
 *
 * Requests are cut into blocks of 4 KiB.  A hit is a block found cached, read or written.  Writes always enter the cache, reads
 * fill it on a miss. Prints for each size the hit ratio of LRU, of S3-FIFO and of the log cache, with the latter's write
 * amplification: blocks written to the log per block inserted (a fill, a write).  The log cache is segments and queues only;
 * every decision is policy.c's.  Dirty data is written back in no time, so no segment waits.  A segment is 2 MiB, or less where
 * the cache would have fewer than 64.
 */
#include "../../../kernel/policy.c"

#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

#define NONE U32_MAX

static void die(const char *what, const char *name)
{
	fprintf(stderr, "replay: %s: %s\n", name, what);
	exit(1);
}

static void *must(void *p)
{
	if (!p)
		die("no memory", "replay");
	return p;
}

/* ------------------------------------------------------------- the trace: accesses to numbered blocks */
struct access {
	u32 block;
	bool write, bypass;
};

static struct access *access_list;
static u32 accesses, blocks;
static u64 *block_key;				/* of a block: volume << 40 | number */
static u32 *table, table_size;			/* open addressing: key to block */

static u32 table_place(u64 key)
{
	u32 h = (key * 0x9e3779b97f4a7c15ull >> 32) & (table_size - 1);

	while (table[h] != NONE && block_key[table[h]] != key)
		h = (h + 1) & (table_size - 1);
	return h;
}

static u32 block_of(u64 key)
{
	u32 i;

	if (blocks * 2ull >= table_size) {
		table_size = table_size ? table_size * 2 : 1 << 20;
		table = must(realloc(table, table_size * sizeof(*table)));
		block_key = must(realloc(block_key, table_size * sizeof(*block_key)));
		memset(table, 0xff, table_size * sizeof(*table));
		for (i = 0; i < blocks; i++)
			table[table_place(block_key[i])] = i;
	}
	i = table_place(key);
	if (table[i] == NONE) {
		block_key[blocks] = key;
		table[i] = blocks++;
	}
	return table[i];
}

static FILE *open_trace(const char *name, pid_t *child)
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
			die(strerror(errno), name);
		return f;
	}
	if (pipe(fd) || (*child = fork()) < 0)
		die(strerror(errno), name);
	if (!*child) {
		dup2(fd[1], 1);
		close(fd[0]);
		close(fd[1]);
		execlp("zstd", "zstd", "-qdc", "--", name, NULL);
		_exit(127);
	}
	close(fd[1]);
	return must(fdopen(fd[0], "r"));
}

static void load(const char *name)
{
	struct larder_seq *seq[256] = { NULL };
	unsigned long long start, count, line_number = 0;
	char line[256], op;
	unsigned int volume;
	u32 room = 0;
	int status = 0;
	pid_t child;
	FILE *f = open_trace(name, &child);
	u64 b;

	while (fgets(line, sizeof(line), f)) {
		bool sequential;

		line_number++;
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (sscanf(line, "%c %u %llu %llu", &op, &volume, &start, &count) != 4 || !strchr("RWU", op) || volume > 255 ||
		    count > 1 << 22) {
			fprintf(stderr, "replay: %s:%llu: not a request\n", name, line_number);
			exit(1);
		}
		if (!count)
			continue;
		if (!seq[volume])
			seq[volume] = must(larder_seq_create());
		sequential = larder_seq_account(seq[volume], start, count, op == 'W', 0, 0) > 4 << 20;
		for (b = start / 8; b <= (start + count - 1) / 8; b++) {
			if (accesses == room) {
				room = room ? room * 2 : 1 << 20;
				access_list = must(realloc(access_list, room * sizeof(*access_list)));
			}
			access_list[accesses++] = (struct access){
				block_of((u64)volume << 40 | b), op == 'W', sequential && op != 'W'
			};
		}
	}
	fclose(f);
	if (child && (waitpid(child, &status, 0) < 0 || status))
		die("zstd failed", name);
	if (!accesses)
		die("no requests", name);
	for (volume = 0; volume < ARRAY_SIZE(seq); volume++)
		larder_seq_destroy(seq[volume]);
}

/* ------------------------------------------------------------- lists of blocks, for the two to compare with */
struct list {
	u32 head, tail, n;
};

static u32 *list_prev, *list_next;
static u8 *where, *uses;

static void list_push(struct list *l, u32 b)
{
	list_prev[b] = NONE;
	list_next[b] = l->head;
	if (l->head != NONE)
		list_prev[l->head] = b;
	else
		l->tail = b;
	l->head = b;
	l->n++;
}

static void list_del(struct list *l, u32 b)
{
	if (list_prev[b] != NONE)
		list_next[list_prev[b]] = list_next[b];
	else
		l->head = list_next[b];
	if (list_next[b] != NONE)
		list_prev[list_next[b]] = list_prev[b];
	else
		l->tail = list_prev[b];
	l->n--;
}

static u32 list_pop(struct list *l)
{
	u32 b = l->tail;

	if (b != NONE)
		list_del(l, b);
	return b;
}

static void lists_clear(void)
{
	memset(where, 0, blocks);
	memset(uses, 0, blocks);
}

static u64 lru(u32 capacity)
{
	struct list l = { NONE, NONE, 0 };
	u64 hits = 0;
	u32 i, b;

	lists_clear();
	for (i = 0; i < accesses; i++) {
		b = access_list[i].block;
		if (where[b]) {
			hits++;
			list_del(&l, b);
		} else if (l.n == capacity) {
			where[list_pop(&l)] = 0;
		}
		where[b] = 1;
		list_push(&l, b);
	}
	return hits;
}

enum { OUT, SMALL, MAIN, GHOST };

/* One block leaves S3-FIFO's main queue. */
static void s3fifo_evict_main(struct list *main_queue)
{
	u32 v;

	while ((v = list_pop(main_queue)) != NONE) {
		if (!uses[v]) {
			where[v] = OUT;
			return;
		}
		uses[v]--;
		list_push(main_queue, v);
	}
}

static void s3fifo_evict_small(struct list *small, struct list *main_queue, struct list *ghost, u32 main_size)
{
	u32 v = list_pop(small);

	if (uses[v] > 1) {
		uses[v] = 0;
		where[v] = MAIN;
		list_push(main_queue, v);
		if (main_queue->n > main_size)
			s3fifo_evict_main(main_queue);
		return;
	}
	if (ghost->n >= main_size)
		where[list_pop(ghost)] = OUT;
	where[v] = GHOST;
	list_push(ghost, v);
}

static u64 s3fifo(u32 capacity)
{
	struct list small = { NONE, NONE, 0 }, main_queue = small, ghost = small;
	u32 small_size = capacity / 10, main_size = capacity - small_size, i, b;
	u64 hits = 0;

	lists_clear();
	for (i = 0; i < accesses; i++) {
		bool back;

		b = access_list[i].block;
		if (where[b] == SMALL || where[b] == MAIN) {
			hits++;
			uses[b] = min(uses[b] + 1, 3);
			continue;
		}
		back = where[b] == GHOST;
		if (back)
			list_del(&ghost, b);
		where[b] = OUT;
		while (small.n + main_queue.n >= capacity) {
			if (small.n >= small_size)
				s3fifo_evict_small(&small, &main_queue, &ghost, main_size);
			else
				s3fifo_evict_main(&main_queue);
		}
		uses[b] = 0;
		where[b] = back ? MAIN : SMALL;
		list_push(back ? &main_queue : &small, b);
	}
	return hits;
}

/* ------------------------------------------------------------- the log cache */
enum stream { FILL, WRITE, KEEP, STREAMS };

struct segment {
	u32 used, live;		/* slots */
	u64 born;		/* slots written to the log before it */
};

struct queue {			/* of sealed segments, oldest first */
	u32 *segment, n;
};

struct log_cache {
	u32 segment_slots, segments, capacity;
	unsigned int small_percent;
	u32 *slot, *at;		/* slot to block, block to slot */
	struct segment *seg;
	struct queue queue[STREAMS];
	u32 *free, nr_free, open[STREAMS];
	struct larder_heat heat;
	struct larder_ghost *ghost;
	u64 written, inserted, hits;
};

#define RESERVE 3		/* segments kept free: one for each stream */

static void append(struct log_cache *c, enum stream stream, u32 b, unsigned int heat)
{
	struct segment *s = c->open[stream] == NONE ? NULL : &c->seg[c->open[stream]];
	u32 p;

	if (!s || s->used == c->segment_slots) {
		if (s)
			c->queue[stream].segment[c->queue[stream].n++] = c->open[stream];
		c->open[stream] = c->free[--c->nr_free];
		s = &c->seg[c->open[stream]];
		*s = (struct segment){ 0, 0, c->written };
	}
	p = c->open[stream] * c->segment_slots + s->used++;
	c->slot[p] = b;
	c->at[b] = p;
	larder_heat_set(&c->heat, p, 1, heat);
	s->live++;
	c->written++;
}

static u32 queue_take(struct queue *q, u32 i)
{
	u32 v = q->segment[i];

	memmove(&q->segment[i], &q->segment[i + 1], (--q->n - i) * sizeof(v));
	return v;
}

static bool slot_live(const struct log_cache *c, u32 p)
{
	return c->slot[p] != NONE && c->at[c->slot[p]] == p;
}

static void give_back(struct log_cache *c, u32 v)
{
	u32 p;

	for (p = v * c->segment_slots; p < (v + 1) * c->segment_slots; p++)
		c->slot[p] = NONE;
	c->seg[v].used = 0;
	c->seg[v].live = 0;
	c->free[c->nr_free++] = v;
}

/* The emptiest of the segments that go before their turn: what lives in it is appended again, as hot as it is. */
static bool reclaim_dead(struct log_cache *c)
{
	u32 q, i, p, v, best = NONE, best_queue = 0, best_at = 0;

	for (q = 0; q < STREAMS; q++)
		for (i = 0; i < c->queue[q].n; i++) {
			v = c->queue[q].segment[i];
			if (larder_dead_first(c->seg[v].live, c->segment_slots) &&
			    (best == NONE || c->seg[v].live < c->seg[best].live)) {
				best = v;
				best_queue = q;
				best_at = i;
			}
		}
	if (best == NONE)
		return false;
	queue_take(&c->queue[best_queue], best_at);
	for (p = best * c->segment_slots; p < (best + 1) * c->segment_slots; p++)
		if (slot_live(c, p))
			append(c, best_queue == KEEP ? KEEP : FILL, c->slot[p], larder_heat_get(&c->heat, p));
	give_back(c, best);
	return true;
}

/* The oldest segment of the queue that larder_evict_queue() names. */
static u32 reclaim_choose(struct log_cache *c, bool *main)
{
	struct larder_queue_facts f = {
		.small_segments = c->queue[FILL].n + c->queue[WRITE].n,
		.main_segments = c->queue[KEEP].n,
		.total_segments = c->segments,
		.small_percent = c->small_percent,
	};
	struct queue *fill = &c->queue[FILL], *write = &c->queue[WRITE];

	*main = larder_evict_queue(&f) == LARDER_QUEUE_MAIN;
	if (*main)
		return queue_take(&c->queue[KEEP], 0);
	if (!fill->n || (write->n && c->seg[write->segment[0]].born < c->seg[fill->segment[0]].born))
		fill = write;
	return queue_take(fill, 0);
}

static void reclaim_one(struct log_cache *c)
{
	unsigned int after;
	u32 v, first, p, hot = 0, b;
	bool main;

	if (reclaim_dead(c))
		return;
	v = reclaim_choose(c, &main);
	first = v * c->segment_slots;
	for (p = first; p < first + c->segment_slots; p++)
		hot += slot_live(c, p) && larder_keep_worthy(larder_heat_get(&c->heat, p), main, &after);
	if (larder_segment_fate(c->seg[v].live, 0, hot, c->segment_slots, main) == LARDER_FATE_RELINK) {
		for (p = first; p < first + c->segment_slots; p++) {
			larder_keep_worthy(larder_heat_get(&c->heat, p), main, &after);
			larder_heat_set(&c->heat, p, 1, after);
		}
		c->queue[KEEP].segment[c->queue[KEEP].n++] = v;
		return;
	}
	for (p = first; p < first + c->segment_slots; p++) {
		if (!slot_live(c, p))
			continue;
		b = c->slot[p];
		if (larder_keep_worthy(larder_heat_get(&c->heat, p), main, &after)) {
			append(c, KEEP, b, after);
			continue;
		}
		c->at[b] = NONE;
		if (!main)
			larder_ghost_add(c->ghost, block_key[b] >> 40, block_key[b] & ((1ull << 40) - 1));
	}
	give_back(c, v);
}

static void log_access(struct log_cache *c, const struct access *a, bool bypass)
{
	u32 b = a->block, p = c->at[b];
	unsigned int heat = 0;
	bool back;

	if (p != NONE) {
		struct segment *s = &c->seg[p / c->segment_slots];

		c->hits++;
		if (larder_heat_counts(c->written - s->born, c->capacity))
			larder_heat_hit(&c->heat, p, 1);
		if (!a->write)
			return;
		heat = larder_heat_get(&c->heat, p);	/* an overwrite takes its heat along */
		s->live--;
		c->slot[p] = NONE;
		c->at[b] = NONE;
		c->inserted++;
		append(c, WRITE, b, heat);
		return;
	}
	if (bypass && a->bypass)
		return;
	back = larder_ghost_take(c->ghost, block_key[b] >> 40, block_key[b] & ((1ull << 40) - 1));
	c->inserted++;
	if (a->write)
		append(c, WRITE, b, back);
	else
		append(c, back ? KEEP : FILL, b, 0);
}

static void log_replay(struct log_cache *c, u32 capacity, unsigned int ghost_percent, bool bypass)
{
	u32 i, size = 512;

	while (size > 4 && capacity / size < 64)
		size /= 2;
	c->segment_slots = size;
	c->segments = capacity / size;
	c->capacity = c->segments * size;
	c->slot = must(malloc(c->capacity * sizeof(u32)));
	c->at = must(malloc(blocks * sizeof(u32)));
	c->seg = must(calloc(c->segments, sizeof(*c->seg)));
	c->free = must(malloc(c->segments * sizeof(u32)));
	memset(c->slot, 0xff, c->capacity * sizeof(u32));
	memset(c->at, 0xff, blocks * sizeof(u32));
	for (i = 0; i < STREAMS; i++) {
		c->queue[i].segment = must(malloc((c->segments + 1) * sizeof(u32)));
		c->open[i] = NONE;
	}
	for (i = c->segments; i--;)
		c->free[c->nr_free++] = i;
	c->ghost = must(larder_ghost_create((u64)capacity * ghost_percent / 100));
	if (larder_heat_init(&c->heat, c->capacity))
		must(NULL);
	for (i = 0; i < accesses; i++) {
		log_access(c, &access_list[i], bypass);
		while (c->nr_free < RESERVE)
			reclaim_one(c);
	}
	free(c->slot);
	free(c->at);
	free(c->seg);
	free(c->free);
	for (i = 0; i < STREAMS; i++)
		free(c->queue[i].segment);
	larder_heat_free(&c->heat);
	larder_ghost_destroy(c->ghost);
}

int main(int argc, char **argv)
{
	unsigned int small_percent = 10, ghost_percent = 50;
	char ten[] = "10", *sizes = ten, *size;
	bool bypass = false;
	int opt;

	while ((opt = getopt(argc, argv, "s:p:g:b")) != -1) {
		if (opt == 's')
			sizes = optarg;
		else if (opt == 'p')
			small_percent = atoi(optarg);
		else if (opt == 'g')
			ghost_percent = atoi(optarg);
		else if (opt == 'b')
			bypass = true;
		else
			return 2;
	}
	if (optind + 1 != argc) {
		fprintf(stderr, "usage: replay [-s PERCENT,...] [-p SMALL_PERCENT] [-g GHOST_PERCENT] [-b] TRACE|-\n");
		return 2;
	}
	load(argv[optind]);
	list_prev = must(malloc(blocks * sizeof(u32)));
	list_next = must(malloc(blocks * sizeof(u32)));
	where = must(malloc(blocks));
	uses = must(malloc(blocks));
	printf("%u accesses, footprint %.1f MiB\n", accesses, blocks / 256.0);
	printf("cache_%%\tLRU\tS3-FIFO\tlarder\tWA\tssd_per_access\tsegments\n");
	for (size = strtok(sizes, ","); size; size = strtok(NULL, ",")) {
		u32 capacity = blocks * atof(size) / 100;
		struct log_cache c = { .small_percent = small_percent };

		if (capacity < 256) {
			printf("%s\ttoo small\n", size);
			continue;
		}
		log_replay(&c, capacity, ghost_percent, bypass);
		printf("%s\t%.4f\t%.4f\t%.4f\t%.3f\t%.3f\t%u\n", size, (double)lru(capacity) / accesses,
		       (double)s3fifo(capacity) / accesses, (double)c.hits / accesses, (double)c.written / max(c.inserted, 1ull),
		       (double)c.written / accesses, c.segments);
	}
	return 0;
}
