//! Load for an NVMe/TCP target: reads or writes of one size, with many on their way on several
//! queues. It compares the data that it reads with the data that was written before, block by
//! block.
//!
//! `cargo run --release -p flashd --example load -- --address 127.0.0.1:4420 --nqn NQN`
//!
//! Without an address it serves a device of its own in memory, with the profile `zero`, in the same
//! process: generator and target then share the machine's processors.

#![forbid(unsafe_code)]

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions},
    serve::{Target, TargetOptions},
};
use nvme_initiator::{Host, HostOptions, Queue, command};
use nvme_wire::{identify::Namespace, pdu::Digests};
use units::Bytes;

/// Load for an NVMe/TCP target.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// A target [default: one of its own]
    #[arg(long, requires = "nqn")]
    address: Option<SocketAddr>,
    /// Its subsystem
    #[arg(long)]
    nqn: Option<String>,
    /// The profile of its own target
    #[arg(long, default_value = "zero")]
    profile: String,
    /// Namespace; it is overwritten
    #[arg(long, default_value_t = 1)]
    nsid: u32,
    /// Bytes of the namespace that are used
    #[arg(long, default_value = "256MiB")]
    span: Bytes,
    /// Bytes of a command
    #[arg(long, default_value = "4KiB")]
    size: Bytes,
    /// Write instead of reading
    #[arg(long)]
    write: bool,
    /// In order instead of at random
    #[arg(long)]
    sequential: bool,
    /// I/O queues, each with a thread
    #[arg(long, default_value_t = 1)]
    queues: u16,
    /// Commands on their way on each queue
    #[arg(long, default_value_t = 64)]
    depth: u16,
    /// Header and data digests
    #[arg(long)]
    digests: bool,
    /// Compare only the first word of each block
    #[arg(long)]
    glance: bool,
    /// Seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let own = match args.address {
        Some(_) => None,
        None => Some(own_target(&args)?),
    };
    let (address, nqn) = match (&own, args.address, &args.nqn) {
        (_, Some(address), Some(nqn)) => (address, nqn.clone()),
        (Some(target), ..) => (target.address(), target.nqn().to_owned()),
        _ => anyhow::bail!("--address needs --nqn"),
    };
    let mut options = HostOptions::new(&nqn);
    options.admin.no_flow_control = true;
    options.in_capsule = 16 << 10;
    if args.digests {
        options.admin.digests = Digests {
            header: true,
            data: true,
        };
    }
    let mut host = Host::connect(address, options).context("cannot connect")?;
    let shape: Namespace = host.identify_as(args.nsid, 0, 0)?;
    let block = 1_u64 << shape.lba_formats[0].block_shift;
    ensure!(
        args.size.get() > 0 && args.size.get().is_multiple_of(block) && args.span >= args.size,
        "--size has to be whole blocks of {block} bytes, and --span to hold one"
    );
    ensure!(
        args.span.get() <= shape.size.get() * block,
        "--span is larger than the namespace"
    );
    let mut queues = Vec::new();
    for id in 1..=args.queues {
        queues.push(host.queue(id, args.depth + 1)?);
    }
    let plan = Plan {
        args: args.clone(),
        block,
        slots: args.span.get() / args.size.get(),
    };
    plan.fill(&mut queues[0])?;
    let results: Vec<Result<Tally>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(&mut queues)
            .map(|(seed, queue)| {
                let plan = &plan;
                scope.spawn(move || plan.run(queue, seed))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the load has panicked"))
            .collect()
    });
    let mut all = Tally::default();
    for tally in results {
        let tally = tally?;
        all.commands += tally.commands;
        all.elapsed = all.elapsed.max(tally.elapsed);
        all.latencies.extend(tally.latencies);
    }
    all.print(&args);
    drop(queues);
    drop(host);
    Ok(())
}

fn own_target(args: &Args) -> Result<Target> {
    let profile = Profile::builtin(&args.profile).context("no such profile")?;
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: args.span,
    };
    let device = Device::open(&DeviceOptions {
        touch: true,
        ..DeviceOptions::in_memory(profile, &[namespace])
    })?;
    let loopback = "127.0.0.1:0".parse()?;
    Ok(Target::listen(
        Arc::clone(&device),
        loopback,
        TargetOptions::default(),
    )?)
}

struct Plan {
    args: Args,
    block: u64,
    slots: u64,
}

#[derive(Default)]
struct Tally {
    commands: u64,
    elapsed: Duration,
    /// The latencies of some of the commands, in nanoseconds.
    latencies: Vec<u64>,
}

impl Plan {
    fn blocks(&self) -> u32 {
        (self.args.size.get() / self.block) as u32
    }

    /// The content of a block: a word of its own, again and again.
    fn word(block: u64) -> [u8; 8] {
        (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1).to_le_bytes()
    }

    fn content(&self, first: u64, bytes: &mut Vec<u8>) {
        bytes.clear();
        for block in first..first + u64::from(self.blocks()) {
            let word = Self::word(block);
            for _ in 0..self.block / 8 {
                bytes.extend_from_slice(&word);
            }
        }
    }

    fn check(&self, first: u64, bytes: &[u8]) -> Result<()> {
        for (block, content) in (first..).zip(bytes.chunks(self.block as usize)) {
            let word = Self::word(block);
            let is_right = if self.args.glance {
                content[..8] == word
            } else {
                let word = u64::from_le_bytes(word);
                let (words, _) = content.as_chunks::<8>();
                words.iter().fold(0, |wrong, &found| {
                    wrong | (u64::from_le_bytes(found) ^ word)
                }) == 0
            };
            ensure!(is_right, "block {block} does not hold what was written");
        }
        Ok(())
    }

    fn fill(&self, queue: &mut Queue) -> Result<()> {
        for slot in 0..self.slots {
            while queue.busy() >= usize::from(self.args.depth) {
                queue.wait()?.ok("Write")?;
            }
            self.start_write(queue, slot, Vec::new())?;
        }
        while queue.busy() > 0 {
            queue.wait()?.ok("Write")?;
        }
        Ok(())
    }

    fn start_write(&self, queue: &mut Queue, slot: u64, mut buffer: Vec<u8>) -> Result<u16> {
        let first = slot * u64::from(self.blocks());
        self.content(first, &mut buffer);
        let command = command::write(self.args.nsid, first, self.blocks());
        Ok(queue.start(command, buffer, 0)?)
    }

    fn start(&self, queue: &mut Queue, slot: u64, buffer: Vec<u8>) -> Result<u16> {
        if self.args.write {
            return self.start_write(queue, slot, buffer);
        }
        let first = slot * u64::from(self.blocks());
        let command = command::read(self.args.nsid, first, self.blocks());
        Ok(queue.start(command, buffer, self.args.size.get() as usize)?)
    }

    fn run(&self, queue: &mut Queue, seed: u64) -> Result<Tally> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut next = (seed - 1) * self.slots / u64::from(self.args.queues);
        let mut slot = || {
            if self.args.sequential {
                next = (next + 1) % self.slots;
                return next;
            }
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % self.slots
        };
        let depth = usize::from(self.args.depth);
        let mut slots = vec![(0, Instant::now()); depth];
        let mut tally = Tally::default();
        let mut spare = vec![Vec::new(); depth];
        let began = Instant::now();
        let mut goes_on = true;
        while goes_on || queue.busy() > 0 {
            while goes_on && queue.busy() < depth {
                let slot = slot();
                let cid = self.start(queue, slot, spare.pop().unwrap_or_default())?;
                slots[usize::from(cid)] = (slot, Instant::now());
            }
            loop {
                let done = queue.wait()?.ok("I/O")?;
                let (slot, since) = slots[usize::from(done.cid)];
                if tally.commands.is_multiple_of(16) {
                    tally.latencies.push(since.elapsed().as_nanos() as u64);
                }
                if !self.args.write {
                    self.check(slot * u64::from(self.blocks()), &done.data)?;
                }
                spare.push(done.data);
                tally.commands += 1;
                if !queue.has_more() || queue.busy() == 0 {
                    break;
                }
            }
            goes_on = began.elapsed().as_secs_f64() < self.args.seconds;
        }
        tally.elapsed = began.elapsed();
        Ok(tally)
    }
}

impl Tally {
    fn print(mut self, args: &Args) {
        let seconds = self.elapsed.as_secs_f64();
        let rate = self.commands as f64 / seconds;
        let bandwidth = rate * args.size.get() as f64 / 1e6;
        self.latencies.sort_unstable();
        let percentile = |p: f64| {
            let index = (self.latencies.len() as f64 * p) as usize;
            let ns = self.latencies.get(index).or(self.latencies.last());
            ns.map_or(0.0, |&ns| ns as f64 / 1000.0)
        };
        println!(
            "{} of {}, {} queues, depth {}: {rate:.0}/s, {bandwidth:.0} MB/s, \
             latency p50 {:.1} µs, p99 {:.1} µs, {} commands, all as written",
            if args.write { "writes" } else { "reads" },
            args.size,
            args.queues,
            args.depth,
            percentile(0.5),
            percentile(0.99),
            self.commands,
        );
    }
}
