//! The kernel's own connection to a device that is served over NVMe/TCP on this machine.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// The kernel's device for connections (module `nvme_tcp`).
pub(crate) const FABRICS: &str = "/dev/nvme-fabrics";
/// The processors for work that may run anywhere, as a mask.
const UNBOUND: &str = "/sys/devices/virtual/workqueue/cpumask";
/// A host identifier; any constant will do.
const HOST: &str = "6e0b3a5c-91b1-4c53-9d1c-6d3d1a9f0c11";
/// Number of 50 ms periods that a disk may take to appear.
const PATIENCE: u32 = 400;

/// A controller. It is disconnected when it is dropped: nothing may use its disks then.
#[derive(Debug)]
pub(super) struct Controller {
    sysfs: PathBuf,
    /// Links, in the order of the namespaces' identifiers.
    disks: Vec<PathBuf>,
}

impl Controller {
    /// Connect to the subsystem `nqn` on a port of this machine, with this many namespaces. Their disks get
    /// constant names in `links`: F2FS finds its disks by the names that mkfs was given.
    pub(super) fn connect(port: &str, nqn: &str, namespaces: u32, links: &Path) -> Result<Self> {
        let mut options = File::options();
        let mut fabrics = { options.read(true).write(true).open(FABRICS) }.context(FABRICS)?;
        // As nvme-cli's `connect` writes it.
        let wanted = format!(
            "transport=tcp,traddr=127.0.0.1,trsvcid={port},nqn={nqn},nr_io_queues=2,hostid={HOST},\
             hostnqn=nqn.2014-08.org.nvmexpress:uuid:{HOST}"
        );
        let _one = OneProcessor::for_unbound_work()?;
        fabrics.write_all(wanted.as_bytes()).context(wanted)?;
        let mut answer = String::new();
        fabrics.read_to_string(&mut answer)?;
        let instance = answer
            .trim()
            .split(',')
            .find_map(|word| word.strip_prefix("instance="));
        let instance = instance.with_context(|| format!("{FABRICS} says {answer:?}"))?;
        let sysfs = PathBuf::from(format!("/sys/class/nvme/nvme{instance}"));
        let disks = Vec::new();
        let mut controller = Self { sysfs, disks };
        // All of them before a scheduler makes requests for one.
        for nsid in 1..=namespaces {
            controller.wait_for(nsid, |_| Ok(()))?;
        }
        for nsid in 1..=namespaces {
            let disk = controller.wait_for(nsid, keep_order_in_zones)?;
            let link = links.join(format!("disk{nsid}"));
            symlink(&disk, &link).with_context(|| link.display().to_string())?;
            controller.disks.push(link);
        }
        Ok(controller)
    }

    /// The disk of a namespace, once `accept` finds all of it.
    fn wait_for(&self, nsid: u32, accept: fn(&Path) -> io::Result<()>) -> Result<PathBuf> {
        for _ in 0..PATIENCE {
            if let Some(disk) = self.find(nsid) {
                match accept(&disk) {
                    // Its request queue appears a moment after its name, and accepts a scheduler later still.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    done => {
                        done.with_context(|| disk.display().to_string())?;
                        return Ok(disk);
                    }
                }
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("{}: disk {nsid} does not come", self.sysfs.display());
    }

    /// Find the disk of a namespace. It has a request queue of its own only without multipath
    /// (`nvme_core.multipath=N`).
    fn find(&self, nsid: u32) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.sysfs).ok()?;
        entries.flatten().find_map(|entry| {
            let found = fs::read_to_string(entry.path().join("nsid")).ok()?;
            let disk = Path::new("/dev").join(entry.file_name());
            (found.trim() == nsid.to_string() && disk.exists()).then_some(disk)
        })
    }

    /// The namespaces' disks.
    pub(super) fn disks(&self) -> &[PathBuf] {
        &self.disks
    }
}

/// Before Linux 6.10, only this scheduler keeps writes to a zone in order.
fn keep_order_in_zones(disk: &Path) -> io::Result<()> {
    let name = disk.file_name().unwrap_or_default();
    let queue = Path::new("/sys/block").join(name).join("queue");
    if fs::read_to_string(queue.join("zoned"))?.trim() == "none" {
        return Ok(());
    }
    fs::write(queue.join("scheduler"), "mq-deadline")
}

/// Work of the kernel that may run anywhere runs on the first processor until this is dropped, so that
/// namespaces are looked at one after the other: see lab/guest/files/zns.
struct OneProcessor {
    before: String,
}

impl OneProcessor {
    fn for_unbound_work() -> Result<Self> {
        let before = fs::read_to_string(UNBOUND).context(UNBOUND)?;
        fs::write(UNBOUND, "1").context(UNBOUND)?;
        Ok(Self { before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        let _ = fs::write(UNBOUND, &self.before);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = fs::write(self.sysfs.join("delete_controller"), "1");
        for link in &self.disks {
            let _ = fs::remove_file(link);
        }
    }
}
