//! The conditions of a measurement. Nothing here names the machine itself: no host name, no path.

use std::{fmt, fs, os::unix::fs::MetadataExt, path::Path, process::Command, time::SystemTime};

use serde::{Deserialize, Serialize};

/// The facts of the machine that a reader needs. `None`: not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Release of the kernel, without its build.
    pub kernel: Option<String>,
    /// Processors that programs can use.
    pub processors: Option<usize>,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// Whether it is a virtual machine.
    pub is_virtual: Option<bool>,
    /// The device below the measurement.
    pub device: Option<String>,
    /// Versions of the programs that took part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

impl Machine {
    /// This machine, measured on files in `folder`.
    #[must_use]
    pub fn here(folder: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let release = read("/proc/sys/kernel/osrelease");
        let memory = read("/proc/meminfo").and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("MemTotal:"))?;
            let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
            Some(kib << 10)
        });
        let is_virtual = read("/proc/cpuinfo").and_then(|text| {
            let flags = text.lines().find(|line| line.starts_with("flags"))?;
            Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
        });
        Self {
            kernel: release.as_deref().map(without_build),
            processors: std::thread::available_parallelism()
                .ok()
                .map(std::num::NonZero::get),
            memory_bytes: memory,
            is_virtual,
            device: device(folder),
            tools: Vec::new(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(processors) = self.processors {
            let kind = if self.is_virtual == Some(true) {
                " of a virtual machine"
            } else {
                ""
            };
            parts.push(format!("{processors} processors{kind}"));
        }
        if let Some(bytes) = self.memory_bytes {
            parts.push(format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30)));
        }
        parts.extend(self.device.clone());
        if let Some(kernel) = &self.kernel {
            parts.push(format!("Linux {kernel}"));
        }
        f.write_str(&parts.join(", "))
    }
}

/// `6.12.95+deb12` of `6.12.95+deb12-amd64`.
fn without_build(release: &str) -> String {
    let release = release.trim();
    release
        .split_once('-')
        .map_or(release, |(release, _)| release)
        .to_owned()
}

/// The kind of the device that `folder` lies on.
fn device(folder: &Path) -> Option<String> {
    let device = fs::metadata(folder).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let sysfs = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = sysfs.file_name()?.to_str()?;
    let kinds = [
        ("nvme", "an NVMe disk"),
        ("vd", "a virtio disk"),
        ("sd", "a SCSI or SATA disk"),
        ("mmcblk", "an MMC card"),
        ("dm-", "a device-mapper device"),
        ("md", "an md array"),
        ("loop", "a loop device"),
        ("zram", "zram"),
    ];
    let kind = kinds.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    Some(kind.1.to_owned())
}

/// Today, in UTC.
#[must_use]
pub fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now[..10].to_owned()
}

/// The commit of the tree in `root`, with a + if the tree has changes; `None` without git.
#[must_use]
pub fn version(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    // Results that were kept before do not change the programs.
    let changes = git(&["status", "--porcelain", "--", ".", ":!figures", ":!*.md"])?;
    Some(commit + if changes.is_empty() { "" } else { "+" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_loses_its_build() {
        assert_eq!(without_build("6.12.95+deb12-amd64\n"), "6.12.95+deb12");
        assert_eq!(without_build("6.18.4"), "6.18.4");
    }

    #[test]
    fn this_machine_has_a_kernel_and_processors() {
        let machine = Machine::here(Path::new("/"));
        assert!(machine.kernel.is_some() && machine.processors > Some(0));
        assert!(today().starts_with("20"), "{}", today());
    }
}
