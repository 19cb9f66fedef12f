//! The suite, as the installed fio's authors published it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use guest::{Cache, LabError, upstream_source};

/// The folder t/zbd of fio's source.
#[derive(Clone, Debug)]
pub struct Suite {
    folder: PathBuf,
    version: String,
}

/// The suite's script, and what it reads.
const FILES: [&str; 2] = ["test-zbd-support", "functions"];

impl Suite {
    /// The one of the installed fio's version, from the cache of sources or fetched now.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where there is no fio, or no source of it; else the failure.
    pub fn of_installed_fio() -> Result<Self, LabError> {
        let missing = |why: String| LabError::Unavailable {
            why,
            foreseen: false,
        };
        let said = Command::new("fio").arg("--version").output();
        let said = said.map_err(|error| missing(format!("fio: {error}")))?;
        let said = String::from_utf8_lossy(&said.stdout);
        let version = said.trim().strip_prefix("fio-");
        let version = version.ok_or_else(|| missing(format!("fio has no version: '{said}'")))?;
        let source = upstream_source("fio", version, &Cache::of_project())?;
        Ok(Self {
            folder: source.join("t/zbd"),
            version: version.to_owned(),
        })
    }

    /// fio's version: `3.33`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The numbers of all its cases.
    ///
    /// # Errors
    ///
    /// Its script cannot be read.
    pub fn cases(&self) -> Result<Vec<u32>, LabError> {
        let script = self.folder.join(FILES[0]);
        let text = fs::read_to_string(&script).map_err(at(&script))?;
        let functions = text.lines().filter_map(|line| {
            line.strip_prefix("test")?
                .strip_suffix("() {")?
                .parse()
                .ok()
        });
        Ok(functions.collect())
    }

    /// Copy it into a folder.
    pub(crate) fn copy_to(&self, folder: &Path) -> Result<(), LabError> {
        fs::create_dir(folder).map_err(at(folder))?;
        for name in FILES {
            let file = self.folder.join(name);
            fs::copy(&file, folder.join(name)).map_err(at(&file))?;
        }
        Ok(())
    }
}

/// For `map_err` of an operation on a file.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> LabError + use<> {
    let path = path.to_owned();
    move |source| LabError::Io { path, source }
}
