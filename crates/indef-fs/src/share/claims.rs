//! Extents that are being moved: files that share them may be moved at the same time by several workers, also as
//! files of different subvolumes, and the one that comes first moves them for all.
//!
//! A file may get an extent between a look at it and the next: from a worker, which has claimed its copy from before it
//! gives it until later, or from whoever writes the file. [`Arrivals`] tells these apart.

use std::{
    collections::{HashMap, HashSet},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

use indef_core::SkipReason;

/// A file system and the address of an extent, or of a block.
type Claimed = ([u8; 16], u64);

/// The claims of all workers.
#[derive(Debug, Default)]
struct Table {
    claimed: HashSet<Claimed>,
    /// For each of the [`Arrivals`], the copies whose claims have ended since it began.
    copies: HashMap<u64, HashSet<Claimed>>,
    /// The number of the next.
    next: u64,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file system whose extents are claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims([u8; 16]);

/// Claimed extents, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    of: Claims,
    extents: HashSet<u64>,
    /// Those of a copy among them.
    copies: HashSet<u64>,
}

/// Knows the copies that workers have given to files since it began, until this is dropped.
#[derive(Debug)]
pub(crate) struct Arrivals {
    of: Claims,
    number: u64,
}

impl Claims {
    /// Claims on the file system with this identity: its UUID, say.
    pub(crate) fn on(file_system: [u8; 16]) -> Self {
        Self(file_system)
    }

    /// Claim those of the extents that nobody else has claimed.
    pub(crate) fn take(self, extents: impl Iterator<Item = u64>) -> Claim {
        let extents: HashSet<u64> = extents.collect();
        let mut table = table();
        let ours = { extents.into_iter() }.filter(|extent| table.claimed.insert((self.0, *extent)));
        Claim {
            extents: ours.collect(),
            copies: HashSet::new(),
            of: self,
        }
    }

    /// Begin before the first look at a file.
    pub(crate) fn arrivals(self) -> Arrivals {
        let mut table = table();
        let number = table.next;
        table.next += 1;
        table.copies.insert(number, HashSet::new());
        Arrivals { of: self, number }
    }
}

impl Claim {
    /// Claim the extents of a copy, too, which nobody else knows yet.
    pub(crate) fn add_copy(&mut self, extents: impl Iterator<Item = u64>) {
        let mut copy = self.of.take(extents);
        self.copies.extend(&copy.extents);
        self.extents.extend(copy.extents.drain());
    }

    pub(crate) fn has(&self, extent: u64) -> bool {
        self.extents.contains(&extent)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = table();
        for copies in table.copies.values_mut() {
            copies.extend(self.copies.iter().map(|extent| (self.of.0, *extent)));
        }
        for extent in &self.extents {
            table.claimed.remove(&(self.of.0, *extent));
        }
    }
}

impl Arrivals {
    /// Why an extent stays that could not be claimed: another worker moves it, or gave it to the file meanwhile. If none
    /// did, the file was written, or its blocks were exchanged by somebody else.
    pub(crate) fn reason(&self, extent: u64) -> SkipReason {
        let (table, extent) = (table(), (self.of.0, extent));
        let copies = table.copies.get(&self.number);
        let is_given = copies.is_some_and(|copies| copies.contains(&extent));
        match is_given || table.claimed.contains(&extent) {
            true => SkipReason::MovedAlong,
            false => SkipReason::Changed,
        }
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        table().copies.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_has_one_mover_until_it_is_done() {
        let (one, other) = (Claims::on([1; 16]), Claims::on([2; 16]));
        let mut first = one.take([10].into_iter());
        first.add_copy([20].into_iter());
        let second = one.take([20, 30].into_iter());
        assert!(first.has(10) && first.has(20) && second.has(30) && !second.has(20));
        assert!(other.take([20].into_iter()).has(20));
        drop(first);
        assert!(one.take([20].into_iter()).has(20));
        assert!(!one.take([30].into_iter()).has(30));
    }

    #[test]
    fn an_extent_that_no_worker_gave_was_written() {
        let file_system = Claims::on([3; 16]);
        let mut before = file_system.take([10].into_iter());
        before.add_copy([20].into_iter());
        let mut mover = file_system.take([30].into_iter());
        mover.add_copy([40].into_iter());
        drop(before);
        let arrivals = file_system.arrivals();
        // It is being moved.
        assert_eq!(arrivals.reason(30), SkipReason::MovedAlong);
        assert_eq!(arrivals.reason(40), SkipReason::MovedAlong);
        drop(mover);
        // It was given; its old extent is free for anybody.
        assert_eq!(arrivals.reason(40), SkipReason::MovedAlong);
        assert_eq!(arrivals.reason(30), SkipReason::Changed);
        // What was given before was there at the first look.
        assert_eq!(arrivals.reason(20), SkipReason::Changed);
        assert_eq!(arrivals.reason(50), SkipReason::Changed);
        assert_eq!(file_system.arrivals().reason(40), SkipReason::Changed);
        // An address is one of its file system.
        Claims::on([4; 16])
            .take([].into_iter())
            .add_copy([50].into_iter());
        assert_eq!(arrivals.reason(50), SkipReason::Changed);
    }

    #[test]
    fn what_ended_is_remembered_for_nobody() {
        let file_system = Claims::on([5; 16]);
        let number = {
            let arrivals = file_system.arrivals();
            file_system.take([].into_iter()).add_copy([10].into_iter());
            assert_eq!(arrivals.reason(10), SkipReason::MovedAlong);
            arrivals.number
        };
        assert!(!table().copies.contains_key(&number));
    }
}
