/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface between applications and the kernel: numbers of system calls, and the structures of
 * their arguments.
 */
#ifndef INDEF_SYSCALLS_H
#define INDEF_SYSCALLS_H

#include "kernel.h"

#if defined(__TARGET_ARCH_x86)
/* arch/x86/entry/syscalls/syscall_64.tbl */
enum {
	NR_read = 0,
	NR_write = 1,
	NR_close = 3,
	NR_pread64 = 17,
	NR_pwrite64 = 18,
	NR_readv = 19,
	NR_writev = 20,
	NR_sendfile = 40,
	NR_io_submit = 209,
	NR_splice = 275,
	NR_preadv = 295,
	NR_pwritev = 296,
	NR_copy_file_range = 326,
	NR_preadv2 = 327,
	NR_pwritev2 = 328,
};
#define O_DIRECT 040000
#elif defined(__TARGET_ARCH_arm64)
/* include/uapi/asm-generic/unistd.h */
enum {
	NR_io_submit = 2,
	NR_close = 57,
	NR_read = 63,
	NR_write = 64,
	NR_readv = 65,
	NR_writev = 66,
	NR_pread64 = 67,
	NR_pwrite64 = 68,
	NR_preadv = 69,
	NR_pwritev = 70,
	NR_sendfile = 71,
	NR_splice = 76,
	NR_copy_file_range = 285,
	NR_preadv2 = 286,
	NR_pwritev2 = 287,
};
#define O_DIRECT 0200000
#else
#error "indef: the numbers of this architecture's system calls are not known here"
#endif

#define O_APPEND 02000

/* include/uapi/linux/aio_abi.h, v6.1 */
struct iocb {
	__u64 aio_data;
	__u32 aio_key;
	__u32 aio_rw_flags;
	__u16 aio_lio_opcode;
	__s16 aio_reqprio;
	__u32 aio_fildes;
	__u64 aio_buf;
	__u64 aio_nbytes;
	__s64 aio_offset;
};

struct iovec {
	__u64 base;
	__u64 len;
};

/* include/uapi/linux/io_uring.h, v6.15: the opcodes that read, and those that write. */
static __always_inline bool uring_reads(__u8 opcode)
{
	return opcode == 1 || opcode == 4 || opcode == 22 || opcode == 58;
}

static __always_inline bool uring_writes(__u8 opcode)
{
	return opcode == 2 || opcode == 5 || opcode == 23 || opcode == 59;
}

#endif
