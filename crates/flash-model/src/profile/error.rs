//! A profile that is refused.

use units::Bytes;

use super::parameter::Kind;

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {mistake}")]
pub struct ProfileError {
    /// The file, as it was named by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The mistake.
    pub mistake: ProfileMistake,
}

/// A mistake in a profile. Its text also tells the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileMistake {
    /// It cannot be read at all.
    #[error("no valid TOML: {}", .0.message())]
    Toml(toml::de::Error),
    /// A name that is in no table.
    #[error("'{0}' stands outside of any table like [flash]")]
    OutsideOfTables(String),
    /// The device has no name.
    #[error("there is no name in a table [device]")]
    NoName,
    /// Something else, or nothing, in the place of a text.
    #[error("{0} must be a text")]
    NoText(String),
    /// A key that has no meaning here.
    #[error("{key} is unknown; there is {known}")]
    UnknownKey {
        /// The key, with its table.
        key: String,
        /// Those that have one.
        known: &'static str,
    },
    /// A number without unit, source and kind.
    #[error(
        "{0} is a bare value; write {{ value = …, unit = \"…\", source = \"…\", kind = \"…\" }}"
    )]
    BareValue(String),
    /// A number without one of these.
    #[error("{key} has no {field}")]
    Incomplete {
        /// The parameter.
        key: String,
        /// The part that it lacks.
        field: &'static str,
    },
    /// A kind that there is not.
    #[error("{key}: kind '{kind}' is none of {}", Kind::NAMES)]
    UnknownKind {
        /// The parameter.
        key: String,
        /// Its kind.
        kind: String,
    },
    /// A value that is no value of any parameter.
    #[error("{0}.value must be true, false or a number ≥ 0")]
    NoValue(String),
    /// A parameter that no device has.
    #[error("there is no parameter {0}; is it misspelt?")]
    UnknownParameter(String),
    /// A parameter that every device needs.
    #[error("there is no {name} in table [{table}]")]
    NoParameter {
        /// Its table.
        table: String,
        /// Its name there.
        name: String,
    },
    /// A parameter with a value that no device can have.
    #[error("{key}: {fault}")]
    Parameter {
        /// The parameter.
        key: String,
        /// The fault of its value.
        #[source]
        fault: ValueFault,
    },
}

/// A value that its parameter cannot have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueFault {
    /// A flag in the place of a number.
    #[error("it must be a number")]
    NoNumber,
    /// A number in the place of a flag.
    #[error("it must be true or false, with unit 'flag'")]
    NoFlag,
    /// A unit of another quantity.
    #[error("unit '{unit}' is none of {}", .known.join(", "))]
    Unit {
        /// The unit.
        unit: String,
        /// Those that this quantity has.
        known: Vec<&'static str>,
    },
    /// A part of a byte or of a count.
    #[error("{0} is no whole number")]
    NotWhole(f64),
    /// Too little or too much.
    #[error("it must be between {least} and {most}")]
    OutOfRange {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Too much.
    #[error("it must be at most {0}")]
    TooMuch(&'static str),
    /// Bytes that are no whole sectors.
    #[error("it must be a multiple of {0} B")]
    NotOfSectors(u64),
    /// A time for all pages, and times by type of page.
    #[error("it must not stand beside {}", .0.join(", "))]
    Beside(Vec<String>),
    /// More planes than can be addressed on their own.
    #[error("of {planes} planes; at most {most}")]
    Planes {
        /// Planes of a die.
        planes: u32,
        /// The most.
        most: u32,
    },
    /// Too many of something.
    #[error("{count} are more than {most}")]
    TooMany {
        /// Their number.
        count: u32,
        /// The most.
        most: u32,
    },
    /// Too many dies.
    #[error("{0} dies are more than 4096")]
    TooManyDies(u32),
    /// Logical pages that do not fill a programmed unit.
    #[error("a logical page must be a whole part of the {0} programmed")]
    LogicalPage(Bytes),
    /// Pages that cannot be written one by one, or an SLC cache.
    #[error("a logical page must be the {0} programmed, and there must be no SLC cache")]
    NotInPlace(Bytes),
    /// Less than the write buffer needs.
    #[error("the buffer must hold two pages of all planes ({0})")]
    SmallBuffer(Bytes),
    /// A read cache of parts of pages, or too large.
    #[error("it must be whole pages of all planes ({unit}), at most {most}")]
    ReadCache {
        /// A page of each plane.
        unit: Bytes,
        /// The most.
        most: Bytes,
    },
    /// A unit of parts of programmed pages.
    #[error("it must be a multiple of what is programmed at once: {0}")]
    NotOfPrograms(Bytes),
    /// A flash block of parts of units.
    #[error("a flash block must consist of whole units")]
    PartsOfUnits,
    /// More dies than there are.
    #[error("the device has {0} dies")]
    Dies(u32),
    /// Programmed pages of parts of it.
    #[error("it must be a whole part of what is programmed at once: {0}")]
    NotPartOfPrograms(Bytes),
    /// A capacity of parts of rows, or above the size.
    #[error("it must be a multiple of {0} (a page of each of its dies), at most the size")]
    Capacity(Bytes),
    /// A size that Linux refuses.
    #[error("it must be a power of two: Linux wants it")]
    NoPowerOfTwo,
    /// More open zones than active ones, or none.
    #[error("it must be 1 to max_active ({0})")]
    MaxOpen(u32),
    /// An SLC cache in cells of one bit.
    #[error("it needs flash.bits_per_cell of 2 or more")]
    OneBit,
    /// Blocks that are too small in the SLC cache.
    #[error("a flash block must have a unit in it even with one bit a cell")]
    SmallBlocks,
}
