//! A file stays the same under any name and at any mount.

use std::{fs, path::Path};

use indef_trace::collect::{Filter, Layer, TraceOptions};

use crate::{
    actor::Actor,
    harness::{
        BLOCK, KIB, KINDS, MIB, Watch, forget_all, name, options, plain_file, reads_at, run,
        scratch,
    },
};

const LAYERS: [Layer; 2] = [Layer::Fs, Layer::Syscall];

#[test]
fn loop_renamed_and_deleted() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(fs) = scratch(kind) else { return };
            let (file, later) = (fs.path().join("file"), fs.path().join("later"));
            let mut actor = Actor::new();
            actor.act(&format!("open d rd {}", plain_file(&file, MIB)));
            let mut watch = Watch::start(&options(layer, fs.path()));
            actor.act("pread d 0 4096");
            // A table is emptied no more than once a second.
            std::thread::sleep(std::time::Duration::from_millis(1100));
            watch.drain();
            fs::rename(&file, &later).unwrap();
            actor.act("pread d 4096 4096");
            fs::remove_file(&later).unwrap();
            actor.act("pread d 8192 4096");
            let seen = watch.finish();
            assert_eq!(seen.touched(), 1, "{kind}");
            assert_eq!(seen.paths(), std::slice::from_ref(&file), "{kind}");
            let only = seen.all().next().unwrap().1;
            assert_eq!(*only, reads_at([0, 4096, 8192], BLOCK), "{kind}");
        }
    }
}

/// The kernel's number of a mounted file system: Btrfs gets a free one at each mount.
fn number(mount: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_mount = |line: &&str| line.split(' ').nth(4) == mount.to_str();
    let line = table.lines().rfind(of_mount)?;
    line.split(' ').nth(2).map(str::to_owned)
}

/// The kernel drops the names of files that nobody has open before the collector looks at them.
#[test]
fn loop_names_that_are_gone_from_memory() {
    for kind in KINDS {
        for layer in LAYERS {
            // Again if the file system got another number, which a mount elsewhere has taken: then it
            // is another one for the collector.
            let tries = 5;
            assert!(
                (0..tries).any(|_| names_that_are_gone(kind, layer)),
                "{kind}, {layer:?}"
            );
        }
    }
}

/// `false`: it has another number now.
fn names_that_are_gone(kind: &str, layer: Layer) -> bool {
    let Some(mut fs) = scratch(kind) else {
        return true;
    };
    let folder = fs.path().join("a/b");
    fs::create_dir_all(&folder).unwrap();
    let files = ["one", "two", "../three", "../../four"].map(|name| folder.join(name));
    let mut actor = Actor::new();
    let names = files.each_ref().map(|file| plain_file(file, MIB));
    let before = number(fs.path());
    assert!(before.is_some());
    let watch = Watch::start(&options(layer, fs.path()));
    for name in &names {
        actor.act(&format!("open d rd {name}"));
        actor.acts("pread d 0 4096\nclose d");
    }
    fs::remove_file(&files[1]).unwrap();
    forget_all(&mut fs);
    if number(fs.path()) != before {
        return false;
    }
    let seen = watch.finish();
    let mut expected = [0, 2, 3].map(|n| fs::canonicalize(&files[n]).unwrap());
    expected.sort();
    assert_eq!(seen.paths(), expected, "{kind}, {layer:?}");
    assert_eq!(seen.touched(), 4, "{kind}, {layer:?}");
    true
}

#[test]
fn loop_deleted_before_it_was_met() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(fs) = scratch(kind) else { return };
            let file = fs.path().join("file");
            let mut actor = Actor::new();
            actor.act(&format!("open d rd {}", plain_file(&file, MIB)));
            fs::remove_file(&file).unwrap();
            let watch = Watch::start(&options(layer, fs.path()));
            actor.act("pread d 65536 4096");
            let seen = watch.finish();
            let all: Vec<_> = seen.all().map(|(_, ranges)| ranges.clone()).collect();
            assert_eq!(all, [reads_at([65_536], BLOCK)], "{kind}, {layer:?}");
            assert_eq!(seen.paths(), Vec::<std::path::PathBuf>::new());
        }
    }
}

#[test]
fn loop_a_number_that_is_used_again_is_another_file() {
    use std::os::unix::fs::MetadataExt;
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let mut actor = Actor::new();
    let watch = Watch::start(&options(Layer::Fs, fs.path()));
    let mut numbers = Vec::new();
    for _ in 0..2 {
        plain_file(&file, 64 * KIB);
        numbers.push(fs::metadata(&file).unwrap().ino());
        actor.act(&format!("open d rd {}", name(&file)));
        actor.acts("pread d 0 4096\nclose d");
        fs::remove_file(&file).unwrap();
    }
    assert_eq!(numbers[0], numbers[1], "ext4 uses them again at once");
    let seen = watch.finish();
    // Writeback of the test's own writes is seen, too.
    let read = seen
        .all()
        .filter(|(_, ranges)| ranges.values().any(|counts| counts.0 == 1));
    let generations: Vec<u32> = read.map(|(key, _)| key.generation).collect();
    assert_eq!(generations.len(), 2);
    assert_ne!(generations[0], generations[1]);
}

#[test]
fn loop_hard_links() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(fs) = scratch(kind) else { return };
            let (inside, outside) = (fs.path().join("in"), fs.path().join("out"));
            fs::create_dir(&inside).unwrap();
            fs::create_dir(&outside).unwrap();
            let (one, two) = (inside.join("one"), outside.join("two"));
            let first = plain_file(&one, MIB);
            fs::hard_link(&one, &two).unwrap();
            let other = outside.join("other");
            let mut actor = Actor::new();
            actor.act(&format!("open a rd {first}"));
            actor.act(&format!("open b rd {}", name(&two)));
            actor.act(&format!("open c rd {}", plain_file(&other, MIB)));
            let watch = Watch::start(&options(layer, &inside));
            actor.acts("pread b 4096 4096\npread a 0 4096\npread c 0 4096");
            let seen = watch.finish();
            assert_eq!(seen.of(&one), reads_at([0, 4096], BLOCK), "{kind}");
            assert_eq!(seen.touched(), 1, "{kind}");
        }
    }
}

/// Undone when the test ends.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn loop_bind_mounts() {
    for kind in KINDS {
        for layer in LAYERS {
            let elsewhere = tempfile::tempdir().unwrap();
            let Some(fs) = scratch(kind) else { return };
            let tree = fs.path().join("tree");
            fs::create_dir(&tree).unwrap();
            plain_file(&tree.join("file"), MIB);
            plain_file(&fs.path().join("other"), MIB);
            run("mount", &["--bind", &name(&tree), &name(elsewhere.path())]);
            let _mounted = Mounted(elsewhere.path());
            let through = elsewhere.path().join("file");
            let mut actor = Actor::new();
            actor.act(&format!("open d rd {}", name(&through)));
            actor.act(&format!("open o rd {}", name(&fs.path().join("other"))));
            // The tree by its other name.
            let watch = Watch::start(&options(layer, elsewhere.path()));
            actor.acts("pread d 0 4096\npread o 0 4096");
            let seen = watch.finish();
            assert_eq!(seen.of(tree.join("file")), reads_at([0], BLOCK), "{kind}");
            assert_eq!(seen.touched(), 1, "{kind}");
            let path = &seen.paths()[0];
            assert!(path == &through || path == &tree.join("file"), "{path:?}");
        }
    }
}

#[test]
fn loop_another_mount_namespace() {
    for kind in KINDS {
        for layer in LAYERS {
            let elsewhere = tempfile::tempdir().unwrap();
            let Some(mut fs) = scratch(kind) else { return };
            plain_file(&fs.path().join("file"), MIB);
            let device = fs.device().to_owned();
            let place = name(elsewhere.path());
            let script = format!("mount {device} {place} && exec \"$@\"");
            let launcher = ["unshare", "--mount", "--propagation", "private", "sh", "-c"];
            let mut command = launcher.to_vec();
            command.extend([script.as_str(), "sh"]);
            // Mounted nowhere but there.
            fs.unmount().unwrap();
            let mut actor = Actor::through(&command);
            let options = TraceOptions {
                filter: Filter {
                    devices: vec![device.into()],
                    ..Filter::default()
                },
                ..options(layer, Path::new("/"))
            };
            actor.act(&format!("open d rd {place}/file"));
            let watch = Watch::start(&options);
            actor.act("pread d 8192 4096");
            let seen = watch.finish();
            let all: Vec<_> = seen.all().map(|(_, ranges)| ranges.clone()).collect();
            assert_eq!(all, [reads_at([8192], BLOCK)], "{kind}, {layer:?}");
            let path = format!("/proc/{}/root{place}/file", actor.pid());
            assert_eq!(seen.paths(), [Path::new(&path)], "{kind}, {layer:?}");
            drop(actor);
            fs.mount().unwrap();
        }
    }
}
