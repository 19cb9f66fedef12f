//! The plot of a figure as SVG, ours and theirs. It is as wide as a phone, and grows with its place; colours of
//! text and lines follow the reader's choice of light or dark.

use anyhow::{Result, anyhow};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{outcome::Outcome, sheet::with_unit};
use crate::figure::{Plot, Row, Scale, Unit, X};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 380;
/// plotters divides the size by 1.24.
const FONT: (&str, u32) = ("sans-serif", 15);
/// Stand for colours that the style below sets.
const INK: RGBColor = RGBColor(1, 2, 3);
const GRID: RGBColor = RGBColor(1, 2, 4);
const STYLE: &str = "<style>\
    [fill=\"#010203\"]{fill:#30363d}[stroke=\"#010203\"]{stroke:#57606a}[stroke=\"#010204\"]{stroke:#d5dae0}\
    @media(prefers-color-scheme:dark){[fill=\"#010203\"]{fill:#c9d1d9}[stroke=\"#010203\"]{stroke:#8b949e}\
    [stroke=\"#010204\"]{stroke:#353c44}}</style>";
/// To be seen on white and on black.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x2f, 0x7e, 0xd8),
    RGBColor(0xd0, 0x70, 0x10),
    RGBColor(0x2a, 0x9d, 0x5c),
    RGBColor(0xa0, 0x60, 0xd0),
    RGBColor(0xd6, 0x45, 0x50),
    RGBColor(0x17, 0x99, 0xa8),
];
const OURS: RGBColor = COLOURS[0];
const THEIRS: RGBColor = COLOURS[1];

/// The plot; `None` if nothing was measured.
pub(super) fn svg(outcome: &Outcome) -> Result<Option<String>> {
    let Some(measured) = &outcome.measured else {
        return Ok(None);
    };
    let is_curve = |series: &str| {
        let of = measured.rows.iter().filter(|row| row.series == series);
        of.filter(|row| matches!(row.x, X::Number(_))).count() > 1
    };
    let (mut text, height);
    if measured.rows.iter().any(|row| is_curve(&row.series)) {
        (text, height) = curves(outcome, &measured.rows)?;
    } else {
        (text, height) = bars(outcome)?;
    }
    // The SVG has the size of its place.
    let size = format!("width=\"{WIDTH}\" height=\"{height}\" ");
    text = text.replacen(&size, "", 1);
    let end_of_head = text.find('>').map_or(0, |at| at + 1);
    text.insert_str(end_of_head, STYLE);
    Ok(Some(text))
}

/// Draw on an area of this height.
fn draw(height: u32, on: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<(String, u32)> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        on(&area)?;
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    Ok((text, height))
}

fn label(area: &Area<'_>, text: &str, at: (i32, i32), side: HPos) -> Result<()> {
    let style = FONT
        .into_text_style(area)
        .color(&INK)
        .pos(Pos::new(side, VPos::Center));
    area.draw_text(text, &style, at)
        .map_err(|error| anyhow!("{error}"))
}

/// A curve: its name, and its points.
type Curve<'a> = (&'a str, Vec<(f64, f64)>);

fn curves(outcome: &Outcome, rows: &[Row]) -> Result<(String, u32)> {
    let plot = &outcome.figure.plot;
    let place = |x: f64| {
        if plot.scale == Scale::Log {
            x.log2()
        } else {
            x
        }
    };
    let mut ours: Vec<Curve<'_>> = Vec::new();
    for row in rows {
        let X::Number(x) = row.x else { continue };
        let point = (place(x), row.ours);
        match ours.iter_mut().find(|(name, _)| *name == row.series) {
            Some((_, points)) => points.push(point),
            None => ours.push((&row.series, vec![point])),
        }
    }
    let theirs: Vec<(usize, (f64, f64))> = outcome
        .figure
        .published
        .iter()
        .filter(|value| value.bound.is_none())
        .filter_map(|value| {
            let X::Number(x) = value.x else { return None };
            let curve = ours.iter().position(|(name, _)| *name == value.series)?;
            Some((curve, (place(x), value.value)))
        })
        .collect();
    let legend = 18 * (ours.len() as u32 + u32::from(!theirs.is_empty())) + 8;
    draw(250 + legend, |area| {
        let (upper, lower) = area.split_vertically(250);
        axes(&upper, plot, &ours, &theirs)?;
        let mut y = 8;
        for (at, (name, _)) in ours.iter().enumerate() {
            let style = COLOURS[at % COLOURS.len()].stroke_width(2);
            let line = PathElement::new(vec![(12, y), (36, y)], style);
            lower.draw(&line).map_err(|error| anyhow!("{error}"))?;
            label(&lower, &format!("{name}, ours"), (44, y), HPos::Left)?;
            y += 18;
        }
        if !theirs.is_empty() {
            let mark = Circle::new((24, y), 4, INK.stroke_width(2));
            lower.draw(&mark).map_err(|error| anyhow!("{error}"))?;
            label(
                &lower,
                "published, in the colour of ours",
                (44, y),
                HPos::Left,
            )?;
        }
        Ok(())
    })
}

fn axes(
    area: &Area<'_>,
    plot: &Plot,
    ours: &[Curve<'_>],
    theirs: &[(usize, (f64, f64))],
) -> Result<()> {
    let points = || {
        let ours = ours.iter().flat_map(|(_, points)| points);
        ours.chain(theirs.iter().map(|(_, point)| point))
    };
    let least_x = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let most_x = points()
        .map(|point| point.0)
        .fold(f64::NEG_INFINITY, f64::max);
    let least_y = points().map(|point| point.1).fold(0.0, f64::min);
    let most_y = points().map(|point| point.1).fold(0.0, f64::max);
    label(area, &plot.y, (8, 12), HPos::Left)?;
    let failed = |error: DrawingAreaErrorKind<_>| anyhow!("{error}");
    let mut chart = ChartBuilder::on(area)
        .margin_top(24)
        .margin_right(14)
        .x_label_area_size(40)
        .y_label_area_size(46)
        .build_cartesian_2d(least_x..most_x, least_y..most_y * 1.05)
        .map_err(failed)?;
    let is_log = plot.scale == Scale::Log;
    let of_x = |x: &f64| match is_log {
        // Only whole powers of two have a name.
        true if (x - x.round()).abs() > 1e-6 => String::new(),
        true => number(x.round().exp2()),
        false => number(*x),
    };
    let of_y = |y: &f64| number(*y);
    let text = FONT.into_text_style(area).color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc(plot.x.as_str())
        .x_labels(12)
        .y_labels(6)
        .x_label_formatter(&of_x)
        .y_label_formatter(&of_y)
        .draw()
        .map_err(failed)?;
    for (at, (_, points)) in ours.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(
                points.iter().copied(),
                colour.stroke_width(2),
            ))
            .map_err(failed)?;
        let dots = points
            .iter()
            .map(|point| Circle::new(*point, 2, colour.filled()));
        chart.draw_series(dots).map_err(failed)?;
    }
    let marks = theirs.iter().map(|(curve, point)| {
        let colour = COLOURS[curve % COLOURS.len()];
        Circle::new(*point, 5, colour.stroke_width(2))
    });
    chart.draw_series(marks).map_err(failed)?;
    Ok(())
}

fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = figures::significant(value, 3);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Two bars for each compared value: ours and theirs, from zero.
fn bars(outcome: &Outcome) -> Result<(String, u32)> {
    const STEP: i32 = 50;
    let values: Vec<_> = outcome
        .comparison
        .values
        .iter()
        .filter_map(|value| Some((value, value.ours?)))
        .collect();
    let height = 30 + STEP as u32 * values.len() as u32;
    draw(height, |area| {
        let swatch = |x: i32, colour: RGBColor, text: &str| {
            let square = Rectangle::new([(x, 6), (x + 12, 18)], colour.filled());
            area.draw(&square).map_err(|error| anyhow!("{error}"))?;
            label(area, text, (x + 18, 12), HPos::Left)
        };
        swatch(8, OURS, "ours")?;
        swatch(70, THEIRS, "published")?;
        for (at, (value, ours)) in values.iter().enumerate() {
            let published = &value.published;
            let top = 30 + STEP * at as i32;
            let name = format!("{}, {}", published.series, published.x);
            label(area, &name, (8, top + 8), HPos::Left)?;
            let scale = Bars::of(&values, published.unit);
            for (row, (length, colour)) in [(*ours, OURS), (published.value, THEIRS)]
                .into_iter()
                .enumerate()
            {
                let y = top + 18 + 13 * row as i32;
                let ends = scale.ends(length);
                let bar = Rectangle::new([(ends.0, y), (ends.1, y + 11)], colour.filled());
                area.draw(&bar).map_err(|error| anyhow!("{error}"))?;
                let text = with_unit(length, published.unit);
                label(area, &text, (WIDTH as i32 - 8, y + 5), HPos::Right)?;
            }
        }
        Ok(())
    })
}

/// The place of bars of one unit.
struct Bars {
    least: f64,
    most: f64,
}

impl Bars {
    const LEFT: f64 = 8.0;
    const RIGHT: f64 = WIDTH as f64 - 92.0;

    fn of(values: &[(&crate::figure::Compared, f64)], unit: Unit) -> Self {
        let same = values
            .iter()
            .filter(|(value, _)| value.published.unit == unit);
        let all = same.flat_map(|(value, ours)| [value.published.value, *ours, 0.0]);
        Self {
            least: all.clone().fold(0.0, f64::min),
            most: all.fold(0.0, f64::max),
        }
    }

    fn ends(&self, value: f64) -> (i32, i32) {
        let width = (self.most - self.least).max(f64::MIN_POSITIVE);
        let place =
            |value: f64| Self::LEFT + (value - self.least) / width * (Self::RIGHT - Self::LEFT);
        let (from, to) = (place(value.min(0.0)), place(value.max(0.0)));
        // What is zero is seen as well.
        (from as i32, (to as i32).max(from as i32 + 1))
    }
}
