//! Weights from the times in a profile, and their effect on the order in which ranges are worth
//! moving.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use indef_core::{
    access::{AccessRange, Unseen},
    calibrate::{Calibration, CannotCalibrate, Reads, Sample, Weights, calibrate},
    layout::{Geometry, Layout},
    plan::{Chunk, FileFacts, PlanOptions, Policy, Ranking, Weight, plan_file},
};
use indef_engine::Cancel;
use indef_fs::{Mapper, TargetId};
use units::{Bytes, FileRange};

use crate::{
    geometry::Geometries,
    heat::Accesses,
    opened::Opened,
    sync::{into_inner, lock},
};

/// Number of ranges shown whose rank changed most.
const SHOWN: usize = 5;

/// Measure weights by the times of the profile.
///
/// From the [`samples`] of the profile.
///
/// # Errors
///
/// The reason for which there are none.
pub(crate) fn calibration(
    options: &PlanOptions,
    geometries: &Geometries,
    accesses: &Accesses,
    paths: &[PathBuf],
    jobs: usize,
    cancel: &Cancel,
) -> Result<Calibration, CannotCalibrate> {
    calibrate(samples(options, geometries, accesses, paths, jobs, cancel))
}

/// The time of all reads of a range as it lies now: by their own mean where some were timed, else by
/// the weights.
pub(crate) fn reads_ns(
    weights: &Weights,
    access: &AccessRange,
    layout: &Layout,
    geometry: &Geometry,
    max_request: Bytes,
) -> f64 {
    let one = access.observed.mean_ns().unwrap_or_else(|| {
        let fragmentation = layout.measure(access.range, geometry, max_request);
        weights.read_ns(access.range.len, &fragmentation)
    });
    one * access.reads as f64
}

/// Reads and their time, summed up from many threads, and the files that they are of.
#[derive(Debug, Default)]
pub(crate) struct ReadTimes(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    reads: Reads,
    /// Those of ranges of which none was timed, where no weights tell their time.
    untimed: u64,
    files: HashSet<TargetId>,
}

impl ReadTimes {
    /// Add the reads of a file.
    pub(crate) fn add(
        &self,
        options: &PlanOptions,
        id: TargetId,
        layout: &Layout,
        accesses: &[AccessRange],
        unseen: Unseen,
    ) {
        let (geometry, most) = (&options.geometry, options.max_request);
        let (mut of_file, mut untimed) = (Reads::default(), 0_u64);
        for access in accesses {
            of_file.reads = of_file.reads.saturating_add(access.reads);
            match (&options.weight, access.observed.mean_ns()) {
                (Weight::Measured(weights), _) => {
                    of_file.now_ns += reads_ns(weights, access, layout, geometry, most);
                    let degrees = layout.measure(access.range, geometry, most);
                    of_file.excess_ns += weights.excess_ns(&degrees) * access.reads as f64;
                }
                (_, Some(mean_ns)) => of_file.now_ns += mean_ns * access.reads as f64,
                (_, None) => untimed = untimed.saturating_add(access.reads),
            }
        }
        // What is moved whether or not it was read is moved where it was not seen, too.
        if matches!(options.policy, Policy::Indef | Policy::Fragpicker) {
            let reads = of_file.reads as f64;
            of_file.unseen = unseen.part * reads;
            of_file.unseen_variance = unseen.variance * reads * reads;
        }
        let sums = &mut *lock(&self.0);
        sums.untimed = sums.untimed.saturating_add(untimed);
        let (files, sums) = (&mut sums.files, &mut sums.reads);
        sums.unseen += of_file.unseen;
        sums.unseen_variance += of_file.unseen_variance;
        sums.reads = sums.reads.saturating_add(of_file.reads);
        sums.now_ns += of_file.now_ns;
        sums.excess_ns += of_file.excess_ns;
        files.insert(id);
    }

    /// The sums, and the files. Reads of which nothing tells the time took as long as the others.
    pub(crate) fn into_sums(self) -> (Reads, HashSet<TargetId>) {
        let Sums {
            mut reads,
            untimed,
            files,
        } = into_inner(self.0);
        let timed = reads.reads.saturating_sub(untimed);
        reads.now_ns *= reads.reads as f64 / timed.max(1) as f64;
        (reads, files)
    }
}

/// The timed ranges of the profile on the devices that `paths` are on, planned or not.
pub(crate) fn samples(
    options: &PlanOptions,
    geometries: &Geometries,
    accesses: &Accesses,
    paths: &[PathBuf],
    jobs: usize,
    cancel: &Cancel,
) -> Vec<Sample> {
    let devices: HashSet<u64> = paths
        .iter()
        .filter_map(|path| fs::metadata(path).ok())
        .map(|status| status.dev())
        .collect();
    let timed: Vec<(TargetId, &Path)> = accesses
        .timed()
        .filter(|(id, _)| devices.contains(&id.dev))
        .map(|(id, path)| (*id, path))
        .collect();
    let samples = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mapper = Mapper::default();
        while let Some((id, path)) = timed.get(next.fetch_add(1, Ordering::Relaxed))
            && !cancel.is_cancelled()
        {
            // A file that cannot be examined is reported when it is planned.
            let layout =
                open_timed(path, *id).and_then(|file| file.map(file.whole(), false, &mut mapper));
            let (Some(layout), Some(ranges)) = (layout, accesses.of(id)) else {
                continue;
            };
            let geometry = geometries.of(id.dev);
            let of_file = ranges
                .iter()
                .filter_map(|access| Sample::of(&layout, access, &geometry, options.max_request));
            lock(&samples).extend(of_file);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(work);
        }
        work();
    });
    into_inner(samples)
}

/// Open a file of a profile, which may name it by a symbolic link: only the file with its number is
/// opened.
pub(crate) fn open_timed(path: &Path, id: TargetId) -> Option<Opened> {
    Opened::open(path, id).or_else(|| Opened::open(&path.canonicalize().ok()?, id))
}

/// A fragmented range with its value by both kinds of weights.
#[derive(Clone, Debug)]
pub struct Weighed {
    /// The file.
    pub path: Arc<Path>,
    /// The place in it.
    pub range: FileRange,
    /// Number of its reads.
    pub reads: u64,
    /// Its fragments.
    pub dolf: u64,
    /// Gain for each byte, by the paper's weights.
    pub paper: f64,
    /// The same by the measured ones.
    pub measured: f64,
}

/// Every fragmented range that was planned with measured weights, and its value by the paper's.
#[derive(Debug, Default)]
pub(crate) struct Rankings(Mutex<Vec<Weighed>>);

impl Rankings {
    /// Compare the chunks of a file, planned with `options`, with the chunks by the paper's
    /// weights.
    pub(crate) fn add(
        &self,
        options: &PlanOptions,
        facts: &FileFacts<'_>,
        path: &Path,
        chunks: &[Chunk],
    ) {
        let paper = PlanOptions {
            weight: Weight::Paper,
            ..options.clone()
        };
        let path: Arc<Path> = path.into();
        // The set of ranges does not depend on weights, except for neighbours without anything
        // worth moving, which may be joined.
        let by_paper = plan_file(&paper, facts);
        let mut by_paper = by_paper.iter().peekable();
        let mut weighed = lock(&self.0);
        for chunk in chunks {
            while by_paper
                .next_if(|p| p.range.start < chunk.range.start)
                .is_some()
            {}
            let Some(same) = by_paper.next_if(|p| p.range == chunk.range) else {
                continue;
            };
            if same.gain <= 0.0 && chunk.gain <= 0.0 {
                continue;
            }
            let bytes = chunk.cost.get().max(1) as f64;
            weighed.push(Weighed {
                path: path.clone(),
                range: chunk.range,
                reads: chunk.reads,
                dolf: chunk.dolf,
                paper: same.gain / bytes,
                measured: chunk.gain / bytes,
            });
        }
    }

    /// The comparison.
    pub(crate) fn compare(self) -> Comparison {
        let mut weighed = into_inner(self.0);
        // Files are met in any order.
        weighed.sort_by(|a, b| (&a.path, a.range.start).cmp(&(&b.path, b.range.start)));
        let pairs: Vec<_> = weighed.iter().map(|w| (w.paper, w.measured)).collect();
        Comparison {
            ranking: Ranking::of(&pairs, SHOWN),
            weighed,
        }
    }
}

/// The order of the same ranges by the paper's weights and by the measured ones.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Its indices lead to `weighed`.
    pub ranking: Ranking,
    /// Every fragmented range, by place.
    pub weighed: Vec<Weighed>,
}
