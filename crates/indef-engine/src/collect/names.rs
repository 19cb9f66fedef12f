//! The names of many directory entries in one piece of memory.

use std::{ffi::CStr, sync::Arc};

use rustix::fs::FileType;

#[derive(Clone, Copy)]
struct NameEntry {
    inode: u64,
    start: u32,
    len: u16,
    kind: FileType,
}

/// Collects entries while a directory is read.
#[derive(Default)]
pub(super) struct NamesBuilder {
    bytes: Vec<u8>,
    entries: Vec<NameEntry>,
}

impl NamesBuilder {
    pub(super) fn push(&mut self, name: &CStr, inode: u64, kind: FileType) {
        let bytes = name.to_bytes_with_nul();
        let (Ok(start), Ok(len)) = (u32::try_from(self.bytes.len()), u16::try_from(bytes.len()))
        else {
            // No file system has names of 64 KiB, and no caller collects 4 GiB of names.
            return;
        };
        self.bytes.extend_from_slice(bytes);
        self.entries.push(NameEntry {
            inode,
            start,
            len,
            kind,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The finished list, in the order of inode numbers: on a cold cache neighbouring inodes share
    /// a block.
    pub(super) fn finish(mut self) -> Names {
        // Taken from the end.
        self.entries
            .sort_unstable_by_key(|entry| std::cmp::Reverse(entry.inode));
        Names {
            bytes: self.bytes.into(),
            entries: self.entries,
        }
    }
}

/// Entries of one directory that are still to be looked at.
pub(super) struct Names {
    bytes: Arc<[u8]>,
    entries: Vec<NameEntry>,
}

impl Names {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Their inodes, in order.
    pub(super) fn inodes(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().rev().map(|entry| entry.inode)
    }

    /// Take the next one; the closure sees its name, and its inode and kind as the directory gives
    /// them.
    pub(super) fn take<R>(&mut self, look: impl FnOnce(&CStr, u64, FileType) -> R) -> Option<R> {
        let entry = self.entries.pop()?;
        let start = entry.start as usize;
        let name = CStr::from_bytes_with_nul(&self.bytes[start..start + entry.len as usize]);
        // Built from a CStr, so it is one.
        name.ok().map(|name| look(name, entry.inode, entry.kind))
    }

    /// Half of them, for somebody who has nothing to do.
    pub(super) fn split(&mut self) -> Self {
        let half = self.entries.len() / 2;
        Self {
            bytes: Arc::clone(&self.bytes),
            entries: self.entries.drain(..half).collect(),
        }
    }
}
