/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Volumes, looked at again and again. */
#ifndef LARDER_MONITOR_H
#define LARDER_MONITOR_H

#include <stdbool.h>

#include "rates.h"

/* The value of an option like --interval; NULL leaves *seconds as it is.  False: it has complained. */
bool interval_parse(const char *option, const char *text, double *seconds);
/* Sleeps until so long after the sample was taken. */
void interval_wait(const struct sample *since, double seconds);
/*
 * All these volumes run, by name, label, UUID or path?  *known, for volumes_forget() whatever comes of it, has what dm calls them.  Complains of the
 * first that does not.
 */
int volumes_known(const struct mapped_list *list, char *const *names, int number, char ***known);
void volumes_forget(char **known);
/* Is it one of them, by what dm calls it?  Of no names: every volume is. */
bool volume_wanted(const struct mapped *volume, char *const *names, int number);

#endif
