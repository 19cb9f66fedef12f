//! The allowed content of a block after a power cut: the newest version that was acknowledged as
//! durable, or a newer one whose write had begun.

/// The size of a block.
pub(crate) const BLOCK: usize = 4096;

/// A block in memory, aligned as direct I/O requires.
#[repr(align(4096))]
pub(crate) struct Buffer(pub(crate) [u8; BLOCK]);

/// Versions of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The newest version that was acknowledged.
    pub(crate) durable: u64,
    /// The newest version that may have been written.
    pub(crate) written: u64,
}

/// Fill each 16 bytes of a block with its number and version.
pub(crate) fn fill(buffer: &mut Buffer, block: u64, version: u64) {
    for word in buffer.0.chunks_exact_mut(16) {
        word[..8].copy_from_slice(&block.to_le_bytes());
        word[8..].copy_from_slice(&version.to_le_bytes());
    }
}

/// The oldest and the newest version in the block's content; `None` if it is anything else. (These
/// differ where a write was cut.)
pub(crate) fn versions(buffer: &Buffer, block: u64) -> Option<(u64, u64)> {
    let mut found = None;
    for word in buffer.0.chunks_exact(16) {
        let number = |at: usize| u64::from_le_bytes(word[at..at + 8].try_into().unwrap());
        if number(0) != block {
            return None;
        }
        let (oldest, newest) = found.unwrap_or((u64::MAX, 0));
        found = Some((number(8).min(oldest), number(8).max(newest)));
    }
    found
}

impl Bounds {
    /// Whether that content is allowed.
    pub(crate) fn allow(self, versions: Option<(u64, u64)>) -> bool {
        versions.is_some_and(|(oldest, newest)| oldest >= self.durable && newest <= self.written)
    }
}

#[test]
fn what_is_older_or_foreign_is_lost() {
    let mut buffer = Buffer([0; BLOCK]);
    let bounds = Bounds {
        durable: 7,
        written: 9,
    };
    for (version, allowed) in [(6, false), (7, true), (9, true), (10, false)] {
        fill(&mut buffer, 3, version);
        assert_eq!(bounds.allow(versions(&buffer, 3)), allowed, "{version}");
        assert!(!bounds.allow(versions(&buffer, 4)));
    }
    fill(&mut buffer, 3, 8);
    let mut older = Buffer([0; BLOCK]);
    fill(&mut older, 3, 7);
    buffer.0[512..1024].copy_from_slice(&older.0[..512]);
    assert_eq!(versions(&buffer, 3), Some((7, 8)), "torn");
    assert!(bounds.allow(versions(&buffer, 3)));
    buffer.0[4080..].fill(0);
    assert_eq!(versions(&buffer, 3), None);
    assert!(!bounds.allow(None));
}
