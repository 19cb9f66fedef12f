mod handles;
mod in_place;
mod placement;
mod properties;
mod reference;
mod slc;

use workloads::Numbers;

use super::*;

/// 4 dies, pages of 4 logical pages, one page a granule, and as little spare as is allowed.
fn small() -> FtlGeometry {
    with_least_blocks(FtlGeometry {
        dies: 4,
        blocks_per_die: 0,
        pages_per_block: 8,
        slots_per_page: 4,
        granule_pages: 1,
        logical_pages: 2048,
        slc_blocks: 0,
        slc_pages: 0,
        handles: 1,
    })
}

/// As [`small`], with an SLC cache of `blocks` blocks on each die, of a quarter of the pages.
fn small_with_slc(blocks: u32) -> FtlGeometry {
    FtlGeometry {
        slc_blocks: blocks,
        slc_pages: 2,
        ..small()
    }
}

fn with_least_blocks(geometry: FtlGeometry) -> FtlGeometry {
    let blocks = FtlGeometry::blocks_needed(
        geometry.logical_pages,
        geometry.dies,
        geometry.slots_per_block().into(),
        0.0,
    );
    FtlGeometry {
        blocks_per_die: blocks as u32 + geometry.blocks_of_handles(),
        ..geometry
    }
}

#[test]
fn what_cannot_work_is_refused_and_named() {
    let refused = |change: fn(&mut FtlGeometry, &mut FtlOptions)| {
        let (mut geometry, mut options) = (small(), FtlOptions::default());
        change(&mut geometry, &mut options);
        Ftl::new(geometry, options).unwrap_err().to_string()
    };
    for (message, expected) in [
        (refused(|it, _| it.dies = 0), "dies is 0"),
        (
            refused(|it, _| it.granule_pages = 3),
            "granularity of 3 pages",
        ),
        (
            refused(|it, _| it.blocks_per_die -= 1),
            "29 blocks on each die would do",
        ),
        (refused(|it, _| it.blocks_per_die = u32::MAX), "too many"),
        (
            refused(|_, it| it.collect_below = 3),
            "collect_below is 3; it must be at least 5",
        ),
        (refused(|_, it| it.wear_spread = 0), "wear_spread is 0"),
        (refused(|it, _| it.handles = 0), "handles is 0"),
        (
            refused(|it, _| it.handles = 129),
            "129 reclaim unit handles",
        ),
        (
            refused(|it, _| it.handles = 2),
            "31 blocks on each die would do",
        ),
        (
            refused(|it, _| (it.slc_blocks, it.slc_pages) = (2, 2)),
            "an SLC cache of 2 blocks of 2 pages",
        ),
        (
            refused(|it, _| (it.slc_blocks, it.slc_pages) = (3, 9)),
            "an SLC cache of 3 blocks of 9 pages",
        ),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn collection_costs_more_the_less_is_to_spare() {
    let mut last = 1.0;
    for spare in [50.0, 20.0, 7.0] {
        let pages = 64 * 1024;
        let geometry = FtlGeometry {
            blocks_per_die: FtlGeometry::blocks_needed(pages, 4, 256, spare) as u32,
            pages_per_block: 256,
            slots_per_page: 1,
            logical_pages: pages,
            ..small()
        };
        let mut ftl = Ftl::new(geometry, FtlOptions::default()).unwrap();
        let (mut work, mut numbers) = (Vec::new(), Numbers::new(1));
        ftl.write(0, pages, PagePlacement::RoundRobin, &mut work);
        for _ in 0..4 * pages {
            work.clear();
            ftl.write(
                numbers.below(pages),
                1,
                PagePlacement::RoundRobin,
                &mut work,
            );
        }
        let amplification = ftl.counters().write_amplification(1);
        assert!(
            amplification > last + 0.1,
            "{spare} % to spare: {amplification}"
        );
        assert!(amplification < 8.0, "{spare} % to spare: {amplification}");
        last = amplification;
    }
}

#[test]
fn collection_is_spread_over_the_writes_that_need_it() {
    let geometry = FtlGeometry {
        pages_per_block: 64,
        logical_pages: 32 * 1024,
        ..small()
    };
    let blocks = FtlGeometry::blocks_needed(geometry.logical_pages, 4, 256, 15.0) as u32;
    let geometry = FtlGeometry {
        blocks_per_die: blocks,
        ..geometry
    };
    let mut ftl = Ftl::new(geometry, FtlOptions::default()).unwrap();
    let mut work = Vec::new();
    ftl.write(
        0,
        geometry.logical_pages,
        PagePlacement::RoundRobin,
        &mut work,
    );
    let (mut numbers, mut most) = (Numbers::new(2), 0);
    for _ in 0..200_000 {
        work.clear();
        ftl.write(
            numbers.below(geometry.logical_pages),
            1,
            PagePlacement::RoundRobin,
            &mut work,
        );
        most = most.max(work.len());
    }
    assert!(ftl.counters().gc_erases > 500, "{:?}", ftl.counters());
    // Emptying a whole block of 64 pages at once would be 64 reads and more.
    assert!(most < 100, "one write of a page caused {most} operations");
}

#[test]
fn wear_stays_even_between_blocks_that_change_and_blocks_that_do_not() {
    let mut spread = Vec::new();
    for wear_spread in [5, 1_000_000] {
        let options = FtlOptions {
            wear_spread,
            ..FtlOptions::default()
        };
        let mut ftl = Ftl::new(small(), options).unwrap();
        let mut work = Vec::new();
        ftl.write(0, 2048, PagePlacement::RoundRobin, &mut work);
        for lpn in (0..200).cycle().take(200_000) {
            work.clear();
            ftl.write(lpn, 1, PagePlacement::RoundRobin, &mut work);
        }
        spread.push(ftl.wear().spread_in_die);
        assert_eq!(ftl.counters().wear_erases > 0, wear_spread == 5);
    }
    assert!(spread[0] <= 5 + 2, "{spread:?}");
    assert!(
        spread[1] > 100,
        "without levelling there is something to level: {spread:?}"
    );
}

#[test]
fn hints_do_not_wear_one_die_out() {
    let worn = |die_wear_spread| {
        let options = FtlOptions {
            die_wear_spread,
            ..FtlOptions::default()
        };
        let mut ftl = Ftl::new(small(), options).unwrap();
        let mut work = Vec::new();
        ftl.write(0, 2048, PagePlacement::RoundRobin, &mut work);
        for _ in 0..100_000 {
            work.clear();
            ftl.write(0, 4, PagePlacement::Overwrite, &mut work);
        }
        let wear = ftl.wear();
        let apart = wear.most_die_mean - wear.least_die_mean;
        (apart, ftl.counters().hints_worn_die)
    };
    let (apart, refused) = worn(1_000_000);
    assert!(apart > 100.0 && refused == 0, "{apart} {refused}");
    // A refused hint moves the data to another die, where the next ones keep it.
    let (apart, refused) = worn(3);
    assert!(
        apart < 4.5 && (1..500).contains(&refused),
        "{apart} {refused}"
    );
}

#[test]
fn memory_is_two_numbers_a_page() {
    let geometry = FtlGeometry {
        logical_pages: 1 << 20,
        ..small()
    };
    let geometry = with_least_blocks(geometry);
    let ftl = Ftl::new(geometry, FtlOptions::default()).unwrap();
    let tables = (ftl.slot_of.capacity() + ftl.logical_in.capacity()) * 4;
    let blocks = geometry.dies as usize * geometry.blocks_per_die as usize;
    assert!(tables as u64 <= 8 * geometry.slots());
    assert!(size_of::<blocks::Block>() <= 12);
    assert!(
        blocks * 12 * 4 < tables,
        "with blocks of 32 pages even; usual ones have 1000"
    );
}
