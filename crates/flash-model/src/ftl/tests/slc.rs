//! The SLC cache.

use super::*;

fn empty(blocks: u32) -> (Ftl, Vec<FlashWork>) {
    let ftl = Ftl::new(small_with_slc(blocks), FtlOptions::default()).unwrap();
    (ftl, Vec::new())
}

fn in_cache(ftl: &Ftl, pages: u64) -> usize {
    let places = (0..pages).filter_map(|lpn| ftl.read(lpn));
    places
        .filter(|page| ftl.geometry().is_slc(page.block))
        .count()
}

#[test]
fn data_goes_to_the_cache_first_and_leaves_it_while_nobody_waits() {
    let (mut ftl, mut work) = empty(8);
    // 32 flash pages of 4 logical ones: half of the cache.
    ftl.write(0, 128, PagePlacement::RoundRobin, &mut work);
    assert_eq!(in_cache(&ftl, 128), 128);
    assert!(work.iter().all(|it| it.cause == Cause::Host));
    work.clear();
    while ftl.collect_idle(&mut work) {}
    assert_eq!(in_cache(&ftl, 128), 0);
    let counters = ftl.counters();
    assert_eq!((counters.fold_slots, counters.fold_programs), (128, 32));
    assert_eq!((counters.fold_erases, counters.copybacks), (16, 32));
    assert_eq!(counters.write_amplification(4), 2.0);
    assert!((0..128).all(|lpn| ftl.read(lpn).is_some()));
    assert_eq!(ftl.counters().gc_slots, 0);
}

#[test]
fn a_full_cache_folds_alongside_the_host_a_page_for_a_page() {
    let (mut ftl, mut work) = empty(8);
    let mut most = 0;
    for lpn in (0..2048).step_by(4) {
        work.clear();
        ftl.write(lpn, 4, PagePlacement::RoundRobin, &mut work);
        most = most.max(work.len());
    }
    let counters = *ftl.counters();
    // All but what the cache holds.
    assert!(counters.fold_slots >= 2048 - 8 * 2 * 4 * 4, "{counters:?}");
    assert_eq!(counters.host_programs, 512);
    // A program, the fold's copyback, and an erase now and then: nobody waits for a whole block.
    assert!(most <= 4, "{most} operations for one page");
}

#[test]
fn what_is_overwritten_or_trimmed_in_the_cache_is_never_folded() {
    let (mut ftl, mut work) = empty(16);
    for _ in 0..8 {
        ftl.write(0, 32, PagePlacement::RoundRobin, &mut work);
    }
    assert!(ftl.trim(0));
    for lpn in 1..32 {
        assert!(ftl.trim(lpn));
    }
    while ftl.collect_idle(&mut work) {}
    let counters = *ftl.counters();
    assert_eq!(
        (counters.fold_slots, counters.gc_slots),
        (0, 0),
        "{counters:?}"
    );
    assert_eq!(counters.fold_erases, 32);
}

/// A cache holds one version of hot data after the other; without one, garbage collection moves
/// cold data around it.
#[test]
fn hot_data_stays_in_the_cache() {
    let amplification = |blocks| {
        let geometry = FtlGeometry {
            slc_pages: 2,
            slc_blocks: blocks,
            ..small()
        };
        let mut ftl = Ftl::new(geometry, FtlOptions::default()).unwrap();
        let (mut work, mut numbers) = (Vec::new(), Numbers::new(1));
        ftl.write(0, 2048, PagePlacement::RoundRobin, &mut work);
        while ftl.collect_idle(&mut work) {}
        let before = *ftl.counters();
        for _ in 0..20_000 {
            work.clear();
            let hot = numbers.below(8_u64) * 4;
            ftl.write(hot, 4, PagePlacement::RoundRobin, &mut work);
        }
        ftl.counters().since(&before).write_amplification(4)
    };
    let (without, with) = (amplification(0), amplification(16));
    println!("without a cache {without:.2}, with one {with:.2}");
    assert!(with < 1.1, "{with}");
    assert!(without > with, "{without} {with}");
}

#[test]
fn an_image_keeps_the_cache_and_older_images_are_read() {
    let (mut ftl, mut work) = empty(4);
    for lpn in (0..600).chain(0..300) {
        ftl.write(lpn, 1, PagePlacement::RoundRobin, &mut work);
    }
    assert!(in_cache(&ftl, 600) > 0 && ftl.counters().fold_slots > 0);
    let image = ftl.image();
    let geometry = *ftl.geometry();
    let mut restored = Ftl::restore(geometry, FtlOptions::default(), &image).unwrap();
    for lpn in 0..600 {
        assert_eq!(restored.read(lpn), ftl.read(lpn));
    }
    assert_eq!(restored.counters(), ftl.counters());
    while restored.collect_idle(&mut work) {}
    let without = Ftl::new(small(), FtlOptions::default()).unwrap();
    assert_eq!(without.image()[0], 1, "the version that was written before");
    let error = Ftl::restore(geometry, FtlOptions::default(), &without.image()).unwrap_err();
    assert!(error.to_string().contains("version 1"), "{error}");
}
