//! Devices to begin with.

use flash_model::{
    Command, ConfigError, Device, NamespaceKind, NamespaceSpec, Placement, Profile, ZoneState,
};
use units::{Bytes, Nanos};

/// A device of one namespace with zones, all empty.
///
/// # Errors
///
/// A size that is no multiple of the profile's zones.
pub fn zoned(profile: &Profile, size: Bytes) -> Result<Device, ConfigError> {
    namespace(profile, NamespaceKind::Zoned, size)
}

/// A device of one namespace without zones, unwritten.
///
/// # Errors
///
/// A size that the profile's FTL cannot map.
pub fn conventional(profile: &Profile, size: Bytes) -> Result<Device, ConfigError> {
    namespace(profile, NamespaceKind::Conventional, size)
}

/// A device with zones that are all full: whatever is read lies on flash.
///
/// # Errors
///
/// As [`zoned`].
pub fn full_zones(profile: &Profile, size: Bytes) -> Result<Device, ConfigError> {
    let mut device = zoned(profile, size)?;
    let ends: Vec<u64> = device
        .zones(0)
        .iter()
        .map(|zone| zone.writable_end())
        .collect();
    for (zone, end) in ends.into_iter().enumerate() {
        device.restore_zone(0, zone, ZoneState::Full, end);
    }
    Ok(device)
}

/// A device without zones that was written from its beginning to its end, and is at rest.
///
/// # Errors
///
/// As [`conventional`].
pub fn written(profile: &Profile, size: Bytes) -> Result<Device, ConfigError> {
    let mut device = conventional(profile, size)?;
    fill(&mut device, 0, size);
    Ok(device)
}

/// Writes the first `size` bytes of a namespace that is free and without zones, one command after the other, and
/// flushes; returns when that is done.
///
/// # Panics
///
/// There is no such namespace, or it is smaller.
pub fn fill(device: &mut Device, namespace: usize, size: Bytes) -> Nanos {
    const STEP: u64 = 1 << 20;
    let mut now = Nanos(0);
    let writes = (0..size.0)
        .step_by(STEP as usize)
        .map(|offset| Command::Write {
            offset,
            len: STEP.min(size.0 - offset),
            fua: false,
            placement: Placement::RoundRobin,
        });
    for command in writes.chain([Command::Flush]) {
        let accepted = device.submit(now, namespace, &command);
        let done = accepted.expect("a free namespace takes every write").done;
        now = device.finish(done).expect("a write is under way");
    }
    now
}

fn namespace(profile: &Profile, kind: NamespaceKind, size: Bytes) -> Result<Device, ConfigError> {
    Device::new(profile, &[NamespaceSpec { kind, size }])
}
