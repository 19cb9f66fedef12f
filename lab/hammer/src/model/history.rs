//! The past values of one item, as far as a power cut may bring them back.

/// A value that was made obsolete by a call which synchronizes only data.
#[derive(Clone, Debug)]
pub(crate) struct Obsolete<T> {
    pub(crate) value: T,
    /// The time at which the call returned.
    pub(crate) acknowledged_ms: u64,
}

/// A past value, and one that may be found in its place: on XFS, for a block that is no longer shared,
/// the data that the other owner has written there since (see [`super::Model::write`]).
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

/// The history of a block, a size, a name or an attribute: `kept` begins with the value that is known
/// to be durable; each newer one, the live one last, may be on the device or not.
#[derive(Clone, Debug)]
pub(crate) struct History<T> {
    kept: Vec<Kept<T>>,
    /// Values that are no longer allowed, but were when the cut in progress began.
    passed: Vec<Kept<T>>,
    obsolete: Vec<Obsolete<T>>,
}

impl<T: Clone + PartialEq> History<T> {
    /// A history with a durable value.
    pub(crate) fn new(durable: T) -> Self {
        Self {
            kept: vec![Kept::new(durable)],
            passed: Vec::new(),
            obsolete: Vec::new(),
        }
    }

    /// The value while the power is on.
    pub(crate) fn live(&self) -> &T {
        &self.kept.last().expect("never empty").value
    }

    /// Another owner of the same block with `old` in it has written `new` there. If this one has given
    /// the block up (but a cut may still show it), `new` is found in it. `gone`: it does not have the
    /// live value, either.
    pub(crate) fn written_over(&mut self, old: &T, new: &T, gone: bool) {
        let former = self.kept.len() - usize::from(!gone);
        let former = self.passed.iter_mut().chain(&mut self.kept[..former]);
        for kept in former {
            if kept.value == *old || kept.written_over.contains(old) {
                kept.written_over.push(new.clone());
            }
        }
    }

    /// Set a new value; a cut may show it from the beginning of the call.
    pub(crate) fn push(&mut self, value: T) {
        if *self.live() != value {
            self.kept.push(Kept::new(value));
        }
    }

    /// The live value is in another place from now on; a cut may show the former one.
    pub(crate) fn move_live(&mut self) {
        self.kept.push(Kept::new(self.live().clone()));
    }

    /// Make the live value durable. `watched`: a cut is in progress, which may still show older values.
    pub(crate) fn durable(&mut self, watched: bool) {
        self.drop_older(self.kept.len() - 1, watched);
        self.end_obsolete(watched);
    }

    /// A call that synchronizes everything supersedes values that a call for data made obsolete. A cut in
    /// progress may still show such a value if the window allows it at all.
    pub(crate) fn end_obsolete(&mut self, watched: bool) {
        if !watched {
            self.obsolete.clear();
        }
    }

    /// Make the last value for which `counts` is true durable, by a call that promises that only for
    /// data.
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

    /// End the cut.
    pub(crate) fn forget_passed(&mut self) {
        self.passed.clear();
    }

    /// All values that a cut may show.
    pub(crate) fn allowed(&self) -> impl Iterator<Item = &T> {
        let all = self.passed.iter().chain(&self.kept);
        all.map(|kept| &kept.value)
    }

    /// Values that may be found instead of one of these.
    pub(crate) fn instead(&self) -> impl Iterator<Item = &T> {
        let all = self.passed.iter().chain(&self.kept);
        all.flat_map(|kept| &kept.written_over)
    }

    /// Values that are allowed only within a window that the caller grants.
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
