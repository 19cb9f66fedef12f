//! Ranges of many files in one call.
//!
//! Workers hand in the parts that they want moved next; one of them makes the call for all that
//! wait, and each gets its own part of the answer. While a call is under way the next one gathers;
//! a call that is small is held back for a moment while others are about to hand in something.
//!
//! The kernel moves the ranges of a call in steps, and those of a step by one command of the device,
//! whatever files they are of. It locks these files for that time, so no step is larger than what the
//! workers were told ([`step_of`]).
//!
//! The kernel puts ranges one after the other into its log. A relocation that moves a range in
//! several calls keeps the log to itself until it is through: a range of another file in between
//! would cut it.

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

/// Makes one call for many requests. The first one's file stands for all: of several, a call that fails
/// is made again for each.
pub(super) type Call<'a> = &'a dyn Fn(&[Request]) -> io::Result<Report>;

/// Where requests meet.
#[derive(Default)]
pub(super) struct Batches {
    state: Mutex<Tickets>,
    changed: Condvar,
}

#[derive(Default)]
struct Tickets {
    next_ticket: u64,
    waiting: VecDeque<(u64, Request)>,
    answers: HashMap<u64, io::Result<Answer>>,
    /// A call is under way.
    calling: bool,
    /// Relocations that may hand in something.
    relocations: usize,
    /// The relocation that has the log to itself.
    owner: Option<u64>,
}

impl Batches {
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
            let ours = match state.calling {
                true => Vec::new(),
                false => state.choose(),
            };
            if !ours.contains(&ticket) {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let patience = company.saturating_duration_since(Instant::now());
            if !patience.is_zero() && state.grows(&ours) {
                state = self
                    .changed
                    .wait_timeout(state, patience)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
                continue;
            }
            let (tickets, requests) = state.take(&ours);
            state.calling = true;
            drop(state);
            let mut under_way = UnderWay {
                batches: self,
                tickets,
                answers: Vec::new(),
            };
            under_way.answers = carry_out(&requests, call);
            drop(under_way);
            state = self.lock();
        }
    }

    /// A relocation begins: it will hand in something, and [`Self::release`] ends it.
    pub(super) fn enter(&self) {
        self.lock().relocations += 1;
    }

    /// End the ownership of the log by a relocation that is at its end, however that came.
    pub(super) fn release(&self, relocation: u64) {
        let mut state = self.lock();
        state.relocations = state.relocations.saturating_sub(1);
        if state.owner == Some(relocation) {
            state.owner = None;
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Tickets> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tickets {
    /// The tickets of the next call, in its order: the owner of the log first, one that will own it
    /// last.
    fn choose(&self) -> Vec<u64> {
        let mut chosen = Vec::new();
        let (mut ranges, mut bytes) = (0, Bytes::ZERO);
        if let Some(owner) = self.owner {
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
            if chosen.contains(ticket) {
                continue;
            }
            ranges += request.parts.len();
            bytes += request.bytes();
            let fits = ranges <= MAX_RANGES && bytes <= CALL_MAX;
            if !chosen.is_empty() && !fits {
                break;
            }
            chosen.push(*ticket);
            if request.continues() {
                break;
            }
        }
        chosen
    }

    /// Whether a call of these tickets would be larger if it were made later: it does not fill a step,
    /// takes all that wait, and there are relocations that do not wait.
    fn grows(&self, chosen: &[u64]) -> bool {
        let mine = |(ticket, _): &&(u64, Request)| chosen.contains(ticket);
        let requests = || self.waiting.iter().filter(mine).map(|(_, request)| request);
        let bytes: Bytes = requests().map(Request::bytes).sum();
        let step = requests().map(|request| request.limit).min();
        chosen.len() == self.waiting.len()
            && self.waiting.len() < self.relocations
            && step.is_some_and(|step| bytes < step)
            && !requests().any(Request::continues)
    }

    fn take(&mut self, chosen: &[u64]) -> (Vec<u64>, Vec<Request>) {
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
        self.owner = last
            .filter(|last| last.continues())
            .map(|last| last.relocation);
        (tickets, requests)
    }
}

/// A call under way. However it ends, those who wait for it are woken with an answer.
struct UnderWay<'a> {
    batches: &'a Batches,
    tickets: Vec<u64>,
    answers: Vec<io::Result<Answer>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.batches.lock();
        state.calling = false;
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

fn carry_out(requests: &[Request], call: Call<'_>) -> Vec<io::Result<Answer>> {
    match call(requests) {
        Ok(report) => share(requests, &report).into_iter().map(Ok).collect(),
        Err(error) if requests.len() == 1 => vec![Err(error)],
        // Maybe only the first file is refused (its mount is read-only, say): each gets its own answer.
        Err(_) => requests
            .iter()
            .flat_map(|request| carry_out(slice::from_ref(request), call))
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
