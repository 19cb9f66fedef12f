/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What both objects have: settings, state, slots, files and the ring. Each object has its own, and
 * only one object is loaded at a time. Here, too, is how an access is counted.
 *
 * Ranges are counted in slots, chosen by a hash of the range. A range that comes to a slot which
 * holds another one pushes that out into the ring, whose reader adds up what it gets. So a range
 * that is read often is counted in place, and any other costs one cache line and one record of the
 * ring, never a look-up in a map that is larger than the caches. User space empties the slots from
 * time to time, and meanwhile owns a slot just as a program does.
 *
 * All processors share one array. With one of each, the owner of a slot would be needed all the
 * same: an interrupt, another task or user space may come between. A range would be there, and be
 * pushed out, once for each processor that reads it, and emptying would look through 256 KiB of
 * each. What it would spare is that processors take a cache line from each other which count the
 * same range at the same moment. Nobody waits for the other then, the second one sends a record;
 * and where many accesses are made, one in so many is counted that few meet.
 *
 * Each variable has a section, and thereby a map, of its own: user space finds it at offset 0.
 */
#ifndef INDEF_MAPS_H
#define INDEF_MAPS_H

#include "process.h"

const volatile struct config config SEC(".rodata.config");
struct state state SEC(".bss.state");
struct slot slots[SLOTS] SEC(".bss.slots");

/* Where this page of a file begins; the length of so many pages. */
static __always_inline __u64 bytes_of(__u64 pages)
{
	return pages << config.page_bits;
}

/* A file that was forgotten gets a new short name when it is accessed again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FILES);
	__type(key, struct file_key);
	__type(value, struct file_entry);
} files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} events SEC(".maps");

/* The number of the process of a tracepoint's task, as the collector sees it; 0 if it does not. */
static __always_inline __u32 process_of(struct task_struct *task)
{
	if (config.pid_ns)
		return process_in(task, config.pid_ns);
	return task->tgid;
}

static __always_inline __u32 current_process(void)
{
	if (config.pid_ns)
		return process_in((void *)bpf_get_current_task(), config.pid_ns);
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline void lost(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

/*
 * Sampling: `one_in` of the accesses are chosen, each by a coin of its own, and a chosen one counts
 * `weight` times. The coin is tossed before anything is looked up.
 */
static __always_inline __u32 toss(void)
{
	__u64 sampling = *(volatile __u64 *)&state.sampling;
	__u32 one_in = sampling;

	if (one_in > 1 && (__u64)bpf_get_prandom_u32() * one_in >> 32)
		return 0;
	return sampling >> 32;
}

/* The part of time for which the choice of a task holds: a tick of the kernel's clock, 1 to 10 ms.
 */
static __always_inline __u64 epoch(void)
{
	return bpf_jiffies64();
}

/* Epochs since the window began. */
static __always_inline __u64 epoch_of_window(void)
{
	__u64 now = epoch();

	if (*(volatile __u32 *)&state.ticked_window != state.window) {
		*(volatile __u64 *)&state.window_tick = now;
		*(volatile __u32 *)&state.ticked_window = state.window;
	}
	return now - *(volatile __u64 *)&state.window_tick;
}

/*
 * The same, but all accesses of a task within a short time share one coin: what begins where the
 * last one ended is still seen to do so.
 *
 * A window is short and stands for much. So where there are windows, one epoch is chosen in each
 * row of `one_in` from its beginning, at random: with coins of their own, all of a window may fall
 * on the other side.
 */
static __always_inline __u32 toss_for_task(__u32 tid)
{
	__u64 sampling = *(volatile __u64 *)&state.sampling;
	__u32 one_in = sampling, weight = sampling >> 32;
	__u64 now, mixed, wanted = 0;

	if (one_in <= 1)
		return weight;
	if (weight > one_in) {
		now = epoch_of_window();
		wanted = now % one_in;
		now = now / one_in + ((__u64)state.window << 16);
	} else {
		now = epoch();
	}
	mixed = (now << 22 ^ tid) * 0x9e3779b97f4a7c15ull + state.salt;
	mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93ull;
	mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93ull;
	return (mixed >> 32) * one_in >> 32 == wanted ? weight : 0;
}

/*
 * A chosen access is looked at. Where there are so many of them that user space cannot have known,
 * fewer are chosen from now on, until it looks again: the brake.
 *
 * That makes no bias: an access is chosen with a probability that only earlier ones have settled,
 * and its weight is one over it. Where tasks share a coin, who is chosen with BRAKED was chosen
 * before, by the same number.
 */
static __always_inline void note_seen(void)
{
	__u64 usual;

	if (!config.is_bounded ||
	    __sync_fetch_and_add(&state.seen, 1) < *(volatile __u64 *)&state.allowed)
		return;
	usual = *(volatile __u64 *)&state.usual;
	/* What user space has set meanwhile stays. */
	if (*(volatile __u64 *)&state.sampling == usual)
		__sync_val_compare_and_swap(&state.sampling, usual, (__u64)BRAKED << 32 | BRAKED);
}

/* A chosen access is counted. */
static __always_inline void note_chosen(__u32 weight)
{
	if (weight <= 1)
		return;
	__sync_fetch_and_add(&state.variance, (__u64)weight * (weight - 1));
	__sync_fetch_and_add(&state.chosen, 1);
}

/*
 * Accesses that one choice covers vary together: with an earlier one of weight w, this one adds
 * 2 weight (w - 1) to the variance. `covered` is the sum of w - 1 over the earlier ones.
 */
static __always_inline void note_covered(__u32 weight, __u64 covered)
{
	if (weight > 1 && covered)
		__sync_fetch_and_add(&state.common, 2 * (__u64)weight * covered);
}

/* Send what was counted of a range. The ring's reader looks often enough: it is not woken. */
static __always_inline void send_counted(const struct range_key *key,
					 const struct counters *counters)
{
	struct counted_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		if (counters->count)
			__sync_fetch_and_add(&state.lost_tallies, counters->count);
		return;
	}
	event->kind = EVENT_COUNTED;
	event->reserved = 0;
	event->range = *key;
	event->counters = *counters;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline struct slot *slot_of(const struct range_key *key)
{
	__u64 mixed = (key->start >> BLOCK_BITS) + ((__u64)key->file << 32) + key->kind;

	mixed ^= key->len << 20;
	mixed *= 0x9e3779b97f4a7c15ull;
	return &slots[(mixed >> 32) & (SLOTS - 1)];
}

static __always_inline bool same_range(const struct range_key *a, const struct range_key *b)
{
	return a->start == b->start && a->len == b->len && a->file == b->file && a->kind == b->kind;
}

/* Add to the counters of a range. */
__noinline int count(const struct range_key *key, const struct counters *more)
{
	struct slot *slot;

	if (!key || !more)
		return 0;
	slot = slot_of(key);
	/* Another processor owns it, or a program that an interrupt has stopped. */
	if (__sync_lock_test_and_set(&slot->busy, 1)) {
		send_counted(key, more);
		return 0;
	}
	if (slot->used && same_range(&slot->key, key)) {
		slot->counters.count += more->count;
		slot->counters.requests += more->requests;
		slot->counters.reads += more->reads;
		slot->counters.timed += more->timed;
		slot->counters.time += more->time;
		slot->counters.depth += more->depth;
	} else {
		if (slot->used)
			send_counted(&slot->key, &slot->counters);
		slot->key = *key;
		slot->counters = *more;
		slot->used = 1;
	}
	/* With a barrier: the next owner sees what was counted. */
	__sync_lock_test_and_set(&slot->busy, 0);
	return 0;
}

/* --raw: send one access of `time`; the caller has counted it, if it counts. */
static __always_inline void send_access_of(__u32 process, __u64 time, const struct range_key *key,
					   __u32 requests, __u32 direct)
{
	struct range_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		lost(&state.lost_events);
		return;
	}
	event->kind = EVENT_RANGE;
	event->requests = requests;
	event->range = *key;
	event->time = time;
	event->pid = process;
	event->direct = direct;
	bpf_ringbuf_submit(event, 0);
}

/* The same for an access of this task, now. */
static __always_inline void send_access(const struct range_key *key, __u32 requests, __u32 direct)
{
	send_access_of(current_process(), bpf_ktime_get_ns(), key, requests, direct);
}

#endif
