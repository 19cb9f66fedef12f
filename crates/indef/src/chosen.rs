//! The files that a command is about: paths, a list of names, or everything that is mounted.

mod list;

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use indef_engine::collect::Select;
use indef_pipeline::{mounts::all_mounts, plan::Planner};

use crate::{
    args::FilesArgs,
    made::Made,
    output::{Console, Name},
    refusal::unusable,
};
use list::Ends;

/// Them.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// Files and folders; only files where they come from a list.
    pub(crate) paths: Vec<PathBuf>,
    /// What to leave out.
    pub(crate) select: Select,
}

impl Chosen {
    /// What the command line says.
    pub(crate) fn of(paths: &[PathBuf], files: &FilesArgs, console: &Console) -> Result<Self> {
        let select = files.choose.select()?;
        if let Some(list) = &files.files_from {
            let ends = match files.null {
                true => Ends::Nul,
                false => Ends::Newline,
            };
            return Ok(Self {
                paths: read(list, ends)?,
                select: select.of_files(),
            });
        }
        let paths = match files.choose.all_mounts {
            true => mounted(console)?,
            false => paths.to_vec(),
        };
        Ok(Self { paths, select })
    }

    /// The paths of which all files are looked at: what an earlier run had to do there is of no use any more.
    pub(crate) fn covered(&self) -> &[PathBuf] {
        match self.select.takes_all() {
            true => &self.paths,
            false => &[],
        }
    }

    /// A planner of them.
    pub(crate) fn planner(&self, planner: Planner) -> Planner {
        Planner {
            paths: self.paths.clone(),
            select: self.select.clone(),
            ..planner
        }
    }

    /// Where a document about them is made.
    pub(crate) fn made(&self) -> Made {
        let mut made = Made::of(&self.paths);
        if self.select.is_of_files() {
            made.paths.clear();
        }
        made
    }
}

/// The mount points of all file systems that a run can work on.
fn mounted(console: &Console) -> Result<Vec<PathBuf>> {
    let points = all_mounts().context("/proc/self/mountinfo cannot be read; give a PATH")?;
    if points.is_empty() {
        console
            .note("no file system is mounted here that a run can work on; indef doctor tells why");
    }
    Ok(points)
}

/// The names in a list.
fn read(path: &Path, ends: Ends) -> Result<Vec<PathBuf>> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().read_to_end(&mut bytes),
        false => File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.map_err(|error| unusable(path, &error))?;
    list::names(&bytes, ends).map_err(|error| anyhow!("{}: {error}", Name(path)))
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    #[test]
    fn what_is_left_out_is_not_covered() {
        let chosen = |files: &FilesArgs| {
            let chosen = Chosen::of(&["/proc".into()], files, &Console::plain()).unwrap();
            chosen.covered().len()
        };
        let mut files = FilesArgs::default();
        assert_eq!(chosen(&files), 1);
        files.choose.min_size = Some(Bytes(2));
        assert_eq!(chosen(&files), 0);
        files.choose.min_size = None;
        files.choose.exclude.exclude = vec!["*.iso".parse().unwrap()];
        assert_eq!(chosen(&files), 0);
        files.choose.exclude.exclude.clear();
        files.files_from = Some("/dev/null".into());
        assert_eq!(chosen(&files), 0);
    }
}
