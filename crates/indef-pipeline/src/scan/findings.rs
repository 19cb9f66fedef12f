//! The part of a scan's findings about a file that follows from its layout alone.

use std::{path::PathBuf, sync::Arc};

use indef_core::layout::{Unreachable, WindowedDolf, WindowedDopf};
use indef_fs::Filesystem;
use units::Bytes;

use super::FileScan;

/// The findings about a file whose layout is known, and whose file system can move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) extents: u64,
    pub(super) ideal: u64,
    pub(super) dolf: WindowedDolf,
    pub(super) worth_moving: Bytes,
    pub(super) shared: Bytes,
    pub(super) saved_requests: u64,
    pub(super) unreachable: Option<Unreachable>,
}

impl Findings {
    /// Those about a file, without places and without a profile.
    pub(super) fn of(
        &self,
        path: PathBuf,
        fs: Arc<Filesystem>,
        size: Bytes,
        allocated: Bytes,
    ) -> FileScan {
        FileScan {
            path,
            fs,
            size,
            allocated,
            extents: self.extents,
            ideal: self.ideal,
            dolf: self.dolf,
            dopf: WindowedDopf::default(),
            worth_moving: self.worth_moving,
            shared: self.shared,
            unreachable: self.unreachable,
            saved_requests: self.saved_requests,
            heat: None,
            skip: None,
        }
    }
}
