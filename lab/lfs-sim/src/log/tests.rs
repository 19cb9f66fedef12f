use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::{
    block::{Block, Full},
    files::FileId,
};

const SHAPE: Shape = Shape {
    segment_blocks: 8,
    segments_per_section: 2,
    sections: 12,
};

fn data(index: u32) -> Owner {
    Owner::Data {
        file: FileId(3),
        index,
    }
}

/// Appends so many blocks to the log of files' data.
fn fill(space: &mut LogSpace, count: u32) -> Vec<Block> {
    let blocks = (0..count).map(|index| space.append(Log::WarmData, data(index)));
    blocks.collect::<Result<_, _>>().unwrap()
}

fn checkpoint(space: &mut LogSpace) -> Vec<u32> {
    let checkpoint = space.begin_checkpoint();
    space.end_checkpoint(checkpoint)
}

#[test]
fn each_log_writes_its_own_section_from_end_to_end() {
    let mut space = LogSpace::new(SHAPE, LogMode::Lfs);
    assert_eq!(fill(&mut space, 17), (0..17).map(Block).collect::<Vec<_>>());
    let node = Owner::Node {
        file: FileId(9),
        index: 4,
    };
    assert_eq!(space.append(Log::WarmNode, node), Ok(Block(32)));
    assert_eq!(space.owner(Block(32)), Some(node));
    assert_eq!(space.owner(Block(16)), Some(data(16)));
    assert_eq!((space.free_sections(), space.valid_blocks()), (9, 18));
    assert_eq!(space.valid(1).count(), 8);
}

#[test]
fn a_section_is_free_after_the_checkpoint_that_knows_it_is_empty() {
    let mut space = LogSpace::new(SHAPE, LogMode::Lfs);
    let blocks = fill(&mut space, 33);
    let early = space.begin_checkpoint();
    blocks[..16]
        .iter()
        .for_each(|block| space.invalidate(*block));
    assert_eq!(space.empty_sections(), 1);
    // The checkpoint began before.
    assert!(space.end_checkpoint(early).is_empty());
    assert_eq!(space.free_sections(), 9);
    assert_eq!(checkpoint(&mut space), [0]);
    assert_eq!((space.free_sections(), space.empty_sections()), (10, 0));
}

#[test]
fn an_open_section_is_not_given_back() {
    let mut space = LogSpace::new(SHAPE, LogMode::Lfs);
    let blocks = fill(&mut space, 10);
    blocks.iter().for_each(|block| space.invalidate(*block));
    assert!(checkpoint(&mut space).is_empty());
    // Its end is written before; then it is empty at once.
    let rest = fill(&mut space, 6);
    rest.iter().for_each(|block| space.invalidate(*block));
    fill(&mut space, 1);
    assert_eq!(checkpoint(&mut space), [0]);
}

#[test]
fn the_victim_has_the_fewest_valid_blocks_or_the_best_ratio() {
    let mut space = LogSpace::new(SHAPE, LogMode::Lfs);
    let blocks = fill(&mut space, 49);
    assert_eq!(space.victim(VictimPolicy::Greedy), None);
    // Section 0 loses 6 early, section 1 7 late.
    blocks[..6]
        .iter()
        .for_each(|block| space.invalidate(*block));
    fill(&mut space, 30);
    blocks[16..23]
        .iter()
        .for_each(|block| space.invalidate(*block));
    assert_eq!(space.victim(VictimPolicy::Greedy), Some(1));
    assert_eq!(space.victim(VictimPolicy::CostBenefit), Some(0));
}

#[test]
fn holes_are_filled_when_sections_are_few_and_a_checkpoint_knows_them() {
    let mut space = LogSpace::new(SHAPE, LogMode::Adaptive { below: 8 });
    let blocks = fill(&mut space, 64);
    for block in [3, 5, 20] {
        space.invalidate(blocks[block]);
    }
    // The last checkpoint still refers to them.
    assert_eq!(fill(&mut space, 1), [Block(64)]);
    fill(&mut space, 15);
    assert!(checkpoint(&mut space).is_empty());
    assert_eq!(space.free_sections(), 7);
    assert_eq!(fill(&mut space, 3), [3, 5, 20].map(Block));
    // No holes are left.
    assert_eq!(fill(&mut space, 1), [Block(80)]);
}

#[test]
fn a_full_volume_says_what_cleaning_could_free() {
    let mut space = LogSpace::new(SHAPE, LogMode::Lfs);
    let blocks = fill(&mut space, SHAPE.blocks());
    space.invalidate(blocks[7]);
    assert_eq!(space.append(Log::WarmData, data(0)), Err(Full { free: 1 }));
}

/// A step of a random user.
#[derive(Clone, Debug)]
enum Step {
    Append(Log),
    Invalidate(usize),
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let log = prop::sample::select(Log::ALL.to_vec());
    let step = prop_oneof![
        6 => log.prop_map(Step::Append),
        4 => any::<prop::sample::Index>().prop_map(|at| Step::Invalidate(at.index(usize::MAX))),
        1 => Just(Step::Checkpoint),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    /// No valid block is given away, none that the last checkpoint refers to, and counts are right.
    #[test]
    fn no_block_has_two_owners(steps in steps(), adaptive: bool) {
        let mode = if adaptive { LogMode::Adaptive { below: 6 } } else { LogMode::Lfs };
        let mut space = LogSpace::new(SHAPE, mode);
        let mut valid: BTreeMap<Block, Owner> = BTreeMap::new();
        // Blocks that were valid at the last checkpoint, or since.
        let mut kept: HashMap<Block, Owner> = HashMap::new();
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Append(log) => match space.append(log, data(number)) {
                    Ok(block) => {
                        prop_assert!(valid.insert(block, data(number)).is_none());
                        prop_assert!(kept.insert(block, data(number)).is_none());
                    }
                    Err(full) => {
                        prop_assert_eq!(full.free as usize, SHAPE.blocks() as usize - valid.len());
                        prop_assert_eq!(space.free_sections(), 0);
                    }
                },
                Step::Invalidate(at) if !valid.is_empty() => {
                    let block = *valid.keys().nth(at % valid.len()).unwrap();
                    valid.remove(&block);
                    space.invalidate(block);
                }
                Step::Invalidate(_) => {}
                Step::Checkpoint => {
                    checkpoint(&mut space);
                    kept = valid.iter().map(|(block, owner)| (*block, *owner)).collect();
                }
            }
            prop_assert_eq!(space.valid_blocks() as usize, valid.len());
        }
        for segment in 0..SHAPE.segments() {
            let blocks: Vec<_> = space.valid(segment).collect();
            let run = SHAPE.run_of(segment);
            let expected: Vec<_> =
                valid.range(run.start..run.end()).map(|(block, owner)| (*block, *owner)).collect();
            prop_assert_eq!(blocks, expected);
        }
    }
}
