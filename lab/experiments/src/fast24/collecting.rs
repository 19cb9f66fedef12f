//! The same files on a device that is full and collects garbage all the time, which the published
//! emulator never does with its approach on.

use flash_model::ftl::{FtlCounters, WearReport};
use units::Nanos;
use workloads::Numbers;

use super::{
    device::drive,
    host::{File, Host, KIB, mib_per_s},
    placement::{Change, Target},
};

/// The granules that others write for each MiB that is read, if they write: one for every second die.
const BESIDE: u64 = 4;

/// The way in which the target file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In one go.
    Contiguous,
    /// By 256 appends or overwrites, each followed by writes to other files.
    Disturbed {
        /// The writes to the target.
        change: Change,
        /// Whether the host sends hints.
        hints: bool,
    },
}

impl Layout {
    /// All of them, with their names.
    pub const ALL: [(&str, Self); 5] = [
        ("contiguous", Self::Contiguous),
        ("appends", Self::disturbed(Change::Append, false)),
        ("appends, hints", Self::disturbed(Change::Append, true)),
        ("overwrites", Self::disturbed(Change::Overwrite, false)),
        (
            "overwrites, hints",
            Self::disturbed(Change::Overwrite, true),
        ),
    ];

    const fn disturbed(change: Change, hints: bool) -> Self {
        Self::Disturbed { change, hints }
    }
}

/// The writes of the rest of the host, which go on all the time.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    /// One write in this many is of 4 KiB instead of one granule; 0: none.
    pub small_one_in: u64,
    /// Nine writes in ten go to this share of the space (1/n); 1: to any place alike.
    pub hot_share: u64,
}

impl Others {
    /// Whole granules, anywhere.
    pub const GRANULES: Self = Self {
        small_one_in: 0,
        hot_share: 1,
    };
    /// Whole granules, nine in ten to a tenth of the space.
    pub const HOT_GRANULES: Self = Self {
        small_one_in: 0,
        hot_share: 10,
    };
    /// Every second write is of 4 KiB.
    pub const WITH_SMALL: Self = Self {
        small_one_in: 2,
        hot_share: 1,
    };
}

/// The result of a run. Speeds are in MiB/s.
#[derive(Clone, Copy, Debug)]
pub struct Collected {
    /// Reading the target right after it was written.
    pub fresh: f64,
    /// Reading it after the others have overwritten the whole space twice.
    pub aged: f64,
    /// As `aged`, while the others write [`BESIDE`] bytes for each MiB that is read.
    pub beside: f64,
    /// Share of the target's logical pages that the collector moved meanwhile.
    pub moved: f64,
    /// The FTL's counts while the others wrote, and the wear of the flash in the end.
    pub counters: FtlCounters,
    /// See `counters`.
    pub wear: WearReport,
    /// The speed of the others' writes while the collector kept up with them.
    pub written: f64,
    slots_per_page: u32,
}

impl Collected {
    /// Bytes programmed for each byte written.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        self.counters.write_amplification(self.slots_per_page)
    }
}

struct Churn {
    file: File,
    granule: u64,
    others: Others,
    numbers: Numbers,
}

impl Churn {
    fn overwrite(&mut self, host: &mut Host, bytes: u64) {
        let Others {
            small_one_in,
            hot_share,
        } = self.others;
        let mut left = bytes;
        while left > 0 {
            let small = small_one_in > 0 && self.numbers.below(small_one_in) == 0;
            let len = if small { 4 * KIB } else { self.granule };
            let hot = self.numbers.below(10_u64) > 0;
            let places = self.file.len() / len / if hot { hot_share } else { 1 };
            host.overwrite_unsynced(&self.file, self.numbers.below(places) * len, len);
            left = left.saturating_sub(len);
        }
    }
}

/// Fills a device of `size` bytes, all of it in use, overwrites all of it twice at random, writes the target, and overwrites
/// everything else twice more.
#[must_use]
pub fn run(of: &Target, size: u64, layout: Layout, others: Others) -> Collected {
    let hints = matches!(layout, Layout::Disturbed { hints: true, .. });
    let mut host = Host::new(drive(&of.profile, size), hints, of.per_call);
    let mut target = File::default();
    if layout
        == (Layout::Disturbed {
            change: Change::Overwrite,
            hints,
        })
    {
        host.append(&mut target, of.file);
    }
    let mut churn = Churn {
        file: File::default(),
        granule: of.granule,
        others,
        numbers: Numbers::new(24),
    };
    let rest = size - of.file;
    host.append_unsynced(&mut churn.file, rest);
    churn.overwrite(&mut host, 2 * rest);
    write_target(&mut host, &mut target, of, layout, &mut churn);
    host.idle();
    let fresh = mib_per_s(of.file, host.read(&target));

    let before = *ftl(&host).counters();
    let old_places = places(&host, &target);
    let began = host.now();
    churn.overwrite(&mut host, 2 * rest);
    host.sync();
    let written = mib_per_s(2 * rest, Nanos(host.now().0 - began.0));
    let beside = host.read_beside(&target, |host| churn.overwrite(host, BESIDE * of.granule));
    host.idle();
    let aged = mib_per_s(of.file, host.read(&target));
    let new_places = places(&host, &target);
    let moved = old_places
        .iter()
        .zip(&new_places)
        .filter(|(old, new)| old != new)
        .count();
    let ftl = ftl(&host);
    Collected {
        fresh,
        aged,
        beside: mib_per_s(of.file, beside),
        moved: moved as f64 / old_places.len() as f64,
        counters: ftl.counters().since(&before),
        wear: ftl.wear(),
        written,
        slots_per_page: ftl.geometry().slots_per_page,
    }
}

/// Returns the same speeds on a device that need not collect, since most of it was never written:
/// (writing, reading a contiguous file, reading it while others write), in MiB/s.
///
/// # Panics
///
/// If it collected all the same.
#[must_use]
pub fn without_collecting(of: &Target, size: u64) -> (f64, f64, f64) {
    let mut host = Host::new(drive(&of.profile, size), false, of.per_call);
    let (mut target, mut file) = (File::default(), File::default());
    host.append_unsynced(&mut file, size / 4);
    host.append(&mut target, of.file);
    let mut churn = Churn {
        file,
        granule: of.granule,
        others: Others::GRANULES,
        numbers: Numbers::new(24),
    };
    let began = host.now();
    churn.overwrite(&mut host, size / 4);
    host.sync();
    let written = mib_per_s(size / 4, Nanos(host.now().0 - began.0));
    host.idle();
    let alone = mib_per_s(of.file, host.read(&target));
    let beside = host.read_beside(&target, |host| churn.overwrite(host, BESIDE * of.granule));
    assert_eq!(
        ftl(&host).counters().gc_programs,
        0,
        "there is nothing to collect"
    );
    (written, alone, mib_per_s(of.file, beside))
}

fn write_target(
    host: &mut Host,
    target: &mut File,
    of: &Target,
    layout: Layout,
    churn: &mut Churn,
) {
    let Layout::Disturbed { change, .. } = layout else {
        host.append(target, of.file);
        return;
    };
    for start in (0..of.file).step_by(of.granule as usize) {
        match change {
            Change::Append => host.append(target, of.granule),
            Change::Overwrite => host.overwrite(target, start, of.granule),
        }
        let dummy = (churn.numbers.below(32_u64) + 1) * of.granule;
        churn.overwrite(host, dummy);
    }
}

fn ftl(host: &Host) -> &flash_model::ftl::Ftl {
    host.device().ftl(0).expect("the namespace is conventional")
}

fn places(host: &Host, file: &File) -> Vec<Option<flash_model::ftl::PhysPage>> {
    let ftl = ftl(host);
    file.blocks().map(|lpn| ftl.read(lpn)).collect()
}
