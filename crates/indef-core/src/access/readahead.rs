//! What the kernel's read-ahead makes of buffered reads.
//!
//! A profile is taken above the page cache, where a program's 4 KiB reads are seen although the
//! device gets 128 KiB requests. So, as FragPicker §4.1.2 does:
//!
//! - A buffered read that continues an earlier one of its file is *sequential*: it begins in the
//!   block where that one ended, or in the next. A read of the file's first byte is sequential from
//!   the start, as it is for the kernel (`page_cache_sync_ra`, mm/readahead.c, v6.12).
//! - A sequential read grows to the read-ahead window: it fetches at least `readahead` bytes, from
//!   where the previous window ended. Later reads of that stream inside the window are served from
//!   memory and do not count.
//! - Up to [`STREAMS`] sequential readers of one file are told apart, the least recent is forgotten.
//!
//! Ignored: the ramp-up of the window, thrashing, and what was in the cache already. The grown
//! window may reach behind the end of the file, whose size is not known here; planning cuts it.

use units::{Bytes, FileOffset};

use super::{AccessOptions, AccessRecord, Op};

/// Sequential readers of one file that are told apart.
const STREAMS: usize = 8;

/// One sequential reader.
#[derive(Clone, Copy)]
struct Stream {
    /// Where its latest read ended.
    next: u64,
    /// Where its latest window ended; what lies before it is in memory.
    window_end: u64,
}

/// Align all records and grow or remove reads. Records must be ordered by file, then time.
pub(super) fn apply(records: &mut Vec<AccessRecord>, options: &AccessOptions) {
    let mut file = None;
    let mut streams: Vec<Stream> = Vec::with_capacity(STREAMS);
    records.retain_mut(|record| {
        if file != Some(record.file) {
            file = Some(record.file);
            streams.clear();
        }
        let modelled = record.op == Op::Read && !record.direct && !options.readahead.is_zero();
        let counts = !modelled || read(record, &mut streams, options);
        align(record, options.block_size);
        counts
    });
}

/// Follow a buffered read; `false` if it is served from memory.
fn read(record: &mut AccessRecord, streams: &mut Vec<Stream>, options: &AccessOptions) -> bool {
    let (start, end) = (
        record.offset.0,
        record.offset.0.saturating_add(record.len.0),
    );
    let block = start / options.block_size.0;
    let continued = streams.iter().rposition(|s| {
        let last = s.next.saturating_sub(1) / options.block_size.0;
        block == last || block == last + 1
    });
    let mut stream = match continued {
        Some(at) => streams.remove(at),
        None => {
            if streams.len() == STREAMS {
                streams.remove(0);
            }
            Stream {
                next: end,
                window_end: start,
            }
        }
    };
    stream.next = end;
    let absorbed = continued.is_some() && end <= stream.window_end;
    if !absorbed {
        if continued.is_some() || start == 0 {
            let from = stream.window_end.max(start);
            let to = from.saturating_add(options.readahead.0).max(end);
            // The window is what the device is asked for: whole blocks.
            let to = FileOffset(to).align_down(options.block_size).0.max(end);
            record.offset = FileOffset(from);
            record.len = Bytes(to - from);
            stream.window_end = to;
        } else {
            stream.window_end = end;
        }
        stream.window_end = FileOffset(stream.window_end)
            .align_up(options.block_size)
            .0
            .max(stream.window_end);
    }
    streams.push(stream);
    !absorbed
}

fn align(record: &mut AccessRecord, block_size: Bytes) {
    let start = record.offset.align_down(block_size);
    let end = FileOffset(record.offset.0.saturating_add(record.len.0)).align_up(block_size);
    record.offset = start;
    record.len = Bytes(end.0.saturating_sub(start.0));
}
