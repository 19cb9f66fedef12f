//! A model of the kernel's read-ahead for buffered reads.
//!
//! A profile is taken above the page cache, where a program's 4 KiB reads are seen although the
//! device gets 128 KiB requests. So, as FragPicker §4.1.2 does:
//!
//! - A buffered read that begins where an earlier one of its file ended (or after it, in the rest of
//!   the same block) is *sequential*.
//! - A sequential reader fetches windows of `readahead` bytes, one after the other. The first one
//!   begins where the reader began: the read that turned out to be the first of a series is widened.
//! - Reads inside a window are served from memory and do not count; the first that reaches past it
//!   stands for the next window.
//! - Up to [`STREAMS`] sequential readers of one file are told apart; the least recent is forgotten.
//!
//! A single small read is never widened, however often it is repeated. `O_DIRECT` reads and writes
//! are only aligned.
//!
//! Left out: the ramp-up of the window, thrashing, pages that were in the cache already, and
//! `POSIX_FADV_RANDOM`. A window may reach past the end of the file, whose size is not known here;
//! planning cuts it.

use std::collections::HashMap;

use units::{Bytes, FileOffset};

use super::record::{AccessOptions, AccessRecord, Op};

/// Number of sequential readers of one file that are distinguished. The kernel keeps one state for
/// each open file; a profile does not tell which open file was used.
const STREAMS: usize = 8;

/// Number of files whose readers are remembered from one batch of records to the next.
const FILES: usize = 64 << 10;

/// One sequential reader.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where its latest read ended.
    next: u64,
    /// Where its latest window ended; the bytes before it are in memory. On a block boundary.
    window_end: u64,
    /// Its only record so far, until a read continues it.
    first: Option<usize>,
}

/// The model over a trace that comes in batches: sequential readers are followed from one batch to
/// the next. Where a batch ends between the first read of a series and its second, the first is not
/// widened.
#[derive(Debug)]
pub struct ReadAhead {
    options: AccessOptions,
    /// Read-ahead of single files, where it is not that of the options.
    windows: HashMap<u32, Bytes>,
    /// The readers of a file, the most recent one last.
    streams: HashMap<u32, Vec<Stream>>,
}

impl ReadAhead {
    /// A model without any readers.
    #[must_use]
    pub fn new(options: &AccessOptions) -> Self {
        Self {
            options: AccessOptions {
                block_size: Bytes(options.block_size.0.max(1)),
                ..*options
            },
            windows: HashMap::new(),
            streams: HashMap::new(),
        }
    }

    /// Model a file with read-ahead of its own, that of its device.
    pub fn set_window(&mut self, file: u32, readahead: Bytes) {
        self.windows.insert(file, readahead);
    }

    /// Turn accesses into the ranges that they fetch: all are aligned to blocks, some widened, some
    /// removed. The result is ordered by file, then time; no batch may begin earlier than the last
    /// one ended.
    pub fn apply(&mut self, records: &mut Vec<AccessRecord>) {
        records.retain(|r| !r.len.is_zero());
        records.sort_unstable_by_key(|r| (r.file, r.time, r.offset, r.len, r.op, r.direct));
        self.follow(records);
    }

    fn follow(&mut self, records: &mut Vec<AccessRecord>) {
        if self.streams.len() > FILES {
            self.streams.clear();
        }
        let options = &self.options;
        let mut model = Model {
            options,
            readahead: options.readahead,
            streams: Vec::with_capacity(STREAMS),
        };
        let mut file = None;
        // Records before `kept` are results, those from `next` on are not yet processed.
        let mut kept = 0;
        for next in 0..records.len() {
            let mut record = records[next];
            if file != Some(record.file) {
                model.change(&mut self.streams, file, Some(record.file));
                file = Some(record.file);
                let own = self.windows.get(&record.file).copied();
                model.readahead = own.unwrap_or(options.readahead);
            }
            let modelled = record.op == Op::Read && !record.direct && !model.readahead.is_zero();
            if modelled && !model.read(&mut record, &mut records[..kept], kept) {
                continue;
            }
            records[kept] = aligned(record, options.block_size);
            kept += 1;
        }
        model.change(&mut self.streams, file, None);
        records.truncate(kept);
    }
}

struct Model<'a> {
    options: &'a AccessOptions,
    /// Read-ahead of the current file.
    readahead: Bytes,
    /// The readers of the current file.
    streams: Vec<Stream>,
}

impl Model<'_> {
    /// Store the readers of one file and fetch those of another.
    fn change(&mut self, all: &mut HashMap<u32, Vec<Stream>>, from: Option<u32>, to: Option<u32>) {
        if let Some(from) = from
            && !self.streams.is_empty()
        {
            // Their first records are gone in the next batch.
            self.streams
                .iter_mut()
                .for_each(|stream| stream.first = None);
            all.insert(from, std::mem::take(&mut self.streams));
        }
        if let Some(to) = to {
            self.streams = all.remove(&to).unwrap_or_default();
        }
    }

    /// Follow a buffered read, which would become the record number `index`; `false` if it is served
    /// from memory.
    fn read(&mut self, read: &mut AccessRecord, kept: &mut [AccessRecord], index: usize) -> bool {
        let block = self.options.block_size;
        let (start, end) = (read.offset.0, end_of(read));
        let continues =
            |s: &Stream| (s.next..=FileOffset(s.next).align_up(block).0).contains(&start);
        let Some(at) = self.streams.iter().rposition(continues) else {
            if self.streams.len() == STREAMS {
                self.streams.remove(0);
            }
            self.streams.push(Stream {
                next: end,
                window_end: FileOffset(end).align_up(block).0,
                first: Some(index),
            });
            return true;
        };
        let mut stream = self.streams.remove(at);
        stream.next = end;
        if let Some(first) = stream.first.take() {
            let record = &mut kept[first];
            let window_end = self.window_end(record.offset.0);
            if window_end > stream.window_end {
                record.len = Bytes(window_end - record.offset.0);
                stream.window_end = window_end;
            }
        }
        let fetches = end > stream.window_end;
        if fetches {
            let window_end = self.window_end(stream.window_end);
            read.offset = FileOffset(stream.window_end);
            read.len = Bytes(window_end.max(end) - stream.window_end);
            stream.window_end = FileOffset(end_of(read)).align_up(block).0.max(end);
        }
        self.streams.push(stream);
        fetches
    }

    /// Where a window that begins at `start` ends.
    fn window_end(&self, start: u64) -> u64 {
        FileOffset(start.saturating_add(self.readahead.0))
            .align_up(self.options.block_size)
            .0
    }
}

fn end_of(record: &AccessRecord) -> u64 {
    record.offset.0.saturating_add(record.len.0)
}

fn aligned(mut record: AccessRecord, block: Bytes) -> AccessRecord {
    let end = FileOffset(end_of(&record)).align_up(block).0;
    record.offset = record.offset.align_down(block);
    record.len = Bytes(end.saturating_sub(record.offset.0));
    record
}
