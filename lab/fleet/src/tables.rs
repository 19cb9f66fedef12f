//! The files of a database: pages that are updated at random.

use std::mem;

use indef_core::plan::FilePlan;
use lfs_sim::{
    BLOCK, FileId, Parameters,
    disk::{Disk, Elapsed, Failure},
    host::Carrier,
    migration::{Migrated, migrate},
    script, upkeep,
    volume::{InPlaceVolume, Volume},
};
use units::Bytes;
use workloads::Numbers;

/// The length of a table, in blocks: 4 MiB.
const TABLE: u32 = 1024;
/// What is written of a table at a time when it is made, in blocks.
const LOADED: u32 = 256;

/// Tables that are there for good.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    volume: Volume,
    files: Vec<FileId>,
    numbers: Numbers,
}

impl Tables {
    /// Makes tables of so many bytes in all.
    ///
    /// # Errors
    ///
    /// The volume is full, or the device refuses a command.
    pub(crate) fn begin(
        parameters: &Parameters,
        mut volume: Volume,
        disk: &mut Disk,
        data: Bytes,
        seed: u64,
    ) -> Result<Self, Failure> {
        let count = (data.0 / (BLOCK.0 * u64::from(TABLE))).max(1);
        let files: Vec<FileId> = (0..count).map(|_| volume.create()).collect();
        let parts = |file: &FileId| {
            let file = *file;
            (0..TABLE / LOADED).map(move |part| (file, part * LOADED..(part + 1) * LOADED))
        };
        let writes: Vec<_> = files.iter().flat_map(parts).collect();
        let (volume, _) = script::write(parameters, volume, disk, writes)?;
        Ok(Self {
            volume,
            files,
            numbers: Numbers::new(seed),
        })
    }

    /// Updates pages of so many bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::begin`].
    pub(crate) fn go_on(
        &mut self,
        parameters: &Parameters,
        disk: &mut Disk,
        bytes: Bytes,
    ) -> Result<Elapsed, Failure> {
        let (files, numbers) = (&self.files, &mut self.numbers);
        let updates = (0..bytes.0 / BLOCK.0).map(|_| {
            let page = numbers.below(TABLE);
            (files[numbers.below(files.len())], page..page + 1)
        });
        let updates: Vec<_> = updates.collect();
        let volume = self.take();
        let (volume, elapsed) = script::write(parameters, volume, disk, updates)?;
        self.volume = volume;
        Ok(elapsed)
    }

    /// Carries plans out.
    ///
    /// # Errors
    ///
    /// As [`migrate`].
    pub(crate) fn migrate(
        &mut self,
        parameters: &Parameters,
        disk: &mut Disk,
        plans: &[(FileId, FilePlan)],
        carrier: Carrier,
    ) -> Result<(Bytes, Elapsed), Failure> {
        let Migrated {
            volume,
            bytes,
            elapsed,
            ..
        } = migrate(parameters, self.take(), disk, plans, carrier)?;
        self.volume = volume;
        Ok((bytes, elapsed))
    }

    /// Has the file system clean so many sections ([`upkeep::clean`]).
    ///
    /// # Errors
    ///
    /// As [`migrate`].
    pub(crate) fn clean(
        &mut self,
        parameters: &Parameters,
        disk: &mut Disk,
        sections: u32,
    ) -> Result<Elapsed, Failure> {
        let (volume, elapsed) = upkeep::clean(parameters, self.take(), disk, sections)?;
        self.volume = volume;
        Ok(elapsed)
    }

    /// The volume.
    #[must_use]
    pub(crate) const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The tables.
    #[must_use]
    pub(crate) fn files(&self) -> &[FileId] {
        &self.files
    }

    fn take(&mut self) -> Volume {
        mem::replace(
            &mut self.volume,
            Volume::from(InPlaceVolume::new(1, 1, false)),
        )
    }
}
