/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose accesses count: those of the command and its children, of processes, names, users, control
 * groups.
 */
#ifndef INDEF_FILTER_H
#define INDEF_FILTER_H

#include "maps.h"

/*
 * Processes (thread groups) that are followed, by their numbers in the collector's PID namespace;
 * their children are added when they are forked.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS);
	__type(key, __u32);
	__type(value, __u32);
} followed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cgroups SEC(".maps");

/*
 * Whether the process of a task has one of the names of --comm. That is the name of its first
 * thread: others have names of their own, as the threads that io_uring adds.
 */
static __always_inline bool has_comm(struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct comm comm = {};

	bpf_core_read_str(&comm, sizeof(comm), &leader->comm);
	for (int i = 0; i < MAX_COMMS; i++) {
		if (i >= config.comms_len)
			return false;
		if (comm.begin == config.comms[i].begin && comm.rest == config.comms[i].rest)
			return true;
	}
	return false;
}

/* Whether the accesses of the current task count. */
static __always_inline bool task_wanted(void)
{
	__u32 process = current_process();

	if (process == config.collector)
		return false;
	if (config.by_task && !bpf_map_lookup_elem(&followed, &process))
		return false;
	if (config.by_uid && (__u32)bpf_get_current_uid_gid() != config.uid)
		return false;
	if (config.by_cgroup && bpf_current_task_under_cgroup(&cgroups, 0) != 1)
		return false;
	return !config.comms_len || has_comm((void *)bpf_get_current_task());
}

/*
 * The same of any task, as far as that can be told: not in which control group it is, and no task
 * outside of the collector's PID namespace is wanted.
 */
static __always_inline bool other_task_wanted(struct task_struct *task)
{
	__u32 process = process_of(task);

	if (!process || process == config.collector || config.by_cgroup)
		return false;
	if (config.by_task && !bpf_map_lookup_elem(&followed, &process))
		return false;
	if (config.by_uid && BPF_CORE_READ(task, cred, uid.val) != config.uid)
		return false;
	return !config.comms_len || has_comm(task);
}

/* The children of a followed process are followed. */
static __always_inline void follow_child(struct task_struct *parent, struct task_struct *child)
{
	__u32 from, to, one = 1;

	if (!config.by_task)
		return;
	from = process_of(parent);
	to = process_of(child);
	if (from != to && bpf_map_lookup_elem(&followed, &from)) {
		if (bpf_map_update_elem(&followed, &to, &one, BPF_ANY))
			lost(&state.lost_tasks);
	}
}

/* With its last thread, a process ends. */
static __always_inline void unfollow(struct task_struct *task)
{
	__u32 process;

	if (!config.by_task)
		return;
	process = process_of(task);
	if (task->signal->live.counter <= 0)
		bpf_map_delete_elem(&followed, &process);
}

#endif
