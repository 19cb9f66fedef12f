//! State that all relocations on one file system share.

use std::{
    collections::HashSet,
    fs::File,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::SystemTime,
};

use indef_core::layout::Row;
use units::Bytes;

use super::{donor, folios};
use crate::{
    EngineOptions, Filesystem, Refusal, Settler, Target, TargetId,
    aim::{Aim, Kept},
    cache::{READ_PIECE, page},
    hold::Holds,
};

/// Moved data of all files that waits for its writeback.
const SETTLING: Bytes = Bytes::mib(32);

pub(super) struct Shared {
    pub(super) settler: Settler,
    /// How far reads run ahead of moves.
    pub(super) read_ahead: Bytes,
    /// Whether files are cached in large folios, once that was of interest.
    large_folios: OnceLock<bool>,
    /// Whether they are where that cannot be found out.
    may_be_large: bool,
    /// Directories for a donor, where the file's own does not allow one.
    pub(super) fallbacks: Vec<PathBuf>,
    /// Leave files alone that others have open.
    pub(super) strict: bool,
    /// Rows that moved data is placed congruently to.
    pub(super) row: Option<Row>,
    pub(super) holds: Holds,
    pub(super) aim: Aim,
    /// Where a region is vacated, the donors with what lay there.
    pub(super) kept: Kept,
    /// An empty file without a name, to commit with.
    marker: Mutex<Option<Arc<File>>>,
    /// Files of which something could not be written.
    unwritten: Mutex<HashSet<TargetId>>,
}

impl Shared {
    pub(super) fn new(fs: &Filesystem, options: &EngineOptions) -> Self {
        let mount_point = fs.mount.iter().map(|mount| mount.point.clone());
        let temporary = [std::env::temp_dir(), PathBuf::from("/var/tmp")];
        Self {
            settler: Settler::new(SETTLING),
            read_ahead: READ_PIECE * u64::from(options.queue_depth.clamp(1, 64)),
            large_folios: OnceLock::new(),
            // Since then ext4 has had them.
            may_be_large: fs.kernel_at_least(6, 16),
            fallbacks: mount_point.chain(temporary).collect(),
            strict: options.strict,
            // The donor's place is chosen in whole pages.
            row: (options.row)
                .filter(|row| row.bytes.get().is_multiple_of(page().get()))
                .filter(|_| options.vacate.is_none()),
            holds: Holds::default(),
            aim: Aim::new(options.vacate),
            kept: Kept::default(),
            marker: Mutex::default(),
            unwritten: Mutex::default(),
        }
    }

    /// Whether cached data has to be dropped and read again as single pages first.
    pub(super) fn caches_large_folios(&self, target: &Target) -> bool {
        *self.large_folios.get_or_init(|| {
            let file = donor::create(target, &self.fallbacks).ok();
            let found = file.and_then(|file| folios::are_large(&file).ok().flatten());
            found.unwrap_or(self.may_be_large)
        })
    }

    /// Note that something of a file could not be written: of all workers that wait for its data, the kernel tells only one.
    pub(super) fn note_unwritten(&self, target: &Target) {
        self.unwritten().insert(target.id);
    }

    /// Whether a worker was told of that, or the settler.
    pub(super) fn is_unwritten(&self, target: &Target) -> bool {
        self.unwritten().contains(&target.id) || self.settler.has_failed(&target.path)
    }

    fn unwritten(&self) -> MutexGuard<'_, HashSet<TargetId>> {
        let unwritten = self.unwritten.lock();
        unwritten.unwrap_or_else(PoisonError::into_inner)
    }

    /// Commit the journal with everything that was moved until now. Not with an `fsync` of the
    /// target: that would write back the data that applications have dirtied in it, and does not
    /// cover a change in a leaf of its extent tree. A change of any other inode joins the running
    /// transaction, or a later one, and transactions are committed in order (fs/jbd2, v6.18).
    pub(super) fn commit(&self, target: &Target) -> Result<(), Refusal> {
        let marker = self.marker(target)?;
        marker
            .set_modified(SystemTime::now())
            .and_then(|()| marker.sync_all())
            .map_err(|error| target.error("commit what was moved", None, error).into())
    }

    /// The file to commit with; made before anything is moved.
    pub(super) fn marker(&self, target: &Target) -> Result<Arc<File>, Refusal> {
        let mut marker = self.marker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*marker {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(donor::create(target, &self.fallbacks)?);
        *marker = Some(Arc::clone(&file));
        Ok(file)
    }
}
