//! Recognise the format of a trace by its first lines.

use super::{blkparse, csv, format::Format, perf, strace};

impl Format {
    /// The format of a trace that begins so.
    #[must_use]
    pub fn detect(begin: &[u8]) -> Option<Self> {
        let first = begin
            .split(|byte| *byte == b'\n')
            .find(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"))?;
        if first.trim_ascii().starts_with(b"indef-profile ") {
            return Some(Self::Lines);
        }
        if first.starts_with(b"fio version ") {
            return Some(Self::Fio);
        }
        if first.starts_with(csv::HEADER_WITHOUT_AHEAD.as_bytes()) {
            return Some(Self::Csv);
        }
        // The others have no header: most of the first lines have to look like theirs.
        let votes = |is: fn(&[u8]) -> bool| begin.split(|b| *b == b'\n').filter(|l| is(l)).count();
        let candidates = [
            (votes(perf::is_line), Self::Perf),
            (votes(blkparse::is_line), Self::Blkparse),
            (votes(strace::is_line), Self::Strace),
        ];
        let best = candidates.into_iter().max_by_key(|(votes, _)| *votes)?;
        (best.0 > 0).then_some(best.1)
    }
}
