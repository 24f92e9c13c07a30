// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The constructors of both targets, up to where they would make an object, and their messages (kernel_words.h).  What a message asks for is not done: it is looked at
 * whether its numbers are such as exist.
 */
#include "dm_user.h"

#include "../../kernel/class.c"
#include "../../kernel/format.c"
#include "../../kernel/settings.c"
#include "../../kernel/super.c"

/* both files have one of each */
#define parse_options cache_parse_options
#define message_set   cache_message_set
#define message_stack cache_message_stack
#include "../../kernel/cache_target.c"
#undef parse_options
#undef message_set
#undef message_stack
#include "../../kernel/target.c"

#include "kernel_words.h"

#define must(c) pure_check(c, "promise broken: " #c)

static const char known_uuid[] = "aaaaaaaa-0000-4000-8000-0000000000aa";
static struct block_device bdev[3];
static int opened; /* devices of a table that are not given back */
static struct cache running; /* what "fast" names */
static struct volume volume;

/* ------------------------------------------------------------------ dm */

int dm_get_device(struct dm_target *ti, const char *path, blk_mode_t mode, struct dm_dev **dev)
{
	static const char *const paths[] = { "ssd", "ssd1", "hdd" };
	struct dm_dev *one;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(paths) && strcmp(paths[i], path); i++)
		;
	if (i == ARRAY_SIZE(paths) && strcmp(path, "fast"))
		return -ENODEV;
	one = kzalloc(sizeof(*one), GFP_KERNEL);
	one->bdev = &bdev[i % ARRAY_SIZE(paths)];
	opened++;
	*dev = one;
	return 0;
}

void dm_put_device(struct dm_target *ti, struct dm_dev *dev)
{
	opened--;
	kfree(dev);
}

/* ------------------------------------------------------------------ what messages ask for */

struct mutex cache_registry_lock;

void cache_get(struct cache *c) { }
void cache_put(struct cache *c) { }
void volume_get(struct volume *v) { }
void volume_put(struct volume *v) { }
struct cache *cache_find_disk(struct gendisk *disk) { return &running; }
int volume_target_check(struct volume_target *vt) { return 0; }
int buffered_create(struct cache *c) { return 0; }
void resync_raise(struct cache *c) { }
void resync_look(struct cache *c) { }
void log_interval_changed(struct cache *c) { }
int doubt_try(struct cache *c) { return 0; }
u64 log_close_open(struct cache *c, enum close_reason reason) { return 1; }
int log_wait_applied(struct cache *c, u64 lsn) { return 0; }
void fills_flush(struct cache *c) { }
void copies_wait(struct cache *c, long timeout) { }
int checkpoint_take(struct cache *c) { return 0; }
int drain_stop(struct cache *c) { return 0; }
int scrub_begin(struct cache *c) { return 0; }
int scrub_stop(struct cache *c) { return 0; }
void writeback_kick(struct volume *v) { }
void reclaim_kick(struct cache *c) { }
u64 volume_drop_clean(struct volume *v, u64 sector, u64 end) { return 0; }
int volume_settings_apply(struct volume *v, const struct volume_settings *set) { return 0; }

int reclaim_now(struct cache *c, u32 segments)
{
	must(segments && segments <= c->nr_segments);
	return 0;
}

int drain_begin(struct cache *c, u32 number)
{
	must(number < c->nr_devices);
	return 0;
}

int set_dismiss_failed(struct cache *c, struct cache_device *d)
{
	must(d >= c->dev && d < c->dev + c->nr_devices);
	return 0;
}

static bool is_known(const u8 uuid[16])
{
	uuid_t known;

	must(!uuid_parse(known_uuid, &known));
	return !memcmp(known.b, uuid, 16);
}

struct volume *cache_find_volume(struct cache *c, const u8 uuid[16])
{
	return is_known(uuid) ? &volume : NULL;
}

int cache_forget_rest(struct cache *c, const u8 uuid[16])
{
	must(!is_known(uuid));
	return -ENOENT;
}

static bool may_lose; /* a message with the word discard_dirty */

int cache_forget(struct cache *c, struct volume *v)
{
	must(may_lose || !atomic64_read(&v->dirty_sectors));
	return 0;
}

int volume_target_discard_dirty(struct volume_target *vt, const u8 uuid[16])
{
	must(may_lose);
	return is_known(uuid) ? 0 : -EINVAL;
}

/* ------------------------------------------------------------------ tables */

static void read_cache_table(unsigned int argc, char **argv)
{
	struct dm_arg_set as = { argc, argv };
	struct dm_target ti = { .len = 8 };
	struct cache_target *ct = kzalloc(sizeof(*ct), GFP_KERNEL);
	u32 i, there = 0;
	int err;

	ct->ti = &ti;
	cache_settings_default(&ct->set);
	err = parse_devices(ct, &as) ?: cache_parse_options(ct, &as);
	must(!err == !ti.error);
	if (!err) {
		must(!as.argc && ct->nr_devices && ct->nr_devices <= LARDER_MAX_DEVICES && ct->set.nr_roles <= ct->nr_devices);
		for (i = 0; i < LARDER_MAX_DEVICES; i++) {
			must(!ct->dev[i] == !ct->sb[i] && (i < ct->nr_devices || !ct->dev[i]));
			must(!ct->dev[i] || le32_to_cpu(ct->sb[i]->device_number) == i);
			there += !!ct->dev[i];
		}
		must(there == (u32)opened && set_segments(ct) >= LARDER_MIN_SEGMENTS);
	}
	cache_target_free(ct);
}

static void read_volume_table(unsigned int argc, char **argv)
{
	struct dm_target ti = { .len = 8 };
	struct volume_target *vt;
	int err;

	/* as volume_ctr() has it: it keeps what it makes */
	if (argc < 2)
		return;
	vt = volume_target_alloc(&ti);
	err = parse_backing(vt, argv[0]) ?: parse_cache(vt, argv[1]);
	if (!err) {
		struct dm_arg_set as = { argc - 2, argv + 2 };

		err = parse_options(vt, &as);
		must(err || !as.argc);
	}
	must(!err == !ti.error);
	must(err || (vt->backing && !vt->cache == !strcmp(argv[1], "-") && vt->set.mode <= LARDER_WRITEAROUND));
	volume_target_free(vt);
}

/* ------------------------------------------------------------------ messages */

static bool loses(unsigned int argc, char **argv)
{
	return (argc == 3 && !strcmp(argv[2], "discard_dirty")) || (argc == 2 && !strcasecmp(argv[0], "discard_dirty"));
}

static void send_cache_message(unsigned int argc, char **argv)
{
	struct dm_target ti = { };
	struct cache_target ct = { .ti = &ti, .cache = &running, .nr_devices = running.nr_devices };

	if (!argc || !strcasecmp(argv[0], "stack"))
		return;
	mutex_init(&ct.lock);
	cache_settings_default(&ct.set);
	may_lose = loses(argc, argv);
	cache_message_run(&ct, &running, true, argc, argv);
	must(ct.set.nr_roles <= ct.nr_devices);
}

static void send_volume_message(unsigned int argc, char **argv)
{
	struct dm_target ti = { };
	struct volume_target vt = { .ti = &ti, .volume = &volume };

	if (!argc || !strcasecmp(argv[0], "stack"))
		return;
	mutex_init(&vt.lock);
	volume_settings_default(&vt.set);
	may_lose = loses(argc, argv);
	volume_message_run(&vt, argc, argv);
}

/* The field, as long as it is; what is behind the digits is zero. */
static void read_stack(const char *hex)
{
	u8 *stack = stack_parse(hex);
	size_t bytes = strcmp(hex, "-") ? strlen(hex) / 2 : 0;

	if (IS_ERR(stack))
		return;
	must(bytes <= LARDER_STACK_SIZE && !memchr_inv(stack + bytes, 0, LARDER_STACK_SIZE - bytes));
	kfree(stack);
}

static void begin(const struct words_device device[3])
{
	static struct cache_settings set;
	unsigned int i;

	if (running.nr_devices)
		return;
	for (i = 0; i < 3; i++)
		bdev[i] = (struct block_device){ .bytes = device[i].bytes, .sectors = device[i].size >> SECTOR_SHIFT };
	mutex_init(&cache_registry_lock);
	cache_settings_default(&set);
	running.set = set;
	running.state = CACHE_RUNNING;
	running.started = true;
	running.nr_devices = 2;
	running.nr_segments = 400;
	atomic64_set(&volume.dirty_sectors, 8);
	volume.active = true;
}

void words_read(enum words_of what, unsigned argc, char **argv, const struct words_device device[3])
{
	begin(device);
	opened = 0;
	switch (what) {
	case WORDS_CACHE_TABLE:
		read_cache_table(argc, argv);
		break;
	case WORDS_VOLUME_TABLE:
		read_volume_table(argc, argv);
		break;
	case WORDS_CACHE_MESSAGE:
		send_cache_message(argc, argv);
		break;
	case WORDS_VOLUME_MESSAGE:
		send_volume_message(argc, argv);
		break;
	default:
		if (argc)
			read_stack(argv[0]);
	}
	must(!opened);
}
