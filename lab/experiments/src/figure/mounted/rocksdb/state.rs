//! One contender on a copy of the database: the reads before and after, and its work between.

use std::{fs::File, path::Path};

use rustix::fs::{Advice, fadvise};
use stage::{Fs, text};

use super::{
    super::{
        files::{Contents, Places},
        ground::{Failed, Ground, Image},
        tool::{Told, Tool, indef_run, traced},
        work::Work,
    },
    client::{Workload, tables},
};

/// The folder of the database.
pub(super) const DATABASE: &str = "database";

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super::super) struct State {
    /// Reads in a second before.
    pub(in super::super::super) rate_before: f64,
    /// And after.
    pub(in super::super::super) rate: f64,
    pub(in super::super::super) work: Work,
    /// Extents of all files with data afterwards.
    pub(in super::super::super) extents: f64,
}

impl State {
    /// `contents` are those of the files with data; `tool` is `None` for the files as they are.
    pub(super) fn measure(
        ground: &Ground,
        image: &Image,
        workload: &Workload,
        contents: &Contents,
        tool: Option<Tool>,
    ) -> Result<Self, Failed> {
        let stage = ground.copy(image)?;
        let folder = stage.path().join(DATABASE);
        let mut state = Self {
            rate_before: workload.rate(&folder)?,
            ..Self::default()
        };
        if let Some(tool) = tool {
            let own = tempfile::tempdir()?;
            let profile = own.path().join("profile");
            if tool.needs_reads() {
                let reads = workload.traced(&folder);
                text(&mut traced(&ground.indef, &folder, &reads, &profile))?;
            }
            let told = Told {
                io_size: workload.io_size,
                profile: &profile,
                hot: workload.hot,
            };
            let indef = indef_run(&ground.indef, own.path());
            let mut command = tool.command(Fs::Ext4, indef, told);
            stage.sync()?;
            forget(&folder)?;
            state.work = Work::of(&stage, command.arg(&folder))?;
        }
        state.rate = workload.rate(&folder)?;
        let files = tables(&folder)?;
        state.extents = Places::of(&files)?.extents() as f64;
        Contents::of(&files)?.ensure_same(contents)?;
        Ok(state)
    }
}

/// Drop what the page cache has of the files: opening the database has read parts of them.
fn forget(folder: &Path) -> Result<(), Failed> {
    for path in tables(folder)? {
        fadvise(File::open(path)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}
