//! The command line: its grammar, and the help that teaches it.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{DeviceOptions, NamespaceOptions, StoreOptions},
    pace::LatenessLimit,
    record::Mark,
    store::FileOptions,
};
use units::{Bytes, Nanos};

/// A software-defined flash SSD: zoned or conventional, over NVMe/TCP or as a file.
///
/// Every read, write and erase takes the time that the modelled flash would need: dies and channels
/// that are busy make others wait, garbage collection and all. Data is kept in memory or in a file,
/// behind a volatile write cache that loses what was not flushed when the power is cut.
#[derive(Debug, Parser)]
#[command(name = "flashd", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  flashd profiles                                   the devices that are built in
  flashd profiles zn540 --toml >my.toml             a profile to start from, for --profile my.toml
  flashd mount /mnt/ssd --profile fast24 --size 4GiB --time-scale 10
  losetup --direct-io=on -b 4096 -f --show /mnt/ssd/disk
  flashd serve --profile zn540 --namespace zoned:4GiB --namespace conventional:1GiB
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n NQN   with the name that serve prints
  flashd stats --json                               what the running device did
  flashd power-cut                                  and what it lost
  flashd inject slow-die 3 --factor 20              and how it does with a bad die
")]
pub(crate) struct Cli {
    /// Say more on stderr (twice: everything).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the built-in devices
    Profiles(ProfilesArgs),
    /// Attach a device over NVMe/TCP (on loopback unless told otherwise)
    Serve(ServeArgs),
    /// Attach a device as a file, DIR/disk, for a loop device
    Mount(MountArgs),
    /// Show what a running device is and how it does
    Status(AskArgs),
    /// Show what a running device did: bytes, busy times, lateness
    Stats(AskArgs),
    /// Cut a running device's power: all that no flush or FUA covered is lost
    PowerCut(AskArgs),
    /// Let a running device fail on command: ranges with errors, slow dies
    Inject(InjectArgs),
    /// Record what is done to a running device
    Record(RecordArgs),
    /// Build a device from a recording, at any mark
    Replay(ReplayArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProfilesArgs {
    /// Only this one
    #[arg(value_parser = PossibleValuesParser::new(flash_model::BUILTIN))]
    pub(crate) name: Option<String>,

    /// Print the profile as TOML, with the source of every number, for one of your own to start from
    #[arg(long, requires = "name", conflicts_with = "json")]
    pub(crate) toml: bool,

    /// One JSON document on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// The description of a device.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// A built-in profile (`flashd profiles`) or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: String,

    /// Keep data, zones, mapping and wear in this file; made if it is not there. Without it they
    /// are in memory
    #[arg(long, value_name = "FILE")]
    pub(crate) store: Option<PathBuf>,

    /// Let the file have holes instead of reserving all space at start. The file system below can
    /// then run full while the device is used, which it reports
    #[arg(long, requires = "store")]
    pub(crate) sparse: bool,

    /// A flush (and FUA, and zone management) waits until the host's disk has the data, so that it outlives
    /// a crash of the host, too. Its time is not the modelled one then
    #[arg(long, requires = "store")]
    pub(crate) host_sync: bool,

    /// Logical block: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub(crate) block_size: u64,

    /// Size of the volatile write cache, 0 for none [default: the profile's buffer, at most 32 MiB,
    /// or 0 if that is protected against a loss of power]
    #[arg(long, value_name = "SIZE")]
    pub(crate) write_cache: Option<Bytes>,

    /// Let the device's time go K times slower than the real one. Over FUSE the path takes some
    /// 17 µs by itself: 10 gives honest latencies, 5 is good for quick runs
    #[arg(long, value_name = "K", default_value_t = 1.0)]
    pub(crate) time_scale: f64,

    /// Time that the path to the host takes by itself (in µs), taken off every deadline
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0.0)]
    pub(crate) overhead: f64,

    /// Keep all processors busy, at idle priority, for the time of the daemon: in a virtual machine
    /// answers to a host that sends one command at a time come some 40 µs earlier
    #[arg(long)]
    pub(crate) spin: bool,

    /// Fail (exit status 1, at the end) when answers were later than this against the model:
    /// 100us, or 1ms@p99.9 for another percentile than the 99th
    #[arg(long, value_name = "TIME[@pN]")]
    pub(crate) max_lateness: Option<LatenessLimit>,

    /// Record everything that is done to the device to this new file, from the start
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// Name of this daemon, for `flashd status --name` [default: its process id]
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Tell Prometheus at http://ADDRESS/metrics; a loopback address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// A namespace, `zoned:SIZE` or `conventional:SIZE`; again for more. With an existing --store
    /// its own are taken if there is none here
    #[arg(long = "namespace", value_name = "KIND:SIZE")]
    pub(crate) namespaces: Vec<NamespaceArg>,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4420")]
    pub(crate) listen: SocketAddr,

    /// Name of the subsystem, for `nvme connect -n` [default: one made of the first namespace's UUID]
    #[arg(long, value_name = "NQN", value_parser = nqn)]
    pub(crate) nqn: Option<String>,

    /// Private namespaces: one controller at a time, and no multipath disk on the host, whose limits
    /// of open and active zones Linux reports as 0
    #[arg(long)]
    pub(crate) private: bool,

    /// Do not offer In_Device_Defragment: hosts have the standard Copy
    #[arg(long)]
    pub(crate) standard_only: bool,

    /// Where the discovery log says that it listens, for hosts behind a translation of addresses, such
    /// as 10.0.2.2:4420 for a QEMU guest [default: where the host has reached it]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) advertise: Option<SocketAddr>,
}

/// An NVMe Qualified Name.
fn nqn(text: &str) -> Result<String, String> {
    if text.starts_with("nqn.") && text.len() <= 223 && !text.contains('\0') {
        return Ok(text.to_owned());
    }
    Err("a name looks like nqn.2026-11.org.example:ssd and has at most 223 bytes".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// An empty directory
    pub(crate) dir: PathBuf,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Size of the disk. With an existing --store, its own
    #[arg(long, required_unless_present = "store")]
    pub(crate) size: Option<Bytes>,
}

/// Which daemon is asked.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Name of the daemon; not needed when there is only one
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// One JSON document on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InjectArgs {
    #[command(subcommand)]
    pub(crate) what: InjectCommand,
}

/// Faults last until they are cleared or the daemon ends.
#[derive(Debug, Subcommand)]
pub(crate) enum InjectCommand {
    /// Commands that read or write a range fail, and change nothing
    #[command(after_help = "\
Hosts get Unrecovered Read Error or Write Fault (NVMe), or EIO (a mounted disk).

Examples:
  flashd inject error --offset 1GiB --length 4KiB --on read
  flashd inject error --offset 0 --length 64KiB --on write --times 3
")]
    Error {
        /// First byte
        #[arg(long, value_name = "SIZE")]
        offset: Bytes,
        /// Bytes
        #[arg(long, value_name = "SIZE")]
        length: Bytes,
        /// The range and the commands that fail
        #[arg(long, value_enum, default_value_t = FailingAccess::Both)]
        on: FailingAccess,
        /// How many commands fail [default: all]
        #[arg(long, value_name = "N")]
        times: Option<u64>,
        /// Answer them so many milliseconds later, as a drive does that tries again before it gives up
        #[arg(long, value_name = "MS", default_value_t = 0)]
        delay: u64,
        /// The namespace
        #[arg(long, value_name = "ID", default_value_t = 1)]
        namespace: u32,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Reads, programs and erases of a die take longer
    SlowDie {
        /// Number of the die, from 0 on (`flashd stats` lists them)
        die: u32,
        /// How many times as long; 1 ends it
        #[arg(long, value_name = "K", default_value_t = 10.0)]
        factor: f64,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// List the faults, and how many commands each has failed
    List(AskArgs),
    /// End all faults, and list them
    Clear(AskArgs),
}

/// The commands that fail on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailingAccess {
    /// Reads, and copies from there.
    Read,
    /// Writes, and copies to there.
    Write,
    /// Both.
    Both,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(subcommand)]
    pub(crate) what: RecordCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecordCommand {
    /// Begin to record to a new file, with what the device holds now
    Start {
        /// The recording; it must not exist
        file: PathBuf,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Put a name on this moment, for `replay --until mark:NAME`
    Mark {
        /// The name
        label: String,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// End the recording
    Stop(AskArgs),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["list", "store", "output"])))]
pub(crate) struct ReplayArgs {
    /// The recording
    pub(crate) recording: PathBuf,

    /// Only list the marks: flushes, names, power cuts
    #[arg(long)]
    pub(crate) list: bool,

    /// Build a store of it (new), for `flashd serve --store` or `mount --store`
    #[arg(long, value_name = "FILE")]
    pub(crate) store: Option<PathBuf>,

    /// Write the bytes of one namespace to this new file, for a loop device or fsck
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Which namespace goes to --output
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pub(crate) namespace: u32,

    /// Where to stop: flush:N, entry:N, mark:NAME or end
    #[arg(long, value_name = "MARK", default_value = "end")]
    pub(crate) until: Mark,

    /// Leave out what no flush or FUA covered at the mark: the least that a power cut leaves
    #[arg(long)]
    pub(crate) durable_only: bool,

    /// One of the states that a power cut could have left at the mark, chosen by this number
    #[arg(long, value_name = "SEED", conflicts_with = "durable_only")]
    pub(crate) reorder: Option<u64>,

    /// One JSON document on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// `zoned:SIZE` or `conventional:SIZE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamespaceArg(pub(crate) NamespaceOptions);

impl FromStr for NamespaceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, size) = text
            .split_once(':')
            .ok_or_else(|| format!("'{text}': write zoned:SIZE or conventional:SIZE"))?;
        let kind = match kind {
            "zoned" => NamespaceKind::Zoned,
            "conventional" => NamespaceKind::Conventional,
            _ => {
                return Err(format!(
                    "'{kind}' is no kind of namespace; write zoned or conventional"
                ));
            }
        };
        let size = size.parse::<Bytes>().map_err(|error| error.to_string())?;
        Ok(Self(NamespaceOptions { kind, size }))
    }
}

impl DeviceArgs {
    /// The profile that was named.
    pub(crate) fn profile(&self) -> Result<Profile> {
        if let Some(profile) = Profile::builtin(&self.profile) {
            return Ok(profile);
        }
        match std::fs::read_to_string(&self.profile) {
            Ok(text) => Ok(Profile::parse(&self.profile, &text)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
                "'{}' is no built-in profile and no file; there are {}",
                self.profile,
                flash_model::BUILTIN.join(", ")
            ),
            Err(error) => Err(error).context(self.profile.clone()),
        }
    }

    /// As options for opening the device. `touch` brings all memory in at start.
    pub(crate) fn options(
        &self,
        namespaces: Vec<NamespaceOptions>,
        touch: bool,
    ) -> Result<DeviceOptions> {
        let overhead = self.overhead * 1000.0;
        if !(0.0..1e12).contains(&overhead) {
            bail!("--overhead {} is no time in microseconds", self.overhead);
        }
        let existing = self
            .store
            .as_ref()
            .is_some_and(|path| std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0));
        if namespaces.is_empty() && !existing {
            bail!(
                "a new device needs a size: --size 4GiB (mount), --namespace conventional:4GiB (serve)"
            );
        }
        Ok(DeviceOptions {
            profile: self.profile()?,
            namespaces,
            block_bytes: self.block_size,
            store: match &self.store {
                None => StoreOptions::Memory,
                Some(path) => StoreOptions::File(FileOptions {
                    path: path.clone(),
                    sparse: self.sparse,
                    host_sync: self.host_sync,
                }),
            },
            write_cache: self.write_cache,
            time_scale: self.time_scale,
            overhead: Nanos(overhead as u64),
            touch,
            hold_awake: true,
            spin: self.spin,
            record: self.record.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn namespaces_are_understood_or_explained() {
        let NamespaceArg(zoned) = "zoned:2GiB".parse().unwrap();
        assert_eq!(
            (zoned.kind, zoned.size),
            (NamespaceKind::Zoned, Bytes::gib(2))
        );
        for text in ["zoned", "zns:1G", "zoned:", "conventional:many"] {
            let error = text.parse::<NamespaceArg>().unwrap_err();
            assert!(error.contains("write"), "{error}");
        }
    }
}
