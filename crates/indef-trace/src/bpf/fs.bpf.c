/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layer fs: the reads and writes that reach the device, after the page cache and read-ahead (InDeF
 * III-A).
 *
 * A *read* is one request to the file system: a read-ahead window or a direct read. Its tracepoint
 * announces it, and it is kept for the task as *pending*. The bios that the task then queues show
 * which part of it is really fetched, and the number of its requests is theirs, after splitting and
 * merging. A read of which nothing reaches the device does not count, nor do holes. What lies
 * around a hole, or around pages that are in the cache already, is a read for each part.
 *
 * A read ends when the task begins another, or ends, or when the trace does.
 *
 * Filters and the coin of sampling (maps.h) come first: where a read begins. For one that does not
 * count, only its place is noted, so that its bios are not taken for those of another. Each read
 * and each bio that is written has a coin of its own: a count is the sum of independent choices,
 * but for the parts of one window and the runs of one bio, which share theirs (note_covered).
 *
 * Bios of buffered I/O carry pages of the page cache, and these know their file. Bios of direct I/O
 * carry the application's pages, and belong to the direct read or write that the task is in.
 * Metadata is neither: its pages belong to no regular file, or, on XFS, to a bio that iomap did not
 * make.
 *
 * Writes are counted when they are queued: each bio counts as one write, or, if its pages are not
 * contiguous in the file, as one for each contiguous run.
 *
 * Left out: file contents that reach the device in other pages than the file's (encrypted writes,
 * compressed Btrfs writes, RAID5/6 of Btrfs). A compressed extent that is read counts as the whole
 * read-ahead window that asked for it; without read-ahead it is not seen.
 */
#include "file.h"
#include "filter.h"
#include "inflight.h"

char LICENSE[] SEC("license") = "GPL";

enum pending_kind {
	PENDING_NONE = 0,
	/* Read-ahead: bios with pages inside the batch belong to it. */
	PENDING_BATCH,
	/* A folio that was read alone: bios with pages of the same folio belong to it. */
	PENDING_FOLIO,
	/* Direct I/O: bios with foreign pages belong to it. */
	PENDING_DIRECT,
};

/* A read or write that a task has under way. */
struct pending {
	/* The kernel's address of the inode. */
	__u64 inode;
	/* Where the batch or direct I/O begins and ends. */
	__u64 start;
	__u64 end;
	/* The part of it that was queued; none if `to` is 0. */
	__u64 from;
	__u64 to;
	/* Head page of the folio. */
	__u64 folio;
	/* The bio that was queued last. */
	__u64 bio;
	/* The kernel's address of what direct I/O was asked for with. */
	__u64 iocb;
	/* Timed: key in `timings`; else 0. */
	__u64 timing;
	__u32 file;
	__u32 requests;
	/* enum pending_kind. */
	__u32 kind;
	/* KIND_READ or KIND_WRITE. */
	__u32 range_kind;
	__u32 bdev;
	/* What was learned of the inode of the last read, as long as it is still that file. */
	__u32 known_file;
	__u64 known_inode;
	__u64 known_number;
	__u32 known_generation;
	__u32 known_bdev;
	/* Accesses that it stands for; 0 if it does not count. */
	__u32 weight;
	/* state.window when it began. */
	__u32 window;
	/* Sum of weight - 1 over its parts that were counted already. */
	__u64 covered;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pending);
} pendings SEC(".maps");

/* Timed reads that are in flight, and their bios. */
#define TIMINGS 2048
#define TIMED_BIOS 4096

/* A timed read. Whoever drops the last hold adds it to the counters. */
struct timing {
	__u64 begin, end;
	/* One for the pending read, one for each of its bios. */
	__s64 holds;
	struct range_key key;
	/* Where its device's requests are counted, and those that were in flight. */
	__u32 load;
	__u32 ahead;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TIMINGS);
	__type(key, __u64);
	__type(value, struct timing);
} timings SEC(".maps");

/* Bios of one request that are looked at, and pages of one bio. */
#define MAX_BIOS 32
#define MAX_BIO_PAGES 256

/* From a bio to the timed read that it belongs to. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TIMED_BIOS);
	__type(key, __u64);
	__type(value, __u64);
} inflight SEC(".maps");

/* Block devices that belong to mounted Btrfs file systems: user space fills it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} btrfs_devices SEC(".maps");

extern const void iomap_dio_bio_end_io __ksym __weak;

/* Whether a bio of this device can be of a file that passes --device. */
static __always_inline bool may_be_wanted(__u32 bdev)
{
	return !config.only_devices || on_devices(bdev, bdev) ||
	       bpf_map_lookup_elem(&btrfs_devices, &bdev);
}

static __always_inline void drop_hold(struct timing *timing, __u64 id)
{
	struct counters more = {};
	struct range_key key;

	if (__sync_fetch_and_add(&timing->holds, -1) != 1)
		return;
	if (timing->key.file && timing->end > timing->begin) {
		key = timing->key;
		more.timed = 1;
		more.time = timing->end - timing->begin;
		if (is_counted(timing->load))
			more.depth = 1 + timing->ahead;
		count(&key, &more);
	}
	bpf_map_delete_elem(&timings, &id);
}

/*
 * The pending read or write is complete: count the part of it that was queued. `process` is that of
 * its task, for --raw.
 */
__noinline int settle(struct pending *pending, __u32 process)
{
	struct range_key key = {};
	struct counters more = {};
	struct timing *timing;
	__u64 id;

	if (!pending)
		return 0;
	id = pending->timing;
	if (pending->to && pending->file) {
		key.start = pending->from & ~(BLOCK_BYTES - 1);
		key.len = ((pending->to + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1)) - key.start;
		key.file = pending->file;
		key.kind = pending->range_kind;
		more.count = pending->weight;
		more.requests = pending->requests * pending->weight;
		count(&key, &more);
		note_seen();
		note_chosen(pending->weight);
		note_covered(pending->weight, pending->covered);
		pending->covered += pending->weight - 1;
		if (config.raw)
			send_access_of(process, bpf_ktime_get_ns(), &key, pending->requests,
				       pending->kind == PENDING_DIRECT);
	}
	if (id) {
		timing = bpf_map_lookup_elem(&timings, &id);
		if (timing) {
			timing->key = key;
			drop_hold(timing, id);
		}
	}
	pending->kind = PENDING_NONE;
	pending->to = 0;
	pending->timing = 0;
	return 0;
}

/* The same, by the task itself. */
static __always_inline void settle_own(struct pending *pending)
{
	settle(pending, config.raw ? current_process() : 0);
}

/* What was queued so far is one read; what is queued next in the same window is another one. */
static __always_inline void next_part(struct pending *pending)
{
	__u32 kind = pending->kind;

	if (!pending->to)
		return;
	settle_own(pending);
	pending->kind = kind;
	pending->requests = 0;
}

/* The task's pending read, if it has one. */
static __always_inline struct pending *pending_of_task(void)
{
	struct pending *have;

	have = bpf_task_storage_get(&pendings, bpf_get_current_task_btf(), NULL, 0);
	/* The programs were detached meanwhile: the rest of it was not seen. */
	if (have && have->window != state.window) {
		settle_own(have);
		have->window = state.window;
	}
	return have;
}

/* The same, made if it has none. */
static __always_inline struct pending *new_pending(void)
{
	struct pending *made;

	made = bpf_task_storage_get(&pendings, bpf_get_current_task_btf(), NULL,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!made) {
		lost(&state.lost_tasks);
		return NULL;
	}
	made->window = state.window;
	return made;
}

/*
 * End what the task has pending, if anything, and begin something else. What passes no filter
 * (`wanted`) is only noted for a task that has something pending; what is not chosen always is, or
 * its bios would get a coin of their own.
 */
static __always_inline struct pending *begin(struct pending *pending, __u32 kind,
					     struct inode *inode, __u64 start, __u64 end,
					     __u32 range_kind, bool wanted)
{
	__u32 weight = 0;

	wanted = wanted && (range_kind == KIND_READ ? config.reads : config.writes);
	if (pending) {
		settle_own(pending);
		/* The coin first: filters on tasks cost more. */
		if (wanted)
			weight = toss();
		if (weight && !task_wanted())
			weight = 0;
	} else {
		if (!wanted || !task_wanted())
			return NULL;
		pending = new_pending();
		if (!pending)
			return NULL;
		weight = toss();
	}
	pending->kind = kind;
	pending->weight = weight;
	pending->covered = 0;
	pending->inode = (__u64)inode;
	pending->start = start;
	pending->end = end;
	pending->from = 0;
	pending->bio = 0;
	pending->iocb = 0;
	pending->file = 0;
	pending->requests = 0;
	pending->range_kind = range_kind;
	return pending;
}

/* Watch for the completion of a bio. */
static __always_inline long watch(__u64 bio, __u64 id)
{
	long refused = bpf_map_update_elem(&inflight, &bio, &id, BPF_ANY);

	if (!refused)
		__sync_fetch_and_add(&state.timing, 1);
	return refused;
}

/* The short name of the pending file; tasks tend to read the same file again and again. */
static __always_inline __u32 file_of_pending(struct pending *pending)
{
	struct inode *inode = (struct inode *)pending->inode;
	__u32 generation = BPF_CORE_READ(inode, i_generation);
	__u64 number = BPF_CORE_READ(inode, i_ino);

	if (pending->known_inode == pending->inode && pending->known_number == number &&
	    pending->known_generation == generation)
		return pending->known_file;
	pending->known_inode = pending->inode;
	pending->known_number = number;
	pending->known_generation = generation;
	pending->known_bdev = 0;
	pending->known_file = intern(pending->inode);
	return pending->known_file;
}

/* Add a bio to the pending read or write: `from` up to `to` of the file are under way. */
static __always_inline void join(struct pending *pending, struct bio *bio, __u64 from, __u64 to)
{
	__u64 id, at = (__u64)bio, queue = 0;
	struct timing fresh = { .holds = 2 }, *timing;

	pending->bio = at;
	pending->requests++;
	if (!pending->to) {
		pending->file = file_of_pending(pending);
		pending->from = from;
		pending->to = to;
		if (pending->range_kind != KIND_READ || !pending->file)
			return;
		/* Processors may race for the last ones: a few too many do no harm. */
		if (!state.timings_left)
			return;
		state.timings_left--;
		id = bpf_get_prandom_u32();
		if (bpf_core_field_exists(bio->bi_bdev->bd_queue))
			queue = number_of(bio->bi_bdev->bd_queue);
		fresh.load = count_load(queue);
		fresh.ahead = requests_in_flight(fresh.load);
		fresh.begin = bpf_ktime_get_ns();
		id = id << 32 | (__u32)fresh.begin;
		if (!id || bpf_map_update_elem(&timings, &id, &fresh, BPF_NOEXIST))
			return;
		pending->timing = id;
		if (watch(at, id)) {
			/* It cannot be timed. */
			bpf_map_delete_elem(&timings, &id);
			pending->timing = 0;
		}
		return;
	}
	if (from < pending->from)
		pending->from = from;
	if (to > pending->to)
		pending->to = to;
	id = pending->timing;
	if (!id)
		return;
	timing = bpf_map_lookup_elem(&timings, &id);
	if (!timing)
		return;
	__sync_fetch_and_add(&timing->holds, 1);
	if (watch(at, id))
		drop_hold(timing, id);
}

/* Which bytes of which file a bio carries. */
struct bio_range {
	struct inode *inode;
	__u64 from, to;
	__u64 folio;
	/* Its pages are of the page cache of a file on this device. */
	bool cached;
	/* They are of a block device, where ext4 and others keep their maps, or of Btrfs' trees. */
	bool metadata;
};

/* The first page of a page's folio: compound_head() (include/linux/page-flags.h, v6.1 and v7.3). */
static __always_inline struct page *first_page(struct page *page)
{
	unsigned long info;

	if (bpf_core_field_exists(struct page___info, compound_info))
		info = BPF_CORE_READ((struct page___info *)page, compound_info);
	else
		info = BPF_CORE_READ(page, compound_head);
	if (!(info & 1))
		return page;
	/*
	 * The address of the first page, or a mask for the address of this one. A folio has at most
	 * 16 GiB, or 2^28 bytes of struct page; no struct page lies so near to the end of
	 * addresses.
	 */
	if (bpf_core_field_exists(struct page___info, compound_info) && (long)info >= -(1l << 28))
		return (void *)((unsigned long)page & info);
	return (void *)(info - 1);
}

/* Where in its file the page of a bio_vec begins; sets its folio and mapping. */
static __always_inline __u64 file_offset(struct bio_vec *vec, __u64 *folio_at,
					 struct address_space **mapping)
{
	struct page *page = BPF_CORE_READ(vec, bv_page);
	struct page *first = first_page(page);
	__u64 inside = ((__u64)page - (__u64)first) / bpf_core_type_size(struct page);
	__u64 index;

	if (bpf_core_type_exists(struct folio)) {
		struct folio *folio = (void *)first;

		*mapping = BPF_CORE_READ(folio, mapping);
		index = BPF_CORE_READ(folio, index);
	} else {
		*mapping = BPF_CORE_READ(first, mapping);
		index = BPF_CORE_READ(first, index);
	}
	*folio_at = (__u64)first;
	return bytes_of(index + inside) + BPF_CORE_READ(vec, bv_offset);
}

/* Whether the bio is on a device that the file system itself drives, not one below (dm, loop). */
static __always_inline bool is_own_device(struct super_block *sb, struct bio *bio)
{
	__u32 bdev = bio->bi_bdev->bd_dev;
	__u64 magic;

	if (BPF_CORE_READ(sb, s_bdev, bd_dev) == bdev)
		return true;
	magic = BPF_CORE_READ(sb, s_magic);
	if (magic == BTRFS_SUPER_MAGIC)
		return bpf_map_lookup_elem(&btrfs_devices, &bdev);
	/* F2FS on several devices. */
	return magic == F2FS_SUPER_MAGIC && !(bio->bi_flags & (1 << BIO_CLONED));
}

/* The part of the current page vector that the bio has left behind. */
static __always_inline unsigned int bytes_done(struct bio *bio)
{
	if (bpf_core_field_exists(struct bio___offset, bi_iter.bi_offset))
		return ((struct bio___offset *)bio)->bi_iter.bi_offset;
	return bio->bi_iter.bi_bvec_done;
}

static __always_inline void locate(struct bio *bio, struct bio_range *range)
{
	struct bio_vec *vec = bio->bi_io_vec;
	struct address_space *mapping;
	struct super_block *sb;
	struct inode *inode;
	unsigned int first = bio->bi_iter.bi_idx;
	unsigned int done = bytes_done(bio);

	range->cached = false;
	range->metadata = false;
	range->from = file_offset(vec + first, &range->folio, &mapping) + done;
	/* The lowest bits mark anonymous memory. */
	if (!mapping || ((__u64)mapping & 3))
		return;
	inode = BPF_CORE_READ(mapping, host);
	if (!inode)
		return;
	if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFBLK) {
		range->metadata = true;
		return;
	}
	sb = BPF_CORE_READ(inode, i_sb);
	if (!is_own_device(sb, bio))
		return;
	if (BPF_CORE_READ(inode, i_ino) == BTRFS_BTREE_INODE &&
	    BPF_CORE_READ(sb, s_magic) == BTRFS_SUPER_MAGIC) {
		range->metadata = true;
		return;
	}
	range->inode = inode;
	range->cached = true;
	range->to = range->from + bio->bi_iter.bi_size;
}

/*
 * The pages of a bio are contiguous on the device. In the file there may be holes between them:
 * then the last page tells where the range ends.
 */
static __always_inline void extend_over_holes(struct bio *bio, struct bio_range *range)
{
	struct address_space *mapping;
	unsigned int last = bio->bi_vcnt;
	struct bio_vec *vec = bio->bi_io_vec;
	__u64 folio, to;

	if (bio->bi_flags & (1 << BIO_CLONED) || last < 2)
		return;
	vec += last - 1;
	to = file_offset(vec, &folio, &mapping) + BPF_CORE_READ(vec, bv_len);
	if (to > range->to)
		range->to = to;
}

static __always_inline void read_queued(struct bio *bio, struct bio_range *range)
{
	struct pending *pending = pending_of_task();

	if (pending && pending->inode == (__u64)range->inode && pending->range_kind == KIND_READ) {
		if (pending->kind == PENDING_BATCH && range->from >= pending->start &&
		    range->from < pending->end)
			goto joins;
		if (pending->kind == PENDING_FOLIO && pending->folio == range->folio)
			goto joins;
	}
	pending = begin(pending, PENDING_FOLIO, range->inode, range->from, range->to, KIND_READ,
			on_wanted_device(range->inode));
	if (!pending)
		return;
	pending->folio = range->folio;
joins:
	if (pending->weight) {
		if (range->from > pending->to || range->to < pending->from)
			next_part(pending);
		pending->bdev = bio->bi_bdev->bd_dev;
		join(pending, bio, range->from, range->to);
	} else {
		/* Its window is complete all the same. */
		pending->to = range->to;
	}
}

/* Whether a filter on processes is on. Kernel threads do the writeback: see `dirtied`. */
static __always_inline bool filters_tasks(void)
{
	return config.by_task || config.by_uid || config.by_cgroup || config.comms_len;
}

/* Files that a process that counts has made dirty: their writeback counts, whoever does it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TASKS);
	/* Not the short name: a file may get another one before it is written back. */
	__type(key, struct file_key);
	__type(value, __u32);
} dirtied SEC(".maps");

static __always_inline bool was_dirtied(struct inode *inode)
{
	struct file_key key;

	key_of(inode, &key);
	return bpf_map_lookup_elem(&dirtied, &key);
}

/*
 * One of the writes of a bio, whose coin has `covered` so many of them before. Returns how many
 * that are now: a number that the verifier does not know, and which so makes no state of a loop
 * another.
 */
__noinline int written(__u32 file, __u32 weight, __u64 from, __u64 to, __u32 covered)
{
	struct counters more = { .count = weight, .requests = weight };
	struct range_key key = { .file = file, .kind = KIND_WRITE };

	key.start = from & ~(BLOCK_BYTES - 1);
	key.len = ((to + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1)) - key.start;
	count(&key, &more);
	note_seen();
	note_chosen(weight);
	note_covered(weight, (__u64)covered * (weight - 1));
	if (config.raw)
		send_access(&key, 1, 0);
	return covered + 1;
}

/* Pages that are contiguous on the device, but not in the file, count as one write for each run. */
static __always_inline void written_in_runs(__u32 file, __u32 weight, struct bio *bio)
{
	struct address_space *mapping;
	struct bio_vec *vec = bio->bi_io_vec;
	__u64 from = 0, to = 0, start, folio;
	unsigned int pages = bio->bi_vcnt;
	__u32 covered = 0;

	for (int i = 0; i < MAX_BIO_PAGES && i < pages; i++) {
		start = file_offset(vec + i, &folio, &mapping);
		if (start != to) {
			if (to)
				covered = written(file, weight, from, to, covered);
			from = start;
		}
		to = start + BPF_CORE_READ(vec + i, bv_len);
	}
	if (to)
		written(file, weight, from, to, covered);
}

static __always_inline void write_queued(struct bio *bio, struct bio_range *range)
{
	__u64 to = range->to;
	__u32 file, weight;

	if (!is_regular(range->inode) || !on_wanted_device(range->inode))
		return;
	weight = toss();
	if (!weight || (filters_tasks() && !was_dirtied(range->inode)))
		return;
	file = intern((__u64)range->inode);
	if (!file)
		return;
	extend_over_holes(bio, range);
	if (range->to == to)
		written(file, weight, range->from, to, 0);
	else
		written_in_runs(file, weight, bio);
}

/* Whether a bio is certainly one of direct I/O: iomap made it. Btrfs makes its own. */
static __always_inline bool is_direct(struct bio *bio)
{
	return &iomap_dio_bio_end_io && bio->bi_end_io == &iomap_dio_bio_end_io;
}

/*
 * Compressed extents of Btrfs are read into pages of their own, and fill the window that was asked
 * for: any other read with foreign pages would be direct, and the task is not in one.
 */
static __always_inline void compressed_queued(struct pending *pending, struct bio *bio)
{
	struct inode *inode = (struct inode *)pending->inode;
	struct super_block *sb = BPF_CORE_READ(inode, i_sb);
	__u64 size = BPF_CORE_READ(inode, i_size);

	if (BPF_CORE_READ(sb, s_magic) != BTRFS_SUPER_MAGIC || !is_own_device(sb, bio) ||
	    (bio->bi_opf & REQ_OP_MASK) != REQ_OP_READ || size <= pending->start)
		return;
	pending->bdev = bio->bi_bdev->bd_dev;
	join(pending, bio, pending->start, pending->end < size ? pending->end : size);
}

/* A bio with foreign pages: it is of the direct I/O that the task is in, compressed, or metadata.
 */
static __always_inline void direct_queued(struct bio *bio)
{
	struct pending *pending = pending_of_task();
	__u32 bdev = bio->bi_bdev->bd_dev;
	struct super_block *sb;
	struct inode *inode;

	if (!pending)
		return;
	if (!pending->weight) {
		/* Its window is complete all the same. */
		pending->to = pending->end;
		return;
	}
	if (pending->kind == PENDING_BATCH)
		compressed_queued(pending, bio);
	if (pending->kind != PENDING_DIRECT)
		return;
	if (pending->known_inode != pending->inode || pending->known_bdev != bdev) {
		inode = (struct inode *)pending->inode;
		sb = BPF_CORE_READ(inode, i_sb);
		if (!is_own_device(sb, bio))
			return;
		if (BPF_CORE_READ(sb, s_magic) == XFS_SUPER_MAGIC && &iomap_dio_bio_end_io &&
		    !is_direct(bio))
			return;
	} else if (!is_direct(bio)) {
		/* iomap makes the bios of this file: another one is metadata. */
		return;
	}
	pending->bdev = bdev;
	join(pending, bio, pending->start, pending->end);
	if (is_direct(bio))
		pending->known_bdev = bdev;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	follow_child(parent, child);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_bio_queue, struct bio *bio)
{
	__u32 op = bio->bi_opf & REQ_OP_MASK;
	struct bio_range range = {};

	if (!bio->bi_iter.bi_size)
		return 0;
	if (op != REQ_OP_READ && op != REQ_OP_WRITE && op != REQ_OP_ZONE_APPEND)
		return 0;
	if (!(op == REQ_OP_READ ? config.reads : config.writes) ||
	    !may_be_wanted(bio->bi_bdev->bd_dev))
		return 0;
	if (!is_direct(bio))
		locate(bio, &range);
	if (!range.cached) {
		if (!range.metadata)
			direct_queued(bio);
		return 0;
	}
	if (op == REQ_OP_READ) {
		if (!is_regular(range.inode))
			return 0;
		extend_over_holes(bio, &range);
		read_queued(bio, &range);
	} else {
		write_queued(bio, &range);
	}
	return 0;
}

/* The task's pending read or write, if its requests go to `bdev`. */
static __always_inline struct pending *pending_on(__u32 bdev)
{
	struct pending *pending;

	if (!may_be_wanted(bdev))
		return NULL;
	pending = pending_of_task();
	if (!pending || !pending->weight || !pending->to || pending->bdev != bdev)
		return NULL;
	return pending;
}

SEC("tp_btf/block_split")
int BPF_PROG(on_split, struct bio *bio)
{
	struct pending *pending = pending_on(bio->bi_bdev->bd_dev);

	if (pending)
		pending->requests++;
	return 0;
}

/* A bio that was merged into an earlier request is no request of its own. */
static __always_inline void merged(struct bio *bio)
{
	struct pending *pending = pending_on(bio->bi_bdev->bd_dev);

	if (pending && pending->bio == (__u64)bio && pending->requests)
		pending->requests--;
}

SEC("tp_btf/block_bio_backmerge")
int BPF_PROG(on_backmerge, struct bio *bio)
{
	merged(bio);
	return 0;
}

SEC("tp_btf/block_bio_frontmerge")
int BPF_PROG(on_frontmerge, struct bio *bio)
{
	merged(bio);
	return 0;
}

static __always_inline void bio_done(struct bio *bio)
{
	__u64 at = (__u64)bio, id, *have = bpf_map_lookup_elem(&inflight, &at);
	struct timing *timing;

	if (!have)
		return;
	id = *have;
	bpf_map_delete_elem(&inflight, &at);
	__sync_fetch_and_add(&state.timing, -1);
	timing = bpf_map_lookup_elem(&timings, &id);
	if (!timing)
		return;
	timing->end = bpf_ktime_get_ns();
	drop_hold(timing, id);
}

SEC("tp_btf/block_io_start")
int BPF_PROG(on_request_start, struct request *request)
{
	request_starts(request);
	return 0;
}

SEC("tp_btf/block_io_done")
int BPF_PROG(on_request_end, struct request *request)
{
	request_ends(request);
	return 0;
}

/* A request that became a part of another one ends without being done. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(on_request_merge, struct request *request)
{
	request_ends(request);
	return 0;
}

/* Devices with a request queue: a request may carry several bios. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_request_complete, struct request *request)
{
	struct bio *bio;

	request_ends(request);
	if (!*(volatile __u32 *)&state.timing)
		return 0;
	bio = BPF_CORE_READ(request, bio);
	for (int i = 0; i < MAX_BIOS && bio; i++) {
		bio_done(bio);
		bio = BPF_CORE_READ(bio, bi_next);
	}
	return 0;
}

/* Devices without one. */
SEC("tp_btf/block_bio_complete")
int BPF_PROG(on_bio_complete, void *queue, struct bio *bio)
{
	if (*(volatile __u32 *)&state.timing)
		bio_done(bio);
	return 0;
}

static __always_inline void batch(struct inode *inode, __u64 index, __u64 pages)
{
	if (is_regular(inode))
		begin(pending_of_task(), PENDING_BATCH, inode, bytes_of(index),
		      bytes_of(index + pages), KIND_READ, on_wanted_device(inode));
}

/* The window that read-ahead decided on (mm/readahead.c, v6.18). */
SEC("tp_btf/page_cache_ra_unbounded")
int BPF_PROG(on_readahead, struct inode *inode, unsigned long index, unsigned long pages)
{
	batch(inode, index, pages);
	return 0;
}

struct file_ra_state {
	unsigned int size;
} __attribute__((preserve_access_index));

/* The same in large folios. */
SEC("tp_btf/page_cache_ra_order")
int BPF_PROG(on_readahead_order, struct inode *inode, unsigned long index, struct file_ra_state *ra)
{
	batch(inode, index, ra->size);
	return 0;
}

/* Kernels before these tracepoints, where functions can be watched. */
SEC("fentry/page_cache_ra_unbounded")
int BPF_PROG(on_readahead_function, struct readahead_control *ractl, unsigned long pages)
{
	batch(BPF_CORE_READ(ractl, mapping, host), BPF_CORE_READ(ractl, _index), pages);
	return 0;
}

SEC("fentry/page_cache_ra_order")
int BPF_PROG(on_readahead_order_function, struct readahead_control *ractl, struct file_ra_state *ra)
{
	batch(BPF_CORE_READ(ractl, mapping, host), BPF_CORE_READ(ractl, _index),
	      BPF_CORE_READ(ra, size));
	return 0;
}

/*
 * Kernels where they cannot be watched: pages that are added to the page cache one after the other,
 * before a bio fetches the first, are one window. Written pages are added, too; no bio follows, and
 * they do not count.
 */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(on_page_added, void *folio)
{
	struct address_space *mapping;
	struct pending *pending;
	struct inode *inode;
	__u64 index;

	if (bpf_core_type_exists(struct folio)) {
		mapping = BPF_CORE_READ((struct folio *)folio, mapping);
		index = BPF_CORE_READ((struct folio *)folio, index);
	} else {
		mapping = BPF_CORE_READ((struct page *)folio, mapping);
		index = BPF_CORE_READ((struct page *)folio, index);
	}
	inode = BPF_CORE_READ(mapping, host);
	if (!inode || !is_regular(inode))
		return 0;
	pending = pending_of_task();
	/* The size of a folio does not matter: a bio that begins in the last one still joins. */
	if (pending && pending->kind == PENDING_BATCH && pending->inode == (__u64)inode &&
	    !pending->to && bytes_of(index) >= pending->end &&
	    bytes_of(index) - pending->end < bytes_of(512))
		pending->end = bytes_of(index + 1);
	else
		batch(inode, index, 1);
	return 0;
}

/*
 * A file system that must not fault pages in under its locks (Btrfs; fs/btrfs/direct-io.c, v6.18)
 * stops in front of a page of the buffer that was never touched, faults it in, and tries the rest:
 * that is the same read or write.
 */
static __always_inline bool goes_on(struct pending *pending, struct kiocb *iocb,
				    struct inode *inode, __u64 from, __u64 end, __u32 range_kind)
{
	return pending && pending->kind == PENDING_DIRECT && pending->iocb == (__u64)iocb &&
	       pending->inode == (__u64)inode && pending->range_kind == range_kind && pending->to &&
	       pending->to == from && pending->end == end;
}

static __always_inline void direct(struct kiocb *iocb, struct inode *inode, __u64 size, __u64 from,
				   __u64 len, bool writes, bool wanted)
{
	__u32 range_kind = writes ? KIND_WRITE : KIND_READ;
	struct pending *pending = pending_of_task();
	__u64 to = from + len;

	/* Nothing past the end of the file is read. */
	if (!writes && to > size)
		to = size;
	if (from >= to || goes_on(pending, iocb, inode, from, to, range_kind))
		return;
	pending = begin(pending, PENDING_DIRECT, inode, from, to, range_kind, wanted);
	if (pending)
		pending->iocb = (__u64)iocb;
}

/* Where the kernel's pointers have types, their fields are read without a call. */
#define DIRECT(node, iocb, iter)                                                                   \
	do {                                                                                       \
		struct inode *inode = node;                                                        \
                                                                                                   \
		direct(iocb, inode, inode->i_size, (iocb)->ki_pos, (iter)->count,                  \
		       (iter)->data_source,                                                        \
		       (inode->i_mode & S_IFMT) == S_IFREG &&                                      \
			       (!config.devices_len ||                                             \
				on_devices(inode->i_sb->s_dev, inode->i_sb->s_bdev->bd_dev)));     \
	} while (0)

SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(on_direct, struct kiocb *iocb, struct iov_iter *iter)
{
	DIRECT(iocb->ki_filp->f_inode, iocb, iter);
	return 0;
}

SEC("fentry/__iomap_dio_rw")
int BPF_PROG(on_direct_function, struct kiocb *iocb, struct iov_iter *iter)
{
	DIRECT(iocb->ki_filp->f_inode, iocb, iter);
	return 0;
}

/* v5.17 to v6.5: the function has more arguments than fentry can take. */
SEC("kprobe/__iomap_dio_rw")
int on_direct_probe(struct pt_regs *regs)
{
	struct kiocb *iocb = (void *)ARG1(regs);
	struct iov_iter *iter = (void *)ARG2(regs);
	struct inode *inode = BPF_CORE_READ(iocb, ki_filp, f_inode);

	direct(iocb, inode, BPF_CORE_READ(inode, i_size), BPF_CORE_READ(iocb, ki_pos),
	       BPF_CORE_READ(iter, count), BPF_CORE_READ(iter, data_source),
	       is_regular(inode) && on_wanted_device(inode));
	return 0;
}

/*
 * Direct I/O is done up to `at`: less than was asked for, if it stopped in front of an untouched
 * page, or of an extent that has to go through the page cache.
 */
static __always_inline void direct_end(struct kiocb *iocb, __u64 at)
{
	struct pending *pending = pending_of_task();

	if (pending && pending->kind == PENDING_DIRECT && pending->iocb == (__u64)iocb &&
	    at > pending->start && at < pending->to)
		pending->to = at;
}

SEC("tp_btf/iomap_dio_complete")
int BPF_PROG(on_direct_end, struct kiocb *iocb)
{
	direct_end(iocb, BPF_CORE_READ(iocb, ki_pos));
	return 0;
}

/* Kernels before this tracepoint: the function that then moves the position on. */
SEC("fentry/iomap_dio_complete")
int BPF_PROG(on_direct_end_function, struct iomap_dio *dio)
{
	struct kiocb *iocb = BPF_CORE_READ(dio, iocb);

	if (!BPF_CORE_READ(dio, error))
		direct_end(iocb, BPF_CORE_READ(iocb, ki_pos) + BPF_CORE_READ(dio, size));
	return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(on_dirtied, void *folio, struct address_space *mapping)
{
	struct file_key key;
	struct inode *inode;
	__u32 one = 1;

	/* Without such a filter, nobody asks who it was. */
	if (!config.writes || !filters_tasks() || !mapping || !task_wanted())
		return 0;
	inode = BPF_CORE_READ(mapping, host);
	if (!inode || !is_regular(inode) || !on_wanted_device(inode))
		return 0;
	if (!intern((__u64)inode))
		return 0;
	key_of(inode, &key);
	bpf_map_update_elem(&dirtied, &key, &one, BPF_ANY);
	return 0;
}

/* For each task, now and then: user space reads which files' short names the task carries. */
SEC("iter/task")
int each_task(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct pending *pending;
	__u32 files[2];

	if (!task)
		return 0;
	pending = bpf_task_storage_get(&pendings, task, NULL, 0);
	if (!pending)
		return 0;
	files[0] = pending->file;
	files[1] = pending->known_file;
	bpf_seq_write(context->meta->seq, files, sizeof(files));
	return 0;
}

/* For each task, at the end of a trace: what it has pending is complete as far as it was seen. */
SEC("iter/task")
int settle_each_task(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct pending *pending;

	if (!task)
		return 0;
	pending = bpf_task_storage_get(&pendings, task, NULL, 0);
	if (pending)
		settle(pending, config.raw ? process_of(task) : 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct pending *pending = bpf_task_storage_get(&pendings, task, NULL, 0);

	/* With a task ends the read that it has pending. */
	if (pending)
		settle_own(pending);
	unfollow(task);
	return 0;
}
