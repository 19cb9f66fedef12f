//! The values that one thing had, as far as a power cut may bring them back.

/// A value that a call which synchronizes data (but no more) has made obsolete.
#[derive(Clone, Debug)]
pub(crate) struct Obsolete<T> {
    pub(crate) value: T,
    /// When the call returned.
    pub(crate) acknowledged_ms: u64,
}

/// A value that it had, and what may be found in its place: on XFS, of a block that is shared no more,
/// what the other owner has written there since (see [`super::Model::write`]).
#[derive(Clone, Debug)]
struct Kept<T> {
    value: T,
    written_over: Vec<T>,
}

impl<T> Kept<T> {
    fn new(value: T) -> Self {
        let written_over = Vec::new();
        Self {
            value,
            written_over,
        }
    }
}

/// A block, a size, a name, an attribute: `kept` begins with the value that is known to be durable;
/// each newer one, the live one last, may be on the device or not.
#[derive(Clone, Debug)]
pub(crate) struct History<T> {
    kept: Vec<Kept<T>>,
    /// No longer allowed, but they were when the cut began that is being made right now.
    passed: Vec<Kept<T>>,
    obsolete: Vec<Obsolete<T>>,
}

impl<T: Clone + PartialEq> History<T> {
    /// With a durable value.
    pub(crate) fn new(durable: T) -> Self {
        Self {
            kept: vec![Kept::new(durable)],
            passed: Vec::new(),
            obsolete: Vec::new(),
        }
    }

    /// What it is while the power is on.
    pub(crate) fn live(&self) -> &T {
        &self.kept.last().expect("never empty").value
    }

    /// Whoever had the same block with `old` in it has written `new` there. If this one has the block
    /// no more (but a cut may still show it), that is found in it. `gone`: nor has it what is live.
    pub(crate) fn written_over(&mut self, old: &T, new: &T, gone: bool) {
        let former = self.kept.len() - usize::from(!gone);
        let former = self.passed.iter_mut().chain(&mut self.kept[..former]);
        for kept in former {
            if kept.value == *old || kept.written_over.contains(old) {
                kept.written_over.push(new.clone());
            }
        }
    }

    /// It gets a new value; from the moment where the call begins, a cut may show it.
    pub(crate) fn push(&mut self, value: T) {
        if *self.live() != value {
            self.kept.push(Kept::new(value));
        }
    }

    /// The live value is durable. `watched`: a cut is being made, which may still show older ones.
    pub(crate) fn durable(&mut self, watched: bool) {
        self.drop_older(self.kept.len() - 1, watched);
        self.end_obsolete(watched);
    }

    /// What was made obsolete by a call for data is so by one for everything. A cut that is being
    /// made may still show it if it may show it at all, which is for the window to say.
    pub(crate) fn end_obsolete(&mut self, watched: bool) {
        if !watched {
            self.obsolete.clear();
        }
    }

    /// The last value of which `counts` is true is durable, by a call that promises it for data only.
    pub(crate) fn data_durable(&mut self, counts: impl Fn(&T) -> bool, now_ms: u64, watched: bool) {
        let Some(floor) = self.kept.iter().rposition(|kept| counts(&kept.value)) else {
            return;
        };
        for kept in &self.kept[..floor] {
            self.obsolete.push(Obsolete {
                value: kept.value.clone(),
                acknowledged_ms: now_ms,
            });
        }
        self.drop_older(floor, watched);
    }

    fn drop_older(&mut self, floor: usize, watched: bool) {
        let older = self.kept.drain(..floor);
        if watched {
            self.passed.extend(older);
        }
    }

    /// The cut is made.
    pub(crate) fn forget_passed(&mut self) {
        self.passed.clear();
    }

    /// All that a cut may show.
    pub(crate) fn allowed(&self) -> impl Iterator<Item = &T> {
        let all = self.passed.iter().chain(&self.kept);
        all.map(|kept| &kept.value)
    }

    /// What may be found instead of one of these.
    pub(crate) fn instead(&self) -> impl Iterator<Item = &T> {
        let all = self.passed.iter().chain(&self.kept);
        all.flat_map(|kept| &kept.written_over)
    }

    /// What may not be there any more but for a window that the caller grants.
    pub(crate) fn obsolete(&self) -> &[Obsolete<T>] {
        &self.obsolete
    }

    /// The durable value.
    pub(crate) fn floor(&self) -> &T {
        &self.kept[0].value
    }

    /// Whether anything but the live value is allowed.
    pub(crate) fn in_doubt(&self) -> bool {
        self.kept.len() > 1 || !self.passed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(history: &History<u32>) -> Vec<u32> {
        history.allowed().copied().collect()
    }

    #[test]
    fn what_is_durable_ends_what_was_before() {
        let mut history = History::new(1);
        history.push(2);
        history.push(3);
        assert_eq!(allowed(&history), [1, 2, 3]);
        history.durable(false);
        assert_eq!(allowed(&history), [3]);
        history.push(3);
        assert!(!history.in_doubt());
    }

    #[test]
    fn a_cut_that_is_being_made_may_show_what_was_allowed_when_it_began() {
        let mut history = History::new(1);
        history.push(2);
        history.durable(true);
        history.push(3);
        history.durable(true);
        assert_eq!(allowed(&history), [1, 2, 3]);
        history.forget_passed();
        assert_eq!(allowed(&history), [3]);
    }

    #[test]
    fn data_only_leaves_later_values_in_doubt_and_remembers_the_older() {
        let mut history = History::new(10);
        history.push(20);
        history.push(1);
        history.data_durable(|value| *value >= 10, 7, false);
        assert_eq!(allowed(&history), [20, 1]);
        let old: Vec<_> = history
            .obsolete()
            .iter()
            .map(|old| (old.value, old.acknowledged_ms))
            .collect();
        assert_eq!(old, [(10, 7)]);
        history.durable(false);
        assert!(history.obsolete().is_empty());
    }
}
