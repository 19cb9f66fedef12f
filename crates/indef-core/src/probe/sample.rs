//! Means of times, without the few that something else has delayed.

/// Times of one kind of reads. A time above the cap counts as the cap: work of the drive's own and of
/// others delays a few reads by any amount.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn push(&mut self, ns: f64) {
        self.0.push(ns);
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// The value that this part of them (0 to 1) does not exceed; 0 without any.
    pub(super) fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
        sorted.get(at).copied().unwrap_or(0.0)
    }

    /// The mean with times above `cap` cut to it.
    pub(super) fn mean(&self, cap: f64) -> Mean {
        Mean::of(self.0.iter().map(|ns| ns.min(cap)))
    }

    /// The mean, without the slowest hundredth: of reads that differ by where they are.
    pub(super) fn all(&self) -> Mean {
        self.mean(self.quantile(0.99))
    }

    /// Their number.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The mean of the middle half.
    pub(super) fn middle(&self) -> Mean {
        let (low, high) = (self.quantile(0.25), self.quantile(0.75));
        let inside = |ns: &f64| (low..=high).contains(ns);
        let middle = Mean::of(self.0.iter().copied().filter(inside));
        // The middle half scatters less than all of them.
        let all = Mean::of(self.0.iter().map(|ns| ns.clamp(low, high)));
        Mean {
            error: all.error.max(middle.error),
            ..middle
        }
    }

    /// The median, with the standard error that its neighbours show.
    pub(super) fn median(&self) -> Mean {
        let beside = 0.5 / (self.0.len().max(1) as f64).sqrt();
        let (low, high) = (self.quantile(0.5 - beside), self.quantile(0.5 + beside));
        Mean {
            value: self.quantile(0.5),
            error: (high - low) / 2.0,
        }
    }

    /// How far apart the quarters are, as a part of the median.
    pub(super) fn scatter(&self) -> f64 {
        let middle = self.quantile(0.5).max(1.0);
        (self.quantile(0.75) - self.quantile(0.25)) / middle
    }
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mean {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl Mean {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for value in values {
            count += 1.0;
            sum += value;
            squares += value * value;
        }
        if count == 0.0 {
            return Self::default();
        }
        let value: f64 = sum / count;
        let variance = (squares / count - value * value).max(0.0);
        // One or two values do not tell how far they scatter.
        let freedom = f64::max(count - 1.0, 0.5);
        Self {
            value,
            error: (variance / freedom).sqrt(),
        }
    }

    /// At least so much, and no less than nothing: two standard errors below.
    pub(super) fn least(&self) -> f64 {
        (self.value - 2.0 * self.error).max(0.0)
    }

    /// At most so much: two standard errors above.
    pub(super) fn most(&self) -> f64 {
        self.value + 2.0 * self.error
    }

    /// The number of standard errors by which it is above another one.
    pub(super) fn above(&self, other: &Self, least_error: f64) -> f64 {
        (self.value - other.value) / self.error.hypot(other.error).max(least_error)
    }
}
