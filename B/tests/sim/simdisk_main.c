// SPDX-License-Identifier: GPL-2.0-only
/*
 * simdisk - RAM-backed disks that take their time, lose their cache when the power fails, and fail on demand.
 *
 * The timing is meant for a guest whose clock is a pure function of the executed instructions (QEMU TCG, -icount
 * shift=0,sleep=off), where a benchmark then measures the same numbers every time, on any host.  With scale=4 and one guest
 * nanosecond per instruction, the guest looks like a 4 GIPS cpu to somebody who divides all measured times by 4.
 *
 * Commands are written to /sys/kernel/debug/simdisk/ctl, one per write(); errors are returned by write().  Sectors are 512 bytes.
 *
 *   add name=ssd0 model=null|sata|nvme|nvmeplp|slow|hdd mb=512|sectors=N [prealloc=1] [crash=1] [PARAMETER=N]...
 *   del name=ssd0 [force=1]            EBUSY if it is open; force: it is pulled out, everything in flight fails
 *   set name=ssd0 PARAMETER=N...       only those that may change in use
 *   powercut all|ssd0,hdd0 [mode=random|lose|keep|torn|prefix] [seed=N] [keep=PERCENT] [after=N [ops=write,flush,...]]
 *   powerup all|ssd0,hdd0
 *   fail name=ssd0 ...                 see simdisk_fault.c
 *   heal name=ssd0                     removes all rules
 *   corrupt name=ssd0 from=S to=S [seed=N]   overwrites stored content, all versions of it
 *   trace size=RECORDS                 0: off; see simdisk_trace.c
 *   record size=BYTES                  0: off; see simdisk_record.c
 *   memory ...                         allocations of a module fail, see simdisk_memory.c
 *   held ...                           what a module has not freed, see simdisk_held.c
 *   save name=ssd0                     disks with crash=0 of up to 4 GiB, not open: keeps the content,
 *   restore name=ssd0                  and brings it back; both cost what was changed in between
 *
 *   simdisk/trace           the ring, see simdisk_trace.c
 *   simdisk/recording       the recording, see simdisk_record.c
 *   simdisk/NAME/stats      a line of key=value; write anything: reset
 *   simdisk/NAME/params     a line of key=value
 *   simdisk/NAME/state      a line of key=value: power, what is volatile, in flight, open
 *   simdisk/NAME/faults     a line per rule
 *
 * Power cut (disks with crash=1; others keep everything that was submitted): every write that is not yet durable survives or not,
 * each 4 KiB page of it on its own.  mode random: each piece with a chance of keep= (50 %); lose: none; keep: all; torn: each
 * 512-byte sector gets the durable or any later version; prefix: everything up to a random point in the order of submission.
 * What is durable: simdisk_store.c.  after=N: the cut happens at the N-th command from now on (of the kinds in ops=) that one of
 * these disks accepts; that command is in flight then.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "compat.h"
#include "simdisk.h"

DEFINE_SPINLOCK(sim_lock);	/* content and power of all disks with crash=1 */
DEFINE_MUTEX(sim_ctl_lock);	/* one control command at a time; the list of disks */
LIST_HEAD(sim_disks);		/* changed under both */

static struct dentry *root, *ctl;
static int major;

const char * const sim_model_name[SIM_NR_MODELS] = { "null", "hdd", "sata", "nvme", "nvmeplp", "slow" };
const char * const sim_op_name[SIM_NR_OPS] = { "read", "write", "flush", "discard", "zeroes" };
static const char * const discard_name[] = { "none", "zero", "leave", "random" };

/* ------------------------------------------------------------------ parameters */

/*
 * What the models stand for; they leave out wear, temperature, a fast cache that fills up, and read retries.
 *   sata     the SSD of the bcache paper page: 3 Gbit/s, 10 channels, 100 MB/s of flash, random writes program twice the bytes
 *   nvme     a consumer's: 2 GB/s, volatile cache, flush 0.5 ms
 *   nvmeplp  a server's: its cache is backed by capacitors, so nothing is lost and a flush costs a command
 *   slow     the cheapest there is: no DRAM, four channels, each random write programs four times its bytes, flush 4 ms
 *   hdd      7,200 rpm, 180 MB/s outside, NCQ, 64 MiB of write cache, look-ahead
 */
#define SIM_ANY .scale = 1, .lbs = 512, .pbs = 4096, .max_kb = 1024, .discard_kb = 262144, .discard_gran = 4096
static const struct sim_params defaults[] = {
	[SIM_NULL] = { SIM_ANY, .qd = 128, .streams = 4 },
	[SIM_SATA] = { SIM_ANY, .qd = 32, .wce = 1, .excl = 1, .cmd_ns = 13000, .bus_mbs = 270,
		.flush_ns = 1000000, .flush_clean_ns = 50000,
		.channels = 10, .read_ns = 37000, .rw_pct = 50, .wlat_ns = 20000,
		.media_mbs = 100, .rnd_pct = 200, .rnd_kb = 64, .wbuf_kb = 256,
		.streams = 4, .fua_ns = 1000000, .discard_ns = 100000 },
	[SIM_NVME] = { SIM_ANY, .qd = 255, .wce = 1, .fua = 1, .cmd_ns = 1000, .bus_mbs = 3200,
		.flush_ns = 500000, .flush_clean_ns = 10000,
		.channels = 64, .read_ns = 77700, .rw_pct = 25, .wlat_ns = 17700,
		.media_mbs = 2000, .rnd_pct = 130, .rnd_kb = 64, .wbuf_kb = 4096,
		.streams = 8, .fua_ns = 400000, .discard_ns = 50000 },
	[SIM_NVMEPLP] = { SIM_ANY, .qd = 255, .wce = 1, .fua = 1, .cmd_ns = 1000, .bus_mbs = 3200,
		.flush_ns = 30000, .flush_clean_ns = 10000, .plp = 1,
		.channels = 64, .read_ns = 77700, .rw_pct = 25, .wlat_ns = 17700,
		.media_mbs = 2000, .rnd_pct = 130, .rnd_kb = 64, .wbuf_kb = 4096,
		.streams = 8, .discard_ns = 50000 },
	[SIM_SLOW] = { SIM_ANY, .qd = 32, .wce = 1, .excl = 1, .cmd_ns = 20000, .bus_mbs = 270,
		.flush_ns = 4000000, .flush_clean_ns = 100000,
		.channels = 4, .read_ns = 110000, .rw_pct = 150, .wlat_ns = 60000,
		.media_mbs = 45, .rnd_pct = 400, .rnd_kb = 64, .wbuf_kb = 64,
		.streams = 2, .fua_ns = 4000000, .discard_ns = 500000 },
	[SIM_HDD] = { SIM_ANY, .qd = 32, .wce = 1, .excl = 1, .cmd_ns = 40000, .bus_mbs = 550,
		.flush_ns = 100000, .flush_clean_ns = 100000,
		.rpm = 7200, .hdd_mbs = 180, .seek_a = 1000000,
		.seek_b = 10000000, .seek_c = 5000000, .wc_kb = 65536,
		.wc_ext = 1024, .wc_idle_ns = 4000000, .starve_ns = 500000000,
		.la_kb = 2048, .wc_scan = 48, .discard_ns = 100000 },
};

static const struct param {
	const char *name;
	size_t offset;
	bool live;		/* may be changed while the disk is in use */
} params[] = {
#define PARAM(n, l) { #n, offsetof(struct sim_params, n), l }
	PARAM(scale, false), PARAM(qd, false), PARAM(lbs, false), PARAM(pbs, false), PARAM(wce, false), PARAM(fua, false),
	PARAM(max_kb, false), PARAM(excl, false), PARAM(cmd_ns, true), PARAM(bus_mbs, true), PARAM(flush_ns, true),
	PARAM(flush_clean_ns, true), PARAM(channels, false), PARAM(read_ns, true), PARAM(rw_pct, true), PARAM(wlat_ns, true),
	PARAM(media_mbs, false), PARAM(rnd_pct, false), PARAM(rnd_kb, false), PARAM(wbuf_kb, false), PARAM(streams, false),
	PARAM(fua_ns, true), PARAM(plp, false), PARAM(rpm, false), PARAM(hdd_mbs, false), PARAM(seek_a, false),
	PARAM(seek_b, false), PARAM(seek_c, false), PARAM(wc_kb, false), PARAM(wc_ext, false), PARAM(wc_idle_ns, true),
	PARAM(starve_ns, true), PARAM(la_kb, false), PARAM(wc_scan, false),
	PARAM(io_min, false), PARAM(io_opt, false), PARAM(virt_boundary, false), PARAM(ro, true), PARAM(discard, false),
	PARAM(discard_kb, false), PARAM(discard_gran, false), PARAM(discard_ns, true), PARAM(write_zeroes, false),
	PARAM(crash, false), PARAM(ignore_flush, true), PARAM(ignore_fua, true), PARAM(jitter_ns, true),
#undef PARAM
};

static u64 *param_value(struct sim_params *p, const struct param *d)
{
	return (u64 *)((char *)p + d->offset);
}

/* -EINVAL: no such parameter, or no number.  -EBUSY: may not change while in use. */
static int set_param(struct sim_params *p, const char *name, const char *value, bool live)
{
	u64 v;
	int i;

	if (!strcmp(name, "discard")) {
		i = match_string(discard_name, ARRAY_SIZE(discard_name), value);
		v = i;
		if (i < 0 && (kstrtou64(value, 0, &v) || v >= ARRAY_SIZE(discard_name)))
			return -EINVAL;
	} else if (kstrtou64(value, 0, &v)) {
		return -EINVAL;
	}
	for (i = 0; i < ARRAY_SIZE(params); i++)
		if (!strcmp(params[i].name, name)) {
			if (live && !params[i].live)
				return -EBUSY;
			*param_value(p, &params[i]) = v;
			return 0;
		}
	return -EINVAL;
}

static bool params_valid(const struct sim_params *p)
{
	return p->scale && p->qd && p->qd <= 10240 && p->channels <= SIM_MAX_CHANNELS && p->streams <= SIM_MAX_STREAMS &&
		is_power_of_2(p->lbs) && p->lbs >= 512 && p->lbs <= PAGE_SIZE && is_power_of_2(p->pbs) && p->pbs >= p->lbs &&
		p->max_kb >= 4 && p->max_kb <= 65536 && p->discard_kb && p->discard_kb <= (1 << 20) &&
		is_power_of_2(p->discard_gran) && p->discard_gran >= p->lbs &&
		(!p->virt_boundary ||
		 (is_power_of_2(p->virt_boundary) && p->virt_boundary >= 512 && p->virt_boundary <= PAGE_SIZE));
}

/* ------------------------------------------------------------------ words */

char *sim_next_word(char **args, char **value)
{
	char *word;

	while ((word = strsep(args, " \t\n"))) {
		if (!*word)
			continue;
		*value = strchr(word, '=');
		if (*value)
			*(*value)++ = 0;
		return word;
	}
	return NULL;
}

u32 sim_parse_ops(char *list)
{
	u32 mask = 0;
	char *op;
	int i;

	if (!strcmp(list, "all"))
		return BIT(SIM_NR_OPS) - 1;
	while ((op = strsep(&list, ","))) {
		i = match_string(sim_op_name, SIM_NR_OPS, op);
		if (i < 0)
			return 0;
		mask |= BIT(i);
	}
	return mask;
}

struct sim_disk *sim_find_disk(const char *name)
{
	struct sim_disk *sd;

	list_for_each_entry(sd, &sim_disks, list)
		if (!strcmp(sd->name, name))
			return sd;
	return NULL;
}

/* The disk of "name=NAME", which must come first. */
static struct sim_disk *named_disk(char **args)
{
	char *word, *value;

	word = sim_next_word(args, &value);
	return word && !strcmp(word, "name") && value ? sim_find_disk(value) : NULL;
}

u64 sim_random(u64 *state)
{
	u64 z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

u64 sim_hash_name(const char *name)
{
	u64 h = 0;

	while (*name) {
		h += (u8)*name++;
		h = sim_random(&h);
	}
	return h;
}

/* ------------------------------------------------------------------ debugfs of a disk */

static int stats_show(struct seq_file *m, void *v)
{
	struct sim_disk *sd = m->private;
	struct sim_stats s;
	u64 busy, wc_bytes;
	u32 inflight, wc_n;

	spin_lock_irq(&sd->lock);
	s = sd->st;
	inflight = sd->inflight;
	wc_n = sd->wc_n;
	wc_bytes = sd->wc_bytes;
	busy = s.busy_ns + (inflight ? sim_now() - sd->busy_since : 0);
	spin_unlock_irq(&sd->lock);
	seq_printf(m, "model=%s scale=%llu reads=%llu writes=%llu rbytes=%llu wbytes=%llu flushes=%llu fua=%llu nonseq=%llu subpage=%llu ",
		   sim_model_name[sd->model], sd->p.scale, s.reads, s.writes, s.rbytes, s.wbytes,
		   s.flushes, s.fua, s.nonseq, s.subpage);
	seq_printf(m, "media_bytes=%llu media_ops=%llu hits=%llu pos_ns=%llu media_ns=%llu busy_ns=%llu maxq=%llu inflight=%u wc_extents=%u wc_bytes=%llu ",
		   s.media_bytes, s.media_ops, s.hits, s.seek_ns, s.media_ns, busy, s.maxq, inflight, wc_n, wc_bytes);
	seq_printf(m, "discards=%llu dbytes=%llu write_zeroes=%llu zbytes=%llu errors=%llu\n",
		   s.discards, s.dbytes, s.write_zeroes, s.zbytes, s.errors);
	return 0;
}

static int stats_open(struct inode *i, struct file *f)
{
	return single_open(f, stats_show, i->i_private);
}

static ssize_t stats_reset(struct file *f, const char __user *b, size_t n, loff_t *o)
{
	struct sim_disk *sd = file_inode(f)->i_private;

	spin_lock_irq(&sd->lock);
	memset(&sd->st, 0, sizeof(sd->st));
	sd->busy_since = sim_now();
	spin_unlock_irq(&sd->lock);
	return n;
}

static const struct file_operations stats_fops = {
	.owner = THIS_MODULE, .open = stats_open, .read = seq_read, .write = stats_reset,
	.llseek = seq_lseek, .release = single_release,
};

static int params_show(struct seq_file *m, void *v)
{
	struct sim_disk *sd = m->private;
	int i;

	seq_printf(m, "model=%s mb=%llu", sim_model_name[sd->model], sd->nsect >> 11);
	for (i = 0; i < ARRAY_SIZE(params); i++)
		if (*param_value(&sd->p, &params[i]))
			seq_printf(m, " %s=%llu", params[i].name, *param_value(&sd->p, &params[i]));
	seq_puts(m, "\n");
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(params);

static int state_show(struct seq_file *m, void *v)
{
	struct sim_disk *sd = m->private;
	u64 pages, pieces;
	u32 cuts;
	bool off, pending;

	spin_lock_irq(&sim_lock);
	pages = sd->store.nr_vpages;
	pieces = sd->store.nr_frags;
	off = sd->off;
	pending = sd->cut_pending;
	cuts = sd->power_gen;
	spin_unlock_irq(&sim_lock);
	seq_printf(m, "power=%s cuts=%u armed=%llu volatile_pages=%llu volatile_pieces=%llu inflight=%u openers=%u\n",
		   pending ? "failing" : off ? "off" : "on", cuts, sim_power_armed(sd), pages, pieces,
		   READ_ONCE(sd->inflight), disk_openers(sd->disk));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(state);

static int faults_show(struct seq_file *m, void *v)
{
	sim_fault_show(m->private, m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(faults);

/* ------------------------------------------------------------------ making and removing a disk */

static void free_disk(struct sim_disk *sd)
{
	sim_fault_clear(sd);
	sim_hdd_free(sd);
	sim_store_free(sd);
	vfree(sd);
}

static int sim_open(SIM_OPEN_ARGS)
{
	struct sim_disk *sd = SIM_OPEN_DISK->private_data;

	return sd->dying ? -ENXIO : 0;
}

static void sim_free_disk(struct gendisk *disk)
{
	free_disk(disk->private_data);
}

static const struct block_device_operations fops = {
	.owner = THIS_MODULE, .open = sim_open, .free_disk = sim_free_disk,
};

/* name=, model=, size and parameters.  -EINVAL, -EEXIST. */
static int parse_disk(struct sim_disk *sd, char *args, bool *prealloc)
{
	u64 mb = 256, sectors = 0, v;
	bool have_model = false;
	char *word, *value;
	int m;

	while ((word = sim_next_word(&args, &value))) {
		if (!value)
			return -EINVAL;
		if (!strcmp(word, "name")) {
			if (strscpy(sd->name, value, sizeof(sd->name)) < 0)
				return -EINVAL;
		} else if (!strcmp(word, "model")) {
			m = match_string(sim_model_name, ARRAY_SIZE(sim_model_name), value);
			if (m < 0)
				return m;
			sd->model = m;
			sd->p = defaults[m];
			have_model = true;
		} else if (!strcmp(word, "mb") || !strcmp(word, "sectors") || !strcmp(word, "prealloc")) {
			if (kstrtou64(value, 0, &v))
				return -EINVAL;
			if (*word == 'm')
				mb = v;
			else if (*word == 's')
				sectors = v;
			else
				*prealloc = v;
		} else {
			m = set_param(&sd->p, word, value, false);
			if (m)
				return m;
		}
	}
	sd->nsect = sectors ? sectors : mb << 11;
	if (!have_model || !sd->name[0] || strchr(sd->name, '/') || !params_valid(&sd->p) ||
	    !sd->nsect || sd->nsect % (sd->p.lbs >> 9) || sd->nsect > (1ull << 41))
		return -EINVAL;
	if (!sd->p.streams)
		sd->p.streams = 4;
	if (sd->model != SIM_NULL && sd->model != SIM_HDD && !sd->p.channels)
		return -EINVAL;
	return sim_find_disk(sd->name) ? -EEXIST : 0;
}

static void init_model(struct sim_disk *sd)
{
	sd->page_ns = sim_xfer_ns(sd, 4096, sd->p.media_mbs);
	sd->buf_ns = sim_xfer_ns(sd, sd->p.wbuf_kb << 10, sd->p.media_mbs);
	sd->rng = sim_hash_name(sd->name);
	spin_lock_init(&sd->lock);
	INIT_LIST_HEAD(&sd->rq);
	INIT_LIST_HEAD(&sd->wwait);
	INIT_LIST_HEAD(&sd->held);
	INIT_LIST_HEAD(&sd->faults);
	timerqueue_init_head(&sd->tq);
	sd->armed = SIM_NEVER;
	sim_hrtimer_setup(&sd->timer, sim_tick);
}

static int alloc_queue(struct sim_disk *sd)
{
	struct sim_limits lim = {
		.lbs = sd->p.lbs, .pbs = sd->p.pbs, .io_min = sd->p.io_min, .io_opt = sd->p.io_opt,
		.virt_boundary = sd->p.virt_boundary, .max_sectors = sd->p.max_kb * 2, .discard_gran = sd->p.discard_gran,
		.discard_bytes = sd->p.discard ? sd->p.discard_kb << 10 : 0,
		.zeroes_bytes = sd->p.write_zeroes ? sd->p.discard_kb << 10 : 0,
		.wce = sd->p.wce, .fua = sd->p.fua, .rotational = sd->model == SIM_HDD,
	};
	int err;

	sd->set.ops = &sim_mq_ops;
	sd->set.nr_hw_queues = 1;
	sd->set.queue_depth = sd->p.qd;
	sd->set.numa_node = NUMA_NO_NODE;
	sd->set.cmd_size = sizeof(struct sim_cmd);
	sd->set.timeout = 600 * HZ;
	sd->set.flags = SIM_MQ_F_MERGE | (sd->model == SIM_HDD ? 0 : BLK_MQ_F_NO_SCHED_BY_DEFAULT);
	err = blk_mq_alloc_tag_set(&sd->set);
	if (err)
		return err;
	sd->disk = sim_alloc_disk(&sd->set, &lim, sd);
	if (IS_ERR(sd->disk)) {
		blk_mq_free_tag_set(&sd->set);
		return PTR_ERR(sd->disk);
	}
	return 0;
}

static int free_minor(void)
{
	struct sim_disk *o;
	int minor = 0;
again:
	list_for_each_entry(o, &sim_disks, list)
		if (o->disk->first_minor == minor) {
			minor++;
			goto again;
		}
	return minor;
}

static int publish(struct sim_disk *sd)
{
	struct gendisk *disk = sd->disk;
	int err;

	disk->major = major;
	disk->first_minor = free_minor();
	disk->minors = 1;
	disk->flags = GENHD_FL_NO_PART;
	disk->fops = &fops;
	disk->private_data = sd;
	strscpy(disk->disk_name, sd->name, DISK_NAME_LEN);
	set_capacity(disk, sd->nsect);
	set_disk_ro(disk, sd->p.ro);
	err = add_disk(disk);
	if (err)
		return err;
	sd->dir = debugfs_create_dir(sd->name, root);
	debugfs_create_file("stats", 0644, sd->dir, sd, &stats_fops);
	debugfs_create_file("params", 0444, sd->dir, sd, &params_fops);
	debugfs_create_file("state", 0444, sd->dir, sd, &state_fops);
	debugfs_create_file("faults", 0444, sd->dir, sd, &faults_fops);
	spin_lock_irq(&sim_lock);
	list_add_tail(&sd->list, &sim_disks);
	spin_unlock_irq(&sim_lock);
	return 0;
}

static int sim_add(char *args)
{
	struct sim_disk *sd = vzalloc(sizeof(*sd));
	bool prealloc = false;
	int err;

	if (!sd)
		return -ENOMEM;
	init_model(sd);
	err = parse_disk(sd, args, &prealloc);
	if (err)
		goto out;
	init_model(sd);		/* again: parameters and name are known now */
	err = sim_store_init(sd, prealloc);
	if (err)
		goto out;
	if (sd->model == SIM_HDD) {
		err = sim_hdd_init(sd);
		if (err)
			goto out;
	}
	err = alloc_queue(sd);
	if (err)
		goto out;
	err = publish(sd);
	if (err)
		goto out_disk;
	return 0;
out_disk:
	put_disk(sd->disk);	/* not added: does not call sim_free_disk() */
	blk_mq_free_tag_set(&sd->set);
out:
	free_disk(sd);
	return err;
}

/* sim_ctl_lock.  Whoever still has it open gets errors; the memory goes with the last of them. */
static void remove_disk(struct sim_disk *sd)
{
	debugfs_remove_recursive(sd->dir);
	sim_power_detach(sd);
	spin_lock_irq(&sim_lock);
	list_del(&sd->list);
	spin_unlock_irq(&sim_lock);
	del_gendisk(sd->disk);
	hrtimer_cancel(&sd->timer);
	blk_mq_free_tag_set(&sd->set);
	put_disk(sd->disk);
}

static int sim_del(char *args)
{
	struct sim_disk *sd = named_disk(&args);
	char *word, *value;
	bool force = false, busy;

	if (!sd)
		return -ENOENT;
	while ((word = sim_next_word(&args, &value)))
		if (strcmp(word, "force") || !value || kstrtobool(value, &force))
			return -EINVAL;
	mutex_lock(&sd->disk->open_mutex);
	busy = disk_openers(sd->disk) && !force;
	sd->dying = !busy;
	mutex_unlock(&sd->disk->open_mutex);
	if (busy)
		return -EBUSY;
	remove_disk(sd);
	return 0;
}

/* ------------------------------------------------------------------ ctl */

static int sim_set(char *args)
{
	struct sim_disk *sd = named_disk(&args);
	struct sim_params p;
	char *word, *value;
	int err;

	if (!sd)
		return -ENOENT;
	p = sd->p;
	while ((word = sim_next_word(&args, &value))) {
		if (!value)
			return -EINVAL;
		err = set_param(&p, word, value, true);
		if (err)
			return err;
	}
	spin_lock_irq(&sd->lock);
	sd->p = p;
	spin_unlock_irq(&sd->lock);
	set_disk_ro(sd->disk, p.ro);
	return 0;
}

static int sim_fail(char *args)
{
	struct sim_disk *sd = named_disk(&args);

	return sd ? sim_fault_add(sd, args) : -ENOENT;
}

static int sim_heal(char *args)
{
	struct sim_disk *sd = named_disk(&args);

	if (!sd)
		return -ENOENT;
	sim_fault_clear(sd);
	return 0;
}

static int sim_corrupt(char *args)
{
	struct sim_disk *sd = named_disk(&args);
	u64 from = 0, to = 0, seed = 1, v;
	char *word, *value;

	if (!sd)
		return -ENOENT;
	while ((word = sim_next_word(&args, &value))) {
		if (!value || kstrtou64(value, 0, &v))
			return -EINVAL;
		if (!strcmp(word, "from"))
			from = v;
		else if (!strcmp(word, "to"))
			to = v;
		else if (!strcmp(word, "seed"))
			seed = v;
		else
			return -EINVAL;
	}
	if (from >= to || to > sd->nsect)
		return -ERANGE;
	return sim_store_damage(sd, from, to, seed);
}

/* False: somebody has it open, and may read what changes. */
static bool may_change(struct sim_disk *sd)
{
	return !disk_openers(sd->disk) && !sd->p.crash && sd->store.flat;
}

static int sim_save(char *args)
{
	struct sim_disk *sd = named_disk(&args);

	if (!sd)
		return -ENOENT;
	return may_change(sd) ? sim_store_save(sd) : -EBUSY;
}

static int sim_restore(char *args)
{
	struct sim_disk *sd = named_disk(&args);

	if (!sd)
		return -ENOENT;
	return may_change(sd) ? sim_store_restore(sd) : -EBUSY;
}

static const struct {
	const char *name;
	int (*fn)(char *args);
} verbs[] = {
	{ "add", sim_add }, { "del", sim_del }, { "set", sim_set }, { "powercut", sim_power_cut }, { "powerup", sim_power_up },
	{ "fail", sim_fail }, { "heal", sim_heal }, { "corrupt", sim_corrupt }, { "trace", sim_trace_set },
	{ "record", sim_record_set }, { "save", sim_save }, { "restore", sim_restore }, { "memory", sim_memory_set },
	{ "held", sim_held_set },
};

static ssize_t ctl_write(struct file *f, const char __user *b, size_t n, loff_t *o)
{
	char *buf, *args, *verb, *value;
	int err = -EINVAL, i;

	if (n > 4000)
		return -EINVAL;
	buf = memdup_user_nul(b, n);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	args = buf;
	verb = sim_next_word(&args, &value);
	mutex_lock(&sim_ctl_lock);
	for (i = 0; verb && !value && i < ARRAY_SIZE(verbs); i++)
		if (!strcmp(verb, verbs[i].name))
			err = verbs[i].fn(args);
	mutex_unlock(&sim_ctl_lock);
	kfree(buf);
	return err ? err : n;
}

static const struct file_operations ctl_fops = { .owner = THIS_MODULE, .write = ctl_write };

static int __init simdisk_init(void)
{
	major = register_blkdev(0, "simdisk");
	if (major < 0)
		return major;
	root = debugfs_create_dir("simdisk", NULL);
	ctl = debugfs_create_file("ctl", 0200, root, NULL, &ctl_fops);
	sim_trace_init(root);
	sim_record_init(root);
	sim_memory_init(root);
	sim_held_init(root);
	return 0;
}

static void __exit simdisk_exit(void)
{
	debugfs_remove(ctl);
	mutex_lock(&sim_ctl_lock);
	while (!list_empty(&sim_disks))
		remove_disk(list_first_entry(&sim_disks, struct sim_disk, list));
	mutex_unlock(&sim_ctl_lock);
	debugfs_remove_recursive(root);
	sim_memory_exit();
	sim_held_exit();
	sim_power_exit();
	sim_trace_exit();
	sim_record_exit();
	unregister_blkdev(major, "simdisk");
}

module_init(simdisk_init);
module_exit(simdisk_exit);
MODULE_DESCRIPTION("RAM-backed disks with service times, power cuts and faults");
MODULE_LICENSE("GPL");
