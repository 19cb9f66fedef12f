//! A submission queue entry and its data, as an admin and as an I/O command: nothing panics, counts are
//! within what the specification allows, and no list is read behind its data.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nvme_wire::{
    Command, QueueKind, Submission,
    admin::AdminCommand,
    fabrics::{ConnectData, FabricsCommand},
    io::IoCommand,
    nqn_of, range, vendor,
};

fuzz_target!(|bytes: &[u8]| {
    let Some(command) = Submission::first_of(bytes) else {
        return;
    };
    let data = &bytes[Submission::LEN..];
    if let AdminCommand::GetLogPage(get) = AdminCommand::parse(&command)
        && let Ok(slice) = get.slice(data)
    {
        assert!(slice.len() <= data.len());
    }
    if let Command::Fabrics(FabricsCommand::Connect { entries, .. }) =
        Command::parse(&command, QueueKind::Admin)
    {
        assert!((1..=65536).contains(&entries));
        if let Some(connect) = ConnectData::first_of(data) {
            let _ = (nqn_of(&connect.subsystem), nqn_of(&connect.host));
        }
    }
    match IoCommand::parse(&command) {
        IoCommand::Copy { ranges, format, .. } => {
            if let Ok(sources) = format.sources(data, ranges) {
                assert_eq!(sources.count(), ranges);
            }
        }
        IoCommand::DatasetManagement { ranges, .. } => {
            if let Ok(found) = range::ranges(data, ranges) {
                assert_eq!(found.count(), ranges);
            }
        }
        IoCommand::InDeviceDefragment { moves } => {
            if let Ok(found) = vendor::moves(data, moves) {
                assert_eq!(found.count() as u64, moves);
            }
        }
        IoCommand::Read(t) | IoCommand::Write(t, _) => {
            assert!((1..=65536).contains(&t.blocks.count));
        }
        _ => {}
    }
});
