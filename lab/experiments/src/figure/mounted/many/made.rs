//! The files of a workload, made by threads.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
};

use units::Bytes;
use workloads::{
    Numbers,
    ffsb::Ffsb,
    filebench::{Ageing, Oltp, Op, Personality},
};

use super::{
    super::{
        super::scaledefrag::{FFSB_THREADS, OLTP_FILES, Workload},
        ground::Failed,
    },
    setup::Sizes,
};
use crate::ageing::{Carrying, Writes, age, age_by};

/// Makes the files of a workload in the folder `aged`.
pub(super) fn make(sizes: &Sizes, workload: Workload, aged: &Path) -> Result<(), Failed> {
    let carrying = Carrying {
        writes: Writes::Cached,
        write_back: Some(sizes.write_back),
    };
    let filebench = |personality, mean_bytes: Bytes| Ageing {
        personality,
        files: (sizes.data.0 / mean_bytes.0) as usize,
        mean_bytes: mean_bytes.0,
        rounds: sizes.rounds,
        // They change no place.
        reads_percent: 0,
        seed: sizes.seed,
    };
    let data = sizes.data.0;
    match workload {
        Workload::Varmail => {
            let ageing = filebench(Personality::Varmail, sizes.varmail_file);
            age(ageing, carrying, aged)?;
        }
        Workload::Fileserver => {
            let ageing = filebench(Personality::Fileserver, sizes.fileserver_file);
            age(ageing, carrying, aged)?;
        }
        Workload::Ffsb => {
            let ffsb = Ffsb::new(FFSB_THREADS, data, sizes.ffsb_append.0, sizes.seed);
            age_by(FFSB_THREADS, one_by_one(ffsb, Ffsb::next), carrying, aged)?;
        }
        Workload::Oltp => {
            let oltp = Oltp::new(OLTP_FILES as usize, data / OLTP_FILES);
            let threads = OLTP_FILES as usize;
            age_by(threads, one_by_one(oltp, Oltp::next), carrying, aged)?;
        }
    }
    Ok(())
}

/// The next operation of a thread, by what all threads share.
fn one_by_one<T: Send>(
    shared: T,
    next: fn(&mut T, usize) -> Option<Op>,
) -> impl Fn(usize) -> Option<Op> + Sync {
    let shared = Mutex::new(shared);
    move |thread| {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        next(&mut shared, thread)
    }
}

/// A file in one piece, of contents that do not compress.
pub(super) fn make_contiguous(path: &Path, size: Bytes, seed: u64) -> Result<(), Failed> {
    let mut contents = vec![0; size.0 as usize];
    Numbers::new(seed).fill(&mut contents);
    let mut file = File::create_new(path)?;
    file.write_all(&contents)?;
    file.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use scratch_fs::{ScratchFs, require};

    use super::{
        super::super::{
            super::source::Figure,
            files::{Places, files_of},
        },
        *,
    };

    #[test]
    fn loop_threads_make_the_files_of_every_workload_and_some_are_in_pieces() {
        let figure = Figure::load(source_tree::root(), "scaledefrag/fig10-mounted").unwrap();
        let data = Bytes::mib(4);
        let sizes = Sizes {
            data,
            write_back: Bytes::kib(400),
            ..Sizes::new(&figure.parameters).unwrap()
        };
        let scratch = require(ScratchFs::builder("ext4", Bytes::mib(128)).build());
        let Some(scratch) = scratch else {
            return;
        };
        let mut in_pieces = 0;
        for workload in Workload::ALL {
            let folder = scratch.path().join(workload.name());
            make(&sizes, workload, &folder).unwrap();
            let places = Places::of(&files_of(&folder).unwrap()).unwrap();
            // FFSB fills up to the data, and ends with a file of 8 MiB where that comes.
            let bytes = places.bytes();
            let name = workload.name();
            assert!(bytes >= Bytes(data.0 * 3 / 4), "{name}: {bytes}");
            assert!(bytes <= Bytes(data.0 * 2 + (8 << 20)), "{name}: {bytes}");
            in_pieces += places.fragmented();
        }
        assert!(in_pieces > 0);
        let load = scratch.path().join("load");
        make_contiguous(&load, Bytes::mib(1), 1).unwrap();
        assert_eq!(load.metadata().unwrap().len(), 1 << 20);
        assert!(
            make_contiguous(&load, Bytes::mib(1), 1).is_err(),
            "it is there"
        );
    }
}
