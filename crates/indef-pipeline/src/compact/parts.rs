//! Free space made whole where the kernel empties parts of the file system: chunks of Btrfs, sections of F2FS.
//!
//! The region is chosen as elsewhere, of parts in the place of fragments: what is used in them is its price
//! ([`cheapest_region`]). Before one is emptied, each piece of it has to find a place in one piece in the others, as the
//! kernel would else take new space for it, and nothing would be won.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::File,
    thread,
    time::{Duration, Instant},
};

use indef_core::{
    SkipReason,
    layout::{Movable, Region, cheapest_region},
};
use indef_engine::run::StopCause;
use indef_fs::{Emptier, Filesystem, FsKind, NotEmptied, Part, PartMap, Space, SpaceMap};
use units::Bytes;

use super::{
    Compactor, MOST_PER_BYTE, ROUNDS,
    region::{Limits, NoRegion, Places, pick},
    result::{CompactEnd, Compacted, Staying},
};
use crate::{
    error::{CannotCompact, Error},
    note::Note,
};

/// The time between two looks whether a pause is over.
const NAP: Duration = Duration::from_millis(50);

/// Parts that stay, by their numbers, with their bytes.
type Stuck = BTreeMap<u64, (SkipReason, Bytes)>;

/// A region, and the parts in it.
struct Chosen {
    region: Region,
    parts: Vec<Part>,
}

/// Why no region was chosen.
enum NotChosen {
    NoRegion(NoRegion),
    Stopped(CompactEnd),
}

impl Compactor<'_> {
    /// Empty parts until there is a free run of the wanted length.
    pub(super) fn empty_parts(
        &self,
        fs: &Filesystem,
        emptier: &dyn Emptier,
        done: &mut Compacted,
        began: Instant,
    ) -> Result<(), Error> {
        let most = Bytes(done.wanted.get().saturating_mul(MOST_PER_BYTE));
        let budget = self.options.budget.map_or(most, |budget| budget.min(most));
        let root = self.root(fs)?;
        let mut stuck = Stuck::new();
        // Rounds that won nothing, and the parts that were empty when those that were in use were last tried anew.
        let (mut in_vain, mut tried_anew) = (0, 0);
        while in_vain < ROUNDS {
            let map = emptier
                .look()
                .map_err(|error| self.cannot(fs, error.into()))?;
            let limits = Limits {
                wanted: done.wanted,
                budget: budget.saturating_sub(done.bytes_written),
                spare: self.room(fs, &root, &map.space),
            };
            let chosen = self.choose_parts((fs, emptier), &map, &limits, &mut stuck, began)?;
            done.in_the_way.metadata = map.space.metadata;
            done.in_the_way.files = by_reason(&stuck);
            let chosen = match chosen {
                Ok(chosen) => chosen,
                Err(NotChosen::Stopped(end)) => {
                    done.end = end;
                    return Ok(());
                }
                // A log of F2FS has gone on meanwhile, or somebody is done with a chunk.
                Err(_) if done.parts_emptied > tried_anew && stuck.values().any(is_in_use) => {
                    tried_anew = done.parts_emptied;
                    stuck.retain(|_, stays| !is_in_use(stays));
                    continue;
                }
                Err(NotChosen::NoRegion(why)) => {
                    done.end = why.into();
                    return Ok(());
                }
            };
            if done.region.is_none() {
                done.region = Some(chosen.region);
                done.parts = Some((emptier.kind(), chosen.parts.len() as u64));
            }
            if self.options.dry_run {
                done.rounds += 1;
                done.largest_after = chosen.region.place.len;
                done.end = CompactEnd::DryRun;
                return Ok(());
            }
            let known = stuck.len();
            let before = map.space.longest();
            done.rounds += 1;
            let room = || self.room(fs, &root, &map.space);
            let (part, parts) = ((fs, emptier), &chosen.parts);
            let ended = self.empty_all(part, parts, &room, done, &mut stuck, began)?;
            let space = self
                .space(fs, Some(emptier))
                .map_err(|why| self.cannot(fs, why))?;
            done.largest_after = space.longest();
            done.in_the_way.files = by_reason(&stuck);
            if done.largest_after >= done.wanted {
                done.end = CompactEnd::Reached;
                return Ok(());
            }
            if let Some(end) = ended {
                done.end = end;
                return Ok(());
            }
            done.end = CompactEnd::NoRegion;
            if done.largest_after > before {
                in_vain = 0;
            } else if stuck.len() == known {
                // What is written then gives nothing.
                return Ok(());
            } else {
                in_vain += 1;
            }
        }
        Ok(())
    }

    /// What may be taken for what moves. A Btrfs without room for metadata tells users that nothing is free, however much is
    /// in its chunks of data (`btrfs_statfs`, fs/btrfs/super.c, v6.12), which is when chunks have to be emptied.
    fn room(&self, fs: &Filesystem, root: &File, space: &SpaceMap) -> Bytes {
        let told = Space::of(root);
        match told {
            Ok(told) if fs.kind == FsKind::Btrfs && told.free.is_zero() => {
                let in_chunks = Space {
                    free: space.total(),
                    ..told
                };
                in_chunks.to_take(self.options.min_free_pct)
            }
            _ => self.spare(root),
        }
    }

    /// Why nothing more is to be done now, if so.
    fn stopped(&self, began: Instant) -> Option<CompactEnd> {
        let is_late = || {
            let limit = self.options.time_limit;
            limit.is_some_and(|limit| began.elapsed() >= limit)
        };
        match () {
            () if self.cancel.is_cancelled() => Some(StopCause::Cancelled),
            () if is_late() => Some(StopCause::TimeLimit),
            () => None,
        }
        .map(CompactEnd::Stopped)
    }

    /// The cheapest region of parts that can all be emptied. Of thousands of parts each may prove not to fit anywhere, one
    /// after the other.
    fn choose_parts(
        &self,
        (fs, emptier): (&Filesystem, &dyn Emptier),
        map: &PartMap,
        limits: &Limits,
        stuck: &mut Stuck,
        began: Instant,
    ) -> Result<Result<Chosen, NotChosen>, Error> {
        loop {
            if let Some(end) = self.stopped(began) {
                return Ok(Err(NotChosen::Stopped(end)));
            }
            let mut parts = map.parts_without(|part| stuck.contains_key(&part.address()));
            let movable: Vec<Movable> = parts.iter().map(Movable::from).collect();
            // The place of the region that was found last.
            let whole = Cell::new(None);
            let region = pick(map.space.longest(), limits, |wanted| {
                let mut len = wanted + map.kept;
                loop {
                    let mut region = cheapest_region(&map.vacant, &movable, len)?;
                    let place = region.place;
                    let inside = parts.iter().filter(|part| place.contains(part.place));
                    let won = map.won(place, &inside.copied().collect::<Vec<_>>());
                    if won >= wanted {
                        whole.set(Some(place));
                        region.place.len = won;
                        return Some((region, region.to_move));
                    }
                    len = place.len + (wanted - won);
                }
            });
            let region = match region {
                Ok(region) => region,
                Err(why) => return Ok(Err(NotChosen::NoRegion(why))),
            };
            let place = whole.take().unwrap_or(region.place);
            parts.retain(|part| place.contains(part.place));
            // What is done first has cost the least if the run ends early.
            parts.sort_by_key(|part| part.used);
            let mut pieces = Vec::new();
            for part in &parts {
                let of_part = emptier
                    .pieces(part)
                    .map_err(|error| self.cannot(fs, error.into()))?;
                pieces.extend(of_part.into_iter().map(|len| (len, *part)));
            }
            pieces.sort_unstable_by_key(|(len, _)| std::cmp::Reverse(*len));
            let mut places = Places::of(map.free_elsewhere(&parts));
            let unfit = pieces.iter().find(|(len, _)| !places.take(*len));
            match unfit {
                None => return Ok(Ok(Chosen { region, parts })),
                Some((_, part)) => {
                    stuck.insert(part.address(), (SkipReason::NoPlace, part.used));
                }
            }
        }
    }

    /// Empty these parts, one after the other. Returns why no more of them, if something has ended it.
    fn empty_all(
        &self,
        (fs, emptier): (&Filesystem, &dyn Emptier),
        parts: &[Part],
        room: &dyn Fn() -> Bytes,
        done: &mut Compacted,
        stuck: &mut Stuck,
        began: Instant,
    ) -> Result<Option<CompactEnd>, Error> {
        let stop = || self.stopped(began).is_some();
        for (number, part) in parts.iter().enumerate() {
            if let Some(end) = self.stopped(began) {
                return Ok(Some(end));
            }
            if part.used > room() {
                return Ok(Some(CompactEnd::Short));
            }
            self.notes.note(Note::Emptying {
                part: emptier.kind(),
                number: number as u64 + 1,
                of: parts.len() as u64,
                used: part.used,
            });
            let emptying = emptier.empty(part, &stop);
            done.bytes_relocated += emptying.moved;
            done.bytes_written += emptying.written;
            match emptying.left {
                None => done.parts_emptied += 1,
                Some(NotEmptied::Stays(reason)) => {
                    let left = part.used.saturating_sub(emptying.moved);
                    stuck.insert(part.address(), (reason, left));
                    return Ok(None);
                }
                Some(NotEmptied::Refused(reason)) => {
                    return Err(self.cannot(fs, CannotCompact::Refused(reason)));
                }
                Some(NotEmptied::Stopped) => return Ok(self.stopped(began)),
                Some(NotEmptied::Ended) => return Err(self.cannot(fs, CannotCompact::Ended)),
                Some(NotEmptied::Busy) => return Err(self.cannot(fs, CannotCompact::Busy)),
                Some(NotEmptied::Failed(error)) => {
                    let part = emptier.kind();
                    let why = CannotCompact::NotEmptied { part, error };
                    return Err(self.cannot(fs, why));
                }
            }
            if let Some(rate) = self.options.rate.filter(|rate| !rate.is_zero()) {
                let due = done.bytes_written.get() as f64 / rate.get() as f64;
                while began.elapsed().as_secs_f64() < due && !stop() {
                    thread::sleep(NAP);
                }
            }
        }
        Ok(None)
    }
}

fn is_in_use((reason, _): &(SkipReason, Bytes)) -> bool {
    *reason == SkipReason::Changed
}

fn by_reason(stuck: &Stuck) -> BTreeMap<SkipReason, Staying> {
    let mut files: BTreeMap<SkipReason, Staying> = BTreeMap::new();
    for (reason, bytes) in stuck.values() {
        let staying = files.entry(*reason).or_default();
        staying.pieces += 1;
        staying.bytes += *bytes;
    }
    files
}
