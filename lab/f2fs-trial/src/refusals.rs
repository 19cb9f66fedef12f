//! Each kind of unmovable file or range is refused with an error of its own, and
//! nothing is modified.

use std::{
    fs::{self, File},
    io::Write,
    os::fd::AsFd,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use linux_abi::f2fs::offload::{Flags, MAX_RANGES, Range, Status, offload, query};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::file::{BLOCK, Known};

/// Run in a folder of the file system; `elsewhere` is one of another file system.
pub(crate) fn run(folder: &Path, elsewhere: &Path) -> Result<()> {
    let [file, _] = Known::fragmented(folder, [1, 2], 64, 4)?;
    let before = file.fragments()?;
    calls(&file, elsewhere).context("calls as a whole")?;
    ranges(&file, folder, elsewhere).context("ranges")?;
    let expected = (before, 64);
    ensure!((file.fragments()?, file.blocks()) == expected);
    file.check_on_device()?;
    deleted(folder).context("a deleted file")?;
    atomic(folder).context("a file that is written atomically")?;
    Ok(())
}

fn is<T: std::fmt::Debug>(result: std::io::Result<T>, wanted: Errno) -> Result<()> {
    match &result {
        Err(error) if Errno::from_io_error(error) == Some(wanted) => Ok(()),
        _ => anyhow::bail!("{result:?} instead of {wanted:?}"),
    }
}

fn calls(file: &Known, elsewhere: &Path) -> Result<()> {
    let call = |ranges: &[Range<'_>], flags| offload(&file.file, ranges, flags);
    let bits = Flags::from_bits_retain;
    is(call(&[file.whole()], bits(0x20)), Errno::INVAL)?;
    is(call(&[file.whole()], bits(1 << 31)), Errno::INVAL)?;
    is(query(&file.file, bits(0x20)), Errno::INVAL)?;
    let many = vec![file.whole(); MAX_RANGES + 1];
    is(call(&many, Flags::empty()), Errno::TOOBIG)?;
    let no_way = Flags::NO_IN_DEVICE | Flags::NO_COPY | Flags::NO_HOST;
    is(call(&[file.whole()], no_way), Errno::OPNOTSUPP)?;
    // An empty request is no error.
    ensure!(call(&[], Flags::CHECKPOINT)?.ranges.is_empty());

    // A descriptor without any access.
    let path = rustix::fs::open(&file.path, OFlags::PATH, Mode::empty())?;
    let range = Range {
        file: path.as_fd(),
        ..file.whole()
    };
    is(call(&[file.whole(), range], Flags::empty()), Errno::BADF)?;

    // Another file system does not know the ioctl.
    is(query(File::open(elsewhere)?, Flags::empty()), Errno::NOTTY)?;

    // Without CAP_SYS_ADMIN: another user's thread.
    let refused = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(1000))?;
            call(&[file.whole()], Flags::empty())
        });
        other.join().expect("it does not panic")
    });
    is(refused, Errno::PERM)
}

fn ranges(file: &Known, folder: &Path, elsewhere: &Path) -> Result<()> {
    let inline = folder.join("inline");
    File::create(&inline)?.write_all(b"a few bytes")?;
    let inline = File::open(&inline)?;
    let directory = File::open(folder)?;
    let foreign = elsewhere.join("foreign");
    fs::write(&foreign, vec![1; BLOCK as usize])?;
    let foreign = File::open(foreign)?;
    let for_writing = File::options().write(true).open(&file.path)?;
    let of = |file, start, len| Range { file, start, len };
    let own = file.file.as_fd();
    let cases = [
        (of(directory.as_fd(), 0, BLOCK), Status::NotRegular),
        (of(for_writing.as_fd(), 0, BLOCK), Status::NotRegular),
        (of(foreign.as_fd(), 0, BLOCK), Status::OtherFs),
        (of(inline.as_fd(), 0, BLOCK), Status::Inline),
        (of(own, 0, 0), Status::Range),
        (of(own, 1, BLOCK), Status::Range),
        (of(own, 0, BLOCK + 512), Status::Range),
        (of(own, 0, 65 * BLOCK), Status::Range),
        (of(own, 64 * BLOCK, BLOCK), Status::Range),
        (of(own, u64::MAX - BLOCK + 1, BLOCK), Status::Range),
        (of(own, BLOCK, u64::MAX - BLOCK + 1), Status::Range),
        (of(own, 1 << 63, BLOCK), Status::Range),
        (of(own, 0, BLOCK), Status::Contiguous),
    ];
    let ranges: Vec<Range<'_>> = cases.iter().map(|(range, _)| *range).collect();
    let report = offload(&directory, &ranges, Flags::empty())?;
    for ((range, wanted), outcome) in cases.iter().zip(&report.ranges) {
        ensure!(
            outcome.status == *wanted && outcome.moved == 0,
            "{range:?}: {outcome:?} instead of {wanted:?}"
        );
    }
    ensure!(report.commands == 0 && report.bus_bytes == 0);
    Ok(())
}

fn deleted(folder: &Path) -> Result<()> {
    let [file, _] = Known::fragmented(folder, [3, 4], 32, 4)?;
    fs::remove_file(&file.path)?;
    let report = file.relocate(Flags::empty())?;
    ensure!(report.ranges[0].status == Status::Changed, "{report:?}");
    Ok(())
}

fn atomic(folder: &Path) -> Result<()> {
    let [file, _] = Known::fragmented(folder, [5, 6], 32, 4)?;
    linux_abi::f2fs::start_atomic_write(&file.file)?;
    let report = file.relocate(Flags::empty())?;
    ensure!(report.ranges[0].status == Status::Atomic, "{report:?}");
    Ok(())
}

/// Files that were made unmovable elsewhere: each path with its status's name.
pub(crate) fn refused(cases: &[&str]) -> Result<()> {
    for case in cases {
        let (path, wanted) = case.split_once('=').context("PATH=STATUS")?;
        let file = File::open(path).with_context(|| path.to_owned())?;
        let range = Range {
            file: file.as_fd(),
            start: 0,
            len: BLOCK,
        };
        let report = offload(&file, &[range], Flags::empty())?;
        let said = format!("{:?}", report.ranges[0].status);
        ensure!(said == wanted, "{path}: {said} instead of {wanted}");
    }
    Ok(())
}

/// A file system that is mounted read-only.
pub(crate) fn read_only(folder: &Path) -> Result<()> {
    let file = File::open(folder)?;
    is(offload(&file, &[], Flags::empty()), Errno::ROFS)?;
    query(&file, Flags::empty())?;
    Ok(())
}
