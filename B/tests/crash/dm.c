// SPDX-License-Identifier: GPL-2.0-or-later
/* Device-mapper by ioctl, with nodes made as dmsetup makes them where no udev does. */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "explore.h"

#define ROOM	16384

struct request {
	struct dm_ioctl h;
	char data[ROOM];
};

static int call(unsigned long number, struct request *q, const char *name, uint32_t flags)
{
	static int fd = -1;

	if (fd < 0)
		fd = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	q->h.version[0] = DM_VERSION_MAJOR;
	q->h.version[1] = q->h.version[2] = 0;
	q->h.data_size = sizeof(*q);
	q->h.data_start = offsetof(struct request, data);
	q->h.flags = flags;
	q->h.event_nr = 0;
	snprintf(q->h.name, sizeof(q->h.name), "%s", name);
	return ioctl(fd, number, q) ? -errno : 0;
}

static int load(const char *name, const char *table)
{
	struct request q = { 0 };
	struct dm_target_spec *t;
	char line[1024], type[16];
	size_t at = 0, len;
	int used;

	while (*table) {
		len = strcspn(table, "\n");
		if (len >= sizeof(line) || at + sizeof(*t) + len + 8 > ROOM)
			return -E2BIG;
		memcpy(line, table, len);
		line[len] = 0;
		table += len + (table[len] == '\n');
		t = (struct dm_target_spec *)(q.data + at);
		if (sscanf(line, "%llu %llu %15s %n", &t->sector_start, &t->length, type, &used) != 3)
			return -EINVAL;
		strcpy(t->target_type, type);
		strcpy((char *)(t + 1), line + used);
		t->next = (sizeof(*t) + strlen(line + used) + 1 + 7) / 8 * 8;
		at += t->next;
		q.h.target_count++;
	}
	return call(DM_TABLE_LOAD, &q, name, 0);
}

int dm_create(const char *name, const char *table)
{
	struct request q = { 0 };
	char path[64];
	dev_t number;
	int err = call(DM_DEV_CREATE, &q, name, 0);

	if (err)
		return err;
	number = q.h.dev;
	err = load(name, table);
	if (!err)
		err = call(DM_DEV_SUSPEND, memset(&q, 0, sizeof(q)), name, 0);
	if (err) {
		call(DM_DEV_REMOVE, memset(&q, 0, sizeof(q)), name, 0);
		return err;
	}
	snprintf(path, sizeof(path), "/dev/mapper/%s", name);
	unlink(path);
	return mknod(path, 0600 | S_IFBLK, makedev(number >> 8 & 0xfff, (number & 0xff) | (number >> 12 & 0xfff00))) ? -errno : 0;
}

int dm_remove(const char *name)
{
	struct request q;
	char path[64];
	int err, tries;

	snprintf(path, sizeof(path), "/dev/mapper/%s", name);
	unlink(path);
	for (tries = 0; tries < 20000; tries++) {
		err = call(DM_DEV_REMOVE, memset(&q, 0, sizeof(q)), name, 0);
		if (err != -EBUSY)
			break;
		usleep(500);
	}
	return err;
}

int dm_message(const char *name, const char *text)
{
	struct request q = { 0 };
	struct dm_target_msg *m = (struct dm_target_msg *)q.data;

	snprintf(m->message, ROOM - sizeof(*m), "%s", text);
	return call(DM_TARGET_MSG, &q, name, 0);
}

int64_t dm_status(const char *name, const char *key)
{
	struct request q = { 0 };
	char word[64], *at;
	int err = call(DM_TABLE_STATUS, &q, name, 0);

	if (err)
		return err;
	snprintf(word, sizeof(word), " %s=", key);
	at = strstr(q.data + sizeof(struct dm_target_spec), word);
	return at ? atoll(at + strlen(word)) : -ENODATA;
}
