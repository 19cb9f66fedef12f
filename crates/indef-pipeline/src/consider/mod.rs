//! Consideration: whether the machine has room for work that can wait.
//!
//! ```text
//! Machine (/proc, /sys, ioctl) ─▶ Looker ─▶ readings: value, limit or "cannot tell" ─▶ Gate: go on, or pause
//! ```
//!
//! Each reading is a number of which more is worse, with the limit from which on work pauses. What cannot be told is
//! told as such, never taken for good: it stands among the readings with its reason, and with [`Limits::cautious`]
//! it pauses, too.
//!
//! Our own work is left out as far as the kernel lets us tell it apart: the pressure of other processes is that of
//! all less our own control group's, and the load of a disk, which the kernel does not divide by process, is only
//! judged over times in which we did nothing.

mod disk;
mod gate;
mod health;
mod machine;
mod power;
mod pressure;
mod reading;
mod source;

pub use gate::{Change, Gate};
pub use machine::Machine;
pub use reading::{CannotTell, Limits, Quantity, Reading};
pub use source::{Health, Source};

/// Takes readings, each over the time since the last ones.
#[derive(Debug)]
pub struct Looker<S> {
    source: S,
    pressure: pressure::Pressure,
    disks: disk::Disks,
    drives: health::Drives,
}

impl<S: Source> Looker<S> {
    /// Nothing was looked at yet.
    pub fn new(source: S) -> Self {
        Self {
            source,
            pressure: pressure::Pressure::default(),
            disks: disk::Disks::default(),
            drives: health::Drives::default(),
        }
    }

    /// The readings of the machine and of these drives (kernel names: `sda`). `working`: we have worked since the last
    /// look.
    pub fn look(&mut self, drives: &[String], working: bool, limits: &Limits) -> Vec<Reading> {
        let source = &self.source;
        let now = source.now();
        let mut found: Vec<(Quantity, Option<String>, Result<f64, CannotTell>)> = Vec::new();
        let [io, cpu] = self.pressure.look(source, now, working);
        found.push((Quantity::IoPressure, None, io));
        found.push((Quantity::CpuPressure, None, cpu));
        found.push((Quantity::Battery, None, power::on_battery(source)));
        self.disks.keep_only(drives);
        for drive in drives {
            let [busy, latency] = self.disks.look(source, drive, now, working);
            let health = self.drives.look(source, drive, now);
            let of = |quantity, value| (quantity, Some(drive.clone()), value);
            found.push(of(Quantity::DiskBusy, busy));
            found.push(of(Quantity::DiskLatency, latency));
            found.push(of(Quantity::Temperature, health.celsius));
            found.push(of(Quantity::Wear, health.used_pct));
        }
        if drives.is_empty() {
            let disk = [
                Quantity::DiskBusy,
                Quantity::DiskLatency,
                Quantity::Temperature,
                Quantity::Wear,
            ];
            found.extend(disk.map(|quantity| (quantity, None, Err(CannotTell::NoDrive))));
        }
        let reading = |(quantity, drive, value)| Reading {
            quantity,
            drive,
            value,
            limit: limits.of(quantity),
        };
        found.into_iter().map(reading).collect()
    }
}

#[cfg(test)]
mod tests;
