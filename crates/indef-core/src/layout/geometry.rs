//! How a device spreads consecutive addresses over its parallel flash units.
//!
//! A geometry is a model, not a measurement: it maps a device address to the unit (chip or die)
//! that holds it. It ignores what only the device knows: remapping by its garbage collection, bad
//! blocks, and the rotation of zones over units.

use std::{fmt, str::FromStr};

use units::Bytes;

/// The block in which DoPF of a striped device is counted: the usual page and file system block.
const STRIPED_BLOCK: Bytes = Bytes::kib(4);
const DEFAULT_BLOCK: Bytes = Bytes::kib(4);
const DEFAULT_SEGMENT: Bytes = Bytes::mib(2);
/// No device has more parallel units; also bounds the memory that a typed geometry can ask for.
const MAX_UNITS: u32 = 4096;

/// The mapping of device addresses to parallel flash units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Geometry {
    /// Nothing is known: DoPF is 0 everywhere.
    #[default]
    Unknown,
    /// Block `i` of a segment lies on chip `i mod chips` (InDeF §III-B, zone mapping).
    Zoned {
        /// Parallel chips.
        chips: u32,
        /// The unit of interleaving.
        block: Bytes,
        /// The segment that the file system aligns to zones; a multiple of `block`.
        segment: Bytes,
    },
    /// Address `a` lies on die `(a / granule) mod dies`: the die allocation granularity and the
    /// stripe that FAST 2024 §4 finds by probing.
    Striped {
        /// Consecutive bytes on one die.
        granule: Bytes,
        /// Parallel dies.
        dies: u32,
    },
}

impl Geometry {
    /// The number of parallel units (`L` of InDeF eq. 1), where known.
    #[must_use]
    pub fn units(&self) -> Option<u32> {
        match *self {
            Self::Unknown => None,
            Self::Zoned { chips, .. } => Some(chips),
            Self::Striped { dies, .. } => Some(dies),
        }
    }

    /// An empty count for each unit; none where nothing is known.
    pub(super) fn spread(self) -> Spread {
        let (granule, period, block, units) = match self {
            Self::Unknown => return Spread::default(),
            Self::Zoned {
                chips,
                block,
                segment,
            } => (block.0, segment.0, block.0, chips),
            Self::Striped { granule, dies } => {
                let stripe = granule.0.saturating_mul(u64::from(dies));
                (granule.0, stripe, STRIPED_BLOCK.0, dies)
            }
        };
        Spread {
            granule: granule.max(1),
            period: period.max(granule).max(1),
            block: block.max(1),
            bytes: vec![0; units as usize],
        }
    }

    /// DoPF of `len` bytes that lie in one piece from the beginning of a segment or stripe.
    ///
    /// No other contiguous place is less even (where a segment is a whole number of rounds over the
    /// chips): one that begins inside a granule spreads its ends over two units instead of one. So a
    /// contiguous range never seems worth moving for its DoPF.
    #[must_use]
    pub fn contiguous_dopf(&self, len: Bytes) -> f64 {
        let mut spread = self.spread();
        spread.add(0, len.0);
        spread.dopf()
    }
}

/// Bytes for each parallel unit, less what all of them have alike: DoPF does not see that.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    granule: u64,
    /// The mapping begins again at every multiple of this.
    period: u64,
    block: u64,
    bytes: Vec<u64>,
}

impl Spread {
    /// Count the device bytes `phys..phys + len`. Its time depends on the number of units, not on
    /// `len`.
    pub(super) fn add(&mut self, phys: u64, len: u64) {
        if self.bytes.is_empty() || len == 0 {
            return;
        }
        let place = phys % self.period;
        let head = len.min(self.period - place);
        self.add_within(place, head, 1);
        let rest = len - head;
        let periods = rest / self.period;
        if periods > 0 {
            self.add_within(0, self.period, periods);
        }
        self.add_within(0, rest % self.period, 1);
    }

    /// Count `len` bytes from `place` of a period, `times` over.
    fn add_within(&mut self, mut place: u64, mut len: u64, times: u64) {
        let units = self.bytes.len() as u64;
        // Every full round over the units gives each of them one granule, wherever it begins.
        len %= self.granule.saturating_mul(units);
        while len > 0 {
            let part = len.min(self.granule - place % self.granule);
            let unit = (place / self.granule) % units;
            self.bytes[unit as usize] += part * times;
            place += part;
            len -= part;
        }
    }

    /// InDeF §II-A, eq. 1: the mean over the units of (N_i − M/L)², in blocks.
    pub(super) fn dopf(&self) -> f64 {
        if self.bytes.is_empty() {
            return 0.0;
        }
        let blocks = |bytes: u64| bytes as f64 / self.block as f64;
        let units = self.bytes.len() as f64;
        let mean = self.bytes.iter().copied().map(blocks).sum::<f64>() / units;
        let squares = self.bytes.iter().map(|&n| (blocks(n) - mean).powi(2));
        squares.sum::<f64>() / units
    }
}

/// A geometry that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a geometry ({problem}); write unknown, zoned:chips=16[,block=4KiB][,segment=2MiB] or striped:granule=32KiB,dies=8 (or stripe=256KiB in place of dies)"
)]
pub struct ParseGeometryError {
    text: String,
    problem: String,
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unknown => f.write_str("unknown"),
            Self::Zoned {
                chips,
                block,
                segment,
            } => write!(
                f,
                "zoned:chips={chips},block={},segment={}",
                exact(block),
                exact(segment)
            ),
            Self::Striped { granule, dies } => {
                write!(f, "striped:granule={},dies={dies}", exact(granule))
            }
        }
    }
}

/// A size without a space and without rounding.
fn exact(size: Bytes) -> String {
    let shown = size.to_string().replace(' ', "");
    match shown.parse::<Bytes>() {
        Ok(read) if read == size && !shown.contains('.') => shown,
        _ => size.0.to_string(),
    }
}

impl FromStr for Geometry {
    type Err = ParseGeometryError;

    fn from_str(text: &str) -> Result<Self, ParseGeometryError> {
        parse(text.trim()).map_err(|problem| ParseGeometryError {
            text: text.to_owned(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Geometry, String> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut fields = Fields::split(rest)?;
    let geometry = match kind {
        "unknown" => Geometry::Unknown,
        "zoned" => {
            let chips = fields.count("chips")?.ok_or("chips= is missing")?;
            let block = fields.size("block")?.unwrap_or(DEFAULT_BLOCK);
            let segment = fields.size("segment")?.unwrap_or(DEFAULT_SEGMENT);
            if segment.0 % block.0 != 0 {
                return Err("the segment is not a multiple of the block".to_owned());
            }
            Geometry::Zoned {
                chips,
                block,
                segment,
            }
        }
        "striped" => {
            let granule = fields.size("granule")?.ok_or("granule= is missing")?;
            let dies = match (fields.count("dies")?, fields.size("stripe")?) {
                (Some(dies), None) => dies,
                (None, Some(stripe)) if stripe.0 % granule.0 == 0 => {
                    units_from(stripe.0 / granule.0)?
                }
                (None, Some(_)) => return Err("the stripe is not a multiple of the granule".into()),
                (None, None) => return Err("dies= or stripe= is missing".into()),
                (Some(_), Some(_)) => return Err("only one of dies= and stripe= is allowed".into()),
            };
            Geometry::Striped { granule, dies }
        }
        other => return Err(format!("no kind '{other}'")),
    };
    fields.finish()?;
    Ok(geometry)
}

fn units_from(count: u64) -> Result<u32, String> {
    match u32::try_from(count) {
        Ok(units) if (1..=MAX_UNITS).contains(&units) => Ok(units),
        _ => Err(format!("the number of units must be 1 to {MAX_UNITS}")),
    }
}

/// `name=value,…`, each taken once.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn split(text: &'a str) -> Result<Self, String> {
        text.split(',')
            .filter(|field| !field.is_empty())
            .map(|field| {
                field
                    .split_once('=')
                    .map(|(name, value)| (name.trim(), value.trim()))
                    .ok_or_else(|| format!("'{field}' has no value"))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(n, _)| *n == name)?;
        Some(self.0.remove(at).1)
    }

    fn size(&mut self, name: &str) -> Result<Option<Bytes>, String> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match value.parse::<Bytes>() {
            Ok(size) if (512..=1 << 40).contains(&size.0) => Ok(Some(size)),
            Ok(_) => Err(format!("{name} must be 512 B to 1 TiB")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn count(&mut self, name: &str) -> Result<Option<u32>, String> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let count = value
            .parse()
            .map_err(|_| format!("{name}={value} is not a number"))?;
        units_from(count).map(Some)
    }

    fn finish(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!("'{name}' is not expected here, or is there twice")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ZONED: Geometry = Geometry::Zoned {
        chips: 16,
        block: Bytes::kib(4),
        segment: Bytes::mib(2),
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
        for text in [
            "",
            "zoned",
            "zoned:chips=0",
            "zoned:chips=4294967295",
            "zoned:chips=4,chips=4",
            "zoned:chips=4,segment=5000,block=4096",
            "zoned:chips=4,block=0",
            "zoned:chips",
            "striped:dies=4",
            "striped:granule=32KiB",
            "striped:granule=32KiB,dies=4,stripe=128KiB",
            "striped:granule=32KiB,stripe=100000",
            "striped:granule=32KiB,stripe=1TiB",
            "unknown:chips=4",
            "round:chips=4",
        ] {
            let error = text.parse::<Geometry>().unwrap_err().to_string();
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
            (1u32..20, 1u64..4, 1u64..40).prop_map(|(chips, block, blocks)| Geometry::Zoned {
                chips,
                block: Bytes(block * 512),
                segment: Bytes(block * 512 * blocks),
            }),
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
            Geometry::Striped { dies, .. } => (dies, STRIPED_BLOCK),
        };
        let mut counts = vec![0.0; units as usize];
        for &(start, len) in runs {
            for sector in start..start + len {
                let address = sector * 512;
                let unit = match geometry {
                    Geometry::Unknown => 0,
                    Geometry::Zoned {
                        chips,
                        block,
                        segment,
                    } => address % segment.0 / block.0 % u64::from(chips),
                    Geometry::Striped { granule, dies } => address / granule.0 % u64::from(dies),
                };
                counts[unit as usize] += 512.0 / block.0 as f64;
            }
        }
        let mean = counts.iter().sum::<f64>() / f64::from(units);
        counts.iter().map(|n| (n - mean) * (n - mean)).sum::<f64>() / f64::from(units)
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
        fn no_contiguous_piece_is_worse_than_an_aligned_one(units in 1u32..20, unit in 1u64..8, rounds in 1u64..5, start in 0u64..500, len in 0u64..500) {
            let zoned = Geometry::Zoned {
                chips: units,
                block: Bytes(unit * 512),
                segment: Bytes(unit * 512 * u64::from(units) * rounds),
            };
            let striped = Geometry::Striped { granule: Bytes(unit * 512), dies: units };
            for geometry in [zoned, striped] {
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
}
