//! How well a figure is reproduced: computed from both sides by one rule, never written by hand.
//!
//! A value is *within* the tolerance (10 % unless the figure's file says otherwise) if |ours ÷ published − 1| is.
//! A change in percent has two ratios: of the changes, and of what is left of the baseline (1 + x/100). Both must
//! be within, or the changes at most a point apart: so −90 is not −94.2, and −3 is not −10. A limit holds if
//! ours keeps to it with the same tolerance (of the change, and at least a point). A figure of which limits alone are
//! compared, as of captions that say which curve is the highest, shows no more than a direction.
//!
//! A figure's *direction* is right if ours are in the order of the published values: each two of one unit that
//! differ by more than the tolerance (changes: in both ratios), and each value against "no change" where its unit
//! has that.

use serde::Serialize;

use super::{
    error::{FigureError, Mistake},
    measured::{Measured, Unit, linear},
    source::{Bound, Figure, Published, Tier},
};

/// A change that is off by less counts as equal, in points.
const POINT: f64 = 1.0;

/// How well a figure is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Every compared value is within the tolerance.
    Reproduced,
    /// Not all are, or these are limits alone, and the order of all is right.
    DirectionOnly,
    /// Neither.
    NotReproduced,
    /// Its file says why.
    NotReproducible,
    /// It has no module yet.
    NotBuilt,
}

impl Class {
    /// All of them, best first.
    pub const ALL: [Self; 5] = [
        Self::Reproduced,
        Self::DirectionOnly,
        Self::NotReproduced,
        Self::NotReproducible,
        Self::NotBuilt,
    ];

    /// The class in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::DirectionOnly => "direction only",
            Self::NotReproduced => "not reproduced",
            Self::NotReproducible => "not reproducible",
            Self::NotBuilt => "not built yet",
        }
    }
}

/// The verdict about one published value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Ours is within the tolerance.
    Within,
    /// It is not.
    Off,
    /// It was an input.
    Taken,
    /// There is none of ours, and the file says why.
    NotMeasured,
}

/// A published value, and ours.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Theirs.
    pub published: Published,
    /// Ours, if there is one.
    pub ours: Option<f64>,
    /// Ours ÷ theirs; of a change, of what is left of the baseline.
    pub ratio: Option<f64>,
    /// How they compare.
    pub verdict: Verdict,
}

/// A figure, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// How well it is reproduced.
    pub class: Class,
    /// Every published value.
    pub values: Vec<Compared>,
}

impl Comparison {
    /// The number of values with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        let values = self.values.iter();
        values.filter(|value| value.verdict == verdict).count()
    }

    /// "3 of 4 within 10 %, 2 of 2 limits kept", with what is not compared.
    #[must_use]
    pub fn summary(&self, tolerance_pct: f64) -> String {
        let mut parts = Vec::new();
        for (of_limits, words) in [
            (false, format!("within {tolerance_pct} %")),
            (true, "limits kept".to_owned()),
        ] {
            let compared = self.values.iter().filter(|value| {
                value.published.bound.is_some() == of_limits
                    && matches!(value.verdict, Verdict::Within | Verdict::Off)
            });
            let all = compared.clone().count();
            let within = compared.filter(|value| value.verdict == Verdict::Within);
            let within = within.count();
            if all > 0 {
                parts.push(format!("{within} of {all} {words}"));
            }
        }
        for (verdict, word) in [
            (Verdict::Taken, "taken as input"),
            (Verdict::NotMeasured, "not measured"),
        ] {
            let count = self.count(verdict);
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        parts.join(", ")
    }
}

/// Compare a figure with what its module measured; `None`: it has no module.
///
/// # Errors
///
/// A published value has no value of ours, or one in another unit; a parameter was not read; or a free one has
/// no sensitivity rows.
pub fn compare(figure: &Figure, measured: Option<&Measured>) -> Result<Comparison, FigureError> {
    let error = |mistake| FigureError::Measured {
        figure: figure.name.clone(),
        mistake: Box::new(mistake),
    };
    let mut values = Vec::new();
    for published in &figure.published {
        let ours = measured.and_then(|it| it.at(&published.series, &published.x));
        if let Some(row) = ours
            && row.unit != published.unit
        {
            return Err(error(Mistake::OtherUnit {
                series: published.series.clone(),
                x: published.x.clone(),
                ours: row.unit.to_string(),
                published: published.unit.to_string(),
            }));
        }
        let verdict = match ours {
            _ if published.taken => Verdict::Taken,
            Some(row) if published.not_measured.is_none() => {
                judge(row.ours, published, figure.tolerance_pct)
            }
            None if published.not_measured.is_none() && measured.is_some() => {
                return Err(error(Mistake::NoValue {
                    series: published.series.clone(),
                    x: published.x.clone(),
                }));
            }
            _ => Verdict::NotMeasured,
        };
        values.push(Compared {
            published: published.clone(),
            ours: ours.map(|row| row.ours),
            ratio: ours.map(|row| ratio(row.ours, published.value, published.unit)),
            verdict,
        });
    }
    let class = match measured {
        _ if figure.tier == Tier::None => Class::NotReproducible,
        None => Class::NotBuilt,
        Some(_) => class(&values, figure.tolerance_pct / 100.0),
    };
    Ok(Comparison { class, values })
}

/// Check that the module read all parameters and tried what is free; right after it measured.
pub(super) fn check_use(figure: &Figure, measured: &Measured) -> Result<(), FigureError> {
    let error = |mistake| FigureError::Measured {
        figure: figure.name.clone(),
        mistake: Box::new(mistake),
    };
    if let Some(name) = figure.parameters.not_read().first() {
        return Err(error(Mistake::NotRead((*name).to_owned())));
    }
    for (name, parameter) in figure.parameters.iter() {
        let mut tried = measured.sensitivity.iter();
        if !parameter.tried.is_empty() && !tried.any(|it| it.parameter == name) {
            return Err(error(Mistake::NoSensitivity(name.to_owned())));
        }
    }
    Ok(())
}

fn ratio(ours: f64, published: f64, unit: Unit) -> f64 {
    linear(ours, unit) / linear(published, unit)
}

fn judge(ours: f64, published: &Published, tolerance_pct: f64) -> Verdict {
    let (theirs, unit) = (published.value, published.unit);
    let tolerance = tolerance_pct / 100.0;
    let near = |ratio: f64| (ratio - 1.0).abs() <= tolerance;
    let is_change = unit == Unit::ChangePct;
    let least_room = if is_change { POINT } else { 0.0 };
    let room = least_room.max(tolerance * theirs.abs());
    let within = match published.bound {
        Some(Bound::Most) => ours <= theirs + room,
        Some(Bound::Least) => ours >= theirs - room,
        None if is_change && (ours - theirs).abs() <= POINT => true,
        None => near(ratio(ours, theirs, unit)) && (!is_change || near(ours / theirs)),
    };
    if within {
        Verdict::Within
    } else {
        Verdict::Off
    }
}

fn class(values: &[Compared], tolerance: f64) -> Class {
    let counted: Vec<(&Compared, f64)> = values
        .iter()
        .filter(|value| matches!(value.verdict, Verdict::Within | Verdict::Off))
        .filter_map(|value| Some((value, value.ours?)))
        .collect();
    let mut all = counted.iter().map(|(value, _)| value);
    if !counted.is_empty() && all.clone().all(|value| value.verdict == Verdict::Within) {
        return match all.all(|value| value.published.bound.is_some()) {
            true => Class::DirectionOnly,
            false => Class::Reproduced,
        };
    }
    let mut judged = 0;
    for (at, (value, ours)) in counted.iter().enumerate() {
        let published = &value.published;
        if published.bound.is_some() {
            if value.verdict == Verdict::Off {
                return Class::NotReproduced;
            }
            continue;
        }
        let others = counted[at + 1..].iter().filter_map(|(other, ours)| {
            let it = &other.published;
            let compares = it.unit == published.unit && it.bound.is_none();
            compares.then_some((it.value, *ours))
        });
        let neutral = published.unit.neutral().map(|value| (value, value));
        for (theirs, others) in others.chain(neutral) {
            if !differ(published.value, theirs, published.unit, tolerance) {
                continue;
            }
            judged += 1;
            if *ours == others || (*ours > others) != (published.value > theirs) {
                return Class::NotReproduced;
            }
        }
    }
    if judged > 0 {
        Class::DirectionOnly
    } else {
        Class::NotReproduced
    }
}

/// Whether two published values differ by more than the tolerance.
fn differ(one: f64, other: f64, unit: Unit, tolerance: f64) -> bool {
    let apart = |a: f64, b: f64| (a - b).abs() > tolerance * a.abs().max(b.abs());
    apart(linear(one, unit), linear(other, unit)) && apart(one, other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(values: &[(&str, f64, &str, &str)]) -> Figure {
        let mut text = "title = \"t\"\nplace = \"p\"\ntier = \"V\"\n".to_owned();
        for (x, value, unit, more) in values {
            text += &format!(
                "[[published]]\nseries = \"s\"\nx = \"{x}\"\nvalue = {value:?}\nunit = \"{unit}\"\nsource = \"§\"\n{more}\n"
            );
        }
        Figure::parse("indef/fig01", &text).unwrap()
    }

    fn class_of(values: &[(&str, f64, &str, &str)], ours: &[f64]) -> Class {
        let figure = figure(values);
        let mut measured = Measured::default();
        for (published, ours) in figure.published.iter().zip(ours) {
            measured.rows.push(super::super::measured::Row::new(
                "s",
                "",
                *ours,
                published.unit,
            ));
            measured.rows.last_mut().unwrap().x = published.x.clone();
        }
        compare(&figure, Some(&measured)).unwrap().class
    }

    #[test]
    fn values_within_the_tolerance_are_reproduced() {
        let speeds = [("a", 100.0, "MB/s", ""), ("b", 50.0, "MB/s", "")];
        assert_eq!(class_of(&speeds, &[109.0, 46.0]), Class::Reproduced);
        assert_eq!(class_of(&speeds, &[300.0, 100.0]), Class::DirectionOnly);
        assert_eq!(class_of(&speeds, &[50.0, 100.0]), Class::NotReproduced);
        assert_eq!(class_of(&speeds, &[80.0, 80.0]), Class::NotReproduced);
    }

    #[test]
    fn a_change_is_compared_on_both_sides() {
        let change = |published, ours| class_of(&[("a", published, "% change", "")], &[ours]);
        assert_eq!(change(-94.2, -93.5), Class::Reproduced);
        assert_eq!(change(-94.2, -90.0), Class::DirectionOnly);
        assert_eq!(change(-30.0, -28.0), Class::Reproduced);
        assert_eq!(change(-30.0, -20.0), Class::DirectionOnly);
        assert_eq!(change(75.0, 60.0), Class::DirectionOnly);
        assert_eq!(change(-30.0, 5.0), Class::NotReproduced);
        assert_eq!(change(0.0, 0.7), Class::Reproduced);
        // −79 and −75 are not clearly in an order; −79 and −60 are.
        let two = |second, ours: [f64; 2]| {
            let values = [("a", -79.0, "% change", ""), ("b", second, "% change", "")];
            class_of(&values, &ours)
        };
        assert_eq!(two(-75.0, [-84.0, -84.0]), Class::DirectionOnly);
        assert_eq!(two(-60.0, [-84.0, -84.0]), Class::NotReproduced);
        assert_eq!(two(-60.0, [-84.0, -70.0]), Class::DirectionOnly);
    }

    #[test]
    fn a_ratio_has_a_direction_of_its_own() {
        let ratio = |ours| class_of(&[("a", 2.7, "times", "")], &[ours]);
        assert_eq!(ratio(2.6), Class::Reproduced);
        assert_eq!(ratio(3.7), Class::DirectionOnly);
        assert_eq!(ratio(0.9), Class::NotReproduced);
        // One speed has none.
        assert_eq!(
            class_of(&[("a", 2.7, "MB/s", "")], &[3.7]),
            Class::NotReproduced
        );
    }

    #[test]
    fn a_limit_is_kept_or_not() {
        let least = [("a", -2.0, "% change", "bound = \"least\"")];
        assert_eq!(class_of(&least, &[0.0]), Class::DirectionOnly);
        assert_eq!(class_of(&least, &[-2.9]), Class::DirectionOnly);
        assert_eq!(class_of(&least, &[-4.0]), Class::NotReproduced);
        let most = [("a", 3.0, "ms", "bound = \"most\"")];
        assert_eq!(class_of(&most, &[0.1]), Class::DirectionOnly);
        assert_eq!(class_of(&most, &[4.0]), Class::NotReproduced);
        // Beside a value that is as published.
        let both = [least[0], ("b", 50.0, "MB/s", "")];
        assert_eq!(class_of(&both, &[0.0, 51.0]), Class::Reproduced);
        assert_eq!(class_of(&both, &[-4.0, 51.0]), Class::NotReproduced);
    }

    #[test]
    fn inputs_and_what_is_not_measured_do_not_count() {
        let values = [
            ("a", 100.0, "MB/s", ""),
            ("b", 50.0, "MB/s", "taken = true"),
            ("c", 10.0, "MB/s", "not_measured = \"no profile\""),
        ];
        let figure = figure(&values);
        let mut measured = Measured::default();
        measured.push("s", "a", 101.0, Unit::MbPerS);
        let compared = compare(&figure, Some(&measured)).unwrap();
        assert_eq!(compared.class, Class::Reproduced);
        assert_eq!(
            compared.summary(10.0),
            "1 of 1 within 10 %, 1 taken as input, 1 not measured"
        );
        let limits = [
            ("a", 3.0, "ms", "bound = \"most\""),
            ("b", 3.0, "ms", "bound = \"least\""),
        ];
        let mut kept = Measured::default();
        kept.push("s", "a", 1.0, Unit::Millis);
        kept.push("s", "b", 1.0, Unit::Millis);
        let compared = compare(&self::figure(&limits), Some(&kept)).unwrap();
        assert_eq!(compared.summary(10.0), "1 of 2 limits kept");
        assert_eq!(compare(&figure, None).unwrap().class, Class::NotBuilt);
        measured.rows.clear();
        let error = compare(&figure, Some(&measured)).unwrap_err().to_string();
        assert!(
            error.contains("no value for 's' at a; measure it"),
            "{error}"
        );
        measured.push("s", "a", 101.0, Unit::Millis);
        let error = compare(&figure, Some(&measured)).unwrap_err().to_string();
        assert!(error.contains("in ms, published in MB/s"), "{error}");
    }
}
