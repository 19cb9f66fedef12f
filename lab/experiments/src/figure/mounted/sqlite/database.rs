//! The database, and what its client does: `sqlite3`.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use stage::{StageError, text};
use units::Bytes;

use super::super::{
    super::{error::FigureError, parameters::Parameters},
    ground::Failed,
};

/// The name of the database in its folder.
const NAME: &str = "rows.sqlite";

/// The rows, and the range of the query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    rows: u64,
    value: Bytes,
    /// Rows from the beginning that the query returns, and the update writes.
    range: u64,
    /// How many times as many rows the paper has.
    pub(super) scale: f64,
    /// Of a read, and how far the kernel reads ahead.
    pub(super) io_size: Bytes,
}

impl Workload {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let rows = parameters.count("rows")?;
        let part = parameters.number("selected")? / 100.0;
        Ok(Self {
            rows,
            value: Bytes(parameters.bytes("value")?),
            range: (rows as f64 * part) as u64,
            scale: parameters.count("all_rows")? as f64 / rows as f64,
            io_size: Bytes(parameters.bytes("io_size")?),
        })
    }

    /// Makes the database in `folder`: row by row, each durable before the next one, in turn with a row of each of so
    /// many others.
    pub(super) fn make(&self, folder: &Path, others: u64) -> Result<(), Failed> {
        let mut script = String::from("pragma synchronous = full;\n");
        let schemas: Vec<String> = (0..others).map(|other| format!("other{other}")).collect();
        for schema in &schemas {
            writeln!(script, "attach '{schema}.sqlite' as {schema};")?;
        }
        let schemas = || {
            ["main"]
                .into_iter()
                .chain(schemas.iter().map(String::as_str))
        };
        for schema in schemas() {
            writeln!(
                script,
                "create table {schema}.rows(id integer primary key, value blob);"
            )?;
        }
        for row in 1..=self.rows {
            for schema in schemas() {
                let value = self.value.0;
                writeln!(
                    script,
                    "insert into {schema}.rows values({row}, randomblob({value}));"
                )?;
            }
        }
        let file = tempfile::NamedTempFile::new()?;
        fs::write(&file, script)?;
        let mut read = OsString::from(".read '");
        read.push(file.path());
        read.push("'");
        let mut command = Command::new("sqlite3");
        command.current_dir(folder).args(["-batch", "-bail", NAME]);
        text(command.arg(read))?;
        Ok(())
    }

    /// The file of the database in `folder`.
    pub(super) fn file(folder: &Path) -> PathBuf {
        folder.join(NAME)
    }

    /// The command of the query, which returns the values of the range.
    pub(super) fn query(&self, file: &Path) -> Command {
        let mut command = sqlite(true);
        command.args(["-cmd", ".output /dev/null"]);
        command.arg(file);
        command.arg(format!(
            "select value from rows where id <= {};",
            self.range
        ));
        command
    }

    /// Write the values of the range anew, durably. Returns the seconds.
    pub(super) fn update(&self, file: &Path) -> Result<f64, StageError> {
        let mut command = sqlite(false);
        command.arg(file).arg(format!(
            "update rows set value = randomblob({}) where id <= {};",
            self.value.0, self.range
        ));
        let begun = Instant::now();
        text(&mut command)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// An error unless SQLite finds all rows, and no damage.
    pub(super) fn check(&self, file: &Path) -> Result<(), Failed> {
        let mut command = sqlite(true);
        command.arg(file);
        command.arg("pragma integrity_check; select count(*), sum(length(value)) from rows;");
        let said = text(&mut command)?;
        let wanted = format!("ok\n{}|{}\n", self.rows, self.rows * self.value.0);
        if said == wanted {
            Ok(())
        } else {
            Err(format!("sqlite3 finds {said:?} in {}", file.display()).into())
        }
    }
}

fn sqlite(is_readonly: bool) -> Command {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail"]);
    if is_readonly {
        command.arg("-readonly");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_made_returned_updated_and_checked() {
        if !scratch_fs::require_program("sqlite3") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let workload = Workload {
            rows: 20,
            value: Bytes::kib(4),
            range: 6,
            scale: 1.0,
            io_size: Bytes::kib(128),
        };
        workload.make(folder.path(), 1).unwrap();
        let file = Workload::file(folder.path());
        // Nearly as much for the other one, which has no part in what follows.
        assert!(
            fs::metadata(folder.path().join("other0.sqlite"))
                .unwrap()
                .len()
                > 20 * 4096
        );
        workload.check(&file).unwrap();
        assert_eq!(text(&mut workload.query(&file)).unwrap(), "");
        let before = fs::read(&file).unwrap();
        workload.update(&file).unwrap();
        workload.check(&file).unwrap();
        assert_ne!(fs::read(&file).unwrap(), before);
        // A page that is not what it was is found.
        let mut damaged = before;
        damaged[5 * 4096..6 * 4096].fill(0xFF);
        fs::write(&file, damaged).unwrap();
        assert!(workload.check(&file).is_err());
    }
}
