/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests that each device has in flight: counted from their start to their end, as the kernel
 * accounts them (block_io_start and block_io_done, v6.5).
 *
 * A device is its request queue; devices without requests of their own (device mapper) are not
 * told. Devices share a few counters by a hash of that; the first one keeps it.
 *
 * A program that an interrupt stops is not run again meanwhile, so a few starts and ends are
 * missed. Therefore each request that was counted has a mark, by a hash of its address: an end
 * without a start changes nothing, two places tell of an end, and a request whose end was missed
 * all the same is not counted twice when it is used again.
 */
#ifndef INDEF_INFLIGHT_H
#define INDEF_INFLIGHT_H

#include "maps.h"

/* Powers of two. */
#define LOADS 32
#define MARKS 2048

/* Alone in its cache line. */
struct load {
	/* The kernel's address of the device's queue. */
	__u64 queue;
	__s64 requests;
	__u64 reserved[6];
};

struct load loads[LOADS] SEC(".bss.loads");
__u32 marks[LOADS * MARKS] SEC(".bss.marks");

static __always_inline __u32 load_of(__u64 queue)
{
	return (queue * 0x9e3779b97f4a7c15ull >> 32) & (LOADS - 1);
}

/* To the verifier a request is a pointer, with which nothing may be computed; memory is not. */
static __always_inline __u32 *mark_of(__u32 load, struct request *request)
{
	__u64 address = 0;
	__u32 mark;

	bpf_probe_read_kernel(&address, sizeof(address), &request);
	mark = (address * 0x9e3779b97f4a7c15ull >> 32) & (MARKS - 1);
	mark += load * MARKS;
	/* The verifier of 6.1 forgets the bounds of a sum: the compiler may not leave the mask out.
	 */
	asm volatile("" : "+r"(mark));
	return &marks[mark & (LOADS * MARKS - 1)];
}

static __always_inline void request_starts(struct request *request)
{
	__u64 queue = (__u64)BPF_CORE_READ(request, q);
	__u32 at = load_of(queue);
	struct load *load = &loads[at];

	if (load->queue != queue &&
	    (load->queue || __sync_val_compare_and_swap(&load->queue, 0, queue)))
		return;
	if (!__sync_lock_test_and_set(mark_of(at, request), 1))
		__sync_fetch_and_add(&load->requests, 1);
}

static __always_inline void request_ends(struct request *request)
{
	__u64 queue = (__u64)BPF_CORE_READ(request, q);
	__u32 at = load_of(queue), *mark = mark_of(at, request);
	struct load *load = &loads[at];

	if (load->queue != queue || !*(volatile __u32 *)mark)
		return;
	if (__sync_lock_test_and_set(mark, 0))
		__sync_fetch_and_add(&load->requests, -1);
}

/* Whether the requests of the queue are counted: one of them was seen. */
static __always_inline bool is_counted(__u64 queue)
{
	return queue && loads[load_of(queue)].queue == queue;
}

static __always_inline __u64 requests_in_flight(__u64 queue)
{
	struct load *load = &loads[load_of(queue)];
	__s64 requests = load->queue == queue ? load->requests : 0;

	return requests > 0 ? requests : 0;
}

#endif
