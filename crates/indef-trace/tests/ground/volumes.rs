//! File systems of many kinds: subvolumes, several devices, compression, large inode numbers, layers.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use indef_trace::collect::Layer;
use scratch_fs::{ScratchFs, require};
use tempfile::TempDir;
use units::Bytes;

use crate::{
    actor::Actor,
    harness::{
        BLOCK, KIB, MIB, Ranges, Seen, Watch, assert_once, forget, forget_all, name, options,
        plain_file, reads_at, run, scattered, scratch,
    },
};

const LAYERS: [Layer; 2] = [Layer::Fs, Layer::Syscall];

#[test]
fn loop_snapshots_have_the_same_numbers() {
    for layer in LAYERS {
        let Some(fs) = scratch("btrfs") else { return };
        let (one, two) = (fs.path().join("one"), fs.path().join("two"));
        run("btrfs", &["subvolume", "create", &name(&one)]);
        plain_file(&one.join("file"), MIB);
        run(
            "btrfs",
            &["subvolume", "snapshot", &name(&one), &name(&two)],
        );
        let (first, second) = (one.join("file"), two.join("file"));
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(&first), inode(&second));
        let mut actor = Actor::new();
        actor.act(&format!("open a rd {}", name(&first)));
        actor.act(&format!("open b rd {}", name(&second)));
        let watch = Watch::start(&options(layer, fs.path()));
        actor.acts("pread a 0 4096\npread b 8192 4096\npread a 4096 4096\npread b 8192 4096");
        let seen = watch.finish();
        assert_eq!(seen.of(&first), reads_at([0, 4096], BLOCK), "{layer:?}");
        assert_eq!(seen.of(&second), reads_at([8192, 8192], BLOCK), "{layer:?}");
        assert_eq!(seen.paths(), [first, second], "{layer:?}");
        // One of them alone.
        let watch = Watch::start(&options(layer, &two));
        actor.acts("pread a 0 4096\npread b 12288 4096");
        let seen = watch.finish();
        assert_eq!(seen.touched(), 1);
        assert_eq!(
            seen.of(two.join("file")),
            reads_at([12_288], BLOCK),
            "{layer:?}"
        );
    }
}

/// A loop device of its own.
struct Device {
    name: String,
    _dir: TempDir,
}

impl Device {
    fn new(size: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(size).unwrap();
        let name = run(
            "losetup",
            &["--show", "-f", "--direct-io=on", &name(&image)],
        );
        Self {
            name: name.trim().to_owned(),
            _dir: dir,
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.name]).status();
    }
}

#[test]
fn loop_btrfs_on_two_devices() {
    for profile in ["raid0", "raid1"] {
        // Dropped last: the file system uses it.
        if !rustix::process::geteuid().is_root() {
            return scratch_fs::skip("it needs root");
        }
        let second = Device::new(512 * MIB);
        let Some(mut fs) = scratch("btrfs") else {
            return;
        };
        run(
            "btrfs",
            &["device", "add", "-f", &second.name, &name(fs.path())],
        );
        let convert = format!("-dconvert={profile}");
        run(
            "btrfs",
            &[
                "balance",
                "start",
                &convert,
                "-mconvert=raid1",
                &name(fs.path()),
            ],
        );
        let file = fs.path().join("file");
        let text = plain_file(&file, 4 * MIB);
        forget_all(&mut fs);
        let mut actor = Actor::new();
        actor.act(&format!("open d rd {text}"));
        let watch = Watch::start(&options(Layer::Fs, fs.path()));
        let offsets = scattered(4 * MIB, 16 * KIB, 50);
        for at in &offsets {
            actor.act(&format!("pread d {at} 16384"));
        }
        let seen = watch.finish();
        assert_eq!(seen.of(&file), reads_at(offsets, 16 * KIB), "{profile}");
        let watch = Watch::start(&options(Layer::Fs, fs.path()));
        actor.act(&format!("run cat {text}"));
        let seen = watch.finish();
        assert_once(&seen.of(&file), 0, 4 * MIB);
        drop(actor);
        fs.unmount().unwrap();
    }
}

#[test]
fn loop_compressed_btrfs() {
    let builder = ScratchFs::builder("btrfs", Bytes::mib(512));
    let Some(fs) = require(builder.mount_options("compress-force=zstd").build()) else {
        return;
    };
    let file = fs.path().join("file");
    let mut actor = Actor::new();
    actor.act(&format!("open f crw {}", name(&file)));
    actor.acts("write f 1048576\nfsync f");
    forget(&file);
    let watch = Watch::start(&options(Layer::Fs, fs.path()));
    actor.act(&format!("run cat {}", name(&file)));
    let seen = watch.finish();
    // Extents are read into pages of their own: the window that asked for them counts.
    assert_once(&seen.of(&file), 0, MIB);
    let requests: u64 = seen.requests_of(&file).values().sum();
    assert!(
        (1..=8).contains(&requests),
        "{requests}: extents of 128 KiB"
    );
}

#[test]
fn loop_xfs_with_large_inode_numbers() {
    for layer in LAYERS {
        let Some(fs) = require(ScratchFs::builder("xfs", Bytes::gib(6 * 1024)).build()) else {
            return;
        };
        // Each new folder goes to the next allocation group.
        let large = (0..40).find_map(|n| {
            let folder = fs.path().join(format!("folder {n}"));
            fs::create_dir(&folder).unwrap();
            let large = fs::metadata(&folder).unwrap().ino() > u64::from(u32::MAX);
            large.then_some(folder)
        });
        let plain = fs.path().join("large");
        fs::rename(large.expect("a group after the first TiB"), &plain).unwrap();
        let file = plain.join("file");
        let text = plain_file(&file, MIB);
        assert!(fs::metadata(&file).unwrap().ino() > u64::from(u32::MAX));
        let mut actor = Actor::new();
        actor.act(&format!("open d rd {text}"));
        let watch = Watch::start(&options(layer, fs.path()));
        actor.act("pread d 4096 8192");
        let seen = watch.finish();
        assert_eq!(seen.of(&file), reads_at([4096], 8192));
        assert_eq!(seen.paths(), [file]);
    }
}

/// A mount that is undone.
struct Overlay(std::path::PathBuf);

impl Overlay {
    /// Mount one at `point`.
    fn mount(lower: &Path, upper: &Path, work: &Path, point: &Path) -> Self {
        let with = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let arguments = ["-t", "overlay", "overlay", "-o", &with, &name(point)];
        run("mount", &arguments);
        Self(point.to_owned())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn loop_overlays_as_containers_have_them() {
    for layer in LAYERS {
        let Some(fs) = scratch("ext4") else { return };
        let [lower, upper, work, merged] =
            ["lower", "upper", "work", "merged"].map(|word| fs.path().join(word));
        for folder in [&lower, &upper, &work, &merged] {
            fs::create_dir(folder).unwrap();
        }
        plain_file(&lower.join("file"), MIB);
        plain_file(&upper.join("above"), MIB);
        let _mounted = Overlay::mount(&lower, &upper, &work, &merged);
        let mut actor = Actor::new();
        actor.act(&format!("open a rd {}", name(&merged.join("file"))));
        actor.act(&format!("open b r {}", name(&merged.join("above"))));
        actor.act("random b");
        let watch = Watch::start(&options(layer, fs.path()));
        actor.acts("pread a 0 4096\npread b 8192 4096");
        let seen = watch.finish();
        assert_eq!(
            seen.of(lower.join("file")),
            reads_at([0], BLOCK),
            "{layer:?}"
        );
        assert_eq!(
            seen.of(upper.join("above")),
            reads_at([8192], BLOCK),
            "{layer:?}"
        );
        assert_eq!(seen.touched(), 2, "{layer:?}");
        drop(actor);
    }
}

/// An overlay on its own lower folder, as read-only images are made writable; then below one more mount, which hides the other
/// layer.
#[test]
fn loop_overlays_that_cover_their_own_layers() {
    for layer in LAYERS {
        let Some(fs) = scratch("ext4") else { return };
        let [data, upper, work, foreign] =
            ["data", "upper", "work", "foreign"].map(|word| fs.path().join(word));
        for folder in [&data, &upper, &work, &foreign] {
            fs::create_dir(folder).unwrap();
        }
        plain_file(&foreign.join("file"), MIB);
        let lower = data.join("folder");
        fs::create_dir(&lower).unwrap();
        plain_file(&lower.join("file"), MIB);
        plain_file(&upper.join("above"), MIB);
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let (low, high) = (inode(&lower.join("file")), inode(&upper.join("above")));
        let _overlay = Overlay::mount(&data, &upper, &work, &data);
        // What covers a layer is no part of the overlay.
        run("mount", &["--bind", &name(&foreign), &name(&upper)]);
        let _above = Overlay(upper.clone());
        let mut actor = Actor::new();
        actor.act(&format!("open c rd {}", name(&upper.join("file"))));
        actor.act(&format!("open a rd {}", name(&lower.join("file"))));
        actor.act(&format!("open b r {}", name(&data.join("above"))));
        actor.act("random b");
        let expected =
            BTreeMap::from([(low, reads_at([0], BLOCK)), (high, reads_at([8192], BLOCK))]);
        // All of it, and then a folder of the lower layer alone.
        let watch = Watch::start(&options(layer, &data));
        assert!(watch.hidden_layers().is_empty());
        actor.acts("pread a 0 4096\npread b 8192 4096\npread c 0 4096");
        assert_eq!(by_inode(&watch.finish()), expected, "{layer:?}");
        let watch = Watch::start(&options(layer, &lower));
        actor.acts("pread a 4096 4096\npread b 4096 4096");
        let expected = BTreeMap::from([(low, reads_at([4096], BLOCK))]);
        assert_eq!(by_inode(&watch.finish()), expected, "{layer:?}");
        drop(actor);
    }
}

fn by_inode(seen: &Seen) -> BTreeMap<u64, Ranges> {
    let files = seen.all();
    files
        .map(|(key, ranges)| (key.inode, ranges.clone()))
        .collect()
}

/// A file system that is covered where it is mounted, by an overlay: it is seen where it is mounted as well, and if it is nowhere,
/// that is told.
#[test]
fn loop_overlays_that_cover_a_file_system() {
    let Some(lower) = scratch("ext4") else { return };
    let Some(other) = scratch("ext4") else { return };
    let [upper, work, again] = ["upper", "work", "again"].map(|word| other.path().join(word));
    for folder in [&upper, &work, &again] {
        fs::create_dir(folder).unwrap();
    }
    let file = lower.path().join("file");
    plain_file(&file, MIB);
    let inode = fs::metadata(&file).unwrap().ino();
    run("mount", &["--bind", &name(lower.path()), &name(&again)]);
    let bind = Overlay(again);
    let overlay = Overlay::mount(lower.path(), &upper, &work, lower.path());
    let mut actor = Actor::new();
    actor.act(&format!("open a rd {}", name(&file)));
    let watch = Watch::start(&options(Layer::Fs, lower.path()));
    actor.acts("pread a 0 4096");
    let expected = BTreeMap::from([(inode, reads_at([0], BLOCK))]);
    assert_eq!(by_inode(&watch.finish()), expected);
    drop(bind);
    let watch = Watch::start(&options(Layer::Fs, lower.path()));
    assert_eq!(watch.hidden_layers(), [lower.path()]);
    watch.finish();
    drop(actor);
    drop(overlay);
}
