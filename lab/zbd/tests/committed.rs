//! The committed result (figures/zbd.json) and the exceptions of the code.

use figures::Record;
use zbd::{Disk, LAST_KNOWN, Verdict, excepted, may_be};

/// What became of a case, by the result; `None` without a row of it.
fn verdict_of(record: &Record, disk: Disk, number: u32) -> Option<Verdict> {
    let name = format!("case {number}");
    let mut rows = record.rows();
    let row = rows.find(|row| row.case == name && row.contender == disk.name())?;
    let mut all = Verdict::ALL.into_iter();
    all.find(|verdict| row.values[verdict.quantity()].median() > 0.0)
}

/// Every exception has its row on every disk, no other case of the result fails or is skipped, and the counts are
/// of these rows. That docs/flashd.md explains each of them is the business of the figures: a case that no page shows is
/// an error.
#[test]
fn the_committed_result_has_the_exceptions_and_no_others() {
    let file = source_tree::root().join("figures/zbd.json");
    let record = Record::read(&file).unwrap();
    for disk in Disk::ALL {
        let mut found = Vec::new();
        for number in 1..=LAST_KNOWN {
            let verdict = match verdict_of(&record, disk, number) {
                Some(verdict) => verdict,
                None if excepted().contains(&number) => panic!("{disk}: no row of case {number}"),
                None => Verdict::Pass,
            };
            assert!(
                may_be(disk, number, verdict),
                "{disk}: {number} {verdict:?}"
            );
            found.push(verdict);
        }
        let mut rows = record.rows();
        let suite = rows.find(|row| row.case == disk.name() && row.contender == "suite");
        let suite = suite.unwrap();
        let count = |quantity: &str| suite.values[quantity].median() as usize;
        for verdict in Verdict::ALL {
            let of_it = found.iter().filter(|it| **it == verdict).count();
            // A later fio has further cases.
            let further = count("cases") - LAST_KNOWN as usize;
            let counted = count(verdict.quantity());
            assert!(
                (of_it..=of_it + further).contains(&counted),
                "{disk}: {verdict:?}"
            );
        }
    }
}
