//! Memory for direct I/O.

/// Memory aligned for direct I/O, without unsafe code: a slice inside a larger vector.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Enough for every device whose sectors are not larger.
    pub const ALIGN: usize = 4096;

    /// At least `length` bytes, a multiple of [`Self::ALIGN`], all zero.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let length = length.next_multiple_of(Self::ALIGN);
        let memory = vec![0; length + Self::ALIGN];
        let start = memory.as_ptr().align_offset(Self::ALIGN);
        Self {
            memory,
            start,
            length,
        }
    }

    /// The memory.
    pub fn slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}
