//! For how much of the time windows stand.

use std::time::Duration;

use super::contract::TaskCalls;

/// Seconds: who lives shorter lives in one slot.
const MOMENT: f64 = 0.004;

#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// Nanoseconds of CLOCK_MONOTONIC, where the trace begins.
    began: u64,
    /// Times since then, in seconds, and for how many seconds the windows up to them stand; between two of them it grows evenly.
    points: Vec<(f64, f64)>,
    /// The seconds for which those stand that came since counts were weighed last.
    in_hand: f64,
}

impl Standing {
    pub(super) fn new(began: u64) -> Self {
        Self {
            began,
            points: vec![(0.0, 0.0)],
            in_hand: 0.0,
        }
    }

    /// A slot has ended, and what there was beside it: a window for so much time, or none.
    pub(super) fn slot(&mut self, took: Duration, stands_for: Duration) {
        let (took, stands_for) = (took.as_secs_f64(), stands_for.as_secs_f64());
        let (at, stood) = self.now();
        let next = (at + took, stood + stands_for);
        let grows = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0).max(1e-9);
        if let [.., before, last] = self.points[..]
            && (grows(before, last) - grows(last, next)).abs() < 1e-6
        {
            self.points.pop();
        }
        self.points.push(next);
        self.in_hand += stands_for;
    }

    /// Seconds of the trace.
    pub(super) fn elapsed(&self) -> f64 {
        self.now().0
    }

    fn now(&self) -> (f64, f64) {
        self.points[self.points.len() - 1]
    }

    fn stood(&self, at: f64) -> f64 {
        let after = self.points.partition_point(|(time, _)| *time < at);
        match (after.checked_sub(1), self.points.get(after)) {
            (None, _) => 0.0,
            (Some(before), None) => self.points[before].1,
            (Some(before), Some(after)) => {
                let before = self.points[before];
                let part = (at - before.0) / (after.0 - before.0).max(1e-9);
                before.1 + part * (after.1 - before.1)
            }
        }
    }

    /// How long a task lived, in seconds, and for which part of that time windows stand: for none or for many times it, if it was
    /// short.
    pub(super) fn of(&self, task: &TaskCalls) -> (f64, f64) {
        let (now, _) = self.now();
        let time = |ns: u64| (ns.saturating_sub(self.began) as f64 / 1e9).min(now);
        let from = time(task.began);
        let to = match task.ended {
            0 => now,
            ended => time(ended).max(from),
        };
        let life = to - from;
        let (from, to) = match life < MOMENT {
            true => ((from - MOMENT).max(0.0), (to + MOMENT).min(now)),
            false => (from, to),
        };
        let part = (self.stood(to) - self.stood(from)) / (to - from).max(1e-9);
        (life, part)
    }

    /// A time in which windows came.
    pub(super) fn is_long(&self, life: f64) -> bool {
        life >= 2.0 * self.in_hand
    }

    /// At the end, the last windows stand for what is left of the time: for so many times theirs.
    pub(super) fn left(&self) -> f64 {
        let (elapsed, stood) = self.now();
        1.0 - (stood - elapsed) / self.in_hand.max(1e-3)
    }

    /// The counts were weighed.
    pub(super) fn weighed(&mut self) {
        self.in_hand = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing() -> Standing {
        let second = Duration::from_secs(1);
        let mut standing = Standing::new(100_000_000_000);
        for _ in 0..8 {
            standing.slot(second, second);
        }
        standing.weighed();
        standing.slot(second, second * 4);
        standing.slot(second, Duration::ZERO);
        standing.slot(second, Duration::ZERO);
        standing
    }

    #[test]
    fn alike_slots_are_one() {
        assert_eq!(standing().points.len(), 4);
    }

    #[test]
    fn windows_stand_for_a_part_of_a_life() {
        let standing = standing();
        let of = |began: u64, ended: u64| {
            let task = TaskCalls {
                began: began * 1_000_000,
                ended: ended * 1_000_000,
                ..TaskCalls::default()
            };
            standing.of(&task)
        };
        // From before the trace, until now.
        assert_eq!(of(1_000, 0), (11.0, 12.0 / 11.0));
        assert_eq!(of(102_000, 104_000), (2.0, 1.0));
        assert_eq!(of(107_500, 109_500), (2.0, 4.5 / 2.0));
        assert_eq!(of(109_250, 110_250), (1.0, 0.0));
        // A moment in the window, and one at the end.
        let (life, part) = of(108_500, 108_500);
        assert!(life == 0.0 && (part - 4.0).abs() < 1e-6, "{part}");
        assert_eq!(of(111_000, 0), (0.0, 0.0));
    }

    #[test]
    fn the_last_window_stands_for_what_is_left() {
        let standing = standing();
        // It stands for four seconds, and three are left.
        assert_eq!(standing.left(), 0.75);
        assert!(standing.is_long(8.0) && !standing.is_long(7.0));
    }
}
