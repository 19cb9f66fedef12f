//! The inner structure of a drive, as reads of it show: how data lies on its parallel units, and what reads cost.
//!
//! FAST 2024 §3.2 found with reads at growing intervals that an SSD gives consecutive data to its dies
//! in turn, so much to each (the *die allocation granularity*, here granule), and begins anew after all
//! of them (the *stripe*). Reads that fall on one die wait for each other; that, not the number of
//! requests, is what makes fragmented files slow. This module asks the same of an unknown drive, of
//! which it is only told by a [`Drive`] how long reads took.
//!
//! ```text
//! place:   0        g        2g       3g   …   S        S+g        granule g, stripe S = units · g
//! unit:    |   0    |   1    |   2    |   …    |   0    |   1
//! a pair of reads `lag` apart, wherever it begins:
//!   share on one unit = max(0, 1 − |lag − k·S| ÷ g)                a triangle around each multiple of S
//! ```
//!
//! - **Pairs** (module `pairs`). Two reads of 4 KiB go out together, and the time until both are there is
//!   taken. On two units that is the time of one read; on one unit a service time more. The mean over
//!   many beginnings is a straight measure of the share on one unit. Only the distance of two places
//!   that are near each other counts: what disturbs the turns between the beginning and the end of the
//!   ground (metadata that a file system wrote meanwhile) spoils a few pairs, not the whole.
//! - **Stripe and granule** (`stripe`, `triangle`). Distances are searched upwards; the
//!   first triangle that fresh pairs confirm is fitted, for every possible centre and width, until one fits
//!   better than all others by far. Pairs that were not used before then have to behave as the result
//!   foretells, at several multiples of the stripe and between them.
//! - **Times** (`speed`). Reads in a chain on one unit give its service time; sweeps over depths and sizes
//!   give latency, bandwidth, and the points from which more does not help (knees).
//! - **Pages and channels** (`inner`). Reads across the places of a granule show where flash pages end, pairs of
//!   longer ones which units share a channel (`region` finds where granules begin near some place).
//!
//! Every answer is a [`Told`]: a value with a confidence, or the reason why it cannot be told. A wrong
//! number is worse than none, so each step needs evidence of its own and the first that lacks it ends the
//! search.
//!
//! The granule is what reads find: where the planes of a die read on their own, it is a plane's page
//! and the units are planes. No result says where a stripe begins.

mod flow;
mod ground;
mod inner;
mod longer;
mod pairs;
mod predict;
mod region;
mod sample;
mod speed;
mod stripe;
mod triangle;
mod verdict;

use serde::{Deserialize, Serialize};
use units::{Bytes, FileRange, Nanos};

use crate::{draw::Draw, layout::Geometry};
pub use flow::Channels;
pub use ground::{Ground, SHORTEST_PIECE};
pub use inner::Inner;
pub use longer::Longer;
pub use predict::ReadModel;
pub use verdict::Verdict;

/// The read that is counted in: the block of the usual file systems.
pub(crate) const BLOCK: u64 = 4096;

/// Lengths of requests beyond that whose times are told ([`Longer`]).
pub(crate) const KINDS: usize = 3;

/// The size of one read of an application, by which the verdict judges: `--io-size`'s default.
pub const USUAL_READ: Bytes = Bytes::kib(128);

/// Part of the writes during the probe's own that may be of others: their data would lie among it.
const FOREIGN: f64 = 0.02;

/// The part of the time by which the placement has to be known: the rest is for what follows from it.
const PLACEMENT: f64 = 0.8;

/// Something that can be read.
pub trait Drive {
    /// An error that ends the probe.
    type Error;

    /// Do all of these reads in their order, `depth` of them at a time: a further one begins when
    /// one is done. Returns the time from the beginning of the first to the end of the last.
    ///
    /// # Errors
    ///
    /// A read failed, or the probe was cancelled.
    fn read(&mut self, reads: &[FileRange], depth: usize) -> Result<Nanos, Self::Error>;

    /// The time since the probe began.
    fn elapsed(&self) -> Nanos;

    /// Told when a part begins.
    fn begins(&mut self, _phase: Phase) {}
}

/// The parts of a probe, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Single reads.
    Latency,
    /// Sizes.
    Speed,
    /// Pairs.
    Placement,
    /// Chains and spreads.
    Service,
    /// Depths.
    Depth,
    /// Pages and channels.
    Inner,
}

/// A request to probe.
#[derive(Clone, Debug)]
pub struct ProbeTerms {
    /// Where reads go.
    pub ground: Ground,
    /// For random places.
    pub seed: u64,
    /// No part begins anything after this time, as [`Drive::elapsed`] tells it.
    pub limit: Nanos,
    /// Part of the bytes written to the device while the ground was written that were of others; 0
    /// where the ground was not written for this.
    pub foreign: f64,
}

/// A value with a confidence, or the reason for which there is none.
pub type Told<T> = Result<Measured<T>, CannotTell>;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured<T> {
    /// The value.
    pub value: T,
    /// 0 to 1. Of a time or rate: 1 less its relative error at two standard deviations. Of a placement:
    /// the part of pairs, not used to find it, that behave as it foretells.
    pub confidence: f64,
}

/// The reason for which something cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "why")]
#[non_exhaustive]
pub enum CannotTell {
    /// The ground is too small, or in too many pieces.
    #[error("no piece of the probe's file is contiguous for long enough")]
    NoGround,
    /// Time is up.
    #[error("the time limit came before")]
    TimeUp,
    /// Others wrote.
    #[error(
        "others wrote to the device meanwhile ({percent:.0} % of all bytes), so the probe's data does not lie in order"
    )]
    Foreign {
        /// Their part.
        percent: f64,
    },
    /// The file system is on several drives.
    #[error(
        "{percent:.0} % of the probe's file lies on another drive than the one that its file system names"
    )]
    Elsewhere {
        /// The part of it, at least.
        percent: f64,
    },
    /// Reads of one kind scatter.
    #[error("times of equal reads scatter too much ({percent:.0} % between the quarters)")]
    Noise {
        /// The distance of the quarters, as a part of the median.
        percent: f64,
    },
    /// No distance makes a difference.
    #[error("two reads at once take as long at any distance up to {up_to}: no parallel units show")]
    NoContrast {
        /// The longest distance.
        up_to: Bytes,
    },
    /// Reads wait for each other wherever they are.
    #[error("reads go one after the other, wherever they are")]
    Serial,
    /// There is something, but no stripe explains it.
    #[error("some distances are slower than others, but not as one stripe would have it")]
    Irregular,
    /// It depends on something that could not be told.
    #[error("it follows from the placement, which cannot be told")]
    NoPlacement,
    /// Nothing takes time.
    #[error("reads take no time that could be measured")]
    Instant,
    /// The probe was of an earlier version.
    #[error("the probe of an earlier version did not measure it")]
    NotMeasured,
}

/// The answer to what a probe of an earlier version did not ask.
fn not_measured<T>() -> Told<T> {
    Err(CannotTell::NotMeasured)
}

/// How consecutive data lies on the parallel units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Consecutive bytes on one unit: the die allocation granularity.
    pub granule: Bytes,
    /// Units that reads find parallel.
    pub units: u32,
}

impl Placement {
    /// The bytes after which the first unit has its turn again.
    #[must_use]
    pub fn stripe(&self) -> Bytes {
        Bytes(self.granule.0.saturating_mul(u64::from(self.units)))
    }

    /// Whether there can be such a drive: `--geometry` takes it.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let geometry = self.geometry();
        geometry.to_string().parse() == Ok(geometry)
    }

    /// The same as a geometry.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry::Striped {
            granule: self.granule,
            dies: self.units,
        }
    }
}

/// One step of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Depth, bytes of a request, or units.
    pub at: u64,
    /// Bytes that are read in a second.
    pub bytes_per_s: f64,
}

/// A sweep and the point from which more does not help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// In ascending order: medians of several passes.
    pub points: Vec<Point>,
    /// How far the passes were apart, where they were furthest, as a part of the median.
    pub apart: f64,
    /// The first point with nine tenths of the highest rate.
    pub knee: Told<u64>,
}

/// All that a probe found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// One read of 4 KiB alone.
    pub latency: Told<Nanos>,
    /// How data lies on the units.
    pub placement: Told<Placement>,
    /// The time for which a read of 4 KiB keeps its unit busy.
    pub service: Told<Nanos>,
    /// The time that a unit needs for each further KiB of a read.
    pub per_kib: Told<Nanos>,
    /// The time by which each further request of a read delays it, where it goes to a unit of its own.
    pub per_request: Told<Nanos>,
    /// The same of longer requests, in ascending order of their length.
    pub longer: Told<[Longer; KINDS]>,
    /// Where pages of the units end, and which units share a channel.
    #[serde(default = "not_measured")]
    pub inner: Told<Inner>,
    /// Bytes read in a second by large reads, many at a time.
    pub bandwidth: Told<u64>,
    /// One read of [`USUAL_READ`], contiguous.
    pub contiguous: Told<Nanos>,
    /// The same bytes in reads of 4 KiB at random places, all at once.
    pub scattered: Told<Nanos>,
    /// Random reads of 4 KiB over the number in flight.
    pub depths: Sweep,
    /// Consecutive reads over their size, 32 in flight: the knee of DoLF, in bytes of a fragment.
    pub sizes: Sweep,
    /// Reads of 4 KiB over the units that they go to: the knee of DoPF, in units.
    pub spread: Sweep,
}

impl Findings {
    /// No answer at all.
    #[must_use]
    pub fn nothing(why: CannotTell) -> Self {
        Self {
            latency: Err(why),
            placement: Err(why),
            service: Err(why),
            per_kib: Err(why),
            per_request: Err(why),
            longer: Err(why),
            inner: Err(why),
            bandwidth: Err(why),
            contiguous: Err(why),
            scattered: Err(why),
            depths: Sweep::none(why),
            sizes: Sweep::none(why),
            spread: Sweep::none(why),
        }
    }

    /// The geometry, where it was told.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        let placement = self.placement.as_ref().ok()?.value;
        Some(placement.geometry())
    }
}
/// Why a step ended without its answer.
enum Halt<E> {
    /// The drive failed.
    Failed(E),
    /// The step has no answer.
    Cannot(CannotTell),
}

impl<E> From<CannotTell> for Halt<E> {
    fn from(why: CannotTell) -> Self {
        Self::Cannot(why)
    }
}

/// The answer of a step, the drive's failure apart.
fn told<T, E>(step: Result<T, Halt<E>>) -> Result<Result<T, CannotTell>, E> {
    match step {
        Ok(value) => Ok(Ok(value)),
        Err(Halt::Cannot(why)) => Ok(Err(why)),
        Err(Halt::Failed(error)) => Err(error),
    }
}

/// What is known of a drive's reads before, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The part of a read's time that its unit is not busy for.
    outside: f64,
    /// The time by which each further request delays a read, on units of their own.
    further: f64,
    /// The time for which a read of a block keeps its unit busy.
    service: f64,
    /// The part of pairs that behave as the placement foretells.
    in_order: f64,
}

/// Reads that are done to find something out.
struct Prober<'a, D: Drive> {
    drive: &'a mut D,
    ground: Ground,
    draw: Draw,
    limit: Nanos,
    /// Where the pages of the drive differ: the mean time of a single read. The reads of a pair are then timed
    /// alone, too, and only what they take longer together counts.
    differing: Option<f64>,
}

impl<D: Drive> Prober<'_, D> {
    fn time(&mut self, reads: &[FileRange], depth: usize) -> Result<f64, Halt<D::Error>> {
        if self.drive.elapsed() > self.limit {
            return Err(CannotTell::TimeUp.into());
        }
        let time = self.drive.read(reads, depth).map_err(Halt::Failed)?;
        Ok(time.0 as f64)
    }

    fn place(&mut self, span: u64) -> Result<u64, CannotTell> {
        let place = self.ground.place(&mut self.draw, span);
        place.ok_or(CannotTell::NoGround)
    }

    fn around(&mut self, span: u64) -> Result<u64, CannotTell> {
        let place = self.ground.around(&mut self.draw, span);
        place.ok_or(CannotTell::NoGround)
    }
}

/// Find out what the drive is like.
///
/// # Errors
///
/// The drive failed, or the probe was cancelled.
pub fn probe<D: Drive>(drive: &mut D, ask: ProbeTerms) -> Result<Findings, D::Error> {
    let mut prober = Prober {
        drive,
        ground: ask.ground,
        draw: Draw::new(ask.seed),
        limit: ask.limit,
        differing: None,
    };
    let mut findings = Findings::nothing(CannotTell::TimeUp);
    prober.drive.begins(Phase::Latency);
    let single = match told(prober.single_reads())? {
        Ok(single) => single,
        Err(why) => return Ok(Findings::nothing(why)),
    };
    findings.latency = single.latency;
    prober.drive.begins(Phase::Speed);
    findings.contiguous = told(prober.contiguous())?;
    findings.scattered = told(prober.scattered())?;
    findings.sizes = told(prober.sizes())?.unwrap_or_else(Sweep::none);
    findings.bandwidth = findings.sizes.highest();
    prober.drive.begins(Phase::Placement);
    prober.limit = Nanos((ask.limit.0 as f64 * PLACEMENT) as u64);
    findings.placement = match ask.foreign > FOREIGN {
        true => Err(CannotTell::Foreign {
            percent: ask.foreign * 100.0,
        }),
        false => told(prober.placement(&single))?,
    };
    prober.limit = ask.limit;
    prober.drive.begins(Phase::Service);
    prober.on_units(findings.placement, &mut findings)?;
    prober.drive.begins(Phase::Depth);
    findings.depths = told(prober.depths())?.unwrap_or_else(Sweep::none);
    // Last: it only makes predictions better.
    prober.drive.begins(Phase::Inner);
    if let (Ok(placement), Ok(latency), Ok(service)) =
        (findings.placement, findings.latency, findings.service)
    {
        let further = findings.per_request.map_or(0.0, |told| told.value.0 as f64);
        let known = Known {
            outside: latency.value.0.saturating_sub(service.value.0) as f64,
            further,
            service: service.value.0 as f64,
            in_order: placement.confidence,
        };
        findings.inner = told(prober.inner(placement.value, known))?;
    }
    Ok(findings)
}

impl<D: Drive> Prober<'_, D> {
    /// Properties of the units, once they are known.
    fn on_units(
        &mut self,
        placement: Told<Placement>,
        findings: &mut Findings,
    ) -> Result<(), D::Error> {
        let Ok(placement) = placement else {
            let why = CannotTell::NoPlacement;
            findings.service = Err(why);
            findings.per_kib = Err(why);
            findings.per_request = Err(why);
            findings.longer = Err(why);
            findings.inner = Err(why);
            findings.spread = Sweep::none(why);
            return Ok(());
        };
        findings.service = told(self.service(placement.value, BLOCK))?;
        if let Ok(service) = &mut findings.service {
            // Reads that are not on one unit after all do not wait for each other.
            service.confidence = service.confidence.min(placement.confidence);
        }
        let placement = placement.value;
        findings.per_kib = told(self.per_kib(placement, &findings.service))?;
        findings.per_request = told(self.per_request(placement))?;
        findings.longer = told(self.longer())?;
        findings.spread = told(self.spread(placement))?.unwrap_or_else(Sweep::none);
        Ok(())
    }
}
