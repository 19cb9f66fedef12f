//! Write amplification by garbage collection, in the FTL alone: four dies, 10 % to spare.

use flash_model::ftl::{Ftl, FtlGeometry, FtlOptions, PagePlacement, VictimChoice};
use workloads::Numbers;

const PAGES: u64 = 64 * 1024;
const HOT: u64 = PAGES / 10;

/// Nine of ten writes go to a tenth of the pages.
pub(crate) fn with_hot_and_cold_pages(victim: VictimChoice) -> f64 {
    let options = FtlOptions {
        victim,
        ..FtlOptions::default()
    };
    let mut ftl = ftl(1, options);
    let (mut work, mut numbers) = (Vec::new(), Numbers::new(1));
    ftl.write(0, PAGES, PagePlacement::RoundRobin, &mut work);
    of_later_writes(&mut ftl, 4 * PAGES, 8 * PAGES, |ftl| {
        work.clear();
        let hot = numbers.below(10_u64) > 0;
        let lpn = numbers.below(if hot { HOT } else { PAGES });
        ftl.write(lpn, 1, PagePlacement::RoundRobin, &mut work);
    })
}

/// A log that is written around and around, and a hot tenth that is overwritten at random. Under handles of
/// their own, the log's blocks are empty by the time that they are collected.
pub(crate) fn with_a_log(apart: bool) -> f64 {
    let mut ftl = ftl(2, FtlOptions::default());
    let (mut work, mut numbers, mut log) = (Vec::new(), Numbers::new(1), HOT);
    of_later_writes(&mut ftl, 2 * PAGES, 3 * PAGES, |ftl| {
        work.clear();
        ftl.write(numbers.below(HOT), 1, PagePlacement::Handle(0), &mut work);
        ftl.write(log, 1, PagePlacement::Handle(apart.into()), &mut work);
        log = if log + 1 == PAGES { HOT } else { log + 1 };
    })
}

fn ftl(handles: u32, options: FtlOptions) -> Ftl {
    let geometry = FtlGeometry {
        dies: 4,
        blocks_per_die: FtlGeometry::blocks_needed(PAGES, 4, 256, 10.0) as u32,
        pages_per_block: 256,
        slots_per_page: 1,
        granule_pages: 1,
        logical_pages: PAGES,
        slc_blocks: 0,
        slc_pages: 0,
        handles,
    };
    let geometry = FtlGeometry {
        blocks_per_die: geometry.blocks_per_die + geometry.blocks_of_handles(),
        ..geometry
    };
    Ftl::new(geometry, options).expect("the geometry has what an FTL needs")
}

/// The write amplification of so many writes, after the first ones.
fn of_later_writes(ftl: &mut Ftl, first: u64, later: u64, mut write: impl FnMut(&mut Ftl)) -> f64 {
    (0..first).for_each(|_| write(ftl));
    let before = *ftl.counters();
    (0..later).for_each(|_| write(ftl));
    ftl.counters().since(&before).write_amplification(1)
}
