// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon/http_request.c: which request is answered how; the same whether it comes at once or in pieces.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../daemon/http_request.c"

#define HOST "Host: x\r\n"

static const struct {
	const char *request;
	enum http_status status;
} cases[] = {
	{ "GET /metrics HTTP/1.1\r\n" HOST "\r\n", HTTP_OK },
	{ "GET /metrics HTTP/1.1\nhost:x\n\n", HTTP_OK },
	{ "GET /metrics?a=b HTTP/1.1\r\n" HOST "Accept: */*\r\nX-Empty:\r\nX: a\tb\xff\r\n\r\n", HTTP_OK },
	{ "GET http://a:1/metrics?x HTTP/1.1\r\n" HOST "\r\n", HTTP_OK },
	{ "GET HTTP://a/metrics HTTP/1.1\r\n" HOST "\r\n", HTTP_OK },
	{ "GET /metrics HTTP/1.0\r\n\r\n", HTTP_OK },
	{ "GET /metrics HTTP/1.1\r\n" HOST "Content-Length: 0 \r\n\r\n", HTTP_OK },
	{ "GET /metrics HTTP/1.1\r\n" HOST "\r\nGET /x HTTP/1.1\r\n\r\n", HTTP_OK },
	{ "GET / HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_FOUND },
	{ "GET /metric HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_FOUND },
	{ "GET /metrics2 HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_FOUND },
	{ "GET //metrics HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_FOUND },
	{ "GET /METRICS HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_FOUND },
	{ "GET http://a HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_FOUND },
	{ "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_FOUND },
	{ "POST /x HTTP/1.1\r\n" HOST "\r\n", HTTP_NOT_FOUND },
	{ "HEAD /metrics HTTP/1.1\r\n" HOST "\r\n", HTTP_METHOD_NOT_ALLOWED },
	{ "get /metrics HTTP/1.1\r\n" HOST "\r\n", HTTP_METHOD_NOT_ALLOWED },
	{ "!#$%&'*+-.^_`|~09Az /metrics HTTP/1.1\r\n" HOST "\r\n", HTTP_METHOD_NOT_ALLOWED },
	{ "\r\n", HTTP_BAD_REQUEST },
	{ "GET\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics\r\n\r\n", HTTP_BAD_REQUEST },
	{ "GET  /metrics HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ " /metrics HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1 \r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.2\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/2.0\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics http/1.1\r\n", HTTP_BAD_REQUEST },
	{ "GET metrics HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ "GET http:///metrics HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics#x HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics\t HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ "GET /m\xc3\xa4 HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ "G(T /metrics HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ "CONNECT a:1 HTTP/1.1\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST HOST "\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.0\r\n" HOST HOST "\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\nHost : x\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST " folded\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST "nothing\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST ": x\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST "X: a\rb", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST "X: \x7f", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST "content-length: 1\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST "Content-Length:\r\n", HTTP_BAD_REQUEST },
	{ "GET /metrics HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n", HTTP_BAD_REQUEST },
	{ "\x16\x03\x01", HTTP_BAD_REQUEST },
	{ "", HTTP_MORE },
	{ "GET /met", HTTP_MORE },
	{ "GET /metrics HTTP/1.1\r\n", HTTP_MORE },
	{ "GET /metrics HTTP/1.1\r\n" HOST, HTTP_MORE },
	{ "GET /metrics HTTP/1.1\r\n" HOST "\r", HTTP_MORE },
};

#include "check.h"

/* As it comes byte by byte; from the heap, so that a byte behind it is noticed. */
static enum http_status in_pieces(const char *request, size_t length)
{
	enum http_status status = HTTP_MORE;

	for (size_t n = 0; !status && n <= length; n++) {
		char *copy = malloc(n ? n : 1);

		memcpy(copy, request, n);
		status = http_judge(copy, n, "/metrics");
		free(copy);
	}
	return status;
}

int main(void)
{
	static char large[HTTP_REQUEST_MAX + 1];
	bool whole = true, pieces = true;
	size_t length;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		enum http_status at_once = http_judge(cases[i].request, strlen(cases[i].request), "/metrics");

		if (at_once != cases[i].status)
			printf("# %d, not %d: %s\n", at_once, cases[i].status, cases[i].request);
		whole &= at_once == cases[i].status;
		pieces &= in_pieces(cases[i].request, strlen(cases[i].request)) == cases[i].status;
	}
	check(whole, "each request has its status");
	check(pieces, "in pieces, too");
	length = (size_t)sprintf(large, "GET /metrics HTTP/1.1\r\n" HOST "X: ");
	memset(large + length, 'y', sizeof(large) - length);
	check(http_judge(large, HTTP_REQUEST_MAX - 1, "/metrics") == HTTP_MORE && http_judge(large, HTTP_REQUEST_MAX, "/metrics") == HTTP_BAD_REQUEST,
	      "of one that is too long the end is not waited for");
	memcpy(large + HTTP_REQUEST_MAX - 4, "\r\n\r\n", 4);
	check(http_judge(large, HTTP_REQUEST_MAX, "/metrics") == HTTP_OK, "the longest one is served");
	return failed;
}
