//! A guest with the SSD of an experiment.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use flash_model::Zone;
use flashd::device::{Device, LoggedCommand};
use guest::{Guest, Patched, Zns, ZnsOptions, ZnsSetup, standing::Session};

use super::{
    bench::Bench,
    image::FAST,
    inside::WatchResult,
    layout::Layout,
    virtual_time::ZONED,
    way::{Commands, Way},
};

/// The directory of the aged files.
pub(super) const DIR: &str = "/mnt/f2fs/aged";
const PATIENCE: Duration = Duration::from_secs(1800);

/// A recorded migration.
pub(super) struct Recording {
    pub(super) zones: Vec<Zone>,
    pub(super) commands: Vec<LoggedCommand>,
    pub(super) watched: WatchResult,
}

/// A guest with an SSD.
pub(super) struct Room<'a> {
    bench: &'a Bench<'a>,
    device: Arc<Device>,
    // The guest ends before its SSD does.
    session: Session,
    _zns: Zns,
    /// The version of its kernel.
    pub(super) kernel: String,
    program: String,
}

impl<'a> Room<'a> {
    pub(super) fn enter(
        bench: &'a Bench<'a>,
        image: &Path,
        setup: ZnsSetup,
        standard_only: bool,
    ) -> Result<Self> {
        let device = bench.ssd.open(image)?;
        let zns = Zns::serving(
            Arc::clone(&device),
            ZnsOptions {
                standard_only,
                ..ZnsOptions::default()
            },
        )?;
        let options = bench.options;
        let guest = Guest::with(options.kernel)?
            .with_patched(Patched::F2fs)?
            .cpus(options.cpus)
            .memory_mib(options.memory)
            .copy("f2fs_io")
            .share(&bench.share());
        let kernel = guest.kernel().version().to_owned();
        let session = Session::start(guest.zns(&zns, setup)?, Arc::default())?.copy(&options.indef);
        let room = Self {
            bench,
            device,
            session,
            _zns: zns,
            kernel,
            program: path(&std::env::current_exe()?)?,
        };
        let ahead = bench.io_size.get() >> 10;
        room.shell(&format!(
            "for disk in /sys/block/nvme*; do echo {ahead} >$disk/queue/read_ahead_kb; done"
        ))?;
        if setup == ZnsSetup::Kept {
            // Only the way moves data. (F2FS cannot be mounted on zones without its collector.)
            room.shell(
                "cd /sys/fs/f2fs/$(basename $(readlink -f $ZNS_CONVENTIONAL)) && \
                 for time in gc_no_gc_sleep_time gc_max_sleep_time gc_min_sleep_time; do \
                 echo 3600000 >$time; done",
            )?;
        }
        Ok(room)
    }

    /// Migrate, and record the device's commands.
    pub(super) fn migrate(&self, way: Way, time_scale: f64) -> Result<Recording> {
        let commands = Commands {
            indef: &path(&self.bench.options.indef)?,
            dir: DIR,
            profile: "/tmp/aged.profile",
            io_size: self.bench.io_size,
            time_scale: self.bench.experiment.time_scale,
        };
        let command = commands.of(way);
        self.pace(time_scale)?;
        let zones = self.device.zones(ZONED);
        self.device.begin_command_log();
        let watched = self.watch(&command)?;
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
        Ok(Recording {
            zones,
            commands,
            watched,
        })
    }

    /// Look where the files lie, unmount and check F2FS, and end the guest.
    pub(super) fn leave(self) -> Result<Layout> {
        self.inside(&["layout", DIR, "/share/layout"])?;
        let checked = self.shell("umount $ZNS_MOUNT && fsck.f2fs --dry-run $ZNS_CONVENTIONAL")?;
        ensure!(
            checked.contains("[Ok..]") && !checked.contains("[Fail]"),
            "fsck.f2fs: {checked}"
        );
        let layout = std::fs::read(self.bench.share().join("layout"))?;
        self.session.end()?;
        self.device.flush_all()?;
        let layout: Layout = serde_json::from_slice(&layout)?;
        layout.in_namespace(self.bench.ssd.conventional.get())
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

    pub(super) fn inside(&self, words: &[&str]) -> Result<String> {
        let words = [&[self.program.as_str(), "inside"], words].concat();
        self.run(&words)
    }

    pub(super) fn shell(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-c", script])
    }

    pub(super) fn run(&self, words: &[&str]) -> Result<String> {
        Ok(self.session.output(words, PATIENCE)?)
    }
}

/// An absolute path, as text.
pub(super) fn path(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)?;
    let text = absolute.to_str().context("a path that is no UTF-8")?;
    Ok(text.to_owned())
}
