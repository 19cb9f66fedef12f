//! A controller beside its queues.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use flash_model::{NamespaceKind, Placement, Profile};
use units::Bytes;

use super::*;
use crate::{
    device::{DeviceOptions, NamespaceOptions, Request, tests::on_full_disk},
    serve::send::connected,
};

const BLOCK: usize = 4096;

fn controller(device: &Device) -> Controller {
    Controller::new(
        1,
        false,
        "nqn.2014-08.org.nvmexpress:host",
        [0; 16],
        0,
        device,
    )
}

fn write(device: &Arc<Device>) {
    let request = Request::Write {
        offset: 0,
        data: &[7; BLOCK],
        fua: false,
        placement: Placement::RoundRobin,
    };
    device.account(0, &request).unwrap();
}

#[test]
fn a_write_that_has_seen_the_write_cache_is_durable_once_that_is_disabled() {
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes::mib(1),
    };
    let profile = Profile::builtin("zero").unwrap();
    let device = Device::open(&DeviceOptions::in_memory(profile, &[namespace])).unwrap();
    let controller = controller(&device);
    let (queue, _host) = connected();
    assert!(controller.add_queue(1, &queue));
    let (tell, disabled) = mpsc::channel();
    std::thread::scope(|threads| {
        let held = queue.carry_out().unwrap();
        assert!(controller.settings.write_cache.load(Ordering::Relaxed));
        threads.spawn(|| {
            controller.set_write_cache(false, &device).unwrap();
            tell.send(()).unwrap();
        });
        let _ = disabled.recv_timeout(Duration::from_millis(50));
        write(&device);
        drop(held);
    });
    device.power_cut();
    let mut left = [0; BLOCK];
    device.read_into(0, 0, &mut left).unwrap();
    assert_eq!(left, [7; BLOCK]);
}

#[test]
fn a_shutdown_that_cannot_make_all_durable_is_not_complete() {
    let device = on_full_disk("zero");
    let controller = controller(&device);
    let set =
        |value| controller.set_property(Property::Configuration.raw(), Some(4), value, &device);
    let status = || {
        controller
            .property(Property::Status.raw(), Some(4))
            .unwrap()
    };
    assert!(set(0x0046_0061));
    assert_eq!(status(), u64::from(CSTS_READY));
    write(&device);
    assert!(set(0x0046_4061));
    assert_eq!(status(), u64::from(CSTS_SHUTDOWN_OCCURRING | CSTS_FATAL));
}
