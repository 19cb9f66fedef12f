//! Ranges of many files in one call.
//!
//! Workers hand in the parts that they want moved next; one of them makes the call for all that
//! wait, and each gets its own part of the answer. While a call is under way the next one gathers;
//! a call that is small is held back for a moment while others are about to hand in something.
//!
//! Between two commands of a call the device has nothing to do. So there is a call for each log of the
//! kernel, which takes no more than its share of the workers: while one is between two commands, the
//! device works for the other.
//!
//! The kernel moves the ranges of a call in steps, and those of a step by one command of the device,
//! whatever files they are of. It locks these files for that time, so no step is larger than what the
//! workers were told ([`step_of`]).
//!
//! The kernel puts ranges one after the other into a log. A relocation that moves a range in several
//! calls keeps a log to itself until it is through: a range of another file in between would cut it,
//! and so would another log.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io, slice,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use linux_abi::f2fs::offload::{MAX_RANGES, RangeOutcome, Report};
use units::{Bytes, Nanos};

use super::{BLOCK, parts::Part};
use crate::{Finding, Moved};

/// No call is asked for more, however many requests wait: others than us may want the log, too.
const CALL_MAX: Bytes = Bytes::mib(64);

/// A small call is held back this long for others: as long as a device takes for some MiB.
const COMPANY: Duration = Duration::from_millis(10);

/// A worker's request to move parts of one file, of which only the last may continue.
pub(super) struct Request {
    /// The number of the relocation.
    pub(super) relocation: u64,
    pub(super) file: Arc<File>,
    pub(super) parts: Vec<Part>,
    /// Files are to be locked for no more than this in one go.
    pub(super) limit: Bytes,
}

/// The most bytes of a step of the call that these requests make.
pub(super) fn step_of(requests: &[Request]) -> Bytes {
    let limits = requests.iter().map(|request| request.limit);
    limits.min().unwrap_or(Bytes::ZERO)
}

impl Request {
    fn continues(&self) -> bool {
        self.parts.last().is_some_and(|part| part.continues)
    }

    fn bytes(&self) -> Bytes {
        self.parts.iter().map(|part| part.range.len).sum()
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The outcome of each part.
    pub(super) outcomes: Vec<RangeOutcome>,
    /// Its share of the work of the call.
    pub(super) moved: Moved,
}

/// Makes one call for many requests, whose data goes to the log of this number. The first one's file
/// stands for all: of several, a call that fails is made again for each.
pub(super) type Call<'a> = &'a dyn Fn(&[Request], u32) -> io::Result<Report>;

/// Where requests meet.
pub(super) struct Batches {
    state: Mutex<Tickets>,
    changed: Condvar,
}

#[derive(Default)]
struct Tickets {
    next_ticket: u64,
    waiting: VecDeque<(u64, Request)>,
    answers: HashMap<u64, io::Result<Answer>>,
    /// Relocations that may hand in something.
    relocations: usize,
    /// The logs that are in use, by their numbers.
    logs: Vec<Log>,
}

/// A log of the kernel.
#[derive(Clone, Copy, Default)]
struct Log {
    /// Requests of the call that is under way; 0: there is none.
    calling: usize,
    /// The relocation that has it to itself.
    owner: Option<u64>,
    /// It is not used any more.
    closed: bool,
}

impl Batches {
    /// For a kernel with so many logs.
    pub(super) fn new(logs: u32) -> Self {
        let state = Tickets {
            logs: vec![Log::default(); logs.max(1) as usize],
            ..Tickets::default()
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Have the parts moved, by a call of our own or of another worker.
    ///
    /// # Errors
    ///
    /// The call as a whole failed.
    pub(super) fn submit(&self, request: Request, call: Call<'_>) -> io::Result<Answer> {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back((ticket, request));
        self.changed.notify_all();
        let company = Instant::now() + COMPANY;
        loop {
            if let Some(answer) = state.answers.remove(&ticket) {
                return answer;
            }
            let Some((log, ours)) = state.call_with(ticket) else {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let patience = company.saturating_duration_since(Instant::now());
            if !patience.is_zero() && state.grows(&ours) {
                state = self
                    .changed
                    .wait_timeout(state, patience)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
                continue;
            }
            let (tickets, requests) = state.take(&ours, log);
            drop(state);
            // Others may make a call for another log.
            self.changed.notify_all();
            let mut under_way = UnderWay {
                batches: self,
                log,
                tickets,
                answers: Vec::new(),
            };
            under_way.answers = carry_out(&requests, log as u32, call);
            drop(under_way);
            state = self.lock();
        }
    }

    /// A relocation begins: it will hand in something, and [`Self::release`] ends it.
    pub(super) fn enter(&self) {
        self.lock().relocations += 1;
    }

    /// End the ownership of a log by a relocation that is at its end, however that came.
    pub(super) fn release(&self, relocation: u64) {
        let mut state = self.lock();
        state.relocations = state.relocations.saturating_sub(1);
        for log in &mut state.logs {
            log.owner = log.owner.filter(|owner| *owner != relocation);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Use this log no more, which is not the first one.
    pub(super) fn close(&self, log: u32) {
        let mut state = self.lock();
        if let Some(log) = state.logs.get_mut(log as usize) {
            (log.closed, log.owner) = (true, None);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Tickets> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tickets {
    /// A log, and the tickets of a call for it that can be made now and has this ticket.
    fn call_with(&self, ticket: u64) -> Option<(usize, Vec<u64>)> {
        let logs = self.logs.iter().enumerate();
        logs.filter(|(_, log)| log.calling == 0 && !log.closed)
            .map(|(number, _)| (number, self.choose(number)))
            .find(|(_, chosen)| chosen.contains(&ticket))
    }

    /// The most requests of a call, so that there are some for the other logs.
    fn most_requests(&self) -> usize {
        match self.logs.iter().filter(|log| !log.closed).count() {
            0 | 1 => usize::MAX,
            open => self.relocations.div_ceil(open).max(1),
        }
    }

    /// The tickets of the next call for a log, in its order: the owner of the log first, one that will
    /// own it last.
    fn choose(&self, log: usize) -> Vec<u64> {
        let mut chosen = Vec::new();
        let (mut ranges, mut bytes) = (0, Bytes::ZERO);
        let most = self.most_requests();
        if let Some(owner) = self.logs[log].owner {
            let own = |(_, request): &&(u64, Request)| request.relocation == owner;
            let Some((ticket, request)) = self.waiting.iter().find(own) else {
                return chosen;
            };
            chosen.push(*ticket);
            (ranges, bytes) = (request.parts.len(), request.bytes());
            if request.continues() {
                return chosen;
            }
        }
        for (ticket, request) in &self.waiting {
            let owns = |other: &Log| other.owner == Some(request.relocation);
            if self.logs.iter().any(owns) {
                continue;
            }
            ranges += request.parts.len();
            bytes += request.bytes();
            let fits = ranges <= MAX_RANGES && bytes <= CALL_MAX;
            if !chosen.is_empty() && (!fits || chosen.len() == most) {
                break;
            }
            chosen.push(*ticket);
            if request.continues() {
                break;
            }
        }
        chosen
    }

    /// Whether a call of these tickets would be larger if it were made later: it does not fill a step or
    /// its share, takes all that wait, and there are relocations that neither wait nor are in a call.
    fn grows(&self, chosen: &[u64]) -> bool {
        let mine = |(ticket, _): &&(u64, Request)| chosen.contains(ticket);
        let requests = || self.waiting.iter().filter(mine).map(|(_, request)| request);
        let bytes: Bytes = requests().map(Request::bytes).sum();
        let step = requests().map(|request| request.limit).min();
        let called: usize = self.logs.iter().map(|log| log.calling).sum();
        chosen.len() == self.waiting.len()
            && chosen.len() < self.most_requests()
            && self.waiting.len() + called < self.relocations
            && step.is_some_and(|step| bytes < step)
            && !requests().any(Request::continues)
    }

    fn take(&mut self, chosen: &[u64], log: usize) -> (Vec<u64>, Vec<Request>) {
        let mut taken: HashMap<u64, Request> = HashMap::new();
        let (out, left) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(ticket, _)| chosen.contains(ticket));
        self.waiting = left;
        taken.extend(out);
        let in_order = chosen
            .iter()
            .filter_map(|ticket| Some((*ticket, taken.remove(ticket)?)));
        let (tickets, requests): (Vec<u64>, Vec<Request>) = in_order.unzip();
        let last = requests.last();
        self.logs[log].calling = requests.len();
        self.logs[log].owner = last
            .filter(|last| last.continues())
            .map(|last| last.relocation);
        (tickets, requests)
    }
}

/// A call under way. However it ends, those who wait for it are woken with an answer.
struct UnderWay<'a> {
    batches: &'a Batches,
    log: usize,
    tickets: Vec<u64>,
    answers: Vec<io::Result<Answer>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.batches.lock();
        state.logs[self.log].calling = 0;
        let mut answers = std::mem::take(&mut self.answers).into_iter();
        for ticket in &self.tickets {
            let lost = || Err(Finding::Panicked.into());
            let answer = answers.next().unwrap_or_else(lost);
            state.answers.insert(*ticket, answer);
        }
        drop(state);
        self.batches.changed.notify_all();
    }
}

fn carry_out(requests: &[Request], log: u32, call: Call<'_>) -> Vec<io::Result<Answer>> {
    match call(requests, log) {
        Ok(report) => share(requests, &report).into_iter().map(Ok).collect(),
        Err(error) if requests.len() == 1 => vec![Err(error)],
        // Maybe only the first file is refused (its mount is read-only, say): each gets its own answer.
        Err(_) => requests
            .iter()
            .flat_map(|request| carry_out(slice::from_ref(request), log, call))
            .collect(),
    }
}

/// Divide the work of a call among its requests. The kernel reports for each range how much was
/// moved, but by which way only for all of them: where there was more than one way, or a part was
/// written in vain, a request's share of each is its share of the moved bytes (of those that were asked
/// for, if none were moved). The sums are exact. The locks are told to one of them, so that they count
/// once: the first one that moved something, or the first one.
fn share(requests: &[Request], report: &Report) -> Vec<Answer> {
    let mut outcomes = report.ranges.iter().copied();
    let mine: Vec<Vec<RangeOutcome>> = requests
        .iter()
        .map(|request| outcomes.by_ref().take(request.parts.len()).collect())
        .collect();
    let moved = |outcomes: &[RangeOutcome]| outcomes.iter().map(|o| o.moved).sum::<u64>();
    let all: u64 = mine.iter().map(|outcomes| moved(outcomes)).sum();
    let weight = |request: &Request, own| if all > 0 { own } else { request.bytes().get() };
    let weights: Vec<u64> = { requests.iter().zip(&mine) }
        .map(|(request, outcomes)| weight(request, moved(outcomes)))
        .collect();
    let whole = weights.iter().sum::<u64>().max(1);
    let mut before = 0;
    let mut locks = (
        Nanos(report.locked_ns),
        BLOCK * u64::from(report.locked_blocks),
        // The longest is one of them.
        u64::from(report.stalls).saturating_sub(1),
    );
    let mut answers = Vec::with_capacity(mine.len());
    for (outcomes, weight) in mine.into_iter().zip(weights) {
        let own = moved(&outcomes);
        let upto = |total: u64, bytes: u64| {
            (u128::from(total) * u128::from(bytes) / u128::from(whole)) as u64
        };
        let part = |total: u64| upto(total, before + weight) - upto(total, before);
        let (host, memory) = (part(report.bytes_host), part(report.bytes_from_memory));
        let device = part(report.bytes_in_device + report.bytes_copied);
        let (locked, locked_bytes, further_stalls) = match own {
            0 if all > 0 => Default::default(),
            _ => std::mem::take(&mut locks),
        };
        answers.push(Answer {
            outcomes,
            moved: Moved {
                relocated: Bytes(own),
                host_read: Bytes(host),
                host_written: Bytes(host + memory),
                offloaded: Bytes(device),
                locked,
                locked_bytes,
                further_stalls,
                ..Moved::default()
            },
        });
        before += weight;
    }
    answers
}

#[cfg(test)]
mod tests;
