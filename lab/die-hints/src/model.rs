//! Commands to a copy of the device's model, in its own time.

use flash_model::{Command, Device, Span, ftl::Ftl};
use units::Nanos;

/// The largest command: the emulator's MDTS is 6, in units of 4 KiB (NVMeVirt, `ssd_config.h`).
pub(crate) const COMMAND: u64 = 256 << 10;

/// The unit in which the device maps.
pub(crate) const PAGE: u64 = 4096;

/// The namespace with the files.
pub(crate) const NAMESPACE: usize = 0;

/// What the device has decided about places.
pub(crate) fn ftl(device: &Device) -> &Ftl {
    device.ftl(NAMESPACE).expect("it is conventional")
}

/// Submits a command; returns when it is done. Time goes on until that is known.
pub(crate) fn submit(device: &mut Device, now: Nanos, command: &Command<'_>) -> Nanos {
    let accepted = device.submit(now, NAMESPACE, command);
    let done = accepted.expect("the command is in the namespace").done;
    device.finish(done).expect("a command is under way")
}

/// Lets the device finish everything; returns when it has.
pub(crate) fn idle(device: &mut Device) -> Nanos {
    let now = device.stats().now_ns;
    submit(device, now, &Command::Flush);
    device.rest()
}

/// The commands that read the `len` bytes at `start` of a file: one for each extent, or several where it
/// is longer than `longest`. Extents that touch are one.
pub(crate) fn commands(extents: &[Span], start: u64, len: u64, longest: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut at = 0;
    for extent in extents {
        let (from, to) = (start.max(at), (start + len).min(at + extent.len));
        if from < to {
            let offset = extent.offset + from - at;
            let len = to - from;
            match spans.last_mut() {
                Some(last) if last.end() == offset => last.len += len,
                _ => spans.push(Span { offset, len }),
            }
        }
        at += extent.len;
    }
    let cut = |span: Span| {
        let offsets = (span.offset..span.end()).step_by(longest as usize);
        offsets.map(move |offset| Span {
            offset,
            len: longest.min(span.end() - offset),
        })
    };
    spans.into_iter().flat_map(cut).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use flash_model::{NamespaceKind, NamespaceSpec, Placement, Profile};
    use units::Bytes;

    use super::*;

    /// The paper's device, with nothing on it.
    pub(crate) fn device() -> Device {
        let profile = Profile::builtin("fast24").unwrap();
        let spec = NamespaceSpec {
            kind: NamespaceKind::Conventional,
            size: Bytes::mib(512),
        };
        Device::new(&profile, &[spec]).unwrap()
    }

    /// A write without a hint, of which the device is done.
    pub(crate) fn write(device: &mut Device, offset: u64, len: u64) {
        let command = Command::Write {
            offset,
            len,
            fua: false,
            placement: Placement::RoundRobin,
        };
        let now = device.stats().now_ns;
        device.submit(now, NAMESPACE, &command).unwrap();
        idle(device);
    }

    #[test]
    fn parts_of_extents_that_touch_are_one() {
        let spans = |all: &[(u64, u64)]| -> Vec<Span> {
            let spans = all.iter();
            spans.map(|&(offset, len)| Span { offset, len }).collect()
        };
        let extents = spans(&[(0, 8), (8, 8), (100, 8)]);
        assert_eq!(
            commands(&extents, 4, 16, COMMAND),
            spans(&[(4, 12), (100, 4)])
        );
        let long = spans(&[(0, COMMAND + 8)]);
        assert_eq!(
            commands(&long, 4, COMMAND + 4, COMMAND),
            spans(&[(4, COMMAND), (4 + COMMAND, 4)])
        );
        assert_eq!(commands(&extents, 0, 12, 8), spans(&[(0, 8), (8, 4)]));
    }
}
