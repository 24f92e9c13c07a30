// SPDX-License-Identifier: GPL-2.0-only
/*
 * Congestion: the share of requests that goes to the backing because the SSD is slow (congestion.h).
 *
 * A sample past the threshold takes the share, if the average is past it too, a part of the rest of its way up, the larger the
 * further past it the average is; one below it lets it fall by 1/16 and one part in 64 of all, whatever the average still says.
 * So an outlier does nothing; an SSD that is slow by itself is left alone after a dozen samples, but for the probes; one that is
 * slow for its queue comes to where its latency is about the threshold; one that has recovered has everything back after some
 * thirty samples.
 */
#include "congestion.h"

#define CONGESTION_PROBE_MS	1000u		/* an SSD that is left alone entirely is asked so often, */
#define CONGESTION_PROBE_TIMES	20u		/* but not for more than 1/20 of the time, */
#define CONGESTION_PROBE_MS_MAX	60000u		/* and at least so often */
#define CONGESTION_FORGET_TIMES	5u		/* so many times that without a sample, and the share falls to half */
#define CONGESTION_WEIGHT	15u		/* of the past, in the average, to one sample */
#define CONGESTION_US_MAX	60000000u	/* a minute: more says no more */
#define CONGESTION_GROW_SHIFT	4		/* per multiple of the threshold, 1/16 of the rest */
#define CONGESTION_TIMES_MAX	8u
#define CONGESTION_NEARLY_ALL	(LARDER_CONGESTION_FULL / 16 * 15)	/* from here on all go elsewhere, but for the probes */
#define CONGESTION_FALL_SHIFT	4
#define CONGESTION_FALL_LEAST	(LARDER_CONGESTION_FULL / 64)

static u32 congestion_average(u32 old, u32 latency)
{
	return old ? div_u64((u64)old * CONGESTION_WEIGHT + latency, CONGESTION_WEIGHT + 1) : latency;
}

static u32 congestion_probe_ms(u32 latency_us)
{
	return clamp(latency_us / (1000 / CONGESTION_PROBE_TIMES), CONGESTION_PROBE_MS, CONGESTION_PROBE_MS_MAX);
}

/* What is left of a share after so long without a sample. */
static u32 congestion_faded(u32 share, u32 latency_us, u64 ms)
{
	u64 halves = div_u64(ms, CONGESTION_FORGET_TIMES * congestion_probe_ms(latency_us));

	return halves < 32 ? share >> halves : 0;
}

static u32 congestion_grown(u32 share, u32 latency_us, u32 threshold_us)
{
	u32 times = min(latency_us / threshold_us, CONGESTION_TIMES_MAX), rest = LARDER_CONGESTION_FULL - share;

	return share + DIV_ROUND_UP(rest * times, 1u << CONGESTION_GROW_SHIFT);
}

static u32 congestion_fallen(u32 share)
{
	u32 by = (share >> CONGESTION_FALL_SHIFT) + CONGESTION_FALL_LEAST;

	return share > by ? share - by : 0;
}

void larder_congestion_sample(struct larder_congestion *g, u64 latency_us, u32 threshold_us, u64 now_ms)
{
	u32 share = g->share;

	if (share && now_ms > g->sample_ms)
		share = congestion_faded(share, g->latency_us, now_ms - g->sample_ms);
	/* at least 1: 0 says that there is none */
	WRITE_ONCE(g->latency_us, max_t(u32, congestion_average(g->latency_us, min_t(u64, latency_us, CONGESTION_US_MAX)), 1));
	g->sample_ms = now_ms;
	if (!threshold_us)
		share = 0;
	else if (latency_us <= threshold_us)
		share = congestion_fallen(share);
	else if (g->latency_us > threshold_us)
		share = congestion_grown(share, g->latency_us, threshold_us);
	if (share && !g->share)
		WRITE_ONCE(g->passed_ms, now_ms);
	WRITE_ONCE(g->share, share);
}

bool larder_congestion_avoids(struct larder_congestion *g, u32 threshold_us, u64 now_ms)
{
	u64 sampled = READ_ONCE(g->sample_ms), passed = READ_ONCE(g->passed_ms), asked = max(sampled, passed);
	u32 share = READ_ONCE(g->share), latency = READ_ONCE(g->latency_us), debt;

	if (!threshold_us)
		return false;
	if (now_ms > sampled)
		share = congestion_faded(share, latency, now_ms - sampled);
	/* to find out whether it has recovered, however large the share; what it is asked in any case says that, too */
	if (now_ms >= asked + congestion_probe_ms(latency) || now_ms < passed)
		goto pass;
	/* of a rest as small as that each one waits for the SSD, and tells nothing new */
	if (share >= CONGESTION_NEARLY_ALL)
		return true;
	debt = READ_ONCE(g->debt) + share;
	if (debt >= LARDER_CONGESTION_FULL) {
		WRITE_ONCE(g->debt, debt - LARDER_CONGESTION_FULL);
		return true;
	}
	WRITE_ONCE(g->debt, debt);
pass:
	WRITE_ONCE(g->passed_ms, now_ms);
	return false;
}
