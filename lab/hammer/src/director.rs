//! Events of the whole volume: cuts, freezes, a full disk.

use std::{
    fs::{self, File},
    io,
    process::Command,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use rustix::{fs::FallocateFlags, io::Errno, process::Signal};

use crate::{
    age::Facts,
    disk::Disk,
    front::{front, place_of},
    lock::lock,
    medium::{Medium, Taken},
    model::Model,
    mover::Movers,
    program::run,
    script::Event,
    shared::{FAILS_AFTER, Shared},
    volume::VolumeKind,
};

/// A snapshot of the whole volume (Btrfs), and its required content.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) model: Model,
    /// It was being made or deleted: it may be there or not, and hold anything.
    pub(crate) in_doubt: bool,
}

/// A state to examine.
pub(crate) struct Cut {
    pub(crate) what: String,
    /// The cut, until it is examined.
    pub(crate) taken: Option<Taken>,
    pub(crate) model: Model,
    pub(crate) snapshots: Vec<Snapshot>,
}

/// See the module.
pub(crate) struct Director<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) disk: &'a Disk<'a>,
    pub(crate) medium: &'a Medium,
    pub(crate) movers: &'a Movers<'a>,
    pub(crate) cuts: Vec<Cut>,
    pub(crate) snapshots: Vec<Snapshot>,
    /// Commands that failed since a block could not be read.
    pub(crate) failed_commands: u64,
}

fn sleep(ms: u32) {
    thread::sleep(Duration::from_millis(ms.into()));
}

impl Director<'_> {
    /// Run all events of the list, one after the other, with waits `slow` times longer.
    pub(crate) fn direct(&mut self, events: &[(u32, Event)], slow: u32) -> Result<()> {
        for (wait_ms, event) in events {
            sleep(*wait_ms * slow);
            if self.shared.stopped() {
                return Ok(());
            }
            self.shared.note(format!("event {event:?}"));
            match *event {
                Event::Cut => self.cut(*event)?,
                Event::StopAndCut(ms) => {
                    let halt = self.shared.model().mover_halted();
                    self.movers.signal(Signal::STOP, None);
                    sleep(ms);
                    self.cut(*event)?;
                    self.movers.signal(Signal::CONT, None);
                    self.shared.model().mover_continues(halt);
                }
                Event::KillAndCut(ms) => {
                    self.movers.signal(Signal::KILL, None);
                    sleep(ms);
                    self.cut(*event)?;
                }
                Event::UnreadableAndCut(ms) => self.unreadable(*event, ms * slow)?,
                Event::Sync => {
                    let _nobody = self.shared.nobody();
                    let begun_ms = self.shared.now_ms();
                    rustix::fs::syncfs(File::open(&self.shared.root)?)?;
                    self.shared.model().all_synced(begun_ms);
                }
                Event::Freeze => self.freeze()?,
                Event::ReadOnly => self.read_only()?,
                Event::Fill => self.fill()?,
                Event::Swap => self.swap()?,
                Event::Defragment => self.defragment(),
                Event::Snapshot => self.snapshot(),
                Event::DropSnapshot => self.drop_snapshot(),
            }
        }
        Ok(())
    }

    fn cut(&mut self, event: Event) -> Result<()> {
        let begun_ms = self.shared.now_ms();
        self.shared.model().begin_cut();
        let taken = self.medium.cut();
        let model = self.shared.model().end_cut(begun_ms);
        self.cuts.push(Cut {
            what: format!("cut {} at {begun_ms} ms ({event:?})", self.cuts.len()),
            taken: Some(taken?),
            model,
            snapshots: self.snapshots.clone(),
        });
        Ok(())
    }

    /// Let blocks be unreadable that the mover comes to next. A step that fails gives back what it had taken
    /// over, and a sync that has waited for it must not take that for written: right after such a sync
    /// comes the cut, or else at the end.
    fn unreadable(&mut self, event: Event, ms: u32) -> Result<()> {
        {
            let _nobody = self.shared.nobody();
            for place in self.next_places()? {
                self.medium.make_unreadable(place, FAILS_AFTER)?;
            }
            self.shared.unreadable.store(true, Ordering::Relaxed);
        }
        let until = Instant::now() + Duration::from_millis(ms.into());
        let to_be_cut = || self.shared.to_be_cut.load(Ordering::Relaxed);
        while !to_be_cut() && Instant::now() < until && !self.shared.stopped() {
            sleep(1);
        }
        self.shared
            .note(format!("a sync has waited: {}", to_be_cut()));
        let cut = self.cut(event);
        self.shared.to_be_cut.store(false, Ordering::Relaxed);
        let _nobody = self.shared.nobody();
        let failed = self.medium.make_readable()?;
        self.shared.unreadable.store(false, Ordering::Relaxed);
        self.shared.note(format!("{failed} commands failed"));
        self.failed_commands += failed;
        cut
    }

    /// Places on the disks of some blocks past the front of each actor's files: not too near, as most writes
    /// aim there and give blocks new places.
    fn next_places(&self) -> Result<Vec<u64>> {
        const PAST_THE_FRONT: [u32; 3] = [100, 150, 200];
        let model = self.shared.model();
        let names: Vec<String> = model
            .names()
            .filter(|(name, file)| name.starts_with('a') && file.live().is_some())
            .map(|(name, _)| name.to_owned())
            .collect();
        drop(model);
        let mut places = Vec::new();
        for name in names {
            let file = File::open(self.shared.path(&name))?;
            let front = front(&file)?;
            for past in PAST_THE_FRONT {
                places.extend(place_of(&file, front + past)?);
            }
        }
        Ok(places)
    }

    fn freeze(&self) -> Result<()> {
        let _nobody = self.shared.nobody();
        let begun_ms = self.shared.now_ms();
        self.disk.program(&["fsfreeze", "--freeze"])?;
        sleep(20);
        self.disk.program(&["fsfreeze", "--unfreeze"])?;
        self.shared.model().all_synced(begun_ms);
        Ok(())
    }

    /// Remount read-only, which works unless the mover has a file open for writing.
    fn read_only(&self) -> Result<()> {
        let _nobody = self.shared.nobody();
        for held in &self.shared.held {
            lock(held).clear();
        }
        let begun_ms = self.shared.now_ms();
        for _ in 0..5 {
            if self.disk.program(&["mount", "-o", "remount,ro"]).is_ok() {
                self.shared.model().all_synced(begun_ms);
                sleep(20);
                self.disk.program(&["mount", "-o", "remount,rw"])?;
                self.shared.note("was read-only".into());
                return Ok(());
            }
            sleep(5);
        }
        Ok(())
    }

    fn fill(&self) -> Result<()> {
        let set = |full| {
            let _nobody = self.shared.nobody();
            self.shared.filling.store(full, Ordering::Relaxed);
        };
        set(true);
        let path = self.shared.path("fill");
        let file = File::create(&path)?;
        let (mut at, mut len) = (0, 64 << 20);
        while len >= 4096 {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), at, len) {
                Ok(()) => at += len,
                Err(_) => len /= 4,
            }
        }
        sleep(100);
        drop(file);
        fs::remove_file(&path)?;
        // Only then is its space free again: a mapped write that gets none is a SIGBUS.
        rustix::fs::syncfs(File::open(&self.shared.root)?)?;
        set(false);
        Ok(())
    }

    /// Whether the file system refuses writes: it has shut down, or turned read-only.
    pub(crate) fn has_given_up(&self) -> bool {
        let path = self.shared.path("fill");
        let written = File::create(&path).and_then(|file| file.sync_all());
        let _ = fs::remove_file(&path);
        let errno = written.err().and_then(|error| Errno::from_io_error(&error));
        errno.is_some_and(|errno| {
            [Errno::IO, Errno::ROFS, Errno::UCLEAN, Errno::SHUTDOWN].contains(&errno)
        })
    }

    /// Swap to a file for a moment; the file must not move. Not every file system can swap.
    fn swap(&self) -> Result<()> {
        let path = self.shared.path("swap");
        let place = || {
            let mut mapper = linux_abi::fiemap::Mapper::default();
            let extents = mapper.batch(&File::open(&path)?, 0, u64::MAX, 0)?.to_vec();
            let places = extents.iter().map(|e| (e.logical, e.physical, e.length));
            io::Result::Ok(places.collect::<Vec<_>>())
        };
        if run(Command::new("swapon").arg(&path)).is_err() {
            self.shared.note("swapon was refused".into());
            return Ok(());
        }
        let before = place();
        sleep(60);
        let after = place();
        run(Command::new("swapoff").arg(&path))?;
        if before? != after? {
            self.shared
                .violation("the swap file was moved while in use".into());
        }
        Ok(())
    }

    /// Run the conventional tool beside the mover. Not on ext4, where e4defrag itself loses the data that
    /// the hammer looks for: `--mover e4defrag` shows it. Nor on XFS without reverse mapping: after a cut that
    /// follows an exchange of xfs_fsr, it may not mount.
    fn defragment(&self) {
        let words: &[&str] = match self.shared.volume.kind {
            VolumeKind::Ext4 => return,
            VolumeKind::Xfs if !self.shared.volume.has_rmap() => return,
            VolumeKind::Xfs => &["xfs_fsr"],
            VolumeKind::Btrfs => &["btrfs", "filesystem", "defragment"],
            VolumeKind::F2fs => &["f2fs_io", "defrag_file", "0", "8388608"],
        };
        let name = self.shared.path("a0/main");
        let ran = run(Command::new(words[0]).args(&words[1..]).arg(name));
        if ran.is_err() {
            self.shared.note(format!("{} refused", words[0]));
        }
    }

    fn snapshot(&mut self) {
        let name = format!("snap-{}", self.cuts.len() * 100 + self.snapshots.len());
        let ran = {
            let shared = self.shared;
            let _nobody = shared.nobody();
            let begun_ms = shared.now_ms();
            let mut model = shared.model().clone();
            model.all_synced(begun_ms);
            self.snapshots.push(Snapshot {
                name: name.clone(),
                model,
                in_doubt: false,
            });
            run(Command::new("btrfs")
                .args(["subvolume", "snapshot", "-r"])
                .arg(&shared.root)
                .arg(shared.path(&name)))
        };
        if let Err(error) = ran {
            self.shared.note(format!("no snapshot: {error}"));
            self.snapshots.pop();
        }
    }

    fn drop_snapshot(&mut self) {
        let Some(last) = self
            .snapshots
            .iter_mut()
            .rfind(|snapshot| !snapshot.in_doubt)
        else {
            return;
        };
        last.in_doubt = true;
        let path = self.shared.path(&last.name);
        let ran = run(Command::new("btrfs")
            .args(["subvolume", "delete"])
            .arg(path));
        if let Err(error) = ran {
            self.shared.note(format!("snapshot not deleted: {error}"));
        }
    }

    /// The last state: the file system shuts down without flushing its journal.
    pub(crate) fn shut_down(&self) -> Result<Model> {
        let _nobody = self.shared.nobody();
        let begun_ms = self.shared.now_ms();
        self.shared.note("shutdown".into());
        self.shared.model().begin_cut();
        let result = linux_abi::shutdown::without_flush(File::open(&self.shared.root)?);
        let model = self.shared.model().end_cut(begun_ms);
        self.shared.stop.store(true, Ordering::Relaxed);
        result?;
        Ok(model)
    }
}

/// Facts by name.
pub(crate) type StillFacts = Vec<(String, Facts)>;
