// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A polkit for tests: on the bus that DBUS_SYSTEM_BUS_ADDRESS names it lets everybody do the actions that it is given, and prints who asked for what:
 * "action uid interactive".
 *
 *	polkit ACTION...
 *	polkit never	it gives no answer
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

static char **allowed;

static int check(sd_bus_message *call, void *data, sd_bus_error *error)
{
	const char *kind, *key, *sender, *action;
	sd_bus_creds *creds = NULL;
	uint32_t flags;
	uid_t uid = (uid_t)-1;
	int may = 0;

	(void)data;
	(void)error;
	if (sd_bus_message_enter_container(call, 'r', "sa{sv}") < 0 || sd_bus_message_read(call, "s", &kind) < 0 ||
	    sd_bus_message_read(call, "a{sv}", 1, &key, "s", &sender) < 0 || sd_bus_message_exit_container(call) < 0 ||
	    sd_bus_message_read(call, "s", &action) < 0 || sd_bus_message_skip(call, "a{ss}") < 0 || sd_bus_message_read(call, "u", &flags) < 0 ||
	    strcmp(kind, "system-bus-name") || strcmp(key, "name"))
		return sd_bus_reply_method_errorf(call, SD_BUS_ERROR_INVALID_ARGS, "not what polkit expects");
	if (sd_bus_get_name_creds(sd_bus_message_get_bus(call), sender, SD_BUS_CREDS_EUID, &creds) >= 0)
		sd_bus_creds_get_euid(creds, &uid);
	sd_bus_creds_unref(creds);
	for (char **a = allowed; *a; a++)
		may |= !strcmp(*a, action);
	printf("%s %u %u\n", action, (unsigned)uid, flags);
	fflush(stdout);
	if (*allowed && !strcmp(*allowed, "never"))
		return 1;
	return sd_bus_reply_method_return(call, "(bba{ss})", may, 0, 0);
}

static const sd_bus_vtable table[] = {
	SD_BUS_VTABLE_START(0),
	SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})", check, SD_BUS_VTABLE_UNPRIVILEGED),
	SD_BUS_VTABLE_END,
};

int main(int argc, char **argv)
{
	sd_bus *bus = NULL;
	int result = sd_bus_open_system(&bus);

	(void)argc;
	allowed = argv + 1;
	if (result >= 0)
		result = sd_bus_add_object_vtable(bus, NULL, "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority", table, NULL);
	if (result >= 0)
		result = sd_bus_request_name(bus, "org.freedesktop.PolicyKit1", 0);
	if (result >= 0)
		puts("ready");
	fflush(stdout);
	while (result >= 0)
		result = sd_bus_process(bus, NULL) > 0 ? 0 : sd_bus_wait(bus, UINT64_MAX);
	return EXIT_FAILURE;
}
