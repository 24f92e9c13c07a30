// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Addresses of a server.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "address.h"

static bool parse_port(const char *text, in_port_t *port)
{
	unsigned long number = 0;

	if (*text < '1' || *text > '9' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 5)
		return false;
	number = strtoul(text, NULL, 10);
	*port = htons((uint16_t)number);
	return number <= UINT16_MAX;
}

static bool parse_path(const char *text, struct address *address)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&address->socket;

	if (strlen(text) >= sizeof(un->sun_path) || text[strlen(text) - 1] == '/')
		return false;
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c <= 0x20 || *c == 0x7f)
			return false;
	un->sun_family = AF_UNIX;
	strcpy(un->sun_path, text);
	address->length = sizeof(*un);
	return true;
}

static bool parse_v6(const char *text, struct address *address)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address->socket;
	const char *end = strstr(text, "]:");
	char host[INET6_ADDRSTRLEN];

	if (!end || (size_t)(end - text - 1) >= sizeof(host))
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)(end - text - 1), text + 1);
	in6->sin6_family = AF_INET6;
	address->length = sizeof(*in6);
	return inet_pton(AF_INET6, host, &in6->sin6_addr) == 1 && parse_port(end + 2, &in6->sin6_port);
}

static bool parse_v4(const char *text, struct address *address)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&address->socket;
	const char *end = strchr(text, ':');
	char host[INET_ADDRSTRLEN];

	if (!end || (size_t)(end - text) >= sizeof(host))
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)(end - text), text);
	in->sin_family = AF_INET;
	address->length = sizeof(*in);
	return inet_pton(AF_INET, host, &in->sin_addr) == 1 && parse_port(end + 1, &in->sin_port);
}

bool address_parse(const char *text, struct address *address)
{
	*address = (struct address){ 0 };
	if (!*text || strlen(text) >= sizeof(address->text))
		return false;
	strcpy(address->text, text);
	return *text == '/' ? parse_path(text, address) : *text == '[' ? parse_v6(text, address) : parse_v4(text, address);
}
