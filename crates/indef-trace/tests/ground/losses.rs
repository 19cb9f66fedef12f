//! What finds no room is counted: what was done is what was seen and what was lost.

use indef_trace::collect::{Layer, TraceOptions};

use crate::{
    actor::Actor,
    harness::{BLOCK, MIB, Watch, options, plain_file, reads_at, scratch},
};

#[test]
fn loop_single_accesses_beyond_the_ring() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let name = plain_file(&file, MIB);
    let mut actor = Actor::new();
    actor.act(&format!("open f r {name}"));
    let raw = TraceOptions {
        raw: true,
        ..options(Layer::Syscall, fs.path())
    };
    let watch = Watch::start(&raw);
    // Nobody empties the ring meanwhile.
    assert_eq!(actor.act("sweep f 50000"), 50_000);
    let seen = watch.finish();
    assert!(seen.lost > 10_000, "{}", seen.lost);
    assert_eq!(seen.accesses.len() as u64 + seen.lost, 50_000);
    for (at, access) in seen.accesses.iter().enumerate() {
        assert_eq!(access.range.start.0, at as u64);
        assert_eq!(
            (access.pid, access.write, access.direct),
            (actor.pid(), false, false)
        );
    }
}

#[test]
fn loop_ranges_beyond_the_table() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let name = plain_file(&file, MIB);
    let mut actor = Actor::new();
    actor.act(&format!("open f r {name}"));
    let watch = Watch::start(&options(Layer::Syscall, fs.path()));
    assert_eq!(actor.act("sweep f 700000"), 700_000);
    let seen = watch.finish();
    assert!(seen.lost > 100_000, "{}", seen.lost);
    assert_eq!(seen.reads_of(&file) + seen.lost, 700_000);
}

#[test]
fn loop_nothing_is_lost_while_it_is_emptied() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let name = plain_file(&file, MIB);
    let mut actors: Vec<Actor> = (0..2).map(|_| Actor::new()).collect();
    let mut watch = Watch::start(&options(Layer::Syscall, fs.path()));
    std::thread::scope(|scope| {
        for actor in &mut actors {
            let open = format!("open f r {name}");
            scope.spawn(move || {
                actor.act(&open);
                for _ in 0..10 {
                    assert_eq!(actor.act("sweep f 40960"), 40_960);
                }
            });
        }
        for _ in 0..30 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            watch.drain();
        }
    });
    let seen = watch.finish();
    assert_eq!(seen.lost, 0);
    let expected: Vec<_> = reads_at((0..10).map(|n| n * BLOCK), BLOCK)
        .into_keys()
        .map(|place| (place, (2 * 10 * BLOCK, 0)))
        .collect();
    assert_eq!(seen.of(&file).into_iter().collect::<Vec<_>>(), expected);
}
