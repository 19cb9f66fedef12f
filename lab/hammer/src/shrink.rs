//! The smallest script that still fails (delta debugging: Zeller and Hildebrandt 2002, ddmin).
//!
//! Timing does not follow from the script, so a part that passes once may fail another time: the result
//! fails, but need not be the very smallest.

use anyhow::Result;

use crate::script::Script;

/// The remaining steps and their violations, after at most `tries` runs.
pub(crate) fn shrink(
    script: &Script,
    tries: u32,
    mut run: impl FnMut(&Script) -> Result<Vec<String>>,
) -> Result<(Vec<String>, Vec<String>)> {
    let mut kept: Vec<usize> = (0..script.len()).collect();
    let mut violations = Vec::new();
    let mut parts = 2;
    let mut left = tries;
    while kept.len() > 1 && left > 0 {
        let size = kept.len().div_ceil(parts);
        let mut smaller = None;
        for start in (0..kept.len()).step_by(size) {
            if left == 0 {
                break;
            }
            left -= 1;
            let end = (start + size).min(kept.len());
            let rest = [&kept[..start], &kept[end..]].concat();
            let found = run(&script.only(&rest))?;
            if !found.is_empty() {
                smaller = Some((rest, found));
                break;
            }
        }
        match smaller {
            Some((rest, found)) => {
                (kept, violations) = (rest, found);
                parts = (parts - 1).max(2);
            }
            None if parts >= kept.len() => break,
            None => parts = (parts * 2).min(kept.len()),
        }
    }
    Ok((lines(&script.only(&kept)), violations))
}

fn lines(script: &Script) -> Vec<String> {
    let mut lines = Vec::new();
    for (actor, steps) in script.actors.iter().enumerate() {
        let line = |step| format!("a{actor} {step:?}");
        lines.extend(steps.iter().map(line));
    }
    let event = |(wait, event): &(u32, _)| format!("after {wait} ms: {event:?}");
    lines.extend(script.events.iter().map(event));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::VOLUMES;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let mut script = Script::new(&VOLUMES[0], 3, 2, None);
        for steps in &mut script.actors {
            steps.truncate(40);
        }
        let needed = [7, 60, 100];
        let text = |script: &Script| lines(script).join("\\n");
        let wanted: Vec<String> = lines(&script.only(&needed));
        let fails = |part: &Script| {
            let text = text(part);
            let all = wanted.iter().all(|line| text.contains(line));
            Ok(if all { vec!["lost".into()] } else { vec![] })
        };
        let (left, violations) = shrink(&script, 10_000, fails).unwrap();
        assert_eq!(left, wanted);
        assert_eq!(violations, ["lost"]);
    }

    #[test]
    fn it_ends_after_the_tries() {
        let script = Script::new(&VOLUMES[0], 3, 2, None);
        let mut runs = 0;
        shrink(&script, 5, |_| {
            runs += 1;
            Ok(vec!["lost".into()])
        })
        .unwrap();
        assert_eq!(runs, 5);
    }
}
