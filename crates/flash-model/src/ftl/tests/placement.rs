//! The placement of single commands, with nothing to collect.

use super::*;

fn dies(ftl: &Ftl, pages: impl Iterator<Item = u64>) -> Vec<u32> {
    pages
        .map(|lpn| ftl.read(lpn).expect("it was written").die)
        .collect()
}

fn empty() -> (Ftl, Vec<FlashWork>) {
    (
        Ftl::new(small(), FtlOptions::default()).unwrap(),
        Vec::new(),
    )
}

#[test]
fn granules_go_to_the_dies_in_turn_in_order_of_arrival() {
    let options = FtlOptions {
        separate_parts: false,
        ..FtlOptions::default()
    };
    let (mut ftl, mut work) = (Ftl::new(small(), options).unwrap(), Vec::new());
    ftl.write(100, 8, PagePlacement::RoundRobin, &mut work);
    ftl.write(40, 6, PagePlacement::RoundRobin, &mut work);
    ftl.write(7, 6, PagePlacement::RoundRobin, &mut work);
    assert_eq!(dies(&ftl, 100..108), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(dies(&ftl, 40..46), [2, 2, 2, 2, 3, 3]);
    assert_eq!(dies(&ftl, 7..13), [3, 3, 0, 0, 0, 0]);
    let programmed: Vec<_> = work.iter().map(|it| it.op).collect();
    let page = |die, page| {
        FlashOp::Program(PhysPage {
            die,
            block: 0,
            page,
        })
    };
    assert_eq!(
        programmed,
        [page(0, 0), page(1, 0), page(2, 0), page(3, 0), page(0, 1)]
    );
    assert!(work.iter().all(|it| it.cause == Cause::Host));
}

#[test]
fn a_granule_of_two_pages_stays_on_its_die() {
    let geometry = FtlGeometry {
        granule_pages: 2,
        slots_per_page: 1,
        ..small()
    };
    let mut ftl = Ftl::new(with_least_blocks(geometry), FtlOptions::default()).unwrap();
    ftl.write(0, 10, PagePlacement::RoundRobin, &mut Vec::new());
    assert_eq!(dies(&ftl, 0..10), [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]);
}

#[test]
fn an_append_goes_to_the_die_after_its_predecessors_and_on_in_turn() {
    let (mut ftl, mut work) = empty();
    ftl.write(0, 12, PagePlacement::RoundRobin, &mut work); // dies 0, 1, 2
    ftl.write(100, 8, PagePlacement::After { predecessor: 3 }, &mut work);
    assert_eq!(dies(&ftl, 100..108), [1, 1, 1, 1, 2, 2, 2, 2]);
    ftl.write(200, 4, PagePlacement::RoundRobin, &mut work);
    assert_eq!(dies(&ftl, 200..204), [3; 4]);
    ftl.write(300, 4, PagePlacement::After { predecessor: 200 }, &mut work);
    assert_eq!(
        dies(&ftl, 300..304),
        [0; 4],
        "after the last die comes the first"
    );
    assert_eq!(
        (ftl.counters().hints, ftl.counters().hints_unmapped),
        (2, 0)
    );
}

#[test]
fn an_overwrite_stays_on_the_die_of_the_old_page_and_goes_on_in_turn() {
    let (mut ftl, mut work) = empty();
    ftl.write(0, 20, PagePlacement::RoundRobin, &mut work); // dies 0, 1, 2, 3, 0
    let old = ftl.read(4).unwrap();
    ftl.write(4, 8, PagePlacement::Overwrite, &mut work);
    assert_eq!(dies(&ftl, 4..12), [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_ne!(ftl.read(4), Some(old));
}

#[test]
fn an_unmapped_neighbour_means_the_normal_rule() {
    let (mut ftl, mut work) = empty();
    ftl.write(0, 4, PagePlacement::RoundRobin, &mut work);
    ftl.write(100, 4, PagePlacement::After { predecessor: 99 }, &mut work);
    ftl.write(200, 4, PagePlacement::Overwrite, &mut work);
    ftl.trim(200);
    ftl.write(200, 4, PagePlacement::Overwrite, &mut work);
    assert_eq!(dies(&ftl, [100, 200].into_iter()), [1, 3]);
    assert_eq!(
        (ftl.counters().hints, ftl.counters().hints_unmapped),
        (3, 3)
    );
}

#[test]
fn a_die_that_is_full_lets_hints_fall_back_and_turns_pass() {
    let (mut ftl, mut work) = empty();
    // A host that wants everything on one die: each append names the same predecessor.
    ftl.write(0, 4, PagePlacement::RoundRobin, &mut work);
    for first in (4..2048).step_by(4) {
        ftl.write(first, 4, PagePlacement::After { predecessor: 0 }, &mut work);
    }
    let counters = *ftl.counters();
    assert!(counters.hints_no_room > 0, "{counters:?}");
    assert!(counters.full_dies_skipped > 0, "{counters:?}");
    let on_die_1 = dies(&ftl, 0..2048)
        .into_iter()
        .filter(|&die| die == 1)
        .count() as u32;
    assert_eq!(on_die_1, small().slots_per_die_at_most());
    // It goes on to work in that state, collection included.
    let mut numbers = Numbers::new(3);
    for _ in 0..20_000 {
        let hint = PagePlacement::After { predecessor: 0 };
        ftl.write(numbers.below(511_u64) * 4 + 4, 4, hint, &mut work);
    }
}

#[test]
fn a_page_that_fills_up_is_buffered_until_it_is_full_or_padded() {
    let (mut ftl, mut work) = empty();
    ftl.write(0, 3, PagePlacement::RoundRobin, &mut work);
    let page = ftl.read(0).unwrap();
    assert!(ftl.is_buffered(page) && work.is_empty());
    ftl.pad(&mut work);
    assert!(!ftl.is_buffered(page));
    assert_eq!(
        work,
        [FlashWork {
            op: FlashOp::Program(page),
            cause: Cause::Host
        }]
    );
    assert_eq!(ftl.counters().padded_slots, 1);
    ftl.pad(&mut work);
    assert_eq!(work.len(), 1, "there is nothing left to pad");
    ftl.write(3, 1, PagePlacement::RoundRobin, &mut work);
    assert_eq!(
        ftl.read(3).unwrap().die,
        1,
        "the granule is full, the next die is at turn"
    );
}

#[test]
fn whole_granules_keep_to_pages_of_their_own() {
    let together = FtlOptions {
        separate_parts: false,
        ..FtlOptions::default()
    };
    for (options, pages) in [(together, 3), (FtlOptions::default(), 2)] {
        let mut ftl = Ftl::new(small(), options).unwrap();
        let mut work = Vec::new();
        ftl.write(1001, 1, PagePlacement::RoundRobin, &mut work);
        ftl.write(0, 8, PagePlacement::RoundRobin, &mut work);
        ftl.write(1003, 1, PagePlacement::RoundRobin, &mut work);
        let mut lies_on: Vec<_> = (0..8).filter_map(|lpn| ftl.read(lpn)).collect();
        lies_on.dedup();
        assert_eq!(lies_on.len(), pages, "{options:?}");
    }
}
