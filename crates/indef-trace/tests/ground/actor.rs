//! A process of its own that follows commands, line by line: the collector does not count the accesses
//! of its own process.
//!
//! It is this test program again, with only the test [`play`] in it. Files are kept open in slots;
//! each line is a verb with its arguments, each answer the number of bytes that the kernel returned.

use std::{
    collections::HashMap,
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use io_uring::{IoUring, opcode, squeue, types};
use linux_abi::mapping::SharedBytes;
use rustix::{
    fs::{Advice, fadvise},
    io::ReadWriteFlags,
};
use scratch_fs::AlignedBuffer;

const VARIABLE: &str = "INDEF_TEST_ACTOR";
const ANSWER: &str = "=> ";

/// The test's end of it.
pub(crate) struct Actor {
    child: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Actor {
    /// A new process.
    pub(crate) fn new() -> Self {
        Self::through(&[])
    }

    /// A new process, started by a command (with its arguments) that executes its last arguments.
    pub(crate) fn through(launcher: &[&str]) -> Self {
        let own = env::current_exe().expect("a test program has a path");
        let mut command = match launcher.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(own);
                command
            }
            None => Command::new(own),
        };
        let mut child = command
            .args(["--exact", "actor::play", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let lines = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut actor = Self {
            child,
            lines,
            answers,
        };
        assert_eq!(actor.answer(), "0", "the actor is ready");
        actor
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Run a command; returns its answer.
    #[track_caller]
    pub(crate) fn act(&mut self, line: &str) -> u64 {
        writeln!(self.lines, "{line}").expect("the actor lives");
        let answer = self.answer();
        answer
            .parse()
            .unwrap_or_else(|_| panic!("{line}: {answer}"))
    }

    /// Run several commands, one a line; returns the answer of the last.
    #[track_caller]
    pub(crate) fn acts(&mut self, lines: &str) -> u64 {
        let mut last = 0;
        for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
            last = self.act(line);
        }
        last
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "the actor ended");
            if let Some(answer) = line.strip_prefix(ANSWER) {
                return answer.trim().to_owned();
            }
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other end; in the ordinary run of the tests there is nothing to play.
#[test]
fn play() {
    if env::var_os(VARIABLE).is_none() {
        return;
    }
    let mut stage = Stage::default();
    println!("\n{ANSWER}0");
    for line in io::stdin().lines() {
        let line = line.expect("text");
        let words: Vec<&str> = line.split_whitespace().collect();
        match stage.act(&words) {
            Ok(done) => println!("{ANSWER}{done}"),
            Err(error) => println!("{ANSWER}{error}"),
        }
    }
}

#[derive(Default)]
struct Stage {
    slots: HashMap<String, File>,
    mappings: HashMap<String, SharedBytes>,
}

fn number(word: &str) -> io::Result<u64> {
    word.parse()
        .map_err(|_| io::Error::other(format!("no number: {word}")))
}

impl Stage {
    fn file(&self, slot: &str) -> io::Result<&File> {
        self.slots
            .get(slot)
            .ok_or_else(|| io::Error::other(format!("{slot} is not open")))
    }

    fn act(&mut self, words: &[&str]) -> io::Result<u64> {
        match *words {
            ["open", slot, how, path] => {
                self.slots.insert(slot.to_owned(), open(how, path)?);
                Ok(0)
            }
            ["close", slot] => {
                self.slots.remove(slot);
                Ok(0)
            }
            ["dup", from, to] => {
                let copy = self.file(from)?.try_clone()?;
                self.slots.insert(to.to_owned(), copy);
                Ok(0)
            }
            ["seek", slot, to] => {
                io::Seek::seek(&mut self.file(slot)?, io::SeekFrom::Start(number(to)?))
            }
            ["random", slot] => {
                fadvise(self.file(slot)?, 0, None, Advice::Random)?;
                Ok(0)
            }
            ["fsync", slot] => self.file(slot)?.sync_all().map(|()| 0),
            ["map", slot, len] => {
                let mapping = SharedBytes::map(self.file(slot)?, number(len)? as usize)?;
                self.mappings.insert(slot.to_owned(), mapping);
                Ok(0)
            }
            ["scattered", slot] => self.mapping(slot)?.expect_random().map(|()| 0),
            ["sequential", slot] => self.mapping(slot)?.expect_sequential().map(|()| 0),
            // Answers the number of page faults that it took.
            ["fault", slot, how, at] => {
                let (mapping, at) = (self.mapping(slot)?, number(at)? as usize);
                let before = page_faults();
                match how {
                    "write" => mapping.store(at, 7),
                    _ => drop(mapping.load(at)),
                }
                Ok(page_faults() - before)
            }
            ["touch", slot, at] => Ok(self.mapping(slot)?.load(number(at)? as usize).into()),
            ["dirty", slot, at] => {
                self.mapping(slot)?.store(number(at)? as usize, 7);
                Ok(0)
            }
            // So many reads of one byte, each one byte further.
            ["sweep", slot, count] => {
                let file = self.file(slot)?;
                let mut byte = [0];
                (0..number(count)?)
                    .try_fold(0, |sum, at| Ok(sum + file.read_at(&mut byte, at)? as u64))
            }
            // So many threads, one after the other, each of which reads a byte.
            ["readers", slot, count] => {
                let file = self.file(slot)?;
                for _ in 0..number(count)? {
                    let read = || file.read_at(&mut [0], 0);
                    std::thread::scope(|scope| scope.spawn(read).join()).expect("no panic")?;
                }
                Ok(0)
            }
            // One after the other, like many `pread`.
            ["preads", slot, len, ref offsets @ ..] => {
                let file = self.file(slot)?;
                let mut buffer = AlignedBuffer::new(number(len)? as usize);
                offsets.iter().try_fold(0, |sum, at| {
                    Ok(sum + file.read_at(buffer.slice(), number(at)?)? as u64)
                })
            }
            ["name", name] => fs::write("/proc/self/comm", name).map(|()| 0),
            // In a thread of this name.
            ["thread", name, "pread", slot, at, len] => {
                let (file, at, len) = (self.file(slot)?, number(at)?, number(len)? as usize);
                let read = || file.read_at(&mut AlignedBuffer::new(len).slice()[..len], at);
                let thread = std::thread::Builder::new().name(name.to_owned());
                std::thread::scope(|scope| {
                    let done = thread.spawn_scoped(scope, read)?.join();
                    Ok(done.expect("no panic")? as u64)
                })
            }
            // Into fresh memory, of which only the pages below `touched` were ever touched.
            ["fresh", slot, at, len, touched] => {
                let (len, touched) = (number(len)? as usize, number(touched)? as usize);
                let mut memory = Fresh::new(len)?;
                memory.bytes()[..touched].fill(b'w');
                Ok(self.file(slot)?.read_at(memory.bytes(), number(at)?)? as u64)
            }
            ["threads", slot, len] => self.threads(slot, number(len)? as usize),
            ["run", program, ref arguments @ ..] => {
                let status = Command::new(program)
                    .args(arguments)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .status()?;
                Ok(status.code().unwrap_or(255) as u64)
            }
            ["uring", slot, how, len, ref offsets @ ..] => {
                let offsets: io::Result<Vec<u64>> = offsets.iter().map(|o| number(o)).collect();
                uring(self.file(slot)?, how, number(len)? as usize, &offsets?)
            }
            _ => self.transfer(words),
        }
    }

    fn mapping(&self, slot: &str) -> io::Result<&SharedBytes> {
        self.mappings
            .get(slot)
            .ok_or_else(|| io::Error::other(format!("{slot} is not mapped")))
    }

    /// Everything that moves bytes with a system call.
    fn transfer(&self, words: &[&str]) -> io::Result<u64> {
        let numbers: Vec<u64> = words[1..].iter().filter_map(|w| w.parse().ok()).collect();
        let len = numbers.last().copied().unwrap_or(0) as usize;
        let mut memory = AlignedBuffer::new(len);
        let buffer = &mut memory.slice()[..len];
        buffer.fill(b'w');
        let done = match *words {
            ["read", slot, _] => io::Read::read(&mut self.file(slot)?, buffer)?,
            ["write", slot, _] => self.file(slot)?.write(buffer)?,
            ["pread", slot, at, _] => self.file(slot)?.read_at(buffer, number(at)?)?,
            ["pwrite", slot, at, _] => self.file(slot)?.write_at(buffer, number(at)?)?,
            ["zeroes", slot, at, _] => {
                buffer.fill(0);
                self.file(slot)?.write_at(buffer, number(at)?)?
            }
            [call, slot, ..] if call.contains("readv") => {
                let file = self.file(slot)?;
                // In four parts.
                let mut parts: Vec<_> = buffer
                    .chunks_mut(len.div_ceil(4))
                    .map(IoSliceMut::new)
                    .collect();
                match call {
                    "readv" => rustix::io::readv(file, &mut parts)?,
                    "preadv" => rustix::io::preadv(file, &mut parts, numbers[0])?,
                    "preadv2" => {
                        rustix::io::preadv2(file, &mut parts, numbers[0], ReadWriteFlags::empty())?
                    }
                    // Two buffers that are no multiple of a block.
                    _ => return Err(io::Error::other(format!("unknown: {call}"))),
                }
            }
            [call, slot, ..] if call.contains("writev") => {
                let file = self.file(slot)?;
                let parts: Vec<_> = buffer.chunks(len.div_ceil(4)).map(IoSlice::new).collect();
                match call {
                    "writev" => rustix::io::writev(file, &parts)?,
                    "pwritev" => rustix::io::pwritev(file, &parts, numbers[0])?,
                    _ => rustix::io::pwritev2(file, &parts, numbers[0], ReadWriteFlags::empty())?,
                }
            }
            ["sendfile", from, "-", to, _] => {
                rustix::fs::sendfile(self.file(to)?, self.file(from)?, None, len)?
            }
            ["sendfile", from, at, to, _] => {
                let mut at = number(at)?;
                rustix::fs::sendfile(self.file(to)?, self.file(from)?, Some(&mut at), len)?
            }
            ["splice", from, at, _] => splice_to_nowhere(self.file(from)?, number(at)?, len)?,
            ["copy", from, at, to, to_at, _] => {
                let (mut at, mut to_at) = (number(at)?, number(to_at)?);
                let (from, to) = (self.file(from)?, self.file(to)?);
                rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), len)?
            }
            _ => return Err(io::Error::other(format!("unknown: {words:?}"))),
        };
        Ok(done as u64)
    }

    /// Two threads read one open file to its end, at its one place.
    fn threads(&self, slot: &str, len: usize) -> io::Result<u64> {
        let file = self.file(slot)?;
        let reader = || -> io::Result<u64> {
            let mut memory = AlignedBuffer::new(len);
            let mut sum = 0;
            loop {
                match io::Read::read(&mut &*file, &mut memory.slice()[..len])? {
                    0 => return Ok(sum),
                    read => sum += read as u64,
                }
            }
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(reader);
            let own = reader()?;
            Ok(own + other.join().expect("no panic")?)
        })
    }
}

/// Memory that was never touched, in small pages.
struct Fresh {
    address: *mut libc::c_void,
    len: usize,
}

impl Fresh {
    fn new(len: usize) -> io::Result<Self> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the advice concerns our mapping and changes no memory. A kernel without huge pages
        // refuses it, and needs it not.
        unsafe { libc::madvise(address, len, libc::MADV_NOHUGEPAGE) };
        Ok(Self { address, len })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours alone, lives as long as `self` and reads as zeroes.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.len) }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; slices of it borrow `self`.
        unsafe { libc::munmap(self.address, self.len) };
    }
}

/// Page faults that this thread has completed.
fn page_faults() -> u64 {
    // SAFETY: all zero bytes are a value of it: it is made of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives during the call, and is written by it.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    (usage.ru_minflt + usage.ru_majflt) as u64
}

/// `how`: any of r(ead), w(rite), c(reate), d(irect), a(ppend).
fn open(how: &str, path: &str) -> io::Result<File> {
    let has = |letter| how.contains(letter);
    let mut flags = 0;
    if has('d') {
        flags |= rustix::fs::OFlags::DIRECT.bits();
    }
    OpenOptions::new()
        .read(has('r'))
        .write(has('w'))
        .append(has('a'))
        .create(has('c'))
        .custom_flags(flags as i32)
        .open(path)
}

fn splice_to_nowhere(from: &File, at: u64, len: usize) -> io::Result<usize> {
    let (out, into) = rustix::pipe::pipe()?;
    let mut at = at;
    let flags = rustix::pipe::SpliceFlags::empty();
    let moved = rustix::pipe::splice(from, Some(&mut at), &into, None, len, flags)?;
    drop(into);
    io::copy(&mut File::from(out), &mut io::sink())?;
    Ok(moved)
}

/// One request of `len` bytes at each of `offsets`, all under way together.
fn uring(file: &File, how: &str, len: usize, offsets: &[u64]) -> io::Result<u64> {
    let mut builder = IoUring::builder();
    if how == "polled" {
        builder.setup_sqpoll(1000);
    }
    let mut ring: IoUring = builder.build(64)?;
    ring.submitter()
        .register_files(&[file.as_fd().as_raw_fd()])?;
    let plain = types::Fd(file.as_raw_fd());
    let mut memories: Vec<AlignedBuffer> =
        offsets.iter().map(|_| AlignedBuffer::new(len)).collect();
    let parts: Vec<libc::iovec> = memories
        .iter_mut()
        .map(|memory| libc::iovec {
            iov_base: memory.slice().as_mut_ptr().cast(),
            iov_len: len,
        })
        .collect();
    if how == "buffers" {
        // SAFETY: the buffers live until the ring is gone.
        unsafe { ring.submitter().register_buffers(&parts)? };
    }
    for (index, (part, offset)) in parts.iter().zip(offsets).enumerate() {
        let (at, len) = (part.iov_base.cast::<u8>(), len as u32);
        let entry: squeue::Entry = match how {
            "read" => opcode::Read::new(plain, at, len).offset(*offset).build(),
            "here" => opcode::Read::new(plain, at, len).offset(u64::MAX).build(),
            "readv" => opcode::Readv::new(plain, part, 1).offset(*offset).build(),
            "fixed" | "polled" => opcode::Read::new(types::Fixed(0), at, len)
                .offset(*offset)
                .build(),
            "buffers" => opcode::ReadFixed::new(plain, at, len, index as u16)
                .offset(*offset)
                .build(),
            "write" => opcode::Write::new(plain, at, len).offset(*offset).build(),
            "writev" => opcode::Writev::new(plain, part, 1).offset(*offset).build(),
            "async" => opcode::Read::new(plain, at, len)
                .offset(*offset)
                .build()
                .flags(squeue::Flags::ASYNC),
            _ => return Err(io::Error::other(format!("unknown: {how}"))),
        };
        // SAFETY: the buffer and the vector live until the request is done, which is waited for.
        unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        if how == "here" {
            ring.submit_and_wait(1)?;
        }
    }
    if how != "here" {
        ring.submit_and_wait(offsets.len())?;
    }
    let mut sum = 0;
    for entry in ring.completion() {
        let done = entry.result();
        if done < 0 {
            return Err(io::Error::from_raw_os_error(-done));
        }
        sum += done as u64;
    }
    drop(ring);
    drop(memories);
    Ok(sum)
}
