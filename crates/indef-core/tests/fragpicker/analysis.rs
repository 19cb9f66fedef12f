//! FragPicker's published analysis, compared with ours on the same trace.
//!
//! The published analysis was written anew from the description (SOSP 2021, §4.1.2 and Algorithm 1)
//! and from the behaviour of its scripts (`processing.py`, `merge.py`), with a switch of its own
//! for each place where it goes wrong. With all switches off it must find the same ranges and
//! counts as ours, whatever the trace; so every difference is explained by the switches, and by
//! nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use indef_core::{
    access::{AccessOptions, AccessRecord, Op, ranges},
    profile::Profile,
};
use proptest::prelude::*;
use units::{Bytes, FileOffset, Nanos};

const BLOCK: u64 = 4096;
const READAHEAD: u64 = 128 << 10;
/// Number of readers of one file that our analysis distinguishes.
const READERS: usize = 8;

/// The faults of the published analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Defect {
    /// The direction of an access is not kept, so buffered writes are widened like reads.
    WritesReadAhead,
    /// The end of an access is not rounded up to a block: `end % 4096 − 1` is added to it.
    EndMisaligned,
    /// A continued read is recognised by its aligned place, so readers of sizes that are no blocks
    /// are taken for random ones.
    SequenceByBlocks,
    /// One reader is kept for each file, and every access to the file replaces it.
    OneReader,
    /// The read that turns out to be the first of a series is not widened, only the second is.
    FirstReadAlone,
    /// A read that leaves its window opens the next one where the read begins, not where the window
    /// ended: the two overlap, and are merged.
    WindowFromRead,
    /// Algorithm 1 as printed: the count goes on from one window to the next.
    CountNotReset,
    /// Algorithm 1 as printed: the window under way at the end is never stored.
    LastWindowLost,
}

use Defect::{
    CountNotReset, EndMisaligned, FirstReadAlone, LastWindowLost, OneReader, SequenceByBlocks,
    WindowFromRead, WritesReadAhead,
};

/// The faults of the scripts.
const SCRIPTS: [Defect; 6] = [
    WritesReadAhead,
    EndMisaligned,
    SequenceByBlocks,
    OneReader,
    FirstReadAlone,
    WindowFromRead,
];

/// The faults of the algorithm as printed in the paper.
const PRINTED: [Defect; 2] = [CountNotReset, LastWindowLost];

/// Start, end and count of each range of each file.
type Ranges = BTreeMap<u32, Vec<(u64, u64, u64)>>;

/// A reader that may be sequential.
#[derive(Clone, Copy)]
struct Reader {
    /// The end of its latest read: as requested, and aligned.
    asked_to: u64,
    aligned_to: u64,
    /// The end of its window.
    window_end: u64,
    /// Its only entry so far.
    first: Option<usize>,
}

/// The published analysis of one file, with these defects.
struct Published<'a> {
    defects: &'a [Defect],
    readers: Vec<Reader>,
    /// Start and end of the accesses that reach the device.
    entries: Vec<(u64, u64)>,
}

impl Published<'_> {
    fn has(&self, defect: Defect) -> bool {
        self.defects.contains(&defect)
    }

    fn access(&mut self, record: &AccessRecord) {
        let (asked, asked_to) = (record.offset.0, record.offset.0 + record.len.0);
        let start = asked - asked % BLOCK;
        let end = self.aligned_end(asked_to);
        let buffered_read = !record.direct && record.op == Op::Read;
        let widened = buffered_read || (!record.direct && self.has(WritesReadAhead));
        if !widened {
            if self.has(OneReader) {
                self.readers = vec![Reader {
                    asked_to,
                    aligned_to: end,
                    window_end: 0,
                    first: None,
                }];
            }
            self.entries.push((start, end));
            return;
        }
        let continued = self.readers.iter().rposition(|reader| {
            if self.has(SequenceByBlocks) {
                reader.aligned_to == start
            } else {
                let to = reader.asked_to;
                (to..=to.next_multiple_of(BLOCK)).contains(&asked)
            }
        });
        match continued {
            Some(at) => self.continues(at, (start, end), asked_to, record.len.0),
            None => {
                if self.has(OneReader) {
                    self.readers.clear();
                } else if self.readers.len() == READERS {
                    self.readers.remove(0);
                }
                self.readers.push(Reader {
                    asked_to,
                    aligned_to: end,
                    window_end: end,
                    first: Some(self.entries.len()),
                });
                self.entries.push((start, end));
            }
        }
    }

    /// Handle a read that begins at the end of reader `at`.
    fn continues(&mut self, at: usize, (start, end): (u64, u64), asked_to: u64, len: u64) {
        let mut reader = self.readers.remove(at);
        (reader.asked_to, reader.aligned_to) = (asked_to, end);
        if let Some(first) = reader.first.take()
            && !self.has(FirstReadAlone)
        {
            let entry = &mut self.entries[first];
            entry.1 = entry.1.max(entry.0 + READAHEAD);
            reader.window_end = entry.1;
        }
        // Bytes decide, not blocks: a read that ends in the window's last block is inside.
        let inside = match self.has(SequenceByBlocks) {
            true => end <= reader.window_end,
            false => asked_to <= reader.window_end,
        };
        if !inside {
            let (from, to) = if self.has(WindowFromRead) {
                let whole = if len <= READAHEAD {
                    start + READAHEAD
                } else {
                    end
                };
                (start, whole)
            } else {
                let from = reader.window_end;
                let to = (from + READAHEAD).max(asked_to);
                (from, to.next_multiple_of(BLOCK))
            };
            self.entries.push((from, to));
            reader.window_end = to;
        }
        self.readers.push(reader);
    }

    /// Ends here are past the last byte; in the scripts they are the last byte itself.
    fn aligned_end(&self, asked_to: u64) -> u64 {
        if !self.has(EndMisaligned) {
            return asked_to.next_multiple_of(BLOCK);
        }
        let last = asked_to - 1;
        match asked_to % BLOCK {
            0 => asked_to,
            _ => last + last % BLOCK,
        }
    }

    /// Algorithm 1.
    fn merged(mut self) -> Vec<(u64, u64, u64)> {
        let entries = std::mem::take(&mut self.entries);
        let mut entries: Vec<_> = entries.into_iter().filter(|(from, to)| to > from).collect();
        entries.sort_unstable();
        let mut stored = Vec::new();
        let mut window: Option<(u64, u64, u64)> = None;
        for (start, end) in entries {
            match &mut window {
                Some((_, window_end, count)) if start < *window_end => {
                    *count += 1;
                    *window_end = end.max(*window_end);
                }
                _ => {
                    let last = window.map_or(0, |(_, _, count)| count);
                    stored.extend(window);
                    let before = if self.has(CountNotReset) { last } else { 0 };
                    window = Some((start, end, before + 1));
                }
            }
        }
        if !self.has(LastWindowLost) {
            stored.extend(window);
        }
        stored
    }
}

fn published(records: &[AccessRecord], defects: &[Defect]) -> Ranges {
    let mut files: BTreeMap<u32, Published<'_>> = BTreeMap::new();
    let mut ordered = records.to_vec();
    ordered.sort_by_key(|record| record.time);
    for record in &ordered {
        let file = files.entry(record.file).or_insert_with(|| Published {
            defects,
            readers: Vec::new(),
            entries: Vec::new(),
        });
        file.access(record);
    }
    let mut found: Ranges = files
        .into_iter()
        .map(|(file, of)| (file, of.merged()))
        .collect();
    found.retain(|_, ranges| !ranges.is_empty());
    found
}

/// Our analysis, with ranges of any length (`longest` 0), or cut.
fn ours(records: &[AccessRecord], longest: Bytes) -> Ranges {
    let options = AccessOptions {
        max_range: longest,
        ..AccessOptions::default()
    };
    let found = ranges(records.to_vec(), &options);
    let of = |range: &indef_core::access::AccessRange| {
        let count = range.reads + range.writes;
        (range.range.start.0, range.range.end().0, count)
    };
    found
        .iter()
        .map(|(file, ranges)| (file, ranges.iter().map(of).collect()))
        .collect()
}

/// The ranges that two analyses do not have in common.
#[derive(Default, PartialEq, Eq)]
struct Difference {
    files: usize,
    ranges: usize,
    bytes: u64,
}

impl Difference {
    fn between(a: &Ranges, b: &Ranges) -> Self {
        let mut difference = Self::default();
        let files: BTreeSet<u32> = a.keys().chain(b.keys()).copied().collect();
        for file in files {
            let of = |all: &Ranges| -> BTreeSet<(u64, u64, u64)> {
                all.get(&file).into_iter().flatten().copied().collect()
            };
            let (a, b) = (of(a), of(b));
            let apart = a.symmetric_difference(&b).count();
            let bytes = |set: &BTreeSet<(u64, u64, u64)>| -> u64 {
                set.iter().map(|(start, end, _)| end - start).sum()
            };
            difference.files += usize::from(apart > 0);
            difference.ranges += apart;
            difference.bytes += bytes(&a).abs_diff(bytes(&b));
        }
        difference
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            files,
            ranges,
            bytes,
        } = self;
        write!(
            f,
            "{ranges} ranges of {files} files, {bytes} bytes more or less"
        )
    }
}

/// The trace of sqlite3, grep, tail and others: see the head of its file.
fn recorded() -> Vec<AccessRecord> {
    let text = include_bytes!("../traces/applications.profile");
    Profile::read(&text[..]).expect("a profile").records
}

#[test]
fn without_its_defects_the_published_analysis_finds_what_we_find() {
    let records = recorded();
    assert_eq!(published(&records, &[]), ours(&records, Bytes::ZERO));
}

#[test]
fn every_difference_on_the_recorded_trace_has_a_name() {
    let records = recorded();
    let right = ours(&records, Bytes::ZERO);
    let all: Vec<Defect> = SCRIPTS.into_iter().chain(PRINTED).collect();
    println!("of {} ranges:", right.values().map(Vec::len).sum::<usize>());
    println!(
        "  all together: {}",
        Difference::between(&right, &published(&records, &all))
    );
    for defect in &all {
        let alone = Difference::between(&right, &published(&records, &[*defect]));
        println!("  {defect:?} alone: {alone}");
        assert!(
            alone != Difference::default(),
            "{defect:?} shows nowhere in this trace"
        );
    }
    // Repaired one after the other, nothing is left.
    let mut left = all.clone();
    while let Some(repaired) = left.pop() {
        let difference = Difference::between(&right, &published(&records, &left));
        println!("  {repaired:?} repaired, too: {difference}");
    }
    assert_eq!(published(&records, &left), right);
    // Where no defect changes anything, all of them together do not, either.
    let wrong = published(&records, &all);
    for file in right.keys() {
        let touched = all
            .iter()
            .any(|defect| published(&records, &[*defect]).get(file) != right.get(file));
        assert!(touched || wrong.get(file) == right.get(file), "file {file}");
    }
}

/// The one place where our analysis differs on purpose: a chain of overlapping requests of
/// different places is cut, because one sum for all of it does not tell which part is hot.
#[test]
fn chains_are_cut_and_nothing_else_is() {
    let records = recorded();
    let (whole, cut) = (ours(&records, Bytes::ZERO), ours(&records, Bytes::kib(256)));
    for (file, whole) in &whole {
        let cut = &cut[file];
        for (start, end, count) in whole {
            let pieces: Vec<_> = cut
                .iter()
                .filter(|p| p.0 >= *start && p.1 <= *end)
                .collect();
            assert!(pieces.iter().all(|p| p.2 <= *count), "{file} {start}");
            assert_eq!(pieces.iter().map(|p| p.1 - p.0).sum::<u64>(), end - start);
            if pieces.len() == 1 {
                assert_eq!(*pieces[0], (*start, *end, *count));
            }
        }
    }
}

fn any_records() -> impl Strategy<Value = Vec<AccessRecord>> {
    // Readers that continue, jump, and mix; sizes that are blocks and sizes that are not.
    let step = (0u32..3, 0usize..4, 0u8..10, 1u64..60, any::<bool>());
    prop::collection::vec(step, 0..120).prop_map(|steps| {
        let mut places = [[0u64; 4]; 3];
        let mut build = |(time, (file, reader, kind, size, blocks)): (usize, _)| {
            let (file, reader, kind, size): (u32, usize, u8, u64) = (file, reader, kind, size);
            let place = &mut places[file as usize][reader];
            if kind == 0 {
                *place = size * 40_961;
            }
            let len = if blocks { size * BLOCK } else { size * 777 };
            let offset = *place;
            *place += len;
            AccessRecord {
                file,
                offset: FileOffset(offset),
                len: Bytes(len),
                op: if kind == 1 { Op::Write } else { Op::Read },
                direct: kind == 2,
                time: Nanos(time as u64),
            }
        };
        steps.into_iter().enumerate().map(&mut build).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_its_defects_it_agrees_with_us_on_any_trace(records in any_records()) {
        prop_assert_eq!(published(&records, &[]), ours(&records, Bytes::ZERO));
    }
}
