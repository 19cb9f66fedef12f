//! What there is, asked of those who would do the work.

use std::{io, path::PathBuf};

use indef_pipeline::doctor::{Mounted, SERVED, State, mounted, state};
use rustix::{
    process::geteuid,
    thread::{CapabilitySet, capabilities},
};

use crate::{
    demo::lab_program,
    made::Host,
    output::Name,
    refusal::line,
    trace::check::{LayerCheck, look_at_layers},
};

/// The answers.
pub(super) struct Examined {
    pub(super) host: Host,
    pub(super) file_systems: io::Result<Vec<Mounted>>,
    pub(super) is_root: bool,
    pub(super) rights: Vec<Right>,
    pub(super) layers: Vec<LayerCheck>,
    pub(super) has_types: bool,
    /// The laboratory's program, or why it was not found.
    pub(super) lab: Result<PathBuf, String>,
    pub(super) state: io::Result<Option<State>>,
}

/// A capability that indef can make use of.
pub(super) struct Right {
    /// Its name in capabilities(7).
    pub(super) name: &'static str,
    /// What it is for.
    pub(super) purpose: &'static str,
    /// Null where the kernel does not tell.
    pub(super) held: Option<bool>,
}

/// Something that is missing, and how to get it.
pub(super) struct Missing {
    pub(super) what: String,
    pub(super) how: String,
}

/// Where the kernel shows its types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

pub(super) fn examine() -> Examined {
    Examined {
        host: Host::this(),
        file_systems: mounted(),
        is_root: geteuid().is_root(),
        rights: rights(),
        layers: look_at_layers(),
        has_types: std::path::Path::new(TYPES).exists(),
        lab: lab_program().map_err(|error| line(&error)),
        state: state(),
    }
}

fn rights() -> Vec<Right> {
    let effective = capabilities(None).map(|sets| sets.effective).ok();
    [
        (
            "CAP_SYS_ADMIN",
            CapabilitySet::SYS_ADMIN,
            "engines xfs-commit-range, xfs-offload, xfs-share-range, btrfs-share-range and those of F2FS; scans in bulk; --reclaim; compact",
        ),
        (
            "CAP_DAC_READ_SEARCH",
            CapabilitySet::DAC_READ_SEARCH,
            "files of all users; paths of traced files",
        ),
        (
            "CAP_DAC_OVERRIDE",
            CapabilitySet::DAC_OVERRIDE,
            "moving files of all users",
        ),
        (
            "CAP_FOWNER",
            CapabilitySet::FOWNER,
            "reading files of all users without changing their times",
        ),
        (
            "CAP_FSETID",
            CapabilitySet::FSETID,
            "moving files that have a set-user-id bit",
        ),
        (
            "CAP_CHOWN",
            CapabilitySet::CHOWN,
            "moving files of all users on XFS without charging them to somebody else's quota",
        ),
        (
            "CAP_LEASE",
            CapabilitySet::LEASE,
            "knowing on XFS whether others have files of all users open",
        ),
        ("CAP_BPF", CapabilitySet::BPF, "trace, top"),
        ("CAP_PERFMON", CapabilitySet::PERFMON, "trace, top"),
    ]
    .map(|(name, capability, purpose)| Right {
        name,
        purpose,
        held: effective.map(|sets| sets.contains(capability)),
    })
    .into()
}

impl Examined {
    /// What is missing, the most important first.
    pub(super) fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut add = |what: String, how: String| missing.push(Missing { what, how });
        match &self.file_systems {
            Err(error) => add(
                format!("the mount table: {error}"),
                "mount -t proc proc /proc".to_owned(),
            ),
            Ok(found) => {
                let is_served =
                    |one: &&Mounted| matches!(&one.served, Ok(served) if served.works());
                if !found.iter().any(|one| is_served(&one)) {
                    add(
                        "a mounted file system whose files can be moved".to_owned(),
                        format!(
                            "mount {} here, writable (in a container: give it a volume); indef demo makes one \
                             of its own",
                            SERVED.map(|kind| kind.to_string()).join(", ")
                        ),
                    );
                }
                for one in found {
                    if let Err(error) = &one.served {
                        add(
                            format!("a look at {}: {error}", Name(&one.mount.point)),
                            "run indef doctor as root".to_owned(),
                        );
                    }
                }
            }
        }
        let lacking: Vec<_> = self
            .rights
            .iter()
            .filter(|right| right.held == Some(false))
            .map(|right| right.name)
            .collect();
        if !lacking.is_empty() {
            add(
                format!("rights: {}", lacking.join(", ")),
                if self.is_root {
                    "give them to the container or service (docker run --cap-add, \
                     AmbientCapabilities= of systemd.exec(5))"
                } else {
                    "run as root (sudo); without, indef works on files that you may write"
                }
                .to_owned(),
            );
        }
        if !self.has_types {
            add(
                format!("types of this kernel ({TYPES})"),
                "mount -t sysfs sysfs /sys, or a kernel that was built with CONFIG_DEBUG_INFO_BTF, as those of \
                 all larger distributions are since Linux 5.10"
                    .to_owned(),
            );
        }
        for layer in &self.layers {
            if let Some(error) = &layer.error {
                add(format!("tracing of layer {}", layer.layer), error.clone());
            }
        }
        if let Err(why) = &self.lab {
            add(
                "the laboratory, for indef demo --zns".to_owned(),
                why.clone(),
            );
        }
        match &self.state {
            Ok(Some(_)) => {}
            Ok(None) => add(
                "a place for the state of runs".to_owned(),
                "set HOME, XDG_STATE_HOME or STATE_DIRECTORY; without, a stopped run cannot be resumed".to_owned(),
            ),
            Err(error) => add(
                format!("a look into the state directory: {error}"),
                "it must be a directory of this user".to_owned(),
            ),
        }
        missing
    }
}
