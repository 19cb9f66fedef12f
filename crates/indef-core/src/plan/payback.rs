//! `indef watch`: keeps the chunks that pay back within a time.
//!
//! ```text
//! saved a day   = what the reads of the profile save by the move ÷ the days that the profile stands for × given
//! price         = bytes that the move writes × the price of a byte
//! payback days  = price ÷ saved a day       moved if at most the days of `Terms::within_days` that the layout serves
//! ```
//!
//! What is *given* of the savings that are foretold, and how long a layout serves, are learned (module `belief`).
//!
//! Saved is device time where the times of reads tell what fragments cost, else requests; the price is in the same. In time a byte
//! costs what reading and writing it takes (`move_bytes_per_s`, twice, or longer where moves took longer) and what its wear is worth
//! (`wear_s_per_gib`). In requests it has a price of its own (`requests_per_gib`), which is a guess of what a request takes. The first
//! timed reads bound it ([`Terms::with_request_seconds`]): on a drive that takes 5 µs for a request, a price that is right at
//! 100 µs promises twenty times what comes.
//!
//! Each chunk has to pay for itself: what is hot does not pay for what is cold. Where an engine moves whole files,
//! the chunks of a file pay together.

use units::Bytes;

use super::{
    Credibility, Decision, FilePlan, belief::serves_days, safety::keep_promise_from_edges,
    shared::pay_again,
};
use crate::SkipReason;

const GIB: f64 = (1u64 << 30) as f64;

/// In which time a move has to pay back, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The longest payback, in days.
    pub within_days: f64,
    /// Bytes a second at which a move reads, and at which it writes.
    pub move_bytes_per_s: f64,
    /// Seconds of reads that the wear of a GiB is worth.
    pub wear_s_per_gib: f64,
    /// Requests that a GiB has to save, where times are not known.
    pub requests_per_gib: f64,
}

impl Default for Terms {
    /// A month; 100 MiB/s; the wear of a GiB is worth 10 s. At 100 µs a request, 30.48 s are some 300,000 requests.
    fn default() -> Self {
        Self {
            within_days: 30.0,
            move_bytes_per_s: 100.0 * 1_048_576.0,
            wear_s_per_gib: 10.0,
            requests_per_gib: 300_000.0,
        }
    }
}

/// The quantity that a move saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedBy {
    /// Nanoseconds of device time: the gain of chunks is a time.
    Time,
    /// Requests: reads × the fragments beyond the fewest possible.
    Requests,
}

impl Terms {
    /// The price of writing so many bytes: seconds, or requests.
    #[must_use]
    pub fn price(&self, bytes: Bytes, by: SavedBy) -> f64 {
        let gib = bytes.get() as f64 / GIB;
        match by {
            SavedBy::Time => {
                let moving = 2.0 * bytes.get() as f64 / self.move_bytes_per_s;
                moving + gib * self.wear_s_per_gib
            }
            SavedBy::Requests => gib * self.requests_per_gib,
        }
    }

    /// Days until a move of so many bytes is paid back that saves so much a day (seconds, or requests); infinite
    /// where it saves nothing.
    #[must_use]
    pub fn payback_days(&self, bytes: Bytes, saved_a_day: f64, by: SavedBy) -> f64 {
        match saved_a_day > 0.0 {
            true => self.price(bytes, by) / saved_a_day,
            false => f64::INFINITY,
        }
    }
}

/// What earlier moves and looks have taught.
#[derive(Clone, Copy)]
pub struct Beliefs<'a> {
    /// How far the count of a range's reads is believed.
    pub credibility: Credibility,
    /// The part of foretold savings that moves give.
    pub given: f64,
    /// The days that the layout of a file is expected to last.
    pub life_days: &'a dyn Fn(&FilePlan) -> f64,
}

impl Beliefs<'_> {
    /// All that is foretold comes, and for ever.
    pub const TRUSTING: Self = Self {
        credibility: Credibility::FULL,
        given: 1.0,
        life_days: &|_| f64::INFINITY,
    };
}

impl Terms {
    /// The terms where moves were seen to take so many seconds for each byte, if that is longer than by these.
    #[must_use]
    pub fn with_seconds_per_byte(self, seconds: f64) -> Self {
        let nominal = 2.0 / self.move_bytes_per_s;
        match seconds.is_finite() && seconds > nominal {
            true => Self {
                move_bytes_per_s: 2.0 / seconds,
                ..self
            },
            false => self,
        }
    }

    /// The terms where a request takes at most so many seconds of the time of reads: as many more have to be saved as are worth the
    /// price in time, if these are more than by these terms.
    #[must_use]
    pub fn with_request_seconds(self, most: f64) -> Self {
        let needed = self.price(Bytes::gib(1), SavedBy::Time) / most;
        match needed.is_finite() && needed > self.requests_per_gib {
            true => Self {
                requests_per_gib: needed,
                ..self
            },
            false => self,
        }
    }

    /// The days within which a move has to be paid back whose layout lasts so long.
    #[must_use]
    pub fn serves_days(&self, life_days: f64) -> f64 {
        serves_days(life_days, self.within_days)
    }
}

/// What moves, and what it saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paying {
    /// In which quantity.
    pub by: SavedBy,
    /// Bytes that the moves write.
    pub bytes: Bytes,
    /// What they save a day: seconds, or requests.
    pub saved_a_day: f64,
    /// Requests that they save a day, whatever the quantity is.
    pub requests_a_day: f64,
    /// What they save in all, within the days that their layouts serve.
    pub saved: f64,
    /// Bytes of moves that would save something, and pay back too late.
    pub late_bytes: Bytes,
    /// The payback of the best of them, in days; infinite where there is none.
    pub late_days: f64,
    /// The days for which that one would serve.
    pub late_serves_days: f64,
}

/// Chunks that move together.
struct Group {
    chunks: Vec<usize>,
    bytes: Bytes,
    saved: f64,
    requests: f64,
}

/// Keep the chunks that pay back in time; the others become `pays-too-late`. `days` are those that the reads of the
/// plans stand for, `beliefs` what is known of earlier predictions.
///
/// Dropping chunks can leave pieces of a run that would end in more fragments alone: these are dropped as well.
pub fn keep_paying(
    files: &mut [FilePlan],
    terms: &Terms,
    days: f64,
    by: SavedBy,
    beliefs: &Beliefs<'_>,
) -> Paying {
    let mut paying = Paying {
        by,
        bytes: Bytes::ZERO,
        saved_a_day: 0.0,
        requests_a_day: 0.0,
        saved: 0.0,
        late_bytes: Bytes::ZERO,
        late_days: f64::INFINITY,
        late_serves_days: terms.within_days,
    };
    let a_day = |sum: f64| match days > 0.0 && sum.is_finite() {
        true => sum / days * beliefs.given,
        false => 0.0,
    };
    // How many times too late the best of what stays is.
    let mut least = f64::INFINITY;
    for file in files {
        let serves = terms.serves_days((beliefs.life_days)(file));
        // What is left of a file may have to pay for more: metadata that chunks share, which one of them pays for.
        loop {
            let mut is_cut = false;
            for group in groups(file, by, &beliefs.credibility) {
                let saved_a_day = a_day(group.saved);
                let payback = terms.payback_days(group.bytes, saved_a_day, by);
                if payback <= serves {
                    continue;
                }
                paying.late_bytes = paying.late_bytes.saturating_add(group.bytes);
                if payback / serves < least {
                    least = payback / serves;
                    (paying.late_days, paying.late_serves_days) = (payback, serves);
                }
                is_cut = true;
                for index in group.chunks {
                    file.chunks[index].decision = Decision::Skip(SkipReason::PaysTooLate);
                }
            }
            if !is_cut {
                break;
            }
            keep_promise_from_edges(&mut file.chunks, SkipReason::PaysTooLate);
            pay_again(&mut file.chunks);
        }
        // What the promise dropped saves nothing.
        for group in groups(file, by, &beliefs.credibility) {
            paying.bytes = paying.bytes.saturating_add(group.bytes);
            paying.saved_a_day += a_day(group.saved);
            paying.requests_a_day += a_day(group.requests);
            paying.saved += a_day(group.saved) * serves;
        }
    }
    paying
}

/// The chunks of a file that move, in groups that move together: those that cost nothing move with the one before
/// that pays for all.
fn groups(file: &FilePlan, by: SavedBy, credibility: &Credibility) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    if file.skip.is_some() {
        return groups;
    }
    for (index, chunk) in file.chunks.iter().enumerate().filter(|(_, c)| c.migrates()) {
        let part = credibility.part(chunk.reads);
        let requests = part * chunk.reads as f64 * chunk.edges.excess as f64;
        let saved = match by {
            SavedBy::Time => part * chunk.gain / 1e9,
            SavedBy::Requests => requests,
        };
        match groups.last_mut() {
            Some(payer) if chunk.cost.is_zero() => {
                payer.chunks.push(index);
                payer.saved += saved;
                payer.requests += requests;
            }
            _ => groups.push(Group {
                chunks: vec![index],
                bytes: chunk.cost,
                saved,
                requests,
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::FileRange;

    use super::*;
    use crate::plan::{Chunk, Edges, SharedMove};

    const TERMS: Terms = Terms {
        within_days: 10.0,
        move_bytes_per_s: GIB / 4.0,
        wear_s_per_gib: 2.0,
        requests_per_gib: 1000.0,
    };

    fn chunk(at: u64, cost: u64, reads: u64, excess: u64, gain_ns: f64) -> Chunk {
        Chunk {
            range: FileRange::new(at << 20, 1 << 20),
            reads,
            writes: 0,
            dolf: excess + 1,
            dopf: 0.0,
            iodp: gain_ns,
            decision: Decision::Migrate,
            cost: Bytes(cost),
            gain: gain_ns,
            edges: Edges {
                excess,
                cuts_start: false,
                cuts_end: false,
            },
            lets_go: None,
            shared: None,
        }
    }

    fn file(chunks: Vec<Chunk>) -> FilePlan {
        FilePlan {
            path: "/f".into(),
            root_len: Some(0),
            dev: 1,
            inode: 2,
            born: None,
            size: Bytes::gib(64),
            block_size: Bytes::kib(4),
            fs: "ext4".into(),
            engine: None,
            extents_before: 100,
            named: None,
            skip: None,
            chunks,
        }
    }

    #[test]
    fn a_gib_costs_what_moving_it_takes_and_its_wear() {
        let gib = Bytes::gib(1);
        assert_eq!(TERMS.price(gib, SavedBy::Time), 10.0);
        assert_eq!(TERMS.price(gib, SavedBy::Requests), 1000.0);
        assert_eq!(TERMS.payback_days(gib, 2.0, SavedBy::Time), 5.0);
        assert!(TERMS.payback_days(gib, 0.0, SavedBy::Time).is_infinite());
        // The defaults agree with each other at 100 µs a request.
        let terms = Terms::default();
        let seconds = terms.price(gib, SavedBy::Time);
        let requests = terms.price(gib, SavedBy::Requests);
        assert!((seconds / requests / 1e-4 - 1.0).abs() < 0.05, "{seconds}");
    }

    #[test]
    fn what_is_hot_does_not_pay_for_what_is_cold() {
        // Each 1 GiB, at 10 s: in 10 days, of which 2 were observed, they have to save 2 s.
        let chunks = || {
            vec![
                chunk(0, 1 << 30, 10, 3, 2e9),
                chunk(4, 1 << 30, 10, 3, 1.9e9),
                chunk(8, 1 << 30, 0, 3, 0.0),
            ]
        };
        let mut files = [file(chunks())];
        let paying = keep_paying(&mut files, &TERMS, 2.0, SavedBy::Time, &Beliefs::TRUSTING);
        assert_eq!((paying.bytes, paying.saved_a_day), (Bytes::gib(1), 1.0));
        assert_eq!(paying.late_bytes, Bytes::gib(2));
        assert!((paying.late_days - 10.0 / 0.95).abs() < 1e-9);
        let late = Decision::Skip(SkipReason::PaysTooLate);
        let decisions = files[0].chunks.iter().map(|chunk| chunk.decision);
        assert_eq!(
            decisions.collect::<Vec<_>>(),
            [Decision::Migrate, late, late]
        );
        // By requests: 15 a day save 150 in time, 1000 are needed.
        let mut files = [file(chunks())];
        let paying = keep_paying(
            &mut files,
            &TERMS,
            2.0,
            SavedBy::Requests,
            &Beliefs::TRUSTING,
        );
        assert_eq!((paying.bytes, paying.requests_a_day), (Bytes::ZERO, 0.0));
        assert!((paying.late_days - 1000.0 / 15.0).abs() < 1e-9);
    }

    /// Each of them would pay for itself, but not one for the metadata that others get.
    #[test]
    fn nothing_moves_without_what_others_get_for_it() {
        let mib = 1 << 20;
        let plan = |metadata: u64| {
            let mut chunks: Vec<Chunk> =
                (0..3).map(|at| chunk(2 * at, mib, 100, 10, 1e9)).collect();
            for chunk in &mut chunks {
                chunk.shared = Some(SharedMove {
                    holders: 1,
                    metadata: Bytes::ZERO,
                });
            }
            chunks[0].cost = Bytes(mib + metadata);
            chunks[0].shared = Some(SharedMove {
                holders: 1,
                metadata: Bytes(metadata),
            });
            let mut files = [file(chunks)];
            keep_paying(&mut files, &TERMS, 1.0, SavedBy::Time, &Beliefs::TRUSTING);
            let [file] = files;
            let moving = file.chunks.iter().filter(|chunk| chunk.migrates());
            let of_others = moving.clone().filter_map(|chunk| chunk.shared);
            let paid: u64 = of_others.map(|shared| shared.metadata.get()).sum();
            (moving.count(), paid)
        };
        assert_eq!(plan(mib), (3, mib));
        let all = 1 << 40;
        assert_eq!(plan(all), (0, 0));
        // A fragment that is cold takes the payer along; another one pays then.
        let mut chunks: Vec<Chunk> = (0..2).map(|at| chunk(2 * at, mib, 100, 10, 1e9)).collect();
        for (chunk, metadata) in chunks.iter_mut().zip([mib, 0]) {
            chunk.cost = Bytes(mib + metadata);
            chunk.shared = Some(SharedMove {
                holders: 1,
                metadata: Bytes(metadata),
            });
        }
        chunks[0].gain = 1.0;
        let mut files = [file(chunks)];
        let paying = keep_paying(&mut files, &TERMS, 1.0, SavedBy::Time, &Beliefs::TRUSTING);
        let [_, second] = &files[0].chunks[..] else {
            panic!("{files:?}")
        };
        assert!(!files[0].chunks[0].migrates() && second.migrates());
        assert_eq!(
            (second.cost, paying.bytes),
            (Bytes(2 * mib), Bytes(2 * mib))
        );
    }

    #[test]
    fn a_layout_that_does_not_last_has_to_pay_sooner() {
        // 10 s for the GiB, which saves 2 s a day: five days.
        let moved = |life: f64, given: f64| {
            let mut files = [file(vec![chunk(0, 1 << 30, 10, 3, 2e9)])];
            let beliefs = Beliefs {
                credibility: Credibility::FULL,
                given,
                life_days: &|_| life,
            };
            keep_paying(&mut files, &TERMS, 1.0, SavedBy::Time, &beliefs)
        };
        let trusting = moved(f64::INFINITY, 1.0);
        assert_eq!(
            (trusting.bytes, trusting.saved_a_day, trusting.saved),
            (Bytes::gib(1), 2.0, 20.0)
        );
        // Within ten days, a layout that lasts four on average serves less than four.
        let short = moved(4.0, 1.0);
        assert_eq!((short.bytes, short.late_days), (Bytes::ZERO, 5.0));
        assert!((short.late_serves_days - 4.0 * (1.0 - (-2.5f64).exp())).abs() < 1e-9);
        let enough = moved(8.0, 1.0);
        assert_eq!(enough.bytes, Bytes::gib(1));
        assert!((enough.saved / 2.0 - 8.0 * (1.0 - (-1.25f64).exp())).abs() < 1e-9);
        // Moves that gave a third are no better; those that gave nothing are not made.
        assert_eq!(moved(f64::INFINITY, 1.0 / 3.0).late_days, 15.0);
        assert!(moved(f64::INFINITY, 0.0).late_days.is_infinite());
        assert_eq!(moved(0.0, 1.0).bytes, Bytes::ZERO);
    }

    #[test]
    fn a_move_costs_as_long_as_moves_took() {
        let gib = Bytes::gib(1);
        // 8 s by the rates, and 2 s of wear.
        assert_eq!(
            TERMS.with_seconds_per_byte(0.0).price(gib, SavedBy::Time),
            10.0
        );
        assert_eq!(TERMS.with_seconds_per_byte(1.0 / GIB), TERMS);
        let slow = TERMS.with_seconds_per_byte(98.0 / GIB);
        assert!((slow.price(gib, SavedBy::Time) - 100.0).abs() < 1e-9);
        assert_eq!(slow.price(gib, SavedBy::Requests), 1000.0);
        assert_eq!(TERMS.with_seconds_per_byte(f64::NAN), TERMS);
    }

    /// 10 s for a GiB, and 1,000 requests: a guess of 10 ms for each.
    #[test]
    fn a_request_is_worth_no_more_than_it_takes() {
        let gib = Bytes::gib(1);
        for most in [0.01, 0.02, f64::INFINITY, 0.0, -1.0, f64::NAN] {
            assert_eq!(TERMS.with_request_seconds(most), TERMS, "{most}");
        }
        let fast = TERMS.with_request_seconds(1e-3);
        assert!((fast.price(gib, SavedBy::Requests) - 1e4).abs() < 1e-6);
        assert_eq!(fast.price(gib, SavedBy::Time), 10.0);
    }

    #[test]
    fn chunks_of_a_whole_file_pay_together() {
        let mut files = [file(vec![
            chunk(0, 1 << 30, 1, 1, 1e9),
            chunk(4, 0, 1, 1, 0.6e9),
            chunk(8, 0, 1, 1, 0.4e9),
        ])];
        let paying = keep_paying(&mut files, &TERMS, 2.0, SavedBy::Time, &Beliefs::TRUSTING);
        assert_eq!((paying.bytes, paying.saved_a_day), (Bytes::gib(1), 1.0));
        assert!(files[0].chunks.iter().all(Chunk::migrates));
    }

    proptest! {
        #[test]
        fn more_observed_days_never_move_more(
            chunks in prop::collection::vec((0u64..1 << 32, 0u64..1000, 0u64..64, 0.0..1e12f64), 1..20),
            days in 0.0..100.0f64,
            within in 0.0..365.0f64,
            by_time: bool,
        ) {
            let by = if by_time { SavedBy::Time } else { SavedBy::Requests };
            let chunks: Vec<_> = chunks.iter().enumerate()
                .map(|(at, (cost, reads, excess, gain))| chunk(2 * at as u64, cost.max(&1).to_owned(), *reads, *excess, *gain))
                .collect();
            let terms = Terms { within_days: within, ..Terms::default() };
            let whole: Bytes = chunks.iter().map(|chunk| chunk.cost).sum();
            let (mut fewer, mut more) = ([file(chunks.clone())], [file(chunks)]);
            let one = keep_paying(&mut fewer, &terms, days, by, &Beliefs::TRUSTING);
            let other = keep_paying(&mut more, &terms, days * 2.0, by, &Beliefs::TRUSTING);
            prop_assert!(other.bytes <= one.bytes);
            prop_assert_eq!(one.bytes, fewer[0].cost());
            prop_assert!(one.bytes.saturating_add(one.late_bytes) <= whole);
            prop_assert!(one.saved_a_day.is_finite() && one.requests_a_day.is_finite());
            // All that moves pays back in time, together and so each.
            if !one.bytes.is_zero() {
                prop_assert!(terms.payback_days(one.bytes, one.saved_a_day, by) <= within * (1.0 + 1e-9));
            }
        }
    }
}
