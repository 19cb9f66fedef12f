//! Maintenance windows: `22:00-06:00`, `sat,sun`, `mon-fri 01:00-05:00`.

use std::{fmt, str::FromStr};

use linux_abi::local_time::LocalTime;

const DAY: u32 = 24 * 60;
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A time of day on some days of the week, in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The days on which it begins, Sunday first.
    days: [bool; 7],
    /// Minutes since midnight.
    from: u32,
    /// Minutes since midnight of the day on which it begins; beyond a day if it goes over midnight.
    until: u32,
}

impl Window {
    /// Whether a time is within it.
    #[must_use]
    pub fn contains(&self, time: LocalTime) -> bool {
        let day = usize::from(time.weekday % 7);
        let minute = time.second / 60;
        let today = self.days[day] && (self.from..self.until).contains(&minute);
        // What began yesterday, and goes over midnight.
        today || self.days[(day + 6) % 7] && (self.from..self.until).contains(&(minute + DAY))
    }
}

/// Whether work may be done at this time: in one of the windows, or at any time where there are none.
#[must_use]
pub fn is_within(windows: &[Window], time: LocalTime) -> bool {
    windows.is_empty() || windows.iter().any(|window| window.contains(time))
}

/// Text that is no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a window like 22:00-06:00, 'sat,sun' or 'mon-fri 01:00-05:00'")]
pub struct NoWindow;

impl FromStr for Window {
    type Err = NoWindow;

    fn from_str(text: &str) -> Result<Self, NoWindow> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let begins_with_digit = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        let (days, times) = match *words.as_slice() {
            [times] if begins_with_digit(times) => ([true; 7], times),
            [days] => (parse_days(days)?, "00:00-24:00"),
            [days, times] => (parse_days(days)?, times),
            _ => return Err(NoWindow),
        };
        let (from, until) = times.split_once('-').ok_or(NoWindow)?;
        let (from, until) = (minutes(from)?, minutes(until)?);
        if from == until || from >= DAY {
            return Err(NoWindow);
        }
        let until = if until < from { until + DAY } else { until };
        Ok(Self { days, from, until })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != [true; 7] {
            let named = DAYS.iter().zip(self.days).filter(|(_, is)| *is);
            let names: Vec<&str> = named.map(|(name, _)| *name).collect();
            write!(f, "{} ", names.join(","))?;
        }
        let until = match self.until {
            ..=DAY => self.until,
            over => over - DAY,
        };
        let time = |minutes: u32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        write!(f, "{}-{}", time(self.from), time(until))
    }
}

/// `mon-fri`, `sat,sun`; ranges may go over the end of the week.
fn parse_days(text: &str) -> Result<[bool; 7], NoWindow> {
    let day = |name: &str| {
        let name = name.to_ascii_lowercase();
        DAYS.iter().position(|day| *day == name).ok_or(NoWindow)
    };
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (day(part)?, day(part)?),
        };
        let mut at = first;
        loop {
            days[at] = true;
            if at == last {
                break;
            }
            at = (at + 1) % 7;
        }
    }
    Ok(days)
}

/// `HH:MM`, up to 24:00.
fn minutes(text: &str) -> Result<u32, NoWindow> {
    let number = |part: &str| match part.len() {
        1 | 2 if part.bytes().all(|byte| byte.is_ascii_digit()) => {
            part.parse().map_err(|_| NoWindow)
        }
        _ => Err(NoWindow),
    };
    let (hours, minutes) = text.split_once(':').ok_or(NoWindow)?;
    let (hours, minutes): (u32, u32) = (number(hours)?, number(minutes)?);
    match minutes < 60 && hours * 60 + minutes <= DAY {
        true => Ok(hours * 60 + minutes),
        false => Err(NoWindow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(weekday: u8, hour: u32, minute: u32) -> LocalTime {
        LocalTime {
            weekday,
            second: (hour * 60 + minute) * 60,
        }
    }

    fn window(text: &str) -> Window {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_may_go_over_midnight() {
        let night = window("22:00-06:00");
        for day in 0..7 {
            assert!(night.contains(at(day, 22, 0)) && night.contains(at(day, 23, 59)));
            assert!(night.contains(at(day, 0, 0)) && night.contains(at(day, 5, 59)));
            assert!(!night.contains(at(day, 6, 0)) && !night.contains(at(day, 21, 59)));
        }
        let noon = window("12:00-13:30");
        assert!(noon.contains(at(3, 13, 29)) && !noon.contains(at(3, 13, 30)));
        assert!(!noon.contains(at(3, 1, 0)));
        let evening = window("18:00-24:00");
        assert!(evening.contains(at(3, 23, 59)) && !evening.contains(at(4, 0, 0)));
        let morning = window("18:00-00:00");
        assert!(morning.contains(at(3, 23, 59)) && !morning.contains(at(4, 0, 0)));
    }

    #[test]
    fn the_day_of_a_window_is_that_on_which_it_begins() {
        let friday = window("fri 22:00-06:00");
        assert!(friday.contains(at(5, 23, 0)) && friday.contains(at(6, 5, 0)));
        assert!(!friday.contains(at(5, 5, 0)) && !friday.contains(at(6, 23, 0)));
        let week = window("Sat-Mon 01:00-02:00");
        let days: Vec<u8> = (0..7)
            .filter(|day| week.contains(at(*day, 1, 30)))
            .collect();
        assert_eq!(days, [0, 1, 6]);
        let weekend = window("sat,sun");
        assert!(weekend.contains(at(6, 0, 0)) && weekend.contains(at(0, 23, 59)));
        assert!(!weekend.contains(at(1, 0, 0)));
        // Saturday night into Sunday.
        let saturday = window("sat 20:00-04:00");
        assert!(saturday.contains(at(0, 3, 59)));
    }

    #[test]
    fn without_windows_any_time_is_right_and_of_several_one() {
        assert!(is_within(&[], at(1, 1, 1)));
        let two = [window("01:00-02:00"), window("12:00-13:00")];
        assert!(is_within(&two, at(1, 1, 30)) && is_within(&two, at(1, 12, 30)));
        assert!(!is_within(&two, at(1, 3, 0)));
    }

    #[test]
    fn text_and_window_are_the_same_and_nonsense_is_refused() {
        for text in ["22:00-06:00", "mon,tue 01:00-05:00", "sun,sat 00:00-24:00"] {
            assert_eq!(window(text).to_string(), text);
        }
        for text in [
            "",
            "22-06",
            "22:00",
            "25:00-01:00",
            "10:00-10:00",
            "24:00-01:00",
            "mon-xyz 01:00-02:00",
            "01:60-02:00",
            "1:00-+2:00",
            "mon tue 01:00-02:00",
            "night",
            "01:00-02:00 mon",
        ] {
            assert_eq!(text.parse::<Window>(), Err(NoWindow), "{text}");
        }
    }
}
