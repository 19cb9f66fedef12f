//! The real planner (`indef-core`) on the files of a volume.

use std::{path::PathBuf, sync::Arc};

use indef_core::{
    access::AccessRange,
    layout::Layout,
    plan::{FileFacts, FilePlan, PlanOptions, plan_file, truncate_on},
};
use units::{Bytes, FileRange};

use crate::block::BLOCK;

/// The reads of a program that reads a file of this size from end to end, in requests of `io_size`: what a profile
/// of it counts.
#[must_use]
pub fn sequential_reads(size: Bytes, io_size: Bytes) -> Vec<AccessRange> {
    let starts = (0..size.0).step_by(io_size.0.max(1) as usize);
    starts
        .map(|start| AccessRange {
            range: FileRange::new(start, io_size.0.min(size.0 - start)),
            reads: 1,
            ..AccessRange::default()
        })
        .collect()
}

/// Plans files with the reads that they had; the plans are in the order of the files.
#[must_use]
pub fn plan<'a>(
    options: &PlanOptions,
    files: impl IntoIterator<Item = (&'a Layout, &'a [AccessRange])>,
) -> Vec<FilePlan> {
    let fs: Arc<str> = "lfs-sim".into();
    let mut plans: Vec<FilePlan> = files
        .into_iter()
        .enumerate()
        .map(|(number, (layout, accesses))| {
            let size = layout.extents().last().map_or(0, |last| last.file_end().0);
            let facts = FileFacts {
                size: Bytes(size),
                block_size: BLOCK,
                layout,
                accesses: Some(accesses),
            };
            FilePlan {
                path: PathBuf::from(format!("/{number:05}")),
                root_len: Some(1),
                dev: 0,
                inode: number as u64,
                born: None,
                size: facts.size,
                block_size: BLOCK,
                fs: Arc::clone(&fs),
                engine: None,
                extents_before: layout.fragments(),
                named: None,
                skip: None,
                chunks: plan_file(options, &facts),
            }
        })
        .collect();
    truncate_on(&mut plans, options, true);
    plans
}

#[cfg(test)]
mod tests {
    use indef_core::{
        layout::{Extent, ExtentFlags},
        plan::Policy,
    };
    use units::{FileOffset, PhysOffset};

    use super::*;

    #[test]
    fn the_planner_moves_the_fragmented_request_alone() {
        let kib = |n: u64| n << 10;
        let extent = |file, phys, len| Extent {
            file: FileOffset(kib(file)),
            phys: PhysOffset(kib(phys)),
            len: Bytes::kib(len),
            flags: ExtentFlags::empty(),
        };
        let layout = Layout::new(vec![
            extent(0, 0, 256),
            extent(256, 1024, 128),
            extent(384, 2048, 128),
        ]);
        let accesses = sequential_reads(Bytes::kib(512), Bytes::kib(256));
        let moved = |policy| {
            let options = PlanOptions {
                policy,
                truncate_pct: 0.0,
                ..PlanOptions::default()
            };
            let plans = plan(&options, [(&layout, accesses.as_slice())]);
            plans[0].runs()
        };
        let second = vec![FileRange::new(kib(256), kib(256))];
        assert_eq!(moved(Policy::Fragpicker), second);
        assert_eq!(moved(Policy::Indef), second);
        assert_eq!(moved(Policy::Whole), [FileRange::new(0, kib(512))]);
    }
}
