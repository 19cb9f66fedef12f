//! The files that are defragmented on each kernel.

use anyhow::{Result, ensure};
use stage::Fs;
use units::Bytes;

use crate::{
    peers::{PeerCase, Wanted},
    state::Files,
};

/// Files whose fragments are single pages, and such whose fragments are larger than a page and smaller than the
/// largest folio. Small, as each run of a guest is slow.
pub(super) fn cases(text: Option<&str>, options: &'static [&'static str]) -> Result<Vec<PeerCase>> {
    let pages = Files::Single(Bytes::mib(16));
    let pieces = Files::Pieces(Bytes::mib(64), Bytes::kib(64));
    let case = |name, files, cached| PeerCase {
        name,
        fs: Fs::Ext4,
        size: Bytes::mib(512),
        files,
        cached,
        options,
        wanted: Wanted::Faster(if cached { 10.0 } else { 4.0 }),
    };
    let mut cases = vec![
        case("16 MiB in 4 KiB", pages, false),
        case("16 MiB in 4 KiB cached", pages, true),
        case("64 MiB in 64 KiB", pieces, false),
        case("64 MiB in 64 KiB cached", pieces, true),
    ];
    cases.retain(|case| text.is_none_or(|text| case.name.contains(text)));
    ensure!(!cases.is_empty(), "no case has this name");
    Ok(cases)
}
