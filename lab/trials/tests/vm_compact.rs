//! `indef compact` on F2FS, in a guest: its kernel empties the sections that indef names.

use std::{fs, path::Path, time::Duration};

use guest::{Guest, Outcome, Release, require};
use serde_json::Value;
use trials::indef;
use units::Bytes;

const COMPACT: &str = concat!(
    include_str!("scripts/fill_in_part.sh"),
    include_str!("scripts/compact.sh")
);
const CHECKPOINTS_OFF: &str = include_str!("scripts/checkpoints_off.sh");
const CHECKPOINTS_OFF_AMID: &str = concat!(
    include_str!("scripts/fill_in_part.sh"),
    include_str!("scripts/checkpoints_off_amid.sh")
);
const MIB: u64 = 1 << 20;

fn read(folder: &Path, name: &str) -> Value {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
}

fn number(of: &Value, name: &str) -> u64 {
    let number = of[name].as_u64();
    number.unwrap_or_else(|| panic!("{name}: {of}"))
}

/// Runs a script in a guest with an empty disk; `None` where there can be none.
fn in_guest(script: &str, folder: &Path, arguments: &[&str]) -> Option<Outcome> {
    let tools = ["mkfs.f2fs", "fsck.f2fs"];
    if !tools
        .iter()
        .all(|program| scratch_fs::require_program(program))
    {
        return None;
    }
    let guest = require(Guest::with(Release::Linux6_12))?
        .copy(indef())
        .with_tools()
        .share(folder)
        .disk(Bytes::mib(512))
        .shared()
        .timeout(Duration::from_secs(600));
    let words = ["sh", "-c", script, "script", indef()];
    let outcome = require(guest.run(words.iter().chain(arguments)))?;
    println!("{}", String::from_utf8_lossy(&outcome.stdout));
    assert_eq!(outcome.status, 0, "{outcome:?}");
    Some(outcome)
}

/// Makes free space whole, with a quarter of what fits left in files, and `arguments` of the script, which begin with the
/// MiB that are wanted.
fn compacts(arguments: &[&str], section: u64) {
    let folder = tempfile::tempdir().unwrap();
    let want = format!("{}MiB", arguments[0]);
    let arguments: Vec<_> = { [want.as_str()].into_iter() }
        .chain(arguments[1..].iter().copied())
        .collect();
    if in_guest(COMPACT, folder.path(), &arguments).is_none() {
        return;
    }
    let [before, done, after, large] = ["before", "done", "after", "large"]
        .map(|name| read(folder.path(), &format!("{name}.json")));
    println!("{before}\n{done}\n{after}\n{large}");
    let free = |scan: &Value| number(&scan["free_space"], "total_bytes");
    assert_eq!(done["ended"], "reached", "{done}");
    assert_eq!(done["part"], "section");
    // What F2FS keeps for itself is not free.
    assert_eq!(free(&before), 0, "{before}");
    assert_eq!(number(&done, "largest_before_bytes"), free(&before));
    let (wanted, won) = (
        number(&done, "wanted_bytes"),
        number(&done, "largest_after_bytes"),
    );
    assert!(won >= wanted, "{done}");
    assert!(free(&after) >= wanted, "{after}");
    let (written, emptied) = (
        number(&done, "bytes_written"),
        number(&done, "parts_emptied"),
    );
    assert!(emptied * section >= wanted, "{done}");
    assert!(written > 0 && written <= 2 * won, "{done}");
    // A file that is as long gets whole sections, but for the rests of those that its log is in at both ends.
    let file = &large["files"][0];
    assert!(number(file, "size_bytes") >= wanted * 98 / 100, "{large}");
    let sections = number(file, "size_bytes").div_ceil(section);
    assert!(
        number(file, "extents") <= sections + 2,
        "{sections} sections: {large}"
    );
}

#[test]
fn vm_6_12_free_sections_become_one_run() {
    compacts(&["160", "4", "1"], 2 * MIB);
}

#[test]
fn vm_6_12_free_sections_of_several_segments_become_one_run() {
    compacts(&["32", "32", "8", "-s", "4"], 8 * MIB);
}

/// With `checkpoint=disable` no move is durable: there is none, and whoever asks is told why and what to do.
#[test]
fn vm_6_12_without_checkpoints_nothing_moves() {
    let folder = tempfile::tempdir().unwrap();
    if in_guest(CHECKPOINTS_OFF, folder.path(), &[]).is_none() {
        return;
    }
    let [before, run, after, on] =
        ["before", "run", "after", "on"].map(|name| read(folder.path(), &format!("{name}.json")));
    println!("{run}\n{on}");
    assert_eq!(run["files"][0]["reason"], "checkpoints-off", "{run}");
    assert_eq!(number(&run["totals"], "bytes_relocated"), 0, "{run}");
    let extents = |scan: &Value| number(&scan["files"][0], "extents");
    assert!(extents(&before) > 32, "{before}");
    assert_eq!(extents(&after), extents(&before));
    let said = fs::read_to_string(folder.path().join("compact")).unwrap();
    for word in [
        "/mnt/f2fs",
        "checkpoint=disable",
        "remount,checkpoint=enable",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(number(&on["totals"], "bytes_relocated") > 0, "{on}");
}

/// Checkpoints are turned off while it moves: what has moved before is told, what has not become durable is no success, and
/// no more is moved.
#[test]
fn vm_6_12_checkpoints_that_are_turned_off_meanwhile_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    if in_guest(CHECKPOINTS_OFF_AMID, folder.path(), &[]).is_none() {
        return;
    }
    let done = read(folder.path(), "done.json");
    println!("{done}");
    assert_eq!(done["ended"], "failed", "{done}");
    assert!(number(&done, "parts_emptied") > 0, "{done}");
    assert!(
        number(&done, "bytes_relocated") < number(&done["region"], "to_move_bytes"),
        "{done}"
    );
    let said = fs::read_to_string(folder.path().join("said")).unwrap();
    for told in [&said, done["error"].as_str().unwrap()] {
        for word in ["checkpoint=disable", "remount,checkpoint=enable"] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
}
