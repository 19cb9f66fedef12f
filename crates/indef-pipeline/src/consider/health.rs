//! Temperature and wear of a drive.
//!
//! An NVMe drive tells both over its SMART log page. The kernel shows the temperature of NVMe drives, and of SATA
//! ones with the module `drivetemp`, in hwmon (Documentation/hwmon/drivetemp.rst, v6.1). It does not show the wear
//! of SATA drives: each maker counts it in another attribute.

use std::{collections::HashMap, time::Duration};

use super::{
    disk::parts,
    reading::CannotTell,
    source::{Health, Source},
};

/// A drive is asked this often at most: it stops other work for a moment.
const EVERY: Duration = Duration::from_secs(60);
/// NVMe's highest bit of Critical Warning that stops us: spare below threshold, reliability degraded, read-only.
const CRITICAL: u8 = 0b1101;

/// Both readings.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) celsius: Result<f64, CannotTell>,
    pub(super) used_pct: Result<f64, CannotTell>,
}

/// Remembers the last answers.
#[derive(Debug, Default)]
pub(super) struct Drives {
    last: HashMap<String, (Duration, Found)>,
}

impl Drives {
    /// The readings of a drive, the worst of its parts.
    pub(super) fn look(&mut self, source: &impl Source, drive: &str, now: Duration) -> Found {
        if let Some((at, found)) = self.last.get(drive)
            && now.saturating_sub(*at) < EVERY
        {
            return found.clone();
        }
        let mut worst: Option<Found> = None;
        for part in parts(source, drive) {
            let one = look(source, &part);
            worst = Some(match worst {
                None => one,
                Some(other) => Found {
                    celsius: worse(one.celsius, other.celsius),
                    used_pct: worse(one.used_pct, other.used_pct),
                },
            });
        }
        let found = worst.unwrap_or(Found {
            celsius: Err(CannotTell::NoDrive),
            used_pct: Err(CannotTell::NoDrive),
        });
        if self.last.len() > 256 {
            self.last.clear();
        }
        self.last.insert(drive.to_owned(), (now, found.clone()));
        found
    }
}

/// Not known of one part is not known of the whole, unless another one is known to be worse than any limit.
fn worse(one: Result<f64, CannotTell>, other: Result<f64, CannotTell>) -> Result<f64, CannotTell> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (Ok(known), Err(why)) | (Err(why), Ok(known)) => match known >= 100.0 {
            true => Ok(known),
            false => Err(why),
        },
        (Err(why), Err(_)) => Err(why),
    }
}

fn look(source: &impl Source, drive: &str) -> Found {
    let health = source.health(drive);
    let from_hwmon = || sensor(source, drive).ok_or(CannotTell::NotTold);
    let celsius = match &health {
        Ok(Health {
            celsius: Some(celsius),
            ..
        }) => Ok(*celsius),
        Ok(_) => from_hwmon(),
        // Anybody may read hwmon.
        Err(why) => from_hwmon().map_err(|_| why.clone()),
    };
    let used_pct = health.map(|health| match health.critical & CRITICAL {
        0 => health.used_pct,
        // The drive itself says that it is at its end.
        _ => health.used_pct.max(100.0),
    });
    Found { celsius, used_pct }
}

/// The temperature that hwmon shows of the drive.
fn sensor(source: &impl Source, drive: &str) -> Option<f64> {
    let device = format!("sys/class/block/{drive}/device");
    // SATA: device/hwmon/hwmonN; NVMe: device/hwmonN or device/hwmon/hwmonN.
    for folder in [format!("{device}/hwmon"), device] {
        let names = source.names(&folder).unwrap_or_default();
        for name in names.iter().filter(|name| name.starts_with("hwmon")) {
            let input = source.text(&format!("{folder}/{name}/temp1_input"));
            let milli = input.ok().and_then(|text| text.trim().parse::<f64>().ok());
            if let Some(milli) = milli {
                return Some(milli / 1000.0);
            }
        }
    }
    None
}
