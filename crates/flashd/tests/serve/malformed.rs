//! Input that a host must not send: the host gets the status that the specification names, or a
//! terminated connection; the target never crashes, hangs, leaks a connection, or shows another
//! host's data.

use std::{io::Write, net::TcpStream, time::Duration};

use crate::target::{BLOCK, CONVENTIONAL, Fixture, all_digests, pattern};
use nvme_initiator::{Error, Host, Incoming, Queue, QueueOptions, Wire, command};
use nvme_wire::{
    Sgl, Status, Submission,
    command::SglKind,
    fabrics::ConnectData,
    pdu::{
        CapsuleCmd, Data, Digests, FLAG_LAST, Fatal, FatalStatus, Header, IcReq, PduType, R2t,
        TermReq,
    },
};
use zerocopy::{IntoBytes, little_endian::U16};

/// A way to make something wrong.
type Spoil<T> = fn(&mut T);

/// Return the error that ends a connection on which `bytes` are sent after the handshake.
fn fate(wire: &mut Wire, bytes: &[u8]) -> Fatal {
    wire.put(bytes);
    wire.flush().unwrap();
    loop {
        match wire.receive().unwrap() {
            Incoming::Terminated(request) => return request.fatal(),
            Incoming::Done(_) | Incoming::Ready(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn opened(fixture: &Fixture, digests: Digests) -> Wire {
    let mut wire = Wire::open(fixture.target.address()).unwrap();
    wire.initialize(digests, 0).unwrap();
    wire
}

fn still_serves(fixture: &Fixture) {
    let (_host, mut queue) = fixture.queue();
    let read = command::read(CONVENTIONAL, 0, 1);
    queue
        .run(read, Vec::new(), BLOCK)
        .unwrap()
        .ok("Read")
        .unwrap();
}

fn submission(cid: u16, mut command: Submission, sgl: Sgl) -> CapsuleCmd {
    command.cid = U16::new(cid);
    command.flags = 0b01 << 6;
    command.sgl = sgl;
    CapsuleCmd {
        header: Header::zeroed(),
        command,
    }
}

#[test]
fn the_first_pdu_is_an_icreq_that_is_right() {
    let fixture = Fixture::new();
    let sequence = Fatal::because(FatalStatus::SequenceError);
    for kind in (0..=255).filter(|&kind| kind != PduType::IcReq.raw()) {
        let mut wire = Wire::open(fixture.target.address()).unwrap();
        let header = Header::plain(PduType::from_raw(kind), 72, Digests::default());
        assert_eq!(fate(&mut wire, header.as_bytes()), sequence, "{kind}");
    }
    let right = Wire::ic_req(Digests::default(), 0);
    let wrong: [(Spoil<IcReq>, Fatal); 7] = [
        (|r| r.header.flags = 1, Fatal::field(1)),
        (|r| r.header.hlen = 24, Fatal::field(2)),
        (|r| r.header.plen.set(127), Fatal::field(4)),
        (|r| r.header.plen.set(u32::MAX), Fatal::field(4)),
        (
            |r| r.pfv.set(1),
            Fatal {
                status: FatalStatus::UnsupportedParameter,
                information: 8,
            },
        ),
        (|r| r.hpda = 32, Fatal::field(10)),
        (|r| r.digests = 4, Fatal::field(11)),
    ];
    for (change, expected) in wrong {
        let mut request = right;
        change(&mut request);
        let mut wire = Wire::open(fixture.target.address()).unwrap();
        assert_eq!(fate(&mut wire, request.as_bytes()), expected);
    }
    // A second one.
    let mut wire = opened(&fixture, Digests::default());
    assert_eq!(fate(&mut wire, right.as_bytes()), sequence);
    still_serves(&fixture);
}

#[test]
fn headers_that_are_wrong_end_the_connection() {
    let fixture = Fixture::new();
    for digests in all_digests() {
        let flush = submission(1, command::flush(1), Sgl::new(SglKind::Transport, 0));
        let wrong: [(Spoil<Vec<u8>>, u32); 5] = [
            (|pdu| pdu[0] = 0x0A, 0),
            (|pdu| pdu[1] |= 0x80, 1),
            (|pdu| pdu[1] ^= 0x01, 1),
            (|pdu| pdu[2] = 71, 2),
            (|pdu| pdu[4..8].copy_from_slice(&8_u32.to_le_bytes()), 4),
        ];
        for (change, field) in wrong {
            let mut wire = opened(&fixture, digests);
            let mut pdu = wire.pdu(PduType::CapsuleCmd, flush.as_bytes(), 0, &[]);
            change(&mut pdu);
            assert_eq!(fate(&mut wire, &pdu), Fatal::field(field), "{digests:?}");
        }
        // Data that begins within the header, or is not aligned.
        for pdo in [8, 72 + 4 * u8::from(digests.header) - 4, 78] {
            let mut wire = opened(&fixture, digests);
            let mut pdu = wire.pdu(PduType::CapsuleCmd, flush.as_bytes(), 0, &[0; 512]);
            pdu[3] = pdo;
            assert_eq!(fate(&mut wire, &pdu), Fatal::field(3), "{digests:?}");
        }
        // More data than a capsule holds.
        let mut wire = opened(&fixture, digests);
        let pdu = wire.pdu(PduType::CapsuleCmd, flush.as_bytes(), 0, &[0; 8193]);
        let limit = Fatal::because(FatalStatus::LimitExceeded);
        assert_eq!(fate(&mut wire, &pdu[..128]), limit);
        if digests.header {
            let mut wire = opened(&fixture, digests);
            let mut pdu = wire.pdu(PduType::CapsuleCmd, flush.as_bytes(), 0, &[]);
            pdu[20] ^= 1;
            let digest = Fatal::because(FatalStatus::HeaderDigest);
            assert_eq!(fate(&mut wire, &pdu), digest);
        }
    }
    still_serves(&fixture);
}

#[test]
fn before_connect_there_is_nothing_but_connect() {
    let fixture = Fixture::new();
    let mut wire = opened(&fixture, Digests::default());
    for (cid, command) in [
        (1, command::flush(1)),
        (2, command::keep_alive()),
        (3, command::property_get(0, 8)),
    ] {
        let capsule = submission(cid, command, Sgl::new(SglKind::Transport, 0));
        let pdu = wire.pdu(PduType::CapsuleCmd, capsule.as_bytes(), 0, &[]);
        wire.put(&pdu);
        wire.flush().unwrap();
        let Incoming::Done(done) = wire.receive().unwrap() else {
            panic!("no response");
        };
        assert_eq!(
            (done.cid.get(), done.status()),
            (cid, Status::SequenceError)
        );
    }
    let status = |change: fn(&mut QueueOptions)| {
        let mut options = QueueOptions::admin(fixture.target.nqn());
        change(&mut options);
        match Queue::connect(fixture.target.address(), options) {
            Err(Error::Failed { status, result, .. }) => (status, result),
            other => panic!("{other:?}"),
        }
    };
    let invalid = nvme_wire::status::connect::INVALID_PARAMETERS;
    assert_eq!(
        status(|o| o.subsystem = "nqn.other".to_owned()),
        (invalid, 1 << 16 | 256)
    );
    assert_eq!(status(|o| o.host = String::new()), (invalid, 1 << 16 | 512));
    assert_eq!(status(|o| o.controller = 3), (invalid, 1 << 16 | 16));
    assert_eq!(status(|o| o.entries = 1), (invalid, 44));
    assert_eq!(status(|o| o.entries = 2000), (invalid, 44));
    // I/O queues: of no controller, of somebody else's, of one that is not enabled, twice.
    assert_eq!(
        status(|o| (o.id, o.controller) = (1, 999)),
        (invalid, 1 << 16 | 16)
    );
    let admin = Queue::connect(
        fixture.target.address(),
        QueueOptions::admin(fixture.target.nqn()),
    )
    .unwrap();
    let mut options = QueueOptions {
        id: 1,
        controller: admin.controller(),
        ..QueueOptions::admin(fixture.target.nqn())
    };
    let refused = Queue::connect(fixture.target.address(), options.clone()).unwrap_err();
    assert_eq!(refused.status(), Some(Status::SequenceError));
    options.host_id = [9; 16];
    let refused = Queue::connect(fixture.target.address(), options).unwrap_err();
    assert_eq!(refused.status(), Some(invalid));
    let mut host = fixture.host(Digests::default());
    assert_eq!(host.ask_queues(2).unwrap(), 2);
    let first = host.queue(1, 8).unwrap();
    assert_eq!(
        host.queue(1, 8).unwrap_err().status(),
        Some(Status::SequenceError)
    );
    assert_eq!(host.queue(3, 8).unwrap_err().status(), Some(invalid));
    drop(first);
    drop(wire);
    still_serves(&fixture);
}

/// Start a write of `blocks` blocks that waits for its data; return its R2T.
fn asked(queue: &mut Queue, blocks: u32) -> R2t {
    let len = blocks as usize * BLOCK;
    let command = submission(
        77,
        command::write(CONVENTIONAL, 0, blocks),
        Sgl::new(SglKind::Transport, len as u32),
    );
    let wire = queue.wire();
    let pdu = wire.pdu(PduType::CapsuleCmd, command.as_bytes(), 0, &[]);
    wire.put(&pdu);
    wire.flush().unwrap();
    match wire.receive().unwrap() {
        Incoming::Ready(r2t) => r2t,
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_that_nobody_has_asked_for_ends_the_connection() {
    let fixture = Fixture::new();
    let host = fixture.host(Digests::default());
    let out_of_range = Fatal::because(FatalStatus::DataOutOfRange);
    let send = |change: fn(&mut Data), data: usize, flags: u8| {
        let mut queue = loop {
            match host.queue(1, 8) {
                Ok(queue) => break queue,
                // The connection before is not gone yet.
                Err(Error::Failed { .. }) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("{error}"),
            }
        };
        let r2t = asked(&mut queue, 4);
        assert_eq!((r2t.cid.get(), r2t.length.get() as usize), (77, 4 * BLOCK));
        let wire = queue.wire();
        let mut header = Wire::h2c_data(&r2t, 0, data);
        change(&mut header);
        let pdu = wire.pdu(PduType::H2cData, header.as_bytes(), flags, &vec![0; data]);
        fate(wire, &pdu)
    };
    assert_eq!(
        send(|d| d.transfer_tag.set(d.transfer_tag.get() ^ 1), BLOCK, 0),
        Fatal::field(10)
    );
    assert_eq!(send(|d| d.cid.set(5), BLOCK, 0), Fatal::field(8));
    assert_eq!(send(|d| d.offset.set(4096), BLOCK, 0), out_of_range);
    assert_eq!(send(|d| d.offset.set(u32::MAX), BLOCK, 0), out_of_range);
    assert_eq!(send(|_| (), 5 * BLOCK, FLAG_LAST), out_of_range);
    assert_eq!(send(|d| d.length.set(8192), BLOCK, 0), Fatal::field(16));
    assert_eq!(send(|_| (), BLOCK, FLAG_LAST), Fatal::field(1));
    assert_eq!(send(|_| (), 4 * BLOCK, 0), Fatal::field(1));
    // Twice the same.
    let host = fixture.host(Digests::default());
    let mut queue = host.queue(1, 8).unwrap();
    let r2t = asked(&mut queue, 2);
    let wire = queue.wire();
    let header = Wire::h2c_data(&r2t, 0, BLOCK);
    let pdu = wire.pdu(PduType::H2cData, header.as_bytes(), 0, &[0; BLOCK]);
    assert_eq!(fate(wire, &[pdu.clone(), pdu].concat()), out_of_range);
    still_serves(&fixture);
}

#[test]
fn a_digest_of_data_that_is_wrong_fails_the_command_alone() {
    let fixture = Fixture::new();
    let digests = all_digests()[3];
    let host = fixture.host(digests);
    let mut queue = host.queue(1, 8).unwrap();
    let before = pattern(0, 4, 9);
    let write = command::write(CONVENTIONAL, 0, 4);
    queue
        .run(write, before.clone(), 0)
        .unwrap()
        .ok("Write")
        .unwrap();
    // In the capsule.
    let in_capsule = submission(
        1,
        command::write(CONVENTIONAL, 0, 1),
        Sgl::new(SglKind::InCapsule, BLOCK as u32),
    );
    let wire = queue.wire();
    let mut pdu = wire.pdu(PduType::CapsuleCmd, in_capsule.as_bytes(), 0, &[7; BLOCK]);
    let end = pdu.len();
    pdu[end - 10] ^= 0x10;
    wire.put(&pdu);
    wire.flush().unwrap();
    let Incoming::Done(done) = wire.receive().unwrap() else {
        panic!("no response");
    };
    assert_eq!(done.status(), Status::TransientTransportError);
    // In PDUs of its own.
    let r2t = asked(&mut queue, 4);
    let wire = queue.wire();
    let header = Wire::h2c_data(&r2t, 0, 4 * BLOCK);
    let mut pdu = wire.pdu(
        PduType::H2cData,
        header.as_bytes(),
        FLAG_LAST,
        &[7; 4 * BLOCK],
    );
    let end = pdu.len();
    pdu[end - 1] ^= 0x10;
    wire.put(&pdu);
    wire.flush().unwrap();
    let Incoming::Done(done) = wire.receive().unwrap() else {
        panic!("no response");
    };
    assert_eq!(
        (done.cid.get(), done.status()),
        (77, Status::TransientTransportError)
    );
    let read = command::read(CONVENTIONAL, 0, 4);
    let now = queue
        .run(read, Vec::new(), 4 * BLOCK)
        .unwrap()
        .ok("Read")
        .unwrap()
        .data;
    assert!(now == before, "nothing of it was written");
}

#[test]
fn sgls_that_do_not_fit_fail_the_command_alone() {
    let fixture = Fixture::new();
    let (_host, mut queue) = fixture.queue();
    let mut status = |command, sgl, data: &[u8], flags: u8| {
        let mut capsule = submission(9, command, sgl);
        capsule.command.flags = flags;
        let wire = queue.wire();
        let pdu = wire.pdu(PduType::CapsuleCmd, capsule.as_bytes(), 0, data);
        wire.put(&pdu);
        wire.flush().unwrap();
        match wire.receive().unwrap() {
            Incoming::Done(done) => done.status(),
            other => panic!("{other:?}"),
        }
    };
    let sgl = Sgl::new;
    let block = BLOCK as u32;
    let write = command::write(CONVENTIONAL, 0, 1);
    let read = command::read(CONVENTIONAL, 0, 1);
    let data = [0; BLOCK];
    let (capsule, transport) = (SglKind::InCapsule, SglKind::Transport);
    let right = 0b01 << 6;
    assert_eq!(
        status(write, sgl(capsule, block), &data, right),
        Status::Success
    );
    assert_eq!(
        status(write, sgl(capsule, block), &data, 0),
        Status::InvalidField
    );
    assert_eq!(
        status(write, sgl(capsule, block), &data, right | 1),
        Status::InvalidField
    );
    assert_eq!(
        status(write, sgl(capsule, block), &data[1..], right),
        Status::SglLengthInvalid
    );
    assert_eq!(
        status(write, sgl(capsule, block), &[], right),
        Status::SglLengthInvalid
    );
    assert_eq!(
        status(write, sgl(capsule, u32::MAX), &data, right),
        Status::SglLengthInvalid
    );
    assert_eq!(
        status(write, sgl(transport, block), &data, right),
        Status::InvalidField
    );
    assert_eq!(
        status(read, sgl(capsule, block), &[], right),
        Status::SglTypeInvalid
    );
    assert_eq!(
        status(read, sgl(transport, block), &data, right),
        Status::InvalidField
    );
    assert_eq!(
        status(command::flush(1), sgl(transport, 0), &data, right),
        Status::InvalidField
    );
    for identifier in [0x00, 0x02, 0x0F, 0x10, 0x20, 0x30, 0x40, 0x50, 0x5B, 0xF0] {
        let kind = SglKind::Unknown(identifier);
        assert_eq!(
            status(write, sgl(kind, block), &data, right),
            Status::SglTypeInvalid
        );
        assert_eq!(
            status(read, sgl(kind, block), &[], right),
            Status::SglTypeInvalid
        );
    }
    let mut behind = sgl(capsule, block);
    behind.address.set(BLOCK as u64 + 1);
    assert_eq!(
        status(write, behind, &data, right),
        Status::SglOffsetInvalid
    );
    behind.address.set(u64::MAX);
    assert_eq!(
        status(write, behind, &data, right),
        Status::SglOffsetInvalid
    );
}

#[test]
fn an_identifier_in_use_and_a_full_queue_are_noticed() {
    let fixture = Fixture::new();
    let host = fixture.host(Digests::default());
    let mut queue = host.queue(1, 4).unwrap();
    let r2t = asked(&mut queue, 4);
    let wire = queue.wire();
    let again = submission(
        r2t.cid.get(),
        command::flush(1),
        Sgl::new(SglKind::Transport, 0),
    );
    let pdu = wire.pdu(PduType::CapsuleCmd, again.as_bytes(), 0, &[]);
    wire.put(&pdu);
    wire.flush().unwrap();
    let Incoming::Done(done) = wire.receive().unwrap() else {
        panic!("no response");
    };
    assert_eq!(done.status(), Status::CommandIdConflict);
    // Four entries, all of them waiting for data; the fifth is one too many.
    let mut pdus = Vec::new();
    for cid in 100..104 {
        let write = submission(
            cid,
            command::write(CONVENTIONAL, 0, 4),
            Sgl::new(SglKind::Transport, 4 * BLOCK as u32),
        );
        pdus.extend(wire.pdu(PduType::CapsuleCmd, write.as_bytes(), 0, &[]));
    }
    assert_eq!(
        fate(wire, &pdus),
        Fatal::because(FatalStatus::SequenceError)
    );
    still_serves(&fixture);
}

/// All that a host sends for a whole session with one write.
fn session(fixture: &Fixture, digests: Digests) -> Vec<u8> {
    let mut wire = opened(fixture, digests);
    let mut all = Wire::ic_req(digests, 0).as_bytes().to_vec();
    let mut connect = command::disconnect();
    connect.nsid.set(1);
    connect.cdw11.set(31);
    let mut data = ConnectData::zeroed();
    data.controller.set(0xFFFF);
    data.subsystem = nvme_wire::nqn(fixture.target.nqn());
    data.host = nvme_wire::nqn("nqn.2026-11.org.example:host");
    let connect = submission(0, connect, Sgl::new(SglKind::InCapsule, 1024));
    all.extend(wire.pdu(PduType::CapsuleCmd, connect.as_bytes(), 0, data.as_bytes()));
    let enable = command::property_set(0x14, 0x0046_0061);
    for (cid, command, len) in [(1, enable, 0), (2, command::identify(0, 1, 0), 4096)] {
        let capsule = submission(cid, command, Sgl::new(SglKind::Transport, len));
        all.extend(wire.pdu(PduType::CapsuleCmd, capsule.as_bytes(), 0, &[]));
    }
    wire.put(&[]);
    all
}

#[test]
fn a_connection_may_drop_at_every_byte() {
    let fixture = Fixture::new();
    for digests in [all_digests()[0], all_digests()[3]] {
        let bytes = session(&fixture, digests);
        for end in 0..bytes.len() {
            let mut stream = TcpStream::connect(fixture.target.address()).unwrap();
            stream.write_all(&bytes[..end]).unwrap();
            // Half of them leave without reading the answers.
            if end % 2 == 0 {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
        }
    }
    still_serves(&fixture);
    fixture.wait_until_idle();
}

#[test]
fn any_byte_may_be_any_other() {
    let fixture = Fixture::new();
    let bytes = session(&fixture, Digests::default());
    // The zeroes around the names are much alike.
    for at in 0..bytes.len() {
        let is_padding = bytes[at] == 0 && (300..1300).contains(&at);
        let bits: &[u32] = if is_padding { &[5] } else { &[0, 1, 6] };
        for bit in bits {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << bit;
            let mut stream = TcpStream::connect(fixture.target.address()).unwrap();
            let _ = stream.write_all(&wrong);
        }
    }
    still_serves(&fixture);
    fixture.wait_until_idle();
}

#[test]
fn connections_that_drop_in_the_middle_of_io_leave_nothing_behind() {
    let fixture = Fixture::with("indef-femu", 1.0);
    for round in 0..20_u64 {
        let host: Host = fixture.host(all_digests()[(round % 4) as usize]);
        let mut queues: Vec<Queue> = (1..=3).map(|id| host.queue(id, 64).unwrap()).collect();
        for queue in &mut queues {
            for n in 0..40 {
                let at = (round * 40 + n) % 1000 * 16;
                let result = if n % 2 == 0 {
                    queue.start(command::read(CONVENTIONAL, at, 16), Vec::new(), 16 * BLOCK)
                } else {
                    queue.start(
                        command::write(CONVENTIONAL, at, 16),
                        pattern(at, 16, round),
                        0,
                    )
                };
                result.unwrap();
            }
            queue.flush().unwrap();
        }
        // Some have been answered a little, some not at all.
        if round % 3 == 0 {
            queues[0].wait().unwrap();
        }
    }
    still_serves(&fixture);
    fixture.wait_until_idle();
}

#[test]
fn a_host_may_terminate() {
    let fixture = Fixture::new();
    let mut wire = opened(&fixture, Digests::default());
    let mut request = TermReq::to_host(Fatal::field(3), 0);
    request.header.kind = PduType::H2cTermReq.raw();
    wire.put(request.as_bytes());
    wire.flush().unwrap();
    assert!(wire.receive().unwrap_err().is_disconnect());
    let (mut host, mut queue) = fixture.queue();
    queue
        .run(command::disconnect(), Vec::new(), 0)
        .unwrap()
        .ok("Disconnect")
        .unwrap();
    assert!(
        queue
            .run(command::flush(1), Vec::new(), 0)
            .unwrap_err()
            .is_disconnect()
    );
    let refused = host
        .run("Disconnect", command::disconnect(), Vec::new(), 0)
        .unwrap_err();
    assert_eq!(
        refused.status(),
        Some(nvme_wire::status::connect::INVALID_QUEUE_TYPE)
    );
    // No property, as PSDT and all else are zeroes.
    let mut nothing = Submission::zeroed();
    nothing.opcode = 0x7F;
    let refused = host
        .run("Property Set", nothing, Vec::new(), 0)
        .unwrap_err();
    assert_eq!(refused.status(), Some(Status::InvalidField));
}
