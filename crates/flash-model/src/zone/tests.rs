use units::Bytes;

use super::*;
use crate::{command::Refused, command::ZoneAction, geometry::ZoneGeometry};

const MIB: u64 = 1 << 20;

fn table(max_active: u32, max_open: u32) -> ZoneTable {
    let geometry = ZoneGeometry {
        size: Bytes::mib(4),
        capacity: Bytes::mib(3),
        interleave: Bytes::kib(4),
        dies: 4,
        max_active,
        max_open,
    };
    ZoneTable::new(32 * MIB, &geometry)
}

#[test]
fn a_zone_is_written_in_order_to_its_capacity() {
    let mut zones = table(0, 0);
    assert_eq!(zones.write(4096, 4096), Err(Refused::InvalidWrite));
    assert_eq!(zones.write(0, 3 * MIB + 512), Err(Refused::ZoneBoundary));
    assert_eq!(zones.write(0, 2 * MIB), Ok(0));
    assert_eq!(zones.zones()[0].state, ZoneState::ImplicitlyOpen);
    assert_eq!(zones.append(0, MIB), Ok(2 * MIB));
    assert_eq!(zones.zones()[0].state, ZoneState::Full);
    assert_eq!(zones.append(0, 512), Err(Refused::ZoneFull));
    assert_eq!(zones.write(32 * MIB, 512), Err(Refused::OutOfRange));
}

#[test]
fn implicitly_open_zones_give_way_and_explicit_ones_do_not() {
    let mut zones = table(3, 2);
    for zone in [0, 1, 2] {
        zones.write(zone * 4 * MIB, 4096).unwrap();
    }
    let states: Vec<_> = zones.zones()[..3].iter().map(|zone| zone.state).collect();
    assert_eq!(
        states,
        [
            ZoneState::Closed,
            ZoneState::ImplicitlyOpen,
            ZoneState::ImplicitlyOpen
        ]
    );
    assert_eq!(zones.write(12 * MIB, 4096), Err(Refused::TooManyActive));
    zones.act(1, ZoneAction::Open).unwrap();
    zones.act(2, ZoneAction::Open).unwrap();
    assert_eq!(zones.write(4096, 4096), Err(Refused::TooManyOpen));
    assert_eq!(zones.act(0, ZoneAction::Open), Err(Refused::TooManyOpen));
    zones.act(1, ZoneAction::Finish).unwrap();
    assert_eq!(zones.write(4096, 4096), Ok(0));
}

#[test]
fn an_opened_zone_without_data_stays_active_when_it_is_closed() {
    let mut zones = table(2, 1);
    for zone in [0, 1] {
        zones.act(zone, ZoneAction::Open).unwrap();
        zones.act(zone, ZoneAction::Close).unwrap();
        assert_eq!(zones.zones()[zone].state, ZoneState::Closed);
        assert_eq!(zones.zones()[zone].write_pointer, zones.zones()[zone].start);
    }
    assert_eq!(zones.act(0, ZoneAction::Close), Ok(None));
    // Both keep their active resources, and neither is open.
    assert_eq!(zones.act(2, ZoneAction::Open), Err(Refused::TooManyActive));
    assert_eq!(zones.write(8 * MIB, 4096), Err(Refused::TooManyActive));
    zones.write(0, 4096).unwrap();
    zones.act(1, ZoneAction::Reset).unwrap();
    assert_eq!(zones.zones()[1].state, ZoneState::Empty);
    zones.act(2, ZoneAction::Open).unwrap();
}
