//! The reference: nanosecond by nanosecond, sector by sector.

use std::collections::BTreeMap;

use crate::variant::{
    CHANNELS, DIES, ERASE, HORIZON, LOOK_AHEAD, PAGE, SECTOR, Variant, WAIT, ZONE, ZONES,
};

/// One flag for each nanosecond.
struct Taken(Vec<bool>);

impl Taken {
    fn new() -> Self {
        Self(vec![false; HORIZON])
    }

    /// Takes the first free run from `ready` on; returns its end.
    fn reserve(&mut self, ready: u64, duration: u64) -> u64 {
        let (mut start, mut length) = (ready, 0);
        while length < duration {
            if self.0[(start + length) as usize] {
                start += length + 1;
                length = 0;
            } else {
                length += 1;
            }
        }
        (start..start + duration).for_each(|t| self.0[t as usize] = true);
        start + duration
    }
}

impl Taken {
    /// Takes all free time from `ready` on, up to `duration`; returns the end.
    fn reserve_in_pieces(&mut self, ready: u64, duration: u64) -> u64 {
        let (mut at, mut left) = (ready, duration);
        while left > 0 {
            if !self.0[at as usize] {
                self.0[at as usize] = true;
                left -= 1;
            }
            at += 1;
        }
        at
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ready: u64,
    bytes: u64,
    release: u64,
    page: Option<(u64, u64)>,
    number: usize,
}

#[derive(Clone, Copy, Debug)]
enum Inflow {
    Begin { ready: u64 },
    Piece { zone: u64, bytes: u64 },
    Program { die: usize, entry: Waiting },
    End { write: usize },
}

#[derive(Default)]
pub(crate) struct RefDie {
    free_at: u64,
    array_start: u64,
    pub(crate) outs: Vec<u64>,
    served: u64,
    queue: Vec<Waiting>,
}

pub(crate) struct Reference {
    variant: Variant,
    time: u64,
    controller: u64,
    pub(crate) dies: Vec<RefDie>,
    channels: Vec<Taken>,
    link_in: Taken,
    link_out: Taken,
    pub(crate) filled: Vec<u64>,
    held: Vec<u64>,
    unflushed: Vec<u64>,
    /// When the program of a complete page ends, once it has begun.
    programs: BTreeMap<(u64, u64), Option<u64>>,
    /// The end of each numbered program.
    pub(crate) ends: Vec<Option<u64>>,
    used: i64,
    /// Data that waits for room, and what comes after it.
    inflow: Vec<Inflow>,
    /// When the write at its head may come in, and when its bytes that came in so far had arrived.
    ready: u64,
    arrived: u64,
    /// When each write was in the buffer.
    pub(crate) writes: Vec<Option<u64>>,
    releases: Vec<(u64, u64)>,
    floor: u64,
    /// No program of the host's data begins before this.
    drained: u64,
}

impl Reference {
    pub(crate) fn new(variant: Variant) -> Self {
        Self {
            variant,
            time: 0,
            controller: 0,
            dies: (0..DIES).map(|_| RefDie::default()).collect(),
            channels: (0..CHANNELS).map(|_| Taken::new()).collect(),
            link_in: Taken::new(),
            link_out: Taken::new(),
            filled: vec![0; ZONES as usize],
            held: vec![0; ZONES as usize],
            unflushed: Vec::new(),
            programs: BTreeMap::new(),
            ends: Vec::new(),
            used: 0,
            inflow: Vec::new(),
            ready: 0,
            arrived: 0,
            writes: Vec::new(),
            releases: Vec::new(),
            floor: 0,
            drained: 0,
        }
    }

    fn transfer(&self, bytes: u64) -> u64 {
        (bytes * self.variant.transfer).div_ceil(PAGE)
    }

    fn link(&self, bytes: u64) -> u64 {
        (bytes * self.variant.link).div_ceil(PAGE)
    }

    /// Page (counted in the zone) and place in the page of a sector of a zone.
    fn place(&self, within: u64) -> (u64, u64) {
        let Variant {
            interleave,
            zone_dies,
            ..
        } = self.variant;
        let row = PAGE * zone_dies;
        let (chunk, in_row) = (within % row / interleave, within / row * zone_dies);
        (
            in_row + chunk % zone_dies,
            chunk / zone_dies * interleave + within % interleave,
        )
    }

    fn die(&self, zone: u64, page: u64) -> usize {
        let lanes = self.variant.zone_dies;
        ((zone * lanes + page % lanes) % DIES) as usize
    }

    /// One nanosecond: what can begin, begins.
    fn tick(&mut self) {
        loop {
            self.go_on();
            let Some((die, at)) =
                (0..self.dies.len()).find_map(|die| Some((die, self.eligible(die)?)))
            else {
                break;
            };
            self.program(die, at);
        }
        self.time += 1;
    }

    /// Returns the operation that a die can begin now.
    fn eligible(&self, number: usize) -> Option<usize> {
        let (now, die) = (self.time, &self.dies[number]);
        for (at, entry) in die.queue.iter().enumerate().take(LOOK_AHEAD) {
            let drained = if entry.release > 0 { self.drained } else { 0 };
            let ready = entry.ready.max(drained);
            let overdue = now >= entry.ready.max(die.served) + WAIT;
            if ready <= now && (die.free_at <= now || overdue) {
                return Some(at);
            }
            // Only operations whose data is not there yet let others pass.
            if ready <= die.free_at {
                break;
            }
        }
        None
    }

    fn program(&mut self, number: usize, at: usize) {
        let entry = self.dies[number].queue.remove(at);
        let transfer = self.transfer(entry.bytes);
        if entry.release > 0 {
            self.drained = self.time + (entry.bytes * self.variant.drain).div_ceil(PAGE);
        }
        // An incomplete page of a flush goes to a spare page of the first type.
        let duration = self.variant.program(entry.page.map_or(0, |(_, page)| page));
        let die = &mut self.dies[number];
        let register = if self.variant.cache_register {
            let one_before = die.free_at.max(self.time).saturating_sub(duration);
            die.array_start
                .max(die.outs.last().copied().unwrap_or(0))
                .max(one_before)
        } else {
            die.free_at
        };
        let arrived = self.channels[number % CHANNELS as usize]
            .reserve_in_pieces(entry.ready.max(register), transfer);
        die.array_start = arrived.max(die.free_at).max(self.time);
        die.free_at = die.array_start + duration;
        die.served = die.free_at;
        let end = die.free_at;
        self.ends[entry.number] = Some(end);
        if let Some(page) = entry.page {
            self.programs.insert(page, Some(end));
        }
        if entry.release > 0 {
            self.releases.push((end, entry.release));
        }
    }

    pub(crate) fn run_until(&mut self, now: u64) {
        while self.time <= now {
            self.tick();
        }
    }

    /// Lets bytes in at this nanosecond, if there is room.
    fn admit(&mut self, at: u64, bytes: u64) -> bool {
        let used = &mut self.used;
        self.releases.retain(|&(end, bytes)| {
            if end <= at {
                *used -= bytes as i64;
            }
            end > at
        });
        let idle = self.dies.iter().all(|die| die.queue.is_empty()) && self.releases.is_empty();
        if self.used + bytes as i64 > self.variant.buffer as i64 && !idle {
            return false;
        }
        self.used += bytes as i64;
        self.floor = at;
        true
    }

    /// Lets in the items that wait for room, as far as there is room now.
    fn go_on(&mut self) {
        while let Some(front) = self.inflow.first().cloned() {
            match front {
                Inflow::Begin { ready } => {
                    (self.ready, self.arrived) = (ready, ready.max(self.time));
                }
                Inflow::Piece { bytes, .. } => {
                    let now = self.time;
                    if now < self.ready.max(self.floor) || !self.admit(now, bytes) {
                        return;
                    }
                    let duration = self.link(bytes);
                    self.arrived = self.arrived.max(self.link_in.reserve(now, duration));
                }
                Inflow::Program { die, mut entry } => {
                    entry.ready = entry.ready.max(self.arrived);
                    self.dies[die].queue.push(entry);
                }
                Inflow::End { write } => self.writes[write] = Some(self.arrived),
            }
            self.inflow.remove(0);
        }
    }

    fn queue(&mut self, die: usize, bytes: u64, release: u64, page: Option<(u64, u64)>) {
        let number = self.ends.len();
        self.ends.push(None);
        if let Some(page) = page {
            self.programs.insert(page, None);
        }
        let entry = Waiting {
            ready: 0,
            bytes,
            release,
            page,
            number,
        };
        self.inflow.push(Inflow::Program { die, entry });
    }

    /// Lets in at once the items that were just handed over, if there is room at `ready`, though
    /// that is a little later than now.
    fn hand_over(&mut self) {
        while let Some(front) = self.inflow.first().cloned() {
            if let Inflow::Piece { bytes, .. } = front {
                let at = self.ready.max(self.floor);
                if !self.admit(at, bytes) {
                    return;
                }
                let duration = self.link(bytes);
                self.arrived = self.arrived.max(self.link_in.reserve(at, duration));
                self.inflow.remove(0);
            } else {
                let rest = self.inflow.split_off(1);
                self.go_on();
                self.inflow = rest;
            }
        }
    }

    fn take_command(&mut self, now: u64, serial: u64, latency: u64) -> u64 {
        self.run_until(now);
        self.controller = self.controller.max(now) + serial;
        self.controller + latency
    }

    /// Returns the number of the write; its end is in `writes` when it is known.
    pub(crate) fn write(&mut self, now: u64, zone: u64, len: u64) -> usize {
        let ready = self.take_command(now, 1, 5);
        let direct = self.inflow.is_empty();
        let (mut at, end) = (self.filled[zone as usize], self.filled[zone as usize] + len);
        let write = self.writes.len();
        self.writes.push(None);
        self.inflow.push(Inflow::Begin { ready });
        while at < end {
            let piece = (PAGE - at % PAGE).min(end - at);
            self.inflow.push(Inflow::Piece { zone, bytes: piece });
            self.held[zone as usize] += piece;
            for sector in 0..piece / SECTOR {
                let (page, place) = self.place(at + sector * SECTOR);
                if place + SECTOR == PAGE {
                    let release = PAGE.min(self.held[zone as usize]);
                    self.held[zone as usize] -= release;
                    let die = self.die(zone, page);
                    self.queue(die, PAGE, release, Some((zone, page)));
                }
            }
            at += piece;
        }
        self.inflow.push(Inflow::End { write });
        if direct {
            self.hand_over();
        }
        self.filled[zone as usize] = end;
        if self.held[zone as usize] > 0 && !self.unflushed.contains(&zone) {
            self.unflushed.push(zone);
        }
        write
    }

    pub(crate) fn read(&mut self, now: u64, offset: u64, len: u64) -> u64 {
        let ready = self.take_command(now, 2, 3);
        let (mut pages, mut unwritten) = (Vec::<((u64, u64), u64)>::new(), 0);
        for sector in offset / SECTOR..(offset + len) / SECTOR {
            let (zone, within) = (sector * SECTOR / ZONE, sector * SECTOR % ZONE);
            if within >= self.filled[zone as usize] {
                unwritten += SECTOR;
                continue;
            }
            let key = (zone, self.place(within).0);
            match pages.iter_mut().find(|(page, _)| *page == key) {
                Some((_, bytes)) => *bytes += SECTOR,
                None => pages.push((key, SECTOR)),
            }
        }
        let mut done = ready;
        for ((zone, page), bytes) in pages {
            let sent = match self.programs.get(&(zone, page)) {
                Some(Some(end)) if *end <= ready => self.read_page(zone, page, ready, bytes),
                _ => ready,
            };
            let duration = self.link(bytes);
            done = done.max(self.link_out.reserve(sent, duration));
        }
        if unwritten > 0 {
            let duration = self.link(unwritten);
            done = done.max(self.link_out.reserve(ready, duration));
        }
        done
    }

    fn read_page(&mut self, zone: u64, page: u64, ready: u64, bytes: u64) -> u64 {
        let number = self.die(zone, page);
        let transfer = self.transfer(bytes);
        let cache = self.variant.cache_register;
        let die = &mut self.dies[number];
        let mut start = ready;
        let last = die.outs.last().copied().unwrap_or(0);
        let before = die.outs.len().checked_sub(2).map_or(0, |at| die.outs[at]);
        while start < die.free_at || (cache && start < before) {
            start += 1;
        }
        let sensed = start + self.variant.read(page);
        let out = self.channels[number % CHANNELS as usize].reserve(sensed.max(last), transfer);
        die.array_start = start;
        die.free_at = if cache { sensed } else { out };
        die.outs.push(out);
        out
    }

    /// Returns when the controller has taken it, and how many programs it waits for.
    pub(crate) fn flush(&mut self, now: u64) -> (u64, usize) {
        let ready = self.take_command(now, 1, 5);
        let direct = self.inflow.is_empty();
        self.inflow.push(Inflow::Begin { ready });
        while let Some(zone) = self.unflushed.pop() {
            let mut left = self.held[zone as usize];
            let mut page = (0..ZONE / PAGE)
                .find(|&page| !self.programs.contains_key(&(zone, page)))
                .unwrap_or(ZONE / PAGE);
            while left > 0 {
                let die = self.die(zone, page);
                self.queue(die, left.min(PAGE), 0, None);
                left -= left.min(PAGE);
                page += 1;
            }
        }
        if direct {
            self.hand_over();
        }
        (ready, self.ends.len())
    }

    pub(crate) fn reset(&mut self, now: u64, zone: u64) -> u64 {
        let ready = self.take_command(now, 1, 5);
        let filled = std::mem::take(&mut self.filled[zone as usize]);
        for die in &mut self.dies {
            for entry in &die.queue {
                if entry.page.is_some_and(|page| page.0 == zone) {
                    self.used -= entry.release as i64;
                    self.ends[entry.number] = Some(ready);
                }
            }
            die.queue
                .retain(|entry| entry.page.is_none_or(|page| page.0 != zone));
        }
        self.programs.retain(|&(of, _), _| of != zone);
        self.used -= std::mem::take(&mut self.held[zone as usize]) as i64;
        for item in std::mem::take(&mut self.inflow) {
            match item {
                Inflow::Piece { zone: of, bytes } if of == zone => {
                    self.used += bytes as i64;
                    self.inflow.push(Inflow::Piece { zone, bytes: 0 });
                }
                Inflow::Program { entry, .. } if entry.page.is_some_and(|page| page.0 == zone) => {
                    self.used -= entry.release as i64;
                    self.ends[entry.number] = Some(ready);
                }
                other => self.inflow.push(other),
            }
        }
        let mut touched: Vec<usize> = Vec::new();
        for sector in 0..filled / SECTOR {
            let die = self.die(zone, self.place(sector * SECTOR).0);
            if !touched.contains(&die) {
                touched.push(die);
            }
        }
        let on_die = filled.div_ceil(self.variant.zone_dies);
        let duration = ERASE * on_die.div_ceil(8 * PAGE);
        let mut done = ready;
        for die in touched {
            let die = &mut self.dies[die];
            die.array_start = ready.max(die.free_at);
            die.free_at = die.array_start + duration;
            done = done.max(die.free_at);
        }
        // There may be room for the waiting items in this very nanosecond.
        self.time = now;
        done
    }
}
