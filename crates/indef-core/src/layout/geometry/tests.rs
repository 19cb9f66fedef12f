use proptest::prelude::*;

use super::*;

const ZONED: Geometry = Geometry::Zoned {
    chips: 16,
    block: Bytes::kib(4),
    segment: Bytes::mib(2),
    segment_chips: 16,
    offset: Bytes::ZERO,
};
/// A device after a conventional one of 64 MiB, with zones of 8 MiB on 4 of 16 chips.
const PART: Geometry = Geometry::Zoned {
    chips: 16,
    block: Bytes::kib(4),
    segment: Bytes::mib(8),
    segment_chips: 4,
    offset: Bytes::mib(64),
};
const STRIPED: Geometry = Geometry::Striped {
    granule: Bytes::kib(32),
    dies: 8,
};

#[test]
fn geometries_are_read_and_shown() {
    for (text, geometry) in [
        ("unknown", Geometry::Unknown),
        ("zoned:chips=16", ZONED),
        ("zoned:chips=16,block=4KiB,segment=2MiB", ZONED),
        (" zoned:segment=2m,chips=16 ", ZONED),
        ("zoned:chips=16,segment-chips=16,offset=0", ZONED),
        (
            "zoned:chips=16,segment=8MiB,segment-chips=4,offset=64MiB",
            PART,
        ),
        ("striped:granule=32KiB,dies=8", STRIPED),
        ("striped:granule=32KiB,stripe=256KiB", STRIPED),
    ] {
        assert_eq!(text.parse(), Ok(geometry), "{text}");
        assert_eq!(geometry.to_string().parse(), Ok(geometry));
    }
    assert_eq!(STRIPED.to_string(), "striped:granule=32KiB,dies=8");
    assert_eq!(
        (ZONED.units(), STRIPED.units(), Geometry::Unknown.units()),
        (Some(16), Some(8), None)
    );
}

#[test]
fn nonsense_is_refused_in_one_line() {
    use GeometryProblem as Problem;
    let no_size = "much".parse::<Bytes>().unwrap_err();
    for (text, problem) in [
        ("", Problem::Kind(String::new())),
        ("zoned", Problem::Missing("chips=")),
        ("zoned:chips=0", Problem::Units),
        ("zoned:chips=4294967295", Problem::Units),
        ("zoned:chips=4,chips=4", Problem::Unexpected("chips".into())),
        (
            "zoned:chips=4,segment=5000,block=4096",
            Problem::PartOfBlock,
        ),
        ("zoned:chips=4,block=0", Problem::Size("block")),
        ("zoned:chips=4,segment-chips=5", Problem::SegmentChips),
        ("zoned:chips=4,segment-chips=0", Problem::Units),
        ("zoned:chips=4,offset=much", Problem::NoSize(no_size)),
        ("zoned:chips", Problem::NoValue("chips".into())),
        (
            "zoned:chips=many",
            Problem::NoNumber {
                name: "chips",
                value: "many".into(),
            },
        ),
        ("striped:dies=4", Problem::Missing("granule=")),
        (
            "striped:granule=32KiB",
            Problem::Missing("dies= or stripe="),
        ),
        (
            "striped:granule=32KiB,dies=4,stripe=128KiB",
            Problem::DiesAndStripe,
        ),
        (
            "striped:granule=32KiB,stripe=100000",
            Problem::PartOfGranule,
        ),
        ("striped:granule=32KiB,stripe=1TiB", Problem::Units),
        ("unknown:chips=4", Problem::Unexpected("chips".into())),
        ("round:chips=4", Problem::Kind("round".into())),
    ] {
        let error = text.parse::<Geometry>().unwrap_err();
        assert_eq!(*error.problem(), problem, "{text}");
        let error = error.to_string();
        assert!(error.contains(&format!("'{text}'")), "{error}");
        assert!(!error.contains('\n'));
    }
}

#[test]
fn the_worst_distribution_of_the_paper_is_240() {
    // InDeF §IV: 64 blocks of 4 KiB on one of 16 chips: (60² + 15·4²) / 16.
    let mut spread = ZONED.spread();
    for block in 0..64 {
        spread.add(block * 16 * 4096, 4096);
    }
    assert_eq!(spread.dopf(), 240.0);
}

#[test]
fn the_length_of_a_run_costs_no_time() {
    let geometry = Geometry::Striped {
        granule: Bytes(512),
        dies: 3,
    };
    let mut spread = geometry.spread();
    spread.add(7, u64::MAX / 2);
    assert!(spread.dopf() < 1.0);
}

fn geometry() -> impl Strategy<Value = Geometry> {
    prop_oneof![
        (1u32..20, 1u64..4, 1u64..40, 1u32..20, 0u64..900).prop_map(
            |(chips, block, blocks, span, offset)| Geometry::Zoned {
                chips,
                block: Bytes(block * 512),
                segment: Bytes(block * 512 * blocks),
                segment_chips: span.min(chips),
                offset: Bytes(offset * 512),
            }
        ),
        (1u32..20, 1u64..40).prop_map(|(dies, granule)| Geometry::Striped {
            granule: Bytes(granule * 512),
            dies,
        }),
    ]
}

/// Equation 1, sector by sector.
fn naive_dopf(geometry: Geometry, runs: &[(u64, u64)]) -> f64 {
    let (units, block) = match geometry {
        Geometry::Unknown => return 0.0,
        Geometry::Zoned { chips, block, .. } => (chips, block),
        Geometry::Striped { dies, .. } => (dies, Bytes(STRIPED_BLOCK)),
    };
    let mut counts = vec![0.0; units as usize];
    for &(start, len) in runs {
        for sector in start..start + len {
            let address = sector * 512;
            let unit = match geometry {
                Geometry::Unknown => 0,
                Geometry::Zoned { offset, .. } if address < offset.0 => continue,
                Geometry::Zoned {
                    chips,
                    block,
                    segment,
                    segment_chips,
                    offset,
                } => {
                    let place = address - offset.0;
                    let lane = place % segment.0 / block.0 % u64::from(segment_chips);
                    (place / segment.0 * u64::from(segment_chips) + lane) % u64::from(chips)
                }
                Geometry::Striped { granule, dies } => address / granule.0 % u64::from(dies),
            };
            counts[unit as usize] += 512.0 / block.0 as f64;
        }
    }
    let mean = counts.iter().sum::<f64>() / f64::from(units);
    counts.iter().map(|n| (n - mean) * (n - mean)).sum::<f64>() / f64::from(units)
}

#[test]
fn the_die_is_the_one_that_the_device_says() {
    // Zone 5 of 4 of 16 chips begins on chip 20 mod 16; the third block is two further.
    let mut spread = PART.spread();
    let zone = (64 << 20) + 5 * (8 << 20);
    assert_eq!(spread.add(zone + 2 * 4096, 4096), 4096);
    assert_eq!(spread.units_used(), [6]);
    // Bytes before the device do not count.
    assert_eq!(spread.add(0, 64 << 20), 0);
    assert_eq!(spread.add((64 << 20) - 4096, 8192), 4096);
    assert_eq!(spread.units_used(), [0, 6]);
}

proptest! {
    #[test]
    fn dopf_is_what_counting_each_sector_gives(geometry in geometry(), runs in prop::collection::vec((0u64..2000, 1u64..600), 0..6)) {
        let mut spread = geometry.spread();
        for &(start, len) in &runs {
            spread.add(start * 512, len * 512);
        }
        let naive = naive_dopf(geometry, &runs);
        prop_assert!((spread.dopf() - naive).abs() <= 1e-9 * naive.max(1.0), "{} {}", spread.dopf(), naive);
    }

    #[test]
    fn no_contiguous_piece_is_worse_than_an_aligned_one(
        units in 1u32..12, groups in 1u32..4, unit in 1u64..8, rounds in 1u64..5,
        start in 0u64..500, len in 0u64..500,
    ) {
        let zoned = |groups| Geometry::Zoned {
            chips: units * groups,
            block: Bytes(unit * 512),
            segment: Bytes(unit * 512 * u64::from(units) * rounds),
            segment_chips: units,
            offset: Bytes::ZERO,
        };
        let striped = Geometry::Striped { granule: Bytes(unit * 512), dies: units };
        for geometry in [zoned(1), zoned(groups), striped] {
            let mut spread = geometry.spread();
            spread.add(start * 512, len * 512);
            prop_assert!(spread.dopf() <= geometry.contiguous_dopf(Bytes(len * 512)) + 1e-9);
        }
    }

    #[test]
    fn every_geometry_is_read_as_it_was_shown(geometry in geometry()) {
        prop_assert_eq!(geometry.to_string().parse(), Ok(geometry));
    }

    #[test]
    fn no_text_panics(text: String) {
        let _ = text.parse::<Geometry>();
    }
}
