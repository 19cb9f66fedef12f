//! Looks at a file, a window of its ranges after the other: who holds their blocks, and which of them can move together
//! with all of these. Plans and relocations decide by the same look.

use units::{Bytes, FileRange};

use super::holders::{Finder, blocks};
use crate::{
    Refusal, Target,
    share::{
        asked::{Asked, WINDOW},
        claims::Claims,
        holder::HolderId,
        relocation::Looked,
        select::{LONG, Part, UNIT},
    },
};

/// Extents of the target in a unit: each takes 30 to 80 microseconds under the locks of a file.
const MOST_EXTENTS: usize = 256;

/// A look at a file.
pub(super) struct Look<'a> {
    target: &'a Target,
    /// Ranges that nobody shares move in the same way.
    takes_unshared: bool,
    claims: Claims,
    pub(super) finder: Finder,
    pub(super) asked: Asked,
    /// The next window may be copied in vain, since nobody told of all holders: it is as small as can be.
    is_first: bool,
}

impl<'a> Look<'a> {
    /// # Errors
    ///
    /// [`SkipReason::OutOfRange`](indef_core::SkipReason::OutOfRange) where the file has nothing of the ranges.
    pub(super) fn at(
        target: &'a Target,
        ranges: impl Iterator<Item = FileRange>,
        (takes_unshared, needs_names): (bool, bool),
    ) -> Result<Self, Refusal> {
        // It is mounted, so its device has this number as long as the target is open.
        let mut file_system = *b"xfs\0\0\0\0\0\0\0\0\0\0\0\0\0";
        file_system[8..].copy_from_slice(&target.id.dev.to_ne_bytes());
        Ok(Self {
            target,
            takes_unshared,
            claims: Claims::on(file_system),
            finder: Finder::new(needs_names),
            asked: Asked::of(target, ranges)?,
            is_first: needs_names,
        })
    }

    /// Look at the next window. `None` if there is none.
    pub(super) fn next(
        &mut self,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Looked>, Refusal> {
        let (target, finder) = (self.target, &mut self.finder);
        let window = if self.is_first { UNIT } else { WINDOW };
        let arrivals = self.claims.arrivals();
        let taken =
            (self.asked).next(window, |range, most| finder.parts_of(target, range, most))?;
        let Some(taken) = taken else {
            return Ok(None);
        };
        let hull = taken.hull();
        let asked = taken.ranges;
        let can_move = |part: &&Part| part.len <= LONG;
        let claim = (self.claims).take(
            { taken.parts.iter() }
                .filter(can_move)
                .flat_map(|part| blocks(part, target.block_size)),
        );
        // Others may have moved them before they were claimed.
        let mut now = Vec::new();
        for range in &asked {
            now.extend(finder.parts_of(target, *range, Bytes(u64::MAX))?);
        }
        let found = finder.find(target, &now, hull, (&claim, &arrivals), is_stopping)?;
        let own = HolderId {
            subvolume: 0,
            inode: target.id.inode,
        };
        let mut looked = Looked::select(own, asked, found, self.takes_unshared, claim);
        looked.window = looked
            .window
            .map(|window| window.with_most_extents(MOST_EXTENTS));
        self.is_first &= looked.window.is_none();
        Ok(Some(looked))
    }
}
