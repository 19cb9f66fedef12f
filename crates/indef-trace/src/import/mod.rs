//! Traces that other tools recorded: fio iologs, the text of strace, perf trace and blkparse, and
//! tables of ranges.
//!
//! Each importer reads lines and hands out accesses one by one ([`ProfileSink`]), in the order of the
//! trace, so that a trace need not fit into memory and the read-ahead model can follow its readers.
//!
//! - A line that cannot be understood is counted, and the first of them is kept for the message:
//!   traces are cut off, interleaved with a program's own output, and written by unknown versions.
//! - An access whose file or offset the trace does not tell is counted, never guessed.
//! - A call that failed accessed nothing.
//!
//! [`Gather`] adds the accesses of an importer to a store, in bounded memory.
//!
//! Left out: memory-mapped reads, io_uring and asynchronous I/O, which these tools do not show.

mod blkparse;
mod block_map;
mod csv;
mod descriptors;
mod detect;
mod fio;
mod format;
mod gather;
mod lines;
mod perf;
mod report;
mod strace;
#[cfg(test)]
mod tests;

use std::io::BufRead;

use indef_core::profile::{self, ProfileSink};

pub use block_map::BlockMap;
pub use csv::CsvWriter;
pub use format::Format;
pub use gather::{Gather, Gathered};
pub use report::{ImportError, ImportOptions, Imported};

use lines::Lines;

/// Read a trace to its end, or until the sink breaks off.
///
/// # Errors
///
/// It cannot be read, or is something else; the accesses before that have been handed out.
pub fn import(
    format: Format,
    input: impl BufRead,
    options: &ImportOptions,
    sink: &mut impl ProfileSink,
) -> Result<Imported, ImportError> {
    let mut lines = Lines::new(input, sink);
    let done = match format {
        Format::Fio => fio::import(&mut lines, options),
        Format::Strace => strace::import(&mut lines, options),
        Format::Perf => perf::import(&mut lines, options),
        Format::Blkparse => blkparse::import(&mut lines, options),
        Format::Csv => csv::import(&mut lines),
        Format::Lines => {
            let (input, out) = lines.parts();
            return profile::stream(input, out)
                .map(|()| out.imported())
                .map_err(ImportError::from);
        }
    };
    done.map(|()| lines.out.imported())
}
