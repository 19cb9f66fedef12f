//! A target in this process, for the tests that talk to one.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
};

use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions},
    serve::{Target, TargetOptions},
};
use nvme_initiator::{Host, HostOptions, Queue};
use nvme_wire::pdu::Digests;
use units::Bytes;

static HOOK: Once = Once::new();
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a block of every namespace.
pub(crate) const BLOCK: usize = 4096;
/// NSID of the zoned namespace.
pub(crate) const ZONED: u32 = 1;
/// NSID of the conventional namespace.
pub(crate) const CONVENTIONAL: u32 = 2;
/// Blocks of the conventional namespace.
pub(crate) const CONVENTIONAL_BLOCKS: u64 = (64 << 20) / BLOCK as u64;

/// A target on a free port of loopback, and its device.
pub(crate) struct Fixture {
    pub(crate) device: Arc<Device>,
    pub(crate) target: Target,
}

impl Fixture {
    /// Without latencies.
    pub(crate) fn new() -> Self {
        Self::with("zero", 1.0)
    }

    /// With the latencies of a profile.
    pub(crate) fn with(profile: &str, time_scale: f64) -> Self {
        Self::of_profile(Profile::builtin(profile).unwrap(), time_scale)
    }

    /// With any profile.
    pub(crate) fn of_profile(profile: Profile, time_scale: f64) -> Self {
        let namespaces = [
            NamespaceOptions::zones(&profile, 8),
            NamespaceOptions {
                kind: NamespaceKind::Conventional,
                size: Bytes::mib(64),
            },
        ];
        let options = DeviceOptions {
            time_scale,
            ..DeviceOptions::in_memory(profile, &namespaces)
        };
        Self::of(Device::open(&options).unwrap())
    }

    /// Serve a device. From now on no thread of this process may panic unnoticed.
    pub(crate) fn of(device: Arc<Device>) -> Self {
        Self::at(device, "127.0.0.1:0".parse().unwrap())
    }

    /// Serve a device at an address.
    pub(crate) fn at(device: Arc<Device>, address: SocketAddr) -> Self {
        Self::told(device, address, TargetOptions::default())
    }

    /// Without latencies, with these options of the target.
    pub(crate) fn with_options(options: TargetOptions) -> Self {
        let device = Arc::clone(&Self::new().device);
        Self::told(device, "127.0.0.1:0".parse().unwrap(), options)
    }

    fn told(device: Arc<Device>, address: SocketAddr, options: TargetOptions) -> Self {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                let thread = std::thread::current();
                if thread.name().is_some_and(|name| name.starts_with("nvme")) {
                    PANICS.fetch_add(1, Ordering::AcqRel);
                }
                before(info);
            }));
        });
        let target = Target::listen(Arc::clone(&device), address, options).unwrap();
        Self { device, target }
    }

    pub(crate) fn options(&self, digests: Digests) -> HostOptions {
        let mut options = HostOptions::new(self.target.nqn());
        options.admin.digests = digests;
        options
    }

    /// A host with its controller enabled.
    pub(crate) fn host(&self, digests: Digests) -> Host {
        Host::connect(self.target.address(), self.options(digests)).unwrap()
    }

    /// A host and its first I/O queue.
    pub(crate) fn queue(&self) -> (Host, Queue) {
        let host = self.host(Digests::default());
        let queue = host.queue(1, 64).unwrap();
        (host, queue)
    }

    /// Blocks of a zone, and blocks of it that can be written.
    pub(crate) fn zone(&self) -> (u64, u64) {
        let zone = self.device.geometry().zone;
        (
            zone.size.get() / BLOCK as u64,
            zone.capacity.get() / BLOCK as u64,
        )
    }

    /// Waits until no connection is left. None of them may have ended by a panic.
    pub(crate) fn wait_until_idle(&self) {
        for _ in 0..6000 {
            if self.target.connections() == 0 {
                assert_eq!(self.target.controllers(), 0);
                assert_eq!(PANICS.load(Ordering::Acquire), 0, "threads have panicked");
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{} connections are left", self.target.connections());
    }
}

/// Content that identifies its place and its write.
pub(crate) fn pattern(block: u64, count: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * BLOCK);
    for block in block..block + count as u64 {
        let mut word = (block ^ seed.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for _ in 0..BLOCK / 8 {
            bytes.extend_from_slice(&word.to_le_bytes());
            word = word.rotate_left(7).wrapping_add(0xD1B5_4A32_D192_ED03);
        }
    }
    bytes
}

/// All four combinations.
pub(crate) fn all_digests() -> [Digests; 4] {
    [0, 1, 2, 3].map(|raw| Digests::from_raw(raw).unwrap())
}
