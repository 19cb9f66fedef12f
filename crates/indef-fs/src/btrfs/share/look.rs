//! Looks at a file, a window of its ranges after the other: who holds their extents, which of them can move together
//! with all of these, and at what price. Plans and relocations decide by the same look.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

use indef_core::SkipReason;
use linux_abi::btrfs::fsid;
use units::{Bytes, FileRange};

use super::{
    holders::{Asking, Finder},
    metadata::{Ledger, Price},
};
use crate::{
    Refusal, Target,
    share::{
        asked::{Asked, WINDOW},
        claims::Claims,
        holder::HolderId,
        relocation::Looked,
        select::select,
        window::Window,
    },
};

/// A look at a file.
pub(super) struct Look<'a> {
    ledger: &'a Ledger,
    target: &'a Target,
    subvolume: u64,
    /// Ranges that nobody shares move in the same way.
    takes_unshared: bool,
    claims: Claims,
    pub(super) finder: Finder,
    pub(super) asked: Asked,
    /// Items of the windows that move, for each holder.
    items: HashMap<HolderId, u64>,
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
        let asked = Asked::of(target, ranges)?;
        let fsid = fsid(&target.file)
            .map_err(|error| target.error("ask for the file system", None, error))?;
        Ok(Self {
            ledger,
            target,
            subvolume,
            takes_unshared,
            claims: Claims::on(fsid),
            finder: Finder::default(),
            asked,
            items: HashMap::new(),
        })
    }

    /// Look at the next window. `None` if there is none.
    pub(super) fn next(
        &mut self,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Looked>, Refusal> {
        let (ledger, target, subvolume) = (self.ledger, self.target, self.subvolume);
        let finder = &mut self.finder;
        let arrivals = self.claims.arrivals();
        let taken = (self.asked).next(WINDOW, |range, most| {
            finder.parts_of(target, subvolume, range, most)
        })?;
        let Some(taken) = taken else {
            return Ok(None);
        };
        let hull = taken.hull();
        let (asked, bytes) = (taken.ranges, taken.bytes);
        let claim = (self.claims).take(taken.parts.iter().map(|part| part.extent));
        // Others may have moved them before they were claimed.
        let mut now = Vec::new();
        for range in &asked {
            now.extend(finder.parts_of(target, subvolume, *range, Bytes(u64::MAX))?);
        }
        let found = self.finder.alone(target, now, hull, (&claim, &arrivals))?;
        // Nobody is asked for who holds what would not move anyway.
        let alone = select(&asked, &found.target, &[], found.staying.clone(), true);
        if alone.runs.is_empty() {
            return Ok(Some(Looked {
                asked,
                layout: found.target.layout,
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
            let holders = holders.iter().map(|holder| (*holder, 0..0));
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
        Ok(Some(Looked::select(
            own,
            asked,
            found,
            self.takes_unshared,
            claim,
        )))
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
            (id, before..before + items)
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
    holders: impl Iterator<Item = (HolderId, Range<u64>)>,
) -> Result<Price, Refusal> {
    let price = ledger.price(target, subvolume, holders);
    price.map_err(|error| target.error("look at the trees", None, error).into())
}
