//! The properties of every importer of traces: it never panics, what it hands out is counted and has
//! a place, its message is one line, and what it found becomes ordered ranges.

use indef_core::{
    access::{AccessOptions, join},
    profile::Profile,
};
use indef_trace::import::{BlockMap, Format, ImportOptions, import};
use units::{FileRange, PhysOffset};

pub fn check(format: Format, text: &[u8]) {
    let mut blocks = BlockMap::default();
    let (one, two) = (blocks.file("/a".into()), blocks.file("/b".into()));
    blocks.extent(one, (7, 0), PhysOffset(0), FileRange::new(1 << 40, 1 << 30));
    blocks.extent(two, (7, 0), PhysOffset(1 << 20), FileRange::new(0, 1 << 40));
    let options = ImportOptions {
        folder: "/srv/sample".into(),
        blocks,
    };
    let _ = Format::detect(text);
    let mut profile = Profile::default();
    match import(format, text, &options, &mut profile) {
        Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error}"),
        Ok(imported) => {
            let found = profile.records.len() + profile.ranges.len();
            assert_eq!(imported.accesses as usize, found);
            if let Some((line, text)) = imported.first_unknown {
                assert!((1..=imported.lines).contains(&line) && imported.unknown > 0);
                assert!(!text.chars().any(char::is_control), "{text}");
            }
        }
    }
    let files = profile.files.len() as u32;
    assert!(profile.records.iter().all(|r| r.file < files && !r.len.is_zero()));
    assert!(profile.ranges.iter().all(|(file, r)| *file < files && !r.range.is_empty()));
    let accesses = join(profile.records, profile.ranges, &AccessOptions::default());
    for (_, ranges) in accesses.iter() {
        assert!(ranges.windows(2).all(|w| w[0].range.end() <= w[1].range.start));
    }
}
