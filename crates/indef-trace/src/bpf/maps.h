/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all programs share, and how an access gets into it.
 *
 * Ranges are counted in slots: which one, a hash of the range tells. A range that comes to a slot
 * where another one is pushes that out, into the ring, whose reader adds up what he gets. So what
 * is read often is counted in place, and what is not costs one line of a cache and one record of
 * the ring, never a look-up in a map that is larger than the caches. User space empties the slots
 * from time to time, and owns a slot meanwhile just as a program does.
 */
#ifndef INDEF_MAPS_H
#define INDEF_MAPS_H

#include "kernel.h"

const volatile struct config config;
struct state state;

struct slot slots[SLOTS] __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FILES);
	__type(key, struct file_key);
	__type(value, struct file_entry);
} files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

static __always_inline void lost(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

/* Tell what was counted of a range. The ring's reader looks often enough: he is not woken. */
static __always_inline void hand_out(const struct range_key *key, const struct counters *counters)
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
	__u64 mixed = (key->start >> PAGE_BITS) + ((__u64)key->file << 32) + key->kind;

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
	/* Another processor has it, or a program that an interrupt has stopped. */
	if (__sync_lock_test_and_set(&slot->busy, 1)) {
		hand_out(key, more);
		return 0;
	}
	if (slot->used && same_range(&slot->key, key)) {
		slot->counters.count += more->count;
		slot->counters.requests += more->requests;
		slot->counters.reads += more->reads;
		slot->counters.timed += more->timed;
		slot->counters.time += more->time;
	} else {
		if (slot->used)
			hand_out(&slot->key, &slot->counters);
		slot->key = *key;
		slot->counters = *more;
		slot->used = 1;
	}
	/* With a barrier: whoever gets it next sees what was counted. */
	__sync_lock_test_and_set(&slot->busy, 0);
	return 0;
}

/* --raw: hand out one access; the caller has counted it, if it counts. */
static __always_inline void tell(const struct range_key *key, __u32 requests, __u32 direct)
{
	struct range_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		lost(&state.lost_events);
		return;
	}
	event->kind = EVENT_RANGE;
	event->requests = requests;
	event->range = *key;
	event->time = bpf_ktime_get_ns();
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->direct = direct;
	bpf_ringbuf_submit(event, 0);
}

#endif
