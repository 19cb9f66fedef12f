//! The way in which a device spreads consecutive addresses over its parallel flash units.
//!
//! A geometry is a model, not a measurement: it maps an address to the unit (chip or die) that
//! holds it. It ignores facts that only the device knows: remapping by its garbage collection, and
//! bad blocks. Addresses are those of the file system, which may begin with another device's.

use std::{fmt, str::FromStr};

use units::{Bytes, ParseBytesError};

use super::spread::Spread;

/// The block in which DoPF of a striped device is counted: the usual page and file system block.
const STRIPED_BLOCK: u64 = 4096;
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
    /// Block `i` of segment `s` lies on chip `(s × segment_chips + i mod segment_chips) mod chips`.
    /// Where a segment lies on all chips, that is block `i` on chip `i mod chips` (InDeF §III-B, zone
    /// mapping).
    Zoned {
        /// Parallel chips.
        chips: u32,
        /// The unit of interleaving.
        block: Bytes,
        /// The length after which the mapping begins again: a zone, or the segment that the file
        /// system aligns to zones; a multiple of `block`.
        segment: Bytes,
        /// Chips that a segment lies on, `chips` at most; the next segment begins on the next chip
        /// after them.
        segment_chips: u32,
        /// The file system's address at which the device begins; the part before it (F2FS: the
        /// conventional device) does not count for DoPF.
        offset: Bytes,
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

    /// An empty count for each unit.
    pub(super) fn spread(&self) -> Spread {
        match *self {
            Self::Unknown => Spread::default(),
            Self::Zoned {
                chips,
                block,
                segment,
                segment_chips,
                offset,
            } => Spread {
                origin: offset.0,
                granule: block.0.max(1),
                period: segment.0.max(block.0).max(1),
                lanes: u64::from(segment_chips.clamp(1, chips.max(1))),
                block: block.0.max(1),
                bytes: vec![0; chips as usize],
            },
            Self::Striped { granule, dies } => Spread {
                origin: 0,
                granule: granule.0.max(1),
                period: granule.0.saturating_mul(u64::from(dies)).max(1),
                lanes: u64::from(dies.max(1)),
                block: STRIPED_BLOCK,
                bytes: vec![0; dies as usize],
            },
        }
    }

    /// DoPF of `len` bytes that lie in one piece from the beginning of a segment or stripe.
    ///
    /// No other contiguous place is less even (where a segment is a whole number of rounds over its
    /// chips): one that begins inside a granule spreads its ends over two units instead of one. So a
    /// contiguous range never seems worth moving for its DoPF.
    #[must_use]
    pub fn contiguous_dopf(&self, len: Bytes) -> f64 {
        let mut spread = self.spread();
        spread.add(spread.origin, len.0);
        spread.dopf()
    }
}

/// A geometry that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a geometry ({problem}); write unknown, zoned:chips=16[,block=4KiB][,segment=2MiB][,segment-chips=16][,offset=0] or striped:granule=32KiB,dies=8 (or stripe=256KiB in place of dies)"
)]
pub struct ParseGeometryError {
    text: String,
    problem: GeometryProblem,
}

impl ParseGeometryError {
    /// Its fault.
    #[must_use]
    pub const fn problem(&self) -> &GeometryProblem {
        &self.problem
    }
}

/// A fault in the text of a geometry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryProblem {
    /// There is no such kind of geometry.
    #[error("no kind '{0}'")]
    Kind(String),
    /// A field is a name alone.
    #[error("'{0}' has no value")]
    NoValue(String),
    /// A field is unknown to this kind, or given a second time.
    #[error("'{0}' is not expected here, or is there twice")]
    Unexpected(String),
    /// A field has to be there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The value is no size.
    #[error(transparent)]
    NoSize(#[from] ParseBytesError),
    /// The size makes no device.
    #[error("{0} must be 512 B to 1 TiB")]
    Size(&'static str),
    /// The value is no number.
    #[error("{name}={value} is not a number")]
    NoNumber {
        /// The field.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// None, or more units than any device has.
    #[error("the number of units must be 1 to {MAX_UNITS}")]
    Units,
    /// The segment ends in the middle of a block.
    #[error("the segment is not a multiple of the block")]
    PartOfBlock,
    /// The segment needs more chips.
    #[error("a segment cannot lie on more chips than there are")]
    SegmentChips,
    /// The stripe ends in the middle of a granule.
    #[error("the stripe is not a multiple of the granule")]
    PartOfGranule,
    /// Both say how many dies there are.
    #[error("only one of dies= and stripe= is allowed")]
    DiesAndStripe,
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unknown => f.write_str("unknown"),
            Self::Zoned {
                chips,
                block,
                segment,
                segment_chips,
                offset,
            } => {
                let (block, segment) = (exact(block), exact(segment));
                write!(f, "zoned:chips={chips},block={block},segment={segment}")?;
                if segment_chips != chips {
                    write!(f, ",segment-chips={segment_chips}")?;
                }
                if !offset.is_zero() {
                    write!(f, ",offset={}", exact(offset))?;
                }
                Ok(())
            }
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

fn parse(text: &str) -> Result<Geometry, GeometryProblem> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut fields = Fields::split(rest)?;
    let geometry = match kind {
        "unknown" => Geometry::Unknown,
        "zoned" => {
            let chips = fields
                .count("chips")?
                .ok_or(GeometryProblem::Missing("chips="))?;
            let block = fields.size("block")?.unwrap_or(DEFAULT_BLOCK);
            let segment = fields.size("segment")?.unwrap_or(DEFAULT_SEGMENT);
            let segment_chips = fields.count("segment-chips")?.unwrap_or(chips);
            let offset = fields.any_size("offset")?.unwrap_or_default();
            if segment.0 % block.0 != 0 {
                return Err(GeometryProblem::PartOfBlock);
            }
            if segment_chips > chips {
                return Err(GeometryProblem::SegmentChips);
            }
            Geometry::Zoned {
                chips,
                block,
                segment,
                segment_chips,
                offset,
            }
        }
        "striped" => {
            let granule = fields
                .size("granule")?
                .ok_or(GeometryProblem::Missing("granule="))?;
            let dies = match (fields.count("dies")?, fields.size("stripe")?) {
                (Some(dies), None) => dies,
                (None, Some(stripe)) if stripe.0 % granule.0 == 0 => {
                    units_from(stripe.0 / granule.0)?
                }
                (None, Some(_)) => return Err(GeometryProblem::PartOfGranule),
                (None, None) => return Err(GeometryProblem::Missing("dies= or stripe=")),
                (Some(_), Some(_)) => return Err(GeometryProblem::DiesAndStripe),
            };
            Geometry::Striped { granule, dies }
        }
        other => return Err(GeometryProblem::Kind(other.to_owned())),
    };
    fields.finish()?;
    Ok(geometry)
}

fn units_from(count: u64) -> Result<u32, GeometryProblem> {
    match u32::try_from(count) {
        Ok(units) if (1..=MAX_UNITS).contains(&units) => Ok(units),
        _ => Err(GeometryProblem::Units),
    }
}

/// `name=value,…`, each taken once.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn split(text: &'a str) -> Result<Self, GeometryProblem> {
        text.split(',')
            .filter(|field| !field.is_empty())
            .map(|field| {
                field
                    .split_once('=')
                    .map(|(name, value)| (name.trim(), value.trim()))
                    .ok_or_else(|| GeometryProblem::NoValue(field.to_owned()))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(n, _)| *n == name)?;
        Some(self.0.remove(at).1)
    }

    fn size(&mut self, name: &'static str) -> Result<Option<Bytes>, GeometryProblem> {
        match self.any_size(name)? {
            Some(size) if !(512..=1 << 40).contains(&size.0) => Err(GeometryProblem::Size(name)),
            size => Ok(size),
        }
    }

    fn any_size(&mut self, name: &str) -> Result<Option<Bytes>, GeometryProblem> {
        let value = self.take(name).map(str::parse::<Bytes>);
        Ok(value.transpose()?)
    }

    fn count(&mut self, name: &'static str) -> Result<Option<u32>, GeometryProblem> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let count = value.parse().map_err(|_| GeometryProblem::NoNumber {
            name,
            value: value.to_owned(),
        })?;
        units_from(count).map(Some)
    }

    fn finish(self) -> Result<(), GeometryProblem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(GeometryProblem::Unexpected((*name).to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;
