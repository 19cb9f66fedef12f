//! The device copies into a donor, below the file system, which knows nothing of it.
//!
//! # Why nothing is lost
//!
//! The exchange is that of `xfs-commit-range`, with all that makes it safe ([module](super)). The
//! difference is that reads and writes bypass the file system's locks. So:
//!
//! 1. **The source cannot move.** Its blocks are those of a *pin*: an unlinked file that shares
//!    them (`FICLONERANGE`, which writes back dirty data and waits for direct I/O). Whatever
//!    happens to the target, truncated, written, deduplicated or moved by others, these blocks stay
//!    as they were; new data of the target goes to other blocks. Times do not tell that a file was
//!    moved, so without a pin somebody else's blocks could be copied, and the exchange would not
//!    refuse.
//! 2. **The destination cannot move.** Only we have the donor open; it has no name, and the flag that
//!    other defragmenters respect. It is ours until the command is over, also when the process is
//!    killed ([`linux_abi::nvme::command`]).
//! 3. **The destination is in use as data.** Blocks that are only allocated read as zeros whatever
//!    the device holds, so they are *written* first: by the file system with the device's help
//!    (`FALLOC_FL_WRITE_ZEROES`), where it can, or else with zeros by us.
//! 4. **The destination is not in the page cache**: the donor is only written directly.
//! 5. **The copied data is durable before the exchange begins**: Flush, and the donor's
//!    `fdatasync`.
//! 6. **Stores that the times do not show** (4 in the [module](super)) show here even after they
//!    were written back: the target's blocks are no longer the pin's. That is checked right before
//!    the exchange.
//! 7. **A command whose end is unknown** (a timeout, a lost connection) may still be going on in a
//!    device behind a network. Its donor is kept, allocated, for [`QUARANTINE`].

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use indef_core::layout::{Extent, ExtentFlags, Layout};
use linux_abi::{nvme::command::Fate, share::clone_range};
use units::{Bytes, FileRange};

use super::{
    copy_device::{CopyDevice, NvmeStatus, Transfer},
    donor::{Donor, runs},
    file::{refuse, refuse_data},
};
use crate::{Finding, Moved, RangeCopier, Refusal, Target};

/// How long a donor is kept whose Copy command has not been answered: a controller notices a lost
/// host after its keep alive timeout (5 s with Linux), and ends its commands then. Linux itself
/// waits for less before it sends writes again.
const QUARANTINE: Duration = Duration::from_secs(60);

/// A device that copies, and the donors that it may still be writing to.
#[derive(Debug)]
pub(super) struct Offload {
    pub(super) device: CopyDevice,
    quarantine: Quarantine,
}

/// How copying ended.
pub(super) enum Copied {
    /// It is done.
    Done,
    /// The device copies nothing; the donor is as good as before.
    Refused(NotCopied),
}

/// Why the device copies nothing of a batch.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotCopied {
    /// The pin and the donor do not have plain data of their own everywhere.
    #[error("the donor's blocks are not as expected")]
    Layout,
    /// The data to be copied does not consist of whole logical blocks.
    #[error("blocks do not begin where logical blocks do")]
    Alignment,
    /// It refused the command.
    #[error(transparent)]
    Device(#[from] NvmeStatus),
}

/// A Copy or Flush command was not answered.
#[derive(Debug, thiserror::Error)]
#[error(
    "{source}; {} may not be done with it, so the donor's space is free again only in {} s",
    .device.display(),
    .term.as_secs()
)]
struct Unanswered {
    device: PathBuf,
    term: Duration,
    source: io::Error,
}

impl Offload {
    pub(super) fn new(device: CopyDevice) -> Self {
        Self {
            device,
            quarantine: Quarantine::new(QUARANTINE),
        }
    }

    /// Fill `ranges` of the donor with the data of the pin.
    pub(super) fn copy(
        &self,
        target: &Target,
        pin: &Pin<'_>,
        donor: &Donor<'_>,
        ranges: &[FileRange],
        copier: &dyn RangeCopier,
        moved: &mut Moved,
    ) -> Result<Copied, Refusal> {
        moved.host_written += write_zeros(target, donor, ranges, copier)?;
        let Some(span) = span(ranges) else {
            return Ok(Copied::Done);
        };
        let layout = donor.layout(span)?;
        let Some(transfers) = transfers(&pin.layout, &layout, ranges) else {
            return Ok(Copied::Refused(NotCopied::Layout));
        };
        let Some(commands) = self.device.commands(&transfers) else {
            return Ok(Copied::Refused(NotCopied::Alignment));
        };
        let fail = |error| refuse(target, "copy inside the device", Some(span.start), error);
        for command in &commands {
            match self.device.copy(command).map_err(fail)? {
                Fate::Done => {}
                Fate::Refused(status) => {
                    return Ok(Copied::Refused(NvmeStatus(status).into()));
                }
                Fate::Unknown(error) => return Err(self.lost(target, donor, error)),
            }
        }
        // Nothing is known that could have moved the donor's blocks; but where something has, the
        // blocks that were written are not ours.
        if donor.layout(span)? != layout {
            return Err(fail(Finding::DonorMoved.into()));
        }
        moved.offloaded += ranges.iter().map(|range| range.len).sum();
        Ok(Copied::Done)
    }

    /// Make the copied data durable.
    pub(super) fn flush(&self, target: &Target, donor: &Donor<'_>) -> Result<(), Refusal> {
        let fail = |error| refuse(target, "flush the device", None, error);
        match self.device.flush().map_err(fail)? {
            Fate::Done => Ok(()),
            Fate::Refused(status) => Err(fail(NvmeStatus(status).into())),
            Fate::Unknown(error) => Err(self.lost(target, donor, error)),
        }
    }

    /// Wait until no donor has to be kept any more.
    pub(super) fn settle(&self) {
        self.quarantine.wait();
    }

    fn lost(&self, target: &Target, donor: &Donor<'_>, source: io::Error) -> Refusal {
        match donor.file.try_clone() {
            Ok(file) => self.quarantine.keep(file),
            // It is better to wait here than to let it go.
            Err(_) => thread::sleep(self.quarantine.term),
        }
        let unanswered = Unanswered {
            device: self.device.path.clone(),
            term: self.quarantine.term,
            source,
        };
        let error = io::Error::other(unanswered);
        refuse(target, "copy inside the device", None, error)
    }
}

/// Files that must stay for some time.
#[derive(Debug)]
struct Quarantine {
    term: Duration,
    kept: Mutex<Vec<(File, Instant)>>,
}

impl Quarantine {
    const fn new(term: Duration) -> Self {
        Self {
            term,
            kept: Mutex::new(Vec::new()),
        }
    }

    fn keep(&self, file: File) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((file, Instant::now()));
    }

    /// Return when all of them may go.
    fn wait(&self) {
        let kept = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *kept)
        };
        if !kept.is_empty() {
            tracing::warn!(
                donors = kept.len(),
                "waiting for a device that may still be copying"
            );
        }
        for (file, since) in kept {
            thread::sleep(self.term.saturating_sub(since.elapsed()));
            drop(file);
        }
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        self.wait();
    }
}

/// A file that shares the blocks of ranges of the target, so that they keep their contents and
/// their places.
#[derive(Debug)]
pub(super) struct Pin<'a> {
    shares: Donor<'a>,
    layout: Layout,
}

impl<'a> Pin<'a> {
    /// Pin `ranges` of the target, which ends at `size`.
    pub(super) fn new(
        target: &'a Target,
        ranges: &[FileRange],
        size: Bytes,
    ) -> Result<Self, Refusal> {
        let shares = Donor::new(target, rustix::fs::OFlags::DIRECT)?;
        shares.set_size(size)?;
        for range in ranges {
            let end = range.end().get().min(size.get());
            let start = range.start.get();
            clone_range(&target.file, &shares.file, start, end - start)
                .map_err(|error| refuse(target, "pin blocks", Some(range.start), error))?;
        }
        let layout = match span(ranges) {
            Some(span) => shares.layout(span)?,
            None => Layout::default(),
        };
        Ok(Self { shares, layout })
    }

    /// Whether the target, mapped as `now`, has these very blocks in `ranges`.
    pub(super) fn is_what(&self, now: &Layout, ranges: &[FileRange]) -> bool {
        let places = |layout: &Layout, range| -> Vec<_> {
            let extents = layout.clipped(range);
            joined(extents.map(|e| (e.file.get(), e.phys.get(), e.len.get(), is_data(&e))))
        };
        ranges
            .iter()
            .all(|range| places(&self.layout, *range) == places(now, *range))
    }
}

impl Drop for Pin<'_> {
    /// Release the blocks at once: after a mere close the file system would do so whenever it
    /// likes, and until then the target's blocks look shared.
    fn drop(&mut self) {
        if let Err(refusal) = self.shares.set_size(Bytes::ZERO) {
            tracing::debug!(%refusal, "blocks are pinned until the file system has cleaned up");
        }
    }
}

/// Extents that touch, in the file and on the device, as one: how a map is cut into extents differs
/// between files.
fn joined(extents: impl Iterator<Item = (u64, u64, u64, bool)>) -> Vec<(u64, u64, u64, bool)> {
    let mut joined: Vec<(u64, u64, u64, bool)> = Vec::new();
    for (file, place, len, data) in extents {
        match joined.last_mut() {
            Some(last) if (last.0 + last.2, last.1 + last.2, last.3) == (file, place, data) => {
                last.2 += len;
            }
            _ => joined.push((file, place, len, data)),
        }
    }
    joined
}

/// Whether a read of the extent returns the contents of its blocks on the device.
fn is_data(extent: &Extent) -> bool {
    let other =
        ExtentFlags::UNWRITTEN | ExtentFlags::ENCODED | ExtentFlags::INLINE | ExtentFlags::UNPLACED;
    !extent.flags.intersects(other)
}

fn span(ranges: &[FileRange]) -> Option<FileRange> {
    Some(FileRange::between(
        ranges.first()?.start,
        ranges.last()?.end(),
    ))
}

/// Write zeros wherever the donor is only allocated. Returns how much.
fn write_zeros(
    target: &Target,
    donor: &Donor<'_>,
    ranges: &[FileRange],
    copier: &dyn RangeCopier,
) -> Result<Bytes, Refusal> {
    let Some(span) = span(ranges) else {
        return Ok(Bytes::ZERO);
    };
    let layout = donor.layout(span)?;
    let unwritten: Vec<_> = ranges
        .iter()
        .flat_map(|range| runs(&layout, *range, false))
        .collect();
    if unwritten.is_empty() {
        return Ok(Bytes::ZERO);
    }
    File::open("/dev/zero")
        .and_then(|zeros| copier.copy(&zeros, &donor.file, &unwritten))
        .map_err(|error| refuse_data(target, &unwritten, error))?;
    Ok(unwritten.iter().map(|range| range.len).sum())
}

/// The transfers from the places of `from` to those of `to`, for all of `ranges`; `None` where one
/// of them lacks a part, or has it as something else than plain data, or `to` shares it with
/// others.
fn transfers(from: &Layout, to: &Layout, ranges: &[FileRange]) -> Option<Vec<Transfer>> {
    let mut transfers = Vec::new();
    for range in ranges {
        let mut place = range.start;
        while place < range.end() {
            let rest = FileRange::between(place, range.end());
            let at = |layout: &Layout| {
                let extent = layout.clipped(rest).next()?;
                (extent.file == place && is_data(&extent)).then_some(extent)
            };
            let (source, destination) = (at(from)?, at(to)?);
            if destination.flags.contains(ExtentFlags::SHARED) {
                return None;
            }
            let len = source.len.min(destination.len);
            transfers.push(Transfer {
                from: source.phys,
                to: destination.phys,
                len,
            });
            place = place + len;
        }
    }
    Some(transfers)
}

#[cfg(test)]
mod tests {
    use rustix::{fs::OFlags, io::Errno};
    use scratch_fs::{ScratchFs, require};
    use units::PhysOffset;

    use super::*;
    use crate::test_layout::{NONE, layout};

    /// The pool of a thin volume is full.
    struct Full;

    impl RangeCopier for Full {
        fn copy(&self, _: &File, _: &File, _: &[FileRange]) -> io::Result<()> {
            Err(Errno::NOSPC.into())
        }
    }

    /// The donor has its blocks: it is not the file system that is full.
    #[test]
    fn loop_a_device_without_room_for_zeros_is_told() {
        let Some(scratch) = require(ScratchFs::builder("xfs", Bytes::mib(320)).build()) else {
            return;
        };
        let path = scratch.path().join("file");
        std::fs::write(&path, vec![1; 64 << 10]).unwrap();
        let target = Target::open(&path).unwrap();
        let donor = Donor::new(&target, OFlags::DIRECT).unwrap();
        let range = FileRange::new(0, 64 << 10);
        donor.open_up(range.len).unwrap();
        donor.allocate(range).unwrap();
        match write_zeros(&target, &donor, &[range], &Full) {
            Err(Refusal::Failed(error)) => {
                assert_eq!(error.finding(), Some(Finding::DeviceFull), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_piece_goes_from_its_place_to_its_place() {
        let from = layout(&[(0, 1000, 10, NONE), (10, 3000, 30, NONE)]);
        let to = layout(&[(0, 7000, 20, NONE), (20, 9000, 20, NONE)]);
        let transfer = |from, to, len| Transfer {
            from: PhysOffset(from),
            to: PhysOffset(to),
            len: Bytes(len),
        };
        assert_eq!(
            transfers(&from, &to, &[FileRange::new(5, 25)]),
            Some(vec![
                transfer(1005, 7005, 5),
                transfer(3000, 7010, 10),
                transfer(3010, 9000, 10),
            ])
        );
    }

    #[test]
    fn nothing_is_copied_from_or_to_what_is_not_plain_data_of_ours() {
        let plain = layout(&[(0, 1000, 40, NONE)]);
        let range = [FileRange::new(0, 40)];
        for odd in [
            layout(&[(0, 7000, 39, NONE)]),
            layout(&[(1, 7000, 39, NONE)]),
            layout(&[(0, 7000, 20, NONE), (20, 7020, 20, ExtentFlags::UNWRITTEN)]),
            layout(&[(0, 0, 40, ExtentFlags::UNPLACED)]),
        ] {
            assert_eq!(transfers(&plain, &odd, &range), None, "{odd:?}");
            assert_eq!(transfers(&odd, &plain, &range), None, "{odd:?}");
        }
        let shared = layout(&[(0, 7000, 40, ExtentFlags::SHARED)]);
        assert_eq!(transfers(&plain, &shared, &range), None);
        assert!(transfers(&shared, &plain, &range).is_some());
    }

    #[test]
    fn extents_are_compared_by_place_however_they_are_cut() {
        let cut = [(0, 1000, 10, true), (10, 1010, 10, true)];
        assert_eq!(joined(cut.into_iter()), [(0, 1000, 20, true)]);
        let apart = [(0, 1000, 10, true), (10, 1011, 10, true)];
        assert_eq!(joined(apart.into_iter()), apart);
        let mixed = [(0, 1000, 10, true), (10, 1010, 10, false)];
        assert_eq!(joined(mixed.into_iter()), mixed);
    }

    #[test]
    fn a_kept_file_is_kept_for_its_term() {
        let quarantine = Quarantine::new(Duration::from_millis(60));
        let began = Instant::now();
        quarantine.keep(tempfile::tempfile().unwrap());
        quarantine.wait();
        assert!(began.elapsed() >= Duration::from_millis(60));
        let again = Instant::now();
        quarantine.wait();
        assert!(again.elapsed() < Duration::from_millis(60));
    }
}
