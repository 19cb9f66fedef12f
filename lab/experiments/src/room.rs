//! A guest with an SSD of flashd, whose commands can be recorded.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use flash_model::Zone;
use flashd::device::{Device, LoggedCommand};
use guest::{Guest, Patched, Release, Zns, ZnsOptions, ZnsSetup, standing::Session};
use units::Bytes;

use super::{image::FAST, inside::WatchResult, layout::Layout, virtual_time::ZONED};

const PATIENCE: Duration = Duration::from_secs(1800);
/// What the kernel says is there, or not.
const ASKING: Duration = Duration::from_secs(30);

/// What the guest is like.
pub(crate) struct RoomOptions<'a> {
    pub(crate) kernel: Release,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    /// The indef of its commands.
    pub(crate) indef: &'a Path,
    /// The folder that it has as `/share`.
    pub(crate) share: PathBuf,
    /// The kernel's read-ahead.
    pub(crate) read_ahead: Bytes,
    pub(crate) setup: ZnsSetup,
    /// Whether the SSD has standard commands only.
    pub(crate) standard_only: bool,
    /// Whether F2FS collects garbage by itself until somebody looks where files lie. (It cannot be mounted on zones without
    /// its collector, which finds no time to otherwise.)
    pub(crate) collects: bool,
    /// Ends the guest when it is set.
    pub(crate) stop: Arc<AtomicBool>,
}

/// What F2FS tells of itself, and can be told.
const SETTINGS: &str = "/sys/fs/f2fs/$(basename $(readlink -f $ZNS_CONVENTIONAL))";

/// How often it is looked again whether files lie still: the collector may be at work on a section.
const LOOKS: usize = 10;

/// A recorded migration.
pub(crate) struct Recording {
    pub(crate) zones: Vec<Zone>,
    pub(crate) commands: Vec<LoggedCommand>,
    pub(crate) watched: WatchResult,
}

/// A guest with an SSD.
pub(crate) struct Room {
    device: Arc<Device>,
    /// Bytes of the namespace without zones.
    conventional: Bytes,
    share: PathBuf,
    // The guest ends before its SSD does.
    session: Session,
    _zns: Zns,
    /// The version of its kernel.
    pub(crate) kernel: String,
    program: String,
}

impl Room {
    /// Boot it with this SSD: zones, and so many bytes without.
    pub(crate) fn enter(
        device: Arc<Device>,
        conventional: Bytes,
        options: &RoomOptions<'_>,
    ) -> Result<Self> {
        let zns = Zns::serving(
            Arc::clone(&device),
            ZnsOptions {
                standard_only: options.standard_only,
                ..ZnsOptions::default()
            },
        )?;
        let guest = Guest::with(options.kernel)?
            .with_patched(Patched::F2fs)?
            .cpus(options.cpus)
            .memory_mib(options.memory_mib)
            .copy("f2fs_io")
            .share(&options.share);
        let kernel = guest.kernel().version().to_owned();
        let guest = guest.zns(&zns, options.setup)?;
        let session = Session::start(guest, Arc::clone(&options.stop))?.copy(options.indef);
        let room = Self {
            device,
            conventional,
            share: options.share.clone(),
            session,
            _zns: zns,
            kernel,
            program: path(&std::env::current_exe()?)?,
        };
        let ahead = options.read_ahead.get() >> 10;
        room.shell(&format!(
            "for disk in /sys/block/nvme*; do echo {ahead} >$disk/queue/read_ahead_kb; done"
        ))?;
        if !options.collects {
            room.stop_collecting()?;
        }
        Ok(room)
    }

    /// Run a command that moves data, and record the device's commands. Whoever else moves data meanwhile, as F2FS's
    /// garbage collection does, is an error: it would be counted as the command's.
    pub(crate) fn migrate(&self, command: &[String], time_scale: f64) -> Result<Recording> {
        self.pace(time_scale)?;
        let zones = self.device.zones(ZONED);
        let before = self.collected()?;
        self.device.begin_command_log();
        let watched = self.watch(command)?;
        let commands = self.device.take_command_log();
        self.pace(FAST)?;
        if watched.status != 0 {
            bail!(
                "{command:?}: {}\n{}{}",
                watched.status,
                watched.stderr,
                watched.stdout
            );
        }
        let collected = self.collected()? - before;
        ensure!(
            collected == 0,
            "{command:?}: F2FS has collected garbage meanwhile, {collected} blocks"
        );
        Ok(Recording {
            zones,
            commands,
            watched,
        })
    }

    /// Do a step of an experiment, and record the device's commands; the device takes no time.
    pub(crate) fn record(&self, words: &[&str]) -> Result<Vec<LoggedCommand>> {
        self.device.begin_command_log();
        let done = self.inside(words);
        let commands = self.device.take_command_log();
        done.map(|_| commands)
    }

    /// Have F2FS collect no more garbage by itself, and so leave files where they lie: for an hour it is never idle, as
    /// `is_idle` sees it (fs/f2fs/f2fs.h, v6.1; the interval is in seconds). Newer kernels do not ask that on zones, but
    /// whether so many percent of the sections are free (fs/f2fs/gc.c, `gc_thread_func`, v6.12). What has begun is still
    /// done.
    fn stop_collecting(&self) -> Result<()> {
        self.shell(&format!(
            "cd {SETTINGS}; echo 3600 >gc_idle_interval; \
             if [ -e gc_no_zoned_gc_percent ]; then echo 0 >gc_no_zoned_gc_percent; fi"
        ))?;
        Ok(())
    }

    /// Blocks that F2FS has moved by itself since it was mounted.
    fn collected(&self) -> Result<u64> {
        let said = self.shell(&format!(
            "cd {SETTINGS}; cat moved_blocks_foreground moved_blocks_background"
        ))?;
        let numbers = said.split_whitespace().map(str::parse::<u64>);
        numbers.sum::<Result<_, _>>().context(said)
    }

    /// Where the files of a directory lie, in the namespace with zones. They go on lying there: no garbage is collected
    /// from now on.
    pub(crate) fn layout(&self, dir: &str) -> Result<Layout> {
        self.stop_collecting()?;
        let mut found = self.look(dir)?;
        for _ in 0..LOOKS {
            self.shell("sync")?;
            let again = self.look(dir)?;
            if again == found {
                return Ok(found);
            }
            found = again;
        }
        bail!("{dir}: files do not lie still, though F2FS has been told to collect no garbage");
    }

    fn look(&self, dir: &str) -> Result<Layout> {
        self.inside(&["layout", dir, "/share/layout"])?;
        let layout = std::fs::read(self.share.join("layout"))?;
        let layout: Layout = serde_json::from_slice(&layout)?;
        layout.in_namespace(self.conventional.get())
    }

    /// Unmount and check F2FS, and end the guest.
    pub(crate) fn leave(self) -> Result<()> {
        let checked = self.shell("umount $ZNS_MOUNT && fsck.f2fs --dry-run $ZNS_CONVENTIONAL")?;
        ensure!(
            checked.contains("[Ok..]") && !checked.contains("[Fail]"),
            "fsck.f2fs: {checked}"
        );
        self.session.end()?;
        self.device.flush_all()?;
        Ok(())
    }

    /// Set the speed of the device.
    fn pace(&self, scale: f64) -> Result<()> {
        let set = self.device.set_time_scale(scale);
        set.with_context(|| format!("{scale} is no time scale"))
    }

    fn watch(&self, command: &[String]) -> Result<WatchResult> {
        let mut words = vec!["watch", "--"];
        words.extend(command.iter().map(String::as_str));
        let said = self.inside(&words)?;
        serde_json::from_str(&said).context(said)
    }

    pub(crate) fn inside(&self, words: &[&str]) -> Result<String> {
        let words = [&[self.program.as_str(), "inside"], words].concat();
        self.run(&words)
    }

    pub(crate) fn shell(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-c", script])
    }

    /// Run a command; what the kernel last said goes with its failure.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        self.session.output(words, PATIENCE).map_err(|error| {
            let kernel = ["sh", "-c", "dmesg | tail -n 40"];
            let said = self.session.output(kernel, ASKING).unwrap_or_default();
            let both = format!("{error}\n{said}");
            anyhow!(error).context(both)
        })
    }
}

/// An absolute path, as text.
pub(crate) fn path(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)?;
    let text = absolute.to_str().context("a path that is no UTF-8")?;
    Ok(text.to_owned())
}
