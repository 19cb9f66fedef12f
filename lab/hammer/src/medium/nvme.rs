//! The kernel's own connection to a device that is served over NVMe/TCP on this machine.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

/// Where connections are made (module `nvme_tcp`).
pub(crate) const FABRICS: &str = "/dev/nvme-fabrics";
/// Any will do; it is always the same host.
const HOST: &str = "6e0b3a5c-91b1-4c53-9d1c-6d3d1a9f0c11";
/// Times of 50 ms that the disk may take to come.
const PATIENCE: u32 = 400;

/// A controller. It is let go when it is dropped: nothing may use its disk then.
#[derive(Debug)]
pub(super) struct Controller {
    sysfs: PathBuf,
    disk: PathBuf,
}

impl Controller {
    /// Connect to the subsystem `nqn` on a port of this machine. It has one namespace.
    pub(super) fn connect(port: &str, nqn: &str) -> Result<Self> {
        let mut options = File::options();
        let mut fabrics = { options.read(true).write(true).open(FABRICS) }.context(FABRICS)?;
        // What nvme-cli's `connect` writes there.
        let wanted = format!(
            "transport=tcp,traddr=127.0.0.1,trsvcid={port},nqn={nqn},nr_io_queues=2,hostid={HOST},\
             hostnqn=nqn.2014-08.org.nvmexpress:uuid:{HOST}"
        );
        fabrics.write_all(wanted.as_bytes()).context(wanted)?;
        let mut answer = String::new();
        fabrics.read_to_string(&mut answer)?;
        let instance = answer
            .trim()
            .split(',')
            .find_map(|word| word.strip_prefix("instance="));
        let instance = instance.with_context(|| format!("{FABRICS} says {answer:?}"))?;
        let sysfs = PathBuf::from(format!("/sys/class/nvme/nvme{instance}"));
        let disk = PathBuf::new();
        let mut controller = Self { sysfs, disk };
        for _ in 0..PATIENCE {
            if let Some(disk) = controller.find() {
                controller.disk = disk;
                return Ok(controller);
            }
            thread::sleep(Duration::from_millis(50));
        }
        ensure!(false, "{}: no disk comes", controller.sysfs.display());
        Ok(controller)
    }

    /// With a request queue of its own, as long as there are no several paths to it
    /// (`nvme_core.multipath=N`).
    fn find(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.sysfs).ok()?;
        entries.flatten().find_map(|entry| {
            let nsid = fs::read_to_string(entry.path().join("nsid")).ok()?;
            let disk = Path::new("/dev").join(entry.file_name());
            (nsid.trim() == "1" && disk.exists()).then_some(disk)
        })
    }

    /// The namespace's disk.
    pub(super) fn disk(&self) -> &Path {
        &self.disk
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = fs::write(self.sysfs.join("delete_controller"), "1");
    }
}
