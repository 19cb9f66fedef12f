//! Which region to empty, and the plans of the files in it.

use std::{
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use indef_core::{
    SkipReason,
    layout::{Movable, Region, cheapest_region},
    plan::{Chunk, Decision, Edges, FilePlan},
};
use indef_fs::{Filesystem, Grounds};
use units::{Bytes, PhysRange};

use super::{
    result::CompactEnd,
    survey::{Fragment, Owner, Survey},
};

/// Bounds of the choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The length of the run that there shall be.
    pub(super) wanted: Bytes,
    /// Bytes that may be written.
    pub(super) budget: Bytes,
    /// Free bytes that others can do without for a while: while a region is emptied, all that is free in it is held, and
    /// what moves has its old blocks and its new ones.
    pub(super) spare: Bytes,
}

/// Why there is no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRegion {
    /// None that would give a longer run.
    None,
    /// There is one, but the budget is too small for it.
    Budget,
}

impl From<NoRegion> for CompactEnd {
    fn from(why: NoRegion) -> Self {
        match why {
            NoRegion::None => Self::NoRegion,
            NoRegion::Budget => Self::Budget,
        }
    }
}

/// The choice.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) region: Region,
    /// Its free runs.
    pub(super) free: Vec<PhysRange>,
    /// The files in it, by place, with what of them is to move.
    pub(super) files: Vec<FilePlan>,
    /// Files with a fragment for which there is no free run outside.
    pub(super) unfit: Vec<(u64, SkipReason)>,
}

/// The cheapest region of the wanted length, or else the longest one for which there is room and budget.
pub(super) fn choose(
    fs: &Filesystem,
    survey: &Survey,
    grounds: Option<&Grounds>,
    limits: &Limits,
) -> Result<Chosen, NoRegion> {
    let can_hold = |place: &PhysRange| grounds.is_none_or(|grounds| grounds.can_hold(*place));
    let free: Vec<_> = survey.space.free.iter().copied().filter(can_hold).collect();
    let movable: Vec<_> = survey
        .fragments
        .iter()
        .map(|fragment| fragment.place)
        .filter(can_hold)
        .map(Movable::from)
        .collect();
    let longest = survey.space.largest();
    let region = pick(longest, limits, |wanted| {
        cheapest_region(&free, &movable, wanted).map(|region| (region, region.place.len))
    })?;
    Ok(plan(fs, survey, region))
}

/// The first region of the lengths to try that is worth its bytes, and for which there are room and budget. `find` tells
/// the one of a length, with the bytes for which there has to be room meanwhile.
pub(super) fn pick(
    longest: Bytes,
    limits: &Limits,
    find: impl Fn(Bytes) -> Option<(Region, Bytes)>,
) -> Result<Region, NoRegion> {
    let mut why = NoRegion::None;
    for wanted in lengths(limits.wanted).take_while(|wanted| *wanted > longest) {
        if let Some((region, room)) = find(wanted) {
            let gained = region.place.len.saturating_sub(longest);
            let is_worth = region.to_move.get() / 2 <= gained.get();
            let has_room = room <= limits.spare;
            if is_worth && has_room && region.to_move <= limits.budget {
                return Ok(region);
            }
            if is_worth && has_room {
                why = NoRegion::Budget;
            }
        }
    }
    Err(why)
}

/// The lengths of regions to try. XFS gives no file the last blocks of an allocation group, which its own trees may
/// need (some 160 of 25,600 were seen; `xfs_alloc_space_available`, fs/xfs/libxfs/xfs_alloc.c, v6.18), so a file as
/// long as the run would not get all of it: a region is a little longer at first.
fn lengths(wanted: Bytes) -> impl Iterator<Item = Bytes> {
    let shorter =
        |length: &Bytes| Some(Bytes(length.get() / 4 * 3)).filter(|length| !length.is_zero());
    let longer = wanted + Bytes(wanted.get() / 32);
    std::iter::once(longer).chain(std::iter::successors(Some(wanted), shorter))
}

fn plan(fs: &Filesystem, survey: &Survey, region: Region) -> Chosen {
    let place = region.place;
    let (free, outside): (Vec<_>, Vec<_>) =
        (survey.space.free.iter().copied()).partition(|run| place.contains(*run));
    let inside = |fragment: &&Fragment| place.contains(fragment.place);
    let fragments: Vec<_> = survey.fragments.iter().filter(inside).copied().collect();
    let unfit = unfit(&fragments, outside);
    let unfit = unfit.iter().map(|fragment| {
        let inode = survey.owners[fragment.owner].id.inode;
        (inode, SkipReason::NoPlace)
    });
    Chosen {
        region,
        free,
        unfit: unfit.collect(),
        files: files(fs, &survey.owners, &fragments, place),
    }
}

/// The fragments for which there is no room in one piece.
fn unfit(fragments: &[Fragment], outside: Vec<PhysRange>) -> Vec<Fragment> {
    let mut longest_first = fragments.to_vec();
    longest_first.sort_unstable_by_key(|fragment| std::cmp::Reverse(fragment.place.len));
    let mut places = Places::of(outside.into_iter().map(|run| run.len));
    longest_first.retain(|fragment| !places.take(fragment.place.len));
    longest_first
}

/// Free runs, of which each piece takes the longest that is left. The longest pieces have to come first.
pub(super) struct Places(BinaryHeap<Bytes>);

impl Places {
    pub(super) fn of(runs: impl Iterator<Item = Bytes>) -> Self {
        Self(runs.collect())
    }

    /// A place for a piece; `false` where there is none that takes it as a whole.
    pub(super) fn take(&mut self, piece: Bytes) -> bool {
        let Some(longest) = self.0.pop() else {
            return false;
        };
        let fits = longest >= piece;
        self.0.push(match fits {
            true => longest - piece,
            false => longest,
        });
        fits
    }
}

/// A plan for each file. Files at the beginning of the region come first, so that a run that ends early has freed
/// one part of it as a whole.
fn files(
    fs: &Filesystem,
    owners: &[Owner],
    fragments: &[Fragment],
    region: PhysRange,
) -> Vec<FilePlan> {
    let name: Arc<str> = fs.kind.to_string().into();
    let mut plans: BTreeMap<usize, FilePlan> = BTreeMap::new();
    let mut order = Vec::new();
    for fragment in fragments {
        let owner = &owners[fragment.owner];
        let plan = plans.entry(fragment.owner).or_insert_with(|| {
            order.push(fragment.owner);
            FilePlan {
                path: owner.path.clone(),
                root_len: Some(owner.root_len),
                dev: owner.id.dev,
                inode: owner.id.inode,
                born: owner.born,
                size: owner.size,
                block_size: owner.block_size,
                fs: Arc::clone(&name),
                engine: None,
                extents_before: owner.fragments,
                named: None,
                skip: None,
                chunks: Vec::new(),
            }
        });
        let behind = region.end() - fragment.place.start;
        let share = behind.get() as f64 / region.len.get().max(1) as f64;
        plan.chunks.push(Chunk {
            range: fragment.range,
            reads: 0,
            writes: 0,
            dolf: 1,
            dopf: 0.0,
            iodp: 0.0,
            decision: Decision::Migrate,
            cost: fragment.place.len,
            gain: share * fragment.place.len.get() as f64,
            edges: Edges::default(),
            lets_go: None,
            shared: None,
        });
    }
    let mut files: Vec<_> = order
        .iter()
        .filter_map(|owner| plans.remove(owner))
        .collect();
    for plan in &mut files {
        plan.chunks.sort_unstable_by_key(|chunk| chunk.range);
    }
    files
}
