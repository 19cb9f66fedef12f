//! The durable bytes of one namespace: memory, or a region of the backing file.
//!
//! These bytes survive a power cut of the device; those in a file survive the daemon as well.
//! A failure is reported with the place and what to do, and changes nothing else.

use std::{io, io::IoSlice, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use rustix::fs::FallocateFlags;

use super::{StoreError, error::SYNC, locked::Locked};

/// The most pieces of memory in one write of neighbouring blocks.
const MOST_PIECES: usize = 256;

/// The place of the durable bytes.
#[derive(Debug)]
pub(super) enum Base {
    /// In memory. They are lost when the process ends.
    Memory(Vec<u8>),
    /// In a region of a file.
    File(Region),
}

/// A region of the backing file.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) file: Arc<Locked>,
    pub(super) path: Arc<PathBuf>,
    /// First byte of the region in the file.
    pub(super) start: u64,
    /// Whether blocks that are given back may leave the file: then it can run out of space later.
    pub(super) sparse: bool,
    /// Whether [`Base::sync`] waits for the host's disk.
    pub(super) host_sync: bool,
}

impl Base {
    pub(super) fn memory(len: u64) -> Result<Self, StoreError> {
        let wanted = usize::try_from(len).map_err(|_| StoreError::Memory { bytes: len })?;
        let mut bytes: Vec<u8> = Vec::new();
        bytes
            .try_reserve_exact(wanted)
            .map_err(|_| StoreError::Memory { bytes: len })?;
        drop(bytes);
        // Zeroed pages straight from the kernel, which take no memory until they are touched.
        Ok(Self::Memory(vec![0; wanted]))
    }

    /// Bring all of the memory in now, so that no write ever has to wait for some.
    pub(super) fn touch(&mut self) {
        if let Self::Memory(bytes) = self {
            touch(bytes);
        }
    }

    /// Fill `into` from `offset` on.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Self::Memory(bytes) => {
                let start = offset as usize;
                into.copy_from_slice(&bytes[start..start + into.len()]);
                Ok(())
            }
            Self::File(region) => region
                .file
                .read_exact_at(into, region.start + offset)
                .map_err(|source| region.failed("read", offset, source)),
        }
    }

    /// Write one piece.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        match self {
            Self::Memory(bytes) => {
                let start = offset as usize;
                bytes[start..start + data.len()].copy_from_slice(data);
                Ok(())
            }
            Self::File(region) => region
                .file
                .write_all_at(data, region.start + offset)
                .map_err(|source| region.failed("write", offset, source)),
        }
    }

    /// Write pieces that follow each other.
    pub(super) fn write_pieces(
        &mut self,
        mut offset: u64,
        pieces: &[&[u8]],
    ) -> Result<(), StoreError> {
        let region = match self {
            Self::Memory(_) => {
                for piece in pieces {
                    self.write(offset, piece)?;
                    offset += piece.len() as u64;
                }
                return Ok(());
            }
            Self::File(region) => region,
        };
        for some in pieces.chunks(MOST_PIECES) {
            let mut slices: Vec<IoSlice<'_>> =
                some.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                match rustix::io::pwritev(&**region.file, rest, region.start + offset) {
                    Ok(0) => {
                        return Err(region.failed(
                            "write",
                            offset,
                            io::ErrorKind::WriteZero.into(),
                        ));
                    }
                    Ok(written) => {
                        offset += written as u64;
                        IoSlice::advance_slices(&mut rest, written);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(source) => return Err(region.failed("write", offset, source.into())),
                }
            }
        }
        Ok(())
    }

    /// Make a range read as zeroes.
    pub(super) fn zero(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        match self {
            Self::Memory(bytes) => {
                bytes[offset as usize..(offset + len) as usize].fill(0);
                Ok(())
            }
            Self::File(region) => region.zero(offset, len),
        }
    }

    /// Wait until the host has the bytes on disk, if that is asked for.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        match self {
            Self::File(region) if region.host_sync => region
                .file
                .sync()
                .map_err(|source| region.failed(SYNC, 0, source)),
            _ => Ok(()),
        }
    }
}

impl Region {
    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        // A file that has all of its blocks keeps them; not every file system can do that (tmpfs).
        let ways: &[FallocateFlags] = if self.sparse {
            &[punch]
        } else {
            &[keep, punch]
        };
        for way in ways {
            match rustix::fs::fallocate(&**self.file, *way, self.start + offset, len) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(source) => return Err(self.failed("zero", offset, source.into())),
            }
        }
        let zeroes = vec![0; 1 << 16];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(zeroes.len() as u64);
            self.file
                .write_all_at(&zeroes[..part as usize], self.start + offset + done)
                .map_err(|source| self.failed("zero", offset + done, source))?;
            done += part;
        }
        Ok(())
    }

    fn failed(&self, operation: &'static str, offset: u64, source: io::Error) -> StoreError {
        StoreError::io(&self.path, operation, self.start + offset, source)
    }
}

/// Write to every page of `bytes`, leaving its content as it is.
pub(crate) fn touch(bytes: &mut [u8]) {
    for page in bytes.chunks_mut(4096) {
        // Through `black_box`, or the compiler sees that nothing changes and leaves it out.
        let byte = std::hint::black_box(page[0]);
        page[0] = std::hint::black_box(byte);
    }
    std::hint::black_box(bytes);
}
