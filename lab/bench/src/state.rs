//! File systems in a known state, prepared once and copied for every run.

use std::{
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::{FragmentOptions, ScratchFs, ScratchFsBuilder, Shape, content, fragment};
use units::{Bytes, FileOffset};

/// The files on the file system.
#[derive(Clone, Copy, Debug)]
pub(super) enum Files {
    /// One file in fragments of 4 KiB.
    Single(Bytes),
    /// One file, written at once: in as few fragments as the file system makes.
    Plain(Bytes),
    /// One file of this size, in fragments of that size.
    Pieces(Bytes, Bytes),
    /// This many files of 1 MiB in fragments of 4 KiB.
    Many(u32),
    /// As many folders, with so many files each as `Many` has: XFS spreads folders over its groups.
    Folders(u32, u32),
    /// One file, 32 × 4 KiB and then 128 KiB, repeating.
    HalfContiguous(Bytes),
    /// One file of this size in fragments of 4 KiB, in a subvolume (Btrfs) of which there are so many snapshots, all
    /// read-only.
    Snapshots(Bytes, u32),
    /// Such a file on XFS with `rmapbt`, of which there are so many reflink copies, each in a folder of its own.
    Reflinks(Bytes, u32),
    /// A tree of this many files of up to 32 KiB, every tenth in two fragments.
    Tree(u32),
    /// As large a tree of files of one block.
    Small(u32),
    /// As large a tree of files in this many fragments each, without content.
    Scattered(u32, u32),
}

/// A file system and its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartState {
    pub(super) fs: &'static str,
    pub(super) size: Bytes,
    pub(super) files: Files,
}

/// The folder on the file system that holds the files.
pub(super) const FOLDER: &str = "data";
/// Its snapshots, and folders of reflink copies, have this name, and a number.
pub(super) const SNAPSHOT: &str = "snapshot-";

impl StartState {
    /// The image in this state, made now unless `images` has it from an earlier invocation.
    pub(super) fn prepare(&self, images: &Path) -> Result<PathBuf> {
        let mut builder = ScratchFs::builder(self.fs, self.size);
        if let (Files::Tree(files) | Files::Scattered(files, _), "ext4") = (self.files, self.fs) {
            builder = builder.mkfs_args(["-N".to_owned(), (files + files / 8).to_string()]);
        }
        if let Files::Reflinks(..) = self.files {
            builder = builder.mkfs_args(["-m", "reflink=1,rmapbt=1"]);
        }
        image(images, &self.name(), builder, |scratch| {
            let folder = scratch.path().join(FOLDER);
            match self.files {
                Files::Snapshots(..) => subvolume(&["create"], &[&folder])?,
                _ => fs::create_dir(&folder)?,
            }
            self.fill(&folder)?;
            scratch.sync()?;
            if let Files::Snapshots(_, snapshots) = self.files {
                for number in 0..snapshots {
                    let snapshot = scratch.path().join(format!("{SNAPSHOT}{number}"));
                    subvolume(&["snapshot", "-r"], &[&folder, &snapshot])?;
                }
                scratch.sync()?;
            }
            if let Files::Reflinks(_, copies) = self.files {
                let file = File::open(folder.join("file"))?;
                for number in 0..copies {
                    let folder = scratch.path().join(format!("{SNAPSHOT}{number}"));
                    fs::create_dir(&folder)?;
                    let copy = File::create_new(folder.join("file"))?;
                    rustix::fs::ioctl_ficlone(&copy, &file)?;
                }
                scratch.sync()?;
            }
            Ok(())
        })
    }

    /// A fresh copy of `image`, mounted.
    pub(super) fn restore(&self, image: &Path) -> Result<ScratchFs> {
        let folder = image.parent().context("an image lies in a folder")?;
        Ok(ScratchFs::builder(self.fs, self.size)
            .folder(folder)
            .copy_of(image)
            .build()?)
    }

    fn name(&self) -> String {
        let files = match self.files {
            Files::Single(size) => format!("single-{}", size.get()),
            Files::Plain(size) => format!("plain-{}", size.get()),
            Files::Pieces(size, piece) => format!("single-{}-{}", size.get(), piece.get()),
            Files::Many(files) => format!("many-{files}"),
            Files::Folders(folders, files) => format!("many-{folders}-{files}"),
            Files::HalfContiguous(size) => format!("half-{}", size.get()),
            Files::Snapshots(size, snapshots) => format!("snapshots-{}-{snapshots}", size.get()),
            Files::Reflinks(size, copies) => format!("reflinks-{}-{copies}", size.get()),
            Files::Tree(files) => format!("tree-{files}"),
            Files::Small(files) => format!("small-{files}"),
            Files::Scattered(files, pieces) => format!("scattered-{files}-{pieces}"),
        };
        format!("{}-{files}", self.fs)
    }

    fn fill(&self, folder: &Path) -> io::Result<()> {
        let single = |size, piece| {
            let options = FragmentOptions {
                size,
                piece,
                seed: 1,
            };
            fragment(&folder.join("file"), options)
        };
        let piece = Bytes::kib(4);
        match self.files {
            Files::Single(size) | Files::Snapshots(size, _) | Files::Reflinks(size, _) => {
                single(size, piece)
            }
            Files::Plain(size) => plain(&folder.join("file"), size),
            Files::Pieces(size, piece) => single(size, piece),
            Files::Many(files) => many(folder, 0..files),
            Files::Folders(folders, files) => (0..folders).try_for_each(|i| {
                let folder = folder.join(format!("{i:03}"));
                fs::create_dir(&folder)?;
                many(&folder, i * files..(i + 1) * files)
            }),
            Files::HalfContiguous(size) => {
                Shape::half_contiguous(1, size).make(&folder.join("file"))
            }
            Files::Tree(files) => tree(folder, files),
            Files::Small(files) => small(folder, files),
            Files::Scattered(files, pieces) => scattered(folder, files, pieces),
        }
    }
}

/// The image of this name with what `fill` puts on it, made now unless `images` has it from an earlier invocation.
pub(super) fn image(
    images: &Path,
    name: &str,
    builder: ScratchFsBuilder,
    fill: impl FnOnce(&mut ScratchFs) -> Result<()>,
) -> Result<PathBuf> {
    let image = images.join(format!("{name}.img"));
    if image.exists() {
        return Ok(image);
    }
    eprintln!("preparing {}", image.display());
    let mut scratch = builder.folder(images).build()?;
    fill(&mut scratch).with_context(|| format!("cannot make {name}"))?;
    scratch.unmount()?;
    // The image is either complete or absent.
    let unfinished = image.with_extension("unfinished");
    copy_sparse(&scratch.image(), &unfinished)?;
    fs::rename(&unfinished, &image)?;
    Ok(image)
}

/// `btrfs subvolume`.
fn subvolume(arguments: &[&str], paths: &[&Path]) -> Result<()> {
    let mut command = Command::new("btrfs");
    let output = command
        .args(["-q", "subvolume"])
        .args(arguments)
        .args(paths)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(())
}

fn many(folder: &Path, files: Range<u32>) -> io::Result<()> {
    for i in files {
        let options = FragmentOptions {
            size: Bytes::mib(1),
            piece: Bytes::kib(4),
            seed: u64::from(i),
        };
        fragment(&folder.join(format!("{i:05}")), options)?;
    }
    Ok(())
}

fn plain(path: &Path, size: Bytes) -> io::Result<()> {
    let file = File::create_new(path)?;
    let mut buffer = vec![0; 1 << 20];
    for at in (0..size.get()).step_by(buffer.len()) {
        let part = &mut buffer[..(size.get() - at).min(1 << 20) as usize];
        content(part, 1, FileOffset(at));
        file.write_all_at(part, at)?;
    }
    file.sync_all()
}

/// Sizes of the contiguous files of a [`tree`].
const CONTIGUOUS_BLOCKS: [u64; 18] = [1, 2, 1, 4, 1, 2, 1, 2, 1, 4, 1, 8, 1, 2, 1, 4, 1, 2];

/// Make folders of 1,000 files. Of every 20 files, two have two blocks that were allocated in turn;
/// the others are contiguous, and half of them have one block and half have more, as small files
/// do.
fn tree(folder: &Path, files: u32) -> io::Result<()> {
    let mut block = [0; 4096];
    let mut write = |file: &File, seed: u32, blocks: u64| {
        (0..blocks).try_for_each(|i| {
            content(&mut block, u64::from(seed), FileOffset(i * 4096));
            file.write_all_at(&block, i * 4096)
        })
    };
    for first in (0..files).step_by(20) {
        let folder = folder.join(format!("{:04}", first / 1000));
        if first % 1000 == 0 {
            fs::create_dir(&folder)?;
        }
        let create = |number: u32| {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(folder.join(format!("{number:07}")))
        };
        let pair = (create(first)?, create(first + 1)?);
        for offset in [0, 4096] {
            fallocate(&pair.0, FallocateFlags::empty(), offset, 4096)?;
            fallocate(&pair.1, FallocateFlags::empty(), offset, 4096)?;
        }
        write(&pair.0, first, 2)?;
        write(&pair.1, first + 1, 2)?;
        for (number, blocks) in (first + 2..first + 20).zip(CONTIGUOUS_BLOCKS) {
            write(&create(number)?, number, blocks)?;
        }
    }
    Ok(())
}

/// Make folders of 1,000 files of one block.
fn small(folder: &Path, files: u32) -> io::Result<()> {
    for number in 0..files {
        let path = small_path(folder, number);
        if number % 1000 == 0 {
            fs::create_dir(path.parent().unwrap_or(folder))?;
        }
        write_small(&File::create_new(path)?, number)?;
    }
    Ok(())
}

/// The path of such a file.
pub(super) fn small_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{:04}/{number:07}", number / 1000))
}

/// Write all of it.
pub(super) fn write_small(file: &File, seed: u32) -> io::Result<()> {
    let mut block = [0; 4096];
    content(&mut block, u64::from(seed), FileOffset(0));
    file.write_all_at(&block, 0)
}

/// Make folders of 1,000 files, of which two get their blocks in turn.
fn scattered(folder: &Path, files: u32, pieces: u32) -> io::Result<()> {
    for first in (0..files).step_by(2) {
        let [one, other] = [first, first + 1].map(|number| scattered_path(folder, number));
        if first % 1000 == 0 {
            fs::create_dir(one.parent().unwrap_or(folder))?;
        }
        let pair = (File::create_new(one)?, File::create_new(other)?);
        for piece in 0..u64::from(pieces) {
            fallocate(&pair.0, FallocateFlags::empty(), piece * 4096, 4096)?;
            fallocate(&pair.1, FallocateFlags::empty(), piece * 4096, 4096)?;
        }
    }
    Ok(())
}

/// A file of such a tree.
fn scattered_path(folder: &Path, number: u32) -> PathBuf {
    folder
        .join(format!("{:04}", number / 1000))
        .join(format!("{number:07}"))
}

fn copy_sparse(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp")
        .args(["--sparse=always", "--reflink=auto"])
        .args([from, to])
        .status()?;
    ensure!(
        status.success(),
        "cannot copy {} to {}",
        from.display(),
        to.display()
    );
    Ok(())
}
