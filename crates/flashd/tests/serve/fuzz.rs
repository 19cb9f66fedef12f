//! Hosts that do anything, right and wrong, to a target that lives. It has to survive them, answer
//! those that behave, and keep nothing when they are gone.
//!
//! INDEF_SERVE_FUZZ_SECONDS is the duration (10 by default): for an hour,
//! `INDEF_SERVE_FUZZ_SECONDS=3600 cargo test --release -p flashd --test serve fuzz:: -- --nocapture`.
//! INDEF_SERVE_FUZZ_SEED makes it begin as an earlier run did, which printed this seed.

use std::{
    collections::HashMap,
    io::Write,
    net::Shutdown,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::target::{BLOCK, CONVENTIONAL, CONVENTIONAL_BLOCKS, Fixture, pattern};
use nvme_initiator::{Error, Host, Incoming, Queue, Wire, command};
use nvme_wire::{
    Sgl, Status, Submission,
    command::SglKind,
    pdu::{CapsuleCmd, Digests, FLAG_LAST, Header, PduType, R2t},
};
use zerocopy::{FromBytes, IntoBytes, little_endian::U16};

/// Blocks that only hosts that behave write, at the end of the conventional namespace.
const KEPT_BLOCKS: u64 = 1024;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// xorshift64*: few words, and the same with the same seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Mostly small, sometimes at the edges, sometimes anything.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => u64::from(u32::MAX),
            3 => self.next(),
            4 => 1 << self.below(64),
            _ => self.below(70000),
        }
    }
}

/// A command that makes sense more often than not, but never writes where others keep their data.
fn some_command(chance: &mut Chance, admin: bool) -> Submission {
    const IO: [u8; 13] = [
        0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0C, 0x19, 0x79, 0x7A, 0x7D, 0x7F, 0xC1,
    ];
    const ADMIN: [u8; 8] = [0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x7F];
    let mut command = Submission::zeroed();
    let known: &[u8] = if admin { &ADMIN } else { &IO };
    command.opcode = if chance.one_in(10) {
        chance.next() as u8
    } else {
        known[chance.below(known.len() as u64) as usize]
    };
    command.nsid.set(match chance.below(6) {
        0 => chance.number() as u32,
        1 => u32::MAX,
        _ => 1,
    });
    // Only the zoned namespace is theirs to write.
    if command.nsid.get() == CONVENTIONAL {
        command.nsid.set(1);
    }
    for field in [
        &mut command.cdw2,
        &mut command.cdw3,
        &mut command.cdw10,
        &mut command.cdw11,
        &mut command.cdw12,
        &mut command.cdw13,
        &mut command.cdw14,
        &mut command.cdw15,
    ] {
        if !chance.one_in(3) {
            field.set(chance.number() as u32);
        }
    }
    // Blocks in range, and few of them.
    if chance.one_in(2) && !admin {
        command.cdw10.set(chance.below(65536) as u32);
        command.cdw11.set(0);
        command.cdw12.set(chance.below(64) as u32);
    }
    command.flags = if chance.one_in(20) {
        chance.next() as u8
    } else {
        0b01 << 6
    };
    command
}

/// A host that does anything. Any end of its connection is fine.
fn misbehave(fixture: &Fixture, chance: &mut Chance) -> Result<u64, Error> {
    let digests = Digests::from_raw(chance.below(4) as u8).unwrap();
    let mut options = fixture.options(digests);
    options.admin.no_flow_control = chance.one_in(2);
    options.admin.hpda = chance.below(32) as u8;
    let host = Host::connect(fixture.target.address(), options)?;
    let is_admin = chance.one_in(3);
    let mut io;
    let mut host = host;
    let queue: &mut Queue = if is_admin {
        host.admin()
    } else {
        io = host.queue(1 + chance.below(4) as u16, 2 + chance.below(40) as u16)?;
        &mut io
    };
    let wire = queue.wire();
    wire.stream()
        .set_read_timeout(Some(Duration::from_millis(20)))?;
    let mut asked: Vec<R2t> = Vec::new();
    let mut sent = 0;
    for cid in 0..1 + chance.below(60) {
        let mut bytes = some_pdu(wire, chance, cid as u16, is_admin, &asked);
        if chance.one_in(25) && !bytes.is_empty() {
            let at = chance.below(bytes.len().min(160) as u64) as usize;
            bytes[at] ^= 1 << chance.below(8);
        }
        if chance.one_in(60) {
            bytes.truncate(chance.below(bytes.len() as u64) as usize);
            wire.put(&bytes);
            wire.flush()?;
            let _ = wire.stream().shutdown(Shutdown::Write);
            return Ok(sent);
        }
        wire.put(&bytes);
        sent += 1;
        if chance.one_in(3) {
            wire.flush()?;
            while chance.below(4) > 0 {
                match wire.receive() {
                    Ok(Incoming::Ready(r2t)) => asked.push(r2t),
                    Ok(Incoming::Terminated(_)) => return Ok(sent),
                    Ok(_) => {}
                    Err(error) if error.is_disconnect() => return Ok(sent),
                    // The target is silent; a cut in the middle of a PDU makes no difference here.
                    Err(Error::Io(_)) => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }
    let _ = wire.stream().flush();
    Ok(sent)
}

fn some_pdu(wire: &Wire, chance: &mut Chance, cid: u16, admin: bool, asked: &[R2t]) -> Vec<u8> {
    if !asked.is_empty() && chance.one_in(2) {
        let r2t = &asked[chance.below(asked.len() as u64) as usize];
        let len = r2t.length.get() as usize;
        let (offset, len) = if chance.one_in(4) {
            (
                chance.number() as usize & 0xFFFF_FFFF,
                1 + chance.below(9000) as usize,
            )
        } else {
            (0, len)
        };
        let header = Wire::h2c_data(r2t, offset, len);
        let last = if chance.one_in(5) { 0 } else { FLAG_LAST };
        return wire.pdu(
            PduType::H2cData,
            header.as_bytes(),
            last,
            &vec![0xA5; len.min(1 << 20)],
        );
    }
    if chance.one_in(40) {
        return (0..chance.below(200))
            .map(|_| chance.next() as u8)
            .collect();
    }
    let mut command = some_command(chance, admin);
    command.cid = U16::new(if chance.one_in(10) {
        chance.next() as u16
    } else {
        cid
    });
    let len = chance.below(17) as usize * 512;
    let data = match chance.below(3) {
        0 => vec![chance.next() as u8; len],
        _ => Vec::new(),
    };
    command.sgl = match chance.below(12) {
        0 => Sgl::read_from_bytes(&chance.next().to_le_bytes().repeat(2)).unwrap(),
        _ if !data.is_empty() => Sgl::new(SglKind::InCapsule, data.len() as u32),
        _ => {
            let blocks = (command.cdw12.get() & 0xFFFF) + 1;
            Sgl::new(SglKind::Transport, blocks.wrapping_mul(BLOCK as u32))
        }
    };
    let capsule = CapsuleCmd {
        header: Header::zeroed(),
        command,
    };
    wire.pdu(PduType::CapsuleCmd, capsule.as_bytes(), 0, &data)
}

/// A host that behaves: all of its data is there, however the others behave.
fn behave(fixture: &Fixture, stop: &AtomicBool, mut chance: Chance) -> u64 {
    let host = fixture.host(Digests::from_raw(3).unwrap());
    let mut queue = host.queue(1, 32).unwrap();
    let first = CONVENTIONAL_BLOCKS - KEPT_BLOCKS;
    let mut written: HashMap<u64, u64> = HashMap::new();
    let mut commands = 0;
    while !stop.load(Ordering::Acquire) {
        let at = first + chance.below(KEPT_BLOCKS / 8) * 8;
        let count = 8;
        if let Some(&seed) = written.get(&at) {
            let read = command::read(CONVENTIONAL, at, count);
            let data = queue
                .run(read, Vec::new(), 8 * BLOCK)
                .unwrap()
                .ok("Read")
                .unwrap()
                .data;
            assert!(data == pattern(at, 8, seed), "block {at}");
        }
        let seed = chance.next();
        let write = command::write(CONVENTIONAL, at, count);
        let done = queue.run(write, pattern(at, 8, seed), 0).unwrap();
        assert_eq!(done.status, Status::Success);
        written.insert(at, seed);
        commands += 2;
    }
    commands
}

#[test]
fn hosts_that_do_anything_do_no_harm() {
    let seconds = number("INDEF_SERVE_FUZZ_SECONDS", 10);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = number("INDEF_SERVE_FUZZ_SEED", now.unwrap().as_nanos() as u64) | 1;
    println!("INDEF_SERVE_FUZZ_SEED={seed}");
    // One with latencies, too: replies come from other threads then.
    for (share, profile) in [(2, "zero"), (2, "indef-femu")] {
        let fixture = Fixture::with(profile, 1.0);
        let stop = AtomicBool::new(false);
        let (sessions, pdus) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let good = scope.spawn(|| behave(&fixture, &stop, Chance(seed)));
            let bad: Vec<_> = (0..3_u64)
                .map(|thread| {
                    let (fixture, stop, sessions, pdus) = (&fixture, &stop, &sessions, &pdus);
                    scope.spawn(move || {
                        let mut chance = Chance(seed ^ (thread + 1) << 40);
                        while !stop.load(Ordering::Acquire) {
                            match misbehave(fixture, &mut chance) {
                                Ok(sent) => {
                                    pdus.fetch_add(sent, Ordering::Relaxed);
                                }
                                Err(Error::Protocol(what)) => panic!("the target: {what}"),
                                // Connections and controllers are limited.
                                Err(_) => {}
                            }
                            sessions.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let end = Instant::now() + Duration::from_millis(seconds * 1000 / share);
            while Instant::now() < end
                && !good.is_finished()
                && !bad.iter().any(|b| b.is_finished())
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            stop.store(true, Ordering::Release);
            let good = good.join().unwrap();
            println!(
                "{profile}: {} sessions with {} PDUs, {good} commands beside them",
                sessions.load(Ordering::Relaxed),
                pdus.load(Ordering::Relaxed)
            );
        });
        fixture.wait_until_idle();
    }
}
