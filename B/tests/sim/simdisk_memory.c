// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocations of one module fail, on kernels without fault injection: kprobes on the functions that its code calls for memory.
 * Whoever else calls them, the block layer for the module's bios as well, is left alone.
 *
 *   memory from=ADDRESS to=ADDRESS [skip=N] [count=N] [odds=N] [seed=N] [percpu=1]
 *   memory off
 *
 * from, to: its text.  The first 'skip' calls pass, then each fails, or one of 'odds' at random, 'count' of them (0: without end).
 * What may not fail does not: a mempool that the caller may wait for.  percpu: memory of each processor alone fails.
 *
 *   simdisk/memory      seen=N failed=N: calls by the module since then
 */
#include <linux/debugfs.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/seq_file.h>
#include "simdisk.h"

static const char * const names[] = {
	/* 6.1 */
	"__kmalloc", "kmalloc_trace", "kmalloc_large", "kmem_cache_alloc", "kvmalloc_node", "__vmalloc", "vmalloc", "vzalloc",
	"alloc_pages", "__get_free_pages", "__alloc_percpu", "__alloc_percpu_gfp", "mempool_alloc", "bitmap_zalloc",
	"alloc_workqueue",
	/* 6.12 */
	"__kmalloc_noprof", "__kmalloc_cache_noprof", "__kmalloc_large_noprof", "kmem_cache_alloc_noprof", "__kvmalloc_node_noprof",
	"__vmalloc_noprof", "vmalloc_noprof", "vzalloc_noprof", "alloc_pages_noprof", "get_free_pages_noprof", "pcpu_alloc_noprof",
	"mempool_alloc_noprof",
};

static struct kprobe probes[ARRAY_SIZE(names)];
static struct kprobe *registered[ARRAY_SIZE(names)];
static u32 nr_registered;
static DEFINE_RAW_SPINLOCK(memory_lock);	/* what follows */
static u64 text_from, text_to, skip, count, odds, percpu, seen, failed;
static struct rnd_state rnd;

/* What a function that fails does: it returns. */
static noinline notrace void return_at_once(void)
{
}

static bool memory_fails(void)
{
	unsigned long flags;
	bool fails;

	raw_spin_lock_irqsave(&memory_lock, flags);
	fails = seen++ >= skip && failed < count && (odds < 2 || !(prandom_u32_state(&rnd) % (u32)odds));
	failed += fails;
	raw_spin_unlock_irqrestore(&memory_lock, flags);
	return fails;
}

/* At its first instruction: the return address is on top of the stack. */
static int memory_call(struct kprobe *p, struct pt_regs *regs)
{
	unsigned long caller = *(unsigned long *)regs->sp;

	if (caller < text_from || caller >= text_to || (percpu && !strstr(p->symbol_name, "cpu")))
		return 0;
	if (!strncmp(p->symbol_name, "mempool_alloc", 13) && ((__force gfp_t)regs->si & __GFP_DIRECT_RECLAIM))
		return 0;
	if (!memory_fails())
		return 0;
	regs->ax = 0;
	regs->ip = (unsigned long)return_at_once;
	return 1;
}

/* That there is one keeps the probe from being optimized to a jump, behind which the address could not be changed. */
static void memory_called(struct kprobe *p, struct pt_regs *regs, unsigned long flags)
{
}

static void memory_off(void)
{
	unregister_kprobes(registered, nr_registered);
	nr_registered = 0;
}

static int memory_on(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		probes[i] = (struct kprobe) { .symbol_name = names[i], .pre_handler = memory_call, .post_handler = memory_called };
		if (!register_kprobe(&probes[i]))	/* those of other releases are not there */
			registered[nr_registered++] = &probes[i];
	}
	return nr_registered ? 0 : -EOPNOTSUPP;
}

/* Sleeps, under sim_ctl_lock. */
int sim_memory_set(char *args)
{
	u64 from = 0, to = 0, skip_ = 0, count_ = 0, odds_ = 0, percpu_ = 0, seed = 1, *into;
	char *word, *value;

	if (nr_registered)
		memory_off();
	while ((word = sim_next_word(&args, &value))) {
		if (!value)
			return strcmp(word, "off") ? -EINVAL : 0;
		into = !strcmp(word, "from") ? &from : !strcmp(word, "to") ? &to : !strcmp(word, "skip") ? &skip_ :
		       !strcmp(word, "count") ? &count_ : !strcmp(word, "odds") ? &odds_ : !strcmp(word, "seed") ? &seed :
		       !strcmp(word, "percpu") ? &percpu_ : NULL;
		if (!into || kstrtou64(value, 0, into))
			return -EINVAL;
	}
	if (from >= to)
		return -EINVAL;
	text_from = from;
	text_to = to;
	skip = skip_;
	count = count_ ?: SIM_NEVER;
	odds = odds_;
	percpu = percpu_;
	seen = failed = 0;
	prandom_seed_state(&rnd, seed);
	return memory_on();
}

static int memory_show(struct seq_file *m, void *unused)
{
	seq_printf(m, "seen=%llu failed=%llu\n", seen, failed);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(memory);

void sim_memory_init(struct dentry *root)
{
	debugfs_create_file("memory", 0400, root, NULL, &memory_fops);
}

void sim_memory_exit(void)
{
	if (nr_registered)
		memory_off();
}
