//! Extents that are being moved: files that share them may be moved at the same time by several workers, also as
//! files of different subvolumes, and the one that comes first moves them for all.

use std::{
    collections::HashSet,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// A file system and the address of an extent, or of a block.
type Claimed = ([u8; 16], u64);

static CLAIMED: LazyLock<Mutex<HashSet<Claimed>>> = LazyLock::new(Mutex::default);

fn claimed() -> MutexGuard<'static, HashSet<Claimed>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file system whose extents are claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims([u8; 16]);

/// Claimed extents, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    of: Claims,
    extents: HashSet<u64>,
}

impl Claims {
    /// Claims on the file system with this identity: its UUID, say.
    pub(crate) fn on(file_system: [u8; 16]) -> Self {
        Self(file_system)
    }

    /// Claim those of the extents that nobody else has claimed.
    pub(crate) fn take(self, extents: impl Iterator<Item = u64>) -> Claim {
        let extents: HashSet<u64> = extents.collect();
        let mut claimed = claimed();
        let ours = { extents.into_iter() }.filter(|extent| claimed.insert((self.0, *extent)));
        Claim {
            extents: ours.collect(),
            of: self,
        }
    }
}

impl Claim {
    /// Claim more extents, which nobody else knows yet.
    pub(crate) fn add(&mut self, extents: impl Iterator<Item = u64>) {
        let mut more = self.of.take(extents);
        self.extents.extend(more.extents.drain());
    }

    pub(crate) fn has(&self, extent: u64) -> bool {
        self.extents.contains(&extent)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = claimed();
        for extent in &self.extents {
            claimed.remove(&(self.of.0, *extent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_has_one_mover_until_it_is_done() {
        let (one, other) = (Claims::on([1; 16]), Claims::on([2; 16]));
        let mut first = one.take([10].into_iter());
        first.add([20].into_iter());
        let second = one.take([20, 30].into_iter());
        assert!(first.has(10) && first.has(20) && second.has(30) && !second.has(20));
        assert!(other.take([20].into_iter()).has(20));
        drop(first);
        assert!(one.take([20].into_iter()).has(20));
        assert!(!one.take([30].into_iter()).has(30));
    }
}
