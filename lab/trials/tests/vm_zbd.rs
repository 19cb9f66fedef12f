//! fio's own tests of zoned devices (t/zbd in its source, of the same version as the installed fio)
//! against a target of this process, with Debian's Linux 6.12 as the host.
//!
//! `make test` runs a selection; with `INDEF_WHOLE_SUITE`, and in `make proof`, every case is run:
//! it passes, or is in [`EXCEPTIONS`], and docs/flashd.md explains it.

use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Duration};

use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions},
    serve::{Target, TargetOptions},
};
use guest::{Cache, Guest, Release, require, upstream_source};
use units::Bytes;

const CONNECT: &str = include_str!("scripts/connect.sh");
const SCRIPT: &str = include_str!("scripts/zbd.sh");
const WHOLE: &str = "INDEF_WHOLE_SUITE";
/// Numbers of cases to run instead, separated by commas.
const CASES: &str = "INDEF_ZBD_CASES";

/// Programs that the suite calls. Those of GNU, as busybox's lack options that it uses.
const PROGRAMS: [&str; 17] = [
    "fio", "blkzone", "nvme", "ip", "timeout", "grep", "sed", "stat", "readlink", "realpath",
    "basename", "dirname", "tail", "head", "sort", "tr", "tee",
];

/// A disk for the suite: one of those that fio's `run-tests-against-nullb` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// Without zones (its section 1).
    Regular,
    /// Zones of 1 MiB without limits (section 2).
    Whole,
    /// Zones of 4 MiB with 3 MiB in them, of which 14 may be open (section 9).
    Limited,
}

impl Disk {
    fn nsid(self) -> u32 {
        match self {
            Self::Whole | Self::Limited => 1,
            Self::Regular => 2,
        }
    }

    /// Size and capacity of a zone in MiB, largest number of open and active zones.
    fn zones(self) -> (u64, u64, u32) {
        match self {
            Self::Regular | Self::Whole => (1, 1, 0),
            Self::Limited => (4, 3, 14),
        }
    }

    /// The device that takes no time, with small zones.
    fn profile(self) -> Profile {
        let (size, capacity, limit) = self.zones();
        // On 16 dies, in pages of 4 KiB.
        let pages = capacity * 1024 / 4 / 16;
        let mut text = Profile::builtin_text("zero").unwrap().to_owned();
        for (name, value, new) in [
            ("page", "16", "4".to_owned()),
            ("pages_per_block", "128", pages.to_string()),
            ("unit", "16", "4".to_owned()),
            ("size", "32", size.to_string()),
            ("capacity", "32", capacity.to_string()),
            ("max_active", "0", limit.to_string()),
            ("max_open", "0", limit.to_string()),
        ] {
            let line = |value: &str| format!("\n{name} = {{ value = {value},");
            assert_eq!(text.matches(&line(value)).count(), 1, "{name}");
            text = text.replace(&line(value), &line(&new));
        }
        Profile::parse("zbd.toml", &text).unwrap()
    }

    /// The parameters with which null_blk has the same zones.
    fn null_blk(self) -> String {
        let (size, capacity, limit) = self.zones();
        match self {
            Self::Regular => "zoned=0".into(),
            Self::Whole | Self::Limited => format!(
                "zoned=1 zone_size={size} zone_capacity={capacity} zone_max_open={limit} \
                 zone_max_active={limit}"
            ),
        }
    }

    /// Check the limits that the guest's kernel shows, as lines of a name and a value.
    fn is_as_made(self, shown: &str) {
        let limit = self.zones().2;
        let zoned = match self {
            Self::Regular => "zoned none".to_owned(),
            Self::Whole | Self::Limited => "zoned host-managed".to_owned(),
        };
        let mut expected = vec![zoned];
        if self == Self::Limited {
            expected.push(format!("max_open_zones {limit}"));
            expected.push(format!("max_active_zones {limit}"));
        }
        for line in expected {
            assert!(shown.lines().any(|found| found == line), "{line}: {shown}");
        }
    }
}

/// The result of a case, as the suite says it.
#[derive(Debug)]
struct Case {
    number: u32,
    result: String,
    seconds: u32,
    reason: String,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            number,
            result,
            seconds,
            reason,
        } = self;
        write!(f, "{number:2} {result} {seconds} s {reason}")
    }
}

/// Cases that do not pass on these disks, with the reason that the suite gives for a skip, or with their
/// result on null_blk.
struct Exception {
    disks: &'static [Disk],
    result: &'static str,
    reason: &'static str,
    cases: &'static [u32],
}

const ZONED: &[Disk] = &[Disk::Whole, Disk::Limited];
const REGULAR: &[Disk] = &[Disk::Regular];

/// All others pass. docs/flashd.md has the same list, with explanations.
const EXCEPTIONS: [Exception; 7] = [
    Exception {
        disks: &[Disk::Regular, Disk::Whole, Disk::Limited],
        result: "SKIP",
        reason: "the disk is not a SCSI device",
        cases: &[9, 10],
    },
    Exception {
        disks: &[Disk::Regular, Disk::Whole, Disk::Limited],
        result: "SKIP",
        reason: "the disk does not have enough conventional zones",
        cases: &[14],
    },
    Exception {
        disks: ZONED,
        result: "SKIP",
        reason: "the disk does not have 8 conventional zones",
        cases: &[50, 51, 52],
    },
    Exception {
        disks: ZONED,
        result: "SKIP",
        reason: "the disk does not have 4 conventional zones",
        cases: &[53],
    },
    Exception {
        disks: ZONED,
        result: "SKIP",
        reason: "the disk is not a regular block device",
        cases: &[42, 43, 49, 56],
    },
    Exception {
        disks: REGULAR,
        result: "SKIP",
        reason: "the disk is not a zoned block device",
        cases: &[32, 39, 40, 41, 45, 48, 50, 51, 52, 53, 54, 55, 57],
    },
    Exception {
        disks: ZONED,
        result: "FAIL",
        reason: "null_blk: FAIL",
        cases: &[54],
    },
];

/// The last case of fio 3.33, of which these lists are. A later version's further cases may not pass
/// for the same reasons.
const LAST_KNOWN: u32 = 58;

/// The numbers of all cases of the suite in this folder.
fn all_cases(suite: &Path) -> Vec<u32> {
    let text = fs::read_to_string(suite.join("test-zbd-support")).unwrap();
    text.lines()
        .filter_map(|line| {
            line.strip_prefix("test")?
                .strip_suffix("() {")?
                .parse()
                .ok()
        })
        .collect()
}

/// The folder t/zbd of the installed fio's source.
fn suite() -> Option<std::path::PathBuf> {
    let said = Command::new("fio").arg("--version").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let version = said.trim().strip_prefix("fio-").unwrap().to_owned();
    match upstream_source("fio", &version, &Cache::of_project()) {
        Ok(source) => Some(source.join("t/zbd")),
        // An archive may have the package without its source.
        Err(error) => {
            scratch_fs::skip(&error.to_string());
            None
        }
    }
}

fn run(disk: Disk, selection: &[u32]) {
    let has = |program: &&str| scratch_fs::require_program(program);
    if !PROGRAMS.iter().all(has) {
        return;
    }
    let Some(suite) = suite() else { return };
    let all = all_cases(&suite);
    assert!(all.len() >= 58, "{all:?}");
    let whole = std::env::var_os(WHOLE).is_some();
    let cases = match std::env::var(CASES) {
        Ok(numbers) => numbers
            .split(',')
            .map(|number| number.parse().unwrap())
            .collect(),
        Err(_) if whole => all,
        Err(_) => selection.to_vec(),
    };

    let namespaces = [
        (NamespaceKind::Zoned, Bytes::mib(256 * disk.zones().0)),
        (NamespaceKind::Conventional, Bytes::mib(256)),
    ]
    .map(|(kind, size)| NamespaceOptions { kind, size });
    let options = DeviceOptions {
        block_bytes: 4096,
        ..DeviceOptions::in_memory(disk.profile(), &namespaces)
    };
    let target = Target::listen(
        Device::open(&options).unwrap(),
        "127.0.0.1:0".parse().unwrap(),
        TargetOptions {
            private: true,
            ..TargetOptions::default()
        },
    )
    .unwrap();

    let folder = tempfile::tempdir().unwrap();
    let share = folder.path();
    fs::create_dir(share.join("zbd")).unwrap();
    for name in ["functions", "test-zbd-support"] {
        fs::copy(suite.join(name), share.join("zbd").join(name)).unwrap();
    }
    fs::write(share.join("connect.sh"), CONNECT).unwrap();
    fs::write(share.join("run.sh"), SCRIPT).unwrap();
    let Some(mut guest) = require(Guest::with(Release::Linux6_12)) else {
        return;
    };
    guest = guest
        .with_tools()
        .with_network()
        .share(share)
        .shared()
        .timeout(Duration::from_secs(if whole { 7200 } else { 600 }));
    if whole {
        // With several processors, QEMU 7.2 (TCG) has returned wrong flags after a cmpxchg16b, and the
        // guest's kernel has died of it: once in half an hour of this suite.
        guest = guest.cpus(1);
    }
    for program in PROGRAMS {
        guest = guest.copy(program);
    }
    let mut command = vec!["bash".to_owned(), "/share/run.sh".to_owned()];
    command.push(target.address().port().to_string());
    command.push(target.nqn().to_owned());
    command.push(disk.nsid().to_string());
    command.push(disk.null_blk());
    command.extend(cases.iter().map(u32::to_string));
    let Some(outcome) = require(guest.run(&command)) else {
        return;
    };
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(
        outcome.status == 0 && said.contains("step: done"),
        "{said}{}\n{}",
        String::from_utf8_lossy(&outcome.stderr),
        outcome.console
    );
    let results = results(&share.join("results"));
    for case in &results {
        println!("{disk:?}: {case}");
    }
    disk.is_as_made(&fs::read_to_string(share.join("disk")).unwrap());
    println!("{disk:?}: {:?} after {:?}", outcome.elapsed, outcome.boot);
    let run: Vec<u32> = results.iter().map(|case| case.number).collect();
    assert_eq!(run, cases, "every case has a result");
    let wrong = results.iter().filter(|case| !is_expected(disk, case));
    let logs: Vec<String> = wrong
        .map(|case| {
            let log = fs::read(share.join("logs").join(case.number.to_string()));
            let log = log.unwrap_or_default();
            format!("{case}\n{}", String::from_utf8_lossy(&log))
        })
        .collect();
    assert!(logs.is_empty(), "{}", logs.join("\n\n"));
}

/// Lines of `CASE RESULT SECONDS REASON`.
fn results(path: &Path) -> Vec<Case> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next().unwrap_or_default();
            Case {
                number: word().parse().unwrap(),
                result: word().to_owned(),
                seconds: word().parse().unwrap(),
                reason: word().to_owned(),
            }
        })
        .collect()
}

fn is_expected(disk: Disk, case: &Case) -> bool {
    let is_same = |found: &Exception| case.result == found.result && case.reason == found.reason;
    let on_disk = || {
        EXCEPTIONS
            .iter()
            .filter(|exception| exception.disks.contains(&disk))
    };
    match on_disk().find(|exception| exception.cases.contains(&case.number)) {
        // A case that fails on null_blk may pass where the machine is slow.
        Some(exception) if exception.result == "FAIL" && case.result == "PASS" => true,
        Some(exception) => is_same(exception),
        None if case.number > LAST_KNOWN => case.result == "PASS" || on_disk().any(is_same),
        None => case.result == "PASS",
    }
}

/// The tables of docs/flashd.md have these exceptions, and no others.
#[test]
fn the_page_explains_each_exception() {
    const DISKS: [(&str, Disk); 3] = [
        ("without zones", Disk::Regular),
        ("256 zones of 1 MiB, no limits", Disk::Whole),
        (
            "256 zones of 4 MiB with 3 MiB in them, 14 open and active",
            Disk::Limited,
        ),
    ];
    let page = source_tree::root().join("docs/flashd.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, page) = page.split_once("**fio's zoned tests.**").unwrap();
    let (page, _) = page.split_once("**Throughput.**").unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| ")?.split(" | ").collect()))
        .collect();
    let of = |disk: Disk, result: &str| -> BTreeSet<u32> {
        let exceptions = EXCEPTIONS.iter();
        let found = exceptions.filter(|it| it.result == result && it.disks.contains(&disk));
        found.flat_map(|it| it.cases).copied().collect()
    };
    for (name, disk) in DISKS {
        let [skipped, failed] = ["SKIP", "FAIL"].map(|result| of(disk, result));
        let counts = [
            LAST_KNOWN as usize,
            LAST_KNOWN as usize - skipped.len() - failed.len(),
            skipped.len(),
            failed.len(),
        ];
        let row = rows.iter().find(|row| row[0] == name).unwrap();
        let told = row[1..].iter().map(|cell| cell.trim_end_matches(" |"));
        assert!(told.eq(counts.map(|count| count.to_string())), "{row:?}");

        let holds = |on: &str| match on {
            "all" => true,
            "zoned" => ZONED.contains(&disk),
            "without zones" => disk == Disk::Regular,
            _ => false,
        };
        let explained = rows.iter().filter(|row| row.len() == 4 && holds(row[2]));
        let explained = explained.flat_map(|row| row[0].split(", "));
        let explained: BTreeSet<u32> = explained.map(|case| case.parse().unwrap()).collect();
        assert_eq!(explained, skipped, "{name}");
    }
}

#[test]
fn vm_regular_disk() {
    run(Disk::Regular, &[37, 49]);
}

#[test]
fn vm_whole_zones() {
    run(Disk::Whole, &[4, 8, 24, 42]);
}

#[test]
fn vm_limited_zones() {
    run(Disk::Limited, &[5, 13, 17, 33]);
}
