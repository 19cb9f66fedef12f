//! A plan as a file.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use indef_core::plan::{FilePlan, PlanOptions, format::PlanWriter};

use crate::error::{Error, Written};

/// Write a plan file: under a temporary name first, so that there is never half a plan under its
/// own name.
///
/// # Errors
///
/// The file cannot be written; the previous file stays.
pub fn write<'a>(
    path: &Path,
    options: &PlanOptions,
    mut files: impl Iterator<Item = &'a FilePlan>,
) -> Result<(), Error> {
    let mut written = || -> io::Result<()> {
        if path.exists() && !path.is_file() {
            // A pipe or a device is written directly.
            let mut writer = PlanWriter::new(BufWriter::new(File::create(path)?), options)?;
            files.try_for_each(|file| append(&mut writer, file))?;
            return writer.finish().map(drop);
        }
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        let mut writer = PlanWriter::new(BufWriter::new(file.as_file_mut()), options)?;
        files.try_for_each(|file| append(&mut writer, file))?;
        writer.finish()?;
        file.as_file().sync_data()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    written().map_err(|source| Error::Write {
        path: path.to_owned(),
        what: Written::Plan,
        source,
    })
}

/// Append the file with an absolute path: the plan may be run from anywhere.
fn append<W: Write>(writer: &mut PlanWriter<W>, file: &FilePlan) -> io::Result<()> {
    writer.write(&*indef_engine::absolute(file)?)
}
