//! Looks at a file, a window of its ranges after the other: who holds their extents, which of them can move together
//! with all of these, and at what price. Plans and relocations decide by the same look.

use std::collections::{BTreeSet, HashMap, VecDeque};

use indef_core::{SkipReason, layout::Layout};
use units::{Bytes, FileRange};

use super::{
    claims::Claims,
    holders::{Asking, Finder, Holder, HolderId},
    metadata::{Ledger, Price, leaves},
    select::{FileParts, Selected, select},
    window::Window,
};
use crate::{Refusal, Target};

/// The bytes that are copied together: also the space that a copy takes before the old blocks are given up.
const WINDOW: Bytes = Bytes::mib(16);

/// A look at a file.
pub(super) struct Look<'a> {
    ledger: &'a Ledger,
    target: &'a Target,
    subvolume: u64,
    /// Ranges that nobody shares move in the same way.
    takes_unshared: bool,
    claims: Claims,
    pub(super) finder: Finder,
    /// Ranges that no window has taken yet.
    ranges: VecDeque<FileRange>,
    /// Items of the windows that move, for each holder.
    items: HashMap<HolderId, u64>,
}

/// Some ranges of the file, looked at.
pub(super) struct Looked {
    /// The ranges.
    pub(super) asked: Vec<FileRange>,
    /// Of the target, with a bit on either side.
    pub(super) layout: Layout,
    /// The parts that can move, unless there are none.
    pub(super) window: Option<Window>,
    /// Those that move.
    pub(super) runs: Vec<FileRange>,
    /// The others, and why they do not.
    pub(super) staying: Vec<(FileRange, SkipReason)>,
}

impl Looked {
    /// The parts of what was asked for that are in no run.
    pub(super) fn rest(&self) -> Vec<FileRange> {
        others(&self.asked, &self.runs)
    }
}

impl<'a> Look<'a> {
    /// # Errors
    ///
    /// [`SkipReason::OutOfRange`] where the file has nothing of the ranges.
    pub(super) fn at(
        ledger: &'a Ledger,
        target: &'a Target,
        subvolume: u64,
        ranges: impl Iterator<Item = FileRange>,
        takes_unshared: bool,
    ) -> Result<Self, Refusal> {
        let file = FileRange::new(0, target.size.get()).align_outward(target.block_size);
        let inside = |range: FileRange| range.align_outward(target.block_size).intersect(file);
        let ranges: VecDeque<_> = ranges.map(inside).filter(|one| !one.is_empty()).collect();
        if ranges.is_empty() {
            return Err(SkipReason::OutOfRange.into());
        }
        Ok(Self {
            ledger,
            target,
            subvolume,
            takes_unshared,
            claims: Claims::on(&target.file)
                .map_err(|error| target.error("ask for the file system", None, error))?,
            finder: Finder::default(),
            ranges,
            items: HashMap::new(),
        })
    }

    /// Whether everything was looked at.
    pub(super) fn is_done(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Look at nothing more.
    pub(super) fn end(&mut self) {
        self.ranges.clear();
    }

    /// Look at the next window. `None` if there is none.
    pub(super) fn next(
        &mut self,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Looked>, Refusal> {
        let (mut asked, mut parts, mut bytes) = (Vec::new(), Vec::new(), Bytes::ZERO);
        while bytes < WINDOW
            && let Some(range) = self.ranges.pop_front()
        {
            let most = WINDOW - bytes;
            let found = (self.finder).parts_of(self.target, self.subvolume, range, most)?;
            let len: Bytes = found.iter().map(|part| Bytes(part.len)).sum();
            bytes += len;
            let mut part = range;
            if len >= most
                && let Some(last) = found.last()
            {
                // Cut after the last one.
                let end = FileRange::new(last.offset, last.len).end().min(range.end());
                part = FileRange::between(range.start, end);
                let later = FileRange::between(end, range.end());
                if !later.is_empty() {
                    self.ranges.push_front(later);
                }
            }
            asked.push(part);
            parts.extend(found);
        }
        let (Some(first), Some(last)) = (asked.first(), asked.last()) else {
            return Ok(None);
        };
        let hull = FileRange::between(first.start, last.end());
        let claim = self.claims.take(parts.iter().map(|part| part.extent));
        // Others may have moved them before they were claimed.
        let mut now = Vec::new();
        for range in &asked {
            let most = Bytes(u64::MAX);
            now.extend((self.finder).parts_of(self.target, self.subvolume, *range, most)?);
        }
        let (ledger, target, subvolume) = (self.ledger, self.target, self.subvolume);
        let found = self.finder.alone(target, now, hull, &claim)?;
        let layout = found.target.layout.clone();
        // Nobody is asked for who holds what would not move anyway.
        let alone = select(&asked, &found.target, &[], found.staying.clone(), true);
        if alone.runs.is_empty() {
            return Ok(Some(Looked {
                asked,
                layout,
                window: None,
                runs: Vec::new(),
                staying: alone.staying,
            }));
        }
        let is_too_costly = |holders: &BTreeSet<HolderId>| {
            if self.takes_unshared {
                // There may be parts that cost nothing.
                return Ok(false);
            }
            let holders = holders.iter().map(|holder| (*holder, 0));
            Ok(price(ledger, target, subvolume, holders)?.bytes() > bytes)
        };
        let asking = Asking {
            is_stopping,
            is_too_costly: &is_too_costly,
        };
        let own = HolderId {
            subvolume,
            inode: target.id.inode,
        };
        let found = self.finder.find(target, own, found, asking)?;
        let mut holders = found.holders;
        let take = |holder: &mut Holder| std::mem::take(&mut holder.has);
        let theirs: Vec<FileParts> = holders.iter_mut().map(take).collect();
        let Selected {
            runs,
            segments,
            staying,
        } = select(
            &asked,
            &found.target,
            &theirs,
            found.staying,
            self.takes_unshared,
        );
        for (holder, has) in holders.iter_mut().zip(theirs) {
            holder.has = has;
        }
        let window = (!runs.is_empty())
            .then(|| Window::new(own, runs.clone(), found.target, holders, segments, claim));
        Ok(Some(Looked {
            asked,
            layout,
            window,
            runs,
            staying,
        }))
    }

    /// The price of a window that is moved in units of `limit`, or why it is too high: all subvolumes together would
    /// get more metadata than moves.
    pub(super) fn price(
        &self,
        window: &Window,
        limit: Bytes,
    ) -> Result<Result<Price, SkipReason>, Refusal> {
        let holders = window.items(limit).map(|(id, items)| {
            let before = self.items.get(&id).copied().unwrap_or(0);
            (id, leaves(before + items) - leaves(before))
        });
        let price = price(self.ledger, self.target, self.subvolume, holders)?;
        Ok(match price.bytes() > window.len() {
            true => Err(SkipReason::MetadataCost),
            false => Ok(price),
        })
    }

    /// The window moves.
    pub(super) fn charge(&mut self, window: &Window, limit: Bytes, price: Price) {
        for (id, items) in window.items(limit) {
            *self.items.entry(id).or_default() += items;
        }
        self.ledger.charge(price);
    }
}

fn price(
    ledger: &Ledger,
    target: &Target,
    subvolume: u64,
    holders: impl Iterator<Item = (HolderId, u64)>,
) -> Result<Price, Refusal> {
    let price = ledger.price(target, subvolume, holders);
    price.map_err(|error| target.error("look at the trees", None, error).into())
}

/// The parts of `asked` that are in none of `runs` (both ordered, disjoint).
fn others(asked: &[FileRange], runs: &[FileRange]) -> Vec<FileRange> {
    let mut others = Vec::new();
    for range in asked {
        let mut place = range.start;
        for run in runs.iter().filter(|run| run.overlaps(*range)) {
            others.push(FileRange::between(place, run.start));
            place = run.end();
        }
        others.push(FileRange::between(place, range.end()));
    }
    others.retain(|range| !range.is_empty());
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_else_is_left_to_the_other_engine() {
        let asked = [FileRange::new(0, 10), FileRange::new(20, 10)];
        let runs = [FileRange::new(2, 3), FileRange::new(20, 10)];
        let expected = [FileRange::new(0, 2), FileRange::new(5, 5)];
        assert_eq!(others(&asked, &runs), expected);
        assert_eq!(others(&asked, &[]), asked);
    }
}
