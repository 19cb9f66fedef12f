//! SMART / Health Information (NVMe Base §5.16.1.3): temperature and wear of a drive.

use std::{io, os::fd::AsFd};

use zerocopy::{IntoBytes, little_endian::U16};

use super::{Answer, get_log_page};

/// LID of the page.
pub const SMART_PAGE: u8 = 0x02;
/// 0 °C in kelvin, as the page counts.
const FREEZING: i32 = 273;

wire! {
    /// SMART / Health Information log page (Base §5.16.1.3). Counters of 16 bytes are
    /// little-endian.
    pub struct Smart [512] {
        /// Critical Warning: read-only (3), memory backup failed (4), reliability degraded (2), and
        /// so on.
        pub critical_warning: u8,
        /// Composite Temperature: kelvin.
        pub temperature: U16,
        /// Available Spare: percent.
        pub spare: u8,
        /// Available Spare Threshold: percent.
        pub spare_threshold: u8,
        /// Percentage Used: of the endurance; 100 is its rated end, 255 everything over 254.
        pub used: u8,
        /// Endurance Group Critical Warning Summary.
        pub endurance_warning: u8,
        reserved7: [u8; 25],
        /// Data Units Read: 1000 × 512 bytes, rounded up.
        pub units_read: [u8; 16],
        /// Data Units Written: 1000 × 512 bytes, rounded up.
        pub units_written: [u8; 16],
        /// Host Read Commands.
        pub reads: [u8; 16],
        /// Host Write Commands.
        pub writes: [u8; 16],
        /// Controller Busy Time: minutes.
        pub busy_minutes: [u8; 16],
        /// Power Cycles.
        pub power_cycles: [u8; 16],
        /// Power On Hours.
        pub power_on_hours: [u8; 16],
        /// Unsafe Shutdowns.
        pub unsafe_shutdowns: [u8; 16],
        /// Media and Data Integrity Errors.
        pub media_errors: [u8; 16],
        /// Number of Error Information Log Entries.
        pub error_entries: [u8; 16],
        reserved192: [u8; 320],
    }
}

/// Critical Warning: the subsystem's reliability is degraded.
pub const SMART_DEGRADED: u8 = 1 << 2;

impl Smart {
    /// Composite Temperature, in degrees Celsius; `None` where the drive does not tell one.
    #[must_use]
    pub fn celsius(&self) -> Option<i32> {
        let kelvin = i32::from(self.temperature.get());
        (kelvin > 0).then_some(kelvin - FREEZING)
    }

    /// Data Units Written, in bytes.
    #[must_use]
    pub fn bytes_written(&self) -> u128 {
        u128::from_le_bytes(self.units_written).saturating_mul(512_000)
    }
}

/// Read the page of the controller that the device belongs to.
///
/// # Errors
///
/// As for [`get_log_page`]; `EIO` where the device refuses the page.
pub fn read(device: impl AsFd) -> io::Result<Smart> {
    let mut smart = Smart::zeroed();
    // NSID FFFFFFFFh: of the whole controller, which every one has.
    match get_log_page(device, SMART_PAGE, u32::MAX, 0, smart.as_mut_bytes())? {
        Answer::Success => Ok(smart),
        Answer::Status(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn kelvin_and_units_are_converted() {
        let mut smart = Smart::zeroed();
        assert_eq!(smart.celsius(), None);
        smart.temperature = U16::new(310);
        smart.units_written = 3u128.to_le_bytes();
        assert_eq!(smart.celsius(), Some(37));
        assert_eq!(smart.bytes_written(), 1_536_000);
        smart.units_written = [0xFF; 16];
        assert_eq!(smart.bytes_written(), u128::MAX);
    }

    #[test]
    fn what_is_not_nvme_has_no_such_page() {
        let error = read(File::open("/proc/self/exe").unwrap()).unwrap_err();
        let errno = error.raw_os_error();
        assert!(matches!(errno, Some(libc::ENOTTY | libc::EOPNOTSUPP)));
    }
}
