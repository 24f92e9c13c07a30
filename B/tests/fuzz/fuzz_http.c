// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for requests to larderd (daemon/http_request.c): the input is what a client sends.  Aborts where it is judged otherwise when it
 * comes byte by byte, where what comes behind changes the judgement, or where something is served that does not ask for it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../daemon/http_request.h"

#define PAGE "/metrics"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_http: broken: %s\n", what);
	abort();
}

/* Of so many bytes, and none behind them that could be read. */
static enum http_status judge(const uint8_t *data, size_t size)
{
	char *copy = malloc(size ? size : 1);
	enum http_status status;

	memcpy(copy, data, size);
	status = http_judge(copy, size, PAGE);
	free(copy);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum http_status whole, status = HTTP_MORE;
	size_t n = 0;

	size = size > HTTP_REQUEST_MAX ? HTTP_REQUEST_MAX : size;
	whole = judge(data, size);
	must(whole == HTTP_MORE || whole == HTTP_OK || whole == HTTP_BAD_REQUEST || whole == HTTP_NOT_FOUND || whole == HTTP_METHOD_NOT_ALLOWED, "status");
	must(strlen(http_status_text(whole)) > 4, "its text");
	while (!(status = judge(data, n)) && n < size)
		n++;
	must(status == whole, "in pieces it is another request");
	if (whole != HTTP_OK)
		return 0;
	must(n > 4 && !memcmp(data, "GET ", 4) && memmem(data, n, PAGE, strlen(PAGE)), "what was served was not asked for");
	must(data[n - 1] == '\n' && (data[n - 2] == '\n' || data[n - 3] == '\n'), "it was served before its end");
	return 0;
}
