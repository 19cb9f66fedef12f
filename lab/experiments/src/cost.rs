//! The cost of a migration: its recorded commands, done again in the model, alone and beside a load.

use anyhow::Result;
use flash_model::Command;
use flashd::device::LoggedCommand;
use serde::Serialize;

use super::{
    bench::Bench,
    inside::Memory,
    layout::{BLOCK, Layout},
    room::Recording,
    virtual_time::{Elapsed, Load, Recorded},
};

/// Longest part of a migration beside a load, and the time of the load alone.
const BESIDE_NS: u64 = 2_000_000_000;

/// The cost of a migration, by the model.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    pub(super) commands: usize,
    pub(super) elapsed_ns: u64,
    pub(super) busy_pct: f64,
    /// Elapsed time if no two of the commands overlap: no load of this machine makes it longer.
    pub(super) one_by_one_ns: u64,
    /// The commands that move data inside of the device, without all else (metadata, first of all).
    pub(super) moves: Option<Moves>,
    /// Program time × moved pages ÷ chips: no way is faster.
    pub(super) bound_ns: f64,
    /// Data between host and device, and lists of moves.
    pub(super) bus_bytes: u64,
    pub(super) migrated_bytes: u64,
    pub(super) host_written_bytes: u64,
    pub(super) host_read_bytes: u64,
    pub(super) memory: Memory,
    /// Bytes of a load in a second of the device: alone, and beside the migration.
    pub(super) load_alone: f64,
    pub(super) load_beside: f64,
    /// Elapsed time of the migration beside the load; a longer one is reckoned from the bytes of its first part.
    pub(super) beside_ns: f64,
    /// By the guest's clock, for those who wonder; no measure of the device.
    pub(super) guest_wall_ns: u64,
}

/// Moves inside of the device.
#[derive(Debug, Serialize)]
pub(super) struct Moves {
    pub(super) commands: usize,
    /// Of these, standard Copy commands.
    pub(super) copies: usize,
    pub(super) elapsed_ns: u64,
    pub(super) busy_pct: f64,
    /// The same from a host that always has two of them under way.
    pub(super) two_ns: u64,
    pub(super) two_busy_pct: f64,
}

impl Cost {
    /// Of a recorded migration that moved `moved_bytes` of files that lay like this.
    pub(super) fn of(
        bench: &Bench,
        recording: &Recording,
        layout: &Layout,
        moved_bytes: u64,
    ) -> Result<Self> {
        let replay =
            |mut host: Recorded<'_>| bench.machine(&recording.zones)?.run(&mut [&mut host]);
        let alone = replay(Recorded::new(&recording.commands))?;
        let one_by_one = replay(Recorded::one_by_one(&recording.commands))?;
        let (load_alone, load_beside, beside_ns) = beside_a_load(bench, recording, layout)?;
        let Elapsed { ns, stats } = &alone;
        let ssd = &bench.setup.ssd;
        let pages = moved_bytes as f64 / ssd.page_bytes as f64;
        Ok(Self {
            commands: recording.commands.len(),
            elapsed_ns: *ns,
            busy_pct: alone.busy_percent(),
            one_by_one_ns: one_by_one.ns,
            moves: Moves::of(bench, recording)?,
            bound_ns: ssd.program_ns * pages / stats.dies.len() as f64,
            bus_bytes: stats.host_read_bytes
                + stats.host_written_bytes
                + list_bytes(&recording.commands),
            migrated_bytes: stats.migrated_bytes,
            host_written_bytes: stats.host_written_bytes,
            host_read_bytes: stats.host_read_bytes,
            memory: recording.watched.memory,
            load_alone,
            load_beside,
            beside_ns,
            guest_wall_ns: recording.watched.wall_ns,
        })
    }

    /// The change of the load's speed, in percent.
    pub(super) fn load_change_pct(&self) -> f64 {
        100.0 * (self.load_beside / self.load_alone - 1.0)
    }
}

impl Moves {
    /// `None` if the host moved the data.
    fn of(bench: &Bench, recording: &Recording) -> Result<Option<Self>> {
        let is_move = |logged: &&LoggedCommand| {
            let command = logged.command.as_command();
            matches!(command, Command::Migrate { .. } | Command::Copy { .. })
        };
        let is_of_zone =
            |logged: &&LoggedCommand| matches!(logged.command.as_command(), Command::Zone { .. });
        let is_copy =
            |logged: &&LoggedCommand| matches!(logged.command.as_command(), Command::Copy { .. });
        let all = recording.commands.iter();
        let commands = all.clone().filter(is_move).count();
        if commands == 0 {
            return Ok(None);
        }
        let log: Vec<LoggedCommand> = all
            .clone()
            .filter(|it| is_move(it) || is_of_zone(it))
            .cloned()
            .collect();
        let replay =
            |mut host: Recorded<'_>| bench.machine(&recording.zones)?.run(&mut [&mut host]);
        let alone = replay(Recorded::new(&log))?;
        let two = replay(Recorded::overlapping(&log, 2))?;
        Ok(Some(Self {
            commands,
            copies: all.clone().filter(is_copy).count(),
            elapsed_ns: alone.ns,
            busy_pct: alone.busy_percent(),
            two_ns: two.ns,
            two_busy_pct: two.busy_percent(),
        }))
    }
}

/// The load's bytes a second, alone and beside the migration, and the migration's time beside it.
fn beside_a_load(bench: &Bench, recording: &Recording, layout: &Layout) -> Result<(f64, f64, f64)> {
    let io_bytes = bench.setup.io_size.get();
    let rate =
        |load: &Load<'_>, elapsed: &Elapsed| load.bytes_done as f64 * 1e9 / elapsed.ns as f64;
    let mut device = bench.machine(&recording.zones)?;
    let mut load = Load::new(layout, io_bytes, device.zones_of_load());
    let elapsed = device.run_until(&mut [&mut load], BESIDE_NS)?;
    let alone = rate(&load, &elapsed);
    let mut device = bench.machine(&recording.zones)?;
    let mut load = Load::new(layout, io_bytes, device.zones_of_load());
    let mut migration = Recorded::new(&recording.commands);
    let elapsed = device.run_until(&mut [&mut migration, &mut load], BESIDE_NS)?;
    let beside_ns = elapsed.ns as f64 / migration.progress();
    Ok((alone, rate(&load, &elapsed), beside_ns))
}

/// Bytes of the lists of moves and of sources that the host has sent.
fn list_bytes(commands: &[LoggedCommand]) -> u64 {
    let bytes = |logged: &LoggedCommand| match logged.command.as_command() {
        // Two addresses of 4 bytes for each block (In_Device_Defragment).
        Command::Migrate { moves } => moves.iter().map(|it| it.len / BLOCK * 8).sum(),
        // 32 bytes for each source (NVM Command Set, Copy, format 0h).
        Command::Copy { sources, .. } => sources.len() as u64 * 32,
        _ => 0,
    };
    commands.iter().map(bytes).sum()
}
