//! Reclaim unit handles.

use std::collections::BTreeMap;

use super::*;

fn with_handles(handles: u32) -> FtlGeometry {
    with_least_blocks(FtlGeometry { handles, ..small() })
}

#[test]
fn each_handle_writes_to_blocks_of_its_own() {
    let mut ftl = Ftl::new(with_handles(3), FtlOptions::default()).unwrap();
    let mut work = Vec::new();
    let mut numbers = Numbers::new(1);
    let mut handle_of = BTreeMap::new();
    for lpn in 0..500 {
        let handle = numbers.below(3_u64) as u32;
        handle_of.insert(lpn, handle);
        ftl.write(lpn, 1, PagePlacement::Handle(handle), &mut work);
    }
    let mut blocks = BTreeMap::new();
    for (lpn, handle) in handle_of {
        let page = ftl.read(lpn).unwrap();
        let of = blocks.entry((page.die, page.block)).or_insert(handle);
        assert_eq!(*of, handle, "{page:?}");
    }
}

#[test]
fn a_handle_that_there_is_not_and_none_at_all_are_handle_0() {
    for placement in [PagePlacement::Handle(7), PagePlacement::RoundRobin] {
        let mut ftl = Ftl::new(with_handles(2), FtlOptions::default()).unwrap();
        let mut work = Vec::new();
        ftl.write(0, 4, PagePlacement::Handle(0), &mut work);
        ftl.write(100, 16, placement, &mut work);
        let left: Vec<u64> = ftl.reclaim_units_left().collect();
        let unit = ftl.geometry().slots_per_reclaim_unit();
        assert_eq!(left, [unit - 20, unit]);
        assert_eq!(unit, 4 * 8 * 4);
    }
}

#[test]
fn a_renewed_handle_begins_new_blocks() {
    let mut ftl = Ftl::new(with_handles(2), FtlOptions::default()).unwrap();
    let mut work = Vec::new();
    ftl.write(0, 6, PagePlacement::Handle(1), &mut work);
    let old = [0, 4].map(|lpn| ftl.read(lpn).unwrap());
    assert!(ftl.is_buffered(old[1]));
    let unit = ftl.geometry().slots_per_reclaim_unit();
    assert_eq!(ftl.renew(1, &mut work), unit - 6);
    assert!(!ftl.is_buffered(old[1]), "its data was programmed");
    assert_eq!(ftl.renew(1, &mut work), 0, "it is empty");
    assert_eq!(ftl.renew(2, &mut work), 0, "there is no such handle");
    let mut next = Vec::new();
    ftl.write(100, 32, PagePlacement::Handle(1), &mut work);
    for lpn in 100..132 {
        let page = ftl.read(lpn).unwrap();
        next.push((page.die, page.block));
    }
    assert!(
        old.iter()
            .all(|page| !next.contains(&(page.die, page.block)))
    );
}

#[test]
fn an_image_keeps_the_handles() {
    let geometry = with_handles(4);
    let mut ftl = Ftl::new(geometry, FtlOptions::default()).unwrap();
    let mut work = Vec::new();
    for lpn in 0..300_u32 {
        ftl.write(lpn.into(), 1, PagePlacement::Handle(lpn % 4), &mut work);
    }
    let restored = Ftl::restore(geometry, FtlOptions::default(), &ftl.image()).unwrap();
    let left = |ftl: &Ftl| ftl.reclaim_units_left().collect::<Vec<_>>();
    assert_eq!(left(&restored), left(&ftl));
    assert!((0..300).all(|lpn| restored.read(lpn) == ftl.read(lpn)));
}
