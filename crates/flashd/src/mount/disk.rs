//! A file system with one file.

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, mpsc},
    time::{Duration, SystemTime},
};

use flash_model::Placement;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request as Caller,
    TimeOrNow, WriteFlags,
};
use rustix::fs::FallocateFlags;

use crate::device::{Device, Failure, Request, RequestResult, Success};

/// The only file.
pub const DISK_NAME: &str = "disk";
const ROOT: INodeNo = INodeNo::ROOT;
const DISK: INodeNo = INodeNo(2);
/// The namespace that the file is.
const NAMESPACE: usize = 0;
/// Requests that the kernel keeps in flight; more than a loop device's 128.
const MAX_BACKGROUND: u16 = 256;
/// Bytes of a request.
const MAX_REQUEST: u32 = 1 << 20;
/// `O_DSYNC` (include/uapi/asm-generic/fcntl.h), which is a part of `O_SYNC`; rustix has the latter by both names.
const O_DSYNC: i32 = 0o10000;
/// Attributes do not change.
const FOREVER: Duration = Duration::from_secs(1 << 30);

thread_local! {
    /// The buffer for the data that a thread has read, until the kernel has copied it.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bring in the memory that this thread will need before it needs it: its buffer (a request that is
/// not whole blocks may need one more on each side), stack, and some heap.
pub(super) fn touch_buffer() {
    BUFFER.with_borrow_mut(|buffer| buffer.resize(MAX_REQUEST as usize + 8192, 0));
    let mut stack = [0u8; 256 << 10];
    crate::store::touch(std::hint::black_box(&mut stack));
    // Below the size that would be mapped and unmapped each time: the allocator keeps it.
    let mut heap = vec![0u8; 96 << 10];
    crate::store::touch(std::hint::black_box(&mut heap));
}

/// The reason for which FUSE cannot serve the device; the source of an [`io::Error`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum NoMount {
    /// The kernel wrote where the file has ended.
    #[error("a write past the end was taken")]
    PastTheEnd,
    /// One request is in flight at a time.
    #[error("this kernel's FUSE has no asynchronous direct I/O")]
    OneAtATime,
}

/// Have the kernel hand the largest request to the thread that takes them, so that all of the
/// buffer that receives it is in memory. The request is a write past the end, which changes
/// nothing.
pub(super) fn touch_request_buffer(disk: &Path, size: u64) -> io::Result<()> {
    let mut memory = vec![0; MAX_REQUEST as usize + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let request = &mut memory[start..start + MAX_REQUEST as usize];
    crate::store::touch(request);
    let file = File::options().write(true).open(disk)?;
    match file.write_at(request, size) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other(NoMount::PastTheEnd)),
    }
}

/// The file system. One thread takes its requests.
pub(super) struct Disk {
    device: Arc<Device>,
    size: u64,
    block: u64,
    since: SystemTime,
}

impl Disk {
    pub(super) fn new(device: Arc<Device>) -> Self {
        let namespace = &device.namespaces()[NAMESPACE];
        Self {
            size: namespace.size_bytes,
            block: namespace.block_bytes,
            since: SystemTime::now(),
            device,
        }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match inode {
            ROOT => (FileType::Directory, 0o700, 2, 0),
            DISK => (FileType::RegularFile, 0o600, 1, self.size),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: self.block as u32,
            flags: 0,
        })
    }

    fn is_whole(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(self.block) && len.is_multiple_of(self.block)
    }

    /// Write a range that is not whole blocks: the blocks around it are read, changed and written. No other write comes
    /// between, as one thread takes all requests and has carried one out before it takes the next.
    fn write_partial(
        &self,
        offset: u64,
        len: u64,
        fua: bool,
        change: &dyn Fn(&mut [u8]),
    ) -> RequestResult {
        let (start, whole) = around(self.block, offset, len);
        let mut blocks = vec![0; whole as usize];
        self.device.read_into(NAMESPACE, start, &mut blocks)?;
        let from = (offset - start) as usize;
        change(&mut blocks[from..from + len as usize]);
        let request = Request::Write {
            offset: start,
            data: &blocks,
            fua,
            placement: Placement::RoundRobin,
        };
        self.device.account(NAMESPACE, &request)
    }

    /// Make a range read as zeroes: its whole blocks by a command, the parts at its ends by
    /// writing.
    fn zero(&self, offset: u64, len: u64, discard: bool) -> RequestResult {
        let end = offset + len;
        let (fua, zeroes) = (false, |part: &mut [u8]| part.fill(0));
        let first = offset.next_multiple_of(self.block);
        let last = end - end % self.block;
        if len == 0 {
            return Ok(Success::default());
        }
        if first >= last {
            return self.write_partial(offset, len, fua, &zeroes);
        }
        if offset < first {
            self.write_partial(offset, first - offset, fua, &zeroes)?;
        }
        if last < end {
            self.write_partial(last, end - last, fua, &zeroes)?;
        }
        let (offset, len) = (first, last - first);
        let request = if discard {
            Request::Deallocate { offset, len }
        } else {
            Request::WriteZeroes { offset, len, fua }
        };
        self.device.account(NAMESPACE, &request)
    }
}

/// The whole blocks around a range: first byte and bytes.
fn around(block: u64, offset: u64, len: u64) -> (u64, u64) {
    let start = offset - offset % block;
    (start, (offset + len).next_multiple_of(block) - start)
}

/// Whether a write is durable when it is answered (`O_DSYNC`, `O_SYNC`, `RWF_DSYNC`): without a page
/// cache in between, the kernel leaves that to the file system, and sends no fsync for it.
fn is_synchronous(flags: OpenFlags) -> bool {
    flags.0 & O_DSYNC != 0
}

/// The error number for a failure.
fn errno(failure: &Failure) -> Errno {
    match failure {
        Failure::NoSpace(_) => Errno::ENOSPC,
        Failure::Refused(_) => Errno::EINVAL,
        Failure::Media(_) | Failure::Injected(_) | Failure::PowerLost => Errno::EIO,
    }
}

/// Answer with the data that the device holds now.
fn send(device: &Device, offset: u64, len: u64, block: u64, reply: ReplyData) {
    BUFFER.with_borrow_mut(|buffer| {
        let (start, whole) = around(block, offset, len);
        if (buffer.len() as u64) < whole {
            buffer.resize(whole as usize, 0);
        }
        let bytes = &mut buffer[..whole as usize];
        match device.read_into(NAMESPACE, start, bytes) {
            Ok(()) => {
                let from = (offset - start) as usize;
                reply.data(&bytes[from..from + len as usize]);
            }
            Err(failure) => reply.error(errno(&failure)),
        }
    });
}

/// Have the thread that sends answers bring in its buffer, and wait for it.
fn warm_up(device: &Arc<Device>) {
    let (sender, warm) = mpsc::channel();
    device.on_pace(move || {
        touch_buffer();
        let _ = sender.send(());
    });
    let _ = warm.recv_timeout(Duration::from_secs(10));
}

impl Filesystem for Disk {
    fn init(&mut self, _caller: &Caller, config: &mut KernelConfig) -> io::Result<()> {
        warm_up(&self.device);
        // Without it, one request is in flight at a time.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::other(NoMount::OneAtATime))?;
        // No need of a loop device; where mapping the file can be had, it is.
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(MAX_BACKGROUND);
        let _ = config.set_max_write(MAX_REQUEST);
        let _ = config.set_max_readahead(MAX_REQUEST);
        Ok(())
    }

    fn lookup(&self, _caller: &Caller, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DISK) {
            Some(attributes) if parent == ROOT && name == DISK_NAME => {
                reply.entry(&FOREVER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _caller: &Caller,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Times may be set without effect; a disk keeps its size, owner and mode.
    fn setattr(
        &self,
        _caller: &Caller,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let keeps = mode.is_none() && uid.is_none() && gid.is_none();
        match self.attributes(inode) {
            Some(attributes) if keeps && size.is_none_or(|size| size == attributes.size) => {
                reply.attr(&FOREVER, &attributes);
            }
            Some(_) => reply.error(Errno::EPERM),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(
        &self,
        _caller: &Caller,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, DISK_NAME),
        ];
        for (next, (inode, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _caller: &Caller, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if inode == DISK {
            // Past the page cache, which knows nothing of a power cut.
            let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
            reply.opened(FileHandle(0), flags);
        } else {
            reply.error(Errno::EISDIR);
        }
    }

    fn read(
        &self,
        _caller: &Caller,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = u64::from(size).min(self.size.saturating_sub(offset));
        if len == 0 {
            return reply.data(&[]);
        }
        let (device, block) = (Arc::clone(&self.device), self.block);
        let (start, whole) = around(block, offset, len);
        let request = Request::Read {
            offset: start,
            len: whole,
        };
        self.device
            .submit(NAMESPACE, &request, move |outcome| match outcome {
                Ok(_) => send(&device, offset, len, block, reply),
                Err(failure) => reply.error(errno(&failure)),
            });
    }

    fn write(
        &self,
        _caller: &Caller,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = (data.len() as u64).min(self.size.saturating_sub(offset));
        if len == 0 {
            // Also how the mount brings this thread's memory in, see `touch_request_buffer`.
            touch_buffer();
            return reply.error(Errno::ENOSPC);
        }
        let (data, fua) = (&data[..len as usize], is_synchronous(flags));
        if !self.is_whole(offset, len) {
            let change = |part: &mut [u8]| part.copy_from_slice(data);
            return match self.write_partial(offset, len, fua, &change) {
                Ok(_) => reply.written(len as u32),
                Err(failure) => reply.error(errno(&failure)),
            };
        }
        let request = Request::Write {
            offset,
            data,
            fua,
            placement: Placement::RoundRobin,
        };
        self.device
            .submit(NAMESPACE, &request, move |outcome| match outcome {
                Ok(_) => reply.written(len as u32),
                Err(failure) => reply.error(errno(&failure)),
            });
    }

    /// There are none, and the kernel need not ask again.
    fn getxattr(
        &self,
        _caller: &Caller,
        _inode: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _caller: &Caller,
        _inode: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        match self.device.account(NAMESPACE, &Request::Flush) {
            Ok(_) => reply.ok(),
            Err(failure) => reply.error(errno(&failure)),
        }
    }

    /// Closing a file makes nothing durable.
    fn flush(
        &self,
        _caller: &Caller,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _caller: &Caller,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let discard = mode.contains(FallocateFlags::PUNCH_HOLE);
        if !discard && !mode.contains(FallocateFlags::ZERO_RANGE) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let len = length.min(self.size.saturating_sub(offset));
        match self.zero(offset, len, discard) {
            Ok(_) => reply.ok(),
            Err(failure) => reply.error(errno(&failure)),
        }
    }

    fn statfs(&self, _caller: &Caller, _inode: INodeNo, reply: ReplyStatfs) {
        let blocks = self.size / self.block;
        reply.statfs(blocks, 0, 0, 2, 0, self.block as u32, 255, 0);
    }
}
