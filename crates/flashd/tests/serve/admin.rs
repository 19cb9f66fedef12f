//! Queries, settings and events of a host on the admin queue.

use std::{fs::OpenOptions, time::Duration};

use crate::target::{BLOCK, CONVENTIONAL, CONVENTIONAL_BLOCKS, Fixture, ZONED, pattern};
use flash_model::{NamespaceKind, Profile, ZoneAction};
use flashd::device::{Device, DeviceOptions, NamespaceOptions, Request, StoreOptions};
use nvme_initiator::{Host, HostOptions, command};
use nvme_wire::{
    Status,
    discovery::{DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader},
    event::AsyncEvent,
    feature::{Feature, Timestamp},
    identify::{Controller, IndependentNamespace, Namespace, ZonedNamespace},
    io::WriteHint,
    log::{EFFECT_CONTENT, EFFECT_SUPPORTED, Effects, ErrorEntry, LogPage, Smart},
    nqn_of,
    pdu::Digests,
    property::Property,
    vendor::{DieEntry, GEOMETRY_MAGIC, GeometryLog, NamespaceEntry},
};
use units::Bytes;
use zerocopy::{FromBytes, IntoBytes};

fn status(host: &mut Host, command: nvme_wire::Submission, read: usize) -> Status {
    host.admin().run(command, Vec::new(), read).unwrap().status
}

#[test]
fn discovery_says_where_the_subsystem_is() {
    let fixture = Fixture::new();
    let address = fixture.target.address();
    let mut host = Host::connect(address, HostOptions::new(DISCOVERY_NQN)).unwrap();
    let controller: Controller = host.identify_as(0, 1, 0).unwrap();
    assert_eq!(controller.controller_type, 2);
    assert_eq!(nqn_of(&controller.subsystem), Some(DISCOVERY_NQN));
    let page = host.log(0, LogPage::Discovery.raw(), 0, 3 * 1024).unwrap();
    let header = DiscoveryHeader::first_of(&page).unwrap();
    assert_eq!(header.records.get(), 2);
    let entry = DiscoveryEntry::read_from_bytes(&page[2048..]).unwrap();
    assert_eq!(nqn_of(&entry.subsystem), Some(fixture.target.nqn()));
    let service = String::from_utf8_lossy(&entry.service);
    assert_eq!(service.trim_end(), address.port().to_string());
    // Only an I/O controller has these.
    let refused = status(&mut host, command::identify(1, 0, 0), 4096);
    assert_eq!(refused, Status::InvalidField);
    let refused = status(&mut host, command::get_log(0, 2, 0, 0, 512), 512);
    assert_eq!(refused, Status::InvalidLogPage);
    assert!(host.queue(1, 8).is_err());
}

#[test]
fn identify_describes_what_there_is() {
    let fixture = Fixture::new();
    let mut host = fixture.host(Digests::default());
    let (zone, _) = fixture.zone();
    let controller: Controller = host.identify_as(0, 1, 0).unwrap();
    assert_eq!(controller.controller_id.get(), host.controller());
    assert_eq!(nqn_of(&controller.subsystem), Some(fixture.target.nqn()));
    assert!(controller.command_capsule.get() >= 4 && controller.keep_alive_granularity.get() > 0);
    assert_eq!(controller.namespaces.get(), 2);
    assert_eq!(controller.write_cache & 1, 1);
    // Several controllers may share the namespaces.
    assert_eq!(controller.multipath, 1 << 1);

    let flat: Namespace = host.identify_as(CONVENTIONAL, 0, 0).unwrap();
    assert_eq!(flat.size.get(), CONVENTIONAL_BLOCKS);
    assert_eq!(flat.lba_formats[0].block_shift, 12);
    let zoned: Namespace = host.identify_as(ZONED, 0, 0).unwrap();
    assert_eq!(zoned.size.get(), 8 * zone);
    let zns: ZonedNamespace = host.identify_as(ZONED, 5, 2).unwrap();
    assert_eq!(zns.lba_formats[0].zone_size.get(), zone);
    let independent: IndependentNamespace = host.identify_as(ZONED, 8, 0).unwrap();
    assert_eq!(independent.status & 1, 1);
    let ids = |page: &[u8]| {
        let (words, _) = page.as_chunks::<4>();
        let ids = words.iter().map(|id| u32::from_le_bytes(*id));
        ids.take_while(|&id| id != 0).collect::<Vec<_>>()
    };
    assert_eq!(ids(&host.identify(0, 2, 0).unwrap()), [1, 2]);
    assert_eq!(ids(&host.identify(1, 2, 0).unwrap()), [2]);
    assert_eq!(ids(&host.identify(0, 7, 2).unwrap()), [ZONED]);
    assert_eq!(ids(&host.identify(0, 7, 0).unwrap()), [CONVENTIONAL]);
    // A discovery controller is none of the subsystem's.
    let _discovery =
        Host::connect(fixture.target.address(), HostOptions::new(DISCOVERY_NQN)).unwrap();
    for (nsid, cns) in [(CONVENTIONAL, 0x12), (0, 0x13)] {
        let page = host.identify(nsid, cns, 0).unwrap();
        let [low, high] = host.controller().to_le_bytes();
        assert_eq!(page[..6], [1, 0, low, high, 0, 0], "{cns:x}");
    }
    let descriptors = host.identify(ZONED, 3, 0).unwrap();
    // NGUID, UUID, and the I/O command set that Linux insists on.
    assert_eq!(
        (descriptors[0], descriptors[20], descriptors[40]),
        (2, 3, 4)
    );
    assert_eq!((descriptors[41], descriptors[44]), (1, 2));
    for (command, expected) in [
        (command::identify(9, 0, 0), Status::InvalidNamespace),
        (command::identify(9, 3, 0), Status::InvalidNamespace),
        (command::identify(9, 0x12, 0), Status::InvalidNamespace),
        (
            command::identify(CONVENTIONAL, 5, 2),
            Status::InvalidCommandSet,
        ),
        (command::identify(ZONED, 5, 1), Status::InvalidField),
        (command::identify(0, 0x55, 0), Status::InvalidField),
        (command::identify(u32::MAX, 2, 0), Status::InvalidNamespace),
    ] {
        assert_eq!(status(&mut host, command, 4096), expected, "{command:?}");
    }
    let other = status(&mut host, command::property_get(0x30, 4), 0);
    assert_eq!(other, Status::InvalidField);
    assert_eq!(host.property(Property::Version, 4).unwrap(), 0x2_0000);
}

/// Linux takes the time until a controller is ready from there, as version 2.0 has it.
#[test]
fn a_controller_is_ready_with_its_media() {
    let fixture = Fixture::new();
    let mut host = fixture.host(Digests::default());
    let capabilities = host.property(Property::Capabilities, 8).unwrap();
    assert_eq!(capabilities >> 59 & 0b11, 0b01, "CRMS");
    let timeouts = host.property(Property::ReadyTimeouts, 4).unwrap();
    assert_eq!(timeouts, capabilities >> 24 & 0xFF, "CRWMT and TO");
    // CRIME cannot be set.
    host.set_property(Property::Configuration, 0x0146_0061)
        .unwrap();
    let configuration = host.property(Property::Configuration, 4).unwrap();
    assert_eq!(configuration, 0x0046_0061);
}

#[test]
fn wear_and_use_are_what_the_model_has() {
    let text = Profile::builtin_text("zero").unwrap();
    let rated = text.replace("endurance = { value = 0", "endurance = { value = 5");
    assert_ne!(rated, text);
    let fixture = Fixture::of_profile(Profile::parse("rated", &rated).unwrap(), 1.0);
    let mut host = fixture.host(Digests::default());
    let in_use = |host: &mut Host, nsid| {
        let page: Namespace = host.identify_as(nsid, 0, 0).unwrap();
        page.in_use.get()
    };
    let used = |host: &mut Host| {
        let page = host.log(u32::MAX, 2, 0, 512).unwrap();
        Smart::first_of(&page).unwrap().used
    };
    assert_eq!(
        (in_use(&mut host, ZONED), in_use(&mut host, CONVENTIONAL)),
        (0, 0)
    );
    let mut queue = host.queue(1, 8).unwrap();
    let mut write = |nsid, blocks| {
        let write = command::write(nsid, 0, blocks);
        let data = pattern(0, blocks as usize, 1);
        queue.run(write, data, 0).unwrap().ok("Write").unwrap();
    };
    write(CONVENTIONAL, 16);
    write(CONVENTIONAL, 8);
    assert_eq!(in_use(&mut host, CONVENTIONAL), 16);
    let reset = Request::Zone {
        start: 0,
        all: false,
        action: ZoneAction::Reset,
    };
    for round in 1..=32 {
        write(ZONED, 3);
        assert_eq!(in_use(&mut host, ZONED), 3);
        fixture.device.account(0, &reset).unwrap();
        // One of 8 zones was erased, and each may be 5 times.
        assert_eq!(u32::from(used(&mut host)), round * 100 / 40);
    }
    for _ in 32..200 {
        write(ZONED, 1);
        fixture.device.account(0, &reset).unwrap();
    }
    assert_eq!(used(&mut host), 255);
}

#[test]
fn log_pages_tell_what_was_done() {
    let fixture = Fixture::with("fast24", 1.0);
    let mut host = fixture.host(Digests::default());
    let mut queue = host.queue(1, 8).unwrap();
    let write = command::write(CONVENTIONAL, 0, 16);
    queue
        .run(write, pattern(0, 16, 1), 0)
        .unwrap()
        .ok("Write")
        .unwrap();
    queue
        .run(command::flush(CONVENTIONAL), Vec::new(), 0)
        .unwrap();
    // A write that is refused is none.
    let ahead = queue.run(command::write(ZONED, 1, 1), pattern(1, 1, 1), 0);
    assert_eq!(ahead.unwrap().status, Status::ZoneInvalidWrite);
    let beyond = command::read(CONVENTIONAL, CONVENTIONAL_BLOCKS, 1);
    queue.run(beyond, Vec::new(), BLOCK).unwrap();

    let smart = Smart::first_of(&host.log(u32::MAX, 2, 0, 512).unwrap()).unwrap();
    assert_eq!(
        (
            smart.critical_warning,
            smart.writes[0],
            smart.error_entries[0]
        ),
        (0, 1, 2)
    );
    let error = ErrorEntry::first_of(&host.log(0, 1, 0, 64).unwrap()).unwrap();
    assert_eq!(
        (error.queue.get(), error.lba.get()),
        (1, CONVENTIONAL_BLOCKS)
    );
    assert_eq!(
        Status::from_field(error.status.get()),
        Status::LbaOutOfRange
    );
    for (set, appends) in [(0, false), (2, true)] {
        let effects = Effects::first_of(&host.log(0, 5, set, 4096).unwrap()).unwrap();
        let supported = |opcode: usize| effects.io[opcode].get() & EFFECT_SUPPORTED != 0;
        assert_eq!((supported(0x7D), supported(0x01)), (appends, true));
        let vendor = effects.io[0xC1].get();
        assert_eq!(vendor, EFFECT_SUPPORTED | EFFECT_CONTENT);
    }
    // A read of a part of a page returns that part.
    let whole = host.log(0, LogPage::Geometry.raw(), 0, 4096).unwrap();
    let part = command::get_log(0, LogPage::Geometry.raw(), 0, 32, 64);
    let part = host.run("Get Log Page", part, Vec::new(), 64).unwrap().data;
    assert_eq!(part, whole[32..96]);
    for (command, expected) in [
        (command::get_log(0, 0x0D, 0, 0, 512), Status::InvalidLogPage),
        // OCP's SMART page, which this device does not have.
        (command::get_log(0, 0xC0, 0, 0, 512), Status::InvalidLogPage),
        (command::get_log(0, 2, 0, 2, 512), Status::InvalidField),
        (command::get_log(0, 2, 0, 4096, 512), Status::InvalidField),
        (command::get_log(ZONED, 2, 0, 0, 512), Status::InvalidField),
        (command::get_log(0, 5, 1, 0, 512), Status::InvalidField),
    ] {
        assert_eq!(status(&mut host, command, 512), expected);
    }

    let geometry = GeometryLog::first_of(&whole).unwrap();
    let of = fixture.device.geometry();
    assert_eq!(geometry.magic, GEOMETRY_MAGIC);
    assert_eq!(geometry.channels.get(), of.channels);
    assert_eq!(geometry.unit.get(), of.unit.get());
    assert_eq!(geometry.host_written_bytes.get(), 16 * BLOCK as u64);
    assert!(geometry.programmed_bytes.get() > 0);
    let dies_at = geometry.dies_at.get() as usize;
    let busy: u64 = whole[dies_at..]
        .chunks(DieEntry::LEN)
        .take(of.dies() as usize)
        .map(|bytes| DieEntry::read_from_bytes(bytes).unwrap().busy_ns.get())
        .sum();
    assert!(busy > 0);
    let entry = NamespaceEntry::first_of(&whole[geometry.namespaces_at.get() as usize..]).unwrap();
    assert_eq!((entry.nsid.get(), entry.zoned), (ZONED, 1));
    assert_eq!(entry.zone_size.get(), of.zone.size.get());
    assert_eq!(
        geometry.len.get() as usize,
        geometry.namespaces_at.get() as usize + 128
    );
}

#[test]
fn features_can_be_set_and_end_with_a_reset() {
    let fixture = Fixture::new();
    let mut host = fixture.host(Digests::default());
    let get = |host: &mut Host, feature: Feature, select| {
        let command = command::get_features(feature.raw(), select, 0);
        let done = host.run("Get Features", command, Vec::new(), 0).unwrap();
        done.result
    };
    let set = |host: &mut Host, feature: Feature, value| {
        status(host, command::set_features(feature.raw(), value), 0)
    };
    for (feature, value) in [
        (Feature::DieHints, 1),
        (Feature::AsyncEventConfiguration, 0x100),
        (Feature::KeepAliveTimer, 60_000),
    ] {
        let before = get(&mut host, feature, 0);
        assert_eq!(set(&mut host, feature, value), Status::Success);
        assert_eq!(get(&mut host, feature, 0), u64::from(value));
        assert_eq!(get(&mut host, feature, 1), before);
        assert_eq!(get(&mut host, feature, 3), 0b100, "changeable");
    }
    let timestamp = Timestamp::new(1_000_000_000_000, true);
    let command = command::set_features(Feature::Timestamp.raw(), 0);
    let data = timestamp.as_bytes().to_vec();
    host.run("Set Features", command, data, 0).unwrap();
    let command = command::get_features(Feature::Timestamp.raw(), 0, 0);
    let data = host
        .run("Get Features", command, Vec::new(), 8)
        .unwrap()
        .data;
    let now = Timestamp::first_of(&data).unwrap().get();
    assert!((1_000_000_000_000..1_000_000_060_000).contains(&now));

    assert_eq!(set(&mut host, Feature::DieHints, 2), Status::InvalidField);
    assert_eq!(
        set(&mut host, Feature::Unknown(0x44), 0),
        Status::InvalidField
    );
    assert_eq!(
        set(&mut host, Feature::ErrorRecovery, 1),
        Status::FeatureNotChangeable
    );
    let mut save = command::set_features(Feature::DieHints.raw(), 1);
    save.cdw10.set(save.cdw10.get() | 1 << 31);
    assert_eq!(status(&mut host, save, 0), Status::FeatureNotSaveable);
    assert_eq!(host.ask_queues(3).unwrap(), 3);
    let mut queue = host.queue(1, 8).unwrap();
    assert_eq!(
        set(&mut host, Feature::NumberOfQueues, 0x0001_0001),
        Status::SequenceError
    );
    // A hint that names a block past the end is no reason to fail.
    let hint = WriteHint::After {
        predecessor: u64::MAX,
    };
    let hinted = command::write_hinted(CONVENTIONAL, 0, 1, hint);
    queue
        .run(hinted, pattern(0, 1, 1), 0)
        .unwrap()
        .ok("Write")
        .unwrap();

    host.set_property(Property::Configuration, 0).unwrap();
    assert_eq!(host.property(Property::Status, 4).unwrap(), 0);
    assert!(
        queue
            .run(command::flush(1), Vec::new(), 0)
            .unwrap_err()
            .is_disconnect()
    );
    let early = status(&mut host, command::identify(0, 1, 0), 4096);
    assert_eq!(early, Status::SequenceError);
    host.set_property(Property::Configuration, 0x0046_0061)
        .unwrap();
    assert_eq!(get(&mut host, Feature::DieHints, 0), 0);
    host.set_property(Property::Configuration, 0x0046_4061)
        .unwrap();
    assert_eq!(
        host.property(Property::Status, 4).unwrap() >> 2 & 0b11,
        0b10,
        "shut down"
    );
}

#[test]
fn requests_for_events_can_be_aborted_and_are_limited() {
    let fixture = Fixture::new();
    let mut host = fixture.host(Digests::default());
    let admin = host.admin();
    let first = admin
        .start(command::event_request(), Vec::new(), 0)
        .unwrap();
    for _ in 0..3 {
        admin
            .start(command::event_request(), Vec::new(), 0)
            .unwrap();
    }
    admin
        .start(command::event_request(), Vec::new(), 0)
        .unwrap();
    assert_eq!(admin.wait().unwrap().status, Status::EventLimitExceeded);
    let abort = admin
        .start(command::abort(0, first), Vec::new(), 0)
        .unwrap();
    let aborted = admin.wait().unwrap();
    assert_eq!(
        (aborted.cid, aborted.status),
        (first, Status::AbortRequested)
    );
    let done = admin.wait().unwrap();
    assert_eq!(
        (done.cid, done.status, done.result),
        (abort, Status::Success, 0)
    );
    // A command that does not exist.
    admin.start(command::abort(0, 999), Vec::new(), 0).unwrap();
    assert_eq!(admin.wait().unwrap().result, 1);
}

#[test]
fn a_protected_buffer_is_no_volatile_cache() {
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes::mib(16),
    };
    let profile = Profile::builtin("zn540").unwrap();
    let options = DeviceOptions::in_memory(profile, &[namespace]);
    let fixture = Fixture::of(Device::open(&options).unwrap());
    let mut host = fixture.host(Digests::default());
    let controller: Controller = host.identify_as(0, 1, 0).unwrap();
    assert_eq!(controller.write_cache & 1, 0);
    let feature = command::get_features(Feature::VolatileWriteCache.raw(), 0, 0);
    assert_eq!(status(&mut host, feature, 0), Status::InvalidField);
    let page = LogPage::FeatureEffects.raw();
    let effects = host.log(0, page, 0, 1024).unwrap();
    let supported = |of: Feature| effects[usize::from(of.raw()) * 4] & 1;
    let both = [Feature::VolatileWriteCache, Feature::NumberOfQueues];
    assert_eq!(both.map(supported), [0, 1]);
}

#[test]
fn trouble_with_a_namespace_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes::mib(16),
    };
    let profile = Profile::builtin("zero").unwrap();
    let options = DeviceOptions {
        store: StoreOptions::sparse_file(&path),
        write_cache: Some(Bytes::ZERO),
        ..DeviceOptions::in_memory(profile, &[namespace, namespace])
    };
    let fixture = Fixture::of(Device::open(&options).unwrap());
    let mut host = fixture.host(Digests::default());
    let mut queue = host.queue(1, 8).unwrap();
    for nsid in [1, 2] {
        let write = command::write(nsid, 0, 1);
        queue
            .run(write, pattern(0, 1, 1), 0)
            .unwrap()
            .ok("Write")
            .unwrap();
    }
    let enable = command::set_features(Feature::AsyncEventConfiguration.raw(), 0x1FF);
    host.run("Set Features", enable, Vec::new(), 0).unwrap();
    let admin = host.admin();
    for _ in 0..2 {
        admin
            .start(command::event_request(), Vec::new(), 0)
            .unwrap();
    }
    admin.flush().unwrap();
    // Somebody cuts the second namespace's part off the file.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    // The superblocks, and the first one's part.
    file.set_len((1 + 16) << 20).unwrap();
    let read = command::read(2, 0, 1);
    let failed = queue.run(read, Vec::new(), BLOCK).unwrap();
    assert_eq!(failed.status, Status::UnrecoveredRead);
    let mut events: Vec<u64> = (0..2).map(|_| admin.wait().unwrap().result).collect();
    events.sort_unstable();
    let mut expected =
        [AsyncEvent::NamespaceChanged, AsyncEvent::Reliability].map(|e| u64::from(e.result()));
    expected.sort_unstable();
    assert_eq!(events, expected);
    let changed = host
        .log(0, LogPage::ChangedNamespaces.raw(), 0, 4096)
        .unwrap();
    assert_eq!(changed[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    let smart = Smart::first_of(&host.log(0, 2, 0, 512).unwrap()).unwrap();
    assert_ne!(smart.critical_warning, 0);
    let failed = queue
        .run(command::read(2, 0, 1), Vec::new(), BLOCK)
        .unwrap();
    assert_eq!(failed.status, Status::UnrecoveredRead, "still");
    // The other one goes on.
    let read = command::read(1, 0, 1);
    let data = queue
        .run(read, Vec::new(), BLOCK)
        .unwrap()
        .ok("Read")
        .unwrap()
        .data;
    assert!(data == pattern(0, 1, 1));
}

#[test]
fn a_power_cut_ends_connections_and_keeps_what_was_flushed() {
    let fixture = Fixture::new();
    let (_host, mut queue) = fixture.queue();
    let write = |queue: &mut nvme_initiator::Queue, at, seed| {
        let command = command::write(CONVENTIONAL, at, 4);
        queue
            .run(command, pattern(at, 4, seed), 0)
            .unwrap()
            .ok("Write")
            .unwrap();
    };
    write(&mut queue, 0, 1);
    queue
        .run(command::flush(CONVENTIONAL), Vec::new(), 0)
        .unwrap()
        .ok("Flush")
        .unwrap();
    write(&mut queue, 0, 2);
    fixture.device.power_cut();
    let lost = queue.run(command::flush(CONVENTIONAL), Vec::new(), 0);
    assert!(lost.unwrap_err().is_disconnect());
    std::thread::sleep(Duration::from_millis(10));
    let (_host, mut queue) = fixture.queue();
    let read = command::read(CONVENTIONAL, 0, 4);
    let data = queue
        .run(read, Vec::new(), 4 * BLOCK)
        .unwrap()
        .ok("Read")
        .unwrap()
        .data;
    assert!(data == pattern(0, 4, 1), "what was flushed");
}
