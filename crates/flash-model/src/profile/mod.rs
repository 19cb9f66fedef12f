//! The numbers that make a device: sizes and times, each with unit, source and kind.
//!
//! A profile is a TOML file in which every number looks like
//! `read = { value = 80, unit = "us", source = "InDeF Table I", kind = "paper" }`. A number that is
//! missing, unknown, without a source, or out of range is refused with its line.

mod error;
mod fields;
mod parameter;
mod parse;
mod slc;
#[cfg(test)]
mod tests;

use units::Bytes;

pub use self::{
    error::{ProfileError, ProfileMistake, ValueFault},
    parameter::{Kind, Parameter, Value},
};
use self::{fields::Fields, parse::ProfileText, slc::SlcParameters};
use crate::{
    flash::{BITS_MAX, DieTimes, PageTimes, Planes, Rate, SuspendTimes},
    ftl::{FtlOptions, HANDLES_MAX, RESERVED_BLOCKS, VictimChoice},
    geometry::{FlashGeometry, ZoneGeometry},
};

/// Names of the built-in profiles.
pub const BUILTIN: [&str; 12] = [
    "indef-femu",
    "indef-femu-16k",
    "fast24",
    "zn540",
    "tlc",
    "qlc",
    "fdp",
    "optane-905p",
    "sata-850-pro",
    "sata-mx500",
    "microsd",
    "zero",
];

/// The time after which a device counts as idle where its profile names none, in nanoseconds.
const IDLE_AFTER: u64 = 10_000_000;
/// Pages of a read cache at most; it is searched from end to end.
const READ_CACHE_PAGES_MAX: u64 = 1024;

/// Time that the controller takes for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandTimes {
    /// Before flash and buffer are asked; many commands at once.
    pub(crate) latency: u64,
    /// One command after the other.
    pub(crate) serial: u64,
}

/// The times of all operations that take time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) die: DieTimes,
    /// The time for which queued programs and erases let host reads go first.
    pub(crate) program_wait: u64,
    pub(crate) read: CommandTimes,
    pub(crate) write: CommandTimes,
    pub(crate) append: CommandTimes,
    /// Each direction of the host link.
    pub(crate) link: Rate,
    /// Device-wide, from the buffer to flash.
    pub(crate) drain: Rate,
    /// Whether the buffer outlives a loss of power: then a flush has nothing to do.
    pub(crate) buffer_protected: bool,
    pub(crate) reset_latency: u64,
    pub(crate) reset_proportional: bool,
    pub(crate) finish_latency: u64,
    /// The collector has time for itself when no command came, and nothing was done, for this long.
    pub(crate) idle_after: u64,
    /// Migrated pages that are in motion at once.
    pub(crate) migration_window: usize,
}

/// The parameters of a conventional namespace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FtlParameters {
    pub(crate) logical_page: u64,
    pub(crate) over_provisioning_percent: f64,
    pub(crate) options: FtlOptions,
    pub(crate) slc: SlcParameters,
    /// Reclaim unit handles; 0: the host cannot name one.
    pub(crate) handles: u32,
}

impl FtlParameters {
    /// Returns whether the FTL works while nobody waits.
    pub(crate) fn uses_idle_time(&self) -> bool {
        self.options.collect_idle > 0 || self.slc.percent > 0.0
    }
}

/// The numbers that make a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    description: String,
    parameters: Vec<Parameter>,
    geometry: FlashGeometry,
    buffer: Bytes,
    endurance: u32,
    /// Whether each plane of a die reads on its own.
    pub(crate) independent_planes: bool,
    /// Pages that the controller's read cache holds; 0: there is none.
    pub(crate) read_cache_pages: usize,
    pub(crate) timing: Timing,
    pub(crate) ftl: FtlParameters,
    instant: bool,
}

impl Profile {
    /// A built-in profile; one of [`BUILTIN`].
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        let text = Self::builtin_text(name)?;
        // The profiles are part of the program, and a test reads them all.
        Some(Self::parse(name, text).unwrap_or_else(|error| panic!("built-in profile {error}")))
    }

    /// Returns the TOML text of a built-in profile, for a profile of one's own to start from.
    #[must_use]
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        Some(match name {
            "indef-femu" => include_str!("../../profiles/indef-femu.toml"),
            "indef-femu-16k" => include_str!("../../profiles/indef-femu-16k.toml"),
            "fast24" => include_str!("../../profiles/fast24.toml"),
            "zn540" => include_str!("../../profiles/zn540.toml"),
            "tlc" => include_str!("../../profiles/tlc.toml"),
            "qlc" => include_str!("../../profiles/qlc.toml"),
            "fdp" => include_str!("../../profiles/fdp.toml"),
            "optane-905p" => include_str!("../../profiles/optane-905p.toml"),
            "sata-850-pro" => include_str!("../../profiles/sata-850-pro.toml"),
            "sata-mx500" => include_str!("../../profiles/sata-mx500.toml"),
            "microsd" => include_str!("../../profiles/microsd.toml"),
            "zero" => include_str!("../../profiles/zero.toml"),
            _ => return None,
        })
    }

    /// Reads a profile; `file_name` only goes into messages.
    ///
    /// # Errors
    /// The first part of it that cannot be used.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ProfileError> {
        let source = ProfileText::parse(file_name, text)?;
        let mut fields = Fields::new(&source);
        let geometry = geometry(&mut fields)?;
        let buffer = fields.bytes("buffer.size", 512)?;
        let independent_planes = fields.flag_or("flash.independent_planes", false)?;
        if independent_planes && geometry.planes > Planes::MAX {
            let (planes, most) = (geometry.planes, Planes::MAX);
            let fault = ValueFault::Planes { planes, most };
            return Err(fields.error("flash.independent_planes", fault));
        }
        let bits = bits_per_cell(&mut fields)?;
        let mut timing = timing(&mut fields, &geometry, bits)?;
        let slc = SlcParameters::read(&mut fields, &mut timing.die, &geometry, bits)?;
        let read_cache = fields.bytes_or("buffer.read_cache", 0, Bytes(0))?;
        let endurance = fields.count_or("flash.endurance", 0, 0)?;
        let logical_page = fields.bytes("ftl.logical_page", 512)?.0;
        let ftl = FtlParameters {
            logical_page,
            over_provisioning_percent: fields.percent("ftl.over_provisioning")?,
            options: ftl_options(&mut fields)?,
            slc,
            handles: fields.count_or("ftl.reclaim_unit_handles", 0, 0)?,
        };
        if ftl.handles > HANDLES_MAX {
            let (count, most) = (ftl.handles, HANDLES_MAX);
            let fault = ValueFault::TooMany { count, most };
            return Err(fields.error("ftl.reclaim_unit_handles", fault));
        }
        let unit = geometry.program_unit();
        if ftl.options.in_place && (unit.0 != logical_page || ftl.slc.percent > 0.0) {
            return Err(fields.error("ftl.in_place", ValueFault::NotInPlace(unit)));
        }
        if !unit.0.is_multiple_of(logical_page) {
            return Err(fields.error("ftl.logical_page", ValueFault::LogicalPage(unit)));
        }
        if buffer < unit * 2 {
            return Err(fields.error("buffer.size", ValueFault::SmallBuffer(unit * 2)));
        }
        if !read_cache.0.is_multiple_of(unit.0) || read_cache > unit * READ_CACHE_PAGES_MAX {
            let most = unit * READ_CACHE_PAGES_MAX;
            return Err(fields.error("buffer.read_cache", ValueFault::ReadCache { unit, most }));
        }
        fields.nothing_left()?;
        Ok(Self {
            instant: timing.is_instant(),
            name: source.name,
            description: source.description,
            parameters: source.parameters,
            geometry,
            buffer,
            endurance,
            independent_planes,
            read_cache_pages: (read_cache.0 / unit.0) as usize,
            timing,
            ftl,
        })
    }

    /// Short name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its description, in a sentence.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Every number with its unit, source and kind, in the order of the file.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Parallel units and sizes.
    #[must_use]
    pub const fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    /// Size of the write buffer.
    #[must_use]
    pub const fn buffer_size(&self) -> Bytes {
        self.buffer
    }

    /// Whether the write buffer outlives a loss of power: then no acknowledged write is volatile.
    #[must_use]
    pub const fn is_buffer_protected(&self) -> bool {
        self.timing.buffer_protected
    }

    /// Erases that a flash block is rated for; none if it is not rated.
    #[must_use]
    pub const fn endurance(&self) -> Option<u32> {
        match self.endurance {
            0 => None,
            rated => Some(rated),
        }
    }

    /// Returns the reclaim unit handles of each conventional namespace; 0: the host names none.
    #[must_use]
    pub const fn reclaim_unit_handles(&self) -> u32 {
        self.ftl.handles
    }

    /// Whether every command is done when it is submitted.
    #[must_use]
    pub const fn is_instant(&self) -> bool {
        self.instant
    }
}

impl Timing {
    fn is_instant(&self) -> bool {
        let die = &self.die;
        let all = [self.read, self.write, self.append];
        die.read.longest()
            + die.program.longest()
            + die.erase
            + self.reset_latency
            + self.finish_latency
            == 0
            && all.iter().all(|times| times.latency + times.serial == 0)
            && [die.transfer, self.link, self.drain]
                .iter()
                .all(|rate| rate.time(1 << 20) == 0)
    }
}

fn geometry(fields: &mut Fields<'_>) -> Result<FlashGeometry, ProfileError> {
    let geometry = FlashGeometry {
        channels: fields.count("geometry.channels", 1)?,
        dies_per_channel: fields.count("geometry.dies_per_channel", 1)?,
        planes: fields.count("geometry.planes", 1)?,
        page: fields.bytes("geometry.page", 512)?,
        pages_per_block: fields.count("geometry.pages_per_block", 1)?,
        unit: fields.bytes("geometry.unit", 512)?,
        zone: ZoneGeometry {
            size: fields.bytes("zones.size", 512)?,
            capacity: fields.bytes("zones.capacity", 512)?,
            interleave: fields.bytes("zones.interleave", 512)?,
            dies: fields.count("zones.dies", 1)?,
            max_active: fields.count("zones.max_active", 0)?,
            max_open: fields.count("zones.max_open", 0)?,
        },
    };
    let zone = &geometry.zone;
    let unit = geometry.program_unit();
    let row = unit * u64::from(zone.dies);
    if geometry.dies() > 4096 {
        let fault = ValueFault::TooManyDies(geometry.dies());
        return Err(fields.error("geometry.dies_per_channel", fault));
    }
    for (key, wrong, fault) in [
        (
            "geometry.unit",
            !geometry.unit.0.is_multiple_of(unit.0),
            ValueFault::NotOfPrograms(unit),
        ),
        (
            "geometry.unit",
            !(unit * u64::from(geometry.pages_per_block))
                .0
                .is_multiple_of(geometry.unit.0),
            ValueFault::PartsOfUnits,
        ),
        (
            "zones.dies",
            zone.dies > geometry.dies(),
            ValueFault::Dies(geometry.dies()),
        ),
        (
            "zones.interleave",
            !unit.0.is_multiple_of(zone.interleave.0),
            ValueFault::NotPartOfPrograms(unit),
        ),
        (
            "zones.capacity",
            zone.capacity > zone.size || !zone.capacity.0.is_multiple_of(row.0),
            ValueFault::Capacity(row),
        ),
        (
            "zones.size",
            !zone.size.0.is_power_of_two(),
            ValueFault::NoPowerOfTwo,
        ),
        (
            "zones.max_open",
            zone.max_active != 0 && (zone.max_open > zone.max_active || zone.max_open == 0),
            ValueFault::MaxOpen(zone.max_active),
        ),
    ] {
        if wrong {
            return Err(fields.error(key, fault));
        }
    }
    Ok(geometry)
}

/// The policy of the FTL. All of it may be left out.
fn ftl_options(fields: &mut Fields<'_>) -> Result<FtlOptions, ProfileError> {
    let usual = FtlOptions::default();
    let least = u64::from(RESERVED_BLOCKS) + 1;
    Ok(FtlOptions {
        collect_below: fields.count_or("ftl.collect_below", least, usual.collect_below)?,
        collect_idle: fields.count_or("ftl.collect_idle", 0, usual.collect_idle)?,
        victim: if fields.flag_or(
            "ftl.cost_benefit",
            usual.victim == VictimChoice::CostBenefit,
        )? {
            VictimChoice::CostBenefit
        } else {
            VictimChoice::Greedy
        },
        wear_spread: fields.count_or("ftl.wear_spread", 1, usual.wear_spread)?,
        die_wear_spread: fields.count_or("ftl.die_wear_spread", 1, usual.die_wear_spread)?,
        separate_parts: fields.flag_or("ftl.separate_parts", usual.separate_parts)?,
        in_place: fields.flag_or("ftl.in_place", usual.in_place)?,
    })
}

/// Types of pages, in the order in which they take turns in a block, for cells of 2, 3 and 4 bits.
const PAGE_TYPES: [&[&str]; BITS_MAX] = [
    &[],
    &["lsb", "msb"],
    &["lsb", "csb", "msb"],
    &["lsb", "csb1", "csb2", "msb"],
];

/// The times of a page operation: one for all pages, or one for each type of page.
fn page_times(
    fields: &mut Fields<'_>,
    bits: u32,
    operation: &str,
) -> Result<PageTimes, ProfileError> {
    let types = PAGE_TYPES[bits as usize - 1];
    let keys = types.iter().map(|name| format!("{operation}_{name}"));
    let keys: Vec<String> = keys.collect();
    if !keys.iter().any(|key| fields.has(key)) {
        return Ok(PageTimes::new(&[fields.nanos(operation)?]));
    }
    if fields.has(operation) {
        return Err(fields.error(operation, ValueFault::Beside(keys)));
    }
    let times = keys.iter().map(|key| fields.nanos(key));
    Ok(PageTimes::new(&times.collect::<Result<Vec<_>, _>>()?))
}

/// The price of suspending; an erase has that of a program where the profile does not tell.
fn suspend_times(fields: &mut Fields<'_>) -> Result<Option<SuspendTimes>, ProfileError> {
    let Some(program) = fields.nanos_or_never("flash.suspend")? else {
        return Ok(None);
    };
    let erase = fields.nanos_or("flash.suspend_erase", program)?;
    Ok(Some(SuspendTimes { program, erase }))
}

fn bits_per_cell(fields: &mut Fields<'_>) -> Result<u32, ProfileError> {
    let bits = fields.count_or("flash.bits_per_cell", 1, 1)?;
    if bits as usize > BITS_MAX {
        let (least, most) = (1, BITS_MAX as u64);
        let fault = ValueFault::OutOfRange { least, most };
        return Err(fields.error("flash.bits_per_cell", fault));
    }
    Ok(bits)
}

fn timing(
    fields: &mut Fields<'_>,
    geometry: &FlashGeometry,
    bits: u32,
) -> Result<Timing, ProfileError> {
    let mut command = |name: &str| -> Result<CommandTimes, ProfileError> {
        Ok(CommandTimes {
            latency: fields.nanos(&format!("host.{name}_latency"))?,
            serial: fields.nanos(&format!("host.{name}_serial"))?,
        })
    };
    let (read, write, append) = (command("read")?, command("write")?, command("append")?);
    Ok(Timing {
        read,
        write,
        append,
        die: DieTimes {
            read: page_times(fields, bits, "flash.read")?,
            program: page_times(fields, bits, "flash.program")?,
            erase: fields.nanos("flash.erase")?,
            transfer: fields.rate("flash.transfer", geometry.page)?,
            transfer_unit: fields.bytes("flash.transfer_unit", 0)?.0,
            cache_register: fields.flag("flash.cache_register")?,
            suspend: suspend_times(fields)?,
        },
        program_wait: fields.nanos("flash.program_wait")?,
        link: fields.rate("host.link", geometry.page)?,
        drain: fields.rate("buffer.drain", geometry.page)?,
        buffer_protected: fields.flag("buffer.protected")?,
        reset_latency: fields.nanos("zones.reset_latency")?,
        reset_proportional: fields.flag("zones.reset_proportional")?,
        finish_latency: fields.nanos("zones.finish_latency")?,
        idle_after: fields.nanos_or("ftl.idle_after", IDLE_AFTER)?,
        migration_window: fields.count("migration.window", 1)? as usize,
    })
}
