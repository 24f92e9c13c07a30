// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_steps.c.  start_mount(), with systemd and mount(8) of our own: by what it mounts, and that it believes nobody who only says that it is
 * mounted.  start_crypt_by_token(): what somebody locks meanwhile an agent leaves so; what a kill has left of an unlock goes first.
 * crypt_ask_again(): the unit is restarted.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>

#include <unistd.h>

static unsigned slept;
#define usleep(microseconds) ((void)(microseconds), slept++)

#include "../../lib/message.c"
#include "../../tools/stack_layers.c"
#include "../../tools/stack_steps.c"
#define mounts_open mounts_of_this_machine
#include "../../lib/mounts.c"
#undef mounts_open

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static const char *mountinfo, *becomes; /* as whoever is asked to mount leaves it; NULL: as it was */
static bool systemd, line; /* runs; fstab has one of the stack */
static int status; /* of whoever is asked */
static char ran[256];

FILE *mounts_open(void)
{
	return fmemopen((void *)mountinfo, strlen(mountinfo), "r");
}

int stacks_scan(struct stacks *stacks)
{
	*stacks = (struct stacks){ 0 };
	return LARDER_DONE;
}

void stacks_free(struct stacks *stacks)
{
	(void)stacks;
}

void md_free(struct md_array *array)
{
	(void)array;
}

void stack_part(const struct stack *stack, const char *part, uint8_t uuid[16])
{
	memset(uuid, *part, 16);
}

const char *uuid_text(const uint8_t uuid[16], char text[static UUID_TEXT])
{
	snprintf(text, UUID_TEXT, "%02x", uuid[0]);
	return text;
}

struct mapped *running_by_uuid(const struct mapped_list *list, const uint8_t uuid[16], bool cache)
{
	return NULL;
}

static bool mark, opened, ever; /* the LUKS layer: locked by somebody, open, was so for a moment */

/* The volume runs, by a linear target, and is 252:7. */
bool mapped_look(const char *name, char uuid[static DM_UUID_MAX], dev_t *number)
{
	if (strcmp(name, "data"))
		return false;
	strcpy(uuid, "LARDER-76");
	*number = makedev(252, 7);
	return true;
}

bool mapped_is_without_larder(const char *name)
{
	return true;
}

bool fstab_is_systemds(void)
{
	return systemd;
}

bool fstab_mounts(const uint8_t uuid[16], const char *directory)
{
	return line;
}

static unsigned releases;

bool fstab_is_held(const uint8_t uuid[16])
{
	return true;
}

static bool turn; /* whose turn it is: ours; mounts and waits without, writes with it */

bool turn_pause(void)
{
	bool held = turn;

	turn = false;
	return held;
}

void turn_resume(bool held)
{
	turn = held;
}

void turn_take(void)
{
	turn = true;
}

void turn_give(void)
{
	turn = false;
}

int fstab_release(const uint8_t uuid[16])
{
	releases += turn; /* or another one may write it */
	return LARDER_DONE;
}

int program_run(const char *const *words, char **said)
{
	CHECK(!turn, "%s: others wait for as long as it takes", *words);
	for (; *words; words++)
		snprintf(ran + strlen(ran), sizeof(ran) - strlen(ran), "%s ", *words);
	*said = must_print("%s", "it says why");
	mountinfo = becomes && !status ? becomes : mountinfo;
	return status;
}

#define ROOT  "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
#define OTHER ROOT "21 20 8:17 / /srv rw - ext4 /dev/sdb1 rw\n"
#define OURS  ROOT "22 20 252:7 / /srv rw - ext4 /dev/mapper/data rw\n"

static const struct {
	bool systemd, wait, line;
	const char *before, *becomes, *ran;
	int status, result;
} cases[] = {
	{ true, true, true, ROOT, OURS, "systemctl start --quiet -- /srv ", 0, LARDER_DONE },
	{ true, true, true, ROOT, OTHER, "systemctl start --quiet -- /srv ", 0, LARDER_FAILED }, /* the first line of two */
	{ true, true, true, OTHER, NULL, "systemctl start --quiet -- /srv ", 0, LARDER_FAILED }, /* its unit is active */
	{ true, true, true, ROOT, NULL, "systemctl start --quiet -- /srv ", 1, LARDER_FAILED },
	{ true, false, true, ROOT, NULL, "systemctl start --no-block -- /srv ", 0, LARDER_DONE }, /* later */
	{ true, true, true, ROOT, NULL, "systemctl start --quiet -- /srv mount /srv ", 5, LARDER_FAILED }, /* it has no unit for it */
	{ true, false, false, ROOT, OURS, "systemctl start --no-block -- /srv ", 5, LARDER_DONE }, /* nor may we mount it */
	{ true, true, true, OURS, NULL, "", 0, LARDER_DONE },
	{ false, true, false, ROOT, OURS, "mount -t ext4 /dev/mapper/data /srv ", 0, LARDER_DONE },
	{ false, true, true, ROOT, OURS, "mount /srv ", 0, LARDER_DONE }, /* with its options */
	{ false, false, true, ROOT, OTHER, "mount /srv ", 0, LARDER_FAILED },
	{ false, true, false, ROOT, NULL, "mount -t ext4 /dev/mapper/data /srv ", 32, LARDER_FAILED },
};

static void mounts(void)
{
	const struct stack stack = { .name = "data", .state = STACK_READY, .fs = "ext4", .mount = "/srv" };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int result;

		systemd = cases[i].systemd;
		line = cases[i].line;
		mountinfo = cases[i].before;
		becomes = cases[i].becomes;
		status = cases[i].status;
		*ran = 0;
		releases = 0;
		turn = i & 1;
		result = start_mount(&stack, cases[i].wait);
		CHECK(turn == (i & 1), "%zu: the turn", i);
		CHECK(result == cases[i].result && !strcmp(ran, cases[i].ran), "%zu: %d, %s", i, result, ran);
		CHECK(releases == (!result && cases[i].wait), "%zu: a boot waits for it %u times", i, releases);
		operations++;
	}
}

/* ------------------------------------------------------------------ the LUKS layer */

static enum { NEVER, BEFORE, MEANWHILE } locked; /* by somebody: while a server is asked; once it has answered */

char *crypt_name(const struct stack *stack)
{
	return must_print("%s-crypt", stack->name);
}

static unsigned half_for; /* so many looks it is there without a table, */
static bool then_open; /* and then open: else gone */

bool crypt_look(const struct stack *stack, dev_t *number, bool *half)
{
	*half = half_for;
	if (half_for && !--half_for)
		opened |= then_open;
	return !*half && opened;
}

bool crypt_is_open(const struct stack *stack)
{
	dev_t number;
	bool half;

	return crypt_look(stack, &number, &half);
}

int mapped_remove(const char *name)
{
	CHECK(!strcmp(name, "data-crypt") && half_for, "%s is removed", name);
	half_for = 0;
	return LARDER_DONE;
}

bool stopped_is(const uint8_t uuid[16])
{
	return mark;
}

void stopped_clear(const uint8_t uuid[16])
{
	mark = false;
}

int luks_lock(const char *name)
{
	opened = false;
	return LARDER_DONE;
}

int luks_unlock_by_token(const char *device, const char *name, const struct luks_by *by, unsigned *outcome)
{
	mark |= locked == BEFORE;
	*outcome = by->wanted && !by->wanted(by->data) ? LUKS_SERVER_LATER : LUKS_OPENED;
	mark |= locked == MEANWHILE;
	ever = opened = *outcome == LUKS_OPENED;
	return LARDER_DONE;
}

static void by_agent(void)
{
	const struct stack stack = { .name = "data", .encrypted = true };
	unsigned outcome;
	sigset_t after;

	for (int agent = 0; agent < 2; agent++)
		for (locked = NEVER; locked <= MEANWHILE; locked++) {
			bool stays = agent && locked;

			mark = !agent; /* as `larder start` has set it */
			opened = ever = false;
			CHECK(!start_crypt_by_token(&stack, agent ? CRYPT_BY_AGENT : 0, &outcome), "an error");
			CHECK(opened == !stays && (outcome == LUKS_OPENED) == !stays && mark == stays, "%d, %d: open %d, mark %d", agent, locked, opened, mark);
			CHECK(ever == !(agent && locked == BEFORE), "opened although it was locked by then");
			CHECK(!sigprocmask(SIG_BLOCK, NULL, &after) && !sigismember(&after, SIGTERM), "cannot be ended any more");
			operations++;
		}
}

/* Left by a kill it is removed, before the layer is opened, or stopped; of somebody who opens it just now it is not. */
static void half_open(void)
{
	const struct stack stack = { .name = "data", .encrypted = true };
	unsigned outcome;

	mark = true;
	locked = NEVER;
	for (int meanwhile = 0; meanwhile < 2; meanwhile++) {
		opened = ever = false;
		then_open = meanwhile;
		half_for = meanwhile ? 3 : 1000000;
		CHECK(!start_crypt_by_token(&stack, 0, &outcome) && outcome == LUKS_OPENED && opened && !half_for, "%d: open %d, half %u", meanwhile, opened, half_for);
		CHECK(ever == !meanwhile, "opened a second time");
	}
	opened = false;
	half_for = 1000000;
	slept = 0;
	CHECK(!stop_crypt(&stack) && !half_for && slept * HALF_US >= 2000000, "stopped after %u", slept);
	half_for = 0;
	CHECK(!stop_crypt(&stack), "none is there");
}

/* Of a start by hand that has failed: by the unit, where there is systemd, unless somebody has opened it by then. */
static void asked_again(void)
{
	static const char both[] = "systemd-escape --template=larder-unlock@.service -- data systemctl try-restart --no-block -- it says why ";
	const struct stack stack = { .name = "data", .encrypted = true };

	mountinfo = ROOT;
	becomes = NULL;
	turn = false;
	status = 0;
	for (int i = 0; i < 4; i++) {
		systemd = i & 1;
		opened = i & 2;
		*ran = 0;
		crypt_ask_again(&stack);
		CHECK(!strcmp(ran, systemd && !opened ? both : ""), "%d: %s", i, ran);
		operations++;
	}
	opened = false;
}

int main(void)
{
	run_test("mounts", mounts);
	run_test("by_agent", by_agent);
	run_test("half_open", half_open);
	run_test("asked_again", asked_again);
	return 0;
}
