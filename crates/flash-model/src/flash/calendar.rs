//! The times at which a part that does one thing at a time is taken: a channel, a direction of the
//! host link.
//!
//! Bookings may lie in the future and leave gaps; a later request may use a gap. Without that, a
//! transfer that waits for a slow cell read would block a channel that is idle until then.

use std::collections::VecDeque;

/// Booked intervals, in order, disjoint, and not touching.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendar {
    booked: VecDeque<(u64, u64)>,
    /// Booked time that lies before everything in `booked`.
    past: u64,
}

impl Calendar {
    /// Books the first gap of `duration` that begins at `ready` or later; returns begin and end. No
    /// time before `clock` will be asked for again.
    pub(crate) fn reserve(&mut self, clock: u64, ready: u64, duration: u64) -> (u64, u64) {
        self.forget(clock);
        if duration == 0 {
            return (ready, ready);
        }
        let mut at = match self.booked.back() {
            Some(&(_, end)) if end > ready => self.booked.partition_point(|&(_, end)| end <= ready),
            _ => self.booked.len(),
        };
        let mut start = ready;
        while let Some(&(from, to)) = self.booked.get(at) {
            if start + duration <= from {
                break;
            }
            start = start.max(to);
            at += 1;
        }
        self.insert(at, start, start + duration);
        (start, start + duration)
    }

    /// Books `duration` in all time that is free from `ready` on, in as many pieces as it takes;
    /// returns the begin of the first one and the end of the last one.
    pub(crate) fn reserve_in_pieces(
        &mut self,
        clock: u64,
        ready: u64,
        duration: u64,
    ) -> (u64, u64) {
        self.forget(clock);
        let (mut at, mut left, mut first) = (ready, duration, None);
        while left > 0 {
            let next = self.booked.partition_point(|&(_, end)| end <= at);
            let piece = match self.booked.get(next) {
                Some(&(from, to)) if from <= at => {
                    at = to;
                    continue;
                }
                Some(&(from, _)) => left.min(from - at),
                None => left,
            };
            self.insert(next, at, at + piece);
            first = first.or(Some(at));
            at += piece;
            left -= piece;
        }
        (first.unwrap_or(ready), at)
    }

    /// Adds an interval that is known to be free at index `at`; joins it with the intervals that it
    /// touches.
    fn insert(&mut self, at: usize, start: u64, end: u64) {
        let touches_left = at > 0 && self.booked[at - 1].1 == start;
        let touches_right = self.booked.get(at).is_some_and(|next| next.0 == end);
        match (touches_left, touches_right) {
            (true, true) => {
                self.booked[at - 1].1 = self.booked[at].1;
                self.booked.remove(at);
            }
            (true, false) => self.booked[at - 1].1 = end,
            (false, true) => self.booked[at].0 = start,
            (false, false) => self.booked.insert(at, (start, end)),
        }
    }

    /// Returns the end of the last booked interval; 0 if all lie in the past.
    pub(crate) fn free_at(&self) -> u64 {
        self.booked.back().map_or(0, |&(_, end)| end)
    }

    fn forget(&mut self, clock: u64) {
        while let Some(&(start, end)) = self.booked.front()
            && end <= clock
        {
            self.past += end - start;
            self.booked.pop_front();
        }
    }

    /// Returns the time taken from the beginning until `now`.
    pub(crate) fn busy_until(&self, now: u64) -> u64 {
        let pending = self.booked.iter().take_while(|&&(start, _)| start < now);
        self.past
            + pending
                .map(|&(start, end)| end.min(now) - start)
                .sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_are_used_and_neighbours_merge() {
        let mut calendar = Calendar::default();
        assert_eq!(calendar.reserve(0, 80, 24), (80, 104));
        assert_eq!(calendar.reserve(0, 10, 24), (10, 34));
        assert_eq!(calendar.reserve(0, 30, 46), (34, 80));
        assert_eq!(calendar.booked.len(), 1);
        assert_eq!(calendar.reserve(0, 0, 11), (104, 115));
        assert_eq!(calendar.busy_until(20), 10);
        assert_eq!(calendar.reserve(200, 200, 0), (200, 200));
        assert!(calendar.booked.is_empty());
        assert_eq!(calendar.busy_until(300), 105);
    }

    proptest! {
        /// Compares with a list of single nanoseconds.
        #[test]
        fn it_is_the_first_free_run(requests in prop::collection::vec((0u64..200, 0u64..20), 1..40)) {
            let mut calendar = Calendar::default();
            let mut taken = vec![false; 2000];
            for (ready, duration) in requests {
                let free = |start: u64| (start..start + duration).all(|t| !taken[t as usize]);
                let start = (ready..).find(|&start| free(start)).unwrap();
                prop_assert_eq!(calendar.reserve(0, ready, duration), (start, start + duration));
                (start..start + duration).for_each(|t| taken[t as usize] = true);
            }
            // And the rest of the free time, in pieces.
            let free = |t: &u64| !taken[*t as usize];
            let pieces: Vec<u64> = (30..).filter(free).take(100).collect();
            let expected = (pieces[0], pieces[99] + 1);
            prop_assert_eq!(calendar.reserve_in_pieces(0, 30, 100), expected);
            pieces.iter().for_each(|&t| taken[t as usize] = true);
            let busy = taken[..150].iter().filter(|&&t| t).count() as u64;
            prop_assert_eq!(calendar.busy_until(150), busy);
        }
    }
}
