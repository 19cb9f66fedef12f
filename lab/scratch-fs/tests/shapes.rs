//! Files really come out as asked, on every file system that this machine can mount.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    process::{Command, Stdio},
    time::Duration,
};

use scratch_fs::{
    FragmentOptions, ScratchError, ScratchFs, Segment, Shape, fragment, fragments, reflink,
    require, verify,
};
use units::{Bytes, FileRange};

fn each_file_system(size: Bytes, test: impl Fn(&ScratchFs)) {
    for kind in ["ext4", "xfs", "btrfs"] {
        if let Some(fs) = require(ScratchFs::builder(kind, size).build()) {
            test(&fs);
        }
    }
}

#[test]
fn loop_fragment_makes_the_asked_number_of_fragments() {
    each_file_system(Bytes::mib(400), |fs| {
        for (size, piece, wanted) in [
            (Bytes::mib(4), Bytes::kib(4), 1024),
            (Bytes(100_001), Bytes::kib(4), 25),
            (Bytes::mib(16), Bytes::kib(64), 256),
            (Bytes::mib(8), Bytes::mib(1), 8),
            (Bytes::mib(2), Bytes::mib(2), 1),
            (Bytes::ZERO, Bytes::kib(4), 0),
        ] {
            let path = fs.path().join(format!("f-{size}-{piece}"));
            fragment(
                &path,
                FragmentOptions {
                    size,
                    piece,
                    seed: 42,
                },
            )
            .unwrap_or_else(|error| panic!("{}: {error}", fs.kind()));
            let file = File::open(&path).unwrap();
            assert_eq!(fragments(&file).unwrap(), wanted, "{} {size}", fs.kind());
            assert_eq!(file.metadata().unwrap().len(), size.get());
            verify(&file, 42, FileRange::new(0, size.get())).unwrap();
        }
        let names: Vec<_> = std::fs::read_dir(fs.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name.to_string_lossy().contains("dummy"))
            .collect();
        assert!(names.is_empty(), "{names:?}");
    });
}

#[test]
fn loop_fragment_works_in_fragmented_free_space() {
    each_file_system(Bytes::mib(800), |fs| {
        let start = std::time::Instant::now();
        for i in 0..150 {
            let options = FragmentOptions {
                size: Bytes::mib(1),
                piece: Bytes::kib([4, 8, 64, 256][i % 4]),
                seed: i as u64,
            };
            fragment(&fs.path().join(format!("f{i}")), options)
                .unwrap_or_else(|error| panic!("{}: {error}", fs.kind()));
        }
        eprintln!("{}: 150 files {:?}", fs.kind(), start.elapsed());
    });
}

#[test]
fn loop_fragment_makes_65536_fragments() {
    each_file_system(Bytes::mib(1024), |fs| {
        let path = fs.path().join("many");
        let options = FragmentOptions {
            size: Bytes::mib(256),
            piece: Bytes::kib(4),
            seed: 1,
        };
        let start = std::time::Instant::now();
        fragment(&path, options).unwrap_or_else(|error| panic!("{}: {error}", fs.kind()));
        eprintln!("{}: {:?}", fs.kind(), start.elapsed());
        assert_eq!(fragments(&File::open(&path).unwrap()).unwrap(), 65_536);
    });
}

#[test]
fn loop_shapes_have_holes_unwritten_ranges_and_the_right_content() {
    each_file_system(Bytes::mib(400), |fs| {
        let path = fs.path().join("mixed");
        let shape = Shape::new(3)
            .with(Segment::Data {
                len: Bytes::kib(64),
                piece: Bytes::kib(4),
            })
            .with(Segment::Hole(Bytes::kib(64)))
            .with(Segment::Unwritten {
                len: Bytes::kib(64),
                piece: Bytes::kib(16),
            })
            .repeated(3);
        shape.make(&path).unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(fragments(&file).unwrap(), 3 * 20);
        // ext4 counts the blocks of the extent tree, too.
        let allocated = file.metadata().unwrap().blocks() * 512 / 1024;
        assert!((384..400).contains(&allocated), "{allocated} KiB");
        for k in 0..3 {
            verify(&file, 3, FileRange::new(k * 192 * 1024, 64 * 1024)).unwrap();
        }
        let huge = fs.path().join("huge");
        let data = Segment::Data {
            len: Bytes::kib(64),
            piece: Bytes::kib(16),
        };
        Shape::new(4)
            .with(data)
            .with(Segment::Hole(Bytes::gib(1024)))
            .with(data)
            .make(&huge)
            .unwrap();
        assert_eq!(fragments(&File::open(&huge).unwrap()).unwrap(), 8);
        let half = fs.path().join("half");
        Shape::half_contiguous(5, Bytes::mib(8))
            .make(&half)
            .unwrap();
        assert_eq!(fragments(&File::open(&half).unwrap()).unwrap(), 32 * 33);
        if fs.kind() != "ext4" {
            let copy = fs.path().join("copy");
            reflink(&half, &copy).unwrap();
            verify(
                &File::open(&copy).unwrap(),
                5,
                FileRange::new(0, Bytes::mib(8).get()),
            )
            .unwrap();
        }
    });
}

#[test]
fn loop_the_device_counts_its_bytes() {
    each_file_system(Bytes::mib(400), |fs| {
        let before = fs.device_bytes().unwrap();
        fragment(
            &fs.path().join("f"),
            FragmentOptions {
                size: Bytes::mib(8),
                piece: Bytes::mib(1),
                seed: 0,
            },
        )
        .unwrap();
        fs.sync().unwrap();
        let written = (fs.device_bytes().unwrap() - before).written;
        assert!(written >= Bytes::mib(8), "{written}");
        assert!(fs.free().unwrap() > Bytes::mib(100));
    });
}

#[test]
fn loop_a_disk_that_others_have_mounted_is_busy_and_not_damaged() {
    let made = ScratchFs::builder("ext4", Bytes::mib(16))
        .patience(Duration::ZERO)
        .build();
    let Some(mut fs) = require(made) else {
        return;
    };
    // A copy of the mount, until the holder's input ends.
    let mut holder = Command::new("unshare")
        .args(["--mount", "--propagation=private"])
        .args(["sh", "-c", "echo held; read _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut output = BufReader::new(holder.stdout.take().unwrap());
    output.read_line(&mut said).unwrap();
    assert_eq!(said, "held\n");
    let held = fs.fsck();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    match held {
        Err(ScratchError::Busy { device }) => assert_eq!(device, fs.device()),
        other => panic!("{other:?}"),
    }
    assert!(fs.path().join("lost+found").exists(), "mounted again");
}
