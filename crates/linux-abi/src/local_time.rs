//! `localtime_r` (time.h, POSIX.1-2017): the day of the week and the time of day where this machine is.

use std::{io, mem::MaybeUninit};

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Days since Sunday.
    pub weekday: u8,
    /// Seconds since midnight.
    pub second: u32,
}

/// The local time at so many seconds since 1970, by the time zone that `TZ` or `/etc/localtime` tells.
///
/// # Errors
///
/// `EOVERFLOW` where the year cannot be counted.
pub fn local_time(since_1970: i64) -> io::Result<LocalTime> {
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live memory of the types that the function reads and fills.
    let filled = unsafe { libc::localtime_r(&raw const since_1970, parts.as_mut_ptr()) };
    if filled.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was zeroed, which is a valid tm, and the function has filled it.
    let parts = unsafe { parts.assume_init() };
    let part = |value: libc::c_int| u32::try_from(value).unwrap_or(0);
    Ok(LocalTime {
        weekday: part(parts.tm_wday) as u8,
        // A leap second counts as the one before.
        second: part(parts.tm_hour) * 3600 + part(parts.tm_min) * 60 + part(parts.tm_sec).min(59),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_later_it_is_the_next_day_of_the_week() {
        let at = |seconds| local_time(seconds).unwrap();
        let (one, next) = (at(1_750_000_000), at(1_750_086_400));
        assert_eq!(next.weekday, (one.weekday + 1) % 7);
        assert!(one.second < 86_400);
        assert_eq!(at(1_750_000_059).second % 60, (one.second + 59) % 60);
        assert!(local_time(i64::MAX).is_err());
    }
}
