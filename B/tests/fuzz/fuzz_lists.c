// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what `dmsetup status` and `dmsetup targets` have said, elsewhere: the files that LARDER_STATUS and LARDER_TARGETS name (lib/snapshot.c,
 * lib/dm.c).  The input is the file.  Aborts where a device of it has a name that dm's cannot have, or is not found by it.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "input.h"
#include "message.h"
#include "snapshot.h"

static int file = -1;

static void begin(void)
{
	char path[64];

	if (file >= 0)
		return;
	file = memfd_create("lists", MFD_CLOEXEC);
	must(file >= 0, "memory");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	setenv("LARDER_STATUS", path, 1);
	setenv("LARDER_TARGETS", path, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mapped_list list;
	uint32_t version[3];

	begin();
	must(!ftruncate(file, 0) && pwrite(file, data, size, 0) == (ssize_t)size, "memory");
	must(!snapshot_take(&list), "a file");
	for (size_t i = 0; i < list.number; i++) {
		const struct mapped *m = &list.mapped[i], *same = snapshot_find(&list, m->name, m->cache);

		must(*m->name && strnlen(m->name, sizeof(m->name)) < sizeof(m->name) && !strcmp(m->name, m->target), "its name");
		must(m->status && !strchr(m->status, '\n') && *snapshot_name(&list, m), "its status");
		must(same && same->cache == m->cache, "it is found by its name");
		if (!m->cache)
			same = snapshot_cache(&list, m);
		must(!same || m->cache || same->cache, "a cache");
	}
	mapped_list_free(&list);
	target_version("larder", version);
	return 0;
}
