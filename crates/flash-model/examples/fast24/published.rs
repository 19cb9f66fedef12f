//! The numbers that FAST'24 published ("We Ain't Afraid of No File Fragmentation", §3.2, §5.1,
//! §5.2).

/// Figure 12 in MB/s: contiguous.
pub(crate) const CONTIGUOUS: f64 = 2175.0;

/// A case of Figure 12: (without hints, with hints), MB/s, from the figure's labels.
pub(crate) const APPEND_WORST: (f64, f64) = (397.0, 2127.0);
pub(crate) const OVERWRITE_WORST: (f64, f64) = (399.0, 2058.0);
pub(crate) const APPEND_RANDOM: (f64, f64) = (1470.0, 2064.0);
pub(crate) const OVERWRITE_RANDOM: (f64, f64) = (1487.0, 2069.0);

/// Figure 8a: best and worst throughput of NVMe-A and NVMe-B, MB/s.
pub(crate) const ALIGNED_A: (f64, f64) = (2600.0, 166.0);
pub(crate) const ALIGNED_B: (f64, f64) = (3020.0, 480.0);

/// Figure 11: share of contiguous that is left after fragmentation, NVMe-A and NVMe-B, and with
/// the approach emulated by dummy writes.
pub(crate) const FRAGMENTED_A: f64 = 1.0 - 0.79;
pub(crate) const FRAGMENTED_B: f64 = 1.0 - 0.76;
pub(crate) const EMULATED_APPROACH: f64 = 0.98;
/// The same for overwrites (§5.1: "reduced to an average of 1 %").
pub(crate) const EMULATED_OVERWRITE: f64 = 0.99;
