//! What becomes of one range: measured, priced, and moved or skipped with a reason.

use units::{Bytes, FileRange};

use super::{Chunk, Decision, Edges, FileFacts, PlanOptions, Policy};
use crate::{
    SkipReason,
    layout::{ExtentFlags, Fragmentation, Geometry, Scan},
    priority::iodp,
};

/// Differences of DoPF below this are rounding.
const DOPF_TOLERANCE: f64 = 1e-6;

/// Measure `range` and decide about it on its own; hotness, truncation and the promise about
/// fragments come later.
pub(super) fn decide(
    options: &PlanOptions,
    file: &FileFacts<'_>,
    range: FileRange,
    (reads, writes): (u64, u64),
) -> Chunk {
    let scan = file
        .layout
        .scan(range, &options.geometry, options.max_request);
    let now = Fragmentation {
        dolf: scan.dolf,
        dopf: scan.dopf,
        requests: scan.requests,
    };
    let ideal = ideal(options, &scan);
    // FragPicker counts every access, InDeF reads only (eq. 2).
    let heat = match options.policy {
        Policy::Fragpicker => reads.saturating_add(writes),
        Policy::Indef | Policy::Whole | Policy::Sequential => reads,
    };
    let priority = |f: &Fragmentation| iodp(options.alpha, options.beta, f, heat);
    let edges = Edges {
        excess: scan.fragments - scan.pieces,
        cuts_start: file.layout.is_cut_by(range.start),
        cuts_end: file.layout.is_cut_by(range.end()),
    };
    Chunk {
        range,
        reads,
        writes,
        dolf: now.dolf,
        dopf: now.dopf,
        iodp: priority(&now),
        decision: decision(options, &scan, &ideal, heat),
        cost: scan.written,
        gain: (priority(&now) - priority(&ideal)).max(0.0),
        edges,
    }
}

/// What relocation would make of the range. Degrees that it cannot improve stay as they are.
fn ideal(options: &PlanOptions, scan: &Scan) -> Fragmentation {
    Fragmentation {
        dolf: scan.dolf.min(scan.ideal_dolf),
        dopf: options.geometry.contiguous_dopf(scan.placed).min(scan.dopf),
        requests: scan.requests,
    }
}

fn decision(options: &PlanOptions, scan: &Scan, ideal: &Fragmentation, heat: u64) -> Decision {
    let skip = |reason| Decision::Skip(reason);
    if scan.flags.contains(ExtentFlags::INLINE) {
        return skip(SkipReason::Inline);
    }
    if scan.written == Bytes::ZERO {
        return skip(match scan.fragments {
            0 => SkipReason::Empty,
            _ => SkipReason::Unwritten,
        });
    }
    // Encoded extents shorter than the limit may still need as many fragments as they have.
    let joinable = scan.fragments > scan.pieces;
    let scattered = scan.dolf > ideal.dolf && joinable;
    // InDeF's file B: pieces between holes that cannot be joined, but pile up on few chips.
    let uneven = options.policy == Policy::Indef
        && options.geometry != Geometry::Unknown
        && scan.dolf > 1
        && scan.dopf > ideal.dopf + DOPF_TOLERANCE;
    if !scattered && !uneven {
        let compressed = scan.encoded_joints || scan.dolf > ideal.dolf;
        return skip(match compressed {
            true => SkipReason::Compressed,
            false => SkipReason::Contiguous,
        });
    }
    if scan.flags.contains(ExtentFlags::SHARED) && !options.allow_unshare {
        return skip(SkipReason::Shared);
    }
    if heat == 0 {
        return skip(SkipReason::NotRead);
    }
    Decision::Migrate
}
