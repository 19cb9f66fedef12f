//! Placeholders: the name of a value, or of a ratio of two, and how to show it.
//!
//! | placeholder | gives |
//! |---|---|
//! | `peers / ext4 256 MiB / indef / time_ns` | the median: result, case, contender, quantity |
//! | `peers / ext4 256 MiB / indef` | the same: the time, if no quantity is named |
//! | `peers / ext4 256 MiB / e4defrag ÷ indef` | a ratio of medians; the second name replaces the contender, or is a whole one |
//! | … ` : ms .1` | how to show it: a unit, decimals, `+`, `bare`, `spread`, `less` (percent below 1) |
//! | `within 10 predictions / predicted_pct − measured_pct` | in how many rows of those that have both quantities they are at most so far apart: `135 of 141`; `predictions / fast24 / …`: of cases that begin so |
//! | `contenders zbd / case 42 / skipped` | the contenders of a case of which this is more than zero: their names, `all` or `none` |
//! | `command peers` | the command that measures the result |
//! | `measured peers` | a sentence with date, machine, kernel, runs and spread of what this text shows of it |

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use crate::{Record, Row, Session, Value, format::Format};

/// The quantity that is meant where none is named.
const TIME: &str = "time_ns";

/// The name of a value: result, case, contender, quantity.
pub type Name = (String, String, String, String);

/// All results, and what was shown of them.
#[derive(Debug, Default)]
pub struct Results {
    /// By the name of their file, without its end.
    pub records: BTreeMap<String, Record>,
    /// Those that were shown so far.
    pub shown: BTreeSet<Name>,
}

impl Results {
    /// Returns the value of a placeholder.
    ///
    /// # Errors
    ///
    /// There is no such value, or it cannot be shown in this way.
    pub fn evaluate(&mut self, text: &str) -> Result<String> {
        if let Some(result) = text.strip_prefix("command ") {
            return Ok(self.latest(result)?.command.clone());
        }
        if let Some(rows) = text.strip_prefix("within ") {
            return self.count_within(rows);
        }
        if let Some(rows) = text.strip_prefix("contenders ") {
            return self.contenders_with(rows);
        }
        let (source, format) = text.split_once(" : ").unwrap_or((text, ""));
        let format = Format::parse(format)?;
        if let Some((over, under)) = source.split_once(" ÷ ") {
            let over = self.name(over)?;
            let under = match self.name(under) {
                Ok(name) => name,
                Err(_) => (
                    over.0.clone(),
                    over.1.clone(),
                    under.to_owned(),
                    over.3.clone(),
                ),
            };
            let ratio = self.value(over)?.median() / self.value(under)?.median();
            return Ok(format.show_ratio(ratio));
        }
        let name = self.name(source)?;
        let quantity = name.3.clone();
        let value = self.value(name)?;
        match value {
            Value::Measured {
                spread: Some(spread),
                ..
            } if format.spread => format.show(&quantity, &spread),
            Value::Measured { spread: None, .. } if format.spread => Ok("not kept".to_owned()),
            _ if format.spread => bail!("{source} has no spread"),
            _ if format.less => bail!("{source} is no ratio"),
            _ => format.show(&quantity, &[value.median()]),
        }
    }

    /// How many rows of `LIMIT RESULT / CASES / QUANTITY − QUANTITY` are within the limit, of how many.
    fn count_within(&self, text: &str) -> Result<String> {
        let wanted = "wanted: within LIMIT RESULT / CASES / QUANTITY − QUANTITY";
        let (limit, rows) = text.split_once(' ').context(wanted)?;
        let limit: f64 = limit.parse().context(wanted)?;
        let (source, quantities) = rows.rsplit_once(" / ").context(wanted)?;
        let (one, other) = quantities.split_once(" − ").context(wanted)?;
        let (result, cases) = source.split_once(" / ").unwrap_or((source, ""));
        let rows = self.record(result)?.rows();
        let differences: Vec<f64> = rows
            .filter(|row| row.case.starts_with(cases))
            .filter_map(|row| Some(row.values.get(one)?.median() - row.values.get(other)?.median()))
            .collect();
        ensure!(!differences.is_empty(), "no row has both");
        let within = differences.iter().filter(|it| it.abs() <= limit);
        Ok(format!("{} of {}", within.count(), differences.len()))
    }

    /// The names of those contenders of `RESULT / CASE / QUANTITY` of which it is more than zero.
    fn contenders_with(&mut self, text: &str) -> Result<String> {
        let wanted = "wanted: contenders RESULT / CASE / QUANTITY";
        let (case, quantity) = text.rsplit_once(" / ").context(wanted)?;
        let rows = self.rows(case)?;
        let mut names = Vec::new();
        for row in &rows {
            let name = self.name(&format!("{case} / {} / {quantity}", row.contender))?;
            if self.value(name)?.median() > 0.0 {
                names.push(row.contender.as_str());
            }
        }
        Ok(match names.len() {
            0 => "none".to_owned(),
            all if all == rows.len() => "all".to_owned(),
            _ => names.join(", "),
        })
    }

    /// Returns the rows of `RESULT / CASE`, in their order.
    ///
    /// # Errors
    ///
    /// There are none.
    pub fn rows(&self, text: &str) -> Result<Vec<Row>> {
        let (result, case) = text.split_once(" / ").context("wanted: RESULT / CASE")?;
        let rows = self.record(result)?.rows();
        let rows: Vec<Row> = rows.filter(|row| row.case == case).cloned().collect();
        ensure!(!rows.is_empty(), "{result} has no case '{case}'");
        Ok(rows)
    }

    /// The conditions of all that was `shown` of a result: a sentence, or a list of its sessions.
    ///
    /// # Errors
    ///
    /// Nothing was shown of it.
    pub fn measured(&self, result: &str, shown: &BTreeSet<Name>) -> Result<String> {
        let record = self.record(result)?;
        let mut sessions: BTreeMap<usize, (Vec<&str>, Vec<Shown<'_>>)> = BTreeMap::new();
        for (_, case, contender, quantity) in shown.iter().filter(|name| name.0 == result) {
            let (at, row) = record
                .find(case, contender)
                .context("shown, so it is there")?;
            let (cases, values) = sessions.entry(at).or_default();
            if !cases.contains(&case.as_str()) {
                cases.push(case);
            }
            let value = row.values.get(quantity);
            values.extend(value.map(|value| (quantity.as_str(), *value)));
        }
        ensure!(!sessions.is_empty(), "nothing of {result} is shown here");
        let several = sessions.len() > 1;
        let sentences = sessions.into_iter().map(|(at, (cases, values))| {
            let conditions = conditions(&record.sessions[at], &values);
            if several {
                format!("- {}: {conditions}", cases.join("; "))
            } else {
                conditions
            }
        });
        Ok(sentences.collect::<Vec<_>>().join("\n"))
    }

    fn record(&self, result: &str) -> Result<&Record> {
        let record = self.records.get(result);
        record.with_context(|| format!("there is no figures/{result}.json"))
    }

    fn latest(&self, result: &str) -> Result<&Session> {
        let sessions = &self.record(result)?.sessions;
        sessions
            .last()
            .with_context(|| format!("{result} is empty"))
    }

    fn name(&self, text: &str) -> Result<Name> {
        let mut parts = text.split(" / ").map(str::to_owned);
        let mut next = || parts.next().map(|part| part.trim().to_owned());
        let (Some(result), Some(case), Some(contender)) = (next(), next(), next()) else {
            bail!("'{text}' is no RESULT / CASE / CONTENDER / QUANTITY");
        };
        let quantity = next().unwrap_or_else(|| TIME.to_owned());
        Ok((result, case, contender, quantity))
    }

    fn value(&mut self, name: Name) -> Result<Value> {
        let (result, case, contender, quantity) = &name;
        let (_, row) = self
            .record(result)?
            .find(case, contender)
            .with_context(|| format!("{result} has no '{case} / {contender}'"))?;
        let value = *row
            .values
            .get(quantity)
            .with_context(|| format!("{result} / {case} / {contender} has no {quantity}"))?;
        self.shown.insert(name);
        Ok(value)
    }
}

/// A quantity that is shown, and its value.
type Shown<'a> = (&'a str, Value);

/// `Measured 2026-11-24 … ; medians of 5 runs …`
fn conditions(session: &Session, values: &[Shown<'_>]) -> String {
    let (Some(machine), Some(date)) = (&session.machine, &session.date) else {
        return "Virtual time: the same on every machine.".to_owned();
    };
    let mut text = format!("Measured {date}");
    if let Some(version) = &session.version {
        text += &format!(" (commit {version})");
    }
    let machine = machine.to_string();
    if !machine.is_empty() {
        text += &format!(" on {machine}");
    }
    text += &match session.runs {
        Some(1) => "; one run, so without a spread".to_owned(),
        Some(runs) => format!("; medians of {runs} runs"),
        None => "; how many runs was not kept".to_owned(),
    };
    if values
        .iter()
        .any(|(_, value)| matches!(value, Value::Measured { spread: None, .. }))
    {
        text += "; the spread was not kept";
    } else if session.runs.is_some_and(|runs| runs > 1) {
        text += &spread(values);
    }
    text.push('.');
    if let Some(note) = &session.note {
        text += &format!(" {note}");
    }
    text
}

/// How far the runs are from their medians, at most: in percent of these, but of percentages in points, as a part of one near
/// zero says nothing.
fn spread(values: &[Shown<'_>]) -> String {
    let (mut parts, mut points) = ((0.0_f64, 0.0_f64), (0.0_f64, 0.0_f64));
    let (mut has_parts, mut has_points) = (false, false);
    for (quantity, value) in values {
        let Value::Measured {
            median,
            spread: Some([least, most]),
        } = value
        else {
            continue;
        };
        let (furthest, unit) = if quantity.ends_with("_pct") {
            has_points = true;
            (&mut points, 1.0)
        } else if *median == 0.0 {
            // A share of zero says nothing.
            continue;
        } else {
            has_parts = true;
            (&mut parts, median.abs() / 100.0)
        };
        furthest.0 = furthest.0.max((median - least) / unit);
        furthest.1 = furthest.1.max((most - median) / unit);
    }
    let parts = has_parts.then(|| format!("−{:.0} to +{:.0} % of them", parts.0, parts.1));
    let points = has_points.then(|| format!("−{:.0} to +{:.0} points", points.0, points.1));
    match (parts, points) {
        (None, None) => String::new(),
        (Some(one), None) | (None, Some(one)) => format!(", single runs from {one}"),
        (Some(parts), Some(points)) => {
            format!(", single runs from {parts}, of percentages {points}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_percentages_differ_by_points() {
        let of = |samples: &[f64]| Value::of(samples);
        let times = ("time_ns", of(&[90.0, 100.0, 120.0]));
        let gains = ("gain_pct", of(&[-3.0, 0.1, 6.1]));
        let none = ("share_pct", of(&[0.0, 0.0, 2.0]));
        assert_eq!(spread(&[times]), ", single runs from −10 to +20 % of them");
        assert_eq!(spread(&[gains, none]), ", single runs from −3 to +6 points");
        assert_eq!(
            spread(&[times, none]),
            ", single runs from −10 to +20 % of them, of percentages −0 to +2 points"
        );
        assert_eq!(spread(&[("count", Value::Exact(1.0))]), "");
    }

    #[test]
    fn rows_are_counted_by_how_far_two_quantities_are_apart() {
        let row = |case: &str, foretold: f64, came: f64| {
            let row = Row::new(case, "all").with("foretold_pct", Value::Exact(foretold));
            row.with("came_pct", Value::Exact(came))
        };
        let refused = Row::new("fast, depth 8", "all").with("came_pct", Value::Exact(1.0));
        let rows = vec![
            row("fast, depth 1", 20.0, 30.0),
            refused,
            row("slow, depth 1", 20.0, 9.0),
        ];
        let mut results = Results::default();
        let record = Record::of(Session::in_virtual_time("", rows));
        results.records.insert("plans".to_owned(), record);
        let mut count = |cases: &str| {
            results.evaluate(&format!("within 10 plans{cases} / foretold_pct − came_pct"))
        };
        assert_eq!(count("").unwrap(), "1 of 2");
        assert_eq!(count(" / fast,").unwrap(), "1 of 1");
        assert!(count(" / none,").is_err());
    }

    #[test]
    fn contenders_are_named_by_what_they_have() {
        let row = |contender: &str, counts: [f64; 3]| {
            let quantities = ["passed", "skipped", "failed"].into_iter().zip(counts);
            quantities.fold(Row::new("case 1", contender), |row, (quantity, count)| {
                row.with(quantity, Value::Exact(count))
            })
        };
        let rows = vec![
            row("a", [1.0, 0.0, 1.0]),
            row("b", [1.0, 0.0, 0.0]),
            row("c", [1.0, 0.0, 1.0]),
        ];
        let mut results = Results::default();
        let record = Record::of(Session::in_virtual_time("", rows));
        results.records.insert("zbd".to_owned(), record);
        let mut named = |what: &str| results.evaluate(&format!("contenders zbd / {what}"));
        assert_eq!(named("case 1 / passed").unwrap(), "all");
        assert_eq!(named("case 1 / skipped").unwrap(), "none");
        assert_eq!(named("case 1 / failed").unwrap(), "a, c");
        assert!(named("case 1 / lost").is_err() && named("case 2 / passed").is_err());
        // What was looked at for it was shown.
        let is_shown = |shown: &Name| shown.1 == "case 1";
        assert_eq!(results.shown.iter().filter(|it| is_shown(it)).count(), 9);
    }

    #[test]
    fn what_is_not_known_of_the_runs_is_said() {
        let machine = crate::Machine::here(std::path::Path::new("/"));
        let said = |runs| {
            let session = Session {
                machine: Some(machine.clone()),
                date: Some("2026-11-24".to_owned()),
                runs,
                ..Session::in_virtual_time("", Vec::new())
            };
            conditions(&session, &[])
        };
        assert!(said(Some(1)).ends_with("; one run, so without a spread."));
        assert!(said(Some(5)).ends_with("; medians of 5 runs."));
        assert!(said(None).ends_with("; how many runs was not kept."));
    }
}
