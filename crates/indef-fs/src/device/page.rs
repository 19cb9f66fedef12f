//! Log page DBh, as `linux_abi::nvme::geometry` lays it out, turned into a geometry. It comes from outside:
//! nothing in it is believed.

use indef_core::layout::Geometry;
use linux_abi::nvme::geometry::{GEOMETRY_MAGIC, GeometryLog, NamespaceEntry};
use units::Bytes;

/// More are not believed; also bounds memory.
const DIES_MAX: u32 = 4096;

/// Why log page DBh gives no geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The device refused the command with this status: code type and code.
    #[error("status {0:03X}h")]
    Status(u16),
    /// Not even the header is there.
    #[error("it is too short")]
    TooShort,
    /// A length that cannot be.
    #[error("it is too long")]
    TooLong,
    /// The page of another vendor.
    #[error("page DBh holds something else")]
    Foreign,
    /// Version 0.
    #[error("it has no version")]
    NoVersion,
    /// The entries are shorter than those of version 1.
    #[error("its entries are too short")]
    ShortEntries,
    /// No entry is that of the namespace.
    #[error("it does not tell of namespace {0}")]
    NoNamespace(u32),
    /// The namespace is a conventional one.
    #[error("it says that namespace {0} has no zones")]
    NotZoned(u32),
    /// No dies, or too many.
    #[error("its number of dies makes no sense")]
    Dies,
    /// A zone on no die, or on more dies than there are.
    #[error("its number of dies for a zone makes no sense")]
    ZoneDies,
    /// Zones that are empty, too large, or no multiple of the bytes that go to one die.
    #[error("its zones make no sense")]
    Zones,
}

fn header(log: &[u8]) -> Result<GeometryLog, PageError> {
    let header = GeometryLog::first_of(log).ok_or(PageError::TooShort)?;
    if header.magic != GEOMETRY_MAGIC {
        return Err(PageError::Foreign);
    }
    if header.version.get() == 0 {
        return Err(PageError::NoVersion);
    }
    Ok(header)
}

/// The length that the page gives for itself.
pub(super) fn length(log: &[u8]) -> Result<usize, PageError> {
    usize::try_from(header(log)?.len.get()).map_err(|_| PageError::TooLong)
}

/// The geometry of a zoned namespace whose addresses begin at `start`.
pub(super) fn zoned_geometry(log: &[u8], nsid: u32, start: Bytes) -> Result<Geometry, PageError> {
    let header = header(log)?;
    let namespace = namespace(log, &header, nsid)?;
    if namespace.zoned != 1 {
        return Err(PageError::NotZoned(nsid));
    }
    let dies = header
        .channels
        .get()
        .checked_mul(header.dies_per_channel.get())
        .filter(|dies| (1..=DIES_MAX).contains(dies))
        .ok_or(PageError::Dies)?;
    let zone_dies = namespace.zone_dies.get();
    let (zone, interleave) = (namespace.zone_size.get(), namespace.interleave.get());
    if zone_dies == 0 || zone_dies > dies {
        return Err(PageError::ZoneDies);
    }
    if interleave < 512 || !zone.is_multiple_of(interleave) || zone == 0 || zone > 1 << 40 {
        return Err(PageError::Zones);
    }
    Ok(Geometry::Zoned {
        chips: dies,
        block: Bytes(interleave),
        segment: Bytes(zone),
        segment_chips: zone_dies,
        offset: start,
    })
}

fn namespace(log: &[u8], header: &GeometryLog, nsid: u32) -> Result<NamespaceEntry, PageError> {
    let size = usize::from(header.namespace_entry.get());
    let from = header.namespaces_at.get() as usize;
    if size < NamespaceEntry::LEN {
        return Err(PageError::ShortEntries);
    }
    let entries = log.get(from..).unwrap_or_default().chunks_exact(size);
    entries
        .take(header.namespaces.get() as usize)
        .filter_map(NamespaceEntry::first_of)
        .find(|entry| entry.nsid.get() == nsid)
        .ok_or(PageError::NoNamespace(nsid))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    fn page() -> Vec<u8> {
        let mut header = GeometryLog::zeroed();
        header.magic = GEOMETRY_MAGIC;
        header.version.set(1);
        header.namespace_entry.set(80);
        header.namespaces_at.set(600);
        header.namespaces.set(2);
        header.len.set(760);
        header.channels.set(8);
        header.dies_per_channel.set(2);
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize(600, 0);
        for (nsid, zoned) in [(1, 0), (7, 1)] {
            let mut entry = NamespaceEntry::zeroed();
            entry.nsid.set(nsid);
            entry.zoned = zoned;
            entry.zone_size.set(32 << 20);
            entry.interleave.set(4096);
            entry.zone_dies.set(4);
            bytes.extend_from_slice(entry.as_bytes());
            bytes.resize(bytes.len() + 16, 0);
        }
        bytes
    }

    #[test]
    fn a_page_is_a_geometry() {
        let page = page();
        assert_eq!(length(&page), Ok(760));
        let geometry = zoned_geometry(&page, 7, Bytes::mib(64)).unwrap();
        assert_eq!(
            geometry.to_string(),
            "zoned:chips=16,block=4KiB,segment=32MiB,segment-chips=4,offset=64MiB"
        );
        for nsid in [0, 1, 2] {
            assert!(zoned_geometry(&page, nsid, Bytes::ZERO).is_err());
        }
    }

    #[test]
    fn pages_of_others_are_refused() {
        let error = length(&[0; 512]).unwrap_err().to_string();
        assert!(error.contains("something else"));
        assert!(length(&[0; 100]).is_err());
    }

    proptest! {
        #[test]
        fn no_page_panics(at in prop::collection::vec((8usize..760, any::<u8>()), 0..30), cut in 0usize..800) {
            let mut bytes = page();
            for (place, value) in at {
                bytes[place] = value;
            }
            bytes.truncate(cut);
            if let Ok(geometry) = zoned_geometry(&bytes, 7, Bytes::ZERO) {
                prop_assert!(geometry.contiguous_dopf(Bytes::mib(1)).is_finite());
            }
        }
    }
}
