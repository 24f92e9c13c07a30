// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what the daemon's part on D-Bus reads (daemon/bus_call.c, daemon/objects.c): the arguments of SetOption, what a command has said, and the
 * objects of a pass.  Input: a byte (0: key and value, each ended by a NUL; 1: what a command says; else objects).  Aborts where an option could be taken for more, or
 * an error is no plain line, or objects are others when they are written and read again.
 */
#include <sys/mman.h>
#include <sys/socket.h>

#include "../../daemon/bus_call.c"
#include "input.h"

/* A message needs a bus; nobody is at its other end. */
static sd_bus *a_bus(void)
{
	static sd_bus *bus;
	static int ends[2];

	if (bus)
		return bus;
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), "a socket");
	must(sd_bus_new(&bus) >= 0 && sd_bus_set_fd(bus, ends[0], ends[0]) >= 0 && sd_bus_start(bus) >= 0, "a bus");
	return bus;
}

static void try_option(const uint8_t *data, size_t size)
{
	char *key = input_next(&data, &size), *value = input_next(&data, &size), *option = NULL;
	sd_bus_error error = SD_BUS_ERROR_NULL;
	sd_bus_message *message = NULL;

	must(sd_bus_message_new_method_call(a_bus(), &message, BUS_NAME, BUS_ROOT, BUS_NAME ".Cache", "SetOption") >= 0, "a message");
	if (sd_bus_message_append(message, "ss", key, value) >= 0) { /* else it is no UTF-8 */
		must(sd_bus_message_seal(message, 1, 0) >= 0, "a message");
		if (read_option(message, &option, &error) < 0) {
			must(!option && sd_bus_error_is_set(&error), "why it is refused");
		} else {
			size_t length = strspn(option, "abcdefghijklmnopqrstuvwxyz0123456789_");

			must(length && length == strlen(key) && !strncmp(option, key, length) && option[length] == '=', "a key");
			must(!strcmp(option + length + 1, value), "its value");
		}
	}
	sd_bus_error_free(&error);
	sd_bus_message_unref(message);
	free(option);
	free(value);
	free(key);
}

static void try_words(const uint8_t *data, size_t size)
{
	struct call *call = calloc(1, sizeof(*call));
	const char *line;
	int ends[2];

	must(call && !pipe2(ends, O_CLOEXEC | O_NONBLOCK), "a pipe");
	must(write(ends[1], data, size) == (ssize_t)size, "room");
	close(ends[1]);
	call->said = ends[0];
	must(!hear(call) && call->length < SAID_MAX, "all of it is heard");
	line = last_line(call);
	for (const unsigned char *c = (const unsigned char *)line; *c; c++)
		must(*c >= 0x20 && *c != 0x7f, "a plain line");
	close(ends[0]);
	free(call);
}

static int file_of(const uint8_t *data, size_t size)
{
	int file = memfd_create("objects", MFD_CLOEXEC);

	must(file >= 0 && write(file, data, size) == (ssize_t)size, "memory");
	return file;
}

static void try_objects(const uint8_t *data, size_t size)
{
	int file = file_of(data, size);
	struct objects objects, again;

	if (objects_read(&objects, file)) {
		for (size_t i = 0; i < objects.number; i++) {
			const struct object *o = &objects.object[i];

			must(o->kind < NR_OBJECT_KINDS && objects_find(&objects, o->path) == o, "its kind, and its path once");
			must(object_value(o, "UUID") && !object_value(o, "None"), "its values");
		}
		must(!objects_write(&objects, file) && objects_read(&again, file) && again.number == objects.number, "they are read again");
		for (size_t i = 0; i < again.number; i++) {
			const struct object *a = &again.object[i], *o = &objects.object[i];

			must(a->kind == o->kind && !strcmp(a->path, o->path), "the same object");
			for (size_t k = 0; k < object_classes[a->kind].number; k++)
				must(!strcmp(a->value[k], o->value[k]), "the same value");
		}
		objects_free(&again);
		objects_free(&objects);
	}
	close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] == 0)
		try_option(data + 1, size - 1);
	else if (data[0] == 1)
		try_words(data + 1, size - 1);
	else
		try_objects(data + 1, size - 1);
	return 0;
}
