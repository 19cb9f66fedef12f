use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
    sync::Mutex,
};

use units::Bytes;

use super::*;

struct Walked {
    files: BTreeMap<PathBuf, FoundFile>,
    problems: Vec<WalkProblem>,
    summary: CollectSummary,
}

fn walk_with(paths: &[&Path], options: &CollectOptions) -> Walked {
    let paths: Vec<_> = paths.iter().map(|path| path.to_path_buf()).collect();
    let seen = Mutex::new(Vec::new());
    let summary = collect(&paths, options, &Cancel::new(), &|s| {
        seen.lock().unwrap().push(s);
    });
    let mut walked = Walked {
        files: BTreeMap::new(),
        problems: Vec::new(),
        summary,
    };
    for seen in seen.into_inner().unwrap() {
        match seen {
            Seen::File(found) => {
                let before = walked.files.insert(found.path.clone(), found);
                assert!(before.is_none(), "a file was seen twice");
            }
            Seen::Problem(problem) => walked.problems.push(problem),
        }
    }
    assert_eq!(walked.summary.files as usize, walked.files.len());
    assert_eq!(walked.summary.problems as usize, walked.problems.len());
    walked
}

fn walk(paths: &[&Path]) -> Walked {
    walk_with(
        paths,
        &CollectOptions {
            jobs: 4,
            ..CollectOptions::default()
        },
    )
}

fn tree() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn every_file_is_seen_once_whatever_its_name() {
    let dir = tree();
    let root = dir.path();
    let odd: &[u8] = b"line\nbreak \xff\xfe";
    for name in [&b"plain"[..], b"with space", odd, b"-rf"] {
        let sub = root.join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir(&sub).unwrap();
        for n in 0..10 {
            fs::write(sub.join(format!("{n}")), vec![1; n * 5000]).unwrap();
        }
    }
    let walked = walk(&[root]);
    assert_eq!(walked.summary.files, 40);
    assert_eq!(walked.summary.directories, 5);
    let path = root.join(std::ffi::OsStr::from_bytes(odd)).join("9");
    assert_eq!(walked.files[&path].size, Bytes(45_000));
    let status = fs::metadata(&path).unwrap();
    use std::os::unix::fs::MetadataExt;
    let found = &walked.files[&path];
    assert_eq!((found.id.dev, found.id.inode), (status.dev(), status.ino()));
}

#[test]
fn links_are_counted_once_and_not_followed() {
    let dir = tree();
    let root = dir.path();
    fs::write(root.join("file"), [1; 9000]).unwrap();
    fs::hard_link(root.join("file"), root.join("again")).unwrap();
    symlink("file", root.join("link")).unwrap();
    symlink(".", root.join("loop")).unwrap();
    symlink("/", root.join("away")).unwrap();
    let walked = walk(&[root]);
    assert_eq!(walked.summary.files, 1);
    assert_eq!(walked.summary.hard_links, 1);
    assert_eq!(walked.summary.others, 3);
    // Named itself, a link is followed, and the path leads to the file.
    let walked = walk(&[&root.join("link")]);
    let (path, _) = walked.files.first_key_value().unwrap();
    assert_eq!(path, &fs::canonicalize(root.join("file")).unwrap());
}

#[test]
fn paths_that_contain_each_other_count_nothing_twice() {
    let dir = tree();
    let root = dir.path();
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    for place in ["a/1", "a/b/2", "a/b/c/3"] {
        fs::write(root.join(place), [1; 9000]).unwrap();
    }
    let (a, b, file) = (root.join("a"), root.join("a/b"), root.join("a/b/c/3"));
    let dots = root.join("a/../a");
    let walked = walk(&[&b, &a, &file, root, &a, &dots]);
    assert_eq!(walked.summary.files, 3);
    assert!(walked.problems.is_empty());
}

#[test]
fn what_cannot_be_looked_at_is_named() {
    let dir = tree();
    let none = dir.path().join("none");
    let walked = walk(&[&none, Path::new("/dev/null"), Path::new("/proc")]);
    let text: Vec<_> = walked
        .problems
        .iter()
        .map(|p| format!("{} {}", p.path.display(), p.refusal))
        .collect();
    assert_eq!(text.len(), 3, "{text:?}");
    assert!(text.iter().any(|t| t.contains("none")), "{text:?}");
    assert!(
        text.iter().any(|t| t == "/dev/null not-regular"),
        "{text:?}"
    );
    assert!(text.iter().any(|t| t == "/proc no-engine"), "{text:?}");
}

#[test]
fn a_walk_stops_when_asked() {
    let dir = tree();
    for n in 0..200 {
        fs::write(dir.path().join(format!("{n}")), "x").unwrap();
    }
    let cancel = Cancel::new();
    let options = CollectOptions {
        jobs: 2,
        ..CollectOptions::default()
    };
    let summary = collect(&[dir.path().to_owned()], &options, &cancel, &|_| {
        cancel.cancel();
    });
    assert!(summary.cancelled);
    assert!(summary.files <= 4, "{summary:?}");
}

#[test]
fn chains_deeper_than_descriptors_and_path_lengths_are_walked() {
    let dir = tree();
    let depth = 3000;
    // Deeper than PATH_MAX, so made relative to descriptors, as the walk does it.
    let mut at = rustix::fs::open(
        dir.path(),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..depth {
        for name in ["deep", "wide"] {
            rustix::fs::mkdirat(&at, name, rustix::fs::Mode::RWXU).unwrap();
        }
        at = rustix::fs::openat(
            &at,
            "deep",
            rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
    }
    let file = rustix::fs::openat(
        &at,
        "end",
        rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
        rustix::fs::Mode::RWXU,
    )
    .unwrap();
    rustix::io::write(&file, &[1; 9000]).unwrap();
    let walked = walk(&[dir.path()]);
    assert_eq!(walked.summary.files, 1);
    assert_eq!(walked.summary.directories, 2 * depth + 1);
    assert!(walked.problems.is_empty(), "{:?}", walked.problems.first());
    // The standard library removes by path; the system's tool does not need to.
    let removed = std::process::Command::new("rm")
        .arg("-rf")
        .arg(dir.path().join("deep"))
        .status()
        .unwrap();
    assert!(removed.success());
}

/// Whoever makes directories decides how long their paths are, of which each file's is kept.
#[test]
fn where_paths_are_too_long_nothing_is_looked_at_and_that_is_told_once() {
    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
    let dir = tree();
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut at = open(dir.path(), flags, Mode::empty()).unwrap();
    let [name, beside] = ["d", "e"].map(|letter| letter.repeat(250));
    for depth in 0..300 {
        for name in [&name, &beside] {
            mkdirat(&at, name, Mode::RWXU).unwrap();
        }
        at = openat(&at, &*name, flags, Mode::empty()).unwrap();
        if [200, 299].contains(&depth) {
            let file = openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
            rustix::io::write(file.unwrap(), &[1; 9000]).unwrap();
        }
    }
    let (files, problems) = (Mutex::new(0), Mutex::new(Vec::new()));
    let paths = [dir.path().to_owned()];
    let options = CollectOptions::default();
    let summary = collect(&paths, &options, &Cancel::new(), &|seen| match seen {
        Seen::File(_) => *files.lock().unwrap() += 1,
        Seen::Problem(problem) => problems.lock().unwrap().push(problem),
    });
    assert_eq!(*files.lock().unwrap(), 1);
    assert_eq!(summary.problems, 0);
    let problems = problems.into_inner().unwrap();
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    let skip = indef_fs::Refusal::Skip(indef_core::SkipReason::PathTooLong);
    assert_eq!(format!("{:?}", problem.refusal), format!("{skip:?}"));
    assert!(problem.path.is_dir(), "the kernel takes it: {problem:?}");
    assert!(problem.path.as_os_str().len() > 3000);
    let removed = std::process::Command::new("rm")
        .arg("-rf")
        .arg(dir.path().join(&name))
        .status();
    assert!(removed.unwrap().success());
}

#[test]
fn loop_mount_points_are_respected_and_layouts_found() {
    let made = scratch_fs::ScratchFs::builder("ext4", Bytes::mib(64)).build();
    let Some(scratch) = scratch_fs::require(made) else {
        return;
    };
    let dir = tree();
    let options = scratch_fs::FragmentOptions {
        size: Bytes::kib(256),
        piece: Bytes::kib(4),
        seed: 1,
    };
    scratch_fs::fragment(&scratch.path().join("pieces"), options).unwrap();
    fs::write(scratch.path().join("small"), "x").unwrap();
    fs::File::create(scratch.path().join("hole"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let walked = walk(&[scratch.path()]);
    let fragments = |name: &str| {
        let found = &walked.files[&scratch.path().join(name)];
        (found.mapped, found.result.as_ref().unwrap().fragments())
    };
    assert_eq!(fragments("pieces"), (true, 64));
    assert_eq!(fragments("small").1, 1);
    assert_eq!(fragments("hole").1, 0);
    // From above, the mount is another file system, unless that is wanted.
    let above = scratch.path().parent().unwrap();
    let walked = walk(&[above]);
    assert_eq!(walked.summary.other_file_systems, 1);
    assert!(!walked.files.keys().any(|p| p.ends_with("mnt/pieces")));
    let walked = walk_with(
        &[above],
        &CollectOptions {
            one_file_system: false,
            ..CollectOptions::default()
        },
    );
    assert!(walked.files.keys().any(|p| p.ends_with("mnt/pieces")));
    drop(dir);
}

/// Files of many kinds: in one to many pieces, sparse, allocated and not written, with attributes that take
/// blocks, shared, with two names.
fn make_every_kind(root: &Path) {
    use rustix::fs::{FallocateFlags, fallocate};
    for pieces in 1..40 {
        let options = scratch_fs::FragmentOptions {
            size: Bytes::kib(4 * pieces),
            piece: Bytes::kib(4 * (1 + pieces / 4)),
            seed: pieces,
        };
        scratch_fs::fragment(&root.join(format!("{pieces}")), options).unwrap();
    }
    for n in 0..300 {
        let folder = root.join(format!("folder {}", n % 3));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{n}")), vec![1; 5000 + n * 100]).unwrap();
    }
    fs::hard_link(root.join("7"), root.join("7 again")).unwrap();
    let create = |name: &str, bytes: usize| {
        fs::write(root.join(name), vec![1; bytes]).unwrap();
        let options = fs::File::options().write(true).open(root.join(name));
        options.unwrap()
    };
    let sparse = create("sparse", 20_000);
    sparse.sync_all().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[1; 9000], 1 << 20).unwrap();
    create("short of its end", 20_000).set_len(1 << 20).unwrap();
    let holed = create("holed", 64 << 10);
    holed.sync_all().unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&holed, punch, 16 << 10, 16 << 10).unwrap();
    let tail = create("allocated past its end", 20_000);
    fallocate(&tail, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    let unwritten = create("unwritten", 0);
    fallocate(&unwritten, FallocateFlags::empty(), 0, 200 << 10).unwrap();
    let half = create("half written", 0);
    fallocate(&half, FallocateFlags::empty(), 0, 200 << 10).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&half, &[1; 8192], 64 << 10).unwrap();
    let tagged = create("tagged", 20_000);
    for n in 0..4 {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::fsetxattr(&tagged, format!("user.{n}"), &[7; 700], flags).unwrap();
    }
    let clone = fs::File::create(root.join("clone")).unwrap();
    // Not on ext4.
    let _ = rustix::fs::ioctl_ficlone(&clone, fs::File::open(root.join("folder 1/100")).unwrap());
}

/// Inodes tell the same as FIEMAP: with data that has no place yet, and after a remount.
fn inodes_say_what_the_kernel_maps(kind: &str, options: &str) {
    let made = scratch_fs::ScratchFs::builder(kind, Bytes::mib(512))
        .mount_options(options)
        .build();
    let Some(mut scratch) = scratch_fs::require(made) else {
        return;
    };
    let root = scratch.path().to_owned();
    make_every_kind(&root);
    let write_back = |sync| CollectOptions {
        jobs: 3,
        sync,
        places: false,
        ..CollectOptions::default()
    };
    fs::write(root.join("delayed"), vec![1; 30_000]).unwrap();
    let delayed = walk_with(&[&root], &write_back(false));
    assert_eq!(delayed.files[&root.join("delayed")].size, Bytes(30_000));
    scratch.remount().unwrap();
    let alone = walk_with(&[&root], &write_back(false));
    let mapped = walk_with(&[&root], &write_back(true));
    assert_eq!(alone.summary, delayed.summary);
    assert_eq!(alone.summary, mapped.summary);
    assert_eq!(alone.summary.hard_links, 1);
    let mut of_inodes = 0;
    for (path, mapped) in &mapped.files {
        // Which name of a file is met first is not fixed.
        if path.to_string_lossy().contains('7') && path.parent() == Some(&root) {
            continue;
        }
        let alone = &alone.files[path];
        let facts = |found: &FoundFile| (found.id, found.size, found.allocated);
        assert_eq!(facts(alone), facts(mapped), "{path:?}");
        let (theirs, ours) = (
            mapped.result.as_ref().unwrap(),
            alone.result.as_ref().unwrap(),
        );
        assert_eq!(ours.fragments(), theirs.fragments(), "{path:?}");
        let bytes = |layout: &indef_core::layout::Layout| {
            let extents = layout.extents().iter();
            extents.map(|extent| extent.len).sum::<Bytes>()
        };
        // One block needs no place; the kernel tells how much of the last one is of a file.
        if alone.allocated > Bytes::kib(4) {
            let end = |layout| bytes(layout).get().next_multiple_of(4096);
            assert_eq!(end(ours), end(theirs), "{path:?}");
        }
        if alone.mapped && ours.fragments() > 1 {
            assert_eq!(ours, theirs, "{path:?}");
        }
        of_inodes += u32::from(!alone.mapped && alone.allocated > Bytes::kib(4));
    }
    if kind == "xfs" {
        assert!(of_inodes > 250, "only {of_inodes} files were told in bulk");
    }
}

#[test]
fn loop_ext4_inodes_say_what_the_kernel_maps() {
    inodes_say_what_the_kernel_maps("ext4", "");
}

#[test]
fn loop_xfs_inodes_say_what_the_kernel_maps() {
    inodes_say_what_the_kernel_maps("xfs", "");
}

#[test]
fn loop_btrfs_inodes_say_what_the_kernel_maps() {
    inodes_say_what_the_kernel_maps("btrfs", "");
    inodes_say_what_the_kernel_maps("btrfs", "compress=zstd");
}

#[test]
fn many_entries_in_one_directory_are_shared_out() {
    let dir = tree();
    for n in 0..5000 {
        fs::write(dir.path().join(format!("{n:05}")), "x").unwrap();
    }
    for jobs in [1, 2, 7] {
        let options = CollectOptions {
            jobs,
            ..CollectOptions::default()
        };
        assert_eq!(walk_with(&[dir.path()], &options).summary.files, 5000);
    }
}

fn excluding(globs: &[&str], min_size: Bytes) -> CollectOptions {
    let globs = globs.iter().map(|glob| glob.parse().unwrap());
    CollectOptions {
        select: Select::new(globs, min_size).unwrap(),
        ..CollectOptions::default()
    }
}

fn names_of(walked: &Walked, root: &Path) -> Vec<String> {
    let names = walked.files.keys().map(|path| {
        let below = path.strip_prefix(root).unwrap_or(path);
        below.to_string_lossy().into_owned()
    });
    names.collect()
}

#[test]
fn what_globs_match_is_left_out_and_counted() {
    let dir = tree();
    let root = dir.path();
    for sub in ["a/cache", "b/node_modules/deep", "c"] {
        fs::create_dir_all(root.join(sub)).unwrap();
    }
    for file in [
        "a/x.iso",
        "a/y",
        "a/cache/z.tmp",
        "b/node_modules/deep/1",
        "b/node_modules/2",
        "c/z.tmp",
    ] {
        fs::write(root.join(file), "content").unwrap();
    }
    // An excluded folder is not entered: not even looked into, which would be told.
    fs::write(root.join("b/keep"), "content").unwrap();
    let options = excluding(&["*.iso", "cache/*.tmp", "node_modules/"], Bytes::ZERO);
    let walked = walk_with(&[root], &options);
    assert_eq!(names_of(&walked, root), ["a/y", "b/keep", "c/z.tmp"]);
    let expected = Excluded {
        files: 2,
        directories: 1,
        small: 0,
    };
    assert_eq!(walked.summary.excluded, expected);
    assert_eq!(walked.summary.directories, 5);

    // By a whole path: as typed, also through a link, and as it really is.
    let link = root.join("link");
    symlink(root.join("a"), &link).unwrap();
    for (given, glob) in [
        (root.join("a"), root.join("a/cache")),
        (link.clone(), link.join("cache")),
        (link, root.canonicalize().unwrap().join("a/cache")),
    ] {
        let glob = glob.to_str().unwrap();
        let walked = walk_with(&[&given], &excluding(&[glob], Bytes::ZERO));
        assert_eq!(names_of(&walked, &given), ["x.iso", "y"], "{glob}");
        assert_eq!(walked.summary.excluded.directories, 1);
    }
}

#[test]
fn given_paths_can_be_left_out_too() {
    let dir = tree();
    let root = dir.path();
    fs::create_dir(root.join("logs")).unwrap();
    for file in ["logs/1", "one.log", "two"] {
        fs::write(root.join(file), "content").unwrap();
    }
    let given = [root.join("logs"), root.join("one.log"), root.join("two")];
    let given: Vec<&Path> = given.iter().map(PathBuf::as_path).collect();
    let walked = walk_with(&given, &excluding(&["logs", "*.log"], Bytes::ZERO));
    assert_eq!(names_of(&walked, root), ["two"]);
    let excluded = walked.summary.excluded;
    assert_eq!((excluded.files, excluded.directories), (1, 1));
    assert_eq!(walked.problems.len(), 0);
}

#[test]
fn smaller_files_are_not_looked_at() {
    let dir = tree();
    let root = dir.path();
    for (name, size) in [("less", 9_999), ("as-much", 10_000), ("more", 10_001)] {
        fs::write(root.join(name), vec![7; size]).unwrap();
    }
    fs::hard_link(root.join("less"), root.join("less-too")).unwrap();
    let options = excluding(&[], Bytes(10_000));
    let walked = walk_with(&[root], &options);
    assert_eq!(names_of(&walked, root), ["as-much", "more"]);
    let summary = walked.summary;
    assert_eq!((summary.excluded.small, summary.hard_links), (1, 1));
    let walked = walk_with(&[&root.join("less"), &root.join("more")], &options);
    assert_eq!(names_of(&walked, root), ["more"]);
    assert_eq!(walked.summary.excluded.small, 1);
}

#[test]
fn paths_that_stand_for_files_are_not_walked() {
    let dir = tree();
    let root = dir.path();
    fs::create_dir(root.join("sub")).unwrap();
    fs::write(root.join("sub/inside"), "content").unwrap();
    fs::write(root.join("file"), "content").unwrap();
    let options = CollectOptions {
        select: Select::default().of_files(),
        ..CollectOptions::default()
    };
    let walked = walk_with(&[&root.join("sub"), &root.join("file")], &options);
    assert_eq!(names_of(&walked, root), ["file"]);
    let [problem] = &walked.problems[..] else {
        panic!("{:?}", walked.problems);
    };
    assert_eq!(problem.path, root.join("sub"));
}

#[test]
fn of_listed_files_others_are_not_looked_at() {
    use std::os::unix::fs::MetadataExt;
    let dir = tree();
    let root = dir.path();
    fs::create_dir(root.join("sub")).unwrap();
    for name in ["one", "sub/two", "sub/three"] {
        fs::write(root.join(name), "content").unwrap();
    }
    fs::hard_link(root.join("sub/two"), root.join("two again")).unwrap();
    let status = fs::metadata(root.join("sub/two")).unwrap();
    let of = |dev| CollectOptions {
        listed: Some(Listed::new(dev, vec![(u64::MAX, 1), (status.ino(), 1)])),
        ..CollectOptions::default()
    };
    let walked = walk_with(&[root], &of(status.dev()));
    let inodes: Vec<u64> = walked.files.values().map(|found| found.id.inode).collect();
    assert_eq!(inodes, [status.ino()]);
    assert_eq!(walked.summary.hard_links, 1);
    // No list is of these.
    let walked = walk_with(&[root], &of(status.dev() + 1));
    assert_eq!(walked.summary.files, 3);
}
