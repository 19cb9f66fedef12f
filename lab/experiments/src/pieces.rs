//! A file that lies in pieces, with others' data between them: written in turn with another file, past the page cache.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{Advice, OFlags, fadvise};
use scratch_fs::{AlignedBuffer, content};
use units::{Bytes, FileOffset, FileRange};

/// Of the contents.
const SEED: u64 = 1;

/// The contents of such a file.
pub(crate) fn contents(size: Bytes) -> AlignedBuffer {
    let mut contents = AlignedBuffer::new(size.0 as usize);
    content(contents.slice(), SEED, FileOffset(0));
    contents
}

/// A new file, to read and write past the page cache.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    direct().write(true).create_new(true).open(path)
}

/// A file that is there, to read past the page cache.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    direct().open(path)
}

fn direct() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed());
    options
}

/// Write these bytes of others and of the file in turn, again and again.
pub(crate) fn write_in_turn(
    file: &File,
    others: &File,
    pieces: &[(Bytes, Bytes)],
    contents: &[u8],
) -> io::Result<()> {
    let longest = pieces.iter().map(|it| it.0).max();
    let mut data = AlignedBuffer::new(longest.unwrap_or_default().0 as usize);
    let (mut at, mut of_others) = (0, 0);
    for (gap, piece) in pieces {
        others.write_all_at(&data.slice()[..gap.0 as usize], of_others)?;
        file.write_all_at(&contents[at as usize..(at + piece.0) as usize], at)?;
        at += piece.0;
        of_others += gap.0;
    }
    Ok(())
}

/// Compare what the device has with the contents, and leave nothing in the page cache.
pub(crate) fn verify(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let forget = || fadvise(&file, 0, None, Advice::DontNeed);
    forget()?;
    scratch_fs::verify(&file, SEED, FileRange::new(0, size))?;
    Ok(forget()?)
}
