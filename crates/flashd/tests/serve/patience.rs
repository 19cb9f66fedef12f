//! How long the target waits for a host, and how much memory it holds for it.

use std::time::{Duration, Instant};

use crate::target::{BLOCK, CONVENTIONAL, Fixture, ZONED, pattern};
use flash_model::Profile;
use flashd::{
    device::{Device, DeviceOptions},
    serve::{TargetOptions, Timeouts},
};
use nvme_initiator::{Error, Host, HostOptions, Incoming, Queue, Wire, command};
use nvme_wire::{
    Sgl, Status,
    command::SglKind,
    copy::{CopyFormat, CopySource},
    discovery::DISCOVERY_NQN,
    identify::{Controller, IndependentNamespace, Namespace},
    io::BlockRange,
    pdu::{CapsuleCmd, Digests, FLAG_LAST, Header, PduType, R2t},
    property::Property,
    status::connect,
};
use units::Bytes;
use zerocopy::{IntoBytes, little_endian::U16};

const MIB: usize = 1 << 20;

fn with_timeouts(each: Duration) -> Fixture {
    Fixture::with_options(TargetOptions {
        timeouts: Timeouts {
            connect: each,
            pdu: each,
            data: each,
        },
        ..TargetOptions::default()
    })
}

/// The bytes of a write of `len` bytes at block 0, whose data waits for an R2T.
fn write_capsule(wire: &Wire, cid: u16, len: usize) -> Vec<u8> {
    let mut write = command::write(CONVENTIONAL, 0, (len / BLOCK) as u32);
    write.cid = U16::new(cid);
    write.flags = 0b01 << 6;
    write.sgl = Sgl::new(SglKind::Transport, len as u32);
    let capsule = CapsuleCmd {
        header: Header::zeroed(),
        command: write,
    };
    wire.pdu(PduType::CapsuleCmd, capsule.as_bytes(), 0, &[])
}

/// Start a write of `len` bytes that waits for its data; return its R2T.
fn asked(queue: &mut Queue, cid: u16, len: usize) -> R2t {
    let wire = queue.wire();
    let pdu = write_capsule(wire, cid, len);
    wire.put(&pdu);
    wire.flush().unwrap();
    match wire.receive().unwrap() {
        Incoming::Ready(r2t) => r2t,
        other => panic!("{other:?}"),
    }
}

fn status(done: Result<Incoming, Error>) -> Status {
    match done.unwrap() {
        Incoming::Done(completion) => completion.status(),
        other => panic!("{other:?}"),
    }
}

fn keep_alive(host: &mut Host) -> Result<(), Error> {
    host.run("Keep Alive", command::keep_alive(), Vec::new(), 0)
        .map(drop)
}

#[test]
fn a_host_in_the_middle_of_a_slow_write_is_kept() {
    let fixture = Fixture::new();
    let mut options = fixture.options(Digests::default());
    // A host has half as long again.
    options.admin.keep_alive_ms = 2000;
    let mut host = Host::connect(fixture.target.address(), options).unwrap();
    let mut queue = host.queue(1, 8).unwrap();
    let r2t = asked(&mut queue, 7, MIB);
    let data = pattern(0, MIB / BLOCK, 1);
    let mut bytes = Vec::new();
    for start in (0..MIB).step_by(MIB / 4) {
        let part = &data[start..start + MIB / 4];
        let header = Wire::h2c_data(&r2t, start, part.len());
        let last = if start + part.len() == MIB {
            FLAG_LAST
        } else {
            0
        };
        let wire = queue.wire();
        bytes.extend(wire.pdu(PduType::H2cData, header.as_bytes(), last, part));
    }
    for part in bytes.chunks(bytes.len().div_ceil(16)) {
        std::thread::sleep(Duration::from_millis(250));
        queue.wire().put(part);
        queue.flush().unwrap();
    }
    assert_eq!(status(queue.wire().receive()), Status::Success);
    keep_alive(&mut host).unwrap();
    // The bytes are not counted for ever.
    std::thread::sleep(Duration::from_millis(4500));
    assert!(keep_alive(&mut host).unwrap_err().is_disconnect());
    fixture.wait_until_idle();
}

#[test]
fn a_host_that_is_silent_is_let_go() {
    let fixture = Fixture::new();
    let mut options = fixture.options(Digests::default());
    options.admin.keep_alive_ms = 2000;
    let mut host = Host::connect(fixture.target.address(), options).unwrap();
    let mut queue = host.queue(1, 8).unwrap();
    // Traffic on any queue counts, and so do Keep Alive commands.
    for round in 0..5 {
        std::thread::sleep(Duration::from_millis(800));
        if round % 2 == 0 {
            queue.run(command::flush(1), Vec::new(), 0).unwrap();
        } else {
            keep_alive(&mut host).unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(4500));
    assert!(keep_alive(&mut host).unwrap_err().is_disconnect());
    assert!(
        queue
            .run(command::flush(1), Vec::new(), 0)
            .unwrap_err()
            .is_disconnect()
    );
    fixture.wait_until_idle();
}

#[test]
fn an_answer_counts_as_a_sign_of_life() {
    let namespace = flashd::device::NamespaceOptions {
        kind: flash_model::NamespaceKind::Conventional,
        size: Bytes::mib(64),
    };
    // A flush of one block takes a transfer and a program: about 0.72 ms, here 1.7 s.
    let options = DeviceOptions {
        time_scale: 2400.0,
        ..DeviceOptions::in_memory(Profile::builtin("indef-femu").unwrap(), &[namespace])
    };
    let fixture = Fixture::of(Device::open(&options).unwrap());
    let mut options = fixture.options(Digests::default());
    options.admin.keep_alive_ms = 2400;
    let mut host = Host::connect(fixture.target.address(), options).unwrap();
    let mut queue = host.queue(1, 8).unwrap();
    queue
        .run(command::write(1, 0, 1), pattern(0, 1, 1), 0)
        .unwrap()
        .ok("Write")
        .unwrap();
    let began = Instant::now();
    queue
        .run(command::flush(1), Vec::new(), 0)
        .unwrap()
        .ok("Flush")
        .unwrap();
    let took = began.elapsed();
    assert!(took > Duration::from_millis(1300), "{took:?}");
    // Without the answer it would have been silent for too long: for more than 3.6 s.
    std::thread::sleep(Duration::from_millis(2400));
    keep_alive(&mut host).unwrap();
}

/// Send `piece` every 50 ms; return how long that goes well, at most about 10 s.
fn drip(wire: &mut Wire, mut piece: impl FnMut(&Wire) -> Vec<u8>) -> Duration {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        let bytes = piece(wire);
        wire.put(&bytes);
        if wire.flush().is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

#[test]
fn a_host_that_drips_is_let_go() {
    let fixture = with_timeouts(Duration::from_secs(1));
    let in_time = Duration::from_secs(6);
    // Single bytes instead of a queue.
    let mut wire = Wire::open(fixture.target.address()).unwrap();
    let mut icreq = nvme_wire::pdu::IcReq::zeroed();
    icreq.header = Header::plain(PduType::IcReq, 128, Digests::default());
    let mut bytes = icreq.as_bytes().to_vec().into_iter().cycle();
    assert!(drip(&mut wire, |_| vec![bytes.next().unwrap()]) < in_time);
    // Single bytes of a command.
    let host = fixture.host(Digests::default());
    let mut queue = host.queue(1, 8).unwrap();
    let capsule = write_capsule(queue.wire(), 1, MIB);
    let mut bytes = capsule.into_iter().cycle();
    assert!(drip(queue.wire(), |_| vec![bytes.next().unwrap()]) < in_time);
    // Whole PDUs, but little of the data that was asked for.
    let mut queue = host.queue(2, 8).unwrap();
    let r2t = asked(&mut queue, 1, MIB);
    let mut offset = 0;
    let lasted = drip(queue.wire(), |wire| {
        let header = Wire::h2c_data(&r2t, offset, 512);
        offset += 512;
        wire.pdu(PduType::H2cData, header.as_bytes(), 0, &[1; 512])
    });
    assert!(lasted < in_time);
    // Commands of the same connection do not help, either.
    let mut queue = host.queue(3, 64).unwrap();
    asked(&mut queue, 63, MIB);
    let mut cid = 0;
    let lasted = drip(queue.wire(), |wire| {
        let mut flush = command::flush(CONVENTIONAL);
        flush.cid = U16::new(cid % 32);
        flush.flags = 0b01 << 6;
        cid += 1;
        let capsule = CapsuleCmd {
            header: Header::zeroed(),
            command: flush,
        };
        wire.pdu(PduType::CapsuleCmd, capsule.as_bytes(), 0, &[])
    });
    assert!(lasted < in_time);
    // A host that owes nothing may be silent.
    let mut queue = host.queue(4, 8).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let flush = command::flush(CONVENTIONAL);
    queue
        .run(flush, Vec::new(), 0)
        .unwrap()
        .ok("Flush")
        .unwrap();
}

/// Bytes of this process that are in memory, the target's among them.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn hosts_that_owe_their_data_hold_little_memory() {
    let fixture = with_timeouts(Duration::from_secs(3));
    let host = fixture.host(Digests::default());
    let mut queues: Vec<Queue> = (1..=40).map(|id| host.queue(id, 16).unwrap()).collect();
    let before = resident_bytes();
    for queue in &mut queues {
        let wire = queue.wire();
        for cid in 0..8 {
            let pdu = write_capsule(wire, cid, MIB);
            wire.put(&pdu);
        }
        wire.flush().unwrap();
    }
    std::thread::sleep(Duration::from_secs(1));
    let more = resident_bytes().saturating_sub(before);
    assert!(more < 64 * MIB, "{} MiB", more / MIB);
    // Another host gets its turn when they are dropped.
    let mut honest = host.queue(41, 8).unwrap();
    let data = pattern(0, MIB / BLOCK, 5);
    let write = command::write(CONVENTIONAL, 0, (MIB / BLOCK) as u32);
    honest
        .run(write, data.clone(), 0)
        .unwrap()
        .ok("Write")
        .unwrap();
    let read = command::read(CONVENTIONAL, 0, (MIB / BLOCK) as u32);
    let back = honest.run(read, Vec::new(), MIB).unwrap();
    assert!(back.ok("Read").unwrap().data == data);
}

#[test]
fn private_namespaces_have_one_controller_and_no_other_path() {
    let fixture = Fixture::with_options(TargetOptions {
        private: true,
        ..TargetOptions::default()
    });
    let mut host = fixture.host(Digests::default());
    let controller: Controller = host.identify_as(0, 1, 0).unwrap();
    assert_eq!(controller.multipath, 0);
    for nsid in [ZONED, CONVENTIONAL] {
        let namespace: Namespace = host.identify_as(nsid, 0, 0).unwrap();
        let independent: IndependentNamespace = host.identify_as(nsid, 8, 0).unwrap();
        assert_eq!((namespace.multipath, independent.multipath), (0, 0));
    }
    let another = || {
        Host::connect(
            fixture.target.address(),
            fixture.options(Digests::default()),
        )
    };
    let refused = another().unwrap_err();
    assert_eq!(refused.status(), Some(connect::CONTROLLER_BUSY));
    // Discovery goes on.
    Host::connect(fixture.target.address(), HostOptions::new(DISCOVERY_NQN)).unwrap();
    drop(host);
    fixture.wait_until_idle();
    another().unwrap();
}

/// A copy that is being carried out when its controller is reset: no byte of it is written once the host
/// knows of the reset, and could write there itself.
#[test]
fn a_reset_waits_for_what_is_being_carried_out() {
    const BLOCKS: u64 = 30 << 20 >> 12;
    const TO: u64 = 32 << 20 >> 12;
    let fixture = Fixture::new();
    let (mut host, mut queue) = fixture.queue();
    let index = CONVENTIONAL as usize - 1;
    let reads_as = |at: u64, expected: &[u8]| {
        let mut bytes = vec![0; BLOCK];
        let offset = at * BLOCK as u64;
        fixture.device.read_into(index, offset, &mut bytes).unwrap();
        bytes == expected
    };
    for at in (0..BLOCKS).step_by(256) {
        let write = command::write(CONVENTIONAL, at, 256);
        let done = queue.run(write, pattern(at, 256, 1), 0).unwrap();
        done.ok("Write").unwrap();
    }
    let sources: Vec<CopySource> = (0..BLOCKS)
        .step_by(256)
        .map(|start| CopySource {
            nsid: None,
            blocks: BlockRange { start, count: 256 },
            fast_only: false,
        })
        .collect();
    let (copy, data) = command::copy(CONVENTIONAL, CopyFormat::Same32, &sources, TO);
    queue.start(copy, data, 0).unwrap();
    queue.flush().unwrap();
    while !reads_as(TO, &pattern(0, 1, 1)) {}
    host.set_property(Property::Configuration, 0).unwrap();
    let last = pattern(BLOCKS - 1, 1, 1);
    assert!(
        reads_as(TO + BLOCKS - 1, &last),
        "it went on after the reset"
    );
}
