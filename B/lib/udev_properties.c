// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A superblock as properties of udev.  All SSDs of a cache, and its spares, have one ID_FS_UUID, as the legs of an array have; ID_FS_UUID_SUB tells
 * them apart.  What a label may hold is encoded as libblkid does it: bytes that are not plain as \xNN.
 */
#include <ctype.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "udev_properties.h"

static void print_encoded(const char *key, const char *text)
{
	printf("%s=", key);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		if (isalnum(*c) || strchr("#+-.:=@_", *c) || *c >= 0x80)
			putchar(*c);
		else
			printf("\\x%02x", *c);
	putchar('\n');
}

static void print_safe(const char *key, const char *text)
{
	printf("%s=", key);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		putchar(isalnum(*c) || strchr("#+-.:=@_", *c) || *c >= 0x80 ? *c : '_');
	putchar('\n');
}

void udev_properties_print(const union superblock *sb)
{
	uint32_t kind = le32toh(sb->head.kind);
	char label[LARDER_LABEL_SIZE + 1], uuid[UUID_TEXT];

	printf("ID_FS_TYPE=larder_member\nID_FS_USAGE=raid\nID_FS_VERSION=%u\n", le32toh(sb->head.version));
	printf("LARDER_KIND=%s\nLARDER_UUID=%s\n", kind_text(kind), uuid_text(sb->head.uuid, uuid));
	printf("ID_FS_UUID_SUB=%s\nID_FS_UUID_SUB_ENC=%s\n", uuid, uuid);
	if (kind != LARDER_KIND_CACHE && kind != LARDER_KIND_VOLUME && kind != LARDER_KIND_SPARE) {
		printf("ID_FS_UUID=%s\nID_FS_UUID_ENC=%s\n", uuid, uuid);
		return;
	}
	uuid_text(kind == LARDER_KIND_VOLUME ? sb->head.uuid : sb->cache.cache_uuid, uuid);
	printf("ID_FS_UUID=%s\nID_FS_UUID_ENC=%s\n", uuid, uuid);
	/* cache_uuid and label lie at the same place in all three */
	if (!uuid_is_zero(sb->cache.cache_uuid))
		printf("LARDER_CACHE_UUID=%s\n", uuid_text(sb->cache.cache_uuid, uuid));
	label_text(sb->cache.label, label);
	if (*label) {
		print_safe("ID_FS_LABEL", label);
		print_encoded("ID_FS_LABEL_ENC", label);
		print_encoded("LARDER_LABEL_ENC", label);
	}
	if (kind == LARDER_KIND_VOLUME)
		printf("LARDER_MAY_BE_DIRTY=%d\n", !!(le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY));
	else if (kind == LARDER_KIND_CACHE)
		printf("LARDER_DEVICE_NUMBER=%u\nLARDER_NR_DEVICES=%u\n", le32toh(sb->cache.device_number),
		       le32toh(sb->cache.nr_devices));
}
