//! FFSB (Flexible File System Benchmark): how its threads fill a file system.
//!
//! Files get sizes by weights; threads create files, append to some, and delete some, by weights too, until the file system is
//! as full as the profile wants it (`agefs`, `desired_util`). Sizes and weights are those that FFSB's example of
//! such a profile has; its two longest sizes (32 MiB and 1 GiB) are left out, since the volumes here are small.
//!
//! The operations are those of [`crate::filebench`]; a file is the number of its creation.

use crate::{
    Numbers,
    filebench::{FileId, Op},
};

/// The sizes of files, each with its weight.
const SIZES: [(u32, u64); 9] = [
    (33, 4 << 10),
    (21, 8 << 10),
    (13, 16 << 10),
    (10, 32 << 10),
    (8, 64 << 10),
    (5, 128 << 10),
    (4, 256 << 10),
    (3, 512 << 10),
    (2, 8 << 20),
];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Create,
    Append,
    Delete,
}

/// What a thread does next, with its weight.
const KINDS: [(u32, Kind); 3] = [(10, Kind::Create), (10, Kind::Append), (1, Kind::Delete)];

/// A file.
#[derive(Clone, Copy, Debug)]
struct File {
    id: FileId,
    bytes: u64,
}

/// Threads that fill a file system.
#[derive(Debug)]
pub struct Ffsb {
    numbers: Numbers,
    files: Vec<File>,
    /// Of each thread, the file that it writes, and the bytes that it is still to write.
    writing: Vec<Option<(File, u64)>>,
    created: FileId,
    /// Bytes of all files, and those that are promised.
    bytes: u64,
    /// Bytes at which the ageing ends.
    fill_bytes: u64,
    /// Bytes that are appended at once.
    append_bytes: u64,
    /// Bytes of a call.
    call_bytes: u64,
}

impl Ffsb {
    /// So many threads; they end when the files have `fill_bytes`.
    #[must_use]
    pub fn new(threads: usize, fill_bytes: u64, append_bytes: u64, seed: u64) -> Self {
        Self {
            numbers: Numbers::stream(seed, 0xFF5B),
            files: Vec::new(),
            writing: vec![None; threads],
            created: 0,
            bytes: 0,
            fill_bytes,
            append_bytes,
            // The example's `write_blocksize`.
            call_bytes: 4 << 10,
        }
    }

    /// The next operation of a thread, which is taken for done; `None` when it has nothing more to do.
    pub fn next(&mut self, thread: usize) -> Option<Op> {
        if let Some((file, left)) = self.writing.get_mut(thread)?.take() {
            return Some(self.write(thread, file, left));
        }
        while self.bytes < self.fill_bytes {
            match self.numbers.weighted(&KINDS) {
                Kind::Create => {
                    let left = self.numbers.weighted(&SIZES);
                    let id = self.created;
                    self.created += 1;
                    self.bytes += left;
                    self.writing[thread] = Some((File { id, bytes: 0 }, left));
                    return Some(Op::Create(id));
                }
                Kind::Append => {
                    let Some(file) = self.any_file() else {
                        continue;
                    };
                    self.bytes += self.append_bytes;
                    return Some(self.write(thread, file, self.append_bytes));
                }
                Kind::Delete => {
                    let Some(file) = self.any_file() else {
                        continue;
                    };
                    self.bytes -= file.bytes;
                    return Some(Op::Delete(file.id));
                }
            }
        }
        None
    }

    /// Takes any file that no thread writes.
    fn any_file(&mut self) -> Option<File> {
        if self.files.is_empty() {
            return None;
        }
        let number = self.numbers.below(self.files.len());
        Some(self.files.swap_remove(number))
    }

    /// The next call of a thread that writes.
    fn write(&mut self, thread: usize, file: File, left: u64) -> Op {
        let bytes = self.call_bytes.min(left);
        let op = Op::Append {
            id: file.id,
            generation: 1,
            at: file.bytes,
            bytes,
        };
        let file = File {
            bytes: file.bytes + bytes,
            ..file
        };
        match left - bytes {
            0 => self.files.push(file),
            left => self.writing[thread] = Some((file, left)),
        }
        op
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn threads_fill_the_file_system_by_whole_appends_and_end() {
        let fill = 64 << 20;
        let mut ffsb = Ffsb::new(8, fill, 64 << 10, 1);
        let mut files: HashMap<FileId, u64> = HashMap::new();
        let mut over = [false; 8];
        let (mut appends, mut deletes) = (0, 0);
        while over.contains(&false) {
            for (thread, over) in over.iter_mut().enumerate() {
                match ffsb.next(thread) {
                    None => *over = true,
                    Some(Op::Create(id)) => assert_eq!(files.insert(id, 0), None),
                    Some(Op::Append { id, at, bytes, .. }) => {
                        let there = files.get_mut(&id).expect("it is there");
                        assert_eq!(*there, at);
                        *there += bytes;
                        appends += 1;
                    }
                    Some(Op::Delete(id)) => {
                        assert!(files.remove(&id).is_some());
                        deletes += 1;
                    }
                    Some(other) => panic!("{other:?}"),
                }
            }
        }
        let bytes: u64 = files.values().sum();
        assert!(
            (fill..fill + (8 << 20) + (64 << 10)).contains(&bytes),
            "{bytes}"
        );
        assert!(appends > 1000 && deletes > 5, "{appends} {deletes}");
        assert_eq!(ffsb.next(8), None, "there is no such thread");
    }
}
