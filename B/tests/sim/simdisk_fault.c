// SPDX-License-Identifier: GPL-2.0-only
/*
 * Injected faults.  A rule matches commands by operation and range, lets the first 'skip' of them pass, then acts on 'count' of
 * them (0: on all).  The rules of a disk are tried in order; the first that acts decides, delays of several add up.
 *
 *   fail name=ssd0 op=write,flush from=SECTOR to=SECTOR skip=N count=N status=STATUS delay_ms=N delay_us=N store=1
 *
 * from, to: half open, a command matches if it touches the range; a flush matches whatever the range.  STATUS: ioerr, nospc,
 * medium, timeout, target, protection, notsupp, again; lost: acknowledged, but nothing is stored; corrupt: a read returns wrong
 * data; reset: the command fails, the disk has lost all that it had answered and not secured, and then all is well (what is in
 * flight goes on, as if the host had sent it again); ok: delays only.  store=1: a write fails, but its data was stored.  Without
 * store=1 a failing write changes nothing.
 */
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include "simdisk.h"

#define ALL_OPS	(BIT(SIM_NR_OPS) - 1)

enum effect { EFFECT_STATUS, EFFECT_LOST, EFFECT_CORRUPT, EFFECT_RESET };

struct rule {
	struct list_head list;
	u32 ops;
	u64 from, to;
	u64 skip, count;	/* count: SIM_NEVER for all */
	u64 seen, hits;
	u64 delay_ns;
	const struct outcome *outcome;
	bool store;
};

static const struct outcome {
	const char *name;
	blk_status_t status;
	enum effect effect;
} outcomes[] = {
	{ "ioerr", BLK_STS_IOERR }, { "nospc", BLK_STS_NOSPC }, { "medium", BLK_STS_MEDIUM }, { "timeout", BLK_STS_TIMEOUT },
	{ "target", BLK_STS_TARGET }, { "protection", BLK_STS_PROTECTION }, { "notsupp", BLK_STS_NOTSUPP },
	{ "again", BLK_STS_AGAIN },
	{ "lost", BLK_STS_OK, EFFECT_LOST }, { "corrupt", BLK_STS_OK, EFFECT_CORRUPT }, { "reset", BLK_STS_IOERR, EFFECT_RESET },
	{ "hung", BLK_STS_TIMEOUT, EFFECT_RESET },
	{ "ok", BLK_STS_OK },
};

static const struct outcome *find_outcome(const char *name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(outcomes); i++)
		if (!strcmp(outcomes[i].name, name))
			return &outcomes[i];
	return NULL;
}

static int parse_word(struct rule *r, const char *word, char *value)
{
	u64 v;

	if (!value)
		return -EINVAL;
	if (!strcmp(word, "op")) {
		r->ops = sim_parse_ops(value);
		return r->ops ? 0 : -EINVAL;
	}
	if (!strcmp(word, "status")) {
		r->outcome = find_outcome(value);
		return r->outcome ? 0 : -EINVAL;
	}
	if (kstrtou64(value, 0, &v))
		return -EINVAL;
	if (!strcmp(word, "from"))
		r->from = v;
	else if (!strcmp(word, "to"))
		r->to = v;
	else if (!strcmp(word, "skip"))
		r->skip = v;
	else if (!strcmp(word, "count"))
		r->count = v ? v : SIM_NEVER;
	else if (!strcmp(word, "delay_ms"))
		r->delay_ns = v * NSEC_PER_MSEC;
	else if (!strcmp(word, "delay_us"))
		r->delay_ns = v * NSEC_PER_USEC;
	else if (!strcmp(word, "store"))
		r->store = v;
	else
		return -EINVAL;
	return 0;
}

/* args: what follows name=.  Sleeps, under sim_ctl_lock. */
int sim_fault_add(struct sim_disk *sd, char *args)
{
	struct rule *r = kzalloc(sizeof(*r), GFP_KERNEL);
	char *word, *value;
	int err;

	if (!r)
		return -ENOMEM;
	r->ops = ALL_OPS;
	r->to = SIM_NEVER;
	r->count = SIM_NEVER;
	r->outcome = &outcomes[0];
	while ((word = sim_next_word(&args, &value))) {
		err = parse_word(r, word, value);
		if (err) {
			kfree(r);
			return err;
		}
	}
	spin_lock_irq(&sd->lock);
	list_add_tail(&r->list, &sd->faults);
	spin_unlock_irq(&sd->lock);
	return 0;
}

void sim_fault_clear(struct sim_disk *sd)
{
	struct rule *r, *n;
	LIST_HEAD(old);

	spin_lock_irq(&sd->lock);
	list_splice_init(&sd->faults, &old);
	spin_unlock_irq(&sd->lock);
	list_for_each_entry_safe(r, n, &old, list)
		kfree(r);
}

void sim_fault_match(struct sim_disk *sd, struct sim_cmd *c)
{
	struct rule *r;

	list_for_each_entry(r, &sd->faults, list) {
		if (!(r->ops & BIT(c->op)))
			continue;
		if (!c->flush && (c->e <= r->from || c->s >= r->to))
			continue;
		if (r->seen++ < r->skip || r->hits >= r->count)
			continue;
		r->hits++;
		c->extra_ns += r->delay_ns;
		if (r->outcome->effect == EFFECT_STATUS && r->outcome->status == BLK_STS_OK)
			continue;
		c->status = r->outcome->status;
		c->lose = r->outcome->effect == EFFECT_LOST;
		c->corrupt = r->outcome->effect == EFFECT_CORRUPT;
		c->reset = r->outcome->effect == EFFECT_RESET;
		c->keep = r->store;
		return;
	}
}

/* A line per rule: what it matches, how often it acted. */
void sim_fault_show(struct sim_disk *sd, struct seq_file *m)
{
	struct rule *r;

	spin_lock_irq(&sd->lock);
	list_for_each_entry(r, &sd->faults, list)
		seq_printf(m, "ops=%#x from=%llu to=%llu skip=%llu count=%llu status=%s delay_us=%llu store=%d seen=%llu hits=%llu\n",
			   r->ops, r->from, r->to, r->skip, r->count == SIM_NEVER ? 0 : r->count, r->outcome->name,
			   div_u64(r->delay_ns, NSEC_PER_USEC), r->store, r->seen, r->hits);
	spin_unlock_irq(&sd->lock);
}
