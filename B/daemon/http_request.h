/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests of HTTP/1.1 (RFC 9112), as far as who serves one page needs to understand them.  Bytes in, a status out: no I/O. */
#ifndef LARDER_HTTP_REQUEST_H
#define LARDER_HTTP_REQUEST_H

#include <stddef.h>

#define HTTP_REQUEST_MAX 8192 /* bytes of a request line and the header fields behind it */

enum http_status {
	HTTP_MORE = 0, /* it has not come to its end yet */
	HTTP_OK = 200, /* GET of the page */
	HTTP_BAD_REQUEST = 400,
	HTTP_NOT_FOUND = 404,
	HTTP_METHOD_NOT_ALLOWED = 405,
	HTTP_UNAVAILABLE = 503, /* never of a request */
};

/*
 * How a request that begins with these bytes is to be answered, where the one page is called that.  Whatever comes behind bytes that were judged changes
 * nothing any more.
 */
enum http_status http_judge(const char *data, size_t length, const char *page);
/* "404 Not Found" */
const char *http_status_text(enum http_status status);

#endif
