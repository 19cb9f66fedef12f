//! A drive of the size of a simulated host, with about the spare flash that its profile says.

use anyhow::{Context, Result, bail};
use flash_model::{Profile, Value};
use lfs_sim::device;
use units::Bytes;

/// The profile with smaller flash blocks: the blocks that each die keeps in motion would be most of the flash of a device as
/// small as this (docs/flash-model.md, "Conventional namespaces"). Of all divisions it has the one whose spare flash is
/// nearest to the nominal one.
///
/// # Errors
///
/// There is no such profile, or it cannot be as small.
pub fn small(name: &str, size: Bytes) -> Result<Profile> {
    let text = Profile::builtin_text(name).with_context(|| format!("no profile '{name}'"))?;
    let whole = Profile::parse(name, text)?;
    let mut parameters = whole.parameters().iter();
    let nominal = match parameters.find(|it| it.key == "ftl.over_provisioning") {
        Some(parameter) => match parameter.value {
            Value::Number(percent) => percent,
            Value::Flag(_) => bail!("{name}: ftl.over_provisioning is no number"),
        },
        None => bail!("{name} has no ftl.over_provisioning"),
    };
    let mut nearest: Option<(f64, Profile)> = None;
    for over_provisioning in [None, Some(0)] {
        for divisor in 1..=128 {
            let spare = divided(text, divisor, over_provisioning).and_then(|text| {
                let profile = Profile::parse(name, &text).ok()?;
                let device = device::conventional(&profile, size).ok()?;
                Some((device.spare(0)?.percent, profile))
            });
            let off = |percent: f64| (percent - nominal).abs();
            if let Some((percent, profile)) = spare
                && nearest
                    .as_ref()
                    .is_none_or(|(known, _)| off(percent) < off(*known))
            {
                nearest = Some((percent, profile));
            }
        }
    }
    let (_, profile) = nearest.with_context(|| format!("{name} cannot be as small as {size}"))?;
    Ok(profile)
}

/// The text with flash blocks, and zones, which consist of them, divided; `None` where they are no multiple of the divisor.
fn divided(text: &str, divisor: u64, over_provisioning: Option<u64>) -> Option<String> {
    let (mut section, mut out) = ("", String::new());
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(' ').next().unwrap_or_default();
        let part = |number: u64| number.is_multiple_of(divisor).then_some(number / divisor);
        let new = |number: u64| match (section, name) {
            ("[geometry]", "pages_per_block") => part(number),
            ("[zones]", "size" | "capacity") => part(number * 1024),
            ("[ftl]", "over_provisioning") => Some(over_provisioning.unwrap_or(number)),
            _ => Some(number),
        };
        let is_zone = section == "[zones]" && matches!(name, "size" | "capacity");
        let parts = line.split_once("value = ").and_then(|(before, after)| {
            let (number, after) = after.split_once(',')?;
            Some((before, number.parse::<u64>().ok()?, after))
        });
        match parts {
            Some((before, number, after)) => {
                let after = match is_zone {
                    true => after.replace("\"MiB\"", "\"KiB\""),
                    false => after.to_owned(),
                };
                out += &format!("{before}value = {},{after}\n", new(number)?);
            }
            None => out += &format!("{line}\n"),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kind::DRIVES, settings::VOLUME};

    #[test]
    fn every_drive_has_about_its_spare_flash() {
        for name in DRIVES {
            let profile = small(name, VOLUME).unwrap();
            let device = device::conventional(&profile, VOLUME).unwrap();
            let spare = device.spare(0).unwrap();
            assert!((4.0..32.0).contains(&spare.percent), "{name} {spare:?}");
        }
    }
}
