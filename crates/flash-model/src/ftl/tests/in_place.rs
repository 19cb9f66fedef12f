//! Media that are written in place.

use super::*;

fn geometry() -> FtlGeometry {
    let (dies, pages_per_block, logical_pages) = (4, 16, 200);
    let blocks = FtlGeometry::blocks_needed(logical_pages, dies, pages_per_block.into(), 7.0);
    FtlGeometry {
        dies,
        blocks_per_die: blocks as u32,
        pages_per_block,
        slots_per_page: 1,
        granule_pages: 2,
        logical_pages,
        slc_blocks: 0,
        slc_pages: 0,
        handles: 1,
    }
}

fn options() -> FtlOptions {
    FtlOptions {
        in_place: true,
        collect_idle: 100,
        ..FtlOptions::default()
    }
}

#[test]
fn a_page_stays_where_it_is() {
    let mut ftl = Ftl::new(geometry(), options()).unwrap();
    let mut work = Vec::new();
    // In no order, and again and again.
    for round in 0..50 {
        for step in 0..200 {
            let lpn = (step * 77 + round) % 200;
            ftl.write(lpn, 1, PagePlacement::After { predecessor: 3 }, &mut work);
        }
    }
    let mut taken = std::collections::BTreeSet::new();
    for lpn in 0..200 {
        let page = ftl.read(lpn).unwrap();
        assert_eq!(u64::from(page.die), lpn / 2 % 4, "{lpn}");
        assert!(taken.insert((page.die, page.block, page.page)), "{lpn}");
        assert!(!ftl.is_buffered(page));
    }
    assert!(!ftl.collect_idle(&mut work));
    let is_program = |item: &FlashWork| matches!(item.op, FlashOp::Program(_));
    assert!(work.iter().all(is_program));
    assert_eq!(work.len(), 50 * 200);
    assert_eq!(ftl.counters().host_programs, 50 * 200);
    assert_eq!(ftl.mapped_pages(), 200);
    assert!(ftl.trim(7));
    assert_eq!((ftl.read(7), ftl.mapped_pages()), (None, 199));
    ftl.write(7, 1, PagePlacement::RoundRobin, &mut work);
    assert_eq!(ftl.read(7).unwrap().die, 3);
}

#[test]
fn a_page_of_several_slots_cannot_be_written_in_place() {
    let several = FtlGeometry {
        slots_per_page: 4,
        ..geometry()
    };
    let error = Ftl::new(several, options()).unwrap_err();
    assert_eq!(error, FtlConfigError::InPlace { slots_per_page: 4 });
}
