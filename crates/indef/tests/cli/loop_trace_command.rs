//! `indef trace -- CMD` where processes have other numbers: in a namespace of their own, as in a container.

use std::{path::Path, process::Command};

use crate::common::{Ran, indef, is_root, make, reader::Reader, scratch};
use units::Bytes;

#[test]
fn loop_a_command_is_traced_in_a_namespace_of_processes() {
    if !is_root() {
        return scratch_fs::skip("it needs root");
    }
    let check = indef().args(["trace", "--check"]).output().unwrap();
    if !check.status.success() {
        return scratch_fs::skip(&String::from_utf8_lossy(&check.stderr));
    }
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    let [own, others] = ["own", "others"].map(|name| scratch.path().join(name));
    make(&own, Bytes::mib(1), Bytes::kib(16));
    make(&others, Bytes::mib(1), Bytes::kib(16));
    for layer in ["fs", "syscall"] {
        scratch.remount().unwrap();
        // A process outside, which is none of the command's.
        let reader = Reader::of(&others);
        let state = tempfile::tempdir().unwrap();
        let ran = traced(layer, state.path(), &own);
        drop(reader);
        assert_eq!(ran.status, 0, "{layer}: {ran:?}");
        let document = ran.json();
        assert_eq!(document["totals"]["files"], 1, "{layer}: {document}");
        let reads = document["totals"]["reads"].as_u64().unwrap();
        assert!(reads > 0, "{layer}: {document}");
        let files = document["files"].as_array().unwrap();
        let path = files[0]["path"].as_str().unwrap();
        assert_eq!(Path::new(path), own, "{layer}: {document}");
    }
}

/// A trace of a shell that has a child read the file.
fn traced(layer: &str, state: &Path, file: &Path) -> Ran {
    let script = format!("cat {} > /dev/null; true", file.display());
    Command::new("unshare")
        .args(["-pf", "--mount-proc", env!("CARGO_BIN_EXE_indef")])
        .args(["trace", "--json", "--max-overhead", "off", "--layer", layer])
        .arg("-o")
        .arg(state.join("profile"))
        // Not what the loader reads of the programs.
        .arg("--path")
        .arg(file.parent().unwrap())
        .args(["--", "sh", "-c", &script])
        .env("STATE_DIRECTORY", state)
        .output()
        .expect("unshare is there (util-linux)")
        .into()
}
