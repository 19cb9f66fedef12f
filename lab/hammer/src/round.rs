//! A round: make a volume, hammer it, look at it and at each cut of it.

use std::{collections::BTreeMap, thread};

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde::Serialize;

use crate::{
    actor::act,
    age::make_files,
    director::{Cut, Director, StillFacts},
    disk::{Disk, Host},
    examine::{examine, examine_snapshots, examine_still, inodes_without_name},
    model::{Findings, Window},
    mover::{Mover, Movers},
    rng::Rng,
    script::{Mood, Script},
    shared::{Shared, lock},
    volume::{Kind, Volume},
};

/// What does not follow from the seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who moves.
    pub mover: Mover,
    /// Cuts to examine in a round.
    pub states: u32,
    /// What actors do most, instead of what the seed says.
    pub mood: Option<Mood>,
    /// On ext4: the longest time of a mover's step and its commit, in which what others are told
    /// to be durable by `fdatasync` may be lost. 0 for none.
    pub window_ms: u64,
}

/// What a round did and found.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// The volume.
    pub volume: &'static str,
    /// What makes it again.
    pub seed: u64,
    /// What its actors did most.
    pub mood: String,
    /// Calls of actors.
    pub operations: u64,
    /// Runs of the mover.
    pub runs: u64,
    /// Runs that were killed.
    pub kills: u64,
    /// Cuts, and shutdowns.
    pub cuts: u64,
    /// States that were examined: those of the cuts, and the end.
    pub states: u64,
    /// What the mover says that it moved (e4defrag: in files). A round with 0 is void.
    pub bytes_moved: u64,
    /// Blocks, sizes, names and attributes that were held against the model.
    pub checked: u64,
    /// Of these, those that could have been different.
    pub in_doubt: u64,
    /// Losses in the window of ext4.
    pub window: u64,
    /// Old data in blocks whose content was in doubt (`data=writeback`).
    pub stale: u64,
    /// Everything that cannot be.
    pub violations: Vec<String>,
    /// What was refused, and how often.
    pub refused: BTreeMap<String, u64>,
    /// What was done, with milliseconds.
    #[serde(skip)]
    pub log: Vec<String>,
}

impl Round {
    /// Whether nothing was moved, so that it shows nothing.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.bytes_moved == 0
    }
}

/// Run a script on a new volume.
pub(crate) fn run(
    host: &Host,
    volume: &'static Volume,
    seed: u64,
    script: &Script,
    options: &Options,
) -> Result<Round> {
    let window = Window {
        step_ms: match volume.kind {
            Kind::Ext4 => options.window_ms,
            Kind::Xfs | Kind::Btrfs => 0,
        },
        stale: volume.mount.contains("data=writeback"),
        replaced: volume.kind == Kind::Btrfs,
        in_steps: volume.kind == Kind::Btrfs,
    };
    let mut disk = host.volume(volume)?;
    let shared = Shared::new(disk.path(), volume);
    let still = make_files(&shared, &mut Rng::new(seed, 50)).context("files to begin with")?;
    let nameless = inodes_without_name(disk.path())?;
    let movers = Movers::new(&shared, &options.mover)?;
    let hammered = hammer(&shared, &disk, &movers, seed, script)?;
    let mut findings = Findings::default();
    let mut states = hammered.cuts.len() as u64 + 1;
    let cuts = states - u64::from(hammered.at_shutdown.is_none());
    if let Some(model) = &hammered.at_shutdown {
        findings.merge(after("shutdown", || {
            disk.unmount()?;
            disk.mount()?;
            let mut findings = examine(disk.path(), model, window);
            findings.merge(examine_still(disk.path(), &still, true, false));
            disk.unmount()?;
            disk.fsck()?;
            Ok(findings)
        }));
    } else {
        findings.merge(after("quiet end", || {
            quiet_end(&shared, &mut disk, &still, &hammered, nameless)
        }));
    }
    drop(disk);
    for cut in hammered.cuts {
        findings.merge(after(&cut.what.clone(), || {
            examine_cut(host, volume, cut, &still, window)
        }));
    }
    findings.merge(shared.take_findings());
    states -= u64::from(findings.checked == 0);
    let moved = movers.moved();
    Ok(Round {
        volume: volume.name,
        seed,
        mood: format!("{:?}", script.mood),
        operations: shared.operations.load(std::sync::atomic::Ordering::Relaxed),
        runs: moved.runs,
        kills: moved.kills,
        cuts,
        states,
        bytes_moved: moved.bytes,
        checked: findings.checked,
        in_doubt: findings.in_doubt,
        window: findings.window,
        stale: findings.stale,
        violations: findings.violations,
        refused: shared.take_refused(),
        log: shared.take_log(),
    })
}

/// What an examination found; that it could not be made is a violation, too: a file system that does
/// not mount or is not in order.
fn after(what: &str, examination: impl FnOnce() -> Result<Findings>) -> Findings {
    let mut findings = examination().unwrap_or_else(|error| {
        let mut findings = Findings::default();
        findings.violation(format!("{error:#}"));
        findings
    });
    for violation in &mut findings.violations {
        *violation = format!("{what}: {violation}");
    }
    findings
}

struct Hammered {
    cuts: Vec<Cut>,
    snapshots: Vec<crate::director::Snapshot>,
    snapshotted: bool,
    at_shutdown: Option<crate::model::Model>,
}

fn hammer(
    shared: &Shared,
    disk: &Disk<'_>,
    movers: &Movers<'_>,
    seed: u64,
    script: &Script,
) -> Result<Hammered> {
    shared.note(format!("mood: {:?}", script.mood));
    let mut director = Director {
        shared,
        disk,
        movers,
        cuts: Vec::new(),
        snapshots: Vec::new(),
    };
    let at_shutdown = thread::scope(|scope| {
        for (number, steps) in (0..).zip(&script.actors) {
            scope.spawn(move || act(shared, number, steps));
        }
        for lane in 0..2 {
            scope.spawn(move || movers.work(seed, lane));
        }
        let directed = director.direct(&script.events);
        let at_shutdown = if directed.is_ok() && script.ends_with_shutdown {
            director.shut_down().map(Some)
        } else {
            Ok(None)
        };
        shared
            .stop
            .store(true, std::sync::atomic::Ordering::Relaxed);
        if script.ends_with_shutdown {
            movers.signal(Signal::KILL, None);
        }
        directed.and(at_shutdown)
    });
    for held in &shared.held {
        lock(held).clear();
    }
    Ok(Hammered {
        at_shutdown: at_shutdown?,
        cuts: director.cuts,
        snapshotted: !director.snapshots.is_empty(),
        snapshots: director.snapshots,
    })
}

/// All reads with the power on, then an orderly unmount, and everything again.
fn quiet_end(
    shared: &Shared,
    disk: &mut Disk<'_>,
    still: &StillFacts,
    hammered: &Hammered,
    nameless: Option<i64>,
) -> Result<Findings> {
    let mut model = shared.model().clone();
    model.all_synced(0);
    let exactly = Window::default();
    let mut findings = after("live", || Ok(examine(disk.path(), &model, exactly)));
    disk.unmount()?;
    disk.fsck()?;
    disk.mount()?;
    findings.merge(examine(disk.path(), &model, exactly));
    findings.merge(examine_snapshots(disk.path(), &hammered.snapshots));
    findings.merge(examine_still(
        disk.path(),
        still,
        false,
        hammered.snapshotted,
    ));
    let now = inodes_without_name(disk.path())?;
    if now != nameless {
        findings.violation(format!(
            "inodes without a name: {nameless:?} became {now:?}"
        ));
    }
    disk.unmount()?;
    Ok(findings)
}

fn examine_cut(
    host: &Host,
    volume: &'static Volume,
    cut: Cut,
    still: &StillFacts,
    window: Window,
) -> Result<Findings> {
    let mut disk = host.examine(volume, cut.image)?;
    let mut findings = examine(disk.path(), &cut.model, window);
    findings.merge(examine_snapshots(disk.path(), &cut.snapshots));
    findings.merge(examine_still(disk.path(), still, true, false));
    disk.unmount()?;
    disk.fsck()?;
    Ok(findings)
}
