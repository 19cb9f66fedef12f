use super::*;

const BLOCK: u64 = 4096;

/// Parts of blocks: place in the file, length, extent, place in the extent.
fn parts(parts: &[(u64, u64, u64, u64)]) -> Vec<Part> {
    let part = |&(offset, len, extent, into): &(u64, u64, u64, u64)| Part {
        offset: offset * BLOCK,
        len: len * BLOCK,
        extent: extent * BLOCK,
        into: into * BLOCK,
        state: PartState::Written,
    };
    parts.iter().map(part).collect()
}

fn file(of: &[(u64, u64, u64, u64)]) -> FileParts {
    let parts = parts(of);
    let extents = parts.iter().map(|part| Extent {
        file: FileOffset(part.offset),
        phys: PhysOffset(part.extent + part.into),
        len: Bytes(part.len),
        flags: ExtentFlags::empty(),
    });
    let end = parts.last().map_or(0, |part| part.offset + part.len);
    FileParts {
        layout: Layout::new(extents.collect()),
        size: Bytes(end),
        parts,
    }
}

fn blocks(start: u64, len: u64) -> FileRange {
    FileRange::new(start * BLOCK, len * BLOCK)
}

fn segment(copy: u64, file: u64, len: u64) -> Segment {
    Segment {
        copy: FileOffset(copy * BLOCK),
        file: FileOffset(file * BLOCK),
        len: Bytes(len * BLOCK),
    }
}

fn has(found: &Selected, reason: SkipReason) -> bool {
    found.staying.iter().any(|(_, here)| *here == reason)
}

fn selected(asked: &[FileRange], target: &FileParts, holders: &[FileParts]) -> Selected {
    select(asked, target, holders, BTreeMap::new(), false)
}

#[test]
fn a_snapshot_moves_along() {
    let target = file(&[(0, 1, 100, 0), (1, 1, 200, 0), (2, 1, 300, 0)]);
    let found = selected(&[blocks(0, 3)], &target, std::slice::from_ref(&target));
    assert_eq!(found.runs, [blocks(0, 3)]);
    assert_eq!(found.segments, [[segment(0, 0, 3)]]);
    assert!(found.staying.is_empty());
    // What nobody shares is for another engine, unless this one was asked for.
    let found = selected(&[blocks(0, 3)], &target, &[]);
    assert_eq!(
        (found.runs, found.staying),
        (vec![], vec![(blocks(0, 3), SkipReason::NoGain)])
    );
    let found = select(&[blocks(0, 3)], &target, &[], BTreeMap::new(), true);
    assert_eq!(found.runs, [blocks(0, 3)]);
}

#[test]
fn a_reflink_of_a_part_moves_along_at_its_own_place() {
    let target = file(&[(0, 2, 100, 0), (2, 2, 200, 0), (4, 2, 300, 0)]);
    // The second half of the first extent, and the second one, at another place; and with other data between them.
    let beside = file(&[(10, 1, 100, 1), (11, 2, 200, 0), (13, 5, 900, 0)]);
    let apart = file(&[(10, 1, 100, 1), (11, 1, 900, 0), (12, 2, 200, 0)]);
    let found = selected(&[blocks(0, 6)], &target, &[beside, apart]);
    assert_eq!(found.runs, [blocks(0, 6)]);
    assert_eq!(found.segments[0], [segment(1, 10, 3)]);
    assert_eq!(found.segments[1], [segment(1, 10, 1), segment(2, 12, 2)]);
}

#[test]
fn an_extent_of_which_somebody_keeps_a_part_stays() {
    // The holder has a block of extent 100 that the target does not have any more.
    let target = file(&[
        (0, 1, 100, 0),
        (1, 1, 500, 0),
        (2, 1, 300, 0),
        (3, 1, 400, 0),
    ]);
    let holder = file(&[(0, 2, 100, 0), (2, 1, 300, 0), (3, 1, 400, 0)]);
    let found = selected(&[blocks(0, 4)], &target, &[holder]);
    assert_eq!(found.runs, [blocks(1, 3)]);
    assert_eq!(found.segments, [[segment(2, 2, 2)]]);
    assert_eq!(found.staying, [(blocks(0, 1), SkipReason::HoldersDiffer)]);
    // A range that cuts an extent: the target itself would keep the rest.
    let target = file(&[(0, 2, 100, 0), (2, 1, 300, 0), (3, 1, 500, 0)]);
    let found = selected(&[blocks(1, 3)], &target, std::slice::from_ref(&target));
    assert_eq!(found.runs, [blocks(2, 2)]);
    // The target has the same bytes twice.
    let target = file(&[(0, 1, 100, 0), (1, 1, 200, 0), (2, 1, 100, 0)]);
    let found = selected(&[blocks(0, 3)], &target, std::slice::from_ref(&target));
    assert_eq!(found.runs, []);
}

#[test]
fn no_holder_gets_more_fragments() {
    // The holder has its data in one piece but for a block; the target wrote that part anew, in pieces.
    let target = file(&[
        (0, 4, 100, 0),
        (4, 1, 300, 0),
        (5, 1, 500, 0),
        (6, 2, 106, 0),
    ]);
    let holder = file(&[(0, 4, 100, 0), (4, 2, 104, 0), (6, 2, 106, 0)]);
    let found = selected(&[blocks(0, 8)], &target, &[holder]);
    // 300 and 500 are nobody else's.
    assert_eq!(found.runs, []);
    assert!(has(&found, SkipReason::HoldersDiffer), "{found:?}");
}

#[test]
fn a_block_that_is_cut_by_the_end_of_a_file_has_to_be_so_in_both() {
    let mut target = file(&[(0, 1, 100, 0), (1, 1, 200, 0), (2, 1, 300, 0)]);
    target.size = Bytes(2 * BLOCK + 5);
    let same = target.clone();
    assert_eq!(
        selected(&[blocks(0, 3)], &target, &[same]).runs,
        [blocks(0, 3)]
    );
    let mut longer = target.clone();
    longer.size = Bytes(2 * BLOCK + 6);
    assert_eq!(
        selected(&[blocks(0, 3)], &target, &[longer]).runs,
        [blocks(0, 2)]
    );
    let tail = segment(0, 0, 3);
    assert_eq!(tail.compared(target.size), Bytes(2 * BLOCK + 5));
}

#[test]
fn what_a_holder_has_unwritten_or_compressed_stays() {
    let target = file(&[(0, 1, 100, 0), (1, 1, 200, 0), (2, 1, 300, 0)]);
    for state in [PartState::Unwritten, PartState::Encoded] {
        let mut holder = target.clone();
        holder.parts[0].state = state;
        let found = selected(&[blocks(0, 3)], &target, &[holder.clone()]);
        assert_eq!(found.runs, [blocks(1, 2)]);
        let found = selected(&[blocks(0, 3)], &holder, std::slice::from_ref(&target));
        assert_eq!(found.runs, [blocks(1, 2)]);
    }
}

#[test]
fn extents_that_stay_for_a_known_reason_end_runs() {
    let target = file(&[
        (0, 1, 100, 0),
        (1, 1, 200, 0),
        (2, 1, 300, 0),
        (3, 1, 400, 0),
    ]);
    let staying = BTreeMap::from([(200 * BLOCK, SkipReason::HoldersUnreachable)]);
    let found = select(
        &[blocks(0, 4)],
        &target,
        std::slice::from_ref(&target),
        staying,
        false,
    );
    assert_eq!(found.runs, [blocks(2, 2)]);
    assert!(has(&found, SkipReason::HoldersUnreachable));
    assert_eq!(found.segments, [[segment(2, 2, 2)]]);
}

#[test]
fn layouts_afterwards() {
    let holder = file(&[(0, 1, 100, 0), (1, 2, 200, 0), (3, 1, 300, 0)]);
    let copy = file(&[(7, 3, 1000, 0)]).layout;
    let segments = [segment(7, 1, 2)];
    assert_eq!(change(&holder.layout, &segments, &copy), 0);
    let whole = placed(&holder.layout, &segments, &copy, blocks(0, 4));
    assert_eq!(whole.extents()[1].phys, PhysOffset(1000 * BLOCK));
    // The new place touches the neighbour's.
    let copy = file(&[(7, 3, 101, 0)]).layout;
    assert_eq!(change(&holder.layout, &segments, &copy), -1);
}
