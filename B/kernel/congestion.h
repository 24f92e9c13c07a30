/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Congestion: which share of the requests leaves the SSD alone because it answers slowly.  Pure: includes pure.h only, tested in
 * userland.
 *
 * One request in flight per direction is timed, at most one per jiffy begins, so that an SSD that answers in time costs a
 * comparison per request.  Its latency, or its age while it has not ended, moves an average, and the share.  To find out
 * whether it has recovered it is asked once a second, or in 20 times its latency, by one that was to go elsewhere if need be.
 *
 * No locks: one prober at a time owns all but share and debt; those are read, and debt is counted, by anybody, who may lose a
 * count.
 */
#ifndef LARDER_CONGESTION_H
#define LARDER_CONGESTION_H

#include "pure.h"

#define LARDER_CONGESTION_FULL		1024u	/* of 'share': all requests */

struct larder_congestion {
	u32 share;		/* of LARDER_CONGESTION_FULL that goes to the backing */
	u32 debt;		/* fractions of requests that were to go there */
	u32 latency_us;		/* average; 0: no sample yet */
	u64 sample_ms;		/* of the last sample */
	u64 passed_ms;		/* when the last request was let through to the SSD while the share was not 0 */
};

/* The prober: a request took, or has taken so far, so long; threshold_us 0: off. */
void larder_congestion_sample(struct larder_congestion *g, u64 latency_us, u32 threshold_us, u64 now_ms);
/* Only where share is not 0: is this one to go to the backing? */
bool larder_congestion_avoids(struct larder_congestion *g, u32 threshold_us, u64 now_ms);

#endif
