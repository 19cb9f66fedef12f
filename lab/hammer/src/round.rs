//! A round: make a volume, hammer it, examine it and each of its cuts.

use std::{
    collections::BTreeMap,
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde::Serialize;
use workloads::Numbers;

use crate::{
    actor::act,
    age::make_files,
    director::{Cut, Director, StillFacts},
    disk::{Disk, Host},
    examine::{
        Sharing, examine, examine_lasting, examine_nameless, examine_snapshots, examine_still,
        inodes_without_name,
    },
    lock::lock,
    medium::{CutState, Medium, MediumKind, Past},
    model::{Findings, Window},
    mover::{Mover, Movers},
    script::{Mood, Script},
    shared::Shared,
    volume::{Volume, VolumeKind},
};

/// Options that do not follow from the seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The mover.
    pub mover: Mover,
    /// The medium of the volume, in place of the seed's choice.
    pub medium: Option<MediumKind>,
    /// Cuts in a round.
    pub states: u32,
    /// The mood of the actors, in place of the seed's choice.
    pub mood: Option<Mood>,
    /// Factor for the waits between events, and for the time limit of a run of the mover.
    pub slow: u32,
    /// On ext4: the longest time of a mover's step and its commit, in which data that `fdatasync`
    /// acknowledged to others may be lost. 0 for none.
    pub window_ms: u64,
    /// A signal that arrived: rounds end early. 0 for none.
    pub signal: Arc<AtomicUsize>,
}

impl Options {
    /// The medium of a round of this seed.
    fn medium(&self, volume: &Volume, seed: u64) -> MediumKind {
        let both = [(1, MediumKind::Image), (1, MediumKind::Cache)];
        let by_seed = Numbers::stream(seed, 60).weighted(&both);
        volume.medium.or(self.medium).unwrap_or(by_seed)
    }
}

/// The work and the findings of a round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// The volume.
    pub volume: &'static str,
    /// Its medium.
    pub medium: &'static str,
    /// The command that repeats it.
    pub seed: u64,
    /// The mood of its actors.
    pub mood: String,
    /// Calls of actors.
    pub operations: u64,
    /// Runs of the mover.
    pub runs: u64,
    /// Runs that were killed.
    pub kills: u64,
    /// Cuts, and shutdowns.
    pub cuts: u64,
    /// Examined states: those of the cuts (several of each on a volatile cache), and the end.
    pub states: u64,
    /// A signal ended it early.
    pub interrupted: bool,
    /// Bytes that the mover reports as moved (e4defrag: files).
    pub bytes_moved: u64,
    /// Bytes that the device copied for it, even if the file system then refused the exchange.
    pub bytes_offloaded: u64,
    /// Commands of the device that failed since a block could not be read.
    pub failed_commands: u64,
    /// Nothing was moved, or nothing by the device on a volume for device copies: it shows nothing.
    pub void: bool,
    /// Blocks, sizes, names and attributes that were compared with the model.
    pub checked: u64,
    /// Of these, those that had several allowed values.
    pub in_doubt: u64,
    /// Losses in the window of ext4.
    pub window: u64,
    /// Old data in blocks whose content was in doubt (`data=writeback`).
    pub stale: u64,
    /// Everything that is not allowed.
    pub violations: Vec<String>,
    /// Refused operations, and how often.
    pub refused: BTreeMap<String, u64>,
    /// The operations, with their times in milliseconds.
    #[serde(skip)]
    pub log: Vec<String>,
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
            VolumeKind::Ext4 => options.window_ms,
            VolumeKind::Xfs | VolumeKind::Btrfs | VolumeKind::F2fs => 0,
        },
        stale: volume.mount.contains("data=writeback"),
        replaced: volume.kind == VolumeKind::Btrfs,
        in_steps: volume.kind == VolumeKind::Btrfs,
        in_place: volume.kind == VolumeKind::Xfs,
    };
    let kind = options.medium(volume, seed);
    let medium = host.medium(kind, volume)?;
    let mut disk = host.volume(volume, &medium)?;
    let shared = Shared::new(disk.path(), volume, &options.signal);
    let still =
        make_files(&shared, &mut Numbers::stream(seed, 50)).context("files to begin with")?;
    let nameless = inodes_without_name(disk.path()).context("inodes to begin with")?;
    if kind == MediumKind::CacheUntold {
        rustix::fs::syncfs(File::open(disk.path())?)?;
        disk.tell_of_cache(false)?;
    }
    let movers = Movers::new(&shared, &options.mover, options.slow).context("movers")?;
    let mut hammered = hammer(&shared, &disk, &medium, &movers, seed, script, options.slow)?;
    let mut examined = Examined::default();
    let cuts = hammered.cuts.len() as u64 + u64::from(hammered.at_shutdown.is_some());
    if shared.interrupted() {
        // Run as fast as possible.
    } else if let Some(model) = &hammered.at_shutdown {
        examined.add("shutdown", || {
            disk.unmount()?;
            disk.mount()?;
            let mut findings = examine(disk.path(), model, window);
            findings.merge(examine_lasting(disk.path(), &still));
            findings.merge(examine_nameless(disk.path(), nameless)?);
            disk.unmount()?;
            disk.fsck_after_cut()?;
            Ok(findings)
        });
    } else {
        examined.add("quiet end", || {
            let was_killed = movers.moved().kills > 0;
            quiet_end(&shared, &mut disk, &still, &hammered, nameless, was_killed)
        });
    }
    drop(disk);
    let mut past = medium.end()?;
    for (number, cut) in (0..).zip(std::mem::take(&mut hammered.cuts)) {
        let states = Numbers::stream(seed, 1000 + number).next();
        let look = |state: CutState, cut: &Cut| {
            let medium = host.workshop().device_of(state.left)?;
            let what = format!("{}{}", cut.what, state.what);
            examined.add(&what, || {
                examine_cut(host, volume, &medium, cut, (&still, nameless), window)
            });
            Ok(())
        };
        examine_states(&shared, &mut past, cut, states, look)?;
    }
    let mut findings = examined.findings;
    findings.merge(shared.take_findings());
    let moved = movers.moved();
    Ok(Round {
        volume: volume.name,
        medium: kind.as_str(),
        seed,
        mood: format!("{:?}", script.mood),
        operations: shared.operations.load(Ordering::Relaxed),
        runs: moved.runs,
        kills: moved.kills,
        cuts,
        states: examined.states,
        interrupted: shared.interrupted(),
        bytes_moved: moved.bytes,
        bytes_offloaded: moved.offloaded,
        failed_commands: hammered.failed_commands,
        void: moved.bytes == 0 || (volume.offload.is_some() && moved.offloaded == 0),
        checked: findings.checked,
        in_doubt: findings.in_doubt,
        window: findings.window,
        stale: findings.stale,
        violations: findings.violations,
        refused: shared.take_refused(),
        log: shared.take_log(),
    })
}

/// The findings in the examined states.
#[derive(Default)]
struct Examined {
    findings: Findings,
    states: u64,
}

impl Examined {
    fn add(&mut self, what: &str, examination: impl FnOnce() -> Result<Findings>) {
        self.findings.merge(after(what, examination));
        self.states += 1;
    }
}

/// Examine all states that a cut may have left, unless a signal comes.
fn examine_states(
    shared: &Shared,
    past: &mut Past,
    mut cut: Cut,
    seed: u64,
    mut look: impl FnMut(CutState, &Cut) -> Result<()>,
) -> Result<()> {
    if shared.interrupted() {
        return Ok(());
    }
    let taken = cut.taken.take().context("a cut is examined once")?;
    for state in past.states(taken, seed)? {
        if shared.interrupted() {
            break;
        }
        look(state, &cut)?;
    }
    Ok(())
}

/// The findings of an examination. An examination that fails is a violation, too: the file system does
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
    failed_commands: u64,
    snapshots: Vec<crate::director::Snapshot>,
    snapshotted: bool,
    at_shutdown: Option<crate::model::Model>,
}

fn hammer(
    shared: &Shared,
    disk: &Disk<'_>,
    medium: &Medium,
    movers: &Movers<'_>,
    seed: u64,
    script: &Script,
    slow: u32,
) -> Result<Hammered> {
    shared.note(format!("mood: {:?}", script.mood));
    let mut director = Director {
        shared,
        disk,
        medium,
        movers,
        cuts: Vec::new(),
        snapshots: Vec::new(),
        failed_commands: 0,
    };
    let at_shutdown = thread::scope(|scope| {
        for (number, steps) in (0..).zip(&script.actors) {
            scope.spawn(move || act(shared, number, steps));
        }
        for lane in 0..2 {
            scope.spawn(move || movers.work(seed, lane));
        }
        let directed = director.direct(&script.events, slow);
        let at_shutdown = match directed {
            Ok(()) if script.ends_with_shutdown && !shared.interrupted() => {
                director.shut_down().map(Some)
            }
            Ok(()) => Ok(None),
            Err(error) if director.has_given_up() => {
                shared.violation(format!("the file system has given up: {error:#}"));
                Ok(None)
            }
            Err(error) => Err(error),
        };
        shared.stop.store(true, Ordering::Relaxed);
        if script.ends_with_shutdown {
            movers.signal(Signal::KILL, None);
        }
        at_shutdown
    });
    for held in &shared.held {
        lock(held).clear();
    }
    Ok(Hammered {
        at_shutdown: at_shutdown?,
        cuts: director.cuts,
        failed_commands: director.failed_commands,
        snapshotted: !director.snapshots.is_empty(),
        snapshots: director.snapshots,
    })
}

/// Read everything with the power on, unmount in order, and read everything again.
fn quiet_end(
    shared: &Shared,
    disk: &mut Disk<'_>,
    still: &StillFacts,
    hammered: &Hammered,
    nameless: Option<i64>,
    was_killed: bool,
) -> Result<Findings> {
    let mut model = shared.model().clone();
    model.all_synced(0);
    let exactly = Window::default();
    let mut findings = after("live", || Ok(examine(disk.path(), &model, exactly)));
    disk.unmount()?;
    disk.mount()?;
    findings.merge(examine(disk.path(), &model, exactly));
    findings.merge(examine_snapshots(disk.path(), &hammered.snapshots));
    let sharing = Sharing {
        more: hammered.snapshotted,
        // A kill may leave a step half done: some holders have its new blocks, the others the old ones.
        less: shared.volume.unshares || was_killed,
    };
    findings.merge(examine_still(disk.path(), still, sharing));
    findings.merge(examine_nameless(disk.path(), nameless)?);
    disk.unmount()?;
    disk.fsck()?;
    Ok(findings)
}

/// Examine one state.
fn examine_cut(
    host: &Host,
    volume: &'static Volume,
    medium: &Medium,
    cut: &Cut,
    (still, nameless): (&StillFacts, Option<i64>),
    window: Window,
) -> Result<Findings> {
    let mut disk = host.examine(volume, medium)?;
    let mut findings = examine(disk.path(), &cut.model, window);
    findings.merge(examine_snapshots(disk.path(), &cut.snapshots));
    findings.merge(examine_lasting(disk.path(), still));
    findings.merge(examine_nameless(disk.path(), nameless)?);
    disk.unmount()?;
    disk.fsck_after_cut()?;
    Ok(findings)
}
