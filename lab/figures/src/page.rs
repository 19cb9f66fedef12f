//! Regions of a page that are generated.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use crate::{Row, expression::Results};

const REGION: &str = "<!-- figures: ";
const END_OF_REGION: &str = "<!-- end figures -->";
const INLINE: &str = "<!-- figure: ";
const END_OF_INLINE: &str = "<!-- end -->";
const CLOSE: &str = " -->";

/// The texts with placeholders, by name; and which of them a page has.
#[derive(Debug, Default)]
pub struct Templates {
    /// `figures/NAME.md`.
    pub texts: BTreeMap<String, String>,
    /// The names that a page has had.
    pub used: Vec<String>,
}

/// Returns the page with all its regions as the results give them.
///
/// # Errors
///
/// A marker is without its end, or names what there is not.
pub fn regenerate(page: &str, results: &mut Results, templates: &mut Templates) -> Result<String> {
    let kinds = [(REGION, END_OF_REGION), (INLINE, END_OF_INLINE)];
    replace_marked(page, &kinds, |begin, name| {
        if begin == INLINE {
            return results.evaluate(name);
        }
        let template = templates.texts.get(name);
        let template = template.with_context(|| format!("there is no figures/{name}.md"))?;
        templates.used.push(name.to_owned());
        let filled = fill(template, results).with_context(|| format!("figures/{name}.md"))?;
        Ok(format!("\n{filled}"))
    })
}

/// Returns the page with each region of another kind, `<!-- KIND: NAME -->` to `<!-- end KIND -->`, as `make`
/// gives it for its name.
///
/// # Errors
///
/// A marker is without its end, or `make` fails.
pub fn regenerate_as(
    page: &str,
    kind: &str,
    mut make: impl FnMut(&str) -> Result<String>,
) -> Result<String> {
    let (begin, end) = (format!("<!-- {kind}: "), format!("<!-- end {kind} -->"));
    replace_marked(page, &[(&begin, &end)], |_, name| {
        Ok(format!("\n{}", make(name)?))
    })
}

/// Replaces what stands between markers of these kinds (begin, end) by what `make` gives for the begin and the
/// name after it.
fn replace_marked(
    page: &str,
    kinds: &[(&str, &str)],
    mut make: impl FnMut(&str, &str) -> Result<String>,
) -> Result<String> {
    let next = |text: &str| {
        let found = kinds
            .iter()
            .filter_map(|kind| Some((text.find(kind.0)?, *kind)));
        found.min_by_key(|(at, _)| *at)
    };
    let mut done = String::new();
    let mut rest = page;
    while let Some((at, (begin, end))) = next(rest) {
        let (before, marker) = rest.split_at(at);
        done += before;
        let line = done.matches('\n').count() + 1;
        let mut one = || {
            let (name, inside) = marker[begin.len()..]
                .split_once(CLOSE)
                .context("the marker does not end")?;
            let (old, after) = inside
                .split_once(end)
                .with_context(|| format!("there is no {end}"))?;
            ensure!(next(old).is_none(), "there is no {end} before the next");
            let new = make(begin, name)?;
            Ok::<_, anyhow::Error>((format!("{begin}{name}{CLOSE}{new}{end}"), after))
        };
        let (made, after) = one()
            .with_context(|| format!("line {line}: {}", marker.lines().next().unwrap_or("")))?;
        done += &made;
        rest = after;
    }
    ensure!(
        !kinds.iter().any(|(_, end)| rest.contains(end)),
        "an end of a figure without its begin"
    );
    Ok(done + rest)
}

/// A template with all placeholders replaced. A line that begins with `{if RESULT / CASE}` is only
/// there if the case was measured, with `{unless RESULT / CASE}` if it was not; one that begins with `{each RESULT / CASE}` is there for each
/// contender, whose name is `{contender}` and whose values are `{.QUANTITY}`, or `{.QUANTITY?}` if it
/// may be missing.
fn fill(template: &str, results: &mut Results) -> Result<String> {
    // Of each template, what it shows itself.
    let earlier = std::mem::take(&mut results.shown);
    let filled = fill_values(template, results);
    let shown = std::mem::replace(&mut results.shown, earlier);
    let filled = replace(&filled?, |inside| match inside.strip_prefix("measured ") {
        Some(result) => results.measured(result, &shown),
        None => bail!("not a placeholder"),
    });
    results.shown.extend(shown);
    filled
}

fn fill_values(template: &str, results: &mut Results) -> Result<String> {
    let mut text = String::new();
    for (number, line) in template.lines().enumerate() {
        let here = || format!("line {}", number + 1);
        let line = match (command(line, "{if "), command(line, "{unless ")) {
            (Some((case, line)), _) if results.rows(case).is_ok() => line,
            (_, Some((case, line))) if results.rows(case).is_err() => line,
            (None, None) => line,
            _ => continue,
        };
        let Some((each, line)) = command(line, "{each ") else {
            text += &replace(line, |inside| value(inside, results)).with_context(here)?;
            text.push('\n');
            continue;
        };
        for row in results.rows(each).with_context(here)? {
            let filled = replace(line, |inside| match inside.strip_prefix('.') {
                Some(quantity) => of_row(quantity, each, &row, results),
                None if inside == "contender" => Ok(row.contender.clone()),
                None => value(inside, results),
            });
            text += &filled.with_context(here)?;
            text.push('\n');
        }
    }
    Ok(text)
}

/// A value of a row; one that ends with a question mark need not be there.
fn of_row(quantity: &str, each: &str, row: &Row, results: &mut Results) -> Result<String> {
    let name = quantity.split(" : ").next().unwrap_or_default();
    let quantity = match name.strip_suffix('?') {
        Some(name) if !row.values.contains_key(name) => return Ok("–".to_owned()),
        Some(_) => quantity.replacen('?', "", 1),
        None => quantity.to_owned(),
    };
    value(&format!("{each} / {} / {quantity}", row.contender), results)
}

/// The case of a command that begins a line, and the rest of the line.
fn command<'a>(line: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(begin)?.split_once('}')
}

/// The value of a placeholder; `measured` waits for all of them.
fn value(inside: &str, results: &mut Results) -> Result<String> {
    if inside.starts_with("measured ") {
        return Ok(format!("{{{inside}}}"));
    }
    results.evaluate(inside)
}

fn replace(text: &str, mut value: impl FnMut(&str) -> Result<String>) -> Result<String> {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once('{') {
        let (inside, after) = from.split_once('}').context("a { without its }")?;
        done += before;
        done += &value(inside).with_context(|| format!("{{{inside}}}"))?;
        rest = after;
    }
    Ok(done + rest)
}
