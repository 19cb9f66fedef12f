//! A run done again in a model of its own, with the hints that the kernel part would have given: for any
//! kernel, and to hold the kernel part against.
//!
//! Which block comes before which is told by the files' extents at the end of the run. So a file that
//! changes its place gets hints only for its last one.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use flash_model::{Command, Device, NamespaceKind, NamespaceSpec, Placement, Profile, Span};
use flashd::device::LoggedCommand;
use units::{Bytes, Nanos};

use crate::model::NAMESPACE;

/// The unit of file systems.
const BLOCK: u64 = 4096;

/// Does these commands again, from the device's first one on; with hints for the writes of these files, or
/// as they were.
pub(crate) fn again(
    profile: &Profile,
    sizes: &[Bytes],
    commands: &[LoggedCommand],
    files: Option<&[Vec<Span>]>,
) -> Result<Device> {
    let specs: Vec<NamespaceSpec> = sizes
        .iter()
        .map(|size| NamespaceSpec {
            kind: NamespaceKind::Conventional,
            size: *size,
        })
        .collect();
    let mut device = Device::new(profile, &specs)?;
    let mut hints = files.map(Hints::of);
    let mut now = Nanos(0);
    for logged in commands {
        now = now.max(logged.submitted);
        device.advance(now, &mut Vec::new());
        let command = logged.command.as_command();
        let parts = match &mut hints {
            Some(hints) if logged.namespace == NAMESPACE => hints.give(command),
            _ => vec![command],
        };
        for part in parts {
            device
                .submit(now, logged.namespace, &part)
                .with_context(|| format!("{part:?}"))?;
        }
    }
    Ok(device)
}

/// The knowledge of a file system with the option.
struct Hints {
    /// For each block of a file the one before it; `None` for the first.
    predecessors: HashMap<u64, Option<u64>>,
    /// Blocks that have been written to, and not discarded since.
    written: HashSet<u64>,
}

impl Hints {
    fn of(files: &[Vec<Span>]) -> Self {
        let mut predecessors = HashMap::new();
        for extents in files {
            let blocks = extents
                .iter()
                .flat_map(|span| span.offset / BLOCK..span.end().div_ceil(BLOCK));
            let mut last = None;
            for block in blocks {
                predecessors.insert(block, last.replace(block));
            }
        }
        Self {
            predecessors,
            written: HashSet::new(),
        }
    }

    /// The command with its hint, or several where the block layer would not merge what it holds.
    fn give<'a>(&mut self, command: Command<'a>) -> Vec<Command<'a>> {
        let blocks = |offset: u64, len: u64| offset / BLOCK..(offset + len).div_ceil(BLOCK);
        let (offset, len, fua) = match command {
            Command::Write {
                offset, len, fua, ..
            } => (offset, len, fua),
            Command::Deallocate { offset, len } | Command::WriteZeroes { offset, len } => {
                for block in blocks(offset, len) {
                    self.written.remove(&block);
                }
                return vec![command];
            }
            _ => return vec![command],
        };
        let mut parts: Vec<(Placement, Span)> = Vec::new();
        for block in blocks(offset, len) {
            let placement = self.placement(block);
            let from = offset.max(block * BLOCK);
            let to = (offset + len).min((block + 1) * BLOCK);
            let goes_on = match (parts.last(), placement) {
                (None, _) => false,
                // It comes after what is before it in the command.
                (Some(_), Placement::After { predecessor }) => predecessor + BLOCK == block * BLOCK,
                (Some((last, _)), placement) => *last == placement,
            };
            match parts.last_mut() {
                Some((_, span)) if goes_on => span.len += to - from,
                _ => parts.push((
                    placement,
                    Span {
                        offset: from,
                        len: to - from,
                    },
                )),
            }
            self.written.insert(block);
        }
        let write = |(placement, Span { offset, len })| Command::Write {
            offset,
            len,
            fua,
            placement,
        };
        parts.into_iter().map(write).collect()
    }

    fn placement(&self, block: u64) -> Placement {
        match self.predecessors.get(&block) {
            None => Placement::RoundRobin,
            Some(_) if self.written.contains(&block) => Placement::Overwrite,
            Some(None) => Placement::RoundRobin,
            Some(Some(before)) => Placement::After {
                predecessor: before * BLOCK,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, blocks: u64, placement: Placement) -> Command<'static> {
        Command::Write {
            offset: offset * BLOCK,
            len: blocks * BLOCK,
            fua: false,
            placement,
        }
    }

    #[test]
    fn hints_are_those_of_the_kernel_part() {
        let span = |offset: u64, blocks: u64| Span {
            offset: offset * BLOCK,
            len: blocks * BLOCK,
        };
        // The end of one file, and the beginning of another.
        let files = [vec![span(10, 4), span(30, 4)], vec![span(34, 4)]];
        let mut hints = Hints::of(&files);
        let plain = |offset, blocks| write(offset, blocks, Placement::RoundRobin);
        let after = |block: u64| Placement::After {
            predecessor: block * BLOCK,
        };
        assert_eq!(hints.give(plain(10, 4)), [plain(10, 4)]);
        assert_eq!(
            hints.give(plain(30, 8)),
            [write(30, 4, after(13)), plain(34, 4)]
        );
        let overwrite = write(31, 2, Placement::Overwrite);
        assert_eq!(hints.give(plain(31, 2)), [overwrite]);
        let discard = Command::Deallocate {
            offset: 30 * BLOCK,
            len: 4 * BLOCK,
        };
        assert_eq!(hints.give(discard), [discard]);
        assert_eq!(hints.give(plain(31, 2)), [write(31, 2, after(30))]);
        // Metadata.
        assert_eq!(hints.give(plain(50, 1)), [plain(50, 1)]);
    }
}
