// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The beginning of a request: its line, its header fields, and the empty line behind them.
 *
 * What is not exactly what RFC 9112 lets a client send is refused, but for lines that end without CR.  So is a request with a body: nobody would read
 * that, and it could be taken for another request.
 */
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "http_request.h"

struct words {
	const char *at, *end; /* half open */
};

struct request {
	unsigned minor, hosts;
	bool get, page;
};

static bool is_token(char c)
{
	return c && ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || strchr("!#$%&'*+-.^_`|~", c));
}

/* Without control characters, but tabs; \r at the end of one that has not come to its end may be that of the line. */
static bool is_text(struct words line, bool ended)
{
	for (const char *c = line.at; c < line.end; c++)
		if (((unsigned char)*c < 0x20 && *c != '\t' && !(*c == '\r' && !ended && c + 1 == line.end)) || *c == 0x7f)
			return false;
	return true;
}

static bool is(struct words words, const char *text)
{
	size_t length = strlen(text);

	return (size_t)(words.end - words.at) == length && !memcmp(words.at, text, length);
}

static bool is_name(struct words words, const char *text)
{
	size_t length = strlen(text);

	return (size_t)(words.end - words.at) == length && !strncasecmp(words.at, text, length);
}

/* Up to a character, which is skipped; false: it is not there. */
static bool take(struct words *line, char end, struct words *taken)
{
	const char *found = memchr(line->at, end, (size_t)(line->end - line->at));

	if (!found)
		return false;
	*taken = (struct words){ line->at, found };
	line->at = found + 1;
	return true;
}

/* "/metrics?x=y", or as a proxy has it "http://host/metrics"; "*" is that of OPTIONS. */
static bool take_target(struct words target, const char *page, struct request *r)
{
	static const char scheme[] = "http://";
	size_t length = strlen(scheme);
	struct words path = target;
	const char *query;

	for (const char *c = target.at; c < target.end; c++)
		if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f || *c == '#')
			return false;
	if (is(target, "*"))
		return true;
	if ((size_t)(target.end - target.at) > length && !strncasecmp(target.at, scheme, length)) {
		path.at += length;
		if (*path.at == '/')
			return false;
		path.at = memchr(path.at, '/', (size_t)(path.end - path.at));
		if (!path.at)
			return true; /* "/" */
	}
	if (path.at == path.end || *path.at != '/')
		return false;
	query = memchr(path.at, '?', (size_t)(path.end - path.at));
	path.end = query ? query : path.end;
	r->page = is(path, page);
	return true;
}

static bool take_request_line(struct words line, const char *page, struct request *r)
{
	struct words method, target;

	if (!take(&line, ' ', &method) || !take(&line, ' ', &target) || method.at == method.end)
		return false;
	for (const char *c = method.at; c < method.end; c++)
		if (!is_token(*c))
			return false;
	r->get = is(method, "GET");
	r->minor = is(line, "HTTP/1.1");
	return (r->minor || is(line, "HTTP/1.0")) && take_target(target, page, r);
}

static bool take_field(struct words line, struct request *r)
{
	struct words name, value;

	if (!take(&line, ':', &name) || name.at == name.end)
		return false;
	for (const char *c = name.at; c < name.end; c++)
		if (!is_token(*c))
			return false;
	value = line;
	while (value.at < value.end && (*value.at == ' ' || *value.at == '\t'))
		value.at++;
	while (value.at < value.end && (value.end[-1] == ' ' || value.end[-1] == '\t'))
		value.end--;
	r->hosts += is_name(name, "Host");
	return !is_name(name, "Transfer-Encoding") && (!is_name(name, "Content-Length") || is(value, "0"));
}

static enum http_status judge(const struct request *r)
{
	if (r->hosts > 1 || (r->minor && !r->hosts))
		return HTTP_BAD_REQUEST;
	if (!r->page)
		return HTTP_NOT_FOUND;
	return r->get ? HTTP_OK : HTTP_METHOD_NOT_ALLOWED;
}

enum http_status http_judge(const char *data, size_t length, const char *page)
{
	struct words rest = { data, data + length }, line;
	struct request r = { 0 };
	bool first = true;

	while (take(&rest, '\n', &line)) {
		if ((size_t)(rest.at - data) > HTTP_REQUEST_MAX)
			return HTTP_BAD_REQUEST;
		if (line.at < line.end && line.end[-1] == '\r')
			line.end--;
		if (!first && line.at == line.end)
			return judge(&r);
		if (!is_text(line, true) || !(first ? take_request_line(line, page, &r) : take_field(line, &r)))
			return HTTP_BAD_REQUEST;
		first = false;
	}
	return length < HTTP_REQUEST_MAX && is_text(rest, false) ? HTTP_MORE : HTTP_BAD_REQUEST;
}

const char *http_status_text(enum http_status status)
{
	switch (status) {
	case HTTP_OK:
		return "200 OK";
	case HTTP_NOT_FOUND:
		return "404 Not Found";
	case HTTP_METHOD_NOT_ALLOWED:
		return "405 Method Not Allowed";
	case HTTP_UNAVAILABLE:
		return "503 Service Unavailable";
	default:
		return "400 Bad Request";
	}
}
