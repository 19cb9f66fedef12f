//! Values as a reader wants them: units, significant digits, separators.

use anyhow::{Context, Result, bail};

/// How to show a value. The default: three significant digits, in the unit that fits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Format {
    unit: Option<&'static Unit>,
    decimals: Option<usize>,
    signed: bool,
    bare: bool,
    /// The least and the most instead of the median.
    pub(crate) spread: bool,
    /// Of a ratio: by how many percent it is less than one.
    pub(crate) less: bool,
}

#[derive(Debug)]
struct Unit {
    name: &'static str,
    /// The end of the quantities that have it.
    suffix: &'static str,
    factor: f64,
}

const fn unit(name: &'static str, suffix: &'static str, factor: f64) -> Unit {
    Unit {
        name,
        suffix,
        factor,
    }
}

/// Of each suffix the largest first. A longer suffix precedes a shorter one that it ends with.
const UNITS: [Unit; 14] = [
    unit("s", "_ns", 1e9),
    unit("ms", "_ns", 1e6),
    unit("µs", "_ns", 1e3),
    unit("ns", "_ns", 1.0),
    unit("GiB", "_bytes", 1_073_741_824.0),
    unit("MiB", "_bytes", 1_048_576.0),
    unit("KiB", "_bytes", 1024.0),
    unit("B", "_bytes", 1.0),
    unit("%", "_pct", 1.0),
    unit("MiB/s", "_mib_per_s", 1.0),
    unit("GB/s", "_mb_per_s", 1e3),
    unit("MB/s", "_mb_per_s", 1.0),
    unit("kIOPS", "_iops", 1e3),
    unit("/s", "_per_s", 1.0),
];

impl Format {
    /// Words like `ms`, `.2` (decimals), `+` (with its sign), `bare` (without its unit), `spread`,
    /// `less`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut format = Self::default();
        for word in text.split_whitespace() {
            match word {
                "+" => format.signed = true,
                "bare" => format.bare = true,
                "spread" => format.spread = true,
                "less" => format.less = true,
                _ => match word.strip_prefix('.') {
                    Some(decimals) => {
                        let decimals = decimals.parse();
                        format.decimals =
                            Some(decimals.with_context(|| format!("no decimals: '{word}'"))?);
                    }
                    None => {
                        let found = UNITS.iter().find(|unit| unit.name == word);
                        format.unit = Some(found.with_context(|| format!("no unit: '{word}'"))?);
                    }
                },
            }
        }
        Ok(format)
    }

    /// `values` of a quantity, in the unit of the first: one, or a range.
    pub(crate) fn show(&self, quantity: &str, values: &[f64]) -> Result<String> {
        let fits = |unit: &&Unit| quantity.ends_with(unit.suffix);
        let unit = match self.unit {
            Some(unit) if !fits(&unit) => bail!("{quantity} is not in {}", unit.name),
            Some(unit) => Some(unit),
            None => {
                let mut all = UNITS.iter().filter(fits);
                let enough = |unit: &&Unit| values[0].abs() >= unit.factor;
                all.clone().find(enough).or_else(|| all.next_back())
            }
        };
        let factor = unit.map_or(1.0, |unit| unit.factor);
        let shown: Vec<String> = values
            .iter()
            .map(|value| self.number(value / factor))
            .collect();
        let unit = unit.filter(|_| !self.bare);
        let space = if unit.is_some_and(|unit| unit.name.starts_with('/')) {
            ""
        } else {
            " "
        };
        let unit = unit.map_or(String::new(), |unit| format!("{space}{}", unit.name));
        Ok(shown.join("–") + &unit)
    }

    /// A ratio: two significant digits.
    pub(crate) fn show_ratio(&self, ratio: f64) -> String {
        if self.less {
            let less = (1.0 - ratio) * 100.0;
            return format!(
                "{} %",
                number(less, self.decimals.unwrap_or(0), self.signed)
            );
        }
        let decimals = self.decimals.unwrap_or_else(|| decimals(ratio, 2));
        number(ratio, decimals, self.signed)
    }

    fn number(&self, value: f64) -> String {
        let whole = (value - value.round()).abs() < 1e-9 && self.decimals.is_none();
        let default = if whole { 0 } else { decimals(value, 3) };
        number(value, self.decimals.unwrap_or(default), self.signed)
    }
}

/// A number with so many significant digits, thousands apart, and a minus sign that is one.
#[must_use]
pub fn significant(value: f64, digits: i32) -> String {
    number(value, decimals(value, digits), false)
}

/// Decimals for so many significant digits.
fn decimals(value: f64, digits: i32) -> usize {
    if value == 0.0 {
        return 0;
    }
    let before = value.abs().log10().floor() as i32 + 1;
    (digits - before).clamp(0, 6) as usize
}

/// With thousands apart, and a minus sign that is one.
fn number(value: f64, decimals: usize, signed: bool) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = match value {
        _ if value < 0.0 => "−",
        _ if signed => "+",
        _ => "",
    };
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(format: &str, quantity: &str, value: f64) -> String {
        let format = Format::parse(format).unwrap();
        format.show(quantity, &[value]).unwrap()
    }

    #[test]
    fn values_have_three_digits_and_a_unit() {
        assert_eq!(show("", "time_ns", 1_884_000_000.0), "1.88 s");
        assert_eq!(show("", "time_ns", 36_060_000_000.0), "36.1 s");
        assert_eq!(show("", "time_ns", 2_000_000.0), "2 ms");
        assert_eq!(show("s .2", "time_ns", 200_000_000.0), "0.20 s");
        assert_eq!(show("", "written_bytes", 67_108_864.0), "64 MiB");
        assert_eq!(show("", "read_per_s", 364_000.0), "364,000/s");
        assert_eq!(show(".1", "gain_pct", 44.04), "44.0 %");
        assert_eq!(show("+ .1", "off_pct", -2.63), "−2.6 %");
        assert_eq!(show("", "extents", 65_536.0), "65,536");
        assert_eq!(show("bare", "read_mib_per_s", 2175.2), "2,175");
        assert!(Format::parse("furlong").is_err());
        assert!(
            Format::parse("s")
                .unwrap()
                .show("gain_pct", &[1.0])
                .is_err()
        );
    }

    #[test]
    fn ratios_have_two_digits() {
        let ratio = |format: &str, value| Format::parse(format).unwrap().show_ratio(value);
        assert_eq!(ratio("", 5.638), "5.6");
        assert_eq!(ratio("", 20.17), "20");
        assert_eq!(ratio("", 0.985), "0.98");
        assert_eq!(ratio("less", 0.502), "50 %");
    }
}
