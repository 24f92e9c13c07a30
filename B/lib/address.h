/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where a server listens, as ListenStream= of systemd.socket(5) has it: /PATH, V.W.X.Y:PORT, [X::Y]:PORT.  No names, which somebody would have to look up. */
#ifndef LARDER_ADDRESS_H
#define LARDER_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define ADDRESS_WORDS "an absolute path, V.W.X.Y:PORT or [X::Y]:PORT"
#define ADDRESS_TEXT  128 /* with the final zero */

struct address {
	struct sockaddr_storage socket;
	socklen_t length;
	char text[ADDRESS_TEXT]; /* as it was given */
};

/* False: it is none. */
bool address_parse(const char *text, struct address *address);

#endif
