//! Threads that share work.

use std::thread::{Builder, Scope};

/// Begin so many threads for the same work, or fewer if the system has no more: those do it then, or the
/// caller. Returns their number.
pub(crate) fn begin<'scope>(
    scope: &'scope Scope<'scope, '_>,
    wanted: usize,
    work: impl Fn() + Copy + Send + 'scope,
) -> usize {
    for begun in 0..wanted {
        if let Err(error) = Builder::new().spawn_scoped(scope, work) {
            tracing::warn!(%error, begun, wanted, "no more threads; the work takes longer");
            return begun;
        }
    }
    wanted
}
