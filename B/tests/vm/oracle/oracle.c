// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * oracle - random load on a block device, and a judge of what the device then holds.
 *
 *   oracle run --dev DEV --state FILE [--seed N] [--ops N] ...     makes load; reads are checked as they come; FILE is the model, made if it is
 *                                                                  not there, and saved at the end
 *   oracle verify --dev DEV --state FILE [--after crash|clean|loss]  reads every sector; the model then expects what was found
 *
 * Exit: 0 right, 1 wrong (mismatch, or an error nobody asked for), 2 could not run.  stdout: one line of key=value; stderr: what was wrong.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "oracle.h"

static void usage(FILE *f)
{
	fputs("usage: oracle run --dev DEV --state FILE [options]\n"
	      "       oracle verify --dev DEV --state FILE [--after crash|clean|loss] [--journal FILE] [--unreadable-ok]\n"
	      "  --seed N           a run at --qd 1 is a function of seed and state alone (default 1)\n"
	      "  --ops N            operations, 0: without end (default 1000)\n"
	      "  --seconds N        stops after so long, 0: never (default 0)\n"
	      "  --qd N             in flight, 1 to 256 (default 16)\n"
	      "  --offset BYTES, --size BYTES   the region; suffixes k, m, g (default: the first 64m; fixed once the state exists)\n"
	      "  --align BYTES      of every operation (default: logical block size)\n"
	      "  --mix LIST         weights, default read=35,write=45,fua=5,flush=5,discard=5,zeroes=5; those not named: 0\n"
	      "  --sizes LIST       SIZE:PERCENT, default 16k:80,128k:15,1m:5; each class goes from the one before up to SIZE\n"
	      "  --control COMMAND  run by sh, beside the load, one at a time; $1 is its number\n"
	      "  --control-fd FD    gets a line \"ctl OPERATIONS\"\n"
	      "  --every N          operations between two of these, on average (default 500)\n"
	      "  --control-may-fail\n"
	      "  --until-error      an I/O error ends the load, in order\n"
	      "  --errors-ok        the load goes on after I/O errors\n"
	      "  --unknown          the region is not zeroes: sectors not written yet may hold anything\n"
	      "  --journal FILE     run: appends every operation, for the kill of a VM; verify: replays it over the state\n"
	      "  --journal-at-once  run: ends are written as soon as they are known\n", f);
}

/* Bytes, with a suffix. */
static bool parse_bytes(const char *s, uint64_t *v)
{
	char *end;
	unsigned int shift = 0;

	errno = 0;
	*v = strtoull(s, &end, 0);
	if (end == s || errno)
		return false;
	switch (*end) {
	case 'k':
		shift = 10;
		break;
	case 'm':
		shift = 20;
		break;
	case 'g':
		shift = 30;
		break;
	}
	*v <<= shift;
	return !end[shift ? 1 : 0];
}

static bool parse_mix(struct options *o, char *list)
{
	char *word, *value, *end;
	int k;

	memset(o->mix, 0, sizeof(o->mix));
	while ((word = strsep(&list, ","))) {
		value = strchr(word, '=');
		if (!value)
			return false;
		*value++ = 0;
		for (k = 0; k < NR_OPS && strcmp(word, op_name[k]); k++)
			;
		if (k == NR_OPS)
			return false;
		o->mix[k] = strtoul(value, &end, 10);
		if (*end || o->mix[k] > 1000000)
			return false;
	}
	for (k = 0; k < NR_OPS && !o->mix[k]; k++)
		;
	return k < NR_OPS;
}

static bool parse_sizes(struct options *o, char *list)
{
	uint32_t sum = 0, before = 0;
	char *word, *percent;
	uint64_t bytes;

	o->nr_sizes = 0;
	while ((word = strsep(&list, ","))) {
		percent = strchr(word, ':');
		if (!percent || o->nr_sizes == MAX_SIZES)
			return false;
		*percent++ = 0;
		if (!parse_bytes(word, &bytes) || bytes <= before || bytes > MAX_BYTES || bytes % SECTOR)
			return false;
		o->sizes[o->nr_sizes].bytes = before = bytes;
		o->sizes[o->nr_sizes].percent = strtoul(percent, NULL, 10);
		sum += o->sizes[o->nr_sizes++].percent;
	}
	return sum == 100;
}

enum { OPT_DEV = 256, OPT_STATE, OPT_SEED, OPT_OPS, OPT_SECONDS, OPT_QD, OPT_OFFSET, OPT_SIZE, OPT_ALIGN, OPT_MIX, OPT_SIZES,
	OPT_CONTROL, OPT_CONTROL_FD, OPT_EVERY, OPT_CONTROL_MAY_FAIL, OPT_UNTIL_ERROR, OPT_ERRORS_OK, OPT_UNKNOWN, OPT_JOURNAL, OPT_AT_ONCE, OPT_AFTER,
	OPT_UNREADABLE_OK, OPT_HELP };

static const struct option long_options[] = {
	{ "dev", 1, NULL, OPT_DEV }, { "state", 1, NULL, OPT_STATE }, { "seed", 1, NULL, OPT_SEED }, { "ops", 1, NULL, OPT_OPS },
	{ "seconds", 1, NULL, OPT_SECONDS }, { "qd", 1, NULL, OPT_QD }, { "offset", 1, NULL, OPT_OFFSET },
	{ "size", 1, NULL, OPT_SIZE }, { "align", 1, NULL, OPT_ALIGN }, { "mix", 1, NULL, OPT_MIX }, { "sizes", 1, NULL, OPT_SIZES },
	{ "control", 1, NULL, OPT_CONTROL }, { "control-fd", 1, NULL, OPT_CONTROL_FD }, { "every", 1, NULL, OPT_EVERY },
	{ "control-may-fail", 0, NULL, OPT_CONTROL_MAY_FAIL }, { "until-error", 0, NULL, OPT_UNTIL_ERROR },
	{ "errors-ok", 0, NULL, OPT_ERRORS_OK }, { "unknown", 0, NULL, OPT_UNKNOWN }, { "journal", 1, NULL, OPT_JOURNAL }, { "journal-at-once", 0, NULL, OPT_AT_ONCE },
	{ "after", 1, NULL, OPT_AFTER }, { "unreadable-ok", 0, NULL, OPT_UNREADABLE_OK }, { "help", 0, NULL, OPT_HELP },
	{ 0 },
};

static const char *const after_name[] = { [AFTER_CLEAN] = "clean", [AFTER_CRASH] = "crash", [AFTER_LOSS] = "loss" };

static bool parse_number(struct options *o, int opt, const char *arg)
{
	uint64_t v;

	if (!parse_bytes(arg, &v))
		return false;
	switch (opt) {
	case OPT_SEED:
		o->seed = v;
		return true;
	case OPT_OPS:
		o->ops = v;
		return true;
	case OPT_SECONDS:
		o->seconds = v;
		return true;
	case OPT_QD:
		o->qd = v;
		return v && v <= MAX_QD;
	case OPT_OFFSET:
		o->offset = v;
		return !(v % SECTOR);
	case OPT_SIZE:
		o->size = v;
		return v && !(v % SECTOR);
	case OPT_ALIGN:
		o->align = v;
		return v && !(v % SECTOR) && v <= 65536;
	case OPT_CONTROL_FD:
		o->control_fd = v;
		return true;
	default:
		o->every = v;
		return v;
	}
}

static bool parse_option(struct options *o, int opt, char *arg)
{
	switch (opt) {
	case OPT_DEV:
		o->dev = arg;
		return true;
	case OPT_STATE:
		o->state = arg;
		return true;
	case OPT_JOURNAL:
		o->journal = arg;
		return true;
	case OPT_AT_ONCE:
		o->journal_at_once = true;
		return true;
	case OPT_CONTROL:
		o->control = arg;
		return true;
	case OPT_MIX:
		return parse_mix(o, arg);
	case OPT_SIZES:
		return parse_sizes(o, arg);
	case OPT_CONTROL_MAY_FAIL:
		o->control_may_fail = true;
		return true;
	case OPT_UNTIL_ERROR:
		o->until_error = true;
		return true;
	case OPT_ERRORS_OK:
		o->errors_ok = true;
		return true;
	case OPT_UNKNOWN:
		o->unknown = true;
		return true;
	case OPT_UNREADABLE_OK:
		o->unreadable_ok = true;
		return true;
	case OPT_AFTER:
		for (o->after = AFTER_CLEAN; o->after <= AFTER_LOSS && strcmp(arg, after_name[o->after]); o->after++)
			;
		return o->after <= AFTER_LOSS;
	case '?':
		return false;
	default:
		return parse_number(o, opt, arg);
	}
}

static int load_state(const struct options *o, struct model *m, bool make)
{
	int err = model_load(m, o->state);

	if (err == -ENOENT && make) {
		model_init(m, o->seed, o->offset / SECTOR, o->size / SECTOR);
		m->unknown = o->unknown;
		/* the journal starts from a state that is on disk */
		return o->journal ? model_save(m, o->state) : 0;
	}
	return err;
}

static void print_report(const char *verb, const struct options *o, const struct model *m, const struct report *r, int rc)
{
	uint64_t ops = 0;
	int k;

	for (k = 0; k < NR_OPS; k++)
		ops += r->count[k];
	printf("%s result=%s mismatches=%llu errors=%llu first_error=%d seconds=%.2f version=%u rounds=%u seed=%llu", verb,
	       rc == 0 ? "ok" : rc == 1 ? "wrong" : "failed", (unsigned long long)r->mismatches, (unsigned long long)r->errors,
	       r->first_error, r->seconds, m->version, m->rounds, (unsigned long long)o->seed);
	if (!strcmp(verb, "run")) {
		printf(" ops=%llu iops=%.0f", (unsigned long long)ops, r->seconds > 0 ? ops / r->seconds : 0);
		for (k = 0; k < NR_OPS; k++)
			printf(" %s=%llu", op_name[k], (unsigned long long)r->count[k]);
		printf(" bytes_read=%llu bytes_written=%llu unsupported=%llu controls=%llu controls_failed=%llu\n",
		       (unsigned long long)r->bytes_read, (unsigned long long)r->bytes_written, (unsigned long long)r->unsupported,
		       (unsigned long long)r->controls, (unsigned long long)r->controls_failed);
	} else {
		printf(" sectors=%llu stamped=%llu zeroes=%llu foreign=%llu unreadable=%llu\n", (unsigned long long)r->sectors,
		       (unsigned long long)r->stamped, (unsigned long long)r->zeroes, (unsigned long long)r->foreign,
		       (unsigned long long)r->unreadable);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct options o = {
		.seed = 1, .ops = 1000, .qd = 16, .every = 500, .size = 64u << 20, .align = SECTOR, .control_fd = -1,
		.mix = { [OP_READ] = 35, [OP_WRITE] = 45, [OP_FUA] = 5, [OP_FLUSH] = 5, [OP_DISCARD] = 5, [OP_ZEROES] = 5 },
		.sizes = { { 16u << 10, 80 }, { 128u << 10, 15 }, { 1u << 20, 5 } }, .nr_sizes = 3,
	};
	struct report r = { 0 };
	struct model m;
	bool run;
	int opt, rc, err;

	if (argc >= 2 && !strcmp(argv[1], "--help")) {
		usage(stdout);
		return 0;
	}
	if (argc < 2 || (strcmp(argv[1], "run") && strcmp(argv[1], "verify"))) {
		usage(stderr);
		return 2;
	}
	run = !strcmp(argv[1], "run");
	while ((opt = getopt_long(argc - 1, argv + 1, "", long_options, NULL)) != -1) {
		if (opt == OPT_HELP) {
			usage(stdout);
			return 0;
		}
		if (!parse_option(&o, opt, optarg)) {
			fprintf(stderr, "oracle: bad option or value: %s\n", optarg ? optarg : argv[optind]);
			return 2;
		}
	}
	if (!o.dev || !o.state || optind + 1 != argc) {
		usage(stderr);
		return 2;
	}
	if (!o.control && o.control_fd < 0)
		o.every = 0;
	err = load_state(&o, &m, run);
	if (!err && !run && o.journal)
		err = journal_replay(&m, o.journal);
	if (err) {
		fprintf(stderr, "oracle: %s: %s\n", o.state, strerror(-err));
		return 2;
	}
	rc = run ? load_run(&o, &m, &r) : verify_run(&o, &m, &r);
	err = rc == 2 ? 0 : model_save(&m, o.state);
	if (!err && !run && o.journal && rc != 2 && unlink(o.journal))
		err = -errno;
	if (err) {
		fprintf(stderr, "oracle: %s: cannot save: %s\n", o.state, strerror(-err));
		rc = 2;
	}
	print_report(run ? "run" : "verify", &o, &m, &r, rc);
	model_free(&m);
	return rc;
}
