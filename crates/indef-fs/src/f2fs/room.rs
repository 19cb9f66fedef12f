//! Free sections of F2FS: how many there are, and how many it keeps for itself.
//!
//! With no more free sections than the reserve F2FS collects garbage before it writes anything (fs/f2fs/segment.h,
//! `has_not_enough_free_secs`, v6.12). From about twice as many on its logs go on in old segments, and fill their holes, when
//! their own are full (segment.c, `f2fs_need_SSR`). What is written then lies in as many pieces as the holes are: of a file that
//! is moved, maybe more than before. `F2FS_IOC_DEFRAGMENT` refuses only where the first of the two would come true (file.c,
//! `f2fs_defragment_range`). With `mode=lfs`, as on zones, F2FS fills no holes, but collects garbage in the midst of a move when
//! free sections are short (`f2fs_balance_fs`), and moves blocks of the same files. (What its own thread collects
//! meanwhile is another matter: [`blocks_collected`](super::blocks_collected).)
//!
//! So what can be had in whole sections are those beyond these two numbers. Nobody gets more than `f_bavail` either, from which F2FS
//! takes all its overprovision (super.c, `f2fs_statfs`).
//!
//! Sysfs tells free segments, which are not free sections where these have several: a section of which one segment is in use has
//! free ones that its log alone goes on to. [`Volume::free_sections`] counts.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::volume::Volume;

/// Sections for what is dirty of nodes (one), directories (twice one) and inodes: as soon as anything is, so while a file is written
/// (`f2fs_need_SSR`, fs/f2fs/segment.c, v6.12). With `mode=lfs` for data, nodes and directories (`__get_secs_required`, segment.h).
const DIRTY_SECTIONS: u64 = 4;

/// A look at all segments counts for so many times as long as it took.
const COUNTS_FOR: u32 = 10;

impl Volume {
    /// The free sections that are none for files: with no more, what is written goes into holes, or garbage is collected beside
    /// it. `None` where that cannot be seen.
    pub(super) fn kept_sections(&self) -> Option<u64> {
        let few = self.number("min_ssr_sections")?;
        // Kernels before 6.12 do not tell of the reserve. Where nobody has set the other number, they are the same.
        let reserve = self
            .number("reserved_segments")
            .map_or(few, |segments| segments / self.segments_per_section());
        let more = if self.fills_holes { few } else { 0 };
        Some(reserve.saturating_add(more).saturating_add(DIRTY_SECTIONS))
    }

    /// The free sections, by the valid blocks of each segment. Where nothing is valid in a segment that is not free, a log
    /// begins in it, or no checkpoint has given it back yet; each of them counts as if it spoilt a section that is empty otherwise.
    /// So there may be some more than told where sections have several segments, but never fewer.
    pub(super) fn free_sections(&self, valid: &[u64]) -> u64 {
        let of_section = self.segments_per_section() as usize;
        let usable = self.usable_segments() as usize;
        let is_empty = |segments: &&[u64]| segments.iter().all(|blocks| *blocks == 0);
        // The last ones are no whole section, and not used.
        let sections = valid.chunks_exact(of_section).filter(is_empty).count() as u64;
        let usable = { valid.chunks(of_section) }.flat_map(|segments| segments.iter().take(usable));
        let empty = usable.filter(|blocks| **blocks == 0).count() as u64;
        let in_use = self
            .number("free_segments")
            .map_or(0, |free| empty.saturating_sub(free));
        sections.saturating_sub(in_use)
    }
}

/// Tells when free sections are short.
#[derive(Debug)]
pub(super) struct Room {
    volume: Volume,
    last: Mutex<Option<Look>>,
}

/// The free sections at a time.
#[derive(Clone, Copy, Debug)]
struct Look {
    free: u64,
    at: Instant,
    took: Duration,
}

impl Room {
    pub(super) fn of(volume: Volume) -> Self {
        Self {
            volume,
            last: Mutex::default(),
        }
    }

    /// Whether moved data would go into holes, or garbage be collected beside it; `false` where that cannot be seen.
    pub(super) fn is_short(&self) -> bool {
        let told = self.free_sections().zip(self.volume.kept_sections());
        told.is_some_and(|(free, kept)| free <= kept)
    }

    fn free_sections(&self) -> Option<u64> {
        let segments = self.volume.number("free_segments")?;
        let of_section = self.volume.segments_per_section();
        if of_section == 1 {
            return Some(segments);
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = last.filter(|look| look.at.elapsed() < look.took * COUNTS_FOR) {
            return Some(look.free);
        }
        let began = Instant::now();
        let free = match self.volume.valid_blocks() {
            Ok(Some(valid)) => self.volume.free_sections(&valid),
            // There are no more than that.
            _ => segments / of_section,
        };
        *last = Some(Look {
            free,
            at: Instant::now(),
            took: began.elapsed(),
        });
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::volume::tests::Told, *};

    #[test]
    fn room_is_short_from_where_f2fs_fills_holes() {
        let told = Told::default();
        let is_short = || Room::of(told.volume(1)).is_short();
        // Nothing is known.
        assert!(!is_short());
        told.number("free_segments", 40);
        assert!(!is_short());
        told.number("min_ssr_sections", 20);
        assert!(is_short());
        told.number("free_segments", 44);
        assert!(is_short());
        told.number("free_segments", 45);
        assert!(!is_short());
        told.number("reserved_segments", 30);
        assert!(is_short());
        told.number("free_segments", 54);
        assert!(is_short());
        told.number("free_segments", 55);
        assert!(!is_short());
        let mut volume = told.volume(1);
        volume.fills_holes = false;
        told.number("free_segments", 35);
        assert!(!Room::of(volume).is_short());
        assert!(is_short());
    }

    #[test]
    fn segments_of_sections_in_use_are_no_room() {
        let told = Told::default();
        told.number("min_ssr_sections", 2);
        told.number("reserved_segments", 8);
        // Twelve sections of four segments; in the first four one segment each has data.
        let mut valid = vec![0; 48];
        valid[..16].iter_mut().step_by(4).for_each(|it| *it = 9);
        told.segments(&valid);
        told.number("free_segments", 44);
        let volume = told.volume(4);
        assert_eq!(volume.kept_sections(), Some(8));
        assert_eq!(volume.free_sections(&valid), 8);
        assert!(Room::of(volume).is_short(), "44 segments, but 8 sections");
        // One section more.
        valid[12] = 0;
        told.segments(&valid);
        told.number("free_segments", 45);
        assert!(!Room::of(told.volume(4)).is_short());
        // A log begins there.
        told.number("free_segments", 44);
        assert_eq!(told.volume(4).free_sections(&valid), 8);
        assert!(Room::of(told.volume(4)).is_short());
        // Sysfs alone tells no more than what they would be side by side.
        told.forget_segments();
        assert!(!Room::of(told.volume(4)).is_short());
        told.number("free_segments", 32);
        assert!(Room::of(told.volume(4)).is_short());
    }

    #[test]
    fn segments_beyond_the_capacity_of_a_zone_are_not_in_use() {
        let told = Told::default();
        told.number("unusable_blocks_per_sec", 1024);
        told.number("free_segments", 4);
        let valid = [0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(told.volume(4).free_sections(&valid), 2);
        told.number("unusable_blocks_per_sec", 0);
        assert_eq!(told.volume(4).free_sections(&valid), 0, "four logs");
    }
}
