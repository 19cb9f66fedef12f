//! Root's run over a tree in which a user exchanges directories and files: only planned files
//! are opened, and nothing is made elsewhere.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::common::{Run, hashes, indef, is_root, make, scratch};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, RenameFlags, inotify, mknodat, open, renameat_with},
    process::Uid,
};
use units::Bytes;

const USER: u32 = 1000;
const FILES: usize = 60;

/// Watches for changes to a directory and to its content.
struct Watched {
    inotify: rustix::fd::OwnedFd,
}

impl Watched {
    fn new(directory: &Path) -> Self {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let inotify = inotify::init(flags).unwrap();
        let all = inotify::WatchFlags::ALL_EVENTS;
        inotify::add_watch(&inotify, directory, all).unwrap();
        Self { inotify }
    }

    fn events(&self) -> Vec<String> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1 << 16];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        while let Ok(event) = reader.next() {
            events.push(format!("{:?} {:?}", event.events(), event.file_name()));
        }
        events
    }
}

fn node(path: &Path, kind: FileType, device: u64) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), device).unwrap();
}

/// Size, times and blocks.
fn state(path: &Path) -> (u64, i64, i64, u64, u64) {
    let status = fs::symlink_metadata(path).unwrap();
    let times = (status.mtime_nsec(), status.ctime_nsec());
    (
        status.len(),
        times.0,
        times.1,
        status.blocks(),
        status.ino(),
    )
}

fn names(dir: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, u64, u64)> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), state(&path)))
        .collect()
}

/// Exchange two names as the user, until told to stop.
fn exchange(parent: &Path, a: &str, b: &str, stop: &AtomicBool, count: &AtomicU64) {
    // A program that another test begins meanwhile would keep the file system busy.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = open(parent, flags, Mode::empty()).unwrap();
    // This affects only this thread.
    rustix::thread::set_thread_uid(Uid::from_raw(USER)).unwrap();
    while !stop.load(Ordering::Relaxed) {
        renameat_with(&parent, a, &parent, b, RenameFlags::EXCHANGE).unwrap();
        count.fetch_add(1, Ordering::Relaxed);
        // Long enough in each state for a file to be examined, short enough for many states.
        for _ in 0..(count.load(Ordering::Relaxed) * 7919) % 2000 {
            std::hint::spin_loop();
        }
    }
}

fn nobody_leads_root_out(kind: &str) {
    if !is_root() {
        return;
    }
    let Some(mut scratch) = scratch(kind) else {
        return;
    };
    let (tree, outside) = (scratch.path().join("tree"), scratch.path().join("outside"));
    let inside = tree.join("user/d");
    fs::create_dir_all(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, tree.join("user/link")).unwrap();
    for n in 0..FILES {
        let name = format!("f{n}");
        make(&inside.join(&name), Bytes::kib(64), Bytes::kib(4));
        let out = outside.join(&name);
        match n % 3 {
            0 => node(&out, FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
            1 => node(&out, FileType::Fifo, 0),
            _ => make(&out, Bytes::kib(64), Bytes::kib(4)),
        }
    }
    for path in [tree.join("user"), inside.clone()] {
        std::os::unix::fs::chown(&path, Some(USER), Some(USER)).unwrap();
    }
    let plan = scratch.path().join("plan");
    let planned = indef().arg("plan").arg(&tree).arg("-o").arg(&plan).output();
    assert!(planned.unwrap().status.success());
    scratch.sync().unwrap();
    let contents = hashes(&inside);
    let before = names(&outside);
    let watched = Watched::new(&outside);

    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut there, mut elsewhere, mut moved) = (0_u64, 0_u64, 0_u64);
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&tree.join("user"), "d", "link", &stop, &swaps));
        let end = Instant::now() + Duration::from_secs(8);
        for round in 0.. {
            if Instant::now() > end && round > 8 {
                break;
            }
            let mut command = indef();
            command.args(["run", "--json", "--progress", "never"]);
            match round % 4 {
                // A plan from a walk of its own.
                0 => command.arg(&tree),
                _ => command.arg("--plan").arg(&plan),
            };
            let ran = command.ran();
            let document = ran.json();
            for file in document["files"].as_array().unwrap() {
                match file["reason"].as_str() {
                    Some("symbolic-link" | "gone") => elsewhere += 1,
                    None => moved += 1,
                    Some("contiguous" | "no-gain") => there += 1,
                    Some(_) => {}
                }
                assert_ne!(file["status"], "failed", "{file}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(watched.events(), Vec::<String>::new());
    assert_eq!(names(&outside), before);
    // Otherwise there was no race.
    let swaps = swaps.into_inner();
    assert!(swaps > 1000, "{swaps}");
    assert!(
        moved > 10 && there > 10 && elsewhere > 10,
        "{swaps} exchanges: {moved} files were moved, {there} found in order, {elsewhere} not found"
    );
    if fs::symlink_metadata(&inside).unwrap().is_symlink() {
        let user = tree.join("user");
        let (a, b) = (user.join("d"), user.join("link"));
        renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
    }
    assert_eq!(hashes(&inside), contents);
    scratch.fsck().unwrap();
}

#[test]
fn loop_nobody_leads_root_out_of_ext4() {
    nobody_leads_root_out("ext4");
}

#[test]
fn loop_nobody_leads_root_out_of_xfs() {
    nobody_leads_root_out("xfs");
}

/// The single reason for which the file of the plan stays.
#[track_caller]
fn reason(plan: &Path) -> String {
    let ran = indef().args(["run", "--json", "--plan"]).arg(plan).ran();
    let document = ran.json();
    assert_eq!(document["files"].as_array().unwrap().len(), 1, "{document}");
    document["files"][0]["reason"]
        .as_str()
        .unwrap_or("moved")
        .to_owned()
}

#[test]
fn loop_a_plan_moves_the_file_that_it_was_made_for_and_no_other() {
    if !is_root() {
        return;
    }
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let path = |name: &str| scratch.path().join(name);
    let directory = path("tree/a");
    fs::create_dir_all(&directory).unwrap();
    fs::create_dir(path("outside")).unwrap();
    let file = directory.join("file");
    make(&file, Bytes::mib(1), Bytes::kib(4));
    let plan = path("plan");
    let planned = indef()
        .arg("plan")
        .arg(path("tree"))
        .arg("-o")
        .arg(&plan)
        .output();
    assert!(planned.unwrap().status.success());
    fs::rename(&file, path("kept")).unwrap();

    make(&file, Bytes::mib(1), Bytes::kib(4));
    assert_eq!(reason(&plan), "changed");
    fs::remove_file(&file).unwrap();
    assert_eq!(reason(&plan), "gone");
    // An ordinary open of a FIFO waits for ever.
    node(&file, FileType::Fifo, 0);
    assert_eq!(reason(&plan), "not-regular");
    fs::remove_file(&file).unwrap();
    node(&file, FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    assert_eq!(reason(&plan), "not-regular");
    fs::remove_file(&file).unwrap();
    symlink(path("kept"), &file).unwrap();
    assert_eq!(reason(&plan), "not-regular");
    fs::remove_file(&file).unwrap();
    // A link beneath the root is not followed, even where it leads to the very same file.
    fs::hard_link(path("kept"), path("outside/file")).unwrap();
    fs::remove_dir(&directory).unwrap();
    symlink(path("outside"), &directory).unwrap();
    let watched = Watched::new(&path("outside"));
    assert_eq!(reason(&plan), "symbolic-link");
    assert_eq!(watched.events(), Vec::<String>::new());
    // The root itself is resolved as it is written.
    fs::rename(path("tree"), path("other")).unwrap();
    symlink("other", path("tree")).unwrap();
    fs::remove_file(path("other/a")).unwrap();
    fs::create_dir(path("other/a")).unwrap();
    fs::rename(path("kept"), path("other/a/file")).unwrap();
    assert_eq!(reason(&plan), "moved");
}
