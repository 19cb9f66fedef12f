//! Flexible Data Placement, as nvme-cli (`nvme fdp`) and Linux ask for it.

use nvme_initiator::{Done, Host, Queue, command};
use nvme_wire::{
    Status, Submission,
    fdp::{
        CONFIGURATION_VALID, Configuration, ConfigurationsHeader, EVENT_HAS_LOCATION, EventKind,
        EventsHeader, FdpEvent, HANDLE_INITIALLY_ISOLATED, HandleDescriptor, HandleStatus,
        LSP_HOST_EVENTS, Statistics, StatusHeader, SupportedEvent, USED_BY_HOST, Usage,
        UsageHeader,
    },
    feature::Feature,
    identify::{CTRATT_ENDURANCE_GROUPS, CTRATT_FDP, Controller, IndependentNamespace, Namespace},
    io::WriteHint,
    log::{EFFECT_SUPPORTED, Effects, LogPage},
    opcode::IoOpcode,
    pdu::Digests,
};
use zerocopy::FromBytes;

use crate::target::{BLOCK, CONVENTIONAL, Fixture, ZONED, all_digests, pattern};

const GROUP: u16 = 1;
const HANDLES: usize = 8;
/// A flash block of both planes on each die, in blocks of the namespace.
const UNIT_BLOCKS: u64 = (48 * 8 * (32 << 10)) / BLOCK as u64;

fn log(host: &mut Host, page: LogPage, specific: u8, len: usize) -> Done {
    let command = command::get_group_log(GROUP, page.raw(), specific, len);
    host.admin().run(command, Vec::new(), len).unwrap()
}

fn handle_status(queue: &mut Queue, nsid: u32) -> Done {
    let len = StatusHeader::LEN + HANDLES * HandleStatus::LEN;
    let command = command::handle_status(nsid, len);
    queue.run(command, Vec::new(), len).unwrap()
}

/// Blocks that the reclaim unit of each handle still takes.
fn available(queue: &mut Queue) -> Vec<u64> {
    let data = handle_status(queue, CONVENTIONAL)
        .ok("status")
        .unwrap()
        .data;
    let header = StatusHeader::first_of(&data).unwrap();
    assert_eq!(usize::from(header.handles.get()), HANDLES);
    let entries = data[StatusHeader::LEN..].chunks(HandleStatus::LEN);
    let entries = entries.map(|bytes| HandleStatus::read_from_bytes(bytes).unwrap());
    (0..)
        .zip(entries)
        .map(|(id, entry)| {
            assert_eq!((entry.placement_id.get(), entry.handle.get()), (id, id));
            entry.available_blocks.get()
        })
        .collect()
}

fn write_placed(queue: &mut Queue, start: u64, count: usize, id: u16) {
    let hint = WriteHint::Placement { id };
    let command = command::write_hinted(CONVENTIONAL, start, count as u32, hint);
    let done = queue.run(command, pattern(start, count, 1), 0).unwrap();
    assert_eq!(done.status, Status::Success);
}

fn events(host: &mut Host, specific: u8) -> Vec<FdpEvent> {
    let len = EventsHeader::LEN + 8 * FdpEvent::LEN;
    let data = log(host, LogPage::FdpEvents, specific, len)
        .ok("events")
        .unwrap()
        .data;
    let count = EventsHeader::first_of(&data).unwrap().events.get() as usize;
    let entries = data[EventsHeader::LEN..].chunks(FdpEvent::LEN).take(count);
    entries
        .map(|bytes| FdpEvent::read_from_bytes(bytes).unwrap())
        .collect()
}

#[test]
fn the_configuration_is_where_hosts_look_for_it() {
    let fixture = Fixture::with("fdp", 1.0);
    let mut host = fixture.host(Digests::default());
    let controller: Controller = host.identify_as(0, 1, 0).unwrap();
    let both = CTRATT_ENDURANCE_GROUPS | CTRATT_FDP;
    assert_eq!(controller.attributes.get() & both, both);
    assert_eq!(controller.max_endurance_group.get(), GROUP);
    let group = |host: &mut Host, nsid| {
        let namespace: Namespace = host.identify_as(nsid, 0, 0).unwrap();
        let independent: IndependentNamespace = host.identify_as(nsid, 8, 0).unwrap();
        assert_eq!(independent.endurance_group, namespace.endurance_group);
        namespace.endurance_group.get()
    };
    assert_eq!(
        (group(&mut host, CONVENTIONAL), group(&mut host, ZONED)),
        (GROUP, 0)
    );
    assert_eq!(host.identify(0, 0x19, 0).unwrap()[..4], [1, 0, 1, 0]);

    let size = ConfigurationsHeader::LEN + Configuration::LEN + HANDLES * HandleDescriptor::LEN;
    let page = log(&mut host, LogPage::FdpConfigurations, 0, size)
        .ok("log")
        .unwrap()
        .data;
    let header = ConfigurationsHeader::first_of(&page).unwrap();
    assert_eq!(
        (header.configurations.get(), header.size.get()),
        (0, size as u32)
    );
    let rest = &page[ConfigurationsHeader::LEN..];
    let configuration = Configuration::first_of(rest).unwrap();
    assert_eq!(
        usize::from(configuration.size.get()),
        size - ConfigurationsHeader::LEN
    );
    assert_eq!(
        configuration.attributes & CONFIGURATION_VALID,
        CONFIGURATION_VALID
    );
    assert_eq!(configuration.groups.get(), 1);
    assert_eq!(usize::from(configuration.handles.get()), HANDLES);
    assert_eq!(
        usize::from(configuration.max_placement_ids.get()),
        HANDLES - 1
    );
    assert_eq!(configuration.unit_size.get(), UNIT_BLOCKS * BLOCK as u64);
    let kinds = rest[Configuration::LEN..].chunks(HandleDescriptor::LEN);
    assert!(kinds.clone().all(|it| it[0] == HANDLE_INITIALLY_ISOLATED) && kinds.len() == HANDLES);

    let size = UsageHeader::LEN + HANDLES * Usage::LEN;
    let page = log(&mut host, LogPage::ReclaimUnitHandleUsage, 0, size)
        .ok("log")
        .unwrap()
        .data;
    assert_eq!(page[..2], [HANDLES as u8, 0]);
    assert!(page[8..].chunks(8).all(|it| it[0] == USED_BY_HOST));

    let fdp = Feature::FlexibleDataPlacement.raw();
    let mut run = |command: Submission| host.admin().run(command, Vec::new(), 0).unwrap();
    let enabled = run(command::get_features(fdp, 0, GROUP.into()))
        .ok("get")
        .unwrap();
    assert_eq!(enabled.result, 1);
    let mut set = command::set_features(fdp, GROUP.into());
    // There are namespaces: it cannot be disabled.
    assert_eq!(run(set).status, Status::SequenceError);
    set.cdw12 = 1.into();
    assert_eq!(run(set).status, Status::Success);
    assert_eq!(
        run(command::get_features(fdp, 0, 2)).status,
        Status::InvalidField
    );
    let len = Statistics::LEN;
    let wrong_group = command::get_group_log(2, LogPage::FdpStatistics.raw(), 0, len);
    let done = host.admin().run(wrong_group, Vec::new(), len).unwrap();
    assert_eq!(done.status, Status::InvalidField);
    let page = host
        .log(0, LogPage::Effects.raw(), 0, Effects::LEN)
        .unwrap();
    let effects = Effects::first_of(&page).unwrap();
    for opcode in [IoOpcode::IoManagementReceive, IoOpcode::IoManagementSend] {
        assert_eq!(
            effects.io[usize::from(opcode.raw())].get(),
            EFFECT_SUPPORTED
        );
    }
}

#[test]
fn without_handles_there_is_no_data_placement() {
    let fixture = Fixture::new();
    let (mut host, mut queue) = fixture.queue();
    let controller: Controller = host.identify_as(0, 1, 0).unwrap();
    assert_eq!(
        controller.attributes.get() & (CTRATT_ENDURANCE_GROUPS | CTRATT_FDP),
        0
    );
    for (page, expected) in [
        (LogPage::FdpConfigurations, Status::InvalidLogPage),
        (LogPage::ReclaimUnitHandleUsage, Status::FdpDisabled),
        (LogPage::FdpEvents, Status::FdpDisabled),
    ] {
        assert_eq!(log(&mut host, page, 0, 64).status, expected);
    }
    let get = command::get_features(Feature::FlexibleDataPlacement.raw(), 0, GROUP.into());
    let done = host.admin().run(get, Vec::new(), 0).unwrap();
    assert_eq!(done.status, Status::InvalidField);
    assert_eq!(
        handle_status(&mut queue, CONVENTIONAL).status,
        Status::FdpDisabled
    );
    let hint = WriteHint::Placement { id: 0 };
    let write = command::write_hinted(CONVENTIONAL, 0, 4, hint);
    let refused = queue.run(write, pattern(0, 4, 1), 0).unwrap();
    assert_eq!(refused.status, Status::InvalidField);
}

#[test]
fn writes_fill_the_unit_of_their_handle_until_it_is_renewed() {
    let fixture = Fixture::with("fdp", 1.0);
    let (mut host, mut queue) = fixture.queue();
    assert_eq!(available(&mut queue), [UNIT_BLOCKS; HANDLES]);
    write_placed(&mut queue, 100, 16, 5);
    write_placed(&mut queue, 200, 4, 5);
    // Without a directive, and with one that is invalid, it is the first handle.
    let plain = command::write(CONVENTIONAL, 0, 8);
    assert_eq!(
        queue.run(plain, pattern(0, 8, 1), 0).unwrap().status,
        Status::Success
    );
    write_placed(&mut queue, 300, 1, HANDLES as u16);
    let mut expected = [UNIT_BLOCKS; HANDLES];
    (expected[5], expected[0]) = (UNIT_BLOCKS - 20, UNIT_BLOCKS - 9);
    assert_eq!(available(&mut queue), expected);

    // One that is named twice is renewed once.
    let (update, data) = command::handle_update(CONVENTIONAL, &[5, 1, 5]);
    assert_eq!(queue.run(update, data, 0).unwrap().status, Status::Success);
    expected[5] = UNIT_BLOCKS;
    assert_eq!(available(&mut queue), expected);
    // One that is invalid, and none is renewed.
    let (update, data) = command::handle_update(CONVENTIONAL, &[0; HANDLES + 1]);
    let longer = queue.run(update, data, 0).unwrap();
    assert_eq!(longer.status, Status::InvalidField);
    let (update, data) = command::handle_update(CONVENTIONAL, &[0, 8]);
    assert_eq!(
        queue.run(update, data, 0).unwrap().status,
        Status::InvalidField
    );
    assert_eq!(available(&mut queue), expected);
    let zoned = handle_status(&mut queue, ZONED);
    assert_eq!(zoned.status, Status::FdpDisabled);
    // The data is where it was.
    let read = command::read(CONVENTIONAL, 100, 16);
    let done = queue.run(read, Vec::new(), 16 * BLOCK).unwrap();
    assert!(done.ok("Read").unwrap().data == pattern(100, 16, 1));

    let found = events(&mut host, LSP_HOST_EVENTS);
    let kinds: Vec<_> = found
        .iter()
        .map(|event| EventKind::from_raw(event.kind))
        .collect();
    assert_eq!(
        kinds,
        [EventKind::InvalidPlacementId, EventKind::NotFullyWritten]
    );
    assert_eq!(found[0].placement_id.get(), HANDLES as u16);
    assert_eq!((found[1].placement_id.get(), found[1].handle), (5, 5));
    assert_eq!(found[1].flags & EVENT_HAS_LOCATION, EVENT_HAS_LOCATION);
    assert!(
        found
            .iter()
            .all(|event| event.nsid.get() == CONVENTIONAL && event.time.get() > 0)
    );
    assert_eq!(events(&mut host, 0), []);

    let data = log(&mut host, LogPage::FdpStatistics, 0, Statistics::LEN)
        .ok("log")
        .unwrap()
        .data;
    let statistics = Statistics::first_of(&data).unwrap();
    let number = |bytes: [u8; 16]| u128::from_le_bytes(bytes);
    assert_eq!(number(statistics.host_written), 29 * BLOCK as u128);
}

#[test]
fn events_are_reported_where_they_are_enabled() {
    let fixture = Fixture::with("fdp", 1.0);
    // A result beside data, with and without digests.
    for digests in all_digests() {
        let mut host = fixture.host(digests);
        let mut queue = host.queue(1, 8).unwrap();
        let events_of = |handle: u32, count: u32| handle | count << 16;
        let mut get = command::get_features(Feature::FdpEvents.raw(), 0, events_of(2, 4));
        get.nsid = CONVENTIONAL.into();
        let enabled = |host: &mut Host| {
            let done = host
                .admin()
                .run(get, Vec::new(), 4 * SupportedEvent::LEN)
                .unwrap();
            let done = done.ok("get").unwrap();
            assert_eq!(done.result, 2);
            let events = done.data.chunks(2).take(2);
            events
                .map(|it| (EventKind::from_raw(it[0]), it[1] == 1))
                .collect::<Vec<_>>()
        };
        let (unfilled, invalid) = (EventKind::NotFullyWritten, EventKind::InvalidPlacementId);
        assert_eq!(enabled(&mut host), [(unfilled, true), (invalid, true)]);
        let set = |host: &mut Host, enable: u32, kind: EventKind| {
            let mut set = command::set_features(Feature::FdpEvents.raw(), events_of(2, 1));
            (set.nsid, set.cdw12) = (CONVENTIONAL.into(), enable.into());
            host.admin().run(set, vec![kind.raw()], 0).unwrap().status
        };
        assert_eq!(set(&mut host, 0, unfilled), Status::Success);
        assert_eq!(enabled(&mut host), [(unfilled, false), (invalid, true)]);
        let before = events(&mut host, LSP_HOST_EVENTS).len();
        write_placed(&mut queue, 0, 1, 2);
        let (update, data) = command::handle_update(CONVENTIONAL, &[2]);
        assert_eq!(queue.run(update, data, 0).unwrap().status, Status::Success);
        assert_eq!(events(&mut host, LSP_HOST_EVENTS).len(), before);
        assert_eq!(set(&mut host, 1, unfilled), Status::Success);
        write_placed(&mut queue, 0, 1, 2);
        let (update, data) = command::handle_update(CONVENTIONAL, &[2]);
        assert_eq!(queue.run(update, data, 0).unwrap().status, Status::Success);
        assert_eq!(events(&mut host, LSP_HOST_EVENTS).len(), before + 1);
        assert_eq!(
            set(&mut host, 1, EventKind::MediaReallocated),
            Status::InvalidField
        );
    }
}
