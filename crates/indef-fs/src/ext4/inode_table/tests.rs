//! Against the kernel's own maps, and against anything that a device may hold.

use std::fs;

use linux_abi::ext4::disk::ExtentNode;
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::ScratchFs;

use super::*;
use crate::{Mapper, detect, map};

fn expected(path: &Path) -> Expected {
    let status = fs::metadata(path).unwrap();
    Expected {
        inode: status.ino(),
        size: Bytes(status.len()),
        allocated: Bytes(status.blocks() * 512),
        ctime: (status.ctime(), status.ctime_nsec() as u32),
    }
}

/// Files with blocks at these places (each twice as long as the one before, with gaps of
/// others between them).
fn make(folder: &Path) {
    let other = fs::File::create(folder.join("other")).unwrap();
    for pieces in 0..9_u64 {
        for sparse in [0, 1] {
            let file = fs::File::create(folder.join(format!("{pieces}-{sparse}"))).unwrap();
            let mut at = 0;
            for piece in 0..pieces {
                let length = 4096 << (piece % 3);
                if piece % 2 == 0 {
                    fallocate(&file, FallocateFlags::empty(), at, length).unwrap();
                } else {
                    file.write_all_at(&vec![7; length as usize], at).unwrap();
                    file.sync_all().unwrap();
                }
                fallocate(&other, FallocateFlags::empty(), piece * 4096, 4096).unwrap();
                at += length + sparse * 8192;
            }
            // The size ends inside a block, and more blocks lie past it.
            file.set_len((at + 1000).saturating_sub(4096)).unwrap();
        }
    }
}

/// With `checksums`, there is an answer for each file.
fn same_as_mapped(mkfs: &[&str], checksums: bool) {
    let made = ScratchFs::builder("ext4", Bytes::mib(64))
        .mkfs_args(mkfs.iter().copied())
        .build();
    let Some(scratch) = scratch_fs::require(made) else {
        return;
    };
    make(scratch.path());
    // Of a tree with two levels of nodes below the inode where blocks are small, else with one.
    let deep = scratch.path().join("deep");
    let options = scratch_fs::FragmentOptions {
        size: Bytes::mib(4),
        piece: Bytes::kib(4),
        seed: 1,
    };
    scratch_fs::fragment(&deep, options).unwrap();
    assert_eq!(
        scratch_fs::fragments(&fs::File::open(&deep).unwrap()).unwrap(),
        1024
    );
    let root = fs::File::open(scratch.path()).unwrap();
    let fs = detect(&root, scratch.path()).unwrap();
    let tables = InodeTables::open(&fs).unwrap();
    let (mut chunk, mut mapper) = (Chunk::default(), Mapper::default());
    assert!(tables.is_settled());
    let (mut answers, mut alone) = (0, 0);
    for entry in fs::read_dir(scratch.path()).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let expected = expected(&path);
        let file = fs::File::open(&path).unwrap();
        let range = FileRange::new(0, expected.size.get()).align_outward(fs.block_size);
        let mapped = map(&file, &path, range, false, &mut mapper).unwrap();
        if let Some(facts) = tables.file(expected.inode, &mut chunk) {
            assert_eq!(facts.size, expected.size);
            assert_eq!(facts.allocated, expected.allocated);
            assert_eq!(facts.links, 1);
            assert_eq!(facts.place, InodePlace::Known(mapped.clone()), "{path:?}");
            alone += 1;
        }
        if let Some(layout) = tables.layout(&expected, &mut chunk) {
            assert_eq!(layout, mapped, "{path:?}");
            answers += 1;
        } else {
            assert!(!checksums && mapped.extents().len() > 2, "{path:?}");
        }
    }
    assert!(answers >= 8 && alone >= 4, "{answers} {alone}");
    // Delayed: the inode knows nothing of it yet, and so is not believed.
    let path = scratch.path().join("delayed");
    fs::write(&path, vec![1; 20_000]).unwrap();
    chunk.clear();
    assert!(!tables.is_settled());
    assert_eq!(tables.layout(&expected(&path), &mut chunk), None);
    fs::File::open(&path).unwrap().sync_all().unwrap();
    chunk.clear();
    let layout = tables.layout(&expected(&path), &mut chunk).unwrap();
    assert_eq!(layout.allocated(), Bytes(20_480));
    let (inode, link) = (expected(&path).inode, scratch.path().join("link"));
    fs::hard_link(&path, &link).unwrap();
    chunk.clear();
    assert_eq!(tables.file(inode, &mut chunk).unwrap().links, 2);
    fs::remove_file(&link).unwrap();
    fs::remove_file(&path).unwrap();
    chunk.clear();
    assert_eq!(tables.file(inode, &mut chunk), None);
    // A file below another that is mounted on it.
    let (below, above) = (scratch.path().join("1-0"), scratch.path().join("2-0"));
    let run = |program: &str, arguments: &[&Path]| {
        let status = std::process::Command::new(program).args(arguments).status();
        assert!(status.unwrap().success(), "{program}");
    };
    run("mount", &[Path::new("--bind"), &above, &below]);
    let hidden = InodeTables::open(&fs).unwrap();
    run("umount", &[&below]);
    assert!(!hidden.is_settled());
    // A folder on a folder hides none.
    let (below, above) = (scratch.path().join("below"), scratch.path().join("above"));
    for folder in [&below, &above] {
        fs::create_dir(folder).unwrap();
    }
    run("mount", &[Path::new("--bind"), &above, &below]);
    let seen = InodeTables::open(&fs).unwrap();
    run("umount", &[&below]);
    assert!(seen.is_settled());
    let tmpfs = detect(fs::File::open("/proc").unwrap(), Path::new("/proc")).unwrap();
    assert!(InodeTables::open(&tmpfs).is_none());
}

#[test]
fn loop_layouts_are_those_that_the_kernel_maps() {
    same_as_mapped(&[], true);
}

#[test]
fn loop_layouts_with_small_blocks_and_inodes() {
    same_as_mapped(
        &["-b", "1024", "-I", "128", "-O", "^64bit,^metadata_csum"],
        false,
    );
}

#[test]
fn loop_layouts_of_deep_trees() {
    same_as_mapped(&["-b", "1024", "-O", "metadata_csum_seed"], true);
}

/// The layout from an inode of these bytes, on a device of these bytes.
fn mapped(inode: &[u8], device: &[u8], block_size: u64) -> Option<Layout> {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, device).unwrap();
    let mut reader = TreeReader {
        device: &file,
        block_size,
        seed: Some(7),
        buffer: &mut Vec::new(),
    };
    let inode = Inode::first_of(inode)?;
    has_extents(inode)
        .then(|| reader.extents(12, inode))?
        .map(Layout::new)
}

/// A tree of two levels, with the right checksums: 96 KiB of data in 3 pieces, in blocks of 1 KiB.
fn tree() -> (Vec<u8>, Vec<u8>) {
    let header = |entries: u16, max: u16, depth: u16| {
        let fields = [0xF30A, entries, max, depth, 0, 0];
        fields
            .into_iter()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<_>>()
    };
    let mut inode = vec![0; 128];
    inode[0x1] = 0x80;
    inode[0x22] = 0x8;
    let index = [0_u32, 1, 0].into_iter().flat_map(u32::to_le_bytes);
    let root: Vec<u8> = header(1, 4, 1).into_iter().chain(index).collect();
    inode[0x28..0x28 + root.len()].copy_from_slice(&root);
    let mut leaf = header(3, 84, 0);
    for (block, at) in [(0_u32, 500_u32), (32, 700), (64, 600)] {
        leaf.extend(block.to_le_bytes());
        leaf.extend([32, 0, 0, 0]);
        leaf.extend(at.to_le_bytes());
    }
    leaf.resize(12 + 84 * 12, 0);
    let raw = |seed: u32, bytes: &[u8]| !crc32c::crc32c_append(!seed, bytes);
    let of_file = raw(raw(7, &12_u32.to_le_bytes()), &[0; 4]);
    leaf.extend(raw(of_file, &leaf).to_le_bytes());
    let mut device = vec![0; 1024];
    device.extend(&leaf);
    (inode, device)
}

#[test]
fn a_node_is_believed_only_with_its_checksum() {
    let (inode, device) = tree();
    let layout = mapped(&inode, &device, 1024).unwrap();
    assert_eq!(
        (layout.fragments(), layout.allocated()),
        (3, Bytes::kib(96))
    );
    // Each byte of the node, but those between the last entry and the checksum, which is of them, too.
    for at in 1024..device.len() {
        let mut device = device.clone();
        device[at] ^= 1;
        assert_eq!(mapped(&inode, &device, 1024), None, "byte {at}");
    }
    let mut other = inode.clone();
    other[0x64] = 1;
    assert_eq!(mapped(&other, &device, 1024), None, "of another file");
    assert_eq!(mapped(&inode, &device[..1500], 1024), None, "cut off");
}

proptest! {
    #[test]
    fn nothing_on_a_device_panics(
        superblock in prop::collection::vec(any::<u8>(), 1024),
        inode in prop::collection::vec(any::<u8>(), 0..300),
        small: bool,
    ) {
        let mut superblock = superblock;
        if small {
            // Make the parser go further.
            superblock[0x18..0x1C].copy_from_slice(&2_u32.to_le_bytes());
            superblock[0x38..0x3A].copy_from_slice(&SuperBlock::MAGIC.to_le_bytes());
            superblock[0x60..0x64].copy_from_slice(&0x40_u32.to_le_bytes());
            superblock[0x58..0x5A].copy_from_slice(&256_u16.to_le_bytes());
        }
        let _ = TableGeometry::parse(&superblock);
        let mut inode = inode;
        let _ = mapped(&inode, &superblock, 65_536);
        if inode.len() > 0x64 {
            inode[..0x28].fill(0);
            inode[0x1] = 0x80;
            inode[0x22] = 0x8;
            inode[0x28..0x2A].copy_from_slice(&0xF30A_u16.to_le_bytes());
            inode[0x2E..0x30].fill(0);
            let _ = mapped(&inode, &superblock, 65_536);
            inode[0x2E] = 1;
            let _ = mapped(&inode, &superblock, 512);
        }
        if let Some(node) = ExtentNode::first_of(&inode[inode.len().min(0x28)..]) {
            let _ = (node.leaf(), node.children().count());
        }
    }
}
