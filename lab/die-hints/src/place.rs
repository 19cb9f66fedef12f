//! Where files lie on the flash, in the device's model: what decides how fast they are read.

use std::collections::{HashMap, HashSet};

use flash_model::{Device, Span, ftl::PhysPage};

use crate::{
    inside::GRANULE,
    model::{PAGE, ftl},
};

/// The part of a file whose pages should be on all dies alike: a call of Figure 12's programs.
const CALL: u64 = 1 << 20;

/// Where files lie.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Flash pages that hold a granule of a file, in the mean: 1 where no write of a granule was cut.
    pub pages_per_granule: f64,
    /// Flash pages of a MiB of a file on the die that has most of them, over those of the MiB divided by
    /// the dies, in the mean: 1 where all dies work at the same time.
    pub busiest_die: f64,
}

impl Place {
    /// Of these files.
    pub(crate) fn of(device: &Device, files: &[Vec<Span>]) -> Self {
        let dies = f64::from(ftl(device).geometry().dies);
        let (mut granules, mut calls) = (Vec::new(), Vec::new());
        for extents in files {
            let pages: Vec<_> = pages(device, extents).collect();
            for granule in pages.chunks((GRANULE / PAGE) as usize) {
                granules.push(distinct(granule).len() as f64);
            }
            for call in pages.chunks((CALL / PAGE) as usize) {
                let found = distinct(call);
                let mut of_die = HashMap::new();
                for page in &found {
                    *of_die.entry(page.die).or_insert(0_u32) += 1;
                }
                let most = of_die.into_values().max().unwrap_or(0);
                // Fewer pages than dies are on one die each at best.
                let least = (found.len() as f64 / dies).max(1.0);
                calls.push(f64::from(most) / least);
            }
        }
        Self {
            pages_per_granule: mean(&granules),
            busiest_die: mean(&calls),
        }
    }
}

/// The flash page of each logical page of a file, in the file's order.
pub(crate) fn pages<'a>(
    device: &'a Device,
    extents: &'a [Span],
) -> impl Iterator<Item = Option<PhysPage>> + 'a {
    let numbers = extents
        .iter()
        .flat_map(|span| span.offset / PAGE..span.end() / PAGE);
    numbers.map(move |page| ftl(device).read(page))
}

fn distinct(pages: &[Option<PhysPage>]) -> HashSet<PhysPage> {
    pages.iter().flatten().copied().collect()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{device, write};

    #[test]
    fn pieces_that_were_cut_and_pieces_on_one_die_are_seen() {
        let mut device = device();
        let mut write = |offset, len| write(&mut device, offset, len);
        let at = |offset: u64, len: u64| vec![Span { offset, len }];
        write(0, CALL);
        // Each piece meets the same die.
        for nth in 0..CALL / GRANULE {
            write(CALL + nth * GRANULE, GRANULE);
            write((16 << 20) + nth * 7 * GRANULE, 7 * GRANULE);
        }
        // Two granules of which no write has a whole one.
        for offset in (0..2 * GRANULE).step_by(GRANULE as usize / 2) {
            write((2 << 20) + offset, GRANULE / 2);
            write((100 << 20) + offset, GRANULE / 4);
        }
        let place = |of: &[Span]| {
            let found = Place::of(&device, &[of.to_vec()]);
            (found.pages_per_granule, found.busiest_die)
        };
        assert_eq!(place(&at(0, CALL)), (1.0, 1.0));
        assert_eq!(place(&at(CALL, CALL)), (1.0, 8.0));
        let (pages, _) = place(&at(2 << 20, 2 * GRANULE));
        assert!(pages > 1.0, "{pages}");
    }
}
