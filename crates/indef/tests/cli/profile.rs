//! `indef profile` from end to end.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    time::SystemTime,
};

use crate::common::run;
use indef_core::access::Observed;
use indef_trace::{
    FileKey, Tally,
    store::{SessionInfo, Store, StoreOptions},
};
use scratch_fs::{ScratchFs, require};
use units::{Bytes, FileRange};

/// Runs indef with arguments of several types.
macro_rules! indef {
    ($($argument:expr),* $(,)?) => {
        run([$(std::ffi::OsString::from($argument)),*])
    };
}

/// A trace of strace over an existing file.
fn trace(file: &Path) -> String {
    let mut text = format!(
        "9 openat(AT_FDCWD, \"{}\", O_RDONLY|O_DIRECT) = 3\n",
        file.display()
    );
    for i in 0..10 {
        text += &format!("9 pread64(3, \"x\"..., 4096, {}) = 4096\n", i % 4 * 65_536);
    }
    text + "9 what is this\n9 read(7, \"x\", 1) = 1\n"
}

#[test]
fn a_trace_becomes_a_profile_and_comes_out_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("data"), vec![1; 300_000]).unwrap();
    fs::write(at("trace"), trace(&at("data"))).unwrap();

    let ran = indef!("profile", "import", at("store"), at("trace"));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("10 accesses of 1 file"), "{ran:?}");
    assert!(
        ran.err
            .contains("1 line not understood, first: line 12: 9 what is this"),
        "{ran:?}"
    );
    assert!(ran.err.contains("1 access left out"), "{ran:?}");

    let ran = indef!("profile", "show", "--json", at("store"));
    let shown = ran.json();
    assert_eq!(
        (&shown["schema"], &shown["kind"]),
        (&1.into(), &"store".into())
    );
    assert_eq!(shown["totals"]["reads"], 10);
    assert_eq!(shown["totals"]["ranges"], 4);
    let inode = fs::metadata(at("data")).unwrap().ino();
    assert_eq!(shown["files"][0]["inode"], inode);
    assert_eq!(shown["sessions"][0]["layer"], "syscall");
    let text = indef!("profile", "show", at("store"));
    assert!(
        text.out.contains("10 reads") && text.out.contains("data"),
        "{text:?}"
    );
    assert!(text.out.contains("halved every 7days"), "{text:?}");

    for format in ["lines", "csv"] {
        let ran = indef!(
            "profile",
            "export",
            "--json",
            at("store"),
            "-o",
            at(format),
            "--format",
            format
        );
        assert_eq!(
            (ran.status, &ran.json()["ranges"]),
            (0, &4.into()),
            "{ran:?}"
        );
        let plain = indef!("profile", "export", at("store"), "--format", format);
        assert_eq!(plain.out, fs::read_to_string(at(format)).unwrap());
        let again = at(&format!("store of {format}"));
        let ran = indef!(
            "profile",
            "import",
            "--json",
            &again,
            at(format),
            "--half-life",
            "0s"
        );
        assert_eq!(ran.json()["format"], format);
        let one = indef!("profile", "export", &again).out;
        assert_eq!(one, indef!("profile", "export", at("store")).out);
    }
    // Lines can be shown and planned from without a store.
    let lines = indef!("profile", "show", "--json", at("lines")).json();
    assert_eq!(
        (&lines["kind"], &lines["totals"]["reads"]),
        (&"lines".into(), &10.into())
    );

    let ran = indef!(
        "profile",
        "merge",
        at("all"),
        at("store"),
        at("store of csv")
    );
    assert_eq!(ran.status, 0, "{ran:?}");
    let all = indef!("profile", "show", "--json", at("all")).json();
    assert_eq!(all["totals"]["reads"], 20);
    assert_eq!(all["sessions"].as_array().unwrap().len(), 2);
}

/// A sampled session tells how exact its counts are: single choices and what all of them share, together.
#[test]
fn a_sampled_profile_tells_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let now = SystemTime::now();
    let mut store = Store::create(&path, &StoreOptions::default()).unwrap();
    let key = FileKey {
        dev: 0,
        inode: 7,
        generation: 0,
        subvolume: 0,
    };
    let read = Tally {
        file: key,
        range: FileRange::new(0, 4096),
        reads: 10_000,
        writes: 0,
        observed: Observed::default(),
    };
    // Of 10,000 accesses, one in 17 was counted: 4 %. Beside that, 3 % for all: 5 %.
    for sampling in [None, Some((17.0, 0.03))] {
        let id = store.begin(&SessionInfo::default(), now).unwrap();
        store.add(id, &[], &[read], now).unwrap();
        if let Some((one_in, common)) = sampling {
            store.set_sampling(id, one_in, common).unwrap();
        }
        store.finish(id, 0, now).unwrap();
    }
    drop(store);
    let shown = indef!("profile", "show", "--json", &path).json();
    let sessions = &shown["sessions"];
    assert_eq!(sessions[0]["common_error"], 0.0);
    assert_eq!(sessions[1]["common_error"], 0.03);
    // 300 accesses of 20,000, and one in 9 on average.
    assert_eq!(shown["totals"]["common_error"], 0.015);
    let text = indef!("profile", "show", &path).out;
    assert!(text.contains("one of 100,000 within 1.7 %"), "{text}");
    let errors: Vec<_> = text
        .lines()
        .filter(|line| line.contains("10,000"))
        .collect();
    assert!(
        errors[0].contains("5.0 %") && errors[1].trim_end().ends_with('-'),
        "{text}"
    );
}

/// Btrfs reads 4 MiB ahead.
#[test]
fn loop_an_import_models_the_read_ahead_of_the_device() {
    let Some(fs) = require(ScratchFs::builder("btrfs", Bytes::mib(512)).build()) else {
        return;
    };
    let file = fs.path().join("file");
    fs::write(&file, vec![1; 8 << 20]).unwrap();
    let mut text = format!("9 openat(AT_FDCWD, \"{}\", O_RDONLY) = 3\n", file.display());
    for at in (0..8 << 20).step_by(64 << 10) {
        text += &format!("9 pread64(3, \"x\"..., 65536, {at}) = 65536\n");
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("trace"), text).unwrap();
    let ranges = |store: &str, options: &[&str]| {
        let mut arguments = vec!["profile".into(), "import".into()];
        arguments.extend(options.iter().map(std::ffi::OsString::from));
        arguments.extend([at(store).into(), at("trace").into()]);
        let ran = run(arguments);
        assert_eq!(ran.status, 0, "{ran:?}");
        let shown = indef!("profile", "show", "--json", at(store)).json();
        shown["totals"]["ranges"].as_u64().unwrap()
    };
    assert_eq!(ranges("device", &[]), 2);
    assert_eq!(ranges("given", &["--readahead", "1MiB"]), 8);
}

#[test]
fn bad_input_is_one_line_that_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("text"), "neither this nor that\n").unwrap();
    fs::write(
        at("damaged"),
        [&b"SQLite format 3\0"[..], &[0; 200]].concat(),
    )
    .unwrap();
    fs::write(at("trace"), "read(3, \"x\", 1) = 1\n").unwrap();
    fs::write(at("blk"), "  7,0 0 1 0.000000001 12 D R 16 + 8 [cat]\n").unwrap();
    for (ran, what) in [
        (indef!("profile", "show", at("missing")), "no such file"),
        (
            indef!("profile", "show", at("text")),
            "not an indef profile",
        ),
        (indef!("profile", "show", at("damaged")), "damaged"),
        (indef!("profile", "export", at("text")), "no store"),
        (
            indef!("profile", "import", at("text"), at("trace")),
            "something else than a store",
        ),
        (
            indef!(
                "profile",
                "import",
                at("damaged"),
                at("trace"),
                "--format",
                "strace"
            ),
            "store",
        ),
        (
            indef!("profile", "import", at("new"), at("text")),
            "--format",
        ),
        (
            indef!("profile", "import", at("new"), at("missing")),
            "no such file",
        ),
        (indef!("profile", "import", at("new"), at("blk")), "--map"),
        (
            indef!(
                "profile",
                "import",
                at("new"),
                at("text"),
                "--format",
                "fio"
            ),
            "no fio trace",
        ),
        (
            indef!("profile", "merge", at("new"), at("text")),
            "profile import",
        ),
        (
            indef!("profile", "merge", at("damaged"), at("damaged")),
            "into itself",
        ),
    ] {
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.error_line(what);
        assert!(ran.out.is_empty(), "{ran:?}");
    }
    assert_eq!(fs::read(at("text")).unwrap(), b"neither this nor that\n");
    // A trace in which no access has a place is an error, after the notes with
    // the reason.
    let ran = indef!("profile", "import", at("new"), at("trace"));
    assert_eq!(ran.status, 1);
    assert!(
        ran.err.contains("left out") && ran.err.contains("no accesses found"),
        "{ran:?}"
    );
}

#[test]
fn a_store_of_another_version_is_told_from_a_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fs::write(dir.path().join("data"), "x").unwrap();
    let text = dir.path().join("trace");
    fs::write(&text, trace(&dir.path().join("data"))).unwrap();
    assert_eq!(indef!("profile", "import", &store, &text).status, 0);
    // user_version stands at byte 60 (SQLite file format, §1.3).
    let mut bytes = fs::read(&store).unwrap();
    bytes[60..64].copy_from_slice(&9_u32.to_be_bytes());
    fs::write(&store, &bytes).unwrap();
    indef!("profile", "show", &store).error_line("format 9");
    assert_eq!(fs::read(&store).unwrap(), bytes);
}

/// Requests to a device find the file that lies there.
#[test]
fn loop_blkparse_finds_the_file_of_a_request() {
    for kind in ["ext4", "xfs"] {
        let Some(fs) = require(ScratchFs::builder(kind, Bytes::mib(512)).build()) else {
            continue;
        };
        let path = fs.path().join("data");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let extents = indef_fs::map(
            &File::open(&path).unwrap(),
            &path,
            units::FileRange::new(0, 1 << 20),
            true,
            &mut indef_fs::Mapper::default(),
        )
        .unwrap();
        let dev = fs::metadata(&path).unwrap().dev();
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let sector = extents.extents()[0].phys.0 / 512 + 64;
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("blk");
        let lines = format!(
            "  {major},{minor} 0 1 0.000000001 12 D R {sector} + 16 [cat]\n  {major},{minor} 0 2 0.1 12 D R 2 + 2 [mount]\n"
        );
        fs::write(&text, lines).unwrap();
        let store = dir.path().join("store");
        let ran = indef!(
            "profile",
            "import",
            "--json",
            &store,
            &text,
            "--map",
            fs.path()
        );
        let said = ran.json();
        assert_eq!(
            (&said["layer"], &said["accesses"]),
            (&"fs".into(), &1.into()),
            "{ran:?}"
        );
        assert_eq!(said["accesses_unplaced"], 1);
        let out = indef!("profile", "export", &store).out;
        assert!(
            out.contains(" 32768 8192 reads=1 writes=0"),
            "{kind}: {out}"
        );
        assert!(
            out.contains(&format!(" {}", path.display())),
            "{kind}: {out}"
        );
    }
    let Some(fs) = require(ScratchFs::builder("btrfs", Bytes::mib(512)).build()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("blk");
    fs::write(&text, "  7,0 0 1 0.000000001 12 D R 16 + 8 [cat]\n").unwrap();
    indef!(
        "profile",
        "import",
        dir.path().join("s"),
        &text,
        "--map",
        fs.path()
    )
    .error_line("Btrfs");
}
