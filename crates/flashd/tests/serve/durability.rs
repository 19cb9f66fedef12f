//! The data that outlives a loss of power.

use flash_model::Profile;
use flashd::device::{Device, DeviceOptions, NamespaceOptions, StoreOptions};
use nvme_initiator::command;
use nvme_wire::{
    Status,
    feature::Feature,
    io::BlockRange,
    vendor::DefragmentMove,
    zone::{ReportFilter, ReportHeader},
};

use crate::target::{BLOCK, CONVENTIONAL, Fixture, pattern};

/// A host that has disabled the write cache sends no flush: all that has ended is durable.
#[test]
fn without_the_write_cache_each_change_is_durable() {
    let fixture = Fixture::new();
    let (mut host, mut queue) = fixture.queue();
    let disable = command::set_features(Feature::VolatileWriteCache.raw(), 0);
    host.run("Set Features", disable, Vec::new(), 0).unwrap();
    let mut run = |what, (command, data)| {
        queue.run(command, data, 0).unwrap().ok(what).unwrap();
    };
    let data = pattern(0, 4, 1);
    run("Write", (command::write(CONVENTIONAL, 0, 4), data.clone()));
    let moves = [DefragmentMove::new(1, 9)];
    run(
        "In_Device_Defragment",
        command::defragment(CONVENTIONAL, &moves),
    );
    let range = BlockRange { start: 2, count: 1 };
    run(
        "Dataset Management",
        command::deallocate(CONVENTIONAL, &[range]),
    );
    let zeroes = command::write_zeroes(CONVENTIONAL, 3, 1);
    run("Write Zeroes", (zeroes, Vec::new()));
    fixture.device.power_cut();
    let block = |at: u64| {
        let mut bytes = vec![0; BLOCK];
        let offset = at * BLOCK as u64;
        let index = CONVENTIONAL as usize - 1;
        fixture.device.read_into(index, offset, &mut bytes).unwrap();
        bytes
    };
    let written = |at: usize| &data[at * BLOCK..][..BLOCK];
    assert!(block(0) == written(0), "written");
    assert!(block(9) == written(1), "moved");
    assert!(block(2) == [0; BLOCK], "deallocated");
    assert!(block(3) == [0; BLOCK], "zeroed");
}

/// FUA of a read: what it reads is on the medium, and stays there.
#[test]
fn a_read_with_fua_makes_durable_what_it_reads() {
    let data = pattern(3, 1, 1);
    for (command, sent, read) in [
        (command::read(CONVENTIONAL, 3, 1), Vec::new(), BLOCK),
        (command::compare(CONVENTIONAL, 3, 1), data.clone(), 0),
        (command::verify(CONVENTIONAL, 3, 1), Vec::new(), 0),
    ] {
        let fixture = Fixture::new();
        let (_host, mut queue) = fixture.queue();
        let write = command::write(CONVENTIONAL, 3, 1);
        let ended = queue.run(write, data.clone(), 0).unwrap();
        ended.ok("Write").unwrap();
        let ended = queue.run(command::with_fua(command), sent, read).unwrap();
        assert_eq!(ended.status, Status::Success);
        fixture.device.power_cut();
        let mut bytes = vec![0; BLOCK];
        let (index, offset) = (CONVENTIONAL as usize - 1, 3 * BLOCK as u64);
        fixture.device.read_into(index, offset, &mut bytes).unwrap();
        assert!(bytes == data, "opcode {:#x}", command.opcode);
    }
}

/// Also what another command writes there before the data is sent.
#[test]
fn a_read_with_fua_shows_only_what_is_durable() {
    let fixture = Fixture::with("fast24", 1000.0);
    let (_host, mut queue) = fixture.queue();
    let read = command::with_fua(command::read(CONVENTIONAL, 3, 1));
    let read = queue.start(read, Vec::new(), BLOCK).unwrap();
    let write = command::write(CONVENTIONAL, 3, 1);
    queue.start(write, pattern(3, 1, 1), 0).unwrap();
    let seen = loop {
        let done = queue.wait().unwrap();
        if done.cid == read {
            break done.ok("Read").unwrap().data;
        }
    };
    fixture.device.power_cut();
    let mut left = vec![0; BLOCK];
    let (index, offset) = (CONVENTIONAL as usize - 1, 3 * BLOCK as u64);
    fixture.device.read_into(index, offset, &mut left).unwrap();
    assert!(left == seen);
}

/// Zones of which nothing is known are not told as empty.
#[test]
fn a_namespace_out_of_service_has_no_report_of_its_zones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let profile = Profile::builtin("zero").unwrap();
    let namespace = NamespaceOptions::zones(&profile, 2);
    let mut options = DeviceOptions::in_memory(profile, &[namespace]);
    options.store = StoreOptions::sparse_file(&path);
    drop(Device::open(&options).unwrap());
    let report = |expected| {
        let fixture = Fixture::of(Device::open(&options).unwrap());
        let (host, mut queue) = fixture.queue();
        let len = ReportHeader::LEN + 2 * 64;
        let report = command::zone_report(1, 0, len, ReportFilter::All, false);
        assert_eq!(queue.run(report, Vec::new(), len).unwrap().status, expected);
        drop((host, queue));
        fixture.wait_until_idle();
        let Fixture { device, target } = fixture;
        drop(target);
        while std::sync::Arc::strong_count(&device) > 1 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    report(Status::Success);
    // Somebody cuts its end off the file.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    report(Status::UnrecoveredRead);
}
