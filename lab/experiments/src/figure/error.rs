//! A figure that cannot be read, measured or compared.

use std::path::PathBuf;

use super::measured::X;

/// Whatever a simulation or a machine refuses.
pub(super) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A figure came to no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FigureError {
    /// A file cannot be read or written.
    #[error("{}: {source}", .file.display())]
    File {
        /// The file or folder.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A figure's file says something that cannot be.
    #[error("{file}:{line}: {mistake}")]
    Source {
        /// The file, below the root of the tree.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The mistake, and the remedy.
        mistake: Box<Mistake>,
    },
    /// A module and the figure's file do not fit together.
    #[error("{figure}: {mistake}")]
    Measured {
        /// The figure.
        figure: String,
        /// The mistake, and the remedy.
        mistake: Box<Mistake>,
    },
    /// A reference is no JSON of this form.
    #[error("{}: {source}; `cargo lab experiments --keep` writes it anew", .file.display())]
    Reference {
        /// The file.
        file: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The simulated device or file system refused something.
    #[error("{0}")]
    Simulation(#[source] Failed),
    /// This machine refused something: a program, a file, a device.
    #[error("{what}: {why}")]
    Machine {
        /// The contender, or the act.
        what: String,
        /// Why.
        why: Failed,
    },
    /// A signal came.
    #[error(
        "stopped; figures that are done are kept, and the same command goes on with the next one"
    )]
    Stopped,
}

impl FigureError {
    /// For `map_err`: an error of whatever a module simulates.
    pub fn simulation(source: impl Into<Failed>) -> Self {
        Self::Simulation(source.into())
    }

    /// For `map_err`: an error of this machine.
    pub fn machine<E: Into<Failed>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        |why| Self::Machine {
            what,
            why: why.into(),
        }
    }
}

/// A mistake in a figure's file, or in what its module made of it. Its text also tells the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// It cannot be read at all, or a key is unknown or missing.
    #[error("{0}")]
    Toml(String),
    /// A text that says nothing.
    #[error("{0} is empty; write it")]
    Empty(&'static str),
    /// A paper that there is not.
    #[error("no paper has the folder '{0}'; there are indef, fragpicker, scaledefrag and fast24")]
    UnknownPaper(String),
    /// Nobody could say why there is no result.
    #[error("tier 'none' needs why_not, the reason why it cannot be reproduced")]
    NoReason,
    /// A reason for what is done all the same.
    #[error("why_not is for tier 'none' only; a value that is not measured has not_measured")]
    ReasonInVain,
    /// Out of range.
    #[error("tolerance_pct is {0}; it must be above 0 and at most 50")]
    Tolerance(f64),
    /// There is nothing to compare.
    #[error(
        "no published value is compared; give one that is neither taken nor not_measured, or tier 'none'"
    )]
    NothingCompared,
    /// Two values with one name.
    #[error("'{series}' at {x} is there twice; give it another series or x")]
    Twice {
        /// Its series.
        series: String,
        /// Its place.
        x: X,
    },
    /// Taken as an input, and not measured.
    #[error("a value is either taken or not_measured; leave one of them out")]
    TakenAndNot,
    /// No number.
    #[error("'{0}' is no finite number")]
    NotFinite(String),
    /// A free parameter whose influence nobody sees.
    #[error(
        "parameter '{0}' is free; name other values in tried = […], so that its influence is shown"
    )]
    NotTried(String),
    /// Other values of what is known.
    #[error("parameter '{0}' has tried, which is for kind 'free' only")]
    TriedInVain(String),
    /// Another type.
    #[error("parameter '{0}': what was tried must be of the type of value")]
    TriedType(String),
    /// A unit that the value cannot have.
    #[error("parameter '{name}': unit '{unit}' is none of {known}")]
    Unit {
        /// The parameter.
        name: String,
        /// Its unit.
        unit: String,
        /// Those that it can have.
        known: String,
    },
    /// A part of a byte, or of a thing.
    #[error("parameter '{name}': {value} is no whole number from 0 on")]
    NotWhole {
        /// The parameter.
        name: String,
        /// Its value.
        value: f64,
    },
    /// The module wants a parameter that the file does not have.
    #[error(
        "there is no parameter '{0}'; add it to [parameters], with value, unit, kind and source"
    )]
    NoParameter(String),
    /// The module wants another type.
    #[error("parameter '{name}' must be {wanted}")]
    Type {
        /// The parameter.
        name: String,
        /// The type.
        wanted: &'static str,
    },
    /// A parameter that sets nothing.
    #[error("the module reads no parameter '{0}'; remove it from the file, or use it")]
    NotRead(String),
    /// The module has not shown the influence of what is free.
    #[error(
        "the module has no sensitivity row for the free parameter '{0}'; measure Parameters::variants of it"
    )]
    NoSensitivity(String),
    /// A published value without ours.
    #[error(
        "the module has no value for '{series}' at {x}; measure it, or say not_measured in the file"
    )]
    NoValue {
        /// Its series.
        series: String,
        /// Its place.
        x: X,
    },
    /// Two units for one value.
    #[error("'{series}' at {x} is in {ours}, published in {published}; use one unit")]
    OtherUnit {
        /// Its series.
        series: String,
        /// Its place.
        x: X,
        /// Our unit.
        ours: String,
        /// Theirs.
        published: String,
    },
    /// A module without its file.
    #[error("there is no experiments/{0}.toml for the module; write it")]
    NoFile(String),
}
