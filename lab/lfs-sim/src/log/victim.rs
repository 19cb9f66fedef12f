//! The choice of the section to clean.

use super::space::{LogSpace, Use};

/// How a section is chosen (F2FS: `gc_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimPolicy {
    /// The fewest valid blocks: F2FS in the foreground.
    Greedy,
    /// `age × (1 − u) ÷ (1 + u)`, with u the share of valid blocks: F2FS in the background (`get_cb_cost`,
    /// fs/f2fs/gc.c, v6.12; Rosenblum and Ousterhout, SOSP 1991).
    CostBenefit,
}

impl LogSpace {
    /// Returns the section that it is best to clean; `None` if cleaning would free nothing.
    #[must_use]
    pub fn victim(&self, policy: VictimPolicy) -> Option<u32> {
        let all = self.shape.section_blocks();
        let candidates = (0..self.shape.sections).filter(|&section| {
            self.uses[section as usize] == Use::Closed
                && self.table.valid_in_section(section) < all
                && !self.is_under_a_head(section)
        });
        match policy {
            VictimPolicy::Greedy => {
                candidates.min_by_key(|section| self.table.valid_in_section(*section))
            }
            VictimPolicy::CostBenefit => {
                let worth = |section: &u32| self.cost_benefit(*section);
                // `max_by` takes the last of equals; the order is that of the numbers all the same.
                candidates.max_by(|a, b| worth(a).total_cmp(&worth(b)).then(b.cmp(a)))
            }
        }
    }

    fn cost_benefit(&self, section: u32) -> f64 {
        let segments = self.shape.segments_of(section);
        let ages = segments.map(|it| self.table.clock() - self.table.segment(it).modified);
        let age = ages.sum::<u64>() as f64 / f64::from(self.shape.segments_per_section);
        let valid = f64::from(self.table.valid_in_section(section));
        let used = valid / f64::from(self.shape.section_blocks());
        age * (1.0 - used) / (1.0 + used)
    }
}
