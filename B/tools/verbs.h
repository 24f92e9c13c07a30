/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The verbs: each takes the words behind it (argv[0] is the verb), and returns the exit code of the command. */
#ifndef LARDER_VERBS_H
#define LARDER_VERBS_H

int cache_create(int argc, char **argv);
int cache_add(int argc, char **argv);
int cache_replace(int argc, char **argv);
int cache_remove(int argc, char **argv);
int cache_resize(int argc, char **argv);
int cache_scrub(int argc, char **argv);
int cache_start(int argc, char **argv);
int cache_stop(int argc, char **argv);
int cache_label(int argc, char **argv);
int cache_list(int argc, char **argv);
int cache_status(int argc, char **argv);
int cache_get(int argc, char **argv);
int cache_set(int argc, char **argv);

int volume_create(int argc, char **argv);
int volume_start(int argc, char **argv);
int volume_stop(int argc, char **argv);
int volume_attach(int argc, char **argv);
int volume_detach(int argc, char **argv);
int volume_resize(int argc, char **argv);
int volume_get(int argc, char **argv);
int volume_set(int argc, char **argv);
int volume_flush(int argc, char **argv);
int volume_list(int argc, char **argv);
int volume_status(int argc, char **argv);

int super_show(int argc, char **argv);
int super_check(int argc, char **argv);
int super_wipe(int argc, char **argv);
int super_backup(int argc, char **argv);
int super_restore(int argc, char **argv);

int rescue_check(int argc, char **argv);
int rescue_list(int argc, char **argv);
int rescue_writeback(int argc, char **argv);
int rescue_serve(int argc, char **argv);

int assemble(int argc, char **argv);
int probe(int argc, char **argv);
int metrics(int argc, char **argv);
int top(int argc, char **argv);
int events(int argc, char **argv);
int doctor(int argc, char **argv);
int advise(int argc, char **argv);
int collect(int argc, char **argv);
int monitor(int argc, char **argv);

int stack_create(int argc, char **argv);
int stack_start(int argc, char **argv);
int stack_stop(int argc, char **argv);
int stack_remove(int argc, char **argv);
int stack_rename(int argc, char **argv);
int stack_set(int argc, char **argv);
int stack_lock(int argc, char **argv);
int stack_unlock(int argc, char **argv);
int stack_passwd(int argc, char **argv);
int stack_resize(int argc, char **argv);
int stack_scrub(int argc, char **argv);
int stack_replace(int argc, char **argv);
int stack_add(int argc, char **argv);
int stack_drop(int argc, char **argv);
int stack_pin(int argc, char **argv);
int stack_unpin(int argc, char **argv);
int snapshot_create(int argc, char **argv);
int snapshot_remove(int argc, char **argv);
int snapshot_list(int argc, char **argv);
int stacks_list(int argc, char **argv);
int stack_show(int argc, char **argv);
int stack_status(int argc, char **argv);
int upgrade(int argc, char **argv);

#endif
