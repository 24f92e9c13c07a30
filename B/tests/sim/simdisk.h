/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * simdisk: simulated disks.  Structures, and which file owns what:
 *
 *   simdisk_main.c   control file, making and removing disks, debugfs
 *   simdisk_queue.c  blk-mq: a request comes in, becomes a command, is completed
 *   simdisk_store.c  content: current pages, and what is not yet on the medium
 *   simdisk_power.c  power cuts over several disks at one instant, and power-up
 *   simdisk_ssd.c    service times of an SSD
 *   simdisk_hdd.c    service times of a hard disk
 *   simdisk_fault.c  injected errors, delays and lies
 *   simdisk_trace.c  ring of commands, one sequence over all disks
 *   simdisk_record.c all that was written and completed, in one order over all disks
 *
 * Life of a command: fault rules -> power is on? content is copied (both under sim_lock) -> the timing model promises an end ->
 * hrtimer -> sim_store_complete() (under sim_lock: durable now, or volatile from now on) -> the request ends.
 *
 * Locks, never nested but for trace_lock, record_lock and saved_lock, which are innermost: sim_ctl_lock (mutex: list of disks,
 * control commands); sim_lock (content and power of ALL disks with crash=1: a cut is one instant for all of them);
 * sim_disk.lock (timing model, statistics, fault rules of one disk); trace_lock; record_lock; sim_store.saved_lock.
 * All but sim_ctl_lock are taken with interrupts off: commands end in an hrtimer.
 */
#ifndef SIMDISK_H
#define SIMDISK_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#define SIM_NEVER	U64_MAX
#define SIM_MAX_CHANNELS	256
#define SIM_MAX_STREAMS	16
#define SIM_PG_SECT	8		/* sectors of a 4 KiB page */
#define SIM_NAME_LEN	16
#define SIM_FLAT_SECTORS	(8ull << 20)	/* up to 4 GiB: a flat table of pages even without prealloc=1 */

enum sim_model { SIM_NULL, SIM_HDD, SIM_SATA, SIM_NVME, SIM_NVMEPLP, SIM_SLOW, SIM_NR_MODELS };
extern const char * const sim_model_name[];
extern const char * const sim_op_name[];

enum sim_op { SIM_READ, SIM_WRITE, SIM_FLUSH, SIM_DISCARD, SIM_ZEROES, SIM_NR_OPS };

enum sim_discard { SIM_DISCARD_NONE, SIM_DISCARD_ZERO, SIM_DISCARD_LEAVE, SIM_DISCARD_RANDOM };

/* All times in ns (those of the timing model before scaling), all rates in bytes per microsecond = MB/s. */
struct sim_params {
	u64 scale;		/* every time of the timing model is multiplied by this */
	u64 qd;			/* commands the disk takes at once */
	u64 lbs, pbs;		/* logical, physical block size, bytes */
	u64 wce;		/* there is a volatile write cache */
	u64 fua;		/* FUA is supported */
	u64 max_kb;		/* largest command, KiB */
	u64 excl;		/* a flush is a non-queued command */
	u64 cmd_ns, bus_mbs;
	u64 flush_ns, flush_clean_ns;
	/* SSD */
	u64 channels, read_ns, rw_pct, wlat_ns, media_mbs, rnd_pct, rnd_kb, wbuf_kb, streams, fua_ns;
	u64 plp;		/* power-loss protection: what was acknowledged is durable */
	/* HDD */
	u64 rpm, hdd_mbs, seek_a, seek_b, seek_c, wc_kb, wc_ext, wc_idle_ns, starve_ns, la_kb, wc_scan;
	/* queue limits */
	u64 io_min, io_opt;	/* bytes */
	u64 virt_boundary;	/* bytes, 0: none.  Vectors meet there, as NVMe's pages; a command with others fails, with a WARN */
	u64 ro;
	u64 discard;		/* enum sim_discard */
	u64 discard_kb, discard_gran;	/* largest discard or write-zeroes, KiB; granularity, bytes */
	u64 discard_ns;		/* time of a discard or write-zeroes */
	u64 write_zeroes;	/* supported */
	/* crash model */
	u64 crash;		/* keeps the durable content and every volatile version */
	u64 ignore_flush, ignore_fua;	/* the disk lies: acknowledges, secures nothing */
	u64 jitter_ns;		/* each command takes up to this longer, at random: completions change order.  Unscaled. */
};

struct sim_disk;
struct sim_frag;

/* A command: the pdu of a request. */
struct sim_cmd {
	struct timerqueue_node tq;	/* expires = completion time */
	struct list_head list;
	u64 arrive, s, e;		/* sectors [s, e); flush: 0, 0 */
	u64 extra_ns;			/* injected delay and jitter */
	u64 id;				/* in the trace */
	u64 flush_mark;			/* flush: the completions before its issue, see sim_store_submit() */
	struct sim_frag *frags;		/* volatile pieces that this command, in flight, has made */
	enum sim_op op;
	blk_status_t status;		/* injected */
	u32 power_gen;			/* power cuts of the disk when it was accepted */
	bool write, flush;		/* for the timing model */
	bool fua;
	bool fast;			/* moves no data: discard, write-zeroes */
	bool lose, corrupt;		/* injected: acknowledges but stores nothing; reads wrong data */
	bool keep;			/* injected error, but the data is stored */
	bool reset;			/* injected error, and what is volatile is lost */
};

struct sim_stats {
	u64 reads, writes, rbytes, wbytes, flushes, fua, nonseq, subpage;
	u64 discards, dbytes, write_zeroes, zbytes, errors;
	u64 media_bytes;		/* SSD: flash programmed, incl. the random penalty */
	u64 media_ops, hits, seek_ns, media_ns, busy_ns, maxq;
};

struct sim_stream { u64 endp, end_s, flushgen, used; u32 map; };	/* map: of the pages behind endp */

/* Pages without content are holes and read as zeroes. */
struct sim_store {
	struct page **flat;		/* or NULL: tree */
	struct xarray tree;
	struct xarray vol;		/* struct sim_vpage by page number: pages that have volatile pieces.  sim_lock */
	struct list_head complete;	/* volatile pieces of completed commands, by done.  sim_lock */
	u64 nr_done;			/* completed commands.  sim_lock */
	u64 nr_vpages, nr_frags;	/* sim_lock */
	/* what "save" kept: the page that a changed one replaces (NULL: a hole), and which are changed; NULL: nothing was saved */
	spinlock_t saved_lock;
	struct page **saved;
	unsigned long *changed;
};

struct sim_disk {
	struct list_head list;		/* sim_ctl_lock */
	char name[SIM_NAME_LEN];
	enum sim_model model;
	struct sim_params p;
	struct blk_mq_tag_set set;
	struct gendisk *disk;
	struct dentry *dir;
	u64 nsect;
	bool dying;			/* under disk->open_mutex: no more openers */

	struct sim_store store;
	bool off;			/* no power.  sim_lock for crash=1, else by READ_ONCE */
	u32 power_gen;			/* as off */
	bool cut_armed;			/* takes part in the armed cut.  sim_lock */
	bool cut_pending;		/* off, but the content is not settled yet.  sim_lock */

	spinlock_t lock;		/* all below */
	struct hrtimer timer;
	struct timerqueue_head tq;
	u64 armed;
	u32 inflight;
	u64 busy_since;
	u64 rng;
	struct sim_stats st;
	struct list_head faults;

	u64 ctrl_free, last_done;	/* command/bus stage; last promised completion */
	/* SSD */
	u64 ch_free[SIM_MAX_CHANNELS], media_free, page_ns, buf_ns, flushgen, clock;
	bool dirty;
	struct sim_stream str[SIM_MAX_STREAMS];
	/* HDD */
	struct list_head rq, wwait, held;	/* media reads; writes without room; behind a flush */
	struct sim_cmd *flush;
	struct rb_root wc;
	u32 wc_n;
	u64 wc_bytes;
	u64 *seek_tab, ntracks, spt, rev_ns, sec_num, sec_den;	/* ns of n sectors = n * num / den */
	u32 seek_shift;			/* seek_tab[distance in tracks >> seek_shift] */
	u64 head, media_busy, media_start, last_read;
	u64 cur_s, cur_e;
	struct sim_cmd *cur;		/* NULL while busy: draining the write cache */
	bool la_live, last_was_wc;
	u64 la_s, la_e, la_t, la_max;
};

extern spinlock_t sim_lock;
extern struct mutex sim_ctl_lock;
extern struct list_head sim_disks;

/* ------------------------------------------------------------------ control: words of a command line */

/* Splits *args at the next "key=value" (value NULL: a bare word).  NULL: none left.  Changes the string. */
char *sim_next_word(char **args, char **value);
/* A list of operations, "write,flush" or "all", as a mask of 1 << enum sim_op.  0: not understood.  Changes the string. */
u32 sim_parse_ops(char *list);
/* Under sim_ctl_lock.  NULL: no such disk. */
struct sim_disk *sim_find_disk(const char *name);
/* Pure: splitmix64, advances *state. */
u64 sim_random(u64 *state);
u64 sim_hash_name(const char *name);

/* ------------------------------------------------------------------ simdisk_queue.c */

extern const struct blk_mq_ops sim_mq_ops;
enum hrtimer_restart sim_tick(struct hrtimer *h);
u64 sim_now(void);
u64 sim_xfer_ns(struct sim_disk *sd, u64 bytes, u64 mbs);
/* Under sd->lock: c ends at t (ns). */
void sim_promise(struct sim_disk *sd, struct sim_cmd *c, u64 t);
/* Any context but sd->lock: ends every command in flight with an error; the timing model starts afresh. */
void sim_abort_all(struct sim_disk *sd);

/* ------------------------------------------------------------------ timing models; all under sd->lock */

void sim_ssd_submit(struct sim_disk *sd, struct sim_cmd *c, u64 now);
void sim_account_write(struct sim_disk *sd, struct sim_cmd *c);
void sim_ssd_reset(struct sim_disk *sd);
int sim_hdd_init(struct sim_disk *sd);		/* sleeps, not under the lock */
void sim_hdd_free(struct sim_disk *sd);
void sim_hdd_submit(struct sim_disk *sd, struct sim_cmd *c, u64 now);
void sim_hdd_advance(struct sim_disk *sd, u64 now);
u64 sim_hdd_next(struct sim_disk *sd, u64 now);
/* Moves every command the model holds (not those promised) to the list, and forgets the rest. */
void sim_hdd_reset(struct sim_disk *sd, struct list_head *cmds);

/* ------------------------------------------------------------------ simdisk_store.c */

enum sim_cut_mode { SIM_CUT_RANDOM, SIM_CUT_LOSE, SIM_CUT_KEEP, SIM_CUT_TORN, SIM_CUT_PREFIX };

int sim_store_init(struct sim_disk *sd, bool prealloc);		/* sleeps */
void sim_store_free(struct sim_disk *sd);			/* sleeps; nothing in flight */
/* queue_rq context.  Copies data, records volatile pieces.  BLK_STS_RESOURCE: no memory, nothing done; BLK_STS_IOERR: no power. */
blk_status_t sim_store_submit(struct sim_disk *sd, struct request *rq, struct sim_cmd *c);
/* Any context.  The command ends with 'status'; returns the status the request has to end with. */
blk_status_t sim_store_complete(struct sim_disk *sd, struct sim_cmd *c, blk_status_t status);
/* Sleeps; power off and nothing in flight: decides what survives.  percent: chance of a piece to survive (random, torn). */
void sim_store_settle(struct sim_disk *sd, enum sim_cut_mode mode, u64 seed, u32 percent);
/* Sleeps.  Changes stored bytes of sectors [from, to), every version of them.  Holes become bad pages too. */
int sim_store_damage(struct sim_disk *sd, u64 from, u64 to, u64 seed);
/* Sleep; nobody has the disk open, crash=0, a flat table.  The content as it is now is what restore brings back. */
int sim_store_save(struct sim_disk *sd);
int sim_store_restore(struct sim_disk *sd);

/* ------------------------------------------------------------------ simdisk_power.c: under sim_ctl_lock, sleep */

int sim_power_cut(char *args);		/* "all|NAME[,NAME...] [mode=] [seed=] [keep=] [after=] [ops=]" */
int sim_power_up(char *args);		/* "all|NAME[,NAME...]" */
/* Under sim_lock, for each command accepted: counts an armed cut down.  True: the power has just gone off. */
bool sim_power_tick(struct sim_disk *sd, enum sim_op op);
/* Power off for good, before removal: everything in flight fails. */
void sim_power_detach(struct sim_disk *sd);
/* Commands left until the armed cut; 0: none armed for this disk. */
u64 sim_power_armed(struct sim_disk *sd);
void sim_power_exit(void);

/* ------------------------------------------------------------------ simdisk_fault.c */

int sim_fault_add(struct sim_disk *sd, char *args);	/* sleeps */
void sim_fault_clear(struct sim_disk *sd);		/* sleeps */
void sim_fault_match(struct sim_disk *sd, struct sim_cmd *c);	/* under sd->lock: fills c's injected fields */
struct seq_file;
void sim_fault_show(struct sim_disk *sd, struct seq_file *m);

/* ------------------------------------------------------------------ simdisk_trace.c */

void sim_trace_init(struct dentry *root);
void sim_trace_exit(void);
int sim_trace_set(char *args);		/* "size=RECORDS"; sleeps, under sim_ctl_lock */
/* Any context. */
void sim_trace_submit(struct sim_disk *sd, struct request *rq, struct sim_cmd *c);
void sim_trace_complete(struct sim_disk *sd, struct sim_cmd *c, blk_status_t status);
void sim_trace_event(const char *name, const char *what);

/* ------------------------------------------------------------------ simdisk_record.c */

void sim_record_init(struct dentry *root);
void sim_record_exit(void);
int sim_record_set(char *args);		/* "size=BYTES"; sleeps, under sim_ctl_lock */

/* simdisk_memory.c */
void sim_memory_init(struct dentry *root);
void sim_memory_exit(void);
int sim_memory_set(char *args);		/* sleeps, under sim_ctl_lock */

/* simdisk_held.c */
void sim_held_init(struct dentry *root);
void sim_held_exit(void);
int sim_held_set(char *args);		/* sleeps, under sim_ctl_lock */
/* Any context. */
void sim_record_submit(struct sim_disk *sd, struct request *rq, struct sim_cmd *c);
void sim_record_complete(struct sim_disk *sd, struct sim_cmd *c, blk_status_t status);

#endif
