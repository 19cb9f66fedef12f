use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn select(globs: &[&str], min_size: u64) -> Select {
    let globs = globs.iter().map(|glob| glob.parse().unwrap());
    Select::new(globs, Bytes(min_size)).unwrap()
}

fn findings(n: u64) -> Findings {
    Findings {
        extents: n,
        ideal: 1,
        dolf: WindowedDolf {
            windows: 2,
            fragments: n + 1,
            max: 3,
        },
        worth_moving: Bytes(n << 12),
        shared: Bytes(5),
        saved_requests: 6,
        unreachable: n.is_multiple_of(2).then_some(Unreachable {
            alone: Bytes(7),
            shared: Bytes(n),
        }),
    }
}

fn many() -> Vec<(Evidence, Findings)> {
    let evidence = |n: u64| {
        let mut bytes = [0; Evidence::LEN];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        Evidence::from_bytes(bytes)
    };
    (0..100).map(|n| (evidence(n), findings(n))).collect()
}

/// A folder for memories, and one in it.
fn written() -> (tempfile::TempDir, PathBuf) {
    let state = tempfile::tempdir().unwrap();
    let folder = folder(state.path());
    let path = folder.join(name(&["/".into()], &Select::default(), Bytes::kib(128)));
    write_to(&folder, &path, &many()).unwrap();
    (state, path)
}

#[test]
fn a_memory_is_read_as_it_was_written_by_its_user_alone() {
    let (state, path) = written();
    assert_eq!(read_from(&path).unwrap(), many());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&folder(state.path())), 0o700);
    assert_eq!(fs::read_dir(folder(state.path())).unwrap().count(), 1);
    assert_eq!(read_from(&path.with_extension("none")).unwrap().len(), 0);
    write_to(&folder(state.path()), &path, &[]).unwrap();
    assert!(!path.exists(), "nothing to remember");
}

#[test]
fn other_paths_and_sizes_have_memories_of_their_own() {
    let names = [
        name(&["/".into()], &Select::default(), Bytes::kib(128)),
        name(&["/".into()], &Select::default(), Bytes::kib(64)),
        name(&["/proc".into()], &Select::default(), Bytes::kib(128)),
        name(
            &["/".into(), "/proc".into()],
            &Select::default(),
            Bytes::kib(128),
        ),
        name(
            &["/none/a".into(), "b".into()],
            &Select::default(),
            Bytes::kib(128),
        ),
        name(&["/none/a/b".into()], &Select::default(), Bytes::kib(128)),
        name(&["/".into()], &select(&[], 1), Bytes::kib(128)),
        name(&["/".into()], &select(&["a", "b"], 0), Bytes::kib(128)),
        name(&["/".into()], &select(&["a"], 0), Bytes::kib(128)),
        name(&["/".into()], &select(&["a"], 1), Bytes::kib(128)),
    ];
    let distinct: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    assert_eq!(
        names[0],
        name(&["/proc/..".into()], &Select::default(), Bytes::kib(128))
    );
}

#[test]
fn no_byte_that_was_changed_is_believed() {
    let (_state, path) = written();
    let bytes = fs::read(&path).unwrap();
    for at in (0..size_of::<Head>() + 2 * size_of::<Record>()).chain([bytes.len() - 1]) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        fs::write(&path, &changed).unwrap();
        let read = read_from(&path);
        match at {
            8..12 | 16..40 => assert!(
                matches!(read, Err(MemoryError::OtherVersion(_))),
                "byte {at}: {read:?}"
            ),
            _ => assert!(
                matches!(read, Err(MemoryError::Damaged(_))),
                "byte {at}: {read:?}"
            ),
        }
    }
    for len in [
        0,
        1,
        size_of::<Head>() - 1,
        size_of::<Head>(),
        bytes.len() - 1,
    ] {
        fs::write(&path, &bytes[..len]).unwrap();
        assert!(
            matches!(read_from(&path), Err(MemoryError::Damaged(_))),
            "{len} bytes"
        );
    }
    fs::write(&path, [&bytes[..], &[0; size_of::<Record>()]].concat()).unwrap();
    assert!(matches!(read_from(&path), Err(MemoryError::Damaged(_))));
}

#[test]
fn what_others_may_have_put_there_is_not_read() {
    let (_state, path) = written();
    let foreign = |path: &Path| matches!(read_from(path), Err(MemoryError::Foreign(_)));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(foreign(&path));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let link = path.with_extension("link");
    symlink(&path, &link).unwrap();
    assert!(matches!(read_from(&link), Err(MemoryError::Io { .. })));
    assert!(foreign(path.parent().unwrap()), "a folder");
    let fifo = path.with_extension("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(foreign(&fifo), "and it is not waited for");
    if geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(foreign(&path));
    }
}

#[test]
fn all_memories_together_are_bounded() {
    let (_state, path) = written();
    let folder = path.parent().unwrap();
    let len = fs::metadata(&path).unwrap().len();
    let date = |path: &Path, age| {
        let at = SystemTime::now() - Duration::from_secs(age);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(at)
            .unwrap();
    };
    let others: Vec<_> = (0..3).map(|n| folder.join(n.to_string())).collect();
    for (age, other) in (1..).zip(&others) {
        fs::copy(&path, other).unwrap();
        date(other, age * 1000);
    }
    let unfinished = [".tmpnew", ".tmpold"].map(|name| folder.join(name));
    for (path, age) in unfinished.iter().zip([10, 100_000]) {
        fs::write(path, b"").unwrap();
        date(path, age);
    }
    shorten(folder, 3 * len).unwrap();
    let there: Vec<_> = others.iter().map(|path| path.exists()).collect();
    assert_eq!(there, [true, true, false], "the oldest goes");
    assert!(path.exists() && unfinished[0].exists() && !unfinished[1].exists());
}
