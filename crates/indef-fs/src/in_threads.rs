//! Parts of a look that threads take one after the other.

use std::{io, thread};

/// Have `work` done by as many threads at the same time. Each returns the parts that it took, with their numbers; all of
/// them are returned in order.
pub(crate) fn in_threads<P: Send>(
    threads: u64,
    work: &(dyn Fn() -> io::Result<Vec<(u64, P)>> + Sync),
) -> io::Result<Vec<P>> {
    let mut parts = thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut all = work()?;
        for other in others {
            let panicked = |_| Err(io::Error::other("a thread panicked"));
            all.extend(other.join().unwrap_or_else(panicked)?);
        }
        io::Result::Ok(all)
    })?;
    parts.sort_unstable_by_key(|(number, _)| *number);
    Ok(parts.into_iter().map(|(_, part)| part).collect())
}
