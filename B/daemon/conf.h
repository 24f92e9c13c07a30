/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * larder.conf(5): what starts by itself, what not without all of its devices, how long is waited; who is told when something is wrong.
 *
 *	auto yes|no WHO...         WHO: a name or label, a UUID, or all
 *	degraded yes|no WHO...
 *	wait SECONDS
 *	stall SECONDS
 *	mail ADDRESS
 *	program PATH
 *	metrics-listen ADDRESS
 *
 * Of each keyword the first line decides that names the stack, volume or cache; a line that cannot be understood is said, and ignored: a mistake
 * in this file stops no boot.
 */
#ifndef LARDER_CONF_H
#define LARDER_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan.h"

#define CONF_PATH     "/etc/larder/larder.conf" /* the environment variable LARDER_CONF names another one */
#define CONF_SIZE_MAX 65536
#define CONF_WAIT_DEFAULT UINT64_C(30000000) /* microseconds */
#define CONF_WAIT_MAX_S 86400
#define CONF_STALL_DEFAULT_S 30
#define CONF_MAIL_MAX 254

enum conf_about {
	CONF_AUTO,
	CONF_DEGRADED,
};

struct conf_rule {
	enum conf_about about;
	bool yes, all, is_uuid;
	uint8_t uuid[16];
	char name[LARDER_LABEL_SIZE + 1];
};

struct conf {
	struct conf_rule *rule; /* in the order of the file */
	size_t number;
	uint64_t wait; /* microseconds */
	unsigned stall; /* seconds; 0: nobody looks */
	char *mail, *program; /* of alerts; NULL: none */
	char *metrics_listen; /* NULL: nowhere */
};

/* say: a line for each mistake, with path and number of the line.  No I/O. */
void conf_parse(struct conf *conf, const char *text, size_t length, const char *path, void (*say)(const char *line, void *data), void *data);
/* A file that is not there is an empty one; one that is, and cannot be read, is "auto no all". */
void conf_read(struct conf *conf, void (*say)(const char *line, void *data), void *data);
void conf_free(struct conf *conf);
/* Seconds as --wait, and stall, have them too; *wait: microseconds. */
bool conf_parse_wait(const char *text, uint64_t *wait);
/* Marks members as left, and as whole, and what is here of arrays as left; the order in which they are listed does not matter. */
void conf_apply(const struct conf *conf, struct facts *facts);

#endif
