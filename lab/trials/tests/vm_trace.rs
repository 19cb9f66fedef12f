//! On Debian's kernels (6.1, 6.12, the newest), in guests: every BPF program loads and finds its place, and
//! the collected accesses are the actual reads and writes, at both layers, on ext4, XFS and Btrfs.

use std::{fs, path::Path, time::Duration};

use guest::{Guest, Outcome, Release, require};
use serde_json::Value;
use trials::indef;
use units::Bytes;

const SCRIPT: &str = include_str!("scripts/trace.sh");
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// One access of one file: its direction, start and end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Access {
    write: bool,
    from: u64,
    to: u64,
}

/// The output of `trace --raw`.
struct Accesses(Vec<(String, Access)>);

impl Accesses {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut files = Vec::new();
        let mut accesses = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "file" => files.push((words[1].to_owned(), words[4].to_owned())),
                "read" | "write" => {
                    let (_, file) = files.iter().find(|(n, _)| n == words[1]).unwrap();
                    let from: u64 = words[2].parse().unwrap();
                    let access = Access {
                        write: words[0] == "write",
                        from,
                        to: from + words[3].parse::<u64>().unwrap(),
                    };
                    accesses.push((file.clone(), access));
                }
                _ => {}
            }
        }
        Self(accesses)
    }

    /// The accesses of one file, by place.
    fn of(&self, file: &str) -> Vec<Access> {
        let mut of: Vec<Access> = self
            .0
            .iter()
            .filter(|(path, _)| path == file)
            .map(|(_, access)| access.clone())
            .collect();
        of.sort();
        of
    }
}

/// `count` accesses of `len` bytes, one after the other.
fn series(write: bool, from: u64, len: u64, count: u64) -> Vec<Access> {
    (0..count)
        .map(|number| from + number * len)
        .map(|from| Access {
            write,
            from,
            to: from + len,
        })
        .collect()
}

/// Whether the accesses cover the bytes from 0 to `end`, each once, in however many pieces.
fn covers_once(accesses: &[Access], end: u64) -> bool {
    let mut at = 0;
    accesses
        .iter()
        .all(|access| access.from == std::mem::replace(&mut at, access.to))
        && at == end
}

/// Whether these are the faults of a program that touched every page from 0 to `end` in order:
/// nothing past `end`, and no gap except for pages that were mapped along with a page that had to
/// be read first.
fn faults_of_all(accesses: &[Access], end: u64) -> bool {
    const MAPPED_ALONG: u64 = 64 * KIB;
    let mut at = 0;
    let mut missing_page = false;
    for access in accesses {
        let gap = access.from.saturating_sub(at);
        if gap > 0 && !(missing_page && gap < MAPPED_ALONG) {
            return false;
        }
        at = at.max(access.to);
        missing_page = access.to - access.from == 4 * KIB;
    }
    at == end
}

fn has_programs() -> bool {
    ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fio"]
        .iter()
        .all(|program| scratch_fs::require_program(program))
}

fn collects(release: Release) {
    let folder = tempfile::tempdir().unwrap();
    let Some(guest) = has_programs()
        .then(|| require(Guest::with(release)))
        .flatten()
    else {
        return;
    };
    let mut guest = guest
        .copy(indef())
        .with_tools()
        .share(folder.path())
        .timeout(Duration::from_secs(600));
    for _ in FILE_SYSTEMS {
        guest = guest.disk(Bytes::mib(512));
    }
    let Some(outcome) = require(guest.run(["sh", "-c", SCRIPT, "trace.sh", indef()])) else {
        return;
    };
    assert_ended_well(&outcome);

    everything_is_seen(&folder.path().join("check.json"), release);
    let fs_layer = Accesses::read(&folder.path().join("fs"));
    let asked = Accesses::read(&folder.path().join("syscall"));
    for kind in FILE_SYSTEMS {
        let file = |name: &str| format!("/mnt/{kind}/{name}");
        let seen = |name| fs_layer.of(&file(name));
        let mut direct = series(false, 0, 64 * KIB, 16);
        if kind == "btrfs" && release == Release::Newest {
            // Into a buffer that was never touched, as dd's first read does, Btrfs of Linux 7.3 reads
            // through the page cache, with read-ahead.
            direct[0].to = seen("direct")[0].to.min(MIB);
        }
        assert_eq!(seen("direct"), direct, "{kind}");
        assert!(
            covers_once(&seen("cold"), 4 * MIB),
            "{kind}: {:?}",
            seen("cold")
        );
        assert_eq!(seen("warm"), [], "{kind}: from the page cache");
        assert!(
            covers_once(&seen("written"), MIB),
            "{kind}: {:?}",
            seen("written")
        );
        assert!(seen("written").iter().all(|access| access.write));
        // Read-ahead goes past the touched pages.
        let end = seen("mapped").last().map_or(0, |access| access.to);
        assert!(end >= MIB, "{kind}: {:?}", seen("mapped"));
        assert!(
            covers_once(&seen("mapped"), end),
            "{kind}: {:?}",
            seen("mapped")
        );

        let seen = |name| asked.of(&file(name));
        assert_eq!(seen("direct"), series(false, 0, 64 * KIB, 16), "{kind}");
        assert_eq!(
            seen("asked"),
            series(false, 512 * KIB, 64 * KIB, 16),
            "{kind}"
        );
        assert_eq!(seen("sent"), series(true, 0, 64 * KIB, 16), "{kind}");
        assert_eq!(seen("uring"), series(false, 0, 64 * KIB, 16), "{kind}");
        assert!(
            faults_of_all(&seen("mapped"), MIB),
            "{kind}: {:?}",
            seen("mapped")
        );
    }
    counts(&folder.path().join("store.json"), release);
}

/// Check for three times eight reads of 128 KiB each, and nothing else.
fn counts(json: &Path, release: Release) {
    let document: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let files = document["files"].as_array().unwrap();
    assert_eq!(files.len(), FILE_SYSTEMS.len(), "{document}");
    for file in files {
        assert!(
            file["path"].as_str().unwrap().ends_with("/counted"),
            "{file}"
        );
        let (reads, bytes) = (&file["reads"], file["bytes_read"].as_u64().unwrap());
        let on_btrfs = file["path"].as_str().unwrap().starts_with("/mnt/btrfs/");
        if on_btrfs && release == Release::Newest {
            // As above: the first read is a longer one, and the cache has its data for the first reads
            // of the second and third time.
            assert_eq!(*reads, 22, "{file}");
            assert!((22 * 128 * KIB..4 * MIB).contains(&bytes), "{file}");
        } else {
            assert_eq!(*reads, 24, "{file}");
            assert_eq!(bytes, 3 * MIB, "{file}");
        }
        assert_eq!(file["writes"], 0, "{file}");
        assert!(file["requests"].as_u64() >= reads.as_u64(), "{file}");
    }
    assert_eq!(document["totals"]["lost"], 0, "{document}");
}

/// These kernels let functions be watched, so every kind of access can be observed. Requests in flight
/// have tracepoints since 6.5.
fn everything_is_seen(json: &Path, release: Release) {
    let document: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let layers = document["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 2);
    for layer in layers {
        assert_eq!(layer["works"], true, "{layer}");
        for source in layer["sources"].as_array().unwrap() {
            let is_newer = source["what"].as_str().unwrap().contains("in flight")
                && release == Release::Linux6_1;
            assert_eq!(source["seen"], !is_newer, "{source}");
        }
    }
}

fn assert_ended_well(outcome: &Outcome) {
    assert_eq!(
        outcome.status,
        0,
        "{}{}\n{}",
        String::from_utf8_lossy(&outcome.stdout),
        String::from_utf8_lossy(&outcome.stderr),
        outcome.console
    );
    // The kernel has no complaints, either.
    assert!(
        !outcome.console.contains("Call Trace"),
        "{}",
        outcome.console
    );
}

#[test]
fn vm_collects_on_6_1() {
    collects(Release::Linux6_1);
}

#[test]
fn vm_collects_on_6_12() {
    collects(Release::Linux6_12);
}

#[test]
fn vm_collects_on_the_newest() {
    collects(Release::Newest);
}
