// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_passwd.c, with an array of our own: who is asked for a key, or whether he trusts a server, may end the command there, and then nothing
 * runs that did not before.  And what is said behind a change: while the new header is in the cache alone, the disks open by the old key.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../lib/message.c"
#include "../../lib/status.c"
#include "../../tools/stack_passwd.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static bool assembled; /* the array, to read the description */
static unsigned asked, loaded;

int lend_load(const char *name, bool dry_run, struct stack *stack, struct lent *was)
{
	*stack = (struct stack){ .name = "data", .encrypted = true };
	CHECK(!dry_run || !assembled, "a dry run starts nothing");
	assembled = was->assembled = !dry_run;
	loaded++;
	return LARDER_DONE;
}

int lend_start(const struct stack *stack, struct lent *was)
{
	CHECK(assembled, "the volume of an array that does not run");
	return LARDER_FAILED;
}

int lend_return(struct stack *stack, struct lent *was)
{
	assembled &= !was->assembled;
	return LARDER_DONE;
}

char *stack_backup_path(const struct stack *stack, const char *path)
{
	return must_print("%s", "/nowhere/header");
}

static int question(void)
{
	CHECK(!assembled, "asked while the array runs for us");
	asked++;
	return LARDER_DONE;
}

int secret_read(const char *keyfile, const char *stack, bool twice, struct secret *secret)
{
	return question();
}

int secret_read_old(const char *given, const char *keyfile, const char *stack, struct secret *secret)
{
	return question();
}

int secret_read_new(const char *keyfile, const char *stack, struct secret *secret)
{
	return question();
}

int turn_confirm(const char *name, bool yes, const char *text)
{
	return question();
}

void secret_free(struct secret *secret)
{
}

bool turn_pause(void)
{
	return true;
}

void turn_resume(bool held)
{
}

void turn_give(void)
{
}

void turn_take(void)
{
}

int token_check(struct token *token, bool trust)
{
	return LARDER_DONE;
}

char *token_describe(const struct token *token)
{
	return must_print("%s", "its key");
}

static void asks_without_the_array(void)
{
	static const struct {
		struct passwd_request request;
		unsigned asked, loaded;
	} cases[] = {
		{ { .action = CHANGE }, 2, 2 },
		{ { .action = ADD }, 2, 2 },
		{ { .action = ADD, .new_token = "tang", .token.kind = TOKEN_TANG }, 2, 2 },
		{ { .action = REMOVE }, 1, 2 },
		{ { .action = LIST }, 0, 2 },
		{ { .action = CHANGE, .dry_run = true }, 0, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct passwd_request request = cases[i].request;

		request.name = "data";
		request.slot = LUKS_ANY_SLOT;
		asked = loaded = 0;
		passwd(&request);
		CHECK(asked == cases[i].asked && loaded == cases[i].loaded, "%zu: asked %u times, %u looks", i, asked, loaded);
		CHECK(!assembled, "%zu: it runs still", i);
		operations++;
	}
}

/* ------------------------------------------------------------------ behind a change */

static struct mapped volume; /* no status: it does not run, or without the module */

int mapped_scan(struct mapped_list *list)
{
	*list = (struct mapped_list){ .mapped = &volume, .number = 1 };
	return LARDER_DONE;
}

void mapped_list_free(struct mapped_list *list)
{
}

void stack_part(const struct stack *stack, const char *part, uint8_t uuid[16])
{
	memset(uuid, strcmp(part, "volume") ? 0 : 1, 16);
}

struct mapped *running_by_uuid(const struct mapped_list *list, const uint8_t uuid[16], bool cache)
{
	return uuid[0] == 1 && !cache && list->mapped->status ? list->mapped : NULL;
}

int luks_slots(const char *device, struct luks_slot slots[static LUKS_SLOTS], unsigned *number)
{
	*number = 2;
	slots[0] = (struct luks_slot){ .number = 0 };
	slots[1] = (struct luks_slot){ .number = 1 };
	return LARDER_DONE;
}

int luks_add(const struct luks_request *request, int *slot)
{
	*slot = 2;
	return LARDER_DONE;
}

int luks_change(const struct luks_request *request, int *slot)
{
	*slot = 1;
	return LARDER_DONE;
}

int luks_remove(const struct luks_request *request)
{
	return LARDER_DONE;
}

static void disks_have_the_old_key(void)
{
	static const struct {
		struct passwd_request request;
		char *status;
		bool said;
	} cases[] = {
		{ { .action = CHANGE }, "mode=writeback dirty_sectors=8", true },
		{ { .action = REMOVE, .slot = 1 }, "mode=writeback dirty_sectors=8", true },
		{ { .action = ADD }, "mode=writeback dirty_sectors=8", false },
		{ { .action = CHANGE }, "mode=writeback dirty_sectors=0", false },
		{ { .action = REMOVE, .slot = 1 }, NULL, false },
	};
	static const struct stack stack = { .name = "data", .encrypted = true };
	FILE *usual = stderr;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct secret none = { 0 };
		size_t length;
		char *text;
		bool said;

		volume = (struct mapped){ .name = "data-volume", .status = cases[i].status };
		stderr = open_memstream(&text, &length);
		CHECK(!work(&cases[i].request, &stack, "/dev/mapper/data-volume", &none, &none), "%zu: refused", i);
		fclose(stderr);
		stderr = usual;
		said = strstr(text, "larder: data: slot 1: ") && strstr(text, "with the stack started, larder volume flush data-volume --wait writes it back\n");
		CHECK(said == cases[i].said, "%zu: %s", i, text);
		free(text);
		operations++;
	}
}

int main(void)
{
	run_test("asks_without_the_array", asks_without_the_array);
	run_test("disks_have_the_old_key", disks_have_the_old_key);
	return 0;
}
