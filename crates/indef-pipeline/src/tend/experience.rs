//! What the service has learned of its own predictions on one file system: how long layouts last, what moves gave, and what
//! they took. The formulas are those of `indef_core::plan` (`belief.rs`); this remembers, from one look to the next.
//!
//! ```text
//! look: each file that is read ── joints that it had at the last look, and has no more ──▶ lives
//!       each range that moved ─── reads foretold since, and times of those that came ────▶ given
//! move: bytes, time ─────────────────────────────────────────────────────────────────────▶ cost of a byte
//! ```
//!
//! Bounded: so many files and stretches, chosen by chance; evidence fades with [`HALF_LIFE`]. No clock and no file system: whoever
//! looks says when and what.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    time::Duration,
};

use indef_core::{
    access::AccessRange,
    layout::{Fragmentation, Joints, Layout},
    plan::{
        Beliefs, Chunk, Credibility, FilePlan, Given, Lasting, PlanOptions, SavedBy, Terms, Weight,
    },
};
use serde::{Deserialize, Serialize};
use units::{Bytes, FileRange, Nanos};

use crate::decay::Decay;

/// Evidence is worth half after this: a season, as what layouts last is counted in weeks and months.
const HALF_LIFE: Duration = Duration::from_secs(91 * 24 * 3600);

/// Parts in which the service counts reads, so that those that have faded below one stay fractions.
pub const PARTS: u64 = 1024;

/// Files whose layouts are remembered.
const MOST_FILES: usize = 4096;
/// Stretches that are remembered of each.
const MOST_STRETCHES: usize = 64;
/// Moved ranges whose reads are waited for.
const MOST_PROMISES: usize = 4096;

const DAY_S: f64 = 24.0 * 3600.0;

fn days_between(from: Duration, to: Duration) -> f64 {
    to.saturating_sub(from).as_secs_f64() / DAY_S
}

/// The part that evidence is worth after this.
fn faded(from: Duration, to: Duration) -> f64 {
    Decay::half_life(HALF_LIFE).factor(to.saturating_sub(from))
}

/// A file system's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    bound = "K: Ord + Serialize + serde::de::DeserializeOwned"
)]
pub struct Experience<K> {
    /// The last look.
    at: Duration,
    /// Of all files.
    lives: Lasting,
    /// Of moved ranges that are not waited for any more.
    given: Given,
    /// Seconds that moves took, and their bytes.
    moving: (f64, f64),
    /// One in 2ⁿ files is remembered.
    halved: u32,
    #[serde(with = "pairs")]
    files: BTreeMap<K, Known>,
}

/// The grounds of a decision, by which its predictions are compared with what becomes of them.
#[derive(Clone, Debug)]
pub struct Foresight {
    /// The options of the plan, with the weights.
    pub options: PlanOptions,
    /// The terms without what moves were seen to take.
    pub terms: Terms,
    /// In which quantity moves save.
    pub by: SavedBy,
    /// Days in which the reads of the plan were counted, however short.
    pub observed_days: f64,
    /// How far their counts are believed.
    pub credibility: Credibility,
}

impl Foresight {
    /// Reads a day of a chunk.
    #[must_use]
    pub fn reads_a_day(&self, chunk: &Chunk) -> f64 {
        let reads = chunk.reads as f64 * self.credibility.part(chunk.reads);
        match self.observed_days > 0.0 {
            true => reads / self.observed_days,
            false => 0.0,
        }
    }

    /// What each of them is to save, in nanoseconds; where times are not known, at the price at which a GiB costs the same in
    /// requests and in time.
    #[must_use]
    pub fn saved_ns(&self, chunk: &Chunk) -> f64 {
        match self.by {
            SavedBy::Time => chunk.gain / chunk.reads.max(1) as f64,
            SavedBy::Requests => {
                let price = |by| self.terms.price(Bytes::gib(1), by);
                let request = price(SavedBy::Time) / price(SavedBy::Requests);
                request * 1e9 * chunk.edges.excess as f64
            }
        }
    }

    /// What it takes before, in nanoseconds, where times are known.
    fn before_ns(&self, chunk: &Chunk) -> Option<f64> {
        let whole = Fragmentation {
            dolf: 1,
            dopf: 0.0,
            requests: 1,
        };
        match (self.by, &self.options.weight) {
            (SavedBy::Time, Weight::Measured(weights)) => {
                Some(weights.read_ns(chunk.range.len, &whole) + self.saved_ns(chunk))
            }
            _ => None,
        }
    }
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    seen: Duration,
    joints: Joints,
    lives: Lasting,
    moved: Vec<Promise>,
}

/// A range that was moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promise {
    start: u64,
    len: u64,
    at: Duration,
    /// Fragments before.
    fragments: u64,
    /// Joints at the first look after the move.
    joints: Option<Joints>,
    reads_a_day: f64,
    /// What each read was to save, and what it took before, where times are known.
    saved_ns: f64,
    before_ns: Option<f64>,
    so_far: Given,
}

impl<K: Ord + Clone + Hash> Experience<K> {
    /// A look at the file system begins. `traced`: the days of reads that traces since a moment stand for now.
    pub fn look<'a>(
        &'a mut self,
        now: Duration,
        horizon_days: f64,
        traced: &'a (dyn Fn(Duration) -> f64 + Sync),
    ) -> Look<'a, K> {
        Look {
            experience: self,
            now,
            horizon_days,
            traced,
            seen: BTreeSet::new(),
        }
    }

    /// Forget which files there were; what was learned of them stays.
    pub fn forget_files(&mut self) {
        let given = self.given();
        self.given = given;
        self.files.clear();
    }

    /// The last look.
    #[must_use]
    pub fn looked_at(&self) -> Duration {
        self.at
    }

    /// Whether a file is remembered.
    #[must_use]
    pub fn knows(&self, file: &K) -> bool {
        self.files.contains_key(file)
    }

    /// Ranges of a file were moved at `now` on this prediction.
    pub fn moved(&mut self, file: &K, plan: &FilePlan, foresight: &Foresight, now: Duration) {
        let waiting: usize = self.files.values().map(|known| known.moved.len()).sum();
        let mut room = MOST_PROMISES.saturating_sub(waiting);
        for chunk in plan.migrating().filter(|chunk| chunk.reads > 0) {
            if room == 0 {
                return;
            }
            room -= 1;
            let known = self.files.entry(file.clone()).or_insert_with(|| Known {
                seen: now,
                ..Known::default()
            });
            known
                .moved
                .retain(|promise| promise.start != chunk.range.start.0);
            known.moved.push(Promise {
                start: chunk.range.start.0,
                len: chunk.range.len.get(),
                at: now,
                fragments: chunk.dolf,
                joints: None,
                reads_a_day: foresight.reads_a_day(chunk),
                saved_ns: foresight.saved_ns(chunk),
                before_ns: foresight.before_ns(chunk),
                so_far: Given::default(),
            });
        }
    }

    /// A move has written so many bytes in this time.
    pub fn took(&mut self, bytes: Bytes, time: Nanos) {
        if !bytes.is_zero() {
            self.moving.0 += time.0 as f64 / 1e9;
            self.moving.1 += bytes.get() as f64;
        }
    }

    /// The terms with what moves were seen to take.
    #[must_use]
    pub fn terms(&self, terms: &Terms) -> Terms {
        let (seconds, bytes) = self.moving;
        match bytes > 0.0 {
            true => terms.with_seconds_per_byte(seconds / bytes),
            false => *terms,
        }
    }

    /// What moves gave of what was foretold.
    #[must_use]
    pub fn given(&self) -> Given {
        let mut given = self.given;
        let moved = self.files.values().flat_map(|known| &known.moved);
        moved.for_each(|promise| given.add(&promise.so_far));
        given
    }

    /// The days that a layout is expected to last, of any file, where it is believed to be as long as the horizon.
    #[must_use]
    pub fn life_days(&self, horizon_days: f64) -> f64 {
        self.lives.life_days(horizon_days)
    }

    /// The same of this file.
    #[must_use]
    pub fn life_days_of(&self, file: &K, horizon_days: f64) -> f64 {
        let of_all = self.life_days(horizon_days);
        let own = self.files.get(file);
        own.map_or(of_all, |known| known.lives.life_days(of_all))
    }

    /// Calls `decide` with these beliefs, and how far counts are believed whose variance is so many times the count.
    pub fn believe<T>(
        &self,
        terms: &Terms,
        credibility: Credibility,
        key: impl Fn(&FilePlan) -> K,
        decide: impl FnOnce(&Terms, &Beliefs<'_>) -> T,
    ) -> T {
        let within = terms.within_days;
        let beliefs = Beliefs {
            credibility,
            given: self.given().part(),
            life_days: &|plan| self.life_days_of(&key(plan), within),
        };
        decide(&self.terms(terms), &beliefs)
    }

    fn is_remembered(&self, file: &K) -> bool {
        // The same file is chosen each time.
        let mut hasher = std::hash::DefaultHasher::new();
        file.hash(&mut hasher);
        hasher.finish() & ((1 << self.halved) - 1) == 0
    }

    fn make_room(&mut self) {
        while self.files.len() > MOST_FILES + MOST_PROMISES && self.halved < 63 {
            self.halved += 1;
            let dropped: Vec<K> = (self.files.iter())
                .filter(|(key, known)| known.moved.is_empty() && !self.is_remembered(key))
                .map(|(key, _)| key.clone())
                .collect();
            for key in dropped {
                self.files.remove(&key);
            }
        }
    }
}

/// A look that goes on.
pub struct Look<'a, K> {
    experience: &'a mut Experience<K>,
    now: Duration,
    horizon_days: f64,
    traced: &'a (dyn Fn(Duration) -> f64 + Sync),
    seen: BTreeSet<K>,
}

impl<K: Ord + Clone + Hash> Look<'_, K> {
    /// A file, as it lies, and what the profile knows of its reads, which are counted in [`PARTS`].
    pub fn see(&mut self, file: K, layout: &Layout, accesses: &[AccessRange]) {
        let read = || {
            let read = accesses.iter().filter(|access| access.reads > 0);
            read.map(|access| access.range)
        };
        let is_remembered = self.experience.is_remembered(&file);
        let Some(known) = self.experience.files.get_mut(&file) else {
            let joints = Joints::of(layout, read(), MOST_STRETCHES);
            if is_remembered && joints.count() > 0 {
                let known = Known {
                    seen: self.now,
                    joints,
                    ..Known::default()
                };
                self.experience.files.insert(file.clone(), known);
                self.seen.insert(file);
            }
            return;
        };
        self.seen.insert(file);
        let days = days_between(known.seen, self.now);
        if days <= 0.0 {
            return;
        }
        known.lives.fade(faded(known.seen, self.now));
        if let count @ 1.. = known.joints.count() {
            let lost = 1.0 - known.joints.left_in(layout) as f64 / count as f64;
            known.lives.add(days, lost);
            self.experience.lives.add(days, lost);
        }
        known.seen = self.now;
        known.joints = match read().next() {
            Some(_) => Joints::of(layout, read(), MOST_STRETCHES),
            None => known.joints.in_layout(layout, MOST_STRETCHES),
        };
        let banked = &mut self.experience.given;
        known.moved.retain_mut(|promise| {
            let (now, horizon) = (self.now, self.horizon_days);
            if promise.joints.is_none() {
                let range = FileRange::new(promise.start, promise.len);
                if layout.fragments_in(range) >= promise.fragments {
                    // It was not moved, or all of it is spoilt already: nothing was given, and nothing is told of reads.
                    return false;
                }
                promise.joints = Some(Joints::of(layout, [range], MOST_STRETCHES));
            }
            promise.reckon(accesses, (self.traced)(promise.at));
            let is_whole = promise.is_whole(layout);
            if is_whole && days_between(promise.at, now) < horizon {
                return true;
            }
            banked.add(&promise.so_far);
            false
        });
    }

    /// A file is there, and cannot be looked at.
    pub fn pass_over(&mut self, file: K) {
        self.seen.insert(file);
    }

    /// All files were seen: the others are gone.
    pub fn end(self) {
        let Self {
            experience,
            now,
            seen,
            ..
        } = self;
        let part = faded(experience.at, now);
        experience.at = experience.at.max(now);
        experience.lives.fade(part);
        experience.given.fade(part);
        experience.moving.0 *= part;
        experience.moving.1 *= part;
        let (lives, given) = (&mut experience.lives, &mut experience.given);
        experience.files.retain(|key, known| {
            let is_here = seen.contains(key);
            if !is_here {
                let days = days_between(known.seen, now);
                if known.joints.count() > 0 && days > 0.0 {
                    lives.add(days, 1.0);
                }
                known.moved.iter().for_each(|it| given.add(&it.so_far));
            }
            is_here && (known.joints.count() > 0 || !known.moved.is_empty())
        });
        experience.make_room();
    }
}

impl Promise {
    /// What came of it by now, `days` of traced reads later.
    fn reckon(&mut self, accesses: &[AccessRange], days: f64) {
        let here = (accesses.iter()).find(|access| {
            let range = access.range;
            range.start.0 <= self.start && self.start < range.end().0
        });
        let reads = self.reads_a_day * days;
        let saved = here.map_or(0.0, |access| {
            // Times are those of reads since the move, as those before were forgotten.
            let timed = access.observed.timed as f64;
            let came = timed * (access.reads as f64 / PARTS as f64).min(1.0);
            let mean = access.observed.mean_ns().unwrap_or_default();
            came * self.before_ns.map_or(self.saved_ns, |before| before - mean)
        });
        self.so_far = Given {
            reads,
            foretold: reads * self.saved_ns,
            saved,
        };
    }

    /// Whether most of what the move joined still is.
    fn is_whole(&self, layout: &Layout) -> bool {
        let joints = self.joints.as_ref();
        joints.is_none_or(|joints| 2 * joints.left_in(layout) >= joints.count())
    }
}

/// Maps whose keys are no strings, as lists of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Ord + DeserializeOwned,
        V: DeserializeOwned,
        D: Deserializer<'de>,
    {
        let pairs = Vec::<(K, V)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use indef_core::{
        access::Observed,
        calibrate::Weights,
        layout::{Extent, ExtentFlags},
        plan::{Decision, Edges},
    };
    use units::{FileOffset, PhysOffset};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const KIB: u64 = 1024;

    /// 64 KiB in so many pieces.
    fn layout(pieces: u64) -> Layout {
        let len = 64 * KIB / pieces;
        let piece = |at| Extent {
            file: FileOffset(at * len),
            phys: PhysOffset((1 << 30) + at * (1 << 20)),
            len: Bytes(len),
            flags: ExtentFlags::empty(),
        };
        Layout::new((0..pieces).map(piece).collect())
    }

    /// So many reads of it, of so many nanoseconds each.
    fn read(reads: u64, ns: u64) -> [AccessRange; 1] {
        [AccessRange {
            range: FileRange::new(0, 64 * KIB),
            reads: reads * PARTS,
            writes: 0,
            observed: Observed {
                requests: reads * PARTS,
                timed: reads,
                time: Nanos(reads * ns),
                ahead: Some(0),
            },
        }]
    }

    fn look(of: &mut Experience<u32>, day: u32, files: &[(u32, &Layout, &[AccessRange])]) {
        // A trace of all of each day.
        let traced = |since| days_between(since, DAY * day);
        let mut look = of.look(DAY * day, 30.0, &traced);
        for (file, layout, accesses) in files {
            look.see(*file, layout, accesses);
        }
        look.end();
    }

    #[test]
    fn lives_are_learned_of_what_is_read_and_of_each_file() {
        let mut of = Experience::default();
        let (whole, broken, read) = (layout(1), layout(16), read(1, 100));
        assert_eq!(of.life_days(30.0), 30.0);
        look(
            &mut of,
            1,
            &[(1, &whole, &read), (2, &whole, &read), (3, &whole, &[])],
        );
        assert!(of.knows(&1) && !of.knows(&3));
        for day in 2..=61 {
            // One file is written anew each day, and the other stays.
            let now = if day % 2 == 0 { &broken } else { &whole };
            look(&mut of, day, &[(1, now, &read), (2, &whole, &read)]);
        }
        let (one, other) = (of.life_days_of(&1, 30.0), of.life_days_of(&2, 30.0));
        assert!(one < 4.0 && other > 30.0, "{one} {other}");
        assert_eq!(of.life_days_of(&9, 30.0), of.life_days(30.0));
        // A file that is gone has lost all; one that cannot be looked at has lost nothing.
        let before = of.life_days(30.0);
        let mut quiet = of.clone();
        let traced = |_| 1.0;
        let mut looking = quiet.look(DAY * 62, 30.0, &traced);
        looking.pass_over(1);
        looking.pass_over(2);
        looking.end();
        assert!(quiet.knows(&2) && (quiet.life_days(30.0) / before - 1.0).abs() < 0.05);
        look(&mut of, 62, &[]);
        assert!(!of.knows(&2) && of.life_days(30.0) < before);
    }

    fn promise(reads: u64) -> (FilePlan, Foresight) {
        let chunk = Chunk {
            range: FileRange::new(0, 64 * KIB),
            reads: reads * PARTS,
            writes: 0,
            dolf: 16,
            dopf: 0.0,
            iodp: 0.0,
            decision: Decision::Migrate,
            cost: Bytes::kib(64),
            gain: 1000.0 * (reads * PARTS) as f64,
            edges: Edges {
                excess: 15,
                cuts_start: false,
                cuts_end: false,
            },
            lets_go: None,
            shared: None,
        };
        let plan = FilePlan {
            path: "/f".into(),
            root_len: Some(0),
            dev: 1,
            inode: 1,
            born: None,
            size: Bytes::kib(64),
            block_size: Bytes::kib(4),
            fs: "ext4".into(),
            engine: None,
            extents_before: 16,
            named: None,
            skip: None,
            chunks: vec![chunk],
        };
        let weights = Weights {
            base_ns: 500.0,
            ..Weights::default()
        };
        let foresight = Foresight {
            options: PlanOptions {
                weight: Weight::Measured(weights),
                ..PlanOptions::default()
            },
            terms: Terms::default(),
            by: SavedBy::Time,
            observed_days: PARTS as f64,
            credibility: Credibility::FULL,
        };
        (plan, foresight)
    }

    /// A read takes 1,500 ns and is to take 500. What came of 100 reads a day after `days`.
    fn given(days: u32, pieces: u64, came: u64, ns: u64) -> Given {
        let mut of = Experience::default();
        let (plan, foresight) = promise(100);
        of.moved(&1, &plan, &foresight, DAY);
        for day in 2..=1 + days {
            let passed = u64::from(day - 1);
            let reads = read(came * passed, ns);
            look(&mut of, day, &[(1, &layout(pieces), &reads)]);
        }
        of.given()
    }

    #[test]
    fn what_moves_gave_is_compared_with_what_was_foretold() {
        let as_foretold = given(3, 1, 100, 500);
        assert_eq!(
            (as_foretold.reads, as_foretold.saved),
            (300.0, as_foretold.foretold)
        );
        assert_eq!(as_foretold.part(), 1.0);
        // Half of the reads came; each saved half as much.
        let half = given(3, 1, 50, 500);
        assert!((half.saved / half.foretold - 0.5).abs() < 1e-9, "{half:?}");
        let half = given(3, 1, 100, 1000);
        assert!((half.saved / half.foretold - 0.5).abs() < 1e-9, "{half:?}");
        // They became slower, or did not come: that is known after some reads that were foretold.
        assert_eq!(given(9, 1, 100, 2000).part(), 0.0);
        let none = given(2, 1, 0, 0).part();
        assert!(none > 0.0 && none < 0.1, "{none}");
        // It was not moved after all.
        assert_eq!(given(3, 16, 100, 1500), Given::default());
        // After the horizon it is not waited for any more, and what it gave is kept.
        let kept = given(40, 1, 100, 500);
        assert!(
            (kept.part() - 1.0).abs() < 1e-9 && kept.reads > 2000.0,
            "{kept:?}"
        );
    }

    #[test]
    fn moves_that_took_longer_cost_more() {
        let mut of = Experience::<u32>::default();
        let terms = Terms::default();
        assert_eq!(of.terms(&terms), terms);
        of.took(Bytes::ZERO, Nanos(1 << 40));
        of.took(Bytes::mib(1), Nanos(1));
        assert_eq!(of.terms(&terms), terms);
        of.took(Bytes::mib(1), Nanos(2_000_000_000));
        let price = of.terms(&terms).price(Bytes::gib(1), SavedBy::Time);
        assert!((price - 1034.0).abs() < 0.1, "{price}");
    }
}
