//! The agreement of two ways to weigh the same ranges.

/// A range that stands at very different places in two rankings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Its index in the compared list.
    pub index: usize,
    /// Its rank by the first weights, 1 for the best. Equals share the mean of their ranks.
    pub first: f64,
    /// Its rank by the second.
    pub second: f64,
}

/// Two rankings of the same ranges, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// Ranges compared.
    pub ranges: u64,
    /// Spearman's rank correlation: 1 for the same order, −1 for the opposite. 1 if there is nothing
    /// to order in either, 0 if only in one.
    pub spearman: f64,
    /// Of the best tenth by the first weights, the percentage that is in that of the second, too.
    pub top_shared_pct: f64,
    /// Those that moved most, the farthest first.
    pub moved: Vec<Moved>,
}

impl Ranking {
    /// Compare the orders that the two values of each pair give, highest first; keep the `most`
    /// ranges that moved farthest. Infinite and NaN values are ordered like any other.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)], most: usize) -> Self {
        let first = Order::of(pairs, |pair| pair.0);
        let second = Order::of(pairs, |pair| pair.1);
        let mut moved: Vec<Moved> = (0..pairs.len())
            .map(|index| Moved {
                index,
                first: first.ranks[index],
                second: second.ranks[index],
            })
            .filter(|moved| moved.first != moved.second)
            .collect();
        let distance = |moved: &Moved| (moved.first - moved.second).abs();
        moved.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
        moved.truncate(most);
        Self {
            ranges: pairs.len() as u64,
            spearman: correlation(&first.ranks, &second.ranks),
            top_shared_pct: top_shared(&first.best, &second.best),
            moved,
        }
    }
}

struct Order {
    /// The rank of each pair, by its index.
    ranks: Vec<f64>,
    /// Indexes, best first.
    best: Vec<usize>,
}

impl Order {
    fn of(pairs: &[(f64, f64)], value: impl Fn(&(f64, f64)) -> f64) -> Self {
        let at = |index: usize| value(&pairs[index]);
        let mut best: Vec<usize> = (0..pairs.len()).collect();
        best.sort_by(|a, b| at(*b).total_cmp(&at(*a)));
        let mut ranks = vec![0.0; pairs.len()];
        let mut start = 0;
        while start < best.len() {
            let equal = best[start..]
                .iter()
                .take_while(|i| at(**i).total_cmp(&at(best[start])).is_eq())
                .count();
            // The mean of the ranks start + 1 to start + equal.
            let rank = start as f64 + (equal as f64 + 1.0) / 2.0;
            for index in &best[start..start + equal] {
                ranks[*index] = rank;
            }
            start += equal;
        }
        Self { ranks, best }
    }
}

/// Pearson's correlation, which of ranks is Spearman's.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean, b - mean);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    match (aa > 0.0, bb > 0.0) {
        (true, true) => (ab / (aa.sqrt() * bb.sqrt())).clamp(-1.0, 1.0),
        (false, false) => 1.0,
        _ => 0.0,
    }
}

/// The percentage of the best tenth that is the same in both.
fn top_shared(first: &[usize], second: &[usize]) -> f64 {
    let count = first.len().div_ceil(10);
    if count == 0 {
        return 100.0;
    }
    let mut top = vec![false; first.len()];
    for index in &first[..count] {
        top[*index] = true;
    }
    let shared = second[..count].iter().filter(|index| top[**index]).count();
    shared as f64 * 100.0 / count as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_same_order_is_1_and_the_opposite_is_minus_1() {
        let same: Vec<_> = (0..50).map(|i| (f64::from(i), f64::from(i * i))).collect();
        let ranking = Ranking::of(&same, 3);
        assert_eq!((ranking.spearman, ranking.top_shared_pct), (1.0, 100.0));
        assert!(ranking.moved.is_empty());
        let opposite: Vec<_> = (0..50).map(|i| (f64::from(i), -f64::from(i))).collect();
        let ranking = Ranking::of(&opposite, 2);
        assert_eq!((ranking.spearman, ranking.top_shared_pct), (-1.0, 0.0));
        assert_eq!(ranking.moved.len(), 2);
        assert_eq!(
            (ranking.moved[0].first - ranking.moved[0].second).abs(),
            49.0
        );
    }

    #[test]
    fn equals_share_their_rank() {
        let ranking = Ranking::of(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)], 9);
        assert_eq!(ranking.spearman, 0.0);
        assert_eq!(Ranking::of(&[(1.0, 2.0), (1.0, 2.0)], 9).spearman, 1.0);
        assert_eq!(Ranking::of(&[], 9).top_shared_pct, 100.0);
        // By hand: ranks 3, 1.5, 1.5 and 3, 2, 1.
        let ranking = Ranking::of(&[(1.0, 1.0), (2.0, 2.0), (2.0, 3.0)], 9);
        assert!(
            (ranking.spearman - 0.75f64.sqrt()).abs() < 1e-12,
            "{ranking:?}"
        );
    }

    proptest! {
        #[test]
        fn it_is_a_number_between_its_bounds(pairs in prop::collection::vec((any::<f64>(), -3.0f64..3.0), 0..60)) {
            let ranking = Ranking::of(&pairs, 5);
            prop_assert!((-1.0..=1.0).contains(&ranking.spearman));
            prop_assert!((0.0..=100.0).contains(&ranking.top_shared_pct));
            prop_assert!(ranking.moved.len() <= 5);
            let swapped: Vec<_> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            prop_assert!((Ranking::of(&swapped, 5).spearman - ranking.spearman).abs() < 1e-9);
        }
    }
}
