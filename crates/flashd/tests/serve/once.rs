//! Each command ends once, under its own identifier and with its own data, whatever the sockets do
//! meanwhile: buffers of a few KiB, single bytes, a host that does not read for a while, one that goes
//! away in the middle.
//!
//! As Linux does, the host puts a generation into the identifiers, so that an end that comes twice is
//! noticed although the place of the command is in use again.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use nvme_initiator::{Host, Wire, command};
use nvme_wire::{
    Sgl, Submission,
    command::SglKind,
    pdu::{CapsuleCmd, CapsuleResp, Data, Digests, FLAG_LAST, FLAG_SUCCESS, Header, PduType, R2t},
};
use rustix::net::sockopt;
use zerocopy::{IntoBytes, little_endian::U16};

use crate::{
    fuzz::Chance,
    target::{BLOCK, CONVENTIONAL, Fixture, pattern},
};

/// Commands at a time, at most.
const PLACES: usize = 24;
/// Blocks of one place: nobody else writes there.
const REGION: u64 = 64;
/// Most bytes of data in a capsule.
const IN_CAPSULE: usize = 16 << 10;
/// Commands of one connection.
const COMMANDS: u64 = 600;
/// The seed of blocks that read as zeroes: [`Chance`] gives no such number.
const UNWRITTEN: u64 = 0;
/// The time in which something has to move.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a command is about.
enum Work {
    Read { got: usize },
    Write { seed: u64, asked: bool },
    Flush,
}

struct Command {
    cid: u16,
    /// Blocks, from the start of the region.
    at: u64,
    count: u64,
    work: Work,
}

/// A place for one command at a time.
struct Place {
    generation: u8,
    command: Option<Command>,
    /// The seed of each block's content; none where a write may have been done or not.
    seeds: Vec<Option<u64>>,
}

/// One connection of the host.
struct Connection<'a> {
    places: &'a mut [Place],
    chance: &'a mut Chance,
    stream: TcpStream,
    wire: &'a Wire,
    /// PDUs with the data that was asked for, for each R2T.
    owed: Vec<VecDeque<Vec<u8>>>,
    out: VecDeque<u8>,
    input: Vec<u8>,
    begun: u64,
    ended: u64,
}

impl Connection<'_> {
    fn busy(&self) -> usize {
        self.places.iter().filter(|p| p.command.is_some()).count()
    }

    /// Begin a command in a free place.
    fn begin(&mut self) {
        let free = |place: &Place| place.command.is_none();
        let Some(number) = self.places.iter().position(free) else {
            return;
        };
        let place = &mut self.places[number];
        place.generation = place.generation.wrapping_add(1);
        let cid = u16::from(place.generation) << 8 | number as u16;
        let at = self.chance.below(REGION);
        let count = 1 + self.chance.below(REGION - at);
        let first = number as u64 * REGION + at;
        let len = count as usize * BLOCK;
        let mut data = Vec::new();
        let (mut submission, sgl, work) = match self.chance.below(5) {
            0 => (
                command::flush(CONVENTIONAL),
                Sgl::new(SglKind::Transport, 0),
                Work::Flush,
            ),
            1 | 2 => (
                command::read(CONVENTIONAL, first, count as u32),
                Sgl::new(SglKind::Transport, len as u32),
                Work::Read { got: 0 },
            ),
            _ => {
                let seed = self.chance.next();
                let inline = len <= IN_CAPSULE;
                let kind = if inline {
                    data = pattern(first, count as usize, seed);
                    SglKind::InCapsule
                } else {
                    SglKind::Transport
                };
                (
                    command::write(CONVENTIONAL, first, count as u32),
                    Sgl::new(kind, len as u32),
                    Work::Write {
                        seed,
                        asked: inline,
                    },
                )
            }
        };
        submission.cid = U16::new(cid);
        submission.flags = 0b01 << 6;
        submission.sgl = sgl;
        self.out.extend(capsule(self.wire, submission, &data));
        place.command = Some(Command {
            cid,
            at,
            count,
            work,
        });
        self.begun += 1;
    }

    /// Put the next PDU of some data that is owed behind what waits to be sent.
    fn give(&mut self) {
        let which = self.chance.below(self.owed.len() as u64) as usize;
        match self.owed[which].pop_front() {
            Some(pdu) => self.out.extend(pdu),
            None => drop(self.owed.swap_remove(which)),
        }
    }

    /// Send some bytes, as far as there is room; false if nothing moved.
    fn send(&mut self) -> bool {
        let most = match self.chance.below(4) {
            0 => 1 + self.chance.below(30) as usize,
            _ => 1 + self.chance.below(20_000) as usize,
        };
        let (front, _) = self.out.as_slices();
        if front.is_empty() {
            return false;
        }
        match self.stream.write(&front[..most.min(front.len())]) {
            Ok(count) => drop(self.out.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        }
        true
    }

    /// Receive some bytes, and look at the PDUs that are whole; false if nothing has come.
    fn receive(&mut self) -> bool {
        let mut bytes = vec![0; 1 + self.chance.below(30_000) as usize];
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => panic!("the target has ended the connection"),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        };
        self.input.extend_from_slice(&bytes[..count]);
        let mut at = 0;
        while let Some(header) = Header::first_of(&self.input[at..]) {
            let len = header.plen.get() as usize;
            let Some(pdu) = self.input.get(at..at + len) else {
                break;
            };
            let pdu = pdu.to_vec();
            self.look_at(&header, &pdu);
            at += len;
        }
        self.input.drain(..at);
        true
    }

    fn look_at(&mut self, header: &Header, pdu: &[u8]) {
        match header.pdu_type() {
            PduType::CapsuleResp => {
                let completion = CapsuleResp::first_of(pdu).unwrap().completion;
                assert!(completion.status().is_success(), "{completion:?}");
                self.end(completion.cid.get());
            }
            PduType::C2hData => {
                let data = Data::first_of(pdu).unwrap();
                let bytes = &pdu[usize::from(header.pdo)..];
                assert_eq!(bytes.len(), data.length.get() as usize);
                self.take(&data, bytes);
                if header.flags & FLAG_SUCCESS != 0 {
                    self.end(data.cid.get());
                }
            }
            PduType::R2t => self.asked(&R2t::first_of(pdu).unwrap()),
            other => panic!("{other:?} from the target"),
        }
    }

    /// The place of the command that has this identifier, generation included.
    fn place(&mut self, cid: u16) -> &mut Place {
        let place = &mut self.places[usize::from(cid & 0xFF)];
        let now = place.command.as_ref().map(|command| command.cid);
        assert_eq!(
            now,
            Some(cid),
            "is not under way, of generation {}",
            place.generation
        );
        place
    }

    fn take(&mut self, data: &Data, bytes: &[u8]) {
        let number = u64::from(data.cid.get() & 0xFF);
        let Place { command, seeds, .. } = self.place(data.cid.get());
        let command = command.as_mut().unwrap();
        let Work::Read { got } = &mut command.work else {
            panic!("data for {:#06x}, which does not read", command.cid);
        };
        assert_eq!(data.offset.get() as usize, *got);
        for (index, bytes) in bytes.chunks(BLOCK).enumerate() {
            let block = command.at + (*got / BLOCK + index) as u64;
            if let Some(seed) = seeds[block as usize] {
                let expected = match seed {
                    UNWRITTEN => vec![0; BLOCK],
                    _ => pattern(number * REGION + block, 1, seed),
                };
                assert!(bytes == expected, "block {block} of {:#06x}", command.cid);
            }
        }
        *got += bytes.len();
        assert!(*got <= command.count as usize * BLOCK, "too much data");
    }

    fn asked(&mut self, r2t: &R2t) {
        let cid = r2t.cid.get();
        let command = self.place(cid).command.as_mut().unwrap();
        let Work::Write { seed, asked } = &mut command.work else {
            panic!("{cid:#06x}, which does not write, is asked for data");
        };
        assert!(!std::mem::replace(asked, true), "{cid:#06x} is asked twice");
        let (at, count, seed) = (command.at, command.count, *seed);
        let len = count as usize * BLOCK;
        let wanted = (r2t.offset.get() as usize, r2t.length.get() as usize);
        assert_eq!(wanted, (0, len));
        let first = u64::from(cid & 0xFF) * REGION + at;
        let data = pattern(first, count as usize, seed);
        let mut pdus = VecDeque::new();
        let mut from = 0;
        while from < len {
            let part = (4 + 4 * self.chance.below(16 << 10) as usize).min(len - from);
            let header = Wire::h2c_data(r2t, from, part);
            let last = if from + part == len { FLAG_LAST } else { 0 };
            let bytes = &data[from..from + part];
            pdus.push_back(
                self.wire
                    .pdu(PduType::H2cData, header.as_bytes(), last, bytes),
            );
            from += part;
        }
        self.owed.push(pdus);
    }

    fn end(&mut self, cid: u16) {
        let Place { command, seeds, .. } = self.place(cid);
        let command = command.take().unwrap();
        let blocks = command.at as usize..(command.at + command.count) as usize;
        match command.work {
            Work::Read { got } => assert_eq!(got, blocks.len() * BLOCK, "of {cid:#06x}"),
            Work::Write { seed, asked } => {
                assert!(asked, "{cid:#06x} has ended without its data");
                seeds[blocks].fill(Some(seed));
            }
            Work::Flush => {}
        }
        self.ended += 1;
    }

    /// Commands until `count` have ended, with a number on their way that changes; then all of the rest
    /// unless the host is to go away in the middle.
    fn run(&mut self, count: u64, to_the_end: bool) {
        let mut depth = 1;
        let mut moved = Instant::now();
        while self.ended < count || (to_the_end && self.busy() > 0) {
            if self.chance.one_in(100) {
                depth = 1 + self.chance.below(PLACES as u64) as usize;
            }
            if self.out.len() < 40_000 {
                if !self.owed.is_empty() && self.chance.one_in(2) {
                    self.give();
                } else if self.ended < count && self.busy() < depth {
                    self.begin();
                }
            }
            let sent = self.send();
            // Sometimes it does not look for a while, and the target's socket is full.
            let received = !self.chance.one_in(3) && self.receive();
            if sent || received {
                moved = Instant::now();
            } else {
                assert!(moved.elapsed() < PATIENCE, "{} commands wait", self.busy());
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
}

fn capsule(wire: &Wire, command: Submission, data: &[u8]) -> Vec<u8> {
    let capsule = CapsuleCmd {
        header: Header::zeroed(),
        command,
    };
    wire.pdu(PduType::CapsuleCmd, capsule.as_bytes(), 0, data)
}

fn each_command_ends_once(profile: &str, time_scale: f64) {
    let fixture = Fixture::with(profile, time_scale);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = now.unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let mut chance = Chance(seed);
    let mut places: Vec<Place> = (0..PLACES)
        .map(|_| Place {
            generation: 0,
            command: None,
            seeds: vec![Some(UNWRITTEN); REGION as usize],
        })
        .collect();
    for life in 0..4 {
        let mut options = fixture.options(Digests::default());
        options.admin.no_flow_control = life % 2 == 1;
        let host = Host::connect(fixture.target.address(), options).unwrap();
        let mut queue = host.queue(1, PLACES as u16 + 1).unwrap();
        let wire = &*queue.wire();
        let stream = wire.stream().try_clone().unwrap();
        stream.set_nonblocking(true).unwrap();
        sockopt::set_socket_send_buffer_size(&stream, 8 << 10).unwrap();
        sockopt::set_socket_recv_buffer_size(&stream, 32 << 10).unwrap();
        let mut connection = Connection {
            places: &mut places,
            chance: &mut chance,
            stream,
            wire,
            owed: Vec::new(),
            out: VecDeque::new(),
            input: Vec::new(),
            begun: 0,
            ended: 0,
        };
        let is_last = life == 3;
        connection.run(COMMANDS, is_last);
        if is_last {
            assert_eq!(connection.begun, connection.ended);
            assert!(connection.input.is_empty() && connection.out.is_empty());
            std::thread::sleep(Duration::from_millis(100));
            assert!(!connection.receive(), "there is more");
        }
        connection.stream.shutdown(Shutdown::Both).unwrap();
        drop((queue, host));
        fixture.wait_until_idle();
        for place in &mut places {
            if let Some(command) = place.command.take()
                && matches!(command.work, Work::Write { .. })
            {
                let blocks = command.at as usize..(command.at + command.count) as usize;
                place.seeds[blocks].fill(None);
            }
        }
    }
}

#[test]
fn each_command_ends_once_where_the_receiving_thread_answers() {
    each_command_ends_once("zero", 1.0);
}

#[test]
fn each_command_ends_once_where_the_device_takes_its_time() {
    each_command_ends_once("indef-femu", 1.0);
}
