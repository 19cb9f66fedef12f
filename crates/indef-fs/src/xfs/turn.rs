//! Turns: workers change the blocks of an allocation group one after the other.
//!
//! A call that gives a file other blocks takes and frees extents one by one, each in a transaction that
//! holds the header of the allocation group (`xfs_defer_finish`, fs/xfs/libxfs/xfs_defer.c, v6.18).
//! Two such calls in one group hand the header to each other thousands of times, and each time one of
//! them sleeps: four workers take half as long again as one. So workers copy side by side, and these
//! calls wait for each other here. Only time depends on it: a wrong group costs waiting.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use indef_core::layout::Layout;
use linux_abi::xfs::XfsGeometry;
use units::FileRange;

/// Groups with a turn of their own; further ones share theirs.
const GROUPS: usize = 64;

/// The turns of a file system.
#[derive(Debug)]
pub(super) struct Turns([Group; GROUPS]);

#[derive(Debug)]
struct Group {
    turn: Mutex<()>,
    /// Workers that wait for it.
    waiting: AtomicUsize,
}

/// Until it is dropped, it is our turn.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _held: MutexGuard<'a, ()>,
    waiting: &'a AtomicUsize,
}

impl Turn<'_> {
    /// Whether another worker waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self(
            [const {
                Group {
                    turn: Mutex::new(()),
                    waiting: AtomicUsize::new(0),
                }
            }; GROUPS],
        )
    }
}

impl Turns {
    /// Wait for the turn in the group in which `range` begins. A lease is taken afterwards, so that
    /// nobody who wants the file waits for other files.
    pub(super) fn wait(
        &self,
        geometry: &XfsGeometry,
        layout: &Layout,
        range: FileRange,
    ) -> Turn<'_> {
        let Group { turn, waiting } = &self.0[group(geometry, layout, range) % GROUPS];
        waiting.fetch_add(1, Ordering::Relaxed);
        let held = turn.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.fetch_sub(1, Ordering::Relaxed);
        Turn {
            _held: held,
            waiting,
        }
    }
}

fn group(geometry: &XfsGeometry, layout: &Layout, range: FileRange) -> usize {
    let bytes = u64::from(geometry.group_blocks) * u64::from(geometry.block_size);
    let place = layout
        .clipped(range)
        .next()
        .map_or(0, |extent| extent.phys.get());
    place.checked_div(bytes).unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use std::thread;

    use linux_abi::xfs::Features;

    use super::*;
    use crate::test_layout::{NONE, layout};

    const GEOMETRY: XfsGeometry = XfsGeometry {
        block_size: 10,
        group_blocks: 100,
        group_count: 4,
        inode_size: 512,
        features: Features::empty(),
    };

    #[test]
    fn the_group_is_that_of_the_first_extent_in_the_range() {
        let file = layout(&[(0, 999, 1, NONE), (1, 1000, 9, NONE), (10, 5300, 10, NONE)]);
        let of = |start, len| group(&GEOMETRY, &file, FileRange::new(start, len));
        assert_eq!(of(0, 20), 0);
        assert_eq!(of(1, 19), 1);
        assert_eq!(of(12, 3), 5);
        // Without an extent any group will do.
        assert_eq!(of(30, 10), 0);
    }

    #[test]
    fn a_group_has_one_turn_and_others_have_theirs() {
        let file = layout(&[(0, 0, 10, NONE), (10, 1000, 10, NONE), (20, 20, 10, NONE)]);
        let turns = Turns::default();
        let wait = |start| turns.wait(&GEOMETRY, &file, FileRange::new(start, 10));
        let first = wait(0);
        // It does not wait for the first group's.
        assert!(!wait(10).is_wanted());
        assert!(turns.0[0].turn.try_lock().is_err());
        assert!(!first.is_wanted());
        thread::scope(|scope| {
            let again = scope.spawn(|| wait(20).is_wanted());
            while !first.is_wanted() {
                thread::yield_now();
            }
            assert!(!again.is_finished());
            drop(first);
            assert!(!again.join().unwrap());
        });
    }
}
