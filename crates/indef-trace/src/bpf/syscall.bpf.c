/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layer syscall: reads and writes as the application asks for them (FragPicker 4.1.2).
 *
 * A call is remembered when it is entered, with its file and offset, and counted when it returns,
 * with the bytes that were really read or written. Buffered reads of one open file by one task that
 * begin where the last one ended are joined to a *run*: user space turns it into the windows that
 * read-ahead fetches. Mapped files are seen when they fault, each fault as one read: of the page
 * that was missing; or, if it was in the page cache, of the pages around it that the kernel mapped
 * in one go, since the kernel does not tell which of them was wanted.
 *
 * Sampling chooses tasks for short times (toss_for_task in maps.h), not single calls: within such a
 * time every call of the task is seen, so a reader that goes on from where it ended is still told
 * from one that reads here and there. Its run is cut where the time ends. The choice is made when a
 * call is entered, and holds until it returns.
 *
 * Left out: 32-bit programs, reads of pages that a mapping has faulted in already, writes to
 * mappings, requests of io_uring that ask for no completion when they succeed, and vectors of more
 * than MAX_VECTORS buffers or batches of more than MAX_BATCH in libaio. Requests that libaio
 * submits count as done. Where several tasks append to one file at once, and give an offset that
 * the kernel ignores, a write may be counted at the offset of a later one.
 */
#include "file.h"
#include "filter.h"
#include "syscalls.h"

char LICENSE[] SEC("license") = "GPL";

#define MAX_BATCH 64
#define MAX_VECTORS 16

/* The offset of a side is not in the call: it is the position of the open file. */
#define AT_POSITION (-1ll)
/* Requests of io_uring that are in flight. */
#define INFLIGHT 16384
/* A task that ends: include/linux/sched.h, v6.1. */
#define PF_EXITING 0x4

/* One file of a call: splice and similar calls have two. */
struct side {
	struct file *file;
	__s64 offset;
	__u32 kind;
	__u32 reserved;
};

struct call {
	struct side in, out;
	/* io_submit: the application's array. */
	__u64 batch;
	/* Calls that it stands for; 0 if none is under way. */
	__u32 weight;
	/* state.window when it was entered. */
	__u32 window;
	/* Whether it reads or writes regular files. */
	__u32 has_files;
	/* Whether `first` and `began` are known. */
	__u32 is_known;
	/* calls_made() when it was entered. */
	__u64 before;
	/* For struct task_calls; `first` is what had been made before. */
	__u64 first;
	__u64 began;
	__u64 exact;
	__u64 counted;
	/* The epoch of the last choice, and the sum of weight - 1 over what it has covered. */
	__u64 epoch;
	__u64 covered;
	/* What was learned of the inode of the last access, as long as it is still that file. */
	__u64 known_inode;
	__u64 known_number;
	__u32 known_generation;
	__u32 known_file;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call);
} calls SEC(".maps");

/* The reader of a run: one open file, one task. No two processors share an entry. */
struct run_key {
	__u64 file;
	__u32 tid;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS);
	__type(key, struct run_key);
	__type(value, struct run);
} runs SEC(".maps");

/* io_uring: a request that is in flight. */
struct submission {
	/* The offset at which it was to begin. */
	__s64 offset;
	__u32 weight;
	__u32 window;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INFLIGHT);
	__type(key, __u64);
	__type(value, struct submission);
} uring SEC(".maps");

static __always_inline struct call *call_of_task(__u64 flags)
{
	return bpf_task_storage_get(&calls, bpf_get_current_task_btf(), NULL, flags);
}

/* The short name of a file; tasks tend to access the same file again and again. */
static __always_inline __u32 file_of_task(struct inode *inode)
{
	struct call *call = call_of_task(0);
	__u32 generation;
	__u64 number;

	if (!call)
		return intern((__u64)inode);
	generation = BPF_CORE_READ(inode, i_generation);
	number = BPF_CORE_READ(inode, i_ino);
	if (call->known_inode == (__u64)inode && call->known_number == number &&
	    call->known_generation == generation)
		return call->known_file;
	call->known_inode = (__u64)inode;
	call->known_number = number;
	call->known_generation = generation;
	call->known_file = intern((__u64)inode);
	return call->known_file;
}

/* The reads and writes that Linux counts of a task: without those of io_uring and libaio. */
static __always_inline __u64 calls_made(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->ioac.syscr))
		return 0;
	return task->ioac.syscr + task->ioac.syscw;
}

/* A chosen call begins. */
static __always_inline void call_begins(struct call *call)
{
	struct task_struct *task = bpf_get_current_task_btf();

	call->before = calls_made(task);
	if (call->is_known)
		return;
	call->is_known = 1;
	call->began = bpf_ktime_get_ns();
	if (task->start_time >= state.began)
		call->began = task->start_time;
	else
		call->first = call->before;
}

/* It has ended. Returns the process by whose calls its accesses are weighed, or 0. */
static __always_inline __u32 call_ends(struct call *call, __u32 weight)
{
	__u64 made = calls_made(bpf_get_current_task_btf()) - call->before;

	if (weight <= 1) {
		call->exact += made;
		return 0;
	}
	call->counted += made * weight;
	return made ? bpf_get_current_pid_tgid() >> 32 : 0;
}

/* One more access or run is counted by the choice of this task. */
static __always_inline void note_of_task(__u32 weight)
{
	struct call *call = call_of_task(0);
	__u64 now = epoch();

	if (weight <= 1 || !call)
		return;
	if (call->epoch != now) {
		call->epoch = now;
		call->covered = 0;
	}
	note_covered(weight, call->covered);
	call->covered += weight - 1;
}

static __always_inline void end_run(const struct run *run)
{
	struct range_key key = {
		.start = run->start,
		.len = run->end - run->start,
		.file = run->file,
		.kind = (run->reads > 1 ? KIND_READ_RUN : KIND_READ) | run->process << KIND_BITS,
	};
	struct counters more = { .count = run->weight, .reads = run->reads * run->weight };

	count(&key, &more);
	note_chosen(run->weight);
}

/* Overlays (containers): the short name of the underlying file, or 0. */
static __always_inline __u32 intern_below(struct file *file)
{
	struct file *below;

	if (BPF_CORE_READ(file, f_inode, i_sb, s_magic) != OVERLAYFS_SUPER_MAGIC)
		return 0;
	below = BPF_CORE_READ(file, private_data);
	/* v6.13; in earlier kernels it is the underlying file itself. */
	if (bpf_core_type_exists(struct ovl_file)) {
		struct ovl_file *both = (void *)below;

		/* Set if the file was copied up since it was opened. */
		below = BPF_CORE_READ(both, upperfile);
		if (!below)
			below = BPF_CORE_READ(both, realfile);
	}
	return intern((__u64)BPF_CORE_READ(below, f_inode));
}

/* `by`: the weight, and above it the process of the key. */
__noinline int access(__u64 address, __u64 offset, __u64 len, __u32 kind, __u64 by)
{
	__u32 weight = by, process = by >> 32;
	struct range_key key = { .start = offset, .len = len, .kind = kind | process << KIND_BITS };
	struct counters more = { .count = weight, .reads = weight };
	struct file *file = (void *)address;
	struct run_key run_key = {};
	struct run fresh = {}, *run;
	bool is_direct;

	if (!file || !len)
		return 0;
	key.file = file_of_task(BPF_CORE_READ(file, f_inode));
	if (!key.file)
		key.file = intern_below(file);
	if (!key.file)
		return 0;
	note_seen();
	is_direct = BPF_CORE_READ(file, f_flags) & O_DIRECT;
	if (config.raw)
		send_access(&key, 0, is_direct);
	if (kind != KIND_READ || is_direct || !config.runs) {
		count(&key, &more);
		note_chosen(weight);
		note_of_task(weight);
		return 0;
	}
	run_key.file = (__u64)file;
	run_key.tid = bpf_get_current_pid_tgid();
	run = bpf_map_lookup_elem(&runs, &run_key);
	if (run) {
		/* The rest of the same block counts as the end, as in user space's model. */
		if (run->file == key.file && run->weight == weight && run->window == state.window &&
		    offset >= run->end &&
		    offset <= ((run->end + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1))) {
			run->end = offset + len;
			run->reads++;
			return 0;
		}
		end_run(run);
		note_of_task(weight);
		run->start = offset;
		run->end = offset + len;
		run->file = key.file;
		run->reads = 1;
		run->weight = weight;
		run->window = state.window;
		run->process = process;
		return 0;
	}
	fresh.start = offset;
	fresh.end = offset + len;
	fresh.file = key.file;
	fresh.reads = 1;
	fresh.weight = weight;
	fresh.window = state.window;
	fresh.process = process;
	note_of_task(weight);
	if (bpf_map_update_elem(&runs, &run_key, &fresh, BPF_NOEXIST)) {
		lost(&state.unjoined);
		count(&key, &more);
		note_chosen(weight);
	}
	return 0;
}

static __always_inline struct file *file_of(__s64 fd)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table;
	struct file **files, *file = NULL;

	if (fd < 0)
		return NULL;
	table = BPF_CORE_READ(task, files, fdt);
	if (!table || fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	if (!file || !is_regular(BPF_CORE_READ(file, f_inode)))
		return NULL;
	return file;
}

/* Note that a call reads or writes the file of `fd`, at `offset` or AT_POSITION. */
static __always_inline void set_side(struct side *side, __s64 fd, __s64 offset, __u32 kind)
{
	struct file *file;

	if ((kind == KIND_READ && !config.reads) || (kind == KIND_WRITE && !config.writes))
		return;
	file = file_of(fd);
	if (!file)
		return;
	side->file = file;
	side->kind = kind;
	side->offset = offset;
}

/* The offset that the application points to; without a pointer, the file's own position. */
static __always_inline __s64 offset_at(unsigned long pointer)
{
	__s64 offset = AT_POSITION;

	if (pointer)
		bpf_probe_read_user(&offset, sizeof(offset), (void *)pointer);
	return offset;
}

/* Whether the call is of a 32-bit program: its numbers mean something else. */
static __always_inline bool is_compat(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	struct task_struct *task = (void *)bpf_get_current_task();

	/* TS_COMPAT, arch/x86/include/asm/thread_info.h */
	return BPF_CORE_READ(task, thread_info.status) & 2;
#elif defined(__TARGET_ARCH_arm64)
	/* PSR_MODE32_BIT, arch/arm64/include/uapi/asm/ptrace.h, v6.1 */
	return BPF_CORE_READ(regs, pstate) & 0x10;
#endif
}

static __always_inline void closed(__s64 fd)
{
	struct run_key key = {};
	struct run *run;

	key.file = (__u64)file_of(fd);
	if (!key.file)
		return;
	key.tid = bpf_get_current_pid_tgid();
	run = bpf_map_lookup_elem(&runs, &key);
	if (!run)
		return;
	end_run(run);
	bpf_map_delete_elem(&runs, &key);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	follow_child(parent, child);
	return 0;
}

/* System calls that read or write, and close, which ends a run. */
static __always_inline bool is_watched(long nr)
{
	switch (nr) {
	case NR_read:
	case NR_write:
	case NR_close:
	case NR_pread64:
	case NR_pwrite64:
	case NR_readv:
	case NR_writev:
	case NR_sendfile:
	case NR_io_submit:
	case NR_splice:
	case NR_preadv:
	case NR_pwritev:
	case NR_copy_file_range:
	case NR_preadv2:
	case NR_pwritev2:
		return true;
	}
	return false;
}

/* Learn the files and offsets of a call; whether it has any. */
static __always_inline bool prepare(struct call *call, struct pt_regs *regs, long nr)
{
	switch (nr) {
	case NR_read:
	case NR_readv:
		set_side(&call->in, (int)ARG1(regs), AT_POSITION, KIND_READ);
		break;
	case NR_write:
	case NR_writev:
		set_side(&call->out, (int)ARG1(regs), AT_POSITION, KIND_WRITE);
		break;
	case NR_pread64:
	case NR_preadv:
	case NR_preadv2:
		set_side(&call->in, (int)ARG1(regs), ARG4(regs), KIND_READ);
		break;
	case NR_pwrite64:
	case NR_pwritev:
	case NR_pwritev2:
		set_side(&call->out, (int)ARG1(regs), ARG4(regs), KIND_WRITE);
		break;
	case NR_sendfile:
		set_side(&call->in, (int)ARG2(regs), offset_at(ARG3(regs)), KIND_READ);
		set_side(&call->out, (int)ARG1(regs), AT_POSITION, KIND_WRITE);
		break;
	case NR_splice:
	case NR_copy_file_range:
		set_side(&call->in, (int)ARG1(regs), offset_at(ARG2(regs)), KIND_READ);
		set_side(&call->out, (int)ARG3(regs), offset_at(ARG4(regs)), KIND_WRITE);
		break;
	case NR_io_submit:
		call->batch = ARG3(regs);
		break;
	}
	return call->in.file || call->out.file || call->batch;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long nr)
{
	struct call *call;
	__u32 weight;

	if (!is_watched(nr))
		return 0;
	if (nr == NR_close) {
		if (config.runs && task_wanted() && !is_compat(regs))
			closed((int)ARG1(regs));
		return 0;
	}
	/* The coin first: the filters cost more. */
	weight = toss_for_task(bpf_get_current_pid_tgid());
	if (!weight || !task_wanted() || is_compat(regs))
		return 0;
	call = call_of_task(BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!call) {
		lost(&state.lost_tasks);
		return 0;
	}
	call->in.file = NULL;
	call->out.file = NULL;
	call->batch = 0;
	call->has_files = prepare(call, regs, nr);
	call->weight = weight;
	call->window = state.window;
	call_begins(call);
	return 0;
}

static __always_inline void side_done(struct side *side, __s64 done, __u64 by)
{
	struct file *file = side->file;
	__s64 offset = side->offset;

	if (!file)
		return;
	/*
	 * The call moves the file's own position, under a lock: before the call, another thread
	 * with the same open file may still be about to move it.
	 */
	if (offset == AT_POSITION)
		offset = BPF_CORE_READ(file, f_pos) - done;
	/* Appended bytes end where the file ends, whatever offset the call gave. */
	else if (side->kind == KIND_WRITE && (BPF_CORE_READ(file, f_flags) & O_APPEND))
		offset = BPF_CORE_READ(file, f_inode, i_size) - done;
	if (offset >= 0)
		access((__u64)file, offset, done, side->kind, by);
}

__noinline __u64 vector_bytes(__u64 vectors, __u64 len)
{
	struct iovec vector;
	__u64 sum = 0;

	for (int i = 0; i < MAX_VECTORS; i++) {
		if (i >= len)
			break;
		if (bpf_probe_read_user(&vector, sizeof(vector), (void *)(vectors + i * 16)))
			break;
		sum += vector.len;
	}
	return sum;
}

/* libaio: a submitted request counts as done; reads end at the end of the file. */
__noinline int aio_submitted(__u64 entry, __u32 weight)
{
	struct iocb iocb = {};
	struct file *file;
	__u64 at = 0, size;
	bool reads;

	if (bpf_probe_read_user(&at, sizeof(at), (void *)entry) ||
	    bpf_probe_read_user(&iocb, sizeof(iocb), (void *)at))
		return 0;
	/* Reads: PREAD 0, PREADV 7. Writes: PWRITE 1, PWRITEV 8. */
	if (iocb.aio_lio_opcode == 7 || iocb.aio_lio_opcode == 8)
		iocb.aio_nbytes = vector_bytes(iocb.aio_buf, iocb.aio_nbytes);
	else if (iocb.aio_lio_opcode > 1)
		return 0;
	reads = iocb.aio_lio_opcode == 0 || iocb.aio_lio_opcode == 7;
	if (!(reads ? config.reads : config.writes))
		return 0;
	file = file_of((int)iocb.aio_fildes);
	if (!file || iocb.aio_offset < 0)
		return 0;
	if (reads) {
		size = BPF_CORE_READ(file, f_inode, i_size);
		if (iocb.aio_offset >= size)
			return 0;
		if (iocb.aio_nbytes > size - iocb.aio_offset)
			iocb.aio_nbytes = size - iocb.aio_offset;
	}
	access((__u64)file, iocb.aio_offset, iocb.aio_nbytes, reads ? KIND_READ : KIND_WRITE,
	       weight);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_leave, struct pt_regs *regs, long result)
{
	struct call *call;
	__u32 weight;
	__u64 batch, by;

	if (!is_watched(SYSCALL_OF(regs)))
		return 0;
	call = call_of_task(0);
	if (!call || !call->weight)
		return 0;
	weight = call->weight;
	call->weight = 0;
	if (call->window != state.window)
		return 0;
	by = weight | (__u64)call_ends(call, weight) << 32;
	if (result <= 0 || !call->has_files)
		return 0;
	batch = call->batch;
	if (batch) {
		for (int i = 0; i < MAX_BATCH; i++) {
			if (i >= result)
				return 0;
			aio_submitted(batch + i * 8, weight);
		}
		if (result > MAX_BATCH)
			__sync_fetch_and_add(&state.lost_tallies, result - MAX_BATCH);
		return 0;
	}
	side_done(&call->in, result, by);
	side_done(&call->out, result, by);
	return 0;
}

static __always_inline void uring_submitted(struct io_kiocb *req)
{
	__u8 opcode = BPF_CORE_READ(req, opcode);
	struct submission fresh = {};
	__u64 at = (__u64)req;

	if (!(uring_reads(opcode) ? config.reads : uring_writes(opcode) && config.writes))
		return;
	fresh.weight = toss_for_task(bpf_get_current_pid_tgid());
	if (!fresh.weight || !task_wanted())
		return;
	fresh.window = state.window;
	fresh.offset = BPF_CORE_READ((struct io_rw *)req, kiocb.ki_pos);
	if (bpf_map_update_elem(&uring, &at, &fresh, BPF_ANY))
		lost(&state.lost_tasks);
}

static __always_inline void uring_done(struct io_kiocb *req, __s64 result)
{
	__u64 at = (__u64)req;
	struct submission *have = bpf_map_lookup_elem(&uring, &at);
	__u32 weight, window;
	struct file *file;
	__s64 offset;
	bool reads;

	if (!have)
		return;
	offset = have->offset;
	weight = have->weight;
	window = have->window;
	bpf_map_delete_elem(&uring, &at);
	if (result <= 0 || window != state.window)
		return;
	file = BPF_CORE_READ(req, file);
	if (!file || !is_regular(BPF_CORE_READ(file, f_inode)))
		return;
	reads = uring_reads(BPF_CORE_READ(req, opcode));
	/* Where the kernel chose the offset, it has moved the request's offset to its end. */
	if (offset == AT_POSITION || (!reads && (BPF_CORE_READ(file, f_flags) & O_APPEND)))
		offset = BPF_CORE_READ((struct io_rw *)req, kiocb.ki_pos) - result;
	if (offset >= 0)
		access((__u64)file, offset, result, reads ? KIND_READ : KIND_WRITE, weight);
}

/* v6.3 */
SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(on_uring_submit, struct io_kiocb *req)
{
	uring_submitted(req);
	return 0;
}

/* v6.0 to v6.2 */
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(on_uring_submit_sqe, struct io_kiocb *req)
{
	uring_submitted(req);
	return 0;
}

/* v6.12 */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(on_uring_complete, void *ring, void *req, struct io_uring_cqe *cqe)
{
	uring_done(req, BPF_CORE_READ(cqe, res));
	return 0;
}

/* Before v6.12, with the fields of the completion as arguments. */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(on_uring_complete_parts, void *ring, void *req, __u64 user_data, int result)
{
	uring_done(req, result);
	return 0;
}

struct vm_area_struct {
	struct file *vm_file;
} __attribute__((preserve_access_index));

/* include/linux/mm_types.h, v6.1: the page was mapped. */
#define VM_FAULT_NOPAGE 0x100

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
} __attribute__((preserve_access_index));

/*
 * The last fault of each task. One fault may raise several events: the pages around it are mapped
 * (some of them are cached, but the wanted one may be missing), the page is missing, and again both
 * when the fault is repeated after the page was read. The task's fault counters advance only when
 * the fault is complete, so they tell which events are of the same fault; it is counted when
 * another one begins. Where none did, user space counts it at the end.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS);
	__type(key, __u32);
	__type(value, struct fault);
} faults SEC(".maps");

/* mm_account_fault in mm/memory.c, v5.9 */
static __always_inline __u64 completed_faults(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, min_flt) + BPF_CORE_READ(task, maj_flt);
}

static __always_inline void end_fault(const struct fault *fault)
{
	struct range_key key = {
		.start = fault->start,
		.len = fault->end - fault->start,
		.file = fault->file,
		.kind = KIND_READ,
	};
	struct counters more = { .count = fault->weight, .reads = fault->weight };

	count(&key, &more);
	note_chosen(fault->weight);
	note_of_task(fault->weight);
	if (config.raw)
		send_access_of(fault->pid, fault->time, &key, 0, 0);
}

/* A fault that failed (SIGBUS) is not in the task's counters: the next one touches other pages. */
static __always_inline bool is_same_fault(const struct fault *a, const struct fault *b)
{
	return a->number == b->number && a->inode == b->inode && a->start < b->end &&
	       b->start < a->end;
}

static __always_inline void faulted(struct inode *inode, __u64 first, __u64 last, bool is_missing)
{
	struct fault now = {
		.inode = (__u64)inode,
		.start = bytes_of(first),
		.end = bytes_of(last + 1),
	};
	__u32 tid = bpf_get_current_pid_tgid();
	struct fault *have;

	if (!config.reads)
		return;
	now.weight = toss_for_task(tid);
	if (!now.weight || !task_wanted() || !inode || !is_regular(inode))
		return;
	now.number = completed_faults();
	have = bpf_map_lookup_elem(&faults, &tid);
	if (have && is_same_fault(have, &now)) {
		if (is_missing) {
			have->start = now.start;
			have->end = now.end;
		}
		return;
	}
	now.file = intern((__u64)inode);
	if (!now.file)
		return;
	note_seen();
	now.time = bpf_ktime_get_ns();
	now.pid = current_process();
	if (have) {
		end_fault(have);
		*have = now;
	} else if (bpf_map_update_elem(&faults, &tid, &now, BPF_NOEXIST)) {
		lost(&state.lost_tasks);
	}
}

static __always_inline void missing(struct inode *inode, __u64 page)
{
	faulted(inode, page, page, true);
}

static __always_inline void mapped(struct inode *inode, __u64 first, __u64 last)
{
	if (last >= first)
		faulted(inode, first, last, false);
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(on_fault, struct address_space *mapping, unsigned long index)
{
	missing(BPF_CORE_READ(mapping, host), index);
	return 0;
}

/* Reached when there was something to map. */
SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(on_mapped, struct address_space *mapping, unsigned long first, unsigned long last)
{
	mapped(BPF_CORE_READ(mapping, host), first, last);
	return 0;
}

/* Kernels before these tracepoints (v6.13), where functions can be watched. */
SEC("fentry/filemap_fault")
int BPF_PROG(on_fault_function, struct vm_fault *fault)
{
	missing(BPF_CORE_READ(fault, vma, vm_file, f_inode), BPF_CORE_READ(fault, pgoff));
	return 0;
}

SEC("fexit/filemap_map_pages")
int BPF_PROG(on_mapped_function, struct vm_fault *fault, unsigned long first, unsigned long last,
	     unsigned int result)
{
	if (result & VM_FAULT_NOPAGE)
		mapped(BPF_CORE_READ(fault, vma, vm_file, f_inode), first, last);
	return 0;
}

/* A task ends, and with it its last fault is complete. */
static __always_inline void end_fault_of(__u32 tid)
{
	struct fault *fault = bpf_map_lookup_elem(&faults, &tid);

	if (!fault)
		return;
	end_fault(fault);
	bpf_map_delete_elem(&faults, &tid);
}

/* For each task, now and then: user space reads which file's short name the task carries. */
SEC("iter/task")
int each_task(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct call *call;

	if (!task)
		return 0;
	call = bpf_task_storage_get(&calls, task, NULL, 0);
	if (call)
		bpf_seq_write(context->meta->seq, &call->known_file, sizeof(call->known_file));
	return 0;
}

/*
 * Whether each call of a task was chosen, with the weight 1. Calls that Linux counts and no program
 * sees (execve reads what it runs) are not missing then.
 */
static __always_inline bool is_exact(const struct task_calls *calls)
{
	return !calls->counted && *(volatile __u64 *)&state.sampling >> 32 == 1 &&
	       calls->began >= *(volatile __u64 *)&state.exact_since;
}

/*
 * Those of a task some of whose calls were chosen with a weight, or of which calls were made that
 * were not chosen. Of a task that is older than the trace and was never chosen, they are not known.
 */
static __always_inline bool get_calls(struct task_calls *into, struct task_struct *task,
				      const struct call *call)
{
	__builtin_memset(into, 0, sizeof(*into));
	into->process = task->tgid;
	into->made = calls_made(task);
	if (call && call->is_known) {
		into->began = call->began;
		into->made -= call->first;
		into->exact = call->exact;
		into->counted = call->counted;
		return into->counted || into->made > into->exact;
	}
	into->began = task->start_time;
	return into->made && into->began >= state.began && other_task_wanted(task);
}

/* For each task, before counts are weighed; at the end also where none was chosen. */
SEC("iter/task")
int calls_of_each_task(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct task_calls made;
	struct call *call;

	if (!task)
		return 0;
	call = bpf_task_storage_get(&calls, task, NULL, 0);
	/* One that ends tells by itself. */
	if (!(call && call->counted) && ((task->flags & PF_EXITING) || !state.is_over))
		return 0;
	if (get_calls(&made, task, call) && !is_exact(&made))
		bpf_seq_write(context->meta->seq, &made, sizeof(made));
	return 0;
}

/*
 * No event tells these calls of a task that ends. Those of a task of which some were chosen with a
 * weight leave what is known to have been made, whatever was told of them.
 */
static __always_inline void leave_untold(const struct task_calls *calls)
{
	__u64 chosen = calls->counted ? 0 : calls->exact;

	if (calls->made > chosen)
		__sync_fetch_and_add(&state.untold_calls, calls->made - chosen);
}

/*
 * A task ends: its calls are told while they are known. Where none was chosen, a sum is enough:
 * short tasks may be so many that they fill the ring, which nobody reads in pauses.
 */
static __always_inline void end_calls_of(struct task_struct *task)
{
	struct call *call = bpf_task_storage_get(&calls, task, NULL, 0);
	struct ended_event *event = NULL;
	struct task_calls made;

	if (!get_calls(&made, task, call) || is_exact(&made))
		return;
	if (made.counted)
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	/* Whoever asks each task finds it for some time still. */
	if (call)
		call->counted = 0;
	if (!event) {
		leave_untold(&made);
		return;
	}
	event->kind = EVENT_ENDED;
	event->reserved = 0;
	event->calls = made;
	event->calls.ended = bpf_ktime_get_ns();
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	end_calls_of(task);
	end_fault_of(task->pid);
	unfollow(task);
	return 0;
}
