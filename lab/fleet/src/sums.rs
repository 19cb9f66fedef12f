//! Sums over hosts.

use indef_core::plan::Terms;
use units::Bytes;

use crate::{
    fleet::Lived,
    outcome::Outcome,
    settings::{FLEET, VOLUME, scale},
    year::When,
};

/// Hosts for whose figures the cost is told.
pub const PRICED: f64 = 10_000.0;
/// Reads that are slower than contiguous ones by less than this, in percent, have nothing to gain.
pub const LITTLE: f64 = 1.0;

/// A loss of more than this part of the time of all reads is clear.
pub const CLEAR: f64 = 0.001;

/// A policy on some hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Speed of all reads that is lost against contiguous files, in percent.
    pub lost_pct: f64,
    /// That of the host in the middle.
    pub lost_median_pct: f64,
    /// That of the host that nine of ten are better than.
    pub lost_tenth_pct: f64,
    /// Pieces that a read meets.
    pub pieces: f64,
    /// Bytes that the defragmenter wrote for each that users and file system did, in percent.
    pub moved_pct: f64,
    /// TB (10¹² bytes) that it wrote in a year on 10,000 hosts.
    pub moved_tb: f64,
    /// Bytes that cells took for each byte that was written.
    pub amplification: f64,
    /// Cells' writes beyond those of hosts that are never defragmented, in percent.
    pub worn_pct: f64,
    /// The share of a drive's life that a year takes, in percent: the mean of the drives that wear.
    pub life_pct: f64,
    /// Hours that moves took on 10,000 hosts.
    pub moving_hours: f64,
    /// Hours of reads that were saved on 10,000 hosts.
    pub saved_hours: f64,
    /// The same, less what the moves cost by the terms of `watch` (time and wear).
    pub net_hours: f64,
    /// Seconds of reads saved for each GiB that was written; 0 where nothing was.
    pub saved_s_per_gib: f64,
    /// Hosts of the fleet of which nothing was moved.
    pub untouched: f64,
    /// Hosts of the fleet that moves cost more than they saved.
    pub losers: f64,
    /// Those of which it did by more than [`CLEAR`] of the time of all reads.
    pub clear_losers: f64,
    /// What moves cost beyond what they saved there, in hours of 10,000 hosts.
    pub losses_hours: f64,
    /// Hosts of the fleet whose reads lose less than [`LITTLE`] percent.
    pub fine: f64,
}

impl Sums {
    /// Of these hosts under a policy.
    #[must_use]
    pub fn of(lived: &[&Lived], when: When, terms: &Terms) -> Self {
        let years = |when| lived.iter().filter_map(move |host| host.years.get(&when));
        let sum = |when, of: fn(&Outcome) -> f64| years(when).map(of).sum::<f64>();
        let here = |of: fn(&Outcome) -> f64| sum(when, of);
        let (read, best) = (here(|it| it.read_ns), here(|it| it.best_ns));
        let (used, moved) = (here(|it| it.used.0 as f64), here(|it| it.moved.0 as f64));
        let programmed = here(|it| it.programmed.0 as f64);
        let mut lost: Vec<f64> = years(when).map(Outcome::lost_pct).collect();
        lost.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (lost.len() as f64 * part) as usize;
            lost.get(index.min(lost.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0.0)
        };
        let life: Vec<f64> = years(when).filter_map(|it| it.life_pct(VOLUME)).collect();
        let saved_s = (sum(When::Never, |it| it.read_ns) - read) / 1e9;
        let net = |host: &&&Lived| {
            let (never, year) = (host.years.get(&When::Never)?, host.years.get(&when)?);
            let saved = (never.read_ns - year.read_ns) / 1e9;
            Some((saved - year.price(terms), year.moved))
        };
        let nets: Vec<(f64, Bytes)> = lived.iter().filter_map(|host| net(&host)).collect();
        let times: Vec<f64> = years(When::Never).map(|it| it.read_ns / 1e9).collect();
        let hosts = lived.len().max(1) as f64;
        let of_fleet = |count: usize| f64::from(FLEET) * count as f64 / hosts;
        let priced = scale() as f64 * PRICED / hosts;
        let ratio = |over: f64, under: f64| if under > 0.0 { over / under } else { 0.0 };
        Self {
            lost_pct: 100.0 * (1.0 - ratio(best, read)).clamp(0.0, 1.0),
            lost_median_pct: at(0.5),
            lost_tenth_pct: at(0.9),
            pieces: ratio(here(|it| it.pieces), here(|it| it.reads)),
            moved_pct: 100.0 * ratio(moved, used),
            moved_tb: moved * priced / 1e12,
            amplification: ratio(programmed, used + moved),
            worn_pct: 100.0
                * (ratio(programmed, sum(When::Never, |it| it.programmed.0 as f64)) - 1.0),
            life_pct: ratio(life.iter().sum(), life.len() as f64),
            moving_hours: here(|it| it.moving_ns) / 3.6e12 * priced,
            saved_hours: saved_s / 3600.0 * priced,
            net_hours: nets.iter().map(|(net, _)| net).sum::<f64>() / 3600.0 * priced,
            saved_s_per_gib: ratio(saved_s * 1_073_741_824.0, moved),
            untouched: of_fleet(nets.iter().filter(|(_, moved)| moved.is_zero()).count()),
            losers: of_fleet(nets.iter().filter(|(net, _)| *net < 0.0).count()),
            clear_losers: of_fleet(
                nets.iter()
                    .zip(&times)
                    .filter(|((net, _), time)| *net < -CLEAR * *time)
                    .count(),
            ),
            losses_hours: nets.iter().map(|(net, _)| net.min(0.0)).sum::<f64>() / -3600.0 * priced,
            fine: of_fleet(lost.iter().filter(|lost| **lost < LITTLE).count()),
        }
    }
}
