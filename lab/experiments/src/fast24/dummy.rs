//! The sizes of the writes between the target file's writes.
//!
//! The artifact's programs draw them with C's `rand()`, never seeded, after they have filled a
//! buffer of 200 MiB with it: with glibc, every run of the original drew the same sizes. glibc's
//! default generator is the additive feedback x(i) = x(i − 3) + x(i − 31) mod 2³² (its manual page
//! `random(3)` names the kind; the recurrence and the seeding are widely documented), so the
//! numbers after the first 209,715,200 follow from the recurrence's power, without drawing those.

const ORDER: usize = 31;
const LAG: usize = 28;
/// glibc's state is 31 numbers, and it throws the next 310 away after seeding.
const DISCARDED: u64 = 31 + 310;
/// Numbers that the programs draw to fill their buffer, a byte each.
const DRAWN_BEFORE: u64 = 200 << 20;

/// Polynomial in the shift, modulo the recurrence, with coefficients modulo 2³².
type Shift = [u32; ORDER];

/// glibc's `rand()` from the call after the buffer is filled.
pub struct PublishedDraws {
    state: [u32; ORDER],
    at: usize,
}

impl PublishedDraws {
    /// The first of them is the next to be drawn.
    #[must_use]
    pub fn new() -> Self {
        let start = seeded();
        let mut state = [0; ORDER];
        let mut shift = power(DISCARDED + DRAWN_BEFORE);
        for value in &mut state {
            *value = apply(&shift, &start);
            shift = times_x(&shift);
        }
        // `state` now holds 31 numbers in sequence, the first of them the next to be drawn.
        Self { state, at: 0 }
    }
}

impl Default for PublishedDraws {
    fn default() -> Self {
        Self::new()
    }
}

impl Iterator for PublishedDraws {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let drawn = self.state[self.at];
        self.state[self.at] = drawn.wrapping_add(self.state[(self.at + LAG) % ORDER]);
        self.at = (self.at + 1) % ORDER;
        Some(drawn >> 1)
    }
}

/// The state after `srand(1)`, which is also the state without it.
fn seeded() -> [u32; ORDER] {
    let mut state = [1_u32; ORDER];
    for at in 1..ORDER {
        state[at] = (16807 * u64::from(state[at - 1]) % 0x7fff_ffff) as u32;
    }
    // The three numbers after these repeat the first three; only then the recurrence begins.
    state.rotate_left(3);
    state
}

fn times_x(shift: &Shift) -> Shift {
    // x³¹ = x²⁸ + 1
    let mut next = [0; ORDER];
    next[1..].copy_from_slice(&shift[..ORDER - 1]);
    next[0] = shift[ORDER - 1];
    next[LAG] = next[LAG].wrapping_add(shift[ORDER - 1]);
    next
}

fn multiply(a: &Shift, b: &Shift) -> Shift {
    let mut product = [0; ORDER];
    let mut shifted = *a;
    for &factor in b {
        for (sum, term) in product.iter_mut().zip(shifted) {
            *sum = u32::wrapping_add(*sum, term.wrapping_mul(factor));
        }
        shifted = times_x(&shifted);
    }
    product
}

fn power(mut exponent: u64) -> Shift {
    let (mut result, mut base) = ([0; ORDER], [0; ORDER]);
    result[0] = 1;
    base[1] = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(&result, &base);
        }
        base = multiply(&base, &base);
        exponent >>= 1;
    }
    result
}

fn apply(shift: &Shift, start: &[u32; ORDER]) -> u32 {
    shift
        .iter()
        .zip(start)
        .fold(0, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dummy_sizes_are_those_of_the_published_programs() {
        // From a C program that draws 200 Mi numbers first, glibc 2.36.
        let drawn: Vec<u32> = PublishedDraws::new()
            .map(|it| it % 32 + 1)
            .take(5)
            .collect();
        assert_eq!(drawn, [21, 2, 4, 7, 7]);
    }
}
