//! The speed of the model itself: commands a second through one device, and the cost of a large
//! migration. `cargo run --release -p flash-model --example submits`

use std::time::Instant;

use flash_model::{Command, Device, Done, Move, NamespaceKind, NamespaceSpec, Placement, Profile};
use units::{Bytes, Nanos};

const GIB: u64 = 1 << 30;

fn device(profile: &str, kind: NamespaceKind) -> Device {
    let profile = Profile::builtin(profile).expect("it is built in");
    let spec = NamespaceSpec {
        kind,
        size: Bytes(8 * GIB),
    };
    Device::new(&profile, &[spec]).expect("8 GiB are possible")
}

/// Nanoseconds for each of `count` commands, 5 µs of virtual time apart.
fn each(
    device: &mut Device,
    now: &mut u64,
    count: u64,
    command: impl Fn(u64) -> Command<'static>,
) -> f64 {
    let start = Instant::now();
    for number in 0..count {
        *now += 5_000;
        device
            .submit(Nanos(*now), 0, &command(number))
            .expect("it can be done");
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn migrate(device: &mut Device, now: u64) {
    let moves: Vec<Move> = (0..GIB / 4096 * 2)
        .map(|block| {
            // Every other block, so that nothing can be joined.
            Move {
                from: block * 8192 % (4 * GIB),
                to: 6 * GIB + block * 4096,
                len: 4096,
            }
        })
        .collect();
    let (real, start) = (Instant::now(), now);
    let accepted = device
        .submit(Nanos(now), 0, &Command::Migrate { moves: &moves })
        .expect("there is room");
    let submitted = real.elapsed();
    let Done::Later(_) = accepted.done else {
        return;
    };
    let (mut finished, mut end) = (Vec::new(), now);
    while let Some(next) = device.next_event() {
        device.advance(next, &mut finished);
        end = next.0;
    }
    println!(
        "  2 GiB migrated in single blocks: {:.1} s of virtual time, submitted in {submitted:.0?}, \
         worked off in {:.0?}",
        (end - start) as f64 / 1e9,
        real.elapsed()
    );
}

fn main() {
    for profile in ["zero", "indef-femu", "zn540"] {
        let mut device = device(profile, NamespaceKind::Zoned);
        let zone = device.zones(0)[0];
        let mut now = 0;
        println!("{profile}");
        let write = each(
            &mut device,
            &mut now,
            6 * GIB / zone.size * zone.capacity / (1 << 20),
            |number| {
                let offset = number * (1 << 20);
                let offset = offset / zone.capacity * zone.size + offset % zone.capacity;
                let len = (1 << 20).min(zone.capacity);
                Command::Write {
                    offset,
                    len,
                    fua: false,
                    placement: Placement::RoundRobin,
                }
            },
        );
        now += 100_000_000_000;
        let read = each(&mut device, &mut now, 1_000_000, |number| Command::Read {
            offset: number * 7919 * 4096 % (GIB / 4096 * 4096),
            len: 4096,
        });
        let large = each(&mut device, &mut now, 50_000, |number| Command::Read {
            offset: number * (128 << 10) % GIB,
            len: 128 << 10,
        });
        now += 100_000_000_000;
        println!(
            "  write 1 MiB {write:.0} ns, read 4 KiB {read:.0} ns, read 128 KiB {large:.0} ns"
        );
        if profile == "indef-femu" {
            migrate(&mut device, now);
        }
    }
    for profile in ["zero", "fast24"] {
        let mut device = device(profile, NamespaceKind::Conventional);
        let mut now = 0;
        println!("{profile}, conventional");
        let write = each(&mut device, &mut now, 500_000, |number| Command::Write {
            offset: number * 7919 * 4096 % (8 * GIB),
            len: 4096,
            fua: false,
            placement: Placement::RoundRobin,
        });
        let read = each(&mut device, &mut now, 1_000_000, |number| Command::Read {
            offset: number * 7919 * 4096 % (8 * GIB),
            len: 4096,
        });
        println!("  write 4 KiB {write:.0} ns, read 4 KiB {read:.0} ns");
    }
}
