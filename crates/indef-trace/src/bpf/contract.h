/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF programs and user space agree on: every structure, number and limit that both read.
 * The Rust side is generated from this file when the crate is built (build/contract.rs), so it
 * keeps to simple forms: a #define of a number, an enum whose values are given, and a struct of
 * integers, arrays and other structs, without implicit padding.
 *
 * Device numbers are the kernel's (major << 20 | minor), times are nanoseconds of CLOCK_MONOTONIC,
 * offsets and lengths are bytes.
 */
#ifndef INDEF_CONTRACT_H
#define INDEF_CONTRACT_H

#include <linux/types.h>

/* log2 of the bytes of a block; ranges are handed out in whole blocks, however large pages are. */
#define BLOCK_BITS 12
/* Ranges that are counted in place at the same time: a power of two. */
#define SLOTS 4096
/* Size of the ring, in bytes: a power of two, and a multiple of the page size. */
#define RING_BYTES 4194304
/* Files that the kernel remembers: of more, the least recently used are forgotten. */
#define FILES 131072
/* Tasks that are followed or fault, and sequential readers that are told apart. */
#define TASKS 16384
/* --path takes this many, with the mounts below them; --device and --comm this many each. */
#define MAX_ROOTS 4096
#define MAX_DEVICES 32
#define MAX_COMMS 32
/* Bytes of a task's name, with the zero at its end (include/linux/sched.h: TASK_COMM_LEN). */
#define COMM_BYTES 16
/* Bytes of a file system's UUID. */
#define UUID_BYTES 16
/* Words that fill the rest of a cache line. */
#define LINE_WORDS 2
/* Of a load that is news to user space, one in so many is chosen at once. */
#define BRAKED 64

/*
 * Bits of range_key.kind that are the kind; those above are the process by whose calls the counts
 * are weighed, or 0.
 */
#define KIND_BITS 8

/* How a range was accessed. */
enum range_kind {
	KIND_READ = 0,
	KIND_WRITE = 1,
	/* A series of buffered reads, each of which began where the last one ended. */
	KIND_READ_RUN = 2,
};

/* Which file: st_dev, inode, generation; on Btrfs the subvolume's tree, too. */
struct file_key {
	__u64 inode;
	__u64 subvolume;
	__u32 dev;
	__u32 generation;
};

/* What user space has to know of a file besides its key. */
struct file_entry {
	__u8 uuid[UUID_BYTES];
	__u64 magic;
	/* The short name of the file in range_key. */
	__u32 id;
	/* s_dev: the device of its file system as mountinfo shows it. */
	__u32 sb_dev;
	/* The process that accessed it first: it can reach the file. */
	__u32 pid;
	/* Whether it passes --path and --device. */
	__u32 wanted;
	/* The folder of one of its names; inode 0 if no name is in memory. */
	__u32 parent_generation;
	__u32 reserved;
	__u64 parent_inode;
};

struct range_key {
	__u64 start;
	__u64 len;
	__u32 file;
	__u32 kind;
};

struct counters {
	/* Sum over the timed reads: first request queued to last request done. */
	__u64 time;
	__u32 count;
	__u32 requests;
	__u32 timed;
	/* Reads in the runs of KIND_READ_RUN. */
	__u32 reads;
	/*
	 * Sum over the timed reads: one, and the requests that their device had in flight when
	 * they began; 0 for a read of which that is not known.
	 */
	__u64 depth;
};

/*
 * One range that is being counted. Whoever sets `busy` from 0 to 1 owns the slot until he sets it
 * back. It is as large as a cache line.
 */
struct slot {
	struct range_key key;
	struct counters counters;
	__u32 busy;
	/* Whether there is a range in it. */
	__u32 used;
};

/* A run that goes on (syscall layer); user space takes those left at the end. */
struct run {
	__u64 start;
	__u64 end;
	__u32 file;
	__u32 reads;
	/* Runs that it stands for. */
	__u32 weight;
	/* state.window when it was last continued. */
	__u32 window;
	/* Of its range_key. */
	__u32 process;
	__u32 reserved;
};

/*
 * The page fault that a task had last (syscall layer): one read. User space takes those left at the
 * end.
 */
struct fault {
	/* Faults that the task had completed when this one began. */
	__u64 number;
	/* The kernel's address of the inode. */
	__u64 inode;
	/* The page that was missing; as long as none is, the pages that were mapped. */
	__u64 start;
	__u64 end;
	__u64 time;
	__u32 file;
	__u32 pid;
	/* Faults that it stands for. */
	__u32 weight;
	__u32 reserved;
};

/*
 * The reads and writes of a task that Linux counts for /proc/PID/io (syscr and syscw), chosen or
 * not, since it was seen first; since it began, if that was later than the trace.
 */
struct task_calls {
	/* That time, and when it ended; 0 if it has not. */
	__u64 began;
	__u64 ended;
	__u64 made;
	/* Those of them that were chosen: with the weight 1, and the sum of larger ones. */
	__u64 exact;
	__u64 counted;
	__u32 process;
	__u32 reserved;
};

/* What a record of the ring is; its first field. */
enum event_kind {
	EVENT_FILE = 1,
	EVENT_RANGE = 2,
	EVENT_COUNTED = 3,
	EVENT_ENDED = 4,
};

/* A file is accessed for the first time. */
struct file_event {
	__u32 kind;
	__u32 reserved;
	struct file_key key;
	struct file_entry entry;
};

/* --raw: one read or write. */
struct range_event {
	__u32 kind;
	__u32 requests;
	struct range_key range;
	__u64 time;
	__u32 pid;
	__u32 direct;
};

/* What was counted of a range since it was last handed out. */
struct counted_event {
	__u32 kind;
	__u32 reserved;
	struct range_key range;
	struct counters counters;
};

/* A task has ended some of whose calls were chosen with a weight. */
struct ended_event {
	__u32 kind;
	__u32 reserved;
	struct task_calls calls;
};

/* A tree or a file that --path names, as stat shows it. */
struct root {
	__u64 inode;
	__u32 dev;
	__u32 reserved;
};

/* A name of COMM_BYTES, filled up with zeroes: as numbers, which compare faster. */
struct comm {
	__u64 begin;
	__u64 rest;
};

/* Read-only settings, fixed before the programs are loaded. */
struct config {
	struct comm comms[MAX_COMMS];
	__u32 devices[MAX_DEVICES];
	__u32 devices_len;
	__u32 comms_len;
	__u32 uid;
	/* Filters that are on. */
	__u8 by_task;
	__u8 by_uid;
	__u8 by_cgroup;
	__u8 reads;
	__u8 writes;
	/* Whether series of buffered reads become runs (syscall layer). */
	__u8 runs;
	__u8 raw;
	__u8 by_root;
	/* The process that collects: its own I/O does not count. */
	__u32 collector;
	/*
	 * The collector's PID namespace, by inode number; 0 for the first one, whose numbers the
	 * kernel itself uses. All numbers of processes in these structures are of that namespace.
	 */
	__u32 pid_ns;
	/* Whether only bios of `devices`, and of mounted Btrfs file systems, can count. */
	__u8 only_devices;
	/* Whether the cost has a bound: accesses that are looked at are counted in `state.seen`. */
	__u8 is_bounded;
	/* log2 of the bytes of a page of this kernel. */
	__u8 page_bits;
	__u8 reserved;
};

/* What changes while the programs run. */
struct state {
	/*
	 * Which accesses count. In the lower half, one in how many is chosen; in the upper one, how
	 * many a chosen one stands for, or 0 if none counts now. User space sets both at once, and
	 * so does the brake.
	 */
	__u64 sampling;
	/* The brake: where `seen` reaches `allowed`, BRAKED takes the place of this `sampling`. */
	__u64 usual;
	__u64 allowed;
	/* Counts how often the programs were attached; what began in an earlier window is over. */
	__u32 window;
	/* Chosen anew for each trace: which tasks are chosen when. */
	__u32 salt;
	/* When the window of this number was seen first, in ticks of the kernel's clock. */
	__u64 window_tick;
	__u32 ticked_window;
	__u32 reserved_window;
	/* What the programs write lies in other cache lines than what each of them reads. */
	__u64 line[LINE_WORDS];
	/* Chosen accesses, each single call, where the cost has a bound. */
	__u64 seen;
	/* Accesses and runs that were chosen where not all are. */
	__u64 chosen;
	/* Sum over them of weight * (weight - 1): the variance of the sum of all counts. */
	__u64 variance;
	/* What comes to it because one choice covered several calls (syscall layer). */
	__u64 common;
	/* When the trace began. */
	__u64 began;
	/* Since when each access is chosen, as long as `sampling` chooses each. */
	__u64 exact_since;
	/* This many reads are timed before user space allows more. */
	__u32 timings_left;
	__u32 next_file;
	/* Requests of timed reads that are in flight. */
	__u32 timing;
	/* Whether the trace is over: tasks of which no call was chosen are listed, too. */
	__u32 is_over;
	/* What was lost: accesses and events because of a full ring or a full map. */
	__u64 lost_tallies;
	__u64 lost_tasks;
	__u64 lost_files;
	__u64 lost_events;
	/*
	 * Calls of tasks that have ended, of which no event tells: none of them was chosen with a
	 * weight, or the ring had no room. Without those that were chosen.
	 */
	__u64 untold_calls;
	/* New files that the ring had no room for: user space finds them in the map. */
	__u64 untold_files;
	/* Runs that were cut because too many readers were told apart. */
	__u64 unjoined;
};

#endif
