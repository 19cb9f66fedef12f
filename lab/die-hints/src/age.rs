//! The files after all else on the device was overwritten, in a copy of its model: the collector has
//! moved their data by then.

use flash_model::{
    Command, Device, Placement, Span,
    ftl::{PhysPage, WearReport},
};
use workloads::Numbers;

use crate::{
    inside::GRANULE,
    model::{PAGE, ftl, idle, submit},
    place::pages,
};

/// The work of the device meanwhile, and its state afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Aged {
    /// Flash pages programmed, in bytes, for each byte that was written.
    pub write_amplification: f64,
    /// Erases of its blocks, since it was made.
    pub wear: WearReport,
    /// Share of the files' logical pages that the collector moved.
    pub moved: f64,
}

/// Overwrites every granule outside of these files `times` times in the mean, at random and without
/// hints.
pub(crate) fn overwrite_others(device: &mut Device, files: &[Vec<Span>], times: u64) -> Aged {
    let others = others(ftl(device).geometry().logical_pages, files);
    let before = *ftl(device).counters();
    let old = places(device, files);
    let mut now = idle(device);
    let mut numbers = Numbers::new(times);
    for _ in 0..others.len() as u64 * times {
        let command = Command::Write {
            offset: others[numbers.below(others.len())] * GRANULE,
            len: GRANULE,
            fua: false,
            placement: Placement::RoundRobin,
        };
        now = now.max(submit(device, now, &command));
        device.advance(now, &mut Vec::new());
    }
    idle(device);
    let new = places(device, files);
    let moved = old.iter().zip(&new).filter(|(old, new)| old != new).count();
    let (counters, slots) = (
        ftl(device).counters(),
        ftl(device).geometry().slots_per_page,
    );
    Aged {
        write_amplification: counters.since(&before).write_amplification(slots),
        wear: ftl(device).wear(),
        moved: moved as f64 / old.len().max(1) as f64,
    }
}

/// The flash page of each logical page of the files.
fn places(device: &Device, files: &[Vec<Span>]) -> Vec<Option<PhysPage>> {
    let files = files.iter();
    files.flat_map(|extents| pages(device, extents)).collect()
}

/// The granules of a namespace of so many logical pages that hold nothing of these files.
fn others(logical_pages: u64, files: &[Vec<Span>]) -> Vec<u64> {
    let granules = logical_pages * PAGE / GRANULE;
    let mut is_other = vec![true; granules as usize];
    for span in files.iter().flatten() {
        let last = span.end().div_ceil(GRANULE).min(granules);
        is_other[(span.offset / GRANULE) as usize..last as usize].fill(false);
    }
    let all = (0..).zip(is_other);
    all.filter_map(|(granule, is_other)| is_other.then_some(granule))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_with_a_part_of_a_file_are_left_alone() {
        let span = |offset, len| Span { offset, len };
        let files = [
            vec![span(4096, 4096), span(3 * GRANULE - 4096, 8192)],
            vec![span(5 * GRANULE, GRANULE)],
        ];
        assert_eq!(others(7 * GRANULE / PAGE, &files), [1, 4, 6]);
        assert_eq!(others(2 * GRANULE / PAGE, &[]), [0, 1]);
    }
}
