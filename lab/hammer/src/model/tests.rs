//! The oracle accepts allowed states and nothing else: with planted faults on a simulated device.

use proptest::prelude::*;

use super::*;

const BLOCKS: u32 = 12;

fn one_file() -> Model {
    let mut model = Model::default();
    let file = model.add_file(7, BLOCKS);
    model.set_name("a/main", Some(file));
    model.write(file, 0..8);
    model.all_synced(0);
    model
}

fn cut(model: &mut Model) -> Model {
    model.begin_cut();
    let now = model.now_ms;
    model.end_cut(now)
}

fn judge(model: &Model, block: u32, value: BlockValue, step_ms: u64) -> Findings {
    let mut findings = Findings::default();
    model.judge_block(0, block, &value.bytes(), window(step_ms), &mut findings);
    findings
}

fn window(step_ms: u64) -> Window {
    Window {
        step_ms,
        ..Window::default()
    }
}

fn accepts(model: &Model, block: u32, value: BlockValue) -> bool {
    judge(model, block, value, 0).violations.is_empty()
}

#[test]
fn a_durable_block_is_the_only_one_allowed() {
    let mut model = one_file();
    let old = model.file(0).live(3);
    let new = model.write(0, 3..4)[0];
    assert!(accepts(&model, 3, old) && accepts(&model, 3, new));
    model.fsynced(0, 1);
    assert!(accepts(&model, 3, new));
    assert!(!accepts(&model, 3, old), "an older version");
    assert!(!accepts(&model, 3, BlockValue::Zero), "zeroes");
    assert!(!accepts(&model, 3, model.file(0).live(4)), "another place");
}

/// The allowed content of this block of a file after a cut, on XFS.
fn on_xfs(model: &Model, file: u32, block: u32, value: BlockValue) -> bool {
    let window = Window {
        in_place: true,
        ..Window::default()
    };
    let mut findings = Findings::default();
    model.judge_block(file, block, &value.bytes(), window, &mut findings);
    findings.violations.is_empty()
}

/// The clone's number, and the content of both files.
fn a_file_and_its_clone() -> (Model, u32, Vec<BlockValue>) {
    let mut model = one_file();
    let clone = model.add_file(8, BLOCKS);
    model.set_name("a/side", Some(clone));
    let old = model.file(0).live_range(0..8);
    model.share(clone, 0, &old);
    model.all_synced(0);
    (model, clone, old)
}

#[test]
fn what_is_unshared_may_be_written_by_the_other() {
    let (mut model, clone, old) = a_file_and_its_clone();
    model.unshare(clone, 1..2);
    let written = model.write(0, 1..3);
    for value in [old[1], written[0]] {
        assert!(on_xfs(&model, clone, 1, value));
    }
    assert!(!accepts(&model, 1, written[1]) && !on_xfs(&model, clone, 2, written[1]));
    model.all_synced(0);
    assert!(!on_xfs(&model, clone, 1, written[0]));
}

#[test]
fn what_is_shared_no_more_may_be_written_by_the_other() {
    let (mut model, clone, old) = a_file_and_its_clone();
    let while_shared = model.write(0, 0..1)[0];
    model.zero(clone, 1..3);
    let first = model.write(0, 1..2)[0];
    let second = model.write(0, 1..2)[0];
    assert!(!on_xfs(&model, clone, 0, while_shared), "copied on write");
    for value in [old[1], BlockValue::Zero, first, second] {
        assert!(on_xfs(&model, clone, 1, value));
    }
    assert!(!accepts(&model, 2, first) && !on_xfs(&model, clone, 2, first));
    let mut elsewhere = Findings::default();
    model.judge_block(clone, 1, &first.bytes(), window(0), &mut elsewhere);
    assert_eq!(elsewhere.violations.len(), 1, "not where it is not so");
    model.fsynced(clone, 1);
    assert!(on_xfs(&model, clone, 1, BlockValue::Zero) && !on_xfs(&model, clone, 1, second));
    let third = model.write(0, 1..2)[0];
    assert!(!on_xfs(&model, clone, 1, third), "its hole is durable");
}

#[test]
fn a_file_that_is_gone_may_be_back_with_what_the_other_wrote() {
    let (mut model, clone, old) = a_file_and_its_clone();
    model.set_name("a/side", None);
    let new = model.write(0, 3..4)[0];
    assert!(on_xfs(&model, clone, 3, new) && on_xfs(&model, clone, 3, old[3]));
    assert!(!on_xfs(&model, clone, 4, new));
}

#[test]
fn punched_data_stays_away_once_that_is_durable() {
    let mut model = one_file();
    let old = model.file(0).live(3);
    model.zero(0, 3..4);
    assert!(accepts(&model, 3, old) && accepts(&model, 3, BlockValue::Zero));
    model.data_synced(0);
    assert!(accepts(&model, 3, old), "not promised by fdatasync");
    model.fsynced(0, 1);
    assert!(!accepts(&model, 3, old));
}

#[test]
fn a_write_over_punched_blocks_is_durable_by_fdatasync() {
    let mut model = one_file();
    let old = model.file(0).live(3);
    model.zero(0, 3..4);
    let new = model.write(0, 3..4)[0];
    model.data_synced(0);
    assert!(accepts(&model, 3, new));
    assert!(!accepts(&model, 3, BlockValue::Zero) && !accepts(&model, 3, old));
}

#[test]
fn a_size_may_be_forgotten_but_not_the_data_below_it() {
    let sizes = |model: &mut Model| {
        let cut = cut(model);
        let accepts = |blocks: u64| {
            let mut findings = Findings::default();
            cut.judge_size(0, blocks * BLOCK as u64, window(0), &mut findings);
            findings.violations.is_empty()
        };
        [8, 10].map(accepts)
    };
    let mut model = one_file();
    let old = model.file(0).live(7);
    let new = model.write(0, 7..10);
    model.blocks_synced(0, 7..10);
    assert_eq!(sizes(&mut model), [true, true]);
    assert!(accepts(&model, 7, new[0]) && !accepts(&model, 7, old));
    assert!(accepts(&model, 9, new[2]) && !accepts(&model, 9, BlockValue::Zero));
    model.range_synced(0, 7..10);
    assert_eq!(sizes(&mut model), [false, true]);
}

#[test]
fn torn_blocks_are_mixtures_of_what_is_allowed() {
    let mut model = one_file();
    let old = model.file(0).live(3).bytes();
    let new = model.write(0, 3..4)[0].bytes();
    let mut mixed = old;
    mixed[2048..].copy_from_slice(&new[2048..]);
    let violations = |model: &Model, bytes: &[u8]| {
        let mut findings = Findings::default();
        model.judge_block(0, 3, bytes, Window::default(), &mut findings);
        findings.violations.len()
    };
    assert_eq!(violations(&model, &mixed), 0);
    let mut foreign = mixed;
    foreign[100] ^= 0xFF;
    assert_eq!(violations(&model, &foreign), 1);
    model.fsynced(0, 1);
    assert_eq!(violations(&model, &mixed), 1, "no longer in doubt");
}

#[test]
fn stale_data_is_for_blocks_in_doubt_where_the_mount_option_says_so() {
    let judge = |model: &Model, stale| {
        let mut findings = Findings::default();
        let foreign = BlockValue::Data(Stamp {
            file: 9,
            block: 1,
            version: 1,
        });
        let window = Window {
            stale,
            ..Window::default()
        };
        model.judge_block(0, 3, &foreign.bytes(), window, &mut findings);
        (findings.stale, findings.violations.len())
    };
    let mut model = one_file();
    assert_eq!(judge(&model, true), (0, 1), "durable");
    model.zero(0, 3..4);
    model.write(0, 3..4);
    assert_eq!(judge(&model, true), (1, 0));
    assert_eq!(judge(&model, false), (0, 1));
}

#[test]
fn the_window_is_narrow() {
    let lost = |kill: Option<u64>, commit: Option<u64>, cut_ms: u64, step_ms: u64| {
        let mut model = one_file();
        let old = model.file(0).live(3);
        model.set_now(1000);
        model.write(0, 3..4);
        model.range_synced(0, 3..4);
        if let Some(ms) = kill {
            model.set_now(ms);
            model.mover_halted();
        }
        model.commits_ms.extend(commit.map(|ms| (ms, ms)));
        model.set_now(cut_ms);
        let found = judge(&cut(&mut model), 3, old, step_ms);
        (found.window, found.violations.len())
    };
    assert_eq!(lost(None, None, 1100, 0), (0, 1), "nothing is granted");
    assert_eq!(lost(None, None, 1100, 200), (1, 0), "young enough");
    assert_eq!(lost(None, None, 1300, 200), (0, 1), "too old");
    assert_eq!(lost(None, Some(1050), 1100, 200), (0, 1), "committed since");
    assert_eq!(
        lost(Some(1100), None, 9000, 200),
        (1, 0),
        "killed in a step"
    );
    assert_eq!(
        lost(Some(1300), None, 9000, 200),
        (0, 1),
        "killed much later"
    );
    assert_eq!(lost(Some(900), None, 9000, 200), (1, 0), "killed before");
    let (window, violations) = lost(Some(900), Some(950), 9000, 200);
    assert_eq!((window, violations), (0, 1), "the kill was made up for");

    let mut model = one_file();
    let old = model.file(0).live(3);
    model.set_now(1000);
    let halt = model.mover_halted();
    model.write(0, 3..4);
    model.range_synced(0, 3..4);
    model.set_now(5000);
    assert_eq!(
        judge(&model, 3, old, 200).window,
        1,
        "the mover stands still"
    );
    model.mover_continues(halt);
    model.set_now(5100);
    assert_eq!(
        judge(&model, 3, old, 200).window,
        1,
        "it may just be committing"
    );
    model.set_now(5300);
    assert_eq!(
        judge(&model, 3, old, 200).window,
        0,
        "it must have committed"
    );
}

#[test]
fn fsync_is_never_in_the_window() {
    let mut model = one_file();
    let old = model.file(0).live(3);
    model.write(0, 3..4);
    model.fsynced(0, 0);
    let found = judge(&cut(&mut model), 3, old, 1_000_000);
    assert_eq!((found.window, found.violations.len()), (0, 1));
    let old = model.file(0).live(4);
    model.write(0, 4..5);
    model.range_fsynced(0, 4..5, 0);
    let found = judge(&cut(&mut model), 4, old, 1_000_000);
    assert_eq!((found.window, found.violations.len()), (0, 1), "O_SYNC");
}

#[test]
fn sizes_names_and_attributes_follow_the_same_rule() {
    let mut model = one_file();
    let size = |model: &Model, blocks: u64| {
        let mut findings = Findings::default();
        model.judge_size(0, blocks * 4096, Window::default(), &mut findings);
        findings.violations.is_empty()
    };
    model.resize(0, 4);
    assert!(size(&model, 8) && size(&model, 4) && !size(&model, 6));
    let in_steps = |blocks: u64| {
        let mut findings = Findings::default();
        let btrfs = Window {
            in_steps: true,
            ..Window::default()
        };
        model.judge_size(0, blocks * 4096, btrfs, &mut findings);
        findings.violations.is_empty()
    };
    assert!(in_steps(6) && in_steps(4) && !in_steps(3) && !in_steps(9));
    model.write(0, 4..10);
    assert!(size(&model, 6), "on the way");
    model.range_synced(0, 6..8);
    assert!(
        size(&model, 8) && size(&model, 10),
        "no more than the write needs"
    );
    assert!(!size(&model, 7) && !size(&model, 4));
    model.fsynced(0, 1);
    assert!(size(&model, 10) && !size(&model, 4) && !size(&model, 8));

    let name = |model: &Model, name: &str, inode| {
        let mut findings = Findings::default();
        model.judge_name(name, inode, &mut findings);
        findings.violations.is_empty()
    };
    model.set_name("a/moved", Some(0));
    model.set_name("a/main", None);
    assert!(name(&model, "a/main", Some(7)) && name(&model, "a/main", None));
    assert!(!name(&model, "a/main", Some(8)), "another file");
    model.directory_synced("b", 2);
    assert!(name(&model, "a/main", Some(7)));
    model.directory_synced("a", 2);
    assert!(!name(&model, "a/main", Some(7)) && !name(&model, "a/moved", None));
    assert!(!name(&model, "a/foreign", Some(9)));

    model.set_attribute(0, 5);
    let attribute = |model: &Model, value| {
        let mut findings = Findings::default();
        model.judge_attribute(0, value, &mut findings);
        findings.violations.is_empty()
    };
    assert!(attribute(&model, 0) && attribute(&model, 5) && !attribute(&model, 6));
    model.fsynced(0, 3);
    assert!(!attribute(&model, 0) && attribute(&model, 5));
}

#[test]
fn shifted_blocks_carry_their_content() {
    let mut model = one_file();
    let old: Vec<BlockValue> = (0..8).map(|block| model.file(0).live(block)).collect();
    model.shift(0, 2..4, true);
    assert_eq!(model.file(0).len_blocks(), 6);
    assert_eq!(model.file(0).live(2), old[4]);
    assert_eq!(model.file(0).live(6), BlockValue::Zero);
    assert!(accepts(&model, 2, old[2]) && accepts(&model, 2, BlockValue::Zero));
    model.fsynced(0, 1);
    assert!(!accepts(&model, 2, old[2]) && !accepts(&model, 2, BlockValue::Zero));
    model.shift(0, 1..3, false);
    model.fsynced(0, 2);
    assert_eq!(model.file(0).len_blocks(), 8);
    assert_eq!(model.file(0).live(1), BlockValue::Zero);
    assert_eq!(model.file(0).live(3), old[1]);
    assert_eq!(model.file(0).live(4), old[4]);
}

#[test]
fn what_becomes_durable_while_a_cut_is_made_may_be_in_it_or_not() {
    let mut model = one_file();
    let old = model.file(0).live(3);
    model.begin_cut();
    let first = model.write(0, 3..4)[0];
    model.fsynced(0, 1);
    let second = model.write(0, 3..4)[0];
    model.fsynced(0, 2);
    let cut = model.end_cut(0);
    let third = model.write(0, 3..4)[0];
    assert!(
        [old, first, second]
            .iter()
            .all(|value| accepts(&cut, 3, *value))
    );
    assert!(!accepts(&cut, 3, third), "written after the cut");
    assert!(!accepts(&model, 3, old), "the next cut is another matter");
}

/// A device that loses data that is not durable, by book-keeping of its own, not the model's.
#[derive(Clone, Debug)]
enum ModelStep {
    Write(u32, u32),
    Punch(u32, u32),
    Fsync,
    RangeSync(u32, u32),
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let range = || (0..BLOCKS - 2, 1..3_u32);
    let step = prop_oneof![
        4 => range().prop_map(|(at, count)| ModelStep::Write(at, count)),
        2 => range().prop_map(|(at, count)| ModelStep::Punch(at, count)),
        1 => Just(ModelStep::Fsync),
        2 => range().prop_map(|(at, count)| ModelStep::RangeSync(at, count)),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn a_device_that_keeps_its_word_is_accepted_and_one_that_does_not_is_not(
        steps in steps(),
        choices in prop::collection::vec(any::<prop::sample::Index>(), BLOCKS as usize),
    ) {
        let mut model = one_file();
        // For each block all of its values, and the index of the last one that is promised.
        let mut held: Vec<(Vec<BlockValue>, usize)> =
            (0..BLOCKS).map(|block| (vec![model.file(0).live(block)], 0)).collect();
        for step in &steps {
            match *step {
                ModelStep::Write(at, count) => {
                    let values = model.write(0, at..at + count);
                    for (block, value) in (at..).zip(values) {
                        held[block as usize].0.push(value);
                    }
                }
                ModelStep::Punch(at, count) => {
                    model.zero(0, at..at + count);
                    for block in at..at + count {
                        held[block as usize].0.push(BlockValue::Zero);
                    }
                }
                ModelStep::Fsync => {
                    model.fsynced(0, 0);
                    for (values, floor) in &mut held {
                        *floor = values.len() - 1;
                    }
                }
                ModelStep::RangeSync(at, count) => {
                    model.range_synced(0, at..at + count);
                    for (values, floor) in &mut held[at as usize..(at + count) as usize] {
                        let data = |value: &BlockValue| matches!(value, BlockValue::Data(_));
                        let last = values.iter().rposition(data).unwrap_or(0);
                        *floor = last.max(*floor);
                    }
                }
            }
        }
        let cut = cut(&mut model);
        for (block, (values, floor)) in (0..).zip(&held) {
            let kept = &values[*floor..];
            let left = kept[choices[block as usize].index(kept.len())];
            prop_assert!(accepts(&cut, block, left), "block {} {}", block, left);
            for lost in &values[..*floor] {
                let again = kept.contains(lost);
                prop_assert_eq!(accepts(&cut, block, *lost), again, "block {} {}", block, lost);
            }
            let neighbour = held[(block as usize + 1) % BLOCKS as usize].0.last().unwrap();
            if matches!(neighbour, BlockValue::Data(_)) {
                prop_assert!(!accepts(&cut, block, *neighbour), "block {}", block);
            }
        }
    }
}
