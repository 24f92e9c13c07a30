// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Metrics by HTTP.
 *
 * The kernel is asked in a child process, as devices that hang may hang that; one at a time, and what it has to say is for all who have asked by then, and
 * for those who ask in the second behind that: nobody has the kernel asked without a pause.  A connection is in one of these states:
 *
 *  READING	the request comes
 *  WAITING	for the child
 *  WRITING	the answer goes
 *  LINGERING	it has gone; what still comes is thrown away until the client closes, or an answer on its way could be lost by that
 *
 * and ends behind CONNECTION_US at the latest, whatever it does.  Where there are too many, the oldest that reads or lingers ends; where there is none
 * such the new one.  All of this has the lowest priority of the event loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "../lib/message.h"
#include "../lib/metrics.h"
#include "../lib/snapshot.h"
#include "child.h"
#include "http_request.h"
#include "journal.h"
#include "metrics_server.h"

#define PAGE		"/metrics"
#define CONNECTIONS_MAX 16
#define LISTENERS_MAX	8
#define CONNECTION_US	UINT64_C(10000000)
#define RETRY_US	UINT64_C(10000000)
#define PAUSE_US	UINT64_C(1000000)
#define ACCEPTS_MAX	100 /* in a second */
#define ANSWER_MAX	(64u << 20) /* bytes that are read of the child's */

enum state {
	READING,
	WAITING,
	WRITING,
	LINGERING,
};

/* Of all who get it. */
struct answer {
	unsigned users;
	size_t length;
	char *text;
};

struct connection {
	struct metrics_server *server;
	struct connection *next; /* a younger one */
	int fd;
	sd_event_source *io, *timer;
	enum state state;
	struct answer *answer;
	size_t done; /* bytes read, or written */
	char request[HTTP_REQUEST_MAX];
};

struct listener {
	int fd; /* -1: none */
	sd_event_source *io;
};

struct metrics_server {
	sd_event *event;
	struct listener own, given[LISTENERS_MAX]; /* own: where address says */
	unsigned nr_given;
	struct address address; /* length 0: nowhere */
	sd_event_source *retry;
	bool complained;
	struct connection *oldest;
	unsigned connections;
	int collected; /* file with what the child has to say */
	bool collecting;
	struct answer *last; /* younger than a second; or NULL */
	sd_event_source *forget;
};

/* ------------------------------------------------------------------ answers */

static struct answer *answer_new(enum http_status status, const char *type, const char *body, size_t length)
{
	struct answer *answer = must_allocate(calloc(1, sizeof(*answer)));
	char *head = must_print("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sCache-Control: no-store\r\nConnection: close\r\n\r\n",
				http_status_text(status), type, length, status == HTTP_METHOD_NOT_ALLOWED ? "Allow: GET\r\n" : "");

	answer->length = strlen(head) + length;
	answer->text = must_allocate(malloc(answer->length));
	memcpy(answer->text, head, strlen(head));
	memcpy(answer->text + strlen(head), body, length);
	free(head);
	return answer;
}

static struct answer *answer_error(enum http_status status)
{
	char *body = must_print("%s: %s\n", http_status_text(status),
				status == HTTP_UNAVAILABLE ? "what runs cannot be read now; see the journal of larderd" : "larderd answers GET " PAGE);
	struct answer *answer = answer_new(status, "text/plain; charset=utf-8", body, strlen(body));

	free(body);
	return answer;
}

static void answer_leave(struct answer *answer)
{
	if (!answer || --answer->users)
		return;
	free(answer->text);
	free(answer);
}

/* ------------------------------------------------------------------ connections */

static void connection_end(struct connection *c)
{
	struct connection **at = &c->server->oldest;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->server->connections--;
	sd_event_source_disable_unref(c->io);
	sd_event_source_disable_unref(c->timer);
	shutdown(c->fd, SHUT_RDWR); /* a child that was forked meanwhile has it as well */
	close(c->fd);
	answer_leave(c->answer);
	free(c);
}

/* Goes on until the client has to take something first.  False: the connection is gone. */
static bool send_more(struct connection *c)
{
	while (c->done < c->answer->length) {
		ssize_t sent = send(c->fd, c->answer->text + c->done, c->answer->length - c->done, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN && sd_event_source_set_io_events(c->io, EPOLLOUT) >= 0)
			return true;
		if (sent < 0)
			goto gone;
		c->done += (size_t)sent;
	}
	c->state = LINGERING;
	shutdown(c->fd, SHUT_WR);
	if (sd_event_source_set_io_events(c->io, EPOLLIN) >= 0)
		return true;
gone:
	connection_end(c);
	return false;
}

/* Likewise. */
static bool give(struct connection *c, struct answer *answer)
{
	c->answer = answer;
	answer->users++;
	c->state = WRITING;
	c->done = 0;
	return send_more(c);
}

/* ------------------------------------------------------------------ the child */

static _Noreturn void collect(struct metrics_server *server)
{
	struct stalled_list stalled;
	struct mapped_list list;
	sigset_t none;
	FILE *out;
	int result;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	result = snapshot_take(&list);
	stalled_read(&stalled);
	out = result ? NULL : fdopen(server->collected, "w");
	if (out)
		metrics_write(out, &list, &stalled, METRICS_OPENMETRICS);
	_exit(result ? result : !out || ferror(out) || fclose(out));
}

/* NULL: it has nothing to say, and has complained why. */
static struct answer *read_collected(const struct metrics_server *server)
{
	struct stat status;
	struct answer *answer;
	char *body;
	size_t length;

	if (fstat(server->collected, &status) || status.st_size <= 0 || status.st_size > ANSWER_MAX)
		return NULL;
	length = (size_t)status.st_size;
	body = must_allocate(malloc(length));
	answer = pread(server->collected, body, length, 0) == (ssize_t)length ?
			 answer_new(HTTP_OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", body, length) :
			 NULL;
	free(body);
	return answer;
}

static int forget_last(sd_event_source *source, uint64_t when, void *data)
{
	struct metrics_server *server = data;

	(void)source;
	(void)when;
	server->forget = sd_event_source_disable_unref(server->forget);
	answer_leave(server->last);
	server->last = NULL;
	return 0;
}

/* Without memory for the timer it is not kept. */
static void keep(struct metrics_server *server, struct answer *answer)
{
	if (sd_event_add_time_relative(server->event, &server->forget, CLOCK_MONOTONIC, PAUSE_US, PAUSE_US / 10, forget_last, server) < 0)
		return;
	answer->users++;
	server->last = answer;
}

static void give_to_all(struct metrics_server *server, struct answer *answer)
{
	struct connection *next;

	answer->users++;
	for (struct connection *c = server->oldest; c; c = next) {
		next = c->next;
		if (c->state == WAITING)
			give(c, answer);
	}
	answer_leave(answer);
}

static int collected(sd_event_source *source, const siginfo_t *info, void *data)
{
	struct metrics_server *server = data;
	struct answer *answer = info->si_code == CLD_EXITED && !info->si_status ? read_collected(server) : NULL;

	sd_event_source_unref(source);
	server->collecting = false;
	answer = answer ? answer : answer_error(HTTP_UNAVAILABLE);
	keep(server, answer);
	give_to_all(server, answer);
	return 0;
}

static int begin_collecting(struct metrics_server *server)
{
	pid_t child;
	int error;

	if (server->collecting)
		return 0;
	if (ftruncate(server->collected, 0) || lseek(server->collected, 0, SEEK_SET))
		return -errno;
	child = child_fork();
	if (!child)
		collect(server);
	error = child < 0 ? -errno : child_watch(server->event, child, collected, server);
	server->collecting = !error;
	return error;
}

/* ------------------------------------------------------------------ what clients do */

static void take_request(struct connection *c)
{
	ssize_t got = recv(c->fd, c->request + c->done, sizeof(c->request) - c->done, MSG_DONTWAIT);
	enum http_status status;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		connection_end(c);
		return;
	}
	c->done += (size_t)got;
	status = http_judge(c->request, c->done, PAGE);
	if (status == HTTP_MORE)
		return;
	if (status == HTTP_OK && c->server->last) {
		give(c, c->server->last);
		return;
	}
	if (status == HTTP_OK) {
		c->state = WAITING;
		if (sd_event_source_set_io_events(c->io, 0) >= 0 && !begin_collecting(c->server))
			return;
		status = HTTP_UNAVAILABLE;
	}
	give(c, answer_error(status));
}

static void throw_away(struct connection *c)
{
	char bytes[4096];
	ssize_t got = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (!got || (got < 0 && errno != EAGAIN && errno != EINTR))
		connection_end(c);
}

static int connection_event(sd_event_source *source, int fd, uint32_t events, void *data)
{
	struct connection *c = data;

	(void)source;
	(void)fd;
	if ((events & (EPOLLERR | EPOLLHUP)) && !(events & EPOLLIN))
		connection_end(c);
	else if (c->state == READING)
		take_request(c);
	else if (c->state == WRITING)
		send_more(c);
	else if (c->state == LINGERING)
		throw_away(c);
	return 0;
}

static int connection_late(sd_event_source *source, uint64_t when, void *data)
{
	struct connection *c = data;

	(void)source;
	(void)when;
	/* what goes at once does */
	if (c->state != WAITING || give(c, answer_error(HTTP_UNAVAILABLE)))
		connection_end(c);
	return 0;
}

/* Room for one more; false: each of those that are there is being served. */
static bool make_room(struct metrics_server *server)
{
	if (server->connections < CONNECTIONS_MAX)
		return true;
	for (struct connection *c = server->oldest; c; c = c->next)
		if (c->state == READING || c->state == LINGERING) {
			connection_end(c);
			return true;
		}
	return false;
}

static int accept_event(sd_event_source *source, int listener, uint32_t events, void *data)
{
	struct metrics_server *server = data;
	struct connection *c, **at = &server->oldest;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)source;
	(void)events;
	if (fd < 0)
		return 0; /* gone again; or too many files are open, and it is tried again, as often as may be accepted */
	if (!make_room(server)) {
		close(fd);
		return 0;
	}
	c = must_allocate(calloc(1, sizeof(*c)));
	c->server = server;
	c->fd = fd;
	while (*at)
		at = &(*at)->next;
	*at = c;
	server->connections++;
	if (sd_event_add_io(server->event, &c->io, fd, EPOLLIN, connection_event, c) < 0 ||
	    sd_event_source_set_priority(c->io, SD_EVENT_PRIORITY_IDLE) < 0 ||
	    sd_event_add_time_relative(server->event, &c->timer, CLOCK_MONOTONIC, CONNECTION_US, 0, connection_late, c) < 0)
		connection_end(c);
	return 0;
}

/* ------------------------------------------------------------------ where it listens */

static int listener_begin(struct metrics_server *server, struct listener *listener, int fd)
{
	int error = sd_event_add_io(server->event, &listener->io, fd, EPOLLIN, accept_event, server);

	error = error < 0 ? error : sd_event_source_set_priority(listener->io, SD_EVENT_PRIORITY_IDLE);
	error = error < 0 ? error : sd_event_source_set_ratelimit(listener->io, 1000000, ACCEPTS_MAX);
	if (error < 0) {
		listener->io = sd_event_source_disable_unref(listener->io);
		return error;
	}
	listener->fd = fd;
	return 0;
}

static void listener_end(struct listener *listener)
{
	listener->io = sd_event_source_disable_unref(listener->io);
	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
}

/* What a daemon that was killed has left: a socket to which nobody listens. */
static void remove_left_over(const struct address *address)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&address->socket;
	struct stat status;
	int fd;

	if (lstat(un->sun_path, &status) || !S_ISSOCK(status.st_mode))
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)un, sizeof(*un)) && errno == ECONNREFUSED)
		unlink(un->sun_path);
	close(fd);
}

/* The file descriptor, or -errno. */
static int open_socket(const struct address *address)
{
	int family = address->socket.ss_family, yes = 1, fd, error = 0;
	bool v6 = family == AF_INET6;
	mode_t mask;

	if (family == AF_UNIX)
		remove_left_over(address);
	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* the address may be that of an interface which is not up yet */
	if (family != AF_UNIX && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
				  setsockopt(fd, v6 ? SOL_IPV6 : SOL_IP, v6 ? IPV6_FREEBIND : IP_FREEBIND, &yes, sizeof(yes)) ||
				  (v6 && setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &yes, sizeof(yes)))))
		error = -errno;
	mask = umask(0177); /* of a path: for root alone */
	if (!error && (bind(fd, (const struct sockaddr *)&address->socket, address->length) || listen(fd, SOMAXCONN)))
		error = -errno;
	umask(mask);
	if (!error)
		return fd;
	close(fd);
	return error;
}

static void listen_now(struct metrics_server *server);

static int listen_again(sd_event_source *source, uint64_t when, void *data)
{
	struct metrics_server *server = data;

	(void)source;
	(void)when;
	server->retry = sd_event_source_disable_unref(server->retry);
	listen_now(server);
	return 0;
}

static void listen_now(struct metrics_server *server)
{
	int fd = open_socket(&server->address), error = fd < 0 ? fd : listener_begin(server, &server->own, fd);

	if (!error) {
		journal_remark("metrics: listens on %s", server->address.text);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (!server->complained)
		journal_remark("metrics: %s: cannot listen there: %s%s; it is tried again", server->address.text, strerror(-error),
			       error == -EAFNOSUPPORT ? " (RestrictAddressFamilies= of larderd.service, see larderd(8))" : "");
	server->complained = true;
	sd_event_add_time_relative(server->event, &server->retry, CLOCK_MONOTONIC, RETRY_US, 0, listen_again, server);
}

static void listen_no_more(struct metrics_server *server)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&server->address.socket;

	server->retry = sd_event_source_disable_unref(server->retry);
	if (server->own.fd >= 0 && un->sun_family == AF_UNIX)
		unlink(un->sun_path);
	listener_end(&server->own);
	server->address = (struct address){ 0 };
	server->complained = false;
}

void metrics_server_listen(struct metrics_server *server, const struct address *address)
{
	if (address && !strcmp(address->text, server->address.text))
		return;
	listen_no_more(server);
	if (!address)
		return;
	server->address = *address;
	listen_now(server);
}

int metrics_server_take(struct metrics_server *server, int fd)
{
	if (server->nr_given == LISTENERS_MAX)
		return -ENOSPC;
	if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0)
		return -EINVAL;
	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		return -errno;
	return listener_begin(server, &server->given[server->nr_given++], fd);
}

struct metrics_server *metrics_server_new(sd_event *event)
{
	struct metrics_server *server = must_allocate(calloc(1, sizeof(*server)));

	server->event = event;
	server->own.fd = -1;
	for (unsigned i = 0; i < LISTENERS_MAX; i++)
		server->given[i].fd = -1;
	server->collected = memfd_create("larderd-metrics", MFD_CLOEXEC);
	if (server->collected >= 0)
		return server;
	free(server);
	return NULL;
}

void metrics_server_leave(struct metrics_server *server)
{
	for (const struct connection *c = server->oldest; c; c = c->next)
		close(c->fd);
	if (server->own.fd >= 0)
		close(server->own.fd);
	for (unsigned i = 0; i < server->nr_given; i++)
		close(server->given[i].fd);
}

void metrics_server_free(struct metrics_server *server)
{
	while (server->oldest)
		connection_end(server->oldest);
	sd_event_source_disable_unref(server->forget);
	answer_leave(server->last);
	listen_no_more(server);
	for (unsigned i = 0; i < server->nr_given; i++)
		listener_end(&server->given[i]);
	close(server->collected);
	free(server);
}
