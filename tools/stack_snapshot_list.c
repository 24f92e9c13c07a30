// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder snapshot list: a line for each snapshot.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stack_layers.h"
#include "stack_snapshot.h"
#include "verbs.h"

static const struct field fields[] = {
	{ "snapshot", VALUE_TEXT, "Snapshot", "NAME@SNAPSHOT" },
	{ "stack", VALUE_TEXT, "Stack", "whose it is" },
	{ "name", VALUE_TEXT, "Name", "without that of the stack" },
	{ "state", VALUE_TEXT, "State", "valid; stopped; invalid: its store was full, or failed, or its device was removed beside the stack, and it is lost; lost: that was noted, or it was given up; overflow: a write to it has failed, as the store is full; creating, removing: cut short" },
	{ "used", VALUE_BYTES, "Used", "of its store" },
	{ "size", VALUE_BYTES, "Size", "of its store: where that is full the snapshot is lost" },
	{ "percent", VALUE_NUMBER, "%", "of its store that is used" },
	{ "store", VALUE_TEXT, "Store", "device that keeps what has changed; empty: it is not here" },
	{ "device", VALUE_TEXT, "Device", "to read it from" },
	{ "uuid", VALUE_TEXT, "UUID", "of the store" },
};

static void add(struct report *report, const struct stacks *stacks, const struct stack *stack, const struct stack_snapshot *one)
{
	const struct mapped *volume = stack_volume(stacks, stack);
	char *name = cow_snapshot_name(stack->name, one->name), *shown = cow_snapshot_name(volume ? volume->name : stack->name, one->name), text[UUID_TEXT];
	const struct member *store;
	struct cow_status status;
	struct row row = { 0 };
	uint8_t part[16], uuid[16];

	stack_part(stack, "volume", part);
	stack_snapshot_uuid(stack, one, uuid);
	store = cow_store(&stacks->members, uuid);
	cow_status(part, uuid, &status);
	report_set(report, &row, "snapshot", "%s", name);
	report_set(report, &row, "stack", "%s", stack->name);
	report_set(report, &row, "name", "%s", one->name);
	report_set(report, &row, "state", "%s", cow_state_text(one, &status));
	report_set(report, &row, "uuid", "%s", uuid_text(uuid, text));
	if (status.total) {
		report_set(report, &row, "used", "%" PRIu64, status.used);
		report_set(report, &row, "size", "%" PRIu64, status.total);
		report_set(report, &row, "percent", "%u", cow_percent(&status));
	} else if (store) {
		report_set(report, &row, "size", "%" PRIu64, store->bytes - COW_STORE_OFFSET);
	}
	if (store)
		report_set(report, &row, "store", "%s", store->path);
	if (cow_is_there(&status))
		report_set(report, &row, "device", "/dev/mapper/%s", shown);
	report_add(report, &row);
	free(shown);
	free(name);
}

static void add_all(struct report *report, const struct stacks *stacks, const struct found *found)
{
	for (uint32_t i = 0; i < found->stack.snapshots; i++)
		add(report, stacks, &found->stack, &found->stack.snapshot[i]);
}

int snapshot_list(int argc, char **argv)
{
	static const char usage[] = "larder snapshot list [NAME...] [-o FIELD,...] [--sort FIELD,...] [--units UNIT] [--noheadings] [--reportformat json]";
	struct report_options options = { .units = { 'h', true } };
	const struct argument arguments[] = { REPORT_ARGUMENTS(options), ARGUMENTS_END };
	const struct field *sections[] = { fields };
	const size_t counts[] = { sizeof(fields) / sizeof(fields[0]) };
	const struct found *found;
	struct report *report;
	struct stacks stacks;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 0, -1, &first, &result))
		return result;
	report = report_new("snapshots", sections, counts, 1, "snapshot,state,used,size,percent,store,device", &options, &result);
	if (!report)
		return result;
	mapped_init(false);
	result = stacks_scan(&stacks);
	for (size_t i = 0; !result && first == argc && i < stacks.number; i++)
		add_all(report, &stacks, &stacks.found[i]);
	for (int i = first; !result && i < argc; i++) {
		result = stack_find(&stacks, argv[i], &found);
		if (!result)
			add_all(report, &stacks, found);
	}
	stacks_free(&stacks);
	if (!result)
		return report_print(report);
	report_discard(report);
	return result;
}
