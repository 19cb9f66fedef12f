use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::{
    block::{Block, Full, Moved},
    files::FileId,
    log::{Log, LogMode, Owner, Shape, VictimPolicy},
};

const SHAPE: Shape = Shape {
    segment_blocks: 16,
    segments_per_section: 2,
    sections: 24,
};

/// Content of a block: a version of a file's block.
type Content = (FileId, u32, u32);

/// A volume beside a model of what its device holds.
struct Model {
    volume: Volume,
    /// The content of each block that was written.
    device: HashMap<Block, Content>,
    /// The version of each block of each file, as a reader has to find it.
    expected: BTreeMap<(FileId, u32), u32>,
    version: u32,
}

impl Model {
    fn new(volume: Volume) -> Self {
        Self {
            volume,
            device: HashMap::new(),
            expected: BTreeMap::new(),
            version: 0,
        }
    }

    fn write(&mut self, file: FileId, index: u32, len: u32) -> Result<(), Full> {
        let mut placed = Vec::new();
        self.version += 1;
        let result = self.volume.place(file, index, len, &mut placed);
        let blocks: Vec<Block> = placed.iter().flat_map(|it| it.run.blocks()).collect();
        for (index, block) in (index..).zip(blocks) {
            assert_eq!(self.volume.files().block(file, index), Some(block));
            self.device.insert(block, (file, index, self.version));
            self.expected.insert((file, index), self.version);
        }
        result
    }

    fn delete(&mut self, file: FileId) {
        self.volume.delete(file);
        self.expected.retain(|(of, _), _| *of != file);
    }

    /// The device copies: sources are read before any destination is written.
    fn copy(&mut self, moves: &[Moved]) {
        let contents: Vec<_> = moves
            .iter()
            .map(|it| self.device.get(&it.from).copied())
            .collect();
        for (moved, content) in moves.iter().zip(contents) {
            // A node or an entry of the directory has no content here.
            match content {
                Some(content) => self.device.insert(moved.to, content),
                None => self.device.remove(&moved.to),
            };
        }
    }

    fn relocate(&mut self, file: FileId, index: u32, len: u32) -> Result<(), Full> {
        let mut moves = Vec::new();
        let result = self.volume.relocate(file, index, len, &mut moves);
        self.copy(&moves);
        result
    }

    /// Cleans a section, and makes it free by a checkpoint. Zones lose their data then.
    fn clean(&mut self, policy: VictimPolicy) -> Result<bool, Full> {
        let Volume::Log(volume) = &mut self.volume else {
            return Ok(false);
        };
        let Some(segments) = volume.victim(policy) else {
            return Ok(false);
        };
        for segment in segments {
            let mut moves = Vec::new();
            let Volume::Log(volume) = &mut self.volume else {
                return Ok(false);
            };
            let result = volume.clean(segment, &mut Vec::new(), &mut moves);
            self.copy(&moves);
            result?;
        }
        self.checkpoint()?;
        Ok(true)
    }

    fn checkpoint(&mut self) -> Result<(), Full> {
        let Volume::Log(volume) = &mut self.volume else {
            return Ok(());
        };
        let mut placed = Vec::new();
        let checkpoint = volume.begin_checkpoint(&mut placed)?;
        let sections = volume.end_checkpoint(checkpoint);
        let freed = sections.into_iter().flat_map(|section| {
            let start = SHAPE.start_of(section).0;
            (start..start + SHAPE.section_blocks()).map(Block)
        });
        for block in placed.iter().flat_map(|it| it.run.blocks()).chain(freed) {
            self.device.remove(&block);
        }
        Ok(())
    }

    /// Every block of every file is mapped, holds its last version, and belongs to nobody else.
    fn check(&self) {
        let files = self.volume.files();
        let mut owners: HashMap<Block, (FileId, u32)> = HashMap::new();
        for file in self.volume.user_files() {
            for index in 0..files.blocks(file) {
                let Some(block) = files.block(file, index) else {
                    assert!(!self.expected.contains_key(&(file, index)));
                    continue;
                };
                assert_eq!(owners.insert(block, (file, index)), None, "{block:?}");
                let version = self.expected[&(file, index)];
                assert_eq!(self.device.get(&block), Some(&(file, index, version)));
                if let Volume::Log(volume) = &self.volume {
                    assert_eq!(
                        volume.space().owner(block),
                        Some(Owner::Data { file, index })
                    );
                }
            }
        }
        assert_eq!(owners.len(), self.expected.len());
        match &self.volume {
            Volume::Log(volume) => {
                let all: Vec<_> = (0..SHAPE.segments())
                    .flat_map(|segment| volume.space().valid(segment))
                    .collect();
                let of_users = |(_, owner): &(Block, Owner)| matches!(owner, Owner::Data { file, .. } if *file != volume.directory());
                assert_eq!(all.iter().filter(|it| of_users(it)).count(), owners.len());
                assert_eq!(all.len() as u32, volume.space().valid_blocks());
            }
            Volume::InPlace(volume) => {
                let taken = owners.len() as u32 + volume.preallocated_blocks();
                assert_eq!(volume.space().free_blocks(), SHAPE.blocks() - taken);
                assert!(owners.keys().all(|block| volume.space().is_taken(*block)));
            }
        }
    }
}

fn in_place(preallocation: bool) -> Volume {
    Volume::from(InPlaceVolume::new(SHAPE.blocks(), 128, preallocation))
}

#[test]
fn a_file_in_place_keeps_its_blocks_and_the_rest_of_its_window() {
    let mut volume = in_place(true);
    let (a, b) = (volume.create(), volume.create());
    let mut placed = Vec::new();
    for (file, index) in [(a, 0), (b, 0), (a, 1), (b, 1), (a, 0)] {
        volume.place(file, index, 1, &mut placed).unwrap();
    }
    let blocks: Vec<u32> = placed.iter().map(|it| it.run.start.0).collect();
    // Four blocks are kept for each.
    assert_eq!(blocks, [0, 4, 1, 5, 0]);
    assert_eq!(volume.layout(a).fragments(), 1);

    let mut volume = in_place(false);
    let (a, b) = (volume.create(), volume.create());
    for (file, index) in [(a, 0), (b, 0), (a, 1), (b, 1)] {
        volume.place(file, index, 1, &mut Vec::new()).unwrap();
    }
    assert_eq!(volume.layout(a).fragments(), 2);
}

#[test]
fn nodes_are_written_by_fsync_and_by_a_checkpoint() {
    let mut volume = LogVolume::new(SHAPE, LogMode::Lfs);
    let file = volume.create();
    volume.place(file, 0, 3, &mut Vec::new()).unwrap();
    let mut placed = Vec::new();
    volume.place_nodes(file, &mut placed).unwrap();
    let log_and_blocks =
        |placed: &[Placed]| -> Vec<_> { placed.iter().map(|it| (it.log, it.run.len)).collect() };
    assert_eq!(log_and_blocks(&placed), [(Some(Log::WarmNode), 1)]);
    placed.clear();
    let checkpoint = volume.begin_checkpoint(&mut placed).unwrap();
    // The file's entry, and the inode of the directory; the file's own is there already.
    let expected = [(Some(Log::HotData), 1), (Some(Log::HotNode), 1)];
    assert_eq!(log_and_blocks(&placed), expected);
    assert!(volume.end_checkpoint(checkpoint).is_empty());
    assert_eq!(volume.space().valid_blocks(), 3 + 1 + 2);
}

#[test]
fn relocated_blocks_are_contiguous_and_holes_stay() {
    for volume in [
        Volume::from(LogVolume::new(SHAPE, LogMode::Lfs)),
        in_place(false),
    ] {
        let mut model = Model::new(volume);
        let (a, b) = (model.volume.create(), model.volume.create());
        for index in [0, 1, 2, 5, 6, 7] {
            model.write(a, index, 1).unwrap();
            model.write(b, index, 1).unwrap();
        }
        assert_eq!(model.volume.layout(a).fragments(), 6);
        model.relocate(a, 0, 8).unwrap();
        // Two pieces, as there is a hole.
        assert_eq!(model.volume.layout(a).fragments(), 2);
        assert_eq!(model.volume.layout(a).extents()[1].file.0, 5 * 4096);
        model.check();
    }
}

/// A step of a random user.
#[derive(Clone, Debug)]
enum Step {
    Create,
    Write(usize, u32, u32),
    Relocate(usize, u32, u32),
    Sync(usize),
    Delete(usize),
    Clean(bool),
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let file = 0_usize..8;
    let place = (file.clone(), 0_u32..40, 1_u32..20);
    let step = prop_oneof![
        2 => Just(Step::Create),
        8 => place.clone().prop_map(|(file, index, len)| Step::Write(file, index, len)),
        3 => place.prop_map(|(file, index, len)| Step::Relocate(file, index, len)),
        1 => file.clone().prop_map(Step::Sync),
        1 => file.prop_map(Step::Delete),
        2 => any::<bool>().prop_map(Step::Clean),
        1 => Just(Step::Checkpoint),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn nothing_is_lost_by_cleaning_and_moving(steps in steps(), kind in 0..4) {
        let volume = match kind {
            0 => Volume::from(LogVolume::new(SHAPE, LogMode::Lfs)),
            1 => Volume::from(LogVolume::new(SHAPE, LogMode::Adaptive { below: 12 })),
            2 => in_place(true),
            _ => in_place(false),
        };
        let mut model = Model::new(volume);
        let mut files = vec![model.volume.create()];
        for step in steps {
            // A volume that is full refuses, and still has everything that it had.
            let _full = match step {
                Step::Create => {
                    files.push(model.volume.create());
                    Ok(())
                }
                Step::Write(file, index, len) => model.write(files[file % files.len()], index, len),
                Step::Relocate(file, index, len) => {
                    model.relocate(files[file % files.len()], index, len)
                }
                Step::Sync(file) => {
                    let file = files[file % files.len()];
                    let mut placed = Vec::new();
                    let result = model.volume.place_nodes(file, &mut placed);
                    for block in placed.iter().flat_map(|it| it.run.blocks()) {
                        model.device.remove(&block);
                    }
                    result
                }
                Step::Delete(file) if files.len() > 1 => {
                    let file = files.swap_remove(file % files.len());
                    model.delete(file);
                    Ok(())
                }
                Step::Delete(_) => Ok(()),
                Step::Clean(greedy) => {
                    let policy = match greedy {
                        true => VictimPolicy::Greedy,
                        false => VictimPolicy::CostBenefit,
                    };
                    model.clean(policy).map(drop)
                }
                Step::Checkpoint => model.checkpoint(),
            };
            model.check();
        }
    }
}
