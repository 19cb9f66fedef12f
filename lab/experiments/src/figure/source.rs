//! A figure as its file `experiments/PAPER/FIGURE.toml` has it, checked.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    error::{FigureError, Mistake},
    measured::{Unit, X},
    parameters::{Parameter, Parameters},
};

/// The papers, by their folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Paper {
    /// InDeF (ICCD 2022).
    Indef,
    /// FragPicker (SOSP 2021).
    Fragpicker,
    /// ScaleDefrag (PLOS ONE 2026).
    Scaledefrag,
    /// "We Ain't Afraid of No File Fragmentation" (FAST 2024).
    Fast24,
}

impl Paper {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Indef,
        Self::Fragpicker,
        Self::Scaledefrag,
        Self::Fast24,
    ];

    /// The name of its folder.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Self::Indef => "indef",
            Self::Fragpicker => "fragpicker",
            Self::Scaledefrag => "scaledefrag",
            Self::Fast24 => "fast24",
        }
    }
}

impl fmt::Display for Paper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Indef => "InDeF (ICCD '22)",
            Self::Fragpicker => "FragPicker (SOSP '21)",
            Self::Scaledefrag => "ScaleDefrag (PLOS ONE '26)",
            Self::Fast24 => "We Ain't Afraid of No File Fragmentation (FAST '24)",
        })
    }
}

/// Where a figure can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tier {
    /// In virtual time.
    V,
    /// On file systems of this machine, on a software SSD.
    M,
    /// With F2FS in a guest.
    G,
    /// Nowhere.
    #[serde(rename = "none")]
    None,
}

impl Tier {
    /// Whether its figures are measured on a machine, or in a guest on one: run by run, with a spread and conditions.
    #[must_use]
    pub fn is_measured(self) -> bool {
        matches!(self, Self::M | Self::G)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V => "V",
            Self::M => "M",
            Self::G => "G",
            Self::None => "–",
        })
    }
}

/// How the x-axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By powers of two.
    Log,
}

/// The axes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Name of the x-axis.
    pub x: String,
    /// Name of the y-axis.
    pub y: String,
    /// Of the x-axis, if it has numbers.
    #[serde(default)]
    pub scale: Scale,
}

/// A published value that is a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// "At most", "negligible", "within".
    Most,
    /// "At least", "up to" of a gain.
    Least,
}

/// A published value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The curve, or the colour of the bar.
    pub series: String,
    /// The place on the x-axis.
    pub x: X,
    /// As published.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// The place where it stands.
    pub source: String,
    /// A limit instead of a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// An input of ours: that it comes out proves nothing, and it does not count.
    #[serde(default)]
    pub taken: bool,
    /// Why there is no value of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

impl Published {
    /// Whether it counts for the class of the figure.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        !self.taken && self.not_measured.is_none()
    }
}

/// A figure of a paper.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The paper.
    pub paper: Paper,
    /// `PAPER/FIGURE`, as its file is named.
    pub name: String,
    /// The question that it answers.
    pub title: String,
    /// Section and figure.
    pub place: String,
    /// Where it can be measured.
    pub tier: Tier,
    /// Why it cannot be reproduced; with [`Tier::None`] only.
    pub why_not: Option<String>,
    /// While it is not built: the part that is missing.
    pub needs: Option<String>,
    /// A command that measures it outside of this frame.
    pub elsewhere: Option<String>,
    /// A value that is off by no more is reproduced.
    pub tolerance_pct: f64,
    /// The axes.
    pub plot: Plot,
    /// Parameters, with their sources.
    pub parameters: Parameters,
    /// The published values.
    pub published: Vec<Published>,
    /// Contradictions in the paper, with the arithmetic.
    pub contradictions: Vec<String>,
    /// Remarks on our side that a reader has to know.
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    title: Spanned<String>,
    place: Spanned<String>,
    tier: Spanned<Tier>,
    why_not: Option<Spanned<String>>,
    needs: Option<Spanned<String>>,
    elsewhere: Option<Spanned<String>>,
    tolerance_pct: Option<Spanned<f64>>,
    #[serde(default)]
    plot: Plot,
    #[serde(default)]
    parameters: BTreeMap<String, Spanned<Parameter>>,
    #[serde(default)]
    published: Vec<Spanned<Published>>,
    #[serde(default)]
    contradictions: Vec<Spanned<String>>,
    #[serde(default)]
    notes: Vec<Spanned<String>>,
}

/// The tolerance where the file names none.
const TOLERANCE_PCT: f64 = 10.0;

impl Figure {
    /// All figures of a source tree, by paper and name.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or says what cannot be.
    pub fn all(root: &Path) -> Result<Vec<Self>, FigureError> {
        let mut figures = Vec::new();
        for paper in Paper::ALL {
            let folder = root.join("experiments").join(paper.folder());
            let mut files = fs::read_dir(&folder)
                .and_then(|entries| {
                    entries
                        .map(|entry| Ok(entry?.path()))
                        .collect::<std::io::Result<Vec<_>>>()
                })
                .map_err(|source| FigureError::File {
                    file: folder.clone(),
                    source,
                })?;
            files.retain(|file| file.extension().is_some_and(|end| end == "toml"));
            files.sort_unstable();
            for file in files {
                let stem = file.file_stem().unwrap_or_default().to_string_lossy();
                figures.push(Self::load(root, &format!("{}/{stem}", paper.folder()))?);
            }
        }
        Ok(figures)
    }

    /// The figure `PAPER/FIGURE` of a source tree.
    ///
    /// # Errors
    ///
    /// See [`Self::all`].
    pub fn load(root: &Path, name: &str) -> Result<Self, FigureError> {
        let file = root.join("experiments").join(format!("{name}.toml"));
        let text =
            fs::read_to_string(&file).map_err(|source| FigureError::File { file, source })?;
        Self::parse(name, &text)
    }

    /// The figure `PAPER/FIGURE` from the text of its file.
    ///
    /// # Errors
    ///
    /// The text says what cannot be; the error has the line, and the remedy.
    pub fn parse(name: &str, text: &str) -> Result<Self, FigureError> {
        let checker = Checker { name, text };
        let read: Text = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            checker.error(at, Mistake::Toml(error.message().trim().to_owned()))
        })?;
        checker.figure(read)
    }
}

struct Checker<'a> {
    name: &'a str,
    text: &'a str,
}

impl Checker<'_> {
    fn error(&self, at: usize, mistake: Mistake) -> FigureError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        FigureError::Source {
            file: format!("experiments/{}.toml", self.name),
            line: 1 + before.iter().filter(|&&byte| byte == b'\n').count(),
            mistake: Box::new(mistake),
        }
    }

    fn ensure<T>(&self, it: &Spanned<T>, holds: bool, mistake: Mistake) -> Result<(), FigureError> {
        if holds {
            Ok(())
        } else {
            Err(self.error(it.span().start, mistake))
        }
    }

    fn text(&self, text: Spanned<String>, what: &'static str) -> Result<String, FigureError> {
        let is_there = !text.get_ref().trim().is_empty();
        self.ensure(&text, is_there, Mistake::Empty(what))?;
        Ok(text.into_inner())
    }

    fn optional(
        &self,
        text: Option<Spanned<String>>,
        what: &'static str,
    ) -> Result<Option<String>, FigureError> {
        text.map(|text| self.text(text, what)).transpose()
    }

    fn figure(&self, read: Text) -> Result<Figure, FigureError> {
        let folder = self.name.split('/').next().unwrap_or_default();
        let mut papers = Paper::ALL.into_iter();
        let paper = papers
            .find(|paper| paper.folder() == folder)
            .ok_or_else(|| self.error(0, Mistake::UnknownPaper(folder.to_owned())))?;
        let tolerance_pct = match &read.tolerance_pct {
            Some(it) => {
                let tolerance = *it.get_ref();
                let holds = tolerance > 0.0 && tolerance <= 50.0;
                self.ensure(it, holds, Mistake::Tolerance(tolerance))?;
                tolerance
            }
            None => TOLERANCE_PCT,
        };
        self.check_published(&read)?;
        let mut parameters = BTreeMap::new();
        for (name, parameter) in read.parameters {
            let at = parameter.span().start;
            let parameter = parameter.into_inner();
            parameter
                .check(&name)
                .map_err(|mistake| self.error(at, mistake))?;
            parameters.insert(name, parameter);
        }
        let texts = |texts: Vec<Spanned<String>>, what| {
            let texts = texts.into_iter().map(|text| self.text(text, what));
            texts.collect::<Result<Vec<_>, _>>()
        };
        Ok(Figure {
            paper,
            name: self.name.to_owned(),
            title: self.text(read.title, "title")?,
            place: self.text(read.place, "place")?,
            tier: read.tier.into_inner(),
            why_not: self.optional(read.why_not, "why_not")?,
            needs: self.optional(read.needs, "needs")?,
            elsewhere: self.optional(read.elsewhere, "elsewhere")?,
            tolerance_pct,
            plot: read.plot,
            parameters: Parameters::new(self.name, parameters),
            published: read
                .published
                .into_iter()
                .map(Spanned::into_inner)
                .collect(),
            contradictions: texts(read.contradictions, "a contradiction")?,
            notes: texts(read.notes, "a note")?,
        })
    }

    fn check_published(&self, read: &Text) -> Result<(), FigureError> {
        let is_none = *read.tier.get_ref() == Tier::None;
        match &read.why_not {
            Some(reason) => self.ensure(reason, is_none, Mistake::ReasonInVain)?,
            None => self.ensure(&read.tier, !is_none, Mistake::NoReason)?,
        }
        let mut seen: Vec<(&str, &X)> = Vec::new();
        for it in &read.published {
            let value = it.get_ref();
            let (series, x) = (value.series.as_str(), &value.x);
            let twice = Mistake::Twice {
                series: series.to_owned(),
                x: x.clone(),
            };
            self.ensure(it, !seen.contains(&(series, x)), twice)?;
            seen.push((series, x));
            let not_finite = Mistake::NotFinite(series.to_owned());
            self.ensure(it, value.value.is_finite(), not_finite)?;
            let has_source = !value.source.trim().is_empty();
            let no_source = Mistake::Empty("the source of a published value");
            self.ensure(it, has_source, no_source)?;
            let both = value.taken && value.not_measured.is_some();
            self.ensure(it, !both, Mistake::TakenAndNot)?;
        }
        let mut values = read.published.iter().map(Spanned::get_ref);
        let compares = values.any(Published::is_compared);
        self.ensure(&read.tier, is_none || compares, Mistake::NothingCompared)
    }
}

#[cfg(test)]
mod tests;
