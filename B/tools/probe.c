// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder probe: what is on a device, and who uses it; with --udev the variables of ours that a udev rule imports.
 *
 * Exit code: 0 when every device asked for carries a valid larder superblock, 3 when one does not.
 */
#include <endian.h>
#include <limits.h>
#include <stdio.h>

#include "arguments.h"
#include "integrity.h"
#include "scan.h"
#include "signature.h"
#include "udev_properties.h"
#include "verbs.h"

static void print_ours(const char *path, const union superblock *sb)
{
	uint32_t kind = le32toh(sb->head.kind);
	struct leg_fields leg;
	char label[LARDER_LABEL_SIZE + 1], uuid[UUID_TEXT], cache[UUID_TEXT];

	printf("%s: larder %s, UUID %s", path, kind_text(kind), uuid_text(sb->head.uuid, uuid));
	if (kind == LARDER_KIND_CACHE || kind == LARDER_KIND_VOLUME)
		printf(", label %s, cache %s", label_text(sb->cache.label, label), uuid_text(sb->cache.cache_uuid, cache));
	if (leg_is(sb, &leg))
		printf(", leg with dm-integrity of the stack %s", uuid_text(leg.stack, cache));
	if (kind == LARDER_KIND_VOLUME && le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY)
		printf(", may be dirty");
	putchar('\n');
}

static int print_foreign(const struct device *device, const struct superblocks *superblocks)
{
	static const char *const place[] = { [SIGNATURE_OUTSIDE] = "",
					     [SIGNATURE_DATA] = " (in its data: no owner's)",
					     [SIGNATURE_TAIL] = " (in its data, at the end: no owner's)",
					     [SIGNATURE_RESERVE] = " (behind its data: not heeded)" };
	struct signatures found = { 0 };
	struct contents contents;
	bool stand = superblocks_stand(superblocks);
	int result;

	if (stand)
		superblock_contents(superblocks->chosen->sb, &contents);
	result = signatures_find(device, stand ? &contents : NULL, &found);
	for (size_t i = 0; i < found.number; i++)
		printf("%s: %s%s\n", device->path, found.signature[i].text, place[found.signature[i].place]);
	signatures_free(&found);
	return result;
}

static void print_facts(const struct device *device)
{
	const struct size_format human = { 'h', true };
	char size[SIZE_TEXT], usage[PATH_MAX];

	printf("%s: %s, logical blocks of %u bytes%s%s\n", device->path, size_print(size, device->bytes, &human),
	       device->logical_block, device->read_only ? ", read-only" : "", device->zoned ? ", zoned" : "");
	if (device->block && device_usage(device->number, usage, sizeof(usage)))
		printf("%s: %s\n", device->path, usage);
}

static int probe_one(const char *path, bool udev)
{
	const union superblock *sb;
	struct superblocks found;
	struct device device;
	int result = device_open(&device, path, DEVICE_READ);

	if (result)
		return result;
	superblocks_read(&device, &found, false);
	sb = found.chosen ? found.chosen->sb : NULL;
	if (udev && sb)
		udev_properties_print(sb);
	if (!udev) {
		print_facts(&device);
		if (sb)
			print_ours(path, sb);
		else if (superblocks_any(&found))
			remark("%s: a damaged larder superblock; larder super check %s says more", path, path);
		result = print_foreign(&device, &found);
	}
	if (!result && !sb)
		result = LARDER_NOT_FOUND;
	superblocks_free(&found);
	device_close(&device);
	return result;
}

static int probe_all(void)
{
	struct members members;

	members_scan(&members);
	for (size_t i = 0; i < members.number; i++)
		print_ours(members.member[i]->path, &members.member[i]->sb);
	members_remark_damaged();
	members_free(&members);
	return LARDER_DONE;
}

int probe(int argc, char **argv)
{
	bool udev = false;
	const struct argument arguments[] = {
		{ "udev", 0, ARGUMENT_FLAG, &udev, NULL, "print the properties that udev rules set: ID_FS_...=, LARDER_...=" }, ARGUMENTS_END
	};
	int first, result, worst = LARDER_DONE;

	if (!arguments_words(argc, argv, "larder probe [--udev] [DEVICE...]", arguments, 0, -1, &first, &result))
		return result;
	if (first == argc)
		return udev ? complain(LARDER_USAGE, "--udev: a device is missing") : probe_all();
	for (int i = first; i < argc; i++) {
		result = probe_one(argv[i], udev);
		worst = worst ? worst : result;
	}
	return worst;
}
