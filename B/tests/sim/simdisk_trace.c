// SPDX-License-Identifier: GPL-2.0-only
/*
 * A ring of what the disks were told, one sequence over all of them: debugfs simdisk/trace, a line per event.
 *
 *   SEQ TIME_NS S DISK ID OP SECTOR SECTORS FLAGS     a command was accepted (in this order)
 *   SEQ TIME_NS C DISK ID STATUS                      it has ended: 0 or a negative errno
 *   SEQ TIME_NS E DISK WHAT                           powercut, powerup
 *
 * OP: read write flush discard zeroes.  FLAGS: "-" or a list: fua,sync,meta,prio,rahead,nowait,background,idle.  ID: of the
 * command, unique. The first line is "# size=RECORDS lost=N": N records were overwritten.  Off (size=0) unless "trace size=N" was
 * written to ctl; writing anything to the file clears it.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/vmalloc.h>
#include "simdisk.h"

#define TRACE_MAX	(4u << 20)	/* records */

struct record {
	u64 seq, time, id, sector;
	u32 sectors;
	blk_opf_t flags;
	char disk[SIM_NAME_LEN];
	char what[12];			/* event E */
	int error;
	u8 op;
	char event;
};

static DEFINE_SPINLOCK(trace_lock);	/* all below */
static struct record *ring;
static u32 ring_size;
static u64 ring_first, ring_next;	/* sequence numbers [first, next) are in the ring */
static u64 ring_cleared;		/* first one after the last clearing */

static const struct { blk_opf_t flag; const char *name; } flag_name[] = {
	{ REQ_FUA, "fua" }, { REQ_SYNC, "sync" }, { REQ_META, "meta" }, { REQ_PRIO, "prio" }, { REQ_RAHEAD, "rahead" },
	{ REQ_NOWAIT, "nowait" }, { REQ_BACKGROUND, "background" }, { REQ_IDLE, "idle" },
};

static void append(struct record *r)
{
	unsigned long flags;

	spin_lock_irqsave(&trace_lock, flags);
	if (ring) {
		r->seq = ring_next++;
		r->time = sim_now();
		if (ring_next - ring_first > ring_size)
			ring_first = ring_next - ring_size;
		ring[r->seq % ring_size] = *r;
	}
	spin_unlock_irqrestore(&trace_lock, flags);
}

void sim_trace_submit(struct sim_disk *sd, struct request *rq, struct sim_cmd *c)
{
	struct record r = { .event = 'S', .id = c->id, .op = c->op, .sector = c->s, .sectors = c->e - c->s };

	if (!READ_ONCE(ring))
		return;
	r.flags = rq->cmd_flags;
	memcpy(r.disk, sd->name, sizeof(r.disk));
	append(&r);
}

void sim_trace_complete(struct sim_disk *sd, struct sim_cmd *c, blk_status_t status)
{
	struct record r = { .event = 'C', .id = c->id, .error = blk_status_to_errno(status) };

	if (!READ_ONCE(ring))
		return;
	memcpy(r.disk, sd->name, sizeof(r.disk));
	append(&r);
}

void sim_trace_event(const char *name, const char *what)
{
	struct record r = { .event = 'E' };

	if (!READ_ONCE(ring))
		return;
	strscpy(r.disk, name, sizeof(r.disk));
	strscpy(r.what, what, sizeof(r.what));
	append(&r);
}

/* "size=N": N records, 0: off.  Clears the ring.  Sleeps, under sim_ctl_lock. */
int sim_trace_set(char *args)
{
	struct record *fresh = NULL, *old;
	char *word, *value;
	u32 size = 0;

	word = sim_next_word(&args, &value);
	if (!word || strcmp(word, "size") || !value || kstrtou32(value, 0, &size) || size > TRACE_MAX)
		return -EINVAL;
	if (size) {
		fresh = vzalloc(array_size(size, sizeof(*fresh)));
		if (!fresh)
			return -ENOMEM;
	}
	spin_lock_irq(&trace_lock);
	old = ring;
	WRITE_ONCE(ring, fresh);
	ring_size = size;
	ring_first = ring_cleared = ring_next;
	spin_unlock_irq(&trace_lock);
	vfree(old);
	return 0;
}

/* ------------------------------------------------------------------ debugfs: position 0 is the head line, n + 1 the n-th record */

struct reader {
	u64 base;		/* ring_first when the file was read from its start */
	u64 end, lost;
	struct record now;
	bool head;
};

static bool fetch(struct reader *rd, u64 seq)
{
	bool ok;

	spin_lock_irq(&trace_lock);
	ok = ring && seq >= ring_first && seq < ring_next;
	if (ok)
		rd->now = ring[seq % ring_size];
	spin_unlock_irq(&trace_lock);
	return ok;
}

static void *trace_seek(struct seq_file *m, loff_t *pos)
{
	struct reader *rd = m->private;

	rd->head = !*pos;
	if (rd->head) {
		spin_lock_irq(&trace_lock);
		rd->base = ring_first;
		rd->end = ring_next;
		rd->lost = ring_first - ring_cleared;
		spin_unlock_irq(&trace_lock);
		return rd;
	}
	while (rd->base + *pos - 1 < rd->end) {
		if (fetch(rd, rd->base + *pos - 1))
			return rd;
		++*pos;		/* overwritten meanwhile */
	}
	return NULL;
}

static void *trace_next(struct seq_file *m, void *v, loff_t *pos)
{
	++*pos;
	return trace_seek(m, pos);
}

static void trace_stop(struct seq_file *m, void *v)
{
}

static int trace_show(struct seq_file *m, void *v)
{
	struct reader *rd = v;
	struct record *r = &rd->now;
	const char *sep = "";
	u32 i;

	if (rd->head) {
		seq_printf(m, "# size=%u lost=%llu\n", ring_size, rd->lost);
		return 0;
	}
	seq_printf(m, "%llu %llu %c %s", r->seq, r->time, r->event, r->disk);
	if (r->event == 'C') {
		seq_printf(m, " %llu %d\n", r->id, r->error);
		return 0;
	}
	if (r->event == 'E') {
		seq_printf(m, " %s\n", r->what);
		return 0;
	}
	seq_printf(m, " %llu %s %llu %u ", r->id, sim_op_name[r->op], r->sector, r->sectors);
	for (i = 0; i < ARRAY_SIZE(flag_name); i++)
		if (r->flags & flag_name[i].flag) {
			seq_printf(m, "%s%s", sep, flag_name[i].name);
			sep = ",";
		}
	seq_puts(m, *sep ? "\n" : "-\n");
	return 0;
}

static const struct seq_operations trace_seq = {
	.start = trace_seek, .next = trace_next, .stop = trace_stop, .show = trace_show,
};

static int trace_open(struct inode *inode, struct file *f)
{
	return seq_open_private(f, &trace_seq, sizeof(struct reader));
}

static ssize_t trace_clear(struct file *f, const char __user *b, size_t n, loff_t *o)
{
	spin_lock_irq(&trace_lock);
	ring_first = ring_cleared = ring_next;
	spin_unlock_irq(&trace_lock);
	return n;
}

static const struct file_operations trace_fops = {
	.owner = THIS_MODULE, .open = trace_open, .read = seq_read, .write = trace_clear,
	.llseek = seq_lseek, .release = seq_release_private,
};

void sim_trace_init(struct dentry *root)
{
	debugfs_create_file("trace", 0644, root, NULL, &trace_fops);
}

void sim_trace_exit(void)
{
	vfree(ring);
}
