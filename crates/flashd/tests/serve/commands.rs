//! Every command that a target has, through a host of our own.

use crate::target::{
    BLOCK, CONVENTIONAL, CONVENTIONAL_BLOCKS, Fixture, ZONED, all_digests, pattern,
};
use flashd::serve::TargetOptions;
use nvme_initiator::{Done, Queue, command};
use nvme_wire::{
    Status,
    copy::{CopyFormat, CopySource},
    feature::{Feature, HostBehavior},
    io::{self, BlockRange},
    log::LogPage,
    vendor::{DefragmentMove, GEOMETRY_MAGIC, GeometryLog},
    zone::{ReportFilter, ReportHeader, ZoneAction, ZoneDescriptor, ZoneState},
};
use zerocopy::{FromBytes, IntoBytes};

fn read(queue: &mut Queue, nsid: u32, start: u64, count: u32) -> Vec<u8> {
    let done = queue
        .run(
            command::read(nsid, start, count),
            Vec::new(),
            count as usize * BLOCK,
        )
        .unwrap();
    done.ok("Read").unwrap().data
}

fn write(queue: &mut Queue, nsid: u32, start: u64, data: Vec<u8>) -> Done {
    let count = (data.len() / BLOCK) as u32;
    queue
        .run(command::write(nsid, start, count), data, 0)
        .unwrap()
}

fn run(queue: &mut Queue, command: nvme_wire::Submission, data: Vec<u8>) -> Done {
    queue.run(command, data, 0).unwrap()
}

fn report(
    queue: &mut Queue,
    from: u64,
    filter: ReportFilter,
    partial: bool,
    zones: usize,
) -> (u64, Vec<ZoneDescriptor>) {
    let len = ReportHeader::LEN + zones * ZoneDescriptor::LEN;
    let command = command::zone_report(ZONED, from, len, filter, partial);
    let data = queue
        .run(command, Vec::new(), len)
        .unwrap()
        .ok("report")
        .unwrap()
        .data;
    let count = ReportHeader::first_of(&data).unwrap().zones.get();
    let listed = data[ReportHeader::LEN..]
        .chunks(ZoneDescriptor::LEN)
        .take(count as usize)
        .map(|bytes| ZoneDescriptor::read_from_bytes(bytes).unwrap())
        .collect();
    (count, listed)
}

#[test]
fn blocks_are_what_was_written_whatever_the_digests_and_sizes() {
    let fixture = Fixture::new();
    for digests in all_digests() {
        for (hpda, no_flow_control, in_capsule) in
            [(0, false, 8192), (31, true, 0), (2, true, 16384)]
        {
            let mut options = fixture.options(digests);
            options.admin.hpda = hpda;
            options.admin.no_flow_control = no_flow_control;
            options.in_capsule = in_capsule;
            let host = nvme_initiator::Host::connect(fixture.target.address(), options).unwrap();
            let mut queue = host.queue(1, 16).unwrap();
            for (start, count) in [(0_u64, 1_usize), (7, 2), (100, 33), (5000, 256)] {
                let seed = u64::from(hpda) + start;
                let data = pattern(start, count, seed);
                let done = write(&mut queue, CONVENTIONAL, start, data.clone());
                assert_eq!(done.status, Status::Success);
                assert!(read(&mut queue, CONVENTIONAL, start, count as u32) == data);
            }
        }
    }
    fixture.wait_until_idle();
}

#[test]
fn many_commands_on_several_queues_find_their_own_data() {
    let fixture = Fixture::new();
    let host = fixture.host(all_digests()[3]);
    std::thread::scope(|scope| {
        for id in 1..=4 {
            let mut queue = host.queue(id, 33).unwrap();
            scope.spawn(move || {
                let base = u64::from(id) * 1000;
                for round in 0..20 {
                    let sizes = (0..32).map(|n| 1 + (n * 7 + round) % 20);
                    let mut starts = std::collections::HashMap::new();
                    for (n, count) in sizes.clone().enumerate() {
                        let at = base + n as u64 * 20;
                        let data = pattern(at, count, round as u64);
                        let command = command::write(CONVENTIONAL, at, count as u32);
                        queue.start(command, data, 0).unwrap();
                    }
                    while queue.busy() > 0 {
                        queue.wait().unwrap().ok("Write").unwrap();
                    }
                    for (n, count) in sizes.enumerate() {
                        let at = base + n as u64 * 20;
                        let command = command::read(CONVENTIONAL, at, count as u32);
                        let cid = queue.start(command, Vec::new(), count * BLOCK).unwrap();
                        starts.insert(cid, (at, count));
                    }
                    while queue.busy() > 0 {
                        let done = queue.wait().unwrap().ok("Read").unwrap();
                        let (at, count) = starts[&done.cid];
                        assert!(done.data == pattern(at, count, round as u64));
                    }
                }
            });
        }
    });
}

#[test]
fn commands_of_the_nvm_command_set() {
    let fixture = Fixture::new();
    let (_host, mut queue) = fixture.queue();
    let data = pattern(10, 4, 1);
    let done = write(&mut queue, CONVENTIONAL, 10, data.clone());
    assert_eq!(done.status, Status::Success);
    let fua = command::with_fua(command::write(CONVENTIONAL, 14, 1));
    let done = run(&mut queue, fua, pattern(14, 1, 1));
    assert_eq!(done.status, Status::Success);

    let compare = command::compare(CONVENTIONAL, 10, 4);
    let done = run(&mut queue, compare, data.clone());
    assert_eq!(done.status, Status::Success);
    let mut other = data.clone();
    other[3 * BLOCK + 17] ^= 1;
    let done = run(&mut queue, compare, other);
    assert_eq!(done.status, Status::CompareFailure);
    for command in [
        command::verify(CONVENTIONAL, 0, 256),
        command::flush(CONVENTIONAL),
        command::flush(ZONED),
        command::flush(u32::MAX),
        command::write_zeroes(CONVENTIONAL, 11, 1),
    ] {
        assert_eq!(run(&mut queue, command, Vec::new()).status, Status::Success);
    }
    let mut expected = data;
    expected[BLOCK..2 * BLOCK].fill(0);
    assert!(read(&mut queue, CONVENTIONAL, 10, 4) == expected);
    let range = |start, count| BlockRange { start, count };
    let (command, list) =
        command::deallocate(CONVENTIONAL, &[range(12, 1), range(13, 1), range(0, 0)]);
    assert_eq!(run(&mut queue, command, list).status, Status::Success);
    expected[2 * BLOCK..].fill(0);
    assert!(read(&mut queue, CONVENTIONAL, 10, 4) == expected);
}

#[test]
fn what_cannot_be_gets_its_status() {
    let fixture = Fixture::new();
    let (_host, mut queue) = fixture.queue();
    let (zone, _) = fixture.zone();
    let end = CONVENTIONAL_BLOCKS;
    let read = |start, count| command::read(CONVENTIONAL, start, count);
    let write = |start, count| command::write(CONVENTIONAL, start, count);
    let zeroes = command::write_zeroes(CONVENTIONAL, end, 1);
    let mut unknown = command::flush(CONVENTIONAL);
    unknown.opcode = 0x44;
    let send = |nsid, action| command::zone_send(nsid, Some(0), action);
    let extension = ZoneAction::SetDescriptorExtension;
    let beyond = command::zone_send(ZONED, Some(8 * zone), ZoneAction::Open);
    // A command, the bytes of data with it, the room for its answer, its status.
    let cases = [
        (read(end, 1), 0, BLOCK, Status::LbaOutOfRange),
        (read(u64::MAX, 1), 0, BLOCK, Status::LbaOutOfRange),
        (write(end - 1, 2), 2 * BLOCK, 0, Status::LbaOutOfRange),
        (
            command::verify(CONVENTIONAL, end - 1, 65536),
            0,
            0,
            Status::LbaOutOfRange,
        ),
        (zeroes, 0, 0, Status::LbaOutOfRange),
        (command::read(9, 0, 1), 0, BLOCK, Status::InvalidNamespace),
        (command::read(0, 0, 1), 0, BLOCK, Status::InvalidNamespace),
        (command::flush(7), 0, 0, Status::InvalidNamespace),
        // More than MDTS; an SGL of another length than the blocks have.
        (read(0, 257), 0, 257 * BLOCK, Status::InvalidField),
        (read(0, 2), 0, BLOCK, Status::SglLengthInvalid),
        (read(0, 1), 0, 2 * BLOCK, Status::SglLengthInvalid),
        (write(0, 2), BLOCK, 0, Status::SglLengthInvalid),
        // Data on a read, and none on a write.
        (read(0, 1), BLOCK, 0, Status::SglTypeInvalid),
        (write(0, 1), 0, 0, Status::SglLengthInvalid),
        // Unknown opcodes, and zone commands to a namespace without zones.
        (unknown, 0, 0, Status::InvalidOpcode),
        (
            send(CONVENTIONAL, ZoneAction::Open),
            0,
            0,
            Status::InvalidOpcode,
        ),
        (
            command::zone_append(CONVENTIONAL, 0, 1),
            BLOCK,
            0,
            Status::InvalidOpcode,
        ),
        // Zones.
        (
            command::write(ZONED, 1, 1),
            BLOCK,
            0,
            Status::ZoneInvalidWrite,
        ),
        (
            command::zone_append(ZONED, 1, 1),
            BLOCK,
            0,
            Status::InvalidField,
        ),
        (
            send(ZONED, ZoneAction::Close),
            0,
            0,
            Status::InvalidZoneTransition,
        ),
        (
            send(ZONED, ZoneAction::Unknown(9)),
            0,
            0,
            Status::InvalidField,
        ),
        (send(ZONED, extension), 0, 0, Status::InvalidField),
        (beyond, 0, 0, Status::LbaOutOfRange),
        (send(ZONED, ZoneAction::Finish), 0, 0, Status::Success),
        (
            command::zone_append(ZONED, 0, 1),
            BLOCK,
            0,
            Status::ZoneFull,
        ),
        (command::write(ZONED, 0, 1), BLOCK, 0, Status::ZoneFull),
    ];
    for (number, (command, with, room, expected)) in cases.into_iter().enumerate() {
        let done = queue.run(command, vec![1; with], room).unwrap();
        assert_eq!(done.status, expected, "case {number}: {command:?}");
    }
}

/// What a host asks for and cannot have is not left out silently: directives of other types than Data Placement, and
/// a zone random write area.
#[test]
fn options_that_there_are_not_are_refused() {
    let fixture = Fixture::new();
    let (_host, mut queue) = fixture.queue();
    let blocks = BlockRange { start: 8, count: 1 };
    let source = CopySource {
        nsid: None,
        blocks,
        fast_only: false,
    };
    let (copy, list) = command::copy(CONVENTIONAL, CopyFormat::Same32, &[source], 0);
    let open = command::zone_send(ZONED, Some(0), ZoneAction::Open);
    let with_directive = |mut command: nvme_wire::Submission| {
        command.cdw12.set(command.cdw12.get() | 1 << 20);
        command
    };
    let mut with_area = open;
    with_area
        .cdw13
        .set(with_area.cdw13.get() | io::ALLOCATE_RANDOM_WRITE_AREA);
    for (plain, refused, data) in [
        (
            command::write(CONVENTIONAL, 0, 1),
            with_directive(command::write(CONVENTIONAL, 0, 1)),
            pattern(0, 1, 1),
        ),
        (
            command::zone_append(ZONED, 0, 1),
            with_directive(command::zone_append(ZONED, 0, 1)),
            pattern(0, 1, 1),
        ),
        (copy, with_directive(copy), list),
        (open, with_area, Vec::new()),
    ] {
        let done = run(&mut queue, refused, data.clone());
        assert_eq!(done.status, Status::InvalidField, "{refused:?}");
        assert_eq!(run(&mut queue, plain, data).status, Status::Success);
    }
}

#[test]
fn zones_go_through_their_states() {
    let fixture = Fixture::new();
    let (_host, mut queue) = fixture.queue();
    let (size, capacity) = fixture.zone();
    let send = |queue: &mut Queue, zone, action| {
        run(queue, command::zone_send(ZONED, zone, action), Vec::new())
            .ok("Zone Send")
            .unwrap();
    };
    let state =
        |queue: &mut Queue, zone: u64| report(queue, zone * size, ReportFilter::All, true, 1).1[0];
    assert_eq!(report(&mut queue, 0, ReportFilter::All, false, 3).0, 8);
    assert_eq!(report(&mut queue, 0, ReportFilter::All, true, 3).0, 3);
    assert_eq!(
        report(&mut queue, 6 * size + 5, ReportFilter::All, false, 8).0,
        2
    );

    assert_eq!(
        write(&mut queue, ZONED, size, pattern(size, 3, 1)).status,
        Status::Success
    );
    let zone = state(&mut queue, 1);
    assert_eq!(
        (zone.zone_state(), zone.write_pointer.get()),
        (ZoneState::ImplicitlyOpened, size + 3)
    );
    assert_eq!(
        (zone.start.get(), zone.capacity.get(), zone.kind),
        (size, capacity, 2)
    );
    let appended = run(
        &mut queue,
        command::zone_append(ZONED, size, 2),
        pattern(size + 3, 2, 1),
    );
    assert_eq!(appended.ok("Zone Append").unwrap().result, size + 3);
    assert!(read(&mut queue, ZONED, size, 5) == pattern(size, 5, 1));

    for n in 0..3 {
        let zone = 3 * size;
        let command = command::zone_append(ZONED, zone, 4);
        let done = run(&mut queue, command, pattern(zone + 4 * n, 4, 2));
        assert_eq!(done.ok("Zone Append").unwrap().result, zone + 4 * n);
        let written = state(&mut queue, 3).write_pointer.get();
        assert_eq!(written, zone + 4 * (n + 1));
    }
    assert!(read(&mut queue, ZONED, 3 * size, 12) == pattern(3 * size, 12, 2));

    for (action, expected) in [
        (ZoneAction::Close, ZoneState::Closed),
        (ZoneAction::Open, ZoneState::ExplicitlyOpened),
        (ZoneAction::Finish, ZoneState::Full),
    ] {
        send(&mut queue, Some(size), action);
        assert_eq!(state(&mut queue, 1).zone_state(), expected);
    }
    let (full, listed) = report(&mut queue, 0, ReportFilter::Full, false, 8);
    assert_eq!((full, listed[0].start.get()), (1, size));
    assert!(read(&mut queue, ZONED, size, 5) == pattern(size, 5, 1));
    send(&mut queue, None, ZoneAction::Reset);
    assert_eq!(state(&mut queue, 1).zone_state(), ZoneState::Empty);
    assert!(read(&mut queue, ZONED, size, 5) == vec![0; 5 * BLOCK]);
}

#[test]
fn a_zone_that_was_opened_and_not_written_closes_to_closed() {
    let fixture = Fixture::new();
    let (_host, mut queue) = fixture.queue();
    let state = |queue: &mut Queue| report(queue, 0, ReportFilter::All, true, 1).1[0].zone_state();
    for (action, expected) in [
        (ZoneAction::Open, ZoneState::ExplicitlyOpened),
        (ZoneAction::Close, ZoneState::Closed),
        (ZoneAction::Close, ZoneState::Closed),
        (ZoneAction::Reset, ZoneState::Empty),
        (ZoneAction::Open, ZoneState::ExplicitlyOpened),
        (ZoneAction::Close, ZoneState::Closed),
    ] {
        let done = run(
            &mut queue,
            command::zone_send(ZONED, Some(0), action),
            Vec::new(),
        );
        assert_eq!(done.status, Status::Success, "{action:?}");
        assert_eq!(state(&mut queue), expected, "{action:?}");
    }
    // Without data it is empty again after a loss of power (ZNS Command Set 1.1 §2.1.1.3).
    fixture.device.power_cut();
    let (_host, mut queue) = fixture.queue();
    assert_eq!(state(&mut queue), ZoneState::Empty);
}

#[test]
fn copy_in_every_format_and_in_device_defragment() {
    let fixture = Fixture::new();
    let (mut host, mut queue) = fixture.queue();
    let (size, _) = fixture.zone();
    let range = |start, count| BlockRange { start, count };
    let source = |format: CopyFormat, nsid, blocks| CopySource {
        nsid: format.names_namespace().then_some(nsid),
        blocks,
        fast_only: false,
    };
    // Formats 2h and 3h are there once the host says that it knows them.
    let other = source(CopyFormat::Other32, CONVENTIONAL, range(0, 1));
    let (command, data) = command::copy(CONVENTIONAL, CopyFormat::Other32, &[other], 50);
    assert_eq!(run(&mut queue, command, data).status, Status::InvalidField);
    let mut behavior = HostBehavior::zeroed();
    behavior.copy_formats.set(0b1100);
    let set = command::set_features(Feature::HostBehavior.raw(), 0);
    host.run("Set Features", set, behavior.as_bytes().to_vec(), 0)
        .unwrap();

    for nsid in [CONVENTIONAL, ZONED] {
        write(&mut queue, nsid, 0, pattern(0, 40, 3))
            .ok("Write")
            .unwrap();
        let mut to = size;
        for raw in 0..4 {
            let format = CopyFormat::from_raw(raw);
            let sources = [range(5, 2), range(30, 4), range(0, 1)].map(|r| source(format, nsid, r));
            let (command, data) = command::copy(nsid, format, &sources, to);
            run(&mut queue, command::with_fua(command), data)
                .ok("Copy")
                .unwrap();
            let expected = [pattern(5, 2, 3), pattern(30, 4, 3), pattern(0, 1, 3)].concat();
            assert!(read(&mut queue, nsid, to, 7) == expected, "format {raw}");
            to += 7;
        }
        let moves: Vec<_> = (0..40)
            .map(|n| DefragmentMove::new(39 - n, to as u32 + n))
            .collect();
        let (command, data) = command::defragment(nsid, &moves);
        let done = run(&mut queue, command, data)
            .ok("In_Device_Defragment")
            .unwrap();
        assert_eq!(done.result, 40);
        let moved = read(&mut queue, nsid, to, 40);
        for n in 0..40 {
            assert!(
                moved[n * BLOCK..][..BLOCK] == pattern(39 - n as u64, 1, 3),
                "move {n}"
            );
        }
    }
    let foreign = source(CopyFormat::Other40, ZONED, range(0, 1));
    let (command, data) = command::copy(CONVENTIONAL, CopyFormat::Other40, &[foreign], 50);
    assert_eq!(
        run(&mut queue, command, data).status,
        Status::IncompatibleNamespace
    );
    let (command, data) = command::defragment(CONVENTIONAL, &[DefragmentMove::new(0, u32::MAX)]);
    let done = run(&mut queue, command, data);
    assert_eq!((done.status, done.result), (Status::LbaOutOfRange, 0));
    let (mut command, data) = command::defragment(CONVENTIONAL, &[DefragmentMove::new(0, 1)]);
    command.cdw10.set(1);
    assert_eq!(
        run(&mut queue, command, data).status,
        Status::SglLengthInvalid
    );
    let many = vec![source(CopyFormat::Same32, 0, range(0, 1)); 129];
    let (command, data) = command::copy(CONVENTIONAL, CopyFormat::Same32, &many, 50);
    assert_eq!(
        run(&mut queue, command, data).status,
        Status::SizeLimitExceeded
    );
}

#[test]
fn injected_errors_are_media_errors() {
    let fixture = Fixture::new();
    let (mut host, mut queue) = fixture.queue();
    let fault = |access, block: u64| flashd::device::ErrorFault {
        namespace: CONVENTIONAL,
        offset_bytes: block * BLOCK as u64,
        length_bytes: 1,
        access: Some(access),
        left: Some(1),
        delay_ns: 0,
        failed: 0,
    };
    let device = &fixture.device;
    device
        .inject_error(fault(flashd::device::Access::Read, 3))
        .unwrap();
    device
        .inject_error(fault(flashd::device::Access::Write, 5))
        .unwrap();
    let write_at_5 = |queue: &mut Queue| write(queue, CONVENTIONAL, 5, pattern(5, 1, 1)).status;
    assert_eq!(write_at_5(&mut queue), Status::WriteFault);
    let command = command::read(CONVENTIONAL, 0, 8);
    let failed = queue.run(command, Vec::new(), 8 * BLOCK).unwrap();
    assert_eq!(failed.status, Status::UnrecoveredRead);
    let smart = nvme_wire::log::Smart::first_of(&host.log(0, 2, 0, 512).unwrap()).unwrap();
    assert_eq!(smart.media_errors, 2_u128.to_le_bytes());
    // And once they have struck, the same commands work.
    assert_eq!(write_at_5(&mut queue), Status::Success);
    assert!(read(&mut queue, CONVENTIONAL, 5, 1) == pattern(5, 1, 1));
}

#[test]
fn a_target_with_standard_commands_only_has_copy_and_no_in_device_defragment() {
    let fixture = Fixture::with_options(TargetOptions {
        standard_only: true,
        ..TargetOptions::default()
    });
    let (mut host, mut queue) = fixture.queue();
    let (command, data) = command::defragment(CONVENTIONAL, &[DefragmentMove::new(0, 1)]);
    let done = run(&mut queue, command, data);
    assert_eq!(done.status, Status::InvalidOpcode);
    let page = host.log(0, LogPage::Geometry.raw(), 0, 512).unwrap();
    let geometry = GeometryLog::first_of(&page).unwrap();
    assert_eq!(geometry.magic, GEOMETRY_MAGIC);
    assert_eq!(geometry.defragment_max.get(), 0);
    let source = CopySource {
        nsid: None,
        blocks: BlockRange { start: 0, count: 1 },
        fast_only: false,
    };
    let (command, data) = command::copy(CONVENTIONAL, CopyFormat::Same32, &[source], 50);
    run(&mut queue, command, data).ok("Copy").unwrap();
}
