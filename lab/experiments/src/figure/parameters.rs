//! The parameters of a figure, each with its source. A module gets them converted, and each that it does
//! not read is an error: it would promise something.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::{
    error::{FigureError, Mistake},
    measured::Measured,
};

/// How well a parameter is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The paper says so.
    Paper,
    /// The programs say so that the authors published.
    Artifact,
    /// It follows from others.
    Derived,
    /// Taken from one figure of the paper (the source names it), and the same in all others.
    Fitted,
    /// Nobody knows; the source says why this is plausible.
    Assumed,
    /// Nobody knows, and it may matter: other values are tried, and shown.
    Free,
}

/// A value, in the unit of its parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// Yes or no.
    Flag(bool),
    /// One number.
    Number(f64),
    /// A name.
    Text(String),
    /// Several numbers.
    Numbers(Vec<f64>),
    /// Several names.
    Texts(Vec<String>),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(true) => f.write_str("yes"),
            Self::Flag(false) => f.write_str("no"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Numbers(numbers) => {
                let texts: Vec<String> = numbers.iter().map(f64::to_string).collect();
                f.write_str(&texts.join(", "))
            }
            Self::Texts(texts) => f.write_str(&texts.join(", ")),
        }
    }
}

/// A parameter, as the figure's file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// In its unit.
    pub value: Setting,
    /// `B`, `KiB`, `MiB`, `GiB`, `ns`, `us`, `ms`, `s`, `count`, `%`, `MB/s`, `MiB/s`; `flag`; `name`.
    pub unit: String,
    /// How well it is known.
    pub kind: Kind,
    /// The place where it stands, or why it has this value.
    pub source: String,
    /// Other values of what is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Setting>,
}

const SIZES: [(&str, f64); 4] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const PLAIN: [&str; 4] = ["count", "%", "MB/s", "MiB/s"];

impl Parameter {
    /// The value and its unit.
    #[must_use]
    pub fn with_unit(&self, value: &Setting) -> String {
        match self.unit.as_str() {
            "count" | "flag" | "name" => value.to_string(),
            "us" => format!("{value} µs"),
            unit => format!("{value} {unit}"),
        }
    }

    /// Check value, unit, kind and what is tried.
    pub(super) fn check(&self, name: &str) -> Result<(), Mistake> {
        if self.source.trim().is_empty() {
            return Err(Mistake::Empty("the source of a parameter"));
        }
        let unit = self.unit.as_str();
        let numeric = SIZES.iter().chain(&TIMES).map(|(unit, _)| *unit);
        let known: Vec<&str> = match self.value {
            Setting::Flag(_) => vec!["flag"],
            Setting::Text(_) | Setting::Texts(_) => vec!["name"],
            Setting::Number(_) | Setting::Numbers(_) => numeric.chain(PLAIN).collect(),
        };
        if !known.contains(&unit) {
            return Err(Mistake::Unit {
                name: name.to_owned(),
                unit: unit.to_owned(),
                known: known.join(", "),
            });
        }
        for value in self.tried.iter().chain([&self.value]) {
            if std::mem::discriminant(value) != std::mem::discriminant(&self.value) {
                return Err(Mistake::TriedType(name.to_owned()));
            }
            self.check_numbers(name, value)?;
        }
        match (self.kind, self.tried.is_empty()) {
            (Kind::Free, true) => Err(Mistake::NotTried(name.to_owned())),
            (Kind::Free, false) | (_, true) => Ok(()),
            (_, false) => Err(Mistake::TriedInVain(name.to_owned())),
        }
    }

    fn check_numbers(&self, name: &str, value: &Setting) -> Result<(), Mistake> {
        let numbers = match value {
            Setting::Number(number) => std::slice::from_ref(number),
            Setting::Numbers(numbers) => numbers,
            _ => &[],
        };
        let size = factor(&SIZES, &self.unit);
        let is_count = self.unit == "count";
        for &number in numbers {
            if !number.is_finite() {
                return Err(Mistake::NotFinite(name.to_owned()));
            }
            let scaled = number * size.unwrap_or(1.0);
            if (size.is_some() || is_count) && (scaled < 0.0 || scaled.fract() != 0.0) {
                return Err(Mistake::NotWhole {
                    name: name.to_owned(),
                    value: number,
                });
            }
        }
        Ok(())
    }
}

fn factor(units: &[(&str, f64)], unit: &str) -> Option<f64> {
    let found = units.iter().find(|(name, _)| *name == unit);
    found.map(|(_, factor)| *factor)
}

/// All parameters of a figure.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    figure: String,
    all: BTreeMap<String, Parameter>,
    /// The names that were read; variants share it.
    read: Arc<Mutex<BTreeSet<String>>>,
}

impl Parameters {
    /// `all` must be checked.
    pub(super) fn new(figure: &str, all: BTreeMap<String, Parameter>) -> Self {
        Self {
            figure: figure.to_owned(),
            all,
            read: Arc::default(),
        }
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.all
            .iter()
            .map(|(name, parameter)| (name.as_str(), parameter))
    }

    /// Those that nobody has read.
    pub(super) fn not_read(&self) -> Vec<&str> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.all.keys().map(String::as_str);
        names.filter(|name| !read.contains(*name)).collect()
    }

    fn error(&self, mistake: Mistake) -> FigureError {
        FigureError::Measured {
            figure: self.figure.clone(),
            mistake: Box::new(mistake),
        }
    }

    fn get(&self, name: &str) -> Result<&Parameter, FigureError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(name.to_owned());
        drop(read);
        let found = self.all.get(name);
        found.ok_or_else(|| self.error(Mistake::NoParameter(name.to_owned())))
    }

    fn wrong_type(&self, name: &str, wanted: &'static str) -> FigureError {
        let name = name.to_owned();
        self.error(Mistake::Type { name, wanted })
    }

    /// The numbers of a parameter, one or several, times the factor of its unit.
    fn scaled(
        &self,
        name: &str,
        units: &[(&str, f64)],
        wanted: &'static str,
    ) -> Result<Vec<f64>, FigureError> {
        let parameter = self.get(name)?;
        let wrong = || self.wrong_type(name, wanted);
        let factor = factor(units, &parameter.unit).ok_or_else(wrong)?;
        let numbers = match &parameter.value {
            Setting::Number(number) => std::slice::from_ref(number),
            Setting::Numbers(numbers) => numbers,
            _ => return Err(wrong()),
        };
        Ok(numbers.iter().map(|number| number * factor).collect())
    }

    fn one(
        &self,
        name: &str,
        units: &[(&str, f64)],
        wanted: &'static str,
    ) -> Result<f64, FigureError> {
        match self.scaled(name, units, wanted)?[..] {
            [one] => Ok(one),
            _ => Err(self.wrong_type(name, wanted)),
        }
    }

    /// A size in bytes.
    ///
    /// # Errors
    ///
    /// There is no such parameter, or it is no size. The same holds for all functions below, each with its type.
    pub fn bytes(&self, name: &str) -> Result<u64, FigureError> {
        Ok(self.one(name, &SIZES, "one size (B, KiB, MiB, GiB)")? as u64)
    }

    /// Several sizes, in bytes.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn sizes(&self, name: &str) -> Result<Vec<u64>, FigureError> {
        let sizes = self.scaled(name, &SIZES, "sizes (B, KiB, MiB, GiB)")?;
        Ok(sizes.into_iter().map(|size| size as u64).collect())
    }

    /// A time.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn time(&self, name: &str) -> Result<Nanos, FigureError> {
        Ok(Nanos(
            self.one(name, &TIMES, "one time (ns, us, ms, s)")? as u64
        ))
    }

    /// A whole number.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn count(&self, name: &str) -> Result<u64, FigureError> {
        Ok(self.one(name, &[("count", 1.0)], "one count")? as u64)
    }

    /// Several whole numbers.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn counts(&self, name: &str) -> Result<Vec<u64>, FigureError> {
        let counts = self.scaled(name, &[("count", 1.0)], "counts")?;
        Ok(counts.into_iter().map(|count| count as u64).collect())
    }

    /// A number of percent, MB/s or MiB/s, in this unit.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn number(&self, name: &str) -> Result<f64, FigureError> {
        self.one(name, &PLAIN.map(|unit| (unit, 1.0)), "one number")
    }

    /// Several numbers of percent, MB/s or MiB/s, in this unit.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>, FigureError> {
        self.scaled(name, &PLAIN.map(|unit| (unit, 1.0)), "numbers")
    }

    /// Yes or no.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn flag(&self, name: &str) -> Result<bool, FigureError> {
        match self.get(name)?.value {
            Setting::Flag(flag) => Ok(flag),
            _ => Err(self.wrong_type(name, "true or false")),
        }
    }

    /// A name, as that of a profile.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn text(&self, name: &str) -> Result<&str, FigureError> {
        match &self.get(name)?.value {
            Setting::Text(text) => Ok(text),
            _ => Err(self.wrong_type(name, "a name")),
        }
    }

    /// Several names.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    pub fn texts(&self, name: &str) -> Result<&[String], FigureError> {
        match &self.get(name)?.value {
            Setting::Texts(texts) => Ok(texts),
            _ => Err(self.wrong_type(name, "names")),
        }
    }

    /// For each other value of a free parameter: its text, and the parameters with it. [`Self::measure`] measures
    /// them.
    ///
    /// # Errors
    ///
    /// There is no such parameter, or it is not free.
    pub fn variants(&self, name: &str) -> Result<Vec<(String, Self)>, FigureError> {
        let parameter = self.get(name)?;
        if parameter.kind != Kind::Free {
            return Err(self.wrong_type(name, "of kind 'free', with tried = […]"));
        }
        let variant = |value: &Setting| {
            let mut other = self.clone();
            let changed = Parameter {
                value: value.clone(),
                ..parameter.clone()
            };
            other.all.insert(name.to_owned(), changed);
            (parameter.with_unit(value), other)
        };
        Ok(parameter.tried.iter().map(variant).collect())
    }

    /// A figure: the rows that come out with these parameters, and as its sensitivity those with each other value
    /// of these free ones.
    ///
    /// # Errors
    ///
    /// That of `rows`, or of [`Self::variants`].
    pub(super) fn measure(
        &self,
        free: &[&str],
        rows: impl Fn(&Self) -> Result<Measured, FigureError>,
    ) -> Result<Measured, FigureError> {
        let mut measured = rows(self)?;
        for name in free {
            for (setting, other) in self.variants(name)? {
                measured.add_sensitivity(name, &setting, rows(&other)?);
            }
        }
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(value: Setting, unit: &str, kind: Kind) -> Parameter {
        Parameter {
            value,
            unit: unit.into(),
            kind,
            source: "§1".into(),
            tried: Vec::new(),
        }
    }

    #[test]
    fn values_come_in_the_unit_that_is_asked_for() {
        let mut all = BTreeMap::new();
        let mut add = |name: &str, value, unit| {
            all.insert(name.to_owned(), parameter(value, unit, Kind::Paper));
        };
        add("file", Setting::Number(8.0), "MiB");
        add("wait", Setting::Number(1.5), "us");
        add("depths", Setting::Numbers(vec![1.0, 32.0]), "count");
        add("device", Setting::Text("fast24".into()), "name");
        let parameters = Parameters::new("fast24/fig07", all);
        assert_eq!(parameters.bytes("file").unwrap(), 8 << 20);
        assert_eq!(parameters.time("wait").unwrap(), Nanos(1500));
        assert_eq!(parameters.counts("depths").unwrap(), [1, 32]);
        assert_eq!(parameters.not_read(), ["device"]);
        let error = parameters.count("file").unwrap_err().to_string();
        assert_eq!(error, "fast24/fig07: parameter 'file' must be one count");
        let error = parameters.text("disk").unwrap_err().to_string();
        assert!(error.contains("no parameter 'disk'; add it"), "{error}");
        assert!(parameters.variants("file").is_err());
    }

    #[test]
    fn what_is_free_is_tried() {
        let mut chunk = parameter(Setting::Number(64.0), "KiB", Kind::Free);
        assert!(matches!(chunk.check("chunk"), Err(Mistake::NotTried(_))));
        chunk.tried = vec![Setting::Number(16.0), Setting::Text("all".into())];
        assert!(matches!(chunk.check("chunk"), Err(Mistake::TriedType(_))));
        chunk.tried.pop();
        chunk.check("chunk").unwrap();
        let parameters = Parameters::new("a/b", [("chunk".to_owned(), chunk.clone())].into());
        let variants = parameters.variants("chunk").unwrap();
        assert_eq!(variants[0].0, "16 KiB");
        assert_eq!(variants[0].1.bytes("chunk").unwrap(), 16 << 10);
        chunk.kind = Kind::Paper;
        assert!(matches!(chunk.check("chunk"), Err(Mistake::TriedInVain(_))));
    }

    #[test]
    fn sizes_and_counts_are_whole() {
        let half = parameter(Setting::Number(0.5), "count", Kind::Paper);
        assert!(matches!(half.check("n"), Err(Mistake::NotWhole { .. })));
        let half = parameter(Setting::Number(0.5), "KiB", Kind::Paper);
        half.check("n").unwrap();
        let name = parameter(Setting::Text("x".into()), "count", Kind::Paper);
        assert!(matches!(name.check("n"), Err(Mistake::Unit { .. })));
    }
}
