//! What contenders that take turns left, run by run.

/// The states of each contender, run by run.
#[derive(Debug)]
pub(super) struct States<C, S>(Vec<(C, Vec<S>)>);

impl<C: Copy + PartialEq, S> States<C, S> {
    /// No run yet of these.
    pub(super) fn new(contenders: impl IntoIterator<Item = C>) -> Self {
        let contenders = contenders.into_iter();
        Self(contenders.map(|it| (it, Vec::new())).collect())
    }

    /// Another run: all contenders in their turns.
    ///
    /// # Errors
    ///
    /// That of the first one whose turn fails.
    pub(super) fn run<E>(&mut self, mut turn: impl FnMut(C) -> Result<S, E>) -> Result<(), E> {
        (self.0.iter_mut()).try_for_each(|(contender, states)| {
            states.push(turn(*contender)?);
            Ok(())
        })
    }

    pub(super) fn contenders(&self) -> impl Iterator<Item = C> {
        self.0.iter().map(|(contender, _)| *contender)
    }

    /// The states of a contender; none of one that takes no part.
    pub(super) fn of(&self, contender: C) -> impl Iterator<Item = &S> {
        let of_it = self.0.iter().find(|(it, _)| *it == contender);
        of_it.into_iter().flat_map(|(_, states)| states)
    }

    /// A value of each run, of what a contender left; none where it has no such value.
    pub(super) fn values(&self, contender: C, value: impl Fn(&S) -> Option<f64>) -> Vec<f64> {
        self.of(contender).filter_map(value).collect()
    }

    /// Those of all contenders.
    pub(super) fn all(&self) -> impl Iterator<Item = &S> {
        self.0.iter().flat_map(|(_, states)| states)
    }
}
