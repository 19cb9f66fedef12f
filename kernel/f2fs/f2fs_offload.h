/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * F2FS_IOC_OFFLOAD: give file ranges new, contiguous blocks, and have the
 * device copy the data.
 *
 * The patch series beside this file adds the same lines to
 * include/uapi/linux/f2fs.h; programs include this one where the installed
 * header lacks them.
 */
#ifndef _F2FS_OFFLOAD_H
#define _F2FS_OFFLOAD_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * On any open file or directory of the file system; needs CAP_SYS_ADMIN.
 *
 * Each range becomes contiguous in a part of the log that nothing else
 * writes to. Holes stay holes: the blocks behind one follow those before it
 * directly. What is dirty in the page cache is written from memory straight
 * to the new place, the rest is copied by the device, and only when all data
 * of a step is in place does the file point to it: a range that fails leaves
 * its file as it was.
 *
 * Ranges are moved in the order of the call, in steps, during which their files
 * are locked. Ranges that follow each other share a step, and so a command, as
 * long as they fit into step_blocks and a section, whatever files they are of
 * (but that of a file that somebody else has open for writing, or that overlaps
 * another of the step, begins a new one). If a command fails for several ranges
 * each of them is tried again alone: one that cannot be moved does not keep the
 * others from it. A range that is longer is moved in several steps; "moved"
 * counts those that were done.
 *
 * Each call has a log to itself while it moves data: two calls for the same
 * "log" take turns, range by range, and those for different ones keep the
 * device at work for one while the files of the other are updated.
 */
#define F2FS_IOC_OFFLOAD		_IOWR(0xf5, 64, struct f2fs_offload)

#define F2FS_OFFLOAD_MAX_RANGES		1024
#define F2FS_OFFLOAD_MAX_STEP		131072

/* f2fs_offload.flags */
#define F2FS_OFFLOAD_NO_IN_DEVICE	0x01	/* no In_Device_Defragment */
#define F2FS_OFFLOAD_NO_COPY		0x02	/* no NVMe Copy */
#define F2FS_OFFLOAD_NO_HOST		0x04	/* no copying by the host */
#define F2FS_OFFLOAD_CHECKPOINT		0x08	/* checkpoint before returning */
#define F2FS_OFFLOAD_QUERY		0x10	/* move nothing, fill in way and max_blocks */

/* f2fs_offload.way: the best that the device has and the flags allow */
enum f2fs_offload_way {
	F2FS_OFFLOAD_WAY_NONE		= 0,
	F2FS_OFFLOAD_WAY_HOST		= 1,	/* read and written by the host */
	F2FS_OFFLOAD_WAY_COPY		= 2,	/* NVMe Copy */
	F2FS_OFFLOAD_WAY_IN_DEVICE	= 3,	/* In_Device_Defragment */
};

/* f2fs_offload_range.status */
enum f2fs_offload_status {
	F2FS_OFFLOAD_DONE		= 0,
	F2FS_OFFLOAD_NOT_REACHED	= 1,	/* the call ended before it */
	F2FS_OFFLOAD_CONTIGUOUS		= 2,	/* already; nothing was moved */
	F2FS_OFFLOAD_HOLE		= 3,	/* there are no blocks */
	F2FS_OFFLOAD_NOT_REGULAR	= 4,	/* not a regular file, or not open for reading */
	F2FS_OFFLOAD_OTHER_FS		= 5,
	F2FS_OFFLOAD_RANGE		= 6,	/* unaligned, empty or beyond the end */
	F2FS_OFFLOAD_PINNED		= 7,
	F2FS_OFFLOAD_COMPRESSED		= 8,
	F2FS_OFFLOAD_ATOMIC		= 9,
	F2FS_OFFLOAD_VERITY		= 10,
	F2FS_OFFLOAD_SWAP		= 11,
	F2FS_OFFLOAD_INLINE		= 12,	/* the data is in the inode */
	F2FS_OFFLOAD_NO_SECTION		= 13,	/* no free section */
	F2FS_OFFLOAD_DEVICE		= 14,	/* a command failed; see error */
	F2FS_OFFLOAD_CHANGED		= 15,	/* truncated or deleted meanwhile */
	F2FS_OFFLOAD_INTERRUPTED	= 16,	/* by a signal */
};

struct f2fs_offload_range {
	__s32 fd;		/* the file, open for reading */
	__u32 status;		/* out: enum f2fs_offload_status */
	__u64 start;		/* bytes, a multiple of 4096 */
	__u64 len;		/* bytes, a multiple of 4096 */
	__u64 moved;		/* out: bytes that have new blocks */
	__s32 error;		/* out: negative errno with DEVICE, else 0 */
	__u32 reserved[3];	/* 0 */
};

struct f2fs_offload {
	__u32 size;		/* of this structure */
	__u32 flags;		/* F2FS_OFFLOAD_* */
	__u32 count;		/* ranges, at most F2FS_OFFLOAD_MAX_RANGES */
	__u32 done;		/* out: ranges that were looked at */
	__u64 ranges;		/* address of the first struct f2fs_offload_range */
	__u32 way;		/* out: enum f2fs_offload_way */
	__u32 max_blocks;	/* out: most 4 KiB blocks that one command moves */
	__u64 bytes_in_device;	/* out: moved by In_Device_Defragment */
	__u64 bytes_copied;	/* out: moved by NVMe Copy */
	__u64 bytes_host;	/* out: read and written by the host */
	__u64 bytes_from_memory; /* out: dirty, written from the page cache */
	__u64 commands;		/* out: to the device */
	__u64 bus_bytes;	/* out: data and descriptors that crossed the bus */
	__u32 step_blocks;	/* most 4 KiB blocks that are moved with files locked, at most
				 * F2FS_OFFLOAD_MAX_STEP; 0: 8192
				 */
	__u32 steps;		/* out: how often files were locked to move data */
	__u64 locked_ns;	/* out: the longest time for which they were locked */
	__u32 locked_blocks;	/* out: the blocks that were moved meanwhile */
	__u32 stalls;		/* out: how often they were locked for longer than stall_ns */
	__u64 stall_ns;		/* 0: nothing counts as that */
	__u32 log;		/* where the ranges go: below "logs" of a query, or 0 */
	__u32 logs;		/* out: that there are; 0 is from before there was a choice */
	__u32 reserved[2];	/* 0 */
};

#endif /* _F2FS_OFFLOAD_H */
