//! How many files were left alone, by reason.

use std::collections::BTreeMap;

use serde::Serialize;

/// Reasons that are kept apart: several times as many as any version has.
const MOST: usize = 200;
/// The longest word for a reason.
const LONGEST: usize = 64;
/// The word for all others.
const OTHER: &str = "other";
/// Reasons that say that nothing is to be done, and so refuse nothing.
const NO_REFUSAL: [&str; 3] = ["contiguous", "empty", "inline"];

/// Files by reason. Words that this version does not know are kept, within bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Reasons(BTreeMap<String, u64>);

impl Reasons {
    /// Of the `skipped` of a document.
    pub(super) fn of(skipped: &BTreeMap<String, u64>) -> Self {
        let mut reasons = Self::default();
        reasons.add_all(
            skipped
                .iter()
                .map(|(reason, files)| (reason.as_str(), *files)),
        );
        reasons
    }

    pub(super) fn add(&mut self, reason: &str, files: u64) {
        let is_word = (1..=LONGEST).contains(&reason.len()) && reason.chars().all(is_of_a_word);
        let is_kept = is_word && (self.0.len() < MOST || self.0.contains_key(reason));
        let reason = if is_kept { reason } else { OTHER };
        match self.0.get_mut(reason) {
            Some(sum) => *sum = sum.saturating_add(files),
            None => {
                self.0.insert(reason.to_owned(), files);
            }
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.add_all(
            other
                .0
                .iter()
                .map(|(reason, files)| (reason.as_str(), *files)),
        );
    }

    fn add_all<'a>(&mut self, reasons: impl Iterator<Item = (&'a str, u64)>) {
        for (reason, files) in reasons {
            self.add(reason, files);
        }
    }

    /// The most frequent refusals, first the one of most files.
    pub(super) fn refusals(&self, most: usize) -> Vec<(&str, u64)> {
        let reasons = self
            .0
            .iter()
            .map(|(reason, files)| (reason.as_str(), *files));
        let mut refusals: Vec<_> = reasons
            .filter(|(reason, files)| *files > 0 && !NO_REFUSAL.contains(reason))
            .collect();
        refusals.sort_by_key(|(_, files)| std::cmp::Reverse(*files));
        refusals.truncate(most);
        refusals
    }
}

/// Whoever wrote the document, a word moves no cursor.
fn is_of_a_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_are_kept_within_bounds() {
        let mut reasons = Reasons::default();
        for n in 0..10_000 {
            reasons.add(&format!("reason-{n}"), 1);
        }
        reasons.add(&"x".repeat(1000), 4);
        reasons.add("\u{1b}[31m", 1);
        reasons.add("reason-0", u64::MAX);
        assert_eq!(reasons.0.len(), MOST + 1);
        assert_eq!(reasons.0[OTHER], 10_000 - MOST as u64 + 5);
        assert_eq!(reasons.0["reason-0"], u64::MAX);
    }

    #[test]
    fn what_needs_nothing_is_no_refusal() {
        let mut reasons = Reasons::default();
        reasons.add("contiguous", 9000);
        reasons.add("swap-file", 1);
        reasons.add("no-space", 3);
        assert_eq!(reasons.refusals(3), [("no-space", 3), ("swap-file", 1)]);
        assert_eq!(reasons.refusals(1), [("no-space", 3)]);
    }
}
