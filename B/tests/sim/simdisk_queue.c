// SPDX-License-Identifier: GPL-2.0-only
/*
 * blk-mq side: a request becomes a command, the timing model says when it ends, an hrtimer ends it.
 * The null model ends commands inside queue_rq(), unless they are delayed by a fault rule or jitter.
 *
 * A command in flight is in exactly one place: the timerqueue (its end is known) or a list of the hard disk model.
 */
#include <linux/math64.h>
#include <linux/module.h>
#include "simdisk.h"

static atomic64_t next_id = ATOMIC64_INIT(0);

u64 sim_now(void)
{
	return ktime_to_ns(ktime_get());
}

/* Time of a transfer at mbs bytes per microsecond; 0: takes none. */
u64 sim_xfer_ns(struct sim_disk *sd, u64 bytes, u64 mbs)
{
	return mbs ? div64_u64(bytes * 1000 * sd->p.scale, mbs) : 0;
}

void sim_promise(struct sim_disk *sd, struct sim_cmd *c, u64 t)
{
	c->tq.expires = ns_to_ktime(t + c->extra_ns);
	timerqueue_add(&sd->tq, &c->tq);
	sd->last_done = max(sd->last_done, t);
}

/* sd->lock.  The timer has to run when the next command ends, or the arm of a hard disk is done. */
static void arm(struct sim_disk *sd, u64 now)
{
	struct timerqueue_node *n = timerqueue_getnext(&sd->tq);
	u64 t = n ? ktime_to_ns(n->expires) : SIM_NEVER;

	if (sd->model == SIM_HDD)
		t = min(t, sim_hdd_next(sd, now));
	if (t != SIM_NEVER && t != sd->armed) {
		sd->armed = t;
		hrtimer_start(&sd->timer, ns_to_ktime(t), HRTIMER_MODE_ABS);
	}
}

/* Any context, no locks held.  Ends the request. */
static void end_command(struct sim_disk *sd, struct sim_cmd *c)
{
	blk_status_t status = sim_store_complete(sd, c, c->status);
	unsigned long flags;

	sim_trace_complete(sd, c, status);
	sim_record_complete(sd, c, status);
	if (unlikely(status != BLK_STS_OK)) {
		spin_lock_irqsave(&sd->lock, flags);
		sd->st.errors++;
		spin_unlock_irqrestore(&sd->lock, flags);
	}
	blk_mq_end_request(blk_mq_rq_from_pdu(c), status);
}

/* sd->lock.  A command has left the disk. */
static void leave(struct sim_disk *sd, u64 now)
{
	if (!--sd->inflight)
		sd->st.busy_ns += now - sd->busy_since;
}

enum hrtimer_restart sim_tick(struct hrtimer *h)
{
	struct sim_disk *sd = container_of(h, struct sim_disk, timer);
	struct timerqueue_node *n;
	unsigned long flags;
	struct sim_cmd *c, *x;
	LIST_HEAD(done);
	u64 now;

	spin_lock_irqsave(&sd->lock, flags);
	now = sim_now();
	sd->armed = SIM_NEVER;
	if (sd->model == SIM_HDD)
		sim_hdd_advance(sd, now);
	while ((n = timerqueue_getnext(&sd->tq)) && ktime_to_ns(n->expires) <= now) {
		timerqueue_del(&sd->tq, n);
		c = container_of(n, struct sim_cmd, tq);
		list_add_tail(&c->list, &done);
		leave(sd, now);
	}
	arm(sd, now);
	spin_unlock_irqrestore(&sd->lock, flags);
	list_for_each_entry_safe(c, x, &done, list)
		end_command(sd, c);
	return HRTIMER_NORESTART;
}

void sim_abort_all(struct sim_disk *sd)
{
	struct timerqueue_node *n;
	struct sim_cmd *c, *x;
	LIST_HEAD(done);

	hrtimer_cancel(&sd->timer);	/* and what it was ending has ended */
	spin_lock_irq(&sd->lock);
	if (sd->model == SIM_HDD)
		sim_hdd_reset(sd, &done);
	else
		sim_ssd_reset(sd);
	while ((n = timerqueue_getnext(&sd->tq))) {
		timerqueue_del(&sd->tq, n);
		list_add_tail(&container_of(n, struct sim_cmd, tq)->list, &done);
	}
	list_for_each_entry(c, &done, list)
		leave(sd, sim_now());
	sd->armed = SIM_NEVER;
	sd->ctrl_free = 0;
	sd->last_done = 0;
	spin_unlock_irq(&sd->lock);
	list_for_each_entry_safe(c, x, &done, list)
		end_command(sd, c);
}

/* False: the operation is not supported. */
static bool init_command(struct sim_disk *sd, struct request *rq, struct sim_cmd *c)
{
	u64 len;

	switch (req_op(rq)) {
	case REQ_OP_READ:
		c->op = SIM_READ;
		break;
	case REQ_OP_WRITE:
		c->op = SIM_WRITE;
		break;
	case REQ_OP_FLUSH:
		c->op = SIM_FLUSH;
		break;
	case REQ_OP_DISCARD:
		c->op = SIM_DISCARD;
		break;
	case REQ_OP_WRITE_ZEROES:
		c->op = SIM_ZEROES;
		break;
	default:
		return false;
	}
	c->write = c->op == SIM_WRITE;
	c->flush = c->op == SIM_FLUSH;
	c->fast = c->op == SIM_DISCARD || c->op == SIM_ZEROES;
	c->fua = (c->write || c->op == SIM_ZEROES) && (rq->cmd_flags & REQ_FUA);
	len = c->flush ? 0 : blk_rq_bytes(rq);
	c->s = c->flush ? 0 : blk_rq_pos(rq);
	c->e = c->s + (len >> 9);
	c->extra_ns = 0;
	c->status = BLK_STS_OK;
	c->lose = c->corrupt = c->keep = c->reset = false;
	c->id = atomic64_inc_return(&next_id);
	INIT_LIST_HEAD(&c->list);
	timerqueue_init(&c->tq);
	return true;
}

/* sd->lock */
static void count_command(struct sim_disk *sd, struct sim_cmd *c)
{
	u64 len = (c->e - c->s) << 9;

	switch (c->op) {
	case SIM_READ:
		sd->st.reads++;
		sd->st.rbytes += len;
		break;
	case SIM_WRITE:
		sd->st.writes++;
		sd->st.wbytes += len;
		break;
	case SIM_FLUSH:
		sd->st.flushes++;
		break;
	case SIM_DISCARD:
		sd->st.discards++;
		sd->st.dbytes += len;
		break;
	default:
		sd->st.write_zeroes++;
		sd->st.zbytes += len;
	}
	sd->st.fua += c->fua;
}

/* sd->lock.  Injected faults and jitter. */
static void disturb(struct sim_disk *sd, struct sim_cmd *c)
{
	if (!list_empty(&sd->faults))
		sim_fault_match(sd, c);
	if (sd->p.jitter_ns)
		c->extra_ns += sim_random(&sd->rng) % sd->p.jitter_ns;
}

/* sd->lock.  True: the command is in the model's hands; false: it ends now. */
static bool start_command(struct sim_disk *sd, struct sim_cmd *c)
{
	u64 now;

	count_command(sd, c);
	if (sd->model == SIM_NULL && !c->extra_ns) {
		if (c->write)
			sim_account_write(sd, c);
		return false;
	}
	now = sim_now();
	c->arrive = now;
	if (!sd->inflight++)
		sd->busy_since = now;
	sd->st.maxq = max_t(u64, sd->st.maxq, sd->inflight);
	if (sd->model == SIM_HDD) {
		sim_hdd_submit(sd, c, now);
	} else if (sd->model == SIM_NULL) {
		if (c->write)
			sim_account_write(sd, c);
		sim_promise(sd, c, now);
	} else {
		sim_ssd_submit(sd, c, now);
	}
	arm(sd, now);
	return true;
}

/* What a controller that is given a list of pages cannot do: a vector but the first begins, or but the last ends, within one. */
static bool has_gap(const struct sim_disk *sd, struct request *rq, const struct sim_cmd *c)
{
	u64 mask = sd->p.virt_boundary - 1;
	struct req_iterator iter;
	phys_addr_t at, end = 0;
	struct bio_vec bv;
	bool first = true;

	if (!sd->p.virt_boundary || (c->op != SIM_READ && c->op != SIM_WRITE))
		return false;
	rq_for_each_bvec(bv, rq, iter) {
		at = page_to_phys(bv.bv_page) + bv.bv_offset;
		if (!first && at != end && ((at | end) & mask))
			return true;
		end = at + bv.bv_len;
		first = false;
	}
	return false;
}

static blk_status_t sim_queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct sim_disk *sd = hctx->queue->queuedata;
	struct request *rq = bd->rq;
	struct sim_cmd *c = blk_mq_rq_to_pdu(rq);
	unsigned long flags;
	blk_status_t ret;
	bool held;

	if (!init_command(sd, rq, c))
		return BLK_STS_NOTSUPP;
	blk_mq_start_request(rq);
	if (WARN_ONCE(has_gap(sd, rq, c), "simdisk: %s: a command whose vectors have a gap\n", sd->name)) {
		blk_mq_end_request(rq, BLK_STS_IOERR);
		return BLK_STS_OK;
	}
	if (sd->p.jitter_ns || !list_empty_careful(&sd->faults)) {
		spin_lock_irqsave(&sd->lock, flags);
		disturb(sd, c);
		spin_unlock_irqrestore(&sd->lock, flags);
	}
	ret = sim_store_submit(sd, rq, c);
	if (ret == BLK_STS_RESOURCE)
		return ret;
	if (ret != BLK_STS_OK) {	/* no power */
		blk_mq_end_request(rq, ret);
		return BLK_STS_OK;
	}
	sim_trace_submit(sd, rq, c);
	sim_record_submit(sd, rq, c);
	spin_lock_irqsave(&sd->lock, flags);
	held = start_command(sd, c);
	spin_unlock_irqrestore(&sd->lock, flags);
	if (!held)
		end_command(sd, c);
	return BLK_STS_OK;
}

/* Delays may be injected: a command is never given up. */
static enum blk_eh_timer_return sim_timeout(struct request *rq)
{
	return BLK_EH_RESET_TIMER;
}

const struct blk_mq_ops sim_mq_ops = { .queue_rq = sim_queue_rq, .timeout = sim_timeout };
