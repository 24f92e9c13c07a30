/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the daemon itself says, a line in the journal, or on stderr where there is none: without ever waiting for whoever reads that.
 * In its children, which may wait, this is not used.
 */
#ifndef LARDER_JOURNAL_H
#define LARDER_JOURNAL_H

#include <systemd/sd-event.h>

/* Before the first line.  0, or -errno. */
int journal_open(sd_event *event);
/* Of a priority as syslog has them; fields: "NAME=value\n" each, or "". */
void journal_say(int priority, const char *fields, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What is no more than worth knowing. */
void journal_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What nobody has taken by then is lost. */
void journal_close(void);

#endif
