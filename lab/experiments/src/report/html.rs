//! The report as one HTML page that needs nothing else. askama escapes whatever comes from files.

use anyhow::Result;
use askama::Template;

use super::{outcome::Outcome, plot, sheet::Sheet};
use crate::figure::{Class, Paper};

#[derive(Template)]
#[template(path = "report.html")]
struct Page {
    papers: Vec<Part>,
    counts: Vec<(&'static str, usize)>,
}

struct Part {
    name: String,
    figures: Vec<Entry>,
}

struct Entry {
    sheet: Sheet,
    slug: String,
    class_name: &'static str,
    class: &'static str,
    plot: Option<String>,
}

/// The report about these figures.
///
/// # Errors
///
/// A plot cannot be drawn.
pub fn html(outcomes: &[Outcome]) -> Result<String> {
    let mut papers = Vec::new();
    for paper in Paper::ALL {
        let mut figures = Vec::new();
        for outcome in outcomes.iter().filter(|it| it.figure.paper == paper) {
            let sheet = Sheet::of(outcome);
            let class = sheet.class;
            figures.push(Entry {
                slug: sheet.slug(),
                class_name: match class {
                    Class::Reproduced => "good",
                    Class::DirectionOnly => "fair",
                    Class::NotReproduced => "poor",
                    Class::NotReproducible | Class::NotBuilt => "none",
                },
                class: class.as_str(),
                plot: plot::svg(outcome)?,
                sheet,
            });
        }
        if !figures.is_empty() {
            papers.push(Part {
                name: paper.to_string(),
                figures,
            });
        }
    }
    let count = |class| {
        let figures = outcomes.iter();
        figures.filter(|it| it.comparison.class == class).count()
    };
    let counts = Class::ALL.map(|class| (class.as_str(), count(class)));
    Ok(Page {
        papers,
        counts: counts.to_vec(),
    }
    .render()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Figure, Measured, Unit, compare};

    #[test]
    fn whatever_comes_from_files_is_escaped() {
        let text = "title = \"<script>alert(1)</script>\"\nplace = \"§ <b>\"\ntier = \"V\"\n\
            [[published]]\nseries = \"a<b\"\nx = \"x & y\"\nvalue = 2.0\nunit = \"MB/s\"\nsource = \"\\\"<i>\"\n";
        let figure = Figure::parse("fast24/fig99", text).unwrap();
        let mut measured = Measured::default();
        measured.push("a<b", "x & y", 1.9, Unit::MbPerS);
        let page = html(&[Outcome {
            comparison: compare(&figure, Some(&measured)).unwrap(),
            measured: Some(measured),
            conditions: None,
            as_committed: None,
            seconds: None,
            figure,
        }])
        .unwrap();
        for raw in ["<script>", "<b>§", "§ <b>", "a<b", "x & y", "<i>"] {
            assert!(!page.contains(raw), "{raw}");
        }
        assert!(page.contains("cargo lab experiments --only fast24/fig99"));
        assert!(page.contains("<svg"), "it has no plot");
        let external = page.matches("http").count();
        // The name space of SVG is no address to fetch.
        assert_eq!(external, page.matches("http://www.w3.org/2000/svg").count());
    }
}
