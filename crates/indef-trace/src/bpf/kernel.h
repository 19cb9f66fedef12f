/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few fields of kernel structures that the programs read. Offsets are those of the running
 * kernel (CO-RE); a field that a kernel lacks is asked for with bpf_core_field_exists().
 */
#ifndef INDEF_KERNEL_H
#define INDEF_KERNEL_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "contract.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct request_queue;

struct block_device {
	__u32 bd_dev;
	struct request_queue *bd_queue;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
	struct block_device *s_bdev;
	struct {
		__u8 b[16];
	} s_uuid;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	__u32 i_generation;
	long long i_size;
	struct super_block *i_sb;
	struct hlist_head i_dentry;
};

struct dentry {
	struct dentry *d_parent;
	struct inode *d_inode;
	struct {
	} d_u;
};

/* include/linux/dcache.h, v7.3: the union has no name any more. */
struct dentry___unnamed {
	struct hlist_node d_alias;
};

struct btrfs_key {
	__u64 objectid;
};

struct btrfs_root {
	struct btrfs_key root_key;
	__u32 anon_dev;
};

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};

struct address_space {
	struct inode *host;
};

struct page {
	unsigned long compound_head;
	struct address_space *mapping;
	unsigned long index;
};

/* include/linux/mm_types.h, v7.3: what was compound_head, and may be a mask. */
struct page___info {
	unsigned long compound_info;
};

struct folio {
	struct address_space *mapping;
	unsigned long index;
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

struct bvec_iter {
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	unsigned short bi_flags;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	unsigned short bi_vcnt;
	struct bio_vec *bi_io_vec;
};

/* include/linux/bvec.h, v7.3: bi_bvec_done under another name. */
struct bvec_iter___offset {
	unsigned int bi_offset;
};

struct bio___offset {
	struct bvec_iter___offset bi_iter;
};

struct request {
	struct bio *bio;
	struct request_queue *q;
};

struct file {
	struct inode *f_inode;
	unsigned int f_flags;
	long long f_pos;
	void *private_data;
};

struct ovl_file {
	struct file *realfile;
	struct file *upperfile;
};

struct kiocb {
	struct file *ki_filp;
	long long ki_pos;
};

/* fs/iomap/direct-io.c, v6.1 */
struct iomap_dio {
	struct kiocb *iocb;
	unsigned long size;
	int error;
};

struct iov_iter {
	bool data_source;
	unsigned long count;
};

struct readahead_control {
	struct file *file;
	struct address_space *mapping;
	unsigned long _index;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct signal_struct {
	struct {
		int counter;
	} live;
};

struct thread_info {
	__u32 status;
};

struct pid_namespace {
	struct {
		unsigned int inum;
	} ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

/* include/linux/task_io_accounting.h, v6.1; without CONFIG_TASK_XACCT these fields are missing. */
struct task_io_accounting {
	__u64 syscr;
	__u64 syscw;
};

struct cred {
	struct {
		__u32 val;
	} uid;
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	char comm[COMM_BYTES];
	struct files_struct *files;
	struct signal_struct *signal;
	__u64 start_time;
	unsigned int flags;
	const struct cred *cred;
	struct task_io_accounting ioac;
};

/* include/linux/bpf.h, v6.1: the context of a program that is run for each task. */
struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* io_uring/rw.c; the command's part of a request begins with its file. */
struct io_rw {
	struct kiocb kiocb;
};

struct io_cqe {
	__u64 user_data;
	__s32 res;
	int fd;
};

struct io_kiocb {
	struct file *file;
	__u8 opcode;
	struct io_cqe cqe;
};

struct io_uring_cqe {
	__u64 user_data;
	__s32 res;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10, r8, dx, si, di, orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long long regs[31];
	unsigned long long pstate;
	__s32 syscallno;
};
#endif

#pragma clang attribute pop

/* The arguments of a system call; the first three also those of a function. */
#if defined(__TARGET_ARCH_x86)
#define ARG1(regs) BPF_CORE_READ(regs, di)
#define ARG2(regs) BPF_CORE_READ(regs, si)
#define ARG3(regs) BPF_CORE_READ(regs, dx)
#define ARG4(regs) BPF_CORE_READ(regs, r10)
#define SYSCALL_OF(regs) ((long)(regs)->orig_ax)
#elif defined(__TARGET_ARCH_arm64)
#define ARG1(regs) BPF_CORE_READ(regs, regs[0])
#define ARG2(regs) BPF_CORE_READ(regs, regs[1])
#define ARG3(regs) BPF_CORE_READ(regs, regs[2])
#define ARG4(regs) BPF_CORE_READ(regs, regs[3])
#define SYSCALL_OF(regs) ((long)(regs)->syscallno)
#else
#error "indef: the registers of this architecture are not known here"
#endif

#define BLOCK_BYTES (1ull << BLOCK_BITS)
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFBLK 0060000

/* include/uapi/linux/magic.h, v6.1 */
#define BTRFS_SUPER_MAGIC 0x9123683e
#define F2FS_SUPER_MAGIC 0xf2f52010
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#define XFS_SUPER_MAGIC 0x58465342

/* include/uapi/linux/btrfs_tree.h, v6.1 */
#define BTRFS_BTREE_INODE 1
#define BTRFS_FS_TREE 5
#define BTRFS_FIRST_FREE 256ull
#define BTRFS_LAST_FREE (-256ull)

/* include/linux/blk_types.h, v6.1 */
#define REQ_OP_MASK 0xff
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define REQ_OP_ZONE_APPEND 7
#define BIO_CLONED 1

#endif
