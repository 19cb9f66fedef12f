//! Readings and their limits.

use std::{fmt, time::Duration};

/// A reading over a longer time than this says nothing of now: the mean of an hour hides that others have come within the
/// last minute, and that they have gone. Twice the time between two looks of a service that waits, and some more.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// A quantity that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Part of the time in which some process of others waited for I/O, in percent (PSI).
    IoPressure,
    /// Part of the time in which some process of others waited for a processor, in percent (PSI).
    CpuPressure,
    /// Part of the time in which the disk had something to do, in percent.
    DiskBusy,
    /// Mean time of a request of the disk, in milliseconds.
    DiskLatency,
    /// 1 on battery, 0 on mains.
    Battery,
    /// Temperature of the drive, in degrees Celsius.
    Temperature,
    /// Used part of the drive's endurance, in percent.
    Wear,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::IoPressure,
        Self::CpuPressure,
        Self::DiskBusy,
        Self::DiskLatency,
        Self::Battery,
        Self::Temperature,
        Self::Wear,
    ];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IoPressure => "io-pressure",
            Self::CpuPressure => "cpu-pressure",
            Self::DiskBusy => "disk-busy",
            Self::DiskLatency => "disk-latency",
            Self::Battery => "battery",
            Self::Temperature => "temperature",
            Self::Wear => "wear",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::IoPressure => "others wait for I/O",
            Self::CpuPressure => "others wait for a processor",
            Self::DiskBusy => "the disk is busy",
            Self::DiskLatency => "the disk takes long",
            Self::Battery => "the machine runs on battery",
            Self::Temperature => "the drive is warm",
            Self::Wear => "the drive is worn",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::IoPressure | Self::CpuPressure | Self::DiskBusy => " % of the time",
            Self::DiskLatency => " ms for a request",
            Self::Battery => "",
            Self::Temperature => " °C",
            Self::Wear => " % of its endurance used",
        }
    }

    /// Whether a value is so far below its limit that work may begin again after a pause.
    pub(super) fn is_calm(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Battery | Self::Wear => value < limit,
            Self::Temperature => value <= limit - 5.0,
            Self::IoPressure | Self::CpuPressure | Self::DiskBusy | Self::DiskLatency => {
                value <= limit * 0.7
            }
        }
    }
}

/// A quantity, of the machine or of one drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// What was looked at.
    pub quantity: Quantity,
    /// The drive, where it is of one.
    pub drive: Option<String>,
    /// Its value, or why there is none.
    pub value: Result<f64, CannotTell>,
    /// Work pauses from this value on.
    pub limit: f64,
}

impl Reading {
    /// Whether work has to pause for it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.value.as_ref().is_ok_and(|value| *value >= self.limit)
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(drive) = &self.drive {
            write!(f, "{drive}: ")?;
        }
        let (what, limit) = (self.quantity, self.limit);
        match &self.value {
            Err(why) => write!(f, "{}: cannot tell: {why}", what.as_str()),
            Ok(1.0) if what == Quantity::Battery => f.write_str(what.words()),
            Ok(_) if what == Quantity::Battery => f.write_str("the machine runs on mains"),
            Ok(value) => write!(
                f,
                "{} ({value:.1}{}, the limit is {limit})",
                what.words(),
                what.unit()
            ),
        }
    }
}

/// Why a quantity is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotTell {
    /// The kernel has no such file, as it was built or configured.
    #[error("there is no /{0}")]
    NoFile(String),
    /// A file could not be read.
    #[error("/{path}: {why}")]
    Unreadable {
        /// Which.
        path: String,
        /// The kernel's words.
        why: String,
    },
    /// A file holds something else than it should.
    #[error("/{0} is not understood")]
    NotUnderstood(String),
    /// It takes two looks, some time apart, in which we do nothing.
    #[error("not looked at for long enough yet")]
    TooEarly,
    /// While we work, our own part of it cannot be told apart.
    #[error("our own work is in it, and cannot be told apart")]
    OwnWork,
    /// The drive is of a kind that the kernel does not ask.
    #[error("the kernel does not tell it of this drive")]
    NotTold,
    /// Only root may ask.
    #[error("only root (CAP_SYS_ADMIN) may ask the drive")]
    NotPermitted,
    /// The file system is on no drive that can be found.
    #[error("no drive is known")]
    NoDrive,
    /// The drive does not answer.
    #[error("the drive does not answer: {0}")]
    NoAnswer(String),
}

/// From which values on work pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// [`Quantity::IoPressure`], in percent.
    pub io_pressure: f64,
    /// [`Quantity::CpuPressure`], in percent.
    pub cpu_pressure: f64,
    /// [`Quantity::DiskBusy`], in percent.
    pub disk_busy: f64,
    /// [`Quantity::DiskLatency`], in milliseconds.
    pub disk_latency_ms: f64,
    /// [`Quantity::Temperature`], in degrees Celsius.
    pub temperature: f64,
    /// [`Quantity::Wear`], in percent.
    pub wear: f64,
    /// Work on battery, too.
    pub on_battery: bool,
    /// What cannot be told pauses as well.
    pub cautious: bool,
    /// For how long all readings have to be calm after a pause.
    pub calm: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            io_pressure: 10.0,
            cpu_pressure: 50.0,
            disk_busy: 40.0,
            disk_latency_ms: 50.0,
            temperature: 65.0,
            wear: 80.0,
            on_battery: false,
            cautious: false,
            calm: Duration::from_secs(30),
        }
    }
}

impl Limits {
    pub(super) fn of(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::IoPressure => self.io_pressure,
            Quantity::CpuPressure => self.cpu_pressure,
            Quantity::DiskBusy => self.disk_busy,
            Quantity::DiskLatency => self.disk_latency_ms,
            // No value is as high.
            Quantity::Battery if self.on_battery => f64::INFINITY,
            Quantity::Battery => 1.0,
            Quantity::Temperature => self.temperature,
            Quantity::Wear => self.wear,
        }
    }
}
