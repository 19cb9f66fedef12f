//! Whether defragmenting can gain anything on a drive.

use super::{CannotTell, Findings, Placement, ReadModel, USUAL_READ};

/// A smaller loss is none.
const LITTLE: f64 = 1.1;

/// The answer to "what would defragmenting gain here", for a read of [`USUAL_READ`] in blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Fragments cost time, the more of it the fewer units they are on.
    Gains {
        /// How many times as long as contiguous it takes on average, if its blocks lie anywhere.
        scattered: f64,
        /// The same if they all lie on one unit.
        worst: f64,
        /// How data lies on the units.
        placement: Placement,
    },
    /// It takes as long as a contiguous one, wherever the blocks are.
    Nothing {
        /// How many times as long it takes.
        scattered: f64,
    },
    /// The placement cannot be told.
    CannotTell {
        /// How many times as long as contiguous it takes if its blocks lie anywhere, where that was
        /// measured.
        scattered: Option<f64>,
        /// Why not more can be told.
        why: CannotTell,
    },
}

impl Verdict {
    /// The verdict of these findings.
    #[must_use]
    pub fn of(findings: &Findings) -> Self {
        let ratio = |a: f64, b: f64| a / b.max(1.0);
        let contiguous = findings.contiguous.map(|told| told.value.0 as f64);
        let scattered = match (findings.scattered, contiguous) {
            (Ok(scattered), Ok(contiguous)) => Some(ratio(scattered.value.0 as f64, contiguous)),
            _ => None,
        };
        let model = ReadModel::of(findings);
        match (scattered, contiguous, model) {
            (Some(scattered), Ok(contiguous), Ok(model)) => {
                let blocks = (USUAL_READ.0 / super::BLOCK) as f64;
                let worst = model.latency_ns() + (blocks - 1.0) * model.service_ns;
                let worst = ratio(worst, contiguous);
                match worst.max(scattered) < LITTLE {
                    true => Self::Nothing { scattered },
                    false => Self::Gains {
                        scattered,
                        worst,
                        placement: model.placement,
                    },
                }
            }
            // Without units that show, there is no worse place than any. What was not found out for
            // another reason may have one: all blocks on one unit.
            (Some(scattered), _, Err(CannotTell::NoContrast { .. })) if scattered < LITTLE => {
                Self::Nothing { scattered }
            }
            (scattered, _, model) => Self::CannotTell {
                scattered,
                why: findings
                    .placement
                    .err()
                    .or(model.err())
                    .or(findings.contiguous.err())
                    .or(findings.scattered.err())
                    .unwrap_or(CannotTell::TimeUp),
            },
        }
    }

    /// Its kind, as JSON names it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Gains { .. } => "gains",
            Self::Nothing { .. } => "nothing-to-gain",
            Self::CannotTell { .. } => "cannot-tell",
        }
    }
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Nanos};

    use super::{super::Measured, *};

    /// Scattered blocks take as long as contiguous ones, and there is no placement for this reason.
    fn without_placement(why: CannotTell) -> Findings {
        let time = Ok(Measured {
            value: Nanos(100_000),
            confidence: 0.9,
        });
        Findings {
            latency: time,
            contiguous: time,
            scattered: time,
            ..Findings::nothing(why)
        }
    }

    #[test]
    fn only_a_drive_without_units_has_nothing_to_gain_without_a_placement() {
        let up_to = Bytes::mib(32);
        let none = without_placement(CannotTell::NoContrast { up_to });
        assert_eq!(Verdict::of(&none), Verdict::Nothing { scattered: 1.0 });
        for why in [
            CannotTell::TimeUp,
            CannotTell::NoGround,
            CannotTell::Irregular,
            CannotTell::Noise { percent: 200.0 },
            CannotTell::Foreign { percent: 10.0 },
        ] {
            let scattered = Some(1.0);
            let expected = Verdict::CannotTell { scattered, why };
            assert_eq!(Verdict::of(&without_placement(why)), expected);
        }
    }
}
