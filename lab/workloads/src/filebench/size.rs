//! Sizes of files: gamma distributed, as filebench's filesets are.

use crate::Numbers;

/// The shape of filebench's sizes (`sizegamma`, 1500 thousandths by default).
const SHAPE: f64 = 1.5;

/// A standard normal number (Box, Muller 1958).
fn normal(numbers: &mut Numbers) -> f64 {
    let radius = (-2.0 * (1.0 - numbers.fraction()).ln()).sqrt();
    radius * (std::f64::consts::TAU * numbers.fraction()).cos()
}

/// A gamma distributed number with this mean (Marsaglia, Tsang 2000, "A simple method for generating
/// gamma variables").
fn gamma(numbers: &mut Numbers, shape: f64, mean: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(numbers);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 {
            let u = 1.0 - numbers.fraction();
            if u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * mean / shape;
            }
        }
    }
}

/// The size of a file: at least one byte.
pub(crate) fn file_bytes(numbers: &mut Numbers, mean: u64) -> u64 {
    (gamma(numbers, SHAPE, mean as f64).round() as u64).max(1)
}
