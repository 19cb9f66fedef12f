//! A volume in use: filebench's flows write a portion, then something else happens to the volume, then they go on.
//!
//! Between two portions nothing is under way, everything is on the device, and the memory of the host is empty. Files of
//! an in-place volume keep no blocks beyond their ends then, as their writers have closed them.

use std::{collections::HashMap, mem};

use indef_core::plan::FilePlan;
use units::Bytes;
use workloads::filebench::{self, Fileset, Flow};

use super::{Actors, Ageing, flows_of, in_order};
use crate::{
    disk::{Disk, Elapsed, Failure},
    files::FileId,
    host::{Carrier, Host, Writes},
    migration::{Migrated, migrate},
    parameters::Parameters,
    upkeep,
    volume::{InPlaceVolume, Volume},
};

/// The volume with its users. After an error its state is not defined.
#[derive(Clone, Debug)]
pub struct Living {
    parameters: Parameters,
    volume: Volume,
    fileset: Fileset,
    ids: HashMap<usize, FileId>,
    flows: Vec<Flow>,
    writes: Writes,
}

impl Living {
    /// Makes the files that filebench makes beforehand, and has so many flows write what `ageing` says.
    ///
    /// # Errors
    ///
    /// The volume is full, or the device refuses a command.
    pub fn begin(
        parameters: &Parameters,
        volume: Volume,
        disk: &mut Disk,
        ageing: filebench::Ageing,
        writes: Writes,
        flows: usize,
    ) -> Result<Self, Failure> {
        let host = Host::new(parameters, volume, flows + 1);
        let mut program = Ageing::new(parameters, host, ageing, writes, flows);
        disk.run(&mut program, flows + 1)?;
        let mut living = Self {
            parameters: parameters.clone(),
            fileset: program.fileset,
            ids: program.ids,
            flows: flows_of(ageing, flows),
            volume: program.host.into_volume(),
            writes,
        };
        living.flow(disk)?;
        Ok(living)
    }

    /// Has the flows write so many more bytes, and makes everything durable.
    ///
    /// # Errors
    ///
    /// As [`Self::begin`].
    pub fn go_on(&mut self, disk: &mut Disk, bytes: Bytes) -> Result<Elapsed, Failure> {
        self.fileset.go_on_for(bytes.0);
        self.flow(disk)
    }

    fn flow(&mut self, disk: &mut Disk) -> Result<Elapsed, Failure> {
        let threads = self.flows.len();
        let volume = self.take();
        let host = Host::new(&self.parameters, volume, threads + 1);
        let mut program = Ageing {
            host,
            readahead: self.parameters.cache.readahead,
            fileset: self.fileset.clone(),
            ids: mem::take(&mut self.ids),
            actors: Actors::Flows(mem::take(&mut self.flows)),
            flows: threads,
            over: 0,
            writes: self.writes,
        };
        let elapsed = disk.run(&mut program, threads + 1)?;
        let flows = mem::replace(&mut program.actors, Actors::maker([].into()));
        program.over = 0;
        disk.run(&mut program, threads + 1)?;
        if let Actors::Flows(flows) = flows {
            self.flows = flows;
        }
        self.fileset = program.fileset;
        self.ids = program.ids;
        self.volume = program.host.into_volume();
        if let Volume::InPlace(volume) = &mut self.volume {
            self.ids.values().for_each(|file| volume.close(*file));
        }
        Ok(elapsed)
    }

    /// Carries plans out; returns the work, without the volume.
    ///
    /// # Errors
    ///
    /// As [`migrate`].
    pub fn migrate(
        &mut self,
        disk: &mut Disk,
        plans: &[(FileId, FilePlan)],
        carrier: Carrier,
    ) -> Result<(Bytes, Elapsed), Failure> {
        let volume = self.take();
        let Migrated {
            volume,
            bytes,
            elapsed,
            ..
        } = migrate(&self.parameters, volume, disk, plans, carrier)?;
        self.volume = volume;
        Ok((bytes, elapsed))
    }

    /// Has the file system clean so many sections ([`upkeep::clean`]).
    ///
    /// # Errors
    ///
    /// The device refuses a command.
    pub fn clean(&mut self, disk: &mut Disk, sections: u32) -> Result<Elapsed, Failure> {
        let volume = self.take();
        let (volume, elapsed) = upkeep::clean(&self.parameters, volume, disk, sections)?;
        self.volume = volume;
        Ok(elapsed)
    }

    /// The volume.
    #[must_use]
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The users' files that are there, in order of their names.
    #[must_use]
    pub fn files(&self) -> Vec<FileId> {
        in_order(&self.ids)
    }

    /// The volume, for a while.
    fn take(&mut self) -> Volume {
        mem::replace(
            &mut self.volume,
            Volume::from(InPlaceVolume::new(1, 1, false)),
        )
    }
}
