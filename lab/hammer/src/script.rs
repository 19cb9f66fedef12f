//! The operations of a round, from the seed alone.

use workloads::Numbers;

use crate::volume::{Volume, VolumeKind};

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Where {
    /// At this block.
    Block(u32),
    /// At this distance from the mover's front: the first block whose place on the device does not
    /// follow its predecessor's. Moved and unmoved blocks meet there.
    Front(i32),
}

/// A range of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) at: Where,
    pub(crate) blocks: u32,
}

/// The way of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Buffered,
    Mapped,
    Direct,
    /// `O_DSYNC`
    Dsync,
    /// `O_SYNC`
    Sync,
    DirectDsync,
}

/// An operation on a file, or on both of an actor's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Write(Place, How),
    /// A write to blocks inside of the file.
    Overwrite(Place, How),
    Read(Place, bool),
    Fsync,
    Fdatasync,
    FlushRange(Place),
    /// Set another size in blocks, smaller or larger.
    Truncate(u32),
    /// `fallocate`, keeping the size or not.
    Allocate(Place, bool),
    Punch(Place),
    Zero(Place),
    Collapse(Place),
    Insert(Place),
    Unshare(Place),
    /// Make fragments: punch and write again, block by block, with another file's blocks in between.
    Scatter(Place),
    CloneFile,
    CloneRange(Place),
    Dedupe(Place),
    Copy(Place),
    /// Rename to the other one of its two names.
    Rename,
    /// Add a second name, or remove it.
    Link,
    /// Write a new file and rename it over the old one.
    Replace,
    DirectorySync,
    Attribute(u32),
    /// Make it immutable for a moment.
    Immutable,
    /// Keep files open between operations, or not.
    Hold(bool),
    /// Close everything and do nothing for this many milliseconds.
    Rest(u32),
}

impl What {
    /// Whether it reads blocks of files.
    pub(crate) fn reads(self) -> bool {
        matches!(
            self,
            Self::Read(..)
                | Self::Collapse(_)
                | Self::Insert(_)
                | Self::Unshare(_)
                | Self::CloneFile
                | Self::CloneRange(_)
                | Self::Dedupe(_)
                | Self::Copy(_)
        )
    }
}

/// One step of an actor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// On its second file instead of the first.
    pub(crate) side: bool,
    pub(crate) what: What,
    pub(crate) pause_us: u32,
}

/// Events of the whole volume, or of the mover.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Cut,
    /// Stop the mover, wait this many milliseconds, cut, let it go on.
    StopAndCut(u32),
    /// Kill the mover, wait this many milliseconds, cut.
    KillAndCut(u32),
    /// Let blocks be unreadable that the mover comes to next, for up to this many milliseconds, and cut
    /// when a sync has waited for such a block.
    UnreadableAndCut(u32),
    Sync,
    Freeze,
    ReadOnly,
    Fill,
    Swap,
    Defragment,
    Snapshot,
    DropSnapshot,
}

impl Event {
    /// Whether it makes a copy to examine.
    pub(crate) fn cuts(self) -> bool {
        matches!(
            self,
            Self::Cut | Self::StopAndCut(_) | Self::KillAndCut(_) | Self::UnreadableAndCut(_)
        )
    }
}

/// A round.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) mood: Mood,
    pub(crate) actors: Vec<Vec<Step>>,
    /// Events, each with the milliseconds to wait before it.
    pub(crate) events: Vec<(u32, Event)>,
    /// It ends with a shutdown of the file system instead of an orderly unmount.
    pub(crate) ends_with_shutdown: bool,
}

/// Actors of a round.
pub(crate) const ACTORS: u32 = 3;
/// Blocks of an actor's first file at the beginning.
pub(crate) const MAIN_BLOCKS: u32 = 1536;
/// And of its second.
pub(crate) const SIDE_BLOCKS: u32 = 512;
/// Largest number of blocks of a file.
pub(crate) const MOST_BLOCKS: u32 = 2048;
/// A file is not truncated below this size: nothing would be left to move.
const FEWEST_BLOCKS: u32 = 512;

/// The operations that the actors of a round prefer: some faults show only if others are *not* done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mood {
    /// All operations.
    Everything,
    /// No operation that promises more than data (`fsync`, `O_SYNC`): it would commit what `fdatasync`
    /// does not.
    DataOnly,
    /// In addition, no operation that allocates blocks: on ext4 `fdatasync` commits after an allocation.
    Overwrite,
    /// In addition, no operation that uses the page cache: for a busy page, a step of ext4 has the
    /// journal committed.
    Direct,
    /// Above all, bursts of holes all over the file: some fall between a mover's copy and its exchange.
    Holes,
}

impl Script {
    /// The script of a seed, with about `states` cuts.
    pub(crate) fn new(volume: &Volume, seed: u64, states: u32, mood: Option<Mood>) -> Self {
        let mut rng = Numbers::stream(seed, 0);
        let by_seed = rng.weighted(&[
            (4, Mood::Everything),
            (2, Mood::DataOnly),
            (2, Mood::Overwrite),
            (3, Mood::Direct),
            (3, Mood::Holes),
        ]);
        let mood = mood.unwrap_or(by_seed);
        let ends_with_shutdown = volume.shuts_down() && rng.percent(50);
        let actors = (1..=u64::from(ACTORS))
            .map(|actor| steps(volume, mood, &mut Numbers::stream(seed, actor)))
            .collect();
        let mut events = Vec::new();
        let mut cuts = 0;
        while cuts < states.max(1) {
            let event = event(volume, mood, &mut rng);
            cuts += u32::from(event.cuts());
            events.push((rng.between(20, 250), event));
        }
        Self {
            mood,
            actors,
            events,
            ends_with_shutdown,
        }
    }

    /// Everything in it that can be left out.
    pub(crate) fn len(&self) -> usize {
        self.actors.iter().map(Vec::len).sum::<usize>() + self.events.len()
    }

    /// The script with only the parts that `keep` selects, by number.
    pub(crate) fn only(&self, keep: &[usize]) -> Self {
        let mut number = 0..;
        let mut kept = |_: &_| {
            number
                .next()
                .is_some_and(|n| keep.binary_search(&n).is_ok())
        };
        let mut actors = self.actors.clone();
        for steps in &mut actors {
            steps.retain(|_| kept(&()));
        }
        let mut events = self.events.clone();
        events.retain(|_| kept(&()));
        Self {
            mood: self.mood,
            actors,
            events,
            ends_with_shutdown: self.ends_with_shutdown,
        }
    }
}

fn event(volume: &Volume, mood: Mood, rng: &mut Numbers) -> Event {
    let wait = rng.below(60);
    let commits = u32::from(matches!(mood, Mood::Everything | Mood::Holes));
    // An allocation that finds no space has the journal committed.
    let fill = u32::from(!matches!(mood, Mood::Overwrite | Mood::Direct));
    let btrfs = u32::from(volume.kind == VolumeKind::Btrfs);
    rng.weighted(&[
        (20, Event::Cut),
        (12, Event::StopAndCut(wait)),
        (3, Event::KillAndCut(wait)),
        (
            60 * u32::from(volume.fails),
            Event::UnreadableAndCut(400 + 10 * wait),
        ),
        (2 * commits, Event::Sync),
        (2 * commits, Event::Freeze),
        (commits, Event::ReadOnly),
        (2 * fill, Event::Fill),
        (u32::from(volume.swaps), Event::Swap),
        (1, Event::Defragment),
        (2 * btrfs, Event::Snapshot),
        (2 * btrfs, Event::DropSnapshot),
    ])
}

/// Steps of an actor: many more than a round needs, which ends with its events.
const STEPS: usize = 6000;

fn steps(volume: &Volume, mood: Mood, rng: &mut Numbers) -> Vec<Step> {
    (0..STEPS)
        .map(|_| Step {
            side: rng.percent(30),
            what: what(volume, mood, rng),
            pause_us: match mood {
                // Now and then the mover gets the time to finish a file.
                Mood::Holes if rng.percent(30) => rng.below(30_000),
                Mood::Holes => rng.below(300),
                _ if rng.percent(50) => rng.below(500),
                _ => rng.below(4000),
            },
        })
        .collect()
}

fn place(rng: &mut Numbers, most: u32) -> Place {
    let at = if rng.percent(70) {
        Where::Front(rng.below(96_u32) as i32 - 32)
    } else {
        Where::Block(rng.below(MAIN_BLOCKS))
    };
    Place {
        at,
        blocks: rng.between(1, most + 1),
    }
}

fn what(volume: &Volume, mood: Mood, rng: &mut Numbers) -> What {
    match mood {
        Mood::Everything => anything(volume, false, rng),
        Mood::DataOnly => anything(volume, true, rng),
        Mood::Overwrite => overwrite(volume, true, rng),
        Mood::Direct => overwrite(volume, false, rng),
        Mood::Holes if rng.percent(20) => anything(volume, false, rng),
        Mood::Holes => hole(rng),
    }
}

fn overwrite(volume: &Volume, cached: bool, rng: &mut Numbers) -> What {
    let cache = u32::from(cached);
    let how = rng.weighted(&[
        (3 * cache, How::Buffered),
        (2 * cache, How::Mapped),
        (2, How::Direct),
        (6 * cache, How::Dsync),
        (6, How::DirectDsync),
    ]);
    let (small, large) = (place(rng, 8), place(rng, 32));
    let closed = u32::from(volume.wants_closed_files);
    rng.weighted(&[
        (300, What::Overwrite(small, how)),
        (30, What::Read(large, !cached)),
        (60, What::Fdatasync),
        (20 * cache, What::FlushRange(large)),
        (4 * cache, What::Rename),
        (4 * cache, What::Link),
        (4, What::Hold(closed == 0)),
        (10 + 60 * closed, What::Rest(small.blocks * 10)),
    ])
}

fn hole(rng: &mut Numbers) -> What {
    let mut small = place(rng, 8);
    if rng.percent(60) {
        small.at = Where::Block(rng.below(MAIN_BLOCKS));
    }
    let large = Place {
        blocks: 32,
        ..small
    };
    rng.weighted(&[
        (60, What::Punch(small)),
        (30, What::Zero(small)),
        (15, What::Scatter(large)),
        (10, What::Overwrite(small, How::Direct)),
        (10, What::Read(large, false)),
        (2, What::Fdatasync),
        (1, What::Fsync),
    ])
}

fn anything(volume: &Volume, data_only: bool, rng: &mut Numbers) -> What {
    let how = rng.weighted(&[
        (6, How::Buffered),
        (3, How::Mapped),
        (4, How::Direct),
        (5, How::Dsync),
        (if data_only { 0 } else { 2 }, How::Sync),
        (4, How::DirectDsync),
    ]);
    let (small, large) = (place(rng, 8), place(rng, 32));
    let (size, attribute) = (rng.between(FEWEST_BLOCKS, MOST_BLOCKS), rng.below(1 << 20));
    let (direct, keep, hold) = (rng.percent(30), rng.percent(50), rng.percent(50));
    let commits = u32::from(!data_only);
    let shifts = commits * u32::from(volume.shifts());
    let clones = u32::from(volume.clones);
    // copy_file_range clones where it can.
    let copies = u32::from(volume.clones || !volume.shares());
    let closed = u32::from(volume.wants_closed_files);
    let hold_or_not = if volume.wants_closed_files {
        What::Hold(hold && rng.percent(20))
    } else {
        What::Hold(hold)
    };
    rng.weighted(&[
        (300, What::Write(small, how)),
        (60, What::Read(large, direct)),
        (30 * commits, What::Fsync),
        (60, What::Fdatasync),
        (20, What::FlushRange(large)),
        (8, What::Truncate(size)),
        (10, What::Allocate(large, keep)),
        (60, What::Punch(small)),
        (30, What::Zero(small)),
        (5 * shifts, What::Collapse(small)),
        (5 * shifts, What::Insert(small)),
        (5 * clones, What::Unshare(large)),
        (40, What::Scatter(large)),
        (2 * clones, What::CloneFile),
        (10 * clones, What::CloneRange(large)),
        (8 * clones, What::Dedupe(small)),
        (10 * copies, What::Copy(small)),
        (8, What::Rename),
        (8, What::Link),
        (3 * commits, What::Replace),
        (8 * commits, What::DirectorySync),
        (8, What::Attribute(attribute)),
        (4, What::Immutable),
        (10, hold_or_not),
        (10 + 60 * closed, What::Rest(attribute % 120)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::VOLUMES;

    #[test]
    fn the_script_follows_from_the_seed_alone() {
        for volume in VOLUMES {
            let text = |seed| format!("{:?}", Script::new(volume, seed, 10, None));
            assert_eq!(text(5), text(5), "{}", volume.name);
            assert_ne!(text(5), text(6), "{}", volume.name);
        }
    }

    #[test]
    fn parts_are_what_they_say() {
        let script = Script::new(&VOLUMES[0], 1, 3, None);
        let all: Vec<usize> = (0..script.len()).collect();
        assert_eq!(script.only(&all).len(), script.len());
        let part = script.only(&[0, STEPS, script.len() - 1]);
        let lengths: Vec<usize> = part.actors.iter().map(Vec::len).collect();
        assert_eq!((lengths.as_slice(), part.events.len()), (&[1, 1, 0][..], 1));
        assert!(part.events[0].1.cuts(), "the last one ends the script");
    }
}
