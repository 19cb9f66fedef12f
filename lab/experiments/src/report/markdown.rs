//! The figures of a paper in Markdown.

use std::fmt::Write as _;

use super::sheet::Sheet;
use crate::figure::{Class, Paper};

/// How many figures of each paper are in each class.
pub(super) fn counts(sheets: &[Sheet]) -> String {
    let mut text = String::from("| |");
    for class in Class::ALL {
        let _ = write!(text, " {} |", class.as_str());
    }
    text += "\n|---|";
    text += &"---|".repeat(Class::ALL.len());
    text.push('\n');
    let mut line = |name: &str, is_meant: &dyn Fn(&Sheet) -> bool| {
        let _ = write!(text, "| {name} |");
        for class in Class::ALL {
            let meant = sheets.iter().filter(|sheet| is_meant(sheet));
            let count = meant.filter(|sheet| sheet.class == class).count();
            let _ = write!(text, " {count} |");
        }
        text.push('\n');
    };
    for paper in Paper::ALL {
        line(&paper.to_string(), &|sheet| sheet.paper == paper);
    }
    line("all", &|_| true);
    text
}

/// The figures without a result, each with its reason.
pub(super) fn missing(sheets: &[Sheet]) -> String {
    let mut text = String::from("| figure | place | | missing |\n|---|---|---|---|\n");
    for sheet in sheets {
        let Some(reason) = &sheet.reason else {
            continue;
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            sheet.slug(),
            escaped(&sheet.place),
            sheet.class.as_str(),
            escaped(reason)
        );
    }
    text
}

/// All figures of a paper; `has_plot` tells whether there is one.
pub(super) fn paper(sheets: &[Sheet], paper: Paper, has_plot: impl Fn(&Sheet) -> bool) -> String {
    let mut text = String::new();
    for sheet in sheets.iter().filter(|sheet| sheet.paper == paper) {
        let _ = writeln!(
            text,
            "### {}: {}\n\n{}. **{}**{}{}.",
            sheet.slug(),
            escaped(&sheet.title),
            escaped(&sheet.place),
            sheet.class.as_str(),
            separated(": ", &sheet.summary),
            separated(": ", sheet.reason.as_deref().unwrap_or_default()),
        );
        if let Some(command) = &sheet.command {
            let _ = writeln!(text, "`{command}`");
        }
        if let Some(conditions) = &sheet.conditions {
            let _ = writeln!(text, "\n{}", escaped(conditions));
        }
        if has_plot(sheet) {
            let _ = writeln!(
                text,
                "\n![{}](experiments/{}.svg)",
                escaped(&sheet.title),
                sheet.slug()
            );
        }
        table(&mut text, sheet);
        lists(&mut text, sheet);
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn separated(by: &str, text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("{by}{}", escaped(text))
    }
}

fn table(text: &mut String, sheet: &Sheet) {
    if sheet.values.is_empty() {
        return;
    }
    text.push_str("\n| | | ours | published | ratio | | source |\n|---|---|---|---|---|---|---|\n");
    for value in sheet.rows() {
        let mut verdict = value.verdict.clone();
        if !value.reason.is_empty() {
            verdict += &format!(": {}", value.reason);
        }
        let cells = [
            &value.series,
            &value.x,
            &value.ours,
            &value.theirs,
            &value.ratio,
            &verdict,
            &value.source,
        ];
        let cells = cells.map(|cell| escaped(cell));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

fn lists(text: &mut String, sheet: &Sheet) {
    let mut lines = Vec::new();
    for parameter in &sheet.parameters {
        lines.push(format!(
            "{} = {}: {}; {}.",
            escaped(&parameter.name),
            escaped(&parameter.value),
            parameter.kind,
            escaped(&parameter.source)
        ));
    }
    for other in &sheet.sensitivity {
        lines.push(format!(
            "With {} = {}: {}.",
            escaped(&other.parameter),
            escaped(&other.setting),
            escaped(&other.values)
        ));
    }
    let said = sheet.contradictions.iter();
    lines.extend(said.map(|line| format!("*Contradiction*: {}", escaped(line))));
    lines.extend(sheet.notes.iter().map(|line| escaped(line)));
    if !lines.is_empty() {
        text.push('\n');
    }
    for line in lines {
        let _ = writeln!(text, "- {line}");
    }
}

/// Nothing of the text is Markdown, but for code between backticks.
fn escaped(text: &str) -> String {
    let mut done = String::new();
    let mut is_code = false;
    for c in text.chars() {
        match c {
            '`' => is_code = !is_code,
            '|' => done.push('\\'),
            '*' | '_' | '<' | '>' | '[' | ']' | '\\' if !is_code => done.push('\\'),
            _ => {}
        }
        done.push(if c == '\n' { ' ' } else { c });
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_stays_a_cell() {
        assert_eq!(
            escaped("a | b\n<i> `x_y` z_w"),
            "a \\| b \\<i\\> `x_y` z\\_w"
        );
    }
}
