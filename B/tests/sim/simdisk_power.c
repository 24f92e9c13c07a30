// SPDX-License-Identifier: GPL-2.0-only
/*
 * Power cuts.  A cut is an instant under sim_lock: the disks named go off together.  What follows may take its time: whoever is
 * still inside queue_rq() leaves it, what is in flight fails, and each disk's content is settled (simdisk_store.c).
 *
 * States of a disk: on -> (cut) off, cut_pending -> (settled) off -> (powerup) on.  While off, every command fails with EIO.
 * An armed cut goes off by itself after so many commands to its disks, in the midst of queue_rq(); a work item settles then.
 * Only one cut is armed at a time; a new powercut command replaces it.
 */
#include <linux/blkdev.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include "simdisk.h"

#define ALL_OPS	(BIT(SIM_NR_OPS) - 1)

static const char * const mode_name[] = {
	[SIM_CUT_RANDOM] = "random", [SIM_CUT_LOSE] = "lose", [SIM_CUT_KEEP] = "keep", [SIM_CUT_TORN] = "torn",
	[SIM_CUT_PREFIX] = "prefix",
};

struct cut {
	enum sim_cut_mode mode;
	u64 seed;
	u32 percent;	/* chance of a volatile piece to survive */
	u64 after;	/* commands of these ops until it happens; 0: at once */
	u32 ops;
};

/* sim_lock, and changed only under sim_ctl_lock with nothing pending (but for cut.after, counted down). */
static struct cut cut;

static void settle_work_fn(struct work_struct *w);
static DECLARE_WORK(settle_work, settle_work_fn);

/* sim_lock */
static void switch_off(struct sim_disk *sd)
{
	sd->cut_armed = false;
	if (sd->off)
		return;
	WRITE_ONCE(sd->off, true);
	WRITE_ONCE(sd->power_gen, sd->power_gen + 1);
	sd->cut_pending = true;
	sim_trace_event(sd->name, "powercut");
}

bool sim_power_tick(struct sim_disk *sd, enum sim_op op)
{
	struct sim_disk *other;

	lockdep_assert_held(&sim_lock);
	if (!sd->cut_armed || !(cut.ops & BIT(op)) || --cut.after)
		return false;
	/* armed disks stay on the list: removal disarms them under sim_lock first */
	list_for_each_entry(other, &sim_disks, list)
		if (other->cut_armed)
			switch_off(other);
	schedule_work(&settle_work);
	return true;
}

/* Sleeps, under sim_ctl_lock.  Every disk that went off gets its content settled. */
static void settle_pending(void)
{
	struct sim_disk *sd;
	bool any = false;

	list_for_each_entry(sd, &sim_disks, list)
		any |= READ_ONCE(sd->cut_pending);
	if (!any)
		return;
	synchronize_rcu();	/* pairs with the RCU read side around queue_rq(): all of them see the power off */
	list_for_each_entry(sd, &sim_disks, list) {
		if (!READ_ONCE(sd->cut_pending))
			continue;
		sim_abort_all(sd);
		sim_store_settle(sd, cut.mode, cut.seed, cut.percent);
		WRITE_ONCE(sd->cut_pending, false);
	}
}

static void settle_work_fn(struct work_struct *w)
{
	mutex_lock(&sim_ctl_lock);
	settle_pending();
	mutex_unlock(&sim_ctl_lock);
}

/* Calls fn for "all" or each disk of a comma-separated list; first all names are checked.  -ENOENT. */
static int for_disks(char *list, void (*fn)(struct sim_disk *sd))
{
	struct sim_disk *sd;
	char *name, *copy, *p;

	if (!strcmp(list, "all")) {
		list_for_each_entry(sd, &sim_disks, list)
			fn(sd);
		return 0;
	}
	copy = kstrdup(list, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	p = copy;
	while ((name = strsep(&p, ",")))
		if (!sim_find_disk(name)) {
			kfree(copy);
			return -ENOENT;
		}
	kfree(copy);
	while ((name = strsep(&list, ",")))
		fn(sim_find_disk(name));
	return 0;
}

static int parse_cut(char *args, struct cut *c)
{
	char *word, *value;
	int m, err;

	*c = (struct cut) { .mode = SIM_CUT_RANDOM, .percent = 50, .ops = ALL_OPS };
	while ((word = sim_next_word(&args, &value))) {
		err = -EINVAL;
		if (!value)
			return err;
		if (!strcmp(word, "mode")) {
			m = match_string(mode_name, ARRAY_SIZE(mode_name), value);
			if (m < 0)
				return m;
			c->mode = m;
			continue;
		}
		if (!strcmp(word, "seed"))
			err = kstrtou64(value, 0, &c->seed);
		else if (!strcmp(word, "after"))
			err = kstrtou64(value, 0, &c->after);
		else if (!strcmp(word, "keep"))
			err = kstrtou32(value, 0, &c->percent);
		else if (!strcmp(word, "ops"))
			err = (c->ops = sim_parse_ops(value)) ? 0 : -EINVAL;
		if (err)
			return err;
	}
	return c->percent > 100 ? -EINVAL : 0;
}

static void choose(struct sim_disk *sd)
{
	sd->cut_armed = true;
}

int sim_power_cut(char *args)
{
	struct sim_disk *sd;
	struct cut c;
	char *who, *value;
	int err;

	who = sim_next_word(&args, &value);
	if (!who || value)
		return -EINVAL;
	err = parse_cut(args, &c);
	if (err)
		return err;

	spin_lock_irq(&sim_lock);	/* from here on no armed cut goes off */
	list_for_each_entry(sd, &sim_disks, list)
		sd->cut_armed = false;
	cut.ops = 0;
	spin_unlock_irq(&sim_lock);
	settle_pending();
	err = for_disks(who, choose);
	if (err)
		return err;

	spin_lock_irq(&sim_lock);
	cut = c;	/* armed from here on.  A disk without crash=1 counts no commands, but goes off with the others */
	if (!c.after)
		list_for_each_entry(sd, &sim_disks, list)
			if (sd->cut_armed)
				switch_off(sd);
	spin_unlock_irq(&sim_lock);
	settle_pending();
	return 0;
}

static void switch_on(struct sim_disk *sd)
{
	spin_lock_irq(&sim_lock);
	sd->cut_armed = false;
	if (sd->off)
		sim_trace_event(sd->name, "powerup");
	WRITE_ONCE(sd->off, false);
	spin_unlock_irq(&sim_lock);
	invalidate_bdev(sd->disk->part0);	/* pages from before the cut, if somebody holds the disk open */
}

int sim_power_up(char *args)
{
	char *who, *value;

	who = sim_next_word(&args, &value);
	if (!who || value || sim_next_word(&args, &value))
		return -EINVAL;
	settle_pending();
	return for_disks(who, switch_on);
}

void sim_power_detach(struct sim_disk *sd)
{
	spin_lock_irq(&sim_lock);
	switch_off(sd);
	spin_unlock_irq(&sim_lock);
	settle_pending();
}

u64 sim_power_armed(struct sim_disk *sd)
{
	u64 left;

	spin_lock_irq(&sim_lock);
	left = sd->cut_armed ? cut.after : 0;
	spin_unlock_irq(&sim_lock);
	return left;
}

/* All disks are gone. */
void sim_power_exit(void)
{
	cancel_work_sync(&settle_work);
}
