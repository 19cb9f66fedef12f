//! The devices that are compared: small ones, with times of a few nanoseconds.

use flash_model::Profile;

pub(crate) const SECTOR: u64 = 512;
pub(crate) const PAGE: u64 = 4096;
pub(crate) const DIES: u64 = 4;
pub(crate) const CHANNELS: u64 = 2;
pub(crate) const ZONE: u64 = 128 << 10;
pub(crate) const ZONES: u64 = 4;
pub(crate) const READ: u64 = 50;
pub(crate) const PROGRAM: u64 = 300;
pub(crate) const ERASE: u64 = 900;
pub(crate) const WAIT: u64 = 700;
pub(crate) const HORIZON: usize = 600_000;
/// Pages of a queue that may pass one whose data is not there yet.
pub(crate) const LOOK_AHEAD: usize = 8;
/// The properties that vary between devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) cache_register: bool,
    pub(crate) interleave: u64,
    pub(crate) zone_dies: u64,
    pub(crate) transfer: u64,
    pub(crate) link: u64,
    pub(crate) drain: u64,
    pub(crate) buffer: u64,
    /// Bits of a cell, and so types of pages.
    pub(crate) types: u64,
}

/// The names of the types of pages, by bits of a cell.
const TYPES: [&[&str]; 4] = [
    &[""],
    &["_lsb", "_msb"],
    &["_lsb", "_csb", "_msb"],
    &["_lsb", "_csb1", "_csb2", "_msb"],
];

impl Variant {
    /// The type of a page of a zone, of 8 pages in each flash block.
    fn page_type(&self, page: u64) -> u64 {
        page / self.zone_dies % 8 % self.types
    }

    /// Time for which a page of a zone is sensed.
    pub(crate) fn read(&self, page: u64) -> u64 {
        READ + 20 * self.page_type(page)
    }

    /// Time for which a page of a zone is programmed.
    pub(crate) fn program(&self, page: u64) -> u64 {
        PROGRAM + 170 * self.page_type(page)
    }

    /// Returns the device as a profile of the model.
    pub(crate) fn profile(&self) -> Profile {
        let mut text = include_str!("../../profiles/indef-femu.toml").to_owned();
        for (key, value, unit) in [
            ("channels", CHANNELS.to_string(), "count"),
            ("dies_per_channel", (DIES / CHANNELS).to_string(), "count"),
            ("page", PAGE.to_string(), "B"),
            ("pages_per_block", "8".to_owned(), "count"),
            ("unit", PAGE.to_string(), "B"),
            ("erase", ERASE.to_string(), "ns"),
            ("transfer", self.transfer.to_string(), "ns/page"),
            ("cache_register", self.cache_register.to_string(), "flag"),
            ("program_wait", WAIT.to_string(), "ns"),
            ("read_latency", "3".to_owned(), "ns"),
            ("read_serial", "2".to_owned(), "ns"),
            ("write_latency", "5".to_owned(), "ns"),
            ("write_serial", "1".to_owned(), "ns"),
            ("link", self.link.to_string(), "ns/page"),
            ("drain", self.drain.to_string(), "ns/page"),
            ("interleave", self.interleave.to_string(), "B"),
            ("dies", self.zone_dies.to_string(), "count"),
            ("size", ZONE.to_string(), "B"),
            ("capacity", ZONE.to_string(), "B"),
            ("logical_page", PAGE.to_string(), "B"),
        ] {
            let start = text.find(&format!("\n{key} = ")).unwrap() + 1;
            // There is a size of the buffer and one of the zones.
            let start = if key == "size" {
                text.rfind("\nsize = ").unwrap() + 1
            } else {
                start
            };
            let end = start + text[start..].find('\n').unwrap();
            let line = format!(
                "{key} = {{ value = {value}, unit = \"{unit}\", kind = \"assumed\", source = \"test\" }}"
            );
            text.replace_range(start..end, &line);
        }
        let start = text.find("\nsize = ").unwrap() + 1;
        let end = start + text[start..].find('\n').unwrap();
        let line = format!(
            "size = {{ value = {}, unit = \"B\", kind = \"assumed\", source = \"test\" }}",
            self.buffer
        );
        text.replace_range(start..end, &line);
        let line = |key: &str, value: u64, unit: &str| {
            format!(
                "{key} = {{ value = {value}, unit = \"{unit}\", kind = \"assumed\", source = \"test\" }}\n"
            )
        };
        for (key, first, more) in [("read", READ, 20), ("program", PROGRAM, 170)] {
            let start = text.find(&format!("\n{key} = ")).unwrap() + 1;
            let end = start + text[start..].find('\n').unwrap() + 1;
            let names = (0..).zip(TYPES[self.types as usize - 1]);
            let times =
                names.map(|(at, name)| line(&format!("{key}{name}"), first + at * more, "ns"));
            text.replace_range(start..end, &times.collect::<String>());
        }
        let bits = line("bits_per_cell", self.types, "count");
        let text = text.replace("[flash]\n", &format!("[flash]\n{bits}"));
        Profile::parse("test", &text).unwrap()
    }
}
