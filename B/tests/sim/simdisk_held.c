// SPDX-License-Identifier: GPL-2.0-only
/*
 * What one module has allocated and not freed: by the tracepoints of slab and page allocator, on kernels without kmemleak.
 *
 *   held from=ADDRESS to=ADDRESS [via=FROM-TO]...
 *   held off
 *
 * from, to: its text.  An allocation is its own if it is the first caller that lies in none of the functions given by via=, which
 * are those that allocate for others: kvmalloc(), alloc_pages() and the like.  Whoever frees it.  Left out: vmalloc, of which
 * /proc/vmallocinfo names the caller; memory of each CPU; what others allocate on its behalf.
 *
 *   simdisk/held        held=N lost=N, after the callbacks of RCU; then a line "N FUNCTION+OFFSET" for each place that allocated
 *                       lost: allocations for which there was no entry: the numbers are then worth nothing
 */
#include <linux/debugfs.h>
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>
#include <linux/stacktrace.h>
#include <linux/tracepoint.h>
#include <linux/vmalloc.h>
#include <trace/events/kmem.h>
#include "simdisk.h"

#define HELD_BITS	16
#define HELD_ENTRIES	BIT(18)
#define HELD_VIAS	48
#define HELD_DEPTH	12
#define HELD_SITES	128
#define HELD_NONE	U32_MAX

struct held_entry {
	const void *ptr;
	unsigned long site;
	u32 next;
};

static struct held_range {
	unsigned long from, to;
} text, via[HELD_VIAS];
static u32 nr_via;
static DEFINE_RAW_SPINLOCK(held_lock);	/* what follows */
static struct held_entry *entries;
static u32 *heads, free_entries;
static u64 nr_held, nr_lost;

static bool inside(const struct held_range *r, unsigned long at)
{
	return at >= r->from && at < r->to;
}

static bool is_via(unsigned long at)
{
	u32 i;

	for (i = 0; i < nr_via; i++)
		if (inside(&via[i], at))
			return true;
	return false;
}

/* 0: somebody else allocates.  The first frames are those of this file and of the tracepoint's function, which is a via. */
static unsigned long held_site(void)
{
	unsigned long frames[HELD_DEPTH];
	u32 i, n = stack_trace_save(frames, HELD_DEPTH, 1);
	bool behind = false;

	for (i = 0; i < n; i++) {
		if (is_via(frames[i]))
			behind = true;
		else if (behind)
			return inside(&text, frames[i]) ? frames[i] : 0;
	}
	return 0;
}

static void held_add(const void *ptr, unsigned long site)
{
	u32 *head = &heads[hash_ptr(ptr, HELD_BITS)], at;
	unsigned long flags;

	raw_spin_lock_irqsave(&held_lock, flags);
	at = free_entries;
	if (at == HELD_NONE) {
		nr_lost++;
	} else {
		free_entries = entries[at].next;
		entries[at] = (struct held_entry) { ptr, site, *head };
		*head = at;
		nr_held++;
	}
	raw_spin_unlock_irqrestore(&held_lock, flags);
}

static void held_remove(const void *ptr)
{
	u32 *link = &heads[hash_ptr(ptr, HELD_BITS)], at;
	unsigned long flags;

	if (READ_ONCE(*link) == HELD_NONE)	/* of most pointers; what is freed here was added before, by whoever had it */
		return;
	raw_spin_lock_irqsave(&held_lock, flags);
	for (; *link != HELD_NONE; link = &entries[*link].next) {
		at = *link;
		if (entries[at].ptr != ptr)
			continue;
		*link = entries[at].next;
		entries[at].next = free_entries;
		free_entries = at;
		nr_held--;
		break;
	}
	raw_spin_unlock_irqrestore(&held_lock, flags);
}

static void held_alloc(unsigned long call_site, const void *ptr)
{
	if (!ptr)
		return;
	if (!inside(&text, call_site))
		call_site = is_via(call_site) ? held_site() : 0;
	if (call_site)
		held_add(ptr, call_site);
}

static void on_kmalloc(void *data, unsigned long call_site, const void *ptr, size_t asked, size_t bytes, gfp_t gfp, int node)
{
	held_alloc(call_site, ptr);
}

static void on_cache_alloc(void *data, unsigned long call_site, const void *ptr, struct kmem_cache *s, gfp_t gfp, int node)
{
	held_alloc(call_site, ptr);
}

static void on_page_alloc(void *data, struct page *page, unsigned int order, gfp_t gfp, int migratetype)
{
	unsigned long site = page ? held_site() : 0;

	if (site)
		held_add(page, site);
}

static void on_kfree(void *data, unsigned long call_site, const void *ptr)
{
	held_remove(ptr);
}

static void on_cache_free(void *data, unsigned long call_site, const void *ptr, const struct kmem_cache *s)
{
	held_remove(ptr);
}

static void on_page_free(void *data, struct page *page, unsigned int order)
{
	held_remove(page);
}

static struct held_probe {
	const char *name;
	void *probe;
	struct tracepoint *point;
	bool registered;
} probes[] = {
	{ "kmalloc", on_kmalloc }, { "kmem_cache_alloc", on_cache_alloc }, { "mm_page_alloc", on_page_alloc },
	{ "kfree", on_kfree }, { "kmem_cache_free", on_cache_free }, { "mm_page_free", on_page_free },
};

/* That the probes have the arguments of the events is checked when this is compiled. */
static void __maybe_unused held_check(void)
{
	check_trace_callback_type_kmalloc(on_kmalloc);
	check_trace_callback_type_kmem_cache_alloc(on_cache_alloc);
	check_trace_callback_type_mm_page_alloc(on_page_alloc);
	check_trace_callback_type_kfree(on_kfree);
	check_trace_callback_type_kmem_cache_free(on_cache_free);
	check_trace_callback_type_mm_page_free(on_page_free);
}

static void held_find(struct tracepoint *point, void *unused)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(point->name, probes[i].name))
			probes[i].point = point;
}

static void held_off(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (probes[i].registered)
			tracepoint_probe_unregister(probes[i].point, probes[i].probe, NULL);
		probes[i].registered = false;
	}
	tracepoint_synchronize_unregister();
	vfree(entries);
	vfree(heads);
	entries = NULL;
	heads = NULL;
}

static int held_on(void)
{
	u32 i;
	int err;

	entries = vmalloc(array_size(HELD_ENTRIES, sizeof(*entries)));
	heads = vmalloc(array_size(1u << HELD_BITS, sizeof(*heads)));
	if (!entries || !heads) {
		held_off();
		return -ENOMEM;
	}
	for (i = 0; i < HELD_ENTRIES; i++)
		entries[i].next = i + 1 < HELD_ENTRIES ? i + 1 : HELD_NONE;
	for (i = 0; i < 1u << HELD_BITS; i++)
		heads[i] = HELD_NONE;
	free_entries = 0;
	nr_held = 0;
	nr_lost = 0;
	for_each_kernel_tracepoint(held_find, NULL);
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		err = probes[i].point ? tracepoint_probe_register(probes[i].point, probes[i].probe, NULL) : -EOPNOTSUPP;
		if (err) {
			held_off();
			return err;
		}
		probes[i].registered = true;
	}
	return 0;
}

static int parse_range(char *value, struct held_range *r)
{
	char *to = strchr(value, '-');

	if (!to)
		return -EINVAL;
	*to++ = 0;
	return kstrtoul(value, 0, &r->from) ?: kstrtoul(to, 0, &r->to);
}

/* Sleeps, under sim_ctl_lock. */
int sim_held_set(char *args)
{
	char *word, *value;
	int err;

	if (entries)
		held_off();
	text = (struct held_range) { 0 };
	nr_via = 0;
	while ((word = sim_next_word(&args, &value))) {
		if (!value)
			return strcmp(word, "off") ? -EINVAL : 0;
		if (!strcmp(word, "via"))
			err = nr_via < HELD_VIAS ? parse_range(value, &via[nr_via++]) : -E2BIG;
		else if (!strcmp(word, "from"))
			err = kstrtoul(value, 0, &text.from);
		else
			err = strcmp(word, "to") ? -EINVAL : kstrtoul(value, 0, &text.to);
		if (err)
			return err;
	}
	return text.from < text.to ? held_on() : -EINVAL;
}

static int held_show(struct seq_file *m, void *unused)
{
	static struct held_at {
		unsigned long site;
		u32 count;
	} at[HELD_SITES];		/* sim_ctl_lock */
	u32 i, k, e, nr = 0;

	rcu_barrier();
	mutex_lock(&sim_ctl_lock);
	if (!entries) {
		mutex_unlock(&sim_ctl_lock);
		return -ENODATA;
	}
	raw_spin_lock_irq(&held_lock);
	for (i = 0; i < 1u << HELD_BITS; i++) {
		for (e = heads[i]; e != HELD_NONE; e = entries[e].next) {
			for (k = 0; k < nr && at[k].site != entries[e].site; k++)
				;
			if (k == HELD_SITES)
				continue;
			nr = max(nr, k + 1);
			at[k].count = at[k].site == entries[e].site ? at[k].count + 1 : 1;
			at[k].site = entries[e].site;
		}
	}
	seq_printf(m, "held=%llu lost=%llu\n", nr_held, nr_lost);
	raw_spin_unlock_irq(&held_lock);
	for (k = 0; k < nr; k++)
		seq_printf(m, "%u %pS\n", at[k].count, (void *)at[k].site);
	memset(at, 0, sizeof(at));
	mutex_unlock(&sim_ctl_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(held);

void sim_held_init(struct dentry *root)
{
	debugfs_create_file("held", 0400, root, NULL, &held_fops);
}

void sim_held_exit(void)
{
	if (entries)
		held_off();
}
