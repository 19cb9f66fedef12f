//! From system calls to accesses: which descriptor of which process is which file, and its position.
//!
//! The effects of open, dup, fcntl, close, fork, exec, chdir and lseek on descriptors are followed, so
//! that `read(3, …) = 4096` becomes bytes of a file. The name of a file that was opened before the
//! trace began is known only if the tracer shows names (`strace -y`, `perf trace`), and its position
//! only after an lseek.

use std::{
    cell::RefCell,
    collections::HashMap,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use indef_core::{access::Op, profile::ProfileSink};
use units::FileRange;

use super::lines::{Out, number};

/// A system call that returned.
pub(super) struct Call<'a> {
    /// Thread; 0 where the trace is of one alone.
    pub(super) pid: u32,
    pub(super) name: &'a [u8],
    pub(super) args: Vec<Arg<'a>>,
    /// Its result; errors are negative.
    pub(super) result: i64,
    /// The path that the tracer shows with a returned descriptor.
    pub(super) result_path: Option<PathBuf>,
}

/// An argument as it stands in the trace.
#[derive(Clone, Copy)]
pub(super) struct Arg<'a> {
    /// Its name, if the tracer shows it.
    pub(super) name: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
}

impl<'a> Call<'a> {
    /// An argument by its name, or by its index if arguments have no names.
    fn arg(&self, name: &str, index: usize) -> Option<&'a [u8]> {
        let named = self.args.iter().any(|arg| arg.name.is_some());
        let found = match named {
            true => self
                .args
                .iter()
                .find(|arg| arg.name == Some(name.as_bytes())),
            false => self.args.get(index),
        };
        found.map(|arg| arg.value)
    }

    /// A number; perf leaves out zeros.
    fn number(&self, name: &str, index: usize) -> Option<i64> {
        match self.arg(name, index) {
            Some(value) => std::str::from_utf8(value).ok()?.parse().ok(),
            None if self.args.iter().any(|arg| arg.name.is_some()) => Some(0),
            None => None,
        }
    }

    /// Whether one of the words joined by `|` is there, with or without its prefix.
    fn flag(&self, name: &str, index: usize, flag: &str) -> bool {
        let value = self.arg(name, index).unwrap_or_default();
        value
            .split(|byte| matches!(byte, b'|' | b' ' | b',' | b'=' | b'{' | b'}'))
            .any(|word| {
                word == flag.as_bytes()
                    || [&b"O_"[..], b"CLONE_"]
                        .iter()
                        .any(|prefix| word.strip_prefix(*prefix) == Some(flag.as_bytes()))
            })
    }
}

/// Whether a call is followed; the others need not be parsed.
pub(super) fn is_followed(name: &[u8]) -> bool {
    matches!(
        name,
        b"open"
            | b"openat"
            | b"openat2"
            | b"creat"
            | b"read"
            | b"write"
            | b"readv"
            | b"writev"
            | b"pread64"
            | b"pwrite64"
            | b"pread"
            | b"pwrite"
            | b"preadv"
            | b"pwritev"
            | b"preadv2"
            | b"pwritev2"
            | b"sendfile"
            | b"sendfile64"
            | b"lseek"
            | b"dup"
            | b"dup2"
            | b"dup3"
            | b"fcntl"
            | b"close"
            | b"chdir"
            | b"fchdir"
            | b"clone"
            | b"clone3"
            | b"fork"
            | b"vfork"
            | b"execve"
            | b"execveat"
    )
}

/// An open file description: descriptors that were duplicated share it.
struct Open {
    path: Option<PathBuf>,
    position: Option<u64>,
    direct: bool,
    /// Writes go to the end of the file.
    append: bool,
}

#[derive(Clone)]
struct Descriptor {
    open: Rc<RefCell<Open>>,
    closed_by_exec: bool,
}

/// The descriptors and the folder that threads of a process share.
#[derive(Clone)]
struct Table {
    descriptors: HashMap<i64, Descriptor>,
    folder: PathBuf,
}

/// The descriptors of all processes of a trace.
pub(super) struct Descriptors {
    threads: HashMap<u32, Rc<RefCell<Table>>>,
    /// The folder of processes that began before the trace.
    folder: PathBuf,
    /// Whether the path shown with a descriptor is the one at the time of the call. perf looks it up
    /// some time later, when the descriptor may be another file's.
    shown_is_right: bool,
    /// Threads that are in a fork: the child may appear before the call returns.
    forking: Vec<(u32, bool)>,
}

impl Descriptors {
    pub(super) fn new(folder: &Path, shown_is_right: bool) -> Self {
        Self {
            shown_is_right,
            threads: HashMap::new(),
            folder: folder.to_owned(),
            forking: Vec::new(),
        }
    }

    /// Note that a thread is in a call that has not returned yet.
    pub(super) fn begins(&mut self, pid: u32, name: &[u8], arguments: &[u8]) {
        if is_fork(name) {
            let shares = arguments.windows(11).any(|w| w == b"CLONE_FILES");
            self.forking.push((pid, shares));
        }
    }

    /// Note that a thread has ended.
    pub(super) fn ends(&mut self, pid: u32) {
        self.threads.remove(&pid);
    }

    fn table(&mut self, pid: u32) -> Rc<RefCell<Table>> {
        if let Some(table) = self.threads.get(&pid) {
            return Rc::clone(table);
        }
        let table = match self.forking.last().copied() {
            Some((parent, shares)) if parent != pid => self.inherited(parent, shares),
            _ => Rc::new(RefCell::new(Table {
                descriptors: HashMap::new(),
                folder: self.folder.clone(),
            })),
        };
        self.threads.insert(pid, Rc::clone(&table));
        table
    }

    fn inherited(&mut self, parent: u32, shares: bool) -> Rc<RefCell<Table>> {
        let table = match self.threads.get(&parent) {
            Some(table) => Rc::clone(table),
            None => {
                return Rc::new(RefCell::new(Table {
                    descriptors: HashMap::new(),
                    folder: self.folder.clone(),
                }));
            }
        };
        match shares {
            true => table,
            false => Rc::new(RefCell::new(table.borrow().clone())),
        }
    }

    /// Follow a call, and hand out its access, if it is one.
    pub(super) fn call<S: ProfileSink>(&mut self, call: &Call<'_>, out: &mut Out<'_, S>) {
        if is_fork(call.name) {
            self.forking.retain(|(pid, _)| *pid != call.pid);
        }
        if call.result < 0 {
            return;
        }
        match call.name {
            b"open" | b"openat" | b"openat2" | b"creat" => self.open(call),
            b"read" | b"readv" => self.at_position(call, Op::Read, out),
            b"write" | b"writev" => self.at_position(call, Op::Write, out),
            b"pread64" | b"pread" | b"preadv" | b"preadv2" => self.at_offset(call, Op::Read, out),
            b"pwrite64" | b"pwrite" | b"pwritev" | b"pwritev2" => {
                self.at_offset(call, Op::Write, out);
            }
            b"sendfile" | b"sendfile64" => self.sent(call, out),
            b"lseek" => self.descriptor(call, "fd", 0, |open| {
                open.position = Some(call.result.unsigned_abs());
            }),
            b"dup" => self.duplicate(call, "fildes", false),
            b"dup2" | b"dup3" => {
                let closed_by_exec = call.flag("flags", 2, "CLOEXEC");
                self.duplicate(call, "oldfd", closed_by_exec);
            }
            b"fcntl" => {
                let command = call.arg("cmd", 1).unwrap_or_default();
                if command.windows(5).any(|w| w == b"DUPFD") {
                    let closed_by_exec = command.ends_with(b"CLOEXEC");
                    self.duplicate(call, "fd", closed_by_exec);
                }
            }
            b"close" => {
                if let Some((number, _)) = call.arg("fd", 0).and_then(descriptor) {
                    self.table(call.pid)
                        .borrow_mut()
                        .descriptors
                        .remove(&number);
                }
            }
            b"chdir" => {
                if let Some(path) = call.arg("filename", 0).and_then(quoted) {
                    let table = self.table(call.pid);
                    let folder = joined(&table.borrow().folder, &path);
                    table.borrow_mut().folder = folder;
                }
            }
            b"fchdir" => {
                let mut folder = None;
                self.descriptor(call, "fd", 0, |open| folder = open.path.clone());
                if let Some(folder) = folder {
                    self.table(call.pid).borrow_mut().folder = folder;
                }
            }
            b"execve" | b"execveat" => {
                let mut own = self.table(call.pid).borrow().clone();
                own.descriptors.retain(|_, d| !d.closed_by_exec);
                self.threads.insert(call.pid, Rc::new(RefCell::new(own)));
            }
            name if is_fork(name) => self.forked(call),
            _ => {}
        }
    }

    fn forked(&mut self, call: &Call<'_>) {
        let Ok(child) = u32::try_from(call.result) else {
            return;
        };
        // The child sees 0, and may have appeared already.
        if child == 0 || self.threads.contains_key(&child) {
            return;
        }
        let flags = if call.name == b"clone3" {
            ("uargs", 0)
        } else {
            ("clone_flags", 1)
        };
        let shares = call.flag(flags.0, flags.1, "FILES")
            || call
                .args
                .iter()
                .any(|arg| arg.value.windows(11).any(|w| w == b"CLONE_FILES"));
        // The parent may not have appeared yet.
        self.table(call.pid);
        let table = self.inherited(call.pid, shares);
        self.threads.insert(child, table);
    }

    fn open(&mut self, call: &Call<'_>) {
        let (path, flags) = match call.name {
            b"open" => (0, Some(1)),
            b"creat" => (0, None),
            _ => (1, Some(2)),
        };
        let table = self.table(call.pid);
        let mut table = table.borrow_mut();
        let text = call
            .arg("filename", path)
            .or_else(|| call.arg("pathname", path));
        let path = call.result_path.clone().or_else(|| {
            let path = text.and_then(quoted)?;
            let base = match path.is_absolute() || flags != Some(2) {
                true => Some(table.folder.clone()),
                false => match call.arg("dfd", 0).unwrap_or_default() {
                    b"AT_FDCWD" | b"CWD" | b"" => Some(table.folder.clone()),
                    from => match (from.strip_prefix(b"AT_FDCWD<"), descriptor(from)) {
                        (Some(shown), _) => shown.strip_suffix(b">").map(decoded),
                        (None, Some((_, Some(shown)))) => Some(shown),
                        (None, Some((number, None))) => {
                            let open = table.descriptors.get(&number)?;
                            open.open.borrow().path.clone()
                        }
                        (None, None) => None,
                    },
                },
            };
            Some(joined(&base?, &path))
        });
        let flag = |word| flags.is_some_and(|index| call.flag("flags", index, word));
        let open = Open {
            path,
            position: Some(0),
            direct: flag("DIRECT"),
            append: flag("APPEND"),
        };
        let descriptor = Descriptor {
            open: Rc::new(RefCell::new(open)),
            closed_by_exec: flag("CLOEXEC"),
        };
        table.descriptors.insert(call.result, descriptor);
    }

    fn duplicate(&mut self, call: &Call<'_>, name: &str, closed_by_exec: bool) {
        let table = self.table(call.pid);
        let mut table = table.borrow_mut();
        let Some((number, _)) = call.arg(name, 0).and_then(descriptor) else {
            return;
        };
        match table.descriptors.get(&number).cloned() {
            Some(found) => {
                let open = found.open;
                table.descriptors.insert(
                    call.result,
                    Descriptor {
                        open,
                        closed_by_exec,
                    },
                );
            }
            // From now on it is a file that is not known.
            None => drop(table.descriptors.remove(&call.result)),
        }
    }

    /// Call `with` with the open file of a descriptor, as far as it is known.
    fn descriptor(
        &mut self,
        call: &Call<'_>,
        name: &str,
        index: usize,
        with: impl FnOnce(&mut Open),
    ) {
        let Some((number, shown)) = call.arg(name, index).and_then(descriptor) else {
            return;
        };
        let table = self.table(call.pid);
        let mut table = table.borrow_mut();
        let found = table
            .descriptors
            .entry(number)
            .or_insert_with(|| Descriptor {
                open: Rc::new(RefCell::new(Open {
                    path: None,
                    position: None,
                    direct: false,
                    append: false,
                })),
                closed_by_exec: false,
            });
        let mut open = found.open.borrow_mut();
        if shown.is_some() && open.path != shown && (open.path.is_none() || self.shown_is_right) {
            // Opened by a call that is not in the trace: then its position is not known.
            if open.path.is_some() {
                open.position = None;
            }
            open.path = shown;
        }
        with(&mut open);
    }

    /// read, write and similar calls: at the file's position, which moves on.
    fn at_position<S: ProfileSink>(&mut self, call: &Call<'_>, op: Op, out: &mut Out<'_, S>) {
        let len = call.result.unsigned_abs();
        self.descriptor(call, "fd", 0, |open| transfer(open, op, len, None, out));
    }

    /// pread and similar calls. Offset -1 means the file's position (preadv2).
    fn at_offset<S: ProfileSink>(&mut self, call: &Call<'_>, op: Op, out: &mut Out<'_, S>) {
        let vectors = call.name.ends_with(b"v") || call.name.ends_with(b"v2");
        let offset = call.number(if vectors { "pos_l" } else { "pos" }, 3);
        let len = call.result.unsigned_abs();
        self.descriptor(call, "fd", 0, |open| match offset {
            Some(-1) => transfer(open, op, len, None, out),
            Some(offset @ 0..) => transfer(open, op, len, Some(offset.unsigned_abs()), out),
            _ => out.unplaced(),
        });
    }

    /// sendfile reads its second descriptor.
    fn sent<S: ProfileSink>(&mut self, call: &Call<'_>, out: &mut Out<'_, S>) {
        let len = call.result.unsigned_abs();
        let offset = match call.arg("offset", 2) {
            Some(b"NULL") | None => None,
            // `[0] => [4096]`: before and after.
            Some(shown) => {
                let before = shown.strip_prefix(b"[").unwrap_or_default();
                let end = before.iter().position(|b| *b == b']').unwrap_or(0);
                match number(&before[..end]) {
                    Some(offset) => Some(offset),
                    None => return out.unplaced(),
                }
            }
        };
        self.descriptor(call, "in_fd", 1, |open| {
            transfer(open, Op::Read, len, offset, out)
        });
    }
}

fn is_fork(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone3" | b"fork" | b"vfork")
}

/// Hand out an access of an open file, if it is one.
fn transfer<S: ProfileSink>(
    open: &mut Open,
    op: Op,
    len: u64,
    offset: Option<u64>,
    out: &mut Out<'_, S>,
) {
    let append = open.append && op == Op::Write;
    let start = if append {
        None
    } else {
        offset.or(open.position)
    };
    if offset.is_none() {
        let moved = open.position.and_then(|at| at.checked_add(len));
        open.position = if append { None } else { moved };
    }
    match (&open.path, start) {
        _ if len == 0 => {}
        // Pipes, sockets, devices, /proc: no file with blocks.
        (Some(path), _) if !is_file(path) => {}
        (Some(path), Some(start)) => out.access(path, op, open.direct, FileRange::new(start, len)),
        _ => out.unplaced(),
    }
}

fn is_file(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let system = [&b"/dev/"[..], b"/proc/", b"/sys/"];
    bytes.starts_with(b"/") && !system.iter().any(|folder| bytes.starts_with(folder))
}

fn joined(folder: &Path, path: &Path) -> PathBuf {
    // Components leave out `.`, so that a file has one name.
    folder.join(path).components().collect()
}

/// `3` or `3</path>`.
fn descriptor(text: &[u8]) -> Option<(i64, Option<PathBuf>)> {
    let open = text.iter().position(|byte| *byte == b'<');
    let (digits, shown) = text.split_at(open.unwrap_or(text.len()));
    let number = i64::try_from(number(digits)?).ok()?;
    let path = shown
        .strip_prefix(b"<")
        .and_then(|rest| rest.strip_suffix(b">"))
        .map(decoded);
    Some((number, path))
}

/// A path that a tracer shows with a descriptor.
pub(super) fn decoded(text: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescaped(text)))
}

/// `"text"`, with C's escapes; `None` if it is cut off or no string.
fn quoted(text: &[u8]) -> Option<PathBuf> {
    let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!inner.is_empty()).then(|| decoded(inner))
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let digits = |radix: u32, most: usize, from: &[u8]| {
            let is = |byte: &&u8| char::from(**byte).is_digit(radix);
            from.iter().take(most).take_while(is).count()
        };
        let value = |radix, digits: &[u8]| {
            let text = std::str::from_utf8(digits).unwrap_or_default();
            u32::from_str_radix(text, radix).unwrap_or(0) as u8
        };
        match rest {
            [b'x', hex @ ..] => {
                let count = digits(16, 2, hex);
                bytes.push(value(16, &hex[..count]));
                rest = &hex[count..];
            }
            [b'0'..=b'7', ..] => {
                let count = digits(8, 3, rest);
                bytes.push(value(8, &rest[..count]));
                rest = &rest[count..];
            }
            [letter, after @ ..] => {
                bytes.push(match letter {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 0x0b,
                    b'f' => 0x0c,
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'e' => 0x1b,
                    other => *other,
                });
                rest = after;
            }
            [] => bytes.push(b'\\'),
        }
    }
    bytes
}
