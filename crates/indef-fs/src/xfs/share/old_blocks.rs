//! The processes that keep old blocks if this one is killed.

use std::{
    io,
    os::fd::AsFd,
    sync::{Arc, Mutex, PoisonError},
};

use linux_abi::keeper::{Keeper, Kept};
use rustix::io::Errno;

/// The first is started with the first file that moves, another one where those that there are have no place left.
#[derive(Debug, Default)]
pub(super) struct OldBlocks(Mutex<Vec<Arc<Keeper>>>);

impl OldBlocks {
    /// Have a file kept open beyond our end, until everything that was changed before is durable.
    pub(super) fn keep(&self, file: impl AsFd) -> io::Result<Kept> {
        let mut keepers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for keeper in keepers.iter() {
            match keeper.keep(&file) {
                // It keeps as many as it can, or somebody has killed it.
                Err(error) if is_full_or_gone(&error) => {}
                kept => return kept,
            }
        }
        let new = Arc::new(Keeper::start()?);
        let kept = new.keep(file);
        keepers.push(new);
        kept
    }
}

fn is_full_or_gone(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::PIPE | Errno::CONNRESET)
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use linux_abi::keeper::PLACES;

    use super::*;

    #[test]
    fn more_files_than_one_process_keeps_have_others() {
        let (old_blocks, file) = (OldBlocks::default(), File::open("/dev/null").unwrap());
        let keep = || old_blocks.keep(&file).unwrap();
        let processes = || old_blocks.0.lock().unwrap().len();
        let first = keep();
        let rest: Vec<_> = (1..PLACES).map(|_| keep()).collect();
        assert_eq!(processes(), 1);
        let beyond = [keep(), keep()];
        assert_eq!(processes(), 2);
        // A place that has become free is used again.
        drop(first);
        let again: Vec<_> = (1..PLACES).map(|_| keep()).collect();
        assert_eq!(processes(), 2);
        drop((rest, beyond, again));
    }
}
