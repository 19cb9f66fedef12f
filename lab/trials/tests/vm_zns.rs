//! F2FS on a zoned SSD, in guests: indef's report about its files agrees with the device.
//!
//! The device is flashd, in this process. Every written block has a content of its own, so that its
//! place is found by searching for it on the device, without F2FS or FIEMAP; the model's geometry
//! tells the die of that place. DoLF and DoPF computed from that have to be indef's.

mod zoned;

use std::{collections::HashMap, fs, path::Path};

use flash_model::{FlashGeometry, NamespaceKind, Profile, ZoneState};
use flashd::device::{Device, DeviceOptions, NamespaceOptions};
use guest::{Guest, Release, Zns, ZnsOptions};
use serde_json::Value;
use units::Bytes;
use zoned::{BLOCK, MARK, json};

const SCRIPT: &str = include_str!("scripts/zns.sh");
const ZERO: &str = include_str!("../../../crates/flash-model/profiles/zero.toml");

/// Blocks of one read, 128 KiB.
const WINDOW: usize = 32;

/// Files and their blocks.
const FILES: [(char, u32); 5] = [('a', 48), ('b', 48 * 15), ('c', 512), ('d', 48), ('e', 80)];

/// Where each block of each file lies on the device, in bytes.
fn places(device: &Device) -> HashMap<char, Vec<u64>> {
    let mut places: HashMap<char, Vec<u64>> = FILES
        .iter()
        .map(|(file, blocks)| (*file, vec![u64::MAX; *blocks as usize]))
        .collect();
    let mut bytes = vec![0; BLOCK];
    for zone in device.zones(0) {
        let end = match zone.state {
            ZoneState::Full => zone.start + zone.capacity,
            _ => zone.write_pointer,
        };
        for place in (zone.start..end).step_by(BLOCK) {
            device.read_into(0, place, &mut bytes).unwrap();
            if bytes[..8] == MARK[..] {
                let index = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
                let of_file = places.get_mut(&char::from(bytes[8])).unwrap();
                let known = std::mem::replace(&mut of_file[index as usize], place);
                assert_eq!(known, u64::MAX, "a block was written twice");
            }
        }
    }
    places
}

/// DoLF: runs of blocks that follow each other.
fn dolf(places: &[u64]) -> u64 {
    let jumps = places
        .windows(2)
        .filter(|two| two[1] != two[0] + BLOCK as u64);
    1 + jumps.count() as u64
}

/// DoPF (InDeF §II-A, eq. 1).
fn dopf(places: &[u64], geometry: &FlashGeometry) -> f64 {
    let mut on_die = vec![0u32; geometry.dies() as usize];
    for place in places {
        on_die[geometry.zone_die(*place) as usize] += 1;
    }
    let mean = places.len() as f64 / on_die.len() as f64;
    let squares = on_die
        .iter()
        .map(|blocks| (f64::from(*blocks) - mean).powi(2));
    squares.sum::<f64>() / on_die.len() as f64
}

fn entry(entries: &Value, file: char) -> impl Iterator<Item = &Value> {
    let entries = entries.as_array().unwrap().iter();
    let end = format!("/{file}");
    entries.filter(move |entry| entry["path"].as_str().unwrap().ends_with(&end))
}

fn assert_near(found: &Value, expected: f64, what: &str) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{what}: {found}"));
    assert!(
        (found - expected).abs() < 1e-9,
        "{what}: {found}, not {expected}"
    );
}

/// Check `scan`, which judges whole files in windows.
fn scan_is_right(scan: &Value, places: &HashMap<char, Vec<u64>>, geometry: &FlashGeometry) {
    for file in ['a', 'b', 'c'] {
        let said = entry(&scan["files"], file).next().unwrap();
        let windows: Vec<&[u64]> = places[&file].chunks(WINDOW).collect();
        let fragments: Vec<u64> = windows.iter().map(|blocks| dolf(blocks)).collect();
        let uneven: Vec<f64> = windows
            .iter()
            .map(|blocks| dopf(blocks, geometry))
            .collect();
        let count = windows.len() as f64;
        assert_eq!(said["extents"], dolf(&places[&file]), "{file}");
        assert_eq!(said["dolf_max"], *fragments.iter().max().unwrap(), "{file}");
        let mean = fragments.iter().sum::<u64>() as f64 / count;
        assert_near(&said["dolf_mean"], mean, "DoLF mean");
        assert_near(
            &said["dopf_mean"],
            uneven.iter().sum::<f64>() / count,
            "DoPF mean",
        );
        let greatest = uneven.iter().copied().fold(0.0, f64::max);
        assert_near(&said["dopf_max"], greatest, "DoPF max");
        println!("{file}: {} extents, DoPF up to {greatest}", said["extents"]);
    }
}

/// Check `plan`, which judges range by range. Neighbours that stay may be joined; ranges that move
/// are not.
fn plan_is_right(plan: &Value, places: &HashMap<char, Vec<u64>>, geometry: &FlashGeometry) {
    let mut moving = 0;
    for file in ['a', 'b', 'c'] {
        for chunk in entry(&plan["chunks"], file) {
            let number = |name: &str| chunk[name].as_u64().unwrap() as usize;
            let first = number("start_bytes") / BLOCK;
            let last = (first + number("len_bytes") / BLOCK).min(places[&file].len());
            if last - first > WINDOW {
                assert_eq!(chunk["decision"], "skip", "{chunk}");
                continue;
            }
            let blocks = &places[&file][first..last];
            assert_eq!(chunk["dolf"], dolf(blocks), "{chunk}");
            assert_near(&chunk["dopf"], dopf(blocks, geometry), "DoPF of a chunk");
            moving += usize::from(chunk["decision"] == "migrate");
        }
    }
    assert!(moving >= 2, "{plan}");
}

/// The reads and writes while indef watched: pieces of (write, from, to) that touch are joined.
fn traced(path: &Path, file: char) -> Vec<(bool, u64, u64)> {
    let text = fs::read_to_string(path).unwrap();
    let end = format!("/{file}");
    let line = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = text.lines().map(line).collect();
    let known = lines
        .iter()
        .find(|w| w[0] == "file" && w[4].ends_with(&end));
    let Some(number) = known.map(|words| words[1].clone()) else {
        return Vec::new();
    };
    let mut pieces: Vec<(bool, u64, u64)> = lines
        .iter()
        .filter(|words| (words[0] == "read" || words[0] == "write") && words[1] == number)
        .map(|words| {
            let from: u64 = words[2].parse().unwrap();
            (
                words[0] == "write",
                from,
                from + words[3].parse::<u64>().unwrap(),
            )
        })
        .collect();
    pieces.sort_unstable();
    let mut joined: Vec<(bool, u64, u64)> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.0 == piece.0 && last.2 == piece.1 => last.2 = piece.2,
            _ => joined.push(piece),
        }
    }
    joined
}

fn trace_is_right(path: &Path) {
    const KIB: u64 = 1 << 10;
    assert_eq!(traced(path, 'c'), [(false, 256 * KIB, 768 * KIB)], "direct");
    assert_eq!(traced(path, 'a'), [(false, 0, 192 * KIB)], "buffered");
    // F2FS puts blocks of several files into one request.
    assert_eq!(traced(path, 'd'), [(true, 0, 192 * KIB)], "written");
    assert_eq!(traced(path, 'e'), [(true, 0, 320 * KIB)], "written");
}

/// A device whose zones lie on this many of its 16 dies.
fn device(zone_dies: u32) -> Zns {
    let text = ZERO.replace(
        "dies = { value = 16,",
        &format!("dies = {{ value = {zone_dies},"),
    );
    let profile = Profile::parse("zero.toml", &text).unwrap();
    let namespaces = [
        (NamespaceKind::Zoned, Bytes::gib(2)),
        (NamespaceKind::Conventional, Bytes::mib(64)),
    ]
    .map(|(kind, size)| NamespaceOptions { kind, size });
    let device = Device::open(&DeviceOptions {
        block_bytes: 512,
        ..DeviceOptions::in_memory(profile, &namespaces)
    })
    .unwrap();
    assert_eq!(device.geometry().zone.dies, zone_dies);
    Zns::serving(device, ZnsOptions::default()).unwrap()
}

fn says_what_the_device_knows(release: Release, zone_dies: u32) {
    let zns = device(zone_dies);
    let Some(folder) = zoned::run(Guest::with(release), &zns, &FILES, SCRIPT, &[]) else {
        return;
    };
    let flashd = zns.flashd().unwrap();
    let (places, geometry) = (places(flashd), flashd.geometry());
    let scan = json(&folder.path().join("scan.json"));
    let text = fs::read_to_string(folder.path().join("scan.txt")).unwrap();
    // The numbers of the two disks are the kernel's choice.
    assert!(text.contains("(told by /dev/nvme0n"), "{text}");
    println!("{text}");
    scan_is_right(&scan, &places, &geometry);
    plan_is_right(&json(&folder.path().join("plan.json")), &places, &geometry);
    trace_is_right(&folder.path().join("fs"));
}

#[test]
fn vm_dolf_and_dopf_are_the_devices_own_on_6_12() {
    says_what_the_device_knows(Release::Linux6_12, 16);
}

/// A zone lies on a part of the dies, and each begins on other ones.
#[test]
fn vm_dolf_and_dopf_are_the_devices_own_on_6_1_with_narrow_zones() {
    says_what_the_device_knows(Release::Linux6_1, 4);
}
