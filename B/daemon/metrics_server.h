/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `larder metrics` prints, for whoever asks by HTTP: GET /metrics, and nothing else.  Off unless somebody says where to listen.
 *
 * No client holds up the daemon, nor another client for good: a bounded number of connections, each with a bounded request and a bounded time in all.
 */
#ifndef LARDER_METRICS_SERVER_H
#define LARDER_METRICS_SERVER_H

#include <systemd/sd-event.h>

#include "../lib/address.h"

struct metrics_server;

struct metrics_server *metrics_server_new(sd_event *event);
/* Listens there from now on, and nowhere else that was said by this before; NULL: nowhere.  What fails is remarked, and tried again. */
void metrics_server_listen(struct metrics_server *server, const struct address *address);
/* A socket that listens already, from systemd, and stays.  Returns 0 or -errno. */
int metrics_server_take(struct metrics_server *server, int fd);
/* In a child, which must not hold connections open that its parent has closed. */
void metrics_server_leave(struct metrics_server *server);
void metrics_server_free(struct metrics_server *server);

#endif
