//! What SMART tells after a restart.

use std::sync::Arc;

use flash_model::{NamespaceKind, Profile};
use flashd::device::{Device, DeviceOptions, NamespaceOptions, StoreOptions};
use nvme_initiator::command;
use nvme_wire::log::Smart;
use units::Bytes;

use crate::target::{BLOCK, Fixture, pattern};

#[test]
fn smart_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes::mib(16),
    };
    let profile = Profile::builtin("zero").unwrap();
    let mut options = DeviceOptions::in_memory(profile, &[namespace]);
    options.store = StoreOptions::sparse_file(&folder.path().join("store"));
    let low = |counter: [u8; 16]| u128::from_le_bytes(counter);
    for start in 1..=3 {
        let fixture = Fixture::of(Device::open(&options).unwrap());
        {
            let (mut host, mut queue) = fixture.queue();
            for at in 0..2 {
                let write = command::write(1, at, 1);
                let ended = queue.run(write, pattern(at, 1, 1), 0);
                ended.unwrap().ok("Write").unwrap();
            }
            let ended = queue.run(command::read(1, 0, 1), Vec::new(), BLOCK);
            ended.unwrap().ok("Read").unwrap();
            let smart = Smart::first_of(&host.log(u32::MAX, 2, 0, 512).unwrap()).unwrap();
            assert_eq!(
                (low(smart.writes), low(smart.reads)),
                (2 * start, start),
                "start {start}"
            );
            assert_eq!((low(smart.units_written), low(smart.units_read)), (1, 1));
            assert_eq!(low(smart.power_cycles), start);
            assert_eq!(low(smart.unsafe_shutdowns), 0);
        }
        fixture.wait_until_idle();
        let Fixture { device, target } = fixture;
        drop(target);
        device.close().unwrap();
        // A thread may still be on its way out.
        while Arc::strong_count(&device) > 1 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
