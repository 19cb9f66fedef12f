//! Blocks that identify themselves.

/// Bytes of a block of the model.
pub(crate) const BLOCK: usize = 4096;
const MAGIC: u32 = 0x4841_4D21;
/// Words repeat with this period, so that compressing file systems can compress them.
const PERIOD: usize = 16;

/// The content of a block: its file, its place, and the number of the write. All its bytes follow from
/// these, so a block that was read identifies itself, or is recognised as foreign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The file.
    pub file: u32,
    /// The block of the file that was written. Collapsing, inserting and cloning move it elsewhere.
    pub block: u32,
    /// The write.
    pub version: u32,
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            file,
            block,
            version,
        } = self;
        write!(f, "file {file} block {block} version {version}")
    }
}

impl Stamp {
    /// Fill `block` with this content.
    pub(crate) fn fill(self, block: &mut [u8]) {
        let mut pattern = [0_u64; PERIOD];
        let mut key = u64::from(self.file) << 40 ^ u64::from(self.block) << 20;
        key ^= u64::from(self.version);
        for (i, word) in pattern.iter_mut().enumerate() {
            let mut value = (key ^ (i as u64) << 59).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            value = (value ^ value >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            *word = value ^ value >> 29;
        }
        for (i, word) in block.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&pattern[i % PERIOD].to_le_bytes());
        }
        for (i, field) in [MAGIC, self.file, self.block, self.version]
            .iter()
            .enumerate()
        {
            block[i * 4..i * 4 + 4].copy_from_slice(&field.to_le_bytes());
        }
    }

    /// The stamp that a block claims to have, if it has one at all.
    fn claimed(block: &[u8]) -> Option<Self> {
        let field = |i: usize| {
            let bytes = block.get(i * 4..i * 4 + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        (field(0)? == MAGIC).then_some(Self {
            file: field(1)?,
            block: field(2)?,
            version: field(3)?,
        })
    }
}

/// The actual or required content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockValue {
    /// Zeroes: a hole, unwritten, punched, zeroed, or past the end.
    Zero,
    /// Written content.
    Data(Stamp),
}

impl std::fmt::Display for BlockValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Zero => f.write_str("zeroes"),
            Self::Data(stamp) => stamp.fmt(f),
        }
    }
}

impl BlockValue {
    /// Its bytes.
    pub(crate) fn bytes(self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        if let Self::Data(stamp) = self {
            stamp.fill(&mut bytes);
        }
        bytes
    }

    /// Identify `bytes` (a block, or the beginning of one); `None` for anything else.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Self::Zero);
        }
        let value = Self::Data(Stamp::claimed(bytes)?);
        (value.bytes()[..bytes.len()] == *bytes).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        file: 3,
        block: 77,
        version: 12,
    };

    #[test]
    fn a_block_says_what_it_is() {
        let bytes = BlockValue::Data(STAMP).bytes();
        assert_eq!(BlockValue::of(&bytes), Some(BlockValue::Data(STAMP)));
        assert_eq!(
            BlockValue::of(&bytes[..1024]),
            Some(BlockValue::Data(STAMP))
        );
        assert_eq!(BlockValue::of(&[0; BLOCK]), Some(BlockValue::Zero));
    }

    #[test]
    fn each_damaged_byte_shows() {
        for at in 0..BLOCK {
            let mut bytes = BlockValue::Data(STAMP).bytes();
            bytes[at] ^= 1;
            assert_ne!(
                BlockValue::of(&bytes),
                Some(BlockValue::Data(STAMP)),
                "byte {at}"
            );
        }
        let mut almost = [0; BLOCK];
        almost[BLOCK - 1] = 1;
        assert_eq!(BlockValue::of(&almost), None);
    }
}
