//! One contender on a copy of the database: the query before and after, and its work between.

use std::{
    fs::{self, File},
    io,
    path::Path,
    time::Instant,
};

use rustix::fs::{Advice, fadvise};
use stage::{Fs, Stage, text};

use super::{
    super::{
        ground::{Failed, Ground, Image},
        tool::{Told, Tool, indef_run, traced},
        work::Work,
    },
    database::Workload,
};

/// See the module. Times are seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) select_before: f64,
    pub(super) select: f64,
    pub(super) update: f64,
    pub(super) work: Work,
    /// Extents of the file afterwards.
    pub(super) extents: f64,
}

impl State {
    /// `contents` are those of the file; `tool` is `None` for the file as it is.
    pub(super) fn measure(
        ground: &Ground,
        kind: Fs,
        image: &Image,
        workload: &Workload,
        contents: &[u8],
        tool: Option<Tool>,
    ) -> Result<Self, Failed> {
        let stage = ground.copy(image)?;
        stage.set_readahead(workload.io_size)?;
        let path = Workload::file(&stage.path());
        let mut state = Self {
            select_before: select(&stage, workload, &path)?,
            ..Self::default()
        };
        if let Some(tool) = tool {
            let own = tempfile::tempdir()?;
            let profile = own.path().join("profile");
            if tool.needs_reads() {
                forget(&stage, &path)?;
                let query = workload.query(&path);
                text(&mut traced(&ground.indef, &stage.path(), &query, &profile))?;
            }
            let indef = indef_run(&ground.indef, own.path());
            let told = Told {
                io_size: workload.io_size,
                profile: &profile,
                hot: 100.0,
            };
            let mut command = tool.command(kind, indef, told);
            forget(&stage, &path)?;
            state.work = Work::of(&stage, command.arg(&path))?;
        }
        state.extents = scratch_fs::fragments(&File::open(&path)?)? as f64;
        state.select = select(&stage, workload, &path)?;
        forget(&stage, &path)?;
        if fs::read(&path)? != contents {
            return Err("the database has other contents than before".into());
        }
        forget(&stage, &path)?;
        state.update = workload.update(&path)?;
        forget(&stage, &path)?;
        workload.check(&path)?;
        Ok(state)
    }
}

/// The seconds of the query, with nothing of the file in the page cache.
fn select(stage: &Stage, workload: &Workload, path: &Path) -> Result<f64, Failed> {
    forget(stage, path)?;
    let begun = Instant::now();
    text(&mut workload.query(path))?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Drop what the page cache has of the file.
fn forget(stage: &Stage, path: &Path) -> Result<(), Failed> {
    stage.sync()?;
    fadvise(&File::open(path)?, 0, None, Advice::DontNeed).map_err(io::Error::from)?;
    Ok(())
}
