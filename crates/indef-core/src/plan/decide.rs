//! Decides one range: measures it, prices it, and marks it to move or to skip with a reason.

use units::Bytes;

use super::{Chunk, Decision, FileFacts, PlanOptions, Policy, Weight};
use crate::{
    SkipReason,
    access::AccessRange,
    layout::{ExtentFlags, Fragmentation, Geometry, Scan},
    priority::{finite, iodp},
};

/// Differences of DoPF below this are rounding.
const DOPF_TOLERANCE: f64 = 1e-6;

/// The smallest place that a file system chooses.
const FS_BLOCK: Bytes = Bytes::kib(4);

/// Measure a range and decide about it on its own; hotness, truncation and the promise about
/// fragments come later.
pub(super) fn decide(options: &PlanOptions, file: &FileFacts<'_>, access: &AccessRange) -> Chunk {
    let AccessRange {
        range,
        reads,
        writes,
        ..
    } = *access;
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
    let own_ns = own_correction(options, access, &now, &ideal);
    let (priority_now, priority_ideal) = match &options.weight {
        Weight::Paper => (
            iodp(options.alpha, options.beta, &now, heat),
            iodp(options.alpha, options.beta, &ideal, heat),
        ),
        Weight::Device(times) => {
            let geometry = &options.geometry;
            let now = times.read_ns(file.layout, range, geometry, scan.requests);
            let fewest = scan.written.0.div_ceil(options.max_request.0.max(1));
            let commands = scan.requests.min(fewest.max(scan.ideal_dolf));
            // Off the rows, unless the engine keeps to them: a prediction from the beginning of one
            // would promise too much.
            let place = options
                .placed_on()
                .map_or(FS_BLOCK, |row| Bytes(range.start.0 % row.bytes.0));
            let ideal = times.contiguous_ns(scan.placed, place, geometry, commands);
            (
                finite(now * heat as f64),
                finite(now.min(ideal) * heat as f64),
            )
        }
        Weight::Probed(model) => {
            let now = model.read_ns(file.layout, range, options.max_request.0);
            // Pieces between holes stay apart.
            let ideal = match scan.ideal_dolf {
                0 | 1 => model.contiguous_read_ns(scan.placed),
                _ => now,
            };
            (
                finite(now * heat as f64),
                finite(now.min(ideal) * heat as f64),
            )
        }
        Weight::Measured(weights) => {
            let heat = heat as f64;
            (
                finite((weights.layout_ns(&now) + own_ns) * heat),
                finite(weights.layout_ns(&ideal) * heat),
            )
        }
    };
    let gain = (priority_now - priority_ideal).max(0.0);
    let mut decision = decision(options, &scan, &ideal, heat);
    if decision == Decision::Migrate && gain <= 0.0 && options.weight != Weight::Paper {
        decision = Decision::Skip(SkipReason::NoTimeLost);
    }
    Chunk {
        range,
        reads,
        writes,
        dolf: now.dolf,
        dopf: now.dopf,
        iodp: priority_now,
        decision,
        cost: scan.written,
        gain,
        edges: scan.count.into(),
        lets_go: None,
        shared: None,
    }
}

/// The time in nanoseconds that a read of this range loses beyond the prediction from its degrees,
/// where that is known and relocation can reduce it.
fn own_correction(
    options: &PlanOptions,
    access: &AccessRange,
    now: &Fragmentation,
    ideal: &Fragmentation,
) -> f64 {
    match &options.weight {
        Weight::Measured(weights) if now.dolf > ideal.dolf || uneven(now, ideal) => {
            weights.correction(access.range.len, now, &access.observed)
        }
        Weight::Measured(_) | Weight::Paper | Weight::Device(_) | Weight::Probed(_) => 0.0,
    }
}

fn uneven(now: &Fragmentation, ideal: &Fragmentation) -> bool {
    now.dopf > ideal.dopf + DOPF_TOLERANCE
}

/// The degrees of the range after relocation. Degrees that it cannot improve keep their values.
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
        return skip(match scan.count.fragments {
            0 => SkipReason::Empty,
            _ => SkipReason::Unwritten,
        });
    }
    // Encoded extents shorter than the limit may still need as many fragments as they have.
    let joinable = !scan.count.is_contiguous();
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
    // Compressed data is not copied as it is.
    let keeps_sharing = options.keeps_sharing && !scan.flags.contains(ExtentFlags::ENCODED);
    if scan.flags.contains(ExtentFlags::SHARED) && !options.allow_unshare && !keeps_sharing {
        return skip(SkipReason::Shared);
    }
    if heat == 0 {
        return skip(SkipReason::NotRead);
    }
    Decision::Migrate
}
