//! Inodes in the order of their numbers, in few bytes each: some 6 for a small file.
//!
//! A byte of flags, then numbers of 7 bits a byte, the lowest first: the difference to the inode before; where it is
//! another directory, its number; names, if they are not one; of a file in one piece its size, and its allocated bytes, if
//! they are not the size in whole blocks.

use indef_fs::{Nature, Numbered};
use units::Bytes;

/// In which allocated bytes are guessed from a size.
const BLOCK: u64 = 4096;

const NATURE: u8 = 3;
const DIRECTORY: u8 = 0;
const PLAIN: u8 = 1;
const NOTABLE: u8 = 2;
const OTHER: u8 = 3;
/// The directory is that of the inode before.
const SAME_PARENT: u8 = 1 << 2;
/// It has other than one name.
const LINKS: u8 = 1 << 3;
/// The allocated bytes follow.
const ALLOCATED: u8 = 1 << 4;
const ALL: u8 = NATURE | SAME_PARENT | LINKS | ALLOCATED;

/// The bytes are none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotOurs;

/// Inodes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    bytes: Vec<u8>,
    /// Those that lie in the bytes.
    first: Option<Numbered>,
    last: Option<Numbered>,
    /// Where the second one begins.
    second: usize,
}

impl Records {
    /// Records that were stored.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Add an inode with a larger number than all before.
    pub(super) fn push(&mut self, numbered: Numbered) {
        write(&mut self.bytes, &numbered, self.last.as_ref());
        if self.first.is_none() {
            self.first = Some(numbered);
            self.second = self.bytes.len();
        }
        self.last = Some(numbered);
    }

    /// Add inodes with larger numbers than all before.
    pub(super) fn append(&mut self, others: &Self) {
        let Some(first) = others.first else {
            return;
        };
        // Only the first one depends on those before it.
        self.push(first);
        self.bytes.extend_from_slice(&others.bytes[others.second..]);
        self.last = others.last;
    }

    /// The inodes; those of which it is not known when they changed have 0.
    pub(super) fn iter(&self) -> impl Iterator<Item = Result<Numbered, NotOurs>> + '_ {
        let mut rest = &self.bytes[..];
        let mut last = None;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            match read(&mut rest, last.as_ref()) {
                Some(numbered) => {
                    last = Some(numbered);
                    Some(Ok(numbered))
                }
                None => {
                    rest = &[];
                    Some(Err(NotOurs))
                }
            }
        })
    }
}

fn write(bytes: &mut Vec<u8>, numbered: &Numbered, last: Option<&Numbered>) {
    let same_parent = last.is_some_and(|last| last.parent == numbered.parent);
    let mut flags = match numbered.nature {
        Nature::Directory => DIRECTORY,
        Nature::Plain { .. } => PLAIN,
        Nature::Notable => NOTABLE,
        Nature::Other => OTHER,
    };
    flags |= if same_parent { SAME_PARENT } else { 0 };
    flags |= if numbered.links != 1 { LINKS } else { 0 };
    let sizes = match numbered.nature {
        Nature::Plain { size, allocated } => Some((size.get(), allocated.get())),
        _ => None,
    };
    if sizes.is_some_and(|(size, allocated)| allocated != guess(size)) {
        flags |= ALLOCATED;
    }
    bytes.push(flags);
    number(bytes, numbered.inode - last.map_or(0, |last| last.inode));
    if !same_parent {
        number(bytes, numbered.parent);
    }
    if numbered.links != 1 {
        number(bytes, numbered.links.into());
    }
    if let Some((size, allocated)) = sizes {
        number(bytes, size);
        if allocated != guess(size) {
            number(bytes, allocated);
        }
    }
}

fn read(rest: &mut &[u8], last: Option<&Numbered>) -> Option<Numbered> {
    let (&flags, behind) = rest.split_first()?;
    *rest = behind;
    let step = take(rest)?;
    let inode = last.map_or(0, |last| last.inode).checked_add(step)?;
    let parent = match flags & SAME_PARENT != 0 {
        true => last?.parent,
        false => take(rest)?,
    };
    let links = match flags & LINKS != 0 {
        true => take(rest)?.try_into().ok()?,
        false => 1,
    };
    let nature = match flags & NATURE {
        DIRECTORY => Nature::Directory,
        PLAIN => {
            let size = take(rest)?;
            let allocated = match flags & ALLOCATED != 0 {
                true => take(rest)?,
                false => guess(size),
            };
            Nature::Plain {
                size: Bytes(size),
                allocated: Bytes(allocated),
            }
        }
        NOTABLE => Nature::Notable,
        _ => Nature::Other,
    };
    // In order, each once.
    (step > 0 && flags & !ALL == 0).then_some(Numbered {
        inode,
        parent,
        links,
        changed: 0,
        nature,
    })
}

fn guess(size: u64) -> u64 {
    size.div_ceil(BLOCK).saturating_mul(BLOCK)
}

fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        let part = u64::from(byte & 0x7F);
        value |= part << shift;
        if (part << shift) >> shift != part {
            return None;
        }
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inodes() -> impl Strategy<Value = Vec<Numbered>> {
        let number = prop_oneof![0_u64..100, any::<u64>()];
        let plain =
            (number.clone(), number.clone(), any::<bool>()).prop_map(|(size, other, usual)| {
                Nature::Plain {
                    size: Bytes(size),
                    allocated: Bytes(if usual { guess(size) } else { other }),
                }
            });
        let nature = prop_oneof![
            4 => plain,
            1 => Just(Nature::Directory),
            1 => Just(Nature::Notable),
            1 => Just(Nature::Other)
        ];
        let links = prop_oneof![4 => Just(1_u32), 1 => any::<u32>()];
        let one = (1_u64..1 << 50, 256_u64..260, links, nature);
        prop::collection::vec(one, 0..40).prop_map(|all| {
            let mut inode = 0;
            let number = |(step, parent, links, nature)| {
                inode += step;
                Numbered {
                    inode,
                    parent,
                    links,
                    changed: 0,
                    nature,
                }
            };
            all.into_iter().map(number).collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(all in inodes(), cut: prop::sample::Index) {
            let mut records = Records::default();
            all.iter().for_each(|it| records.push(*it));
            let stored = Records::from_bytes(records.bytes().to_vec());
            prop_assert_eq!(stored.iter().collect::<Result<Vec<_>, _>>(), Ok(all.clone()));
            // Parts that were written apart are the same.
            let cut = cut.index(all.len() + 1);
            let mut parts = [Records::default(), Records::default()];
            all[..cut].iter().for_each(|it| parts[0].push(*it));
            all[cut..].iter().for_each(|it| parts[1].push(*it));
            let mut joined = Records::default();
            parts.iter().for_each(|part| joined.append(part));
            prop_assert_eq!(joined.bytes(), records.bytes());
            joined.append(&Records::default());
            prop_assert_eq!(joined.last, records.last);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let records = Records::from_bytes(bytes);
            let read: Vec<_> = records.iter().map_while(Result::ok).collect();
            prop_assert!(read.is_sorted_by(|one, next| one.inode < next.inode));
        }
    }
}
