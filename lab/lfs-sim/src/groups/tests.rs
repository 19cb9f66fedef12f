use proptest::prelude::*;

use super::*;

fn run(start: u32, len: u32) -> Run {
    Run {
        start: Block(start),
        len,
    }
}

#[test]
fn the_goal_comes_first_then_a_long_enough_run_then_the_longest() {
    let mut space = GroupSpace::new(256, 64);
    assert_eq!(space.allocate(Block(10), 6), Ok(run(10, 6)));
    // Only what is free at the goal.
    assert_eq!(space.allocate(Block(4), 20), Ok(run(4, 6)));
    // The goal is taken: the first of the group that is long enough, then of the groups after it.
    assert_eq!(space.allocate(Block(10), 4), Ok(run(0, 4)));
    assert_eq!(space.allocate(Block(10), 50), Ok(run(64, 50)));
    assert_eq!(space.allocate(Block(64), 64), Ok(run(128, 64)));
    assert_eq!(space.allocate(Block(64), 64), Ok(run(192, 64)));
    // Nothing is as long: the longest.
    assert_eq!(space.allocate(Block(64), 64), Ok(run(16, 48)));
    assert_eq!(space.allocate(Block(64), 64), Ok(run(114, 14)));
    assert_eq!(space.allocate(Block(64), 1), Err(Full { free: 0 }));
    space.release(run(8, 4));
    assert_eq!(space.free_blocks(), 4);
    assert_eq!(space.allocate(Block(200), 9), Ok(run(8, 4)));
}

#[test]
fn windows_have_ext4s_sizes() {
    // (blocks of the file, needed, asked for)
    let cases = [
        (1, 1, 4),
        (4, 4, 4),
        (5, 1, 4),
        (256, 256, 256),
        (257, 257, 512),
        (1025, 1, 1024),
        (2049, 1, 2048),
        (4096, 4096, 4096),
    ];
    for (end, need, asked) in cases {
        assert_eq!(Window::blocks(end, need), asked, "{end} {need}");
    }
}

proptest! {
    /// Against a list of flags: nothing is given twice, counts are right, a request is refused only when nothing
    /// is free.
    #[test]
    fn no_block_is_given_twice(steps in prop::collection::vec((0_u32..400, 1_u32..90, any::<bool>()), 1..80)) {
        let mut space = GroupSpace::new(400, 96);
        let mut taken = vec![false; 400];
        let mut runs: Vec<Run> = Vec::new();
        for (place, len, gives_back) in steps {
            if gives_back && !runs.is_empty() {
                let run = runs.swap_remove(place as usize % runs.len());
                space.release(run);
                run.blocks().for_each(|block| taken[block.0 as usize] = false);
            } else {
                match space.allocate(Block(place), len) {
                    Ok(run) => {
                        prop_assert!((1..=len).contains(&run.len));
                        for block in run.blocks() {
                            prop_assert!(!std::mem::replace(&mut taken[block.0 as usize], true));
                        }
                        runs.push(run);
                    }
                    Err(_) => prop_assert!(taken.iter().all(|taken| *taken)),
                }
            }
            let free = taken.iter().filter(|taken| !**taken).count();
            prop_assert_eq!(space.free_blocks() as usize, free);
            let in_runs: Vec<u32> = space.free_runs().flat_map(Run::blocks).map(|block| block.0).collect();
            let free: Vec<u32> = (0..400).filter(|at| !taken[*at as usize]).collect();
            prop_assert_eq!(in_runs, free);
            prop_assert!(space.free_runs().collect::<Vec<_>>().windows(2).all(|two| two[0].end() < two[1].start));
            prop_assert!((0..400).all(|at| space.is_taken(Block(at)) == taken[at as usize]));
        }
    }
}
