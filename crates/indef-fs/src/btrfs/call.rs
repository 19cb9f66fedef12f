//! One call of the ioctl: its length, and its cost to others.

use std::{
    io,
    time::{Duration, Instant},
};

use indef_core::SkipReason;
use rustix::io::Errno;
use units::{Bytes, FileOffset, Nanos};

use super::{compression::CompressionWay, pieces::CLUSTER};
use crate::{Moved, Refusal, Target};

/// One ioctl rewrites at most this much, so that reading ahead goes on in between.
pub(super) const CALL: Bytes = Bytes::mib(2);

/// How much of `rest` the next ioctl gets. Before 6.17 the kernel leaves an extent alone that is
/// the only one of its cluster and that no neighbour follows: with the odd length first, the last
/// cluster is a full one.
pub(super) fn piece_of(rest: Bytes, way: CompressionWay, limit: Bytes, block: Bytes) -> Bytes {
    let limit = whole(limit, block).max(block);
    let odd = Bytes(rest.get() % CLUSTER.get());
    let first = match way {
        CompressionWay::Plain if !odd.is_zero() && rest > CLUSTER => odd,
        _ => rest,
    };
    let whole_clusters = whole(limit, CLUSTER);
    let limit = if whole_clusters.is_zero() {
        limit
    } else {
        whole_clusters
    };
    first.min(limit)
}

/// As many whole units as fit.
pub(super) fn whole(bytes: Bytes, unit: Bytes) -> Bytes {
    Bytes(bytes.get() - bytes.get() % unit.get())
}

/// Whether the error means that a signal is pending for this thread.
pub(super) fn interrupted(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The time under the inode lock, which is held for a cluster at a time, not for the whole call.
pub(super) fn locked(elapsed: Duration, len: Bytes) -> Moved {
    let clusters = len.div_ceil(CLUSTER).max(1);
    Moved {
        locked: Nanos((elapsed.as_nanos() / u128::from(clusters)) as u64),
        locked_bytes: len.min(CLUSTER),
        ..Moved::default()
    }
}

/// Bytes moved a short while ago: their old places are free only after a commit, which comes every
/// 30 seconds if nobody changed that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    since: Instant,
    now: Bytes,
    before: Bytes,
}

impl Recent {
    const PERIOD: Duration = Duration::from_secs(35);

    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            now: Bytes::ZERO,
            before: Bytes::ZERO,
        }
    }

    pub(super) fn add(&mut self, bytes: Bytes) {
        if self.since.elapsed() > Self::PERIOD {
            *self = Self {
                before: self.now,
                ..Self::new()
            };
        }
        self.now += bytes;
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.now + self.before
    }
}

/// The refusal that an errno of the ioctl means.
pub(super) fn refuse(target: &Target, at: FileOffset, error: io::Error) -> Refusal {
    let reason = match Errno::from_io_error(&error) {
        Some(Errno::NOSPC) => SkipReason::NoSpace,
        Some(Errno::DQUOT) => SkipReason::QuotaExceeded,
        Some(Errno::ROFS) => SkipReason::ReadOnlyMount,
        Some(Errno::PERM | Errno::ACCESS) => SkipReason::NotPermitted,
        Some(Errno::TXTBSY) => SkipReason::SwapFile,
        // The range begins past the end of the file, which was cut off meanwhile.
        Some(Errno::INVAL) => SkipReason::Changed,
        Some(Errno::NOTTY | Errno::OPNOTSUPP) => SkipReason::Unsupported,
        _ => return Refusal::Failed(target.error("rewrite a range", Some(at), error)),
    };
    reason.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_old_kernels_the_odd_length_comes_first() {
        let block = Bytes::kib(4);
        let piece = |rest, way, limit| piece_of(rest, way, limit, block);
        let plain = CompressionWay::Plain;
        assert_eq!(piece(Bytes::kib(260), plain, Bytes::mib(1)), Bytes::kib(4));
        assert_eq!(piece(Bytes::kib(256), plain, Bytes::mib(1)), CLUSTER);
        assert_eq!(
            piece(Bytes::kib(100), plain, Bytes::mib(1)),
            Bytes::kib(100)
        );
        assert_eq!(
            piece(Bytes::mib(9), CompressionWay::Every, Bytes::mib(1)),
            Bytes::mib(1)
        );
        assert_eq!(
            piece(Bytes::mib(9), CompressionWay::Every, Bytes(5000)),
            block
        );
        assert_eq!(
            piece(Bytes::mib(9), CompressionWay::Every, Bytes::ZERO),
            block
        );
    }
}
