//! Against the kernel's own maps, and against anything that a device may hold.

use std::fs;

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

fn same_as_mapped(mkfs: &[&str]) {
    let made = ScratchFs::builder("ext4", Bytes::mib(64))
        .mkfs_args(mkfs.iter().copied())
        .build();
    let Some(scratch) = scratch_fs::require(made) else {
        return;
    };
    make(scratch.path());
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
            assert_eq!(facts.layout, mapped, "{path:?}");
            alone += 1;
        }
        if let Some(layout) = tables.layout(&expected, &mut chunk) {
            assert_eq!(layout, mapped, "{path:?}");
            answers += 1;
        } else {
            assert!(mapped.extents().len() > 2, "{path:?} {mapped:?}");
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
    let tmpfs = detect(fs::File::open("/proc").unwrap(), Path::new("/proc")).unwrap();
    assert!(InodeTables::open(&tmpfs).is_none());
}

#[test]
fn loop_layouts_are_those_that_the_kernel_maps() {
    same_as_mapped(&[]);
}

#[test]
fn loop_layouts_with_small_blocks_and_inodes() {
    same_as_mapped(&["-b", "1024", "-I", "128", "-O", "^64bit,^metadata_csum"]);
}

/// The layout from an inode of these bytes, in a file system of the largest blocks.
fn mapped(inode: &[u8]) -> Option<Layout> {
    extents(Inode::first_of(inode)?, 65_536).map(Layout::new)
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
        let _ = mapped(&inode);
        if inode.len() > 0x64 {
            inode[..0x28].fill(0);
            inode[0x1] = 0x80;
            inode[0x22] = 0x8;
            inode[0x28..0x2A].copy_from_slice(&0xF30A_u16.to_le_bytes());
            inode[0x2E..0x30].fill(0);
            let _ = mapped(&inode);
        }
        if let Some(node) = ExtentNode::first_of(&inode[inode.len().min(0x28)..]) {
            let _ = (node.leaf(), node.children().count());
        }
    }
}
