// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module: what there is once for all caches and volumes, and the two targets.
 */
#include <linux/module.h>
#include <linux/suspend.h>

#include "larder.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

struct workqueue_struct *larder_wq;

/*
 * Hibernation is refused while there is a cache: what resumes it starts the caches first, as it looks for the root filesystem, and
 * the image would go on with a log, an index and an epoch that are not those on the SSDs any more.
 */
static int larder_pm_event(struct notifier_block *block, unsigned long event, void *unused)
{
	switch (event) {
	case PM_HIBERNATION_PREPARE:
		if (cache_hibernate(true))
			break;
		DMERR("no hibernation while a cache is started: stop the caches, or suspend to memory");
		return notifier_from_errno(-EBUSY);
	case PM_POST_HIBERNATION:
		cache_hibernate(false);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block larder_pm = { .notifier_call = larder_pm_event };

static int __init larder_init(void)
{
	int err;

	larder_wq = alloc_workqueue("larder", WQ_MEM_RECLAIM | LARDER_WQ_PERCPU, 0);
	if (!larder_wq)
		return -ENOMEM;
	err = larder_index_init();
	if (err)
		goto free_wq;
	err = flush_init();
	if (err)
		goto exit_index;
	err = super_init();
	if (err)
		goto exit_flush;
	err = zeroes_init();
	if (err)
		goto exit_super;
	err = dm_register_target(&cache_target_type);
	if (err < 0)
		goto exit_zeroes;
	err = dm_register_target(&volume_target_type);
	if (err < 0)
		goto unregister_cache;
	err = register_pm_notifier(&larder_pm);
	if (err)
		goto unregister_volume;
	return 0;

unregister_volume:
	dm_unregister_target(&volume_target_type);
unregister_cache:
	dm_unregister_target(&cache_target_type);
exit_zeroes:
	zeroes_exit();
exit_super:
	super_exit();
exit_flush:
	flush_exit();
exit_index:
	larder_index_exit();
free_wq:
	destroy_workqueue(larder_wq);
	return err;
}

/* No table is left: every cache and volume is gone, but arrays of their indexes may still wait for a grace period. */
static void __exit larder_exit(void)
{
	unregister_pm_notifier(&larder_pm);
	dm_unregister_target(&volume_target_type);
	dm_unregister_target(&cache_target_type);
	rcu_barrier();
	destroy_workqueue(larder_wq);
	zeroes_exit();
	super_exit();
	flush_exit();
	larder_index_exit();
}

module_init(larder_init);
module_exit(larder_exit);

MODULE_DESCRIPTION(DM_NAME " SSD cache: log-structured, crash-safe");
MODULE_AUTHOR("The larder authors");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
MODULE_SOFTDEP("pre: crc32c");
MODULE_ALIAS("dm-larder");		/* what dm asks modprobe for when a table names a target */
MODULE_ALIAS("dm-larder-cache");
