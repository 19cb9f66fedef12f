/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests that each device has in flight: counted from their start to their end, as the kernel
 * accounts them (block_io_start and block_io_done, v6.5).
 *
 * A device is its request queue; devices without requests of their own (device mapper) are not
 * told. Only the requests of devices with a read that was timed are counted; a device beyond LOADS
 * of them is not told.
 *
 * A program that an interrupt stops is not run again meanwhile, so a few starts and ends are
 * missed. Therefore each request that was counted has a mark, by a hash of its address: an end
 * without a start changes nothing, two places tell of an end, and a request whose end was missed
 * all the same is not counted twice when it is used again. Counts and marks of an earlier window,
 * in which ends were missed while the programs were detached, are void.
 */
#ifndef INDEF_INFLIGHT_H
#define INDEF_INFLIGHT_H

#include "maps.h"

/* Powers of two. */
#define LOADS 256
#define MARKS 65536
/* Places that a device's counter may have, by its hash. */
#define PLACES 16

/* Alone in its cache line. */
struct load {
	/* The number of the device's queue. */
	__u64 queue;
	__s64 requests;
	/* Window of the requests; 0 before the first. */
	__u32 window;
	__u32 reserved[11];
};

struct load loads[LOADS] SEC(".bss.loads");
/* Of each request that is counted: a part of its state.window, and its load. */
__u32 marks[MARKS] SEC(".bss.marks");

/*
 * A number that stands for an address. To the verifier nothing may be computed with a pointer, but
 * the distance of two of them is a number; reading it from memory would be a call.
 */
#define number_of(pointer)                                                                         \
	({                                                                                         \
		__u64 number = (__u64)(pointer), origin = (__u64)(marks);                          \
		asm volatile("%0 -= %1" : "+r"(number) : "r"(origin));                             \
		number;                                                                            \
	})

/*
 * Twice: addresses of one slab are equal steps apart, and after a single product these bits are,
 * too. One of 40 queues then had no place.
 */
static __always_inline __u32 hash(__u64 number)
{
	const __u64 odd = 0x9e3779b97f4a7c15ull;

	number *= odd;
	number ^= number >> 32;
	return number * odd >> 32;
}

/*
 * The compiler may not know the bounds of it: it would leave out the comparison from which the
 * verifier learns them.
 */
static __always_inline __u32 unknown(__u32 at)
{
	asm volatile("" : "+r"(at));
	return at;
}

/* Where the requests of a queue are counted; LOADS if they are not. */
static __always_inline __u32 load_of(__u64 queue)
{
	__u32 first = hash(queue), at;

	for (__u32 i = 0; i < PLACES; i++) {
		at = (first + i) & (LOADS - 1);
		if (loads[at].queue == queue)
			return at;
		if (!loads[at].queue)
			break;
	}
	return LOADS;
}

/* The same; from now on they are counted, if there is room for the queue. */
static __always_inline __u32 count_load(__u64 queue)
{
	__u32 first = hash(queue), at;
	__u64 have;

	if (!queue)
		return LOADS;
	for (__u32 i = 0; i < PLACES; i++) {
		at = (first + i) & (LOADS - 1);
		have = loads[at].queue;
		if (!have)
			have = __sync_val_compare_and_swap(&loads[at].queue, 0, queue);
		if (!have || have == queue)
			return at;
	}
	return LOADS;
}

/* The number of the window, from 1 on. */
static __always_inline __u32 this_window(void)
{
	return state.window + 1;
}

static __always_inline __u32 mark_in(__u32 load)
{
	return this_window() * LOADS + load;
}

static __always_inline void request_starts(struct request *request)
{
	__u32 at = unknown(load_of(number_of(request->q))), mine, have;
	struct load *load;
	__u32 *mark;

	if (at >= LOADS)
		return;
	load = &loads[at];
	if (load->window != this_window()) {
		/* Processors may race here: the first requests of a window may be missed. */
		load->requests = 0;
		load->window = this_window();
	}
	mine = mark_in(at);
	mark = &marks[hash(number_of(request)) & (MARKS - 1)];
	have = *(volatile __u32 *)mark;
	if (have / LOADS == mine / LOADS)
		return;
	if (__sync_val_compare_and_swap(mark, have, mine) == have)
		__sync_fetch_and_add(&load->requests, 1);
}

static __always_inline void request_ends(struct request *request)
{
	__u32 at = unknown(load_of(number_of(request->q))), mine;
	__u32 *mark;

	if (at >= LOADS)
		return;
	mine = mark_in(at);
	mark = &marks[hash(number_of(request)) & (MARKS - 1)];
	if (*(volatile __u32 *)mark != mine)
		return;
	if (__sync_val_compare_and_swap(mark, mine, 0) == mine)
		__sync_fetch_and_add(&loads[at].requests, -1);
}

/* Whether requests of the device are seen. */
static __always_inline bool is_counted(__u32 at)
{
	at = unknown(at);
	return at < LOADS && loads[at].window == this_window();
}

static __always_inline __u32 requests_in_flight(__u32 at)
{
	__s64 requests;

	if (!is_counted(at))
		return 0;
	requests = loads[at & (LOADS - 1)].requests;
	return requests > 0 ? requests : 0;
}

#endif
