//! The parts of `demo --zns` in the guest, each a run of this program.

use std::fs;

use anyhow::{Context, Result};
use indef_engine::Cancel;
use serde::{Deserialize, Serialize};

use super::{
    age::{self, Pieces},
    measure::{self, hashes, measure},
};
use crate::{
    args::{DemoStep, DemoStepArgs},
    output::{Name, json},
};

/// The output of [`DemoStep::Measure`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Measurement {
    /// The hash of each file, in hexadecimal.
    pub(super) sha256: Vec<String>,
    /// Median time of a cold read of all of them, by the guest's clock.
    pub(super) read_ns: u64,
    pub(super) size_bytes: u64,
    pub(super) extents: u64,
    /// Requests of such a read, computed from the extents.
    pub(super) requests: u64,
}

/// Run one step.
pub(crate) fn step(args: &DemoStepArgs) -> Result<()> {
    let cancel = Cancel::new();
    let dir = &args.dir;
    match args.step {
        DemoStep::Age => {
            fs::create_dir(dir).with_context(|| format!("{}: cannot make it", Name(dir)))?;
            age::age(dir, args.size, Pieces::WrittenBack, &cancel)?;
        }
        DemoStep::Measure => {
            let files = age::files(dir);
            let sums = hashes(&files, &cancel)?;
            let measured = measure(&files, &|| None, &cancel)?;
            json::print_bare(&Measurement {
                sha256: sums.iter().map(|sum| hexadecimal(sum)).collect(),
                read_ns: measured.read.get(),
                size_bytes: measured.size.get(),
                extents: measured.extents,
                requests: measured.requests,
            })?;
        }
        DemoStep::Read => {
            let files = age::files(dir);
            // Data in memory is not read from the device, and a trace sees
            // nothing of it.
            measure::forget(&files)?;
            for path in &files {
                measure::read(path, |_| {})?;
            }
        }
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
