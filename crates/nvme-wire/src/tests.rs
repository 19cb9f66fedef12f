//! Layouts against the specifications, and properties that hold for any bytes.

use std::mem::offset_of;

use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Completion, Sgl, Status, Submission,
    admin::AdminCommand,
    command::SglKind,
    copy::{CopyFormat, CopySource},
    fabrics::{ConnectCommand, ConnectData, FabricsCommand, PropertyCommand},
    feature::{Queues, Timestamp},
    identify::ZonedNamespace,
    io::{BlockRange, IoCommand, WriteHint},
    log::{ErrorEntry, Smart},
    nqn, nqn_of,
    pdu::{self, Digests, Fatal, FatalStatus, Header, PduType},
    property::Capabilities,
    zone::{ReportFilter, ZoneDescriptor, ZoneState},
};

#[test]
fn fields_are_where_the_specifications_have_them() {
    assert_eq!(offset_of!(Submission, sgl), 24);
    assert_eq!(offset_of!(Submission, cdw10), 40);
    assert_eq!(offset_of!(Completion, status), 14);
    assert_eq!(offset_of!(Sgl, identifier), 15);
    assert_eq!(offset_of!(ConnectCommand, sgl), 24);
    assert_eq!(offset_of!(ConnectCommand, queue), 42);
    assert_eq!(offset_of!(ConnectCommand, keep_alive_ms), 48);
    assert_eq!(offset_of!(ConnectData, subsystem), 256);
    assert_eq!(offset_of!(ConnectData, host), 512);
    assert_eq!(offset_of!(PropertyCommand, offset), 44);
    assert_eq!(offset_of!(PropertyCommand, value), 48);
    assert_eq!(offset_of!(ZonedNamespace, lba_formats), 2816);
    assert_eq!(offset_of!(Smart, units_read), 32);
    assert_eq!(offset_of!(Smart, error_entries), 176);
    assert_eq!(offset_of!(ErrorEntry, lba), 16);
    assert_eq!(offset_of!(ErrorEntry, command_specific), 32);
    assert_eq!(offset_of!(ZoneDescriptor, write_pointer), 24);
}

#[test]
fn a_status_keeps_its_bits_in_a_completion() {
    for &status in Status::ALL {
        let completion = Completion::new(7, 3, status, 0x1_2345_6789);
        assert_eq!(completion.status(), status);
        assert_eq!(completion.do_not_retry(), !status.is_transient());
    }
    // Zone Boundary Error: type 1, code B8h, and not to be tried again.
    assert_eq!(Status::ZoneBoundary.field(), 0x8000 | 0x1B8 << 1);
    assert_eq!(
        (Status::ZoneFull.code_type(), Status::ZoneFull.code()),
        (1, 0xB9)
    );
}

#[test]
fn counts_are_zero_based_on_the_wire_only() {
    let queues = Queues {
        submission: 4,
        completion: 8,
    };
    assert_eq!(queues.raw(), 0x0007_0003);
    assert_eq!(Queues::from_raw(queues.raw()), queues);
    let capabilities = Capabilities {
        max_queue_entries: 128,
        timeout: 20,
        command_sets: true,
        admin_only: false,
    };
    assert_eq!(capabilities.raw() & 0xFFFF, 127);
    assert_eq!(capabilities.raw() >> 37 & 0xFF, 0b0100_0001);
    assert_eq!(capabilities.raw() >> 59 & 0b11, 0b01);
    assert_eq!(
        Timestamp::new(0x1234_5678_9ABC, true).get(),
        0x1234_5678_9ABC
    );
}

#[test]
fn hints_of_a_write_are_found_again() {
    for hint in [
        WriteHint::None,
        WriteHint::Overwrite,
        WriteHint::After {
            predecessor: 0x12_3456_789A,
        },
        WriteHint::Placement { id: 0xBEEF },
        WriteHint::Directive { kind: 1 },
    ] {
        let mut command = Submission::zeroed();
        command.opcode = 0x01;
        command.cdw12.set(7);
        hint.put(&mut command);
        let IoCommand::Write(transfer, found) = IoCommand::parse(&command) else {
            panic!("no write");
        };
        assert_eq!((transfer.blocks.count, found), (8, hint));
    }
    // Both bits: append wins.
    let mut command = Submission::zeroed();
    command.opcode = 0x01;
    WriteHint::Overwrite.put(&mut command);
    WriteHint::After { predecessor: 9 }.put(&mut command);
    assert!(matches!(
        IoCommand::parse(&command),
        IoCommand::Write(_, WriteHint::After { predecessor: 9 })
    ));
}

#[test]
fn fields_of_data_placement_are_where_the_specification_has_them() {
    use crate::fdp::*;
    assert_eq!(offset_of!(Configuration, groups), 4);
    assert_eq!(offset_of!(Configuration, max_placement_ids), 10);
    assert_eq!(offset_of!(Configuration, unit_size), 16);
    assert_eq!(offset_of!(Configuration, time_limit), 24);
    assert_eq!(offset_of!(Statistics, media_erased), 32);
    assert_eq!(offset_of!(FdpEvent, nsid), 12);
    assert_eq!(offset_of!(FdpEvent, group), 32);
    assert_eq!(offset_of!(FdpEvent, handle), 34);
    assert_eq!(offset_of!(StatusHeader, handles), 14);
    assert_eq!(offset_of!(HandleStatus, available_blocks), 8);
    let mut write = Submission::zeroed();
    write.opcode = 0x01;
    (write.cdw12, write.cdw13) = ((2 << 20).into(), (5 << 16 | 7).into());
    assert!(matches!(
        IoCommand::parse(&write),
        IoCommand::Write(_, WriteHint::Placement { id: 5 })
    ));
    let mut send = Submission::zeroed();
    (send.opcode, send.cdw10) = (0x1D, (3 << 16 | 1).into());
    assert_eq!(
        IoCommand::parse(&send),
        IoCommand::ManagementSend {
            operation: SendOperation::ReclaimUnitHandleUpdate,
            placement_ids: 4,
        }
    );
    let mut receive = Submission::zeroed();
    (receive.opcode, receive.cdw10, receive.cdw11) = (0x12, 1.into(), 11.into());
    assert_eq!(
        IoCommand::parse(&receive),
        IoCommand::ManagementReceive {
            operation: ReceiveOperation::ReclaimUnitHandleStatus,
            len: 48,
        }
    );
}

#[test]
fn a_zones_state_stands_in_the_high_nibble() {
    let zone = ZoneDescriptor::new(ZoneState::Full, 0x1000, 0x800, 0x1800);
    assert_eq!((zone.kind, zone.state), (2, 0xE0));
    assert_eq!(zone.zone_state(), ZoneState::Full);
    assert!(ReportFilter::Full.takes(ZoneState::Full));
    assert!(!ReportFilter::Empty.takes(ZoneState::Full));
    assert!(ReportFilter::All.takes(ZoneState::Offline));
}

#[test]
fn names_of_subsystems_end() {
    let field = nqn("nqn.2014-08.org.nvmexpress.discovery");
    assert_eq!(nqn_of(&field), Some("nqn.2014-08.org.nvmexpress.discovery"));
    assert_eq!(nqn_of(&[b'x'; 256]), None);
    assert_eq!(nqn_of(&[0; 256]), None);
    assert_eq!(nqn_of(&[0xFF; 256]), None);
}

#[test]
fn a_header_in_error_is_named_by_its_field() {
    let on = Digests {
        header: true,
        data: true,
    };
    let command = Header::with_data(PduType::CapsuleCmd, 72, on, 4, 4096);
    let parts = command.from_host(on, 8192).unwrap();
    assert_eq!((parts.data_start, parts.data), (76, 4096));
    assert_eq!(parts.total, 76 + 4096 + 4);
    let no_data = Header::plain(PduType::CapsuleCmd, 72, on);
    assert_eq!(no_data.from_host(on, 8192).unwrap().total, 76);

    let wrong = |change: fn(&mut Header)| {
        let mut header = command;
        change(&mut header);
        header.from_host(on, 8192).unwrap_err()
    };
    assert_eq!(wrong(|h| h.kind = 8), Fatal::field(pdu::field::KIND));
    assert_eq!(wrong(|h| h.kind = 5), Fatal::field(pdu::field::KIND));
    assert_eq!(wrong(|h| h.hlen = 71), Fatal::field(pdu::field::HLEN));
    assert_eq!(wrong(|h| h.flags = 1), Fatal::field(pdu::field::FLAGS));
    assert_eq!(wrong(|h| h.flags |= 0x40), Fatal::field(pdu::field::FLAGS));
    assert_eq!(wrong(|h| h.pdo = 72), Fatal::field(pdu::field::PDO));
    assert_eq!(wrong(|h| h.pdo = 78), Fatal::field(pdu::field::PDO));
    assert_eq!(wrong(|h| h.plen.set(79)), Fatal::field(pdu::field::PLEN));
    assert_eq!(
        wrong(|h| h.plen.set(u32::MAX)),
        Fatal::because(FatalStatus::LimitExceeded)
    );
}

#[test]
fn zeroes_are_a_property_set() {
    // The first bytes of a host that sends rubbish.
    assert_eq!(
        FabricsCommand::parse(&Submission::zeroed()),
        FabricsCommand::PropertySet {
            offset: 0,
            size: Some(4),
            value: 0
        }
    );
    assert_eq!(Sgl::new(SglKind::InCapsule, 9).kind(), SglKind::InCapsule);
}

fn digests() -> impl Strategy<Value = Digests> {
    (0_u8..4).prop_map(|raw| Digests::from_raw(raw).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn any_header_is_taken_with_bounds_or_refused(
        bytes: [u8; 8], digests in digests(), max_data in 0_usize..1 << 21,
    ) {
        let header = Header::read_from_bytes(&bytes).unwrap();
        for parts in [header.from_host(digests, max_data), header.from_controller(digests, max_data)]
            .into_iter()
            .flatten()
        {
            let end = parts.data_start + parts.data + if parts.data_digest { 4 } else { 0 };
            prop_assert_eq!(end, parts.total);
            let header_digest = if parts.header_digest { 4 } else { 0 };
            prop_assert!(parts.data_start >= parts.header + header_digest);
            prop_assert!(parts.data <= max_data.max(pdu::TERM_REQ_TRAILER_MAX));
            prop_assert!(parts.data_start <= 255);
        }
    }

    #[test]
    fn what_is_built_is_taken(digests in digests(), len in 1_u32..1 << 20, dwords in 1_u8..=32) {
        let from_host = Header::with_data(PduType::H2cData, 24, digests, 4, len);
        prop_assert_eq!(from_host.from_host(digests, len as usize).unwrap().data, len as usize);
        let to_host = Header::with_data(PduType::C2hData, 24, digests, dwords.next_power_of_two() * 4, len);
        let parts = to_host.from_controller(digests, len as usize).unwrap();
        prop_assert_eq!(parts.data, len as usize);
        prop_assert_eq!(parts.data_start % (usize::from(dwords.next_power_of_two()) * 4), 0);
    }

    #[test]
    fn any_command_has_a_meaning(bytes: [[u8; 32]; 2], opcode: u8) {
        let mut command = Submission::read_from_bytes(bytes.as_bytes()).unwrap();
        command.opcode = opcode;
        match IoCommand::parse(&command) {
            IoCommand::Read(t) | IoCommand::Write(t, _) | IoCommand::ZoneAppend(t, _) => {
                prop_assert!((1..=65536).contains(&t.blocks.count));
                prop_assert_eq!(
                    t.blocks.end(),
                    t.blocks.start.checked_add(u64::from(t.blocks.count))
                );
            }
            IoCommand::DatasetManagement { ranges, .. } | IoCommand::Copy { ranges, .. } => {
                prop_assert!((1..=256).contains(&ranges));
            }
            IoCommand::ZoneReceive { len, .. } => prop_assert!(len % 4 == 0 && len > 0),
            _ => {}
        }
        if let AdminCommand::GetLogPage(get) = AdminCommand::parse(&command) {
            let page = [0; 512];
            match get.slice(&page) {
                Ok(slice) => prop_assert!(slice.len() as u64 <= get.len && slice.len() <= 512),
                Err(status) => prop_assert_eq!(status, Status::InvalidField),
            }
        }
    }

    #[test]
    fn lists_are_read_within_their_data(data: Vec<u8>, count in 0_usize..300, format in 0_u8..6) {
        if let Ok(sources) = CopyFormat::from_raw(format).sources(&data, count) {
            prop_assert_eq!(sources.count(), count);
        }
        if let Ok(ranges) = crate::range::ranges(&data, count) {
            prop_assert_eq!(ranges.count(), count);
        }
        if let Ok(moves) = crate::vendor::moves(&data, count as u64) {
            prop_assert_eq!(moves.count(), count);
        }
    }

    #[test]
    fn sources_of_a_copy_are_found_again(
        format in 0_u8..4, ranges in prop::collection::vec((any::<u64>(), 1_u32..=65536, any::<u32>(), any::<bool>()), 1..20),
    ) {
        let format = CopyFormat::from_raw(format);
        let sources: Vec<_> = ranges
            .into_iter()
            .map(|(start, count, nsid, fast_only)| CopySource {
                nsid: format.names_namespace().then_some(nsid),
                blocks: BlockRange { start, count },
                fast_only: fast_only && format.names_namespace(),
            })
            .collect();
        let mut data = Vec::new();
        for source in &sources {
            format.put(source, &mut data);
        }
        let found: Vec<_> = format.sources(&data, sources.len()).unwrap().collect();
        prop_assert_eq!(found, sources);
    }
}

/// The number of cases of each property; INDEF_WIRE_CASES sets it for a longer run.
fn cases() -> u32 {
    std::env::var("INDEF_WIRE_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(2000)
}
