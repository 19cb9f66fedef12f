//! The result of a case, as the suite says it.

use std::{fmt, str::FromStr};

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `PASS`.
    Pass,
    /// `SKIP`: the suite found that the disk lacks what the case needs.
    Skip,
    /// `FAIL`.
    Fail,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pass, Self::Skip, Self::Fail];

    /// The quantity of figures/zbd.json that counts such cases.
    #[must_use]
    pub const fn quantity(self) -> &'static str {
        match self {
            Self::Pass => "passed",
            Self::Skip => "skipped",
            Self::Fail => "failed",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Skip => "SKIP",
            Self::Fail => "FAIL",
        }
    }
}

/// A case that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its number in the suite.
    pub number: u32,
    /// What became of it.
    pub verdict: Verdict,
    /// The seconds that it took.
    pub seconds: u32,
    /// Of a skip the suite's own reason; of a failure the result on null_blk.
    pub reason: String,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            verdict,
            seconds,
            reason,
        } = self;
        write!(f, "{number:2} {} {seconds} s {reason}", verdict.as_str())
    }
}

impl FromStr for Case {
    type Err = String;

    /// A line of `run.sh`: `CASE RESULT SECONDS REASON`.
    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (number, verdict, seconds) = (word(), word(), word());
        let wrong = || format!("no result of a case: '{line}'");
        let mut verdicts = Verdict::ALL.into_iter();
        Ok(Self {
            number: number.parse().map_err(|_| wrong())?,
            verdict: verdicts
                .find(|it| it.as_str() == verdict)
                .ok_or_else(wrong)?,
            seconds: seconds.parse().map_err(|_| wrong())?,
            reason: word().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_script_is_a_case() {
        let case: Case = "9 SKIP 2 the disk is not a SCSI device".parse().unwrap();
        assert_eq!((case.number, case.verdict), (9, Verdict::Skip));
        assert_eq!(
            case.to_string(),
            " 9 SKIP 2 s the disk is not a SCSI device"
        );
        let passed: Case = "12 PASS 30 ".parse().unwrap();
        assert_eq!((passed.seconds, passed.reason.as_str()), (30, ""));
        for line in ["", "12", "12 PASSED 1 ", "12 PASS soon "] {
            assert!(line.parse::<Case>().is_err(), "{line}");
        }
    }
}
