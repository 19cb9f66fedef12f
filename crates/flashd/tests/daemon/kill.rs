//! SIGKILL while a device in a file is made, opened and written to: the file opens, each zone ends
//! at or past the end of its durable data, and holds the data that was written there and nothing
//! older.
//!
//! The device is in a child: this same program, with an environment that makes it the child. It
//! reports its steps on stdout, a line for each, before and after.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, mpsc},
    time::Duration,
};

use flash_model::{Profile, ZoneAction, ZoneState};
use flashd::device::{Device, DeviceOptions, NamespaceOptions, Request, StoreOptions};
use units::Bytes;

const BLOCK: u64 = 4096;
const ZONES: u64 = 4;
/// Names the file and the seed for a child.
const STORE: &str = "FLASHD_KILL_TEST_STORE";
const SEED: &str = "FLASHD_KILL_TEST_SEED";

fn open(store: &Path) -> Arc<Device> {
    let profile = Profile::builtin("zero").unwrap();
    let namespace = NamespaceOptions::zones(&profile, ZONES);
    let mut options = DeviceOptions::in_memory(profile, &[namespace]);
    options.store = StoreOptions::sparse_file(store);
    // Small, so that it drains all the time.
    options.write_cache = Some(Bytes::kib(256));
    Device::open(&options).unwrap()
}

/// Content of a block: its zone, the number of resets before it, and its place.
fn content(zone: u64, generation: u64, block: u64) -> Vec<u8> {
    let words = [zone + 1, generation + 1, block + 1, !block];
    words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .cycle()
        .take(BLOCK as usize)
        .collect()
}

/// Not a test of anything by itself: the child's work until it is killed.
#[test]
fn the_child_writes() {
    let Some(store) = std::env::var_os(STORE) else {
        return;
    };
    let mut random: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let mut next = |end: u64| {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (random >> 33) % end
    };
    let device = open(Path::new(&store));
    // The number of a zone's resets is in its first block, or the zone is new.
    let mut generations: Vec<u64> = (0..ZONES).map(|_| next(1 << 30)).collect();
    for (zone, at) in (0u64..).zip(device.zones(0)) {
        if at.write_pointer > at.start {
            generations[zone as usize] = generation(&device, at.start);
        }
    }
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("step {line}\n").as_bytes()).unwrap();
    };
    say("open".to_owned());
    loop {
        let zone = next(ZONES);
        let at = device.zones(0)[zone as usize];
        let written = (at.write_pointer - at.start) / BLOCK;
        let count = 1 + next(16);
        let generation = &mut generations[zone as usize];
        match next(40) {
            0 => {
                say("flushing".to_owned());
                device.account(0, &Request::Flush).unwrap();
                say("flushed".to_owned());
            }
            1 if written > 200 => {
                let fresh = *generation + 1;
                say(format!("resetting {zone} {fresh}"));
                let (start, all, action) = (at.start, false, ZoneAction::Reset);
                device
                    .account(0, &Request::Zone { start, all, action })
                    .unwrap();
                *generation = fresh;
                say(format!("reset {zone} {fresh}"));
            }
            choice if at.state != ZoneState::Full && written + count < 4000 => {
                let data: Vec<u8> = (written..written + count)
                    .flat_map(|block| content(zone, *generation, block))
                    .collect();
                let fua = choice == 2;
                say(format!("appending {zone} {generation} {}", written + count));
                let append = Request::Append {
                    zone: at.start,
                    data: &data,
                    fua,
                };
                device.account(0, &append).unwrap();
                if fua {
                    say(format!("durable {zone} {generation} {}", written + count));
                }
            }
            _ => {}
        }
    }
}

fn generation(device: &Device, start: u64) -> u64 {
    let mut first = vec![0; BLOCK as usize];
    device.read_into(0, start, &mut first).unwrap();
    u64::from_le_bytes(first[8..16].try_into().unwrap()) - 1
}

/// The knowledge about a zone: blocks by the number of resets.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The last reset that was acknowledged, and the blocks that are durable since.
    generation: Option<u64>,
    durable: u64,
    /// The blocks that may have been written, for each possible number of resets.
    possible: HashMap<u64, u64>,
}

impl Known {
    fn hear(zones: &mut [Self], line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "flushed" => zones.iter_mut().for_each(|zone| {
                // One thread: nothing else was under way.
                if let Some(generation) = zone.generation {
                    zone.durable = zone.possible.get(&generation).copied().unwrap_or(0);
                }
            }),
            "resetting" => {
                let zone = &mut zones[number(1) as usize];
                zone.possible.entry(number(2)).or_default();
            }
            "reset" => {
                let zone = &mut zones[number(1) as usize];
                zone.generation = Some(number(2));
                zone.durable = 0;
                zone.possible = HashMap::from([(number(2), 0)]);
            }
            "appending" => {
                let zone = &mut zones[number(1) as usize];
                // The first append to a new zone gives its number of resets.
                zone.generation.get_or_insert(number(2));
                zone.possible.insert(number(2), number(3));
            }
            "durable" => zones[number(1) as usize].durable = number(3),
            _ => {}
        }
    }
}

fn check(device: &Device, zones: &mut [Known]) {
    let mut block = vec![0; BLOCK as usize];
    for (zone, known) in (0u64..).zip(zones) {
        let at = device.zones(0)[zone as usize];
        let written = (at.write_pointer - at.start) / BLOCK;
        let is = (written > 0).then(|| generation(device, at.start));
        match (is, known.generation) {
            (Some(is), _) => {
                let most = known.possible.get(&is);
                assert!(
                    most.is_some_and(|most| written <= *most),
                    "{zone} {at:?} {known:?}"
                );
                let least = if known.generation == Some(is) {
                    known.durable
                } else {
                    0
                };
                assert!(written >= least, "zone {zone}: {written} {known:?}");
            }
            // Empty: nothing was durable, or a reset was under way.
            (None, _) => assert!(
                known.durable == 0 || known.possible.len() > 1,
                "{zone} {known:?}"
            ),
        }
        for at_block in 0..written + 20 {
            device
                .read_into(0, at.start + at_block * BLOCK, &mut block)
                .unwrap();
            let expected = if at_block < written {
                content(zone, is.unwrap_or(0), at_block)
            } else {
                vec![0; BLOCK as usize]
            };
            assert!(
                block == expected,
                "zone {zone} block {at_block} of {written}"
            );
        }
        *known = Known {
            generation: is,
            durable: written,
            possible: is.map(|is| (is, written)).into_iter().collect(),
        };
    }
}

#[test]
fn zones_are_whole_after_kills_at_any_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut zones = vec![Known::default(); ZONES as usize];
    let mut steps = 0;
    for round in 0..16u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::the_child_writes", "--nocapture"])
            .env(STORE, &store)
            .env(SEED, (round * 977 + 5).to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        // The first rounds kill while the file is made.
        let after = Duration::from_millis(if round < 6 {
            2 * round
        } else {
            50 + 15 * round
        });
        let (stepped, has_stepped) = mpsc::channel();
        let killer = std::thread::spawn(move || {
            // However slow this machine is.
            let least = if round < 6 { 0 } else { 25 };
            let patience = Duration::from_secs(120);
            for _ in 0..least {
                if has_stepped.recv_timeout(patience).is_err() {
                    break;
                }
            }
            std::thread::sleep(after);
            child.kill().unwrap();
            child.wait().unwrap();
        });
        for line in BufReader::new(output).lines() {
            if let Some(step) = line.unwrap().strip_prefix("step ") {
                Known::hear(&mut zones, step);
                steps += 1;
                // Nobody listens any more.
                let _ = stepped.send(());
            }
        }
        drop(stepped);
        killer.join().unwrap();
        check(&open(&store), &mut zones);
    }
    assert!(
        steps > 200,
        "only {steps} steps: this machine was too slow to show much"
    );
}
