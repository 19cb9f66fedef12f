//! Files on F2FS on a zoned SSD, in a guest, whose every block is known.

use std::{fs, path::Path, time::Duration};

use guest::{Guest, LabError, Zns, ZnsSetup, require};
use serde_json::Value;
use trials::indef;

const AGE: &str = include_str!("../scripts/age.sh");

pub(crate) const BLOCK: usize = 4096;
pub(crate) const MARK: &[u8; 8] = b"blockof:";

/// The content of block `index` of a file: no other block is like it.
fn block(file: char, index: u32) -> Vec<u8> {
    let mut bytes = vec![0x5A; BLOCK];
    bytes[..8].copy_from_slice(MARK);
    bytes[8] = file as u8;
    bytes[12..16].copy_from_slice(&index.to_le_bytes());
    bytes
}

/// Age files with these names and numbers of blocks, and run a script on them. Returns the folder
/// that it had as /share; `None` where this machine cannot.
pub(crate) fn run(
    guest: Result<Guest, LabError>,
    zns: &Zns,
    files: &[(char, u32)],
    script: &str,
    words: &[&str],
) -> Option<tempfile::TempDir> {
    if !scratch_fs::require_program("mkfs.f2fs") {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    for &(file, blocks) in files {
        let content: Vec<u8> = (0..blocks).flat_map(|index| block(file, index)).collect();
        fs::write(folder.path().join(file.to_string()), content).unwrap();
    }
    let guest = require(guest)?;
    let guest = require(guest.zns(zns, ZnsSetup::Mounted))?
        .copy(indef())
        .share(folder.path())
        .cpus(1)
        .timeout(Duration::from_secs(240));
    let script = [AGE, script].concat();
    let command = ["sh", "-c", &script, "sh", indef()];
    let outcome = require(guest.run([&command[..], words].concat()))?;
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status, 0, "{said}\n{}", outcome.console);
    assert!(
        !outcome.console.contains("Call Trace"),
        "{}",
        outcome.console
    );
    Some(folder)
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
