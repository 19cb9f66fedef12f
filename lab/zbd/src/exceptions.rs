//! The cases that do not pass.

use std::collections::BTreeSet;

use crate::{Case, Disk, Verdict};

/// Cases that do not pass on these disks, with the reason that the suite gives for a skip, or with their
/// result on null_blk.
struct Exception {
    disks: &'static [Disk],
    verdict: Verdict,
    reason: &'static str,
    cases: &'static [u32],
}

const ZONED: &[Disk] = &[Disk::Whole, Disk::Limited];
const REGULAR: &[Disk] = &[Disk::Regular];

/// All others pass.
static EXCEPTIONS: [Exception; 7] = [
    Exception {
        disks: &Disk::ALL,
        verdict: Verdict::Skip,
        reason: "the disk is not a SCSI device",
        cases: &[9, 10],
    },
    Exception {
        disks: &Disk::ALL,
        verdict: Verdict::Skip,
        reason: "the disk does not have enough conventional zones",
        cases: &[14],
    },
    Exception {
        disks: ZONED,
        verdict: Verdict::Skip,
        reason: "the disk does not have 8 conventional zones",
        cases: &[50, 51, 52],
    },
    Exception {
        disks: ZONED,
        verdict: Verdict::Skip,
        reason: "the disk does not have 4 conventional zones",
        cases: &[53],
    },
    Exception {
        disks: ZONED,
        verdict: Verdict::Skip,
        reason: "the disk is not a regular block device",
        cases: &[42, 43, 49, 56],
    },
    Exception {
        disks: REGULAR,
        verdict: Verdict::Skip,
        reason: "the disk is not a zoned block device",
        cases: &[32, 39, 40, 41, 45, 48, 50, 51, 52, 53, 54, 55, 57],
    },
    Exception {
        disks: ZONED,
        verdict: Verdict::Fail,
        reason: "null_blk: FAIL",
        cases: &[54],
    },
];

/// The last case of fio 3.33, of which these lists are. A later version's further cases may not pass
/// for the same reasons.
pub const LAST_KNOWN: u32 = 58;

/// The numbers of all cases that do not pass on one of the disks.
#[must_use]
pub fn excepted() -> BTreeSet<u32> {
    let cases = EXCEPTIONS.iter().flat_map(|it| it.cases);
    cases.copied().collect()
}

/// Whether a case may have this verdict on this disk, for whatever reason.
#[must_use]
pub fn may_be(disk: Disk, number: u32, verdict: Verdict) -> bool {
    match on(disk).find(|exception| exception.cases.contains(&number)) {
        // A case that fails on null_blk may pass where the machine is slow.
        Some(exception) if exception.verdict == Verdict::Fail => verdict != Verdict::Skip,
        Some(exception) => verdict == exception.verdict,
        None => verdict == Verdict::Pass,
    }
}

/// Whether a case has passed, or is excepted on this disk, with this verdict for this reason.
#[must_use]
pub fn is_expected(disk: Disk, case: &Case) -> bool {
    let is_same = |found: &Exception| case.verdict == found.verdict && case.reason == found.reason;
    if case.verdict == Verdict::Pass {
        return case.number > LAST_KNOWN || may_be(disk, case.number, case.verdict);
    }
    let has_case = |found: &Exception| found.cases.contains(&case.number);
    on(disk).any(|found| is_same(found) && (has_case(found) || case.number > LAST_KNOWN))
}

fn on(disk: Disk) -> impl Iterator<Item = &'static Exception> {
    EXCEPTIONS.iter().filter(move |it| it.disks.contains(&disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_expected_of(disk: Disk, number: u32, verdict: Verdict, reason: &str) -> bool {
        let case = Case {
            number,
            verdict,
            seconds: 1,
            reason: reason.to_owned(),
        };
        is_expected(disk, &case)
    }

    #[test]
    fn only_what_is_excepted_may_not_pass() {
        use Disk::{Limited, Regular, Whole};
        use Verdict::{Fail, Pass, Skip};
        let scsi = "the disk is not a SCSI device";
        assert!(is_expected_of(Whole, 1, Pass, ""));
        assert!(!is_expected_of(Whole, 1, Fail, "null_blk: FAIL"));
        assert!(!is_expected_of(Whole, 1, Skip, scsi));
        assert!(is_expected_of(Whole, 9, Skip, scsi));
        assert!(!is_expected_of(Whole, 9, Skip, "sg is gone"));
        assert!(!is_expected_of(Whole, 9, Pass, ""));
        // Of all failures this one, and only if null_blk has it, too.
        assert!(is_expected_of(Limited, 54, Fail, "null_blk: FAIL"));
        assert!(is_expected_of(Limited, 54, Pass, ""));
        assert!(!is_expected_of(Limited, 54, Fail, "null_blk: PASS"));
        assert!(!is_expected_of(Regular, 54, Fail, "null_blk: FAIL"));
        // What a later fio has.
        assert!(is_expected_of(Whole, LAST_KNOWN + 1, Skip, scsi));
        assert!(!is_expected_of(
            Whole,
            LAST_KNOWN + 1,
            Fail,
            "null_blk: PASS"
        ));
    }
}
