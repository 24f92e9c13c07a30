// SPDX-License-Identifier: GPL-2.0-only
/*
 * A recording: everything that the disks were told to change, content included, and what completed, in one order over all of them.
 * From it a program builds the states that a power cut may leave (tests/crash).
 *
 *   record size=BYTES     to ctl: begins one, in so much memory; 0: off
 *   simdisk/recording     read: the entries since then (EOVERFLOW: they did not fit); write: adds the bytes as a mark
 *
 * An entry is a struct sim_record_entry, then, for a write and a mark, the bytes, padded to 8.
 *
 * Order.  A submission is recorded when the disk has accepted it, before it may complete; a completion before whoever waits is
 * told.  So whatever is submitted, or marked, because of a completion stands behind it.
 */
#include <linux/debugfs.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "simdisk.h"

#define RECORD_MAX	(1ull << 30)
#define MARK_MAX	(64u << 10)

enum sim_record_type { SIM_RECORD_SUBMIT = 'S', SIM_RECORD_COMPLETE = 'C', SIM_RECORD_MARK = 'M' };

struct sim_record_entry {
	u32 size;		/* of all of it, a multiple of 8 */
	u8 type;		/* enum sim_record_type */
	u8 op;			/* enum sim_op; S */
	u8 fua;			/* S */
	u8 pad;
	u64 id;			/* of the command; M: process that wrote it */
	u64 sector;		/* S */
	u32 sectors;		/* S; M: bytes */
	s32 error;		/* C: 0 or negative errno */
	char disk[SIM_NAME_LEN];
};

static DEFINE_SPINLOCK(record_lock);	/* all below; irqs off */
static u8 *arena;			/* changed under sim_ctl_lock too */
static u64 arena_size, arena_used;
static bool arena_full;

/* record_lock.  Room for an entry with so many bytes behind it, or NULL. */
static struct sim_record_entry *append(u8 type, u64 bytes)
{
	u64 size = sizeof(struct sim_record_entry) + ALIGN(bytes, 8);
	struct sim_record_entry *e;

	if (!arena || arena_full)
		return NULL;
	if (arena_size - arena_used < size) {
		arena_full = true;
		return NULL;
	}
	e = (struct sim_record_entry *)(arena + arena_used);
	memset(e, 0, size);
	e->size = size;
	e->type = type;
	arena_used += size;
	return e;
}

static void copy_data(struct request *rq, u8 *to)
{
	struct req_iterator it;
	struct bio_vec bv;

	rq_for_each_segment(bv, rq, it) {
		u8 *mem = bvec_kmap_local(&bv);

		memcpy(to, mem, bv.bv_len);
		kunmap_local(mem);
		to += bv.bv_len;
	}
}

void sim_record_submit(struct sim_disk *sd, struct request *rq, struct sim_cmd *c)
{
	struct sim_record_entry *e;
	unsigned long flags;

	if (!READ_ONCE(arena) || c->op == SIM_READ)
		return;
	spin_lock_irqsave(&record_lock, flags);
	e = append(SIM_RECORD_SUBMIT, c->write ? (c->e - c->s) << 9 : 0);
	if (e) {
		e->op = c->op;
		e->fua = c->fua;
		e->id = c->id;
		e->sector = c->s;
		e->sectors = c->e - c->s;
		memcpy(e->disk, sd->name, sizeof(e->disk));
		if (c->write)
			copy_data(rq, (u8 *)(e + 1));
	}
	spin_unlock_irqrestore(&record_lock, flags);
}

void sim_record_complete(struct sim_disk *sd, struct sim_cmd *c, blk_status_t status)
{
	struct sim_record_entry *e;
	unsigned long flags;

	if (!READ_ONCE(arena) || c->op == SIM_READ)
		return;
	spin_lock_irqsave(&record_lock, flags);
	e = append(SIM_RECORD_COMPLETE, 0);
	if (e) {
		e->id = c->id;
		e->error = blk_status_to_errno(status);
		memcpy(e->disk, sd->name, sizeof(e->disk));
	}
	spin_unlock_irqrestore(&record_lock, flags);
}

int sim_record_set(char *args)
{
	u8 *fresh = NULL, *old;
	char *word, *value;
	u64 size = 0;

	word = sim_next_word(&args, &value);
	if (!word || strcmp(word, "size") || !value || kstrtou64(value, 0, &size) || size > RECORD_MAX)
		return -EINVAL;
	if (size && size == arena_size) {
		fresh = arena;
	} else if (size) {
		fresh = vmalloc(size);
		if (!fresh)
			return -ENOMEM;
	}
	spin_lock_irq(&record_lock);
	old = arena;
	WRITE_ONCE(arena, fresh);
	arena_size = size;
	arena_used = 0;
	arena_full = false;
	spin_unlock_irq(&record_lock);
	if (old != fresh)
		vfree(old);
	return 0;
}

static ssize_t recording_read(struct file *f, char __user *b, size_t n, loff_t *pos)
{
	u64 used;
	bool full;
	ssize_t ret;

	mutex_lock(&sim_ctl_lock);
	spin_lock_irq(&record_lock);
	used = arena_used;
	full = arena_full;
	spin_unlock_irq(&record_lock);
	ret = full ? -EOVERFLOW : simple_read_from_buffer(b, n, pos, arena, used);
	mutex_unlock(&sim_ctl_lock);
	return ret;
}

static ssize_t recording_write(struct file *f, const char __user *b, size_t n, loff_t *pos)
{
	struct sim_record_entry *e;
	void *bytes;

	if (n > MARK_MAX)
		return -EINVAL;
	bytes = memdup_user(b, n);
	if (IS_ERR(bytes))
		return PTR_ERR(bytes);
	spin_lock_irq(&record_lock);
	e = append(SIM_RECORD_MARK, n);
	if (e) {
		e->id = task_tgid_nr(current);
		e->sectors = n;
		memcpy(e + 1, bytes, n);
	}
	spin_unlock_irq(&record_lock);
	kfree(bytes);
	return n;
}

static const struct file_operations recording_fops = {
	.owner = THIS_MODULE, .read = recording_read, .write = recording_write, .llseek = default_llseek,
};

void sim_record_init(struct dentry *root)
{
	debugfs_create_file("recording", 0600, root, NULL, &recording_fops);
}

void sim_record_exit(void)
{
	vfree(arena);
}
