/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The maps that all programs share, and how an access gets into them.
 *
 * Ranges are counted in one of two maps. User space switches to the other one, waits until no
 * program can still hold an entry of the first, reads it and empties it, and then does the same
 * with the other, which is smaller: nothing that is counted meanwhile is lost, and no entry is
 * given to another range while somebody adds to it.
 */
#ifndef INDEF_MAPS_H
#define INDEF_MAPS_H

#include "kernel.h"

const volatile struct config config;
struct state state;

/* Both are allocated at once: making an entry while counting costs several times as much. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TALLIES);
	__type(key, struct range_key);
	__type(value, struct counters);
} tallies_a SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TALLIES_MEANWHILE);
	__type(key, struct range_key);
	__type(value, struct counters);
} tallies_b SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FILES);
	__type(key, struct file_key);
	__type(value, struct file_entry);
} files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

static __always_inline void lost(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

static __always_inline void add_to(struct counters *into, const struct counters *more)
{
	__sync_fetch_and_add(&into->count, more->count);
	if (more->requests)
		__sync_fetch_and_add(&into->requests, more->requests);
	if (more->reads)
		__sync_fetch_and_add(&into->reads, more->reads);
	if (more->timed) {
		__sync_fetch_and_add(&into->timed, more->timed);
		__sync_fetch_and_add(&into->time, more->time);
	}
}

/* Add to the counters of a range. */
static __always_inline void count_in(void *map, __u32 *used, const struct range_key *key,
				     const struct counters *more)
{
	struct counters *have = bpf_map_lookup_elem(map, key);

	if (!have) {
		if (!bpf_map_update_elem(map, key, more, BPF_NOEXIST)) {
			__sync_fetch_and_add(used, 1);
			return;
		}
		/* Another processor was faster, or the map is full. */
		have = bpf_map_lookup_elem(map, key);
		if (!have) {
			if (more->count)
				__sync_fetch_and_add(&state.lost_tallies, more->count);
			return;
		}
	}
	add_to(have, more);
}

__noinline int count(const struct range_key *from, const struct counters *by)
{
	struct counters more;
	struct range_key key;

	if (!from || !by)
		return 0;
	/* Before v6.7, maps take keys and values from the stack, but not from an argument. */
	key = *from;
	more = *by;
	if (*(volatile __u32 *)&state.active)
		count_in(&tallies_b, &state.used[1], &key, &more);
	else
		count_in(&tallies_a, &state.used[0], &key, &more);
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
