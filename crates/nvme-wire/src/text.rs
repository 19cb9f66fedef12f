//! Text in fixed fields.

/// `text` in a field of `N` bytes, cut where it is too long and padded with spaces (Base §1.4.3,
/// ASCII strings).
#[must_use]
pub fn ascii<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

/// `name` as an NVMe Qualified Name: UTF-8, ended by zeroes (Base §4.5). Names have at most 223
/// bytes; longer ones are cut.
#[must_use]
pub fn nqn(name: &str) -> [u8; 256] {
    let mut field = [0; 256];
    for (to, from) in field.iter_mut().zip(name.bytes().take(NQN_MAX)) {
        *to = from;
    }
    field
}

/// The name in such a field; `None` if it is not UTF-8, empty, too long or not ended.
#[must_use]
pub fn nqn_of(field: &[u8; 256]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0)?;
    let name = std::str::from_utf8(field.get(..end)?).ok()?;
    (!name.is_empty() && end <= NQN_MAX).then_some(name)
}

/// Longest name, in bytes (Base §4.5).
const NQN_MAX: usize = 223;
