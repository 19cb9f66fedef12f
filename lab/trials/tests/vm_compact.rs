//! `indef compact` on F2FS, in a guest: its kernel empties the sections that indef names.

use std::{fs, path::Path, time::Duration};

use guest::{Guest, Release, require};
use serde_json::Value;
use trials::indef;
use units::Bytes;

const SCRIPT: &str = include_str!("scripts/compact.sh");
const MIB: u64 = 1 << 20;

fn read(folder: &Path, name: &str) -> Value {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
}

#[test]
fn vm_6_12_free_sections_become_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let tools = ["mkfs.f2fs", "fsck.f2fs"];
    if !tools
        .iter()
        .all(|program| scratch_fs::require_program(program))
    {
        return;
    }
    let Some(guest) = require(Guest::with(Release::Linux6_12)) else {
        return;
    };
    let guest = guest
        .copy(indef())
        .with_tools()
        .share(folder.path())
        .disk(Bytes::mib(512))
        .timeout(Duration::from_secs(600));
    let words = ["sh", "-c", SCRIPT, "compact.sh", indef()];
    let Some(outcome) = require(guest.run(words)) else {
        return;
    };
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let [before, done, after] =
        ["before.json", "done.json", "after.json"].map(|name| read(folder.path(), name));
    let free = |scan: &Value| scan["free_space"]["total_bytes"].as_u64().unwrap();
    let number = |name: &str| {
        done[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {done}"))
    };
    assert!(free(&before) < 128 * MIB, "it is not aged: {before}");
    assert_eq!(done["ended"], "reached", "{done}");
    assert_eq!(done["part"], "section");
    assert_eq!(number("largest_before_bytes"), free(&before));
    assert!(number("largest_after_bytes") >= 192 * MIB, "{done}");
    assert!(free(&after) >= 192 * MIB, "{after}");
    let (written, emptied) = (number("bytes_written"), number("parts_emptied"));
    assert!(emptied >= 16, "{done}");
    // Files have a quarter of each.
    assert!(written < emptied * MIB, "{done}");
    let won = number("largest_after_bytes") - number("largest_before_bytes");
    assert!(written <= 2 * won, "{done}");
}
