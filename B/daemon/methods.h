/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The methods of org.larder1, and the command that each is: words, made of its arguments. */
#ifndef LARDER_METHODS_H
#define LARDER_METHODS_H

#include <systemd/sd-bus.h>

#include "objects.h"

#define METHOD_OF_MANAGER NR_OBJECT_KINDS /* in the place of a kind of object */
#define METHOD_TEXTS_MAX (64 * 1024) /* bytes of a call's arguments, names of options included */

struct method_option;

struct method {
	int kind; /* of object */
	const char *member, *action; /* of polkit, behind BUS_NAME; an option may ask for another one */
	const char *words[4]; /* of the command */
	const char *signature, *names; /* of the arguments; names as sd-bus has them, each with a zero behind it */
	const char *form[4]; /* how each argument becomes words, see methods.c */
	const struct method_option *options; /* that an argument a{sv} may have */
	const char *job; /* kind of job that is shown while it runs; NULL: it takes no time worth that */
	bool cancel; /* it may be cut off: the same again goes on */
};

/* All of them, the last one without a member. */
extern const struct method methods[];

/* What is to be run. */
struct command {
	char **words; /* behind "larder"; NULL: nothing */
	size_t number;
	int in; /* its stdin, a secret, say; -1: none */
	const char *action;
};

/*
 * Reads the arguments.  object: NULL of the manager.  Returns a negative errno, with the error set, or 0; then command_free().  What the words mean the
 * command judges: here is only seen to it that no argument becomes an option.
 */
int method_command(const struct method *method, const struct object *object, sd_bus_message *call, struct command *command, sd_bus_error *error);
void command_free(struct command *command);

#endif
