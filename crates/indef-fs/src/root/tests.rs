use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
};

use rustix::fs::{RenameFlags, mknodat, renameat_with};

use super::*;
use crate::Target;

/// `tree/a/b/file`, and `out`, a link beneath the tree that leads out of it.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tree/a/b")).unwrap();
    fs::create_dir_all(dir.path().join("outside/b")).unwrap();
    for place in ["tree/a/b/file", "outside/b/file"] {
        fs::write(dir.path().join(place), place).unwrap();
    }
    symlink("../outside", dir.path().join("tree/out")).unwrap();
    symlink("b/file", dir.path().join("tree/a/link")).unwrap();
    dir
}

type Resolve = fn(&Root, &Path) -> Result<OwnedFd, Errno>;

/// Both ways must give the same result.
const WAYS: [Resolve; 2] = [Root::resolve_at_once, Root::resolve_by_name];

#[test]
fn both_ways_go_down_and_nowhere_else() {
    let dir = tree();
    let root = Root::open(&dir.path().join("tree"), Mounts::Stay).unwrap();
    for resolve in WAYS {
        let say = |below: &str| {
            resolve(&root, Path::new(below))
                .map(|found| look_at(found, StatxFlags::INO).unwrap().stx_ino)
        };
        let inode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().ino();
        assert_eq!(say("a"), Ok(inode("tree/a")));
        assert_eq!(say("a/b"), Ok(inode("tree/a/b")));
        assert_eq!(say("out"), Err(Errno::LOOP));
        assert_eq!(say("out/b"), Err(Errno::LOOP));
        assert_eq!(say("a/none/b"), Err(Errno::NOENT));
        assert_eq!(say("a/b/file"), Err(Errno::NOTDIR));
    }
}

#[test]
fn a_mount_is_crossed_only_where_that_is_wanted() {
    for resolve in WAYS {
        let stay = Root::open(Path::new("/"), Mounts::Stay).unwrap();
        let cross = Root::open(Path::new("/"), Mounts::Cross).unwrap();
        let say = |root| resolve(root, Path::new("proc/self/fd")).map(drop);
        // `self` is a symbolic link.
        assert_eq!(say(&stay), Err(Errno::XDEV));
        assert_eq!(say(&cross), Err(Errno::LOOP));
        let say = |root| resolve(root, Path::new("proc/sys")).map(drop);
        assert_eq!(say(&stay), Err(Errno::XDEV));
        assert_eq!(say(&cross), Ok(()));
    }
}

#[test]
fn what_is_found_is_what_is_opened_whatever_its_path_means_by_then() {
    let dir = tree();
    let path = |name: &str| dir.path().join(name);
    let root = Root::open(&path("tree"), Mounts::Stay).unwrap();
    let entry = root.find(Path::new("a/b/file")).unwrap();
    renameat_with(
        CWD,
        path("tree/a"),
        CWD,
        path("tree/out"),
        RenameFlags::EXCHANGE,
    )
    .unwrap();
    let opened = fs::File::from(entry.open_to_map().unwrap());
    assert_eq!(opened.metadata().unwrap().ino(), entry.id().inode);
    assert_eq!(
        std::io::read_to_string(opened).unwrap(),
        "tree/a/b/file",
        "the file that was found, not the one of this name outside"
    );
    let skip = |below: &str| match root.find(Path::new(below)) {
        Err(Refusal::Skip(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(skip("a/b/file"), SkipReason::SymbolicLink);
    assert_eq!(skip("out/b/none"), SkipReason::Gone);
    for odd in [
        "",
        "..",
        "../outside/b/file",
        "out/../out/b/file",
        "/etc/passwd",
    ] {
        assert_eq!(skip(odd), SkipReason::Changed, "{odd}");
    }
}

#[test]
fn the_donor_is_made_where_the_file_was_found() {
    let dir = tree();
    let path = |name: &str| dir.path().join(name);
    let target = Target::open(&path("tree/a/b/file")).unwrap();
    fs::rename(path("tree/a/b"), path("tree/a/c")).unwrap();
    symlink(path("outside/b"), path("tree/a/b")).unwrap();
    let donor = target.unnamed_beside(OFlags::empty()).unwrap();
    let name = fs::read_link(format!("/proc/self/fd/{}", donor.as_raw_fd())).unwrap();
    let real = fs::canonicalize(path("tree/a/c")).unwrap();
    assert!(name.starts_with(&real), "{}", name.display());
    assert_eq!(donor.metadata().unwrap().nlink(), 0);
}

#[test]
fn nothing_but_the_expected_regular_file_is_opened() {
    let dir = tree();
    let path = |name: &str| dir.path().join(name);
    let root = Root::open(dir.path(), Mounts::Stay).unwrap();
    let open = |below: &str, expected| match Target::open_beneath(&root, Path::new(below), expected)
    {
        Ok(_) => None,
        Err(Refusal::Skip(reason)) => Some(reason),
        Err(Refusal::Failed(error)) => panic!("{error}"),
    };
    let entry = root.find(Path::new("tree/a/b/file")).unwrap();
    let (id, born) = (entry.id(), entry.born());
    assert_eq!(open("tree/a/b/file", Some((id, born))), None);
    assert_eq!(open("tree/a/b/file", Some((id, None))), None);
    let other = BirthTime {
        seconds: 1,
        nanos: 2,
    };
    // A file of the same number that is another one.
    assert_eq!(
        open("tree/a/b/file", Some((id, Some(other)))),
        Some(SkipReason::Changed)
    );
    assert_eq!(
        open("outside/b/file", Some((id, born))),
        Some(SkipReason::Changed)
    );
    assert_eq!(open("tree/a/link", None), Some(SkipReason::NotRegular));
    // On a FIFO an ordinary open waits.
    mknodat(
        CWD,
        path("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(open("fifo", Some((id, born))), Some(SkipReason::NotRegular));
    let fifo = root.find(Path::new("fifo")).unwrap().open_to_map();
    assert!(matches!(fifo, Err(Refusal::Skip(SkipReason::NotRegular))));
}

#[test]
fn a_root_is_resolved_once() {
    let dir = tree();
    let roots = Roots::new();
    let tree = dir.path().join("tree");
    let first = roots.get(&tree, Mounts::Stay).unwrap();
    fs::rename(&tree, dir.path().join("elsewhere")).unwrap();
    fs::create_dir(&tree).unwrap();
    assert_eq!(roots.get(&tree, Mounts::Stay).unwrap().id(), first.id());
    // Too many to keep all of them open: then one that became another is refused.
    for n in 0..2 * OPEN {
        let path = dir.path().join(n.to_string());
        fs::create_dir(&path).unwrap();
        roots.get(&path, Mounts::Stay).unwrap();
    }
    let last = dir.path().join((2 * OPEN - 1).to_string());
    assert!(roots.get(&last, Mounts::Stay).is_ok());
    fs::rename(&last, dir.path().join("moved")).unwrap();
    fs::create_dir(&last).unwrap();
    assert!(matches!(
        roots.get(&last, Mounts::Stay),
        Err(Refusal::Skip(SkipReason::Changed))
    ));
}

/// Whoever encrypts files and logs out makes nobody's walk fail.
#[test]
fn what_keeps_a_file_from_being_opened_is_told_as_that() {
    for (errno, reason) in [
        (Errno::NOKEY, SkipReason::Encrypted),
        (Errno::ROFS, SkipReason::ReadOnlyMount),
        (Errno::AGAIN, SkipReason::InUse),
    ] {
        let refusal = refuse(Path::new("file"), "open", errno);
        assert!(
            matches!(refusal, Refusal::Skip(why) if why == reason),
            "{errno}"
        );
    }
    let refusal = refuse(Path::new("file"), "open", Errno::IO);
    assert!(matches!(refusal, Refusal::Failed(_)));
}
