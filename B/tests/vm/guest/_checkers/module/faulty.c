// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Does on demand what a checker of the debug kernel must report: `echo NAME > /sys/module/faulty/parameters/do`.
 * Built and loaded by tests/vm/host/test_checkers.py alone.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>

#define LEAKS	16	/* a stale pointer on some stack hides one or two of them */

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);

/* KASAN */
static void overflow(void)
{
	char *p = kmalloc(100, GFP_KERNEL);

	OPTIMIZER_HIDE_VAR(p);
	if (p)
		WRITE_ONCE(p[110], 1);
	kfree(p);
}

/* UBSAN */
static void shift(void)
{
	int bits = 40, one = 1;

	OPTIMIZER_HIDE_VAR(bits);
	OPTIMIZER_HIDE_VAR(one);
	pr_info("faulty: %d\n", one << bits);
}

/* lockdep */
static void circle(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

/* kmemleak */
static void leak(void)
{
	int i;

	for (i = 0; i < LEAKS; i++) {
		void *p = kmalloc(777, GFP_KERNEL);

		OPTIMIZER_HIDE_VAR(p);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} faults[] = {
	{ "overflow", overflow },
	{ "shift", shift },
	{ "circle", circle },
	{ "leak", leak },
};

static int faulty_do(const char *word, const struct kernel_param *kp)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		if (sysfs_streq(word, faults[i].name)) {
			faults[i].run();
			return 0;
		}
	}
	return -EINVAL;
}

static const struct kernel_param_ops faulty_ops = {
	.set = faulty_do,
};
module_param_cb(do, &faulty_ops, NULL, 0200);

MODULE_DESCRIPTION("Faults for the checkers of a debug kernel");
MODULE_LICENSE("GPL");
