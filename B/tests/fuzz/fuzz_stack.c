// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for the description of stacks (lib/stack.c).  Input: a byte that says what the field is of, and the JSON in it;
 * with bit 1 of that byte the field as it is, head and all.  Aborts where what was accepted is out of bounds, or is not the same after
 * it was written and read again.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "stack.h"

static void check(const struct stack *s)
{
	struct stack next = *s;
	uint32_t behind = 0;

	while (stack_next(&next, &next))
		must(name_valid(next.name) && ++behind <= 64, "those behind it");
	must(behind == s->next, "number of those behind it");
	must(name_valid(s->name) && !uuid_is_zero(s->uuid) && !uuid_is_zero(s->cache), "name, uuid, cache");
	must(s->legs >= 1 && s->legs <= 64 && s->step < NR_STEPS && s->state <= STACK_REMOVING, "numbers");
	must(!*s->raid || stack_raid_valid(s->raid), "raid");
	must(!s->spares || (*s->raid && s->legs + s->spares <= 64), "spares");
	must(!s->size || (s->size % 4096 == 0 && s->size <= INT64_MAX && s->state != STACK_READY), "size");
	must(!*s->integrity || (stack_integrity_valid(s->integrity) && *s->raid && strcmp(s->raid, "0")), "integrity");
	must(!*s->fs || stack_fs_valid(s->fs), "fs");
	must(!*s->mount || stack_text_valid(s->mount, true), "mount");
	must(!*s->aead || (s->encrypted && stack_aead_valid(s->aead)), "aead");
	must(s->snapshots <= SNAPSHOTS_MAX && (!s->snapshots || s->state == STACK_READY), "snapshots");
	for (uint32_t i = 0; i < s->snapshots; i++) {
		const struct stack_snapshot *one = &s->snapshot[i];

		must(snapshot_name_valid(one->name) && one->serial && one->state <= SNAPSHOT_LOST, "snapshot");
		for (uint32_t k = 0; k < i; k++)
			must(one->serial != s->snapshot[k].serial && strcmp(one->name, s->snapshot[k].name), "two snapshots");
	}
	must(!*s->keyfile || (s->encrypted && stack_text_valid(s->keyfile, true)), "keyfile");
	must(!*s->token || (s->encrypted && s->state != STACK_READY), "token");
}

static void one(const uint8_t *field)
{
	uint8_t again[LARDER_STACK_SIZE];
	struct stack a, b;
	bool there;

	if (stack_decode(field, &a, &there) || !there)
		return;
	check(&a);
	/* what has more in it than is needed, spaces say, may not fit when it is written anew, and the other way round */
	if (stack_encode(&a, again))
		return;
	must(!stack_decode(again, &b, &there) && there, "it is refused when read again");
	must(!memcmp(&a, &b, sizeof(a)), "it is another one when read again");
}

static void list(const uint8_t *field)
{
	static struct stack_list a, b;
	uint8_t again[LARDER_STACK_SIZE];
	bool there;

	if (stack_list_decode(field, &a, &there))
		return;
	must(a.number <= STACK_LIST_MAX, "number");
	for (size_t i = 0; i < a.number; i++) {
		must(name_valid(a.stack[i].name) && !uuid_is_zero(a.stack[i].uuid), "entry");
		if (!a.brief[i])
			check(&a.stack[i]);
	}
	if (stack_list_encode(&a, again))
		return;
	must(!stack_list_decode(again, &b, &there) && a.number == b.number && !memcmp(a.host, b.host, sizeof(a.host)) && !memcmp(a.label, b.label, sizeof(a.label)),
	     "the list is another one when read again");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t field[LARDER_STACK_SIZE] = { 0 };
	uint32_t head[4] = { htole32(0x4b54534c), htole32(1) };
	size_t at = 0, room = sizeof(field);

	if (!size)
		return 0;
	if (!(data[0] & 2)) {
		at = sizeof(head);
		room -= at;
		head[2] = htole32(data[0] & 1 ? 2 : 1);
		head[3] = htole32((uint32_t)(size - 1 < room ? size - 1 : room));
		memcpy(field, head, sizeof(head));
	}
	memcpy(field + at, data + 1, size - 1 < room ? size - 1 : room);
	one(field);
	list(field);
	return 0;
}

#ifdef STANDALONE
/* One edit: a byte, a piece cut out, or a piece copied to another place. */
static size_t edit(uint8_t *data, size_t size, size_t room)
{
	size_t from = (size_t)rand() % size, to = (size_t)rand() % size, length = (size_t)rand() % 32;

	if (from + length > size)
		length = size - from;
	switch (rand() % 4) {
	case 0:
		data[from] = (uint8_t)rand();
		return size;
	case 1:
		data[from] ^= (uint8_t)(1u << rand() % 8);
		return size;
	case 2:
		if (length >= size)
			return size;
		memmove(data + from, data + from + length, size - from - length);
		return size - length;
	default:
		if (size + length > room)
			return size;
		memmove(data + to + length, data + to, size - to);
		memmove(data + to, data + (from < to ? from : from + length), length);
		return size + length;
	}
}

/* fuzz_stack SEED NUMBER FILE: so many times the file, with a few random edits. */
int main(int argc, char **argv)
{
	static uint8_t whole[2 * LARDER_STACK_SIZE], data[2 * LARDER_STACK_SIZE];
	FILE *file = argc == 4 ? fopen(argv[3], "re") : NULL;
	size_t size = file ? fread(whole, 1, LARDER_STACK_SIZE, file) : 0;

	must(size, "usage: fuzz_stack SEED NUMBER FILE");
	fclose(file);
	srand((unsigned)atoi(argv[1]));
	LLVMFuzzerTestOneInput(whole, size);
	for (int i = atoi(argv[2]); i > 0; i--) {
		size_t now = size;

		memcpy(data, whole, size);
		for (int edits = 1 + rand() % 4; edits; edits--)
			now = edit(data, now, sizeof(data) - 64);
		LLVMFuzzerTestOneInput(data, now);
	}
	return 0;
}
#endif
