//! The files of a run, condensed while they are read: sums of all, and the worst ones.

use std::{cmp::Reverse, collections::BTreeMap, fmt};

use indef_core::SkipReason;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};

use crate::document::{FileStatus, RunFile};

/// What a report needs of a run's files, however many there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Digest {
    /// How many files to keep.
    top: usize,
    pub(super) files: u64,
    pub(super) extents_before: u64,
    pub(super) extents_after: u64,
    /// Of files that moved.
    pub(super) moved_before: u64,
    pub(super) moved_after: u64,
    /// Files with something worth moving, and its bytes.
    pub(super) planned_files: u64,
    pub(super) planned_bytes: u64,
    /// Files of which something is left to do.
    pub(super) unfinished: u64,
    /// Files that were left alone, by reason.
    pub(super) left_alone: BTreeMap<SkipReason, u64>,
    /// Why the first of those that have as many extents as before has them.
    pub(super) why_no_fewer: Option<&'static str>,
    worst: Vec<RunFile>,
}

impl Digest {
    /// Of no file yet; the `top` worst are kept.
    pub(super) fn new(top: usize) -> Self {
        Self {
            top,
            ..Self::default()
        }
    }

    /// Of these files.
    pub(super) fn of(files: &[RunFile], top: usize) -> Self {
        let mut digest = Self::new(top);
        for file in files {
            digest.count(file);
        }
        let mut worst: Vec<&RunFile> = files.iter().collect();
        worst.sort_by_key(|file| rank(file));
        digest.worst = worst.into_iter().take(top).cloned().collect();
        digest
    }

    fn count(&mut self, file: &RunFile) {
        // Whoever wrote the document may have written anything.
        let add = |sum: &mut u64, value: u64| *sum = sum.saturating_add(value);
        self.files += 1;
        add(&mut self.extents_before, file.extents_before);
        add(&mut self.extents_after, file.extents_after);
        if file.status == FileStatus::Moved {
            add(&mut self.moved_before, file.extents_before);
            add(&mut self.moved_after, file.extents_after);
            self.why_no_fewer = self.why_no_fewer.or(file.why_no_fewer());
        }
        if let Some(reason) = file.skip_reason() {
            *self.left_alone.entry(reason).or_default() += 1;
        }
        let is_left = file.reason.as_deref() == Some(SkipReason::Stopped.as_str());
        self.unfinished += u64::from(is_left);
        if file.bytes_planned > 0 {
            self.planned_files += 1;
            add(&mut self.planned_bytes, file.bytes_planned);
        }
    }

    fn add(&mut self, file: RunFile) {
        self.count(&file);
        self.worst.push(file);
        if self.worst.len() > self.top.saturating_mul(2) {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.worst.sort_by_key(rank);
        self.worst.truncate(self.top);
    }

    /// The worst files: failures first, then those that moved, the most fragmented ones first.
    pub(super) fn worst(&self) -> &[RunFile] {
        &self.worst
    }

    /// How many files are not among them.
    pub(super) fn left_out(&self) -> u64 {
        self.files - self.worst.len() as u64
    }
}

fn rank(file: &RunFile) -> (u8, Reverse<u64>) {
    let status = match file.status {
        FileStatus::Failed => 0,
        FileStatus::Moved => 1,
        FileStatus::Skipped => 2,
    };
    (status, Reverse(file.extents_before))
}

/// Reads the list of files of a document.
impl<'de> DeserializeSeed<'de> for Digest {
    type Value = Self;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Digest {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the files of a run")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut files: A) -> Result<Self, A::Error> {
        while let Some(file) = files.next_element::<RunFile>()? {
            self.add(file);
        }
        self.shorten();
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_numbers_of_a_document_do_no_harm() {
        let file = format!(
            r#"{{"path":"a","fs":"ext4","engine":null,"status":"moved","reason":null,"extents_before":{most},
            "extents_after":{most},"bytes_planned":{most},"bytes_relocated":{most},"bytes_host_read":0,
            "bytes_host_written":0,"bytes_offloaded":0}}"#,
            most = u64::MAX
        );
        let text = format!("[{file},{file}]");
        let mut files = serde_json::Deserializer::from_str(&text);
        let digest = Digest::new(1).deserialize(&mut files).unwrap();
        assert_eq!((digest.files, digest.left_out()), (2, 1));
        let sums = [
            digest.extents_before,
            digest.moved_after,
            digest.planned_bytes,
        ];
        assert_eq!(sums, [u64::MAX; 3]);
    }
}
