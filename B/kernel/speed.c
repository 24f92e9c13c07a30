// SPDX-License-Identifier: GPL-2.0-only
/*
 * Speed: on which side streams are faster (speed.h).
 *
 * What is not known does not take a stream away from where it is: writes begin on the SSD, reads on the backing.
 */
#include "speed.h"

#define SPEED_WEIGHT	15u		/* of the past, in the average, to one sample */

void larder_speed_sample(struct larder_speed *s, enum larder_side side, u32 sectors, u64 ns)
{
	u64 old = READ_ONCE(s->ns[side]), now;

	if (!sectors)
		return;
	now = clamp_t(u64, div_u64(min_t(u64, ns, NSEC_PER_SEC * 3600ull) * 2, sectors), 1, U32_MAX);
	WRITE_ONCE(s->ns[side], old ? div_u64(old * SPEED_WEIGHT + now, SPEED_WEIGHT + 1) : now);
}

/* By a tenth, so that what is alike does not change sides all the time. */
static bool speed_faster(const struct larder_speed *s, enum larder_side side, enum larder_side than)
{
	u64 a = READ_ONCE(s->ns[side]), b = READ_ONCE(s->ns[than]);

	return a && b && a * 11 < b * 10;
}

bool larder_speed_read_bypasses(const struct larder_speed *s)
{
	return !speed_faster(s, LARDER_SIDE_SSD, LARDER_SIDE_BACKING);
}

static bool speed_probe_due(const struct larder_speed *s, enum larder_side other, u64 now_ms)
{
	return s->since >= LARDER_PROBE_EVERY && (!READ_ONCE(s->ns[other]) || now_ms - s->probed_ms >= LARDER_PROBE_MS);
}

enum larder_side larder_speed_write(struct larder_speed *s, u32 sectors, bool room, u64 now_ms)
{
	u32 kib = DIV_ROUND_UP(sectors, 2), probe = READ_ONCE(s->probe);
	enum larder_side side = READ_ONCE(s->side), other = side == LARDER_SIDE_SSD ? LARDER_SIDE_BACKING : LARDER_SIDE_SSD;

	/* the backing's speed shows meanwhile; nothing is probed */
	if (!room)
		return LARDER_SIDE_BACKING;
	if (probe) {
		WRITE_ONCE(s->probe, probe - min(kib, probe));
		return other;
	}
	if (speed_faster(s, other, side)) {
		WRITE_ONCE(s->side, other);
		s->since = 0;
		return other;
	}
	if (speed_probe_due(s, other, now_ms)) {
		s->since = 0;
		s->probed_ms = now_ms;
		WRITE_ONCE(s->probe, LARDER_PROBE_KIB - min(kib, LARDER_PROBE_KIB));
		return other;
	}
	s->since = min(s->since + kib, LARDER_PROBE_EVERY);
	return side;
}

u32 larder_speed_kib(const struct larder_speed *s, enum larder_side side)
{
	u32 ns = READ_ONCE(s->ns[side]);

	return ns ? div_u64(NSEC_PER_SEC, ns) : 0;
}
