//! Merging of overlapping requests (FragPicker Algorithm 1; InDeF §III-A: "preserves the largest
//! address range").

use units::{FileOffset, FileRange};

use super::{AccessRange, AccessRecord, FileAccesses, Op};

/// Merge records that are ordered by file, then offset. Requests that only touch stay apart: each is
/// a request of its own for the device.
pub(super) fn merge(records: &[AccessRecord]) -> FileAccesses {
    // Counted first, so that the result is allocated once: at ten million records the doubling of a
    // growing vector would be the peak of the program's memory.
    let mut count = 0;
    windows(records, |_, _| count += 1);
    let mut merged = FileAccesses {
        files: Vec::new(),
        ranges: Vec::with_capacity(count),
    };
    windows(records, |file, range| {
        merged.ranges.push(range);
        let end = merged.ranges.len();
        match merged.files.last_mut() {
            Some(last) if last.0 == file => last.1 = end,
            _ => merged.files.push((file, end)),
        }
    });
    merged
}

/// Call `emit` with each overlap window.
fn windows(records: &[AccessRecord], mut emit: impl FnMut(u32, AccessRange)) {
    let mut window: Option<(u32, AccessRange)> = None;
    for record in records {
        let end = record.offset.0.saturating_add(record.len.0);
        match &mut window {
            Some((file, merged)) if *file == record.file && record.offset < merged.range.end() => {
                let widest = merged.range.end().max(FileOffset(end));
                merged.range = FileRange::between(merged.range.start, widest);
                count(merged, record.op);
            }
            _ => {
                if let Some((file, done)) = window.take() {
                    emit(file, done);
                }
                let mut fresh = AccessRange {
                    range: FileRange::between(record.offset, FileOffset(end)),
                    ..AccessRange::default()
                };
                count(&mut fresh, record.op);
                window = Some((record.file, fresh));
            }
        }
    }
    if let Some((file, done)) = window {
        emit(file, done);
    }
}

fn count(range: &mut AccessRange, op: Op) {
    match op {
        Op::Read => range.reads += 1,
        Op::Write => range.writes += 1,
    }
}
