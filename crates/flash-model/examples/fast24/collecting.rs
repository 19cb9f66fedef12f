//! The same files on a device that is full and collects garbage all the time, which the published
//! emulator never does with its approach on.

use flash_model::{
    Profile,
    ftl::{FtlCounters, WearReport},
};
use units::Nanos;
use workloads::Numbers;

use super::{
    host::{File, Host, KIB, mib_per_s},
    placement::{Change, FILE, GRANULE, device},
};

/// The bytes that others write for each MiB that is read, if they write: one granule for every
/// second die.
pub(crate) const BESIDE: u64 = 4 * GRANULE;

/// The way in which the target file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In one go.
    Contiguous,
    /// By 256 appends or overwrites, each followed by writes to other files.
    Disturbed { change: Change, hints: bool },
}

/// The writes of the rest of the host, which go on all the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    /// One write in this many is of 4 KiB instead of one granule; 0: none.
    pub(crate) small_one_in: u64,
    /// Nine writes in ten go to this share of the space (1/n); 1: to any place alike.
    pub(crate) hot_share: u64,
}

impl Others {
    pub(crate) const GRANULES: Self = Self {
        small_one_in: 0,
        hot_share: 1,
    };
    pub(crate) const HOT_GRANULES: Self = Self {
        small_one_in: 0,
        hot_share: 10,
    };
    pub(crate) const WITH_SMALL: Self = Self {
        small_one_in: 2,
        hot_share: 1,
    };
}

/// The result of a run. Speeds are in MiB/s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collected {
    /// Reading the target right after it was written.
    pub(crate) fresh: f64,
    /// Reading it after the others have overwritten the whole space twice.
    pub(crate) aged: f64,
    /// As `aged`, while the others write [`BESIDE`] bytes for each MiB that is read.
    pub(crate) beside: f64,
    /// Share of the target's logical pages that the collector moved meanwhile.
    pub(crate) moved: f64,
    /// The FTL's counts while the others wrote, and the wear of the flash in the end.
    pub(crate) counters: FtlCounters,
    pub(crate) wear: WearReport,
    /// The speed of the others' writes while the collector kept up with them.
    pub(crate) written: f64,
    slots_per_page: u32,
}

impl Collected {
    pub(crate) fn write_amplification(&self) -> f64 {
        self.counters.write_amplification(self.slots_per_page)
    }
}

struct Churn {
    file: File,
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
            let len = if small { 4 * KIB } else { GRANULE };
            let hot = self.numbers.below(10_u64) > 0;
            let places = self.file.len() / len / if hot { hot_share } else { 1 };
            host.overwrite_unsynced(&self.file, self.numbers.below(places) * len, len);
            left = left.saturating_sub(len);
        }
    }
}

/// Fills a device of `size` bytes, all of it in use, overwrites all of it twice at random, writes the target, and overwrites
/// everything else twice more.
pub(crate) fn run(
    profile: &Profile,
    size: u64,
    layout: Layout,
    others: Others,
    per_call: Nanos,
) -> Collected {
    let hints = matches!(layout, Layout::Disturbed { hints: true, .. });
    let mut host = Host::new(device(profile, size), hints, per_call);
    let mut target = File::default();
    if layout
        == (Layout::Disturbed {
            change: Change::Overwrite,
            hints,
        })
    {
        host.append(&mut target, FILE);
    }
    let mut churn = Churn {
        file: File::default(),
        others,
        numbers: Numbers::new(24),
    };
    let rest = size - FILE;
    host.append_unsynced(&mut churn.file, rest);
    churn.overwrite(&mut host, 2 * rest);
    write_target(&mut host, &mut target, layout, &mut churn);
    host.idle();
    let fresh = mib_per_s(FILE, host.read(&target));

    let before = *ftl(&host).counters();
    let old_places = places(&host, &target);
    let began = host.now();
    churn.overwrite(&mut host, 2 * rest);
    host.sync();
    let written = mib_per_s(2 * rest, Nanos(host.now().0 - began.0));
    let beside = host.read_beside(&target, |host| churn.overwrite(host, BESIDE));
    host.idle();
    let aged = mib_per_s(FILE, host.read(&target));
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
        beside: mib_per_s(FILE, beside),
        moved: moved as f64 / old_places.len() as f64,
        counters: ftl.counters().since(&before),
        wear: ftl.wear(),
        written,
        slots_per_page: ftl.geometry().slots_per_page,
    }
}

/// Returns the same speeds on a device that need not collect, since most of it was never written:
/// (writing, reading a contiguous file, reading it while others write), in MiB/s.
pub(crate) fn without_collecting(profile: &Profile, size: u64, per_call: Nanos) -> (f64, f64, f64) {
    let mut host = Host::new(device(profile, size), false, per_call);
    let (mut target, mut file) = (File::default(), File::default());
    host.append_unsynced(&mut file, size / 4);
    host.append(&mut target, FILE);
    let mut churn = Churn {
        file,
        others: Others::GRANULES,
        numbers: Numbers::new(24),
    };
    let began = host.now();
    churn.overwrite(&mut host, size / 4);
    host.sync();
    let written = mib_per_s(size / 4, Nanos(host.now().0 - began.0));
    host.idle();
    let alone = mib_per_s(FILE, host.read(&target));
    let beside = host.read_beside(&target, |host| churn.overwrite(host, BESIDE));
    assert_eq!(
        ftl(&host).counters().gc_programs,
        0,
        "there is nothing to collect"
    );
    (written, alone, mib_per_s(FILE, beside))
}

fn write_target(host: &mut Host, target: &mut File, layout: Layout, churn: &mut Churn) {
    let Layout::Disturbed { change, .. } = layout else {
        host.append(target, FILE);
        return;
    };
    for nth in 0..FILE / GRANULE {
        match change {
            Change::Append => host.append(target, GRANULE),
            Change::Overwrite => host.overwrite(target, nth * GRANULE, GRANULE),
        }
        let dummy = (churn.numbers.below(32_u64) + 1) * GRANULE;
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
