//! The processors of the host.

use units::Nanos;

/// Processors, each busy until a time.
#[derive(Clone, Debug)]
pub struct Cpus {
    free_at: Vec<u64>,
}

impl Cpus {
    /// So many idle ones, at least one.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            free_at: vec![0; count.max(1)],
        }
    }

    /// Works for `time` on the processor that is free first; returns when the work is done.
    pub fn work(&mut self, now: Nanos, time: Nanos) -> Nanos {
        let first = self.free_at.iter_mut().min_by_key(|at| **at);
        let Some(free_at) = first else {
            unreachable!("there is a processor");
        };
        *free_at = (*free_at).max(now.0) + time.0;
        Nanos(*free_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_for_a_processor() {
        let mut cpus = Cpus::new(2);
        let ends: Vec<u64> = [(0, 10), (0, 4), (1, 4), (1, 4), (50, 1)]
            .map(|(now, time)| cpus.work(Nanos(now), Nanos(time)).0)
            .to_vec();
        assert_eq!(ends, [10, 4, 8, 12, 51]);
    }
}
