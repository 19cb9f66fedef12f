//! Files in as many pieces as wanted.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use rustix::fs::{FallocateFlags, fallocate};
use units::Bytes;

/// How a file is to be fragmented.
#[derive(Clone, Copy, Debug)]
pub struct FragmentOptions {
    /// Size of the file.
    pub size: Bytes,
    /// Size of each piece.
    pub piece: Bytes,
    /// First byte of the (reproducible) content.
    pub seed: u64,
}

/// Make `path` a file of `options.size` bytes in pieces of `options.piece`, by growing it in turn
/// with a dummy file beside it, which is deleted afterwards (so free space is in pieces, too). On
/// ext4 the growing is done by allocation, elsewhere by direct writes, since XFS and Btrfs delay
/// or merge the former.
///
/// # Errors
///
/// What failed, as the kernel said it.
pub fn fragment(path: &Path, options: FragmentOptions) -> io::Result<()> {
    let dummy_path = path.with_extension("dummy");
    let open = |path: &Path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
    };
    let (file, dummy) = (open(path)?, open(&dummy_path)?);
    let by_allocation = rustix::fs::fstatfs(&file)?.f_type == 0xEF53;
    let piece = options.piece.get().max(1);
    let mut direct = None;
    if !by_allocation {
        direct = Some((direct_writer(path)?, direct_writer(&dummy_path)?));
    }
    let mut content = AlignedBuffer::new(piece as usize);
    let mut offset = 0;
    while offset < options.size.get() {
        let length = piece.min(options.size.get() - offset);
        match &direct {
            None => {
                fallocate(&file, FallocateFlags::empty(), offset, length)?;
                fallocate(&dummy, FallocateFlags::empty(), offset, length)?;
            }
            Some((file, dummy)) => {
                // Direct writes need whole blocks; the tail is cut off below.
                fill(content.slice(), options.seed, offset);
                file.write_all_at(content.slice(), offset)?;
                dummy.write_all_at(content.slice(), offset)?;
            }
        }
        offset += length;
    }
    if by_allocation {
        let mut chunk = vec![0; 1 << 20];
        let mut offset = 0;
        while offset < options.size.get() {
            let length = (options.size.get() - offset).min(1 << 20) as usize;
            fill(&mut chunk[..length], options.seed, offset);
            file.write_all_at(&chunk[..length], offset)?;
            offset += length as u64;
        }
    }
    file.set_len(options.size.get())?;
    file.sync_all()?;
    drop(dummy);
    std::fs::remove_file(&dummy_path)
}

fn direct_writer(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new()
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
        .open(path)
}

/// Reproducible bytes that differ from place to place, whatever the piece size.
fn fill(buffer: &mut [u8], seed: u64, offset: u64) {
    for (i, byte) in buffer.iter_mut().enumerate() {
        let at = offset + i as u64;
        let mut word = (at / 8)
            .wrapping_add(seed)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word ^= word >> 29;
        *byte = (word >> (at % 8 * 8)) as u8;
    }
}

/// Memory aligned for direct I/O, without unsafe code: a slice inside a larger vector.
struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    const ALIGN: usize = 4096;

    fn new(length: usize) -> Self {
        let length = length.next_multiple_of(Self::ALIGN);
        let memory = vec![0; length + Self::ALIGN];
        let start = memory.as_ptr().align_offset(Self::ALIGN);
        Self {
            memory,
            start,
            length,
        }
    }

    fn slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}
