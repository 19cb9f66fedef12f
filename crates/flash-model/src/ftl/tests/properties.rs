//! Any sequence of commands, on any geometry that is allowed.

use proptest::prelude::*;

use super::{
    reference::{Reference, check_tables},
    *,
};

#[derive(Clone, Copy, Debug)]
enum FtlStep {
    Write {
        first: u64,
        count: u64,
        placement: PagePlacement,
    },
    Trim {
        first: u64,
        count: u64,
    },
    Pad,
    Renew(u32),
    Idle,
    SaveAndRestore,
}

fn geometries() -> impl Strategy<Value = FtlGeometry> {
    let slc = prop_oneof![Just((0, 0)), (3..7_u32, 1..4_u32)];
    (
        1..6_u32,
        1..4_u32,
        1..4_u32,
        1..5_u32,
        1..400_u64,
        0..6_u32,
        slc,
        1..5_u32,
    )
        .prop_map(
            |(dies, granule_pages, granules, slots_per_page, logical_pages, more, slc, handles)| {
                let least = with_least_blocks(FtlGeometry {
                    dies,
                    blocks_per_die: 0,
                    pages_per_block: granule_pages * granules,
                    slots_per_page,
                    granule_pages,
                    logical_pages,
                    slc_blocks: match slc.0 {
                        0 => 0,
                        blocks => blocks + 2 * (handles - 1),
                    },
                    handles,
                    slc_pages: slc.1.min(granules) * granule_pages,
                });
                FtlGeometry {
                    blocks_per_die: least.blocks_per_die + more,
                    ..least
                }
            },
        )
}

fn steps(pages: u64) -> impl Strategy<Value = Vec<FtlStep>> {
    let hot = prop_oneof![3 => 0..pages.div_ceil(8), 2 => 0..pages];
    let placement = prop_oneof![
        2 => Just(PagePlacement::RoundRobin),
        1 => (0..pages).prop_map(|predecessor| PagePlacement::After { predecessor }),
        1 => Just(PagePlacement::Overwrite),
        2 => (0..5_u32).prop_map(PagePlacement::Handle),
    ];
    let step = prop_oneof![
        16 => (hot, 1..40_u64, placement).prop_map(move |(first, count, placement)| {
            FtlStep::Write { first, count: count.min(pages - first), placement }
        }),
        2 => (0..pages, 1..40_u64).prop_map(move |(first, count)| {
            FtlStep::Trim { first, count: count.min(pages - first) }
        }),
        1 => Just(FtlStep::Pad),
        1 => (0..5_u32).prop_map(FtlStep::Renew),
        2 => Just(FtlStep::Idle),
        1 => Just(FtlStep::SaveAndRestore),
    ];
    proptest::collection::vec(step, 1..120)
}

fn options() -> impl Strategy<Value = FtlOptions> {
    let victim = prop_oneof![Just(VictimChoice::Greedy), Just(VictimChoice::CostBenefit)];
    let collect_below = prop_oneof![3 => 5..10_u32, 1 => 10..5000_u32];
    let idle = prop_oneof![Just(0), 5..20_u32];
    (
        collect_below,
        idle,
        victim,
        1..6_u32,
        1..4_u32,
        any::<bool>(),
    )
        .prop_map(
            |(
                collect_below,
                collect_idle,
                victim,
                wear_spread,
                die_wear_spread,
                separate_parts,
            )| FtlOptions {
                collect_below,
                collect_idle,
                victim,
                wear_spread,
                die_wear_spread,
                separate_parts,
                in_place: false,
            },
        )
}

/// Returns the options of the published emulator.
fn published() -> FtlOptions {
    FtlOptions {
        separate_parts: false,
        ..FtlOptions::default()
    }
}

fn run(ftl: &mut Ftl, reference: &mut Reference, step: FtlStep) {
    match step {
        FtlStep::Write {
            first,
            count,
            placement,
        } => {
            reference.write(ftl, first, count, placement);
        }
        FtlStep::Trim { first, count } => {
            (first..first + count).for_each(|lpn| reference.trim(ftl, lpn));
        }
        FtlStep::Pad => reference.pad(ftl),
        FtlStep::Renew(handle) => reference.renew(ftl, handle),
        FtlStep::Idle => reference.idle(ftl),
        FtlStep::SaveAndRestore => {
            let image = ftl.image();
            *ftl = Ftl::restore(*ftl.geometry(), ftl.options, &image).unwrap();
            assert_eq!(ftl.image(), image);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_ever_lost(
        (geometry, steps) in geometries().prop_flat_map(|it| (Just(it), steps(it.logical_pages))),
        options in options(),
        fill: bool,
    ) {
        let mut ftl = Ftl::new(geometry, options).unwrap();
        let mut reference = Reference::new(geometry);
        if fill {
            for lpn in 0..geometry.logical_pages {
                reference.write(&mut ftl, lpn, 1, PagePlacement::RoundRobin);
            }
        }
        for step in steps {
            run(&mut ftl, &mut reference, step);
        }
        reference.check(&ftl);
    }

    #[test]
    fn blocks_never_run_out_and_wear_stays_together(
        geometry in geometries(),
        seed: u64,
        hinted: bool,
        separate_parts: bool,
    ) {
        let options = FtlOptions { wear_spread: 4, separate_parts, ..FtlOptions::default() };
        let mut ftl = Ftl::new(geometry, options).unwrap();
        let mut numbers = Numbers::new(seed);
        let (mut work, pages) = (Vec::new(), geometry.logical_pages);
        ftl.write(0, pages, PagePlacement::RoundRobin, &mut work);
        for _ in 0..1_500 {
            work.clear();
            let hot = numbers.below(4_u64) != 0;
            let first = numbers.below(if hot { pages.div_ceil(10) } else { pages });
            let placement = match (hinted, numbers.below(4_u64)) {
                (_, 3) => PagePlacement::Handle(numbers.below(5_u64) as u32),
                (true, 0) => PagePlacement::Overwrite,
                (true, 1) => PagePlacement::After { predecessor: numbers.below(pages) },
                _ => PagePlacement::RoundRobin,
            };
            ftl.write(first, 1 + numbers.below(9_u64).min(pages - 1 - first), placement, &mut work);
        }
        check_tables(&ftl, pages as usize);
        // Levelling waits while blocks are short, so the bound is not exact to one erase.
        prop_assert!(ftl.wear().spread_in_die <= 4 + 8, "{:?} {:?}", ftl.wear(), ftl.counters());
    }

    #[test]
    fn a_command_is_its_pages_with_the_hint_on_the_first(
        geometry in geometries(),
        commands in proptest::collection::vec((0..400_u64, 1..20_u64, 0..400_u64, 0..3), 1..60),
    ) {
        let mut at_once = Ftl::new(geometry, published()).unwrap();
        let mut one_by_one = at_once.clone();
        let (mut work, mut same_work) = (Vec::new(), Vec::new());
        for (first, count, predecessor, kind) in commands {
            let pages = geometry.logical_pages;
            let first = first % pages;
            let count = count.min(pages - first);
            let placement = match kind {
                0 => PagePlacement::RoundRobin,
                1 => PagePlacement::After { predecessor: predecessor % pages },
                _ => PagePlacement::Overwrite,
            };
            at_once.write(first, count, placement, &mut work);
            one_by_one.write(first, 1, placement, &mut same_work);
            for lpn in first + 1..first + count {
                one_by_one.write(lpn, 1, PagePlacement::RoundRobin, &mut same_work);
            }
        }
        prop_assert_eq!(work, same_work);
        prop_assert_eq!(at_once.image(), one_by_one.image());
    }

    /// With nothing to collect, the rules fit on a page: compare the FTL with them.
    #[test]
    fn dies_follow_the_published_rules(
        commands in proptest::collection::vec((0..200_u64, 1..30_u64, 0..200_u64, 0..3), 1..40),
        granule_pages in 1..3_u32,
        slots_per_page in 1..5_u32,
        dies in 1..9_u32,
    ) {
        let geometry = FtlGeometry {
            dies,
            blocks_per_die: 4_000,
            pages_per_block: 2 * granule_pages,
            slots_per_page,
            granule_pages,
            logical_pages: 256,
            slc_blocks: 0,
            slc_pages: 0,
            handles: 1,
        };
        let mut ftl = Ftl::new(geometry, published()).unwrap();
        let granule = u64::from(granule_pages * slots_per_page);
        let mut die_of = [None; 256];
        let (mut filled, mut turn) = (vec![0; dies as usize], 0);
        for (first, count, predecessor, kind) in commands {
            let placement = match kind {
                0 => PagePlacement::RoundRobin,
                1 => PagePlacement::After { predecessor },
                _ => PagePlacement::Overwrite,
            };
            let hinted = match kind {
                0 => None,
                1 => die_of[predecessor as usize].map(|die| (die + 1) % dies),
                _ => die_of[first as usize],
            };
            turn = hinted.unwrap_or(turn);
            for lpn in first..first + count {
                die_of[lpn as usize] = Some(turn);
                filled[turn as usize] += 1;
                if filled[turn as usize] % granule == 0 {
                    turn = (turn + 1) % dies;
                }
            }
            ftl.write(first, count, placement, &mut Vec::new());
        }
        for (lpn, die) in (0..).zip(die_of) {
            prop_assert_eq!(ftl.read(lpn).map(|page| page.die), die);
        }
    }

    /// A file that is written in granules lies on the dies in turn, a granule on one page, wherever it begins;
    /// and it stays so when it is overwritten with hints.
    #[test]
    fn a_file_that_begins_anywhere_keeps_its_granules(
        first in 0..64_u64,
        granules in 1..40_u64,
        order in any::<u64>(),
        between in 0..9_usize,
        slots_per_page in 1..9_u32,
        dies in 1..9_u32,
    ) {
        let geometry = FtlGeometry {
            dies,
            blocks_per_die: 4_000,
            pages_per_block: 4,
            slots_per_page,
            granule_pages: 1,
            logical_pages: 4_096,
            slc_blocks: 0,
            slc_pages: 0,
            handles: 1,
        };
        let mut ftl = Ftl::new(geometry, FtlOptions::default()).unwrap();
        let granule = u64::from(slots_per_page);
        let mut work = Vec::new();
        let pages_of = |ftl: &Ftl, nth: u64| -> Vec<PhysPage> {
            let start = first + nth * granule;
            let mut pages: Vec<_> = (start..start + granule)
                .filter_map(|lpn| ftl.read(lpn))
                .collect();
            pages.dedup();
            pages
        };
        let check = |ftl: &Ftl| -> Result<(), TestCaseError> {
            let begins = pages_of(ftl, 0)[0].die;
            for nth in 0..granules {
                let pages = pages_of(ftl, nth);
                prop_assert_eq!(pages.len(), 1, "granule {} lies on {:?}", nth, pages);
                prop_assert_eq!(pages[0].die, (begins + nth as u32) % dies);
            }
            Ok(())
        };
        for nth in 0..granules {
            ftl.write(first + nth * granule, granule, PagePlacement::RoundRobin, &mut work);
        }
        check(&ftl)?;
        // Blocks of others in between, anywhere: a journal, say.
        let (mut others, mut numbers) = (Numbers::new(order), Numbers::new(order));
        for _ in 0..2 * granules {
            let nth = numbers.below(granules);
            ftl.write(first + nth * granule, granule, PagePlacement::Overwrite, &mut work);
            for _ in 0..between {
                ftl.write(2_048 + others.below(2_048), 1, PagePlacement::RoundRobin, &mut work);
            }
        }
        check(&ftl)?;
    }

    #[test]
    fn damaged_images_are_refused_or_lead_to_a_sound_ftl(
        steps in steps(300),
        flips in proptest::collection::vec((0..4_000_usize, any::<u8>()), 0..4),
        cut in 0..4_000_usize,
        slc: bool,
    ) {
        let smallest = if slc { small_with_slc(7) } else { small() };
        let smallest = FtlGeometry { handles: if slc { 3 } else { 1 }, ..smallest };
        let geometry = with_least_blocks(FtlGeometry { logical_pages: 300, ..smallest });
        let mut ftl = Ftl::new(geometry, FtlOptions::default()).unwrap();
        let mut reference = Reference::new(geometry);
        for step in steps {
            run(&mut ftl, &mut reference, step);
        }
        let mut image = ftl.image();
        for (at, flip) in flips {
            let length = image.len();
            image[at % length] ^= flip;
        }
        if cut < image.len() / 4 {
            image.truncate(image.len() - cut);
        }
        if let Ok(mut restored) = Ftl::restore(geometry, FtlOptions::default(), &image) {
            let mapped = |ftl: &Ftl| ftl.slot_of.iter().filter(|slot| **slot != 0).count();
            check_tables(&restored, mapped(&restored));
            // The restored FTL works.
            let mut numbers = Numbers::new(cut as u64);
            for _ in 0..1_000 {
                let first = numbers.below(300_u64);
                let count = 1 + numbers.below(300 - first).min(12);
                restored.write(first, count, PagePlacement::Overwrite, &mut Vec::new());
            }
            check_tables(&restored, mapped(&restored));
        }
    }
}

#[test]
fn an_image_of_data_written_in_order_is_small_and_keeps_everything() {
    let mut ftl = Ftl::new(small(), FtlOptions::default()).unwrap();
    let mut reference = Reference::new(small());
    for lpn in (0..2048).chain(0..1024) {
        reference.write(&mut ftl, lpn, 1, PagePlacement::RoundRobin);
    }
    let image = ftl.image();
    assert!(
        image.len() < 2 * 2048,
        "{} bytes for 2048 logical pages",
        image.len()
    );
    let restored = Ftl::restore(small(), FtlOptions::default(), &image).unwrap();
    reference.check(&restored);
    assert_eq!(restored.counters(), ftl.counters());
    assert_eq!(restored.wear(), ftl.wear());
    for (geometry, expected) in [
        (
            FtlGeometry {
                granule_pages: 2,
                ..small()
            },
            "pages in a granule 1, not 2",
        ),
        (
            FtlGeometry {
                logical_pages: 2047,
                ..small()
            },
            "logical pages 2048, not 2047",
        ),
    ] {
        let error = Ftl::restore(geometry, FtlOptions::default(), &image).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let cut = Ftl::restore(small(), FtlOptions::default(), &image[..image.len() - 1]);
    assert_eq!(
        cut.unwrap_err(),
        FtlImageError::Truncated {
            at: image.len() - 1
        }
    );
    let longer = [&image, [0].as_slice()].concat();
    assert_eq!(
        Ftl::restore(small(), FtlOptions::default(), &longer).unwrap_err(),
        FtlImageError::Damaged {
            at: image.len(),
            damage: Damage::Trailing
        }
    );
}
