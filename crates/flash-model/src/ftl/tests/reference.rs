//! A flash that carries out an FTL's operations and remembers every version of every logical page:
//! the FTL's answers must agree with it.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

type Content = BTreeSet<(u64, u64)>;

pub(super) struct Reference {
    geometry: FtlGeometry,
    /// The version of each logical page that the host expects to read.
    wanted: BTreeMap<u64, u64>,
    writes: u64,
    /// The content of each programmed page: (logical page, version).
    flash: BTreeMap<PhysPage, Content>,
    /// Pages programmed in each block; they must be programmed in order.
    programmed: BTreeMap<(u32, u32), u32>,
    /// Data that waits in each die's pages that are not full yet.
    buffered: Vec<Content>,
    /// Data that the collector has read and not yet programmed again.
    in_hand: Content,
}

impl Reference {
    pub(super) fn new(geometry: FtlGeometry) -> Self {
        Self {
            geometry,
            wanted: BTreeMap::new(),
            writes: 0,
            flash: BTreeMap::new(),
            programmed: BTreeMap::new(),
            buffered: vec![Content::new(); geometry.dies as usize],
            in_hand: Content::new(),
        }
    }

    /// Writes to the FTL and here, and applies the FTL's work to the flash.
    pub(super) fn write(&mut self, ftl: &mut Ftl, first: u64, count: u64, hint: PagePlacement) {
        let mut work = Vec::new();
        ftl.write(first, count, hint, &mut work);
        for lpn in first..first + count {
            self.writes += 1;
            self.wanted.insert(lpn, self.writes);
            // Collecting never moves data to another die: this is the die that it was written to.
            let die = ftl.read(lpn).expect("it was just written").die;
            self.buffered[die as usize].insert((lpn, self.writes));
        }
        self.apply(&work);
        for pages in &mut self.buffered {
            pages.retain(|(lpn, _)| ftl.read(*lpn).is_some_and(|page| ftl.is_buffered(page)));
        }
    }

    pub(super) fn trim(&mut self, ftl: &mut Ftl, lpn: u64) {
        assert_eq!(ftl.trim(lpn), self.wanted.remove(&lpn).is_some());
    }

    pub(super) fn pad(&mut self, ftl: &mut Ftl) {
        let mut work = Vec::new();
        ftl.pad(&mut work);
        self.apply(&work);
        for lpn in 0..self.geometry.logical_pages {
            assert!(!ftl.read(lpn).is_some_and(|page| ftl.is_buffered(page)));
        }
        self.buffered.iter_mut().for_each(Content::clear);
    }

    /// Gives a handle a new reclaim unit: none of its data waits any more.
    pub(super) fn renew(&mut self, ftl: &mut Ftl, handle: u32) {
        let mut work = Vec::new();
        let unit = self.geometry.slots_per_reclaim_unit();
        let left = ftl.reclaim_units_left().nth(handle as usize);
        let unfilled = ftl.renew(handle, &mut work);
        assert_eq!(unfilled, left.filter(|left| *left < unit).unwrap_or(0));
        assert!(left.is_none() || ftl.reclaim_units_left().nth(handle as usize) == Some(unit));
        self.apply(&work);
        for pages in &mut self.buffered {
            pages.retain(|(lpn, _)| ftl.read(*lpn).is_some_and(|page| ftl.is_buffered(page)));
        }
    }

    /// Lets the FTL collect for as long as it has something to do, which must come to an end.
    pub(super) fn idle(&mut self, ftl: &mut Ftl) {
        let mut work = Vec::new();
        let slots = self.geometry.slot_numbers();
        for turn in 0.. {
            assert!(turn <= 4 * slots, "collecting never ends");
            if !ftl.collect_idle(&mut work) {
                assert!(work.is_empty());
                break;
            }
            self.apply(&work);
            work.clear();
        }
    }

    fn apply(&mut self, work: &[FlashWork]) {
        for &FlashWork { op, cause } in work {
            match op {
                FlashOp::Read(page) => self.in_hand.extend(self.flash[&page].iter()),
                FlashOp::Program(page) if cause == Cause::Host => {
                    // It may hold any of the data that waits on its die; the map must say which.
                    self.program(page, self.buffered[page.die as usize].clone());
                }
                FlashOp::Program(page) => {
                    let content = std::mem::take(&mut self.in_hand);
                    self.program(page, content);
                }
                FlashOp::Copyback { from, to } => {
                    assert_eq!(from.die, to.die, "a copyback stays on its die");
                    assert_eq!(cause == Cause::Fold, self.geometry.is_slc(from.block));
                    assert!(
                        !self.geometry.is_slc(to.block),
                        "only the host fills the cache"
                    );
                    let content = self.flash[&from].clone();
                    self.program(to, content);
                }
                FlashOp::Erase { die, block } => self.erase(die, block),
            }
        }
        assert!(
            self.in_hand.is_empty(),
            "the collector read what it did not write"
        );
    }

    fn program(&mut self, page: PhysPage, content: Content) {
        let next = self.programmed.entry((page.die, page.block)).or_default();
        assert_eq!(
            page.page, *next,
            "pages of a block are programmed in order: {page:?}"
        );
        assert!(page.block < self.geometry.all_blocks());
        assert!(page.page < self.geometry.pages_in(page.block));
        *next += 1;
        self.flash.insert(page, content);
    }

    fn erase(&mut self, die: u32, block: u32) {
        let programmed = self.programmed.remove(&(die, block));
        assert!(
            programmed.is_some(),
            "die {die} block {block} was erased already"
        );
        for page in 0..self.geometry.pages_per_block {
            self.flash.remove(&PhysPage { die, block, page });
        }
    }

    /// Checks that nothing is lost, nothing trimmed came back, and the map is one-to-one.
    pub(super) fn check(&self, ftl: &Ftl) {
        for lpn in 0..self.geometry.logical_pages {
            let page = ftl.read(lpn);
            let Some(version) = self.wanted.get(&lpn) else {
                assert_eq!(page, None, "logical page {lpn} should be gone");
                continue;
            };
            let page = page.unwrap_or_else(|| panic!("logical page {lpn} is lost"));
            let content = if ftl.is_buffered(page) {
                &self.buffered[page.die as usize]
            } else {
                self.flash
                    .get(&page)
                    .unwrap_or_else(|| panic!("{page:?} is not programmed"))
            };
            assert!(
                content.contains(&(lpn, *version)),
                "logical page {lpn} is not in {page:?}"
            );
        }
        check_tables(ftl, self.wanted.len());
    }
}

/// Checks that the two tables are inverse to each other, and that all counts are right.
pub(super) fn check_tables(ftl: &Ftl, mapped: usize) {
    let mut seen = 0;
    for (lpn, &slot) in ftl
        .slot_of
        .iter()
        .enumerate()
        .filter(|(_, slot)| **slot != 0)
    {
        assert_eq!(ftl.logical_in[slot as usize - 1], lpn as u32 + 1);
        seen += 1;
    }
    assert_eq!(seen, mapped);
    assert_eq!(
        ftl.logical_in.iter().filter(|lpn| **lpn != 0).count(),
        mapped
    );
    for (number, die) in (0..).zip(&ftl.dies) {
        let mut valid = 0;
        for (block, state) in (0..).zip(&die.blocks) {
            let first = ftl.geometry.slot(number, block, 0) as usize;
            let slots = &ftl.logical_in[first..first + ftl.geometry.slots_per_block() as usize];
            assert_eq!(
                slots.iter().filter(|lpn| **lpn != 0).count() as u32,
                state.valid
            );
            let free = if ftl.geometry.is_slc(block) {
                &die.free_slc
            } else {
                &die.free
            };
            assert_eq!(
                free.contains(&block),
                state.state == blocks::BlockState::Free
            );
            valid += state.valid;
        }
        assert_eq!(die.valid, valid);
        assert!(valid < ftl.slots_per_die_at_most + ftl.geometry.slots_per_granule());
        assert!(die.draining.len() <= 1);
        assert_eq!(
            die.erases,
            die.blocks[..ftl.geometry.blocks_per_die as usize]
                .iter()
                .map(|it| u64::from(it.erases))
                .sum::<u64>()
        );
    }
}
