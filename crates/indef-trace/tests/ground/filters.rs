//! Filters, at both layers: all accesses that pass are there, and no others.

use std::{fs, path::PathBuf};

use indef_trace::collect::{Collector, Filter, Layer, TraceOptions};
use scratch_fs::ScratchFs;

use crate::{
    actor::Actor,
    harness::{
        BLOCK, KINDS, MIB, Ranges, Seen, Watch, forget, name, options, plain_file, reads_at, run,
        scratch, writes_at,
    },
};

const LAYERS: [Layer; 2] = [Layer::Fs, Layer::Syscall];

/// The mount, and one more filter.
fn with(layer: Layer, fs: &ScratchFs, more: impl FnOnce(&mut Filter)) -> TraceOptions {
    let mut options = options(layer, fs.path());
    more(&mut options.filter);
    options
}

/// Two processes with one file each; the first reads its block 0, its child all of a third file; the
/// second reads block 1.
struct Scene {
    kind: &'static str,
    fs: ScratchFs,
    files: [PathBuf; 3],
    actors: [Actor; 2],
}

impl Scene {
    fn new(kind: &'static str) -> Option<Self> {
        let fs = scratch(kind)?;
        let files = ["one", "two", "three"].map(|name| fs.path().join(name));
        let mut actors = [Actor::new(), Actor::new()];
        for (file, actor) in files.iter().zip(&mut actors) {
            actor.act(&format!("open d rd {}", plain_file(file, MIB)));
        }
        plain_file(&files[2], BLOCK);
        Some(Self {
            kind,
            fs,
            files,
            actors,
        })
    }

    fn play(&mut self, options: &TraceOptions) -> Seen {
        let watch = Watch::start(options);
        self.actors[0].act("pread d 0 4096");
        self.actors[1].act("pread d 4096 4096");
        let third = name(&self.files[2]);
        self.actors[0].act(&format!("run cat {third}"));
        watch.finish()
    }

    #[track_caller]
    fn assert(&self, seen: &Seen, reads: [u64; 3]) {
        let expected: [Ranges; 3] = [0, 1, 2]
            .map(|n| reads_at((0..reads[n]).map(|_| if n == 1 { BLOCK } else { 0 }), BLOCK));
        let ranges = [0, 1, 2].map(|n| seen.of(&self.files[n]));
        assert_eq!(ranges, expected, "{}", self.kind);
    }
}

#[test]
fn loop_processes_and_their_children() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(mut scene) = Scene::new(kind) else {
                return;
            };
            let first = scene.actors[0].pid();
            let options = with(layer, &scene.fs, |filter| filter.pids = vec![first]);
            let seen = scene.play(&options);
            scene.assert(&seen, [1, 0, 1]);
        }
    }
}

/// Set where a test runs again in a PID namespace.
const INSIDE: &str = "INDEF_TEST_PID_NAMESPACE";

/// Run one of these tests again as the first process of a new PID namespace. Processes have other
/// numbers there than the kernel's. Returns whether this is that process.
fn is_inside(test: &str, how: &[&str]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        assert_eq!(std::process::id(), 1);
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        scratch_fs::skip("only root makes a PID namespace");
        return false;
    }
    let own = name(&std::env::current_exe().unwrap());
    let (test, inside) = (format!("filters::{test}"), format!("{INSIDE}=1"));
    let again = ["env", &inside, &own, "--exact", &test, "--nocapture"];
    run("unshare", &[how, &again].concat());
    false
}

#[test]
fn loop_process_numbers_that_proc_does_not_show() {
    if !is_inside("loop_process_numbers_that_proc_does_not_show", &["-pf"]) {
        return;
    }
    let mut options = TraceOptions::default();
    options.filter.pids = vec![1];
    let error = Collector::start(&options).unwrap_err().to_string();
    assert!(error.contains("--mount-proc"), "{error}");
}

#[test]
fn loop_in_a_pid_namespace() {
    if !is_inside("loop_in_a_pid_namespace", &["-pf", "--mount-proc"]) {
        return;
    }
    for kind in KINDS {
        for layer in LAYERS {
            let Some(mut scene) = Scene::new(kind) else {
                return;
            };
            let first = scene.actors[0].pid();
            let options = TraceOptions {
                raw: true,
                ..with(layer, &scene.fs, |filter| filter.pids = vec![first])
            };
            let seen = scene.play(&options);
            scene.assert(&seen, [1, 0, 1]);
            // At layer fs, a task's last read is not among the single accesses as long as the task lives.
            if layer == Layer::Syscall {
                let pids: Vec<u32> = seen.accesses.iter().map(|access| access.pid).collect();
                assert_eq!((pids.len(), pids[0]), (2, first), "{pids:?}");
            }

            // A child in a namespace below is a child.
            let third = name(&scene.files[2]);
            forget(&scene.files[2]);
            let watch = Watch::start(&options);
            scene.actors[0].act(&format!("run unshare -pf cat {third}"));
            scene.assert(&watch.finish(), [0, 0, 1]);

            // Of all processes, the collector's own reads do not count.
            forget(&scene.files[2]);
            let watch = Watch::start(&with(layer, &scene.fs, |_| ()));
            fs::read(&scene.files[2]).unwrap();
            scene.actors[1].act("pread d 4096 4096");
            scene.assert(&watch.finish(), [0, 1, 0]);
        }
    }
}

#[test]
fn loop_processes_by_name() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(mut scene) = Scene::new(kind) else {
                return;
            };
            let comm = |comm: &str| {
                let comms = vec![comm.to_owned()];
                move |filter: &mut Filter| filter.comms = comms
            };
            let options = with(layer, &scene.fs, comm("cat"));
            let seen = scene.play(&options);
            scene.assert(&seen, [0, 0, 1]);
            // Not a name that only begins so.
            let options = with(layer, &scene.fs, comm("ca"));
            let seen = scene.play(&options);
            scene.assert(&seen, [0, 0, 0]);
        }
    }
}

#[test]
fn loop_processes_by_name_with_all_their_threads() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(mut scene) = Scene::new(kind) else {
                return;
            };
            // The longest name that the kernel keeps.
            scene.actors[0].act("name databaseserver1");
            scene.actors[1].act("name mysqld");
            for (comms, [first, second, third]) in [
                (vec!["mysqld"], [0, 2, 0]),
                (vec!["ib_io_rd-1"], [0, 0, 0]),
                (vec!["databaseserver1"], [1, 0, 0]),
                (vec!["databaseserver1-cut", "postgres"], [1, 0, 0]),
                (vec!["cat", "postgres", "mysqld"], [0, 2, 1]),
            ] {
                let comms = comms.into_iter().map(str::to_owned).collect();
                let options = with(layer, &scene.fs, |filter| filter.comms = comms);
                let watch = Watch::start(&options);
                scene.actors[0].act("thread ib_io_rd-1 pread d 0 4096");
                scene.actors[1].act("thread ib_io_rd-1 pread d 4096 4096");
                // A thread of the kernel's submits it.
                scene.actors[1].act("uring d polled 4096 4096");
                let file = name(&scene.files[2]);
                forget(&scene.files[2]);
                scene.actors[1].act(&format!("run cat {file}"));
                let seen = watch.finish();
                scene.assert(&seen, [first, second, third]);
            }
        }
    }
}

#[test]
fn loop_processes_by_user() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(mut scene) = Scene::new(kind) else {
                return;
            };
            let options = with(layer, &scene.fs, |filter| filter.uid = Some(65_534));
            let watch = Watch::start(&options);
            scene.actors[0].act("pread d 0 4096");
            let third = name(&scene.files[2]);
            // The temporary folder of the file system is the test's own.
            let open = scene.fs.path().parent().unwrap();
            run("chmod", &["755", &name(open)]);
            run("chmod", &["644", &third]);
            let status = scene.actors[1].act(&format!(
                "run setpriv --reuid=65534 --regid=65534 --clear-groups cat {third}"
            ));
            assert_eq!(status, 0);
            let seen = watch.finish();
            scene.assert(&seen, [0, 0, 1]);
        }
    }
}

/// A control group of its own.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let root = roots.into_iter().find(|root| {
            root.join("cgroup.procs").exists() && root.join("cgroup.controllers").exists()
        });
        let Some(root) = root else {
            scratch_fs::skip("no cgroup v2 is mounted");
            return None;
        };
        let folder = root.join(format!("indef-test-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Some(Self(folder))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn loop_control_groups() {
    let Some(group) = Group::new() else { return };
    for kind in KINDS {
        for layer in LAYERS {
            let Some(mut scene) = Scene::new(kind) else {
                return;
            };
            let first = scene.actors[0].pid();
            let below = group.0.join("below");
            fs::create_dir(&below).unwrap();
            fs::write(below.join("cgroup.procs"), first.to_string()).unwrap();
            let options = with(layer, &scene.fs, |filter| {
                filter.cgroup = Some(group.0.clone())
            });
            let seen = scene.play(&options);
            scene.assert(&seen, [1, 0, 1]);
            drop(scene);
            fs::remove_dir(&below).unwrap();
        }
    }
}

#[test]
fn loop_paths() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(fs) = scratch(kind) else { return };
            let tree = fs.path().join("tree");
            let deep = tree.join("a/b/c");
            fs::create_dir_all(&deep).unwrap();
            let point = tree.join("point");
            fs::create_dir(&point).unwrap();
            let inside = deep.join("file");
            let single = fs.path().join("single");
            let other = fs.path().join("other");
            for file in [&inside, &single, &other] {
                plain_file(file, BLOCK);
            }
            // Another file system, mounted below.
            let Some(second) = scratch("ext4") else {
                return;
            };
            let beyond = second.path().join("file");
            plain_file(&beyond, BLOCK);
            run("mount", &["--bind", &name(second.path()), &name(&point)]);
            let mut actor = Actor::new();
            let mut options = options(layer, &tree);
            options.filter.paths.push(single.clone());
            let watch = Watch::start(&options);
            for file in [&inside, &single, &other, &point.join("file")] {
                actor.act(&format!("run cat {}", name(file)));
            }
            let seen = watch.finish();
            // Somebody may just be looking at it.
            run("umount", &["--lazy", &name(&point)]);
            for file in [&inside, &single, &beyond] {
                assert_eq!(seen.of(file), reads_at([0], BLOCK), "{kind}, {layer:?}");
            }
            assert_eq!(seen.touched(), 3, "{kind}, {layer:?}");
        }
    }
}

/// Two lower layers and an upper one on a file system, and where they are merged; and an overlay on top of that.
struct Overlay {
    fs: ScratchFs,
    merged: PathBuf,
    top: PathBuf,
    _elsewhere: tempfile::TempDir,
}

impl Overlay {
    fn new(kind: &str) -> Option<Self> {
        let fs = scratch(kind)?;
        let elsewhere = tempfile::tempdir().unwrap();
        let [merged, top] = ["merged", "top"].map(|name| elsewhere.path().join(name));
        let parts = ["low:er/in", "second/in", "upper", "work", "upper2", "work2"];
        let parts = parts.map(|part| fs.path().join(part));
        for folder in parts.iter().chain([&merged, &top]) {
            fs::create_dir_all(folder).unwrap();
        }
        let on = name(fs.path());
        let overlay = Self {
            fs,
            merged,
            top,
            _elsewhere: elsewhere,
        };
        let below = name(&overlay.merged);
        for (place, options) in [
            (
                &overlay.merged,
                format!("lowerdir={on}/low\\:er:{on}/second,upperdir={on}/upper,workdir={on}/work"),
            ),
            (
                &overlay.top,
                format!("lowerdir={below},upperdir={on}/upper2,workdir={on}/work2"),
            ),
        ] {
            let mounted = std::process::Command::new("mount")
                .args(["-t", "overlay", "overlay", "-o", &options, &name(place)])
                .status()
                .unwrap();
            if !mounted.success() {
                scratch_fs::skip("no overlay can be mounted");
                return None;
            }
        }
        Some(overlay)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .args(["--lazy", &name(&self.top), &name(&self.merged)])
            .stderr(std::process::Stdio::null())
            .status();
    }
}

#[test]
fn loop_paths_of_an_overlay() {
    for layer in LAYERS {
        let Some(overlay) = Overlay::new("ext4") else {
            return;
        };
        let merged = &overlay.merged;
        let files = ["low:er/in/a", "second/in/b", "upper/c", "outside"]
            .map(|file| overlay.fs.path().join(file));
        for file in &files {
            plain_file(file, BLOCK);
        }
        let above = merged.parent().unwrap().to_owned();
        for (path, expected) in [
            (merged.clone(), 0..3),
            // A folder that only the lower layers have, and a file of the upper one.
            (merged.join("in"), 0..2),
            (merged.join("c"), 2..3),
            // The overlays are mounted below.
            (above, 0..3),
            (overlay.top.clone(), 0..3),
            (overlay.top.join("in"), 0..2),
        ] {
            files.iter().for_each(|file| forget(file));
            let mut actor = Actor::new();
            let watch = Watch::start(&options(layer, &path));
            for file in ["in/a", "in/b", "c"] {
                actor.act(&format!("run cat {}", name(&merged.join(file))));
            }
            actor.act(&format!("run cat {}", name(&files[3])));
            let seen = watch.finish();
            for file in &files[expected.clone()] {
                assert_eq!(seen.of(file), reads_at([0], BLOCK), "{layer:?}: {path:?}");
            }
            assert_eq!(seen.touched(), expected.len(), "{layer:?}: {path:?}");
        }
    }
}

#[test]
fn loop_devices() {
    for kind in KINDS {
        for layer in LAYERS {
            let (Some(one), Some(two)) = (scratch(kind), scratch(kind)) else {
                return;
            };
            let files = [&one, &two].map(|fs| fs.path().join("file"));
            for file in &files {
                plain_file(file, BLOCK);
            }
            let mut options = options(layer, one.path());
            options.filter = Filter {
                devices: vec![one.device().into()],
                ..Filter::default()
            };
            let mut actor = Actor::new();
            let watch = Watch::start(&options);
            for file in &files {
                actor.act(&format!("run cat {}", name(file)));
            }
            let seen = watch.finish();
            assert_eq!(
                seen.of(&files[0]),
                reads_at([0], BLOCK),
                "{kind}, {layer:?}"
            );
            assert!(seen.of(&files[1]).is_empty(), "{kind}, {layer:?}");
        }
    }
}

#[test]
fn loop_only_reads_or_only_writes() {
    for kind in KINDS {
        for layer in LAYERS {
            let Some(fs) = scratch(kind) else { return };
            let (file, other) = (fs.path().join("file"), fs.path().join("other"));
            let mut actor = Actor::new();
            actor.act(&format!("open d rwd {}", plain_file(&file, MIB)));
            actor.act(&format!("open f rw {}", plain_file(&other, MIB)));
            actor.act("random f");
            for (reads, writes) in [(true, false), (false, true)] {
                let options = TraceOptions {
                    reads,
                    writes,
                    ..options(layer, fs.path())
                };
                let watch = Watch::start(&options);
                let at = if reads { 65_536 } else { 131_072 };
                actor.acts(&format!(
                    "pread d 0 4096\npwrite d 4096 4096\npread f {at} 4096\npwrite f 8192 4096\nfsync f"
                ));
                let seen = watch.finish();
                let expected = if reads {
                    [reads_at([0], BLOCK), reads_at([at], BLOCK)]
                } else {
                    [writes_at([4096], BLOCK), writes_at([8192], BLOCK)]
                };
                assert_eq!(
                    [seen.of(&file), seen.of(&other)],
                    expected,
                    "{kind}, {layer:?}"
                );
            }
        }
    }
}

#[test]
fn loop_written_back_for_a_process() {
    for kind in KINDS {
        let Some(fs) = scratch(kind) else { return };
        let (file, other) = (fs.path().join("file"), fs.path().join("other"));
        let mut actors = [Actor::new(), Actor::new()];
        actors[0].act(&format!("open f cw {}", name(&file)));
        actors[1].act(&format!("open f cw {}", name(&other)));
        let first = actors[0].pid();
        let watch = Watch::start(&with(Layer::Fs, &fs, |filter| filter.pids = vec![first]));
        for actor in &mut actors {
            actor.act("pwrite f 0 65536");
        }
        // By neither of them.
        fs.sync().unwrap();
        let seen = watch.finish();
        assert_eq!(seen.of(&file), writes_at([0], 65_536), "{kind}");
        assert_eq!(seen.touched(), 1, "{kind}");
    }
}
