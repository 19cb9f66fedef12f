/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose accesses count: the command and its children, processes, names, users, control groups.
 */
#ifndef INDEF_FILTER_H
#define INDEF_FILTER_H

#include "maps.h"

/* Processes (thread groups) that are followed; their children are added when they are born. */
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

/* Whether a filter on processes is on. Writeback is done by kernel threads: see fs.h. */
static __always_inline bool filters_tasks(void)
{
	return config.by_task || config.by_uid || config.by_cgroup || config.comm_len;
}

static __always_inline bool has_comm(void)
{
	char comm[16] = {};

	bpf_get_current_comm(comm, sizeof(comm));
	for (int i = 0; i < 16; i++) {
		if (i >= config.comm_len)
			return true;
		if (comm[i] != config.comm[i])
			return false;
	}
	return true;
}

/* Whether the accesses of the current task count. */
static __always_inline bool task_wanted(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	if (tgid == config.self)
		return false;
	if (config.by_task && !bpf_map_lookup_elem(&followed, &tgid))
		return false;
	if (config.by_uid && (__u32)bpf_get_current_uid_gid() != config.uid)
		return false;
	if (config.by_cgroup && bpf_current_task_under_cgroup(&cgroups, 0) != 1)
		return false;
	return !config.comm_len || has_comm();
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid, to = child->tgid, one = 1;

	if (from != to && bpf_map_lookup_elem(&followed, &from)) {
		if (bpf_map_update_elem(&followed, &to, &one, BPF_ANY))
			lost(&state.lost_tasks);
	}
	return 0;
}

#endif
