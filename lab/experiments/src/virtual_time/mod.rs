//! The device model alone, in virtual time, with hosts that take no time themselves.
//!
//! A [`Host`] submits commands as soon as those that it waits for are done. So a figure depends on the
//! commands, their order and the model, and not on a guest's clock or another load on this machine: done again
//! with the same input, it is the same to the nanosecond.

mod load;
mod reader;
mod recorded;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use anyhow::{Context, Result};
use flash_model::{
    Device, Done, NamespaceKind, NamespaceSpec, OwnedCommand, Profile, Stats, Ticket, Zone,
    ZoneState,
};
use units::{Bytes, Nanos};

pub(crate) use self::{load::Load, reader::Reader, recorded::Recorded};

/// The namespaces of the guest's SSD: with zones, and F2FS's metadata.
pub(crate) const ZONED: usize = 0;
const CONVENTIONAL: usize = 1;

/// Zones of the model beyond those of the device: for a load that writes beside a migration, so that no
/// zone belongs to both.
const ZONES_OF_LOAD: usize = 32;

/// A command of a host, and the number by which the host knows it.
pub(crate) struct Submission {
    pub(crate) number: usize,
    pub(crate) namespace: usize,
    pub(crate) command: OwnedCommand,
}

/// Who submits commands.
pub(crate) trait Host {
    /// The next command that can be submitted now.
    fn next(&mut self) -> Option<Submission>;
    /// The command with this number is done.
    fn done(&mut self, number: usize);
    /// Whether all is done.
    fn is_over(&self) -> bool;
}

/// A device in a known state, at a known time.
pub(crate) struct Machine {
    device: Device,
    now: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Elapsed {
    pub(crate) ns: u64,
    /// The model's counters over this time.
    pub(crate) stats: Stats,
}

impl Elapsed {
    /// The share of the time in which the dies were busy, in percent, on average.
    pub(crate) fn busy_percent(&self) -> f64 {
        let busy: u64 = self.stats.dies.iter().map(|die| die.busy_ns).sum();
        100.0 * busy as f64 / self.stats.dies.len() as f64 / self.ns as f64
    }
}

impl Machine {
    /// A device whose zones are these. The namespace without zones is filled, so that its reads cost
    /// what they do.
    pub(crate) fn new(profile: &Profile, zones: &[Zone], conventional: Bytes) -> Result<Self> {
        let zone = zones.first().context("a namespace without zones")?;
        let size = (zones.len() + ZONES_OF_LOAD) as u64 * zone.size;
        let spec = |kind, size| NamespaceSpec { kind, size };
        let specs = [
            spec(NamespaceKind::Zoned, Bytes(size)),
            spec(NamespaceKind::Conventional, conventional),
        ];
        let mut device = Device::new(profile, &specs)?;
        for (index, zone) in zones.iter().enumerate() {
            let state = match zone.state {
                ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen => ZoneState::Closed,
                state => state,
            };
            device.restore_zone(ZONED, index, state, zone.write_pointer);
        }
        let now = lfs_sim::device::fill(&mut device, CONVENTIONAL, conventional).get();
        Ok(Self { device, now })
    }

    /// The zones for a load.
    pub(crate) fn zones_of_load(&self) -> Vec<Zone> {
        let zones = self.device.zones(ZONED);
        zones[zones.len() - ZONES_OF_LOAD..].to_vec()
    }

    /// Let the hosts work until the first of them is over.
    pub(crate) fn run(&mut self, hosts: &mut [&mut dyn Host]) -> Result<Elapsed> {
        self.run_until(hosts, u64::MAX)
    }

    /// The same, but not longer than `longest_ns`.
    pub(crate) fn run_until(
        &mut self,
        hosts: &mut [&mut dyn Host],
        longest_ns: u64,
    ) -> Result<Elapsed> {
        let (begun, before) = (self.now, self.device.stats());
        let mut known: BinaryHeap<Reverse<(u64, usize, usize)>> = BinaryHeap::new();
        let mut later: HashMap<Ticket, (usize, usize)> = HashMap::new();
        let mut finished = Vec::new();
        while !hosts[0].is_over() && self.now - begun < longest_ns {
            for (index, host) in hosts.iter_mut().enumerate() {
                while let Some(it) = host.next() {
                    let command = it.command.as_command();
                    let accepted = self
                        .device
                        .submit(Nanos(self.now), it.namespace, &command)
                        .with_context(|| {
                            format!("{command:?} of host {index}, number {}", it.number)
                        })?;
                    match accepted.done {
                        Done::At(at) => known.push(Reverse((at.get(), index, it.number))),
                        Done::Later(ticket) => drop(later.insert(ticket, (index, it.number))),
                    }
                }
            }
            let done = known.peek().map(|Reverse((at, ..))| *at);
            let event = self.device.next_event().map(Nanos::get);
            let next = done
                .into_iter()
                .chain(event.filter(|_| !later.is_empty()))
                .min();
            self.now = next.context("every host waits for another")?.max(self.now);
            self.device.advance(Nanos(self.now), &mut finished);
            for (ticket, at) in finished.drain(..) {
                // What an earlier run did not wait for ends now.
                if let Some((host, number)) = later.remove(&ticket) {
                    known.push(Reverse((at.get(), host, number)));
                }
            }
            while let Some(&Reverse((at, host, number))) = known.peek()
                && at <= self.now
            {
                known.pop();
                hosts[host].done(number);
            }
        }
        Ok(Elapsed {
            ns: self.now - begun,
            stats: self.device.stats().since(&before),
        })
    }
}
