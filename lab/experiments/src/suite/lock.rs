//! One run of the suite at a time: results that are kept until all are there are those of one run.

use std::{
    fs::{self, File},
    path::Path,
};

use anyhow::{Context, Result, bail};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// Lock the folder of the results while the file is open. The kernel lets it go with the process, however that ends.
///
/// # Errors
///
/// Another run has it.
pub(super) fn take(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let path = folder.join("lock");
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).open(&path);
    let file = file.with_context(|| format!("cannot lock {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => bail!(
            "another run of the experiments goes on in this tree, and both would keep their results in {}: wait for its \
             end, or stop it",
            folder.display()
        ),
        Err(errno) => Err(errno).with_context(|| format!("cannot lock {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_is_refused_until_the_first_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("experiments");
        let first = take(&folder).unwrap();
        let refused = take(&folder).unwrap_err().to_string();
        assert!(
            refused.contains("another run") && refused.contains(folder.to_str().unwrap()),
            "{refused}"
        );
        drop(first);
        take(&folder).unwrap();
        // A run that was killed leaves the file, and nobody who has it.
        assert!(folder.join("lock").exists());
        take(&folder).unwrap();
    }
}
