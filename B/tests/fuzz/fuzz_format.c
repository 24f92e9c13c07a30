// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for the checks of kernel/format.c.  Input: byte 0 chooses the structure, byte 1 the good sample of it; then edits of that sample,
 * each of two bytes of offset (the highest bit: counted from the front of the structure, else in units that reach all of it), a byte whose low three bits
 * are the length less one, and so many bytes.  The checksum is repaired, so that what lies behind it is reached.  Aborts where a promise of format.h is broken.
 */
#include "format_targets.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void apply_edits(const struct target *t, u8 *p, const u8 *data, size_t size)
{
	size_t at, len;

	while (size > 3) {
		at = get_unaligned_le16(data) & 0x7fff;
		at = data[1] & 0x80 ? at % t->head : at * 8 % t->size + (data[2] >> 5);
		len = min(min((size_t)(data[2] & 7) + 1, size - 3), t->size - at);
		memcpy(p + at, data + 3, len);
		data += 3 + len;
		size -= 3 + len;
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	const struct target *t;
	const char *why = NULL;
	u8 *p;

	if (size < 2)
		return 0;
	t = &targets[data[0] % ARRAY_SIZE(targets)];
	p = aligned_alloc(64, t->size);		/* exactly so big: ASan sees any byte beyond */
	must(p);
	t->sample(p, data[1]);
	apply_edits(t, p, data + 2, size - 2);
	target_repair(t, p);
	if (t->read(p, &why) < 0)
		must(why);
	free(p);
	return 0;
}
