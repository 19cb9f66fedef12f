/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The numbers of processes as a PID namespace sees them.
 */
#ifndef INDEF_PROCESS_H
#define INDEF_PROCESS_H

#include "kernel.h"

/* Namespaces inside of one another: include/linux/pid_namespace.h, v6.1. */
#define MAX_PID_NS_LEVEL 32

/*
 * The number that the process of a task has in the namespace of this inode number, or 0 if it has
 * none there. A process has a number in its own namespace, the last of the list, and in
 * each one around it.
 */
static __noinline __u32 process_in(struct task_struct *task, __u32 namespace)
{
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	__u64 numbers = (__u64)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 level = BPF_CORE_READ(pid, level);
	struct upid *number;

	for (__u32 i = 0; i <= MAX_PID_NS_LEVEL && i <= level; i++) {
		number = (void *)(numbers + (level - i) * bpf_core_type_size(struct upid));
		if (BPF_CORE_READ(number, ns, ns.inum) == namespace)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

#endif
