//! Takes parameters by name and turns them into the model's units.

use units::Bytes;

use super::{
    error::{ProfileError, ProfileMistake, ValueFault},
    parameter::{Parameter, Value},
    parse::ProfileText,
};
use crate::flash::Rate;

/// The parameters that were not asked for yet.
pub(super) struct Fields<'a> {
    source: &'a ProfileText<'a>,
    left: Vec<&'a Parameter>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(source: &'a ProfileText<'a>) -> Self {
        Self {
            source,
            left: source.parameters.iter().collect(),
        }
    }

    /// An error in the line of that parameter.
    pub(super) fn error(&self, key: &str, fault: ValueFault) -> ProfileError {
        let line = self
            .source
            .parameters
            .iter()
            .find(|p| p.key == key)
            .map_or(1, |p| p.line);
        let key = key.to_owned();
        self.source
            .error(line, ProfileMistake::Parameter { key, fault })
    }

    /// Checks that no parameter is left: one that was not asked for is a mistake in the profile.
    pub(super) fn nothing_left(&self) -> Result<(), ProfileError> {
        match self.left.first() {
            None => Ok(()),
            Some(parameter) => {
                let unknown = ProfileMistake::UnknownParameter(parameter.key.clone());
                Err(self.source.error(parameter.line, unknown))
            }
        }
    }

    fn take(&mut self, key: &str) -> Result<&'a Parameter, ProfileError> {
        let at = self
            .left
            .iter()
            .position(|parameter| parameter.key == key)
            .ok_or_else(|| {
                let (table, name) = key.split_once('.').unwrap_or(("", key));
                let (table, name) = (table.to_owned(), name.to_owned());
                self.source
                    .error(1, ProfileMistake::NoParameter { table, name })
            })?;
        Ok(self.left.remove(at))
    }

    /// A number, and the factor of its unit among those given.
    fn number(
        &mut self,
        key: &str,
        units: &[(&'static str, f64)],
    ) -> Result<(f64, f64), ProfileError> {
        let parameter = self.take(key)?;
        let Value::Number(number) = parameter.value else {
            return Err(self.error(key, ValueFault::NoNumber));
        };
        match units.iter().find(|unit| unit.0 == parameter.unit) {
            Some(unit) => Ok((number, unit.1)),
            None => {
                let unit = parameter.unit.clone();
                let known = units.iter().map(|unit| unit.0).collect();
                Err(self.error(key, ValueFault::Unit { unit, known }))
            }
        }
    }

    /// A whole number of at least `least` after its unit was applied.
    fn whole(
        &mut self,
        key: &str,
        units: &[(&'static str, f64)],
        least: u64,
        most: u64,
    ) -> Result<u64, ProfileError> {
        let (number, factor) = self.number(key, units)?;
        let value = number * factor;
        if value.fract() != 0.0 {
            return Err(self.error(key, ValueFault::NotWhole(number)));
        }
        if value < least as f64 || value > most as f64 {
            return Err(self.error(key, ValueFault::OutOfRange { least, most }));
        }
        Ok(value as u64)
    }

    pub(super) fn count(&mut self, key: &str, least: u64) -> Result<u32, ProfileError> {
        self.whole(key, &[("count", 1.0)], least, 1 << 20)
            .map(|count| count as u32)
    }

    /// Whether the profile has that parameter, and it was not asked for yet. Profiles of an earlier
    /// version have none that was added since.
    pub(super) fn has(&self, key: &str) -> bool {
        self.left.iter().any(|parameter| parameter.key == key)
    }

    /// A count, or `otherwise` where the profile has none.
    pub(super) fn count_or(
        &mut self,
        key: &str,
        least: u64,
        otherwise: u32,
    ) -> Result<u32, ProfileError> {
        if self.has(key) {
            self.count(key, least)
        } else {
            Ok(otherwise)
        }
    }

    /// A size, or `otherwise` where the profile has none.
    pub(super) fn bytes_or(
        &mut self,
        key: &str,
        least: u64,
        otherwise: Bytes,
    ) -> Result<Bytes, ProfileError> {
        if self.has(key) {
            self.bytes(key, least)
        } else {
            Ok(otherwise)
        }
    }

    /// A flag, or `otherwise` where the profile has none.
    pub(super) fn flag_or(&mut self, key: &str, otherwise: bool) -> Result<bool, ProfileError> {
        if self.has(key) {
            self.flag(key)
        } else {
            Ok(otherwise)
        }
    }

    pub(super) fn bytes(&mut self, key: &str, least: u64) -> Result<Bytes, ProfileError> {
        let units = [
            ("B", 1.0),
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("GiB", 1_073_741_824.0),
        ];
        let bytes = self.whole(key, &units, least, 1 << 40)?;
        if !bytes.is_multiple_of(crate::SECTOR) {
            return Err(self.error(key, ValueFault::NotOfSectors(crate::SECTOR)));
        }
        Ok(Bytes(bytes))
    }

    pub(super) fn percent(&mut self, key: &str) -> Result<f64, ProfileError> {
        let (number, _) = self.number(key, &[("percent", 1.0)])?;
        if number > 1000.0 {
            return Err(self.error(key, ValueFault::TooMuch("1000")));
        }
        Ok(number)
    }

    pub(super) fn nanos(&mut self, key: &str) -> Result<u64, ProfileError> {
        let (number, factor) =
            self.number(key, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])?;
        let nanos = (number * factor).round();
        if nanos > 1e12 {
            return Err(self.error(key, ValueFault::TooMuch("1000 s")));
        }
        Ok(nanos as u64)
    }

    /// A time, or `otherwise` where the profile has none.
    pub(super) fn nanos_or(&mut self, key: &str, otherwise: u64) -> Result<u64, ProfileError> {
        if self.has(key) {
            self.nanos(key)
        } else {
            Ok(otherwise)
        }
    }

    /// A time, or `false` (unit `flag`) for never.
    pub(super) fn nanos_or_never(&mut self, key: &str) -> Result<Option<u64>, ProfileError> {
        let never = self
            .left
            .iter()
            .any(|p| p.key == key && p.value == Value::Flag(false) && p.unit == "flag");
        if never {
            return self.take(key).map(|_| None);
        }
        self.nanos(key).map(Some)
    }

    pub(super) fn flag(&mut self, key: &str) -> Result<bool, ProfileError> {
        let parameter = self.take(key)?;
        match parameter.value {
            Value::Flag(flag) if parameter.unit == "flag" => Ok(flag),
            _ => Err(self.error(key, ValueFault::NoFlag)),
        }
    }

    /// Bytes a second, 0 for unlimited, or the time of a page.
    pub(super) fn rate(&mut self, key: &str, page: Bytes) -> Result<Rate, ProfileError> {
        const TIMES: [(&str, f64); 2] = [("us/page", 1e3), ("ns/page", 1.0)];
        let in_time = self
            .left
            .iter()
            .any(|p| p.key == key && p.unit.ends_with("/page"));
        if in_time {
            let (number, factor) = self.number(key, &TIMES)?;
            return Ok(Rate::new(page.0, (number * factor).round() as u64));
        }
        let units = [
            ("MB/s", 1e6),
            ("GB/s", 1e9),
            ("MiB/s", 1_048_576.0),
            ("us/page", 0.0),
        ];
        let (number, factor) = self.number(key, &units)?;
        let rate = (number * factor).round();
        if rate > 1e15 {
            return Err(self.error(key, ValueFault::TooMuch("1,000,000 GB/s; 0: unlimited")));
        }
        if rate == 0.0 {
            Ok(Rate::UNLIMITED)
        } else {
            Ok(Rate::new(rate as u64, 1_000_000_000))
        }
    }
}
