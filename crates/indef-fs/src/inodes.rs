//! The layouts of many files at once, by their inodes' numbers, without opening them.
//!
//! Most files of a tree are in one piece, and a walk need not open those to know it: the inode tables and
//! extent trees of ext4 have all extents, XFS counts the extents of inodes in bulk, and the trees of Btrfs
//! have the extents of many files in a row. All of them want the rights of root (ext4: of its device).
//! For anything unusual there is no answer, and the file has to be mapped.
//!
//! Only for looking, never for moving: an answer is as old as the chunk that it comes from.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use indef_core::layout::Layout;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use units::Bytes;

use crate::{Filesystem, FsKind, btrfs, ext4, mounts::unescape, xfs};

/// A file system's inodes.
#[derive(Debug)]
pub struct Inodes(Kind);

#[derive(Debug)]
enum Kind {
    Ext4(ext4::InodeTables),
    Xfs(xfs::BulkInodes),
    XfsOwned(xfs::OwnedExtents),
    Btrfs(btrfs::TreeInodes),
}

/// All that a scan wants to know of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeFacts {
    /// Size.
    pub size: Bytes,
    /// Allocated bytes, as `stx_blocks` has them.
    pub allocated: Bytes,
    /// Names.
    pub links: u32,
    /// Where all of it lies.
    pub place: InodePlace,
}

/// What an inode tells of the place of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InodePlace {
    /// All of it.
    Known(Layout),
    /// Nothing; the other facts are true.
    Unknown,
    /// Nothing, and the size may be of before: the file tells both, once [opened](Inodes::open_file) by its
    /// number and this generation, of which each file that gets the number has another one.
    InFile(u32),
}

/// Facts from `statx`, with which an inode must agree to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Inode number.
    pub inode: u64,
    /// Size.
    pub size: Bytes,
    /// Allocated bytes, of `stx_blocks`.
    pub allocated: Bytes,
    /// Change time: seconds and nanoseconds.
    pub ctime: (i64, u32),
}

/// The inodes of a file system that were read last. One for each thread.
#[derive(Debug, Default)]
pub struct InodeChunk {
    ext4: ext4::Chunk,
    // These have buffers of 64 KiB and more.
    xfs: Option<xfs::Chunk>,
    btrfs: Option<btrfs::Chunk>,
}

impl InodeChunk {
    /// Forget all inodes, so that they are not taken for newer ones, or for those of another file system.
    pub fn clear(&mut self) {
        self.ext4.clear();
        self.xfs.iter_mut().for_each(xfs::Chunk::clear);
        self.btrfs.iter_mut().for_each(btrfs::Chunk::clear);
    }
}

impl Inodes {
    /// The inodes of this file system (on Btrfs, of the subvolume), on which `file` is open; `None` where
    /// there is no way to them. With `places`, every layout has the places on the device.
    pub fn open(fs: &Filesystem, file: impl AsFd, places: bool) -> Option<Self> {
        Some(Self(match fs.kind {
            FsKind::Ext4 => Kind::Ext4(ext4::InodeTables::open(fs)?),
            FsKind::Xfs if !places => Kind::Xfs(xfs::BulkInodes::open(fs, file)?),
            FsKind::Btrfs => Kind::Btrfs(btrfs::TreeInodes::open(fs, file)?),
            FsKind::Xfs | FsKind::F2fs | FsKind::Other(_) => return None,
        }))
    }

    /// The same for who wants to know of most files of the file system: on XFS with reverse mapping, as root, one look tells
    /// the places of all. Elsewhere it is as good as [`Self::open`] with places.
    pub fn of_all(fs: &Filesystem, file: impl AsFd) -> Option<Self> {
        let owned = || xfs::OwnedExtents::read(fs, &file);
        let owned = (fs.kind == FsKind::Xfs).then(owned).flatten();
        match owned {
            Some(owned) => Some(Self(Kind::XfsOwned(owned))),
            None => Self::open(fs, file, true),
        }
    }

    /// Whether layouts have the places on the device. Where not, their extents are without one.
    #[must_use]
    pub const fn have_places(&self) -> bool {
        !matches!(self.0, Kind::Xfs(_))
    }

    /// Whether [`file`](Self::file) tells the truth right now. May change at any moment, so it is to be asked
    /// again and again.
    #[must_use]
    pub fn tell_all(&self) -> bool {
        match &self.0 {
            Kind::Ext4(tables) => tables.is_settled(),
            Kind::Xfs(bulk) => bulk.tell_all(),
            Kind::XfsOwned(_) => false,
            Kind::Btrfs(tree) => tree.is_settled(),
        }
    }

    /// The facts of a regular file, from its inode alone. True only while the inodes
    /// [tell all](Self::tell_all).
    pub fn file(&self, inode: u64, chunk: &mut InodeChunk) -> Option<InodeFacts> {
        match &self.0 {
            Kind::Ext4(tables) => tables.file(inode, &mut chunk.ext4),
            Kind::Xfs(bulk) => bulk.file(inode, chunk.xfs.get_or_insert_default()),
            Kind::XfsOwned(_) => None,
            Kind::Btrfs(tree) => tree.file(inode, chunk.btrfs.get_or_insert_default()),
        }
    }

    /// Begin to read what will be needed for these files, which are in the order of their numbers.
    pub fn prefetch(&self, inodes: impl Iterator<Item = u64>, chunk: &mut InodeChunk) {
        match &self.0 {
            Kind::Ext4(tables) => tables.prefetch(inodes, &mut chunk.ext4),
            // The kernel reads ahead: inodes in bulk, and the tree.
            Kind::Xfs(_) | Kind::XfsOwned(_) | Kind::Btrfs(_) => {}
        }
    }

    /// Open a regular file by its number and generation, so that no path has to be found. `None` where that is
    /// not possible, or where another file has the number by now.
    #[must_use]
    pub fn open_file(&self, inode: u64, generation: u32) -> Option<OwnedFd> {
        match &self.0 {
            Kind::Xfs(bulk) => bulk.open_file(inode, generation),
            Kind::Ext4(_) | Kind::XfsOwned(_) | Kind::Btrfs(_) => None,
        }
    }

    /// Whether a regular file reaches all of each extent that it holds; `None` if that is not known
    /// without [a look at it](crate::partly_reached).
    pub fn reaches_all(&self, inode: u64, chunk: &mut InodeChunk) -> Option<bool> {
        match &self.0 {
            Kind::Ext4(_) | Kind::Xfs(_) | Kind::XfsOwned(_) => Some(true),
            Kind::Btrfs(tree) => tree.reaches_all(inode, chunk.btrfs.get_or_insert_default()),
        }
    }

    /// The layout of a regular file, up to its size, if its inode is as expected.
    pub fn layout(&self, expected: &Expected, chunk: &mut InodeChunk) -> Option<Layout> {
        match &self.0 {
            Kind::Ext4(tables) => tables.layout(expected, &mut chunk.ext4),
            Kind::Xfs(bulk) => bulk.layout(expected, chunk.xfs.get_or_insert_default()),
            Kind::XfsOwned(owned) => owned.layout(expected),
            Kind::Btrfs(tree) => tree.layout(expected, chunk.btrfs.get_or_insert_default()),
        }
    }
}

/// Whether a directory entry of this file system may be of a file that is hidden: something is mounted on
/// top of it. Only a file can hide one, and a mount that does not show the root of its file system may be one.
pub(crate) fn hides_files(fs: &Filesystem) -> bool {
    let (Some(mount), Ok(table)) = (fs.mount.as_ref(), std::fs::read("/proc/self/mountinfo"))
    else {
        return true;
    };
    let below = mount.id.to_string();
    table.split(|byte| *byte == b'\n').any(|line| {
        // id parent major:minor root point options … - type source options
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [id, parent, _, root, point, ..] = fields[..] else {
            return false;
        };
        let is_local = || {
            let kind = fields.iter().skip_while(|field| **field != b"-").nth(1);
            kind.is_some_and(|kind| LOCAL.contains(kind))
        };
        let may_hide = || !(is_local() && is_directory(id, &unescape(point)));
        parent == below.as_bytes() && root != b"/" && may_hide()
    })
}

/// File systems that answer at once when they are asked for the type of a file.
const LOCAL: [&[u8]; 6] = [b"ext4", b"xfs", b"btrfs", b"f2fs", b"tmpfs", b"overlay"];

/// Whether the mount with this number shows a directory there.
fn is_directory(mount: &[u8], point: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let status = statx(CWD, point, flags, StatxFlags::TYPE | StatxFlags::MNT_ID);
    status.is_ok_and(|status| {
        status.stx_mnt_id.to_string().as_bytes() == mount
            && FileType::from_raw_mode(status.stx_mode.into()) == FileType::Directory
    })
}

/// How many files to read in one go: as many as are going to be asked for, by how many of the last ones
/// were. A walk asks for nearly all in the order of their numbers, or for a few here and there.
#[derive(Debug)]
pub(crate) struct Window {
    wanted: usize,
    asked: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            wanted: 16,
            asked: 0,
        }
    }
}

impl Window {
    /// Note that one of the files that were read was asked for.
    pub(crate) fn ask(&mut self) {
        self.asked += 1;
    }

    /// Files to read next, between `least` and `most`, after all that were read in the last go have been
    /// passed.
    pub(crate) fn next(&mut self, least: usize, most: usize) -> usize {
        let wanted = match 2 * std::mem::take(&mut self.asked) >= self.wanted {
            true => 2 * self.wanted,
            false => self.wanted / 4,
        };
        self.wanted = wanted.clamp(least, most);
        self.wanted
    }

    /// Files to read next where the last ones were dropped before all were passed.
    pub(crate) fn again(&mut self) -> usize {
        self.asked = 0;
        self.wanted
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::*;

    /// How many of 300 small files, and of 300 that are asked for in steps, need not be mapped.
    fn told(kind: &str, step: usize) -> Option<usize> {
        let made = scratch_fs::ScratchFs::builder(kind, Bytes::mib(512)).build();
        let scratch = scratch_fs::require(made)?;
        let paths: Vec<_> = (0..300 * step)
            .map(|n| scratch.path().join(n.to_string()))
            .collect();
        for path in &paths {
            fs::write(path, [1; 9000]).unwrap();
        }
        scratch.sync().unwrap();
        let root = fs::File::open(scratch.path()).unwrap();
        let fs = crate::detect(&root, scratch.path()).unwrap();
        let inodes = Inodes::open(&fs, &root, false).expect("root may");
        let mut chunk = InodeChunk::default();
        let layouts = paths.iter().step_by(step).filter_map(|path| {
            let status = fs::metadata(path).unwrap();
            let expected = Expected {
                inode: status.ino(),
                size: Bytes(status.size()),
                allocated: Bytes(status.blocks() * 512),
                ctime: (status.ctime(), status.ctime_nsec() as u32),
            };
            let layout = inodes.layout(&expected, &mut chunk)?;
            let other = Expected {
                size: Bytes(status.size() + 9000),
                ..expected
            };
            assert_eq!(inodes.layout(&other, &mut chunk), None, "not as expected");
            let facts = inodes.file(status.ino(), &mut chunk);
            if inodes.tell_all() {
                let told = facts.as_ref().map(|facts| &facts.place);
                assert_eq!(told, Some(&InodePlace::Known(layout.clone())));
                assert_eq!(facts.map(|facts| facts.size), Some(expected.size));
            }
            assert_eq!(layout.fragments(), 1);
            Some(layout)
        });
        Some(layouts.count())
    }

    #[test]
    fn loop_files_in_one_piece_need_not_be_mapped() {
        for (kind, least) in [("ext4", 300), ("xfs", 300), ("btrfs", 295)] {
            for step in [1, 20] {
                if let Some(told) = told(kind, step) {
                    assert!(told >= least, "{kind}, every {step}th: {told} of 300");
                }
            }
        }
    }

    #[test]
    fn as_many_are_read_as_are_asked_for() {
        let mut window = Window::default();
        let next = |window: &mut Window, asked| {
            (0..asked).for_each(|_| window.ask());
            window.next(1, 256)
        };
        let growing: Vec<_> = [16, 32, 60, 128, 256]
            .map(|asked| next(&mut window, asked))
            .into();
        assert_eq!(growing, [32, 64, 128, 256, 256]);
        let shrinking: Vec<_> = [127, 1, 1, 0, 0]
            .map(|asked| next(&mut window, asked))
            .into();
        assert_eq!(shrinking, [64, 16, 4, 1, 1]);
        assert_eq!(next(&mut window, 1), 2);
        window.ask();
        assert_eq!(window.again(), 2, "no judgement");
        assert_eq!(next(&mut window, 0), 1);
    }
}
