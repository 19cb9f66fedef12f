//! The load of a disk, by `/sys/class/block/NAME/stat` (Documentation/block/stat.rst, v6.1).
//!
//! The kernel counts for all processes together. So only times in which we did nothing are judged: the work of
//! others is then all that there is. While we work, the reading is [`CannotTell::OwnWork`]; work goes on in short
//! portions with a look in between.
//!
//! Of a device that the kernel puts together (device mapper, md), the busiest of its parts counts.

use std::{collections::HashMap, time::Duration};

use super::{
    reading::{CannotTell, LONGEST},
    source::{Source, text},
};

/// A shorter time tells nothing.
const SHORTEST: Duration = Duration::from_millis(500);
/// Fewer requests tell no mean time.
const FEWEST: u64 = 4;
/// Layers of devices on top of each other.
const DEEPEST: usize = 8;
/// Parts of a device that are looked at.
const MOST: usize = 64;

/// The counters of a disk.
#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Duration,
    requests: u64,
    /// Milliseconds that requests took in all.
    took_ms: u64,
    /// Milliseconds in which it had something to do.
    busy_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Disks {
    last: HashMap<String, Counted>,
}

impl Disks {
    /// Forget disks that nobody asks for.
    pub(super) fn keep_only(&mut self, drives: &[String]) {
        if self.last.len() > MOST * drives.len().max(1) {
            self.last.clear();
        }
    }

    /// How busy it was, and how long a request took.
    pub(super) fn look(
        &mut self,
        source: &impl Source,
        drive: &str,
        now: Duration,
        working: bool,
    ) -> [Result<f64, CannotTell>; 2] {
        let mut worst: Option<[Result<f64, CannotTell>; 2]> = None;
        for part in parts(source, drive) {
            let one = self.look_at_one(source, &part, now, working);
            worst = Some(match worst {
                None => one,
                Some([busy, latency]) => {
                    let [one_busy, one_latency] = one;
                    [higher(busy, one_busy), higher(latency, one_latency)]
                }
            });
        }
        worst.unwrap_or([Err(CannotTell::NoDrive), Err(CannotTell::NoDrive)])
    }

    fn look_at_one(
        &mut self,
        source: &impl Source,
        disk: &str,
        now: Duration,
        working: bool,
    ) -> [Result<f64, CannotTell>; 2] {
        let next = match count(source, disk, now) {
            Ok(next) => next,
            Err(why) => {
                self.last.remove(disk);
                return [Err(why.clone()), Err(why)];
            }
        };
        let too_early = [Err(CannotTell::TooEarly), Err(CannotTell::TooEarly)];
        match self.last.get(disk).copied() {
            _ if working => {
                // The quiet time begins anew.
                self.last.insert(disk.to_owned(), next);
                [Err(CannotTell::OwnWork), Err(CannotTell::OwnWork)]
            }
            Some(last) if now.saturating_sub(last.at) < SHORTEST => too_early,
            Some(last) if now.saturating_sub(last.at) <= LONGEST => {
                self.last.insert(disk.to_owned(), next);
                let time = now.saturating_sub(last.at).as_millis() as f64;
                let busy = next.busy_ms.saturating_sub(last.busy_ms) as f64 / time * 100.0;
                let requests = next.requests.saturating_sub(last.requests);
                let took = next.took_ms.saturating_sub(last.took_ms) as f64;
                let latency = match requests {
                    // An idle disk keeps nobody waiting; one that has work and ends none does.
                    0..FEWEST if busy < 50.0 => 0.0,
                    0 => time,
                    requests => took / requests as f64,
                };
                [Ok(busy.min(100.0)), Ok(latency)]
            }
            Some(_) | None => {
                self.last.insert(disk.to_owned(), next);
                too_early
            }
        }
    }
}

/// A value rather than none, and of two the higher one.
fn higher(one: Result<f64, CannotTell>, other: Result<f64, CannotTell>) -> Result<f64, CannotTell> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(why), Err(_)) => Err(why),
    }
}

fn count(source: &impl Source, disk: &str, at: Duration) -> Result<Counted, CannotTell> {
    let path = format!("sys/class/block/{disk}/stat");
    let text = text(source, &path)?;
    let fields = text.split_whitespace().map(str::parse);
    let fields: Vec<u64> = fields
        .collect::<Result<_, _>>()
        .map_err(|_| CannotTell::NotUnderstood(path.clone()))?;
    let field = |nth: usize| fields.get(nth).copied();
    let counted = || {
        Some(Counted {
            at,
            requests: field(0)?.saturating_add(field(4)?),
            took_ms: field(3)?.saturating_add(field(7)?),
            busy_ms: field(9)?,
        })
    };
    counted().ok_or(CannotTell::NotUnderstood(path))
}

/// The disks that a device is put together from; itself, where it is not.
pub(super) fn parts(source: &impl Source, drive: &str) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), vec![(drive.to_owned(), 0)]);
    while let Some((name, depth)) = left.pop() {
        let below = source.names(&format!("sys/class/block/{name}/slaves"));
        let below = below.unwrap_or_default();
        if below.is_empty() || depth >= DEEPEST {
            if !found.contains(&name) && found.len() < MOST {
                found.push(name);
            }
            continue;
        }
        left.extend(below.into_iter().take(MOST).map(|name| (name, depth + 1)));
    }
    found
}
