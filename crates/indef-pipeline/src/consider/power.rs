//! Mains or battery, by `/sys/class/power_supply` (Documentation/ABI/testing/sysfs-class-power, v6.1).

use super::{reading::CannotTell, source::Source};

const FOLDER: &str = "sys/class/power_supply";

/// 1 on battery, 0 on mains. A machine without any supply that the kernel knows has no battery.
pub(super) fn on_battery(source: &impl Source) -> Result<f64, CannotTell> {
    let supplies = source.names(FOLDER).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CannotTell::NoFile(FOLDER.to_owned()),
        _ => CannotTell::Unreadable {
            path: FOLDER.to_owned(),
            why: error.to_string(),
        },
    })?;
    let (mut mains, mut discharging) = (None, false);
    for supply in supplies {
        let read = |file: &str| {
            let text = source.text(&format!("{FOLDER}/{supply}/{file}")).ok()?;
            Some(text.trim().to_owned())
        };
        // That of a mouse says nothing of the machine.
        if read("scope").as_deref() == Some("Device") {
            continue;
        }
        match read("type").as_deref() {
            Some("Mains" | "USB" | "Wireless") => {
                let online = read("online").is_some_and(|online| online != "0");
                mains = Some(mains.unwrap_or(false) || online);
            }
            Some("Battery" | "UPS") => {
                discharging |= read("status").as_deref() == Some("Discharging");
            }
            _ => {}
        }
    }
    let on_battery = match mains {
        Some(true) => false,
        Some(false) | None => discharging,
    };
    Ok(f64::from(u8::from(on_battery)))
}
